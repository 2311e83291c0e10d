/* SPDX-License-Identifier: MIT */
/*
 * A library with NCCL's interface for one process, in which every rank is alone: it counts what is called, and its
 * collectives copy. It stands for the one that RAILMUX_FALLBACK names. Its ids are recognised by their first bytes.
 *
 * Groups are as NCCL's: what is called runs at the end, and a call that was wrong makes that an end at which nothing
 * runs and communicators are taken back. What comes from a communicator is made, and stored, at the end of the group,
 * or without blocking when stand_in_make() says so. With STAND_IN_OLD it is a version that cannot simulate.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/nccl/device_api.h"
#include "client/nccl/nccl.h"
#include "tests/nccl_abi/stand_in.h"

struct ncclComm {
        int n_ranks, rank;
        atomic_bool aborted;
        atomic_int waiting;
        atomic_int n_making; /* others from it */
};

#define QUEUE 16

static struct {
        ncclResult_t error;
        struct copy {
                const void *from;
                void *to;
                size_t len_bytes;
        } copy[QUEUE];
        ncclComm_t *made[QUEUE];
        int n_copies, n_made;
} group;

/* Communicators that are to come from others. */
struct queue {
        struct child {
                ncclComm_t parent;
                ncclComm_t *place;
                int n_ranks, rank; /* 0 ranks: it is nobody's */
        } child[QUEUE];
        int n;
};
static struct queue of_group, left;

static struct stand_in_counts counts;
static uintptr_t dead; /* the last that was aborted, as long as nothing else is there */

static ncclComm_t comm_new(int n_ranks, int rank) {
        ncclComm_t comm = calloc(1, sizeof(*comm));

        if (!comm)
                return NULL;
        comm->n_ranks = n_ranks;
        comm->rank = rank;
        if ((uintptr_t)comm == dead)
                dead = 0;
        return comm;
}

/* Those that are nobody's last: the order of NCCL's, which has a thread for each, is anyone's guess. */
static void make(struct queue *queue) {
        for (int nobody = 0; nobody < 2; nobody++) {
                for (int i = 0; i < queue->n; i++) {
                        struct child *child = &queue->child[i];
                        ncclComm_t comm;

                        if ((child->n_ranks == 0) != (nobody == 1))
                                continue;
                        comm = nobody ? NULL : comm_new(child->n_ranks, child->rank);
                        counts.derived += comm != NULL;
                        __atomic_store_n(child->place, comm, __ATOMIC_RELEASE);
                        child->parent->n_making--;
                }
        }
        queue->n = 0;
}

__attribute__((visibility("default"))) void stand_in_make(void) {
        make(&left);
}

static ncclResult_t derive(ncclComm_t parent, ncclComm_t *place, int n_ranks, int rank, const ncclConfig_t *config) {
        bool blocks = !config || config->blocking;
        struct queue now = {.n = 0}, *queue = counts.depth ? &of_group : blocks ? &now : &left;

        *place = NULL;
        parent->n_making++;
        queue->child[queue->n++] = (struct child){parent, place, n_ranks, rank};
        make(&now);
        return blocks ? ncclSuccess : ncclInProgress;
}
static atomic_int waiting;

__attribute__((visibility("default"))) int stand_in_waiting(void) {
        return waiting;
}

__attribute__((visibility("default"))) const struct stand_in_counts *stand_in_counts(void) {
        return &counts;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
        if ((uintptr_t)comm == dead) {
                counts.dead_asked++;
                return ncclInvalidArgument;
        }
        *asyncError = comm->n_making ? ncclInProgress : ncclSuccess;
        return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
        memset(id, STAND_IN_ID_BYTE, sizeof(*id));
        counts.ids++;
        return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
        if (!comm || rank < 0 || rank >= nranks) {
                group.error = counts.depth ? ncclInvalidArgument : group.error;
                return ncclInvalidArgument;
        }
        if (id.internal[5] != STAND_IN_ID_BYTE)
                return ncclInvalidArgument;
        *comm = comm_new(nranks, rank);
        if (!*comm)
                return ncclSystemError;
        counts.inits++;
        counts.grouped_inits += counts.depth > 0;
        if (counts.depth && group.n_made < QUEUE)
                group.made[group.n_made++] = comm;
        return ncclSuccess;
}

#ifndef STAND_IN_OLD
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config) {
        ncclResult_t result;

        if (comm)
                return derive(comm, newcomm, nRanks, comm->rank, config);
        if (!uniqueId)
                return ncclInvalidArgument;
        result = ncclCommInitRank(newcomm, nRanks, *uniqueId, rank);
        counts.inits -= !result;
        counts.grows += !result;
        return result;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags) {
        (void)excludeRanksList;
        (void)shrinkFlags;
        return derive(comm, newcomm, comm->n_ranks - excludeRanksCount, comm->rank, config);
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id) {
        (void)comm;
        memset(id, STAND_IN_ID_BYTE, sizeof(*id));
        return ncclSuccess;
}
#endif

static atomic_bool held;

__attribute__((visibility("default"))) void stand_in_hold(bool hold) {
        held = hold;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
        waiting++;
        while (held)
                sched_yield();
        waiting--;
        free(comm);
        counts.destroys++;
        return ncclSuccess;
}

static void unmake(ncclComm_t parent) {
        int n = 0;

        for (int i = 0; i < left.n; i++)
                if (left.child[i].parent != parent)
                        left.child[n++] = left.child[i];
        left.n = n;
}

/* Frees it when nobody is at work in it any more. What was to come from it does not. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
        comm->aborted = true;
        while (comm->waiting)
                sched_yield();
        if (comm->n_making) /* otherwise another thread may be making */
                unmake(comm);
        dead = (uintptr_t)comm;
        free(comm);
        counts.aborts++;
        return ncclSuccess;
}

static ncclResult_t wait_for_abort(ncclComm_t comm) {
        comm->waiting++;
        waiting++;
        while (!comm->aborted)
                sched_yield();
        waiting--;
        comm->waiting--;
        return ncclRemoteError;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
        *count = comm->n_ranks;
        return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
        *rank = comm->rank;
        return ncclSuccess;
}

static void run(const struct copy *copy, bool grouped) {
        counts.collectives++;
        counts.grouped_collectives += grouped;
        memmove(copy->to, copy->from, copy->len_bytes);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, ncclStream_t stream) {
        struct copy copy = {sendbuff, recvbuff, count * (datatype == ncclFloat32 ? 4 : 1)};

        (void)op;
        if (!comm)
                abort(); /* RCCL looks into it before it looks whether it is there */
        if (!count)
                return wait_for_abort(comm);
        counts.stream = (uintptr_t)stream;
        if (counts.depth && group.n_copies < QUEUE)
                group.copy[group.n_copies++] = copy;
        else
                run(&copy, false);
        return ncclSuccess;
}

ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config) {
        counts.max_blocks = config->maxCTAs;
        return ncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

/* All ranks reach each other's memory, and so have no rails. */
ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
        return (ncclTeam_t){comm->n_ranks, comm->rank, 1};
}

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
        return comm->rank + (rank - team.rank) * team.stride;
}

ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem,
                                          void **outPtr) {
        *outPtr = (char *)multimem.mcBasePtr + (uintptr_t)window + offset;
        return ncclSuccess;
}

ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle,
                                        ncclDevResourceRequirements_t *outReq) {
        (void)outHandle;
        outReq->bufferSize = (size_t)nBlocks * (size_t)nSlots;
        return ncclSuccess;
}

const char *ncclGetLastError(ncclComm_t comm) {
        (void)comm;
        return "the stand-in is sorry";
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
        if (color == STAND_IN_COLOUR)
                return ncclRemoteError;
        return derive(comm, newcomm, color == NCCL_SPLIT_NOCOLOR ? 0 : comm->n_ranks, key, config);
}

ncclResult_t ncclGroupStart(void) {
        counts.depth++;
        return ncclSuccess;
}

static ncclResult_t end(ncclSimInfo_t *info) {
        ncclResult_t result = group.error;

        counts.groups++;
        if (--counts.depth)
                return ncclSuccess;
        for (int i = 0; i < group.n_made && result; i++) {
                free(*group.made[i]);
                *group.made[i] = NULL;
        }
        for (int i = 0; i < group.n_copies && !result && !info; i++)
                run(&group.copy[i], true);
        if (result || info)
                of_group.n = 0;
        make(&of_group);
        if (!result && info) {
                counts.simulations++;
                info->estimatedTime = (float)group.n_copies * STAND_IN_TIME;
        }
        memset(&group, 0, sizeof(group));
        return result;
}

ncclResult_t ncclGroupEnd(void) {
        return end(NULL);
}

#ifndef STAND_IN_OLD
/* Without a struct it runs the group, as NCCL does. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
        return end(simInfo);
}
#endif
