/* SPDX-License-Identifier: MIT */
/*
 * Schedules over nodes
 *
 * Inside a node ranks read and write each other's memory where it lies; between nodes there are channels only. So that
 * every rank's GPU and rail carry their share, an array is cut into G shards, and shard c is the business of one rank
 * on each node, its carrier: the one with local index c modulo the number of ranks there. Carriers of one shard talk to
 * each other and to nobody else; with equally many ranks on each node these are ranks of equal local index, on one
 * rail. Blocks that belong to a rank take that rank's local index in place of c.
 *
 * N nodes, I am on node j, where m ranks are; nodes are taken modulo N. As in pass.c, `source -> output, target`, (p)
 * marks accumulators. y(c) = inputs of all ranks of the own node at c, in rank order. A rank goes through the shards
 * that it carries in ascending order, and whoever is at the other end of a channel does so too: that keeps chunks apart
 * where a rank that is alone on its node carries several of them. all(c): outputs of all ranks of the node at c.
 *
 * Frame. MEET: a signal to each other rank of the node, then one from each. A plan begins with it ("my memory may be
 * used") and ends with it ("I no longer use yours"), in another region; in between it needs no channels inside the
 * node. The last MEET waits for one phase, so that one has to come after everything that touches others' memory: by
 * chunks, or by `after`. Where a rank may have nothing to do in it, it has one step that is nothing (idle).
 *
 *   EXCHANGE   y(c)                                -> carriers of c on all nodes (p), own channel included
 *   REDUCE     chunks of all nodes, in node order  -> all(c)
 *
 *   SCATTER, ..._REDUCE, ..._GATHER: shard c is cut once more, piece (c, i) belongs to node i. y(c, i) -> node i (p);
 *   chunks of all nodes in node order -> all(c, j), all nodes; chunk of node i -> all(c, i). What a carrier sends to
 *   itself there is thrown away: with `after` in its place, a rank with several shards would need a slot for each.
 *
 *   DOUBLING   recursive doubling as in pass.c, with nodes for ranks and y(c) for the input
 *   RING       ring all_reduce as in pass.c, with nodes for ranks and y(c, i) for the input's shard i
 *   TREE       up and down as in pass.c, with nodes for ranks, counted from the root's node; CHAIN the same. The root's
 *              node writes the root's output (reduce), or reads the root's input (broadcast)
 *   STAR       the tree whose root has all other nodes for children; its sum is taken in node order, in a step of its
 *              own, so that nobody waits for the root's node
 *   DOUBLE     two trees, see pass_double.c
 *
 *   BLOCKS     for each rank b that I stand for on my node, other nodes first: y(b) -> b (p); the own block last, to
 *              myself, so that who has taken that has done all of them
 *   SPREAD     input -> own block of all outputs of the node, a rank of each other node, which writes it to all of its
 *              own (COLLECT)
 *   GATHER     input -> root's output, or a rank of the root's node, which writes it there
 *   SCATTER    the reverse: a rank of the root's node reads the root's input for its counterparts elsewhere
 *   PAIR       what two ranks of different nodes have for each other, each way by itself
 *   ALL_TO_ALL the rank that stands for s on node j reads the blocks for s from all ranks of the node, and sends them
 *              to s: so everything stays on its rail, and goes through as many slots as one pair has. Round (i, d):
 *              node j sends the blocks of its i-th rank to node j + d, node k takes those of node k - d; so what is
 *              taken first is sent first
 *
 * A step of these schedules reads or writes memory of a rank on the own node, never of another; the verifier looks at
 * each access.
 */
#include "plan/pass_node.h"

/* ---- without data ------------------------------------------------------------------------------------------------ */
static uint32_t meet(const struct node_view *v, uint32_t k, struct plan_step *step) {
        step->data = false;
        for (uint32_t i = 1; i < v->size; i++) {
                uint32_t peer = plan_nodes_rank(v->nodes, v->node, (v->local + i) % v->size);

                if (k == 0)
                        step_target(step, peer);
                else
                        step_chunk(step, peer);
        }
        return v->me;
}

/* Dissemination among the first ranks of the nodes. */
static uint32_t node_barrier(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t d = 1u << k / 2;

        step->data = false;
        if (k % 2 == 0)
                step_target(step, node_carrier(v, (v->node + d) % v->n, 0));
        else
                step_chunk(step, node_carrier(v, (v->node + v->n - d) % v->n, 0));
        return v->me;
}

/* ---- all_reduce -------------------------------------------------------------------------------------------------- */
static uint32_t exchange(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_node_sum(v, c, step);
        step->partial_out = true;
        for (uint32_t d = 1; d < v->n; d++)
                step_target(step, node_carrier(v, (v->node + d) % v->n, c));
        step_target(step, v->me);
        return c;
}

static uint32_t reduce(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_node_sums(v, c, step);
        step_node_all(v, c, step);
        return c;
}

/* The own piece last, so that the others are on their way. */
static uint32_t scatter(const struct node_view *v, uint32_t c, uint32_t k, struct plan_step *step) {
        uint32_t to = (v->node + 1 + k) % v->n;

        step_node_sum(v, c * v->n + to, step);
        step->partial_out = true;
        step_target(step, to == v->node ? v->me : node_carrier(v, to, c));
        return c * v->n + to;
}

static uint32_t scatter_reduce(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_node_sums(v, c, step);
        step_node_all(v, c * v->n + v->node, step);
        for (uint32_t d = 1; d < v->n; d++)
                step_target(step, node_carrier(v, (v->node + d) % v->n, c));
        step_target(step, v->me);
        return c * v->n + v->node;
}

/* The last one only says that the own piece is done: the meeting at the end waits for this phase. */
static uint32_t scatter_gather(const struct node_view *v, uint32_t c, uint32_t k, struct plan_step *step) {
        uint32_t from = (v->node + 2 * v->n - 1 - k) % v->n;

        step_chunk(step, from == v->node ? v->me : node_carrier(v, from, c));
        if (from != v->node)
                step_node_all(v, c * v->n + from, step);
        return c * v->n + from;
}

static uint32_t levels_of(const struct node_view *v) {
        uint32_t levels = 0;

        while (v->n >> (levels + 1))
                levels++;
        return levels;
}

static uint32_t doubling(const struct node_view *v, uint32_t c, uint32_t k, struct plan_step *step) {
        uint32_t levels = levels_of(v), p = 1u << levels, extra = v->node + p, partner;

        if (v->node >= p) { /* hands its sum over, gets the result */
                if (k == 0) {
                        step_node_sum(v, c, step);
                        step->partial_out = true;
                        step_target(step, node_carrier(v, v->node - p, c));
                } else {
                        step_chunk(step, node_carrier(v, v->node - p, c));
                        step_node_all(v, c, step);
                }
                return c;
        }
        step->partial_in = true;
        if (k == 0) {
                step_node_sum(v, c, step);
                if (extra < v->n)
                        step_chunk(step, node_carrier(v, extra, c));
        } else {
                partner = v->node ^ 1u << (k - 1);
                step_chunk(step, partner < v->node ? node_carrier(v, partner, c) : v->me);
                step_chunk(step, partner < v->node ? v->me : node_carrier(v, partner, c));
        }
        if (k < levels) {
                step->partial_out = true;
                step_target(step, node_carrier(v, v->node ^ 1u << k, c));
                step_target(step, v->me);
        } else {
                step->finish = true;
                step_node_all(v, c, step);
                if (extra < v->n)
                        step_target(step, node_carrier(v, extra, c));
        }
        return c;
}

static uint32_t doubling_steps(const struct node_view *v) {
        uint32_t levels = levels_of(v);

        return v->node >= 1u << levels ? 2 : levels + 1;
}

/* What has come goes before what is added, but a sum of several inputs is no single term: it is taken from the channel
 * to itself, where it waits since two steps per shard ago. So each step but the last is two: sum, then combine. */
static uint32_t ring(const struct node_view *v, uint32_t c, uint32_t k, struct plan_step *step) {
        uint32_t turn = k < 2 * v->n - 1 ? (k + 1) / 2 : k - v->n + 1; /* step of the ring in pass.c */
        uint32_t index = c * v->n + (2 * v->n + v->node - 1 - turn % v->n) % v->n;
        uint32_t prev = node_carrier(v, (v->node + v->n - 1) % v->n, c),
                 next = node_carrier(v, (v->node + 1) % v->n, c);

        if (k == 0) {
                step_node_sum(v, index, step);
                step->partial_out = true;
                step_target(step, next);
                return index;
        }
        if (k < 2 * v->n - 1 && k % 2 == 1) {
                step_node_sum(v, index, step);
                step->partial_out = true;
                step_target(step, v->me);
                return index;
        }
        step_chunk(step, prev);
        if (turn < v->n) {
                step_chunk(step, v->me);
                step->partial_in = true;
        }
        step->partial_out = turn + 1 < v->n;
        step->finish = turn + 1 == v->n;
        if (turn + 1 >= v->n)
                step_node_all(v, index, step);
        if (turn < 2 * v->n - 2)
                step_target(step, next);
        return index;
}

static uint32_t ring_steps(const struct node_view *v) {
        return 3 * v->n - 2; /* n - 1 sums more than in pass.c */
}

/* ---- trees, chains and stars of nodes ---------------------------------------------------------------------------- */
/* Node `place` counted from the root's. */
static uint32_t node_at(const struct node_view *v, uint32_t place) {
        return (place + (node_rooted(v) ? v->root_node : 0)) % v->n;
}
static uint32_t place_of(const struct node_view *v) {
        return (v->node + v->n - node_at(v, 0)) % v->n;
}

static uint32_t tree_up(const struct node_view *v, uint32_t c, struct plan_step *step) {
        uint32_t place = place_of(v);

        step_node_sum(v, c, step);
        for (uint32_t child = 2 * place + 1; child <= 2 * place + 2 && child < v->n; child++)
                step_chunk(step, node_carrier(v, node_at(v, child), c));
        step->partial_in = true;
        if (place == 0) {
                step->finish = true;
                step_node_result(v, c, step);
        } else {
                step->partial_out = true;
                step_target(step, node_carrier(v, node_at(v, (place - 1) / 2), c));
        }
        return c;
}

/* Source of what goes down, and where the own node has it. */
static void step_down(const struct node_view *v, uint32_t c, uint32_t parent, struct plan_step *step) {
        if (place_of(v) > 0)
                step_chunk(step, node_carrier(v, node_at(v, parent), c));
        else if (node_rooted(v))
                step_input(step, v->root, c);
        else
                step_written(step, v->me, c);
        if (place_of(v) > 0 || node_rooted(v))
                step_node_all(v, c, step);
}

static uint32_t tree_down(const struct node_view *v, uint32_t c, struct plan_step *step) {
        uint32_t place = place_of(v);

        step_down(v, c, (place - 1) / 2, step);
        for (uint32_t child = 2 * place + 1; child <= 2 * place + 2 && child < v->n; child++)
                step_target(step, node_carrier(v, node_at(v, child), c));
        return c;
}

/* From the root's neighbour upwards; the sum of a node waits in the channel to itself, as in ring(). */
static uint32_t chain_up(const struct node_view *v, uint32_t c, uint32_t k, struct plan_step *step) {
        uint32_t place = (place_of(v) + v->n - 1) % v->n, next = node_carrier(v, (v->node + 1) % v->n, c);

        if (k == 0) {
                step_node_sum(v, c, step);
                step->partial_out = true;
                step_target(step, place == 0 ? next : v->me);
                return c;
        }
        step_chunk(step, node_carrier(v, (v->node + v->n - 1) % v->n, c));
        step_chunk(step, v->me);
        step->partial_in = true;
        if (v->node == v->root_node) {
                step->finish = true;
                step_node_result(v, c, step);
        } else {
                step->partial_out = true;
                step_target(step, next);
        }
        return c;
}

static uint32_t chain_down(const struct node_view *v, uint32_t c, struct plan_step *step) {
        uint32_t place = place_of(v);

        step_down(v, c, place - 1, step);
        if (place + 1 < v->n)
                step_target(step, node_carrier(v, node_at(v, place + 1), c));
        return c;
}

static uint32_t star_up(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_node_sum(v, c, step);
        step->partial_out = true;
        step_target(step, v->node == v->root_node ? v->me : node_carrier(v, v->root_node, c));
        return c;
}

static uint32_t star_reduce(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_node_sums(v, c, step);
        step_node_result(v, c, step);
        return c;
}

static uint32_t star_down(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_down(v, c, 0, step);
        for (uint32_t place = 1; place_of(v) == 0 && place < v->n; place++)
                step_target(step, node_carrier(v, node_at(v, place), c));
        return c;
}

/* ------------------------------------------------------------------------------------------------------------------ */
/* Steps of each shard that a rank carries. */
static uint32_t steps_of_shard(const struct node_view *v, uint32_t schedule) {
        switch (schedule) {
        case PLAN_NODE_SCATTER:
        case PLAN_NODE_SCATTER_GATHER:
                return v->n;
        case PLAN_NODE_DOUBLING:
                return doubling_steps(v);
        case PLAN_NODE_RING:
                return ring_steps(v);
        case PLAN_NODE_CHAIN_UP:
                return (place_of(v) + v->n - 1) % v->n == 0 ? 1 : 2;
        default:
                return 1;
        }
}

/* How many shards all nodes' carriers have: pieces of shards, where those are cut once more, belong to one. */
static uint32_t n_shards(const struct node_view *v, uint32_t schedule) {
        bool cut = schedule == PLAN_NODE_SCATTER || schedule == PLAN_NODE_SCATTER_REDUCE ||
                   schedule == PLAN_NODE_SCATTER_GATHER || schedule == PLAN_NODE_RING;

        return cut ? v->plan->n_shards / v->n : v->plan->n_shards;
}

uint32_t pass_node_steps(const struct plan *plan, uint32_t schedule, uint32_t me, uint32_t root) {
        struct node_view v = node_view_of(plan, me, root);
        uint32_t steps = 0, n;

        if (schedule >= PLAN_SCHEDULE_STAGED)
                return pass_staged_steps(&v, schedule);
        if (schedule >= PLAN_SCHEDULE_BLOCKS)
                return pass_block_steps(&v, schedule);
        if (schedule >= PLAN_SCHEDULE_DOUBLE)
                return pass_double_steps(&v, schedule);
        switch (schedule) {
        case PLAN_NODE_MEET:
                return v.size > 1 ? 2 : 0;
        case PLAN_NODE_BARRIER:
                while (v.local == 0 && 1u << steps / 2 < v.n)
                        steps += 2;
                return steps;
        default:
                n = node_n_carried(&v, n_shards(&v, schedule)) * steps_of_shard(&v, schedule);
                if (schedule == PLAN_NODE_STAR_REDUCE)
                        return v.node == v.root_node && n > 0 ? n : 1;
                return n;
        }
}

uint32_t pass_node_step(const struct plan *plan, uint32_t schedule, uint32_t me, uint32_t root, uint32_t k,
                        struct plan_step *step) {
        struct node_view v = node_view_of(plan, me, root);
        uint32_t n, c;

        if (schedule >= PLAN_SCHEDULE_STAGED)
                return pass_staged_step(&v, schedule, k, step);
        if (schedule >= PLAN_SCHEDULE_BLOCKS)
                return pass_block_step(&v, schedule, k, step);
        if (schedule >= PLAN_SCHEDULE_DOUBLE)
                return pass_double_step(&v, schedule, k, step);
        if (schedule == PLAN_NODE_MEET)
                return meet(&v, k, step);
        if (schedule == PLAN_NODE_BARRIER)
                return node_barrier(&v, k, step);
        n = steps_of_shard(&v, schedule);
        c = node_carried(&v, k / n);
        switch (schedule) {
        case PLAN_NODE_EXCHANGE:
                return exchange(&v, c, step);
        case PLAN_NODE_REDUCE:
                return reduce(&v, c, step);
        case PLAN_NODE_SCATTER:
                return scatter(&v, c, k % n, step);
        case PLAN_NODE_SCATTER_REDUCE:
                return scatter_reduce(&v, c, step);
        case PLAN_NODE_SCATTER_GATHER:
                return scatter_gather(&v, c, k % n, step);
        case PLAN_NODE_DOUBLING:
                return doubling(&v, c, k % n, step);
        case PLAN_NODE_RING:
                return ring(&v, c, k % n, step);
        case PLAN_NODE_TREE_UP:
                return tree_up(&v, c, step);
        case PLAN_NODE_TREE_DOWN:
                return tree_down(&v, c, step);
        case PLAN_NODE_CHAIN_UP:
                return chain_up(&v, c, k % n, step);
        case PLAN_NODE_CHAIN_DOWN:
                return chain_down(&v, c, step);
        case PLAN_NODE_STAR_UP:
                return star_up(&v, c, step);
        case PLAN_NODE_STAR_REDUCE:
                return v.node == v.root_node && c < plan->n_shards ? star_reduce(&v, c, step)
                                                                   : step_node_idle(&v, step);
        default:
                return star_down(&v, c, step);
        }
}
