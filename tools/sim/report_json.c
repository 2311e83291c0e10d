/* SPDX-License-Identifier: MIT */
/* Results as JSON, see docs/schema/railmux-sim.json. */
#include <math.h>

#include "plan/constants.h"
#include "tools/sim/report.h"
#include "tools/sim/words.h"
#include "util/type.h"

static json_t *integer(uint64_t value) {
        return json_integer((json_int_t)(value < INT64_MAX ? value : INT64_MAX));
}

/* JSON knows no infinity. */
static json_t *time_json(double ns) {
        return isfinite(ns) ? json_real(ns) : json_null();
}

json_t *report_json_begin(const struct sim *sim) {
        json_t *root, *all = constants_json(&sim->constants);

        if (!all)
                return NULL;
        root = json_pack("{s:i, s:i, s:i, s:s, s:O, s:{s:i, s:i, s:o}}", "version", REPORT_JSON_VERSION, "ranks",
                         (int)sim->n_ranks, "parallel", (int)sim->constants.parallel, "type",
                         type_name(sim->options->type), "constants", json_object_get(all, "constants"), "staging",
                         "part_bytes", (int)sim->geometry.part_bytes, "slots", (int)sim->geometry.slots, "bytes",
                         integer(plan_staging_bytes(&sim->geometry, sim->n_ranks)));
        json_decref(all);
        if (sim->hops_and_links)
                json_object_set_new(root, "gpus",
                                    json_pack("{s:f, s:f, s:s?}", "hop_ns", sim->constants.hop_ns, "link_factor",
                                              sim->link_factor, "source", sim->source));
        if (sim->options->nodes > 1)
                json_object_set_new(root, "nodes",
                                    json_pack("{s:i, s:i, s:i, s:f, s:f, s:f}", "nodes", (int)sim->options->nodes,
                                              "gpus", (int)sim->options->gpus, "rails", (int)sim->options->rails,
                                              "hop_ns", sim->net.hop_ns, "ns_per_chunk", sim->net.ns_per_chunk,
                                              "ns_per_byte", sim->net.ns_per_byte));
        return root;
}

static json_t *phase_json(const struct plan *plan, uint32_t p) {
        const struct plan_phase *phase = &plan->phases[p];
        bool p2p = plan_operation_p2p(plan->operation);
        char text[WORDS_PHASE_MAX];

        return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:b, s:o, s:b, s:s}", "kind",
                         plan_kind_name(phase->kind), "who", words_who(phase->who, p2p), "peers",
                         words_peers(phase->peers, p2p), "schedule", words_schedule(phase->schedule), "in_range",
                         words_range(phase->in_range), "out_range", words_range(phase->out_range), "region_in",
                         (int)phase->region_in, "region_out", (int)phase->region_out, "forward", (int)phase->forward,
                         "after", phase->after < 0 ? json_null() : json_integer(phase->after), "after_whole",
                         (int)phase->after_whole, "words", words_phase(plan, p, text));
}

static json_t *rank_json(const struct traffic_rank *r, uint32_t rank) {
        return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "rank", (int)rank, "steps",
                         integer(r->steps), "chunks_sent", integer(r->chunks_sent), "chunks_taken",
                         integer(r->chunks_taken), "signals_sent", integer(r->signals_sent), "signals_taken",
                         integer(r->signals_taken), "bytes_copied", integer(r->bytes_copied), "bytes_reduced",
                         integer(r->bytes_reduced), "bytes_output", integer(r->bytes_output), "bytes_far",
                         integer(r->bytes_far));
}

static json_t *links_json(const struct traffic *t) {
        json_t *list = json_array();

        for (uint32_t a = 0; a < t->n_ranks; a++)
                for (uint32_t b = 0; b < t->n_ranks; b++) {
                        const struct traffic_link *link = &t->link[a][b];

                        if (a != b && link->bytes + link->chunks + link->signals > 0)
                                json_array_append_new(list, json_pack("{s:i, s:i, s:o, s:o, s:o}", "from", (int)a, "to",
                                                                      (int)b, "bytes", integer(link->bytes), "chunks",
                                                                      integer(link->chunks), "signals",
                                                                      integer(link->signals)));
                }
        return list;
}

json_t *report_json_links(const struct sim *sim, const struct sim_candidate *c) {
        const struct topology *topology = sim->topology;
        json_t *list = json_array();

        for (uint32_t i = 0; i < topology->n_links; i++) {
                const struct topology_link *link = &topology->links[i];
                char a[NODE_LABEL_MAX], b[NODE_LABEL_MAX];

                if (c->links[i].forth + c->links[i].back > 0)
                        json_array_append_new(
                                list, json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "a", node_label(topology, link->a, a),
                                                "b", node_label(topology, link->b, b), "kind",
                                                topology_link_kind_name(link->kind), "bytes_forth",
                                                integer(c->links[i].forth), "bytes_back", integer(c->links[i].back),
                                                "bytes_per_second", integer(link->bytes_per_second)));
        }
        return list;
}

static json_t *details_json(const struct sim *sim, const struct sim_candidate *c) {
        json_t *phases = json_array(), *ranks = json_array();
        char tree[WORDS_TREE_MAX];

        for (uint32_t p = 0; p < c->plan.n_phases; p++)
                json_array_append_new(phases, phase_json(&c->plan, p));
        for (uint32_t r = 0; r < sim->n_ranks; r++)
                json_array_append_new(ranks, rank_json(&c->traffic->rank[r], r));
        return json_pack("{s:o, s:s, s:o, s:o, s:o}", "phases", phases, "reduction",
                         words_tree(&c->plan, sim->options->root, tree), "ranks", ranks, "links",
                         links_json(c->traffic), "physical_links",
                         sim->topology ? report_json_links(sim, c) : json_array());
}

static json_t *candidate_json(const struct sim *sim, const struct sim_result *result, const struct sim_candidate *c) {
        json_t *object = json_pack("{s:s, s:s, s:b, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:f}", "algorithm",
                                   plan_algorithm_name(c->plan.algorithm), "tree", plan_tree_name(c->plan.tree),
                                   "chosen", (int)c->chosen, "limit", sim_limit(c), "hops", c->hops, "predicted_ns",
                                   time_json(c->ns), "path_ns", time_json(c->cost.critical_ns), "rank_ns",
                                   time_json(c->cost.busiest_ns), "workers_ns", time_json(c->cost.shared_ns), "link_ns",
                                   c->link_ns > 0 ? time_json(c->link_ns) : json_null(), "bus_gbs",
                                   sim_bus_gbs(sim, result, c->ns));

        if (c->shown)
                json_object_set_new(object, "plan", details_json(sim, c));
        return object;
}

json_t *report_json_result(const struct sim *sim, const struct sim_result *result) {
        const bool bounded = result->bound.ns > 0;
        json_t *candidates = json_array();

        for (uint32_t i = 0; i < result->n_candidates; i++)
                json_array_append_new(candidates, candidate_json(sim, result, &result->candidates[i]));
        return json_pack("{s:s, s:o, s:o, s:i, s:o, s:o, s:o}", "operation",
                         plan_operation_name(sim->options->operation), "bytes", integer(result->bytes), "count",
                         integer(result->count), "root", (int)sim->options->root, "bound_ns",
                         bounded ? json_real(result->bound.ns) : json_null(), "bound_bus_gbs",
                         bounded ? json_real(sim_bus_gbs(sim, result, result->bound.ns)) : json_null(), "candidates",
                         candidates);
}

json_t *report_json_choices(const struct sim *sim) {
        json_t *list = json_array();

        for (uint32_t i = 0; i < sim->n_choices; i++) {
                const struct plan_choice *c = &sim->choices[i];

                json_array_append_new(list,
                                      json_pack("{s:s, s:s, s:o, s:i}", "operation", plan_operation_name(c->operation),
                                                "algorithm", plan_algorithm_name(c->algorithm), "max_bytes",
                                                c->max_bytes < UINT64_MAX ? integer(c->max_bytes) : json_null(),
                                                "widening", (int)c->widening));
        }
        return list;
}

json_t *report_json_verdict(const struct plan *plan, const struct plan_verdict *verdict) {
        return json_pack("{s:s, s:s, s:b, s:s}", "operation", plan_operation_name(plan->operation), "algorithm",
                         plan_algorithm_name(plan->algorithm), "accepted", verdict->condition == PLAN_FAULT_NONE,
                         "text", verdict->text);
}
