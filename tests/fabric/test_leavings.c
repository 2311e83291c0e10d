/* SPDX-License-Identifier: MIT */
/*
 * What an area that is removed leaves: nobody is charged for its memory any more, so no message may hold it, wherever
 * it waits. Node 1 is a stranger who does as it likes.
 */
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/frame.h"
#include "tests/fabric/stranger.h"
#include "util/clock.h"

#define MESSAGES 10u
#define DATA     100u

/* Nothing comes to pass because time does, but where a test says so. */
static const struct rig_options patient = {
        .n_nodes = 2,
        .n_rails = 1,
        .ranks = {1, 1},
        .slot_bytes = 512,
        .key = 9,
        .times = {
                .heartbeat = 600000, .deadline = 600000, .handshake = 600000, .hold_down = 600000, .hold_max = 600000}};

/* Mapped for the fabric, which unmaps it. */
struct leaving {
        struct fabric *fabric;
        struct net_area *area;
        uint64_t key, size;
        int wake_fd;
};

static _Atomic(void *) unmapped; /* last */

int __wrap_munmap(void *address, size_t bytes);
int __real_munmap(void *address, size_t bytes);

int __wrap_munmap(void *address, size_t bytes) {
        int r = __real_munmap(address, bytes);

        atomic_store(&unmapped, address);
        return r;
}

static void leaving_new(struct leaving *leaving, struct rig *rig, uint64_t key) {
        const uint32_t capacity = 32;
        const uint64_t bytes = MESSAGES * 256;
        struct fabric_area_options options = {.key = key,
                                              .nodes = rig->rank_nodes,
                                              .n_ranks = rig->n_ranks,
                                              .class = FABRIC_NORMAL,
                                              .weight = 100,
                                              .unmap = true};

        leaving->fabric = rig->nodes[0].fabric;
        leaving->key = key;
        leaving->size = net_area_bytes(capacity, bytes);
        leaving->area = mmap(NULL, leaving->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(leaving->area, MAP_FAILED);
        net_area_init(leaving->area, capacity, bytes);
        leaving->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert_true(leaving->wake_fd >= 0);
        options.memory = leaving->area;
        options.size = leaving->size;
        options.wake_fd = leaving->wake_fd;
        assert_int_equal(fabric_area_add(leaving->fabric, &options), 0);
        rig_dispatch(rig); /* what is said of areas holds them, too */
}

static void leaving_post(struct leaving *leaving) {
        const uint64_t one = 1;

        for (uint32_t i = 0; i < MESSAGES; i++) {
                const uint64_t offset = leaving->area->memory_offset + i * 256;
                const struct net_descriptor d = {.kind = NET_CHUNK,
                                                 .source = 0,
                                                 .destination = 1,
                                                 .value = i + 1,
                                                 .line_offset = offset,
                                                 .data_offset = offset + NET_LINE,
                                                 .data_bytes = DATA};

                net_area_post(leaving->area, &d);
        }
        if (net_area_wake_fabric(leaving->area))
                assert_int_equal(write(fabric_doorbell_fd(leaving->fabric), &one, sizeof(one)), sizeof(one));
}

static void leaving_remove(struct leaving *leaving) {
        atomic_store(&unmapped, NULL);
        assert_int_equal(fabric_area_remove(leaving->fabric, leaving->key), 0);
        close(leaving->wake_fd);
}

static void leaving_wait(const struct leaving *leaving) {
        const uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000);

        while (atomic_load(&unmapped) != leaving->area) {
                if (clock_now_ns() > end_ns)
                        fail_msg("the memory of area %llu is held", (unsigned long long)leaving->key);
                sched_yield();
        }
}

static struct fabric_counters counters(const struct rig *rig) {
        struct fabric_counters now;

        fabric_counters(rig->nodes[0].fabric, &now);
        return now;
}

static struct fabric_route_row route(const struct rig *rig) {
        struct fabric_route_row *rows, row = {0};
        size_t n;

        assert_int_equal(fabric_routes(rig->nodes[0].fabric, &rows, &n), 0);
        for (size_t i = 0; i < n; i++)
                if (rows[i].class == FABRIC_NORMAL)
                        row = rows[i];
        free(rows);
        return row;
}

#define WAIT_FOR(condition)                                                                                            \
        do {                                                                                                           \
                const uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000);                                        \
                                                                                                                       \
                while (!(condition)) {                                                                                 \
                        assert_true(clock_now_ns() < end_ns);                                                          \
                        sched_yield();                                                                                 \
                }                                                                                                      \
        } while (0)

/* Returns the socket on which node 1 is dialled. */
static int begin(struct rig *rig, const struct rig_options *options) {
        uint16_t port;
        int listen_fd;

        rig_start(rig, options);
        listen_fd = stranger_listen_for(0, &port);
        rig_peer(rig, 0, 1, &port);
        return listen_fd;
}

/* Nobody is there: the messages wait for a route that is down. */
static void test_route_is_down(void **state) {
        static struct rig rig;
        struct leaving leaving, staying;
        uint64_t queued;

        (void)state;
        close(begin(&rig, &patient));
        leaving_new(&leaving, &rig, 1);
        leaving_post(&leaving);
        WAIT_FOR(route(&rig).state == FABRIC_DOWN && counters(&rig).taken == MESSAGES);
        queued = route(&rig).queued_bytes;
        assert_true(queued >= MESSAGES * DATA);
        leaving_new(&staying, &rig, 2);
        leaving_post(&staying);
        WAIT_FOR(counters(&rig).taken == 2 * MESSAGES);
        assert_int_equal(route(&rig).queued_bytes, 2 * queued);
        leaving_remove(&leaving);
        leaving_wait(&leaving);
        /* And others' messages wait as before. */
        assert_int_equal(counters(&rig).dropped, MESSAGES);
        assert_int_equal(route(&rig).queued_bytes, queued);
        leaving_remove(&staying);
        leaving_wait(&staying);
        assert_int_equal(counters(&rig).dropped, 2 * MESSAGES);
        assert_int_equal(route(&rig).queued_bytes, 0);
        assert_int_equal(route(&rig).state, FABRIC_DOWN);
        rig_free(&rig);
}

/* A connection that takes messages and acknowledges none. */
static int take(int listen_fd, struct hello *ret_hello) {
        int fd = stranger_hear_hello(listen_fd, ret_hello);

        stranger_answer(fd, ret_hello, HELLO_OK);
        return fd;
}

static struct frame hear_frame(int fd) {
        uint8_t head[FRAME_HEAD_MAX];
        struct frame frame;

        do { /* pings may come between */
                assert_true(stranger_hear(fd, head, FRAME_HEAD));
                assert_int_equal(frame_decode(head, FRAME_HEAD, &frame), 0);
                assert_int_not_equal(frame.kind, FRAME_CHUNK);
        } while (frame.kind == FRAME_PING);
        return frame;
}

/* Its connection has died, and what had been on it waits for an answer. */
static void test_connection_is_dead(void **state) {
        static struct rig rig;
        struct leaving leaving;
        struct hello hello, next;
        struct frame frame;
        int listen_fd, fd;

        (void)state;
        listen_fd = begin(&rig, &patient);
        leaving_new(&leaving, &rig, 1);
        leaving_post(&leaving);
        fd = take(listen_fd, &hello);
        WAIT_FOR(route(&rig).flight_bytes >= MESSAGES * DATA);
        close(fd);
        WAIT_FOR(counters(&rig).graves == 1);
        fd = stranger_hear_hello(listen_fd, &next);
        leaving_remove(&leaving);
        leaving_wait(&leaving);
        assert_int_equal(counters(&rig).dropped, MESSAGES);
        /* There is nothing to ask. */
        stranger_answer(fd, &next, HELLO_OK);
        frame = hear_frame(fd);
        assert_int_equal(frame.kind, FRAME_FORGET);
        assert_int_equal(frame.value, FORGET_TELL);
        assert_int_equal(frame.key, hello.number);
        close(fd);
        close(listen_fd);
        rig_free(&rig);
}

/* The connection dies when the area has gone, or it has been asked by then what came of the messages. */
static void test_connection_dies(void **state) {
        struct rig_options options = patient;
        struct hello hello, next, last;
        static struct rig rig;
        struct leaving leaving;
        struct frame frame;
        int listen_fd, fd;

        (void)state;
        options.times.hold_down = options.times.hold_max = 1;
        for (unsigned int asked = 0; asked < 2; asked++) {
                listen_fd = begin(&rig, &options);
                leaving_new(&leaving, &rig, 1);
                leaving_post(&leaving);
                fd = take(listen_fd, &hello);
                WAIT_FOR(route(&rig).flight_bytes >= MESSAGES * DATA);
                if (asked) {
                        close(fd);
                        fd = take(listen_fd, &next);
                        frame = hear_frame(fd);
                        assert_int_equal(frame.kind, FRAME_QUESTION);
                        assert_int_equal(frame.key, hello.number);
                }
                leaving_remove(&leaving);
                close(fd);
                leaving_wait(&leaving);
                assert_int_equal(counters(&rig).dropped, MESSAGES);
                fd = take(listen_fd, &last);
                frame = hear_frame(fd);
                assert_int_equal(frame.kind, FRAME_FORGET);
                assert_int_equal(frame.key, hello.number);
                close(fd);
                close(listen_fd);
                assert_int_equal(rig.nodes[0].violations, 0);
                rig_free(&rig);
        }
}

/* All that it says until it is given up: that it is there. Reads everything, and acknowledges nothing. */
static void only_ping(int fd, uint64_t connection, uint64_t until_ns) {
        const struct frame ping = {.kind = FRAME_PING, .connection = connection};
        uint8_t head[FRAME_HEAD_MAX], bytes[4096];
        uint32_t size = frame_pack(&ping, NULL, head);
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

        for (;;) {
                if (send(fd, head, size, MSG_NOSIGNAL) != (ssize_t)size)
                        break;
                while (poll(&poll_fd, 1, 5) > 0)
                        if (recv(fd, bytes, sizeof(bytes), 0) <= 0)
                                goto over;
                if (clock_now_ns() > until_ns)
                        fail_msg("a connection that acknowledges nothing lives on");
        }
over:
        close(fd);
}

/* The connection lives, but tells nothing of what it takes: it is given up, and no area waits for it. */
static void test_connection_tells_nothing(void **state) {
        const uint64_t until_ns = clock_now_ns() + UINT64_C(100000000000);
        struct rig_options options = patient;
        bool told = false;

        (void)state;
        options.times.heartbeat = 100;
        options.times.deadline = 400;
        while (!told) { /* else this thread had to wait for its processor, and was silent */
                static struct rig rig;
                struct leaving leaving;
                struct hello hello;
                int listen_fd = begin(&rig, &options);

                leaving_new(&leaving, &rig, 1);
                leaving_post(&leaving);
                only_ping(take(listen_fd, &hello), hello.number, until_ns);
                WAIT_FOR(counters(&rig).graves > 0);
                leaving_remove(&leaving);
                leaving_wait(&leaving);
                rig_dispatch(&rig);
                told = strstr(rig.nodes[0].why, "nothing was acknowledged") != NULL;
                close(listen_fd);
                rig_free(&rig);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_route_is_down),
                cmocka_unit_test(test_connection_is_dead),
                cmocka_unit_test(test_connection_dies),
                cmocka_unit_test(test_connection_tells_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
