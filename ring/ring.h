/* SPDX-License-Identifier: MIT */
#pragma once
/* Shared-memory request ring between one client (producer) and one executor (consumer). See ring.c for the essay. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
_Static_assert(sizeof(struct ring_group_entry) == 40, "a group entry is 40 bytes");

/* Each cell holds {ring sequence << 32 | word}: a reader that finds the expected sequence in all 16 has one whole line.
 */
struct ring_line {
        _Alignas(128) _Atomic uint64_t cell[RING_WORDS];
};
_Static_assert(sizeof(struct ring_line) == 128, "a request line is 128 bytes");

/* A latched or to-be-published request in private memory. */
struct ring_request {
        uint32_t word[RING_WORDS];
};

static inline uint32_t ring_request_op(const struct ring_request *r) {
        return (r->word[RING_W_HEAD] >> 16) & 0xff;
}
static inline uint32_t ring_request_type(const struct ring_request *r) {
        return (r->word[RING_W_HEAD] >> 8) & 0xff;
}
static inline uint32_t ring_request_redop(const struct ring_request *r) {
        return r->word[RING_W_HEAD] & 0xff;
}
static inline uint32_t ring_request_abi(const struct ring_request *r) {
        return r->word[RING_W_HEAD] >> 24;
}
static inline uint64_t ring_request_u64(const struct ring_request *r, unsigned int lo) {
        return (uint64_t)r->word[lo + 1] << 32 | r->word[lo];
}
static inline void ring_request_set_u64(struct ring_request *r, unsigned int lo, uint64_t v) {
        r->word[lo] = (uint32_t)v;
        r->word[lo + 1] = (uint32_t)(v >> 32);
}
static inline void ring_request_set_head(struct ring_request *r, uint32_t op, uint32_t type, uint32_t redop) {
        r->word[RING_W_HEAD] = RING_ABI << 24 | op << 16 | type << 8 | redop;
}

/* Sequences wrap; they are compared by signed difference. */
static inline bool ring_sequence_before(uint32_t a, uint32_t b) {
        return (int32_t)(a - b) < 0;
}
/* Successor of a ring sequence. 0 is left out, so zeroed memory never looks like a line or a completion. (Comm
 * sequences live in private memory and count through 0.) */
static inline uint32_t ring_sequence_next(uint32_t a) {
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
static inline uint32_t ring_status(uint32_t code, int32_t rank) {
        return code | (uint32_t)(rank + 1) << 16;
}
static inline uint32_t ring_status_mismatch(uint32_t code, uint32_t detail, int32_t rank) {
        return ring_status(code, rank) | detail << 8;
}
static inline uint32_t ring_status_code(uint32_t status) {
        return status & 0xff;
}
static inline uint32_t ring_status_detail(uint32_t status) {
        return (status >> 8) & 0xff;
}
static inline int32_t ring_status_rank(uint32_t status) {
        return (int32_t)(status >> 16) - 1;
}

/* ---- layout: two memfds of the daemon, one written by the client only, one by the executor only ------------------ */
/* client area: lines[depth], then waiting[depth] (u32), then the argument space.
 * executor area: struct ring_executor_header, then completion[depth] (u64 {status << 32 | ring sequence}). */
struct ring_executor_header {
        /* 1: executor sleeps, the client must write the eventfd after publishing */
        _Alignas(64) _Atomic uint32_t need_wake;
        /* next ring sequence the executor will latch; survives the executor. 0: a fresh ring */
        _Alignas(64) _Atomic uint32_t next;
        _Atomic uint32_t epoch_hint; /* executor incarnation, informative */
};

struct ring_layout {
        uint32_t depth;
        uint32_t argument_bytes;
        size_t waiting_offset;
        size_t argument_offset;
        size_t client_bytes; /* page-rounded size of the client area */
        size_t completion_offset;
        size_t executor_bytes; /* page-rounded size of the executor area */
};

#define RING_FIRST_SEQUENCE 1u

enum {
        RING_OK = 0,
        RING_E_DEPTH = 1,    /* depth is no power of two in [RING_DEPTH_MIN, RING_DEPTH_MAX] */
        RING_E_FULL = 2,     /* the slot's earlier request has not been released */
        RING_E_EMPTY = 3,    /* no complete line with the next sequence */
        RING_E_AGAIN = 4,    /* not completed yet */
        RING_E_ARGUMENT = 5, /* argument_bytes above RING_ARGUMENT_BYTES_MAX */
};

/* Depth must be a power of two within bounds; argument_bytes is rounded up to a page. RING_E_DEPTH, RING_E_ARGUMENT. */
int ring_layout_init(struct ring_layout *layout, uint32_t depth, uint32_t argument_bytes);

/* ---- producer (client). Not thread-safe: the caller holds one lock around publish/release. --------------------------
 */
struct ring_producer {
        struct ring_layout layout;
        struct ring_line *lines;                   /* RW */
        _Atomic uint32_t *waiting;                 /* RW; number of threads that sleep on the slot */
        const struct ring_executor_header *header; /* read-only mapping */
        const _Atomic uint64_t *completion;        /* read-only mapping */
        uint32_t next;                             /* sequence of the next line */
        uint64_t in_flight[RING_DEPTH_MAX / 64];   /* private: slot published and not released */
};
/* first: RING_FIRST_SEQUENCE for a fresh ring (tests start near the wrap). */
void ring_producer_init(struct ring_producer *p, const struct ring_layout *layout, void *client_area,
                        const void *executor_area, uint32_t first);
/* Writes the line of the next sequence. RING_E_FULL if its slot's earlier request has not been released. After RING_OK
 * the caller calls ring_producer_must_wake and, if true, writes the eventfd. */
int ring_producer_publish(struct ring_producer *p, const struct ring_request *request, uint32_t *ret_sequence);
/* Full fence, then reads need_wake (Dekker with ring_consumer_sleep). */
bool ring_producer_must_wake(struct ring_producer *p);
/* Marks the slot of a harvested request as free: only after poll or wait said RING_OK for this sequence. */
void ring_producer_release(struct ring_producer *p, uint32_t sequence);
/* RING_OK and the status (acquire: outputs are visible), or RING_E_AGAIN. Any thread, no lock. */
int ring_producer_poll(const struct ring_producer *p, uint32_t sequence, uint32_t *ret_status);
/* Sleeps until completed or timeout_ns passed (< 0: no limit). RING_OK / RING_E_AGAIN. Any thread, no lock. Announces
 * the sleeper in waiting[slot] before it sleeps on the low half of the completion word (futex on a read-only mapping).
 */
int ring_producer_wait(struct ring_producer *p, uint32_t sequence, int64_t timeout_ns, uint32_t *ret_status);

/* ---- consumer (executor). latch, relatch: one thread at a time; complete: any thread, once per sequence;
 * peek, sleep, awake: any thread. The struct holds atomics: initialise it in place and do not copy it. ----------------
 */
struct ring_consumer {
        struct ring_layout layout;
        const struct ring_line *lines;              /* read-only mapping */
        const _Atomic uint32_t *waiting;            /* read-only mapping; read once, a lie costs the client only */
        struct ring_executor_header *header;        /* RW */
        _Atomic uint64_t *completion;               /* RW */
        _Atomic uint32_t next;                      /* private truth; header->next is its published copy */
        _Atomic uint64_t busy[RING_DEPTH_MAX / 64]; /* private: latched and not completed */
};
/* A ring never used before: next = first. A ring of a dead executor: next is taken from the executor area, and clients
 * that sleep on a request which it completed without waking them are woken. No other executor may be alive on it. */
void ring_consumer_init(struct ring_consumer *c, const struct ring_layout *layout, const void *client_area,
                        void *executor_area, uint32_t first);
/* After ring_consumer_init on a dead executor's ring and before the first latch: yields, oldest first, each line that
 * was latched and never completed; RING_E_EMPTY ends the list. A fresh ring of an honest client has none. *cursor
 * starts at 0. */
int ring_consumer_relatch(struct ring_consumer *c, uint32_t *cursor, struct ring_request *ret_request,
                          uint32_t *ret_sequence);
/* Copies the next line into private memory if it is complete and its slot is free. RING_E_EMPTY otherwise. */
int ring_consumer_latch(struct ring_consumer *c, struct ring_request *ret_request, uint32_t *ret_sequence);
/* Looks without taking (for draining): RING_E_EMPTY or a private copy of the next line. */
int ring_consumer_peek(const struct ring_consumer *c, struct ring_request *ret_request);
/* Publishes the status (release: the outputs before it) and wakes the client if it sleeps on it. */
void ring_consumer_complete(struct ring_consumer *c, uint32_t sequence, uint32_t status);
/* The same in steps, for many at once: publish each, fence once, then wake each. Between them other requests may have
 * taken the slots; a wake-up too many is harmless. */
void ring_consumer_publish(struct ring_consumer *c, uint32_t sequence, uint32_t status);
void ring_consumer_fence(void);
void ring_consumer_wake(const struct ring_consumer *c, uint32_t sequence);
/* Before sleeping: sets need_wake, full fence; returns true if a line is there after all (then call _awake). */
bool ring_consumer_sleep(struct ring_consumer *c);
void ring_consumer_awake(struct ring_consumer *c);
