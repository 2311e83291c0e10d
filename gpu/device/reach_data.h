/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What ranks that reach (reach.h) move, and who moves what.
 *
 * A lane's parts are those that it would have through staging. Of what lies in pieces or blocks each rank has its own.
 * Of what moves as a whole from or to a root the ranks share the parts of each lane out among them, so that no rank's
 * links carry all of it: from the root's input each of the others takes its share once, and passes it on to those that
 * are not the root. If the root had a share, too, its links would carry that share once for each of the others, where
 * the rest passes them once: half as much again with four ranks. With two there is nobody to pass anything on to; what
 * crosses the link is the same whoever moves it, so both do. Towards a root it is the same the other way round.
 *
 * What a broadcast's root has in its own output it copies itself, if that lies elsewhere.
 *
 * (Copy engines, if all ranks have them move a broadcast, share it out among the same ranks in whole pieces: copies.h.)
 */
#include "gpu/device/quick_root.h"

enum reach_mode {
        REACH_NONE = QUICK_NONE,
        REACH_TWO_SHOT = QUICK_TWO_SHOT,
        REACH_REDUCE_SCATTER = QUICK_REDUCE_SCATTER,
        REACH_ALL_GATHER = QUICK_ALL_GATHER,
        REACH_ALL_TO_ALL = QUICK_ALL_TO_ALL,
        REACH_BROADCAST = QUICK_BROADCAST,
        REACH_REDUCE = QUICK_REDUCE,
};

#define REACH_UNIT 16u
/* Loads that a thread has under way. */
#if TARGET_HOST
#define REACH_LOADS 16u
#else
#define REACH_LOADS QUICK_PACKETS
#endif

DEVICE constexpr bool reach_adds(uint32_t mode) {
        return mode == REACH_TWO_SHOT || mode == REACH_REDUCE_SCATTER || mode == REACH_REDUCE;
}
/* Do others read the input of a rank, or write its output? */
DEVICE constexpr bool reach_reads(uint32_t mode, bool root) {
        return reach_adds(mode) || (mode == REACH_BROADCAST && root);
}
DEVICE constexpr bool reach_writes(uint32_t mode, bool root) {
        return mode == REACH_REDUCE ? root : mode == REACH_BROADCAST ? !root : mode != REACH_REDUCE_SCATTER;
}

/* ---- whose ------------------------------------------------------------------------------------------------------- */
/* A lane's units of sixteen bytes, in the order of its parts. */
struct reach_units {
        uint32_t n;     /* of the lane */
        uint32_t shift; /* of a part: 1 << shift */
        uint32_t end;   /* bytes of the piece */
        uint32_t first; /* byte where the lane's first part begins */
        uint32_t step;  /* bytes from part to part */
};

/* Of the lane's parts those with numbers share, share + shares, .. */
DEVICE void reach_units_init(const struct task *t, uint32_t me, uint32_t share, uint32_t shares,
                             struct reach_units *u) {
        const uint32_t parts = (t->stride + t->part_bytes - 1) / t->part_bytes, mine = me * t->stride;
        const uint32_t first = t->lane - 1 + t->spread * share, step = t->spread * shares;

        u->shift = first_bit(t->part_bytes / REACH_UNIT);
        u->n = first >= parts ? 0 : (parts - first + step - 1) / step << u->shift;
        u->end = t->stride;
        if (t->reach == REACH_TWO_SHOT)
                u->end = mine >= t->total ? 0 : t->total - mine < t->stride ? t->total - mine : t->stride;
        u->first = first * t->part_bytes;
        u->step = step * t->part_bytes;
}

/* What crosses links and is this rank's to move. */
DEVICE void reach_units_share(const struct task *t, uint32_t n_ranks, uint32_t me, struct reach_units *u) {
        const bool rooted = t->reach == REACH_BROADCAST || t->reach == REACH_REDUCE;
        const uint32_t shares = !rooted ? 1 : n_ranks > 2 ? n_ranks - 1 : n_ranks;
        const uint32_t share = rooted ? (me - t->root - 1) & (n_ranks - 1) : 0; /* the root's is the last */

        reach_units_init(t, me, share, shares, u);
        if (share >= shares)
                u->n = 0;
}

/* What a broadcast's root copies into its own output besides: all, or, of two ranks, what the other one moves. */
DEVICE void reach_units_own(const struct task *t, uint32_t n_ranks, uint32_t me, struct reach_units *u) {
        reach_units_init(t, me, 0, n_ranks > 2 ? 1 : n_ranks, u);
        if (t->reach != REACH_BROADCAST || me != t->root || t->in == t->out)
                u->n = 0;
}

DEVICE uint32_t reach_at(const struct reach_units *u, uint32_t i) {
        return u->first + (i >> u->shift) * u->step + (i & ((1u << u->shift) - 1)) * REACH_UNIT;
}

/* ---- data -------------------------------------------------------------------------------------------------------- */
template <uint32_t N, uint32_t TYPE> DEVICE struct quad reach_add(const struct quad (&from)[N]) {
        uint64_t x[N], low, high;

        UNROLL
        for (uint32_t p = 0; p < N; p++)
                x[p] = quad_low(from[p]);
        low = reduce_sum<N, TYPE>(x);
        UNROLL
        for (uint32_t p = 0; p < N; p++)
                x[p] = quad_high(from[p]);
        high = reduce_sum<N, TYPE>(x);
        return quad_of(low, high);
}

/*
 * COUNT units of each thread, WARP_THREADS apart, beginning with unit `base` in thread 0. Loads first, all of them:
 * what comes from another GPU takes 1 to 2 us, however much it is. So the last units of a lane, which are fewer
 * (!FULL), are loaded at once, too; in place of those that are not there the first one is, which is, and they are not
 * stored. TYPE: of what is added up; REACH_COPY: nothing is, and what comes from one place goes to all.
 */
#define REACH_COPY RMX_TYPE_COUNT

template <uint32_t LOADS, uint32_t STORES, uint32_t TYPE, uint32_t COUNT, bool FULL>
DEVICE void reach_do(const struct reach_units *u, const uint64_t (&in)[LOADS], const uint64_t (&out)[STORES],
                     uint32_t base, uint32_t until) {
        struct quad value[COUNT][LOADS];
        uint32_t at[COUNT], missing = 0;

        UNROLL
        for (uint32_t k = 0; k < COUNT; k++) {
                const uint32_t i = base + k * WARP_THREADS + warp_thread();

                at[k] = reach_at(u, i);
                if (!FULL && (i >= until || at[k] >= u->end)) {
                        missing |= 1u << k;
                        at[k] = reach_at(u, base);
                }
        }
        UNROLL
        for (uint32_t k = 0; k < COUNT; k++)
                UNROLL
        for (uint32_t p = 0; p < LOADS; p++)
                value[k][p] = quad_load((const struct quad *)(in[p] + at[k]));
        warp_sync(); /* or the compiler puts sums between the loads */
        UNROLL
        for (uint32_t k = 0; k < COUNT; k++) {
                if (!FULL && (missing >> k & 1))
                        continue;
                if constexpr (TYPE != REACH_COPY)
                        value[k][0] = reach_add<LOADS, TYPE>(value[k]);
                UNROLL
                for (uint32_t p = 0; p < STORES; p++)
                        *(struct quad *)(out[p] + at[k]) = value[k][TYPE == REACH_COPY && LOADS > 1 ? p : 0];
        }
}

/* Units [from, until). */
template <uint32_t LOADS, uint32_t STORES, uint32_t TYPE>
DEVICE void reach_all(const struct reach_units *u, const uint64_t (&in)[LOADS], const uint64_t (&out)[STORES],
                      uint32_t from, uint32_t until) {
        constexpr uint32_t batch = REACH_LOADS / LOADS;

        ROLLED
        for (uint32_t base = from; base < until && reach_at(u, base) < u->end; base += batch * WARP_THREADS) {
                const uint32_t last = base + batch * WARP_THREADS - 1;

                if (last < until && reach_at(u, last) + REACH_UNIT <= u->end)
                        reach_do<LOADS, STORES, TYPE, batch, true>(u, in, out, base, until);
                else
                        reach_do<LOADS, STORES, TYPE, batch, false>(u, in, out, base, until);
        }
}

/* Units [from, until) of the rank's share; no broadcast. */
template <uint32_t N, uint32_t MODE, uint32_t TYPE>
DEVICE_OUTLINE void reach_move(struct worker_shared *s, const struct task *t, uint32_t from, uint32_t until) {
        SHARED_POINTER(s);
        constexpr uint32_t loads = MODE == REACH_ALL_GATHER ? 1 : N;
        constexpr uint32_t stores = MODE == REACH_REDUCE_SCATTER || MODE == REACH_REDUCE ? 1 : N;
        const uint32_t me = s->rank.rank;
        const uint64_t mine = (uint64_t)me * t->stride;
        uint64_t in[loads], out[stores];
        struct reach_units u;

        reach_units_share(t, N, me, &u);
        UNROLL
        for (uint32_t p = 0; p < loads; p++)
                in[p] = MODE == REACH_ALL_GATHER   ? t->in
                        : MODE == REACH_ALL_TO_ALL ? t->in + (uint64_t)p * t->stride
                        : MODE == REACH_REDUCE     ? s->view.data[p]
                                                   : s->view.data[p] + mine;
        UNROLL
        for (uint32_t p = 0; p < stores; p++)
                out[p] = MODE == REACH_REDUCE_SCATTER ? t->out
                         : MODE == REACH_REDUCE       ? s->view.to[t->root]
                                                      : s->view.to[p] + mine;
        reach_all<loads, stores, TYPE>(&u, in, out, from, until);
}

/* Units [from, until) of a broadcast, of the rank's share or of what it has to copy for itself, to the outputs of
 * STORES ranks: first, first + 1, .., but not `without`. */
template <uint32_t N, bool OWN, uint32_t STORES>
DEVICE_OUTLINE void reach_spread(struct worker_shared *s, const struct task *t, uint32_t first, uint32_t without,
                                 uint32_t from, uint32_t until) {
        SHARED_POINTER(s);
        const uint64_t in[1] = {s->view.data[t->root]};
        uint64_t out[STORES];
        struct reach_units u;

        if (OWN)
                reach_units_own(t, N, s->rank.rank, &u);
        else
                reach_units_share(t, N, s->rank.rank, &u);
        UNROLL
        for (uint32_t p = 0; p < STORES; p++)
                out[p] = s->view.to[first + p + (first + p >= without)];
        reach_all<1, STORES, REACH_COPY>(&u, in, out, from, until);
}

/* Units [from, until) of a broadcast: those of the rank's share, `share` of them, and then those of its own copy. */
template <uint32_t N>
DEVICE_OUTLINE void reach_broadcast(struct worker_shared *s, const struct task *t, uint32_t share, uint32_t from,
                                    uint32_t until) {
        SHARED_POINTER(s);
        const uint32_t end = until < share ? until : share;
        bool both = false;

        if (from < end) {
                if constexpr (N == 2) /* what the root stores to the other it has in hand for itself */
                        both = t->root == s->rank.rank && t->in != t->out;
                if (both)
                        reach_spread<N, false, N == 2 ? 2 : N - 1>(s, t, 0, N, from, end);
                else
                        reach_spread<N, false, N - 1>(s, t, 0, t->root, from, end);
        }
        if (until > share)
                reach_spread<N, true, 1>(s, t, t->root, N, from > share ? from - share : 0, until - share);
}

template <uint32_t N, uint32_t MODE>
DEVICE void reach_move_sum(struct worker_shared *s, const struct task *t, uint32_t from, uint32_t until) {
        if (t->type == RMX_BFLOAT16)
                reach_move<N, MODE, RMX_BFLOAT16>(s, t, from, until);
        else if (t->type == RMX_FLOAT16)
                reach_move<N, MODE, RMX_FLOAT16>(s, t, from, until);
        else
                reach_move<N, MODE, RMX_FLOAT32>(s, t, from, until);
}

template <uint32_t N>
DEVICE void reach_move_mode(struct worker_shared *s, const struct task *t, uint32_t share, uint32_t from,
                            uint32_t until) {
        if (t->reach == REACH_TWO_SHOT)
                reach_move_sum<N, REACH_TWO_SHOT>(s, t, from, until);
        else if (t->reach == REACH_REDUCE_SCATTER)
                reach_move_sum<N, REACH_REDUCE_SCATTER>(s, t, from, until);
        else if (t->reach == REACH_REDUCE)
                reach_move_sum<N, REACH_REDUCE>(s, t, from, until);
        else if (t->reach == REACH_ALL_GATHER)
                reach_move<N, REACH_ALL_GATHER, REACH_COPY>(s, t, from, until);
        else if (t->reach == REACH_BROADCAST)
                reach_broadcast<N>(s, t, share, from, until);
        else
                reach_move<N, REACH_ALL_TO_ALL, REACH_COPY>(s, t, from, until);
}
