/* SPDX-License-Identifier: MIT */
/* What a test makes and breaks, and the table of calls. */
#include "tests/fabric/fake_verbs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cmocka_all.h"
#include "tests/fabric/fake_device.h"
#include "tests/fabric/fake_queue.h"
#include "tests/fabric/fake_wire.h"

enum { GID_LINK_LOCAL, GID_V1, GID_V2 }; /* indices at first */

struct fake_device *fake_device_add(const char *name, const char *address) {
        struct fake_device *device = calloc(1, sizeof(*device));
        union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

        assert_non_null(device);
        if (inet_pton(AF_INET, address, gid.raw + 12) != 1 && inet_pton(AF_INET6, address, gid.raw) != 1)
                fail_msg("%s is no address", address);
        device->ibv.node_type = IBV_NODE_CA;
        device->ibv.transport_type = IBV_TRANSPORT_IB;
        snprintf(device->ibv.name, sizeof(device->ibv.name), "%s", name);
        snprintf(device->ibv.dev_name, sizeof(device->ibv.dev_name), "uverbs_%s", name);
        for (uint32_t i = 0; i < FAKE_GIDS; i++)
                device->gids[i] = (struct ibv_gid_entry){.gid_index = i, .port_num = 1};
        device->gids[GID_LINK_LOCAL].gid = gid;
        memcpy(device->gids[GID_LINK_LOCAL].gid.raw, "\xfe\x80\0\0\0\0\0\0\2\0\0\xff", 12);
        device->gids[GID_LINK_LOCAL].gid_type = IBV_GID_TYPE_ROCE_V2;
        device->gids[GID_V1].gid = gid;
        device->gids[GID_V1].gid_type = IBV_GID_TYPE_ROCE_V1;
        device->gids[GID_V2].gid = gid;
        device->gids[GID_V2].gid_type = IBV_GID_TYPE_ROCE_V2;
        device->index = GID_V2;
        device->max_inline = 512;
        device->error_status = IBV_WC_RETRY_EXC_ERR;
        world_lock();
        device->delay_us = world.options.delay_us;
        LIST_INSERT_HEAD(&world.devices, device, link);
        world_unlock();
        return device;
}

void fake_max_inline(struct fake_device *device, uint32_t bytes) {
        world_lock();
        device->max_inline = bytes;
        world_unlock();
}

void fake_last(struct fake_device *device, uint32_t after_us) {
        world_lock();
        device->last_us = after_us;
        world_unlock();
}

void fake_port(struct fake_device *device, bool up, enum ibv_wc_status status) {
        world_lock();
        if (device->down == up)
                fake_device_event(device, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
        device->down = !up;
        device->down_status = status == IBV_WC_RETRY_EXC_ERR ? IBV_WC_SUCCESS : status;
        world_kick();
        world_unlock();
}

void fake_drop(struct fake_device *device, enum fake_drop drop) {
        world_lock();
        device->drop = drop;
        world_kick();
        world_unlock();
}

void fake_gid_change(struct fake_device *device, uint8_t index) {
        union ibv_gid gid;

        world_lock();
        gid = device->gids[device->index].gid;
        memset(&device->gids[device->index].gid, 0, sizeof(gid));
        device->gids[index].gid = gid;
        device->gids[index].gid_type = IBV_GID_TYPE_ROCE_V2;
        device->index = index;
        fake_device_event(device, IBV_EVENT_GID_CHANGE);
        world_kick();
        world_unlock();
}

void fake_device_fatal(struct fake_device *device) {
        struct fake_context *context;
        struct fake_channel *channel;
        struct fake_qp *qp;

        world_lock();
        world_quiet();
        device->gone = true;
        fake_device_event(device, IBV_EVENT_DEVICE_FATAL);
        LIST_FOREACH(context, &world.contexts, link) {
                context->dead |= context->device == device;
        }
        LIST_FOREACH(qp, &world.qps, link) {
                if (qp->device == device)
                        fake_qp_error(qp);
        }
        LIST_FOREACH(context, &world.contexts, link) {
                if (context->device == device)
                        fake_bell_end(&context->bell);
        }
        LIST_FOREACH(channel, &world.channels, link) {
                if (fake_context_of(channel->ibv.context)->device == device)
                        fake_bell_end(&channel->bell);
        }
        fake_wire_drop_packets(device);
        world_kick();
        world_unlock();
}

void fake_device_back(struct fake_device *device) {
        world_lock();
        device->gone = false;
        world_kick();
        world_unlock();
}

bool fake_qp_fatal(uint32_t qp_num) {
        struct fake_qp *qp;

        world_lock();
        world_quiet();
        LIST_FOREACH(qp, &world.qps, link) {
                if (qp->ibv.qp_num == qp_num)
                        break;
        }
        if (qp) {
                fake_context_event(fake_context_of(qp->ibv.context), IBV_EVENT_QP_FATAL, qp);
                fake_qp_error(qp);
        }
        world_unlock();
        return qp != NULL;
}

uint32_t fake_qp_any(struct fake_device *device) {
        uint32_t n = 0, qp_num = 0;
        struct fake_qp *qp;

        world_lock();
        LIST_FOREACH(qp, &world.qps, link) {
                if (qp->device == device && qp->state == IBV_QPS_RTS && fake_random(&world.random) % ++n == 0)
                        qp_num = qp->ibv.qp_num;
        }
        world_unlock();
        return qp_num;
}

bool fake_qp_path(uint32_t qp_num, struct ibv_ah_attr *ret_path) {
        const struct fake_qp *qp;
        bool found = false;

        world_lock();
        LIST_FOREACH(qp, &world.qps, link) {
                if (qp->ibv.qp_num != qp_num)
                        continue;
                *ret_path = qp->attr.ah_attr;
                found = true;
        }
        world_unlock();
        return found;
}

uint32_t fake_receives(struct fake_device *device) {
        const struct fake_srq *srq;
        const struct fake_cq *cq;
        uint32_t n = 0;

        world_lock();
        LIST_FOREACH(srq, &world.srqs, link) {
                if (fake_context_of(srq->ibv.context)->device == device)
                        n += srq->n;
        }
        LIST_FOREACH(cq, &world.cqs, link) {
                for (uint32_t i = 0; i < cq->n && fake_context_of(cq->ibv.context)->device == device; i++)
                        n += cq->entries[(cq->first + i) % (uint32_t)cq->ibv.cqe].receive;
        }
        world_unlock();
        return n;
}

struct fake_device *fake_device_named(const char *name) {
        struct fake_device *device;

        world_lock();
        LIST_FOREACH(device, &world.devices, link) {
                if (strcmp(device->ibv.name, name) == 0)
                        break;
        }
        world_unlock();
        return device;
}

void fake_fail_next(enum fake_call call, int error, uint32_t after) {
        world_lock();
        world.failures[call] = (struct fake_failure){.armed = true, .error = error, .after = after};
        world_unlock();
}

void fake_wc_error(struct fake_device *device, uint32_t qp_num, enum ibv_wc_status status) {
        struct fake_qp *qp;

        world_lock();
        LIST_FOREACH(qp, &world.qps, link) {
                if (!device && qp->ibv.qp_num == qp_num)
                        qp->next_error = status;
        }
        if (device)
                device->next_error = status;
        world_unlock();
}

void fake_receive_error(struct fake_device *device, enum ibv_wc_status status) {
        world_lock();
        device->next_receive_error = status;
        world_unlock();
}

void fake_twice(struct fake_device *device) {
        world_lock();
        device->twice = true;
        world_unlock();
}

void fake_random_errors(struct fake_device *device, uint32_t n, enum ibv_wc_status status) {
        world_lock();
        device->error_in = n;
        device->error_status = status ? status : IBV_WC_RETRY_EXC_ERR;
        world_unlock();
}

void fake_delay(struct fake_device *device, uint32_t delay_us) {
        world_lock();
        device->delay_us = delay_us;
        world_unlock();
}

const struct verbs_api *fake_verbs(void) {
        static const struct verbs_api table = {
                .get_device_list = fake_device_list,
                .free_device_list = fake_device_list_free,
                .get_device_name = fake_device_name,
                .open_device = fake_device_open,
                .close_device = fake_context_close,
                .query_device = fake_context_query_device,
                .query_port = fake_context_query_port,
                .query_gid_table = fake_context_query_gids,
                .get_async_event = fake_context_get_event,
                .ack_async_event = fake_context_ack_event,
                .alloc_pd = fake_pd_alloc,
                .dealloc_pd = fake_pd_dealloc,
                .reg_mr = fake_mr_reg,
                .dereg_mr = fake_mr_dereg,
                .create_comp_channel = fake_channel_create,
                .destroy_comp_channel = fake_channel_destroy,
                .create_cq = fake_cq_create,
                .destroy_cq = fake_cq_destroy,
                .get_cq_event = fake_cq_get_event,
                .ack_cq_events = fake_cq_ack_events,
                .req_notify_cq = fake_cq_req_notify,
                .poll_cq = fake_cq_poll,
                .create_srq = fake_srq_create,
                .destroy_srq = fake_srq_destroy,
                .post_srq_recv = fake_srq_post,
                .create_qp = fake_qp_create,
                .modify_qp = fake_qp_modify,
                .destroy_qp = fake_qp_destroy,
                .post_send = fake_qp_post,
        };

        return &table;
}
