/* SPDX-License-Identifier: MIT */
/*
 * What the oracle computes with, and what has to come out
 *
 * A word stands for a number. Those that an element type can hold have sixteen zeros at the end; the first sum has
 * other bits there, and loses them when it is stored as an element. Accumulators are stored in another form, so taking
 * one for the other gives neither. Contributions depend on the rank, adding depends on order and brackets, and
 * finishing twice or never is not finishing once.
 *
 * What has to come out is written down from the definitions of operations and trees in plan/plan.h.
 */
#include <stdlib.h>

#include "oracle_world.h"
#include "plan/nodes.h"
#include "ring/ring.h"

#define ELEMENT_MASK (~UINT64_C(0xffff))
#define PARTIAL_BITS UINT64_C(0x3c6ef372fe94f82b)

uint64_t value_mix(uint64_t x) {
        x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
        x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
        return x ^ x >> 32;
}

uint64_t value_input(uint32_t lap, uint32_t rank, uint64_t i) {
        return value_mix((uint64_t)(lap + 1) << 56 | (uint64_t)rank << 48 | i) & ELEMENT_MASK;
}

uint64_t value_blank(uint32_t lap, uint32_t rank, uint64_t i) {
        return value_mix(~((uint64_t)(lap + 1) << 56 | (uint64_t)rank << 48 | i)) & ELEMENT_MASK;
}

uint64_t value_contribution(uint32_t rank, uint64_t input) {
        return value_mix(input + rank + 1) & ELEMENT_MASK;
}

uint64_t value_combine(uint64_t sum, uint64_t term) {
        return sum * UINT64_C(6364136223846793005) + (term ^ sum >> 29);
}

uint64_t value_finish(uint64_t sum) {
        return value_mix(sum + UINT64_C(0x2545f4914f6cdd1d)) & ELEMENT_MASK;
}

uint64_t value_store(uint64_t value, bool partial) {
        if (!partial)
                return value & ELEMENT_MASK;
        value ^= PARTIAL_BITS;
        return value << 23 | value >> 41;
}

uint64_t value_load(uint64_t word, bool partial) {
        return partial ? (word >> 23 | word << 41) ^ PARTIAL_BITS : word;
}

/* ---- where things are -------------------------------------------------------------------------------------------- */
static uint64_t vector_end(const uint64_t *counts, const uint64_t *offsets, uint32_t n) {
        uint64_t end = 0;

        for (uint32_t r = 0; r < n; r++)
                if (counts[r] > 0 && end < offsets[r] + counts[r])
                        end = offsets[r] + counts[r];
        return end;
}

/* Some room behind the last piece: also that must stay as it is. */
static void layout_vector(struct world *w, const struct plan_case *c, uint32_t rank, struct buffers *b) {
        b->numbers = calloc(4 * (size_t)w->n, sizeof(*b->numbers));
        if (!b->numbers)
                abort();
        plan_case_vector(c, w->n, rank, b->numbers, &b->vector);
        b->shape.vector = &b->vector;
        b->n_in = vector_end(b->vector.send_count, b->vector.send_offset, w->n) + 1;
        b->n_out = vector_end(b->vector.recv_count, b->vector.recv_offset, w->n) + 1;
}

void layout_init(struct world *w, uint32_t lap, uint32_t rank) {
        const struct plan_case *c = &w->requests[lap].pcase;
        uint32_t operation = w->requests[lap].plan->operation;
        uint64_t count = c->count, all = count * w->n, own = count * rank;
        struct buffers *b = &w->buffers[lap][rank];
        bool root = rank == c->root, same = false;

        *b = (struct buffers){.shape = {
                                      .count = count,
                                      .element_bytes = c->element_bytes,
                                      .partial_bytes = c->partial_bytes ? c->partial_bytes : c->element_bytes,
                                      .root = c->root,
                                      .peer = c->peer,
                              }};
        switch (operation) {
        case RING_OP_ALL_REDUCE:
        case RING_OP_REDUCE:
        case RING_OP_BROADCAST:
                b->n_in = operation != RING_OP_BROADCAST || root ? count : 0;
                b->n_out = operation != RING_OP_REDUCE || root ? count : 0;
                same = c->in_place;
                break;
        case RING_OP_ALL_GATHER:
        case RING_OP_GATHER:
                b->n_in = count;
                b->n_out = operation == RING_OP_ALL_GATHER || root ? all : 0;
                same = c->in_place;
                if (same && b->n_out > 0)
                        b->in_at = own;
                break;
        case RING_OP_REDUCE_SCATTER:
        case RING_OP_SCATTER:
                b->n_in = operation == RING_OP_REDUCE_SCATTER || root ? all : 0;
                b->n_out = count;
                same = c->in_place;
                if (same && b->n_in > 0)
                        b->out_at = own;
                break;
        case RING_OP_ALL_TO_ALL:
                b->n_in = b->n_out = all;
                break;
        case RING_OP_ALL_TO_ALL_V:
                layout_vector(w, c, rank, b);
                break;
        case RING_OP_SEND:
                b->n_in = root ? count : 0;
                b->n_out = rank == c->peer ? count : 0;
                if (c->root != c->peer)
                        b->shape.role = root ? PLAN_ROLE_SENDER : rank == c->peer ? PLAN_ROLE_RECEIVER : PLAN_ROLE_ANY;
                break;
        default: /* barrier */
                break;
        }
        if (!same)
                b->out_at = b->n_in;
        b->n_words = b->in_at + b->n_in > b->out_at + b->n_out ? b->in_at + b->n_in : b->out_at + b->n_out;
}

uint64_t layout_first(const struct world *w, uint32_t lap, uint32_t rank, uint64_t at) {
        const struct buffers *b = &w->buffers[lap][rank];

        return at - b->in_at < b->n_in ? value_input(lap, rank, at - b->in_at) : value_blank(lap, rank, at);
}

/* ---- trees ------------------------------------------------------------------------------------------------------- */
struct forest {
        uint32_t lap, n, root;
        uint64_t i; /* of all ranks' inputs */
        uint32_t n_ranks;
        const uint8_t *node; /* of each rank, and n are the nodes; NULL: n are the ranks */
};

/* What number `which` adds: a rank its element, a node those of its ranks. */
static uint64_t leaf(const struct forest *f, uint32_t which) {
        uint64_t sum = 0;
        bool any = false;

        if (!f->node)
                return value_contribution(which, value_input(f->lap, which, f->i));
        for (uint32_t r = 0; r < f->n_ranks; r++) {
                uint64_t term = value_contribution(r, value_input(f->lap, r, f->i));

                if (f->node[r] != which)
                        continue;
                sum = any ? value_combine(sum, term) : term;
                any = true;
        }
        return sum;
}

/* n ranks from `first` on, added one by one. */
static uint64_t tree_row(const struct forest *f, uint32_t first) {
        uint64_t sum = leaf(f, first % f->n);

        for (uint32_t k = 1; k < f->n; k++)
                sum = value_combine(sum, leaf(f, (first + k) % f->n));
        return sum;
}

static uint64_t tree_doubling(const struct forest *f) {
        uint64_t y[PLAN_RANKS_MAX];
        uint32_t p = 1;

        while (p * 2 <= f->n)
                p *= 2;
        for (uint32_t r = 0; r < p; r++)
                y[r] = r + p < f->n ? value_combine(leaf(f, r), leaf(f, r + p)) : leaf(f, r);
        for (; p > 1; p /= 2)
                for (uint32_t r = 0; r < p / 2; r++)
                        y[r] = value_combine(y[2 * r], y[2 * r + 1]);
        return y[0];
}

static uint64_t tree_binary(const struct forest *f, uint32_t v) {
        uint64_t sum = leaf(f, (f->root + v) % f->n);

        if (2 * v + 1 < f->n)
                sum = value_combine(sum, tree_binary(f, 2 * v + 1));
        if (2 * v + 2 < f->n)
                sum = value_combine(sum, tree_binary(f, 2 * v + 2));
        return sum;
}

/* What comes from place v of one of two trees; those of a rooted operation leave the root out, which is first. */
static uint64_t tree_double(const struct forest *f, bool rooted, bool backwards, uint32_t v) {
        uint32_t n = f->n - rooted, from = rooted ? f->root + 1 : 0;
        uint64_t sum = leaf(f, (from + (backwards ? n - 1 - v : v)) % f->n);

        for (uint32_t child = 2 * v + 1; child < n && child <= 2 * v + 2; child++)
                sum = value_combine(sum, tree_double(f, rooted, backwards, child));
        return rooted && v == 0 ? value_combine(leaf(f, f->root), sum) : sum;
}

/* Shards are as long as 1/n of all, rounded up to 16 bytes. */
static uint64_t shard_of(uint64_t i, uint64_t count, uint32_t n_shards, uint32_t element_bytes) {
        uint64_t length = (count + n_shards - 1) / n_shards;

        while (length * element_bytes % 16 != 0)
                length++;
        return i / length;
}

static uint64_t reduced(const struct world *w, uint32_t lap, uint32_t rank, uint64_t i) {
        const struct plan *plan = w->requests[lap].plan;
        const struct plan_case *c = &w->requests[lap].pcase;
        struct forest f = {.lap = lap, .n = w->n, .root = plan_operation_rooted(plan->operation) ? c->root : 0, .i = i};
        uint64_t owner = f.root, shard = shard_of(i, c->count, plan->n_shards, c->element_bytes);

        if (plan->operation == RING_OP_REDUCE_SCATTER) {
                f.i = c->count * rank + i;
                owner = rank;
        } else if (plan->operation == RING_OP_ALL_REDUCE) {
                owner = shard;
        }
        if (plan->tree >= PLAN_TREE_NODE_ORDER && plan->nodes) {
                f.n_ranks = f.n;
                f.n = plan->nodes->n_nodes;
                f.node = plan->nodes->node;
                f.root = plan_operation_rooted(plan->operation) ? f.node[c->root] : 0;
                if (plan_operation_rooted(plan->operation))
                        owner = f.root;
        }
        switch (plan->tree) {
        case PLAN_TREE_RANK_ORDER:
        case PLAN_TREE_NODE_ORDER:
                return value_finish(tree_row(&f, 0));
        case PLAN_TREE_ROTATED:
        case PLAN_TREE_NODE_ROTATED:
                return value_finish(tree_row(&f, (uint32_t)owner + 1));
        case PLAN_TREE_DOUBLING:
        case PLAN_TREE_NODE_DOUBLING:
                return value_finish(tree_doubling(&f));
        case PLAN_TREE_BINARY:
        case PLAN_TREE_NODE_BINARY:
                return value_finish(tree_binary(&f, 0));
        case PLAN_TREE_NODE_DOUBLE:
                return value_finish(tree_double(&f, plan_operation_rooted(plan->operation), shard % 2, 0));
        default:
                return 0;
        }
}

/* ---- what is due ------------------------------------------------------------------------------------------------- */
static uint64_t received(const struct world *w, uint32_t lap, uint32_t rank, uint64_t i) {
        const struct plan_vector *mine = &w->buffers[lap][rank].vector;

        for (uint32_t from = 0; from < w->n; from++)
                if (i - mine->recv_offset[from] < mine->recv_count[from]) {
                        const struct plan_vector *theirs = &w->buffers[lap][from].vector;

                        if (theirs->send_count[rank] != mine->recv_count[from])
                                abort(); /* no fault of the plan's */
                        return value_input(lap, from, theirs->send_offset[rank] + (i - mine->recv_offset[from]));
                }
        return value_blank(lap, rank, w->buffers[lap][rank].out_at + i);
}

uint64_t layout_due(const struct world *w, uint32_t lap, uint32_t rank, uint64_t at) {
        const struct buffers *b = &w->buffers[lap][rank];
        const struct plan_case *c = &w->requests[lap].pcase;
        uint64_t i = at - b->out_at;

        if (i >= b->n_out)
                return layout_first(w, lap, rank, at);
        switch (w->requests[lap].plan->operation) {
        case RING_OP_ALL_GATHER:
        case RING_OP_GATHER:
                return value_input(lap, (uint32_t)(i / c->count), i % c->count);
        case RING_OP_BROADCAST:
        case RING_OP_SEND:
                return value_input(lap, c->root, i);
        case RING_OP_SCATTER:
                return value_input(lap, c->root, c->count * rank + i);
        case RING_OP_ALL_TO_ALL:
                return value_input(lap, (uint32_t)(i / c->count), c->count * rank + i % c->count);
        case RING_OP_ALL_TO_ALL_V:
                return received(w, lap, rank, i);
        default:
                return reduced(w, lap, rank, i);
        }
}
