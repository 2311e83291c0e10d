/* SPDX-License-Identifier: MIT */
/* What the verifier accepts, and how long it takes. */
#include "plan/cost.h"
#include "plan/verify.h"
#include "plan/verify_machine.h"
#include "tests/cmocka_all.h"
#include "util/clock.h"
#include "verify_util.h"

/* ---- accepted ---------------------------------------------------------------------------------------------------- */
/* Every plan with the geometry it will run with; with few ranks, and with the most, followed by every other. */
static void test_accepts_all(void **state) {
        static const uint32_t more[] = {17, 24, 32, 33, 48, 63, 64};
        uint32_t n_plans = 0, n_runs = 0, n_pairs = 0;

        (void)state;
        for (uint32_t i = 0; i < 16 + sizeof(more) / sizeof(more[0]); i++) {
                uint32_t n = i < 16 ? i + 1 : more[i - 16], n_all, runs;
                struct plan all[PLANS_MAX];
                struct plan_geometry geometry;
                struct plan_verdict verdict = {0};

                plan_geometry_choose(n, &geometry);
                n_all = build_all(n, all);
                for (uint32_t k = 0; k < n_all; k++) {
                        bool pairs = n <= 8 || n == 33;

                        expect_ok(
                                verify_all(&all[k], &geometry, pairs ? all : NULL, pairs ? n_all : 0, &runs, &verdict),
                                &all[k], &verdict);
                        n_runs += runs;
                        n_pairs += pairs ? n_all : 0;
                }
                n_plans += n_all;
        }
        print_message("%u plans accepted, %u runs of two requests each, %u of them of two plans\n", n_plans, n_runs,
                      n_pairs);
}

static void test_prints_cost(void **state) {
        static const uint32_t ranks[] = {2, 8, 16, 33, 64};
        struct plan all[PLANS_MAX], plan;
        uint32_t n_all = build_all(64, all);

        (void)state;
        print_message("%36s", "microseconds (runs)");
        for (uint32_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
                print_message("  %7u ranks", ranks[i]);
        print_message("\n");
        for (uint32_t k = 0; k < n_all; k++) {
                print_message("%15s %20s", plan_operation_name(all[k].operation),
                              plan_algorithm_name(all[k].algorithm));
                for (uint32_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
                        struct plan_geometry geometry;
                        struct plan_verdict verdict = {0};
                        uint32_t runs;
                        uint64_t began;

                        plan_geometry_choose(ranks[i], &geometry);
                        if (plan_build(all[k].operation, all[k].algorithm, ranks[i], &plan)) {
                                print_message("%15s", "-");
                                continue;
                        }
                        began = clock_now_ns();
                        expect_ok(verify_all(&plan, &geometry, NULL, 0, &runs, &verdict), &plan, &verdict);
                        print_message("  %8.0f (%2u)", (double)(clock_now_ns() - began) / 1e3, runs);
                }
                print_message("\n");
        }
}

/* What plan_verify_all leaves out: any counts, sizes, slots, roots, peers and pairs. A ring wants a second slot. */
static void test_accepts_random_cases(void **state) {
        uint64_t random = 1;

        (void)state;
        for (uint32_t i = 0; i < 3000; i++) {
                uint32_t n = 1 + (uint32_t)(random_next(&random) % 12), n_all;
                struct plan_geometry geometry = {64u * (1 + (uint32_t)(random_next(&random) % 64)),
                                                 2 + (uint32_t)(random_next(&random) % 4)};
                struct plan_verdict verdict = {0};
                struct plan_case c, next_case;
                struct plan all[PLANS_MAX];
                const struct plan *plan, *next;

                n_all = build_all(n, all);
                plan = &all[random_next(&random) % n_all];
                next = &all[random_next(&random) % n_all];
                if (plan->algorithm != PLAN_RING && next->algorithm != PLAN_RING)
                        geometry.slots -= (uint32_t)(random_next(&random) % 2);
                c = random_case(&random, plan, &geometry);
                next_case = random_case(&random, next, &geometry);
                expect_ok(plan_verify(plan, &c, next, &next_case, &verdict), plan, &verdict);
        }
}

/* With one slot, each rank of a ring waits for the next one to make room. Nothing else needs more than one. */
static void test_single_slot(void **state) {
        const struct plan_geometry geometry = {256, 1};

        (void)state;
        for (uint32_t n = 1; n <= 9; n++) {
                struct plan all[PLANS_MAX];
                uint32_t n_all = build_all(n, all);

                for (uint32_t k = 0; k < n_all; k++) {
                        bool around = all[k].phases[0].schedule == PLAN_RING_ALL_REDUCE ||
                                      all[k].phases[0].schedule == PLAN_RING_REDUCE_SCATTER ||
                                      all[k].phases[0].schedule == PLAN_RING_ALL_GATHER;
                        struct plan_verdict verdict = {0};
                        int r = plan_verify_all(&all[k], &geometry, NULL, 0, &verdict);

                        if (!around || n == 1) {
                                expect_ok(r, &all[k], &verdict);
                        } else if (n > 2) {
                                assert_int_equal(r, PLAN_E_INVALID);
                                assert_int_equal(verdict.condition, PLAN_FAULT_DEADLOCK);
                        }
                }
        }
}

/* Real sizes: the cost depends on chunks, not on elements. */
static void test_accepts_large(void **state) {
        struct plan all[PLANS_MAX];
        uint32_t n_all = build_all(8, all);
        struct plan_verdict verdict = {0};

        (void)state;
        for (uint32_t k = 0; k < n_all; k++) {
                struct plan_case c = {
                        .geometry = {65536, 2},
                        .count = 2000003,
                        .element_bytes = 2,
                        .partial_bytes = 4,
                        .in_place = plan_case_in_place(all[k].operation),
                };

                expect_ok(plan_verify(&all[k], &c, &all[k], &c, &verdict), &all[k], &verdict);
        }
}

/* Numbers that wrap many times within two requests, from any start; and the slots that are too many for them. */
static void test_counters(void **state) {
        struct plan all[PLANS_MAX];
        uint32_t n_all = build_all(3, all), n_caught = 0;
        struct plan_verdict verdict = {0};

        (void)state;
        for (uint32_t k = 0; k < n_all; k++)
                for (uint32_t bits = 1; bits <= 8; bits++)
                        for (uint32_t slots = 2; slots <= 5; slots++) {
                                struct plan_case c = {.geometry = {64, slots}, .count = 1000, .element_bytes = 4};
                                struct verify_options options = {.counter_bits = bits, .counter_first = 0xfffffffdu};
                                bool flat = all[k].algorithm == PLAN_ONE_SHOT || all[k].algorithm == PLAN_TWO_SHOT;
                                int r = verify_pair(&all[k], &c, &all[k], &c, &options, &verdict);

                                if (slots < 1u << bits && 3 < 1u << bits) /* 3: of a rank to itself */
                                        expect_ok(r, &all[k], &verdict);
                                else if (r)
                                        n_caught++;
                                if (flat && slots == 1u << bits)
                                        assert_int_equal(r, PLAN_E_INVALID);
                        }
        assert_true(n_caught > 0);
        for (uint32_t k = 0; k < n_all; k++) { /* 32 bits across the edge */
                struct plan_case c = {.geometry = {64, 3}, .count = 1000, .element_bytes = 4};
                struct verify_options options = {.counter_bits = 32, .counter_first = 0xfffffffdu};

                expect_ok(verify_pair(&all[k], &c, &all[k], &c, &options, &verdict), &all[k], &verdict);
        }
}

/* The numbers of an all_to_all_v agree at both ends, and all kinds of pieces occur. */
static void test_vectors(void **state) {
        struct plan_case c = {.geometry = {64, 2}, .count = 100, .element_bytes = 4};
        uint32_t n_none = 0, n_one = 0, n_all = 0, n_some = 0;

        (void)state;
        for (c.vector = 0; c.vector < 20; c.vector++) {
                uint64_t storage[5][4 * 5];
                struct plan_vector vector[5];

                for (uint32_t rank = 0; rank < 5; rank++)
                        plan_case_vector(&c, 5, rank, storage[rank], &vector[rank]);
                for (uint32_t i = 0; i < 25; i++) {
                        uint64_t count = vector[i / 5].send_count[i % 5];

                        assert_int_equal(count, vector[i % 5].recv_count[i / 5]);
                        assert_true(count <= c.count);
                        n_none += count == 0;
                        n_one += count == 1;
                        n_all += count == c.count;
                        n_some += count > 1 && count < c.count;
                        for (uint32_t k = 0; k < i % 5; k++) { /* pieces that come do not overlap */
                                const struct plan_vector *v = &vector[i / 5];

                                assert_true(v->recv_offset[k] + v->recv_count[k] <= v->recv_offset[i % 5] ||
                                            v->recv_offset[i % 5] + v->recv_count[i % 5] <= v->recv_offset[k]);
                        }
                }
        }
        assert_true(n_none > 20 && n_one > 20 && n_all > 20 && n_some > 20);
}

/* How many pairs of ranks have something for each other, and whether all have everything. */
static uint32_t pairs_of(const struct plan_case *c, uint32_t n, bool *ret_full) {
        uint64_t storage[4 * PLAN_RANKS_MAX];
        struct plan_vector vector;
        uint32_t n_pairs = 0;

        *ret_full = true;
        for (uint32_t i = 0; i < n * n; i++) {
                if (i % n == 0)
                        plan_case_vector(c, n, i / n, storage, &vector);
                n_pairs += vector.send_count[i % n] > 0;
                *ret_full = *ret_full && vector.send_count[i % n] == c->count;
        }
        return n_pairs;
}

/* Whatever the number of ranks: with few and with many elements some request comes first in which all pairs have all,
 * and one in which few have anything. */
static void test_vectors_of_calls(void **state) {
        static const uint32_t ranks[] = {4, 16, 17, 64};

        (void)state;
        for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
                uint32_t n = ranks[i], algorithm = plan_algorithm_at(RING_OP_ALL_TO_ALL_V, n, 0);
                struct plan plan = build(RING_OP_ALL_TO_ALL_V, algorithm, n);
                struct plan_geometry geometry;
                struct plan_case c, next;
                uint32_t n_full[2] = {0}, n_sparse[2] = {0};

                plan_geometry_choose(n, &geometry);
                for (uint32_t k = 0; verify_call(&plan, &geometry, k, &c, &next); k++) {
                        bool parts = c.count > geometry.part_bytes / c.element_bytes, full;
                        uint32_t n_pairs = pairs_of(&c, n, &full);

                        n_full[parts] += c.count > 1 && full;
                        n_sparse[parts] += c.count > 1 && n_pairs < n * n / 2;
                }
                print_message("%u ranks: %u and %u calls are full, %u and %u sparse\n", n, n_full[0], n_full[1],
                              n_sparse[0], n_sparse[1]);
                assert_true(n_full[0] > 0 && n_full[1] > 0 && n_sparse[0] > 0 && n_sparse[1] > 0);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_accepts_all),   cmocka_unit_test(test_prints_cost),
                cmocka_unit_test(test_single_slot),   cmocka_unit_test(test_accepts_random_cases),
                cmocka_unit_test(test_accepts_large), cmocka_unit_test(test_counters),
                cmocka_unit_test(test_vectors),       cmocka_unit_test(test_vectors_of_calls),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
