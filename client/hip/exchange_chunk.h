/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Chunks: what a thread of an exchange kernel has of a tile, between the caller's memory, registers and places in
 * areas, and how its block tells the other ranks and waits for them. exchange_bulk.h says in which order, and why
 * nobody overwrites what has not been read. Also compiled for the host, where warps have one thread.
 */
#include "client/hip/exchange_unit.h"

/* Units that a thread has under way at once: of each rank where it only moves them, and where it adds them up.
 * Registers are few; blocks with long chunks have twice as many. */
#define CHUNK_LONG_OF_TWO (2 * EXCHANGE_UNITS_OF_TWO)
#if TARGET_NVIDIA
#define CHUNK_MOVES_LONG(n_ranks) ((n_ranks) <= 2 ? CHUNK_LONG_OF_TWO : (n_ranks) <= 6 ? 4u : 2u)
#else
#define CHUNK_MOVES_LONG(n_ranks) ((n_ranks) <= 2 ? CHUNK_LONG_OF_TWO : (n_ranks) <= 4 ? 4u : 2u)
#endif
/* Of three and four ranks, whose tiles have two units: 2 for both, in blocks that then take a whole processor. */
#ifndef CHUNK_UNITS_TOGETHER
#define CHUNK_UNITS_TOGETHER 1u
#endif
#define CHUNK_MOVES_SHORT(n_ranks)    ((n_ranks) <= 2 ? EXCHANGE_UNITS_OF_TWO : (n_ranks) <= 4 ? CHUNK_UNITS_TOGETHER : 1u)
#define CHUNK_MOVES(n_ranks, is_long) ((is_long) ? CHUNK_MOVES_LONG(n_ranks) : CHUNK_MOVES_SHORT(n_ranks))
#define CHUNK_SUMS_LONG(n_ranks)      ((n_ranks) <= 2 ? EXCHANGE_UNITS_OF_TWO : (n_ranks) <= 4 ? 2u : 1u)
#define CHUNK_SUMS_SHORT(n_ranks)     (CHUNK_MOVES_SHORT(n_ranks) < 2 ? 1u : 2u)
#define CHUNK_SUMS(n_ranks, is_long)  ((is_long) ? CHUNK_SUMS_LONG(n_ranks) : CHUNK_SUMS_SHORT(n_ranks))

/* Does a tile take two steps? Those of two ranks do in long chunks alone. */
template <uint32_t N, bool LONG> DEVICE bool chunk_goes_back(const struct exchange_arguments *a) {
        return (N > 2 || LONG) && a->back;
}

/* And is there a root? Then every other rank has a piece, to add up for it or to pass on. */
template <uint32_t N> DEVICE bool chunk_is_shared_out(const struct exchange_arguments *a) {
        return chunk_goes_back<N, false>(a) && a->root != EXCHANGE_NO_ROOT;
}

/* Does what rank r gets in the first step matter? (Where there are two steps a root has no piece.) */
template <uint32_t N, uint32_t KIND> DEVICE bool chunk_gets(const struct exchange_arguments *a, uint32_t r) {
        return KIND == EXCHANGE_COPY || a->root == EXCHANGE_NO_ROOT || (a->root == r) != chunk_goes_back<N, false>(a);
}

/* Is what rank r sends in the last step for this one's output? */
template <uint32_t N, uint32_t KIND> DEVICE bool chunk_gives(const struct exchange_arguments *a, uint32_t r) {
        if (a->root == EXCHANGE_NO_ROOT)
                return true;
        if (KIND != EXCHANGE_COPY)
                return a->root == a->rank;
        return chunk_goes_back<N, false>(a) ? a->root != r && a->root != a->rank : a->root == r;
}

/* Which piece is rank r's. A root that has none gets the first one: that is there to be read. */
template <uint32_t N> DEVICE uint32_t chunk_piece(const struct exchange_arguments *a, uint32_t r) {
        if constexpr (N > 2) {
                const uint32_t i = r + a->turn < N ? r + a->turn : r + a->turn - N;

                return i < a->pieces ? i : 0;
        }
        return r;
}

/* Byte offset, in each piece, of this thread's first unit of a tile; the next ones are CHUNK_STEP further. Of a tile
 * that is not full each block has a part. */
#define CHUNK_STEP (WARP_THREADS * 16u)

DEVICE uint64_t chunk_at(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t tile) {
        const uint64_t lane =
                (uint64_t)(tile * (EXCHANGE_THREADS / WARP_THREADS) + thread / WARP_THREADS) * a->blocks + block;

        return lane * a->units * CHUNK_STEP + thread % WARP_THREADS * 16u;
}

/* For what rank `from` writes in the area of rank `at`. */
template <uint32_t N>
DEVICE uint32_t *chunk_flag(const struct exchange_arguments *a, uint32_t at, uint32_t block, uint32_t from) {
        return (uint32_t *)(void *)(a->head[at] + EXCHANGE_OFFSET_FLAGS) + (size_t)block * N + from;
}

/* What a step sends: tiles, or what has been made of the ones before. */
enum chunk_stage {
        CHUNK_TILE,
        CHUNK_BACK,
};

/* (Long chunks lie block by block, since a communicator has as much for each as its number of blocks leaves it.) */
template <uint32_t N, bool LONG>
DEVICE struct quad *chunk_place(const struct exchange_arguments *a, uint32_t at, enum chunk_stage stage,
                                uint32_t number, uint32_t block, uint32_t from, uint32_t thread) {
        const size_t writer = from < at ? from : from - 1;
        const size_t turn =
                stage == CHUNK_TILE ? number % EXCHANGE_TILE_TURNS : EXCHANGE_TILE_TURNS + number % EXCHANGE_BACK_TURNS;
        const size_t slice = LONG ? block * EXCHANGE_LONG_TURNS + turn : turn * EXCHANGE_CHUNK_BLOCKS(N) + block;
        const size_t chunk = slice * (N - 1) + writer;

        return (struct quad *)(void *)(a->area[at] + EXCHANGE_OFFSET_CHUNKS(N)) +
               (chunk * EXCHANGE_THREADS + thread / WARP_THREADS * WARP_THREADS) *
                       (LONG ? a->room : EXCHANGE_UNITS(N)) +
               thread % WARP_THREADS;
}

/* ---- the caller's memory ----------------------------------------------------------------------------------------- */
/* Units that are taken together. */
enum chunk_form {
        CHUNK_PART,  /* one, of which some may be behind the piece's end, or which lies anywhere */
        CHUNK_WHOLE, /* those of them that there are, each whole */
        CHUNK_ALL,   /* all, each whole: of a long chunk */
};

/* Does the thread have nothing but whole units of a tile, in each piece, where they can be taken as such? If it does it
 * takes as many at once as it may, without a call in between; else one after another. */
template <uint32_t N> DEVICE bool chunk_is_whole(const struct exchange_arguments *a, uint64_t at) {
        return a->aligned && at + (uint64_t)(a->units - 1) * CHUNK_STEP + 16 <= exchange_piece(a, a->pieces - 1);
}

/* The same of a long chunk: how many of them, from the first one on. */
template <uint32_t N> DEVICE uint32_t chunk_whole(const struct exchange_arguments *a, uint64_t at) {
        const uint64_t bytes = exchange_piece(a, a->pieces - 1);
        const uint64_t whole = a->aligned && at + 16 <= bytes ? (bytes - at - 16) / CHUNK_STEP + 1 : 0;

        return whole < a->units ? (uint32_t)whole : a->units;
}

/* How far a thread goes by steps of AT_ONCE units: where that is all there may be, there is no second one. */
template <uint32_t N, uint32_t AT_ONCE> DEVICE uint32_t chunk_end(const struct exchange_arguments *a) {
        return AT_ONCE < EXCHANGE_UNITS(N) ? a->units : 1;
}

/* How many of the thread's units of a tile have something, of the longest pieces: what is behind is not sent. */
DEVICE uint32_t chunk_units(const struct exchange_arguments *a, uint64_t at) {
        const uint64_t left = at < a->piece_bytes ? (a->piece_bytes - at + CHUNK_STEP - 1) / CHUNK_STEP : 0;

        return left < a->units ? (uint32_t)left : a->units;
}

/* Units `first`, first + 1, .. of this thread, of the piece for rank r; 0 behind its end. */
template <uint32_t N, uint32_t KIND, uint32_t U, enum chunk_form FORM>
DEVICE void chunk_load(const struct exchange_arguments *a, uint32_t r, uint64_t at, uint32_t first,
                       struct quad (&x)[U]) {
        const uint32_t p = chunk_piece<N>(a, r);
        const uint64_t begin = at + first * CHUNK_STEP, bytes = exchange_piece(a, p);
        const char *whole = a->in + a->in_step * p + at, *piece = whole + first * CHUNK_STEP;

        static_assert(FORM != CHUNK_PART || U == 1, "one after another");
        EXCHANGE_STEP();
        UNROLL
        for (uint32_t u = 0; u < U; u++) {
                /* What lies behind the last unit nobody asks for; where loads have conditions, AMD's compiler waits for
                 * each of them. */
                const uint32_t unit = FORM == CHUNK_ALL || first + u < a->units ? first + u : 0;

                x[u] = {0, 0, 0, 0};
                if (FORM != CHUNK_PART)
                        x[u] = *(const struct quad *)(const void *)(whole + unit * CHUNK_STEP);
                else if (begin < bytes)
                        x[u] = unit_load_part(piece, bytes - begin);
        }
        unit_scale<KIND>(a, x);
}

/* To rank r's piece of the output, which has as many bytes as that of the input. */
template <uint32_t N, uint32_t U, enum chunk_form FORM>
DEVICE void chunk_store(const struct exchange_arguments *a, uint32_t r, uint64_t at, uint32_t first,
                        const struct quad (&x)[U]) {
        const uint32_t p = chunk_piece<N>(a, r);
        const uint64_t begin = at + first * CHUNK_STEP, bytes = exchange_piece(a, p);
        char *piece = a->out + a->out_step * p;

        UNROLL
        for (uint32_t u = 0; u < U; u++) {
                if (FORM == CHUNK_ALL || (FORM == CHUNK_WHOLE && first + u < a->units))
                        *(struct quad *)(void *)(piece + begin + u * CHUNK_STEP) = x[u];
                else if (FORM == CHUNK_PART && begin < bytes)
                        unit_store_part(piece + begin, bytes - begin, x[u], a->element_bytes);
        }
        EXCHANGE_STEP();
}

/* ---- from rank to rank ------------------------------------------------------------------------------------------- */
/* Units `first`, first + 1, ... */
template <uint32_t N, uint32_t U, bool LONG, enum chunk_form FORM>
DEVICE void chunk_send(const struct exchange_arguments *a, uint32_t to, uint32_t block, uint32_t thread, uint32_t first,
                       enum chunk_stage stage, uint32_t number, const struct quad (&x)[U]) {
        struct quad *place = chunk_place<N, LONG>(a, to, stage, number, block, a->rank, thread) + first * WARP_THREADS;

        UNROLL
        for (uint32_t u = 0; u < U; u++)
                if (FORM == CHUNK_ALL || first + u < a->units)
                        bulk_store(place + u * WARP_THREADS, x[u]);
        EXCHANGE_STEP();
}

/* What the block has sent is there: to every other rank. All threads meet first. */
template <uint32_t N>
DEVICE void chunk_tell(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t number,
                       struct exchange_shared *shared) {
        fence_settle();
        warp_sync();
        exchange_meet(shared);
        if (thread / WARP_THREADS != UNIT_TELLS)
                return;
        fence_release_system();
        warp_sync();
        for (uint32_t r = thread % WARP_THREADS; r < N; r += WARP_THREADS) {
                if (r != a->rank)
                        word_store(chunk_flag<N>(a, r, block, a->rank), number);
                EXCHANGE_STEP();
        }
}

DEVICE bool chunk_is_there(uint32_t seen, uint32_t number) {
        return seen == number || seen == exchange_next(number);
}

/* Of a warp's threads, which look at one rank each: until every other rank has told the block this number, and, in its
 * first step, what it has called. call: 0: that is no matter. */
template <uint32_t N>
DEVICE enum exchange_heard chunk_listen(const struct exchange_arguments *a, uint32_t block, uint32_t thread,
                                        uint32_t number, uint32_t call, struct exchange_shared *shared) {
        struct exchange_header *own = exchange_header_of(a, a->rank);

        for (uint32_t round = 1;; round++) {
                bool all = true, over = exchange_gives_up(a, block, thread, round);

                for (uint32_t r = thread % WARP_THREADS; r < N; r += WARP_THREADS) {
                        if (r == a->rank)
                                continue;
                        all &= chunk_is_there(flag_look(chunk_flag<N>(a, a->rank, block, r)), number);
                        if (call) {
                                const uint64_t cell = cell_load(&own->signature[call & 1][r]);
                                const bool there = (uint32_t)(cell >> 32) == call;

                                over |= there && exchange_is_other(a, cell, r);
                                all &= there;
                        }
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
        flag_looked();
        return EXCHANGE_CAME;
}

/* The same for the block, which goes on together. (The next time that somebody writes what was heard is behind another
 * meeting: that of chunk_tell.) */
template <uint32_t N>
DEVICE enum exchange_heard chunk_wait(const struct exchange_arguments *a, uint32_t block, uint32_t thread,
                                      uint32_t number, uint32_t call, struct exchange_shared *shared) {
        if (thread / WARP_THREADS == UNIT_WAITS) {
                const enum exchange_heard heard = chunk_listen<N>(a, block, thread, number, call, shared);

                if (thread % WARP_THREADS == 0)
                        shared->heard = heard;
        }
        warp_sync();
        exchange_meet(shared);
        return (enum exchange_heard)shared->heard;
}

/* What rank r has sent. */
template <uint32_t N, uint32_t U, bool LONG, enum chunk_form FORM>
DEVICE void chunk_take(const struct exchange_arguments *a, uint32_t r, uint32_t block, uint32_t thread, uint32_t first,
                       enum chunk_stage stage, uint32_t number, struct quad (&x)[U]) {
        const struct quad *place =
                chunk_place<N, LONG>(a, a->rank, stage, number, block, r, thread) + first * WARP_THREADS;

        EXCHANGE_STEP();
        UNROLL
        for (uint32_t u = 0; u < U; u++)
                if (FORM == CHUNK_ALL || first + u < a->units)
                        x[u] = bulk_load(place + u * WARP_THREADS);
}
