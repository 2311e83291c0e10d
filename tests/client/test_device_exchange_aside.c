/* SPDX-License-Identifier: MIT */
/* Started exchanges, on a stream of their communicator's own: where they go, and what comes after what. */
#include "tests/client/exchange_order.h"

/* ---- starts and calls -------------------------------------------------------------------------------------------- */
static void test_beside(void **state) {
        struct rmx_request request;

        (void)state;
        rig_start();
        assert_non_null(own());
        rig.gpu->stuck = true;
        assert_int_equal(reduce(8, STREAM(1)), RMX_OK);
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        assert_int_equal(launches(), 4);
        assert_ptr_equal(launched(1, FAKE_GPU_ORDER, own())->from, STREAM(1));
        assert_int_equal(launched(2, FAKE_GPU_EXCHANGE, own())->bell.number, 4);
        assert_true(launched(2, FAKE_GPU_EXCHANGE, own())->bell.started); /* it is asked for behind others, too */
        launched(3, FAKE_GPU_SET, own());
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 5);
        launched(4, FAKE_GPU_AWAIT, STREAM(1));
        assert_int_equal(rig.comm->device->flags, 0);
        /* What comes next there is behind it by itself. */
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 6);
        assert_false(launched(5, FAKE_GPU_EXCHANGE, STREAM(1))->bell.started);
        check_order();

        /* One that is over is not touched: neither its stream nor a flag. */
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        assert_int_equal(launches(), 9);
        rig.gpu->stuck = false;
        fake_gpu_stream_destroy(rig.gpu, STREAM(1));
        assert_int_equal(rmx_wait_stream(&request, STREAM(2)), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(2)), RMX_OK);
        assert_int_equal(launches(), 10);
        assert_int_equal(rig.comm->device->flags, 0);
        crew_stop(&rig.crew);
}

/* Whose wait is missing, on the same stream, on others, of both kinds, and started ones too. */
static void test_behind(void **state) {
        struct rmx_request request[4];

        (void)state;
        rig_start();
        rig.gpu->stuck = true;
        assert_int_equal(start(MIN, STREAM(1), &request[0]), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 5);
        assert_ptr_equal(launched(3, FAKE_GPU_ORDER, STREAM(1))->from, own());
        launched(4, FAKE_GPU_EXCHANGE, STREAM(1));
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 6); /* once is enough */

        assert_int_equal(start(MIN, STREAM(1), &request[1]), RMX_OK);
        assert_int_equal(reduce(8, STREAM(2)), RMX_OK);
        assert_int_equal(start(MIN, STREAM(2), &request[2]), RMX_OK);
        assert_int_equal(start(8, STREAM(3), &request[3]), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(4)), RMX_OK);
        assert_int_equal(start(MIN, STREAM(5), &request[0]), RMX_OK);
        check_order();
        rig.gpu->stuck = false;
        crew_stop(&rig.crew);
}

/* A wait is for its request, not for those after it. */
static void test_wait_one(void **state) {
        struct rmx_request first, second;
        uint32_t wait;

        (void)state;
        rig_start();
        rig.gpu->stuck = true;
        assert_int_equal(start(MIN, STREAM(1), &first), RMX_OK);
        assert_int_equal(start(MIN, STREAM(1), &second), RMX_OK);
        assert_int_equal(rmx_wait_stream(&first, STREAM(1)), RMX_OK);
        wait = last();
        launched(wait, FAKE_GPU_AWAIT, STREAM(1));
        assert_true(behind(1, wait));
        assert_false(behind(4, wait));
        /* So a call there is not behind the second one by itself; on another stream neither. */
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_int_equal(start(MIN, STREAM(1), &first), RMX_OK);
        assert_int_equal(rmx_wait_stream(&first, STREAM(2)), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        check_order();
        rig.gpu->stuck = false;
        crew_stop(&rig.crew);
}

/* A wait for a rung request, on the stream of the last start: what comes on another stream is behind that, too. */
static void test_tail(void **state) {
        struct rmx_request rung, aside;
        uint32_t wait;

        (void)state;
        rig_start();
        rig.gpu->hold = true;
        assert_int_equal(start(8, STREAM(1), &rung), RMX_OK);
        assert_int_equal(start(MIN, STREAM(1), &aside), RMX_OK);
        rig.gpu->stuck = true;
        assert_int_equal(rmx_wait_stream(&rung, STREAM(1)), RMX_OK);
        wait = last();
        launched(wait, FAKE_GPU_WAIT, STREAM(1));
        rig.gpu->stuck = false; /* all numbers have been told */
        assert_int_equal(reduce(8, STREAM(2)), RMX_OK);
        assert_true(behind(wait, exchange_or_call()));
        assert_int_equal(start(8, STREAM(1), &rung), RMX_OK);
        rig.gpu->stuck = true;
        assert_int_equal(start(MIN, STREAM(1), &aside), RMX_OK);
        assert_int_equal(rmx_wait_stream(&rung, STREAM(1)), RMX_OK);
        wait = last();
        assert_int_equal(start(MIN, STREAM(3), &aside), RMX_OK);
        assert_true(behind(wait, exchange_or_call()));
        /* Not where its stream is being captured; the kernel waits for the number, as long as that is not told. */
        assert_int_equal(start(8, STREAM(1), &rung), RMX_OK);
        assert_int_equal(start(MIN, STREAM(1), &aside), RMX_OK);
        assert_int_equal(rmx_wait_stream(&rung, STREAM(1)), RMX_OK);
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(start(MIN, STREAM(1), &aside), RMX_OK);
        assert_int_equal(reduce(8, STREAM(2)), RMX_OK);
        assert_int_equal(launched(last(), FAKE_GPU_CALL, STREAM(2))->bell.after, rig.comm->number - 1);
        assert_int_equal(rmx_wait_stream(&aside, STREAM(1)), RMX_OK);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        rig.gpu->stuck = rig.gpu->hold = false;
        crew_stop(&rig.crew);
}

/* The stream of the start may go when the wait is on another one: nothing is there. */
static void test_gone(void **state) {
        struct rmx_request request;

        (void)state;
        rig_start();
        rig.gpu->stuck = true;
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        assert_int_equal(rmx_wait_stream(&request, STREAM(2)), RMX_OK);
        fake_gpu_stream_destroy(rig.gpu, STREAM(1));
        assert_int_equal(reduce(MIN, STREAM(2)), RMX_OK);
        assert_int_equal(start(MIN, STREAM(2), &request), RMX_OK);
        check_order();
        rig.gpu->stuck = false;
        crew_stop(&rig.crew);
}

/* At its place, as a call. */
static void check_place(uint32_t i, void *stream) {
        launched(i, FAKE_GPU_EXCHANGE, stream);
        assert_int_equal(last(), i);
}

static void test_no_stream(void **state) {
        struct rmx_request request, later;

        (void)state;
        rig_start();
        rig.comm->aside.stream = NULL;
        rig.gpu->stuck = true;
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        check_place(0, STREAM(1));
        assert_int_equal(start(MIN, STREAM(1), &later), RMX_OK);
        check_place(1, STREAM(1));
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_OK); /* by itself */
        assert_int_equal(launches(), 2);
        assert_int_equal(rmx_wait_stream(&later, STREAM(2)), RMX_OK);
        assert_ptr_equal(launched(2, FAKE_GPU_ORDER, STREAM(2))->from, STREAM(1));
        assert_int_equal(rmx_wait_stream(&later, STREAM(2)), RMX_E_INVALID);

        /* Nothing can be put behind a stream that is being captured. */
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(rmx_wait_stream(&request, STREAM(2)), RMX_E_INVALID);
        assert_error_says("is being captured, so no other one can be put behind it");
        /* And a captured one is waited for in its capture. */
        assert_int_equal(start(MIN, STREAM(1), &later), RMX_OK);
        check_place(4, STREAM(1));
        fake_gpu_capture(rig.gpu, STREAM(2), NULL);
        assert_int_equal(rmx_wait_stream(&later, STREAM(2)), RMX_E_INVALID);
        assert_error_says("is not being captured any more");
        fake_gpu_capture(rig.gpu, NULL, NULL);
        rig.gpu->stuck = false;
        fake_gpu_stream_destroy(rig.gpu, STREAM(1));
        assert_int_equal(rmx_wait_stream(&request, STREAM(2)), RMX_OK);
        crew_stop(&rig.crew);
}

/* ---- flags ------------------------------------------------------------------------------------------------------- */
static void test_flags(void **state) {
        struct rmx_request request[CLIENT_GPU_FLAGS], more;

        (void)state;
        rig_start();
        rig.gpu->stuck = true;
        for (uint32_t i = 0; i < CLIENT_GPU_FLAGS; i++) {
                assert_int_equal(start(MIN, STREAM(1), &request[i]), RMX_OK);
                for (uint32_t k = 2; k < last(); k += 3)
                        assert_int_not_equal(launched(k, FAKE_GPU_SET, own())->flag,
                                             launched(last(), FAKE_GPU_SET, own())->flag);
        }
        assert_int_equal(rig.comm->device->flags, UINT64_MAX);
        /* The next one is at its place, behind them; then comes what is started aside again. */
        assert_int_equal(start(MIN, STREAM(1), &more), RMX_OK);
        launched(last(), FAKE_GPU_EXCHANGE, STREAM(1));
        assert_int_equal(rmx_wait_stream(&more, STREAM(1)), RMX_OK);
        assert_int_equal(rmx_wait_stream(&request[7], STREAM(2)), RMX_OK);
        assert_int_equal(rig.comm->device->flags, ~(UINT64_C(1) << launched(last(), FAKE_GPU_AWAIT, STREAM(2))->flag));
        assert_int_equal(start(MIN, STREAM(1), &request[7]), RMX_OK);
        assert_int_equal(rig.comm->device->flags, UINT64_MAX);
        launched(last(), FAKE_GPU_SET, own());
        check_order();
        rig.gpu->stuck = false;
        /* They come back whichever way a request ends, also with its communicator. */
        assert_int_equal(rmx_wait(&request[0], NULL), RMX_OK);
        assert_int_equal(rmx_wait_for(&request[1], 1), RMX_OK);
        assert_int_equal(__builtin_popcountll(rig.comm->device->flags), CLIENT_GPU_FLAGS - 2);
        rig.comm = rig.crew.comm[0] = NULL;
        crew_stop(&rig.crew);
}

static void test_flags_go(void **state) {
        struct device *device;
        struct rmx_request request;

        (void)state;
        rig_split();
        device = rig.comm->device;
        for (uint32_t i = 0; i < 2 * CLIENT_GPU_FLAGS; i++)
                assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        assert_int_equal(device->flags, UINT64_MAX);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        rig.crew.comm[0] = NULL;
        assert_int_equal(device->flags, 0);
        split_stop();
}

static void test_fails(void **state) {
        struct rmx_request request;

        (void)state;
        rig_start();
        rig.gpu->stuck = true;
        rig.gpu->fail = RMX_E_NO_MEMORY;
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_E_NO_MEMORY);
        assert_error_says("rmx_all_reduce_start: launching failed");
        rig.gpu->fail_set = RMX_E_NO_MEMORY;
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_E_NO_MEMORY);
        assert_error_says("rmx_all_reduce_start: setting failed");
        assert_int_equal(rig.comm->device->flags, 0);
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK); /* behind what is there */
        check_order();
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        rig.gpu->fail_await = RMX_E_NO_MEMORY;
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_E_NO_MEMORY);
        assert_error_says("awaiting failed");
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_OK); /* it is still there */

        /* In a capture the own stream is joined. */
        for (uint32_t i = 0; i < 2; i++) {
                fake_gpu_capture(rig.gpu, STREAM(2), NULL);
                if (i)
                        rig.gpu->fail_set = RMX_E_NO_MEMORY;
                else
                        rig.gpu->fail = RMX_E_NO_MEMORY;
                assert_int_equal(start(MIN, STREAM(2), &request), RMX_E_NO_MEMORY);
                assert_ptr_equal(launched(last(), FAKE_GPU_ORDER, STREAM(2))->from, own());
                fake_gpu_capture(rig.gpu, NULL, NULL);
        }
        assert_int_equal(rig.comm->device->flags, 0);
        rig.gpu->stuck = false;
        crew_stop(&rig.crew);
}

/* ---- captures ---------------------------------------------------------------------------------------------------- */
static void test_captured(void **state) {
        struct rmx_request request, other;

        (void)state;
        rig_start();
        for (uint32_t i = 0; i < CLIENT_GPU_CELLS + 1; i++) { /* a graph keeps nothing of the library's */
                rig.gpu->n_launches = rig.first;
                fake_gpu_capture(rig.gpu, STREAM(1), NULL);
                assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
                assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_OK);
                fake_gpu_capture(rig.gpu, NULL, NULL);
        }
        assert_int_equal(launches(), 4);
        assert_ptr_equal(launched(0, FAKE_GPU_ORDER, own())->from, STREAM(1));
        assert_true(launched(1, FAKE_GPU_EXCHANGE, own())->bell.captured);
        assert_int_equal(launched(1, FAKE_GPU_EXCHANGE, own())->bell.number, 0);
        launched(2, FAKE_GPU_SET, own());
        launched(3, FAKE_GPU_AWAIT, STREAM(1));
        assert_int_equal(rig.comm->device->flags, 0);

        /* The wait belongs in the same capture. */
        fake_gpu_capture(rig.gpu, STREAM(1), STREAM(3));
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        assert_error_says("waited for in its graph");
        assert_int_equal(rmx_wait_stream(&request, STREAM(2)), RMX_E_INVALID);
        assert_error_says("belong in the same capture");
        assert_int_equal(rmx_wait_stream(&request, STREAM(3)), RMX_E_INVALID);
        assert_error_says("the stream is in another capture");
        /* Another capture cannot have the own stream meanwhile, and there the start is at its place. */
        assert_int_equal(start(MIN, STREAM(3), &other), RMX_OK);
        launched(last(), FAKE_GPU_EXCHANGE, STREAM(3));
        assert_int_equal(rmx_wait_stream(&other, STREAM(3)), RMX_OK);
        launched(last(), FAKE_GPU_EXCHANGE, STREAM(3));
        /* Nor is anything there behind what is in this one. */
        assert_int_equal(reduce(MIN, STREAM(3)), RMX_OK);
        launched(last() - 1, FAKE_GPU_EXCHANGE, STREAM(3));
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_E_INVALID);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        crew_stop(&rig.crew);
}

/* Calls of a capture are behind its starts; once they are, by a wait or a call, nothing more is put there. */
static void test_captured_calls(void **state) {
        struct rmx_request request[2];
        uint32_t n;

        (void)state;
        rig_start();
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(start(MIN, STREAM(1), &request[0]), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_ptr_equal(launched(3, FAKE_GPU_ORDER, STREAM(1))->from, own());
        check_place(4, STREAM(1));
        assert_int_equal(reduce(8, STREAM(1)), RMX_OK);
        launched(5, FAKE_GPU_CALL, STREAM(1));
        assert_int_equal(rmx_wait_stream(&request[0], STREAM(1)), RMX_OK);

        assert_int_equal(start(MIN, STREAM(1), &request[0]), RMX_OK);
        assert_int_equal(start(MIN, STREAM(1), &request[1]), RMX_OK);
        n = exchange_or_call();
        assert_int_equal(rmx_wait_stream(&request[0], STREAM(1)), RMX_OK);
        assert_false(behind(n, last()));
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_true(behind(n, last()));
        assert_int_equal(rmx_wait_stream(&request[1], STREAM(1)), RMX_OK);

        assert_int_equal(start(MIN, STREAM(1), &request[0]), RMX_OK);
        assert_int_equal(rmx_wait_stream(&request[0], STREAM(1)), RMX_OK);
        n = launches();
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        check_place(n, STREAM(1));

        /* Two streams of one capture: a wait on the one says nothing of the other. */
        rig.gpu->pulled[rig.gpu->n_pulled++] = (struct fake_gpu_pulled){STREAM(2), STREAM(1)};
        assert_int_equal(start(MIN, STREAM(1), &request[0]), RMX_OK);
        n = exchange_or_call();
        assert_int_equal(start(MIN, STREAM(2), &request[1]), RMX_OK);
        assert_int_equal(rmx_wait_stream(&request[1], STREAM(2)), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_true(behind(n, last()));
        assert_int_equal(rmx_wait_stream(&request[0], STREAM(1)), RMX_OK);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_int_equal(rig.comm->aside.captured, 0);
        rig.gpu->pulled[rig.gpu->n_pulled++] = (struct fake_gpu_pulled){STREAM(2), STREAM(1)};
        assert_int_equal(start(MIN, STREAM(1), &request[0]), RMX_OK);
        n = exchange_or_call();
        assert_int_equal(rmx_wait_stream(&request[0], STREAM(2)), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_true(behind(n, last()));
        fake_gpu_capture(rig.gpu, NULL, NULL);

        /* It is over: the next one, and what runs at once, has nothing to do with it. */
        n = launches();
        fake_gpu_capture(rig.gpu, STREAM(4), NULL);
        assert_int_equal(reduce(MIN, STREAM(4)), RMX_OK);
        check_place(n, STREAM(4));
        fake_gpu_capture(rig.gpu, NULL, NULL);
        assert_int_equal(reduce(MIN, STREAM(5)), RMX_OK);
        check_place(n + 1, STREAM(5));
        crew_stop(&rig.crew);
}

/* What runs at once, while the own stream is being captured. */
static void test_mixed(void **state) {
        struct rmx_request before, captured, during, after;
        uint32_t n;

        (void)state;
        rig_start();
        rig.gpu->stuck = true;
        assert_int_equal(start(MIN, STREAM(1), &before), RMX_OK);
        fake_gpu_capture(rig.gpu, STREAM(2), NULL);
        assert_int_equal(start(MIN, STREAM(2), &captured), RMX_OK);
        n = launches();
        /* The kernel itself waits for what was started before; its wait needs nothing but the flag. */
        assert_int_equal(start(MIN, STREAM(1), &during), RMX_OK);
        check_place(n, STREAM(1));
        assert_int_equal(launched(n, FAKE_GPU_EXCHANGE, STREAM(1))->bell.after, 3);
        assert_int_equal(rmx_wait_stream(&before, STREAM(3)), RMX_OK);
        launched(n + 1, FAKE_GPU_AWAIT, STREAM(3));
        assert_int_equal(reduce(8, STREAM(3)), RMX_OK);
        assert_ptr_equal(launched(n + 2, FAKE_GPU_ORDER, STREAM(3))->from, STREAM(1));
        assert_int_equal(rmx_wait_stream(&captured, STREAM(2)), RMX_OK);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        /* Then it is there again. */
        assert_int_equal(start(MIN, STREAM(1), &after), RMX_OK);
        launched(last(), FAKE_GPU_SET, own());
        fake_gpu_capture(rig.gpu, STREAM(2), NULL);
        assert_int_equal(start(MIN, STREAM(2), &captured), RMX_OK);
        assert_int_equal(reduce(8, STREAM(4)), RMX_OK);
        assert_int_equal(launched(last(), FAKE_GPU_CALL, STREAM(4))->bell.after, 6);
        assert_int_equal(rmx_wait_stream(&captured, STREAM(2)), RMX_OK);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        assert_int_equal(rmx_wait_stream(&after, STREAM(1)), RMX_OK);
        assert_int_equal(rmx_wait_stream(&during, STREAM(1)), RMX_OK);
        check_order();
        assert_int_equal(rig.comm->device->flags, 0);
        rig.gpu->stuck = false;
        crew_stop(&rig.crew);
}

/* A capture that is not over when its communicator goes has the stream that the next one joins on. */
static void test_captured_join(void **state) {
        struct rmx_request request;

        (void)state;
        rig_start();
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        rig.comm = rig.crew.comm[0] = NULL;
        assert_int_equal(rmx_comm_destroy(rig.crew.comm[1]), RMX_OK);
        rig.crew.comm[1] = NULL;
        rig.options.timeout_ms = 100;
        assert_int_equal(rmx_get_id(rig.crew.session, &rig.crew.id), RMX_OK);
        crew_run(&rig.crew, rig_join_rank);
        assert_int_equal(rig.crew.result[0], RMX_E_INVALID);
        assert_int_not_equal(rig.crew.result[1], RMX_OK);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        crew_stop(&rig.crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_beside),         cmocka_unit_test(test_behind),
                cmocka_unit_test(test_wait_one),       cmocka_unit_test(test_tail),
                cmocka_unit_test(test_gone),           cmocka_unit_test(test_no_stream),
                cmocka_unit_test(test_flags),          cmocka_unit_test(test_flags_go),
                cmocka_unit_test(test_fails),          cmocka_unit_test(test_captured),
                cmocka_unit_test(test_captured_calls), cmocka_unit_test(test_mixed),
                cmocka_unit_test(test_captured_join),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
