/* SPDX-License-Identifier: MIT */
#pragma once
/* REDUCE: what the peers pushed and the own input, in the order of ranks, to the own output and on to peers. */
#include "gpu/device/part.h"

/* Unit u of all ranks in rank order; false: a packet is missing. */
template <uint32_t N, uint32_t TYPE>
DEVICE bool unit_sum(const struct run *r, uint32_t u, uint64_t own, uint64_t *ret_value) {
        const struct peer_view *v = &r->s->view;
        struct quad packet[N];
        uint64_t x[N];
        uint32_t spins = 0;
        bool all;

        do {
                all = true;
                UNROLL
                for (uint32_t p = 0; p < N; p++)
                        if (p != r->me)
                                packet[p] = quad_load((const struct quad *)v->from[p] + u);
                UNROLL
                for (uint32_t p = 0; p < N; p++)
                        all = all && (p == r->me || packet_is(packet[p], v->from_flag[p]));
        } while (!all && ++spins < r->spins);
        if (!all)
                return false;
        UNROLL
        for (uint32_t p = 0; p < N; p++)
                x[p] = p == r->me ? own : packet_payload(packet[p]);
        *ret_value = reduce_sum<N, TYPE>(x);
        return true;
}

/* What one source contributes: the own input, a packet, or half of a bulk quad. */
DEVICE uint64_t source_payload(const struct run *r, uint32_t p, uint32_t u, uint64_t own) {
        uint64_t from = r->s->view.from[p];

        if (p == r->me)
                return own;
        if (r->task->transport == STAGING_PACKET)
                return packet_payload(quad_load((const struct quad *)from + u));
        return cell_load((const uint64_t *)from + u);
}

template <uint32_t TYPE> DEVICE uint64_t fold_type(const struct run *r, uint32_t u, uint64_t own) {
        struct reduce_accumulator<TYPE> a;
        uint32_t redop = r->task->redop;

        reduce_begin<TYPE>(a, redop, source_payload(r, 0, u, own));
        ROLLED
        for (uint32_t p = 1; p < r->n; p++)
                reduce_add<TYPE>(a, redop, source_payload(r, p, u, own));
        return reduce_finish<TYPE>(a, redop, r->n);
}

/* Any type and reduction, any number of ranks: all payloads are there. */
DEVICE_OUTLINE uint64_t unit_fold(struct run run, uint32_t u, uint64_t own) {
        const struct run *r = &run;

        switch (r->task->type) {
        case RMX_INT8:
                return fold_type<RMX_INT8>(r, u, own);
        case RMX_UINT8:
                return fold_type<RMX_UINT8>(r, u, own);
        case RMX_INT32:
                return fold_type<RMX_INT32>(r, u, own);
        case RMX_UINT32:
                return fold_type<RMX_UINT32>(r, u, own);
        case RMX_INT64:
                return fold_type<RMX_INT64>(r, u, own);
        case RMX_UINT64:
                return fold_type<RMX_UINT64>(r, u, own);
        case RMX_FLOAT16:
                return fold_type<RMX_FLOAT16>(r, u, own);
        case RMX_FLOAT32:
                return fold_type<RMX_FLOAT32>(r, u, own);
        case RMX_FLOAT64:
                return fold_type<RMX_FLOAT64>(r, u, own);
        case RMX_BFLOAT16:
                return fold_type<RMX_BFLOAT16>(r, u, own);
        case RMX_FLOAT8_E4M3:
                return fold_type<RMX_FLOAT8_E4M3>(r, u, own);
        default:
                return fold_type<RMX_FLOAT8_E5M2>(r, u, own);
        }
}

DEVICE bool unit_any(const struct run *r, uint32_t u, uint64_t own, uint64_t *ret_value) {
        const struct peer_view *v = &r->s->view;

        ROLLED
        for (uint32_t p = 0; p < r->n; p++) {
                uint32_t spins = 0;

                if (p == r->me)
                        continue;
                while (!packet_is(quad_load((const struct quad *)v->from[p] + u), v->from_flag[p]))
                        if (++spins >= r->spins)
                                return false;
        }
        *ret_value = unit_fold(*r, u, own);
        return true;
}

#define REDUCE_ANY RMX_TYPE_COUNT /* stands for every type and reduction */

template <uint32_t N, uint32_t ACCESS, uint32_t TYPE>
DEVICE bool reduce_packets(const struct run *r, uint32_t phase_number, uint64_t in, uint64_t out, uint32_t bytes,
                           uint64_t forward) {
        const uint32_t units = (bytes + 7) / 8;
        uint32_t done = run_resume(r, phase_number);
        bool ready = true;

        ROLLED
        for (uint32_t u = r->thread + done * WARP_THREADS; u < units && ready; u += WARP_THREADS) {
                uint64_t own, value;

                ready = unit_fetch<ACCESS>(r, in, u, bytes, &own);
                if (!ready)
                        break;
                own = unit_scale<ACCESS>(r, own);
                if constexpr (TYPE == REDUCE_ANY)
                        ready = unit_any(r, u, own, &value);
                else
                        ready = unit_sum<N, TYPE>(r, u, own, &value);
                if (!ready)
                        break;
                unit_deliver<ACCESS>(r, out, u, bytes, value);
                if (forward)
                        packet_push<N>(r, forward, u, value);
                done++;
        }
        if (!warp_all(ready)) {
                run_suspend(r, phase_number, done);
                return false;
        }
        run_complete(r, phase_number);
        return true;
}

template <uint32_t N, uint32_t TYPE> DEVICE struct quad quad_sum(const struct run *r, uint32_t q, struct quad own) {
        const struct peer_view *v = &r->s->view;
        struct quad from[N], result;
        uint64_t x[N], low, high;

        UNROLL
        for (uint32_t p = 0; p < N; p++)
                from[p] = p == r->me ? own : quad_load((const struct quad *)v->from[p] + q);
        UNROLL
        for (uint32_t p = 0; p < N; p++)
                x[p] = (uint64_t)from[p].y << 32 | from[p].x;
        low = reduce_sum<N, TYPE>(x);
        UNROLL
        for (uint32_t p = 0; p < N; p++)
                x[p] = (uint64_t)from[p].w << 32 | from[p].z;
        high = reduce_sum<N, TYPE>(x);
        result.x = (uint32_t)low, result.y = (uint32_t)(low >> 32);
        result.z = (uint32_t)high, result.w = (uint32_t)(high >> 32);
        return result;
}

template <uint32_t N, uint32_t ACCESS, uint32_t TYPE>
DEVICE void reduce_bulk(const struct run *r, uint64_t in, uint64_t out, uint32_t bytes, uint64_t forward) {
        const uint32_t quads = (bytes + 15) / 16;

        ROLLED
        for (uint32_t q = r->thread; q < quads; q += WARP_THREADS) {
                struct quad own = quad_scale<ACCESS>(r, quad_fetch<ACCESS>(r, in, q, bytes)), value;

                if constexpr (TYPE == REDUCE_ANY) {
                        uint64_t low = unit_fold(*r, 2 * q, (uint64_t)own.y << 32 | own.x);
                        uint64_t high = unit_fold(*r, 2 * q + 1, (uint64_t)own.w << 32 | own.z);

                        value.x = (uint32_t)low, value.y = (uint32_t)(low >> 32);
                        value.z = (uint32_t)high, value.w = (uint32_t)(high >> 32);
                } else {
                        value = quad_sum<N, TYPE>(r, q, own);
                }
                quad_deliver<ACCESS>(r, out, q, bytes, value);
                if (forward)
                        quad_push<N>(r, forward, q, value);
        }
}

template <uint32_t N, uint32_t ACCESS, uint32_t TYPE>
DEVICE bool reduce_chunk(const struct run *r, uint32_t phase_number, uint64_t in, uint64_t out, uint32_t bytes,
                         uint64_t forward) {
        if (ACCESS == ACCESS_INLINE || r->task->transport == STAGING_PACKET)
                return reduce_packets<N, ACCESS, TYPE>(r, phase_number, in, out, bytes, forward);
        reduce_bulk<N, ACCESS, TYPE>(r, in, out, bytes, forward);
        return true;
}

DEVICE_OUTLINE bool reduce_any(struct run run, uint32_t phase_number, uint64_t in, uint64_t out, uint32_t bytes,
                               uint64_t forward) {
        return reduce_chunk<0, ACCESS_ANY, REDUCE_ANY>(&run, phase_number, in, out, bytes, forward);
}

template <uint32_t N, uint32_t ACCESS>
DEVICE bool phase_reduce(struct run *r, const struct plan_phase *phase, uint32_t number, uint32_t part) {
        const struct task *t = r->task;
        uint64_t sources, targets = 0, in, out;
        struct plan_span from, to;
        uint32_t bytes;
        bool done;

        if (phase->forward && !run_room<ACCESS>(r, phase, phase->region_out, part, &targets))
                return false;
        if (!run_arrived<ACCESS>(r, phase, phase->region_in, part, &sources))
                return false;
        from = run_span<ACCESS>(r, phase->in_range, r->me, part);
        to = run_span<ACCESS>(r, phase->out_range, r->me, part);
        in = run_address<ACCESS>(r, t->in, from.offset);
        out = run_address<ACCESS>(r, t->out, to.offset);
        bytes = (uint32_t)from.length * t->element_bytes;
        if constexpr (ACCESS == ACCESS_ANY) {
                done = reduce_any(*r, number, in, out, bytes, targets);
        } else { /* a sum of one of these */
                if (t->type == RMX_BFLOAT16)
                        done = reduce_chunk<N, ACCESS, RMX_BFLOAT16>(r, number, in, out, bytes, targets);
                else if (t->type == RMX_FLOAT16)
                        done = reduce_chunk<N, ACCESS, RMX_FLOAT16>(r, number, in, out, bytes, targets);
                else
                        done = reduce_chunk<N, ACCESS, RMX_FLOAT32>(r, number, in, out, bytes, targets);
        }
        if (!done)
                return false;
        run_taken(r, phase->region_in, sources);
        if (phase->forward)
                run_pushed(r, phase->region_out, targets);
        return true;
}
