/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * How the ranks of a communicator lie on nodes.
 *
 * Any mapping will do: nodes with different numbers of ranks, ranks of a node that do not follow one another. A plan
 * points to the mapping that it was built for (struct plan, `nodes`), so the mapping has to live as long as the plan
 * and never changes; whoever keeps plans keeps it beside them, and compares mappings with plan_nodes_equal().
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

struct plan_nodes {
        uint32_t n_nodes;
        uint8_t node[PLAN_RANKS_MAX]; /* of each rank; below n_nodes, and each node has one rank at least */
        /* What follows from it, filled in by plan_nodes_init(): */
        uint8_t local[PLAN_RANKS_MAX];     /* how many ranks of the same node come before this one */
        uint8_t ranks[PLAN_RANKS_MAX];     /* all ranks, node by node, in rank order */
        uint8_t first[PLAN_RANKS_MAX + 1]; /* where those of a node begin; first[n_nodes] = number of ranks */
};

/* node[n_ranks] as above. PLAN_E_INVALID if n_ranks is out of bounds or nodes are not numbered without gaps. */
int plan_nodes_init(struct plan_nodes *nodes, uint32_t n_ranks, const uint8_t *node);
/* Is it what plan_nodes_init() makes for so many ranks? For those who did not make it themselves. */
bool plan_nodes_valid(const struct plan_nodes *nodes, uint32_t n_ranks);
/* NULL is one node with all ranks. */
bool plan_nodes_equal(const struct plan_nodes *a, const struct plan_nodes *b, uint32_t n_ranks);

static inline uint32_t plan_nodes_size(const struct plan_nodes *nodes, uint32_t node) {
        return nodes->first[node + 1] - nodes->first[node];
}
static inline uint32_t plan_nodes_rank(const struct plan_nodes *nodes, uint32_t node, uint32_t local) {
        return nodes->ranks[nodes->first[node] + local];
}
/* The most ranks that a node has. */
static inline uint32_t plan_nodes_largest(const struct plan_nodes *nodes) {
        uint32_t most = 0;

        for (uint32_t i = 0; i < nodes->n_nodes; i++)
                most = plan_nodes_size(nodes, i) > most ? plan_nodes_size(nodes, i) : most;
        return most;
}
/* May a rank touch the other's memory where it lies? */
static inline bool plan_nodes_together(const struct plan_nodes *nodes, uint32_t a, uint32_t b) {
        return a == b || !nodes || nodes->node[a] == nodes->node[b];
}
