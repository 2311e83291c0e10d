/* SPDX-License-Identifier: MIT */
/* Calls on communicators that do not block, on a node with emulated GPUs: they return at once, and
 * ncclCommGetAsyncError says when they are done. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/nccl/nccl.h"
#include "tests/e2e/node.h"

#define RANKS 3
#define COUNT 5000 /* beyond what travels in lines */

static struct node node;
static float in[RANKS][RANKS * COUNT], out[RANKS][RANKS * COUNT];

#define CHECK(call)                                                                                                    \
        do {                                                                                                           \
                ncclResult_t result_ = (call);                                                                         \
                                                                                                                       \
                if (result_ != ncclSuccess)                                                                            \
                        fail_msg("%s: %d, %s", #call, result_, ncclGetLastError(NULL));                                \
        } while (0)

static ncclResult_t state_of(ncclComm_t comm) {
        ncclResult_t async;

        CHECK(ncclCommGetAsyncError(comm, &async));
        return async;
}

static ncclResult_t settle(ncclComm_t comm) {
        ncclResult_t async;

        while ((async = state_of(comm)) == ncclInProgress)
                (void)poll(NULL, 0, 1);
        return async;
}

static void expect_started(ncclResult_t result) {
        if (result != ncclSuccess && result != ncclInProgress)
                fail_msg("%d, %s", result, ncclGetLastError(NULL));
}

static void make(ncclComm_t comm[RANKS]) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclUniqueId id;

        config.blocking = 0;
        CHECK(ncclGetUniqueId(&id));
        for (int r = 0; r < RANKS; r++)
                assert_int_equal(ncclCommInitRankConfig(&comm[r], RANKS, id, r, &config), ncclInProgress);
        for (int r = 0; r < RANKS; r++)
                assert_int_equal(settle(comm[r]), ncclSuccess);
}

static void fill(void) {
        for (int r = 0; r < RANKS; r++)
                for (int i = 0; i < RANKS * COUNT; i++)
                        in[r][i] = (float)(r * 1000 + i % 1000);
        memset(out, 0xff, sizeof(out));
}

static void abort_all(ncclComm_t comm[RANKS]) {
        for (int r = 0; r < RANKS; r++)
                CHECK(ncclCommAbort(comm[r]));
}

/* One call of each kind, all ranks from one thread: none of them may wait for the next rank's. */
static ncclResult_t call(int kind, int r, ncclComm_t comm) {
        static const size_t counts[RANKS] = {COUNT, COUNT, COUNT}, offsets[RANKS] = {0, COUNT, 2 * COUNT};
        float *to = out[r], *from = in[r];

        switch (kind) {
        case 0:
                return ncclAllReduce(from, to, COUNT, ncclFloat32, ncclSum, comm, NULL);
        case 1:
                return ncclReduce(from, to, COUNT, ncclFloat32, ncclSum, 1, comm, NULL);
        case 2:
                return ncclReduceScatter(from, to, COUNT, ncclFloat32, ncclSum, comm, NULL);
        case 3:
                return ncclAllGather(from, to, COUNT, ncclFloat32, comm, NULL);
        case 4:
                return ncclBroadcast(from, to, COUNT, ncclFloat32, 2, comm, NULL);
        case 5:
                return ncclGather(from, to, COUNT, ncclFloat32, 1, comm, NULL);
        case 6:
                return ncclScatter(from, to, COUNT, ncclFloat32, 1, comm, NULL);
        case 7:
                return ncclAlltoAll(from, to, COUNT, ncclFloat32, comm, NULL);
        default:
                return ncclAlltoAllv(from, counts, offsets, to, counts, offsets, ncclFloat32, comm, NULL);
        }
}

/* Element i of rank r's output; -1: it is not written. */
static float expected(int kind, int r, int i) {
        int place = i % COUNT, block = i / COUNT;

        switch (kind) {
        case 0:
                return block ? -1 : (float)(3000 + 3 * (i % 1000));
        case 1:
                return block || r != 1 ? -1 : (float)(3000 + 3 * (i % 1000));
        case 2:
                return block ? -1 : (float)(3000 + 3 * ((r * COUNT + i) % 1000));
        case 3:
                return (float)(block * 1000 + place % 1000);
        case 4:
                return block ? -1 : (float)(2000 + i % 1000);
        case 5:
                return r == 1 ? (float)(block * 1000 + place % 1000) : -1;
        case 6:
                return block ? -1 : (float)(1000 + (r * COUNT + i) % 1000);
        default:
                return (float)(block * 1000 + (r * COUNT + place) % 1000);
        }
}

static void verify(int kind) {
        for (int r = 0; r < RANKS; r++)
                for (int i = 0; i < RANKS * COUNT; i++) {
                        float wanted = expected(kind, r, i);

                        if (wanted == -1 ? out[r][i] == out[r][i] : out[r][i] != wanted)
                                fail_msg("call %d: element %d of rank %d is %f, not %f", kind, i, r, (double)out[r][i],
                                         (double)wanted);
                }
}

static void test_calls(void **state) {
        ncclComm_t comm[RANKS];

        (void)state;
        make(comm);
        for (int kind = 0; kind < 9; kind++) {
                fill();
                for (int r = 0; r < RANKS; r++) {
                        ncclResult_t result = call(kind, r, comm[r]);

                        expect_started(result);
                        if (r == 0 && kind != 4) { /* a root may run ahead */
                                assert_int_equal(result, ncclInProgress);
                                assert_int_equal(state_of(comm[0]), ncclInProgress);
                        }
                }
                for (int r = 0; r < RANKS; r++)
                        assert_int_equal(settle(comm[r]), ncclSuccess);
                verify(kind);
        }
        abort_all(comm);
}

/* Groups over all ranks, with collectives, sends and receives; and many calls before the first look. */
static void test_groups(void **state) {
        ncclComm_t comm[RANKS];
        ncclResult_t result;

        (void)state;
        make(comm);
        fill();
        for (int r = 0; r < RANKS; r++) { /* one rank's part at a time: no group may wait */
                CHECK(ncclGroupStart());
                for (int p = 0; p < RANKS; p++) {
                        CHECK(ncclSend(in[r] + p * COUNT, COUNT, ncclFloat32, p, comm[r], NULL));
                        CHECK(ncclRecv(out[r] + p * COUNT, COUNT, ncclFloat32, p, comm[r], NULL));
                }
                result = ncclGroupEnd();
                expect_started(result);
                assert_true(result == ncclInProgress || r == RANKS - 1);
        }
        for (int r = RANKS - 1; r >= 0; r--)
                assert_int_equal(settle(comm[r]), ncclSuccess);
        verify(7);
        fill();
        CHECK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++)
                CHECK(call(3, r, comm[r]));
        expect_started(ncclGroupEnd());
        for (int r = 0; r < RANKS; r++)
                assert_int_equal(settle(comm[r]), ncclSuccess);
        verify(3);
        /* More than a ring has places for. */
        for (int i = 0; i < 2000; i++)
                for (int r = 0; r < RANKS; r++)
                        expect_started(ncclAllReduce(in[r], out[r], 1, ncclFloat32, ncclSum, comm[r], NULL));
        for (int r = 0; r < RANKS; r++)
                assert_int_equal(settle(comm[r]), ncclSuccess);
        abort_all(comm);
}

/* The end of a communicator brings what was under way. */
static void test_destroyed(void **state) {
        ncclComm_t comm[RANKS];

        (void)state;
        make(comm);
        fill();
        for (int r = 0; r < RANKS; r++)
                expect_started(call(0, r, comm[r]));
        for (int r = 0; r < RANKS; r++)
                CHECK(ncclCommFinalize(comm[r]));
        CHECK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++)
                CHECK(ncclCommDestroy(comm[r]));
        CHECK(ncclGroupEnd());
        verify(0);
}

/* What fails is told when it is asked for, of single calls and of groups; an abort does not wait for what is under way,
 * its own or that of another communicator of the same group. */
static void test_failures(void **state) {
        ncclComm_t comm[RANKS], other[RANKS];

        (void)state;
        for (int grouped = 0; grouped < 2; grouped++) {
                make(comm);
                make(other);
                fill();
                if (grouped)
                        CHECK(ncclGroupStart());
                expect_started(call(0, 0, comm[0]));
                expect_started(call(0, 1, other[1]));
                if (grouped)
                        assert_int_equal(ncclGroupEnd(), ncclInProgress);
                assert_int_equal(state_of(comm[0]), ncclInProgress);
                assert_int_equal(state_of(comm[2]), ncclSuccess);
                CHECK(ncclCommAbort(comm[2]));
                assert_int_equal(settle(comm[0]), ncclRemoteError);
                assert_int_equal(state_of(comm[0]), ncclRemoteError);
                assert_int_equal(call(0, 0, comm[0]), ncclRemoteError);
                CHECK(ncclCommAbort(comm[0]));
                CHECK(ncclCommAbort(comm[1]));
                assert_int_equal(state_of(other[1]), ncclInProgress);
                abort_all(other);
                assert_true(out[0][0] != out[0][0] && out[1][0] != out[1][0]);
        }
        /* A mismatch. */
        make(comm);
        for (int r = 0; r < RANKS; r++)
                (void)ncclAllReduce(in[r], out[r], r == 1 ? 2 : 1, ncclFloat32, ncclSum, comm[r], NULL);
        for (int r = 0; r < RANKS; r++)
                assert_int_equal(settle(comm[r]), ncclInvalidUsage);
        abort_all(comm);
        /* What is wrong by itself is told at once. */
        make(comm);
        assert_int_equal(ncclAllReduce(NULL, out[0], 1, ncclFloat32, ncclSum, comm[0], NULL), ncclInvalidArgument);
        assert_int_equal(state_of(comm[0]), ncclSuccess);
        abort_all(comm);
}

struct watcher {
        ncclComm_t comm;
        ncclResult_t result;
};

static void *watch(void *userdata) {
        struct watcher *w = userdata;

        while ((ncclCommGetAsyncError(w->comm, &w->result) == ncclSuccess) && w->result == ncclInProgress)
                (void)poll(NULL, 0, 0);
        return NULL;
}

/* Several threads ask for the same, and one of them aborts. */
static void test_watched(void **state) {
        struct watcher watchers[4];
        pthread_t threads[4];
        ncclComm_t comm[RANKS];

        (void)state;
        for (int turn = 0; turn < 20; turn++) {
                bool aborts = turn % 2;

                make(comm);
                fill();
                CHECK(ncclGroupStart());
                for (int r = 0; r < 2; r++)
                        CHECK(call(0, r, comm[r]));
                assert_int_equal(ncclGroupEnd(), ncclInProgress);
                for (int i = 0; i < 4; i++) {
                        watchers[i].comm = comm[i % 2];
                        assert_int_equal(pthread_create(&threads[i], NULL, watch, &watchers[i]), 0);
                }
                if (aborts)
                        CHECK(ncclCommAbort(comm[2]));
                else
                        expect_started(call(0, 2, comm[2]));
                for (int i = 0; i < 4; i++) {
                        pthread_join(threads[i], NULL);
                        assert_int_equal(watchers[i].result, aborts ? ncclRemoteError : ncclSuccess);
                }
                if (!aborts) {
                        assert_int_equal(settle(comm[2]), ncclSuccess);
                        verify(0);
                        CHECK(ncclCommAbort(comm[2]));
                }
                for (int r = 0; r < 2; r++)
                        CHECK(ncclCommAbort(comm[r]));
        }
}

static int setup(void **state) {
        (void)state;
        node_start(&node, "nccl-patient", false);
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
                cmocka_unit_test(test_calls),    cmocka_unit_test(test_groups),  cmocka_unit_test(test_destroyed),
                cmocka_unit_test(test_failures), cmocka_unit_test(test_watched),
        };

        unsetenv("RAILMUX_FALLBACK");
        unsetenv("NCCL_COMM_BLOCKING");
        return cmocka_run_group_tests_name("patient", tests, setup, teardown);
}
