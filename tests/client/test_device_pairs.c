/* SPDX-License-Identifier: MIT */
/* Sends and receives of communicators whose ranks exchange them: which these are, and that those of a group are one. */
#include <stdlib.h>

#include "ring/line.h"
#include "tests/client/exchange_rig.h"

#define COUNT 64u

static uint32_t flags[2]; /* of the two ranks */

static int join_rank(struct crew *crew, uint32_t rank) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = (int32_t)rank, .flags = flags[rank]};

        return rmx_comm_create(crew->session, &crew->id, crew->n, rank, &options, &crew->comm[rank]);
}

static void rig_pairs(uint32_t first, uint32_t second, uint64_t min) {
        flags[0] = first;
        flags[1] = second;
        rig_open(2);
        rig.crew.fake.exchange_min = min;
        crew_run(&rig.crew, join_rank);
        rig_joined();
        rig.gpu->n_pairs = 0;
}

static int send_to(uint32_t peer, void *stream) {
        return rmx_send(rig.comm, rig.memory, COUNT, RMX_UINT8, peer, stream);
}

static int recv_from(uint32_t peer, void *stream) {
        return rmx_recv(rig.comm, rig.memory + MAX, COUNT, RMX_UINT8, peer, stream);
}

static void pair_is(uint32_t i, uint32_t operation, uint32_t peer) {
        const struct client_gpu_bell *bell = &rig.gpu->pairs[i];

        assert_int_equal(bell->word[RING_W_HEAD] >> 16 & 0xff, operation);
        assert_int_equal(bell->word[RING_W_PEER], peer);
        assert_int_equal(bell->word[RING_W_COUNT_LO], COUNT);
        if (operation == RING_OP_SEND)
                assert_ptr_equal(bell->in, rig.memory);
        else
                assert_ptr_equal(bell->out, rig.memory + MAX);
}

/* All ranks have to want it, and all sizes to be exchanged. */
static void test_which(void **state) {
        static const struct {
                uint32_t first, second;
                uint64_t min;
                bool exchanged;
        } cases[] = {{RMX_COMM_ORDERED_TRANSFERS, RMX_COMM_ORDERED_TRANSFERS, 1, true},
                     {RMX_COMM_ORDERED_TRANSFERS, RMX_COMM_ORDERED_TRANSFERS, 2, false},
                     {RMX_COMM_ORDERED_TRANSFERS, 0, 1, false},
                     {0, RMX_COMM_ORDERED_TRANSFERS, 1, false},
                     {0, 0, 1, false},
                     {RMX_COMM_ORDERED_TRANSFERS, RMX_COMM_ORDERED_TRANSFERS | RMX_COMM_DEVICE_CALLS, 1, false}};

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                rig_pairs(cases[i].first, cases[i].second, cases[i].min);
                assert_int_equal(send_to(1, STREAM(1)), RMX_OK);
                (void)launched(0, cases[i].exchanged ? FAKE_GPU_EXCHANGE : FAKE_GPU_CALL, STREAM(1));
                assert_int_equal(rig.gpu->n_pairs, cases[i].exchanged);
                if (cases[i].exchanged)
                        pair_is(0, RING_OP_SEND, 1);
                assert_int_equal(recv_from(1, STREAM(1)), RMX_OK);
                (void)launched(1, cases[i].exchanged ? FAKE_GPU_EXCHANGE : FAKE_GPU_CALL, STREAM(1));
                if (cases[i].exchanged)
                        pair_is(0, RING_OP_RECV, 1);
                crew_stop(&rig.crew);
        }
}

/* Collectives first, one after the other, and then all transfers as one, on whatever streams they came. */
static void test_group(void **state) {
        (void)state;
        rig_pairs(RMX_COMM_ORDERED_TRANSFERS, RMX_COMM_ORDERED_TRANSFERS, 1);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(1, STREAM(1)), RMX_OK);
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        assert_int_equal(recv_from(1, STREAM(1)), RMX_OK);
        assert_int_equal(send_to(1, STREAM(1)), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(launches(), 2);
        assert_int_equal(launched(0, FAKE_GPU_EXCHANGE, STREAM(1))->bell.word[RING_W_HEAD] >> 16 & 0xff,
                         RING_OP_ALL_REDUCE);
        (void)launched(1, FAKE_GPU_EXCHANGE, STREAM(1));
        assert_int_equal(rig.gpu->n_pairs, 3);
        pair_is(0, RING_OP_SEND, 1); /* the first one of each direction before the second */
        pair_is(1, RING_OP_RECV, 1);
        pair_is(2, RING_OP_SEND, 1);
        crew_stop(&rig.crew);
}

/* More than go into one. */
static void test_group_large(void **state) {
        (void)state;
        rig_pairs(RMX_COMM_ORDERED_TRANSFERS, RMX_COMM_ORDERED_TRANSFERS, 1);
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t i = 0; i < CLIENT_GPU_PAIRS; i++) {
                assert_int_equal(send_to(1, STREAM(1)), RMX_OK);
                assert_int_equal(recv_from(1, STREAM(1)), RMX_OK);
        }
        assert_int_equal(send_to(1, STREAM(1)), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(launches(), 3);
        assert_int_equal(rig.gpu->n_pairs, 1);
        pair_is(0, RING_OP_SEND, 1);
        crew_stop(&rig.crew);
}

/* What a rank sends to itself executors carry out, and what goes with it, too. */
static void test_group_self(void **state) {
        uint32_t exchanges = 0;

        (void)state;
        rig_pairs(RMX_COMM_ORDERED_TRANSFERS, RMX_COMM_ORDERED_TRANSFERS, 1);
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t peer = 0; peer < 2; peer++) {
                assert_int_equal(send_to(peer, STREAM(1)), RMX_OK);
                assert_int_equal(recv_from(peer, STREAM(1)), RMX_OK);
        }
        assert_int_equal(rmx_group_end(), RMX_OK);
        for (uint32_t i = 0; i < launches(); i++)
                exchanges += fake_gpu_launched(rig.gpu, rig.first + i)->kind == FAKE_GPU_EXCHANGE;
        assert_int_equal(exchanges, 1);
        assert_int_equal(rig.gpu->n_pairs, 2);
        pair_is(0, RING_OP_SEND, 1);
        pair_is(1, RING_OP_RECV, 1);
        crew_stop(&rig.crew);
}

/* A start goes beside the stream; a group that is started would have them wait for each other. */
static void test_started(void **state) {
        struct rmx_request request;

        (void)state;
        rig_pairs(RMX_COMM_ORDERED_TRANSFERS, RMX_COMM_ORDERED_TRANSFERS, 1);
        assert_int_equal(rmx_send_start(rig.comm, rig.memory, COUNT, RMX_UINT8, 1, STREAM(1), &request), RMX_OK);
        assert_int_equal(rig.gpu->n_pairs, 1);
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_OK);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(1, STREAM(1)), RMX_OK);
        assert_int_equal(recv_from(1, STREAM(1)), RMX_OK);
        rig.gpu->n_pairs = 0;
        assert_int_equal(rmx_group_end_start(&request), RMX_E_UNSUPPORTED);
        assert_error_says("RMX_COMM_ORDERED_TRANSFERS");
        assert_int_equal(rig.gpu->n_pairs, 0);
        assert_int_equal(send_to(1, STREAM(1)), RMX_OK);
        crew_stop(&rig.crew);
}

/* Gather, scatter and all_to_all_v need no flag. */
static void test_collectives(void **state) {
        const size_t counts[] = {3, COUNT}, offsets[] = {0, 3};

        (void)state;
        rig_pairs(0, 0, 1);
        assert_int_equal(rmx_gather(rig.comm, rig.memory, NULL, COUNT, RMX_UINT8, 1, STREAM(1)), RMX_OK);
        (void)launched(0, FAKE_GPU_EXCHANGE, STREAM(1));
        assert_int_equal(rmx_scatter(rig.comm, NULL, rig.memory, COUNT, RMX_UINT8, 1, STREAM(1)), RMX_OK);
        (void)launched(1, FAKE_GPU_EXCHANGE, STREAM(1));
        assert_int_equal(rmx_all_to_all_v(rig.comm, rig.memory, counts, offsets, rig.memory + MAX, counts, offsets,
                                          RMX_UINT8, STREAM(1)),
                         RMX_OK);
        assert_int_equal(launched(2, FAKE_GPU_EXCHANGE, STREAM(1))->bell.n_arguments, 8);
        crew_stop(&rig.crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_which),      cmocka_unit_test(test_group),   cmocka_unit_test(test_group_large),
                cmocka_unit_test(test_group_self), cmocka_unit_test(test_started), cmocka_unit_test(test_collectives),
        };

        return cmocka_run_group_tests_name("device pairs", tests, NULL, NULL);
}
