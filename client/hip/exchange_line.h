/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Lines: the third way in which an exchange kernel sends, for what is too large for packets and not large enough for
 * chunks. Also compiled for the host, where warps have one thread.
 *
 * As in packets (exchange_run.h) the flag travels with the data, so nothing is fenced and nobody meets: a warp
 * exchanges with the warps of its number on the other ranks, and with nobody else. But a flag serves for more data.
 *
 * On NVIDIA's GPUs eight threads of a warp store 128 bytes in one instruction, which arrive as one, and so does a
 * reader's load of them: fifteen sixteenths are data, and the eighth thread's last eight bytes a flag. (NCCL's protocol
 * LL128 relies on the same, over NVLink and within a GPU; it is not for PCIe, and so lines are not either:
 * lines_arrive_whole() in exchange.c.) Of two such lines the first seven threads have two units of
 * data each, and the eighth has one, half of it in each line. AMD promises eight bytes that arrive as one, so every
 * eight have two of flag: three units of data go as four.
 *
 * Two bytes of flag come round. So a warp has numbers of its own, and writes all that is its with each: then a place
 * never holds anything but what came two numbers before, or 0. It has as many tiles as there is data for; if it has
 * none it takes no part. Why nobody overwrites what has not been read: as in exchange_run.h, where it says block.
 *
 * A warp that has sent a tile waits for the other ranks', while links are idle for 1.2 to 1.8 us (H100). To be a tile
 * ahead gained nothing with four ranks, and took three times the places.
 */
#include "client/hip/exchange_line_form.h"

/* ---- places and tiles -------------------------------------------------------------------------------------------- */
/* Where rank `from` writes lines of that number in the area of rank `at`; if they are the same: nobody, or some other
 * rank. */
template <uint32_t N>
DEVICE struct quad *line_place(const struct exchange_arguments *a, uint32_t at, uint32_t number, uint32_t block,
                               uint32_t from, uint32_t thread) {
        const uint32_t writer = from - (EXCHANGE_WRITERS(N) < N && from != 0 && from >= at);
        const size_t index = ((number & 1) * EXCHANGE_LINE_BLOCKS(N) + block) * EXCHANGE_WRITERS(N) + writer;

        return (struct quad *)(void *)(a->area[at] + EXCHANGE_OFFSET_LINES(N)) +
               (index * EXCHANGE_THREADS + thread / WARP_THREADS * WARP_THREADS) * LINE_RAW(N) + thread % WARP_THREADS;
}

DEVICE uint32_t *line_number_of(const struct exchange_arguments *a, uint32_t block, uint32_t thread) {
        return (uint32_t *)(void *)(a->head[a->rank] + EXCHANGE_OFFSET_WARPS) + block * EXCHANGE_LANES +
               thread / WARP_THREADS;
}

/* Byte offset, in each piece, of a tile of this thread's warp. They are dealt to the warps of all blocks in turn. */
template <uint32_t N>
DEVICE uint64_t line_at(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t tile) {
        const uint32_t lane = tile * (EXCHANGE_THREADS / WARP_THREADS) + thread / WARP_THREADS;

        return (uint64_t)(lane * a->blocks + block) * LINE_BYTES(N);
}

/* Does the warp take part in a tile? In the first one perhaps to compare what has been called, without data. */
template <uint32_t N>
DEVICE bool line_takes_part(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t tile) {
        return line_at<N>(a, block, thread, tile) < a->piece_bytes ||
               (tile == 0 && block == 0 && thread / WARP_THREADS * WARP_THREADS < N);
}

/* Is a tile whole, in each piece, where units can be taken as such? */
template <uint32_t N> DEVICE bool line_is_whole(const struct exchange_arguments *a, uint64_t at) {
        return a->aligned && at + LINE_BYTES(N) <= exchange_piece(a, N - 1);
}

/* ---- the caller's memory ----------------------------------------------------------------------------------------- */
/* A tile of a piece of `bytes`; 0 behind its end. */
template <uint32_t N, uint32_t KIND, bool WHOLE>
DEVICE void line_load(const struct exchange_arguments *a, const char *piece, uint64_t bytes, uint64_t at,
                      uint32_t thread, struct quad (&x)[LINE_DATA(N)]) {
        EXCHANGE_STEP();
        UNROLL
        for (uint32_t k = 0; k < LINE_DATA(N); k++) {
                const uint64_t begin = at + line_offset(thread, k);

                x[k] = {0, 0, 0, 0};
                if (WHOLE)
                        x[k] = *(const struct quad *)(const void *)(piece + begin);
                else if (begin < bytes)
                        x[k] = unit_load_part(piece + begin, bytes - begin);
        }
        unit_scale<KIND>(a, x);
        line_part(thread, x);
}

template <uint32_t N, bool WHOLE>
DEVICE void line_store(const struct exchange_arguments *a, char *piece, uint64_t bytes, uint64_t at, uint32_t thread,
                       const struct quad (&x)[LINE_DATA(N)]) {
        UNROLL
        for (uint32_t k = 0; k < LINE_DATA(N); k++) {
                const uint64_t begin = at + line_offset(thread, k);

                if (!line_has(thread, k))
                        continue;
                if (WHOLE)
                        *(struct quad *)(void *)(piece + begin) = line_join(thread, k, x);
                else if (begin < bytes)
                        unit_store_part(piece + begin, bytes - begin, line_join(thread, k, x), a->element_bytes);
        }
        EXCHANGE_STEP();
}

/* ---- from rank to rank ------------------------------------------------------------------------------------------- */
/* To the i-th rank after this one. */
template <uint32_t N>
DEVICE void line_send(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t i, uint32_t number,
                      const struct quad (&x)[LINE_DATA(N)]) {
        const uint32_t to = a->rank + i < N ? a->rank + i : a->rank + i - N;

        warp_sync(); /* one store is of one line */
        line_put(line_place<N>(a, to, number, block, a->rank, thread), thread, number, x);
        EXCHANGE_STEP();
}

/* What has come from ranks FIRST to LAST - 1, x[r] from rank r; x[me] stays. As exchange_take. */
template <uint32_t N, uint32_t FIRST, uint32_t LAST>
DEVICE enum exchange_heard line_take_from(const struct exchange_arguments *a, uint32_t block, uint32_t thread,
                                          uint32_t number, uint32_t call, struct exchange_shared *shared,
                                          struct quad (&x)[N][LINE_DATA(N)]) {
        struct exchange_header *own = exchange_header_of(a, a->rank);
        const uint64_t *told = &own->signature[call & 1][call ? thread : 0];

        for (uint32_t round = 1;; round++) {
                struct quad raw[LAST - FIRST][LINE_RAW(N)];
                bool all = true, over = false;

                warp_sync(); /* one load is of one line */
                UNROLL
                for (uint32_t r = FIRST; r < LAST; r++)
                        line_get(line_place<N>(a, a->rank, number, block, r, thread), raw[r - FIRST]);
                UNROLL
                for (uint32_t r = FIRST; r < LAST; r++)
                        all &= line_is(thread, number, raw[r - FIRST]) | (r == a->rank);
                if (call) {
                        const uint64_t cell = cell_load(told);
                        const bool there = (uint32_t)(cell >> 32) == call;

                        over = there && exchange_is_other(a, cell, thread);
                        all &= there;
                }
                if (warp_all(all && !over)) {
                        UNROLL
                        for (uint32_t r = FIRST; r < LAST; r++) {
                                UNROLL
                                for (uint32_t k = 0; k < LINE_DATA(N); k++)
                                        x[r][k] = line_either(r == a->rank, x[r][k], line_data(raw[r - FIRST], k));
                        }
                        return EXCHANGE_CAME;
                }
                if (warp_any(over || exchange_gives_up(a, block, thread, round)))
                        return EXCHANGE_NEVER;
                if (exchange_waits<N>(a, thread, round, shared))
                        return exchange_late(a);
#if TARGET_HOST
                poll_pause();
#endif
        }
}

/* From all. There are registers for four at once. */
template <uint32_t N>
DEVICE enum exchange_heard line_take(const struct exchange_arguments *a, uint32_t block, uint32_t thread,
                                     uint32_t number, uint32_t call, struct exchange_shared *shared,
                                     struct quad (&x)[N][LINE_DATA(N)]) {
        constexpr uint32_t SOME = N <= 4 ? N : 4;
        enum exchange_heard heard = line_take_from<N, 0, SOME>(a, block, thread, number, call, shared, x);

        if constexpr (SOME < N)
                if (heard == EXCHANGE_CAME)
                        heard = line_take_from<N, SOME, N>(a, block, thread, number, 0, shared, x);
        return heard;
}

/* ---- a tile ------------------------------------------------------------------------------------------------------ */
/* To the ranks from the FIRST-th after this one to before the LAST-th: all loads of so many are under way at once. */
template <uint32_t N, uint32_t KIND, uint32_t FIRST, uint32_t LAST>
DEVICE void line_scatter_whole(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at,
                               uint32_t before, const struct quad (&own)[LINE_DATA(N)]) {
        struct quad x[LAST - FIRST][LINE_DATA(N)] = {};

        UNROLL
        for (uint32_t i = FIRST; i < LAST; i++)
                if (a->in_step)
                        line_load<N, KIND, true>(a,
                                                 a->in + a->in_step * (a->rank + i < N ? a->rank + i : a->rank + i - N),
                                                 0, at, thread, x[i - FIRST]);
        VALUE_FORGET(before); /* or it is waited for before the input is loaded */
        UNROLL
        for (uint32_t i = FIRST; i < LAST; i++) {
                UNROLL
                for (uint32_t k = 0; k < LINE_DATA(N); k++)
                        x[i - FIRST][k] = line_either(a->in_step != 0, x[i - FIRST][k], own[k]);
                line_send<N>(a, block, thread, i, exchange_next(before), x[i - FIRST]);
        }
}

/* What this rank has for the others. own: its own piece. */
template <uint32_t N, uint32_t KIND>
DEVICE void line_scatter(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at, bool whole,
                         uint32_t before, struct quad (&own)[LINE_DATA(N)]) {
        struct quad x[LINE_DATA(N)];

        if (whole) {
                line_load<N, KIND, true>(a, a->own_in, a->own_bytes, at, thread, own);
                line_scatter_whole<N, KIND, 1, (N < 5 ? N : 5)>(a, block, thread, at, before, own);
                if constexpr (N > 5)
                        line_scatter_whole<N, KIND, 5, N>(a, block, thread, at, before, own);
                return;
        }
        ROLLED
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t r = a->rank + i < N ? a->rank + i : a->rank + i - N;

                line_load<N, KIND, false>(a, a->in + a->in_step * r, exchange_piece(a, r), at, thread, x);
                line_send<N>(a, block, thread, i, exchange_next(before), x);
        }
        line_load<N, KIND, false>(a, a->own_in, a->own_bytes, at, thread, own);
}

/* What the others have sent with that number, to its places in the output. */
template <uint32_t N>
DEVICE void line_gather(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint64_t at, bool whole,
                        uint32_t number, const struct quad (&x)[N][LINE_DATA(N)]) {
        if (whole) {
                UNROLL
                for (uint32_t r = 0; r < N; r++)
                        if (r != a->rank)
                                line_store<N, true>(a, a->out + a->out_step * r, 0, at, thread, x[r]);
                return;
        }
        ROLLED
        for (uint32_t r = 0; r < N; r++) { /* once more from its place, where it is until this rank sends again */
                struct quad raw[LINE_RAW(N)], y[LINE_DATA(N)];

                if (r == a->rank)
                        continue;
                line_get(line_place<N>(a, a->rank, number, block, r, thread), raw);
                UNROLL
                for (uint32_t k = 0; k < LINE_DATA(N); k++)
                        y[k] = line_data(raw, k);
                line_store<N, false>(a, a->out + a->out_step * r, exchange_piece(a, r), at, thread, y);
        }
}

template <uint32_t N>
DEVICE void line_keep(const struct exchange_arguments *a, uint32_t thread, uint64_t at, bool whole,
                      const struct quad (&x)[LINE_DATA(N)]) {
        if (whole)
                line_store<N, true>(a, a->own_out, a->own_bytes, at, thread, x);
        else
                line_store<N, false>(a, a->own_out, a->own_bytes, at, thread, x);
}

/* As exchange_round. */
template <uint32_t N, uint32_t KIND>
DEVICE enum exchange_heard line_round(const struct exchange_arguments *a, uint32_t block, uint32_t thread,
                                      uint32_t tile, uint32_t calls, bool begins, bool compares, uint32_t *number,
                                      bool *second, struct exchange_shared *shared) {
        const uint64_t at = line_at<N>(a, block, thread, tile);
        const bool whole = line_is_whole<N>(a, at);
        struct quad x[N][LINE_DATA(N)], own[LINE_DATA(N)];
        enum exchange_heard heard;

        if (!*second) {
                line_scatter<N, KIND>(a, block, thread, at, whole, *number, own);
                CELL_FORGET(calls);
                if (begins)
                        exchange_begin(a, block, thread, calls, shared);
                UNROLL
                for (uint32_t r = 0; r < N; r++) {
                        UNROLL
                        for (uint32_t k = 0; k < LINE_DATA(N); k++)
                                x[r][k] = own[k];
                }
                heard = line_take<N>(a, block, thread, exchange_next(*number),
                                     compares && exchange_compares(a, block, thread) ? exchange_call(calls) : 0, shared,
                                     x);
                if (heard != EXCHANGE_CAME)
                        return heard;
                *number = exchange_next(*number);
                if constexpr (KIND != EXCHANGE_COPY)
                        unit_sum<N, KIND>(a, x, own);
        }
        if constexpr (KIND != EXCHANGE_COPY) {
                if (!*second) {
                        UNROLL
                        for (uint32_t i = 1; i < N; i++)
                                if (a->back)
                                        line_send<N>(a, block, thread, i, exchange_next(*number), own);
                        line_keep<N>(a, thread, at, whole, own);
                        if (!a->back)
                                return EXCHANGE_CAME;
                        *second = true;
                }
                heard = line_take<N>(a, block, thread, exchange_next(*number), 0, shared, x);
                if (heard != EXCHANGE_CAME)
                        return heard;
                *number = exchange_next(*number);
        } else {
                line_keep<N>(a, thread, at, whole, own);
        }
        line_gather<N>(a, block, thread, at, whole, *number, x);
        return EXCHANGE_CAME;
}

/* All tiles of this thread's warp; as exchange_run. */
template <uint32_t N, uint32_t KIND>
DEVICE bool line_run(const struct exchange_arguments *a, uint32_t block, uint32_t thread, bool taken_up,
                     struct exchange_shared *shared) {
        const uint32_t calls = word_load(&exchange_header_of(a, a->rank)->calls);
        struct exchange_progress p = {0, 0};
        bool begins = !taken_up, compares = true, second;

        if (taken_up)
                p = exchange_resume(a, block, thread, true);
        else
                p.number = word_load(line_number_of(a, block, thread));
        if (p.tile == EXCHANGE_THROUGH)
                return true;
        second = KIND != EXCHANGE_COPY && p.tile & EXCHANGE_SECOND;
        ROLLED
        for (uint32_t tile = p.tile & ~EXCHANGE_SECOND; line_takes_part<N>(a, block, thread, tile); tile++) {
                const enum exchange_heard heard = line_round<N, KIND>(a, block, thread, tile, calls, begins, compares,
                                                                      &p.number, &second, shared);

                begins = compares = false;
                if (heard == EXCHANGE_LATE) {
                        exchange_write_down(a, block, thread, second ? tile | EXCHANGE_SECOND : tile, p.number);
                        return false;
                }
                if (heard != EXCHANGE_CAME)
                        break;
                second = false;
        }
        if (begins)
                exchange_begin(a, block, thread, calls, shared);
        if (thread % WARP_THREADS == 0)
                word_store(line_number_of(a, block, thread), p.number);
        if (thread == 0)
                shared->number = 0; /* of no meaning */
        return true;
}
