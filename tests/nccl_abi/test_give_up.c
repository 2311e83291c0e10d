/* SPDX-License-Identifier: MIT */
/* Communicators that will never be made, and aborts while the daemon does not answer, on a node. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/nccl/nccl.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "util/clock.h"

#define ABORT_MS 1000.0
#define CALLS    1100 /* more than a session may have unanswered */

static struct node node;

#define CHECK(call)                                                                                                    \
        do {                                                                                                           \
                ncclResult_t result_ = (call);                                                                         \
                                                                                                                       \
                if (result_ != ncclSuccess)                                                                            \
                        fail_msg("%s: %d, %s", #call, result_, ncclGetLastError(NULL));                                \
        } while (0)

static void expect_error(const char *text) {
        if (!strstr(ncclGetLastError(NULL), text))
                fail_msg("%s", ncclGetLastError(NULL));
}

static void reduce(ncclComm_t *comm, int n) {
        float in[4] = {3, 4, 5, 6}, out[4] = {-1, -1, -1, -1};

        CHECK(ncclGroupStart());
        for (int r = 0; r < n; r++)
                CHECK(ncclAllReduce(&in[r], &out[r], 1, ncclFloat32, ncclSum, comm[r], NULL));
        CHECK(ncclGroupEnd());
        for (int r = 0; r < n; r++)
                assert_true(out[r] == (float)(n * (n - 1) / 2 + 3 * n));
}

/* The daemon serves this process, as ever. */
static void check_alive(void) {
        ncclComm_t comm[2];

        CHECK(ncclCommInitAll(comm, 2, NULL));
        reduce(comm, 2);
        for (int r = 0; r < 2; r++)
                CHECK(ncclCommAbort(comm[r]));
}

static ncclConfig_t without_blocking(void) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

        config.blocking = 0;
        return config;
}

static ncclResult_t settle(ncclComm_t comm) {
        ncclResult_t async;

        do {
                CHECK(ncclCommGetAsyncError(comm, &async));
                (void)poll(NULL, 0, 1);
        } while (async == ncclInProgress);
        return async;
}

/* ---- a rank that never comes ------------------------------------------------------------------------------------- */
/* A thread that makes a communicator, and waits in it. */
struct maker {
        pthread_t thread;
        ncclComm_t _Atomic comm; /* there as soon as it is waited for */
        ncclComm_t parent;       /* NULL: by an id */
        bool shrinks;
        int n_ranks;
        ncclUniqueId id;
        ncclResult_t result;
};

static void *make(void *userdata) {
        struct maker *m = userdata;
        ncclComm_t *comm = (ncclComm_t *)(void *)&m->comm;

        if (!m->parent)
                m->result = ncclCommInitRank(comm, m->n_ranks, m->id, 0);
        else if (m->shrinks)
                m->result = ncclCommShrink(m->parent, (int[]){2}, 1, comm, NULL, NCCL_SHRINK_DEFAULT);
        else
                m->result = ncclCommSplit(m->parent, 0, 0, comm, NULL);
        return NULL;
}

static ncclComm_t make_start(struct maker *m) {
        m->comm = NULL;
        m->result = ncclNumResults;
        assert_int_equal(pthread_create(&m->thread, NULL, make, m), 0);
        while (!m->comm)
                (void)poll(NULL, 0, 1);
        return m->comm;
}

static void test_abort_frees_thread(void **state) {
        struct maker m = {.n_ranks = 2};

        (void)state;
        for (int turn = 0; turn < 20; turn++) {
                CHECK(ncclGetUniqueId(&m.id));
                make_start(&m);
                CHECK(ncclCommAbort(m.comm));
                pthread_join(m.thread, NULL);
                assert_int_equal(m.result, ncclInvalidUsage);
                assert_null(m.comm);
        }
        check_alive();
}

/* What is made from a communicator is given up with it, and not before. */
static void test_abort_of_parent(void **state) {
        ncclComm_t comm[3];

        (void)state;
        for (int shrinks = 0; shrinks < 2; shrinks++) {
                struct maker m = {.shrinks = shrinks};
                ncclResult_t async;

                CHECK(ncclCommInitAll(comm, 3, NULL));
                m.parent = comm[0];
                make_start(&m);
                CHECK(ncclCommGetAsyncError(comm[0], &async));
                assert_int_equal(async, ncclSuccess);
                CHECK(ncclCommAbort(comm[0]));
                pthread_join(m.thread, NULL);
                assert_int_not_equal(m.result, ncclSuccess);
                assert_null(m.comm);
                for (int r = 1; r < 3; r++)
                        CHECK(ncclCommAbort(comm[r]));
        }
        check_alive();
}

/* Only the child is aborted: the parent goes on. */
static void test_abort_of_child(void **state) {
        struct maker m = {.shrinks = true};
        ncclComm_t comm[3];

        (void)state;
        CHECK(ncclCommInitAll(comm, 3, NULL));
        for (int shrinks = 0; shrinks < 2; shrinks++) {
                m.shrinks = shrinks;
                m.parent = comm[0];
                CHECK(ncclCommAbort(make_start(&m)));
                pthread_join(m.thread, NULL);
                assert_int_equal(m.result, ncclInvalidUsage);
                reduce(comm, 3);
        }
        for (int r = 0; r < 3; r++)
                CHECK(ncclCommAbort(comm[r]));
}

/* No thread and no call stays behind, however it is ended. */
static void test_many(void **state) {
        ncclConfig_t config = without_blocking();
        ncclUniqueId id;
        ncclComm_t comm;

        (void)state;
        for (int i = 0; i < CALLS; i++) {
                CHECK(ncclGetUniqueId(&id));
                assert_int_equal(ncclCommInitRankConfig(&comm, 2, id, i % 2, &config), ncclInProgress);
                CHECK(i % 3 ? ncclCommAbort(comm) : ncclCommDestroy(comm));
                assert_int_equal(ncclCommDestroy(comm), ncclInvalidArgument);
        }
        check_alive();
}

/* A rank whose time is over; and the others, who have none, hear that it has given up. */
static void test_timeout(void **state) {
        ncclConfig_t config = without_blocking();
        ncclComm_t comm[3];
        ncclUniqueId id;

        (void)state;
        CHECK(ncclGetUniqueId(&id));
        setenv("RAILMUX_JOIN_TIMEOUT", "0.05", 1);
        assert_int_equal(ncclCommInitRank(&comm[2], 3, id, 2), ncclRemoteError);
        expect_error("not all ranks have joined within 50 ms");
        assert_null(comm[2]);
        CHECK(ncclGetUniqueId(&id));
        assert_int_equal(ncclCommInitRankConfig(&comm[0], 3, id, 0, &config), ncclInProgress);
        unsetenv("RAILMUX_JOIN_TIMEOUT");
        assert_int_equal(ncclCommInitRankConfig(&comm[1], 3, id, 1, &config), ncclInProgress);
        for (int r = 0; r < 2; r++) {
                assert_int_equal(settle(comm[r]), ncclRemoteError);
                CHECK(ncclCommAbort(comm[r]));
        }
        check_alive();
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */
/* Of three ranks in a group one is refused. Whichever comes first to the daemon, somebody waits for ranks that will not
 * come. */
static void test_group_refused(void **state) {
        ncclComm_t comm[3];
        ncclUniqueId id;

        (void)state;
        for (int turn = 0; turn < 20; turn++) {
                CHECK(ncclGetUniqueId(&id));
                CHECK(ncclGroupStart());
                for (int r = 0; r < 3; r++)
                        CHECK(ncclCommInitRank(&comm[r], r == turn % 3 ? 4 : 3, id, r));
                assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
                expect_error("n_ranks is");
                for (int r = 0; r < 3; r++)
                        assert_null(comm[r]);
        }
        check_alive();
}

static void test_group_refused_without_blocking(void **state) {
        ncclConfig_t config = without_blocking();
        ncclUniqueId id;
        ncclComm_t comm[3];
        int refused;

        (void)state;
        for (int turn = 0; turn < 20; turn++) {
                refused = 0;
                CHECK(ncclGetUniqueId(&id));
                CHECK(ncclGroupStart());
                for (int r = 0; r < 3; r++)
                        assert_int_equal(ncclCommInitRankConfig(&comm[r], r == turn % 3 ? 4 : 3, id, r, &config),
                                         ncclInProgress);
                assert_int_equal(ncclGroupEnd(), ncclInProgress);
                for (int r = 0; r < 3; r++) {
                        ncclResult_t async = settle(comm[r]);

                        refused += async == ncclInvalidArgument;
                        assert_true(async == ncclInvalidArgument || async == ncclRemoteError);
                }
                assert_true(refused);
                for (int r = 0; r < 3; r++)
                        CHECK(ncclCommAbort(comm[r]));
        }
        check_alive();
}

/* Splits of a group wait for each other, and for a rank that never comes: here one is refused. */
static void test_group_of_splits(void **state) {
        ncclComm_t comm[3], child[3], lone;
        ncclUniqueId id;

        (void)state;
        CHECK(ncclCommInitAll(comm, 3, NULL));
        CHECK(ncclGetUniqueId(&id));
        setenv("RAILMUX_JOIN_TIMEOUT", "0.05", 1);
        CHECK(ncclGroupStart());
        CHECK(ncclCommInitRank(&lone, 2, id, 0));
        unsetenv("RAILMUX_JOIN_TIMEOUT");
        for (int r = 0; r < 2; r++)
                CHECK(ncclCommSplit(comm[r], 0, 0, &child[r], NULL));
        assert_int_equal(ncclGroupEnd(), ncclRemoteError);
        expect_error("not all ranks have joined within 50 ms");
        assert_null(child[0]);
        assert_null(child[1]);
        reduce(comm, 3);
        CHECK(ncclGroupStart());
        for (int r = 0; r < 3; r++)
                CHECK(ncclCommDestroy(comm[r]));
        CHECK(ncclGroupEnd());
}

/* ---- a daemon that does not answer ------------------------------------------------------------------------------- */
struct blocked {
        pthread_t thread;
        ncclComm_t comm;
        atomic_bool entered;
        ncclResult_t result;
};

static void *call_alone(void *userdata) {
        struct blocked *b = userdata;
        float x = 1, y = -1;

        b->entered = true;
        b->result = ncclAllReduce(&x, &y, 1, ncclFloat32, ncclSum, b->comm, NULL);
        return NULL;
}

static void block(struct blocked *b, ncclComm_t comm) {
        *b = (struct blocked){.comm = comm};
        assert_int_equal(pthread_create(&b->thread, NULL, call_alone, b), 0);
        while (!b->entered)
                (void)poll(NULL, 0, 1);
}

static void expect_soon(uint64_t begin_ns) {
        double ms = (double)(clock_now_ns() - begin_ns) / 1e6;

        if (ms > ABORT_MS * proc_time_scale())
                fail_msg("it took %.0f ms", ms);
}

/* railmuxd stands still. An abort returns and lets go whoever waits; the others hear when railmuxd goes on. */
static void test_stopped(void **state) {
        ncclConfig_t config = without_blocking();
        pid_t daemon = node.pid; /* there is no keeper */
        ncclComm_t comm[2], other[2], waiting;
        ncclResult_t async;
        ncclUniqueId id;
        struct blocked b;
        uint64_t begin;
        float x = 1, y = -1;

        (void)state;
        CHECK(ncclCommInitAll(comm, 2, NULL));
        CHECK(ncclCommInitAll(other, 2, NULL));
        reduce(comm, 2);
        CHECK(ncclGetUniqueId(&id));
        assert_int_equal(ncclCommInitRankConfig(&waiting, 2, id, 0, &config), ncclInProgress);
        block(&b, comm[0]);
        assert_int_equal(kill(daemon, SIGSTOP), 0);

        begin = clock_now_ns();
        CHECK(ncclCommAbort(comm[0]));
        expect_soon(begin);
        pthread_join(b.thread, NULL);
        assert_int_equal(b.result, ncclRemoteError);
        assert_int_equal(ncclCommAbort(comm[0]), ncclInvalidArgument);

        begin = clock_now_ns();
        CHECK(ncclCommAbort(waiting));
        expect_soon(begin);

        CHECK(ncclGroupStart());
        CHECK(ncclAllReduce(&x, &y, 1, ncclFloat32, ncclSum, other[0], NULL));
        begin = clock_now_ns();
        CHECK(ncclCommAbort(other[0]));
        assert_int_equal(ncclGroupEnd(), ncclRemoteError);
        expect_soon(begin);
        assert_true(y == -1);

        CHECK(ncclCommGetAsyncError(comm[1], &async));
        assert_int_equal(async, ncclSuccess); /* how should it know */
        assert_int_equal(kill(daemon, SIGCONT), 0);
        do
                CHECK(ncclCommGetAsyncError(comm[1], &async));
        while (async == ncclSuccess);
        assert_int_equal(async, ncclRemoteError);
        CHECK(ncclCommAbort(comm[1]));
        CHECK(ncclCommAbort(other[1]));
        check_alive();
}

/* railmuxd and its executor are gone, and nobody brings them back. Runs last. */
static void test_gone(void **state) {
        ncclConfig_t config = without_blocking();
        ncclComm_t comm[2], waiting;
        ncclUniqueId id;
        struct blocked b;
        uint64_t begin;

        (void)state;
        CHECK(ncclCommInitAll(comm, 2, NULL));
        reduce(comm, 2);
        CHECK(ncclGetUniqueId(&id));
        assert_int_equal(ncclCommInitRankConfig(&waiting, 2, id, 0, &config), ncclInProgress);
        block(&b, comm[0]);
        node_stop(&node);
        begin = clock_now_ns();
        CHECK(ncclCommAbort(comm[0]));
        expect_soon(begin);
        pthread_join(b.thread, NULL);
        assert_int_not_equal(b.result, ncclSuccess);
        begin = clock_now_ns();
        CHECK(ncclCommAbort(comm[1]));
        CHECK(ncclCommAbort(waiting));
        expect_soon(begin);
}

static int setup(void **state) {
        (void)state;
        node_start(&node, "nccl-give-up", false);
        setenv("RAILMUX_SOCKET", node.socket, 1);
        return 0;
}

static int teardown(void **state) {
        (void)state;
        node_cleanup(&node);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_abort_frees_thread),
                cmocka_unit_test(test_abort_of_parent),
                cmocka_unit_test(test_abort_of_child),
                cmocka_unit_test(test_many),
                cmocka_unit_test(test_timeout),
                cmocka_unit_test(test_group_refused),
                cmocka_unit_test(test_group_refused_without_blocking),
                cmocka_unit_test(test_group_of_splits),
                cmocka_unit_test(test_stopped),
                cmocka_unit_test(test_gone),
        };

        unsetenv("RAILMUX_FALLBACK");
        unsetenv("RAILMUX_JOIN_TIMEOUT");
        unsetenv("NCCL_COMM_BLOCKING");
        return cmocka_run_group_tests_name("give up", tests, setup, teardown);
}
