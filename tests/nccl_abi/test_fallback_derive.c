/* SPDX-License-Identifier: MIT */
/* Communicators that another library makes from its own: at once, when a group ends, and some time later. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/nccl/nccl.h"
#include "tests/nccl_abi/stand_in_load.h"

enum { TURNS = 500 };

static const struct stand_in_counts *counts;
static void (*make)(void);

static ncclComm_t one(int n_ranks, int rank) {
        ncclComm_t comm = NULL;
        ncclUniqueId id;

        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclCommInitRank(&comm, n_ranks, id, rank), ncclSuccess);
        return comm;
}

static void assert_is(ncclComm_t comm, int n_ranks, int rank) {
        float in = 5, out = -1;
        int value = -1;

        assert_int_equal(ncclCommCount(comm, &value), ncclSuccess);
        assert_int_equal(value, n_ranks);
        assert_int_equal(ncclCommUserRank(comm, &value), ncclSuccess);
        assert_int_equal(value, rank);
        assert_int_equal(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL), ncclSuccess);
        assert_true(out == 5);
}

static ncclResult_t state_of(ncclComm_t comm) {
        ncclResult_t async = ncclSystemError;

        assert_int_equal(ncclCommGetAsyncError(comm, &async), ncclSuccess);
        return async;
}

static void assert_counts(int derived, int destroyed, const struct stand_in_counts *before) {
        assert_int_equal(counts->derived, before->derived + derived);
        assert_int_equal(counts->destroys, before->destroys + destroyed);
}

static void test_at_once(void **state) {
        const struct stand_in_counts before = *counts;
        ncclComm_t comm = one(4, 1), child[3], none = comm;
        ncclUniqueId id = {{0}};
        int gone = 3;

        (void)state;
        assert_int_equal(ncclCommSplit(comm, 0, 2, &child[0], NULL), ncclSuccess);
        assert_is(child[0], 4, 2);
        assert_int_equal(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &none, NULL), ncclSuccess);
        assert_null(none);
        assert_int_equal(ncclCommShrink(comm, &gone, 1, &child[1], NULL, 0), ncclSuccess);
        assert_is(child[1], 3, 1);
        assert_int_equal(ncclCommGetUniqueId(comm, &id), ncclSuccess);
        assert_int_equal(id.internal[0], STAND_IN_ID_BYTE);
        assert_int_equal(ncclCommGrow(comm, 6, NULL, -1, &child[2], NULL), ncclSuccess);
        assert_is(child[2], 6, 1);
        for (int i = 0; i < 3; i++)
                assert_int_equal(ncclCommDestroy(child[i]), ncclSuccess);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
        assert_counts(3, 4, &before);
}

/* The library stores at the group's end, and last what is nobody's. */
static void test_group(void **state) {
        const struct stand_in_counts before = *counts;
        ncclComm_t comm[2] = {one(2, 0), one(2, 1)}, none = comm[0], child = NULL;

        (void)state;
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclCommSplit(comm[0], NCCL_SPLIT_NOCOLOR, 0, &none, NULL), ncclSuccess);
        assert_int_equal(ncclCommSplit(comm[1], 0, 0, &child, NULL), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_null(none);
        assert_is(child, 2, 0);
        assert_int_equal(ncclCommDestroy(child), ncclSuccess);
        for (int i = 0; i < 2; i++)
                assert_int_equal(ncclCommDestroy(comm[i]), ncclSuccess);
        assert_counts(1, 3, &before);
}

/* A group that comes to nothing makes none, and says so. */
static void test_failed_group(void **state) {
        ncclComm_t comm = one(2, 0), child = NULL;
        float x = 5;

        (void)state;
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclCommSplit(comm, 0, 0, &child, NULL), ncclSuccess);
        assert_int_equal(ncclSend(&x, 1, ncclFloat32, 0, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
        assert_int_equal(state_of(child), ncclInvalidUsage);
        assert_int_equal(ncclCommDestroy(child), ncclSuccess);
}

static void *make_apart(void *userdata) {
        (void)userdata;
        make();
        return NULL;
}

/* In another thread, as NCCL does. */
static void test_later(void **state) {
        const struct stand_in_counts before = *counts;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm = one(4, 1), child[3], none = comm;
        float in = 5, out = -1;
        pthread_t thread;
        int gone = 3;

        (void)state;
        config.blocking = 0;
        assert_int_equal(ncclCommSplit(comm, 0, 2, &child[0], &config), ncclInProgress);
        assert_int_equal(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &none, &config), ncclInProgress);
        assert_null(none);
        assert_int_equal(ncclCommShrink(comm, &gone, 1, &child[1], &config, 0), ncclInProgress);
        assert_int_equal(ncclCommGrow(comm, 6, NULL, -1, &child[2], &config), ncclInProgress);
        for (int i = 0; i < 3; i++) {
                assert_int_equal(state_of(child[i]), ncclInProgress);
                assert_int_equal(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, child[i], NULL), ncclInvalidUsage);
        }
        assert_int_equal(state_of(comm), ncclInProgress);
        assert_int_equal(pthread_create(&thread, NULL, make_apart, NULL), 0);
        for (int i = 0; i < 3; i++) {
                while (state_of(child[i]) == ncclInProgress)
                        sched_yield();
                assert_int_equal(state_of(child[i]), ncclSuccess);
        }
        pthread_join(thread, NULL);
        assert_int_equal(state_of(comm), ncclSuccess);
        assert_is(child[0], 4, 2);
        assert_is(child[1], 3, 1);
        assert_is(child[2], 6, 1);
        for (int i = 0; i < 3; i++)
                assert_int_equal(ncclCommDestroy(child[i]), ncclSuccess);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
        assert_counts(3, 4, &before);
}

/* What has been given back before it was made must not turn up in another one, and ends when it comes. */
static void test_too_late(void **state) {
        const struct stand_in_counts before = *counts;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm = one(4, 1), child = NULL, other;

        (void)state;
        config.blocking = 0;
        for (int abort = 0; abort < 2; abort++) {
                assert_int_equal(ncclCommSplit(comm, 0, 2, &child, &config), ncclInProgress);
                assert_int_equal(abort ? ncclCommAbort(child) : ncclCommDestroy(child), ncclSuccess);
                other = one(3, 2);
                make();
                assert_is(other, 3, 2);
                assert_int_equal(ncclCommAbort(child), ncclInvalidArgument);
                assert_int_equal(state_of(comm), ncclSuccess);
                assert_int_equal(counts->aborts, before.aborts + abort + 1);
                assert_int_equal(ncclCommDestroy(other), ncclSuccess);
        }
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
}

/* It comes at any time while it is given back. */
static void test_just_then(void **state) {
        const struct stand_in_counts before = *counts;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm = one(4, 1), child = NULL;

        (void)state;
        config.blocking = 0;
        for (int turn = 0; turn < TURNS; turn++) {
                pthread_t thread;

                assert_int_equal(ncclCommSplit(comm, 0, 2, &child, &config), ncclInProgress);
                assert_int_equal(pthread_create(&thread, NULL, make_apart, NULL), 0);
                for (int i = 0; i < turn % 16; i++)
                        sched_yield();
                assert_int_equal(turn % 2 ? ncclCommAbort(child) : ncclCommDestroy(child), ncclSuccess);
                pthread_join(thread, NULL);
        }
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
        assert_int_equal(counts->derived, before.derived + TURNS);
        assert_int_equal(counts->destroys + counts->aborts, before.destroys + before.aborts + TURNS + 1);
}

/* A parent is gone in that library when its abort returns, also inside a group: nothing is asked of it then. */
static void test_aborted_parent(void **state) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        const struct stand_in_counts before = *counts;
        ncclComm_t comm = one(4, 1), child = NULL;

        (void)state;
        config.blocking = 0;
        assert_int_equal(ncclCommSplit(comm, 0, 2, &child, &config), ncclInProgress);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclCommAbort(comm), ncclSuccess);
        assert_int_equal(counts->aborts, before.aborts + 1);
        assert_int_equal(state_of(child), ncclInvalidUsage);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(ncclCommAbort(child), ncclSuccess);
        assert_int_equal(counts->dead_asked, before.dead_asked);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_at_once),       cmocka_unit_test(test_group),
                                           cmocka_unit_test(test_failed_group),  cmocka_unit_test(test_later),
                                           cmocka_unit_test(test_too_late),      cmocka_unit_test(test_just_then),
                                           cmocka_unit_test(test_aborted_parent)};
        void *function;

        counts = stand_in_load("stand_in_make", &function);
        if (!counts)
                return 2;
        make = (void (*)(void))function;
        return cmocka_run_group_tests_name("fallback_derive", tests, NULL, NULL);
}
