/* SPDX-License-Identifier: MIT */
/* Sends, receives and groups through real rings: results, order, mismatches, leaving ranks, hostile blocks. */
#include "tests/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "executor/session.h"
#include "fixture.h"
#include "railmux/railmux.h"

#define N     4u
#define BYTES (1u << 20)
#define HALF  (BYTES / 2)

static uint32_t pair_sequence[2][N][N]; /* [receives][rank][peer] */

static int setup(void **state) {
        static struct fixture f;
        uint32_t lost;

        memset(pair_sequence, 0, sizeof(pair_sequence));
        fixture_init(&f, N, BYTES);
        fixture_attach(&f, &lost);
        *state = &f;
        return 0;
}

static int teardown(void **state) {
        fixture_deinit(*state);
        return 0;
}

static struct ring_group_entry entry(uint32_t rank, bool sends, uint32_t peer, uint64_t count, uint64_t element) {
        return (struct ring_group_entry){
                .operation = sends ? RING_OP_SEND : RING_OP_RECV,
                .type = RMX_INT32,
                .peer = peer,
                .sequence = ++pair_sequence[!sends][rank][peer],
                .count = count,
                .offset = (sends ? 0 : HALF) + element * sizeof(int32_t),
                .buffer = FIXTURE_BUFFER,
        };
}

static uint32_t ring_group(struct fixture *f, uint32_t rank, const struct ring_group_entry *entries, uint32_t n) {
        return fixture_ring_group(f, rank, entries, n, RING_ARGUMENT_ALIGN);
}

static int32_t value(uint32_t rank, uint64_t i, uint32_t salt) {
        return (int32_t)(i * 2654435761u + rank * 97u + salt);
}

static void fill(struct fixture *f, uint32_t salt) {
        for (uint32_t r = 0; r < N; r++) {
                int32_t *in = (int32_t *)f->ranks[r].buffer;

                for (uint32_t i = 0; i < HALF / 4; i++)
                        in[i] = value(r, i, salt);
                memset(f->ranks[r].buffer + HALF, 0xa5, HALF);
        }
}

static const int32_t *out(struct fixture *f, uint32_t rank) {
        return (const int32_t *)(f->ranks[rank].buffer + HALF);
}

static void expect(struct fixture *f, uint32_t rank, uint64_t at, uint32_t from, uint64_t element, uint64_t count,
                   uint32_t salt) {
        for (uint64_t i = 0; i < count; i++)
                assert_int_equal(out(f, rank)[at + i], value(from, element + i, salt));
        assert_int_equal(out(f, rank)[at + count], (int32_t)0xa5a5a5a5);
}

static void one_pair(void **state) {
        const uint64_t counts[] = {0, 1, 3, 1023, 16384, 50001, 130000};
        struct fixture *f = *state;

        for (uint32_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                struct ring_group_entry send = entry(2, true, 0, counts[i], 5), recv = entry(0, false, 2, counts[i], 7);
                uint32_t a, b;

                fill(f, i);
                if (i % 2) {
                        a = fixture_ring_single(f, 2, &send);
                        b = fixture_ring_single(f, 0, &recv);
                } else {
                        b = fixture_ring_single(f, 0, &recv);
                        a = fixture_ring_single(f, 2, &send);
                }
                assert_int_equal(fixture_wait(f, 2, a), ring_status(RMX_OK, -1));
                assert_int_equal(fixture_wait(f, 0, b), ring_status(RMX_OK, -1));
                expect(f, 0, 7, 2, 5, counts[i], i);
        }
}

/* Everybody sends to everybody, itself included, in any order, together with a collective. */
static void all_pairs(void **state) {
        struct fixture *f = *state;

        for (uint32_t round = 0; round < 100; round++) {
                uint32_t q[N], barrier[N], order[2 * N];

                fill(f, round);
                for (uint32_t r = 0; r < N; r++) {
                        struct ring_group_entry entries[2 * N];
                        struct ring_request request;

                        for (uint32_t i = 0; i < 2 * N; i++)
                                order[i] = i;
                        for (uint32_t i = 2 * N - 1; i > 0; i--) {
                                uint32_t k = (uint32_t)rand() % (i + 1), t = order[i];

                                order[i] = order[k];
                                order[k] = t;
                        }
                        for (uint32_t i = 0; i < 2 * N; i++) {
                                uint32_t peer = order[i] / 2;
                                bool sends = order[i] % 2;
                                uint64_t count = 100 + 31 * round * (sends ? r + 2 * peer : peer + 2 * r) % 3000;

                                entries[i] = entry(r, sends, peer, count, sends ? 0 : peer * 4000);
                        }
                        q[r] = ring_group(f, r, entries, 2 * N);
                        request = fixture_request(f, r, RING_OP_BARRIER, 0, 0, 0, 0);
                        barrier[r] = fixture_ring(f, r, &request);
                }
                for (uint32_t r = 0; r < N; r++) {
                        assert_int_equal(fixture_wait(f, r, barrier[r]), ring_status(RMX_OK, -1));
                        assert_int_equal(fixture_wait(f, r, q[r]), ring_status(RMX_OK, -1));
                        for (uint32_t peer = 0; peer < N; peer++)
                                expect(f, r, peer * 4000, peer, 0, 100 + 31 * round * (peer + 2 * r) % 3000, round);
                }
        }
}

/* What completes must not wait for the rest of a group on the other side. */
static void group_does_not_hold_back(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry both[2], e;
        uint32_t q0, q1, q2;

        fill(f, 1);
        both[0] = entry(1, false, 0, 100, 0);
        both[1] = entry(1, false, 2, 100, 1000);
        q1 = ring_group(f, 1, both, 2);
        e = entry(0, true, 1, 100, 0);
        q0 = fixture_ring_single(f, 0, &e);
        assert_int_equal(fixture_wait(f, 0, q0), ring_status(RMX_OK, -1)); /* rank 1's group still waits for rank 2 */
        e = entry(2, true, 1, 100, 0);
        q2 = fixture_ring_single(f, 2, &e);
        assert_int_equal(fixture_wait(f, 2, q2), ring_status(RMX_OK, -1));
        assert_int_equal(fixture_wait(f, 1, q1), ring_status(RMX_OK, -1));
        expect(f, 1, 0, 0, 0, 100, 1);
        expect(f, 1, 1000, 2, 0, 100, 1);
}

static void several_to_one_peer(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry sends[8], recvs[8];
        uint32_t a, b;

        fill(f, 9);
        for (uint32_t i = 0; i < 8; i++) {
                sends[i] = entry(3, true, 1, 50 + i, i * 64);
                recvs[i] = entry(1, false, 3, 50 + i, (7 - i) * 200);
        }
        a = ring_group(f, 3, sends, 8);
        b = ring_group(f, 1, recvs, 8);
        assert_int_equal(fixture_wait(f, 3, a), ring_status(RMX_OK, -1));
        assert_int_equal(fixture_wait(f, 1, b), ring_status(RMX_OK, -1));
        for (uint32_t i = 0; i < 8; i++)
                expect(f, 1, (7 - i) * 200, 3, i * 64, 50 + i, 9);
}

static void count_mismatch(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry send = entry(0, true, 1, 10, 0), recv = entry(1, false, 0, 11, 0);
        uint32_t a = fixture_ring_single(f, 0, &send), b, status;

        fixture_wait_entered(f, 0, a);
        b = fixture_ring_single(f, 1, &recv);
        status = fixture_wait(f, 1, b);
        assert_int_equal(ring_status_code(status), RMX_E_MISMATCH);
        assert_int_equal(ring_status_detail(status), RING_DETAIL_COUNT);
        assert_int_equal(ring_status_rank(status), 1);
        assert_int_equal(fixture_wait(f, 0, a), status);
}

static void wrong_sequence(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry send = entry(0, true, 1, 10, 0), recv = entry(1, false, 0, 10, 0), wrong = send;
        uint32_t a, b;

        wrong.sequence = 3;
        assert_int_equal(ring_status_code(fixture_wait(f, 0, fixture_ring_single(f, 0, &wrong))), RMX_E_INVALID);
        assert_int_equal(ring_status_code(fixture_wait(f, 0, ring_group(f, 0, &wrong, 1))), RMX_E_INVALID);
        a = fixture_ring_single(f, 0, &send); /* the pair has not noticed */
        b = fixture_ring_single(f, 1, &recv);
        assert_int_equal(fixture_wait(f, 0, a), ring_status(RMX_OK, -1));
        assert_int_equal(fixture_wait(f, 1, b), ring_status(RMX_OK, -1));
}

static void ends_comm(struct fixture *f, uint32_t q) {
        struct ring_request other = fixture_request(f, 1, RING_OP_BARRIER, 0, 0, 0, 0);
        uint32_t status = fixture_wait(f, 0, q);

        assert_int_equal(ring_status_code(status), RMX_E_INVALID);
        assert_int_equal(ring_status_rank(status), 0);
        assert_int_equal(fixture_wait(f, 1, fixture_ring(f, 1, &other)), status);
}

static void block_outside(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry e = entry(0, true, 1, 10, 0);

        ends_comm(f, fixture_ring_group(f, 0, &e, 1, 4096 - 0));
}

static void block_unaligned(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry e = entry(0, true, 1, 10, 0);

        ends_comm(f, fixture_ring_group(f, 0, &e, 1, 72));
}

static void block_absent(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry e = entry(0, true, 1, 10, 0);

        ends_comm(f, fixture_ring_group(f, 0, &e, 1, 0));
}

static void entry_beyond_buffer(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry e[2] = {entry(0, true, 1, 10, 0), entry(0, true, 1, BYTES / 4 + 1, 0)};

        ends_comm(f, ring_group(f, 0, e, 2));
}

static void entry_of_nobody(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry e = entry(0, true, 1, 10, 0);

        e.peer = N;
        ends_comm(f, ring_group(f, 0, &e, 1));
}

static void collective_in_group(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry e = entry(0, true, 1, 10, 0);

        e.operation = RING_OP_BARRIER;
        ends_comm(f, ring_group(f, 0, &e, 1));
}

static void peer_leaves(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry e = entry(0, true, 3, 10, 0);
        uint32_t q = fixture_ring_single(f, 0, &e), status;

        fixture_wait_entered(f, 0, q);
        pthread_rwlock_wrlock(&f->executor.tables);
        comm_rank_leave(&comm_find(&f->executor, FIXTURE_COMM)->ranks[3], 0);
        pthread_rwlock_unlock(&f->executor.tables);
        status = fixture_wait(f, 0, q);
        assert_int_equal(ring_status_code(status), RMX_E_PEER_LOST);
        assert_int_equal(ring_status_rank(status), 3);
}

static void peer_has_left(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry e = entry(0, false, 3, 10, 0);
        uint32_t status;

        pthread_rwlock_wrlock(&f->executor.tables);
        comm_rank_leave(&comm_find(&f->executor, FIXTURE_COMM)->ranks[3], 0);
        pthread_rwlock_unlock(&f->executor.tables);
        status = fixture_wait(f, 0, fixture_ring_single(f, 0, &e));
        assert_int_equal(ring_status_code(status), RMX_E_PEER_LOST);
        assert_int_equal(ring_status_rank(status), 3);
}

int main(void) {
#define P2P_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                P2P_TEST(one_pair),
                P2P_TEST(all_pairs),
                P2P_TEST(group_does_not_hold_back),
                P2P_TEST(several_to_one_peer),
                P2P_TEST(count_mismatch),
                P2P_TEST(wrong_sequence),
                P2P_TEST(block_outside),
                P2P_TEST(block_unaligned),
                P2P_TEST(block_absent),
                P2P_TEST(entry_beyond_buffer),
                P2P_TEST(entry_of_nobody),
                P2P_TEST(collective_in_group),
                P2P_TEST(peer_leaves),
                P2P_TEST(peer_has_left),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
