/* SPDX-License-Identifier: MIT */
/* Plans over nodes: what they put on the wires, compared with counting every step of every part; what the model makes
 * of it, compared with the formulas of each algorithm. What is chosen of it: test_choice_nodes.c. */
#include <math.h>
#include <string.h>

#include "gpu/host/channel.h"
#include "plan/cost.h"
#include "plan/rails.h"
#include "worlds.h"

_Static_assert(PLAN_LINE_BYTES == CHANNEL_SMALL_BYTES, "what a chunk has room for beside its flag");

/* ---- load -------------------------------------------------------------------------------------------------------- */
/* By rank (n_rails 0), or by node and rail. */
static struct plan_load *place(const struct plan *plan, uint32_t n_rails, struct plan_load *load, uint32_t at,
                               uint32_t from) {
        const struct plan_nodes *nodes = plan->nodes;

        return n_rails ? &load[nodes->node[at] * n_rails + nodes->local[from] % n_rails] : &load[at];
}

static void count_message(const struct plan *plan, uint32_t n_rails, struct plan_load *load, uint32_t from, uint32_t to,
                          uint64_t bytes, uint64_t line) {
        place(plan, n_rails, load, from, from)->chunks_out++;
        place(plan, n_rails, load, to, from)->chunks_in++;
        place(plan, n_rails, load, from, from)->bytes_out += bytes;
        place(plan, n_rails, load, to, from)->bytes_in += bytes;
        place(plan, n_rails, load, from, from)->lines_out += line;
        place(plan, n_rails, load, to, from)->lines_in += line;
        place(plan, n_rails, load, to, to)->credits_out++;
        place(plan, n_rails, load, from, to)->credits_in++;
}

static void count_all(const struct plan *plan, const struct plan_geometry *geometry, const struct plan_shape *shape,
                      uint32_t n_rails, struct plan_load *load) {
        for (uint32_t me = 0; me < plan->n_ranks; me++)
                for (uint32_t p = 0; p < plan->n_phases; p++) {
                        const struct plan_phase *phase = &plan->phases[p];
                        uint64_t parts = plan_phase_parts(plan, phase, geometry, shape, me);
                        uint32_t steps = plan_phase_steps(plan, phase, shape, me);

                        for (uint64_t i = 0; i < parts * steps; i++) {
                                struct plan_step step;
                                uint64_t bytes;
                                bool line;

                                if (!plan_step(plan, phase, geometry, shape, me, i / steps, (uint32_t)(i % steps),
                                               &step))
                                        continue;
                                bytes = step.data ? step.length * (step.partial_out ? shape->partial_bytes
                                                                                    : shape->element_bytes)
                                                  : 0;
                                line = bytes <= CHANNEL_SMALL_BYTES && !step.partial_out;
                                for (uint32_t t = 0; t < step.n_targets; t++)
                                        if (plan->nodes->node[step.target[t]] != plan->nodes->node[me])
                                                count_message(plan, n_rails, load, me, step.target[t], bytes,
                                                              line ? bytes : 0);
                        }
                }
}

static void test_load(void **state) {
        static const uint64_t counts[] = {0, 1, 17, 100, 515, 540};
        const struct plan_geometry geometry = {.part_bytes = 256, .slots = 2};
        uint64_t ones[PLAN_RANKS_MAX], zeros[PLAN_RANKS_MAX] = {0}, lines = 0;
        const struct plan_vector vector = {ones, zeros, ones, zeros};
        uint32_t n_plans = 0;

        (void)state;
        for (uint32_t w = 0; w < N_WORLDS; w++) {
                struct plan_nodes nodes;
                uint32_t n = world_nodes(worlds[w].nodes, &nodes);
                struct plan plan;

                for (uint32_t i = 0; world_plan(&nodes, n, i, &plan); i++, n_plans++)
                        for (uint32_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
                                struct plan_shape shape = {.count = counts[k],
                                                           .element_bytes = 2,
                                                           .partial_bytes = 4,
                                                           .root = plan_operation_rooted(plan.operation) ? k % n : 0};
                                struct plan_shape right_shape = shape;

                                if (!plan.nodes)
                                        continue; /* a send */
                                for (uint32_t r = 0; r < PLAN_RANKS_MAX; r++)
                                        ones[r] = counts[k];
                                right_shape.vector = plan.operation == RING_OP_ALL_TO_ALL_V ? &vector : NULL;
                                for (uint32_t n_rails = 0; n_rails <= 3; n_rails++) {
                                        struct plan_load load[3 * PLAN_RANKS_MAX] = {{0}};
                                        struct plan_load right[3 * PLAN_RANKS_MAX] = {{0}};

                                        if (n_rails == 0)
                                                plan_load_ranks(&plan, &geometry, &shape, load);
                                        else
                                                plan_load_rails(&plan, &geometry, &shape, n_rails, load);
                                        count_all(&plan, &geometry, &right_shape, n_rails, right);
                                        assert_memory_equal(load, right, sizeof(load));
                                        lines += load[0].lines_out;
                                }
                        }
        }
        assert_true(lines > 0);
        print_message("%u plans\n", n_plans);
}

/* ---- formulas ---------------------------------------------------------------------------------------------------- */
#define N     4u /* nodes */
#define G     2u /* ranks of each */
#define COUNT (UINT64_C(1) << 18)
#define BYTES ((double)COUNT * 4)

struct formula {
        uint32_t operation, algorithm;
        double hops, bytes; /* of the busiest rank, in or out */
};
static const struct formula formulas[] = {
        {RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL, 1, (N - 1) * BYTES / G},
        {RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_SCATTER, 2, 2 * BYTES / G *(N - 1) / N},
        {RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_RING, 2 * (N - 1), 2 * BYTES / G *(N - 1) / N},
        {RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_DOUBLING, 2, 2 * BYTES / G},
        {RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_TREE, 4, 3 * BYTES / G}, /* 3 -> 1 -> 0 and back; node 1 has 0 and 3 */
        /* Tree 0 has 0 -> 1, 2 and 1 -> 3, tree 1 has 3 -> 2, 1 and 2 -> 0. */
        {RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_DOUBLE_TREE, 4, 3 * BYTES / G / 2},
        {RING_OP_REDUCE, PLAN_HIERARCHICAL, 1, (N - 1) * BYTES / G},
        {RING_OP_REDUCE, PLAN_HIERARCHICAL_RING, N - 1, BYTES / G},
        {RING_OP_REDUCE, PLAN_HIERARCHICAL_DOUBLE_TREE, 2, BYTES / G},
        {RING_OP_BROADCAST, PLAN_HIERARCHICAL_DOUBLE_TREE, 2, BYTES / G},
        {RING_OP_BROADCAST, PLAN_HIERARCHICAL, 1, (N - 1) * BYTES / G},
        {RING_OP_BROADCAST, PLAN_HIERARCHICAL_RING, N - 1, BYTES / G},
        {RING_OP_BROADCAST, PLAN_HIERARCHICAL_TREE, 2, 2 * BYTES / G},
        {RING_OP_ALL_GATHER, PLAN_HIERARCHICAL, 1, (N - 1) * BYTES},
        {RING_OP_REDUCE_SCATTER, PLAN_HIERARCHICAL, 1, (N - 1) * BYTES},
        {RING_OP_ALL_TO_ALL, PLAN_HIERARCHICAL, 1, (N - 1) * G *BYTES},
        {RING_OP_ALL_TO_ALL, PLAN_HIERARCHICAL_RAIL, 1, (N - 1) * G *BYTES},
        {RING_OP_ALL_TO_ALL_V, PLAN_HIERARCHICAL, 1, (N - 1) * G *BYTES},
        {RING_OP_GATHER, PLAN_HIERARCHICAL, 1, (N - 1) * BYTES},
        {RING_OP_SCATTER, PLAN_HIERARCHICAL, 1, (N - 1) * BYTES},
        {RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_STAGED, 1, (N - 1) * BYTES / G},
        {RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_STAGED_SCATTER, 2, 2 * BYTES / G *(N - 1) / N},
        {RING_OP_REDUCE, PLAN_HIERARCHICAL_STAGED, 1, (N - 1) * BYTES / G},
        {RING_OP_BROADCAST, PLAN_HIERARCHICAL_STAGED, 1, (N - 1) * BYTES / G},
        {RING_OP_ALL_GATHER, PLAN_HIERARCHICAL_STAGED, 1, (N - 1) * BYTES},
        {RING_OP_REDUCE_SCATTER, PLAN_HIERARCHICAL_STAGED, 1, (N - 1) * BYTES},
};

static void test_formulas(void **state) {
        /* All work inside the node is free: what is left is the wires. */
        const struct plan_constants nothing = {.request_ns = 1000, .parallel = 1};
        const struct plan_net net = {.hop_ns = 5000, .ns_per_chunk = 0, .ns_per_byte = 0.1, .n_rails = G};
        const struct plan_net one = {.hop_ns = 5000, .ns_per_chunk = 0, .ns_per_byte = 0.1, .n_rails = 1};
        struct plan_nodes nodes;

        (void)state;
        world_nodes("aabbccdd", &nodes);
        for (uint32_t i = 0; i < sizeof(formulas) / sizeof(formulas[0]); i++) {
                const struct formula *f = &formulas[i];
                const struct plan_shape shape = {.count = COUNT, .element_bytes = 4, .partial_bytes = 4};
                struct plan_load load[PLAN_RANKS_MAX];
                struct plan_geometry geometry;
                struct plan_model model;
                struct plan_cost cost, narrow, empty;
                struct plan plan;
                double most = 0, want;

                assert_int_equal(plan_build_nodes(f->operation, f->algorithm, N * G, &nodes, &plan), PLAN_OK);
                plan_geometry_choose(N * G, &geometry);
                plan_load_ranks(&plan, &geometry, &shape, load);
                for (uint32_t r = 0; r < N * G; r++)
                        most = fmax(most, fmax((double)load[r].bytes_out, (double)load[r].bytes_in));
                if (fabs(most / f->bytes - 1) > 0.001 && f->algorithm != PLAN_HIERARCHICAL_TREE)
                        fail_msg("%s %s: %.0f bytes instead of %.0f", plan_operation_name(f->operation),
                                 plan_algorithm_name(f->algorithm), most, f->bytes);
                assert_int_equal(plan_model_init_net(&model, &plan, &nothing, &net, NULL, 4, 4), 0);
                plan_model_predict(&model, COUNT, &cost);
                plan_model_predict(&model, 0, &empty);
                want = 1000 + f->hops * 5000 + most * 0.1;
                if (fabs(cost.ns / want - 1) > 0.01 && f->algorithm != PLAN_HIERARCHICAL_TREE)
                        fail_msg("%s %s: %.0f ns instead of %.0f", plan_operation_name(f->operation),
                                 plan_algorithm_name(f->algorithm), cost.ns, want);
                assert_true(fabs(empty.ns - 1000 - f->hops * 5000) < 1);
                assert_int_equal(plan_model_init_net(&model, &plan, &nothing, &one, NULL, 4, 4), 0);
                plan_model_predict(&model, COUNT, &narrow);
                assert_true(narrow.ns > cost.ns); /* all of a node on one rail */
                assert_true(plan_model_init_net(&model, &plan, &nothing, &(struct plan_net){0}, NULL, 4, 4) ==
                            PLAN_E_INVALID);
        }
}

/* Messages that take any rail: each has its share of what the node has in all, also of more rails than ranks. */
static void test_any_rail(void **state) {
        const struct plan_constants nothing = {.request_ns = 1000, .parallel = 1};
        struct plan_nodes nodes;

        (void)state;
        world_nodes("aabbccdd", &nodes);
        for (uint32_t i = 0; i < sizeof(formulas) / sizeof(formulas[0]); i++)
                for (uint32_t n_rails = 1; n_rails <= 16; n_rails *= 4) {
                        const struct formula *f = &formulas[i];
                        const struct plan_shape shape = {.count = COUNT, .element_bytes = 4, .partial_bytes = 4};
                        const struct plan_net net = {
                                /* hops take next to nothing, so nobody waits for a chain of them */
                                .hop_ns = 10,
                                .ns_per_byte = 0.1,
                                .n_rails = n_rails,
                                .any_rail = true};
                        struct plan_load load[PLAN_RANKS_MAX];
                        struct plan_geometry geometry;
                        struct plan_model model;
                        struct plan_cost cost;
                        struct plan plan;
                        double most = 0, want;

                        if (f->algorithm == PLAN_HIERARCHICAL_TREE)
                                continue;
                        assert_int_equal(plan_build_nodes(f->operation, f->algorithm, N * G, &nodes, &plan), PLAN_OK);
                        plan_geometry_choose(N * G, &geometry);
                        plan_load_rails(&plan, &geometry, &shape, 1, load);
                        for (uint32_t n = 0; n < N; n++)
                                most = fmax(most, fmax((double)load[n].bytes_out, (double)load[n].bytes_in));
                        want = 1000 + f->hops * 10 + most * 0.1 / n_rails;
                        assert_int_equal(plan_model_init_net(&model, &plan, &nothing, &net, NULL, 4, 4), 0);
                        plan_model_predict(&model, COUNT, &cost);
                        if (fabs(cost.ns / want - 1) > 0.01)
                                fail_msg("%s %s, %u rails: %.0f ns instead of %.0f", plan_operation_name(f->operation),
                                         plan_algorithm_name(f->algorithm), n_rails, cost.ns, want);
                }
}

/* Hops are the formula's as long as channels hold everything, and two more each time that they are full. */
static void test_waits(void **state) {
        static const char *const letters[] = {"ab", "aabb", "abcd", "aabbccdd", "aaaabbbbccccdddd", "abcdefgh"};
        static const struct {
                uint32_t algorithm;
                double hops;
        } plans[] = {{PLAN_HIERARCHICAL_SCATTER, 2}, {PLAN_HIERARCHICAL, 1}};
        const struct plan_constants nothing = {.parallel = 1}; /* inside a node hops are free */
        const struct plan_net net = {.hop_ns = 1, .n_rails = 1};

        (void)state;
        for (size_t w = 0; w < sizeof(letters) / sizeof(letters[0]); w++)
                for (size_t p = 0; p < sizeof(plans) / sizeof(plans[0]); p++) {
                        struct plan_geometry geometry;
                        struct plan_nodes nodes;
                        uint32_t n = world_nodes(letters[w], &nodes), local = n / nodes.n_nodes;
                        struct plan_model model;
                        struct plan plan;
                        uint64_t channel, pieces;

                        plan_geometry_choose_nodes(n, &geometry);
                        channel = (uint64_t)geometry.part_bytes * geometry.slots;
                        pieces = plans[p].algorithm == PLAN_HIERARCHICAL ? local : n;
                        assert_int_equal(plan_build_nodes(RING_OP_ALL_REDUCE, plans[p].algorithm, n, &nodes, &plan), 0);
                        assert_int_equal(plan_model_init_net(&model, &plan, &nothing, &net, NULL, 4, 4), 0);
                        for (uint32_t full = 1; full <= 8; full++) {
                                double hops = plans[p].hops + 2 * (full - 1);
                                struct plan_cost cost;

                                plan_model_predict(&model, full * channel * pieces / 4, &cost);
                                if (fabs(cost.critical_ns - hops) > 0.01)
                                        fail_msg("%s, %s, %u times full: %.2f hops instead of %.0f", letters[w],
                                                 plan_algorithm_name(plans[p].algorithm), full, cost.critical_ns, hops);
                        }
                }
}

/* Without wires it is the model of one node. */
static void test_local(void **state) {
        struct plan_constants constants;
        struct plan_model with, without;
        struct plan_nodes nodes;
        struct plan_cost a, b;
        struct plan plan;

        (void)state;
        plan_constants_host(&constants, 2);
        world_nodes("aabb", &nodes);
        assert_int_equal(plan_build_nodes(RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, 4, &nodes, &plan), PLAN_OK);
        assert_int_equal(plan_model_init_net(&with, &plan, &constants, NULL, NULL, 4, 4), 0);
        plan.nodes = NULL;
        assert_int_equal(plan_model_init(&without, &plan, &constants, NULL, 4, 4), 0);
        plan_model_predict(&with, 10000, &a);
        plan_model_predict(&without, 10000, &b);
        assert_true(a.ns > 0 && a.ns == b.ns && a.wire_ns == 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_load),  cmocka_unit_test(test_formulas), cmocka_unit_test(test_any_rail),
                cmocka_unit_test(test_waits), cmocka_unit_test(test_local),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
