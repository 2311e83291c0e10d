/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * How a block of an exchange kernel gives its place on the GPU to others. Also compiled for the host, where tests run
 * it.
 *
 * The kernels of a communicator wait for each other, so each has to be on its GPU. If ranks begin with the calls of
 * several communicators in different orders, on several streams, the first ones may fill each GPU, while what they wait
 * for finds no room on the other one, and all would wait for ever. So nobody waits for ever: a warp whose data has not
 * come for EXCHANGE_PATIENCE rounds of polling and some more, 8 ms (H100), writes down how far it is (struct
 * exchange_progress) and ends. A block that has lost a warp in this way has left its part; it ends if EXCHANGE_KEEPERS
 * others stay that are late, too. If not it stays itself, and works on parts that were left, one after another.
 *
 * Nothing of this may make calls longer whose ranks are in time: a word that all blocks count in takes half a
 * microsecond of each. So a block that is in time ends without a word or a look (but that a call with a number counts
 * the blocks that have ended). For that nobody may rely on it. A warp that has waited for EXCHANGE_PATIENCE rounds says
 * that its block is late, and goes on to wait for a last while, and a block that has said so looks before it ends. Only
 * such blocks count as those that stay.
 *
 * header.late counts them. A block that leaves first marks its part, and then, in one step, goes out of the word, which
 * it may do if the word says that enough others are there, and makes it another one, whether it goes or not. Whoever is
 * about to end as a late block reads the word, looks for a mark, and goes out only if no part has been left since.
 * So of all blocks that were in the word when a part was left, the last one to go out has seen the mark, or somebody
 * has taken the part up, who is in the word. That one either finishes the part or marks it again.
 *
 * Why somebody always goes on. Of a call that waits EXCHANGE_KEEPERS blocks stay, and one that has just come to find
 * that it is late, and leaves, or stays so that another one leaves. So a GPU that has room for one block more than that
 * of all calls that wait there gives every block a place at some time. Each part is then with its block, or was left;
 * and those who stay do not stay with what does not come, but put a part back after such a while, and go
 * on with the next one that was left. Whoever comes to a part sends what is next, and that stays where it is until the
 * other rank comes to the part. So when on all ranks somebody has been there, the next one who comes there is a step
 * further, whoever was there together. Nobody needs anything of a block of another number.
 *
 * A block with long chunks, as one with lines, takes a whole processor, of which transfers that wait leave six (H200)
 * until their blocks leave, too (exchange_pair.h). In clusters of four, which would suit products that run beside
 * (docs/performance.md, 76), it would need four of them in one part of the GPU (GPC), and there may be none then: so
 * clusters are for programs that know that no transfer of another communicator waits meanwhile (RAILMUX_GPU_CLUSTERS).
 *
 * What has left goes on more slowly, when the others have come: they were late by more than 8 ms, and 8 MB then take
 * 0.5 ms in place of 0.1 (docs/benchmarks.md).
 *
 * A warp that goes on does once more what it had begun: it sends the same data to the same places, with the same
 * numbers, before anybody was told of it, or while those who were told see no difference. Nothing of the output that
 * belongs to this step has been stored, so it does not matter if input and output are the same.
 *
 * At the end of a kernel nothing is marked or counted here any more. A kernel on another stream, which is behind this
 * one by its number, begins when all blocks have ended.
 */
#include "client/hip/exchange_kernel.h"
#include "gpu/device/bell.h"
#include "gpu/device/order.h"

#ifndef EXCHANGE_SHARED /* tests */
/* What the threads of a block share. */
struct exchange_shared {
        uint32_t calls;  /* of the header, when thread 0 began, */
        uint32_t number; /* and of the last step of the part that the block is through with: of thread 0 */
        uint32_t next;   /* the part that has been taken up; EXCHANGE_NO_BLOCK: none */
        uint32_t any;
        uint32_t heard;               /* enum exchange_heard, of the chunks that the block waits for */
        uint8_t late[EXCHANGE_LANES]; /* of each warp */
};
#endif
DEVICE void exchange_meet(struct exchange_shared *shared);                /* of all threads of the block; */
DEVICE bool exchange_any(struct exchange_shared *shared, bool predicate); /* does it hold for one of them? */
DEVICE uint32_t exchange_block(const struct exchange_shared *shared); /* which one it is, and which of its threads */
DEVICE uint32_t exchange_thread(uint32_t thread);                     /* this one: again, to keep nothing */

#ifndef EXCHANGE_STEP /* tests let others go on here, and for long there */
#define EXCHANGE_STEP()    ((void)0)
#define EXCHANGE_LEAVING() ((void)0)
#endif

#define EXCHANGE_NO_BLOCK UINT32_MAX

/* What a warp has heard of those it waits for. */
enum exchange_heard {
        EXCHANGE_CAME,
        EXCHANGE_LATE,  /* it has no patience left */
        EXCHANGE_NEVER, /* they will not come */
};

/* How far a warp is with the part of a block that it has left. */
struct exchange_progress {
        uint32_t tile;   /* the next one, or step of chunks; EXCHANGE_SECOND: the first of a tile's two steps is made */
        uint32_t number; /* of the last step that is made */
};
#define EXCHANGE_SECOND  0x80000000u
#define EXCHANGE_THROUGH UINT32_MAX

/* Numbers of steps and calls leave out 0, which new areas hold, and some more when they come round, since
 * places go by them. */
DEVICE uint32_t exchange_next(uint32_t number) {
        return number + 1 ? number + 1 : EXCHANGE_FIRST;
}

/* `steps` times the next one. */
DEVICE uint32_t exchange_after(uint32_t number, uint32_t steps) {
        return number + steps < number ? number + steps + EXCHANGE_FIRST : number + steps;
}

DEVICE struct exchange_header *exchange_header_of(const struct exchange_arguments *a, uint32_t rank) {
        return (struct exchange_header *)(void *)a->head[rank];
}

/* The number of the present call. */
DEVICE uint32_t exchange_call(uint32_t calls) {
        return exchange_next(calls);
}

/* The last number of packets, or of chunks, of a block. */
DEVICE uint32_t *exchange_number_of(const struct exchange_arguments *a, uint32_t block) {
        struct exchange_header *own = exchange_header_of(a, a->rank);

        return a->units ? &own->chunks[block] : &own->sequence[block];
}

/* ---- a warp's way ------------------------------------------------------------------------------------------------ */
DEVICE uint64_t *exchange_progress_of(const struct exchange_arguments *a, uint32_t block, uint32_t thread) {
        return (uint64_t *)(void *)(a->head[a->rank] + EXCHANGE_OFFSET_PROGRESS) + (size_t)block * EXCHANGE_LANES +
               thread / WARP_THREADS;
}

/* From its beginning, or from where it was left. (Tiles are kept as their complement: what is computed from a load is
 * waited for there and then, so that whoever begins does not wait where both ways meet.) */
DEVICE struct exchange_progress exchange_resume(const struct exchange_arguments *a, uint32_t block, uint32_t thread,
                                                bool again) {
        uint64_t cell;

        if (!again)
                return {0, word_load(exchange_number_of(a, block))};
        cell = cell_load(exchange_progress_of(a, block, thread));
        return {~(uint32_t)cell, (uint32_t)(cell >> 32)};
}

DEVICE void exchange_write_down(const struct exchange_arguments *a, uint32_t block, uint32_t thread, uint32_t tile,
                                uint32_t number) {
        if (thread % WARP_THREADS == 0)
                cell_store(exchange_progress_of(a, block, thread), (uint64_t)number << 32 | (uint32_t)~tile);
}

/* ---- patience ---------------------------------------------------------------------------------------------------- */
/* Has this warp been late? Every thread says so. */
DEVICE uint8_t *exchange_is_late(struct exchange_shared *shared, uint32_t thread) {
        return &shared->late[exchange_thread(thread) / WARP_THREADS];
}

/* Rounds of polling were in vain, and the time has come to look at that. Has the warp no patience left? */
DEVICE bool exchange_patience(const struct exchange_arguments *a, uint32_t thread, uint32_t round,
                              struct exchange_shared *shared) {
        struct exchange_header *own = exchange_header_of(a, a->rank);

        if (warp_any(*exchange_is_late(shared, thread))) /* none says so below before all have read */
                return true;
        if (round < a->patience)
                return false;
        *exchange_is_late(shared, thread) = 1;
        if (thread % WARP_THREADS == 0 && word_add(&own->is_late[exchange_block(shared)], 1) == 0)
                (void)word_add(&own->late, 1);
        return false;
}

#if TARGET_NVIDIA /* (a stack is nothing for AMD's GPUs, and they have registers enough) */
/* The same as a function of its own, which takes no registers of the loop's. */
DEVICE_OUTLINE bool exchange_patience_aside(const struct exchange_arguments *a, uint32_t thread, uint32_t round,
                                            struct exchange_shared *shared) {
        return exchange_patience(a, thread, round, shared);
}
#endif

/* Round 1, 2, .. of polling was in vain. Has the warp no patience left? */
template <uint32_t N>
DEVICE bool exchange_waits(const struct exchange_arguments *a, uint32_t thread, uint32_t round,
                           struct exchange_shared *shared) {
        if (round % EXCHANGE_WHILE)
                return false;
#if TARGET_NVIDIA
        if constexpr (N > 2)
                return exchange_patience_aside(a, thread, round, shared);
#endif
        return exchange_patience(a, thread, round, shared);
}

/* ---- parts of a call --------------------------------------------------------------------------------------------- */
/* Of thread 0, when all threads of its block are through with a part. calls: when the call began. */
DEVICE void exchange_through(const struct exchange_arguments *a, uint32_t part, uint32_t number, uint32_t calls) {
        if (!a->lines) /* whose warps have done so themselves */
                word_store(exchange_number_of(a, part), number);
        if (part == 0)
                word_store(&exchange_header_of(a, a->rank)->calls, calls + 1);
}

/* The same when the block ends: the last one tells a kernel on another stream, which may begin. */
DEVICE void exchange_ended(const struct exchange_arguments *a) {
        struct exchange_header *own = exchange_header_of(a, a->rank);

        if (!a->number)
                return;
        fence_release_system(); /* for the block's threads, which have met: whoever sees the number may read on */
        if (a->blocks > 1 && counter_next(&own->ended) != a->blocks)
                return;
        word_store(&own->ended, 0);
        fence_full_system();
        word_store(&((struct bell_host *)a->host)->finished[a->slot], a->number);
}

/* Steps of a call in chunks, which a rank tells: tiles come one after the other, and what is sent back with the next.
 */
DEVICE uint32_t chunk_steps(const struct exchange_arguments *a) {
        return a->tiles + a->back;
}

/* The last number of a part whose first steps others have made. */
DEVICE uint32_t exchange_last(const struct exchange_arguments *a, uint32_t part) {
        const uint32_t steps = a->units ? chunk_steps(a) : (a->tiles + a->depth - 1) / a->depth * (1 + a->back);

        if (a->lines) /* each warp has its own */
                return 0;
        return exchange_after(word_load(exchange_number_of(a, part)), steps);
}

/* The first part from `from` on, all around, that a block has left and nobody has taken up. */
DEVICE uint32_t exchange_take_up(const struct exchange_arguments *a, uint32_t from) {
        struct exchange_header *own = exchange_header_of(a, a->rank);

        ROLLED
        for (uint32_t i = 0; i < a->blocks; i++) {
                const uint32_t part = from + i < a->blocks ? from + i : from + i - a->blocks;

                if (word_load(&own->left[part]) && word_exchange(&own->left[part], 1, 0) == 1) {
                        fence_acquire_device(); /* partner: exchange_part() of whoever has left it */
                        return part;
                }
        }
        return EXCHANGE_NO_BLOCK;
}

/* A part is left for others. May the block end? */
DEVICE bool exchange_leave(const struct exchange_arguments *a, uint32_t part) {
        struct exchange_header *own = exchange_header_of(a, a->rank);

        fence_release_device(); /* for how far the block's warps are, which have met; */
        word_store(&own->left[part], 1);
        fence_release_device(); /* partner, twice: exchange_part() and exchange_take_up() */
        EXCHANGE_LEAVING();
        for (;;) {
                const uint32_t late = word_load(&own->late);
                const bool ends = late % EXCHANGE_LATE_TIME > EXCHANGE_KEEPERS;

                if (word_exchange(&own->late, late, late + EXCHANGE_LATE_TIME - ends) == late)
                        return ends;
        }
}

/* Another part that was left, from `from` on; if there is none the block goes out. Others may have gone out meanwhile,
 * which makes no mark, so it need not look again for that: when data comes that a call has long waited for, all its
 * blocks end at the same time. */
DEVICE uint32_t exchange_look(const struct exchange_arguments *a, uint32_t from) {
        struct exchange_header *own = exchange_header_of(a, a->rank);

        for (;;) {
                const uint32_t times = word_load(&own->late) / EXCHANGE_LATE_TIME;
                uint32_t part, late;

                fence_acquire_device(); /* partner: exchange_leave() */
                part = exchange_take_up(a, from);
                EXCHANGE_LEAVING();
                if (part != EXCHANGE_NO_BLOCK)
                        return part;
                do {
                        late = word_load(&own->late);
                        if (late / EXCHANGE_LATE_TIME == times && word_exchange(&own->late, late, late - 1) == late)
                                return EXCHANGE_NO_BLOCK;
                } while (late / EXCHANGE_LATE_TIME == times);
        }
}

/* Thread 0 of a block that is late, when all its threads are through with a part, or some have left it. Which part is
 * next; EXCHANGE_NO_BLOCK: the block may end. */
DEVICE uint32_t exchange_part(const struct exchange_arguments *a, uint32_t part, bool left,
                              const struct exchange_shared *shared) {
        struct exchange_header *own = exchange_header_of(a, a->rank);
        const bool taken_up = shared->next != EXCHANGE_NO_BLOCK;
        uint32_t next = EXCHANGE_NO_BLOCK;

        if (!left)
                exchange_through(a, part, taken_up ? exchange_last(a, part) : shared->number, word_load(&own->calls));
        if (!left || !exchange_leave(a, part))
                next = exchange_look(a, taken_up ? part + 1 : 0);
        if (next == EXCHANGE_NO_BLOCK)
                word_store(&own->is_late[exchange_block(shared)], 0);
        return next;
}
