/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What a warp of an exchange kernel does with large pieces. Also compiled for the host, where warps have one thread.
 *
 * As exchange_run.h, but for how data travels: not in packets, which are twice as many bytes, but as it is, in units of
 * 16 bytes, and behind it, when it has arrived, one flag. So it is for what is large enough that a fence and a trip
 * more, some 3 us, are less than half of the time on the links. The unit that exchanges is the warp: those of the same
 * number in the same block of each rank have the same chunks (a warp's part of a tile), each with a flag of its own, so
 * while one waits for its fence the others of its processor send.
 *
 * Steps are numbered as there, apart from those of packets; the flag is the number. Every warp takes part in each step,
 * with a flag alone if it has nothing to send. But a warp sends what belongs to the next tile before it takes what has
 * come of this one, and tells it afterwards: then the fence, which waits until all that the warp has sent has arrived,
 * has less to wait for. So places take turns of four. A tile has the numbers m and, if it takes two steps, m + 1; the
 * next one is sent to the places of m + 2. Who does so has taken m - 1 from each other rank, which that one told after
 * it had taken m - 2, which was there. (For two ranks, whose tiles take one step, three turns will do.) That holds for
 * the first tiles of a call, too, since all of the call before it has been taken. A rank that waits for m may find m +
 * 1, and no more: for that the other one has to take its m + 1.
 *
 * Threads read back their own piece where they need it once more: it is in the cache.
 */
#include "client/hip/exchange_run.h"

static_assert(EXCHANGE_LANES * WARP_THREADS >= EXCHANGE_THREADS, "a flag for each warp");

/* Does a tile take two steps? Those of two ranks never do. */
template <uint32_t N> DEVICE bool chunk_goes_back(const struct exchange_arguments *a) {
        return N > 2 && a->back;
}

/* Byte offset, in each piece, of this thread's first unit of a tile; the next ones are CHUNK_STEP further. */
#define CHUNK_STEP (WARP_THREADS * 16u)

DEVICE uint64_t chunk_at(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t tile) {
        const uint64_t lane =
                (uint64_t)(tile * a->blocks + block) * (EXCHANGE_THREADS / WARP_THREADS) + thread / WARP_THREADS;

        return lane * a->units * CHUNK_STEP + thread % WARP_THREADS * 16u;
}

/* Of warp thread / WARP_THREADS, for what rank `from` writes in the area of rank `at`. */
template <uint32_t N>
DEVICE uint32_t *chunk_flag(const struct exchange_arguments *a, uint32_t at, uint32_t block, uint32_t from,
                            uint32_t thread) {
        return (uint32_t *)(void *)(a->head[at] + EXCHANGE_OFFSET_FLAGS) +
               ((size_t)block * EXCHANGE_LANES + thread / WARP_THREADS) * N + from;
}

template <uint32_t N>
DEVICE struct quad *chunk_place(const struct exchange_arguments *a, uint32_t at, uint32_t number, uint32_t block,
                                uint32_t from, uint32_t thread) {
        const size_t writer = from < at ? from : from - 1;
        const size_t turn = number % EXCHANGE_CHUNK_TURNS(N);
        const size_t chunk = (turn * EXCHANGE_CHUNK_BLOCKS(N) + block) * (N - 1) + writer;

        return (struct quad *)(void *)(a->area[at] + EXCHANGE_OFFSET_CHUNKS(N)) +
               (chunk * EXCHANGE_THREADS + thread / WARP_THREADS * WARP_THREADS) * EXCHANGE_UNITS(N) +
               thread % WARP_THREADS;
}

/* ---- the caller's memory ----------------------------------------------------------------------------------------- */
/* Does the thread have nothing but whole units of a tile, in each piece, where they can be taken as such? If it does it
 * takes all at once, without a call in between; else one after another. */
template <uint32_t N> DEVICE bool chunk_is_whole(const struct exchange_arguments *a, uint64_t at) {
        const uint64_t shortest = exchange_piece(a, N - 1);

        return a->aligned && at + (uint64_t)(a->units - 1) * CHUNK_STEP + 16 <= shortest;
}

/* What is the rank's own goes into a premultiplied sum as a multiple of it. */
template <uint32_t KIND, uint32_t U> DEVICE void chunk_scale(const struct exchange_arguments *a, struct quad (&x)[U]) {
        if constexpr (KIND == EXCHANGE_OTHER) {
                if (a->redop != RMX_PREMUL_SUM)
                        return;
                UNROLL
                for (uint32_t u = 0; u < U; u++) {
                        const uint64_t low = reduce_scale(a->type, a->scalar, (uint64_t)x[u].y << 32 | x[u].x);
                        const uint64_t high = reduce_scale(a->type, a->scalar, (uint64_t)x[u].w << 32 | x[u].z);

                        x[u] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
                }
        }
}

/* Units `first`, first + 1, .. of this thread, of the piece for rank r; 0 behind its end. */
template <uint32_t KIND, uint32_t U, bool WHOLE>
DEVICE void chunk_load(const struct exchange_arguments *a, uint32_t r, uint64_t at, uint32_t first,
                       struct quad (&x)[U]) {
        const uint64_t begin = at + first * CHUNK_STEP, bytes = exchange_piece(a, r);
        const char *whole = a->in + a->in_step * r + at, *piece = whole + first * CHUNK_STEP;

        static_assert(WHOLE || U == 1, "one after another");
        EXCHANGE_STEP();
        UNROLL
        for (uint32_t u = 0; u < U; u++) {
                /* What lies behind the last unit nobody asks for; where loads have conditions, AMD's compiler waits for
                 * each of them. */
                const uint32_t unit = first + u < a->units ? first + u : 0;

                x[u] = {0, 0, 0, 0};
                if (WHOLE)
                        x[u] = *(const struct quad *)(const void *)(whole + unit * CHUNK_STEP);
                else if (begin < bytes)
                        x[u] = unit_load_part(piece, bytes - begin, a->element_bytes);
        }
        chunk_scale<KIND, U>(a, x);
}

/* To a piece of the output, which has as many bytes as rank r's of the input. */
template <uint32_t U, bool WHOLE>
DEVICE void chunk_store(const struct exchange_arguments *a, char *piece, uint32_t r, uint64_t at, uint32_t first,
                        const struct quad (&x)[U]) {
        const uint64_t begin = at + first * CHUNK_STEP, bytes = exchange_piece(a, r);

        UNROLL
        for (uint32_t u = 0; u < U; u++) {
                if (WHOLE && first + u < a->units)
                        *(struct quad *)(void *)(piece + begin + u * CHUNK_STEP) = x[u];
                else if (!WHOLE && begin < bytes)
                        unit_store_part(piece + begin, bytes - begin, x[u], a->element_bytes);
        }
        EXCHANGE_STEP();
}

/* ---- from rank to rank ------------------------------------------------------------------------------------------- */
/* Units `first`, first + 1, ... */
template <uint32_t N, uint32_t U>
DEVICE void chunk_send(const struct exchange_arguments *a, uint32_t to, uint32_t block, uint32_t thread, uint32_t first,
                       uint32_t number, const struct quad (&x)[U]) {
        struct quad *place = chunk_place<N>(a, to, number, block, a->rank, thread) + first * WARP_THREADS;

        UNROLL
        for (uint32_t u = 0; u < U; u++)
                if (first + u < a->units)
                        bulk_store(place + u * WARP_THREADS, x[u]);
        EXCHANGE_STEP();
}

/* What the warp has sent is there: to every other rank. */
template <uint32_t N>
DEVICE void chunk_tell(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t number) {
        fence_release_system();
        warp_sync();
        for (uint32_t r = thread % WARP_THREADS; r < N; r += WARP_THREADS) {
                if (r != a->rank)
                        word_store(chunk_flag<N>(a, r, block, a->rank, thread), number);
                EXCHANGE_STEP();
        }
}

DEVICE bool chunk_is_there(uint32_t seen, uint32_t number) {
        return seen == number || seen == exchange_next(number);
}

/* Until every other rank has told the warp this number; the warp's threads look at one rank each. call: as in
 * exchange_take. */
template <uint32_t N>
DEVICE enum exchange_heard chunk_wait(const struct exchange_arguments *a, uint32_t block, uint32_t thread,
                                      uint32_t number, uint32_t call, struct exchange_shared *shared) {
        struct exchange_header *own = exchange_header_of(a, a->rank);

        for (uint32_t round = 1;; round++) {
                bool all = true, over = exchange_gives_up(a, block, thread, round);

                for (uint32_t r = thread % WARP_THREADS; r < N; r += WARP_THREADS)
                        all &= r == a->rank ||
                               chunk_is_there(word_load(chunk_flag<N>(a, a->rank, block, r, thread)), number);
                if (call) {
                        const uint64_t cell = cell_load(&own->signature[call & 1][thread]);
                        const bool there = (uint32_t)(cell >> 32) == call;

                        over |= there && exchange_is_other(a, cell, thread);
                        all &= there;
                }
                if (warp_any(over))
                        return EXCHANGE_NEVER;
                if (warp_all(all))
                        break;
                if (exchange_waits<N>(a, thread, round, shared))
                        return exchange_late(a);
#if TARGET_HOST
                poll_pause();
#endif
        }
        for (uint32_t r = thread % WARP_THREADS; r < N; r += WARP_THREADS)
                flag_acquire(chunk_flag<N>(a, a->rank, block, r, thread));
        warp_sync();
        return EXCHANGE_CAME;
}

/* What rank r has sent. */
template <uint32_t N, uint32_t U>
DEVICE void chunk_take(const struct exchange_arguments *a, uint32_t r, uint32_t block, uint32_t thread, uint32_t first,
                       uint32_t number, struct quad (&x)[U]) {
        const struct quad *place = chunk_place<N>(a, a->rank, number, block, r, thread) + first * WARP_THREADS;

        EXCHANGE_STEP();
        UNROLL
        for (uint32_t u = 0; u < U; u++)
                if (first + u < a->units)
                        x[u] = bulk_load(place + u * WARP_THREADS);
}

/* ---- a tile ------------------------------------------------------------------------------------------------------ */
DEVICE uint32_t chunk_other(const struct exchange_arguments *a, uint32_t n_ranks, uint32_t i) {
        return a->rank + i < n_ranks ? a->rank + i : a->rank + i - n_ranks;
}

/* A thread asks for all that goes to other ranks, or comes of them, before it stores any of it: what is asked for
 * behind a store waits for what that waits for. But on NVIDIA's GPUs it goes piece by piece, as it was measured with
 * two ranks, to which it makes no difference; with seven and more all pieces are more than there are registers for. */

/* AMD: waits for all of it, here. Where a store has a condition its compiler cannot count what is under way, so that it
 * would wait before the next one until that store has arrived, too. */
template <uint32_t R> DEVICE void chunk_await([[maybe_unused]] const struct quad (&x)[R][1]) {
#if TARGET_AMD
        static_assert(R <= EXCHANGE_RANKS - 1 && EXCHANGE_RANKS == 8, "all of them");
        asm volatile("" ::"v"(x[0][0].x), "v"(x[1 % R][0].x), "v"(x[2 % R][0].x), "v"(x[3 % R][0].x),
                     "v"(x[4 % R][0].x), "v"(x[5 % R][0].x), "v"(x[6 % R][0].x));
#endif
}

/* The first step's sending. */
#if TARGET_NVIDIA
template <uint32_t N, uint32_t KIND, uint32_t U, bool WHOLE>
DEVICE void chunk_scatter_units(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                                uint32_t first, uint32_t before, uint32_t steps) {
        struct quad x[U];
        uint32_t number;

        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t to = chunk_other(a, N, i);

                if (i == 1 || a->in_step)
                        chunk_load<KIND, U, WHOLE>(a, to, at, first, x);
                if (i == 1 && !a->n_ranks) /* never; but what is behind a branch stays behind the loads */
                        return;
                VALUE_FORGET(before);
                number = exchange_after(before, steps);
                if (KIND == EXCHANGE_COPY || a->root == EXCHANGE_NO_ROOT || a->root == to)
                        chunk_send<N, U>(a, to, block, thread, first, number, x);
        }
}
#else
template <uint32_t N, uint32_t KIND, uint32_t U, bool WHOLE>
DEVICE void chunk_scatter_units(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                                uint32_t first, uint32_t before, uint32_t steps) {
        struct quad x[N - 1][U];
        uint32_t number;

        UNROLL
        for (uint32_t i = 1; i < N; i++) /* the same for all where there is no in_step: then it is in the cache */
                chunk_load<KIND, U, WHOLE>(a, chunk_other(a, N, i), at, first, x[i - 1]);
        if (!a->n_ranks) /* never; but what is behind a branch stays behind the loads */
                return;
        if constexpr (N > 2 && U == 1)
                chunk_await(x);
        VALUE_FORGET(before);
        number = exchange_after(before, steps);
        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t to = chunk_other(a, N, i);

                if (KIND == EXCHANGE_COPY || a->root == EXCHANGE_NO_ROOT || a->root == to)
                        chunk_send<N, U>(a, to, block, thread, first, number, x[i - 1]);
        }
}
#endif

template <uint32_t N, uint32_t KIND>
DEVICE void chunk_scatter(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                          uint32_t before, uint32_t steps) {
        if (KIND == EXCHANGE_COPY && a->root != EXCHANGE_NO_ROOT && a->root != a->rank)
                return; /* nothing to send */
        if (chunk_is_whole<N>(a, at)) {
                chunk_scatter_units<N, KIND, EXCHANGE_UNITS(N), true>(a, block, thread, at, 0, before, steps);
                return;
        }
        ROLLED
        for (uint32_t u = 0; u < a->units; u++)
                chunk_scatter_units<N, KIND, 1, false>(a, block, thread, at, u, before, steps);
}

/* Of each rank what it has for this one's piece. */
template <uint32_t N, uint32_t KIND, uint32_t U, bool WHOLE>
DEVICE void chunk_collect(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                          uint32_t first, uint32_t number, struct quad (&x)[N][U]) {
        if constexpr (WHOLE && !TARGET_NVIDIA) {
                /* One way for all ranks, the own one too: where there are two, AMD's compiler waits for what it has
                 * asked for on either before it asks for the next rank's. */
                const char *own = a->in + a->in_step * a->rank + at;

                EXCHANGE_STEP();
                UNROLL
                for (uint32_t r = 0; r < N; r++) {
                        const void *place = chunk_place<N>(a, a->rank, number, block, r, thread);
                        const char *from = r == a->rank ? own : (const char *)place;

                        UNROLL
                        for (uint32_t u = 0; u < U; u++) {
                                const uint32_t unit = first + u < a->units ? first + u : 0; /* see chunk_load */

                                x[r][u] = bulk_load((const struct quad *)(const void *)(from + unit * CHUNK_STEP));
                        }
                }
                UNROLL
                for (uint32_t r = 0; r < N; r++)
                        if (r == a->rank)
                                chunk_scale<KIND, U>(a, x[r]);
        } else {
                UNROLL
                for (uint32_t r = 0; r < N; r++) {
                        if (r == a->rank)
                                chunk_load<KIND, U, WHOLE>(a, r, at, first, x[r]);
                        else
                                chunk_take<N, U>(a, r, block, thread, first, number, x[r]);
                }
        }
}

/* What all have sent, added up in rank order; to the own piece of the output, and in the next step to all others. */
template <uint32_t N, uint32_t KIND, uint32_t U, bool WHOLE>
DEVICE void chunk_reduce_units(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                               uint32_t first, uint32_t number) {
        struct quad x[N][U], sum[U];

        chunk_collect<N, KIND, U, WHOLE>(a, block, thread, at, first, number, x);
        UNROLL
        for (uint32_t u = 0; u < U; u++) {
                uint64_t y[N], low, high;

                UNROLL
                for (uint32_t r = 0; r < N; r++)
                        y[r] = (uint64_t)x[r][u].y << 32 | x[r][u].x;
                low = exchange_sum<N, KIND>(a, y);
                UNROLL
                for (uint32_t r = 0; r < N; r++)
                        y[r] = (uint64_t)x[r][u].w << 32 | x[r][u].z;
                high = exchange_sum<N, KIND>(a, y);
                sum[u] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
        }
        chunk_store<U, WHOLE>(a, a->out + a->out_step * a->rank, a->rank, at, first, sum);
        UNROLL
        for (uint32_t i = 1; i < N; i++)
                if (chunk_goes_back<N>(a))
                        chunk_send<N, U>(a, chunk_other(a, N, i), block, thread, first, exchange_next(number), sum);
}

template <uint32_t N, uint32_t KIND>
DEVICE void chunk_reduce(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                         uint32_t number) {
        constexpr uint32_t AT_ONCE = EXCHANGE_UNITS(N) < 2 ? 1 : 2; /* registers are few */

        if (chunk_is_whole<N>(a, at)) {
                ROLLED
                for (uint32_t u = 0; u < a->units; u += AT_ONCE)
                        chunk_reduce_units<N, KIND, AT_ONCE, true>(a, block, thread, at, u, number);
                return;
        }
        ROLLED
        for (uint32_t u = 0; u < a->units; u++)
                chunk_reduce_units<N, KIND, 1, false>(a, block, thread, at, u, number);
}

/* What the others have sent, to its places in the output. */
#if TARGET_NVIDIA
template <uint32_t N, uint32_t KIND, uint32_t U, bool WHOLE>
DEVICE void chunk_gather_units(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                               uint32_t first, uint32_t number) {
        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t r = chunk_other(a, N, i);
                struct quad x[U];

                if (KIND == EXCHANGE_COPY && a->root != EXCHANGE_NO_ROOT && a->root != r)
                        continue;
                chunk_take<N, U>(a, r, block, thread, first, number, x);
                chunk_store<U, WHOLE>(a, a->out + a->out_step * r, r, at, first, x);
        }
}
#else
template <uint32_t N, uint32_t KIND, uint32_t U, bool WHOLE>
DEVICE void chunk_gather_units(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                               uint32_t first, uint32_t number) {
        struct quad x[N - 1][U];

        UNROLL
        for (uint32_t i = 1; i < N; i++)
                chunk_take<N, U>(a, chunk_other(a, N, i), block, thread, first, number, x[i - 1]);
        if constexpr (N > 2 && U == 1)
                chunk_await(x);
        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t r = chunk_other(a, N, i);

                if (KIND != EXCHANGE_COPY || a->root == EXCHANGE_NO_ROOT || a->root == r)
                        chunk_store<U, WHOLE>(a, a->out + a->out_step * r, r, at, first, x[i - 1]);
        }
}
#endif

template <uint32_t N, uint32_t KIND>
DEVICE void chunk_gather(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                         uint32_t number) {
        if (chunk_is_whole<N>(a, at)) {
                chunk_gather_units<N, KIND, EXCHANGE_UNITS(N), true>(a, block, thread, at, 0, number);
                return;
        }
        ROLLED
        for (uint32_t u = 0; u < a->units; u++)
                chunk_gather_units<N, KIND, 1, false>(a, block, thread, at, u, number);
}

/* The own piece of a copy. */
template <uint32_t N> DEVICE void chunk_keep(const struct exchange_arguments *a, uint64_t at) {
        constexpr uint32_t U = EXCHANGE_UNITS(N);
        char *own = a->out + a->out_step * a->rank;
        struct quad x[U], part[1];

        if ((a->root != EXCHANGE_NO_ROOT && a->root != a->rank) || own == a->in + a->in_step * a->rank)
                return;
        if (chunk_is_whole<N>(a, at)) {
                chunk_load<EXCHANGE_COPY, U, true>(a, a->rank, at, 0, x);
                chunk_store<U, true>(a, own, a->rank, at, 0, x);
                return;
        }
        ROLLED
        for (uint32_t u = 0; u < a->units; u++) {
                chunk_load<EXCHANGE_COPY, 1, false>(a, a->rank, at, u, part);
                chunk_store<1, false>(a, own, a->rank, at, u, part);
        }
}

/* What is left of a tile when what the others have sent has come, or, *second, when that has been added up and sent on.
 * A second step has the next number. */
template <uint32_t N, uint32_t KIND>
DEVICE enum exchange_heard chunk_end(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                                     uint32_t number, bool *second, struct exchange_shared *shared) {
        if constexpr (KIND != EXCHANGE_COPY) {
                enum exchange_heard heard;

                if (a->root != EXCHANGE_NO_ROOT && a->root != a->rank)
                        return EXCHANGE_CAME;
                if (!*second)
                        chunk_reduce<N, KIND>(a, block, thread, at, number);
                if (!chunk_goes_back<N>(a))
                        return EXCHANGE_CAME;
                number = exchange_next(number);
                if (!*second)
                        chunk_tell<N>(a, block, thread, number);
                *second = true;
                heard = chunk_wait<N>(a, block, thread, number, 0, shared);
                if (heard != EXCHANGE_CAME)
                        return heard;
        }
        chunk_gather<N, KIND>(a, block, thread, at, number);
        return EXCHANGE_CAME;
}

/* All rounds of this thread, with its warp; as exchange_run. */
template <uint32_t N, uint32_t KIND>
DEVICE bool chunk_run(const struct exchange_arguments *a, uint32_t block, uint32_t thread, bool taken_up,
                      struct exchange_shared *shared) {
        struct exchange_progress p = exchange_resume(a, block, thread, taken_up);
        bool first = true, second = N > 2 && KIND != EXCHANGE_COPY && p.tile & EXCHANGE_SECOND;
        uint32_t calls = word_load(&exchange_header_of(a, a->rank)->calls), call = 0;

        if (p.tile == EXCHANGE_THROUGH)
                return true;
        ROLLED
        for (uint32_t tile = p.tile & ~EXCHANGE_SECOND;; tile++) { /* sends this one, takes the one before */
                VALUE_FORGET(thread);                              /* or all places of all ranks wait in registers */
                const uint64_t at = chunk_at(a, block, thread, tile);
                const uint32_t steps = 1 + (chunk_goes_back<N>(a) && tile);

                if (tile < a->tiles)
                        chunk_scatter<N, KIND>(a, block, thread, at, p.number, steps);
                if (first) {
                        CELL_FORGET(calls);
                        if (!taken_up)
                                exchange_begin(a, block, thread, calls, shared);
                        call = exchange_compares(a, block, thread) ? exchange_call(calls) : 0;
                        first = false;
                }
                if (tile) {
                        enum exchange_heard heard = EXCHANGE_CAME;

                        if (!second)
                                heard = chunk_wait<N>(a, block, thread, p.number, call, shared);
                        if (heard == EXCHANGE_CAME)
                                heard = chunk_end<N, KIND>(a, block, thread, chunk_at(a, block, thread, tile - 1),
                                                           p.number, &second, shared);
                        if (heard == EXCHANGE_LATE) {
                                exchange_write_down(a, block, thread, second ? tile | EXCHANGE_SECOND : tile, p.number);
                                return false;
                        }
                        if (heard != EXCHANGE_CAME) {
                                if (thread == 0)
                                        shared->number = p.number;
                                return true;
                        }
                        second = false;
                        call = 0;
                }
                if (tile == a->tiles) {
                        if (thread == 0)
                                shared->number = chunk_goes_back<N>(a) ? exchange_next(p.number) : p.number;
                        return true;
                }
                p.number = exchange_after(p.number, steps);
                chunk_tell<N>(a, block, thread, p.number);
                if (KIND == EXCHANGE_COPY) /* while it is on its way */
                        chunk_keep<N>(a, at);
        }
}

/* ---- a block ----------------------------------------------------------------------------------------------------- */
/* Of all threads of a block: which part comes after `part`; EXCHANGE_NO_BLOCK: the block may end. */
DEVICE uint32_t exchange_next_part(const struct exchange_arguments *a, uint32_t part, uint32_t thread, bool through,
                                   struct exchange_shared *shared) {
        bool left;

        if (a->number)
                fence_settle();
        if (!exchange_any(shared, *exchange_is_late(shared, thread))) { /* and all have stored their results */
                if (thread == 0) {
                        exchange_through(a, part, shared->number, shared->calls);
                        exchange_ended(a);
                }
                return EXCHANGE_NO_BLOCK;
        }
        left = exchange_any(shared, !through);
        if (left) {
                if (through)
                        exchange_write_down(a, part, thread, EXCHANGE_THROUGH, 0);
                fence_settle();
                exchange_meet(shared);
        }
        if (thread == 0) {
                shared->next = exchange_part(a, part, left, shared);
                if (shared->next == EXCHANGE_NO_BLOCK)
                        exchange_ended(a);
        }
        exchange_meet(shared);
        *exchange_is_late(shared, thread) = 1; /* all of the block */
        return shared->next;
}

/* All of a call that a block does: its own part, and parts that others have left (exchange_leave.h). D: packets that a
 * thread may have under way; 0: it goes in chunks. */
template <uint32_t N, uint32_t KIND, uint32_t D>
DEVICE void exchange_all(const struct exchange_arguments *a, uint32_t block, uint32_t thread,
                         struct exchange_shared *shared) {
        bool through, taken_up = false;

        *exchange_is_late(shared, thread) = 0;
        /* All that was done on this stream before, for all that comes behind the barrier on others; packets are not
         * fenced otherwise. One thread's are enough: all wait for its packet. */
        if constexpr (KIND == EXCHANGE_COPY && D == 1)
                if (a->operation == RING_OP_BARRIER && thread == 0)
                        fence_release_system();
        if constexpr (D) { /* code of its own for the first part, which waits for nothing that taking up needs */
                through = exchange_run<N, KIND, D>(a, block, thread, false, shared);
                block = exchange_next_part(a, block, thread, through, shared);
        }
        ROLLED
        while (block != EXCHANGE_NO_BLOCK) {
                if constexpr (D)
                        through = exchange_run<N, KIND, D>(a, block, thread, true, shared);
                else
                        through = chunk_run<N, KIND>(a, block, thread, taken_up, shared);
                block = exchange_next_part(a, block, thread, through, shared);
                taken_up = true;
        }
        if constexpr (KIND == EXCHANGE_COPY && D == 1)
                if (a->operation == RING_OP_BARRIER && thread == 0)
                        fence_acquire_system();
}
