/* SPDX-License-Identifier: MIT */
/* RAILMUX_FALLBACK without a daemon: communicators go to the other library, whole, and in its groups. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/nccl/nccl.h"
#include "tests/nccl_abi/stand_in.h"

static const struct stand_in_counts *counts;
static int (*n_waiting)(void);

static ncclComm_t one(int n_ranks, int rank) {
        ncclComm_t comm = NULL;
        ncclUniqueId id;

        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(id.internal[0], STAND_IN_ID_BYTE);
        assert_int_equal(ncclCommInitRank(&comm, n_ranks, id, rank), ncclSuccess);
        assert_non_null(comm);
        return comm;
}

static void test_communicator(void **state) {
        float in[4] = {1, 2, 3, 4}, out[4] = {-1, -1, -1, -1};
        struct stand_in_counts before = *counts;
        ncclComm_t comm = one(3, 2), child;
        int count = 0, rank = 0;

        (void)state;
        assert_int_equal(counts->inits, before.inits + 1);
        assert_int_equal(ncclCommCount(comm, &count), ncclSuccess);
        assert_int_equal(ncclCommUserRank(comm, &rank), ncclSuccess);
        assert_int_equal(count, 3);
        assert_int_equal(rank, 2);
        assert_int_equal(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, comm, (ncclStream_t)(uintptr_t)0x77),
                         ncclSuccess);
        assert_int_equal(counts->stream, 0x77);
        assert_memory_equal(in, out, sizeof(in));
        /* What it does not have, and what fails in it. */
        assert_int_equal(ncclReduce(in, out, 4, ncclFloat32, ncclSum, 0, comm, NULL), ncclInvalidUsage);
        assert_non_null(strstr(ncclGetLastError(comm), "RAILMUX_FALLBACK"));
        assert_int_equal(ncclCommSplit(comm, 0, 0, &child, NULL), ncclRemoteError);
        assert_non_null(strstr(ncclGetLastError(comm), "the stand-in is sorry"));
        /* Not even asked: there is no place for the handle. */
        assert_int_equal(ncclCommSplit(comm, 0, 0, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclCommShrink(comm, &rank, 1, NULL, NULL, 0), ncclInvalidArgument);
        assert_int_equal(ncclCommGrow(comm, 4, NULL, -1, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
        assert_int_equal(counts->destroys, before.destroys + 1);
}

static void test_group(void **state) {
        float in = 5, out[2] = {-1, -1};
        ncclUniqueId id;
        ncclComm_t comm[2] = {NULL, NULL};
        struct stand_in_counts before = *counts;

        (void)state;
        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int i = 0; i < 2; i++)
                assert_int_equal(ncclCommInitRank(&comm[i], 2, id, i), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(counts->grouped_inits, before.grouped_inits + 2);
        assert_int_equal(counts->groups, before.groups + 1);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int i = 0; i < 2; i++)
                assert_int_equal(ncclAllReduce(&in, &out[i], 1, ncclFloat32, ncclSum, comm[i], NULL), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(counts->grouped_collectives, before.grouped_collectives + 2);
        assert_int_equal(counts->depth, 0);
        assert_true(out[0] == 5 && out[1] == 5);
        for (int i = 0; i < 2; i++)
                assert_int_equal(ncclCommDestroy(comm[i]), ncclSuccess);
}

static void *wait_in_call(void *userdata) {
        float x = 1, y = -1;

        return ncclAllReduce(&x, &y, 0, ncclFloat32, ncclSum, userdata, NULL) == ncclRemoteError ? userdata : NULL;
}

/* One thread is in a call that ends when the communicator is aborted. With a group open, too: that is another thread's
 * matter. */
static void test_abort(void **state) {
        struct stand_in_counts before = *counts;
        pthread_t thread;
        void *result;

        (void)state;
        for (int grouped = 0; grouped < 2; grouped++) {
                ncclComm_t comm = one(2, 0);

                assert_int_equal(pthread_create(&thread, NULL, wait_in_call, comm), 0);
                while (!n_waiting())
                        sched_yield();
                if (grouped)
                        assert_int_equal(ncclGroupStart(), ncclSuccess);
                assert_int_equal(ncclCommAbort(comm), ncclSuccess);
                pthread_join(thread, &result);
                assert_ptr_equal(result, comm);
                assert_int_equal(ncclCommAbort(comm), ncclInvalidArgument);
                if (grouped)
                        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument); /* of the second abort */
        }
        assert_int_equal(counts->aborts, before.aborts + 2);
        assert_int_equal(counts->destroys, before.destroys);
        assert_int_equal(counts->groups, before.groups);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_communicator), cmocka_unit_test(test_group),
                                           cmocka_unit_test(test_abort)};
        const struct stand_in_counts *(*get)(void);
        void *library;

        setenv("RAILMUX_SOCKET", "/nonexistent/railmux.sock", 1);
        setenv("RAILMUX_FALLBACK", STAND_IN, 1);
        library = dlopen(STAND_IN, RTLD_NOW | RTLD_LOCAL);
        get = library ? (const struct stand_in_counts *(*)(void))dlsym(library, "stand_in_counts") : NULL;
        n_waiting = library ? (int (*)(void))dlsym(library, "stand_in_waiting") : NULL;
        if (!get || !n_waiting)
                return 2;
        counts = get();
        return cmocka_run_group_tests_name("fallback", tests, NULL, NULL);
}
