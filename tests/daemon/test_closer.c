/* SPDX-License-Identifier: MIT */
/* A close that hangs must not hold its caller: a lingering TCP socket whose peer does not read. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/closer.h"
#include "tests/daemon/lingering.h"
#include "tests/time_scale.h"
#include "util/charge.h"
#include "util/clock.h"

static int linger_s(void) {
        return 2 * (int)time_scale();
}

static void does_not_wait(void **state) {
        uint64_t start, took;
        struct closer *closer;
        int fd, peer, fds[2];
        char byte;

        (void)state;
        assert_int_equal(closer_new(&closer), 0);
        fd = lingering_socket(linger_s(), &peer);
        start = clock_now_ns();
        closer_close(closer, fd);
        took = clock_now_ns() - start;
        assert_true(took < UINT64_C(1000000000) * time_scale());
        /* It does close: the other end of a pipe sees the end of file, after the peer let the first one go. */
        assert_int_equal(pipe(fds), 0);
        closer_close(closer, fds[1]);
        close(peer);
        assert_int_equal(read(fds[0], &byte, 1), 0);
        close(fds[0]);
        closer_close(closer, -1);
        closer_free(closer);
        assert_null(closer_free(NULL));
}

/* Those that hang hold nobody for long. */
static void many_hang(void **state) {
        enum { HANG = 4 };
        struct pollfd p = {.events = POLLIN};
        int peers[HANG], fds[2];
        struct closer *closer;
        uint64_t end;

        (void)state;
        assert_int_equal(closer_new(&closer), 0);
        for (int i = 0; i < HANG; i++)
                closer_close(closer, lingering_socket(linger_s(), &peers[i]));
        assert_int_equal(pipe(fds), 0);
        closer_close(closer, fds[1]);
        p.fd = fds[0];
        end = clock_now_ns() + UINT64_C(1500000000) * time_scale(); /* before the first of them gives up */
        while (poll(&p, 1, 20) == 0 && clock_now_ns() < end) {
                assert_true(closer_waiting(closer) >= HANG);
                closer_close(closer, open("/dev/null", O_RDONLY)); /* whoever comes has another thread started */
        }
        assert_true(p.revents & POLLHUP);
        for (int i = 0; i < HANG; i++)
                close(peers[i]);
        while (closer_waiting(closer))
                sched_yield();
        close(fds[0]);
        closer_free(closer);
        assert_int_equal(closer_waiting(NULL), 0);
}

/* It counts until it is closed, and no longer than the account is there. */
static void charged(void **state) {
        struct charge_account account = {.limit[CHARGE_FDS] = UINT64_MAX};
        struct event_base *base = event_base_new();
        struct closer *closer;
        int peers[2], fd;

        (void)state;
        assert_int_equal(closer_new(&closer), 0);
        assert_int_equal(closer_watch(closer, base), 0);
        closer_close_for(closer, lingering_socket(linger_s(), &peers[0]), &account);
        fd = open("/dev/null", O_RDONLY);
        closer_close_for(closer, fd, &account);
        closer_close(closer, open("/dev/null", O_RDONLY));
        assert_int_equal(account.used[CHARGE_FDS], 2);
        closer_settle(closer);
        assert_true(account.used[CHARGE_FDS] >= 1);
        close(peers[0]);
        while (account.used[CHARGE_FDS])
                assert_int_equal(event_base_loop(base, EVLOOP_ONCE), 0);
        assert_int_equal(fcntl(fd, F_GETFD), -1);
        closer_close_for(closer, lingering_socket(linger_s(), &peers[1]), &account);
        assert_int_equal(account.used[CHARGE_FDS], 1);
        assert_null(closer_free(closer));
        assert_int_equal(account.used[CHARGE_FDS], 0);
        close(peers[1]);
        event_base_free(base);
}

static void without_thread(void **state) {
        int fds[2];
        char byte;

        (void)state;
        assert_int_equal(pipe(fds), 0);
        closer_close(NULL, fds[1]);
        closer_settle(NULL);
        assert_int_equal(read(fds[0], &byte, 1), 0);
        close(fds[0]);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(does_not_wait), cmocka_unit_test(many_hang),
                                           cmocka_unit_test(charged), cmocka_unit_test(without_thread)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
