/* SPDX-License-Identifier: MIT */
/* The device's reductions, compiled for the host, give the bits of the host backend. */
extern "C" {
#include "tests/cmocka_all.h"
}

#include "reduce_cases.h"

static bool on_host(const struct reduce_case *c, const uint64_t *in, uint64_t *out) {
        for (uint32_t u = 0; u < c->units; u++)
                out[u] = case_unit(*c, in, u);
        return true;
}

static void test_all_kinds(void **state) {
        (void)state;
        assert_true(cases_of_all_kinds(on_host));
}

static void test_16_bits(void **state) {
        (void)state;
        assert_true(cases_of_16_bits(on_host));
}

static void test_8_bits(void **state) {
        (void)state;
        assert_true(cases_of_8_bits(on_host));
}

static void test_rounding(void **state) {
        (void)state;
        assert_true(cases_of_rounding(on_host));
}

/* A single bit that differs is seen. */
static bool with_an_error(const struct reduce_case *c, const uint64_t *in, uint64_t *out) {
        bool done = on_host(c, in, out);

        out[c->units - 1] ^= (uint64_t)1 << 63;
        return done;
}

static void test_errors_are_seen(void **state) {
        struct reduce_case c = {CASE_SUM, RMX_BFLOAT16, RMX_SUM, 8, 3, {0}};

        (void)state;
        case_fill(&c, CASE_TIES, 1);
        assert_true(case_check(&c, on_host));
        assert_false(case_check(&c, with_an_error));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_all_kinds), cmocka_unit_test(test_16_bits),         cmocka_unit_test(test_8_bits),
                cmocka_unit_test(test_rounding),  cmocka_unit_test(test_errors_are_seen),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
