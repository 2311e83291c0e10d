/* SPDX-License-Identifier: MIT */
/* What rails and areas are said to have carried: each message once, also when connections die under it; and on the rail
 * of the rank that sent it. */
#include <stdlib.h>
#include <string.h>

#include "tests/fabric/rig.h"
#include "tests/time_scale.h"
#include "util/clock.h"

#define WAIT_NS (UINT64_C(20000000000) * time_scale())

static struct fabric_traffic sum_of(const struct fabric_traffic *traffic, size_t n) {
        struct fabric_traffic sum = {0};

        for (size_t i = 0; i < n; i++) {
                sum.chunks_out += traffic[i].chunks_out;
                sum.credits_out += traffic[i].credits_out;
                sum.bytes_out += traffic[i].bytes_out;
                sum.chunks_in += traffic[i].chunks_in;
                sum.credits_in += traffic[i].credits_in;
                sum.bytes_in += traffic[i].bytes_in;
        }
        return sum;
}

/* What channels have done, at a node: with rails by the sending rank, or all of them. */
static struct fabric_traffic done_by(const struct rig *rig, uint32_t node, int rail) {
        struct fabric_traffic done = {0};

        for (uint32_t i = 0; i < rig->n_channels; i++) {
                const struct rig_channel *c = &rig->channels[i];
                uint32_t local_source = 0, local_destination = 0;
                bool out = rig->node_of[c->source] == node;

                for (uint32_t r = 0; r < c->source; r++)
                        local_source += rig->node_of[r] == rig->node_of[c->source];
                for (uint32_t r = 0; r < c->destination; r++)
                        local_destination += rig->node_of[r] == rig->node_of[c->destination];
                if (!out && rig->node_of[c->destination] != node)
                        continue;
                if (rail < 0 || local_source % rig->options.n_rails == (uint32_t)rail) {
                        *(out ? &done.chunks_out : &done.chunks_in) += c->received;
                        *(out ? &done.bytes_out : &done.bytes_in) += c->received_bytes;
                }
                if (rail < 0 || local_destination % rig->options.n_rails == (uint32_t)rail)
                        *(out ? &done.credits_in : &done.credits_out) += c->received;
        }
        return done;
}

/* What the routes of the node have carried, all of it by the class of the area. */
static void compare_routes(const struct rig *rig, uint32_t node, const struct fabric_traffic *want) {
        uint64_t messages = 0, bytes = 0;
        struct fabric_route_row *rows;
        size_t n;

        assert_int_equal(fabric_routes(rig->nodes[node].fabric, &rows, &n), 0);
        for (size_t i = 0; i < n; i++) {
                if (rows[i].class != rig->options.class)
                        assert_int_equal(rows[i].messages_sent + rows[i].bytes_sent, 0);
                messages += rows[i].messages_sent;
                bytes += rows[i].bytes_sent;
        }
        free(rows);
        assert_int_equal(messages, want->chunks_out + want->credits_out);
        assert_int_equal(bytes, want->bytes_out);
}

/* Acknowledgements come a little after the last message. */
static void compare(struct rig *rig, bool by_rail) {
        uint64_t end_ns = clock_now_ns() + WAIT_NS;

        for (uint32_t node = 0; node < rig->options.n_nodes; node++) {
                struct fabric_traffic area[FABRIC_RAILS_MAX], rails[FABRIC_RAILS_MAX], want[FABRIC_RAILS_MAX] = {0}, a,
                                                                                       b;
                struct fabric_rail_row *rows;
                size_t n;

                for (uint32_t rail = 0; rail < rig->options.n_rails; rail++)
                        want[rail] = done_by(rig, node, (int)rail);
                b = done_by(rig, node, -1);
                do {
                        if (clock_now_ns() > end_ns)
                                fail_msg("node %u: %llu chunks, %llu credits and %llu bytes out, not %llu, %llu, %llu",
                                         node, (unsigned long long)a.chunks_out, (unsigned long long)a.credits_out,
                                         (unsigned long long)a.bytes_out, (unsigned long long)b.chunks_out,
                                         (unsigned long long)b.credits_out, (unsigned long long)b.bytes_out);
                        assert_int_equal(fabric_area_traffic(rig->nodes[node].fabric, rig->options.key, area), 0);
                        assert_int_equal(fabric_rails(rig->nodes[node].fabric, &rows, &n), 0);
                        for (size_t i = 0; i < n; i++)
                                rails[i] = rows[i].traffic;
                        free(rows);
                        a = sum_of(area, n);
                } while (memcmp(&a, &b, sizeof(a)) != 0 || memcmp(area, rails, n * sizeof(area[0])) != 0);
                compare_routes(rig, node, &b);
                if (by_rail)
                        assert_memory_equal(area, want, n * sizeof(area[0]));
                assert_int_equal(fabric_area_traffic(rig->nodes[node].fabric, rig->options.key + 1, area),
                                 FABRIC_E_UNKNOWN);
        }
}

/* Nothing is striped: every rank has its rail. */
static void test_rails(void **state) {
        const struct rig_options options = {
                .n_nodes = 3, .n_rails = 2, .ranks = {3, 2, 1}, .slot_bytes = 2000, .key = 7, .chunks = 300};
        static struct rig rig;

        (void)state;
        rig_new(&rig, &options);
        rig_run(&rig, 30);
        compare(&rig, true);
        rig_free(&rig);
}

/* Four rails here and two there: ranks whose own rail the other node has not spread over those that it has. */
static void test_fewer_there(void **state) {
        const struct rig_options options = {
                .n_nodes = 2, .n_rails = 2, .ranks = {4, 1}, .slot_bytes = 2000, .key = 10, .chunks = 100};
        struct fabric_rail_options more = {.kind = "tcp", .address = "127.0.0.1"};
        static struct rig rig;

        (void)state;
        rig_start(&rig, &options);
        for (uint32_t i = 0; i < 2; i++) {
                more.name = i ? "grey" : "green";
                assert_int_equal(fabric_rail_add(rig.nodes[0].fabric, &more), 0);
        }
        for (uint32_t node = 0; node < 2; node++)
                rig_peer(&rig, node, !node, NULL);
        for (uint32_t node = 0; node < 2; node++)
                rig_area(&rig, node);
        rig_run(&rig, 30);
        compare(&rig, true);
        rig_free(&rig);
}

/* What is too short for the fabric to stripe, and not for its area: one rank's chunks go over both rails, if the first
 * has so much to do that it pays to wake the second. */
static void test_striped(void **state) {
        static const uint32_t stripes[] = {0, 50000, 100000};
        static struct rig rig;

        (void)state;
        for (uint32_t i = 0; i < 3; i++) {
                const struct rig_options options = {.n_nodes = 2,
                                                    .n_rails = 2,
                                                    .ranks = {1, 1},
                                                    .slot_bytes = 60000,
                                                    .least_data = 50000,
                                                    .key = 9,
                                                    .chunks = 300,
                                                    .stripe_bytes = stripes[i]};
                struct fabric_traffic area[FABRIC_RAILS_MAX];

                rig_new(&rig, &options);
                rig_run(&rig, 30);
                compare(&rig, false);
                assert_int_equal(fabric_area_traffic(rig.nodes[0].fabric, rig.options.key, area), 0);
                assert_int_equal(area[0].chunks_out + area[1].chunks_out, 300);
                assert_true(stripes[i] == 50000 ? area[1].chunks_out > 20 : area[1].chunks_out == 0);
                rig_free(&rig);
        }
}

/* One rail after the other goes down and comes back. */
static void test_resent(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 2,
                                            .ranks = {2, 2},
                                            .slot_bytes = 100000,
                                            .key = 8,
                                            .chunks = 1000000,
                                            .times = {.hold_down = 1, .hold_max = 1}};
        uint64_t resent = 0, end_ns = clock_now_ns() + WAIT_NS;
        static struct rig rig;

        (void)state;
        rig_new(&rig, &options);
        for (uint32_t round = 0; resent < 20; round++) {
                const char *name = rig_rail_names[round % 2];
                struct fabric_counters counters;
                uint32_t until;

                for (until = rig.channels[0].received + 20; rig.channels[0].received < until;)
                        rig_wait(&rig, 10);
                assert_int_equal(fabric_rail_enable(rig.nodes[round / 2 % 2].fabric, name, false), 0);
                for (until = rig.channels[0].received + 20; rig.channels[0].received < until;)
                        rig_wait(&rig, 10);
                assert_int_equal(fabric_rail_enable(rig.nodes[round / 2 % 2].fabric, name, true), 0);
                resent = 0;
                for (uint32_t node = 0; node < 2; node++) {
                        fabric_counters(rig.nodes[node].fabric, &counters);
                        resent += counters.retransmitted;
                }
                assert_true(clock_now_ns() < end_ns);
        }
        rig.options.chunks = rig.channels[0].pushed + 100;
        rig_run(&rig, 20);
        compare(&rig, false);
        print_message("%llu messages sent again\n", (unsigned long long)resent);
        rig_free(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_rails),
                cmocka_unit_test(test_fewer_there),
                cmocka_unit_test(test_striped),
                cmocka_unit_test(test_resent),
        };

        return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
