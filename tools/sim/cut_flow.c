/* SPDX-License-Identifier: MIT */
/*
 * All ways to part boxes
 *
 * What crosses between some boxes and the others is bounded by the smallest cut between these two sets, and which two
 * sets are the tightest nobody knows before: four boxes may each have two links, and pairs of them only one to the
 * other pair. So all of them are tried; with 16 boxes these are 32767. Of more, those are tried that people build:
 * boxes that follow one another, by powers of two. Any cut is a bound. Each is found as a flow (Ford and Fulkerson
 * 1956, by shortest ways), which ends as soon as it is no smaller than the smallest one known of as many boxes. Nothing
 * flows through a box, as each is on one side or the other.
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

#define NOBODY  UINT32_MAX
#define ALL_MAX 16u /* boxes of which all sets are tried */

struct search {
        const struct cut_net *net;
        uint64_t *left;  /* capacity of each way that is not used yet */
        uint32_t *from;  /* the way to a vertex, NOBODY: not seen */
        uint32_t *queue; /* vertices */
        uint64_t side;   /* bits: boxes that it flows from */
};

int cut_net_init(struct cut_net *net, uint32_t n, uint32_t n_boxes, uint32_t max_joints) {
        *net = (struct cut_net){.n = n, .n_boxes = n_boxes, .max_ways = 2 * max_joints};
        net->ways = calloc(net->max_ways + 1u, sizeof(*net->ways));
        net->first = malloc((n + 1u) * sizeof(*net->first));
        net->degree = calloc(n + 1u, sizeof(*net->degree));
        if (!net->ways || !net->first || !net->degree) {
                cut_net_deinit(net);
                return -ENOMEM;
        }
        for (uint32_t i = 0; i < n; i++)
                net->first[i] = NOBODY;
        return 0;
}

void cut_net_deinit(struct cut_net *net) {
        free(net->ways);
        free(net->first);
        free(net->degree);
        *net = (struct cut_net){0};
}

static uint64_t add(uint64_t a, uint64_t b) {
        return a + b < CUT_UNLIMITED ? a + b : CUT_UNLIMITED;
}

static void put_way(struct cut_net *net, uint32_t way, uint32_t from, uint32_t to, uint64_t capacity) {
        net->ways[way] = (struct cut_way){.to = to, .next = net->first[from], .capacity = capacity};
        net->first[from] = way;
        net->degree[from]++;
}

static void take_way(struct cut_net *net, uint32_t way, uint32_t from) {
        uint32_t *at = &net->first[from];

        while (*at != way)
                at = &net->ways[*at].next;
        *at = net->ways[way].next;
        net->degree[from]--;
}

/* More for what joins them already; else false. */
static bool widen(struct cut_net *net, uint32_t a, uint32_t b, uint64_t capacity) {
        uint32_t few = net->degree[a] < net->degree[b] ? a : b, other = few == a ? b : a;

        for (uint32_t way = net->first[few]; way != NOBODY; way = net->ways[way].next)
                if (net->ways[way].to == other) {
                        net->ways[way].capacity = add(net->ways[way].capacity, capacity);
                        net->ways[way ^ 1].capacity = net->ways[way].capacity;
                        return true;
                }
        return false;
}

void cut_net_join(struct cut_net *net, uint32_t a, uint32_t b, uint64_t capacity) {
        if (a == b || capacity == 0 || widen(net, a, b, capacity))
                return;
        put_way(net, net->n_ways, a, b, capacity);
        put_way(net, net->n_ways + 1, b, a, capacity);
        net->n_ways += 2;
}

/* A vertex with one neighbour or two. */
static void take_out(struct cut_net *net, uint32_t vertex) {
        uint32_t way = net->first[vertex], a = net->ways[way].to, next = net->ways[way].next;
        uint64_t capacity = net->ways[way].capacity;

        take_way(net, way, vertex);
        take_way(net, way ^ 1, a);
        if (next == NOBODY)
                return;
        uint32_t b = net->ways[next].to;

        capacity = capacity < net->ways[next].capacity ? capacity : net->ways[next].capacity;
        take_way(net, next, vertex);
        take_way(net, next ^ 1, b);
        if (widen(net, a, b, capacity))
                return;
        put_way(net, way, a, b, capacity);
        put_way(net, way ^ 1, b, a, capacity);
}

/* Taking one out changes its neighbours only, which are looked at again. */
static int simplify(struct cut_net *net) {
        _cleanup_free_ uint32_t *todo = malloc((2u * net->n + 1u) * sizeof(*todo));
        uint32_t n = 0;

        if (!todo)
                return -ENOMEM;
        for (uint32_t v = net->n_boxes; v < net->n; v++)
                todo[n++] = v;
        while (n > 0) {
                uint32_t v = todo[--n], near[2], n_near = 0;

                if (net->degree[v] < 1 || net->degree[v] > 2)
                        continue;
                for (uint32_t way = net->first[v]; way != NOBODY; way = net->ways[way].next)
                        near[n_near++] = net->ways[way].to;
                take_out(net, v);
                for (uint32_t i = 0; i < n_near; i++)
                        if (near[i] >= net->n_boxes)
                                todo[n++] = near[i];
        }
        return 0;
}

/* The end of a way to the other side, NOBODY if there is none. */
static uint32_t search_way(struct search *s) {
        const struct cut_net *net = s->net;
        uint32_t head = 0, tail = 0;

        memset(s->from, 0xff, net->n * sizeof(*s->from));
        for (uint32_t box = 0; box < net->n_boxes; box++)
                if (s->side >> box & 1)
                        s->queue[tail++] = box;
        while (head < tail) {
                uint32_t at = s->queue[head++];

                for (uint32_t way = net->first[at]; way != NOBODY; way = net->ways[way].next) {
                        uint32_t to = net->ways[way].to;

                        if (s->left[way] == 0 || s->from[to] != NOBODY || (to < net->n_boxes && s->side >> to & 1))
                                continue;
                        s->from[to] = way;
                        if (to < net->n_boxes)
                                return to;
                        s->queue[tail++] = to;
                }
        }
        return NOBODY;
}

static uint64_t search_push(struct search *s, uint32_t end) {
        uint64_t least = CUT_UNLIMITED;

        for (uint32_t at = end, way; (way = s->from[at]) != NOBODY; at = s->net->ways[way ^ 1].to)
                least = s->left[way] < least ? s->left[way] : least;
        for (uint32_t at = end, way; (way = s->from[at]) != NOBODY; at = s->net->ways[way ^ 1].to) {
                s->left[way] -= least;
                s->left[way ^ 1] += least;
        }
        return least;
}

/* The flow between both sides, or `enough` if it is no less. */
static uint64_t search_flow(struct search *s, uint64_t side, uint64_t enough) {
        const struct cut_net *net = s->net;
        uint64_t flow = 0;
        uint32_t end;

        s->side = side;
        for (uint32_t way = 0; way < net->n_ways; way++)
                s->left[way] = net->ways[way].capacity;
        for (uint32_t box = 0; box < net->n_boxes; box++) /* what joins both sides without anything between them */
                for (uint32_t way = net->first[box]; (side >> box & 1) && way != NOBODY; way = net->ways[way].next)
                        if (net->ways[way].to < net->n_boxes && !(side >> net->ways[way].to & 1)) {
                                flow = add(flow, s->left[way]);
                                s->left[way] = 0;
                        }
        while (flow < enough && (end = search_way(s)) != NOBODY)
                flow = add(flow, search_push(s, end));
        return flow < enough ? flow : enough;
}

static void try_side(struct search *s, uint32_t root, uint64_t side, uint64_t *least) {
        const uint32_t n = s->net->n_boxes;
        uint32_t k;

        if (!(side >> root & 1))
                side = ~side & (n < 64 ? (UINT64_C(1) << n) - 1 : UINT64_MAX);
        k = (uint32_t)__builtin_popcountll(side);
        if (k < n)
                least[k] = search_flow(s, side, least[k]);
}

static void try_all(struct search *s, uint32_t root, uint64_t *least) {
        const uint32_t n = s->net->n_boxes;

        for (uint64_t side = 1; n <= ALL_MAX && side < UINT64_C(1) << (n - 1); side++)
                try_side(s, root, side << 1, least); /* the first box is on the other side, without loss */
        for (uint32_t length = 1; n > ALL_MAX && length < n; length *= 2)
                for (uint32_t first = 0; first + length <= n; first += length)
                        try_side(s, root, ((UINT64_C(1) << length) - 1) << first, least);
}

int cut_net_sides(struct cut_net *net, uint32_t root, uint64_t *ret_least, uint64_t *ret_alone) {
        _cleanup_free_ uint64_t *left = calloc(net->n_ways + 1u, sizeof(*left));
        _cleanup_free_ uint32_t *from = malloc((net->n + 1u) * sizeof(*from));
        _cleanup_free_ uint32_t *queue = malloc((net->n + 1u) * sizeof(*queue));
        struct search s = {.net = net, .left = left, .from = from, .queue = queue};

        if (!left || !from || !queue || simplify(net))
                return -ENOMEM;
        for (uint32_t k = 0; k < net->n_boxes; k++)
                ret_least[k] = k > 0 ? CUT_UNLIMITED : 0;
        *ret_alone = 0;
        for (uint32_t box = 0; box < net->n_boxes; box++)
                *ret_alone = add(*ret_alone, search_flow(&s, UINT64_C(1) << box, CUT_UNLIMITED));
        try_all(&s, root, ret_least);
        return 0;
}

int cut_net_parts(struct cut_net *net, uint64_t *ret_least) {
        const uint32_t n = net->n_boxes;
        uint64_t alone;
        int r = cut_net_sides(net, 0, ret_least, &alone);

        for (uint32_t k = 1; !r && k <= n / 2; k++)
                ret_least[k] = ret_least[n - k] = ret_least[k] < ret_least[n - k] ? ret_least[k] : ret_least[n - k];
        return r;
}
