/* SPDX-License-Identifier: MIT */
/*
 * A stranger on the network of the rails who knows all that is kept from him: the numbers of queue pairs, what they
 * wait for next, the addresses of areas and their keys. From node c's adapter he writes to and reads from areas of
 * nodes a and b. Queue pairs take packets of their one peer only, so nothing of that may succeed, and not a byte may
 * change. That he would know how to do it he shows on a queue pair that is meant for him.
 */
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "tests/e2e/proc.h"
#include "tests/vm/fleet.h"
#include "tests/vm/scenario.h"
#include "util/clock.h"

#define STRANGER   "rxe_c0"
#define PORT       1
#define SIZE       64u
#define LOOT       0xa5
#define STEP_MS    60000u
#define ANSWER_NS  UINT64_C(20000000000)
#define TARGETS    4u /* areas and queue pairs that are tried, of each node */
#define AREA_BYTES 65536u
#define ELEMENTS   65536u

struct adapter {
        struct ibv_context *context;
        struct ibv_pd *pd;
        struct ibv_cq *cq;
        struct ibv_mr *mr;
        union ibv_gid gid;
        uint8_t gid_index;
        unsigned char memory[SIZE];
};

/* Where to, as far as a sender has to know it. */
struct target {
        uint32_t qpn, psn; /* psn: expected next */
        union ibv_gid gid;
        uint64_t address;
        uint32_t rkey;
};

/* ---- adapters ---------------------------------------------------------------------------------------------------- */
/* The GID of an IPv4 address. */
static union ibv_gid gid_of(uint32_t node) {
        return (union ibv_gid){.raw = {[10] = 0xff, 0xff, 10, 77, 0, (uint8_t)(node + 1)}};
}

static void adapter_open(struct adapter *a, const char *name, uint32_t node) {
        struct ibv_device **list = ibv_get_device_list(NULL);
        union ibv_gid gid;

        *a = (struct adapter){.gid = gid_of(node)};
        for (size_t i = 0; list && list[i] && !a->context; i++)
                if (strcmp(ibv_get_device_name(list[i]), name) == 0)
                        a->context = ibv_open_device(list[i]);
        ibv_free_device_list(list);
        if (!a->context)
                fail_msg("no RDMA device %s", name);
        while (ibv_query_gid(a->context, PORT, a->gid_index, &gid) == 0 && memcmp(&gid, &a->gid, sizeof(gid)) != 0)
                a->gid_index++;
        a->pd = ibv_alloc_pd(a->context);
        a->cq = ibv_create_cq(a->context, 16, NULL, NULL, 0);
        assert_true(a->pd && a->cq);
        a->mr = ibv_reg_mr(a->pd, a->memory, SIZE,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
        assert_non_null(a->mr);
}

static void adapter_close(struct adapter *a) {
        assert_int_equal(ibv_dereg_mr(a->mr), 0);
        assert_int_equal(ibv_destroy_cq(a->cq), 0);
        assert_int_equal(ibv_dealloc_pd(a->pd), 0);
        assert_int_equal(ibv_close_device(a->context), 0);
}

static struct ibv_qp *pair_new(const struct adapter *a) {
        struct ibv_qp_init_attr init = {
                .send_cq = a->cq,
                .recv_cq = a->cq,
                .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
                .qp_type = IBV_QPT_RC};
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                                   .port_num = PORT,
                                   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
        struct ibv_qp *qp = ibv_create_qp(a->pd, &init);

        assert_non_null(qp);
        assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
                         0);
        return qp;
}

static void pair_connect(const struct adapter *a, struct ibv_qp *qp, const struct target *to) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                                   .path_mtu = IBV_MTU_1024,
                                   .dest_qp_num = to->qpn,
                                   .max_dest_rd_atomic = 1,
                                   .min_rnr_timer = 12,
                                   .ah_attr = {.is_global = 1,
                                               .port_num = PORT,
                                               .grh = {.dgid = to->gid, .sgid_index = a->gid_index, .hop_limit = 64}}};

        assert_int_equal(ibv_modify_qp(qp, &attr,
                                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                         0);
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                    .sq_psn = to->psn,
                                    .timeout = 14,
                                    .retry_cnt = 2,
                                    .rnr_retry = 2,
                                    .max_rd_atomic = 1};
        assert_int_equal(ibv_modify_qp(qp, &attr,
                                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                               IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
                         0);
}

/* What becomes of one request. */
static enum ibv_wc_status pair_try(const struct adapter *a, struct ibv_qp *qp, const struct target *to,
                                   enum ibv_wr_opcode what) {
        struct ibv_sge piece = {.addr = (uintptr_t)a->memory, .length = SIZE, .lkey = a->mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &piece,
                                 .num_sge = 1,
                                 .opcode = what,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = {.remote_addr = to->address, .rkey = to->rkey}},
                           *bad;
        uint64_t end_ns = clock_now_ns() + ANSWER_NS;
        struct ibv_wc wc;

        assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
        while (ibv_poll_cq(a->cq, 1, &wc) == 0)
                if (clock_now_ns() > end_ns)
                        fail_msg("a request has no end");
        return wc.status;
}

static enum ibv_wc_status stranger_tries(struct adapter *a, const struct target *to, enum ibv_wr_opcode what) {
        struct ibv_qp *qp = pair_new(a);
        enum ibv_wc_status status;

        memset(a->memory, LOOT, SIZE);
        pair_connect(a, qp, to);
        status = pair_try(a, qp, to, what);
        assert_int_equal(ibv_destroy_qp(qp), 0);
        return status;
}

/* The same to a queue pair that is his friend's. */
static void stranger_can(struct adapter *a) {
        struct ibv_qp *mine = pair_new(a), *theirs;
        struct adapter friend;
        struct target to, back = {.qpn = mine->qp_num, .gid = a->gid};

        adapter_open(&friend, "rxe_d0", 3);
        theirs = pair_new(&friend);
        to = (struct target){.qpn = theirs->qp_num,
                             .gid = friend.gid,
                             .address = (uintptr_t) friend.memory,
                             .rkey = friend.mr->rkey};
        pair_connect(&friend, theirs, &back);
        pair_connect(a, mine, &to);
        memset(a->memory, LOOT, SIZE);
        assert_int_equal(pair_try(a, mine, &to, IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
        assert_int_equal(friend.memory[SIZE - 1], LOOT);
        assert_int_equal(pair_try(a, mine, &to, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
        assert_int_equal(ibv_destroy_qp(mine), 0);
        assert_int_equal(ibv_destroy_qp(theirs), 0);
        adapter_close(&friend);
}

/* ---- what is known of nodes -------------------------------------------------------------------------------------- */
static json_t *kernel_says(const char *what) {
        char *output = malloc(PROC_OUTPUT_MAX), command[96];
        const char *argv[] = {"/bin/bash", "-c", command, NULL};
        json_t *rows;

        assert_non_null(output);
        snprintf(command, sizeof(command), "PATH=$PATH:/usr/sbin:/sbin rdma -j -d resource show %s", what);
        assert_int_equal(proc_run(argv, STEP_MS, output), 0);
        rows = json_loads(output, 0, NULL);
        if (!json_is_array(rows))
                fail_msg("rdma resource show %s says: %.200s", what, output);
        free(output);
        return rows;
}

static uint64_t number(const json_t *row, const char *key) {
        const json_t *value = json_object_get(row, key);

        return json_is_string(value) ? strtoull(json_string_value(value), NULL, 0)
                                     : (uint64_t)json_integer_value(value);
}

static bool is_of(const json_t *row, const char *device) {
        const char *name = json_string_value(json_object_get(row, "ifname"));

        return name && strcmp(name, device) == 0;
}

/* Where railmuxd has its net area. It may be mapped in several pieces. */
static uint64_t area_address(pid_t pid) {
        uint64_t begin = 0, end = 0, from, to;
        char path[64], line[512];
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
        file = fopen(path, "re");
        assert_non_null(file);
        while (fgets(line, sizeof(line), file)) {
                if (!strstr(line, "railmux-net") || sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) != 2)
                        continue;
                if (begin == 0)
                        begin = from;
                else if (from != end)
                        break;
                end = to;
        }
        fclose(file);
        if (end - begin < AREA_BYTES)
                fail_msg("railmuxd has a net area of %" PRIu64 " bytes", end - begin);
        return begin;
}

static void area_read(pid_t pid, uint64_t address, unsigned char bytes[AREA_BYTES]) {
        char path[64];
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
        file = fopen(path, "re");
        assert_non_null(file);
        assert_int_equal(fseek(file, (long)address, SEEK_SET), 0);
        assert_int_equal(fread(bytes, 1, AREA_BYTES, file), AREA_BYTES);
        fclose(file);
}

/* ---- the trial --------------------------------------------------------------------------------------------------- */
/* Keys of areas (large ones) by all queue pairs that are connected. Returns how many were tried. */
static uint32_t try_node(const struct fleet *fleet, struct adapter *stranger, uint32_t node) {
        pid_t pid = node_pids(&fleet->node[node]).daemon;
        json_t *pairs = kernel_says("qp"), *keys = kernel_says("mr"), *pair, *key;
        unsigned char *before = malloc(AREA_BYTES), *after = malloc(AREA_BYTES);
        uint32_t n_tried = 0, n_pairs = 0;
        uint64_t address = area_address(pid);
        char device[16];
        size_t i, k;

        assert_true(before && after);
        snprintf(device, sizeof(device), "rxe_%c0", (int)('a' + node));
        area_read(pid, address, before);
        json_array_foreach(pairs, i, pair) {
                const char *state = json_string_value(json_object_get(pair, "state"));
                uint32_t n_keys = 0;

                if (!is_of(pair, device) || !state || strcmp(state, "RTS") != 0 || n_pairs++ >= TARGETS)
                        continue;
                json_array_foreach(keys, k, key) {
                        struct target to = {.qpn = (uint32_t)number(pair, "lqpn"),
                                            .psn = (uint32_t)number(pair, "rq-psn"),
                                            .gid = gid_of(node),
                                            .address = address + AREA_BYTES / 2,
                                            .rkey = (uint32_t)number(key, "rkey")};

                        if (!is_of(key, device) || number(key, "mrlen") < AREA_BYTES || n_keys++ >= TARGETS)
                                continue;
                        assert_true(to.rkey != 0); /* else nothing was tried */
                        assert_int_not_equal(stranger_tries(stranger, &to, IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
                        assert_int_not_equal(stranger_tries(stranger, &to, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
                        for (uint32_t b = 0; b < SIZE; b++)
                                assert_int_equal(stranger->memory[b], LOOT);
                        n_tried += 2;
                }
        }
        area_read(pid, address, after);
        assert_memory_equal(before, after, AREA_BYTES);
        free(before);
        free(after);
        json_decref(pairs);
        json_decref(keys);
        return n_tried;
}

static void sum_up(struct team_rank *rank, struct rmx_comm *comm, uint32_t *memory) {
        for (uint32_t i = 0; i < ELEMENTS; i++)
                memory[i] = i + rank->rank;
        team_must(rank, rmx_all_reduce(comm, memory, memory, ELEMENTS, RMX_UINT32, RMX_SUM, NULL), "rmx_all_reduce");
        for (uint32_t i = 0; i < ELEMENTS; i++)
                if (memory[i] != 2 * i + 1)
                        team_wrong(rank, "a wrong element");
}

/* Two ranks that rest while they are tried. */
static void hold_comm(struct team_rank *rank) {
        uint32_t *memory = team_memory(rank, ELEMENTS * sizeof(*memory));
        struct rmx_comm *comm = team_join(rank, 0);

        sum_up(rank, comm, memory);
        team_step(rank);
        team_await_go(rank, 1);
        sum_up(rank, comm, memory);
        team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
}

void rkeys_try(struct fleet *fleet) {
        struct adapter stranger;

        adapter_open(&stranger, STRANGER, 2);
        stranger_can(&stranger);
        team_init(&fleet->team, fleet->node, 2, 2);
        team_start(&fleet->team, hold_comm);
        team_await_step(&fleet->team, 1, TEAM_ALL, (uint32_t)(STEP_MS * proc_time_scale()));
        for (uint32_t node = 0; node < 2; node++) {
                uint32_t n = try_node(fleet, &stranger, node);

                print_message("%u writes and reads with node %c's keys, none came through\n", n, (int)('a' + node));
                assert_true(n > 0);
        }
        atomic_store(&fleet->team.shared->go, 1); /* partner: team_await_go */
        team_end(&fleet->team, "a stranger with keys");
        team_cleanup(&fleet->team);
        adapter_close(&stranger);
}
