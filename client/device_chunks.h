/* SPDX-License-Identifier: MIT */
#pragma once
/* The caller's virtual memory on a GPU, as the daemon knows it. See device_chunks.c. */
#include <stddef.h>
#include <stdint.h>

#include "client/gpu.h"

struct device;
struct device_memory;
struct rmx_cancel;

/* Chunks side by side that are one buffer. */
struct device_span {
        struct device_span *prev, *next;
        uint64_t base;
        uint64_t bytes;
        uint32_t buffer;   /* the daemon's; 0: other processes cannot map it, */
        uint64_t until_ns; /* before this time; 0: ever */
        uint32_t n;
        struct {
                uint64_t base, id;
        } chunk[];
};

/* Do these bytes lie in chunks side by side, of which `first` is the one at the address? RMX_*; text set, beginning
 * with `what` and `name`. */
int device_chunks_check(const struct client_gpu_ops *ops, const char *what, const char *name,
                        const struct client_gpu_memory *first, const void *address, size_t bytes);
/* As device_memory_name, of bytes that have been checked. */
int device_chunks_name(struct device *device, const char *what, struct rmx_cancel *cancel,
                       const struct client_gpu_memory *first, const void *address, size_t bytes, uint32_t *ret_buffer,
                       uint64_t *ret_offset);
/* Takes spans of which nothing is left back from the daemon. With memory->calls. RMX_*; text set. */
int device_chunks_sweep(struct device *device, const char *what, struct rmx_cancel *cancel);
void device_chunks_free(struct device_memory *memory);
