/* SPDX-License-Identifier: MIT */
#pragma once
/* This node's rails, as the configuration says, and those of them that wait until they can be opened. Loop thread. */
#include "daemon/cluster.h"
#include "daemon/rails.h"

/* One that waits: not the fabric's yet. */
struct cluster_rail {
        struct cluster_rail *next, *prev; /* cluster->waiting */
        struct rail_spec spec;
        char why[CLUSTER_TEXT_MAX]; /* as it was when it was tried last */
};

/* When the fabric is there. As cluster_new(). */
int cluster_rails_new(struct cluster *cluster, char error[CLUSTER_TEXT_MAX]);
/* NULL: no rail of that name waits. */
const struct cluster_rail *cluster_rail_waiting(const struct cluster *cluster, const char *name);
/*
 * Which rail, by name, takes what a GPU of this node sends; n_before: how many ranks of the communicator on this GPU
 * come before. GPUs have the rails in turn, as configured: GPU g has rail g modulo their number. With more rails than
 * GPUs those beyond are further ones of the same GPUs in turn, for further ranks on them, and no other GPU's. NULL:
 * there are no rails. only: as of areas (fabric/fabric.h); GPUs none of whose rails is among those have them in turn,
 * counted without the others.
 */
const char *cluster_rail_of_gpu(const struct cluster *cluster, uint32_t only, uint32_t gpu, uint32_t n_before);
/* A list of their names as the fabric takes it, with rails numbered as they are configured. "": 0. */
uint32_t cluster_rails_only(const struct cluster *cluster, const char *names);
/* Is that rail one of this GPU's? */
bool cluster_rail_serves(const struct cluster *cluster, const char *rail, uint32_t gpu);
/* After which none waits. Half-made is fine. */
void cluster_rails_free(struct cluster *cluster);
