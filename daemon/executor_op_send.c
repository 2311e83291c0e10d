/* SPDX-License-Identifier: MIT */
/* Building the messages of calls. A call whose object has gone is not sent (*ret_gone), and FRAME_OK is the answer. */
#include "daemon/executor_op.h"

#include "daemon/buffer.h"
#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_device.h"
#include "daemon/comm_remote.h"
#include "daemon/executor_link.h"
#include "daemon/manager.h"
#include "daemon/session.h"
#include "daemon/session_ring.h"
#include "daemon/tenant.h"
#include "proto/frame.h"
#include "railmux/railmux.h"
#include <errno.h>
#include <utlist.h>

/* Without descriptors. */
static int executor_op_frame(struct executor_link *link, const Railmux__Executor__Message *message) {
        return frame_send(link->fd, &message->base, NULL, 0);
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

/* ---- sessions, rings and buffers ---- */

static struct buffer *executor_op_buffer(const struct executor_link *link, const struct executor_op *op,
                                         bool *ret_gone) {
        struct session *session = manager_session(link->manager, op->object);
        struct buffer *buffer = session ? buffer_find(session, op->sub) : NULL;

        *ret_gone = !buffer;
        return buffer;
}

static int executor_op_session_attach(struct executor_link *link, const struct executor_op *op,
                                      Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__SessionAttach attach = RAILMUX__EXECUTOR__SESSION_ATTACH__INIT;
        struct session *session = manager_session(link->manager, op->object);

        *ret_gone = !session;
        if (!session)
                return FRAME_OK;
        attach.session = session->id;
        attach.pid = (uint32_t)session->pid;
        attach.name = session->name;
        attach.tenant = session->tenant->name;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_ATTACH;
        message->session_attach = &attach;
        return executor_op_frame(link, message);
}

static int executor_op_session_detach(struct executor_link *link, const struct executor_op *op,
                                      Railmux__Executor__Message *message) {
        Railmux__Executor__SessionDetach detach = RAILMUX__EXECUTOR__SESSION_DETACH__INIT;

        detach.session = op->object;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_DETACH;
        message->session_detach = &detach;
        return executor_op_frame(link, message);
}

static int executor_op_ring_attach(struct executor_link *link, const struct executor_op *op,
                                   Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__RingAttach attach = RAILMUX__EXECUTOR__RING_ATTACH__INIT;
        struct session *session = manager_session(link->manager, op->object);
        const struct session_ring *ring = session ? session_ring_find(session, op->sub) : NULL;
        Railmux__Executor__DeviceMemory memory;

        *ret_gone = !ring;
        if (!ring)
                return FRAME_OK;
        attach.session = session->id;
        attach.gpu = ring->gpu;
        attach.depth = ring->depth;
        attach.argument_bytes = ring->argument_bytes;
        executor_op_memory(&memory, &ring->area);
        attach.area = ring->area.kind ? &memory : NULL;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_RING_ATTACH;
        message->ring_attach = &attach;
        return frame_send(link->fd, &message->base,
                          (const int[]){ring->client_fd, session_ring_executor_fd(ring), ring->event_fd}, 3);
}

static int executor_op_buffer_import(struct executor_link *link, const struct executor_op *op,
                                     Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__BufferImport import = RAILMUX__EXECUTOR__BUFFER_IMPORT__INIT;
        const struct buffer *buffer = executor_op_buffer(link, op, ret_gone);
        Railmux__Executor__DeviceMemory memory;

        if (!buffer)
                return FRAME_OK;
        import.session = op->object;
        import.buffer = buffer->id;
        import.bytes = buffer->bytes;
        executor_op_memory(&memory, &buffer->memory);
        import.memory = buffer_on_device(buffer) ? &memory : NULL;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_IMPORT;
        message->buffer_import = &import;
        return frame_send(link->fd, &message->base, &buffer->fd, buffer->fd < 0 ? 0 : 1);
}

static int executor_op_buffer_retire(struct executor_link *link, const struct executor_op *op,
                                     Railmux__Executor__Message *message) {
        Railmux__Executor__BufferRetire retire = RAILMUX__EXECUTOR__BUFFER_RETIRE__INIT;

        retire.session = op->object;
        retire.buffer = op->sub;
        retire.tell = true;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_RETIRE;
        message->buffer_retire = &retire;
        return executor_op_frame(link, message);
}

static int executor_op_buffer_reach(struct executor_link *link, const struct executor_op *op,
                                    Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__BufferReach reach = RAILMUX__EXECUTOR__BUFFER_REACH__INIT;
        const struct buffer *buffer = executor_op_buffer(link, op, ret_gone);

        if (!buffer)
                return FRAME_OK;
        reach.session = op->object;
        reach.buffer = op->sub;
        reach.gpus = buffer->reach.told;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_REACH;
        message->buffer_reach = &reach;
        return executor_op_frame(link, message);
}

/* Of a buffer, to an executor of another GPU than its own. */
static int executor_op_reach_import(struct executor_link *link, const struct executor_op *op,
                                    Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__ReachImport import = RAILMUX__EXECUTOR__REACH_IMPORT__INIT;
        const struct buffer *buffer = executor_op_buffer(link, op, ret_gone);
        Railmux__Executor__DeviceMemory memory;

        if (!buffer)
                return FRAME_OK;
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

static int executor_op_reach_retire(struct executor_link *link, const struct executor_op *op,
                                    Railmux__Executor__Message *message) {
        Railmux__Executor__ReachRetire retire = RAILMUX__EXECUTOR__REACH_RETIRE__INIT;

        retire.session = op->object;
        retire.buffer = op->sub;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_REACH_RETIRE;
        message->reach_retire = &retire;
        return executor_op_frame(link, message);
}

/* ---- communicators ---- */

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

/* Its ranks, on this node and others. */
static void executor_op_members(const struct comm *comm, Railmux__Executor__Member members[COMM_RANKS_MAX],
                                Railmux__Executor__Member *list[COMM_RANKS_MAX]) {
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
                list[r] = &members[r];
        }
}

/* How many of its plans this executor is told. */
static size_t executor_op_choices(const struct executor_link *link, const struct comm *comm,
                                  Railmux__Executor__Choice choices[PLAN_CHOICES_MAX],
                                  Railmux__Executor__Choice *list[PLAN_CHOICES_MAX]) {
        size_t n = 0;

        for (uint32_t i = 0; i < comm->n_choices; i++) {
                Railmux__Executor__Choice *choice = &choices[n];

                if (!executor_op_plans(link, comm, comm->choices[i].operation))
                        continue;
                railmux__executor__choice__init(choice);
                choice->operation = comm->choices[i].operation;
                choice->algorithm = comm->choices[i].algorithm;
                choice->max_bytes = comm->choices[i].max_bytes;
                choice->widening = comm->choices[i].widening;
                list[n++] = choice;
        }
        return n;
}

/* Also a move, which says the same. */
static int executor_op_comm_attach(struct executor_link *link, const struct executor_op *op,
                                   Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__CommAttach attach = RAILMUX__EXECUTOR__COMM_ATTACH__INIT;
        Railmux__Executor__Member members[COMM_RANKS_MAX], *member_list[COMM_RANKS_MAX];
        Railmux__Executor__Choice choices[PLAN_CHOICES_MAX], *choice_list[PLAN_CHOICES_MAX];
        const bool moves = op->kind == EXECUTOR_OP_COMM_MOVE;
        struct comm *comm = manager_comm(link->manager, op->object);

        *ret_gone = !comm || (moves && comm->handover.state != HANDOVER_HANDED);
        if (*ret_gone)
                return FRAME_OK;
        executor_op_members(comm, members, member_list);
        attach.comm = comm->number;
        attach.n_ranks = comm->n_ranks;
        attach.n_members = comm->n_ranks;
        attach.members = member_list;
        attach.n_choices = executor_op_choices(link, comm, choices, choice_list);
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

static int executor_op_comm_abort(struct executor_link *link, const struct executor_op *op,
                                  Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__CommAbort abort_call = RAILMUX__EXECUTOR__COMM_ABORT__INIT;
        struct comm *comm = manager_comm(link->manager, op->object);

        *ret_gone = !comm;
        if (!comm)
                return FRAME_OK;
        abort_call.comm = op->object;
        abort_call.code = comm_device_code(comm, link, &abort_call.rank);
        if (!abort_call.code) {
                abort_call.code = RMX_E_ABORTED;
                abort_call.rank = (int32_t)op->sub;
        }
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ABORT;
        message->comm_abort = &abort_call;
        return executor_op_frame(link, message);
}

static int executor_op_comm_detach(struct executor_link *link, const struct executor_op *op,
                                   Railmux__Executor__Message *message) {
        Railmux__Executor__CommDetach detach = RAILMUX__EXECUTOR__COMM_DETACH__INIT;

        detach.comm = op->object;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_DETACH;
        message->comm_detach = &detach;
        return executor_op_frame(link, message);
}

static int executor_op_comm_hold(struct executor_link *link, const struct executor_op *op,
                                 Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__CommHold hold = RAILMUX__EXECUTOR__COMM_HOLD__INIT;
        const struct comm *comm = manager_comm(link->manager, op->object);

        *ret_gone = !comm || comm->handover.state != HANDOVER_HOLDING;
        if (*ret_gone)
                return FRAME_OK;
        hold.comm = op->object;
        hold.has_upto = comm->handover.has_upto && !handover_any(link->manager);
        hold.upto = comm->handover.upto;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_HOLD;
        message->comm_hold = &hold;
        return executor_op_frame(link, message);
}

/* Also of one that has gone. */
static int executor_op_comm_release(struct executor_link *link, const struct executor_op *op,
                                    Railmux__Executor__Message *message) {
        Railmux__Executor__CommRelease release = RAILMUX__EXECUTOR__COMM_RELEASE__INIT;
        const struct comm *comm = manager_comm(link->manager, op->object);

        release.comm = op->object;
        release.ended = comm && comm->code && !comm->aborting;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_RELEASE;
        message->comm_release = &release;
        return executor_op_frame(link, message);
}

static int executor_op_rank_leave(struct executor_link *link, const struct executor_op *op,
                                  Railmux__Executor__Message *message, bool *ret_gone) {
        Railmux__Executor__RankLeave leave = RAILMUX__EXECUTOR__RANK_LEAVE__INIT;
        const struct comm *comm = manager_comm(link->manager, op->object);

        *ret_gone = !comm;
        if (!comm)
                return FRAME_OK;
        leave.comm = op->object;
        leave.rank = op->sub;
        leave.last_sequence = comm->members[op->sub].last_sequence;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE;
        message->rank_leave = &leave;
        return executor_op_frame(link, message);
}

/* ---- executors ---- */

static int executor_op_peer_attach(struct executor_link *link, const struct executor_op *op,
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
                return FRAME_OK;
        executor_op_memory(&pool, &other->pool_memory);
        attach.gpu = other->first_gpu;
        attach.instance = other->instance;
        attach.pool = &pool;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_PEER_ATTACH;
        message->peer_attach = &attach;
        return executor_op_frame(link, message);
}

static int executor_op_query(struct executor_link *link, Railmux__Executor__Message *message) {
        Railmux__Executor__Query query = RAILMUX__EXECUTOR__QUERY__INIT;

        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_QUERY;
        message->query = &query;
        return executor_op_frame(link, message);
}

static int executor_op_drain(struct executor_link *link, const struct executor_op *op,
                             Railmux__Executor__Message *message) {
        Railmux__Executor__Drain drain = RAILMUX__EXECUTOR__DRAIN__INIT;

        drain.go = op->sub == EXECUTOR_DRAIN_GO;
        message->body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_DRAIN;
        message->drain = &drain;
        return executor_op_frame(link, message);
}

/* ---- all of them ---- */

static int executor_op_build(struct executor_link *link, const struct executor_op *op,
                             Railmux__Executor__Message *message, bool *ret_gone) {
        switch (op->kind) { /* all, so that the compiler names one that is new and missing here */
        case EXECUTOR_OP_SESSION_ATTACH:
                return executor_op_session_attach(link, op, message, ret_gone);
        case EXECUTOR_OP_SESSION_DETACH:
                return executor_op_session_detach(link, op, message);
        case EXECUTOR_OP_RING_ATTACH:
                return executor_op_ring_attach(link, op, message, ret_gone);
        case EXECUTOR_OP_BUFFER_IMPORT:
                return executor_op_buffer_import(link, op, message, ret_gone);
        case EXECUTOR_OP_BUFFER_RETIRE:
                return executor_op_buffer_retire(link, op, message);
        case EXECUTOR_OP_BUFFER_REACH:
                return executor_op_buffer_reach(link, op, message, ret_gone);
        case EXECUTOR_OP_REACH_IMPORT:
                return executor_op_reach_import(link, op, message, ret_gone);
        case EXECUTOR_OP_REACH_RETIRE:
        case EXECUTOR_OP_REACH_FORGET:
                return executor_op_reach_retire(link, op, message);
        case EXECUTOR_OP_COMM_ATTACH:
        case EXECUTOR_OP_COMM_MOVE:
                return executor_op_comm_attach(link, op, message, ret_gone);
        case EXECUTOR_OP_COMM_ABORT:
                return executor_op_comm_abort(link, op, message, ret_gone);
        case EXECUTOR_OP_COMM_DETACH:
                return executor_op_comm_detach(link, op, message);
        case EXECUTOR_OP_COMM_HOLD:
                return executor_op_comm_hold(link, op, message, ret_gone);
        case EXECUTOR_OP_COMM_RELEASE:
                return executor_op_comm_release(link, op, message);
        case EXECUTOR_OP_RANK_LEAVE:
                return executor_op_rank_leave(link, op, message, ret_gone);
        case EXECUTOR_OP_PEER_ATTACH:
                return executor_op_peer_attach(link, op, message, ret_gone);
        case EXECUTOR_OP_DRAIN:
                return executor_op_drain(link, op, message);
        case EXECUTOR_OP_QUERY:
                return executor_op_query(link, message);
        }
        return -EINVAL;
}

bool executor_op_send(struct executor_link *link, struct executor_op *op, bool *ret_sent, int *ret_condition) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        bool gone = false;
        int r;

        message.id = op->id;
        r = executor_op_build(link, op, &message, &gone);
        if (r != FRAME_OK) {
                *ret_condition = r;
                return false;
        }
        *ret_sent = !gone;
        return true;
}
