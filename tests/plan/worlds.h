/* SPDX-License-Identifier: MIT */
#pragma once
/* Ways in which ranks lie on nodes, for tests to go through. */
#include "plan/nodes.h"
#include "ring/ring.h"
#include "tests/cmocka_all.h"

static const struct {
        const char *nodes; /* of each rank, a letter; ranks of a node need not follow one another */
        bool small;        /* few enough ranks to try every mutant */
} worlds[] = {
        {"ab", true},
        {"aab", true},
        {"abb", true},
        {"aba", true},
        {"abc", true},
        {"aabb", true},
        {"abbb", true},
        {"baab", true},
        {"abcc", true},
        {"abcab", true},
        {"abbcc", true},
        {"abcde", true},
        {"aaabbb", false},
        {"abcabc", false},
        {"aaaabb", false},
        {"abccbba", false},
        {"aabbccdd", false},
        {"abcdabcd", false},
        {"aaaabbbc", false},
        {"abcdefgh", false},
        {"aaabbbccc", false},
        {"abcdeabcde", false},
        {"aaaabbbbcccc", false},
        {"abbcccddddeeeeee", false},
        {"abcccccccccc", false},
};
#define N_WORLDS ((uint32_t)(sizeof(worlds) / sizeof(worlds[0])))

static inline uint32_t world_nodes(const char *letters, struct plan_nodes *ret_nodes) {
        uint8_t node[PLAN_RANKS_MAX];
        uint32_t n = 0;

        for (; letters[n]; n++)
                node[n] = (uint8_t)(letters[n] - 'a');
        assert_int_equal(plan_nodes_init(ret_nodes, n, node), PLAN_OK);
        return n;
}

/* Every plan that exists over nodes: the i-th; false: there are no more. */
static inline bool world_plan(const struct plan_nodes *nodes, uint32_t n_ranks, uint32_t i, struct plan *ret_plan) {
        for (uint32_t operation = 0; operation < RING_OP_COUNT; operation++) {
                uint32_t algorithm;

                for (uint32_t k = 0; (algorithm = plan_algorithm_at_nodes(operation, n_ranks, nodes, k)) != 0; k++)
                        if (i-- == 0) {
                                assert_int_equal(plan_build_nodes(operation, algorithm, n_ranks, nodes, ret_plan),
                                                 PLAN_OK);
                                return true;
                        }
        }
        return false;
}

/* By channels alone: for GPUs. */
static inline bool world_staged(const struct plan *plan) {
        return plan->algorithm == PLAN_HIERARCHICAL_STAGED || plan->algorithm == PLAN_HIERARCHICAL_STAGED_SCATTER;
}

/* Whoever stands in a ring takes a chunk and sends one before giving a slot back. */
static inline uint32_t world_slots_min(const struct plan *plan) {
        bool ring = plan->algorithm == PLAN_RING || plan->algorithm == PLAN_HIERARCHICAL_RING;

        return ring && !plan_operation_rooted(plan->operation) ? 2 : 1;
}
