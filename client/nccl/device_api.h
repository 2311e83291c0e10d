/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What the device API has on the host's side, as of NCCL 2.28 to 2.32. It stands apart from nccl.h because NCCL has it
 * in nccl_device.h, beside which a program may use ours.
 */
#include "client/nccl/nccl.h"

#pragma GCC visibility push(default)

/* Ranks of a communicator at equal distances, and this one's number among them. */
typedef struct ncclTeam {
        int nRanks, rank, stride;
} ncclTeam_t;

typedef struct ncclMultimemHandle {
        void *mcBasePtr;
} ncclMultimemHandle_t;

typedef enum {
        NCCL_CFT_TEAM_FLAT = 0,
        NCCL_CFT_TEAM_HIER_MULTIMEM = 1,
        NCCL_CFT_TEAM_HIER_LSA = 2,
} ncclCftTeamMode_t;

typedef uint32_t ncclCftLeId;

/* Two numbers of 32 bits each, in all versions. */
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
/* These two are not declared for programs on Linux, and what they are is not known. */
typedef struct ncclGinOutboxHandle ncclGinOutboxHandle_t;
typedef struct ncclGinInboxA2AHandle ncclGinInboxA2AHandle_t;

/* The beginning, which is all that 2.28.3 has. Programs bring no size of it. */
typedef struct ncclDevResourceRequirements {
        struct ncclDevResourceRequirements *next;
        size_t bufferSize, bufferAlign;
        uint32_t *outBufferHandle;
} ncclDevResourceRequirements_t;

#define NCCL_FUNCTION(type, name, ...)                                                                                 \
        type name(__VA_ARGS__);                                                                                        \
        type p##name(__VA_ARGS__)

/* Teams. */
NCCL_FUNCTION(ncclTeam_t, ncclTeamWorld, ncclComm_t comm);
NCCL_FUNCTION(ncclTeam_t, ncclTeamLsa, ncclComm_t comm);
NCCL_FUNCTION(ncclTeam_t, ncclTeamRail, ncclComm_t comm);
NCCL_FUNCTION(ncclTeam_t, ncclTeamCft, ncclComm_t comm, ncclCftTeamMode_t mode);
NCCL_FUNCTION(ncclTeam_t, ncclTeamCftMultimem, ncclComm_t comm);
NCCL_FUNCTION(int, ncclTeamRankToWorld, ncclComm_t comm, ncclTeam_t team, int rank);
NCCL_FUNCTION(int, ncclTeamRankToLsa, ncclComm_t comm, ncclTeam_t team, int rank);

/* What a device communicator is to have. */
NCCL_FUNCTION(ncclResult_t, ncclLsaBarrierCreateRequirement, ncclTeam_t team, int nBarriers,
              ncclLsaBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);
NCCL_FUNCTION(ncclResult_t, ncclGinBarrierCreateRequirement, ncclComm_t comm, ncclTeam_t team, int nBarriers,
              ncclGinBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);
NCCL_FUNCTION(int, ncclLLA2ACalcSlots, int maxElts, int maxEltSize);
NCCL_FUNCTION(ncclResult_t, ncclLLA2ACreateRequirement, int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle,
              ncclDevResourceRequirements_t *outReq);
NCCL_FUNCTION(ncclResult_t, ncclGinOutboxCreateRequirement, int nBlocks, int sizeLog2, ncclGinOutboxHandle_t *outHandle,
              ncclDevResourceRequirements_t *outReq);
NCCL_FUNCTION(ncclResult_t, ncclGinInboxA2ACreateRequirement, ncclTeam_t peers, int nBlocks, int sizeLog2,
              ncclGinInboxA2AHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);

/* Where a place of a window is for a GPU. */
NCCL_FUNCTION(ncclResult_t, ncclGetLsaMultimemDevicePointer, ncclWindow_t window, size_t offset, void **outPtr);
NCCL_FUNCTION(ncclResult_t, ncclGetMultimemDevicePointer, ncclWindow_t window, size_t offset,
              ncclMultimemHandle_t multimem, void **outPtr);
NCCL_FUNCTION(ncclResult_t, ncclGetLsaDevicePointer, ncclWindow_t window, size_t offset, int lsaRank, void **outPtr);
NCCL_FUNCTION(ncclResult_t, ncclGetPeerDevicePointer, ncclWindow_t window, size_t offset, int peer, void **outPtr);
NCCL_FUNCTION(ncclResult_t, ncclGetMultimemDeviceLeInfo, ncclWindow_t window, size_t offset, ncclCftLeId *leId,
              size_t *leOffset);
NCCL_FUNCTION(ncclResult_t, ncclGetCftDeviceLeInfo, ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam,
              ncclCftLeId *leId, size_t *leOffset);
NCCL_FUNCTION(ncclResult_t, ncclGetPeerDeviceLeInfo, ncclWindow_t window, size_t offset, int peerWorld,
              ncclCftLeId *leId, size_t *leOffset);

#undef NCCL_FUNCTION
#pragma GCC visibility pop
