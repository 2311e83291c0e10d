/* SPDX-License-Identifier: MIT */
/*
 * The planners. Each writes the phases of one algorithm; the table at the end is the list of what exists.
 *
 * What makes them safe in place is said at each; the verifier checks it.
 */
#include "plan/plan.h"

#include "ring/ring.h"

static struct plan_phase *phase_add(struct plan *plan, uint32_t kind, uint32_t who, uint32_t peers) {
        struct plan_phase *phase = &plan->phases[plan->n_phases++];

        *phase = (struct plan_phase){.kind = (uint8_t)kind, .who = (uint8_t)who, .peers = (uint8_t)peers, .after = -1};
        return phase;
}

static struct plan_phase *phase_moves(struct plan *plan, uint32_t kind, uint32_t who, uint32_t peers, uint32_t in_range,
                                      uint32_t out_range) {
        struct plan_phase *phase = phase_add(plan, kind, who, peers);

        phase->in_range = (uint8_t)in_range;
        phase->out_range = (uint8_t)out_range;
        return phase;
}

static struct plan_phase *phase_push(struct plan *plan, uint32_t who, uint32_t peers, uint32_t in_range) {
        return phase_moves(plan, PLAN_PUSH, who, peers, in_range, PLAN_RANGE_NONE);
}

static struct plan_phase *phase_copy(struct plan *plan, uint32_t who, uint32_t peers, uint32_t out_range) {
        return phase_moves(plan, PLAN_COPY, who, peers, PLAN_RANGE_NONE, out_range);
}

static struct plan_phase *phase_copy_self(struct plan *plan, uint32_t who, uint32_t in_range, uint32_t out_range) {
        return phase_moves(plan, PLAN_COPY, who, PLAN_PEERS_SELF, in_range, out_range);
}

static struct plan_phase *phase_reduce(struct plan *plan, uint32_t who, uint32_t in_range, uint32_t out_range) {
        return phase_moves(plan, PLAN_REDUCE, who, PLAN_PEERS_OTHERS, in_range, out_range);
}

/* A schedule with one region for everything. */
static struct plan_phase *phase_pass(struct plan *plan, uint32_t schedule, uint32_t in_range, uint32_t out_range) {
        struct plan_phase *phase = phase_moves(plan, PLAN_PASS, PLAN_WHO_ALL, PLAN_PEERS_SELF, in_range, out_range);

        phase->schedule = (uint8_t)schedule;
        return phase;
}

static void regions(struct plan_phase *phase, uint32_t in, uint32_t out) {
        phase->region_in = (uint8_t)in;
        phase->region_out = (uint8_t)out;
}

/* ---- one_shot, two_shot ------------------------------------------------------------------------------------------ */
/* One exchange of whole inputs, everybody reduces everything. In place REDUCE overwrites what PUSH still has to send,
 * hence the `after`. */
static void all_reduce_one_shot(struct plan *plan) {
        phase_push(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_WHOLE);
        phase_reduce(plan, PLAN_WHO_ALL, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE)->after = 0;
}

/* Each rank reduces its shard and hands the result on. In place nothing needs an `after`: what REDUCE overwrites, the
 * own shard, is sent to nobody, and the shard that COPY overwrites was sent before its owner could reduce it. */
static void all_reduce_two_shot(struct plan *plan) {
        struct plan_phase *phase;

        phase_push(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_SHARD_PEER);
        phase = phase_reduce(plan, PLAN_WHO_ALL, PLAN_RANGE_SHARD_ME, PLAN_RANGE_SHARD_ME);
        phase->forward = 1;
        regions(phase, 0, 1);
        regions(phase_copy(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_SHARD_PEER), 1, 0);
}

/* ---- direct ------------------------------------------------------------------------------------------------------ */
/* In place the own block is where it belongs, and COPY from others writes only the blocks of others. */
static void all_gather_direct(struct plan *plan) {
        phase_push(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_WHOLE);
        phase_copy_self(plan, PLAN_WHO_ALL, PLAN_RANGE_WHOLE, PLAN_RANGE_BLOCK_ME);
        phase_copy(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_BLOCK_PEER);
}

/* In place the output lies on the own block, which is sent to nobody. */
static void reduce_scatter_direct(struct plan *plan) {
        phase_push(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_BLOCK_PEER);
        phase_reduce(plan, PLAN_WHO_ALL, PLAN_RANGE_BLOCK_ME, PLAN_RANGE_WHOLE);
}

/* In place the root writes nothing. The root needs nothing of the others but credits: it may run ahead. */
static void broadcast_direct(struct plan *plan) {
        phase_push(plan, PLAN_WHO_ROOT, PLAN_PEERS_OTHERS, PLAN_RANGE_WHOLE);
        phase_copy_self(plan, PLAN_WHO_ROOT, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE);
        phase_copy(plan, PLAN_WHO_OTHERS, PLAN_PEERS_ROOT, PLAN_RANGE_WHOLE);
}

/* The root's input is read by the step that overwrites it. */
static void reduce_direct(struct plan *plan) {
        phase_push(plan, PLAN_WHO_OTHERS, PLAN_PEERS_ROOT, PLAN_RANGE_WHOLE);
        phase_reduce(plan, PLAN_WHO_ROOT, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE);
}

static void gather_direct(struct plan *plan) {
        phase_push(plan, PLAN_WHO_OTHERS, PLAN_PEERS_ROOT, PLAN_RANGE_WHOLE);
        phase_copy_self(plan, PLAN_WHO_ROOT, PLAN_RANGE_WHOLE, PLAN_RANGE_BLOCK_ME);
        phase_copy(plan, PLAN_WHO_ROOT, PLAN_PEERS_OTHERS, PLAN_RANGE_BLOCK_PEER);
}

static void scatter_direct(struct plan *plan) {
        phase_push(plan, PLAN_WHO_ROOT, PLAN_PEERS_OTHERS, PLAN_RANGE_BLOCK_PEER);
        phase_copy_self(plan, PLAN_WHO_ROOT, PLAN_RANGE_BLOCK_ME, PLAN_RANGE_WHOLE);
        phase_copy(plan, PLAN_WHO_OTHERS, PLAN_PEERS_ROOT, PLAN_RANGE_WHOLE);
}

/* Not in place: a block that arrives may overwrite one that is still to be sent. */
static void all_to_all_direct(struct plan *plan) {
        phase_push(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_BLOCK_PEER);
        phase_copy_self(plan, PLAN_WHO_ALL, PLAN_RANGE_BLOCK_ME, PLAN_RANGE_BLOCK_ME);
        phase_copy(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_BLOCK_PEER);
}

static void all_to_all_v_direct(struct plan *plan) {
        phase_push(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_VECTOR_SEND);
        phase_copy_self(plan, PLAN_WHO_ALL, PLAN_RANGE_VECTOR_SEND, PLAN_RANGE_VECTOR_RECV);
        phase_copy(plan, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, PLAN_RANGE_VECTOR_RECV);
}

static void barrier_direct(struct plan *plan) {
        phase_add(plan, PLAN_SIGNAL, PLAN_WHO_ALL, PLAN_PEERS_OTHERS);
        phase_add(plan, PLAN_WAIT, PLAN_WHO_ALL, PLAN_PEERS_OTHERS);
}

/* ---- zero_copy --------------------------------------------------------------------------------------------------- */
/*
 * Two signals frame the work: "my memory may be used", before, and "I no longer use yours", after. What a FOLD
 * overwrites in place, shard or block `me` of every output, is input of that FOLD and of no other; a READ writes only
 * its own output, beside its own input.
 */
static void frame_begin(struct plan *plan) {
        phase_add(plan, PLAN_SIGNAL, PLAN_WHO_ALL, PLAN_PEERS_OTHERS);
        phase_add(plan, PLAN_WAIT, PLAN_WHO_ALL, PLAN_PEERS_OTHERS);
}

static void frame_end(struct plan *plan, uint32_t work) {
        struct plan_phase *phase = phase_add(plan, PLAN_SIGNAL, PLAN_WHO_ALL, PLAN_PEERS_OTHERS);

        phase->after = (int8_t)work;
        phase->after_whole = 1;
        regions(phase, 0, 1);
        regions(phase_add(plan, PLAN_WAIT, PLAN_WHO_ALL, PLAN_PEERS_OTHERS), 1, 0);
}

static void all_fold(struct plan *plan, uint32_t peers, uint32_t in_range, uint32_t out_range) {
        frame_begin(plan);
        phase_moves(plan, PLAN_FOLD, PLAN_WHO_ALL, peers, in_range, out_range)->after = 1;
        frame_end(plan, 2);
}

static void all_reduce_zero_copy(struct plan *plan) {
        all_fold(plan, PLAN_PEERS_OTHERS, PLAN_RANGE_SHARD_PEER, PLAN_RANGE_SHARD_PEER);
}

static void reduce_zero_copy(struct plan *plan) {
        all_fold(plan, PLAN_PEERS_ROOT, PLAN_RANGE_SHARD_PEER, PLAN_RANGE_SHARD_PEER);
}

static void reduce_scatter_zero_copy(struct plan *plan) {
        all_fold(plan, PLAN_PEERS_SELF, PLAN_RANGE_BLOCK_PEER, PLAN_RANGE_WHOLE);
}

static void all_read(struct plan *plan, uint32_t in_range, uint32_t out_range, uint32_t self_in, uint32_t self_out) {
        frame_begin(plan);
        phase_moves(plan, PLAN_READ, PLAN_WHO_ALL, PLAN_PEERS_OTHERS, in_range, out_range)->after = 1;
        frame_end(plan, 2);
        phase_copy_self(plan, PLAN_WHO_ALL, self_in, self_out);
}

static void all_gather_zero_copy(struct plan *plan) {
        all_read(plan, PLAN_RANGE_WHOLE, PLAN_RANGE_BLOCK_PEER, PLAN_RANGE_WHOLE, PLAN_RANGE_BLOCK_ME);
}

static void all_to_all_zero_copy(struct plan *plan) {
        all_read(plan, PLAN_RANGE_BLOCK_PEER, PLAN_RANGE_BLOCK_PEER, PLAN_RANGE_BLOCK_ME, PLAN_RANGE_BLOCK_ME);
}

static void all_to_all_v_zero_copy(struct plan *plan) {
        all_read(plan, PLAN_RANGE_VECTOR_SEND, PLAN_RANGE_VECTOR_RECV, PLAN_RANGE_VECTOR_SEND, PLAN_RANGE_VECTOR_RECV);
}

/* `givers` have memory that `takers` (the other role) read. */
static void rooted_read(struct plan *plan, uint32_t givers, uint32_t takers, uint32_t to_takers, uint32_t to_givers,
                        uint32_t region, uint32_t in_range, uint32_t out_range) {
        struct plan_phase *phase;

        regions(phase_add(plan, PLAN_SIGNAL, givers, to_takers), 0, region);
        regions(phase_add(plan, PLAN_WAIT, takers, to_givers), region, 0);
        phase_moves(plan, PLAN_READ, takers, to_givers, in_range, out_range)->after = 1;
        phase = phase_add(plan, PLAN_SIGNAL, takers, to_givers);
        phase->after = 2;
        phase->after_whole = 1;
        regions(phase, 0, region + 1);
        regions(phase_add(plan, PLAN_WAIT, givers, to_takers), region + 1, 0);
}

static void broadcast_zero_copy(struct plan *plan) {
        rooted_read(plan, PLAN_WHO_ROOT, PLAN_WHO_OTHERS, PLAN_PEERS_OTHERS, PLAN_PEERS_ROOT, 0, PLAN_RANGE_WHOLE,
                    PLAN_RANGE_WHOLE);
        phase_copy_self(plan, PLAN_WHO_ROOT, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE);
}

static void scatter_zero_copy(struct plan *plan) {
        rooted_read(plan, PLAN_WHO_ROOT, PLAN_WHO_OTHERS, PLAN_PEERS_OTHERS, PLAN_PEERS_ROOT, 0, PLAN_RANGE_BLOCK_PEER,
                    PLAN_RANGE_WHOLE);
        phase_copy_self(plan, PLAN_WHO_ROOT, PLAN_RANGE_BLOCK_ME, PLAN_RANGE_WHOLE);
}

static void gather_zero_copy(struct plan *plan) {
        rooted_read(plan, PLAN_WHO_OTHERS, PLAN_WHO_ROOT, PLAN_PEERS_ROOT, PLAN_PEERS_OTHERS, 0, PLAN_RANGE_WHOLE,
                    PLAN_RANGE_BLOCK_PEER);
        phase_copy_self(plan, PLAN_WHO_ROOT, PLAN_RANGE_WHOLE, PLAN_RANGE_BLOCK_ME);
}

/* Both halves of a send and its receive, in regions of their own. */
static void send_zero_copy(struct plan *plan) {
        rooted_read(plan, PLAN_WHO_ROOT, PLAN_WHO_PEER, PLAN_PEERS_PEER, PLAN_PEERS_ROOT, PLAN_REGIONS_DATA,
                    PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE);
}

/* ---- schedules (in place: pass.c) -------------------------------------------------------------------------------- */
static void all_reduce_ring(struct plan *plan) {
        phase_pass(plan, PLAN_RING_ALL_REDUCE, PLAN_RANGE_SHARD_PEER, PLAN_RANGE_SHARD_PEER);
}

static void reduce_scatter_ring(struct plan *plan) {
        phase_pass(plan, PLAN_RING_REDUCE_SCATTER, PLAN_RANGE_BLOCK_PEER, PLAN_RANGE_WHOLE);
}

static void all_gather_ring(struct plan *plan) {
        phase_pass(plan, PLAN_RING_ALL_GATHER, PLAN_RANGE_WHOLE, PLAN_RANGE_BLOCK_PEER);
}

static void reduce_ring(struct plan *plan) {
        phase_pass(plan, PLAN_CHAIN_REDUCE, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE);
}

static void broadcast_ring(struct plan *plan) {
        phase_pass(plan, PLAN_CHAIN_BROADCAST, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE);
}

static void all_reduce_doubling(struct plan *plan) {
        phase_pass(plan, PLAN_DOUBLING_ALL_REDUCE, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE);
}

static void all_gather_doubling(struct plan *plan) {
        phase_pass(plan, PLAN_DOUBLING_ALL_GATHER, PLAN_RANGE_WHOLE, PLAN_RANGE_BLOCK_PEER);
}

static void barrier_doubling(struct plan *plan) {
        phase_pass(plan, PLAN_DOUBLING_BARRIER, PLAN_RANGE_NONE, PLAN_RANGE_NONE);
}

static void all_reduce_halving(struct plan *plan) {
        while (plan->n_shards & (plan->n_shards - 1))
                plan->n_shards &= plan->n_shards - 1; /* down to a power of two */
        phase_pass(plan, PLAN_HALVING_ALL_REDUCE, PLAN_RANGE_SHARD_PEER, PLAN_RANGE_SHARD_PEER);
}

static void reduce_scatter_halving(struct plan *plan) {
        phase_pass(plan, PLAN_HALVING_REDUCE_SCATTER, PLAN_RANGE_BLOCK_PEER, PLAN_RANGE_WHOLE);
}

static void reduce_tree(struct plan *plan) {
        phase_pass(plan, PLAN_TREE_UP, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE);
}

static void broadcast_tree(struct plan *plan) {
        phase_pass(plan, PLAN_TREE_DOWN, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE);
}

/* The root may send down a part when its own step up has written it. */
static void all_reduce_tree(struct plan *plan) {
        struct plan_phase *phase;

        reduce_tree(plan);
        phase = phase_pass(plan, PLAN_TREE_DOWN, PLAN_RANGE_WHOLE, PLAN_RANGE_WHOLE);
        phase->after = 0;
        regions(phase, 1, 1);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */
struct planner {
        uint8_t operation;
        uint8_t algorithm;
        uint8_t tree;
        uint8_t partials;
        bool power_of_two;
        void (*build)(struct plan *plan);
};

#define FLAT PLAN_TREE_RANK_ORDER

static const struct planner planners[] = {
        {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, FLAT, 0, false, all_reduce_one_shot},
        {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, FLAT, 0, false, all_reduce_two_shot},
        {RING_OP_ALL_REDUCE, PLAN_ZERO_COPY, FLAT, 0, false, all_reduce_zero_copy},
        {RING_OP_ALL_REDUCE, PLAN_RING, PLAN_TREE_ROTATED, 1, false, all_reduce_ring},
        {RING_OP_ALL_REDUCE, PLAN_RECURSIVE_DOUBLING, PLAN_TREE_DOUBLING, 1, false, all_reduce_doubling},
        {RING_OP_ALL_REDUCE, PLAN_HALVING_DOUBLING, PLAN_TREE_DOUBLING, 1, false, all_reduce_halving},
        {RING_OP_ALL_REDUCE, PLAN_TREE, PLAN_TREE_BINARY, 1, false, all_reduce_tree},
        {RING_OP_REDUCE, PLAN_DIRECT, FLAT, 0, false, reduce_direct},
        {RING_OP_REDUCE, PLAN_ZERO_COPY, FLAT, 0, false, reduce_zero_copy},
        {RING_OP_REDUCE, PLAN_RING, PLAN_TREE_ROTATED, 1, false, reduce_ring},
        {RING_OP_REDUCE, PLAN_TREE, PLAN_TREE_BINARY, 1, false, reduce_tree},
        {RING_OP_BROADCAST, PLAN_DIRECT, 0, 0, false, broadcast_direct},
        {RING_OP_BROADCAST, PLAN_ZERO_COPY, 0, 0, false, broadcast_zero_copy},
        {RING_OP_BROADCAST, PLAN_RING, 0, 0, false, broadcast_ring},
        {RING_OP_BROADCAST, PLAN_TREE, 0, 0, false, broadcast_tree},
        {RING_OP_ALL_GATHER, PLAN_DIRECT, 0, 0, false, all_gather_direct},
        {RING_OP_ALL_GATHER, PLAN_ZERO_COPY, 0, 0, false, all_gather_zero_copy},
        {RING_OP_ALL_GATHER, PLAN_RING, 0, 0, false, all_gather_ring},
        {RING_OP_ALL_GATHER, PLAN_RECURSIVE_DOUBLING, 0, 0, false, all_gather_doubling},
        {RING_OP_REDUCE_SCATTER, PLAN_DIRECT, FLAT, 0, false, reduce_scatter_direct},
        {RING_OP_REDUCE_SCATTER, PLAN_ZERO_COPY, FLAT, 0, false, reduce_scatter_zero_copy},
        {RING_OP_REDUCE_SCATTER, PLAN_RING, PLAN_TREE_ROTATED, 1, false, reduce_scatter_ring},
        {RING_OP_REDUCE_SCATTER, PLAN_HALVING_DOUBLING, PLAN_TREE_DOUBLING, 1, true, reduce_scatter_halving},
        {RING_OP_ALL_TO_ALL, PLAN_DIRECT, 0, 0, false, all_to_all_direct},
        {RING_OP_ALL_TO_ALL, PLAN_ZERO_COPY, 0, 0, false, all_to_all_zero_copy},
        {RING_OP_ALL_TO_ALL_V, PLAN_DIRECT, 0, 0, false, all_to_all_v_direct},
        {RING_OP_ALL_TO_ALL_V, PLAN_ZERO_COPY, 0, 0, false, all_to_all_v_zero_copy},
        {RING_OP_GATHER, PLAN_DIRECT, 0, 0, false, gather_direct},
        {RING_OP_GATHER, PLAN_ZERO_COPY, 0, 0, false, gather_zero_copy},
        {RING_OP_SCATTER, PLAN_DIRECT, 0, 0, false, scatter_direct},
        {RING_OP_SCATTER, PLAN_ZERO_COPY, 0, 0, false, scatter_zero_copy},
        {RING_OP_SEND, PLAN_ZERO_COPY, 0, 0, false, send_zero_copy},
        {RING_OP_BARRIER, PLAN_DIRECT, 0, 0, false, barrier_direct},
        {RING_OP_BARRIER, PLAN_RECURSIVE_DOUBLING, 0, 0, false, barrier_doubling},
};

static bool planner_fits(const struct planner *planner, uint32_t operation, uint32_t n_ranks) {
        return planner->operation == operation && (!planner->power_of_two || (n_ranks & (n_ranks - 1)) == 0);
}

static void count_regions(struct plan *plan) {
        for (uint32_t p = 0; p < plan->n_phases; p++) {
                uint32_t in = plan->phases[p].region_in + 1u, out = plan->phases[p].region_out + 1u;

                plan->n_regions = in > plan->n_regions ? in : plan->n_regions;
                plan->n_regions = out > plan->n_regions ? out : plan->n_regions;
        }
}

int plan_build(uint32_t operation, uint32_t algorithm, uint32_t n_ranks, struct plan *ret_plan) {
        struct plan plan = {.operation = operation, .algorithm = algorithm, .n_ranks = n_ranks, .n_shards = n_ranks};

        if (n_ranks < 1 || n_ranks > PLAN_RANKS_MAX)
                return PLAN_E_INVALID;
        for (size_t i = 0; i < sizeof(planners) / sizeof(planners[0]); i++)
                if (planners[i].algorithm == algorithm && planner_fits(&planners[i], operation, n_ranks)) {
                        plan.tree = planners[i].tree;
                        plan.partials = planners[i].partials;
                        planners[i].build(&plan);
                        count_regions(&plan);
                        *ret_plan = plan;
                        return PLAN_OK;
                }
        return PLAN_E_UNSUPPORTED;
}

uint32_t plan_algorithm_at(uint32_t operation, uint32_t n_ranks, uint32_t k) {
        for (size_t i = 0; i < sizeof(planners) / sizeof(planners[0]); i++)
                if (planner_fits(&planners[i], operation, n_ranks) && k-- == 0)
                        return planners[i].algorithm;
        return PLAN_ALGORITHM_NONE;
}
