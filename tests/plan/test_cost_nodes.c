/* SPDX-License-Identifier: MIT */
/* Plans over nodes: what they put on the wires, compared with counting every step of every part; what the model makes
 * of it, compared with the formulas of each algorithm; and what is chosen. */
#include <inttypes.h>
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

/* ---- choice ------------------------------------------------------------------------------------------------------ */
static uint32_t chosen(const struct plan_choice *choices, uint32_t n, uint32_t operation, uint64_t bytes) {
        const struct plan_choice *choice = plan_choice_find(choices, n, operation, 1, bytes);

        assert_non_null(choice);
        return choice->algorithm;
}

static void test_choice(void **state) {
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plan_constants constants;
        struct plan_nodes nodes, one;
        struct plan_net net;
        struct plan_over over = {.constants = &constants, .net = &net, .nodes = &nodes, .n_ranks = 16};
        bool other_tree = false;
        uint32_t n;

        (void)state;
        plan_constants_host(&constants, 2);
        plan_net_host(&net);
        world_nodes("aabbccddeeffgghh", &nodes);
        n = plan_choose_nodes(&over, choices);
        assert_true(n > 0);
        for (uint32_t i = 0; i < n; i++) { /* all can be built, and reductions have one tree */
                struct plan plan;

                assert_int_equal(plan_build_nodes(choices[i].operation, choices[i].algorithm, 16, &nodes, &plan), 0);
                assert_true(plan.tree == PLAN_TREE_NONE || plan.tree == PLAN_TREE_NODE_ORDER);
                assert_false(world_staged(&plan));
        }
        assert_int_equal(chosen(choices, n, RING_OP_ALL_REDUCE, 64), PLAN_HIERARCHICAL);
        assert_int_equal(chosen(choices, n, RING_OP_ALL_REDUCE, 64 << 20), PLAN_HIERARCHICAL_SCATTER);
        assert_int_equal(chosen(choices, n, RING_OP_BROADCAST, 64 << 20), PLAN_HIERARCHICAL_DOUBLE_TREE);
        assert_int_equal(chosen(choices, n, RING_OP_SEND, 64), PLAN_ZERO_COPY);
        over.any_tree = true;
        n = plan_choose_nodes(&over, choices);
        for (uint32_t i = 0; i < n; i++) {
                struct plan plan;

                assert_int_equal(plan_build_nodes(choices[i].operation, choices[i].algorithm, 16, &nodes, &plan), 0);
                other_tree = other_tree || (plan.tree != PLAN_TREE_NONE && plan.tree != PLAN_TREE_NODE_ORDER);
        }
        assert_true(other_tree);
        over.any_tree = false;
        over.operation = RING_OP_ALL_REDUCE;
        over.algorithm = PLAN_RING;
        n = plan_choose_nodes(&over, choices);
        assert_int_equal(chosen(choices, n, RING_OP_ALL_REDUCE, 64), PLAN_RING);
        assert_int_equal(chosen(choices, n, RING_OP_ALL_REDUCE, 1 << 30), PLAN_RING);
        over.algorithm = PLAN_ZERO_COPY; /* not over nodes: as if nothing had been asked */
        n = plan_choose_nodes(&over, choices);
        assert_int_equal(chosen(choices, n, RING_OP_ALL_REDUCE, 64), PLAN_HIERARCHICAL);
        over.n_ranks = 15;
        assert_int_equal(plan_choose_nodes(&over, choices), 0);
        over.n_ranks = world_nodes("aaaa", &one);
        over.nodes = &one;
        assert_int_equal(plan_choose_nodes(&over, choices), 0);
}

static const uint32_t operations[] = {
        RING_OP_ALL_REDUCE,     RING_OP_REDUCE,     RING_OP_BROADCAST,    RING_OP_ALL_GATHER,
        RING_OP_REDUCE_SCATTER, RING_OP_ALL_TO_ALL, RING_OP_ALL_TO_ALL_V, RING_OP_GATHER,
        RING_OP_SCATTER,        RING_OP_SEND,       RING_OP_BARRIER,
};
#define N_OPERATIONS (sizeof(operations) / sizeof(operations[0]))

/* Elements and accumulators: fp32, bf16, fp8, averages of one byte and of four, fp64. */
static const struct {
        uint32_t element_bytes, partial_bytes;
} types[] = {{4, 4}, {2, 4}, {1, 4}, {1, 8}, {4, 8}, {8, 8}};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

/* What is chosen costs hardly more than the cheapest of those that give the same bits: of elements of any width, at any
 * size. (The classes of what is no reduction may be narrow, and of four rails that all may use they are.) */
static void check_cheap(const struct plan_over *over, const struct plan_choice *choices, uint32_t n_choices,
                        uint32_t operation, size_t type) {
        const uint32_t element = types[type].element_bytes,
                       widening = plan_widening(element, types[type].partial_bytes);
        const double most = plan_operation_reduces(operation) ? 1.04 : over->net->n_rails == 1 ? 1.05 : 1.1;
        static struct plan_model models[PLAN_ALGORITHM_COUNT];
        uint32_t algorithms[PLAN_ALGORITHM_COUNT], n = 0, a;

        for (uint32_t k = 0; (a = plan_algorithm_at_nodes(operation, over->n_ranks, over->nodes, k)) != 0; k++) {
                struct plan plan;

                assert_int_equal(plan_build_nodes(operation, a, over->n_ranks, over->nodes, &plan), PLAN_OK);
                if (world_staged(&plan) || (plan.tree != PLAN_TREE_NONE && plan.tree != PLAN_TREE_NODE_ORDER))
                        continue;
                assert_int_equal(plan_model_init_net(&models[n], &plan, over->constants, over->net, NULL, element,
                                                     types[type].partial_bytes),
                                 0);
                algorithms[n++] = a;
        }
        for (double size = 16; size <= 1 << 30; size *= 1.07) {
                uint64_t bytes = (uint64_t)size / 8 * 8;
                const struct plan_choice *choice = plan_choice_find(choices, n_choices, operation, widening, bytes);
                double best = INFINITY, ns = INFINITY;

                assert_non_null(choice);
                for (uint32_t i = 0; i < n; i++) {
                        struct plan_cost cost;

                        plan_model_predict(&models[i], bytes / element, &cost);
                        best = fmin(best, cost.ns);
                        if (algorithms[i] == choice->algorithm)
                                ns = cost.ns;
                }
                if (ns > most * best)
                        fail_msg("%s of %" PRIu64 " bytes, elements of %u, accumulators of %u: %s takes %.2f times as "
                                 "long as it could",
                                 plan_operation_name(operation), bytes, element, types[type].partial_bytes,
                                 plan_algorithm_name(choice->algorithm), ns / best);
        }
}

/* For every operation one widening that is for all, or all four; ascending up to the end. */
static void check_widenings(const struct plan_choice *choices, uint32_t n) {
        for (uint32_t i = 0; i < n; i++) {
                const struct plan_choice *c = &choices[i],
                                         *before = i > 0 && c[-1].operation == c->operation ? c - 1 : NULL;
                bool first = !before || before->widening != c->widening, last = c->max_bytes == UINT64_MAX;

                if (!plan_operation_reduces(c->operation))
                        assert_int_equal(c->widening, 0);
                assert_true(first == (i == 0 || c[-1].max_bytes == UINT64_MAX));
                if (first)
                        assert_int_equal(c->widening, before ? 2 * before->widening : c->widening ? 1 : 0);
                if (last && (i + 1 == n || c[1].operation != c->operation))
                        assert_true(c->widening == 0 || c->widening == PLAN_WIDENING_MAX);
                if (!first)
                        assert_true(before->max_bytes < c->max_bytes && before->algorithm != c->algorithm);
                if (!first && !last)
                        assert_true(c->max_bytes / 4 >= before->max_bytes);
        }
}

static void test_widenings(void **state) {
        static const char *const letters[] = {"aaaabbbb", "aabbccdd", "aaabbc", "abbbbbbb", "ab"};
        struct plan_choice choices[PLAN_CHOICES_MAX], plain[PLAN_CHOICES_MAX];
        struct plan_constants constants;
        struct plan_nodes nodes;
        struct plan_net net;
        struct plan_over over = {.constants = &constants, .net = &net, .nodes = &nodes};
        uint32_t n, n_plain;

        (void)state;
        plan_constants_host(&constants, 2);
        plan_net_host(&net);
        for (size_t w = 0; w < 2 * sizeof(letters) / sizeof(letters[0]); w++) {
                over.n_ranks = world_nodes(letters[w / 2], &nodes);
                net.n_rails = w % 2 ? 4 : 1;
                net.any_rail = w % 2;
                over.any_widening = false;
                n = plan_choose_nodes(&over, choices);
                assert_true(n > 0);
                check_widenings(choices, n);
                for (size_t o = 0; o < N_OPERATIONS; o++)
                        for (size_t t = 0; t < N_TYPES; t++)
                                check_cheap(&over, choices, n, operations[o], t);
                /* Without widenings all have what is best where sums are no longer than elements. */
                over.any_widening = true;
                n_plain = plan_choose_nodes(&over, plain);
                assert_true(n_plain < n);
                for (uint32_t i = 0; i < n_plain; i++) {
                        const struct plan_choice *c =
                                plan_choice_find(choices, n, plain[i].operation, 1, plain[i].max_bytes);

                        assert_int_equal(plain[i].widening, 0);
                        assert_true(c->algorithm == plain[i].algorithm && c->max_bytes == plain[i].max_bytes);
                }
        }
        /* Sums of two bytes are longer on their way than results. */
        over.n_ranks = world_nodes("aaaabbbb", &nodes);
        over.any_widening = net.any_rail = false;
        net.n_rails = 1;
        n = plan_choose_nodes(&over, choices);
        assert_int_equal(plan_choice_find(choices, n, RING_OP_ALL_REDUCE, 1, 1 << 20)->algorithm, PLAN_HIERARCHICAL);
        for (uint32_t widening = 2; widening <= PLAN_WIDENING_MAX; widening *= 2)
                assert_int_equal(plan_choice_find(choices, n, RING_OP_ALL_REDUCE, widening, 1 << 20)->algorithm,
                                 PLAN_HIERARCHICAL_SCATTER);
        assert_null(plan_choice_find(choices, n, RING_OP_ALL_REDUCE, 3, 1 << 20));
        assert_int_equal(plan_widening(4, 4), 1);
        assert_int_equal(plan_widening(2, 4), 2);
        assert_int_equal(plan_widening(1, 8), PLAN_WIDENING_MAX);
        assert_int_equal(plan_widening(8, 8), 1);
        assert_int_equal(plan_widening(4, 0), 1); /* a barrier's, whatever its type says */
}

/* For GPUs: of reductions only one tree, whatever the size, and no plan that touches others' memory. */
static void choice_device(const struct plan_net *net) {
        static const char *const letters[] = {"aabb", "aaaabbbb", "aabbccdd", "bacccca", "abcd"};

        for (size_t w = 0; w < sizeof(letters) / sizeof(letters[0]); w++) {
                struct plan_choice choices[PLAN_CHOICES_MAX], flat[PLAN_CHOICES_MAX];
                struct plan_nodes nodes;
                uint32_t n_ranks = world_nodes(letters[w], &nodes);
                const uint32_t tree = plan_nodes_largest(&nodes) > 1 ? PLAN_TREE_NODE_ORDER : PLAN_TREE_RANK_ORDER;
                uint32_t n = plan_choose_device_nodes(&nodes, n_ranks, net, choices);

                for (uint32_t i = 0; i < n; i++) {
                        struct plan plan;

                        assert_int_equal(
                                plan_build_nodes(choices[i].operation, choices[i].algorithm, n_ranks, &nodes, &plan),
                                PLAN_OK);
                        if (plan_operation_reduces(plan.operation))
                                assert_int_equal(plan.tree, tree);
                        for (uint32_t f = 0; f < plan.n_phases; f++)
                                assert_true(plan.phases[f].kind <= PLAN_WAIT ||
                                            plan.phases[f].schedule >= PLAN_SCHEDULE_STAGED ||
                                            plan.phases[f].schedule == PLAN_NODE_BLOCK_REDUCE);
                }
                if (plan_nodes_largest(&nodes) == 1) { /* all but sums is as on one node, and see test_choice_alone() */
                        uint32_t n_flat = plan_choose_device(n_ranks, flat);

                        for (uint32_t i = 0; i < n_flat; i++)
                                assert_non_null(plan_choice_find(choices, n, flat[i].operation, 1, 1));
                        for (uint32_t i = 0; i < n; i++) {
                                assert_non_null(plan_choice_find(flat, n_flat, choices[i].operation, 1, 1));
                                if (choices[i].operation == RING_OP_ALL_REDUCE)
                                        continue;
                                assert_int_equal(choices[i].algorithm, PLAN_DIRECT);
                                assert_int_equal(choices[i].max_bytes, UINT64_MAX);
                        }
                        continue;
                }
                for (uint64_t bytes = 16; bytes <= 1 << 30; bytes *= 4) {
                        assert_int_equal(chosen(choices, n, RING_OP_REDUCE_SCATTER, bytes), PLAN_HIERARCHICAL_STAGED);
                        assert_int_equal(chosen(choices, n, RING_OP_REDUCE, bytes), PLAN_HIERARCHICAL_STAGED);
                        assert_int_equal(chosen(choices, n, RING_OP_ALL_TO_ALL, bytes), PLAN_DIRECT);
                }
                assert_int_equal(chosen(choices, n, RING_OP_ALL_REDUCE, 64), PLAN_HIERARCHICAL_STAGED);
                assert_int_equal(chosen(choices, n, RING_OP_ALL_REDUCE, 64 << 20), PLAN_HIERARCHICAL_STAGED_SCATTER);
                if (net->any_rail || net->n_rails == 1) /* else unequal nodes have unequal rails */
                        assert_int_equal(chosen(choices, n, RING_OP_ALL_GATHER, 64 << 20), PLAN_HIERARCHICAL_STAGED);
                assert_int_equal(chosen(choices, n, RING_OP_BROADCAST, 64 << 20), PLAN_HIERARCHICAL_STAGED);
                assert_null(plan_choice_find(choices, n, RING_OP_SEND, 1, 64)); /* kernels have no plan for it */
                assert_int_equal(plan_choose_device_nodes(&nodes, n_ranks - 1, net, choices), 0);
        }
}

/* The largest request of an operation that runs such a plan; 0: none does. */
static uint64_t most_bytes(uint32_t operation, uint32_t algorithm, const char *letters, const struct plan_net *net) {
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plan_nodes nodes;
        uint32_t n_ranks = world_nodes(letters, &nodes);
        uint32_t n = plan_choose_device_nodes(&nodes, n_ranks, net, choices);
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < n; i++)
                if (choices[i].operation == operation && choices[i].algorithm == algorithm)
                        bytes = choices[i].max_bytes;
        return bytes;
}

static uint64_t direct_bytes(uint32_t operation, const char *letters, const struct plan_net *net) {
        return most_bytes(operation, PLAN_DIRECT, letters, net);
}

/* Each on a node of its own: nothing is added up inside a node. */
static void test_choice_alone(void **state) {
        static const char *const alone[] = {"ab", "abc", "abcd", "abcdefgh"};
        struct plan_net net, more;

        (void)state;
        plan_net_device(&net);
        more = net;
        more.n_rails = 4;
        more.any_rail = true;
        /* Two send each other as much in one shot as in two. */
        assert_int_equal(most_bytes(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, "ab", &net), UINT64_MAX);
        assert_int_equal(most_bytes(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, "ab", &more), UINT64_MAX);
        for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++) {
                assert_int_equal(most_bytes(RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_STAGED, alone[i], &net), 0);
                assert_int_equal(most_bytes(RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_STAGED_SCATTER, alone[i], &net), 0);
        }
        /* A hop is worth so many bytes, more of them where there are more rails, and fewer where more ranks send. */
        for (size_t i = 1; i < sizeof(alone) / sizeof(alone[0]); i++) {
                uint64_t few = most_bytes(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, alone[i], &net);

                assert_in_range(few, 1024, 1 << 20);
                assert_true(most_bytes(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, alone[i], &more) > few);
                assert_true(most_bytes(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, alone[i - 1], &net) > few);
                assert_int_equal(most_bytes(RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, alone[i], &net), UINT64_MAX);
        }
}

static void test_choice_device(void **state) {
        struct plan_net one, net;

        (void)state;
        plan_net_device(&one);
        for (uint32_t n_rails = 1; n_rails <= 8; n_rails *= 2)
                for (uint32_t any = 0; any < 2; any++) {
                        plan_net_device(&net);
                        net.n_rails = n_rails;
                        net.any_rail = any;
                        choice_device(&net);
                }
        /* What saves bytes between nodes pays later where there are more rails for them. */
        assert_true(direct_bytes(RING_OP_BROADCAST, "aaaabbbb", &net) >
                    direct_bytes(RING_OP_BROADCAST, "aaaabbbb", &one));
        net.n_rails = 0;
        assert_int_equal(direct_bytes(RING_OP_BROADCAST, "aaaabbbb", &net), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_load),         cmocka_unit_test(test_formulas),
                cmocka_unit_test(test_any_rail),     cmocka_unit_test(test_waits),
                cmocka_unit_test(test_local),        cmocka_unit_test(test_choice),
                cmocka_unit_test(test_widenings),    cmocka_unit_test(test_choice_device),
                cmocka_unit_test(test_choice_alone),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
