/* SPDX-License-Identifier: MIT */
#include "daemon/comm_plan.h"

#include "daemon/manager.h"
#include "plan/constants.h"
#include "plan/nodes.h"
#include "plan/rails.h"
#include "ring/ring.h"
#include <errno.h>

int comm_plan_nodes(const struct manager *manager, uint32_t n_ranks, const uint8_t *node,
                    struct plan_geometry *ret_geometry, struct plan_choice ret_choices[PLAN_CHOICES_MAX],
                    uint32_t *ret_n) {
        struct plan_constants constants;
        struct plan_over over = {0};
        struct plan_nodes nodes;
        struct plan_net net;

        if (plan_nodes_init(&nodes, n_ranks, node))
                return -EINVAL;
        plan_constants_host(&constants, manager_workers(manager));
        constants_merge(&constants, &manager->config->constants);
        plan_net_host(&net);
        plan_geometry_choose(n_ranks, ret_geometry);
        over.constants = &constants;
        over.net = &net;
        over.nodes = &nodes;
        over.n_ranks = n_ranks;
        over.operation = RING_OP_NONE;
        over.algorithm = PLAN_ALGORITHM_NONE;
        *ret_n = nodes.n_nodes == 1 ? plan_choose(&constants, n_ranks, ret_choices)
                                    : plan_choose_nodes(&over, ret_choices);
        return *ret_n ? 0 : -ENOMEM;
}
