/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * NCCL's binary interface as its callers see it, written down once more: a test that took it from the header of the
 * library under test would believe whatever stands there.
 */
#include <stddef.h>
#include <stdint.h>

enum {
        NCCL_SUCCESS = 0,
        NCCL_CUDA_ERROR = 1,
        NCCL_SYSTEM_ERROR = 2,
        NCCL_INTERNAL_ERROR = 3,
        NCCL_INVALID_ARGUMENT = 4,
        NCCL_INVALID_USAGE = 5,
        NCCL_REMOTE_ERROR = 6,
        NCCL_IN_PROGRESS = 7,
};

enum { NCCL_TYPE_COUNT = 12 }; /* int8 uint8 int32 uint32 int64 uint64 fp16 fp32 fp64 bf16 e4m3 e5m2 */
enum { NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG, NCCL_REDOP_BUILTIN };
enum { NCCL_SCALAR_DEVICE = 0, NCCL_SCALAR_IMMEDIATE = 1 };

#define NCCL_FLOAT32 7
#define NCCL_UINT8   1
#define NCCL_INT32   2

#define NCCL_SPLIT_NOCOLOUR (-1)
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT   0x01

#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_UNDEFINED    INT32_MIN

typedef void *nccl_comm;

struct nccl_id {
        char bytes[128];
};

/* All that any version has, and some more; a caller has the first `size` bytes of it. */
struct nccl_config {
        size_t size;
        uint32_t magic, version;
        int32_t blocking, cga_cluster_size, min_ctas, max_ctas;
        const char *net_name;
        int32_t split_share, traffic_class;
        const char *comm_name;
        int32_t collnet_enable, cta_policy, shrink_share, nvls_ctas;
        int32_t channels_per_peer, nvlink_centric; /* 72: not in 2.27 */
        union {
                int32_t numbers[2];      /* NCCL 2.30 */
                const char *description; /* RCCLX 2.28, which ends here */
        } at_80;
        int32_t later[10];
};

_Static_assert(offsetof(struct nccl_config, channels_per_peer) == 72 && offsetof(struct nccl_config, at_80) == 80,
               "where the versions end");

/* Where what ncclCommQueryProperties writes begins, after size, magic and version as above; and how long it is. */
enum {
        NCCL_PROPERTIES_RANK = 16,
        NCCL_PROPERTIES_RANKS = 20,
        NCCL_PROPERTIES_DEVICE = 24,
        NCCL_PROPERTIES_NVML = 28,
        NCCL_PROPERTIES_DEVICE_API = 32, /* one byte, as the next two */
        NCCL_PROPERTIES_MULTIMEM = 33,
        NCCL_PROPERTIES_GIN_22902 = 34,
        NCCL_PROPERTIES_GIN = 36, /* since 2.29.5 an int */
        NCCL_PROPERTIES_LSA_TEAMS = 40,
        NCCL_PROPERTIES_HOST_RMA = 44, /* one byte */
        NCCL_PROPERTIES_RAILED_GIN = 48,
        NCCL_PROPERTIES_HASH = 56, /* 8 bytes */

        NCCL_PROPERTIES_BYTES_22902 = 40,
        NCCL_PROPERTIES_BYTES_23000 = 56,
        NCCL_PROPERTIES_BYTES_HASH = 64,
        NCCL_PROPERTIES_BYTES_LATER = 144,
};

/* name, arguments. Every call returns an int (ncclResult_t) but those that the list calls TEXT. */
#define NCCL_CALLS(CALL, TEXT)                                                                                         \
        CALL(GetVersion, (int *))                                                                                      \
        CALL(GetUniqueId, (struct nccl_id *))                                                                          \
        CALL(CommInitRank, (nccl_comm *, int, struct nccl_id, int))                                                    \
        CALL(CommInitRankConfig, (nccl_comm *, int, struct nccl_id, int, struct nccl_config *))                        \
        CALL(CommInitRankScalable, (nccl_comm *, int, int, int, struct nccl_id *, struct nccl_config *))               \
        CALL(CommInitAll, (nccl_comm *, int, const int *))                                                             \
        CALL(CommFinalize, (nccl_comm))                                                                                \
        CALL(CommDestroy, (nccl_comm))                                                                                 \
        CALL(CommAbort, (nccl_comm))                                                                                   \
        CALL(CommSplit, (nccl_comm, int, int, nccl_comm *, struct nccl_config *))                                      \
        CALL(CommShrink, (nccl_comm, int *, int, nccl_comm *, struct nccl_config *, int))                              \
        CALL(CommRevoke, (nccl_comm, int))                                                                             \
        CALL(CommGetUniqueId, (nccl_comm, struct nccl_id *))                                                           \
        CALL(CommGrow, (nccl_comm, int, const struct nccl_id *, int, nccl_comm *, struct nccl_config *))               \
        TEXT(GetErrorString, (int))                                                                                    \
        TEXT(GetLastError, (nccl_comm))                                                                                \
        CALL(CommGetAsyncError, (nccl_comm, int *))                                                                    \
        CALL(CommCount, (nccl_comm, int *))                                                                            \
        CALL(CommCuDevice, (nccl_comm, int *))                                                                         \
        CALL(CommUserRank, (nccl_comm, int *))                                                                         \
        CALL(CommRegister, (nccl_comm, void *, size_t, void **))                                                       \
        CALL(CommDeregister, (nccl_comm, void *))                                                                      \
        CALL(CommWindowRegister, (nccl_comm, void *, size_t, void **, int))                                            \
        CALL(CommWindowDeregister, (nccl_comm, void *))                                                                \
        CALL(WinGetUserPtr, (nccl_comm, void *, void **))                                                              \
        CALL(MemAlloc, (void **, size_t))                                                                              \
        CALL(MemFree, (void *))                                                                                        \
        CALL(RedOpCreatePreMulSum, (int *, void *, int, int, nccl_comm))                                               \
        CALL(RedOpDestroy, (int, nccl_comm))                                                                           \
        CALL(AllReduce, (const void *, void *, size_t, int, int, nccl_comm, void *))                                   \
        CALL(Reduce, (const void *, void *, size_t, int, int, int, nccl_comm, void *))                                 \
        CALL(ReduceScatter, (const void *, void *, size_t, int, int, nccl_comm, void *))                               \
        CALL(AllGather, (const void *, void *, size_t, int, nccl_comm, void *))                                        \
        CALL(Broadcast, (const void *, void *, size_t, int, int, nccl_comm, void *))                                   \
        CALL(Bcast, (void *, size_t, int, int, nccl_comm, void *))                                                     \
        CALL(AlltoAll, (const void *, void *, size_t, int, nccl_comm, void *))                                         \
        CALL(AllToAll, (const void *, void *, size_t, int, nccl_comm, void *))                                         \
        CALL(AllToAllv, (const void *, const size_t *, const size_t *, void *, const size_t *, const size_t *, int,    \
                         nccl_comm, void *))                                                                           \
        CALL(AlltoAllv, (const void *, const size_t *, const size_t *, void *, const size_t *, const size_t *, int,    \
                         nccl_comm, void *))                                                                           \
        CALL(Gather, (const void *, void *, size_t, int, int, nccl_comm, void *))                                      \
        CALL(Scatter, (const void *, void *, size_t, int, int, nccl_comm, void *))                                     \
        CALL(Send, (const void *, size_t, int, int, nccl_comm, void *))                                                \
        CALL(Recv, (void *, size_t, int, int, nccl_comm, void *))                                                      \
        CALL(GroupStart, (void))                                                                                       \
        CALL(GroupEnd, (void))

#define NCCL_MEMBER_CALL(name, arguments) int(*name) arguments;
#define NCCL_MEMBER_TEXT(name, arguments) const char *(*name)arguments;
/* What the library has of it; NULL: not exported. */
struct nccl_api {
        void *library;
        NCCL_CALLS(NCCL_MEMBER_CALL, NCCL_MEMBER_TEXT)
};
#undef NCCL_MEMBER_CALL
#undef NCCL_MEMBER_TEXT

/* 0, or -1 with a sentence on stderr. */
int nccl_api_load(struct nccl_api *api, const char *path);
const char *nccl_result_name(int result);
