/* SPDX-License-Identifier: MIT */
/*
 * The ends of a communicator. Finalize has nothing to flush: what was issued is the daemon's or on streams. But it is
 * over when finalize is, or, without blocking, when the asynchronous state says so; if it has failed, so do they. Abort
 * and revoke end what is under way on all ranks; the others hear of it as ncclRemoteError.
 *
 * An abort is for when something is stuck, and that may be the daemon. It has to be told, or the other ranks would not
 * hear; executors have to let go of memory; threads at work have to come back. All this is a matter of moments as a
 * rule, and when it is not, the program has to go on nevertheless. So it is done in a thread of its own, for which the
 * abort or the revoke waits a limited time only. A thread that is left behind finishes when the daemon answers, or is
 * gone for good.
 *
 * It may be a destroy that is stuck, in another thread. Then the abort ends what that one waits for, and leaves the
 * rest to it (comm.c). What waits for the daemon in a destroy has a thread, too, that the destroy leaves behind then.
 *
 * A communicator of another library is that one's to abort, at once and whatever is at work in it: who waits there,
 * waits for this.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "client/nccl/comm.h"
#include "client/nccl/create.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"
#include "client/nccl/group.h"
#include "client/nccl/log.h"
#include "railmux/railmux.h"

#define ABORT_WAIT_GROUP_MS 400u /* in a group, where it happens in two parts */

/* ---- in a limited time ------------------------------------------------------------------------------------------- */
/* Belongs to the thread that works and to the one that waits; whoever comes last frees it. */
struct ending {
        pthread_mutex_t mutex;
        pthread_cond_t changed;
        bool over, left, broken; /* under mutex, as is result; broken: the time is limited */
        ncclResult_t result;
        struct ncclComm *comm;
        const char *what;
        ncclResult_t (*run)(struct ncclComm *comm, const char *what);
};

static void ending_free(struct ending *ending) {
        pthread_cond_destroy(&ending->changed);
        pthread_mutex_destroy(&ending->mutex);
        free(ending);
}

static void *ending_main(void *userdata) {
        struct ending *ending = userdata;
        ncclResult_t result = ending->run(ending->comm, ending->what);
        bool left;

        pthread_mutex_lock(&ending->mutex);
        ending->result = result;
        ending->over = true;
        left = ending->left;
        pthread_cond_broadcast(&ending->changed);
        pthread_mutex_unlock(&ending->mutex);
        if (left)
                ending_free(ending);
        return NULL;
}

static bool ending_start(struct ending *ending) {
        pthread_attr_t attributes;
        sigset_t all, before;
        pthread_t thread;
        int r;

        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_create(&thread, &attributes, ending_main, ending);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        return !r;
}

static struct ending *ending_new(void) {
        struct ending *ending = calloc(1, sizeof(*ending));
        pthread_condattr_t attributes;

        if (!ending)
                return NULL;
        pthread_mutex_init(&ending->mutex, NULL);
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&ending->changed, &attributes);
        pthread_condattr_destroy(&attributes);
        return ending;
}

void ending_break(struct ending *ending) {
        pthread_mutex_lock(&ending->mutex);
        ending->broken = true;
        pthread_cond_broadcast(&ending->changed);
        pthread_mutex_unlock(&ending->mutex);
}

/* Until it is over, or the time is, which begins when it is broken. The ending may be gone then. */
static ncclResult_t ending_await(struct ending *ending, const char *what, uint32_t limit_ms) {
        ncclResult_t result = ncclSuccess;
        struct timespec until;
        bool over;
        int r = 0;

        pthread_mutex_lock(&ending->mutex);
        while (!ending->over && !ending->broken)
                pthread_cond_wait(&ending->changed, &ending->mutex);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)limit_ms * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        while (!ending->over && !r)
                r = pthread_cond_timedwait(&ending->changed, &ending->mutex, &until);
        over = ending->over;
        if (over)
                result = ending->result;
        ending->left = true;
        pthread_mutex_unlock(&ending->mutex);
        if (over)
                ending_free(ending);
        else /* no failure yet, but what a program that asks has to know; a failure that comes later replaces it */
                result = error_raise(ncclSuccess,
                                     "%s: the daemon has not answered within %u ms; the rest happens when it does",
                                     what, limit_ms);
        return result;
}

/* Which destroy waits, so that an abort finds it. NULL: none does. */
static void comm_set_leaving(struct ncclComm *comm, struct ending *ending) {
        comm_lock();
        comm->leaving = ending;
        if (ending && comm->broken)
                ending->broken = true;
        comm_unlock();
}

/* Runs it, and returns when it is over or the time is, which is limited from the beginning, or for a destroy that
 * leaves from an abort on. Where there is no thread to be had it takes what it takes. */
static ncclResult_t run_apart(ncclResult_t (*run)(struct ncclComm *comm, const char *what), struct ncclComm *comm,
                              const char *what, uint32_t limit_ms, bool leaves) {
        struct ending *ending = ending_new();

        if (!ending)
                return run(comm, what);
        ending->run = run;
        ending->comm = comm;
        ending->what = what;
        ending->broken = !leaves;
        if (leaves)
                comm_set_leaving(comm, ending);
        if (ending_start(ending))
                return ending_await(ending, what, limit_ms);
        if (leaves)
                comm_set_leaving(comm, NULL);
        ending_free(ending);
        return run(comm, what);
}

static ncclResult_t run_limited(ncclResult_t (*run)(struct ncclComm *comm, const char *what), struct ncclComm *comm,
                                const char *what, uint32_t limit_ms) {
        return run_apart(run, comm, what, limit_ms, false);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */
static ncclResult_t run_abort(struct ncclComm *comm, const char *what) {
        (void)what;
        (void)comm_abort(comm);
        comm_exit(comm);
        return ncclSuccess;
}

static ncclResult_t run_abort_end(struct ncclComm *comm, const char *what) {
        (void)comm_abort(comm);
        return comm_close(comm, true) ? comm_end(comm, what, true) : ncclSuccess;
}

/* Of a destroy: the daemon may be what made somebody abort. */
static ncclResult_t run_broken_end(struct ncclComm *comm, const char *what) {
        return comm_end(comm, what, true);
}

static ncclResult_t run_leave(struct ncclComm *comm, const char *what) {
        return comm_end(comm, what, false);
}

/* The last to let go of it may be at the end of a group, with calls recorded in librailmux's, where nothing can be
 * left: not in that thread, then. */
void comm_end_apart(struct ncclComm *comm, const char *what) {
        (void)run_limited(run_broken_end, comm, what, ABORT_WAIT_MS);
}

ncclResult_t comm_finish(struct ncclComm *comm, const char *what, bool abort) {
        jobs_cancel(comm, abort);
        if (abort)
                return run_limited(run_abort_end, comm, what,
                                   atomic_load(&comm->aborted) ? ABORT_WAIT_GROUP_MS : ABORT_WAIT_MS);
        if (!comm_close(comm, false))
                return ncclSuccess;
        if (comm_drain(comm))
                return run_limited(run_broken_end, comm, what, ABORT_WAIT_MS);
        /* Another library's end is its thread's, whose group may be open there. */
        return comm->rmx ? run_apart(run_leave, comm, what, ABORT_WAIT_MS, true) : comm_end(comm, what, false);
}

/* On the host calls that block are over, and those that do not are told of anyhow. */
static ncclResult_t finalize(struct ncclComm *comm) {
        ncclResult_t result = ncclSuccess;

        if (atomic_exchange(&comm->closed, true))
                return error_raise(atomic_load(&comm->quieted) ? ncclInvalidUsage : ncclInvalidArgument,
                                   "ncclCommFinalize: this communicator is finalized or revoked");
        if (comm->host)
                return ncclSuccess;
        return group_finalize(comm, &result) ? result : comm_finalize(comm, "ncclCommFinalize");
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
        ncclResult_t result;

        if (!comm) /* as destroy and abort */
                return ncclSuccess;
        result = comm_enter_any(comm, __func__);
        if (result)
                return group_note(result);
        if (comm->real)
                result = FALLBACK(comm->fallback, ncclCommFinalize, comm->real);
        else
                result = finalize(comm);
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommFinalize);

/* What cannot wait for the end of a group, which may be what waits for it. */
static ncclResult_t abort_now(struct ncclComm *comm, const char *what) {
        if (comm->real) {
                if (atomic_exchange(&comm->aborted, true))
                        return ncclSuccess;
                return FALLBACK(comm->fallback, ncclCommAbort, comm->real);
        }
        jobs_cancel(comm, true);
        if (!group_active())
                return ncclSuccess; /* at once */
        atomic_fetch_add(&comm->users, 1);
        return run_limited(run_abort, comm, what, ABORT_WAIT_GROUP_MS);
}

static ncclResult_t run_break(struct ncclComm *comm, const char *what) {
        (void)what;
        (void)comm_abort(comm);
        comm_unbreak(comm);
        return ncclSuccess;
}

/* An abort while a destroy is under way. */
static ncclResult_t break_destroy(struct ncclComm *comm, const char *what) {
        ncclResult_t result;

        if (comm->real) {
                result = FALLBACK(comm->fallback, ncclCommAbort, comm->real); /* comm_claim has said so */
                comm_unbreak(comm);
                return result;
        }
        jobs_cancel(comm, true);
        return run_limited(run_break, comm, what, group_active() ? ABORT_WAIT_GROUP_MS : ABORT_WAIT_MS);
}

static ncclResult_t end(struct ncclComm *comm, const char *what, bool abort) {
        ncclResult_t result, aborted = ncclSuccess;
        enum comm_claim claim = CLAIM_REFUSED;
        struct job *job;

        if (!comm) /* as with free() */
                return ncclSuccess;
        result = comm_valid(comm, what);
        if (!result)
                claim = comm_claim(comm, abort);
        if (!result && claim == CLAIM_REFUSED)
                result = error_raise(ncclInvalidArgument, "%s: this communicator is being destroyed", what);
        if (result || claim == CLAIM_NOTHING)
                return result;
        if (claim == CLAIM_BREAK)
                return break_destroy(comm, what);
        if (comm->real && !abort)
                result = group_enter_fallback(comm->fallback);
        job = result ? NULL : job_new(JOB_END, what);
        if (!job) {
                comm_unclaim(comm);
                return ncclSystemError;
        }
        job->comm = comm;
        job->abort = abort;
        if (abort)
                aborted = abort_now(comm, what);
        result = job_submit(job);
        return aborted ? aborted : result;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
        return group_note(end(comm, __func__, false));
}
TWIN(ncclCommDestroy);

ncclResult_t ncclCommAbort(ncclComm_t comm) {
        return group_note(end(comm, __func__, true));
}
TWIN(ncclCommAbort);

static ncclResult_t run_revoke(struct ncclComm *comm, const char *what) {
        ncclResult_t result = comm_result(comm, what, comm_abort(comm));

        atomic_fetch_sub(&comm->n_revokes, 1);
        comm_drop(comm);
        return result;
}

ncclResult_t comm_revoke(struct ncclComm *comm, const char *what) {
        atomic_store(&comm->closed, true);
        atomic_store(&comm->quieted, true);
        atomic_fetch_add(&comm->n_revokes, 1);
        atomic_fetch_add(&comm->users, 1);
        comm_hold(comm); /* when the time is over, who ends it need not wait for the daemon either. The caller holds it,
                          * too: if that has ended it, what is left is the last one's who lets go, and who waits for us
                          * would be waited for */
        return run_limited(run_revoke, comm, what, ABORT_WAIT_MS);
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
        ncclResult_t result = comm_enter_any(comm, __func__);

        if (result)
                return group_note(result);
        if (!comm->real && revokeFlags == NCCL_REVOKE_DEFAULT) {
                comm_hold(comm);
                result = comm_revoke(comm, __func__);
                comm_drop(comm);
                return group_note(result);
        }
        if (comm->real)
                result = FALLBACK(comm->fallback, ncclCommRevoke, comm->real, revokeFlags);
        else
                result = error_raise(ncclInvalidArgument, "%s: flags 0x%x, must be 0", __func__,
                                     (unsigned int)revokeFlags);
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommRevoke);
