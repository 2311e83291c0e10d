/* SPDX-License-Identifier: MIT */
/*
 * The host backend: emulated GPUs
 *
 * An emulated GPU is a number. Its kernels are the interpreter, run by whichever of the executor's threads calls
 * progress; its staging memory is an anonymous mapping of the executor. No thread is made here and no lock is taken:
 * ranks of a communicator meet only in the atomics of their channels (channel.c), and everything else of a rank is
 * private to it and starts on a cache line of its own.
 *
 * The kernels are looked up once, since asking the processor what it is can be slow.
 *
 * A communicator over several nodes has its staging in a net area of the caller's, and channels to other nodes that a
 * fabric serves (net.c). Its ranks elsewhere have a place here that is never used, so that all are found by number.
 *
 * A communicator may be freed in any state. Requests that were not finished are forgotten with it, since nothing
 * outside the communicator refers to them.
 */
#include "gpu/host/host.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/host/interpret.h"

struct gpu {
        uint32_t n_gpus;
        struct interpret_kernels kernels;
        uint64_t memory_bytes; /* of the machine: emulated GPUs have no other */
};

struct gpu_comm {
        struct plan_geometry geometry;
        struct interpret_kernels kernels;
        struct channel_set set;
        struct host_net net;         /* over several nodes */
        struct interpret_work *work; /* 2 * n_ranks of each rank */
        struct interpret_rank ranks[];
};

static int host_open(uint32_t n_gpus, struct gpu **ret_gpu) {
        long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
        struct gpu *gpu;

        if (n_gpus < 1 || n_gpus > HOST_GPUS_MAX)
                return -EINVAL;
        gpu = calloc(1, sizeof(*gpu));
        if (!gpu)
                return -ENOMEM;
        gpu->n_gpus = n_gpus;
        for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++)
                for (uint32_t redop = 0; redop < RMX_REDOP_COUNT; redop++)
                        gpu->kernels.fn[type][redop] = reduce_find(type, redop);
        gpu->memory_bytes = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
        *ret_gpu = gpu;
        return 0;
}

static void host_close(struct gpu *gpu) {
        free(gpu);
}

static uint32_t host_count(const struct gpu *gpu) {
        return gpu->n_gpus;
}

static void host_info(const struct gpu *gpu, uint32_t index, struct gpu_info *ret_info) {
        struct gpu_info info = {.index = index, .memory_bytes = gpu->memory_bytes};

        snprintf(info.name, sizeof(info.name), "emulated GPU %u", index);
        *ret_info = info;
}

static bool host_reduces(const struct gpu *gpu, uint32_t type, uint32_t redop) {
        return type < RMX_TYPE_COUNT && redop < RMX_REDOP_COUNT && gpu->kernels.fn[type][redop];
}

static struct gpu_comm *host_comm_free(struct gpu_comm *comm) {
        if (!comm)
                return NULL;
        channel_set_deinit(&comm->set);
        free(comm->work);
        free(comm);
        return NULL;
}

/* `where`: NULL if all ranks are here. */
static int comm_init_channels(struct gpu_comm *comm, uint32_t n_ranks, const struct gpu_net *where) {
        unsigned char *area;
        int r;

        if (!where)
                return channel_set_init(&comm->set, n_ranks, &comm->geometry);
        r = host_net_init(&comm->net, n_ranks, &comm->geometry, where);
        if (r < 0)
                return r;
        area = (unsigned char *)where->area;
        return channel_set_init_net(&comm->set, n_ranks, &comm->geometry, area + where->area->memory_offset,
                                    where->area->memory_bytes);
}

int host_comm_new_at(struct gpu *gpu, uint32_t n_ranks, const struct plan_geometry *geometry,
                     const struct gpu_net *where, uint32_t start, struct gpu_comm **ret_comm) {
        struct gpu_comm *comm;
        uint32_t n_lanes = 2 * n_ranks;
        int r;

        if (n_ranks < 1 || n_ranks > PLAN_RANKS_MAX)
                return -EINVAL;
        comm = aligned_alloc(_Alignof(struct gpu_comm), sizeof(*comm) + n_ranks * sizeof(comm->ranks[0]));
        if (!comm)
                return -ENOMEM;
        comm->geometry = *geometry;
        comm->kernels = gpu->kernels;
        comm->set = (struct channel_set)CHANNEL_SET_NULL;
        comm->net = (struct host_net){.doorbell_fd = -1};
        comm->work = aligned_alloc(_Alignof(struct interpret_work), n_ranks * n_lanes * sizeof(comm->work[0]));
        r = comm->work ? comm_init_channels(comm, n_ranks, where) : -ENOMEM;
        if (r < 0) {
                host_comm_free(comm);
                return r;
        }
        if (start != 0)
                channel_set_restart(&comm->set, start);
        for (uint32_t rank = 0; rank < n_ranks; rank++) {
                comm->ranks[rank] = (struct interpret_rank){
                        .set = &comm->set,
                        .geometry = &comm->geometry,
                        .kernels = &comm->kernels,
                        .ranks = comm->ranks,
                        .net = where ? &comm->net : NULL,
                        .away = comm->net.away,
                        .me = rank,
                        .work = comm->work + (size_t)rank * n_lanes,
                };
                interpret_rank_init(&comm->ranks[rank], start);
        }
        *ret_comm = comm;
        return 0;
}

static int host_comm_new(struct gpu *gpu, uint32_t n_ranks, const struct plan_geometry *geometry,
                         struct gpu_comm **ret_comm) {
        return host_comm_new_at(gpu, n_ranks, geometry, NULL, 0, ret_comm);
}

static int host_comm_new_net(struct gpu *gpu, uint32_t n_ranks, const struct plan_geometry *geometry,
                             const struct gpu_net *net, struct gpu_comm **ret_comm) {
        return host_comm_new_at(gpu, n_ranks, geometry, net, 0, ret_comm);
}

static void host_start(struct gpu_comm *comm, uint32_t rank, struct gpu_request *requests, uint32_t n_requests) {
        assert(!(comm->net.away >> rank & 1));
        interpret_rank_start(&comm->ranks[rank], requests, n_requests);
}

static int host_progress(struct gpu_comm *comm, uint32_t rank, uint64_t max_bytes) {
        return interpret_rank_run(&comm->ranks[rank], max_bytes);
}

static uint32_t host_blamed(const struct gpu_comm *comm, uint32_t rank) {
        assert(comm->ranks[rank].blamed > 0);
        return comm->ranks[rank].blamed - 1;
}

const struct gpu_ops gpu_host_ops = {
        .name = "host",
        .open = host_open,
        .close = host_close,
        .count = host_count,
        .info = host_info,
        .reduces = host_reduces,
        .comm_new = host_comm_new,
        .comm_new_net = host_comm_new_net,
        .comm_free = host_comm_free,
        .start = host_start,
        .progress = host_progress,
        .blamed = host_blamed,
};
