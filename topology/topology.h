/* SPDX-License-Identifier: MIT */
#pragma once
/* The node as a graph: NUMA nodes, PCI switches, GPUs, NICs and the links between them. See topology.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOPOLOGY_NONE      UINT32_MAX
#define TOPOLOGY_NODES_MAX 4096u
#define TOPOLOGY_LINKS_MAX 16384u
#define TOPOLOGY_GPUS_MAX  128u
#define TOPOLOGY_RATE_MAX  UINT64_C(1000000000000000) /* bytes per second of a link */

enum topology_node_kind {
        TOPOLOGY_NUMA = 1,
        TOPOLOGY_GPU = 2,
        TOPOLOGY_NIC = 3,
        TOPOLOGY_SWITCH = 4,  /* a PCI bridge or switch with more than one thing below it */
        TOPOLOGY_ROOT = 5,    /* a PCI host bridge with more than one thing below it */
        TOPOLOGY_NETWORK = 6, /* what ports of NICs are plugged into */
        TOPOLOGY_NODE_KIND_COUNT = 7,
};

enum topology_link_kind {
        TOPOLOGY_LINK_LOCAL = 1,  /* a device and the NUMA node it hangs on */
        TOPOLOGY_LINK_MEMORY = 2, /* emulated GPUs: one copies in memory that the other reads */
        TOPOLOGY_LINK_DIRECT = 3, /* two GPUs, on a fabric of their own that is none of those below */
        TOPOLOGY_LINK_NUMA = 4,   /* two NUMA nodes */
        TOPOLOGY_LINK_PCI = 5,    /* a device or switch and what it hangs on; also several links in a row */
        TOPOLOGY_LINK_XGMI = 6,
        TOPOLOGY_LINK_NVLINK = 7,
        TOPOLOGY_LINK_PORT = 8, /* a NIC and the network */
        TOPOLOGY_LINK_KIND_COUNT = 9,
};

enum {
        _TOPOLOGY_E_SUCCESS,
        TOPOLOGY_E_INVALID, /* unknown kind or node, a link to itself or too fast, too many nodes or links */
        TOPOLOGY_E_EXISTS,  /* (kind, index) or the link is there already */
};

struct topology_node {
        uint32_t kind;         /* enum topology_node_kind */
        uint32_t index;        /* among its kind, as users count them */
        uint32_t numa;         /* position of the NUMA node it belongs to, or TOPOLOGY_NONE */
        uint32_t n_cpus;       /* of a NUMA node: CPUs that this process may use */
        uint64_t memory_bytes; /* own memory, 0: unknown */
        uint32_t vendor;       /* of PCI, 0: unknown */
        char name[64];         /* for people */
        char pci[24];          /* "0000:1a:00.0"; empty: none, or unknown */
        char netdev[16];       /* a NIC to the kernel's network; empty: none */
        char rdma[64];         /* a NIC to ibverbs; empty: none */
};

/* Works both ways. */
struct topology_link {
        uint32_t a, b;             /* positions of nodes, a < b */
        uint32_t kind;             /* enum topology_link_kind */
        uint64_t bytes_per_second; /* each way; 0: unknown */
        uint32_t latency_ns;       /* 0: unknown */
        uint16_t width;            /* lanes, or physical links side by side; 0: unknown */
        uint16_t generation;       /* of PCI; 0: unknown */
};

struct topology {
        struct topology_node *nodes; /* position = index into this array; nodes are never removed */
        struct topology_link *links;
        uint32_t n_nodes;
        uint32_t n_links;
        uint32_t n_cpus; /* that this process may use */
};

int topology_new(struct topology **ret_topology);
/* NULL is fine; returns NULL. */
struct topology *topology_free(struct topology *topology);
/* This host with n_gpus emulated GPUs: a full mesh among them, spread over the NUMA nodes. TOPOLOGY_E_INVALID, -errno.
 */
int topology_host(uint32_t n_gpus, struct topology **ret_topology);
/* Emulated GPUs for a graph that has only NUMA nodes as yet. TOPOLOGY_E_INVALID, -ENOMEM. */
int topology_add_emulated(struct topology *topology, uint32_t n_gpus);

/* Copies the node; *ret_position is where it is. What is not printable ASCII in its texts becomes '?'.
 * TOPOLOGY_E_INVALID, TOPOLOGY_E_EXISTS, -ENOMEM. */
int topology_add_node(struct topology *topology, const struct topology_node *node, uint32_t *ret_position);
/* A text of a node: what is not printable ASCII becomes '?', what is too long is cut. */
void topology_text_set(char *out, size_t size, const char *text);
/* The order of a and b does not matter. TOPOLOGY_E_INVALID, TOPOLOGY_E_EXISTS, -ENOMEM. */
int topology_add_link(struct topology *topology, const struct topology_link *link);

/* Position of a node, or TOPOLOGY_NONE. An empty address finds nothing. */
uint32_t topology_find_pci(const struct topology *topology, enum topology_node_kind kind, const char *pci);
uint32_t topology_find(const struct topology *topology, enum topology_node_kind kind, uint32_t index);
uint32_t topology_count(const struct topology *topology, enum topology_node_kind kind);
/* The direct link with the most bandwidth between two positions, or NULL. */
const struct topology_link *topology_link_find(const struct topology *topology, uint32_t a, uint32_t b);
/* Has every pair of GPUs a direct link? */
bool topology_full_mesh(const struct topology *topology);
/* The way from one position to another: as few links as possible, among those the one whose narrowest link is widest.
 * Fills links[] (positions in the topology's list, in order) and returns how many there are, 0 if there is no way or
 * more than `max`, or a == b. */
uint32_t topology_path(const struct topology *topology, uint32_t a, uint32_t b, uint32_t *links, uint32_t max);
/* The same to several ends with one search: ret_n[i] links to ends[i], which stand in links[i * max] on. -ENOMEM. */
int topology_paths(const struct topology *topology, uint32_t a, const uint32_t *ends, uint32_t n_ends, uint32_t *links,
                   uint32_t max, uint32_t *ret_n);
const char *topology_node_kind_name(uint32_t kind); /* "gpu"; "?" if unknown */
const char *topology_link_kind_name(uint32_t kind); /* "direct"; "?" if unknown */
/* 0 if there is no such name. */
uint32_t topology_node_kind_find(const char *name, size_t length);
uint32_t topology_link_kind_find(const char *name);
/* "AMD" and the like; "" if we have no name for it. */
const char *topology_vendor_name(uint32_t vendor);

static inline void topology_freep(struct topology **topology) {
        *topology = topology_free(*topology);
}
