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
 * What meets its ranks by an id asks the daemon for that, and without it could not tell them that it has been given up.
 * So if the daemon does not answer, the thread that asks stays, and does the rest when there is an answer; only who
 * waits for it goes, after as long as an abort takes. Each of a group has that time from when it is stuck, since one
 * may be well though another one is not. If the daemon stands still they all are stuck at once, or as soon as the first
 * one is left: so a group takes that twice at most, however many it has.
 *
 * All of it is under comm_lock; librailmux's cancels take only locks that are held for moments.
 */
#include <stdlib.h>
#include <utlist.h>

#include "client/nccl/clock.h"
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
        comm_changed(); /* partner chains_await */
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

static void batch_fail(struct batch *batch, const struct job *failed, ncclResult_t result) {
        struct job *job;

        if (!batch || batch->result)
                return;
        batch->result = result;
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
                batch_fail(job->batch, job, job->result);
        comm_unlock();
}

void job_fail(struct job *job) {
        comm_lock();
        batch_fail(job->batch, job, job->result);
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
        bool silent, failed, told;

        comm_lock();
        silent = code == RMX_E_ABORTED && job->cancelled;
        failed = silent && job->batch && job->batch->result;
        told = job->left && job_blocks(job);
        comm_unlock();
        if (told && code) {
                log_line(LOG_INFO, "%s: given up, and over now: %s (%s)", job->what, rmx_last_error(),
                         rmx_error_name(code));
                return silent ? ncclInvalidUsage : error_of_code(code);
        }
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

/* ---- waiting ----------------------------------------------------------------------------------------------------- */
/* All under comm_lock. Where the first one of a chain is that is not over. */
static struct job **chain_rest(struct job **chain) {
        while (*chain && (*chain)->over)
                chain = &(*chain)->next;
        return chain;
}

static bool is_stuck(const struct job *job) {
        return job && job->cancelled && !job->answered && job_meets(job);
}

/* Are there any that are not over? For those that are stuck from now on their time begins. ret_until: when the first
 * one's is over. */
static bool chains_look(struct job **chains, uint64_t now, uint64_t *ret_until) {
        bool open = false;

        *ret_until = UINT64_MAX;
        for (struct job **chain = chains; *chain; chain = &(*chain)->beside) {
                struct job *job = *chain_rest(chain);

                open |= job != NULL;
                if (!is_stuck(job))
                        continue;
                if (!job->until)
                        job->until = now + ABORT_WAIT_MS;
                *ret_until = job->until < *ret_until ? job->until : *ret_until;
        }
        return open;
}

/* Those of the chain from this one on are its thread's, which is nobody's. */
static void chain_leave(struct job **chain, struct job **rest) {
        struct job *head = *chain, *job = *rest;

        pthread_detach(head->thread);
        head->started = false;
        if (rest == chain)
                *chain = head->beside;
        else
                *rest = NULL;
        for (; job; job = job->next) {
                job->left = true;
                cancel_locked(job);
                if (job_blocks(job)) { /* else the program may be asking */
                        comm_give(job->ret_comm, NULL);
                        job->ret_comm = NULL;
                }
                job->pends = true;
                job->parent->n_pending++;
        }
        /* What its thread goes on with is the program's already, whose variables may be gone by then. */
        for (job = head->rest; job; job = job->next)
                job->ret_comm = NULL;
}

/* what: of the one that is the first to fail. */
static void chains_leave(struct job **chains, uint64_t now, ncclResult_t *result, const char **what) {
        struct job **chain = chains;

        while (*chain) {
                struct job **rest = chain_rest(chain), *job = *rest;

                if (!is_stuck(job) || !job->until || now < job->until) {
                        chain = &(*chain)->beside;
                        continue;
                }
                if (!*result && job->batch)
                        *result = job->batch->result;
                if (!*result) {
                        *result = ncclInvalidUsage;
                        *what = job->what;
                }
                batch_fail(job->batch, job, ncclInvalidUsage);
                chain_leave(chain, rest);
                if (rest != chain)
                        chain = &(*chain)->beside;
        }
}

ncclResult_t chains_await(struct job **chains) {
        ncclResult_t result = ncclSuccess;
        const char *what = NULL;
        uint64_t now = clock_now_ms(), until;

        comm_lock();
        while (chains_look(chains, now, &until)) {
                if (now < until)
                        comm_wait(until < UINT64_MAX ? (uint32_t)(until - now) : UINT32_MAX);
                else
                        chains_leave(chains, now, &result, &what);
                now = clock_now_ms();
        }
        comm_unlock();
        if (what)
                error_raise(result, "%s: aborted meanwhile", what);
        return result;
}
