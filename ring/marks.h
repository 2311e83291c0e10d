/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The marks of one communicator on one node: what must survive an executor so that every sequence has one outcome on
 * all ranks. A memfd of MARKS_BYTES made by railmuxd (zeroed), mapped writable by executors only; clients never see it.
 *
 *   final        every sequence up to here is final on all ranks, except those in (lost_after, lost_until]
 *   lost_*       the last range declared lost when an executor took over from a dead one
 *   rung[r]      last sequence latched from rank r; a takeover declares everything in (final, max rung] lost
 *   published[r] last sequence whose status rank r was given
 * All words are written by the one executor that serves the comm; a successor reads them after its predecessor's death.
 */
#include <stdatomic.h>
#include <stdint.h>

#define MARKS_VERSION   1u
#define MARKS_RANKS_MAX 64u
#define MARKS_BYTES     4096u

struct marks {
        _Atomic uint32_t version; /* 0: fresh; the first executor writes MARKS_VERSION last */
        _Atomic uint32_t epoch;
        _Atomic uint32_t final;
        _Atomic uint32_t error; /* sticky status (ring_status) or 0 */
        _Atomic uint64_t lost;  /* lost_after << 32 | lost_until: one word, so that a kill cannot tear the range */
        _Alignas(64) _Atomic uint32_t rung[MARKS_RANKS_MAX];
        _Alignas(64) _Atomic uint32_t published[MARKS_RANKS_MAX];
};
_Static_assert(sizeof(struct marks) <= MARKS_BYTES, "marks fit their page");
