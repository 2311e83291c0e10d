/* SPDX-License-Identifier: MIT */
/*
 * $RAILMUX_FALLBACK names a real NCCL or RCCL. It serves whole communicators, never single calls: all ranks of a
 * communicator have to be served by the same library, and what they have in common is the id. So whoever makes the id
 * decides, and an id that is not the daemon's is the fallback's (comm.c).
 *
 * It is loaded privately and with its own names first (RTLD_DEEPBIND), for it exports what we export: calls that it
 * makes to itself must not end here. Sanitizers forbid that flag; with them a library that binds its names itself
 * works.
 */
#include "client/nccl/fallback.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/nccl/error.h"
#include "client/nccl/log.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DEEPBIND 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define DEEPBIND 0
#endif
#endif
#ifndef DEEPBIND
#define DEEPBIND RTLD_DEEPBIND
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct fallback table;
static bool loaded;

/* This library, or a copy of it under the other name: both have the same words for an error. */
static bool is_ours(void) {
        return table.ncclGetErrorString &&
               !strcmp(table.ncclGetErrorString(ncclSystemError), ncclGetErrorString(ncclSystemError));
}

static void load(void) {
        const char *path = getenv("RAILMUX_FALLBACK");
        void *library;

        if (!path || !*path)
                return;
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL | DEEPBIND);
        if (!library) {
                error_raise(ncclSystemError, "RAILMUX_FALLBACK: %s", dlerror());
                return;
        }
#define X(name) table.name = (__typeof__(name) *)dlsym(library, #name);
        FALLBACK_CALLS(X)
#undef X
        if (is_ours()) {
                error_raise(ncclInvalidUsage, "RAILMUX_FALLBACK: %s is this library itself", path);
                return;
        }
        if (!table.ncclGetUniqueId || !table.ncclCommInitRank || !table.ncclCommDestroy || !table.ncclGroupStart ||
            !table.ncclGroupEnd) {
                error_raise(ncclInvalidUsage, "RAILMUX_FALLBACK: %s has not the interface of NCCL", path);
                return;
        }
        loaded = true;
        log_line(LOG_INFO, "%s stands in where the daemon cannot serve", path);
}

const struct fallback *fallback_get(void) {
        pthread_once(&once, load);
        return loaded ? &table : NULL;
}

ncclResult_t fallback_missing(const char *name) {
        return error_raise(ncclInvalidUsage, "%s: the library that RAILMUX_FALLBACK names does not have this call",
                           name);
}

ncclResult_t fallback_result(const char *name, ncclResult_t result) {
        if (result == ncclSuccess || result == ncclInProgress)
                return result;
        return error_raise(result, "%s: %s", name,
                           table.ncclGetLastError     ? table.ncclGetLastError(NULL)
                           : table.ncclGetErrorString ? table.ncclGetErrorString(result)
                                                      : "the fallback library failed");
}
