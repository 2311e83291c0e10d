/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"

#include "daemon/restart.h"

#define MS UINT64_C(1000000)

static void immediate_after_a_life(void **state) {
        struct restart restart = {0};
        uint64_t now = 1000 * MS;

        (void)state;
        for (int i = 0; i < 20; i++) {
                assert_int_equal(restart_delay_ns(&restart, now, 300 * MS), 0);
                now += 300 * MS;
        }
        /* at this pace the budget runs out, and the pace becomes one per half second */
        for (int i = 0; i < 200; i++)
                now += 300 * MS + restart_delay_ns(&restart, now, 300 * MS);
        assert_true(restart_delay_ns(&restart, now, 300 * MS) > 0);
        assert_true(restart_delay_ns(&restart, now + 300 * MS, 300 * MS) <= 500 * MS);
        /* after a quiet while it is full again */
        now += 100000 * MS;
        for (int i = 0; i < 20; i++)
                assert_int_equal(restart_delay_ns(&restart, now, 300 * MS), 0);
        assert_true(restart_delay_ns(&restart, now, 300 * MS) > 0);
}

static void growing_when_it_cannot_start(void **state) {
        static const uint64_t expected_ms[] = {0, 100, 200, 400, 800, 1600, 3200, 5000, 5000};
        struct restart restart = {0};
        uint64_t now = 1;

        (void)state;
        for (unsigned int i = 0; i < sizeof(expected_ms) / sizeof(expected_ms[0]); i++) {
                uint64_t delay = restart_delay_ns(&restart, now, MS);

                assert_int_equal(delay, expected_ms[i] * MS);
                now += delay + MS;
        }
        assert_int_equal(restart_delay_ns(&restart, now, 60000 * MS), 0);
        assert_int_equal(restart_delay_ns(&restart, now, 1), 0); /* and the first early death is free again */
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(immediate_after_a_life),
                cmocka_unit_test(growing_when_it_cannot_start),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
