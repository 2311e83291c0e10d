/* SPDX-License-Identifier: MIT */
/*
 * A machine as hwloc sees it
 *
 * GPUs are found by their PCI class: accelerators and 3D controllers; graphics adapters only if there is nothing else,
 * since servers have one for their console. A NIC is a PCI function with a device of the kernel's network or of
 * ibverbs, or one of the class of Ethernet or InfiniBand: a process with a network namespace and a /sys of its own sees
 * no devices of the network. Virtual functions are not counted, they are the NIC that they belong to.
 *
 * Of PCI's tree remains what matters for who shares what: a bridge becomes a node if more than one thing of interest
 * hangs below it, that is, host bridges (roots) and switches with several devices. A chain of bridges with nothing
 * beside it is one link, as fast as its slowest piece. What has a root or a switch to itself hangs on the NUMA node.
 * The speed is what both ends of a link can do, since idle GPUs clock their links down; in a file there is only the
 * speed of the moment in which it was written.
 *
 * GPUs that share a fabric are known from the matrix of bandwidths that hwloc's plugins provide, if they do (kfd.c
 * reads them for AMD without); NUMA nodes are all linked, at a speed that nobody says.
 *
 * hwloc's tree has no NUMA node for devices whose place the firmware does not tell. On a machine with one node there is
 * no question; elsewhere such a NIC has no locality, and a GPU is taken for one of the first node.
 */
#include "topology/machine.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/sysfs.h"
#include "topology/topology.h"

#define PCI_CLASS_ETHERNET    0x0200
#define PCI_CLASS_INFINIBAND  0x0207
#define PCI_CLASS_VGA         0x0300
#define PCI_CLASS_3D          0x0302
#define PCI_CLASS_DISPLAY     0x0380
#define PCI_CLASS_ACCELERATOR 0x1200
#define MATRICES_MAX          4u
#define GENERATIONS           6u

struct reader {
        hwloc_topology_t hwloc;
        struct topology *topology;
        const char *root; /* of sysfs; NULL: not this machine */
        bool gpus_wanted;
        bool vga; /* graphics adapters are the GPUs */
        hwloc_obj_t gpus[TOPOLOGY_GPUS_MAX];
        uint32_t positions[TOPOLOGY_GPUS_MAX];
        uint32_t n_gpus, n_nics, n_switches, n_roots;
};

/* A chain of PCI links upwards from something. */
struct uplink {
        uint64_t bytes_per_second; /* of the slowest; 0: unknown */
        uint16_t width, generation;
};

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

/* ---- PCI ---- */

static const struct hwloc_pcidev_attr_s *pci_of(hwloc_obj_t object) {
        if (object->type == HWLOC_OBJ_PCI_DEVICE)
                return &object->attr->pcidev;
        if (object->type == HWLOC_OBJ_BRIDGE && object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI)
                return &object->attr->bridge.upstream.pci;
        return NULL;
}

static void pci_text(char out[24], const struct hwloc_pcidev_attr_s *pci) {
        snprintf(out, 24, "%04x:%02x:%02x.%x", pci->domain, pci->bus, pci->dev, pci->func & 7u);
}

/* Of "32.0 GT/s PCIe"; 0: unknown. */
static uint16_t pci_generation(double gigatransfers) {
        static const double speeds[GENERATIONS] = {2.5, 5, 8, 16, 32, 64};

        for (uint16_t i = 0; i < GENERATIONS; i++)
                if (gigatransfers > speeds[i] * 0.99 && gigatransfers < speeds[i] * 1.01)
                        return (uint16_t)(i + 1);
        return 0;
}

/* What is left of a lane's bits after coding. */
static uint64_t pci_speed(uint16_t generation, uint16_t width) {
        static const uint64_t lanes[GENERATIONS + 1] = {0,          250000000,  500000000, 984615385,
                                                        1969230769, 3938461538, 7563000000};

        return lanes[generation] * width;
}

/* What files claim need not fit. */
static uint64_t rate(double bytes_per_second) {
        if (!(bytes_per_second > 0))
                return 0;
        return bytes_per_second < (double)TOPOLOGY_RATE_MAX ? (uint64_t)bytes_per_second : TOPOLOGY_RATE_MAX;
}

static void pci_uplink(const struct reader *reader, const struct hwloc_pcidev_attr_s *pci, struct uplink *uplink) {
        struct uplink own = {.bytes_per_second = rate((double)pci->linkspeed * 1e9)};
        char address[24], text[SYSFS_TEXT_MAX];

        if (reader->root) {
                int64_t width;

                pci_text(address, pci);
                width = sysfs_number(0, reader->root, "sys/bus/pci/devices/%s/max_link_width", address);
                own.generation = pci_generation(
                        strtod(sysfs_text(text, reader->root, "sys/bus/pci/devices/%s/max_link_speed", address), NULL));
                own.width = width > 0 && width <= 32 && own.generation ? (uint16_t)width : 0;
                if (own.width)
                        own.bytes_per_second = pci_speed(own.generation, own.width);
                else
                        own.generation = 0;
        }
        if (own.bytes_per_second && (!uplink->bytes_per_second || own.bytes_per_second < uplink->bytes_per_second))
                *uplink = own;
}

static hwloc_obj_t os_device(hwloc_obj_t pci, hwloc_obj_osdev_type_t type) {
        for (hwloc_obj_t o = pci->io_first_child; o; o = o->next_sibling)
                if (o->type == HWLOC_OBJ_OS_DEVICE && o->attr->osdev.type == type)
                        return o;
        return NULL;
}

static bool is_gpu_class(unsigned int class, bool vga) {
        return vga ? class == PCI_CLASS_VGA
                   : class == PCI_CLASS_3D || class == PCI_CLASS_DISPLAY || class == PCI_CLASS_ACCELERATOR;
}

static bool is_gpu(const struct reader *reader, hwloc_obj_t object) {
        return reader->gpus_wanted && object->type == HWLOC_OBJ_PCI_DEVICE &&
               is_gpu_class(object->attr->pcidev.class_id, reader->vga);
}

static bool is_nic(const struct reader *reader, hwloc_obj_t object) {
        unsigned int class = object->type == HWLOC_OBJ_PCI_DEVICE ? object->attr->pcidev.class_id : 0;
        char address[24];

        if (!class || (class != PCI_CLASS_ETHERNET && class != PCI_CLASS_INFINIBAND &&
                       !os_device(object, HWLOC_OBJ_OSDEV_NETWORK) && !os_device(object, HWLOC_OBJ_OSDEV_OPENFABRICS)))
                return false;
        pci_text(address, &object->attr->pcidev);
        return !reader->root || !sysfs_exists(reader->root, "sys/bus/pci/devices/%s/physfn", address);
}

/* Devices at or below an object. */
static uint32_t count_devices(const struct reader *reader, hwloc_obj_t object) {
        uint32_t n = is_gpu(reader, object) || is_nic(reader, object);

        for (hwloc_obj_t o = object->io_first_child; o; o = o->next_sibling)
                n += count_devices(reader, o);
        return n;
}

/* The NUMA node that an object is next to, or TOPOLOGY_NONE. */
static uint32_t numa_of(const struct reader *reader, hwloc_obj_t object) {
        hwloc_obj_t ancestor = hwloc_get_non_io_ancestor_obj(reader->hwloc, object);

        if (!ancestor || !ancestor->nodeset || hwloc_bitmap_weight(ancestor->nodeset) != 1)
                return TOPOLOGY_NONE;
        return topology_find(reader->topology, TOPOLOGY_NUMA, (uint32_t)hwloc_bitmap_first(ancestor->nodeset));
}

static int add_node(struct reader *reader, hwloc_obj_t object, uint32_t kind, uint32_t index, uint32_t *ret_position) {
        struct topology_node node = {.kind = kind, .index = index, .numa = numa_of(reader, object)};
        const struct hwloc_pcidev_attr_s *pci = pci_of(object);
        hwloc_obj_t netdev = os_device(object, HWLOC_OBJ_OSDEV_NETWORK);
        hwloc_obj_t rdma = os_device(object, HWLOC_OBJ_OSDEV_OPENFABRICS);

        if (node.numa == TOPOLOGY_NONE && kind != TOPOLOGY_NIC)
                node.numa = 0;
        if (pci) {
                pci_text(node.pci, pci);
                node.vendor = pci->vendor_id;
        }
        if (kind == TOPOLOGY_NIC) {
                snprintf(node.netdev, sizeof(node.netdev), "%s", netdev && netdev->name ? netdev->name : "");
                snprintf(node.rdma, sizeof(node.rdma), "%s", rdma && rdma->name ? rdma->name : "");
        }
        if (kind == TOPOLOGY_ROOT)
                snprintf(node.name, sizeof(node.name), "%04x:%02x", object->attr->bridge.downstream.pci.domain,
                         object->attr->bridge.downstream.pci.secondary_bus);
        else
                snprintf(node.name, sizeof(node.name), "%s",
                         node.rdma[0]     ? node.rdma
                         : node.netdev[0] ? node.netdev
                                          : node.pci);
        return topology_add_node(reader->topology, &node, ret_position);
}

static int add_uplink(struct reader *reader, uint32_t position, uint32_t parent, uint32_t kind,
                      const struct uplink *uplink) {
        struct topology_link link = {.a = parent,
                                     .b = position,
                                     .kind = kind,
                                     .bytes_per_second = uplink->bytes_per_second,
                                     .width = uplink->width,
                                     .generation = uplink->generation};

        if (parent == TOPOLOGY_NONE) { /* a NIC that nobody knows the place of has no link */
                link.a = reader->topology->nodes[position].numa;
                if (link.a == TOPOLOGY_NONE)
                        return 0;
        }
        return topology_add_link(reader->topology, &link);
}

static int read_device(struct reader *reader, hwloc_obj_t object, uint32_t parent, const struct uplink *uplink) {
        bool gpu = is_gpu(reader, object);
        uint32_t position;
        int r;

        if (gpu && reader->n_gpus == TOPOLOGY_GPUS_MAX)
                return TOPOLOGY_E_INVALID;
        r = add_node(reader, object, gpu ? TOPOLOGY_GPU : TOPOLOGY_NIC, gpu ? reader->n_gpus : reader->n_nics++,
                     &position);
        if (r)
                return r;
        if (gpu) {
                reader->gpus[reader->n_gpus] = object;
                reader->positions[reader->n_gpus++] = position;
        }
        return add_uplink(reader, position, parent, TOPOLOGY_LINK_PCI, uplink);
}

/* An object and all below it. parent TOPOLOGY_NONE: its NUMA node. uplink: from its parent to above it. */
static int read_pci(struct reader *reader, hwloc_obj_t object, uint32_t parent, struct uplink uplink) {
        const struct hwloc_pcidev_attr_s *pci = pci_of(object);
        uint32_t branches = 0;
        int r = 0;

        if (count_devices(reader, object) == 0)
                return 0;
        if (pci)
                pci_uplink(reader, pci, &uplink);
        if (is_gpu(reader, object) || is_nic(reader, object))
                return read_device(reader, object, parent, &uplink);
        for (hwloc_obj_t o = object->io_first_child; o; o = o->next_sibling)
                branches += count_devices(reader, o) > 0;
        if (branches > 1) {
                uint32_t position;
                bool is_root = !pci;

                r = add_node(reader, object, is_root ? TOPOLOGY_ROOT : TOPOLOGY_SWITCH,
                             is_root ? reader->n_roots++ : reader->n_switches++, &position);
                if (!r)
                        r = add_uplink(reader, position, parent, is_root ? TOPOLOGY_LINK_LOCAL : TOPOLOGY_LINK_PCI,
                                       &uplink);
                parent = position;
                uplink = (struct uplink){0};
        }
        for (hwloc_obj_t o = object->io_first_child; !r && o; o = o->next_sibling)
                r = read_pci(reader, o, parent, uplink);
        return r;
}

static int read_devices(struct reader *reader) {
        int r = 0;

        reader->vga = true;
        for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(reader->hwloc, o));)
                reader->vga = reader->vga && !is_gpu_class(o->attr->pcidev.class_id, false);
        for (hwloc_obj_t o = NULL; !r && (o = hwloc_get_next_bridge(reader->hwloc, o));)
                if (!hwloc_obj_type_is_io(o->parent->type))
                        r = read_pci(reader, o, TOPOLOGY_NONE, (struct uplink){0});
        for (hwloc_obj_t o = NULL; !r && (o = hwloc_get_next_pcidev(reader->hwloc, o));)
                if (!hwloc_obj_type_is_io(o->parent->type)) /* a file without bridges */
                        r = read_pci(reader, o, TOPOLOGY_NONE, (struct uplink){0});
        return r;
}

/* ---- fabrics of GPUs ---- */

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
static int read_matrix(struct reader *reader, const struct hwloc_distances_s *matrix, uint32_t kind) {
        for (unsigned int i = 0; i < matrix->nbobjs; i++)
                for (unsigned int j = 0; j < i; j++) {
                        struct topology_link link = {.a = gpu_of(reader, matrix->objs[i]),
                                                     .b = gpu_of(reader, matrix->objs[j]),
                                                     .kind = kind};
                        int r;

                        link.bytes_per_second = rate((double)matrix->values[i * matrix->nbobjs + j] * 1e6);
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
        static const struct {
                const char *name;
                uint32_t kind;
        } fabrics[] = {{"XGMIBandwidth", TOPOLOGY_LINK_XGMI},
                       {"NVLinkBandwidth", TOPOLOGY_LINK_NVLINK},
                       {"XeLinkBandwidth", TOPOLOGY_LINK_DIRECT}};
        int r = 0;

        for (size_t i = 0; !r && i < sizeof(fabrics) / sizeof(fabrics[0]); i++) {
                struct hwloc_distances_s *matrices[MATRICES_MAX];
                unsigned int n = MATRICES_MAX;

                if (hwloc_distances_get_by_name(reader->hwloc, fabrics[i].name, &n, matrices, 0) < 0)
                        continue;
                n = n < MATRICES_MAX ? n : MATRICES_MAX;
                for (unsigned int k = 0; k < n; k++) {
                        r = r ? r : read_matrix(reader, matrices[k], fabrics[i].kind);
                        hwloc_distances_release(reader->hwloc, matrices[k]);
                }
        }
        return r;
}

int machine_read(struct hwloc_topology *hwloc, const char *root, uint32_t emulated, struct topology *topology) {
        struct reader reader = {.hwloc = hwloc, .topology = topology, .root = root, .gpus_wanted = !emulated};
        int r;

        topology->n_cpus = (uint32_t)hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_PU);
        r = read_numa(&reader);
        if (!r && topology->n_nodes == 0)
                r = TOPOLOGY_E_INVALID;
        if (!r && emulated)
                r = topology_add_emulated(topology, emulated);
        if (!r)
                r = read_devices(&reader);
        if (!r)
                r = read_fabric(&reader);
        return r;
}
