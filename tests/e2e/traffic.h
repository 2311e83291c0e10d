/* SPDX-License-Identifier: MIT */
#pragma once
/* What a node's rails carry: as its daemon counts it, and as the plans of the calls say. The plans are chosen as the
 * root's daemon does it, from the same constants. Calls fail the running cmocka test. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "plan/cost.h"
#include "plan/nodes.h"
#include "tests/e2e/node.h"
#include "tests/e2e/team.h"

#define TRAFFIC_NODES_MAX 4u
#define TRAFFIC_RAILS_MAX 2u

struct traffic {
        uint64_t chunks_sent, credits_sent, data_sent;
        uint64_t chunks_received, credits_received, data_received;
};

/* Of the calls of a communicator, by plans. */
struct expected {
        struct plan_nodes nodes;
        struct plan_geometry geometry;
        struct plan_choice choices[PLAN_CHOICES_MAX];
        uint32_t n_choices, n_ranks, n_rails;
        struct traffic traffic[TRAFFIC_NODES_MAX][TRAFFIC_RAILS_MAX];
};
/* stripe_bytes: peer.stripe, 0: off. algorithm: plans.rail_phase, PLAN_ALGORITHM_NONE: auto. */
void expected_init(struct expected *e, const struct team *team, uint32_t n_rails, uint32_t stripe_bytes,
                   uint32_t algorithm);
/* One more call, of RMX_SUM if it reduces. */
void expected_add(struct expected *e, uint32_t operation, uint32_t type, uint32_t root, uint64_t count);

/* A number of railmuxctl's, which has to be there. */
uint64_t traffic_number(const json_t *object, const char *key);
/* Its "carried". */
struct traffic traffic_of(const json_t *carried);
/* Of the only communicator that a node has, by rails; false: it has none. */
bool traffic_of_comm(const struct node *node, uint32_t n_rails, struct traffic ret[TRAFFIC_RAILS_MAX]);
/* striped: only what all rails carry together is compared. */
bool traffic_equal(const struct traffic *a, const struct traffic *b, uint32_t n_rails, bool striped);
void traffic_show(const char *what, const struct traffic *traffic, uint32_t n_rails);
