/* SPDX-License-Identifier: MIT */
/*
 * Two trees of nodes at once
 *
 * In a binary tree half of the nodes are leaves, which send their sum and get the result, while a node with two
 * children and a parent sends three times and gets three. Two trees in which nobody has children twice share that out:
 * each shard is cut in two, the first half goes through tree 0, the second through tree 1, and a node sends and gets
 * four halves at most. Hops are those of one tree. (Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan, Parallel Computing 35, 2009.)
 *
 * Tree 0 is that of pass_node.c, the children of place u are places 2u + 1 and 2u + 2 of M; tree 1 is the same, counted
 * from the other end. Who has children is below M / 2, counted from its tree's root, so nobody has some in both. For an
 * all_reduce places are nodes. A rooted operation has trees of the M = N - 1 other nodes, from the one behind the
 * root's upwards, and the root's node has both their roots for children: so it moves each half once, too.
 *
 * A shard is carried by one rank of each node as in pass_node.c, its halves are 2c and 2c + 1. What a node does where
 * it is a leaf and what it does where it has children are two phases: in one, each would hold up the next part of the
 * other tree, and parts would follow one another as slowly as they pass through a tree. Each end of a channel is still
 * of one phase: a node has different parents in both trees, or (two nodes, the root's and a leaf) is a leaf in both.
 *
 *   LEAF_UP     y(h) -> parent (p), for halves h in whose tree the node is a leaf
 *   UP          y(h), children's chunks -> parent (p), or at the root all(h): for the other halves
 *   DOWN        parent's chunk, or what the root has written (broadcast: the root's input) -> all(h), children
 *   LEAF_DOWN   parent's chunk -> all(h)
 *
 * A plan ends when its last phase has: LEAF_DOWN, or UP of a reduce. So that it is the last, the other phase of the
 * same way, DOWN or LEAF_UP, sends a signal to its own rank behind each shard, and the last phase takes it. With
 * `after` in its place two ranks that carry several shards would wait for each other, each with its channel full.
 */
#include "plan/pass_node.h"

#define TREES 2u

/* Places of a tree. */
static uint32_t places(const struct node_view *v) {
        return node_rooted(v) ? v->n - 1 : v->n;
}

/* The node at place u of a tree; and the other way around, where the root's node of a rooted operation has the place
 * behind the last. */
static uint32_t node_at(const struct node_view *v, uint32_t tree, uint32_t u) {
        uint32_t at = tree == 0 ? u : places(v) - 1 - u;

        return node_rooted(v) ? (v->root_node + 1 + at) % v->n : at;
}
static uint32_t place_in(const struct node_view *v, uint32_t tree) {
        uint32_t m = places(v), at = node_rooted(v) ? (v->node + 2 * v->n - v->root_node - 1) % v->n : v->node;

        return at == m || tree == 0 ? at : m - 1 - at;
}

/* Above both trees. */
static bool on_top(const struct node_view *v) {
        return node_rooted(v) && v->node == v->root_node;
}

static bool has_children(const struct node_view *v, uint32_t tree) {
        return on_top(v) || 2 * place_in(v, tree) + 1 < places(v);
}

static bool has_parent(const struct node_view *v, uint32_t tree) {
        return !on_top(v) && (node_rooted(v) || place_in(v, tree) > 0);
}

/* Who carries shard c there. */
static uint32_t parent(const struct node_view *v, uint32_t tree, uint32_t c) {
        uint32_t u = place_in(v, tree);

        return node_carrier(v, u == 0 ? v->root_node : node_at(v, tree, (u - 1) / 2), c);
}

static uint32_t children(const struct node_view *v, uint32_t tree, uint32_t c, uint32_t ret_carriers[2]) {
        uint32_t first = on_top(v) ? 0 : 2 * place_in(v, tree) + 1, last = on_top(v) ? 0 : first + 1, n = 0;

        for (uint32_t u = first; u <= last && u < places(v); u++)
                ret_carriers[n++] = node_carrier(v, node_at(v, tree, u), c);
        return n;
}

static void step_up(const struct node_view *v, uint32_t tree, uint32_t c, struct plan_step *step) {
        uint32_t half = TREES * c + tree, from[2], n = children(v, tree, c, from);

        step_node_sum(v, half, step);
        for (uint32_t i = 0; i < n; i++)
                step_chunk(step, from[i]);
        step->partial_in = true;
        if (has_parent(v, tree)) {
                step->partial_out = true;
                step_target(step, parent(v, tree, c));
        } else {
                step->finish = true;
                step_node_result(v, half, step);
        }
}

static void step_down(const struct node_view *v, uint32_t tree, uint32_t c, struct plan_step *step) {
        uint32_t half = TREES * c + tree, to[2], n = children(v, tree, c, to);

        if (has_parent(v, tree))
                step_chunk(step, parent(v, tree, c));
        else if (node_rooted(v))
                step_input(step, v->root, half);
        else
                step_written(step, v->me, half);
        if (has_parent(v, tree) || node_rooted(v))
                step_node_all(v, half, step);
        for (uint32_t i = 0; i < n; i++)
                step_target(step, to[i]);
}

/* The trees in which the node does what a phase is for. */
static uint32_t trees_of(const struct node_view *v, uint32_t schedule, uint32_t ret_trees[TREES]) {
        bool leaf = schedule == PLAN_NODE_DOUBLE_LEAF_UP || schedule == PLAN_NODE_DOUBLE_LEAF_DOWN;
        uint32_t n = 0;

        for (uint32_t tree = 0; tree < TREES; tree++)
                if (has_children(v, tree) != leaf)
                        ret_trees[n++] = tree;
        return n;
}

static bool goes_up(uint32_t schedule) {
        return schedule == PLAN_NODE_DOUBLE_LEAF_UP || schedule == PLAN_NODE_DOUBLE_UP;
}

/* Of each shard: a step for each of those trees, and the signal, if it is the last way. */
static uint32_t steps_of_shard(const struct node_view *v, uint32_t schedule) {
        uint32_t trees[TREES];

        return trees_of(v, schedule, trees) + (!goes_up(schedule) || node_rooted(v));
}

uint32_t pass_double_steps(const struct node_view *v, uint32_t schedule) {
        return node_n_carried(v, v->plan->n_shards / TREES) * steps_of_shard(v, schedule);
}

uint32_t pass_double_step(const struct node_view *v, uint32_t schedule, uint32_t k, struct plan_step *step) {
        bool signals = schedule == PLAN_NODE_DOUBLE_LEAF_UP || schedule == PLAN_NODE_DOUBLE_DOWN;
        uint32_t trees[TREES], n = steps_of_shard(v, schedule), i = k % n, c = node_carried(v, k / n);

        if (i == trees_of(v, schedule, trees)) {
                step->data = false;
                if (signals)
                        step_target(step, v->me);
                else
                        step_chunk(step, v->me);
                return v->me;
        }
        if (goes_up(schedule))
                step_up(v, trees[i], c, step);
        else
                step_down(v, trees[i], c, step);
        return TREES * c + trees[i];
}
