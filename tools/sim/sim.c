/* SPDX-License-Identifier: MIT */
/*
 * Looking at a request
 *
 * Every algorithm is priced by the model of plan/cost.c, and the choice is the one that railmuxd would make with the
 * same constants. A topology says more than the model knows: bytes between two ranks are put on every link of the way
 * between their GPUs, and a plan takes at least as long as its busiest link; the longest way's latency takes the place
 * of the constant for a hop.
 */
#include "tools/sim/sim.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/constants.h"
#include "plan/nodes.h"
#include "plan/rails.h"
#include "tools/sim/node.h"
#include "util/type.h"

static void longest_hop(struct sim *sim) {
        uint32_t links[NODE_PATH_MAX], longest = 0;

        for (uint32_t a = 0; a < sim->n_ranks; a++)
                for (uint32_t b = 0; b < a; b++) {
                        uint32_t n = node_path(sim->topology, a, b, links), latency = 0;

                        for (uint32_t i = 0; i < n; i++)
                                latency += sim->topology->links[links[i]].latency_ns;
                        longest = latency > longest ? latency : longest;
                }
        if (longest > 0)
                sim->constants.hop_ns = longest;
}

static int load_topology(struct sim *sim, char *ret_error) {
        const struct options *o = sim->options;
        uint32_t n_gpus;
        int r = 0;

        if (o->host)
                r = topology_host(sim->n_ranks, &sim->topology);
        else if (o->topology)
                r = node_load(o->topology, &sim->topology, ret_error, OPTIONS_ERROR_MAX);
        if (r && !(o->topology && r == -EINVAL))
                snprintf(ret_error, OPTIONS_ERROR_MAX, "no topology: %s", strerror(r < 0 ? -r : EINVAL));
        if (r || !sim->topology)
                return r > 0 ? -EINVAL : r;
        n_gpus = topology_count(sim->topology, TOPOLOGY_GPU);
        if (!o->ranks_given)
                sim->n_ranks = n_gpus < PLAN_RANKS_MAX ? n_gpus : PLAN_RANKS_MAX;
        for (uint32_t i = 0; i < sim->n_ranks; i++)
                if (topology_find(sim->topology, TOPOLOGY_GPU, i) == TOPOLOGY_NONE)
                        sim->n_ranks = 0;
        if (sim->n_ranks > 0)
                return 0;
        snprintf(ret_error, OPTIONS_ERROR_MAX, "%.100s: it has %u GPUs, which is not enough", o->topology, n_gpus);
        return -EINVAL;
}

/* As the daemon of the first rank does where `peer.stripe` is as it comes (daemon/comm_plan.c). */
static uint32_t choose_nodes(struct sim *sim) {
        const struct options *o = sim->options;
        uint8_t node[PLAN_RANKS_MAX];
        struct plan_nodes nodes;

        for (uint32_t r = 0; r < sim->n_ranks; r++)
                node[r] = (uint8_t)(r / o->gpus);
        plan_constants_device(&sim->constants);
        plan_net_device(&sim->net);
        sim->net.n_rails = o->rails;
        sim->net.any_rail = true;
        return plan_nodes_init(&nodes, sim->n_ranks, node)
                       ? 0
                       : plan_choose_device_nodes(&nodes, sim->n_ranks, &sim->net, sim->choices);
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
        workers = options->workers ? options->workers : options->host ? sim->topology->n_cpus : sim->n_ranks;
        plan_constants_host(&sim->constants, workers);
        if (options->topology) /* --host is what the constants are from */
                longest_hop(sim);
        if (options->constants && constants_load(options->constants, &sim->constants, text, sizeof(text))) {
                snprintf(ret_error, OPTIONS_ERROR_MAX, "%.100s: %s", options->constants, text);
                return -EINVAL;
        }
        plan_geometry_choose(sim->n_ranks, &sim->geometry);
        sim->element_bytes = (uint32_t)type_size(options->type);
        sim->partial_bytes = (uint32_t)type_accumulator_size(options->type, RMX_SUM);
        sim->n_choices = options->nodes ? choose_nodes(sim) : plan_choose(&sim->constants, sim->n_ranks, sim->choices);
        if (sim->n_choices > 0)
                return 0;
        snprintf(ret_error, OPTIONS_ERROR_MAX, "out of memory");
        return -ENOMEM;
}

void sim_deinit(struct sim *sim) {
        sim->topology = topology_free(sim->topology);
}

/* ---- links of the topology --------------------------------------------------------------------------------------- */
static int put_on_links(const struct sim *sim, struct sim_candidate *c) {
        const struct topology *topology = sim->topology;
        uint32_t path[NODE_PATH_MAX];

        c->links = calloc(topology->n_links + 1u, sizeof(*c->links));
        if (!c->links)
                return -ENOMEM;
        for (uint32_t from = 0; from < sim->n_ranks; from++)
                for (uint32_t to = 0; to < sim->n_ranks; to++) {
                        uint64_t bytes = c->traffic->link[from][to].bytes;
                        uint32_t at = topology_find(topology, TOPOLOGY_GPU, from);
                        uint32_t n = bytes > 0 ? node_path(topology, from, to, path) : 0;

                        for (uint32_t i = 0; i < n; i++) {
                                const struct topology_link *link = &topology->links[path[i]];

                                *(link->a == at ? &c->links[path[i]].forth : &c->links[path[i]].back) += bytes;
                                at = link->a == at ? link->b : link->a;
                        }
                }
        for (uint32_t i = 0; i < topology->n_links; i++) {
                uint64_t bytes = c->links[i].forth > c->links[i].back ? c->links[i].forth : c->links[i].back;
                double speed = (double)topology->links[i].bytes_per_second;

                if (speed > 0 && (double)bytes * 1e9 / speed > c->link_ns) {
                        c->link_ns = (double)bytes * 1e9 / speed;
                        c->slowest_link = i;
                }
        }
        return 0;
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */
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
        c->ns = c->cost.ns;
        if (!want_traffic)
                return 0;
        r = traffic_new(&c->plan, &sim->geometry, &shape, &c->traffic);
        if (!r && sim->topology)
                r = put_on_links(sim, c);
        c->ns = fmax(c->cost.ns, sim->constants.request_ns + c->link_ns);
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
        for (uint32_t i = 0; i < sim->n_ranks; i++)
                result->vector[i] = result->count;
        choice = plan_choice_find(sim->choices, sim->n_choices, o->operation, result->bytes);
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

void sim_result_deinit(struct sim_result *result) {
        for (uint32_t i = 0; i < result->n_candidates; i++) {
                free(result->candidates[i].traffic);
                free(result->candidates[i].links);
        }
        result->n_candidates = 0;
}

const char *sim_limit(const struct sim_candidate *c) {
        if (c->ns > c->cost.ns)
                return "link";
        if (c->cost.critical_ns >= c->cost.busiest_ns && c->cost.critical_ns >= c->cost.shared_ns)
                return "path";
        return c->cost.busiest_ns >= c->cost.shared_ns ? "rank" : "workers";
}
