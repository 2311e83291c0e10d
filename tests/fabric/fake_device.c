/* SPDX-License-Identifier: MIT */
#include "tests/fabric/fake_device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------------------------- devices */

struct ibv_device **fake_device_list(int *ret_n) {
        struct ibv_device **list = NULL;
        struct fake_device *device;
        int n = 0, error = ENOMEM;

        world_lock();
        LIST_FOREACH(device, &world.devices, link) {
                n += !device->gone;
        }
        if (!world_fails(FAKE_GET_DEVICE_LIST, &error))
                list = calloc((size_t)n + 1, sizeof(struct ibv_device *));
        if (list) {
                n = 0;
                LIST_FOREACH(device, &world.devices, link) {
                        if (!device->gone)
                                list[n++] = &device->ibv;
                }
                world.n_lists++;
        }
        world_unlock();
        if (!list)
                errno = error;
        else if (ret_n)
                *ret_n = n;
        return list;
}

void fake_device_list_free(struct ibv_device **list) {
        world_lock();
        world.n_lists--;
        world_unlock();
        free(list);
}

const char *fake_device_name(struct ibv_device *device) {
        return device->name;
}

struct ibv_context *fake_device_open(struct ibv_device *ibv) {
        struct fake_device *device = (struct fake_device *)(void *)ibv;
        struct fake_context *context = NULL;
        int error = ENOMEM;

        world_lock();
        if (device->gone)
                error = ENODEV;
        else if (!world_fails(FAKE_OPEN_DEVICE, &error))
                context = calloc(1, sizeof(*context));
        if (context && !fake_bell_new(&context->bell)) {
                free(context);
                context = NULL;
        }
        if (context) {
                context->ibv.device = ibv;
                context->ibv.cmd_fd = -1;
                context->ibv.async_fd = context->bell.fds[0];
                context->ibv.num_comp_vectors = 1;
                context->device = device;
                STAILQ_INIT(&context->events);
                LIST_INSERT_HEAD(&world.contexts, context, link);
        }
        world_unlock();
        if (!context)
                errno = error;
        return context ? &context->ibv : NULL;
}

int fake_context_close(struct ibv_context *ibv) {
        struct fake_context *context = fake_context_of(ibv);
        int r = 0;

        world_lock();
        if (context->n_children > 0) {
                world_problem("%s is closed before %u of its objects", ibv->device->name, context->n_children);
                r = EBUSY;
        } else {
                fake_context_free(context);
        }
        world_unlock();
        return r;
}

int fake_context_query_device(struct ibv_context *ibv, struct ibv_device_attr *ret_attr) {
        int r = 0;

        world_lock();
        if (fake_context_of(ibv)->dead)
                r = EIO;
        else if (!world_fails(FAKE_QUERY_DEVICE, &r))
                *ret_attr = (struct ibv_device_attr){.max_mr_size = UINT64_C(1) << 40,
                                                     .page_size_cap = 4096,
                                                     .max_qp = 65536,
                                                     .max_qp_wr = FAKE_MAX_WR,
                                                     .max_sge = FAKE_SGES,
                                                     .max_cq = 65536,
                                                     .max_cqe = FAKE_MAX_CQE,
                                                     .max_mr = 65536,
                                                     .max_pd = 65536,
                                                     .max_qp_rd_atom = 16,
                                                     .max_qp_init_rd_atom = 16,
                                                     .max_srq = 65536,
                                                     .max_srq_wr = FAKE_MAX_WR,
                                                     .max_srq_sge = FAKE_SGES,
                                                     .max_pkeys = 1,
                                                     .phys_port_cnt = 1};
        world_unlock();
        return r;
}

int fake_context_query_port(struct ibv_context *ibv, uint8_t port, struct ibv_port_attr *ret_attr) {
        struct fake_context *context = fake_context_of(ibv);
        int r = 0;

        world_lock();
        if (context->dead)
                r = EIO;
        else if (port != 1)
                r = EINVAL;
        else if (!world_fails(FAKE_QUERY_PORT, &r))
                *ret_attr = (struct ibv_port_attr){.state = context->device->down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
                                                   .max_mtu = FAKE_MAX_MTU,
                                                   .active_mtu = FAKE_MAX_MTU,
                                                   .gid_tbl_len = FAKE_GIDS,
                                                   .max_msg_sz = UINT32_C(1) << 30,
                                                   .pkey_tbl_len = 1,
                                                   .active_width = 2,  /* four lanes */
                                                   .active_speed = 32, /* of 25 Gbit/s */
                                                   .phys_state = (uint8_t)(context->device->down ? 3 : 5),
                                                   .link_layer = IBV_LINK_LAYER_ETHERNET};
        world_unlock();
        return r;
}

ssize_t fake_context_query_gids(struct ibv_context *ibv, struct ibv_gid_entry *ret_entries, size_t max) {
        struct fake_context *context = fake_context_of(ibv);
        ssize_t n = 0;
        int error;

        world_lock();
        if (context->dead)
                n = -EIO;
        else if (world_fails(FAKE_QUERY_GID_TABLE, &error))
                n = -error;
        for (uint32_t i = 0; i < FAKE_GIDS && n >= 0; i++) {
                if (!fake_gid_is_set(&context->device->gids[i]))
                        continue;
                if ((size_t)n == max)
                        n = -EINVAL;
                else
                        ret_entries[n++] = context->device->gids[i];
        }
        world_unlock();
        return n;
}

/* ----------------------------------------------------------------------------------------------------------- events */

static struct fake_acks *event_acks(const struct ibv_async_event *event) {
        switch (event->event_type) {
        case IBV_EVENT_CQ_ERR:
                return &((struct fake_cq *)(void *)event->element.cq)->acks;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
                return &((struct fake_qp *)(void *)event->element.qp)->acks;
        default:
                return &world.acks;
        }
}

int fake_context_get_event(struct ibv_context *ibv, struct ibv_async_event *ret_event) {
        struct fake_context *context = fake_context_of(ibv);

        for (;;) {
                struct fake_event *event;

                if (fake_bell_take(&context->bell) < 0)
                        return -1;
                world_lock();
                event = STAILQ_FIRST(&context->events);
                if (event) {
                        STAILQ_REMOVE_HEAD(&context->events, link);
                        *ret_event = event->event;
                        event_acks(ret_event)->read++;
                        free(event);
                }
                world_unlock();
                if (event) /* else its object was destroyed meanwhile */
                        return 0;
        }
}

void fake_context_ack_event(struct ibv_async_event *event) {
        struct fake_acks *acks;

        world_lock();
        acks = event_acks(event);
        if (acks->acked == acks->read)
                world_problem("an event of type %d is acknowledged once too often", (int)event->event_type);
        else
                acks->acked++;
        pthread_cond_broadcast(&world.calm);
        world_unlock();
}

/* -------------------------------------------------------------------------------------------- domains and regions */

struct ibv_pd *fake_pd_alloc(struct ibv_context *ibv) {
        struct fake_context *context = fake_context_of(ibv);
        struct fake_pd *pd = NULL;
        int error = ENOMEM;

        world_lock();
        if (context->dead)
                error = EIO;
        else if (!world_fails(FAKE_ALLOC_PD, &error))
                pd = calloc(1, sizeof(*pd));
        if (pd) {
                pd->ibv.context = ibv;
                context->n_children++;
                LIST_INSERT_HEAD(&world.pds, pd, link);
        }
        world_unlock();
        if (!pd)
                errno = error;
        return pd ? &pd->ibv : NULL;
}

int fake_pd_dealloc(struct ibv_pd *ibv) {
        struct fake_pd *pd = (struct fake_pd *)(void *)ibv;
        int r = 0;

        world_lock();
        if (pd->n_children > 0) {
                world_problem("a protection domain is given back before %u of its objects", pd->n_children);
                r = EBUSY;
        } else {
                fake_context_of(ibv->context)->n_children--;
                LIST_REMOVE(pd, link);
                free(pd);
        }
        world_unlock();
        return r;
}

/* Pinning looks at every page. */
static bool memory_is_mapped(const void *address, size_t bytes) {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)address / page * page;
        size_t n = ((uintptr_t)address + bytes - start + page - 1) / page;
        unsigned char *resident = malloc(n);
        bool mapped = resident && mincore((void *)start, n * page, resident) == 0;

        free(resident);
        return mapped;
}

struct ibv_mr *fake_mr_reg(struct ibv_pd *ibv_pd, void *address, size_t bytes, int access) {
        struct fake_pd *pd = (struct fake_pd *)(void *)ibv_pd;
        const int known =
                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;
        struct fake_mr *mr = NULL;
        int error = ENOMEM;

        world_lock();
        if (fake_context_of(ibv_pd->context)->dead)
                error = EIO;
        else if (bytes == 0 || access & ~known ||
                 (access & IBV_ACCESS_REMOTE_WRITE && !(access & IBV_ACCESS_LOCAL_WRITE)))
                error = EINVAL;
        else if (!memory_is_mapped(address, bytes))
                error = EFAULT;
        else if (!world_fails(FAKE_REG_MR, &error))
                mr = calloc(1, sizeof(*mr));
        if (mr) {
                mr->ibv.context = ibv_pd->context;
                mr->ibv.pd = ibv_pd;
                mr->ibv.addr = address;
                mr->ibv.length = bytes;
                /* Never the same: who takes one for the other is found. */
                mr->ibv.lkey = world.next_key++;
                mr->ibv.rkey = world.next_key++ | UINT32_C(0x80000000);
                mr->access = access;
                pd->n_children++;
                LIST_INSERT_HEAD(&world.mrs, mr, link);
        }
        world_unlock();
        if (!mr)
                errno = error;
        return mr ? &mr->ibv : NULL;
}

int fake_mr_dereg(struct ibv_mr *ibv) {
        struct fake_mr *mr = (struct fake_mr *)(void *)ibv;

        world_lock();
        world_quiet();
        ((struct fake_pd *)(void *)ibv->pd)->n_children--;
        fake_mr_free(mr);
        world_unlock();
        return 0;
}

void fake_mr_free(struct fake_mr *mr) {
        LIST_REMOVE(mr, link);
        free(mr->kept);
        free(mr);
}

void fake_unmap(const void *address, size_t bytes) {
        uintptr_t start = (uintptr_t)address, end = start + bytes;
        struct fake_mr *mr;

        world_lock();
        world_quiet();
        LIST_FOREACH(mr, &world.mrs, link) {
                uintptr_t first = (uintptr_t)mr->ibv.addr;

                if (mr->kept || first >= end || first + mr->ibv.length <= start)
                        continue;
                mr->kept = malloc(mr->ibv.length);
                if (!mr->kept)
                        abort();
                memcpy(mr->kept, mr->ibv.addr, mr->ibv.length);
        }
        world_unlock();
}
