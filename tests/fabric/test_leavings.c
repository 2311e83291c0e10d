/* SPDX-License-Identifier: MIT */
/*
 * What an area that is removed leaves: nobody is charged for its memory any more, so no message may hold it, wherever
 * it waits. Node 1 is a stranger who does as it likes.
 */
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/frame.h"
#include "tests/fabric/stranger.h"
#include "tests/time_scale.h"
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

static _Atomic int pretended = -1; /* bytes that sockets are said to have; -1: those that they have */
static _Atomic uint32_t n_asked;

int __wrap_ioctl(int fd, unsigned long request, ...);
int __real_ioctl(int fd, unsigned long request, ...);

int __wrap_ioctl(int fd, unsigned long request, ...) {
        va_list arguments;
        void *argument;
        int r;

        va_start(arguments, request);
        argument = va_arg(arguments, void *);
        va_end(arguments);
        r = __real_ioctl(fd, request, argument);
        if (request == SIOCOUTQ) {
                if (atomic_load(&pretended) >= 0)
                        *(int *)argument = atomic_load(&pretended);
                atomic_fetch_add(&n_asked, 1);
        }
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
        const uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale();

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
                const uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale();                         \
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

/* Words that keep a connection from being silent, between which this thread may have to wait for its processor. */
static struct rig_options talkative(void) {
        struct rig_options options = patient;

        options.times.heartbeat = 50 * time_scale();
        options.times.deadline = 200 * time_scale();
        return options;
}

/* Attempts may be in vain for a while. */
static uint64_t attempts_end(void) {
        return clock_now_ns() + UINT64_C(50000000000) * time_scale();
}

struct attempt {
        struct rig rig;
        struct leaving leaving;
        struct hello hello;
        int listen_fd, fd;
};

/* Node 0 has sent messages, and waits for word of them. */
static void attempt_begin(struct attempt *attempt, const struct rig_options *options) {
        attempt->listen_fd = begin(&attempt->rig, options);
        leaving_new(&attempt->leaving, &attempt->rig, 1);
        leaving_post(&attempt->leaving);
        attempt->fd = take(attempt->listen_fd, &attempt->hello);
}

/* Was the connection given up because nothing was acknowledged? */
static bool attempt_end(struct attempt *attempt) {
        bool told;

        close(attempt->fd);
        WAIT_FOR(counters(&attempt->rig).graves > 0);
        leaving_remove(&attempt->leaving);
        leaving_wait(&attempt->leaving);
        rig_dispatch(&attempt->rig);
        told = strstr(attempt->rig.nodes[0].why, "nothing was acknowledged") != NULL;
        close(attempt->listen_fd);
        rig_free(&attempt->rig);
        return told;
}

/* Says it, and hears what there is. False: the connection has ended. */
static bool chat(int fd, const void *bytes, uint32_t size) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        uint8_t heard[4096];

        if (send(fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size)
                return false;
        while (poll(&poll_fd, 1, 5) > 0)
                if (recv(fd, heard, sizeof(heard), 0) <= 0)
                        return false;
        return true;
}

/* All that it says: that it is there. Acknowledges nothing. */
static bool ping(const struct attempt *attempt) {
        const struct frame frame = {.kind = FRAME_PING, .connection = attempt->hello.number};
        uint8_t head[FRAME_HEAD_MAX];

        return chat(attempt->fd, head, frame_pack(&frame, NULL, head));
}

/* The connection lives, but tells nothing of what it takes: it is given up, and no area waits for it. */
static void test_connection_tells_nothing(void **state) {
        const struct rig_options options = talkative();
        const uint64_t until_ns = attempts_end();
        static struct attempt attempt;

        (void)state;
        do { /* else this thread had to wait for its processor, and was silent */
                attempt_begin(&attempt, &options);
                while (ping(&attempt))
                        if (clock_now_ns() > until_ns)
                                fail_msg("a connection that acknowledges nothing lives on");
        } while (!attempt_end(&attempt));
}

/* Connections are made and live, and on none is it said what became of those on another that died. */
static void test_nobody_answers(void **state) {
        struct rig_options options = talkative();
        const uint64_t until_ns = attempts_end();
        static struct attempt attempt;
        struct rig_node *node = &attempt.rig.nodes[0];

        (void)state;
        options.times.hold_down = options.times.hold_max = 1;
        options.times.unreachable = 600000;
        attempt_begin(&attempt, &options);
        WAIT_FOR(route(&attempt.rig).flight_bytes >= MESSAGES * DATA);
        close(attempt.fd);
        attempt.fd = take(attempt.listen_fd, &attempt.hello);
        while (node->unreachable == 0) {
                if (!ping(&attempt)) { /* this thread had to wait for its processor, and was silent */
                        close(attempt.fd);
                        attempt.fd = take(attempt.listen_fd, &attempt.hello);
                }
                rig_dispatch(&attempt.rig);
                if (clock_now_ns() > until_ns)
                        fail_msg("a question without an answer is not told of");
        }
        assert_string_equal(node->unreached, "what is sent there does not arrive");
        (void)attempt_end(&attempt);
}

/* It is not given up while the network takes nothing from the socket. */
static void test_network_is_slow(void **state) {
        const struct rig_options options = talkative();
        const uint64_t until_ns = attempts_end();
        static struct attempt attempt;
        bool lives, told;

        (void)state;
        do {
                atomic_store(&n_asked, 0);
                atomic_store(&pretended, 100000);
                attempt_begin(&attempt, &options);
                /* It would have been given up where it is asked. */
                while ((lives = ping(&attempt)) && atomic_load(&n_asked) < 2)
                        if (clock_now_ns() > until_ns)
                                fail_msg("nobody asks what is in the socket");
                atomic_store(&pretended, -1);
                while (lives && ping(&attempt))
                        if (clock_now_ns() > until_ns)
                                fail_msg("a connection that acknowledges nothing lives on");
                told = attempt_end(&attempt);
                if (told && !lives)
                        fail_msg("it was given up with its socket full");
        } while (!told);
}

/* Its acknowledgements are behind a message that takes long to come. */
static void test_message_is_long(void **state) {
        const struct rig_options options = talkative();
        const struct frame frame = {.kind = FRAME_CHUNK,
                                    .source = 1,
                                    .destination = 0,
                                    .value = 1,
                                    .data_bytes = FRAME_DATA_MAX,
                                    .sequence = 1,
                                    .key = 77};
        const uint64_t until_ns = attempts_end();
        static struct attempt attempt;
        bool lives = false;

        (void)state;
        while (!lives) {
                const uint8_t data[100] = {0}, line[FRAME_LINE] = {0};
                struct frame head = frame;
                uint8_t bytes[FRAME_HEAD_MAX];
                uint64_t end_ns;

                attempt_begin(&attempt, &options);
                end_ns = clock_now_ns() + UINT64_C(15000000) * options.times.deadline; /* 15 deadlines */
                head.connection = attempt.hello.number;
                lives = chat(attempt.fd, bytes, frame_pack(&head, line, bytes));
                while (lives && clock_now_ns() < end_ns)
                        lives = chat(attempt.fd, data, sizeof(data));
                if (attempt_end(&attempt) && !lives)
                        fail_msg("it was given up while a message came");
                assert_true(clock_now_ns() < until_ns);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_route_is_down),   cmocka_unit_test(test_connection_is_dead),
                cmocka_unit_test(test_connection_dies), cmocka_unit_test(test_connection_tells_nothing),
                cmocka_unit_test(test_nobody_answers),  cmocka_unit_test(test_network_is_slow),
                cmocka_unit_test(test_message_is_long),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
