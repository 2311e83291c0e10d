/* SPDX-License-Identifier: MIT */
/*
 * Our library with a defect that is not in its results, by name in $NCCL_SPOILT.
 *
 * It is linked against the library, so what is not here is found there; what is here calls the twin of that name. Each
 * defect is one that a check must find.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/nccl/abi.h"

#define EXPORT __attribute__((visibility("default")))

static bool is(const char *name) {
        const char *defect = getenv("NCCL_SPOILT");

        return defect && !strcmp(defect, name);
}

/* name, parameters */
#define SPOIL(name, ...)                                                                                               \
        extern int pnccl##name(__VA_ARGS__);                                                                           \
        EXPORT int nccl##name(__VA_ARGS__);                                                                            \
        EXPORT int nccl##name(__VA_ARGS__)

/* ---- groups ------------------------------------------------------------------------------------------------------ */
static _Thread_local int depth;

SPOIL(GroupStart, void) {
        depth++;
        return pncclGroupStart();
}

/* The inner end begins the calls; an end without a start is taken. */
SPOIL(GroupEnd, void) {
        int result;

        if (depth == 0)
                return is("end") ? NCCL_SUCCESS : pncclGroupEnd();
        depth--;
        if (depth > 0 && is("inner")) {
                for (int i = 0; i <= depth; i++)
                        pncclGroupEnd();
                for (int i = 0; i < depth; i++)
                        pncclGroupStart();
                return NCCL_SUCCESS;
        }
        result = pncclGroupEnd();
        if (result == NCCL_REMOTE_ERROR && is("misleads"))
                return NCCL_SYSTEM_ERROR;
        return is("forgives") ? NCCL_SUCCESS : result;
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */
SPOIL(CommSplit, nccl_comm comm, int colour, int key, nccl_comm *ret_comm, struct nccl_config *config) {
        if (colour == NCCL_SPLIT_NOCOLOUR && is("colour"))
                colour = 0;
        return pncclCommSplit(comm, colour, is("key") ? 0 : key, ret_comm, config);
}

SPOIL(CommInitRankConfig, nccl_comm *ret_comm, int n_ranks, struct nccl_id id, int rank, struct nccl_config *config) {
        struct nccl_config changed;

        if (config && is("text") && strlen(config->at_80.description) > 1000)
                return NCCL_INVALID_ARGUMENT;
        if (config && is("long") && ((const volatile char *)config)[95] == 1)
                return NCCL_INVALID_ARGUMENT;
        if (config && is("magic")) {
                changed = (struct nccl_config){0};
                memcpy(&changed, config, config->size < sizeof(changed) ? config->size : sizeof(changed));
                changed.magic = NCCL_CONFIG_MAGIC;
                config = &changed;
        }
        return pncclCommInitRankConfig(ret_comm, n_ranks, id, rank, config);
}

SPOIL(CommUserRank, nccl_comm comm, int *ret_rank) {
        int result = pncclCommUserRank(comm, ret_rank), n;

        if (result == NCCL_SUCCESS && is("rank") && !pncclCommUserRank(comm, &n))
                *ret_rank = n ^ 1;
        return result;
}

SPOIL(CommAbort, nccl_comm comm) {
        while (is("abort")) /* never comes back */
                pause();
        return pncclCommAbort(comm);
}

/* An error is told once. */
SPOIL(CommGetAsyncError, nccl_comm comm, int *ret_error) {
        static _Thread_local int told;
        int result = pncclCommGetAsyncError(comm, ret_error);

        if (result == NCCL_SUCCESS && *ret_error != NCCL_SUCCESS && *ret_error != NCCL_IN_PROGRESS && told++ &&
            is("once"))
                *ret_error = NCCL_SUCCESS;
        return result;
}

/* ---- memory and reductions --------------------------------------------------------------------------------------- */
SPOIL(MemAlloc, void **ret_memory, size_t size) {
        int result = pncclMemAlloc(ret_memory, size);

        if (result == NCCL_SUCCESS && is("alignment"))
                *ret_memory = (char *)*ret_memory + 8;
        return result;
}

SPOIL(CommDeregister, nccl_comm comm, void *handle) {
        return is("register") ? NCCL_INVALID_ARGUMENT : pncclCommDeregister(comm, handle);
}

SPOIL(CommWindowRegister, nccl_comm comm, void *memory, size_t size, void **ret_window, int flags) {
        return is("window") ? NCCL_SUCCESS : pncclCommWindowRegister(comm, memory, size, ret_window, flags);
}

SPOIL(RedOpDestroy, int redop, nccl_comm comm) {
        int result = pncclRedOpDestroy(redop, comm);

        return is("twice") ? NCCL_SUCCESS : result;
}

/* Memory that is known beforehand keeps what it had, the first time or after it has been given up. */
static _Thread_local int n_large;

SPOIL(Broadcast, const void *in, void *out, size_t count, int type, int root, nccl_comm comm, void *stream) {
        if (in == out && count == 1u << 20 && (is("known") || (is("stale") && n_large++ == 1)))
                return NCCL_SUCCESS;
        return pncclBroadcast(in, out, count, is("type") && type == NCCL_TYPE_COUNT ? 0 : type, root, comm, stream);
}

SPOIL(AllReduce, const void *in, void *out, size_t count, int type, int redop, nccl_comm comm, void *stream) {
        if (in == out && count == 1u << 18 && is("in_window"))
                return NCCL_SUCCESS;
        return pncclAllReduce(in, out, count, type, redop, comm, stream);
}
