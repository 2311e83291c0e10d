/* SPDX-License-Identifier: MIT */
#pragma once
/* Completion channels, completion queues, shared receive queues and queue pairs of the fake adapters, as calls. */
#include "tests/fabric/fake_world.h"

struct ibv_comp_channel *fake_channel_create(struct ibv_context *context);
int fake_channel_destroy(struct ibv_comp_channel *channel);
void fake_channel_free(struct fake_channel *channel);
struct ibv_cq *fake_cq_create(struct ibv_context *context, int n, struct ibv_comp_channel *channel);
int fake_cq_destroy(struct ibv_cq *cq);
void fake_cq_free(struct fake_cq *cq);
int fake_cq_get_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_context);
void fake_cq_ack_events(struct ibv_cq *cq, unsigned int n);
int fake_cq_req_notify(struct ibv_cq *cq);
int fake_cq_poll(struct ibv_cq *cq, int n, struct ibv_wc *ret_wc);
/* With the lock: another completion, and perhaps an event. */
void fake_cq_push(struct fake_cq *cq, const struct fake_cqe *entry);
/* With the lock: what a queue pair that goes has in its queues. keep: but completions stay to be polled. */
void fake_cq_forget(struct fake_cq *cq, const struct fake_qp *qp, bool keep);

struct ibv_srq *fake_srq_create(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int fake_srq_destroy(struct ibv_srq *srq);
void fake_srq_free(struct fake_srq *srq);
int fake_srq_post(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad);

struct ibv_qp *fake_qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int fake_qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int fake_qp_destroy(struct ibv_qp *qp);
void fake_qp_free(struct fake_qp *qp);
int fake_qp_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
