/* SPDX-License-Identifier: MIT */
/* What the library writes into the ring: every word of every kind of line, argument blocks, sequences. */
#include <string.h>

#include "client/buffer.h"
#include "client/comm.h"
#include "client/session.h"
#include "tests/client/crew.h"

#define IN  64u /* offsets in the shared memory */
#define OUT 1024u

/* One rank of three; the fake latches, and nothing completes, for the other ranks never call. */
struct scene {
        struct crew crew;
        struct rmx_comm *comm; /* rank 1 */
        char *memory;
        uint32_t buffer;
        struct rmx_request request;
        uint32_t n; /* lines seen so far */
};

static void scene_start(struct scene *s) {
        uint64_t offset;
        void *memory;

        s->n = 0;
        crew_start(&s->crew, 3, 64);
        s->comm = s->crew.comm[1];
        assert_int_equal(rmx_mem_alloc(s->crew.session, 4096, &memory), RMX_OK);
        s->memory = memory;
        assert_int_equal(buffer_table_find(&s->crew.session->buffers, memory, 1, &s->buffer, &offset), 0);
        fake_epoch_changed(&s->crew.fake, 9);
        assert_int_equal(rmx_comm_error(s->comm), RMX_OK); /* reads the event */
}

/* Outstanding requests would be waited for. */
static void scene_stop(struct scene *s) {
        assert_int_equal(rmx_comm_abort(s->comm), RMX_OK);
        crew_stop(&s->crew);
}

/* The line that was issued last must be exactly this. Its argument block's offset is checked by the fake. */
static const struct fake_seen *check_line(struct scene *s, uint32_t op, uint32_t type, uint32_t redop, uint64_t count,
                                          bool in, bool out, uint32_t peer, uint32_t sequence) {
        const struct fake_seen *seen;
        struct ring_request expected = {0};

        seen = fake_line(&s->crew.fake, s->n++);
        expected.word[0] = 1u << 24 | op << 16 | type << 8 | redop;
        expected.word[1] = s->comm->handle;
        expected.word[2] = (uint32_t)count;
        expected.word[3] = (uint32_t)(count >> 32);
        expected.word[4] = in ? s->buffer : 0;
        expected.word[5] = in ? IN : 0;
        expected.word[7] = out ? s->buffer : 0;
        expected.word[8] = out ? OUT : 0;
        expected.word[10] = peer;
        expected.word[11] = seen->request.word[11];
        expected.word[12] = 9;
        expected.word[14] = sequence;
        assert_int_equal(!expected.word[11], !seen->argument_bytes);
        assert_memory_equal(&seen->request, &expected, sizeof(expected));
        return seen;
}

static void test_collectives(void **state) {
        struct rmx_request *request;
        struct scene s;
        void *in, *out;

        (void)state;
        scene_start(&s);
        in = s.memory + IN;
        out = s.memory + OUT;
        request = &s.request;
        assert_int_equal(rmx_all_reduce_start(s.comm, in, out, 3, RMX_FLOAT64, RMX_AVG, NULL, request), RMX_OK);
        check_line(&s, RING_OP_ALL_REDUCE, RMX_FLOAT64, RMX_AVG, 3, true, true, 0, 1);
        assert_int_equal(rmx_reduce_start(s.comm, in, out, 4, RMX_INT8, RMX_MAX, 1, NULL, request), RMX_OK);
        check_line(&s, RING_OP_REDUCE, RMX_INT8, RMX_MAX, 4, true, true, 1, 2);
        assert_int_equal(rmx_reduce_start(s.comm, in, out, 4, RMX_INT8, RMX_PROD, 2, NULL, request), RMX_OK);
        check_line(&s, RING_OP_REDUCE, RMX_INT8, RMX_PROD, 4, true, false, 2, 3);
        assert_int_equal(rmx_broadcast_start(s.comm, in, out, 5, RMX_UINT8, 1, NULL, request), RMX_OK);
        check_line(&s, RING_OP_BROADCAST, RMX_UINT8, 0, 5, true, true, 1, 4);
        assert_int_equal(rmx_broadcast_start(s.comm, in, out, 5, RMX_UINT8, 0, NULL, request), RMX_OK);
        check_line(&s, RING_OP_BROADCAST, RMX_UINT8, 0, 5, false, true, 0, 5);
        assert_int_equal(rmx_all_gather_start(s.comm, in, out, 6, RMX_FLOAT8_E4M3, NULL, request), RMX_OK);
        check_line(&s, RING_OP_ALL_GATHER, RMX_FLOAT8_E4M3, 0, 6, true, true, 0, 6);
        assert_int_equal(rmx_reduce_scatter_start(s.comm, in, out, 7, RMX_FLOAT8_E5M2, RMX_MIN, NULL, request), RMX_OK);
        check_line(&s, RING_OP_REDUCE_SCATTER, RMX_FLOAT8_E5M2, RMX_MIN, 7, true, true, 0, 7);
        assert_int_equal(rmx_gather_start(s.comm, in, out, 8, RMX_FLOAT16, 1, NULL, request), RMX_OK);
        check_line(&s, RING_OP_GATHER, RMX_FLOAT16, 0, 8, true, true, 1, 8);
        assert_int_equal(rmx_gather_start(s.comm, in, out, 8, RMX_FLOAT16, 2, NULL, request), RMX_OK);
        check_line(&s, RING_OP_GATHER, RMX_FLOAT16, 0, 8, true, false, 2, 9);
        assert_int_equal(rmx_scatter_start(s.comm, in, out, 9, RMX_BFLOAT16, 1, NULL, request), RMX_OK);
        check_line(&s, RING_OP_SCATTER, RMX_BFLOAT16, 0, 9, true, true, 1, 10);
        assert_int_equal(rmx_scatter_start(s.comm, in, out, 9, RMX_BFLOAT16, 0, NULL, request), RMX_OK);
        check_line(&s, RING_OP_SCATTER, RMX_BFLOAT16, 0, 9, false, true, 0, 11);
        assert_int_equal(rmx_all_to_all_start(s.comm, in, out, 10, RMX_UINT32, NULL, request), RMX_OK);
        check_line(&s, RING_OP_ALL_TO_ALL, RMX_UINT32, 0, 10, true, true, 0, 12);
        assert_int_equal(rmx_barrier_start(s.comm, NULL, request), RMX_OK);
        check_line(&s, RING_OP_BARRIER, 0, 0, 0, false, false, 0, 13);
        /* No memory is named for a count of 0. */
        assert_int_equal(rmx_all_to_all_start(s.comm, in, out, 0, RMX_UINT32, NULL, request), RMX_OK);
        check_line(&s, RING_OP_ALL_TO_ALL, RMX_UINT32, 0, 0, false, false, 0, 14);
        scene_stop(&s);
}

static void test_vector(void **state) {
        const size_t send_counts[3] = {1, 2, 0}, send_offsets[3] = {5, 0, 77};
        const size_t recv_counts[3] = {3, 2, 4}, recv_offsets[3] = {0, 10, 20};
        const uint64_t expected[12] = {1, 2, 0, 5, 0, 77, 3, 2, 4, 0, 10, 20};
        const struct fake_seen *seen;
        struct scene s;

        (void)state;
        scene_start(&s);
        assert_int_equal(rmx_all_to_all_v_start(s.comm, s.memory + IN, send_counts, send_offsets, s.memory + OUT,
                                                recv_counts, recv_offsets, RMX_INT64, NULL, &s.request),
                         RMX_OK);
        seen = check_line(&s, RING_OP_ALL_TO_ALL_V, RMX_INT64, 0, 0, true, true, 0, 1);
        assert_int_equal(seen->argument_bytes, sizeof(expected));
        assert_memory_equal(seen->argument, expected, sizeof(expected));
        scene_stop(&s);
}

static void test_factor(void **state) {
        const struct fake_seen *seen;
        const int32_t factor = -7;
        uint64_t word;
        struct scene s;
        uint32_t redop;

        (void)state;
        scene_start(&s);
        assert_int_equal(rmx_redop_create_premul_sum(s.comm, &factor, RMX_INT32, RMX_SCALAR_IMMEDIATE, &redop), RMX_OK);
        assert_int_equal(
                rmx_reduce_start(s.comm, s.memory + IN, s.memory + OUT, 2, RMX_INT32, redop, 2, NULL, &s.request),
                RMX_OK);
        seen = check_line(&s, RING_OP_REDUCE, RMX_INT32, RMX_PREMUL_SUM, 2, true, false, 2, 1);
        assert_int_equal(seen->argument_bytes, 8);
        memcpy(&word, seen->argument, sizeof(word));
        assert_int_equal(word, (uint64_t)(int64_t)-7);
        scene_stop(&s);
}

/* Sequences of sends and receives count by pair and direction, beside those of collectives. */
static void test_pairs(void **state) {
        struct rmx_request *request;
        struct scene s;
        void *in, *out;

        (void)state;
        scene_start(&s);
        in = s.memory + IN;
        out = s.memory + OUT;
        request = &s.request;
        assert_int_equal(rmx_send_start(s.comm, in, 2, RMX_INT32, 0, NULL, request), RMX_OK);
        check_line(&s, RING_OP_SEND, RMX_INT32, 0, 2, true, false, 0, 1);
        assert_int_equal(rmx_send_start(s.comm, in, 3, RMX_FLOAT16, 0, NULL, request), RMX_OK);
        check_line(&s, RING_OP_SEND, RMX_FLOAT16, 0, 3, true, false, 0, 2);
        assert_int_equal(rmx_send_start(s.comm, in, 2, RMX_INT32, 2, NULL, request), RMX_OK);
        check_line(&s, RING_OP_SEND, RMX_INT32, 0, 2, true, false, 2, 1);
        assert_int_equal(rmx_recv_start(s.comm, out, 4, RMX_FLOAT32, 0, NULL, request), RMX_OK);
        check_line(&s, RING_OP_RECV, RMX_FLOAT32, 0, 4, false, true, 0, 1);
        assert_int_equal(rmx_barrier_start(s.comm, NULL, request), RMX_OK);
        check_line(&s, RING_OP_BARRIER, 0, 0, 0, false, false, 0, 1);
        assert_int_equal(rmx_recv_start(s.comm, NULL, 0, RMX_FLOAT32, 0, NULL, request), RMX_OK);
        check_line(&s, RING_OP_RECV, RMX_FLOAT32, 0, 0, false, false, 0, 2);
        assert_int_equal(rmx_send_start(s.comm, in, 2, RMX_INT32, 0, NULL, request), RMX_OK);
        check_line(&s, RING_OP_SEND, RMX_INT32, 0, 2, true, false, 0, 3);
        scene_stop(&s);
}

static void check_entry(const struct fake_seen *seen, uint32_t i, struct ring_group_entry expected) {
        assert_true(seen->argument_bytes >= (i + 1) * sizeof(expected));
        assert_memory_equal(seen->argument + i * sizeof(expected), &expected, sizeof(expected));
}

/* Collectives come first, in their order; then one line for all sends and receives, also when they came in between. */
static void test_group(void **state) {
        const struct fake_seen *seen;
        struct scene s;
        void *in, *out;

        (void)state;
        scene_start(&s);
        in = s.memory + IN;
        out = s.memory + OUT;
        assert_int_equal(rmx_send_start(s.comm, in, 1, RMX_INT8, 2, NULL, &s.request), RMX_OK);
        check_line(&s, RING_OP_SEND, RMX_INT8, 0, 1, true, false, 2, 1);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_recv(s.comm, out, 1, RMX_INT64, 0, NULL), RMX_OK);
        assert_int_equal(rmx_barrier(s.comm, NULL), RMX_OK);
        assert_int_equal(rmx_send(s.comm, in, 5, RMX_INT8, 2, NULL), RMX_OK);
        assert_int_equal(rmx_send(s.comm, in, 6, RMX_FLOAT16, 0, NULL), RMX_OK);
        assert_int_equal(rmx_all_gather(s.comm, in, out, 2, RMX_INT32, NULL), RMX_OK);
        assert_int_equal(rmx_recv(s.comm, NULL, 0, RMX_INT8, 0, NULL), RMX_OK);
        assert_int_equal(rmx_send(s.comm, in, 7, RMX_INT8, 2, NULL), RMX_OK);
        assert_int_equal(fake_lines(&s.crew.fake), 1); /* so far nothing was issued */
        assert_int_equal(rmx_group_end_start(&s.request), RMX_OK);
        check_line(&s, RING_OP_BARRIER, 0, 0, 0, false, false, 0, 1);
        check_line(&s, RING_OP_ALL_GATHER, RMX_INT32, 0, 2, true, true, 0, 2);
        seen = check_line(&s, RING_OP_GROUP, 0, 0, 5, false, false, 0, 0);
        assert_int_equal(seen->argument_bytes, 5 * 40);
        check_entry(seen, 0, (struct ring_group_entry){RING_OP_RECV, RMX_INT64, 0, 1, 1, OUT, s.buffer, 0});
        check_entry(seen, 1, (struct ring_group_entry){RING_OP_SEND, RMX_INT8, 2, 2, 5, IN, s.buffer, 0});
        check_entry(seen, 2, (struct ring_group_entry){RING_OP_SEND, RMX_FLOAT16, 0, 1, 6, IN, s.buffer, 0});
        check_entry(seen, 3, (struct ring_group_entry){RING_OP_RECV, RMX_INT8, 0, 2, 0, 0, 0, 0});
        check_entry(seen, 4, (struct ring_group_entry){RING_OP_SEND, RMX_INT8, 2, 3, 7, IN, s.buffer, 0});
        /* A single one needs no block. */
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_send(s.comm, in, 5, RMX_INT8, 2, NULL), RMX_OK);
        assert_int_equal(rmx_group_end_start(&s.request), RMX_OK);
        check_line(&s, RING_OP_SEND, RMX_INT8, 0, 5, true, false, 2, 4);
        scene_stop(&s);
}

/* Entries in ordinary memory share a region; their places do not overlap and begin at cache lines. */
static void test_group_places(void **state) {
        struct ring_group_entry entry[4];
        const struct fake_seen *seen;
        char send[100], recv[200];
        struct scene s;

        (void)state;
        scene_start(&s);
        memset(send, 7, sizeof(send));
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_send(s.comm, send, 100, RMX_INT8, 0, NULL), RMX_OK);
        assert_int_equal(rmx_send(s.comm, s.memory + IN, 1, RMX_INT8, 0, NULL), RMX_OK);
        assert_int_equal(rmx_recv(s.comm, recv, 200, RMX_INT8, 2, NULL), RMX_OK);
        assert_int_equal(rmx_send(s.comm, send, 3, RMX_INT8, 2, NULL), RMX_OK);
        assert_int_equal(rmx_group_end_start(&s.request), RMX_OK);
        seen = check_line(&s, RING_OP_GROUP, 0, 0, 4, false, false, 0, 0);
        memcpy(entry, seen->argument, sizeof(entry));
        assert_int_equal(entry[1].buffer, s.buffer);
        assert_int_not_equal(entry[0].buffer, s.buffer);
        assert_int_equal(entry[2].buffer, entry[0].buffer);
        assert_int_equal(entry[3].buffer, entry[0].buffer);
        assert_int_equal(entry[0].offset, 0);
        assert_int_equal(entry[2].offset, 128);
        assert_int_equal(entry[3].offset, 384);
        scene_stop(&s);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_collectives), cmocka_unit_test(test_vector), cmocka_unit_test(test_factor),
                cmocka_unit_test(test_pairs),       cmocka_unit_test(test_group),  cmocka_unit_test(test_group_places),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
