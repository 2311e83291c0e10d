/* SPDX-License-Identifier: MIT */
/*
 * Collectives with a config of their own. It tunes what the daemon decides, so it is checked and then ignored, as with
 * that of a communicator; but what a program relies on and does not get is refused: an algorithm that it insists on,
 * and an event that would never be recorded.
 */
#include <string.h>

#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"
#include "client/nccl/group.h"

#define SIZE_FIRST 64u    /* that of 2.31 */
#define SIZE_MOST  65536u /* beyond it is garbage */

_Static_assert(offsetof(ncclCollConfig_t, launchCompletionEvent) == SIZE_FIRST && sizeof(ncclCollConfig_t) == 72,
               "the layouts of 2.31 and 2.32");

static ncclResult_t check(const char *what, const ncclCollConfig_t *given) {
        ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;

        if (!given)
                return ncclSuccess;
        if (given->size < SIZE_FIRST || given->size > SIZE_MOST || given->magic != NCCL_API_MAGIC)
                return error_raise(ncclInvalidArgument,
                                   "%s: config is not initialised with NCCL_COLLCONFIG_INITIALIZER (size %zu, magic "
                                   "0x%x)",
                                   what, given->size, given->magic);
        memcpy(&config, given, given->size < sizeof(config) ? given->size : sizeof(config));
        if (config.algSelection && *config.algSelection && config.forceAlgSelection)
                return error_raise(ncclInvalidUsage,
                                   "%s: config.algSelection is \"%.64s\" and forced, but the daemon chooses; clear "
                                   "config.forceAlgSelection to let it",
                                   what, config.algSelection);
        if (config.launchCompletionEvent)
                return error_raise(ncclInvalidUsage, "%s: railmux records no config.launchCompletionEvent", what);
        return ncclSuccess;
}

/* Of the fallback's, with something to tell it. */
static bool is_forwarded(const struct ncclComm *comm, const ncclCollConfig_t *config) {
        return config && comm && comm->magic == COMM_MAGIC && comm->real;
}

static ncclResult_t forward_begin(struct ncclComm *comm, const char *what) {
        ncclResult_t result = comm_enter(comm, what);

        if (result)
                return result;
        result = group_enter_fallback(comm->fallback);
        if (result)
                comm_exit(comm);
        return result;
}

/* The call `name` with these arguments, which stand before comm. */
#define CALL(name, ...)                                                                                                \
        ncclResult_t result;                                                                                           \
                                                                                                                       \
        if (!is_forwarded(comm, config)) {                                                                             \
                result = check(__func__, config);                                                                      \
                return result ? group_note(result) : nccl##name(__VA_ARGS__, comm, stream);                            \
        }                                                                                                              \
        result = forward_begin(comm, __func__);                                                                        \
        if (result)                                                                                                    \
                return group_note(result);                                                                             \
        result = FALLBACK(comm->fallback, nccl##name##Config, __VA_ARGS__, comm->real, stream, config);                \
        comm_exit(comm);                                                                                               \
        return group_note(result)

ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config) {
        CALL(AllReduce, sendbuff, recvbuff, count, datatype, op);
}
TWIN(ncclAllReduceConfig);

ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                 ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config) {
        CALL(Broadcast, sendbuff, recvbuff, count, datatype, root);
}
TWIN(ncclBroadcastConfig);

ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, ncclStream_t stream,
                              const ncclCollConfig_t *config) {
        CALL(Reduce, sendbuff, recvbuff, count, datatype, op, root);
}
TWIN(ncclReduceConfig);

ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                 ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config) {
        CALL(AllGather, sendbuff, recvbuff, sendcount, datatype);
}
TWIN(ncclAllGatherConfig);

ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream,
                                     const ncclCollConfig_t *config) {
        CALL(ReduceScatter, sendbuff, recvbuff, recvcount, datatype, op);
}
TWIN(ncclReduceScatterConfig);

ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config) {
        CALL(AlltoAll, sendbuff, recvbuff, count, datatype);
}
TWIN(ncclAlltoAllConfig);

ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config) {
        CALL(Gather, sendbuff, recvbuff, count, datatype, root);
}
TWIN(ncclGatherConfig);

ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config) {
        CALL(Scatter, sendbuff, recvbuff, count, datatype, root);
}
TWIN(ncclScatterConfig);
