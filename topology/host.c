/* SPDX-License-Identifier: MIT */
/*
 * A host with emulated GPUs. hwloc says what CPUs and NUMA nodes this process may use, which in a container is less
 * than what the machine has. Emulated GPUs are dealt out to the NUMA nodes in turn, and every two of them can reach
 * each other at the speed of a copy in memory.
 */
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>

#include "topology/hwloc_private.h"
#include "topology/topology.h"
#include "util/cleanup.h"

/* What a copy between workers reaches in cache (plan/cost.c has the same figure from the same measurement). */
#define HOST_BYTES_PER_SECOND UINT64_C(100000000000)
#define HOST_LATENCY_NS       200u

static int host_cpus(struct topology *topology, hwloc_topology_t hwloc) {
        int n_numa = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_NUMANODE);
        int n_cpus = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_PU);
        uint32_t position;
        int r = 0;

        if (n_numa < 1 || n_cpus < 1)
                return -EIO;
        topology->n_cpus = (uint32_t)n_cpus;
        for (int i = 0; !r && i < n_numa; i++) {
                hwloc_obj_t object = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, (unsigned int)i);
                struct topology_node node = {
                        .kind = TOPOLOGY_NUMA,
                        .index = object->os_index,
                        .numa = TOPOLOGY_NONE,
                        .n_cpus = (uint32_t)hwloc_get_nbobjs_inside_cpuset_by_type(hwloc, object->cpuset, HWLOC_OBJ_PU),
                        .memory_bytes = object->attr->numanode.local_memory,
                };

                snprintf(node.name, sizeof(node.name), "numa%u", node.index);
                r = topology_add_node(topology, &node, &position);
        }
        return r;
}

static int host_gpu(struct topology *topology, uint32_t index, uint32_t n_numa) {
        struct topology_node node = {.kind = TOPOLOGY_GPU, .index = index, .numa = index % n_numa};
        struct topology_link link = {
                .a = node.numa, .kind = TOPOLOGY_LINK_LOCAL, .bytes_per_second = HOST_BYTES_PER_SECOND};
        int r;

        snprintf(node.name, sizeof(node.name), "host%u", index);
        r = topology_add_node(topology, &node, &link.b);
        if (!r)
                r = topology_add_link(topology, &link);
        link.kind = TOPOLOGY_LINK_MEMORY;
        link.latency_ns = HOST_LATENCY_NS;
        for (link.a = n_numa; !r && link.a < link.b; link.a++) /* the GPUs before this one */
                r = topology_add_link(topology, &link);
        return r;
}

int topology_add_emulated(struct topology *topology, uint32_t n_gpus) {
        uint32_t n_numa = topology->n_nodes;
        int r = 0;

        if (n_gpus < 1 || n_gpus > TOPOLOGY_GPUS_MAX || n_numa < 1 || topology_count(topology, TOPOLOGY_NUMA) != n_numa)
                return TOPOLOGY_E_INVALID;
        for (uint32_t i = 0; !r && i < n_gpus; i++)
                r = host_gpu(topology, i, n_numa);
        return r;
}

int topology_host(uint32_t n_gpus, struct topology **ret_topology) {
        _cleanup_(hwloc_freep) hwloc_topology_t hwloc = NULL;
        _cleanup_(topology_freep) struct topology *topology = NULL;
        int r;

        if (n_gpus < 1 || n_gpus > TOPOLOGY_GPUS_MAX)
                return TOPOLOGY_E_INVALID;
        errno = 0;
        if (hwloc_topology_init(&hwloc) < 0 || hwloc_topology_load(hwloc) < 0)
                return hwloc_failed();
        r = topology_new(&topology);
        if (!r)
                r = host_cpus(topology, hwloc);
        if (!r)
                r = topology_add_emulated(topology, n_gpus);
        if (r)
                return r;
        *ret_topology = topology;
        topology = NULL;
        return 0;
}
