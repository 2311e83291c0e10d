/* SPDX-License-Identifier: MIT */
/*
 * Recording. The order is always: records of parts, record of the whole, fds into the store, barrier, then the answer
 * to the client. So whatever a client was told of is there for a successor, and whatever a successor finds incomplete
 * was never answered.
 */
#include "daemon/record.h"

#include "daemon/buffer.h"
#include "daemon/comm.h"
#include "daemon/comm_remote.h"
#include "daemon/forget.h"
#include "daemon/manager.h"
#include "daemon/notify.h"
#include "daemon/session.h"
#include "daemon/session_ring.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/clock.h"
#include "util/log.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(((struct state_session *)0)->name) == SESSION_NAME_MAX &&
                       sizeof(((struct state_session *)0)->tenant) == TENANT_NAME_MAX,
               "names are copied whole");

struct record_name {
        char text[64];
};

static struct record_name record_session_name(const struct session *session) {
        struct record_name name;

        snprintf(name.text, sizeof(name.text), "s%" PRIu64, session->id);
        return name;
}

static struct record_name record_life_name(const struct session_life *life) {
        struct record_name name;

        snprintf(name.text, sizeof(name.text), "l%" PRIu64 ".%u", life->session->id,
                 (unsigned int)(life - life->session->life));
        return name;
}

static struct record_name record_ring_name(const struct session_ring *ring, char part) {
        struct record_name name;

        snprintf(name.text, sizeof(name.text), "r%" PRIu64 ".%u.%c", ring->session->id, ring->gpu, part);
        return name;
}

static struct record_name record_buffer_name(const struct buffer *buffer) {
        struct record_name name;

        snprintf(name.text, sizeof(name.text), "b%" PRIu64 ".%u", buffer->session->id, buffer->id);
        return name;
}

static struct record_name record_marks_name(const struct comm *comm) {
        struct record_name name;

        snprintf(name.text, sizeof(name.text), "m%" PRIu64, comm->number);
        return name;
}

/* The loop stands still meanwhile, and a service manager can be busy for seconds (systemd, when it reads its units
 * again). Other nodes would take this one for lost, with all that it shares with them. So with others it waits for a
 * quarter of their patience, which is what any callback may take; and who has waited in vain does not wait again for
 * ten times as long, or each call of each client would take that. */
#define BARRIER_US UINT64_C(5000000)

static void record_await(struct manager *manager, int (*wait)(struct notify *notify, uint64_t timeout_us)) {
        const uint64_t patience_us = manager->cluster ? manager->config->peer_lost_ms * UINT64_C(250) : BARRIER_US;
        const uint64_t timeout_us = patience_us < BARRIER_US ? patience_us : BARRIER_US;
        int r;

        if (manager->barrier_failed && clock_now_ns() < manager->barrier_ns)
                return;
        r = wait(manager->notify, timeout_us);
        if (r == 0 && wait != notify_barrier)
                return; /* that it reads does not mean that it has read */
        if (r < 0 && !manager->barrier_failed)
                log_warning("fd store: the service manager does not answer (%s); a restart now could lose the newest "
                            "objects",
                            strerror(-r));
        manager->barrier_failed = r < 0;
        manager->barrier_ns = clock_now_ns() + timeout_us * 1000 * 10;
}

void record_barrier(struct manager *manager) {
        record_await(manager, notify_barrier);
}

/* An fd that the manager does not take only costs recovery of this object; the daemon serves on. It is out of this
 * process before anybody hears of the object: executors would hold to what a successor knows nothing of. */
static void record_put(struct manager *manager, const char *name, int fd) {
        int r = forget_settle(manager->forget, name) ? notify_put(manager->notify, name, fd) : -EBUSY;

        if (r < 0)
                log_warning("fd store: %s is not kept over a restart: %s", name, strerror(-r));
        else
                record_await(manager, notify_flush);
}

int record_session(struct session *session) {
        struct state_record record = {.kind = STATE_SESSION};

        record.session.session = session->id;
        record.session.pid = (uint32_t)session->pid;
        record.session.uid = session->uid;
        record.session.gid = session->gid;
        record.session.version = session->version;
        record.session.features = session->features;
        record.session.opened_ns = session->opened_ns;
        /* Partner: the load in adopt.c of a successor; published with the record. */
        atomic_store_explicit(&record.session.next_handle, session->next_handle, memory_order_relaxed);
        memcpy(record.session.name, session->name, sizeof(record.session.name));
        memcpy(record.session.tenant, session->tenant->name, sizeof(record.session.tenant));
        if (state_add(session->manager->state, &record, &session->state_slot))
                return RECORD_E_RESOURCE;
        record_put(session->manager, record_session_name(session).text, session->fd);
        return 0;
}

void record_life(struct session_life *life) {
        record_put(life->session->manager, record_life_name(life).text, life->fd);
}

int record_ring(struct session_ring *ring) {
        struct state_record record = {.kind = STATE_RING};

        record.ring.session = ring->session->id;
        record.ring.gpu = ring->gpu;
        record.ring.depth = ring->depth;
        record.ring.argument_bytes = ring->argument_bytes;
        record.ring.area = ring->area;
        if (state_add(ring->session->manager->state, &record, &ring->state_slot))
                return RECORD_E_RESOURCE;
        record_put(ring->session->manager, record_ring_name(ring, 'c').text, ring->client_fd);
        if (ring->executor_fd >= 0) /* the service manager ignores what it keeps already, whatever the name */
                record_put(ring->session->manager, record_ring_name(ring, 'x').text, ring->executor_fd);
        record_put(ring->session->manager, record_ring_name(ring, 'e').text, ring->event_fd);
        return 0;
}

void record_buffer_fd(struct buffer *buffer) {
        record_put(buffer->session->manager, record_buffer_name(buffer).text, buffer->fd);
}

int record_buffer(struct buffer *buffer) {
        struct state_record record = {.kind = STATE_BUFFER};

        record.buffer.session = buffer->session->id;
        record.buffer.buffer = buffer->id;
        record.buffer.bytes = buffer->bytes;
        record.buffer.gpu = buffer->gpu;
        record.buffer.memory = buffer->memory;
        if (state_add(buffer->session->manager->state, &record, &buffer->state_slot))
                return RECORD_E_RESOURCE;
        if (buffer->fd >= 0)
                record_buffer_fd(buffer);
        return 0;
}

int record_marks(struct comm *comm) {
        record_put(comm->manager, record_marks_name(comm).text, comm->marks_fd);
        return 0;
}

static int record_comm_members(struct comm *comm) {
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                struct comm_member *member = &comm->members[r];
                struct state_record record = {.kind = STATE_MEMBER};

                record.member.comm = comm->number;
                record.member.session = member->session_id;
                record.member.rank = r;
                record.member.handle = member->handle;
                record.member.gpu = member->gpu;
                record.member.parent_rank = member->parent_rank;
                record.member.pid = (uint32_t)member->pid;
                record.member.staging = member->staging;
                if (state_add(comm->manager->state, &record, &member->state_slot))
                        return RECORD_E_RESOURCE;
        }
        return 0;
}

static int record_comm_choices(struct comm *comm) {
        _Static_assert(sizeof(comm->choice_slots) / sizeof(comm->choice_slots[0]) * STATE_CHOICES >= PLAN_CHOICES_MAX,
                       "every choice is recorded");

        for (uint32_t first = 0; first < comm->n_choices; first += STATE_CHOICES) {
                struct state_record record = {.kind = STATE_CHOICE};

                record.choice.comm = comm->number;
                record.choice.first = first;
                for (uint32_t i = first; i < comm->n_choices && i < first + STATE_CHOICES; i++) {
                        record.choice.choice[i - first].operation =
                                comm->choices[i].operation | comm->choices[i].widening << 16;
                        record.choice.choice[i - first].algorithm = comm->choices[i].algorithm;
                        record.choice.choice[i - first].max_bytes = comm->choices[i].max_bytes;
                        record.choice.n++;
                }
                if (state_add(comm->manager->state, &record, &comm->choice_slots[comm->n_choice_slots]))
                        return RECORD_E_RESOURCE;
                comm->n_choice_slots++;
        }
        return 0;
}

static void record_drop_comm_records(struct comm *comm) {
        struct state *state = comm->manager->state;

        /* The whole first: parts without it do not count. */
        state_remove(state, comm->state_slot);
        comm->state_slot = STATE_SLOT_NONE;
        for (uint32_t i = 0; i < comm->n_choice_slots; i++)
                state_remove(state, comm->choice_slots[i]);
        comm->n_choice_slots = 0;
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                state_remove(state, comm->members[r].state_slot);
                comm->members[r].state_slot = STATE_SLOT_NONE;
        }
}

int record_comm(struct comm *comm) {
        struct state_record record = {.kind = STATE_COMM};

        record.comm.comm = comm->number;
        record.comm.parent = comm->parent;
        record.comm.n_ranks = comm->n_ranks;
        record.comm.split_number = comm->split_number;
        record.comm.n_choices = comm->n_choices;
        record.comm.by_id = comm->by_id;
        record.comm.part_bytes = comm->geometry.part_bytes;
        record.comm.slots = comm->geometry.slots;
        record.comm.ring_depth = comm->ring_depth;
        record.comm.lanes = comm->lanes;
        record.comm.reach_bytes = (uint32_t)comm->reach_bytes;
        record.comm.burst_bytes = (uint32_t)comm->burst_bytes;
        record.comm.exchange_min = (uint32_t)comm->exchange_min;
        record.comm.exchange_max = (uint32_t)comm->exchange_max;
        record.comm.n_nodes = comm->remote ? comm->remote->n_nodes : 1;
        memcpy(record.comm.id, comm->id, sizeof(record.comm.id));
        memcpy(record.comm.name, comm->name, sizeof(record.comm.name));
        memcpy(record.comm.tenant, comm->tenant->name, sizeof(record.comm.tenant));
        if (record_comm_members(comm) || record_comm_choices(comm) ||
            state_add(comm->manager->state, &record, &comm->state_slot)) {
                record_drop_comm_records(comm);
                return RECORD_E_RESOURCE;
        }
        record_comm_status(comm);
        return 0;
}

void record_drop_session(struct session *session) {
        if (session->manager->stopping || session->state_slot == STATE_SLOT_NONE)
                return;
        state_remove(session->manager->state, session->state_slot);
        session->state_slot = STATE_SLOT_NONE;
        forget_name(session->manager->forget, record_session_name(session).text);
}

void record_drop_life(struct session_life *life) {
        if (!life->session->manager->stopping)
                forget_name(life->session->manager->forget, record_life_name(life).text);
}

void record_drop_ring(struct session_ring *ring) {
        if (ring->session->manager->stopping || ring->state_slot == STATE_SLOT_NONE)
                return;
        state_remove(ring->session->manager->state, ring->state_slot);
        ring->state_slot = STATE_SLOT_NONE;
        forget_name(ring->session->manager->forget, record_ring_name(ring, 'c').text);
        if (ring->executor_fd >= 0)
                forget_name(ring->session->manager->forget, record_ring_name(ring, 'x').text);
        forget_name(ring->session->manager->forget, record_ring_name(ring, 'e').text);
}

void record_drop_buffer(struct buffer *buffer) {
        if (buffer->session->manager->stopping || buffer->state_slot == STATE_SLOT_NONE)
                return;
        state_remove(buffer->session->manager->state, buffer->state_slot);
        buffer->state_slot = STATE_SLOT_NONE;
        if (buffer->fd >= 0)
                forget_name(buffer->session->manager->forget, record_buffer_name(buffer).text);
}

void record_drop_comm(struct comm *comm) {
        if (comm->manager->stopping)
                return;
        record_drop_comm_records(comm);
        if (comm->marks_fd >= 0)
                forget_name(comm->manager->forget, record_marks_name(comm).text);
}

void record_next_handle(struct session *session) {
        struct state_record *record = state_at(session->manager->state, session->state_slot);

        if (record) /* Partner: the load in adopt.c of a successor. */
                atomic_store_explicit(&record->session.next_handle, session->next_handle, memory_order_release);
}

void record_comm_status(struct comm *comm) {
        struct state_record *record = state_at(comm->manager->state, comm->state_slot);

        if (!record)
                return;
        /* Partner of the three: the loads in adopt.c of a successor. */
        atomic_store_explicit(&record->comm.status,
                              /* Over several nodes: what a successor finds (comm_remote.c). */
                              (uint64_t)(comm->lost_gpu + 1) << 32 |
                                      ring_status(comm_spans(comm) && !comm->code ? (uint32_t)RMX_E_LOST : comm->code,
                                                  comm->failed_rank),
                              memory_order_release);
        atomic_store_explicit(&record->comm.epoch, comm->epoch, memory_order_release);
        atomic_store_explicit(&record->comm.lost, comm->lost, memory_order_release);
}

void record_comm_stand(struct comm *comm) {
        struct state_record *record = state_at(comm->manager->state, comm->state_slot);
        uint64_t stand = comm->handover.state == HANDOVER_HANDED ? STATE_STANDS | comm->handover.upto : 0;

        if (record && !comm->manager->stopping) /* Partner: the load in handover_adopt() of a successor. */
                atomic_store_explicit(&record->comm.stand, stand, memory_order_release);
}

void record_splits_done(struct comm *comm) {
        struct state_record *record = state_at(comm->manager->state, comm->state_slot);

        if (!record)
                return;
        /* Partner of both: the loads in adopt.c of a successor. The second commits the first, and the children's
         * records. */
        atomic_store_explicit(&record->comm.splits_failed, comm->splits_failed, memory_order_release);
        atomic_store_explicit(&record->comm.splits_done, comm->splits_done, memory_order_release);
}

void record_leave(struct comm_member *member) {
        struct state_record *record = state_at(member->comm->manager->state, member->state_slot);
        uint64_t leave = member->lost ? STATE_LOST : STATE_LEAVING | member->last_sequence;

        if (record && !member->comm->manager->stopping) /* Partner: the load in adopt.c of a successor. */
                atomic_store_explicit(&record->member.leave, leave, memory_order_release);
}
