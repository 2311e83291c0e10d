/* SPDX-License-Identifier: MIT */
#pragma once
/* Inside of the host backend, for its tests. */
#include <stdint.h>

#include "gpu/gpu.h"

#define HOST_GPUS_MAX 64u

/* A communicator whose chunk counters start at `start` instead of 0. where: NULL if all its ranks are on one node. */
int host_comm_new_at(struct gpu *gpu, uint32_t n_ranks, const struct plan_geometry *geometry,
                     const struct gpu_net *where, uint32_t start, struct gpu_comm **ret_comm);
