/* SPDX-License-Identifier: MIT */
/* How handles end while something else is under way, on a node: groups that are open, that fail, that abort. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/nccl/nccl.h"
#include "tests/e2e/node.h"

static struct node node;

#define CHECK(call)                                                                                                    \
        do {                                                                                                           \
                ncclResult_t result_ = (call);                                                                         \
                                                                                                                       \
                if (result_ != ncclSuccess)                                                                            \
                        fail_msg("%s: %d, %s", #call, result_, ncclGetLastError(NULL));                                \
        } while (0)

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
                cmocka_unit_test(test_abort_in_group),
                cmocka_unit_test(test_abort_held),
        };

        unsetenv("RAILMUX_FALLBACK");
        unsetenv("NCCL_COMM_BLOCKING");
        return cmocka_run_group_tests_name("ends", tests, setup, teardown);
}
