/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What a block of an exchange kernel does with large pieces. Also compiled for the host, where warps have one thread.
 *
 * As exchange_run.h, but for how data travels: not in packets, which are twice as many bytes, but as it is, in units of
 * 16 bytes, and behind it, when it has arrived, one flag. So it is for what is large enough that a fence and a trip
 * more are less than half of the time on the links. The unit that exchanges is the block: blocks of the same number of
 * each rank have the same tiles, and a flag for each other rank. When all threads of a block have sent their part they
 * meet, and one warp fences for all of them and tells the other ranks; another one waits for what those tell, and the
 * others wait until they meet again. (When each warp had a fence and a flag of its own, fences took 5 ns of the whole
 * GPU each, so 2,048 warps 10 us a step, whatever they had sent.)
 *
 * Steps are numbered as there, apart from those of packets; the flag is the number. Every block takes part in each
 * step, with a flag alone if it has nothing to send. In step i a block first sends its part of tile i; then it waits
 * for step i - 1 of the others, adds up tile i - 1, which has come with it, and sends the sums; stores those of tile i
 * - 2, which have come, too; and tells all that it has sent. So there is one fence and one wait for each tile, and one
 * of each more for the last sums. What has been sent first has arrived by the time of the fence. Where nothing comes
 * back tile i - 1 is stored, or added up, and that is all.
 *
 * Why nobody overwrites what has not been read. Who sends tile i has heard of step i - 2, which the other rank told
 * after it had taken tile i - 3: three places take turns. Who sends sums in step i has heard of step i - 1, which was
 * told after those of step i - 2 had been taken: two places do. That holds for the first steps of a call, too, since
 * all of the call before it has been taken by who tells one of this. A rank that waits for step m may find that of m +
 * 1, and no more: for that the other one has to hear of its m + 1.
 *
 * Threads read back their own piece where they need it once more: it is in the cache.
 *
 * Long chunks. A communicator that has few blocks (max_blocks, so that what is computed beside has the other
 * processors) has places for many, so each block's tiles are as much longer, up to 256 KiB for each other rank: with a
 * step for 32 KiB four blocks spend half of their time on fences. What is left is what a processor can move, some 43
 * bytes a clock of loads and stores together, whatever moves them (docs/performance.md, 74, 76). So two ranks, too,
 * send back what they have added up, half each, where the chunks are long: four loads and four stores for two units of
 * each rank, where it is six and four if both add up everything. Where places lie depends on the communicator's number
 * of blocks alone: if it was the call's, whoever begins could write to what somebody still reads of the call before.
 */
#include "client/hip/exchange_chunk.h"
#include "client/hip/exchange_line.h"

/* ---- a tile ------------------------------------------------------------------------------------------------------ */
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
                chunk_scatter_units<N, KIND, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, 0, before);
                return;
        }
        ROLLED
        for (; u < chunk_units(a, at); u++)
                chunk_scatter_units<N, KIND, 1, LONG, CHUNK_PART>(a, block, thread, at, u, before);
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
                chunk_pass_units<N, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, 0, number);
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
                chunk_gather_units<N, KIND, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, 0, number);
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
                chunk_keep_units<N, AT_ONCE, CHUNK_WHOLE>(a, r, at, 0);
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

/* What is to be done when the others have told the step of that number, which is the one before `step`. */
template <uint32_t N, uint32_t KIND, bool LONG>
DEVICE void chunk_heard(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t step,
                        uint32_t number) {
        const bool back = chunk_goes_back<N, LONG>(a);
        const bool works = a->root == EXCHANGE_NO_ROOT || (a->root == a->rank) != back;

        if (step <= a->tiles && works) {
                if constexpr (KIND != EXCHANGE_COPY)
                        chunk_reduce<N, KIND, LONG>(a, block, thread, chunk_at(a, block, thread, step - 1), number);
                else if (back)
                        chunk_pass<N, LONG>(a, block, thread, chunk_at(a, block, thread, step - 1), number);
        }
        if (back ? step > 1 : KIND == EXCHANGE_COPY)
                chunk_gather<N, KIND, LONG>(a, block, thread, chunk_at(a, block, thread, step - 1 - back), number);
}

/* All steps of this thread, with its block; as exchange_run. */
template <uint32_t N, uint32_t KIND, bool LONG>
DEVICE bool chunk_run(const struct exchange_arguments *a, uint32_t block, uint32_t thread, bool taken_up,
                      struct exchange_shared *shared) {
        struct exchange_progress p = exchange_resume(a, block, thread, taken_up);
        uint32_t calls = word_load(&exchange_header_of(a, a->rank)->calls), call = 0;
        bool first = true;

        if (p.tile == EXCHANGE_THROUGH)
                return true;
        ROLLED
        for (uint32_t step = p.tile;; step++) {
                enum exchange_heard heard = EXCHANGE_CAME;

                VALUE_FORGET(thread); /* or all places of all ranks wait in registers */
                if (step < a->tiles)
                        chunk_scatter<N, KIND, LONG>(a, block, thread, chunk_at(a, block, thread, step), p.number);
                if (first) {
                        CELL_FORGET(calls);
                        if (!taken_up)
                                exchange_begin(a, block, thread, calls, shared);
                        call = block == 0 ? exchange_call(calls) : 0;
                        first = false;
                }
                if (step) {
                        heard = chunk_wait<N>(a, block, thread, p.number, call, shared);
                        if (heard == EXCHANGE_LATE) {
                                exchange_write_down(a, block, thread, step, p.number);
                                return false;
                        }
                        call = 0;
                }
                if (heard == EXCHANGE_CAME && step)
                        chunk_heard<N, KIND, LONG>(a, block, thread, step, p.number);
                if (heard != EXCHANGE_CAME || step == chunk_steps(a)) {
                        if (thread == 0)
                                shared->number = p.number;
                        return true;
                }
                p.number = exchange_next(p.number);
                chunk_tell<N>(a, block, thread, p.number, shared);
                if (KIND == EXCHANGE_COPY && step < a->tiles) /* while it is on its way */
                        chunk_keep<N, LONG>(a, chunk_at(a, block, thread, step));
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

/* D where it goes otherwise than in packets. */
#define EXCHANGE_IN_CHUNKS     0u
#define EXCHANGE_IN_LINES      UINT32_MAX
#define EXCHANGE_IN_LONG       (UINT32_MAX - 1) /* chunks of few blocks */
#define EXCHANGE_IN_PACKETS(D) ((D) != EXCHANGE_IN_CHUNKS && (D) != EXCHANGE_IN_LINES && (D) != EXCHANGE_IN_LONG)

/* Has something of the request failed of which this call is a part? Others would take what it has for a part of the
 * result. Of all threads of a block. */
DEVICE bool exchange_is_shut(const struct exchange_arguments *a, uint32_t thread, struct exchange_shared *shared) {
        return exchange_any(shared, thread == 0 && word_load(&exchange_header_of(a, a->rank)->failed));
}

/* All of a call that a block does: its own part, and parts that others have left (exchange_leave.h). D: packets that a
 * thread may have under way, or one of the above. */
template <uint32_t N, uint32_t KIND, uint32_t D>
DEVICE void exchange_all(const struct exchange_arguments *a, uint32_t block, uint32_t thread,
                         struct exchange_shared *shared) {
        bool through, taken_up = false;

        if (a->gated && exchange_is_shut(a, thread, shared))
                return;
        *exchange_is_late(shared, thread) = 0;
        /* All that was done on this stream before, for all that comes behind the barrier on others; packets are not
         * fenced otherwise. One thread's are enough: all wait for its packet. */
        if constexpr (KIND == EXCHANGE_COPY && D == 1)
                if (a->operation == RING_OP_BARRIER && thread == 0)
                        fence_release_system();
        if constexpr (EXCHANGE_IN_PACKETS(D)) { /* code of its own for the first part, which
                                                                              waits for nothing that taking up needs */
                through = exchange_run<N, KIND, D>(a, block, thread, false, shared);
                block = exchange_next_part(a, block, thread, through, shared);
        }
        ROLLED
        while (block != EXCHANGE_NO_BLOCK) {
                if constexpr (D == EXCHANGE_IN_LINES)
                        through = line_run<N, KIND>(a, block, thread, taken_up, shared);
                else if constexpr (EXCHANGE_IN_PACKETS(D))
                        through = exchange_run<N, KIND, D>(a, block, thread, true, shared);
                else
                        through = chunk_run<N, KIND, D == EXCHANGE_IN_LONG>(a, block, thread, taken_up, shared);
                block = exchange_next_part(a, block, thread, through, shared);
                taken_up = true;
        }
        if constexpr (KIND == EXCHANGE_COPY && D == 1)
                if (a->operation == RING_OP_BARRIER && thread == 0)
                        fence_acquire_system();
}
