/* SPDX-License-Identifier: MIT */
#include "plan/nodes.h"

#include <string.h>

int plan_nodes_init(struct plan_nodes *nodes, uint32_t n_ranks, const uint8_t *node) {
        struct plan_nodes made = {0};
        uint32_t n = 0;

        if (n_ranks < 1 || n_ranks > PLAN_RANKS_MAX)
                return PLAN_E_INVALID;
        for (uint32_t r = 0; r < n_ranks; r++) {
                if (node[r] >= n_ranks)
                        return PLAN_E_INVALID;
                made.node[r] = node[r];
                if (node[r] >= made.n_nodes)
                        made.n_nodes = node[r] + 1u;
        }
        for (uint32_t i = 0; i < made.n_nodes; i++) {
                made.first[i] = (uint8_t)n;
                for (uint32_t r = 0; r < n_ranks; r++)
                        if (node[r] == i) {
                                made.local[r] = (uint8_t)(n - made.first[i]);
                                made.ranks[n++] = (uint8_t)r;
                        }
                if (n == made.first[i])
                        return PLAN_E_INVALID; /* a number that no rank has */
        }
        made.first[made.n_nodes] = (uint8_t)n;
        *nodes = made;
        return PLAN_OK;
}

bool plan_nodes_valid(const struct plan_nodes *nodes, uint32_t n_ranks) {
        struct plan_nodes made;

        return plan_nodes_init(&made, n_ranks, nodes->node) == PLAN_OK && memcmp(&made, nodes, sizeof(made)) == 0;
}

bool plan_nodes_equal(const struct plan_nodes *a, const struct plan_nodes *b, uint32_t n_ranks) {
        bool one_a = !a || a->n_nodes == 1, one_b = !b || b->n_nodes == 1;

        if (one_a || one_b)
                return one_a && one_b;
        return memcmp(a->node, b->node, n_ranks) == 0;
}
