/* SPDX-License-Identifier: MIT */
/* A library with as much of NCCL's interface as RAILMUX_FALLBACK wants, whose memory is none of the GPU runtime. */
#include "client/nccl/nccl.h"

#define EXPORT __attribute__((visibility("default")))

static char memory[64];

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
        (void)id;
        return ncclSystemError;
}
EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
        (void)comm;
        (void)nranks;
        (void)id;
        (void)rank;
        return ncclSystemError;
}
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
        (void)comm;
        return ncclSystemError;
}
EXPORT ncclResult_t ncclGroupStart(void) {
        return ncclSuccess;
}
EXPORT ncclResult_t ncclGroupEnd(void) {
        return ncclSuccess;
}

EXPORT ncclResult_t ncclMemAlloc(void **ptr, size_t size) {
        *ptr = memory;
        return size <= sizeof(memory) ? ncclSuccess : ncclUnhandledCudaError;
}
EXPORT ncclResult_t ncclMemFree(void *ptr) {
        return ptr == memory || ptr == memory + 1 ? ncclSuccess : ncclInvalidArgument;
}
