/* SPDX-License-Identifier: MIT */
/* Workers run the ranks' requests, and settle what all ranks have finished. Read lock. See comm.c. */
#include <utlist.h>

#include "executor/comm_private.h"
#include "executor/executor.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "topology/place.h"

#define COMM_STEP_BYTES                                                                                                \
        (256u << 10) /* what a rank may do in one step: bounds how long the control thread waits for the lock */

static struct request *comm_rank_first_collective(struct comm_rank *rank) {
        struct request *request;

        DL_FOREACH(rank->requests, request)
                if (!request_p2p(request))
                        break;
        return request;
}

/* Mutex held. */
static void comm_settle(struct comm *comm, struct comm_op *op) {
        uint32_t sequence = op->sequence;

        comm->settled = sequence;
        comm->operations++;
        comm->bytes += op->bytes;
        executor_count(comm->executor, operations, 1);
        executor_count(comm->executor, bytes, op->bytes);
        op->n_rung = 0;
        if (comm->lost_after != comm->lost_until) { /* all ranks are past the lost range */
                comm->lost_after = comm->lost_until = sequence;
                comm_mark(comm->marks->lost, (uint64_t)sequence << 32 | sequence);
        }
        comm_mark(comm->marks->final, sequence); /* after the range: takeover.c */
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if (comm->ranks[i].here)
                        comm_answer(&comm->ranks[i], comm_rank_first_collective(&comm->ranks[i]),
                                    ring_status(RMX_OK, -1));
}

static bool comm_rank_take(struct comm_rank *rank) {
        /* acquire, with the clear in comm_rank_drop: the former runner's `current` and backend state */
        return !atomic_flag_test_and_set(&rank->running); /* seq_cst with `again` */
}

static void comm_rank_drop(struct comm_rank *rank) {
        atomic_flag_clear(&rank->running); /* release with comm_rank_take; seq_cst with `again` */
}

/* Answers the queues of a failed comm once no worker is inside any rank. */
static bool comm_flush(struct comm *comm) {
        uint32_t taken = 0;

        while (taken < comm->n_ranks && comm_rank_take(&comm->ranks[taken]))
                taken++;
        if (taken == comm->n_ranks) {
                comm_lock(comm);
                comm_answer_error(comm);
                comm_unlock(comm);
        }
        while (taken)
                comm_rank_drop(&comm->ranks[--taken]);
        return true; /* not done yet counts as work: nobody may go to sleep over it */
}

/* Mutex held. Is the request right behind a lost one that waits for its answer only? See comm_p2p.c. */
static bool comm_behind_lost(const struct comm_rank *rank, const struct request *request) {
        return request && request != rank->requests && request->prev->result;
}

static bool comm_rank_start(struct comm_rank *rank) {
        struct comm *comm = rank->comm;

        comm_lock(comm);
        /* Under the mutex: since an error is there, the queue may hold requests that were never validated. */
        rank->current = comm_error(comm) || comm->disputed || comm_behind_lost(rank, rank->run) ? NULL : rank->run;
        if (rank->current)
                rank->run = rank->run->next;
        comm_unlock(comm);
        if (!rank->current)
                return false;
        comm->executor->ops->start(comm->gpu, rank->index, rank->current->gpu, rank->current->n_run);
        return true;
}

/* The backend moved the current request, perhaps to its end. */
static void comm_rank_moved(struct comm_rank *rank, bool done) {
        struct comm *comm = rank->comm;
        struct request *request = rank->current;
        struct comm_op *op;

        if (!done && !request_p2p(request))
                return;
        comm_lock(comm);
        if (done)
                rank->current = NULL;
        /* An error that came in the meantime wins: the flush answers, and it waits for our running flag. */
        if (comm_error(comm)) {
                comm_unlock(comm);
                return;
        }
        if (request_p2p(request)) {
                comm_p2p_moved(rank, request, done);
        } else {
                op = &comm->ops[request->sequence & (comm->window - 1)];
                if (++op->n_done == comm->n_here)
                        comm_settle(comm, op);
        }
        comm_unlock(comm);
}

static bool comm_rank_run(struct comm_rank *rank, uint64_t *bytes) {
        struct comm *comm = rank->comm;
        uint64_t in_hand = 0;
        bool moved = false;
        int r = GPU_IDLE;

        /* Whoever holds the rank may have looked in vain already and be about to sleep over what we saw. Either it sees
         * our `again` after it has let go, or we get the rank. */
        if (!comm_rank_take(rank)) {
                atomic_store(&rank->again, true); /* with the exchange below */
                if (!comm_rank_take(rank))
                        return false;
        }
        /* Many finished requests in a row are one long step, too. */
        while (in_hand < COMM_STEP_BYTES && !comm_error(comm) && (rank->current || comm_rank_start(rank))) {
                in_hand += request_bytes(rank->current);
                r = comm->executor->ops->progress(comm->gpu, rank->index, COMM_STEP_BYTES);
                moved = moved || r != GPU_IDLE;
                if (r == GPU_MISMATCH)
                        comm_nodes_mismatch(rank);
                else if (r != GPU_IDLE)
                        comm_rank_moved(rank, r == GPU_DONE);
                if (r != GPU_DONE)
                        break;
        }
        comm_rank_drop(rank);
        moved |= atomic_exchange(&rank->again, false); /* with the store above: another round */
        *bytes += in_hand;
        return moved;
}

/* Runs the ranks on this node, or the others; several turns only where there are several nodes. */
static bool comm_run_ranks(struct comm *comm, uint32_t first_rank, uint32_t numa, bool own, uint64_t *ret_bytes) {
        bool moved = false;

        for (uint32_t k = 0; k < comm->n_ranks; k++) {
                struct comm_rank *rank = &comm->ranks[(first_rank + k) % comm->n_ranks];

                /* relaxed: a request queued just now is found in the next round, and its latcher makes that round */
                if ((rank->numa == numa) == own && atomic_load_explicit(&rank->queued, memory_order_relaxed))
                        moved |= comm_rank_run(rank, ret_bytes);
        }
        return moved;
}

static bool comm_idle(const struct comm *comm) {
        /* relaxed: what was there when the busy bit was cleared is seen (executor_busy_clear) */
        if (atomic_load_explicit(&comm->flush, memory_order_relaxed))
                return false;
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                if (atomic_load_explicit(&comm->ranks[i].queued, memory_order_relaxed)) /* the same */
                        return false;
        }
        return true;
}

/* There may be thousands of comms that do nothing, and those of one tenant must not cost the others time. So a comm
 * without requests is taken out of those that workers look at. Who queues one stores first and sets the bit then; who
 * clears the bit looks once more afterwards. Either the look finds the request, or the bit is set after it was cleared.
 * True: it was found, and its latcher may have passed meanwhile, so this worker makes another round. */
static bool comm_rest(struct comm *comm) {
        if (!comm_idle(comm))
                return false;
        executor_busy_clear(comm->executor, comm->index);
        if (comm_idle(comm))
                return false;
        executor_busy_set(comm->executor, comm->index);
        return true;
}

bool comm_run(struct comm *comm, uint32_t first_rank, uint32_t numa, uint64_t *ret_bytes) {
        bool moved;

        /* acquire, with the release in comm_set_error and comm_answer_error */
        if (atomic_load_explicit(&comm->flush, memory_order_acquire))
                return comm_flush(comm);
        moved = comm_run_ranks(comm, first_rank, numa, true, ret_bytes);
        if (topology_place_count(comm->executor->place) > 1)
                moved |= comm_run_ranks(comm, first_rank, numa, false, ret_bytes);
        return moved || comm_rest(comm);
}
