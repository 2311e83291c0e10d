/* SPDX-License-Identifier: MIT */
/* The collectives with one count, their arguments, and requests in flight. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/session.h"
#include "proto/session.pb-c.h"
#include "tests/client/crew.h"

#define BODY(name)              RAILMUX__SESSION__MESSAGE__BODY_##name
#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

#define RANKS 4u
#define COUNT 1000u

enum { SHARED_IN = 1, SHARED_OUT = 2, IN_PLACE = 4, VARIANTS = 8 };

/* Memory of one rank: ordinary or shared. */
static int32_t *memory_new(struct crew *crew, bool shared, size_t count) {
        void *p = NULL;

        if (shared)
                assert_int_equal(rmx_mem_alloc(crew->session, count * sizeof(int32_t), &p), RMX_OK);
        else
                p = calloc(count, sizeof(int32_t));
        assert_non_null(p);
        return p;
}

static void memory_free(struct crew *crew, bool shared, void *p) {
        if (shared)
                assert_int_equal(rmx_mem_free(crew->session, p), RMX_OK);
        else
                free(p);
}

static int32_t value(uint32_t rank, size_t i) {
        return (int32_t)(rank * 100000 + i * 7 + 1);
}

static int32_t total(size_t i) {
        int32_t sum = 0;

        for (uint32_t rank = 0; rank < RANKS; rank++)
                sum += value(rank, i);
        return sum;
}

enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, GATHER, SCATTER, ALL_TO_ALL, OPERATIONS };

#define ROOT 2u

static int start(struct crew *crew, int op, uint32_t rank, const int32_t *in, int32_t *out,
                 struct rmx_request *ret_request) {
        struct rmx_comm *comm = crew->comm[rank];

        switch (op) {
        case ALL_REDUCE:
                return rmx_all_reduce_start(comm, in, out, COUNT, RMX_INT32, RMX_SUM, NULL, ret_request);
        case REDUCE:
                return rmx_reduce_start(comm, in, out, COUNT, RMX_INT32, RMX_SUM, ROOT, NULL, ret_request);
        case BROADCAST:
                return rmx_broadcast_start(comm, in, out, COUNT, RMX_INT32, ROOT, NULL, ret_request);
        case ALL_GATHER:
                return rmx_all_gather_start(comm, in, out, COUNT, RMX_INT32, NULL, ret_request);
        case REDUCE_SCATTER:
                return rmx_reduce_scatter_start(comm, in, out, COUNT, RMX_INT32, RMX_SUM, NULL, ret_request);
        case GATHER:
                return rmx_gather_start(comm, in, out, COUNT, RMX_INT32, ROOT, NULL, ret_request);
        case SCATTER:
                return rmx_scatter_start(comm, in, out, COUNT, RMX_INT32, ROOT, NULL, ret_request);
        default:
                return rmx_all_to_all_start(comm, in, out, COUNT, RMX_INT32, NULL, ret_request);
        }
}

/* Elements that a rank gives and gets. */
static size_t in_count(int op, uint32_t rank) {
        switch (op) {
        case BROADCAST:
                return rank == ROOT ? COUNT : 0;
        case SCATTER:
                return rank == ROOT ? RANKS * COUNT : 0;
        case REDUCE_SCATTER:
        case ALL_TO_ALL:
                return RANKS * COUNT;
        default:
                return COUNT;
        }
}

static size_t out_count(int op, uint32_t rank) {
        switch (op) {
        case REDUCE:
                return rank == ROOT ? COUNT : 0;
        case GATHER:
                return rank == ROOT ? RANKS * COUNT : 0;
        case ALL_GATHER:
        case ALL_TO_ALL:
                return RANKS * COUNT;
        default:
                return COUNT;
        }
}

static int32_t expected(int op, uint32_t rank, size_t i) {
        switch (op) {
        case ALL_REDUCE:
        case REDUCE:
                return total(i);
        case ALL_GATHER:
        case GATHER:
                return value((uint32_t)(i / COUNT), i % COUNT);
        case REDUCE_SCATTER:
                return total(rank * COUNT + i);
        case SCATTER:
                return value(ROOT, rank * COUNT + i);
        case ALL_TO_ALL:
                return value((uint32_t)(i / COUNT), rank * COUNT + i % COUNT);
        default:
                return value(ROOT, i);
        }
}

/* Where a rank's input and output lie in memory that holds both. */
static size_t in_at(int op, uint32_t rank) {
        return op == ALL_GATHER || (op == GATHER && rank == ROOT) ? rank * COUNT : 0;
}

static size_t out_at(int op, uint32_t rank) {
        return op == REDUCE_SCATTER || (op == SCATTER && rank == ROOT) ? rank * COUNT : 0;
}

/* What a rank does not have is NULL. In place, all memory around the output must stay as it was. */
static void check_operation(struct crew *crew, int op, unsigned int variant) {
        int32_t *in[RANKS], *out[RANKS], *in_memory[RANKS], *out_memory[RANKS];
        struct rmx_request request[RANKS];

        for (uint32_t rank = 0; rank < RANKS; rank++) {
                size_t n_in = in_count(op, rank), n_out = out_count(op, rank);

                in_memory[rank] = memory_new(crew, variant & SHARED_IN, RANKS * COUNT);
                out_memory[rank] =
                        variant & IN_PLACE ? in_memory[rank] : memory_new(crew, variant & SHARED_OUT, RANKS * COUNT);
                for (size_t i = 0; i < RANKS * COUNT; i++)
                        in_memory[rank][i] = out_memory[rank][i] = -1;
                in[rank] = n_in ? in_memory[rank] + (variant & IN_PLACE ? in_at(op, rank) : 0) : NULL;
                out[rank] = n_out ? out_memory[rank] + (variant & IN_PLACE ? out_at(op, rank) : 0) : NULL;
                for (size_t i = 0; i < n_in; i++)
                        in[rank][i] = value(rank, i);
        }
        for (uint32_t rank = 0; rank < RANKS; rank++)
                assert_int_equal(start(crew, op, rank, in[rank], out[rank], &request[rank]), RMX_OK);
        for (uint32_t rank = RANKS; rank-- > 0;)
                assert_int_equal(rmx_wait(&request[rank], NULL), RMX_OK);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
                size_t n_in = in_count(op, rank), n_out = out_count(op, rank);

                for (size_t i = 0; i < n_out; i++)
                        assert_int_equal(out[rank][i], expected(op, rank, i));
                for (size_t i = 0; i < RANKS * COUNT; i++) {
                        const int32_t *p = &in_memory[rank][i], *q = &out_memory[rank][i];

                        if (!n_out || p < out[rank] || p >= out[rank] + n_out)
                                assert_int_equal(*p, n_in && p >= in[rank] && p < in[rank] + n_in
                                                             ? value(rank, (size_t)(p - in[rank]))
                                                             : -1);
                        if (!(variant & IN_PLACE) && i >= n_out)
                                assert_int_equal(*q, -1);
                }
        }
        for (uint32_t rank = 0; rank < RANKS; rank++) {
                memory_free(crew, variant & SHARED_IN, in_memory[rank]);
                if (!(variant & IN_PLACE))
                        memory_free(crew, variant & SHARED_OUT, out_memory[rank]);
        }
}

static void test_operations(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, RANKS, 64);
        for (int op = 0; op < OPERATIONS; op++) {
                for (unsigned int variant = 0; variant < VARIANTS; variant++) {
                        if (!(variant & IN_PLACE) || op != ALL_TO_ALL)
                                check_operation(&crew, op, variant);
                }
        }
        crew_stop(&crew);
}

static int blocking(struct crew *crew, uint32_t rank) {
        struct rmx_comm *comm = crew->comm[rank];
        int r = 0;

        for (int round = 1; round <= 50 && !r; round++) {
                int32_t in[RANKS] = {round, (int32_t)rank, 3, 4}, out[RANKS * RANKS] = {0};

                r = rmx_barrier(comm, NULL);
                if (!r)
                        r = rmx_all_reduce(comm, in, out, 2, RMX_INT32, RMX_SUM, NULL);
                if (!r && (out[0] != round * (int)RANKS || out[1] != 0 + 1 + 2 + 3))
                        return -1;
                if (!r)
                        r = rmx_all_gather(comm, in, out, RANKS, RMX_INT32, NULL);
                if (!r && (out[4] != round || out[5] != 1 || out[13] != 3))
                        return -2;
                if (!r)
                        r = rmx_reduce_scatter(comm, in, out, 1, RMX_INT32, RMX_SUM, NULL);
                if (!r && out[0] != (int[]){round * 4, 6, 12, 16}[rank])
                        return -3;
                if (!r)
                        r = rmx_broadcast(comm, in, out, 2, RMX_INT32, 3, NULL);
                if (!r && (out[0] != round || out[1] != 3))
                        return -4;
                if (!r)
                        r = rmx_reduce(comm, in, out + 4, 2, RMX_INT32, RMX_SUM, 1, NULL);
                if (!r && rank == 1 && (out[4] != round * (int)RANKS || out[5] != 6))
                        return -5;
                if (!r)
                        r = rmx_gather(comm, in, out, 2, RMX_INT32, 0, NULL);
                if (!r && !rank && (out[2] != round || out[7] != 3))
                        return -6;
                if (!r)
                        r = rmx_scatter(comm, in, out, 1, RMX_INT32, 3, NULL);
                if (!r && out[0] != (int[]){round, 3, 3, 4}[rank])
                        return -7;
                if (!r)
                        r = rmx_all_to_all(comm, in, out, 1, RMX_INT32, NULL);
                for (int i = 0; !r && i < (int)RANKS; i++) {
                        if (out[i] != (int[]){round, i, 3, 4}[rank])
                                return -8;
                }
        }
        return r;
}

static void test_blocking(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, RANKS, 64);
        crew_run(&crew, blocking);
        for (uint32_t rank = 0; rank < RANKS; rank++)
                assert_int_equal(crew.result[rank], RMX_OK);
        crew_stop(&crew);
}

/* Nothing to do is still a request: it takes a sequence and needs no memory. */
static int zero_counts(struct crew *crew, uint32_t rank) {
        struct rmx_comm *comm = crew->comm[rank];
        int r;

        r = rmx_all_reduce(comm, NULL, NULL, 0, RMX_FLOAT32, RMX_MAX, NULL);
        if (!r)
                r = rmx_all_gather(comm, NULL, NULL, 0, RMX_FLOAT8_E4M3, NULL);
        if (!r)
                r = rmx_reduce_scatter(comm, NULL, NULL, 0, RMX_INT64, RMX_MIN, NULL);
        if (!r)
                r = rmx_broadcast(comm, NULL, NULL, 0, RMX_INT8, 1, NULL);
        if (!r)
                r = rmx_reduce(comm, NULL, NULL, 0, RMX_FLOAT8_E5M2, RMX_AVG, 1, NULL);
        if (!r)
                r = rmx_gather(comm, NULL, NULL, 0, RMX_FLOAT16, 1, NULL);
        if (!r)
                r = rmx_scatter(comm, NULL, NULL, 0, RMX_BFLOAT16, 1, NULL);
        if (!r)
                r = rmx_all_to_all(comm, NULL, NULL, 0, RMX_FLOAT64, NULL);
        return r;
}

static void test_zero_counts(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, RANKS, 64);
        crew_run(&crew, zero_counts);
        for (uint32_t rank = 0; rank < RANKS; rank++)
                assert_int_equal(crew.result[rank], RMX_OK);
        assert_int_equal(rmx_comm_destroy(crew.comm[0]), RMX_OK);
        crew.comm[0] = NULL;
        assert_int_equal(crew.fake.last_sequence, 8);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 0);
        crew_stop(&crew);
}

static void test_arguments(void **state) {
        struct rmx_request request;
        struct rmx_comm *comm;
        int32_t x = 0, pair[3] = {0};
        struct crew crew;
        void *shared;

        (void)state;
        crew_start(&crew, 2, 64);
        comm = crew.comm[0];
        assert_int_equal(rmx_all_reduce(NULL, &x, &x, 1, RMX_INT32, RMX_SUM, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_reduce: comm is NULL");
        assert_int_equal(rmx_all_reduce(comm, &x, &x, 1, 99, RMX_SUM, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_reduce: type 99 is unknown; types are 0..11");
        assert_int_equal(rmx_reduce_scatter(comm, &x, &x, 1, RMX_INT32, 6, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_reduce_scatter: redop 6 is unknown; reductions are 0..4 and what "
                                              "rmx_redop_create_premul_sum gives");
        assert_int_equal(rmx_broadcast(comm, &x, &x, 1, RMX_INT32, 2, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_broadcast: root 2 is out of range; the communicator has ranks 0..1");
        assert_int_equal(rmx_all_reduce(comm, NULL, &x, 3, RMX_INT32, RMX_SUM, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_reduce: in is NULL with count 3");
        assert_int_equal(rmx_all_gather(comm, &x, NULL, 3, RMX_INT32, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_gather: out is NULL with count 3");
        assert_int_equal(rmx_broadcast(comm, NULL, &x, 1, RMX_INT32, 0, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_broadcast: in is NULL with count 1"); /* it is the root */
        assert_int_equal(rmx_all_reduce(comm, &x, &x, SIZE_MAX / 4 + 1, RMX_INT32, RMX_SUM, NULL), RMX_E_INVALID);
        assert_string_equal(
                rmx_last_error(),
                "rmx_all_reduce: count 4611686018427387904 is too large: 4-byte elements of 2 ranks overflow");
        assert_int_equal(rmx_all_gather(comm, &x, &x, SIZE_MAX / 8, RMX_INT32, NULL), RMX_E_INVALID);
        assert_int_equal(rmx_reduce_scatter(comm, &x, &x, SIZE_MAX / 8, RMX_INT32, RMX_SUM, NULL), RMX_E_INVALID);
        assert_int_equal(rmx_all_reduce(comm, &x, &x, 1, RMX_INT32, RMX_SUM, &x), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_reduce: stream must be NULL for host memory");
        assert_int_equal(rmx_barrier(comm, &x), RMX_E_INVALID);
        assert_int_equal(rmx_barrier_start(comm, NULL, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_barrier_start: ret_request is NULL");
        assert_int_equal(rmx_wait(NULL, NULL), RMX_E_INVALID);
        memset(&request, 0, sizeof(request));
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        assert_int_equal(rmx_test(&request, NULL), RMX_E_INVALID);
        assert_int_equal(rmx_reduce(comm, &x, &x, 1, RMX_INT32, RMX_SUM, 2, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_reduce: root 2 is out of range; the communicator has ranks 0..1");
        assert_int_equal(rmx_reduce(comm, &x, NULL, 1, RMX_INT32, RMX_SUM, 0, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_reduce: out is NULL with count 1"); /* it is the root */
        assert_int_equal(rmx_gather(comm, &x, NULL, 1, RMX_INT32, 0, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_gather: out is NULL with count 1");
        assert_int_equal(rmx_scatter(comm, NULL, &x, 1, RMX_INT32, 0, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_scatter: in is NULL with count 1");
        assert_int_equal(rmx_scatter(comm, &x, &x, SIZE_MAX / 8, RMX_INT32, 0, NULL), RMX_E_INVALID);
        assert_error_says("too large");
        assert_int_equal(rmx_all_to_all(comm, pair, pair, 1, RMX_INT32, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_to_all: in and out overlap; this operation cannot run in place");
        assert_int_equal(rmx_all_to_all(comm, pair, pair + 1, 1, RMX_INT32, NULL), RMX_E_INVALID);
        assert_error_says("overlap");
        assert_int_equal(rmx_mem_alloc(crew.session, 64, &shared), RMX_OK);
        assert_int_equal(rmx_all_reduce(comm, (char *)shared + 2, &x, 1, RMX_INT32, RMX_SUM, NULL), RMX_E_INVALID);
        assert_error_says("is not aligned to the 4 bytes of type 2");
        assert_error_says("rmx_all_reduce: in: ");
        /* None of all this rang: the first request has sequence 1, which the fake insists on. */
        assert_int_equal(rmx_barrier_start(comm, NULL, &request), RMX_OK);
        assert_int_equal(rmx_wait(&request, &x), RMX_E_INVALID);
        assert_int_equal(rmx_barrier(crew.comm[1], NULL), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        assert_int_equal(rmx_comm_error(comm), RMX_OK);
        assert_int_equal(rmx_comm_failed_rank(comm), -1);
        crew_stop(&crew);
}

/* Twenty requests of each rank in flight, in ordinary memory, waited for in a shuffled order by every means. */
static void test_in_flight(void **state) {
        enum { N = 20 };
        struct rmx_request request[2][N];
        int32_t data[2][N];
        struct crew crew;
        int done = -1;

        (void)state;
        crew_start(&crew, 2, 64);
        fake_pause(&crew.fake, true);
        for (int i = 0; i < N; i++) {
                for (uint32_t rank = 0; rank < 2; rank++) {
                        data[rank][i] = i + 1000 * (int)rank;
                        assert_int_equal(rmx_all_reduce_start(crew.comm[rank], &data[rank][i], &data[rank][i], 1,
                                                              RMX_INT32, RMX_SUM, NULL, &request[rank][i]),
                                         RMX_OK);
                }
        }
        assert_int_equal(rmx_test(&request[0][0], &done), RMX_OK);
        assert_int_equal(done, 0);
        assert_int_equal(rmx_wait_for(&request[0][0], 10), RMX_E_TIMEOUT);
        assert_error_says("not done within 10 ms");
        fake_pause(&crew.fake, false);
        for (int i = 0; i < N; i++) {
                int k = i * 7 % N;

                assert_int_equal(rmx_wait_for(&request[1][k], 60000), RMX_OK);
                assert_int_equal(data[1][k], 1000 + 2 * k);
                do
                        assert_int_equal(rmx_test(&request[0][k], &done), RMX_OK);
                while (!done);
                assert_int_equal(data[0][k], 1000 + 2 * k);
                data[0][k] = -1;
                assert_int_equal(rmx_wait(&request[0][k], NULL), RMX_E_INVALID); /* once only */
                assert_int_equal(data[0][k], -1);
        }
        crew_stop(&crew);
}

/* A copy of a request's storage does not let anyone wait twice, not even after its slot was used again. */
static void test_wait_twice(void **state) {
        struct rmx_request request, copy;
        struct crew crew;
        int done = -1;

        (void)state;
        crew_start(&crew, 1, 4);
        assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &request), RMX_OK);
        copy = request;
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        request = copy;
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        for (int i = 0; i < 5; i++)
                assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
        request = copy;
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        assert_error_says("waited for already");
        request = copy;
        assert_int_equal(rmx_test(&request, &done), RMX_E_INVALID);
        crew_stop(&crew);
}

static void test_ring_full(void **state) {
        struct rmx_request request[4], fifth;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 4);
        for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 4; i++)
                        assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &request[i]), RMX_OK);
                memset(&fifth, 0x5a, sizeof(fifth));
                assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &fifth), RMX_E_BUSY);
                assert_error_says("all 4 places for requests on GPU 0 are taken");
                assert_int_equal(((unsigned char *)&fifth)[0], 0x5a); /* outputs are written on success only */
                assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_E_BUSY);
                for (int i = 0; i < 4; i++)
                        assert_int_equal(rmx_wait(&request[i], NULL), RMX_OK);
        }
        crew_stop(&crew);
}

static void *slow_main(void *userdata) {
        return (void *)(intptr_t)rmx_barrier(userdata, NULL);
}

static void *busy_main(void *userdata) {
        for (int i = 0; i < 20; i++) {
                int r = rmx_barrier(userdata, NULL);

                if (r)
                        return (void *)(intptr_t)r;
        }
        return NULL;
}

/* A thread that sleeps long in one comm stops another comm when the ring has come round to its slot. The other's
 * blocking call waits for the slot and then goes on; only _start says RMX_E_BUSY. */
static void test_slot_of_sleeper(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *comm = NULL;
        struct rmx_request request;
        pthread_t slow, busy;
        struct crew crew;
        void *result;

        (void)state;
        crew_start(&crew, 2, 4);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &comm), RMX_OK);
        must(!pthread_create(&slow, NULL, slow_main, crew.comm[0]));
        /* Until the sleeper has rung, there is nothing in anybody's way. */
        for (bool rung = false; !rung;) {
                pthread_mutex_lock(&crew.fake.mutex);
                rung = crew.fake.sessions->rings[0].consumer.next != RING_FIRST_SEQUENCE;
                pthread_mutex_unlock(&crew.fake.mutex);
        }
        must(!pthread_create(&busy, NULL, busy_main, comm));
        for (bool full = false; !full;) {
                int r = rmx_barrier_start(comm, NULL, &request);

                full = r == RMX_E_BUSY;
                if (!full) {
                        assert_int_equal(r, RMX_OK);
                        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
                }
        }
        /* The sleeper's partner would have to ring here too, which is what cannot be; so the comm ends otherwise. */
        pthread_mutex_lock(&crew.fake.mutex);
        fake_comm_end(crew.fake.comms->next, ring_status(RMX_E_PEER_LOST, 1));
        pthread_mutex_unlock(&crew.fake.mutex);
        pthread_join(slow, &result);
        assert_int_equal((intptr_t)result, RMX_E_PEER_LOST);
        pthread_join(busy, &result);
        assert_null(result);
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        crew_stop(&crew);
}

struct blocked {
        struct rmx_comm *comm;
        _Atomic pid_t id;
        _Atomic bool done;
        int result;
};

static void *blocked_main(void *userdata) {
        struct blocked *blocked = userdata;

        blocked->id = gettid();
        blocked->result = rmx_barrier(blocked->comm, NULL);
        blocked->done = true;
        return NULL;
}

/* What another thread has started, and will wait for, a blocking call waits for; not the thread's own calls. */
static void test_slot_of_starter(void **state) {
        struct rmx_request request[4];
        struct blocked blocked = {0};
        struct crew crew;
        pthread_t thread;

        (void)state;
        crew_start(&crew, 1, 4);
        for (int i = 0; i < 4; i++)
                assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &request[i]), RMX_OK);
        blocked.comm = crew.comm[0];
        must(!pthread_create(&thread, NULL, blocked_main, &blocked));
        while (!blocked.done && !(blocked.id && thread_sleeps(blocked.id)))
                sched_yield();
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_E_BUSY);
        for (int i = 0; i < 4; i++)
                assert_int_equal(rmx_wait(&request[i], NULL), RMX_OK);
        pthread_join(thread, NULL);
        assert_int_equal(blocked.result, RMX_OK);
        crew_stop(&crew);
}

/* Nobody waits for them: the blocking call gives up. */
static void test_slot_of_nobody(void **state) {
        struct rmx_request request[4];
        struct blocked blocked = {0};
        struct crew crew;
        pthread_t thread;

        (void)state;
        crew_start(&crew, 1, 4);
        for (int i = 0; i < 4; i++)
                assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &request[i]), RMX_OK);
        blocked.comm = crew.comm[0];
        must(!pthread_create(&thread, NULL, blocked_main, &blocked));
        pthread_join(thread, NULL);
        assert_int_equal(blocked.result, RMX_E_BUSY);
        for (int i = 0; i < 4; i++)
                assert_int_equal(rmx_wait(&request[i], NULL), RMX_OK);
        crew_stop(&crew);
}

/* Epochs go out with later requests. */
static void test_epoch(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
        assert_int_equal(fake_last_epoch(&crew.fake), 1);
        fake_epoch_changed(&crew.fake, 5);
        assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_OK);
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
        assert_int_equal(fake_last_epoch(&crew.fake), 5);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_operations),      cmocka_unit_test(test_blocking),
                cmocka_unit_test(test_zero_counts),     cmocka_unit_test(test_arguments),
                cmocka_unit_test(test_in_flight),       cmocka_unit_test(test_wait_twice),
                cmocka_unit_test(test_ring_full),       cmocka_unit_test(test_slot_of_sleeper),
                cmocka_unit_test(test_slot_of_starter), cmocka_unit_test(test_slot_of_nobody),
                cmocka_unit_test(test_epoch),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
