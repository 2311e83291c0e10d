/* SPDX-License-Identifier: MIT */
#include "daemon/comm_net.h"

#include "daemon/cluster_rails.h"
#include "daemon/comm.h"
#include "daemon/comm_remote.h"
#include "daemon/manager.h"
#include "daemon/peer.h"
#include "daemon/tenant.h"
#include "gpu/host/net.h"
#include "gpu/plane.h"
#include "ring/net.h"
#include "util/memfd.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define STRIPE_DEVICE 8u /* peer.stripe counts for so many times less */

/* Tenants are known to the fabric by number. The same one for the same name, on any node. */
static uint64_t comm_net_tenant(const struct tenant *tenant) {
        uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

        for (const char *c = tenant->name; *c; c++)
                hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
        return hash;
}

static int comm_net_map(struct comm_net *net, const struct comm *comm) {
        uint64_t memory_bytes, page = (uint64_t)sysconf(_SC_PAGESIZE);
        struct plan_nodes nodes;
        uint32_t capacity;
        void *memory;
        int r;

        if (plan_nodes_init(&nodes, comm->n_ranks, comm->remote->node))
                return -EINVAL;
        r = comm->manager->on_device ? plane_net_size(comm->n_ranks, &nodes, &capacity, &memory_bytes)
                                     : host_net_size(comm->n_ranks, &comm->geometry, &capacity, &memory_bytes);
        if (r < 0)
                return r;
        net->bytes = (size_t)((net_area_bytes(capacity, memory_bytes) + page - 1) / page * page);
        r = memfd_new("railmux-net", net->bytes, &net->area_fd);
        if (r < 0)
                return r;
        /* Sparse: a page is taken when a chunk passes through it. */
        memory = mmap(NULL, net->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, net->area_fd, 0);
        if (memory == MAP_FAILED)
                return -errno;
        net->area = memory;
        net_area_init(net->area, capacity, memory_bytes);
        net->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        return net->wake_fd < 0 ? -errno : 0;
}

bool comm_net_geometry_right(const struct manager *manager, uint32_t n_ranks, uint32_t n_nodes,
                             const struct plan_geometry *geometry) {
        struct plan_geometry most;

        if (geometry->part_bytes == 0 || geometry->part_bytes % 64 != 0 || geometry->slots == 0)
                return false;
        if (n_nodes > 1)
                plan_geometry_choose_nodes(n_ranks, &most);
        else
                plan_geometry_choose(n_ranks, &most);
        /* GPUs have staging of their own, whatever it says. */
        return manager->on_device || plan_staging_bytes(geometry, n_ranks) <= plan_staging_bytes(&most, n_ranks);
}

/* What was not charged with each rank (comm_member_join), when nobody knew of other nodes: more staging, or, of GPUs,
 * what executors pin. */
static uint64_t comm_net_more_bytes(const struct comm *comm) {
        uint64_t share = comm_staging_bytes(comm) / comm->n_ranks;
        uint64_t charged = comm_staging_share(comm->manager, comm->n_ranks);
        uint32_t here = 0;

        for (uint32_t r = 0; r < comm->n_ranks; r++)
                here += !comm->members[r].away;
        if (comm->manager->on_device)
                return plane_wire_bytes(here, comm->n_ranks - here);
        return share > charged ? (share - charged) * comm->n_joined : 0;
}

/* A message of GPUs is half of what takes any rail by itself at most (WIRE_BATCH_BYTES), and all that there was at the
 * time; so they do from less on, or a communicator of one rank on a node would never use but one rail. 0: as others. */
static uint32_t comm_net_stripe(const struct manager *manager) {
        return manager->on_device ? (uint32_t)(manager->config->stripe_bytes / STRIPE_DEVICE) : 0;
}

/* On GPUs, each rank's by its GPU: of a communicator of some of them, too, what is sent takes the NIC beside. Emulated
 * ones are beside nothing, and their ranks take rails in turn, as plans count (plan/rails.h). */
static void comm_net_rails(const struct comm *comm, uint32_t only, const char *rails[MANAGER_RANKS_MAX]) {
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                uint32_t n_before = 0;

                rails[r] = NULL;
                if (!comm->manager->on_device || comm->members[r].away)
                        continue;
                for (uint32_t k = 0; k < r; k++)
                        n_before += !comm->members[k].away && comm->members[k].gpu == comm->members[r].gpu;
                rails[r] = cluster_rail_of_gpu(comm->remote->cluster, only, comm->members[r].gpu, n_before);
        }
}

/* The tenant's, as it is configured here; others send by theirs. All nodes are connected, see heard_check(). */
static enum fabric_class comm_net_class(const struct comm *comm) {
        const struct comm_remote *remote = comm->remote;

        for (uint32_t i = 0; i < remote->n_nodes; i++)
                if (remote->nodes[i].peer && !peer_takes_classes(remote->nodes[i].peer))
                        return FABRIC_NORMAL;
        return comm->tenant->class;
}

int comm_net_new(struct comm_net *net, struct comm *comm, struct fabric *fabric, uint64_t key,
                 const struct fabric_node *nodes, char *text, size_t text_size) {
        const char *rails[MANAGER_RANKS_MAX];
        struct fabric_area_options options = {.key = key,
                                              .nodes = nodes,
                                              .rails = rails,
                                              .n_ranks = comm->n_ranks,
                                              .unmap = true,
                                              .class = comm_net_class(comm),
                                              .tenant = comm_net_tenant(comm->tenant),
                                              .weight = comm->tenant->weight,
                                              .stripe_bytes = comm_net_stripe(comm->manager),
                                              .only = cluster_rails_only(comm->remote->cluster, comm->tenant->rails)};
        int r;

        if (tenant_charge(comm->tenant, &net->charge_fds, CHARGE_FDS, 2, text, text_size) ||
            tenant_charge(comm->tenant, &net->charge_bytes, CHARGE_BYTES, comm_net_more_bytes(comm), text, text_size))
                return COMM_E_LIMIT;
        r = comm_net_map(net, comm);
        if (r < 0) {
                snprintf(text, text_size, "the daemon cannot make memory for other nodes: %s", strerror(-r));
                return COMM_E_RESOURCE;
        }
        comm_net_rails(comm, options.only, rails);
        options.memory = net->area;
        options.size = net->bytes;
        options.wake_fd = net->wake_fd;
        r = fabric_area_add(fabric, &options);
        if (r) {
                snprintf(text, text_size, "the fabric refuses the communicator: %s",
                         r < 0 ? strerror(-r) : fabric_error(fabric));
                return COMM_E_RESOURCE;
        }
        net->class = options.class;
        net->in_fabric = true;
        net->area = NULL;
        return 0;
}

void comm_net_stop(struct comm_net *net, struct fabric *fabric, uint64_t key) {
        if (net->in_fabric)
                (void)fabric_area_remove(fabric, key);
        net->in_fabric = false;
}

void comm_net_deinit(struct comm_net *net, struct fabric *fabric, uint64_t key) {
        comm_net_stop(net, fabric, key);
        if (net->area)
                munmap(net->area, net->bytes);
        if (net->area_fd >= 0)
                close(net->area_fd);
        if (net->wake_fd >= 0)
                close(net->wake_fd);
        charge_release(&net->charge_bytes);
        charge_release(&net->charge_fds);
        *net = (struct comm_net)COMM_NET_NULL;
}
