/* SPDX-License-Identifier: MIT */
/* On GPUs: what sends, receives and groups put on streams, and in which order. */
#include "client/comm.h"
#include "client/device.h"
#include "tests/client/device_rig.h"

#define BYTES 32768u /* not inlined */

static char streams[4];
#define S1 ((void *)&streams[1])
#define S2 ((void *)&streams[2])
#define S3 ((void *)&streams[3])

static uint32_t operation_of(const struct client_gpu_bell *bell) {
        return bell->word[RING_W_HEAD] >> 16 & 0xff;
}

static void check_p2p(struct rig *rig, uint32_t i, uint32_t kind, uint32_t operation, uint32_t peer) {
        const struct fake_gpu_launch *launch = at(rig, i, kind);

        assert_int_equal(operation_of(&launch->bell), operation);
        assert_int_equal(launch->bell.word[RING_W_PEER], peer);
}

static int send_to(struct rig *rig, uint32_t peer, void *stream) {
        return rmx_send(rig->comm, rig->a + 256, BYTES, RMX_INT8, peer, stream);
}

static int recv_from(struct rig *rig, uint32_t peer, void *stream) {
        return rmx_recv(rig->comm, rig->b + 512, BYTES, RMX_INT8, peer, stream);
}

/* ---- single calls ------------------------------------------------------------------------------------------------ */
static void test_lines(void **state) {
        const struct client_gpu_bell *bell;
        struct rig rig;

        (void)state;
        rig_start(&rig, 3);
        assert_int_equal(send_to(&rig, 2, S1), RMX_OK);
        check_p2p(&rig, 0, FAKE_GPU_CALL, RING_OP_SEND, 2);
        bell = &last(&rig)->bell;
        assert_false(bell->inlined);
        assert_int_equal(bell->in_bytes, BYTES);
        assert_int_equal(bell->out_bytes, 0);
        check_buffer(&rig, bell->word[RING_W_IN_BUFFER], rig.a, BLOCK, 11);
        assert_int_equal(offset_of(bell, RING_W_IN_BUFFER), 256);
        assert_int_equal(bell->word[RING_W_OUT_BUFFER], 0);

        assert_int_equal(recv_from(&rig, 1, S1), RMX_OK);
        check_p2p(&rig, 1, FAKE_GPU_CALL, RING_OP_RECV, 1);
        bell = &last(&rig)->bell;
        assert_int_equal(bell->in_bytes, 0);
        assert_int_equal(bell->out_bytes, BYTES);
        assert_int_equal(bell->word[RING_W_IN_BUFFER], 0);
        check_buffer(&rig, bell->word[RING_W_OUT_BUFFER], rig.b, BLOCK, 22);
        assert_int_equal(offset_of(bell, RING_W_OUT_BUFFER), 512);

        assert_int_equal(rmx_send(rig.comm, rig.a + 1, 16383, RMX_UINT8, 1, NULL), RMX_OK);
        assert_true(last(&rig)->bell.inlined);
        assert_ptr_equal(last(&rig)->bell.in, rig.a + 1);
        assert_int_equal(rmx_recv(rig.comm, NULL, 0, RMX_UINT8, 1, NULL), RMX_OK);
        assert_int_equal(rmx_send(rig.comm, rig.a, 1, RMX_UINT8, 3, NULL), RMX_E_INVALID);
        assert_error_says("peer 3 is out of range");
        assert_int_equal(rmx_send(rig.comm, rig.a, 1, RMX_UINT8, 0, NULL), RMX_E_INVALID);
        assert_error_says("in a group only");
        assert_int_equal(rmx_barrier(rig.comm, NULL), RMX_OK);
        rig_stop(&rig);
        assert_int_equal(rig.crew.fake.last_sequence, 0); /* of the rank that left last, which has called nothing */
}

/* Pairs have numbers of their own. */
static void test_sequences(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(&rig, 0, NULL), RMX_OK);
        assert_int_equal(recv_from(&rig, 0, NULL), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(rmx_all_reduce(rig.comm, rig.a, rig.b, 16, RMX_FLOAT32, rung(rig.comm), NULL), RMX_OK);
        rig_stop(&rig);
        assert_int_equal(rig.crew.fake.last_sequence, 1);
}

static void test_started(void **state) {
        struct rmx_request request;
        struct rig rig;
        int done;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(rmx_recv_start(rig.comm, rig.b, BYTES, RMX_INT8, 1, S1, &request), RMX_OK);
        check_p2p(&rig, 0, FAKE_GPU_START, RING_OP_RECV, 1);
        assert_int_equal(rmx_wait_stream(&request, S2), RMX_OK);
        check_p2p(&rig, 1, FAKE_GPU_WAIT, RING_OP_RECV, 1);
        assert_ptr_equal(last(&rig)->stream, S2);
        assert_int_equal(rmx_send_start(rig.comm, rig.a, BYTES, RMX_INT8, 1, S2, &request), RMX_OK);
        rig.gpu->status = ring_status(RMX_E_MISMATCH, 1);
        assert_int_equal(rmx_test(&request, &done), RMX_E_MISMATCH);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_MISMATCH);
        rig_stop(&rig);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */
/* Rank 0 of 3. A transfer's place: its number in the pair, how far it goes, its sender. */
static void test_order(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 3);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(recv_from(&rig, 1, S1), RMX_OK);
        assert_int_equal(recv_from(&rig, 0, S1), RMX_OK);
        assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
        assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
        assert_int_equal(recv_from(&rig, 2, S1), RMX_OK);
        assert_int_equal(rmx_all_reduce(rig.comm, rig.a, rig.b, 3, RMX_INT32, RMX_SUM, S1), RMX_OK);
        assert_int_equal(send_to(&rig, 0, S1), RMX_OK);
        assert_int_equal(send_to(&rig, 2, S1), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 0);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 15);
        assert_int_equal(operation_of(&at(&rig, 0, FAKE_GPU_START)->bell), RING_OP_ALL_REDUCE);
        check_p2p(&rig, 2, FAKE_GPU_START, RING_OP_SEND, 0);
        check_p2p(&rig, 1, FAKE_GPU_START, RING_OP_RECV, 0);
        check_p2p(&rig, 3, FAKE_GPU_START, RING_OP_SEND, 1);
        check_p2p(&rig, 4, FAKE_GPU_START, RING_OP_RECV, 2);
        check_p2p(&rig, 5, FAKE_GPU_START, RING_OP_SEND, 2);
        check_p2p(&rig, 6, FAKE_GPU_START, RING_OP_RECV, 1);
        check_p2p(&rig, 7, FAKE_GPU_CALL, RING_OP_SEND, 1);
        for (uint32_t i = 0; i < 7; i++) {
                assert_int_equal(at(&rig, 8 + i, FAKE_GPU_WAIT)->bell.cell, at(&rig, i, FAKE_GPU_START)->bell.cell);
                assert_ptr_equal(at(&rig, 8 + i, FAKE_GPU_WAIT)->stream, S1);
        }
        rig_stop(&rig);
}

/* A rank's transfers to itself: no round ends between the two halves. */
static void test_rounds_self(void **state) {
        uint32_t sent = 0, received = 0;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
        for (uint32_t i = 0; i < 40; i++) {
                assert_int_equal(recv_from(&rig, 0, S1), RMX_OK);
                assert_int_equal(send_to(&rig, 0, S1), RMX_OK);
        }
        assert_int_equal(rmx_group_end(), RMX_OK);
        for (uint32_t i = 0; i < rig.gpu->n_launches; i++) {
                const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, i);

                if (launch->kind == FAKE_GPU_WAIT) {
                        assert_int_equal(sent, received);
                } else if (launch->bell.word[RING_W_PEER] == 0) {
                        sent += operation_of(&launch->bell) == RING_OP_SEND;
                        received += operation_of(&launch->bell) == RING_OP_RECV;
                }
        }
        assert_int_equal(sent, 40);
        rig_stop(&rig);
}

/* The same of two communicators in turn, in which the rank has the same number; a round has an odd number of each. */
static void test_rounds_selves(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        uint32_t sent[CLIENT_GPU_SLOTS] = {0}, received[CLIENT_GPU_SLOTS] = {0};
        struct rmx_comm *comms[2];
        struct rmx_id id;
        struct rig rig;

        (void)state;
        rig_start(&rig, 4);
        comms[0] = rig.comm;
        assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
        assert_int_equal(rmx_comm_create(rig.crew.session, &id, 1, 0, &options, &comms[1]), RMX_OK);
        assert_int_equal(CLIENT_GPU_STARTED / device_ranks(rig.comm->device) % 2, 1);
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t k = 0; k < 10; k++) {
                for (uint32_t i = 0; i < 2; i++)
                        assert_int_equal(rmx_send(comms[i], rig.a, BYTES, RMX_INT8, 0, S1), RMX_OK);
                for (uint32_t i = 0; i < 2; i++)
                        assert_int_equal(rmx_recv(comms[i], rig.b, BYTES, RMX_INT8, 0, S1), RMX_OK);
        }
        assert_int_equal(rmx_group_end(), RMX_OK);
        for (uint32_t i = 0; i < rig.gpu->n_launches; i++) {
                const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, i);

                if (launch->kind == FAKE_GPU_START || launch->kind == FAKE_GPU_CALL) {
                        sent[launch->bell.slot] += operation_of(&launch->bell) == RING_OP_SEND;
                        received[launch->bell.slot] += operation_of(&launch->bell) == RING_OP_RECV;
                }
                for (uint32_t k = 0; k < 2 && launch->kind == FAKE_GPU_WAIT; k++)
                        assert_int_equal(sent[comms[k]->slot], received[comms[k]->slot]);
        }
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(sent[comms[i]->slot], 10);
                assert_int_equal(received[comms[i]->slot], 10);
        }
        assert_int_equal(rmx_comm_destroy(comms[1]), RMX_OK);
        rig_stop(&rig);
}

/* More than may be rung at once: in rounds, none of which leaves too many waiting. */
static void test_rounds(void **state) {
        uint32_t waiting = 0, starts = 0, calls = 0, most = 0;
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        for (uint32_t turn = 0; turn < 2; turn++) {
                assert_int_equal(rmx_group_start(), RMX_OK);
                for (uint32_t i = 0; i < 60; i++)
                        assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
                for (uint32_t i = 0; i < 60; i++)
                        assert_int_equal(recv_from(&rig, 1, S1), RMX_OK);
                if (turn == 0)
                        assert_int_equal(rmx_group_end(), RMX_OK);
        }
        assert_int_equal(rig.gpu->n_launches, 239);
        for (uint32_t i = 0; i < 239; i++) {
                const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, i);
                bool sends = operation_of(&launch->bell) == RING_OP_SEND;

                if (launch->kind == FAKE_GPU_WAIT) {
                        waiting--;
                        continue;
                }
                assert_int_equal(sends, (starts + calls) % 2 == 0); /* both halves of everything go together */
                starts += launch->kind == FAKE_GPU_START;
                calls += launch->kind == FAKE_GPU_CALL;
                waiting += launch->kind == FAKE_GPU_START;
                most = waiting > most ? waiting : most;
        }
        assert_int_equal(starts, 119);
        assert_int_equal(calls, 1);
        assert_int_equal(waiting, 0);
        assert_int_equal(most, CLIENT_GPU_ROUND);
        /* What is left for later cannot be rung in rounds. */
        assert_int_equal(rmx_group_end_start(&request), RMX_E_BUSY);
        assert_error_says("120 requests on GPU 0, of which 48 of 48");
        assert_int_equal(rig.gpu->n_launches, 239);
        assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
        rig_stop(&rig);
}

/* Ranks of one process share the room: a round is smaller the more there are, but never too small for what a rank sends
 * to itself. */
static void test_rounds_shared(void **state) {
        static const uint32_t ranks[] = {1, 2, 3, 4, 8};

        (void)state;
        for (uint32_t k = 0; k < 5; k++) {
                const uint32_t n = ranks[k], share = CLIENT_GPU_STARTED / n;
                uint32_t waiting = 0, most = 0;
                struct rig rig;

                rig_start(&rig, n);
                assert_int_equal(device_ranks(rig.comm->device), n);
                assert_int_equal(rmx_group_start(), RMX_OK);
                for (uint32_t i = 0; i < 30; i++) {
                        assert_int_equal(send_to(&rig, 0, S1), RMX_OK);
                        assert_int_equal(recv_from(&rig, 0, S1), RMX_OK);
                }
                assert_int_equal(rmx_group_end(), RMX_OK);
                for (uint32_t i = 0; i < rig.gpu->n_launches; i++) {
                        const uint32_t kind = fake_gpu_launched(rig.gpu, i)->kind;

                        waiting += kind == FAKE_GPU_START;
                        waiting -= kind == FAKE_GPU_WAIT;
                        most = waiting > most ? waiting : most;
                }
                assert_int_equal(most, share < CLIENT_GPU_ROUND ? share : CLIENT_GPU_ROUND);
                rig_stop(&rig);
        }
}

static void test_streams(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->stuck = true;
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
        assert_int_equal(recv_from(&rig, 1, S2), RMX_OK);
        assert_int_equal(send_to(&rig, 1, S2), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 7);
        assert_ptr_equal(at(&rig, 0, FAKE_GPU_ORDER)->from, S2);
        assert_ptr_equal(at(&rig, 0, FAKE_GPU_ORDER)->stream, S1);
        for (uint32_t i = 1; i < 6; i++)
                assert_ptr_equal(fake_gpu_launched(rig.gpu, i)->stream, S1);
        assert_ptr_equal(at(&rig, 6, FAKE_GPU_ORDER)->from, S1);
        assert_ptr_equal(at(&rig, 6, FAKE_GPU_ORDER)->stream, S2);
        /* The next call is behind the group. */
        assert_int_equal(send_to(&rig, 1, S3), RMX_OK);
        assert_ptr_equal(at(&rig, 7, FAKE_GPU_ORDER)->from, S1);
        rig.gpu->stuck = false;

        rig.gpu->capturing = S2;
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
        assert_int_equal(recv_from(&rig, 1, S2), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_E_INVALID);
        assert_error_says("one stream when a stream is being captured");
        assert_int_equal(rig.gpu->n_launches, 9);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(&rig, 1, S2), RMX_OK);
        assert_int_equal(recv_from(&rig, 1, S2), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 12);
        assert_true(at(&rig, 9, FAKE_GPU_START)->bell.captured);
        assert_true(at(&rig, 10, FAKE_GPU_CALL)->bell.captured);
        assert_int_equal(at(&rig, 11, FAKE_GPU_WAIT)->bell.turn, 0);
        rig_stop(&rig);
}

/* Several communicators, as where a process has several ranks. */
static void test_comms(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_recv(rig.crew.comm[1], rig.b, BYTES, RMX_INT8, 0, S2), RMX_OK);
        assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 3);
        check_p2p(&rig, 0, FAKE_GPU_START, RING_OP_RECV, 0);
        check_p2p(&rig, 1, FAKE_GPU_CALL, RING_OP_SEND, 1);
        assert_ptr_equal(at(&rig, 1, FAKE_GPU_CALL)->stream, S1);
        assert_ptr_equal(at(&rig, 2, FAKE_GPU_WAIT)->stream, S2);
        rig_stop(&rig);
}

/* Nothing is put on a stream when anything is wrong. */
static void test_refused(void **state) {
        static char host[64];
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(&rig, 1, NULL), RMX_OK);
        assert_int_equal(send_to(&rig, 0, NULL), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_E_INVALID);
        assert_error_says("1 sends to itself and 0 receives from itself");
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(&rig, 1, NULL), RMX_OK);
        assert_int_equal(rmx_recv(rig.comm, host, 64, RMX_INT8, 1, NULL), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_E_INVALID);
        assert_error_says("is host memory");
        rig.gpu->block[1].secret = true;
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(&rig, 1, NULL), RMX_OK);
        assert_int_equal(recv_from(&rig, 1, NULL), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_E_UNSUPPORTED);
        assert_error_says("outside of groups only");
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(recv_from(&rig, 1, NULL), RMX_OK);
        assert_int_equal(rmx_group_end_start(&request), RMX_E_UNSUPPORTED);
        assert_error_says("calls that wait only");
        assert_int_equal(rig.gpu->n_launches, 0);
        /* When launching fails, what was rung is waited for all the same. */
        rig.gpu->block[1].secret = false;
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 1);
        rig.gpu->fail = RMX_E_INTERNAL;
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
        assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_E_INTERNAL);
        assert_int_equal(rig.gpu->n_launches, 1);
        assert_int_equal(rmx_group_start(), RMX_OK); /* without calls */
        assert_int_equal(rmx_group_end(), RMX_OK);
        rig_stop(&rig);
}

static void test_group_started(void **state) {
        struct rmx_request request;
        struct rig rig;
        int done;

        (void)state;
        rig_start(&rig, 2);
        for (uint32_t turn = 0; turn < 3; turn++) {
                rig.gpu->n_launches = 0;
                assert_int_equal(rmx_group_start(), RMX_OK);
                assert_int_equal(send_to(&rig, 1, S1), RMX_OK);
                assert_int_equal(recv_from(&rig, 1, S1), RMX_OK);
                assert_int_equal(rmx_group_end_start(&request), RMX_OK);
                assert_int_equal(rig.gpu->n_launches, 2);
                check_p2p(&rig, 0, FAKE_GPU_START, RING_OP_SEND, 1);
                check_p2p(&rig, 1, FAKE_GPU_START, RING_OP_RECV, 1);
                if (turn == 0) {
                        rig.gpu->hold = true;
                        assert_int_equal(rmx_test(&request, &done), RMX_OK);
                        assert_int_equal(done, 0);
                        rig.gpu->hold = false;
                        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
                } else if (turn == 1) {
                        assert_int_equal(rmx_wait_stream(&request, S2), RMX_OK);
                        assert_ptr_equal(last(&rig)->stream, S2);
                } else {
                        rig.gpu->status = ring_status(RMX_E_MISMATCH, 1);
                        assert_int_equal(rmx_wait(&request, S3), RMX_E_MISMATCH);
                        assert_error_says("rank 1");
                }
                assert_int_equal(rig.gpu->n_launches, 4);
                assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        }
        rig_stop(&rig);
}

/* One of its communicators is destroyed first: what the other has there is waited for, and leaves its places. */
static void test_group_destroyed(void **state) {
        (void)state;
        for (uint32_t on_stream = 0; on_stream < 2; on_stream++) {
                struct rmx_request request;
                struct rig rig;

                rig_start(&rig, 2);
                assert_int_equal(rmx_group_start(), RMX_OK);
                for (uint32_t i = 0; i < 3; i++)
                        assert_int_equal(rmx_all_reduce(rig.crew.comm[i % 2], rig.a, rig.b, 16, RMX_INT32, RMX_SUM, S1),
                                         RMX_OK);
                assert_int_equal(rmx_group_end_start(&request), RMX_OK);
                assert_int_equal(rig.comm->device->n_started, 3);
                assert_int_equal(rmx_comm_destroy(rig.crew.comm[1]), RMX_OK);
                rig.crew.comm[1] = NULL;
                assert_int_equal(rig.comm->device->n_started, 2);
                assert_int_equal(on_stream ? rmx_wait_stream(&request, S1) : rmx_wait(&request, NULL), RMX_E_INVALID);
                assert_error_says("or its comm destroyed");
                assert_int_equal(rig.comm->device->n_started, 0);
                assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
                assert_error_says("no outstanding request");
                rig_stop(&rig);
        }
}

/* ---- captured ---------------------------------------------------------------------------------------------------- */
#define CELLS CLIENT_GPU_CELLS

/* Of all ways to note what was launched only which cells: as many groups are captured as no program has cells for. */
static void capture_groups(struct rig *rig, struct rmx_comm *comm, uint32_t n, uint32_t *cells) {
        for (uint32_t i = 0; i < n; i++) {
                rig->gpu->n_launches = 0;
                assert_int_equal(rmx_group_start(), RMX_OK);
                for (uint32_t k = 0; k < 4; k++) {
                        assert_int_equal(rmx_send(comm, rig->a, BYTES, RMX_INT8, (comm->rank + 1) % 3, S1), RMX_OK);
                        assert_int_equal(rmx_recv(comm, rig->b, BYTES, RMX_INT8, (comm->rank + 1) % 3, S1), RMX_OK);
                }
                assert_int_equal(rmx_group_end(), RMX_OK);
                assert_int_equal(rig->gpu->n_launches, 15);
                for (uint32_t k = 0; k < 7; k++) {
                        const uint32_t cell = at(rig, k, FAKE_GPU_START)->bell.cell;

                        assert_int_equal(at(rig, 8 + k, FAKE_GPU_WAIT)->bell.cell, cell);
                        for (uint32_t other = 0; other < k; other++)
                                assert_int_not_equal(at(rig, other, FAKE_GPU_START)->bell.cell, cell);
                        cells[cell]++;
                }
        }
}

static uint32_t n_cells(const uint32_t *cells) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < CELLS; i++)
                n += cells[i] != 0;
        return n;
}

static void test_captured(void **state) {
        static uint32_t first[CELLS], second[CELLS], third[CELLS];
        struct rmx_request request;
        struct rig rig;
        uint32_t kept;

        (void)state;
        rig_start(&rig, 4);
        for (uint32_t i = 1; i < 4; i++)
                assert_ptr_equal(rig.crew.comm[i]->device, rig.comm->device);
        fake_gpu_capture(rig.gpu, S1, NULL);
        rig.gpu->n_launches = 0;
        assert_int_equal(rmx_send_start(rig.comm, rig.a, BYTES, RMX_INT8, 1, S1, &request), RMX_OK);
        assert_int_equal(rmx_wait_stream(&request, S1), RMX_OK);
        kept = at(&rig, 0, FAKE_GPU_START)->bell.cell;
        capture_groups(&rig, rig.comm, 1000, first);
        capture_groups(&rig, rig.crew.comm[1], 1000, second);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        assert_int_equal(n_cells(first), 7);
        assert_int_equal(n_cells(second), 7);
        /* What is not captured has others, */
        memset(third, 0, sizeof(third));
        capture_groups(&rig, rig.comm, 1000, third);
        for (uint32_t i = 0; i < CELLS; i++) {
                assert_true(!first[i] + !second[i] + !third[i] >= 2);
                assert_true(i != kept || !(first[i] + second[i] + third[i]));
        }
        /* and graphs that are captured later have the same. */
        fake_gpu_capture(rig.gpu, S1, NULL);
        memset(third, 0, sizeof(third));
        capture_groups(&rig, rig.comm, 10, third);
        for (uint32_t i = 0; i < CELLS; i++)
                assert_int_equal(!third[i], !first[i]);
        /* A communicator leaves its cells to another one. */
        assert_int_equal(rmx_comm_destroy(rig.crew.comm[1]), RMX_OK);
        rig.crew.comm[1] = NULL;
        memset(third, 0, sizeof(third));
        capture_groups(&rig, rig.crew.comm[2], 10, third);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        for (uint32_t i = 0; i < CELLS; i++)
                assert_int_equal(!third[i], !second[i]);
        /* Not if its kernels may still run. */
        rig.crew.comm[2]->adrift = true;
        assert_int_equal(rmx_comm_destroy(rig.crew.comm[2]), RMX_OK);
        rig.crew.comm[2] = NULL;
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        rig.comm = rig.crew.comm[0] = NULL;
        fake_gpu_capture(rig.gpu, S1, NULL);
        memset(third, 0, sizeof(third));
        capture_groups(&rig, rig.crew.comm[3], 10, third);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        for (uint32_t i = 0; i < CELLS; i++)
                assert_int_equal(!third[i], !first[i]);
        rig_stop(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_lines),           cmocka_unit_test(test_sequences),
                cmocka_unit_test(test_started),         cmocka_unit_test(test_order),
                cmocka_unit_test(test_rounds_self),     cmocka_unit_test(test_rounds_selves),
                cmocka_unit_test(test_rounds),          cmocka_unit_test(test_rounds_shared),
                cmocka_unit_test(test_streams),         cmocka_unit_test(test_comms),
                cmocka_unit_test(test_refused),         cmocka_unit_test(test_group_started),
                cmocka_unit_test(test_group_destroyed), cmocka_unit_test(test_captured),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
