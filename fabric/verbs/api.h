/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The calls of libibverbs that the fabric makes, as a table: so that tests can put an adapter of their own in place of
 * real ones, with faults that no soft one can be brought to. Meanings, ownership and errors are those of the calls of
 * the same name (ibv_ before it); where a man page says "errno", so it is here.
 */
#include <infiniband/verbs.h>

struct verbs_api {
        int (*fork_init)(void); /* may be NULL; before all others */
        struct ibv_device **(*get_device_list)(int *ret_n);
        void (*free_device_list)(struct ibv_device **list);
        const char *(*get_device_name)(struct ibv_device *device);
        struct ibv_context *(*open_device)(
                struct ibv_device *device); /* its async_fd is polled and made non-blocking */
        int (*close_device)(struct ibv_context *context);
        int (*query_device)(struct ibv_context *context, struct ibv_device_attr *ret_attr);
        int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *ret_attr);
        ssize_t (*query_gid_table)(struct ibv_context *context, struct ibv_gid_entry *ret_entries, size_t max);
        int (*get_async_event)(struct ibv_context *context, struct ibv_async_event *ret_event);
        void (*ack_async_event)(struct ibv_async_event *event);

        struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
        int (*dealloc_pd)(struct ibv_pd *pd);
        struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *address, size_t bytes, int access);
        int (*dereg_mr)(struct ibv_mr *mr);

        struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context); /* fd: as async_fd */
        int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
        struct ibv_cq *(*create_cq)(struct ibv_context *context, int n, struct ibv_comp_channel *channel);
        int (*destroy_cq)(struct ibv_cq *cq);
        int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_context);
        void (*ack_cq_events)(struct ibv_cq *cq, unsigned int n);
        int (*req_notify_cq)(struct ibv_cq *cq);
        int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *ret_wc);

        struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
        int (*destroy_srq)(struct ibv_srq *srq);
        int (*post_srq_recv)(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad);
        struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
        int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
        int (*destroy_qp)(struct ibv_qp *qp);
        int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
};

/* libibverbs itself. */
extern const struct verbs_api verbs_libibverbs;
