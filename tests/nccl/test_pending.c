/* SPDX-License-Identifier: MIT */
/* Communicators that do not block: what is called is begun, in its order, and ends for each by itself. */
#include "tests/nccl/pair.h"

#include <string.h>

/* Nobody receives yet, so an end that waited would wait for ever. What comes later does not overtake, and who finds no
 * room waits for those that have it. */
static void test_many(void **state) {
        static int32_t in[MANY + 4], out[2][MANY + 4];
        ncclComm_t comms[2], others[2];

        (void)state;
        fill(in, MANY + 4);
        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        pair_new(others, false);
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

/* Within a group of the thread nothing is started: it would become part of that. */
static void test_many_beside_group(void **state) {
        static int32_t in[MANY], out[MANY];
        ncclComm_t comms[2];
        int32_t one = 1, sum[2] = {0};
        uint32_t lines;

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        fake_pause(&fake, true);
        lines = fake_lines(&fake);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        receive(comms[1], out, MANY);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        fake_pause(&fake, false);
        await_lines(comms[0], lines + 4); /* two requests of each run, after which there is room */
        for (int rank = 0; rank < 2; rank++) {
                assert_int_equal(ncclAllReduce(&one, &sum[rank], 1, ncclInt32, ncclSum, comms[rank], NULL),
                                 ncclSuccess);
                assert_int_equal(ask(comms[rank]), ncclInProgress);
        }
        assert_int_equal(fake_lines(&fake), lines + 4);
        in_progress(ncclGroupEnd());
        for (int rank = 0; rank < 2; rank++) {
                assert_int_equal(settled(comms[rank]), ncclSuccess);
                assert_int_equal(sum[rank], 2);
        }
        assert_filled(out, MANY);
        pair_destroy(comms);
}

/* The end of a communicator waits for them. An abort does not, and the others of the group do not notice. */
static void test_many_end(void **state) {
        uint32_t left = fake_calls(&fake, BODY(COMM_DESTROY));
        static int32_t in[2][MANY], out[MANY];
        ncclComm_t comms[2], others[2];

        (void)state;
        fill(in[0], MANY);
        fill(in[1], MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        assert_int_equal(transfers(comms[0], true, in[0], MANY), ncclInProgress);
        receive(comms[1], out, MANY);
        pair_destroy(comms);
        assert_filled(out, MANY);

        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        pair_new(others, false);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(transfers(comms[0], true, in[0], MANY), ncclSuccess); /* its end is the outer one's */
        assert_int_equal(transfers(others[0], true, in[1], MANY), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclInProgress);
        assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
        receive(others[1], out, MANY);
        assert_int_equal(settled(others[0]), ncclSuccess);
        assert_int_equal(settled(others[1]), ncclSuccess);
        assert_filled(out, MANY);
        pair_destroy(others);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
        fake_wait_calls(&fake, BODY(COMM_DESTROY), left + 6); /* each came to its end, also behind its abort */
}

/* The same where all of the group could be started at once. */
static void test_abort_of_one(void **state) {
        int32_t in[2] = {1, 2}, out[2] = {0}, one = 1, sum[2] = {0};
        ncclComm_t comms[2], others[2];

        (void)state;
        for (int first = 0; first < 2; first++) { /* in the order of the group, and against it */
                pair_new(comms, false);
                pair_new(others, false);
                assert_int_equal(ncclGroupStart(), ncclSuccess);
                for (int i = 0; i < 2; i++) {
                        ncclComm_t *pair = i == first ? comms : others;

                        assert_int_equal(
                                ncclAllReduce(&one, &sum[pair == others], 1, ncclInt32, ncclSum, pair[1], NULL),
                                ncclSuccess);
                        assert_int_equal(transfers(pair[1], false, &out[pair == others], 1), ncclSuccess);
                }
                assert_int_equal(ncclGroupEnd(), ncclInProgress);
                assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
                assert_int_equal(ask(others[1]), ncclInProgress);
                in_progress(ncclAllReduce(&one, &sum[0], 1, ncclInt32, ncclSum, others[0], NULL));
                receive_or_send(others[0], true, &in[1], 1);
                assert_int_equal(settled(others[0]), ncclSuccess);
                assert_int_equal(settled(others[1]), ncclSuccess);
                assert_int_equal(out[1], 2);
                assert_int_equal(sum[1], 2);
                assert_int_equal(out[0], 0);
                assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
                pair_destroy(others);
                out[1] = sum[1] = 0;
        }
}

/* ---- order ------------------------------------------------------------------------------------------------------- */
/* A collective, alone or in a group, behind sends that are not started yet; the other rank has come further with its
 * receives when it calls the same. */
static void collective_behind(bool grouped, bool two) {
        static int32_t in[MANY + 1], out[MANY + 1];
        ncclComm_t comms[2], others[2];
        int32_t one[2] = {1, 10}, sum[2] = {0}, more[2] = {0};
        uint32_t lines;

        fill(in, MANY + 1);
        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        pair_new(others, false);
        lines = fake_lines(&fake);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        for (int rank = 0; rank < 2; rank++) {
                if (rank == 1) {
                        receive(comms[1], out, MANY);
                        await_lines(comms[1], lines + 7);
                }
                if (grouped)
                        assert_int_equal(ncclGroupStart(), ncclSuccess);
                in_progress(ncclAllReduce(&one[rank], &sum[rank], 1, ncclInt32, ncclSum, comms[rank], NULL));
                if (grouped) {
                        receive_or_send(comms[rank], !rank, rank ? &out[MANY] : &in[MANY], 1);
                        if (two)
                                in_progress(ncclAllReduce(&one[rank], &more[rank], 1, ncclInt32, ncclSum, others[rank],
                                                          NULL));
                        in_progress(ncclGroupEnd());
                }
        }
        for (int rank = 0; rank < 2; rank++) {
                assert_int_equal(settled(comms[rank]), ncclSuccess);
                assert_int_equal(settled(others[rank]), ncclSuccess);
                assert_int_equal(sum[rank], 11);
                assert_int_equal(more[rank], two ? 11 : 0);
        }
        assert_filled(out, MANY + grouped);
        pair_destroy(others);
        pair_destroy(comms);
}

/* A run fails in its middle while what it began is under way: nothing comes in the place of the rest. */
static void test_nothing_behind_a_failure(void **state) {
        static int32_t in[MANY], out[MANY];
        ncclComm_t comms[2], others[2];
        int32_t one = 1, sum[2] = {0}, more = 0;
        void *memory = NULL;
        uint32_t lines;

        (void)state;
        pair_new(comms, false);
        pair_new(others, false);
        assert_int_equal(ncclMemAlloc(&memory, 4096), ncclSuccess);
        lines = fake_lines(&fake);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        in_progress(ncclAllReduce(&one, &sum[0], 1, ncclInt32, ncclSum, comms[0], NULL));
        /* Its output ends behind the memory that it begins in. */
        in_progress(ncclAllReduce(in, (char *)memory + 4092, 2, ncclInt32, ncclSum, comms[0], NULL));
        in_progress(ncclAllReduce(&one, &more, 1, ncclInt32, ncclSum, others[0], NULL));
        in_progress(ncclGroupEnd());
        await_lines(comms[0], lines + 2);
        in_progress(ncclAllReduce(&one, out, 1, ncclInt32, ncclSum, comms[0], NULL));
        for (int rank = 1; rank >= 0; rank--) /* behind that in rank 0's ring, if it were there */
                in_progress(ncclAllReduce(&one, &more, 1, ncclInt32, ncclSum, others[!rank], NULL));
        in_progress(ncclAllReduce(&one, &sum[1], 1, ncclInt32, ncclSum, others[1], NULL));
        assert_int_equal(settled(others[1]), ncclSuccess);
        assert_int_equal(settled(others[0]), ncclSuccess);
        assert_int_equal(fake_lines(&fake), lines + 5);
        in_progress(ncclAllReduce(&one, &sum[1], 1, ncclInt32, ncclSum, comms[1], NULL));
        assert_int_equal(settled(comms[0]), ncclInvalidArgument);
        assert_int_equal(ncclAllReduce(&one, out, 1, ncclInt32, ncclSum, comms[0], NULL), ncclInvalidArgument);
        assert_int_equal(settled(comms[1]), ncclSuccess);
        assert_int_equal(sum[0], 2);
        assert_int_equal(ncclMemFree(memory), ncclSuccess);
        assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
        assert_int_equal(ncclCommDestroy(comms[1]), ncclSuccess);
        pair_destroy(others);
}

/* Its end would wait, and issue all at once. */
static void test_mixed_group_behind(void **state) {
        static int32_t in[MANY], out[MANY];
        ncclComm_t comms[2], others[2];
        int32_t one = 1, sum = 0;

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        pair_new(others, true);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        in_progress(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, others[0], NULL));
        in_progress(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comms[0], NULL));
        assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
        assert_non_null(strstr(ncclGetLastError(NULL), "groups of their own"));
        receive(comms[1], out, MANY);
        assert_int_equal(settled(comms[1]), ncclSuccess);
        assert_int_equal(settled(comms[0]), ncclSuccess);
        assert_filled(out, MANY);
        pair_destroy(others);
        pair_destroy(comms);
}

static void test_collective_behind(void **state) {
        (void)state;
        collective_behind(false, false);
        collective_behind(true, false);
        collective_behind(true, true);
}

/* A call that waits keeps what its caller may take away when it returns. */
static void test_arguments_kept(void **state) {
        static int32_t in[MANY], out[MANY];
        int32_t values[2][2] = {{1, 2}, {3, 4}}, product[2] = {0}, factor = 5, shuffled[2][2] = {{0}};
        ncclComm_t comms[2];

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        for (int rank = 0; rank < 2; rank++) {
                size_t counts[2] = {1, 1}, at[2] = {1, 0};
                ncclRedOp_t op;

                in_progress(transfers(comms[rank], !rank, rank ? out : in, MANY));
                assert_int_equal(
                        ncclRedOpCreatePreMulSum(&op, &factor, ncclInt32, ncclScalarHostImmediate, comms[rank]),
                        ncclSuccess);
                in_progress(ncclAllReduce(values[rank], &product[rank], 1, ncclInt32, op, comms[rank], NULL));
                assert_int_equal(ncclRedOpDestroy(op, comms[rank]), ncclSuccess);
                assert_int_equal(ncclRedOpDestroy(op, comms[rank]), ncclInvalidArgument);
                in_progress(ncclAlltoAllv(values[rank], counts, at, shuffled[rank], counts, at, ncclInt32, comms[rank],
                                          NULL));
                memset(counts, 0x55, sizeof(counts));
                memset(at, 0x55, sizeof(at));
        }
        for (int rank = 0; rank < 2; rank++) {
                assert_int_equal(settled(comms[rank]), ncclSuccess);
                assert_int_equal(product[rank], 5 * (1 + 3));
                assert_int_equal(shuffled[rank][1], rank ? 1 : 2); /* places 1 and 0: what rank 0 has at 1 - rank */
                assert_int_equal(shuffled[rank][0], rank ? 3 : 4);
        }
        assert_filled(out, MANY);
        pair_destroy(comms);
}

/* What is wrong with a call is said at once, whatever it would have to wait for. */
static void test_wrong_behind(void **state) {
        static int32_t in[MANY], out[MANY];
        ncclComm_t comms[2];

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms, false);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        assert_int_equal(ncclAllReduce(in, out, 1, (ncclDataType_t)77, ncclSum, comms[0], NULL), ncclInvalidArgument);
        assert_int_equal(ncclBroadcast(in, out, 1, ncclInt32, 5, comms[0], NULL), ncclInvalidArgument);
        assert_int_equal(ncclSend(in, 1, ncclInt32, 5, comms[0], NULL), ncclInvalidArgument);
        assert_int_equal(ncclSend(in, 1, ncclInt32, 0, comms[0], NULL), ncclInvalidUsage); /* to itself, alone */
        receive(comms[1], out, MANY);
        assert_int_equal(settled(comms[1]), ncclSuccess);
        assert_int_equal(settled(comms[0]), ncclSuccess);
        assert_filled(out, MANY);
        pair_destroy(comms);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */
enum { THREADS = 3, ROUNDS = 5 };

struct worker {
        pthread_t thread;
        ncclComm_t comms[2], others[2];
        int32_t in[MANY], out[MANY], sum[2];
};

static bool is_good(ncclResult_t result) {
        return result == ncclSuccess || result == ncclInProgress;
}

/* Of all that there is only a part has room at once. A group of two communicators, a collective behind, and looks, for
 * which others' requests are started, too. */
static void *work(void *userdata) {
        struct worker *w = userdata;
        int32_t one = 1;

        for (int round = 0; round < ROUNDS; round++) {
                memset(w->out, 0, sizeof(w->out));
                for (int rank = 0; rank < 2; rank++) {
                        must(!ncclGroupStart());
                        for (int i = 0; i < MANY; i++) {
                                ncclComm_t comm = i < MANY / 2 ? w->comms[rank] : w->others[rank];

                                must(!(rank ? ncclRecv(&w->out[i], 1, ncclInt32, 0, comm, NULL)
                                            : ncclSend(&w->in[i], 1, ncclInt32, 1, comm, NULL)));
                        }
                        must(is_good(ncclGroupEnd()));
                        must(is_good(ncclAllReduce(&one, &w->sum[rank], 1, ncclInt32, ncclSum, w->comms[rank], NULL)));
                }
                for (int i = 0; i < 4; i++) {
                        ncclResult_t state = ncclInProgress;

                        while (state == ncclInProgress)
                                must(!ncclCommGetAsyncError(i < 2 ? w->comms[i] : w->others[i - 2], &state));
                        must(!state);
                }
                must(w->sum[0] == 2 && w->sum[1] == 2 && !memcmp(w->in, w->out, sizeof(w->in)));
        }
        return NULL;
}

static void test_threads(void **state) {
        static struct worker workers[THREADS];

        (void)state;
        for (int i = 0; i < THREADS; i++) {
                fill(workers[i].in, MANY);
                pair_new(workers[i].comms, false);
                pair_new(workers[i].others, false);
        }
        for (int i = 0; i < THREADS; i++)
                must(!pthread_create(&workers[i].thread, NULL, work, &workers[i]));
        for (int i = 0; i < THREADS; i++)
                pthread_join(workers[i].thread, NULL);
        for (int i = 0; i < THREADS; i++) {
                pair_destroy(workers[i].others);
                pair_destroy(workers[i].comms);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_many),
                cmocka_unit_test(test_many_beside_group),
                cmocka_unit_test(test_many_end),
                cmocka_unit_test(test_abort_of_one),
                cmocka_unit_test(test_collective_behind),
                cmocka_unit_test(test_nothing_behind_a_failure),
                cmocka_unit_test(test_mixed_group_behind),
                cmocka_unit_test(test_arguments_kept),
                cmocka_unit_test(test_wrong_behind),
                cmocka_unit_test(test_threads),
        };

        return cmocka_run_group_tests(tests, pair_start, pair_stop);
}
