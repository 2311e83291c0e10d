/* SPDX-License-Identifier: MIT */
/* Plans over nodes: mappings, what the verifier accepts, and that the oracle finds no harm in it. */
#include <math.h>
#include <string.h>

#include "oracle_util.h"
#include "plan/cost.h"
#include "plan/rails.h"
#include "plan/verify.h"
#include "tests/time_scale.h"
#include "worlds.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t seed;

/* ---- mappings ---------------------------------------------------------------------------------------------------- */
static void test_mapping(void **state) {
        static const uint8_t mixed[] = {2, 0, 1, 0, 2, 2}, gap[] = {0, 2, 0}, late[] = {1, 1}, beyond[] = {0, 64};
        static const uint8_t ranks[] = {1, 3, 2, 0, 4, 5}, local[] = {0, 0, 0, 1, 1, 2};
        struct plan_nodes nodes, same, untouched;

        (void)state;
        assert_int_equal(plan_nodes_init(&nodes, 6, mixed), PLAN_OK);
        assert_int_equal(nodes.n_nodes, 3);
        assert_memory_equal(nodes.ranks, ranks, sizeof(ranks));
        assert_memory_equal(nodes.local, local, sizeof(local));
        assert_int_equal(plan_nodes_size(&nodes, 0), 2);
        assert_int_equal(plan_nodes_size(&nodes, 1), 1);
        assert_int_equal(plan_nodes_size(&nodes, 2), 3);
        assert_int_equal(plan_nodes_largest(&nodes), 3);
        assert_int_equal(plan_nodes_rank(&nodes, 2, 1), 4);
        assert_true(plan_nodes_together(&nodes, 0, 5) && !plan_nodes_together(&nodes, 0, 1));
        assert_true(plan_nodes_together(NULL, 0, 1));
        assert_true(plan_nodes_valid(&nodes, 6));
        assert_false(plan_nodes_valid(&nodes, 5));
        same = nodes;
        same.local[3] = 0;
        assert_false(plan_nodes_valid(&same, 6));
        assert_true(plan_nodes_equal(&nodes, &nodes, 6));
        assert_int_equal(plan_nodes_init(&same, 6, (const uint8_t[]){2, 0, 1, 0, 2, 1}), PLAN_OK);
        assert_false(plan_nodes_equal(&nodes, &same, 6));
        assert_true(plan_nodes_equal(&nodes, &same, 5));
        assert_false(plan_nodes_equal(&nodes, NULL, 6));
        assert_int_equal(plan_nodes_init(&same, 2, (const uint8_t[]){0, 0}), PLAN_OK);
        assert_true(plan_nodes_equal(&same, NULL, 2));
        memset(&same, 0x5a, sizeof(same));
        untouched = same;
        assert_int_equal(plan_nodes_init(&same, 3, gap), PLAN_E_INVALID);
        assert_int_equal(plan_nodes_init(&same, 2, late), PLAN_E_INVALID);
        assert_int_equal(plan_nodes_init(&same, 2, beyond), PLAN_E_INVALID);
        assert_int_equal(plan_nodes_init(&same, 0, gap), PLAN_E_INVALID);
        assert_int_equal(plan_nodes_init(&same, PLAN_RANKS_MAX + 1, mixed), PLAN_E_INVALID);
        assert_memory_equal(&same, &untouched, sizeof(same));
}

static void test_build(void **state) {
        struct plan_nodes nodes, one;
        struct plan plan, untouched;

        (void)state;
        world_nodes("aabb", &nodes);
        world_nodes("aaaa", &one);
        memset(&plan, 0x5a, sizeof(plan));
        untouched = plan;
        assert_int_equal(plan_build_nodes(RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL, 4, &one, &plan), PLAN_E_INVALID);
        assert_int_equal(plan_build_nodes(RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL, 3, &nodes, &plan), PLAN_E_INVALID);
        assert_int_equal(plan_build_nodes(RING_OP_ALL_REDUCE, PLAN_ZERO_COPY, 4, &nodes, &plan), PLAN_E_UNSUPPORTED);
        assert_int_equal(plan_build_nodes(RING_OP_BARRIER, PLAN_HIERARCHICAL_RING, 4, &nodes, &plan),
                         PLAN_E_UNSUPPORTED);
        assert_int_equal(plan_build(RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL, 4, &plan), PLAN_E_UNSUPPORTED);
        assert_memory_equal(&plan, &untouched, sizeof(plan));
        assert_int_equal(plan_build_nodes(RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL, 4, &nodes, &plan), PLAN_OK);
        assert_true(plan.nodes == &nodes && plan.tree == PLAN_TREE_NODE_ORDER && plan.n_shards == 2);
        assert_int_equal(plan_build_nodes(RING_OP_ALL_REDUCE, PLAN_RING, 4, &nodes, &plan), PLAN_OK);
        assert_true(plan.nodes == &nodes && plan.tree == PLAN_TREE_ROTATED);
        assert_int_equal(plan_build_nodes(RING_OP_SEND, PLAN_ZERO_COPY, 4, &nodes, &plan), PLAN_OK);
        assert_null(plan.nodes);
        assert_int_equal(plan_algorithm_at_nodes(RING_OP_ALL_REDUCE, 4, &one, 0), PLAN_ALGORITHM_NONE);
}

/* ---- accepted ---------------------------------------------------------------------------------------------------- */
static void accept(const char *letters, bool pairs, uint32_t *n_plans, uint32_t *n_runs) {
        struct plan_geometry geometry;
        struct plan_nodes nodes;
        uint32_t n = world_nodes(letters, &nodes), n_all = 0;
        struct plan all[64];

        plan_geometry_choose(n, &geometry);
        while (world_plan(&nodes, n, n_all, &all[n_all]))
                n_all++;
        for (uint32_t i = 0; i < n_all; i++) {
                struct plan_verdict verdict = {0};
                uint32_t runs = 0;

                if (all[i].algorithm < PLAN_HIERARCHICAL && !pairs)
                        continue;
                if (verify_all(&all[i], &geometry, pairs ? all : NULL, pairs ? n_all : 0, &runs, &verdict))
                        fail_msg("%s %s, %s: %s", plan_operation_name(all[i].operation),
                                 plan_algorithm_name(all[i].algorithm), letters, verdict.text);
                *n_runs += runs;
                ++*n_plans;
        }
}

static void test_accepts(void **state) {
        uint32_t n_plans = 0, n_runs = 0;
        char letters[PLAN_RANKS_MAX + 1];

        (void)state;
        for (uint32_t i = 0; i < N_WORLDS; i++)
                accept(worlds[i].nodes, strlen(worlds[i].nodes) <= 8, &n_plans, &n_runs);
        for (uint32_t per_node = 1; per_node <= 32;
             per_node *= 4) { /* as many as there can be; nodes of one rank, ... */
                for (uint32_t r = 0; r < PLAN_RANKS_MAX; r++)
                        letters[r] = (char)('a' + r / per_node);
                letters[PLAN_RANKS_MAX] = 0;
                accept(letters, false, &n_plans, &n_runs);
        }
        for (uint32_t r = 0; r < 43; r++) /* interleaved and uneven */
                letters[r] = (char)('a' + r * r % 11 % 6);
        letters[43] = 0;
        for (uint32_t r = 0; r < 43; r++)
                if (letters[r] > 'a' + 1)
                        letters[r]--; /* squares modulo 11 are 0, 1, 3, 4, 5, 9 */
        accept(letters, false, &n_plans, &n_runs);
        print_message("%u plans over nodes accepted, %u runs of two requests each\n", n_plans, n_runs);
}

/* Any number of nodes: those that are no powers of two are where doubling and trees have something left over. With one
 * rank each, and with two on one in the midst. */
static void test_accepts_any_count(void **state) {
        static const uint32_t counts[] = {6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 31, 33, 63};
        const bool slow = time_scale() > 1; /* with sanitizers the larger ones take very long */
        uint32_t n_plans = 0, n_runs = 0;

        (void)state;
        for (uint32_t i = 0; i < COUNT_OF(counts) && counts[i] <= (slow ? 15 : 63); i++) {
                for (uint32_t more = 0; more < (slow || counts[i] > 33 ? 1 : 2); more++) {
                        char letters[PLAN_RANKS_MAX + 1];
                        uint32_t n = counts[i];

                        for (uint32_t r = 0; r < n; r++)
                                letters[r] = (char)('a' + r);
                        if (more) {
                                letters[n] = (char)('a' + n / 2);
                                n++;
                        }
                        letters[n] = 0;
                        accept(letters, false, &n_plans, &n_runs);
                }
        }
        print_message("%u plans over 6 to %u nodes accepted, %u runs of two requests each\n", n_plans, slow ? 15 : 63,
                      n_runs);
}

/* One slot is enough for all but rings, also where one rank carries many shards. */
static void test_single_slot(void **state) {
        const struct plan_geometry geometry = {.part_bytes = 64, .slots = 1};

        (void)state;
        for (uint32_t w = 0; w < N_WORLDS; w++) {
                struct plan_nodes nodes;
                uint32_t n = world_nodes(worlds[w].nodes, &nodes);
                struct plan plan;

                for (uint32_t i = 0; world_plan(&nodes, n, i, &plan); i++) {
                        struct plan_verdict verdict = {0};
                        int r = plan_verify_all(&plan, &geometry, NULL, 0, &verdict);

                        if (world_slots_min(&plan) == 1 && r)
                                fail_msg("%s %s, %s: %s", plan_operation_name(plan.operation),
                                         plan_algorithm_name(plan.algorithm), worlds[w].nodes, verdict.text);
                        if (plan.algorithm == PLAN_RING && world_slots_min(&plan) > 1 && n > 2)
                                assert_int_equal(verdict.condition, PLAN_FAULT_DEADLOCK);
                }
        }
}

/* Where a rank's channel to itself is like all others, plans by channels alone do, and some others get stuck. */
static void test_alike(void **state) {
        uint32_t n_staged = 0, n_stuck = 0;

        (void)state;
        for (uint32_t w = 0; w < N_WORLDS; w++) {
                struct plan_nodes nodes;
                uint32_t n = world_nodes(worlds[w].nodes, &nodes);
                struct plan plan;

                for (uint32_t i = 0; world_plan(&nodes, n, i, &plan); i++)
                        for (uint32_t slots = 1; slots <= 2; slots++) {
                                const struct plan_geometry geometry = {.part_bytes = 64, .slots = slots};
                                struct plan_verdict verdict = {0};
                                int r = plan_verify_alike(&plan, &geometry, &verdict);

                                if (!world_staged(&plan)) {
                                        n_stuck += plan.algorithm >= PLAN_HIERARCHICAL && slots == 2 && r;
                                        continue;
                                }
                                n_staged++;
                                if (r)
                                        fail_msg("%s %s, %s, %u slots: %s", plan_operation_name(plan.operation),
                                                 plan_algorithm_name(plan.algorithm), worlds[w].nodes, slots,
                                                 verdict.text);
                        }
        }
        assert_int_equal(n_staged, 2 * 6 * N_WORLDS);
        assert_true(n_stuck > 0);
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */
static void expect_fault(const struct plan *plan, enum plan_fault fault) {
        const struct plan_geometry geometry = {.part_bytes = 64, .slots = 2};
        struct plan_verdict verdict = {0};

        if (plan_verify_all(plan, &geometry, NULL, 0, &verdict) != PLAN_E_INVALID || verdict.condition != fault)
                fail_msg("%s %s, tree %s: fault %u instead of %u: %s", plan_operation_name(plan->operation),
                         plan_algorithm_name(plan->algorithm), plan_tree_name(plan->tree), verdict.condition, fault,
                         verdict.text);
}

/* What is right on one node is not when there are two. */
static void test_refuses_far(void **state) {
        struct plan_nodes nodes;
        struct plan plan;
        uint32_t n_far = 0;

        (void)state;
        world_nodes("abab", &nodes);
        for (uint32_t operation = 0; operation < RING_OP_COUNT; operation++) {
                if (plan_operation_p2p(operation) || plan_build(operation, PLAN_ZERO_COPY, 4, &plan))
                        continue;
                plan.nodes = &nodes;
                expect_fault(&plan, PLAN_FAULT_FAR);
                n_far++;
        }
        assert_int_equal(n_far, 9);
}

/* What belongs to a plan over nodes: mapping, frame, order, tree. */
static void test_refuses_broken(void **state) {
        struct plan_nodes nodes, wrong;
        struct plan right, plan;

        (void)state;
        world_nodes("aabb", &nodes);
        assert_int_equal(plan_build_nodes(RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL, 4, &nodes, &right), PLAN_OK);
        plan = right;
        plan.nodes = NULL;
        expect_fault(&plan, PLAN_FAULT_MALFORMED);
        wrong = nodes;
        wrong.local[1] = 0;
        plan.nodes = &wrong;
        expect_fault(&plan, PLAN_FAULT_MALFORMED);
        plan = right; /* does not wait for the others of the node to begin */
        plan.phases[1].after = -1;
        expect_fault(&plan, PLAN_FAULT_RACE);
        plan = right; /* says too early that it is done */
        plan.phases[3].after_whole = 0;
        plan.phases[3].after = -1;
        expect_fault(&plan, PLAN_FAULT_RACE);
        plan = right;
        plan.tree = PLAN_TREE_RANK_ORDER;
        expect_fault(&plan, PLAN_FAULT_VALUE);
        plan = right; /* sums between nodes would be rounded */
        plan.partials = 0;
        expect_fault(&plan, PLAN_FAULT_MALFORMED);
        plan = right;
        plan.n_shards = 1; /* one rank of each node does everything: slow, and right */
        assert_int_equal(plan_verify_all(&plan, &(struct plan_geometry){.part_bytes = 64, .slots = 2}, NULL, 0,
                                         &(struct plan_verdict){0}),
                         PLAN_OK);
        assert_int_equal(plan_build_nodes(RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_SCATTER, 4, &nodes, &plan), PLAN_OK);
        plan.n_shards = 3;
        expect_fault(&plan, PLAN_FAULT_MALFORMED);
        assert_int_equal(plan_build_nodes(RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_DOUBLE_TREE, 4, &nodes, &plan),
                         PLAN_OK);
        plan.n_shards = 3; /* no two halves for the last one */
        expect_fault(&plan, PLAN_FAULT_VALUE);
        plan.n_shards = 4;
        plan.phases[5].after = 3; /* before it is done as a leaf */
        expect_fault(&plan, PLAN_FAULT_RACE);
        /* Trees: four nodes of two have as many as there are. */
        world_nodes("abcdabcd", &nodes);
        for (uint32_t k = 0, algorithm; (algorithm = plan_algorithm_at_nodes(RING_OP_ALL_REDUCE, 8, &nodes, k)); k++)
                for (uint32_t tree = PLAN_TREE_RANK_ORDER; tree < PLAN_TREE_COUNT; tree++) {
                        assert_int_equal(plan_build_nodes(RING_OP_ALL_REDUCE, algorithm, 8, &nodes, &plan), PLAN_OK);
                        if (tree == plan.tree)
                                continue;
                        plan.tree = tree;
                        expect_fault(&plan, PLAN_FAULT_VALUE);
                }
}

/* ---- two trees --------------------------------------------------------------------------------------------------- */
/* Steps with data of the phases that have such a schedule. */
static uint32_t data_steps(const struct plan *plan, const struct plan_shape *shape, uint32_t me, uint32_t schedule) {
        const struct plan_geometry geometry = {.part_bytes = 64, .slots = 2};
        uint32_t n = 0;

        for (uint32_t p = 0; p < plan->n_phases; p++) {
                const struct plan_phase *phase = &plan->phases[p];
                struct plan_step step;

                for (uint32_t k = 0; phase->schedule == schedule && k < plan_phase_steps(plan, phase, shape, me); k++)
                        n += plan_step(plan, phase, &geometry, shape, me, 0, k, &step) && step.data;
        }
        return n;
}

/* What is promised of two trees, of any number of nodes: nobody has children in both, so that nobody sends or gets more
 * than four halves, and a chain is as long as a tree is deep, for as many parts as channels hold. */
static void check_double(uint32_t operation, uint32_t n) {
        static const struct plan_constants nothing = {.parallel = 1};
        static const struct plan_net unit = {.hop_ns = 1, .n_rails = 1};
        const bool rooted = plan_operation_rooted(operation);
        const uint32_t most = rooted || n == 2 ? 2 : n < 5 ? 3 : 4;
        const struct plan_shape shape = {
                .count = 8, .element_bytes = 4, .partial_bytes = 4, .root = rooted ? n / 2 : 0};
        struct plan_load load[PLAN_RANKS_MAX];
        struct plan_verdict verdict = {0};
        uint32_t depth = 0, busiest = 0;
        uint8_t node[PLAN_RANKS_MAX];
        struct plan_geometry geometry;
        struct plan_nodes nodes;
        struct plan_model model;
        struct plan_cost cost;
        struct plan plan;

        for (uint32_t r = 0; r < n; r++)
                node[r] = (uint8_t)r;
        assert_int_equal(plan_nodes_init(&nodes, n, node), PLAN_OK);
        assert_int_equal(plan_build_nodes(operation, PLAN_HIERARCHICAL_DOUBLE_TREE, n, &nodes, &plan), PLAN_OK);
        plan_geometry_choose_nodes(n, &geometry);
        plan_load_ranks(&plan, &geometry, &shape, load);
        for (uint32_t r = 0; r < n; r++) {
                bool down = operation == RING_OP_BROADCAST;
                uint32_t inner = data_steps(&plan, &shape, r, down ? PLAN_NODE_DOUBLE_DOWN : PLAN_NODE_DOUBLE_UP);
                uint32_t leaf =
                        data_steps(&plan, &shape, r, down ? PLAN_NODE_DOUBLE_LEAF_DOWN : PLAN_NODE_DOUBLE_LEAF_UP);

                assert_true(load[r].chunks_out <= most && load[r].chunks_in <= most);
                busiest = load[r].chunks_out > busiest ? (uint32_t)load[r].chunks_out : busiest;
                busiest = load[r].chunks_in > busiest ? (uint32_t)load[r].chunks_in : busiest;
                assert_int_equal(inner + leaf, 2);
                assert_true(inner <= 1 || (rooted && r == shape.root));
        }
        assert_int_equal(busiest, most);
        while ((rooted ? n - 1 : n) >> (depth + 1))
                depth++;
        assert_int_equal(plan_model_init_net(&model, &plan, &nothing, &unit, &geometry, 4, 4), 0);
        for (uint32_t parts = 1; parts <= geometry.slots; parts += geometry.slots - 1) {
                const uint32_t both = rooted && n == 2 && parts > 1 ? 2 : 0; /* both trees go through one channel */

                plan_model_predict(&model, (uint64_t)parts * geometry.part_bytes / 4 * plan.n_shards, &cost);
                if (fabs(cost.critical_ns - (rooted ? 1 + depth : 2 * depth) - both) > 0.01)
                        fail_msg("%s, %u nodes, %u parts: %.2f hops", plan_operation_name(operation), n, parts,
                                 cost.critical_ns);
        }
        if ((n < 18 || n > 62) && plan_verify_all(&plan, &geometry, NULL, 0, &verdict))
                fail_msg("%s, %u nodes: %s", plan_operation_name(operation), n, verdict.text);
}

static void test_double_tree(void **state) {
        static const uint32_t operations[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE, RING_OP_BROADCAST};

        (void)state;
        for (uint32_t n = 2; n <= PLAN_RANKS_MAX; n++)
                for (size_t o = 0; o < sizeof(operations) / sizeof(operations[0]); o++)
                        check_double(operations[o], n);
}

/* ---- executed ---------------------------------------------------------------------------------------------------- */
/* Rank's requests of several plans in a row. Counts small, so that shards are empty and ragged. */
static struct plan_case case_draw(const struct plan *plan, uint32_t slots, uint64_t *random) {
        struct plan_case c = oracle_case(plan, (uint32_t)(oracle_random(random) % ORACLE_CASES));

        c.geometry.slots = slots;
        c.vector = (uint32_t)oracle_random(random);
        c.count = oracle_random(random) % 2 ? c.count : oracle_random(random) % 40;
        c.in_place = oracle_random(random) % 2 && plan_case_in_place(plan->operation);
        if (plan->n_ranks > 6)
                c.count %= 24;
        if (plan_operation_rooted(plan->operation) || plan_operation_p2p(plan->operation))
                c.root = (uint32_t)(oracle_random(random) % plan->n_ranks);
        if (plan_operation_p2p(plan->operation))
                c.peer = (uint32_t)(oracle_random(random) % plan->n_ranks);
        return c;
}

static void execute(const char *letters, const struct plan *sequence, uint64_t *random) {
        const struct verify_options options = VERIFY_OPTIONS_NULL;
        uint32_t slots = 1 + (uint32_t)(oracle_random(random) % 3);
        struct oracle_request requests[3];
        enum oracle_harm found;

        for (uint32_t i = 0; i < 3; i++)
                if (slots < world_slots_min(&sequence[i]))
                        slots = world_slots_min(&sequence[i]);
        for (uint32_t i = 0; i < 3; i++)
                requests[i] = (struct oracle_request){&sequence[i], case_draw(&sequence[i], slots, random)};
        found = oracle_search(requests, 3, &options, oracle_random(random), 3);
        if (found != ORACLE_FINE)
                fail_msg("%s: %s, %s %s, %s %s, %s %s", oracle_harm_names[found], letters,
                         plan_operation_name(sequence[0].operation), plan_algorithm_name(sequence[0].algorithm),
                         plan_operation_name(sequence[1].operation), plan_algorithm_name(sequence[1].algorithm),
                         plan_operation_name(sequence[2].operation), plan_algorithm_name(sequence[2].algorithm));
}

/* Each plan three times, and between two others. */
static void test_executed(void **state) {
        uint64_t random = seed;
        uint32_t n_runs = 0;

        (void)state;
        for (uint32_t w = 0; w < N_WORLDS; w++) {
                struct plan_nodes nodes;
                uint32_t n = world_nodes(worlds[w].nodes, &nodes), n_all = 0;
                struct plan all[64], sequence[3];

                while (world_plan(&nodes, n, n_all, &all[n_all]))
                        n_all++;
                for (uint32_t i = 0; i < n_all; i++)
                        for (uint32_t k = 0; k < (oracle_full() ? 200
                                                  : n < 6       ? 20u / ORACLE_SPARSE
                                                  : n < 10      ? 4u / ORACLE_SPARSE
                                                                : 1u);
                             k++) {
                                sequence[0] = sequence[1] = sequence[2] = all[i];
                                if (k % 2 == 1) {
                                        sequence[0] = all[oracle_random(&random) % n_all];
                                        sequence[2] = all[oracle_random(&random) % n_all];
                                }
                                execute(worlds[w].nodes, sequence, &random);
                                n_runs++;
                        }
        }
        print_message("%u sequences of 3 plans over nodes, 3 schedules each: no harm\n", n_runs);
}

static int setup(void **state) {
        (void)state;
        seed = oracle_seed();
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_mapping),     cmocka_unit_test(test_build),
                cmocka_unit_test(test_accepts),     cmocka_unit_test(test_accepts_any_count),
                cmocka_unit_test(test_single_slot), cmocka_unit_test(test_alike),
                cmocka_unit_test(test_refuses_far), cmocka_unit_test(test_refuses_broken),
                cmocka_unit_test(test_double_tree), cmocka_unit_test(test_executed),
        };

        return cmocka_run_group_tests(tests, setup, NULL);
}
