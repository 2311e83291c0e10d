/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What a block of a transfer's kernel does: sends and receives between two ranks, by themselves or as the pieces of a
 * collective that is nothing else. Also compiled for the host, where warps have one thread.
 *
 * A channel is another rank and a direction. Its lanes are its blocks, and those of the same number in both ranks have
 * the same chunks of each transfer, of which the first has lane 0's first turn, and so on, all lanes in turn. A lane
 * has places for PAIR_TURNS chunks in the receiver's area, in memory that nothing else uses. So a sender goes on when
 * its data fit there, whether the receiver has come or not, and waits for nobody at its end; and other requests of the
 * communicator do not come into it. What is small goes in packets, as a chunk of lane 0, to a place where nothing else
 * is ever sent, so that no data can be taken for a flag; nothing is fenced then (exchange_run.h). Else one warp of a
 * block waits for the other rank, and one tells it, as in exchange_bulk.h.
 *
 * Each lane counts its chunks, all through the communicator's life: the sender tells how many it has sent, behind a
 * fence, and the receiver how many it has taken. Counts come round, and there is no chunk more under way than places,
 * so only small differences mean anything. All begin with a number that the ranks have agreed on (exchange.c).
 *
 * Lane 0 of a channel has a chunk of each transfer, if only an empty one. With it the sender tells which one it is and
 * what the call said; the receiver compares. Such words take turns of PAIR_CELLS, so none is overwritten that has not
 * been read. A sender does not hear of a mismatch: the receiver's rank says so to railmuxd, which tells all. Of a
 * collective it is told, too, how many such calls there have been before: all channels count them, those as well that
 * have nothing to carry. So ranks that name different roots, and perhaps all send, find out when one of them takes what
 * was sent in an earlier call.
 *
 * Who waits for long leaves a word in the host's memory, for whom. It stays there as long as that is so.
 *
 * Blocks that wait can leave, as those of collectives do (exchange_leave.h). A part is a lane here, and the block
 * leaves as a whole, so how far a lane is are one transfer and one chunk of that. Those that stay carry what is left
 * much more slowly, and pipelines wait for each other in every round, so it takes PAIR_PATIENCE until one leaves;
 * after that it has no patience any more.
 */
#include "client/hip/exchange_pair_step.h"

static_assert(PAIR_BLOCKS_OF_TWO <= EXCHANGE_BLOCKS * EXCHANGE_LANES, "there is a cell for how far each part is");

/* ---- a block ----------------------------------------------------------------------------------------------------- */
/* This block's chunks of a transfer, from one of them on, which is told when the block leaves. */
DEVICE enum exchange_heard pair_transfer(const struct exchange_arguments *a, const struct pair_op *op,
                                         struct pair_lane *l, uint64_t *chunk, uint32_t thread,
                                         struct exchange_shared *shared) {
        const uint64_t bytes = (uint64_t)op->units * PAIR_STEP;

        if (op->packed)
                return l->sends ? pair_send_packed(a, op, l, thread, shared)
                                : pair_take_packed(a, op, l, thread, shared);
        ROLLED
        for (; *chunk * bytes < op->bytes; *chunk += op->blocks) {
                thread = exchange_thread(thread); /* and what comes of it, not kept */
                const enum exchange_heard heard = l->sends ? pair_send(a, op, l, *chunk, thread, shared)
                                                           : pair_take(a, op, l, *chunk, thread, shared);

                if (heard != EXCHANGE_CAME)
                        return heard;
        }
        return EXCHANGE_CAME;
}

/* How far a lane is that is left: transfer << 48 | chunk. Which turn that is, who comes counts. */
#define PAIR_CHUNK ((UINT64_C(1) << 48) - 1)

DEVICE uint64_t *pair_progress_of(const struct exchange_arguments *a, uint32_t part) {
        return (uint64_t *)(void *)(a->head[a->rank] + EXCHANGE_OFFSET_PROGRESS) + part;
}

/* Which part is the block's: its own, or the one that it has taken up. Of thread 0, or of who knows which. */
DEVICE uint32_t pair_part_of(const struct exchange_shared *shared, bool again) {
        return again ? shared->next : exchange_block(shared);
}

/* What the rank counts: chunks of the lane, and turns of its channel. */
DEVICE uint32_t *pair_kept_of(const struct exchange_arguments *a, const struct pair_lane *l) {
        return pair_word_of(a, l->sends ? PAIR_SENT : PAIR_TAKEN, a->rank, l->peer, l->lane);
}

DEVICE uint32_t *pair_turn_of(const struct exchange_arguments *a, const struct pair_lane *l) {
        struct pair_words *words = pair_words_of(a, a->rank, l->peer);

        return l->sends ? &words->sends : &words->receives;
}

/* A part: all transfers of a lane, or what is left of them. False: it is left. */
DEVICE bool pair_part_run(const struct pair_arguments *p, bool again, uint32_t thread, struct exchange_shared *shared) {
        const struct exchange_arguments *a = &p->all;
        const uint32_t part = pair_part_of(shared, again);
        enum exchange_heard heard = EXCHANGE_CAME;
        struct pair_lane l = {};
        uint32_t i, k = 0; /* (a pointer to the channel would have AMD's compiler copy all parameters to each thread's
                            * memory) */
        uint64_t chunk;

        while (part >= p->channel[k].begin + (uint32_t)p->channel[k].blocks)
                k++;
        l.peer = p->channel[k].peer;
        l.lane = part - p->channel[k].begin;
        l.sends = p->channel[k].sends != 0;
        i = p->channel[k].op;
        chunk = l.lane;
        l.failed = word_load(&exchange_header_of(a, a->rank)->failed);
        l.number = word_load(pair_kept_of(a, &l));
        if (l.lane == 0)
                l.turn = word_load(pair_turn_of(a, &l));
        if (l.lane == 0 && a->operation)
                l.calls = word_load(&pair_words_of(a, a->rank, l.peer)->calls[l.sends]);
        if (again) {
                const uint64_t progress = cell_load(pair_progress_of(a, part));

                for (; i != (uint32_t)(progress >> 48); i = p->op[i].next)
                        l.turn++;
                chunk = progress & PAIR_CHUNK;
        }
        ROLLED
        while (i < PAIR_OPS) {
                l.turn++;
                if (l.lane < p->op[i].blocks)
                        heard = pair_transfer(a, &p->op[i], &l, &chunk, thread, shared);
                if (heard != EXCHANGE_CAME)
                        break;
                i = p->op[i].next;
                chunk = l.lane;
        }
        if (heard == EXCHANGE_LATE && thread == 0) {
                if (l.lane == 0)
                        pair_names(a, &l, true);
                cell_store(pair_progress_of(a, pair_part_of(shared, shared->next != EXCHANGE_NO_BLOCK)),
                           (uint64_t)i << 48 | chunk);
        }
        if (thread != 0)
                return heard != EXCHANGE_LATE;
        VALUE_FORGET(l.peer); /* or what is computed from it waits in registers meanwhile */
        VALUE_FORGET(l.lane);
        word_store(pair_kept_of(a, &l), heard == EXCHANGE_LATE ? l.number - 1 : l.number);
        if (heard == EXCHANGE_LATE)
                return false;
        /* Each block has had a chunk, so all have loaded what is stored now. */
        if (l.lane == 0)
                word_store(pair_turn_of(a, &l), l.turn);
        if (l.lane == 0 && a->operation)
                word_store(&pair_words_of(a, a->rank, l.peer)->calls[l.sends], l.calls + 1);
        return true;
}

/* Has one of the block's warps been late? All have met since they waited. */
DEVICE bool pair_is_late(const struct exchange_shared *shared) {
        bool late = false;

        UNROLL
        for (uint32_t warp = 0; warp < EXCHANGE_THREADS / WARP_THREADS; warp++) /* of AMD's there are half as many */
                late |= shared->late[warp] != 0;
        return late;
}

/* Of all threads of a block, into shared->next: which part comes next; EXCHANGE_NO_BLOCK: the block may end. As
 * exchange_next_part(). */
PAIR_ASIDE void pair_next_part(const struct exchange_arguments *a, uint32_t thread, bool left,
                               struct exchange_shared *shared) {
        struct exchange_header *own = exchange_header_of(a, a->rank);

        fence_settle();
        exchange_meet(shared);
        if (thread == 0) {
                const bool again = shared->next != EXCHANGE_NO_BLOCK;
                const uint32_t part = pair_part_of(shared, again);
                uint32_t next = EXCHANGE_NO_BLOCK;

                if (!left || !exchange_leave(a, part))
                        next = exchange_look(a, again ? part + 1 : 0);
                if (next == EXCHANGE_NO_BLOCK)
                        word_store(&own->is_late[exchange_block(shared)], 0);
                shared->next = next;
        }
        *exchange_is_late(shared, thread) = 1; /* all of the block */
        exchange_meet(shared);
}

/* One warp, ahead of a kernel that receives large things and does nothing else: until the first chunk of one of them
 * has come, or never will, as the kernel finds out then. (Not of all: each of them may be what another one's sender
 * waits for.) */
DEVICE void pair_ahead(const struct pair_arguments *p, uint32_t thread) {
        const struct exchange_arguments *a = &p->all;
        const uint32_t peer = p->channel[0].peer;
        const struct pair_lane first = {peer, 0, false, 0, word_load(&pair_words_of(a, a->rank, peer)->receives) + 1,
                                        0,    0};
        bool said = false;

        for (uint32_t round = 1;; round++) {
                bool there = false;

                ROLLED
                for (uint32_t i = thread; i < p->n_channels; i += WARP_THREADS) {
                        const uint32_t *flag = pair_word_of(a, PAIR_FLAG, a->rank, p->channel[i].peer, 0);
                        const uint32_t *taken = pair_word_of(a, PAIR_TAKEN, a->rank, p->channel[i].peer, 0);

                        there |= flag_look(flag) - word_load(taken) - 1 < PAIR_TURNS;
                }
                there = warp_any(there);
                if (thread == 0) /* for the first; when another one has come the kernel says who is waited for */
                        pair_waits(a, &first, there, round, &said);
                if (there || warp_any(exchange_gives_up(a, 0, thread, round)))
                        return;
#if TARGET_HOST
                poll_pause();
#endif
        }
}

/* A collective counts on channels, too, that carry nothing of it, and so have no warp here. */
DEVICE void pair_count(const struct pair_arguments *p, uint32_t thread) {
        const struct exchange_arguments *a = &p->all;

        ROLLED
        for (uint32_t i = thread; i < 2 * a->n_ranks; i += WARP_THREADS) {
                uint32_t *calls = &pair_words_of(a, a->rank, i / 2)->calls[i % 2];
                bool carries = false;

                ROLLED
                for (uint32_t k = 0; k < p->n_channels; k++)
                        carries |= p->channel[k].peer == i / 2 && p->channel[k].sends == i % 2;
                if (!carries)
                        word_store(calls, word_load(calls) + 1);
        }
}

DEVICE void pair_all(const struct pair_arguments *p, uint32_t thread, struct exchange_shared *shared) {
        if (thread == 0)
                shared->next = EXCHANGE_NO_BLOCK;
        *exchange_is_late(shared, thread) = 0;
        ROLLED
        for (bool again = false;; again = true) {
                const bool through = pair_part_run(p, again, thread, shared);

                if (!pair_is_late(shared))
                        break;
                pair_next_part(&p->all, thread, !through, shared);
                if (shared->next == EXCHANGE_NO_BLOCK)
                        break;
        }
        pair_copy(&p->own, p->all.blocks, exchange_block(shared), thread);
        if (p->all.operation && exchange_block(shared) == 0 && thread < WARP_THREADS)
                pair_count(p, thread);
        if (p->all.number)
                fence_settle();
        exchange_meet(shared);
        if (thread == 0)
                exchange_ended(&p->all);
}
