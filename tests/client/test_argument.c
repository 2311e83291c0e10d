/* SPDX-License-Identifier: MIT */
/* The argument space: its allocator, and requests that fill it. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "client/argument.h"
#include "client/comm.h"
#include "tests/client/crew.h"

#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

static void test_space(void **state) {
        struct argument_space space;
        uint32_t offset[63], more;

        (void)state;
        assert_int_equal(argument_space_init(&space, 4096), 0);
        assert_int_equal(argument_space_largest(&space), 63 * 64);
        /* Every unit but the first, once each. */
        for (int i = 0; i < 63; i++) {
                assert_int_equal(argument_take(&space, 1 + (uint32_t)i, &offset[i]), 0);
                assert_int_equal(offset[i] % RING_ARGUMENT_ALIGN, 0);
                assert_true(offset[i] > 0 && offset[i] < 4096);
                for (int k = 0; k < i; k++)
                        assert_int_not_equal(offset[i], offset[k]);
        }
        more = 12345;
        assert_int_equal(argument_take(&space, 1, &more), ARGUMENT_E_FULL);
        assert_int_equal(more, 12345);
        /* Two neighbours make room for a block of two, two that are apart do not. */
        argument_give(&space, 64, 64);
        argument_give(&space, 3 * 64, 64);
        assert_int_equal(argument_take(&space, 65, &more), ARGUMENT_E_FULL);
        argument_give(&space, 2 * 64, 64);
        assert_int_equal(argument_take(&space, 65, &more), 0);
        assert_true(more == 64 || more == 128);
        argument_space_deinit(&space);
}

static void test_sizes(void **state) {
        struct argument_space space;
        uint32_t offset;

        (void)state;
        /* No space at all, or only the unit that is never given out. */
        for (uint32_t bytes = 0; bytes <= 64; bytes += 64) {
                assert_int_equal(argument_space_init(&space, bytes), 0);
                assert_int_equal(argument_space_largest(&space), 0);
                assert_int_equal(argument_take(&space, 1, &offset), ARGUMENT_E_FULL);
                argument_space_deinit(&space);
        }
        assert_int_equal(argument_space_init(&space, 65536), 0);
        assert_int_equal(argument_take(&space, 65536, &offset), ARGUMENT_E_FULL);
        assert_int_equal(argument_take(&space, 65536 - 63, &offset), ARGUMENT_E_FULL);
        assert_int_equal(argument_take(&space, UINT32_MAX, &offset), ARGUMENT_E_FULL);
        assert_int_equal(argument_take(&space, 65536 - 64, &offset), 0);
        assert_int_equal(offset, 64);
        argument_give(&space, offset, 65536 - 64);
        assert_int_equal(argument_take(&space, 65536 - 64, &offset), 0);
        argument_space_deinit(&space);
}

/* Blocks that fit together do, wherever the last one was. */
static void test_empty(void **state) {
        struct argument_space space;
        uint32_t offset[2];

        (void)state;
        assert_int_equal(argument_space_init(&space, 64 * 64), 0);
        assert_true(argument_space_empty(&space));
        assert_int_equal(argument_take(&space, 20 * 64, &offset[0]), 0);
        assert_false(argument_space_empty(&space));
        argument_give(&space, offset[0], 20 * 64);
        assert_true(argument_space_empty(&space));
        assert_int_equal(argument_take(&space, 31 * 64, &offset[0]), 0);
        assert_int_equal(argument_take(&space, 32 * 64, &offset[1]), 0);
        argument_space_deinit(&space);
}

/* Random blocks: none overlaps another, and when all are back there is room for the largest. */
static void test_random(void **state) {
        enum { BLOCKS = 64, UNITS = 256 };
        struct {
                uint32_t offset, bytes;
        } block[BLOCKS] = {0};
        unsigned char owner[UNITS] = {0};
        struct argument_space space;
        unsigned int seed = 1, refused = 0;
        uint32_t offset;

        (void)state;
        assert_int_equal(argument_space_init(&space, UNITS * 64), 0);
        for (int round = 0; round < 20000; round++) {
                unsigned int i = (unsigned int)rand_r(&seed) % BLOCKS;

                if (block[i].bytes) {
                        argument_give(&space, block[i].offset, block[i].bytes);
                        memset(owner + block[i].offset / 64, 0, (block[i].bytes + 63) / 64);
                        block[i].bytes = 0;
                        continue;
                }
                block[i].bytes = 1 + (uint32_t)rand_r(&seed) % 1000;
                if (argument_take(&space, block[i].bytes, &block[i].offset)) {
                        block[i].bytes = 0;
                        refused++;
                        continue;
                }
                assert_true(block[i].offset >= 64 && block[i].offset % 64 == 0);
                for (uint32_t unit = block[i].offset / 64; unit < (block[i].offset + block[i].bytes + 63) / 64;
                     unit++) {
                        assert_true(unit < UNITS);
                        assert_int_equal(owner[unit], 0);
                        owner[unit] = 1;
                }
        }
        assert_true(refused > 0);
        for (int i = 0; i < BLOCKS; i++) {
                if (block[i].bytes)
                        argument_give(&space, block[i].offset, block[i].bytes);
        }
        assert_int_equal(argument_take(&space, (UNITS - 1) * 64, &offset), 0);
        argument_space_deinit(&space);
}

static uint32_t scale(struct rmx_comm *comm, int32_t factor) {
        uint32_t redop = 0;

        assert_int_equal(rmx_redop_create_premul_sum(comm, &factor, RMX_INT32, RMX_SCALAR_IMMEDIATE, &redop), RMX_OK);
        return redop;
}

/* 63 blocks are outstanding, in a ring that has room for more: the next call says so, and works when one was waited
 * for. */
static void test_exhaustion(void **state) {
        enum { N = 63 };
        struct rmx_request request[N], more;
        int32_t x[N], y = 1;
        struct crew crew;
        uint32_t redop;

        (void)state;
        crew_start_with(&crew, 1, 128, 4096);
        redop = scale(crew.comm[0], 3);
        for (int round = 0; round < 3; round++) {
                for (int i = 0; i < N; i++) {
                        x[i] = i;
                        assert_int_equal(rmx_all_reduce_start(crew.comm[0], &x[i], &x[i], 1, RMX_INT32, redop, NULL,
                                                              &request[i]),
                                         RMX_OK);
                }
                assert_int_equal(rmx_all_reduce_start(crew.comm[0], &y, &y, 1, RMX_INT32, redop, NULL, &more),
                                 RMX_E_BUSY);
                assert_error_says("rmx_all_reduce_start: the 4032 bytes for arguments on GPU 0 are taken");
                assert_error_says("rmx_wait");
                assert_int_equal(rmx_all_reduce(crew.comm[0], &y, &y, 1, RMX_INT32, redop, NULL), RMX_E_BUSY);
                /* What needs no block goes on. */
                assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
                assert_int_equal(rmx_wait(&request[17], NULL), RMX_OK);
                assert_int_equal(rmx_all_reduce(crew.comm[0], &y, &y, 1, RMX_INT32, redop, NULL), RMX_OK);
                for (int i = 0; i < N; i++) {
                        if (i != 17)
                                assert_int_equal(rmx_wait(&request[i], NULL), RMX_OK);
                        assert_int_equal(x[i], 3 * i);
                }
        }
        assert_int_equal(y, 27);
        crew_stop(&crew);
}

/* Blocks of a comm that was destroyed after a failure come free when the executor is through with them. */
static void test_orphans(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *comm = NULL;
        struct rmx_request request;
        struct crew crew;
        int32_t x = 5;
        uint32_t redop;

        (void)state;
        crew_start_with(&crew, 2, 128, 4096);
        redop = scale(crew.comm[0], 2);
        for (int i = 0; i < 63; i++)
                assert_int_equal(rmx_all_reduce_start(crew.comm[0], &x, &x, 1, RMX_INT32, redop, NULL, &request),
                                 RMX_OK);
        fake_comm_failed(&crew.fake, RMX_E_PEER_LOST, 1);
        assert_int_equal(rmx_comm_destroy(crew.comm[0]), RMX_OK);
        crew.comm[0] = NULL;
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &comm), RMX_OK);
        redop = scale(comm, 2);
        assert_int_equal(rmx_all_reduce(comm, &x, &x, 1, RMX_INT32, redop, NULL), RMX_E_BUSY);
        pthread_mutex_lock(&crew.fake.mutex);
        for (struct fake_comm *c = crew.fake.comms; c; c = c->next) {
                if (c->n_ranks == 2)
                        fake_comm_end(c, ring_status(RMX_E_PEER_LOST, 1));
        }
        pthread_mutex_unlock(&crew.fake.mutex);
        for (int i = 0; i < 100; i++) {
                x = i;
                assert_int_equal(rmx_all_reduce(comm, &x, &x, 1, RMX_INT32, redop, NULL), RMX_OK);
                assert_int_equal(x, 2 * i);
        }
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        crew_stop(&crew);
}

static struct rmx_comm *alone(struct crew *crew) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *comm = NULL;

        assert_int_equal(rmx_get_id(crew->session, &crew->id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew->session, &crew->id, 1, 0, &options, &comm), RMX_OK);
        return comm;
}

/* A group of two requests with a block each, of so many units. */
static int two_blocks(struct rmx_comm *const *comm, uint32_t units) {
        uint32_t n_pairs = units * RING_ARGUMENT_ALIGN / (2 * (uint32_t)sizeof(struct ring_group_entry));
        int32_t in = 4, out[2] = {0};

        assert_int_equal((2 * n_pairs * sizeof(struct ring_group_entry) + 63) / 64, units);
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t i = 0; i < 2; i++) {
                for (uint32_t k = 0; k < n_pairs; k++) {
                        assert_int_equal(rmx_send(comm[i], &in, 1, RMX_INT32, 0, NULL), RMX_OK);
                        assert_int_equal(rmx_recv(comm[i], &out[i], 1, RMX_INT32, 0, NULL), RMX_OK);
                }
        }
        return rmx_group_end();
}

/* A group that fits into the space is not refused while nothing is outstanding: wherever the last block was, and
 * however late those of orphans came free. */
static void test_group_fits(void **state) {
        struct rmx_comm *comm[2];
        struct rmx_request request;
        struct crew crew;
        int32_t x = 5;
        uint32_t redop;

        (void)state;
        crew_start_with(&crew, 2, 128, 4096); /* 63 units */
        for (uint32_t i = 0; i < 2; i++)
                comm[i] = alone(&crew);
        assert_int_equal(two_blocks(comm, 10), RMX_OK);
        assert_int_equal(two_blocks(comm, 30), RMX_OK);

        redop = scale(crew.comm[0], 2);
        for (int i = 0; i < 20; i++)
                assert_int_equal(rmx_all_reduce_start(crew.comm[0], &x, &x, 1, RMX_INT32, redop, NULL, &request),
                                 RMX_OK);
        fake_comm_failed_one(&crew.fake, fake_comm_of(&crew.fake, crew.comm[0]->handle), RMX_E_PEER_LOST, 1);
        while (!rmx_comm_error(crew.comm[0]))
                sched_yield();
        assert_int_equal(rmx_comm_destroy(crew.comm[0]), RMX_OK);
        crew.comm[0] = NULL;
        pthread_mutex_lock(&crew.fake.mutex);
        for (struct fake_comm *c = crew.fake.comms; c; c = c->next) {
                if (c->n_ranks == 2)
                        fake_comm_end(c, ring_status(RMX_E_PEER_LOST, 1));
        }
        pthread_mutex_unlock(&crew.fake.mutex);
        assert_int_equal(two_blocks(comm, 30), RMX_OK);
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(rmx_comm_destroy(comm[i]), RMX_OK);
        crew_stop(&crew);
}

/* Many threads share a space of four blocks; blocking calls wait for each other's. */
static int hurry(struct crew *crew, uint32_t rank) {
        uint32_t n = crew->n;
        int32_t in[16], out[16];
        size_t counts[16], offsets[16];

        for (uint32_t i = 0; i < n; i++) {
                counts[i] = 1;
                offsets[i] = i;
        }
        for (int round = 0; round < 100; round++) {
                int r;

                for (uint32_t i = 0; i < n; i++)
                        in[i] = (int32_t)(rank * 1000 + i) + round;
                r = rmx_all_to_all_v(crew->comm[rank], in, counts, offsets, out, counts, offsets, RMX_INT32, NULL);
                if (r)
                        return r;
                for (uint32_t i = 0; i < n; i++) {
                        if (out[i] != (int32_t)(i * 1000 + rank) + round)
                                return -1;
                }
        }
        return RMX_OK;
}

static void test_threads(void **state) {
        struct crew crew;

        (void)state;
        crew_start_with(&crew, 7, 64, 4096); /* 4 units each: 15 blocks */
        crew_run(&crew, hurry);
        for (uint32_t i = 0; i < crew.n; i++)
                assert_int_equal(crew.result[i], RMX_OK);
        crew_stop(&crew);
}

static void *slow_main(void *userdata) {
        int32_t x = 1;
        struct rmx_comm *comm = userdata;

        return (void *)(intptr_t)rmx_all_reduce(comm, &x, &x, 1, RMX_INT32, scale(comm, 1), NULL);
}

/* A block that a sleeping thread will give back is waited for by a blocking call. */
static void test_waits_for_sleeper(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_request request[62];
        struct rmx_comm *comm = NULL;
        struct crew crew;
        pthread_t slow, other;
        int32_t x = 1;
        void *result;
        uint32_t redop;
        int r;

        (void)state;
        crew_start_with(&crew, 2, 128, 4096);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &comm), RMX_OK);
        redop = scale(comm, 1);
        must(!pthread_create(&slow, NULL, slow_main, crew.comm[0]));
        (void)fake_line(&crew.fake, 0);
        for (int i = 0; i < 62; i++)
                assert_int_equal(rmx_all_reduce_start(comm, &x, &x, 1, RMX_INT32, redop, NULL, &request[i]), RMX_OK);
        r = rmx_all_reduce_start(comm, &x, &x, 1, RMX_INT32, redop, NULL, &request[0]);
        assert_int_equal(r, RMX_E_BUSY); /* _start does not wait */
        must(!pthread_create(&other, NULL, slow_main, comm));
        /* Whether it waits now or not yet, it must find room once the sleeper's comm has ended. */
        pthread_mutex_lock(&crew.fake.mutex);
        fake_comm_end(crew.fake.comms->next, ring_status(RMX_E_PEER_LOST, 1));
        pthread_mutex_unlock(&crew.fake.mutex);
        pthread_join(slow, &result);
        assert_int_equal((intptr_t)result, RMX_E_PEER_LOST);
        pthread_join(other, &result);
        assert_int_equal((intptr_t)result, RMX_OK);
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_space),
                cmocka_unit_test(test_sizes),
                cmocka_unit_test(test_empty),
                cmocka_unit_test(test_random),
                cmocka_unit_test(test_exhaustion),
                cmocka_unit_test(test_orphans),
                cmocka_unit_test(test_group_fits),
                cmocka_unit_test(test_threads),
                cmocka_unit_test(test_waits_for_sleeper),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
