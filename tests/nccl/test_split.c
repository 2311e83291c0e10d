/* SPDX-License-Identifier: MIT */
/* Communicators that are made in one group: all come to be, however they are waited for, and of several splits of one
 * parent each is the one that it was called as. */
#include "tests/nccl/pair.h"

struct splitter {
        ncclComm_t comm, first, second;
        pthread_t thread;
        ncclResult_t result;
        int rank;
        bool alone;      /* without rank 1 in the first */
        bool background; /* the first does not block, else the second */
};

static void *split_twice(void *userdata) {
        const ncclConfig_t undefined = NCCL_CONFIG_INITIALIZER;
        struct splitter *s = userdata;
        ncclConfig_t blocks = undefined, patient = undefined;
        int color = s->alone && s->rank == 1 ? NCCL_SPLIT_NOCOLOR : 0;

        blocks.blocking = 1;
        patient.blocking = 0;
        s->result = ncclGroupStart();
        if (s->result)
                return NULL;
        (void)ncclCommSplit(s->comm, color, s->rank, &s->first, s->background ? &patient : &blocks);
        (void)ncclCommSplit(s->comm, 0, s->rank, &s->second, s->background ? &blocks : &patient);
        s->result = ncclGroupEnd();
        return NULL;
}

static void assert_ranks(ncclComm_t comm, int wanted) {
        int n;

        assert_int_equal(settled(comm), ncclSuccess);
        assert_int_equal(ncclCommCount(comm, &n), ncclSuccess);
        assert_int_equal(n, wanted);
        assert_int_equal(ncclCommAbort(comm), ncclSuccess);
}

/* Each rank in a thread of its own, since ranks mostly are in processes of their own. */
static void check_splits(bool parent, bool alone, bool background) {
        struct splitter s[2];
        ncclComm_t comms[2];

        pair_new(comms, parent);
        for (int rank = 0; rank < 2; rank++) {
                s[rank] =
                        (struct splitter){.comm = comms[rank], .rank = rank, .alone = alone, .background = background};
                assert_int_equal(pthread_create(&s[rank].thread, NULL, split_twice, &s[rank]), 0);
        }
        for (int rank = 0; rank < 2; rank++) {
                pthread_join(s[rank].thread, NULL);
                assert_int_equal(settled(comms[rank]), ncclSuccess);
        }
        for (int rank = 0; rank < 2; rank++) {
                assert_true((s[rank].first == NULL) == (alone && rank == 1));
                if (s[rank].first)
                        assert_ranks(s[rank].first, alone ? 1 : 2);
                assert_ranks(s[rank].second, 2);
                /* What does not block is over, too, where a later one was waited for. */
                assert_int_equal(s[rank].result, background ? ncclSuccess : ncclInProgress);
        }
        pair_destroy(comms);
}

static void test_order(void **state) {
        (void)state;
        for (int i = 8; i-- > 0;)
                check_splits(i & 1, i & 2, i & 4);
}

/* ---- ranks of one thread ----------------------------------------------------------------------------------------- */
static ncclConfig_t config_of(bool blocking) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

        config.blocking = blocking;
        return config;
}

/* One that blocks needs one that does not. */
static void test_ranks_of_both_kinds(void **state) {
        ncclComm_t comms[2];
        ncclUniqueId id;

        (void)state;
        for (int patient = 0; patient < 2; patient++) {
                assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
                assert_int_equal(ncclGroupStart(), ncclSuccess);
                for (int rank = 0; rank < 2; rank++) {
                        ncclConfig_t config = config_of(rank != patient);

                        in_progress(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config));
                }
                assert_int_equal(ncclGroupEnd(), ncclInProgress);
                assert_int_equal(ask(comms[!patient]), ncclSuccess);
                assert_int_equal(settled(comms[patient]), ncclSuccess);
                pair_destroy(comms);
        }
}

/* Two splits of each rank: bit 2 * rank + i of `blocking` is of its i-th. */
static void check_kinds(unsigned int blocking) {
        bool left = !(blocking & 2) || !(blocking & 8); /* what comes last, and need not be waited for */
        ncclComm_t comms[2], made[2][2];

        pair_new(comms, true);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int rank = 0; rank < 2; rank++)
                for (int i = 0; i < 2; i++) {
                        ncclConfig_t config = config_of(blocking >> (2 * rank + i) & 1);

                        in_progress(ncclCommSplit(comms[rank], i || rank ? 0 : NCCL_SPLIT_NOCOLOR, rank, &made[rank][i],
                                                  &config));
                }
        assert_int_equal(ncclGroupEnd(), left ? ncclInProgress : ncclSuccess);
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(settled(comms[rank]), ncclSuccess);
        assert_null(made[0][0]);
        assert_ranks(made[1][0], 1);
        for (int rank = 0; rank < 2; rank++)
                assert_ranks(made[rank][1], 2);
        pair_destroy(comms);
}

static void test_splits_of_both_kinds(void **state) {
        (void)state;
        for (unsigned int blocking = 0; blocking < 16; blocking++)
                check_kinds(blocking);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_order),
                cmocka_unit_test(test_ranks_of_both_kinds),
                cmocka_unit_test(test_splits_of_both_kinds),
        };

        return cmocka_run_group_tests(tests, pair_start, pair_stop);
}
