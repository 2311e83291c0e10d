/* SPDX-License-Identifier: MIT */
#pragma once
/* What nothing can beat among GPUs of one node: the smallest cut of its links. See node_cut.c. */
#include "plan/plan.h"
#include "tools/sim/node.h"

struct node_cuts {
        uint32_t n_ranks;
        uint64_t least[PLAN_RANKS_MAX]; /* [k]: bytes per second that can leave the root and k - 1 more ranks */
        uint64_t alone;                 /* what can leave each rank by itself, all of them together */
};
struct node_bound {
        double ns;                 /* 0: nothing is known, or nothing has to cross */
        uint32_t n_part;           /* the root and n_part - 1 more, or any one rank by itself if it is 0 */
        uint64_t bytes_per_second; /* of this cut; n_part 0: of all ranks together */
};

/* ways: of node_ways(). -ENOMEM. */
int node_cuts_find(const struct topology *topology, const struct node_way *ways, uint32_t n_ranks, uint32_t root,
                   struct node_cuts *ret_cuts);
/* For `bytes` of a request's count. */
struct node_bound node_bound_of(const struct node_cuts *cuts, uint32_t operation, double bytes);
