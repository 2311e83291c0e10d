/* SPDX-License-Identifier: MIT */
/* What an operator hears of callbacks that hold the loop, and how often. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/loop_watch.h"
#include "tests/cmocka_all.h"
#include "util/clock.h"
#include "util/log.h"

#define BOUND_MS 20u

/* Of all that was logged since the last call; not longer than the buffer. */
static const char *logged(int fd, char text[4096]) {
        ssize_t n = pread(fd, text, 4095, 0);

        assert_true(n >= 0);
        text[n] = '\0';
        assert_int_equal(ftruncate(fd, 0), 0);
        lseek(fd, 0, SEEK_SET);
        return text;
}

/* A callback that computes. It returns, which is where it is measured. */
static void compute(struct loop_watch *watch, const char *what, uint64_t ns) {
        uint64_t end_ns = clock_now_ns() + ns;
        LOOP_HOLD(watch, what);

        while (clock_now_ns() < end_ns)
                ;
}

/* One that waits: nothing comes from there. */
static void wait_for_nothing(struct loop_watch *watch, int ms) {
        LOOP_HOLD(watch, "one that waits");

        assert_int_equal(poll(NULL, 0, ms), 0);
}

/* "..., 12 ms of it processor time": 12. */
static unsigned int cpu_ms(const char *text) {
        const char *at = strstr(text, " ms of it");

        assert_non_null(at);
        while (at > text && at[-1] != ' ')
                at--;
        return (unsigned int)strtoul(at, NULL, 10);
}

static void test_held(void **state) {
        int fd = memfd_create("log", MFD_CLOEXEC), before = dup(STDERR_FILENO);
        struct loop_watch watch, alone;
        char text[4096];

        (void)state;
        assert_true(fd >= 0 && before >= 0);
        fflush(stderr);
        assert_true(dup2(fd, STDERR_FILENO) >= 0);
        loop_watch_init(&watch, 4 * BOUND_MS, true);
        assert_int_equal(watch.bound_ns, BOUND_MS * 1000000u);

        watch.bound_ns = UINT64_C(3600000000000); /* no machine is as slow */
        compute(&watch, "one that is quick", 1000);
        assert_int_equal(watch.n_held + watch.longest_ns, 0);
        assert_string_equal(logged(fd, text), "");

        watch.bound_ns = BOUND_MS * 1000000u;
        compute(&watch, "one that computes", 50000000);
        logged(fd, text);
        assert_non_null(strstr(text, "warning: the event loop was held for "));
        assert_non_null(strstr(text, " ms by one that computes, "));
        assert_non_null(strstr(text, "give this one up after 80 ms (peer.lost_ms)"));
        assert_null(strstr(text, "times before"));
        assert_int_equal(watch.n_held, 1);
        assert_true(watch.longest_ns >= 50000000);

        /* A second has not passed: counted, and told with the next line. */
        watch.told_ns = clock_now_ns() + UINT64_C(1000000000); /* (and does not on a slow machine) */
        compute(&watch, "another one", 30000000);
        assert_string_equal(logged(fd, text), "");
        assert_int_equal(watch.n_held, 2);
        watch.told_ns = 1;
        wait_for_nothing(&watch, 60);
        logged(fd, text);
        assert_non_null(strstr(text, " ms by one that waits, "));
        assert_non_null(strstr(text, " (and 1 times before)"));
        assert_true(cpu_ms(text) < 30);

        /* Short ones together; those of another turn do not count. */
        watch.told_ns = 0;
        loop_watch_turn(&watch);
        logged(fd, text);
        watch.bound_ns = UINT64_C(3600000000000);
        for (int i = 0; i < 3; i++)
                compute(&watch, i == 1 ? "the longest" : "a short one", i == 1 ? 9000000 : 1000000);
        assert_int_equal(watch.turn.n, 3);
        loop_watch_turn(&watch);
        compute(&watch, "one of another turn", 1000);
        watch.bound_ns = watch.turn.held_ns;
        loop_watch_turn(&watch);
        assert_string_equal(logged(fd, text), "");
        assert_int_equal(watch.n_held, 3);
        watch.bound_ns = UINT64_C(3600000000000);
        for (int i = 0; i < 3; i++)
                compute(&watch, i == 1 ? "the longest" : "a short one", i == 1 ? 90000000 : 1000);
        watch.bound_ns = 80000000;
        loop_watch_turn(&watch);
        logged(fd, text);
        assert_non_null(strstr(text, " ms by 3 callbacks together, of which "));
        assert_int_equal(watch.n_held, 4);

        loop_watch_init(&alone, 4 * BOUND_MS, false);
        compute(&alone, "a node that is alone", 50000000);
        assert_null(strstr(logged(fd, text), "give this one up"));
        assert_int_equal(alone.n_held, 1);
        assert_true(dup2(before, STDERR_FILENO) >= 0);
        close(before);
        close(fd);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_held)};

        log_init("test", LOG_LEVEL_INFO);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
