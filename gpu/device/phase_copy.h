/* SPDX-License-Identifier: MIT */
#pragma once
/* COPY and WAIT: what the peers pushed, or the own input, to the own output; or nothing but its arrival. */
#include "gpu/device/part.h"

/* The own input to the own output. */
template <uint32_t ACCESS> DEVICE bool copy_self(const struct run *r, const struct plan_phase *phase, uint32_t part) {
        const struct task *t = r->task;
        struct plan_span from = run_span<ACCESS>(r, phase->in_range, r->me, part),
                         to = run_span<ACCESS>(r, phase->out_range, r->me, part);
        uint64_t in = run_address<ACCESS>(r, t->in, from.offset), out = run_address<ACCESS>(r, t->out, to.offset);
        uint32_t bytes = (uint32_t)from.length * t->element_bytes;
        bool ready = true;

        if (in == out && !run_inlined<ACCESS>(r))
                return true;
        if (ACCESS == ACCESS_INLINE || t->transport == STAGING_PACKET) {
                ROLLED
                for (uint32_t u = r->thread; u < (bytes + 7) / 8 && ready; u += WARP_THREADS) {
                        uint64_t value;

                        ready = unit_fetch<ACCESS>(r, in, u, bytes, &value);
                        if (ready)
                                unit_deliver<ACCESS>(r, out, u, bytes, value);
                }
        } else {
                ROLLED
                for (uint32_t q = r->thread; q < (bytes + 15) / 16; q += WARP_THREADS)
                        quad_deliver<ACCESS>(r, out, q, bytes, quad_fetch<ACCESS>(r, in, q, bytes));
        }
        return warp_all(ready);
}

template <uint32_t N, uint32_t ACCESS> DEVICE bool copy_packets(const struct run *r, uint32_t number, uint64_t mask) {
        const struct peer_view *v = &r->s->view;
        const uint32_t n = N ? N : r->n;
        uint32_t done = run_resume(r, number);
        bool ready = true;

        ROLLED
        for (uint32_t u = r->thread + done * WARP_THREADS; u * 8 < STAGING_PACKET_CHUNK && ready; u += WARP_THREADS) {
                if constexpr (N > 0) {
                        struct quad packet[N ? N : 1];
                        uint32_t spins = 0;
                        bool all;

                        do {
                                all = true;
                                UNROLL
                                for (uint32_t p = 0; p < N; p++)
                                        if ((mask >> p & 1) && u * 8 < v->bytes[p])
                                                packet[p] = quad_load((const struct quad *)v->from[p] + u);
                                UNROLL
                                for (uint32_t p = 0; p < N; p++)
                                        if ((mask >> p & 1) && u * 8 < v->bytes[p])
                                                all = all && packet_is(packet[p], v->from_flag[p]);
                        } while (!all && ++spins < r->spins);
                        ready = all;
                        if (all) {
                                UNROLL
                                for (uint32_t p = 0; p < N; p++)
                                        if ((mask >> p & 1) && u * 8 < v->bytes[p])
                                                unit_deliver<ACCESS>(r, v->data[p], u, v->bytes[p],
                                                                     packet_payload(packet[p]));
                        }
                } else {
                        ROLLED
                        for (uint32_t p = 0; p < n && ready; p++) {
                                uint32_t spins = 0;
                                struct quad packet;

                                if (!(mask >> p & 1) || u * 8 >= v->bytes[p])
                                        continue;
                                do
                                        packet = quad_load((const struct quad *)v->from[p] + u);
                                while (!packet_is(packet, v->from_flag[p]) && ++spins < r->spins);
                                ready = packet_is(packet, v->from_flag[p]);
                                if (ready)
                                        unit_deliver<ACCESS>(r, v->data[p], u, v->bytes[p], packet_payload(packet));
                        }
                }
                done += ready;
        }
        if (!warp_all(ready)) {
                /* Copying again does no harm. Reducing again does, in place, so what a REDUCE has noted stays. */
                if (!r->task->begun || r->task->begun == number + 1)
                        run_suspend(r, number, done);
                return false;
        }
        run_complete(r, number);
        return true;
}

template <uint32_t ACCESS> DEVICE void copy_bulk(const struct run *r, uint64_t mask) {
        const struct peer_view *v = &r->s->view;

        ROLLED
        for (uint32_t k = 1; k <= r->n; k++) {
                uint32_t p = r->me + k < r->n ? r->me + k : r->me + k - r->n, quads = (v->bytes[p] + 15) / 16;

                if (!(mask >> p & 1))
                        continue;
                ROLLED
                for (uint32_t base = r->thread; base < quads; base += PHASE_QUADS * WARP_THREADS) {
                        struct quad value[PHASE_QUADS];

                        UNROLL
                        for (uint32_t i = 0; i < PHASE_QUADS; i++)
                                if (base + i * WARP_THREADS < quads)
                                        value[i] = quad_load((const struct quad *)v->from[p] + base + i * WARP_THREADS);
                        UNROLL
                        for (uint32_t i = 0; i < PHASE_QUADS; i++)
                                if (base + i * WARP_THREADS < quads)
                                        quad_deliver<ACCESS>(r, v->data[p], base + i * WARP_THREADS, v->bytes[p],
                                                             value[i]);
                }
        }
}

/* WAIT: an empty chunk of each peer, which as a packet chunk is one packet. */
DEVICE bool wait_packets(const struct run *r, uint64_t mask) {
        const struct peer_view *v = &r->s->view;
        bool ready = true;

        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS) {
                uint32_t spins = 0;

                if (!(mask >> p & 1))
                        continue;
                while (!packet_is(quad_load((const struct quad *)v->from[p]), v->from_flag[p]) && ++spins < r->spins)
                        ;
                ready = ready && spins < r->spins;
        }
        return warp_all(ready);
}

template <uint32_t N, uint32_t ACCESS>
DEVICE bool phase_copy(struct run *r, const struct plan_phase *phase, uint32_t number, uint32_t part) {
        uint64_t mask;

        if (phase->kind == PLAN_COPY && phase->peers == PLAN_PEERS_SELF)
                return copy_self<ACCESS>(r, phase, part);
        if (!run_arrived<ACCESS>(r, phase, phase->region_in, part, &mask))
                return false;
        if (phase->kind == PLAN_WAIT) {
                if (r->task->transport == STAGING_PACKET && !wait_packets(r, mask))
                        return false;
        } else {
                run_pieces<ACCESS>(r, phase->out_range, r->task->out, part, mask);
                if (ACCESS != ACCESS_INLINE && r->task->transport == STAGING_BULK)
                        copy_bulk<ACCESS>(r, mask);
                else if (!copy_packets<N, ACCESS>(r, number, mask))
                        return false;
        }
        run_taken(r, phase->region_in, mask);
        return true;
}
