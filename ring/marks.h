/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The marks of one communicator on one node: what must survive an executor so that every sequence has one outcome on
 * all ranks. A memfd of marks_bytes(n_ranks) made by railmuxd (zeroed), mapped writable by executors only; clients
 * never see it.
 *
 *   final        every sequence up to here is final on all ranks, except those in (lost_after, lost_until]
 *   lost_*       the last range declared lost when an executor took over from a dead one
 *   rung[r]      last sequence latched from rank r; a takeover declares everything in (final, max rung] lost
 *   published[r] last sequence whose status rank r was given
 *
 * Sends and receives are numbered per ordered pair of ranks, and each pair has the same words. A pair's sequence is
 * final when the receiver's memory is.
 *
 * All words are written by the one executor that serves the comm; a successor reads them after its predecessor's death.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define MARKS_VERSION    2u
#define MARKS_RANKS_MAX  64u
#define MARKS_PAGE_BYTES 4096u

struct marks_pair {
        _Atomic uint32_t final;
        _Atomic uint32_t rung[2]; /* [0] by the sender, [1] by the receiver */
        _Atomic uint32_t reserved;
        _Atomic uint64_t lost; /* as below */
};

struct marks {
        _Atomic uint32_t version; /* 0: fresh; the first executor writes MARKS_VERSION last */
        _Atomic uint32_t epoch;
        _Atomic uint32_t final;
        _Atomic uint32_t error; /* sticky status (ring_status) or 0 */
        _Atomic uint64_t lost;  /* lost_after << 32 | lost_until: one word, so that a kill cannot tear the range */
        _Alignas(64) _Atomic uint32_t rung[MARKS_RANKS_MAX];
        _Alignas(64) _Atomic uint32_t published[MARKS_RANKS_MAX];
        _Alignas(64) struct marks_pair pair[]; /* [sender * n_ranks + receiver] */
};
_Static_assert(sizeof(struct marks) <= MARKS_PAGE_BYTES, "the words of the comm fit a page");

static inline size_t marks_bytes(uint32_t n_ranks) {
        size_t bytes = sizeof(struct marks) + (size_t)n_ranks * n_ranks * sizeof(struct marks_pair);

        return (bytes + MARKS_PAGE_BYTES - 1) / MARKS_PAGE_BYTES * MARKS_PAGE_BYTES;
}
