/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The argument block of an all_to_all_v: for each rank how many elements are sent to it and where they begin in the
 * input, how many are received from it and where they belong in the output (plan/plan.h: struct plan_vector).
 *
 * The block is the client's, who may rewrite it at any time. So each worker copies it once, into a place of its own,
 * checks the copy, and all its tasks of this request look at that one. Workers whose copies differ do different things
 * within the same buffers. A place is in use while a task names it; when none is free, the line stays in the ring.
 *
 * Each pair has parts of a size that follows from its count, which both ranks know; these sizes stand behind the copy.
 * And each pair compares that count, in the word that lane 0 exchanges. Which transport is used, no rank can derive
 * from its own counts: it is the one of the largest class.
 */
#include "gpu/device/task.h"

#define VECTOR_PART_PACKET 256u /* smallest part, bytes */
#define VECTOR_PART_BULK   512u

/* Elements of a part of a piece of `count`, log2(element bytes) given. */
DEVICE uint32_t vector_part(uint32_t transport, uint64_t count, uint32_t shift) {
        const bool bulk = transport == STAGING_BULK;
        const uint32_t granule = bulk ? VECTOR_PART_BULK : VECTOR_PART_PACKET;
        const uint32_t most = bulk ? STAGING_BULK_CHUNK : STAGING_PACKET_CHUNK;
        const uint64_t part = (divide_up(count << shift, STAGING_DATA_LANES) + granule - 1) & ~(uint64_t)(granule - 1);

        return (part < granule ? granule : part > most ? most : (uint32_t)part) >> shift;
}

/* May the ring have `want` more of `most` places, `used` of which are taken? Half of them is dealt out evenly, among
 * the rings that there are and one that may come, so that no ring waits for what others' requests hold; the other half
 * is for whoever comes first. */
DEVICE bool places_fair(const struct worker *w, const uint16_t *held, uint32_t ring, uint32_t want, uint32_t used,
                        uint32_t most) {
        const uint32_t own = most / 2 / (w->n_rings + 1);
        uint32_t kept = own;

        if (used + want > most)
                return false;
        if (!held[ring] || held[ring] + want <= own)
                return true;
        for (uint32_t i = 0; i < w->n_rings; i++)
                if (i != ring && shared_of(w)->key[i] && held[i] < own)
                        kept += own - held[i];
        return used + want + kept <= most;
}

DEVICE uint32_t vector_number(const struct worker *w, uint64_t place) {
        return (uint32_t)((place - (uint64_t)w->scratch->vectors) / sizeof(w->scratch->vectors[0]));
}

/* A place that no task uses; 0: there is none for this ring now. */
DEVICE uint64_t vector_place(const struct worker *w, uint32_t ring) {
        const struct worker_shared *s = shared_of(w);

        if (!places_fair(w, s->held_vectors, ring, 1, bit_count(s->vectors), TASK_VECTORS))
                return 0;
        return (uint64_t)w->scratch->vectors[first_bit(~s->vectors)];
}

/* The furthest end of `n` pieces. False: beyond any memory. */
DEVICE bool vector_end(const uint64_t *counts, const uint64_t *offsets, uint32_t n, uint64_t *ret_end) {
        uint64_t end = 0;

        ROLLED
        for (uint32_t p = 0; p < n; p++) {
                if (!counts[p])
                        continue;
                if (counts[p] >> 44 || offsets[p] >> 44)
                        return false;
                end = counts[p] + offsets[p] > end ? counts[p] + offsets[p] : end;
        }
        *ret_end = end;
        return true;
}

/* Copies the block from the client's memory and checks what can be checked without the buffers. Elements that the
 * input and the output must have. */
DEVICE bool vector_take(const struct worker *w, uint64_t place, uint64_t from, uint64_t *ret_in, uint64_t *ret_out) {
        const uint32_t n = shared_of(w)->rank.n_ranks, me = shared_of(w)->rank.rank;
        uint64_t *words = (uint64_t *)place;

        fence_acquire_system(); /* the block is older than its line */
        ROLLED
        for (uint32_t i = warp_thread(); i < 4 * n; i += WARP_THREADS)
                words[i] = cell_load((const uint64_t *)from + i);
        warp_sync();
        return vector_end(words, words + n, n, ret_in) && vector_end(words + 2 * n, words + 3 * n, n, ret_out) &&
               words[me] == words[2 * n + me];
}

/* Writes the sizes of parts: of what is sent to each rank, then of what is received from each. */
DEVICE_OUTLINE void vector_cut(struct worker_shared *s, uint32_t thread, uint64_t place, uint32_t transport,
                               uint32_t shift) {
        const uint32_t n = s->rank.n_ranks;
        uint64_t *words = (uint64_t *)place;

        for (uint32_t p = thread; p < n; p += WARP_THREADS) {
                words[4 * n + p] = vector_part(transport, words[p], shift);
                words[5 * n + p] = vector_part(transport, words[2 * n + p], shift);
        }
        warp_sync();
}

/* Parts of the longest of a rank's pieces: those with others, or that with itself. */
DEVICE_OUTLINE uint32_t vector_parts(const uint64_t *counts, const uint64_t *sizes, uint32_t n, uint32_t me,
                                     bool self) {
        uint32_t most = 0;

        ROLLED
        for (uint32_t p = 0; p < n; p++) {
                const uint32_t parts = (p == me) == self ? (uint32_t)divide_up(counts[p], (uint32_t)sizes[p]) : 0;

                most = parts > most ? parts : most;
        }
        return most;
}
