/* SPDX-License-Identifier: MIT */
#pragma once
/* railmux-sim TOPOLOGY OP BYTES...: algorithms of a cluster side by side. */
#include <stddef.h>
#include <stdint.h>

#include "plan/cost.h"
#include "tools/sim/cluster.h"

#define CLUSTER_RUN_VERSION 1
#define CLUSTER_CHOICES_MAX (PLAN_ALGORITHM_COUNT + 1)

struct cluster_choice {
        uint32_t algorithm; /* enum plan_algorithm or CLUSTER_RINGS */
        struct cluster_load load;
        double ns;
};
/* What railmuxd chooses; n 0: there are more ranks than it serves, or nobody asks for what it chooses. */
struct cluster_table {
        uint32_t n;
        struct plan_choice choices[PLAN_CHOICES_MAX];
};
enum cluster_chosen { CLUSTER_CHOSEN_RAILMUXD = 1, CLUSTER_CHOSEN_FORMULAS, CLUSTER_CHOSEN_ASKED };
struct cluster_look {
        double bytes, bound_ns;
        uint32_t bound_part;        /* so many nodes and all others have the cut that takes as long as that */
        uint32_t n_choices, chosen; /* chosen: position; n_choices if nothing may be */
        struct cluster_choice choices[CLUSTER_CHOICES_MAX];
        enum cluster_chosen chosen_by; /* railmuxd, or the fastest one */
        uint32_t algorithm;            /* what railmuxd chooses, also where that has no formula of its own */
};
/* What is asked besides an operation and bytes. */
struct cluster_wish {
        uint32_t algorithm; /* the one to choose; 0: none is named */
        bool any_tree;      /* as in struct plan_over */
        const struct cluster_table *table;
};
/* any_tree: GPUs have no such table. -ENOMEM. */
int cluster_table_make(const struct cluster *cluster, const struct cluster_form *form, bool any_tree,
                       struct cluster_table *ret_table);
void cluster_look(const struct cluster *cluster, uint32_t operation, double bytes, const struct cluster_wish *wish,
                  struct cluster_look *ret_look);
/* The whole command. Returns the exit status: 0, 2 wrong usage or input, 3 out of memory or no output. */
int cluster_run(int argc, char **argv);
