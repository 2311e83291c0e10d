/* SPDX-License-Identifier: MIT */
/* A clock and a sched_yield() of its own: what a yield takes is what the test says. */
#include <string.h>
#include <time.h>

#include "tests/cmocka_all.h"
#include "util/yield.h"

static struct {
        uint64_t now_ns, yield_ns;
        unsigned int n_yields;
} machine;

int __wrap_sched_yield(void);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);

int __wrap_sched_yield(void) {
        machine.n_yields++;
        machine.now_ns += machine.yield_ns;
        return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time) {
        assert_int_equal(clock, CLOCK_MONOTONIC);
        ret_time->tv_sec = (time_t)(machine.now_ns / 1000000000u);
        ret_time->tv_nsec = (long)(machine.now_ns % 1000000000u);
        return 0;
}

static int set_up(void **state) {
        (void)state;
        memset(&machine, 0, sizeof(machine));
        machine.now_ns = UINT64_C(5000000000);
        return 0;
}

static void test_short(void **state) {
        struct yielder yielder = {0};

        (void)state;
        machine.yield_ns = YIELDER_LONG_NS;
        for (unsigned int i = 1; i <= 1000; i++) {
                assert_true(yielder_yield(&yielder));
                assert_int_equal(machine.n_yields, i);
        }
}

static void test_long(void **state) {
        struct yielder yielder = {0}, other = {0};

        (void)state;
        machine.yield_ns = YIELDER_LONG_NS + 1;
        assert_true(yielder_yield(&yielder));
        /* Not until the rest is over, which begins when the yield has ended; */
        for (unsigned int i = 0; i < 10; i++) {
                assert_false(yielder_yield(&yielder));
                machine.now_ns += (YIELDER_REST_NS - 1) / 10;
        }
        assert_false(yielder_yield(&yielder));
        assert_int_equal(machine.n_yields, 1);
        machine.now_ns = UINT64_C(5000000000) + machine.yield_ns + YIELDER_REST_NS - 1;
        assert_false(yielder_yield(&yielder));
        /* what another one knows is its own; */
        machine.yield_ns = 0;
        assert_true(yielder_yield(&other));
        /* then one is enough to see that all is well again. */
        machine.now_ns++;
        for (unsigned int i = 0; i < 10; i++)
                assert_true(yielder_yield(&yielder));
        assert_int_equal(machine.n_yields, 12);
}

static void test_long_again(void **state) {
        struct yielder yielder = {0};

        (void)state;
        machine.yield_ns = 4000000;
        for (unsigned int i = 1; i <= 5; i++) {
                assert_true(yielder_yield(&yielder));
                assert_false(yielder_yield(&yielder));
                assert_int_equal(machine.n_yields, i);
                machine.now_ns += YIELDER_REST_NS;
        }
}

/* Who looks on without yielding, and sees how long a look took. */
static void test_note(void **state) {
        struct yielder yielder = {0};
        uint64_t now_ns = machine.now_ns;

        (void)state;
        yielder_note(&yielder, now_ns, now_ns + YIELDER_LONG_NS, YIELDER_LOOKS_REST_NS);
        assert_false(yielder_rests(&yielder, now_ns));
        yielder_note(&yielder, now_ns, now_ns + YIELDER_LONG_NS + 1, YIELDER_LOOKS_REST_NS);
        now_ns += YIELDER_LONG_NS + 1;
        assert_true(yielder_rests(&yielder, now_ns));
        assert_false(yielder_yield(&yielder));                   /* who yields hears of it, too */
        yielder_note(&yielder, now_ns, now_ns, YIELDER_REST_NS); /* a short one takes nothing back */
        assert_true(yielder_rests(&yielder, now_ns + YIELDER_LOOKS_REST_NS - 1));
        assert_false(yielder_rests(&yielder, now_ns + YIELDER_LOOKS_REST_NS));
        assert_int_equal(machine.n_yields, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_short, set_up),
                cmocka_unit_test_setup(test_long, set_up),
                cmocka_unit_test_setup(test_long_again, set_up),
                cmocka_unit_test_setup(test_note, set_up),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
