/* SPDX-License-Identifier: MIT */
/* The library before a daemon that stands still, or is gone. */
#include "tests/nccl/pair.h"

#include <string.h>

#include "util/clock.h"

static void comm_new(ncclComm_t *ret_comm) {
        ncclUniqueId id;

        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclCommInitRank(ret_comm, 1, id, 0), ncclSuccess);
}

/* As an abort does, it returns; when the daemon goes on, it hears of it. */
static void test_revoke(void **state) {
        uint32_t before = fake_calls(&fake, BODY(COMM_ABORT));
        uint64_t start_ns;
        ncclComm_t comm;

        (void)state;
        comm_new(&comm);
        fake_deafen(&fake, true);
        start_ns = clock_now_ns();
        /* Otherwise it never returns: the time limit of the test ends it. */
        assert_int_equal(ncclCommRevoke(comm, 0), ncclSuccess);
        assert_non_null(strstr(ncclGetLastError(comm), "ncclCommRevoke: the daemon has not answered"));
        assert_true(clock_now_ns() - start_ns < UINT64_C(10000000000));
        assert_int_equal(fake_calls(&fake, BODY(COMM_ABORT)), before);
        assert_int_equal(ncclCommRevoke(comm, 0), ncclSuccess);
        fake_deafen(&fake, false);
        fake_wait_calls(&fake, BODY(COMM_ABORT), before + 1);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
}

static void test_revoke_heard(void **state) {
        uint32_t before = fake_calls(&fake, BODY(COMM_ABORT));
        ncclComm_t comm;

        (void)state;
        comm_new(&comm);
        assert_int_equal(ncclCommRevoke(comm, 1), ncclInvalidArgument);
        assert_int_equal(fake_calls(&fake, BODY(COMM_ABORT)), before);
        assert_int_equal(ncclCommRevoke(comm, 0), ncclSuccess);
        assert_int_equal(fake_calls(&fake, BODY(COMM_ABORT)), before + 1); /* before it returns */
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
}

/* The last test: there is no daemon any more. */
static void test_revoke_gone(void **state) {
        ncclResult_t asked = ncclSuccess;
        ncclComm_t comm;

        (void)state;
        comm_new(&comm);
        fake_hang_up(&fake);
        assert_int_equal(ncclCommRevoke(comm, 0), ncclSystemError);
        assert_non_null(strstr(ncclGetLastError(comm), "ncclCommRevoke: rmx_comm_abort: the connection to the daemon"));
        assert_int_equal(ncclCommGetAsyncError(comm, &asked), ncclSuccess);
        assert_int_equal(asked, ncclSystemError);
        assert_int_equal(ncclCommAbort(comm), ncclSuccess);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_revoke_heard),
                cmocka_unit_test(test_revoke),
                cmocka_unit_test(test_revoke_gone),
        };

        return cmocka_run_group_tests(tests, pair_start, pair_stop);
}
