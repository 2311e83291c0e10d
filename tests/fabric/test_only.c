/* SPDX-License-Identifier: MIT */
/* Areas that may not take every rail: what they send takes those that they may, whatever others do. */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"
#include "tests/fabric/rig.h"
#include "tests/time_scale.h"
#include "util/clock.h"

#define ONLY  (1u << 1)
#define WAIT  30u
#define ALONE 64u /* as many messages as a probe of a route would never be */

/* Of communicators, over a rail. */
static struct fabric_traffic carried(const struct rig *rig, uint32_t node, uint32_t rail) {
        struct fabric_rail_row *rows;
        struct fabric_traffic traffic;
        size_t n;

        assert_int_equal(fabric_rails(rig->nodes[node].fabric, &rows, &n), 0);
        assert_true(rail < n);
        traffic = rows[rail].traffic;
        free(rows);
        return traffic;
}

static void check_only(const struct rig *rig) {
        for (uint32_t node = 0; node < rig->options.n_nodes; node++) {
                struct fabric_traffic other = carried(rig, node, 0), one = carried(rig, node, 1);

                assert_int_equal(other.chunks_out + other.credits_out + other.chunks_in + other.credits_in, 0);
                assert_true(one.chunks_in >= ALONE && one.credits_in > 0);
        }
}

/* Short ones, whose ranks would take both rails in turn, and long ones, which would be striped. */
static void test_sizes(void **state) {
        static const uint32_t sizes[] = {200, 200001};

        (void)state;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                struct rig_options options = {.n_nodes = 2,
                                              .n_rails = 2,
                                              .ranks = {2, 2},
                                              .slot_bytes = sizes[i],
                                              .key = 60,
                                              .chunks = ALONE,
                                              .only = ONLY};
                static struct rig rig;

                rig_new(&rig, &options);
                assert_int_equal(fabric_peer_routes(rig.nodes[0].fabric, &rig.nodes[1].id, 0), 2);
                assert_int_equal(fabric_peer_routes(rig.nodes[0].fabric, &rig.nodes[1].id, ONLY), 1);
                assert_int_equal(fabric_peer_routes(rig.nodes[0].fabric, &rig.nodes[1].id, 1u << 2), 0);
                rig_run(&rig, WAIT);
                check_only(&rig);
                rig_free(&rig);
        }
}

/* The only one goes down in the middle. Who waits is told, though the other one is up and carries for somebody else;
 * nothing is sent over that, and when the rail is back the rest comes. */
static void test_cut_off(void **state) {
        struct rig_options options = {.n_nodes = 2,
                                      .n_rails = 2,
                                      .ranks = {1, 1},
                                      .slot_bytes = 20001,
                                      .key = 61,
                                      .chunks = 400,
                                      .only = ONLY,
                                      .times = {.unreachable = 200, .hold_down = 5, .hold_max = 10000}};
        struct rig_options others = {
                .n_nodes = 2, .n_rails = 2, .ranks = {1, 1}, .slot_bytes = 200, .key = 62, .chunks = 100};
        uint64_t end_ns = clock_now_ns() + WAIT * UINT64_C(1000000000) * time_scale();
        static struct rig rig, other;
        struct fabric_traffic before;

        (void)state;
        rig_new(&rig, &options);
        while (rig.channels[0].received < options.chunks / 4) {
                assert_true(clock_now_ns() < end_ns);
                if (!rig_step(&rig))
                        rig_wait(&rig, WAIT);
        }
        assert_int_equal(fabric_rail_enable(rig.nodes[0].fabric, rig_rail_names[1], false), 0);
        while (rig.nodes[0].cut_off + rig.nodes[1].cut_off < 2) { /* who has something to send says so */
                assert_true(clock_now_ns() < end_ns);
                (void)rig_step(&rig);
                rig_dispatch(&rig);
        }
        assert_false(rig_done(&rig));
        before = carried(&rig, 0, 0);
        assert_int_equal(before.chunks_out + before.credits_out, 0);
        rig_join(&other, &others, &rig);
        rig_run(&other, WAIT);
        assert_true(carried(&rig, 0, 0).chunks_in >= others.chunks);
        for (uint32_t node = 0; node < others.n_nodes; node++)
                assert_int_equal(fabric_area_remove(rig.nodes[node].fabric, others.key), 0);
        assert_int_equal(fabric_rail_enable(rig.nodes[0].fabric, rig_rail_names[1], true), 0);
        rig_run(&rig, WAIT); /* what was on its way is sent again, too */
        assert_int_equal(carried(&rig, 0, 0).chunks_in + carried(&rig, 1, 0).chunks_in, 2 * others.chunks);
        rig_free(&rig);
}

/* Nothing is sent to the third node, so nobody makes a connection to it. That is no reason to say that it is cut off.
 */
static void test_not_sent_to(void **state) {
        struct rig_options options = {.n_nodes = 3,
                                      .n_rails = 2,
                                      .ranks = {1, 1, 1},
                                      .slot_bytes = 100001,
                                      .key = 63,
                                      .chunks = ALONE,
                                      .least_data = 100001,
                                      .rate_bytes = 4000000, /* something is under way all the time, for some seconds */
                                      .only = ONLY,
                                      .times = {.unreachable = 300}};
        uint64_t end_ns = clock_now_ns() + WAIT * UINT64_C(1000000000) * time_scale();
        static struct rig rig;
        uint32_t before = 0;

        (void)state;
        rig_new(&rig, &options);
        for (uint32_t i = 0; i < rig.n_channels; i++)
                rig.channels[i].stopped = rig.channels[i].source + rig.channels[i].destination != 1;
        while (rig.channels[0].received < ALONE) {
                assert_true(clock_now_ns() < end_ns);
                if (!rig_step(&rig))
                        rig_wait(&rig, WAIT);
                rig_dispatch(&rig);
                if (rig.channels[0].received <= 1)
                        before = rig.nodes[0].cut_off; /* while it was being connected */
        }
        assert_int_equal(rig.nodes[0].cut_off, before);
        rig_free(&rig);
}

/* Nothing is under way between the nodes: they have taken so many messages each. */
static void await_idle(const struct rig *rig, uint64_t taken) {
        const uint64_t end_ns = clock_now_ns() + WAIT * UINT64_C(1000000000) * time_scale();

        for (uint32_t node = 0; node < rig->options.n_nodes; node++) {
                struct fabric *fabric = rig->nodes[node].fabric;
                bool idle = false;

                while (!idle) {
                        pthread_mutex_lock(&fabric->lock);
                        idle = fabric->counters.taken == taken && fabric->peers->n_items == 0;
                        pthread_mutex_unlock(&fabric->lock);
                        assert_true(clock_now_ns() < end_ns);
                        sched_yield();
                }
        }
}

/* Both ends hold the rail's route down, and it has no connection any more. */
static void lose_rail(const struct rig *rig, uint32_t rail) {
        const uint64_t end_ns = clock_now_ns() + WAIT * UINT64_C(1000000000) * time_scale();

        for (uint32_t step = 0; step < 3; step++) {
                for (uint32_t node = 0; node < rig->options.n_nodes; node++) {
                        struct fabric *fabric = rig->nodes[node].fabric;
                        struct fabric_conn *conn;
                        bool left = true;

                        while (left) {
                                pthread_mutex_lock(&fabric->lock);
                                if (step == 0)
                                        route_down(&fabric->rails[rail]->routes->health, clock_now_ns());
                                if (step == 1)
                                        DL_FOREACH(fabric->rails[rail]->conns, conn)
                                                conn_doom(conn, false, "lost");
                                left = step == 2 && fabric->rails[rail]->conns;
                                pthread_mutex_unlock(&fabric->lock);
                                assert_true(clock_now_ns() < end_ns);
                                sched_yield();
                        }
                }
        }
}

/* Its only rail is held down, for longer than this test has time, and one end has something to send. The other one has
 * not, and has another rail, but is asked for a connection by who has none: it is made at once, whoever dials. */
static void test_hold_down_ends(void **state) {
        static const char *const blue[] = {"blue", "blue"};
        const struct fabric_times patient = {
                .heartbeat = 5000, .deadline = 60000, .hold_down = 600000, .hold_max = 600000};
        struct rig_options options = {.n_nodes = 2,
                                      .n_rails = 2,
                                      .ranks = {1, 1},
                                      .slot_bytes = 200,
                                      .key = 64,
                                      .chunks = ALONE,
                                      .only = ONLY,
                                      .times = patient};
        struct rig_options others = options;

        (void)state;
        others.key++;
        others.only = 0;
        others.rails = blue;
        for (uint32_t quiet = 0; quiet < 2; quiet++) {
                static struct rig rig, other;

                rig_new(&rig, &options);
                rig_join(&other, &others, &rig);
                rig_run(&rig, WAIT);
                rig_run(&other, WAIT);
                await_idle(&rig, 4 * ALONE); /* chunks and credits */
                lose_rail(&rig, 1);
                rig.options.chunks += 20;
                for (uint32_t i = 0; i < rig.n_channels; i++)
                        rig.channels[i].stopped = rig.node_of[rig.channels[i].source] == quiet;
                for (uint32_t i = 0; i < rig.n_channels; i++)
                        while (!rig.channels[i].stopped && rig.channels[i].received < rig.options.chunks)
                                rig_wait(&rig, WAIT);
                for (uint32_t node = 0; node < 2; node++) {
                        assert_int_equal(fabric_area_remove(rig.nodes[node].fabric, others.key), 0);
                        munmap(other.nodes[node].area, other.nodes[node].size);
                        close(other.nodes[node].wake_fd);
                }
                rig_free(&rig);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_sizes),
                cmocka_unit_test(test_cut_off),
                cmocka_unit_test(test_not_sent_to),
                cmocka_unit_test(test_hold_down_ends),
        };

        return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
