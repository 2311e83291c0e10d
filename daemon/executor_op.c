/* SPDX-License-Identifier: MIT */
#include "daemon/executor_op.h"

#include "daemon/buffer.h"
#include "daemon/comm.h"
#include "daemon/comm_device.h"
#include "daemon/executor_link.h"
#include "daemon/manager.h"
#include "daemon/reach.h"
#include "daemon/record.h"
#include "daemon/session.h"
#include "daemon/session_ring.h"
#include "railmux/railmux.h"
#include "util/log.h"
#include <stdlib.h>
#include <utlist.h>

#define EXECUTOR_OPS_PASSED 4096u /* by one call: for that long the loop is held */

static bool executor_op_of_buffer(const struct executor_op *op) {
        return op->kind == EXECUTOR_OP_BUFFER_IMPORT || op->kind == EXECUTOR_OP_BUFFER_RETIRE ||
               op->kind == EXECUTOR_OP_REACH_IMPORT;
}

static bool executor_op_of_comm(const struct executor_op *op) {
        return op->kind == EXECUTOR_OP_COMM_ABORT || op->kind == EXECUTOR_OP_COMM_DETACH ||
               op->kind == EXECUTOR_OP_RANK_LEAVE;
}

/* Has the call nothing to do with that session? */
static bool executor_op_apart(const struct executor_op *op, const struct comm *comm, uint64_t session) {
        if (!comm)
                return op->kind == EXECUTOR_OP_SESSION_DETACH && op->object != session;
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                if (comm->members[r].session_id == session)
                        return false;
        return true;
}

static void executor_op_enqueue(struct executor_link *link, struct executor_op *op) {
        struct executor_op *earlier = link->outgoing ? link->outgoing->prev : NULL, *before = NULL;
        const struct comm *comm = executor_op_of_comm(op) ? manager_comm(link->manager, op->object) : NULL;

        for (uint32_t n = 0; earlier && executor_op_of_buffer(earlier) && n < EXECUTOR_OPS_PASSED; n++) {
                if (!(before && before->object == earlier->object) && !executor_op_apart(op, comm, earlier->object))
                        break;
                before = earlier;
                earlier = earlier == link->outgoing ? NULL : earlier->prev;
        }
        if (before)
                DL_PREPEND_ELEM(link->outgoing, before, op);
        else
                DL_APPEND(link->outgoing, op);
}

static void executor_op_append(struct executor_link *link, enum executor_op_kind kind, uint64_t object, uint32_t sub,
                               bool owed) {
        struct executor_op *op = calloc(1, sizeof(*op));

        if (!op) {
                executor_link_disconnect(link, "out of memory"); /* its return begins from the objects again */
                return;
        }
        op->kind = kind;
        op->object = object;
        op->sub = sub;
        op->owed = owed;
        if (owed)
                link->n_owed++;
        executor_op_enqueue(link, op);
        executor_link_flush(link);
}

void executor_op_push(struct executor_link *link, enum executor_op_kind kind, uint64_t object, uint32_t sub) {
        if (link->state >= EXECUTOR_INVENTORY)
                executor_op_append(link, kind, object, sub, false);
}

void executor_op_push_owed(struct executor_link *link, enum executor_op_kind kind, uint64_t object, uint32_t sub) {
        if (link->state >= EXECUTOR_INVENTORY)
                executor_op_append(link, kind, object, sub, true);
}

const struct executor_op *executor_op_pending(const struct executor_link *link, enum executor_op_kind kind,
                                              uint64_t object) {
        const struct executor_op *op;

        DL_FOREACH(link->pending, op) {
                if (op->kind == kind && op->object == object)
                        return op;
        }
        return NULL;
}

bool executor_op_queued(const struct executor_link *link, enum executor_op_kind kind, uint64_t object) {
        const struct executor_op *op;

        DL_FOREACH(link->outgoing, op) {
                if (op->kind == kind && op->object == object)
                        return true;
        }
        return executor_op_pending(link, kind, object) != NULL;
}

static void executor_attach(struct manager *manager, uint64_t needed, struct attachment *attachment,
                            enum executor_op_kind kind, uint64_t object, uint32_t sub) {
        struct executor_link *link;

        DL_FOREACH(manager->links, link) {
                uint64_t mask = executor_link_mask(link);

                if (!(needed & mask) || attachment->sent & mask || !executor_link_connected(link))
                        continue;
                attachment->sent |= mask;
                attachment->known |= mask;
                executor_op_append(link, kind, object, sub, link->state == EXECUTOR_ATTACHING);
        }
}

void executor_attach_session(struct session *session) {
        executor_attach(session->manager, UINT64_MAX, &session->attachment, EXECUTOR_OP_SESSION_ATTACH, session->id, 0);
}

void executor_attach_ring(struct session_ring *ring) {
        if (handover_blocks(ring))
                return; /* handover_moved */
        executor_attach(ring->session->manager, session_ring_needed(ring), &ring->attachment, EXECUTOR_OP_RING_ATTACH,
                        ring->session->id, ring->gpu);
}

void executor_attach_buffer(struct buffer *buffer) {
        executor_attach(buffer->session->manager, buffer_needed(buffer), &buffer->attachment, EXECUTOR_OP_BUFFER_IMPORT,
                        buffer->session->id, buffer->id);
}

void executor_attach_comm(struct comm *comm) {
        if (comm->manager->on_device && !comm_device_ready(comm))
                return; /* comm_device_retry */
        if (comm->manager->on_device) {
                comm_device_acquaint(comm);
                reach_settle(comm);
        }
        executor_attach(comm->manager, comm_needed(comm), &comm->attachment, EXECUTOR_OP_COMM_ATTACH, comm->number, 0);
        reach_comm(comm);
}

/* ---- answers ---- */

/* The rank's executor knows what it has rung last. The others have heard what its process says. */
static void executor_op_rung(const struct executor_link *link, struct comm_member *member, uint32_t rung) {
        struct executor_link *other;

        if (member->last_sequence == rung)
                return;
        member->last_sequence = rung;
        record_leave(member);
        DL_FOREACH(link->manager->links, other) {
                if (other != link && comm_needed(member->comm) & executor_link_mask(other))
                        executor_op_push(other, EXECUTOR_OP_RANK_LEAVE, member->comm->number, member->rank);
        }
}

void executor_op_done(struct executor_link *link, const struct executor_op *op, const Railmux__Executor__Done *done) {
        uint64_t mask = executor_link_mask(link);
        struct session *session;
        struct session_ring *ring;
        struct buffer *buffer;
        struct comm *comm;

        switch (op->kind) {
        case EXECUTOR_OP_SESSION_ATTACH:
                session = manager_session(link->manager, op->object);
                if (session && done->code)
                        session_end(session, LOG_LEVEL_ERROR, "executor %s refused the session: %s", link->name,
                                    done->message);
                else if (session)
                        session->attachment.acked |= mask;
                return;
        case EXECUTOR_OP_RING_ATTACH:
                session = manager_session(link->manager, op->object);
                ring = session ? session_ring_find(session, op->sub) : NULL;
                if (ring)
                        session_ring_attached(ring, mask, done->code, done->message);
                return;
        case EXECUTOR_OP_BUFFER_IMPORT:
        case EXECUTOR_OP_BUFFER_RETIRE:
                session = manager_session(link->manager, op->object);
                buffer = session ? buffer_find(session, op->sub) : NULL;
                if (buffer && op->kind == EXECUTOR_OP_BUFFER_IMPORT && done->code == RMX_E_BUSY)
                        buffer_busy(buffer, mask);
                else if (buffer && op->kind == EXECUTOR_OP_BUFFER_IMPORT)
                        buffer_attached(buffer, mask, done->code, done->message);
                else if (buffer && done->in_use)
                        buffer_held(buffer, mask);
                else if (buffer)
                        buffer_retired(buffer, mask);
                return;
        case EXECUTOR_OP_COMM_ATTACH:
                comm = manager_comm(link->manager, op->object);
                if (comm && !done->code)
                        handover_moved(comm, mask);
                if (comm && done->code == RMX_E_BUSY)
                        comm_device_busy(comm, mask);
                else if (comm)
                        comm_attached(comm, mask, done->code, done->message, done->epoch, done->lost);
                return;
        case EXECUTOR_OP_COMM_HOLD:
        case EXECUTOR_OP_COMM_MOVE:
                comm = manager_comm(link->manager, op->object);
                if (comm && done->code)
                        comm_broken(comm, 0, RMX_E_LOST, -1, done->message);
                else if (comm && op->kind == EXECUTOR_OP_COMM_MOVE)
                        handover_moved(comm, mask);
                return;
        case EXECUTOR_OP_COMM_ABORT:
                comm = manager_comm(link->manager, op->object);
                if (comm)
                        comm_aborted(comm, mask);
                return;
        case EXECUTOR_OP_RANK_LEAVE:
                comm = manager_comm(link->manager, op->object);
                if (comm && done->has_rung)
                        executor_op_rung(link, &comm->members[op->sub], done->rung); /* before other nodes are told */
                if (comm)
                        comm_member_left(&comm->members[op->sub], mask);
                return;
        case EXECUTOR_OP_COMM_DETACH:
                comm_device_detached(link, op->object);
                return;
        case EXECUTOR_OP_BUFFER_REACH:
        case EXECUTOR_OP_REACH_IMPORT:
        case EXECUTOR_OP_REACH_RETIRE:
                reach_done(link, op, done);
                return;
        case EXECUTOR_OP_PEER_ATTACH:
                if (done->code) {
                        link->peers[op->object] = 0; /* comm_device_acquaint */
                        log_fields(LOG_LEVEL_ERROR, (const char *const[]){"EXECUTOR", link->name, NULL},
                                   "executor %s cannot reach the staging of executor %u: %s", link->name,
                                   (unsigned int)op->object, done->message);
                }
                return;
        case EXECUTOR_OP_SESSION_DETACH: /* nobody waits for the end of these */
        case EXECUTOR_OP_REACH_FORGET:
        case EXECUTOR_OP_COMM_RELEASE:
        case EXECUTOR_OP_QUERY:
        case EXECUTOR_OP_DRAIN:
                return;
        }
}
