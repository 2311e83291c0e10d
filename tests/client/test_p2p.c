/* SPDX-License-Identifier: MIT */
/* Sends and receives outside of groups. */
#include <stdlib.h>
#include <string.h>

#include "client/comm.h"
#include "tests/client/crew.h"

#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

/* A ring of ranks: each adds one and hands it on; by blocking calls, in ordinary and in shared memory. */
static int hand_on(struct crew *crew, uint32_t rank) {
        struct rmx_comm *comm = crew->comm[rank];
        uint32_t next = (rank + 1) % crew->n, previous = (rank + crew->n - 1) % crew->n;
        void *memory;
        int64_t *x;
        int r;

        r = rmx_mem_alloc(crew->session, 4096, &memory);
        x = memory;
        for (int64_t round = 0; round < 50 && !r; round++) {
                int64_t token[3] = {0};

                if (!rank) {
                        token[1] = round;
                        r = rmx_send(comm, &token[1], 1, RMX_INT64, next, NULL);
                        if (!r)
                                r = rmx_recv(comm, x, 1, RMX_INT64, previous, NULL);
                        if (!r && x[0] != round + (int64_t)crew->n - 1)
                                return -1;
                } else {
                        r = rmx_recv(comm, &token[1], 1, RMX_INT64, previous, NULL);
                        x[1] = token[1] + 1;
                        if (!r && (token[0] || token[2]))
                                return -2;
                        if (!r)
                                r = rmx_send(comm, &x[1], 1, RMX_INT64, next, NULL);
                }
        }
        return r;
}

static void test_ring(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 4, 64);
        crew_run(&crew, hand_on);
        for (uint32_t i = 0; i < crew.n; i++)
                assert_int_equal(crew.result[i], RMX_OK);
        crew_stop(&crew);
}

/* The k-th send meets the k-th receive, also when all are under way at once; zero counts take their turn. */
static void test_order(void **state) {
        enum { N = 10 };
        struct rmx_request send[N], recv[N];
        int32_t in[N], out[N];
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 64);
        for (int i = 0; i < N; i++) {
                in[i] = 100 + i;
                out[i] = -1;
                assert_int_equal(rmx_send_start(crew.comm[0], &in[i], i % 3 ? 1 : 0, RMX_INT32, 1, NULL, &send[i]),
                                 RMX_OK);
                in[i] = -2; /* ordinary memory was read at the start */
        }
        for (int i = 0; i < N; i++)
                assert_int_equal(rmx_recv_start(crew.comm[1], &out[i], i % 3 ? 1 : 0, RMX_INT32, 0, NULL, &recv[i]),
                                 RMX_OK);
        for (int i = N; i-- > 0;) {
                assert_int_equal(rmx_wait(&recv[i], NULL), RMX_OK);
                assert_int_equal(rmx_wait(&send[i], NULL), RMX_OK);
                assert_int_equal(out[i], i % 3 ? 100 + i : -1);
        }
        crew_stop(&crew);
}

static int send_two(struct crew *crew, uint32_t rank) {
        int32_t x[2] = {1, 2};

        return rank ? rmx_recv(crew->comm[rank], x, 1, RMX_INT32, 0, NULL)
                    : rmx_send(crew->comm[rank], x, 2, RMX_INT32, 1, NULL);
}

static int send_float(struct crew *crew, uint32_t rank) {
        int32_t x[2] = {1, 2};

        return rank ? rmx_recv(crew->comm[rank], x, 1, RMX_INT32, 0, NULL)
                    : rmx_send(crew->comm[rank], x, 1, RMX_FLOAT32, 1, NULL);
}

static void test_mismatch(void **state) {
        int (*const functions[])(struct crew *, uint32_t) = {send_two, send_float};
        struct crew crew;

        (void)state;
        for (int i = 0; i < 2; i++) {
                crew_start(&crew, 2, 64);
                crew_run(&crew, functions[i]);
                assert_int_equal(crew.result[0], RMX_E_MISMATCH);
                assert_int_equal(crew.result[1], RMX_E_MISMATCH);
                assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_E_MISMATCH);
                assert_int_equal(rmx_barrier(crew.comm[1], NULL), RMX_E_MISMATCH);
                crew_stop(&crew);
        }
}

static void test_arguments(void **state) {
        struct rmx_request request;
        struct rmx_comm *comm;
        struct crew crew;
        int32_t x = 0;

        (void)state;
        crew_start(&crew, 2, 64);
        comm = crew.comm[0];
        assert_int_equal(rmx_send(NULL, &x, 1, RMX_INT32, 1, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_send: comm is NULL");
        assert_int_equal(rmx_send(comm, &x, 1, RMX_INT32, 2, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_send: peer 2 is out of range; the communicator has ranks 0..1");
        assert_int_equal(rmx_recv(comm, &x, 1, RMX_INT32, 0, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(),
                            "rmx_recv: peer 0 is this rank itself, which is possible in a group only");
        assert_int_equal(rmx_send_start(comm, &x, 1, RMX_INT32, 0, NULL, &request), RMX_E_INVALID);
        assert_error_says("rmx_send_start: peer 0 is this rank itself");
        assert_int_equal(rmx_send(comm, NULL, 4, RMX_INT32, 1, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_send: in is NULL with count 4");
        assert_int_equal(rmx_recv(comm, NULL, 4, RMX_INT32, 1, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_recv: out is NULL with count 4");
        assert_int_equal(rmx_recv(comm, &x, 1, 12, 1, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_recv: type 12 is unknown; types are 0..11");
        assert_int_equal(rmx_send(comm, &x, SIZE_MAX / 2, RMX_INT32, 1, NULL), RMX_E_INVALID);
        assert_error_says("rmx_send: count 9223372036854775807 is too large");
        assert_int_equal(rmx_send(comm, &x, 1, RMX_INT32, 1, &x), RMX_E_INVALID);
        assert_error_says("stream must be NULL");
        assert_int_equal(rmx_recv_start(comm, &x, 1, RMX_INT32, 1, NULL, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_recv_start: ret_request is NULL");
        /* Nothing of all this took a sequence: the fake insists on 1. */
        assert_int_equal(rmx_send_start(comm, &x, 1, RMX_INT32, 1, NULL, &request), RMX_OK);
        assert_int_equal(rmx_recv(crew.comm[1], &x, 1, RMX_INT32, 0, NULL), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        crew_stop(&crew);
}

/* Without room no sequence is used up. */
static void test_full(void **state) {
        struct rmx_request request[4], more;
        int32_t x = 9;
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 4);
        for (int i = 0; i < 4; i++)
                assert_int_equal(rmx_send_start(crew.comm[0], &x, 1, RMX_INT32, 1, NULL, &request[i]), RMX_OK);
        assert_int_equal(rmx_send_start(crew.comm[0], &x, 1, RMX_INT32, 1, NULL, &more), RMX_E_BUSY);
        assert_error_says("all 4 places for requests on GPU 0 are taken");
        assert_int_equal(crew.comm[0]->sent[1], 4);
        assert_int_equal(rmx_comm_abort(crew.comm[0]), RMX_OK);
        for (int i = 0; i < 4; i++)
                assert_int_equal(rmx_wait(&request[i], NULL), RMX_E_ABORTED);
        crew_stop(&crew);
}

/* A comm that is destroyed waits for its sends and receives, and writes no memory of its caller. */
static void test_destroy(void **state) {
        struct rmx_request send, recv;
        int32_t x = 4, y = 0;
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 64);
        assert_int_equal(rmx_send_start(crew.comm[0], &x, 1, RMX_INT32, 1, NULL, &send), RMX_OK);
        assert_int_equal(rmx_recv_start(crew.comm[1], &y, 1, RMX_INT32, 0, NULL, &recv), RMX_OK);
        assert_int_equal(rmx_comm_destroy(crew.comm[1]), RMX_OK);
        crew.comm[1] = NULL;
        assert_int_equal(y, 0);
        assert_int_equal(rmx_wait(&recv, NULL), RMX_E_INVALID);
        assert_int_equal(rmx_wait(&send, NULL), RMX_OK);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ring),      cmocka_unit_test(test_order), cmocka_unit_test(test_mismatch),
                cmocka_unit_test(test_arguments), cmocka_unit_test(test_full),  cmocka_unit_test(test_destroy),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
