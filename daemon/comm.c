/* SPDX-License-Identifier: MIT */
/*
 * A communicator.
 *
 *   JOINING    ranks gather (comm_join.c; the comms of a split are born with all ranks, comm_split.c)
 *   ATTACHING  numbered, charged, marks made; the executors are being told
 *   READY      recorded and answered
 *
 * Before READY everything is all or nothing: a rank that dies or cannot be charged fails it for all. From READY on each
 * rank leaves for itself, and the comm is freed when no rank is left.
 *
 * A member's `session` is set exactly while the rank takes part. A rank that leaves keeps it until every executor of
 * the comm has confirmed, because only then may the client free what its requests used. What others see when a rank
 * dies is decided by the executors, which know the requests; the daemon only makes sure that they hear of it, now or
 * when they come back.
 */
#include "daemon/comm.h"

#include "daemon/call.h"
#include "daemon/comm_device.h"
#include "daemon/comm_join.h"
#include "daemon/comm_plan.h"
#include "daemon/comm_remote.h"
#include "daemon/comm_remote_id.h"
#include "daemon/comm_split.h"
#include "daemon/comm_split_root.h"
#include "daemon/comm_unserved.h"
#include "daemon/exchange.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/manager.h"
#include "daemon/record.h"
#include "daemon/session_ring.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "gpu/plane.h"
#include "railmux/railmux.h"
#include "ring/marks.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/memfd.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

void comm_log(const struct comm *comm, int level, const char *text) {
        char number[24];

        snprintf(number, sizeof(number), "%" PRIu64, comm->number);
        log_fields(level, (const char *const[]){"COMM", number, "TENANT", comm->tenant->name, NULL},
                   "comm %s (%s, %u ranks) %s", number, comm->name[0] ? comm->name : "unnamed", comm->n_ranks, text);
}

int comm_new(struct manager *manager, struct tenant *tenant, uint32_t n_ranks, const char *name, char *text,
             size_t text_size, struct comm **ret_comm) {
        if (!comm_new_numbered(manager, tenant, state_take_comm(manager->state), n_ranks, name, ret_comm))
                return 0;
        snprintf(text, text_size, "out of memory");
        return COMM_E_RESOURCE;
}

int comm_new_numbered(struct manager *manager, struct tenant *tenant, uint64_t number, uint32_t n_ranks,
                      const char *name, struct comm **ret_comm) {
        struct comm *comm = calloc(1, sizeof(*comm) + n_ranks * sizeof(comm->members[0]));

        if (!comm)
                return -ENOMEM;
        comm->manager = manager;
        comm->tenant = tenant;
        comm->number = number;
        comm->n_ranks = n_ranks;
        comm->created_ns = clock_now_ns();
        comm->marks_fd = -1;
        comm->failed_rank = comm->lost_gpu = -1;
        comm->state_slot = STATE_SLOT_NONE;
        snprintf(comm->name, sizeof(comm->name), "%s", name);
        for (uint32_t r = 0; r < n_ranks; r++) {
                comm->members[r].comm = comm;
                comm->members[r].rank = r;
                comm->members[r].state_slot = STATE_SLOT_NONE;
        }
        HASH_ADD(hh, manager->comms, number, sizeof(comm->number), comm);
        if (!comm->hh.tbl) { /* no memory for the table */
                free(comm);
                return -ENOMEM;
        }
        *ret_comm = comm;
        return 0;
}

/* The rank takes part no more; what it was charged is given back. */
static void comm_member_unlink(struct comm_member *member) {
        struct session *session = member->session;

        if (!session)
                return;
        call_drop(&member->calls, NULL);
        call_drop(&member->abort_calls, NULL);
        comm_split_forget(member);
        if (member->comm->remote)
                comm_remote_id_drop(member);
        DL_DELETE(session->members, member);
        session->n_members--;
        member->session = NULL;
        charge_release(&member->charge_bytes);
        charge_release(&member->charge_comm);
}

struct comm *comm_free(struct comm *comm) {
        struct manager *manager;
        struct executor_link *link;

        if (!comm)
                return NULL;
        manager = comm->manager;
        while (manager->stopping && comm->splits)
                comm_split_free(comm->splits);
        comm_split_end_all(comm, RMX_E_PEER_LOST, "the parent communicator has ended");
        if (!manager->stopping) {
                DL_FOREACH(manager->links, link) {
                        if (comm->attachment.sent & executor_link_mask(link))
                                executor_op_push(link, EXECUTOR_OP_COMM_DETACH, comm->number, 0);
                }
                if (comm->state == COMM_READY) {
                        manager->counters.comms_freed++;
                        comm_log(comm, LOG_LEVEL_INFO, "freed");
                }
        }
        handover_forget(comm);
        comm_device_gone(comm);
        record_drop_comm(comm);
        comm_remote_free(comm);
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                comm_member_unlink(&comm->members[r]);
                free(comm->members[r].chunks);
        }
        if (comm->marks_fd >= 0)
                close(comm->marks_fd);
        charge_release(&comm->charge_marks_bytes);
        charge_release(&comm->charge_marks_fd);
        if (comm->by_id)
                HASH_DELETE(hh_id, manager->comms_by_id, comm);
        HASH_DELETE(hh, manager->comms, comm);
        free(comm);
        return NULL;
}

int comm_index(struct comm *comm, const uint8_t id[COMM_ID_BYTES]) {
        memcpy(comm->id, id, COMM_ID_BYTES);
        HASH_ADD(hh_id, comm->manager->comms_by_id, id, COMM_ID_BYTES, comm);
        comm->by_id = comm->hh_id.tbl != NULL;
        return comm->by_id ? 0 : -ENOMEM;
}

struct comm *comm_find_id(struct manager *manager, const uint8_t id[COMM_ID_BYTES]) {
        struct comm *comm;

        HASH_FIND(hh_id, manager->comms_by_id, id, COMM_ID_BYTES, comm);
        return comm;
}

struct comm_member *comm_member_of_handle(struct session *session, uint32_t handle) {
        struct comm_member *member;

        DL_FOREACH(session->members, member) {
                if (member->handle == handle)
                        return member;
        }
        return NULL;
}

bool comm_spans(const struct comm *comm) {
        return comm->forsaken || (comm->remote && comm->remote->n_nodes > 1);
}

uint64_t comm_staging_bytes(const struct comm *comm) {
        uint32_t here = 0;

        if (!comm->manager->on_device)
                return plan_staging_bytes(&comm->geometry, comm->n_ranks);
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                here += !comm->members[r].away;
        return here * plane_staging_bytes(comm->n_ranks);
}

uint64_t comm_staging_share(const struct manager *manager, uint32_t n_ranks) {
        struct plan_geometry geometry;

        if (manager->on_device)
                return plane_staging_bytes(n_ranks);
        plan_geometry_choose(n_ranks, &geometry);
        return (plan_staging_bytes(&geometry, n_ranks) + n_ranks - 1) / n_ranks;
}

static int comm_member_charge(struct comm_member *member, char *text, size_t text_size) {
        struct comm *comm = member->comm;

        if (tenant_charge(comm->tenant, &member->charge_comm, CHARGE_COMMS, 1, text, text_size))
                return COMM_E_LIMIT;
        if (tenant_charge(comm->tenant, &member->charge_bytes, CHARGE_BYTES,
                          comm_staging_share(comm->manager, comm->n_ranks), text, text_size)) {
                charge_release(&member->charge_comm);
                return COMM_E_LIMIT;
        }
        return 0;
}

static void comm_member_link(struct comm_member *member, struct session *session) {
        member->session = session;
        member->session_id = session->id;
        member->pid = session->pid;
        member->joined = true;
        member->comm->n_joined++;
        DL_APPEND(session->members, member);
        session->n_members++;
}

int comm_member_join(struct comm *comm, uint32_t rank, struct session *session, uint32_t gpu, char *text,
                     size_t text_size) {
        struct comm_member *member = &comm->members[rank];
        int r = comm_member_charge(member, text, text_size);

        if (r)
                return r;
        comm_member_link(member, session);
        member->gpu = gpu;
        member->handle = session->next_handle++;
        if (session->next_handle == 0) /* 0 names nothing; after four thousand million comms numbers come again */
                session->next_handle = 1;
        record_next_handle(session);
        return 0;
}

int comm_member_adopt(struct comm *comm, uint32_t rank, struct session *session) {
        struct comm_member *member = &comm->members[rank];
        char text[160];

        if (comm_member_charge(member, text, sizeof(text)))
                return COMM_E_LIMIT;
        comm_member_link(member, session);
        return 0;
}

int comm_charge_marks(struct comm *comm, char *text, size_t text_size) {
        if (tenant_charge(comm->tenant, &comm->charge_marks_fd, CHARGE_FDS, 1, text, text_size) ||
            tenant_charge(comm->tenant, &comm->charge_marks_bytes, CHARGE_BYTES, marks_bytes(comm->n_ranks), text,
                          text_size))
                return COMM_E_LIMIT;
        return 0;
}

/* Geometry and plans, as if all ranks were here. How many; 0: no memory. */
static uint32_t comm_choose(struct comm *comm) {
        _Static_assert(MANAGER_RANKS_MAX == COMM_RANKS_MAX, "one choice per number of ranks");
        uint32_t n;

        return comm_plan_nodes(comm->manager, comm->manager->on_device, NULL, comm->n_ranks, NULL, NULL,
                               &comm->geometry, comm->choices, &n)
                       ? 0
                       : n;
}

void comm_forsake(struct comm *comm) {
        uint32_t n;

        comm->forsaken = true;
        if (comm->manager->on_device) {
                comm->staging_bytes = comm_staging_bytes(comm);
                if (!comm->code || comm->code == RMX_E_LOST) {
                        comm->code = 0;
                        comm_abort(comm, RMX_E_LOST, -1, "railmuxd was restarted", 0);
                }
                return;
        }
        n = comm_choose(comm);
        if (!n) /* no memory: an executor that does not know it refuses its requests */
                return;
        comm->n_choices = n;
        comm->staging_bytes = comm_staging_bytes(comm);
}

int comm_attach(struct comm *comm, char *text, size_t text_size) {
        int r;

        r = comm_charge_marks(comm, text, text_size);
        if (r)
                return r;
        r = memfd_new("railmux-marks", marks_bytes(comm->n_ranks), &comm->marks_fd);
        if (r < 0) {
                snprintf(text, text_size, "the daemon cannot make a communicator: %s", strerror(-r));
                return COMM_E_RESOURCE;
        }
        record_marks(comm);
        if (!comm->remote) /* else the root has chosen */
                comm->n_choices = comm_choose(comm);
        comm->staging_bytes = comm_staging_bytes(comm);
        if (comm->n_choices == 0) {
                snprintf(text, text_size, "the daemon has no memory to choose plans");
                return COMM_E_RESOURCE;
        }
        comm->ring_depth = comm->manager->config->ring_depth;
        for (uint32_t rank = 0; rank < comm->n_ranks; rank++) {
                struct comm_member *member = &comm->members[rank];
                struct session_ring *ring = member->away ? NULL : session_ring_find(member->session, member->gpu);

                if (ring && ring->depth > comm->ring_depth) /* adopted, made under another configuration */
                        comm->ring_depth = ring->depth;
        }
        if (comm->remote) {
                r = comm_remote_attach(comm, text, text_size);
                if (r)
                        return r;
        }
        exchange_settle(comm);
        comm->state = COMM_ATTACHING;
        if (comm->manager->on_device) {
                r = comm_device_place(comm, text, text_size);
                if (r)
                        return r == COMM_E_WAIT ? 0 : r;
        }
        executor_attach_comm(comm);
        return 0;
}

uint64_t comm_needed(const struct comm *comm) {
        uint64_t mask = 0;

        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                struct executor_link *link = manager_link_of_gpu(comm->manager, comm->members[r].gpu);

                if (link && !comm->members[r].away)
                        mask |= executor_link_mask(link);
        }
        return mask;
}

void comm_reply(struct comm_member *member, struct session *session, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__CommReply reply = RAILMUX__SESSION__COMM_REPLY__INIT;

        reply.handle = member->handle;
        reply.comm = member->comm->number;
        reply.n_ranks = member->comm->n_ranks;
        reply.rank = member->rank;
        reply.gpu = member->gpu;
        reply.epoch = member->comm->epoch;
        reply.exchange_min = member->comm->exchange_min;
        reply.exchange_max = member->comm->exchange_max;
        if (member->comm->remote && member->comm->remote->n_nodes > 1) {
                reply.node.data = member->comm->remote->node;
                reply.node.len = member->comm->n_ranks;
        }
        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY;
        message.comm_reply = &reply;
        session_send(session, &message);
}

void comm_answer(struct comm *comm) {
        struct session *session;
        uint64_t id;

        comm->state = COMM_READY;
        comm->manager->counters.comms_created++;
        comm_log(comm, LOG_LEVEL_INFO, "created");
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                while (call_pop(&comm->members[r].calls, &session, &id))
                        comm_reply(&comm->members[r], session, id);
        }
        if (comm->code)
                comm_tell(comm, true);
        handover_check(comm->manager); /* an executor may be waiting for it to end */
}

bool comm_is_attached(const struct comm *comm) {
        return attachment_complete(&comm->attachment, comm_needed(comm)) &&
               (!comm->remote || !comm->remote->net.in_fabric || comm->remote->net.ready);
}

void comm_attached(struct comm *comm, uint64_t mask, uint32_t code, const char *message, uint32_t epoch,
                   uint32_t lost) {
        if (code && comm->state == COMM_ATTACHING) {
                comm_join_fail(comm, code, "%s", message);
                return;
        }
        if (code) {
                comm_broken(comm, mask, code, -1, message);
                return;
        }
        comm->attachment.acked |= mask;
        comm_set_epoch(comm, epoch);
        if (lost) {
                comm->lost += lost;
                record_comm_status(comm);
        }
        if (comm->state != COMM_ATTACHING || !comm_is_attached(comm))
                return;
        if (comm->split) {
                comm_split_check(comm->split);
        } else if (comm->remote) {
                comm_remote_attached(comm);
        } else if (record_comm(comm)) {
                comm_join_fail(comm, RMX_E_NO_MEMORY, "the daemon cannot record the communicator");
        } else {
                record_barrier(comm->manager);
                comm_answer(comm);
        }
}

struct comm *comm_settle(struct comm *comm) {
        if (comm->split) /* which knows it, and settles it when it has been decided */
                return comm;
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                if (comm->members[r].session)
                        return comm;
        }
        return comm->remote && comm_remote_keeps(comm) ? comm : comm_free(comm);
}

void comm_member_leave(struct comm_member *member, uint32_t last_sequence) {
        struct comm *comm = member->comm;
        struct executor_link *link;

        if (!member->leaving) {
                member->leaving = true;
                member->last_sequence = last_sequence;
                record_leave(member);
                comm_split_leave(member);
                if (comm->remote)
                        comm_split_root_left(member);
                DL_FOREACH(comm->manager->links, link) {
                        if (comm_needed(comm) & executor_link_mask(link))
                                executor_op_push(link, EXECUTOR_OP_RANK_LEAVE, comm->number, member->rank);
                }
                handover_left(comm);
        }
        if (!comm_needed(comm) && !comm_unserved(comm)) /* all its GPUs are served no more */
                comm_member_left(member, 0);
}

void comm_member_left(struct comm_member *member, uint64_t mask) {
        struct comm *comm = member->comm;
        struct session *session;
        struct call *calls, *abort_calls;
        uint64_t id;

        if (!member->leaving || member->left)
                return;
        member->leave_acked |= mask;
        if ((member->leave_acked & comm_needed(comm)) != comm_needed(comm) || comm_unserved(comm))
                return;
        member->left = true;
        if (comm->remote)
                comm_remote_left(member);
        calls = member->calls;
        abort_calls = member->abort_calls; /* a rank that has left has nothing to wait for */
        member->calls = member->abort_calls = NULL;
        comm_member_unlink(member);
        comm_settle(comm);
        while (call_pop(&calls, &session, &id))
                session_send_ack(session, id);
        while (call_pop(&abort_calls, &session, &id))
                session_send_ack(session, id);
}

void comm_member_lost(struct comm_member *member) {
        struct comm *comm = member->comm;
        struct executor_link *link;
        bool away = false;

        comm_member_unlink(member);
        if (comm->state != COMM_READY) {
                member->lost = true;
                comm_join_fail(comm, RMX_E_PEER_LOST, "rank %u (pid %d) ended before the communicator was complete",
                               member->rank, (int)member->pid);
                return;
        }
        comm_split_fail_all(comm, RMX_E_PEER_LOST, "a rank of the parent communicator has ended");
        if (member->leaving) {
                /* Executors that have not answered yet have heard of its leave first, and nothing fails. */
                member->left = true;
                if (comm->remote)
                        comm_remote_left(member);
        } else {
                member->lost = true;
                record_leave(member);
                DL_FOREACH(comm->manager->links, link)
                        away = away || (comm_needed(comm) & executor_link_mask(link) && !executor_link_connected(link));
                /* Nobody would tell the others before an executor is back. With several executors each has to know.
                 * Over several nodes it is they who end it: what the rank had done may still be on its way. */
                if (away || (comm->manager->on_device && !comm->remote))
                        comm_broken(comm, 0, RMX_E_PEER_LOST, (int32_t)member->rank, "");
        }
        comm_settle(comm);
}

void comm_set_epoch(struct comm *comm, uint32_t epoch) {
        if (comm->epoch == epoch)
                return;
        comm->epoch = epoch;
        record_comm_status(comm);
        if (comm->state == COMM_READY)
                comm_tell(comm, false);
}

const char *comm_state_name(const struct comm *comm) {
        if (comm->state != COMM_READY)
                return "joining";
        if (comm->code)
                return "failed";
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                if (comm->members[r].leaving || comm->members[r].lost)
                        return "leaving";
        }
        return "ready";
}
