/* SPDX-License-Identifier: MIT */
#pragma once
/* The stand-in as the fallback of this process, which has no daemon. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#include "tests/nccl_abi/stand_in.h"

/* What it counts, and another function of its own; NULL if it cannot be loaded or lacks that. */
static inline const struct stand_in_counts *stand_in_load(const char *name, void **ret_function) {
        const struct stand_in_counts *(*get)(void);
        void *library;

        setenv("RAILMUX_SOCKET", "/nonexistent/railmux.sock", 1);
        setenv("RAILMUX_FALLBACK", STAND_IN, 1);
        library = dlopen(STAND_IN, RTLD_NOW | RTLD_LOCAL);
        get = library ? (const struct stand_in_counts *(*)(void))dlsym(library, "stand_in_counts") : NULL;
        *ret_function = library ? dlsym(library, name) : NULL;
        return get && *ret_function ? get() : NULL;
}
