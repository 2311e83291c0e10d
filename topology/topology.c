/* SPDX-License-Identifier: MIT */
/*
 * The graph of a node
 *
 * Nodes are things with a place, links are ways for bytes between two of them. Both are plain arrays of tagged structs:
 * a reader of PCI, of xGMI or of a file adds nodes and links of its own kinds, and who looks for GPUs and the links
 * between them goes on as before. Positions never change, so links and users name nodes by them. Between two nodes
 * there may be links of several kinds, one of each.
 *
 * Graphs are small (hundreds of nodes, made once), so looking up is a walk.
 */
#include "topology/topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int topology_new(struct topology **ret_topology) {
        struct topology *topology = calloc(1, sizeof(*topology));

        if (!topology)
                return -ENOMEM;
        *ret_topology = topology;
        return 0;
}

struct topology *topology_free(struct topology *topology) {
        if (!topology)
                return NULL;
        free(topology->nodes);
        free(topology->links);
        free(topology);
        return NULL;
}

void topology_text_set(char *out, size_t size, const char *text) {
        size_t length = strnlen(text, size - 1);

        for (size_t i = 0; i < length; i++)
                out[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
        memset(out + length, 0, size - length);
}

int topology_add_node(struct topology *topology, const struct topology_node *node, uint32_t *ret_position) {
        struct topology_node *nodes;
        uint32_t position = topology->n_nodes;

        if (node->kind < TOPOLOGY_NUMA || node->kind >= TOPOLOGY_NODE_KIND_COUNT || position >= TOPOLOGY_NODES_MAX)
                return TOPOLOGY_E_INVALID;
        if (node->numa != TOPOLOGY_NONE &&
            (node->numa >= position || topology->nodes[node->numa].kind != TOPOLOGY_NUMA))
                return TOPOLOGY_E_INVALID;
        if (topology_find(topology, node->kind, node->index) != TOPOLOGY_NONE)
                return TOPOLOGY_E_EXISTS;
        nodes = reallocarray(topology->nodes, position + 1, sizeof(*nodes));
        if (!nodes)
                return -ENOMEM;
        topology->nodes = nodes;
        nodes[position] = *node;
        topology_text_set(nodes[position].name, sizeof(nodes[position].name), node->name);
        topology_text_set(nodes[position].pci, sizeof(nodes[position].pci), node->pci);
        topology_text_set(nodes[position].netdev, sizeof(nodes[position].netdev), node->netdev);
        topology_text_set(nodes[position].rdma, sizeof(nodes[position].rdma), node->rdma);
        topology->n_nodes++;
        *ret_position = position;
        return 0;
}

int topology_add_link(struct topology *topology, const struct topology_link *link) {
        struct topology_link added = *link;
        struct topology_link *links;

        if (link->kind < TOPOLOGY_LINK_LOCAL || link->kind >= TOPOLOGY_LINK_KIND_COUNT || link->a == link->b ||
            link->a >= topology->n_nodes || link->b >= topology->n_nodes ||
            link->bytes_per_second > TOPOLOGY_RATE_MAX || topology->n_links >= TOPOLOGY_LINKS_MAX)
                return TOPOLOGY_E_INVALID;
        if (link->a > link->b) {
                added.a = link->b;
                added.b = link->a;
        }
        for (uint32_t i = 0; i < topology->n_links; i++)
                if (topology->links[i].a == added.a && topology->links[i].b == added.b &&
                    topology->links[i].kind == added.kind)
                        return TOPOLOGY_E_EXISTS;
        links = reallocarray(topology->links, topology->n_links + 1, sizeof(*links));
        if (!links)
                return -ENOMEM;
        topology->links = links;
        links[topology->n_links++] = added;
        return 0;
}

uint32_t topology_find(const struct topology *topology, enum topology_node_kind kind, uint32_t index) {
        for (uint32_t i = 0; i < topology->n_nodes; i++)
                if (topology->nodes[i].kind == kind && topology->nodes[i].index == index)
                        return i;
        return TOPOLOGY_NONE;
}

uint32_t topology_find_pci(const struct topology *topology, enum topology_node_kind kind, const char *pci) {
        for (uint32_t i = 0; i < topology->n_nodes && pci[0]; i++)
                if (topology->nodes[i].kind == kind && strcmp(topology->nodes[i].pci, pci) == 0)
                        return i;
        return TOPOLOGY_NONE;
}

uint32_t topology_count(const struct topology *topology, enum topology_node_kind kind) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < topology->n_nodes; i++)
                n += topology->nodes[i].kind == kind;
        return n;
}

const struct topology_link *topology_link_find(const struct topology *topology, uint32_t a, uint32_t b) {
        const struct topology_link *best = NULL;
        uint32_t low = a < b ? a : b, high = a < b ? b : a;

        for (uint32_t i = 0; i < topology->n_links; i++) {
                const struct topology_link *link = &topology->links[i];

                if (link->a == low && link->b == high && (!best || link->bytes_per_second > best->bytes_per_second))
                        best = link;
        }
        return best;
}

bool topology_full_mesh(const struct topology *topology) {
        for (uint32_t a = 0; a < topology->n_nodes; a++)
                for (uint32_t b = a + 1; b < topology->n_nodes; b++)
                        if (topology->nodes[a].kind == TOPOLOGY_GPU && topology->nodes[b].kind == TOPOLOGY_GPU &&
                            !topology_link_find(topology, a, b))
                                return false;
        return true;
}

static const char *const node_kinds[TOPOLOGY_NODE_KIND_COUNT] = {
        [TOPOLOGY_NUMA] = "numa",     [TOPOLOGY_GPU] = "gpu",   [TOPOLOGY_NIC] = "nic",
        [TOPOLOGY_SWITCH] = "switch", [TOPOLOGY_ROOT] = "root", [TOPOLOGY_NETWORK] = "network",
};

static const char *const link_kinds[TOPOLOGY_LINK_KIND_COUNT] = {
        [TOPOLOGY_LINK_LOCAL] = "local",   [TOPOLOGY_LINK_MEMORY] = "memory", [TOPOLOGY_LINK_DIRECT] = "direct",
        [TOPOLOGY_LINK_NUMA] = "numa",     [TOPOLOGY_LINK_PCI] = "pci",       [TOPOLOGY_LINK_XGMI] = "xgmi",
        [TOPOLOGY_LINK_NVLINK] = "nvlink", [TOPOLOGY_LINK_PORT] = "port",
};

const char *topology_node_kind_name(uint32_t kind) {
        return kind < TOPOLOGY_NODE_KIND_COUNT && node_kinds[kind] ? node_kinds[kind] : "?";
}

const char *topology_link_kind_name(uint32_t kind) {
        return kind < TOPOLOGY_LINK_KIND_COUNT && link_kinds[kind] ? link_kinds[kind] : "?";
}

uint32_t topology_node_kind_find(const char *name, size_t length) {
        for (uint32_t kind = TOPOLOGY_NUMA; kind < TOPOLOGY_NODE_KIND_COUNT; kind++)
                if (strlen(node_kinds[kind]) == length && memcmp(node_kinds[kind], name, length) == 0)
                        return kind;
        return 0;
}

uint32_t topology_link_kind_find(const char *name) {
        for (uint32_t kind = TOPOLOGY_LINK_LOCAL; kind < TOPOLOGY_LINK_KIND_COUNT; kind++)
                if (strcmp(link_kinds[kind], name) == 0)
                        return kind;
        return 0;
}

const char *topology_vendor_name(uint32_t vendor) {
        static const struct {
                uint32_t vendor;
                const char *name;
        } names[] = {
                {0x1002, "AMD"},      {0x1022, "AMD"},      {0x10de, "NVIDIA"},   {0x8086, "Intel"},
                {0x14e4, "Broadcom"}, {0x15b3, "Mellanox"}, {0x1dd8, "Pensando"}, {0x1af4, "virtio"},
        };

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (names[i].vendor == vendor)
                        return names[i].name;
        return "";
}

/* A device is the end of a way, never its middle. */
static bool passes(const struct topology_node *node) {
        return node->kind == TOPOLOGY_NUMA || node->kind == TOPOLOGY_SWITCH || node->kind == TOPOLOGY_ROOT;
}

/* One round more of links than `from` has: the widest ways to everything that it reaches. */
static bool path_round(const struct topology *topology, uint32_t start, const uint64_t *from, uint64_t *to,
                       uint32_t *via) {
        bool found = false;

        for (uint32_t i = 0; i < topology->n_links; i++) {
                const struct topology_link *link = &topology->links[i];
                uint64_t wide = link->bytes_per_second > 0 ? link->bytes_per_second : 1; /* unknown: better than none */

                for (int way = 0; way < 2; way++) {
                        uint32_t a = way ? link->b : link->a, b = way ? link->a : link->b;
                        uint64_t narrowest = from[a] < wide ? from[a] : wide;

                        if (a != start && !passes(&topology->nodes[a]))
                                continue;
                        if (narrowest > to[b]) {
                                to[b] = narrowest;
                                via[b] = i;
                                found = true;
                        }
                }
        }
        return found;
}

/* The last of so many rounds, and back from there link by link. */
static void path_take(const struct topology *topology, const uint32_t *via, uint32_t b, uint32_t n_links,
                      uint32_t *links) {
        for (uint32_t round = n_links, at = b; round > 0; round--) {
                const struct topology_link *link = &topology->links[via[round * topology->n_nodes + at]];

                links[round - 1] = via[round * topology->n_nodes + at];
                at = link->a == at ? link->b : link->a;
        }
}

int topology_paths(const struct topology *topology, uint32_t a, const uint32_t *ends, uint32_t n_ends, uint32_t *links,
                   uint32_t max, uint32_t *ret_n) {
        uint32_t n = topology->n_nodes, left = 0;
        uint64_t *width; /* [round][node]: of the best way with so many links; 0: none */
        uint32_t *via;   /* [round][node]: its last link */

        width = calloc((size_t)n * (max + 1) + 1, sizeof(*width));
        via = calloc((size_t)n * (max + 1) + 1, sizeof(*via));
        if (!width || !via) {
                free(width);
                free(via);
                return -ENOMEM;
        }
        for (uint32_t i = 0; i < n_ends; i++) {
                ret_n[i] = 0;
                left += a < n && ends[i] < n && ends[i] != a;
        }
        if (left > 0)
                width[a] = UINT64_MAX;
        for (uint32_t round = 1; round <= max && left > 0; round++) {
                if (!path_round(topology, a, &width[(round - 1) * n], &width[round * n], &via[round * n]))
                        break;
                for (uint32_t i = 0; i < n_ends; i++) {
                        if (ret_n[i] > 0 || ends[i] >= n || ends[i] == a || width[round * n + ends[i]] == 0)
                                continue;
                        path_take(topology, via, ends[i], round, &links[i * max]);
                        ret_n[i] = round;
                        left--;
                }
        }
        free(width);
        free(via);
        return 0;
}

uint32_t topology_path(const struct topology *topology, uint32_t a, uint32_t b, uint32_t *links, uint32_t max) {
        uint32_t n;

        return topology_paths(topology, a, &b, 1, links, max, &n) ? 0 : n;
}
