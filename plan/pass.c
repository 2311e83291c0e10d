/* SPDX-License-Identifier: MIT */
/*
 * Schedules: who passes what to whom in which step
 *
 * Each function below lists the steps of one rank for one part. `source + source -> output, target` says what a step
 * combines and where it goes; (p) marks accumulators that are passed on. n ranks, I am `me`; ranks are taken modulo n.
 *
 * Ring. Shard or block s starts at rank s + 1 and comes home to s, so its tree is "rotated, owner s".
 *   all_reduce      k = 0            input[me-1]                   -> next (p)
 *                   k = 1 .. n-2     prev + input[me-1-k]          -> next (p)
 *                   k = n-1          prev + input[me]              -> output[me], next
 *                   k = n .. 2n-3    prev                          -> output[me-1-k], next
 *                   k = 2n-2         prev                          -> output[me-1-k]
 *   reduce_scatter  the first n of these, and nothing is sent in the last
 *   all_gather      input -> output[me], next; then prev -> output[me-k], next; the last is not sent on
 *   A shard is read in step k < n and written n - 1 steps later at the earliest, or in the same step, so in place
 * works.
 *
 * Chain. reduce: from root + 1 upwards, root is last. broadcast: from root upwards.
 *
 * Tree. Node v = me - root has the children 2v+1 and 2v+2. Up: input + children -> parent (p); down: parent -> output,
 * children. The root of an all_reduce (rank 0) sends down what it has written in its own step up.
 *
 * Recursive doubling. p is the largest power of two <= n; rank p + i hands its input to rank i first and gets the
 * result last. In step k the partners differ in bit k; both compute lower + upper, so both have the same bits. Between
 * steps a rank keeps its accumulator in its channel to itself.
 *
 * all_gather, any n: in round d = 1, 2, 4, ... a rank sends the blocks me, me+1, ... that it has, at most d of them, to
 * me - d and gets as many from me + d (Bruck et al. 1997, without the final rotation: blocks carry their place).
 *
 * barrier: the same without data (Hensgen, Finkel, Manber 1988: dissemination).
 *
 * Recursive halving (Rabenseifner 2004), with the nearest partner first, so that the tree is that of recursive
 * doubling. Shard i belongs to rank i < p. After level k a rank keeps the shards that agree with it in bits 0..k, and
 * it handles them in the order
 *
 *   O_k(me)[j] = me ^ (~j mod 2^(L-1-k)) << (k+1),   L = log2 p
 *
 * in which what the next level sends and keeps alternates: O_k(me)[2j] is sent, as the partner's O_{k+1}[j], and
 * O_k(me)[2j+1] = O_{k+1}(me)[j] is kept. So every level is "send one, receive one", accumulators wait in the channel
 * to itself in the order in which they are needed, and any number of slots >= 1 will do between ranks. The way back
 * sends O_k(me)[j] to the partner of level k and gets O_k(partner)[j], from the last level to the first.
 */
#include "plan/pass.h"

static uint32_t log2_floor(uint32_t n) {
        uint32_t log = 0;

        while (n >> (log + 1))
                log++;
        return log;
}

/* ---- ring and chain ---------------------------------------------------------------------------------------------- */
static uint32_t ring_reduce(uint32_t n, uint32_t me, uint32_t k, bool gather, struct plan_step *step) {
        uint32_t index = (2 * n + me - 1 - k % n) % n, prev = (me + n - 1) % n, next = (me + 1) % n;

        if (k > 0)
                step_chunk(step, prev);
        if (k < n)
                step_input(step, me, index);
        step->partial_in = k > 0 && k < n;
        step->partial_out = k + 1 < n;
        step->finish = k + 1 == n;
        if (k + 1 >= n)
                step_output(step, me, index);
        if (k + 1 < n || (gather && k < 2 * n - 2))
                step_target(step, next);
        return index;
}

static uint32_t ring_all_gather(uint32_t n, uint32_t me, uint32_t k, struct plan_step *step) {
        uint32_t index = (me + n - k) % n;

        if (k == 0)
                step_input(step, me, me);
        else
                step_chunk(step, (me + n - 1) % n);
        step_output(step, me, index);
        if (k + 1 < n)
                step_target(step, (me + 1) % n);
        return index;
}

static uint32_t chain_reduce(uint32_t n, uint32_t me, uint32_t root, struct plan_step *step) {
        uint32_t place = (me + n - root + n - 1) % n;

        if (place > 0)
                step_chunk(step, (me + n - 1) % n);
        step_input(step, me, me);
        step->partial_in = true;
        if (me == root) {
                step->finish = true;
                step_output(step, me, me);
        } else {
                step->partial_out = true;
                step_target(step, (me + 1) % n);
        }
        return me;
}

static uint32_t chain_broadcast(uint32_t n, uint32_t me, uint32_t root, struct plan_step *step) {
        if (me == root)
                step_input(step, me, me);
        else
                step_chunk(step, (me + n - 1) % n);
        step_output(step, me, me);
        if ((me + 1) % n != root)
                step_target(step, (me + 1) % n);
        return me;
}

/* ---- trees ------------------------------------------------------------------------------------------------------- */
static uint32_t tree_up(uint32_t n, uint32_t me, uint32_t root, struct plan_step *step) {
        uint32_t v = (me + n - root) % n;

        step_input(step, me, me);
        for (uint32_t child = 2 * v + 1; child <= 2 * v + 2 && child < n; child++)
                step_chunk(step, (child + root) % n);
        step->partial_in = true;
        if (v == 0) {
                step->finish = true;
                step_output(step, me, me);
        } else {
                step->partial_out = true;
                step_target(step, ((v - 1) / 2 + root) % n);
        }
        return me;
}

static uint32_t tree_down(uint32_t n, uint32_t me, uint32_t root, struct plan_step *step) {
        uint32_t v = (me + n - root) % n;

        if (v > 0)
                step_chunk(step, ((v - 1) / 2 + root) % n);
        else if (step->reduce)
                step_written(step, me, me);
        else
                step_input(step, me, me);
        if (v > 0 || !step->reduce)
                step_output(step, me, me);
        for (uint32_t child = 2 * v + 1; child <= 2 * v + 2 && child < n; child++)
                step_target(step, (child + root) % n);
        return me;
}

/* ---- recursive doubling ------------------------------------------------------------------------------------------ */
/* The accumulators of `me` and its partner, the lower rank's first. */
static void step_pair(struct plan_step *step, uint32_t me, uint32_t partner, bool own_is_input, uint32_t index) {
        if (partner < me)
                step_chunk(step, partner);
        if (own_is_input)
                step_input(step, me, index);
        else
                step_chunk(step, me);
        if (partner > me)
                step_chunk(step, partner);
        step->partial_in = true;
}

static uint32_t doubling_all_reduce(uint32_t n, uint32_t me, uint32_t k, struct plan_step *step) {
        uint32_t levels = log2_floor(n), p = 1u << levels, extra = me + p;

        if (me >= p) { /* hands its input over, gets the result */
                if (k == 0) {
                        step_input(step, me, me);
                        step->partial_out = true;
                        step_target(step, me - p);
                } else {
                        step_chunk(step, me - p);
                        step_output(step, me, me);
                }
                return me;
        }
        step->partial_in = true;
        if (k == 0) {
                step_input(step, me, me);
                if (extra < n)
                        step_chunk(step, extra);
        } else {
                step_pair(step, me, me ^ 1u << (k - 1), false, me);
        }
        if (k < levels) {
                step->partial_out = true;
                step_target(step, me ^ 1u << k);
                step_target(step, me);
        } else {
                step->finish = true;
                step_output(step, me, me);
                if (extra < n)
                        step_target(step, extra);
        }
        return me;
}

static uint32_t doubling_all_gather(uint32_t n, uint32_t me, uint32_t k, struct plan_step *step) {
        uint32_t d = 1, blocks, j;

        if (k-- == 0) {
                step_input(step, me, me);
                step_output(step, me, me);
                return me;
        }
        for (;; d *= 2) {
                blocks = d < n - d ? d : n - d;
                if (k < 2 * blocks)
                        break;
                k -= 2 * blocks;
        }
        j = k / 2;
        if (k % 2 == 0) {
                uint32_t index = (me + j) % n;

                step_written(step, me, index);
                step_target(step, (me + n - d) % n);
                return index;
        }
        step_chunk(step, (me + d) % n);
        step_output(step, me, (me + d + j) % n);
        return (me + d + j) % n;
}

static uint32_t doubling_barrier(uint32_t n, uint32_t me, uint32_t k, struct plan_step *step) {
        uint32_t d = 1u << k / 2;

        step->data = false;
        if (k % 2 == 0)
                step_target(step, (me + d) % n);
        else
                step_chunk(step, (me + n - d) % n);
        return me;
}

/* ---- recursive halving ------------------------------------------------------------------------------------------- */
struct halving {
        uint32_t levels, p, me;
        bool kept; /* the own accumulators wait in the channel to itself, from the beginning */
};

/* O_k(rank)[j]; k = -1: all shards. */
static uint32_t halving_shard(const struct halving *h, int k, uint32_t rank, uint32_t j) {
        uint32_t size = 1u << (h->levels - 1 - (uint32_t)k);

        return rank ^ (~j & (size - 1)) << (uint32_t)(k + 1);
}

static uint32_t halving_down(const struct halving *h, uint32_t k, struct plan_step *step, bool scatter) {
        uint32_t level = 0, partner, shard;
        bool own_is_input;

        while (k >= h->p >> level) { /* level has p / 2^level steps */
                k -= h->p >> level;
                level++;
        }
        partner = h->me ^ 1u << level;
        own_is_input = level == 0 && !h->kept;
        shard = halving_shard(h, (int)level - 1, h->me, k);
        step->partial_in = true;
        if (k % 2 == 0) {
                if (own_is_input)
                        step_input(step, h->me, shard);
                else
                        step_chunk(step, h->me);
                step->partial_out = true;
                step_target(step, partner);
                return shard;
        }
        step_pair(step, h->me, partner, own_is_input, shard);
        if (level + 1 < h->levels) {
                step->partial_out = true;
                step_target(step, h->me);
        } else {
                step->finish = true;
                step_output(step, h->me, scatter ? h->me : shard);
        }
        return shard;
}

static uint32_t halving_up(const struct halving *h, uint32_t k, struct plan_step *step) {
        uint32_t level = h->levels - 1, partner, shard;

        while (k >= h->p >> level) {
                k -= h->p >> level;
                level--;
        }
        partner = h->me ^ 1u << level;
        if (k % 2 == 0) {
                shard = halving_shard(h, (int)level, h->me, k / 2);
                step_written(step, h->me, shard);
                step_target(step, partner);
        } else {
                shard = halving_shard(h, (int)level, partner, k / 2);
                step_chunk(step, partner);
                step_output(step, h->me, shard);
        }
        return shard;
}

/* Steps of all levels of one direction: p + p/2 + ... + 2. */
static uint32_t halving_steps(uint32_t p) {
        return 2 * (p - 1);
}

static uint32_t halving_all_reduce(uint32_t n, uint32_t me, uint32_t k, struct plan_step *step) {
        struct halving h = {.levels = log2_floor(n)};
        bool has_extra;
        uint32_t shard;

        h.p = 1u << h.levels;
        if (n == 1) {
                step_input(step, me, 0);
                step->finish = true;
                step_output(step, me, 0);
                return 0;
        }
        if (me >= h.p) { /* hands its shards over in the order in which its partner needs them, gets them back */
                if (k < h.p) {
                        shard = halving_shard(&h, -1, me - h.p, k);
                        step_input(step, me, shard);
                        step->partial_out = true;
                        step_target(step, me - h.p);
                        return shard;
                }
                step_chunk(step, me - h.p);
                step_output(step, me, k - h.p);
                return k - h.p;
        }
        h.me = me;
        has_extra = h.kept = me + h.p < n;
        if (has_extra) {
                if (k < h.p) {
                        shard = halving_shard(&h, -1, me, k);
                        step_input(step, me, shard);
                        step_chunk(step, me + h.p);
                        step->partial_in = step->partial_out = true;
                        step_target(step, me);
                        return shard;
                }
                k -= h.p;
        }
        if (k < halving_steps(h.p))
                return halving_down(&h, k, step, false);
        k -= halving_steps(h.p);
        if (k < halving_steps(h.p))
                return halving_up(&h, k, step);
        k -= halving_steps(h.p);
        step_written(step, me, k);
        step_target(step, me + h.p);
        return k;
}

static uint32_t halving_reduce_scatter(uint32_t n, uint32_t me, uint32_t k, struct plan_step *step) {
        struct halving h = {.levels = log2_floor(n), .p = n, .me = me};

        if (n == 1) {
                step_input(step, me, 0);
                step->finish = true;
                step_output(step, me, 0);
                return 0;
        }
        return halving_down(&h, k, step, true);
}

static uint32_t halving_all_reduce_steps(uint32_t n, uint32_t me) {
        uint32_t p = 1u << log2_floor(n);

        if (n == 1)
                return 1;
        if (me >= p)
                return 2 * p;
        return 2 * halving_steps(p) + (me + p < n ? 2 * p : 0);
}

/* ------------------------------------------------------------------------------------------------------------------ */
uint32_t pass_steps(uint32_t schedule, uint32_t n, uint32_t me, uint32_t root) {
        uint32_t levels = log2_floor(n), steps = 0;

        switch (schedule) {
        case PLAN_RING_ALL_REDUCE:
                return 2 * n - 1;
        case PLAN_RING_REDUCE_SCATTER:
        case PLAN_RING_ALL_GATHER:
                return n;
        case PLAN_CHAIN_REDUCE:
        case PLAN_CHAIN_BROADCAST:
        case PLAN_TREE_UP:
                return 1;
        case PLAN_TREE_DOWN:
                (void)root;
                return 1;
        case PLAN_DOUBLING_ALL_REDUCE:
                return me >= 1u << levels ? 2 : levels + 1;
        case PLAN_DOUBLING_ALL_GATHER:
                return 2 * n - 1;
        case PLAN_DOUBLING_BARRIER:
                while (1u << steps / 2 < n)
                        steps += 2;
                return steps;
        case PLAN_HALVING_ALL_REDUCE:
                return halving_all_reduce_steps(n, me);
        case PLAN_HALVING_REDUCE_SCATTER:
                return n == 1 ? 1 : halving_steps(n);
        default:
                return 0;
        }
}

uint32_t pass_step(uint32_t schedule, uint32_t n, uint32_t me, uint32_t root, uint32_t k, struct plan_step *step) {
        switch (schedule) {
        case PLAN_RING_ALL_REDUCE:
                return ring_reduce(n, me, k, true, step);
        case PLAN_RING_REDUCE_SCATTER:
                return ring_reduce(n, me, k, false, step);
        case PLAN_RING_ALL_GATHER:
                return ring_all_gather(n, me, k, step);
        case PLAN_CHAIN_REDUCE:
                return chain_reduce(n, me, root, step);
        case PLAN_CHAIN_BROADCAST:
                return chain_broadcast(n, me, root, step);
        case PLAN_TREE_UP:
                return tree_up(n, me, root, step);
        case PLAN_TREE_DOWN:
                return tree_down(n, me, root, step);
        case PLAN_DOUBLING_ALL_REDUCE:
                return doubling_all_reduce(n, me, k, step);
        case PLAN_DOUBLING_ALL_GATHER:
                return doubling_all_gather(n, me, k, step);
        case PLAN_DOUBLING_BARRIER:
                return doubling_barrier(n, me, k, step);
        case PLAN_HALVING_ALL_REDUCE:
                return halving_all_reduce(n, me, k, step);
        case PLAN_HALVING_REDUCE_SCATTER:
                return halving_reduce_scatter(n, me, k, step);
        default:
                return me;
        }
}
