/* SPDX-License-Identifier: MIT */
#pragma once
/* What the schedules over nodes share. See pass_node.c. */
#include "plan/nodes.h"
#include "plan/pass.h"

/* Where a rank is among the nodes. */
struct node_view {
        const struct plan *plan;
        const struct plan_nodes *nodes;
        uint32_t n, me, node, local, size; /* n: nodes */
        uint32_t root, root_node;
};

static inline struct node_view node_view_of(const struct plan *plan, uint32_t me, uint32_t root) {
        const struct plan_nodes *nodes = plan->nodes;

        return (struct node_view){
                .plan = plan,
                .nodes = nodes,
                .n = nodes->n_nodes,
                .me = me,
                .node = nodes->node[me],
                .local = nodes->local[me],
                .size = plan_nodes_size(nodes, nodes->node[me]),
                .root = root < plan->n_ranks ? root : 0,
                .root_node = nodes->node[root < plan->n_ranks ? root : 0],
        };
}

/* Who carries shard c, or stands for ranks of local index c, on a node. */
static inline uint32_t node_carrier(const struct node_view *v, uint32_t node, uint32_t c) {
        return plan_nodes_rank(v->nodes, node, c % plan_nodes_size(v->nodes, node));
}

/* Of n consecutive numbers, those that belong to the own local index; and the i-th of them. */
static inline uint32_t node_n_carried(const struct node_view *v, uint32_t n) {
        return v->local < n ? (n - v->local + v->size - 1) / v->size : 0;
}
static inline uint32_t node_carried(const struct node_view *v, uint32_t i) {
        return v->local + i * v->size;
}

/* Sources: y(index). */
static inline void step_node_sum(const struct node_view *v, uint32_t index, struct plan_step *step) {
        for (uint32_t i = 0; i < v->size; i++)
                step_input(step, plan_nodes_rank(v->nodes, v->node, i), index);
}

/* Outputs: all(index), the own one first. */
static inline void step_node_all(const struct node_view *v, uint32_t index, struct plan_step *step) {
        for (uint32_t i = 0; i < v->size; i++)
                step_output(step, plan_nodes_rank(v->nodes, v->node, (v->local + i) % v->size), index);
}

/* Sources: the sums of all nodes in node order, the own one from the channel to itself. */
static inline void step_node_sums(const struct node_view *v, uint32_t c, struct plan_step *step) {
        for (uint32_t i = 0; i < v->n; i++)
                step_chunk(step, i == v->node ? v->me : node_carrier(v, i, c));
        step->partial_in = true;
        step->finish = true;
}

static inline bool node_rooted(const struct node_view *v) {
        return plan_operation_rooted(v->plan->operation);
}

/* Outputs of what is complete: the root's, or all. */
static inline void step_node_result(const struct node_view *v, uint32_t c, struct plan_step *step) {
        if (node_rooted(v))
                step_output(step, v->root, c);
        else
                step_node_all(v, c, step);
}

static inline uint32_t step_node_idle(const struct node_view *v, struct plan_step *step) {
        step->data = false;
        return v->me;
}

/* Ranks of a node for which the own local index stands; all of them on other nodes; and the k-th of these, from the
 * node at distance 1 on, upwards or downwards. */
static inline uint32_t node_stands_for(const struct node_view *v, uint32_t node) {
        return node_n_carried(v, plan_nodes_size(v->nodes, node));
}
static inline uint32_t node_n_counterparts(const struct node_view *v) {
        uint32_t n = 0;

        for (uint32_t node = 0; node < v->n; node++)
                n += node == v->node ? 0 : node_stands_for(v, node);
        return n;
}
static inline uint32_t node_counterpart(const struct node_view *v, uint32_t k, bool up) {
        uint32_t node;

        for (uint32_t d = 1;; d++) {
                node = (v->node + (up ? d : v->n - d)) % v->n;
                if (k < node_stands_for(v, node))
                        return plan_nodes_rank(v->nodes, node, node_carried(v, k));
                k -= node_stands_for(v, node);
        }
}

/* Who stands for me on another node. */
static inline uint32_t node_stand_in(const struct node_view *v, uint32_t node) {
        return node_carrier(v, node, v->local);
}

/* ---- blocks that belong to a rank (pass_block.c) ----------------------------------------------------------------- */
uint32_t pass_block_steps(const struct node_view *v, uint32_t schedule);
uint32_t pass_block_step(const struct node_view *v, uint32_t schedule, uint32_t k, struct plan_step *step);

/* ---- two trees of nodes (pass_double.c) -------------------------------------------------------------------------- */
uint32_t pass_double_steps(const struct node_view *v, uint32_t schedule);
uint32_t pass_double_step(const struct node_view *v, uint32_t schedule, uint32_t k, struct plan_step *step);

/* ---- by channels alone (pass_staged.c) --------------------------------------------------------------------------- */
uint32_t pass_staged_steps(const struct node_view *v, uint32_t schedule);
uint32_t pass_staged_step(const struct node_view *v, uint32_t schedule, uint32_t k, struct plan_step *step);
