/* SPDX-License-Identifier: MIT */
/*
 * A communicator in the executor.
 *
 * A request's life: bell.c latches it -> comm_rank_ring checks its sequence, validates it, compares it with what the
 * other ranks called and queues it at its rank -> a worker runs the rank's requests one after the other through the
 * backend -> when all ranks have finished a sequence it is settled: marks.final is written, then every rank is told.
 *
 * Locks. The mutex guards queues and sequences and is held for a few dozen instructions. comm_rank.running makes one
 * worker at a time run a rank; it may take the mutex while it holds that flag, never the other way round. The control
 * thread changes things only under the executor's write lock, when no worker is inside.
 *
 * Errors. An error of a comm is sticky and the same for all. No rank is told before no worker touches its memory: the
 * control thread has the write lock anyway; a worker that finds a mismatch only sets `error` and `flush`, and
 * comm_flush answers once it holds every rank's running flag.
 *
 * Marks. rung is stored before the request can start, final after all outputs are complete and before anybody is told;
 * takeover.c relies on exactly that.
 */
#include "executor/comm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/executor.h"
#include "executor/session.h"
#include "executor/takeover.h"
#include "executor/validate.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include "util/memfd.h"
#include "util/type.h"

#define COMM_STEP_BYTES                                                                                                \
        (256u << 10) /* what a rank may do in one step: bounds how long the control thread waits for the lock */

/* Release, with the plain reading order of a successor (takeover.c): everything before it in program order is there. */
#define mark(word, value) atomic_store_explicit(&(word), (value), memory_order_release)

static uint32_t comm_error(const struct comm *comm) {
        return atomic_load_explicit(&comm->error, memory_order_acquire); /* with the release in comm_set_error */
}

static void comm_set_error(struct comm *comm, uint32_t status, const char *text) {
        if (comm_error(comm))
                return;
        comm->error_text = text;
        mark(comm->marks->error, status);
        atomic_store_explicit(&comm->flush, true, memory_order_release);   /* with the acquire in comm_run */
        atomic_store_explicit(&comm->error, status, memory_order_release); /* with the acquire in comm_error */
        executor_attention(comm->executor);
}

struct comm *comm_find(struct executor *executor, uint64_t id) {
        struct comm *comm;

        HASH_FIND(hh, executor->comms, &id, sizeof(id), comm);
        return comm;
}

static int comm_get_plans(struct comm *comm, char *error, size_t error_size) {
        struct plan_verdict verdict;
        int r;

        for (uint32_t i = 0; i < comm->n_choices; i++) {
                const struct plan_choice *c = &comm->choices[i];

                r = plans_get(&comm->executor->plans, c->operation, c->algorithm, comm->n_ranks, &comm->geometry,
                              &comm->plans[i], &verdict);
                if (r < 0)
                        return r;
                if (r) {
                        snprintf(error, error_size, "plan %s of %s for %u ranks refused: %s",
                                 plan_algorithm_name(c->algorithm), plan_operation_name(c->operation), comm->n_ranks,
                                 verdict.text);
                        return COMM_E_PLAN;
                }
        }
        return 0;
}

static uint32_t comm_take_over(struct comm *comm, const struct takeover *t) {
        comm->epoch = t->epoch;
        comm->settled = comm->highest = t->settled;
        comm->lost_after = t->lost_after;
        comm->lost_until = t->lost_until;
        comm->lost = t->n_lost;
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                struct comm_rank *rank = &comm->ranks[r];

                /* relaxed: written by ourselves or by a dead process */
                rank->expected = atomic_load_explicit(&comm->marks->published[r], memory_order_relaxed) + 1;
                rank->resync = t->used;
        }
        return t->n_lost;
}

int comm_attach(struct executor *executor, const struct comm_parameters *p, const struct comm_member *members,
                int marks_fd, struct comm **ret_comm, uint32_t *ret_lost, char *error, size_t error_size) {
        struct takeover takeover;
        struct comm *comm;
        void *marks;
        int r;

        if (comm_find(executor, p->id))
                return -EEXIST;
        if (!p->n_ranks || p->n_ranks > PLAN_RANKS_MAX || p->n_choices > PLAN_CHOICES_MAX || !p->geometry.slots ||
            p->geometry.part_bytes < 64 || p->geometry.part_bytes % 64) {
                snprintf(error, error_size, "comm %llu: ranks, choices or geometry out of bounds",
                         (unsigned long long)p->id);
                return COMM_E_INVALID;
        }
        comm = calloc(1, sizeof(*comm) + p->n_ranks * sizeof(comm->ranks[0]));
        if (!comm)
                return -ENOMEM;
        comm->executor = executor;
        comm->id = p->id;
        snprintf(comm->name, sizeof(comm->name), "%s", p->name ? p->name : "");
        comm->n_ranks = p->n_ranks;
        comm->geometry = p->geometry;
        comm->n_choices = p->n_choices;
        memcpy(comm->choices, p->choices, p->n_choices * sizeof(p->choices[0]));
        comm->window = p->ring_depth ? p->ring_depth : RING_DEPTH_DEFAULT;
        pthread_mutex_init(&comm->mutex, NULL);
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                struct comm_rank *rank = &comm->ranks[i];

                rank->comm = comm;
                rank->index = i;
                rank->handle = members[i].handle;
                rank->gpu = members[i].gpu;
                rank->left = members[i].left;
                rank->last_sequence = members[i].last_sequence;
                atomic_flag_clear(&rank->running);
        }
        HASH_ADD(hh, executor->comms, id, sizeof(comm->id), comm);
        r = memfd_map(marks_fd, MARKS_BYTES, 1, 1, &marks);
        if (r < 0)
                goto error;
        comm->marks = marks;
        r = comm_get_plans(comm, error, error_size);
        if (r)
                goto error;
        comm->ops = calloc(comm->window, sizeof(*comm->ops));
        if (!comm->ops) {
                r = -ENOMEM;
                goto error;
        }
        r = executor->ops->comm_new(executor->gpu, comm->n_ranks, &comm->geometry, &comm->gpu);
        if (r < 0)
                goto error;
        if (!takeover_read(comm->marks, comm->n_ranks, p->epoch, &takeover)) {
                snprintf(error, error_size, "comm %llu: marks of an unknown version", (unsigned long long)p->id);
                r = COMM_E_INVALID;
                goto error;
        }
        *ret_lost = comm_take_over(comm, &takeover);
        executor_count(executor, lost, *ret_lost);
        r = executor_list_comm(executor, comm);
        if (r < 0)
                goto error;
        if (takeover.error || p->code)
                comm_fail(comm, takeover.error ? takeover.error : ring_status(p->code, p->failed_rank),
                          "failed before");
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                struct comm_rank *rank = &comm->ranks[i];

                rank->session = members[i].session;
                if (rank->session)
                        HASH_ADD(hh, rank->session->ranks, handle, sizeof(rank->handle), rank);
                else if (!rank->left)
                        comm_rank_lost(rank);
        }
        *ret_comm = comm;
        return 0;
error:
        comm_detach(comm);
        return r;
}

struct comm *comm_detach(struct comm *comm) {
        if (!comm)
                return NULL;
        if (!comm_quiet(comm))
                comm_fail(comm, ring_status(RMX_E_ABORTED, -1), "taken away");
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if (comm->ranks[i].session)
                        HASH_DEL(comm->ranks[i].session->ranks, &comm->ranks[i]);
        executor_unlist_comm(comm->executor, comm);
        HASH_DEL(comm->executor->comms, comm);
        if (comm->gpu)
                comm->executor->ops->comm_free(comm->gpu);
        memfd_unmap(comm->marks, MARKS_BYTES);
        free(comm->ops);
        pthread_mutex_destroy(&comm->mutex);
        free(comm);
        return NULL;
}

/* ---- answering (mutex held) ---------------------------------------------------------------------------------------
 */

static void comm_answer(struct comm_rank *rank, struct request *request, uint32_t status) {
        uint32_t sequence = request->sequence;

        bell_complete(request, status); /* first: `published` may lag behind what a rank was told, never run ahead */
        mark(rank->comm->marks->published[rank->index], sequence);
}

static struct request *comm_dequeue(struct comm_rank *rank) {
        struct request *request = rank->head;

        if (!request)
                return NULL;
        rank->head = request->next;
        if (!rank->head)
                rank->tail = NULL;
        if (rank->run == request)
                rank->run = rank->head;
        /* relaxed: a hint for comm_run; whoever must not miss a request holds the mutex */
        atomic_fetch_sub_explicit(&rank->queued, 1, memory_order_relaxed);
        return request;
}

/* Every rank's running flag is held, or the write lock. */
static void comm_answer_error(struct comm *comm) {
        struct request *request;

        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                struct comm_rank *rank = &comm->ranks[i];

                rank->current = NULL;
                while ((request = comm_dequeue(rank)))
                        comm_answer(rank, request, comm_error(comm));
        }
        atomic_store_explicit(&comm->flush, false, memory_order_release); /* with the acquire in comm_run */
}

static void comm_settle(struct comm *comm, struct comm_op *op) {
        uint32_t sequence = op->sequence;

        comm->settled = sequence;
        comm->operations++;
        comm->bytes += op->count * type_size(op->type);
        executor_count(comm->executor, operations, 1);
        executor_count(comm->executor, bytes, op->count * type_size(op->type));
        op->n_rung = 0;
        mark(comm->marks->final, sequence);
        if (comm->lost_after != comm->lost_until) { /* all ranks are past the lost range */
                comm->lost_after = comm->lost_until = sequence;
                mark(comm->marks->lost, (uint64_t)sequence << 32 | sequence);
        }
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                comm_answer(&comm->ranks[i], comm_dequeue(&comm->ranks[i]), ring_status(RMX_OK, -1));
}

/* ---- control thread ------------------------------------------------------------------------------------------------
 */

void comm_fail(struct comm *comm, uint32_t status, const char *text) {
        pthread_mutex_lock(&comm->mutex);
        comm_set_error(comm, status, text);
        comm_answer_error(comm);
        pthread_mutex_unlock(&comm->mutex);
}

void comm_rank_lost(struct comm_rank *rank) {
        /* A rank that has left owes nobody anything; if others went on without it the comm has failed already. */
        if (!rank->left)
                comm_fail(rank->comm, ring_status(RMX_E_PEER_LOST, (int32_t)rank->index),
                          "the process of a rank ended");
        if (rank->session)
                HASH_DEL(rank->session->ranks, rank);
        rank->session = NULL;
}

void comm_rank_leave(struct comm_rank *rank, uint32_t last) {
        struct comm *comm = rank->comm;

        rank->left = true;
        rank->last_sequence = last;
        if (ring_sequence_before(last, comm->highest) || rank->head)
                comm_fail(comm, ring_status(RMX_E_PEER_LOST, (int32_t)rank->index), "a rank left before the others");
        if (rank->session)
                HASH_DEL(rank->session->ranks, rank);
        rank->session = NULL;
}

bool comm_quiet(struct comm *comm) {
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if (comm->ranks[i].head)
                        return false;
        return true;
}

/* ---- ringing (read lock, bell's latching flag held) ---------------------------------------------------------------
 */

bool comm_rank_begun(struct comm_rank *rank, uint32_t sequence) {
        bool begun;

        pthread_mutex_lock(&rank->comm->mutex);
        begun = comm_error(rank->comm) || !ring_sequence_before(rank->comm->highest, sequence);
        pthread_mutex_unlock(&rank->comm->mutex);
        return begun;
}

static bool comm_sequence_right(struct comm_rank *rank, uint32_t sequence) {
        uint32_t rung;

        if (!rank->resync)
                return sequence == rank->expected;
        /* After a takeover: a line that was latched before, or the first one that was not. */
        rung = atomic_load_explicit(&rank->comm->marks->rung[rank->index],
                                    memory_order_relaxed); /* our own or a dead writer's */
        return !ring_sequence_before(sequence, rank->expected) && !ring_sequence_before(rung + 1, sequence);
}

static void comm_op_open(struct comm *comm, struct comm_op *op, const struct comm_rank *rank,
                         const struct request *request) {
        const struct plan_choice *choice = plan_choice_find(comm->choices, comm->n_choices, request->operation,
                                                            request->gpu.count * type_size(request->gpu.type));

        *op = (struct comm_op){
                .sequence = request->sequence,
                .first_rank = rank->index,
                .operation = request->operation,
                .type = request->gpu.type,
                .redop = request->gpu.redop,
                .root = request->gpu.root,
                .count = request->gpu.count,
                .first_ns = clock_now_ns(),
                .plan = choice ? comm->plans[choice - comm->choices] : NULL,
        };
}

static const char *comm_op_differs(const struct comm_op *op, const struct request *request) {
        if (op->operation != request->operation)
                return "ranks called different operations";
        if (op->type != request->gpu.type)
                return "ranks gave different types";
        if (op->redop != request->gpu.redop)
                return "ranks gave different reductions";
        if (op->count != request->gpu.count)
                return "ranks gave different counts";
        if (op->root != request->gpu.root)
                return "ranks gave different roots";
        return NULL;
}

/* Mutex held. Enters the request into its sequence; 0 or the status that ends the comm. */
static uint32_t comm_enter(struct comm_rank *rank, struct request *request, const char **ret_text) {
        struct comm *comm = rank->comm;
        struct comm_op *op = &comm->ops[request->sequence & (comm->window - 1)];

        if (!op->n_rung)
                comm_op_open(comm, op, rank, request);
        if (op->sequence != request->sequence) { /* a ring deeper than the window that railmuxd announced */
                *ret_text = "more requests in flight than the comm was made for";
                return ring_status(RMX_E_INVALID, (int32_t)rank->index);
        }
        *ret_text = comm_op_differs(op, request);
        if (*ret_text) {
                executor_count(comm->executor, mismatches, 1);
                return ring_status(RMX_E_MISMATCH, (int32_t)rank->index);
        }
        if (!op->plan) {
                *ret_text = "an operation for which this comm has no plan";
                return ring_status(RMX_E_UNSUPPORTED, (int32_t)rank->index);
        }
        op->n_rung++;
        request->gpu.plan = op->plan;
        if (ring_sequence_before(comm->highest, request->sequence))
                comm->highest = request->sequence;
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if (comm->ranks[i].left && ring_sequence_before(comm->ranks[i].last_sequence, request->sequence)) {
                        *ret_text = "a rank left before the others";
                        return ring_status(RMX_E_PEER_LOST, (int32_t)i);
                }
        return 0;
}

/* Mutex held. */
static void comm_enqueue(struct comm_rank *rank, struct request *request) {
        request->next = NULL;
        if (rank->tail)
                rank->tail->next = request;
        else
                rank->head = request;
        rank->tail = request;
        if (!rank->run)
                rank->run = request;
        atomic_fetch_add_explicit(&rank->queued, 1, memory_order_relaxed); /* hint, see comm_dequeue */
}

/* Mutex held. True if the request was answered at once. */
static bool comm_answer_early(struct comm_rank *rank, struct request *request) {
        struct comm *comm = rank->comm;
        uint32_t error = comm_error(comm);

        switch (takeover_outcome(request->sequence, comm->settled, comm->lost_after, comm->lost_until)) {
        case TAKEOVER_FINAL:
                comm_answer(rank, request, ring_status(RMX_OK, -1));
                return true;
        case TAKEOVER_LOST:
                comm_answer(rank, request, ring_status(RMX_E_LOST, -1));
                return true;
        case TAKEOVER_RUN:
                break;
        }
        /* acquire, with the release in comm_answer_error: while a flush is due, requests are queued for it */
        if (!error || atomic_load_explicit(&comm->flush, memory_order_acquire))
                return false;
        comm_answer(rank, request, error);
        return true;
}

void comm_rank_ring(struct comm_rank *rank, struct request *request, const struct ring_request *line) {
        struct comm *comm = rank->comm;
        const struct validate_rank limits = {comm->n_ranks, rank->index, comm->epoch};
        uint32_t code, status = 0;
        const char *text = NULL;

        request->sequence = line->word[RING_W_SEQUENCE];
        pthread_mutex_lock(&comm->mutex);
        if (!comm_sequence_right(rank, request->sequence)) {
                executor_count(comm->executor, invalid_requests, 1);
                bell_complete(request, ring_status(RMX_E_INVALID, (int32_t)rank->index));
                goto out;
        }
        rank->resync = false;
        rank->expected = request->sequence + 1;
        mark(comm->marks->rung[rank->index], request->sequence); /* before it can start */
        if (comm_answer_early(rank, request))
                goto out;
        code = validate_request(comm->executor, rank->session, &limits, line, request, &text);
        buffer_use(request->in_buffer);
        buffer_use(request->out_buffer);
        if (code) {
                executor_count(comm->executor, invalid_requests, 1);
                status = ring_status(code, (int32_t)rank->index);
        } else if (!comm_error(comm)) {
                status = comm_enter(rank, request, &text);
        }
        comm_enqueue(rank, request);
        if (status)
                comm_set_error(comm, status, text);
out:
        pthread_mutex_unlock(&comm->mutex);
}

/* ---- running (read lock) -------------------------------------------------------------------------------------------
 */

static bool comm_rank_take(struct comm_rank *rank) {
        /* acquire, with the clear in comm_rank_drop: the former runner's `current` and backend state */
        return !atomic_flag_test_and_set_explicit(&rank->running, memory_order_acquire);
}

static void comm_rank_drop(struct comm_rank *rank) {
        atomic_flag_clear_explicit(&rank->running, memory_order_release); /* with comm_rank_take */
}

/* Answers the queues of a failed comm once no worker is inside any rank. */
static bool comm_flush(struct comm *comm) {
        uint32_t taken = 0;

        while (taken < comm->n_ranks && comm_rank_take(&comm->ranks[taken]))
                taken++;
        if (taken == comm->n_ranks) {
                pthread_mutex_lock(&comm->mutex);
                comm_answer_error(comm);
                pthread_mutex_unlock(&comm->mutex);
        }
        while (taken)
                comm_rank_drop(&comm->ranks[--taken]);
        return true; /* not done yet counts as work: nobody may go to sleep over it */
}

static bool comm_rank_start(struct comm_rank *rank) {
        struct comm *comm = rank->comm;

        pthread_mutex_lock(&comm->mutex);
        /* Under the mutex: since an error is there, the queue may hold requests that were never validated. */
        rank->current = comm_error(comm) ? NULL : rank->run;
        if (rank->current)
                rank->run = rank->run->next;
        pthread_mutex_unlock(&comm->mutex);
        if (!rank->current)
                return false;
        comm->executor->ops->start(comm->gpu, rank->index, &rank->current->gpu);
        return true;
}

static void comm_rank_done(struct comm_rank *rank) {
        struct comm *comm = rank->comm;
        struct comm_op *op;

        pthread_mutex_lock(&comm->mutex);
        op = &comm->ops[rank->current->sequence & (comm->window - 1)];
        rank->current = NULL;
        /* An error that came in the meantime wins: the flush answers, and it waits for our running flag. */
        if (++op->n_done == comm->n_ranks && !comm_error(comm))
                comm_settle(comm, op);
        pthread_mutex_unlock(&comm->mutex);
}

static bool comm_rank_run(struct comm_rank *rank, uint64_t *bytes) {
        struct comm *comm = rank->comm;
        uint64_t in_hand = 0;
        bool moved = false;
        int r = GPU_IDLE;

        if (!comm_rank_take(rank))
                return false;
        /* Many finished requests in a row are one long step, too. */
        while (in_hand < COMM_STEP_BYTES && !comm_error(comm) && (rank->current || comm_rank_start(rank))) {
                in_hand += rank->current->gpu.count * type_size(rank->current->gpu.type);
                r = comm->executor->ops->progress(comm->gpu, rank->index, COMM_STEP_BYTES);
                moved = moved || r != GPU_IDLE;
                if (r != GPU_DONE)
                        break;
                comm_rank_done(rank);
        }
        comm_rank_drop(rank);
        *bytes += in_hand;
        return moved;
}

bool comm_run(struct comm *comm, uint32_t first_rank, uint64_t *ret_bytes) {
        bool moved = false;

        /* acquire, with the release in comm_set_error and comm_answer_error */
        if (atomic_load_explicit(&comm->flush, memory_order_acquire))
                return comm_flush(comm);
        for (uint32_t k = 0; k < comm->n_ranks; k++) {
                struct comm_rank *rank = &comm->ranks[(first_rank + k) % comm->n_ranks];

                /* relaxed: a request queued just now is found in the next round, and its latcher makes that round */
                if (atomic_load_explicit(&rank->queued, memory_order_relaxed))
                        moved |= comm_rank_run(rank, ret_bytes);
        }
        return moved;
}
