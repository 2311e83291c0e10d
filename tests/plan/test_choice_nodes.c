/* SPDX-License-Identifier: MIT */
/* What is chosen over nodes, of what the model makes of plans. */
#include <inttypes.h>
#include <math.h>

#include "plan/cost.h"
#include "plan/nodes.h"
#include "worlds.h"

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

/* Constants by which small blocks are better sent directly and large ones by way of the nodes' ranks. */
static void test_vectors(void **state) {
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plan_constants constants;
        struct plan_nodes nodes;
        struct plan_net net;
        struct plan_over over = {.constants = &constants, .net = &net, .nodes = &nodes, .n_ranks = 16};
        uint32_t n, n_even = 0, n_vectors = 0;

        (void)state;
        plan_constants_host(&constants, 2);
        constants.ns_per_byte_copy = 0.1;
        plan_net_host(&net);
        net.n_rails = 8;
        world_nodes("aaaaaaaabbbbbbbb", &nodes);
        n = plan_choose_nodes(&over, choices);
        for (uint32_t i = 0; i < n; i++) {
                n_even += choices[i].operation == RING_OP_ALL_TO_ALL;
                n_vectors += choices[i].operation == RING_OP_ALL_TO_ALL_V;
        }
        assert_true(n_even > 1);
        assert_int_equal(n_vectors, 1);
        assert_int_equal(chosen(choices, n, RING_OP_ALL_TO_ALL_V, 0), PLAN_HIERARCHICAL);
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

/* What others do not know is not chosen, and what is chosen in its place is the best of the rest. */
static void test_known(void **state) {
        struct plan_choice all[PLAN_CHOICES_MAX], few[PLAN_CHOICES_MAX];
        struct plan_constants constants;
        struct plan_known known;
        struct plan_nodes nodes;
        struct plan_net net;
        struct plan_over over = {.constants = &constants, .net = &net, .nodes = &nodes};
        uint32_t n_all, n_few;

        (void)state;
        plan_constants_host(&constants, 2);
        plan_net_host(&net);
        over.n_ranks = world_nodes("aabbccddeeffgghh", &nodes);
        n_all = plan_choose_nodes(&over, all);
        for (uint32_t below = PLAN_HIERARCHICAL_SCATTER; below <= PLAN_ALGORITHM_COUNT; below++) {
                over.algorithms = below;
                n_few = plan_choose_nodes(&over, few);
                assert_true(n_few > 0);
                for (uint32_t i = 0; i < n_few; i++)
                        assert_true(few[i].algorithm < below);
                for (size_t i = 0; i < N_OPERATIONS; i++) /* nothing is left without a plan */
                        assert_non_null(plan_choice_find(few, n_few, operations[i], 1, UINT64_MAX));
        }
        assert_int_equal(n_few, n_all);
        assert_memory_equal(few, all, n_all * sizeof(all[0]));
        assert_int_equal(chosen(all, n_all, RING_OP_BROADCAST, 64 << 20), PLAN_HIERARCHICAL_DOUBLE_TREE);

        plan_known_all(&known);
        assert_true(known.widenings && known.algorithms == PLAN_ALGORITHM_COUNT);
        plan_known_meet(&known, true, PLAN_ALGORITHM_COUNT + 1); /* newer than this one */
        assert_true(known.widenings && known.algorithms == PLAN_ALGORITHM_COUNT);
        plan_known_meet(&known, false, PLAN_ALGORITHM_COUNT);
        assert_true(!known.widenings && known.algorithms == PLAN_ALGORITHM_COUNT);
        plan_known_meet(&known, true, 0); /* it does not say */
        assert_true(!known.widenings && known.algorithms == PLAN_HIERARCHICAL_DOUBLE_TREE);
        plan_known_meet(&known, true, PLAN_ALGORITHM_COUNT);
        assert_true(!known.widenings && known.algorithms == PLAN_HIERARCHICAL_DOUBLE_TREE);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_choice),        cmocka_unit_test(test_widenings),
                cmocka_unit_test(test_choice_device), cmocka_unit_test(test_choice_alone),
                cmocka_unit_test(test_known),         cmocka_unit_test(test_vectors),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
