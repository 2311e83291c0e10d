/* SPDX-License-Identifier: MIT */
#pragma once
/* One call to an executor. It names its object by number; the message is built when the socket takes it, so a queued
 * call holds neither fds nor memory of the object, and an object that has gone meanwhile needs no cancelling. */
#include "proto/executor.pb-c.h"
#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct comm;
struct executor_link;
struct session;
struct session_ring;

enum executor_op_kind {
        EXECUTOR_OP_SESSION_ATTACH,
        EXECUTOR_OP_SESSION_DETACH,
        EXECUTOR_OP_RING_ATTACH,
        EXECUTOR_OP_BUFFER_IMPORT,
        EXECUTOR_OP_BUFFER_RETIRE,
        EXECUTOR_OP_COMM_ATTACH,
        EXECUTOR_OP_COMM_ABORT,
        EXECUTOR_OP_COMM_DETACH,
        EXECUTOR_OP_RANK_LEAVE,
        EXECUTOR_OP_QUERY,
        EXECUTOR_OP_PEER_ATTACH,
        EXECUTOR_OP_COMM_HOLD,
        EXECUTOR_OP_COMM_MOVE,
        EXECUTOR_OP_COMM_RELEASE,
        EXECUTOR_OP_DRAIN, /* sub: enum executor_drain */
        EXECUTOR_OP_BUFFER_REACH,
        EXECUTOR_OP_REACH_IMPORT,
        EXECUTOR_OP_REACH_RETIRE,
        EXECUTOR_OP_REACH_FORGET, /* the same, of a buffer that is not known any more */
};
enum executor_drain {
        EXECUTOR_DRAIN_GO,  /* it may end */
        EXECUTOR_DRAIN_ASK, /* it is to end */
};

struct executor_op {
        struct executor_op *next, *prev;
        enum executor_op_kind kind;
        uint64_t id;      /* of the call, given when it is sent */
        uint64_t object;  /* session, comm, or the other executor's index */
        uint32_t sub;     /* GPU, buffer or rank */
        bool owed;        /* counts for the link's n_owed */
        uint64_t turn_ns; /* since then it is sent, and nothing that was sent before it has been answered */
};

/* Appends a call to the link's queue and sends what it can. What ends a comm, a rank or a session goes before buffers
 * of others that wait there: they may be many, and take long. No-op when the link is not connected: on its return
 * everything is derived anew from the objects. */
void executor_op_push(struct executor_link *link, enum executor_op_kind kind, uint64_t object, uint32_t sub);

/* The same, and the executor is not ready before it has answered. */
void executor_op_push_owed(struct executor_link *link, enum executor_op_kind kind, uint64_t object, uint32_t sub);
/* That waits to be answered, since turn_ns; NULL: none. */
const struct executor_op *executor_op_pending(const struct executor_link *link, enum executor_op_kind kind,
                                              uint64_t object);
/* Waits to be sent or answered? */
bool executor_op_queued(const struct executor_link *link, enum executor_op_kind kind, uint64_t object);

/* Each sends the object to every connected executor that needs it and has not been sent it. */
void executor_attach_session(struct session *session);
void executor_attach_ring(struct session_ring *ring);
void executor_attach_buffer(struct buffer *buffer);
void executor_attach_comm(struct comm *comm);

/* Sends one queued call. true: sent, or dropped because its object has gone (*ret_sent tells); false with
 * *ret_condition FRAME_E_* or -errno. */
bool executor_op_send(struct executor_link *link, struct executor_op *op, bool *ret_sent, int *ret_condition);
/* The executor answered it. */
void executor_op_done(struct executor_link *link, const struct executor_op *op, const Railmux__Executor__Done *done);
