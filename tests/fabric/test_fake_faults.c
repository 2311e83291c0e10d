/* SPDX-License-Identifier: MIT */
/* The faults of the fake adapters, and its work under threads. RAILMUX_SEED repeats a run. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cmocka_all.h"
#include "tests/fabric/fake_ends.h"
#include "util/clock.h"

static const struct fake_usage usual;
static uint64_t seed;

static void begin(struct fake_end ends[2], const struct fake_options *options) {
        fake_begin(options);
        memset(ends, 0, 2 * sizeof(*ends));
        ends[0].device = fake_device_add("fake_a0", "127.0.0.1");
        ends[1].device = fake_device_add("fake_b0", "127.0.0.2");
        fake_end_open(&ends[0], "fake_a0", &usual);
        fake_end_open(&ends[1], "fake_b0", &usual);
        fake_ends_connect(ends, &usual);
}

static void end(struct fake_end ends[2]) {
        fake_end_close(&ends[0]);
        fake_end_close(&ends[1]);
        fake_end();
}

static void send_ok(struct fake_end ends[2]) {
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 5000), 0);
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_SUCCESS);
        assert_int_equal(fake_end_wait(&ends[1]).byte_len, 5000);
        fake_end_receives(&ends[1], 1);
}

static enum ibv_wc_status send_status(struct fake_end ends[2]) {
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 5000), 0);
        return fake_end_wait(&ends[0]).status;
}

static void reconnect(struct fake_end ends[2]) {
        fake_end_disconnect(&ends[0]);
        fake_end_disconnect(&ends[1]);
        fake_ends_connect(ends, &usual);
}

static void test_port(void **state) {
        struct ibv_port_attr port;
        struct fake_end ends[2];

        (void)state;
        begin(ends, NULL);
        send_ok(ends);
        fake_port(ends[0].device, false, IBV_WC_LOC_QP_OP_ERR);
        fake_port(ends[0].device, false, IBV_WC_LOC_QP_OP_ERR); /* one event */
        assert_int_equal(fake_end_event(&ends[0]), IBV_EVENT_PORT_ERR);
        assert_int_equal(fake_verbs()->query_port(ends[0].context, 1, &port), 0);
        assert_int_equal(port.state, IBV_PORT_DOWN);
        assert_int_equal(send_status(ends), IBV_WC_LOC_QP_OP_ERR);
        assert_int_equal(fake_end_event(&ends[0]), IBV_EVENT_QP_LAST_WQE_REACHED);
        fake_port(ends[0].device, true, 0);
        assert_int_equal(fake_end_event(&ends[0]), IBV_EVENT_PORT_ACTIVE);
        reconnect(ends);
        send_ok(ends);
        fake_port(ends[0].device, false, 0);
        assert_int_equal(send_status(ends), IBV_WC_RETRY_EXC_ERR);
        fake_port(ends[0].device, true, 0);
        reconnect(ends);
        fake_port(ends[1].device, false, IBV_WC_LOC_QP_OP_ERR); /* the other's: no answer */
        assert_int_equal(send_status(ends), IBV_WC_RETRY_EXC_ERR);
        end(ends);
}

static void test_lose(void **state) {
        const struct fake_options slow = {.timeout_ms = 20000}, quick = {.timeout_ms = 20};
        struct fake_end ends[2];
        uint64_t start_ns;

        (void)state;
        begin(ends, &quick);
        fake_drop(ends[1].device, FAKE_LOSE);
        start_ns = clock_now_ns();
        assert_int_equal(send_status(ends), IBV_WC_RETRY_EXC_ERR);
        assert_true(clock_now_ns() - start_ns >= 20000000);
        end(ends);
        begin(ends, &slow);
        fake_drop(ends[0].device, FAKE_LOSE);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 5000), 0);
        fake_drop(ends[0].device, FAKE_CARRY); /* was sent again */
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_SUCCESS);
        assert_int_equal(fake_end_wait(&ends[1]).status, IBV_WC_SUCCESS);
        send_ok(ends);
        end(ends);
}

static void test_lose_answers(void **state) {
        const struct fake_options slow = {.timeout_ms = 20000};
        struct fake_counters counters;
        struct fake_end ends[2];

        (void)state;
        begin(ends, NULL);
        fake_drop(ends[0].device, FAKE_LOSE_ACKS);
        for (unsigned int i = 0; i < 3; i++)
                assert_int_equal(fake_end_send(&ends[0], &ends[1], i * 64, 64), 0);
        for (unsigned int i = 0; i < 3; i++)
                assert_int_equal(fake_end_wait(&ends[1]).byte_len, 64);
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_RETRY_EXC_ERR);
        for (unsigned int i = 0; i < 2; i++)
                assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_WR_FLUSH_ERR);
        fake_counters(&counters);
        assert_int_equal(counters.lost_answers, 3);
        end(ends);
        begin(ends, &slow);
        fake_drop(ends[0].device, FAKE_LOSE_ACKS);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 64), 0);
        assert_int_equal(fake_end_wait(&ends[1]).byte_len, 64);
        fake_drop(ends[0].device, FAKE_CARRY);
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_SUCCESS);
        send_ok(ends);
        end(ends);
}

/* Late: after the sender gave it up, and its memory has something else; not once the other end is dead. */
static void test_hold(void **state) {
        const struct fake_options slow = {.timeout_ms = 20000};
        struct fake_counters counters;
        struct fake_end ends[2];

        (void)state;
        for (unsigned int dead = 0; dead < 2; dead++) {
                begin(ends, NULL);
                send_ok(ends);
                fake_drop(ends[1].device, FAKE_HOLD);
                memset(ends[0].memory, 5, 100);
                assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 40), 0);
                assert_int_equal(fake_end_send(&ends[0], &ends[1], 40, 60), 0);
                assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_RETRY_EXC_ERR);
                assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_WR_FLUSH_ERR);
                memset(ends[0].memory, 6, 100);
                fake_end_disconnect(&ends[0]);
                if (dead)
                        fake_end_disconnect(&ends[1]);
                fake_drop(ends[1].device, FAKE_CARRY);
                if (!dead) {
                        assert_int_equal(fake_end_wait(&ends[1]).byte_len, 40);
                        assert_int_equal(fake_end_wait(&ends[1]).byte_len, 60);
                }
                if (!dead)
                        fake_end_disconnect(&ends[1]);
                fake_ends_connect(ends, &usual); /* what was held goes before */
                assert_int_equal(fake_end_send(&ends[0], &ends[1], 1000, 10), 0);
                assert_int_equal(fake_end_wait(&ends[1]).byte_len, 10);
                for (unsigned int i = 0; i < 100; i++)
                        assert_int_equal(ends[1].memory[i], dead ? 0 : 5);
                fake_counters(&counters);
                assert_int_equal(counters.held_arrived, dead ? 0 : 2);
                end(ends);
        }
        /* In time: as if nothing had been. */
        begin(ends, &slow);
        fake_drop(ends[0].device, FAKE_HOLD);
        for (unsigned int i = 0; i < 5; i++)
                assert_int_equal(fake_end_send(&ends[0], &ends[1], i, 3000), 0);
        fake_drop(ends[0].device, FAKE_CARRY);
        for (unsigned int i = 5; i < 10; i++)
                assert_int_equal(fake_end_send(&ends[0], &ends[1], i, 3000), 0);
        for (unsigned int i = 0; i < 10; i++) {
                struct ibv_wc wc = fake_end_wait(&ends[0]);

                assert_int_equal(wc.status, IBV_WC_SUCCESS);
                assert_int_equal(wc.wr_id, i);
                assert_int_equal(ntohl(fake_end_wait(&ends[1]).imm_data), i);
        }
        end(ends);
}

static void test_calls_fail(void **state) {
        const struct verbs_api *api = fake_verbs();
        struct ibv_qp_init_attr attr = {.cap.max_send_wr = 1, .qp_type = IBV_QPT_RC};
        struct fake_counters counters;
        struct fake_end ends[2];
        struct ibv_device **list;
        struct ibv_mr *mr;

        (void)state;
        begin(ends, NULL);
        attr.send_cq = attr.recv_cq = ends[0].cq;
        list = api->get_device_list(NULL);
        fake_fail_next(FAKE_OPEN_DEVICE, EMFILE, 0);
        assert_null(api->open_device(list[0]));
        assert_int_equal(errno, EMFILE);
        api->free_device_list(list);
        fake_fail_next(FAKE_GET_DEVICE_LIST, ENOSYS, 0);
        assert_null(api->get_device_list(NULL));
        assert_int_equal(errno, ENOSYS);
        fake_fail_next(FAKE_CREATE_QP, ENOMEM, 0);
        assert_null(api->create_qp(ends[0].pd, &attr));
        assert_int_equal(errno, ENOMEM);
        fake_fail_next(FAKE_REG_MR, ENOMEM, 1);
        mr = api->reg_mr(ends[0].pd, ends[0].memory, 8, 0);
        assert_non_null(mr);
        assert_int_equal(api->dereg_mr(mr), 0);
        assert_null(api->reg_mr(ends[0].pd, ends[0].memory, 8, 0));
        fake_fail_next(FAKE_POST_SEND, ENOMEM, 2);
        send_ok(ends);
        send_ok(ends);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), ENOMEM);
        send_ok(ends);
        fake_fail_next(FAKE_MODIFY_QP, ETIMEDOUT, 0);
        assert_int_equal(fake_end_err(&ends[0]), ETIMEDOUT);
        send_ok(ends);
        fake_counters(&counters);
        assert_int_equal(counters.calls_failed[FAKE_REG_MR], 1);
        assert_int_equal(counters.calls_failed[FAKE_POST_SEND], 1);
        end(ends);
}

static void test_planted_errors(void **state) {
        struct fake_end ends[2];

        (void)state;
        begin(ends, NULL);
        fake_wc_error(NULL, ends[0].qp->qp_num, IBV_WC_LOC_QP_OP_ERR);
        assert_int_equal(send_status(ends), IBV_WC_LOC_QP_OP_ERR);
        reconnect(ends);
        fake_wc_error(ends[0].device, 0, IBV_WC_FATAL_ERR);
        assert_int_equal(send_status(ends), IBV_WC_FATAL_ERR);
        reconnect(ends);
        fake_receive_error(ends[1].device, IBV_WC_LOC_LEN_ERR);
        assert_int_equal(send_status(ends), IBV_WC_REM_OP_ERR);
        assert_int_equal(fake_end_wait(&ends[1]).status, IBV_WC_LOC_LEN_ERR);
        reconnect(ends);
        send_ok(ends);
        assert_false(fake_qp_fatal(1));
        assert_true(fake_qp_fatal(ends[1].qp->qp_num));
        assert_int_equal(fake_end_event(&ends[1]), IBV_EVENT_QP_FATAL);
        assert_int_equal(fake_end_event(&ends[1]), IBV_EVENT_QP_LAST_WQE_REACHED);
        assert_int_equal(send_status(ends), IBV_WC_RETRY_EXC_ERR);
        end(ends);
}

static void test_gid_change(void **state) {
        struct ibv_gid_entry entries[8];
        struct fake_end ends[2];

        (void)state;
        begin(ends, NULL);
        fake_gid_change(ends[0].device, 6);
        assert_int_equal(fake_end_event(&ends[0]), IBV_EVENT_GID_CHANGE);
        assert_int_equal(fake_verbs()->query_gid_table(ends[0].context, entries, 8), 3);
        assert_int_equal(entries[2].gid_index, 6);
        assert_int_equal(send_status(ends), IBV_WC_RETRY_EXC_ERR);
        ends[0].gid_index = 6;
        reconnect(ends);
        send_ok(ends);
        end(ends);
}

static void test_device_fatal(void **state) {
        const struct verbs_api *api = fake_verbs();
        struct ibv_port_attr port;
        struct fake_end ends[2], again = {0};
        int n;

        (void)state;
        begin(ends, NULL);
        fake_drop(ends[0].device, FAKE_LOSE);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
        fake_device_fatal(ends[0].device);
        assert_int_equal(fake_end_event(&ends[0]), IBV_EVENT_DEVICE_FATAL);
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_WR_FLUSH_ERR);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), EIO);
        assert_int_equal(fake_end_err(&ends[0]), EIO);
        assert_int_equal(api->query_port(ends[0].context, 1, &port), EIO);
        assert_null(api->alloc_pd(ends[0].context));
        api->free_device_list(api->get_device_list(&n));
        assert_int_equal(n, 1);
        fake_drop(ends[0].device, FAKE_CARRY);
        fake_device_back(ends[0].device);
        fake_end_open(&again, "fake_a0", &usual);
        assert_int_equal(api->query_port(ends[0].context, 1, &port), EIO);
        fake_end_close(&ends[0]);
        ends[0] = again;
        fake_end_disconnect(&ends[1]);
        fake_ends_connect(ends, &usual);
        send_ok(ends);
        end(ends);
}

/* Everything that may be left is seen, and a failing test's leftovers go with the world. */
static void test_leaks(void **state) {
        struct ibv_async_event event;
        struct fake_end ends[2];

        (void)state;
        fake_begin(&(struct fake_options){.hang_ms = 1, .stale = true});
        memset(ends, 0, sizeof(ends));
        ends[0].device = fake_device_add("fake_a0", "127.0.0.1");
        ends[1].device = fake_device_add("fake_b0", "127.0.0.2");
        fake_end_open(&ends[0], "fake_a0", &usual);
        assert_int_equal(fake_open(), 6);
        fake_end_open(&ends[1], "fake_b0", &usual);
        fake_ends_connect(ends, &usual);
        assert_int_equal(fake_open(), 14);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
        assert_int_equal(fake_end_wait(&ends[1]).status, IBV_WC_SUCCESS);
        assert_true(fake_qp_fatal(ends[0].qp->qp_num));
        assert_int_equal(fake_verbs()->get_async_event(ends[0].context, &event), 0);
        fake_end_disconnect(&ends[0]); /* its send is still there to be polled */
        assert_true(fake_take_problem("destroy_qp: 1 events"));
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_SUCCESS);
        assert_int_equal(fake_verbs()->get_async_event(ends[0].context, &event), -1);
        assert_int_equal(errno, EAGAIN);
        fake_end_close(&ends[0]);
        fake_end_close(&ends[1]);
        assert_false(fake_take_problem(""));
        fake_end();
        begin(ends, NULL);
        print_message("seven things are left open:\n");
        assert_int_equal(fake_finish(false), 7);
        free(ends[0].memory);
        free(ends[1].memory);
}

/* ---------------------------------------------------------------------------------------------------------- threads */

struct traffic {
        struct fake_end *from, *to;
        uint32_t sends;
};

/* Sends of any size one after the other; who receives compares and answers over the same connection. */
static void *traffic_run(void *data) {
        struct traffic *traffic = data;
        uint64_t random = traffic->from->qp->qp_num;

        for (uint32_t i = 0; i < traffic->sends; i++) {
                uint32_t bytes = (uint32_t)((random = random * 25214903917u + 11) >> 16) % 20000;
                struct ibv_wc wc;

                memset(traffic->from->memory, (int)i, bytes);
                assert_int_equal(fake_end_send(traffic->from, traffic->to, 0, bytes), 0);
                for (unsigned int seen = 0; seen < 1;) {
                        wc = fake_end_wait(traffic->from);
                        assert_int_equal(wc.status, IBV_WC_SUCCESS);
                        seen += wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
                }
        }
        return NULL;
}

static void *answer_run(void *data) {
        struct traffic *traffic = data;

        for (uint32_t i = 0; i < traffic->sends;) {
                struct ibv_wc wc = fake_end_wait(traffic->to);

                assert_int_equal(wc.status, IBV_WC_SUCCESS);
                if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
                        continue;
                for (uint32_t b = 0; b < wc.byte_len; b++)
                        assert_int_equal(traffic->to->memory[b], (uint8_t)i);
                i++;
                fake_end_receives(traffic->to, 1);
                fake_end_receives(traffic->from, 1);
                assert_int_equal(fake_end_send(traffic->to, traffic->from, 30000, 0), 0);
        }
        return NULL;
}

static void test_threads(void **state) {
        const struct fake_options options = {.delay_us = 50, .piece_bytes = 1024};
        struct fake_end ends[2][2];
        struct traffic traffic[2];
        pthread_t threads[4];

        (void)state;
        begin(ends[0], &options);
        memset(ends[1], 0, sizeof(ends[1]));
        fake_end_open(&ends[1][0], "fake_a0", &usual);
        fake_end_open(&ends[1][1], "fake_b0", &usual);
        fake_ends_connect(ends[1], &usual);
        for (unsigned int i = 0; i < 2; i++) {
                traffic[i] = (struct traffic){.from = &ends[i][0], .to = &ends[i][1], .sends = 300};
                assert_int_equal(pthread_create(&threads[2 * i], NULL, traffic_run, &traffic[i]), 0);
                assert_int_equal(pthread_create(&threads[2 * i + 1], NULL, answer_run, &traffic[i]), 0);
        }
        for (unsigned int i = 0; i < 4; i++)
                pthread_join(threads[i], NULL);
        fake_end_close(&ends[1][0]);
        fake_end_close(&ends[1][1]);
        end(ends[0]);
}

/* What a queue pair took of the shared queue comes back some time after it was stopped, or never. */
static void test_last_receive_comes_late(void **state) {
        struct fake_end ends[2];
        struct ibv_wc wc;
        uint32_t n;

        (void)state;
        begin(ends, NULL);
        n = fake_receives(ends[1].device);
        fake_last(ends[1].device, 1000);
        assert_int_equal(fake_end_err(&ends[1]), 0);
        assert_int_equal(fake_end_event(&ends[1]), IBV_EVENT_QP_LAST_WQE_REACHED);
        assert_int_equal(fake_end_poll(&ends[1], &wc), 1);
        assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
        assert_int_equal(wc.qp_num, ends[1].qp->qp_num);
        assert_int_equal(fake_end_poll(&ends[1], &wc), 0);
        reconnect(ends);
        assert_int_equal(fake_receives(ends[1].device), n - 1); /* it was polled */
        fake_last(ends[1].device, 3600000000u);
        assert_int_equal(fake_end_err(&ends[1]), 0);
        assert_int_equal(fake_receives(ends[1].device), n - 2);
        reconnect(ends); /* destroys it */
        assert_int_equal(fake_end_poll(&ends[1], &wc), 0);
        assert_int_equal(fake_receives(ends[1].device), n - 2);
        fake_last(ends[1].device, FAKE_MUTE);
        assert_int_equal(fake_end_err(&ends[1]), 0);
        assert_int_equal(fake_receives(ends[1].device), n - 2);
        end(ends);
}

/* Destroyed in the midst of writes: the memory may be unmapped at once. */
static void test_destroyed_in_the_midst(void **state) {
        const struct fake_options options = {.seed = seed, .piece_bytes = 4096, .delay_us = 20, .timeout_ms = 1};
        struct fake_counters counters;
        struct fake_end ends[2];
        uint32_t torn = 0;

        (void)state;
        begin(ends, &options);
        for (uint32_t round = 0; round < 200; round++) {
                void *memory = mmap(NULL, END_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                struct ibv_mr *mr = fake_verbs()->reg_mr(ends[1].pd, memory, END_BYTES,
                                                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
                struct ibv_sge sge;
                struct ibv_send_wr wr = fake_end_wr(&ends[0], &ends[1], &sge, 0, END_BYTES);
                uint64_t bytes;

                assert_non_null(mr);
                wr.wr.rdma.remote_addr = (uintptr_t)memory;
                wr.wr.rdma.rkey = mr->rkey;
                fake_counters(&counters);
                bytes = counters.bytes;
                assert_int_equal(fake_end_post(&ends[0], &wr), 0);
                do
                        fake_counters(&counters);
                while (counters.bytes == bytes);
                if (round % 2) {
                        fake_end_disconnect(&ends[1]);
                        assert_int_equal(fake_verbs()->dereg_mr(mr), 0);
                } else {
                        assert_int_equal(fake_verbs()->dereg_mr(mr), 0);
                        fake_end_disconnect(&ends[1]);
                }
                munmap(memory, END_BYTES);
                fake_counters(&counters);
                torn += counters.bytes - bytes < END_BYTES;
                fake_end_disconnect(&ends[0]);
                fake_ends_connect(ends, &usual);
        }
        fake_counters(&counters);
        assert_int_equal(counters.ghosts, 0);
        print_message("%u of 200 torn\n", torn);
        assert_true(torn > 20);
        end(ends);
}

/* Random errors, in the same places whenever the seed is the same. */
static void random_run(uint64_t from, uint64_t *ret_trace, struct fake_counters *ret_counters) {
        const struct fake_options options = {.seed = from, .piece_bytes = 1000};
        struct fake_end ends[2];

        begin(ends, &options);
        fake_random_errors(ends[0].device, 4, IBV_WC_RETRY_EXC_ERR);
        *ret_trace = 0;
        for (uint32_t i = 0; i < 400; i++) {
                struct ibv_wc wc;
                bool arrived, whole = true;
                uint32_t written = 0;

                memset(ends[0].memory, 1, 3000);
                memset(ends[1].memory, 0, 3000);
                assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, i % 5 ? 3000 : 0), 0);
                wc = fake_end_wait(&ends[0]);
                arrived = fake_end_poll(&ends[1], &(struct ibv_wc){0});
                while (written < 3000 && ends[1].memory[written])
                        written++;
                for (uint32_t b = written; b < 3000; b++)
                        whole &= !ends[1].memory[b]; /* nothing behind a hole */
                assert_true(whole);
                if (wc.status == IBV_WC_SUCCESS || arrived)
                        assert_int_equal(written, i % 5 ? 3000 : 0);
                assert_true(wc.status == IBV_WC_SUCCESS ? arrived : wc.status == IBV_WC_RETRY_EXC_ERR);
                *ret_trace = *ret_trace * 31 + written * 8 + (uint64_t)wc.status * 2 + arrived;
                if (arrived)
                        fake_end_receives(&ends[1], 1);
                if (wc.status != IBV_WC_SUCCESS)
                        reconnect(ends);
        }
        fake_counters(ret_counters);
        end(ends);
}

static void test_random_errors(void **state) {
        struct fake_counters counters;
        uint64_t traces[3];

        (void)state;
        random_run(seed, &traces[0], &counters);
        print_message("%llu failed, %llu torn, %llu arrived all the same\n", (unsigned long long)counters.failed,
                      (unsigned long long)counters.torn, (unsigned long long)counters.lost_answers);
        assert_true(counters.failed > 50 && counters.torn > 20);
        random_run(seed, &traces[1], &counters);
        random_run(seed + 1, &traces[2], &counters);
        assert_int_equal(traces[0], traces[1]);
        assert_int_not_equal(traces[0], traces[2]);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_port),
                cmocka_unit_test(test_lose),
                cmocka_unit_test(test_lose_answers),
                cmocka_unit_test(test_hold),
                cmocka_unit_test(test_calls_fail),
                cmocka_unit_test(test_planted_errors),
                cmocka_unit_test(test_gid_change),
                cmocka_unit_test(test_device_fatal),
                cmocka_unit_test(test_leaks),
                cmocka_unit_test(test_threads),
                cmocka_unit_test(test_last_receive_comes_late),
                cmocka_unit_test(test_destroyed_in_the_midst),
                cmocka_unit_test(test_random_errors),
        };
        const char *text = getenv("RAILMUX_SEED");

        seed = text ? strtoull(text, NULL, 0) : clock_now_ns();
        print_message("RAILMUX_SEED=%llu\n", (unsigned long long)seed);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
