/* SPDX-License-Identifier: MIT */
/* On GPUs: calls that a kernel of the program makes, as far as the host prepares them. */
#include "tests/client/device_rig.h"

static struct rmx_device_call call_of(uint32_t operation, const void *in, void *out, size_t count) {
        return (struct rmx_device_call){.size = sizeof(struct rmx_device_call),
                                        .version = RMX_DEVICE_VERSION,
                                        .operation = operation,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .type = RMX_FLOAT32};
}

/* The handle has what a launch of the same call has. */
static void check_same(struct rig *rig, const struct rmx_device_call *call, uint32_t launches) {
        const struct fake_gpu_launch *called, *prepared;
        struct rmx_device_handle handle;

        called = at(rig, launches, FAKE_GPU_CALL);
        memset(&handle, 0x5a, sizeof(handle));
        assert_int_equal(rmx_device_prepare(rig->comm, call, &handle), RMX_OK);
        prepared = at(rig, launches + 1, FAKE_GPU_HANDLE);
        assert_int_equal(rig->gpu->n_launches, launches + 2);
        assert_memory_equal(prepared->bell.word, called->bell.word, sizeof(called->bell.word));
        assert_memory_equal(handle.word, called->bell.word, sizeof(handle.word));
        assert_int_equal(prepared->bell.slot, called->bell.slot);
        assert_int_equal(prepared->bell.inlined, called->bell.inlined);
        assert_int_equal(prepared->bell.in_bytes, called->bell.in_bytes);
        assert_int_equal(prepared->bell.out_bytes, called->bell.out_bytes);
        assert_ptr_equal(prepared->bell.in, called->bell.in);
        assert_ptr_equal(prepared->bell.out, called->bell.out);
        assert_int_equal(prepared->bell.n_arguments, 0);
        assert_int_equal(prepared->bell.number, 0); /* nobody counts what the program launches */
        assert_int_equal(handle.version, RMX_DEVICE_VERSION);
}

static void test_as_called(void **state) {
        struct rmx_device_call call;
        uint32_t n = 0;
        struct rig rig;

        (void)state;
        rig_start(&rig, 4);
        for (uint32_t large = 0; large < 2; large++) {
                size_t count = large ? 8192 : 12;

                assert_int_equal(rmx_all_reduce(rig.comm, rig.a + 256, rig.b, count, RMX_FLOAT32, RMX_MAX, NULL), 0);
                call = call_of(RMX_OP_ALL_REDUCE, rig.a + 256, rig.b, count);
                call.redop = RMX_MAX;
                check_same(&rig, &call, n);
                assert_int_equal(rmx_reduce(rig.comm, rig.a, rig.b, count, RMX_FLOAT32, RMX_AVG, 2, NULL), 0);
                call = call_of(RMX_OP_REDUCE, rig.a, rig.b, count);
                call.redop = RMX_AVG;
                call.root = 2;
                check_same(&rig, &call, n + 2);
                assert_int_equal(rmx_broadcast(rig.comm, rig.a, rig.b, count, RMX_FLOAT32, 0, NULL), 0);
                call = call_of(RMX_OP_BROADCAST, rig.a, rig.b, count);
                check_same(&rig, &call, n + 4);
                assert_int_equal(rmx_all_gather(rig.comm, rig.a, rig.b, count, RMX_FLOAT32, NULL), 0);
                call = call_of(RMX_OP_ALL_GATHER, rig.a, rig.b, count);
                check_same(&rig, &call, n + 6);
                assert_int_equal(rmx_reduce_scatter(rig.comm, rig.a, rig.b, count, RMX_FLOAT32, RMX_SUM, NULL), 0);
                call = call_of(RMX_OP_REDUCE_SCATTER, rig.a, rig.b, count);
                check_same(&rig, &call, n + 8);
                assert_int_equal(rmx_all_to_all(rig.comm, rig.a, rig.b, count, RMX_FLOAT32, NULL), 0);
                call = call_of(RMX_OP_ALL_TO_ALL, rig.a, rig.b, count);
                check_same(&rig, &call, n + 10);
                assert_int_equal(rmx_gather(rig.comm, rig.a, rig.b, count, RMX_FLOAT32, 0, NULL), 0);
                call = call_of(RMX_OP_GATHER, rig.a, rig.b, count);
                check_same(&rig, &call, n + 12);
                assert_int_equal(rmx_scatter(rig.comm, rig.a, rig.b, count, RMX_FLOAT32, 3, NULL), 0);
                call = call_of(RMX_OP_SCATTER, rig.a, rig.b, count);
                call.root = 3;
                check_same(&rig, &call, n + 14);
                n += 16;
        }
        assert_int_equal(rmx_barrier(rig.comm, NULL), RMX_OK);
        call = call_of(RMX_OP_BARRIER, NULL, NULL, 0);
        call.type = 0;
        check_same(&rig, &call, n);
        rig_stop(&rig);
}

/* Memory becomes known here, once, and before any kernel asks for it. */
static void test_memory(void **state) {
        struct rmx_device_call call;
        struct rmx_device_handle handle;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        call = call_of(RMX_OP_ALL_REDUCE, rig.a + 64, rig.b + 4096, 8192);
        assert_int_equal(rmx_device_prepare(rig.comm, &call, &handle), RMX_OK);
        assert_int_equal(creations(&rig), 2);
        check_buffer(&rig, handle.word[RING_W_IN_BUFFER], rig.a, BLOCK, 11);
        check_buffer(&rig, handle.word[RING_W_OUT_BUFFER], rig.b, BLOCK, 22);
        assert_int_equal(handle.word[RING_W_IN_LO], 64);
        assert_int_equal(handle.word[RING_W_OUT_LO], 4096);
        assert_int_equal(rmx_device_prepare(rig.comm, &call, &handle), RMX_OK);
        assert_int_equal(creations(&rig), 2);
        rig_stop(&rig);
}

static void refused(struct rig *rig, const struct rmx_device_call *call, int code, const char *text) {
        struct rmx_device_handle handle, before;

        memset(&handle, 0x5a, sizeof(handle));
        memset(&before, 0x5a, sizeof(before));
        assert_int_equal(rmx_device_prepare(rig->comm, call, &handle), code);
        assert_error_says("rmx_device_prepare");
        assert_error_says(text);
        assert_memory_equal(&handle, &before, sizeof(handle));
        assert_int_equal(rmx_comm_error(rig->comm), RMX_OK);
}

static void test_refused(void **state) {
        struct {
                struct rmx_device_call call;
                uint64_t more[2];
        } larger = {0};
        struct rmx_device_call call, good;
        struct rmx_device_handle handle;
        struct fake_gpu_block *block;
        const float factor = 2;
        static char host[65536], secret[65536];
        uint32_t redop;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        good = call_of(RMX_OP_ALL_REDUCE, rig.a, rig.b, 8192);
        larger.call = good;
        refused(&rig, NULL, RMX_E_INVALID, "call is NULL");
        assert_int_equal(rmx_device_prepare(rig.comm, &good, NULL), RMX_E_INVALID);
        assert_error_says("ret_handle is NULL");
        assert_int_equal(rmx_device_prepare(NULL, &good, &handle), RMX_E_INVALID);

        call = good;
        call.size--;
        refused(&rig, &call, RMX_E_INVALID, "call->size");
        larger.call.size = sizeof(larger);
        larger.more[1] = 1;
        refused(&rig, &larger.call, RMX_E_UNSUPPORTED, "does not know");
        larger.more[1] = 0;
        assert_int_equal(rmx_device_prepare(rig.comm, &larger.call, &handle), RMX_OK);
        call = good;
        call.version++;
        refused(&rig, &call, RMX_E_VERSION, "version 2");
        call = good;
        call.reserved = 1;
        refused(&rig, &call, RMX_E_INVALID, "reserved");
        for (uint32_t operation = 0; operation < 300; operation++) {
                bool known = (operation >= RMX_OP_ALL_REDUCE && operation <= RMX_OP_ALL_TO_ALL) ||
                             operation == RMX_OP_GATHER || operation == RMX_OP_SCATTER || operation == RMX_OP_BARRIER;
                bool other =
                        operation == RING_OP_SEND || operation == RING_OP_RECV || operation == RING_OP_ALL_TO_ALL_V;

                call = good;
                call.operation = operation;
                if (!known)
                        refused(&rig, &call, other ? RMX_E_UNSUPPORTED : RMX_E_INVALID, "operation");
        }
        call = good;
        call.operation = RMX_OP_BARRIER;
        refused(&rig, &call, RMX_E_INVALID, "count and type");
        call = good;
        call.root = 1;
        refused(&rig, &call, RMX_E_INVALID, "root");
        call.operation = RMX_OP_BROADCAST;
        call.root = 2;
        refused(&rig, &call, RMX_E_INVALID, "root 2");
        call = good;
        call.operation = RMX_OP_ALL_GATHER;
        call.redop = RMX_MAX;
        refused(&rig, &call, RMX_E_INVALID, "redop");
        call = good;
        call.type = RMX_TYPE_COUNT;
        refused(&rig, &call, RMX_E_INVALID, "type");
        call = good;
        call.redop = RMX_PREMUL_SUM;
        refused(&rig, &call, RMX_E_INVALID, "factor");
        assert_int_equal(rmx_redop_create_premul_sum(rig.comm, &factor, RMX_FLOAT32, RMX_SCALAR_IMMEDIATE, &redop),
                         RMX_OK);
        call.redop = redop;
        refused(&rig, &call, RMX_E_UNSUPPORTED, "factor");

        /* memory */
        call = good;
        call.in = NULL;
        refused(&rig, &call, RMX_E_INVALID, "in is NULL");
        call.in = host;
        refused(&rig, &call, RMX_E_INVALID, "host memory");
        call.in = rig.a + BLOCK - 4;
        refused(&rig, &call, RMX_E_INVALID, "run over the end");
        call.in = rig.a + 2;
        refused(&rig, &call, RMX_E_INVALID, "not aligned");
        block = fake_gpu_add(rig.gpu, secret, sizeof(secret), 33);
        block->secret = true;
        call.in = secret;
        refused(&rig, &call, RMX_E_UNSUPPORTED, "no other process can map");
        call.count = 16; /* goes through the area */
        assert_int_equal(rmx_device_prepare(rig.comm, &call, &handle), RMX_OK);

        assert_int_equal(rmx_device_prepare(rig.comm, &good, &handle), RMX_OK);
        rig_stop(&rig);
}

/* A communicator that has failed gives no handles. */
static void test_failed(void **state) {
        struct rmx_device_handle handle;
        struct rmx_device_call call;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(rmx_comm_abort(rig.comm), RMX_OK);
        call = call_of(RMX_OP_ALL_REDUCE, rig.a, rig.b, 8192);
        assert_int_equal(rmx_device_prepare(rig.comm, &call, &handle), RMX_E_ABORTED);
        rig_stop(&rig);
}

static void test_host(void **state) {
        static float memory[16];
        struct rmx_device_call call = call_of(RMX_OP_ALL_REDUCE, memory, memory, 16);
        struct rmx_device_handle handle;
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 64);
        assert_int_equal(rmx_device_prepare(crew.comm[0], &call, &handle), RMX_E_UNSUPPORTED);
        assert_error_says("host backend");
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_as_called), cmocka_unit_test(test_memory), cmocka_unit_test(test_refused),
                cmocka_unit_test(test_failed),    cmocka_unit_test(test_host),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
