/* SPDX-License-Identifier: MIT */
#pragma once
/* What the benchmark needs of a GPU runtime, from a plug-in (tools/perf/hip/), so that the program links none. */
#include <stddef.h>
#include <stdint.h>

#define GPU_VERSION   1u
#define GPU_SYMBOL    "railmux_perf_gpu"
#define GPU_ERROR_MAX 256u
#define GPU_MARKS     1024u /* points in time that can be kept at once */
#define GPU_GRAPHS    2u
#define GPU_PATH_ENV  "RAILMUX_PERF_PLUGIN" /* a path, for tests and unusual installations */

struct gpu; /* a device with one stream */

/* Calls return 0, or -1 with a sentence in `error`. All work is on the one stream. */
struct gpu_ops {
        uint32_t version;
        int (*open)(const char *pci, struct gpu **ret_gpu, char *error);
        void (*close)(struct gpu *gpu);
        void *(*stream)(struct gpu *gpu);
        int (*alloc)(struct gpu *gpu, size_t bytes, void **ret_address, char *error);
        void (*free)(struct gpu *gpu, void *address);
        /* Between host and device; returns when the bytes are there. */
        int (*copy)(struct gpu *gpu, void *to, const void *from, size_t bytes, char *error);
        /* 1: the stream has run out of work, 0: not. */
        int (*idle)(struct gpu *gpu, char *error);
        /* Keeps the time when the stream comes to this point. */
        int (*mark)(struct gpu *gpu, uint32_t mark, char *error);
        int (*elapsed)(struct gpu *gpu, uint32_t from, uint32_t to, uint64_t *ret_ns, char *error);
        /* What is put on the stream between begin and end becomes graph number `graph`. */
        int (*capture_begin)(struct gpu *gpu, char *error);
        int (*capture_end)(struct gpu *gpu, uint32_t graph, char *error);
        int (*replay)(struct gpu *gpu, uint32_t graph, char *error);
};

/* Loads the plug-in for a backend's name. 0, or -1 with a sentence in `error`. */
int gpu_load(const char *backend, const struct gpu_ops **ret_ops, char *error);
