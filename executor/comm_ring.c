/* SPDX-License-Identifier: MIT */
/* Requests come in: sequence, validation, their place beside what the other ranks called. See comm.c. */
#include <stdio.h>

#include "executor/comm_private.h"
#include "executor/executor.h"
#include "executor/session.h"
#include "executor/validate.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/clock.h"

bool comm_rank_awaited(struct comm_rank *rank) {
        struct comm *comm = rank->comm;
        bool awaited;

        comm_lock(comm);
        /* Sequences up to `settled` nobody waits for, even if the rank has still to be told that they were lost. */
        awaited = !comm_error(comm) && ((ring_sequence_before(comm->settled, comm->highest) &&
                                         !ring_sequence_before(comm->highest, rank->expected)) ||
                                        comm_p2p_awaits(comm, rank->index));
        comm_unlock(comm);
        return awaited;
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

/* The executors of all nodes have to take the same plan, whichever rank rings first. What the vectors of an
 * all_to_all_v on other nodes hold is not known here, so over nodes all are taken for large ones. */
static void comm_op_open(struct comm *comm, struct comm_op *op, const struct comm_rank *rank,
                         const struct request *request) {
        const struct gpu_request *gpu = request->gpu;
        uint64_t bytes = gpu->shape.count * gpu->shape.element_bytes;

        for (uint32_t i = 0; gpu->shape.vector && i < comm->n_ranks; i++)
                bytes += gpu->shape.vector->send_count[i] * gpu->shape.element_bytes / comm->n_ranks;
        *op = (struct comm_op){
                .sequence = request->sequence,
                .first_rank = rank->index,
                .operation = request->operation,
                .type = gpu->type,
                .redop = gpu->redop,
                .root = gpu->shape.root,
                .count = gpu->shape.count,
                .bytes = bytes,
                .first_ns = clock_now_ns(),
                .plan = comm_plan(comm, request->operation,
                                  plan_widening(gpu->shape.element_bytes, gpu->shape.partial_bytes),
                                  gpu->shape.vector && comm->area ? UINT64_MAX : bytes),
        };
}

/* Mutex held. Enters the request into its sequence; 0 or the status that ends the comm. */
static uint32_t comm_enter(struct comm_rank *rank, struct request *request, char *text, size_t size) {
        struct comm *comm = rank->comm;
        struct comm_op *op = &comm->ops[request->sequence & (comm->window - 1)];
        uint32_t status;

        if (!op->n_rung)
                comm_op_open(comm, op, rank, request);
        if (op->sequence != request->sequence) { /* a ring deeper than the window that railmuxd announced */
                snprintf(text, size, "rank %u has more requests in flight than the comm was made for", rank->index);
                return ring_status(RMX_E_INVALID, (int32_t)rank->index);
        }
        op->n_rung++;
        if (ring_sequence_before(comm->highest, request->sequence))
                comm->highest = request->sequence;
        status = comm_mismatch_check(rank, op, request, text, size);
        if (status || comm->disputed)
                return status;
        if (!op->plan) {
                snprintf(text, size, "this comm has no plan for %s", plan_operation_name(request->operation));
                return ring_status(RMX_E_UNSUPPORTED, (int32_t)rank->index);
        }
        request->gpu->plan = op->plan;
        request->gpu->sequence = request->sequence; /* which other nodes compare with theirs */
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if (comm->ranks[i].left && ring_sequence_before(comm->ranks[i].last_sequence, request->sequence)) {
                        snprintf(text, size, "rank %u left before the others", i);
                        return ring_status(RMX_E_PEER_LOST, (int32_t)i);
                }
        return 0;
}

/* Mutex held. The status of a request that needs no work, or 0 and false: it goes on. */
static bool comm_answer_early(struct comm_rank *rank, const struct request *request, uint32_t *ret_status) {
        struct comm *comm = rank->comm;

        switch (takeover_outcome(request->sequence, comm->settled, comm->lost_after, comm->lost_until)) {
        case TAKEOVER_FINAL:
                *ret_status = ring_status(RMX_OK, -1);
                return true;
        case TAKEOVER_LOST:
                *ret_status = ring_status(RMX_E_LOST, -1);
                return true;
        case TAKEOVER_RUN:
                break;
        }
        return false;
}

/* Mutex held. A comm that has failed answers at once; while a flush is due, requests are queued for it. */
static bool comm_answer_failed(struct comm_rank *rank, struct request *request) {
        uint32_t error = comm_error(rank->comm);

        /* acquire, with the release in comm_answer_error */
        if (!error || atomic_load_explicit(&rank->comm->flush, memory_order_acquire))
                return false;
        comm_enqueue(rank, request);
        comm_answer(rank, request, error);
        return true;
}

static void comm_invalid(struct comm_rank *rank, uint32_t code, const char *text) {
        executor_count(rank->comm->executor, invalid_requests, 1);
        comm_set_error(rank->comm, ring_status(code, (int32_t)rank->index), "rank %u gave %s", rank->index, text);
}

static void comm_ring_collective(struct comm_rank *rank, struct request *request, uint32_t code, const char *text) {
        struct comm *comm = rank->comm;
        char difference[sizeof(comm->error_text)];
        uint32_t status;

        if (!comm_sequence_right(rank, request->sequence)) {
                executor_count(comm->executor, invalid_requests, 1);
                bell_complete(request, ring_status(RMX_E_INVALID, (int32_t)rank->index));
                return;
        }
        rank->resync = false;
        rank->expected = request->sequence + 1;
        comm_mark(comm->marks->rung[rank->index], request->sequence); /* before it can start */
        if (comm_answer_early(rank, request, &status)) {
                comm_enqueue(rank, request);
                comm_answer(rank, request, status);
                return;
        }
        if (comm_answer_failed(rank, request))
                return;
        comm_enqueue(rank, request);
        if (comm_error(comm))
                return;
        if (code) {
                comm_invalid(rank, code, text);
                return;
        }
        status = comm_enter(rank, request, difference, sizeof(difference));
        if (status)
                comm_set_error(comm, status, "%s", difference);
}

static void comm_ring_p2p(struct comm_rank *rank, struct request *request, uint32_t code, const char *text) {
        /* As with collectives: what a takeover has settled keeps its outcome in a comm that has failed. */
        bool settled = comm_error(rank->comm) && !code && comm_p2p_settled(rank, request);

        if (!settled && comm_answer_failed(rank, request))
                return;
        if (!code) {
                comm_p2p_ring(rank, request);
                return;
        }
        comm_enqueue(rank, request);
        comm_invalid(rank, code, text);
}

void comm_rank_ring(struct comm_rank *rank, struct request *request, const struct ring_request *line) {
        struct comm *comm = rank->comm;
        const struct validate_rank limits = {comm->n_ranks, rank->index, comm->epoch};
        uint32_t operation = ring_request_op(line), code;
        const char *text = NULL;

        request->sequence = line->word[RING_W_SEQUENCE];
        request->p2p = operation == RING_OP_SEND || operation == RING_OP_RECV || operation == RING_OP_GROUP;
        code = validate_request(comm->executor, rank->session, &limits, line, request, &text);
        request_hold(request);
        comm_lock(comm);
        if (request->p2p)
                comm_ring_p2p(rank, request, code, text);
        else
                comm_ring_collective(rank, request, code, text);
        comm_unlock(comm);
}
