/* SPDX-License-Identifier: MIT */
/*
 * The graph of AMD's kernel driver
 *
 * sys/class/kfd/kfd/topology/nodes has a folder for each CPU socket or NUMA node and for each GPU, named by its number.
 * "properties" has lines of a word and a number; mem_banks and io_links have numbered folders with such files. Links
 * are named in both directions. Type 2 is PCI, 11 is xGMI with a weight of 15 for each hop: heavier ones are ways
 * through other GPUs and no links. Bandwidths are MB/s for each direction. CPU nodes are the NUMA nodes in their order.
 *
 * GPUs are known by their PCI address, which hwloc has them by too. Those that hwloc does not see are added. A GPU that
 * is divided into partitions has several nodes with one address; the first stands for all.
 */
#include "topology/kfd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/sysfs.h"
#include "topology/topology.h"

#define NODES       "sys/class/kfd/kfd/topology/nodes"
#define NODES_MAX   1024u
#define LINK_PCI    2u
#define LINK_XGMI   11u
#define WEIGHT_HOP  15u
#define HEAP_PUBLIC 1u
#define HEAP_HIDDEN 2u

struct kfd {
        struct topology *topology;
        const char *root;
        uint32_t positions[NODES_MAX]; /* by number; TOPOLOGY_NONE: nothing of ours */
        uint32_t n_cpu_nodes;
};

/* The number behind a word in a file of such lines. */
static uint64_t property(const char *text, const char *word, uint64_t fallback) {
        size_t length = strlen(word);

        for (const char *line = text; line && *line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (strncmp(line, word, length) == 0 && line[length] == ' ')
                        return strtoull(line + length, NULL, 10);
        }
        return fallback;
}

/* The number of a folder, or NODES_MAX. */
static uint32_t number(const char *name) {
        char *end;
        unsigned long value = strtoul(name, &end, 10);

        return end != name && !*end && value < NODES_MAX ? (uint32_t)value : NODES_MAX;
}

static uint64_t memory_of(const struct kfd *kfd, const char *node) {
        struct sysfs_names banks;
        uint64_t bytes = 0;

        sysfs_list(&banks, kfd->root, NODES "/%s/mem_banks", node);
        for (int i = 0; i < banks.n; i++) {
                char text[SYSFS_TEXT_MAX];
                uint64_t heap;

                sysfs_text(text, kfd->root, NODES "/%s/mem_banks/%s/properties", node, banks.entries[i]->d_name);
                heap = property(text, "heap_type", 0);
                if (heap == HEAP_PUBLIC || heap == HEAP_HIDDEN)
                        bytes += property(text, "size_in_bytes", 0);
        }
        sysfs_list_deinit(&banks);
        return bytes;
}

static int add_gpu(struct kfd *kfd, const char *pci, uint64_t vendor, uint32_t *ret_position) {
        struct topology_node node = {.kind = TOPOLOGY_GPU,
                                     .index = topology_count(kfd->topology, TOPOLOGY_GPU),
                                     .numa = TOPOLOGY_NONE,
                                     .vendor = (uint32_t)vendor & 0xffff};

        if (node.index >= TOPOLOGY_GPUS_MAX)
                return TOPOLOGY_E_INVALID;
        snprintf(node.name, sizeof(node.name), "%s", pci);
        snprintf(node.pci, sizeof(node.pci), "%s", pci);
        return topology_add_node(kfd->topology, &node, ret_position);
}

static int read_node(struct kfd *kfd, const char *name) {
        uint32_t node = number(name), *position;
        char text[SYSFS_TEXT_MAX], pci[24];
        uint64_t location;
        int r = 0;

        if (node == NODES_MAX || !*sysfs_text(text, kfd->root, NODES "/%s/properties", name))
                return 0;
        position = &kfd->positions[node];
        if (property(text, "simd_count", 0) == 0) {
                if (property(text, "cpu_cores_count", 0) > 0)
                        *position = topology_find(kfd->topology, TOPOLOGY_NUMA, kfd->n_cpu_nodes++);
                return 0;
        }
        location = property(text, "location_id", 0);
        snprintf(pci, sizeof(pci), "%04" PRIx64 ":%02" PRIx64 ":%02" PRIx64 ".%" PRIx64,
                 property(text, "domain", 0) & 0xffffffff, location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
        *position = topology_find_pci(kfd->topology, TOPOLOGY_GPU, pci);
        if (*position == TOPOLOGY_NONE)
                r = add_gpu(kfd, pci, property(text, "vendor_id", 0), position);
        if (!r && kfd->topology->nodes[*position].memory_bytes == 0)
                kfd->topology->nodes[*position].memory_bytes = memory_of(kfd, name);
        return r;
}

static int read_link(struct kfd *kfd, const char *node, const char *name) {
        char text[SYSFS_TEXT_MAX];
        struct topology_link link = {0};
        struct topology_node *from, *to;
        uint64_t type, a, b, megabytes;
        int r;

        sysfs_text(text, kfd->root, NODES "/%s/io_links/%s/properties", node, name);
        type = property(text, "type", 0);
        megabytes = property(text, "max_bandwidth", 0);
        a = property(text, "node_from", NODES_MAX);
        b = property(text, "node_to", NODES_MAX);
        if (a >= NODES_MAX || b >= NODES_MAX || kfd->positions[a] == TOPOLOGY_NONE ||
            kfd->positions[b] == TOPOLOGY_NONE || kfd->positions[a] == kfd->positions[b])
                return 0;
        link.a = kfd->positions[a];
        link.b = kfd->positions[b];
        link.bytes_per_second = megabytes < TOPOLOGY_RATE_MAX / 1000000 ? megabytes * 1000000 : 0;
        from = &kfd->topology->nodes[link.a];
        to = &kfd->topology->nodes[link.b];
        if (from->kind != TOPOLOGY_GPU) /* links of CPUs; theirs with GPUs are named by the GPU too */
                return 0;
        if (type == LINK_XGMI && property(text, "weight", 0) <= WEIGHT_HOP) {
                link.kind = TOPOLOGY_LINK_XGMI;
        } else if (type == LINK_PCI && to->kind == TOPOLOGY_NUMA && from->numa == TOPOLOGY_NONE) {
                link.kind = TOPOLOGY_LINK_PCI; /* a GPU that hwloc does not know */
        } else {
                return 0;
        }
        if (to->kind == TOPOLOGY_NUMA && from->numa == TOPOLOGY_NONE)
                from->numa = link.b;
        r = topology_add_link(kfd->topology, &link);
        return r == TOPOLOGY_E_EXISTS ? 0 : r; /* the other direction */
}

static int read_links(struct kfd *kfd, const char *node) {
        struct sysfs_names links;
        int r = 0;

        sysfs_list(&links, kfd->root, NODES "/%s/io_links", node);
        for (int i = 0; !r && i < links.n; i++)
                r = read_link(kfd, node, links.entries[i]->d_name);
        sysfs_list_deinit(&links);
        return r;
}

int kfd_read(const char *root, struct topology *topology) {
        struct kfd kfd = {.topology = topology, .root = root};
        struct sysfs_names nodes;
        int r = 0;

        memset(kfd.positions, 0xff, sizeof(kfd.positions));
        sysfs_list(&nodes, root, NODES);
        for (int i = 0; !r && i < nodes.n; i++)
                r = read_node(&kfd, nodes.entries[i]->d_name);
        for (int i = 0; !r && i < nodes.n; i++)
                r = read_links(&kfd, nodes.entries[i]->d_name);
        sysfs_list_deinit(&nodes);
        return r;
}
