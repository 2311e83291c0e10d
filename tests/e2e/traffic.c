/* SPDX-License-Identifier: MIT */
#include "tests/e2e/traffic.h"

#include <inttypes.h>
#include <railmux/railmux.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ring/ring.h"
#include "util/type.h"

#define WORKERS_MAX 16u

/* ---- what the plans say ------------------------------------------------------------------------------------------ */
static uint32_t workers(void) {
        cpu_set_t set;
        uint32_t n;

        assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
        n = (uint32_t)CPU_COUNT(&set);
        return n > WORKERS_MAX ? WORKERS_MAX : n;
}

void expected_init(struct expected *e, const struct team *team, uint32_t n_rails, uint32_t stripe_bytes,
                   uint32_t algorithm) {
        struct plan_constants constants;
        struct plan_over over = {.operation = RING_OP_NONE, .algorithm = algorithm};
        uint8_t node[TEAM_RANKS_MAX];
        struct plan_net net;

        *e = (struct expected){.n_ranks = team->n_ranks, .n_rails = n_rails};
        for (uint32_t r = 0; r < team->n_ranks; r++)
                node[r] = (uint8_t)team_node(team, r);
        assert_int_equal(plan_nodes_init(&e->nodes, e->n_ranks, node), PLAN_OK);
        plan_geometry_choose_nodes(e->n_ranks, &e->geometry);
        plan_constants_host(&constants, workers());
        plan_net_host(&net);
        net.n_rails = n_rails;
        net.any_rail = stripe_bytes > 0 && e->geometry.part_bytes >= stripe_bytes;
        over.constants = &constants;
        over.net = &net;
        over.nodes = &e->nodes;
        over.n_ranks = e->n_ranks;
        e->n_choices = plan_choose_nodes(&over, e->choices);
        assert_true(e->n_choices > 0);
}

void expected_add(struct expected *e, uint32_t operation, uint32_t type, uint32_t root, uint64_t count) {
        uint32_t size = (uint32_t)type_size(type);
        uint64_t bytes = operation == RING_OP_BARRIER ? 0 : count * size;
        const struct plan_shape shape = {.count = count,
                                         .element_bytes = size,
                                         .partial_bytes = (uint32_t)type_accumulator_size(type, RMX_SUM),
                                         .root = root};
        const struct plan_choice *choice =
                plan_choice_find(e->choices, e->n_choices, operation, plan_widening(size, shape.partial_bytes), bytes);
        struct plan_load load[TRAFFIC_NODES_MAX * TRAFFIC_RAILS_MAX];
        struct plan plan;

        assert_non_null(choice);
        assert_int_equal(plan_build_nodes(operation, choice->algorithm, e->n_ranks, &e->nodes, &plan), PLAN_OK);
        plan_load_rails(&plan, &e->geometry, &shape, e->n_rails, load);
        for (uint32_t n = 0; n < e->nodes.n_nodes; n++)
                for (uint32_t k = 0; k < e->n_rails; k++) {
                        const struct plan_load *from = &load[n * e->n_rails + k];
                        struct traffic *to = &e->traffic[n][k];

                        to->chunks_sent += from->chunks_out;
                        to->credits_sent += from->credits_out;
                        to->data_sent += from->bytes_out - from->lines_out;
                        to->chunks_received += from->chunks_in;
                        to->credits_received += from->credits_in;
                        to->data_received += from->bytes_in - from->lines_in;
                }
}

/* ---- what the daemons say ---------------------------------------------------------------------------------------- */
uint64_t traffic_number(const json_t *object, const char *key) {
        json_t *value = json_object_get(object, key);

        if (!json_is_integer(value))
                fail_msg("railmuxctl says nothing of %s", key);
        return (uint64_t)json_integer_value(value);
}

struct traffic traffic_of(const json_t *carried) {
        return (struct traffic){traffic_number(carried, "chunks_sent"),      traffic_number(carried, "credits_sent"),
                                traffic_number(carried, "data_sent"),        traffic_number(carried, "chunks_received"),
                                traffic_number(carried, "credits_received"), traffic_number(carried, "data_received")};
}

bool traffic_of_comm(const struct node *node, uint32_t n_rails, struct traffic ret[TRAFFIC_RAILS_MAX]) {
        json_t *root = node_query(node, "comms"), *rows, *carried, *row;
        bool found;
        size_t k;

        assert_non_null(root);
        rows = json_object_get(root, "comms");
        carried = json_object_get(json_array_get(rows, 0), "carried");
        found = json_array_size(rows) == 1 && json_array_size(carried) == n_rails;
        json_array_foreach(carried, k, row) {
                if (found)
                        ret[k] = traffic_of(row);
        }
        json_decref(root);
        return found;
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */
static struct traffic traffic_sum(const struct traffic *traffic, uint32_t n) {
        struct traffic sum = {0};

        for (uint32_t k = 0; k < n; k++) {
                sum.chunks_sent += traffic[k].chunks_sent;
                sum.credits_sent += traffic[k].credits_sent;
                sum.data_sent += traffic[k].data_sent;
                sum.chunks_received += traffic[k].chunks_received;
                sum.credits_received += traffic[k].credits_received;
                sum.data_received += traffic[k].data_received;
        }
        return sum;
}

bool traffic_equal(const struct traffic *a, const struct traffic *b, uint32_t n_rails, bool striped) {
        struct traffic x = traffic_sum(a, n_rails), y = traffic_sum(b, n_rails);

        return striped ? memcmp(&x, &y, sizeof(x)) == 0 : memcmp(a, b, n_rails * sizeof(*a)) == 0;
}

void traffic_show(const char *what, const struct traffic *traffic, uint32_t n_rails) {
        for (uint32_t k = 0; k < n_rails; k++)
                fprintf(stderr,
                        "%s, rail %u: out %" PRIu64 " chunks, %" PRIu64 " credits, %" PRIu64 " bytes; in %" PRIu64
                        ", %" PRIu64 ", %" PRIu64 "\n",
                        what, k, traffic[k].chunks_sent, traffic[k].credits_sent, traffic[k].data_sent,
                        traffic[k].chunks_received, traffic[k].credits_received, traffic[k].data_received);
}
