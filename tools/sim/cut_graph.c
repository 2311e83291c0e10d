/* SPDX-License-Identifier: MIT */
/*
 * Boxes in a node's graph: GPUs that have a way to each other which is not PCI are in one box. What can cross is found
 * in cut_flow.c, here over the links of the graph.
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sim/cut.h"
#include "tools/sim/cut_flow.h"
#include "topology/topology.h"
#include "util/cleanup.h"

#define UNIT     1000.0 /* the fastest link in the net that is cut, so that slower ones count for what they are */
#define UNIT_MAX 1e6

struct parts {
        const struct topology *topology;
        uint32_t *box;    /* of a node: 1 + the first GPU of its box; 0: no GPU */
        uint32_t *vertex; /* of a node, in the net that is cut */
        bool *end;        /* no GPU, and leads nowhere: a NIC, or a switch that has only such */
        uint32_t *degree; /* of a node: links that lead somewhere */
};

static void parts_deinit(struct parts *f) {
        free(f->box);
        free(f->vertex);
        free(f->end);
        free(f->degree);
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

/* Is it on a way from one box to another? */
static bool link_counts(const struct parts *f, const struct topology_link *link) {
        return joins_boxes(link) && !f->end[link->a] && !f->end[link->b];
}

static void find_ends(struct parts *f) {
        const struct topology *t = f->topology;
        bool more = true;

        while (more) {
                more = false;
                memset(f->degree, 0, t->n_nodes * sizeof(*f->degree));
                for (uint32_t i = 0; i < t->n_links; i++)
                        if (link_counts(f, &t->links[i])) {
                                f->degree[t->links[i].a]++;
                                f->degree[t->links[i].b]++;
                        }
                for (uint32_t i = 0; i < t->n_nodes; i++)
                        if (f->box[i] == 0 && !f->end[i] && f->degree[i] < 2)
                                more = f->end[i] = true;
        }
}

/* What has no speed is as fast as the fastest. */
static uint32_t capacity(const struct topology_link *link, uint64_t fastest) {
        double part = link->bytes_per_second && fastest ? (double)link->bytes_per_second / (double)fastest : 1;

        return (uint32_t)fmin(fmax(lround(part * UNIT), 1), UNIT_MAX);
}

/* Boxes first, then whatever is no GPU and joins something. */
static void number_vertices(const struct parts *f, uint32_t n_boxes, uint32_t *ret_n) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < f->topology->n_nodes; i++)
                if (f->box[i] == i + 1)
                        f->vertex[i] = n++;
                else if (f->box[i] > 0)
                        f->vertex[i] = f->vertex[f->box[i] - 1]; /* the first GPU of a box names it */
        n = n_boxes;
        for (uint32_t i = 0; i < f->topology->n_nodes; i++)
                if (f->box[i] == 0 && !f->end[i])
                        f->vertex[i] = n++;
        *ret_n = n;
}

static int find_cuts(const struct parts *f, struct cut_graph *graph) {
        const struct topology *t = f->topology;
        _cleanup_(cut_net_deinit) struct cut_net net = {0};
        uint64_t least[CUT_BOXES_MAX] = {0};
        uint32_t n;
        int r;

        number_vertices(f, graph->n_boxes, &n);
        r = cut_net_init(&net, n, graph->n_boxes, t->n_links);
        if (r)
                return r;
        for (uint32_t i = 0; i < t->n_links; i++)
                if (link_counts(f, &t->links[i]))
                        cut_net_join(&net, f->vertex[t->links[i].a], f->vertex[t->links[i].b],
                                     capacity(&t->links[i], graph->bytes_per_second));
        r = cut_net_parts(&net, least);
        for (uint32_t k = 0; k < CUT_BOXES_MAX; k++)
                graph->links[k] = (double)least[k] / UNIT;
        return r;
}

int cut_graph(const struct topology *topology, struct cut_graph *ret_graph) {
        _cleanup_(parts_deinit) struct parts f = {.topology = topology};
        struct cut_graph graph = {0};
        int r;

        f.box = calloc(topology->n_nodes + 1, sizeof(*f.box));
        f.vertex = calloc(topology->n_nodes + 1, sizeof(*f.vertex));
        f.end = calloc(topology->n_nodes + 1, sizeof(*f.end));
        f.degree = calloc(topology->n_nodes + 1, sizeof(*f.degree));
        if (!f.box || !f.vertex || !f.end || !f.degree)
                return -ENOMEM;
        graph.n_boxes = number_boxes(&f);
        graph.n_gpus = gpus_of_each(&f);
        if (graph.n_boxes < 2 || graph.n_gpus < 2)
                return 0;
        if (graph.n_boxes > CUT_BOXES_MAX)
                return -E2BIG;
        find_ends(&f);
        for (uint32_t i = 0; i < topology->n_links; i++) {
                const struct topology_link *link = &topology->links[i];

                if (link->kind == TOPOLOGY_LINK_PCI && link_counts(&f, link) &&
                    link->bytes_per_second > graph.bytes_per_second)
                        graph.bytes_per_second = link->bytes_per_second;
        }
        r = find_cuts(&f, &graph);
        if (r)
                return r;
        for (uint32_t k = 1; k < graph.n_boxes; k++)
                if (graph.links[k] <= 0)
                        return 0;
        *ret_graph = graph;
        return 1;
}
