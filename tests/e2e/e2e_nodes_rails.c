/* SPDX-License-Identifier: MIT */
/*
 * What rails carry, as the daemons count it, is what the plans say: chunks, credits and bytes of data, call by call,
 * for each node, rail and direction. With striping a plan cannot know the rail, and the sum over all rails is compared.
 *
 * The test knows nothing of the daemons but their constants, and what railmuxctl says.
 */
#include <inttypes.h>
#include <railmux/railmux.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "ring/ring.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "tests/e2e/team.h"
#include "tests/e2e/traffic.h"

#define NODES_MAX TRAFFIC_NODES_MAX
#define RAILS_MAX TRAFFIC_RAILS_MAX
#define STRIPE_KB 4u
#define COUNT_MAX 300001u
#define SETTLE_MS 5000u
#define STEP_MS   20000u

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- the calls --------------------------------------------------------------------------------------------------- */
static const uint32_t operations[] = {
        RING_OP_ALL_REDUCE,     RING_OP_REDUCE,       RING_OP_BROADCAST, RING_OP_ALL_GATHER, RING_OP_ALL_TO_ALL,
        RING_OP_REDUCE_SCATTER, RING_OP_ALL_TO_ALL_V, RING_OP_GATHER,    RING_OP_SCATTER,    RING_OP_BARRIER};
/* Beside their flags, a little more than fits there, some parts of which the last is small, and many parts. */
static const uint32_t counts[] = {1, 13, 1000, 32771, COUNT_MAX};
static const uint32_t types[] = {RMX_INT8, RMX_FLOAT16, RMX_FLOAT32, RMX_FLOAT64, RMX_FLOAT8_E4M3};

struct call {
        uint32_t operation, type, root;
        uint64_t count;
};

static uint32_t n_calls(void) {
        return COUNT_OF(operations) * COUNT_OF(counts);
}

/* The i-th; every type with every operation, and roots on all nodes. */
static struct call call_number(uint32_t i, uint32_t n_ranks) {
        struct call call = {.operation = operations[i % COUNT_OF(operations)],
                            .type = types[(i + i / COUNT_OF(operations)) % COUNT_OF(types)],
                            .count = counts[i / COUNT_OF(operations)]};

        call.root = plan_operation_rooted(call.operation) ? i % n_ranks : 0;
        if (call.operation == RING_OP_BARRIER)
                call.count = 0;
        else if (call.operation != RING_OP_ALL_REDUCE && call.operation != RING_OP_REDUCE &&
                 call.operation != RING_OP_BROADCAST && call.count == COUNT_MAX)
                call.count /= n_ranks; /* of each rank */
        return call;
}

static int call_vector(struct rmx_comm *comm, const struct call *c, void *in, void *out, uint32_t n_ranks) {
        size_t n[TEAM_RANKS_MAX], offsets[TEAM_RANKS_MAX];

        for (uint32_t r = 0; r < n_ranks; r++) {
                n[r] = c->count;
                offsets[r] = r * c->count;
        }
        return rmx_all_to_all_v(comm, in, n, offsets, out, n, offsets, c->type, NULL);
}

static int call_make(struct rmx_comm *comm, const struct call *c, void *in, void *out, uint32_t n_ranks) {
        switch (c->operation) {
        case RING_OP_ALL_REDUCE:
                return rmx_all_reduce(comm, in, out, c->count, c->type, RMX_SUM, NULL);
        case RING_OP_REDUCE:
                return rmx_reduce(comm, in, out, c->count, c->type, RMX_SUM, c->root, NULL);
        case RING_OP_BROADCAST:
                return rmx_broadcast(comm, in, out, c->count, c->type, c->root, NULL);
        case RING_OP_ALL_GATHER:
                return rmx_all_gather(comm, in, out, c->count, c->type, NULL);
        case RING_OP_ALL_TO_ALL:
                return rmx_all_to_all(comm, in, out, c->count, c->type, NULL);
        case RING_OP_REDUCE_SCATTER:
                return rmx_reduce_scatter(comm, in, out, c->count, c->type, RMX_SUM, NULL);
        case RING_OP_ALL_TO_ALL_V:
                return call_vector(comm, c, in, out, n_ranks);
        case RING_OP_GATHER:
                return rmx_gather(comm, in, out, c->count, c->type, c->root, NULL);
        case RING_OP_SCATTER:
                return rmx_scatter(comm, in, out, c->count, c->type, c->root, NULL);
        default:
                return rmx_barrier(comm, NULL);
        }
}

static void make_calls(struct team_rank *rank) {
        size_t bytes = sizeof(double) * (COUNT_MAX + TEAM_RANKS_MAX * 32771u);
        void *in = team_memory(rank, bytes), *out = team_memory(rank, bytes);
        struct rmx_comm *comm = team_join(rank, 0);

        memset(in, 0, bytes);
        for (uint32_t i = 0; i < n_calls(); i++) {
                struct call call = call_number(i, rank->n_ranks);

                team_await_go(rank, i + 1);
                team_must(rank, call_make(comm, &call, in, out, rank->n_ranks), "a call");
                team_step(rank);
        }
        team_await_go(rank, n_calls() + 1);
        team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
}

/* ---- what the daemons say ---------------------------------------------------------------------------------------- */
struct rails {
        struct traffic traffic[RAILS_MAX];
        uint64_t messages_sent[RAILS_MAX], messages_received[RAILS_MAX], retransmitted;
};

static struct rails rails_of(const struct node *node, uint32_t n_rails) {
        json_t *root = node_query(node, "rails"), *row;
        struct rails rails = {0};
        size_t k;

        assert_non_null(root);
        assert_int_equal(json_array_size(json_object_get(root, "rails")), n_rails);
        json_array_foreach(json_object_get(root, "rails"), k, row) {
                rails.traffic[k] = traffic_of(json_object_get(row, "carried"));
                rails.messages_sent[k] = traffic_number(row, "messages_sent");
                rails.messages_received[k] = traffic_number(row, "messages_received");
        }
        json_decref(root);
        root = node_query(node, "routes");
        assert_non_null(root);
        json_array_foreach(json_object_get(root, "routes"), k, row)
                rails.retransmitted += traffic_number(row, "retransmitted");
        json_decref(root);
        return rails;
}

/* Prometheus is told the same. */
static void compare_metrics(const struct node *node, const struct rails *rails, uint32_t n_rails) {
        json_t *root = node_query(node, "metrics"), *row;
        const struct {
                const char *name;
                size_t offset; /* in struct traffic */
        } metrics[] = {
                {"railmux_rail_sent_data_bytes_total", offsetof(struct traffic, data_sent)},
                {"railmux_rail_received_data_bytes_total", offsetof(struct traffic, data_received)},
                {"railmux_rail_sent_chunks_total", offsetof(struct traffic, chunks_sent)},
                {"railmux_rail_received_chunks_total", offsetof(struct traffic, chunks_received)},
        };
        uint32_t found = 0;
        size_t i;

        assert_non_null(root);
        json_array_foreach(json_object_get(root, "metrics"), i, row) {
                const char *name = json_string_value(json_object_get(row, "name"));
                const char *rail = json_string_value(json_object_get(json_object_get(row, "labels"), "rail"));

                for (size_t k = 0; rail && k < COUNT_OF(metrics); k++) {
                        const struct traffic *traffic = &rails->traffic[rail[1] - '0'];
                        uint64_t value;

                        if (strcmp(name, metrics[k].name) != 0)
                                continue;
                        memcpy(&value, (const char *)traffic + metrics[k].offset, sizeof(value));
                        assert_true(json_number_value(json_object_get(row, "value")) == (double)value);
                        found++;
                }
        }
        assert_int_equal(found, COUNT_OF(metrics) * n_rails);
        json_decref(root);
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */
struct world {
        struct node node[NODES_MAX];
        uint32_t n_nodes, n_rails;
        bool striped;
        struct team team;
        struct expected expected;
};

struct equal_wait {
        const struct world *world;
        uint32_t node;
        struct traffic now[RAILS_MAX];
};

static bool is_equal(void *argument) {
        struct equal_wait *w = argument;
        const struct world *world = w->world;

        return traffic_of_comm(&world->node[w->node], world->n_rails, w->now) &&
               traffic_equal(w->now, world->expected.traffic[w->node], world->n_rails, world->striped);
}

static void compare_call(struct world *world, uint32_t i, const struct call *call) {
        for (uint32_t n = 0; n < world->team.n_nodes; n++) {
                struct equal_wait w = {.world = world, .node = n};

                if (proc_await(is_equal, &w, SETTLE_MS))
                        continue;
                traffic_show("counted", w.now, world->n_rails);
                traffic_show("planned", world->expected.traffic[n], world->n_rails);
                fail_msg("%u ranks on %u nodes, call %u (%s of %" PRIu64 " elements of type %u): node %u has carried "
                         "something else",
                         world->team.n_ranks, world->team.n_nodes, i, plan_operation_name(call->operation), call->count,
                         call->type, n);
        }
}

/* The communicator has gone: nothing comes any more. */
static void compare_rails(const struct world *world, const struct rails before[NODES_MAX]) {
        for (uint32_t n = 0; n < world->n_nodes; n++) {
                struct rails after = rails_of(&world->node[n], world->n_rails);
                uint64_t resent;

                compare_metrics(&world->node[n], &after, world->n_rails);
                resent = after.retransmitted - before[n].retransmitted;

                for (uint32_t k = 0; k < world->n_rails; k++) {
                        struct traffic *a = &after.traffic[k];
                        const struct traffic *b = &before[n].traffic[k];

                        a->chunks_sent -= b->chunks_sent;
                        a->credits_sent -= b->credits_sent;
                        a->data_sent -= b->data_sent;
                        a->chunks_received -= b->chunks_received;
                        a->credits_received -= b->credits_received;
                        a->data_received -= b->data_received;
                        /* Each message that was written to a connection was counted, if none died. */
                        if (resent == 0) {
                                assert_int_equal(after.messages_sent[k] - before[n].messages_sent[k],
                                                 a->chunks_sent + a->credits_sent);
                                assert_int_equal(after.messages_received[k] - before[n].messages_received[k],
                                                 a->chunks_received + a->credits_received);
                        }
                }
                if (traffic_equal(after.traffic, world->expected.traffic[n], world->n_rails, world->striped))
                        continue;
                traffic_show("counted", after.traffic, world->n_rails);
                traffic_show("planned", world->expected.traffic[n], world->n_rails);
                fail_msg("%u ranks on %u nodes: the rails of node %u have carried something else than all calls",
                         world->team.n_ranks, world->team.n_nodes, n);
        }
}

static void compare(struct world *world, uint32_t n_nodes, uint32_t n_ranks) {
        struct rails before[NODES_MAX];

        for (uint32_t n = 0; n < world->n_nodes; n++)
                before[n] = rails_of(&world->node[n], world->n_rails);
        team_init(&world->team, world->node, n_nodes, n_ranks);
        expected_init(&world->expected, &world->team, world->n_rails, world->striped ? STRIPE_KB << 10 : 0,
                      PLAN_ALGORITHM_NONE);
        team_start(&world->team, make_calls);
        for (uint32_t i = 0; i < n_calls(); i++) {
                struct call call = call_number(i, n_ranks);

                expected_add(&world->expected, call.operation, call.type, call.root, call.count);
                atomic_store(&world->team.shared->go, i + 1); /* partner: team_await_go */
                team_await_step(&world->team, i + 1, TEAM_ALL, STEP_MS);
                compare_call(world, i, &call);
        }
        atomic_store(&world->team.shared->go, n_calls() + 1); /* partner: team_await_go */
        team_end(&world->team, "calls");
        for (uint32_t n = 0; n < world->n_nodes; n++)
                node_snapshot(&world->node[n]);
        compare_rails(world, before);
        traffic_show("node 0", world->expected.traffic[0], world->n_rails);
        team_cleanup(&world->team);
}

/* ------------------------------------------------------------------------------------------------------------------ */
static void one_rail(void **state) {
        compare(*state, 2, 2);
        compare(*state, 3, 7);
        nodes_stop(((struct world *)*state)->node, NODES_MAX);
}

static void two_rails(void **state) {
        compare(*state, 2, 5);
        compare(*state, 3, 4);
        compare(*state, 4, 8);
        compare(*state, 4, 7);
        nodes_stop(((struct world *)*state)->node, NODES_MAX);
}

static void striped(void **state) {
        compare(*state, 2, 4);
        compare(*state, 4, 6);
        nodes_stop(((struct world *)*state)->node, NODES_MAX);
}

static int setup(void **state, uint32_t n_rails, bool stripe) {
        static const char *const one[] = {"--rail", "r0=127.0.0.1", NULL};
        static const char *const two[] = {"--rail", "r0=127.0.0.1", "--rail", "r1=127.0.0.2", NULL};
        const char *more[8] = {"--config", NULL};
        struct world *world = calloc(1, sizeof(*world));
        char name[32], path[128] = "/tmp/railmux-e2e-rails-XXXXXX";
        FILE *config;
        int fd;

        assert_non_null(world);
        *state = world;
        world->n_nodes = NODES_MAX;
        world->n_rails = n_rails;
        world->striped = stripe;
        fd = mkstemp(path);
        assert_true(fd >= 0);
        config = fdopen(fd, "w");
        assert_non_null(config);
        if (stripe)
                fprintf(config, "peer:\n  stripe: %uK\n", STRIPE_KB);
        else
                fprintf(config, "peer:\n  stripe: off\n");
        fclose(config);
        more[1] = path;
        for (uint32_t i = 0; (n_rails == 1 ? one : two)[i]; i++)
                more[2 + i] = (n_rails == 1 ? one : two)[i];
        for (uint32_t i = 0; i < NODES_MAX; i++) {
                world->node[i].gpus = 4;
                world->node[i].listens = true;
                world->node[i].more = more;
                snprintf(name, sizeof(name), "nodes-rails-%u-%c", n_rails + stripe, (int)('a' + i));
                node_start(&world->node[i], name, false);
                world->node[i].more = NULL;
        }
        unlink(path);
        return 0;
}

static int setup_one(void **state) {
        return setup(state, 1, false);
}

static int setup_two(void **state) {
        return setup(state, 2, false);
}

static int setup_striped(void **state) {
        return setup(state, 2, true);
}

static int teardown(void **state) {
        struct world *world = *state;

        team_cleanup(&world->team);
        nodes_cleanup(world->node, world->n_nodes);
        free(world);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(one_rail, setup_one, teardown),
                cmocka_unit_test_setup_teardown(two_rails, setup_two, teardown),
                cmocka_unit_test_setup_teardown(striped, setup_striped, teardown),
        };

        return cmocka_run_group_tests_name("rails", tests, NULL, NULL);
}
