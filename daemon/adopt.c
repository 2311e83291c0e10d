/* SPDX-License-Identifier: MIT */
/*
 * Adoption.
 *
 * The predecessor may have died between any two stores. What it had told a client of is complete in state and fd store
 * (record.c); everything else is dropped here, with its records, and its fds are removed when the fd store is closed,
 * because nobody took them. Clients repeat their unanswered calls after RESUMED and so make it anew.
 *
 * Order: sessions, then what belongs to one session, then comms. A comm needs its record, all its members and choices
 * and its marks; the comm of a split also needs its parent's word that the split is over (a parent that has gone had no
 * split under way). A member whose session has not come over is lost; the comm goes on to exist for the others and
 * fails when executors are told.
 *
 * What is adopted is charged whatever the limits are now: a limit that was lowered stops new things only. For the same
 * reason a session keeps its tenant, also one that is configured no more (tenants.h): its communicators, their ids and
 * the nodes that they are over know it by that tenant's name.
 */
#include "daemon/adopt.h"

#include "daemon/buffer.h"
#include "daemon/comm.h"
#include "daemon/comm_device.h"
#include "daemon/comm_split.h"
#include "daemon/comm_unserved.h"
#include "daemon/executor_link.h"
#include "daemon/fdstore.h"
#include "daemon/handover.h"
#include "daemon/manager.h"
#include "daemon/notify.h"
#include "daemon/record.h"
#include "daemon/session.h"
#include "daemon/session_life.h"
#include "daemon/session_ring.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "daemon/tenants.h"
#include "railmux/railmux.h"
#include "ring/marks.h"
#include "ring/ring.h"
#include "util/log.h"
#include "util/parse.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

static const uint64_t adopt_unlimited[CHARGE_KIND_COUNT] = {
        [0 ... CHARGE_KIND_COUNT - 1] = UINT64_MAX,
};

struct adopt_summary {
        unsigned int sessions, sessions_gone, rings, buffers, comms, dropped;
};

/* An fd of the store and its name, so that what turns out to be unusable can be removed from the manager as well. */
struct adopt_fd {
        char name[64];
        int fd;
};

static struct adopt_fd adopt_take(struct manager *manager, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
static struct adopt_fd adopt_take(struct manager *manager, const char *format, ...) {
        struct adopt_fd taken;
        va_list args;

        va_start(args, format);
        vsnprintf(taken.name, sizeof(taken.name), format, args);
        va_end(args);
        taken.fd = fdstore_take(manager->fdstore, taken.name);
        return taken;
}

static void adopt_discard(struct manager *manager, const struct adopt_fd *taken) {
        if (taken->fd < 0)
                return;
        close(taken->fd);
        (void)notify_remove(manager->notify, taken->name);
}

static void adopt_drop(struct manager *manager, uint32_t slot, struct adopt_summary *summary) {
        state_remove(manager->state, slot);
        summary->dropped++;
}

static bool adopt_peer_gone(int fd) {
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};

        return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLRDHUP | POLLNVAL)) != 0;
}

static void adopt_session(struct manager *manager, uint32_t slot, struct adopt_summary *summary) {
        struct state_session *from = &state_at(manager->state, slot)->session;
        struct tenant_identity identity = {.listener = "client",
                                           .kept = from->tenant,
                                           .uid = from->uid,
                                           .gid = from->gid,
                                           .pid = (pid_t)from->pid};
        struct adopt_fd taken = adopt_take(manager, "s%" PRIu64, from->session);
        struct session *session;

        from->name[sizeof(from->name) - 1] = 0;
        from->tenant[sizeof(from->tenant) - 1] = 0;
        if (taken.fd < 0 || from->session == 0 || manager_session(manager, from->session) ||
            (from->tenant[0] && tenants_keep(manager, from->tenant, adopt_unlimited) < 0)) {
                adopt_discard(manager, &taken);
                adopt_drop(manager, slot, summary);
                return;
        }
        if (session_new(manager, taken.fd, &identity, &session) < 0) { /* has closed it */
                (void)notify_remove(manager->notify, taken.name);
                adopt_drop(manager, slot, summary);
                return;
        }
        if (session_register(session, from->session) < 0) {
                session_end(session, LOG_LEVEL_ERROR, "out of memory");
                session_free(session);
                (void)notify_remove(manager->notify, taken.name);
                adopt_drop(manager, slot, summary);
                return;
        }
        session->state_slot = slot;
        session->version = from->version;
        session->features = from->features;
        if (from->opened_ns && from->opened_ns < session->opened_ns)
                session->opened_ns = from->opened_ns;
        /* Partner: the stores in record.c of the predecessor. */
        session->next_handle = (uint32_t)atomic_load_explicit(&from->next_handle, memory_order_acquire);
        session->attachment.known = UINT64_MAX;
        memcpy(session->name, from->name, sizeof(session->name));
        if (session_start(session) < 0) {
                session_end(session, LOG_LEVEL_ERROR, "out of memory");
                session_free(session);
                summary->sessions_gone++;
                return;
        }
        if (adopt_peer_gone(session->fd)) {
                session_end(session, LOG_LEVEL_INFO, "the process ended while the daemon was away");
                session_free(session);
                summary->sessions_gone++;
                return;
        }
        summary->sessions++;
}

/* One that has ended meanwhile says so from the loop. */
static void adopt_life(struct manager *manager, uint64_t id) {
        struct session *session = manager_session(manager, id);

        for (unsigned int i = 0; i < SESSION_LIVES; i++) {
                struct adopt_fd taken = adopt_take(manager, "l%" PRIu64 ".%u", id, i);

                if (taken.fd >= 0 && (!session || session_life_adopt(session, i, taken.fd)))
                        adopt_discard(manager, &taken);
        }
}

static void adopt_ring(struct manager *manager, uint32_t slot, struct adopt_summary *summary) {
        const struct state_ring *from = &state_at(manager->state, slot)->ring;
        struct session *session = manager_session(manager, from->session);
        struct session_ring *ring;
        struct adopt_fd taken[3];

        for (unsigned int i = 0; i < 3; i++)
                taken[i] = adopt_take(manager, "r%" PRIu64 ".%u.%c", from->session, from->gpu, "cxe"[i]);
        if (from->area.kind) { /* an older railmuxd had an executor area here, too */
                adopt_discard(manager, &taken[1]);
                taken[1].fd = -1;
        }
        if (!session || taken[0].fd < 0 || (!from->area.kind && taken[1].fd < 0) || taken[2].fd < 0 ||
            session_ring_find(session, from->gpu) || (from->area.kind != 0) != manager->on_device ||
            session_ring_adopt(session, from->gpu, from->depth, from->argument_bytes, &from->area, taken[0].fd,
                               taken[1].fd, taken[2].fd, slot, &ring)) {
                for (unsigned int i = 0; i < 3; i++)
                        adopt_discard(manager, &taken[i]);
                adopt_drop(manager, slot, summary);
                return;
        }
        ring->attachment.known = UINT64_MAX;
        summary->rings++;
}

static void adopt_buffer_device(struct manager *manager, uint32_t slot, struct adopt_summary *summary) {
        const struct state_buffer *from = &state_at(manager->state, slot)->buffer;
        struct session *session = manager_session(manager, from->session);
        struct adopt_fd taken = {.fd = -1};
        struct buffer *buffer;

        if (from->memory.kind == DEVICE_MEMORY_CHUNKS) /* if it is lost, so is it for new executors only */
                taken = adopt_take(manager, "b%" PRIu64 ".%u", from->session, from->buffer);
        if (!session || !manager->on_device ||
            buffer_adopt_device(session, from->buffer, from->bytes, &from->memory, from->gpu, taken.fd, slot,
                                &buffer)) {
                adopt_discard(manager, &taken);
                adopt_drop(manager, slot, summary);
                return;
        }
        buffer->attachment.known = UINT64_MAX;
        summary->buffers++;
}

static void adopt_buffer(struct manager *manager, uint32_t slot, struct adopt_summary *summary) {
        const struct state_buffer *from = &state_at(manager->state, slot)->buffer;
        struct session *session = manager_session(manager, from->session);
        struct adopt_fd taken = adopt_take(manager, "b%" PRIu64 ".%u", from->session, from->buffer);
        struct buffer *buffer;

        if (!session || taken.fd < 0 || buffer_adopt(session, from->buffer, from->bytes, taken.fd, slot, &buffer)) {
                adopt_discard(manager, &taken);
                adopt_drop(manager, slot, summary);
                return;
        }
        buffer->attachment.known = UINT64_MAX;
        summary->buffers++;
}

static void adopt_comm(struct manager *manager, uint32_t slot, struct adopt_summary *summary) {
        struct state_comm *from = &state_at(manager->state, slot)->comm;
        struct tenant *tenant;
        struct comm *comm;
        uint64_t status;

        from->name[sizeof(from->name) - 1] = 0;
        from->tenant[sizeof(from->tenant) - 1] = 0;
        tenant = tenant_find(manager, from->tenant);
        if (!tenant)
                tenant = manager->tenants;
        if (from->comm == 0 || from->n_ranks < 1 || from->n_ranks > COMM_RANKS_MAX ||
            from->n_choices > PLAN_CHOICES_MAX || manager_comm(manager, from->comm) ||
            comm_new_numbered(manager, tenant, from->comm, from->n_ranks, from->name, &comm)) {
                adopt_drop(manager, slot, summary);
                return;
        }
        comm->state_slot = slot;
        comm->parent = from->parent;
        comm->split_number = from->split_number;
        comm->geometry.part_bytes = from->part_bytes;
        comm->geometry.slots = from->slots;
        comm->staging_bytes = comm_staging_bytes(comm);
        comm->ring_depth = from->ring_depth;
        comm->lanes = from->lanes;
        comm->reach_bytes = from->reach_bytes;
        comm->burst_bytes = from->burst_bytes;
        comm->exchange_min = from->exchange_min;
        comm->exchange_max = from->exchange_max;
        /* Partner of the five: the stores in record.c of the predecessor. */
        status = atomic_load_explicit(&from->status, memory_order_acquire);
        comm->epoch = (uint32_t)atomic_load_explicit(&from->epoch, memory_order_acquire);
        comm->lost = atomic_load_explicit(&from->lost, memory_order_acquire);
        comm->splits_done = atomic_load_explicit(&from->splits_done, memory_order_acquire);
        comm->splits_failed = atomic_load_explicit(&from->splits_failed, memory_order_acquire);
        comm->code = ring_status_code((uint32_t)status);
        comm->failed_rank = comm->code ? ring_status_rank((uint32_t)status) : -1;
        comm->lost_gpu = (int32_t)(status >> 32) - 1;
        comm->forsaken = from->n_nodes > 1; /* a version before 5 does not say, but see adopt_member */
        if (from->by_id && !comm_find_id(manager, from->id) && comm_index(comm, from->id) < 0)
                log_warning("comm %" PRIu64 ": out of memory, its id is not known any more", comm->number);
        comm->marks_fd = adopt_take(manager, "m%" PRIu64, comm->number).fd;
}

static void adopt_member(struct manager *manager, uint32_t slot, struct adopt_summary *summary) {
        const struct state_member *from = &state_at(manager->state, slot)->member;
        struct comm *comm = manager_comm(manager, from->comm);
        struct comm_member *member;
        uint64_t leave;

        if (!comm || from->rank >= comm->n_ranks || comm->members[from->rank].state_slot != STATE_SLOT_NONE) {
                adopt_drop(manager, slot, summary);
                return;
        }
        member = &comm->members[from->rank];
        member->state_slot = slot;
        member->session_id = from->session;
        member->away = from->session == 0;
        comm->forsaken = comm->forsaken || member->away;
        member->pid = (pid_t)from->pid;
        member->handle = from->handle;
        member->gpu = from->gpu;
        member->parent_rank = from->parent_rank;
        member->staging = from->staging;
        /* Partner: the store in record_leave() of the predecessor. */
        leave = atomic_load_explicit(&from->leave, memory_order_acquire);
        member->leaving = (leave & STATE_LEAVING) != 0;
        member->last_sequence = (uint32_t)leave;
        member->lost = (leave & STATE_LOST) != 0;
}

static void adopt_choice(struct manager *manager, uint32_t slot, struct adopt_summary *summary) {
        const struct state_choice *from = &state_at(manager->state, slot)->choice;
        struct comm *comm = manager_comm(manager, from->comm);
        const size_t max = sizeof(comm->choice_slots) / sizeof(comm->choice_slots[0]);

        if (!comm || from->n > STATE_CHOICES || from->first > PLAN_CHOICES_MAX - from->n ||
            comm->n_choice_slots >= max) {
                adopt_drop(manager, slot, summary);
                return;
        }
        comm->choice_slots[comm->n_choice_slots++] = slot;
        for (uint32_t i = 0; i < from->n; i++) {
                struct plan_choice *choice = &comm->choices[from->first + i];

                choice->operation = from->choice[i].operation & UINT16_MAX;
                choice->widening = from->choice[i].operation >> 16;
                choice->algorithm = from->choice[i].algorithm;
                choice->max_bytes = from->choice[i].max_bytes;
        }
        comm->n_choices += from->n;
}

static void adopt_executor(struct manager *manager, uint32_t slot, struct adopt_summary *summary) {
        struct state_executor *from = &state_at(manager->state, slot)->executor;
        struct executor_link *link;
        uint32_t gpu;

        from->name[sizeof(from->name) - 1] = 0;
        DL_FOREACH(manager->links, link) {
                if (strcmp(link->name, from->name) == 0 && link->state_slot == STATE_SLOT_NONE)
                        break;
        }
        if (!link) {
                if (manager->on_device && parse_u32(from->name, &gpu) == 0 && gpu < MANAGER_LINKS_MAX) {
                        manager->unserved |= UINT64_C(1) << gpu;
                        manager->unserved_slot[gpu] =
                                slot; /* until it has ended: there may be another restart before */
                        return;
                }
                adopt_drop(manager, slot, summary);
                return;
        }
        link->state_slot = slot;
        /* Partner of the three: the stores in executor_link_record() of the predecessor. */
        link->instance = atomic_load_explicit(&from->instance, memory_order_relaxed);
        link->losses = atomic_load_explicit(&from->losses, memory_order_relaxed);
        link->leaving = atomic_load_explicit(&from->leaving, memory_order_acquire);
        link->adopted = link->instance != 0;
        from->pci[sizeof(from->pci) - 1] = 0;
        memcpy(link->pci, from->pci, sizeof(link->pci));
}

static void adopt_kind(struct manager *manager, enum state_kind kind, struct adopt_summary *summary) {
        uint32_t cursor = 0, slot;
        uint64_t id;

        while (state_next(manager->state, &cursor, &slot) == 0) {
                if (state_at(manager->state, slot)->kind != (uint32_t)kind)
                        continue;
                switch (kind) {
                case STATE_SESSION:
                        id = state_at(manager->state, slot)->session.session;
                        adopt_session(manager, slot, summary);
                        adopt_life(manager, id);
                        break;
                case STATE_RING:
                        adopt_ring(manager, slot, summary);
                        break;
                case STATE_BUFFER:
                        if (state_at(manager->state, slot)->buffer.memory.kind)
                                adopt_buffer_device(manager, slot, summary);
                        else
                                adopt_buffer(manager, slot, summary);
                        break;
                case STATE_COMM:
                        adopt_comm(manager, slot, summary);
                        break;
                case STATE_MEMBER:
                        adopt_member(manager, slot, summary);
                        break;
                case STATE_CHOICE:
                        adopt_choice(manager, slot, summary);
                        break;
                case STATE_EXECUTOR:
                        adopt_executor(manager, slot, summary);
                        break;
                default:
                        break;
                }
        }
}

static bool adopt_comm_complete(struct manager *manager, const struct comm *comm) {
        const struct state_comm *from = &state_at(manager->state, comm->state_slot)->comm;
        const struct comm *parent = comm->parent ? manager_comm(manager, comm->parent) : NULL;

        if (comm->marks_fd < 0 || comm->n_choices != from->n_choices || (from->by_id != 0) != comm->by_id)
                return false;
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                if (comm->members[r].state_slot == STATE_SLOT_NONE)
                        return false;
        }
        return !parent || comm_split_done(parent->splits_done, comm->split_number);
}

/* Links the ranks to their sessions. false: it could not be, or nobody is left. */
static bool adopt_comm_ranks(struct manager *manager, struct comm *comm) {
        char text[160];
        bool alive = false;

        if (comm_charge_marks(comm, text, sizeof(text)))
                return false;
        comm->placed = manager->on_device; /* also if it fails: what was placed is given back with the comm */
        for (uint32_t r = 0; comm->placed && r < comm->n_ranks; r++)
                if (!comm_device_adopt(comm, r))
                        return false;
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                struct comm_member *member = &comm->members[r];
                struct session *session = manager_session(manager, member->session_id);

                member->joined = true;
                if (member->away)
                        continue;
                if (session && !member->lost) {
                        if (comm_member_adopt(comm, r, session))
                                return false;
                        alive = true;
                } else if (member->leaving) {
                        member->left = true;
                } else {
                        member->lost = true;
                        record_leave(member);
                }
        }
        comm->n_joined = comm->n_ranks;
        comm->attachment.known = UINT64_MAX;
        comm->attachment.sent = 0;
        handover_adopt(comm);
        return alive;
}

static void adopt_comms(struct manager *manager, struct adopt_summary *summary) {
        struct comm *comm, *tmp;

        /* Judged before any is freed: a child is judged by its parent's word. */
        HASH_ITER(hh, manager->comms, comm, tmp)
                comm->state = adopt_comm_complete(manager, comm) ? COMM_READY : COMM_JOINING;
        HASH_ITER(hh, manager->comms, comm, tmp) {
                if (comm->state == COMM_READY && adopt_comm_ranks(manager, comm)) {
                        if (comm->forsaken)
                                comm_forsake(comm);
                        summary->comms++;
                        continue;
                }
                comm->state = COMM_JOINING; /* it never was, as far as anybody was told, or nobody is left to tell */
                comm_free(comm);
                summary->dropped++;
        }
}

static void adopt_resumed(struct manager *manager) {
        struct session *session, *tmp;

        HASH_ITER(hh, manager->sessions, session, tmp) {
                Railmux__Session__Event event = RAILMUX__SESSION__EVENT__INIT;
                Railmux__Session__Resumed resumed = RAILMUX__SESSION__RESUMED__INIT;

                resumed.version = session->version;
                event.body_case = RAILMUX__SESSION__EVENT__BODY_RESUMED;
                event.resumed = &resumed;
                session_send_event(session, &event);
                comm_tell_again(session); /* one over several nodes has failed with the predecessor */
        }
}

void adopt(struct manager *manager) {
        static const enum state_kind order[] = {STATE_EXECUTOR, STATE_SESSION, STATE_RING,  STATE_BUFFER,
                                                STATE_COMM,     STATE_MEMBER,  STATE_CHOICE};
        struct adopt_summary summary = {0};

        tenants_set_unlimited(manager);
        for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
                adopt_kind(manager, order[i], &summary);
        adopt_comms(manager, &summary);
        tenants_set_limits(manager, manager->config->limit);
        adopt_resumed(manager);
        if (manager->on_device)
                comm_unserved_adopted(manager);
        manager->counters.sessions_adopted = summary.sessions;
        log_notice("took over from a predecessor (restart %" PRIu64
                   "): %u sessions, %u rings, %u buffers, %u comms; %u "
                   "sessions had ended, %u incomplete records dropped",
                   manager->restarts, summary.sessions, summary.rings, summary.buffers, summary.comms,
                   summary.sessions_gone, summary.dropped);
}
