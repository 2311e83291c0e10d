/* SPDX-License-Identifier: MIT */
/*
 * NCCL knows no limit to the sends and receives of a group; on the host backend librailmux has one for each
 * communicator. So those of a group are kept here until its end. If there are few, they go into librailmux's group,
 * behind the collectives.
 *
 * If there are many, each communicator's are cut into requests, which are started as there is room and run one after
 * another. So what counts is that two ranks never have the halves of two transfers in opposite requests. A
 * transfer's place is (k, d, sender): the k-th one of its sender and receiver, and how far the receiver is behind the
 * sender. Both ranks compute the same place; each sorts by it before it cuts. Of all transfers that are not finished
 * take the one with the first place: its ranks have finished whatever stands before it, so the request that has it runs
 * on both, or can be started. (Where one rank has few, and does not cut, all of its halves are in one request anyway.)
 * The two halves of what a rank sends to itself have the same place and go into one request, for librailmux demands
 * that.
 *
 * On GPUs librailmux does all this by itself.
 */
#include "client/nccl/transfer.h"

#include <stdlib.h>

#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "railmux/railmux.h"

#define FEW     512u /* what a group of librailmux takes for one communicator */
#define CUT     256u /* half: twice as many requests may be under way */
#define PEERS   64u
#define LOOK_MS 1u

void transfers_free(struct transfers *transfers) {
        free(transfers->list);
        *transfers = (struct transfers){0};
}

ncclResult_t transfers_add(struct transfers *transfers, const char *what, const struct transfer *transfer) {
        size_t size = rmx_type_size(transfer->type), bytes;
        struct transfer *list;

        if (!size)
                return error_raise(ncclInvalidArgument, "%s: type %u is unknown", what, transfer->type);
        if (transfer->peer >= (uint32_t)transfer->comm->n_ranks)
                return error_raise(ncclInvalidArgument, "%s: peer %d is out of range; the communicator has ranks 0..%d",
                                   what, (int)transfer->peer, transfer->comm->n_ranks - 1);
        if (__builtin_mul_overflow(transfer->count, size, &bytes) || bytes > PTRDIFF_MAX)
                return error_raise(ncclInvalidArgument, "%s: count %zu is too large", what, transfer->count);
        if (bytes && !transfer->address)
                return error_raise(ncclInvalidArgument, "%s: the buffer is NULL with count %zu", what, transfer->count);
        if (transfers->n == transfers->capacity) {
                uint32_t capacity = transfers->capacity ? 2 * transfers->capacity : 16;

                list = reallocarray(transfers->list, capacity, sizeof(*list));
                if (!list)
                        return error_raise(ncclSystemError, "%s: out of memory", what);
                transfers->list = list;
                transfers->capacity = capacity;
        }
        transfers->list[transfers->n] = *transfer;
        transfers->list[transfers->n].index = transfers->n;
        transfers->n++;
        return ncclSuccess;
}

/* ---- few --------------------------------------------------------------------------------------------------------- */
static int record(const struct transfer *t) {
        return t->sends ? rmx_send(t->comm->rmx, t->address, t->count, t->type, t->peer, NULL)
                        : rmx_recv(t->comm->rmx, t->address, t->count, t->type, t->peer, NULL);
}

int transfers_record(const struct transfers *transfers, bool grouped) {
        int r = grouped ? RMX_OK : rmx_group_start();

        for (uint32_t i = 0; i < transfers->n && !r; i++)
                r = record(&transfers->list[i]);
        return r;
}

static int run_few(const struct transfers *transfers, bool grouped) {
        int r = transfers_record(transfers, grouped), end = rmx_group_end();

        return r ? r : end;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */
static int compare(uint32_t a, uint32_t b) {
        return a < b ? -1 : a > b;
}

static bool same_place(const struct transfer *a, const struct transfer *b) {
        return a->turn == b->turn && a->distance == b->distance && a->sender == b->sender;
}

/* By communicator, in a communicator by place. */
static int transfer_compare(const void *x, const void *y) {
        const struct transfer *a = x, *b = y;
        int r = a->comm == b->comm ? 0 : (uintptr_t)a->comm < (uintptr_t)b->comm ? -1 : 1;

        if (!r)
                r = compare(a->turn, b->turn);
        if (!r)
                r = compare(a->distance, b->distance);
        if (!r)
                r = compare(a->sender, b->sender);
        return r ? r : compare(a->index, b->index);
}

/* Of the same communicator, in the order of the calls. */
static int index_compare(const void *x, const void *y) {
        const struct transfer *a = x, *b = y;
        int r = a->comm == b->comm ? 0 : (uintptr_t)a->comm < (uintptr_t)b->comm ? -1 : 1;

        return r ? r : compare(a->index, b->index);
}

/* The first transfer of another communicator. */
static uint32_t next_comm(const struct transfers *transfers, uint32_t first) {
        uint32_t end = first;

        while (end < transfers->n && transfers->list[end].comm == transfers->list[first].comm)
                end++;
        return end;
}

/* Sorts by communicator and finds out how many one of them has. */
static uint32_t most_of_one(struct transfers *transfers) {
        uint32_t most = 0, end;

        if (transfers->n)
                qsort(transfers->list, transfers->n, sizeof(*transfers->list), index_compare);
        for (uint32_t first = 0; first < transfers->n; first = end) {
                end = next_comm(transfers, first);
                if (end - first > most)
                        most = end - first;
        }
        return most;
}

static ncclResult_t place(struct transfer *first, const struct transfer *end, const char *what) {
        uint32_t turns[2][PEERS] = {{0}}, rank = (uint32_t)first->comm->rank, n = (uint32_t)first->comm->n_ranks;

        for (struct transfer *t = first; t < end; t++) {
                uint32_t receiver = t->sends ? t->peer : rank;

                t->sender = t->sends ? rank : t->peer;
                t->distance = (receiver + n - t->sender) % n;
                t->turn = turns[t->sends][t->peer]++;
        }
        if (turns[0][rank] == turns[1][rank])
                return ncclSuccess;
        return error_raise(ncclInvalidUsage,
                           "%s: rank %u has %u sends to itself and %u receives from itself; a group must have as many "
                           "of the one as of the other",
                           what, rank, turns[1][rank], turns[0][rank]);
}

/* ---- requests under way ------------------------------------------------------------------------------------------ */
struct requests {
        struct rmx_request *list;
        bool *over;
        uint32_t n, n_over;
        int first_error;
};

static void request_over(struct requests *requests, uint32_t i, int code) {
        requests->over[i] = true;
        requests->n_over++;
        if (!requests->first_error)
                requests->first_error = code;
}

/* Waits a moment, or until some are over. */
static void requests_look(struct requests *requests) {
        uint32_t oldest = requests->n, before = requests->n_over;

        for (uint32_t i = 0; i < requests->n; i++) {
                int done = 0, r;

                if (requests->over[i])
                        continue;
                r = rmx_test(&requests->list[i], &done);
                if (done || r)
                        request_over(requests, i, r);
                else if (oldest == requests->n)
                        oldest = i;
        }
        if (requests->n_over == before && oldest < requests->n) {
                int r = rmx_wait_for(&requests->list[oldest], LOOK_MS);

                if (r != RMX_E_TIMEOUT)
                        request_over(requests, oldest, r);
        }
}

/* ---- many -------------------------------------------------------------------------------------------------------- */
/* A communicator's transfers: [next, end) are not started. */
struct queue {
        const struct transfer *next, *end;
};

static const struct transfer *queue_cut(const struct queue *queue) {
        const struct transfer *end = queue->next + CUT;

        if (queue->end - queue->next <= (ptrdiff_t)CUT)
                return queue->end;
        return end + same_place(end - 1, end);
}

/* Starts the next request of a communicator. */
static int queue_start(struct queue *queue, struct requests *requests) {
        const struct transfer *end = queue_cut(queue);
        int r = rmx_group_start(), ended;

        for (const struct transfer *t = queue->next; t < end && !r; t++)
                r = record(t);
        ended = rmx_group_end_start(&requests->list[requests->n]);
        r = r ? r : ended;
        if (!r) {
                requests->n++;
                queue->next = end;
        }
        return r;
}

static bool is_no_room(int code) {
        return code == RMX_E_BUSY || code == RMX_E_LIMIT || code == RMX_E_NO_MEMORY;
}

/* One of each in turn. A communicator that finds no room is left out until there may be some: another of this thread's
 * may be what it waits for. */
static int start_all(struct queue *queues, uint32_t n_queues, struct requests *requests) {
        uint32_t unstarted = n_queues;
        int r = RMX_OK;

        while (unstarted && !r) {
                uint32_t started = requests->n;
                int refused = RMX_OK;

                unstarted = 0;
                for (uint32_t i = 0; i < n_queues && !r; i++) {
                        if (queues[i].next == queues[i].end)
                                continue;
                        r = queue_start(&queues[i], requests);
                        if (is_no_room(r)) {
                                refused = r;
                                r = RMX_OK;
                        }
                        unstarted += queues[i].next < queues[i].end;
                }
                if (!r && requests->n == started && refused) {
                        if (requests->n == requests->n_over)
                                r = refused; /* and nothing that could make room */
                        else
                                requests_look(requests);
                }
        }
        return r;
}

static int issue_many(struct transfers *transfers, struct queue *queues, struct requests *requests, bool grouped) {
        uint32_t n_queues = 0, end;
        int r = RMX_OK;

        if (grouped) {
                r = rmx_group_end_start(&requests->list[0]);
                requests->n = !r;
        }
        for (uint32_t first = 0; first < transfers->n; first = end) {
                end = next_comm(transfers, first);
                queues[n_queues++] = (struct queue){transfers->list + first, transfers->list + end};
        }
        return r ? r : start_all(queues, n_queues, requests);
}

static ncclResult_t prepare_many(struct transfers *transfers, const char *what, struct queue **ret_queues,
                                 struct requests *requests) {
        ncclResult_t result = ncclSuccess;

        for (uint32_t first = 0, end; first < transfers->n && !result; first = end) {
                end = next_comm(transfers, first);
                result = place(transfers->list + first, transfers->list + end, what);
        }
        if (result)
                return result;
        if (transfers->n)
                qsort(transfers->list, transfers->n, sizeof(*transfers->list), transfer_compare);
        /* More than there will be: none is for less than one transfer. */
        *ret_queues = calloc(transfers->n, sizeof(**ret_queues));
        requests->list = calloc((size_t)transfers->n + 1, sizeof(*requests->list));
        requests->over = calloc((size_t)transfers->n + 1, sizeof(*requests->over));
        return *ret_queues && requests->list && requests->over
                       ? ncclSuccess
                       : error_raise(ncclSystemError, "%s: out of memory", what);
}

static ncclResult_t run_many(struct transfers *transfers, const char *what, bool grouped, int *ret_code) {
        struct requests requests = {.list = NULL};
        struct queue *queues = NULL;
        ncclResult_t result;

        *ret_code = RMX_OK;
        result = prepare_many(transfers, what, &queues, &requests);
        if (!result) {
                *ret_code = issue_many(transfers, queues, &requests, grouped);
                result = error_adopt(what, *ret_code);
                while (requests.n_over < requests.n)
                        requests_look(&requests);
                if (!result) {
                        *ret_code = requests.first_error;
                        result = error_adopt(what, *ret_code);
                }
        } else if (grouped) {
                (void)rmx_barrier(NULL, NULL); /* spoils what is recorded */
                (void)rmx_group_end();
        }
        free(queues);
        free(requests.list);
        free(requests.over);
        return result;
}

bool transfers_are_few(struct transfers *transfers) {
        /* Sorting by communicator keeps the order within each, and there is none between them. */
        return most_of_one(transfers) <= FEW;
}

ncclResult_t transfers_run(struct transfers *transfers, const char *what, bool grouped, int *ret_code) {
        if (!transfers_are_few(transfers))
                return run_many(transfers, what, grouped, ret_code);
        *ret_code = run_few(transfers, grouped);
        return error_adopt(what, *ret_code);
}
