/* SPDX-License-Identifier: MIT */
/*
 * What values are made of, and what they should be.
 *
 * A combination is a pair of numbers, and equal pairs get equal numbers. So an expression of any size is compared by
 * one comparison, and two values are the same expression exactly if they have the same number: with the order of the
 * terms, since rounding depends on it.
 *
 * The tree that a plan declares is built here from its definition in plan.h alone, with the same numbers. Each of them
 * has every rank as a leaf exactly once, and which one an output element must have does not depend on the rank that
 * holds the output; so all ranks get each contribution once, and the same bits.
 */
#include <errno.h>
#include <stdlib.h>

#include "plan/nodes.h"
#include "plan/verify_machine.h"
#include "ring/ring.h"

void verify_tree_deinit(struct verify_machine *m) {
        free(m->tree.nodes);
        free(m->tree.table);
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */
static uint32_t pair_hash(uint32_t left, uint32_t right) {
        uint64_t hash = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);

        return (uint32_t)(hash >> 32);
}

/* The place of a pair in the table: where it is, or where it would go. */
static uint32_t *tree_find(const struct verify_machine *m, uint32_t left, uint32_t right) {
        const struct verify_tree *tree = &m->tree;
        uint32_t mask = tree->table_size - 1, i = pair_hash(left, right) & mask;

        while (tree->table[i] != 0) {
                const struct verify_pair_node *node = &tree->nodes[tree->table[i] - 1 - m->n_ranks];

                if (node->left == left && node->right == right)
                        break;
                i = (i + 1) & mask;
        }
        return &tree->table[i];
}

static int tree_grow(struct verify_machine *m) {
        struct verify_tree *tree = &m->tree;
        uint32_t size = tree->table_size ? tree->table_size * 2 : 1024;
        struct verify_pair_node *nodes;
        uint32_t *table;

        if (size > VERIFY_NODE_MAX)
                return -ENOMEM;
        nodes = reallocarray(tree->nodes, size / 2, sizeof(*nodes));
        if (!nodes)
                return -ENOMEM;
        tree->nodes = nodes;
        table = calloc(size, sizeof(*table));
        if (!table)
                return -ENOMEM;
        free(tree->table);
        tree->table = table;
        tree->table_size = size;
        for (uint32_t i = 0; i < tree->n_nodes; i++)
                *tree_find(m, nodes[i].left, nodes[i].right) = 1 + m->n_ranks + i;
        return 0;
}

uint32_t verify_tree_pair(struct verify_machine *m, uint32_t left, uint32_t right) {
        struct verify_tree *tree = &m->tree;
        uint32_t *place;

        if (tree->n_nodes >= tree->table_size / 2 && tree_grow(m))
                return 0;
        place = tree_find(m, left, right);
        if (*place == 0) {
                tree->nodes[tree->n_nodes] = (struct verify_pair_node){left, right};
                *place = 1 + m->n_ranks + tree->n_nodes++;
        }
        return *place;
}

/* ---- the trees that plans declare -------------------------------------------------------------------------------- */
/* ((y_first + y_{first+1}) + ...), all n, modulo n. */
static uint32_t due_fold(struct verify_machine *m, const uint32_t *y, uint32_t n, uint32_t first) {
        uint32_t sum = y[first % n];

        for (uint32_t i = 1; sum != 0 && i < n; i++)
                sum = y[(first + i) % n] ? verify_tree_pair(m, sum, y[(first + i) % n]) : 0;
        return sum;
}

/* Of n terms, which are overwritten. */
static uint32_t due_doubling(struct verify_machine *m, uint32_t *y, uint32_t n) {
        uint32_t p = 1;

        while (p * 2 <= n)
                p *= 2;
        for (uint32_t r = 0; r + p < n; r++)
                y[r] = y[r] && y[r + p] ? verify_tree_pair(m, y[r], y[r + p]) : 0;
        for (; p > 1; p /= 2)
                for (uint32_t i = 0; i < p / 2; i++)
                        y[i] = y[2 * i] && y[2 * i + 1] ? verify_tree_pair(m, y[2 * i], y[2 * i + 1]) : 0;
        return y[0];
}

static uint32_t due_binary(struct verify_machine *m, const uint32_t *y, uint32_t n, uint32_t root) {
        uint32_t t[PLAN_RANKS_MAX];

        for (uint32_t v = n; v-- > 0;) {
                t[v] = y[(root + v) % n];
                for (uint32_t child = 2 * v + 1; child <= 2 * v + 2 && child < n; child++)
                        t[v] = t[v] && t[child] ? verify_tree_pair(m, t[v], t[child]) : 0;
        }
        return t[0];
}

/* Of the trees of all nodes, or, where one is the root, of the others and that one above them. */
static uint32_t due_double(struct verify_machine *m, const uint32_t *y, uint32_t n, uint32_t root, bool rooted,
                           bool mirrored) {
        uint32_t t[PLAN_RANKS_MAX], n_places = rooted ? n - 1 : n, sum;

        for (uint32_t i = 0; i < n_places; i++)
                t[mirrored ? n_places - 1 - i : i] = y[rooted ? (root + 1 + i) % n : i];
        sum = due_binary(m, t, n_places, 0);
        return !rooted ? sum : sum && y[root] ? verify_tree_pair(m, y[root], sum) : 0;
}

/* What the tree is made of: all ranks, or the sums of all nodes' ranks. Returns how many. */
static uint32_t due_terms(struct verify_machine *m, const struct plan *plan, uint32_t y[PLAN_RANKS_MAX]) {
        if (plan->tree < PLAN_TREE_NODE_ORDER) {
                for (uint32_t r = 0; r < m->n_ranks; r++)
                        y[r] = verify_leaf(r);
                return m->n_ranks;
        }
        for (uint32_t j = 0; j < plan->nodes->n_nodes; j++) {
                uint32_t x[PLAN_RANKS_MAX], n = 0;

                for (uint32_t r = 0; r < m->n_ranks; r++)
                        if (plan->nodes->node[r] == j)
                                x[n++] = verify_leaf(r);
                y[j] = due_fold(m, x, n, 0);
        }
        return plan->nodes->n_nodes;
}

/* The finished value that belongs to a shard, a block or a root (`owner`); 0 without memory. */
static uint32_t due_tree(struct verify_machine *m, uint32_t request, uint32_t owner) {
        const struct plan *plan = m->requests[request].plan;
        bool rooted = plan_operation_rooted(plan->operation);
        uint32_t *due = &m->tree.due[request][owner], y[PLAN_RANKS_MAX], n;

        if (*due != 0)
                return *due;
        n = due_terms(m, plan, y);
        switch (plan->tree) {
        case PLAN_TREE_ROTATED:
                *due = due_fold(m, y, n, owner + 1);
                break;
        case PLAN_TREE_NODE_ROTATED:
                *due = due_fold(m, y, n, (rooted ? plan->nodes->node[owner] : owner) + 1);
                break;
        case PLAN_TREE_DOUBLING:
        case PLAN_TREE_NODE_DOUBLING:
                *due = due_doubling(m, y, n);
                break;
        case PLAN_TREE_BINARY:
                *due = due_binary(m, y, n, owner);
                break;
        case PLAN_TREE_NODE_BINARY:
                *due = due_binary(m, y, n, rooted ? plan->nodes->node[owner] : 0);
                break;
        case PLAN_TREE_NODE_DOUBLE:
                *due = due_double(m, y, n, plan->nodes->node[m->requests[request].pcase->root], rooted, owner % 2);
                break;
        default:
                *due = due_fold(m, y, n, 0);
                break;
        }
        if (*due != 0)
                *due |= VERIFY_FINISHED;
        return *due;
}

/* ---- the result -------------------------------------------------------------------------------------------------- */
bool verify_tree_sharded(const struct plan *plan) {
        return plan->tree == PLAN_TREE_ROTATED || plan->tree == PLAN_TREE_NODE_ROTATED ||
               plan->tree == PLAN_TREE_NODE_DOUBLE;
}

/* Shard of an all_reduce that an element is in, if they do not all have the same tree. */
static uint32_t shard_of(const struct verify_machine *m, uint32_t request, uint64_t element) {
        const struct plan *plan = m->requests[request].plan;
        const struct plan_case *c = m->requests[request].pcase;

        if (!verify_tree_sharded(plan))
                return 0;
        return (uint32_t)(element / plan_shard_elements(c->count, plan->n_shards, c->element_bytes));
}

/* Whose piece of an all_to_all_v an element of the output is in, or nobody's. */
static struct verify_value due_piece(const struct verify_machine *m, uint32_t request, uint32_t rank,
                                     uint64_t element) {
        const struct plan_vector *vector = machine_shape(m, request, rank)->vector;

        for (uint32_t from = 0; from < m->n_ranks; from++)
                if (element >= vector->recv_offset[from] &&
                    element - vector->recv_offset[from] < vector->recv_count[from])
                        return (struct verify_value){
                                .node = verify_leaf(from),
                                .element = machine_shape(m, request, from)->vector->send_offset[rank] + element -
                                           vector->recv_offset[from],
                        };
        return (struct verify_value){.node = VERIFY_POISON};
}

/* What element `element` of the rank's output must be. */
static struct verify_value due_value(struct verify_machine *m, uint32_t rank, uint64_t element) {
        const struct verify_request *request = machine_request(m, rank);
        const struct plan_case *c = request->pcase;
        uint32_t k = m->current[rank];
        struct verify_value due = {.element = element};

        switch (request->plan->operation) {
        case RING_OP_ALL_REDUCE:
                due.node = due_tree(m, k, shard_of(m, k, element));
                break;
        case RING_OP_REDUCE:
                due.node = due_tree(m, k,
                                    request->plan->tree == PLAN_TREE_NODE_DOUBLE ? shard_of(m, k, element) : c->root);
                break;
        case RING_OP_REDUCE_SCATTER:
                due.node = due_tree(m, k, rank);
                due.element = c->count * rank + element;
                break;
        case RING_OP_BROADCAST:
        case RING_OP_SEND:
                due.node = verify_leaf(c->root);
                break;
        case RING_OP_ALL_GATHER:
        case RING_OP_GATHER:
                due.node = verify_leaf((uint32_t)(element / c->count));
                due.element = element % c->count;
                break;
        case RING_OP_SCATTER:
                due.node = verify_leaf(c->root);
                due.element = c->count * rank + element;
                break;
        case RING_OP_ALL_TO_ALL:
                due.node = verify_leaf((uint32_t)(element / c->count));
                due.element = c->count * rank + element % c->count;
                break;
        case RING_OP_ALL_TO_ALL_V:
                due = due_piece(m, k, rank, element);
                break;
        default:
                break;
        }
        return due;
}

int verify_tree_check(struct verify_machine *m, uint32_t rank) {
        const struct verify_request *request = machine_request(m, rank);
        const struct verify_memory *memory = machine_memory(m, rank);
        bool pieces = request->plan->operation == RING_OP_ALL_TO_ALL_V; /* with gaps between them */

        for (uint32_t i = verify_memory_cell(memory, memory->out_base);
             i < memory->n_cells && memory->starts[i] < memory->out_base + memory->out_elements; i++) {
                const struct verify_cell *cell = &memory->cells[i];
                uint64_t element = memory->starts[i] - memory->out_base;
                struct verify_value due = due_value(m, rank, element);
                struct verify_place at = {.rank = rank, .phase = cell->write_thread % m->n_phases};

                if (due.node == VERIFY_POISON && !pieces)
                        return -ENOMEM;
                if (cell->node == due.node && (due.node == VERIFY_POISON || cell->element == due.element))
                        continue;
                return verify_fault(m->verdict, PLAN_FAULT_VALUE, &at,
                                    "element %llu of rank %u's output is not what %s promises%s",
                                    (unsigned long long)element, rank, plan_operation_name(request->plan->operation),
                                    cell->node == VERIFY_POISON ? ": nobody wrote it" : "");
        }
        return 0;
}
