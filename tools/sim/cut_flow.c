/* SPDX-License-Identifier: MIT */
/*
 * All ways to part boxes
 *
 * What crosses between some boxes and the others is bounded by the smallest cut between these two sets, and which two
 * sets are the tightest nobody knows before: four boxes may each have two links, and pairs of them only one to the
 * other pair. So all of them are tried; with 16 boxes these are 32767. Each cut is found as a flow (Ford and Fulkerson
 * 1956, by shortest ways), which ends as soon as it is no smaller than the smallest one known of as many boxes.
 *
 * Most vertices are switches with one way up. What has one neighbour only is on no way from one box to another, and
 * what has two is a link as narrow as the narrower one of its two; without these few vertices are left.
 */
#include "tools/sim/cut_flow.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

#define NOBODY UINT32_MAX

struct search {
        const struct cut_net *net;
        uint32_t *left;  /* capacity that is not used yet */
        uint32_t *from;  /* the vertex before, NOBODY: not seen */
        uint32_t *queue; /* vertices */
        uint32_t side;   /* bits: boxes that it flows from */
};

int cut_net_init(struct cut_net *net, uint32_t n, uint32_t n_boxes) {
        *net = (struct cut_net){.n = n, .n_boxes = n_boxes};
        net->capacity = calloc((size_t)n * n, sizeof(*net->capacity));
        return net->capacity ? 0 : -ENOMEM;
}

void cut_net_deinit(struct cut_net *net) {
        free(net->capacity);
        net->capacity = NULL;
}

void cut_net_join(struct cut_net *net, uint32_t a, uint32_t b, uint32_t capacity) {
        if (a == b)
                return;
        net->capacity[a * net->n + b] += capacity;
        net->capacity[b * net->n + a] += capacity;
}

/* The last vertex takes the place of another one. */
static void take_out(struct cut_net *net, uint32_t vertex) {
        uint32_t n = net->n, last = n - 1;

        for (uint32_t i = 0; i < n; i++) {
                net->capacity[vertex * n + i] = net->capacity[last * n + i];
                net->capacity[i * n + vertex] = net->capacity[i * n + last];
        }
        net->capacity[vertex * n + vertex] = 0;
        for (uint32_t row = 0; row < last; row++)
                memmove(&net->capacity[row * last], &net->capacity[row * n], last * sizeof(*net->capacity));
        net->n = last;
}

static bool simplify(struct cut_net *net) {
        for (uint32_t v = net->n_boxes; v < net->n; v++) {
                const uint32_t *row = &net->capacity[v * net->n];
                uint32_t neighbours[2] = {0}, n = 0;

                for (uint32_t i = 0; i < net->n; i++)
                        if (row[i] > 0 && n++ < 2)
                                neighbours[n - 1] = i;
                if (n > 2)
                        continue;
                if (n == 2) {
                        uint32_t a = row[neighbours[0]], b = row[neighbours[1]];

                        cut_net_join(net, neighbours[0], neighbours[1], a < b ? a : b);
                }
                take_out(net, v);
                return true;
        }
        return false;
}

/* The end of a way to the other side, NOBODY if there is none. */
static uint32_t search_way(struct search *s) {
        const uint32_t n = s->net->n;
        uint32_t head = 0, tail = 0;

        for (uint32_t i = 0; i < n; i++)
                s->from[i] = NOBODY;
        for (uint32_t box = 0; box < s->net->n_boxes; box++)
                if (s->side >> box & 1) {
                        s->from[box] = box;
                        s->queue[tail++] = box;
                }
        while (head < tail) {
                uint32_t at = s->queue[head++];
                const uint32_t *row = &s->left[at * n];

                for (uint32_t next = 0; next < n; next++) {
                        if (row[next] == 0 || s->from[next] != NOBODY)
                                continue;
                        s->from[next] = at;
                        if (next < s->net->n_boxes)
                                return next;
                        s->queue[tail++] = next;
                }
        }
        return NOBODY;
}

static uint32_t search_push(struct search *s, uint32_t end) {
        const uint32_t n = s->net->n;
        uint32_t least = UINT32_MAX;

        for (uint32_t at = end; s->from[at] != at; at = s->from[at]) {
                uint32_t left = s->left[s->from[at] * n + at];

                least = left < least ? left : least;
        }
        for (uint32_t at = end; s->from[at] != at; at = s->from[at]) {
                s->left[s->from[at] * n + at] -= least;
                s->left[at * n + s->from[at]] += least;
        }
        return least;
}

/* The flow between both sides, or `enough` if it is no less. */
static uint32_t search_flow(struct search *s, uint32_t enough) {
        uint32_t flow = 0, end;

        memcpy(s->left, s->net->capacity, (size_t)s->net->n * s->net->n * sizeof(*s->left));
        while (flow < enough && (end = search_way(s)) != NOBODY)
                flow += search_push(s, end);
        return flow < enough ? flow : enough;
}

int cut_net_parts(struct cut_net *net, uint32_t ret_least[CUT_BOXES_MAX]) {
        _cleanup_free_ uint32_t *left = NULL, *from = NULL, *queue = NULL;
        struct search s = {.net = net};

        while (simplify(net))
                ;
        s.left = left = malloc((size_t)net->n * net->n * sizeof(*left));
        s.from = from = malloc(net->n * sizeof(*from));
        s.queue = queue = malloc(net->n * sizeof(*queue));
        if (!left || !from || !queue)
                return -ENOMEM;
        for (uint32_t k = 0; k < CUT_BOXES_MAX; k++)
                ret_least[k] = k > 0 && k < net->n_boxes ? UINT32_MAX : 0;
        /* The first box is always on one side. */
        for (s.side = 1; s.side < (1u << net->n_boxes) - 1; s.side += 2) {
                uint32_t k = (uint32_t)__builtin_popcount(s.side);

                ret_least[k] = ret_least[net->n_boxes - k] = search_flow(&s, ret_least[k]);
        }
        return 0;
}
