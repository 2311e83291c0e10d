/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The phases of a plan on one lane: PUSH, REDUCE, COPY, SIGNAL, WAIT, over packets or bulk chunks.
 *
 * A phase works on one part at a time and either does it or says that it is not ready. It says so before it has changed
 * anything, except for packets, of which each thread does its own, unit by unit, as they come: what a thread has done
 * of a part is kept in task.progress and never done twice (in place, the input would be gone).
 *
 * All steps of a PUSH (one per peer) are done together when every peer has room, so the input is read once. This is the
 * plan's order with less freedom: a part that waits for its slowest peer delays the others', but a peer makes room
 * whatever this rank does next, so nobody waits in a circle.
 *
 * Loads first: a unit's packets from all peers are loaded before the first is looked at, and data is loaded before the
 * first store, so that latencies overlap. What is indexed at run time (peers, flags) lies in shared memory: in
 * registers it would spill.
 */
#include "gpu/device/phase_copy.h"
#include "gpu/device/phase_push.h"
#include "gpu/device/phase_reduce.h"

/* ---- lane 0
 * ------------------------------------------------------------------------------------------------------------ */
/* What this rank tells p, or expects of it: of a vector, also the count that the two have in common. */
DEVICE uint64_t check_word(const struct run *r, uint32_t range, uint32_t p) {
        const uint64_t *counts = (const uint64_t *)r->task->vector;
        uint64_t count;

        if (!counts)
                return r->task->call;
        count = counts[range == PLAN_RANGE_VECTOR_RECV ? 2 * r->n + p : p]; /* of each pair: below 2^44 */
        return r->task->call ^ (count << 32 | count >> 32 << 8);
}

/*
 * Everybody tells what it has called to those that it sends data to, and compares what those say that it has data from.
 * So nobody waits here for a rank that it does not wait for anyway (a broadcast's root may run ahead).
 */
DEVICE bool check_send(struct run *r) {
        struct plan_phase phase = r->s->plan.phases[0]; /* what sends is the first phase of every plan */
        uint64_t mask;

        phase.in_range = PLAN_RANGE_NONE;
        if (!run_room<ACCESS_WHOLE>(r, &phase, STAGING_REGION_CHECK, 0, &mask))
                return false;
        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS)
                if (mask >> p & 1)
                        packet_store((struct quad *)r->s->view.to[p], check_word(r, PLAN_RANGE_VECTOR_SEND, p),
                                     r->s->view.to_flag[p]);
        run_pushed(r, STAGING_REGION_CHECK, mask);
        return true;
}

/* False: not all have told. *ret_differs: the first rank that has called something else, n if none has. */
DEVICE bool check_compare(struct run *r, const struct plan_phase *like, uint32_t *ret_differs) {
        struct plan_phase phase = *like;
        const struct peer_view *v = &r->s->view;
        uint32_t differs = r->n;
        uint64_t mask;

        phase.out_range = PLAN_RANGE_NONE;
        if (!run_arrived<ACCESS_WHOLE>(r, &phase, STAGING_REGION_CHECK, 0, &mask) || !wait_packets(r, mask))
                return false;
        ROLLED
        for (uint32_t p = r->thread; warp_any(p < r->n); p += WARP_THREADS) {
                bool other = p < r->n && (mask >> p & 1) &&
                             packet_payload(quad_load((const struct quad *)v->from[p])) !=
                                     check_word(r, PLAN_RANGE_VECTOR_RECV, p);
                uint64_t who = warp_ballot(other);

                if (who && differs == r->n)
                        differs = warp_read(p, first_bit(who));
        }
        run_taken(r, STAGING_REGION_CHECK, mask);
        *ret_differs = differs;
        return true;
}

/* ---- one part of one phase
 * --------------------------------------------------------------------------------------------- */
template <uint32_t N, uint32_t ACCESS> DEVICE bool phase_run(struct run *r, uint32_t number, uint32_t part) {
        const struct plan_phase *phase = &r->s->plan.phases[number];

        switch (phase->kind) {
        case PLAN_PUSH:
        case PLAN_SIGNAL:
                return phase_push<N, ACCESS>(r, phase, part);
        case PLAN_REDUCE:
                return phase_reduce<N, ACCESS>(r, phase, number, part);
        default:
                return phase_copy<N, ACCESS>(r, phase, number, part);
        }
}
