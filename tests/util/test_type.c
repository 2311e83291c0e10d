/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"
#include "util/type.h"

static void test_size(void **state) {
        static const size_t want[RMX_TYPE_COUNT] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

        (void)state;
        for (uint32_t type = 0; type < RMX_TYPE_COUNT; ++type)
                assert_int_equal(type_size(type), want[type]);
        assert_int_equal(type_size(RMX_TYPE_COUNT), 0);
        assert_int_equal(type_size(UINT32_MAX), 0);
}

static void test_accumulator_size(void **state) {
        static const size_t want[RMX_TYPE_COUNT] = {1, 1, 4, 4, 8, 8, 4, 4, 8, 4, 4, 4};
        static const size_t want_avg[RMX_TYPE_COUNT] = {8, 8, 8, 8, 8, 8, 4, 4, 8, 4, 4, 4};

        (void)state;
        for (uint32_t type = 0; type < RMX_TYPE_COUNT; ++type)
                for (uint32_t redop = 0; redop < RMX_REDOP_COUNT; ++redop)
                        assert_int_equal(type_accumulator_size(type, redop),
                                         redop == RMX_AVG ? want_avg[type] : want[type]);
        assert_int_equal(type_accumulator_size(RMX_TYPE_COUNT, RMX_SUM), 0);
        assert_int_equal(type_accumulator_size(RMX_FLOAT32, RMX_REDOP_COUNT), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_size),
                cmocka_unit_test(test_accumulator_size),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
