/* SPDX-License-Identifier: MIT */
/*
 * What is chosen, phase by phase and link by link
 *
 * Formulas say what the busiest rail carries. Up to as many ranks as plans can have the plan itself is built and its
 * steps are counted, so that each rail of each node has its number, and each pair of ranks inside one; where the node
 * is a file, bytes between its GPUs are put on its links as of one node (sim.c). Of more ranks phases are shown as of
 * fewer, which are the same, and loads are those of the formulas.
 */
#include "tools/sim/cluster_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sim/node.h"
#include "tools/sim/report.h"
#include "tools/sim/tables.h"
#include "tools/sim/words.h"

/* ---- building ---------------------------------------------------------------------------------------------------- */
static int build(struct cluster_plan *p, uint32_t operation, uint32_t algorithm) {
        const uint32_t n_ranks = p->n_nodes * p->n_gpus;
        int r;

        if (p->n_nodes < 2)
                return plan_build(operation, algorithm, n_ranks, &p->plan);
        r = tables_nodes(p->n_nodes, p->n_gpus, &p->nodes);
        return r ? r : plan_build_nodes(operation, algorithm, n_ranks, &p->nodes, &p->plan);
}

/* Has each rank of a node its GPU in the file, and a way to each other one? */
static bool all_joined(const struct sim *graph) {
        const uint32_t n = graph->n_ranks;

        for (uint32_t i = 0; i < n * n; i++)
                if (i / n != i % n && graph->ways[i].n_links == 0)
                        return false;
        return n > 1;
}

/* Of each node what its links carry: traffic among its own ranks. Where the file does not have them all, pairs are
 * shown as without one; so they are where it has more in its boxes, as rank r is on its GPU r, whosever box that is. */
static int put_on_links(struct cluster_plan *p) {
        const bool boxes = p->n_gpus > p->cluster->n_gpus;
        struct sim *graph = &p->graph;
        char error[OPTIONS_ERROR_MAX];
        int r = node_load(p->cluster->name, &graph->topology, error, sizeof(error));

        graph->n_ranks = p->n_gpus;
        if (!r && boxes && topology_count(graph->topology, TOPOLOGY_GPU) != p->n_gpus)
                return 0;
        if (!r)
                r = node_ways(graph->topology, p->n_gpus, &graph->ways);
        if (r || !all_joined(graph))
                return r;
        p->on = calloc(p->n_nodes, sizeof(*p->on));
        for (uint32_t node = 0; !r && p->on && node < p->n_nodes; node++) {
                const uint32_t first = node * p->n_gpus;
                struct traffic *near = p->on[node].traffic = calloc(1, sizeof(*near));

                if (!near)
                        return -ENOMEM;
                near->n_ranks = p->n_gpus;
                for (uint32_t a = 0; a < p->n_gpus; a++)
                        memcpy(near->link[a], &p->traffic->link[first + a][first],
                               p->n_gpus * sizeof(near->link[a][0]));
                r = sim_put_on_links(graph, &p->on[node]);
        }
        return p->on ? r : -ENOMEM;
}

static int count(struct cluster_plan *p, bool graph, double bytes) {
        uint64_t counts[PLAN_RANKS_MAX], zeros[PLAN_RANKS_MAX] = {0};
        const struct plan_vector vector = {counts, zeros, counts, zeros};
        const struct plan_shape shape = {
                .count = (uint64_t)bytes, .element_bytes = 1, .partial_bytes = 1, .vector = &vector};
        struct plan_geometry geometry;
        int r;

        for (uint32_t i = 0; i < PLAN_RANKS_MAX; i++)
                counts[i] = shape.count;
        if (p->n_nodes > 1)
                plan_geometry_choose_nodes(p->plan.n_ranks, &geometry);
        else
                plan_geometry_choose(p->plan.n_ranks, &geometry);
        r = traffic_new(&p->plan, &geometry, &shape, &p->traffic);
        if (r)
                return r;
        if (p->between) {
                p->rails = calloc((size_t)p->n_nodes * p->cluster->n_rails, sizeof(*p->rails));
                if (!p->rails)
                        return -ENOMEM;
                plan_load_rails(&p->plan, &geometry, &shape, p->cluster->n_rails, p->rails);
        }
        return graph ? put_on_links(p) : 0;
}

int cluster_plan_new(const struct cluster *cluster, const struct cluster_form *form, uint32_t operation,
                     const struct cluster_look *look, struct cluster_plan **ret_plan) {
        uint32_t algorithm = look->chosen_by == CLUSTER_CHOSEN_RAILMUXD ? look->algorithm
                             : look->chosen < look->n_choices           ? look->choices[look->chosen].algorithm
                                                                        : PLAN_ALGORITHM_NONE;
        uint32_t n_nodes = form->boxes ? 1 : cluster->n_nodes;
        uint32_t n_gpus = form->boxes ? cluster->n_nodes * cluster->n_gpus : cluster->n_gpus;
        struct cluster_plan *p = calloc(1, sizeof(*p));
        int r;

        if (!p)
                return -ENOMEM;
        p->cluster = cluster;
        p->counted = n_nodes <= PLAN_RANKS_MAX && n_nodes * n_gpus <= PLAN_RANKS_MAX;
        p->between = n_nodes > 1;
        p->n_gpus = p->counted ? n_gpus : n_gpus < 16 ? n_gpus : 16;
        p->n_nodes = p->counted ? n_nodes : n_nodes < PLAN_RANKS_MAX / p->n_gpus ? n_nodes : PLAN_RANKS_MAX / p->n_gpus;
        r = algorithm == PLAN_ALGORITHM_NONE || algorithm >= PLAN_ALGORITHM_COUNT ? 1 : build(p, operation, algorithm);
        if (!r && p->counted)
                r = count(p, form->graph, look->bytes);
        if (r) {
                cluster_plan_free(p);
                return r > 0 ? 1 : r;
        }
        *ret_plan = p;
        return 0;
}

struct cluster_plan *cluster_plan_free(struct cluster_plan *p) {
        if (!p)
                return NULL;
        for (uint32_t node = 0; p->on && node < p->n_nodes; node++)
                sim_candidate_deinit(&p->on[node]);
        free(p->on);
        sim_deinit(&p->graph);
        free(p->traffic);
        free(p->rails);
        free(p);
        return NULL;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */
static bool alike(const struct plan_load *a, const struct plan_load *b) {
        return a->bytes_out == b->bytes_out && a->bytes_in == b->bytes_in;
}

/* Does a node load its rails and links as the one before it? */
static bool as_before(const struct cluster_plan *p, uint32_t node) {
        const uint32_t n_rails = p->cluster->n_rails, first = node * p->n_gpus;

        if (node == 0)
                return false;
        for (uint32_t i = 0; p->between && i < n_rails; i++)
                if (!alike(&p->rails[node * n_rails + i], &p->rails[(node - 1) * n_rails + i]))
                        return false;
        for (uint32_t a = 0; a < p->n_gpus; a++)
                for (uint32_t b = 0; b < p->n_gpus; b++)
                        if (p->traffic->link[first + a][first + b].bytes !=
                            p->traffic->link[first - p->n_gpus + a][first - p->n_gpus + b].bytes)
                                return false;
        return true;
}

static void print_rails(const struct cluster_plan *p, uint32_t node) {
        const uint32_t n = p->cluster->n_rails;
        const struct plan_load *rails = &p->rails[node * n];

        printf("  %-24s %-7s %14s %14s %11s\n", "rail", "", "out (B)", "in (B)", "at least (us)");
        for (uint32_t first = 0, last; first < n; first = last + 1) {
                const struct plan_load *r = &rails[first];
                double most = (double)(r->bytes_out > r->bytes_in ? r->bytes_out : r->bytes_in);
                char who[32];

                for (last = first; last + 1 < n && alike(r, &rails[last + 1]); last++)
                        ;
                snprintf(who, sizeof(who), last > first ? "%u-%u, each" : "%u", first, last);
                printf("  %-24s %-7s %14" PRIu64 " %14" PRIu64 " %11.2f\n", who, "", r->bytes_out, r->bytes_in,
                       most / p->cluster->rail_gbs / 1000);
        }
}

static void print_pairs(const struct cluster_plan *p, uint32_t node) {
        const uint32_t first = node * p->n_gpus, n = p->n_gpus;
        uint64_t least = UINT64_MAX, most = 0;
        uint32_t used = 0;

        for (uint32_t a = 0; a < n; a++)
                for (uint32_t b = 0; b < n; b++) {
                        uint64_t bytes = p->traffic->link[first + a][first + b].bytes;

                        if (a == b || bytes == 0)
                                continue;
                        used++;
                        least = bytes < least ? bytes : least;
                        most = bytes > most ? bytes : most;
                }
        if (used == 0)
                return;
        printf("  %u of %u pairs of its GPUs are used, each: %" PRIu64, used, n * (n - 1), least);
        printf(most > least ? " to %" PRIu64 " bytes; --json has them all\n" : " bytes\n", most);
}

static void print_node(const struct cluster_plan *p, uint32_t node, uint32_t last) {
        if (p->n_nodes > 1)
                printf(last > node ? "  nodes %u-%u, each:\n" : "  node %u:\n", node, last);
        if (p->between)
                print_rails(p, node);
        if (p->on)
                report_links(&p->graph, &p->on[node]);
        else
                print_pairs(p, node);
}

void cluster_plan_print(const struct cluster_plan *p, const struct cluster_load *load) {
        char phase[WORDS_PHASE_MAX];

        if (!p)
                return;
        printf("Plan %s %s", plan_operation_name(p->plan.operation), plan_algorithm_name(p->plan.algorithm));
        printf(p->counted ? "\n" : ", phases as of %u node%s with %u GPUs\n", p->n_nodes, p->n_nodes > 1 ? "s" : "",
               p->n_gpus);
        for (uint32_t i = 0; i < p->plan.n_phases; i++)
                printf("  %u %-7s %s\n", i, plan_kind_name(p->plan.phases[i].kind), words_phase(&p->plan, i, phase));
        if (!p->counted && p->between && load)
                printf("  none of %" PRIu64 " rails carries more than %.0f bytes\n",
                       (uint64_t)p->cluster->n_nodes * p->cluster->n_rails, load->rail_bytes);
        for (uint32_t node = 0, last; p->counted && node < p->n_nodes; node = last + 1) {
                for (last = node; last + 1 < p->n_nodes && as_before(p, last + 1); last++)
                        ;
                print_node(p, node, last);
        }
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */
static json_t *bytes_json(uint64_t bytes) {
        return json_integer((json_int_t)(bytes < INT64_MAX ? bytes : INT64_MAX));
}

static json_t *node_json(const struct cluster_plan *p, uint32_t node) {
        const uint32_t n_rails = p->cluster->n_rails, first = node * p->n_gpus;
        json_t *rails = json_array(), *links = json_array();

        for (uint32_t i = 0; p->between && i < n_rails; i++) {
                const struct plan_load *rail = &p->rails[node * n_rails + i];

                json_array_append_new(rails, json_pack("{s:o, s:o}", "bytes_out", bytes_json(rail->bytes_out),
                                                       "bytes_in", bytes_json(rail->bytes_in)));
        }
        for (uint32_t a = 0; a < p->n_gpus; a++)
                for (uint32_t b = 0; b < p->n_gpus; b++) {
                        uint64_t bytes = p->traffic->link[first + a][first + b].bytes;

                        if (a != b && bytes > 0)
                                json_array_append_new(links, json_pack("{s:i, s:i, s:o}", "from", (int)a, "to", (int)b,
                                                                       "bytes", bytes_json(bytes)));
                }
        return json_pack("{s:o, s:o, s:o}", "rails", rails, "links", links, "physical_links",
                         p->on ? report_json_links(&p->graph, &p->on[node]) : json_array());
}

json_t *cluster_plan_json(const struct cluster_plan *p) {
        json_t *phases = json_array(), *nodes = json_array();
        char phase[WORDS_PHASE_MAX];

        if (!p) {
                json_decref(phases);
                json_decref(nodes);
                return json_null();
        }
        for (uint32_t i = 0; i < p->plan.n_phases; i++)
                json_array_append_new(phases, json_string(words_phase(&p->plan, i, phase)));
        for (uint32_t node = 0; p->counted && node < p->n_nodes; node++)
                json_array_append_new(nodes, node_json(p, node));
        return json_pack("{s:s, s:o, s:o}", "algorithm", plan_algorithm_name(p->plan.algorithm), "phases", phases,
                         "nodes", nodes);
}
