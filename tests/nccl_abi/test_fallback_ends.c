/* SPDX-License-Identifier: MIT */
/* A destroy of a communicator of another library, while a call is at work in it, and an abort that ends both. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/nccl/nccl.h"
#include "tests/nccl_abi/stand_in_load.h"

static const struct stand_in_counts *counts;
static int (*n_waiting)(void);
static void (*hold)(bool hold);

static void *wait_in_call(void *userdata) {
        float x = 1, y = -1;

        return ncclAllReduce(&x, &y, 0, ncclFloat32, ncclSum, userdata, NULL) == ncclRemoteError ? userdata : NULL;
}

static void *destroy(void *userdata) {
        return ncclCommDestroy(userdata) == ncclSuccess ? userdata : NULL;
}

static ncclComm_t make(void) {
        ncclComm_t comm;
        ncclUniqueId id;

        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclCommInitRank(&comm, 2, id, 0), ncclSuccess);
        return comm;
}

static void test_broken(void **state) {
        const struct stand_in_counts before = *counts;
        pthread_t caller, destroyer;
        ncclComm_t comm = make();
        void *result;

        (void)state;
        assert_int_equal(pthread_create(&caller, NULL, wait_in_call, comm), 0);
        while (!n_waiting())
                sched_yield();
        assert_int_equal(pthread_create(&destroyer, NULL, destroy, comm), 0);
        /* Takes no calls any more when the destroy waits. */
        while (ncclCommFinalize(comm) != ncclInvalidArgument)
                sched_yield();
        assert_int_equal(ncclCommAbort(comm), ncclSuccess);
        pthread_join(caller, &result);
        assert_ptr_equal(result, comm);
        pthread_join(destroyer, &result);
        assert_ptr_equal(result, comm);
        assert_int_equal(counts->aborts, before.aborts + 1);
        assert_int_equal(counts->destroys, before.destroys); /* the abort was its end */
        assert_int_equal(ncclCommAbort(comm), ncclInvalidArgument);
}

/* What the other library frees it cannot abort any more. */
static void test_too_late(void **state) {
        pthread_t destroyer;
        ncclComm_t comm = make();
        void *result;

        (void)state;
        hold(true);
        assert_int_equal(pthread_create(&destroyer, NULL, destroy, comm), 0);
        while (!n_waiting())
                sched_yield();
        assert_int_equal(ncclCommAbort(comm), ncclInvalidArgument);
        hold(false);
        pthread_join(destroyer, &result);
        assert_ptr_equal(result, comm);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_broken), cmocka_unit_test(test_too_late)};
        void *function;

        if (!stand_in_load("stand_in_hold", &function))
                return 2;
        hold = (void (*)(bool))function;
        counts = stand_in_load("stand_in_waiting", &function);
        if (!counts)
                return 2;
        n_waiting = (int (*)(void))function;
        return cmocka_run_group_tests_name("fallback_ends", tests, NULL, NULL);
}
