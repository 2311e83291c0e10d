/* SPDX-License-Identifier: MIT */
#pragma once
/* The caller's allocations on a GPU, as the daemon knows them. See device_memory.c. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/gpu.h"
#include "proto/session.pb-c.h"

struct device;
struct device_span;
struct rmx_cancel;

#define DEVICE_MEMORY_CHUNKS 2u /* DeviceMemory.kind */

struct device_buffer {
        uint64_t base;
        uint64_t bytes;
        uint64_t id;     /* the runtime's; another one at the same place is another allocation */
        uint32_t buffer; /* the daemon's; 0: other processes cannot map it */
};

struct device_memory {
        pthread_mutex_t mutex;         /* the table; never held while blocking */
        pthread_mutex_t calls;         /* one registration at a time; taken first */
        struct device_buffer *buffers; /* sorted by base, disjoint */
        uint32_t n_buffers;
        uint32_t capacity;
        uint32_t registered;       /* since all buffers were looked at */
        struct device_span *spans; /* of virtual memory, see device_chunks.c */
        uint32_t n_spans;
        uint32_t spans_registered; /* since all spans were looked at */
};

void device_memory_init(struct device_memory *memory);
void device_memory_deinit(struct device_memory *memory); /* the daemon forgets its side with the session */
/* The daemon's number of the buffer that these bytes lie in, and where, of what `memory` tells of the address. It is
 * registered if it is not known yet. 0: other processes cannot map it. cancel, NULL: none, ends the waiting for the
 * daemon, with RMX_E_ABORTED, as in the next two. RMX_*; text set. */
int device_memory_name(struct device *device, const char *what, struct rmx_cancel *cancel,
                       const struct client_gpu_memory *memory, const void *address, size_t bytes, uint32_t *ret_buffer,
                       uint64_t *ret_offset);
/* Makes memory known to the daemon as the next buffer; the descriptors go with it. With memory->calls. RMX_*; text set.
 */
int device_memory_announce(struct device *device, const char *what, struct rmx_cancel *cancel,
                           Railmux__Session__DeviceMemory *described, const int *fds, unsigned int n_fds,
                           uint32_t *ret_buffer);
/* Takes back from the daemon what has been freed. With memory->calls. RMX_*; text set. */
int device_memory_sweep(struct device *device, const char *what, struct rmx_cancel *cancel);
/* Takes this buffer, which lies at this address, back from the daemon; not what may have come there since. (Of virtual
 * memory, which lies in buffers with other memory, only what has been unmapped is.) RMX_*; text set. */
int device_memory_forget(struct device *device, const char *what, const void *address, uint32_t buffer);
void device_memory_describe(const struct client_gpu_export *from, Railmux__Session__DeviceMemory *to);
