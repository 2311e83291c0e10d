/* SPDX-License-Identifier: MIT */
#pragma once
/* Placements and jobs for communicators over several nodes. */
#include "harness.h"
#include "run.h"

#define NODES_JOBS_MAX 8u

/* How ranks lie on nodes. */
struct nodes_placement {
        uint32_t n_ranks;
        uint8_t node[16];
};
extern const struct nodes_placement nodes_placements[];
extern const uint32_t n_nodes_placements;
/* At least two slots: rings need them. */
extern const struct plan_geometry nodes_geometries[];
extern const uint32_t n_nodes_geometries;

/* Algorithms of channels alone. Sends have one that is not, in whose place the backend puts its own between nodes. */
uint32_t nodes_algorithms(uint32_t operation, uint32_t n_ranks, uint32_t algorithms[PLAN_ALGORITHM_COUNT]);
/* A job with everything but operation and algorithm drawn by lot; and one with these, too. */
void nodes_draw(struct job *job, struct random *random, uint32_t operation, uint32_t algorithm, uint32_t n_ranks);
void nodes_draw_any(struct job *job, struct random *random, uint32_t n_ranks);
