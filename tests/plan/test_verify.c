/* SPDX-License-Identifier: MIT */
/* What the verifier accepts, and how long it takes. */
#include <string.h>

#include "oracle.h"
#include "plan/cost.h"
#include "plan/verify.h"
#include "plans.h"
#include "tests/cmocka_all.h"
#include "util/clock.h"

static void build(uint32_t i, uint32_t n_ranks, struct plan *ret_plan) {
        assert_int_equal(plan_build(plans[i].operation, plans[i].algorithm, n_ranks, ret_plan), PLAN_OK);
}

static void build_all(uint32_t n_ranks, struct plan ret_plans[N_PLANS]) {
        for (uint32_t i = 0; i < N_PLANS; i++)
                build(i, n_ranks, &ret_plans[i]);
}

static void expect_ok(int r, const struct plan *plan, const struct plan_verdict *verdict) {
        if (r)
                fail_msg("%s %s, %u ranks: %s", plan_operation_name(plan->operation),
                         plan_algorithm_name(plan->algorithm), plan->n_ranks, verdict->text);
}

/* Every plan with the geometry it will run with, followed by every other. */
static void test_accepts_all(void **state) {
        static const uint32_t more[] = {17, 24, 32, 33, 48, 63, 64};
        uint64_t slowest_small = 0, slowest_large = 0;
        uint32_t n_accepted = 0;

        (void)state;
        for (uint32_t i = 0; i < 16 + sizeof(more) / sizeof(more[0]); i++) {
                uint32_t n = i < 16 ? i + 1 : more[i - 16];
                struct plan all[N_PLANS];
                struct plan_geometry geometry;

                plan_geometry_choose(n, &geometry);
                build_all(n, all);
                for (uint32_t k = 0; k < N_PLANS; k++) {
                        struct plan_verdict verdict = {0};
                        uint64_t began = clock_now_ns(), took;

                        expect_ok(plan_verify_all(&all[k], &geometry, NULL, 0, &verdict), &all[k], &verdict);
                        took = clock_now_ns() - began;
                        if (n <= 16 && took > slowest_small)
                                slowest_small = took;
                        if (n > 16 && took > slowest_large)
                                slowest_large = took;
                        if (n <= 8 || n == 64)
                                expect_ok(plan_verify_all(&all[k], &geometry, all, N_PLANS, &verdict), &all[k],
                                          &verdict);
                        n_accepted++;
                }
        }
        print_message("%u plans accepted; the slowest took %.1f ms (up to 16 ranks), %.1f ms (up to 64)\n", n_accepted,
                      (double)slowest_small / 1e6, (double)slowest_large / 1e6);
}

static void random_case(uint64_t *random, const struct plan *plan, const struct plan_geometry *geometry,
                        struct plan_case *ret_case) {
        static const uint32_t element_bytes[] = {1, 2, 4, 8};

        *ret_case = (struct plan_case){
                .geometry = *geometry,
                .element_bytes = element_bytes[oracle_random(random) % 4],
                .root = plan_operation_rooted(plan->operation) ? (uint32_t)(oracle_random(random) % plan->n_ranks) : 0,
                .in_place = oracle_random(random) % 2,
        };
        ret_case->count = oracle_random(random) %
                          (geometry->part_bytes / ret_case->element_bytes * (1 + oracle_random(random) % 9) *
                                   (oracle_random(random) % 2 ? plan->n_ranks : 1) +
                           1);
}

/* What plan_verify_all leaves out: any counts, element sizes, slots and pairs. */
static void test_accepts_random_cases(void **state) {
        uint64_t random = 1;

        (void)state;
        for (uint32_t i = 0; i < 1500; i++) {
                uint32_t n = 1 + (uint32_t)(oracle_random(&random) % 12);
                struct plan_geometry geometry = {64u * (1 + (uint32_t)(oracle_random(&random) % 64)),
                                                 1 + (uint32_t)(oracle_random(&random) % 5)};
                struct plan_verdict verdict = {0};
                struct plan_case c, next_case;
                struct plan plan, next;

                build((uint32_t)(oracle_random(&random) % N_PLANS), n, &plan);
                build((uint32_t)(oracle_random(&random) % N_PLANS), n, &next);
                random_case(&random, &plan, &geometry, &c);
                random_case(&random, &next, &geometry, &next_case);
                expect_ok(plan_verify(&plan, &c, &next, &next_case, &verdict), &plan, &verdict);
        }
}

/* Real sizes: the cost depends on chunks, not on elements. */
static void test_accepts_large(void **state) {
        struct plan_verdict verdict = {0};

        (void)state;
        for (uint32_t i = 0; i < N_PLANS; i++) {
                struct plan_case c = {.geometry = {65536, 2}, .count = 2000003, .element_bytes = 4, .in_place = true};
                struct plan plan;

                build(i, 8, &plan);
                expect_ok(plan_verify(&plan, &c, &plan, &c, &verdict), &plan, &verdict);
        }
}

/* Numbers that wrap many times within two requests, from any start; and the slots that are too many for them. */
static void test_counters(void **state) {
        struct plan_verdict verdict = {0};
        uint32_t n_caught = 0;

        (void)state;
        for (uint32_t i = 0; i < N_PLANS; i++)
                for (uint32_t bits = 1; bits <= 8; bits++)
                        for (uint32_t slots = 1; slots <= 5; slots++) {
                                struct plan_case c = {.geometry = {64, slots}, .count = 1000, .element_bytes = 4};
                                struct verify_options options = {.counter_bits = bits, .counter_first = 0xfffffffdu};
                                struct plan plan;
                                int r;

                                build(i, 3, &plan);
                                r = verify_pair(&plan, &c, &plan, &c, &options, &verdict);
                                if (slots < 1u << bits)
                                        expect_ok(r, &plan, &verdict);
                                else if (r)
                                        n_caught++;
                                if (plan.operation != RING_OP_BARRIER && slots == 1u << bits)
                                        assert_int_equal(r, PLAN_E_INVALID);
                        }
        assert_true(n_caught > 0);
        for (uint32_t i = 0; i < N_PLANS; i++) { /* 32 bits across the edge */
                struct plan_case c = {.geometry = {64, 3}, .count = 1000, .element_bytes = 4};
                struct verify_options options = {.counter_bits = 32, .counter_first = 0xfffffffdu};
                struct plan plan;

                build(i, 3, &plan);
                expect_ok(verify_pair(&plan, &c, &plan, &c, &options, &verdict), &plan, &verdict);
        }
}

/* ---- one plan for each fault ------------------------------------------------------------------------------------- */
static void expect_fault(const struct plan *plan, const struct plan_case *c, enum plan_fault fault) {
        struct plan_verdict verdict = {0};

        assert_int_equal(plan_verify(plan, c, plan, c, &verdict), PLAN_E_INVALID);
        if (verdict.condition != fault)
                fail_msg("fault %u instead of %u: %s", verdict.condition, fault, verdict.text);
        assert_true(verdict.text[0] != 0 && memchr(verdict.text, 0, sizeof(verdict.text)));
        assert_true(verdict.rank < plan->n_ranks || fault == PLAN_FAULT_MALFORMED);
}

static const struct plan_case small = {.geometry = {64, 2}, .count = 90, .element_bytes = 4, .in_place = true};

static void test_names_the_fault(void **state) {
        struct plan_case c = small;
        struct plan plan;

        (void)state;
        build(0, 4, &plan); /* in place, REDUCE overwrites what PUSH has not sent */
        plan.phases[1].after = -1;
        expect_fault(&plan, &c, PLAN_FAULT_RACE);
        c.in_place = false; /* harmless out of place */
        assert_int_equal(plan_verify(&plan, &c, NULL, NULL, &(struct plan_verdict){0}), 0);
        c.in_place = true;

        build(1, 4, &plan); /* two phases that wait for each other */
        plan.phases[0].after = 2;
        expect_fault(&plan, &c, PLAN_FAULT_DEADLOCK);

        build(1, 4, &plan); /* a forwarded chunk ends up in front of what PUSH sends */
        plan.phases[1].region_out = 0;
        plan.phases[2].region_in = 0;
        expect_fault(&plan, &c, PLAN_FAULT_RACE);

        build(2, 4, &plan); /* blocks that are not there */
        plan.phases[0].in_range = PLAN_RANGE_BLOCK_ME;
        expect_fault(&plan, &c, PLAN_FAULT_BOUNDS);

        build(2, 4, &plan); /* own block twice, others never */
        c.in_place = false;
        plan.phases[2].out_range = PLAN_RANGE_BLOCK_ME;
        expect_fault(&plan, &c, PLAN_FAULT_RACE);
        plan.phases[2].after = 1;
        expect_fault(&plan, &c, PLAN_FAULT_VALUE);

        build(0, 4, &plan); /* a second PUSH that nobody takes, into an idle region; it fits the slots */
        c.count = 5;
        plan.n_regions = 2;
        plan.phases[2] = plan.phases[0];
        plan.phases[2].region_out = 1;
        plan.n_phases = 3;
        {
                struct plan_verdict verdict;

                assert_int_equal(plan_verify(&plan, &c, NULL, NULL, &verdict), PLAN_E_INVALID);
                assert_int_equal(verdict.condition, PLAN_FAULT_UNCONSUMED);
        }

        build(5, 4, &plan); /* a barrier whose ranks wait for no one */
        plan.n_phases = 1;
        c.count = 0;
        expect_fault(&plan, &c, PLAN_FAULT_VALUE);

        build(5, 4, &plan);
        plan.phases[0].kind = PLAN_NET_PUT;
        expect_fault(&plan, &c, PLAN_FAULT_MALFORMED);
}

static void test_refuses_cases(void **state) {
        struct plan_geometry geometry = {4096, 2};
        struct plan_verdict verdict = {0};
        struct plan_case c = small, other;
        struct plan plan, next;

        (void)state;
        build(0, 4, &plan);
        build(0, 5, &next);
        assert_int_equal(plan_verify(&plan, &c, &next, &c, &verdict), PLAN_E_INVALID); /* other communicator */
        other = c;
        other.geometry.slots++;
        assert_int_equal(plan_verify(&plan, &c, &plan, &other, &verdict), PLAN_E_INVALID); /* other channels */
        other = c;
        other.element_bytes = 0;
        assert_int_equal(plan_verify(&plan, &other, NULL, NULL, &verdict), PLAN_E_INVALID);
        other.element_bytes = 65;
        assert_int_equal(plan_verify(&plan, &other, NULL, NULL, &verdict), PLAN_E_INVALID);
        other = c;
        other.geometry.slots = 0;
        assert_int_equal(plan_verify(&plan, &other, NULL, NULL, &verdict), PLAN_E_INVALID);
        other = c;
        other.root = 4;
        assert_int_equal(plan_verify(&plan, &other, NULL, NULL, &verdict), PLAN_E_INVALID);
        for (unsigned int shift = 20; shift < 64; shift++) { /* too large to execute, up to where spans overflow */
                other = c;
                other.count = UINT64_C(1) << shift;
                assert_int_equal(plan_verify(&plan, &other, NULL, NULL, &verdict), PLAN_E_INVALID);
                assert_int_equal(verdict.condition, PLAN_FAULT_MALFORMED);
        }
        for (uint32_t bytes = 0; bytes < 64; bytes++) {
                geometry.part_bytes = bytes;
                assert_int_equal(plan_verify_all(&plan, &geometry, NULL, 0, &verdict), PLAN_E_INVALID);
        }
        geometry.part_bytes = 4096 + 32;
        assert_int_equal(plan_verify_all(&plan, &geometry, NULL, 0, &verdict), PLAN_E_INVALID);
        geometry = (struct plan_geometry){4096, 0};
        assert_int_equal(plan_verify_all(&plan, &geometry, NULL, 0, &verdict), PLAN_E_INVALID);
        geometry.slots = UINT32_MAX;
        assert_int_equal(plan_verify_all(&plan, &geometry, NULL, 0, &verdict), PLAN_E_INVALID);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_accepts_all),     cmocka_unit_test(test_accepts_random_cases),
                cmocka_unit_test(test_accepts_large),   cmocka_unit_test(test_counters),
                cmocka_unit_test(test_names_the_fault), cmocka_unit_test(test_refuses_cases),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
