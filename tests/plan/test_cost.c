/* SPDX-License-Identifier: MIT */
/* Geometry, prediction and the table of choices. */
#include "plan/cost.h"
#include "plans.h"
#include "tests/cmocka_all.h"

static void test_geometry(void **state) {
        uint32_t last = UINT32_MAX;

        (void)state;
        for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n++) {
                struct plan_geometry g;

                plan_geometry_choose(n, &g);
                assert_int_equal(g.part_bytes % 64, 0);
                assert_in_range(g.part_bytes, 4096, 65536);
                assert_int_equal(g.slots, 2);
                assert_true(g.part_bytes <= last);
                last = g.part_bytes;
                assert_int_equal(plan_staging_bytes(&g, n),
                                 (uint64_t)n * (n - 1) * PLAN_REGIONS_MAX * g.slots * g.part_bytes);
                if (g.part_bytes > 4096)
                        assert_true(plan_staging_bytes(&g, n) <= UINT64_C(32) << 20);
        }
        assert_int_equal(last, 4096);
}

static void test_prediction(void **state) {
        struct plan_constants host;

        (void)state;
        plan_constants_host(&host, 2);
        for (uint32_t i = 0; i < N_PLANS; i++)
                for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n++) {
                        struct plan plan;
                        double last = 0;

                        assert_int_equal(plan_build(plans[i].operation, plans[i].algorithm, n, &plan), 0);
                        for (uint64_t count = 1; count < UINT64_C(1) << 40; count *= 3) {
                                struct plan_constants better = host;
                                double ns = plan_cost_ns(&plan, &host, count, 4);

                                assert_true(ns >= last && ns < 1e18); /* more data never takes less */
                                last = ns;
                                better.parallel = 64;
                                assert_true(plan_cost_ns(&plan, &better, count, 4) <= ns);
                                better = host;
                                better.hop_ns = 0;
                                assert_true(plan_cost_ns(&plan, &better, count, 4) <= ns);
                        }
                }
}

/* For every operation ascending and up to the end; every plan named exists. */
static void check_table(const struct plan_choice *choices, uint32_t n_choices, uint32_t n_ranks) {
        static const uint32_t operations[] = {RING_OP_ALL_REDUCE, RING_OP_ALL_GATHER, RING_OP_REDUCE_SCATTER,
                                              RING_OP_BROADCAST, RING_OP_BARRIER};

        assert_in_range(n_choices, 5, PLAN_CHOICES_MAX);
        for (uint32_t i = 0; i < n_choices; i++) {
                struct plan plan;
                bool last = i + 1 == n_choices || choices[i + 1].operation != choices[i].operation;

                assert_int_equal(plan_build(choices[i].operation, choices[i].algorithm, n_ranks, &plan), 0);
                assert_true(last == (choices[i].max_bytes == UINT64_MAX));
                if (!last)
                        assert_true(choices[i].max_bytes < choices[i + 1].max_bytes);
        }
        for (uint32_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
                for (uint32_t shift = 0; shift <= 64; shift++) {
                        uint64_t bytes = shift == 64 ? UINT64_MAX : UINT64_C(1) << shift;
                        const struct plan_choice *choice =
                                plan_choice_find(choices, n_choices, operations[i], bytes - 1);

                        assert_non_null(choice);
                        assert_int_equal(choice->operation, operations[i]);
                        assert_true(bytes - 1 <= choice->max_bytes);
                }
        assert_null(plan_choice_find(choices, n_choices, RING_OP_ALL_TO_ALL, 1));
        assert_null(plan_choice_find(choices, n_choices, RING_OP_NONE, 0));
        assert_null(plan_choice_find(choices, 0, RING_OP_ALL_REDUCE, 0));
}

static void test_choices(void **state) {
        struct plan_constants constants;
        struct plan_choice choices[PLAN_CHOICES_MAX];

        (void)state;
        for (uint32_t workers = 0; workers <= 64; workers = workers * 2 + 1)
                for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n++) {
                        plan_constants_host(&constants, workers);
                        check_table(choices, plan_choose(&constants, n, choices), n);
                        if (n > 2) { /* both have their place */
                                assert_int_equal(choices[0].algorithm, PLAN_ONE_SHOT);
                                assert_int_equal(choices[1].algorithm, PLAN_TWO_SHOT);
                        }
                }
        assert_int_equal(plan_choose(&constants, 0, choices), 0);
        assert_int_equal(plan_choose(&constants, PLAN_RANKS_MAX + 1, choices), 0);
}

/* The crossing comes from the model, so it moves with the constants, and either side may vanish. */
static void test_crossing(void **state) {
        struct plan_constants host, other;
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plan one, two;
        uint64_t limit;

        (void)state;
        plan_constants_host(&host, 2);
        plan_choose(&host, 8, choices);
        limit = choices[0].max_bytes;
        plan_build(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 8, &one);
        plan_build(RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, 8, &two);
        assert_true(plan_cost_ns(&one, &host, limit / 4, 4) <= plan_cost_ns(&two, &host, limit / 4, 4));
        assert_true(plan_cost_ns(&one, &host, limit / 2, 4) > plan_cost_ns(&two, &host, limit / 2, 4));

        other = host;
        other.hop_ns *= 100; /* a second hop has to pay */
        plan_choose(&other, 8, choices);
        assert_true(choices[0].max_bytes > limit);

        other = host;
        other.ns_per_byte_link = other.ns_per_byte_reduce = 0; /* only chunks cost */
        assert_true(plan_choose(&other, 8, choices) > 0);
        assert_int_equal(choices[0].algorithm, PLAN_ONE_SHOT);
        assert_true(choices[0].max_bytes > limit);

        other = (struct plan_constants){.ns_per_byte_link = 1, .ns_per_byte_reduce = 1, .parallel = 1}; /* only bytes */
        plan_choose(&other, 8, choices);
        assert_true(choices[0].algorithm == PLAN_TWO_SHOT || choices[0].max_bytes <= 256);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_geometry),
                cmocka_unit_test(test_prediction),
                cmocka_unit_test(test_choices),
                cmocka_unit_test(test_crossing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
