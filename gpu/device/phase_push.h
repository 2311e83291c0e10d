/* SPDX-License-Identifier: MIT */
#pragma once
/* PUSH: a part of the own input to the peers' staging. */
#include "gpu/device/part.h"

/* `value` of unit u to every peer of the mask, the next rank first. */
template <uint32_t N> DEVICE void packet_push(const struct run *r, uint64_t mask, uint32_t u, uint64_t value) {
        const struct peer_view *v = &r->s->view;
        const uint32_t n = N ? N : r->n;
        uint32_t p = r->me;

        UNROLL
        for (uint32_t k = 1; k < n; k++) {
                p = p + 1 == n ? 0 : p + 1;
                if (mask >> p & 1)
                        packet_store((struct quad *)v->to[p] + u, value, v->to_flag[p]);
        }
}

template <uint32_t N> DEVICE void quad_push(const struct run *r, uint64_t mask, uint32_t q, struct quad value) {
        const struct peer_view *v = &r->s->view;
        const uint32_t n = N ? N : r->n;
        uint32_t p = r->me;

        UNROLL
        for (uint32_t k = 1; k < n; k++) {
                p = p + 1 == n ? 0 : p + 1;
                if (mask >> p & 1)
                        quad_store((struct quad *)v->to[p] + q, value);
        }
}

/* One piece, the same for all peers of the mask. False: the inbox is not filled yet; nothing has been pushed. */
template <uint32_t N, uint32_t ACCESS>
DEVICE bool push_common(const struct run *r, uint64_t mask, uint64_t address, uint32_t bytes) {
        if (ACCESS == ACCESS_INLINE || r->task->transport == STAGING_PACKET) {
                const uint32_t units = (bytes + 7) / 8;

                ROLLED
                for (uint32_t base = r->thread; warp_any(base < units); base += PHASE_PACKETS * WARP_THREADS) {
                        uint64_t value[PHASE_PACKETS] = {0};
                        bool ready = true;

                        UNROLL
                        for (uint32_t k = 0; k < PHASE_PACKETS; k++)
                                if (base + k * WARP_THREADS < units)
                                        ready = unit_fetch<ACCESS>(r, address, base + k * WARP_THREADS, bytes,
                                                                   &value[k]) &&
                                                ready;
                        if (!warp_all(ready)) /* only the first round can find it unfilled: a chunk is one round */
                                return false;
                        UNROLL
                        for (uint32_t k = 0; k < PHASE_PACKETS; k++)
                                if (base + k * WARP_THREADS < units)
                                        packet_push<N>(r, mask, base + k * WARP_THREADS,
                                                       unit_scale<ACCESS>(r, value[k]));
                }
        } else {
                const uint32_t quads = (bytes + 15) / 16;

                ROLLED
                for (uint32_t base = r->thread; base < quads; base += PHASE_QUADS * WARP_THREADS) {
                        struct quad value[PHASE_QUADS];

                        UNROLL
                        for (uint32_t k = 0; k < PHASE_QUADS; k++)
                                if (base + k * WARP_THREADS < quads)
                                        value[k] = quad_fetch<ACCESS>(r, address, base + k * WARP_THREADS, bytes);
                        UNROLL
                        for (uint32_t k = 0; k < PHASE_QUADS; k++)
                                if (base + k * WARP_THREADS < quads)
                                        quad_push<N>(r, mask, base + k * WARP_THREADS, quad_scale<ACCESS>(r, value[k]));
                }
        }
        return true;
}

/* A piece of its own for each peer. */
template <uint32_t N, uint32_t ACCESS> DEVICE bool push_each(const struct run *r, uint64_t mask) {
        const struct peer_view *v = &r->s->view;
        const uint32_t n = N ? N : r->n;

        if (ACCESS == ACCESS_INLINE || r->task->transport == STAGING_PACKET) {
                ROLLED
                for (uint32_t u = r->thread; warp_any(u * 8 < STAGING_PACKET_CHUNK); u += WARP_THREADS) {
                        if constexpr (N > 0) {
                                uint64_t value[N ? N : 1] = {0};
                                bool ready = true;

                                UNROLL
                                for (uint32_t p = 0; p < N; p++)
                                        if ((mask >> p & 1) && u * 8 < v->bytes[p])
                                                ready = unit_fetch<ACCESS>(r, v->data[p], u, v->bytes[p], &value[p]) &&
                                                        ready;
                                if (!warp_all(ready))
                                        return false; /* pushed packets are pushed again with the same contents */
                                UNROLL
                                for (uint32_t p = 0; p < N; p++)
                                        if ((mask >> p & 1) && u * 8 < v->bytes[p])
                                                packet_store((struct quad *)v->to[p] + u,
                                                             unit_scale<ACCESS>(r, value[p]), v->to_flag[p]);
                        } else {
                                ROLLED
                                for (uint32_t k = 1; k < n; k++) {
                                        uint32_t p = r->me + k < n ? r->me + k : r->me + k - n;
                                        uint64_t value = 0;
                                        bool ready = true;

                                        if (!(mask >> p & 1))
                                                continue;
                                        if (u * 8 < v->bytes[p])
                                                ready = unit_fetch<ACCESS>(r, v->data[p], u, v->bytes[p], &value);
                                        if (!warp_all(ready))
                                                return false;
                                        if (u * 8 < v->bytes[p])
                                                packet_store((struct quad *)v->to[p] + u, unit_scale<ACCESS>(r, value),
                                                             v->to_flag[p]);
                                }
                        }
                }
        } else {
                ROLLED
                for (uint32_t k = 1; k < n; k++) {
                        uint32_t p = r->me + k < n ? r->me + k : r->me + k - n, quads = (v->bytes[p] + 15) / 16;

                        if (!(mask >> p & 1))
                                continue;
                        ROLLED
                        for (uint32_t base = r->thread; base < quads; base += PHASE_QUADS * WARP_THREADS) {
                                struct quad value[PHASE_QUADS];

                                UNROLL
                                for (uint32_t i = 0; i < PHASE_QUADS; i++)
                                        if (base + i * WARP_THREADS < quads)
                                                value[i] = quad_fetch<ACCESS>(r, v->data[p], base + i * WARP_THREADS,
                                                                              v->bytes[p]);
                                UNROLL
                                for (uint32_t i = 0; i < PHASE_QUADS; i++)
                                        if (base + i * WARP_THREADS < quads)
                                                quad_store((struct quad *)v->to[p] + base + i * WARP_THREADS,
                                                           quad_scale<ACCESS>(r, value[i]));
                        }
                }
        }
        return true;
}

template <uint32_t N, uint32_t ACCESS>
DEVICE bool phase_push(struct run *r, const struct plan_phase *phase, uint32_t part) {
        uint64_t mask;
        uint32_t bytes = 0;
        bool ready = true, all = true;

        if (!run_room<ACCESS>(r, phase, phase->region_out, part, &mask))
                return false;
        if (phase->in_range == PLAN_RANGE_NONE) { /* SIGNAL: an empty chunk */
                if (r->task->transport == STAGING_PACKET && r->thread == 0)
                        packet_push<0>(r, mask, 0, 0);
        } else if (range_common(phase->in_range)) {
                struct plan_span span = run_span<ACCESS>(r, phase->in_range, r->me, part);

                bytes = (uint32_t)span.length * r->task->element_bytes;
                ready = push_common<N, ACCESS>(r, mask, run_address<ACCESS>(r, r->task->in, span.offset), bytes);
        } else {
                all = false;
                run_pieces<ACCESS>(r, phase->in_range, r->task->in, part, mask);
                ready = push_each<N, ACCESS>(r, mask);
        }
        if (!warp_all(ready))
                return false;
        run_sizes(r, phase->region_out, mask, all, bytes);
        run_pushed(r, phase->region_out, mask);
        return true;
}
