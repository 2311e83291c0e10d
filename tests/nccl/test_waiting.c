/* SPDX-License-Identifier: MIT */
/* Calls that wait for their end, and for room before that. */
#include "tests/nccl/holder.h"
#include "tests/nccl/pair.h"

#include <string.h>

#define FEW 2 /* places that are left: as many requests as a rank has under way at once */

/* Rank 0 waits in its calls. Rank 1 does not: it goes on only while somebody looks after it. */
static void half_new(ncclComm_t comms[2]) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclUniqueId id;

        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        for (int rank = 1; rank >= 0; rank--) {
                config.blocking = !rank;
                in_progress(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config));
        }
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(settled(comms[rank]), ncclSuccess);
}

/* ---- what is left undone ----------------------------------------------------------------------------------------- */
/* A group is given up when some of it has been sent. Nothing comes in the place of the rest. */
static void test_refused_after_part(void **state) {
        static int32_t in[MANY], out[MANY];
        int32_t wrong[2] = {-1, -1}, sum = 0;
        ncclComm_t comms[2], others[2];
        struct holder holder;
        int n = 0;

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        half_new(comms);
        pair_new(others, true);
        holder_start(&holder, fake.depth - FEW);
        receive(comms[1], out, MANY);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclSystemError);
        assert_non_null(strstr(ncclGetLastError(comms[0]), "places for requests"));
        assert_int_equal(ask(comms[0]), ncclSystemError);
        assert_int_equal(transfers(comms[0], true, wrong, 1), ncclSystemError);
        assert_non_null(strstr(ncclGetLastError(comms[0]), "given up"));
        assert_int_equal(transfers(comms[0], true, wrong, 2), ncclSystemError);
        assert_int_equal(ncclAllReduce(wrong, &sum, 1, ncclInt32, ncclSum, comms[0], NULL), ncclSystemError);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclAllReduce(wrong, &sum, 1, ncclInt32, ncclSum, others[0], NULL), ncclSuccess);
        assert_int_equal(ncclAllReduce(wrong, &sum, 1, ncclInt32, ncclSum, comms[0], NULL), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclSystemError);
        assert_int_equal(ask(others[0]), ncclSuccess);
        holder_end(&holder);
        assert_int_equal(ask(comms[1]), ncclInProgress);
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(ncclCommAbort(comms[rank]), ncclSuccess);
        while (n < MANY && out[n])
                n++;
        assert_in_range(n, 1, MANY - 1);
        assert_filled(out, n);
        for (; n < MANY; n++)
                assert_int_equal(out[n], 0);
        pair_destroy(others);
}

/* Nothing of it was: it may be tried again. */
static void test_refused_as_whole(void **state) {
        static int32_t in[MANY], out[MANY];
        struct holder holder;
        ncclComm_t comms[2];

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        pair_new(comms, true);
        holder_start(&holder, fake.depth);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclSystemError);
        assert_int_equal(ask(comms[0]), ncclSuccess);
        holder_end(&holder);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(transfers(comms[rank], !rank, rank ? out : in, MANY), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_filled(out, MANY);
        pair_destroy(comms);
}

/* ---- room -------------------------------------------------------------------------------------------------------- */
struct helper {
        pthread_t thread;
        struct holder *holder;
        ncclComm_t comm; /* it looks after this one */
        uint32_t line;   /* that comes only while the call of the test waits for room */
};

static void *help(void *userdata) {
        struct helper *h = userdata;
        ncclResult_t state = ncclInProgress;

        (void)fake_line(&fake, h->line);
        must(!holder_release(h->holder));
        while (state == ncclInProgress)
                must(!ncclCommGetAsyncError(h->comm, &state));
        must(!state);
        return NULL;
}

/* Places come free when a thread that waits has what it waits for: a group that has found none goes on then. Meanwhile
 * it looks after what rank 1 has called, whose third request begins with that. */
static void test_room_of_thread(void **state) {
        static int32_t in[MANY], out[MANY];
        struct holder holder;
        struct helper helper = {.holder = &holder};
        ncclComm_t comms[2];

        (void)state;
        fill(in, MANY);
        memset(out, 0, sizeof(out));
        half_new(comms);
        holder_start(&holder, fake.depth - FEW);
        helper.comm = comms[1];
        helper.line = fake_lines(&fake) + 2 * FEW;
        receive(comms[1], out, MANY);
        assert_int_equal(pthread_create(&helper.thread, NULL, help, &helper), 0);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclSuccess);
        pthread_join(helper.thread, NULL);
        assert_filled(out, MANY);
        holder_join(&holder);
        pair_destroy(comms);
}

static void *give_up(void *userdata) {
        fake_wait_sleeper(&fake, 1);
        must(!ncclCommAbort(userdata));
        return NULL;
}

/* Nor does it wait for room when its communicator is aborted: that is what it says then. Something of the group was
 * done, so that it would wait for long. While it waits it looks at what rank 1 of another communicator receives, which
 * nobody sends, and nobody else looks at. */
static void test_abort_while_it_waits(void **state) {
        static int32_t in[MANY];
        ncclComm_t comms[2], others[2], alone;
        int32_t one = 1, sum = 0, none = 0;
        struct holder holder;
        pthread_t thread;
        ncclUniqueId id;

        (void)state;
        fill(in, MANY);
        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclCommInitRank(&alone, 1, id, 0), ncclSuccess);
        pair_new(comms, true);
        pair_new(others, false);
        receive(others[1], &none, 1);
        holder_start(&holder, fake.depth - 1);
        assert_int_equal(pthread_create(&thread, NULL, give_up, comms[0]), 0);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, alone, NULL), ncclSuccess);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclRemoteError);
        pthread_join(thread, NULL);
        assert_int_equal(sum, 1);
        assert_int_equal(ask(others[1]), ncclInProgress);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(ncclCommAbort(others[rank]), ncclSuccess);
        holder_end(&holder);
        assert_int_equal(ncclCommDestroy(alone), ncclSuccess);
}

/* Each of several communicators has no more than one request may have; their ring has not the room for all at once. */
static void test_several_on_one_ring(void **state) {
        enum { PAIRS = 4, EACH = 450 };
        static int32_t in[EACH], out[PAIRS][EACH];
        ncclComm_t pairs[PAIRS][2];

        (void)state;
        fill(in, EACH);
        memset(out, 0, sizeof(out));
        for (int i = 0; i < PAIRS; i++)
                pair_new(pairs[i], true);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int i = 0; i < PAIRS; i++) {
                assert_int_equal(transfers(pairs[i][0], true, in, EACH), ncclSuccess);
                assert_int_equal(transfers(pairs[i][1], false, out[i], EACH), ncclSuccess);
        }
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        for (int i = 0; i < PAIRS; i++) {
                assert_filled(out[i], EACH);
                pair_destroy(pairs[i]);
        }
}

/* More collectives than a ring has places for, with transfers behind them and a reduction that is gone by then. */
enum { CALLS = 300 };

static void call_many(ncclComm_t comm, const int32_t *in, int32_t *sums, bool sends, int32_t *values, int n) {
        int32_t three = 3;
        ncclRedOp_t redop;

        assert_int_equal(ncclRedOpCreatePreMulSum(&redop, &three, ncclInt32, ncclScalarHostImmediate, comm),
                         ncclSuccess);
        for (int i = 0; i < CALLS; i++)
                assert_int_equal(ncclAllReduce(&in[i], &sums[i], 1, ncclInt32, i % 100 ? ncclSum : redop, comm, NULL),
                                 ncclSuccess);
        assert_int_equal(ncclRedOpDestroy(redop, comm), ncclSuccess);
        assert_int_equal(transfers(comm, sends, values, n), ncclSuccess);
}

/* If they block, both ranks are in one group, or the first would wait for the second. */
static void check_collectives(bool blocking, int n) {
        static int32_t in[MANY], out[MANY], sums[2][CALLS];
        ncclComm_t comms[2];

        fill(in, MANY);
        memset(out, 0, sizeof(out));
        memset(sums, 0, sizeof(sums));
        pair_new(comms, blocking);
        for (int rank = 0; rank < 2; rank++) {
                if (!blocking || !rank)
                        assert_int_equal(ncclGroupStart(), ncclSuccess);
                call_many(comms[rank], in, sums[rank], !rank, rank ? out : in, n);
                if (!blocking || rank)
                        in_progress(ncclGroupEnd());
        }
        for (int rank = 0; rank < 2; rank++) {
                assert_int_equal(settled(comms[rank]), ncclSuccess);
                for (int i = 0; i < CALLS; i++)
                        assert_int_equal(sums[rank][i], (i % 100 ? 2 : 6) * in[i]);
        }
        assert_filled(out, n);
        pair_destroy(comms);
}

static void test_many_collectives(void **state) {
        const int n_transfers[] = {0, 1, MANY};

        (void)state;
        for (int i = 0; i < 6; i++)
                check_collectives(i & 1, n_transfers[i / 2]);
}

/* All places of rank 0's ring are those of calls that are over and that nobody has asked for. */
static void fill_unasked(ncclComm_t comms[2], int32_t *in, int32_t *out) {
        for (uint32_t i = 0; i < fake.depth; i++)
                for (int rank = 0; rank < 2; rank++)
                        in_progress(transfers(comms[rank], !rank, rank ? &out[i] : &in[i], 1));
        assert_int_equal(settled(comms[1]), ncclSuccess);
}

/* A call that waits looks after them, whatever it is. */
static void test_room_of_unasked(void **state) {
        static int32_t in[MANY], out[MANY];
        ncclComm_t comms[2], others[2], alone;
        int32_t one = 1, sum[2] = {0};
        ncclUniqueId id;

        (void)state;
        fill(in, MANY);
        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclCommInitRank(&alone, 1, id, 0), ncclSuccess);
        pair_new(comms, false);
        pair_new(others, true);
        fill_unasked(comms, in, out);
        assert_int_equal(ncclAllReduce(&one, &sum[0], 1, ncclInt32, ncclSum, alone, NULL), ncclSuccess);
        assert_int_equal(sum[0], 1);
        for (int n = 0; n < 3; n++) { /* transfers: none, few, many */
                const int numbers[] = {0, 2, MANY};

                memset(sum, 0, sizeof(sum));
                fill_unasked(comms, in, out);
                memset(out, 0, sizeof(out));
                assert_int_equal(ncclGroupStart(), ncclSuccess);
                for (int rank = 0; rank < 2; rank++) {
                        assert_int_equal(ncclAllReduce(&one, &sum[rank], 1, ncclInt32, ncclSum, others[rank], NULL),
                                         ncclSuccess);
                        assert_int_equal(transfers(others[rank], !rank, rank ? out : in, numbers[n]), ncclSuccess);
                }
                assert_int_equal(ncclGroupEnd(), ncclSuccess);
                assert_filled(out, numbers[n]);
                assert_int_equal(sum[0], 2);
                assert_int_equal(sum[1], 2);
        }
        assert_int_equal(settled(comms[0]), ncclSuccess);
        pair_destroy(comms);
        pair_destroy(others);
        assert_int_equal(ncclCommDestroy(alone), ncclSuccess);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_refused_after_part),  cmocka_unit_test(test_refused_as_whole),
                cmocka_unit_test(test_room_of_thread),      cmocka_unit_test(test_abort_while_it_waits),
                cmocka_unit_test(test_several_on_one_ring), cmocka_unit_test(test_room_of_unasked),
                cmocka_unit_test(test_many_collectives),
        };

        return cmocka_run_group_tests(tests, pair_start, pair_stop);
}
