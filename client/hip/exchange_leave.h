/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * How a block of an exchange kernel gives its place on the GPU to others. Also compiled for the host, where tests run
 * it.
 *
 * The kernels of a communicator wait for each other, so each has to be on its GPU. If ranks begin with the calls of
 * several communicators in different orders, on several streams, the first ones may fill each GPU, while what they wait
 * for finds no room on the other one, and all would wait for ever. So nobody waits for ever: a warp whose data has not
 * come for EXCHANGE_PATIENCE rounds of polling, some 8 ms (H100), writes down how far it is (struct exchange_progress)
 * and ends. A block that has lost a warp in this way leaves; only the last few that are still there stay, and take up
 * what was left, block by block. They have no patience to lose.
 *
 * So of a call that waits there are EXCHANGE_KEEPERS blocks at most after some time, and there is room for all calls
 * that a GPU has under way, some thirty. What has left goes on more slowly, when the others have come: they were late
 * by more than 8 ms, and 8 MB then take 0.8 ms in place of 0.1 (docs/performance.md, 43).
 *
 * Why somebody always goes on. Blocks need nothing of each other, only the warps of the same number on the other ranks.
 * Take the lowest block that is not through on every rank. Where it has not left, it is on its GPU, or will be, since
 * whoever has the places leaves. Where it has left, someone takes it up: whoever makes the sum of those that are
 * through and those that have left complete looks through all blocks from the first one on, and the others that stay
 * take blocks in the same order. All lower ones are through, so nobody who takes up what was left is held up by one of
 * them, and this one is next.
 *
 * A warp that goes on does once more what it had begun: it sends the same data to the same places, with the same
 * numbers, before anybody was told of it, or while those who were told see no difference. Nothing of the output that
 * belongs to this step has been stored, so it does not matter if input and output are the same.
 *
 * Calls and their parts are counted in one word, since nothing makes short calls longer than trips to memory one after
 * another. Its lowest byte says how many parts are through. Block 0 adds so much more than the others that the byte
 * comes round with the last part, whichever that is, and carries into the number of calls, which so goes up in the
 * same instant; until then the byte is above the half if block 0 is through, below if not. The highest byte counts
 * parts that have been left and that nobody has finished yet. (The calls between them last for decades.) A part may be
 * taken up, and be through, before the block that has left it has said so here: the highest byte is below zero then,
 * and a call is over when both bytes are zero, which whoever makes them so tells. A call of one block, which is through
 * with it as nearly always, need not even add: nobody else is there.
 *
 * What a block leaves is marked with the number of the call: who looks for work of a call that is over, while the next
 * one has begun on another stream, finds none.
 */
#include "client/hip/exchange_kernel.h"
#include "gpu/device/bell.h"
#include "gpu/device/order.h"

#ifndef EXCHANGE_SHARED /* tests */
/* What the threads of a block share. */
struct exchange_shared {
        uint64_t state;  /* of the header, when thread 0 began with the part, */
        uint32_t number; /* and of the last step of the part that the block is through with: of thread 0 */
        uint32_t next;   /* block to take up */
        uint32_t any;
};
#endif
DEVICE void exchange_meet(struct exchange_shared *shared);                /* of all threads of the block; */
DEVICE bool exchange_any(struct exchange_shared *shared, bool predicate); /* does it hold for one of them? */

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
        uint32_t tile;   /* the next one; EXCHANGE_SECOND: the first of its two steps is made */
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
        return (struct exchange_header *)(void *)a->area[rank];
}

/* The number of the present call. */
DEVICE uint32_t exchange_call(uint64_t state) {
        const uint32_t call = (uint32_t)(state / EXCHANGE_STATE_CALL) + 1;

        return call ? call : EXCHANGE_FIRST;
}

/* The last number of packets, or of chunks, of a block. */
DEVICE uint32_t *exchange_number_of(const struct exchange_arguments *a, uint32_t block) {
        struct exchange_header *own = exchange_header_of(a, a->rank);

        return a->units ? &own->chunks[block] : &own->sequence[block];
}

/* ---- a warp's way ------------------------------------------------------------------------------------------------ */
DEVICE uint64_t *exchange_progress_of(const struct exchange_arguments *a, uint32_t block, uint32_t thread) {
        return (uint64_t *)(void *)(a->area[a->rank] + EXCHANGE_OFFSET_PROGRESS) + (size_t)block * EXCHANGE_LANES +
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

/* ---- parts of a call --------------------------------------------------------------------------------------------- */
/* The first block from `from` on that has left call `call` and whose part nobody has taken up. Thread 0. */
DEVICE uint32_t exchange_take_up(const struct exchange_arguments *a, uint32_t from, uint32_t call) {
        struct exchange_header *own = exchange_header_of(a, a->rank);

        fence_acquire_device(); /* partner: exchange_part() of blocks that have left, before they counted that */
        ROLLED
        for (uint32_t block = from; block < a->blocks; block++) {
                if (word_load(&own->left[block]) == call && word_exchange(&own->left[block], call, 0) == call) {
                        fence_acquire_device(); /* partner: exchange_part() of the block that has left */
                        return block;
                }
        }
        return EXCHANGE_NO_BLOCK;
}

/* Parts that are through, of a call that has others. */
DEVICE uint32_t exchange_through(const struct exchange_arguments *a, uint64_t state) {
        const uint32_t parts = state % EXCHANGE_STATE_CALL;

        return parts < EXCHANGE_STATE_CALL / 2 ? parts : parts + a->blocks - EXCHANGE_STATE_CALL;
}

/* The part of block `block` is through. state: of the header, when thread 0 began. Returns what it is now. */
DEVICE uint64_t exchange_count(const struct exchange_arguments *a, uint32_t block, bool taken_up, uint64_t state) {
        const uint64_t part = block ? 1 : EXCHANGE_STATE_CALL + 1 - a->blocks;
        struct exchange_header *own = exchange_header_of(a, a->rank);

        static_assert(2 * EXCHANGE_BLOCKS <= EXCHANGE_STATE_CALL / 2, "block 0 can be told from all others");
        if (taken_up)
                return counter_add_cell(&own->state, part - EXCHANGE_STATE_LEFT);
        if (a->blocks > 1)
                return counter_add_cell(&own->state, part);
        cell_store(&own->state, state + part);
        return state + part;
}

/* Of the last block: tells a kernel on another stream, which may begin. */
DEVICE void exchange_end(const struct exchange_arguments *a) {
        if (!a->number)
                return;
        fence_full_system();
        word_store(&((struct bell_host *)a->host)->finished[a->slot], a->number);
}

/* The last number of a part whose first steps others have made. */
DEVICE uint32_t exchange_last(const struct exchange_arguments *a, uint32_t block) {
        const uint32_t steps = (a->tiles + a->depth - 1) / a->depth * (1 + a->back);

        return exchange_after(word_load(exchange_number_of(a, block)), steps);
}

/* Thread 0, when all threads of its block are through with a block's part, or some have left it. taken_up: it was
 * another block's. Which one to take up next; EXCHANGE_NO_BLOCK: the block may end. (What it needs to know is in shared
 * memory by now: each trip to other memory would make every call longer.) */
DEVICE uint32_t exchange_part(const struct exchange_arguments *a, uint32_t block, bool left, bool taken_up,
                              const struct exchange_shared *shared) {
        struct exchange_header *own = exchange_header_of(a, a->rank);
        const uint32_t call = exchange_call(shared->state);
        uint64_t state;
        uint32_t n_over;

        if (left) {
                fence_release_device(); /* for how far the block's warps are, which have met; */
                word_store(&own->left[block], call);
                fence_release_device(); /* partner, twice: exchange_take_up() */
                EXCHANGE_LEAVING();
        } else {
                word_store(exchange_number_of(a, block), taken_up ? exchange_last(a, block) : shared->number);
        }
        if (a->number)
                fence_release_system(); /* for the block's threads, which have met: whoever sees the number may read on
                                         */
        state = left ? counter_add_cell(&own->state, EXCHANGE_STATE_LEFT)
                     : exchange_count(a, block, taken_up, shared->state);
        if (state % EXCHANGE_STATE_CALL == 0) { /* all parts are through, or none is, which have been left */
                if (state / EXCHANGE_STATE_LEFT == 0)
                        exchange_end(a);
                if (!left || state / EXCHANGE_STATE_LEFT == 0)
                        return EXCHANGE_NO_BLOCK;
        }
        if (taken_up)
                return exchange_take_up(a, block + 1, call);
        n_over = exchange_through(a, state) + (uint32_t)(state / EXCHANGE_STATE_LEFT);
        if (n_over == a->blocks || (left && a->blocks - n_over < EXCHANGE_KEEPERS))
                return exchange_take_up(a, 0, call);
        return EXCHANGE_NO_BLOCK;
}
