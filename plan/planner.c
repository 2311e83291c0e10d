/* SPDX-License-Identifier: MIT */
/*
 * The planners. Each writes the phases of one algorithm; plan_build() is the list of what exists.
 *
 * What makes them safe in place is said at each; the verifier checks it.
 */
#include "plan/plan.h"

#include "ring/ring.h"

static struct plan_phase *phase_add(struct plan *plan, uint32_t kind, uint32_t peers) {
        struct plan_phase *phase = &plan->phases[plan->n_phases++];

        *phase = (struct plan_phase){.kind = (uint8_t)kind, .peers = (uint8_t)peers, .after = -1};
        return phase;
}

static struct plan_phase *phase_push(struct plan *plan, uint32_t in_range) {
        struct plan_phase *phase = phase_add(plan, PLAN_PUSH, PLAN_PEERS_OTHERS);

        phase->in_range = (uint8_t)in_range;
        return phase;
}

static struct plan_phase *phase_reduce(struct plan *plan, uint32_t in_range, uint32_t out_range) {
        struct plan_phase *phase = phase_add(plan, PLAN_REDUCE, PLAN_PEERS_OTHERS);

        phase->in_range = (uint8_t)in_range;
        phase->out_range = (uint8_t)out_range;
        return phase;
}

static struct plan_phase *phase_copy(struct plan *plan, uint32_t peers, uint32_t out_range) {
        struct plan_phase *phase = phase_add(plan, PLAN_COPY, peers);

        phase->out_range = (uint8_t)out_range;
        return phase;
}

static struct plan_phase *phase_copy_self(struct plan *plan, uint32_t in_range, uint32_t out_range) {
        struct plan_phase *phase = phase_copy(plan, PLAN_PEERS_SELF, out_range);

        phase->in_range = (uint8_t)in_range;
        return phase;
}

/* One exchange of whole inputs, everybody reduces everything. In place REDUCE overwrites what PUSH still has to send,
 * hence the `after`. */
static void all_reduce_one_shot(struct plan *plan) {
        plan->tree = PLAN_TREE_RANK_ORDER;
        plan->n_regions = 1;
        phase_push(plan, PLAN_RANGE_WHOLE);
        phase_reduce(plan, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE)->after = 0;
}

/* Each rank reduces its shard and hands the result on. In place nothing needs an `after`: what REDUCE overwrites, the
 * own shard, is sent to nobody, and the shard that COPY overwrites was sent before its owner could reduce it. */
static void all_reduce_two_shot(struct plan *plan) {
        struct plan_phase *phase;

        plan->tree = PLAN_TREE_RANK_ORDER;
        plan->n_regions = 2;
        phase_push(plan, PLAN_RANGE_SHARD_PEER);
        phase = phase_reduce(plan, PLAN_RANGE_SHARD_ME, PLAN_RANGE_SHARD_ME);
        phase->forward = 1;
        phase->region_out = 1;
        phase = phase_copy(plan, PLAN_PEERS_OTHERS, PLAN_RANGE_SHARD_PEER);
        phase->region_in = 1;
}

/* In place the own block is where it belongs, and COPY from others writes only the blocks of others. */
static void all_gather_direct(struct plan *plan) {
        plan->n_regions = 1;
        phase_push(plan, PLAN_RANGE_WHOLE);
        phase_copy_self(plan, PLAN_RANGE_WHOLE, PLAN_RANGE_BLOCK_ME);
        phase_copy(plan, PLAN_PEERS_OTHERS, PLAN_RANGE_BLOCK_PEER);
}

/* In place the output lies on the own block, which is sent to nobody. */
static void reduce_scatter_direct(struct plan *plan) {
        plan->tree = PLAN_TREE_RANK_ORDER;
        plan->n_regions = 1;
        phase_push(plan, PLAN_RANGE_BLOCK_PEER);
        phase_reduce(plan, PLAN_RANGE_BLOCK_ME, PLAN_RANGE_WHOLE);
}

/* In place the root writes nothing. The root needs nothing of the others but credits: it may run ahead. */
static void broadcast_direct(struct plan *plan) {
        plan->n_regions = 1;
        phase_push(plan, PLAN_RANGE_WHOLE)->who = PLAN_WHO_ROOT;
        phase_copy_self(plan, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE)->who = PLAN_WHO_ROOT;
        phase_copy(plan, PLAN_PEERS_ROOT, PLAN_RANGE_WHOLE)->who = PLAN_WHO_OTHERS;
}

static void barrier_direct(struct plan *plan) {
        plan->n_regions = 1;
        phase_add(plan, PLAN_SIGNAL, PLAN_PEERS_OTHERS);
        phase_add(plan, PLAN_WAIT, PLAN_PEERS_OTHERS);
}

int plan_build(uint32_t operation, uint32_t algorithm, uint32_t n_ranks, struct plan *ret_plan) {
        static const struct {
                uint32_t operation;
                uint32_t algorithm;
                void (*build)(struct plan *plan);
        } planners[] = {
                {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, all_reduce_one_shot},
                {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, all_reduce_two_shot},
                {RING_OP_ALL_GATHER, PLAN_DIRECT, all_gather_direct},
                {RING_OP_REDUCE_SCATTER, PLAN_DIRECT, reduce_scatter_direct},
                {RING_OP_BROADCAST, PLAN_DIRECT, broadcast_direct},
                {RING_OP_BARRIER, PLAN_DIRECT, barrier_direct},
        };
        struct plan plan = {.operation = operation, .algorithm = algorithm, .n_ranks = n_ranks};

        if (n_ranks < 1 || n_ranks > PLAN_RANKS_MAX)
                return PLAN_E_INVALID;
        for (size_t i = 0; i < sizeof(planners) / sizeof(planners[0]); i++)
                if (planners[i].operation == operation && planners[i].algorithm == algorithm) {
                        planners[i].build(&plan);
                        *ret_plan = plan;
                        return PLAN_OK;
                }
        return PLAN_E_UNSUPPORTED;
}
