/* SPDX-License-Identifier: MIT */
/* Groups with exchanges, and starts, calls and waits of all kinds in any order: what comes after what. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/client/exchange_order.h"

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
                cmocka_unit_test(test_group),        cmocka_unit_test(test_group_stays),
                cmocka_unit_test(test_group_fails),  cmocka_unit_test(test_group_started),
                cmocka_unit_test(test_group_behind), cmocka_unit_test(test_random),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
