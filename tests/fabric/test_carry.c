/* SPDX-License-Identifier: MIT */
/* Fabrics that live well: what is pushed on one node is on the other, bit for bit. */
#include <errno.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fabric/rig.h"
#include "tests/fabric/tls.h"
#include "tests/time_scale.h"
#include "util/clock.h"

static void test_two_nodes(void **state) {
        const struct rig_options options = {
                .n_nodes = 2, .n_rails = 1, .ranks = {1, 1}, .slot_bytes = 4096, .key = 42, .chunks = 2000};
        struct fabric_counters counters;
        static struct rig rig;

        (void)state;
        rig_new(&rig, &options);
        rig_run(&rig, 30);
        fabric_counters(rig.nodes[0].fabric, &counters);
        assert_int_equal(counters.chunks_arrived, 2000);
        assert_int_equal(counters.retransmitted + counters.corrupted + counters.malformed + counters.dropped, 0);
        assert_int_equal(rig.nodes[0].violations + rig.nodes[1].violations, 0);
        rig_free(&rig);
}

static void test_three_nodes_two_rails(void **state) {
        const struct rig_options options = {.n_nodes = 3,
                                            .n_rails = 2,
                                            .ranks = {2, 1, 2},
                                            .slot_bytes = 300001,
                                            .key = 43,
                                            .class = FABRIC_NORMAL,
                                            .chunks = 60};
        struct fabric_rail_row *rows;
        static struct rig rig;
        size_t n;

        (void)state;
        rig_new(&rig, &options);
        rig_run(&rig, 60);
        assert_int_equal(fabric_rails(rig.nodes[1].fabric, &rows, &n), 0);
        assert_int_equal(n, 2);
        assert_true(rows[0].bytes_sent > 1000000 && rows[1].bytes_sent > 1000000); /* large ones use both */
        free(rows);
        rig_free(&rig);
}

/* What peers are to be told is where it is reached, which may not be where it listens. */
static void test_advertised(void **state) {
        const struct rig_options options = {.n_nodes = 2, .n_rails = 1, .ranks = {1, 1}, .key = 47, .chunks = 1};
        struct fabric_rail_options rail = {.name = "far", .kind = "tcp", .address = "127.0.0.1"};
        struct fabric_rail_row *rows;
        struct rig rig;
        size_t n;

        (void)state;
        rig_new(&rig, &options);
        rail.advertise = "192.0.2.7";
        assert_int_equal(fabric_rail_add(rig.nodes[0].fabric, &rail), FABRIC_E_ARGUMENT); /* which port? */
        rail.advertise_port = 7601;
        rail.advertise = "node7";
        assert_int_equal(fabric_rail_add(rig.nodes[0].fabric, &rail), FABRIC_E_ARGUMENT);
        assert_non_null(strstr(fabric_error(rig.nodes[0].fabric), "node7"));
        rail.advertise = "fe80::1%no-such"; /* which may come, as that of its own address may */
        assert_int_equal(fabric_rail_add(rig.nodes[0].fabric, &rail), FABRIC_E_ADDRESS);
        assert_int_equal(fabric_errno(rig.nodes[0].fabric), ENODEV);
        assert_non_null(strstr(fabric_error(rig.nodes[0].fabric), "fe80::1%no-such"));
        rail.advertise = "192.0.2.7";
        assert_int_equal(fabric_rail_add(rig.nodes[0].fabric, &rail), 0);
        assert_int_equal(fabric_rails(rig.nodes[0].fabric, &rows, &n), 0);
        assert_int_equal(n, 2);
        assert_string_equal(rows[1].address, "192.0.2.7");
        assert_int_equal(rows[1].port, 7601);
        assert_string_not_equal(rows[0].address, rows[1].address);
        free(rows);
        rig_run(&rig, 60);
        rig_free(&rig);
}

/* Rails that look on see what they are given, and what comes; and that they are to end, long before they would sleep.
 */
static void test_looking_on(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 2,
                                            .ranks = {2, 1},
                                            .slot_bytes = 20000,
                                            .key = 46,
                                            .chunks = 100,
                                            .times = {.spin_us = 60000000}};
        const uint64_t end_ns = clock_now_ns() + UINT64_C(50000000000);
        static struct rig rig;

        (void)state;
        rig_new(&rig, &options);
        rig_run(&rig, 40);
        rig_free(&rig);
        assert_true(clock_now_ns() < end_ns);
}

/* Only the higher node id has something to send: it has to knock. */
static void test_knock(void **state) {
        const struct rig_options options = {
                .n_nodes = 2, .n_rails = 1, .ranks = {1, 1}, .slot_bytes = 64, .key = 44, .chunks = 50};
        static struct rig rig;

        (void)state;
        rig_new(&rig, &options);
        for (uint32_t i = 0; i < rig.n_channels; i++)
                if (rig.channels[i].source == 0)
                        rig.channels[i].pushed = rig.channels[i].received = options.chunks;
        /* Slots that nobody used: received says that all were, so only look at the other channel. */
        while (rig.channels[1].received < options.chunks) {
                struct rig_channel saved = rig.channels[0];

                rig.n_channels = 1;
                rig.channels[0] = rig.channels[1];
                if (!rig_step(&rig))
                        rig_wait(&rig, 10);
                rig.channels[1] = rig.channels[0];
                rig.channels[0] = saved;
                rig.n_channels = 2;
        }
        rig_free(&rig);
}

static bool class_carried(struct fabric *fabric, enum fabric_class class) {
        struct fabric_route_row *rows;
        bool connected = false;
        size_t n;

        assert_int_equal(fabric_routes(fabric, &rows, &n), 0);
        for (size_t i = 0; i < n; i++)
                connected |= rows[i].class == class && rows[i].connections > 0;
        free(rows);
        return connected;
}

/* Each end sends by a class of its own, and takes what comes by others. */
static void test_classes_differ(void **state) {
        static const enum fabric_class classes[] = {FABRIC_LATENCY, FABRIC_BULK, FABRIC_NORMAL};
        struct rig_options options = {
                .n_nodes = 3, .n_rails = 2, .ranks = {2, 1, 1}, .slot_bytes = 100001, .key = 47, .chunks = 40};
        static struct rig rig;

        (void)state;
        rig_start(&rig, &options);
        for (uint32_t a = 0; a < options.n_nodes; a++)
                for (uint32_t b = 0; b < options.n_nodes; b++)
                        if (a != b)
                                rig_peer(&rig, a, b, NULL);
        for (uint32_t node = 0; node < options.n_nodes; node++) {
                rig.options.class = classes[node];
                rig_area(&rig, node);
        }
        rig_run(&rig, 30);
        for (uint32_t node = 0; node < options.n_nodes; node++) {
                assert_true(class_carried(rig.nodes[node].fabric, classes[node]));
                assert_int_equal(rig.nodes[node].violations, 0);
        }
        rig_free(&rig);
}

static void test_tls(void **state) {
        struct rig_options options = {.n_nodes = 2,
                                      .n_rails = 2,
                                      .ranks = {2, 1},
                                      .slot_bytes = 250001,
                                      .key = 45,
                                      .class = FABRIC_BULK,
                                      .chunks = 150};
        static struct rig rig;

        (void)state;
        options.tls = tls_context();
        rig_new(&rig, &options);
        rig_run(&rig, 60);
        rig_free(&rig);
        options.slot_bytes = 200;
        options.chunks = 1000;
        rig_new(&rig, &options);
        rig_run(&rig, 60);
        rig_free(&rig);
        SSL_CTX_free(options.tls);
}

/* Certificates that the other end does not accept, and an end without TLS: nothing gets through, and it is reported.
 * With others, which an end gets while it runs, it does. */
static void test_wrong_tls(void **state) {
        struct rig_options options = {.n_nodes = 2,
                                      .n_rails = 1,
                                      .ranks = {1, 1},
                                      .slot_bytes = 200,
                                      .key = 46,
                                      .chunks = 1,
                                      .times = {.unreachable = 100, .hold_down = 5, .hold_max = 10}};
        static struct rig rig;

        (void)state;
        for (unsigned int with = 0; with < 2; with++) {
                uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale();
                SSL_CTX *other = with ? tls_context() : NULL;
                struct fabric_counters counters;

                options.tls = tls_context();
                rig_start(&rig, &options);
                fabric_free(rig.nodes[1].fabric);
                rig.options.tls = other;
                rig_fabric(&rig, 1);
                rig_peer(&rig, 0, 1, NULL);
                rig_peer(&rig, 1, 0, NULL);
                rig_area(&rig, 0);
                rig_area(&rig, 1);
                fabric_counters(rig.nodes[1].fabric, &counters);
                while (rig.nodes[0].unreachable == 0 || rig.nodes[1].unreachable == 0 || counters.refused == 0) {
                        fabric_counters(rig.nodes[1].fabric, &counters);
                        rig_step(&rig);
                        rig_dispatch(&rig);
                        assert_true(clock_now_ns() < end_ns);
                }
                assert_int_equal(counters.chunks_arrived, 0);
                assert_int_equal(rig.channels[0].received + rig.channels[1].received, 0);
                SSL_CTX_free(other); /* the fabric has a reference */
                if (with) {
                        fabric_set_tls(rig.nodes[1].fabric, options.tls);
                        SSL_CTX_free(options.tls);
                        rig_run(&rig, 20);
                        options.tls = NULL;
                }
                rig_free(&rig);
                SSL_CTX_free(options.tls);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_two_nodes),  cmocka_unit_test(test_three_nodes_two_rails),
                cmocka_unit_test(test_knock),      cmocka_unit_test(test_tls),
                cmocka_unit_test(test_wrong_tls),  cmocka_unit_test(test_advertised),
                cmocka_unit_test(test_looking_on), cmocka_unit_test(test_classes_differ),
        };

        return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
