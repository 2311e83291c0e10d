/* SPDX-License-Identifier: MIT */
/* Schedules over nodes for operations whose data is in blocks, one for each rank. What they do is said in pass_node.c.
 */
#include "plan/pass_node.h"

static uint32_t blocks(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t to = k < node_n_counterparts(v) ? node_counterpart(v, k, true) : v->me;

        step_node_sum(v, to, step);
        step->partial_out = true;
        step_target(step, to);
        return to;
}

static uint32_t block_reduce(const struct node_view *v, struct plan_step *step) {
        step_node_sums(v, v->local, step);
        step_output(step, v->me, v->me);
        return v->me;
}

static uint32_t spread(const struct node_view *v, struct plan_step *step) {
        step_input(step, v->me, v->me);
        step_node_all(v, v->me, step);
        for (uint32_t d = 1; d < v->n; d++)
                step_target(step, node_stand_in(v, (v->node + d) % v->n));
        return v->me;
}

static uint32_t collect(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t from;

        if (node_n_counterparts(v) == 0)
                return step_node_idle(v, step);
        from = node_counterpart(v, k, false);
        step_chunk(step, from);
        step_node_all(v, from, step);
        return from;
}

static uint32_t gather_send(const struct node_view *v, struct plan_step *step) {
        step_input(step, v->me, v->me);
        if (v->node == v->root_node)
                step_output(step, v->root, v->me);
        else
                step_target(step, node_stand_in(v, v->root_node));
        return v->me;
}

static uint32_t gather_take(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t from;

        if (v->node != v->root_node || node_n_counterparts(v) == 0)
                return step_node_idle(v, step);
        from = node_counterpart(v, k, false);
        step_chunk(step, from);
        step_output(step, v->root, from);
        return from;
}

static uint32_t scatter_send(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t to = k < node_n_counterparts(v) ? node_counterpart(v, k, true) : v->me;

        step_input(step, v->root, to);
        if (to == v->me)
                step_output(step, v->me, v->me);
        else
                step_target(step, to);
        return to;
}

static uint32_t scatter_take(const struct node_view *v, struct plan_step *step) {
        step_chunk(step, node_stand_in(v, v->root_node));
        step_output(step, v->me, v->me);
        return v->me;
}

/* The own one last. */
static uint32_t all_to_all_read(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t from = plan_nodes_rank(v->nodes, v->node, (v->local + 1 + k) % v->size);

        step_input(step, from, v->me);
        step_output(step, v->me, from);
        return from;
}

static uint32_t all_to_all_send(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t to;

        if (node_n_counterparts(v) == 0)
                return step_node_idle(v, step);
        to = node_counterpart(v, k % node_n_counterparts(v), true);
        step_input(step, plan_nodes_rank(v->nodes, v->node, k / node_n_counterparts(v)), to);
        step_target(step, to);
        return to;
}

static uint32_t all_to_all_take(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t i = 0, d = 1, node, from; /* the i-th rank of the node at distance d */

        for (;; d = d + 1 < v->n ? d + 1 : 1, i += d == 1) {
                node = (v->node + v->n - d) % v->n;
                if (i < plan_nodes_size(v->nodes, node) && k-- == 0)
                        break;
        }
        from = plan_nodes_rank(v->nodes, node, i);
        step_chunk(step, node_stand_in(v, node));
        step_output(step, v->me, from);
        return from;
}

/* The k-th rank of another node behind me, or before me. */
static uint32_t stranger(const struct node_view *v, uint32_t k, bool up) {
        uint32_t n = v->plan->n_ranks, rank = v->me;

        do
                do
                        rank = (rank + (up ? 1 : n - 1)) % n;
                while (v->nodes->node[rank] == v->node);
        while (k-- > 0);
        return rank;
}

static uint32_t pair_send(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t to = stranger(v, k, true);

        step_input(step, v->me, to);
        step_target(step, to);
        return to;
}

static uint32_t pair_take(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t from = stranger(v, k, false);

        step_chunk(step, from);
        step_output(step, v->me, from);
        return from;
}

/* ------------------------------------------------------------------------------------------------------------------ */
static uint32_t at_least_one(uint32_t steps) {
        return steps > 0 ? steps : 1;
}

uint32_t pass_block_steps(const struct node_view *v, uint32_t schedule) {
        bool at_root = v->node == v->root_node;

        switch (schedule) {
        case PLAN_NODE_BLOCKS:
                return node_n_counterparts(v) + 1;
        case PLAN_NODE_BLOCK_REDUCE:
        case PLAN_NODE_SPREAD:
        case PLAN_NODE_GATHER_SEND:
                return 1;
        case PLAN_NODE_COLLECT:
                return at_least_one(node_n_counterparts(v));
        case PLAN_NODE_GATHER_TAKE:
                return at_root ? at_least_one(node_n_counterparts(v)) : 1;
        case PLAN_NODE_SCATTER_SEND:
                return at_root ? node_n_counterparts(v) + 1 : 0;
        case PLAN_NODE_SCATTER_TAKE:
                return at_root ? 0 : 1;
        case PLAN_NODE_ALL_TO_ALL_READ:
                return v->size;
        case PLAN_NODE_ALL_TO_ALL_SEND:
                return at_least_one(node_n_counterparts(v) * v->size);
        case PLAN_NODE_ALL_TO_ALL_TAKE:
        case PLAN_NODE_PAIR_SEND:
        case PLAN_NODE_PAIR_TAKE:
                return v->plan->n_ranks - v->size;
        default:
                return 0;
        }
}

uint32_t pass_block_step(const struct node_view *v, uint32_t schedule, uint32_t k, struct plan_step *step) {
        switch (schedule) {
        case PLAN_NODE_BLOCKS:
                return blocks(v, k, step);
        case PLAN_NODE_BLOCK_REDUCE:
                return block_reduce(v, step);
        case PLAN_NODE_SPREAD:
                return spread(v, step);
        case PLAN_NODE_COLLECT:
                return collect(v, k, step);
        case PLAN_NODE_GATHER_SEND:
                return gather_send(v, step);
        case PLAN_NODE_GATHER_TAKE:
                return gather_take(v, k, step);
        case PLAN_NODE_SCATTER_SEND:
                return scatter_send(v, k, step);
        case PLAN_NODE_SCATTER_TAKE:
                return scatter_take(v, step);
        case PLAN_NODE_ALL_TO_ALL_READ:
                return all_to_all_read(v, k, step);
        case PLAN_NODE_ALL_TO_ALL_SEND:
                return all_to_all_send(v, k, step);
        case PLAN_NODE_ALL_TO_ALL_TAKE:
                return all_to_all_take(v, k, step);
        case PLAN_NODE_PAIR_SEND:
                return pair_send(v, k, step);
        case PLAN_NODE_PAIR_TAKE:
                return pair_take(v, k, step);
        default:
                return v->me;
        }
}
