/* SPDX-License-Identifier: MIT */
#include "gpu/hip/pool.h"

#include <errno.h>
#include <string.h>

#define POOL_FRACTION 8u                   /* of the free memory, at most, unless a size is asked for */
#define POOL_LEAST    (UINT64_C(16) << 20) /* a communicator of eight */

int pool_clear(struct pool *pool, uint64_t offset, uint64_t bytes, hipStream_t stream, char *error) {
        int r = runtime_check(hipMemsetAsync((char *)pool->base + offset, 0, bytes, stream), "clearing memory", error);

        return r ? r : runtime_wait(stream, "clearing memory", error);
}

int pool_open(struct pool *pool, uint64_t bytes, hipStream_t stream, const char *what, char *error) {
        struct pool new = {.bytes = (bytes + POOL_GRANULE - 1) / POOL_GRANULE * POOL_GRANULE};
        int r = runtime_alloc_shared(new.bytes, &new.base, what, error);

        if (r)
                return r;
        r = pool_clear(&new, 0, new.bytes, stream, error);
        if (r)
                pool_close(&new);
        else
                *pool = new;
        return r;
}

int pool_open_staging(struct pool *pool, uint64_t wanted, hipStream_t stream, char *error) {
        size_t free_bytes = 0, total = 0;
        uint64_t bytes = wanted;
        int r = runtime_check(hipMemGetInfo(&free_bytes, &total), "asking for free memory", error);

        if (r)
                return r;
        if (!wanted)
                bytes = free_bytes / POOL_FRACTION < POOL_BYTES_DEFAULT ? free_bytes / POOL_FRACTION
                                                                        : POOL_BYTES_DEFAULT;
        if (bytes < POOL_LEAST)
                bytes = POOL_LEAST;
        do
                r = pool_open(pool, bytes, stream, "allocating staging", error);
        while (r == -ENOMEM && !wanted && (bytes /= 2) >= POOL_LEAST);
        if (r)
                return r;

        hipIpcMemHandle_t handle;
        r = runtime_check(hipIpcGetMemHandle(&handle, pool->base), "exporting staging", error);
        if (r) {
                pool_close(pool);
                return r;
        }
        pool->exported = (struct plane_memory){.kind = PLANE_MEMORY_IPC,
                                               .n_handle = sizeof(handle),
                                               .allocation_bytes = pool->bytes,
                                               .bytes = pool->bytes,
                                               .fd = -1};
        memcpy(pool->exported.handle, &handle, sizeof(handle));
        return 0;
}

void pool_close(struct pool *pool) {
        if (pool->base)
                (void)hipFree(pool->base);
        *pool = (struct pool){0};
}
