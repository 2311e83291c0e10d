/* SPDX-License-Identifier: MIT */
#include "tests/fabric/fake_ends.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cmocka_all.h"

#define END_WAIT_MS 20000

static void fd_nonblocking(int fd) {
        assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

void fake_end_open(struct fake_end *end, const char *name, const struct fake_usage *usage) {
        const struct verbs_api *api = fake_verbs();
        struct ibv_srq_init_attr srq = {.attr = {.max_wr = 256}};
        struct ibv_gid_entry entries[16];
        struct ibv_device **list;
        ssize_t n_gids;
        int n;

        list = api->get_device_list(&n);
        assert_non_null(list);
        for (int i = 0; i < n; i++)
                if (strcmp(api->get_device_name(list[i]), name) == 0)
                        end->context = api->open_device(list[i]);
        api->free_device_list(list);
        assert_non_null(end->context);
        fd_nonblocking(end->context->async_fd);
        n_gids = api->query_gid_table(end->context, entries, 16);
        assert_true(n_gids > 0);
        end->gid_index = (uint8_t)entries[n_gids - 1].gid_index;
        end->gid = entries[n_gids - 1].gid;
        end->pd = api->alloc_pd(end->context);
        assert_non_null(end->pd);
        end->channel = api->create_comp_channel(end->context);
        assert_non_null(end->channel);
        fd_nonblocking(end->channel->fd);
        end->cq = api->create_cq(end->context, usage->n_cqe ? (int)usage->n_cqe : 256, end->channel);
        assert_non_null(end->cq);
        end->srq = api->create_srq(end->pd, &srq);
        assert_non_null(end->srq);
        fake_end_receives(end, usage->n_receives ? usage->n_receives : 64);
        end->memory = malloc(END_BYTES);
        assert_non_null(end->memory);
        memset(end->memory, 0, END_BYTES);
        end->mr = api->reg_mr(end->pd, end->memory, END_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        assert_non_null(end->mr);
        end->qp = NULL;
}

void fake_end_qp(struct fake_end *end) {
        struct ibv_qp_init_attr attr = {.send_cq = end->cq,
                                        .recv_cq = end->cq,
                                        .srq = end->srq,
                                        .cap = {.max_send_wr = END_SLOTS, .max_send_sge = 2, .max_inline_data = 128},
                                        .qp_type = IBV_QPT_RC};

        end->qp = fake_verbs()->create_qp(end->pd, &attr);
        assert_non_null(end->qp);
        end->inline_bytes = attr.cap.max_inline_data;
        end->psn = 0xfffff0 + end->qp->qp_num % 16; /* it wraps soon */
}

int fake_end_init(struct fake_end *end, unsigned int access) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};

        return fake_verbs()->modify_qp(end->qp, &attr,
                                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int fake_end_rtr(struct fake_end *end, const struct fake_end *other, uint32_t psn) {
        struct ibv_qp_attr attr = {
                .qp_state = IBV_QPS_RTR,
                .path_mtu = IBV_MTU_1024,
                .dest_qp_num = other->qp->qp_num,
                .rq_psn = psn,
                .min_rnr_timer = 1,
                .ah_attr = {.is_global = 1,
                            .port_num = 1,
                            .grh = {.dgid = other->gid, .sgid_index = end->gid_index, .hop_limit = 64}}};

        return fake_verbs()->modify_qp(end->qp, &attr,
                                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int fake_end_rts(struct fake_end *end, uint8_t rnr_retry) {
        struct ibv_qp_attr attr = {
                .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = rnr_retry, .sq_psn = end->psn};

        return fake_verbs()->modify_qp(end->qp, &attr,
                                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int fake_end_err(struct fake_end *end) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

        return fake_verbs()->modify_qp(end->qp, &attr, IBV_QP_STATE);
}

void fake_ends_connect(struct fake_end ends[2], const struct fake_usage *usage) {
        for (unsigned int i = 0; i < 2; i++)
                fake_end_qp(&ends[i]);
        ends[0].gid_index = (uint8_t)(ends[0].gid_index - usage->gid_index_less);
        for (unsigned int i = 0; i < 2; i++) {
                assert_int_equal(fake_end_init(&ends[i], IBV_ACCESS_REMOTE_WRITE & ~(i ? usage->no_access : 0)), 0);
                assert_int_equal(
                        fake_end_rtr(&ends[i], &ends[!i], (ends[!i].psn + (i ? usage->psn_more : 0)) & 0xffffff), 0);
                assert_int_equal(fake_end_rts(&ends[i], (uint8_t)(7 - usage->rnr_retry_less)), 0);
        }
        ends[0].gid_index = (uint8_t)(ends[0].gid_index + usage->gid_index_less);
}

void fake_end_disconnect(struct fake_end *end) {
        assert_int_equal(fake_verbs()->destroy_qp(end->qp), 0);
        end->qp = NULL;
}

void fake_end_close(struct fake_end *end) {
        const struct verbs_api *api = fake_verbs();

        if (end->qp)
                fake_end_disconnect(end);
        if (end->mr)
                assert_int_equal(api->dereg_mr(end->mr), 0);
        assert_int_equal(api->destroy_srq(end->srq), 0);
        assert_int_equal(api->destroy_cq(end->cq), 0);
        assert_int_equal(api->destroy_comp_channel(end->channel), 0);
        assert_int_equal(api->dealloc_pd(end->pd), 0);
        assert_int_equal(api->close_device(end->context), 0);
        free(end->memory);
}

struct ibv_send_wr fake_end_wr(const struct fake_end *end, const struct fake_end *other, struct ibv_sge *sge,
                               uint32_t offset, uint32_t bytes) {
        *sge = (struct ibv_sge){.addr = (uintptr_t)(end->memory + offset), .length = bytes, .lkey = end->mr->lkey};
        return (struct ibv_send_wr){
                .wr_id = offset,
                .sg_list = sge,
                .num_sge = bytes > 0,
                .opcode = IBV_WR_RDMA_WRITE,
                .wr.rdma = {.remote_addr = (uintptr_t)(other->memory + offset), .rkey = other->mr->rkey}};
}

int fake_end_post(struct fake_end *end, struct ibv_send_wr *wr) {
        struct ibv_send_wr *bad;

        return fake_verbs()->post_send(end->qp, wr, &bad);
}

int fake_end_send(struct fake_end *end, const struct fake_end *other, uint32_t offset, uint32_t bytes) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = fake_end_wr(end, other, &sge, offset, bytes);

        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.imm_data = htonl(offset);
        wr.send_flags = IBV_SEND_SIGNALED;
        return fake_end_post(end, &wr);
}

void fake_end_receives(struct fake_end *end, uint32_t n) {
        struct ibv_recv_wr wr = {.wr_id = 7000}, *bad;

        for (uint32_t i = 0; i < n; i++)
                assert_int_equal(fake_verbs()->post_srq_recv(end->srq, &wr, &bad), 0);
}

int fake_end_poll(struct fake_end *end, struct ibv_wc *ret_wc) {
        return fake_verbs()->poll_cq(end->cq, 1, ret_wc);
}

struct ibv_wc fake_end_wait(struct fake_end *end) {
        const struct verbs_api *api = fake_verbs();
        struct pollfd fd = {.fd = end->channel->fd, .events = POLLIN};
        struct ibv_wc wc;

        while (fake_end_poll(end, &wc) == 0) {
                struct ibv_cq *cq;
                void *data;

                assert_int_equal(api->req_notify_cq(end->cq), 0);
                if (fake_end_poll(end, &wc) > 0) /* came before the arming */
                        break;
                if (poll(&fd, 1, END_WAIT_MS) != 1)
                        fail_msg("no completion");
                while (api->get_cq_event(end->channel, &cq, &data) == 0)
                        api->ack_cq_events(cq, 1);
        }
        return wc;
}

enum ibv_event_type fake_end_event(struct fake_end *end) {
        struct pollfd fd = {.fd = end->context->async_fd, .events = POLLIN};
        struct ibv_async_event event;

        if (poll(&fd, 1, END_WAIT_MS) != 1)
                fail_msg("no event");
        assert_int_equal(fake_verbs()->get_async_event(end->context, &event), 0);
        fake_verbs()->ack_async_event(&event);
        return event.event_type;
}
