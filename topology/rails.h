/* SPDX-License-Identifier: MIT */
#pragma once
/* Rails: NICs with the GPUs that send over them. See rails.c for the rule. */
#include <stdint.h>

#include "topology/topology.h"

#define TOPOLOGY_RAILS_MAX 64u

struct topology_rail {
        uint32_t nic;                     /* position */
        uint32_t n_gpus;                  /* 0 only where there are no GPUs */
        uint32_t gpus[TOPOLOGY_GPUS_MAX]; /* positions, in the order of their numbers */
        uint64_t bytes_per_second;        /* of the NIC's ports; 0: unknown */
};

struct topology_rails {
        uint32_t n_rails;
        uint32_t n_gpus;
        struct topology_rail rails[TOPOLOGY_RAILS_MAX];
        struct {
                uint32_t gpu;     /* position */
                uint32_t rail;    /* the one that it sends over, TOPOLOGY_NONE without any */
        } map[TOPOLOGY_GPUS_MAX]; /* in the order of the GPUs' numbers */
};

/* The same graph gives the same rails. 0 or -ENOMEM. Free with free(). */
int topology_rails_new(const struct topology *topology, struct topology_rails **ret_rails);
/* The rail of a GPU by its position; TOPOLOGY_NONE: none. */
uint32_t topology_rail_of(const struct topology_rails *rails, uint32_t gpu);
/* Bandwidth of a NIC's ports, each way; 0: unknown. */
uint64_t topology_nic_speed(const struct topology *topology, uint32_t nic);
