/* SPDX-License-Identifier: MIT */
/* Several splits of one parent in one group: each is the one that it was called as, however it is waited for. */
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

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_order),
        };

        return cmocka_run_group_tests(tests, pair_start, pair_stop);
}
