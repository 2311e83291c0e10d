/* SPDX-License-Identifier: MIT */
#pragma once
/* Device memory that is taken at the start and kept: freeing it would wait for the resident kernel. */
#include <stddef.h>
#include <stdint.h>

#include "gpu/hip/runtime.h"
#include "gpu/plane.h"

#define POOL_GRANULE       (UINT64_C(2) << 20) /* what IPC exports whole anyway */
#define POOL_BYTES_DEFAULT (UINT64_C(256) << 20)

struct pool {
        void *base;
        uint64_t bytes;
        struct plane_memory exported; /* kind NONE: is not */
};

/* Staging: wanted bytes, or (0) the default, less if the GPU is short of memory. Zeroed and exported. */
int pool_open_staging(struct pool *pool, uint64_t wanted, hipStream_t stream, char *error);
/* For the executor alone. Zeroed. */
int pool_open(struct pool *pool, uint64_t bytes, hipStream_t stream, const char *what, char *error);
/* No kernel may be resident. */
void pool_close(struct pool *pool);
/* Zeroes a piece and waits for it. */
int pool_clear(struct pool *pool, uint64_t offset, uint64_t bytes, hipStream_t stream, char *error);
