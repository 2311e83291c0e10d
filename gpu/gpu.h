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

#include "plan/plan.h"

struct gpu;      /* one open backend */
struct gpu_comm; /* staging and cursors of one communicator */
struct net_area; /* ring/net.h */

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
        struct plan_shape shape; /* shape.vector stays valid until done, on all ranks of the comm */
        uint32_t type;           /* RMX_* */
        uint32_t redop;          /* RMX_* */
        uint64_t scalar;         /* RMX_PREMUL_SUM: this rank's factor (ring.h, argument blocks) */
        uint32_t sequence;       /* of the comm, or of the pair: the same on all ranks that take part, or 0 on all */
        bool done;               /* written by the backend: this request has finished. See `progress` */
};

/*
 * A communicator of which only some ranks are on this node. Channels between nodes lie in the area; a fabric (not ours)
 * carries what is posted there. Only ranks of this node are started here. Steps may touch other ranks' memory in place
 * only if these are on the same node (who calls sees to that); sends and receives between nodes are copied by the
 * backend, whatever their plan says.
 */
struct gpu_net {
        struct net_area *area; /* mapped writable, zeroed staging, outlives the comm */
        int doorbell_fd; /* eventfd of the fabric, written when it sleeps; the caller's, outlives the comm. -1: none */
        uint32_t own;    /* this node */
        uint8_t node[PLAN_RANKS_MAX]; /* by rank */
};

enum {
        GPU_DONE = 0,
        GPU_PROGRESS = 1,
        GPU_IDLE = 2,
        GPU_MISMATCH = 3, /* a rank of another node called something else: gpu_ops.blamed() */
};

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
        /* The same over several nodes. -EINVAL also if the area is not one for so many ranks and this geometry. NULL:
         * the backend cannot. */
        int (*comm_new_net)(struct gpu *gpu, uint32_t n_ranks, const struct plan_geometry *geometry,
                            const struct gpu_net *net, struct gpu_comm **ret_comm);
        /* At any time, whatever is unfinished. NULL is allowed; returns NULL. */
        struct gpu_comm *(*comm_free)(struct gpu_comm *comm);
        /*
         * Starts the next work of a rank: one collective, or a group of 1 .. n sends and receives (operation
         * RING_OP_SEND, shape.role SENDER or RECEIVER) that progress together; those with the same sender and receiver
         * one after another, in their order. The former work must have returned GPU_DONE (an aborted comm is freed).
         * `requests` stay the backend's to read, and their `done` to write, until GPU_DONE.
         */
        void (*start)(struct gpu_comm *comm, uint32_t rank, struct gpu_request *requests, uint32_t n_requests);
        /* Works on what the rank has started for a bounded time (about max_bytes of data). GPU_DONE: all of it is
         * finished and the rank's outputs are final, said once per start; GPU_PROGRESS: something moved; GPU_IDLE:
         * waiting for another rank, or nothing was started; GPU_MISMATCH: a chunk has come of another call than what
         * was started here; it was not used, the rank will not move again, and the comm is good for being freed only. A
         * request whose part of this rank is finished has `done` set when progress returns, which may be long before
         * the whole group is. */
        int (*progress)(struct gpu_comm *comm, uint32_t rank, uint64_t max_bytes);
        /* After GPU_MISMATCH of a rank: whose chunk it was. On the thread that got it. */
        uint32_t (*blamed)(const struct gpu_comm *comm, uint32_t rank);
};

/* The host backend. n_gpus emulated GPUs; needs no hardware. */
extern const struct gpu_ops gpu_host_ops;
