/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What a request line says: words, operations, argument blocks, sequences, statuses. Plain data without any access to
 * shared memory, so that device code is compiled from it too.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "railmux/railmux.h"

#if defined(__HIP__) || defined(__CUDACC__)
#define RING_INLINE static inline __attribute__((host)) __attribute__((device))
#else
#define RING_INLINE static inline
#endif

/* ---- wire format ------------------------------------------------------------------------------------------------ */
#define RING_ABI 1u
#ifndef RING_WORDS /* only the model checker of the tests shrinks the line, to keep its state space small */
#define RING_WORDS 16u
#endif
#define RING_DEPTH_MIN              4u
#define RING_DEPTH_DEFAULT          256u
#define RING_DEPTH_MAX              4096u
#define RING_ARGUMENT_BYTES_DEFAULT 65536u
#define RING_ARGUMENT_BYTES_MAX     (1u << 30)

/* Words of a request line. */
enum {
        RING_W_HEAD = 0,     /* abi << 24 | operation << 16 | type << 8 | redop */
        RING_W_COMM = 1,     /* comm handle of this session; stands for one rank of one comm */
        RING_W_COUNT_LO = 2, /* element count, 64 bit */
        RING_W_COUNT_HI = 3,
        RING_W_IN_BUFFER = 4, /* buffer id of this session; 0: none */
        RING_W_IN_LO = 5,     /* byte offset, 64 bit */
        RING_W_IN_HI = 6,
        RING_W_OUT_BUFFER = 7,
        RING_W_OUT_LO = 8,
        RING_W_OUT_HI = 9,
        RING_W_PEER = 10,     /* root or peer rank */
        RING_W_ARGUMENT = 11, /* byte offset of an argument block in the client area's argument space, a multiple of
                                 RING_ARGUMENT_ALIGN; 0: none. See below. */
        RING_W_EPOCH = 12,
        RING_W_FLAGS = 13,    /* no flag is defined yet: must be 0 */
        RING_W_SEQUENCE = 14, /* collectives: the rank's previous comm sequence + 1. SEND, RECV: the pair's previous
                                 sequence in this direction + 1. GROUP: 0 */
        RING_W_ZERO = 15,
};

/* Operations (word 0). Numbers are ABI. */
enum {
        RING_OP_NONE = 0,
        RING_OP_ALL_REDUCE = 1,
        RING_OP_REDUCE = 2,
        RING_OP_BROADCAST = 3,
        RING_OP_ALL_GATHER = 4,
        RING_OP_REDUCE_SCATTER = 5,
        RING_OP_ALL_TO_ALL = 6,
        RING_OP_ALL_TO_ALL_V = 7,
        RING_OP_GATHER = 8,
        RING_OP_SCATTER = 9,
        RING_OP_SEND = 10,
        RING_OP_RECV = 11,
        RING_OP_BARRIER = 12,
        RING_OP_GROUP = 13, /* sends and receives that progress together; an argument block lists them */
        RING_OP_COUNT = 14,
};

/*
 * Argument blocks. Written by the client before it publishes the line, left alone until the request is harvested,
 * copied once by the executor. Only these requests have one:
 *
 * - ALL_TO_ALL_V: 4 * n_ranks uint64_t: elements to send to each rank, where they begin in the input, elements to
 * receive from each rank, where they begin in the output. Words 2-3 (count) are 0.
 *
 * - redop RMX_PREMUL_SUM: one uint64_t, this rank's factor. Integers: the value, sign- or zero-extended; fp64: its
 * bits; other floats: the bits of the factor as fp32.
 *
 * - GROUP: `count` struct ring_group_entry (1 .. RING_GROUP_MAX); type, redop, buffers and peer of the line are 0.
 */
#define RING_ARGUMENT_ALIGN 64u
#define RING_GROUP_MAX      512u

struct ring_group_entry {
        uint32_t operation; /* RING_OP_SEND, RING_OP_RECV */
        uint32_t type;
        uint32_t peer;
        uint32_t sequence; /* as in word 14 */
        uint64_t count;
        uint64_t offset; /* bytes in the buffer */
        uint32_t buffer;
        uint32_t zero;
};
#ifdef __cplusplus
static_assert(sizeof(struct ring_group_entry) == 40, "a group entry is 40 bytes");
#else
_Static_assert(sizeof(struct ring_group_entry) == 40, "a group entry is 40 bytes");
#endif

/* A latched or to-be-published request in private memory. */
struct ring_request {
        uint32_t word[RING_WORDS];
};

RING_INLINE uint32_t ring_request_op(const struct ring_request *r) {
        return (r->word[RING_W_HEAD] >> 16) & 0xff;
}
RING_INLINE uint32_t ring_request_type(const struct ring_request *r) {
        return (r->word[RING_W_HEAD] >> 8) & 0xff;
}
RING_INLINE uint32_t ring_request_redop(const struct ring_request *r) {
        return r->word[RING_W_HEAD] & 0xff;
}
RING_INLINE uint32_t ring_request_abi(const struct ring_request *r) {
        return r->word[RING_W_HEAD] >> 24;
}
RING_INLINE uint64_t ring_request_u64(const struct ring_request *r, unsigned int lo) {
        return (uint64_t)r->word[lo + 1] << 32 | r->word[lo];
}
RING_INLINE void ring_request_set_u64(struct ring_request *r, unsigned int lo, uint64_t v) {
        r->word[lo] = (uint32_t)v;
        r->word[lo + 1] = (uint32_t)(v >> 32);
}
RING_INLINE void ring_request_set_head(struct ring_request *r, uint32_t op, uint32_t type, uint32_t redop) {
        r->word[RING_W_HEAD] = RING_ABI << 24 | op << 16 | type << 8 | redop;
}

/* Sequences wrap; they are compared by signed difference. */
RING_INLINE bool ring_sequence_before(uint32_t a, uint32_t b) {
        return (int32_t)(a - b) < 0;
}
/* Successor of a ring sequence. 0 is left out, so zeroed memory never looks like a line or a completion. (Comm
 * sequences live in private memory and count through 0.) */
RING_INLINE uint32_t ring_sequence_next(uint32_t a) {
        return a + 1 ? a + 1 : 1;
}

/* A completion status: low 8 bits RMX_* code, then 8 bits RING_DETAIL_* of a mismatch, high 16 bits 1 + rank that
 * caused it, 0 if none. */
enum {
        RING_DETAIL_NONE = 0,
        RING_DETAIL_OPERATION = 1,
        RING_DETAIL_TYPE = 2,
        RING_DETAIL_REDOP = 3,
        RING_DETAIL_COUNT = 4,
        RING_DETAIL_ROOT = 5,
};
RING_INLINE uint32_t ring_status(uint32_t code, int32_t rank) {
        return code | (uint32_t)(rank + 1) << 16;
}
RING_INLINE uint32_t ring_status_mismatch(uint32_t code, uint32_t detail, int32_t rank) {
        return ring_status(code, rank) | detail << 8;
}
RING_INLINE uint32_t ring_status_code(uint32_t status) {
        return status & 0xff;
}
/* Is it an error that its communicator keeps, after which nothing is carried out on it any more? */
RING_INLINE bool ring_status_is_kept(uint32_t status) {
        switch (ring_status_code(status)) {
        case RMX_E_PEER_LOST:
        case RMX_E_ABORTED:
        case RMX_E_MISMATCH:
        case RMX_E_INVALID:
        case RMX_E_DEVICE_LOST:
        case RMX_E_UNSUPPORTED:
                return true;
        default:
                return false;
        }
}
RING_INLINE uint32_t ring_status_detail(uint32_t status) {
        return (status >> 8) & 0xff;
}
RING_INLINE int32_t ring_status_rank(uint32_t status) {
        return (int32_t)(status >> 16) - 1;
}
