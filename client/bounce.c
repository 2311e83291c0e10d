/* SPDX-License-Identifier: MIT */
/*
 * Regions come in powers of two from 64 KiB and are kept for reuse, so a program that works on the same arrays again
 * and again asks the daemon once. A free region of any larger size_class serves too: the smallest that fits.
 *
 * What is given back, and when: returning a region is on the fast path and never talks to the daemon, so it always goes
 * to the free list. Only when a new region must be made (a call to the daemon anyway) and the free ones exceed the
 * bound, or the tenant's limit stands in the way, are free regions destroyed, the largest first, those reserved
 * excepted. A registration takes one of them if there is one to spare, else it makes one.
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
        unsigned int size_class;

        if (!pool->initialised)
                return;
        for (size_class = 0; size_class < BOUNCE_CLASS_COUNT; size_class++) {
                while ((region = pool->free[size_class])) {
                        pool->free[size_class] = region->next;
                        memfd_unmap(region->buffer.address, region->buffer.bytes);
                        free(region);
                }
        }
        pthread_mutex_destroy(&pool->mutex);
        pool->initialised = false;
}

static unsigned int class_of(size_t bytes) {
        unsigned int size_class = 0;

        while (size_class + 1 < BOUNCE_CLASS_COUNT && (size_t)1 << (BOUNCE_CLASS_FIRST + size_class) < bytes)
                size_class++;
        return size_class;
}

static size_t class_bytes(unsigned int size_class) {
        return (size_t)1 << (BOUNCE_CLASS_FIRST + size_class);
}

static struct bounce_region *pool_pop(struct bounce_pool *pool, unsigned int size_class) {
        struct bounce_region *region = pool->free[size_class];

        if (region) {
                pool->free[size_class] = region->next;
                pool->free_bytes -= class_bytes(size_class);
        }
        return region;
}

static void pool_push(struct bounce_pool *pool, struct bounce_region *region) {
        region->next = pool->free[region->size_class];
        pool->free[region->size_class] = region;
        pool->free_bytes += class_bytes(region->size_class);
}

/* Destroys free regions until at most `bound` bytes are free. Returns how many went. */
static unsigned int pool_trim(struct rmx_session *session, const char *what, struct rmx_cancel *cancel, size_t bound) {
        struct bounce_pool *pool = &session->bounce;
        unsigned int size_class, n = 0;

        for (size_class = BOUNCE_CLASS_COUNT; size_class-- > 0;) {
                for (;;) {
                        struct bounce_region *region = NULL;

                        pthread_mutex_lock(&pool->mutex);
                        if (pool->free_bytes > bound && pool->n_regions[size_class] > pool->n_reserved[size_class])
                                region = pool_pop(pool, size_class);
                        if (region)
                                pool->n_regions[size_class]--;
                        pthread_mutex_unlock(&pool->mutex);
                        if (!region)
                                break;
                        (void)buffer_destroy(session, what, cancel, &region->buffer);
                        free(region);
                        n++;
                }
        }
        return n;
}

/* A new region, counted but not on the free list. */
static int region_new(struct rmx_session *session, const char *what, size_t bytes, struct rmx_cancel *cancel,
                      struct bounce_region **ret_region) {
        struct bounce_pool *pool = &session->bounce;
        struct bounce_region *region;
        int r;

        region = calloc(1, sizeof(*region));
        if (!region)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
        region->size_class = class_of(bytes);
        if (class_bytes(region->size_class) < bytes) {
                free(region);
                return error_set(RMX_E_NO_MEMORY, "%s: %zu bytes are more than can be copied", what, bytes);
        }
        (void)pool_trim(session, what, cancel, BOUNCE_CACHED_BYTES_MAX);
        r = buffer_create(session, what, class_bytes(region->size_class), cancel, &region->buffer);
        if ((r == RMX_E_LIMIT || r == RMX_E_NO_MEMORY) && pool_trim(session, what, cancel, 0))
                r = buffer_create(session, what, class_bytes(region->size_class), cancel, &region->buffer);
        if (r) {
                free(region);
                return r;
        }
        pthread_mutex_lock(&pool->mutex);
        pool->n_regions[region->size_class]++;
        pthread_mutex_unlock(&pool->mutex);
        *ret_region = region;
        return RMX_OK;
}

int bounce_acquire(struct rmx_session *session, const char *what, size_t bytes, struct rmx_cancel *cancel,
                   struct bounce_region **ret_region) {
        struct bounce_pool *pool = &session->bounce;
        struct bounce_region *region = NULL;
        unsigned int size_class;

        pthread_mutex_lock(&pool->mutex);
        for (size_class = class_of(bytes); size_class < BOUNCE_CLASS_COUNT && !region; size_class++) {
                if (class_bytes(size_class) >= bytes)
                        region = pool_pop(pool, size_class);
        }
        pthread_mutex_unlock(&pool->mutex);
        if (!region)
                return region_new(session, what, bytes, cancel, ret_region);
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

/* One that lies there for nobody in particular becomes a reserved one. Those of the class that are reserved may all lie
 * there, too, so there must be more. */
static bool pool_reserve_spare(struct bounce_pool *pool, unsigned int size_class) {
        uint32_t n_free = 0;
        bool spare;

        pthread_mutex_lock(&pool->mutex);
        for (const struct bounce_region *region = pool->free[size_class]; region; region = region->next)
                n_free++;
        spare = n_free > pool->n_reserved[size_class];
        pool->n_reserved[size_class] += spare;
        pthread_mutex_unlock(&pool->mutex);
        return spare;
}

int bounce_reserve(struct rmx_session *session, const char *what, size_t bytes) {
        struct bounce_pool *pool = &session->bounce;
        struct bounce_region *region;
        int r;

        if (class_bytes(class_of(bytes)) >= bytes && pool_reserve_spare(pool, class_of(bytes)))
                return RMX_OK;
        r = region_new(session, what, bytes, NULL, &region);
        if (r)
                return r;
        pthread_mutex_lock(&pool->mutex);
        pool->n_reserved[region->size_class]++;
        pool_push(pool, region);
        pthread_mutex_unlock(&pool->mutex);
        return RMX_OK;
}

void bounce_unreserve(struct bounce_pool *pool, size_t bytes) {
        pthread_mutex_lock(&pool->mutex);
        pool->n_reserved[class_of(bytes)]--;
        pthread_mutex_unlock(&pool->mutex);
}
