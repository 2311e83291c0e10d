/* SPDX-License-Identifier: MIT */
#pragma once
/* Another library with the same interface, for what the daemon cannot serve. See fallback.c. */
#include <stdbool.h>

#include "client/nccl/device_api.h"
#include "client/nccl/nccl.h"

/* What is asked of it. A call that it does not have is NULL. */
#define FALLBACK_CALLS(X)                                                                                              \
        X(ncclGetUniqueId)                                                                                             \
        X(ncclGetErrorString)                                                                                          \
        X(ncclGetLastError)                                                                                            \
        X(ncclMemAlloc)                                                                                                \
        X(ncclMemFree)                                                                                                 \
        X(ncclCommRegister)                                                                                            \
        X(ncclCommDeregister)                                                                                          \
        X(ncclCommWindowRegister)                                                                                      \
        X(ncclCommWindowDeregister)                                                                                    \
        X(ncclWinGetUserPtr)                                                                                           \
        X(ncclCommInitRank)                                                                                            \
        X(ncclCommInitRankConfig)                                                                                      \
        X(ncclCommInitRankScalable)                                                                                    \
        X(ncclCommFinalize)                                                                                            \
        X(ncclCommDestroy)                                                                                             \
        X(ncclCommAbort)                                                                                               \
        X(ncclCommRevoke)                                                                                              \
        X(ncclCommSplit)                                                                                               \
        X(ncclCommShrink)                                                                                              \
        X(ncclCommGetUniqueId)                                                                                         \
        X(ncclCommGrow)                                                                                                \
        X(ncclCommGetAsyncError)                                                                                       \
        X(ncclCommCount)                                                                                               \
        X(ncclCommCuDevice)                                                                                            \
        X(ncclCommUserRank)                                                                                            \
        X(ncclCommSuspend)                                                                                             \
        X(ncclCommResume)                                                                                              \
        X(ncclCommMemStats)                                                                                            \
        X(ncclCommQueryProperties)                                                                                     \
        X(ncclRedOpCreatePreMulSum)                                                                                    \
        X(ncclRedOpDestroy)                                                                                            \
        X(ncclAllReduce)                                                                                               \
        X(ncclAllReduceWithBias)                                                                                       \
        X(ncclReduce)                                                                                                  \
        X(ncclReduceScatter)                                                                                           \
        X(ncclAllGather)                                                                                               \
        X(ncclBroadcast)                                                                                               \
        X(ncclGather)                                                                                                  \
        X(ncclScatter)                                                                                                 \
        X(ncclAlltoAll)                                                                                                \
        X(ncclAllToAll)                                                                                                \
        X(ncclAlltoAllv)                                                                                               \
        X(ncclAllToAllv)                                                                                               \
        X(ncclSend)                                                                                                    \
        X(ncclRecv)                                                                                                    \
        X(ncclPutSignal)                                                                                               \
        X(ncclSignal)                                                                                                  \
        X(ncclWaitSignal)                                                                                              \
        X(ncclDevCommCreate)                                                                                           \
        X(ncclDevCommDestroy)                                                                                          \
        X(ncclAllReduceConfig)                                                                                         \
        X(ncclReduceConfig)                                                                                            \
        X(ncclReduceScatterConfig)                                                                                     \
        X(ncclAllGatherConfig)                                                                                         \
        X(ncclBroadcastConfig)                                                                                         \
        X(ncclGatherConfig)                                                                                            \
        X(ncclScatterConfig)                                                                                           \
        X(ncclAlltoAllConfig)                                                                                          \
        X(ncclTeamWorld)                                                                                               \
        X(ncclTeamLsa)                                                                                                 \
        X(ncclTeamRail)                                                                                                \
        X(ncclTeamCft)                                                                                                 \
        X(ncclTeamCftMultimem)                                                                                         \
        X(ncclTeamRankToWorld)                                                                                         \
        X(ncclTeamRankToLsa)                                                                                           \
        X(ncclLsaBarrierCreateRequirement)                                                                             \
        X(ncclGinBarrierCreateRequirement)                                                                             \
        X(ncclLLA2ACreateRequirement)                                                                                  \
        X(ncclGinOutboxCreateRequirement)                                                                              \
        X(ncclGinInboxA2ACreateRequirement)                                                                            \
        X(ncclGetLsaMultimemDevicePointer)                                                                             \
        X(ncclGetMultimemDevicePointer)                                                                                \
        X(ncclGetLsaDevicePointer)                                                                                     \
        X(ncclGetPeerDevicePointer)                                                                                    \
        X(ncclGetMultimemDeviceLeInfo)                                                                                 \
        X(ncclGetCftDeviceLeInfo)                                                                                      \
        X(ncclGetPeerDeviceLeInfo)                                                                                     \
        X(ncclGroupStart)                                                                                              \
        X(ncclGroupEnd)                                                                                                \
        X(ncclGroupSimulateEnd)

struct fallback {
#define X(name) __typeof__(name) *name;
        FALLBACK_CALLS(X)
#undef X
};

/* What $RAILMUX_FALLBACK names, loaded at the first call; NULL: nothing, or it cannot be loaded (logged once). */
const struct fallback *fallback_get(void);
/* Is an id one of the daemon? Else it is the other library's. See init.c. */
bool id_is_daemons(const ncclUniqueId *id);

/* The result of fb->name(...), or ncclInvalidUsage if the library does not have it. */
#define FALLBACK(fb, name, ...) ((fb)->name ? fallback_result(#name, (fb)->name(__VA_ARGS__)) : fallback_missing(#name))
ncclResult_t fallback_missing(const char *name);
/* Keeps the library's text of an error. */
ncclResult_t fallback_result(const char *name, ncclResult_t result);
