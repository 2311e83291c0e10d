/* SPDX-License-Identifier: MIT */
/* How old are the numbers of executors that operators get? */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "proto/control.pb-c.h"
#include "util/clock.h"
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ROUNDS   100u
#define BOUND_NS UINT64_C(250000000)
#define COUNTED  "railmux_executor_operations_total"

/* An operator has asked, and railmuxd has read that. */
static int ask(struct fixture *f) {
        Railmux__Control__Request request = RAILMUX__CONTROL__REQUEST__INIT;
        Railmux__Control__Empty empty = RAILMUX__CONTROL__EMPTY__INIT;
        int fd = frame_connect(f->control), unread;

        assert_true(fd >= 0);
        request.version = CONTROL_PROTOCOL;
        request.body_case = RAILMUX__CONTROL__REQUEST__BODY_METRICS;
        request.metrics = &empty;
        assert_int_equal(frame_send(fd, &request.base, NULL, 0), FRAME_OK);
        fixture_wait(f, ioctl(fd, SIOCOUTQ, &unread) == 0 && unread == 0);
        return fd;
}

static bool is_answered(int fd) {
        struct pollfd answer = {.fd = fd, .events = POLLIN};

        return poll(&answer, 1, 0) == 1;
}

/* What the executor has counted, says the answer; 0: it has not said yet. */
static uint64_t take(struct fixture *f, int fd) {
        bool more = true;
        uint64_t counted = 0;

        while (more) {
                ProtobufCMessage *message = NULL;
                Railmux__Control__Reply *reply;
                struct frame_arena arena;
                unsigned int n_fds = 0;
                int fds[FRAME_FDS_MAX];

                fixture_wait(f, is_answered(fd));
                frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
                assert_int_equal(frame_receive(fd, &railmux__control__reply__descriptor, &arena, &message, fds, &n_fds),
                                 FRAME_OK);
                reply = (Railmux__Control__Reply *)message;
                assert_int_equal(reply->code, 0);
                for (size_t i = 0; i < reply->n_metrics; i++) {
                        if (strcmp(reply->metrics[i]->name, COUNTED) == 0)
                                counted = (uint64_t)reply->metrics[i]->value;
                }
                more = reply->more;
                protobuf_c_message_free_unpacked(message, &arena.allocator);
        }
        close(fd);
        return counted;
}

/* The executor has been asked, and says nothing. */
static int ask_in_vain(struct fixture *f) {
        int fd;

        f->executor.slow_query = true;
        fd = ask(f);
        fixture_wait(f, f->executor.query != 0);
        return fd;
}

/* It gets an answer without the executor, but not at once. */
static void test_silent(void **unused) {
        uint64_t begin_ns;
        struct fixture f;

        (void)unused;
        fixture_setup(&f, NULL, false);
        f.executor.operations = 5;
        fixture_wait(&f, take(&f, ask(&f)) == 5);
        f.executor.operations = 6;
        begin_ns = clock_now_ns();
        assert_int_equal(take(&f, ask_in_vain(&f)), 5);
        assert_true(clock_now_ns() - begin_ns >= BOUND_NS);
        begin_ns = clock_now_ns();
        assert_int_equal(take(&f, ask(&f)), 5); /* the executor is not asked a second time */
        assert_true(clock_now_ns() - begin_ns >= BOUND_NS);
        executor_answer_query(&f);
        fixture_teardown(&f);
}

/* An answer to a question from before is none. A machine that is slow may make the new one too late, but not always. */
static void test_asked_before(void **unused) {
        unsigned int n_fresh = 0;
        struct fixture f;

        (void)unused;
        fixture_setup(&f, NULL, false);
        for (uint64_t round = 0; round < ROUNDS && n_fresh == 0; round++) {
                int first, second;

                f.executor.operations = 2 * round + 1;
                first = ask_in_vain(&f);
                f.executor.operations++;
                second = ask(&f);
                executor_answer_query(&f);
                take(&f, first);
                n_fresh += take(&f, second) == f.executor.operations;
        }
        assert_true(n_fresh > 0);
        fixture_teardown(&f);
}

/* Each has its own time: the second one need not be content with what is left of the first one's. */
static void test_own_time(void **unused) {
        struct fixture f;

        (void)unused;
        fixture_setup(&f, NULL, false);
        for (unsigned int i = 0; i < 3; i++) {
                const uint64_t later_ns = clock_now_ns() + BOUND_NS / 2;
                int first = ask_in_vain(&f), second;
                uint64_t begin_ns;

                fixture_wait(&f, (begin_ns = clock_now_ns()) >= later_ns); /* half of its time is over */
                second = ask(&f);
                take(&f, first);
                take(&f, second);
                assert_true(clock_now_ns() - begin_ns >= BOUND_NS);
                executor_answer_query(&f);
        }
        fixture_teardown(&f);
}

/* Nobody waits for one that has ended: not all of the time, unless the machine takes that. */
static void test_executor_ends(void **unused) {
        bool in_time = false;
        struct fixture f;

        (void)unused;
        fixture_setup(&f, NULL, false);
        for (unsigned int round = 0; round < ROUNDS && !in_time; round++) {
                const uint64_t begin_ns = clock_now_ns();
                int first = ask_in_vain(&f), second = ask(&f);

                executor_connect(&f, true);
                f.executor.slow_query = false;
                take(&f, first);
                take(&f, second);
                in_time = clock_now_ns() - begin_ns < BOUND_NS;
        }
        assert_true(in_time);
        fixture_wait(&f, f.executor.welcome);
        f.executor.operations = 7;
        fixture_wait(&f, take(&f, ask(&f)) == 7);
        fixture_teardown(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_silent),
                cmocka_unit_test(test_asked_before),
                cmocka_unit_test(test_own_time),
                cmocka_unit_test(test_executor_ends),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
