/* SPDX-License-Identifier: MIT */
/*
 * Boxes in a node's graph: GPUs that have a way to each other which is not PCI are in one box. What can cross is found
 * as in cut.c, here over the links of the graph: each carries one unit, one way or the other.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sim/cut.h"
#include "topology/topology.h"
#include "util/cleanup.h"

struct flow {
        const struct topology *topology;
        uint32_t *box;  /* of a node; 0: no GPU */
        int8_t *moving; /* on a link: 1 from a to b, -1 from b to a */
        bool *seen;
        uint32_t from; /* box */
};

static void flow_deinit(struct flow *f) {
        free(f->box);
        free(f->moving);
        free(f->seen);
}

static bool own_way(const struct topology_link *link) {
        return link->kind == TOPOLOGY_LINK_XGMI || link->kind == TOPOLOGY_LINK_NVLINK ||
               link->kind == TOPOLOGY_LINK_DIRECT;
}

/* Numbers from 1 on; returns how many boxes. */
static uint32_t number_boxes(struct flow *f) {
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

/* One more unit on from a node? Links are tried in their order. */
static bool push(struct flow *f, uint32_t at) {
        const struct topology *t = f->topology;

        if (f->box[at] && f->box[at] != f->from)
                return true;
        f->seen[at] = true;
        for (uint32_t i = 0; i < t->n_links; i++) {
                const struct topology_link *link = &t->links[i];
                uint32_t to = link->a == at ? link->b : link->a;
                int8_t way = link->a == at ? 1 : -1;

                if ((link->a != at && link->b != at) || own_way(link) || link->kind == TOPOLOGY_LINK_PORT ||
                    f->moving[i] == way || f->seen[to] || !push(f, to))
                        continue;
                f->moving[i] = (int8_t)(f->moving[i] + way);
                return true;
        }
        return false;
}

static uint32_t cut_of(struct flow *f, uint32_t box) {
        const struct topology *t = f->topology;
        uint32_t flow = 0;
        bool more = true;

        f->from = box;
        memset(f->moving, 0, t->n_links);
        while (more) {
                more = false;
                memset(f->seen, 0, t->n_nodes * sizeof(*f->seen));
                for (uint32_t i = 0; !more && i < t->n_nodes; i++)
                        more = f->box[i] == box && !f->seen[i] && push(f, i);
                flow += more;
        }
        return flow;
}

/* 0: they are not all alike. */
static uint32_t gpus_of_each(const struct flow *f) {
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

int cut_graph(const struct topology *topology, uint32_t *ret_boxes, uint32_t *ret_gpus, uint64_t *ret_speed) {
        _cleanup_(flow_deinit) struct flow f = {.topology = topology};
        uint32_t boxes, gpus, least = UINT32_MAX;
        uint64_t speed = 0;

        f.box = calloc(topology->n_nodes + 1, sizeof(*f.box));
        f.moving = calloc(topology->n_links + 1, sizeof(*f.moving));
        f.seen = calloc(topology->n_nodes + 1, sizeof(*f.seen));
        if (!f.box || !f.moving || !f.seen)
                return -ENOMEM;
        boxes = number_boxes(&f);
        gpus = gpus_of_each(&f);
        if (boxes < 2 || gpus < 2)
                return 0;
        for (uint32_t i = 0; i < topology->n_nodes; i++)
                if (f.box[i] == i + 1) {
                        uint32_t cut = cut_of(&f, i + 1);

                        least = cut < least ? cut : least;
                }
        for (uint32_t i = 0; i < topology->n_links; i++) {
                const struct topology_link *link = &topology->links[i];

                if (link->kind == TOPOLOGY_LINK_PCI && link->bytes_per_second > 0 &&
                    (speed == 0 || link->bytes_per_second < speed))
                        speed = link->bytes_per_second;
        }
        if (least == 0)
                return 0;
        *ret_boxes = boxes;
        *ret_gpus = gpus;
        *ret_speed = speed;
        return (int)least;
}
