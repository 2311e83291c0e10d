/* SPDX-License-Identifier: MIT */
/* rmx_all_to_all_v: what arrives, in every kind of memory, and its arguments. */
#include <stdlib.h>
#include <string.h>

#include "proto/session.pb-c.h"
#include "tests/client/crew.h"

#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

#define RANKS 4u
#define ROOM  4096u

/* Rank a sends a * 7 + b * 3 elements to b, none from 2 to 1; pieces lie in reverse order with gaps between. */
static size_t count_of(uint32_t from, uint32_t to) {
        return from == 2 && to == 1 ? 0 : from * 7 + to * 3;
}

static size_t offset_of(uint32_t rank, uint32_t peer) {
        return 3 + rank + (RANKS - 1 - peer) * 100;
}

static int32_t value(uint32_t from, uint32_t to, size_t i) {
        return (int32_t)(from * 1000000 + to * 10000 + i);
}

struct side {
        size_t send_counts[RANKS], send_offsets[RANKS], recv_counts[RANKS], recv_offsets[RANKS];
};

static struct side side_of(uint32_t rank) {
        struct side s;

        for (uint32_t i = 0; i < RANKS; i++) {
                s.send_counts[i] = count_of(rank, i);
                s.send_offsets[i] = offset_of(rank, i);
                s.recv_counts[i] = count_of(i, rank);
                s.recv_offsets[i] = offset_of(rank, i) + 500;
        }
        return s;
}

static int32_t *memory_new(struct crew *crew, bool shared) {
        void *p = NULL;

        if (shared)
                assert_int_equal(rmx_mem_alloc(crew->session, ROOM * sizeof(int32_t), &p), RMX_OK);
        else
                p = calloc(ROOM, sizeof(int32_t));
        assert_non_null(p);
        return p;
}

/* both: pieces to send and room to receive lie in one memory, side by side. */
static void check_exchange(struct crew *crew, bool shared_in, bool shared_out, bool both) {
        int32_t *in[RANKS], *out[RANKS];
        struct rmx_request request[RANKS];

        for (uint32_t rank = 0; rank < RANKS; rank++) {
                struct side s = side_of(rank);

                in[rank] = memory_new(crew, shared_in);
                out[rank] = both ? in[rank] : memory_new(crew, shared_out);
                for (size_t i = 0; i < ROOM; i++)
                        in[rank][i] = out[rank][i] = -1;
                for (uint32_t to = 0; to < RANKS; to++) {
                        for (size_t i = 0; i < s.send_counts[to]; i++)
                                in[rank][s.send_offsets[to] + i] = value(rank, to, i);
                }
                assert_int_equal(rmx_all_to_all_v_start(crew->comm[rank], in[rank], s.send_counts, s.send_offsets,
                                                        out[rank], s.recv_counts, s.recv_offsets, RMX_INT32, NULL,
                                                        &request[rank]),
                                 RMX_OK);
                memset(&s, 0xff, sizeof(s)); /* the arrays were copied */
        }
        for (uint32_t rank = 0; rank < RANKS; rank++)
                assert_int_equal(rmx_wait(&request[rank], NULL), RMX_OK);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
                struct side s = side_of(rank);

                for (uint32_t from = 0; from < RANKS; from++) {
                        for (size_t i = 0; i < s.recv_counts[from]; i++) {
                                int32_t *p = &out[rank][s.recv_offsets[from] + i];

                                assert_int_equal(*p, value(from, rank, i));
                                *p = -1;
                        }
                }
                for (uint32_t to = 0; to < RANKS; to++) {
                        for (size_t i = 0; i < s.send_counts[to]; i++) {
                                assert_int_equal(in[rank][s.send_offsets[to] + i], value(rank, to, i));
                                in[rank][s.send_offsets[to] + i] = -1;
                        }
                }
                for (size_t i = 0; i < ROOM; i++) { /* nothing between the pieces was touched */
                        assert_int_equal(in[rank][i], -1);
                        assert_int_equal(out[rank][i], -1);
                }
                if (!shared_in)
                        free(in[rank]);
                if (!shared_out && !both)
                        free(out[rank]);
        }
}

static void test_exchange(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, RANKS, 64);
        check_exchange(&crew, true, true, false);
        check_exchange(&crew, true, false, false);
        check_exchange(&crew, false, true, false);
        check_exchange(&crew, false, false, false);
        check_exchange(&crew, true, true, true);
        check_exchange(&crew, false, false, true);
        crew_stop(&crew);
}

#define FAR (1u << 28)

static void *far_before(int16_t *p) {
        return (void *)((uintptr_t)p - FAR * sizeof(*p));
}

/* Regions hold the pieces only, however far apart they lie. */
static void test_packed(void **state) {
        const size_t count[1] = {2}, offset[1] = {FAR};
        const struct fake_seen *seen;
        const uint64_t expected[4] = {2, 0, 2, 0};
        int16_t x[2] = {3, 4}, y[2] = {0};
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        crew.fake.max_bytes = 2 * 65536;
        assert_int_equal(rmx_all_to_all_v(crew.comm[0], far_before(x), count, offset, far_before(y), count, offset,
                                          RMX_FLOAT16, NULL),
                         RMX_OK);
        assert_memory_equal(x, y, sizeof(x));
        seen = fake_line(&crew.fake, 0);
        assert_int_equal(seen->argument_bytes, sizeof(expected));
        assert_memory_equal(seen->argument, expected, sizeof(expected));
        crew_stop(&crew);
}

static int nothing(struct crew *crew, uint32_t rank) {
        const size_t zero[RANKS] = {0};

        return rmx_all_to_all_v(crew->comm[rank], NULL, zero, zero, NULL, zero, zero, RMX_INT8, NULL);
}

static int disagree(struct crew *crew, uint32_t rank) {
        const size_t one[RANKS] = {1, 1, 1, 1}, zero[RANKS] = {0, 1, 2, 3};
        size_t send[RANKS] = {1, 1, 1, 1};
        char in[RANKS] = {0}, out[RANKS];

        if (rank == 2)
                send[3] = 0;
        return rmx_all_to_all_v(crew->comm[rank], in, send, zero, out, one, zero, RMX_INT8, NULL);
}

static void test_counts(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, RANKS, 64);
        crew_run(&crew, nothing);
        for (uint32_t i = 0; i < RANKS; i++)
                assert_int_equal(crew.result[i], RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE), 0);
        crew_run(&crew, disagree);
        for (uint32_t i = 0; i < RANKS; i++)
                assert_int_equal(crew.result[i], RMX_E_MISMATCH);
        crew_stop(&crew);
}

#define CALL(in, sc, so, out, rc, ro, type) rmx_all_to_all_v(comm, in, sc, so, out, rc, ro, type, NULL)

static void test_arguments(void **state) {
        size_t one[2] = {1, 1}, at[2] = {0, 1}, other[2] = {2, 3}, two[2] = {2, 2}, huge[2] = {0, SIZE_MAX};
        int64_t x[4] = {0}, y[4];
        struct rmx_request request;
        struct rmx_comm *comm;
        struct crew crew;
        void *shared;

        (void)state;
        crew_start(&crew, 2, 64);
        comm = crew.comm[0];
        assert_int_equal(rmx_all_to_all_v(NULL, x, one, at, y, one, at, RMX_INT64, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_to_all_v: comm is NULL");
        assert_int_equal(CALL(x, NULL, at, y, one, at, RMX_INT64), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_to_all_v: send_counts is NULL, must be an array of 2 numbers");
        assert_int_equal(CALL(x, one, NULL, y, one, at, RMX_INT64), RMX_E_INVALID);
        assert_error_says("send_offsets is NULL");
        assert_int_equal(CALL(x, one, at, y, NULL, at, RMX_INT64), RMX_E_INVALID);
        assert_error_says("recv_counts is NULL");
        assert_int_equal(CALL(x, one, at, y, one, NULL, RMX_INT64), RMX_E_INVALID);
        assert_error_says("recv_offsets is NULL");
        assert_int_equal(CALL(NULL, one, at, y, one, at, RMX_INT64), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_to_all_v: in is NULL with send_counts above 0");
        assert_int_equal(CALL(x, one, at, NULL, one, at, RMX_INT64), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_to_all_v: out is NULL with recv_counts above 0");
        assert_int_equal(CALL(x, one, at, y, one, at, 12), RMX_E_INVALID);
        assert_error_says("type 12 is unknown; types are 0..11");
        assert_int_equal(CALL(x, one, huge, y, one, at, RMX_INT64), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(),
                            "rmx_all_to_all_v: send_counts[1] 1 and send_offsets[1] 18446744073709551615 are too "
                            "large: 8-byte elements overflow");
        assert_int_equal(CALL(x, one, at, y, huge, at, RMX_INT64), RMX_E_INVALID);
        assert_error_says("recv_counts[1] 18446744073709551615");
        assert_int_equal(CALL(x, two, at, y, one, at, RMX_INT64), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(),
                            "rmx_all_to_all_v: send_counts[0] is 2 and recv_counts[0] is 1; rank 0 is "
                            "this rank itself, so they must be equal");
        assert_int_equal(CALL(x, one, at, x, one, at, RMX_INT64), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_to_all_v: what is sent to rank 0 and what is received from rank "
                                              "0 overlap");
        assert_int_equal(CALL(x, one, at, x + 1, one, at, RMX_INT64), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_to_all_v: what is sent to rank 1 and what is received from rank "
                                              "0 overlap");
        assert_int_equal(rmx_mem_alloc(crew.session, 64, &shared), RMX_OK);
        assert_int_equal(CALL((char *)shared + 4, one, at, x, one, at, RMX_INT64), RMX_E_INVALID);
        assert_error_says("in: ");
        assert_error_says("not aligned to the 8 bytes of type 4");
        assert_int_equal(rmx_all_to_all_v_start(comm, x, one, at, y, one, at, RMX_INT64, NULL, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_to_all_v_start: ret_request is NULL");
        assert_int_equal(rmx_all_to_all_v(comm, x, one, at, y, one, at, RMX_INT64, x), RMX_E_INVALID);
        assert_error_says("stream must be NULL");
        /* Apart from each other in one array is fine, and so far nothing was rung. */
        assert_int_equal(rmx_all_to_all_v_start(comm, x, one, at, x, one, other, RMX_INT64, NULL, &request), RMX_OK);
        x[2] = 7;
        assert_int_equal(rmx_all_to_all_v(crew.comm[1], y, one, at, y, one, other, RMX_INT64, NULL), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_exchange),
                cmocka_unit_test(test_packed),
                cmocka_unit_test(test_counts),
                cmocka_unit_test(test_arguments),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
