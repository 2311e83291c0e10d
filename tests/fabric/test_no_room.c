/* SPDX-License-Identifier: MIT */
/* An adapter has as many queue pairs as it may when a class begins to send. Its messages go over the connection that
 * there is, and nobody takes the route for one that fails. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric/verbs/verbs.h"
#include "tests/fabric/rig.h"
#include "tests/time_scale.h"
#include "util/clock.h"

#define WAIT 30u

/* 0: no more than it has. Returns how many it might have before. */
static uint32_t set_max_links(const struct rig *rig, uint32_t node, uint32_t max) {
        struct fabric *fabric = rig->nodes[node].fabric;
        struct verbs_nic *nic;
        uint32_t before;

        pthread_mutex_lock(&fabric->lock);
        nic = nic_of(fabric->rails[0]);
        before = nic->max_links;
        nic->max_links = max ? max : nic->n_links;
        pthread_mutex_unlock(&fabric->lock);
        return before;
}

static struct fabric_route_row route_of(const struct rig *rig, uint32_t node, enum fabric_class class) {
        struct fabric_route_row *rows, row = {.connections = 0};
        size_t n;

        assert_int_equal(fabric_routes(rig->nodes[node].fabric, &rows, &n), 0);
        for (size_t i = 0; i < n; i++)
                if (rows[i].class == class)
                        row = rows[i];
        free(rows);
        return row;
}

/* At either end, one of which dials. */
static void test_no_room(void **state) {
        const struct fabric_times patient = {.heartbeat = 5000, .deadline = 60000, .hold_down = 5, .hold_max = 100};
        struct rig_options options = {.n_nodes = 2,
                                      .n_rails = 1,
                                      .ranks = {1, 1},
                                      .slot_bytes = 200,
                                      .key = 70,
                                      .class = FABRIC_NORMAL,
                                      .chunks = 50,
                                      .times = patient};
        struct rig_options others = options;
        static struct rig rig, other;

        (void)state;
        others.class = FABRIC_LATENCY;
        others.key++;
        for (uint32_t full = 0; full < 2; full++) {
                uint64_t end_ns = clock_now_ns() + WAIT * UINT64_C(1000000000) * time_scale();
                uint32_t max, changed[2];

                rig_new(&rig, &options);
                rig_run(&rig, WAIT);
                max = set_max_links(&rig, full, 0);
                for (uint32_t node = 0; node < 2; node++)
                        changed[node] = rig.nodes[node].routes_changed;
                rig_join(&other, &others, &rig);
                rig_run(&other, WAIT);
                rig_dispatch(&rig);
                for (uint32_t node = 0; node < 2; node++) {
                        assert_int_equal(rig.nodes[node].routes_changed, changed[node]);
                        assert_int_equal(route_of(&rig, node, FABRIC_LATENCY).connections, 0);
                }
                assert_true(route_of(&rig, 0, FABRIC_LATENCY).errors > 0);

                /* There is room. */
                set_max_links(&rig, full, max);
                while (route_of(&rig, 0, FABRIC_LATENCY).connections == 0) {
                        assert_true(clock_now_ns() < end_ns);
                        other.options.chunks++;
                        rig_run(&other, WAIT);
                }
                rig_dispatch(&rig);
                assert_int_equal(rig.nodes[0].routes_changed, changed[0]);
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
                cmocka_unit_test(test_no_room),
        };

        return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
