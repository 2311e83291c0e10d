/* SPDX-License-Identifier: MIT */
#pragma once
/* All plans that exist, for tests to go through. */
#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"
#include "ring/ring.h"

static const struct {
        uint32_t operation;
        uint32_t algorithm;
        uint32_t tree;
        bool power_of_two; /* only for such numbers of ranks */
} plans[] = {
        {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, PLAN_TREE_RANK_ORDER, false},
        {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, PLAN_TREE_RANK_ORDER, false},
        {RING_OP_ALL_REDUCE, PLAN_ZERO_COPY, PLAN_TREE_RANK_ORDER, false},
        {RING_OP_ALL_REDUCE, PLAN_RING, PLAN_TREE_ROTATED, false},
        {RING_OP_ALL_REDUCE, PLAN_RECURSIVE_DOUBLING, PLAN_TREE_DOUBLING, false},
        {RING_OP_ALL_REDUCE, PLAN_HALVING_DOUBLING, PLAN_TREE_DOUBLING, false},
        {RING_OP_ALL_REDUCE, PLAN_TREE, PLAN_TREE_BINARY, false},
        {RING_OP_REDUCE, PLAN_DIRECT, PLAN_TREE_RANK_ORDER, false},
        {RING_OP_REDUCE, PLAN_ZERO_COPY, PLAN_TREE_RANK_ORDER, false},
        {RING_OP_REDUCE, PLAN_RING, PLAN_TREE_ROTATED, false},
        {RING_OP_REDUCE, PLAN_TREE, PLAN_TREE_BINARY, false},
        {RING_OP_BROADCAST, PLAN_DIRECT, PLAN_TREE_NONE, false},
        {RING_OP_BROADCAST, PLAN_ZERO_COPY, PLAN_TREE_NONE, false},
        {RING_OP_BROADCAST, PLAN_RING, PLAN_TREE_NONE, false},
        {RING_OP_BROADCAST, PLAN_TREE, PLAN_TREE_NONE, false},
        {RING_OP_ALL_GATHER, PLAN_DIRECT, PLAN_TREE_NONE, false},
        {RING_OP_ALL_GATHER, PLAN_ZERO_COPY, PLAN_TREE_NONE, false},
        {RING_OP_ALL_GATHER, PLAN_RING, PLAN_TREE_NONE, false},
        {RING_OP_ALL_GATHER, PLAN_RECURSIVE_DOUBLING, PLAN_TREE_NONE, false},
        {RING_OP_REDUCE_SCATTER, PLAN_DIRECT, PLAN_TREE_RANK_ORDER, false},
        {RING_OP_REDUCE_SCATTER, PLAN_ZERO_COPY, PLAN_TREE_RANK_ORDER, false},
        {RING_OP_REDUCE_SCATTER, PLAN_RING, PLAN_TREE_ROTATED, false},
        {RING_OP_REDUCE_SCATTER, PLAN_HALVING_DOUBLING, PLAN_TREE_DOUBLING, true},
        {RING_OP_ALL_TO_ALL, PLAN_DIRECT, PLAN_TREE_NONE, false},
        {RING_OP_ALL_TO_ALL, PLAN_ZERO_COPY, PLAN_TREE_NONE, false},
        {RING_OP_ALL_TO_ALL_V, PLAN_DIRECT, PLAN_TREE_NONE, false},
        {RING_OP_ALL_TO_ALL_V, PLAN_ZERO_COPY, PLAN_TREE_NONE, false},
        {RING_OP_GATHER, PLAN_DIRECT, PLAN_TREE_NONE, false},
        {RING_OP_GATHER, PLAN_ZERO_COPY, PLAN_TREE_NONE, false},
        {RING_OP_SCATTER, PLAN_DIRECT, PLAN_TREE_NONE, false},
        {RING_OP_SCATTER, PLAN_ZERO_COPY, PLAN_TREE_NONE, false},
        {RING_OP_SEND, PLAN_ZERO_COPY, PLAN_TREE_NONE, false},
        {RING_OP_BARRIER, PLAN_DIRECT, PLAN_TREE_NONE, false},
        {RING_OP_BARRIER, PLAN_RECURSIVE_DOUBLING, PLAN_TREE_NONE, false},
};
#define N_PLANS ((uint32_t)(sizeof(plans) / sizeof(plans[0])))

/* In a ring of all ranks every step takes a chunk and sends one before it gives a slot back: with one slot everybody
 * waits for the next. */
static inline uint32_t plans_slots_min(uint32_t i) {
        return plans[i].algorithm == PLAN_RING && !plan_operation_rooted(plans[i].operation) ? 2 : 1;
}

/* Plan number i for n_ranks; false: there is none. */
static inline bool plans_build(uint32_t i, uint32_t n_ranks, struct plan *ret_plan) {
        return plan_build(plans[i].operation, plans[i].algorithm, n_ranks, ret_plan) == PLAN_OK;
}
