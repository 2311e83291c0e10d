/* SPDX-License-Identifier: MIT */
/* The public calls of sends and receives. What they have in common is in operation.c. */
#include <stddef.h>
#include <stdint.h>

#include "client/operation.h"

static struct operation p2p_send(const char *what, struct rmx_comm *comm, const void *in, size_t count, uint32_t type,
                                 uint32_t peer) {
        return (struct operation){
                .op = RING_OP_SEND, .what = what, .comm = comm, .in = in, .count = count, .type = type, .peer = peer};
}

int rmx_send(struct rmx_comm *comm, const void *in, size_t count, uint32_t type, uint32_t peer, void *stream) {
        struct operation o = p2p_send(__func__, comm, in, count, type, peer);

        return operation_run(&o, stream);
}

int rmx_send_start(struct rmx_comm *comm, const void *in, size_t count, uint32_t type, uint32_t peer, void *stream,
                   struct rmx_request *ret_request) {
        struct operation o = p2p_send(__func__, comm, in, count, type, peer);

        return operation_begin(&o, stream, ret_request);
}

static struct operation p2p_recv(const char *what, struct rmx_comm *comm, void *out, size_t count, uint32_t type,
                                 uint32_t peer) {
        return (struct operation){
                .op = RING_OP_RECV, .what = what, .comm = comm, .out = out, .count = count, .type = type, .peer = peer};
}

int rmx_recv(struct rmx_comm *comm, void *out, size_t count, uint32_t type, uint32_t peer, void *stream) {
        struct operation o = p2p_recv(__func__, comm, out, count, type, peer);

        return operation_run(&o, stream);
}

int rmx_recv_start(struct rmx_comm *comm, void *out, size_t count, uint32_t type, uint32_t peer, void *stream,
                   struct rmx_request *ret_request) {
        struct operation o = p2p_recv(__func__, comm, out, count, type, peer);

        return operation_begin(&o, stream, ret_request);
}
