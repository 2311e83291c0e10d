/* SPDX-License-Identifier: MIT */
/* Started exchanges, on a stream of their communicator's own: where they go, and what comes after what. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/comm.h"
#include "client/device.h"
#include "tests/client/exchange_rig.h"

static int start(size_t bytes, void *stream, struct rmx_request *request) {
        return rmx_all_reduce_start(rig.comm, rig.memory, rig.memory, bytes, RMX_UINT8, RMX_SUM, stream, request);
}

static void *own(void) {
        return rig.comm->aside.stream;
}

/* ---- what comes after what --------------------------------------------------------------------------------------- */
/* Is what was put `k`-th on a stream behind what was put `i`-th? Counted from the join. */
static bool behind(uint32_t i, uint32_t k) {
        bool is[FAKE_GPU_LAUNCHES] = {false};
        uint32_t flag[CLIENT_GPU_FLAGS] = {0};

        is[rig.first + i] = true;
        for (uint32_t n = rig.first; n <= rig.first + k; n++) {
                const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, n);

                if (launch->kind == FAKE_GPU_SET)
                        flag[launch->flag] = n;
                if (launch->kind == FAKE_GPU_AWAIT && n > rig.first + i)
                        is[n] |= is[flag[launch->flag]];
                for (uint32_t p = rig.first + i; p < n; p++) {
                        const struct fake_gpu_launch *before = fake_gpu_launched(rig.gpu, p);

                        is[n] |= is[p] && (before->stream == launch->stream ||
                                           (launch->kind == FAKE_GPU_ORDER && before->stream == launch->from) ||
                                           (launch->bell.after && launch->bell.after == before->bell.number &&
                                            launch->bell.slot == before->bell.slot));
                }
        }
        return is[rig.first + k];
}

/* The last one. */
static uint32_t last(void) {
        return launches() - 1;
}

static uint32_t exchange_or_call(void) {
        uint32_t i = last();

        while (fake_gpu_launched(rig.gpu, rig.first + i)->kind != FAKE_GPU_EXCHANGE &&
               fake_gpu_launched(rig.gpu, rig.first + i)->kind != FAKE_GPU_CALL)
                i--;
        return i;
}

static bool is_number(const struct fake_gpu_launch *launch) {
        return (launch->kind == FAKE_GPU_EXCHANGE || launch->kind == FAKE_GPU_CALL || launch->kind == FAKE_GPU_START) &&
               launch->bell.number;
}

/* Each launch with a number is behind the one with the number before, and on no stream that is captured. */
static void check_order(void) {
        uint32_t before[2] = {0}, number[2] = {2, 2};

        for (uint32_t i = 0; i < launches(); i++) {
                const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, rig.first + i);
                const uint32_t slot = launch->bell.slot;

                if (!is_number(launch))
                        continue;
                assert_true(slot < 2);
                assert_int_equal(launch->bell.number, number[slot] + 1);
                if (number[slot] > 2)
                        assert_true(behind(before[slot], i));
                number[slot]++;
                before[slot] = i;
        }
}

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
        launched(3, FAKE_GPU_SET, own());
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 5);
        launched(4, FAKE_GPU_AWAIT, STREAM(1));
        assert_int_equal(rig.comm->device->flags, 0);
        /* What comes next there is behind it by itself. */
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 6);
        launched(5, FAKE_GPU_EXCHANGE, STREAM(1));
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

static int split(struct crew *crew, uint32_t rank) {
        const struct rmx_comm_options options = {.size = sizeof(options), .gpu = (int32_t)rank};

        return rmx_comm_split(crew->comm[rank], 0, (int32_t)rank, &options, &crew->comm[rank + 2]);
}

/* A second communicator of the same ranks. */
static void rig_split(void) {
        rig_start();
        crew_run(&rig.crew, split);
        rig_joined();
}

static void split_stop(void) {
        for (uint32_t i = 2; i < 4; i++) {
                assert_int_equal(rmx_comm_destroy(rig.crew.comm[i]), RMX_OK);
                rig.crew.comm[i] = NULL;
        }
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

/* ---- groups ------------------------------------------------------------------------------------------------------ */
/* Two communicators of this rank, in this order, each with something rung before and behind its exchange. */
static void group(uint32_t first, void *stream, void *second) {
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t i = 0; i < 2; i++) {
                struct rmx_comm *comm = rig.crew.comm[first ^ (i ? 2 : 0)];

                assert_int_equal(
                        rmx_all_reduce(comm, rig.memory, rig.memory, 8, RMX_UINT8, RMX_SUM, i ? second : stream),
                        RMX_OK);
                assert_int_equal(
                        rmx_all_reduce(comm, rig.memory, rig.memory, MIN, RMX_UINT8, RMX_SUM, i ? second : stream),
                        RMX_OK);
                assert_int_equal(rmx_send(comm, rig.memory, 8, RMX_UINT8, 1, i ? second : stream), RMX_OK);
        }
}

/* The exchange of the communicator in this slot. */
static uint32_t exchange_of(const struct rmx_comm *comm) {
        for (uint32_t i = 0; i < launches(); i++) {
                const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, rig.first + i);

                if (launch->kind == FAKE_GPU_EXCHANGE && launch->bell.slot == comm->slot)
                        return i;
        }
        fail();
        return 0;
}

static void test_group(void **state) {
        static const bool captured[] = {false, true};

        (void)state;
        rig_split();
        rig.gpu->stuck = true;
        for (uint32_t n = 0; n < 4; n++) {
                const uint32_t first = n / 2 * 2;
                struct rmx_comm *a = rig.crew.comm[first], *b = rig.crew.comm[first ^ 2];
                uint32_t x, y;

                rig.first = rig.gpu->n_launches;
                if (captured[n % 2])
                        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
                group(first, STREAM(1), STREAM(1));
                assert_int_equal(rmx_group_end(), RMX_OK);
                /* Nothing is behind anything of the other one, but what follows is behind all. */
                x = exchange_of(a);
                y = exchange_of(b);
                assert_ptr_not_equal(fake_gpu_launched(rig.gpu, rig.first + x)->stream,
                                     fake_gpu_launched(rig.gpu, rig.first + y)->stream);
                for (uint32_t i = 0; i < launches(); i++) {
                        const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, rig.first + i);

                        if (launch->kind == FAKE_GPU_ORDER)
                                continue;
                        assert_int_equal(launch->bell.captured, captured[n % 2]);
                        assert_false(behind(launch->bell.slot == a->slot ? y : x, i));
                        assert_true(behind(i, last()) || launch->stream == STREAM(1));
                }
                assert_ptr_equal(fake_gpu_launched(rig.gpu, rig.first + last())->stream, STREAM(1));
                assert_false(a->aside.taken);
                assert_false(b->aside.taken);
                fake_gpu_capture(rig.gpu, NULL, NULL);
        }
        rig.gpu->stuck = false;
        split_stop();
}

/* One communicator on a stream: all stays there. */
static void test_group_stays(void **state) {
        (void)state;
        rig_split();
        rig.gpu->stuck = true;
        group(0, STREAM(1), STREAM(2));
        assert_int_equal(rmx_group_end(), RMX_OK);
        for (uint32_t i = 0; i < launches(); i++) {
                const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, rig.first + i);

                assert_int_not_equal(launch->kind, FAKE_GPU_ORDER);
                assert_ptr_equal(launch->stream, launch->bell.slot == rig.comm->slot ? STREAM(1) : STREAM(2));
        }
        /* So it does where nothing is exchanged. */
        rig.first = rig.gpu->n_launches;
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t i = 0; i < 4; i += 2)
                assert_int_equal(
                        rmx_all_reduce(rig.crew.comm[i], rig.memory, rig.memory, 8, RMX_UINT8, RMX_SUM, STREAM(1)),
                        RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        for (uint32_t i = 0; i < launches(); i++)
                assert_ptr_equal(fake_gpu_launched(rig.gpu, rig.first + i)->stream, STREAM(1));
        rig.gpu->stuck = false;
        split_stop();
}

/* A group on the own stream is behind what was started there, by itself. */
static void test_group_behind(void **state) {
        struct rmx_request request;

        (void)state;
        rig_split();
        rig.gpu->stuck = true;
        for (uint32_t n = 0; n < 2; n++) {
                fake_gpu_capture(rig.gpu, n ? STREAM(1) : NULL, NULL);
                assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
                group(0, STREAM(1), STREAM(1));
                assert_int_equal(rmx_group_end(), RMX_OK);
                for (uint32_t i = 0; i < launches(); i++)
                        assert_ptr_not_equal(fake_gpu_launched(rig.gpu, rig.first + i)->stream,
                                             fake_gpu_launched(rig.gpu, rig.first + i)->from);
                assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_OK);
                assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        }
        fake_gpu_capture(rig.gpu, NULL, NULL);
        check_order();
        rig.gpu->stuck = false;
        split_stop();
}

/* A group that fails halfway gives the streams back, joined. */
static void test_group_fails(void **state) {
        struct rmx_request request;

        (void)state;
        rig_split();
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        group(0, STREAM(1), STREAM(1));
        rig.gpu->fail = RMX_E_NO_MEMORY;
        assert_int_equal(rmx_group_end(), RMX_E_NO_MEMORY);
        assert_error_says("launching failed");
        launched(last(), FAKE_GPU_ORDER, STREAM(1));
        assert_false(rig.crew.comm[0]->aside.taken);
        assert_false(rig.crew.comm[2]->aside.taken);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        launched(last(), FAKE_GPU_SET, own());
        /* While a group has the stream, starts are at their place. */
        rig.comm->aside.taken = true;
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        launched(last(), FAKE_GPU_EXCHANGE, STREAM(1));
        rig.comm->aside.taken = false;
        split_stop();
}

static void test_group_started(void **state) {
        struct rmx_request request;
        uint32_t x, y;

        (void)state;
        rig_split();
        rig.gpu->stuck = true;
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t i = 0; i < 4; i += 2)
                assert_int_equal(
                        rmx_all_reduce(rig.crew.comm[i], rig.memory, rig.memory, MIN, RMX_UINT8, RMX_SUM, STREAM(1)),
                        RMX_OK);
        assert_int_equal(rmx_group_end_start(&request), RMX_OK);
        x = exchange_of(rig.crew.comm[0]);
        y = exchange_of(rig.crew.comm[2]);
        launched(x, FAKE_GPU_EXCHANGE, rig.crew.comm[0]->aside.stream);
        launched(y, FAKE_GPU_EXCHANGE, rig.crew.comm[2]->aside.stream);
        assert_false(behind(x, y));
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_OK);
        assert_true(behind(x, last()));
        assert_true(behind(y, last()));
        launched(last(), FAKE_GPU_AWAIT, STREAM(1));
        rig.gpu->stuck = false;
        split_stop();
}

/* A capture has ended that began with this launch: what is in it is in order, and joined by its stream. */
static void check_capture(uint32_t begin, const void *stream) {
        uint32_t before = UINT32_MAX, joined = UINT32_MAX;

        for (uint32_t i = begin; i < launches(); i++) {
                const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, rig.first + i);

                if (launch->stream == stream)
                        joined = i;
                if (!launch->bell.captured || launch->kind == FAKE_GPU_WAIT)
                        continue;
                assert_true(before == UINT32_MAX || behind(before, i));
                before = i;
        }
        assert_true(before == UINT32_MAX || behind(before, joined));
}

/* ---- anything ---------------------------------------------------------------------------------------------------- */
/* Starts, calls and waits on several streams, also in captures, of which everything is awaited: it is all in order,
 * captures are joined, no flag is lost. */
static void test_random(void **state) {
        const char *given = getenv("RAILMUX_SEED");
        const unsigned int seed = given ? (unsigned int)strtoul(given, NULL, 0) : (unsigned int)time(NULL);

        (void)state;
        printf("RAILMUX_SEED=%u\n", seed);
        srand(seed);
        rig_start();
        rig.gpu->stuck = true;
        for (uint32_t n = 0; n < 40; n++) {
                struct rmx_request request[40];
                uint32_t n_requests = 0, captured = 0, begin = 0;
                bool in[40];

                rig.first = rig.gpu->n_launches = 0;
                rig.gpu->stuck = false; /* what was before is over */
                (void)rig.comm->device->ops->comm_finished(rig.comm->device->handle, rig.comm->slot);
                rig.gpu->stuck = true;
                for (uint32_t k = 0; k < 40; k++) {
                        const uint32_t what = (uint32_t)rand() % 8;
                        void *stream = STREAM(1 + rand() % 3);
                        const size_t bytes = rand() % 3 ? MIN : 8;

                        if (what == 7 && !captured && k < 39) {
                                captured = 1 + (uint32_t)rand() % 3;
                                fake_gpu_capture(rig.gpu, STREAM(captured), NULL);
                                begin = launches();
                        } else if (captured && (what == 7 || k == 39)) {
                                for (uint32_t i = 0; i < n_requests; i++) {
                                        if (!in[i])
                                                continue;
                                        assert_int_equal(rmx_wait_stream(&request[i], STREAM(captured)), RMX_OK);
                                        request[i] = request[--n_requests];
                                        in[i] = in[n_requests];
                                        i--;
                                }
                                check_capture(begin, STREAM(captured));
                                fake_gpu_capture(rig.gpu, NULL, NULL);
                                captured = 0;
                        } else if (what < 3) {
                                assert_int_equal(start(bytes, stream, &request[n_requests]), RMX_OK);
                                in[n_requests++] = stream == STREAM(captured) && captured;
                        } else if (what < 5 || !n_requests) {
                                assert_int_equal(reduce(bytes, stream), RMX_OK);
                        } else {
                                const uint32_t i = (uint32_t)rand() % n_requests;

                                if (in[i])
                                        stream = STREAM(captured);
                                else if (captured && stream == STREAM(captured))
                                        continue;
                                if (rmx_wait_stream(&request[i], stream)) { /* at its place, on what is captured now */
                                        assert_true(captured && !in[i]);
                                        assert_error_says("is being captured, so no other one can be put behind it");
                                        continue;
                                }
                                request[i] = request[--n_requests];
                                in[i] = in[n_requests];
                        }
                }
                for (uint32_t i = 0; i < n_requests; i++)
                        assert_int_equal(rmx_wait_stream(&request[i], STREAM(4)), RMX_OK);
                assert_int_equal(rig.comm->device->flags, 0);

                for (uint32_t i = 0, before = UINT32_MAX; i < launches(); i++) {
                        if (!is_number(fake_gpu_launched(rig.gpu, i)))
                                continue;
                        if (before != UINT32_MAX)
                                assert_true(behind(before, i));
                        before = i;
                }
        }
        rig.gpu->stuck = false;
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
                cmocka_unit_test(test_captured_join),  cmocka_unit_test(test_group),
                cmocka_unit_test(test_group_stays),    cmocka_unit_test(test_group_fails),
                cmocka_unit_test(test_group_started),  cmocka_unit_test(test_group_behind),
                cmocka_unit_test(test_random),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
