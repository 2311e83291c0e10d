/* SPDX-License-Identifier: MIT */
/* The health of a route by a clock that is a number. */
#include "fabric/route.h"
#include "tests/fabric/rig.h"

#define MS UINT64_C(1000000)

static const struct route_limits limits = {.hold_ns = 100 * MS, .hold_max_ns = 1000 * MS, .suspect_ns = 500 * MS};

static void test_way_down_and_up(void **state) {
        struct route route;
        uint64_t now_ns = 5000 * MS;

        (void)state;
        route_init(&route, &limits, now_ns);
        assert_int_equal(route.state, FABRIC_UP);
        assert_false(route_good(&route, &limits, now_ns));
        assert_true(route_error(&route, &limits, now_ns));
        assert_int_equal(route.state, FABRIC_SUSPECT);
        assert_true(route_may_dial(&route));
        /* One sign of life is the connection, which may die again at once. */
        assert_false(route_good(&route, &limits, now_ns));
        assert_true(route_good(&route, &limits, now_ns));
        assert_int_equal(route.state, FABRIC_UP);

        now_ns += 1000 * MS;
        assert_true(route_error(&route, &limits, now_ns));
        assert_false(route_good(&route, &limits, now_ns));
        assert_true(route_error(&route, &limits, now_ns));
        assert_int_equal(route.state, FABRIC_DOWN);
        assert_int_equal(route.since_ns, now_ns);
        assert_false(route_may_dial(&route));
        assert_false(route_error(&route, &limits, now_ns));
        assert_false(route_tick(&route, &limits, now_ns + 100 * MS - 1));
        assert_true(route_tick(&route, &limits, now_ns + 100 * MS));
        now_ns += 100 * MS;
        assert_int_equal(route.state, FABRIC_PROBING);
        for (unsigned int i = 1; i < ROUTE_GOOD_PROBING; i++)
                assert_false(route_good(&route, &limits, now_ns));
        assert_true(route_good(&route, &limits, now_ns));
        assert_int_equal(route.state, FABRIC_UP);
        assert_int_equal(route.n_errors, 4);
}

static void test_suspect_and_probing_end(void **state) {
        struct route route;

        (void)state;
        route_init(&route, &limits, 0);
        assert_true(route_late(&route, &limits, 10));
        assert_false(route_late(&route, &limits, 11));
        assert_int_equal(route.state, FABRIC_SUSPECT);
        assert_false(route_tick(&route, &limits, 9 + 500 * MS));
        assert_true(route_tick(&route, &limits, 10 + 500 * MS));
        assert_int_equal(route.state, FABRIC_DOWN);
        assert_true(route_tick(&route, &limits, 10 + 600 * MS));
        assert_int_equal(route.state, FABRIC_PROBING);
        assert_true(route_tick(&route, &limits, 10 + 1100 * MS));
        assert_int_equal(route.state, FABRIC_DOWN);
}

/* How long it stays down in a row of failures. */
static uint64_t hold(struct route *route, uint64_t *now_ns) {
        uint64_t start_ns = *now_ns;

        while (route->state != FABRIC_DOWN)
                route_error(route, &limits, *now_ns);
        while (!route_tick(route, &limits, *now_ns))
                *now_ns += MS;
        assert_int_equal(route->state, FABRIC_PROBING);
        return *now_ns - start_ns;
}

static void test_flapping(void **state) {
        static const uint64_t holds[] = {100, 200, 400, 800, 1000, 1000};
        struct route route;
        uint64_t now_ns = 0;

        (void)state;
        route_init(&route, &limits, now_ns);
        for (size_t i = 0; i < sizeof(holds) / sizeof(holds[0]); i++) {
                assert_int_equal(hold(&route, &now_ns), holds[i] * MS);
                for (unsigned int n = 0; n < ROUTE_GOOD_PROBING; n++)
                        route_good(&route, &limits, now_ns);
                assert_int_equal(route.state, FABRIC_UP);
        }
        /* Ten hold-downs of being up forgive one doubling, step by step. */
        now_ns += 10000 * MS;
        assert_int_equal(hold(&route, &now_ns), 500 * MS);
        for (unsigned int n = 0; n < ROUTE_GOOD_PROBING; n++)
                route_good(&route, &limits, now_ns);
        now_ns += 60000 * MS;
        assert_false(route_tick(&route, &limits, now_ns));
        assert_int_equal(hold(&route, &now_ns), 100 * MS);
}

/* It shows life each time, and fails as soon as it has something to carry: that becomes rare. */
static void test_comes_back_only(void **state) {
        struct route route;
        uint64_t now_ns = 1000 * MS, downs[6] = {0};
        size_t n = 0;

        (void)state;
        route_init(&route, &limits, now_ns);
        for (uint32_t i = 0; n < sizeof(downs) / sizeof(downs[0]); i++) {
                uint64_t start_ns = now_ns;

                assert_true(i < 10);
                assert_int_equal(route.state, FABRIC_UP);
                route_error(&route, &limits, now_ns);
                while (route.state == FABRIC_DOWN) {
                        now_ns += MS;
                        route_tick(&route, &limits, now_ns);
                }
                if (now_ns > start_ns)
                        downs[n++] = now_ns - start_ns;
                while (!route_good(&route, &limits, now_ns)) {
                }
                now_ns += 900 * MS;
        }
        for (size_t i = 0; i < n; i++)
                assert_int_equal(downs[i], (i < 4 ? 100 * MS << i : 1000 * MS));
        /* Who lasts is forgiven. */
        now_ns += 20000 * MS;
        assert_true(route_error(&route, &limits, now_ns));
        assert_int_equal(route.state, FABRIC_SUSPECT);
}

/* Connections that break are late first. That is one failure, which counts; being late alone is none. */
static void test_late_first(void **state) {
        struct route route;
        uint64_t now_ns = 1000 * MS;

        (void)state;
        route_init(&route, &limits, now_ns);
        for (unsigned int i = 0; i < 2; i++) {
                assert_true(route_late(&route, &limits, now_ns));
                assert_true(route_error(&route, &limits, now_ns + 200 * MS));
                now_ns += 200 * MS;
                if (i > 0)
                        break;
                assert_int_equal(route.state, FABRIC_SUSPECT);
                assert_int_equal(route.since_ns, now_ns);
                assert_false(route_good(&route, &limits, now_ns));
                assert_true(route_good(&route, &limits, now_ns));
                now_ns += 300 * MS;
        }
        assert_int_equal(route.state, FABRIC_DOWN); /* the second time it was up for half a second only */
        assert_int_equal(route.n_errors, 2);

        /* With lateness every 600 ms it has been up all the time, is forgiven, and may fail again. */
        route_init(&route, &limits, now_ns);
        assert_int_equal(hold(&route, &now_ns), 100 * MS);
        for (unsigned int n = 0; n < ROUTE_GOOD_PROBING; n++)
                route_good(&route, &limits, now_ns);
        assert_int_equal(route.hold_ns, 200 * MS);
        for (unsigned int i = 0; i < 5; i++) {
                now_ns += 600 * MS;
                route_tick(&route, &limits, now_ns);
                assert_true(route_late(&route, &limits, now_ns));
                route_good(&route, &limits, now_ns);
                assert_true(route_good(&route, &limits, now_ns));
                assert_int_equal(route.state, FABRIC_UP);
        }
        assert_int_equal(route.hold_ns, 100 * MS);
        assert_true(route_error(&route, &limits, now_ns));
        assert_int_equal(route.state, FABRIC_SUSPECT);
        /* Who is down after lateness does not come back as if nothing had been. */
        route_init(&route, &limits, now_ns);
        assert_true(route_late(&route, &limits, now_ns));
        assert_true(route_tick(&route, &limits, now_ns + 500 * MS));
        assert_true(route_tick(&route, &limits, now_ns + 600 * MS));
        now_ns += 600 * MS;
        for (unsigned int n = 0; n < ROUTE_GOOD_PROBING; n++)
                route_good(&route, &limits, now_ns);
        assert_int_equal(route.state, FABRIC_UP);
        assert_int_equal(route.up_ns, now_ns);
}

/* Somebody waits who has no other way: it is tried however long the hold-down is. */
static void test_hurry(void **state) {
        static const struct route_limits held = {
                .hold_ns = 60000 * MS, .hold_max_ns = 600000 * MS, .suspect_ns = 500 * MS};
        struct route route;
        uint64_t now_ns = 1000 * MS;

        (void)state;
        route_init(&route, &held, now_ns);
        route_hurry(&route, true, now_ns);
        route_error(&route, &held, now_ns);
        route_error(&route, &held, now_ns);
        assert_int_equal(route.state, FABRIC_DOWN);
        for (uint32_t i = 0; i < 20; i++) {
                route_hurry(&route, true, now_ns + ROUTE_TRY_NS - 1);
                assert_false(route_may_dial(&route));
                now_ns += ROUTE_TRY_NS;
                route_hurry(&route, false, now_ns);
                assert_false(route_may_dial(&route));
                assert_false(route_good(&route, &held, now_ns)); /* an older one of another class */
                route_hurry(&route, true, now_ns);
                assert_true(route_may_dial(&route));
                assert_false(route_error(&route, &held, now_ns));
                assert_false(route_may_dial(&route));
        }
        assert_int_equal(route.hold_ns, held.hold_ns);
        assert_true(route_good(&route, &held, now_ns));
        assert_int_equal(route.state, FABRIC_PROBING);
        assert_int_equal(route.hold_ns, 2 * held.hold_ns);
        for (unsigned int i = 2; i < ROUTE_GOOD_PROBING; i++)
                assert_false(route_good(&route, &held, now_ns));
        assert_true(route_good(&route, &held, now_ns));
        assert_int_equal(route.state, FABRIC_UP);
        /* With another way it is held down. */
        route_error(&route, &held, now_ns);
        route_error(&route, &held, now_ns);
        route_hurry(&route, false, now_ns + 2 * ROUTE_TRY_NS);
        assert_false(route_may_dial(&route));
        assert_false(route_tick(&route, &held, now_ns + 120000 * MS - 1));
        assert_true(route_tick(&route, &held, now_ns + 120000 * MS));
}

/* The peer has to hear of it first. It is up when it shows that it has, or when it has had time; a failure meanwhile,
 * of one that could not wait, changes nothing. */
static void test_fresh(void **state) {
        struct route route;

        (void)state;
        for (uint32_t way = 0; way < 4; way++) {
                uint64_t now_ns = 1000 * MS;

                route_init(&route, &limits, now_ns);
                route_wait(&route);
                assert_int_equal(route.state, FABRIC_DOWN);
                assert_false(route_may_dial(&route));
                assert_false(route_tick(&route, &limits, now_ns + 100 * MS - 1));
                if (way == 3) {
                        route_hurry(&route, true, now_ns + ROUTE_TRY_NS);
                        assert_true(route_may_dial(&route));
                        assert_false(route_error(&route, &limits, now_ns + ROUTE_TRY_NS));
                        assert_false(route_may_dial(&route));
                        route_hurry(&route, true, now_ns + 2 * ROUTE_TRY_NS);
                }
                if (way == 0)
                        now_ns += 100 * MS;
                assert_true(way == 0   ? route_tick(&route, &limits, now_ns)
                            : way == 1 ? route_met(&route, now_ns)
                                       : route_good(&route, &limits, now_ns));
                assert_int_equal(route.state, FABRIC_UP);
                assert_int_equal(route.since_ns, now_ns);
                assert_int_equal(route.hold_ns, limits.hold_ns);
                assert_false(route_met(&route, now_ns));
                /* From here on it is as any other. */
                assert_true(route_error(&route, &limits, now_ns));
                assert_true(route_error(&route, &limits, now_ns));
                assert_false(route_met(&route, now_ns));
                assert_true(route_tick(&route, &limits, now_ns + 100 * MS));
                assert_int_equal(route.state, FABRIC_PROBING);
        }
        route_init(&route, &limits, 0);
        route_wait(&route);
        assert_false(route_down(&route, 0)); /* the rail was set down */
        assert_false(route_met(&route, 0));
}

/* Another thread has read the clock later and had the lock before: no time has passed. */
static void test_clock_of_others(void **state) {
        struct route route;

        (void)state;
        route_init(&route, &limits, 1000 * MS);
        assert_true(route_late(&route, &limits, 1000 * MS));
        assert_false(route_tick(&route, &limits, 1000 * MS - 1));
        assert_true(route_down(&route, 1000 * MS));
        route_hurry(&route, true, 1000 * MS - 1);
        assert_false(route_may_dial(&route));
        assert_false(route_tick(&route, &limits, 1000 * MS - 1));
        assert_true(route_tick(&route, &limits, 1100 * MS));
        assert_false(route_tick(&route, &limits, 1100 * MS - 1));
        assert_int_equal(route.state, FABRIC_PROBING);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_way_down_and_up), cmocka_unit_test(test_suspect_and_probing_end),
                cmocka_unit_test(test_flapping),        cmocka_unit_test(test_comes_back_only),
                cmocka_unit_test(test_hurry),           cmocka_unit_test(test_fresh),
                cmocka_unit_test(test_clock_of_others), cmocka_unit_test(test_late_first),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
