/* SPDX-License-Identifier: MIT */
/* More than there is room for: who waits, who is told, and that nobody waits for ever. */
#include "tests/nccl/holder.h"
#include "tests/nccl/pair.h"

#include <string.h>

/* The ring is full of what others sent: that is no error, since they may end, which here an abort brings about. What
 * never began can be aborted, too. */
static void test_many_without_room(void **state) {
        uint32_t left = fake_calls(&fake, BODY(COMM_DESTROY));
        static int32_t in[MANY], out[MANY];
        ncclComm_t comms[2], others[2], third[2];

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        pair_new(others, false);
        pair_new(third, false);
        for (uint32_t i = 0; i < fake.depth; i++)
                assert_int_equal(transfers(others[0], true, in, 1), ncclInProgress);
        assert_int_equal(transfers(third[0], true, in, MANY), ncclInProgress);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        assert_int_equal(transfers(comms[1], false, out, MANY), ncclInProgress);
        assert_int_equal(ncclCommAbort(third[0]), ncclSuccess);
        fake_wait_calls(&fake, BODY(COMM_DESTROY), left + 1); /* it came to its end */
        assert_int_equal(ask(comms[0]), ncclInProgress);
        assert_int_equal(ncclCommAbort(others[0]), ncclSuccess);
        assert_int_equal(settled(comms[1]), ncclSuccess);
        assert_int_equal(settled(comms[0]), ncclSuccess);
        assert_filled(out, MANY);
        pair_destroy(comms);
        assert_int_equal(ncclCommAbort(others[1]), ncclSuccess);
        assert_int_equal(ncclCommAbort(third[1]), ncclSuccess);
}

/* ---- room -------------------------------------------------------------------------------------------------------- */
/* Others' calls have ended and hold all room; nobody asks for those. */
static void test_room_of_ended(void **state) {
        static int32_t in[MANY], out[MANY], single[2];
        ncclComm_t comms[2], others[2];

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        pair_new(others, false);
        for (uint32_t i = 0; i < fake.depth; i++)
                assert_int_equal(transfers(others[0], true, in, 1), ncclInProgress);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        for (uint32_t i = 0; i < fake.depth; i++)
                receive(others[1], single, 1);
        receive(comms[1], out, MANY);
        assert_int_equal(settled(comms[1]), ncclSuccess);
        assert_int_equal(settled(comms[0]), ncclSuccess);
        assert_filled(out, MANY);
        pair_destroy(others);
        pair_destroy(comms);
}

/* So does a call that is no part of a run, though the oldest, which is on another GPU, has not ended. */
static void test_room_of_ended_for_one(void **state) {
        ncclComm_t comms[2], others[2];
        int32_t in = 7, out = 0;

        (void)state;
        pair_new(comms, false);
        pair_new(others, false);
        receive(comms[1], &out, 1); /* nobody sends it yet */
        for (uint32_t i = 0; i < fake.depth; i++)
                assert_int_equal(transfers(others[0], true, &in, 1), ncclInProgress);
        for (uint32_t i = 1; i < fake.depth; i++) /* its ring has room for one less */
                receive(others[1], &out, 1);
        assert_int_equal(settled(others[1]), ncclSuccess);
        assert_int_equal(transfers(others[0], true, &in, 1), ncclInProgress);
        in_progress(transfers(comms[0], true, &in, 1));
        assert_int_equal(settled(comms[1]), ncclSuccess);
        for (int i = 0; i < 2; i++)
                receive(others[1], &out, 1);
        pair_destroy(others);
        pair_destroy(comms);
        assert_int_equal(out, 7);
}

static void limit_memory(uint64_t bytes) {
        pthread_mutex_lock(&fake.mutex);
        fake.max_bytes = bytes;
        pthread_mutex_unlock(&fake.mutex);
}

/* Each waits for the other to make room, and neither can: both say so, and what was called behind them is not done in
 * their place. */
static void test_never_room(void **state) {
        enum { PIECES = 600, PIECE = 16384 };
        static int32_t piece[PIECE], out[3];
        ncclComm_t comms[2], others[2], third[2];
        int32_t in = 7, sum = 0;
        uint32_t lines;

        (void)state;
        pair_new(comms, false);
        pair_new(others, false);
        pair_new(third, false);
        assert_int_equal(transfers(third[0], true, &in, 1), ncclInProgress); /* what the runs have patience for */
        limit_memory(1 << 20);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(ncclGroupStart(), ncclSuccess);
                for (int k = 0; k < PIECES; k++)
                        assert_int_equal(ncclSend(piece, PIECE, ncclInt32, 1, i ? others[0] : comms[0], NULL),
                                         ncclSuccess);
                assert_int_equal(ncclGroupEnd(), ncclInProgress);
        }
        assert_int_equal(transfers(others[0], true, &in, 1), ncclInProgress);
        assert_int_equal(ask(comms[0]), ncclInProgress);
        receive(third[1], out, 1);
        assert_int_equal(settled(third[0]), ncclSuccess);
        lines = fake_lines(&fake);
        assert_int_equal(settled(comms[0]), ncclSystemError);
        assert_int_equal(settled(others[0]), ncclSystemError);
        assert_non_null(strstr(ncclGetLastError(others[0]), "limit of bytes"));
        limit_memory(UINT64_MAX);
        assert_int_equal(ncclAllReduce(&in, &sum, 1, ncclInt32, ncclSum, comms[0], NULL), ncclSystemError);
        assert_non_null(strstr(ncclGetLastError(comms[0]), "given up"));
        assert_int_equal(transfers(others[0], true, &in, 1), ncclSystemError);
        assert_int_equal(transfers(others[0], true, &in, 2), ncclSystemError);
        assert_int_equal(fake_lines(&fake), lines);
        pair_destroy(third);
        for (int rank = 0; rank < 2; rank++) {
                assert_int_equal(ncclCommAbort(comms[rank]), ncclSuccess);
                assert_int_equal(ncclCommAbort(others[rank]), ncclSuccess);
        }
}

/* Of some communicators rank 0 has called first, of as many others rank 1. Each half takes all room for arguments of
 * its ring, and needs the other half, for which there would be none. */
static void many_crossed(uint32_t n, int n_transfers) {
        enum { PAIRS_MAX = 12 };
        static int32_t in[MANY], out[PAIRS_MAX][MANY];
        ncclComm_t pairs[PAIRS_MAX][2];

        fill(in, MANY);
        memset(out, 0, sizeof(out));
        for (uint32_t i = 0; i < n; i++)
                pair_new(pairs[i], false);
        for (uint32_t i = 0; i < 2 * n; i++) {
                bool sends = (i % n < n / 2) == (i < n);

                in_progress(transfers(pairs[i % n][!sends], sends, sends ? in : out[i % n], n_transfers));
        }
        for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(settled(pairs[i][0]), ncclSuccess);
                assert_int_equal(settled(pairs[i][1]), ncclSuccess);
                assert_filled(out[i], n_transfers);
        }
        for (uint32_t i = 0; i < n; i++)
                pair_destroy(pairs[i]);
}

static void test_many_crossed(void **state) {
        (void)state;
        many_crossed(6, MANY);
        many_crossed(12, MANY / 5); /* more would take the ring's places round */
}

/* Groups that are one request each leave less room than a run's request would have: it makes do with that. */
static void test_room_left(void **state) {
        enum { GROUPS = 7, GROUP = 200 };
        static int32_t in[MANY], out[2][MANY];
        ncclComm_t comms[2], others[2];

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        pair_new(others, false);
        for (int i = 0; i < GROUPS; i++)
                assert_int_equal(transfers(others[0], true, in + i * GROUP, GROUP), ncclInProgress);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        receive(comms[1], out[0], MANY);
        assert_int_equal(settled(comms[1]), ncclSuccess);
        assert_int_equal(settled(comms[0]), ncclSuccess);
        assert_filled(out[0], MANY);
        receive(others[1], out[1], GROUPS * GROUP);
        assert_int_equal(settled(others[1]), ncclSuccess);
        assert_int_equal(settled(others[0]), ncclSuccess);
        assert_filled(out[1], GROUPS * GROUP);
        pair_destroy(others);
        pair_destroy(comms);
}

/* ---- room of calls that wait ------------------------------------------------------------------------------------- */
/* Nothing of those that do not block is under way, and yet there will be room. */
static void test_room_of_waiting(void **state) {
        struct holder holder;
        static int32_t in[MANY], out[MANY];
        ncclComm_t comms[2];

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        holder_start(&holder, fake.depth);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        assert_int_equal(ask(comms[0]), ncclInProgress);
        holder_end(&holder);
        receive(comms[1], out, MANY);
        assert_int_equal(settled(comms[1]), ncclSuccess);
        assert_int_equal(settled(comms[0]), ncclSuccess);
        assert_filled(out, MANY);
        pair_destroy(comms);
}

static void *release(void *userdata) {
        must(!holder_release(userdata));
        return NULL;
}

/* So does one call by itself wait for them. */
static void test_room_of_waiting_for_one(void **state) {
        struct holder holder;
        int32_t in = 7, out = 0;
        pthread_t thread;
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, false);
        holder_start(&holder, fake.depth);
        assert_int_equal(pthread_create(&thread, NULL, release, &holder), 0);
        assert_int_equal(transfers(comms[0], true, &in, 1), ncclInProgress);
        pthread_join(thread, NULL);
        holder_join(&holder);
        receive(comms[1], &out, 1);
        assert_int_equal(settled(comms[1]), ncclSuccess);
        assert_int_equal(settled(comms[0]), ncclSuccess);
        assert_int_equal(out, 7);
        pair_destroy(comms);
}

/* Those who wait may wait for what this thread calls only when its own has ended: then it is told in the end. */
static void test_room_of_waiting_for_this(void **state) {
        struct holder holder;
        static int32_t in[MANY];
        ncclComm_t comms[2];

        (void)state;
        fill(in, MANY);
        pair_new(comms, false);
        holder_start(&holder, fake.depth);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        assert_int_equal(settled(comms[0]), ncclSystemError);
        assert_non_null(strstr(ncclGetLastError(comms[0]), "places for requests"));
        holder_end(&holder);
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(ncclCommAbort(comms[rank]), ncclSuccess);
}

/* One call by itself waits a second, and then says what had no room, not how long it has waited for others. */
static void test_no_room_for_one(void **state) {
        struct holder holder;
        int32_t in = 7, out = 0;
        ncclComm_t comms[2], others[2];

        (void)state;
        pair_new(comms, false);
        pair_new(others, false);
        holder_start(&holder, fake.depth - 1);
        assert_int_equal(transfers(others[0], true, &in, 1), ncclInProgress);
        assert_int_equal(transfers(comms[0], true, &in, 1), ncclSystemError);
        assert_non_null(strstr(ncclGetLastError(comms[0]), "places for requests"));
        holder_end(&holder);
        receive(others[1], &out, 1);
        assert_int_equal(settled(others[1]), ncclSuccess);
        assert_int_equal(out, 7);
        pair_destroy(others);
        pair_destroy(comms);
}

/* ---- groups that are waited for ---------------------------------------------------------------------------------- */
/* One of both ranks, with a collective and more transfers than one request may have. */
static ncclResult_t whole(ncclComm_t comms[2], int32_t *in, int32_t *out, int32_t sum[2], uint32_t n_collectives) {
        static int32_t one = 1;

        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int rank = 0; rank < 2; rank++) {
                assert_int_equal(transfers(comms[rank], !rank, rank ? out : in, MANY), ncclSuccess);
                for (uint32_t i = 0; i < n_collectives; i++)
                        assert_int_equal(ncclAllReduce(&one, &sum[rank], 1, ncclInt32, ncclSum, comms[rank], NULL),
                                         ncclSuccess);
        }
        return ncclGroupEnd();
}

static void test_many_waited_for(void **state) {
        static int32_t in[MANY], out[MANY];
        ncclComm_t comms[2];
        int32_t sum[2] = {0};
        uint32_t lines;

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms, true);
        lines = fake_lines(&fake);
        assert_int_equal(whole(comms, in, out, sum, fake.depth + 1), ncclInvalidArgument); /* more than a ring takes */
        assert_non_null(strstr(ncclGetLastError(comms[0]), "a group may have"));
        assert_int_equal(fake_lines(&fake), lines); /* nothing of it has happened */
        assert_int_equal(whole(comms, in, out, sum, 3), ncclSuccess);
        assert_int_equal(sum[0], 2);
        assert_int_equal(sum[1], 2);
        assert_filled(out, MANY);
        pair_destroy(comms);
}

/* What a collective of the group says is its result, and what stands behind it is not begun. */
static void test_many_behind_failure(void **state) {
        static int32_t in[MANY], out[MANY];
        ncclComm_t comms[2];
        int32_t sum[2] = {0};

        (void)state;
        fill(in, MANY);
        pair_new(comms, true);
        fake_force(&fake, RMX_E_DEVICE_LOST);
        assert_int_equal(whole(comms, in, out, sum, 1), ncclUnhandledCudaError);
        assert_non_null(strstr(ncclGetLastError(comms[0]), "context of GPU"));
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(ncclCommAbort(comms[rank]), ncclSuccess);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_many_without_room),
                cmocka_unit_test(test_room_of_ended),
                cmocka_unit_test(test_room_of_ended_for_one),
                cmocka_unit_test(test_never_room),
                cmocka_unit_test(test_many_crossed),
                cmocka_unit_test(test_room_left),
                cmocka_unit_test(test_room_of_waiting_for_one),
                cmocka_unit_test(test_room_of_waiting),
                cmocka_unit_test(test_room_of_waiting_for_this),
                cmocka_unit_test(test_no_room_for_one),
                cmocka_unit_test(test_many_waited_for),
                cmocka_unit_test(test_many_behind_failure),
        };

        return cmocka_run_group_tests(tests, pair_start, pair_stop);
}
