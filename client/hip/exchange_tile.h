/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What a thread of an exchange kernel does with its units of a tile: sends them, adds up what has come, passes it on,
 * stores it, keeps its own. exchange_bulk.h says in which step. Also compiled for the host, where warps have one
 * thread.
 *
 * Where all of a thread's units are whole they are taken together, as many as registers allow; of a long chunk in
 * groups; and the rest, or what does not lie at a multiple of 16 bytes, one by one.
 */
#include "client/hip/exchange_chunk.h"

DEVICE uint32_t chunk_other(const struct exchange_arguments *a, uint32_t n_ranks, uint32_t i) {
        return a->rank + i < n_ranks ? a->rank + i : a->rank + i - n_ranks;
}

/* A thread asks for all that goes to other ranks, or comes of them, before it stores any of it: what is asked for
 * behind a store waits for what that waits for. But on NVIDIA's GPUs it goes piece by piece, as it was measured with
 * two and four ranks, to which it makes no difference; with seven and more all pieces are more than there are registers
 * for. */

/* AMD: waits for all of it, here. Where a store has a condition its compiler cannot count what is under way, so that it
 * would wait before the next one until that store has arrived, too. */
template <uint32_t R> DEVICE void chunk_await([[maybe_unused]] const struct quad (&x)[R][1]) {
#if TARGET_AMD
        static_assert(R <= EXCHANGE_RANKS - 1 && EXCHANGE_RANKS == 8, "all of them");
        asm volatile("" ::"v"(x[0][0].x), "v"(x[1 % R][0].x), "v"(x[2 % R][0].x), "v"(x[3 % R][0].x),
                     "v"(x[4 % R][0].x), "v"(x[5 % R][0].x), "v"(x[6 % R][0].x));
#endif
}

/* This rank's part of a tile. before: the number of the last step. */
#if TARGET_NVIDIA
template <uint32_t N, uint32_t KIND, uint32_t U, bool LONG, enum chunk_form FORM>
DEVICE void chunk_scatter_units(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                                uint32_t first, uint32_t before) {
        struct quad x[U];
        uint32_t number;

        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t to = chunk_other(a, N, i);

                if (i == 1 || a->in_step)
                        chunk_load<N, KIND, U, FORM>(a, to, at, first, x);
                if (i == 1 && !a->n_ranks) /* never; but what is behind a branch stays behind the loads */
                        return;
                VALUE_FORGET(before);
                number = exchange_next(before);
                if (chunk_gets<N, KIND>(a, to))
                        chunk_send<N, U, LONG, FORM>(a, to, block, thread, first, CHUNK_TILE, number, x);
        }
}
#else
template <uint32_t N, uint32_t KIND, uint32_t U, bool LONG, enum chunk_form FORM>
DEVICE void chunk_scatter_units(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                                uint32_t first, uint32_t before) {
        struct quad x[N - 1][U];
        uint32_t number;

        UNROLL
        for (uint32_t i = 1; i < N; i++) /* the same for all where there is no in_step: then it is in the cache */
                chunk_load<N, KIND, U, FORM>(a, chunk_other(a, N, i), at, first, x[i - 1]);
        if (!a->n_ranks) /* never; but what is behind a branch stays behind the loads */
                return;
        if constexpr (N > 2 && U == 1)
                chunk_await(x);
        VALUE_FORGET(before);
        number = exchange_next(before);
        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t to = chunk_other(a, N, i);

                if (chunk_gets<N, KIND>(a, to))
                        chunk_send<N, U, LONG, FORM>(a, to, block, thread, first, CHUNK_TILE, number, x[i - 1]);
        }
}
#endif

template <uint32_t N, uint32_t KIND, bool LONG>
DEVICE void chunk_scatter(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                          uint32_t before) {
        constexpr uint32_t AT_ONCE = CHUNK_MOVES(N, LONG);
        uint32_t u = 0;

        if (KIND == EXCHANGE_COPY && a->root != EXCHANGE_NO_ROOT && a->root != a->rank)
                return; /* nothing to send */
        if constexpr (LONG) {
                const uint32_t whole = chunk_whole<N>(a, at);

                ROLLED
                for (; u + AT_ONCE <= whole; u += AT_ONCE)
                        chunk_scatter_units<N, KIND, AT_ONCE, LONG, CHUNK_ALL>(a, block, thread, at, u, before);
                if (u < whole && whole == a->units) {
                        chunk_scatter_units<N, KIND, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, u, before);
                        return;
                }
        } else if (chunk_is_whole<N>(a, at)) {
                ROLLED
                for (; u < chunk_end<N, AT_ONCE>(a); u += AT_ONCE)
                        chunk_scatter_units<N, KIND, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, u, before);
                return;
        }
        ROLLED
        for (; u < chunk_units(a, at); u++)
                chunk_scatter_units<N, KIND, 1, LONG, CHUNK_PART>(a, block, thread, at, u, before);
}

/* The same where nothing is in the way, but its compiler would fetch and add up unit by unit, to save registers. */
template <uint32_t N, uint32_t U> DEVICE void chunk_await_all([[maybe_unused]] struct quad (&x)[N][U]) {
#if TARGET_AMD
        typedef uint32_t words __attribute__((ext_vector_type(4)));
        constexpr uint32_t ALL = N * U;
        words v[ALL];

        static_assert(ALL <= 8, "all of them");
        UNROLL
        for (uint32_t i = 0; i < ALL; i++)
                v[i] = words{x[i / U][i % U].x, x[i / U][i % U].y, x[i / U][i % U].z, x[i / U][i % U].w};
        asm volatile(""
                     : "+v"(v[0]), "+v"(v[1 % ALL]), "+v"(v[2 % ALL]), "+v"(v[3 % ALL]), "+v"(v[4 % ALL]),
                       "+v"(v[5 % ALL]), "+v"(v[6 % ALL]), "+v"(v[7 % ALL]));
        UNROLL
        for (uint32_t i = 0; i < ALL; i++)
                x[i / U][i % U] = {v[i].x, v[i].y, v[i].z, v[i].w};
#endif
}

/* Of each rank what it has for this one's piece. */
template <uint32_t N, uint32_t KIND, uint32_t U, bool LONG, enum chunk_form FORM>
DEVICE void chunk_collect(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                          uint32_t first, uint32_t number, struct quad (&x)[N][U]) {
        if constexpr (FORM != CHUNK_PART && !TARGET_NVIDIA) {
                /* One way for all ranks, the own one too: where there are two, AMD's compiler waits for what it has
                 * asked for on either before it asks for the next rank's. */
                const char *own = a->in + a->in_step * chunk_piece<N>(a, a->rank) + at;

                EXCHANGE_STEP();
                UNROLL
                for (uint32_t r = 0; r < N; r++) {
                        const void *place = chunk_place<N, LONG>(a, a->rank, CHUNK_TILE, number, block, r, thread);
                        const char *from = r == a->rank ? own : (const char *)place;

                        UNROLL
                        for (uint32_t u = 0; u < U; u++) {
                                /* see chunk_load */
                                const uint32_t unit = FORM == CHUNK_ALL || first + u < a->units ? first + u : 0;

                                x[r][u] = bulk_load((const struct quad *)(const void *)(from + unit * CHUNK_STEP));
                        }
                }
                if constexpr (FORM == CHUNK_ALL && U > 1)
                        chunk_await_all(x);
                UNROLL
                for (uint32_t r = 0; r < N; r++)
                        if (r == a->rank)
                                unit_scale<KIND>(a, x[r]);
        } else {
                UNROLL
                for (uint32_t r = 0; r < N; r++) {
                        if (r == a->rank)
                                chunk_load<N, KIND, U, FORM>(a, r, at, first, x[r]);
                        else
                                chunk_take<N, U, LONG, FORM>(a, r, block, thread, first, CHUNK_TILE, number, x[r]);
                }
        }
}

/* What all have sent in the step of that number, added up in rank order; to the own piece of the output, and in the
 * next step to all others, or to the root alone. */
template <uint32_t N, uint32_t KIND, uint32_t U, bool LONG, enum chunk_form FORM>
DEVICE void chunk_reduce_units(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                               uint32_t first, uint32_t number) {
        struct quad x[N][U], sum[U];

        chunk_collect<N, KIND, U, LONG, FORM>(a, block, thread, at, first, number, x);
        unit_sum<N, KIND>(a, x, sum);
        if (!chunk_is_shared_out<N>(a))
                chunk_store<N, U, FORM>(a, a->rank, at, first, sum);
        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t to = chunk_other(a, N, i);

                if (chunk_goes_back<N, LONG>(a) && (a->root == EXCHANGE_NO_ROOT || a->root == to))
                        chunk_send<N, U, LONG, FORM>(a, to, block, thread, first, CHUNK_BACK, exchange_next(number),
                                                     sum);
        }
}

template <uint32_t N, uint32_t KIND, bool LONG>
DEVICE void chunk_reduce(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                         uint32_t number) {
        constexpr uint32_t AT_ONCE = CHUNK_SUMS(N, LONG);
        uint32_t u = 0;

        if constexpr (LONG) {
                const uint32_t whole = chunk_whole<N>(a, at);

                ROLLED
                for (; u + AT_ONCE <= whole; u += AT_ONCE)
                        chunk_reduce_units<N, KIND, AT_ONCE, LONG, CHUNK_ALL>(a, block, thread, at, u, number);
                if (u < whole && whole == a->units) {
                        chunk_reduce_units<N, KIND, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, u, number);
                        return;
                }
        } else if (chunk_is_whole<N>(a, at)) {
                ROLLED
                for (; u < a->units; u += AT_ONCE)
                        chunk_reduce_units<N, KIND, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, u, number);
                return;
        }
        ROLLED
        for (; u < chunk_units(a, at); u++)
                chunk_reduce_units<N, KIND, 1, LONG, CHUNK_PART>(a, block, thread, at, u, number);
}

/* What the root has sent in the step of that number: to the own piece of the output, and in the next step to all others
 * but the root. */
template <uint32_t N, uint32_t U, bool LONG, enum chunk_form FORM>
DEVICE void chunk_pass_units(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                             uint32_t first, uint32_t number) {
        struct quad x[U];

        chunk_take<N, U, LONG, FORM>(a, a->root, block, thread, first, CHUNK_TILE, number, x);
        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t to = chunk_other(a, N, i);

                if (to != a->root)
                        chunk_send<N, U, LONG, FORM>(a, to, block, thread, first, CHUNK_BACK, exchange_next(number), x);
        }
        chunk_store<N, U, FORM>(a, a->rank, at, first, x);
}

template <uint32_t N, bool LONG>
DEVICE void chunk_pass(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                       uint32_t number) {
        constexpr uint32_t AT_ONCE = CHUNK_MOVES(N, LONG);
        uint32_t u = 0;

        if constexpr (LONG) {
                const uint32_t whole = chunk_whole<N>(a, at);

                ROLLED
                for (; u + AT_ONCE <= whole; u += AT_ONCE)
                        chunk_pass_units<N, AT_ONCE, LONG, CHUNK_ALL>(a, block, thread, at, u, number);
                if (u < whole && whole == a->units) {
                        chunk_pass_units<N, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, u, number);
                        return;
                }
        } else if (chunk_is_whole<N>(a, at)) {
                ROLLED
                for (; u < chunk_end<N, AT_ONCE>(a); u += AT_ONCE)
                        chunk_pass_units<N, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, u, number);
                return;
        }
        ROLLED
        for (; u < chunk_units(a, at); u++)
                chunk_pass_units<N, 1, LONG, CHUNK_PART>(a, block, thread, at, u, number);
}

/* What the others have sent, to its places in the output. */
#if TARGET_NVIDIA
template <uint32_t N, uint32_t KIND, uint32_t U, bool LONG, enum chunk_form FORM>
DEVICE void chunk_gather_units(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                               uint32_t first, uint32_t number) {
        const enum chunk_stage stage = chunk_goes_back<N, LONG>(a) ? CHUNK_BACK : CHUNK_TILE;

        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t r = chunk_other(a, N, i);
                struct quad x[U];

                if (!chunk_gives<N, KIND>(a, r))
                        continue;
                chunk_take<N, U, LONG, FORM>(a, r, block, thread, first, stage, number, x);
                chunk_store<N, U, FORM>(a, r, at, first, x);
        }
}
#else
template <uint32_t N, uint32_t KIND, uint32_t U, bool LONG, enum chunk_form FORM>
DEVICE void chunk_gather_units(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                               uint32_t first, uint32_t number) {
        const enum chunk_stage stage = chunk_goes_back<N, LONG>(a) ? CHUNK_BACK : CHUNK_TILE;
        struct quad x[N - 1][U];

        UNROLL
        for (uint32_t i = 1; i < N; i++)
                chunk_take<N, U, LONG, FORM>(a, chunk_other(a, N, i), block, thread, first, stage, number, x[i - 1]);
        if constexpr (N > 2 && U == 1)
                chunk_await(x);
        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t r = chunk_other(a, N, i);

                if (chunk_gives<N, KIND>(a, r))
                        chunk_store<N, U, FORM>(a, r, at, first, x[i - 1]);
        }
}
#endif

template <uint32_t N, uint32_t KIND, bool LONG>
DEVICE void chunk_gather(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                         uint32_t number) {
        constexpr uint32_t AT_ONCE = CHUNK_MOVES(N, LONG);
        uint32_t u = 0;

        if constexpr (LONG) {
                const uint32_t whole = chunk_whole<N>(a, at);

                ROLLED
                for (; u + AT_ONCE <= whole; u += AT_ONCE)
                        chunk_gather_units<N, KIND, AT_ONCE, LONG, CHUNK_ALL>(a, block, thread, at, u, number);
                if (u < whole && whole == a->units) {
                        chunk_gather_units<N, KIND, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, u, number);
                        return;
                }
        } else if (chunk_is_whole<N>(a, at)) {
                ROLLED
                for (; u < chunk_end<N, AT_ONCE>(a); u += AT_ONCE)
                        chunk_gather_units<N, KIND, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, u, number);
                return;
        }
        ROLLED
        for (; u < chunk_units(a, at); u++)
                chunk_gather_units<N, KIND, 1, LONG, CHUNK_PART>(a, block, thread, at, u, number);
}

/* What this rank has for rank r, to where that would be in its own output. */
template <uint32_t N, uint32_t U, enum chunk_form FORM>
DEVICE void chunk_keep_units(const struct exchange_arguments *a, uint32_t r, uint64_t at, uint32_t first) {
        struct quad x[U];

        chunk_load<N, EXCHANGE_COPY, U, FORM>(a, r, at, first, x);
        chunk_store<N, U, FORM>(a, r, at, first, x);
}

template <uint32_t N, bool LONG>
DEVICE void chunk_keep_piece(const struct exchange_arguments *a, uint32_t r, uint64_t at) {
        constexpr uint32_t AT_ONCE = CHUNK_MOVES(N, LONG);
        uint32_t u = 0;

        if constexpr (LONG) {
                const uint32_t whole = chunk_whole<N>(a, at);

                ROLLED
                for (; u + AT_ONCE <= whole; u += AT_ONCE)
                        chunk_keep_units<N, AT_ONCE, CHUNK_ALL>(a, r, at, u);
                if (u < whole && whole == a->units) {
                        chunk_keep_units<N, AT_ONCE, CHUNK_WHOLE>(a, r, at, u);
                        return;
                }
        } else if (chunk_is_whole<N>(a, at)) {
                ROLLED
                for (; u < chunk_end<N, AT_ONCE>(a); u += AT_ONCE)
                        chunk_keep_units<N, AT_ONCE, CHUNK_WHOLE>(a, r, at, u);
                return;
        }
        ROLLED
        for (; u < chunk_units(a, at); u++)
                chunk_keep_units<N, 1, CHUNK_PART>(a, r, at, u);
}

/* The own piece of a copy, or, of a root that has none, all. */
template <uint32_t N, bool LONG> DEVICE void chunk_keep(const struct exchange_arguments *a, uint64_t at) {
        const uint32_t own = chunk_piece<N>(a, a->rank);

        if ((a->root != EXCHANGE_NO_ROOT && a->root != a->rank) ||
            a->out + a->out_step * own == a->in + a->in_step * own)
                return;
        if (!chunk_is_shared_out<N>(a)) {
                chunk_keep_piece<N, LONG>(a, a->rank, at);
                return;
        }
        ROLLED
        for (uint32_t i = 1; i < N; i++)
                chunk_keep_piece<N, LONG>(a, chunk_other(a, N, i), at);
}
