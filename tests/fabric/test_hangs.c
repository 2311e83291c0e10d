/* SPDX-License-Identifier: MIT */
/* Adapters whose firmware hangs when a queue pair is to be made, and the rail's thread with it; or is slow. */
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric/private.h"
#include "tests/fabric/fake_rig.h"
#include "tests/fabric/rig.h"
#include "tests/time_scale.h"
#include "util/clock.h"

static struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        const char *device; /* NULL: none */
        uint32_t waiting;
} hang = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct ibv_qp *hang_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
        pthread_mutex_lock(&hang.lock);
        hang.waiting++;
        while (hang.device && strcmp(hang.device, pd->context->device->name) == 0)
                pthread_cond_wait(&hang.changed, &hang.lock);
        hang.waiting--;
        pthread_mutex_unlock(&hang.lock);
        return fake_verbs()->create_qp(pd, attr);
}

static uint32_t hang_set(const char *device) {
        uint32_t waiting;

        pthread_mutex_lock(&hang.lock);
        hang.device = device;
        waiting = hang.waiting;
        pthread_cond_broadcast(&hang.changed);
        pthread_mutex_unlock(&hang.lock);
        return waiting;
}

/* Of this device each call that ends a connection takes so long. */
static _Atomic(const char *) slow; /* NULL: of none */
static int slow_ms;

static void slow_call(const struct ibv_context *context) {
        const char *device = slow;

        if (device && strcmp(device, context->device->name) == 0)
                (void)poll(NULL, 0, slow_ms);
}

static int slow_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
        slow_call(qp->context);
        return fake_verbs()->modify_qp(qp, attr, mask);
}

static int slow_destroy_qp(struct ibv_qp *qp) {
        slow_call(qp->context);
        return fake_verbs()->destroy_qp(qp);
}

static int slow_dereg_mr(struct ibv_mr *mr) {
        slow_call(mr->context);
        return fake_verbs()->dereg_mr(mr);
}

static uint64_t limit_ns(void) {
        return clock_now_ns() + UINT64_C(40000000000) * time_scale();
}

static void begin(struct rig *rig, uint32_t n_nodes, uint32_t n_rails) {
        const uint32_t scale = (uint32_t)time_scale();
        struct rig_options options = {
                .n_nodes = n_nodes,
                .n_rails = n_rails,
                .ranks = {1, 1, n_nodes > 2},
                .slot_bytes = 300, /* of the ranks' own rail, which is the first one */
                .key = 1,
                .class = FABRIC_NORMAL,
                .chunks = 20,
                .times = {.heartbeat = 40 * scale,
                          .deadline = 250 * scale,
                          .unreachable = 100 * scale,
                          .hold_down = 5,
                          .hold_max = 20},
        };
        static struct verbs_api api;

        fake_rig_begin(&(struct fake_options){.timeout_ms = 20});
        api = *fake_verbs();
        api.create_qp = hang_create_qp;
        api.modify_qp = slow_modify_qp;
        api.destroy_qp = slow_destroy_qp;
        api.dereg_mr = slow_dereg_mr;
        slow_ms = (int)options.times.deadline / 5 * 2;
        rig_verbs = &api;
        rig_new(rig, &options);
        rig_run(rig, 30);
}

/* The thread of node 0's first rail, when the connection to that node is made again. */
static void hang_node_0(struct rig *rig, uint32_t node) {
        const uint64_t end_ns = limit_ns();
        static struct rig_place place; /* it is looked at for as long as somebody hangs */

        place = rig_place(RIG_FAKE, 0, 0);
        while (hang_set(place.hca) == 0) {
                fake_qp_fatal(fake_qp_any(fake_rig_device(node, 0)));
                rig_dispatch(rig);
                assert_true(clock_now_ns() < end_ns);
                sched_yield();
        }
}

/* So many more chunks on each channel that is not stopped. */
static void go(struct rig *rig, uint32_t chunks) {
        const uint64_t end_ns = limit_ns();
        bool all = false;

        rig->options.chunks += chunks;
        while (!all) {
                if (!rig_step(rig))
                        rig_wait(rig, 30);
                rig_dispatch(rig);
                all = true;
                for (uint32_t i = 0; i < rig->n_channels; i++)
                        all &= rig->channels[i].stopped || rig->channels[i].received == rig->options.chunks;
                assert_true(clock_now_ns() < end_ns);
        }
}

static void finish(struct rig *rig) {
        hang_set(NULL);
        for (uint32_t i = 0; i < rig->n_channels; i++)
                rig->channels[i].stopped = false;
        go(rig, 20);
        rig_check_quiet(rig);
        rig_settle(rig, 30);
        rig_free(rig);
        fake_rig_end();
}

/* All that was posted has arrived, and who sent it knows. */
static void await_quiet(struct rig *rig) {
        const uint64_t posted = (uint64_t)rig->n_channels * rig->options.chunks * 2, end_ns = limit_ns();
        uint64_t taken, left;

        do {
                taken = left = 0;
                for (uint32_t node = 0; node < rig->options.n_nodes; node++) {
                        struct fabric *fabric = rig->nodes[node].fabric;

                        pthread_mutex_lock(&fabric->lock);
                        taken += fabric->counters.taken;
                        left += atomic_load(&fabric->areas->n_items);
                        pthread_mutex_unlock(&fabric->lock);
                }
                assert_true(clock_now_ns() < end_ns);
                sched_yield();
        } while (taken < posted || left > 0);
}

/* The first rail's route from one node to another. */
static void await_route(struct rig *rig, uint32_t from, uint32_t to, bool up) {
        const uint64_t end_ns = limit_ns();
        bool is_up;

        do {
                struct fabric_route_row *rows;
                size_t n;

                assert_int_equal(fabric_routes(rig->nodes[from].fabric, &rows, &n), 0);
                is_up = false;
                for (size_t i = 0; i < n; i++)
                        if (strcmp(rows[i].rail, rig_rail_names[0]) == 0 &&
                            memcmp(&rows[i].peer, &rig->nodes[to].id, sizeof(rows[i].peer)) == 0)
                                is_up |= rows[i].state == FABRIC_UP;
                free(rows);
                assert_true(clock_now_ns() < end_ns);
                sched_yield();
        } while (is_up != up);
}

/* A word of node 0 to node 1 that changes nothing there, and in the end somebody says that it does not get there. */
static void say_in_vain(struct rig *rig) {
        const struct rig_channel *channel = rig->channels;
        struct net_descriptor d = {.kind = NET_CREDIT};
        const uint64_t one = 1, end_ns = limit_ns();

        rig_dispatch(rig);
        rig->nodes[0].unreachable = 0;
        while (rig->node_of[channel->source] == 0)
                channel++;
        d.source = (uint8_t)channel->destination;
        d.destination = (uint8_t)channel->source;
        d.line_offset = channel->offset;
        net_area_post(rig->nodes[0].area, &d);
        if (net_area_wake_fabric(rig->nodes[0].area))
                assert_int_equal(write(fabric_doorbell_fd(rig->nodes[0].fabric), &one, sizeof(one)), sizeof(one));
        while (rig->nodes[0].unreachable == 0) {
                rig_dispatch(rig);
                if (clock_now_ns() > end_ns)
                        fail_msg("nobody says that node 1 cannot be reached");
                sched_yield();
        }
}

/* The other rail is cut: that is told all the same. */
static void test_other_cut(void **state) {
        static struct rig rig;

        (void)state;
        begin(&rig, 2, 2);
        hang_node_0(&rig, 0);
        fake_port(fake_rig_device(0, 1), false, 0);
        say_in_vain(&rig);
        fake_port(fake_rig_device(0, 1), true, 0);
        finish(&rig);
}

/* There is no other rail, so no other rail's thread. */
static void test_alone(void **state) {
        static struct rig rig;

        (void)state;
        begin(&rig, 2, 1);
        hang_node_0(&rig, 0);
        say_in_vain(&rig);
        finish(&rig);
}

/* It hangs for one node's sake, and what goes to another one takes the other rail; in the end it is used again. */
static void test_others_go_on(void **state) {
        static struct rig rig;

        (void)state;
        begin(&rig, 3, 2);
        await_quiet(&rig); /* what is under way on its connections has to wait for it */
        hang_node_0(&rig, 2);
        await_route(&rig, 1, 0, false);
        for (uint32_t i = 0; i < rig.n_channels; i++)
                rig.channels[i].stopped =
                        rig.node_of[rig.channels[i].source] == 2 || rig.node_of[rig.channels[i].destination] == 2;
        go(&rig, 20);
        hang_set(NULL);
        await_route(&rig, 0, 1, true);
        await_route(&rig, 1, 0, true);
        finish(&rig);
}

/* No call takes too long, but all those do that end the connections of a port that is down. */
static void test_slow(void **state) {
        const uint64_t end_ns = limit_ns();
        static struct rig_place place; /* as in hang_node_0() */
        static struct rig rig;

        (void)state;
        begin(&rig, 3, 2);
        await_quiet(&rig);
        place = rig_place(RIG_FAKE, 0, 0);
        slow = place.hca;
        fake_port(fake_rig_device(0, 0), false, 0);
        while (rig.nodes[0].hung == 0) {
                rig_dispatch(&rig);
                assert_true(clock_now_ns() < end_ns);
                sched_yield();
        }
        await_route(&rig, 0, 1, false);
        go(&rig, 20);
        slow = NULL;
        fake_port(fake_rig_device(0, 0), true, 0);
        await_route(&rig, 0, 1, true);
        finish(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_other_cut),
                cmocka_unit_test(test_alone),
                cmocka_unit_test(test_others_go_on),
                cmocka_unit_test(test_slow),
        };

        cmocka_set_test_filter(getenv("RAILMUX_FILTER")); /* NULL: all */
        return cmocka_run_group_tests(tests, NULL, NULL);
}
