/* SPDX-License-Identifier: MIT */
/*
 * Each communicator's transfers are cut into requests, which are started as there is room and run one after another. So
 * what counts is that two ranks never have the halves of two transfers in opposite requests. A transfer's place is
 * (k, d, sender): the k-th one of its sender and receiver, and how far the receiver is behind the sender. Both ranks
 * compute the same place; each sorts by it before it cuts. Of all transfers that are not finished take the one with the
 * first place: its ranks have finished whatever stands before it, so the request that has it runs on both, or can be
 * started. (Where one rank has few, and does not cut, all of its halves are in one request anyway.) The two halves of
 * what a rank sends to itself have the same place and go into one request, for librailmux demands that.
 *
 * Nothing here waits on its own: whoever needs the transfers done goes on with them, one step after another. That is
 * the end of the group, or, where no communicator blocks, whoever looks after what is under way (pending.c).
 */
#include "client/nccl/transfer_many.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/transfer.h"
#include "railmux/railmux.h"

#define CUT 256u /* half of what a request may have */
#define RUNNING                                                                                                        \
        2u /* requests of a communicator under way: the other rank may be behind the same ring, and needs room */
#define PEERS 64u

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
/* A communicator's transfers: [next, end) are not started. */
struct queue {
        const struct transfer *next, *end;
        uint32_t n_running; /* its requests under way */
};

struct requests {
        struct started {
                struct rmx_request request;
                struct queue *queue; /* NULL: the collectives */
                bool over;
        } * list;
        uint32_t n, n_over;
        int first_error;
};

static void request_over(struct requests *requests, struct started *started, int code) {
        started->over = true;
        if (started->queue)
                started->queue->n_running--;
        requests->n_over++;
        if (!requests->first_error)
                requests->first_error = code;
}

/* Waits so long, or until some are over. */
static void requests_look(struct requests *requests, uint32_t wait_ms) {
        uint32_t before = requests->n_over;
        struct started *oldest = NULL;

        for (struct started *started = requests->list; started < requests->list + requests->n; started++) {
                int done = 0, r;

                if (started->over)
                        continue;
                r = rmx_test(&started->request, &done);
                if (done || r)
                        request_over(requests, started, r);
                else if (!oldest)
                        oldest = started;
        }
        if (wait_ms && requests->n_over == before && oldest) {
                int r = rmx_wait_for(&oldest->request, wait_ms);

                if (r != RMX_E_TIMEOUT)
                        request_over(requests, oldest, r);
        }
}

/* ---- many -------------------------------------------------------------------------------------------------------- */
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
                r = transfer_record(t);
        ended = rmx_group_end_start(&requests->list[requests->n].request);
        r = r ? r : ended;
        if (!r) {
                requests->list[requests->n++].queue = queue;
                queue->n_running++;
                queue->next = end;
        }
        return r;
}

static bool is_no_room(int code) {
        return code == RMX_E_BUSY || code == RMX_E_LIMIT || code == RMX_E_NO_MEMORY;
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */
struct transfer_run {
        struct transfers transfers;
        struct queue *queues;
        uint32_t n_queues;
        struct requests requests;
        int code;             /* RMX_*: why the rest is not started */
        _Atomic bool started; /* nothing is left to be started */
};

static bool run_has_rest(const struct transfer_run *run) {
        for (uint32_t i = 0; i < run->n_queues; i++)
                if (run->queues[i].next < run->queues[i].end)
                        return true;
        return false;
}

/* One of each in turn. A communicator that finds no room is left out until there may be some: another of this thread's
 * may be what it waits for. RMX_*: what stood in the way last. */
static int run_round(struct transfer_run *run) {
        int refused = RMX_OK;

        for (uint32_t i = 0; i < run->n_queues && !run->code; i++) {
                int r;

                if (run->queues[i].next == run->queues[i].end || run->queues[i].n_running == RUNNING)
                        continue;
                r = queue_start(&run->queues[i], &run->requests);
                if (is_no_room(r))
                        refused = r;
                else
                        run->code = r;
        }
        return refused;
}

static void run_start(struct transfer_run *run, enum transfer_start start) {
        struct requests *requests = &run->requests;
        uint32_t before;
        int refused;

        do {
                before = requests->n;
                refused = run_round(run);
        } while (!run->code && requests->n > before && run_has_rest(run));
        if (!run->code && refused && requests->n == requests->n_over && start != TRANSFER_START_PATIENTLY)
                run->code = refused; /* and nothing that could make room */
}

static ncclResult_t run_prepare(struct transfer_run *run, const char *what) {
        struct transfers *transfers = &run->transfers;
        uint32_t end;

        for (uint32_t first = 0; first < transfers->n; first = end) {
                ncclResult_t result;

                end = transfers_next_comm(transfers, first);
                result = place(transfers->list + first, transfers->list + end, what);
                if (result)
                        return result;
        }
        qsort(transfers->list, transfers->n, sizeof(*transfers->list), transfer_compare);
        /* More than there will be: none is for less than one transfer. */
        run->queues = calloc(transfers->n, sizeof(*run->queues));
        run->requests.list = calloc((size_t)transfers->n + 1, sizeof(*run->requests.list));
        if (!run->queues || !run->requests.list)
                return error_raise(ncclSystemError, "%s: out of memory", what);
        for (uint32_t first = 0; first < transfers->n; first = end) {
                end = transfers_next_comm(transfers, first);
                run->queues[run->n_queues++] = (struct queue){transfers->list + first, transfers->list + end, 0};
        }
        return ncclSuccess;
}

ncclResult_t transfer_run_new(struct transfers *transfers, const char *what, bool grouped,
                              struct transfer_run **ret_run) {
        struct transfer_run *run = calloc(1, sizeof(*run));
        ncclResult_t result;

        if (run) {
                run->transfers = *transfers;
                *transfers = (struct transfers){0};
                result = run_prepare(run, what);
        } else {
                result = error_raise(ncclSystemError, "%s: out of memory", what);
        }
        if (result) {
                if (grouped) {
                        (void)rmx_barrier(NULL, NULL); /* spoils what is recorded */
                        (void)rmx_group_end();
                }
                transfer_run_free(run);
                return result;
        }
        if (grouped) {
                run->code = rmx_group_end_start(&run->requests.list[0].request);
                run->requests.n = !run->code;
        }
        *ret_run = run;
        return ncclSuccess;
}

bool transfer_run_step(struct transfer_run *run, enum transfer_start start, uint32_t wait_ms, int *ret_code) {
        struct requests *requests = &run->requests;

        if (start != TRANSFER_START_NONE && !run->code && run_has_rest(run))
                run_start(run, start);
        if (run->code || !run_has_rest(run))
                atomic_store(&run->started, true);
        if (requests->n_over < requests->n)
                requests_look(requests, wait_ms);
        if (!atomic_load(&run->started) || requests->n_over < requests->n)
                return false;
        *ret_code = run->code ? run->code : requests->first_error;
        return true;
}

bool transfer_run_started(const struct transfer_run *run) {
        return atomic_load(&run->started);
}

bool transfer_run_idle(const struct transfer_run *run) {
        return run->requests.n_over == run->requests.n;
}

void transfer_run_stop(struct transfer_run *run) {
        if (!run->code && run_has_rest(run))
                run->code = RMX_E_ABORTED;
        atomic_store(&run->started, true);
}

struct transfer_run *transfer_run_free(struct transfer_run *run) {
        if (!run)
                return NULL;
        transfers_free(&run->transfers);
        free(run->queues);
        free(run->requests.list);
        free(run);
        return NULL;
}
