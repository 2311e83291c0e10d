/* SPDX-License-Identifier: MIT */
/* Groups: what they do, in which order, their rules and limits. What fails inside is in test_group_failure.c. */
#include <stdlib.h>
#include <string.h>

#include "client/comm.h"
#include "proto/session.pb-c.h"
#include "tests/client/crew.h"

#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

/* Everybody sends to everybody, itself included, with another count for each pair; half of it in ordinary memory. */
static int32_t value(uint32_t from, uint32_t to, size_t i) {
        return (int32_t)(from * 10000 + to * 100 + i);
}

#define PIECE 20u

static int exchange_once(struct crew *crew, uint32_t rank, int32_t *shared) {
        struct rmx_comm *comm = crew->comm[rank];
        int32_t in[FAKE_RANKS_MAX * PIECE], own[FAKE_RANKS_MAX * PIECE];
        int r;

        memset(own, 0xff, sizeof(own));
        memset(shared, 0xff, FAKE_RANKS_MAX * PIECE * sizeof(*shared));
        r = rmx_group_start();
        for (uint32_t k = 0; k < crew->n && !r; k++) {
                uint32_t peer = rank % 2 ? k : crew->n - 1 - k; /* orders need not agree */
                int32_t *out = peer % 2 ? own : shared;

                for (size_t i = 0; i < PIECE; i++)
                        in[peer * PIECE + i] = value(rank, peer, i);
                if (rank % 2)
                        r = rmx_send(comm, in + peer * PIECE, (rank + peer) % PIECE, RMX_INT32, peer, NULL);
                if (!r)
                        r = rmx_recv(comm, out + peer * PIECE, (rank + peer) % PIECE, RMX_INT32, peer, NULL);
                if (!r && !(rank % 2))
                        r = rmx_send(comm, in + peer * PIECE, (rank + peer) % PIECE, RMX_INT32, peer, NULL);
        }
        if (r)
                return r;
        r = rmx_group_end();
        for (uint32_t peer = 0; peer < crew->n && !r; peer++) {
                const int32_t *out = peer % 2 ? own : shared;

                for (size_t i = 0; i < PIECE; i++) {
                        if (out[peer * PIECE + i] != (i < (rank + peer) % PIECE ? value(peer, rank, i) : -1))
                                return -1;
                }
        }
        return r;
}

static int exchange(struct crew *crew, uint32_t rank) {
        void *shared;
        int r;

        r = rmx_mem_alloc(crew->session, 4096, &shared);
        for (int round = 0; round < 20 && !r; round++)
                r = exchange_once(crew, rank, shared);
        return r;
}

static void test_exchange(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 6, 64);
        crew_run(&crew, exchange);
        for (uint32_t i = 0; i < crew.n; i++)
                assert_int_equal(crew.result[i], RMX_OK);
        crew_stop(&crew);
}

/* Several ranks of one process in one thread: only a group can do that with blocking calls. Inner ends do nothing. */
static void test_nested(void **state) {
        int32_t x[3] = {1, 2, 3}, y[3] = {0}, all[3][3];
        struct crew crew;

        (void)state;
        crew_start(&crew, 3, 64);
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t rank = 0; rank < 3; rank++) {
                assert_int_equal(rmx_group_start(), RMX_OK);
                assert_int_equal(rmx_all_reduce(crew.comm[rank], &x[rank], &y[rank], 1, RMX_INT32, RMX_SUM, NULL),
                                 RMX_OK);
                assert_int_equal(rmx_group_start(), RMX_OK);
                assert_int_equal(rmx_all_gather(crew.comm[rank], &x[rank], all[rank], 1, RMX_INT32, NULL), RMX_OK);
                assert_int_equal(rmx_group_end(), RMX_OK);
                assert_int_equal(rmx_group_end(), RMX_OK);
        }
        assert_int_equal(y[0], 0);
        x[2] = 30; /* memory is read at the end */
        assert_int_equal(rmx_group_end(), RMX_OK);
        for (uint32_t rank = 0; rank < 3; rank++) {
                assert_int_equal(y[rank], 33);
                assert_memory_equal(all[rank], ((int32_t[]){1, 2, 30}), sizeof(all[rank]));
        }
        crew_stop(&crew);
}

/* A group over two communicators and all kinds of calls, and calls that are no part of it. */
static void test_mixed(void **state) {
        const size_t one[2] = {1, 1}, at[2] = {0, 1};
        struct rmx_comm *other = NULL;
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 1};
        int32_t x[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}}, y[2][4] = {{0}}, z[2][2] = {{0}}, w = 9;
        size_t counts[2];
        struct crew crew;
        void *shared;

        (void)state;
        crew_start(&crew, 2, 64);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &other), RMX_OK);
        fake_forget(&crew.fake);
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t rank = 0; rank < 2; rank++) {
                memcpy(counts, one, sizeof(one));
                assert_int_equal(rmx_recv(crew.comm[rank], &y[rank][2], 2, RMX_INT32, 1 - rank, NULL), RMX_OK);
                assert_int_equal(
                        rmx_all_to_all_v(crew.comm[rank], x[rank], counts, at, y[rank], counts, at, RMX_INT32, NULL),
                        RMX_OK);
                memset(counts, 0xff, sizeof(counts)); /* was copied */
                assert_int_equal(rmx_send(other, &x[rank][3], 1, RMX_INT32, 0, NULL), RMX_OK);
                assert_int_equal(rmx_recv(other, &z[rank][0], 1, RMX_INT32, 0, NULL), RMX_OK);
                assert_int_equal(rmx_send(crew.comm[rank], &x[rank][0], 2, RMX_INT32, 1 - rank, NULL), RMX_OK);
                assert_int_equal(rmx_all_reduce(other, &w, &z[rank][1], 1, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        }
        assert_int_equal(rmx_mem_alloc(crew.session, 100, &shared), RMX_OK);
        assert_int_equal(rmx_mem_free(crew.session, shared), RMX_OK);
        assert_int_equal(rmx_comm_error(other), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_memory_equal(y[0], ((int32_t[]){1, 5, 5, 6}), sizeof(y[0]));
        assert_memory_equal(y[1], ((int32_t[]){2, 6, 1, 2}), sizeof(y[1]));
        assert_memory_equal(z[0], ((int32_t[]){4, 9}), sizeof(z[0]));
        assert_memory_equal(z[1], ((int32_t[]){8, 9}), sizeof(z[1]));
        /* Two lines of each rank, and of the other comm two reductions and one of sends and receives. */
        assert_int_equal(fake_lines(&crew.fake), 7);
        assert_int_equal(rmx_comm_destroy(other), RMX_OK);
        crew_stop(&crew);
}

static void test_rules(void **state) {
        struct rmx_request request, untouched;
        struct rmx_comm *comm = NULL;
        struct crew crew;
        int32_t x = 1;
        int done = -1;

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(rmx_group_end(), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_group_end: this thread has no group; rmx_group_start comes first");
        assert_int_equal(rmx_group_end_start(&request), RMX_E_INVALID);
        assert_error_says("rmx_group_end_start: this thread has no group");
        /* A group of nothing. */
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_group_end_start(&request), RMX_OK);
        assert_int_equal(rmx_test(&request, &done), RMX_OK);
        assert_int_equal(done, 1);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        /* What cannot be in one spoils nothing but says so at once, except a _start call. */
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, NULL, &comm), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_comm_create: not possible inside a group; call rmx_group_end first");
        assert_int_equal(rmx_comm_split(crew.comm[0], 0, 0, NULL, &comm), RMX_E_INVALID);
        assert_error_says("rmx_comm_split: not possible inside a group");
        assert_int_equal(rmx_comm_destroy(crew.comm[0]), RMX_E_INVALID);
        assert_error_says("rmx_comm_destroy: not possible inside a group");
        assert_int_equal(rmx_all_reduce(crew.comm[0], &x, &x, 1, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(rmx_group_end_start(NULL), RMX_E_INVALID);
        assert_error_says("ret_request is NULL");
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_group_end_start(&request), RMX_E_INVALID);
        assert_error_says("this is an inner group; end it with rmx_group_end");
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        /* A _start call. */
        memset(&untouched, 0x5a, sizeof(untouched));
        request = untouched;
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &request), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(),
                            "rmx_barrier_start: not possible inside a group; call rmx_group_end first");
        assert_memory_equal(&request, &untouched, sizeof(request));
        assert_int_equal(rmx_group_end(), RMX_E_INVALID);
        assert_error_says("rmx_barrier_start: not possible inside a group");
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
        crew_stop(&crew);
}

/* A thread's group is its own. */
static int group_or_not(struct crew *crew, uint32_t rank) {
        int r = 0;

        for (int round = 0; round < 50 && !r; round++) {
                int32_t in[2] = {(int32_t)rank, round}, out[2] = {-1, -1};

                if (rank % 2) {
                        r = rmx_all_reduce(crew->comm[rank], in, out, 2, RMX_INT32, RMX_SUM, NULL);
                        if (!r)
                                r = rmx_barrier(crew->comm[rank], NULL);
                } else {
                        r = rmx_group_start();
                        if (!r)
                                r = rmx_all_reduce(crew->comm[rank], in, out, 2, RMX_INT32, RMX_SUM, NULL);
                        if (!r)
                                r = rmx_barrier(crew->comm[rank], NULL);
                        if (!r && out[0] != -1)
                                return -1;
                        if (!r)
                                r = rmx_group_end();
                }
                if (!r && (out[0] != 6 || out[1] != 4 * round))
                        return -2;
        }
        return r;
}

static void test_threads(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 4, 64);
        crew_run(&crew, group_or_not);
        for (uint32_t i = 0; i < crew.n; i++)
                assert_int_equal(crew.result[i], RMX_OK);
        crew_stop(&crew);
}

/* Two rings, groups in opposite orders from several threads: they are locked in one order. */
struct twins {
        struct crew *crew;
        struct rmx_comm *comm[2];
        int result;
};

static void *twins_main(void *userdata) {
        struct twins *t = userdata;

        for (int i = 0; i < 200 && !t->result; i++) {
                int32_t x[2] = {1, 2};

                t->result = rmx_group_start();
                for (int k = 0; k < 2 && !t->result; k++)
                        t->result = rmx_all_reduce(t->comm[k], &x[k], &x[k], 1, RMX_INT32, RMX_SUM, NULL);
                if (!t->result)
                        t->result = rmx_group_end();
        }
        return NULL;
}

static void test_two_rings(void **state) {
        struct twins twins[4];
        pthread_t thread[4];
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 8);
        for (int i = 0; i < 4; i++) {
                twins[i] = (struct twins){.crew = &crew};
                for (int k = 0; k < 2; k++) {
                        struct rmx_comm_options options = {.size = sizeof(options), .gpu = (i + k) % 2};

                        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
                        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &twins[i].comm[k]),
                                         RMX_OK);
                }
        }
        for (int i = 0; i < 4; i++)
                must(!pthread_create(&thread[i], NULL, twins_main, &twins[i]));
        for (int i = 0; i < 4; i++) {
                pthread_join(thread[i], NULL);
                assert_int_equal(twins[i].result, RMX_OK);
                for (int k = 0; k < 2; k++)
                        assert_int_equal(rmx_comm_destroy(twins[i].comm[k]), RMX_OK);
        }
        crew_stop(&crew);
}

static void record_barriers(struct crew *crew, uint32_t n) {
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t i = 0; i < n; i++)
                assert_int_equal(rmx_barrier(crew->comm[0], NULL), RMX_OK);
}

static void record_pairs(struct rmx_comm *comm, uint32_t n) {
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(rmx_send(comm, NULL, 0, RMX_INT8, 0, NULL), RMX_OK);
                assert_int_equal(rmx_recv(comm, NULL, 0, RMX_INT8, 0, NULL), RMX_OK);
        }
}

static void test_limits(void **state) {
        struct rmx_request request;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 8);
        record_barriers(&crew, 9);
        assert_int_equal(rmx_group_end(), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(),
                            "rmx_group_end: a group may have 8 requests on one GPU, this one has 9 on "
                            "GPU 0");
        record_barriers(&crew, 8);
        assert_int_equal(rmx_group_end(), RMX_OK);
        record_pairs(crew.comm[0], 257);
        assert_int_equal(rmx_group_end_start(&request), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(),
                            "rmx_group_end_start: 514 sends and receives on one communicator are more "
                            "than the 512 that a group may have");
        record_pairs(crew.comm[0], 256);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_send(crew.comm[0], NULL, 0, RMX_INT8, 0, NULL), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(),
                            "rmx_group_end: rank 0 has 1 sends to itself and 0 receives from itself; a "
                            "group must have as many of the one as of the other");
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
        crew_stop(&crew);
        /* A small argument space. */
        crew_start_with(&crew, 1, 64, 4096);
        record_pairs(crew.comm[0], 51);
        assert_int_equal(rmx_group_end(), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_group_end: 102 sends and receives on one communicator need 4080 "
                                              "bytes for arguments; the daemon gives 4032");
        record_pairs(crew.comm[0], 50);
        assert_int_equal(rmx_group_end(), RMX_OK);
        crew_stop(&crew);
}

/* Without room for all of it nothing of it is issued, and it can be tried again. */
static void test_busy(void **state) {
        struct rmx_request request[3], group;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 4);
        for (int i = 0; i < 3; i++)
                assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &request[i]), RMX_OK);
        (void)fake_line(&crew.fake, 2);
        for (int round = 0; round < 2; round++) {
                record_barriers(&crew, 2);
                assert_int_equal(round ? rmx_group_end() : rmx_group_end_start(&group), RMX_E_BUSY);
                assert_error_says("all 4 places for requests on GPU 0 are taken");
        }
        assert_int_equal(crew.comm[0]->last_sequence, 3);
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK); /* there is one place */
        assert_int_equal(rmx_wait(&request[0], NULL), RMX_OK);
        for (int i = 1; i < 3; i++)
                assert_int_equal(rmx_wait(&request[i], NULL), RMX_OK);
        record_barriers(&crew, 2);
        assert_int_equal(rmx_group_end_start(&group), RMX_OK);
        assert_int_equal(rmx_wait(&group, NULL), RMX_OK);
        crew_stop(&crew);
        /* The same with the argument space: the first block of the group is given back. */
        crew_start_with(&crew, 1, 16, 4096);
        record_pairs(crew.comm[0], 40); /* 3200 bytes */
        assert_int_equal(rmx_group_end_start(&request[0]), RMX_OK);
        for (int round = 0; round < 3; round++) {
                const int32_t factor = 1;
                uint32_t redop;

                assert_int_equal(
                        rmx_redop_create_premul_sum(crew.comm[0], &factor, RMX_INT32, RMX_SCALAR_IMMEDIATE, &redop),
                        RMX_OK);
                record_pairs(crew.comm[0], 10); /* 800 bytes: 13 units are free */
                assert_int_equal(rmx_all_reduce(crew.comm[0], NULL, NULL, 0, RMX_INT32, redop, NULL), RMX_OK);
                assert_int_equal(rmx_group_end_start(&group), RMX_E_BUSY);
                assert_error_says("the 4032 bytes for arguments on GPU 0 are taken");
        }
        assert_int_equal(rmx_wait(&request[0], NULL), RMX_OK);
        record_pairs(crew.comm[0], 50);
        assert_int_equal(rmx_group_end(), RMX_OK);
        crew_stop(&crew);
}

/* One ring of two has no room: in whichever order the group names them, the other one gets nothing. */
static void test_busy_elsewhere(void **state) {
        struct rmx_request request[4];
        struct rmx_comm *comm[2];
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 4);
        for (int i = 0; i < 2; i++) {
                struct rmx_comm_options options = {.size = sizeof(options), .gpu = i};

                assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
                assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &comm[i]), RMX_OK);
        }
        for (int full = 0; full < 2; full++) {
                for (int i = 0; i < 4; i++)
                        assert_int_equal(rmx_barrier_start(comm[full], NULL, &request[i]), RMX_OK);
                for (int first = 0; first < 2; first++) {
                        uint32_t before = comm[1 - full]->last_sequence;

                        assert_int_equal(rmx_group_start(), RMX_OK);
                        assert_int_equal(rmx_barrier(comm[first], NULL), RMX_OK);
                        assert_int_equal(rmx_barrier(comm[1 - first], NULL), RMX_OK);
                        assert_int_equal(rmx_group_end(), RMX_E_BUSY);
                        assert_error_says(full ? "on GPU 1 are taken" : "on GPU 0 are taken");
                        assert_int_equal(comm[1 - full]->last_sequence, before);
                }
                for (int i = 0; i < 4; i++)
                        assert_int_equal(rmx_wait(&request[i], NULL), RMX_OK);
        }
        for (int i = 0; i < 2; i++)
                assert_int_equal(rmx_comm_destroy(comm[i]), RMX_OK);
        crew_stop(&crew);
}

/* The regions of a group come back, and the next one asks for none. */
static void test_regions(void **state) {
        int32_t x[3] = {1, 2, 3}, y[3] = {0};
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        for (int round = 0; round < 10; round++) {
                assert_int_equal(rmx_group_start(), RMX_OK);
                for (int i = 0; i < 3; i++) {
                        x[i] = round * 10 + i;
                        assert_int_equal(rmx_send(crew.comm[0], &x[i], 1, RMX_INT32, 0, NULL), RMX_OK);
                        assert_int_equal(rmx_recv(crew.comm[0], &y[2 - i], 1, RMX_INT32, 0, NULL), RMX_OK);
                }
                assert_int_equal(rmx_group_end(), RMX_OK);
                for (int i = 0; i < 3; i++)
                        assert_int_equal(y[2 - i], round * 10 + i);
        }
        assert_int_equal(fake_calls(&crew.fake, RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE), 1);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_exchange),       cmocka_unit_test(test_nested),  cmocka_unit_test(test_mixed),
                cmocka_unit_test(test_rules),          cmocka_unit_test(test_threads), cmocka_unit_test(test_two_rings),
                cmocka_unit_test(test_limits),         cmocka_unit_test(test_busy),    cmocka_unit_test(test_regions),
                cmocka_unit_test(test_busy_elsewhere),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
