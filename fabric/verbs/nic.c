/* SPDX-License-Identifier: MIT */
/*
 * The adapter of a rail: found by the rail's address, as that is what operators know and what does not change when
 * names and indices of devices do. Of RoCE it is the version 2 GID of that very address: a link-local GID, which often
 * has index 0, reaches nobody beyond the link, and version 1 is not routed. GIDs are looked up again after each event
 * that may have moved them, and after a connection could not be made.
 *
 * There is one protection domain for each rail, not one for each tenant: queue pairs are shared by all tenants of a
 * class, and what is registered is staging of executors, which tenants do not map, and the rings of connections. A peer
 * is a daemon that has proven itself, and is trusted not to guess the keys of what it was not offered.
 */
#include "fabric/verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>

#define NIC_GIDS      1024u
#define NIC_TIMEOUT   14u /* 4.096 us * 2^14 = 67 ms */
#define NIC_RETRIES   6u  /* 7 is endless on some */
#define NIC_NAMES_MAX 96u
#define NIC_MESSAGE   (8u << 20) /* the least that an adapter must take: FRAME_DATA_MAX is BATCH_WRS of these */

static void address_gid(const struct sockaddr_storage *address, union ibv_gid *ret_gid) {
        *ret_gid = (union ibv_gid){0};
        if (address->ss_family == AF_INET6) {
                memcpy(ret_gid->raw, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
                return;
        }
        ret_gid->raw[10] = ret_gid->raw[11] = 0xff;
        memcpy(ret_gid->raw + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
}

/* On InfiniBand the address is that of another protocol, and the first GID of the port is the one that always works. */
static bool gid_fits(const struct ibv_gid_entry *entry, const union ibv_gid *wanted, bool infiniband) {
        if (entry->gid_index > UINT8_MAX) /* as large as an address handle can have */
                return false;
        if (infiniband)
                return entry->gid_type == IBV_GID_TYPE_IB && entry->gid_index == 0;
        return entry->gid_type == IBV_GID_TYPE_ROCE_V2 && memcmp(entry->gid.raw, wanted->raw, 16) == 0;
}

/* Of the opened device, on nic->port or, if that is 0, on any. */
static bool nic_find_gid(const struct verbs_nic *nic, uint8_t port, bool infiniband, struct ibv_gid_entry *ret_entry) {
        struct ibv_gid_entry *entries = calloc(NIC_GIDS, sizeof(*entries));
        union ibv_gid wanted;
        bool found = false;
        ssize_t n;

        if (!entries)
                return false;
        address_gid(&nic->rail->address, &wanted);
        n = nic->api->query_gid_table(nic->context, entries, NIC_GIDS);
        for (ssize_t i = 0; i < n && !found; i++) {
                found = entries[i].port_num == port && gid_fits(&entries[i], &wanted, infiniband);
                if (found)
                        *ret_entry = entries[i];
        }
        free(entries);
        return found;
}

void nic_look(struct verbs_nic *nic) {
        struct ibv_gid_entry entry;
        struct ibv_port_attr attr;

        nic->active = false;
        if (nic->api->query_port(nic->context, nic->port, &attr) != 0 || attr.state != IBV_PORT_ACTIVE ||
            attr.max_msg_sz < NIC_MESSAGE ||
            !nic_find_gid(nic, nic->port, attr.link_layer == IBV_LINK_LAYER_INFINIBAND, &entry))
                return;
        nic->gid = entry.gid;
        nic->gid_index = entry.gid_index;
        nic->lid = attr.lid;
        nic->mtu = attr.active_mtu;
        nic->max_message = attr.max_msg_sz;
        nic->active = true;
}

/* Is this one meant? `name` has the device's name and perhaps the port's number, or nothing. Opens it if so. */
static bool nic_try(struct verbs_nic *nic, struct ibv_device *device, const char *name, unsigned int port) {
        const struct verbs_api *api = nic->api;
        struct ibv_device_attr attr;

        if (name[0] && strcmp(name, api->get_device_name(device)) != 0)
                return false;
        nic->context = api->open_device(device);
        if (!nic->context)
                return false;
        snprintf(nic->device, sizeof(nic->device), "%s", api->get_device_name(device));
        if (api->query_device(nic->context, &attr) == 0) {
                for (uint8_t p = 1; p <= attr.phys_port_cnt; p++) {
                        if (port && p != port)
                                continue;
                        nic->port = p;
                        nic_look(nic);
                        if (nic->active)
                                return true;
                }
        }
        api->close_device(nic->context);
        nic->context = NULL;
        return false;
}

static int nic_find(struct verbs_nic *nic, const struct fabric_rail_options *options) {
        struct fabric *fabric = nic->rail->fabric;
        char name[sizeof(nic->device)] = "", seen[NIC_NAMES_MAX] = "";
        unsigned int port = 0;
        struct ibv_device **list;
        int n = 0;

        if (options->hca && sscanf(options->hca, "%63[^:]:%u", name, &port) < 1)
                return fabric_refuse(fabric, FABRIC_E_ARGUMENT,
                                     "rail %s: '%.40s' is no RDMA device, as mlx5_0 or mlx5_0:1", options->name,
                                     options->hca);
        list = nic->api->get_device_list(&n);
        for (int i = 0; list && i < n && !nic->context; i++) {
                size_t used = strlen(seen);

                if (!nic_try(nic, list[i], name, port))
                        snprintf(seen + used, sizeof(seen) - used, "%s%s", used ? ", " : "",
                                 nic->api->get_device_name(list[i]));
        }
        if (list)
                nic->api->free_device_list(list);
        if (nic->context)
                return 0;
        return fabric_refuse(fabric, FABRIC_E_ADDRESS,
                             "rail %s: no RDMA device%s%s has an active port with the RoCEv2 GID of %.45s; there %s %s",
                             options->name, name[0] ? " " : "", name, options->address, n == 1 ? "is" : "are",
                             n > 0 ? seen : "none");
}

/* A step of nic_open() has failed. */
static int nic_lacks(struct verbs_nic *nic, const char *what) {
        int saved = errno;

        return fabric_refuse(nic->rail->fabric, FABRIC_E_ADDRESS, "rail %s: %s gives no %s: %s%s", nic->rail->name,
                             nic->device, what, strerror(saved),
                             saved == ENOMEM ? " (is there a limit of locked memory?)" : "");
}

static int nic_make(struct verbs_nic *nic) {
        const struct verbs_api *api = nic->api;
        struct ibv_srq_init_attr srq = {.attr = {.max_sge = 1}};
        struct ibv_device_attr attr;
        uint32_t n_completions;

        if (api->query_device(nic->context, &attr) != 0)
                return nic_lacks(nic, "attributes");
        if (attr.max_qp_wr < (int)LINK_WRS + 8 || attr.max_srq_wr < 64 || attr.max_cqe < 256) {
                errno = ERANGE;
                return nic_lacks(nic, "queues as long as are needed");
        }
        nic->n_receives = (uint32_t)attr.max_srq_wr < NIC_RECEIVES ? (uint32_t)attr.max_srq_wr : NIC_RECEIVES;
        n_completions = (uint32_t)attr.max_cqe < NIC_COMPLETIONS ? (uint32_t)attr.max_cqe : NIC_COMPLETIONS;
        if (nic->n_receives > n_completions / 2)
                nic->n_receives = n_completions / 2;
        nic->max_links = (n_completions - nic->n_receives) / LINK_COMPLETIONS;
        nic->pd = api->alloc_pd(nic->context);
        if (!nic->pd)
                return nic_lacks(nic, "protection domain");
        nic->channel = api->create_comp_channel(nic->context);
        if (!nic->channel)
                return nic_lacks(nic, "completion channel");
        nic->cq = api->create_cq(nic->context, (int)n_completions, nic->channel);
        if (!nic->cq)
                return nic_lacks(nic, "completion queue");
        srq.attr.max_wr = nic->n_receives;
        nic->srq = api->create_srq(nic->pd, &srq);
        if (!nic->srq)
                return nic_lacks(nic, "shared receive queue");
        nic->n_missing = nic->n_receives;
        errno = -nic_refill(nic);
        return errno ? nic_lacks(nic, "receives") : 0;
}

/* Its fds wake the rail's thread. */
static int nic_watch(struct verbs_nic *nic) {
        struct fabric_rail *rail = nic->rail;
        const int fds[] = {nic->context->async_fd, nic->channel->fd};

        for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
                struct epoll_event event = {.events = EPOLLIN, .data.ptr = &rail->nic_event};
                int flags = fcntl(fds[i], F_GETFL);

                if (flags < 0 || fcntl(fds[i], F_SETFL, flags | O_NONBLOCK) < 0 ||
                    epoll_ctl(rail->epoll_fd, EPOLL_CTL_ADD, fds[i], &event) < 0)
                        return -errno;
        }
        return 0;
}

int nic_open(struct fabric_rail *rail, const struct fabric_rail_options *options) {
        struct verbs_nic *nic;
        int r;

        if (options->timeout > 31 || options->retries > 7 || (options->udp_port && options->udp_port <= 0xc000))
                return fabric_refuse(rail->fabric, FABRIC_E_ARGUMENT,
                                     "rail %s: timeout %u, retries %u, UDP port %u; timeouts are 1 to 31 (4.096 us * "
                                     "2^timeout), retries 1 to 7 (7 may be endless), UDP ports 49153 to 65535",
                                     options->name, options->timeout, options->retries, options->udp_port);
        nic = calloc(1, sizeof(*nic));
        if (!nic)
                return -ENOMEM;
        rail->nic = nic;
        nic->rail = rail;
        nic->api = rail->fabric->options.verbs ? rail->fabric->options.verbs : &verbs_libibverbs;
        nic->timeout = options->timeout ? options->timeout : NIC_TIMEOUT;
        nic->retries = options->retries ? options->retries : NIC_RETRIES;
        /* How adapters make the port out of the label: its lower 14 bits above 0xc000. */
        nic->flow_label = options->udp_port & 0x3fff;
        if (nic->api->fork_init)
                (void)nic->api->fork_init(); /* for kernels whose fork() moves pages that an adapter knows */
        r = nic_find(nic, options);
        if (r)
                return r;
        r = nic_make(nic);
        if (r)
                return r;
        return nic_watch(nic);
}

void nic_close(struct fabric_rail *rail) {
        struct verbs_nic *nic = nic_of(rail);

        if (!nic)
                return;
        rail->nic = NULL;
        if (nic->srq)
                nic->api->destroy_srq(nic->srq);
        if (nic->cq)
                nic->api->destroy_cq(nic->cq);
        if (nic->channel)
                nic->api->destroy_comp_channel(nic->channel);
        if (nic->pd)
                nic->api->dealloc_pd(nic->pd);
        if (nic->context)
                nic->api->close_device(nic->context);
        free(nic);
}

int nic_region_add(struct fabric_rail *rail, const struct fabric_area *area, void *staging, void **ret_region,
                   char ret_text[FABRIC_TEXT]) {
        struct fabric *fabric = rail->fabric;
        struct verbs_nic *nic = nic_of(rail);
        struct ibv_mr *mr;
        bool fatal;

        pthread_mutex_lock(&fabric->lock);
        fatal = nic->fatal; /* then this rail has no connections, and others may be well */
        pthread_mutex_unlock(&fabric->lock);
        if (area->memory_bytes == 0 || fatal)
                return 0;
        /* Of when it was added: what comes while it waits here takes nobody's place but its own. */
        if (area->nth > LINK_PLACES / 2) {
                snprintf(ret_text, FABRIC_TEXT, "area %llx: there are %u already, rail %s takes no more",
                         (unsigned long long)area->key, LINK_PLACES / 2, rail->name);
                return FABRIC_E_FULL;
        }
        /* Staging only: the area's queue is nobody else's. Data may be written in any order before their immediate. */
        mr = nic->api->reg_mr(nic->pd, staging, area->memory_bytes,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING);
        if (!mr) {
                snprintf(ret_text, FABRIC_TEXT, "rail %s cannot register %llu bytes (is LimitMEMLOCK= too low?): %.38s",
                         rail->name, (unsigned long long)area->memory_bytes, strerror(errno));
                return FABRIC_E_MEMORY;
        }
        *ret_region = mr;
        return 0;
}

void nic_region_free(struct fabric_rail *rail, void *region) {
        nic_of(rail)->api->dereg_mr(region);
}
