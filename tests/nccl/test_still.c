/* SPDX-License-Identifier: MIT */
/* The library before a daemon that does what it is told to: stands still, or leaves requests where they are. */
#include "tests/client/fake.h"
#include "tests/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "client/nccl/nccl.h"
#include "proto/session.pb-c.h"
#include "util/clock.h"

#define BODY(name) RAILMUX__SESSION__MESSAGE__BODY_##name

static struct fake fake;

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
        assert_int_equal(ncclCommRevoke(comm, 0),
                         ncclSuccess); /* otherwise never: the time limit of the test ends it */
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

/* ---- communicators that do not block ----------------------------------------------------------------------------- */
enum { MANY = 3000 }; /* sends, or receives, of a group: more than there is room for */

/* Asks until it is done. */
static int settled(ncclComm_t comm) {
        ncclResult_t state;

        do
                assert_int_equal(ncclCommGetAsyncError(comm, &state), ncclSuccess);
        while (state == ncclInProgress);
        return state;
}

static void pair_new(ncclComm_t comms[2]) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclUniqueId id;

        config.blocking = 0;
        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        for (int rank = 0; rank < 2; rank++) {
                ncclResult_t result = ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config);

                assert_true(result == ncclSuccess || result == ncclInProgress);
        }
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(settled(comms[rank]), ncclSuccess);
}

static void pair_destroy(ncclComm_t comms[2]) {
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(ncclCommDestroy(comms[rank]), ncclSuccess);
}

/* n of them with the other rank, in one group if there is more than one. */
static ncclResult_t transfers(ncclComm_t comm, bool sends, int32_t *values, int n) {
        int peer = sends; /* rank 0 sends */
        ncclResult_t result = ncclSuccess;

        if (n > 1)
                assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int i = 0; i < n; i++)
                result = sends ? ncclSend(&values[i], 1, ncclInt32, peer, comm, NULL)
                               : ncclRecv(&values[i], 1, ncclInt32, peer, comm, NULL);
        return n > 1 ? ncclGroupEnd() : result;
}

static void fill(int32_t *values, int n) {
        for (int i = 0; i < n; i++)
                values[i] = i + 1;
}

static void assert_filled(const int32_t *values, int n) {
        for (int i = 0; i < n; i++)
                assert_int_equal(values[i], i + 1);
}

static void receive(ncclComm_t comm, int32_t *values, int n) {
        ncclResult_t result = transfers(comm, false, values, n);

        assert_true(result == ncclSuccess || result == ncclInProgress);
}

/* Nobody receives yet, so an end that waited would wait for ever. What comes later does not overtake, and who finds no
 * room waits for those that have it. */
static void test_many(void **state) {
        static int32_t in[MANY + 4], out[2][MANY + 4];
        ncclComm_t comms[2], others[2];

        (void)state;
        fill(in, MANY + 4);
        memset(out, 0, sizeof(out));
        pair_new(comms);
        pair_new(others);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        assert_int_equal(transfers(comms[0], true, in + MANY, 3), ncclInProgress);
        assert_int_equal(transfers(comms[0], true, in + MANY + 3, 1), ncclInProgress);
        assert_int_equal(transfers(others[0], true, in, MANY), ncclInProgress);
        receive(comms[1], out[0], MANY + 4);
        receive(others[1], out[1], MANY);
        assert_int_equal(settled(others[1]), ncclSuccess); /* which starts what the others have left, too */
        assert_int_equal(settled(comms[1]), ncclSuccess);
        assert_int_equal(settled(comms[0]), ncclSuccess);
        assert_int_equal(settled(others[0]), ncclSuccess);
        assert_filled(out[0], MANY + 4);
        assert_filled(out[1], MANY);
        pair_destroy(others);
        pair_destroy(comms);
}

/* The ring is full of what others sent: that is no error, since they may end, which here an abort brings about. */
static void test_many_without_room(void **state) {
        static int32_t in[MANY], out[MANY];
        ncclComm_t comms[2], others[2];

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms);
        pair_new(others);
        for (uint32_t i = 0; i < fake.depth; i++)
                assert_int_equal(transfers(others[0], true, in, 1), ncclInProgress);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        assert_int_equal(transfers(comms[1], false, out, MANY), ncclInProgress);
        assert_int_equal(ncclCommAbort(others[0]), ncclSuccess);
        assert_int_equal(settled(comms[1]), ncclSuccess);
        assert_int_equal(settled(comms[0]), ncclSuccess);
        assert_filled(out, MANY);
        pair_destroy(comms);
        assert_int_equal(ncclCommAbort(others[1]), ncclSuccess);
}

/* Within a group of the thread nothing is started: it would become part of that. */
static void test_many_beside_group(void **state) {
        static int32_t in[MANY], out[MANY];
        ncclResult_t asked;
        ncclComm_t comms[2];
        int32_t one = 1, sum[2] = {0};

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        receive(comms[1], out, MANY);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int rank = 0; rank < 2; rank++) {
                assert_int_equal(ncclAllReduce(&one, &sum[rank], 1, ncclInt32, ncclSum, comms[rank], NULL),
                                 ncclSuccess);
                assert_int_equal(ncclCommGetAsyncError(comms[rank], &asked), ncclSuccess);
                assert_int_equal(asked, ncclInProgress);
        }
        asked = ncclGroupEnd();
        assert_true(asked == ncclSuccess || asked == ncclInProgress);
        for (int rank = 0; rank < 2; rank++) {
                assert_int_equal(settled(comms[rank]), ncclSuccess);
                assert_int_equal(sum[rank], 2);
        }
        assert_filled(out, MANY);
        pair_destroy(comms);
}

/* The end of a communicator waits for them. An abort does not, and those of others in the group are given up. */
static void test_many_end(void **state) {
        uint32_t left = fake_calls(&fake, BODY(COMM_DESTROY));
        static int32_t in[2][MANY], out[MANY];
        ncclComm_t comms[2], others[2];

        (void)state;
        fill(in[0], MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms);
        assert_int_equal(transfers(comms[0], true, in[0], MANY), ncclInProgress);
        receive(comms[1], out, MANY);
        pair_destroy(comms);
        assert_filled(out, MANY);

        pair_new(comms);
        pair_new(others);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(transfers(comms[0], true, in[0], MANY), ncclSuccess); /* its end is the outer one's */
        assert_int_equal(transfers(others[0], true, in[1], MANY), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclInProgress);
        assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
        receive(others[1], out, MANY); /* what had been started comes */
        assert_int_equal(settled(others[0]), ncclRemoteError);
        assert_int_equal(ncclCommAbort(others[0]), ncclSuccess);
        assert_int_equal(ncclCommAbort(others[1]), ncclSuccess);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
        fake_wait_calls(&fake, BODY(COMM_DESTROY), left + 6); /* each came to its end, also behind its abort */
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_revoke_heard),
                cmocka_unit_test(test_revoke),
                cmocka_unit_test(test_many),
                cmocka_unit_test(test_many_beside_group),
                cmocka_unit_test(test_many_without_room),
                cmocka_unit_test(test_many_end),
        };
        int r;

        fake_start(&fake);
        must(!setenv("RAILMUX_SOCKET", fake.path, 1));
        r = cmocka_run_group_tests(tests, NULL, NULL);
        fake_stop(&fake); /* the library's session stays until the process ends */
        return r;
}
