/* SPDX-License-Identifier: MIT */
/*
 * hwloc for CPUs, NUMA nodes and PCI, the kernel's own words for what it leaves out. hwloc's plug-ins for GPU runtimes
 * are kept out: they would make contexts in a process that must not have any. That for PCI is kept out too: hwloc reads
 * sysfs itself, so the same is seen whether plug-ins are installed or not, and that one leaks.
 */
#include "topology/discover.h"

#include <errno.h>
#include <hwloc.h>
#include <string.h>
#include <strings.h>

#include "topology/hwloc_private.h"
#include "topology/kfd.h"
#include "topology/machine.h"
#include "topology/nic.h"
#include "topology/topology.h"
#include "util/cleanup.h"

static int look(hwloc_topology_t *ret_hwloc) {
        static const char *const barred[] = {"pci", "cuda", "nvml", "rsmi", "levelzero", "opencl", "gl"};
        _cleanup_(hwloc_freep) hwloc_topology_t hwloc = NULL;

        errno = 0;
        if (hwloc_topology_init(&hwloc) < 0)
                return hwloc_failed();
        for (size_t i = 0; i < sizeof(barred) / sizeof(barred[0]); i++)
                hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, barred[i]);
        if (hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_ALL) < 0 || hwloc_topology_load(hwloc) < 0)
                return hwloc_failed();
        *ret_hwloc = hwloc;
        hwloc = NULL;
        return 0;
}

void topology_number_gpus(struct topology *topology, const char *const *pci, uint32_t n) {
        uint32_t next = n;

        for (uint32_t i = 0; i < topology->n_nodes; i++) {
                struct topology_node *node = &topology->nodes[i];
                uint32_t k = 0;

                if (node->kind != TOPOLOGY_GPU)
                        continue;
                while (k < n && (strcasecmp(pci[k], node->pci) != 0 || !pci[k][0]))
                        k++;
                node->index = k < n ? k : next++;
        }
}

int topology_discover(const struct discover_options *options, struct topology **ret_topology) {
        _cleanup_(topology_freep) struct topology *topology = NULL;
        _cleanup_(hwloc_freep) hwloc_topology_t hwloc = NULL;
        const char *root = options->root ? options->root : "";
        int r;

        r = look(&hwloc);
        if (!r)
                r = topology_new(&topology);
        if (!r)
                r = machine_read(hwloc, root, options->emulated, topology);
        if (!r && !options->emulated)
                r = kfd_read(root, topology);
        if (!r)
                r = nic_read(root, topology);
        if (r)
                return r == TOPOLOGY_E_EXISTS ? TOPOLOGY_E_INVALID : r;
        if (!options->emulated)
                topology_number_gpus(topology, options->gpus, options->n_gpus);
        *ret_topology = topology;
        topology = NULL;
        return 0;
}
