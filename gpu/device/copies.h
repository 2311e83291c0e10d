/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Bursts of requests that add nothing up, moved by the GPU's copy engines: no processor of it is taken from anybody.
 *
 * The host starts these engines, so it has to know all addresses, and those are known when all ranks have met. So
 * nothing is asked for before (burst.h asks for a kernel early). Then lane 1 writes what this rank has to move, a few
 * pieces, into host memory (table_report.copies), and the number into the word that tells of every burst. The thread
 * that launches bursts puts one copy for each piece on a stream and behind them a write of the job's state, DONE, for
 * which lane 1 waits as it does for a kernel's last block (burst_ended). All else is as with a kernel.
 *
 * DONE. What the copies have written is there for everybody before the word is: the write waits for all that is before
 * it in its stream, and fences like a thread that releases to the system. It needs no processor either, which a kernel
 * of one thread would, and may have to wait for. Lane 1 then releases and leaves, so peers see what was written to
 * their memory when they see that this rank has left; the engines read and write past the L1 of any processor.
 *
 * Who moves what. As by lanes: of what lies in blocks a rank moves its own input, which is one piece for each rank. A
 * broadcast's lanes have parts all over it, so here its ranks have other shares, one piece each (copies_share). That
 * only goes if all do it, so each says so when it enters (reach_word); if somebody does not, it is a kernel's. A share
 * crosses the root's links once: this rank fetches it into its own output, and passes it on from there. The pieces are
 * on one stream, so each finds there what those before it have written.
 *
 * Taking back. Before tables are acknowledged, or the worker ends, nothing may touch the memory any more. Host and GPU
 * do not exchange words with each other, which not every bus can; each has words that it alone writes, one a place:
 *
 *      the worker     withdrawn = number;   fence;  reads begun
 *      the host       begun = number, YES;  fence;  reads withdrawn
 *
 * Both fences order a store before a load, so at least one of them sees the other's word (whoever's fence is the later
 * in their common order does):
 *
 *      the worker finds no `begun`      so the host will find `withdrawn`, whenever it comes: taken back, nothing is
 *                                       moved.
 *      the worker finds `begun`         the host may have found `withdrawn` or not; it says which: DONE in the end, or
 *                                       `begun` = number, PASSED. Neither waits for anybody but this GPU's copies.
 *      the host finds no `withdrawn`    so the worker will find `begun`, and wait: the pieces are to be moved.
 *      the host finds `withdrawn`       it moves nothing, and says PASSED.
 *
 * Places come again. One whose job has been taken back, and has been found free, may be another's before the host
 * looks, which may even have read the former number. So the host reads pieces only after it has found no `withdrawn`:
 * then the worker does not give the place away before DONE. And `withdrawn` counts up: who posts number n sets it to n
 * - 1, and the host takes whatever is not before its own number for a withdrawal. It cannot be one of a job that is
 * still to be moved, since what has been posted there before is over.
 */
#include "gpu/device/burst.h"

static_assert(TABLE_COPIES >= REACH_RANKS_MAX, "a piece for each rank");

DEVICE constexpr bool copies_can(uint32_t mode) {
        return mode == REACH_ALL_GATHER || mode == REACH_ALL_TO_ALL || mode == REACH_BROADCAST;
}

/* Only if all ranks' are copies: their shares are others than those of lanes. */
DEVICE constexpr bool copies_need_all(uint32_t mode) {
        return mode == REACH_BROADCAST;
}

#define COPIES_ALIGN 256u /* shares begin at multiples of so many bytes, but for the memory's own begin */

/* Bytes of what crosses a broadcast's links that are this rank's to move: of the root's none, unless of two ranks. */
DEVICE uint32_t copies_share(const struct task *t, uint32_t n, uint32_t me, uint32_t *ret_first) {
        const uint32_t shares = n > 2 ? n - 1 : n, share = (me - t->root - 1) & (n - 1); /* the root's is the last */
        const uint32_t most = ((t->total + shares - 1) / shares + COPIES_ALIGN - 1) & ~(COPIES_ALIGN - 1);
        const uint32_t first = share * most;

        *ret_first = first;
        if (share >= shares || first >= t->total)
                return 0;
        return t->total - first < most ? t->total - first : most;
}

/* One of the pieces that this rank has to move: to rank p. */
struct copies_piece {
        uint32_t place; /* in the order */
        uint64_t from, to, bytes;
};

DEVICE struct copies_piece copies_piece_broadcast(const struct worker_shared *s, const struct task *t, uint32_t p) {
        const uint32_t n = s->rank.n_ranks, me = s->rank.rank;
        const bool own = p == me, root = t->root == me;
        struct copies_piece piece;
        uint32_t first;

        piece.bytes = copies_share(t, n, me, &first);
        if (root && own) { /* besides */
                piece.bytes = t->total;
                first = 0;
        } else if (p == t->root) {
                piece.bytes = 0;
        }
        piece.place = (p - me - root) & (n - 1); /* the own one first, if the others are made of it */
        piece.from = (root || own ? s->view.data[t->root] : s->view.to[me]) + first;
        piece.to = s->view.to[p] + first;
        return piece;
}

/* What others wait for comes first, and not all ranks begin with the same one: from the next rank on, the own one last.
 */
DEVICE struct copies_piece copies_piece_block(const struct worker_shared *s, const struct task *t, uint32_t p) {
        const uint32_t n = s->rank.n_ranks, me = s->rank.rank;
        struct copies_piece piece;

        piece.place = (p - me - 1) & (n - 1);
        piece.from = t->in + (t->reach == REACH_ALL_TO_ALL ? (uint64_t)p * t->stride : 0);
        piece.to = s->view.to[p] + (uint64_t)me * t->stride;
        piece.bytes = t->stride;
        return piece;
}

/* All have met, and the addresses are in the view: asks the host for the copies. False: all places are taken. */
DEVICE_OUTLINE bool copies_post(const struct worker_shared *s, struct task *t) {
        SHARED_POINTER(s);
        const uint32_t number = burst_next(s);
        struct burst_job *job = burst_job_of(&s->w, number);
        struct table_copies *copies = &s->w.report->copies[number % TABLE_BURSTS];

        if (!number)
                return false;
        for (uint32_t p = warp_thread(); p < s->rank.n_ranks; p += WARP_THREADS) {
                const struct copies_piece piece =
                        t->reach == REACH_BROADCAST ? copies_piece_broadcast(s, t, p) : copies_piece_block(s, t, p);

                cell_store(&copies->piece[piece.place].from, piece.from);
                cell_store(&copies->piece[piece.place].to, piece.to);
                cell_store(&copies->piece[piece.place].bytes, piece.from == piece.to ? 0 : piece.bytes); /* in place */
        }
        warp_sync();
        if (warp_thread() == 0) {
                t->reached = number;
                word_store(&copies->n, s->rank.n_ranks);
                word_store(&copies->withdrawn, number - 1);
                word_store(&job->state, burst_state(number, BURST_COPYING));
                word_store(&burst_queue_of(&s->w)->posted, number);
        }
        fence_release_system();
        warp_sync();
        if (warp_thread() == 0)
                cell_store(&s->w.report->burst[number % TABLE_BURSTS],
                           (uint64_t)number << 32 | TABLE_BURST_COPIES | t->total >> 10);
        warp_sync();
        return true;
}

/* Not all ranks' would be copies. */
DEVICE void copies_not(struct task *t) {
        if (warp_thread() == 0 && copies_need_all(t->reach))
                t->burst = BURST_BY_KERNEL;
        warp_sync();
}

/* As burst_quiet. */
DEVICE_OUTLINE bool copies_quiet(const struct worker *w, struct task *t) {
        const uint32_t number = t->reached, place = number % TABLE_BURSTS;
        struct burst_job *job = burst_job_of(w, number);
        uint32_t moved = 0;

        if (warp_thread() == 0) {
                moved = 1; /* if the place is another's by now, too */
                if (word_load(&job->state) == burst_state(number, BURST_COPYING)) {
                        const uint64_t *begun = &w->report->begun[place];

                        word_store(&w->report->copies[place].withdrawn, number);
                        fence_full_system();
                        if (cell_load(begun) >> 32 == number)
                                while (word_load(&job->state) == burst_state(number, BURST_COPYING) &&
                                       cell_load(begun) != ((uint64_t)number << 32 | TABLE_BEGUN_PASSED))
                                        BURST_PAUSE();
                        moved = word_load(&job->state) == burst_state(number, BURST_DONE);
                        if (!moved) {
                                word_store(&job->state, burst_state(number, BURST_FREE));
                                t->reached = 0;
                        }
                }
        }
        moved = warp_read(moved, 0);
        warp_sync();
        return !moved;
}
