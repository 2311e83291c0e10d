/* SPDX-License-Identifier: MIT */
/* A planned end of an executor whose comms need railmuxd's leave, with and without a railmuxd; and what is not read. */
#include "tests/cmocka_all.h"
#include "tests/time_scale.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "executor/held.h"
#include "executor/link.h"
#include "proto/frame.h"
#include "util/clock.h"

/* The next time that something is to be read there is no memory for it. */
static bool refuse_reading;

int __real_event_add(struct event *event, const struct timeval *time);
int __wrap_event_add(struct event *event, const struct timeval *time);
int __wrap_event_add(struct event *event, const struct timeval *time) {
        if (refuse_reading && event_get_events(event) & EV_READ) {
                refuse_reading = false;
                return -1;
        }
        return __real_event_add(event, time);
}

struct rig {
        struct event_base *base;
        struct link_service service;
        struct link *link;
        char path[96];
        int listener;
        unsigned int n_hellos;
        bool draining, went;
        bool ready; /* for calls */
        int attention_fd;
        unsigned int n_asked, n_calls;
        unsigned int n_ticks;
        uint64_t due_ns; /* the last one */
};

static void service_hello(void *object, Railmux__Executor__Hello *hello) {
        struct rig *rig = object;

        hello->instance = 1;
        rig->n_hellos++;
}

static int service_send(void *object, report_send send, void *userdata) {
        (void)object;
        (void)send;
        (void)userdata;
        return 0;
}

static void service_drain(void *object) {
        ((struct rig *)object)->draining = true;
}

static void service_go(void *object) {
        assert_true(((struct rig *)object)->draining);
        ((struct rig *)object)->went = true;
}

static bool service_drained(void *object) {
        return ((struct rig *)object)->went;
}

/* Each says when the next one is to come: not before, counted from the begin, since one that is late may be followed
 * in less. The last one is a failure. */
static int service_tick(void *object) {
        static const int next_ms[] = {20, 20, 1, 100, 3, -EIO};
        struct timespec coarse; /* the loop's clock is behind by as much */
        struct rig *rig = object;
        const unsigned int n = rig->n_ticks++;

        assert_true(n < sizeof(next_ms) / sizeof(next_ms[0]));
        assert_int_equal(clock_getres(CLOCK_MONOTONIC_COARSE, &coarse), 0);
        assert_true(clock_now_ns() + (uint64_t)coarse.tv_nsec >= rig->due_ns);
        rig->due_ns += (uint64_t)next_ms[n] * 1000000u;
        return next_ms[n];
}

static void service_released(void *object, report_send send, void *userdata) {
        (void)object;
        (void)send;
        (void)userdata;
}

static bool service_ready(void *object, const Railmux__Executor__Message *message) {
        struct rig *rig = object;

        (void)message;
        rig->n_asked++;
        return rig->ready;
}

static void service_call(void *object, const Railmux__Executor__Message *message, int *fds, unsigned int n_fds,
                         struct dispatch_result *ret_result) {
        (void)message;
        (void)fds;
        (void)n_fds;
        ((struct rig *)object)->n_calls++;
        *ret_result = (struct dispatch_result){0};
}

static const struct link_ops ops = {
        .hello = service_hello,
        .inventory = service_send,
        .failures = service_send,
        .tick = service_tick,
        .stalls = service_send,
        .released = service_released,
        .ready = service_ready,
        .call = service_call,
        .drain = service_drain,
        .drained = service_drained,
        .go = service_go,
};

static void rig_init_ticks(struct rig *rig, bool listens, uint32_t tick_ms) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct link_options options = {.socket = rig->path, .name = "0"};

        *rig = (struct rig){.listener = -1,
                            .attention_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                            .due_ns = clock_now_ns() + (uint64_t)tick_ms * 1000000u};
        assert_true(rig->attention_fd >= 0);
        rig->service = (struct link_service){.ops = &ops,
                                             .object = rig,
                                             .stall_ns = 200000000,
                                             .attention_fd = rig->attention_fd,
                                             .tick_ms = tick_ms,
                                             .tells_drain = true};
        snprintf(rig->path, sizeof(rig->path), "/tmp/railmux-link-%d", (int)getpid());
        if (listens) {
                rig->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
                memcpy(address.sun_path, rig->path, strlen(rig->path) + 1);
                unlink(rig->path); /* one with this number may have left it */
                assert_int_equal(bind(rig->listener, (struct sockaddr *)&address, sizeof(address)), 0);
                assert_int_equal(listen(rig->listener, 4), 0);
        }
        rig->base = event_base_new();
        assert_non_null(rig->base);
        assert_int_equal(link_new(rig->base, &rig->service, &options, &rig->link), 0);
}

static void rig_init(struct rig *rig, bool listens) {
        rig_init_ticks(rig, listens, 0);
}

static void rig_deinit(struct rig *rig) {
        link_free(rig->link);
        event_base_free(rig->base);
        if (rig->listener >= 0)
                close(rig->listener);
        close(rig->attention_fd);
        unlink(rig->path);
}

/* Reads until it has said that it wants to end. */
static void expect_drain(int fd) {
        bool drain = false;

        while (!drain) {
                const Railmux__Executor__Message *message;
                ProtobufCMessage *received;
                struct frame_arena arena;
                int fds[FRAME_FDS_MAX];
                unsigned int n_fds = 0;

                frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
                assert_int_equal(
                        frame_receive(fd, &railmux__executor__message__descriptor, &arena, &received, fds, &n_fds),
                        FRAME_OK);
                message = (const Railmux__Executor__Message *)received;
                drain = message->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_DRAIN && !message->drain->go;
                protobuf_c_message_free_unpacked(received, &arena.allocator);
        }
}

static void test_ticks(void **state) {
        struct rig rig;

        (void)state;
        rig_init_ticks(&rig, false, 1);
        event_base_dispatch(rig.base);
        assert_int_equal(rig.n_ticks, 6);
        assert_int_equal(link_result(rig.link), -EIO);
        rig_deinit(&rig);
}

static void count_refusal(evutil_socket_t fd, short what, void *data) {
        struct rig *rig = data;
        int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

        (void)what;
        assert_true(peer >= 0);
        close(peer);
        if (++rig->n_calls == 7)
                event_base_loopbreak(rig->base);
}

/* One that is refused each time comes less often, and does not fill the log of whoever refuses it. */
static void test_refused(void **state) {
        uint64_t begin_ns = clock_now_ns();
        struct event *event;
        struct rig rig;

        (void)state;
        rig_init(&rig, true);
        event = event_new(rig.base, rig.listener, EV_READ | EV_PERSIST, count_refusal, &rig);
        assert_non_null(event);
        assert_int_equal(event_add(event, NULL), 0);
        event_base_dispatch(rig.base);
        assert_int_equal(rig.n_calls, 7);
        assert_true(clock_now_ns() - begin_ns >= UINT64_C(330000000)); /* 3 times 20, 40, 80 and 160 ms */
        event_free(event);
        rig_deinit(&rig);
}

/* Nobody is there, and nobody keeps the socket. */
static void test_alone(void **state) {
        struct rig rig;

        (void)state;
        rig_init(&rig, false);
        link_drain(rig.link);
        assert_true(rig.went); /* without waiting for anything */
        event_base_dispatch(rig.base);
        rig_deinit(&rig);
}

/* Somebody keeps the socket of a railmuxd that is away: it is waited for, and told. Then nobody is left. */
static void test_away(void **state) {
        struct rig rig;
        int fd;

        (void)state;
        rig_init(&rig, true);
        link_drain(rig.link);
        for (uint32_t i = 0; i < 5; i++)
                event_base_loop(rig.base, EVLOOP_ONCE);
        assert_false(rig.went);
        fd = accept4(rig.listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(fd >= 0);
        expect_drain(fd);
        close(fd); /* a successor comes, and is told again */
        while (rig.n_hellos < 2)
                event_base_loop(rig.base, EVLOOP_ONCE);
        assert_false(rig.went);
        fd = accept4(rig.listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(fd >= 0);
        expect_drain(fd);
        close(rig.listener);
        rig.listener = -1;
        close(fd);
        event_base_dispatch(rig.base);
        assert_true(rig.went);
        rig_deinit(&rig);
}

static void turn_until(struct rig *rig, const unsigned int *n, unsigned int expected) {
        const uint64_t end_ns = clock_now_ns() + UINT64_C(10000000000) * time_scale();

        while (*n < expected) {
                assert_true(clock_now_ns() < end_ns);
                event_base_loop(rig->base, EVLOOP_ONCE);
        }
        assert_int_equal(*n, expected);
}

/* As many calls are held as may be, so the next one is not read; when they need not be, there is no memory to read on.
 * It is read later all the same, though nothing happens. */
static void test_reads_on(void **state) {
        struct rig rig;
        int fd;

        (void)state;
        rig_init(&rig, true);
        fd = accept4(rig.listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(fd >= 0);
        for (uint32_t i = 0; i <= HELD_MAX; i++) {
                Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
                Railmux__Executor__SessionDetach body = RAILMUX__EXECUTOR__SESSION_DETACH__INIT;

                body.session = message.id = i + 1;
                message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_DETACH;
                message.session_detach = &body;
                assert_int_equal(frame_send(fd, &message.base, NULL, 0), 0);
        }
        turn_until(&rig, &rig.n_asked, HELD_MAX);
        rig.ready = true;
        refuse_reading = true;
        assert_int_equal(eventfd_write(rig.attention_fd, 1), 0);
        turn_until(&rig, &rig.n_calls, HELD_MAX);
        assert_false(refuse_reading);
        turn_until(&rig, &rig.n_calls, HELD_MAX + 1);
        close(fd);
        rig_deinit(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_ticks),
                                           cmocka_unit_test(test_alone), cmocka_unit_test(test_away),
                                           cmocka_unit_test(test_reads_on)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
