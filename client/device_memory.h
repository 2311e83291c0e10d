/* SPDX-License-Identifier: MIT */
#pragma once
/* The caller's allocations on a GPU, as the daemon knows them. See device_memory.c. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/gpu.h"
#include "proto/session.pb-c.h"

struct device;

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
};

void device_memory_init(struct device_memory *memory);
void device_memory_deinit(struct device_memory *memory); /* the daemon forgets its side with the session */
/* The daemon's number of this allocation, which is registered if it is not known yet. 0: other processes cannot map it.
 * RMX_*; text set. */
int device_memory_name(struct device *device, const char *what, const struct client_gpu_memory *memory,
                       uint32_t *ret_buffer);
/* Takes the allocation with this address back from the daemon, if it is known. RMX_*; text set. */
int device_memory_forget(struct device *device, const char *what, const void *address);
void device_memory_describe(const struct client_gpu_export *from, Railmux__Session__DeviceMemory *to);
