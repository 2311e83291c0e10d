/* SPDX-License-Identifier: MIT */
/* Start, stop, absence and idleness of a node. */
#include <errno.h>
#include <railmux/railmux.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/e2e/idlers.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "util/clock.h"

#define RANKS      8u
#define MEASURE_MS 3000u
#define IDLE_SHARE 0.01

struct fixture {
        struct node node;
        struct idlers idlers;
};

static void assert_works(const struct node *node) {
        const char *argv[] = {node_program("railmux-perf"),
                              "all_reduce",
                              "--ranks",
                              "4",
                              "-e",
                              "64K",
                              "-f",
                              "16",
                              "-n",
                              "3",
                              "--socket",
                              node->socket,
                              NULL};

        assert_int_equal(proc_run(argv, 30000, NULL), 0);
}

/* Starts, serves, stops, and does it again in the same place. */
static void stop_and_start(struct fixture *f, const char *name, bool keep) {
        for (int i = 0; i < 2; i++) {
                node_start(&f->node, name, keep);
                assert_works(&f->node);
                node_stop(&f->node);
        }
}

static void test_stop_kept(void **state) {
        stop_and_start(*state, "stop-kept", true);
}
static void test_stop_plain(void **state) {
        stop_and_start(*state, "stop-plain", false);
}

/* A stop with ranks connected is as orderly, and the ranks are told. */
static void test_stop_connected(void **state) {
        struct fixture *f = *state;
        int code;

        node_start(&f->node, "stop-connected", false);
        idlers_start(&f->idlers, f->node.socket, 2);
        idlers_call(&f->idlers, 0); /* waits for rank 1, which never calls */
        kill(f->node.pid, SIGTERM);
        assert_int_equal(proc_wait(f->node.pid, 10000, &code), 0);
        f->node.pid = 0;
        assert_int_equal(code, 0);
        code = idlers_answer(&f->idlers, 0, 40000);
        if (code < 0)
                fail_msg("a rank waits for ever for a node that has stopped");
        printf("the waiting rank got %s\n", rmx_error_name(code));
        assert_int_not_equal(code, RMX_OK);
        idlers_call(&f->idlers, 1);
        code = idlers_answer(&f->idlers, 1, 40000);
        if (code < 0)
                fail_msg("a call after the node's stop does not return");
        assert_int_not_equal(code, RMX_OK);
        idlers_stop(&f->idlers);
}

/* Without a keeper the executor has no life of its own. */
static void test_killed_plain(void **state) {
        struct fixture *f = *state;
        struct node_pids pids;
        char left[256];
        int status;

        node_start(&f->node, "killed-plain", false);
        pids = node_pids(&f->node);
        kill(f->node.pid, SIGKILL);
        waitpid(f->node.pid, &status, 0);
        f->node.pid = 0;
        if (proc_wait_dead(pids.executor, 10000) != 0)
                fail_msg("the executor outlives railmuxd");
        assert_int_equal(proc_children(left, sizeof(left)), 0);
}

/* Runs in a child: a session must not be inherited by later ones. */
static int open_code(const char *socket) {
        struct rmx_session_options options = {.size = sizeof(options), .socket = socket, .timeout_ms = 200};
        struct rmx_session *session = NULL;
        int status;
        pid_t pid;

        fflush(NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                int code = rmx_session_open(&options, &session);

                if (code == RMX_OK)
                        rmx_session_close(session);
                else if (!rmx_last_error()[0])
                        code = 100; /* no message */
                _exit(code);
        }
        assert_int_equal(proc_wait(pid, 10000, &status), 0);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void test_absent(void **state) {
        struct fixture *f = *state;
        const char *argv[] = {
                node_program("railmux-perf"), "barrier", "--ranks", "2", "--socket", f->node.socket, NULL};

        assert_int_equal(open_code("/nonexistent/railmux.sock"), RMX_E_NO_DAEMON);
        node_start(&f->node, "absent", false);
        assert_int_equal(open_code(f->node.socket), RMX_OK);
        node_stop(&f->node);
        assert_int_equal(open_code(f->node.socket), RMX_E_NO_DAEMON);
        assert_int_equal(proc_run(argv, 20000, NULL), 3);
}

static double share(pid_t pid, uint64_t cpu_before, uint64_t time_before) {
        return (double)(proc_cpu_ns(pid) - cpu_before) / (double)(clock_now_ns() - time_before);
}

static void measure_idle(struct fixture *f, const char *what) {
        struct node_pids pids = node_pids(&f->node);
        uint64_t executor = proc_cpu_ns(pids.executor), daemon = proc_cpu_ns(pids.daemon), now = clock_now_ns(),
                 ranks = 0;
        double executor_share, daemon_share, rank_share;
        double limit = IDLE_SHARE * proc_time_scale();

        for (uint32_t i = 0; i < RANKS; i++)
                ranks += proc_cpu_ns(f->idlers.pid[i]);
        proc_measure_for(MEASURE_MS);
        executor_share = share(pids.executor, executor, now);
        daemon_share = share(pids.daemon, daemon, now);
        rank_share = 0;
        for (uint32_t i = 0; i < RANKS; i++)
                rank_share += (double)proc_cpu_ns(f->idlers.pid[i]);
        rank_share = (rank_share - (double)ranks) / (double)(clock_now_ns() - now);
        printf("%s: executor %.3f %%, railmuxd %.3f %%, all ranks %.3f %% of a CPU\n", what, 100 * executor_share,
               100 * daemon_share, 100 * rank_share);
        if (executor_share > limit || daemon_share > limit || rank_share > limit)
                fail_msg("above %.1f %%", 100 * limit);
}

static void test_idle(void **state) {
        struct fixture *f = *state;

        node_start(&f->node, "idle", true);
        idlers_start(&f->idlers, f->node.socket, RANKS);
        measure_idle(f, "8 ranks connected");
        for (uint32_t i = 1; i < RANKS; i++)
                idlers_call(&f->idlers, i);
        assert_int_equal(idlers_answer(&f->idlers, 1, 100), -1); /* rank 0 has not called */
        measure_idle(f, "7 ranks waiting for one");
        idlers_call(&f->idlers, 0);
        for (uint32_t i = 0; i < RANKS; i++)
                assert_int_equal(idlers_answer(&f->idlers, i, 10000), RMX_OK);
        idlers_stop(&f->idlers);
        node_stop(&f->node);
}

static int setup(void **state) {
        *state = calloc(1, sizeof(struct fixture));
        return *state ? 0 : -1;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        idlers_cleanup(&f->idlers);
        node_cleanup(&f->node);
        free(f);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_stop_kept, setup, teardown),
                cmocka_unit_test_setup_teardown(test_stop_plain, setup, teardown),
                cmocka_unit_test_setup_teardown(test_stop_connected, setup, teardown),
                cmocka_unit_test_setup_teardown(test_killed_plain, setup, teardown),
                cmocka_unit_test_setup_teardown(test_absent, setup, teardown),
                cmocka_unit_test_setup_teardown(test_idle, setup, teardown),
        };

        return cmocka_run_group_tests_name("lifecycle", tests, NULL, NULL);
}
