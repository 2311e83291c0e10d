/* SPDX-License-Identifier: MIT */
/*
 * A library with NCCL's interface for one process, in which every rank is alone: it counts what is called, and its
 * collectives copy. It stands for the one that RAILMUX_FALLBACK names. Its ids are recognised by their first bytes.
 *
 * Groups are as NCCL's: what is called runs at the end, and a call that was wrong makes that an end at which nothing
 * runs and communicators are taken back. With STAND_IN_OLD it is a version that cannot simulate.
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

static struct stand_in_counts counts;
static atomic_int waiting;

__attribute__((visibility("default"))) int stand_in_waiting(void) {
        return waiting;
}

__attribute__((visibility("default"))) const struct stand_in_counts *stand_in_counts(void) {
        return &counts;
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
        *comm = calloc(1, sizeof(**comm));
        if (!*comm)
                return ncclSystemError;
        (*comm)->n_ranks = nranks;
        (*comm)->rank = rank;
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

        (void)config;
        if (comm || !uniqueId)
                return ncclInvalidArgument;
        result = ncclCommInitRank(newcomm, nRanks, *uniqueId, rank);
        counts.inits -= !result;
        counts.grows += !result;
        return result;
}
#endif

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
        free(comm);
        counts.destroys++;
        return ncclSuccess;
}

/* Frees it when nobody is at work in it any more. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
        comm->aborted = true;
        while (comm->waiting)
                sched_yield();
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
        (void)comm;
        (void)color;
        (void)key;
        (void)newcomm;
        (void)config;
        return ncclRemoteError;
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
