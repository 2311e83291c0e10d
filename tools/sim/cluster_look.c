/* SPDX-License-Identifier: MIT */
/*
 * What is chosen
 *
 * railmuxd does not ask these formulas: it prices plans step by step with constants of its own, which are for hosts or
 * GPUs and not for a kind of cluster, and keeps to classes of sizes. So up to as many ranks as it serves its own table
 * is asked. Of plans by channels that it has for GPUs the formulas know those that send the same between nodes; what
 * they do not know at all is only named.
 */
#include <errno.h>

#include "tools/sim/cluster_run.h"
#include "tools/sim/tables.h"

#define HOST_WORKERS_MAX 16u /* MANAGER_WORKERS_MAX */

int cluster_table_make(const struct cluster *cluster, const struct cluster_form *form, bool any_tree,
                       struct cluster_table *ret_table) {
        /* Boxes are inside one node. */
        uint32_t n_nodes = form->boxes ? 1 : cluster->n_nodes, n_gpus = cluster->n_gpus;
        struct cluster_table table = {0};
        struct plan_constants constants;
        struct plan_geometry geometry;
        struct plan_nodes nodes;
        struct plan_net net;
        struct plan_over over = {.constants = &constants, .nodes = &nodes, .any_tree = any_tree};

        if (form->boxes)
                n_gpus *= cluster->n_nodes;
        *ret_table = table;
        if (tables_nodes(n_nodes, n_gpus, &nodes) || (any_tree && (!form->host || n_nodes < 2)))
                return 0;
        over.n_ranks = n_nodes * n_gpus;
        plan_constants_host(&constants, n_gpus < HOST_WORKERS_MAX ? n_gpus : HOST_WORKERS_MAX);
        table.n = form->host ? tables_host(&over, cluster->n_rails, &net, &geometry, table.choices)
                             : tables_device(&nodes, over.n_ranks, cluster->n_rails, &net, table.choices);
        if (table.n == 0)
                return -ENOMEM;
        *ret_table = table;
        return 0;
}

/* The plan that sends the same between nodes. */
static uint32_t between_nodes(uint32_t algorithm) {
        return algorithm == PLAN_HIERARCHICAL_STAGED           ? PLAN_HIERARCHICAL
               : algorithm == PLAN_HIERARCHICAL_STAGED_SCATTER ? PLAN_HIERARCHICAL_SCATTER
                                                               : algorithm;
}

/* Is it the one that is looked for, or one that the fastest is to be of? */
static bool may_be(const struct cluster_look *look, const struct cluster_wish *wish, uint32_t operation,
                   uint32_t algorithm) {
        switch (look->chosen_by) {
        case CLUSTER_CHOSEN_ASKED:
                return algorithm == wish->algorithm;
        case CLUSTER_CHOSEN_RAILMUXD:
                return algorithm == between_nodes(look->algorithm);
        default:
                return algorithm != CLUSTER_RINGS &&
                       (wish->any_tree || cluster_algorithm_ordered(operation, algorithm));
        }
}

void cluster_look(const struct cluster *cluster, uint32_t operation, double bytes, const struct cluster_wish *wish,
                  struct cluster_look *ret_look) {
        struct cluster_look look = {.bytes = bytes};
        const struct plan_choice *choice = NULL;
        double best = 0;

        if (wish->table && wish->table->n > 0) /* of elements as long as their sums */
                choice = plan_choice_find(wish->table->choices, wish->table->n, operation, 1, (uint64_t)bytes);
        look.algorithm = choice ? choice->algorithm : PLAN_ALGORITHM_NONE;
        look.chosen_by = wish->algorithm ? CLUSTER_CHOSEN_ASKED
                         : choice        ? CLUSTER_CHOSEN_RAILMUXD
                                         : CLUSTER_CHOSEN_FORMULAS;
        look.bound_ns = cluster_bound_ns(cluster, operation, bytes, &look.bound_part);
        look.chosen = UINT32_MAX;
        for (uint32_t a = 1; a <= CLUSTER_RINGS; a++) {
                struct cluster_choice *c = &look.choices[look.n_choices];

                if (cluster_load_of(cluster, operation, a, bytes, &c->load))
                        continue;
                c->algorithm = a;
                c->ns = cluster_ns(cluster, &c->load);
                if (may_be(&look, wish, operation, a) && (look.chosen == UINT32_MAX || c->ns < best)) {
                        look.chosen = look.n_choices;
                        best = c->ns;
                }
                look.n_choices++;
        }
        if (look.chosen == UINT32_MAX)
                look.chosen = look.n_choices;
        *ret_look = look;
}
