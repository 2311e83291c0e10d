/* SPDX-License-Identifier: MIT */
#include "tests/fabric/fake_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------------------------- channels */

struct ibv_comp_channel *fake_channel_create(struct ibv_context *ibv_context) {
        struct fake_context *context = fake_context_of(ibv_context);
        struct fake_channel *channel = NULL;
        int error = ENOMEM;

        world_lock();
        if (context->dead)
                error = EIO;
        else if (!world_fails(FAKE_CREATE_COMP_CHANNEL, &error))
                channel = calloc(1, sizeof(*channel));
        if (channel && !fake_bell_new(&channel->bell)) {
                free(channel);
                channel = NULL;
        }
        if (channel) {
                channel->ibv.context = ibv_context;
                channel->ibv.fd = channel->bell.fds[0];
                STAILQ_INIT(&channel->rings);
                context->n_children++;
                LIST_INSERT_HEAD(&world.channels, channel, link);
        }
        world_unlock();
        if (!channel)
                errno = error;
        return channel ? &channel->ibv : NULL;
}

void fake_channel_free(struct fake_channel *channel) {
        struct fake_ring *ring;

        while ((ring = STAILQ_FIRST(&channel->rings))) {
                STAILQ_REMOVE_HEAD(&channel->rings, link);
                free(ring);
        }
        LIST_REMOVE(channel, link);
        fake_bell_free(&channel->bell);
        free(channel);
}

int fake_channel_destroy(struct ibv_comp_channel *ibv) {
        struct fake_channel *channel = (struct fake_channel *)(void *)ibv;
        int r = 0;

        world_lock();
        if (ibv->refcnt > 0) {
                world_problem("a completion channel is destroyed before its %d completion queues", ibv->refcnt);
                r = EBUSY;
        } else {
                fake_context_of(ibv->context)->n_children--;
                fake_channel_free(channel);
        }
        world_unlock();
        return r;
}

/* --------------------------------------------------------------------------------------------- completion queues */

struct ibv_cq *fake_cq_create(struct ibv_context *ibv_context, int n, struct ibv_comp_channel *channel) {
        struct fake_context *context = fake_context_of(ibv_context);
        struct fake_cq *cq = NULL;
        int error = ENOMEM;

        world_lock();
        if (context->dead)
                error = EIO;
        else if (n < 1 || n > FAKE_MAX_CQE || (channel && channel->context != ibv_context))
                error = EINVAL;
        else if (!world_fails(FAKE_CREATE_CQ, &error))
                cq = calloc(1, sizeof(*cq));
        if (cq)
                cq->entries = calloc((size_t)n, sizeof(*cq->entries));
        if (cq && !cq->entries) {
                free(cq);
                cq = NULL;
        }
        if (cq) {
                cq->ibv.context = ibv_context;
                cq->ibv.channel = channel;
                cq->ibv.cqe = n;
                if (channel)
                        channel->refcnt++;
                context->n_children++;
                LIST_INSERT_HEAD(&world.cqs, cq, link);
        }
        world_unlock();
        if (!cq)
                errno = error;
        return cq ? &cq->ibv : NULL;
}

/* Events that nobody has read go with it. */
static void cq_unring(struct fake_cq *cq) {
        struct fake_channel *channel = (struct fake_channel *)(void *)cq->ibv.channel;
        struct fake_ring *ring = channel ? STAILQ_FIRST(&channel->rings) : NULL, *next;

        for (; ring; ring = next) {
                next = STAILQ_NEXT(ring, link);
                if (ring->cq != cq)
                        continue;
                STAILQ_REMOVE(&channel->rings, ring, fake_ring, link);
                free(ring);
                fake_bell_undo(&channel->bell);
        }
}

void fake_cq_free(struct fake_cq *cq) {
        LIST_REMOVE(cq, link);
        free(cq->entries);
        free(cq);
}

int fake_cq_destroy(struct ibv_cq *ibv) {
        struct fake_cq *cq = (struct fake_cq *)(void *)ibv;
        int r = 0;

        world_lock();
        if (cq->n_users > 0) {
                world_problem("a completion queue is destroyed before its %u queue pairs", cq->n_users);
                r = EBUSY;
        } else {
                cq_unring(cq);
                fake_context_forget(fake_context_of(ibv->context), ibv);
                world_acked(&cq->rings, "destroy_cq");
                world_acked(&cq->acks, "destroy_cq");
                fake_context_of(ibv->context)->n_children--;
                if (ibv->channel)
                        ibv->channel->refcnt--;
                fake_cq_free(cq);
        }
        world_unlock();
        return r;
}

int fake_cq_get_event(struct ibv_comp_channel *ibv, struct ibv_cq **ret_cq, void **ret_context) {
        struct fake_channel *channel = (struct fake_channel *)(void *)ibv;

        for (;;) {
                struct fake_ring *ring;

                if (fake_bell_take(&channel->bell) < 0)
                        return -1;
                world_lock();
                ring = STAILQ_FIRST(&channel->rings);
                if (ring) {
                        STAILQ_REMOVE_HEAD(&channel->rings, link);
                        ring->cq->rings.read++;
                        *ret_cq = &ring->cq->ibv;
                        *ret_context = ring->cq->ibv.cq_context;
                        free(ring);
                }
                world_unlock();
                if (ring) /* else its queue was destroyed meanwhile */
                        return 0;
        }
}

void fake_cq_ack_events(struct ibv_cq *ibv, unsigned int n) {
        struct fake_cq *cq = (struct fake_cq *)(void *)ibv;

        world_lock();
        cq->rings.acked += n;
        if (cq->rings.acked > cq->rings.read)
                world_problem("ack_cq_events: %llu acknowledged, %llu read", (unsigned long long)cq->rings.acked,
                              (unsigned long long)cq->rings.read);
        pthread_cond_broadcast(&world.calm);
        world_unlock();
}

int fake_cq_req_notify(struct ibv_cq *ibv) {
        struct fake_cq *cq = (struct fake_cq *)(void *)ibv;
        int r = 0;

        world_lock();
        if (!world_fails(FAKE_REQ_NOTIFY_CQ, &r)) /* also on a dead device: what was flushed wants to be seen */
                cq->armed = true;
        world_unlock();
        return r;
}

int fake_cq_poll(struct ibv_cq *ibv, int n, struct ibv_wc *ret_wc) {
        struct fake_cq *cq = (struct fake_cq *)(void *)ibv;
        int i = 0, error;

        world_lock();
        if (world_fails(FAKE_POLL_CQ, &error)) {
                world_unlock();
                return -error;
        }
        for (; i < n && cq->n > 0; i++) {
                const struct fake_cqe *entry = &cq->entries[cq->first];

                ret_wc[i] = entry->wc;
                if (entry->qp && entry->qp->freed < entry->slots)
                        entry->qp->freed = entry->slots;
                cq->first = (cq->first + 1) % (uint32_t)ibv->cqe;
                cq->n--;
        }
        world_unlock();
        return i;
}

void fake_cq_push(struct fake_cq *cq, const struct fake_cqe *entry) {
        struct fake_channel *channel = (struct fake_channel *)(void *)cq->ibv.channel;
        struct fake_ring *ring;

        if (cq->n == (uint32_t)cq->ibv.cqe) {
                if (!cq->overrun) {
                        world_problem("a completion queue of %d overran", cq->ibv.cqe);
                        fake_context_event(fake_context_of(cq->ibv.context), IBV_EVENT_CQ_ERR, cq);
                }
                cq->overrun = true;
                return;
        }
        cq->entries[(cq->first + cq->n++) % (uint32_t)cq->ibv.cqe] = *entry;
        if (!cq->armed || !channel)
                return;
        cq->armed = false;
        ring = calloc(1, sizeof(*ring));
        if (!ring)
                abort();
        ring->cq = cq;
        STAILQ_INSERT_TAIL(&channel->rings, ring, link);
        if (!fake_bell_ring(&channel->bell))
                world_problem("nobody reads the events of a completion channel");
}

void fake_cq_forget(struct fake_cq *cq, const struct fake_qp *qp, bool keep) {
        uint32_t n = cq->n, kept = 0, size = (uint32_t)cq->ibv.cqe;

        for (uint32_t i = 0; i < n; i++) {
                struct fake_cqe entry = cq->entries[(cq->first + i) % size];

                if (entry.qp == qp)
                        entry.qp = NULL;
                if (entry.wc.qp_num != qp->ibv.qp_num || keep)
                        cq->entries[(cq->first + kept++) % size] = entry;
        }
        cq->n = kept;
}

/* ------------------------------------------------------------------------------------------ shared receive queues */

struct ibv_srq *fake_srq_create(struct ibv_pd *ibv_pd, struct ibv_srq_init_attr *attr) {
        struct fake_pd *pd = (struct fake_pd *)(void *)ibv_pd;
        struct fake_srq *srq = NULL;
        int error = ENOMEM;

        world_lock();
        if (fake_context_of(ibv_pd->context)->dead)
                error = EIO;
        else if (attr->attr.max_wr < 1 || attr->attr.max_wr > FAKE_MAX_WR || attr->attr.max_sge > FAKE_SGES)
                error = EINVAL;
        else if (!world_fails(FAKE_CREATE_SRQ, &error))
                srq = calloc(1, sizeof(*srq));
        if (srq)
                srq->ids = calloc(attr->attr.max_wr, sizeof(*srq->ids));
        if (srq && !srq->ids) {
                free(srq);
                srq = NULL;
        }
        if (srq) {
                srq->ibv.context = ibv_pd->context;
                srq->ibv.pd = ibv_pd;
                srq->ibv.srq_context = attr->srq_context;
                srq->max_wr = attr->attr.max_wr;
                srq->max_sge = attr->attr.max_sge;
                pd->n_children++;
                LIST_INSERT_HEAD(&world.srqs, srq, link);
        }
        world_unlock();
        if (!srq)
                errno = error;
        return srq ? &srq->ibv : NULL;
}

void fake_srq_free(struct fake_srq *srq) {
        LIST_REMOVE(srq, link);
        free(srq->ids);
        free(srq);
}

int fake_srq_destroy(struct ibv_srq *ibv) {
        struct fake_srq *srq = (struct fake_srq *)(void *)ibv;
        int r = 0;

        world_lock();
        if (srq->n_users > 0) {
                world_problem("a shared receive queue is destroyed before its %u queue pairs", srq->n_users);
                r = EBUSY;
        } else {
                ((struct fake_pd *)(void *)ibv->pd)->n_children--;
                fake_srq_free(srq);
        }
        world_unlock();
        return r;
}

int fake_srq_post(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad) {
        struct fake_srq *srq = (struct fake_srq *)(void *)ibv;
        int r = 0;

        world_lock();
        for (; wr; wr = wr->next) {
                if (fake_context_of(ibv->context)->dead)
                        r = EIO;
                else if (wr->num_sge < 0 || (uint32_t)wr->num_sge > srq->max_sge)
                        r = EINVAL;
                else if (srq->n == srq->max_wr)
                        r = ENOMEM;
                else if (world_fails(FAKE_POST_SRQ_RECV, &r)) {
                }
                if (r) {
                        *ret_bad = wr;
                        break;
                }
                srq->ids[(srq->first + srq->n++) % srq->max_wr] = wr->wr_id;
        }
        world_kick(); /* who found it empty tries again */
        world_unlock();
        return r;
}
