/* SPDX-License-Identifier: MIT */
#pragma once
/* Shared memory through which the library copies what lies in ordinary memory. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/buffer.h"

#define BOUNCE_CLASS_FIRST      16u          /* 64 KiB */
#define BOUNCE_CLASS_COUNT      32u          /* up to 128 TiB, more than can be mapped */
#define BOUNCE_CACHED_BYTES_MAX (256u << 20) /* free regions beyond this are given back when a new one is needed */

struct rmx_cancel;
struct rmx_session;

struct bounce_region {
        struct bounce_region *next; /* free list */
        struct buffer buffer;
        unsigned int size_class;
};

struct bounce_pool {
        pthread_mutex_t mutex;
        bool initialised;
        struct bounce_region *free[BOUNCE_CLASS_COUNT];
        unsigned int n_regions[BOUNCE_CLASS_COUNT];  /* free or in use */
        unsigned int n_reserved[BOUNCE_CLASS_COUNT]; /* at least so many are kept */
        size_t free_bytes;
};

int bounce_pool_init(struct bounce_pool *pool);
/* Unmaps the free regions; every region must be free, or lost with its session. */
void bounce_pool_deinit(struct bounce_pool *pool);
/* A region of at least `bytes`. Asks the daemon only if none is free; the cancel (NULL: none) ends the waiting for it,
 * with RMX_E_ABORTED. RMX_*; text set. */
int bounce_acquire(struct rmx_session *session, const char *what, size_t bytes, struct rmx_cancel *cancel,
                   struct bounce_region **ret_region);
/* Makes a region free again. NULL is fine. */
void bounce_release(struct bounce_pool *pool, struct bounce_region *region);
/* Adds one region for `bytes` that is kept until bounce_unreserve. RMX_*; text set. */
int bounce_reserve(struct rmx_session *session, const char *what, size_t bytes);
void bounce_unreserve(struct bounce_pool *pool, size_t bytes);
