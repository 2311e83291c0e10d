/* SPDX-License-Identifier: MIT */
/* Requests through real rings: results, mismatches, hostile lines, leaving ranks, retired buffers. */
#include "tests/cmocka_all.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/report.h"
#include "executor/session.h"
#include "fixture.h"
#include "railmux/railmux.h"

#define N     4u
#define BYTES (1u << 20)

static int setup(void **state) {
        static struct fixture f;
        uint32_t lost;

        fixture_init(&f, N, BYTES);
        fixture_attach(&f, &lost);
        assert_int_equal(lost, 0);
        *state = &f;
        return 0;
}

static int teardown(void **state) {
        fixture_deinit(*state);
        return 0;
}

static void fill(struct fixture *f, uint64_t count) {
        for (uint32_t r = 0; r < N; r++) {
                int32_t *in = (int32_t *)f->ranks[r].buffer;

                for (uint64_t i = 0; i < count; i++)
                        in[i] = (int32_t)(i * 31 + r * 1000003);
                memset(f->ranks[r].buffer + f->buffer_bytes / 2, 0xa5, f->buffer_bytes / 2);
        }
}

static void check_sum(struct fixture *f, uint64_t count) {
        for (uint32_t r = 0; r < N; r++) {
                int32_t *out = (int32_t *)(f->ranks[r].buffer + f->buffer_bytes / 2);

                for (uint64_t i = 0; i < count; i++)
                        assert_int_equal(out[i], (int32_t)(i * 31 * N + 1000003 * (N * (N - 1) / 2)));
                assert_int_equal(out[count], (int32_t)0xa5a5a5a5);
        }
}

static void all_reduce(struct fixture *f, uint64_t count) {
        uint32_t q[N];

        fill(f, count);
        for (uint32_t r = 0; r < N; r++) {
                struct ring_request request = fixture_request(f, r, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, count, 0);

                q[r] = fixture_ring(f, r, &request);
        }
        for (uint32_t r = 0; r < N; r++)
                assert_int_equal(ring_status_code(fixture_wait(f, r, q[r])), RMX_OK);
        check_sum(f, count);
}

static void sizes(void **state) {
        const uint64_t counts[] = {0, 1, 3, 17, 1023, 65537, 100003};

        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
                all_reduce(*state, counts[i]);
}

static void many_in_flight(void **state) {
        struct fixture *f = *state;
        uint32_t q[N][FIXTURE_DEPTH];

        for (int lap = 0; lap < 50; lap++) {
                for (uint32_t r = 0; r < N; r++)
                        for (uint32_t k = 0; k < FIXTURE_DEPTH; k++) {
                                struct ring_request request = fixture_request(f, r, RING_OP_BARRIER, 0, 0, 0, 0);

                                q[r][k] = fixture_ring(f, r, &request);
                        }
                for (uint32_t r = 0; r < N; r++)
                        for (uint32_t k = FIXTURE_DEPTH; k--;)
                                assert_int_equal(ring_status_code(fixture_wait(f, r, q[r][k])), RMX_OK);
        }
}

static void mismatch(void **state) {
        struct fixture *f = *state;
        uint32_t q[N];

        all_reduce(f, 100);
        for (uint32_t r = 0; r < N; r++) {
                struct ring_request request =
                        fixture_request(f, r, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, r == 2 ? 101 : 100, 0);

                q[r] = fixture_ring(f, r, &request);
                if (r == 0) /* make rank 0 the first, so that rank 2 is the one that differs */
                        assert_int_equal(ring_producer_wait(&f->ranks[0].producer, q[0], 20000000, &(uint32_t){0}),
                                         RING_E_AGAIN);
        }
        for (uint32_t r = 0; r < N; r++) {
                uint32_t status = fixture_wait(f, r, q[r]);

                assert_int_equal(ring_status_code(status), RMX_E_MISMATCH);
                assert_int_equal(ring_status_rank(status), 2);
        }
        /* sticky */
        struct ring_request request = fixture_request(f, 1, RING_OP_BARRIER, 0, 0, 0, 0);

        assert_int_equal(ring_status_code(fixture_wait(f, 1, fixture_ring(f, 1, &request))), RMX_E_MISMATCH);
}

/* Wrong in a way that harms only the line itself. */
static void own_line_only(void **state) {
        struct fixture *f = *state;
        struct ring_request request;

        request = fixture_request(f, 0, RING_OP_BARRIER, 0, 0, 0, 0);
        request.word[RING_W_COMM] = FIXTURE_HANDLE + 1; /* another session's handle */
        f->ranks[0].sequence--;
        assert_int_equal(ring_status_code(fixture_wait(f, 0, fixture_ring(f, 0, &request))), RMX_E_INVALID);
        request = fixture_request(f, 0, RING_OP_BARRIER, 0, 0, 0, 0);
        request.word[RING_W_SEQUENCE] += 5;
        f->ranks[0].sequence--;
        assert_int_equal(ring_status_code(fixture_wait(f, 0, fixture_ring(f, 0, &request))), RMX_E_INVALID);
        request = fixture_request(f, 0, RING_OP_BARRIER, 0, 0, 0, 0);
        request.word[RING_W_HEAD] |= 0x7f000000;
        f->ranks[0].sequence--;
        assert_int_equal(ring_status_code(fixture_wait(f, 0, fixture_ring(f, 0, &request))), RMX_E_INVALID);
        all_reduce(f, 1000);
}

static void expect_invalid(struct ring_request *request, struct fixture *f, uint32_t code) {
        struct ring_request other = fixture_request(f, 1, RING_OP_BARRIER, 0, 0, 0, 0);
        uint32_t q0 = fixture_ring(f, 0, request), q1 = fixture_ring(f, 1, &other), status;

        status = fixture_wait(f, 0, q0);
        assert_int_equal(ring_status_code(status), code);
        assert_int_equal(ring_status_rank(status), 0);
        assert_int_equal(ring_status_code(fixture_wait(f, 1, q1)), code);
}

static void flags(void **state) {
        struct ring_request request = fixture_request(*state, 0, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, 4, 0);

        request.word[RING_W_FLAGS] = 1;
        expect_invalid(&request, *state, RMX_E_INVALID);
}

static void beyond_buffer(void **state) {
        struct fixture *f = *state;
        struct ring_request request = fixture_request(f, 0, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, BYTES / 8 + 1, 0);

        expect_invalid(&request, f, RMX_E_INVALID);
}

static void overflow(void **state) {
        struct ring_request request =
                fixture_request(*state, 0, RING_OP_ALL_GATHER, RMX_INT32, 0, UINT64_MAX / 4 + 2, 0);

        expect_invalid(&request, *state, RMX_E_INVALID);
}

static void huge_offset(void **state) {
        struct ring_request request = fixture_request(*state, 0, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, 4, 0);

        ring_request_set_u64(&request, RING_W_IN_LO, UINT64_MAX - 7);
        expect_invalid(&request, *state, RMX_E_INVALID);
}

static void wrong_root(void **state) {
        struct ring_request request = fixture_request(*state, 0, RING_OP_BROADCAST, RMX_INT32, 0, 4, N);

        expect_invalid(&request, *state, RMX_E_INVALID);
}

static void unknown_operation(void **state) {
        struct ring_request request = fixture_request(*state, 0, 200, RMX_INT32, 0, 4, 0);

        expect_invalid(&request, *state, RMX_E_INVALID);
}

static void future_epoch(void **state) {
        struct ring_request request = fixture_request(*state, 0, RING_OP_BARRIER, 0, 0, 0, 0);

        request.word[RING_W_EPOCH] = 2;
        expect_invalid(&request, *state, RMX_E_INVALID);
}

static void rank_leaves(void **state) {
        struct fixture *f = *state;
        struct ring_request request;
        struct comm *comm;
        uint32_t q, status;

        all_reduce(f, 10);
        pthread_rwlock_wrlock(&f->executor.tables);
        comm = comm_find(&f->executor, FIXTURE_COMM);
        comm_rank_leave(&comm->ranks[3], 1);
        pthread_rwlock_unlock(&f->executor.tables);
        request = fixture_request(f, 0, RING_OP_BARRIER, 0, 0, 0, 0);
        q = fixture_ring(f, 0, &request);
        status = fixture_wait(f, 0, q);
        assert_int_equal(ring_status_code(status), RMX_E_PEER_LOST);
        assert_int_equal(ring_status_rank(status), 3);
}

static void session_dies(void **state) {
        struct fixture *f = *state;
        uint32_t q[N], status;

        for (uint32_t r = 0; r < N - 1; r++) {
                struct ring_request request = fixture_request(f, r, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, 50000, 0);

                q[r] = fixture_ring(f, r, &request);
        }
        pthread_rwlock_wrlock(&f->executor.tables);
        session_detach(session_find(&f->executor, N));
        pthread_rwlock_unlock(&f->executor.tables);
        for (uint32_t r = 0; r < N - 1; r++) {
                status = fixture_wait(f, r, q[r]);
                assert_int_equal(ring_status_code(status), RMX_E_PEER_LOST);
                assert_int_equal(ring_status_rank(status), N - 1);
        }
}

static bool retire(struct fixture *f, uint64_t session, bool tell) {
        bool in_use;

        pthread_rwlock_wrlock(&f->executor.tables);
        in_use = session_buffer_retire(session_find(&f->executor, session), FIXTURE_BUFFER, tell);
        pthread_rwlock_unlock(&f->executor.tables);
        executor_tidy(&f->executor);
        return in_use;
}

/* How often this process maps a rank's buffer, the test's own mapping included. */
static uint32_t mappings(const struct fixture *f, uint32_t rank) {
        unsigned long inode, wanted;
        char line[512];
        struct stat st;
        uint32_t n = 0;
        FILE *file;

        assert_int_equal(fstat(f->ranks[rank].buffer_fd, &st), 0);
        wanted = (unsigned long)st.st_ino;
        file = fopen("/proc/self/maps", "re");
        assert_non_null(file);
        while (fgets(line, sizeof(line), file))
                n += strstr(line, "/memfd:") && sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1 && inode == wanted;
        fclose(file);
        return n;
}

static void await_attention(struct fixture *f) {
        struct pollfd p = {.fd = f->executor.attention_fd, .events = POLLIN};
        uint64_t value;

        assert_int_equal(poll(&p, 1, 20000), 1);
        assert_int_equal(read(f->executor.attention_fd, &value, sizeof(value)), sizeof(value));
}

/* The client frees a buffer that a request in flight uses: the request still ends, and only then the memory is
 * unmapped, which is told. */
static void retire_in_use(void **state) {
        struct fixture *f = *state;
        struct ring_request request;
        uint32_t q[N], id;
        uint64_t session;
        bool tell;

        assert_int_equal(mappings(f, 0), 2);
        fill(f, 50000);
        for (uint32_t r = 0; r < N; r++) {
                request = fixture_request(f, r, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, 50000, 0);
                if (r == N - 1) {
                        assert_true(retire(f, 1, false));
                        assert_true(retire(f, 1, true)); /* said again */
                        assert_false(session_buffer_released(&f->executor, &session, &id, &tell));
                        assert_int_equal(mappings(f, 0), 2);
                }
                q[r] = fixture_ring(f, r, &request);
                if (r < N - 1) /* until it is latched: the ring's next word moves on */
                        while (!ring_sequence_before(
                                q[r], atomic_load(&((struct ring_executor_header *)f->ranks[r].executor_area)->next)))
                                sched_yield();
        }
        for (uint32_t r = 0; r < N; r++)
                assert_int_equal(ring_status_code(fixture_wait(f, r, q[r])), RMX_OK);
        check_sum(f, 50000);
        await_attention(f);
        assert_true(session_buffer_released(&f->executor, &session, &id, &tell));
        assert_int_equal(session, 1);
        assert_int_equal(id, FIXTURE_BUFFER);
        assert_true(tell);
        assert_int_equal(mappings(f, 0), 1);
        assert_false(session_buffer_released(&f->executor, &session, &id, &tell));
        assert_false(retire(f, 1, true)); /* it is gone */
        assert_int_equal(mappings(f, 1), 2);
        assert_false(retire(f, 2, true)); /* idle: unmapped at once, nothing is told */
        assert_int_equal(mappings(f, 1), 1);
        assert_false(session_buffer_released(&f->executor, &session, &id, &tell));
}

/* A number that was given out again while the memory behind it is still used: told once, when all of it is gone. */
static void retire_twice(void **state) {
        struct fixture *f = *state;
        uint32_t q[2], id, n_told = 0;
        uint64_t session;
        bool tell;

        for (uint32_t i = 0; i < 2; i++) {
                struct ring_request request = fixture_request(f, 0, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, 64, 0);

                q[i] = fixture_ring(f, 0, &request);
                while (!ring_sequence_before(
                        q[i], atomic_load(&((struct ring_executor_header *)f->ranks[0].executor_area)->next)))
                        sched_yield();
                assert_true(retire(f, 1, true));
                pthread_rwlock_wrlock(&f->executor.tables);
                assert_int_equal(session_buffer_import(session_find(&f->executor, 1), FIXTURE_BUFFER, f->buffer_bytes,
                                                       f->ranks[0].buffer_fd),
                                 0);
                pthread_rwlock_unlock(&f->executor.tables);
        }
        assert_int_equal(mappings(f, 0), 4);
        pthread_rwlock_wrlock(&f->executor.tables);
        comm_fail(comm_find(&f->executor, FIXTURE_COMM), ring_status(RMX_E_ABORTED, -1), "enough");
        pthread_rwlock_unlock(&f->executor.tables);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(ring_status_code(fixture_wait(f, 0, q[i])), RMX_E_ABORTED);
                assert_true(session_buffer_released(&f->executor, &session, &id, &tell));
                assert_int_equal(session, 1);
                n_told += tell;
        }
        assert_int_equal(n_told, 1);
        assert_int_equal(mappings(f, 0), 2); /* the third import is in order */
}

/* With its session a buffer in use goes at once: nobody waits for it, and nothing is told. */
static void retire_and_die(void **state) {
        struct fixture *f = *state;
        struct ring_request request = fixture_request(f, 0, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, 64, 0);
        uint32_t q = fixture_ring(f, 0, &request), id;
        uint64_t session;
        bool tell;

        while (!ring_sequence_before(q, atomic_load(&((struct ring_executor_header *)f->ranks[0].executor_area)->next)))
                sched_yield();
        assert_true(retire(f, 1, true));
        pthread_rwlock_wrlock(&f->executor.tables);
        session_detach(session_find(&f->executor, 1));
        pthread_rwlock_unlock(&f->executor.tables);
        executor_tidy(&f->executor);
        assert_int_equal(mappings(f, 0), 1);
        assert_false(session_buffer_released(&f->executor, &session, &id, &tell));
}

/* ---- stalls ------------------------------------------------------------------------------------------------------ */
static int stall_kept(void *userdata, const Railmux__Executor__Message *message) {
        uint32_t *n = userdata;

        assert_int_equal(message->body_case, RAILMUX__EXECUTOR__MESSAGE__BODY_STALL);
        assert_int_equal(message->stall->comm, FIXTURE_COMM);
        assert_int_equal(message->stall->n_missing_ranks, message->stall->operation == RING_OP_SEND ? 1 : N - 1);
        ++*n;
        return 0;
}

/* What waits is told once, and once more to a railmuxd that may have begun anew. */
static void test_stalls(void **state) {
        struct fixture *f = *state;
        const struct ring_group_entry send = {.operation = RING_OP_SEND,
                                              .peer = 1,
                                              .sequence = 1,
                                              .buffer = FIXTURE_BUFFER,
                                              .count = 4,
                                              .type = RMX_INT32};
        uint32_t n = 0, q[N], first = 0;

        f->executor.stall_ns = 0;
        for (uint32_t kind = 0; kind < 2; kind++) {
                if (kind == 0) {
                        struct ring_request request =
                                fixture_request(f, 0, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, 4, 0);

                        first = fixture_ring(f, 0, &request);
                } else {
                        first = fixture_ring_single(f, 0, &send);
                }
                fixture_wait_entered(f, 0, first);
                for (uint32_t again = 1; again < 3; again++) {
                        for (uint32_t i = 0; i < 3; i++)
                                assert_int_equal(report_stalls(&f->executor, stall_kept, &n), 0);
                        assert_int_equal(n, 2 * kind + again);
                        if (again == 1)
                                report_stalls_again(&f->executor);
                }
                if (kind)
                        break;
                for (uint32_t r = 1; r < N; r++) {
                        struct ring_request request =
                                fixture_request(f, r, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, 4, 0);

                        q[r] = fixture_ring(f, r, &request);
                }
                for (uint32_t r = 0; r < N; r++)
                        assert_int_equal(ring_status_code(fixture_wait(f, r, r ? q[r] : first)), RMX_OK);
        }
}

int main(void) {
#define SERVE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                SERVE_TEST(test_stalls),       SERVE_TEST(sizes),
                SERVE_TEST(many_in_flight),    SERVE_TEST(mismatch),
                SERVE_TEST(own_line_only),     SERVE_TEST(flags),
                SERVE_TEST(beyond_buffer),     SERVE_TEST(overflow),
                SERVE_TEST(huge_offset),       SERVE_TEST(wrong_root),
                SERVE_TEST(unknown_operation), SERVE_TEST(future_epoch),
                SERVE_TEST(rank_leaves),       SERVE_TEST(session_dies),
                SERVE_TEST(retire_in_use),     SERVE_TEST(retire_twice),
                SERVE_TEST(retire_and_die),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
