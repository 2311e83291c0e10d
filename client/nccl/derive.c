/* SPDX-License-Identifier: MIT */
/*
 * Communicators from communicators.
 *
 * A split is librailmux's, and all ranks of the parent take part; if they have revoked it, they meet anew first (see
 * run_regroup in create.c). Shrinking is for when some are dead and others do not
 * answer, growing is with ranks that the parent does not know: there the members need an id in common without a word
 * among them. rmx_comm_id() gives each the same one for the same number. The number says what the id is for: which
 * ranks stay, and the how many-th time it is that just these do so; or the how many-th growth. Ranks that call with
 * another list have another number, so they wait for each other and do not end up in one communicator by mistake.
 */
#include <stdlib.h>
#include <utlist.h>

#include "client/nccl/comm.h"
#include "client/nccl/create.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"
#include "client/nccl/group.h"
#include "railmux/railmux.h"

#include <string.h>

struct turn {
        struct turn *next;
        uint64_t ranks; /* that stay */
        uint32_t n;
};

#define NUMBER_GROW (UINT64_C(1) << 63) /* a shrink to rank 63 alone has other bits besides */

void turns_free(struct ncclComm *comm) {
        struct turn *turn, *next;

        LL_FOREACH_SAFE(comm->turns, turn, next)
                free(turn);
        comm->turns = NULL;
}

/* A mix in which each bit of the input moves about half of the output (splitmix64's last step). */
static uint64_t mix(uint64_t x) {
        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
        return x ^ x >> 31;
}

/* How many times it was these before; the job gives that back if it is not run. Last: a call that is refused on one
 * rank must not have the others a turn behind. */
static bool turn_take(struct ncclComm *comm, uint64_t ranks, struct job *job) {
        struct turn *turn;

        comm_lock();
        LL_SEARCH_SCALAR(comm->turns, turn, ranks, ranks);
        if (!turn) {
                turn = calloc(1, sizeof(*turn));
                if (turn) {
                        turn->ranks = ranks;
                        LL_PREPEND(comm->turns, turn);
                }
        }
        if (turn) {
                job->count = &turn->n;
                job->number = mix(ranks) + turn->n++;
        }
        comm_unlock();
        return turn != NULL;
}

/* ---- of the fallback --------------------------------------------------------------------------------------------- */
/* A handle for what the other library makes in comm->real, perhaps from one that it has. In a group, and if it does not
 * block, it stores that some time after its call. */
static ncclResult_t wrap_begin(const char *what, const struct fallback *fallback, struct ncclComm *parent,
                               ncclComm_t *newcomm, struct ncclComm **ret_comm) {
        ncclResult_t result;
        struct ncclComm *comm;

        if (!newcomm)
                return error_raise(ncclInvalidArgument, "%s: newcomm is NULL", what);
        result = group_enter_fallback(fallback);
        if (result)
                return result;
        comm = comm_new();
        if (!comm)
                return error_raise(ncclSystemError, "%s: out of memory", what);
        comm->fallback = fallback;
        comm->origin = parent;
        comm->real_origin = parent ? parent->real : NULL;
        *ret_comm = comm;
        return ncclSuccess;
}

static ncclResult_t wrap_end(struct ncclComm *comm, ncclComm_t *newcomm, ncclResult_t result) {
        if (result && result != ncclInProgress) {
                comm_recycle(comm);
                return result;
        }
        comm->begun = result == ncclInProgress;
        comm->late = comm->begun || group_active();
        *newcomm = comm;
        (void)comm_made(comm, ncclSuccess);
        return result;
}

/* No handle is for that, but the other library stores, late as any other: always NULL. */
static ncclResult_t split_off(struct ncclComm *parent, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
        static ncclComm_t nobody;
        ncclResult_t result = group_enter_fallback(parent->fallback);

        if (result)
                return result;
        *newcomm = NULL;
        return FALLBACK(parent->fallback, ncclCommSplit, parent->real, NCCL_SPLIT_NOCOLOR, key, &nobody, config);
}

static ncclResult_t split_fallback(const char *what, struct ncclComm *parent, int color, int key, ncclComm_t *newcomm,
                                   ncclConfig_t *config) {
        struct ncclComm *comm;
        ncclResult_t result;

        if (color == NCCL_SPLIT_NOCOLOR)
                return split_off(parent, key, newcomm, config);
        result = wrap_begin(what, parent->fallback, parent, newcomm, &comm);
        if (result)
                return result;
        return wrap_end(comm, newcomm,
                        FALLBACK(parent->fallback, ncclCommSplit, parent->real, color, key, comm_place(comm), config));
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */
/* What is made without blocking is made in a thread, so nothing would keep the next one behind it. */
static ncclResult_t in_order(const char *what, struct ncclComm *parent) {
        return comm_is_pending(parent) ? error_raise(ncclInvalidArgument,
                                                     "%s: another communicator is still being made from this one; "
                                                     "ncclCommGetAsyncError tells when it is ready",
                                                     what)
                                       : ncclSuccess;
}

/* A handle that is to come from the parent, which has been entered; the job takes over both. */
static ncclResult_t derive(enum job_kind kind, const char *what, struct ncclComm *parent, ncclComm_t *newcomm,
                           const ncclConfig_t *config, bool nothing, struct job **ret_job) {
        /* Only who gives no config inherits; what a given one leaves open is as in any other. */
        struct config read, defaults = config ? config_default() : parent->config;
        ncclResult_t result;
        struct ncclComm *comm = NULL;
        struct job *job;

        defaults.name[0] = 0;
        result = config_read(what, config, defaults, &read);
        if (result)
                return result;
        job = job_new(kind, what);
        if (!job)
                return ncclSystemError;
        if (!nothing) {
                comm = comm_new();
                if (!comm) {
                        job_free(job);
                        return error_raise(ncclSystemError, "%s: out of memory", what);
                }
                comm->config = read;
                comm->host = parent->host;
                comm->gpu = parent->gpu;
                comm->device = parent->device;
        }
        job->comm = comm;
        job->parent = parent;
        job->ret_comm = newcomm;
        job->blocking = read.blocking;
        *ret_job = job;
        return ncclSuccess;
}

static ncclResult_t derive_end(struct ncclComm *parent, ncclResult_t result, struct job *job) {
        if (result) {
                comm_exit(parent);
                return result;
        }
        comm_give(job->ret_comm, job->comm);
        return job_submit(job);
}

/* ---- split ------------------------------------------------------------------------------------------------------- */
static uint64_t all_ranks(const struct ncclComm *comm) {
        return comm->n_ranks == 64 ? UINT64_MAX : (UINT64_C(1) << comm->n_ranks) - 1;
}

static ncclResult_t split(const char *what, struct ncclComm *parent, int color, int key, ncclComm_t *newcomm,
                          ncclConfig_t *config) {
        ncclResult_t result = comm_enter_any(parent, what);
        struct job *job = NULL;
        bool revoked;

        if (result)
                return result;
        revoked = atomic_load(&parent->quieted);
        if (!newcomm || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
                result = error_raise(ncclInvalidArgument, "%s: %s", what,
                                     newcomm ? "color is negative, and not NCCL_SPLIT_NOCOLOR" : "newcomm is NULL");
        } else if (parent->real) {
                result = split_fallback(what, parent, color, key, newcomm, config);
                comm_exit(parent);
                return result;
        } else if (atomic_load(&parent->closed) && !revoked) {
                result = error_raise(ncclInvalidUsage, "%s: this communicator is finalized", what);
        } else {
                result = in_order(what, parent);
                if (!result)
                        result = derive(JOB_SPLIT, what, parent, newcomm, config, color == NCCL_SPLIT_NOCOLOR, &job);
                /* No shrink is to all ranks, so these turns are splits'. */
                if (!result && revoked && !turn_take(parent, all_ranks(parent), job))
                        result = error_raise(ncclSystemError, "%s: out of memory", what);
        }
        if (!result) {
                job->colour = color;
                job->key = key;
        } else if (job) {
                if (job->comm)
                        comm_recycle(job->comm);
                job_free(job);
        }
        return derive_end(parent, result, job);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
        return group_note(split(__func__, comm, color, key, newcomm, config));
}
TWIN(ncclCommSplit);

/* ---- shrink ------------------------------------------------------------------------------------------------------ */
static ncclResult_t survivors(const char *what, const struct ncclComm *parent, const int *exclude, int n,
                              uint64_t *ret_ranks) {
        uint64_t all = all_ranks(parent), gone = 0;

        if (!exclude || n < 1)
                return error_raise(ncclInvalidArgument, "%s: a list of %d ranks to leave out", what, n);
        for (int i = 0; i < n; i++) {
                if (exclude[i] < 0 || exclude[i] >= parent->n_ranks || gone >> exclude[i] & 1)
                        return error_raise(ncclInvalidArgument,
                                           "%s: excludeRanksList[%d] is %d, which is no rank or stands there twice",
                                           what, i, exclude[i]);
                gone |= UINT64_C(1) << exclude[i];
        }
        if (gone >> parent->rank & 1)
                return error_raise(ncclInvalidArgument, "%s: rank %d is in the list, so it must not call", what,
                                   parent->rank);
        *ret_ranks = all & ~gone;
        return ncclSuccess;
}

static ncclResult_t shrink(const char *what, struct ncclComm *parent, const int *exclude, int n, ncclComm_t *newcomm,
                           const ncclConfig_t *config, int flags) {
        struct job *job = NULL;
        ncclResult_t result;
        uint64_t ranks = 0;
        bool held = false;

        if (!newcomm || (flags & ~NCCL_SHRINK_ABORT))
                result =
                        error_raise(ncclInvalidArgument, "%s: %s", what, newcomm ? "unknown flags" : "newcomm is NULL");
        else
                result = survivors(what, parent, exclude, n, &ranks);
        if (!result && !(flags & NCCL_SHRINK_ABORT))
                result = in_order(what, parent);
        if (!result)
                result = derive(JOB_DERIVE, what, parent, newcomm, config, false, &job);
        if (!result && (flags & NCCL_SHRINK_ABORT)) {
                comm_hold(parent);
                held = job->held = true;
                result = comm_revoke(parent, what);
        }
        if (!result && !turn_take(parent, ranks, job))
                result = error_raise(ncclSystemError, "%s: out of memory", what);
        if (result && job) {
                comm_recycle(job->comm);
                job_free(job);
        }
        if (!result) {
                job->comm->n_ranks = __builtin_popcountll(ranks);
                job->comm->rank = __builtin_popcountll(ranks & ((UINT64_C(1) << parent->rank) - 1));
        }
        if (!result || !held)
                return derive_end(parent, result, job);
        comm_drop(parent);
        return result;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags) {
        ncclResult_t result = comm_enter_any(comm, __func__);
        struct ncclComm *wrapped;

        if (result)
                return group_note(result);
        if (!comm->real)
                return group_note(
                        shrink(__func__, comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
        result = wrap_begin(__func__, comm->fallback, comm, newcomm, &wrapped);
        if (!result)
                result = wrap_end(wrapped, newcomm,
                                  FALLBACK(comm->fallback, ncclCommShrink, comm->real, excludeRanksList,
                                           excludeRanksCount, comm_place(wrapped), config, shrinkFlags));
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommShrink);

/* ---- grow -------------------------------------------------------------------------------------------------------- */
/* job: the growth that takes it, as a turn; NULL: it is only asked for. */
static uint64_t grow_number(struct ncclComm *comm, struct job *job) {
        uint64_t n;

        comm_lock();
        n = comm->n_grown;
        if (job) {
                job->count = &comm->n_grown;
                comm->n_grown++;
        }
        comm_unlock();
        return mix(NUMBER_GROW | 1) + n;
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId) {
        ncclResult_t result = comm_enter_any(comm, __func__);
        struct rmx_id id;

        if (result)
                return group_note(result);
        comm_hold(comm); /* as in ncclCommRegister */
        if (!uniqueId)
                result = error_raise(ncclInvalidArgument, "%s: uniqueId is NULL", __func__);
        else if (comm->real)
                result = FALLBACK(comm->fallback, ncclCommGetUniqueId, comm->real, uniqueId);
        else
                result = error_adopt(__func__, rmx_comm_id(comm->rmx, grow_number(comm, NULL), &id));
        if (!result && !comm->real)
                memcpy(uniqueId, &id, sizeof(*uniqueId));
        comm_drop(comm);
        return group_note(result);
}
TWIN(ncclCommGetUniqueId);

static ncclResult_t grow(const char *what, struct ncclComm *parent, int n_ranks, int rank, ncclComm_t *newcomm,
                         const ncclConfig_t *config) {
        struct job *job = NULL;
        ncclResult_t result = ncclSuccess;

        if (!newcomm || n_ranks <= parent->n_ranks)
                result = error_raise(ncclInvalidArgument, "%s: %s", what,
                                     newcomm ? "nRanks must be above the number of ranks that comm has"
                                             : "newcomm is NULL");
        else if (rank != -1 && rank != parent->rank)
                result = error_raise(ncclInvalidArgument, "%s: a rank of comm keeps its number: rank must be -1", what);
        if (!result)
                result = in_order(what, parent);
        if (!result)
                result = derive(JOB_DERIVE, what, parent, newcomm, config, false, &job);
        if (!result) {
                job->number = grow_number(parent, job);
                job->comm->n_ranks = n_ranks;
                job->comm->rank = parent->rank;
        }
        return derive_end(parent, result, job);
}

/* A new rank of one that grows in the other library, whose old ranks call this there, too. */
static ncclResult_t grow_there(const char *what, int n_ranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                               ncclConfig_t *config) {
        const struct fallback *fallback = fallback_get();
        struct ncclComm *wrapped;
        ncclResult_t result;

        result = wrap_begin(what, fallback, NULL, newcomm, &wrapped);
        if (result)
                return result;
        return wrap_end(wrapped, newcomm,
                        FALLBACK(fallback, ncclCommGrow, NULL, n_ranks, id, rank, comm_place(wrapped), config));
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config) {
        struct ncclComm *wrapped;
        ncclResult_t result;

        if (!comm) {
                if (!uniqueId)
                        return group_note(error_raise(ncclInvalidArgument,
                                                      "%s: a new rank needs the id that ncclCommGetUniqueId gave",
                                                      __func__));
                if (!id_is_daemons(uniqueId) && fallback_get())
                        return group_note(grow_there(__func__, nRanks, uniqueId, rank, newcomm, config));
                return ncclCommInitRankConfig(newcomm, nRanks, *uniqueId, rank, config);
        }
        result = comm_enter(comm, __func__);
        if (result)
                return group_note(result);
        if (!comm->real)
                return group_note(grow(__func__, comm, nRanks, rank, newcomm, config));
        result = wrap_begin(__func__, comm->fallback, comm, newcomm, &wrapped);
        if (!result)
                result = wrap_end(wrapped, newcomm,
                                  FALLBACK(comm->fallback, ncclCommGrow, comm->real, nRanks, uniqueId, rank,
                                           comm_place(wrapped), config));
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommGrow);
