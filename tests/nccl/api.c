/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tests/nccl/abi.h"

static void *find(void *library, const char *name) {
        char symbol[64];

        snprintf(symbol, sizeof(symbol), "nccl%s", name);
        return dlsym(library, symbol);
}

int nccl_api_load(struct nccl_api *api, const char *path) {
        void *symbol;

        *api = (struct nccl_api){.library = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
        if (!api->library) {
                fprintf(stderr, "nccl_conformance: %s\n", dlerror());
                return -1;
        }
#define FIND(name, arguments)                                                                                          \
        symbol = find(api->library, #name);                                                                            \
        memcpy(&api->name, &symbol, sizeof(symbol));
        NCCL_CALLS(FIND, FIND)
#undef FIND
        return 0;
}

const char *nccl_result_name(int result) {
        static const char *const names[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                            "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                            "ncclRemoteError",   "ncclInProgress",         "ncclTimeout"};

        return result >= 0 && (size_t)result < sizeof(names) / sizeof(names[0]) ? names[result] : "no ncclResult_t";
}
