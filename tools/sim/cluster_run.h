/* SPDX-License-Identifier: MIT */
#pragma once
/* railmux-sim TOPOLOGY OP BYTES...: algorithms of a cluster side by side. */
#include <stddef.h>
#include <stdint.h>

#include "tools/sim/cluster.h"

#define CLUSTER_RUN_VERSION 1
#define CLUSTER_CHOICES_MAX (PLAN_ALGORITHM_COUNT + 1)

struct cluster_choice {
        uint32_t algorithm; /* enum plan_algorithm or CLUSTER_RINGS */
        struct cluster_load load;
        double ns;
};
struct cluster_look {
        double bytes, bound_ns;
        uint32_t bound_part;        /* so many nodes and all others have the cut that takes as long as that */
        uint32_t n_choices, chosen; /* chosen: position; n_choices if nothing may be */
        struct cluster_choice choices[CLUSTER_CHOICES_MAX];
};
/* `algorithm`: the one to choose, 0: the fastest; any_tree as in struct plan_over. */
void cluster_look(const struct cluster *cluster, uint32_t operation, double bytes, uint32_t algorithm, bool any_tree,
                  struct cluster_look *ret_look);
/* The whole command. Returns the exit status: 0, 2 wrong usage or input, 3 out of memory or no output. */
int cluster_run(int argc, char **argv);
