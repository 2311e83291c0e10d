/* SPDX-License-Identifier: MIT */
/*
 * A group of a thread consists of up to three: collectives are recorded in librailmux's group, calls on communicators
 * of another library in that one's, and communicators that are made or ended are a list of jobs here. Each is opened by
 * its first call. At the outermost end communicators are made, calls issued, and communicators ended, in this order.
 *
 * The first error of a call in the group is the result of its end, and then nothing of the group happens, but that
 * communicators are still ended. librailmux's group is thrown away by a call that spoils it, and the other library's,
 * too.
 *
 * On the host backend the end waits for what it issues, unless none of the communicators blocks. Then librailmux's
 * group only checks the calls; they are kept here as well, as those of all groups are, and started from there, for each
 * communicator by itself, when it is their turn (pending.c).
 */
#include "client/nccl/group.h"

#include <stdlib.h>
#include <utlist.h>

#include "client/nccl/call.h"
#include "client/nccl/comm.h"
#include "client/nccl/create.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"
#include "client/nccl/pending.h"
#include "client/nccl/run.h"
#include "client/nccl/session.h"
#include "client/nccl/transfer.h"
#include "client/nccl/waits.h"
#include "railmux/railmux.h"

/* What ranks send to themselves. */
struct self {
        struct self *next;
        const struct ncclComm *comm;
        uint32_t n[2]; /* receives, sends */
};

struct group {
        unsigned int depth;
        ncclResult_t error;
        bool issues; /* librailmux's group is open */
        const struct fallback *fallback;
        struct calls calls; /* of the host backend */
        struct transfers transfers;
        struct self *selves;
        struct job *jobs;
        struct ncclComm **comms; /* entered until the end */
        unsigned int n_comms, capacity;
        struct ncclComm *finalized; /* of those */
};

/* Of a group whose calls are only to be simulated. */
struct simulation {
        ncclSimInfo_t *info; /* NULL: it has no place for the time */
        ncclResult_t error;  /* of the call's own argument */
};

static _Thread_local struct group group;

ncclResult_t group_note(ncclResult_t result) {
        if (group.depth && !group.error && result != ncclSuccess && result != ncclInProgress)
                group.error = result;
        return result;
}

bool group_add(struct job *job) {
        struct job **end = &group.jobs;

        if (!group.depth)
                return false;
        while (*end)
                end = &(*end)->next;
        *end = job;
        return true;
}

static ncclResult_t group_keep(struct ncclComm *comm) {
        struct ncclComm **comms;

        for (unsigned int i = group.n_comms; i > 0; i--)
                if (group.comms[i - 1] == comm)
                        return ncclSuccess;
        if (group.n_comms == group.capacity) {
                unsigned int capacity = group.capacity ? 2 * group.capacity : 8;

                comms = reallocarray(group.comms, capacity, sizeof(struct ncclComm *));
                if (!comms)
                        return error_raise(ncclSystemError, "a group has no memory left");
                group.comms = comms;
                group.capacity = capacity;
        }
        atomic_fetch_add(&comm->users, 1);
        comm_hold(comm);
        group.comms[group.n_comms++] = comm;
        return ncclSuccess;
}

ncclResult_t group_enter(struct ncclComm *comm) {
        ncclResult_t result;

        if (!group.depth)
                return ncclSuccess;
        result = group_keep(comm);
        if (!result && !group.issues) {
                result = error_adopt("ncclGroupStart", rmx_group_start());
                group.issues = !result;
        }
        return result;
}

bool group_active(void) {
        return group.depth != 0;
}

bool group_finalize(struct ncclComm *comm, ncclResult_t *ret_result) {
        if (!group.depth)
                return false;
        *ret_result = group_keep(comm);
        if (!*ret_result)
                LL_APPEND2(group.finalized, comm, finalized_next);
        return true;
}

ncclResult_t group_transfer(const char *what, const struct transfer *transfer) {
        ncclResult_t result = group_keep(transfer->comm);

        return result ? result : transfers_add(&group.transfers, what, transfer);
}

ncclResult_t group_self(struct ncclComm *comm, bool sends) {
        struct self *self;

        LL_SEARCH_SCALAR(group.selves, self, comm, comm);
        if (!self) {
                self = calloc(1, sizeof(*self));
                if (!self)
                        return error_raise(ncclSystemError, "a group has no memory left");
                self->comm = comm;
                LL_PREPEND(group.selves, self);
        }
        self->n[sends]++;
        return ncclSuccess;
}

ncclResult_t group_call(const char *what, const struct call *call) {
        return calls_keep(&group.calls, what, call);
}

ncclResult_t group_enter_fallback(const struct fallback *fallback) {
        ncclResult_t result;

        if (!group.depth || group.fallback)
                return ncclSuccess;
        result = FALLBACK(fallback, ncclGroupStart);
        if (!result)
                group.fallback = fallback;
        return result;
}

static void release(struct group *g) {
        for (unsigned int i = 0; i < g->n_comms; i++)
                comm_drop(g->comms[i]);
        free(g->comms);
        g->comms = NULL;
        g->n_comms = 0;
}

/* The first error counts; what is in progress is none. */
static ncclResult_t first_of(ncclResult_t result, ncclResult_t next) {
        return (result && result != ncclInProgress) || !next ? result : next;
}

/* What is finalized in it is at rest when it ends, or its state says when. Only here, behind all that the group has
 * issued: whoever asked for the state before that would find it at rest, and not look again. */
static ncclResult_t settle(struct group *g, const char *what) {
        ncclResult_t result = ncclSuccess;
        struct ncclComm *comm, *next;

        LL_FOREACH_SAFE2(g->finalized, comm, next, finalized_next) {
                result = first_of(result, comm_finalize(comm, what));
        }
        g->finalized = NULL;
        return result;
}

static void probe(const struct group *g, int code) {
        for (unsigned int i = 0; i < g->n_comms && code == RMX_E_DAEMON_LOST; i++)
                session_probe(g->comms[i]->session);
}

/* What it issues need not be waited for: so say all of its communicators. */
static bool is_patient(struct group *g) {
        for (unsigned int i = 0; i < g->n_comms; i++)
                if (!pending_wanted(g->comms[i]))
                        return false;
        return g->n_comms;
}

static void selves_free(struct group *g) {
        struct self *self, *next;

        LL_FOREACH_SAFE(g->selves, self, next)
                free(self);
        g->selves = NULL;
}

/* librailmux would say so, too, but not as NCCL does. */
static ncclResult_t check_selves(const struct group *g, const char *what) {
        const struct self *self;

        LL_FOREACH(g->selves, self) {
                if (self->n[0] != self->n[1])
                        return error_raise(ncclInvalidUsage,
                                           "%s: rank %d has %u sends to itself and %u receives from itself; a group "
                                           "must have as many of the one as of the other",
                                           what, self->comm->rank, self->n[1], self->n[0]);
        }
        return ncclSuccess;
}

/* librailmux's group, which is open, comes to nothing. */
static int spoil(void) {
        (void)rmx_barrier(NULL, NULL);
        return rmx_group_end();
}

/* All of a group, as one request. */
static int start_all(const void *userdata, struct rmx_request *request) {
        const struct group *g = userdata;

        return transfers_issue(&g->transfers, &g->calls, false, request);
}

/* A group of several communicators, or behind calls that are not started: each has its run. */
static ncclResult_t start_runs(struct group *g, const char *what) {
        struct pending **begun = calloc(g->n_comms, sizeof(struct pending *));
        ncclResult_t result = begun ? ncclSuccess : error_raise(ncclSystemError, "%s: out of memory", what);
        uint32_t n = 0;

        for (unsigned int i = 0; i < g->n_comms && !result; i++) {
                struct run *run;

                result = run_new(g->comms[i], what, &g->calls, &g->transfers, &run);
                if (result)
                        break;
                begun[n] = pending_new(what, g->comms[i], run);
                if (begun[n])
                        n++;
                else
                        result = ncclSystemError;
        }
        if (!result)
                result = pendings_begin(begun, n);
        else
                while (n)
                        pending_free(begun[--n]);
        free(begun);
        return result;
}

/* Nothing of it happens if one of its communicators has failed. */
static ncclResult_t start(struct group *g, const char *what) {
        ncclResult_t result = ncclSuccess;
        struct pending *pending;
        bool behind = false;

        if (g->issues)
                (void)spoil();
        for (unsigned int i = 0; i < g->n_comms && !result; i++) {
                result = pending_check(g->comms[i], what, &behind);
                if (!result)
                        result = comm_result(g->comms[i], what, rmx_comm_error(g->comms[i]->rmx));
        }
        if (result)
                return result;
        if (g->n_comms > 1 || !transfers_are_few(&g->transfers, &g->calls, g->comms, 1) || behind)
                return start_runs(g, what);
        pending = pending_new(what, g->comms[0], NULL);
        return pending ? pending_start(pending, start_all, g) : ncclSystemError;
}

/* Its end is to wait, since some of its communicators block, and issues all at once. Nothing may stand before that on
 * those that do not, and nothing may have been given up. */
static ncclResult_t check_waiting(const struct group *g, const char *what) {
        ncclResult_t result = ncclSuccess;
        bool behind = false;

        for (unsigned int i = 0; i < g->n_comms && !result; i++) {
                result = pending_wanted(g->comms[i]) ? pending_check(g->comms[i], what, &behind)
                                                     : pending_refuse(g->comms[i], what);
                if (!result && behind)
                        result = error_raise(ncclInvalidUsage,
                                             "%s: some communicators of the group block, and one that does not has "
                                             "earlier calls that are not started; ask ncclCommGetAsyncError until it "
                                             "is no longer ncclInProgress first, or give them groups of their own",
                                             what);
        }
        return result;
}

static ncclResult_t issue(struct group *g, const char *what, bool drop) {
        const bool patient = is_patient(g);
        ncclResult_t result = ncclSuccess;
        int r;

        if (!drop) {
                result = check_selves(g, what);
                drop = result != ncclSuccess;
        }
        if (!drop && !patient && (g->issues || g->transfers.n)) {
                result = check_waiting(g, what);
                drop = result != ncclSuccess;
        }
        if (drop && g->issues) {
                r = spoil();
                result = result ? result : error_of_code(r);
        } else if (!drop && (g->issues || g->transfers.n) && patient) {
                result = start(g, what);
        } else if (!drop && (g->issues || g->transfers.n)) {
                waits_begin();
                result = transfers_run(&g->transfers, &g->calls, g->issues, g->comms, g->n_comms, what, &r);
                waits_end();
                probe(g, r);
        }
        selves_free(g);
        calls_free(&g->calls);
        transfers_free(&g->transfers);
        return result;
}

static bool failed(ncclResult_t result) {
        return result && result != ncclInProgress;
}

/* There is no call for giving up a group of NCCL's, but it gives up one in which a call was wrong, such as this: a
 * handle with no place and a rank that there is not. (RCCL looks into the communicator of a collective before it looks
 * whether there is one.) If the library should not, its calls are at least only simulated. What it says is of no
 * interest: we know why. */
static void fallback_give_up(const struct fallback *fallback) {
        ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;

        (void)fallback->ncclCommInitRank(NULL, 1, (ncclUniqueId){{0}}, 1);
        (void)(fallback->ncclGroupSimulateEnd ? fallback->ncclGroupSimulateEnd(&info) : fallback->ncclGroupEnd());
}

/* The time counts if the group has nothing else, whose time nobody knows. Without a struct NCCL would not simulate. */
static ncclResult_t fallback_simulate(const struct group *g, ncclSimInfo_t *ret_info) {
        ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
        ncclResult_t result;

        result = FALLBACK(g->fallback, ncclGroupSimulateEnd, &info);
        if (!result && ret_info && !g->n_comms)
                ret_info->estimatedTime = info.estimatedTime;
        return result;
}

static ncclResult_t check_simulation(const struct group *g, const struct simulation *simulation) {
        if (simulation->error || !g->fallback || g->fallback->ncclGroupSimulateEnd)
                return simulation->error;
        return fallback_missing("ncclGroupSimulateEnd");
}

/* simulation: nothing is to be issued, though nothing has failed. Communicators are made and ended, as in NCCL's. */
static ncclResult_t group_finish(struct group *g, const char *what, const struct simulation *simulation) {
        ncclResult_t result = g->error, next;

        if (simulation && !result)
                result = check_simulation(g, simulation);
        if (result)
                jobs_drop(&g->jobs);
        else
                result = jobs_run(&g->jobs, false);
        next = issue(g, what, simulation || failed(result));
        if (!simulation)
                result = first_of(result, next);
        if (g->fallback && failed(result))
                fallback_give_up(g->fallback);
        else if (g->fallback && simulation)
                result = first_of(result, fallback_simulate(g, simulation->info));
        else if (g->fallback)
                result = first_of(result, FALLBACK(g->fallback, ncclGroupEnd));
        result = first_of(result, settle(g, what));
        release(g);
        return first_of(result, jobs_run(&g->jobs, true));
}

ncclResult_t ncclGroupStart(void) {
        group.depth++;
        return ncclSuccess;
}
TWIN(ncclGroupStart);

static ncclResult_t end(const char *what, const struct simulation *simulation) {
        struct group g;

        if (!group.depth)
                return error_raise(ncclInvalidUsage, "%s: this thread has no group; ncclGroupStart comes first", what);
        if (--group.depth)
                return simulation ? group_note(simulation->error) : ncclSuccess;
        g = group;
        group = (struct group){0};
        return group_finish(&g, what, simulation);
}

ncclResult_t ncclGroupEnd(void) {
        return end(__func__, NULL);
}
TWIN(ncclGroupEnd);

/* Of calls of the daemon it says nothing about time: the plans are the daemon's, and no call predicts for them. The
 * group ends whatever the argument is, or the thread would record for ever. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
        struct simulation simulation = {.error = ncclSuccess};

        if (simInfo && (simInfo->magic != NCCL_SIM_INFO_MAGIC || simInfo->size < sizeof(simInfo->size)))
                simulation.error = error_raise(
                        ncclInvalidArgument, "%s: simInfo is not initialised with NCCL_SIM_INFO_INITIALIZER", __func__);
        else if (simInfo && simInfo->size >= sizeof(*simInfo))
                simulation.info = simInfo;
        if (simulation.info)
                simulation.info->estimatedTime = NCCL_UNDEF_FLOAT;
        return end(__func__, &simulation);
}
TWIN(ncclGroupSimulateEnd);
