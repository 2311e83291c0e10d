/* SPDX-License-Identifier: MIT */
/*
 * Looking at a request
 *
 * Every algorithm is priced by the model of plan/cost.c, and the choice is the one that railmuxd would make with the
 * same constants; of ranks on GPUs it is the one of their table, which goes by size. A topology says more than the
 * model knows: bytes between two ranks are put on every link of the way between their GPUs, and a plan takes at least
 * as long as its busiest link; the longest way's latency takes the place of the constant for a hop. On GPUs hops and
 * links are all there is to it, see one_node.c.
 */
#include "tools/sim/sim.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/closed.h"
#include "plan/constants.h"
#include "tools/sim/node.h"
#include "tools/sim/one_node.h"
#include "tools/sim/tables.h"
#include "util/cleanup.h"
#include "util/processors.h"
#include "util/type.h"

#define HOST_WORKERS_MAX 16u /* MANAGER_WORKERS_MAX */

static void longest_hop(struct sim *sim) {
        uint64_t longest = 0;

        for (uint32_t i = 0; i < sim->n_ranks * sim->n_ranks; i++) {
                uint64_t latency = 0;

                for (uint32_t k = 0; k < sim->ways[i].n_links; k++)
                        latency += sim->topology->links[sim->ways[i].links[k]].latency_ns;
                longest = latency > longest ? latency : longest;
        }
        if (longest > 0)
                sim->constants.hop_ns = (double)longest;
}

/* Which GPUs there are, and that each has a way to each other. */
static int place_ranks(struct sim *sim, char *ret_error) {
        const struct options *o = sim->options;
        const char *name = o->topology ? o->topology : "this host";
        uint32_t n_gpus = topology_count(sim->topology, TOPOLOGY_GPU);
        int r;

        if (!o->ranks_given)
                sim->n_ranks = n_gpus < PLAN_RANKS_MAX ? n_gpus : PLAN_RANKS_MAX;
        if (n_gpus == 0 || n_gpus < sim->n_ranks) {
                snprintf(ret_error, OPTIONS_ERROR_MAX, "%.100s: it has %u GPUs, which is not enough", name, n_gpus);
                return -EINVAL;
        }
        for (uint32_t i = 0; i < sim->n_ranks; i++)
                if (topology_find(sim->topology, TOPOLOGY_GPU, i) == TOPOLOGY_NONE) {
                        snprintf(ret_error, OPTIONS_ERROR_MAX,
                                 "%.100s: it has %u GPUs and no gpu%u; they are numbered from 0 on", name, n_gpus, i);
                        return -EINVAL;
                }
        r = node_ways(sim->topology, sim->n_ranks, &sim->ways);
        if (r)
                return r;
        for (uint32_t i = 0; i < sim->n_ranks * sim->n_ranks; i++)
                if (i / sim->n_ranks != i % sim->n_ranks && sim->ways[i].n_links == 0) {
                        snprintf(ret_error, OPTIONS_ERROR_MAX,
                                 "%.100s: there is no way from gpu%u to gpu%u, or none of at most %u links", name,
                                 i / sim->n_ranks, i % sim->n_ranks, NODE_PATH_MAX);
                        return -EINVAL;
                }
        return 0;
}

static int load_topology(struct sim *sim, char *ret_error) {
        const struct options *o = sim->options;
        int r = 0;

        if (o->host)
                r = topology_host(sim->n_ranks, &sim->topology);
        else if (o->topology)
                r = node_load(o->topology, &sim->topology, ret_error, OPTIONS_ERROR_MAX);
        if (r && !(o->topology && r == -EINVAL))
                snprintf(ret_error, OPTIONS_ERROR_MAX, "no topology: %s", strerror(r < 0 ? -r : EINVAL));
        if (r || !sim->topology)
                return r > 0 ? -EINVAL : r;
        return place_ranks(sim, ret_error);
}

/* GPUs do a rank's work at once, which the cost model does not know (one_node.c). Whoever has constants is believed. */
static void take_device(struct sim *sim) {
        const struct one_node *one = one_node_of(sim->topology);

        plan_constants_device(&sim->constants);
        if (sim->options->constants)
                return;
        sim->hops_and_links = true;
        sim->link_factor = one ? one->factor : 1;
        sim->source = one ? one->source : NULL;
        sim->constants = (struct plan_constants){.hop_ns = one ? one->hop_ns : 0};
}

/* As many as the host backend has (daemon/manager.c). */
static uint32_t host_workers(void) {
        uint32_t n = processors_usable();

        return n < HOST_WORKERS_MAX ? n : HOST_WORKERS_MAX;
}

static uint32_t choose_nodes(struct sim *sim) {
        const struct options *o = sim->options;
        struct plan_nodes nodes;
        struct plan_over over = {.constants = &sim->constants, .nodes = &nodes, .n_ranks = sim->n_ranks};

        if (tables_nodes(o->nodes, o->gpus, &nodes))
                return 0;
        if (o->workers)
                return tables_host(&over, o->rails, &sim->net, &sim->geometry, sim->choices);
        plan_constants_device(&sim->constants);
        return tables_device(&nodes, sim->n_ranks, o->rails, &sim->net, sim->choices);
}

int sim_init(struct sim *sim, const struct options *options, char ret_error[OPTIONS_ERROR_MAX]) {
        char text[OPTIONS_ERROR_MAX / 2];
        uint32_t workers;
        int r;

        *sim = (struct sim){.options = options, .n_ranks = options->ranks};
        r = load_topology(sim, ret_error);
        if (r)
                return r;
        if (plan_operation_rooted(options->operation) || plan_operation_p2p(options->operation))
                if (options->root >= sim->n_ranks) {
                        snprintf(ret_error, OPTIONS_ERROR_MAX, "-r %u: the ranks are 0 to %u", options->root,
                                 sim->n_ranks - 1);
                        return -EINVAL;
                }
        workers = options->workers ? options->workers : options->host ? host_workers() : sim->n_ranks;
        sim->device = options->topology && node_has_devices(sim->topology);
        if (sim->device)
                take_device(sim);
        else
                plan_constants_host(&sim->constants, workers);
        sim->constants.parallel = workers;
        if (options->topology && !sim->source) /* --host is what the constants are from, and so are GPUs */
                longest_hop(sim);
        r = sim->topology ? node_cuts_find(sim->topology, sim->ways, sim->n_ranks, options->root, &sim->cuts) : 0;
        if (r) {
                snprintf(ret_error, OPTIONS_ERROR_MAX, "out of memory");
                return r;
        }
        if (options->constants && constants_load(options->constants, &sim->constants, text, sizeof(text))) {
                snprintf(ret_error, OPTIONS_ERROR_MAX, "%.100s: %s", options->constants, text);
                return -EINVAL;
        }
        plan_geometry_choose(sim->n_ranks, &sim->geometry);
        sim->element_bytes = (uint32_t)type_size(options->type);
        sim->partial_bytes = (uint32_t)type_accumulator_size(options->type, RMX_SUM);
        sim->n_choices = options->nodes ? choose_nodes(sim)
                         : sim->device  ? plan_choose_device(sim->n_ranks, sim->choices)
                                        : plan_choose(&sim->constants, sim->n_ranks, sim->choices);
        if (sim->n_choices > 0)
                return 0;
        snprintf(ret_error, OPTIONS_ERROR_MAX, "out of memory");
        return -ENOMEM;
}

void sim_deinit(struct sim *sim) {
        sim->topology = topology_free(sim->topology);
        free(sim->ways);
        sim->ways = NULL;
}

/* ---- links of the topology --------------------------------------------------------------------------------------- */
static void take_slowest(struct sim_candidate *c, uint64_t bytes, uint64_t bytes_per_second, uint32_t link) {
        double ns = bytes_per_second > 0 ? (double)bytes * 1e9 / (double)bytes_per_second : 0;

        if (ns > c->link_ns) {
                c->link_ns = ns;
                c->slowest_link = link;
        }
}

/* What a GPU has of NVLink is all that its links have together where a switch gives it to any of them. */
static int sum_up(const struct sim *sim, struct sim_candidate *c) {
        const struct topology *topology = sim->topology;
        _cleanup_free_ bool *shared = NULL;

        if (node_links_shared(topology, &shared))
                return -ENOMEM;
        for (uint32_t rank = 0; rank < sim->n_ranks; rank++) {
                uint32_t gpu = topology_find(topology, TOPOLOGY_GPU, rank);
                struct sim_sum *sum = &c->sums[rank];

                sum->link = UINT32_MAX;
                for (uint32_t i = 0; i < topology->n_links; i++) {
                        const struct topology_link *link = &topology->links[i];

                        if ((link->a != gpu && link->b != gpu) || !shared[i])
                                continue;
                        sum->out += link->a == gpu ? c->links[i].forth : c->links[i].back;
                        sum->in += link->a == gpu ? c->links[i].back : c->links[i].forth;
                        if (sum->link == UINT32_MAX || link->bytes_per_second > sum->bytes_per_second) {
                                sum->bytes_per_second = link->bytes_per_second;
                                sum->link = i;
                        }
                }
                if (sum->link != UINT32_MAX)
                        take_slowest(c, sum->out > sum->in ? sum->out : sum->in, sum->bytes_per_second, sum->link);
        }
        return 0;
}

int sim_put_on_links(const struct sim *sim, struct sim_candidate *c) {
        const struct topology *topology = sim->topology;

        c->links = calloc(topology->n_links + 1u, sizeof(*c->links));
        c->sums = calloc(sim->n_ranks, sizeof(*c->sums));
        if (!c->links || !c->sums)
                return -ENOMEM;
        for (uint32_t from = 0; from < sim->n_ranks; from++)
                for (uint32_t to = 0, at; to < sim->n_ranks; to++) {
                        const struct node_way *way = &sim->ways[from * sim->n_ranks + to];
                        uint64_t bytes = c->traffic->link[from][to].bytes;

                        at = topology_find(topology, TOPOLOGY_GPU, from);
                        for (uint32_t i = 0; bytes > 0 && i < way->n_links; i++) {
                                const struct topology_link *link = &topology->links[way->links[i]];

                                *(link->a == at ? &c->links[way->links[i]].forth : &c->links[way->links[i]].back) +=
                                        bytes;
                                at = link->a == at ? link->b : link->a;
                        }
                }
        for (uint32_t i = 0; i < topology->n_links; i++)
                take_slowest(c, c->links[i].forth > c->links[i].back ? c->links[i].forth : c->links[i].back,
                             topology->links[i].bytes_per_second, i);
        return sum_up(sim, c);
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */
/* Kernels of GPUs run plans by channels only; of others those are chosen that reduce in rank order (plan/choice.c). */
static bool may_be_chosen(const struct sim *sim, const struct plan *plan) {
        if (sim->device)
                return plan->algorithm == PLAN_DIRECT || plan->algorithm == PLAN_ONE_SHOT ||
                       plan->algorithm == PLAN_TWO_SHOT;
        return plan->tree <= PLAN_TREE_RANK_ORDER;
}

static void price_links(const struct sim *sim, struct sim_candidate *c) {
        double path = c->hops * sim->constants.hop_ns;

        if (!sim->hops_and_links) {
                c->ns = fmax(c->cost.ns, sim->constants.request_ns + c->link_ns);
                c->linked = c->ns > c->cost.ns;
                return;
        }
        c->cost = (struct plan_cost){.ns = path, .critical_ns = path, .hops = c->hops};
        c->ns = sim->source ? path + sim->link_factor * c->link_ns : fmax(path, c->link_ns);
        c->linked = c->ns > (sim->source ? 2 * path : path);
}

static int candidate_look(const struct sim *sim, struct sim_result *result, uint32_t algorithm, bool want_traffic) {
        static const uint64_t no_offsets[PLAN_RANKS_MAX];
        const struct plan_vector vector = {result->vector, no_offsets, result->vector, no_offsets};
        const struct options *o = sim->options;
        struct sim_candidate *c = &result->candidates[result->n_candidates];
        struct plan_model model;
        struct plan_shape shape = {
                .count = result->count,
                .element_bytes = sim->element_bytes,
                .partial_bytes = sim->partial_bytes,
                .root = o->root < sim->n_ranks ? o->root : 0,
                .vector = &vector,
        };
        int r;

        if (plan_operation_p2p(o->operation))
                shape.peer = (shape.root + 1) % sim->n_ranks;
        r = plan_build(o->operation, algorithm, sim->n_ranks, &c->plan);
        if (!r)
                r = plan_model_init(&model, &c->plan, &sim->constants, &sim->geometry, sim->element_bytes,
                                    sim->partial_bytes);
        if (r)
                return r > 0 ? -EINVAL : r;
        result->n_candidates++;
        plan_model_predict(&model, result->count, &c->cost);
        c->hops = plan_cost_hops(&c->plan);
        c->may = may_be_chosen(sim, &c->plan);
        c->ns = c->cost.ns;
        if (!want_traffic)
                return 0;
        r = traffic_new(&c->plan, &sim->geometry, &shape, &c->traffic);
        if (!r && sim->topology)
                r = sim_put_on_links(sim, c);
        price_links(sim, c);
        return r;
}

int sim_look(const struct sim *sim, uint64_t bytes, struct sim_result *ret_result) {
        const struct options *o = sim->options;
        struct sim_result *result = ret_result;
        const struct plan_choice *choice;
        uint32_t algorithm;
        bool shown = false;
        int r = 0;

        *result = (struct sim_result){.count = bytes / sim->element_bytes};
        result->bytes = result->count * sim->element_bytes;
        if (sim->topology)
                result->bound = node_bound_of(&sim->cuts, o->operation, (double)result->bytes);
        for (uint32_t i = 0; i < sim->n_ranks; i++)
                result->vector[i] = result->count;
        choice = plan_choice_find(sim->choices, sim->n_choices, o->operation,
                                  plan_widening(sim->element_bytes, sim->partial_bytes), result->bytes);
        for (uint32_t k = 0; !r; k++) {
                struct sim_candidate *c = &result->candidates[result->n_candidates];

                algorithm = plan_algorithm_at(o->operation, sim->n_ranks, k);
                if (algorithm == PLAN_ALGORITHM_NONE)
                        break;
                c->chosen = choice && choice->algorithm == algorithm;
                c->shown = o->algorithm == OPTIONS_ALGORITHM_ALL || o->algorithm == algorithm ||
                           (o->algorithm == PLAN_ALGORITHM_NONE && c->chosen);
                shown |= c->shown;
                r = candidate_look(sim, result, algorithm, c->shown || sim->topology);
        }
        return r ? r : shown ? 0 : -EINVAL;
}

void sim_candidate_deinit(struct sim_candidate *c) {
        free(c->traffic);
        free(c->links);
        free(c->sums);
        c->traffic = NULL;
        c->links = NULL;
        c->sums = NULL;
}

void sim_result_deinit(struct sim_result *result) {
        for (uint32_t i = 0; i < result->n_candidates; i++)
                sim_candidate_deinit(&result->candidates[i]);
        result->n_candidates = 0;
}

const char *sim_limit(const struct sim_candidate *c) {
        if (c->linked)
                return "link";
        if (c->cost.critical_ns >= c->cost.busiest_ns && c->cost.critical_ns >= c->cost.shared_ns)
                return "path";
        return c->cost.busiest_ns >= c->cost.shared_ns ? "rank" : "workers";
}

double sim_bus_gbs(const struct sim *sim, const struct sim_result *result, double ns) {
        const struct cluster node = {.n_nodes = 1, .n_gpus = sim->n_ranks};

        return cluster_bus_gbs(&node, sim->options->operation, (double)result->bytes, ns);
}
