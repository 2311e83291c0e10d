/* SPDX-License-Identifier: MIT */
/* Exchange: which requests go that way, and how they keep their place among the others. */
#include <sched.h>

#include "client/comm.h"
#include "client/device.h"
#include "tests/client/exchange_rig.h"

static char *memory(void) {
        return rig.memory;
}

/* ---- which ------------------------------------------------------------------------------------------------------- */
/* An operation whose larger side has so many bytes. */
static int run(uint32_t operation, size_t bytes, uint32_t type, void *stream) {
        const size_t count = bytes / rmx_type_size(type);

        switch (operation) {
        case RMX_OP_ALL_REDUCE:
                return rmx_all_reduce(rig.comm, memory(), memory() + 2 * MAX, count, type, RMX_SUM, stream);
        case RMX_OP_REDUCE:
                return rmx_reduce(rig.comm, memory(), memory() + 2 * MAX, count, type, RMX_SUM, 0, stream);
        case RMX_OP_BROADCAST:
                return rmx_broadcast(rig.comm, memory(), memory() + 2 * MAX, count, type, 0, stream);
        case RMX_OP_ALL_GATHER:
                return rmx_all_gather(rig.comm, memory(), memory() + 2 * MAX, count / 2, type, stream);
        case RMX_OP_REDUCE_SCATTER:
                return rmx_reduce_scatter(rig.comm, memory(), memory() + 2 * MAX, count / 2, type, RMX_SUM, stream);
        case RMX_OP_ALL_TO_ALL:
                return rmx_all_to_all(rig.comm, memory(), memory() + 2 * MAX, count / 2, type, stream);
        case RMX_OP_GATHER:
                return rmx_gather(rig.comm, memory(), memory() + 2 * MAX, count / 2, type, 0, stream);
        default:
                return rmx_scatter(rig.comm, memory(), memory() + 2 * MAX, count / 2, type, 0, stream);
        }
}

static bool goes(uint32_t operation, size_t bytes, uint32_t type) {
        const uint32_t before = rig.gpu->n_launches;
        const struct fake_gpu_launch *launch;

        assert_int_equal(run(operation, bytes, type, NULL), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, before + 1);
        launch = fake_gpu_launched(rig.gpu, before);
        assert_true(launch->kind == FAKE_GPU_CALL || launch->kind == FAKE_GPU_EXCHANGE);
        assert_int_equal(launch->bell.number, before - rig.first + 3);
        return launch->kind == FAKE_GPU_EXCHANGE;
}

static void test_which(void **state) {
        static const uint32_t exchanged[] = {RMX_OP_ALL_REDUCE, RMX_OP_ALL_GATHER, RMX_OP_REDUCE_SCATTER,
                                             RMX_OP_ALL_TO_ALL, RMX_OP_REDUCE,     RMX_OP_BROADCAST};
        static const uint32_t rung[] = {RMX_OP_GATHER, RMX_OP_SCATTER};

        (void)state;
        rig_start();
        for (uint32_t i = 0; i < 6; i++) {
                for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++) {
                        const size_t step = 2 * rmx_type_size(type); /* that all operations have */

                        assert_false(goes(exchanged[i], MIN - step, type));
                        assert_true(goes(exchanged[i], MIN, type));
                        assert_true(goes(exchanged[i], MAX, type));
                        assert_false(goes(exchanged[i], MAX + step, type));
                        assert_false(goes(rung[i % 2], MIN, type));
                }
        }
        assert_int_equal(rmx_barrier(rig.comm, NULL), RMX_OK); /* calls of nothing are rung, and so is this */
        assert_int_equal(fake_gpu_launched(rig.gpu, rig.gpu->n_launches - 1)->kind, FAKE_GPU_CALL);
        crew_stop(&rig.crew);
}

/* From one byte on are all: one element, three bytes, and nothing, which a rank may have where others have some. */
static void test_all(void **state) {
        static const uint32_t exchanged[] = {RMX_OP_ALL_REDUCE, RMX_OP_ALL_GATHER, RMX_OP_REDUCE_SCATTER,
                                             RMX_OP_ALL_TO_ALL, RMX_OP_REDUCE,     RMX_OP_BROADCAST};
        static char host[64];

        (void)state;
        rig_open(2);
        rig.crew.fake.exchange_min = 1;
        rig_join();
        for (uint32_t i = 0; i < 6; i++) {
                for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++)
                        assert_true(goes(exchanged[i], 2 * rmx_type_size(type), type));
                assert_true(goes(exchanged[i], 6, RMX_UINT8));
                assert_true(goes(exchanged[i], 0, RMX_FLOAT32));
        }
        assert_true(goes(RMX_OP_GATHER, 0, RMX_UINT8));
        assert_true(goes(RMX_OP_SCATTER, 6, RMX_UINT8));
        fake_gpu_add(rig.gpu, host, sizeof(host), 0)->residence = CLIENT_GPU_HOST;
        assert_int_equal(rmx_all_reduce(rig.comm, host, host + 33, 3, RMX_UINT8, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(fake_gpu_launched(rig.gpu, rig.gpu->n_launches - 1)->kind, FAKE_GPU_EXCHANGE);
        assert_int_equal(rmx_all_reduce(rig.comm, NULL, NULL, 0, RMX_UINT8, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(fake_gpu_launched(rig.gpu, rig.gpu->n_launches - 1)->kind, FAKE_GPU_EXCHANGE);
        assert_int_equal(rmx_barrier(rig.comm, NULL), RMX_OK);
        assert_int_equal(fake_gpu_launched(rig.gpu, rig.gpu->n_launches - 1)->kind, FAKE_GPU_EXCHANGE);
        crew_stop(&rig.crew);
}

static void test_others(void **state) {
        const size_t counts[] = {MIN, MIN}, offsets[] = {0, MIN};

        (void)state;
        rig_start();
        assert_int_equal(rmx_send(rig.comm, memory(), MIN, RMX_UINT8, 1, NULL), RMX_OK);
        assert_int_equal(rmx_recv(rig.comm, memory(), MIN, RMX_UINT8, 1, NULL), RMX_OK);
        assert_int_equal(rmx_all_to_all_v(rig.comm, memory(), counts, offsets, memory() + 2 * MAX, counts, offsets,
                                          RMX_UINT8, NULL),
                         RMX_OK);
        for (uint32_t i = 0; i < 3; i++)
                launched(i, FAKE_GPU_CALL, NULL);
        assert_int_equal(reduce(0, NULL), RMX_OK);
        launched(3, FAKE_GPU_CALL, NULL);
        crew_stop(&rig.crew);
}

static void test_reductions(void **state) {
        const float factor = 0.5f;
        const struct fake_gpu_launch *launch;
        uint32_t redop;

        (void)state;
        rig_start();
        for (redop = 0; redop <= RMX_AVG; redop++) {
                assert_int_equal(rmx_all_reduce(rig.comm, memory(), memory(), MIN, RMX_FLOAT32, redop, STREAM(1)),
                                 RMX_OK);
                launch = launched(redop, FAKE_GPU_EXCHANGE, STREAM(1));
                assert_int_equal(launch->bell.word[RING_W_HEAD] & 0xff, redop);
                assert_int_equal(launch->bell.n_arguments, 0);
        }
        assert_int_equal(rmx_redop_create_premul_sum(rig.comm, &factor, RMX_FLOAT32, RMX_SCALAR_IMMEDIATE, &redop),
                         RMX_OK);
        assert_int_equal(rmx_all_reduce(rig.comm, memory(), memory(), MIN, RMX_FLOAT32, redop, STREAM(1)), RMX_OK);
        launch = launched(RMX_AVG + 1, FAKE_GPU_EXCHANGE, STREAM(1));
        assert_int_equal(launch->bell.n_arguments, 1);
        assert_memory_equal(launch->argument, &factor, sizeof(factor));
        crew_stop(&rig.crew);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
static void test_memory(void **state) {
        static char secret[MIN] __attribute__((aligned(8))), host[2 * MAX], strange[MIN];
        const struct fake_gpu_launch *launch;

        (void)state;
        rig_start();
        fake_gpu_add(rig.gpu, secret, sizeof(secret), 2)->secret = true;
        fake_gpu_add(rig.gpu, host, sizeof(host), 0)->residence = CLIENT_GPU_HOST;
        fake_gpu_add(rig.gpu, strange, sizeof(strange), 3)->device = 0;
        /* Nobody else has to know it, so nothing is copied. */
        assert_int_equal(rmx_all_reduce(rig.comm, secret, memory() + 64, MIN, RMX_UINT8, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(launches(), 1);
        launch = launched(0, FAKE_GPU_EXCHANGE, NULL);
        assert_ptr_equal(launch->bell.in, secret);
        assert_ptr_equal(launch->bell.out, memory() + 64);
        assert_int_equal(launch->bell.in_bytes, MIN);
        assert_int_equal(launch->bell.out_bytes, MIN);
        assert_int_equal(launch->bell.word[RING_W_COUNT_LO], MIN);
        assert_int_equal(launch->bell.word[RING_W_IN_BUFFER], 0);
        assert_int_equal(launch->bell.word[RING_W_OUT_BUFFER], 0);
        assert_false(launch->bell.inlined);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(BUFFER_CREATE)), 0);
        assert_int_equal(rig.gpu->exports, 0);

        assert_int_equal(rmx_all_reduce(rig.comm, strange, memory(), MIN, RMX_UINT8, RMX_SUM, NULL), RMX_E_INVALID);
        assert_error_says("in:");
        assert_int_equal(rmx_all_reduce(rig.comm, memory(), memory() + 2, MAX / 8, RMX_INT32, RMX_SUM, NULL),
                         RMX_E_INVALID);
        assert_error_says("not aligned to the 4 bytes");
        assert_int_equal(rmx_all_reduce(rig.comm, memory(), memory() + 4 * MAX - 8, MIN, RMX_UINT8, RMX_SUM, NULL),
                         RMX_E_INVALID);
        assert_error_says("run over the end");
        /* Host memory as without: where the request would be inlined. */
        assert_int_equal(rmx_all_reduce(rig.comm, host, host, MIN, RMX_UINT8, RMX_SUM, NULL), RMX_OK);
        launched(1, FAKE_GPU_EXCHANGE, NULL);
        /* And so may it lie anywhere. */
        assert_int_equal(
                rmx_all_reduce(rig.comm, memory() + 1, memory() + 2 * MAX + 2, MIN / 4, RMX_INT32, RMX_SUM, NULL),
                RMX_OK);
        launched(2, FAKE_GPU_EXCHANGE, NULL);
        assert_int_equal(rmx_all_reduce(rig.comm, host, host, MAX, RMX_UINT8, RMX_SUM, NULL), RMX_E_INVALID);
        assert_error_says("is host memory");
        assert_int_equal(launches(), 3);
        crew_stop(&rig.crew);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */
static void test_order(void **state) {
        const struct fake_gpu_launch *launch;

        (void)state;
        rig_start();
        rig.gpu->stuck = true;
        assert_int_equal(reduce(8, STREAM(1)), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(2)), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(2)), RMX_OK);
        assert_int_equal(reduce(8, STREAM(3)), RMX_OK);
        assert_int_equal(launches(), 6);
        assert_int_equal(launched(0, FAKE_GPU_CALL, STREAM(1))->bell.number, 3); /* the join had two */
        assert_ptr_equal(launched(1, FAKE_GPU_ORDER, STREAM(2))->from, STREAM(1));
        assert_int_equal(launched(2, FAKE_GPU_EXCHANGE, STREAM(2))->bell.number, 4);
        assert_int_equal(launched(3, FAKE_GPU_EXCHANGE, STREAM(2))->bell.number, 5);
        assert_ptr_equal(launched(4, FAKE_GPU_ORDER, STREAM(3))->from, STREAM(2));
        assert_int_equal(launched(5, FAKE_GPU_CALL, STREAM(3))->bell.number, 6);

        /* Captured ones have no number, and those that come while the last stream is captured wait by themselves. */
        rig.gpu->capturing = STREAM(3);
        assert_int_equal(reduce(MIN, STREAM(3)), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(4)), RMX_OK);
        assert_int_equal(launches(), 8);
        launch = launched(6, FAKE_GPU_EXCHANGE, STREAM(3));
        assert_true(launch->bell.captured);
        assert_int_equal(launch->bell.number, 0);
        launch = launched(7, FAKE_GPU_EXCHANGE, STREAM(4));
        assert_false(launch->bell.captured);
        assert_int_equal(launch->bell.number, 7);
        assert_int_equal(launch->bell.after, 6);
        rig.gpu->capturing = NULL;
        rig.gpu->stuck = false;

        /* What is over needs no order, and its stream may be gone. */
        fake_gpu_stream_destroy(rig.gpu, STREAM(4));
        assert_int_equal(reduce(MIN, STREAM(5)), RMX_OK);
        assert_int_equal(launches(), 9);
        crew_stop(&rig.crew);
}

static void test_launch_fails(void **state) {
        struct rmx_request request;

        (void)state;
        rig_start();
        rig.gpu->fail = RMX_E_NO_MEMORY;
        assert_int_equal(reduce(MIN, NULL), RMX_E_NO_MEMORY);
        assert_error_says("rmx_all_reduce: launching failed");
        for (uint32_t i = 0; i < CLIENT_GPU_CELLS + 1; i++) {
                rig.gpu->fail = RMX_E_NO_MEMORY;
                assert_int_equal(
                        rmx_all_reduce_start(rig.comm, memory(), memory(), MIN, RMX_UINT8, RMX_SUM, NULL, &request),
                        RMX_E_NO_MEMORY);
        }
        assert_int_equal(rig.comm->device->n_started, 0);
        assert_int_equal(rig.comm->device->flags, 0);
        rig.gpu->n_launches = rig.first;
        assert_int_equal(reduce(MIN, NULL), RMX_OK);
        assert_int_equal(launched(0, FAKE_GPU_EXCHANGE, NULL)->bell.number, 3);
        crew_stop(&rig.crew);
}

/* ---- start and wait ---------------------------------------------------------------------------------------------- */
static int start(size_t bytes, void *stream, struct rmx_request *request) {
        return rmx_all_reduce_start(rig.comm, memory(), memory(), bytes, RMX_UINT8, RMX_SUM, stream, request);
}

static void test_wait(void **state) {
        struct rmx_request request, later, copy;
        int done = 1;

        (void)state;
        rig_start();
        rig.gpu->stuck = true;
        assert_int_equal(start(MIN, STREAM(1), &request), RMX_OK);
        assert_int_equal(start(MIN, STREAM(1), &later), RMX_OK);
        assert_int_equal(launched(1, FAKE_GPU_EXCHANGE, rig.comm->aside.stream)->bell.number, 3);
        assert_int_equal(rmx_test(&request, &done), RMX_OK);
        assert_int_equal(done, 0);
        assert_int_equal(rmx_wait_for(&request, 1), RMX_E_TIMEOUT);
        rig.gpu->stuck = false;
        fake_gpu_stream_destroy(rig.gpu, STREAM(1)); /* nobody needs it any more */
        assert_int_equal(rmx_test(&request, &done), RMX_OK);
        assert_int_equal(done, 1);
        copy = later;
        assert_int_equal(rmx_wait(&later, STREAM(2)), RMX_OK);
        assert_int_equal(rmx_wait(&later, NULL), RMX_E_INVALID);
        assert_int_equal(rmx_wait(&copy, NULL), RMX_E_INVALID);
        assert_int_equal(launches(), 6); /* no kernel waits */

        /* A later one that is stuck does not hold up an earlier one. */
        assert_int_equal(start(MIN, STREAM(2), &request), RMX_OK);
        rig.gpu->stuck = true;
        assert_int_equal(start(MIN, STREAM(2), &later), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        assert_int_equal(rmx_test(&later, &done), RMX_OK);
        assert_int_equal(done, 0);
        rig.gpu->stuck = false;
        assert_int_equal(rmx_wait(&later, NULL), RMX_OK);
        crew_stop(&rig.crew);
}

/* They hold no place among what may be started. */
static void test_many(void **state) {
        struct rmx_request requests[2 * CLIENT_GPU_STARTED], bell;

        (void)state;
        rig_start();
        for (uint32_t i = 0; i < CLIENT_GPU_STARTED; i++)
                assert_int_equal(start(8, NULL, &requests[i]), RMX_OK);
        assert_int_equal(start(8, NULL, &bell), RMX_E_BUSY);
        for (uint32_t i = CLIENT_GPU_STARTED; i < 2 * CLIENT_GPU_STARTED; i++)
                assert_int_equal(start(MIN, NULL, &requests[i]), RMX_OK);
        for (uint32_t i = 0; i < 2 * CLIENT_GPU_STARTED; i++)
                assert_int_equal(rmx_wait(&requests[i], NULL), RMX_OK);
        assert_int_equal(rig.comm->device->n_started, 0);
        crew_stop(&rig.crew);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */
static void group(void *second) {
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_send(rig.comm, memory(), 8, RMX_UINT8, 1, STREAM(1)), RMX_OK);
        assert_int_equal(reduce(8, second), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_int_equal(reduce(16, STREAM(1)), RMX_OK);
        assert_int_equal(rmx_recv(rig.comm, memory(), 8, RMX_UINT8, 1, STREAM(1)), RMX_OK);
}

static void test_group(void **state) {
        struct rmx_request request;
        const struct fake_gpu_launch *x;

        (void)state;
        rig_start();
        group(STREAM(2));
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(launches(), 10);
        assert_ptr_equal(launched(0, FAKE_GPU_ORDER, STREAM(1))->from, STREAM(2));
        launched(1, FAKE_GPU_START, STREAM(1));
        x = launched(2, FAKE_GPU_EXCHANGE, STREAM(1));
        assert_int_equal(x->bell.in_bytes, MIN);
        assert_int_equal(x->bell.number, 4);
        for (uint32_t i = 3; i < 5; i++)
                launched(i, FAKE_GPU_START, STREAM(1));
        launched(5, FAKE_GPU_CALL, STREAM(1));
        for (uint32_t i = 6; i < 9; i++)
                launched(i, FAKE_GPU_WAIT, STREAM(1));
        launched(9, FAKE_GPU_ORDER, STREAM(2));

        rig.first = rig.gpu->n_launches;
        group(STREAM(1));
        assert_int_equal(rmx_group_end_start(&request), RMX_OK);
        launched(0, FAKE_GPU_START, STREAM(1));
        launched(2, FAKE_GPU_EXCHANGE, rig.comm->aside.stream);
        for (uint32_t i = 4; i < 7; i++)
                launched(i, FAKE_GPU_START, STREAM(1));
        assert_int_equal(launches(), 7);
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 11); /* the exchange is over */
        for (uint32_t i = 7; i < 11; i++)
                launched(i, FAKE_GPU_WAIT, STREAM(1));
        group(STREAM(1));
        assert_int_equal(rmx_group_end_start(&request), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        crew_stop(&rig.crew);
}

/* A round is as long as without those that hold no place, and a group that is started has as much room. */
static void test_group_room(void **state) {
        struct rmx_request request;

        (void)state;
        rig_start();
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t k = 0; k < 2 * CLIENT_GPU_ROUND; k++) {
                assert_int_equal(reduce(MIN, NULL), RMX_OK);
                if (k < CLIENT_GPU_ROUND)
                        assert_int_equal(reduce(8, NULL), RMX_OK);
        }
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(launches(), 4 * CLIENT_GPU_ROUND);
        for (uint32_t i = 0; i < 3 * CLIENT_GPU_ROUND; i++) /* all in one round */
                assert_int_not_equal(fake_gpu_launched(rig.gpu, rig.first + i)->kind, FAKE_GPU_WAIT);

        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t k = 0; k < 2 * CLIENT_GPU_STARTED; k++)
                assert_int_equal(reduce(MIN, NULL), RMX_OK);
        assert_int_equal(rmx_group_end_start(&request), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        crew_stop(&rig.crew);
}

/* ---- errors and the end ------------------------------------------------------------------------------------------ */
static void test_error(void **state) {
        struct rmx_request fine, bad;

        (void)state;
        rig_start();
        assert_int_equal(start(MIN, NULL, &fine), RMX_OK);
        assert_int_equal(rmx_wait(&fine, NULL), RMX_OK);
        rig.gpu->status = ring_status_mismatch(RMX_E_MISMATCH, RING_DETAIL_COUNT, 1);
        assert_int_equal(start(MIN, NULL, &bad), RMX_OK);
        assert_int_equal(rmx_wait(&bad, NULL), RMX_E_MISMATCH);
        assert_error_says("rank 1 gave another count");
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_MISMATCH);
        assert_int_equal(reduce(MIN, NULL), RMX_E_MISMATCH);
        assert_int_equal(rig.gpu->reusable, 0);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        assert_int_equal(rig.gpu->kept, 1); /* others may still write to it */
        rig.comm = rig.crew.comm[0] = NULL;
        crew_stop(&rig.crew);
        assert_int_equal(rig.gpu->reusable, 1);
}

/* The communicator fails while a kernel exchanges: it is ended, and what waits hears why. */
static void test_peer_lost(void **state) {
        struct rmx_request request;

        (void)state;
        rig_start();
        rig.gpu->stuck = true;
        assert_int_equal(start(MIN, NULL, &request), RMX_OK);
        fake_comm_failed(&rig.crew.fake, RMX_E_PEER_LOST, 1);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_PEER_LOST);
        assert_error_says("rank 1 has died or left");
        assert_int_equal(rig.gpu->ended, 1);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_PEER_LOST);
        crew_stop(&rig.crew);
        assert_int_equal(rig.gpu->kept, 2);
}

static int split(struct crew *crew, uint32_t rank) {
        const struct rmx_comm_options options = {.size = sizeof(options), .gpu = (int32_t)rank};

        return rmx_comm_split(crew->comm[rank], 0, (int32_t)rank, &options, &crew->comm[rank + 2]);
}

static void test_destroy(void **state) {
        struct rmx_request request;

        (void)state;
        rig_start();
        crew_run(&rig.crew, split);
        for (uint32_t i = 0; i < CLIENT_GPU_CELLS; i++) /* and never waited for */
                assert_int_equal(start(MIN, NULL, &request), RMX_OK);
        assert_int_equal(start(MIN, NULL, &request), RMX_E_BUSY);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        assert_int_equal(rig.gpu->reusable, 1);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        rig.comm = rig.crew.comm[2];
        rig.crew.comm[0] = NULL;
        assert_int_equal(start(MIN, NULL, &request), RMX_OK); /* the cells are free */
        for (uint32_t i = 2; i < 4; i++)
                assert_int_equal(rmx_comm_destroy(rig.crew.comm[i]), RMX_OK);
        crew_stop(&rig.crew);
        assert_int_equal(rig.gpu->reusable, 4);
}

/* A kernel whose end nobody will tell: the call has succeeded, and the communicator's end does not wait for it; its
 * place and its area serve nobody else. What comes next is behind it all the same. */
static void test_untold(void **state) {
        const struct fake_gpu_launch *order;

        (void)state;
        rig_start();
        crew_run(&rig.crew, split);
        rig.comm = rig.crew.comm[2];
        rig.first = rig.gpu->n_launches;
        rig.gpu->untold = true;
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_int_equal(launched(0, FAKE_GPU_EXCHANGE, STREAM(1))->bell.number, 3);
        assert_int_equal(reduce(MIN, STREAM(2)), RMX_OK);
        order = launched(1, FAKE_GPU_ORDER, STREAM(2));
        assert_ptr_equal(order->from, STREAM(1));
        assert_int_equal(launched(2, FAKE_GPU_EXCHANGE, STREAM(2))->bell.number, 3);
        assert_int_equal(rmx_comm_destroy(rig.crew.comm[3]), RMX_OK);
        assert_int_equal(rig.gpu->reusable, 1);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        assert_int_equal(rig.gpu->kept, 1);
        crew_stop(&rig.crew);
}

/* ---- kernels of the program -------------------------------------------------------------------------------------- */
static int prepare(uint32_t operation, size_t bytes) {
        const struct rmx_device_call call = {.size = sizeof(call),
                                             .version = RMX_DEVICE_VERSION,
                                             .operation = operation,
                                             .in = memory(),
                                             .out = memory() + 2 * MAX,
                                             .count = bytes,
                                             .type = RMX_UINT8};
        struct rmx_device_handle handle;

        return rmx_device_prepare(rig.comm, &call, &handle);
}

static void test_handle(void **state) {
        (void)state;
        rig_start();
        assert_int_equal(prepare(RMX_OP_ALL_REDUCE, MIN - 8), RMX_OK);
        assert_int_equal(prepare(RMX_OP_ALL_REDUCE, MIN), RMX_E_UNSUPPORTED);
        assert_error_says("exchanges operation");
        assert_error_says("4096 to 65536 bytes");
        assert_int_equal(prepare(RMX_OP_ALL_GATHER, MIN / 2), RMX_E_UNSUPPORTED);
        assert_int_equal(prepare(RMX_OP_ALL_REDUCE, MAX + 8), RMX_OK);
        assert_int_equal(prepare(RMX_OP_GATHER, MIN), RMX_OK);
        crew_stop(&rig.crew);
}

/* One rank says that its kernels make calls: nobody exchanges, and kernels' calls may be of any size. A split is asked
 * anew. */
static int split_rank(struct crew *crew, uint32_t rank) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = (int32_t)rank, .flags = rig.options.flags};
        struct rmx_comm *child;
        int r = rmx_comm_split(crew->comm[rank], 0, 0, rank ? &options : NULL, &child);

        if (r)
                return r;
        r = rmx_comm_destroy(crew->comm[rank]);
        crew->comm[rank] = child;
        return r;
}

static int create_rank(struct crew *crew, uint32_t rank) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = (int32_t)rank};

        options.flags = rank ? rig.options.flags : 0;
        options.max_blocks = rig.options.max_blocks;
        return rmx_comm_create(crew->session, &crew->id, crew->n, rank, &options, &crew->comm[rank]);
}

static void test_device_calls(void **state) {
        (void)state;
        rig_open(2);
        rig.options.flags = RMX_COMM_DEVICE_CALLS;
        crew_run(&rig.crew, create_rank);
        rig_joined();
        assert_int_equal(prepare(RMX_OP_ALL_REDUCE, MIN), RMX_OK);
        rig.options.flags = 0;
        crew_run(&rig.crew, split_rank);
        rig_joined();
        assert_int_equal(prepare(RMX_OP_ALL_REDUCE, MIN), RMX_E_UNSUPPORTED);
        assert_error_says("RMX_COMM_DEVICE_CALLS");
        rig.options.flags = RMX_COMM_DEVICE_CALLS;
        crew_run(&rig.crew, split_rank);
        rig_joined();
        assert_int_equal(prepare(RMX_OP_ALL_REDUCE, MIN), RMX_OK);
        crew_stop(&rig.crew);
}

/* A daemon that does not know what ranks say grants it nevertheless. */
static void test_granted_all_the_same(void **state) {
        (void)state;
        rig_open(2);
        rig.crew.fake.exchange_for_all = true;
        rig.options.flags = RMX_COMM_DEVICE_CALLS;
        crew_run(&rig.crew, create_rank);
        rig_joined();
        assert_int_equal(prepare(RMX_OP_ALL_REDUCE, MIN), RMX_OK);
        crew_stop(&rig.crew);
}

/* A bound goes to whoever launches, and not on to a split. */
static void test_max_blocks(void **state) {
        (void)state;
        rig_open(2);
        rig.options.max_blocks = 12;
        crew_run(&rig.crew, create_rank);
        rig_joined();
        assert_int_equal(rig.gpu->max_blocks, 12);
        rig.options.max_blocks = 0;
        crew_run(&rig.crew, split_rank);
        rig_joined();
        assert_int_equal(rig.gpu->max_blocks, 0);
        crew_stop(&rig.crew);
}

static void test_flags(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .flags = 4};
        struct rmx_comm *comm;

        (void)state;
        rig_open(1);
        rig.crew.fake.exchange_min = rig.crew.fake.exchange_max = 0; /* one rank has nobody to exchange with */
        assert_int_equal(rmx_comm_create(rig.crew.session, &rig.crew.id, 1, 0, &options, &comm), RMX_E_INVALID);
        assert_error_says("opt->flags is 0x4");
        options.flags = 0;
        options.max_blocks = 1; /* without effect */
        assert_int_equal(rmx_comm_create(rig.crew.session, &rig.crew.id, 1, 0, &options, &comm), RMX_OK);
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        options.flags = 4;                                       /* not looked at below */
        options.size = offsetof(struct rmx_comm_options, flags); /* what is behind is not read */
        assert_int_equal(rmx_comm_create(rig.crew.session, &rig.crew.id, 1, 0, &options, &comm), RMX_OK);
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        crew_stop(&rig.crew);
}

/* Nobody calls the library, and yet the exchanges of both ranks are stopped when their communicator has failed. */
static void test_stopped(void **state) {
        uint32_t stopped;

        (void)state;
        rig_start();
        assert_int_equal(reduce(MIN, NULL), RMX_OK);
        fake_comm_failed(&rig.crew.fake, RMX_E_PEER_LOST, 1);
        do {
                pthread_mutex_lock(&rig.gpu->mutex);
                stopped = rig.gpu->stopped;
                pthread_mutex_unlock(&rig.gpu->mutex);
                sched_yield();
        } while (stopped < 2);
        assert_int_equal(reduce(MIN, NULL), RMX_E_PEER_LOST);
        crew_stop(&rig.crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_which),        cmocka_unit_test(test_all),
                cmocka_unit_test(test_others),       cmocka_unit_test(test_reductions),
                cmocka_unit_test(test_memory),       cmocka_unit_test(test_order),
                cmocka_unit_test(test_launch_fails), cmocka_unit_test(test_wait),
                cmocka_unit_test(test_many),         cmocka_unit_test(test_group),
                cmocka_unit_test(test_group_room),   cmocka_unit_test(test_error),
                cmocka_unit_test(test_peer_lost),    cmocka_unit_test(test_destroy),
                cmocka_unit_test(test_untold),       cmocka_unit_test(test_handle),
                cmocka_unit_test(test_device_calls), cmocka_unit_test(test_max_blocks),
                cmocka_unit_test(test_flags),        cmocka_unit_test(test_granted_all_the_same),
                cmocka_unit_test(test_stopped),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
