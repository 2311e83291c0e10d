/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What a thread of an exchange kernel does. Also compiled for the host, where tests run it.
 *
 * Every rank has cut each piece in the same way, so the thread with the same number in the same block of each rank has
 * the same packets: those threads exchange with one another, and with nobody else. There is no barrier between blocks
 * or threads, and the data carries its flag, so nothing is fenced.
 *
 * A sum goes in two steps: a rank sends to each other the piece that is that one's to add up; it adds up its own, in
 * the order of ranks, and sends the result to all. A copy takes one, and so does a sum of which everybody sends all to
 * all, or to its root. A round is as much of each piece as a thread can have under way (EXCHANGE_DEPTH).
 *
 * Why nobody overwrites what has not been read. Each step of each round has a number, the flag of its packets, and the
 * places of odd and even numbers take turns. All threads of a block take part in each step, with packets of nothing
 * where a piece has ended, or one such packet for each other rank where there is a root and neither is it; and the
 * steps of different calls follow each other as the calls do. Who is about to send number m has taken m - 1 from each
 * other rank. That one has sent m - 1 after it had taken m - 2, which was at the places of m.
 *
 * What each rank has called is compared: thread r of block 0 tells rank r what its own has, and looks what that rank
 * has. If they differ, the rounds would not go together, and both ranks give up with RMX_E_MISMATCH. Such words take
 * turns like copies.
 *
 * A thread that waits looks now and then whether it should give up: because the bell area is closed, the rank has
 * ended, the library has heard that its communicator has failed, or another thread has found a mismatch. The library's
 * word is in the host's memory, and such loads go one after another, 0.6 us for each warp, so few warps look at it at a
 * time. (When all did, a thousand of them took 0.6 ms. Then the rank was late for the next call, in which therefore the
 * other one's threads looked, and so on: now and then all calls of a graph took a hundred times as long.)
 */
#include "client/hip/exchange_leave.h"
#include "gpu/device/reduce.h"
#include "ring/line.h"

static_assert(EXCHANGE_THREADS >= EXCHANGE_RANKS, "a thread for each rank's word");

#if TARGET_HOST
#define EXCHANGE_ROUNDS 16u
#define EXCHANGE_LOOKS  4u
#else
#define EXCHANGE_ROUNDS 256u /* of polling between two looks, a quarter of a millisecond, */
#define EXCHANGE_LOOKS  64u  /* one of which includes the host's word: each time other warps' */
#endif

/* ---- giving up --------------------------------------------------------------------------------------------------- */
DEVICE uint32_t *exchange_status_of(const struct exchange_arguments *a) {
        return &((struct bell_host *)a->host)->status[a->slot];
}

/* (These two take no pointer to the arguments: AMD's compiler would copy them into each thread's memory.) A rank that
 * has given up once never exchanges again, and every kernel says so: what the host has not read yet may be an error
 * that passes, of a request before. The first status is the one that stays. */
DEVICE_OUTLINE void exchange_fail(struct exchange_header *own, uint32_t *kept, uint32_t status) {
        const uint32_t first = word_load(&own->failed);

        if (!first)
                word_store(&own->failed, status);
        if (!ring_status_is_kept(word_load(kept)))
                word_store(kept, first ? first : status);
}

/* What the rank has called is not what rank `other` has: both say so, and leave what it was for railmuxd, which hears
 * from both. (The first time, like the status.) */
DEVICE_OUTLINE void exchange_differs(struct exchange_header *own, struct bell_host *host, uint32_t slot, uint32_t head,
                                     uint32_t root, uint64_t count, uint32_t other) {
        struct bell_exchanged *told = &host->exchanged[slot];

        if (!word_load(&own->failed)) {
                word_store(&told->head, head);
                word_store(&told->root, root);
                cell_store(&told->count, count);
                fence_release_system(); /* partner: plane_exchanged() in the executor */
                word_store(&told->differs, 1 + other);
        }
        exchange_fail(own, &host->status[slot], ring_status(RMX_E_MISMATCH, (int32_t)other));
}

/* Rank `other` has told that it has called `cell`. */
DEVICE bool exchange_is_other(const struct exchange_arguments *a, uint64_t cell, uint32_t other) {
        if ((uint32_t)cell == a->signature)
                return false;
        exchange_differs(exchange_header_of(a, a->rank), (struct bell_host *)a->host, a->slot,
                         a->operation << 16 | a->type << 8 | a->redop, a->root, a->count, other);
        return true;
}

/* stop: NULL: do not look at it. */
DEVICE_OUTLINE bool exchange_over(struct exchange_header *own, const char *bell_area, const uint32_t *stop,
                                  uint32_t slot, uint32_t *kept) {
        const struct bell_header *bell = (const struct bell_header *)(const void *)bell_area;
        const uint32_t *ended = (const uint32_t *)(const void *)(bell_area + BELL_OFFSET_ENDED) + slot;

        if (!(word_load(&own->failed) | word_load(&bell->closed) | word_load(ended)) && !(stop && word_load(stop)))
                return false;
        exchange_fail(own, kept, RMX_E_DEVICE_LOST);
        return true;
}

/* In round 1, 2, .. of polling: is it time to look, and should it give up? */
DEVICE bool exchange_gives_up(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t round) {
        if (round % EXCHANGE_ROUNDS)
                return false;
        return exchange_over(exchange_header_of(a, a->rank), a->bell_area,
                             (round / EXCHANGE_ROUNDS + block + thread / 32u) % EXCHANGE_LOOKS ? NULL : a->stop,
                             a->slot, exchange_status_of(a));
}

/* The warp has no patience left. Those that go from part to part look only here. */
DEVICE enum exchange_heard exchange_late(const struct exchange_arguments *a) {
        const bool over =
                exchange_over(exchange_header_of(a, a->rank), a->bell_area, a->stop, a->slot, exchange_status_of(a));

        return warp_any(over) ? EXCHANGE_NEVER : EXCHANGE_LATE;
}

/* ---- the caller's memory ----------------------------------------------------------------------------------------- */
/* Byte offset, in each piece, of the packet of this thread in its block's tile, and from one of its tiles to the next.
 */
DEVICE uint64_t exchange_at(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t tile) {
        return ((uint64_t)(tile * a->blocks + block) * EXCHANGE_THREADS + thread) * PACKET_BYTES;
}

DEVICE uint64_t exchange_step(const struct exchange_arguments *a) {
        return (uint64_t)a->blocks * EXCHANGE_THREADS * PACKET_BYTES;
}

/* Up to eight bytes from any address: what lies behind the end is 0. In whole words, and so perhaps with bytes beside
 * them, which are there, as no word is taken that has nothing of it. */
DEVICE_OUTLINE uint64_t exchange_load_part(const char *from, uint64_t left) {
        const uint32_t odd = (uint32_t)((uintptr_t)from % 8), bytes = left < 8 ? (uint32_t)left : 8;
        const uint64_t *word = (const uint64_t *)(const void *)(from - odd);
        const uint64_t low = word[0], high = odd + bytes > 8 ? word[1] : 0;
        const uint64_t value = odd ? low >> (8 * odd) | high << (64 - 8 * odd) : low;

        return bytes < 8 ? value & ((UINT64_C(1) << (8 * bytes)) - 1) : value;
}

DEVICE_OUTLINE void exchange_store_part(char *to, uint64_t left, uint64_t value, uint32_t element_bytes) {
        ROLLED
        for (uint32_t i = 0; i < 8 && i < left; i += element_bytes)
                output_store(to + i, value >> (8 * i), element_bytes);
}

/* Bytes of the piece for rank r, or from it. */
DEVICE uint64_t exchange_piece(const struct exchange_arguments *a, uint32_t r) {
        const uint64_t begin = a->in_step * r;

        if (!a->in_bytes)
                return a->piece_bytes;
        return begin >= a->in_bytes ? 0 : a->in_bytes - begin < a->piece_bytes ? a->in_bytes - begin : a->piece_bytes;
}

/* A piece of `bytes`, packets `at`, at + 1 tile, ..: 0 where it has ended. What is usual has no call in it, so that all
 * loads are under way at once. */
template <uint32_t D>
DEVICE void exchange_load(const struct exchange_arguments *a, const char *piece, uint64_t bytes, uint64_t at,
                          uint32_t depth, uint64_t (&x)[D]) {
        const uint64_t step = exchange_step(a);

        UNROLL
        for (uint32_t k = 0; k < D; k++)
                x[k] = 0;
        EXCHANGE_STEP();
        if (a->aligned) {
                UNROLL
                for (uint32_t k = 0; k < D; k++)
                        if (k < depth && at + k * step < bytes)
                                x[k] = *(const uint64_t *)(const void *)(piece + at + k * step);
                return;
        }
        UNROLL
        for (uint32_t k = 0; k < D; k++)
                if (k < depth && at + k * step < bytes)
                        x[k] = exchange_load_part(piece + at + k * step, bytes - at - k * step);
}

/* The other way, to a piece of the output. */
template <uint32_t D>
DEVICE void exchange_store(const struct exchange_arguments *a, char *piece, uint64_t bytes, uint64_t at, uint32_t depth,
                           const uint64_t (&x)[D]) {
        const uint64_t step = exchange_step(a);

        UNROLL
        for (uint32_t k = 0; k < D; k++) {
                if (k >= depth || at + k * step >= bytes)
                        continue;
                if (a->aligned)
                        *(uint64_t *)(void *)(piece + at + k * step) = x[k];
                else
                        exchange_store_part(piece + at + k * step, bytes - at - k * step, x[k], a->element_bytes);
        }
}

/* ---- packets ----------------------------------------------------------------------------------------------------- */
/* Where rank `from` writes packets of number `flag` in the area of rank `at`; if they are the same: nobody, or
 * some other rank. */
template <uint32_t N>
DEVICE struct quad *exchange_place(const struct exchange_arguments *a, uint32_t at, uint32_t flag, uint32_t block,
                                   uint32_t from, uint32_t thread) {
        const uint32_t writer = from - (EXCHANGE_WRITERS(N) < N && from != 0 && from >= at);
        const size_t index = (((flag & 1) * EXCHANGE_BLOCKS_OF(N) + block) * EXCHANGE_WRITERS(N) + writer) *
                             EXCHANGE_DEPTH(N) * EXCHANGE_THREADS;

        return (struct quad *)(void *)a->area[at] + index + thread;
}

/* Packets of a thread that go from one rank to another in a round: one at least, so that each knows how far the other
 * is. */
template <uint32_t KIND>
DEVICE uint32_t exchange_packets(const struct exchange_arguments *a, uint32_t from, uint32_t to, uint32_t depth) {
        return a->root == EXCHANGE_NO_ROOT || a->root == (KIND == EXCHANGE_COPY ? from : to) ? depth : 1;
}

/* Sends `x` of each other rank, x[i] to rank me + i, x[0] to nobody. */
template <uint32_t N, uint32_t KIND, uint32_t D>
DEVICE void exchange_send(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t depth,
                          uint32_t flag, const uint64_t (&x)[N][D]) {
        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t to = a->rank + i < N ? a->rank + i : a->rank + i - N;
                const uint32_t packets = exchange_packets<KIND>(a, a->rank, to, depth);
                struct quad *place = exchange_place<N>(a, to, flag, block, a->rank, thread);

                UNROLL
                for (uint32_t k = 0; k < D; k++)
                        if (k < packets)
                                packet_store(place + k * EXCHANGE_THREADS, x[i][k], flag);
                EXCHANGE_STEP();
        }
}

/* What has come from each other rank, x[r] from rank r; x[me] stays. The warp goes on together. call: this thread also
 * waits for what rank `thread` has called, 0: it does not. */
template <uint32_t N, uint32_t KIND, uint32_t D>
DEVICE enum exchange_heard exchange_take(const struct exchange_arguments *a, uint32_t block, uint32_t thread,
                                         uint32_t depth, uint32_t flag, uint32_t call, struct exchange_shared *shared,
                                         uint64_t (&x)[N][D]) {
        struct exchange_header *own = exchange_header_of(a, a->rank);
        const uint64_t *told = &own->signature[call & 1][call ? thread : 0];

        for (uint32_t round = 1;; round++) {
                const uint64_t cell = cell_load(told);
                struct quad v[N][D];
                bool all = true, over = false;

                UNROLL
                for (uint32_t r = 0; r < N; r++) { /* where the own one would be, too: no load is conditional */
                        const struct quad *place = exchange_place<N>(a, a->rank, flag, block, r, thread);

                        UNROLL
                        for (uint32_t k = 0; k < D; k++)
                                v[r][k] = quad_load(place + k * EXCHANGE_THREADS);
                }
                UNROLL
                for (uint32_t r = 0; r < N; r++) {
                        const uint32_t packets = exchange_packets<KIND>(a, r, a->rank, depth);

                        UNROLL
                        for (uint32_t k = 0; k < D; k++) {
                                all &= packet_is(v[r][k], flag) | (r == a->rank) | (k >= packets);
                                x[r][k] = r == a->rank ? x[r][k] : packet_payload(v[r][k]);
                        }
                }
                if (call) {
                        const bool there = (uint32_t)(cell >> 32) == call;

                        over = there && exchange_is_other(a, cell, thread);
                        all &= there;
                }
                if (warp_all(all && !over))
                        return EXCHANGE_CAME;
                if (warp_any(over || exchange_gives_up(a, block, thread, round)))
                        return EXCHANGE_NEVER;
                if (exchange_waits<N>(a, thread, round, shared))
                        return exchange_late(a);
#if TARGET_HOST
                poll_pause();
#endif
        }
}

/* Does this thread tell another rank what has been called, and look what that one has? */
DEVICE bool exchange_compares(const struct exchange_arguments *a, uint32_t block, uint32_t thread) {
        return block == 0 && thread < a->n_ranks && thread != a->rank;
}

/* Thread r of block 0 tells rank r what this one has called, and the last one the host, in a word that nobody waits
 * for. calls: of the header; what needs it stands behind everything that does not, or each call would take one trip to
 * memory more. */
DEVICE void exchange_begin(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t calls,
                           struct exchange_shared *shared) {
        const uint32_t call = exchange_call(calls);

        if (thread == 0) {
                shared->calls = calls;
                shared->next = EXCHANGE_NO_BLOCK;
        }
        if (exchange_compares(a, block, thread))
                cell_store(&exchange_header_of(a, thread)->signature[call & 1][a->rank],
                           (uint64_t)call << 32 | a->signature);
        if (block == 0 && thread == EXCHANGE_THREADS - 1) {
                const uint32_t first = word_load(&exchange_header_of(a, a->rank)->first);

                cell_store(&((struct bell_host *)a->host)->exchanged[a->slot].begun,
                           (uint64_t)(calls + 1 - first) << 32 | a->operation);
        }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */
template <uint32_t N, uint32_t TYPE> DEVICE uint64_t exchange_reduce_type(uint32_t redop, const uint64_t *x) {
        reduce_accumulator<TYPE> sum;

        reduce_begin<TYPE>(sum, redop, x[0]);
        ROLLED
        for (uint32_t r = 1; r < N; r++)
                reduce_add<TYPE>(sum, redop, x[r]);
        return reduce_finish<TYPE>(sum, redop, N);
}

template <uint32_t N> DEVICE_OUTLINE uint64_t exchange_reduce_any(uint32_t type, uint32_t redop, const uint64_t *x) {
        switch (type) {
        case RMX_INT8:
                return exchange_reduce_type<N, RMX_INT8>(redop, x);
        case RMX_UINT8:
                return exchange_reduce_type<N, RMX_UINT8>(redop, x);
        case RMX_INT32:
                return exchange_reduce_type<N, RMX_INT32>(redop, x);
        case RMX_UINT32:
                return exchange_reduce_type<N, RMX_UINT32>(redop, x);
        case RMX_INT64:
                return exchange_reduce_type<N, RMX_INT64>(redop, x);
        case RMX_UINT64:
                return exchange_reduce_type<N, RMX_UINT64>(redop, x);
        case RMX_FLOAT16:
                return exchange_reduce_type<N, RMX_FLOAT16>(redop, x);
        case RMX_FLOAT32:
                return exchange_reduce_type<N, RMX_FLOAT32>(redop, x);
        case RMX_FLOAT64:
                return exchange_reduce_type<N, RMX_FLOAT64>(redop, x);
        case RMX_BFLOAT16:
                return exchange_reduce_type<N, RMX_BFLOAT16>(redop, x);
        case RMX_FLOAT8_E4M3:
                return exchange_reduce_type<N, RMX_FLOAT8_E4M3>(redop, x);
        default:
                return exchange_reduce_type<N, RMX_FLOAT8_E5M2>(redop, x);
        }
}

/* Of what all ranks have, in rank order. */
template <uint32_t N, uint32_t KIND>
DEVICE uint64_t exchange_sum(const struct exchange_arguments *a, const uint64_t (&y)[N]) {
        if constexpr (KIND == EXCHANGE_FLOAT32)
                return reduce_sum<N, RMX_FLOAT32>(y);
        else if constexpr (KIND == EXCHANGE_FLOAT16)
                return reduce_sum<N, RMX_FLOAT16>(y);
        else if constexpr (KIND == EXCHANGE_BFLOAT16)
                return reduce_sum<N, RMX_BFLOAT16>(y);
        else
                return exchange_reduce_any<N>(a->type, a->redop, y);
}

/* Of the k-th packets. */
template <uint32_t N, uint32_t KIND, uint32_t D>
DEVICE uint64_t exchange_reduce(const struct exchange_arguments *a, const uint64_t (&x)[N][D], uint32_t k) {
        uint64_t y[N];

        UNROLL
        for (uint32_t r = 0; r < N; r++)
                y[r] = x[r][k];
        return exchange_sum<N, KIND>(a, y);
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */
template <uint32_t N, uint32_t D> DEVICE void exchange_spread(uint64_t (&x)[N][D], const uint64_t (&own)[D]) {
        UNROLL
        for (uint32_t r = 0; r < N; r++) {
                UNROLL
                for (uint32_t k = 0; k < D; k++)
                        x[r][k] = own[k];
        }
}

/* What this rank has for the others, x[i] for rank me + i. */
template <uint32_t N, uint32_t KIND, uint32_t D>
DEVICE void exchange_gather(const struct exchange_arguments *a, uint64_t at, uint32_t depth, uint64_t (&x)[N][D]) {
        const uint32_t n = a->in_step ? N : 1; /* the same for all */

        if (KIND == EXCHANGE_COPY && a->root != EXCHANGE_NO_ROOT && a->root != a->rank)
                depth = 0; /* nothing */
        exchange_load<D>(a, a->own_in, a->own_bytes, at, depth, x[0]);
        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                const uint32_t r = a->rank + i < N ? a->rank + i : a->rank + i - N;

                if (i < n)
                        exchange_load<D>(a, a->in + a->in_step * r, exchange_piece(a, r), at, depth, x[i]);
        }
        if constexpr (KIND == EXCHANGE_OTHER) {
                UNROLL
                for (uint32_t i = 0; i < N; i++) {
                        UNROLL
                        for (uint32_t k = 0; k < D; k++)
                                if (i < n && a->redop == RMX_PREMUL_SUM)
                                        x[i][k] = reduce_scale(a->type, a->scalar, x[i][k]);
                }
        }
        UNROLL
        for (uint32_t i = 1; i < N; i++) {
                UNROLL
                for (uint32_t k = 0; k < D; k++)
                        x[i][k] = i < n ? x[i][k] : x[0][k];
        }
}

/* Tiles `first` .. `first` + depth - 1, after number *number, which becomes that of the last step. *second: the first
 * of two steps has been made. begins: nothing of the part has. compares: nobody has compared the call yet. */
template <uint32_t N, uint32_t KIND, uint32_t D>
DEVICE enum exchange_heard exchange_round(const struct exchange_arguments *a, uint32_t block, uint32_t thread,
                                          uint32_t first, uint32_t depth, uint32_t calls, bool begins, bool compares,
                                          uint32_t *number, bool *second, struct exchange_shared *shared) {
        const uint64_t at = exchange_at(a, block, thread, first);
        enum exchange_heard heard;
        uint64_t x[N][D], y[N][D];
        uint32_t flag;

        if (!*second)
                exchange_gather<N, KIND, D>(a, at, depth, x);
        VALUE_FORGET(*number); /* or it is waited for before the input is loaded */
        flag = exchange_next(*number);
        if (!*second) {
                exchange_send<N, KIND, D>(a, block, thread, depth, flag, x);
                CELL_FORGET(calls);
                if (begins)
                        exchange_begin(a, block, thread, calls, shared);
                exchange_spread<N, D>(y, x[0]);
                heard = exchange_take<N, KIND, D>(
                        a, block, thread, depth, flag,
                        compares && exchange_compares(a, block, thread) ? exchange_call(calls) : 0, shared, y);
                if (heard != EXCHANGE_CAME)
                        return heard;
                *number = flag;
        }
        if constexpr (KIND != EXCHANGE_COPY) {
                if (a->root != EXCHANGE_NO_ROOT && a->root != a->rank)
                        return EXCHANGE_CAME;
                if (!*second) {
                        uint64_t sum[D];

                        UNROLL
                        for (uint32_t k = 0; k < D; k++)
                                sum[k] = exchange_reduce<N, KIND, D>(a, y, k);
                        exchange_store<D>(a, a->own_out, a->own_bytes, at, depth, sum);
                        if (!a->back)
                                return EXCHANGE_CAME;
                        flag = exchange_next(flag);
                        exchange_spread<N, D>(x, sum);
                        exchange_send<N, KIND, D>(a, block, thread, depth, flag, x);
                        *second = true;
                }
                heard = exchange_take<N, KIND, D>(a, block, thread, depth, flag, 0, shared, y);
                if (heard != EXCHANGE_CAME)
                        return heard;
                *number = flag;
        }
        UNROLL
        for (uint32_t r = 0; r < N; r++) {
                if (KIND == EXCHANGE_COPY ? a->root == EXCHANGE_NO_ROOT || a->root == r : r != a->rank)
                        exchange_store<D>(a, a->out + a->out_step * r, exchange_piece(a, r), at, depth, y[r]);
                EXCHANGE_STEP();
        }
        return EXCHANGE_CAME;
}

/* Rounds of this thread, of up to D tiles, with its warp. taken_up: of a part that has been left. False: it leaves. */
template <uint32_t N, uint32_t KIND, uint32_t D>
DEVICE bool exchange_run(const struct exchange_arguments *a, uint32_t block, uint32_t thread, bool taken_up,
                         struct exchange_shared *shared) {
        const uint32_t calls = word_load(&exchange_header_of(a, a->rank)->calls);
        struct exchange_progress p = exchange_resume(a, block, thread, taken_up);
        bool begins = !taken_up, compares = true, second = KIND != EXCHANGE_COPY && p.tile & EXCHANGE_SECOND;

        static_assert(D <= EXCHANGE_DEPTH(N), "places for so many");
        if (p.tile == EXCHANGE_THROUGH)
                return true;
        for (uint32_t tile = p.tile & ~EXCHANGE_SECOND; tile < a->tiles; tile += D) {
                const uint32_t left = a->tiles - tile, depth = left < D ? left : D;
                enum exchange_heard heard;

                heard = exchange_round<N, KIND, D>(a, block, thread, tile, depth, calls, begins, compares, &p.number,
                                                   &second, shared);
                begins = compares = false;
                if (heard == EXCHANGE_LATE) {
                        exchange_write_down(a, block, thread, second ? tile | EXCHANGE_SECOND : tile, p.number);
                        return false;
                }
                if (heard != EXCHANGE_CAME)
                        break;
                second = false;
        }
        if (thread == 0)
                shared->number = p.number;
        return true;
}
