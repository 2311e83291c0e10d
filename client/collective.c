/* SPDX-License-Identifier: MIT */
/* The public calls of collectives. What they have in common is in operation.c. */
#include <stddef.h>
#include <stdint.h>

#include "client/comm.h"
#include "client/error.h"
#include "client/group.h"
#include "client/operation.h"

static struct operation all_reduce(const char *what, struct rmx_comm *comm, const void *in, void *out, size_t count,
                                   uint32_t type, uint32_t redop) {
        return (struct operation){.op = RING_OP_ALL_REDUCE,
                                  .what = what,
                                  .comm = comm,
                                  .in = in,
                                  .out = out,
                                  .count = count,
                                  .type = type,
                                  .redop = redop};
}

int rmx_all_reduce(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
                   void *stream) {
        struct operation o = all_reduce(__func__, comm, in, out, count, type, redop);

        return operation_run(&o, stream);
}

int rmx_all_reduce_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
                         void *stream, struct rmx_request *ret_request) {
        struct operation o = all_reduce(__func__, comm, in, out, count, type, redop);

        return operation_begin(&o, stream, ret_request);
}

static struct operation reduce(const char *what, struct rmx_comm *comm, const void *in, void *out, size_t count,
                               uint32_t type, uint32_t redop, uint32_t root) {
        return (struct operation){.op = RING_OP_REDUCE,
                                  .what = what,
                                  .comm = comm,
                                  .in = in,
                                  .out = out,
                                  .count = count,
                                  .type = type,
                                  .redop = redop,
                                  .peer = root};
}

int rmx_reduce(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
               uint32_t root, void *stream) {
        struct operation o = reduce(__func__, comm, in, out, count, type, redop, root);

        return operation_run(&o, stream);
}

int rmx_reduce_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
                     uint32_t root, void *stream, struct rmx_request *ret_request) {
        struct operation o = reduce(__func__, comm, in, out, count, type, redop, root);

        return operation_begin(&o, stream, ret_request);
}

static struct operation broadcast(const char *what, struct rmx_comm *comm, const void *in, void *out, size_t count,
                                  uint32_t type, uint32_t root) {
        return (struct operation){.op = RING_OP_BROADCAST,
                                  .what = what,
                                  .comm = comm,
                                  .in = in,
                                  .out = out,
                                  .count = count,
                                  .type = type,
                                  .peer = root};
}

int rmx_broadcast(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                  void *stream) {
        struct operation o = broadcast(__func__, comm, in, out, count, type, root);

        return operation_run(&o, stream);
}

int rmx_broadcast_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                        void *stream, struct rmx_request *ret_request) {
        struct operation o = broadcast(__func__, comm, in, out, count, type, root);

        return operation_begin(&o, stream, ret_request);
}

static struct operation all_gather(const char *what, struct rmx_comm *comm, const void *in, void *out, size_t count,
                                   uint32_t type) {
        return (struct operation){.op = RING_OP_ALL_GATHER,
                                  .what = what,
                                  .comm = comm,
                                  .in = in,
                                  .out = out,
                                  .count = count,
                                  .type = type};
}

int rmx_all_gather(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, void *stream) {
        struct operation o = all_gather(__func__, comm, in, out, count, type);

        return operation_run(&o, stream);
}

int rmx_all_gather_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, void *stream,
                         struct rmx_request *ret_request) {
        struct operation o = all_gather(__func__, comm, in, out, count, type);

        return operation_begin(&o, stream, ret_request);
}

static struct operation reduce_scatter(const char *what, struct rmx_comm *comm, const void *in, void *out, size_t count,
                                       uint32_t type, uint32_t redop) {
        return (struct operation){.op = RING_OP_REDUCE_SCATTER,
                                  .what = what,
                                  .comm = comm,
                                  .in = in,
                                  .out = out,
                                  .count = count,
                                  .type = type,
                                  .redop = redop};
}

int rmx_reduce_scatter(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
                       void *stream) {
        struct operation o = reduce_scatter(__func__, comm, in, out, count, type, redop);

        return operation_run(&o, stream);
}

int rmx_reduce_scatter_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                             uint32_t redop, void *stream, struct rmx_request *ret_request) {
        struct operation o = reduce_scatter(__func__, comm, in, out, count, type, redop);

        return operation_begin(&o, stream, ret_request);
}

static struct operation gather(const char *what, struct rmx_comm *comm, const void *in, void *out, size_t count,
                               uint32_t type, uint32_t root) {
        return (struct operation){.op = RING_OP_GATHER,
                                  .what = what,
                                  .comm = comm,
                                  .in = in,
                                  .out = out,
                                  .count = count,
                                  .type = type,
                                  .peer = root};
}

int rmx_gather(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
               void *stream) {
        struct operation o = gather(__func__, comm, in, out, count, type, root);

        return operation_run(&o, stream);
}

int rmx_gather_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                     void *stream, struct rmx_request *ret_request) {
        struct operation o = gather(__func__, comm, in, out, count, type, root);

        return operation_begin(&o, stream, ret_request);
}

static struct operation scatter(const char *what, struct rmx_comm *comm, const void *in, void *out, size_t count,
                                uint32_t type, uint32_t root) {
        return (struct operation){.op = RING_OP_SCATTER,
                                  .what = what,
                                  .comm = comm,
                                  .in = in,
                                  .out = out,
                                  .count = count,
                                  .type = type,
                                  .peer = root};
}

int rmx_scatter(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                void *stream) {
        struct operation o = scatter(__func__, comm, in, out, count, type, root);

        return operation_run(&o, stream);
}

int rmx_scatter_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                      void *stream, struct rmx_request *ret_request) {
        struct operation o = scatter(__func__, comm, in, out, count, type, root);

        return operation_begin(&o, stream, ret_request);
}

static struct operation all_to_all(const char *what, struct rmx_comm *comm, const void *in, void *out, size_t count,
                                   uint32_t type) {
        return (struct operation){.op = RING_OP_ALL_TO_ALL,
                                  .what = what,
                                  .comm = comm,
                                  .in = in,
                                  .out = out,
                                  .count = count,
                                  .type = type};
}

int rmx_all_to_all(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, void *stream) {
        struct operation o = all_to_all(__func__, comm, in, out, count, type);

        return operation_run(&o, stream);
}

int rmx_all_to_all_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, void *stream,
                         struct rmx_request *ret_request) {
        struct operation o = all_to_all(__func__, comm, in, out, count, type);

        return operation_begin(&o, stream, ret_request);
}

int rmx_barrier(struct rmx_comm *comm, void *stream) {
        struct operation o = {.op = RING_OP_BARRIER, .what = __func__, .comm = comm};

        return operation_run(&o, stream);
}

int rmx_barrier_start(struct rmx_comm *comm, void *stream, struct rmx_request *ret_request) {
        struct operation o = {.op = RING_OP_BARRIER, .what = __func__, .comm = comm};

        return operation_begin(&o, stream, ret_request);
}

/* ---- all_to_all_v: its arrays in one, as in an argument block ---------------------------------------------------- */
struct vector {
        const size_t *send_counts, *send_offsets, *recv_counts, *recv_offsets;
};

static int vector_copy(const char *what, const struct rmx_comm *comm, const struct vector *from, uint64_t *to) {
        const size_t *arrays[] = {from->send_counts, from->send_offsets, from->recv_counts, from->recv_offsets};
        static const char *const names[] = {"send_counts", "send_offsets", "recv_counts", "recv_offsets"};
        int r;

        r = comm_check(comm, what);
        if (r)
                return r;
        for (uint32_t i = 0; i < 4; i++) {
                if (!arrays[i])
                        return error_set(RMX_E_INVALID, "%s: %s is NULL, must be an array of %u numbers", what,
                                         names[i], comm->n_ranks);
                for (uint32_t k = 0; k < comm->n_ranks; k++)
                        to[i * comm->n_ranks + k] = arrays[i][k];
        }
        return RMX_OK;
}

int rmx_all_to_all_v(struct rmx_comm *comm, const void *in, const size_t *send_counts, const size_t *send_offsets,
                     void *out, const size_t *recv_counts, const size_t *recv_offsets, uint32_t type, void *stream) {
        const struct vector from = {send_counts, send_offsets, recv_counts, recv_offsets};
        uint64_t vector[4 * COMM_RANKS_MAX];
        struct operation o = {.op = RING_OP_ALL_TO_ALL_V,
                              .what = __func__,
                              .comm = comm,
                              .in = in,
                              .out = out,
                              .type = type,
                              .vector = vector};
        int r;

        r = vector_copy(__func__, comm, &from, vector);
        if (r)
                return group_is_open() ? group_spoil(r) : r;
        return operation_run(&o, stream);
}

int rmx_all_to_all_v_start(struct rmx_comm *comm, const void *in, const size_t *send_counts, const size_t *send_offsets,
                           void *out, const size_t *recv_counts, const size_t *recv_offsets, uint32_t type,
                           void *stream, struct rmx_request *ret_request) {
        const struct vector from = {send_counts, send_offsets, recv_counts, recv_offsets};
        uint64_t vector[4 * COMM_RANKS_MAX];
        struct operation o = {.op = RING_OP_ALL_TO_ALL_V,
                              .what = __func__,
                              .comm = comm,
                              .in = in,
                              .out = out,
                              .type = type,
                              .vector = vector};
        int r;

        r = vector_copy(__func__, comm, &from, vector);
        if (r)
                return group_is_open() ? group_spoil(r) : r;
        return operation_begin(&o, stream, ret_request);
}
