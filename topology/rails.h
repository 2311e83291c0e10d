/* SPDX-License-Identifier: MIT */
#pragma once
/* NICs that may be rails, with the GPUs that they are nearest to. See rails.c for the rule. */
#include <stdbool.h>
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
                uint32_t rail;    /* the one for it, TOPOLOGY_NONE without any */
        } map[TOPOLOGY_GPUS_MAX]; /* in the order of the GPUs' numbers */
};

/* The same graph gives the same rails. 0 or -ENOMEM. Free with free(). */
int topology_rails_new(const struct topology *topology, struct topology_rails **ret_rails);
/* The rail of a GPU by its position; TOPOLOGY_NONE: none. */
uint32_t topology_rail_of(const struct topology_rails *rails, uint32_t gpu);
/* The order in which NICs have to become rails so that GPUs that take these in turn have the one that the map says,
 * and further ones that are near as far as numbers allow. Fills order[n_rails], each once; false: there is no such
 * order, or nothing to be put in order. */
bool topology_rails_in_turn(const struct topology_rails *rails, uint32_t order[TOPOLOGY_RAILS_MAX]);
/* Bandwidth of a NIC's ports, each way; 0: unknown. */
uint64_t topology_nic_speed(const struct topology *topology, uint32_t nic);
