/* SPDX-License-Identifier: MIT */
/* Handles and how they end, on a node: made without blocking, aborted at any moment, shrunk past the dead, grown. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/nccl/nccl.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "util/clock.h"

#define RANKS   4
#define COUNT   1000
#define WAIT_NS (20 * UINT64_C(1000000000))

static struct node node;

#define CHECK(call)                                                                                                    \
        do {                                                                                                           \
                ncclResult_t result_ = (call);                                                                         \
                                                                                                                       \
                if (result_ != ncclSuccess)                                                                            \
                        fail_msg("%s: %d, %s", #call, result_, ncclGetLastError(NULL));                                \
        } while (0)

/* Until the handle is no longer in progress. */
static ncclResult_t settle(ncclComm_t comm) {
        uint64_t deadline = clock_now_ns() + WAIT_NS;
        ncclResult_t state = ncclInProgress;

        while (state == ncclInProgress && clock_now_ns() < deadline) {
                CHECK(ncclCommGetAsyncError(comm, &state));
                (void)poll(NULL, 0, 1);
        }
        return state;
}

static void reduce_all(ncclComm_t *comm, int n) {
        static float in[RANKS + 2][COUNT], out[RANKS + 2][COUNT];
        ncclResult_t result;

        memset(out, 0xff, sizeof(out));
        CHECK(ncclGroupStart());
        for (int r = 0; r < n; r++) {
                for (int i = 0; i < COUNT; i++)
                        in[r][i] = (float)(r * 100 + i);
                CHECK(ncclAllReduce(in[r], out[r], COUNT, ncclFloat32, ncclSum, comm[r], NULL));
        }
        result = ncclGroupEnd();
        assert_true(result == ncclSuccess || result == ncclInProgress);
        for (int r = 0; r < n && result; r++)
                assert_int_equal(settle(comm[r]), ncclSuccess);
        for (int r = 0; r < n; r++)
                for (int i = 0; i < COUNT; i++)
                        assert_true(out[r][i] == (float)(n * (n - 1) / 2 * 100 + n * i));
}

static void destroy_all(ncclComm_t *comm, int n) {
        CHECK(ncclGroupStart());
        for (int r = 0; r < n; r++)
                CHECK(ncclCommDestroy(comm[r]));
        CHECK(ncclGroupEnd());
}

/* ---- made without blocking ------------------------------------------------------------------------------------------
 */
static void test_nonblocking(void **state) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm[RANKS], half[RANKS];
        ncclUniqueId id;
        int n;

        (void)state;
        config.blocking = 0;
        CHECK(ncclGetUniqueId(&id));
        for (int r = 0; r < RANKS; r++) {
                comm[r] = NULL;
                assert_int_equal(ncclCommInitRankConfig(&comm[r], RANKS, id, r, &config), ncclInProgress);
                assert_non_null(comm[r]);
                if (r == 0)
                        assert_int_equal(ncclCommCount(comm[0], &n), ncclInvalidArgument);
        }
        for (int r = 0; r < RANKS; r++)
                assert_int_equal(settle(comm[r]), ncclSuccess);
        reduce_all(comm, RANKS);
        for (int r = 0; r < RANKS; r++) {
                half[r] = (ncclComm_t)comm;
                assert_int_equal(ncclCommSplit(comm[r], r == 3 ? NCCL_SPLIT_NOCOLOR : 7, -r, &half[r], NULL),
                                 ncclInProgress);
                assert_true((half[r] == NULL) == (r == 3));
        }
        for (int r = 0; r < RANKS; r++)
                assert_int_equal(settle(comm[r]), ncclSuccess);
        for (int r = 0; r < 3; r++) {
                assert_int_equal(settle(half[r]), ncclSuccess);
                CHECK(ncclCommUserRank(half[r], &n));
                assert_int_equal(n, 2 - r); /* ordered by key */
        }
        reduce_all(half, 3);
        destroy_all(half, 3);
        destroy_all(comm, RANKS);
}

/* ---- aborted --------------------------------------------------------------------------------------------------------
 */
static void test_abort_in_progress(void **state) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm;
        ncclUniqueId id;

        (void)state;
        config.blocking = 0;
        CHECK(ncclGetUniqueId(&id));
        assert_int_equal(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
        CHECK(ncclCommAbort(comm)); /* nobody else will ever come */
        assert_int_equal(ncclCommDestroy(comm), ncclInvalidArgument);
}

struct blocked {
        ncclComm_t comm;
        pthread_t thread;
        ncclResult_t result;
};

static void *call_alone(void *userdata) {
        struct blocked *b = userdata;
        float x = 1, y;

        b->result = ncclAllReduce(&x, &y, 1, ncclFloat32, ncclSum, b->comm, NULL);
        return NULL;
}

/* Has a rank of a communicator of two asked for something? There is no other one in which any has. */
static bool has_called(void *userdata) {
        json_t *root = node_query(&node, "comms"), *comm, *member;
        bool called = false;
        size_t i, k;

        (void)userdata;
        json_array_foreach(json_object_get(root, "comms"), i, comm) {
                bool of_two = json_integer_value(json_object_get(comm, "n_ranks")) == 2;

                json_array_foreach(json_object_get(comm, "members"), k, member) {
                        called |= of_two && json_integer_value(json_object_get(member, "last_sequence")) > 0;
                }
        }
        json_decref(root);
        return called;
}

/* One thread waits in a collective for a rank that does not call; another one aborts. */
static void test_abort_blocked(void **state) {
        struct blocked b = {.result = ncclSuccess};
        ncclComm_t comm[2];
        ncclResult_t async;

        (void)state;
        CHECK(ncclCommInitAll(comm, 2, NULL));
        b.comm = comm[0];
        assert_int_equal(pthread_create(&b.thread, NULL, call_alone, &b), 0);
        assert_true(proc_await(has_called, NULL, 20000));
        CHECK(ncclCommAbort(comm[0]));
        pthread_join(b.thread, NULL);
        assert_int_equal(b.result, ncclRemoteError);
        /* The other one hears of it, and keeps knowing. */
        do
                CHECK(ncclCommGetAsyncError(comm[1], &async));
        while (async == ncclSuccess);
        assert_int_equal(async, ncclRemoteError);
        CHECK(ncclCommGetAsyncError(comm[1], &async));
        assert_int_equal(async, ncclRemoteError);
        CHECK(ncclCommAbort(comm[1]));
        assert_int_equal(ncclCommAbort(comm[1]), ncclInvalidArgument);
        /* Ended twice in a group. */
        CHECK(ncclCommInitAll(comm, 2, NULL));
        CHECK(ncclGroupStart());
        CHECK(ncclCommDestroy(comm[0]));
        assert_int_equal(ncclCommAbort(comm[0]), ncclInvalidArgument);
        CHECK(ncclCommDestroy(comm[1]));
        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
        assert_int_equal(ncclCommDestroy(comm[1]), ncclInvalidArgument);
}

/* ---- shrunk and grown -----------------------------------------------------------------------------------------------
 */
/* A rank in a process of its own, which is killed; the others go on without it. */
static void test_shrink_past_dead(void **state) {
        ncclComm_t comm[RANKS] = {NULL}, less[RANKS - 1];
        int ready[2], dead[] = {RANKS - 1}, status, n;
        ncclResult_t async;
        ncclUniqueId id;
        pid_t pid;
        char c;

        (void)state;
        CHECK(ncclGetUniqueId(&id));
        assert_int_equal(pipe(ready), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
                if (ncclCommInitRank(&comm[0], RANKS, id, RANKS - 1) != ncclSuccess || write(ready[1], "x", 1) != 1)
                        _exit(1);
                for (;;)
                        pause();
        }
        CHECK(ncclGroupStart());
        for (int r = 0; r < RANKS - 1; r++)
                CHECK(ncclCommInitRank(&comm[r], RANKS, id, r));
        CHECK(ncclGroupEnd());
        assert_int_equal(read(ready[0], &c, 1), 1);
        kill(pid, SIGKILL);
        assert_int_equal(proc_wait(pid, 10000, &status), 0);
        do
                CHECK(ncclCommGetAsyncError(comm[0], &async));
        while (async == ncclSuccess);
        assert_int_equal(async, ncclRemoteError);
        for (int turn = 0; turn < 2; turn++) {
                CHECK(ncclGroupStart());
                for (int r = 0; r < RANKS - 1; r++)
                        CHECK(ncclCommShrink(comm[r], dead, 1, &less[r], NULL,
                                             turn ? NCCL_SHRINK_DEFAULT : NCCL_SHRINK_ABORT));
                CHECK(ncclGroupEnd());
                for (int r = 0; r < RANKS - 1; r++) {
                        CHECK(ncclCommGetAsyncError(comm[r], &async));
                        assert_int_equal(async, ncclSuccess);
                }
                CHECK(ncclCommCount(less[1], &n));
                assert_int_equal(n, RANKS - 1);
                reduce_all(less, RANKS - 1);
                destroy_all(less, RANKS - 1);
        }
        assert_int_equal(ncclCommShrink(comm[0], NULL, 0, &less[0], NULL, 0), ncclInvalidArgument);
        n = 0;
        assert_int_equal(ncclCommShrink(comm[0], &n, 1, &less[0], NULL, 0), ncclInvalidArgument);
        n = RANKS;
        assert_int_equal(ncclCommShrink(comm[0], &n, 1, &less[0], NULL, 0), ncclInvalidArgument);
        destroy_all(comm, RANKS - 1);
        close(ready[0]);
        close(ready[1]);
}

static void test_grow(void **state) {
        ncclComm_t comm[2], more[RANKS];
        ncclUniqueId id;

        (void)state;
        CHECK(ncclCommInitAll(comm, 2, NULL));
        for (int turn = 0; turn < 2; turn++) {
                CHECK(ncclCommGetUniqueId(comm[1], &id));
                CHECK(ncclGroupStart());
                for (int r = 0; r < 2; r++)
                        CHECK(ncclCommGrow(comm[r], RANKS, NULL, -1, &more[r], NULL));
                for (int r = 2; r < RANKS; r++)
                        CHECK(ncclCommGrow(NULL, RANKS, &id, r, &more[r], NULL));
                CHECK(ncclGroupEnd());
                reduce_all(more, RANKS);
                destroy_all(more, RANKS);
        }
        assert_int_equal(ncclCommGrow(comm[0], 2, NULL, -1, &more[0], NULL), ncclInvalidArgument);
        /* After a revoke nothing is called any more, but it may be shrunk and destroyed. */
        CHECK(ncclCommRevoke(comm[0], NCCL_REVOKE_DEFAULT));
        assert_int_equal(ncclAllReduce(&id, &id, 1, ncclInt8, ncclSum, comm[0], NULL), ncclInvalidUsage);
        CHECK(ncclCommShrink(comm[0], (int[]){1}, 1, &more[0], NULL, NCCL_SHRINK_DEFAULT));
        CHECK(ncclCommDestroy(more[0]));
        destroy_all(comm, 2);
}

/* Two splits of one parent in one group: every rank must mean the same by "first". */
static void test_splits_in_group(void **state) {
        ncclComm_t comm[RANKS], a[RANKS], b[RANKS];
        int n, rank;

        (void)state;
        CHECK(ncclCommInitAll(comm, RANKS, NULL));
        for (int turn = 0; turn < 10; turn++) {
                CHECK(ncclGroupStart());
                for (int r = 0; r < RANKS; r++) {
                        CHECK(ncclCommSplit(comm[r], 0, -r, &a[r], NULL));
                        CHECK(ncclCommSplit(comm[r], r % 2, r, &b[r], NULL));
                }
                CHECK(ncclGroupEnd());
                for (int r = 0; r < RANKS; r++) {
                        CHECK(ncclCommUserRank(a[r], &rank));
                        assert_int_equal(rank, RANKS - 1 - r);
                        CHECK(ncclCommCount(b[r], &n));
                        assert_int_equal(n, 2);
                }
                destroy_all(a, RANKS);
                destroy_all(b, RANKS);
        }
        destroy_all(comm, RANKS);
}

/* ---- the rest -------------------------------------------------------------------------------------------------------
 */
static void test_fork(void **state) {
        ncclComm_t comm, own;
        ncclUniqueId id;
        int status;
        pid_t pid;

        (void)state;
        CHECK(ncclCommInitAll(&comm, 1, NULL));
        pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
                float x = 3, y = 0;

                if (ncclAllReduce(&x, &y, 1, ncclFloat32, ncclSum, comm, NULL) != ncclInvalidUsage ||
                    ncclCommDestroy(comm) != ncclInvalidUsage || ncclGetUniqueId(&id) ||
                    ncclCommInitRank(&own, 1, id, 0) || ncclAllReduce(&x, &y, 1, ncclFloat32, ncclSum, own, NULL) ||
                    y != 3 || ncclCommDestroy(own))
                        _exit(1);
                _exit(0);
        }
        assert_int_equal(proc_wait(pid, 20000, &status), 0);
        assert_int_equal(status, 0);
        reduce_all(&comm, 1);
        CHECK(ncclCommDestroy(comm));
}

static void test_memory(void **state) {
        void *shared, *handle[3];
        static char plain[100000];
        ncclWindow_t window = (ncclWindow_t)(void *)plain;
        ncclComm_t comm;
        uint64_t value;

        (void)state;
        CHECK(ncclCommInitAll(&comm, 1, NULL));
        CHECK(ncclMemAlloc(&shared, 1 << 20));
        memset(shared, 1, 1 << 20);
        for (int i = 0; i < 2; i++)
                CHECK(ncclCommRegister(comm, plain, sizeof(plain), &handle[i]));
        CHECK(ncclCommRegister(comm, shared, 1 << 20, &handle[2]));
        CHECK(ncclAllReduce(plain, shared, sizeof(plain), ncclInt8, ncclSum, comm, NULL));
        for (int i = 0; i < 3; i++)
                CHECK(ncclCommDeregister(comm, handle[i]));
        assert_int_equal(ncclCommDeregister(comm, plain), ncclInvalidArgument);
        CHECK(ncclCommWindowRegister(comm, shared, 1 << 20, &window, NCCL_WIN_COLL_SYMMETRIC));
        assert_null(window);
        CHECK(ncclCommWindowDeregister(comm, window));
        CHECK(ncclMemFree(shared));
        CHECK(ncclMemFree(NULL));
        assert_int_not_equal(ncclMemFree(plain), ncclSuccess);
        CHECK(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
        CHECK(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &value));
        assert_int_equal(value, 1);
        CHECK(ncclCommResume(comm));
        CHECK(ncclCommMemStats(comm, ncclStatGpuMemTotal, &value));
        assert_int_equal(value, 0);
        CHECK(ncclCommDestroy(comm));
}

/* A factor may go when the call that used it has been recorded. */
static void test_factor(void **state) {
        float in[2] = {2, 3}, out[2] = {-1, -1}, factor[2] = {10, 100};
        ncclComm_t comm[2];
        ncclRedOp_t op[2];

        (void)state;
        CHECK(ncclCommInitAll(comm, 2, NULL));
        CHECK(ncclGroupStart());
        for (int r = 0; r < 2; r++) {
                CHECK(ncclRedOpCreatePreMulSum(&op[r], &factor[r], ncclFloat32,
                                               r ? ncclScalarDevice : ncclScalarHostImmediate, comm[r]));
                assert_true((int)op[r] >= ncclNumOps);
                CHECK(ncclAllReduce(&in[r], &out[r], 1, ncclFloat32, op[r], comm[r], NULL));
                CHECK(ncclRedOpDestroy(op[r], comm[r]));
        }
        CHECK(ncclGroupEnd());
        assert_true(out[0] == 320 && out[1] == 320);
        assert_int_equal(ncclRedOpDestroy(op[0], comm[0]), ncclInvalidArgument);
        assert_int_equal(ncclRedOpDestroy(ncclSum, comm[0]), ncclInvalidArgument);
        destroy_all(comm, 2);
}

/* A call that fails spoils its group: nothing happens, and the communicator works on. */
static void test_spoiled_group(void **state) {
        float in[RANKS] = {1, 1, 1, 1}, out[RANKS] = {-1, -1, -1, -1};
        ncclComm_t comm[RANKS];

        (void)state;
        CHECK(ncclCommInitAll(comm, RANKS, NULL));
        CHECK(ncclGroupStart());
        CHECK(ncclAllReduce(&in[0], &out[0], 1, ncclFloat32, ncclSum, comm[0], NULL));
        assert_int_equal(ncclBroadcast(&in[1], &out[1], 1, ncclFloat32, RANKS, comm[1], NULL), ncclInvalidArgument);
        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
        CHECK(ncclGroupStart());
        CHECK(ncclAllReduce(&in[0], &out[0], 1, ncclFloat32, ncclSum, comm[0], NULL));
        assert_int_equal(ncclCommCount(NULL, NULL), ncclInvalidArgument); /* no call of the group */
        assert_int_equal(ncclAllReduce(&in[0], &out[0], 1, ncclFloat32, ncclSum, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
        assert_true(out[0] == -1);
        reduce_all(comm, RANKS);
        destroy_all(comm, RANKS);
}

/* ---- more sends and receives than fit into one request --------------------------------------------------------------
 */
#define MESSAGES 1500 /* at most between two ranks */

struct token {
        bool sends;
        int peer;
};

static int32_t message(int from, int to, int k) {
        return (from * 8 + to) * 65536 + k;
}

/* What a rank calls, in any order. */
static int tokens_shuffled(int rank, const int count[RANKS][RANKS], struct token *tokens) {
        int n = 0;

        for (int peer = 0; peer < RANKS; peer++) {
                for (int k = 0; k < count[rank][peer]; k++)
                        tokens[n++] = (struct token){true, peer};
                for (int k = 0; k < count[peer][rank]; k++)
                        tokens[n++] = (struct token){false, peer};
        }
        for (int i = n - 1; i > 0; i--) {
                int other = rand() % (i + 1);
                struct token token = tokens[i];

                tokens[i] = tokens[other];
                tokens[other] = token;
        }
        return n;
}

static void exchange(ncclComm_t *comm, const int count[RANKS][RANKS]) {
        static int32_t out[RANKS][RANKS][MESSAGES], in[RANKS][RANKS][MESSAGES];
        static struct token tokens[2 * RANKS * MESSAGES];
        int32_t ones[RANKS], sum[RANKS];

        memset(in, 0xff, sizeof(in));
        CHECK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) {
                int n = tokens_shuffled(r, count, tokens), sent[RANKS] = {0}, received[RANKS] = {0};

                for (int i = 0; i < n; i++) {
                        int peer = tokens[i].peer, k = tokens[i].sends ? sent[peer]++ : received[peer]++;

                        if (tokens[i].sends) {
                                out[r][peer][k] = message(r, peer, k);
                                CHECK(ncclSend(&out[r][peer][k], 1, ncclInt32, peer, comm[r], NULL));
                        } else {
                                CHECK(ncclRecv(&in[r][peer][k], 1, ncclInt32, peer, comm[r], NULL));
                        }
                }
                ones[r] = 1;
                CHECK(ncclAllReduce(&ones[r], &sum[r], 1, ncclInt32, ncclSum, comm[r], NULL));
        }
        CHECK(ncclGroupEnd());
        for (int r = 0; r < RANKS; r++) {
                assert_int_equal(sum[r], RANKS);
                for (int peer = 0; peer < RANKS; peer++)
                        for (int k = 0; k < MESSAGES; k++)
                                assert_int_equal(in[r][peer][k], k < count[peer][r] ? message(peer, r, k) : -1);
        }
}

static void test_many_transfers(void **state) {
        unsigned int seed = (unsigned int)clock_now_ns();
        const char *given = getenv("RAILMUX_SEED");
        int count[RANKS][RANKS];
        ncclComm_t comm[RANKS];

        (void)state;
        if (given)
                seed = (unsigned int)strtoul(given, NULL, 10);
        print_message("seed: RAILMUX_SEED=%u\n", seed);
        srand(seed);
        CHECK(ncclCommInitAll(comm, RANKS, NULL));
        for (int turn = 0; turn < 8; turn++) {
                for (int i = 0; i < RANKS * RANKS; i++)
                        count[i / RANKS][i % RANKS] = rand() % 3 ? rand() % 40 : rand() % MESSAGES;
                exchange(comm, (const int(*)[RANKS])count);
        }
        /* One rank has many with everybody, who have few with each other. */
        for (int i = 0; i < RANKS * RANKS; i++)
                count[i / RANKS][i % RANKS] = i / RANKS == 0 || i % RANKS == 0 ? 400 : 1;
        exchange(comm, (const int(*)[RANKS])count);
        destroy_all(comm, RANKS);
}

/* Another daemon in the same place: communicators of the first one have failed, and new ones are made. */
static void test_daemon_replaced(void **state) {
        ncclComm_t before[2], after[2];
        ncclResult_t async;
        void *memory;
        char *old;

        (void)state;
        CHECK(ncclCommInitAll(before, 2, NULL));
        CHECK(ncclMemAlloc((void **)&old, 4096));
        memset(old, 7, 4096);
        node_stop(&node);
        node_start(&node, "nccl-again", false);
        CHECK(ncclMemAlloc(&memory, 4096));
        CHECK(ncclCommInitAll(after, 2, NULL));
        reduce_all(after, 2);
        assert_int_equal(ncclAllReduce(&async, &async, 1, ncclInt8, ncclSum, before[0], NULL), ncclSystemError);
        for (int r = 0; r < 2; r++) {
                CHECK(ncclCommGetAsyncError(before[r], &async));
                assert_int_equal(async, ncclSystemError);
                CHECK(ncclCommGetAsyncError(after[r], &async));
                assert_int_equal(async, ncclSuccess);
        }
        destroy_all(before, 2);
        assert_int_equal(old[4095], 7); /* also without its communicators */
        CHECK(ncclMemFree(old));
        CHECK(ncclMemFree(memory));
        assert_int_not_equal(ncclMemFree(memory), ncclSuccess);
        destroy_all(after, 2);
}

static int setup(void **state) {
        (void)state;
        node_start(&node, "nccl", false);
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
                cmocka_unit_test(test_nonblocking),    cmocka_unit_test(test_abort_in_progress),
                cmocka_unit_test(test_abort_blocked),  cmocka_unit_test(test_shrink_past_dead),
                cmocka_unit_test(test_grow),           cmocka_unit_test(test_splits_in_group),
                cmocka_unit_test(test_fork),           cmocka_unit_test(test_memory),
                cmocka_unit_test(test_factor),         cmocka_unit_test(test_spoiled_group),
                cmocka_unit_test(test_many_transfers), cmocka_unit_test(test_daemon_replaced),
        };

        unsetenv("RAILMUX_FALLBACK");
        unsetenv("NCCL_COMM_BLOCKING");
        return cmocka_run_group_tests_name("node", tests, setup, teardown);
}
