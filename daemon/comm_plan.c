/* SPDX-License-Identifier: MIT */
/*
 * Choosing plans costs more than all the rest of making a communicator, up to a tenth of a second for 64 ranks, in
 * which railmuxd does nothing else. The choice follows from the number of ranks, where they are, how many workers
 * execute them, or that they are on GPUs, how many rails there are between nodes, and what all of them know (struct
 * plan_known); so those of the last COMM_PLANS_MAX such cases are kept, until the constants of the
 * cost model change. A split of 64 ranks makes 32 communicators at most, and then all of them are alike. Who asks for
 * plans over nodes does so in a turn of its own (comm_turn.c), as a tenant may have many that lie differently.
 *
 * Rails are those of this node that the tenant may take here. Others may have more or fewer; then a table is not as
 * good as it could be, but all have the same, since only one asks. For the same reason nothing is wrong with a table
 * whose rail has failed meanwhile, and plans.rail_phase is looked at here alone: what the configurations of other nodes
 * say does not matter. Operations that have no such plan, and all of them if a node does not know it, have the cheapest
 * one, and so have GPUs, whose kernels run no other.
 */
#include "daemon/comm_plan.h"

#include "daemon/cluster.h"
#include "daemon/manager.h"
#include "daemon/rails.h"
#include "plan/constants.h"
#include "plan/nodes.h"
#include "plan/rails.h"
#include "ring/ring.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

/* Longest peer.stripe with which GPUs use all rails: an eighth of it counts (comm_net.c), and 16 KB is what they send
 * at a time (WIRE_BATCH_BYTES). */
#define DEVICE_STRIPE_MAX (128u << 10)

struct comm_plan_case {
        uint32_t n_ranks, workers; /* workers 0: on GPUs */
        uint32_t n_rails;          /* in use; 0: all ranks are on one node */
        uint32_t any_widening;     /* over nodes: one does not know widenings */
        uint32_t algorithms;       /* over nodes: what all know */
        uint32_t algorithm;        /* over nodes: plans.rail_phase, if all know it */
        uint8_t node[MANAGER_RANKS_MAX];
};

struct comm_plan {
        UT_hash_handle hh; /* manager->plans by the case, the one that was used longest ago first */
        struct comm_plan_case of;
        uint32_t n;
        struct plan_choice choices[];
};

/* Those of these names that take something from now on; if they are none, whichever will. */
static uint32_t comm_plan_rails(const struct manager *manager, const char *names) {
        struct fabric_rail_row *rows = NULL;
        uint32_t n_used = 0;
        size_t n = 0;

        if (manager->cluster && fabric_rails(manager->cluster->fabric, &rows, &n) < 0)
                n = 0;
        for (size_t i = 0; i < n; i++)
                n_used += rows[i].enabled && !rows[i].drained && (!names[0] || rail_names_have(names, rows[i].name));
        free(rows);
        return n_used ? n_used : 1;
}

static uint32_t comm_plan_choose(const struct manager *manager, const struct plan_nodes *nodes,
                                 const struct comm_plan_case *of, uint32_t part_bytes,
                                 struct plan_choice choices[PLAN_CHOICES_MAX]) {
        struct plan_constants constants;
        const uint64_t stripe = manager->config->stripe_bytes;
        struct plan_over over = {0};
        struct plan_net net;

        if (!of->workers) {
                plan_net_device(&net);
                net.n_rails = of->n_rails;
                net.any_rail = stripe > 0 && stripe <= DEVICE_STRIPE_MAX;
                return plan_choose_device_nodes(nodes, of->n_ranks, &net, choices);
        }
        plan_constants_host(&constants, of->workers);
        constants_merge(&constants, &manager->config->constants);
        if (nodes->n_nodes == 1)
                return plan_choose(&constants, of->n_ranks, choices);
        plan_net_host(&net);
        net.n_rails = of->n_rails;
        net.any_rail = stripe > 0 && stripe <= part_bytes;
        over.constants = &constants;
        over.net = &net;
        over.nodes = nodes;
        over.n_ranks = of->n_ranks;
        over.operation = RING_OP_NONE;
        over.algorithm = of->algorithm;
        over.any_widening = of->any_widening;
        over.algorithms = of->algorithms;
        return plan_choose_nodes(&over, choices);
}

static void comm_plan_drop(struct manager *manager, struct comm_plan *plan) {
        HASH_DEL(manager->plans, plan);
        free(plan);
}

void comm_plan_forget(struct manager *manager) {
        while (manager->plans)
                comm_plan_drop(manager, manager->plans);
}

/* What cannot be kept is chosen again. */
static void comm_plan_keep(struct manager *manager, const struct comm_plan_case *of, const struct plan_choice *choices,
                           uint32_t n) {
        struct comm_plan *plan = malloc(sizeof(*plan) + n * sizeof(plan->choices[0]));

        if (!plan)
                return;
        if (HASH_COUNT(manager->plans) >= COMM_PLANS_MAX)
                comm_plan_drop(manager, manager->plans);
        plan->of = *of;
        plan->n = n;
        memcpy(plan->choices, choices, n * sizeof(choices[0]));
        HASH_ADD(hh, manager->plans, of, sizeof(plan->of), plan);
        if (!plan->hh.tbl)
                free(plan);
}

int comm_plan_nodes(struct manager *manager, bool device, const struct plan_known *known, uint32_t n_ranks,
                    const uint8_t *node, const char *rails, struct plan_geometry *ret_geometry,
                    struct plan_choice ret_choices[PLAN_CHOICES_MAX], uint32_t *ret_n) {
        static const uint8_t one[MANAGER_RANKS_MAX];
        struct comm_plan_case of = {.n_ranks = n_ranks, .workers = device ? 0 : manager_workers(manager)};
        struct comm_plan *kept;
        struct plan_nodes nodes;

        if (plan_nodes_init(&nodes, n_ranks, node ? node : one))
                return -EINVAL;
        if (device || nodes.n_nodes == 1)
                plan_geometry_choose(n_ranks, ret_geometry);
        else
                plan_geometry_choose_nodes(n_ranks, ret_geometry);
        if (device && nodes.n_nodes == 1) {
                *ret_n = plan_choose_device(n_ranks, ret_choices);
                return *ret_n ? 0 : -EINVAL;
        }
        if (nodes.n_nodes > 1) {
                of.n_rails = comm_plan_rails(manager, rails);
                of.any_widening = !device && !known->widenings;
                of.algorithms = device ? 0 : known->algorithms;
                if (!device && manager->config->rail_phase < known->algorithms)
                        of.algorithm = manager->config->rail_phase;
        }
        if (node)
                memcpy(of.node, node, n_ranks);
        HASH_FIND(hh, manager->plans, &of, sizeof(of), kept);
        if (kept) {
                *ret_n = kept->n;
                memcpy(ret_choices, kept->choices, kept->n * sizeof(kept->choices[0]));
                HASH_DEL(manager->plans, kept); /* behind all others */
                HASH_ADD(hh, manager->plans, of, sizeof(kept->of), kept);
                if (!kept->hh.tbl)
                        free(kept);
                return 0;
        }
        *ret_n = comm_plan_choose(manager, &nodes, &of, ret_geometry->part_bytes, ret_choices);
        if (*ret_n == 0)
                return -ENOMEM;
        manager->counters.plans_chosen++;
        comm_plan_keep(manager, &of, ret_choices, *ret_n);
        return 0;
}
