/* SPDX-License-Identifier: MIT */
/*
 * The device API on the host's side. A program cannot load or store in what is the daemon's, so each rank is alone in
 * its team for that (LSA), there are no windows, and no device communicator is to be had. Teams are answered all the
 * same, for programs ask for them in order to find out just this.
 *
 * What needs a window or a requirement names no communicator. It can only be about one of the fallback's, and goes
 * there if there is one.
 */
#include "client/nccl/device_api.h"

#include <string.h>

#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"

#define HANDLE_BYTES 8u

/* ---- teams ------------------------------------------------------------------------------------------------------- */
/* The answer of the library that carries comm, which has been entered, or `none`. It is no ncclResult_t. */
#define REAL(comm, name, none, ...)                                                                                    \
        ((comm)->fallback->name ? (comm)->fallback->name(__VA_ARGS__) : ((void)fallback_missing(#name), (none)))

static const ncclTeam_t no_team = {0, 0, 0};
static const ncclTeam_t alone = {1, 0, 1};

static ncclTeam_t everyone(const struct ncclComm *comm) {
        return (ncclTeam_t){comm->n_ranks, comm->rank, 1};
}

#define TEAM(name, ours)                                                                                               \
        ncclTeam_t name(ncclComm_t comm) {                                                                             \
                ncclTeam_t team;                                                                                       \
                                                                                                                       \
                if (comm_enter_any(comm, __func__))                                                                    \
                        return no_team;                                                                                \
                team = comm->real ? REAL(comm, name, no_team, comm->real) : (ours);                                    \
                comm_exit(comm);                                                                                       \
                return team;                                                                                           \
        }                                                                                                              \
        TWIN(name)

TEAM(ncclTeamWorld, everyone(comm));
TEAM(ncclTeamLsa, alone);
/* Those with the same number in their LSA teams: with one in each, everybody. */
TEAM(ncclTeamRail, everyone(comm));
TEAM(ncclTeamCftMultimem, alone);

ncclTeam_t ncclTeamCft(ncclComm_t comm, ncclCftTeamMode_t mode) {
        ncclTeam_t team = no_team;

        if (comm_enter_any(comm, __func__))
                return no_team;
        if (comm->real)
                team = REAL(comm, ncclTeamCft, no_team, comm->real, mode);
        else if ((int)mode < NCCL_CFT_TEAM_FLAT || (int)mode > NCCL_CFT_TEAM_HIER_LSA)
                (void)error_raise(ncclInvalidArgument, "%s: mode %d", __func__, (int)mode);
        else
                team = alone;
        comm_exit(comm);
        return team;
}
TWIN(ncclTeamCft);

/* The numbers are the program's, and may be any. */
static int rank_from(int mine, ncclTeam_t team, int rank) {
        return (int)((unsigned int)mine + ((unsigned int)rank - (unsigned int)team.rank) * (unsigned int)team.stride);
}

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
        int answer;

        if (comm_enter_any(comm, __func__))
                return -1;
        answer = comm->real ? REAL(comm, ncclTeamRankToWorld, -1, comm->real, team, rank)
                            : rank_from(comm->rank, team, rank);
        comm_exit(comm);
        return answer;
}
TWIN(ncclTeamRankToWorld);

int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
        int answer;

        if (comm_enter_any(comm, __func__))
                return -1;
        answer = comm->real ? REAL(comm, ncclTeamRankToLsa, -1, comm->real, team, rank)
                            : rank_from(alone.rank, team, rank);
        comm_exit(comm);
        return answer;
}
TWIN(ncclTeamRankToLsa);

/* ---- requirements ------------------------------------------------------------------------------------------------ */
static ncclResult_t no_requirement(const char *what, void *handle, ncclDevResourceRequirements_t *requirement) {
        if (handle)
                memset(handle, 0, HANDLE_BYTES);
        if (requirement)
                memset(requirement, 0, sizeof(*requirement));
        return error_raise(ncclInvalidUsage, "%s: railmux has no device communicators that could have this", what);
}

ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t *outHandle,
                                             ncclDevResourceRequirements_t *outReq) {
        const struct fallback *fallback = fallback_get();

        return fallback ? FALLBACK(fallback, ncclLsaBarrierCreateRequirement, team, nBarriers, outHandle, outReq)
                        : no_requirement(__func__, outHandle, outReq);
}
TWIN(ncclLsaBarrierCreateRequirement);

ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                             ncclGinBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq) {
        ncclResult_t result = comm_enter_any(comm, __func__);

        if (result)
                return result;
        result = comm->real ? FALLBACK(comm->fallback, ncclGinBarrierCreateRequirement, comm->real, team, nBarriers,
                                       outHandle, outReq)
                            : no_requirement(__func__, outHandle, outReq);
        comm_exit(comm);
        return result;
}
TWIN(ncclGinBarrierCreateRequirement);

/* Slots have 8 bytes. */
int ncclLLA2ACalcSlots(int maxElts, int maxEltSize) {
        return (int)((unsigned int)maxElts * (((unsigned int)maxEltSize + 7) / 8));
}
TWIN(ncclLLA2ACalcSlots);

ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle,
                                        ncclDevResourceRequirements_t *outReq) {
        const struct fallback *fallback = fallback_get();

        return fallback ? FALLBACK(fallback, ncclLLA2ACreateRequirement, nBlocks, nSlots, outHandle, outReq)
                        : no_requirement(__func__, outHandle, outReq);
}
TWIN(ncclLLA2ACreateRequirement);

ncclResult_t ncclGinOutboxCreateRequirement(int nBlocks, int sizeLog2, ncclGinOutboxHandle_t *outHandle,
                                            ncclDevResourceRequirements_t *outReq) {
        const struct fallback *fallback = fallback_get();

        return fallback ? FALLBACK(fallback, ncclGinOutboxCreateRequirement, nBlocks, sizeLog2, outHandle, outReq)
                        : no_requirement(__func__, NULL, outReq);
}
TWIN(ncclGinOutboxCreateRequirement);

ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nBlocks, int sizeLog2,
                                              ncclGinInboxA2AHandle_t *outHandle,
                                              ncclDevResourceRequirements_t *outReq) {
        const struct fallback *fallback = fallback_get();

        return fallback ? FALLBACK(fallback, ncclGinInboxA2ACreateRequirement, peers, nBlocks, sizeLog2, outHandle,
                                   outReq)
                        : no_requirement(__func__, NULL, outReq);
}
TWIN(ncclGinInboxA2ACreateRequirement);

/* ---- windows ----------------------------------------------------------------------------------------------------- */
/* Who could know this window; NULL: nobody. */
static const struct fallback *window_owner(ncclWindow_t window) {
        return window ? fallback_get() : NULL;
}

static ncclResult_t no_window(const char *what, ncclWindow_t window) {
        return error_raise(ncclInvalidUsage, "%s: %p is no window: communicators of the daemon have none", what,
                           (void *)window);
}

static ncclResult_t no_pointer(const char *what, ncclWindow_t window, void **pointer) {
        if (pointer)
                *pointer = NULL;
        return no_window(what, window);
}

static ncclResult_t no_element(const char *what, ncclWindow_t window, ncclCftLeId *id, size_t *offset) {
        if (id)
                *id = 0;
        if (offset)
                *offset = 0;
        return no_window(what, window);
}

ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **outPtr) {
        const struct fallback *fallback = window_owner(window);

        return fallback ? FALLBACK(fallback, ncclGetLsaMultimemDevicePointer, window, offset, outPtr)
                        : no_pointer(__func__, window, outPtr);
}
TWIN(ncclGetLsaMultimemDevicePointer);

ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem,
                                          void **outPtr) {
        const struct fallback *fallback = window_owner(window);

        return fallback ? FALLBACK(fallback, ncclGetMultimemDevicePointer, window, offset, multimem, outPtr)
                        : no_pointer(__func__, window, outPtr);
}
TWIN(ncclGetMultimemDevicePointer);

ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void **outPtr) {
        const struct fallback *fallback = window_owner(window);

        return fallback ? FALLBACK(fallback, ncclGetLsaDevicePointer, window, offset, lsaRank, outPtr)
                        : no_pointer(__func__, window, outPtr);
}
TWIN(ncclGetLsaDevicePointer);

ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr) {
        const struct fallback *fallback = window_owner(window);

        return fallback ? FALLBACK(fallback, ncclGetPeerDevicePointer, window, offset, peer, outPtr)
                        : no_pointer(__func__, window, outPtr);
}
TWIN(ncclGetPeerDevicePointer);

ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, ncclCftLeId *leId, size_t *leOffset) {
        const struct fallback *fallback = window_owner(window);

        return fallback ? FALLBACK(fallback, ncclGetMultimemDeviceLeInfo, window, offset, leId, leOffset)
                        : no_element(__func__, window, leId, leOffset);
}
TWIN(ncclGetMultimemDeviceLeInfo);

ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam,
                                    ncclCftLeId *leId, size_t *leOffset) {
        const struct fallback *fallback = window_owner(window);

        return fallback ? FALLBACK(fallback, ncclGetCftDeviceLeInfo, window, offset, peerCft, cftTeam, leId, leOffset)
                        : no_element(__func__, window, leId, leOffset);
}
TWIN(ncclGetCftDeviceLeInfo);

ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId *leId,
                                     size_t *leOffset) {
        const struct fallback *fallback = window_owner(window);

        return fallback ? FALLBACK(fallback, ncclGetPeerDeviceLeInfo, window, offset, peerWorld, leId, leOffset)
                        : no_element(__func__, window, leId, leOffset);
}
TWIN(ncclGetPeerDeviceLeInfo);
