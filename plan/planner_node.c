/* SPDX-License-Identifier: MIT */
/*
 * Hierarchical plans, as a list of what happens between two meetings of each node's ranks. The last of these phases
 * comes after all that touches memory of others (pass_node.c), and the second meeting after that one. Plans that touch
 * no memory of others (pass_staged.c) have no meetings.
 *
 * In place, what a step overwrites is its own input, or that of a step that has sent it before: a result comes back
 * only when the node's sum has left. Ranks of other nodes never look at memory here, so it is the same as on one node.
 */
#include "plan/nodes.h"

#include "ring/ring.h"

#define BETWEEN_MAX 4u

struct between {
        uint8_t schedule, in_range, out_range;
        uint8_t region_in, region_out;
        uint8_t after; /* 0: the first meeting; else the one that comes so manieth in the list; staged: nothing */
};

struct node_planner {
        uint8_t operation;
        uint8_t algorithm;
        uint8_t tree;
        bool cut; /* shards are divided into a piece for each node */
        struct between between[BETWEEN_MAX];
};

#define NONE  PLAN_RANGE_NONE
#define WHOLE PLAN_RANGE_WHOLE
#define SHARD PLAN_RANGE_SHARD_PEER
#define BLOCK PLAN_RANGE_BLOCK_PEER
#define SEND  PLAN_RANGE_VECTOR_SEND
#define RECV  PLAN_RANGE_VECTOR_RECV

static const struct node_planner planners[] = {
        {RING_OP_ALL_REDUCE,
         PLAN_HIERARCHICAL,
         PLAN_TREE_NODE_ORDER,
         false,
         {{PLAN_NODE_EXCHANGE, SHARD, NONE, 0, 0, 0}, {PLAN_NODE_REDUCE, NONE, SHARD, 0, 0, 0}}},
        {RING_OP_ALL_REDUCE,
         PLAN_HIERARCHICAL_SCATTER,
         PLAN_TREE_NODE_ORDER,
         true,
         {{PLAN_NODE_SCATTER, SHARD, NONE, 0, 0, 0},
          {PLAN_NODE_SCATTER_REDUCE, NONE, SHARD, 0, 1, 0},
          {PLAN_NODE_SCATTER_GATHER, NONE, SHARD, 1, 0, 0}}},
        {RING_OP_ALL_REDUCE,
         PLAN_HIERARCHICAL_DOUBLING,
         PLAN_TREE_NODE_DOUBLING,
         false,
         {{PLAN_NODE_DOUBLING, SHARD, SHARD, 0, 0, 0}}},
        {RING_OP_ALL_REDUCE,
         PLAN_HIERARCHICAL_RING,
         PLAN_TREE_NODE_ROTATED,
         true,
         {{PLAN_NODE_RING, SHARD, SHARD, 0, 0, 0}}},
        {RING_OP_ALL_REDUCE,
         PLAN_HIERARCHICAL_TREE,
         PLAN_TREE_NODE_BINARY,
         false,
         {{PLAN_NODE_TREE_UP, SHARD, SHARD, 0, 0, 0}, {PLAN_NODE_TREE_DOWN, SHARD, SHARD, 1, 1, 1}}},
        {RING_OP_ALL_REDUCE,
         PLAN_HIERARCHICAL_DOUBLE_TREE,
         PLAN_TREE_NODE_DOUBLE,
         false,
         {{PLAN_NODE_DOUBLE_LEAF_UP, SHARD, NONE, 0, 0, 0},
          {PLAN_NODE_DOUBLE_UP, SHARD, SHARD, 0, 0, 0},
          {PLAN_NODE_DOUBLE_DOWN, SHARD, SHARD, 1, 1, 2},
          {PLAN_NODE_DOUBLE_LEAF_DOWN, NONE, SHARD, 1, 1, 0}}},
        {RING_OP_REDUCE,
         PLAN_HIERARCHICAL,
         PLAN_TREE_NODE_ORDER,
         false,
         {{PLAN_NODE_STAR_UP, SHARD, NONE, 0, 0, 0}, {PLAN_NODE_STAR_REDUCE, NONE, SHARD, 0, 0, 1}}},
        {RING_OP_REDUCE,
         PLAN_HIERARCHICAL_RING,
         PLAN_TREE_NODE_ROTATED,
         false,
         {{PLAN_NODE_CHAIN_UP, SHARD, SHARD, 0, 0, 0}}},
        {RING_OP_REDUCE,
         PLAN_HIERARCHICAL_TREE,
         PLAN_TREE_NODE_BINARY,
         false,
         {{PLAN_NODE_TREE_UP, SHARD, SHARD, 0, 0, 0}}},
        {RING_OP_REDUCE,
         PLAN_HIERARCHICAL_DOUBLE_TREE,
         PLAN_TREE_NODE_DOUBLE,
         false,
         {{PLAN_NODE_DOUBLE_LEAF_UP, SHARD, NONE, 0, 0, 0}, {PLAN_NODE_DOUBLE_UP, SHARD, SHARD, 0, 0, 0}}},
        {RING_OP_BROADCAST, PLAN_HIERARCHICAL, 0, false, {{PLAN_NODE_STAR_DOWN, SHARD, SHARD, 0, 0, 0}}},
        {RING_OP_BROADCAST, PLAN_HIERARCHICAL_RING, 0, false, {{PLAN_NODE_CHAIN_DOWN, SHARD, SHARD, 0, 0, 0}}},
        {RING_OP_BROADCAST, PLAN_HIERARCHICAL_TREE, 0, false, {{PLAN_NODE_TREE_DOWN, SHARD, SHARD, 0, 0, 0}}},
        {RING_OP_BROADCAST,
         PLAN_HIERARCHICAL_DOUBLE_TREE,
         0,
         false,
         {{PLAN_NODE_DOUBLE_DOWN, SHARD, SHARD, 0, 0, 0}, {PLAN_NODE_DOUBLE_LEAF_DOWN, NONE, SHARD, 0, 0, 0}}},
        {RING_OP_ALL_GATHER,
         PLAN_HIERARCHICAL,
         0,
         false,
         {{PLAN_NODE_SPREAD, WHOLE, BLOCK, 0, 0, 0}, {PLAN_NODE_COLLECT, NONE, BLOCK, 0, 0, 1}}},
        {RING_OP_REDUCE_SCATTER,
         PLAN_HIERARCHICAL,
         PLAN_TREE_NODE_ORDER,
         false,
         {{PLAN_NODE_BLOCKS, BLOCK, NONE, 0, 0, 0}, {PLAN_NODE_BLOCK_REDUCE, NONE, WHOLE, 0, 0, 0}}},
        {RING_OP_ALL_TO_ALL,
         PLAN_HIERARCHICAL,
         0,
         false,
         {{PLAN_NODE_PAIR_SEND, BLOCK, NONE, 0, 0, 0},
          {PLAN_NODE_PAIR_TAKE, NONE, BLOCK, 0, 0, 0},
          {PLAN_NODE_ALL_TO_ALL_READ, BLOCK, BLOCK, 0, 0, 0}}},
        {RING_OP_ALL_TO_ALL,
         PLAN_HIERARCHICAL_RAIL,
         0,
         false,
         {{PLAN_NODE_ALL_TO_ALL_SEND, BLOCK, NONE, 0, 0, 0},
          {PLAN_NODE_ALL_TO_ALL_TAKE, NONE, BLOCK, 0, 0, 0},
          {PLAN_NODE_ALL_TO_ALL_READ, BLOCK, BLOCK, 0, 0, 1}}},
        {RING_OP_ALL_TO_ALL_V,
         PLAN_HIERARCHICAL,
         0,
         false,
         {{PLAN_NODE_PAIR_SEND, SEND, NONE, 0, 0, 0},
          {PLAN_NODE_PAIR_TAKE, NONE, RECV, 0, 0, 0},
          {PLAN_NODE_ALL_TO_ALL_READ, SEND, RECV, 0, 0, 0}}},
        {RING_OP_GATHER,
         PLAN_HIERARCHICAL,
         0,
         false,
         {{PLAN_NODE_GATHER_SEND, WHOLE, BLOCK, 0, 0, 0}, {PLAN_NODE_GATHER_TAKE, NONE, BLOCK, 0, 0, 1}}},
        {RING_OP_SCATTER,
         PLAN_HIERARCHICAL,
         0,
         false,
         {{PLAN_NODE_SCATTER_TAKE, NONE, WHOLE, 0, 0, 0}, {PLAN_NODE_SCATTER_SEND, BLOCK, WHOLE, 0, 0, 0}}},
        {RING_OP_BARRIER, PLAN_HIERARCHICAL, 0, false, {{PLAN_NODE_BARRIER, NONE, NONE, 0, 0, 0}}},
        {RING_OP_ALL_REDUCE,
         PLAN_HIERARCHICAL_STAGED,
         PLAN_TREE_NODE_ORDER,
         false,
         {{PLAN_STAGED_SHARDS, SHARD, NONE, 0, 0, 0},
          {PLAN_STAGED_SUM, SHARD, NONE, 0, 0, 0},
          {PLAN_STAGED_REDUCE, NONE, SHARD, 0, 1, 0},
          {PLAN_STAGED_COPY, NONE, SHARD, 1, 1, 0}}},
        {RING_OP_ALL_REDUCE,
         PLAN_HIERARCHICAL_STAGED_SCATTER,
         PLAN_TREE_NODE_ORDER,
         true,
         {{PLAN_STAGED_PIECES, SHARD, NONE, 0, 0, 0},
          {PLAN_STAGED_PIECE_SUM, SHARD, NONE, 0, 0, 0},
          {PLAN_STAGED_PIECE_REDUCE, NONE, SHARD, 0, 1, 0},
          {PLAN_STAGED_PIECE_COPY, NONE, SHARD, 1, 1, 0}}},
        {RING_OP_REDUCE,
         PLAN_HIERARCHICAL_STAGED,
         PLAN_TREE_NODE_ORDER,
         false,
         {{PLAN_STAGED_SHARDS, SHARD, NONE, 0, 0, 0},
          {PLAN_STAGED_ROOT_SUM, SHARD, NONE, 0, 0, 0},
          {PLAN_STAGED_ROOT_REDUCE, NONE, SHARD, 0, 1, 0},
          {PLAN_STAGED_ROOT_COPY, NONE, SHARD, 1, 1, 0}}},
        {RING_OP_BROADCAST,
         PLAN_HIERARCHICAL_STAGED,
         0,
         false,
         {{PLAN_STAGED_DEAL, SHARD, SHARD, 0, 0, 0},
          {PLAN_STAGED_CARRY, SHARD, SHARD, 0, 1, 0},
          {PLAN_STAGED_RELAY, NONE, SHARD, 1, 1, 0},
          {PLAN_STAGED_COPY, NONE, SHARD, 1, 1, 0}}},
        {RING_OP_ALL_GATHER,
         PLAN_HIERARCHICAL_STAGED,
         0,
         false,
         {{PLAN_STAGED_SPREAD, WHOLE, BLOCK, 0, 0, 0},
          {PLAN_STAGED_NEAR, NONE, BLOCK, 0, 0, 0},
          {PLAN_STAGED_COLLECT, NONE, BLOCK, 0, 1, 0},
          {PLAN_STAGED_SHARE, NONE, BLOCK, 1, 1, 0}}},
        {RING_OP_REDUCE_SCATTER,
         PLAN_HIERARCHICAL_STAGED,
         PLAN_TREE_NODE_ORDER,
         false,
         {{PLAN_STAGED_BLOCKS, BLOCK, NONE, 0, 0, 0},
          {PLAN_STAGED_BLOCK_SUM, BLOCK, NONE, 0, 0, 0},
          {PLAN_NODE_BLOCK_REDUCE, NONE, WHOLE, 0, 0, 0}}},
};
#define N_PLANNERS (sizeof(planners) / sizeof(planners[0]))

static struct plan_phase *phase_add(struct plan *plan, const struct between *what) {
        struct plan_phase *phase = &plan->phases[plan->n_phases++];

        *phase = (struct plan_phase){
                .kind = PLAN_PASS,
                .who = PLAN_WHO_ALL,
                .peers = PLAN_PEERS_SELF,
                .schedule = what->schedule,
                .in_range = what->in_range,
                .out_range = what->out_range,
                .region_in = what->region_in,
                .region_out = what->region_out,
                .after = (int8_t)what->after,
        };
        return phase;
}

static void build(const struct node_planner *planner, struct plan *plan) {
        static const struct between meet_first = {.schedule = PLAN_NODE_MEET};
        const struct between meet_last = {.schedule = PLAN_NODE_MEET, .region_in = 1, .region_out = 1};
        const bool staged = planner->algorithm == PLAN_HIERARCHICAL_STAGED ||
                            planner->algorithm == PLAN_HIERARCHICAL_STAGED_SCATTER;
        const struct plan_nodes *nodes = plan->nodes;
        struct plan_phase *phase;

        plan->tree = planner->tree;
        plan->partials = planner->tree != PLAN_TREE_NONE;
        plan->n_regions = 2;
        plan->n_shards = planner->cut ? plan->n_ranks / nodes->n_nodes * nodes->n_nodes : plan_nodes_largest(nodes);
        if (planner->algorithm == PLAN_HIERARCHICAL_DOUBLE_TREE) /* two halves each, and no more than ranks */
                plan->n_shards = 2 * (plan->n_shards < plan->n_ranks / 2 ? plan->n_shards : plan->n_ranks / 2);
        if (!staged)
                phase_add(plan, &meet_first)->after = -1;
        for (uint32_t i = 0; i < BETWEEN_MAX && planner->between[i].schedule != PLAN_SCHEDULE_NONE; i++) {
                phase = phase_add(plan, &planner->between[i]);
                phase->after = staged ? -1 : phase->after;
        }
        if (staged)
                return;
        phase = phase_add(plan, &meet_last);
        phase->after = (int8_t)(plan->n_phases - 2);
        phase->after_whole = 1;
}

/* Plans of one node that are of use on several. */
static bool flat_fits(uint32_t operation, uint32_t algorithm) {
        return algorithm != PLAN_ZERO_COPY || operation == RING_OP_SEND;
}

int plan_build_nodes(uint32_t operation, uint32_t algorithm, uint32_t n_ranks, const struct plan_nodes *nodes,
                     struct plan *ret_plan) {
        struct plan plan = {.operation = operation, .algorithm = algorithm, .n_ranks = n_ranks, .nodes = nodes};
        int r;

        if (n_ranks < 1 || n_ranks > PLAN_RANKS_MAX || nodes->n_nodes < 2 || !plan_nodes_valid(nodes, n_ranks))
                return PLAN_E_INVALID;
        for (size_t i = 0; i < N_PLANNERS; i++)
                if (planners[i].operation == operation && planners[i].algorithm == algorithm) {
                        build(&planners[i], &plan);
                        *ret_plan = plan;
                        return PLAN_OK;
                }
        if (!flat_fits(operation, algorithm))
                return PLAN_E_UNSUPPORTED;
        r = plan_build(operation, algorithm, n_ranks, &plan);
        if (r)
                return r;
        plan.nodes = plan_operation_p2p(operation) ? NULL : nodes;
        *ret_plan = plan;
        return PLAN_OK;
}

uint32_t plan_algorithm_at_nodes(uint32_t operation, uint32_t n_ranks, const struct plan_nodes *nodes, uint32_t k) {
        uint32_t algorithm;

        if (nodes->n_nodes < 2)
                return PLAN_ALGORITHM_NONE;
        for (uint32_t i = 0; (algorithm = plan_algorithm_at(operation, n_ranks, i)) != PLAN_ALGORITHM_NONE; i++)
                if (flat_fits(operation, algorithm) && k-- == 0)
                        return algorithm;
        for (size_t i = 0; i < N_PLANNERS; i++)
                if (planners[i].operation == operation && k-- == 0)
                        return planners[i].algorithm;
        return PLAN_ALGORITHM_NONE;
}
