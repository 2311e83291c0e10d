/* SPDX-License-Identifier: MIT */
#include "tools/sim/tables.h"

#define STRIPE_BYTES 65536u /* peer.stripe, as it comes */

int tables_nodes(uint32_t n_nodes, uint32_t n_gpus, struct plan_nodes *ret_nodes) {
        uint8_t node[PLAN_RANKS_MAX];

        if (n_gpus < 1 || n_nodes > PLAN_RANKS_MAX || n_gpus > PLAN_RANKS_MAX || n_nodes * n_gpus > PLAN_RANKS_MAX)
                return PLAN_E_INVALID;
        for (uint32_t r = 0; r < n_nodes * n_gpus; r++)
                node[r] = (uint8_t)(r / n_gpus);
        return plan_nodes_init(ret_nodes, n_nodes * n_gpus, node);
}

uint32_t tables_host(struct plan_over *over, uint32_t n_rails, struct plan_net *ret_net,
                     struct plan_geometry *ret_geometry, struct plan_choice choices[PLAN_CHOICES_MAX]) {
        if (over->nodes->n_nodes < 2)
                return plan_choose(over->constants, over->n_ranks, choices);
        plan_geometry_choose_nodes(over->n_ranks, ret_geometry);
        plan_net_host(ret_net);
        ret_net->n_rails = n_rails;
        ret_net->any_rail = ret_geometry->part_bytes >= STRIPE_BYTES;
        over->net = ret_net;
        return plan_choose_nodes(over, choices);
}

uint32_t tables_device(const struct plan_nodes *nodes, uint32_t n_ranks, uint32_t n_rails, struct plan_net *ret_net,
                       struct plan_choice choices[PLAN_CHOICES_MAX]) {
        plan_net_device(ret_net);
        ret_net->n_rails = n_rails;
        ret_net->any_rail = true;
        return plan_choose_device_nodes(nodes, n_ranks, ret_net, choices);
}
