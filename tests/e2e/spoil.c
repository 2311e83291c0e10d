/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into railmux-perf: calls the library, and then breaks what it has done, as SPOIL=KIND,CALL says, in rank 1
 * after its call of that number:
 *
 *   output, input               one bit of it
 *   before, after               a bit of the byte before the output or behind it; in place, of the whole buffer
 *   input-before, input-after   the same of the input
 *   leave                       a barrier that nobody waits in, in all ranks
 *   repeat                      nothing is broken, but each collective is called twice, in all ranks
 *   alone                       nothing is broken; a call ends the process if the ranks have not met since the last one
 *   slow                        nothing is broken, but each call takes SPOIL_SLOW_MS longer
 */
#include "tests/e2e/spoil.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <railmux/railmux.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define NEXT(name)      ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))
#define CALL(name, ...) (repeats() ? NEXT(name)(__VA_ARGS__), NEXT(name)(__VA_ARGS__) : NEXT(name)(__VA_ARGS__))

static struct {
        const struct rmx_comm *comm;
        const char *in;
        char *out;
        size_t bytes;
} transfer; /* of the group */
static unsigned long n_calls;
static bool met; /* since the last call */

static bool repeats(void) {
        const char *what = getenv("SPOIL");

        return what && strncmp(what, "repeat", 6) == 0;
}

static void flip(const char *byte) {
        *(char *)(uintptr_t)byte ^= 1;
}

static int spoil(int code, const struct rmx_comm *comm, const void *in, size_t in_bytes, void *out, size_t out_bytes) {
        const char *what = getenv("SPOIL"), *call = what ? strchr(what, ',') : NULL, *first = out,
                   *end = first + out_bytes;
        const char *in_first = in, *in_end = in_first + in_bytes;
        size_t length;

        n_calls++;
        if (call && strncmp(what, "alone", 5) == 0 && !met)
                abort();
        met = false;
        if (!call || rmx_comm_rank(comm) != 1)
                return code;
        if (strncmp(what, "slow", 4) == 0)
                poll(NULL, 0, SPOIL_SLOW_MS);
        if (strtoul(call + 1, NULL, 10) != n_calls)
                return code;
        length = (size_t)(call - what);
        if (strncmp(what, "output", length) == 0)
                flip(end - 1);
        else if (strncmp(what, "input", length) == 0)
                flip(in_first);
        else if (strncmp(what, "input-before", length) == 0)
                flip(in_first - 1);
        else if (strncmp(what, "input-after", length) == 0)
                flip(in_end);
        if (in_first <= end && first <= in_end) { /* in place */
                first = in_first < first ? in_first : first;
                end = in_end > end ? in_end : end;
        }
        if (strncmp(what, "before", length) == 0)
                flip(first - 1);
        else if (strncmp(what, "after", length) == 0)
                flip(end);
        return code;
}

__attribute__((visibility("default"))) int pthread_barrier_wait(pthread_barrier_t *barrier) {
        met = true;
        return NEXT(pthread_barrier_wait)(barrier);
}

/* Bytes of so many blocks. */
static size_t blocks(uint32_t n, size_t count, uint32_t type) {
        return n * count * rmx_type_size(type);
}

static size_t total(const struct rmx_comm *comm, const size_t *counts, uint32_t type) {
        size_t sum = 0;

        for (uint32_t i = 0; i < rmx_comm_size(comm); i++)
                sum += counts[i];
        return sum * rmx_type_size(type);
}

/* 1 on the root. */
static uint32_t is(const struct rmx_comm *comm, uint32_t root) {
        return rmx_comm_rank(comm) == root;
}

int rmx_all_reduce(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
                   void *stream) {
        return spoil(CALL(rmx_all_reduce, comm, in, out, count, type, redop, stream), comm, in, blocks(1, count, type),
                     out, blocks(1, count, type));
}

int rmx_reduce(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
               uint32_t root, void *stream) {
        return spoil(CALL(rmx_reduce, comm, in, out, count, type, redop, root, stream), comm, in,
                     blocks(1, count, type), out, blocks(is(comm, root), count, type));
}

int rmx_broadcast(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                  void *stream) {
        return spoil(CALL(rmx_broadcast, comm, in, out, count, type, root, stream), comm, in, blocks(1, count, type),
                     out, blocks(1, count, type));
}

int rmx_all_gather(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, void *stream) {
        return spoil(CALL(rmx_all_gather, comm, in, out, count, type, stream), comm, in, blocks(1, count, type), out,
                     blocks(rmx_comm_size(comm), count, type));
}

int rmx_reduce_scatter(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
                       void *stream) {
        return spoil(CALL(rmx_reduce_scatter, comm, in, out, count, type, redop, stream), comm, in,
                     blocks(rmx_comm_size(comm), count, type), out, blocks(1, count, type));
}

int rmx_gather(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
               void *stream) {
        return spoil(CALL(rmx_gather, comm, in, out, count, type, root, stream), comm, in, blocks(1, count, type), out,
                     blocks(is(comm, root) * rmx_comm_size(comm), count, type));
}

int rmx_scatter(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                void *stream) {
        return spoil(CALL(rmx_scatter, comm, in, out, count, type, root, stream), comm, in,
                     blocks(is(comm, root) * rmx_comm_size(comm), count, type), out, blocks(1, count, type));
}

int rmx_all_to_all(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, void *stream) {
        return spoil(NEXT(rmx_all_to_all)(comm, in, out, count, type, stream), comm, in,
                     blocks(rmx_comm_size(comm), count, type), out, blocks(rmx_comm_size(comm), count, type));
}

int rmx_all_to_all_v(struct rmx_comm *comm, const void *in, const size_t *send_counts, const size_t *send_offsets,
                     void *out, const size_t *recv_counts, const size_t *recv_offsets, uint32_t type, void *stream) {
        return spoil(NEXT(rmx_all_to_all_v)(comm, in, send_counts, send_offsets, out, recv_counts, recv_offsets, type,
                                            stream),
                     comm, in, total(comm, send_counts, type), out, total(comm, recv_counts, type));
}

int rmx_send(struct rmx_comm *comm, const void *in, size_t count, uint32_t type, uint32_t peer, void *stream) {
        transfer.comm = comm;
        transfer.in = in;
        return NEXT(rmx_send)(comm, in, count, type, peer, stream);
}

int rmx_recv(struct rmx_comm *comm, void *out, size_t count, uint32_t type, uint32_t peer, void *stream) {
        transfer.out = out;
        transfer.bytes = blocks(1, count, type);
        return NEXT(rmx_recv)(comm, out, count, type, peer, stream);
}

int rmx_barrier(struct rmx_comm *comm, void *stream) {
        const char *what = getenv("SPOIL");

        n_calls++;
        if (what && strncmp(what, "leave,", 6) == 0 && strtoul(what + 6, NULL, 10) == n_calls)
                return RMX_OK;
        return NEXT(rmx_barrier)(comm, stream);
}

int rmx_group_end(void) {
        return spoil(NEXT(rmx_group_end)(), transfer.comm, transfer.in, transfer.bytes, transfer.out, transfer.bytes);
}
