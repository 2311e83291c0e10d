/* SPDX-License-Identifier: MIT */
/* Queue pairs: their states, and what is posted to them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fabric/fake_queue.h"
#include "tests/fabric/fake_wire.h"

#define QP_MAX_RD 16

struct ibv_qp *fake_qp_create(struct ibv_pd *ibv_pd, struct ibv_qp_init_attr *attr) {
        struct fake_context *context = fake_context_of(ibv_pd->context);
        struct ibv_qp_cap cap = attr->cap;
        struct fake_qp *qp = NULL;
        int error = ENOMEM;

        world_lock();
        if (context->dead)
                error = EIO;
        else if (attr->qp_type != IBV_QPT_RC || !attr->send_cq || !attr->recv_cq || cap.max_send_wr < 1 ||
                 cap.max_send_wr > FAKE_MAX_WR || cap.max_send_sge > FAKE_SGES ||
                 attr->send_cq->context != ibv_pd->context || attr->recv_cq->context != ibv_pd->context ||
                 (attr->srq && attr->srq->context != ibv_pd->context))
                error = EINVAL;
        else if (!world_fails(FAKE_CREATE_QP, &error))
                qp = calloc(1, sizeof(*qp));
        if (cap.max_inline_data > context->device->max_inline)
                cap.max_inline_data = context->device->max_inline;
        cap.max_recv_wr = cap.max_recv_sge = 0; /* the shared queue has them */
        if (qp) {
                qp->wrs = calloc(cap.max_send_wr, sizeof(*qp->wrs));
                qp->inline_bytes = malloc((size_t)cap.max_send_wr * cap.max_inline_data + 1);
        }
        if (qp && (!qp->wrs || !qp->inline_bytes)) {
                free(qp->wrs);
                free(qp->inline_bytes);
                free(qp);
                qp = NULL;
        }
        if (qp) {
                qp->ibv.context = ibv_pd->context;
                qp->ibv.qp_context = attr->qp_context;
                qp->ibv.pd = ibv_pd;
                qp->ibv.send_cq = attr->send_cq;
                qp->ibv.recv_cq = attr->recv_cq;
                qp->ibv.srq = attr->srq;
                qp->ibv.qp_num = world.next_qp_num++ & FAKE_PSN_MASK;
                qp->ibv.qp_type = IBV_QPT_RC;
                qp->ibv.state = qp->state = IBV_QPS_RESET;
                qp->device = context->device;
                qp->cap = attr->cap = cap;
                qp->signal_all = attr->sq_sig_all;
                qp->due_ns = qp->last_ns = FAKE_NEVER;
                qp->random = world.options.seed ^ (uint64_t)++world.counters.queue_pairs << 32;
                ((struct fake_pd *)(void *)ibv_pd)->n_children++;
                ((struct fake_cq *)(void *)attr->send_cq)->n_users++;
                ((struct fake_cq *)(void *)attr->recv_cq)->n_users++;
                if (attr->srq)
                        ((struct fake_srq *)(void *)attr->srq)->n_users++;
                LIST_INSERT_HEAD(&world.qps, qp, link);
        }
        world_unlock();
        if (!qp)
                errno = error;
        return qp ? &qp->ibv : NULL;
}

void fake_qp_free(struct fake_qp *qp) {
        LIST_REMOVE(qp, link);
        free(qp->wrs);
        free(qp->inline_bytes);
        free(qp);
}

int fake_qp_destroy(struct ibv_qp *ibv) {
        struct fake_qp *qp = (struct fake_qp *)(void *)ibv;

        world_lock();
        /* No more events of it from here on, but it may still be written to by the other end until it is away. */
        world_quiet();
        qp->state = IBV_QPS_RESET;
        fake_context_forget(fake_context_of(ibv->context), ibv);
        world_acked(&qp->acks, "destroy_qp");
        world_quiet();
        fake_cq_forget((struct fake_cq *)(void *)ibv->send_cq, qp, world.options.stale);
        fake_cq_forget((struct fake_cq *)(void *)ibv->recv_cq, qp, world.options.stale);
        ((struct fake_pd *)(void *)ibv->pd)->n_children--;
        ((struct fake_cq *)(void *)ibv->send_cq)->n_users--;
        ((struct fake_cq *)(void *)ibv->recv_cq)->n_users--;
        if (ibv->srq)
                ((struct fake_srq *)(void *)ibv->srq)->n_users--;
        fake_qp_free(qp);
        world_unlock();
        return 0;
}

/* ---------------------------------------------------------------------------------------------------------- states */

/* Of a reliable connection. Everything may also go to RESET and ERR. */
static const struct qp_step {
        enum ibv_qp_state from, to;
        int required, optional;
} qp_steps[] = {
        {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
        {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
        {IBV_QPS_INIT, IBV_QPS_RTR,
         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                 IBV_QP_MIN_RNR_TIMER,
         IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
        {IBV_QPS_RTR, IBV_QPS_RTS,
         IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
         IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
        {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

static bool qp_step_allowed(const struct fake_qp *qp, enum ibv_qp_state to, int mask) {
        int given = mask & ~IBV_QP_STATE;

        if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
                return (given & ~IBV_QP_CUR_STATE) == 0;
        for (size_t i = 0; i < sizeof(qp_steps) / sizeof(qp_steps[0]); i++)
                if (qp_steps[i].from == qp->state && qp_steps[i].to == to)
                        return (given & qp_steps[i].required) == qp_steps[i].required &&
                               (given & ~(qp_steps[i].required | qp_steps[i].optional)) == 0;
        return false;
}

static bool qp_values_allowed(const struct fake_qp *qp, const struct ibv_qp_attr *attr, int mask) {
        const struct ibv_ah_attr *ah = &attr->ah_attr;

        if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->state)
                return false;
        if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index != 0)
                return false;
        if (mask & IBV_QP_PORT && attr->port_num != 1)
                return false;
        /* Over Ethernet an address without a GRH is none. */
        if (mask & IBV_QP_AV && (!ah->is_global || ah->port_num != 1 || ah->grh.sgid_index >= FAKE_GIDS ||
                                 !fake_gid_is_set(&qp->device->gids[ah->grh.sgid_index])))
                return false;
        if (mask & IBV_QP_PATH_MTU && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > FAKE_MAX_MTU))
                return false;
        if (mask & IBV_QP_DEST_QPN && attr->dest_qp_num > FAKE_PSN_MASK)
                return false;
        if ((mask & IBV_QP_RQ_PSN && attr->rq_psn > FAKE_PSN_MASK) ||
            (mask & IBV_QP_SQ_PSN && attr->sq_psn > FAKE_PSN_MASK))
                return false;
        if ((mask & IBV_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > QP_MAX_RD) ||
            (mask & IBV_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > QP_MAX_RD))
                return false;
        if ((mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31) ||
            (mask & IBV_QP_TIMEOUT && attr->timeout > 31) || (mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7) ||
            (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7))
                return false;
        return true;
}

static void qp_take(struct fake_qp *qp, const struct ibv_qp_attr *attr, int mask) {
        if (mask & IBV_QP_ACCESS_FLAGS)
                qp->attr.qp_access_flags = attr->qp_access_flags;
        if (mask & IBV_QP_AV)
                qp->attr.ah_attr = attr->ah_attr;
        if (mask & IBV_QP_PATH_MTU)
                qp->attr.path_mtu = attr->path_mtu;
        if (mask & IBV_QP_DEST_QPN)
                qp->attr.dest_qp_num = attr->dest_qp_num;
        if (mask & IBV_QP_RQ_PSN)
                qp->attr.rq_psn = attr->rq_psn;
        if (mask & IBV_QP_SQ_PSN)
                qp->attr.sq_psn = attr->sq_psn;
        if (mask & IBV_QP_TIMEOUT)
                qp->attr.timeout = attr->timeout;
        if (mask & IBV_QP_RNR_RETRY)
                qp->attr.rnr_retry = attr->rnr_retry;
}

/* As new: what was posted is gone without completions. */
static void qp_reset(struct fake_qp *qp) {
        fake_cq_forget((struct fake_cq *)(void *)qp->ibv.send_cq, qp, false);
        fake_cq_forget((struct fake_cq *)(void *)qp->ibv.recv_cq, qp, false);
        qp->sent = qp->done = qp->freed = qp->posted;
        qp->due_ns = qp->last_ns = FAKE_NEVER;
        qp->stuck_ns = qp->empty_ns = 0;
        qp->has_last = false;
        memset(&qp->attr, 0, sizeof(qp->attr));
        qp->state = IBV_QPS_RESET;
}

int fake_qp_modify(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask) {
        struct fake_qp *qp = (struct fake_qp *)(void *)ibv;
        enum ibv_qp_state to;
        int r = 0;

        world_lock();
        world_quiet();
        to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
        if (fake_context_of(ibv->context)->dead)
                r = EIO;
        else if (!qp_step_allowed(qp, to, mask) || !qp_values_allowed(qp, attr, mask))
                r = EINVAL;
        else if (!world_fails(FAKE_MODIFY_QP, &r)) {
                qp_take(qp, attr, mask);
                if (to == IBV_QPS_RESET)
                        qp_reset(qp);
                else if (to == IBV_QPS_ERR)
                        fake_qp_error(qp);
                qp->state = to;
                ibv->state = to;
                world_kick(); /* others may have waited for it */
        }
        world_unlock();
        return r;
}

/* --------------------------------------------------------------------------------------------------------- posting */

static int qp_post_one(struct fake_qp *qp, const struct ibv_send_wr *from) {
        struct fake_wr *wr = fake_qp_wr(qp, qp->posted);
        bool is_inline = from->send_flags & IBV_SEND_INLINE;
        uint64_t length = 0;
        uint8_t *bytes;
        int r = 0;

        if (fake_context_of(qp->ibv.context)->dead)
                return EIO;
        if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR)
                return EINVAL;
        if (from->opcode != IBV_WR_RDMA_WRITE && from->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
                return EINVAL;
        if (from->num_sge < 0 || (uint32_t)from->num_sge > qp->cap.max_send_sge)
                return EINVAL;
        for (int i = 0; i < from->num_sge; i++)
                length += from->sg_list[i].length;
        if (length > UINT32_C(1) << 30 || (is_inline && length > qp->cap.max_inline_data))
                return EINVAL;
        if (qp->posted - qp->freed == qp->cap.max_send_wr)
                return ENOMEM;
        if (world_fails(FAKE_POST_SEND, &r))
                return r;
        *wr = (struct fake_wr){.wr_id = from->wr_id,
                               .remote_addr = from->wr.rdma.remote_addr,
                               .rkey = from->wr.rdma.rkey,
                               .opcode = from->opcode,
                               .length = (uint32_t)length,
                               .imm_data = from->imm_data,
                               .signalled = qp->signal_all || from->send_flags & IBV_SEND_SIGNALED,
                               .is_inline = is_inline,
                               .fail_at = FAKE_NEVER,
                               .n_sge = (uint32_t)from->num_sge};
        bytes = qp->inline_bytes + qp->posted % qp->cap.max_send_wr * qp->cap.max_inline_data;
        for (int i = 0; i < from->num_sge; i++) {
                wr->sges[i] = from->sg_list[i];
                if (!is_inline)
                        continue;
                memcpy(bytes, (const void *)(uintptr_t)from->sg_list[i].addr, from->sg_list[i].length);
                wr->sges[i].addr = (uintptr_t)bytes;
                bytes += from->sg_list[i].length;
        }
        qp->posted++;
        world.counters.sends++;
        return 0;
}

int fake_qp_post(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad) {
        struct fake_qp *qp = (struct fake_qp *)(void *)ibv;
        bool idle;
        int r = 0;

        world_lock();
        idle = qp->sent == qp->posted;
        for (; wr; wr = wr->next) {
                r = qp_post_one(qp, wr);
                if (r) {
                        *ret_bad = wr;
                        break;
                }
        }
        if (idle && qp->sent < qp->posted)
                fake_qp_schedule(qp);
        world_unlock();
        return r;
}
