/* SPDX-License-Identifier: MIT */
/* The fake adapters keep the rules of real ones: what arrives, in which order, and what is refused. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "tests/cmocka_all.h"
#include "tests/fabric/fake_ends.h"
#include "util/clock.h"

static const struct fake_usage usual;

static void begin_with(struct fake_end ends[2], const struct fake_usage *usage, const struct fake_options *options) {
        fake_begin(options);
        memset(ends, 0, 2 * sizeof(*ends));
        ends[0].device = fake_device_add("fake_a0", "127.0.0.1");
        ends[1].device = fake_device_add("fake_b0", "127.0.0.2");
        fake_end_open(&ends[0], "fake_a0", usage);
        fake_end_open(&ends[1], "fake_b0", usage);
}

static void begin(struct fake_end ends[2], const struct fake_usage *usage) {
        begin_with(ends, usage, NULL);
}

static void end(struct fake_end ends[2]) {
        fake_end_close(&ends[0]);
        fake_end_close(&ends[1]);
        assert_int_equal(fake_open(), 0);
        fake_end();
}

static void fill(uint8_t *bytes, uint32_t n, uint32_t first) {
        for (uint32_t i = 0; i < n; i++)
                bytes[i] = (uint8_t)(first + i * 7);
}

static void test_devices(void **state) {
        const struct verbs_api *api = fake_verbs();
        struct ibv_gid_entry entries[8];
        struct ibv_port_attr port;
        struct fake_end ends[2];

        (void)state;
        begin(ends, &usual);
        assert_int_equal(api->query_port(ends[0].context, 1, &port), 0);
        assert_int_equal(port.state, IBV_PORT_ACTIVE);
        assert_int_equal(api->query_port(ends[0].context, 2, &port), EINVAL);
        assert_int_equal(api->query_gid_table(ends[0].context, entries, 8), 3);
        assert_int_equal(entries[0].gid.raw[0], 0xfe);
        assert_int_equal(entries[1].gid_type, IBV_GID_TYPE_ROCE_V1);
        assert_int_equal(entries[2].gid_type, IBV_GID_TYPE_ROCE_V2);
        assert_memory_equal(entries[2].gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16);
        assert_memory_equal(entries[1].gid.raw, entries[2].gid.raw, 16);
        assert_int_equal(fake_open(), 2 * 6);
        /* In the wrong order. */
        assert_int_equal(api->close_device(ends[0].context), EBUSY);
        assert_true(fake_take_problem("fake_a0 is closed before 3 of its objects"));
        assert_int_equal(api->dealloc_pd(ends[0].pd), EBUSY);
        assert_true(fake_take_problem("protection domain"));
        assert_int_equal(api->destroy_comp_channel(ends[0].channel), EBUSY);
        assert_true(fake_take_problem("completion channel"));
        fake_ends_connect(ends, &usual);
        assert_int_equal(api->destroy_cq(ends[0].cq), EBUSY);
        assert_true(fake_take_problem("completion queue"));
        assert_int_equal(api->destroy_srq(ends[0].srq), EBUSY);
        assert_true(fake_take_problem("shared receive queue"));
        end(ends);
}

/* A chain: data, inline data whose memory is used again at once, data from two places with an immediate. */
static void test_carry(void **state) {
        struct fake_end ends[2];
        struct ibv_send_wr wrs[3];
        struct ibv_sge sges[4];
        uint8_t small[100];
        struct ibv_wc wc;

        (void)state;
        begin(ends, &usual);
        fake_ends_connect(ends, &usual);
        assert_int_equal(ends[0].inline_bytes, 128);
        fill(ends[0].memory, END_BYTES, 3);
        for (uint32_t round = 0; round < 200; round++) {
                memset(ends[1].memory, 0, END_BYTES);
                fill(small, sizeof(small), round);
                wrs[0] = fake_end_wr(&ends[0], &ends[1], &sges[0], 0, 40000);
                wrs[0].next = &wrs[1];
                wrs[1] = fake_end_wr(&ends[0], &ends[1], &sges[1], 40000, 100);
                sges[1] = (struct ibv_sge){.addr = (uintptr_t)small, .length = 100}; /* no key */
                wrs[1].send_flags = IBV_SEND_INLINE;
                wrs[1].next = &wrs[2];
                wrs[2] = fake_end_wr(&ends[0], &ends[1], &sges[2], 50000, 300);
                sges[3] = sges[2];
                sges[3].addr += 1000;
                sges[3].length = 500;
                wrs[2].num_sge = 2;
                wrs[2].wr_id = 99;
                wrs[2].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
                wrs[2].imm_data = htonl(0x12345678 + round);
                wrs[2].send_flags = IBV_SEND_SIGNALED;
                assert_int_equal(fake_end_post(&ends[0], wrs), 0);
                memset(small, 0, sizeof(small));
                wc = fake_end_wait(&ends[1]);
                assert_int_equal(wc.status, IBV_WC_SUCCESS);
                assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
                assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
                assert_int_equal(ntohl(wc.imm_data), 0x12345678 + round);
                assert_int_equal(wc.byte_len, 800);
                assert_int_equal(wc.qp_num, ends[1].qp->qp_num);
                assert_int_equal(wc.wr_id, 7000);
                assert_memory_equal(ends[1].memory, ends[0].memory, 40000);
                fill(small, sizeof(small), round);
                assert_memory_equal(ends[1].memory + 40000, small, 100);
                assert_memory_equal(ends[1].memory + 50000, ends[0].memory + 50000, 300);
                assert_memory_equal(ends[1].memory + 50300, ends[0].memory + 51000, 500);
                wc = fake_end_wait(&ends[0]);
                assert_int_equal(wc.status, IBV_WC_SUCCESS);
                assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
                assert_int_equal(wc.wr_id, 99);
                assert_int_equal(wc.qp_num, ends[0].qp->qp_num);
                assert_int_equal(fake_end_poll(&ends[0], &wc), 0);
                fake_end_receives(&ends[1], 1);
        }
        end(ends);
}

/* Slots of sends are free when a later completion was polled, not when they are over. */
static void test_slots(void **state) {
        struct fake_end ends[2];
        struct ibv_sge sge;
        struct ibv_send_wr wr, more[2], *bad;
        struct ibv_wc wc;

        (void)state;
        begin(ends, &usual);
        fake_ends_connect(ends, &usual);
        wr = fake_end_wr(&ends[0], &ends[1], &sge, 0, 8);
        for (unsigned int i = 0; i < END_SLOTS - 1; i++)
                assert_int_equal(fake_end_post(&ends[0], &wr), 0);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 64, 8), 0);
        wc = fake_end_wait(&ends[1]); /* all of them are over */
        assert_int_equal(wc.byte_len, 8);
        assert_int_equal(fake_end_post(&ends[0], &wr), ENOMEM);
        wc = fake_end_wait(&ends[0]);
        assert_int_equal(wc.wr_id, 64);
        for (unsigned int i = 0; i < END_SLOTS - 1; i++)
                assert_int_equal(fake_end_post(&ends[0], &wr), 0);
        more[0] = more[1] = wr;
        more[0].next = &more[1];
        assert_int_equal(fake_verbs()->post_send(ends[0].qp, more, &bad), ENOMEM); /* the first of them was taken */
        assert_ptr_equal(bad, &more[1]);
        end(ends);
}

static void test_post_refused(void **state) {
        struct fake_end ends[2];
        struct ibv_sge sges[3];
        struct ibv_send_wr wr;
        struct ibv_recv_wr receive = {.wr_id = 1, .num_sge = 1}, *bad;

        (void)state;
        fake_begin(NULL);
        memset(ends, 0, sizeof(ends));
        ends[0].device = fake_device_add("fake_a0", "127.0.0.1");
        ends[1].device = fake_device_add("fake_b0", "fd00::1");
        fake_max_inline(ends[0].device, 60);
        fake_end_open(&ends[0], "fake_a0", &usual);
        fake_end_open(&ends[1], "fake_b0", &usual);
        fake_ends_connect(ends, &usual);
        assert_int_equal(ends[0].inline_bytes, 60); /* of 128 */
        assert_int_equal(ends[1].inline_bytes, 128);
        wr = fake_end_wr(&ends[0], &ends[1], sges, 0, 61);
        wr.send_flags = IBV_SEND_INLINE;
        assert_int_equal(fake_end_post(&ends[0], &wr), EINVAL);
        sges[0].length = 60;
        assert_int_equal(fake_end_post(&ends[0], &wr), 0);
        sges[1] = sges[2] = sges[0];
        wr.num_sge = 3;
        assert_int_equal(fake_end_post(&ends[0], &wr), EINVAL);
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_READ;
        assert_int_equal(fake_end_post(&ends[0], &wr), EINVAL);
        assert_int_equal(fake_verbs()->post_srq_recv(ends[0].srq, &receive, &bad), EINVAL); /* it asked for no memory */
        fake_end_receives(&ends[0], 192);
        receive.num_sge = 0;
        assert_int_equal(fake_verbs()->post_srq_recv(ends[0].srq, &receive, &bad), ENOMEM);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0); /* IPv4 to IPv6, as it happens */
        assert_int_equal(fake_end_wait(&ends[1]).status, IBV_WC_SUCCESS);
        end(ends);
}

/* One attribute missing, one too many, one wrong, one step too far. */
static void test_states(void **state) {
        const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        const int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                        IBV_QP_MAX_QP_RD_ATOMIC;
        const struct verbs_api *api = fake_verbs();
        struct ibv_qp_attr attr = {.port_num = 1, .path_mtu = IBV_MTU_1024, .timeout = 14}, wrong;
        const struct {
                enum ibv_qp_state to;
                int mask;
        } steps[] = {{IBV_QPS_INIT, init}, {IBV_QPS_RTR, rtr}, {IBV_QPS_RTS, rts}};
        struct fake_end ends[2];

        (void)state;
        begin(ends, &usual);
        fake_end_qp(&ends[0]);
        attr.ah_attr = (struct ibv_ah_attr){
                .is_global = 1, .port_num = 1, .grh = {.dgid = ends[1].gid, .sgid_index = ends[0].gid_index}};
        for (unsigned int i = 0; i < 3; i++) {
                assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), EINVAL);
                for (unsigned int to = 0; to < 3; to++) { /* not yet, and not again */
                        attr.qp_state = steps[to].to;
                        if (to != i && !(i == 1 && to == 0)) /* INIT may be set again */
                                assert_int_equal(api->modify_qp(ends[0].qp, &attr, steps[to].mask), EINVAL);
                }
                attr.qp_state = steps[i].to;
                for (int bit = IBV_QP_CUR_STATE; bit <= IBV_QP_DEST_QPN; bit <<= 1)
                        if (steps[i].mask & bit)
                                assert_int_equal(api->modify_qp(ends[0].qp, &attr, steps[i].mask & ~bit), EINVAL);
                assert_int_equal(api->modify_qp(ends[0].qp, &attr, steps[i].mask | IBV_QP_QKEY), EINVAL);
                wrong = attr;
                wrong.port_num = 2;
                wrong.ah_attr.grh.sgid_index = 5; /* nothing there */
                wrong.timeout = 32;
                assert_int_equal(api->modify_qp(ends[0].qp, &wrong, steps[i].mask), EINVAL);
                wrong = attr;
                wrong.pkey_index = 1;
                wrong.ah_attr.is_global = 0; /* Ethernet has nothing else */
                wrong.sq_psn = 1 << 24;
                assert_int_equal(api->modify_qp(ends[0].qp, &wrong, steps[i].mask), EINVAL);
                assert_int_equal(api->modify_qp(ends[0].qp, &attr, steps[i].mask), 0);
                assert_int_equal(ends[0].qp->state, steps[i].to);
        }
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
        attr.qp_state = IBV_QPS_RESET;
        assert_int_equal(api->modify_qp(ends[0].qp, &attr, IBV_QP_STATE), 0);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), EINVAL);
        end(ends);
}

/* What a request may not touch: who asked and who was asked learn of it, and the rest is flushed in order. */
static void refused(const struct fake_usage *usage, void (*spoil)(struct fake_end ends[2], struct ibv_send_wr *wr),
                    enum ibv_wc_status status) {
        struct fake_end ends[2];
        struct ibv_sge sge;
        struct ibv_send_wr wr;
        struct ibv_mr *mr;
        struct ibv_wc wc;

        begin(ends, usage);
        fake_ends_connect(ends, usage);
        mr = ends[1].mr;
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 0), 0); /* without data nothing is looked at */
        wr = fake_end_wr(&ends[0], &ends[1], &sge, 64, 8);
        memset(ends[0].memory, 1, END_BYTES);
        spoil(ends, &wr);
        assert_int_equal(fake_end_post(&ends[0], &wr), 0); /* not signalled, and seen all the same */
        ends[1].mr = mr;
        for (uint32_t i = 2; i < 6; i++)
                assert_int_equal(fake_end_send(&ends[0], &ends[1], i * 64, i == 2 ? 0 : 8), 0);
        wc = fake_end_wait(&ends[0]);
        if (!usage->no_access) {
                assert_int_equal(wc.status, IBV_WC_SUCCESS);
                assert_int_equal(fake_end_wait(&ends[1]).byte_len, 0);
                wc = fake_end_wait(&ends[0]);
                assert_int_equal(wc.wr_id, 64);
        }
        assert_int_equal(wc.status, status);
        assert_int_equal(wc.qp_num, ends[0].qp->qp_num);
        for (uint32_t i = usage->no_access ? 1 : 2; i < 6; i++) {
                wc = fake_end_wait(&ends[0]);
                assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
                assert_int_equal(wc.wr_id, i * 64);
        }
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 640, 8), 0); /* taken, and flushed */
        wc = fake_end_wait(&ends[0]);
        assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
        assert_int_equal(wc.wr_id, 640);
        assert_int_equal(fake_end_event(&ends[0]), IBV_EVENT_QP_LAST_WQE_REACHED);
        if (status != IBV_WC_LOC_PROT_ERR) {
                assert_int_equal(fake_end_event(&ends[1]), IBV_EVENT_QP_ACCESS_ERR);
                assert_int_equal(fake_end_event(&ends[1]), IBV_EVENT_QP_LAST_WQE_REACHED);
        }
        assert_int_equal(fake_end_poll(&ends[1], &wc), 0);
        for (uint32_t i = 0; i < END_BYTES; i++)
                assert_int_equal(ends[1].memory[i], 0);
        end(ends);
}

static void spoil_nothing(struct fake_end ends[2], struct ibv_send_wr *wr) {
        (void)ends;
        (void)wr;
}

static void spoil_lkey(struct fake_end ends[2], struct ibv_send_wr *wr) {
        (void)ends;
        wr->sg_list[0].lkey = ends[0].mr->rkey;
}

static void spoil_range(struct fake_end ends[2], struct ibv_send_wr *wr) {
        wr->sg_list[0].addr = (uintptr_t)(ends[0].memory + END_BYTES - 7);
}

static void spoil_length(struct fake_end ends[2], struct ibv_send_wr *wr) {
        wr->sg_list[0].addr = (uintptr_t)ends[0].memory;
        wr->sg_list[0].length = END_BYTES + 1;
}

static void spoil_local_pd(struct fake_end ends[2], struct ibv_send_wr *wr) {
        wr->sg_list[0].lkey = ends[1].mr->lkey;
        wr->sg_list[0].addr = (uintptr_t)ends[1].memory;
}

static void spoil_rkey(struct fake_end ends[2], struct ibv_send_wr *wr) {
        wr->wr.rdma.rkey = ends[1].mr->lkey;
}

static void spoil_remote_range(struct fake_end ends[2], struct ibv_send_wr *wr) {
        wr->wr.rdma.remote_addr = (uintptr_t)(ends[1].memory + END_BYTES - 7);
}

static void spoil_remote_before(struct fake_end ends[2], struct ibv_send_wr *wr) {
        wr->wr.rdma.remote_addr = (uintptr_t)(ends[1].memory - 1);
}

static void spoil_remote_pd(struct fake_end ends[2], struct ibv_send_wr *wr) {
        wr->wr.rdma.rkey = ends[0].mr->rkey;
        wr->wr.rdma.remote_addr = (uintptr_t)ends[0].memory;
}

static void spoil_access(struct fake_end ends[2], struct ibv_send_wr *wr) {
        struct ibv_mr *mr = fake_verbs()->reg_mr(ends[1].pd, ends[1].memory, END_BYTES, IBV_ACCESS_LOCAL_WRITE);

        assert_non_null(mr);
        assert_int_equal(fake_verbs()->dereg_mr(ends[1].mr), 0);
        wr->wr.rdma.rkey = mr->rkey;
        ends[1].mr = mr;
}

static void test_refused(void **state) {
        const struct fake_usage no_access = {.no_access = IBV_ACCESS_REMOTE_WRITE};

        (void)state;
        refused(&usual, spoil_lkey, IBV_WC_LOC_PROT_ERR);
        refused(&usual, spoil_range, IBV_WC_LOC_PROT_ERR);
        refused(&usual, spoil_length, IBV_WC_LOC_PROT_ERR);
        refused(&usual, spoil_local_pd, IBV_WC_LOC_PROT_ERR);
        refused(&usual, spoil_rkey, IBV_WC_REM_ACCESS_ERR);
        refused(&usual, spoil_remote_range, IBV_WC_REM_ACCESS_ERR);
        refused(&usual, spoil_remote_before, IBV_WC_REM_ACCESS_ERR);
        refused(&usual, spoil_remote_pd, IBV_WC_REM_ACCESS_ERR);
        refused(&no_access, spoil_nothing, IBV_WC_REM_INV_REQ_ERR);
}

/* Regions without the right, or that are no more; and what cannot be registered. */
static void test_regions(void **state) {
        const struct verbs_api *api = fake_verbs();
        struct fake_end ends[2];
        struct ibv_sge sge;
        struct ibv_send_wr wr;

        (void)state;
        for (unsigned int gone = 0; gone < 2; gone++) {
                begin(ends, &usual);
                fake_ends_connect(ends, &usual);
                wr = fake_end_wr(&ends[0], &ends[1], &sge, 64, 8);
                spoil_access(ends, &wr);
                if (gone) {
                        assert_int_equal(api->dereg_mr(ends[1].mr), 0);
                        ends[1].mr = NULL;
                }
                assert_int_equal(fake_end_post(&ends[0], &wr), 0);
                assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_REM_ACCESS_ERR);
                assert_null(api->reg_mr(ends[0].pd, ends[0].memory, 8, IBV_ACCESS_REMOTE_WRITE));
                assert_int_equal(errno, EINVAL);
                assert_null(api->reg_mr(ends[0].pd, (void *)4096, 8, IBV_ACCESS_LOCAL_WRITE));
                assert_int_equal(errno, EFAULT);
                end(ends);
        }
}

/* Nobody is there who would answer: over after the timeout, and not before. */
static void test_nobody(void **state) {
        const struct fake_usage usages[] = {{.psn_more = 1}, {.gid_index_less = 1}, {.gid_index_less = 2}};
        struct fake_end ends[2];

        (void)state;
        for (unsigned int i = 0; i < sizeof(usages) / sizeof(usages[0]); i++) {
                begin(ends, &usages[i]);
                fake_ends_connect(ends, &usages[i]);
                assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
                assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_RETRY_EXC_ERR);
                assert_int_equal(fake_end_poll(&ends[1], &(struct ibv_wc){0}), 0);
                end(ends);
        }
        /* Gone, and not ready. */
        begin(ends, &usual);
        fake_ends_connect(ends, &usual);
        assert_int_equal(fake_end_err(&ends[1]), 0);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
        fake_end_disconnect(&ends[1]);
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_RETRY_EXC_ERR);
        fake_end_disconnect(&ends[0]);
        /* Ready just in time: it waits for that. */
        fake_end_qp(&ends[0]);
        fake_end_qp(&ends[1]);
        assert_int_equal(fake_end_init(&ends[1], IBV_ACCESS_REMOTE_WRITE), 0);
        assert_int_equal(fake_end_init(&ends[0], 0), 0);
        assert_int_equal(fake_end_rtr(&ends[0], &ends[1], 0), 0);
        assert_int_equal(fake_end_rts(&ends[0], 7), 0);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
        assert_int_equal(fake_end_rtr(&ends[1], &ends[0], ends[0].psn), 0);
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_SUCCESS);
        end(ends);
}

static void test_no_receive(void **state) {
        const struct fake_usage few = {.n_receives = 1}, impatient = {.n_receives = 1, .rnr_retry_less = 1};
        const struct fake_options hasty = {.timeout_ms = 1};
        struct fake_counters counters;
        struct fake_end ends[2];

        (void)state;
        begin_with(ends, &few, &hasty);
        fake_ends_connect(ends, &few);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_SUCCESS);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
        /* Far longer than it waits for an answer, and asked again and again. */
        for (uint64_t end_ns = clock_now_ns() + 5000000; clock_now_ns() < end_ns || counters.empty < 2;) {
                fake_drop(ends[0].device, FAKE_CARRY);
                fake_counters(&counters);
        }
        fake_end_receives(&ends[1], 1);
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_SUCCESS);
        end(ends);
        begin(ends, &impatient);
        fake_ends_connect(ends, &impatient);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_SUCCESS);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
        assert_int_equal(fake_end_wait(&ends[0]).status, IBV_WC_RNR_RETRY_EXC_ERR);
        end(ends);
}

/* One event for one arming, for what comes after it; to be acknowledged before the end. */
static void test_completion_events(void **state) {
        const struct fake_options hasty = {.hang_ms = 1};
        const struct verbs_api *api = fake_verbs();
        struct fake_end ends[2];
        struct pollfd fd;
        struct ibv_cq *cq;
        struct ibv_wc wc;
        void *data;

        (void)state;
        begin_with(ends, &usual, &hasty);
        fake_ends_connect(ends, &usual);
        fd = (struct pollfd){.fd = ends[1].channel->fd, .events = POLLIN};
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
        fake_end_wait(&ends[0]); /* it was there before it was looked for */
        assert_int_equal(api->req_notify_cq(ends[1].cq), 0);
        assert_int_equal(api->get_cq_event(ends[1].channel, &cq, &data), -1);
        assert_int_equal(errno, EAGAIN);
        for (unsigned int i = 0; i < 2; i++) {
                assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
                fake_end_wait(&ends[0]);
        }
        assert_int_equal(poll(&fd, 1, 0), 1);
        assert_int_equal(api->get_cq_event(ends[1].channel, &cq, &data), 0);
        assert_ptr_equal(cq, ends[1].cq);
        assert_int_equal(poll(&fd, 1, 0), 0);
        assert_int_equal(api->get_cq_event(ends[1].channel, &cq, &data), -1);
        for (unsigned int i = 0; i < 3; i++)
                assert_int_equal(fake_end_poll(&ends[1], &wc), 1);
        assert_int_equal(api->req_notify_cq(ends[1].cq), 0);
        assert_int_equal(fake_end_send(&ends[0], &ends[1], 0, 8), 0);
        fake_end_wait(&ends[0]);
        assert_int_equal(poll(&fd, 1, 0), 1); /* and nobody reads it: it goes with the queue */
        fake_end_disconnect(&ends[1]);
        assert_int_equal(api->destroy_cq(ends[1].cq), 0);
        assert_true(fake_take_problem("destroy_cq: 1 events were read and not acknowledged"));
        assert_int_equal(poll(&fd, 1, 0), 0);
        ends[1].cq = api->create_cq(ends[1].context, 1, ends[1].channel);
        fake_end_close(&ends[1]);
        api->ack_cq_events(ends[0].cq, 1000);
        assert_true(fake_take_problem("ack_cq_events"));
        fake_end_close(&ends[0]);
        fake_end();
}

static void test_overrun(void **state) {
        const struct fake_usage small = {.n_cqe = 4};
        struct fake_end ends[2];
        struct ibv_wc wc;

        (void)state;
        begin(ends, &small);
        fake_ends_connect(ends, &small);
        for (uint32_t i = 0; i < 5; i++)
                assert_int_equal(fake_end_send(&ends[0], &ends[1], i, 8), 0);
        assert_int_equal(fake_end_event(&ends[0]), IBV_EVENT_CQ_ERR);
        assert_int_equal(fake_end_event(&ends[1]), IBV_EVENT_CQ_ERR);
        assert_true(fake_take_problem("a completion queue of 4 overran"));
        assert_true(fake_take_problem("a completion queue of 4 overran"));
        for (uint32_t i = 0; i < 4; i++) {
                assert_int_equal(fake_end_poll(&ends[1], &wc), 1);
                assert_int_equal(ntohl(wc.imm_data), i);
        }
        assert_int_equal(fake_end_poll(&ends[1], &wc), 0);
        end(ends);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_devices),    cmocka_unit_test(test_carry),
                cmocka_unit_test(test_slots),      cmocka_unit_test(test_post_refused),
                cmocka_unit_test(test_states),     cmocka_unit_test(test_refused),
                cmocka_unit_test(test_regions),    cmocka_unit_test(test_nobody),
                cmocka_unit_test(test_no_receive), cmocka_unit_test(test_completion_events),
                cmocka_unit_test(test_overrun),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
