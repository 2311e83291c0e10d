/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Requests with a root, the quick way: a broadcast is the push of quick.h by the root alone and a copy of what came
 * from it by all; a reduce is a push to the root by all, and its reduction. Both in one hop: of one with n ranks the
 * root's links carry the data n - 1 times, so they are for what is small (gpu/hip/choices.c).
 *
 * As there the root is its own peer, and what is left for others is what any plan leaves: a rank that is not the root
 * of a broadcast pushes nothing, nor does it take anything in a reduce, and their counters stay as they are. So the
 * root of a broadcast, and whoever is not the root of a reduce, waits for nobody but for room: it may run ahead by as
 * many requests as there are slots.
 *
 * There is one piece, and a part of it from one peer has so few units that a thread has all of its own under way at
 * once, whether or not it has as many as others: no code of their own for parts that are full.
 */
#include "gpu/device/quick.h"

DEVICE constexpr bool quick_rooted(uint32_t mode) {
        return mode == QUICK_BROADCAST || mode == QUICK_REDUCE;
}

/* The two steps: who pushes, and who has an output to be written. */
DEVICE bool quick_root_pushes(uint32_t mode, bool root) {
        return mode == QUICK_REDUCE || root;
}
DEVICE bool quick_root_ends(uint32_t mode, bool root) {
        return mode == QUICK_BROADCAST || root;
}

template <uint32_t N> DEVICE bool quick_root_room(const struct quick *q, uint32_t mode, uint32_t root) {
        return mode == QUICK_BROADCAST ? quick_room<N>(q, 0) : quick_room<N, true>(q, 0, root);
}

/* Own input to the root. False: no room, or the inbox is not filled yet; nothing has been done. */
template <uint32_t N, bool INLINE>
DEVICE bool quick_root_push(const struct quick *q, uint32_t root, uint32_t part, uint32_t spins) {
        static_assert(quick_batch(QUICK_UNITS, 1) == QUICK_UNITS, "all at once");
        const uint32_t at = part * q->part_bytes + 8 * q->thread, pushed = q->c->pushed[0][root];
        struct quad *to = (struct quad *)(q->s->rank.peer[root] + quick_lane<N>(q, 0) +
                                          (pushed % STAGING_SLOTS * N + q->me) * (2 * STAGING_PACKET_CHUNK));
        uint64_t value[QUICK_UNITS][1];

        if constexpr (INLINE)
                if (!quick_inbox<1, QUICK_UNITS, false>(q, at, spins, value))
                        return false;
        if (!quick_room<N, true>(q, 0, root))
                return false;
        if constexpr (!INLINE) {
                UNROLL
                for (uint32_t k = 0; k < QUICK_UNITS; k++) {
                        value[k][0] = 0;
                        if (quick_has(q, k, 0, at + k * QUICK_UNIT_STEP))
                                value[k][0] = input_load((const void *)(q->in + at + k * QUICK_UNIT_STEP), 8);
                }
        }
        UNROLL
        for (uint32_t k = 0; k < QUICK_UNITS; k++)
                if (quick_has(q, k, 0, at + k * QUICK_UNIT_STEP))
                        packet_store(to + k * WARP_THREADS, value[k][0], pushed + 1);
        quick_pushed<N, true>(q, 0, root);
        return true;
}

/* What the root pushed to the own output. The caller says quick_taken<N, true>(0, root). */
template <uint32_t N, bool INLINE>
DEVICE bool quick_root_copy(const struct quick *q, uint32_t root, uint32_t part, uint32_t spins) {
        const uint32_t at = part * q->part_bytes + 8 * q->thread, taken = q->c->taken[0][root];
        const struct quad *from =
                (const struct quad *)(q->mine + quick_lane<N>(q, 0) +
                                      (taken % STAGING_SLOTS * N + root) * (2 * STAGING_PACKET_CHUNK));
        struct quad packet[QUICK_UNITS];
        bool all;

        if (!INLINE && root == q->me && q->in == q->out)
                return true;
        do {
                UNROLL
                for (uint32_t k = 0; k < QUICK_UNITS; k++)
                        if (quick_has(q, k, 0, at + k * QUICK_UNIT_STEP))
                                packet[k] = quad_load(from + k * WARP_THREADS);
                all = true;
                UNROLL
                for (uint32_t k = 0; k < QUICK_UNITS; k++)
                        all = all && (!quick_has(q, k, 0, at + k * QUICK_UNIT_STEP) || packet_is(packet[k], taken + 1));
                all = warp_all(all);
        } while (!all && --spins);
        if (!all)
                return false;
        UNROLL
        for (uint32_t k = 0; k < QUICK_UNITS; k++)
                if (quick_has(q, k, 0, at + k * QUICK_UNIT_STEP))
                        quick_deliver<INLINE>(q, at + k * QUICK_UNIT_STEP, packet_payload(packet[k]));
        return true;
}

/* The chunks of the last step are the peers' again. */
template <uint32_t N> DEVICE void quick_root_taken(const struct quick *q, uint32_t mode, uint32_t root) {
        if (mode == QUICK_BROADCAST)
                quick_taken<N, true>(q, 0, root);
        else
                quick_taken<N>(q, 0);
}

/* Has this rank written memory that somebody looks at who has been told? */
DEVICE bool quick_root_writes(const struct quick *q, uint32_t mode, uint32_t root) {
        return quick_root_ends(mode, q->me == root) && !(mode == QUICK_BROADCAST && q->me == root && q->in == q->out);
}

/* Is it one of these plans? The whole moves from or to a root, and sums are in the order of ranks. */
DEVICE uint32_t quick_root_plan(uint32_t operation, const struct plan *plan) {
        if ((operation != RING_OP_BROADCAST && operation != RING_OP_REDUCE) || plan->algorithm != PLAN_DIRECT)
                return QUICK_NONE;
        for (uint32_t f = 0; f < plan->n_phases && f < TASK_PHASES; f++)
                if ((plan->phases[f].in_range != PLAN_RANGE_NONE && plan->phases[f].in_range != PLAN_RANGE_WHOLE) ||
                    (plan->phases[f].out_range != PLAN_RANGE_NONE && plan->phases[f].out_range != PLAN_RANGE_WHOLE))
                        return QUICK_NONE;
        return operation == RING_OP_BROADCAST ? QUICK_BROADCAST : QUICK_REDUCE;
}
