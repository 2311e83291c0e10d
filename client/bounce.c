/* SPDX-License-Identifier: MIT */
/*
 * Regions come in powers of two from 64 KiB and are kept for reuse, so a program that works on the same arrays again
 * and again asks the daemon once. A free region of any larger class serves too: the smallest that fits.
 *
 * What is given back, and when: returning a region is on the fast path and never talks to the daemon, so it always goes
 * to the free list. Only when a new region must be made (a call to the daemon anyway) and the free ones exceed the
 * bound, or the tenant's limit stands in the way, are free regions destroyed, the largest first, those reserved
 * excepted.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/bounce.h"
#include "client/error.h"
#include "client/session.h"
#include "util/memfd.h"

int bounce_pool_init(struct bounce_pool *pool) {
        int r;

        r = pthread_mutex_init(&pool->mutex, NULL);
        if (r)
                return -r;
        pool->initialised = true;
        return 0;
}

void bounce_pool_deinit(struct bounce_pool *pool) {
        struct bounce_region *region;
        unsigned int class;

        if (!pool->initialised)
                return;
        for (class = 0; class < BOUNCE_CLASS_COUNT; class ++) {
                while ((region = pool->free[class])) {
                        pool->free[class] = region->next;
                        memfd_unmap(region->buffer.address, region->buffer.bytes);
                        free(region);
                }
        }
        pthread_mutex_destroy(&pool->mutex);
        pool->initialised = false;
}

static unsigned int class_of(size_t bytes) {
        unsigned int class = 0;

        while (class + 1 < BOUNCE_CLASS_COUNT && (size_t)1 << (BOUNCE_CLASS_FIRST + class) < bytes)
                class ++;
        return class;
}

static size_t class_bytes(unsigned int class) {
        return (size_t)1 << (BOUNCE_CLASS_FIRST + class);
}

static struct bounce_region *pool_pop(struct bounce_pool *pool, unsigned int class) {
        struct bounce_region *region = pool->free[class];

        if (region) {
                pool->free[class] = region->next;
                pool->free_bytes -= class_bytes(class);
        }
        return region;
}

static void pool_push(struct bounce_pool *pool, struct bounce_region *region) {
        region->next = pool->free[region->class];
        pool->free[region->class] = region;
        pool->free_bytes += class_bytes(region->class);
}

/* Destroys free regions until at most `bound` bytes are free. Returns how many went. */
static unsigned int pool_trim(struct rmx_session *session, const char *what, size_t bound) {
        struct bounce_pool *pool = &session->bounce;
        unsigned int class, n = 0;

        for (class = BOUNCE_CLASS_COUNT; class -- > 0;) {
                for (;;) {
                        struct bounce_region *region = NULL;

                        pthread_mutex_lock(&pool->mutex);
                        if (pool->free_bytes > bound && pool->n_regions[class] > pool->n_reserved[class])
                                region = pool_pop(pool, class);
                        if (region)
                                pool->n_regions[class]--;
                        pthread_mutex_unlock(&pool->mutex);
                        if (!region)
                                break;
                        (void)buffer_destroy(session, what, &region->buffer);
                        free(region);
                        n++;
                }
        }
        return n;
}

/* A new region, counted but not on the free list. */
static int region_new(struct rmx_session *session, const char *what, size_t bytes, struct bounce_region **ret_region) {
        struct bounce_pool *pool = &session->bounce;
        struct bounce_region *region;
        int r;

        region = calloc(1, sizeof(*region));
        if (!region)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
        region->class = class_of(bytes);
        if (class_bytes(region->class) < bytes) {
                free(region);
                return error_set(RMX_E_NO_MEMORY, "%s: %zu bytes are more than can be copied", what, bytes);
        }
        (void)pool_trim(session, what, BOUNCE_CACHED_BYTES_MAX);
        r = buffer_create(session, what, class_bytes(region->class), &region->buffer);
        if ((r == RMX_E_LIMIT || r == RMX_E_NO_MEMORY) && pool_trim(session, what, 0))
                r = buffer_create(session, what, class_bytes(region->class), &region->buffer);
        if (r) {
                free(region);
                return r;
        }
        pthread_mutex_lock(&pool->mutex);
        pool->n_regions[region->class]++;
        pthread_mutex_unlock(&pool->mutex);
        *ret_region = region;
        return RMX_OK;
}

int bounce_acquire(struct rmx_session *session, const char *what, size_t bytes, struct bounce_region **ret_region) {
        struct bounce_pool *pool = &session->bounce;
        struct bounce_region *region = NULL;
        unsigned int class;

        pthread_mutex_lock(&pool->mutex);
        for (class = class_of(bytes); class < BOUNCE_CLASS_COUNT && !region; class ++) {
                if (class_bytes(class) >= bytes)
                        region = pool_pop(pool, class);
        }
        pthread_mutex_unlock(&pool->mutex);
        if (!region)
                return region_new(session, what, bytes, ret_region);
        *ret_region = region;
        return RMX_OK;
}

void bounce_release(struct bounce_pool *pool, struct bounce_region *region) {
        if (!region)
                return;
        pthread_mutex_lock(&pool->mutex);
        pool_push(pool, region);
        pthread_mutex_unlock(&pool->mutex);
}

int bounce_reserve(struct rmx_session *session, const char *what, size_t bytes) {
        struct bounce_pool *pool = &session->bounce;
        struct bounce_region *region;
        int r;

        r = region_new(session, what, bytes, &region);
        if (r)
                return r;
        pthread_mutex_lock(&pool->mutex);
        pool->n_reserved[region->class]++;
        pool_push(pool, region);
        pthread_mutex_unlock(&pool->mutex);
        return RMX_OK;
}

void bounce_unreserve(struct bounce_pool *pool, size_t bytes) {
        pthread_mutex_lock(&pool->mutex);
        pool->n_reserved[class_of(bytes)]--;
        pthread_mutex_unlock(&pool->mutex);
}
