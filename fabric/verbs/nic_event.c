/* SPDX-License-Identifier: MIT */
/*
 * What an adapter says unasked. Events of a port may come twice, and one queue has those of all ports of a device, so
 * handlers look at the port and do nothing that would not bear to be done again.
 */
#include "fabric/verbs/verbs.h"

#include <errno.h>
#include <sys/epoll.h>

#define LINK_LIVES_NS UINT64_C(1000000000)

void link_doom(struct verbs_link *link, bool failed, uint64_t now_ns, const char *why) {
        failed = failed || now_ns - link->conn->started_ns < LINK_LIVES_NS;
        conn_doom(link->conn, failed, "%s: %s", link->nic->device, why);
}

static void nic_doom_all(struct verbs_nic *nic, const char *why) {
        struct verbs_link *link, *tmp;

        HASH_ITER(hh, nic->links, link, tmp)
                conn_doom(link->conn, true, "%s: %s", nic->device, why);
}

/* The fds of a device that was taken away are ready for ever: its rail's thread would turn on and on, with the lock
 * that the other rails want. */
static void nic_unwatch(struct verbs_nic *nic) {
        (void)epoll_ctl(nic->rail->epoll_fd, EPOLL_CTL_DEL, nic->context->async_fd, NULL);
        (void)epoll_ctl(nic->rail->epoll_fd, EPOLL_CTL_DEL, nic->channel->fd, NULL);
}

void nic_failed(struct verbs_nic *nic, const char *why) {
        if (!nic->fatal)
                nic_unwatch(nic);
        nic->fatal = true;
        nic_doom_all(nic, why);
}

static struct verbs_link *nic_link_of_qp(const struct verbs_nic *nic, const struct ibv_qp *qp) {
        struct verbs_link *link, *tmp;

        HASH_ITER(hh, nic->links, link, tmp) {
                if (link->qp == qp)
                        return link;
        }
        return NULL;
}

static void nic_heard(struct verbs_nic *nic, const struct ibv_async_event *event, uint64_t now_ns) {
        struct verbs_link *link;

        switch (event->event_type) {
        case IBV_EVENT_PORT_ERR:
                if (event->element.port_num != nic->port)
                        break;
                nic->active = false;
                nic->look = true;
                nic_doom_all(nic, "the port is down");
                break;
        case IBV_EVENT_PORT_ACTIVE:
        case IBV_EVENT_GID_CHANGE:
        case IBV_EVENT_LID_CHANGE:
        case IBV_EVENT_PKEY_CHANGE:
        case IBV_EVENT_CLIENT_REREGISTER:
                nic->look = true;
                break;
        case IBV_EVENT_DEVICE_FATAL:
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_SRQ_ERR:
                nic_failed(nic, "the adapter has failed");
                break;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
                link = nic_link_of_qp(nic, event->element.qp);
                if (link) /* not the rail's fault */
                        link_doom(link, false, now_ns, "a queue pair has failed");
                break;
        case IBV_EVENT_QP_LAST_WQE_REACHED:
                link = nic->ending && nic->ending->qp == event->element.qp ? nic->ending
                                                                           : nic_link_of_qp(nic, event->element.qp);
                if (link)
                        link->last = true;
                break;
        default:
                break;
        }
}

void nic_event(struct fabric_rail *rail, uint64_t now_ns) {
        struct verbs_nic *nic = nic_of(rail);
        struct ibv_async_event event;
        unsigned int n_events = 0;
        struct ibv_cq *cq;
        void *context;
        bool lost;

        while (nic->api->get_async_event(nic->context, &event) == 0) {
                nic_heard(nic, &event, now_ns);
                nic->api->ack_async_event(&event);
        }
        lost = errno != EAGAIN && errno != EINTR;
        while (nic->api->get_cq_event(nic->channel, &cq, &context) == 0)
                n_events++;
        lost |= errno != EAGAIN && errno != EINTR;
        if (n_events > 0) {
                nic->api->ack_cq_events(nic->cq, n_events);
                nic->armed = false;
        }
        if (lost)
                nic_failed(nic, "the adapter's events cannot be read");
        rail->again = true;
}
