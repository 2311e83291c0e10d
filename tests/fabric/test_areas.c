/* SPDX-License-Identifier: MIT */
/* Areas and peers that come and go under traffic, shares of tenants, and wake-ups. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"
#include "tests/fabric/rig.h"
#include "tests/time_scale.h"
#include "util/clock.h"

#define QUANTUM 512 /* rail_add.c */

/*
 * Removed at any moment, the memory is not touched again: it is unmapped at once, so a touch would be a crash. What
 * goes on over the same connections is not disturbed.
 */
static void test_remove_under_traffic(void **state) {
        struct rig_options options = {
                .n_nodes = 2, .n_rails = 2, .ranks = {1, 1}, .slot_bytes = 200000, .key = 100, .chunks = 1000000};
        const struct rig_options steady_options = {
                .n_nodes = 2, .n_rails = 2, .ranks = {1, 1}, .slot_bytes = 30000, .key = 99, .chunks = 1000000};
        static struct rig steady, passing;
        uint64_t random = clock_now_ns();

        (void)state;
        print_message("random %llu\n", (unsigned long long)random);
        rig_new(&steady, &steady_options);
        for (unsigned int round = 0; round < 60; round++) {
                uint32_t steps = (uint32_t)(rig_random(&random) % 60), first = (uint32_t)(rig_random(&random) % 2);

                /* A second pair of areas on the same fabrics. */
                options.key = 100 + round;
                rig_join(&passing, &options, &steady);
                for (uint32_t i = 0; i < steps; i++) {
                        rig_step(&passing);
                        rig_step(&steady);
                }
                for (uint32_t i = 0; i < 2; i++) {
                        struct rig_node *node = &passing.nodes[(first + i) % 2];

                        assert_int_equal(fabric_area_remove(node->fabric, options.key), 0);
                        munmap(node->area, node->size);
                        close(node->wake_fd);
                        rig_step(&steady);
                }
        }
        steady.options.chunks = steady.channels[0].pushed + 200;
        rig_run(&steady, 20);
        for (uint32_t i = 0; i < 2; i++) {
                struct fabric_counters counters;

                fabric_counters(steady.nodes[i].fabric, &counters);
                assert_int_equal(counters.malformed + counters.corrupted + counters.retransmitted, 0);
        }
        rig_free(&steady);
}

/* So that a message of a megabyte takes hundreds of calls, and is cut whenever its area goes. */
static void shrink_buffers(void) {
        const int bytes = 1; /* the system's least */
        struct dirent *entry;
        unsigned int n = 0;
        DIR *folder = opendir("/proc/self/fd");

        assert_non_null(folder);
        while ((entry = readdir(folder))) {
                int fd = (int)strtol(entry->d_name, NULL, 10), protocol = 0;
                socklen_t size = sizeof(protocol);

                if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) || protocol != IPPROTO_TCP)
                        continue;
                assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
                n++;
        }
        closedir(folder);
        assert_true(n > 0);
}

/* One end's area goes while its chunks are on their way: the other end gets them whole or not at all. */
static void test_torn(void **state) {
        struct rig_options options = {.n_nodes = 2,
                                      .n_rails = 1,
                                      .ranks = {2, 2},
                                      .slot_bytes = 1 << 20,
                                      .least_data = 1 << 20,
                                      .key = 100,
                                      .chunks = 1000000,
                                      .window_bytes = 64u << 20};
        const struct rig_options host_options = {
                .n_nodes = 2, .n_rails = 1, .ranks = {1, 1}, .slot_bytes = 64, .key = 99, .window_bytes = 64u << 20};
        uint64_t end_ns = clock_now_ns() + UINT64_C(100000000000) * time_scale(); /* a machine may be busy */
        static struct rig host, rig;
        struct fabric_counters counters = {0};

        (void)state;
        rig_new(&host, &host_options);
        /* Adapters send all of a chunk, or break the connection. */
        for (uint32_t round = 0; RIG_OVER_FAKES ? round < 10 : counters.torn < 5; round++) {
                uint64_t left = 1, flight = 0;

                options.key++;
                rig_join(&rig, &options, &host);
                rig_step(&rig);
                while (flight == 0) { /* they are on their way */
                        struct fabric_rail_row *rows;
                        size_t n;

                        rig_step(&rig);
                        assert_int_equal(fabric_rails(rig.nodes[0].fabric, &rows, &n), 0);
                        flight = rows[0].flight_bytes;
                        free(rows);
                        assert_true(clock_now_ns() < end_ns);
                }
                if (!RIG_OVER_FAKES && round == 0)
                        shrink_buffers(); /* all are connected by now */
                assert_int_equal(fabric_area_remove(rig.nodes[0].fabric, options.key), 0);
                munmap(rig.nodes[0].area, rig.nodes[0].size);
                rig.options.chunks = 0; /* no more pushes, and nothing on node 0 */
                for (uint32_t i = 0; i < rig.n_channels; i++)
                        rig.channels[i].stopped = rig.node_of[rig.channels[i].destination] == 0;
                while (left > 0) {
                        struct fabric_rail_row *rows;
                        size_t n;

                        rig_step(&rig);
                        assert_int_equal(fabric_rails(rig.nodes[0].fabric, &rows, &n), 0);
                        left = rows[0].queued_bytes + rows[0].flight_bytes;
                        free(rows);
                        assert_true(clock_now_ns() < end_ns);
                }
                while (rig_step(&rig)) {
                }
                assert_int_equal(fabric_area_remove(rig.nodes[1].fabric, options.key), 0);
                munmap(rig.nodes[1].area, rig.nodes[1].size);
                close(rig.nodes[0].wake_fd);
                close(rig.nodes[1].wake_fd);
                fabric_counters(rig.nodes[1].fabric, &counters);
        }
        rig_free(&host);
}

/* A peer that is removed under traffic and comes back with another boot epoch; a third one does not notice. */
static void test_peer_comes_and_goes(void **state) {
        const struct rig_options options = {
                .n_nodes = 3, .n_rails = 2, .ranks = {1, 1, 1}, .slot_bytes = 100000, .key = 5, .chunks = 1000000};
        static struct rig rig;

        (void)state;
        rig_new(&rig, &options);
        for (uint32_t round = 0; round < 20; round++) {
                uint32_t until = rig.channels[1].received + 20; /* from 0 to 2 */

                while (rig.channels[1].received < until)
                        rig_wait(&rig, 10);
                /* Node 1 dies and lives again: everyone forgets it, and its channels begin anew. */
                assert_int_equal(fabric_area_remove(rig.nodes[1].fabric, rig.options.key), 0);
                for (uint32_t i = 0; i < 3; i++) {
                        if (i == 1)
                                continue;
                        assert_int_equal(fabric_peer_remove(rig.nodes[i].fabric, &rig.nodes[1].id), 0);
                        assert_int_equal(fabric_peer_remove(rig.nodes[1].fabric, &rig.nodes[i].id), 0);
                }
                for (uint32_t i = 0; i < rig.n_channels; i++)
                        if (rig.channels[i].source == 1 || rig.channels[i].destination == 1)
                                rig.channels[i].stopped = true;
                for (until = rig.channels[1].received + 20; rig.channels[1].received < until;)
                        rig_wait(&rig, 10);
                rig_restart_node(&rig, 1);
        }
        rig.options.chunks = 0;
        for (uint32_t i = 0; i < rig.n_channels; i++)
                if (rig.channels[i].pushed > rig.options.chunks)
                        rig.options.chunks = rig.channels[i].pushed;
        rig.options.chunks += 10;
        rig_run(&rig, 30);
        rig_free(&rig);
}

/* What channels of node 0 have carried: one rail's schedule. */
static uint64_t carried(const struct rig *rig) {
        uint64_t bytes = 0;

        for (uint32_t c = 0; c < rig->n_channels; c++)
                bytes += rig->channels[c].received_bytes;
        return bytes;
}

/* What a tenant has queued on node 0's only connection, when it was looked at last. */
struct backlog {
        uint64_t tenant, queued;
        uint32_t source, destination, number; /* of the last chunk */
        uint64_t sent;                        /* since it had nothing to send last */
};

/* With the fabric's lock. It had something all the time if what was the last is still there. */
static bool backlog_look(struct backlog *backlog, const struct fabric_port *port) {
        const struct schedule_lane *lane;
        struct schedule_item *item;
        uint64_t queued = 0, left = 0;

        DL_FOREACH2(port->schedule.lanes, lane, port_next) {
                if (lane->flow->tenant == backlog->tenant)
                        break;
        }
        for (item = lane ? lane->items : NULL; item; item = item->next) {
                const struct fabric_item *chunk = item_of(item);

                queued += item->bytes;
                if (chunk->source == backlog->source && chunk->destination == backlog->destination &&
                    chunk->value == backlog->number)
                        left = queued <= backlog->queued ? queued : 0; /* else some have come back before it */
                if (item->next)
                        continue;
                backlog->sent += left > 0 ? backlog->queued - left : 0;
                backlog->source = chunk->source;
                backlog->destination = chunk->destination;
                backlog->number = chunk->value;
        }
        backlog->queued = queued;
        return left > 0;
}

/* Two tenants with weights 1 and 3 on a rail with a rate limit. In any stretch in which both always had something to
 * send they got what schedule.c promises; there is a long one as soon as this thread gets a processor often enough. */
static void test_shares(void **state) {
        const uint32_t weights[] = {10, 30};
        struct rig_options options = {
                .n_nodes = 2,
                .n_rails = 1,
                .ranks = {2, 2},
                .slot_bytes = 60000,
                .least_data = 30000,
                .key = 1,
                .chunks = 1000000,
                .rate_bytes = 4000000, /* little, so that it is the rail that is scarce and not the processor */
                .window_bytes = 200000,
                .times = {.heartbeat = 5000, .deadline = 60000}};
        const double largest = options.slot_bytes + 1000;
        const uint64_t end_ns = clock_now_ns() + UINT64_C(80000000000) * time_scale();
        struct backlog backlogs[2] = {{.tenant = 1}, {.tenant = 2}};
        static struct rig rigs[2];
        const struct fabric_port *port;
        struct fabric *fabric;
        uint64_t start_ns;
        double passed;

        (void)state;
        options.tenant = 1;
        options.weight = weights[0];
        rig_new(&rigs[0], &options);
        options.key = 2;
        options.tenant = 2;
        options.weight = weights[1];
        options.least_data = 1; /* its chunks are smaller, and it gets no less */
        rig_join(&rigs[1], &options, &rigs[0]);
        for (uint32_t i = 0; i < rigs[0].n_channels; i++) /* to node 0: its credits are in nobody's way */
                rigs[0].channels[i].stopped = rigs[1].channels[i].stopped = rigs[0].channels[i].source >= 2;
        fabric = rigs[0].nodes[0].fabric;
        port = &fabric->rails[0]->routes->ports[options.class];
        start_ns = clock_now_ns();
        while (rigs[0].channels[0].received == 0 || rigs[1].channels[0].received == 0) { /* adapters know them */
                for (unsigned int i = 0; i < 2; i++)
                        rig_step(&rigs[i]);
                assert_true(clock_now_ns() < end_ns);
        }
        while (backlogs[0].sent + backlogs[1].sent < options.rate_bytes) {
                bool kept = true;
                double share[2];

                for (unsigned int i = 0; i < 2; i++)
                        rig_step(&rigs[i]);
                pthread_mutex_lock(&fabric->lock);
                for (unsigned int i = 0; i < 2; i++)
                        kept &= backlog_look(&backlogs[i], port);
                pthread_mutex_unlock(&fabric->lock);
                for (unsigned int i = 0; i < 2; i++) {
                        backlogs[i].sent = kept ? backlogs[i].sent : 0;
                        share[i] = (double)backlogs[i].sent / weights[i];
                }
                /* Less than a turn and the largest chunk each. */
                assert_true(fabs(share[0] - share[1]) < largest / weights[0] + largest / weights[1] + 3 * QUANTUM);
                assert_true(clock_now_ns() < end_ns);
        }
        passed = (double)(clock_now_ns() - start_ns) / 1e9;
        print_message("%llu and %llu bytes, in %.1f s\n", (unsigned long long)backlogs[0].sent,
                      (unsigned long long)backlogs[1].sent, passed);
        assert_true((double)(carried(&rigs[0]) + carried(&rigs[1])) <
                    (double)options.rate_bytes * passed + 65536 + largest); /* bucket.h */
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(fabric_area_remove(rigs[1].nodes[i].fabric, 2), 0);
                munmap(rigs[1].nodes[i].area, rigs[1].nodes[i].size);
                close(rigs[1].nodes[i].wake_fd);
        }
        rig_free(&rigs[0]);
}

/* One small chunk at a time, both ends asleep in between: a wake-up that gets lost would stop it. */
static void test_wakes(void **state) {
        uint32_t rounds = getenv("RAILMUX_ROUNDS") ? (uint32_t)strtoul(getenv("RAILMUX_ROUNDS"), NULL, 10) : 100000;
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 1,
                                            .ranks = {1, 1},
                                            .slot_bytes = 64,
                                            .key = 3,
                                            .chunks = rounds / RIG_SLOTS,
                                            .times = {.spin_us = 1}};
        struct fabric_counters counters;
        static struct rig rig;

        (void)state;
        rig_new(&rig, &options);
        while (!rig_done(&rig))
                rig_wait(&rig, 20);
        rig_check_quiet(&rig);
        fabric_counters(rig.nodes[0].fabric, &counters);
        print_message("%u sleeps of executors, %llu of the fabric, %llu wakes\n", rig.sleeps,
                      (unsigned long long)counters.sleeps, (unsigned long long)counters.wakes);
        assert_true(counters.sleeps > rounds / 100 && counters.wakes > rounds / 100);
        rig_free(&rig);
}

static _Atomic bool lacking; /* memory for longer lists */
static _Atomic uint32_t n_lacked;

void *__wrap_reallocarray(void *old, size_t n, size_t size);
void *__real_reallocarray(void *old, size_t n, size_t size);

void *__wrap_reallocarray(void *old, size_t n, size_t size) {
        if (!lacking)
                return __real_reallocarray(old, n, size);
        n_lacked++;
        errno = ENOMEM;
        return NULL;
}

/* There is no memory for a moment in which areas come: they are taken from when there is some, others all the time. */
static void test_no_memory(void **state) {
        struct rig_options options = {
                .n_nodes = 2, .n_rails = 1, .ranks = {1, 1}, .slot_bytes = 2000, .key = 1, .chunks = 20};
        uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale();
        static struct rig steady, later;

        (void)state;
        rig_new(&steady, &options);
        rig_run(&steady, 20);
        lacking = true;
        options.key = 2;
        rig_join(&later, &options, &steady);
        while (n_lacked < 2) {
                rig_step(&later);
                assert_true(clock_now_ns() < end_ns);
        }
        steady.options.chunks += 200;
        rig_run(&steady, 20);
        lacking = false;
        rig_run(&later, 20);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(fabric_area_remove(later.nodes[i].fabric, 2), 0);
                munmap(later.nodes[i].area, later.nodes[i].size);
                close(later.nodes[i].wake_fd);
        }
        rig_free(&steady);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_remove_under_traffic),
                cmocka_unit_test(test_torn),
                cmocka_unit_test(test_peer_comes_and_goes),
                cmocka_unit_test(test_shares),
                cmocka_unit_test(test_wakes),
                cmocka_unit_test(test_no_memory),
        };

        cmocka_set_test_filter(getenv("RAILMUX_FILTER")); /* NULL: all */
        return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
