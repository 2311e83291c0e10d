/* SPDX-License-Identifier: MIT */
/*
 * A library with NCCL's interface for one process, in which every rank is alone: it counts what is called, and its
 * collectives copy. It stands for the one that RAILMUX_FALLBACK names. Its ids are recognised by their first bytes.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/nccl/nccl.h"
#include "tests/nccl_abi/stand_in.h"

struct ncclComm {
        int n_ranks, rank;
        atomic_bool aborted;
        atomic_int waiting;
};

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
        if (id.internal[5] != STAND_IN_ID_BYTE)
                return ncclInvalidArgument;
        *comm = calloc(1, sizeof(**comm));
        if (!*comm)
                return ncclSystemError;
        (*comm)->n_ranks = nranks;
        (*comm)->rank = rank;
        counts.inits++;
        counts.grouped_inits += counts.depth > 0;
        return ncclSuccess;
}

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

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, ncclStream_t stream) {
        (void)op;
        if (!count)
                return wait_for_abort(comm);
        counts.stream = (uintptr_t)stream;
        counts.collectives++;
        counts.grouped_collectives += counts.depth > 0;
        memmove(recvbuff, sendbuff, count * (datatype == ncclFloat32 ? 4 : 1));
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

ncclResult_t ncclGroupEnd(void) {
        counts.depth--;
        counts.groups++;
        return ncclSuccess;
}
