/* SPDX-License-Identifier: MIT */
/*
 * Rails over RDMA adapters that fail in the midst of traffic, in every way that adapters can: no wrong byte, nothing
 * lost, nothing twice, nothing late (the rig compares), and no object left behind (the adapters count).
 * RAILMUX_SEED repeats a run, as far as threads allow.
 */
#include <errno.h>
#include <openssl/ssl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric/verbs/verbs.h"
#include "tests/fabric/fake_rig.h"
#include "tests/fabric/rig.h"
#include "tests/fabric/tls.h"
#include "tests/time_scale.h"
#include "util/clock.h"

#define AREAS 40u

static uint64_t seed;

/* What fails is seen by what adapters say of it, long before a silent connection would be given up. */
static const struct fabric_times patient = {.heartbeat = 5000, .deadline = 60000, .hold_down = 5, .hold_max = 20};

/* The turns of one rail's thread, and in how many of them its adapter had something to say. */
static struct {
        _Atomic int epoll_fd; /* 0: of none */
        void *_Atomic nic_event;
        _Atomic uint64_t turns, events;
} watched;

int __wrap_epoll_wait(int fd, struct epoll_event *ret_events, int max, int timeout);
int __real_epoll_wait(int fd, struct epoll_event *ret_events, int max, int timeout);

int __wrap_epoll_wait(int fd, struct epoll_event *ret_events, int max, int timeout) {
        int n = __real_epoll_wait(fd, ret_events, max, timeout), saved = errno;

        if (fd == watched.epoll_fd) {
                watched.turns++;
                for (int i = 0; i < n; i++)
                        watched.events += ret_events[i].data.ptr == watched.nic_event;
        }
        errno = saved;
        return n;
}

struct broken {
        struct rig rig;
        struct fake_counters counters; /* of the adapters, at the end */
        uint64_t retransmitted;
        uint32_t max_violations; /* at each node */
        uint32_t max_malformed;  /* likewise */
        uint64_t n_malformed;    /* in all */
        bool areas_go;           /* and what was said of them comes too late */
        bool receives_go;        /* some queue pairs could not be stopped */
        uint64_t unsettled;      /* queue pairs, of which each may have taken a receive with it */
};

static struct rig_options usual(uint32_t slot_bytes, uint32_t chunks) {
        return (struct rig_options){.n_nodes = 2,
                                    .n_rails = 2,
                                    .ranks = {2, 1},
                                    .slot_bytes = slot_bytes,
                                    .key = 1,
                                    .class = FABRIC_NORMAL,
                                    .chunks = chunks,
                                    .times = patient};
}

static void broken_new_stale(struct broken *broken, const struct rig_options *options, uint32_t delay_us, bool stale) {
        const struct fake_options adapters = {
                .seed = rig_random(&seed), .timeout_ms = 20, .delay_us = delay_us, .stale = stale};

        fake_rig_begin(&adapters);
        rig_new(&broken->rig, options);
}

static void broken_new(struct broken *broken, const struct rig_options *options, uint32_t delay_us) {
        broken_new_stale(broken, options, delay_us, rig_random(&seed) % 2);
}

/* Any adapter that is in use. */
static struct fake_device *broken_any(const struct broken *broken) {
        const struct rig_options *options = &broken->rig.options;

        return fake_rig_device((uint32_t)(rig_random(&seed) % options->n_nodes),
                               (uint32_t)(rig_random(&seed) % options->n_rails));
}

/* Until so many more chunks are through, on the channel that has the fewest. */
static void broken_go(struct broken *broken, uint32_t chunks) {
        uint64_t end_ns = clock_now_ns() + UINT64_C(30000000000) * time_scale();
        struct rig *rig = &broken->rig;
        uint32_t until = UINT32_MAX;
        bool all = false;

        for (uint32_t i = 0; i < rig->n_channels; i++)
                if (rig->channels[i].received < until)
                        until = rig->channels[i].received;
        until += chunks;
        while (!all && !rig_done(rig)) {
                if (!rig_step(rig))
                        rig_wait(rig, 30);
                rig_dispatch(rig);
                all = true;
                for (uint32_t i = 0; i < rig->n_channels; i++)
                        all &= rig->channels[i].received >= until;
                assert_true(clock_now_ns() < end_ns);
        }
}

/* Each receive of each adapter is posted, or its rail knows that it is not, or has counted that it may be gone: a rail
 * without any is dead. Ends of connections may be under way. Returns the last of these. */
static uint64_t broken_check_receives(const struct broken *broken, uint32_t node, uint32_t rail) {
        struct fabric *fabric = broken->rig.nodes[node].fabric;
        struct fake_device *device = fake_rig_device(node, rail);
        const struct verbs_nic *nic = nic_of(fabric->rails[rail]);
        uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale();
        uint32_t there, n_receives;
        uint64_t unsettled;
        bool fatal;

        do {
                pthread_mutex_lock(&fabric->lock);
                there = fake_receives(device) + nic->n_missing;
                n_receives = nic->n_receives;
                unsettled = fabric->rails[rail]->n_unsettled;
                fatal = nic->fatal;
                pthread_mutex_unlock(&fabric->lock);
                assert_true(there <= n_receives);
                if (there + unsettled < n_receives && !fatal && clock_now_ns() > end_ns)
                        fail_msg("node %u, rail %u: %u of %u receives are left, %llu queue pairs told nothing", node,
                                 rail, there, n_receives, (unsigned long long)unsettled);
                sched_yield();
        } while (there + unsettled < n_receives && !fatal);
        return unsettled;
}

static void broken_free(struct broken *broken) {
        struct rig *rig = &broken->rig;

        for (uint32_t node = 0; node < rig->options.n_nodes; node++)
                for (uint32_t rail = 0; rail < rig->options.n_rails; rail++) {
                        fake_random_errors(fake_rig_device(node, rail), 0, 0);
                        fake_drop(fake_rig_device(node, rail), FAKE_CARRY);
                }
        rig->options.chunks = 0;
        for (uint32_t i = 0; i < rig->n_channels; i++)
                if (rig->channels[i].pushed > rig->options.chunks)
                        rig->options.chunks = rig->channels[i].pushed;
        rig_run(rig, 30);
        rig_settle(rig, 30);
        broken->unsettled = 0;
        for (uint32_t node = 0; node < rig->options.n_nodes; node++)
                for (uint32_t rail = 0; rail < rig->options.n_rails && !broken->receives_go; rail++)
                        broken->unsettled += broken_check_receives(broken, node, rail);
        broken->retransmitted = 0;
        for (uint32_t node = 0; node < rig->options.n_nodes; node++) {
                struct fabric_counters counters;

                fabric_counters(rig->nodes[node].fabric, &counters);
                broken->retransmitted += counters.retransmitted;
                assert_int_equal(counters.out_of_bounds + counters.wrong_rank, 0);
                assert_true(broken->areas_go || counters.unknown_area + counters.dropped == 0);
                if (rig->nodes[node].violations > broken->max_violations)
                        fail_msg("node %u: %s", node, rig->nodes[node].text);
                assert_int_equal(counters.corrupted, 0);
                assert_true(counters.malformed <= broken->max_malformed);
                broken->n_malformed += counters.malformed;
        }
        fake_counters(&broken->counters);
        rig_free(rig);
        fake_rig_end();
}

static void describe(const struct broken *broken) {
        print_message("%llu failed, %llu flushed, %llu torn, %llu arrived all the same, %llu late; %llu queue pairs; "
                      "%llu sent again\n",
                      (unsigned long long)broken->counters.failed, (unsigned long long)broken->counters.flushed,
                      (unsigned long long)broken->counters.torn, (unsigned long long)broken->counters.lost_answers,
                      (unsigned long long)broken->counters.held_arrived,
                      (unsigned long long)broken->counters.queue_pairs, (unsigned long long)broken->retransmitted);
}

/* Requests fail at any byte, or when all of it has arrived. */
static void random_errors(const struct rig_options *options, uint32_t one_in, enum ibv_wc_status status) {
        static struct broken broken;
        uint64_t end_ns = clock_now_ns() + UINT64_C(40000000000) * time_scale();

        broken_new(&broken, options, 0);
        for (uint32_t node = 0; node < options->n_nodes; node++)
                for (uint32_t rail = 0; rail < options->n_rails; rail++)
                        fake_random_errors(fake_rig_device(node, rail), one_in, status);
        do {
                broken_go(&broken, 10);
                fake_counters(&broken.counters);
                assert_true(clock_now_ns() < end_ns);
        } while (broken.counters.failed < 40 || broken.counters.torn < 5 || broken.counters.lost_answers < 1);
        broken_free(&broken);
        describe(&broken);
        assert_true(broken.retransmitted > 0);
}

static void test_errors_small(void **state) {
        const struct rig_options options = usual(900, 1000000);

        (void)state;
        random_errors(&options, 60, IBV_WC_RETRY_EXC_ERR);
}

static void test_errors_large(void **state) {
        const struct rig_options options = usual(150000, 1000000);

        (void)state;
        random_errors(&options, 30, IBV_WC_LOC_QP_OP_ERR);
}

static void test_errors_one_rail_tls(void **state) {
        struct rig_options options = usual(30000, 1000000);

        (void)state;
        options.n_rails = 1;
        options.tls = tls_context();
        random_errors(&options, 60, IBV_WC_FATAL_ERR);
        SSL_CTX_free(options.tls);
}

static void test_errors_three_nodes(void **state) {
        struct rig_options options = usual(70000, 1000000);

        (void)state;
        options.n_nodes = 3;
        options.ranks[2] = 1;
        random_errors(&options, 60, IBV_WC_RETRY_EXC_ERR);
}

static bool sent_again(const struct broken *broken) {
        for (uint32_t node = 0; node < broken->rig.options.n_nodes; node++) {
                struct fabric_counters counters;

                fabric_counters(broken->rig.nodes[node].fabric, &counters);
                if (counters.retransmitted > 0)
                        return true;
        }
        return false;
}

/* What a network does to packets, and then does no more. */
static void drops(enum fake_drop drop, uint32_t slot_bytes) {
        struct rig_options options = usual(slot_bytes, 1000000);
        static struct broken broken;

        broken_new(&broken, &options, 20);
        /* It depends on the threads' turns whether anything was under way; more than once is enough by far. */
        for (uint32_t round = 0; round < 25 || (round < 2000 && !sent_again(&broken)); round++) {
                struct fake_device *device = broken_any(&broken);

                broken_go(&broken, 5);
                fake_drop(device, drop);
                broken_go(&broken, (uint32_t)(rig_random(&seed) % 20)); /* over the other rail */
                fake_drop(device, FAKE_CARRY);
        }
        broken_free(&broken);
        describe(&broken);
        assert_true(broken.retransmitted > 0);
}

static void test_lose(void **state) {
        (void)state;
        drops(FAKE_LOSE, 50000);
}

static void test_lose_answers(void **state) {
        (void)state;
        drops(FAKE_LOSE_ACKS, 3000);
        drops(FAKE_LOSE_ACKS, 50000);
}

/* Packets that are late: those of a connection that was given up must not get anywhere. */
static void test_hold(void **state) {
        (void)state;
        drops(FAKE_HOLD, 3000);
        drops(FAKE_HOLD, 50000);
}

/* Errors that adapters make of their own accord, at either end. */
static void test_planted(void **state) {
        const enum ibv_wc_status statuses[] = {IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_FATAL_ERR,
                                               IBV_WC_RETRY_EXC_ERR, IBV_WC_GENERAL_ERR,    IBV_WC_WR_FLUSH_ERR};
        struct rig_options options = usual(40000, 1000000);
        static struct broken broken;

        (void)state;
        broken_new(&broken, &options, 0);
        broken.max_violations = 60; /* some look as if the other end had done what it must not */
        for (uint32_t round = 0; round < 60; round++) {
                enum ibv_wc_status status = statuses[rig_random(&seed) % 6];
                struct fake_device *device = broken_any(&broken);

                if (round % 3 == 0)
                        fake_wc_error(device, 0, status);
                else if (round % 3 == 1)
                        fake_receive_error(device, status);
                else
                        fake_qp_fatal(fake_qp_any(device));
                broken_go(&broken, 3);
        }
        broken_free(&broken);
        describe(&broken);
        assert_true(broken.counters.failed > 10);
}

/* Adapters that throw away what a destroyed queue pair has left in the completion queue, receives of the shared queue
 * among it, and connections that die while the other end sends. last_us: see fake_last(). */
static void receives(struct broken *broken, uint32_t last_us, uint32_t rounds) {
        struct rig_options options = usual(2000, 1000000);

        options.ranks[1] = 3; /* that several frames are on their way */
        broken_new_stale(broken, &options, 0, false);
        for (uint32_t i = 0; i < 4; i++)
                fake_last(fake_rig_device(i % 2, i / 2), last_us);
        for (uint32_t round = 0; round < rounds; round++) {
                struct fabric *fabric = broken->rig.nodes[round % 2].fabric;
                const char *rail = rig_rail_names[round / 2 % 2];

                assert_int_equal(fabric_rail_enable(fabric, rail, false), 0);
                broken_go(broken, 1);
                assert_int_equal(fabric_rail_enable(fabric, rail, true), 0);
                broken_go(broken, 2);
        }
        broken_free(broken);
        describe(broken);
        print_message("%llu queue pairs told nothing of their last receives\n", (unsigned long long)broken->unsettled);
}

static void test_receives(void **state) {
        static struct broken broken;

        (void)state;
        receives(&broken, 0, 200);
}

/* What a queue pair has taken comes back only some time after it was stopped. */
static void test_receives_late(void **state) {
        static struct broken broken;

        (void)state;
        receives(&broken, 2000, 40);
        assert_true(broken.counters.queue_pairs > 20);
}

/* Adapters that never tell of it are counted, and not waited for each time. */
static void test_receives_mute(void **state) {
        static struct broken broken;

        (void)state;
        receives(&broken, FAKE_MUTE, 40);
        assert_true(broken.unsettled > 0);
}

/* The same frame again: no reliable connection does that, so this one is not, and another is made. */
static void test_twice(void **state) {
        struct rig_options options = usual(40000, 1000000);
        static struct broken broken;
        const uint32_t rounds = 20;
        bool told = false;

        (void)state;
        broken_new(&broken, &options, 0);
        broken.max_violations = broken.max_malformed = rounds;
        for (uint32_t round = 0; round < rounds; round++) {
                fake_twice(broken_any(&broken));
                broken_go(&broken, 3);
                for (uint32_t node = 0; node < options.n_nodes; node++)
                        told |= strstr(broken.rig.nodes[node].text, "was the next one") != NULL;
        }
        assert_true(told);
        broken_free(&broken);
        describe(&broken);
        assert_true(broken.counters.twice > rounds / 4);
        assert_true(broken.n_malformed > 0);
}

/* Calls that fail while connections are made, and while they are used. */
static void test_calls_fail(void **state) {
        const struct {
                enum fake_call call;
                int error;
        } calls[] = {{FAKE_REG_MR, ENOMEM},     {FAKE_CREATE_QP, ENOMEM}, {FAKE_MODIFY_QP, ETIMEDOUT},
                     {FAKE_POST_SEND, ENOMEM},  {FAKE_POST_SEND, EIO},    {FAKE_POST_SRQ_RECV, ENOMEM},
                     {FAKE_REQ_NOTIFY_CQ, EIO}, {FAKE_QUERY_PORT, EIO},   {FAKE_QUERY_GID_TABLE, EIO},
                     {FAKE_MODIFY_QP, EINVAL},  {FAKE_CREATE_QP, EINVAL}};
        struct rig_options options = usual(40000, 1000000);
        static struct broken broken;

        (void)state;
        options.times.heartbeat = 40; /* some of it only deadlines can find */
        options.times.deadline = 250;
        broken_new(&broken, &options, 0);
        broken.receives_go = true;
        for (uint32_t round = 0; round < 66; round++) {
                uint32_t i = round % (uint32_t)(sizeof(calls) / sizeof(calls[0]));

                fake_fail_next(calls[i].call, calls[i].error, (uint32_t)(rig_random(&seed) % 4));
                fake_qp_fatal(fake_qp_any(broken_any(&broken))); /* so that there are new connections */
                broken_go(&broken, 5);
        }
        broken_free(&broken);
        describe(&broken);
        for (enum fake_call call = FAKE_REG_MR; call < FAKE_N_CALLS; call++)
                print_message("%s%llu", call == FAKE_REG_MR ? "calls that failed: " : ", ",
                              (unsigned long long)broken.counters.calls_failed[call]);
        print_message("\n");
        assert_true(broken.counters.calls_failed[FAKE_REG_MR] > 0);
        assert_true(broken.counters.calls_failed[FAKE_CREATE_QP] > 0);
        assert_true(broken.counters.calls_failed[FAKE_MODIFY_QP] > 0);
        assert_true(broken.counters.calls_failed[FAKE_POST_SEND] > 0);
        assert_true(broken.counters.calls_failed[FAKE_POST_SRQ_RECV] > 0);
}

static bool route_is_up(struct rig *rig, uint32_t node, const char *rail) {
        struct fabric_route_row *rows;
        bool up = false;
        size_t n;

        assert_int_equal(fabric_routes(rig->nodes[node].fabric, &rows, &n), 0);
        for (size_t i = 0; i < n; i++)
                up |= strcmp(rows[i].rail, rail) == 0 && rows[i].state == FABRIC_UP && rows[i].connected;
        free(rows);
        return up;
}

static void wait_up(struct broken *broken, uint32_t rail) {
        uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale();

        while (!route_is_up(&broken->rig, 0, rig_rail_names[rail]) ||
               !route_is_up(&broken->rig, 1, rig_rail_names[rail])) {
                broken_go(broken, 1);
                assert_true(clock_now_ns() < end_ns);
        }
}

/* Links and GIDs that go and come back, also elsewhere: traffic goes on, and the rail is used again. */
static void test_ports_and_gids(void **state) {
        struct rig_options options = usual(100000, 1000000);
        static struct broken broken;

        (void)state;
        options.least_data = 70000;
        options.times.heartbeat = 40; /* by which a route proves itself again */
        broken_new(&broken, &options, 0);
        for (uint32_t round = 0; round < 16; round++) {
                uint32_t rail = round % 2, node = round / 2 % 2;
                struct fake_device *device = fake_rig_device(node, rail);

                if (round % 4 == 3) {
                        fake_gid_change(device, (uint8_t)(2 + (round + 1) % 5));
                } else {
                        fake_port(device, false, round % 3 ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_RETRY_EXC_ERR);
                        broken_go(&broken, 20);
                        if (round % 4 == 2) /* a flap may move it as well */
                                fake_gid_change(device, (uint8_t)(2 + (round + 2) % 5));
                        fake_port(device, true, 0);
                }
                broken_go(&broken, 5);
                wait_up(&broken, rail);
        }
        broken_free(&broken);
        describe(&broken);
}

/* Both links at once: that is told, and everything arrives when one is back. */
static void test_unreachable(void **state) {
        struct rig_options options = usual(20000, 1000000);
        uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale();
        static struct broken broken;

        (void)state;
        options.times.unreachable = 100;
        broken_new(&broken, &options, 0);
        broken_go(&broken, 20);
        for (uint32_t rail = 0; rail < 2; rail++)
                fake_port(fake_rig_device(0, rail), false, 0);
        /* One of them has something that waits for the other; which, that is chance. */
        while (broken.rig.nodes[0].unreachable + broken.rig.nodes[1].unreachable == 0) {
                rig_step(&broken.rig);
                rig_dispatch(&broken.rig);
                assert_true(clock_now_ns() < end_ns);
        }
        fake_port(fake_rig_device(0, 1), true, 0);
        broken_go(&broken, 20);
        fake_port(fake_rig_device(0, 0), true, 0);
        broken_free(&broken);
}

static bool nic_is_fatal(struct broken *broken, uint32_t node, uint32_t rail) {
        struct fabric *fabric = broken->rig.nodes[node].fabric;
        bool fatal;

        pthread_mutex_lock(&fabric->lock);
        fatal = nic_of(fabric->rails[rail])->fatal;
        pthread_mutex_unlock(&fabric->lock);
        return fatal;
}

/* An adapter that is gone for good takes its rail with it and nothing else: its thread rests. */
static void test_device_fatal(void **state) {
        uint64_t end_ns = clock_now_ns() + UINT64_C(60000000000) * time_scale(), turns, events;
        struct rig_options options = usual(60000, 1000000);
        static struct broken broken;
        struct fabric_rail *rail;

        (void)state;
        broken_new(&broken, &options, 0);
        broken_go(&broken, 20);
        rail = broken.rig.nodes[1].fabric->rails[0];
        watched.nic_event = &rail->nic_event;
        watched.epoll_fd = rail->epoll_fd;
        fake_device_fatal(fake_rig_device(1, 0));
        while (!nic_is_fatal(&broken, 1, 0)) {
                broken_go(&broken, 1);
                assert_true(clock_now_ns() < end_ns);
        }
        turns = watched.turns;
        events = watched.events;
        broken_go(&broken, 100);
        while (watched.turns < turns + 20) {
                broken_go(&broken, 1);
                assert_true(clock_now_ns() < end_ns);
        }
        assert_int_equal(watched.events, events);
        watched.epoll_fd = 0;
        broken_free(&broken);
        describe(&broken);
}

/* Adapters that grant less than was asked, and few slots are in the way of nothing. */
static void test_little_inline(void **state) {
        struct rig_options options = usual(20000, 300);
        static struct broken broken;

        (void)state;
        for (uint32_t bytes = 0; bytes <= 100; bytes += 50) {
                const struct fake_options adapters = {.delay_us = 30};

                fake_rig_begin(&adapters);
                for (uint32_t rail = 0; rail < 2; rail++)
                        fake_max_inline(fake_rig_device(0, rail), bytes);
                rig_new(&broken.rig, &options);
                rig_run(&broken.rig, 30);
                broken_free(&broken);
                assert_int_equal(broken.retransmitted, 0);
        }
}

/* So many channels on one connection that its ring of frames is full at times. */
static void test_many_channels(void **state) {
        struct rig_options options = usual(300, 500);
        static struct broken broken;

        (void)state;
        options.n_rails = 1;
        options.ranks[0] = options.ranks[1] = RIG_RANKS / 2;
        broken_new(&broken, &options, 0);
        rig_run(&broken.rig, 30);
        broken_free(&broken);
        assert_int_equal(broken.retransmitted, 0);
}

static uint64_t areas_followed(struct broken *broken) {
        uint64_t n = 0;

        for (uint32_t i = 0; i < broken->rig.options.n_nodes; i++) {
                struct fabric *fabric = broken->rig.nodes[i].fabric;

                pthread_mutex_lock(&fabric->lock);
                n += fabric->n_followed;
                pthread_mutex_unlock(&fabric->lock);
        }
        return n;
}

/* A new area costs connections no more for others that are there, or were. */
static void test_many_areas(void **state) {
        struct rig_options options = usual(300, 2);
        static struct rig rigs[AREAS];
        static struct broken broken;
        uint64_t cost[AREAS];

        (void)state;
        broken_new(&broken, &options, 0);
        broken.areas_go = true;
        rig_run(&broken.rig, 30);
        for (uint32_t i = 0; i < AREAS; i++) {
                const uint64_t before = areas_followed(&broken);

                options.key = 100 + i;
                rig_join(&rigs[i], &options, &broken.rig);
                rig_run(&rigs[i], 30);
                cost[i] = areas_followed(&broken) - before;
                assert_true(cost[i] > 0);
                for (uint32_t n = 0; i % 2 && n < options.n_nodes; n++) { /* every other one goes again */
                        assert_int_equal(fabric_area_remove(rigs[i].nodes[n].fabric, options.key), 0);
                        munmap(rigs[i].nodes[n].area, rigs[i].nodes[n].size);
                        close(rigs[i].nodes[n].wake_fd);
                }
        }
        for (uint32_t i = 1; i < AREAS; i++) /* those that went before are followed now, perhaps */
                assert_true(cost[i] <= 4 * cost[0]);
        for (uint32_t i = 0; i < AREAS; i += 2)
                for (uint32_t n = 0; n < options.n_nodes; n++) {
                        assert_int_equal(fabric_area_remove(rigs[i].nodes[n].fabric, 100 + i), 0);
                        munmap(rigs[i].nodes[n].area, rigs[i].nodes[n].size);
                        close(rigs[i].nodes[n].wake_fd);
                }
        broken_free(&broken);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_errors_small),
                cmocka_unit_test(test_errors_large),
                cmocka_unit_test(test_errors_one_rail_tls),
                cmocka_unit_test(test_errors_three_nodes),
                cmocka_unit_test(test_lose),
                cmocka_unit_test(test_lose_answers),
                cmocka_unit_test(test_hold),
                cmocka_unit_test(test_planted),
                cmocka_unit_test(test_receives),
                cmocka_unit_test(test_receives_late),
                cmocka_unit_test(test_receives_mute),
                cmocka_unit_test(test_twice),
                cmocka_unit_test(test_calls_fail),
                cmocka_unit_test(test_ports_and_gids),
                cmocka_unit_test(test_unreachable),
                cmocka_unit_test(test_device_fatal),
                cmocka_unit_test(test_little_inline),
                cmocka_unit_test(test_many_channels),
                cmocka_unit_test(test_many_areas),
        };
        const char *text = getenv("RAILMUX_SEED");

        seed = text ? strtoull(text, NULL, 0) : clock_now_ns();
        print_message("RAILMUX_SEED=%llu\n", (unsigned long long)seed);
        cmocka_set_test_filter(getenv("RAILMUX_FILTER")); /* NULL: all */
        return cmocka_run_group_tests(tests, NULL, NULL);
}
