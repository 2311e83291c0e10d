/* SPDX-License-Identifier: MIT */
/*
 * Ids, and communicators from them.
 *
 * The rank that makes the id decides who serves the communicator: the daemon, or the library that RAILMUX_FALLBACK
 * names, if the daemon is not there or does not serve this process's GPU. The others see it in the id: the daemon's
 * begin with a version in eight bytes, of which the upper ones are zero, where another library has random bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "client/nccl/comm.h"
#include "client/nccl/create.h"
#include "client/nccl/device.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"
#include "client/nccl/group.h"
#include "client/nccl/log.h"
#include "client/nccl/session.h"
#include "railmux/railmux.h"

#define ID_VERSION_MAX 255u

ncclResult_t ncclGetVersion(int *version) {
        if (!version)
                return error_raise(ncclInvalidArgument, "%s: version is NULL", __func__);
        *version = NCCL_VERSION_CODE;
        return ncclSuccess;
}
TWIN(ncclGetVersion);

/* ---- ids --------------------------------------------------------------------------------------------------------- */
bool id_is_daemons(const ncclUniqueId *id) {
        uint64_t version;

        memcpy(&version, id->internal, sizeof(version));
        return version && version <= ID_VERSION_MAX;
}

/* Is there a reason to leave a communicator of this process to another library, if there is one? */
static bool daemon_serves(const char *what, struct session *session) {
        int32_t gpu;

        return session->host ? !device_present() : !device_match(what, session->rmx, device_current(), &gpu);
}

static ncclResult_t id_of_fallback(const struct fallback *fallback, ncclUniqueId *id, const char *why) {
        ncclResult_t result = FALLBACK(fallback, ncclGetUniqueId, id);

        if (!result && id_is_daemons(id))
                return error_raise(ncclInternalError,
                                   "ncclGetUniqueId: an id of the fallback library looks like one of the daemon");
        log_line(LOG_WARN, "this communicator goes to the library that RAILMUX_FALLBACK names: %s", why);
        return result;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId) {
        const struct fallback *fallback = fallback_get();
        struct session *session = NULL;
        struct rmx_id id;
        int r = RMX_OK;

        if (!uniqueId)
                return error_raise(ncclInvalidArgument, "%s: uniqueId is NULL", __func__);
        for (int attempt = 0; attempt < 2; attempt++) {
                r = session_try(&session);
                if (!r && fallback && !daemon_serves(__func__, session)) {
                        session_put(session);
                        return id_of_fallback(fallback, uniqueId, "the daemon does not serve this process's GPU");
                }
                if (!r)
                        r = rmx_get_id(session->rmx, &id);
                if (r == RMX_E_DAEMON_LOST && session)
                        session_lose(session);
                session = session_put(session);
                if (r != RMX_E_DAEMON_LOST)
                        break;
        }
        if (r && fallback)
                return id_of_fallback(fallback, uniqueId, rmx_last_error());
        if (!r)
                memcpy(uniqueId, &id, sizeof(*uniqueId));
        return error_adopt(__func__, r);
}
TWIN(ncclGetUniqueId);

/* ---- ranks ------------------------------------------------------------------------------------------------------- */
static ncclResult_t join_fallback(struct ncclComm *comm, const char *what, const ncclUniqueId *id,
                                  ncclConfig_t *config) {
        ncclResult_t result;

        comm->fallback = fallback_get();
        if (!comm->fallback)
                return error_raise(ncclInvalidArgument,
                                   "%s: this id is not the daemon's, and no RAILMUX_FALLBACK names the library that "
                                   "made it",
                                   what);
        result = group_enter_fallback(comm->fallback);
        if (result)
                return result;
        return config ? FALLBACK(comm->fallback, ncclCommInitRankConfig, comm_place(comm), comm->n_ranks, *id,
                                 comm->rank, config)
                      : FALLBACK(comm->fallback, ncclCommInitRank, comm_place(comm), comm->n_ranks, *id, comm->rank);
}

static ncclResult_t init_checks(const char *what, ncclComm_t *newcomm, int nranks, int rank) {
        if (!newcomm)
                return error_raise(ncclInvalidArgument, "%s: comm is NULL", what);
        if (nranks < 1 || rank < 0 || rank >= nranks)
                return error_raise(ncclInvalidArgument, "%s: rank %d of %d is not possible", what, rank, nranks);
        return ncclSuccess;
}

/* Before any rank of a group begins to wait: the ones that this process cannot place would be waited for. */
static ncclResult_t place_check(const char *what, int device) {
        struct session *session;
        ncclResult_t result;
        int32_t gpu;

        result = session_get(what, &session);
        if (result)
                return result;
        if (!session->host)
                result = device_match(what, session->rmx, device, &gpu);
        session_put(session);
        return result;
}

static ncclResult_t init(const char *what, ncclComm_t *newcomm, int nranks, const ncclUniqueId *id, int rank,
                         ncclConfig_t *config, int device, bool spread) {
        ncclResult_t result = init_checks(what, newcomm, nranks, rank);
        struct config read;
        struct ncclComm *comm;
        struct job *job;

        if (!result)
                result = config_read(what, config, config_default(), &read);
        if (!result && id_is_daemons(id))
                result = place_check(what, device);
        if (result && newcomm)
                *newcomm = NULL;
        if (result)
                return result;
        comm = comm_new();
        if (!comm)
                return error_raise(ncclSystemError, "%s: out of memory", what);
        comm->config = read;
        comm->rank = rank;
        comm->n_ranks = nranks;
        comm->device = device;
        if (!id_is_daemons(id)) {
                result = join_fallback(comm, what, id, config);
                if (result && result != ncclInProgress) {
                        comm_recycle(comm);
                        return result;
                }
                *newcomm = comm;
                (void)comm_made(comm, ncclSuccess);
                return result;
        }
        job = job_new(JOB_JOIN, what);
        if (!job) {
                comm_recycle(comm);
                return ncclSystemError;
        }
        job->comm = comm;
        job->ret_comm = newcomm;
        job->id = *id;
        job->spread = spread;
        comm_give(newcomm, comm);
        return job_submit(job);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank) {
        return group_note(init(__func__, comm, nranks, &commId, rank, NULL, device_current(), false));
}
TWIN(ncclCommInitRank);

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config) {
        return group_note(init(__func__, comm, nranks, &commId, rank, config, device_current(), false));
}
TWIN(ncclCommInitRankConfig);

/* Several ids spread the work of meeting; the daemon needs one. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
                                      ncclConfig_t *config) {
        if (!commIds || nId < 1 || nId > nranks)
                return group_note(error_raise(ncclInvalidArgument, "%s: %d ids for %d ranks", __func__, nId, nranks));
        return group_note(init(__func__, newcomm, nranks, &commIds[0], myrank, config, device_current(), false));
}
TWIN(ncclCommInitRankScalable);

/* ---- all ranks of one process ------------------------------------------------------------------------------------ */
static ncclResult_t all_checks(const char *what, const ncclComm_t *comms, int ndev, const int *devlist) {
        if (!comms)
                return error_raise(ncclInvalidArgument, "%s: comm is NULL", what);
        if (ndev < 1)
                return error_raise(ncclInvalidArgument, "%s: ndev is %d, must be at least 1", what, ndev);
        for (int i = 0; devlist && i < ndev; i++) {
                if (devlist[i] < 0)
                        return error_raise(ncclInvalidArgument, "%s: devlist[%d] is %d", what, i, devlist[i]);
                for (int k = 0; k < i; k++)
                        if (devlist[k] == devlist[i])
                                return error_raise(ncclInvalidUsage, "%s: device %d stands in devlist twice", what,
                                                   devlist[i]);
        }
        return ncclSuccess;
}

/* On the host backend any number is a device. */
static ncclResult_t devices_check(const char *what, const ncclUniqueId *id, int ndev, const int *devlist) {
        struct session *session;
        int count = device_count();
        ncclResult_t result;
        bool host = false;

        if (id_is_daemons(id)) {
                result = session_get(what, &session);
                if (result)
                        return result;
                host = session->host;
                session_put(session);
        }
        for (int i = 0; devlist && i < ndev; i++)
                if (!host && count >= 0 && devlist[i] >= count)
                        return error_raise(ncclInvalidArgument,
                                           "%s: devlist[%d] is %d, but this process has %d devices", what, i,
                                           devlist[i], count);
        return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
        ncclResult_t result = all_checks(__func__, comm, ndev, devlist), end;
        int before = device_current();
        ncclUniqueId id;

        if (!result)
                result = ncclGetUniqueId(&id);
        if (!result)
                result = devices_check(__func__, &id, ndev, devlist);
        if (result)
                return group_note(result);
        (void)ncclGroupStart();
        for (int i = 0; i < ndev && !result; i++) {
                int device = devlist ? devlist[i] : i;

                if (!id_is_daemons(&id))
                        result = device_select(__func__, device);
                if (!result)
                        result = init(__func__, &comm[i], ndev, &id, i, NULL, device, true);
                (void)group_note(result);
        }
        end = ncclGroupEnd();
        if (before >= 0 && !id_is_daemons(&id))
                (void)device_select(__func__, before);
        return group_note(result ? result : end);
}
TWIN(ncclCommInitAll);
