/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Operations that an executor needs from a GPU backend. The host backend (gpu/host/) implements them with memory and
 * worker threads; a hardware backend is a plug-in with the same table.
 *
 * Threads. `progress` of different ranks runs on different worker threads at once, of one rank on one thread at a time.
 * Everything else is called by the executor's control thread while no progress call for that object runs.
 * Errors. 0 or negative errno.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plan;
struct plan_geometry;
struct gpu;      /* one open backend */
struct gpu_comm; /* staging and cursors of one communicator */

struct gpu_info {
        uint32_t index;
        char name[64];
        uint64_t memory_bytes;
};

/* One request of one rank as the backend sees it: validated, addresses resolved. */
struct gpu_request {
        const struct plan *plan; /* verified; stays as it is until the request is done or the comm freed */
        const void *in;          /* NULL where the operation does not read it; any alignment */
        void *out;
        uint64_t count;
        uint32_t type;  /* RMX_* */
        uint32_t redop; /* RMX_* */
        uint32_t root;
};

enum { GPU_DONE = 0, GPU_PROGRESS = 1, GPU_IDLE = 2 };

struct gpu_ops {
        const char *name;
        int (*open)(uint32_t n_gpus, struct gpu **ret_gpu);
        void (*close)(struct gpu *gpu);
        uint32_t (*count)(const struct gpu *gpu);
        void (*info)(const struct gpu *gpu, uint32_t index, struct gpu_info *ret_info);
        /* Does the backend reduce this type with this operation? (Copies work for every type.) */
        bool (*reduces)(const struct gpu *gpu, uint32_t type, uint32_t redop);
        int (*comm_new)(struct gpu *gpu, uint32_t n_ranks, const struct plan_geometry *geometry,
                        struct gpu_comm **ret_comm);
        /* At any time, whatever is unfinished. NULL is allowed; returns NULL. */
        struct gpu_comm *(*comm_free)(struct gpu_comm *comm);
        /* Starts the next request of a rank; the former one must have returned GPU_DONE (an aborted comm is freed). */
        void (*start)(struct gpu_comm *comm, uint32_t rank, const struct gpu_request *request);
        /* Works on the rank's request for a bounded time (about max_bytes of data). GPU_DONE: this rank's part is
         * finished and its output final, said once per start; GPU_PROGRESS: something moved; GPU_IDLE: waiting for
         * another rank, or nothing was started. */
        int (*progress)(struct gpu_comm *comm, uint32_t rank, uint64_t max_bytes);
};

/* The host backend. n_gpus emulated GPUs; needs no hardware. */
extern const struct gpu_ops gpu_host_ops;
