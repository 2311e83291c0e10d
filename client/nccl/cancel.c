/* SPDX-License-Identifier: MIT */
/*
 * Giving up. A communicator that is made waits for other ranks, perhaps for ever. Three things end that:
 *
 *   - its program aborts or destroys it. NCCL's rule is that an abort also ends what is being made from a communicator;
 *     and the thread that makes it may not have begun yet. So what was said stays said in the communicator, and a job
 *     looks there when it begins.
 *   - another one of its group has failed. The ranks of a group mostly are of one communicator, and without that one
 *     the others would wait in vain. The error of the group is the first one; those given up say nothing.
 *   - its time is over (config.c).
 *
 * All of it is under comm_lock; librailmux's cancels take only locks that are held for moments.
 */
#include <stdlib.h>
#include <utlist.h>

#include "client/nccl/create.h"
#include "client/nccl/error.h"
#include "client/nccl/log.h"
#include "railmux/railmux.h"

/* Jobs of one group, until the last of them is freed. */
struct batch {
        struct job *jobs;
        ncclResult_t result; /* of the first that failed */
};

static void cancel_locked(struct job *job) {
        job->cancelled = true;
        rmx_cancel_set(job->cancel);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */
void jobs_bind(struct job *jobs) {
        struct batch *batch = NULL;

        comm_lock();
        for (struct job *job = jobs; job; job = job->next) {
                if (job->kind == JOB_END)
                        continue;
                if (!batch)
                        batch = calloc(1, sizeof(*batch));
                if (!batch) /* no memory: then they wait on */
                        break;
                job->batch = batch;
                LL_PREPEND2(batch->jobs, job, companion);
        }
        comm_unlock();
}

ncclResult_t jobs_verdict(const struct job *jobs) {
        ncclResult_t result = ncclSuccess;

        comm_lock();
        if (jobs && jobs->batch)
                result = jobs->batch->result;
        else if (jobs)
                result = jobs->result;
        comm_unlock();
        return result;
}

static void batch_fail(struct batch *batch, const struct job *failed) {
        struct job *job;

        if (!batch || batch->result)
                return;
        batch->result = failed->result;
        LL_FOREACH2(batch->jobs, job, companion) {
                if (job != failed)
                        cancel_locked(job);
        }
}

static void batch_leave(struct job *job) {
        if (!job->batch)
                return;
        LL_DELETE2(job->batch->jobs, job, companion);
        if (!job->batch->jobs)
                free(job->batch);
        job->batch = NULL;
}

/* ---- one job ----------------------------------------------------------------------------------------------------- */
void job_enter(struct job *job) {
        comm_lock();
        if (job->comm) {
                job->comm->maker = job;
                if (job->comm->unwanted)
                        cancel_locked(job);
        }
        if (job->parent) {
                LL_PREPEND2(job->parent->derived, job, sibling);
                if (job->parent->barren)
                        cancel_locked(job);
        }
        comm_unlock();
}

void job_exit(struct job *job) {
        comm_lock();
        if (job->comm)
                job->comm->maker = NULL;
        if (job->parent)
                LL_DELETE2(job->parent->derived, job, sibling);
        if (job->result)
                batch_fail(job->batch, job);
        comm_unlock();
}

void job_fail(struct job *job) {
        comm_lock();
        batch_fail(job->batch, job);
        comm_unlock();
}

struct job *job_free(struct job *job) {
        comm_lock();
        batch_leave(job);
        comm_unlock();
        rmx_cancel_free(job->cancel);
        free(job);
        return NULL;
}

ncclResult_t job_adopt(struct job *job, int code) {
        bool silent, failed;

        comm_lock();
        silent = code == RMX_E_ABORTED && job->cancelled;
        failed = silent && job->batch && job->batch->result;
        comm_unlock();
        if (!silent)
                return error_adopt(job->what, code);
        if (failed) {
                log_line(LOG_INFO, "%s: given up, since another one of the group has failed", job->what);
                return ncclRemoteError;
        }
        return error_raise(ncclInvalidUsage, "%s: aborted meanwhile", job->what);
}

void jobs_cancel(struct ncclComm *comm, bool derived) {
        struct job *job;

        comm_lock();
        comm->unwanted = true;
        if (comm->maker)
                cancel_locked(comm->maker);
        if (derived) {
                comm->barren = true;
                LL_FOREACH2(comm->derived, job, sibling)
                        cancel_locked(job);
        }
        comm_unlock();
}
