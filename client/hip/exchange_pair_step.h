/* SPDX-License-Identifier: MIT */
#pragma once
/* A step of a lane of transfers: waiting for the other rank, a chunk as it is, a chunk in packets. See exchange_pair.h.
 * Also compiled for the host. */
#include "client/hip/exchange_leave.h"
#include "client/hip/exchange_unit.h"

/* Looks until who waits says so; some five milliseconds. */
#ifndef PAIR_LONG
#define PAIR_LONG 16384u
#endif

static_assert(PAIR_UNITS >= PACKED_UNITS, "packets fit into a chunk's place");

#define PAIR_STEP   (EXCHANGE_THREADS * 16u) /* bytes, from one unit of a thread to its next, */
#define PACKED_STEP (EXCHANGE_THREADS * 8u)  /* and from one packet */

struct pair_lane {
        uint32_t peer, lane;
        bool sends;
        uint32_t number; /* of the last chunk */
        uint32_t turn;   /* of the present transfer; lane 0 */
        uint32_t calls;  /* collectives before this one, if it is one; lane 0 */
        uint32_t failed; /* the rank's status, of whoever waits */
};

DEVICE struct pair_words *pair_words_of(const struct exchange_arguments *a, uint32_t rank, uint32_t peer) {
        return (struct pair_words *)(void *)(a->head[rank] + EXCHANGE_OFFSET_PAIR) + peer;
}

/* What rank has, of its peer. */
DEVICE uint32_t *pair_word_of(const struct exchange_arguments *a, enum pair_word word, uint32_t rank, uint32_t peer,
                              uint32_t lane) {
        return (uint32_t *)(void *)(a->head[rank] + EXCHANGE_OFFSET_LANES) +
               ((size_t)word * a->n_ranks + peer) * PAIR_LANES(a->n_ranks) + lane;
}

/* The first unit of this thread in the place of a chunk, or its first packet, that rank `from` sends to rank `to`; the
 * next ones are a block's width further. part: the lane, or, of packets, PAIR_BLOCKS. */
DEVICE struct quad *pair_place(const struct exchange_arguments *a, uint32_t to, uint32_t from,
                               const struct pair_lane *l, uint32_t part, uint32_t thread) {
        const uint32_t writer = from < to ? from : from - 1;
        const size_t place = ((size_t)writer * PAIR_TURNS + l->number % PAIR_TURNS) * PAIR_PARTS(a->n_ranks) + part;

        return (struct quad *)(void *)(a->area[to] + EXCHANGE_OFFSET_PAIRS(a->n_ranks)) +
               place * EXCHANGE_THREADS * PAIR_UNITS + thread;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */
/* For railmuxd: this rank waits for that one, or does so no more. Of several channels that wait one says so. */
DEVICE_OUTLINE void pair_say(struct bell_host *host, uint32_t slot, uint32_t turn, uint32_t peer, bool sends,
                             bool waits) {
        const uint64_t own = (uint64_t)turn << 32 | peer << 8 | (uint32_t)sends << 1 | 1u;
        const uint64_t said = cell_load(&host->exchanged[slot].pair);

        if (waits && !said)
                cell_store(&host->exchanged[slot].pair, own);
        else if (!waits && said == own)
                cell_store(&host->exchanged[slot].pair, 0);
}

DEVICE void pair_names(const struct exchange_arguments *a, const struct pair_lane *l, bool waits) {
        pair_say((struct bell_host *)a->host, a->slot, l->turn - word_load(&exchange_header_of(a, a->rank)->first),
                 l->peer, l->sends, waits);
}

/* One thread of lane 0, in round 1, 2, .. of waiting: it says so after a while, and when that is over. (And when its
 * block leaves: whoever comes to the lane then does not stay for that long.) */
DEVICE void pair_waits(const struct exchange_arguments *a, const struct pair_lane *l, bool there, uint32_t round,
                       bool *said) {
        if (there ? !*said : round % PAIR_LONG != 0)
                return;
        pair_names(a, l, !there);
        *said = true;
}

/* Of a warp that waits, when it is time to look around: never, or no longer by this block. EXCHANGE_CAME: neither. (On
 * NVIDIA's a function of its own, since registers are few; AMD's compiler would copy all parameters to each thread's
 * memory for it, and has registers enough.) */
#if TARGET_NVIDIA
#define PAIR_ASIDE DEVICE_OUTLINE
#else
#define PAIR_ASIDE DEVICE
#endif
PAIR_ASIDE enum exchange_heard pair_look(const struct exchange_arguments *a, uint32_t thread, uint32_t round,
                                         struct exchange_shared *shared) {
        if (warp_any(exchange_gives_up(a, exchange_block(shared), thread, round)))
                return EXCHANGE_NEVER;
        if (round % EXCHANGE_WHILE == 0 && exchange_patience(a, thread, round, shared))
                return exchange_late(a);
        return EXCHANGE_CAME;
}

static_assert(TARGET_HOST || EXCHANGE_WHILE % EXCHANGE_ROUNDS == 0, "who looks for the one looks for the other");
DEVICE bool pair_looks(uint32_t round) {
        return round % EXCHANGE_ROUNDS == 0 || (TARGET_HOST && round % EXCHANGE_WHILE == 0);
}

/* Of a warp: until the word is `count` or up to PAIR_TURNS - 1 more. */
DEVICE enum exchange_heard pair_listen(const struct exchange_arguments *a, const struct pair_lane *l,
                                       const uint32_t *word, uint32_t count, uint32_t thread,
                                       struct exchange_shared *shared) {
        const bool says = l->lane == 0 && thread % WARP_THREADS == 0;
        bool said = *exchange_is_late(shared, thread); /* as the block before has, perhaps */

        if (warp_any(l->failed)) { /* what it has sent last is perhaps not whole */
                exchange_fail(exchange_header_of(a, a->rank), exchange_status_of(a), RMX_E_DEVICE_LOST);
                return EXCHANGE_NEVER;
        }
        for (uint32_t round = 1;; round++) {
                const bool there = warp_all(flag_look(word) - count < PAIR_TURNS);

                if (says)
                        pair_waits(a, l, there, round, &said);
                if (there)
                        return EXCHANGE_CAME;
                if (pair_looks(round)) {
                        const enum exchange_heard heard = pair_look(a, thread, round, shared);

                        if (heard != EXCHANGE_CAME)
                                return heard;
                }
#if TARGET_HOST
                poll_pause();
#endif
        }
}

/* What a sender tells of a transfer, and a receiver expects. */
DEVICE uint64_t pair_told(const struct pair_op *op, const struct pair_lane *l) {
        return (uint64_t)l->turn << 32 | (op->signature ^ l->calls * UINT32_C(0x9e3779b1));
}

/* The sender has called what this rank has. */
DEVICE bool pair_agrees(const struct exchange_arguments *a, const struct pair_op *op, const struct pair_lane *l) {
        const uint64_t told = cell_load(&pair_words_of(a, a->rank, l->peer)->told[l->turn % PAIR_CELLS]);

        if (told == pair_told(op, l))
                return true;
        exchange_differs(exchange_header_of(a, a->rank), (struct bell_host *)a->host, a->slot,
                         (a->operation ? a->operation : (uint32_t)RING_OP_RECV) << 16 | op->type << 8, l->peer,
                         op->count, l->peer);
        return false;
}

/* Of the block: there is room for the lane's next chunk, or that has come. Whoever waits next has met all others again
 * before it writes what it has heard. */
DEVICE enum exchange_heard pair_wait(const struct exchange_arguments *a, const struct pair_op *op,
                                     const struct pair_lane *l, bool first, uint32_t thread,
                                     struct exchange_shared *shared) {
        if (thread / WARP_THREADS == UNIT_WAITS) {
                const uint32_t *word = pair_word_of(a, l->sends ? PAIR_CREDIT : PAIR_FLAG, a->rank, l->peer, l->lane);
                enum exchange_heard heard =
                        pair_listen(a, l, word, l->sends ? l->number - PAIR_TURNS : l->number, thread, shared);

                if (heard == EXCHANGE_CAME && !l->sends) {
                        flag_looked();
                        if (first && warp_any(!pair_agrees(a, op, l)))
                                heard = EXCHANGE_NEVER;
                }
                if (thread % WARP_THREADS == 0)
                        shared->heard = heard;
        }
        warp_sync();
        exchange_meet(shared);
        return (enum exchange_heard)shared->heard;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */
/* Has the thread, whose first unit begins with byte `at`, all units of a chunk? Then no access has a condition: behind
 * a store that has one AMD's compiler waits before the next, since it cannot count what is under way. */
DEVICE bool pair_is_whole(const struct pair_op *op, uint64_t at) {
        return op->units == PAIR_UNITS && at + (PAIR_UNITS - 1) * PAIR_STEP + 16 <= op->bytes;
}

DEVICE void pair_load(const struct pair_op *op, uint64_t at, struct quad (&x)[PAIR_UNITS]) {
        if (op->aligned && at + (op->units - 1u) * PAIR_STEP + 16 <= op->bytes) {
                UNROLL
                for (uint32_t u = 0; u < PAIR_UNITS; u++) {
                        const uint32_t unit = u < op->units ? u : 0; /* as in chunk_load */

                        x[u] = *(const struct quad *)(const void *)(op->address + at + unit * PAIR_STEP);
                }
                return;
        }
        UNROLL
        for (uint32_t u = 0; u < PAIR_UNITS; u++) {
                const uint64_t here = at + u * PAIR_STEP;

                x[u] = {0, 0, 0, 0};
                if (u >= op->units)
                        continue;
                if (op->aligned && here + 16 <= op->bytes)
                        x[u] = *(const struct quad *)(const void *)(op->address + here);
                else if (here < op->bytes)
                        x[u] = unit_load_any(op->address + here, op->bytes - here);
        }
}

DEVICE void pair_store(const struct pair_op *op, char *to, uint64_t at, const struct quad (&x)[PAIR_UNITS]) {
        if (op->aligned && pair_is_whole(op, at)) {
                UNROLL
                for (uint32_t u = 0; u < PAIR_UNITS; u++)
                        *(struct quad *)(void *)(to + at + u * PAIR_STEP) = x[u];
                return;
        }
        UNROLL
        for (uint32_t u = 0; u < PAIR_UNITS; u++) {
                const uint64_t here = at + u * PAIR_STEP;

                if (u >= op->units)
                        continue;
                if (op->aligned && here + 16 <= op->bytes)
                        *(struct quad *)(void *)(to + here) = x[u];
                else if (here < op->bytes)
                        unit_store_part(to + here, op->bytes - here, x[u], op->element_bytes);
        }
}

/* AMD: waits for what was loaded, here, and not before each store for what may be under way; see chunk_await. */
DEVICE void pair_await([[maybe_unused]] const struct quad (&x)[PAIR_UNITS]) {
#if TARGET_AMD
        UNROLL
        for (uint32_t u = 0; u < PAIR_UNITS; u++)
                asm volatile("" ::"v"(x[u].x));
#endif
}

DEVICE enum exchange_heard pair_send(const struct exchange_arguments *a, const struct pair_op *op, struct pair_lane *l,
                                     uint64_t chunk, uint32_t thread, struct exchange_shared *shared) {
        const uint64_t at = chunk * op->units * PAIR_STEP + thread * 16u;
        struct quad x[PAIR_UNITS], *place;
        enum exchange_heard heard;

        pair_load(op, at, x);
        l->number++;
        heard = pair_wait(a, op, l, chunk == 0, thread, shared);
        if (heard != EXCHANGE_CAME)
                return heard;
        place = pair_place(a, l->peer, a->rank, l, l->lane, thread);
        pair_await(x);
        if (pair_is_whole(op, at)) {
                UNROLL
                for (uint32_t u = 0; u < PAIR_UNITS; u++)
                        bulk_store(place + u * EXCHANGE_THREADS, x[u]);
        } else {
                UNROLL
                for (uint32_t u = 0; u < PAIR_UNITS; u++)
                        if (u < op->units && at + u * PAIR_STEP < op->bytes)
                                bulk_store(place + u * EXCHANGE_THREADS, x[u]);
        }
        EXCHANGE_STEP();
        fence_settle();
        warp_sync();
        exchange_meet(shared);
        if (thread / WARP_THREADS == UNIT_TELLS) {
                if (chunk == 0 && thread == 0)
                        cell_store(&pair_words_of(a, l->peer, a->rank)->told[l->turn % PAIR_CELLS], pair_told(op, l));
                fence_release_system();
                warp_sync();
                if (thread == 0)
                        word_store(pair_word_of(a, PAIR_FLAG, l->peer, a->rank, l->lane), l->number);
                EXCHANGE_STEP();
        }
        return EXCHANGE_CAME;
}

DEVICE enum exchange_heard pair_take(const struct exchange_arguments *a, const struct pair_op *op, struct pair_lane *l,
                                     uint64_t chunk, uint32_t thread, struct exchange_shared *shared) {
        const uint64_t at = chunk * op->units * PAIR_STEP + thread * 16u;
        struct quad x[PAIR_UNITS];
        const struct quad *place;
        enum exchange_heard heard;

        l->number++;
        heard = pair_wait(a, op, l, chunk == 0, thread, shared);
        if (heard != EXCHANGE_CAME)
                return heard;
        place = pair_place(a, a->rank, l->peer, l, l->lane, thread);
        EXCHANGE_STEP();
        UNROLL
        for (uint32_t u = 0; u < PAIR_UNITS; u++) { /* what is not there is not stored */
                const uint32_t unit = u < op->units ? u : 0;

                x[u] = bulk_load(place + unit * EXCHANGE_THREADS);
        }
        EXCHANGE_STEP();
        fence_settle(); /* what was loaded, too; before there are stores to wait for */
        warp_sync();
        exchange_meet(shared);
        if (thread / WARP_THREADS == UNIT_TELLS) {
                fence_release_system();
                warp_sync();
                if (thread == 0)
                        word_store(pair_word_of(a, PAIR_CREDIT, l->peer, a->rank, l->lane), l->number);
        }
        pair_store(op, op->address, at, x);
        EXCHANGE_STEP();
        return EXCHANGE_CAME;
}

/* ---- packets ----------------------------------------------------------------------------------------------------- */
/* Of a chunk that goes in packets: not 0, which new areas hold. */
DEVICE uint32_t pair_flag(uint32_t number) {
        return number * 2 + 1;
}

DEVICE enum exchange_heard pair_send_packed(const struct exchange_arguments *a, const struct pair_op *op,
                                            struct pair_lane *l, uint32_t thread, struct exchange_shared *shared) {
        uint64_t x[PACKED_UNITS];
        struct quad *place;
        enum exchange_heard heard;

        UNROLL
        for (uint32_t u = 0; u < PACKED_UNITS; u++) {
                const uint64_t at = thread * 8u + u * PACKED_STEP;

                x[u] = 0;
                if (op->aligned && at + 8 <= op->bytes)
                        x[u] = *(const uint64_t *)(const void *)(op->address + at);
                else if (at < op->bytes)
                        x[u] = exchange_load_part(op->address + at, op->bytes - at);
        }
        l->number++;
        heard = pair_wait(a, op, l, true, thread, shared);
        if (heard != EXCHANGE_CAME)
                return heard;
        place = pair_place(a, l->peer, a->rank, l, PAIR_BLOCKS(a->n_ranks), thread);
        UNROLL
        for (uint32_t u = 0; u < PACKED_UNITS; u++)
                if (u < op->units)
                        packet_store(place + u * EXCHANGE_THREADS, x[u], pair_flag(l->number));
        EXCHANGE_STEP();
        if (thread == 0) {
                cell_store(&pair_words_of(a, l->peer, a->rank)->told[l->turn % PAIR_CELLS], pair_told(op, l));
                EXCHANGE_STEP();
                /* For a receiver that waits for chunks, which then looks what was called: something else. One that
                 * waits for packets waits for this, too, or it could come when the area serves others. */
                word_store(pair_word_of(a, PAIR_FLAG, l->peer, a->rank, l->lane), l->number);
        }
        warp_sync();
        exchange_meet(shared); /* before somebody writes what is heard next */
        return EXCHANGE_CAME;
}

/* Of a warp: until its packets have come, and, if it is the one that waits in a block, what was called. */
DEVICE enum exchange_heard pair_listen_packed(const struct exchange_arguments *a, const struct pair_op *op,
                                              const struct pair_lane *l, const struct quad *place,
                                              uint64_t (&x)[PACKED_UNITS], uint32_t thread,
                                              struct exchange_shared *shared) {
        const bool waits = thread / WARP_THREADS == UNIT_WAITS, says = waits && thread % WARP_THREADS == 0;
        const uint64_t *told = &pair_words_of(a, a->rank, l->peer)->told[l->turn % PAIR_CELLS];
        const uint32_t *flag = pair_word_of(a, PAIR_FLAG, a->rank, l->peer, l->lane);
        bool said = *exchange_is_late(shared, thread); /* as the block before has, perhaps */

        if (warp_any(l->failed)) {
                exchange_fail(exchange_header_of(a, a->rank), exchange_status_of(a), RMX_E_DEVICE_LOST);
                return EXCHANGE_NEVER;
        }
        for (uint32_t round = 1;; round++) {
                bool all = true, there;

                UNROLL
                for (uint32_t u = 0; u < PACKED_UNITS; u++) { /* no load has a condition, as in chunk_load */
                        const uint32_t unit = u < op->units ? u : 0;
                        const struct quad v = quad_load(place + unit * EXCHANGE_THREADS);

                        all &= u >= op->units || packet_is(v, pair_flag(l->number));
                        x[u] = packet_payload(v);
                }
                if (waits) {
                        const bool called = warp_all((uint32_t)(cell_load(told) >> 32) == l->turn);

                        if (called && warp_any(!pair_agrees(a, op, l)))
                                return EXCHANGE_NEVER;
                        all &= called && word_load(flag) - l->number < PAIR_TURNS; /* so that it is not under way */
                }
                there = warp_all(all);
                if (says)
                        pair_waits(a, l, there, round, &said);
                if (there)
                        return EXCHANGE_CAME;
                if (pair_looks(round)) {
                        const enum exchange_heard heard = pair_look(a, thread, round, shared);

                        if (heard != EXCHANGE_CAME)
                                return heard;
                }
#if TARGET_HOST
                poll_pause();
#endif
        }
}

DEVICE enum exchange_heard pair_take_packed(const struct exchange_arguments *a, const struct pair_op *op,
                                            struct pair_lane *l, uint32_t thread, struct exchange_shared *shared) {
        uint64_t x[PACKED_UNITS] = {};
        enum exchange_heard heard;

        l->number++;
        heard = pair_listen_packed(a, op, l, pair_place(a, a->rank, l->peer, l, PAIR_BLOCKS(a->n_ranks), thread), x,
                                   thread, shared);
        warp_sync();
        if (exchange_any(shared, heard != EXCHANGE_CAME)) /* and all have read */
                return exchange_any(shared, heard == EXCHANGE_NEVER) ? EXCHANGE_NEVER : EXCHANGE_LATE;
        if (thread == 0)
                word_store(pair_word_of(a, PAIR_CREDIT, l->peer, a->rank, l->lane), l->number);
        UNROLL
        for (uint32_t u = 0; u < PACKED_UNITS; u++) {
                const uint64_t at = thread * 8u + u * PACKED_STEP;

                if (op->aligned && at + 8 <= op->bytes)
                        *(uint64_t *)(void *)(op->address + at) = x[u];
                else if (at < op->bytes)
                        exchange_store_part(op->address + at, op->bytes - at, x[u], op->element_bytes);
        }
        EXCHANGE_STEP();
        return EXCHANGE_CAME;
}

/* What a rank has for itself. */
DEVICE void pair_copy(const struct pair_op *op, uint32_t blocks, uint32_t block, uint32_t thread) {
        ROLLED
        for (uint64_t chunk = block; chunk * op->units * PAIR_STEP < op->bytes; chunk += blocks) {
                struct quad x[PAIR_UNITS];

                pair_load(op, chunk * op->units * PAIR_STEP + thread * 16u, x);
                pair_store(op, op->to, chunk * op->units * PAIR_STEP + thread * 16u, x);
        }
}
