/* SPDX-License-Identifier: MIT */
/*
 * What is striped lies evenly on rails that are equally fast: nothing of it is sent here, since the other node lets
 * connections come and says nothing, so what is queued is all that has been placed, and no measurement is in it.
 */
#include <arpa/inet.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric/private.h"
#include "tests/fabric/rig.h"
#include "tests/time_scale.h"
#include "util/clock.h"

#define SLOT_BYTES 200000u
#define FRAME_MAX  1024u /* what goes with a chunk */

static int listen_silently(uint16_t *ret_port) {
        struct sockaddr_in address = {.sin_family = AF_INET}; /* any: rails have several */
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t size = sizeof(address);

        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(fd, 64), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
        *ret_port = ntohs(address.sin_port);
        return fd;
}

/* Places all that one rank can send to seven others, and returns what lies on each rail. */
static void place(uint32_t stripe_bytes, uint64_t ret_queued[RIG_RAILS]) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = RIG_RAILS,
                                            .ranks = {1, 7},
                                            .slot_bytes = SLOT_BYTES,
                                            .least_data = SLOT_BYTES / 2,
                                            .key = 1,
                                            .class = FABRIC_NORMAL,
                                            .chunks = RIG_SLOTS,
                                            .stripe_bytes = stripe_bytes,
                                            .times = {.deadline = 600000, .handshake = 600000, .unreachable = 600000}};
        const uint64_t end_ns = clock_now_ns() + UINT64_C(60000000000) * time_scale();
        struct fabric_counters counters = {0};
        struct fabric_rail_row *rows;
        int fds[RIG_RAILS];
        uint16_t ports[RIG_RAILS];
        static struct rig rig;
        size_t n;

        for (uint32_t i = 0; i < RIG_RAILS; i++)
                fds[i] = listen_silently(&ports[i]);
        rig_start(&rig, &options);
        rig_peer(&rig, 0, 1, ports);
        rig_area(&rig, 0);
        while (counters.taken < 7 * RIG_SLOTS) {
                assert_true(clock_now_ns() < end_ns);
                for (uint32_t i = 0; i < rig.n_channels; i++)
                        rig.channels[i].stopped = rig.node_of[rig.channels[i].source] != 0;
                rig_step(&rig);
                fabric_dispatch(rig.nodes[0].fabric);
                fabric_counters(rig.nodes[0].fabric, &counters);
                sched_yield();
        }
        assert_int_equal(fabric_rails(rig.nodes[0].fabric, &rows, &n), 0);
        assert_int_equal(n, RIG_RAILS);
        for (uint32_t i = 0; i < RIG_RAILS; i++) {
                assert_int_equal(rows[i].flight_bytes, 0);
                ret_queued[i] = rows[i].queued_bytes;
        }
        free(rows);
        rig_free(&rig);
        for (uint32_t i = 0; i < RIG_RAILS; i++)
                close(fds[i]);
}

static void test_even(void **state) {
        uint64_t queued[RIG_RAILS];

        (void)state;
        place(SLOT_BYTES / 4, queued);
        print_message("striped: %llu and %llu bytes\n", (unsigned long long)queued[0], (unsigned long long)queued[1]);
        assert_true(queued[0] + queued[1] >= UINT64_C(7) * RIG_SLOTS * SLOT_BYTES / 2);
        assert_true(llabs((long long)(queued[0] - queued[1])) <= SLOT_BYTES + FRAME_MAX);
}

/* What is shorter than that all goes over the rail of the rank. */
static void test_affine(void **state) {
        uint64_t queued[RIG_RAILS];

        (void)state;
        place(2 * SLOT_BYTES, queued);
        assert_true(queued[0] >= UINT64_C(7) * RIG_SLOTS * SLOT_BYTES / 2 && queued[1] == 0);
}

#define MS UINT64_C(1000000)

/* For so long the rail carries what it is given, by the millisecond, and has more to do. */
static uint64_t carry(struct fabric_rail *rail, uint64_t now_ns, uint64_t ms, uint64_t bytes) {
        rail->flight_bytes = 1;
        for (; ms > 0; ms--) {
                now_ns += MS;
                rail->measure_bytes += bytes;
                (void)rail_measure(rail, now_ns);
                rail_age(rail, now_ns);
        }
        return now_ns;
}

/* A rail that was slow once gets nothing to be measured by while others are faster. */
static void test_gets_old(void **state) {
        struct fabric_rail rail = {.nominal = 1000000, .estimate = 1000000};
        uint64_t now_ns;

        (void)state;
        now_ns = carry(&rail, 1, 1000, 10);
        assert_int_equal(rail.estimate, 100000); /* no less than a tenth */
        now_ns = carry(&rail, now_ns, 5000, 200);
        assert_in_range(rail.estimate, 190000, 200000); /* what is measured is what counts */
        for (uint32_t s = 0; s < 60; s++) {
                const uint64_t before = rail.estimate;

                rail.starved = true;
                now_ns = carry(&rail, now_ns, 1, 1);
                now_ns += 999 * MS;
                rail_age(&rail, now_ns);
                assert_true(rail.estimate >= before && rail.estimate <= rail.nominal);
                assert_true(s < 12 || rail.estimate >= rail.nominal * 8 / 10);
        }
        assert_true(rail.estimate >= rail.nominal - 2000);
        now_ns = carry(&rail, now_ns, 1000, 5000);
        assert_true(rail.estimate > 4900000);
        rail_age(&rail, now_ns + 900 * MS);
        assert_true(rail.estimate > 4900000);
        for (uint32_t s = 1; s <= 60; s++)
                rail_age(&rail, now_ns + s * 1000 * MS);
        assert_true(rail.estimate <= rail.nominal + 2000 && rail.estimate >= rail.nominal - 2000);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_even), cmocka_unit_test(test_affine),
                                           cmocka_unit_test(test_gets_old)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
