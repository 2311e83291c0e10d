/* SPDX-License-Identifier: MIT */
#pragma once
/* One request looked at: candidates, the choice, and what each would do. */
#include "plan/cost.h"
#include "plan/rails.h"
#include "tools/sim/node.h"
#include "tools/sim/node_cut.h"
#include "tools/sim/options.h"
#include "tools/sim/traffic.h"
#include "topology/topology.h"

struct sim {
        const struct options *options;
        struct topology *topology; /* or NULL */
        struct node_way *ways;     /* with a topology */
        struct node_cuts cuts;     /* the same */
        bool device;               /* ranks are on GPUs, and the choice is what railmuxd has for those */
        bool hops_and_links;       /* the times are those of one_node.h, and not of the cost model: */
        double link_factor;        /*   what links take counts so many times, */
        const char *source;        /*   and this is where that is from; NULL: nothing is known but the links */
        struct plan_constants constants;
        struct plan_net net; /* with options->nodes */
        struct plan_geometry geometry;
        uint32_t n_ranks;
        struct plan_choice choices[PLAN_CHOICES_MAX];
        uint32_t n_choices;
        uint32_t element_bytes, partial_bytes;
};

struct sim_link {             /* of the topology */
        uint64_t forth, back; /* bytes from a to b and from b to a */
};
struct sim_sum { /* of a GPU, over all links that share what it has */
        uint64_t out, in;
        uint64_t bytes_per_second; /* together: as its fastest; 0: unknown, or it has none */
        uint32_t link;             /* one of them, UINT32_MAX: none */
};

struct sim_candidate {
        struct plan plan;
        struct plan_cost cost;
        int hops;
        bool chosen, shown;
        bool may; /* be chosen; else it adds in another order, or needs what GPUs cannot do */
        /* Of those shown: */
        struct traffic *traffic;
        struct sim_link *links; /* by position in the topology, NULL without one */
        struct sim_sum *sums;   /* by rank, the same */
        double link_ns;         /* what the busiest link takes; 0: unknown */
        uint32_t slowest_link;
        double ns;   /* predicted: the cost, but no less than link_ns; or with hops_and_links their sum, if known */
        bool linked; /* the busiest link takes most of it */
};

struct sim_result {
        uint64_t bytes, count;
        uint64_t vector[PLAN_RANKS_MAX]; /* all_to_all_v: as much for each; and no offsets */
        struct node_bound bound;         /* with a topology, if its speeds are known */
        uint32_t n_candidates;
        struct sim_candidate candidates[PLAN_ALGORITHM_COUNT];
};

/* 0; -EINVAL with a sentence in ret_error; -ENOMEM. */
int sim_init(struct sim *sim, const struct options *options, char ret_error[OPTIONS_ERROR_MAX]);
void sim_deinit(struct sim *sim);
/* `bytes` is rounded down to whole elements. -EINVAL if the algorithm asked for does not exist, -ENOMEM. */
int sim_look(const struct sim *sim, uint64_t bytes, struct sim_result *ret_result);
void sim_result_deinit(struct sim_result *result);
/* What its traffic puts on the links of the topology, with `topology`, `ways` and `n_ranks` of the sim. -ENOMEM. */
int sim_put_on_links(const struct sim *sim, struct sim_candidate *candidate);
void sim_candidate_deinit(struct sim_candidate *candidate);
/* What decides a candidate's time: "path", "rank", "workers" or "link". */
const char *sim_limit(const struct sim_candidate *candidate);
/* Bus bandwidth as nccl-tests count it, in GB/s; 0 for a barrier, and if it takes no time. */
double sim_bus_gbs(const struct sim *sim, const struct sim_result *result, double ns);
