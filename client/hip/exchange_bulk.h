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
 * How much is in a step. Whatever else a rank does meanwhile, a step takes some 2 us more than its bytes on the links,
 * and none of what was tried against that helped: a warp of its own for fences and flags, to store what has come after
 * the flags are out, to let the next tile wait for them, blocks that begin at different times, a step more under way
 * (docs/performance.md, 86 to 88). What helps is to have fewer steps. So with three and four ranks a thread has two
 * units of each piece in a tile, if it has four in all (units_most in exchange_cut.c), and places are as large. A place
 * lies where it does whatever a call has in a tile, so all of the above holds for calls of both kinds, one after the
 * other.
 *
 * Long chunks. A communicator that has few blocks (max_blocks, so that what is computed beside has the other
 * processors) has places for many, so each block's tiles are as much longer, up to 256 KiB for each other rank: with a
 * step for 32 KiB four blocks spend half of their time on fences. What is left is what a processor can move, some 43
 * bytes a clock of loads and stores together, whatever moves them (docs/performance.md, 74, 76). So two ranks, too,
 * send back what they have added up, half each, where the chunks are long: four loads and four stores for two units of
 * each rank, where it is six and four if both add up everything. Where places lie depends on the communicator's number
 * of blocks alone: if it was the call's, whoever begins could write to what somebody still reads of the call before.
 */
#include "client/hip/exchange_line.h"
#include "client/hip/exchange_tile.h"

/* ---- steps ------------------------------------------------------------------------------------------------------ */
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
