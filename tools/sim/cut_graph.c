/* SPDX-License-Identifier: MIT */
/*
 * Boxes in a node's graph: GPUs that have a way to each other which is not PCI are in one box. What can cross is found
 * in cut_flow.c, here over the links of the graph.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tools/sim/cut.h"
#include "tools/sim/cut_flow.h"
#include "topology/topology.h"
#include "util/cleanup.h"

struct parts {
        const struct topology *topology;
        uint32_t *box;    /* of a node: 1 + the first GPU of its box; 0: no GPU */
        uint32_t *vertex; /* of a node, in the net that is cut */
};

static void parts_deinit(struct parts *f) {
        free(f->box);
        free(f->vertex);
}

static bool own_way(const struct topology_link *link) {
        return link->kind == TOPOLOGY_LINK_XGMI || link->kind == TOPOLOGY_LINK_NVLINK ||
               link->kind == TOPOLOGY_LINK_DIRECT;
}

static bool joins_boxes(const struct topology_link *link) {
        return !own_way(link) && link->kind != TOPOLOGY_LINK_PORT;
}

/* Returns how many boxes. */
static uint32_t number_boxes(struct parts *f) {
        const struct topology *t = f->topology;
        uint32_t n = 0;
        bool more = true;

        for (uint32_t i = 0; i < t->n_nodes; i++)
                f->box[i] = t->nodes[i].kind == TOPOLOGY_GPU ? i + 1 : 0;
        while (more) {
                more = false;
                for (uint32_t i = 0; i < t->n_links; i++) {
                        uint32_t *a = &f->box[t->links[i].a], *b = &f->box[t->links[i].b];

                        if (!own_way(&t->links[i]) || !*a || !*b || *a == *b)
                                continue;
                        *a = *b = *a < *b ? *a : *b;
                        more = true;
                }
        }
        for (uint32_t i = 0; i < t->n_nodes; i++)
                n += f->box[i] == i + 1;
        return n;
}

/* 0: they are not all alike. */
static uint32_t gpus_of_each(const struct parts *f) {
        uint32_t gpus = 0;

        for (uint32_t i = 0; i < f->topology->n_nodes; i++) {
                uint32_t n = 0;

                for (uint32_t k = 0; f->box[i] == i + 1 && k < f->topology->n_nodes; k++)
                        n += f->box[k] == i + 1;
                if (n > 0 && gpus > 0 && n != gpus)
                        return 0;
                gpus = n > 0 ? n : gpus;
        }
        return gpus;
}

/* Boxes first, then whatever is no GPU. */
static void number_vertices(const struct parts *f, uint32_t n_boxes, uint32_t *ret_n) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < f->topology->n_nodes; i++)
                if (f->box[i] == i + 1)
                        f->vertex[i] = n++;
                else if (f->box[i] > 0)
                        f->vertex[i] = f->vertex[f->box[i] - 1]; /* the first GPU of a box names it */
        n = n_boxes;
        for (uint32_t i = 0; i < f->topology->n_nodes; i++)
                if (f->box[i] == 0)
                        f->vertex[i] = n++;
        *ret_n = n;
}

static int find_cuts(const struct parts *f, struct cut_graph *graph) {
        const struct topology *t = f->topology;
        _cleanup_(cut_net_deinit) struct cut_net net = {0};
        uint32_t n;
        int r;

        number_vertices(f, graph->n_boxes, &n);
        r = cut_net_init(&net, n, graph->n_boxes);
        if (r)
                return r;
        for (uint32_t i = 0; i < t->n_links; i++)
                if (joins_boxes(&t->links[i]))
                        cut_net_join(&net, f->vertex[t->links[i].a], f->vertex[t->links[i].b], 1);
        return cut_net_parts(&net, graph->links);
}

int cut_graph(const struct topology *topology, struct cut_graph *ret_graph) {
        _cleanup_(parts_deinit) struct parts f = {.topology = topology};
        struct cut_graph graph = {0};
        int r;

        f.box = calloc(topology->n_nodes + 1, sizeof(*f.box));
        f.vertex = calloc(topology->n_nodes + 1, sizeof(*f.vertex));
        if (!f.box || !f.vertex)
                return -ENOMEM;
        graph.n_boxes = number_boxes(&f);
        graph.n_gpus = gpus_of_each(&f);
        if (graph.n_boxes < 2 || graph.n_gpus < 2)
                return 0;
        if (graph.n_boxes > CUT_BOXES_MAX)
                return -E2BIG;
        r = find_cuts(&f, &graph);
        if (r)
                return r;
        for (uint32_t i = 0; i < topology->n_links; i++) {
                const struct topology_link *link = &topology->links[i];

                if (link->kind == TOPOLOGY_LINK_PCI && link->bytes_per_second > 0 &&
                    (graph.bytes_per_second == 0 || link->bytes_per_second < graph.bytes_per_second))
                        graph.bytes_per_second = link->bytes_per_second;
        }
        for (uint32_t k = 1; k < graph.n_boxes; k++)
                if (graph.links[k] == 0)
                        return 0;
        *ret_graph = graph;
        return 1;
}
