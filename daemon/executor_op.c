/* SPDX-License-Identifier: MIT */
#include "daemon/executor_op.h"

#include "daemon/buffer.h"
#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_device.h"
#include "daemon/comm_remote.h"
#include "daemon/executor_link.h"
#include "daemon/manager.h"
#include "daemon/reach.h"
#include "daemon/record.h"
#include "daemon/session.h"
#include "daemon/session_ring.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include "util/log.h"
#include <errno.h>
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

/* ---- sending ---- */

/* One that came in the place of an executor that knows a choice might take it for all types, or refuse the
 * communicator. Without that one alone it would take the next larger class, and others do not. It has no plan for the
 * operation rather, and refuses such calls. */
static bool executor_op_plans(const struct executor_link *link, const struct comm *comm, uint32_t operation) {
        for (uint32_t i = 0; i < comm->n_choices; i++)
                if (comm->choices[i].operation == operation && ((comm->choices[i].widening && !link->known.widenings) ||
                                                                comm->choices[i].algorithm >= link->known.algorithms))
                        return false;
        return true;
}

static int executor_op_send_comm(struct executor_link *link, struct comm *comm, bool moves,
                                 Railmux__Executor__Message *message) {
        Railmux__Executor__CommAttach attach = RAILMUX__EXECUTOR__COMM_ATTACH__INIT;
        Railmux__Executor__Member members[COMM_RANKS_MAX], *member_list[COMM_RANKS_MAX];
        Railmux__Executor__Choice choices[PLAN_CHOICES_MAX], *choice_list[PLAN_CHOICES_MAX];

        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                const struct comm_member *member = &comm->members[r];

                railmux__executor__member__init(&members[r]);
                members[r].session = member->session_id;
                members[r].handle = member->handle;
                /* What a predecessor knew to be on another node is on no GPU. */
                members[r].gpu = member->away && !comm->remote && comm->manager->on_device ? UINT32_MAX : member->gpu;
                members[r].left = member->leaving || member->left;
                members[r].last_sequence = member->last_sequence;
                members[r].staging = member->staging;
                members[r].node = comm->remote ? comm->remote->node[r] : 0;
                member_list[r] = &members[r];
        }
        for (uint32_t i = 0; i < comm->n_choices; i++) {
                Railmux__Executor__Choice *choice = &choices[attach.n_choices];

                if (!executor_op_plans(link, comm, comm->choices[i].operation))
                        continue;
                railmux__executor__choice__init(choice);
                choice->operation = comm->choices[i].operation;
                choice->algorithm = comm->choices[i].algorithm;
                choice->max_bytes = comm->choices[i].max_bytes;
                choice->widening = comm->choices[i].widening;
                choice_list[attach.n_choices++] = choice;
        }
        attach.comm = comm->number;
        attach.n_ranks = comm->n_ranks;
        attach.n_members = comm->n_ranks;
        attach.members = member_list;
        attach.choices = choice_list;
        attach.part_bytes = comm->geometry.part_bytes;
        attach.slots = comm->geometry.slots;
        attach.ring_depth = comm->ring_depth;
        attach.epoch = comm->epoch;
        attach.code = comm_device_code(comm, link, &attach.failed_rank);
        attach.name = comm->name;
        attach.first = comm->handover.state == HANDOVER_HANDED ? comm->handover.upto + 1 : 0;
        attach.lanes = comm->lanes;
        attach.reach_bytes = attach.code ? 0 : comm->reach_bytes;
        attach.burst_bytes = attach.reach_bytes ? comm->burst_bytes : 0;
        message->body_case =
                moves ? RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_MOVE : RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH;
        if (moves)
                message->comm_move = &attach;
        else
                message->comm_attach = &attach;
        if (!comm->remote || comm->remote->n_nodes < 2)
                return frame_send(link->fd, &message->base, &comm->marks_fd, 1);
        attach.node = comm->remote->own;
        attach.n_nodes = comm->remote->n_nodes;
        return frame_send(link->fd, &message->base,
                          (const int[]){comm->marks_fd, comm->remote->net.area_fd,
                                        fabric_doorbell_fd(comm->remote->cluster->fabric), comm->remote->net.wake_fd},
                          4);
}

static void executor_op_memory(Railmux__Executor__DeviceMemory *to, const struct device_memory *from) {
        railmux__executor__device_memory__init(to);
        to->kind = from->kind;
        to->handle.data = (uint8_t *)from->handle;
        to->handle.len = from->n_handle;
        to->allocation_bytes = from->allocation_bytes;
        to->offset = from->offset;
        to->bytes = from->bytes;
}

/* Of a buffer, to an executor of another GPU than its own. */
static int executor_op_send_reach(struct executor_link *link, const struct executor_op *op,
                                  Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__ReachImport import = RAILMUX__EXECUTOR__REACH_IMPORT__INIT;
        struct session *session = manager_session(link->manager, op->object);
        struct buffer *buffer = session ? buffer_find(session, op->sub) : NULL;
        Railmux__Executor__DeviceMemory memory;

        *ret_gone = !buffer;
        if (!buffer)
                return 0;
        import.session = op->object;
        import.buffer = op->sub;
        import.bytes = buffer->bytes;
        executor_op_memory(&memory, &buffer->memory);
        import.memory = &memory;
        import.identity = device_memory_identity(&buffer->memory);
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_REACH_IMPORT;
        message->reach_import = &import;
        return frame_send(link->fd, &message->base, &buffer->fd, buffer->fd < 0 ? 0 : 1);
}

static int executor_op_send_object(struct executor_link *link, struct executor_op *op,
                                   Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__SessionAttach attach = RAILMUX__EXECUTOR__SESSION_ATTACH__INIT;
        Railmux__Executor__RingAttach ring_attach = RAILMUX__EXECUTOR__RING_ATTACH__INIT;
        Railmux__Executor__BufferImport import = RAILMUX__EXECUTOR__BUFFER_IMPORT__INIT;
        Railmux__Executor__DeviceMemory memory;
        struct session *session;
        struct session_ring *ring;
        struct buffer *buffer;
        struct comm *comm;

        if (op->kind == EXECUTOR_OP_COMM_ATTACH || op->kind == EXECUTOR_OP_COMM_MOVE) {
                bool moves = op->kind == EXECUTOR_OP_COMM_MOVE;

                comm = manager_comm(link->manager, op->object);
                *ret_gone = !comm || (moves && comm->handover.state != HANDOVER_HANDED);
                return *ret_gone ? 0 : executor_op_send_comm(link, comm, moves, message);
        }
        session = manager_session(link->manager, op->object);
        *ret_gone = !session;
        if (!session)
                return 0;
        switch (op->kind) {
        case EXECUTOR_OP_SESSION_ATTACH:
                attach.session = session->id;
                attach.pid = (uint32_t)session->pid;
                attach.name = session->name;
                attach.tenant = session->tenant->name;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_ATTACH;
                message->session_attach = &attach;
                return frame_send(link->fd, &message->base, NULL, 0);
        case EXECUTOR_OP_RING_ATTACH:
                ring = session_ring_find(session, op->sub);
                *ret_gone = !ring;
                if (!ring)
                        return 0;
                ring_attach.session = session->id;
                ring_attach.gpu = ring->gpu;
                ring_attach.depth = ring->depth;
                ring_attach.argument_bytes = ring->argument_bytes;
                executor_op_memory(&memory, &ring->area);
                ring_attach.area = ring->area.kind ? &memory : NULL;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_RING_ATTACH;
                message->ring_attach = &ring_attach;
                return frame_send(link->fd, &message->base,
                                  (const int[]){ring->client_fd, session_ring_executor_fd(ring), ring->event_fd}, 3);
        default: /* EXECUTOR_OP_BUFFER_IMPORT */
                buffer = buffer_find(session, op->sub);
                *ret_gone = !buffer;
                if (!buffer)
                        return 0;
                import.session = session->id;
                import.buffer = buffer->id;
                import.bytes = buffer->bytes;
                executor_op_memory(&memory, &buffer->memory);
                import.memory = buffer_on_device(buffer) ? &memory : NULL;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_IMPORT;
                message->buffer_import = &import;
                return frame_send(link->fd, &message->base, &buffer->fd, buffer->fd < 0 ? 0 : 1);
        }
}

static int executor_op_send_peer(struct executor_link *link, const struct executor_op *op,
                                 Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__PeerAttach attach = RAILMUX__EXECUTOR__PEER_ATTACH__INIT;
        Railmux__Executor__DeviceMemory pool;
        struct executor_link *other;

        DL_FOREACH(link->manager->links, other) {
                if (other->index == op->object)
                        break;
        }
        *ret_gone = !other || other->pool_memory.kind == 0;
        if (*ret_gone)
                return 0;
        executor_op_memory(&pool, &other->pool_memory);
        attach.gpu = other->first_gpu;
        attach.instance = other->instance;
        attach.pool = &pool;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_PEER_ATTACH;
        message->peer_attach = &attach;
        return frame_send(link->fd, &message->base, NULL, 0);
}

static int executor_op_send_plain(struct executor_link *link, struct executor_op *op,
                                  Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__SessionDetach session_detach = RAILMUX__EXECUTOR__SESSION_DETACH__INIT;
        Railmux__Executor__BufferRetire retire = RAILMUX__EXECUTOR__BUFFER_RETIRE__INIT;
        Railmux__Executor__CommAbort comm_abort_call = RAILMUX__EXECUTOR__COMM_ABORT__INIT;
        Railmux__Executor__CommDetach comm_detach = RAILMUX__EXECUTOR__COMM_DETACH__INIT;
        Railmux__Executor__RankLeave leave = RAILMUX__EXECUTOR__RANK_LEAVE__INIT;
        Railmux__Executor__CommRelease release = RAILMUX__EXECUTOR__COMM_RELEASE__INIT;
        Railmux__Executor__CommHold hold = RAILMUX__EXECUTOR__COMM_HOLD__INIT;
        Railmux__Executor__Drain drain = RAILMUX__EXECUTOR__DRAIN__INIT;
        Railmux__Executor__Query query = RAILMUX__EXECUTOR__QUERY__INIT;
        Railmux__Executor__BufferReach reach = RAILMUX__EXECUTOR__BUFFER_REACH__INIT;
        Railmux__Executor__ReachRetire reach_retire = RAILMUX__EXECUTOR__REACH_RETIRE__INIT;
        struct session *session;
        struct buffer *buffer;
        struct comm *comm;

        switch (op->kind) {
        case EXECUTOR_OP_SESSION_DETACH:
                session_detach.session = op->object;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_DETACH;
                message->session_detach = &session_detach;
                break;
        case EXECUTOR_OP_BUFFER_RETIRE:
                retire.session = op->object;
                retire.buffer = op->sub;
                retire.tell = true;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_RETIRE;
                message->buffer_retire = &retire;
                break;
        case EXECUTOR_OP_BUFFER_REACH:
                session = manager_session(link->manager, op->object);
                buffer = session ? buffer_find(session, op->sub) : NULL;
                *ret_gone = !buffer;
                if (!buffer)
                        return 0;
                reach.session = op->object;
                reach.buffer = op->sub;
                reach.gpus = buffer->reach.told;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_REACH;
                message->buffer_reach = &reach;
                break;
        case EXECUTOR_OP_REACH_RETIRE:
        case EXECUTOR_OP_REACH_FORGET:
                reach_retire.session = op->object;
                reach_retire.buffer = op->sub;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_REACH_RETIRE;
                message->reach_retire = &reach_retire;
                break;
        case EXECUTOR_OP_COMM_ABORT:
                comm = manager_comm(link->manager, op->object);
                *ret_gone = !comm;
                if (!comm)
                        return 0;
                comm_abort_call.comm = op->object;
                comm_abort_call.code = comm_device_code(comm, link, &comm_abort_call.rank);
                if (!comm_abort_call.code) {
                        comm_abort_call.code = RMX_E_ABORTED;
                        comm_abort_call.rank = (int32_t)op->sub;
                }
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ABORT;
                message->comm_abort = &comm_abort_call;
                break;
        case EXECUTOR_OP_COMM_DETACH:
                comm_detach.comm = op->object;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_DETACH;
                message->comm_detach = &comm_detach;
                break;
        case EXECUTOR_OP_COMM_HOLD:
                comm = manager_comm(link->manager, op->object);
                *ret_gone = !comm || comm->handover.state != HANDOVER_HOLDING;
                if (*ret_gone)
                        return 0;
                hold.comm = op->object;
                hold.has_upto = comm->handover.has_upto && !handover_any(link->manager);
                hold.upto = comm->handover.upto;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_HOLD;
                message->comm_hold = &hold;
                break;
        case EXECUTOR_OP_COMM_RELEASE:
                comm = manager_comm(link->manager, op->object);
                release.comm = op->object;
                release.ended = comm && comm->code && !comm->aborting;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_RELEASE;
                message->comm_release = &release;
                break;
        case EXECUTOR_OP_DRAIN:
                drain.go = op->sub == EXECUTOR_DRAIN_GO;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_DRAIN;
                message->drain = &drain;
                break;
        case EXECUTOR_OP_RANK_LEAVE:
                comm = manager_comm(link->manager, op->object);
                *ret_gone = !comm;
                if (!comm)
                        return 0;
                leave.comm = op->object;
                leave.rank = op->sub;
                leave.last_sequence = comm->members[op->sub].last_sequence;
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE;
                message->rank_leave = &leave;
                break;
        default: /* EXECUTOR_OP_QUERY */
                message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_QUERY;
                message->query = &query;
                break;
        }
        return frame_send(link->fd, &message->base, NULL, 0);
}

bool executor_op_send(struct executor_link *link, struct executor_op *op, bool *ret_sent, int *ret_condition) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        bool gone = false;
        int r = -EINVAL;

        message.id = op->id;
        switch (op->kind) { /* all, so that the compiler names one that is new and missing here */
        case EXECUTOR_OP_SESSION_ATTACH:
        case EXECUTOR_OP_RING_ATTACH:
        case EXECUTOR_OP_BUFFER_IMPORT:
        case EXECUTOR_OP_COMM_ATTACH:
        case EXECUTOR_OP_COMM_MOVE:
                r = executor_op_send_object(link, op, &message, &gone);
                break;
        case EXECUTOR_OP_PEER_ATTACH:
                r = executor_op_send_peer(link, op, &message, &gone);
                break;
        case EXECUTOR_OP_REACH_IMPORT:
                r = executor_op_send_reach(link, op, &message, &gone);
                break;
        case EXECUTOR_OP_SESSION_DETACH:
        case EXECUTOR_OP_BUFFER_RETIRE:
        case EXECUTOR_OP_BUFFER_REACH:
        case EXECUTOR_OP_REACH_RETIRE:
        case EXECUTOR_OP_REACH_FORGET:
        case EXECUTOR_OP_COMM_ABORT:
        case EXECUTOR_OP_COMM_DETACH:
        case EXECUTOR_OP_COMM_HOLD:
        case EXECUTOR_OP_COMM_RELEASE:
        case EXECUTOR_OP_RANK_LEAVE:
        case EXECUTOR_OP_QUERY:
        case EXECUTOR_OP_DRAIN:
                r = executor_op_send_plain(link, op, &message, &gone);
                break;
        }
        if (r != FRAME_OK) {
                *ret_condition = r;
                return false;
        }
        *ret_sent = !gone;
        return true;
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
        default:
                return; /* nobody waits for the end of a detach */
        }
}
