/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The C interface of NCCL 2.28 and RCCL, with what later versions added to it, as the libraries of this folder serve
 * it.
 *
 * It is written down here from the facts of the interface: names, numbers and layouts are what programs were compiled
 * with and cannot be ours to choose, hence the typedefs and the camel case. A program may include this file instead of
 * nccl.h or rccl.h, but need not: the calls are the same.
 *
 * Streams are CUDA's, or HIP's where __HIP_PLATFORM_AMD__ is defined; both are pointers, so the libraries take either.
 * Each function has a twin that begins with p (pncclSend) and does the same.
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define NCCL_MAJOR                      2
#define NCCL_MINOR                      28
#define NCCL_PATCH                      9
#define NCCL_SUFFIX                     ""
#define NCCL_VERSION(major, minor, sub) ((major)*10000 + (minor)*100 + (sub))
#define NCCL_VERSION_CODE               NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)

#define NCCL_API_MAGIC        0xcafebeefu /* of structs that the program fills in */
#define NCCL_SIM_INFO_MAGIC   0x74685283u
#define NCCL_UNIQUE_ID_BYTES  128
#define NCCL_COMM_NULL        NULL
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT      -1.0f
#define NCCL_SPLIT_NOCOLOR    (-1)

#define NCCL_WIN_DEFAULT            0x00
#define NCCL_WIN_COLL_SYMMETRIC     0x01
#define NCCL_WIN_STRICT_ORDERING    0x02
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

#define NCCL_CTA_POLICY_DEFAULT    0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO       0x02

#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT   0x01
#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM    0x01

/* ---- handles ----------------------------------------------------------------------------------------------------- */
typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct ihipStream_t *hipStream_t;
#if defined(__HIP_PLATFORM_AMD__) || defined(__HIP_PLATFORM_HCC__)
typedef hipStream_t ncclStream_t; /* a name of ours; the originals have the runtime's */
#else
typedef cudaStream_t ncclStream_t;
#endif
/* Known to programs that use the device API only. */
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclParamHandle *ncclParamHandle_t;

/* ---- numbers ----------------------------------------------------------------------------------------------------- */
typedef enum {
        ncclSuccess = 0,
        ncclUnhandledCudaError = 1,
        ncclSystemError = 2,
        ncclInternalError = 3,
        ncclInvalidArgument = 4,
        ncclInvalidUsage = 5,
        ncclRemoteError = 6,
        ncclInProgress = 7,
        ncclTimeout = 8, /* since 2.30 */
        ncclNumResults = 9,
} ncclResult_t;

typedef enum {
        ncclInt8 = 0,
        ncclChar = 0,
        ncclUint8 = 1,
        ncclInt32 = 2,
        ncclInt = 2,
        ncclUint32 = 3,
        ncclInt64 = 4,
        ncclUint64 = 5,
        ncclFloat16 = 6,
        ncclHalf = 6,
        ncclFloat32 = 7,
        ncclFloat = 7,
        ncclFloat64 = 8,
        ncclDouble = 8,
        ncclBfloat16 = 9,
        ncclFloat8e4m3 = 10,
        ncclFloat8e5m2 = 11,
        ncclNumTypes = 12,
} ncclDataType_t;

/* Reductions with a factor have numbers from ncclNumOps on. */
typedef enum {
        ncclSum = 0,
        ncclProd = 1,
        ncclMax = 2,
        ncclMin = 3,
        ncclAvg = 4,
        ncclNumOps = 5,
        ncclMaxRedOp = INT_MAX,
} ncclRedOp_t;

typedef enum {
        ncclScalarDevice = 0,        /* read when a collective runs */
        ncclScalarHostImmediate = 1, /* read at once */
} ncclScalarResidence_t;

typedef enum {
        ncclStatGpuMemSuspend = 0,   /* bytes that Suspend would give back */
        ncclStatGpuMemSuspended = 1, /* 1: they are given back */
        ncclStatGpuMemPersist = 2,   /* bytes that stay */
        ncclStatGpuMemTotal = 3,
} ncclCommMemStat_t;

/* ---- structs ----------------------------------------------------------------------------------------------------- */
typedef struct {
        char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

/* As of 2.28: 80 bytes. Programs bring shorter and longer ones; `size` says which. */
typedef struct ncclConfig_v22800 {
        size_t size;
        unsigned int magic;
        unsigned int version;
        int blocking;
        int cgaClusterSize;
        int minCTAs;
        int maxCTAs;
        const char *netName;
        int splitShare;
        int trafficClass;
        const char *commName;
        int collnetEnable;
        int CTAPolicy;
        int shrinkShare;
        int nvlsCTAs;
        int nChannelsPerNetPeer;
        int nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                                        \
        {                                                                                                              \
                sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
                        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,    \
                        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
                        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
        }

typedef struct ncclSimInfo_v22200 {
        size_t size;
        unsigned int magic;
        unsigned int version;
        float estimatedTime;
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER                                                                                      \
        { sizeof(ncclSimInfo_t), NCCL_SIM_INFO_MAGIC, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

typedef struct {
        int opCnt;
        int peer;
        int sigIdx;
        int ctx;
} ncclWaitSignalDesc_t;

/* The beginning that all versions since 2.29.5 share; `size` says how much the program knows. Kinds of GIN are numbers
 * of an enum, 0 is none; only in 2.29.2 and 2.29.3, whose struct ends there, ginType was a byte just behind
 * multimemSupport. */
typedef struct ncclCommProperties {
        size_t size;
        unsigned int magic;
        unsigned int version;
        int rank;
        int nRanks;
        int cudaDev;
        int nvmlDev;
        bool deviceApiSupport;
        bool multimemSupport;
        int ginType;
        int nLsaTeams;
        bool hostRmaSupport;
        int railedGinType;
        uint64_t commHash;
} ncclCommProperties_t;

/* Of a single collective, since 2.31; as of 2.32. `size` says how much of it the program knows. */
typedef struct ncclCollConfig_v23200 {
        size_t size;
        unsigned int magic;
        unsigned int version;
        struct ncclConfigExt *ext;
        int minCTAs;
        int maxCTAs;
        int nvlsCTAs;
        int cgaClusterSize;
        const char *algSelection;
        int forceAlgSelection;
        int CTAPolicy;
        uint64_t userProfilerTag;
        void *launchCompletionEvent; /* since 2.32 */
} ncclCollConfig_t;

#define NCCL_COLLCONFIG_INITIALIZER                                                                                    \
        {                                                                                                              \
                sizeof(ncclCollConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NULL, NCCL_CONFIG_UNDEF_INT,              \
                        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NULL, 1,                  \
                        NCCL_CONFIG_UNDEF_INT, 0, NULL,                                                                \
        }

/* Since 2.32. */
typedef enum {
        NCCL_ENCRYPTION_MODE_NONE = 0,
        NCCL_ENCRYPTION_MODE_PSK = 1,
} ncclEncryptionMode_t;

typedef struct ncclEncryptionConfig_v23200 {
        size_t size;
        unsigned int magic;
        unsigned int version;
        int mode;
        const char *psk;
} ncclEncryptionConfig_t;

#define NCCL_ENCRYPTION_CONFIG_INITIALIZER                                                                             \
        { sizeof(ncclEncryptionConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_ENCRYPTION_MODE_NONE, NULL }

#define NCCL_COMM_PROPERTIES_INITIALIZER                                                                               \
        { sizeof(ncclCommProperties_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, 0, 0, 0, 0, false, false, 0, 0, false, 0, 0 }

/* ---- functions --------------------------------------------------------------------------------------------------- */
#define NCCL_FUNCTION(type, name, ...)                                                                                 \
        type name(__VA_ARGS__);                                                                                        \
        type p##name(__VA_ARGS__)

NCCL_FUNCTION(ncclResult_t, ncclGetVersion, int *version);
NCCL_FUNCTION(ncclResult_t, ncclGetUniqueId, ncclUniqueId *uniqueId);
NCCL_FUNCTION(const char *, ncclGetErrorString, ncclResult_t result);
/* comm may be NULL: the text is the process's. */
NCCL_FUNCTION(const char *, ncclGetLastError, ncclComm_t comm);

/* Of no use any more: NCCL_DEBUG is read once. */
NCCL_FUNCTION(void, ncclResetDebugInit, void);

/* Memory. */
NCCL_FUNCTION(ncclResult_t, ncclMemAlloc, void **ptr, size_t size);
NCCL_FUNCTION(ncclResult_t, ncclMemFree, void *ptr);
NCCL_FUNCTION(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void *buff, size_t size, void **handle);
NCCL_FUNCTION(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void *handle);
NCCL_FUNCTION(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
              int winFlags);
NCCL_FUNCTION(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win);
NCCL_FUNCTION(ncclResult_t, ncclWinGetUserPtr, ncclComm_t comm, ncclWindow_t win, void **outUserPtr);

/* Communicators. */
NCCL_FUNCTION(ncclResult_t, ncclCommInitRank, ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank);
NCCL_FUNCTION(ncclResult_t, ncclCommInitRankConfig, ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
              ncclConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclCommInitRankScalable, ncclComm_t *newcomm, int nranks, int myrank, int nId,
              ncclUniqueId *commIds, ncclConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclCommInitAll, ncclComm_t *comm, int ndev, const int *devlist);
NCCL_FUNCTION(ncclResult_t, ncclCommFinalize, ncclComm_t comm);
NCCL_FUNCTION(ncclResult_t, ncclCommDestroy, ncclComm_t comm);
NCCL_FUNCTION(ncclResult_t, ncclCommAbort, ncclComm_t comm);
NCCL_FUNCTION(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int revokeFlags);
NCCL_FUNCTION(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
              ncclConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclCommShrink, ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
              ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags);
NCCL_FUNCTION(ncclResult_t, ncclCommGetUniqueId, ncclComm_t comm, ncclUniqueId *uniqueId);
NCCL_FUNCTION(ncclResult_t, ncclCommGrow, ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
              ncclComm_t *newcomm, ncclConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t *asyncError);
NCCL_FUNCTION(ncclResult_t, ncclCommCount, const ncclComm_t comm, int *count);
NCCL_FUNCTION(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int *device);
NCCL_FUNCTION(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int *rank);
NCCL_FUNCTION(ncclResult_t, ncclCommSuspend, ncclComm_t comm, int flags);
NCCL_FUNCTION(ncclResult_t, ncclCommResume, ncclComm_t comm);
NCCL_FUNCTION(ncclResult_t, ncclCommMemStats, ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value);
NCCL_FUNCTION(ncclResult_t, ncclCommQueryProperties, ncclComm_t comm, ncclCommProperties_t *props);

/* Reductions with a factor. */
NCCL_FUNCTION(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
              ncclScalarResidence_t residence, ncclComm_t comm);
NCCL_FUNCTION(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm);

/* Collectives. */
NCCL_FUNCTION(ncclResult_t, ncclAllReduce, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
              ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclAllReduceWithBias, const void *sendbuff, void *recvbuff, size_t count,
              ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream, const void *acc);
NCCL_FUNCTION(ncclResult_t, ncclReduce, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
              ncclRedOp_t op, int root, ncclComm_t comm, ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclReduceScatter, const void *sendbuff, void *recvbuff, size_t recvcount,
              ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclAllGather, const void *sendbuff, void *recvbuff, size_t sendcount,
              ncclDataType_t datatype, ncclComm_t comm, ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclBroadcast, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
              int root, ncclComm_t comm, ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclBcast, void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
              ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclGather, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
              int root, ncclComm_t comm, ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclScatter, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
              int root, ncclComm_t comm, ncclStream_t stream);
/* NCCL's spelling and RCCL's. */
NCCL_FUNCTION(ncclResult_t, ncclAlltoAll, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
              ncclComm_t comm, ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclAllToAll, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
              ncclComm_t comm, ncclStream_t stream);
/* Counts and displacements in elements. */
NCCL_FUNCTION(ncclResult_t, ncclAlltoAllv, const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
              void *recvbuff, const size_t recvcounts[], const size_t rdispls[], ncclDataType_t datatype,
              ncclComm_t comm, ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclAllToAllv, const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
              void *recvbuff, const size_t recvcounts[], const size_t rdispls[], ncclDataType_t datatype,
              ncclComm_t comm, ncclStream_t stream);
/* The same with a config, which may be NULL; since 2.31. */
NCCL_FUNCTION(ncclResult_t, ncclAllReduceConfig, const void *sendbuff, void *recvbuff, size_t count,
              ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream,
              const ncclCollConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclBroadcastConfig, const void *sendbuff, void *recvbuff, size_t count,
              ncclDataType_t datatype, int root, ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclReduceConfig, const void *sendbuff, void *recvbuff, size_t count,
              ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, ncclStream_t stream,
              const ncclCollConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclAllGatherConfig, const void *sendbuff, void *recvbuff, size_t sendcount,
              ncclDataType_t datatype, ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclReduceScatterConfig, const void *sendbuff, void *recvbuff, size_t recvcount,
              ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream,
              const ncclCollConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclAlltoAllConfig, const void *sendbuff, void *recvbuff, size_t count,
              ncclDataType_t datatype, ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclGatherConfig, const void *sendbuff, void *recvbuff, size_t count,
              ncclDataType_t datatype, int root, ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclScatterConfig, const void *sendbuff, void *recvbuff, size_t count,
              ncclDataType_t datatype, int root, ncclComm_t comm, ncclStream_t stream, const ncclCollConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclSend, const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
              ncclComm_t comm, ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclRecv, void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
              ncclStream_t stream);

/* One-sided, on windows. */
NCCL_FUNCTION(ncclResult_t, ncclPutSignal, const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
              ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
              ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclSignal, int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
              ncclStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclWaitSignal, int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm,
              ncclStream_t stream);

/* Device API. */
NCCL_FUNCTION(ncclResult_t, ncclDevCommCreate, ncclComm_t comm, const ncclDevCommRequirements_t *reqs,
              ncclDevComm_t *outDevComm);
NCCL_FUNCTION(ncclResult_t, ncclDevCommDestroy, ncclComm_t comm, const ncclDevComm_t *devComm);

/* Groups. */
NCCL_FUNCTION(ncclResult_t, ncclGroupStart, void);
NCCL_FUNCTION(ncclResult_t, ncclGroupEnd, void);
NCCL_FUNCTION(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t *simInfo);

/* Parameters of the library, of which there are none, since 2.30; and how its sockets are encrypted, since 2.32. */
NCCL_FUNCTION(ncclResult_t, ncclParamBind, ncclParamHandle_t *out, const char *key);
NCCL_FUNCTION(ncclResult_t, ncclParamGetI8, ncclParamHandle_t h, int8_t *out);
NCCL_FUNCTION(ncclResult_t, ncclParamGetI16, ncclParamHandle_t h, int16_t *out);
NCCL_FUNCTION(ncclResult_t, ncclParamGetI32, ncclParamHandle_t h, int32_t *out);
NCCL_FUNCTION(ncclResult_t, ncclParamGetI64, ncclParamHandle_t h, int64_t *out);
NCCL_FUNCTION(ncclResult_t, ncclParamGetU8, ncclParamHandle_t h, uint8_t *out);
NCCL_FUNCTION(ncclResult_t, ncclParamGetU16, ncclParamHandle_t h, uint16_t *out);
NCCL_FUNCTION(ncclResult_t, ncclParamGetU32, ncclParamHandle_t h, uint32_t *out);
NCCL_FUNCTION(ncclResult_t, ncclParamGetU64, ncclParamHandle_t h, uint64_t *out);
NCCL_FUNCTION(ncclResult_t, ncclParamGetStr, ncclParamHandle_t h, const char **out);
NCCL_FUNCTION(ncclResult_t, ncclParamGet, ncclParamHandle_t h, void *out, int maxLen, int *len);
NCCL_FUNCTION(ncclResult_t, ncclParamGetParameter, const char *key, const char **value, int *valueLen);
NCCL_FUNCTION(ncclResult_t, ncclParamGetAllParameterKeys, const char ***table, int *tableLen);
NCCL_FUNCTION(void, ncclParamDumpAll, void);
NCCL_FUNCTION(ncclResult_t, ncclSetEncryption, const ncclEncryptionConfig_t *config);

/* What RCCL's benchmark looks up by name. coll is a number of RCCL's own. */
ncclResult_t rcclGetAlgoInfo(ncclComm_t comm, int coll, uint64_t count, ncclDataType_t dataType, int collNetSupport,
                             int nvlsSupport, int numPipeOps, int *algo, int *protocol, int *maxChannels);
ncclResult_t rcclGetAlgoName(int algo, const char **name);
ncclResult_t rcclGetProtocolName(int protocol, const char **name);

#undef NCCL_FUNCTION
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
