/* SPDX-License-Identifier: MIT */
#pragma once
/* The chosen plan of a cluster: its phases, and what it puts on each rail and link. See cluster_plan.c. */
#include <jansson.h>

#include "plan/rails.h"
#include "tools/sim/cluster_run.h"
#include "tools/sim/sim.h"

struct cluster_plan {
        const struct cluster *cluster;
        struct plan plan;
        struct plan_nodes nodes;
        uint32_t n_nodes, n_gpus; /* that it was built for: the cluster's, if that has no more ranks than plans can */
        bool counted;             /* these are; else there are no loads */
        bool between;             /* there are rails: no boxes, which share links, and not one node alone */
        struct plan_load *rails;  /* [n_nodes * n_rails] */
        struct traffic *traffic;  /* between all ranks */
        struct sim graph;         /* of the file of a node: its GPUs, and ways between them */
        struct sim_candidate *on; /* with one: [n_nodes], what each node's links carry */
};

/* The plan that is chosen for a look. 1: there is none of this name, as for rings; -ENOMEM; -EINVAL: the file has
 * changed or the like. */
int cluster_plan_new(const struct cluster *cluster, const struct cluster_form *form, uint32_t operation,
                     const struct cluster_look *look, struct cluster_plan **ret_plan);
struct cluster_plan *cluster_plan_free(struct cluster_plan *plan);
/* NULL: there is none. */
void cluster_plan_print(const struct cluster_plan *plan, const struct cluster_load *load);
json_t *cluster_plan_json(const struct cluster_plan *plan);
