/* SPDX-License-Identifier: MIT */
/* Traffic against what is known of each algorithm, and plans in words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/nodes.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "tests/cmocka_all.h"
#include "tools/sim/sim.h"
#include "tools/sim/words.h"

#define ELEMENT 4u
#define PARTIAL 8u

static struct traffic *count(uint32_t operation, uint32_t algorithm, uint32_t n, uint64_t elements, uint32_t partial) {
        static uint64_t counts[PLAN_RANKS_MAX], zeros[PLAN_RANKS_MAX];
        const struct plan_vector vector = {counts, zeros, counts, zeros};
        struct plan_shape shape = {
                .count = elements, .element_bytes = ELEMENT, .partial_bytes = partial, .vector = &vector};
        struct plan_geometry geometry;
        struct traffic *traffic;
        struct plan plan;

        for (uint32_t i = 0; i < PLAN_RANKS_MAX; i++)
                counts[i] = elements;
        shape.peer = operation == RING_OP_SEND && n > 1 ? 1 : 0;
        plan_geometry_choose(n, &geometry);
        assert_int_equal(plan_build(operation, algorithm, n, &plan), PLAN_OK);
        assert_int_equal(traffic_new(&plan, &geometry, &shape, &traffic), 0);
        return traffic;
}

/* Each rank to the next one: bytes; nobody else: nothing. */
static void check_ring(uint32_t operation, uint32_t n, uint64_t elements, uint64_t bytes, bool rooted) {
        struct traffic *t = count(operation, PLAN_RING, n, elements, ELEMENT);
        uint32_t last = operation == RING_OP_REDUCE ? 0 : n - 1; /* a chain has no link from its end to its beginning */

        for (uint32_t a = 0; a < n; a++)
                for (uint32_t b = 0; b < n; b++)
                        assert_int_equal(t->link[a][b].bytes, b == (a + 1) % n && !(rooted && a == last) ? bytes : 0);
        free(t);
}

/* Every rank to every other: bytes. */
static void check_mesh(uint32_t operation, uint32_t algorithm, uint32_t n, uint64_t elements, uint64_t bytes) {
        struct traffic *t = count(operation, algorithm, n, elements, ELEMENT);

        for (uint32_t a = 0; a < n; a++)
                for (uint32_t b = 0; b < n; b++)
                        assert_int_equal(t->link[a][b].bytes, a == b ? 0 : bytes);
        free(t);
}

static void test_formulas(void **state) {
        (void)state;
        for (uint32_t n = 2; n <= 64; n += n < 9 ? 1 : 11) {
                uint64_t elements = UINT64_C(64) * n * 1001, bytes = elements * ELEMENT; /* shards of equal size */
                struct traffic *t;

                check_ring(RING_OP_ALL_REDUCE, n, elements, 2 * (n - 1) * (bytes / n), false);
                check_ring(RING_OP_ALL_GATHER, n, elements, (n - 1) * bytes, false);
                check_ring(RING_OP_REDUCE_SCATTER, n, elements, (n - 1) * bytes, false);
                check_ring(RING_OP_BROADCAST, n, elements, bytes, true);
                check_ring(RING_OP_REDUCE, n, elements, bytes, true);
                check_mesh(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, n, elements, bytes);
                check_mesh(RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, n, elements, 2 * bytes / n);
                check_mesh(RING_OP_ALL_REDUCE, PLAN_ZERO_COPY, n, elements, 2 * bytes / n);
                check_mesh(RING_OP_ALL_GATHER, PLAN_DIRECT, n, elements, bytes);
                check_mesh(RING_OP_ALL_GATHER, PLAN_ZERO_COPY, n, elements, bytes);
                check_mesh(RING_OP_REDUCE_SCATTER, PLAN_DIRECT, n, elements, bytes);
                check_mesh(RING_OP_ALL_TO_ALL, PLAN_DIRECT, n, elements, bytes);
                check_mesh(RING_OP_ALL_TO_ALL_V, PLAN_ZERO_COPY, n, elements, bytes);
                check_mesh(RING_OP_BARRIER, PLAN_DIRECT, n, 0, 0);
                t = count(RING_OP_BARRIER, PLAN_DIRECT, n, 0, ELEMENT);
                assert_int_equal(t->link[1][0].signals, 1);
                assert_int_equal(t->rank[0].signals_sent, n - 1);
                free(t);
                t = count(RING_OP_BROADCAST, PLAN_DIRECT, n, elements, ELEMENT);
                assert_int_equal(t->link[0][n - 1].bytes, bytes);
                assert_int_equal(t->link[n - 1][0].bytes, 0);
                assert_int_equal(t->rank[0].chunks_sent, (n - 1) * t->rank[1].chunks_taken);
                free(t);
                t = count(RING_OP_ALL_REDUCE, PLAN_RECURSIVE_DOUBLING, n, elements, PARTIAL);
                assert_int_equal(t->link[0][1].bytes, elements * PARTIAL); /* neighbours first, accumulators */
                free(t);
        }
}

/* Of any plan: nothing is lost on the way, and every element of every output is written once. */
static void check_balance(uint32_t operation, uint32_t algorithm, uint32_t n, uint64_t elements) {
        struct traffic *t = count(operation, algorithm, n, elements, PARTIAL);
        uint64_t chunks = 0, signals = 0, output = 0, expected = 0;

        for (uint32_t r = 0; r < n; r++) {
                uint64_t in, out, arrived = 0;

                chunks += t->rank[r].chunks_sent - t->rank[r].chunks_taken;
                signals += t->rank[r].signals_sent - t->rank[r].signals_taken;
                output += t->rank[r].bytes_output;
                for (uint32_t from = 0; from < n; from++)
                        arrived += t->link[from][r].bytes;
                if (operation == RING_OP_ALL_TO_ALL_V)
                        in = out = n * elements;
                else
                        assert_int_equal(plan_request_elements(operation, n, elements, r == 0, &in, &out), 0);
                if (operation == RING_OP_SEND)
                        out = r == (n > 1) ? elements : 0; /* it has no word for the receive */
                expected += out * ELEMENT;
                if (n > 1 && (operation == RING_OP_ALL_REDUCE || (operation == RING_OP_BROADCAST && r > 0)))
                        assert_true(arrived >= elements / n * ELEMENT);
        }
        assert_int_equal(chunks, 0);
        assert_int_equal(signals, 0);
        assert_int_equal(output, expected);
        free(t);
}

static void test_balance(void **state) {
        static const uint64_t counts[] = {0, 1, 3, 100, 4099, 70001, UINT64_C(3) << 31};

        (void)state;
        for (uint32_t n = 1; n <= 9; n++)
                for (uint32_t op = 0; op < RING_OP_COUNT; op++)
                        for (uint32_t k = 0; plan_algorithm_at(op, n, k) != PLAN_ALGORITHM_NONE; k++)
                                for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                                        check_balance(op, plan_algorithm_at(op, n, k), n, counts[c]);
}

/* Chunks are counted as they would be cut. */
static void test_chunks(void **state) {
        struct plan_geometry geometry;
        struct traffic *t;

        (void)state;
        plan_geometry_choose(4, &geometry);
        for (uint64_t elements = 1; elements < 1 << 20; elements = elements * 3 + 1) {
                uint64_t part = geometry.part_bytes / ELEMENT, parts = (elements + part - 1) / part;

                t = count(RING_OP_ALL_GATHER, PLAN_DIRECT, 4, elements, ELEMENT);
                assert_int_equal(t->link[2][1].chunks, parts);
                assert_int_equal(t->rank[3].steps, 7 * parts);
                assert_int_equal(t->rank[3].bytes_copied, 7 * elements * ELEMENT);
                free(t);
        }
        t = count(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 4, 1000, ELEMENT);
        assert_int_equal(t->rank[0].bytes_reduced, 4 * 1000 * ELEMENT);
        assert_int_equal(t->rank[0].bytes_far, 0);
        free(t);
}

/* Results are consistent, and the one that is chosen is the one in the table. */
static void test_look(void **state) {
        const struct options options = {
                .operation = RING_OP_ALL_REDUCE, .ranks = 6, .workers = 2, .type = RMX_BFLOAT16, .factor = 2};
        char error[OPTIONS_ERROR_MAX];
        struct sim sim;

        (void)state;
        assert_int_equal(sim_init(&sim, &options, error), 0);
        assert_int_equal(sim.element_bytes, 2);
        assert_int_equal(sim.partial_bytes, 4);
        for (uint64_t bytes = 0; bytes < 1 << 26; bytes = bytes * 4 + 3) {
                struct sim_result *result = calloc(1, sizeof(*result));
                uint32_t n_chosen = 0;

                assert_non_null(result);
                assert_int_equal(sim_look(&sim, bytes, result), 0);
                assert_int_equal(result->count, bytes / 2);
                for (uint32_t i = 0; i < result->n_candidates; i++) {
                        const struct sim_candidate *c = &result->candidates[i];

                        n_chosen += c->chosen;
                        assert_true(c->shown == c->chosen);
                        assert_true((c->traffic != NULL) == c->shown);
                        if (c->chosen)
                                assert_int_equal(c->plan.algorithm,
                                                 plan_choice_find(sim.choices, sim.n_choices, RING_OP_ALL_REDUCE, 2,
                                                                  result->bytes)
                                                         ->algorithm);
                }
                assert_int_equal(n_chosen, 1);
                sim_result_deinit(result);
                free(result);
        }
        sim_deinit(&sim);
}

static void test_words(void **state) {
        static const struct {
                uint32_t operation, algorithm, n, root;
                const char *tree;
        } trees[] = {
                {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 1, 0, "x0"},
                {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 2, 0, "x0 + x1"},
                {RING_OP_REDUCE, PLAN_DIRECT, 4, 2, "((x0 + x1) + x2) + x3"},
                {RING_OP_ALL_REDUCE, PLAN_RING, 4, 3, "((x1 + x2) + x3) + x0"},
                {RING_OP_REDUCE, PLAN_RING, 4, 2, "((x3 + x0) + x1) + x2"},
                {RING_OP_ALL_REDUCE, PLAN_RECURSIVE_DOUBLING, 4, 0, "((x0 + x1) + (x2 + x3))"},
                {RING_OP_ALL_REDUCE, PLAN_HALVING_DOUBLING, 5, 0, "(((x0 + x4) + x1) + (x2 + x3))"},
                {RING_OP_REDUCE, PLAN_TREE, 4, 0, "((x0 + (x1 + x3)) + x2)"},
                {RING_OP_REDUCE, PLAN_TREE, 4, 3, "((x3 + (x0 + x2)) + x1)"},
                {RING_OP_BROADCAST, PLAN_TREE, 4, 0, ""},
        };
        char tree[WORDS_TREE_MAX], text[WORDS_PHASE_MAX];
        struct plan_nodes nodes;
        struct plan plan;

        (void)state;
        for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
                assert_int_equal(plan_build(trees[i].operation, trees[i].algorithm, trees[i].n, &plan), 0);
                words_tree(&plan, trees[i].root, tree);
                assert_string_equal(tree, trees[i].tree);
        }
        for (uint32_t op = 0; op < RING_OP_COUNT; op++)
                for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n += 21)
                        for (uint32_t k = 0; plan_algorithm_at(op, n, k) != PLAN_ALGORITHM_NONE; k++) {
                                plan_build(op, plan_algorithm_at(op, n, k), n, &plan);
                                for (uint32_t p = 0; p < plan.n_phases; p++) {
                                        words_phase(&plan, p, text);
                                        assert_null(strchr(text, '?'));
                                        assert_true(strlen(text) < WORDS_PHASE_MAX - 1);
                                }
                                words_tree(&plan, 0, tree);
                                assert_true((tree[0] != '\0') == plan_operation_reduces(op));
                                for (uint32_t r = 0; tree[0] && r < n; r++) { /* everybody contributes */
                                        char name[16];

                                        snprintf(name, sizeof(name), "x%u", r);
                                        assert_non_null(strstr(tree, name));
                                }
                        }
        assert_int_equal(plan_nodes_init(&nodes, 4, (const uint8_t[]){0, 0, 1, 1}), 0);
        for (uint32_t op = 0; op < RING_OP_COUNT; op++)
                for (uint32_t k = 0, a; (a = plan_algorithm_at_nodes(op, 4, &nodes, k)) != PLAN_ALGORITHM_NONE; k++) {
                        assert_int_equal(plan_build_nodes(op, a, 4, &nodes, &plan), 0);
                        for (uint32_t p = 0; p < plan.n_phases; p++) {
                                words_phase(&plan, p, text);
                                assert_null(strchr(text, '?'));
                                assert_true(strlen(text) < WORDS_PHASE_MAX - 1);
                        }
                }
        plan_build(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 4, &plan);
        assert_string_equal(
                words_phase(&plan, 1, text),
                "all ranks: reduce everything of the input and a chunk of each other rank into everything of "
                "the output; from region 0; each part after phase 0");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_formulas), cmocka_unit_test(test_balance), cmocka_unit_test(test_chunks),
                cmocka_unit_test(test_look),     cmocka_unit_test(test_words),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
