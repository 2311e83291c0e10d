/* SPDX-License-Identifier: MIT */
#pragma once
/* Shared-memory request ring between one client (producer) and one executor (consumer). See ring.c for the essay. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/line.h"
#include "util/yield.h"

/* Each cell holds {ring sequence << 32 | word}: a reader that finds the expected sequence in all 16 has one whole line.
 */
struct ring_line {
        _Alignas(128) _Atomic uint64_t cell[RING_WORDS];
};
_Static_assert(sizeof(struct ring_line) == 128, "a request line is 128 bytes");

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
        struct yielder yielder;                    /* private, of all waiting threads */
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
