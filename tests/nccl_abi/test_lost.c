/* SPDX-License-Identifier: MIT */
/* What a program that only watches hears of daemons that die: nothing where others take their place, else an error that
 * stays. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/nccl/nccl.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"

#define READY_MS 20000

static struct node node;
static ncclComm_t comm[2];

#define CHECK(call)                                                                                                    \
        do {                                                                                                           \
                ncclResult_t result_ = (call);                                                                         \
                                                                                                                       \
                if (result_ != ncclSuccess)                                                                            \
                        fail_msg("%s: %d, %s", #call, result_, ncclGetLastError(NULL));                                \
        } while (0)

static void reduce(void) {
        float in[2] = {3, 4}, out[2] = {-1, -1};

        CHECK(ncclGroupStart());
        for (int r = 0; r < 2; r++)
                CHECK(ncclAllReduce(&in[r], &out[r], 1, ncclFloat32, ncclSum, comm[r], NULL));
        CHECK(ncclGroupEnd());
        for (int r = 0; r < 2; r++)
                assert_true(out[r] == 7);
}

static void expect_async(ncclResult_t expected) {
        for (int r = 0; r < 2; r++) {
                ncclResult_t async = ncclInternalError;

                CHECK(ncclCommGetAsyncError(comm[r], &async));
                if (async != expected)
                        fail_msg("rank %d: %d, %s", r, async, ncclGetLastError(NULL));
        }
}

static bool is_dead(void *argument) {
        expect_async(ncclSuccess);
        return proc_wait_dead(*(const pid_t *)argument, 0) == 0;
}

static bool is_replaced(void *argument) {
        const struct node_pids *before = argument;
        struct node_pids now = node_pids(&node);

        expect_async(ncclSuccess);
        return now.ready && now.daemon > 0 && now.executor > 0 &&
               (now.daemon != before->daemon || now.executor != before->executor);
}

static void test_replaced(void **state) {
        (void)state;
        for (int turn = 0; turn < 4; turn++) {
                struct node_pids before = node_await_ready(&node, 0, 0, READY_MS);
                pid_t victim = turn % 2 ? before.executor : before.daemon;

                reduce();
                assert_int_equal(kill(victim, SIGKILL), 0);
                assert_true(proc_await(is_dead, &victim, READY_MS));
                assert_true(proc_await(is_replaced, &before, READY_MS));
                reduce();
                expect_async(ncclSuccess);
        }
}

static bool has_error(void *argument) {
        ncclResult_t *async = argument;

        CHECK(ncclCommGetAsyncError(comm[0], async));
        return *async != ncclSuccess;
}

static void test_gone(void **state) {
        ncclResult_t async;
        ncclUniqueId id;
        float x = 1, y = -1;

        (void)state;
        reduce();
        expect_async(ncclSuccess);
        node_stop(&node);
        assert_true(proc_await(has_error, &async, READY_MS));
        assert_int_equal(async, ncclSystemError);
        if (!strstr(ncclGetLastError(NULL), "gone"))
                fail_msg("%s", ncclGetLastError(NULL));
        expect_async(ncclSystemError);
        expect_async(ncclSystemError);
        assert_int_equal(ncclAllReduce(&x, &y, 1, ncclFloat32, ncclSum, comm[0], NULL), ncclSystemError);
        assert_int_equal(ncclGetUniqueId(&id), ncclSystemError);
        for (int r = 0; r < 2; r++)
                CHECK(ncclCommAbort(comm[r]));
}

static int setup(void **state) {
        (void)state;
        node_start(&node, "nccl-lost", true);
        setenv("RAILMUX_SOCKET", node.socket, 1);
        CHECK(ncclCommInitAll(comm, 2, NULL));
        return 0;
}

static int teardown(void **state) {
        (void)state;
        node_cleanup(&node);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_replaced), cmocka_unit_test(test_gone)};

        unsetenv("RAILMUX_FALLBACK");
        unsetenv("NCCL_COMM_BLOCKING");
        return cmocka_run_group_tests_name("lost", tests, setup, teardown);
}
