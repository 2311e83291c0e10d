/* SPDX-License-Identifier: MIT */
/*
 * Regions come in powers of two from 64 KiB and are kept for reuse, so a program that works on the same arrays again
 * and again asks the daemon once. A free region of any larger size_class serves too: the smallest that fits.
 *
 * What is given back, and when: returning a region is on the fast path and never talks to the daemon, so it always goes
 * to the free list. Only when a new region must be made (a call to the daemon anyway) and the free ones exceed the
 * bound, or the tenant's limit stands in the way, are free regions destroyed, the largest first, those reserved
 * excepted. A registration takes one of them if there is one to spare, else it makes one.
 *
 * Reserved means that a call on the memory that was registered finds a region, whatever others have done before it: no
 * call on other memory takes the last ones of a class that reservations have in it and do not use (n_due). Which region
 * is whose does not matter, only how many there are; but a reservation has one at a time, and a second call inside of
 * it is like one on any other memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
        free(pool->reservations);
        pool->reservations = NULL;
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
                pool->n_free[size_class]--;
        }
        return region;
}

static void pool_push(struct bounce_pool *pool, struct bounce_region *region) {
        region->next = pool->free[region->size_class];
        pool->free[region->size_class] = region;
        pool->free_bytes += class_bytes(region->size_class);
        pool->n_free[region->size_class]++;
}

/* One that lies there for nobody in particular. */
static struct bounce_region *pool_pop_spare(struct bounce_pool *pool, unsigned int size_class) {
        return pool->n_free[size_class] > pool->n_due[size_class] ? pool_pop(pool, size_class) : NULL;
}

/* Destroys free regions until at most `bound` bytes are free. Returns how many went. */
static unsigned int pool_trim(struct rmx_session *session, const char *what, struct rmx_cancel *cancel, size_t bound) {
        struct bounce_pool *pool = &session->bounce;
        unsigned int size_class, n = 0;

        for (size_class = BOUNCE_CLASS_COUNT; size_class-- > 0;) {
                for (;;) {
                        struct bounce_region *region = NULL;

                        pthread_mutex_lock(&pool->mutex);
                        if (pool->free_bytes > bound)
                                region = pool_pop_spare(pool, size_class);
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

/* A new region, which is on no list. */
static int region_new(struct rmx_session *session, const char *what, size_t bytes, struct rmx_cancel *cancel,
                      struct bounce_region **ret_region) {
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
        *ret_region = region;
        return RMX_OK;
}

/* ---- reservations ------------------------------------------------------------------------------------------------ */
/* The first that begins behind the address. */
static uint32_t reservations_upper(const struct bounce_pool *pool, uintptr_t address) {
        uint32_t low = 0, high = pool->n_reservations;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (pool->reservations[middle].base <= address)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

/* The one that this memory lies in, if its region is there and large enough. (Of some that overlap: the last.) */
static struct bounce_reservation *reservation_for(const struct bounce_pool *pool, const void *address, size_t bytes) {
        const uintptr_t base = (uintptr_t)address;
        const uint32_t at = reservations_upper(pool, base);
        struct bounce_reservation *reservation = at ? &pool->reservations[at - 1] : NULL;

        if (!reservation || reservation->used || base - reservation->base >= reservation->bytes ||
            bytes > class_bytes(reservation->size_class))
                return NULL;
        return reservation;
}

static struct bounce_reservation *reservation_find(const struct bounce_pool *pool, uint64_t number) {
        for (uint32_t i = 0; i < pool->n_reservations; i++)
                if (pool->reservations[i].number == number)
                        return &pool->reservations[i];
        return NULL;
}

static bool reservations_grow(struct bounce_pool *pool) {
        const uint32_t max = pool->max_reservations ? 2 * pool->max_reservations : 16;
        struct bounce_reservation *larger;

        if (pool->n_reservations < pool->max_reservations)
                return true;
        larger = realloc(pool->reservations, max * sizeof(*larger));
        if (!larger)
                return false;
        pool->reservations = larger;
        pool->max_reservations = max;
        return true;
}

/* There is room for it, and a free region of its class more than is due. */
static uint64_t reservation_add(struct bounce_pool *pool, const void *address, size_t bytes) {
        const struct bounce_reservation added = {.number = ++pool->last_reservation,
                                                 .base = (uintptr_t)address,
                                                 .bytes = bytes,
                                                 .size_class = class_of(bytes)};
        const uint32_t at = reservations_upper(pool, added.base);

        memmove(&pool->reservations[at + 1], &pool->reservations[at],
                (pool->n_reservations - at) * sizeof(pool->reservations[0]));
        pool->reservations[at] = added;
        pool->n_reservations++;
        pool->n_due[added.size_class]++;
        return added.number;
}

int bounce_reserve(struct rmx_session *session, const char *what, const void *address, size_t bytes,
                   uint64_t *ret_reservation) {
        struct bounce_pool *pool = &session->bounce;
        const unsigned int size_class = class_of(bytes);
        struct bounce_region *region = NULL;
        bool room, spare;
        int r;

        pthread_mutex_lock(&pool->mutex);
        room = reservations_grow(pool);
        spare = class_bytes(size_class) >= bytes && pool->n_free[size_class] > pool->n_due[size_class];
        if (room && spare)
                *ret_reservation = reservation_add(pool, address, bytes);
        pthread_mutex_unlock(&pool->mutex);
        if (!room)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
        if (spare)
                return RMX_OK;
        r = region_new(session, what, bytes, NULL, &region);
        if (r)
                return r;
        pthread_mutex_lock(&pool->mutex);
        pool_push(pool, region);
        room = reservations_grow(pool); /* others have reserved meanwhile */
        if (room)
                *ret_reservation = reservation_add(pool, address, bytes);
        pthread_mutex_unlock(&pool->mutex);
        return room ? RMX_OK : error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
}

void bounce_unreserve(struct bounce_pool *pool, uint64_t number) {
        struct bounce_reservation *reservation;

        pthread_mutex_lock(&pool->mutex);
        reservation = reservation_find(pool, number);
        if (reservation) {
                const uint32_t behind = pool->n_reservations - (uint32_t)(reservation - pool->reservations) - 1;

                pool->n_due[reservation->size_class] -= !reservation->used;
                memmove(reservation, reservation + 1, behind * sizeof(*reservation));
                pool->n_reservations--;
        }
        pthread_mutex_unlock(&pool->mutex);
}

/* ---- regions in use ---------------------------------------------------------------------------------------------- */
/* Mutex held. */
static struct bounce_region *pool_take(struct bounce_pool *pool, const void *address, size_t bytes) {
        struct bounce_reservation *reservation = reservation_for(pool, address, bytes);
        struct bounce_region *region = NULL;

        if (reservation) {
                region = pool_pop(pool, reservation->size_class);
                reservation->used = true;
                pool->n_due[reservation->size_class]--;
                region->reservation = reservation->number;
                return region;
        }
        for (unsigned int size_class = class_of(bytes); size_class < BOUNCE_CLASS_COUNT && !region; size_class++)
                if (class_bytes(size_class) >= bytes)
                        region = pool_pop_spare(pool, size_class);
        return region;
}

int bounce_acquire(struct rmx_session *session, const char *what, const void *address, size_t bytes,
                   struct rmx_cancel *cancel, struct bounce_region **ret_region) {
        struct bounce_region *region;

        pthread_mutex_lock(&session->bounce.mutex);
        region = pool_take(&session->bounce, address, bytes);
        pthread_mutex_unlock(&session->bounce.mutex);
        if (!region)
                return region_new(session, what, bytes, cancel, ret_region);
        *ret_region = region;
        return RMX_OK;
}

void bounce_release(struct bounce_pool *pool, struct bounce_region *region) {
        struct bounce_reservation *reservation;

        if (!region)
                return;
        pthread_mutex_lock(&pool->mutex);
        reservation = region->reservation ? reservation_find(pool, region->reservation) : NULL;
        if (reservation) { /* else it is over */
                reservation->used = false;
                pool->n_due[reservation->size_class]++;
        }
        region->reservation = 0;
        pool_push(pool, region);
        pthread_mutex_unlock(&pool->mutex);
}
