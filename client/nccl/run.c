/* SPDX-License-Identifier: MIT */
/*
 * A communicator's calls in an order that all its ranks share, started as there is room: its collectives one by one,
 * then its sends and receives, cut into requests, for librailmux has a limit for those of one request.
 *
 * Requests of a rank run one after another. So what counts for sends and receives is that two ranks never have the
 * halves of two transfers in opposite requests. A transfer's place is (k, d, sender): the k-th one of its sender and
 * receiver, and how far the receiver is behind the sender. Both ranks compute the same place; each sorts by it before
 * it cuts. Of all transfers that are not finished take the one with the first place: its ranks have finished whatever
 * stands before it, so the request that has it runs on both, or can be started. (Where one rank has few, and does not
 * cut, all of its halves are in one request anyway.) The two halves of what a rank sends to itself have the same place
 * and go into one request, for librailmux demands that.
 *
 * Room for the arguments of such requests is little, and the other halves may be on another ring, which others may have
 * filled first; in another process, too. If each had what the other needs, both would stand still. So no run takes more
 * than its communicator's share of the ring, whether the others want theirs or not: a rank that comes later finds its
 * own. What shares do not see (they were larger when there were fewer communicators, groups that are one request take
 * what they need, and what is left may lie in pieces) is met by smaller requests: a run that has nothing under way and
 * finds no room asks for half as much, and in the end for a single transfer, which takes none.
 *
 * Nothing here waits on its own: whoever needs the run done goes on with it, one step after another. That is the end of
 * the group (transfer.c), or, where no communicator blocks, whoever looks after what is under way (pending.c). Both
 * take turns among their runs, a request of each: several may be the ranks of one communicator behind the same ring,
 * and none of them ends before all have room for its next one.
 */
#include "client/nccl/run.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/nccl/call.h"
#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/transfer.h"
#include "railmux/railmux.h"

#define CUT        256u  /* half of what a request may have */
#define ROOM       1600u /* transfers whose arguments a ring has room for at once, and some to spare */
#define RUNNING    2u    /* requests under way: the other rank may be behind the same ring, and needs room */
#define PEERS      64u
#define TEXT_BYTES 320u

struct run {
        struct ncclComm *comm;
        struct calls calls;
        struct transfer *transfers; /* by place */
        uint32_t n_transfers;
        uint32_t next_call, next_transfer; /* to be started */
        uint32_t cut;                      /* how many transfers the next request has at most */
        struct rmx_request requests[RUNNING];
        uint32_t n_running; /* of those, oldest first */
        int code, refused;  /* RMX_*: the first failure; no room, at the last attempt */
        char text[TEXT_BYTES];
        /* Of other threads, which ask run_is_started and run_is_torn: nothing is left to be started; and something
         * never will be, which is said first. */
        _Atomic bool started, torn;
};

/* ---- places ------------------------------------------------------------------------------------------------------ */
static int compare(uint32_t a, uint32_t b) {
        return a < b ? -1 : a > b;
}

static bool same_place(const struct transfer *a, const struct transfer *b) {
        return a->turn == b->turn && a->distance == b->distance && a->sender == b->sender;
}

static int transfer_compare(const void *x, const void *y) {
        const struct transfer *a = x, *b = y;
        int r = compare(a->turn, b->turn);

        if (!r)
                r = compare(a->distance, b->distance);
        if (!r)
                r = compare(a->sender, b->sender);
        return r ? r : compare(a->index, b->index);
}

static ncclResult_t run_place(struct run *run, const char *what) {
        uint32_t turns[2][PEERS] = {{0}}, rank = (uint32_t)run->comm->rank, n = (uint32_t)run->comm->n_ranks;

        for (struct transfer *t = run->transfers; t < run->transfers + run->n_transfers; t++) {
                uint32_t receiver = t->sends ? t->peer : rank;

                t->sender = t->sends ? rank : t->peer;
                t->distance = (receiver + n - t->sender) % n;
                t->turn = turns[t->sends][t->peer]++;
        }
        if (turns[0][rank] != turns[1][rank])
                return error_raise(ncclInvalidUsage,
                                   "%s: rank %u has %u sends to itself and %u receives from itself; a group must have "
                                   "as many of the one as of the other",
                                   what, rank, turns[1][rank], turns[0][rank]);
        if (run->n_transfers)
                qsort(run->transfers, run->n_transfers, sizeof(*run->transfers), transfer_compare);
        return ncclSuccess;
}

/* ---- its life ---------------------------------------------------------------------------------------------------- */
ncclResult_t run_new(struct ncclComm *comm, const char *what, struct calls *calls, const struct transfers *transfers,
                     struct run **ret_run) {
        uint32_t n = transfers_count(transfers, comm);
        struct run *run = calloc(1, sizeof(*run));
        ncclResult_t result = ncclSuccess;

        if (run && n)
                run->transfers = calloc(n, sizeof(*run->transfers));
        if (!run || (n && !run->transfers)) {
                free(run);
                return error_raise(ncclSystemError, "%s: out of memory", what);
        }
        run->comm = comm;
        run->cut = CUT;
        for (uint32_t i = 0; i < transfers->n; i++)
                if (transfers->list[i].comm == comm)
                        run->transfers[run->n_transfers++] = transfers->list[i];
        result = run_place(run, what);
        if (!result && calls)
                result = calls_take(calls, what, comm, &run->calls);
        if (result)
                run_free(run);
        else
                *ret_run = run;
        return result;
}

struct run *run_free(struct run *run) {
        if (!run)
                return NULL;
        calls_free(&run->calls);
        free(run->transfers);
        free(run);
        return NULL;
}

static bool run_has_rest(const struct run *run) {
        return run->next_call < run->calls.n || run->next_transfer < run->n_transfers;
}

void run_stop(struct run *run, int code, const char *text) {
        if (run_has_rest(run) && !run_is_torn(run)) {
                atomic_store(&run->torn, true);
                if (!run->code)
                        snprintf(run->text, sizeof(run->text), "%s", text);
                run->code = run->code ? run->code : code;
        }
        atomic_store(&run->started, true);
}

/* The first failure is what is told. The rest would come in the place of what has failed. */
static void run_fail(struct run *run, int code, const char *text) {
        if (!run->code) {
                run->code = code;
                snprintf(run->text, sizeof(run->text), "%s", text);
        }
        run_stop(run, code, text);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */
static const struct transfer *run_cut(const struct run *run) {
        const struct transfer *next = run->transfers + run->next_transfer;
        uint32_t left = run->n_transfers - run->next_transfer;

        if (left <= run->cut)
                return next + left;
        return next + run->cut + same_place(next + run->cut - 1, next + run->cut);
}

static int run_start_transfers(struct run *run, struct rmx_request *request) {
        const struct transfer *end = run_cut(run);
        int r = rmx_group_start(), ended;

        for (const struct transfer *t = run->transfers + run->next_transfer; t < end && !r; t++)
                r = transfer_record(t);
        ended = rmx_group_end_start(request); /* says the same once more if recording has failed */
        r = r ? r : ended;
        if (!r)
                run->next_transfer = (uint32_t)(end - run->transfers);
        return r;
}

static int run_start_next(struct run *run, struct rmx_request *request) {
        int r;

        if (run->next_call == run->calls.n)
                return run_start_transfers(run, request);
        r = call_issue(&run->calls.list[run->next_call], NULL, request);
        run->next_call += !r;
        return r;
}

/* Refused though it has nothing under way: true if less may do. */
static bool run_cut_less(struct run *run, int code) {
        if (code != RMX_E_BUSY || run->n_running || run->next_call < run->calls.n || run->cut == 1)
                return false;
        run->cut /= 2;
        return true;
}

static bool is_no_room(int code) {
        return code == RMX_E_BUSY || code == RMX_E_LIMIT || code == RMX_E_NO_MEMORY;
}

bool run_may_push(const struct run *run) {
        return !run_is_started(run) && run->n_running < RUNNING;
}

/* Of a request: as many as may be under way at once have all that is the communicator's. */
static uint32_t run_share(const struct run *run) {
        uint32_t share = ROOM / RUNNING / comm_count_neighbours(run->comm);

        return share > CUT ? CUT : share ? share : 1;
}

bool run_push(struct run *run) {
        uint32_t share;
        int r;

        if (!run_may_push(run))
                return false;
        share = run_share(run);
        run->cut = run->cut < share ? run->cut : share;
        run->refused = RMX_OK;
        do
                r = run_start_next(run, &run->requests[run->n_running]);
        while (run_cut_less(run, r));
        run->n_running += !r;
        if (!r)
                run->cut *= 2; /* unless that is beyond its share */
        if (is_no_room(r))
                run->refused = r;
        else if (r)
                run_fail(run, r, rmx_last_error());
        else if (!run_has_rest(run))
                atomic_store(&run->started, true);
        if (run->refused && !run->code)
                snprintf(run->text, sizeof(run->text), "%s", rmx_last_error());
        return !r;
}

bool run_give_up(struct run *run) {
        char text[TEXT_BYTES];

        if (!run->refused || run->code || run_is_started(run))
                return false;
        memcpy(text, run->text, sizeof(text));
        run_fail(run, run->refused, text);
        return true;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */
/* The oldest: RMX_E_TIMEOUT while it is under way. */
static int run_ask(struct run *run, uint32_t wait_ms) {
        int done = 0, r = rmx_test(&run->requests[0], &done);

        if (r || done)
                return r;
        return wait_ms ? rmx_wait_for(&run->requests[0], wait_ms) : RMX_E_TIMEOUT;
}

bool run_look(struct run *run, uint32_t wait_ms, int *ret_code) {
        while (run->n_running) {
                int r = run_ask(run, wait_ms);

                if (r == RMX_E_TIMEOUT)
                        break;
                if (r)
                        run_fail(run, r, rmx_last_error());
                memmove(run->requests, run->requests + 1, --run->n_running * sizeof(run->requests[0]));
                wait_ms = 0;
        }
        if (!run_is_started(run) || run->n_running)
                return false;
        *ret_code = run->code;
        return true;
}

bool run_is_started(const struct run *run) {
        return atomic_load(&run->started);
}

bool run_is_idle(const struct run *run) {
        return !run->n_running;
}

bool run_is_torn(const struct run *run) {
        return atomic_load(&run->torn);
}

const char *run_text(const struct run *run) {
        return run->text;
}
