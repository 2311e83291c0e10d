/* SPDX-License-Identifier: MIT */
#pragma once
/* Shared memory through which the library copies what lies in ordinary memory. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
        uint64_t reservation; /* it is out on account of that one; 0: of none */
};

struct bounce_reservation {
        uint64_t number; /* never 0, and no other's */
        uintptr_t base;
        size_t bytes;
        unsigned int size_class;
        bool used; /* its region is out */
};

struct bounce_pool {
        pthread_mutex_t mutex;
        bool initialised;
        struct bounce_region *free[BOUNCE_CLASS_COUNT];
        uint32_t n_free[BOUNCE_CLASS_COUNT];
        uint32_t n_due[BOUNCE_CLASS_COUNT]; /* of those, how many lie there for reservations that do not use theirs */
        struct bounce_reservation *reservations; /* ascending by base */
        uint32_t n_reservations, max_reservations;
        uint64_t last_reservation;
        size_t free_bytes;
};

int bounce_pool_init(struct bounce_pool *pool);
/* Unmaps the free regions; every region must be free, or lost with its session. */
void bounce_pool_deinit(struct bounce_pool *pool);
/* A region of at least `bytes`, for memory at `address` (NULL: in several places). Asks the daemon only if none is
 * free, but for what is reserved for other memory; the cancel (NULL: none) ends the waiting for it, with RMX_E_ABORTED.
 * RMX_*; text set. */
int bounce_acquire(struct rmx_session *session, const char *what, const void *address, size_t bytes,
                   struct rmx_cancel *cancel, struct bounce_region **ret_region);
/* Makes a region free again. NULL is fine. */
void bounce_release(struct bounce_pool *pool, struct bounce_region *region);
/* Keeps a region for what lies in [address, address + bytes), one at a time, until bounce_unreserve. RMX_*; text set.
 */
int bounce_reserve(struct rmx_session *session, const char *what, const void *address, size_t bytes,
                   uint64_t *ret_reservation);
/* Its region may be out. */
void bounce_unreserve(struct bounce_pool *pool, uint64_t reservation);
