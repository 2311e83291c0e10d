/* SPDX-License-Identifier: MIT */
/*
 * First fit over a list sorted by offset: a node has tens of communicators, and making one takes milliseconds anyway.
 * Ranges are never moved, since kernels of several GPUs have their addresses.
 */
#include "daemon/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

void pool_deinit(struct pool *pool) {
        struct pool_range *range, *tmp;

        DL_FOREACH_SAFE(pool->ranges, range, tmp) {
                DL_DELETE(pool->ranges, range);
                free(range);
        }
        *pool = (struct pool){0};
}

/* Before `next`; NULL: at the end. */
static int pool_insert(struct pool *pool, struct pool_range *next, uint64_t offset, uint64_t bytes, uint64_t comm) {
        struct pool_range *range = calloc(1, sizeof(*range));

        if (!range)
                return -ENOMEM;
        range->offset = offset;
        range->bytes = bytes;
        range->comm = comm;
        if (next)
                DL_PREPEND_ELEM(pool->ranges, next, range);
        else
                DL_APPEND(pool->ranges, range);
        pool->used += bytes;
        return 0;
}

int pool_take(struct pool *pool, uint64_t bytes, uint64_t comm, uint64_t *ret_offset) {
        struct pool_range *range;
        uint64_t offset = 0;
        int r;

        DL_FOREACH(pool->ranges, range) {
                if (range->offset >= offset && range->offset - offset >= bytes)
                        break;
                if (range->offset + range->bytes > offset)
                        offset = range->offset + range->bytes;
        }
        if (!range && (offset > pool->bytes || pool->bytes - offset < bytes))
                return POOL_E_FULL;
        r = pool_insert(pool, range, offset, bytes, comm);
        if (r)
                return r;
        *ret_offset = offset;
        return 0;
}

int pool_take_at(struct pool *pool, uint64_t offset, uint64_t bytes, uint64_t comm) {
        struct pool_range *range;
        uint64_t end;

        if (__builtin_add_overflow(offset, bytes, &end))
                return POOL_E_TAKEN;
        DL_FOREACH(pool->ranges, range) {
                if (range->offset >= end)
                        break;
                if (range->offset + range->bytes > offset)
                        return POOL_E_TAKEN;
        }
        return pool_insert(pool, range, offset, bytes, comm);
}

void pool_give(struct pool *pool, uint64_t comm) {
        struct pool_range *range, *tmp;

        DL_FOREACH_SAFE(pool->ranges, range, tmp) {
                if (range->comm != comm)
                        continue;
                DL_DELETE(pool->ranges, range);
                pool->used -= range->bytes;
                free(range);
        }
}
