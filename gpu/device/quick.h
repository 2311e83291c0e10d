/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The usual requests, in as few instructions as they can be done.
 *
 * What a small request costs is neither bytes nor links but the instructions that one warp executes one after the other
 * between the line and the completion word. phase.h interprets any plan on any memory; here are the plans that models
 * ring all day (all_reduce in one and two shots, reduce_scatter, all_gather, all_to_all), by packets, for 2, 4 and 8
 * ranks, sums of the three usual types where something is reduced, and memory made of whole units. What they do, and
 * what they leave for other ranks in staging, is the same, so ranks may take either way; a task that was put aside goes
 * on where it was, on the way that it began, also in the next kernel.
 *
 * All pieces of a request have the same form: piece p begins at p * stride and has the bytes up to stride, but none
 * beyond `total`. Thread t has units t, t + WARP_THREADS, .. of each part. In a part in which all threads have all of
 * their units, nothing depends on what a thread has, so there are no branches (UNITS below); a part at the end of a
 * piece is done unit by unit by code of its own.
 *
 * A rank is its own peer: what it keeps goes through its own staging, into the chunk of its own that nobody else uses.
 * This costs a store and a load nearby, and saves an exception in each of the loops; what is added up, and in which
 * order, is the same for all ranks, and the input is read once, before anything is written, whether or not the request
 * is in place. Its chunks are counted like those of others. It need not look for room in its own staging: a rank is
 * never further ahead of itself than there are slots (direct.h).
 *
 * A part that was begun and has to wait begins anew: all that it reads is in staging until it is finished, and what it
 * delivers is the same every time. So task.progress is not needed.
 */
#include "gpu/device/phase.h"

enum quick_mode {
        QUICK_NONE = 0,
        QUICK_ONE_SHOT = 1,
        QUICK_TWO_SHOT = 2,
        QUICK_REDUCE_SCATTER = 3,
        QUICK_ALL_GATHER = 4,
        QUICK_ALL_TO_ALL = 5,
        QUICK_BROADCAST = 6, /* these two: quick_root.h */
        QUICK_REDUCE = 7,
};

#define QUICK_UNITS     (STAGING_PACKET_CHUNK / 8u / WARP_THREADS) /* most of a thread in a part */
#define QUICK_UNIT_STEP (8u * WARP_THREADS)
/* Packets that a thread has under way at once: what its registers hold. */
#if TARGET_HOST
#define QUICK_PACKETS 512u
#elif defined(RESIDENT_DENSE)
#define QUICK_PACKETS 8u
#else
#define QUICK_PACKETS 16u
#endif
#define QUICK_BYTES_MAX (UINT64_C(1) << 30)

struct quick {
        struct worker_shared *s;
        struct counter_cache *c;
        uint32_t type; /* what is reduced */
        uint64_t mine; /* own staging */
        uint64_t in, out;
        uint32_t me;
        uint32_t thread;
        uint32_t lane;
        uint32_t stride, total, part_bytes;
        uint32_t flag; /* inline: of the boxes */
};

DEVICE constexpr bool quick_reduces(uint32_t mode) {
        return mode == QUICK_ONE_SHOT || mode == QUICK_TWO_SHOT || mode == QUICK_REDUCE_SCATTER;
}
DEVICE constexpr bool quick_copies(uint32_t mode) {
        return mode == QUICK_TWO_SHOT || mode == QUICK_ALL_GATHER || mode == QUICK_ALL_TO_ALL;
}
/* Is there a block for each rank on one side or on both? */
DEVICE constexpr bool quick_blocks(uint32_t mode) {
        return mode == QUICK_REDUCE_SCATTER || mode == QUICK_ALL_GATHER || mode == QUICK_ALL_TO_ALL;
}
/* One piece, the same for all? */
DEVICE constexpr bool quick_whole(uint32_t mode) {
        return mode == QUICK_ONE_SHOT || mode == QUICK_BROADCAST || mode == QUICK_REDUCE;
}
/* A piece of its own for each peer? */
DEVICE constexpr bool quick_each(uint32_t mode) {
        return mode == QUICK_TWO_SHOT || mode == QUICK_REDUCE_SCATTER || mode == QUICK_ALL_TO_ALL;
}

/* Most of an inline request. Of several pieces in a box of BELL_INLINE_BYTES none is longer than half of that, and such
 * pieces have small parts (task_part_bytes). */
DEVICE constexpr uint32_t quick_inline(uint32_t pieces) {
        return pieces == 1 || QUICK_UNITS == 1 ? QUICK_UNITS : QUICK_UNITS / 2;
}

/* Units that are done at once, of so many, if there is one of each of `pieces` in each. */
DEVICE constexpr uint32_t quick_batch(uint32_t units, uint32_t pieces) {
        return units * pieces <= QUICK_PACKETS ? units : pieces < QUICK_PACKETS ? QUICK_PACKETS / pieces : 1;
}

/* ---- where ------------------------------------------------------------------------------------------------------- */
/* Where a thread's first packet of the next chunk is, to or from each rank, and the chunk's number. */
template <uint32_t N> struct quick_way {
        uint64_t at[N];
        uint32_t flag[N];
};

template <uint32_t N> DEVICE uint32_t quick_lane(const struct quick *q, uint32_t region) {
        return (uint32_t)q->s->layout.packet[region] + q->lane * (STAGING_SLOTS * N * 2 * STAGING_PACKET_CHUNK) +
               16 * q->thread;
}

template <uint32_t N> DEVICE void quick_to(const struct quick *q, uint32_t region, struct quick_way<N> *ret_way) {
        const uint32_t base = quick_lane<N>(q, region) + q->me * (2 * STAGING_PACKET_CHUNK);

        UNROLL
        for (uint32_t p = 0; p < N; p++) {
                const uint32_t pushed = q->c->pushed[region][p];

                ret_way->at[p] = q->s->rank.peer[p] + base + pushed % STAGING_SLOTS * (N * 2 * STAGING_PACKET_CHUNK);
                ret_way->flag[p] = pushed + 1;
        }
}

template <uint32_t N> DEVICE void quick_from(const struct quick *q, uint32_t region, struct quick_way<N> *ret_way) {
        const uint64_t base = q->mine + quick_lane<N>(q, region);

        UNROLL
        for (uint32_t p = 0; p < N; p++) {
                const uint32_t taken = q->c->taken[region][p];

                ret_way->at[p] = base + (taken % STAGING_SLOTS * N + p) * (2 * STAGING_PACKET_CHUNK);
                ret_way->flag[p] = taken + 1;
        }
}

/* Is there a unit of piece p at byte x of each piece? */
DEVICE bool quick_live(const struct quick *q, uint32_t p, uint32_t x) {
        return x < q->stride && p * q->stride + x < q->total;
}

/* Does unit k of this thread lie in the part? A wide warp has more threads than a small part has units. */
DEVICE bool quick_mine(const struct quick *q, uint32_t k) {
        return k * QUICK_UNIT_STEP + 8 * q->thread < q->part_bytes;
}
DEVICE bool quick_has(const struct quick *q, uint32_t k, uint32_t p, uint32_t x) {
        return quick_mine(q, k) && quick_live(q, p, x);
}

template <bool INLINE> DEVICE uint64_t quick_at(uint64_t base, uint32_t bytes) {
        return base + (INLINE ? 2 * (uint64_t)bytes : bytes);
}

template <bool INLINE> DEVICE void quick_deliver(const struct quick *q, uint32_t bytes, uint64_t value) {
        if constexpr (INLINE)
                packet_store((struct quad *)quick_at<INLINE>(q->out, bytes), value, q->flag);
        else
                output_store((void *)quick_at<INLINE>(q->out, bytes), value, 8);
}

/* Has every peer room for another chunk of the region? ONE: has this one? */
template <uint32_t N, bool ONE = false>
DEVICE bool quick_room(const struct quick *q, uint32_t region, uint32_t one = 0) {
        bool room = true;

        for (uint32_t p = q->thread; p < N; p += WARP_THREADS) {
                const uint32_t pushed = q->c->pushed[region][p];

                if (p == q->me || (ONE && p != one) ||
                    (int32_t)(pushed - q->c->room[region][p]) < (int32_t)STAGING_SLOTS)
                        continue;
                q->c->room[region][p] = word_load(
                        (const uint32_t *)(q->mine + staging_credit(&q->s->layout, STAGING_PACKET, region, q->lane)) +
                        p);
                room = room && (int32_t)(pushed - q->c->room[region][p]) < (int32_t)STAGING_SLOTS;
        }
        return warp_all(room);
}

/* The chunks have been pushed, or taken and are the peers' again; or the one to or from this peer. */
template <uint32_t N, bool ONE = false>
DEVICE void quick_pushed(const struct quick *q, uint32_t region, uint32_t one = 0) {
        warp_sync();
        for (uint32_t p = q->thread; p < N; p += WARP_THREADS)
                if (!ONE || p == one)
                        q->c->pushed[region][p]++;
        warp_sync();
}

template <uint32_t N, bool ONE = false>
DEVICE void quick_taken(const struct quick *q, uint32_t region, uint32_t one = 0) {
        warp_sync();
        for (uint32_t p = q->thread; p < N; p += WARP_THREADS)
                if (!ONE || p == one)
                        word_store((uint32_t *)(q->s->rank.peer[p] +
                                                staging_credit(&q->s->layout, STAGING_PACKET, region, q->lane)) +
                                           q->me,
                                   ++q->c->taken[region][p]);
        warp_sync();
}

/* ---- the three steps --------------------------------------------------------------------------------------------- */
/*
 * UNITS: what every thread has in this part, of every piece; 0: that has to be looked at.
 */
/* The thread's units of a part of an inline request. False: the inbox is not filled yet. */
template <uint32_t PIECES, uint32_t UNITS, bool FULL>
DEVICE bool quick_inbox(const struct quick *q, uint32_t at, uint32_t spins, uint64_t (&ret_value)[UNITS][PIECES]) {
        bool ready;

        do {
                struct quad box[UNITS][PIECES];

                UNROLL
                for (uint32_t k = 0; k < UNITS; k++)
                        UNROLL
                for (uint32_t p = 0; p < PIECES; p++) {
                        const uint32_t x = at + k * QUICK_UNIT_STEP;

                        if (!FULL)
                                box[k][p] = quad_of((uint64_t)q->flag << 32, (uint64_t)q->flag << 32);
                        if (FULL || quick_has(q, k, p, x))
                                box[k][p] = quad_load((const struct quad *)quick_at<true>(q->in, p * q->stride + x));
                }
                ready = true;
                UNROLL
                for (uint32_t k = 0; k < UNITS; k++)
                        UNROLL
                for (uint32_t p = 0; p < PIECES; p++) {
                        ready = ready && packet_is(box[k][p], q->flag);
                        ret_value[k][p] = packet_payload(box[k][p]);
                }
                ready = warp_all(ready);
        } while (!ready && --spins);
        return ready;
}

/* Own input to all ranks. False: no room, or the inbox is not filled yet; nothing has been done. `aimed`: there is
 * room, and this is the way. */
template <uint32_t N, uint32_t MODE, bool INLINE, uint32_t UNITS>
DEVICE bool quick_push(const struct quick *q, uint32_t part, uint32_t spins,
                       const struct quick_way<N> *aimed = nullptr) {
        constexpr uint32_t pieces = quick_each(MODE) ? N : 1;
        constexpr uint32_t most = INLINE ? quick_inline(pieces) : QUICK_UNITS, units = UNITS ? UNITS : most;
        constexpr uint32_t batch = INLINE ? units : quick_batch(units, pieces);
        const uint32_t at = part * q->part_bytes + 8 * q->thread;
        uint64_t value[batch][pieces];
        struct quick_way<N> to;

        if constexpr (INLINE)
                if (!quick_inbox<pieces, units, UNITS != 0>(q, at, spins, value))
                        return false;
        if (!aimed && !quick_room<N>(q, 0))
                return false;
        if (aimed)
                to = *aimed;
        else
                quick_to<N>(q, 0, &to);
        ROLLED
        for (uint32_t base = 0; base < units; base += batch) {
                if constexpr (!INLINE) {
                        UNROLL
                        for (uint32_t k = 0; k < batch; k++)
                                UNROLL
                        for (uint32_t p = 0; p < pieces; p++) {
                                const uint32_t x = at + (base + k) * QUICK_UNIT_STEP;

                                if (!UNITS)
                                        value[k][p] = 0;
                                if (UNITS || quick_has(q, base + k, p, x))
                                        value[k][p] = input_load((const void *)(q->in + p * q->stride + x), 8);
                        }
                }
                UNROLL
                for (uint32_t k = 0; k < batch; k++)
                        UNROLL
                for (uint32_t p = 0; p < N; p++) {
                        const uint32_t piece = pieces == 1 ? 0 : p, x = at + (base + k) * QUICK_UNIT_STEP;

                        if (UNITS || quick_has(q, base + k, piece, x))
                                packet_store((struct quad *)to.at[p] + (base + k) * WARP_THREADS, value[k][piece],
                                             to.flag[p]);
                }
        }
        quick_pushed<N>(q, 0);
        return true;
}

template <uint32_t N> DEVICE uint64_t quick_sum(uint32_t type, const uint64_t (&x)[N]) {
        if (type == RMX_BFLOAT16)
                return reduce_sum<N, RMX_BFLOAT16>(x);
        if (type == RMX_FLOAT16)
                return reduce_sum<N, RMX_FLOAT16>(x);
        return reduce_sum<N, RMX_FLOAT32>(x);
}

/* Units k, k + 1, .. of all ranks, looked for until every thread has all of its own. False: gave up. `live` has a bit
 * for each rank whose units this thread has (UNITS 1), or is not looked at (`all`). */
template <uint32_t N, uint32_t UNITS, bool ALL>
DEVICE bool quick_gather(const struct quick_way<N> *from, uint32_t k, uint32_t live, uint32_t spins,
                         uint64_t (&ret_value)[UNITS][N]) {
        struct quad packet[UNITS][N];
        bool all;

        do {
                UNROLL
                for (uint32_t i = 0; i < UNITS; i++)
                        UNROLL
                for (uint32_t p = 0; p < N; p++)
                        if (ALL || live >> p & 1)
                                packet[i][p] = quad_load((const struct quad *)from->at[p] + (k + i) * WARP_THREADS);
                all = true;
                UNROLL
                for (uint32_t i = 0; i < UNITS; i++)
                        UNROLL
                for (uint32_t p = 0; p < N; p++)
                        all = all && ((!ALL && !(live >> p & 1)) || packet_is(packet[i][p], from->flag[p]));
                all = warp_all(all);
        } while (!all && --spins);
        UNROLL
        for (uint32_t i = 0; i < UNITS; i++)
                UNROLL
        for (uint32_t p = 0; p < N; p++)
                ret_value[i][p] = packet_payload(packet[i][p]);
        return all;
}

/* The sum of what all have pushed to the own output, or (two shots) on to all. The caller says quick_taken(0). */
template <uint32_t N, uint32_t MODE, bool INLINE, uint32_t UNITS>
DEVICE bool quick_reduce(const struct quick *q, uint32_t part, uint32_t spins) {
        constexpr uint32_t units = UNITS ? quick_batch(UNITS, N) : 1;
        const uint32_t mine = quick_whole(MODE) ? 0 : q->me * q->stride, at = part * q->part_bytes + 8 * q->thread;
        struct quick_way<N> from, to;

        if (MODE == QUICK_TWO_SHOT && !quick_room<N>(q, 1))
                return false;
        quick_from<N>(q, 0, &from);
        if constexpr (MODE == QUICK_TWO_SHOT)
                quick_to<N>(q, 1, &to);
        ROLLED
        for (uint32_t k = 0; UNITS ? k < UNITS : k < QUICK_UNITS && k * QUICK_UNIT_STEP < q->part_bytes; k += units) {
                const uint32_t x = at + k * QUICK_UNIT_STEP;
                const bool live = UNITS || (quick_mine(q, k) && x < q->stride && mine + x < q->total);
                uint64_t value[units][N];

                if (!quick_gather<N, units, UNITS != 0>(&from, k, live ? ~0u : 0, spins, value))
                        return false;
                UNROLL
                for (uint32_t i = 0; i < units; i++) {
                        const uint64_t sum = quick_sum<N>(q->type, value[i]);

                        if (!live)
                                continue;
                        if constexpr (MODE == QUICK_TWO_SHOT) {
                                UNROLL
                                for (uint32_t p = 0; p < N; p++)
                                        packet_store((struct quad *)to.at[p] + (k + i) * WARP_THREADS, sum, to.flag[p]);
                        } else {
                                quick_deliver<INLINE>(q, x + i * QUICK_UNIT_STEP, sum);
                        }
                }
        }
        if constexpr (MODE == QUICK_TWO_SHOT)
                quick_pushed<N>(q, 1);
        return true;
}

/* The region that quick_copy() takes from. */
DEVICE constexpr uint32_t quick_last(uint32_t mode) {
        return mode == QUICK_TWO_SHOT ? 1 : 0;
}

/* What the ranks pushed to its place in the own output. The caller says quick_taken(quick_last). */
template <uint32_t N, uint32_t MODE, bool INLINE, uint32_t UNITS>
DEVICE bool quick_copy(const struct quick *q, uint32_t part, uint32_t spins) {
        constexpr uint32_t region = quick_last(MODE), units = UNITS ? quick_batch(UNITS, N) : 1;
        const uint32_t at = part * q->part_bytes + 8 * q->thread;
        struct quick_way<N> from;

        quick_from<N>(q, region, &from);
        ROLLED
        for (uint32_t k = 0; UNITS ? k < UNITS : k < QUICK_UNITS && k * QUICK_UNIT_STEP < q->part_bytes; k += units) {
                const uint32_t x = at + k * QUICK_UNIT_STEP;
                uint64_t value[units][N];
                uint32_t live = 0;

                if constexpr (!UNITS) {
                        UNROLL
                        for (uint32_t p = 0; p < N; p++)
                                live |= (uint32_t)quick_has(q, k, p, x) << p;
                }
                if (!quick_gather<N, units, UNITS != 0>(&from, k, live, spins, value))
                        return false;
                UNROLL
                for (uint32_t i = 0; i < units; i++)
                        UNROLL
                for (uint32_t p = 0; p < N; p++)
                        if (UNITS || (live >> p & 1))
                                quick_deliver<INLINE>(q, p * q->stride + x + i * QUICK_UNIT_STEP, value[i][p]);
        }
        return true;
}

/* Have all threads all of their units of this part, of all pieces? */
template <uint32_t N, uint32_t MODE> DEVICE bool quick_full(const struct quick *q, uint32_t part) {
        const uint32_t end = (part + 1) * q->part_bytes;

        return end <= q->stride && (quick_whole(MODE) || (N - 1) * q->stride + end <= q->total);
}

/* ---- which way --------------------------------------------------------------------------------------------------- */
DEVICE bool quick_phase(const struct plan_phase *phase, uint32_t kind, uint32_t peers, uint32_t in_range,
                        uint32_t out_range) {
        return phase->kind == kind && phase->who == PLAN_WHO_ALL && phase->peers == peers &&
               phase->in_range == in_range && phase->out_range == out_range && !phase->after_whole;
}

/* Is it one of the plans that are written down here? */
DEVICE uint32_t quick_plan(const struct plan *plan) {
        const struct plan_phase *f = plan->phases;

        if (plan->n_phases < 2 || plan->n_phases > 3 || f[0].region_out != 0 || f[1].region_in != 0)
                return QUICK_NONE;
        if (plan->n_phases == 2 && quick_phase(f, PLAN_PUSH, PLAN_PEERS_OTHERS, PLAN_RANGE_WHOLE, PLAN_RANGE_NONE) &&
            quick_phase(f + 1, PLAN_REDUCE, PLAN_PEERS_OTHERS, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE) && !f[1].forward)
                return QUICK_ONE_SHOT;
        if (plan->n_phases == 2 &&
            quick_phase(f, PLAN_PUSH, PLAN_PEERS_OTHERS, PLAN_RANGE_BLOCK_PEER, PLAN_RANGE_NONE) &&
            quick_phase(f + 1, PLAN_REDUCE, PLAN_PEERS_OTHERS, PLAN_RANGE_BLOCK_ME, PLAN_RANGE_WHOLE) && !f[1].forward)
                return QUICK_REDUCE_SCATTER;
        if (plan->n_phases != 3)
                return QUICK_NONE;
        if (quick_phase(f, PLAN_PUSH, PLAN_PEERS_OTHERS, PLAN_RANGE_SHARD_PEER, PLAN_RANGE_NONE) &&
            quick_phase(f + 1, PLAN_REDUCE, PLAN_PEERS_OTHERS, PLAN_RANGE_SHARD_ME, PLAN_RANGE_SHARD_ME) &&
            f[1].forward && f[1].region_out == 1 && f[2].region_in == 1 &&
            quick_phase(f + 2, PLAN_COPY, PLAN_PEERS_OTHERS, PLAN_RANGE_NONE, PLAN_RANGE_SHARD_PEER))
                return QUICK_TWO_SHOT;
        if (f[2].region_in != 0 ||
            !quick_phase(f + 2, PLAN_COPY, PLAN_PEERS_OTHERS, PLAN_RANGE_NONE, PLAN_RANGE_BLOCK_PEER))
                return QUICK_NONE;
        if (quick_phase(f, PLAN_PUSH, PLAN_PEERS_OTHERS, PLAN_RANGE_WHOLE, PLAN_RANGE_NONE) &&
            quick_phase(f + 1, PLAN_COPY, PLAN_PEERS_SELF, PLAN_RANGE_WHOLE, PLAN_RANGE_BLOCK_ME))
                return QUICK_ALL_GATHER;
        if (quick_phase(f, PLAN_PUSH, PLAN_PEERS_OTHERS, PLAN_RANGE_BLOCK_PEER, PLAN_RANGE_NONE) &&
            quick_phase(f + 1, PLAN_COPY, PLAN_PEERS_SELF, PLAN_RANGE_BLOCK_ME, PLAN_RANGE_BLOCK_ME))
                return QUICK_ALL_TO_ALL;
        return QUICK_NONE;
}
