/* SPDX-License-Identifier: MIT */
/* How handles end while something else is under way, on a node: groups that are open, that fail, that abort. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/nccl/nccl.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"

static struct node node;

#define CHECK(call)                                                                                                    \
        do {                                                                                                           \
                ncclResult_t result_ = (call);                                                                         \
                                                                                                                       \
                if (result_ != ncclSuccess)                                                                            \
                        fail_msg("%s: %d, %s", #call, result_, ncclGetLastError(NULL));                                \
        } while (0)

static void reduce(ncclComm_t *comm, int n) {
        float in[3] = {3, 4, 5}, out[3] = {-1, -1, -1};

        CHECK(ncclGroupStart());
        for (int r = 0; r < n; r++)
                CHECK(ncclAllReduce(&in[r], &out[r], 1, ncclFloat32, ncclSum, comm[r], NULL));
        CHECK(ncclGroupEnd());
        for (int r = 0; r < n; r++)
                assert_true(out[r] == (float)(n * (n - 1) / 2 + 3 * n));
}

/* The end of the group issues a call that no other rank makes; the abort in the same group must be before it. */
static void test_abort_in_group(void **state) {
        float x = 1, y = -1;
        ncclComm_t comm[2];

        (void)state;
        CHECK(ncclCommInitAll(comm, 2, NULL));
        CHECK(ncclGroupStart());
        CHECK(ncclAllReduce(&x, &y, 1, ncclFloat32, ncclSum, comm[0], NULL));
        CHECK(ncclCommAbort(comm[0]));
        assert_int_equal(ncclGroupEnd(), ncclRemoteError);
        CHECK(ncclCommAbort(comm[1]));
        assert_true(y == -1);
}

struct holder {
        ncclComm_t comm;
        pthread_barrier_t barrier;
        ncclResult_t result;
};

static void *group_held(void *userdata) {
        struct holder *h = userdata;
        float x = 1, y;

        h->result = ncclGroupStart();
        if (!h->result)
                h->result = ncclAllReduce(&x, &y, 1, ncclFloat32, ncclSum, h->comm, NULL);
        pthread_barrier_wait(&h->barrier);
        pthread_barrier_wait(&h->barrier);
        if (!h->result)
                h->result = ncclGroupEnd();
        return NULL;
}

/* The group's end comes after the abort, and finds the communicator still there. */
static void test_abort_held(void **state) {
        struct holder h;
        pthread_t thread;
        ncclComm_t comm[2];

        (void)state;
        CHECK(ncclCommInitAll(comm, 2, NULL));
        h.comm = comm[0];
        pthread_barrier_init(&h.barrier, NULL, 2);
        assert_int_equal(pthread_create(&thread, NULL, group_held, &h), 0);
        pthread_barrier_wait(&h.barrier);
        CHECK(ncclCommAbort(comm[0]));
        pthread_barrier_wait(&h.barrier);
        pthread_join(thread, NULL);
        assert_int_equal(h.result, ncclRemoteError);
        pthread_barrier_destroy(&h.barrier);
        CHECK(ncclCommAbort(comm[1]));
}

/* What a failed group would have made is gone, and ending it there is no second end. */
static void test_made_and_ended(void **state) {
        ncclComm_t made, again[2];
        ncclUniqueId id;
        float x;

        (void)state;
        CHECK(ncclGetUniqueId(&id));
        CHECK(ncclGroupStart());
        CHECK(ncclCommInitRank(&made, 1, id, 0));
        CHECK(ncclCommDestroy(made));
        assert_int_equal(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
        assert_null(made);
        for (int i = 0; i < 2; i++)
                CHECK(ncclCommInitAll(&again[i], 1, NULL));
        assert_ptr_not_equal(again[0], again[1]);
        for (int i = 0; i < 2; i++) {
                reduce(&again[i], 1);
                CHECK(ncclCommDestroy(again[i]));
        }
}

/* The other rank's program does the same after it has heard. */
static void quiet_too(ncclComm_t comm, bool shrinks) {
        ncclResult_t async;
        ncclComm_t alone;

        if (shrinks) {
                CHECK(ncclCommShrink(comm, (int[]){0}, 1, &alone, NULL, NCCL_SHRINK_ABORT));
                reduce(&alone, 1);
                CHECK(ncclCommDestroy(alone));
        } else {
                CHECK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
        }
        CHECK(ncclCommGetAsyncError(comm, &async));
        assert_int_equal(async, ncclSuccess);
}

/* Who revokes knows; the other rank is told. */
static void test_quieted(void **state) {
        ncclComm_t comm[2], rest;
        ncclResult_t async;
        ncclConfig_t bad = NCCL_CONFIG_INITIALIZER;

        (void)state;
        bad.blocking = 7;
        for (int turn = 0; turn < 2; turn++) {
                CHECK(ncclCommInitAll(comm, 2, NULL));
                if (turn) {
                        /* Refused: nothing has happened to the communicator. */
                        assert_int_equal(ncclCommShrink(comm[0], (int[]){1}, 1, &rest, &bad, NCCL_SHRINK_ABORT),
                                         ncclInvalidArgument);
                        reduce(comm, 2);
                        CHECK(ncclCommShrink(comm[0], (int[]){1}, 1, &rest, NULL, NCCL_SHRINK_ABORT));
                        reduce(&rest, 1);
                        CHECK(ncclCommDestroy(rest));
                } else {
                        CHECK(ncclCommRevoke(comm[0], NCCL_REVOKE_DEFAULT));
                }
                CHECK(ncclCommGetAsyncError(comm[0], &async));
                assert_int_equal(async, ncclSuccess);
                do
                        CHECK(ncclCommGetAsyncError(comm[1], &async));
                while (async == ncclSuccess);
                assert_int_equal(async, ncclRemoteError);
                quiet_too(comm[1], turn);
                for (int r = 0; r < 2; r++)
                        CHECK(ncclCommAbort(comm[r]));
        }
}

/* A rank that comes first must not make its second communicator in place of the first. */
static void test_splits_in_order(void **state) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm[2], child[2], more;
        ncclResult_t async;

        (void)state;
        config.blocking = 0;
        CHECK(ncclCommInitAll(comm, 2, NULL));
        assert_int_equal(ncclCommSplit(comm[0], 0, 0, &child[0], &config), ncclInProgress);
        CHECK(ncclCommGetAsyncError(comm[0], &async));
        assert_int_equal(async, ncclInProgress);
        assert_int_equal(ncclCommSplit(comm[0], 0, 0, &more, &config), ncclInvalidArgument);
        assert_int_equal(ncclCommGrow(comm[0], 3, NULL, -1, &more, NULL), ncclInvalidArgument);
        assert_int_equal(ncclCommShrink(comm[0], (int[]){1}, 1, &more, NULL, 0), ncclInvalidArgument);
        CHECK(ncclCommSplit(comm[1], 0, 1, &child[1], NULL));
        do {
                CHECK(ncclCommGetAsyncError(comm[0], &async));
                (void)poll(NULL, 0, 1);
        } while (async == ncclInProgress);
        assert_int_equal(async, ncclSuccess);
        reduce(child, 2);
        for (int r = 0; r < 2; r++) {
                CHECK(ncclCommAbort(child[r]));
                CHECK(ncclCommAbort(comm[r]));
        }
}

/* What was revoked may be split, also more than once, and by ranks that want nothing; what was finalized may not. */
static void test_split_revoked(void **state) {
        ncclComm_t comm[3], child[3];

        (void)state;
        CHECK(ncclCommInitAll(comm, 3, NULL));
        for (int r = 0; r < 3; r++)
                CHECK(ncclCommRevoke(comm[r], NCCL_REVOKE_DEFAULT));
        for (int turn = 0; turn < 3; turn++) {
                ncclComm_t pair[2];

                CHECK(ncclGroupStart());
                for (int r = 0; r < 3; r++)
                        CHECK(ncclCommSplit(comm[r], r == turn ? NCCL_SPLIT_NOCOLOR : 5, -r, &child[r], NULL));
                CHECK(ncclGroupEnd());
                assert_null(child[turn]);
                for (int r = 0, place = 1; r < 3; r++) {
                        int rank, n;

                        if (r == turn)
                                continue;
                        CHECK(ncclCommUserRank(child[r], &rank));
                        CHECK(ncclCommCount(child[r], &n));
                        assert_int_equal(n, 2);
                        assert_int_equal(rank, place); /* the higher rank has the lower key */
                        pair[place--] = child[r];
                }
                reduce(pair, 2);
                for (int i = 0; i < 2; i++)
                        CHECK(ncclCommAbort(pair[i]));
        }
        for (int r = 0; r < 3; r++)
                CHECK(ncclCommDestroy(comm[r]));
        CHECK(ncclCommInitAll(comm, 1, NULL));
        CHECK(ncclCommFinalize(comm[0]));
        assert_int_equal(ncclCommSplit(comm[0], 0, 0, &child[0], NULL), ncclInvalidUsage);
        CHECK(ncclCommDestroy(comm[0]));
}

/* One rank's group comes to nothing, for a wrong call in it. */
static void shrink_and_fail(ncclComm_t comm, int without, const ncclConfig_t *config) {
        ncclConfig_t given = *config;
        ncclComm_t made = NULL;
        float x = 1;

        CHECK(ncclGroupStart());
        assert_int_equal(ncclCommShrink(comm, &without, 1, &made, &given, NCCL_SHRINK_DEFAULT),
                         given.blocking ? ncclSuccess : ncclInProgress);
        assert_int_equal(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
        assert_int_equal(made != NULL, !given.blocking); /* without blocking it is the program's by now */
        if (made)
                CHECK(ncclCommAbort(made));
}

/* It calls again, and meets those who have called once: otherwise they wait for each other for ever. */
static void test_shrink_again(void **state) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm[3], pair[2];
        int without = 2;

        (void)state;
        CHECK(ncclCommInitAll(comm, 3, NULL));
        for (int turn = 0; turn < 3; turn++) {
                config.blocking = turn != 1;
                for (int i = 0; i < turn; i++)
                        shrink_and_fail(comm[turn % 2], without, &config);
                CHECK(ncclGroupStart());
                for (int r = 0; r < 2; r++)
                        CHECK(ncclCommShrink(comm[r], &without, 1, &pair[r], NULL, NCCL_SHRINK_DEFAULT));
                CHECK(ncclGroupEnd());
                reduce(pair, 2);
                for (int r = 0; r < 2; r++)
                        CHECK(ncclCommDestroy(pair[r]));
        }
        for (int r = 0; r < 3; r++)
                CHECK(ncclCommDestroy(comm[r]));
}

/* Each growth has an id of its own, which a group that came to nothing leaves to the next. */
static void test_grow_again(void **state) {
        ncclComm_t comm[2], grown[3], made;
        ncclUniqueId id[3];
        float x = 1;

        (void)state;
        CHECK(ncclCommInitAll(comm, 2, NULL));
        for (int turn = 0; turn < 3; turn++) {
                CHECK(ncclGroupStart());
                CHECK(ncclCommGrow(comm[1], 3, NULL, -1, &made, NULL));
                assert_int_equal(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, NULL, NULL), ncclInvalidArgument);
                assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
                assert_null(made);
                CHECK(ncclCommGetUniqueId(comm[turn % 2], &id[turn]));
                for (int i = 0; i < turn; i++)
                        assert_memory_not_equal(&id[i], &id[turn], sizeof(id[i]));
                CHECK(ncclGroupStart());
                for (int r = 0; r < 3; r++)
                        CHECK(ncclCommGrow(r < 2 ? comm[r] : NULL, 3, &id[turn], r < 2 ? -1 : r, &grown[r], NULL));
                CHECK(ncclGroupEnd());
                for (int r = 0; r < 3; r++) {
                        int rank;

                        CHECK(ncclCommUserRank(grown[r], &rank));
                        assert_int_equal(rank, r);
                }
                reduce(grown, 3);
                for (int r = 0; r < 3; r++)
                        CHECK(ncclCommDestroy(grown[r]));
        }
        for (int r = 0; r < 2; r++)
                CHECK(ncclCommDestroy(comm[r]));
}

/* Only calls are simulated: communicators of the group are made, finalized and ended. */
static void test_simulated(void **state) {
        ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
        ncclConfig_t patient = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm[2], split[2], made, late;
        float x = 1, y = -1;
        ncclResult_t async;
        ncclUniqueId id;

        (void)state;
        patient.blocking = 0;
        CHECK(ncclCommInitAll(comm, 2, NULL));
        CHECK(ncclGetUniqueId(&id));
        CHECK(ncclGroupStart());
        CHECK(ncclCommInitRank(&made, 1, id, 0));
        for (int r = 0; r < 2; r++)
                CHECK(ncclCommSplit(comm[r], 0, r, &split[r], NULL));
        CHECK(ncclAllReduce(&x, &y, 1, ncclFloat32, ncclSum, comm[0], NULL));
        CHECK(ncclGroupSimulateEnd(&info));
        assert_true(y == -1 && info.estimatedTime == NCCL_UNDEF_FLOAT);
        reduce(&made, 1);
        reduce(split, 2);
        reduce(comm, 2);
        CHECK(ncclGetUniqueId(&id));
        CHECK(ncclGroupStart());
        CHECK(ncclCommDestroy(made));
        for (int r = 0; r < 2; r++) {
                CHECK(ncclCommFinalize(split[r]));
                CHECK(ncclCommAbort(comm[r]));
        }
        assert_int_equal(ncclCommInitRankConfig(&late, 1, id, 0, &patient), ncclInProgress);
        assert_int_equal(ncclGroupSimulateEnd(&info), ncclInProgress);
        do
                CHECK(ncclCommGetAsyncError(late, &async));
        while (async == ncclInProgress);
        CHECK(async);
        CHECK(ncclCommDestroy(late));
        assert_int_equal(ncclCommDestroy(made), ncclInvalidArgument);
        for (int r = 0; r < 2; r++) {
                assert_int_equal(ncclCommFinalize(split[r]), ncclInvalidArgument);
                CHECK(ncclCommDestroy(split[r]));
        }
}

/* As where the process may have no more threads: there is no room for their stacks. */
static void test_no_thread(void **state) {
        pthread_attr_t before, huge;
        ncclComm_t comm[2], alone;

        (void)state;
        assert_int_equal(pthread_getattr_default_np(&before), 0);
        assert_int_equal(pthread_attr_init(&huge), 0);
        assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 60), 0);
        for (int aborts = 0; aborts < 2; aborts++) {
                CHECK(ncclCommInitAll(comm, 2, NULL));
                reduce(comm, 2);
                assert_int_equal(pthread_setattr_default_np(&huge), 0);
                CHECK(ncclCommShrink(comm[1], (int[]){0}, 1, &alone, NULL, NCCL_SHRINK_DEFAULT));
                CHECK(ncclCommDestroy(alone));
                CHECK(ncclGroupStart());
                for (int r = 0; r < 2; r++)
                        CHECK(aborts ? ncclCommAbort(comm[r]) : ncclCommDestroy(comm[r]));
                CHECK(ncclGroupEnd());
                assert_int_equal(pthread_setattr_default_np(&before), 0);
                /* They have ended. */
                for (int r = 0; r < 2; r++) {
                        assert_int_equal(ncclCommAbort(comm[r]), ncclInvalidArgument);
                        assert_non_null(strstr(ncclGetLastError(NULL), "has been destroyed"));
                }
        }
        pthread_attr_destroy(&huge);
        pthread_attr_destroy(&before);
}

static atomic_bool enough;

/* AddressSanitizer's allocator, unlike glibc's, stays locked in the child of a process that was in it just then. */
#ifdef __SANITIZE_ADDRESS__
#define ALLOCATES false
#else
#define ALLOCATES true
#endif

static void *make_noise(void *userdata) {
        static char buffer[65536];
        ncclComm_t comm = userdata;
        void *handle;

        while (!enough) {
                if (ALLOCATES && !ncclCommRegister(comm, buffer, sizeof(buffer), &handle))
                        (void)ncclCommDeregister(comm, handle);
                (void)ncclCommCount(NULL, NULL); /* has an error to keep */
        }
        return NULL;
}

/* Whatever another thread of the parent is at, the child finds nothing locked. */
static void test_fork_under_way(void **state) {
        static char buffer[4096];
        ncclUniqueId id;
        pthread_t thread;
        ncclComm_t comm;
        int status;

        (void)state;
        CHECK(ncclCommInitAll(&comm, 1, NULL));
        assert_int_equal(pthread_create(&thread, NULL, make_noise, comm), 0);
        for (int turn = 0; turn < 20; turn++) {
                pid_t pid = fork();

                assert_true(pid >= 0);
                if (!pid) {
                        void *handle;
                        bool bad = ncclCommCount(NULL, NULL) != ncclInvalidArgument || ncclGetUniqueId(&id) ||
                                   ncclCommInitRank(&comm, 1, id, 0) ||
                                   ncclCommRegister(comm, buffer, sizeof(buffer), &handle) || ncclCommDestroy(comm);

                        _exit(bad);
                }
                assert_int_equal(proc_wait(pid, 20000, &status), 0);
                assert_int_equal(status, 0);
        }
        enough = true;
        pthread_join(thread, NULL);
        CHECK(ncclCommDestroy(comm));
}

static int setup(void **state) {
        (void)state;
        node_start(&node, "nccl-ends", false);
        setenv("RAILMUX_SOCKET", node.socket, 1);
        return 0;
}

static int teardown(void **state) {
        (void)state;
        node_cleanup(&node);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_abort_in_group),  cmocka_unit_test(test_abort_held),
                cmocka_unit_test(test_made_and_ended),  cmocka_unit_test(test_quieted),
                cmocka_unit_test(test_splits_in_order), cmocka_unit_test(test_fork_under_way),
                cmocka_unit_test(test_split_revoked),   cmocka_unit_test(test_shrink_again),
                cmocka_unit_test(test_simulated),       cmocka_unit_test(test_grow_again),
                cmocka_unit_test(test_no_thread),
        };

        unsetenv("RAILMUX_FALLBACK");
        unsetenv("NCCL_COMM_BLOCKING");
        return cmocka_run_group_tests_name("ends", tests, setup, teardown);
}
