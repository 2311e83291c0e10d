/* SPDX-License-Identifier: MIT */
/*
 * What programs ask for and mostly do without: memory of communicators (theirs is the daemon's, so they have none), the
 * device API and one-sided calls (not there: a program cannot reach the daemon's staging), parameters of the library
 * (it has none), and RCCL's questions about algorithms.
 */
#include <string.h>

#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"
#include "client/nccl/group.h"

_Static_assert(offsetof(ncclCommProperties_t, multimemSupport) == 33 && offsetof(ncclCommProperties_t, ginType) == 36 &&
                       offsetof(ncclCommProperties_t, nLsaTeams) == 40 &&
                       offsetof(ncclCommProperties_t, hostRmaSupport) == 44 &&
                       offsetof(ncclCommProperties_t, railedGinType) == 48 &&
                       offsetof(ncclCommProperties_t, commHash) == 56 && sizeof(ncclCommProperties_t) == 64,
               "the layout of 2.30, and one member of later ones");

static ncclResult_t unsupported(struct ncclComm *comm, const char *what) {
        ncclResult_t result = comm_valid(comm, what);

        return group_note(result ? result : error_raise(ncclInvalidUsage, "%s: railmux does not have this call", what));
}

/* A call that only another library can answer. */
#define ONLY_FALLBACK(comm, name, ...)                                                                                 \
        ((comm) && (comm)->magic == COMM_MAGIC && (comm)->real                                                         \
                 ? group_note(FALLBACK((comm)->fallback, name, __VA_ARGS__))                                           \
                 : unsupported(comm, #name))

/* ---- memory of a communicator ------------------------------------------------------------------------------------ */
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
        ncclResult_t result = comm_enter(comm, __func__);

        if (result)
                return group_note(result);
        if (comm->real)
                result = FALLBACK(comm->fallback, ncclCommSuspend, comm->real, flags);
        else if (flags != NCCL_SUSPEND_MEM)
                result = error_raise(ncclInvalidArgument, "%s: flags 0x%x, must be NCCL_SUSPEND_MEM", __func__,
                                     (unsigned int)flags);
        else if (atomic_exchange(&comm->suspended, true))
                result = error_raise(ncclInvalidUsage, "%s: it is suspended already", __func__);
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommSuspend);

ncclResult_t ncclCommResume(ncclComm_t comm) {
        ncclResult_t result = comm_enter(comm, __func__);

        if (result)
                return group_note(result);
        if (comm->real)
                result = FALLBACK(comm->fallback, ncclCommResume, comm->real);
        else if (!atomic_exchange(&comm->suspended, false))
                result = error_raise(ncclInvalidUsage, "%s: it is not suspended", __func__);
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommResume);

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value) {
        ncclResult_t result = comm_enter(comm, __func__);

        if (result)
                return group_note(result);
        if (comm->real)
                result = FALLBACK(comm->fallback, ncclCommMemStats, comm->real, stat, value);
        else if (!value || (int)stat < ncclStatGpuMemSuspend || (int)stat > ncclStatGpuMemTotal)
                result = error_raise(ncclInvalidArgument, "%s: %s", __func__,
                                     value ? "there is no such statistic" : "value is NULL");
        else
                *value = stat == ncclStatGpuMemSuspended && atomic_load(&comm->suspended);
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommMemStats);

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props) {
        ncclResult_t result = comm_enter_any(comm, __func__);
        ncclCommProperties_t mine;

        if (result)
                return group_note(result);
        if (comm->real) {
                result = FALLBACK(comm->fallback, ncclCommQueryProperties, comm->real, props);
        } else if (!props || props->magic != NCCL_API_MAGIC || props->size < offsetof(ncclCommProperties_t, rank)) {
                result = error_raise(ncclInvalidArgument,
                                     "%s: props is not initialised with NCCL_COMM_PROPERTIES_INITIALIZER", __func__);
        } else {
                memset(&mine, 0, sizeof(mine)); /* gaps, too: in one is the ginType of 2.29.2 */
                mine.size = props->size;
                mine.magic = props->magic;
                mine.version = props->version;
                mine.rank = comm->rank;
                mine.nRanks = comm->n_ranks;
                mine.cudaDev = mine.nvmlDev = comm->device;
                mine.nLsaTeams = comm->n_ranks;
                memcpy(props, &mine, mine.size < sizeof(mine) ? mine.size : sizeof(mine));
        }
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommQueryProperties);

/* ---- one-sided calls and the device API -------------------------------------------------------------------------- */
ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
                           size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                           ncclStream_t stream) {
        return ONLY_FALLBACK(comm, ncclPutSignal, localbuff, count, datatype, peer, peerWin, peerWinOffset, sigIdx, ctx,
                             flags, comm->real, stream);
}
TWIN(ncclPutSignal);

ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, ncclStream_t stream) {
        return ONLY_FALLBACK(comm, ncclSignal, peer, sigIdx, ctx, flags, comm->real, stream);
}
TWIN(ncclSignal);

ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, ncclStream_t stream) {
        return ONLY_FALLBACK(comm, ncclWaitSignal, nDesc, signalDescs, comm->real, stream);
}
TWIN(ncclWaitSignal);

ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t *reqs, ncclDevComm_t *outDevComm) {
        return ONLY_FALLBACK(comm, ncclDevCommCreate, comm->real, reqs, outDevComm);
}
TWIN(ncclDevCommCreate);

ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t *devComm) {
        return ONLY_FALLBACK(comm, ncclDevCommDestroy, comm->real, devComm);
}
TWIN(ncclDevCommDestroy);

/* ---- parameters -------------------------------------------------------------------------------------------------- */
static ncclResult_t no_parameter(const char *what) {
        return error_raise(ncclInvalidUsage, "%s: railmux has no parameters; what can be configured is the daemon's",
                           what);
}

ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key) {
        (void)key;
        if (out)
                *out = NULL;
        return no_parameter(__func__);
}
TWIN(ncclParamBind);

#define PARAM_GET(name, type)                                                                                          \
        ncclResult_t name(ncclParamHandle_t h, type *out) {                                                            \
                (void)h;                                                                                               \
                if (out)                                                                                               \
                        *out = 0;                                                                                      \
                return no_parameter(__func__);                                                                         \
        }                                                                                                              \
        TWIN(name)

PARAM_GET(ncclParamGetI8, int8_t);
PARAM_GET(ncclParamGetI16, int16_t);
PARAM_GET(ncclParamGetI32, int32_t);
PARAM_GET(ncclParamGetI64, int64_t);
PARAM_GET(ncclParamGetU8, uint8_t);
PARAM_GET(ncclParamGetU16, uint16_t);
PARAM_GET(ncclParamGetU32, uint32_t);
PARAM_GET(ncclParamGetU64, uint64_t);
PARAM_GET(ncclParamGetStr, const char *);

ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len) {
        (void)h;
        (void)out;
        (void)maxLen;
        if (len)
                *len = 0;
        return no_parameter(__func__);
}
TWIN(ncclParamGet);

ncclResult_t ncclParamGetParameter(const char *key, const char **value, int *valueLen) {
        (void)key;
        if (value)
                *value = NULL;
        if (valueLen)
                *valueLen = 0;
        return no_parameter(__func__);
}
TWIN(ncclParamGetParameter);

ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *tableLen) {
        if (table)
                *table = NULL;
        if (tableLen)
                *tableLen = 0;
        return no_parameter(__func__);
}
TWIN(ncclParamGetAllParameterKeys);

void ncclParamDumpAll(void) {}
TWIN(ncclParamDumpAll);

/* Who asks for encryption must not believe that this brings it: what goes between nodes is the daemons'. */
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t *config) {
        if (!config || config->magic != NCCL_API_MAGIC || config->size < sizeof(*config))
                return error_raise(ncclInvalidArgument,
                                   "%s: config is not initialised with NCCL_ENCRYPTION_CONFIG_INITIALIZER", __func__);
        if (config->mode != NCCL_ENCRYPTION_MODE_NONE)
                return error_raise(ncclInvalidUsage,
                                   "%s: this library has no sockets between nodes; how daemons speak to each other is "
                                   "in their configuration",
                                   __func__);
        return ncclSuccess;
}
TWIN(ncclSetEncryption);

/* ---- RCCL's ------------------------------------------------------------------------------------------------------ */
/* The daemon chooses plans; there is one answer, and its name says who. */
ncclResult_t rcclGetAlgoInfo(ncclComm_t comm, int coll, uint64_t count, ncclDataType_t dataType, int collNetSupport,
                             int nvlsSupport, int numPipeOps, int *algo, int *protocol, int *maxChannels) {
        ncclResult_t result = comm_valid(comm, __func__);

        (void)coll;
        (void)count;
        (void)dataType;
        (void)collNetSupport;
        (void)nvlsSupport;
        (void)numPipeOps;
        if (result)
                return result;
        if (!algo || !protocol || !maxChannels)
                return error_raise(ncclInvalidArgument, "%s: a pointer for an answer is NULL", __func__);
        *algo = *protocol = 0;
        *maxChannels = 1;
        return ncclSuccess;
}

ncclResult_t rcclGetAlgoName(int algo, const char **name) {
        (void)algo;
        if (!name)
                return error_raise(ncclInvalidArgument, "%s: name is NULL", __func__);
        *name = "railmux";
        return ncclSuccess;
}

ncclResult_t rcclGetProtocolName(int protocol, const char **name) {
        (void)protocol;
        if (!name)
                return error_raise(ncclInvalidArgument, "%s: name is NULL", __func__);
        *name = "daemon";
        return ncclSuccess;
}
