/* SPDX-License-Identifier: MIT */
/*
 * A communicator in the executor.
 *
 * A request's life: bell.c latches it -> comm_rank_ring checks its sequence, validates it, compares it with what the
 * other ranks called and queues it at its rank -> a worker runs the rank's requests one after the other through the
 * backend -> when all ranks have finished a sequence it is settled: marks.final is written, then every rank is told.
 *
 * Sends and receives: comm_p2p.c. Several nodes: comm_nodes.c; "all ranks" are those of this node here.
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
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "executor/comm_private.h"
#include "executor/executor.h"
#include "executor/session.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "topology/place.h"
#include "util/clock.h"
#include "util/memfd.h"

void comm_set_error(struct comm *comm, uint32_t status, const char *format, ...) {
        va_list arguments;

        if (comm_error(comm))
                return;
        va_start(arguments, format);
        vsnprintf(comm->error_text, sizeof(comm->error_text), format, arguments);
        va_end(arguments);
        comm_mark(comm->marks->error, status);
        atomic_store_explicit(&comm->flush, true, memory_order_release);   /* with the acquire in comm_run */
        atomic_store_explicit(&comm->error, status, memory_order_release); /* with the acquire in comm_error */
        executor_busy_set(comm->executor, comm->index);
        executor_attention(comm->executor);
}

struct comm *comm_find(struct executor *executor, uint64_t id) {
        struct comm *comm;

        HASH_FIND(hh, executor->comms, &id, sizeof(id), comm);
        return comm;
}

const struct plan *comm_plan(const struct comm *comm, uint32_t operation, uint32_t widening, uint64_t bytes) {
        const struct plan_choice *choice = plan_choice_find(comm->choices, comm->n_choices, operation, widening, bytes);

        return choice ? comm->plans[choice - comm->choices] : NULL;
}

static int comm_get_plans(struct comm *comm, char *error, size_t error_size) {
        struct plan_verdict verdict;
        int r;

        for (uint32_t i = 0; i < comm->n_choices; i++) {
                const struct plan_choice *c = &comm->choices[i];
                uint32_t known;

                r = plans_get(&comm->executor->plans,
                              &(struct plans_shape){.operation = c->operation,
                                                    .algorithm = c->algorithm,
                                                    .n_ranks = comm->n_ranks,
                                                    .geometry = comm->geometry,
                                                    .nodes = comm->area ? &comm->nodes : NULL},
                              &comm->plans[i], &verdict);
                if (r < 0)
                        return r;
                if (r) {
                        snprintf(error, error_size, "plan %s of %s for %u ranks refused: %s",
                                 plan_algorithm_name(c->algorithm), plan_operation_name(c->operation), comm->n_ranks,
                                 verdict.text);
                        return COMM_E_PLAN;
                }
                for (known = 0; known < i && comm->plans[known] != comm->plans[i];)
                        known++;
                r = known < i ? 0 : comm_nodes_check_plan(comm, comm->plans[i], error, error_size);
                if (r)
                        return r;
        }
        return 0;
}

/* Its process says what it has rung last. What it has not, others would wait for without an end; so of a rank here what
 * was seen counts alone. */
static uint32_t comm_rank_rung(const struct comm_rank *rank, uint32_t said) {
        /* relaxed: written by workers of this process, or of a dead one */
        return rank->here ? atomic_load_explicit(&rank->comm->marks->rung[rank->index], memory_order_relaxed) : said;
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
        return t->n_lost + comm_p2p_take_over(comm, t->used);
}

/* In the executor's table, and nothing else yet. */
static int comm_new(struct executor *executor, const struct comm_parameters *p, const struct comm_member *members,
                    struct comm **ret_comm) {
        struct comm *comm = calloc(1, sizeof(*comm) + p->n_ranks * sizeof(comm->ranks[0]));

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
        comm->doorbell_fd = comm->wake_fd = -1;
        comm->index = COMM_UNLISTED;
        pthread_mutex_init(&comm->mutex, NULL);
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                struct comm_rank *rank = &comm->ranks[i];

                rank->comm = comm;
                rank->index = i;
                rank->handle = members[i].handle;
                rank->gpu = members[i].gpu;
                rank->numa = topology_place_of_gpu(executor->place, rank->gpu);
                rank->left = members[i].left;
                rank->left_ns = clock_now_ns();
                rank->last_sequence = members[i].last_sequence;
                atomic_flag_clear(&rank->running);
        }
        HASH_ADD(hh, executor->comms, id, sizeof(comm->id), comm);
        if (!comm->hh.tbl) { /* no memory for the table */
                pthread_mutex_destroy(&comm->mutex);
                free(comm);
                return -ENOMEM;
        }
        *ret_comm = comm;
        return 0;
}

/* Its areas, marks, plans and memory. What it has got when it fails is comm_free()'s. */
static int comm_equip(struct comm *comm, const struct comm_parameters *p, const struct comm_member *members,
                      int marks_fd, char *error, size_t error_size) {
        void *marks;
        int r;

        r = comm_nodes_attach(comm, p, members, error, error_size);
        if (r)
                return r;
        r = memfd_map(marks_fd, marks_bytes(comm->n_ranks), 1, 1, &marks);
        if (r < 0)
                return r;
        comm->marks = marks;
        r = comm_get_plans(comm, error, error_size);
        if (r)
                return r;
        comm->send_plan = comm_plan(comm, RING_OP_SEND, 1, 0);
        comm->ops = calloc(comm->window, sizeof(*comm->ops));
        if (!comm->ops)
                return -ENOMEM;
        r = comm_p2p_init(comm);
        if (r < 0)
                return r;
        r = comm_nodes_gpu(comm, error, error_size);
        if (r)
                return r;
        return comm_nodes_forsake(comm, error, error_size);
}

/* Goes on where the executor before this one ended, and workers see it from now on. */
static int comm_take_up(struct comm *comm, const struct comm_parameters *p, uint32_t *ret_lost, char *error,
                        size_t error_size) {
        struct takeover takeover;
        int r;

        if (!takeover_read(comm->marks, comm->n_ranks, p->epoch, &takeover)) {
                snprintf(error, error_size, "comm %llu: marks of an unknown version", (unsigned long long)p->id);
                return COMM_E_INVALID;
        }
        *ret_lost = comm_take_over(comm, &takeover);
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                comm->ranks[i].last_sequence = comm_rank_rung(&comm->ranks[i], comm->ranks[i].last_sequence);
        executor_count(comm->executor, lost, *ret_lost);
        r = executor_list_comm(comm->executor, comm);
        if (r < 0)
                return r;
        comm->told_error = comm->reported_error = p->code != 0;
        if (takeover.error || p->code)
                comm_fail(comm, takeover.error ? takeover.error : ring_status(p->code, p->failed_rank),
                          comm->area && ring_status_code(takeover.error) == RMX_E_LOST
                                  ? "the executor of a node ended, which a comm over several nodes does not survive"
                                  : "failed before");
        return 0;
}

static int comm_join_sessions(struct comm *comm, const struct comm_member *members) {
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                struct comm_rank *rank = &comm->ranks[i];

                rank->session = members[i].session;
                if (rank->session) {
                        HASH_ADD(hh, rank->session->ranks, handle, sizeof(rank->handle), rank);
                        if (!rank->hh.tbl) {
                                rank->session = NULL;
                                return -ENOMEM;
                        }
                } else if (!rank->left && rank->here) {
                        comm_rank_lost(rank);
                }
        }
        return 0;
}

int comm_attach(struct executor *executor, const struct comm_parameters *p, const struct comm_member *members,
                int marks_fd, struct comm **ret_comm, uint32_t *ret_lost, char *error, size_t error_size) {
        struct comm *comm;
        int r;

        if (comm_find(executor, p->id))
                return -EEXIST;
        if (!p->n_ranks || p->n_ranks > PLAN_RANKS_MAX || p->n_choices > PLAN_CHOICES_MAX || !p->geometry.slots ||
            p->geometry.part_bytes < 64 || p->geometry.part_bytes % 64) {
                snprintf(error, error_size, "comm %llu: ranks, choices or geometry out of bounds",
                         (unsigned long long)p->id);
                return COMM_E_INVALID;
        }
        r = comm_new(executor, p, members, &comm);
        if (r)
                return r;
        r = comm_equip(comm, p, members, marks_fd, error, error_size);
        if (!r)
                r = comm_take_up(comm, p, ret_lost, error, error_size);
        if (!r)
                r = comm_join_sessions(comm, members);
        if (r) {
                comm_detach(comm);
                return r;
        }
        *ret_comm = comm;
        return 0;
}

struct comm *comm_detach(struct comm *comm) {
        if (!comm)
                return NULL;
        if (!comm_quiet(comm))
                comm_fail(comm, ring_status(RMX_E_ABORTED, -1), "taken away");
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if (comm->ranks[i].session)
                        HASH_DEL(comm->ranks[i].session->ranks, &comm->ranks[i]);
        for (uint32_t i = 0; i < comm->n_choices; i++)
                plans_put(&comm->executor->plans, comm->plans[i]);
        executor_unlist_comm(comm->executor, comm);
        HASH_DEL(comm->executor->comms, comm);
        LL_PREPEND(comm->executor->gone_comms, comm);
        return NULL;
}

static void comm_free(struct comm *comm) {
        if (comm->gpu)
                comm->executor->ops->comm_free(comm->gpu);
        comm_nodes_detach(comm);
        memfd_unmap(comm->marks, marks_bytes(comm->n_ranks));
        comm_p2p_deinit(comm);
        free(comm->ops);
        pthread_mutex_destroy(&comm->mutex);
        free(comm);
}

void comms_tidy(struct executor *executor) {
        struct comm *comm, *next;

        LL_FOREACH_SAFE(executor->gone_comms, comm, next) {
                LL_DELETE(executor->gone_comms, comm);
                comm_free(comm);
        }
}

/* ---- answering (mutex held) ---------------------------------------------------------------------------------------
 */

static void comm_wake(const struct comm_wake *wakes, uint32_t n) {
        if (n == 0)
                return;
        ring_consumer_fence(); /* one for all: the completions come before the looks at who sleeps */
        for (uint32_t i = 0; i < n; i++)
                bell_wake(wakes[i].bell, wakes[i].ring_sequence);
}

/* The bells stay: the caller has the table lock. */
void comm_unlock(struct comm *comm) {
        struct comm_wake wakes[PLAN_RANKS_MAX];
        uint32_t n = comm->n_wakes;

        memcpy(wakes, comm->wakes, n * sizeof(wakes[0]));
        comm->n_wakes = 0;
        pthread_mutex_unlock(&comm->mutex);
        comm_wake(wakes, n);
}

void comm_answer(struct comm_rank *rank, struct request *request, uint32_t status) {
        struct comm *comm = rank->comm;
        uint32_t sequence = request->sequence;
        bool p2p = request_p2p(request);

        if (comm->n_wakes == PLAN_RANKS_MAX) {
                comm_wake(comm->wakes, comm->n_wakes);
                comm->n_wakes = 0;
        }
        comm->wakes[comm->n_wakes++] = (struct comm_wake){request->bell, request->ring_sequence};

        if (rank->run == request)
                rank->run = request->next;
        DL_DELETE(rank->requests, request);
        /* relaxed: a hint for comm_run; whoever must not miss a request holds the mutex */
        atomic_fetch_sub_explicit(&rank->queued, 1, memory_order_relaxed);
        bell_publish(request, status); /* first: `published` may lag behind what a rank was told, never run ahead */
        if (!p2p)
                comm_mark(comm->marks->published[rank->index], sequence);
}

void comm_enqueue(struct comm_rank *rank, struct request *request) {
        DL_APPEND(rank->requests, request);
        if (!rank->run)
                rank->run = request;
        atomic_fetch_add_explicit(&rank->queued, 1, memory_order_relaxed); /* hint, see comm_answer */
        executor_busy_set(rank->comm->executor, rank->comm->index);
}

void comm_answer_error(struct comm *comm) {
        comm_p2p_clear(comm);
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                struct comm_rank *rank = &comm->ranks[i];

                rank->current = NULL;
                while (rank->requests) {
                        struct request *request = rank->requests;
                        /* Settled for the other side, which may have been told; we only had not come back to it. */
                        bool settled = request_p2p(request) && request->n_run && !request->n_open;

                        comm_answer(rank, request, settled ? request->result : comm_error(comm));
                }
        }
        atomic_store_explicit(&comm->flush, false, memory_order_release); /* with the acquire in comm_run */
}

/* ---- control thread ------------------------------------------------------------------------------------------------
 */

void comm_fail(struct comm *comm, uint32_t status, const char *text) {
        comm_lock(comm);
        comm_set_error(comm, status, "%s", text);
        comm_answer_error(comm);
        comm_unlock(comm);
}

void comm_rank_lost(struct comm_rank *rank) {
        /* A rank that has left owes nobody anything; if others went on without it the comm has failed already. */
        if (!rank->left && !comm_nodes_linger(rank))
                comm_fail(rank->comm, ring_status(RMX_E_PEER_LOST, (int32_t)rank->index),
                          "the process of a rank ended");
        if (rank->session)
                HASH_DEL(rank->session->ranks, rank);
        rank->session = NULL;
}

void comm_rank_leave(struct comm_rank *rank, uint32_t last) {
        struct comm *comm = rank->comm;
        bool missed;

        last = comm_rank_rung(rank, last);
        rank->left = true;
        rank->left_ns = clock_now_ns();
        rank->last_sequence = last;
        comm_lock(comm);
        /* Of a rank elsewhere the last chunk may be under way: comm_nodes_deserted. */
        missed = ring_sequence_before(last, comm->highest) || rank->requests ||
                 (rank->here && comm_p2p_awaits(comm, rank->index));
        comm_unlock(comm);
        if (missed)
                comm_fail(comm, ring_status(RMX_E_PEER_LOST, (int32_t)rank->index), "a rank left before the others");
        if (rank->session)
                HASH_DEL(rank->session->ranks, rank);
        rank->session = NULL;
}

bool comm_failed(const struct comm *comm) {
        return comm_error(comm) != 0;
}

bool comm_quiet(struct comm *comm) {
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if (comm->ranks[i].requests)
                        return false;
        return true;
}

/* ---- looking (mutex held) -----------------------------------------------------------------------------------------
 */

bool comm_oldest_wait(struct comm *comm, struct comm_wait *ret_wait) {
        struct comm_op *op = &comm->ops[(comm->settled + 1) & (comm->window - 1)];
        struct comm_wait wait = {0}, p2p;

        if (comm_error(comm))
                return false;
        if (op->n_rung && op->sequence == comm->settled + 1) {
                wait = (struct comm_wait){
                        .operation = op->operation, .sequence = op->sequence, .first_ns = op->first_ns};
                for (uint32_t i = 0; i < comm->n_ranks; i++)
                        if (comm->ranks[i].here && !ring_sequence_before(op->sequence, comm->ranks[i].expected))
                                wait.missing |= UINT64_C(1) << i;
        }
        if (comm_p2p_oldest_wait(comm, &p2p) && (!wait.operation || p2p.first_ns < wait.first_ns))
                wait = p2p;
        if (wait.operation)
                *ret_wait = wait;
        return wait.operation != 0;
}
