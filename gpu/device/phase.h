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
#include "gpu/device/reduce.h"
#include "gpu/device/task.h"
#include "gpu/device/vector.h"
#include "railmux/railmux.h"

/* Looks at packets or flags before a task is put aside. */
#if TARGET_HOST
#define PHASE_SPINS 2u
#else
#define PHASE_SPINS 48u
#endif

struct run {
        struct task *task;
        struct worker_shared *s;
        struct counter_cache *counter;
        uint32_t n; /* ranks */
        uint32_t me;
        uint32_t lane;
        uint32_t thread;
        uint32_t spins;
};

/* ---- the client's memory, eight bytes at a time --------------------------------------------------------------------
 */
/* How a task's input and output are reached. The two usual ways are known when the code is compiled. */
enum phase_access {
        ACCESS_ANY = 0,    /* decided at run time: boxes, or memory element by element where it must be */
        ACCESS_WHOLE = 1,  /* memory; every piece is made of whole units, aligned as the transport likes it */
        ACCESS_INLINE = 2, /* packets in the boxes */
};

DEVICE uint64_t unit_load(uint64_t address, uint32_t bytes, uint32_t element_bytes) {
        uint64_t value = 0;

        if (bytes >= 8 && (address & 7) == 0)
                return input_load((const void *)address, 8);
        ROLLED
        for (uint32_t i = 0; i < 8 && i < bytes; i += element_bytes)
                value |= input_load((const void *)(address + i), element_bytes) << (8 * i);
        return value;
}

DEVICE void unit_store(uint64_t address, uint64_t value, uint32_t bytes, uint32_t element_bytes) {
        if (bytes >= 8 && (address & 7) == 0) {
                output_store((void *)address, value, 8);
                return;
        }
        ROLLED
        for (uint32_t i = 0; i < 8 && i < bytes; i += element_bytes)
                output_store((void *)(address + i), value >> (8 * i), element_bytes);
}

template <uint32_t ACCESS> DEVICE bool run_inlined(const struct run *r) {
        if constexpr (ACCESS == ACCESS_ANY)
                return r->task->inlined != 0;
        else
                return ACCESS == ACCESS_INLINE;
}

/* Unit u of a piece of `bytes` at `address`: from memory, or from the inbox (then it may not be there yet: false). */
template <uint32_t ACCESS>
DEVICE bool unit_fetch(const struct run *r, uint64_t address, uint32_t u, uint32_t bytes, uint64_t *ret_value) {
        if (!run_inlined<ACCESS>(r)) {
                if constexpr (ACCESS == ACCESS_WHOLE)
                        *ret_value = input_load((const void *)(address + 8 * (uint64_t)u), 8);
                else
                        *ret_value = unit_load(address + 8 * (uint64_t)u, bytes - 8 * u, r->task->element_bytes);
                return true;
        }
        ROLLED
        for (uint32_t k = 0; k < r->spins; k++) {
                struct quad v = quad_load((const struct quad *)address + u);

                if (packet_is(v, r->task->ring_sequence)) {
                        *ret_value = packet_payload(v);
                        return true;
                }
        }
        return false;
}

template <uint32_t ACCESS>
DEVICE void unit_deliver(const struct run *r, uint64_t address, uint32_t u, uint32_t bytes, uint64_t value) {
        if (run_inlined<ACCESS>(r))
                packet_store((struct quad *)address + u, value, r->task->ring_sequence);
        else if constexpr (ACCESS == ACCESS_WHOLE)
                output_store((void *)(address + 8 * (uint64_t)u), value, 8);
        else
                unit_store(address + 8 * (uint64_t)u, value, bytes - 8 * u, r->task->element_bytes);
}

/* The rank's contribution. Only the slow paths multiply, so that the others call nothing and keep their registers. */
template <uint32_t ACCESS> DEVICE uint64_t unit_scale(const struct run *r, uint64_t value) {
        if constexpr (ACCESS == ACCESS_ANY)
                return r->task->redop == RMX_PREMUL_SUM ? reduce_scale(r->task->type, r->task->scalar, value) : value;
        else
                return value;
}

DEVICE struct quad quad_of(uint64_t low, uint64_t high) {
        struct quad v;

        v.x = (uint32_t)low, v.y = (uint32_t)(low >> 32), v.z = (uint32_t)high, v.w = (uint32_t)(high >> 32);
        return v;
}
DEVICE uint64_t quad_low(struct quad v) {
        return (uint64_t)v.y << 32 | v.x;
}
DEVICE uint64_t quad_high(struct quad v) {
        return (uint64_t)v.w << 32 | v.z;
}

/* Sixteen bytes of memory: quad q of a piece. */
template <uint32_t ACCESS>
DEVICE struct quad quad_fetch(const struct run *r, uint64_t address, uint32_t q, uint32_t bytes) {
        uint64_t at = address + 16 * (uint64_t)q;

        if constexpr (ACCESS == ACCESS_WHOLE) {
                return quad_load((const struct quad *)at);
        } else {
                uint32_t element_bytes = r->task->element_bytes, left = bytes - 16 * q;

                if (left >= 16 && (at & 15) == 0)
                        return quad_load((const struct quad *)at);
                return quad_of(unit_load(at, left, element_bytes),
                               left > 8 ? unit_load(at + 8, left - 8, element_bytes) : 0);
        }
}

template <uint32_t ACCESS>
DEVICE void quad_deliver(const struct run *r, uint64_t address, uint32_t q, uint32_t bytes, struct quad v) {
        uint64_t at = address + 16 * (uint64_t)q;
        uint32_t element_bytes = r->task->element_bytes, left = bytes - 16 * q;

        if (ACCESS == ACCESS_WHOLE || (left >= 16 && (at & 15) == 0)) {
                *(struct quad *)at = v;
                return;
        }
        if constexpr (ACCESS != ACCESS_WHOLE) {
                unit_store(at, quad_low(v), left, element_bytes);
                if (left > 8)
                        unit_store(at + 8, quad_high(v), left - 8, element_bytes);
        }
}

template <uint32_t ACCESS> DEVICE struct quad quad_scale(const struct run *r, struct quad v) {
        if constexpr (ACCESS == ACCESS_ANY)
                return quad_of(unit_scale<ACCESS>(r, quad_low(v)), unit_scale<ACCESS>(r, quad_high(v)));
        else
                return v;
}

/* ---- where things are ----------------------------------------------------------------------------------------------
 */
/* As plan_span(), with the divisions done beforehand. Vectors take the general path only. */
template <uint32_t ACCESS>
DEVICE struct plan_span run_span(const struct run *r, uint32_t range, uint32_t index, uint32_t part) {
        const struct task *t = r->task;
        [[maybe_unused]] const uint64_t *words;
        struct plan_span span = {0, 0};

        switch (range) {
        case PLAN_RANGE_WHOLE:
                span.length = t->count;
                break;
        case PLAN_RANGE_SHARD_ME:
        case PLAN_RANGE_SHARD_PEER:
                span.offset = t->shard * (range == PLAN_RANGE_SHARD_ME ? r->me : index);
                if (span.offset > t->count)
                        span.offset = t->count;
                span.length = t->count - span.offset < t->shard ? t->count - span.offset : t->shard;
                break;
        case PLAN_RANGE_BLOCK_ME:
        case PLAN_RANGE_BLOCK_PEER:
                span.offset = t->count * (range == PLAN_RANGE_BLOCK_ME ? r->me : index);
                span.length = t->count;
                break;
        case PLAN_RANGE_VECTOR_SEND:
        case PLAN_RANGE_VECTOR_RECV:
                if constexpr (ACCESS == ACCESS_ANY) {
                        words = (const uint64_t *)t->vector + (range == PLAN_RANGE_VECTOR_RECV ? 2 * r->n : 0);
                        span.length = words[index];
                        span.offset = words[r->n + index];
                        words += range == PLAN_RANGE_VECTOR_RECV ? 3 * r->n : 4 * r->n;
                        return span_part(span, words[index], part);
                }
                break;
        default:
                break;
        }
        return span_part(span, t->elements, part);
}

/* The address of an element of the input or output: a byte, or in the boxes a packet for each eight. */
template <uint32_t ACCESS> DEVICE uint64_t run_address(const struct run *r, uint64_t base, uint64_t elements) {
        uint64_t bytes = elements * r->task->element_bytes;

        return base + (run_inlined<ACCESS>(r) ? 2 * bytes : bytes);
}

/* Does the phase exchange something with peer p in this part? Vectors: a pair that has nothing left has no chunk. */
template <uint32_t ACCESS>
DEVICE bool run_meets(const struct run *r, const struct plan_phase *phase, uint32_t range, uint32_t part, uint32_t p) {
        switch (phase->kind == PLAN_REDUCE ? (uint32_t)PLAN_PEERS_OTHERS : phase->peers) {
        case PLAN_PEERS_OTHERS:
                if constexpr (ACCESS == ACCESS_ANY)
                        if (range == PLAN_RANGE_VECTOR_SEND || range == PLAN_RANGE_VECTOR_RECV)
                                return p != r->me && run_span<ACCESS>(r, range, p, part).length > 0;
                return p != r->me;
        case PLAN_PEERS_ROOT:
                return p == r->task->root;
        case PLAN_PEERS_PEER:
                return p == r->task->peer;
        default:
                return p == r->me;
        }
}

/* Do all peers of the phase have room for a chunk? (An empty chunk of packets is nothing to wait for, so a peer may
 * have taken more than was pushed.) Also prepares view.to. A bit per peer in *ret_mask. */
template <uint32_t ACCESS>
DEVICE bool run_room(const struct run *r, const struct plan_phase *phase, uint32_t region, uint32_t part,
                     uint64_t *ret_mask) {
        struct worker_shared *s = r->s;
        uint32_t transport = r->task->transport;
        bool room = true, mine = false;

#if TARGET_HOST
        *ret_mask = 0;
#endif
        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS) {
                uint32_t pushed = r->counter->pushed[region][p];

                mine = run_meets<ACCESS>(r, phase, phase->in_range, part, p);
#if TARGET_HOST
                *ret_mask |= (uint64_t)mine << p;
#endif
                if (!mine)
                        continue;
                if ((int32_t)(pushed - r->counter->room[region][p]) >= (int32_t)STAGING_SLOTS) {
                        r->counter->room[region][p] =
                                word_load((const uint32_t *)(s->rank.peer[r->me] +
                                                             staging_credit(&s->layout, transport, region, r->lane)) +
                                          p);
                        if ((int32_t)(pushed - r->counter->room[region][p]) >= (int32_t)STAGING_SLOTS)
                                room = false;
                }
                s->view.to[p] = s->rank.peer[p] +
                                staging_chunk(&s->layout, transport, region, r->lane, pushed % STAGING_SLOTS, r->me);
                s->view.to_flag[p] = pushed + 1;
        }
#if !TARGET_HOST
        *ret_mask = warp_ballot(mine);
#endif
        room = warp_all(room);
        warp_sync();
        return room;
}

/* Counts the chunks, and sets the flags of bulk ones. */
DEVICE void run_pushed(const struct run *r, uint32_t region, uint64_t mask) {
        struct worker_shared *s = r->s;

        if (r->task->transport == STAGING_BULK)
                fence_release_system();
        warp_sync();
        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS) {
                uint32_t pushed;

                if (!(mask >> p & 1))
                        continue;
                pushed = r->counter->pushed[region][p]++;
                if (r->task->transport == STAGING_BULK)
                        word_store((uint32_t *)(s->rank.peer[p] +
                                                staging_flag(&s->layout, region, r->lane, pushed % STAGING_SLOTS)) +
                                           r->me,
                                   pushed + 1);
        }
}

/* Prepares view.from for all peers of the phase; bulk: have their chunks come? */
template <uint32_t ACCESS>
DEVICE bool run_arrived(const struct run *r, const struct plan_phase *phase, uint32_t region, uint32_t part,
                        uint64_t *ret_mask) {
        struct worker_shared *s = r->s;
        uint64_t own = s->rank.peer[r->me];
        bool arrived = true, mine = false;

#if TARGET_HOST
        *ret_mask = 0;
#endif
        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS) {
                uint32_t taken = r->counter->taken[region][p], slot = taken % STAGING_SLOTS;

                mine = run_meets<ACCESS>(r, phase, phase->out_range, part, p);
#if TARGET_HOST
                *ret_mask |= (uint64_t)mine << p;
#endif
                if (!mine)
                        continue;
                s->view.from[p] = own + staging_chunk(&s->layout, r->task->transport, region, r->lane, slot, p);
                s->view.from_flag[p] = taken + 1;
                if (r->task->transport == STAGING_BULK) {
                        const uint32_t *flag =
                                (const uint32_t *)(own + staging_flag(&s->layout, region, r->lane, slot)) + p;
                        uint32_t spins = 0;

                        while (word_load(flag) != taken + 1 && ++spins < r->spins)
                                ;
                        arrived = arrived && spins < r->spins;
                }
        }
#if !TARGET_HOST
        *ret_mask = warp_ballot(mine);
#endif
        arrived = warp_all(arrived);
        if (arrived && r->task->transport == STAGING_BULK)
                fence_acquire_system();
        warp_sync();
        return arrived;
}

/* Gives the chunks' slots back. All threads have read what they wanted when the warp meets. */
DEVICE void run_taken(const struct run *r, uint32_t region, uint64_t mask) {
        struct worker_shared *s = r->s;

        warp_sync();
        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS)
                if (mask >> p & 1)
                        word_store((uint32_t *)(s->rank.peer[p] +
                                                staging_credit(&s->layout, r->task->transport, region, r->lane)) +
                                           r->me,
                                   ++r->counter->taken[region][p]);
        warp_sync();
}

/* Where each peer's piece of this part lies in the client's memory, for peers of `mask`. */
template <uint32_t ACCESS>
DEVICE void run_pieces(const struct run *r, uint32_t range, uint64_t base, uint32_t part, uint64_t mask) {
        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS) {
                struct plan_span span;

                if (!(mask >> p & 1))
                        continue;
                span = run_span<ACCESS>(r, range, p, part);
                r->s->view.data[p] = run_address<ACCESS>(r, base, span.offset);
                r->s->view.bytes[p] = (uint32_t)span.length * r->task->element_bytes;
        }
        warp_sync();
}

/* Ranges whose piece is the same whatever the peer. */
DEVICE bool range_common(uint32_t range) {
        return range == PLAN_RANGE_WHOLE || range == PLAN_RANGE_SHARD_ME || range == PLAN_RANGE_BLOCK_ME;
}

/* A part that waits is tried again from where each thread stands. `phase_number` + 1 marks whose progress it is. */
DEVICE uint32_t run_resume(const struct run *r, uint32_t phase_number) {
        return r->task->begun == phase_number + 1 ? r->task->progress[r->thread] : 0;
}

DEVICE void run_suspend(const struct run *r, uint32_t phase_number, uint32_t units_done) {
        warp_sync();
        r->task->progress[r->thread] = (uint8_t)units_done;
        if (r->thread == 0)
                r->task->begun = (uint8_t)(phase_number + 1);
        warp_sync();
}

DEVICE void run_complete(const struct run *r, uint32_t phase_number) {
        if (r->task->begun == phase_number + 1) {
                warp_sync();
                if (r->thread == 0)
                        r->task->begun = 0;
                warp_sync();
        }
}

/* ---- PUSH ----------------------------------------------------------------------------------------------------------
 */
#if TARGET_HOST
#define PHASE_PACKETS 1u
#define PHASE_QUADS   1u
#else
#define PHASE_PACKETS (STAGING_PACKET_CHUNK / 8u / WARP_THREADS) /* of a thread in a chunk: 2, AMD 1 */
#define PHASE_QUADS   (STAGING_BULK_CHUNK / 16u / WARP_THREADS)  /* 4, AMD 2 */
#endif

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
        bool ready = true;

        if (!run_room<ACCESS>(r, phase, phase->region_out, part, &mask))
                return false;
        if (phase->in_range == PLAN_RANGE_NONE) { /* SIGNAL: an empty chunk */
                if (r->task->transport == STAGING_PACKET && r->thread == 0)
                        packet_push<0>(r, mask, 0, 0);
        } else if (range_common(phase->in_range)) {
                struct plan_span span = run_span<ACCESS>(r, phase->in_range, r->me, part);

                ready = push_common<N, ACCESS>(r, mask, run_address<ACCESS>(r, r->task->in, span.offset),
                                               (uint32_t)span.length * r->task->element_bytes);
        } else {
                run_pieces<ACCESS>(r, phase->in_range, r->task->in, part, mask);
                ready = push_each<N, ACCESS>(r, mask);
        }
        if (!warp_all(ready))
                return false;
        run_pushed(r, phase->region_out, mask);
        return true;
}

/* ---- REDUCE --------------------------------------------------------------------------------------------------------
 */
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

/* ---- COPY and WAIT
 * --------------------------------------------------------------------------------------------------- */
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
