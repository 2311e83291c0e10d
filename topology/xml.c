/* SPDX-License-Identifier: MIT */
/*
 * A node as hwloc has written it down. GPUs are found by their PCI class: accelerators and 3D controllers; graphics
 * adapters only if there is nothing else, since servers have one for their console. A GPU hangs on the NUMA node next
 * to it, at the speed of its PCI link. GPUs that share a fabric are known from the matrix of bandwidths that hwloc's
 * plugins leave in the file; NUMA nodes are all linked, at a speed that the file does not know.
 */
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "topology/topology.h"
#include "util/cleanup.h"

#define PCI_CLASS_VGA         0x0300
#define PCI_CLASS_3D          0x0302
#define PCI_CLASS_DISPLAY     0x0380
#define PCI_CLASS_ACCELERATOR 0x1200
#define MATRICES_MAX          4u

struct reader {
        hwloc_topology_t hwloc;
        struct topology *topology;
        hwloc_obj_t gpus[TOPOLOGY_GPUS_MAX];
        uint32_t positions[TOPOLOGY_GPUS_MAX];
        uint32_t n_gpus;
};

static void hwloc_freep(hwloc_topology_t *hwloc) {
        if (*hwloc)
                hwloc_topology_destroy(*hwloc);
}

static int read_numa(struct reader *reader) {
        struct topology *topology = reader->topology;
        uint32_t position;
        int r = 0;

        for (hwloc_obj_t o = NULL; !r && (o = hwloc_get_next_obj_by_type(reader->hwloc, HWLOC_OBJ_NUMANODE, o));) {
                struct topology_node node = {.kind = TOPOLOGY_NUMA, .index = o->os_index, .numa = TOPOLOGY_NONE};

                node.n_cpus = (uint32_t)hwloc_get_nbobjs_inside_cpuset_by_type(reader->hwloc, o->cpuset, HWLOC_OBJ_PU);
                node.memory_bytes = o->attr->numanode.local_memory;
                snprintf(node.name, sizeof(node.name), "numa%u", node.index);
                r = topology_add_node(topology, &node, &position);
        }
        for (uint32_t b = 1; !r && b < topology->n_nodes; b++)
                for (uint32_t a = 0; !r && a < b; a++)
                        r = topology_add_link(topology,
                                              &(struct topology_link){.a = a, .b = b, .kind = TOPOLOGY_LINK_NUMA});
        return r;
}

static bool is_gpu(hwloc_obj_t pci, bool vga) {
        unsigned int class = pci->attr->pcidev.class_id;

        return vga ? class == PCI_CLASS_VGA
                   : class == PCI_CLASS_3D || class == PCI_CLASS_DISPLAY || class == PCI_CLASS_ACCELERATOR;
}

/* The NUMA node whose memory is next to this object; the first one if nothing says. */
static uint32_t numa_of(const struct reader *reader, hwloc_obj_t object) {
        hwloc_obj_t ancestor = hwloc_get_non_io_ancestor_obj(reader->hwloc, object);

        for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(reader->hwloc, HWLOC_OBJ_NUMANODE, o));)
                if (ancestor && ancestor->nodeset && hwloc_bitmap_isset(ancestor->nodeset, o->os_index))
                        return topology_find(reader->topology, TOPOLOGY_NUMA, o->os_index);
        return 0;
}

static int read_gpu(struct reader *reader, hwloc_obj_t pci) {
        const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
        struct topology_node node = {.kind = TOPOLOGY_GPU, .index = reader->n_gpus, .numa = numa_of(reader, pci)};
        struct topology_link link = {.a = node.numa, .kind = TOPOLOGY_LINK_LOCAL};
        int r;

        if (reader->n_gpus == TOPOLOGY_GPUS_MAX)
                return TOPOLOGY_E_INVALID;
        snprintf(node.name, sizeof(node.name), "%04x:%02x:%02x.%x", attr->domain, attr->bus, attr->dev, attr->func);
        r = topology_add_node(reader->topology, &node, &link.b);
        if (r)
                return r;
        reader->gpus[reader->n_gpus] = pci;
        reader->positions[reader->n_gpus++] = link.b;
        link.bytes_per_second = attr->linkspeed > 0 ? (uint64_t)((double)attr->linkspeed * 1e9) : 0;
        return topology_add_link(reader->topology, &link);
}

static int read_gpus(struct reader *reader) {
        int r = 0;

        for (int vga = 0; vga < 2 && reader->n_gpus == 0; vga++)
                for (hwloc_obj_t o = NULL; !r && (o = hwloc_get_next_pcidev(reader->hwloc, o));)
                        if (is_gpu(o, vga))
                                r = read_gpu(reader, o);
        return r;
}

/* Which GPU an object of a matrix (a driver's name for it) belongs to. */
static uint32_t gpu_of(const struct reader *reader, hwloc_obj_t object) {
        while (object && object->type != HWLOC_OBJ_PCI_DEVICE)
                object = object->parent;
        for (uint32_t i = 0; object && i < reader->n_gpus; i++)
                if (reader->gpus[i] == object)
                        return reader->positions[i];
        return TOPOLOGY_NONE;
}

/* Bandwidths are in MB/s; what a GPU has to itself stands on the diagonal. */
static int read_matrix(struct reader *reader, const struct hwloc_distances_s *matrix) {
        for (unsigned int i = 0; i < matrix->nbobjs; i++)
                for (unsigned int j = 0; j < i; j++) {
                        struct topology_link link = {.a = gpu_of(reader, matrix->objs[i]),
                                                     .b = gpu_of(reader, matrix->objs[j]),
                                                     .kind = TOPOLOGY_LINK_DIRECT};
                        int r;

                        link.bytes_per_second = matrix->values[i * matrix->nbobjs + j] * 1000000u;
                        if (link.a == link.b || link.a == TOPOLOGY_NONE || link.b == TOPOLOGY_NONE ||
                            link.bytes_per_second == 0)
                                continue;
                        r = topology_add_link(reader->topology, &link);
                        if (r && r != TOPOLOGY_E_EXISTS)
                                return r;
                }
        return 0;
}

static int read_fabric(struct reader *reader) {
        static const char *const names[] = {"XGMIBandwidth", "NVLinkBandwidth", "XeLinkBandwidth"};
        int r = 0;

        for (size_t i = 0; !r && i < sizeof(names) / sizeof(names[0]); i++) {
                struct hwloc_distances_s *matrices[MATRICES_MAX];
                unsigned int n = MATRICES_MAX;

                if (hwloc_distances_get_by_name(reader->hwloc, names[i], &n, matrices, 0) < 0)
                        continue;
                n = n < MATRICES_MAX ? n : MATRICES_MAX;
                for (unsigned int k = 0; k < n; k++) {
                        r = r ? r : read_matrix(reader, matrices[k]);
                        hwloc_distances_release(reader->hwloc, matrices[k]);
                }
        }
        return r;
}

int topology_load_xml(const char *path, struct topology **ret_topology) {
        _cleanup_(hwloc_freep) hwloc_topology_t hwloc = NULL;
        _cleanup_(topology_freep) struct topology *topology = NULL;
        struct reader reader = {0};
        int r;

        if (access(path, R_OK) < 0)
                return -errno;
        if (hwloc_topology_init(&hwloc) < 0)
                return -ENOMEM;
        if (hwloc_topology_set_xml(hwloc, path) < 0 ||
            hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_ALL) < 0 || hwloc_topology_load(hwloc) < 0)
                return TOPOLOGY_E_INVALID;
        r = topology_new(&topology);
        if (r)
                return r;
        topology->n_cpus = (uint32_t)hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_PU);
        reader.hwloc = hwloc;
        reader.topology = topology;
        r = read_numa(&reader);
        if (!r)
                r = read_gpus(&reader);
        if (!r)
                r = read_fabric(&reader);
        if (r)
                return r;
        *ret_topology = topology;
        topology = NULL;
        return 0;
}
