/* SPDX-License-Identifier: MIT */
/*
 * Making a communicator means waiting for the other ranks. One thread may hold several ranks, by ncclCommInitAll or by
 * calls in a group; then each waits in a thread of its own, or none would ever come. A communicator that is made
 * without blocking gets a thread, too, before any other of its group is waited for, which may be a rank of the same
 * one. Splits of one parent go one after another, in the order of their calls, since that is how ranks know which split
 * is which; so those that do not block go on when the last one before them has been made that does, in its thread.
 *
 * What a group has to end is ended after its calls were issued, each in a thread again: a destroy waits for peers,
 * which may be other handles in the same group.
 *
 * What meets its ranks by an id has a thread, too, if it blocks: the daemon is asked for the id, and if it does not
 * answer, who has to come back leaves that thread behind (cancel.c).
 */
#include "client/nccl/create.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "client/nccl/device.h"
#include "client/nccl/error.h"
#include "client/nccl/group.h"
#include "client/nccl/log.h"
#include "client/nccl/memory.h"
#include "client/nccl/session.h"
#include "railmux/railmux.h"

_Static_assert(sizeof(ncclUniqueId) == sizeof(struct rmx_id), "ids are handed on as they are");

struct job *job_new(enum job_kind kind, const char *what) {
        struct job *job = calloc(1, sizeof(*job));

        if (!job) {
                error_raise(ncclSystemError, "%s: out of memory", what);
                return NULL;
        }
        job->kind = kind;
        job->what = what;
        job->timeout_ms = config_timeout_ms();
        if (kind != JOB_END && rmx_cancel_new(&job->cancel)) {
                error_raise(ncclSystemError, "%s: out of memory", what);
                return job_free(job);
        }
        return job;
}

/* ---- what a job does --------------------------------------------------------------------------------------------- */
/* config: of the communicator that is to be; NULL: nobody will see it. Has to live as long as the options. */
static struct rmx_comm_options job_options(const struct job *job, int32_t gpu, const struct config *config) {
        return (struct rmx_comm_options){.size = sizeof(struct rmx_comm_options),
                                         .gpu = gpu,
                                         .timeout_ms = job->timeout_ms,
                                         .name = config && config->name[0] ? config->name : NULL,
                                         .cancel = job->cancel,
                                         .flags = RMX_COMM_ORDERED_TRANSFERS,
                                         .max_blocks = config ? config->max_blocks : 0};
}

static int join(struct job *job, struct ncclComm *comm, struct session *session) {
        struct rmx_comm_options options = job_options(job, comm->gpu, &comm->config);
        struct rmx_id id;

        memcpy(&id, &job->id, sizeof(id));
        return rmx_comm_create(session->rmx, &id, (uint32_t)comm->n_ranks, (uint32_t)comm->rank, &options, &comm->rmx);
}

/* Ranks of the parent meet by an id that all of them can make, n_ranks as this one says. Over several nodes the id
 * names one of them. If that has gone without our knowledge the joining fails, and then there is another id, which the
 * others have or will have, too. */
static int meet(const struct job *job, uint32_t n_ranks, uint32_t rank, const struct rmx_comm_options *options,
                struct rmx_comm **ret_rmx) {
        const struct ncclComm *parent = job->parent;
        struct rmx_id id, used;
        int r = rmx_comm_id(parent->rmx, job->number, &id), asked;

        while (!r) {
                used = id;
                r = rmx_comm_create(parent->session->rmx, &used, n_ranks, rank, options, ret_rmx);
                if (r != RMX_E_PEER_LOST)
                        break;
                asked = rmx_comm_id(parent->rmx, job->number, &id);
                if (asked || memcmp(&used, &id, sizeof(id)) != 0)
                        r = asked;
                else /* somebody else has gone */
                        break;
        }
        return r;
}

static ncclResult_t place(struct job *job, struct ncclComm *comm, struct session *session) {
        comm->host = session->host;
        if (!session->host)
                return device_match(job->what, session->rmx, comm->device, &comm->gpu);
        comm->gpu = (job->spread ? comm->device : comm->rank) % (int32_t)rmx_session_gpu_count(session->rmx);
        comm->device = comm->gpu;
        if (device_present())
                log_line(LOG_WARN, "%s: the daemon serves emulated GPUs, on which only host memory can be used",
                         job->what);
        return ncclSuccess;
}

/* The daemon may have been replaced since the session was opened: then once more. */
static ncclResult_t run_join(struct job *job) {
        struct ncclComm *comm = job->comm;
        struct session *session = NULL;
        ncclResult_t result;
        int r = RMX_E_DAEMON_LOST;

        for (int attempt = 0; attempt < 2 && r == RMX_E_DAEMON_LOST; attempt++) {
                result = session_get(job->what, &session);
                if (!result)
                        result = place(job, comm, session);
                if (result) {
                        session_put(session);
                        return result;
                }
                r = join(job, comm, session);
                if (r == RMX_E_DAEMON_LOST)
                        session_lose(session);
                if (r)
                        session = session_put(session);
        }
        comm->session = r ? NULL : session;
        if (!r)
                memory_comm_new(session);
        return job_adopt(job, r);
}

/* One rank's part in the split of `whole`, which has the ranks of the parent. */
static ncclResult_t run_split_of(struct job *job, struct rmx_comm *whole) {
        struct ncclComm *comm = job->comm, *parent = job->parent;
        struct rmx_comm_options options = job_options(job, parent->gpu, comm ? &comm->config : NULL);
        struct rmx_comm *rmx = NULL;
        int r;

        r = rmx_comm_split(whole, job->colour, job->key, &options, &rmx);
        if (r || !comm)
                return job_adopt(job, r);
        comm->rmx = rmx;
        comm->session = session_ref(parent->session);
        memory_comm_new(comm->session);
        comm->rank = (int)rmx_comm_rank(rmx);
        comm->n_ranks = (int)rmx_comm_size(rmx);
        return ncclSuccess;
}

/* What was revoked has failed for good, also for splits. So its ranks meet anew, by an id that all of them can make,
 * and split that; nobody sees it. */
static ncclResult_t run_regroup(struct job *job) {
        const struct ncclComm *parent = job->parent;
        struct rmx_comm_options options = job_options(job, parent->gpu, NULL);
        struct rmx_comm *whole = NULL;
        ncclResult_t result;
        int r;

        r = meet(job, (uint32_t)parent->n_ranks, (uint32_t)parent->rank, &options, &whole);
        if (r)
                return job_adopt(job, r);
        result = run_split_of(job, whole);
        (void)rmx_comm_destroy(whole);
        return result;
}

static ncclResult_t run_split(struct job *job) {
        return job->number ? run_regroup(job) : run_split_of(job, job->parent->rmx);
}

static ncclResult_t run_derive(struct job *job) {
        struct ncclComm *comm = job->comm;
        struct rmx_comm_options options = job_options(job, comm->gpu, &comm->config);
        int r;

        r = meet(job, (uint32_t)comm->n_ranks, (uint32_t)comm->rank, &options, &comm->rmx);
        if (!r) {
                comm->session = session_ref(job->parent->session);
                memory_comm_new(comm->session);
        }
        return job_adopt(job, r);
}

bool job_meets(const struct job *job) {
        return job->kind == JOB_DERIVE || (job->kind == JOB_SPLIT && job->number);
}

static void job_run(struct job *job) {
        job->count = NULL; /* other ranks may have met us under the number from here on */
        if (job->kind == JOB_END) {
                job->result = comm_finish(job->comm, job->what, job->abort);
                return;
        }
        job_enter(job);
        job->result = job->kind == JOB_JOIN ? run_join(job) : job->kind == JOB_SPLIT ? run_split(job) : run_derive(job);
        job_exit(job);
}

/* It has never run, so its number stays for the next one. The other ranks, who wait there or come yet, know nothing of
 * this one. */
static void job_give_back(struct job *job) {
        comm_lock();
        if (job->count)
                --*job->count;
        comm_unlock();
        job->count = NULL;
}

static void job_take_back(struct job *job) {
        if (job->ret_comm) /* not of one that was left: it has been taken back there */
                comm_give(job->ret_comm, NULL);
}

/* Tells the handle how it went. given: the program has it already, and may be asking. */
static void job_finish(struct job *job, bool given) {
        struct ncclComm *comm = job->kind == JOB_END ? NULL : job->comm;

        job_give_back(job);
        if (comm && !job->result)
                log_line(LOG_INFO, "%s: comm %p rank %d of %d on GPU %d (%s)", job->what, (void *)comm, comm->rank,
                         comm->n_ranks, comm->gpu, comm->host ? "host" : "device");
        if (comm && (given || !job->result)) {
                if (!comm_made(comm, job->result) && !given) {
                        job_take_back(job);
                        job->result = ncclInvalidUsage;
                        if (!job->left) /* else its caller has heard, and perhaps of something else since */
                                error_raise(job->result, "%s: aborted meanwhile", job->what);
                }
        } else if (comm) {
                job_take_back(job);
                if (atomic_exchange(&comm->ending, true))
                        (void)comm_made(comm, job->result); /* to be ended by who has begun that */
                else
                        comm_recycle(comm);
        }
        if (job->pends)
                comm_unpend(job->parent);
        if (job->parent)
                comm_drop(job->parent);
}

static void job_do(struct job *job, bool given) {
        job_run(job);
        job_finish(job, given);
}

static void *job_thread(void *userdata) {
        struct job *job = userdata, *next;

        for (; job; job = next) {
                next = job->next;
                job_do(job, true);
                job_free(job);
        }
        return NULL;
}

bool job_blocks(const struct job *job) {
        return job->kind == JOB_END || (job->kind == JOB_JOIN ? job->comm->config.blocking : job->blocking);
}

/* Is it done before the group's end returns? A split that does not block is, too, if a later one of its parent does:
 * each rank has them in the order of its calls, which may be the only one that all ranks have in common. */
static bool job_is_awaited(const struct job *job) {
        const struct job *next = job;

        while (next && !(job_blocks(next) && (next == job || (job->parent && next->parent == job->parent))))
                next = next->next;
        return next;
}

/* The program's signals are for its own threads. */
static int thread_start(pthread_t *ret_thread, const pthread_attr_t *attributes, void *(*run)(void *),
                        struct job *job) {
        sigset_t all, before;
        int r;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_create(ret_thread, attributes, run, job);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return r;
}

/* In a thread that nobody waits for; a list goes one after another. */
static ncclResult_t job_detach(struct job *job) {
        struct job *next;
        pthread_attr_t attributes;
        pthread_t thread;
        int r;

        for (next = job; next; next = next->next) {
                next->pends = next->parent;
                if (next->pends)
                        comm_pend(next->parent);
        }
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        r = thread_start(&thread, &attributes, job_thread, job);
        pthread_attr_destroy(&attributes);
        if (!r)
                return ncclInProgress;
        for (; job; job = next) {
                next = job->next;
                job->result = error_raise(ncclSystemError, "%s: no thread can be started", job->what);
                job_fail(job);
                job_finish(job, !job->ret_comm); /* NULL: who called has returned */
                job_free(job);
        }
        return ncclSystemError;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */
/* Moves what is of the kind to a list of its own, in the same order. */
static struct job *jobs_select(struct job **jobs, bool ends, bool awaited) {
        struct job *selected = NULL, **end = &selected;

        while (*jobs) {
                struct job *job = *jobs;

                if ((job->kind == JOB_END) != ends || job_is_awaited(job) != awaited) {
                        jobs = &job->next;
                        continue;
                }
                *jobs = job->next;
                job->next = NULL;
                *end = job;
                end = &job->next;
        }
        return selected;
}

/* The first of the list with all that have the same parent. */
static struct job *jobs_chain(struct job **jobs) {
        struct job *first = *jobs, *end = first;

        *jobs = first->next;
        first->next = NULL;
        while (first->parent && *jobs) {
                if ((*jobs)->parent != first->parent) {
                        jobs = &(*jobs)->next;
                        continue;
                }
                end->next = *jobs;
                end = *jobs;
                *jobs = end->next;
                end->next = NULL;
        }
        return first;
}

/* Nobody waits for it any more, and who has waited has no handle. */
static void job_finish_left(struct job *job) {
        bool given = !job_blocks(job);

        if (job->comm && !given && !job->result && !atomic_exchange(&job->comm->ending, true))
                (void)comm_close(job->comm, true); /* made nevertheless: it ends when it is ready */
        job_finish(job, given);
        job_free(job);
}

/* One after another. A job that is over is its caller's again, and so is no longer looked at, unless it was left. */
static void *chain_run(void *userdata) {
        struct job *job = userdata, *rest = job->rest, *next;
        bool left;

        for (; job; job = next) {
                next = job->next;
                job_run(job);
                if (!next && rest) {
                        comm_lock();
                        job->answered = true;
                        comm_unlock();
                        job->detached = job_detach(rest);
                }
                comm_lock();
                left = job->left;
                job->over = true;
                comm_changed(); /* partner chains_await */
                comm_unlock();
                if (left)
                        job_finish_left(job);
        }
        return NULL;
}

static void chain_fail(struct job *chain) {
        error_raise(ncclSystemError, "%s: no thread can be started", chain->what);
        job_fail(chain);
        if (chain->rest)
                chain->detached = job_detach(chain->rest);
        for (struct job *job = chain; job; job = job->next)
                job->over = true;
}

/* All in threads: in a group this one may have calls recorded in librailmux's, where nothing can be made. `alone`: it
 * has not, so it does what no thread can be had for. Those that were left are no longer in the list. */
static ncclResult_t run_all(struct job **jobs, bool alone) {
        struct job *chains = NULL, **end = &chains;
        ncclResult_t result;

        for (struct job *job = *jobs; job; job = job->next)
                job->result = ncclSystemError; /* until it has run */
        while (*jobs) {
                *end = jobs_chain(jobs);
                end = &(*end)->beside;
        }
        for (struct job *chain = chains; chain; chain = chain->beside) {
                chain->started = !thread_start(&chain->thread, NULL, chain_run, chain);
                if (!chain->started && !alone && chain->kind != JOB_END)
                        chain_fail(chain);
        }
        /* Nobody else can end it any more, and the group's calls are issued. */
        for (struct job *chain = chains; chain; chain = chain->beside)
                if (!chain->started && (alone || chain->kind == JOB_END))
                        (void)chain_run(chain);
        result = chains_await(&chains);
        end = jobs;
        for (struct job *chain = chains; chain; chain = chain->beside) {
                if (chain->started)
                        pthread_join(chain->thread, NULL);
                *end = chain;
                while (*end)
                        end = &(*end)->next;
        }
        return result ? result : jobs_verdict(*jobs);
}

/* The first result counts. */
static ncclResult_t jobs_finish(struct job *jobs, ncclResult_t result) {
        struct job *next;

        for (; jobs; jobs = next) {
                next = jobs->next;
                job_finish(jobs, !job_blocks(jobs));
                if (!result)
                        result = jobs->result;
                job_free(jobs);
        }
        return result;
}

/* How several were started. */
static ncclResult_t worse_of(ncclResult_t result, ncclResult_t started) {
        return !result || started == ncclSystemError ? started : result;
}

/* Starts those that nobody waits for, each behind what it has to come after. */
static ncclResult_t jobs_leave(struct job *background, struct job *awaited) {
        ncclResult_t result = ncclSuccess;

        while (background) {
                struct job *chain = jobs_chain(&background), *before = awaited;

                while (before && !(chain->parent && before->parent == chain->parent))
                        before = before->next;
                if (before)
                        before->rest = chain;
                else
                        result = worse_of(result, job_detach(chain));
        }
        return result;
}

ncclResult_t job_submit(struct job *job) {
        ncclResult_t result;

        if (job->parent && !job->held)
                comm_hold(job->parent);
        if (group_add(job))
                return job_blocks(job) ? ncclSuccess : ncclInProgress;
        if (!job_blocks(job))
                return job_detach(job);
        if (job_meets(job)) {
                result = run_all(&job, true);
                return jobs_finish(job, result);
        }
        job_do(job, false);
        result = job->result;
        job_free(job);
        return result;
}

ncclResult_t jobs_run(struct job **jobs, bool ends) {
        struct job *mine, *background;
        ncclResult_t result, started;

        if (!ends)
                jobs_bind(*jobs);
        mine = jobs_select(jobs, ends, true);
        background = jobs_select(jobs, ends, false);
        started = jobs_leave(background, mine);
        result = mine ? run_all(&mine, false) : ncclSuccess;
        for (struct job *job = mine; job; job = job->next)
                started = worse_of(started, job->detached);
        result = jobs_finish(mine, result);
        return result ? result : started;
}

void jobs_drop(struct job **jobs) {
        for (int awaited = 0; awaited < 2; awaited++) {
                struct job *dropped = jobs_select(jobs, false, awaited);

                for (struct job *job = dropped; job; job = job->next)
                        job->result = ncclInvalidUsage;
                (void)jobs_finish(dropped, ncclSuccess);
        }
}
