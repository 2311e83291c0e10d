/* SPDX-License-Identifier: MIT */
/*
 * Kinds of clusters
 *
 * The constants of a kind are nominal where hardware has a nominal number, and else taken from as few published points
 * as there are unknowns; tests/sim/test_cluster.c says which and compares all others.
 *
 *   h200    NICs of 400 Gbit/s, NVLink of 450 GB/s each way; data travels with flags, which doubles the bytes. base_ns
 *           is what 8 KiB of MSCCL++ on 4 x 8 leave.
 *   a100    one unknown more: what a NIC of 200 Gbit/s really carries in messages of this size. Both from NVRAR on
 *           4 x 4, 8 KiB and 1 MiB.
 *   mi300x  NICs of 400 Gbit/s, seven xGMI links of 48 GB/s; latencies as h200, since none are published.
 *   pcie    boxes of eight MI300X behind x16 links of 27 GB/s; latencies as h200. Both speeds are GigaIO's, effective
 *           of 64 and 31.5 (`link` in tests/sim/data/gigaio_topologies.json), and not fitted to anything.
 *   host    processes of one machine and TCP: plan_net_host().
 *
 * What a hop of rings inside a node takes is what NCCL and RCCL reckon with.
 */
#include "tools/sim/cluster.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/cost.h"
#include "plan/rails.h"
#include "tools/sim/cut.h"
#include "tools/sim/node.h"
#include "tools/sim/one_node.h"
#include "topology/rails.h"
#include "util/cleanup.h"

#define XGMI_GBS         48.0
#define XGMI_GBS_NOMINAL 64.0
#define XGMI_PEERS       7
#define PCIE_GBS         27.0
#define PCIE_GBS_NOMINAL 31.5
#define GPU_GBS_UNSURE   (XGMI_GBS * XGMI_PEERS)
#define NIC_GBS_UNSURE   50.0
#define NVLINK_NS        600.0 /* a hop of a ring with flags in the data: NCCL's own constant (June 2026), */
#define XGMI_NS          800.0 /* and RCCL's for MI300X (October 2024) */

static const struct cluster kinds[] = {
        {.name = "h200",
         .gpu_gbs = 450,
         .rail_gbs = 50,
         .base_ns = 12553,
         .hop_ns = 5000,
         .near_ns = NVLINK_NS,
         .factor = 2,
         .source = "nominal speeds; latency of MSCCL++ 4x8, 8 KiB"},
        {.name = "a100",
         .gpu_gbs = 300,
         .rail_gbs = 12.25,
         .base_ns = 51429,
         .hop_ns = 5000,
         .near_ns = NVLINK_NS,
         .factor = 2,
         .source = "nominal NVLink; latency and rail of NVRAR 4x4, 8 KiB and 1 MiB"},
        {.name = "mi300x",
         .gpu_gbs = GPU_GBS_UNSURE,
         .link_gbs = XGMI_GBS,
         .rail_gbs = 50,
         .base_ns = 12553,
         .hop_ns = 5000,
         .near_ns = XGMI_NS,
         .factor = 2,
         .source = "nominal speeds; latency as h200"},
};
#define MI300X  2u
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

bool cluster_named(const char *text) {
        size_t length = strlen(text);

        return text[0] != '-' && (strchr(text, ':') || (length > 4 && strcmp(text + length - 4, ".xml") == 0) ||
                                  (length > 5 && strcmp(text + length - 5, ".json") == 0));
}

/* Speeds of a kind are what links carry, and those of `one` are held against nominal ones. */
static void take_one(const struct one_node *one, double nominal_gbs, struct cluster *c) {
        if (!one)
                return;
        c->one.hop_ns = one->hop_ns;
        c->one.factor = one->factor * c->gpu_gbs / nominal_gbs;
        c->one.nominal = nominal_gbs / c->gpu_gbs;
        c->one.source = one->source;
}

void cluster_gpus(struct cluster *cluster, uint32_t n_gpus) {
        cluster->n_gpus = n_gpus;
        if (cluster->link_gbs > 0 && n_gpus > 1)
                cluster->gpu_gbs = cluster->link_gbs * (n_gpus - 1);
}

static int take_shape(const char *name, const char *shape, struct cluster *c, char *ret_error, size_t error_size) {
        int end = 0;

        if (sscanf(shape, "%5ux%3u%n", &c->n_nodes, &c->n_gpus, &end) != 2 || shape[end] || c->n_nodes < 1 ||
            c->n_nodes > CLUSTER_NODES_MAX || c->n_gpus < 1 || c->n_gpus > CLUSTER_GPUS_MAX) {
                snprintf(ret_error, error_size,
                         "'%.40s' is no shape; write %s:8x8, nodes (at most %u) and GPUs of each (%u)", shape, name,
                         CLUSTER_NODES_MAX, CLUSTER_GPUS_MAX);
                return -EINVAL;
        }
        cluster_gpus(c, c->n_gpus);
        c->n_rails = c->n_gpus;
        return 0;
}

_Static_assert(CLUSTER_CUTS_MAX == CUT_BOXES_MAX, "each number of boxes has its cut");

static void take_boxes(uint32_t n_boxes, const double *links, struct cluster *c) {
        double least = links[1];

        c->n_nodes = n_boxes;
        for (uint32_t k = 1; k < n_boxes; k++) {
                c->cuts[k] = links[k];
                least = fmin(least, links[k]);
        }
        c->n_rails = least > 0 && least < 1 ? 1 : (uint32_t)least;
        c->gpu_gbs = GPU_GBS_UNSURE;
        c->rail_gbs = PCIE_GBS;
        c->base_ns = 12553;
        c->hop_ns = 5000;
        c->near_ns = XGMI_NS;
        c->factor = 1;
        c->source = "x16 links of 27 GB/s, as many as the smallest cut has";
}

static int take_fabric(const struct cut_fabric *fabric, struct cluster *c, char *ret_error, size_t error_size) {
        uint32_t links[CUT_BOXES_MAX];
        double cuts[CUT_BOXES_MAX] = {0};
        int r = cut_links(fabric, links);

        if (r)
                return r;
        for (uint32_t k = 1; k < fabric->n_boxes; k++)
                cuts[k] = links[k];
        take_boxes(fabric->n_boxes, cuts, c);
        c->n_gpus = 8;
        if (c->n_rails > 0)
                return 0;
        snprintf(ret_error, error_size, "nothing joins the boxes of this fabric");
        return -EINVAL;
}

static void take_host(struct cluster *c) {
        struct plan_constants near;
        struct plan_net net;

        plan_constants_host(&near, 2);
        plan_net_host(&net);
        c->n_rails = net.n_rails;
        c->gpu_gbs = 50;
        c->rail_gbs = 1 / net.ns_per_byte;
        c->base_ns = 2000;
        c->hop_ns = net.hop_ns;
        c->near_ns = near.hop_ns;
        c->message_ns = net.ns_per_chunk;
        c->factor = 1;
        c->staged = true;
        c->source = "plan_net_host()";
}

/* Boxes that PCI joins inside one node count as nodes. What a link carries is less than its speed, as on the fabrics
 * that were measured. 1: it is so; 0; -E2BIG; -ENOMEM. */
static int take_graph(const struct topology *topology, struct cluster *c) {
        struct cut_graph graph;
        int r = cut_graph(topology, &graph);

        if (r <= 0)
                return r;
        take_boxes(graph.n_boxes, graph.links, c);
        c->n_gpus = graph.n_gpus;
        if (graph.bytes_per_second > 0)
                c->rail_gbs = (double)graph.bytes_per_second / 1e9 * PCIE_GBS / PCIE_GBS_NOMINAL;
        return 1;
}

/* What the graph of a node knows; the rest is as mi300x. */
static int take_topology(const char *path, struct cluster *c, struct cluster_form *form, char *ret_error,
                         size_t error_size) {
        _cleanup_(topology_freep) struct topology *topology = NULL;
        struct topology_rails *rails;
        _cleanup_free_ bool *shared = NULL;
        double speed = 0, most = 0, first = 0;
        bool nvlink = false, switched = false, equal = true;
        int r = node_load(path, &topology, ret_error, error_size);

        if (r)
                return r;
        form->host = !node_has_devices(topology);
        r = take_graph(topology, c);
        if (r == -E2BIG) {
                snprintf(ret_error, error_size, "%s has GPUs in more than %u boxes", path, CUT_BOXES_MAX);
                return -EINVAL;
        }
        form->boxes = r > 0;
        if (r != 0)
                return r < 0 ? r : 0;
        c->n_gpus = topology_count(topology, TOPOLOGY_GPU);
        if (c->n_gpus < 1) {
                snprintf(ret_error, error_size, "%s has no GPUs", path);
                return -EINVAL;
        }
        r = topology_rails_new(topology, &rails);
        if (r)
                return r;
        for (uint32_t i = 0; i < rails->n_rails; i++)
                if (rails->rails[i].n_gpus > 0) {
                        double gbs = (double)rails->rails[i].bytes_per_second / 1e9;

                        c->n_rails++;
                        speed = speed == 0 || (gbs > 0 && gbs < speed) ? gbs : speed;
                }
        free(rails);
        if (node_links_shared(topology, &shared))
                return -ENOMEM;
        for (uint32_t i = 0; i < topology->n_links; i++) { /* of the first GPU to others */
                const struct topology_link *link = &topology->links[i];
                uint32_t gpu = topology_find(topology, TOPOLOGY_GPU, 0);
                uint32_t other = link->a == gpu ? link->b : link->a;

                if ((link->a != gpu && link->b != gpu) || topology->nodes[other].kind != TOPOLOGY_GPU)
                        continue;
                nvlink = nvlink || link->kind == TOPOLOGY_LINK_NVLINK;
                switched = switched || shared[i];
                first = first > 0 ? first : (double)link->bytes_per_second;
                equal = equal && (double)link->bytes_per_second == first;
                if (shared[i]) /* each may have all of it */
                        most = fmax(most, (double)link->bytes_per_second / 1e9);
                else
                        most += (double)link->bytes_per_second / 1e9;
        }
        c->n_nodes = 2;
        c->gpu_gbs = most > 0 ? most : GPU_GBS_UNSURE;
        c->rail_gbs = speed > 0 ? speed : NIC_GBS_UNSURE;
        c->n_rails = c->n_rails > 0 ? c->n_rails : c->n_gpus;
        form->own_rails = c->n_rails == c->n_gpus;
        if (most > 0)
                take_one(one_node_of(topology), c->gpu_gbs, c);
        if (most > 0 && !switched && equal && topology_full_mesh(topology))
                c->link_gbs = most / (c->n_gpus - 1);
        c->base_ns = 12553;
        c->hop_ns = 5000;
        c->near_ns = nvlink ? NVLINK_NS : XGMI_NS;
        c->factor = 2;
        c->source = most > 0 && speed > 0 ? "speeds of the file; latency as h200"
                                          : "speeds of the file and, where it has none, as mi300x";
        return 0;
}

static int no_kind(const char *name, char *ret_error, size_t error_size) {
        char names[64] = "";
        size_t n = 0;

        for (size_t i = 0; i < N_KINDS && n < sizeof(names); i++)
                n += (size_t)snprintf(names + n, sizeof(names) - n, "%s, ", kinds[i].name);
        snprintf(ret_error, error_size,
                 "'%.80s' is neither a kind nor a file; allowed: %shost and pcie, or a file of fabrics", name, names);
        return -EINVAL;
}

static int take_kind(const char *name, const char *shape, struct cluster *c, struct cluster_form *form, char *ret_error,
                     size_t error_size) {
        struct cut_fabric fabric;
        int r;

        for (size_t i = 0; i < N_KINDS; i++)
                if (strcmp(kinds[i].name, name) == 0) {
                        *c = kinds[i];
                        take_one(one_node_named(name), i == MI300X ? XGMI_GBS_NOMINAL * XGMI_PEERS : c->gpu_gbs, c);
                        form->own_rails = true;
                        return take_shape(name, shape, c, ret_error, error_size);
                }
        if (strcmp(name, "host") == 0) {
                r = take_shape(name, shape, c, ret_error, error_size);
                take_host(c);
                form->host = true;
                return r;
        }
        if (strcmp(name, "pcie") != 0 && access(name, F_OK) < 0 && errno == ENOENT)
                return no_kind(name, ret_error, error_size);
        if (strcmp(name, "pcie") == 0)
                r = cut_parse(shape, &fabric, ret_error, error_size);
        else
                r = cut_load(name, shape, &fabric, ret_error, error_size);
        form->boxes = true;
        return r ? r : take_fabric(&fabric, c, ret_error, error_size);
}

int cluster_load(const char *text, struct cluster *ret_cluster, struct cluster_form *ret_form, char *ret_error,
                 size_t error_size) {
        /* Paths may have colons, too: what is there as it stands is a file. */
        const char *colon = access(text, F_OK) == 0 ? NULL : strrchr(text, ':');
        struct cluster_form form = {0};
        struct cluster c = {0};
        int r;

        if (colon) {
                _cleanup_free_ char *name = strndup(text, (size_t)(colon - text));

                if (!name)
                        return -ENOMEM;
                r = take_kind(name, colon + 1, &c, &form, ret_error, error_size);
        } else {
                form.graph = true;
                r = take_topology(text, &c, &form, ret_error, error_size);
        }
        if (r)
                return r;
        c.name = text;
        *ret_cluster = c;
        *ret_form = form;
        return 0;
}
