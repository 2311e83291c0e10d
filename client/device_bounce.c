/* SPDX-License-Identifier: MIT */
/*
 * Some memory cannot be handed to another process: that of stream-ordered allocators, managed memory, virtual memory
 * that was not made for it. Requests on it go through a region that can, with copies on the caller's stream before and
 * after; they may be captured like the request itself.
 *
 * The same memory is there for what a request needs between its parts (device_nodes_put.c).
 *
 * A comm's requests run one after another, copies included, so one region for each direction is enough for a comm, and
 * two comms never share one. When a larger one is needed the old one stays with the comm, since a captured graph may
 * use it. Nothing is freed before the session ends: freeing waits for all kernels of the process, and bells may be
 * waiting. When a comm is gone and its kernels are not known to have ended, its regions are nobody's from then on: they
 * may not keep its address, at which the next comm may lie.
 */
#include <stdlib.h>
#include <utlist.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/device_bounce.h"
#include "client/error.h"
#include "client/operation.h"
#include "util/type.h"

#define REGION_BYTES_MIN ((size_t)1 << 20)

static const struct rmx_comm nobody; /* has the regions that no comm may have any more; only its address counts */

/* With device->regions_mutex. */
static struct device_region *region_find(struct device *device, size_t bytes) {
        struct device_region *region, *best = NULL;

        LL_FOREACH(device->regions, region) {
                if (!region->comm && region->memory.bytes >= bytes &&
                    (!best || region->memory.bytes < best->memory.bytes))
                        best = region;
        }
        return best;
}

static int region_new(struct device *device, const char *what, struct rmx_cancel *cancel, size_t bytes,
                      struct device_region **ret_region) {
        char error[CLIENT_GPU_TEXT] = "";
        struct device_region *region;
        size_t size = REGION_BYTES_MIN;
        uint64_t offset;
        int r;

        while (size < bytes)
                size *= 2;
        region = calloc(1, sizeof(*region));
        if (!region)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
        r = device->ops->alloc(device->handle, size, &region->memory, error);
        if (r) {
                free(region);
                return error_set(r, "%s: %zu bytes of the library's own: %s", what, size, error);
        }
        r = device_memory_name(device, what, cancel, &region->memory, (const void *)(uintptr_t)region->memory.base,
                               region->memory.bytes, &region->buffer, &offset);
        if (!r && !region->buffer)
                r = error_set(RMX_E_UNSUPPORTED, "%s: GPU %u: no memory can be shared with the daemon", what,
                              device->gpu);
        if (r) {
                device->ops->free(device->handle, &region->memory);
                free(region);
                return r;
        }
        *ret_region = region;
        return RMX_OK;
}

int device_bounce_get(struct rmx_comm *comm, const char *what, uint32_t direction, size_t bytes,
                      struct device_region **ret_region) {
        struct device *device = comm->device;
        struct device_region *region;
        int r = RMX_OK;

        pthread_mutex_lock(&device->regions_mutex);
        region = comm->bounce[direction];
        if (!region || region->memory.bytes < bytes) {
                region = region_find(device, bytes);
                if (!region) {
                        r = region_new(device, what, comm->cancel, bytes, &region);
                        if (!r)
                                LL_PREPEND(device->regions, region);
                }
                if (!r) {
                        region->comm = comm;
                        comm->bounce[direction] = region;
                }
        }
        pthread_mutex_unlock(&device->regions_mutex);
        if (!r)
                *ret_region = region;
        return r;
}

static void regions_pass(const struct rmx_comm *comm, const struct rmx_comm *to) {
        struct device *device = comm->device;
        struct device_region *region;

        pthread_mutex_lock(&device->regions_mutex);
        LL_FOREACH(device->regions, region) {
                if (region->comm == comm)
                        region->comm = to;
        }
        pthread_mutex_unlock(&device->regions_mutex);
}

void device_bounce_give(struct rmx_comm *comm) {
        regions_pass(comm, NULL);
}

void device_bounce_keep(struct rmx_comm *comm) {
        regions_pass(comm, &nobody);
}

void device_bounces_free(struct device *device) {
        while (device->regions) {
                struct device_region *region = device->regions;

                LL_DELETE(device->regions, region);
                device->ops->free(device->handle, &region->memory);
                free(region);
        }
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */
static int copy(const struct operation *o, uint64_t to, uint64_t from, size_t bytes, void *stream) {
        struct device *device = o->comm->device;
        char error[CLIENT_GPU_TEXT] = "";
        int r;

        if (!bytes)
                return RMX_OK;
        r = device->ops->copy(device->handle, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes, stream,
                              error);
        return r ? error_set(r, "%s: %s", o->what, error) : RMX_OK;
}

/* The pieces of one direction of a vector; between them nothing is touched. */
static int copy_pieces(const struct operation *o, const uint64_t *counts, uint64_t to, uint64_t from, void *stream) {
        const uint64_t *offsets = counts + o->comm->n_ranks;
        size_t size = type_size(o->type);
        int r = RMX_OK;

        for (uint32_t i = 0; i < o->comm->n_ranks && !r; i++)
                r = copy(o, to + offsets[i] * size, from + offsets[i] * size, counts[i] * size, stream);
        return r;
}

int device_bounce_copy_in(const struct operation *o, const struct device_region *region, void *stream) {
        if (!region)
                return RMX_OK;
        if (o->vector)
                return copy_pieces(o, o->vector, region->memory.base, (uintptr_t)o->in, stream);
        return copy(o, region->memory.base, (uintptr_t)o->in, o->in_bytes, stream);
}

int device_bounce_copy_out(const struct operation *o, const struct device_region *region, void *stream) {
        if (!region)
                return RMX_OK;
        if (o->vector)
                return copy_pieces(o, o->vector + 2 * (size_t)o->comm->n_ranks, (uintptr_t)o->out, region->memory.base,
                                   stream);
        return copy(o, (uintptr_t)o->out, region->memory.base, o->out_bytes, stream);
}
