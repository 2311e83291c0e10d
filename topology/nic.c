/* SPDX-License-Identifier: MIT */
/*
 * NICs of a running machine
 *
 * hwloc knows NICs by PCI. What it leaves out is here: names of RDMA devices that are no PCI devices (soft-RoCE), the
 * device of the network that belongs to an RDMA device, and speeds. A NIC is counted once:
 *
 * - an RDMA device is a NIC, together with its device of the network;
 * - a device of the network without one is a NIC if there is hardware behind it; bridges, tunnels and pairs of virtual
 *   Ethernet lead through other NICs and are none;
 * - virtual functions belong to the NIC that they are functions of.
 *
 * Soft-RoCE on a real NIC has that one's place. On something virtual it has none: no PCI address, no NUMA node, no link
 * upwards. Each NIC gets a port into network 0, because from here nobody can see who is plugged into what.
 */
#include "topology/nic.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/sysfs.h"
#include "topology/topology.h"

#define INFINIBAND        "sys/class/infiniband"
#define NET               "sys/class/net"
#define PCI               "sys/bus/pci/devices"
#define GIGABIT           125000000.0 /* bytes */
#define GBIT_MAX          100000.0
#define ARPHRD_ETHER      1
#define ARPHRD_INFINIBAND 32

struct nic {
        char rdma[64], netdev[16], pci[24];
        uint64_t bytes_per_second;
};

/* ---- what there is ---- */

static uint64_t speed_of_rdma(const char *root, const char *name) {
        char text[SYSFS_TEXT_MAX];
        double gbit =
                strtod(sysfs_text(text, root, INFINIBAND "/%s/ports/1/rate", name), NULL); /* "400 Gb/sec (4X NDR)" */

        return gbit > 0 && gbit < GBIT_MAX ? (uint64_t)(gbit * GIGABIT) : 0;
}

static uint64_t speed_of_net(const char *root, const char *name) {
        int64_t mbit = sysfs_number(0, root, NET "/%s/speed", name);

        return mbit > 0 && mbit < (int64_t)GBIT_MAX * 1000 ? (uint64_t)mbit * 125000 : 0;
}

static bool is_virtual_function(const char *root, const char *pci) {
        return pci[0] && sysfs_exists(root, PCI "/%s/physfn", pci);
}

/* The device of the network of an RDMA device: what it says itself, or what has the same PCI address. */
static void find_netdev(const char *root, struct nic *nic) {
        char text[SYSFS_TEXT_MAX], pci[24];
        struct sysfs_names nets;

        if (!*sysfs_text(text, root, INFINIBAND "/%s/ports/1/gid_attrs/ndevs/0", nic->rdma))
                sysfs_text(text, root, INFINIBAND "/%s/parent", nic->rdma); /* soft-RoCE of older kernels */
        if (strlen(text) < sizeof(nic->netdev))
                snprintf(nic->netdev, sizeof(nic->netdev), "%.15s", text);
        if (nic->netdev[0] || !nic->pci[0])
                return;
        sysfs_list(&nets, root, NET);
        for (int i = 0; i < nets.n && !nic->netdev[0]; i++) {
                sysfs_pci(pci, root, NET "/%s/device", nets.entries[i]->d_name);
                if (strcmp(pci, nic->pci) == 0)
                        snprintf(nic->netdev, sizeof(nic->netdev), "%.15s", nets.entries[i]->d_name);
        }
        sysfs_list_deinit(&nets);
}

static bool read_rdma(const char *root, const char *name, struct nic *nic) {
        if (strlen(name) >= sizeof(nic->rdma))
                return false;
        snprintf(nic->rdma, sizeof(nic->rdma), "%s", name);
        sysfs_pci(nic->pci, root, INFINIBAND "/%s/device", name);
        find_netdev(root, nic);
        if (!nic->pci[0] && nic->netdev[0])
                sysfs_pci(nic->pci, root, NET "/%s/device", nic->netdev);
        nic->bytes_per_second = speed_of_rdma(root, name);
        return !is_virtual_function(root, nic->pci);
}

static bool read_net(const char *root, const char *name, struct nic *nic) {
        int64_t type = sysfs_number(0, root, NET "/%s/type", name);

        if (strlen(name) >= sizeof(nic->netdev) || (type != ARPHRD_ETHER && type != ARPHRD_INFINIBAND) ||
            !sysfs_exists(root, NET "/%s/device", name))
                return false;
        snprintf(nic->netdev, sizeof(nic->netdev), "%s", name);
        sysfs_pci(nic->pci, root, NET "/%s/device", name);
        nic->bytes_per_second = speed_of_net(root, name);
        return !is_virtual_function(root, nic->pci);
}

/* ---- into the graph ---- */

static uint32_t find(const struct topology *topology, const struct nic *nic) {
        uint32_t by_pci = TOPOLOGY_NONE;

        for (uint32_t i = 0; i < topology->n_nodes; i++) {
                const struct topology_node *node = &topology->nodes[i];

                if (node->kind != TOPOLOGY_NIC)
                        continue;
                if ((nic->rdma[0] && strcmp(node->rdma, nic->rdma) == 0) ||
                    (nic->netdev[0] && strcmp(node->netdev, nic->netdev) == 0))
                        return i;
                if (nic->pci[0] && strcmp(node->pci, nic->pci) == 0 && by_pci == TOPOLOGY_NONE)
                        by_pci = i;
        }
        return by_pci;
}

static int add(const char *root, struct topology *topology, const struct nic *nic, uint32_t *ret_position) {
        struct topology_node node = {.kind = TOPOLOGY_NIC, .numa = TOPOLOGY_NONE};
        struct topology_link link = {.kind = TOPOLOGY_LINK_PCI};
        int64_t numa = nic->pci[0] ? sysfs_number(-1, root, PCI "/%s/numa_node", nic->pci) : -1;
        int r;

        while (topology_find(topology, TOPOLOGY_NIC, node.index) != TOPOLOGY_NONE)
                node.index++;
        if (numa >= 0 && numa < INT32_MAX)
                node.numa = topology_find(topology, TOPOLOGY_NUMA, (uint32_t)numa);
        snprintf(node.name, sizeof(node.name), "%s", nic->rdma[0] ? nic->rdma : nic->netdev);
        snprintf(node.pci, sizeof(node.pci), "%s", nic->pci);
        r = topology_add_node(topology, &node, ret_position);
        if (r || node.numa == TOPOLOGY_NONE)
                return r;
        link.a = node.numa;
        link.b = *ret_position;
        return topology_add_link(topology, &link);
}

static int add_port(struct topology *topology, uint32_t position, uint64_t bytes_per_second) {
        struct topology_node network = {.kind = TOPOLOGY_NETWORK, .numa = TOPOLOGY_NONE, .name = "network"};
        struct topology_link link = {.a = position, .kind = TOPOLOGY_LINK_PORT, .bytes_per_second = bytes_per_second};
        int r = 0;

        link.b = topology_find(topology, TOPOLOGY_NETWORK, 0);
        if (link.b == TOPOLOGY_NONE)
                r = topology_add_node(topology, &network, &link.b);
        if (!r)
                r = topology_add_link(topology, &link);
        return r == TOPOLOGY_E_EXISTS ? 0 : r;
}

static int take(const char *root, struct topology *topology, const struct nic *nic) {
        uint32_t position = find(topology, nic);
        struct topology_node *node;
        int r = 0;

        if (position == TOPOLOGY_NONE)
                r = add(root, topology, nic, &position);
        if (r)
                return r;
        node = &topology->nodes[position];
        if (nic->rdma[0] && !node->rdma[0]) {
                topology_text_set(node->rdma, sizeof(node->rdma), nic->rdma);
                topology_text_set(node->name, sizeof(node->name), nic->rdma);
        }
        if (nic->netdev[0] && !node->netdev[0])
                topology_text_set(node->netdev, sizeof(node->netdev), nic->netdev);
        return add_port(topology, position, nic->bytes_per_second);
}

static int read_class(const char *root, const char *class, bool (*read)(const char *, const char *, struct nic *),
                      struct topology *topology) {
        struct sysfs_names names;
        int r = 0;

        sysfs_list(&names, root, "%s", class);
        for (int i = 0; !r && i < names.n; i++) {
                struct nic nic = {0};

                if (read(root, names.entries[i]->d_name, &nic))
                        r = take(root, topology, &nic);
        }
        sysfs_list_deinit(&names);
        return r;
}

int nic_read(const char *root, struct topology *topology) {
        int r = read_class(root, INFINIBAND, read_rdma, topology);

        return r ? r : read_class(root, NET, read_net, topology); /* the port of what is known by now stays */
}
