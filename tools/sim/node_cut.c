/* SPDX-License-Identifier: MIT */
/*
 * The bound of one node
 *
 * However a collective runs, some bytes have to go from some ranks to the others, and no faster than the links between
 * them allow. Ranks are the boxes of cut_flow.c. Speeds are those of the graph, nominal ones; a link without one has no
 * bound. What a GPU has of NVLink through a switch is as fast as the fastest of these links, all together, as where
 * loads are put on links (sim.c).
 *
 * What all ranks have to send together is a bound, too, by what each of them can send.
 */
#include "tools/sim/node_cut.h"

#include <errno.h>
#include <stdlib.h>

#include "plan/closed.h"
#include "tools/sim/cut_flow.h"
#include "tools/sim/node.h"
#include "util/cleanup.h"

_Static_assert(PLAN_RANKS_MAX <= CUT_ENDS_MAX, "a rank is an end");

/* Ranks, then all others. Returns how many. */
static uint32_t number_vertices(const struct topology *t, uint32_t n_ranks, uint32_t *vertex) {
        uint32_t n = n_ranks;

        for (uint32_t i = 0; i < t->n_nodes; i++)
                vertex[i] = t->nodes[i].kind == TOPOLOGY_GPU && t->nodes[i].index < n_ranks ? t->nodes[i].index : n++;
        return n;
}

/* No byte takes others than those that are on a way from a rank to another one. */
static void mark_used(const struct node_way *ways, uint32_t n_ranks, bool *used) {
        for (uint32_t i = 0; i < n_ranks * n_ranks; i++)
                for (uint32_t k = 0; k < ways[i].n_links; k++)
                        used[ways[i].links[k]] = true;
}

static uint64_t speed_of(const struct topology_link *link) {
        return link->bytes_per_second > 0 ? link->bytes_per_second : CUT_UNLIMITED;
}

/* GPUs that a switch of NVLink joins, by the first of them; and what each has of it. */
static void find_islands(const struct topology *t, const bool *used, const bool *shared, uint32_t n_ranks,
                         const uint32_t *vertex, uint32_t *island, uint64_t *speed) {
        bool more = true;

        for (uint32_t rank = 0; rank < n_ranks; rank++)
                island[rank] = rank;
        while (more) {
                more = false;
                for (uint32_t i = 0; i < t->n_links; i++) {
                        const struct topology_link *link = &t->links[i];
                        uint32_t a = vertex[link->a], b = vertex[link->b];

                        if (!used[i] || !shared[i])
                                continue;
                        speed[a] = speed_of(link) > speed[a] ? speed_of(link) : speed[a];
                        speed[b] = speed_of(link) > speed[b] ? speed_of(link) : speed[b];
                        if (island[a] == island[b])
                                continue;
                        island[a] = island[b] = island[a] < island[b] ? island[a] : island[b];
                        more = true;
                }
        }
}

int node_cuts_find(const struct topology *t, const struct node_way *ways, uint32_t n_ranks, uint32_t root,
                   struct node_cuts *ret_cuts) {
        _cleanup_free_ uint32_t *vertex = calloc(t->n_nodes + 1u, sizeof(*vertex));
        _cleanup_free_ bool *used = calloc(t->n_links + 1u, sizeof(*used)), *shared = NULL;
        _cleanup_(cut_net_deinit) struct cut_net net = {0};
        uint32_t island[PLAN_RANKS_MAX], n;
        uint64_t speed[PLAN_RANKS_MAX] = {0};
        int r;

        if (!vertex || !used || node_links_shared(t, &shared))
                return -ENOMEM;
        mark_used(ways, n_ranks, used);
        n = number_vertices(t, n_ranks, vertex);
        r = cut_net_init(&net, n + n_ranks, n_ranks, t->n_links + n_ranks);
        if (r)
                return r;
        for (uint32_t i = 0; i < t->n_links; i++) {
                const struct topology_link *link = &t->links[i];

                if (used[i] && !shared[i])
                        cut_net_join(&net, vertex[link->a], vertex[link->b], speed_of(link));
        }
        find_islands(t, used, shared, n_ranks, vertex, island, speed);
        for (uint32_t rank = 0; rank < n_ranks; rank++)
                cut_net_join(&net, rank, n + island[rank], speed[rank]);
        ret_cuts->n_ranks = n_ranks;
        return cut_net_sides(&net, root < n_ranks ? root : 0, ret_cuts->least, &ret_cuts->alone);
}

struct node_bound node_bound_of(const struct node_cuts *cuts, uint32_t operation, double bytes) {
        struct node_bound bound = {0};
        const double n = cuts->n_ranks;
        double sent;

        for (uint32_t k = 1; k < cuts->n_ranks; k++) {
                double crosses = ranks_cut_bytes(operation, k, n, bytes) * 1e9;

                if (cuts->least[k] < CUT_UNLIMITED && cuts->least[k] > 0 && crosses / (double)cuts->least[k] > bound.ns)
                        bound = (struct node_bound){crosses / (double)cuts->least[k], k, cuts->least[k]};
        }
        sent = ranks_sent_bytes(operation, n, bytes) * 1e9;
        if (cuts->alone < CUT_UNLIMITED && cuts->alone > 0 && sent / (double)cuts->alone > bound.ns)
                bound = (struct node_bound){sent / (double)cuts->alone, 0, cuts->alone};
        return bound;
}
