/* SPDX-License-Identifier: MIT */
#include "fabric/verbs/api.h"

#include <stddef.h>

/* Some of them are macros or inline. */

static struct ibv_device **api_get_device_list(int *ret_n) {
        return ibv_get_device_list(ret_n);
}

static const char *api_get_device_name(struct ibv_device *device) {
        return ibv_get_device_name(device);
}

static int api_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *ret_attr) {
        return ibv_query_port(context, port, ret_attr);
}

static ssize_t api_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *ret_entries, size_t max) {
        return ibv_query_gid_table(context, ret_entries, max, 0);
}

static struct ibv_mr *api_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access) {
        return ibv_reg_mr(pd, address, bytes, access);
}

static struct ibv_cq *api_create_cq(struct ibv_context *context, int n, struct ibv_comp_channel *channel) {
        return ibv_create_cq(context, n, NULL, channel, 0);
}

static int api_req_notify_cq(struct ibv_cq *cq) {
        return ibv_req_notify_cq(cq, 0);
}

static int api_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *ret_wc) {
        return ibv_poll_cq(cq, n, ret_wc);
}

static int api_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad) {
        return ibv_post_srq_recv(srq, wr, ret_bad);
}

static int api_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad) {
        return ibv_post_send(qp, wr, ret_bad);
}

const struct verbs_api verbs_libibverbs = {
        .fork_init = ibv_fork_init,
        .get_device_list = api_get_device_list,
        .free_device_list = ibv_free_device_list,
        .get_device_name = api_get_device_name,
        .open_device = ibv_open_device,
        .close_device = ibv_close_device,
        .query_device = ibv_query_device,
        .query_port = api_query_port,
        .query_gid_table = api_query_gid_table,
        .get_async_event = ibv_get_async_event,
        .ack_async_event = ibv_ack_async_event,
        .alloc_pd = ibv_alloc_pd,
        .dealloc_pd = ibv_dealloc_pd,
        .reg_mr = api_reg_mr,
        .dereg_mr = ibv_dereg_mr,
        .create_comp_channel = ibv_create_comp_channel,
        .destroy_comp_channel = ibv_destroy_comp_channel,
        .create_cq = api_create_cq,
        .destroy_cq = ibv_destroy_cq,
        .get_cq_event = ibv_get_cq_event,
        .ack_cq_events = ibv_ack_cq_events,
        .req_notify_cq = api_req_notify_cq,
        .poll_cq = api_poll_cq,
        .create_srq = ibv_create_srq,
        .destroy_srq = ibv_destroy_srq,
        .post_srq_recv = api_post_srq_recv,
        .create_qp = ibv_create_qp,
        .modify_qp = ibv_modify_qp,
        .destroy_qp = ibv_destroy_qp,
        .post_send = api_post_send,
};
