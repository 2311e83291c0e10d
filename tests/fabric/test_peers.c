/* SPDX-License-Identifier: MIT */
/* Rails that peers say they have, and rails that come when peers are there. */
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/private.h"
#include "tests/fabric/rig.h"
#include "tests/time_scale.h"
#include "util/clock.h"

/* Longer than this test has time, so what happens is not for want of that, nor of a processor. */
static const struct fabric_times patient = {
        .heartbeat = 5000, .deadline = 60000, .hold_down = 600000, .hold_max = 600000, .unreachable = 600000};

static const struct rig_options two_rails = {
        .n_nodes = 2, .n_rails = 2, .ranks = {1, 1}, .slot_bytes = 4096, .key = 1, .chunks = 100};

/* Rails of a peer that nobody here could connect to. The others reach it, and it is said once which one is left out. */
static void test_unfit_rails(void **state) {
        static const struct fabric_peer_rail unfit[] = {
                {.name = "blue", .address = "fe80::1%none0", .port = 9}, /* an interface that there is not */
                {.name = "a-name-that-a-later-version-may-take", .address = "127.0.0.1", .port = 9},
                {.name = "", .address = "name.example", .port = 9},
                {.name = "red", .address = "127.0.0.1", .port = 0},
        };
        struct rig_options options = two_rails;
        struct fabric_route_row *rows;
        static struct rig rig;
        size_t n;

        (void)state;
        options.more = unfit;
        options.n_more = sizeof(unfit) / sizeof(unfit[0]);
        rig_new(&rig, &options);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(fabric_peer_routes(rig.nodes[i].fabric, &rig.nodes[1 - i].id, 0), 2);
                assert_int_equal(fabric_routes(rig.nodes[i].fabric, &rows, &n), 0);
                assert_int_equal(n, 2 * FABRIC_N_CLASSES);
                for (size_t k = 0; k < n; k++) {
                        assert_null(strchr(rows[k].address, ':'));
                        assert_int_not_equal(rows[k].port, 9);
                }
                free(rows);
        }
        rig_run(&rig, 20);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(rig.nodes[i].violations, 1);
                assert_non_null(strstr(rig.nodes[i].text, "rail blue"));
                assert_non_null(strstr(rig.nodes[i].text, "fe80::1%none0 port 9"));
                assert_non_null(strstr(rig.nodes[i].text, "others, too"));
        }
        rig_free(&rig);
}

/* All of them: it is a peer without routes. */
static void test_no_rail_fits(void **state) {
        static const struct fabric_peer_rail unfit = {.name = "blue", .address = "fe80::1%none0", .port = 9};
        static const struct fabric_node other = {{9}};
        const struct fabric_peer_options peer = {.node = other, .boot_epoch = 1, .rails = &unfit, .n_rails = 1};
        static struct rig rig;

        (void)state;
        rig_new(&rig, &two_rails);
        assert_int_equal(fabric_peer_add(rig.nodes[0].fabric, &peer), 0);
        assert_int_equal(fabric_peer_routes(rig.nodes[0].fabric, &other, 0), 0);
        rig_run(&rig, 20);
        assert_int_equal(rig.nodes[0].violations, 1);
        assert_int_equal(fabric_peer_remove(rig.nodes[0].fabric, &other), 0);
        rig_free(&rig);
}

/* ---- rails that come later --------------------------------------------------------------------------------------- */
static void add_red(struct rig *rig, uint32_t node, bool drained) {
        const struct fabric_rail_options options = {
                .name = "red", .kind = "tcp", .address = "127.0.0.2", .drained = drained};

        assert_int_equal(fabric_rail_add(rig->nodes[node].fabric, &options), 0);
}

/* What one has is told to the other. */
static void tell(struct rig *rig, uint32_t node) {
        struct fabric_peer_rail rails[RIG_RAILS];
        struct fabric_rail_row *rows;
        size_t n;

        assert_int_equal(fabric_rails(rig->nodes[node].fabric, &rows, &n), 0);
        assert_true(n <= RIG_RAILS);
        for (size_t i = 0; i < n; i++)
                rails[i] = (struct fabric_peer_rail){
                        .name = rows[i].name, .address = rows[i].address, .port = rows[i].port};
        assert_int_equal(fabric_peer_rails(rig->nodes[1 - node].fabric, &rig->nodes[node].id, rails, n), 0);
        free(rows);
}

static void expect_routes(const struct rig *rig, size_t at_0, size_t at_1) {
        assert_int_equal(fabric_peer_routes(rig->nodes[0].fabric, &rig->nodes[1].id, 0), at_0);
        assert_int_equal(fabric_peer_routes(rig->nodes[1].fabric, &rig->nodes[0].id, 0), at_1);
}

static enum fabric_route_state red_state(const struct rig *rig, uint32_t node) {
        enum fabric_route_state state = FABRIC_PROBING;
        struct fabric_route_row *rows;
        size_t n;

        assert_int_equal(fabric_routes(rig->nodes[node].fabric, &rows, &n), 0);
        for (size_t i = 0; i < n; i++)
                if (strcmp(rows[i].rail, "red") == 0)
                        state = rows[i].state;
        free(rows);
        return state;
}

/* The time for which one that has come waits is over. */
static void end_wait(const struct rig *rig, uint32_t node) {
        struct fabric *fabric = rig->nodes[node].fabric;

        pthread_mutex_lock(&fabric->lock);
        assert_string_equal(fabric->rails[1]->name, "red");
        fabric->rails[1]->routes->health.hold_ns = 0;
        pthread_mutex_unlock(&fabric->lock);
        while (red_state(rig, node) != FABRIC_UP)
                sched_yield();
}

static uint64_t red_messages(const struct rig *rig, uint32_t node) {
        struct fabric_rail_row *rows;
        uint64_t messages;
        size_t n;

        assert_int_equal(fabric_rails(rig->nodes[node].fabric, &rows, &n), 0);
        assert_int_equal(n, 2);
        assert_string_equal(rows[1].name, "red");
        messages = rows[1].messages_sent;
        free(rows);
        return messages;
}

/* Under traffic. Whichever end has it first, there is a route when both have it and know it; a drained one carries
 * nothing, and when the other one is drained it carries all. */
static void test_later_rail(void **state) {
        struct rig_options options = two_rails;
        static struct rig rig;

        (void)state;
        options.n_rails = 1;
        options.stripe_bytes = 1;
        options.chunks = 1000000;
        rig_new(&rig, &options);
        for (uint32_t i = 0; i < 200; i++)
                rig_step(&rig);
        tell(&rig, 0); /* nothing new */
        expect_routes(&rig, 1, 1);
        add_red(&rig, 1, true);
        tell(&rig, 1);
        expect_routes(&rig, 1, 1);
        add_red(&rig, 0, true);
        expect_routes(&rig, 2, 1);
        tell(&rig, 0);
        tell(&rig, 0);
        expect_routes(&rig, 2, 2);
        rig.options.chunks = rig.channels[0].pushed + 200;
        while (!rig_done(&rig))
                rig_wait(&rig, 20);
        assert_int_equal(red_messages(&rig, 0) + red_messages(&rig, 1), 0);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(fabric_rail_drain(rig.nodes[i].fabric, "red", false), 0);
                assert_int_equal(fabric_rail_drain(rig.nodes[i].fabric, "blue", true), 0);
        }
        for (uint32_t i = 0; i < 2; i++)
                while (red_messages(&rig, i) < 200) { /* some may go round it until it is connected */
                        rig.options.chunks += 100;
                        rig_run(&rig, 20);
                }
        rig_free(&rig);
}

static void later_rail_is_told(struct rig *rig, uint32_t last) {
        struct fabric_counters counters;

        add_red(rig, 1 - last, false);
        tell(rig, 1 - last);
        for (uint32_t i = 0; i < 2; i++) /* all would go over the other one if it could */
                assert_int_equal(fabric_rail_drain(rig->nodes[i].fabric, "blue", true), 0);
        add_red(rig, last, false);
        for (uint32_t until = rig->channels[0].received + 20; rig->channels[0].received < until;)
                rig_wait(rig, 20);
        assert_int_equal(red_state(rig, last), FABRIC_DOWN);
        tell(rig, last);
        expect_routes(rig, 2, 2);
        assert_int_equal(red_state(rig, 1 - last), FABRIC_DOWN);
        end_wait(rig, last);
        rig->options.chunks = rig->channels[0].pushed + 200; /* which the other end hears of it by */
        rig_run(rig, 20);
        while (red_state(rig, 0) != FABRIC_UP || red_state(rig, 1) != FABRIC_UP)
                rig_dispatch(rig);
        rig->options.chunks += 200;
        rig_run(rig, 20);
        for (uint32_t i = 0; i < 2; i++) {
                assert_true(red_messages(rig, i) >= 200);
                fabric_counters(rig->nodes[i].fabric, &counters);
                assert_int_equal(counters.refused, 0);
                assert_int_equal(rig->nodes[i].routes_changed, 1); /* it was neither suspect nor tried first */
        }
}

/* One that comes in the midst of traffic waits until the other end may have heard of it, and is not refused. It is up
 * at both ends then, whichever of them dials. */
static void test_later_rail_is_told(void **state) {
        struct rig_options options = two_rails;
        static struct rig rig;

        (void)state;
        options.n_rails = 1;
        options.stripe_bytes = 1;
        options.times = patient;
        for (uint32_t last = 0; last < 2; last++) {
                options.chunks = 1000000;
                rig_new(&rig, &options);
                later_rail_is_told(&rig, last);
                rig_free(&rig);
        }
}

/* Where nothing else is left it does not wait for its time, which would be too long for this test. */
static void test_later_rail_is_needed(void **state) {
        struct rig_options options = two_rails;
        static struct rig rig;

        (void)state;
        options.n_rails = 0;
        options.times = patient;
        rig_new(&rig, &options);
        for (uint32_t i = 0; i < 2; i++)
                add_red(&rig, i, false);
        for (uint32_t i = 0; i < 2; i++)
                tell(&rig, i);
        rig_run(&rig, 20);
        for (uint32_t i = 0; i < 2; i++) {
                while (rig.nodes[i].routes_changed == 0)
                        rig_dispatch(&rig);
                assert_int_equal(rig.nodes[i].routes_changed, 1);
                assert_int_equal(red_state(&rig, i), FABRIC_UP);
        }
        rig_free(&rig);
}

/* Nor does it when the other end asks to be dialled. */
static void test_later_rail_is_met(void **state) {
        struct rig_options options = two_rails;
        static struct rig rig;

        (void)state;
        options.n_rails = 1;
        options.stripe_bytes = 1;
        options.times = patient;
        rig_new(&rig, &options);
        add_red(&rig, 0, false);
        tell(&rig, 0);
        add_red(&rig, 1, true);
        end_wait(&rig, 1);
        assert_int_equal(fabric_rail_drain(rig.nodes[1].fabric, "red", false), 0);
        assert_int_equal(fabric_rail_drain(rig.nodes[1].fabric, "blue", true), 0);
        tell(&rig, 1);
        rig_run(&rig, 20);
        while (rig.nodes[0].routes_changed == 0)
                rig_dispatch(&rig);
        assert_string_equal(rig.nodes[0].why, "the peer knows of it");
        assert_int_equal(red_state(&rig, 0), FABRIC_UP);
        rig_free(&rig);
}

/* The first rail of all that both have: what has waited for one goes over it. */
static void test_first_rail(void **state) {
        struct rig_options options = two_rails;
        static struct rig rig;

        (void)state;
        options.n_rails = 0;
        rig_new(&rig, &options);
        expect_routes(&rig, 0, 0);
        while (rig_step(&rig)) {
        }
        for (uint32_t i = 0; i < 2; i++)
                add_red(&rig, i, false);
        for (uint32_t i = 0; i < 2; i++)
                tell(&rig, i);
        expect_routes(&rig, 1, 1);
        rig_run(&rig, 20);
        rig_free(&rig);
}

/* Ranks whose own rail it is had to take another one, and are on it when it has come. */
static void test_later_rail_is_wanted(void **state) {
        static const char *const rails[] = {"red", "red"};
        const uint64_t end_ns = clock_now_ns() + UINT64_C(40000000000) * time_scale();
        struct rig_options options = two_rails;
        static struct rig rig;

        (void)state;
        options.n_rails = 1;
        options.rails = rails;
        rig_new(&rig, &options);
        rig_run(&rig, 20);
        for (uint32_t i = 0; i < 2; i++)
                add_red(&rig, i, false);
        for (uint32_t i = 0; i < 2; i++)
                tell(&rig, i);
        for (uint32_t i = 0; i < 2; i++)
                while (red_messages(&rig, i) < 200) { /* some take the other one until it is connected */
                        assert_true(clock_now_ns() < end_ns);
                        rig.options.chunks += 100;
                        rig_run(&rig, 20);
                }
        rig_free(&rig);
}

/* What may come right is told from what cannot. */
static void test_rail_may_come(void **state) {
        struct fabric_options options = {.self.id = {1}, .boot_epoch = 1, .cluster = "test", .allow_plain = true};
        struct fabric_rail_options rail = {.name = "blue", .kind = "tcp", .address = "fe80::1%none0"};
        struct sockaddr_in taken = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof(taken);
        static const char *const wrong[] = {"fe80::1%", "::1%none0", "none0", "10.0.0.1%none0", "%none0"};
        struct fabric *fabric;
        int fd;

        (void)state;
        assert_int_equal(fabric_new(&options, &fabric), 0);
        assert_int_equal(fabric_rail_add(fabric, &rail), FABRIC_E_ADDRESS);
        assert_int_equal(fabric_errno(fabric), ENODEV);
        assert_non_null(strstr(fabric_error(fabric), "rail blue: there is no interface of fe80::1%none0"));
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                rail.address = wrong[i];
                assert_int_equal(fabric_rail_add(fabric, &rail), FABRIC_E_ARGUMENT);
        }
        rail.address = "192.0.2.1"; /* of documentation */
        assert_int_equal(fabric_rail_add(fabric, &rail), FABRIC_E_ADDRESS);
        assert_int_equal(fabric_errno(fabric), EADDRNOTAVAIL);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (const struct sockaddr *)&taken, sizeof(taken)), 0);
        assert_int_equal(listen(fd, 1), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&taken, &size), 0);
        rail.address = "127.0.0.1";
        rail.port = ntohs(taken.sin_port);
        assert_int_equal(fabric_rail_add(fabric, &rail), FABRIC_E_ADDRESS);
        assert_int_equal(fabric_errno(fabric), EADDRINUSE);
        close(fd);
        assert_int_equal(fabric_rail_add(fabric, &rail), 0);
        fabric_free(fabric);

        /* Without TLS and leave to be, there is nothing to wait for. */
        options.allow_plain = false;
        assert_int_equal(fabric_new(&options, &fabric), 0);
        rail.address = "fe80::1%none0";
        assert_int_equal(fabric_rail_add(fabric, &rail), FABRIC_E_PLAIN);
        fabric_free(fabric);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_unfit_rails),          cmocka_unit_test(test_no_rail_fits),
                cmocka_unit_test(test_later_rail),           cmocka_unit_test(test_later_rail_is_told),
                cmocka_unit_test(test_later_rail_is_needed), cmocka_unit_test(test_later_rail_is_met),
                cmocka_unit_test(test_first_rail),           cmocka_unit_test(test_rail_may_come),
                cmocka_unit_test(test_later_rail_is_wanted),
        };

        return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
