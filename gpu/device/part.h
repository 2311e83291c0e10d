/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What a phase works on: one part of one lane's task, the client's memory that it names, and the channels to the peers
 * that it meets there. phase.h says how these are used.
 */
#include "gpu/device/channel.h"
#include "gpu/device/reduce.h"
#include "gpu/device/task.h"
#include "gpu/device/vector.h"
#include "railmux/railmux.h"

/* Looks at packets or flags before a task is put aside: 20 us of them, since peers are seldom later than that, or 3 us
 * where other rings speak, too, and would have to wait for somebody else's peer. */
#if TARGET_HOST
#define PHASE_SPINS        2u
#define PHASE_SPINS_SHARED 1u
#else
#define PHASE_SPINS        48u
#define PHASE_SPINS_SHARED 8u
#endif

#if TARGET_HOST
#define PHASE_PACKETS 1u
#define PHASE_QUADS   1u
#else
#define PHASE_PACKETS (STAGING_PACKET_CHUNK / 8u / WARP_THREADS) /* of a thread in a chunk: 4, AMD 2 */
#define PHASE_QUADS   (STAGING_BULK_CHUNK / 16u / WARP_THREADS)  /* 4, AMD 2 */
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

/* Is it time to look up (TASK_PARTS_FAR), before the part that comes after this one? */
DEVICE bool run_looks_up(const struct run *r, uint32_t part, uint32_t step) {
        return channel_far(r->s) && (part ^ (part + step)) >= TASK_PARTS_FAR;
}

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

/* One thread: has p room for a chunk? Also prepares view.to. */
DEVICE bool run_to(const struct run *r, uint32_t region, uint32_t p) {
        struct worker_shared *s = r->s;
        const uint32_t transport = r->task->transport, slots = channel_slots(s, p);
        uint32_t pushed = r->counter->pushed[region][p];
        bool room = true;

        if ((int32_t)(pushed - r->counter->room[region][p]) >= (int32_t)slots) {
                r->counter->room[region][p] = word_load(channel_room(s, transport, region, r->lane, p));
                if ((int32_t)(pushed - r->counter->room[region][p]) >= (int32_t)slots)
                        room = false;
        }
        s->view.to[p] = channel_to(s, transport, region, r->lane, pushed, p);
        s->view.to_flag[p] = pushed + 1;
        return room;
}

/* One thread: prepares view.from. told: a word says whether p's chunk has come; has it? */
DEVICE bool run_from(const struct run *r, uint32_t region, uint32_t p, bool told) {
        struct worker_shared *s = r->s;
        uint32_t taken = r->counter->taken[region][p], spins = 0;

        s->view.from[p] = channel_from(s, r->task->transport, region, r->lane, taken, p);
        s->view.from_flag[p] = taken + 1;
        if (told) {
                const uint32_t *flag = channel_come(s, r->task->transport, region, r->lane, taken, p);

                while (word_load(flag) != taken + 1 && ++spins < r->spins)
                        ;
        }
        return spins < r->spins;
}

/* Do all peers of the phase have room for a chunk? (An empty chunk of packets is nothing to wait for, so a peer may
 * have taken more than was pushed.) Also prepares view.to. A bit per peer in *ret_mask. */
template <uint32_t ACCESS>
DEVICE bool run_room(const struct run *r, const struct plan_phase *phase, uint32_t region, uint32_t part,
                     uint64_t *ret_mask) {
        bool room = true;

        *ret_mask = 0;
        ROLLED
        for (uint32_t base = 0; base < r->n; base += WARP_THREADS) {
                const uint32_t p = base + r->thread;
                const bool mine = p < r->n && run_meets<ACCESS>(r, phase, phase->in_range, part, p);

                *ret_mask |= warp_ballot(mine) << base;
                if (mine)
                        room = run_to(r, region, p) && room;
        }
        room = warp_all(room);
        warp_sync();
        return room;
}

/* Counts the chunks, and sets the flags of bulk ones; the proxy is told of both. */
DEVICE void run_pushed(const struct run *r, uint32_t region, uint64_t mask) {
        struct worker_shared *s = r->s;

        if (r->task->transport == STAGING_BULK || (mask & channel_far(s)))
                fence_release_system();
        warp_sync();
        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS) {
                if (mask >> p & 1)
                        channel_push(s, r->task->transport, region, r->lane, p, ++r->counter->pushed[region][p]);
        }
}

/* Before run_pushed: how long the bulk chunks to ranks of other nodes are. all: each of them is so long, or as view has
 * it. (Only PUSH makes such chunks: what REDUCE sends on are packets, see gpu/hip/choices.c.) */
DEVICE void run_sizes(const struct run *r, uint32_t region, uint64_t mask, bool all, uint32_t bytes) {
        mask &= channel_far(r->s);
        if (!mask || r->task->transport != STAGING_BULK)
                return;
        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS)
                if (mask >> p & 1)
                        channel_size(r->s, region, r->lane, p, r->counter->pushed[region][p] + 1,
                                     all ? bytes : r->s->view.bytes[p]);
}

/* Prepares view.from for all peers of the phase. Have their chunks come, as far as a word says so? (A single packet is
 * looked at itself, WAIT and lane 0: that is no more than a word.) */
template <uint32_t ACCESS>
DEVICE bool run_arrived(const struct run *r, const struct plan_phase *phase, uint32_t region, uint32_t part,
                        uint64_t *ret_mask) {
        /* of whom a word says so */
        const uint64_t told = r->task->transport == STAGING_BULK                           ? ~UINT64_C(0)
                              : phase->kind == PLAN_WAIT || region == STAGING_REGION_CHECK ? 0
                                                                                           : channel_far(r->s);
        bool arrived = true;

        *ret_mask = 0;
        ROLLED
        for (uint32_t base = 0; base < r->n; base += WARP_THREADS) {
                const uint32_t p = base + r->thread;
                const bool mine = p < r->n && run_meets<ACCESS>(r, phase, phase->out_range, part, p);

                *ret_mask |= warp_ballot(mine) << base;
                if (mine)
                        arrived = run_from(r, region, p, told >> p & 1) && arrived;
        }
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
                        channel_give(s, r->task->transport, region, r->lane, p, ++r->counter->taken[region][p]);
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
