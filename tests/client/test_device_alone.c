/* SPDX-License-Identifier: MIT */
/* On GPUs: a communicator of one rank, whose requests are copies. */
#include "client/comm.h"
#include "client/device.h"
#include "ring/line.h"
#include "tests/client/device_rig.h"

#define STREAM(n) ((void *)(uintptr_t)(0x1000 + (n)))
#define COUNT     4096u

static void check_copy(struct rig *rig, uint32_t i, const void *to, const void *from, size_t bytes,
                       const void *stream) {
        const struct fake_gpu_launch *copy = at(rig, i, FAKE_GPU_COPY);

        assert_ptr_equal(copy->to, to);
        assert_ptr_equal(copy->from, from);
        assert_int_equal(copy->bytes, bytes);
        assert_ptr_equal(copy->stream, stream);
}

static int call(struct rig *rig, uint32_t op, const void *in, void *out, void *stream) {
        struct rmx_comm *comm = rig->comm;

        switch (op) {
        case RING_OP_ALL_REDUCE:
                return rmx_all_reduce(comm, in, out, COUNT, RMX_INT32, RMX_SUM, stream);
        case RING_OP_REDUCE:
                return rmx_reduce(comm, in, out, COUNT, RMX_INT32, RMX_AVG, 0, stream);
        case RING_OP_BROADCAST:
                return rmx_broadcast(comm, in, out, COUNT, RMX_INT32, 0, stream);
        case RING_OP_ALL_GATHER:
                return rmx_all_gather(comm, in, out, COUNT, RMX_INT32, stream);
        case RING_OP_REDUCE_SCATTER:
                return rmx_reduce_scatter(comm, in, out, COUNT, RMX_INT32, RMX_MIN, stream);
        case RING_OP_ALL_TO_ALL:
                return rmx_all_to_all(comm, in, out, COUNT, RMX_INT32, stream);
        case RING_OP_GATHER:
                return rmx_gather(comm, in, out, COUNT, RMX_INT32, 0, stream);
        default:
                return rmx_scatter(comm, in, out, COUNT, RMX_INT32, 0, stream);
        }
}

static const uint32_t ops[] = {RING_OP_ALL_REDUCE,     RING_OP_REDUCE,     RING_OP_BROADCAST, RING_OP_ALL_GATHER,
                               RING_OP_REDUCE_SCATTER, RING_OP_ALL_TO_ALL, RING_OP_GATHER,    RING_OP_SCATTER};

static void test_copies(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        for (uint32_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
                const uint32_t n = rig.gpu->n_launches;

                assert_int_equal(call(&rig, ops[i], rig.a + 8, rig.b + 4, STREAM(1)), RMX_OK);
                check_copy(&rig, n, rig.b + 4, rig.a + 8, COUNT * sizeof(int32_t), STREAM(1));
                assert_int_equal(at(&rig, n + 1, FAKE_GPU_MARK)->bell.number, 2 * i + 1);
                /* In place there is nothing but the number, and in a graph not even that. */
                assert_int_equal(call(&rig, ops[i], rig.b, rig.b, STREAM(1)), RMX_OK);
                assert_int_equal(at(&rig, n + 2, FAKE_GPU_MARK)->bell.number, 2 * i + 2);
                fake_gpu_capture(rig.gpu, STREAM(1), NULL);
                assert_int_equal(call(&rig, ops[i], rig.a, rig.b, STREAM(1)), RMX_OK);
                check_copy(&rig, n + 3, rig.b, rig.a, COUNT * sizeof(int32_t), STREAM(1));
                assert_int_equal(call(&rig, ops[i], rig.b, rig.b, STREAM(1)), RMX_OK);
                fake_gpu_capture(rig.gpu, NULL, NULL);
                assert_int_equal(rig.gpu->n_launches, n + 4);
        }
        assert_int_equal(creations(&rig), 0); /* nobody else has to know the memory */
        assert_int_equal(rmx_barrier(rig.comm, STREAM(1)), RMX_OK);
        assert_int_equal(last(&rig)->kind, FAKE_GPU_MARK);
        assert_int_equal(rmx_all_reduce(rig.comm, NULL, NULL, 0, RMX_INT32, RMX_SUM, STREAM(1)), RMX_OK);
        assert_int_equal(last(&rig)->kind, FAKE_GPU_MARK);
        rig_stop(&rig);
        assert_int_equal(rig.crew.fake.last_sequence, 0);
}

static void test_vector(void **state) {
        const size_t send[] = {5000}, from[] = {10}, recv[] = {5000}, to[] = {20000}, none[] = {0};
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        assert_int_equal(rmx_all_to_all_v(rig.comm, rig.a, send, from, rig.b, recv, to, RMX_INT32, NULL), RMX_OK);
        check_copy(&rig, 0, rig.b + 80000, rig.a + 40, 20000, NULL);
        at(&rig, 1, FAKE_GPU_MARK);
        assert_int_equal(rmx_all_to_all_v(rig.comm, rig.a, none, from, rig.b, none, to, RMX_INT32, NULL), RMX_OK);
        at(&rig, 2, FAKE_GPU_MARK);
        assert_int_equal(rig.gpu->n_launches, 3);
        rig_stop(&rig);
}

/* What computes something, what is matched in a group, and kernels' calls go to the executor. */
static void test_rung(void **state) {
        struct rmx_device_call call = {.size = sizeof(call),
                                       .version = RMX_DEVICE_VERSION,
                                       .operation = RMX_OP_ALL_REDUCE,
                                       .count = 2 * COUNT,
                                       .type = RMX_INT32};
        struct rmx_device_handle handle;
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        assert_int_equal(rmx_all_reduce(rig.comm, rig.a, rig.b, COUNT, RMX_FLOAT32, rung(rig.comm), NULL), RMX_OK);
        at(&rig, 0, FAKE_GPU_CALL);
        call.in = call.out = rig.a;
        assert_int_equal(rmx_device_prepare(rig.comm, &call, &handle), RMX_OK);
        assert_int_equal(at(&rig, 1, FAKE_GPU_HANDLE)->bell.word[RING_W_COUNT_LO], 2 * COUNT);
        assert_int_not_equal(at(&rig, 1, FAKE_GPU_HANDLE)->bell.word[RING_W_IN_BUFFER], 0);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_send(rig.comm, rig.a, 64, RMX_INT8, 0, STREAM(1)), RMX_OK);
        assert_int_equal(rmx_recv(rig.comm, rig.b, 64, RMX_INT8, 0, STREAM(1)), RMX_OK);
        assert_int_equal(rmx_all_reduce(rig.comm, rig.a, rig.b, COUNT, RMX_INT32, RMX_SUM, STREAM(1)), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        check_copy(&rig, 2, rig.b, rig.a, COUNT * sizeof(int32_t), STREAM(1)); /* first, as collectives are */
        at(&rig, 3, FAKE_GPU_MARK);
        at(&rig, 4, FAKE_GPU_START);
        rig_stop(&rig);
}

static void test_memory(void **state) {
        static char host[BLOCK] __attribute__((aligned(64))), plain[64], secret[BLOCK], elsewhere[BLOCK];
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        fake_gpu_add(rig.gpu, host, sizeof(host), 0)->residence = CLIENT_GPU_HOST;
        fake_gpu_add(rig.gpu, secret, sizeof(secret), 6)->secret = true;
        fake_gpu_add(rig.gpu, elsewhere, sizeof(elsewhere), 7)->device = 0;
        /* What no other process can map is no matter here. */
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, secret, rig.a, STREAM(1)), RMX_OK);
        check_copy(&rig, 0, rig.a, secret, COUNT * sizeof(int32_t), STREAM(1));
        assert_int_equal(rig.gpu->allocated, 0);
        /* The rest is as of any communicator. */
        assert_int_equal(rmx_all_reduce(rig.comm, host, rig.a, 16, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        check_copy(&rig, 2, rig.a, host, 64, NULL);
        assert_int_equal(rmx_all_reduce(rig.comm, rig.a, host, 16, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        check_copy(&rig, 4, host, rig.a, 64, NULL);
        /* The runtime would wait, within the call. */
        assert_int_equal(rmx_all_reduce(rig.comm, host, host + 64, 16, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        assert_true(at(&rig, 6, FAKE_GPU_CALL)->bell.inlined);
        assert_int_equal(rmx_all_reduce(rig.comm, host, host, 16, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        at(&rig, 7, FAKE_GPU_MARK);
        assert_int_equal(rmx_all_reduce(rig.comm, plain, plain, 16, RMX_INT32, RMX_SUM, NULL), RMX_E_INVALID);
        assert_error_says("host memory");
        assert_int_equal(rmx_all_reduce(rig.comm, host, host, COUNT * 2, RMX_INT32, RMX_SUM, NULL), RMX_E_INVALID);
        assert_error_says("host memory");
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, elsewhere, rig.a, NULL), RMX_E_INVALID);
        assert_error_says("is memory of device");
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.a, rig.b + BLOCK - 8, NULL), RMX_E_INVALID);
        assert_error_says("over the end");
        assert_int_equal(rig.gpu->n_launches, 8);
        rig_stop(&rig);
}

/* In the order of the communicator's requests, whatever they are. */
static void test_order(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        rig.gpu->stuck = true;
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.a, rig.b, STREAM(1)), RMX_OK);
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.b, rig.a, STREAM(2)), RMX_OK);
        assert_ptr_equal(at(&rig, 2, FAKE_GPU_ORDER)->from, STREAM(1));
        check_copy(&rig, 3, rig.a, rig.b, COUNT * sizeof(int32_t), STREAM(2));
        assert_int_equal(rmx_all_reduce(rig.comm, rig.a, rig.b, COUNT, RMX_FLOAT32, rung(rig.comm), STREAM(3)), RMX_OK);
        assert_ptr_equal(at(&rig, 5, FAKE_GPU_ORDER)->from, STREAM(2));
        at(&rig, 6, FAKE_GPU_CALL);
        rig.gpu->stuck = false; /* all of it has ended, and the streams may be gone */
        for (uint32_t i = 1; i <= 3; i++)
                fake_gpu_stream_destroy(rig.gpu, STREAM(i));
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.a, rig.b, STREAM(4)), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 9);
        rig_stop(&rig);
}

/* A capture stands on the last stream: no stream can be put behind it, and a copy waits for no number by itself. */
static void test_behind(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        rig.gpu->stuck = true;
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.a, rig.b, STREAM(1)), RMX_OK);
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.b, rig.a, STREAM(2)), RMX_OK);
        assert_int_equal(at(&rig, 2, FAKE_GPU_BEHIND)->bell.after, 1);
        assert_int_equal(at(&rig, 2, FAKE_GPU_BEHIND)->bell.slot, rig.comm->slot);
        check_copy(&rig, 3, rig.a, rig.b, COUNT * sizeof(int32_t), STREAM(2));
        assert_int_equal(at(&rig, 4, FAKE_GPU_MARK)->bell.number, 2);
        fake_gpu_capture(rig.gpu, STREAM(2), NULL);
        rig.gpu->fail_copy = RMX_E_INTERNAL; /* what waits is there, and the next one comes behind it */
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.a, rig.b, STREAM(3)), RMX_E_INTERNAL);
        at(&rig, 5, FAKE_GPU_BEHIND);
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.a, rig.b, STREAM(4)), RMX_OK);
        assert_ptr_equal(at(&rig, 6, FAKE_GPU_ORDER)->from, STREAM(3));
        fake_gpu_capture(rig.gpu, NULL, NULL);
        rig.gpu->stuck = false;
        rig_stop(&rig);
}

static void test_started(void **state) {
        struct rmx_request request;
        int done = 0;
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        for (uint32_t i = 0; i < 3; i++) {
                const uint32_t n = rig.gpu->n_launches;

                assert_int_equal(rmx_all_reduce_start(rig.comm, rig.a, i ? rig.b : rig.a, COUNT, RMX_INT32, RMX_SUM,
                                                      STREAM(1), &request),
                                 RMX_OK);
                if (i)
                        check_copy(&rig, n, rig.b, rig.a, COUNT * sizeof(int32_t), STREAM(1));
                assert_true(at(&rig, n + !!i, FAKE_GPU_MARK)->bell.started); /* asked for when it is not the last */
                if (i == 2)
                        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
                while (i < 2 && !done)
                        assert_int_equal(rmx_test(&request, &done), RMX_OK);
                done = 0;
        }
        rig.gpu->stuck = true;
        assert_int_equal(rmx_all_reduce_start(rig.comm, rig.a, rig.b, COUNT, RMX_INT32, RMX_SUM, STREAM(1), &request),
                         RMX_OK);
        assert_int_equal(rmx_test(&request, &done), RMX_OK);
        assert_int_equal(done, 0);
        assert_int_equal(rmx_wait_stream(&request, STREAM(2)), RMX_OK);
        assert_ptr_equal(last(&rig)->from, STREAM(1));
        rig.gpu->stuck = false;
        rig_stop(&rig);
}

static void test_failed(void **state) {
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        rig.gpu->fail_copy = RMX_E_INTERNAL;
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.a, rig.b, STREAM(1)), RMX_E_INTERNAL);
        assert_error_says("copying failed");
        assert_int_equal(rig.gpu->n_launches, 0);
        assert_false(rig.comm->adrift);
        assert_int_equal(rig.comm->number, 0);
        rig.gpu->fail_mark = RMX_E_INTERNAL; /* the copy is there */
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.a, rig.b, STREAM(1)), RMX_OK);
        assert_true(rig.comm->adrift);
        rig.gpu->fail_mark = RMX_E_INTERNAL; /* nothing could wait for this one */
        assert_int_equal(rmx_all_reduce_start(rig.comm, rig.a, rig.b, COUNT, RMX_INT32, RMX_SUM, STREAM(2), &request),
                         RMX_E_INTERNAL);
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.a, rig.b, STREAM(3)), RMX_OK);
        assert_ptr_equal(at(&rig, 3, FAKE_GPU_ORDER)->from, STREAM(2));
        assert_int_equal(rmx_comm_abort(rig.comm), RMX_OK);
        assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.a, rig.b, STREAM(1)), RMX_E_ABORTED);
        assert_int_equal(rig.gpu->n_launches, 6);
        rig_stop(&rig);
}

/* Nothing of it waits for anybody, so hardware queues are no matter: no warning, and no stream is remembered. */
static void test_streams(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        for (uint32_t i = 1; i < 20; i++)
                assert_int_equal(call(&rig, RING_OP_ALL_REDUCE, rig.a, rig.b, STREAM(i)), RMX_OK);
        assert_int_equal(rig.comm->streams.n, 0);
        rig_stop(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_copies),  cmocka_unit_test(test_vector), cmocka_unit_test(test_rung),
                cmocka_unit_test(test_memory),  cmocka_unit_test(test_order),  cmocka_unit_test(test_behind),
                cmocka_unit_test(test_started), cmocka_unit_test(test_failed), cmocka_unit_test(test_streams),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
