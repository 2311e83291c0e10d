/* SPDX-License-Identifier: MIT */
/*
 * Who called something else?
 *
 * The first request of a sequence is what the others are compared with, but it may be the wrong one itself. So a
 * difference does not end the comm at once: it opens a dispute, in which nothing more is started, until all ranks have
 * rung the sequence, or a short time is over. Then the largest group of ranks that called the same is taken to be
 * right, and the first rank outside of it is named; without a majority, the one that opened the dispute. Both sides'
 * values are in the sentence.
 *
 * All this is among the ranks of this node; those of other nodes: comm_nodes.c.
 *
 * The counts of an all_to_all_v concern two ranks, and so do a send and its receive: there is nobody to ask, and both
 * are named at once.
 */
#include <inttypes.h>
#include <stdio.h>

#include <utlist.h>

#include "executor/comm_private.h"
#include "executor/executor.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/clock.h"

#define DISPUTE_NS UINT64_C(100000000)

static const struct request *rank_request(const struct comm_rank *rank, uint32_t sequence) {
        const struct request *request;

        DL_FOREACH(rank->requests, request) {
                if (!request_p2p(request) && request->gpu && request->sequence == sequence)
                        return request;
        }
        return NULL;
}

/* RING_DETAIL_*: in what do two requests differ? */
static uint32_t request_differs(const struct request *a, const struct request *b) {
        if (a->operation != b->operation)
                return RING_DETAIL_OPERATION;
        if (a->gpu->type != b->gpu->type)
                return RING_DETAIL_TYPE;
        if (a->gpu->redop != b->gpu->redop)
                return RING_DETAIL_REDOP;
        if (a->gpu->shape.count != b->gpu->shape.count)
                return RING_DETAIL_COUNT;
        return a->gpu->shape.root != b->gpu->shape.root ? RING_DETAIL_ROOT : RING_DETAIL_NONE;
}

static uint64_t request_detail(const struct request *request, uint32_t detail) {
        switch (detail) {
        case RING_DETAIL_TYPE:
                return request->gpu->type;
        case RING_DETAIL_REDOP:
                return request->gpu->redop;
        case RING_DETAIL_COUNT:
                return request->gpu->shape.count;
        default:
                return request->gpu->shape.root;
        }
}

static void describe(const struct request *wrong, uint32_t wrong_rank, const struct request *right, uint32_t right_rank,
                     uint32_t detail, char *text, size_t size) {
        static const char *const words[] = {[RING_DETAIL_TYPE] = "type",
                                            [RING_DETAIL_REDOP] = "reduction",
                                            [RING_DETAIL_COUNT] = "count",
                                            [RING_DETAIL_ROOT] = "root"};

        if (detail == RING_DETAIL_OPERATION)
                snprintf(text, size, "rank %u called %s, rank %u called %s", wrong_rank,
                         plan_operation_name(wrong->operation), right_rank, plan_operation_name(right->operation));
        else
                snprintf(text, size, "%s: rank %u gave %s %" PRIu64 ", rank %u gave %" PRIu64,
                         plan_operation_name(wrong->operation), wrong_rank, words[detail],
                         request_detail(wrong, detail), right_rank, request_detail(right, detail));
}

/* all_to_all_v: does each rank expect what the others send it? */
static uint32_t vector_differs(const struct comm_rank *rank, const struct request *request, char *text, size_t size) {
        const struct comm *comm = rank->comm;
        uint32_t me = rank->index;

        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                const struct request *other = i == me ? NULL : rank_request(&comm->ranks[i], request->sequence);
                const struct plan_vector *mine = &request->vector, *theirs = other ? &other->vector : NULL;

                if (!other || other->operation != request->operation ||
                    (mine->send_count[i] == theirs->recv_count[me] && mine->recv_count[i] == theirs->send_count[me]))
                        continue;
                snprintf(text, size,
                         "all_to_all_v: rank %u sends rank %u %" PRIu64 " elements and expects %" PRIu64
                         " of it; rank %u expects %" PRIu64 " and sends %" PRIu64,
                         me, i, mine->send_count[i], mine->recv_count[i], i, theirs->recv_count[me],
                         theirs->send_count[me]);
                return ring_status_mismatch(RMX_E_MISMATCH, RING_DETAIL_COUNT, (int32_t)me);
        }
        return 0;
}

/* The rank whose request most others agree with; the lowest of several. */
static uint32_t majority(const struct request *const *requests, uint32_t n, uint32_t *ret_size) {
        uint32_t best = 0, most = 0;

        for (uint32_t i = 0; i < n; i++) {
                uint32_t size = 0;

                for (uint32_t k = 0; requests[i] && k < n; k++)
                        size += requests[k] && !request_differs(requests[i], requests[k]);
                if (size > most) {
                        most = size;
                        best = i;
                }
        }
        *ret_size = most;
        return best;
}

/* Mutex held. The status that ends the comm. */
static uint32_t settle(struct comm *comm, char *text, size_t size) {
        const struct request *requests[PLAN_RANKS_MAX] = {NULL};
        uint32_t right, wrong = comm->n_ranks, agree, there = 0, detail;

        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                requests[i] = rank_request(&comm->ranks[i], comm->disputed_sequence);
                there += requests[i] != NULL;
        }
        right = majority(requests, comm->n_ranks, &agree);
        if (2 * agree <= there && requests[comm->disputed_rank]) /* nobody is right by number */
                wrong = comm->disputed_rank;
        for (uint32_t i = 0; i < comm->n_ranks && wrong == comm->n_ranks; i++)
                if (requests[i] && request_differs(requests[i], requests[right]))
                        wrong = i;
        if (wrong < comm->n_ranks && 2 * agree <= there) /* then whoever called something else than it */
                for (right = 0; right + 1 < comm->n_ranks; right++)
                        if (requests[right] && request_differs(requests[right], requests[wrong]))
                                break;
        if (wrong == comm->n_ranks || !requests[right] ||
            !request_differs(requests[right], requests[wrong])) { /* answered meanwhile: there is an error */
                snprintf(text, size, "ranks called different things");
                return ring_status(RMX_E_MISMATCH, (int32_t)comm->disputed_rank);
        }
        detail = request_differs(requests[wrong], requests[right]);
        describe(requests[wrong], wrong, requests[right], right, detail, text, size);
        return ring_status_mismatch(RMX_E_MISMATCH, detail, (int32_t)wrong);
}

uint32_t comm_mismatch_check(struct comm_rank *rank, const struct comm_op *op, const struct request *request,
                             char *text, size_t size) {
        struct comm *comm = rank->comm;
        const struct gpu_request *gpu = request->gpu;
        bool differs = op->operation != request->operation || op->type != gpu->type || op->redop != gpu->redop ||
                       op->count != gpu->shape.count || op->root != gpu->shape.root;
        uint32_t status;

        if (!differs && request->operation == RING_OP_ALL_TO_ALL_V) {
                status = vector_differs(rank, request, text, size);
                if (status)
                        executor_count(comm->executor, mismatches, 1);
                if (status)
                        return status;
        }
        if (differs && !comm->disputed) {
                executor_count(comm->executor, mismatches, 1);
                comm->disputed = true;
                comm->disputed_sequence = request->sequence;
                comm->disputed_rank = rank->index;
                comm->disputed_ns = clock_now_ns();
        }
        if (!comm->disputed || comm->disputed_sequence != op->sequence || op->n_rung < comm->n_here)
                return 0;
        return settle(comm, text, size);
}

bool comm_mismatch_due(struct comm *comm) {
        bool due;

        comm_lock(comm);
        due = comm->disputed && !comm_error(comm) && clock_now_ns() - comm->disputed_ns >= DISPUTE_NS;
        comm_unlock(comm);
        return due;
}

void comm_mismatch_settle(struct comm *comm) {
        char text[sizeof(comm->error_text)];
        uint32_t status = 0;

        comm_lock(comm);
        if (comm->disputed && !comm_error(comm))
                status = settle(comm, text, sizeof(text));
        comm_unlock(comm);
        if (status)
                comm_fail(comm, status, text);
}
