/* SPDX-License-Identifier: MIT */
/*
 * The life of a handle
 *
 * A handle is given to the program before the communicator exists, if that is made without blocking, and programs call
 * on it from several threads: one collects, one watches, one aborts. So each call enters and exits (users), and whoever
 * ends the communicator first forbids new calls, then breaks those at work, if it aborts, and waits for them to leave.
 * Two things an abort does not wait for: that communicators are made, this one or others from it (they are given up,
 * see cancel.c, but whoever makes them may be slow to notice), and that another thread ends its group, or has from the
 * daemon what it asked for in a call that is not cancelled (n_held). An aborted communicator in that state is left to
 * who makes or holds, and ends when that does.
 *
 * A destroy waits, perhaps for ever: for calls at work, and for what was called without blocking. An abort that comes
 * meanwhile cannot end the communicator, since that is the destroy's, but breaks what it waits for; the destroy goes on
 * then as an abort would. It keeps the communicator until such aborts are through with it (n_breakers). When it waits
 * for nothing but the daemon, which is to hear that the rank leaves, an abort ends that waiting only.
 *
 * Memory of handles is kept and used again, so that a stale handle is met by its changed magic and not by whatever else
 * would lie there. One of the fallback that ends before that has stored what it makes is kept until that comes, when
 * somebody looks; then it is aborted, since nobody has a handle for it. A call that came past the magic while the
 * handle ended still counts itself in and out again, so the count goes on when the memory is used again. COMM_CLOSING
 * is set before the magic goes and cleared after it has come.
 */
#include "client/nccl/comm.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "client/nccl/create.h"
#include "client/nccl/error.h"
#include "client/nccl/fallback.h"
#include "client/nccl/log.h"
#include "client/nccl/memory.h"
#include "client/nccl/pending.h"
#include "client/nccl/redop.h"
#include "client/nccl/session.h"
#include "client/nccl/waits.h"
#include "railmux/railmux.h"

#define FINISH_MS 50u /* between two looks whether an abort has come */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* users went down, n_held up, or a call is over */
static struct ncclComm *spare, *ready;                    /* under mutex; free ones, and those of the host backend */
static struct ncclComm *kept;                             /* under it, too: what is made for them has not come */

void comm_lock(void) {
        pthread_mutex_lock(&mutex);
}
void comm_unlock(void) {
        pthread_mutex_unlock(&mutex);
}

void comm_changed(void) {
        pthread_cond_broadcast(&changed);
}
void comm_wait_for(pthread_cond_t *condition, uint32_t limit_ms) {
        struct timespec until;

        clock_gettime(CLOCK_MONOTONIC, &until); /* the other one may be set back meanwhile */
        until.tv_nsec += (long)limit_ms * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_clockwait(condition, &mutex, CLOCK_MONOTONIC, &until);
}
void comm_wait(uint32_t limit_ms) {
        comm_wait_for(&changed, limit_ms);
}

FORKED void comm_forked(void) {
        mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        spare = ready = kept = NULL; /* a thread may have been changing them */
        pendings_forked();
}

/* ---- the object -------------------------------------------------------------------------------------------------- */
void comm_sweep(void) {
        struct ncclComm *comm, *next, *came = NULL;

        comm_lock();
        LL_FOREACH_SAFE(kept, comm, next) {
                if (comm->real) {
                        LL_DELETE(kept, comm);
                        LL_PREPEND(came, comm);
                }
        }
        comm_unlock();
        for (comm = came; comm; comm = next) {
                next = comm->next;
                (void)FALLBACK(comm->fallback, ncclCommAbort, atomic_exchange(&comm->real, NULL));
                comm_lock();
                LL_PREPEND(spare, comm);
                comm_unlock();
        }
}

struct ncclComm *comm_new(void) {
        struct ncclComm *comm;

        comm_sweep();
        comm_lock();
        comm = spare;
        if (comm)
                spare = comm->next;
        comm_unlock();
        if (!comm) {
                comm = malloc(sizeof(*comm));
                if (!comm)
                        return NULL;
                atomic_init(&comm->users, COMM_CLOSING);
        }
        memset(comm, 0, offsetof(struct ncclComm, users));
        comm->generation = session_generation();
        comm->device = -1;
        comm->gpu = -1;
        atomic_store(&comm->state, ncclInProgress);
        atomic_store(&comm->magic, COMM_MAGIC);
        atomic_fetch_add(&comm->users, 1 - COMM_CLOSING);
        return comm;
}

/* It is closed, and has no users but those that come too late. `came`: what the other library has made is ended. It may
 * come at any time, so whoever ends it has looked, and nobody looks again. */
static void comm_spare(struct ncclComm *comm, bool came) {
        struct ncclComm **list = comm->late && !came ? &kept : &spare;

        comm_lock();
        if (comm->ready)
                DL_DELETE2(ready, comm, ready_prev, ready_next);
        comm->ready = false;
        comm->leaving = NULL;
        comm_unlock();
        turns_free(comm);
        scalars_free(comm);
        memory_comm_gone(comm);
        comm->session = session_put(comm->session);
        comm->rmx = NULL;
        if (list == &spare)
                comm->real = NULL;
        comm_lock();
        atomic_store(&comm->magic, 0);
        comm->next = *list;
        *list = comm;
        comm_unlock();
}

void comm_recycle(struct ncclComm *comm) {
        atomic_fetch_or(&comm->users, COMM_CLOSING);
        atomic_fetch_sub(&comm->users, 1);
        comm_spare(comm, false);
}

/* ---- calls at work ----------------------------------------------------------------------------------------------- */
ncclResult_t comm_valid(const struct ncclComm *comm, const char *what) {
        if (!comm)
                return error_raise(ncclInvalidArgument, "%s: comm is NULL", what);
        if (comm->magic != COMM_MAGIC)
                return error_raise(ncclInvalidArgument,
                                   "%s: comm %p is no communicator, or one that has been destroyed", what,
                                   (const void *)comm);
        if (comm->generation != session_generation())
                return error_raise(ncclInvalidUsage,
                                   "%s: this communicator belongs to the parent process; after fork() the child makes "
                                   "its own",
                                   what);
        return ncclSuccess;
}

ncclResult_t comm_enter_any(struct ncclComm *comm, const char *what) {
        ncclResult_t result = comm_valid(comm, what);

        if (result)
                return result;
        if (atomic_fetch_add(&comm->users, 1) & COMM_CLOSING)
                result = error_raise(ncclInvalidArgument, "%s: this communicator is being destroyed", what);
        else if (atomic_load(&comm->state) == ncclInProgress)
                result =
                        error_raise(ncclInvalidArgument,
                                    "%s: this communicator is still being made; ncclCommGetAsyncError tells when it is "
                                    "ready",
                                    what);
        else if (atomic_load(&comm->state) || (comm->fallback && !comm->real)) /* whose group came to nothing */
                result = error_raise(ncclInvalidUsage, "%s: this communicator could not be made%s", what,
                                     comm->late ? ", or not yet" : "");
        if (result)
                comm_exit(comm);
        return result;
}

ncclResult_t comm_enter(struct ncclComm *comm, const char *what) {
        ncclResult_t result = comm_enter_any(comm, what);

        if (!result && atomic_load(&comm->closed)) {
                comm_exit(comm);
                result = error_raise(ncclInvalidUsage, "%s: this communicator is finalized or revoked", what);
        }
        return result;
}

void comm_exit(struct ncclComm *comm) {
        if (!(atomic_fetch_sub(&comm->users, 1) & COMM_CLOSING))
                return;
        comm_lock();
        pthread_cond_broadcast(&changed);
        comm_unlock();
}

ncclResult_t comm_result(struct ncclComm *comm, const char *what, int code) {
        if (code == RMX_E_DAEMON_LOST)
                atomic_store(&comm->session->lost, true);
        return error_adopt(what, code);
}

void comm_hold(struct ncclComm *comm) {
        comm_lock();
        comm->n_held++;
        pthread_cond_broadcast(&changed); /* partner comm_close */
        comm_unlock();
}

void comm_pend(struct ncclComm *comm) {
        comm_lock();
        comm->n_pending++;
        comm_unlock();
}

void comm_unpend(struct ncclComm *comm) {
        comm_lock();
        comm->n_pending--;
        comm_unlock();
}

uint32_t comm_count_neighbours(const struct ncclComm *comm) {
        const struct ncclComm *other;
        uint32_t n = 1;

        comm_lock();
        DL_FOREACH2(ready, other, ready_next)
                n += other != comm && other->session == comm->session && other->gpu == comm->gpu;
        comm_unlock();
        return n;
}

bool comm_is_pending(struct ncclComm *comm) {
        bool pending;

        comm_lock();
        pending = comm->n_pending != 0;
        comm_unlock();
        return pending;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */
/* Under comm_lock, which it gives up: a maker or holder is through with this one. Was it abandoned, the last of them
 * ends it, and it is false. */
static bool comm_release(struct ncclComm *comm) {
        bool last = comm->abandoned && !comm->n_held;

        if (last)
                comm->abandoned = false; /* to nobody else */
        while (last && atomic_load(&comm->users) != (COMM_CLOSING | 1)) {
                if (comm->n_held) { /* by who had entered before */
                        comm->abandoned = true;
                        last = false;
                } else {
                        pthread_cond_wait(&changed, &mutex);
                }
        }
        atomic_fetch_sub(&comm->users, 1);
        pthread_cond_broadcast(&changed);
        comm_unlock();
        if (last)
                comm_end_apart(comm, "ncclCommAbort");
        return !last;
}

void comm_drop(struct ncclComm *comm) {
        comm_lock();
        comm->n_held--;
        (void)comm_release(comm);
}

bool comm_made(struct ncclComm *comm, ncclResult_t result) {
        comm_lock();
        if (result)
                atomic_store(&comm->error, result);
        comm->ready = !result && comm->host;
        if (comm->ready)
                DL_APPEND2(ready, comm, ready_prev, ready_next);
        atomic_store(&comm->state, result);
        return comm_release(comm);
}

enum comm_claim comm_claim(struct ncclComm *comm, bool abort) {
        enum comm_claim claim = CLAIM_REFUSED;
        bool beside;

        comm_lock();
        /* A thread that can abort after its own destroy has both in a group: one of them is wrong. */
        beside = abort && comm->destroy && !pthread_equal(comm->destroyer, pthread_self());
        if (comm->magic == COMM_MAGIC && !atomic_exchange(&comm->ending, true))
                claim = CLAIM_END;
        else if (comm->magic == COMM_MAGIC && beside && comm->destroy == DESTROY_BREAKABLE)
                /* Of the other library's only one may abort, and then nobody destroys. */
                claim = comm->real && atomic_exchange(&comm->aborted, true) ? CLAIM_NOTHING : CLAIM_BREAK;
        else if (comm->magic == COMM_MAGIC && beside && comm->destroy == DESTROY_LEAVES &&
                 (!comm->real || comm->aborted))
                /* Otherwise the other library's own destroy may be waiting, and nothing would end that. */
                claim = CLAIM_NOTHING;
        if (claim == CLAIM_END && !abort) {
                comm->destroy = DESTROY_BREAKABLE;
                comm->destroyer = pthread_self();
        }
        if (claim == CLAIM_NOTHING) {
                comm->broken = true; /* it may be about to wait */
                if (comm->leaving)
                        ending_break(comm->leaving);
        }
        if (claim == CLAIM_BREAK) {
                comm->broken = true;
                comm->n_breakers++;
                pthread_cond_broadcast(&changed); /* partner comm_close, pendings_end */
        }
        comm_unlock();
        return claim;
}

void comm_unclaim(struct ncclComm *comm) {
        comm_lock();
        comm->destroy = DESTROY_NONE;
        atomic_store(&comm->ending, false);
        comm_unlock();
}

void comm_unbreak(struct ncclComm *comm) {
        comm_lock();
        comm->n_breakers--;
        pthread_cond_broadcast(&changed); /* partner comm_shut */
        comm_unlock();
}

/* No abort works on it from here on. */
static void comm_shut(struct ncclComm *comm) {
        comm_lock();
        if (comm->destroy)
                comm->destroy = DESTROY_LEAVES;
        while (comm->n_breakers)
                pthread_cond_wait(&changed, &mutex);
        comm_unlock();
}

static bool comm_is_broken(const struct ncclComm *comm) {
        bool broken;

        comm_lock();
        broken = comm->broken;
        comm_unlock();
        return broken;
}

void comm_settle(struct ncclComm *comm) {
        while (comm->rmx && !comm_is_broken(comm) && rmx_comm_finish(comm->rmx, FINISH_MS) == RMX_E_TIMEOUT)
                continue;
}

bool comm_drain(struct ncclComm *comm) {
        bool broken;

        if (comm->real) /* that library waits, in its destroy */
                return false;
        if (comm->rmx)
                pendings_end(comm, false);
        comm_settle(comm);
        comm_lock();
        comm->destroy = DESTROY_LEAVES;
        broken = comm->broken;
        comm_unlock();
        return broken;
}

bool comm_close(struct ncclComm *comm, bool abandon) {
        bool ours = true;

        atomic_fetch_or(&comm->users, COMM_CLOSING);
        comm_lock();
        while (ours && atomic_load(&comm->users) != COMM_CLOSING) {
                if ((abandon || comm->broken) && (comm->n_held || atomic_load(&comm->state) == ncclInProgress))
                        ours = false;
                else
                        pthread_cond_wait(&changed, &mutex);
        }
        comm->abandoned = !ours;
        comm_unlock();
        return ours;
}

int comm_abort(struct ncclComm *comm) {
        int r;

        if (atomic_load(&comm->state) != ncclSuccess || !comm->rmx)
                return RMX_OK;
        comm_lock();
        if (atomic_exchange(&comm->aborted, true)) {
                while (comm->aborting)
                        pthread_cond_wait(&changed, &mutex);
                comm_unlock();
                return RMX_OK;
        }
        comm->aborting = true;
        comm_unlock();
        r = rmx_comm_abort(comm->rmx);
        waits_move(); /* who waits for room to go on with it hears now that it is over */
        comm_lock();
        comm->aborting = false;
        comm_changed();
        comm_unlock();
        return r;
}

/* From here on no abort reaches the other library's communicator: its destroy frees it. False: one has. */
static bool comm_leaves_real(struct ncclComm *comm) {
        bool leaves;

        comm_lock();
        leaves = !atomic_load(&comm->aborted);
        if (leaves && comm->destroy)
                comm->destroy = DESTROY_LEAVES;
        comm_unlock();
        return leaves;
}

ncclResult_t comm_end(struct ncclComm *comm, const char *what, bool abort) {
        const ncclComm_t real = comm->real;
        ncclResult_t result = ncclSuccess;
        int r;

        if (real && !comm_leaves_real(comm)) {
                ; /* the other library frees it, or has */
        } else if (real) {
                result = abort ? FALLBACK(comm->fallback, ncclCommAbort, real)
                               : FALLBACK(comm->fallback, ncclCommDestroy, real);
        } else if (comm->rmx) {
                if (abort && !atomic_load(&comm->aborted))
                        (void)rmx_comm_abort(comm->rmx);
                pendings_end(comm, abort);
                comm_shut(comm);
                r = rmx_comm_destroy(comm->rmx);
                /* A daemon that has gone has forgotten the rank, too. */
                if (r != RMX_E_DAEMON_LOST && !abort)
                        result = error_adopt(what, r);
        }
        log_line(LOG_INFO, "%s: comm %p rank %d of %d", what, (void *)comm, comm->rank, comm->n_ranks);
        comm_shut(comm);
        comm_spare(comm, real);
        comm_sweep();
        return result;
}
