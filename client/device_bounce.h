/* SPDX-License-Identifier: MIT */
#pragma once
/* GPU memory of the library's own, through which calls go whose memory no other process can map. */
#include <stddef.h>
#include <stdint.h>

#include "client/gpu.h"

struct device;
struct operation;
struct rmx_comm;

/* Belongs to the device; a comm that has taken one keeps it as long as it lives. */
struct device_region {
        struct device_region *next;  /* device->regions, all there are */
        const struct rmx_comm *comm; /* NULL: free */
        struct client_gpu_memory memory;
        uint32_t buffer; /* the daemon's number */
};

enum { DEVICE_BOUNCE_IN, DEVICE_BOUNCE_OUT, DEVICE_BOUNCES };

/* The comm's region for this direction, of at least so many bytes. RMX_*; text set. */
int device_bounce_get(struct rmx_comm *comm, const char *what, uint32_t direction, size_t bytes,
                      struct device_region **ret_region);
/* The comm's regions are free for others; nothing that uses them is on the device any more. */
void device_bounce_give(struct rmx_comm *comm);
/* They are for nobody until the device is freed: something may still use them. */
void device_bounce_keep(struct rmx_comm *comm);
void device_bounces_free(struct device *device);

/* Put the copies of an operation between its memory and its region on the stream. NULL: there is no region. With
 * device->mutex. RMX_*; text set. */
int device_bounce_copy_in(const struct operation *o, const struct device_region *region, void *stream);
int device_bounce_copy_out(const struct operation *o, const struct device_region *region, void *stream);
