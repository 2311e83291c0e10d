/* SPDX-License-Identifier: MIT */
/*
 * Schedules over nodes by channels alone
 *
 * Between nodes these do what those in pass_node.c and pass_block.c do: shard c is the business of its carrier on each
 * node, and whoever carries it talks to carriers of c on other nodes and to nobody else. But inside a node, too, ranks
 * exchange chunks and touch nobody's memory. That is how GPUs work whose executors have not mapped each other's buffers
 * (or not all of them), and nobody needs to meet anybody before or after.
 *
 * Notation as there; own channels included where it says all nodes. In region 0 goes what has still to be added up or
 * passed on to other nodes, in region 1 what is complete (planner_node.c); so each end of a channel belongs to one
 * phase.
 *
 *   SHARDS   input c -> carrier of c on the own node, for all c that somebody else carries
 *   SUM      y(c), from the chunks of the node's ranks and the own input, in rank order -> all carriers of c (p)
 *   REDUCE   chunks of all nodes, in node order -> own output c, all ranks of the node
 *   COPY     chunk of the carrier of c -> own output c, for all c that somebody else carries
 *
 *   PIECES, PIECE_SUM: the same with pieces (c, i), of which only node i gets the sums. They are sent off in the order
 *   of the nodes behind the own one.
 *   PIECE_REDUCE: chunks of all nodes -> carriers of c on all nodes.
 *   PIECE_COPY: what a carrier gets from there -> own output, ranks of the node; what others get from it -> own output.
 *   This is one phase, as both come in region 1. All ranks of a node go through all pieces in one order, so whoever
 *   waits for a piece waits for somebody who waits for an earlier one at most.
 *
 *   ROOT_SUM, ROOT_REDUCE, ROOT_COPY: as SUM, REDUCE and COPY, but all of it goes to carriers on the root's node, and
 *   then to the root.
 *
 *   DEAL     the root: input c -> own output, carrier of c on its node (others)
 *   CARRY    on the root's node: chunk of the root, or its input -> own output (others), carriers of c on other nodes,
 *            all ranks of the node but the root
 *   RELAY    elsewhere: chunk of that carrier -> own output, ranks of the node. Then COPY
 *
 *   BLOCKS   input block b -> who stands for b on the own node, for all b for which somebody else does
 *   BLOCK_SUM  y(b) -> b (p), other nodes first; then b adds the nodes' sums up (BLOCK_REDUCE in pass_block.c)
 *
 *   SPREAD   input -> own block, all ranks of the node, who stands for me on each other node
 *   NEAR     their blocks -> output. COLLECT: blocks of other nodes -> output, ranks of the node. SHARE: from there
 *
 * Order. A rank goes through shards in ascending order, those that it carries and those that it does not, and through
 * blocks by the distance of their node and then in rank order; so do both ends of each channel. Therefore two slots in
 * each channel will do, also in that of a rank to itself, however many shards it carries: whoever waits at a part and
 * shard waits for somebody who is at that one or before it.
 */
#include "plan/pass_node.h"

/* How many there are; cut: of those that are cut into a piece for each node. */
static uint32_t n_shards(const struct node_view *v, bool cut) {
        return cut ? v->plan->n_shards / v->n : v->plan->n_shards;
}

static bool carries(const struct node_view *v, uint32_t c) {
        return c % v->size == v->local;
}

/* Of `n` shards, those that others carry; and the k-th. */
static uint32_t n_others(const struct node_view *v, uint32_t n) {
        return n - node_n_carried(v, n);
}
static uint32_t other(const struct node_view *v, uint32_t k) {
        uint32_t c = 0;

        for (;; c++)
                if (!carries(v, c) && k-- == 0)
                        return c;
}

/* Sources: y(index), the other ranks' contributions from chunks. */
static void step_staged_sum(const struct node_view *v, uint32_t index, struct plan_step *step) {
        for (uint32_t i = 0; i < v->size; i++) {
                uint32_t rank = plan_nodes_rank(v->nodes, v->node, i);

                if (rank == v->me)
                        step_input(step, rank, index);
                else
                        step_chunk(step, rank);
        }
        step->partial_out = true;
}

/* Targets: the other ranks of the node; and all carriers of c on other nodes. */
static void step_node_others(const struct node_view *v, struct plan_step *step) {
        for (uint32_t i = 1; i < v->size; i++)
                step_target(step, plan_nodes_rank(v->nodes, v->node, (v->local + i) % v->size));
}
static void step_far_carriers(const struct node_view *v, uint32_t c, struct plan_step *step) {
        for (uint32_t d = 1; d < v->n; d++)
                step_target(step, node_carrier(v, (v->node + d) % v->n, c));
}

/* ---- all_reduce -------------------------------------------------------------------------------------------------- */
static uint32_t shards(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_input(step, v->me, c);
        step_target(step, node_carrier(v, v->node, c));
        return c;
}

static uint32_t sum(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_staged_sum(v, c, step);
        step_far_carriers(v, c, step);
        step_target(step, v->me);
        return c;
}

static uint32_t reduce(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_node_sums(v, c, step);
        step_output(step, v->me, c);
        step_node_others(v, step);
        return c;
}

static uint32_t copy(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_chunk(step, node_carrier(v, v->node, c));
        step_output(step, v->me, c);
        return c;
}

/* ---- all_reduce, piece by piece ---------------------------------------------------------------------------------- */
/* The k-th piece that leaves, or comes. */
static uint32_t piece_out(const struct node_view *v, uint32_t c, uint32_t k) {
        return c * v->n + (v->node + 1 + k) % v->n;
}
static uint32_t piece_in(const struct node_view *v, uint32_t c, uint32_t k) {
        return c * v->n + (v->node + v->n - k) % v->n;
}

static uint32_t pieces(const struct node_view *v, uint32_t c, uint32_t k, struct plan_step *step) {
        step_input(step, v->me, piece_out(v, c, k));
        step_target(step, node_carrier(v, v->node, c));
        return piece_out(v, c, k);
}

static uint32_t piece_sum(const struct node_view *v, uint32_t c, uint32_t k, struct plan_step *step) {
        uint32_t piece = piece_out(v, c, k), to = piece % v->n;

        step_staged_sum(v, piece, step);
        step_target(step, to == v->node ? v->me : node_carrier(v, to, c));
        return piece;
}

static uint32_t piece_reduce(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_node_sums(v, c, step);
        step_far_carriers(v, c, step);
        step_target(step, v->me);
        return c * v->n + v->node;
}

static uint32_t piece_copy(const struct node_view *v, uint32_t c, uint32_t k, struct plan_step *step) {
        uint32_t piece = piece_in(v, c, k), from = piece % v->n;

        if (carries(v, c)) {
                step_chunk(step, from == v->node ? v->me : node_carrier(v, from, c));
                step_node_others(v, step);
        } else {
                step_chunk(step, node_carrier(v, v->node, c));
        }
        step_output(step, v->me, piece);
        return piece;
}

/* ---- reduce ------------------------------------------------------------------------------------------------------ */
static uint32_t root_sum(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_staged_sum(v, c, step);
        step_target(step, v->node == v->root_node ? v->me : node_carrier(v, v->root_node, c));
        return c;
}

static uint32_t root_reduce(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_node_sums(v, c, step);
        if (v->me == v->root)
                step_output(step, v->me, c);
        else
                step_target(step, v->root);
        return c;
}

/* ---- broadcast --------------------------------------------------------------------------------------------------- */
static uint32_t deal(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_input(step, v->me, c);
        step_output(step, v->me, c);
        if (!carries(v, c))
                step_target(step, node_carrier(v, v->node, c));
        return c;
}

static uint32_t carry(const struct node_view *v, uint32_t c, struct plan_step *step) {
        if (v->me == v->root) {
                step_input(step, v->me, c);
        } else {
                step_chunk(step, v->root);
                step_output(step, v->me, c);
        }
        step_far_carriers(v, c, step);
        for (uint32_t i = 1; i < v->size; i++) {
                uint32_t rank = plan_nodes_rank(v->nodes, v->node, (v->local + i) % v->size);

                if (rank != v->root)
                        step_target(step, rank);
        }
        return c;
}

static uint32_t relay(const struct node_view *v, uint32_t c, struct plan_step *step) {
        step_chunk(step, node_carrier(v, v->root_node, c));
        step_output(step, v->me, c);
        step_node_others(v, step);
        return c;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */
/* The k-th block for which somebody else of the own node stands: nodes in the order of `up`, the own one last. all: not
 * only blocks of other nodes. */
static uint32_t others_block(const struct node_view *v, uint32_t k, bool up, bool all) {
        for (uint32_t d = 1; d <= v->n; d++) {
                uint32_t node = (v->node + (up ? d : v->n - d)) % v->n;

                for (uint32_t i = 0; i < plan_nodes_size(v->nodes, node) && (all || d < v->n); i++)
                        if (!carries(v, i) && k-- == 0)
                                return plan_nodes_rank(v->nodes, node, i);
        }
        return v->me;
}

static uint32_t n_others_blocks(const struct node_view *v, bool all) {
        return v->plan->n_ranks - node_n_counterparts(v) - (all ? 1 : v->size);
}

static uint32_t blocks(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t b = others_block(v, k, true, true);

        step_input(step, v->me, b);
        step_target(step, node_carrier(v, v->node, v->nodes->local[b]));
        return b;
}

static uint32_t block_sum(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t to = k < node_n_counterparts(v) ? node_counterpart(v, k, true) : v->me;

        step_staged_sum(v, to, step);
        step_target(step, to);
        return to;
}

static uint32_t spread(const struct node_view *v, struct plan_step *step) {
        step_input(step, v->me, v->me);
        step_output(step, v->me, v->me);
        for (uint32_t d = 1; d < v->n; d++)
                step_target(step, node_stand_in(v, (v->node + d) % v->n));
        step_node_others(v, step);
        return v->me;
}

static uint32_t near(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t from = plan_nodes_rank(v->nodes, v->node, (v->local + v->size - 1 - k) % v->size);

        step_chunk(step, from);
        step_output(step, v->me, from);
        return from;
}

static uint32_t collect(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t from = node_counterpart(v, k, false);

        step_chunk(step, from);
        step_output(step, v->me, from);
        step_node_others(v, step);
        return from;
}

static uint32_t share(const struct node_view *v, uint32_t k, struct plan_step *step) {
        uint32_t from = others_block(v, k, false, false);

        step_chunk(step, node_carrier(v, v->node, v->nodes->local[from]));
        step_output(step, v->me, from);
        return from;
}

/* ------------------------------------------------------------------------------------------------------------------ */
uint32_t pass_staged_steps(const struct node_view *v, uint32_t schedule) {
        const uint32_t n = n_shards(v, false), n_cut = n_shards(v, true);
        const bool rooted = plan_operation_rooted(v->plan->operation);

        switch (schedule) {
        case PLAN_STAGED_SHARDS:
                return n_others(v, n);
        case PLAN_STAGED_COPY:
                return rooted && v->me == v->root ? 0 : n_others(v, n);
        case PLAN_STAGED_SUM:
        case PLAN_STAGED_REDUCE:
        case PLAN_STAGED_ROOT_SUM:
                return node_n_carried(v, n);
        case PLAN_STAGED_PIECES:
                return n_others(v, n_cut) * v->n;
        case PLAN_STAGED_PIECE_SUM:
                return node_n_carried(v, n_cut) * v->n;
        case PLAN_STAGED_PIECE_REDUCE:
                return node_n_carried(v, n_cut);
        case PLAN_STAGED_PIECE_COPY:
                return n_cut * v->n;
        case PLAN_STAGED_ROOT_REDUCE:
        case PLAN_STAGED_CARRY:
                return v->node == v->root_node ? node_n_carried(v, n) : 0;
        case PLAN_STAGED_ROOT_COPY:
                return v->me == v->root ? n_others(v, n) : 0;
        case PLAN_STAGED_DEAL:
                return v->me == v->root ? n : 0;
        case PLAN_STAGED_RELAY:
                return v->node == v->root_node ? 0 : node_n_carried(v, n);
        case PLAN_STAGED_BLOCKS:
                return n_others_blocks(v, true);
        case PLAN_STAGED_BLOCK_SUM:
                return node_n_counterparts(v) + 1;
        case PLAN_STAGED_SPREAD:
                return 1;
        case PLAN_STAGED_NEAR:
                return v->size - 1;
        case PLAN_STAGED_COLLECT:
                return node_n_counterparts(v);
        case PLAN_STAGED_SHARE:
                return n_others_blocks(v, false);
        default:
                return 0;
        }
}

uint32_t pass_staged_step(const struct node_view *v, uint32_t schedule, uint32_t k, struct plan_step *step) {
        switch (schedule) {
        case PLAN_STAGED_SHARDS:
                return shards(v, other(v, k), step);
        case PLAN_STAGED_SUM:
                return sum(v, node_carried(v, k), step);
        case PLAN_STAGED_REDUCE:
                return reduce(v, node_carried(v, k), step);
        case PLAN_STAGED_COPY:
        case PLAN_STAGED_ROOT_COPY:
                return copy(v, other(v, k), step);
        case PLAN_STAGED_PIECES:
                return pieces(v, other(v, k / v->n), k % v->n, step);
        case PLAN_STAGED_PIECE_SUM:
                return piece_sum(v, node_carried(v, k / v->n), k % v->n, step);
        case PLAN_STAGED_PIECE_REDUCE:
                return piece_reduce(v, node_carried(v, k), step);
        case PLAN_STAGED_PIECE_COPY:
                return piece_copy(v, k / v->n, k % v->n, step);
        case PLAN_STAGED_ROOT_SUM:
                return root_sum(v, node_carried(v, k), step);
        case PLAN_STAGED_ROOT_REDUCE:
                return root_reduce(v, node_carried(v, k), step);
        case PLAN_STAGED_DEAL:
                return deal(v, k, step);
        case PLAN_STAGED_CARRY:
                return carry(v, node_carried(v, k), step);
        case PLAN_STAGED_RELAY:
                return relay(v, node_carried(v, k), step);
        case PLAN_STAGED_BLOCKS:
                return blocks(v, k, step);
        case PLAN_STAGED_BLOCK_SUM:
                return block_sum(v, k, step);
        case PLAN_STAGED_SPREAD:
                return spread(v, step);
        case PLAN_STAGED_NEAR:
                return near(v, k, step);
        case PLAN_STAGED_COLLECT:
                return collect(v, k, step);
        case PLAN_STAGED_SHARE:
                return share(v, k, step);
        default:
                return v->me;
        }
}
