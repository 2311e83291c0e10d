/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Bursts: large requests that many blocks move, for as long as that takes.
 *
 * Where few blocks are resident (policies `shared` and `adaptive`) they have not the loads in flight that the links
 * want; where many are, the clients' own kernels miss them. So the data of a large request that reaches (reach.h) is
 * moved by a kernel of its own, which the host launches when it is told and which ends when it is done.
 *
 * Such a kernel moves nothing before lane 1 of the request has met the other ranks, as always: then all inputs are
 * there, all outputs may be written, and all addresses are known. When it has ended lane 1 leaves, and goes on as if it
 * had moved all itself. So what is begun never waits for another GPU, and bursts of different communicators or nodes
 * cannot wait for each other, whatever the order they come in.
 *
 * From asking for it to its first instruction a kernel takes about 9 us, as long as the ranks take to meet if they come
 * at the same time. So it is asked for when lane 1 has entered. If its blocks are there first they wait for the word to
 * go, for BURST_LOOKS looks at most (some 40 us); then they give up, and it is asked for once more when all have met.
 *
 * The other lanes meet nobody. They wait for lane 1's verdict, a word in their own GPU's memory: the ranks can reach,
 * then they have nothing to do; or they cannot, and each goes through staging as usual. Lane 1 of all ranks comes to
 * the same verdict, so all lanes of all ranks do.
 *
 * Nothing is touched that has been taken out of the tables: before a worker acknowledges a version, or ends, it takes
 * back the word to go if no block has seen it, and waits for the end of what has begun, which takes as long as the data
 * does. (Blocks may have to wait for other kernels' blocks to end. Their stream has the highest priority.) What was
 * taken back is asked for again when the request goes on.
 *
 * Who moves what. The same as without bursts: the lanes' parts (reach_data.h), so results are the same bits. A burst of
 * more warps than there are lanes cuts each lane's share into slices.
 *
 * What adds nothing up can be moved by copy engines instead of blocks: copies.h.
 */
#include "gpu/device/reach_data.h"

/*
 * What a job's state says, beside its number: number << 3 | .. Whoever changes it exchanges it for what he saw.
 *
 *   the worker     FREE or DONE -> POSTED (of the next number);  POSTED, WAITING -> GO;  POSTED, WAITING, GO -> FREE
 *   blocks         POSTED -> WAITING;  GO -> RUNNING;  WAITING -> FREE, who has waited for too long
 *   the last one   RUNNING -> DONE
 *
 * Nobody moves anything before it is RUNNING, and then all blocks do; so it can be taken back until then. (Copies are
 * COPYING from the beginning, see copies.h.)
 */
enum burst_state {
        BURST_FREE = 0,
        BURST_POSTED = 1,
        BURST_WAITING = 2,
        BURST_GO = 3,
        BURST_RUNNING = 4,
        BURST_DONE = 5,
        BURST_COPYING = 6,
};
#define BURST_STATE_BITS 3u
#define BURST_STATES     ((1u << BURST_STATE_BITS) - 1)

#define BURST_LANES STAGING_DATA_LANES /* among which a burst's warps share the work out */

struct burst_job {
        uint32_t state;
        uint32_t ended; /* blocks */
        uint32_t n_ranks, me;
        uint64_t data[REACH_RANKS_MAX], to[REACH_RANKS_MAX]; /* every rank's input and output as mapped here */
        struct task task;                                    /* lane 1's */
};

/* In memory of the GPU. Only the worker that serves lane 1 posts. */
struct burst_queue {
        uint32_t posted; /* number of the last one */
        uint32_t zero[31];
        struct burst_job job[TABLE_BURSTS];
};

/* What moves a task's data. */
enum burst_by {
        BURST_BY_LANES = 0, /* no burst */
        BURST_BY_KERNEL = 1,
        BURST_BY_COPIES = 2,
};

enum burst_verdict {
        BURST_NO = 1, /* through staging; of a kernel's blocks: nothing */
        BURST_YES = 2,
};

DEVICE struct burst_queue *burst_queue_of(const struct worker *w) {
        return (struct burst_queue *)w->table->bursts; /* never changes */
}

DEVICE struct burst_job *burst_job_of(const struct worker *w, uint32_t number) {
        return &burst_queue_of(w)->job[number % TABLE_BURSTS];
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */
/* Those of more requests than a ring has lines have a place each. */
DEVICE uint64_t *burst_cell(const struct worker_shared *s, uint32_t sequence) {
        return &((struct lane_state *)s->rank.states)[sequence % STAGING_LANES].verdict;
}

DEVICE void burst_tell(const struct worker_shared *s, const struct task *t, uint32_t verdict) {
        if (warp_thread() == 0)
                cell_store(burst_cell(s, t->sequence), (uint64_t)t->sequence << 32 | verdict);
}

/* enum burst_verdict; 0: none yet. The task's rank is cached. */
DEVICE uint32_t burst_verdict(const struct worker_shared *s, const struct task *t) {
        const uint64_t cell = cell_load(burst_cell(s, t->sequence));

        return warp_read((uint32_t)(cell >> 32) == t->sequence ? (uint32_t)cell : 0, 0);
}

/* ---- lane 1 ------------------------------------------------------------------------------------------------------ */
DEVICE uint32_t burst_state(uint32_t number, uint32_t state) {
        return number << BURST_STATE_BITS | state;
}

/* Is the place another burst's by now? Then what this number had to do is over: it was done, or given up. */
DEVICE bool burst_other(uint32_t number, uint32_t state) {
        return (state ^ burst_state(number, 0)) >> BURST_STATE_BITS != 0;
}

/* By one thread. False: it is no longer what it was. */
DEVICE bool burst_change(struct burst_job *job, uint32_t number, uint32_t from, uint32_t to) {
        return word_exchange(&job->state, burst_state(number, from), burst_state(number, to)) ==
               burst_state(number, from);
}

/* The next number; 0: all places are taken. */
DEVICE uint32_t burst_next(const struct worker_shared *s) {
        const uint32_t next = warp_read(word_load(&burst_queue_of(&s->w)->posted), 0) + 1, number = next + !next;
        const uint32_t was = warp_read(word_load(&burst_job_of(&s->w, number)->state), 0) & BURST_STATES;

        return was == BURST_FREE || was == BURST_DONE ? number : 0;
}

/* Asks for the kernel. False: all places are taken. */
DEVICE bool burst_post(const struct worker_shared *s, struct task *t) {
        struct burst_queue *q = burst_queue_of(&s->w);
        const uint32_t number = burst_next(s), i = warp_thread();
        struct burst_job *job = burst_job_of(&s->w, number);

        if (!number)
                return false;
        warp_sync();
        if (i == 0)
                t->reached = number;
        warp_sync();
        ROLLED
        for (uint32_t k = i; k < sizeof(struct task) / 4; k += WARP_THREADS)
                word_store((uint32_t *)(void *)&job->task + k, ((const uint32_t *)(const void *)t)[k]);
        if (i == 0) {
                word_store(&job->ended, 0);
                word_store(&job->n_ranks, s->rank.n_ranks);
                word_store(&job->me, s->rank.rank);
                word_store(&job->state, burst_state(number, BURST_POSTED));
                word_store(&q->posted, number);
        }
        fence_release_system(); /* for the kernel, by way of the host */
        warp_sync();
        if (i == 0)
                cell_store(&s->w.report->burst[number % TABLE_BURSTS], (uint64_t)number << 32 | t->total >> 10);
        warp_sync();
        return true;
}

/* All have met, and the addresses are in the view. False: its blocks have given up, and it has to be asked for again.
 */
DEVICE bool burst_go(const struct worker_shared *s, struct task *t) {
        struct burst_job *job = burst_job_of(&s->w, t->reached);
        const uint32_t state = warp_read(word_load(&job->state), 0);
        uint32_t gone =
                state != burst_state(t->reached, BURST_POSTED) && state != burst_state(t->reached, BURST_WAITING);

        /* (What has been given up may be another task's place. Only this worker makes it that.) */
        for (uint32_t p = warp_thread(); !gone && p < s->rank.n_ranks; p += WARP_THREADS) {
                cell_store(&job->data[p], s->view.data[p]);
                cell_store(&job->to[p], s->view.to[p]);
        }
        fence_release_device();
        warp_sync();
        if (warp_thread() == 0 && !gone)
                gone = !burst_change(job, t->reached, BURST_POSTED, BURST_GO) &&
                       !burst_change(job, t->reached, BURST_WAITING, BURST_GO);
        gone = warp_read(gone, 0);
        warp_sync();
        if (gone && warp_thread() == 0)
                t->reached = 0;
        warp_sync();
        return !gone;
}

/* Has the data been moved? */
DEVICE bool burst_ended(const struct worker_shared *s, const struct task *t, uint32_t spins) {
        const uint32_t *at = &burst_job_of(&s->w, t->reached)->state;
        uint32_t looks = 0, state;

        while ((state = warp_read(word_load(at), 0)) != burst_state(t->reached, BURST_DONE) &&
               !burst_other(t->reached, state))
                if (++looks >= spins)
                        return false;
        fence_acquire_device();
        warp_sync();
        return true;
}

#ifndef BURST_PAUSE /* where who is waited for runs only when told to */
#define BURST_PAUSE poll_pause
#endif

/* Afterwards nothing is moved for this task. True: it was not, and is to be asked for again. */
DEVICE_OUTLINE bool burst_quiet(const struct worker *w, struct task *t) {
        struct burst_job *job = burst_job_of(w, t->reached);
        const uint32_t number = t->reached;
        uint32_t moved = 0;

        if (warp_thread() == 0 && number && !burst_change(job, number, BURST_POSTED, BURST_FREE) &&
            !burst_change(job, number, BURST_WAITING, BURST_FREE) && !burst_change(job, number, BURST_GO, BURST_FREE)) {
                while (word_load(&job->state) == burst_state(number, BURST_RUNNING))
                        BURST_PAUSE();
                moved = word_load(&job->state) == burst_state(number, BURST_DONE) ||
                        burst_other(number, word_load(&job->state));
        }
        moved = warp_read(moved, 0);
        warp_sync();
        if (!moved && warp_thread() == 0)
                t->reached = 0;
        warp_sync();
        return !moved;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */
/* What one of `n_warps` moves. s->view, s->rank.rank, and the warp's own copy of the task, are filled. */
DEVICE void burst_move(struct worker_shared *s, struct task *t, uint32_t n_ranks, uint32_t warp, uint32_t n_warps) {
        const uint32_t slices = n_warps > BURST_LANES ? n_warps / BURST_LANES : 1;

        ROLLED
        for (uint32_t v = warp; v < slices * BURST_LANES; v += n_warps) {
                const uint32_t slice = v / BURST_LANES;
                struct reach_units u;
                uint32_t share, n, from, until;

                warp_sync();
                if (warp_thread() == 0)
                        t->lane = 1 + v % BURST_LANES;
                warp_sync();
                reach_units_share(t, n_ranks, s->rank.rank, &u);
                share = u.n;
                reach_units_own(t, n_ranks, s->rank.rank, &u);
                n = ((share + u.n + slices - 1) / slices + WARP_THREADS - 1) & ~(WARP_THREADS - 1);
                from = slice * n;
                until = from + n < share + u.n ? from + n : share + u.n;
                if (from >= until)
                        continue;
                if (n_ranks == 8)
                        reach_move_mode<8>(s, t, share, from, until);
                else if (n_ranks == 4)
                        reach_move_mode<4>(s, t, share, from, until);
                else
                        reach_move_mode<2>(s, t, share, from, until);
        }
}

#define BURST_LOOKS 64u

/* A look at what is to be done, by one thread of a block; all blocks come to the same. Yes, no, or 0: wait. `last`: it
 * has been waited for long enough. */
DEVICE uint32_t burst_look(struct burst_job *job, uint32_t number, bool last) {
        const uint32_t state = word_load(&job->state);

        if (state == burst_state(number, BURST_RUNNING) ||
            (state == burst_state(number, BURST_GO) && burst_change(job, number, BURST_GO, BURST_RUNNING)))
                return BURST_YES;
        if (state == burst_state(number, BURST_POSTED))
                (void)burst_change(job, number, BURST_POSTED, BURST_WAITING);
        else if (state != burst_state(number, BURST_WAITING) && state != burst_state(number, BURST_GO))
                return BURST_NO;
        else if (last)
                (void)burst_change(job, number, BURST_WAITING, BURST_FREE);
        return 0;
}

/* By one thread, when all threads of the block have executed fence_release_system() and met. */
DEVICE void burst_end(struct burst_job *job, uint32_t number, uint32_t n_blocks) {
        if (word_add(&job->ended, 1) + 1 < n_blocks)
                return;
        fence_release_device();
        word_store(&job->state, burst_state(number, BURST_DONE));
}

/* The job's part of what burst_move needs, by `n` threads of which this is number i; then they have to meet. */
DEVICE void burst_load(const struct burst_job *job, struct worker_shared *s, uint32_t i, uint32_t n) {
        for (uint32_t p = i; p < REACH_RANKS_MAX; p += n) {
                s->view.data[p] = cell_load(&job->data[p]);
                s->view.to[p] = cell_load(&job->to[p]);
        }
        if (i == 0) {
                s->rank.rank = word_load(&job->me);
                s->rank.n_ranks = word_load(&job->n_ranks);
        }
}

DEVICE void burst_load_task(const struct burst_job *job, struct task *t) {
        for (uint32_t k = warp_thread(); k < sizeof(struct task) / 4; k += WARP_THREADS)
                ((uint32_t *)(void *)t)[k] = word_load((const uint32_t *)(const void *)&job->task + k);
        warp_sync();
        if (warp_thread() == 0)
                t->spread = BURST_LANES;
        warp_sync();
}
