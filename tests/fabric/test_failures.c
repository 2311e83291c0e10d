/* SPDX-License-Identifier: MIT */
/*
 * Connections that die in the middle, at random places: nothing is lost, nothing comes twice, nothing late.
 * RAILMUX_SEED repeats a run.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/fabric/proxy.h"
#include "tests/fabric/rig.h"
#include "tests/fabric/tls.h"
#include "tests/time_scale.h"
#include "util/clock.h"

#define SECONDS 20

static uint64_t seed;

static const struct fabric_times quick = {.heartbeat = 40, .deadline = 250, .hold_down = 5, .hold_max = 20};

/* A proxy before each rail of each node. */
struct broken {
        struct rig rig;
        struct proxy proxies[RIG_NODES][RIG_RAILS];
        struct rig_place places[RIG_RAILS];
};

static void broken_start(struct broken *broken, const struct rig_options *options) {
        struct rig *rig = &broken->rig;

        rig_start(rig, options);
        for (uint32_t rail = 0; rail < RIG_RAILS; rail++)
                broken->places[rail] = rig_place(RIG_LOOPBACK, 0, rail);
        for (uint32_t b = 0; b < options->n_nodes; b++)
                for (uint32_t rail = 0; rail < options->n_rails; rail++)
                        proxy_start(&broken->proxies[b][rail], broken->places[rail].address, rig_port(rig, b, rail),
                                    rig_random(&seed));
}

/* Who knows whom, and areas. */
static void broken_join(struct broken *broken) {
        struct rig *rig = &broken->rig;

        for (uint32_t a = 0; a < rig->options.n_nodes; a++) {
                for (uint32_t b = 0; b < rig->options.n_nodes; b++) {
                        uint16_t ports[RIG_RAILS];

                        for (uint32_t rail = 0; rail < rig->options.n_rails; rail++)
                                ports[rail] = broken->proxies[b][rail].port;
                        if (a != b)
                                rig_peer(rig, a, b, ports);
                }
        }
        for (uint32_t a = 0; a < rig->options.n_nodes; a++)
                rig_area(rig, a);
}

static void broken_new(struct broken *broken, const struct rig_options *options) {
        broken_start(broken, options);
        broken_join(broken);
}

static void broken_faults(struct broken *broken, uint32_t rail, unsigned int faults, uint32_t bytes) {
        for (uint32_t b = 0; b < broken->rig.options.n_nodes; b++) {
                broken->proxies[b][rail].faults = faults;
                broken->proxies[b][rail].bytes = bytes;
        }
}

static void broken_refuse(struct broken *broken, uint32_t rail, bool refuse) {
        for (uint32_t b = 0; b < broken->rig.options.n_nodes; b++) {
                broken->proxies[b][rail].refuse = refuse;
                proxy_wake(&broken->proxies[b][rail]);
        }
}

static void broken_free(struct broken *broken) {
        for (uint32_t b = 0; b < broken->rig.options.n_nodes; b++)
                for (uint32_t rail = 0; rail < broken->rig.options.n_rails; rail++)
                        proxy_stop(&broken->proxies[b][rail]);
        rig_free(&broken->rig);
}

/* Until everything arrived, and every kind of fault was made often enough. */
static void broken_run(struct broken *broken, unsigned int kinds, uint32_t each) {
        struct rig *rig = &broken->rig;
        uint64_t retransmitted = 0, n_faults[4] = {0};

        rig_run(rig, 15);
        for (uint32_t rail = 0; rail < rig->options.n_rails; rail++)
                broken_faults(broken, rail, 0, 0);
        rig_settle(rig, 15);
        for (uint32_t b = 0; b < rig->options.n_nodes; b++) {
                struct fabric_counters counters;

                fabric_counters(rig->nodes[b].fabric, &counters);
                retransmitted += counters.retransmitted;
                assert_int_equal(counters.unknown_area + counters.out_of_bounds + counters.wrong_rank, 0);
                assert_int_equal(counters.dropped, 0);
                for (uint32_t rail = 0; rail < rig->options.n_rails; rail++)
                        for (unsigned int i = 0; i < 4; i++)
                                n_faults[i] += broken->proxies[b][rail].n_faults[i];
        }
        print_message("%llu cuts, %llu late, %llu corrupted, %llu stalled; %llu sent again\n",
                      (unsigned long long)n_faults[0], (unsigned long long)n_faults[1], (unsigned long long)n_faults[2],
                      (unsigned long long)n_faults[3], (unsigned long long)retransmitted);
        assert_true(retransmitted > 0);
        for (unsigned int i = 0; i < 4; i++)
                if (kinds & 1u << i)
                        assert_true(n_faults[i] >= each);
}

static void test_cut(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 1,
                                            .ranks = {2, 1},
                                            .slot_bytes = 20000,
                                            .key = 1,
                                            .chunks = 1500,
                                            .times = quick};
        static struct broken broken;

        (void)state;
        broken_new(&broken, &options);
        broken_faults(&broken, 0, PROXY_CUT, 500000);
        broken_run(&broken, PROXY_CUT, 20);
        broken_free(&broken);
}

/* So often that handshakes, questions and answers are cut as well. */
static void test_cut_often(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 2,
                                            .ranks = {2, 1},
                                            .slot_bytes = 500,
                                            .key = 7,
                                            .chunks = 700,
                                            .times = quick};
        static struct broken broken;

        (void)state;
        broken_new(&broken, &options);
        broken_faults(&broken, 0, PROXY_CUT | PROXY_LATE, 3000);
        broken_faults(&broken, 1, PROXY_CUT, 2000);
        broken_run(&broken, PROXY_CUT, 20);
        broken_free(&broken);
}

/* Sockets that somebody else has as well, as a child has them before its exec(): they outlive their connections, and
 * what they still have to say is not said to these. */
static void test_kept_by_others(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 2,
                                            .ranks = {1, 1},
                                            .slot_bytes = 1000,
                                            .key = 8,
                                            .chunks = 100000,
                                            .times = quick};
        static struct rig rig;
        int kept[64];
        uint32_t n = 0;

        (void)state;
        rig_new(&rig, &options);
        while (rig.channels[0].received < 100)
                rig_wait(&rig, 10);
        for (int fd = 3; fd < 200 && n < 64; fd++) {
                struct sockaddr_in peer;
                socklen_t size = sizeof(peer);

                if (getpeername(fd, (struct sockaddr *)&peer, &size) < 0 || peer.sin_family != AF_INET)
                        continue;
                kept[n] = fcntl(fd, F_DUPFD_CLOEXEC, 200);
                assert_true(kept[n++] >= 0);
        }
        assert_true(n >= 2);
        for (uint32_t i = 0; i < n; i++)
                assert_true(shutdown(kept[i], SHUT_RDWR) == 0 || errno == ENOTCONN); /* the other end was first */
        rig.options.chunks = rig.channels[0].pushed + 5000;
        rig_run(&rig, 20);
        rig_settle(&rig, 20);
        for (uint32_t i = 0; i < n; i++)
                close(kept[i]);
        rig_free(&rig);
}

static void test_late(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 2,
                                            .ranks = {2, 2},
                                            .slot_bytes = 20000,
                                            .key = 2,
                                            .chunks = 1500,
                                            .times = quick};
        static struct broken broken;

        (void)state;
        broken_new(&broken, &options);
        broken_faults(&broken, 0, PROXY_LATE, 500000);
        broken_faults(&broken, 1, PROXY_LATE, 700000);
        broken_run(&broken, PROXY_LATE, 20);
        broken_free(&broken);
}

static void all_faults(SSL_CTX *tls) {
        const struct rig_options options = {.tls = tls,
                                            .n_nodes = 3,
                                            .n_rails = 2,
                                            .ranks = {1, 2, 1},
                                            .slot_bytes = 70000,
                                            .key = 3,
                                            .chunks = 400,
                                            .times = quick};
        const unsigned int all = PROXY_CUT | PROXY_LATE | PROXY_CORRUPT | PROXY_STALL;
        static struct broken broken;

        broken_new(&broken, &options);
        broken_faults(&broken, 0, all, 3000000);
        broken_faults(&broken, 1, all, 3000000);
        broken_run(&broken, all, 1);
        broken_free(&broken);
}

static void test_all_faults(void **state) {
        (void)state;
        all_faults(NULL);
}

static void test_all_faults_tls(void **state) {
        SSL_CTX *tls = tls_context();

        (void)state;
        all_faults(tls);
        SSL_CTX_free(tls);
}

/* A rail that goes away takes nothing with it, and one that comes back is used again. */
static void test_rail_down_and_up(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 2,
                                            .ranks = {1, 1},
                                            .slot_bytes = 100000,
                                            .least_data = 70000,
                                            .key = 4,
                                            .chunks = 100000,
                                            .times = quick};
        static struct broken broken;
        struct rig *rig = &broken.rig;

        (void)state;
        broken_new(&broken, &options);
        for (uint32_t round = 0; round < 6; round++) {
                uint32_t rail = round % 2, until = rig->channels[0].received + 150;
                uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale(), before = 0;
                bool all_up = false;

                broken_refuse(&broken, rail, true);
                while (rig->channels[0].received < until || rig->channels[1].received < until) {
                        rig_wait(rig, 10);
                        rig_dispatch(rig);
                }
                broken_refuse(&broken, rail, false);
                while (!all_up || before == 0) {
                        struct fabric_route_row *rows;
                        struct fabric_rail_row *rails;
                        size_t n, n_rails;

                        rig_wait(rig, 10);
                        assert_int_equal(fabric_routes(rig->nodes[0].fabric, &rows, &n), 0);
                        assert_int_equal(n, 2 * FABRIC_N_CLASSES);
                        all_up = true;
                        for (size_t i = 0; i < n; i++)
                                all_up &= rows[i].state == FABRIC_UP;
                        free(rows);
                        assert_int_equal(fabric_rails(rig->nodes[0].fabric, &rails, &n_rails), 0);
                        if (all_up && before == 0)
                                before = rails[rail].messages_sent;
                        else if (all_up && rails[rail].messages_sent <= before + 10)
                                all_up = false;
                        free(rails);
                        assert_true(clock_now_ns() < end_ns);
                }
        }
        assert_int_equal(rig->nodes[0].unreachable + rig->nodes[1].unreachable, 0);
        assert_true(rig->nodes[0].routes_changed > 0 && rig->nodes[1].routes_changed > 0);
        rig->options.chunks = (rig->channels[0].pushed > rig->channels[1].pushed ? rig->channels[0].pushed
                                                                                 : rig->channels[1].pushed) +
                              10;
        rig_run(rig, 20);
        broken_free(&broken);
}

/* All routes gone: it is said again for as long as something waits, and all goes on when they are back. */
static void test_unreachable(void **state) {
        struct rig_options options = {.n_nodes = 2,
                                      .n_rails = 2,
                                      .ranks = {1, 1},
                                      .slot_bytes = 1000,
                                      .key = 5,
                                      .chunks = 100000,
                                      .times = quick};
        uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale();
        static struct broken broken;
        struct rig *rig = &broken.rig;

        (void)state;
        options.times.unreachable = 100;
        broken_new(&broken, &options);
        while (rig->channels[0].received < 100)
                rig_wait(rig, 10);
        broken_refuse(&broken, 0, true);
        broken_refuse(&broken, 1, true);
        while (rig->nodes[0].unreachable + rig->nodes[1].unreachable == 0) { /* who has something to send says so */
                rig_step(rig);
                rig_dispatch(rig);
                assert_true(clock_now_ns() < end_ns);
        }
        assert_true(rig->nodes[0].unreachable <= 1 && rig->nodes[1].unreachable <= 1);
        while (rig->nodes[0].unreachable < 3 && rig->nodes[1].unreachable < 3) {
                rig_step(rig);
                rig_dispatch(rig);
                assert_true(clock_now_ns() < end_ns);
        }
        broken_refuse(&broken, 0, false);
        rig->options.chunks = rig->channels[0].pushed + 500;
        rig_run(rig, 20);
        broken_free(&broken);
}

static enum fabric_route_state route_state(struct rig *rig, uint32_t node, uint32_t rail) {
        struct fabric_route_row *rows;
        enum fabric_route_state state;
        size_t n, i = 0;

        assert_int_equal(fabric_routes(rig->nodes[node].fabric, &rows, &n), 0);
        while (i < n && strcmp(rows[i].rail, rig_rail_names[rail]) != 0)
                i++;
        assert_true(i < n);
        state = rows[i].state;
        free(rows);
        return state;
}

static bool route_is_down(struct rig *rig, uint32_t node) {
        return route_state(rig, node, 0) == FABRIC_DOWN;
}

static const struct rig_options held = {
        .n_nodes = 2,
        .n_rails = 1,
        .ranks = {1, 1},
        .slot_bytes = 1000,
        .key = 9,
        .chunks = 100000,
        .times = {.heartbeat = 40, .deadline = 250, .hold_down = 600000, .hold_max = 600000, .unreachable = 30000}};

/* The only rail, which would be held down for ten minutes. */
static void held_break(struct broken *broken, const struct rig_options *options) {
        const uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale();
        struct rig *rig = &broken->rig;

        broken_new(broken, options);
        while (rig->channels[0].received < 100)
                rig_wait(rig, 10);
        broken_refuse(broken, 0, true);
        while (!route_is_down(rig, 0) || !route_is_down(rig, 1)) {
                rig_step(rig);
                rig_dispatch(rig);
                assert_true(clock_now_ns() < end_ns);
        }
}

/* It is used again as soon as it is there, since there is no other. */
static void test_only_rail(void **state) {
        static struct broken broken;
        struct rig *rig = &broken.rig;

        (void)state;
        held_break(&broken, &held);
        broken_refuse(&broken, 0, false);
        rig->options.chunks = (rig->channels[0].pushed > rig->channels[1].pushed ? rig->channels[0].pushed
                                                                                 : rig->channels[1].pushed) +
                              500;
        rig_run(rig, 10);
        assert_int_equal(rig->nodes[0].unreachable + rig->nodes[1].unreachable, 0);
        broken_free(&broken);
}

/* Likewise where only the end has work that does not dial. It may have none when the rail breaks: all that it may send
 * has arrived, and it waits for credit. Then all begins anew. */
static void test_only_rail_knock(void **state) {
        struct fabric_counters counters = {0};

        (void)state;
        for (uint32_t tries = 0; counters.unknown_area == 0; tries++) {
                static struct broken broken;
                struct rig *rig = &broken.rig;
                uint64_t end_ns;

                assert_true(tries < 5);
                held_break(&broken, &held);
                assert_int_equal(fabric_area_remove(rig->nodes[0].fabric, rig->options.key), 0);
                broken_refuse(&broken, 0, false);
                end_ns = clock_now_ns() + UINT64_C(5000000000) * time_scale();
                do { /* until its work comes */
                        fabric_counters(rig->nodes[0].fabric, &counters);
                        sched_yield();
                } while (counters.unknown_area == 0 && clock_now_ns() < end_ns);
                broken_free(&broken);
        }
}

/* A rail that only the end uses which does not dial, and that was not there when it did: the other end has heard of
 * nothing, and has nothing to send there. It comes back all the same. */
static void test_knocks_again(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 2,
                                            .ranks = {1, 2}, /* the last one's messages take the second rail */
                                            .slot_bytes = 500,
                                            .key = 15,
                                            .class = FABRIC_NORMAL,
                                            .chunks = 100,
                                            .times = {.deadline = 2000, .hold_down = 5, .hold_max = 20}};
        const uint64_t end_ns = clock_now_ns() + UINT64_C(2000000000) * SECONDS * time_scale();
        static struct broken broken;
        struct rig *rig = &broken.rig;

        (void)state;
        broken_start(&broken, &options);
        broken.proxies[0][1].refuse = true;
        broken_join(&broken);
        /* Who has work and no connection at all dials on all rails: so node 0 gets one first, over the other rail. */
        for (uint32_t i = 0; i < rig->n_channels; i++)
                rig->channels[i].stopped = rig->channels[i].source != 1;
        while (rig->channels[2].received < options.chunks)
                rig_wait(rig, SECONDS);
        for (uint32_t i = 0; i < rig->n_channels; i++)
                rig->channels[i].stopped = false;
        rig_run(rig, SECONDS);
        assert_int_not_equal(route_state(rig, 1, 1), FABRIC_UP);
        broken_refuse(&broken, 1, false);
        while (route_state(rig, 1, 1) != FABRIC_UP) {
                assert_true(clock_now_ns() < end_ns);
                sched_yield();
        }
        broken_free(&broken);
}

static void test_drain_and_set_down(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 2,
                                            .ranks = {1, 1},
                                            .slot_bytes = 100000,
                                            .least_data = 70000,
                                            .key = 6,
                                            .chunks = 100000,
                                            .times = quick};
        static struct rig rig;
        struct fabric_rail_row *rows;
        uint64_t before;
        size_t n;

        (void)state;
        rig_new(&rig, &options);
        for (uint32_t round = 0; round < 10; round++) {
                const char *name = rig_rail_names[round % 2];
                uint32_t until;

                for (uint32_t node = 0; node < 2; node++)
                        assert_int_equal(round < 5 ? fabric_rail_drain(rig.nodes[node].fabric, name, true)
                                                   : fabric_rail_enable(rig.nodes[node].fabric, name, false),
                                         0);
                /* What was in sockets is through after some more. */
                for (until = rig.channels[0].received + 30; rig.channels[0].received < until;)
                        rig_wait(&rig, 10);
                assert_int_equal(fabric_rails(rig.nodes[0].fabric, &rows, &n), 0);
                before = rows[round % 2].messages_sent;
                free(rows);
                for (until = rig.channels[0].received + 100; rig.channels[0].received < until;)
                        rig_wait(&rig, 10);
                assert_int_equal(fabric_rails(rig.nodes[0].fabric, &rows, &n), 0);
                assert_int_equal(rows[round % 2].messages_sent, before);
                assert_int_equal(rows[round % 2].queued_bytes, 0);
                free(rows);
                for (uint32_t node = 0; node < 2; node++)
                        assert_int_equal(round < 5 ? fabric_rail_drain(rig.nodes[node].fabric, name, false)
                                                   : fabric_rail_enable(rig.nodes[node].fabric, name, true),
                                         0);
        }
        assert_int_equal(fabric_rail_drain(rig.nodes[0].fabric, "green", true), FABRIC_E_UNKNOWN);
        rig.options.chunks = rig.channels[0].pushed + 100;
        rig_run(&rig, 20);
        rig_free(&rig);
}

static uint64_t route_errors(struct fabric *fabric) {
        struct fabric_route_row *rows;
        uint64_t errors = 0;
        size_t n;

        assert_int_equal(fabric_routes(fabric, &rows, &n), 0);
        for (size_t i = 0; i < n; i++)
                errors += rows[i].errors;
        free(rows);
        return errors;
}

/* Where nobody answers the kernel asks again after one second, three, seven: connections are begun anew before that. */
static void test_swallowed(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 1,
                                            .ranks = {1, 1},
                                            .slot_bytes = 500,
                                            .key = 12,
                                            .chunks = 100,
                                            .times = {.heartbeat = 40,
                                                      .deadline = 250,
                                                      .hold_down = 5,
                                                      .hold_max = 20,
                                                      .handshake = 1000 * SECONDS * (uint32_t)time_scale()}};
        const uint64_t end_ns = clock_now_ns() + UINT64_C(1000000000) * SECONDS * time_scale();
        static struct broken broken;
        struct rig *rig = &broken.rig;

        (void)state;
        broken_start(&broken, &options);
        for (uint32_t b = 0; b < 2; b++)
                proxy_swallow(&broken.proxies[b][0], true);
        broken_join(&broken);
        while (route_errors(rig->nodes[0].fabric) + route_errors(rig->nodes[1].fabric) < 5) {
                rig_step(rig);
                rig_dispatch(rig);
                assert_true(clock_now_ns() < end_ns);
                sched_yield();
        }
        for (uint32_t b = 0; b < 2; b++)
                proxy_swallow(&broken.proxies[b][0], false);
        rig_run(rig, SECONDS);
        broken_free(&broken);
}

/* The only rail carries short frames and nothing else: there is a connection as good as always, and chunks never
 * arrive. Both ends say so to who waits, and all goes on when it carries long ones. */
static void test_short_only(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 1,
                                            .ranks = {1, 1},
                                            .slot_bytes = 40000,
                                            .least_data = 20000,
                                            .key = 13,
                                            .chunks = 20,
                                            .times = {.heartbeat = 40,
                                                      .deadline = 300 * (uint32_t)time_scale(),
                                                      .hold_down = 5,
                                                      .hold_max = 20,
                                                      .unreachable = 600000}};
        const uint64_t end_ns = clock_now_ns() + UINT64_C(2000000000) * SECONDS * time_scale();
        static struct broken broken;
        struct rig *rig = &broken.rig;

        (void)state;
        broken_start(&broken, &options);
        for (uint32_t b = 0; b < 2; b++)
                broken.proxies[b][0].longest = 4096;
        broken_join(&broken);
        while (rig->nodes[0].unreachable == 0 || rig->nodes[1].unreachable == 0) {
                rig_step(rig);
                rig_dispatch(rig);
                assert_true(clock_now_ns() < end_ns);
                sched_yield();
        }
        for (uint32_t i = 0; i < 2; i++) {
                assert_string_equal(rig->nodes[i].unreached, "what is sent there does not arrive");
                assert_int_equal(rig->channels[i].received, 0);
        }
        for (uint32_t b = 0; b < 2; b++)
                broken.proxies[b][0].longest = 0;
        rig_run(rig, SECONDS);
        broken_free(&broken);
}

static bool rail_is_down(struct fabric *fabric, const char *rail) {
        struct fabric_route_row *rows;
        bool down = false;
        size_t n;

        assert_int_equal(fabric_routes(fabric, &rows, &n), 0);
        for (size_t i = 0; i < n; i++)
                down |= strcmp(rows[i].rail, rail) == 0 && rows[i].state == FABRIC_DOWN;
        free(rows);
        return down;
}

/* The same beside a rail that carries everything. Each connection is late before it dies, as the other end's signs of
 * life stand behind what is stuck. So it must not come back for long each time, to hold up what is given to it. */
static void test_short_only_beside(void **state) {
        const struct rig_options options = {
                .n_nodes = 2,
                .n_rails = 2,
                .ranks = {2, 2}, /* the second ones' messages take the second rail */
                .slot_bytes = 40000,
                .least_data = 20000,
                .key = 15,
                .chunks = 1000000,
                .times = {.heartbeat = 20, .deadline = 100 * (uint32_t)time_scale(), .hold_down = 600000}};
        const uint64_t end_ns = clock_now_ns() + UINT64_C(2000000000) * SECONDS * time_scale();
        static struct broken broken;
        struct rig *rig = &broken.rig;

        (void)state;
        broken_start(&broken, &options);
        for (uint32_t b = 0; b < 2; b++)
                broken.proxies[b][1].longest = 8192;
        broken_join(&broken);
        while (!rail_is_down(rig->nodes[0].fabric, rig_rail_names[1]) ||
               !rail_is_down(rig->nodes[1].fabric, rig_rail_names[1])) {
                rig_step(rig);
                rig_dispatch(rig);
                assert_true(clock_now_ns() < end_ns);
                sched_yield();
        }
        rig->options.chunks = 0;
        for (uint32_t i = 0; i < rig->n_channels; i++)
                if (rig->channels[i].pushed > rig->options.chunks)
                        rig->options.chunks = rig->channels[i].pushed;
        rig->options.chunks += 50;
        rig_run(rig, SECONDS);
        broken_free(&broken);
}

/* A connection that is accepted, and then nothing is said on it: what was to go over it takes the other rail long
 * before the handshake is given up. */
static void test_shakes_for_ever(void **state) {
        const struct rig_options options = {
                .n_nodes = 2,
                .n_rails = 2,
                .ranks = {2, 1}, /* the second one's messages take the second rail */
                .slot_bytes = 500,
                .key = 14,
                .chunks = 100,
                .times = {.heartbeat = 40, .deadline = 250, .hold_down = 5, .hold_max = 20, .handshake = 6000000}};
        static struct broken broken;
        struct rig *rig = &broken.rig;

        (void)state;
        broken_start(&broken, &options);
        broken.proxies[1][1].longest = 1;
        broken_join(&broken);
        rig_run(rig, SECONDS);
        assert_true(rig->nodes[0].routes_changed > 0);
        broken_free(&broken);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_cut),
                cmocka_unit_test(test_cut_often),
                cmocka_unit_test(test_kept_by_others),
                cmocka_unit_test(test_late),
                cmocka_unit_test(test_all_faults),
                cmocka_unit_test(test_all_faults_tls),
                cmocka_unit_test(test_rail_down_and_up),
                cmocka_unit_test(test_unreachable),
                cmocka_unit_test(test_only_rail),
                cmocka_unit_test(test_only_rail_knock),
                cmocka_unit_test(test_knocks_again),
                cmocka_unit_test(test_drain_and_set_down),
                cmocka_unit_test(test_swallowed),
                cmocka_unit_test(test_short_only),
                cmocka_unit_test(test_short_only_beside),
                cmocka_unit_test(test_shakes_for_ever),
        };
        const char *text = getenv("RAILMUX_SEED");

        seed = text ? strtoull(text, NULL, 0) : clock_now_ns();
        print_message("RAILMUX_SEED=%llu\n", (unsigned long long)seed);
        cmocka_set_test_filter(getenv("RAILMUX_FILTER")); /* NULL: all */
        return cmocka_run_group_tests(tests, NULL, NULL);
}
