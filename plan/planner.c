/* SPDX-License-Identifier: MIT */
/*
 * The planners: each writes the phases of one algorithm.
 *
 * One-shot and two-shot are the flat and the tree algorithm of direct-access all-reduce (one or two exchanges instead
 * of a ring's 2(n-1)); here data is pushed into the peers' staging and flags travel with it, so there is no barrier.
 */
#include "plan/plan.h"

#include "ring/ring.h"

static struct plan_phase *phase_add(struct plan *plan, enum plan_kind kind, enum plan_who who, enum plan_peers peers) {
        struct plan_phase *phase = &plan->phases[plan->n_phases++];

        *phase = (struct plan_phase){.kind = (uint8_t)kind, .who = (uint8_t)who, .peers = (uint8_t)peers, .after = -1};
        return phase;
}

static void push(struct plan *plan, enum plan_who who, enum plan_range in_range) {
        phase_add(plan, PLAN_PUSH, who, PLAN_PEERS_OTHERS)->in_range = (uint8_t)in_range;
}

static struct plan_phase *reduce(struct plan *plan, enum plan_range in_range, enum plan_range out_range) {
        struct plan_phase *phase = phase_add(plan, PLAN_REDUCE, PLAN_WHO_ALL, PLAN_PEERS_OTHERS);

        phase->in_range = (uint8_t)in_range;
        phase->out_range = (uint8_t)out_range;
        return phase;
}

static struct plan_phase *copy(struct plan *plan, enum plan_who who, enum plan_peers peers, enum plan_range out_range) {
        struct plan_phase *phase = phase_add(plan, PLAN_COPY, who, peers);

        phase->out_range = (uint8_t)out_range;
        return phase;
}

static void all_reduce_one_shot(struct plan *plan) {
        push(plan, PLAN_WHO_ALL, PLAN_RANGE_WHOLE);
        /* In place, a part may be overwritten only after every peer has been sent it. */
        reduce(plan, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE)->after = 0;
}

static void all_reduce_two_shot(struct plan *plan) {
        struct plan_phase *phase;

        push(plan, PLAN_WHO_ALL, PLAN_RANGE_SHARD_PEER);
        phase = reduce(plan, PLAN_RANGE_SHARD_ME, PLAN_RANGE_SHARD_ME);
        phase->forward = 1;
        phase->region_out = 1;
        /* In place, shard p is overwritten when p's sum of it comes back, and p had our part of it by then. */
        copy(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_SHARD_PEER)->region_in = 1;
}

static void all_gather(struct plan *plan) {
        push(plan, PLAN_WHO_ALL, PLAN_RANGE_WHOLE);
        copy(plan, PLAN_WHO_ALL, PLAN_PEERS_SELF, PLAN_RANGE_BLOCK_ME)->in_range = PLAN_RANGE_WHOLE;
        copy(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_BLOCK_PEER);
}

static void reduce_scatter(struct plan *plan) {
        push(plan, PLAN_WHO_ALL, PLAN_RANGE_BLOCK_PEER);
        reduce(plan, PLAN_RANGE_BLOCK_ME, PLAN_RANGE_WHOLE);
}

static void broadcast(struct plan *plan) {
        push(plan, PLAN_WHO_ROOT, PLAN_RANGE_WHOLE);
        copy(plan, PLAN_WHO_ROOT, PLAN_PEERS_SELF, PLAN_RANGE_WHOLE)->in_range = PLAN_RANGE_WHOLE;
        copy(plan, PLAN_WHO_OTHERS, PLAN_PEERS_ROOT, PLAN_RANGE_WHOLE);
}

static void barrier(struct plan *plan) {
        phase_add(plan, PLAN_SIGNAL, PLAN_WHO_ALL, PLAN_PEERS_OTHERS);
        phase_add(plan, PLAN_WAIT, PLAN_WHO_ALL, PLAN_PEERS_OTHERS);
}

static const struct planner {
        uint32_t operation;
        uint32_t algorithm;
        uint32_t n_regions;
        void (*build)(struct plan *plan);
} planners[] = {
        {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 1, all_reduce_one_shot},
        {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, 2, all_reduce_two_shot},
        {RING_OP_ALL_GATHER, PLAN_DIRECT, 1, all_gather},
        {RING_OP_REDUCE_SCATTER, PLAN_DIRECT, 1, reduce_scatter},
        {RING_OP_BROADCAST, PLAN_DIRECT, 1, broadcast},
        {RING_OP_BARRIER, PLAN_DIRECT, 1, barrier},
};

int plan_build(uint32_t operation, uint32_t algorithm, uint32_t n_ranks, struct plan *ret_plan) {
        if (!n_ranks || n_ranks > PLAN_RANKS_MAX)
                return PLAN_E_INVALID;
        for (unsigned int i = 0; i < sizeof(planners) / sizeof(planners[0]); i++) {
                const struct planner *planner = &planners[i];
                struct plan plan = {
                        .operation = operation,
                        .algorithm = algorithm,
                        .n_ranks = n_ranks,
                        .tree = plan_operation_reduces(operation) ? PLAN_TREE_RANK_ORDER : PLAN_TREE_NONE,
                        .n_regions = planner->n_regions,
                };

                if (planner->operation != operation || planner->algorithm != algorithm)
                        continue;
                planner->build(&plan);
                *ret_plan = plan;
                return PLAN_OK;
        }
        return PLAN_E_UNSUPPORTED;
}
