/* SPDX-License-Identifier: MIT */
/*
 * plans.rail_phase: all_reduces over TCP rails with each plan that can be asked for. The bits are those of its tree,
 * and the rails carry what this plan puts on them; the others would put something else there.
 *
 * Each node's configuration asks for another one, and is changed while the daemons run: the root's counts.
 */
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

#include "ring/ring.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "tests/e2e/team.h"
#include "tests/e2e/traffic.h"
#include "util/type.h"

#define NODES_MAX TRAFFIC_NODES_MAX
#define N_RAILS   TRAFFIC_RAILS_MAX
#define COUNT_MAX 100003u
#define SETTLE_MS 10000u
#define CALLS_MS  60000u

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
        const char *word;
        uint32_t algorithm;
} phases[] = {
        {"direct", PLAN_HIERARCHICAL},
        {"scatter", PLAN_HIERARCHICAL_SCATTER},
        {"doubling", PLAN_HIERARCHICAL_DOUBLING},
        {"ring", PLAN_HIERARCHICAL_RING},
        {"tree", PLAN_HIERARCHICAL_TREE},
        {"double_tree", PLAN_HIERARCHICAL_DOUBLE_TREE},
};
#define N_PHASES COUNT_OF(phases)

static const uint64_t counts[] = {1, 13, 1001, 32771, COUNT_MAX};
static const uint32_t types[] = {RMX_INT8, RMX_INT64, RMX_BFLOAT16, RMX_FLOAT32, RMX_FLOAT64};

/* ---- what has to come out ---------------------------------------------------------------------------------------- */
/* A value in the accumulator of its type: one of these. */
struct value {
        int64_t i;
        float f;
        double d;
};

static uint64_t mix(uint64_t x) {
        x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
        return x ^ x >> 32;
}

/* Of floats so that almost each addition rounds. */
static struct value value_input(uint32_t type, uint32_t rank, uint64_t i) {
        const uint64_t x = mix(mix(i + 1) + rank);
        struct value value = {0};

        switch (type) {
        case RMX_INT8:
                value.i = (int64_t)(x % 15) - 7;
                break;
        case RMX_INT64:
                value.i = (int64_t)x >> 8;
                break;
        case RMX_BFLOAT16: /* eight bits */
                value.f = (float)((int32_t)(x & 0xff) - 128) / (float)(1u << (x >> 40 & 7));
                break;
        case RMX_FLOAT32:
                value.f = (float)(int32_t)(uint32_t)x / (float)(1u << (x >> 40 & 7));
                break;
        default:
                value.d = (double)((int64_t)x >> 2) / (double)(1u << (x & 7));
                break;
        }
        return value;
}

static struct value value_add(struct value a, struct value b) {
        return (struct value){(int64_t)((uint64_t)a.i + (uint64_t)b.i), a.f + b.f, a.d + b.d};
}

/* As an element, at ret; rounded to the nearest one, of two to that with an even mantissa. */
static void value_store(uint32_t type, struct value value, void *ret) {
        const int8_t byte = (int8_t)value.i;
        uint32_t bits;

        memcpy(&bits, &value.f, sizeof(bits));
        bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        switch (type) {
        case RMX_INT8:
                memcpy(ret, &byte, sizeof(byte));
                break;
        case RMX_INT64:
                memcpy(ret, &value.i, sizeof(value.i));
                break;
        case RMX_BFLOAT16:
                memcpy(ret, &(uint16_t){(uint16_t)bits}, sizeof(uint16_t));
                break;
        case RMX_FLOAT32:
                memcpy(ret, &value.f, sizeof(value.f));
                break;
        default:
                memcpy(ret, &value.d, sizeof(value.d));
                break;
        }
}

/* An element of all ranks, and the order in which it is added up (plan/plan.h). */
struct sum {
        const struct plan *plan;
        uint32_t type;
        uint64_t i, shard;
        struct value node[NODES_MAX]; /* what each node's ranks are, in their order */
        uint32_t n;
};

static void sum_nodes(struct sum *sum) {
        const struct plan_nodes *nodes = sum->plan->nodes;
        bool any[NODES_MAX] = {false};

        for (uint32_t r = 0; r < sum->plan->n_ranks; r++) {
                const uint32_t node = nodes->node[r];
                const struct value value = value_input(sum->type, r, sum->i);

                sum->node[node] = any[node] ? value_add(sum->node[node], value) : value;
                any[node] = true;
        }
}

static struct value sum_row(const struct sum *sum, uint64_t first) {
        struct value value = sum->node[first % sum->n];

        for (uint32_t k = 1; k < sum->n; k++)
                value = value_add(value, sum->node[(first + k) % sum->n]);
        return value;
}

/* Three nodes and four: pairs, after the third has been added to the first. */
static struct value sum_doubling(const struct sum *sum) {
        const struct value *y = sum->node;

        return sum->n == 3 ? value_add(value_add(y[0], y[2]), y[1])
                           : value_add(value_add(y[0], y[1]), value_add(y[2], y[3]));
}

static struct value sum_binary(const struct sum *sum, bool backwards, uint32_t v) {
        struct value value = sum->node[backwards ? sum->n - 1 - v : v];

        for (uint32_t child = 2 * v + 1; child < sum->n && child <= 2 * v + 2; child++)
                value = value_add(value, sum_binary(sum, backwards, child));
        return value;
}

static struct value sum_all(const struct sum *sum) {
        switch (sum->plan->tree) {
        case PLAN_TREE_NODE_ROTATED:
                return sum_row(sum, sum->shard + 1);
        case PLAN_TREE_NODE_DOUBLING:
                return sum_doubling(sum);
        case PLAN_TREE_NODE_BINARY:
                return sum_binary(sum, false, 0);
        case PLAN_TREE_NODE_DOUBLE:
                return sum_binary(sum, sum->shard % 2, 0);
        default: /* NODE_ORDER */
                return sum_row(sum, 0);
        }
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */
/* What the script is told by team_shared.data. */
struct subject {
        struct plan_nodes nodes;
        uint32_t algorithm;
};

static void check(struct team_rank *rank, const struct plan *plan, uint32_t type, uint64_t count, const void *out) {
        const uint32_t size = (uint32_t)type_size(type);
        const uint64_t shard = plan_shard_elements(count, plan->n_shards, size);
        struct sum sum = {.plan = plan, .type = type, .n = plan->nodes->n_nodes};
        char text[128];

        for (uint64_t i = 0; i < count; i++) {
                uint8_t due[8];

                sum.i = i;
                sum.shard = i / shard;
                sum_nodes(&sum);
                value_store(type, sum_all(&sum), due);
                if (memcmp(due, (const uint8_t *)out + i * size, size) == 0)
                        continue;
                snprintf(text, sizeof(text), "%s: element %llu of %llu of type %s has other bits",
                         plan_algorithm_name(plan->algorithm), (unsigned long long)i, (unsigned long long)count,
                         type_name(type));
                team_wrong(rank, text);
        }
}

static void make_calls(struct team_rank *rank) {
        const struct subject *subject = rank->shared->data;
        uint8_t *in = team_memory(rank, COUNT_MAX * sizeof(double)), *out;
        struct rmx_comm *comm = team_join(rank, 0);
        struct plan plan;

        out = team_memory(rank, COUNT_MAX * sizeof(double));
        if (plan_build_nodes(RING_OP_ALL_REDUCE, subject->algorithm, rank->n_ranks, &subject->nodes, &plan))
                team_wrong(rank, "there is no such plan");
        for (size_t t = 0; t < COUNT_OF(types); t++) {
                for (uint64_t i = 0; i < COUNT_MAX; i++)
                        value_store(types[t], value_input(types[t], rank->rank, i), in + i * type_size(types[t]));
                for (size_t c = 0; c < COUNT_OF(counts); c++) {
                        memset(out, 0xa5, COUNT_MAX * sizeof(double));
                        team_must(rank, rmx_all_reduce(comm, in, out, counts[c], types[t], RMX_SUM, NULL), "a call");
                        check(rank, &plan, types[t], counts[c], out);
                }
        }
        team_step(rank);
        team_await_go(rank, 1);
        team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */
struct world {
        struct node node[NODES_MAX];
        char config[NODES_MAX][64];
        struct team team;
        struct expected expected[N_PHASES];
};

/* Node k asks for the k-th one behind `phase`. */
static void world_configure(const struct world *world, size_t phase) {
        for (uint32_t n = 0; n < NODES_MAX; n++) {
                FILE *file = fopen(world->config[n], "we");

                assert_non_null(file);
                fprintf(file, "peer: {stripe: off}\nplans: {rail_phase: %s}\n", phases[(phase + n) % N_PHASES].word);
                assert_int_equal(fclose(file), 0);
        }
}

static void world_reload(const struct world *world) {
        for (uint32_t n = 0; n < NODES_MAX; n++) {
                const char *argv[] = {node_program("railmuxctl"), "--control", world->node[n].control, "reload", NULL};

                assert_int_equal(proc_run(argv, 30000, NULL), 0);
        }
}

static bool carries_alike(const struct expected *a, const struct expected *b) {
        for (uint32_t n = 0; n < a->nodes.n_nodes; n++)
                if (!traffic_equal(a->traffic[n], b->traffic[n], N_RAILS, false))
                        return false;
        return true;
}

/* Or else what rails carry would not tell them apart. */
static void expect_all(struct world *world) {
        for (size_t p = 0; p < N_PHASES; p++) {
                struct expected *e = &world->expected[p];

                expected_init(e, &world->team, N_RAILS, 0, phases[p].algorithm);
                for (size_t k = 0; k < COUNT_OF(types) * COUNT_OF(counts); k++)
                        expected_add(e, RING_OP_ALL_REDUCE, types[k / COUNT_OF(counts)], 0,
                                     counts[k % COUNT_OF(counts)]);
                for (size_t other = 0; other < p; other++)
                        if (carries_alike(&world->expected[other], e))
                                fail_msg("%u ranks on %u nodes: %s and %s carry the same", e->n_ranks, e->nodes.n_nodes,
                                         phases[other].word, phases[p].word);
        }
}

struct equal_wait {
        const struct node *node;
        const struct traffic *due;
        struct traffic now[N_RAILS];
};

static bool is_equal(void *argument) {
        struct equal_wait *w = argument;

        return traffic_of_comm(w->node, N_RAILS, w->now) && traffic_equal(w->now, w->due, N_RAILS, false);
}

static void compare(struct world *world, size_t phase) {
        const struct expected *e = &world->expected[phase];

        for (uint32_t n = 0; n < e->nodes.n_nodes; n++) {
                struct equal_wait w = {.node = &world->node[n], .due = e->traffic[n]};

                if (proc_await(is_equal, &w, SETTLE_MS))
                        continue;
                traffic_show("counted", w.now, N_RAILS);
                traffic_show("planned", w.due, N_RAILS);
                fail_msg("%s, %u ranks on %u nodes: node %u has carried something else", phases[phase].word, e->n_ranks,
                         e->nodes.n_nodes, n);
        }
}

static void run(struct world *world, size_t phase, uint32_t n_nodes, uint32_t n_ranks) {
        struct subject subject = {.algorithm = phases[phase].algorithm};

        team_init(&world->team, world->node, n_nodes, n_ranks);
        expect_all(world);
        subject.nodes = world->expected[phase].nodes;
        world->team.shared->data = &subject;
        team_start(&world->team, make_calls);
        team_await_step(&world->team, 1, TEAM_ALL, CALLS_MS);
        compare(world, phase);
        atomic_store(&world->team.shared->go, 1); /* partner: team_await_go */
        team_end(&world->team, phases[phase].word);
        team_cleanup(&world->team);
        for (uint32_t n = 0; n < NODES_MAX; n++)
                node_snapshot(&world->node[n]); /* its communicator has gone */
}

static void test_phases(void **state) {
        struct world *world = *state;

        for (size_t p = 0; p < N_PHASES; p++) {
                world_configure(world, p);
                world_reload(world);
                run(world, p, 3, 3);
                run(world, p, 3, 5);
                run(world, p, 4, 8);
        }
        nodes_stop(world->node, NODES_MAX);
}

static int setup(void **state) {
        struct world *world = calloc(1, sizeof(*world));

        assert_non_null(world);
        *state = world;
        for (uint32_t n = 0; n < NODES_MAX; n++) {
                int fd;

                snprintf(world->config[n], sizeof(world->config[n]), "%s", "/tmp/railmux-e2e-phases-XXXXXX");
                fd = mkstemp(world->config[n]);
                assert_true(fd >= 0);
                close(fd);
        }
        world_configure(world, N_PHASES - 1);
        for (uint32_t n = 0; n < NODES_MAX; n++) {
                const char *const more[] = {"--config", world->config[n], "--rail", "r0=127.0.0.1",
                                            "--rail",   "r1=127.0.0.2",   NULL};
                char name[32];

                world->node[n].gpus = 4;
                world->node[n].listens = true;
                world->node[n].more = more;
                snprintf(name, sizeof(name), "nodes-phases-%c", (int)('a' + n));
                node_start(&world->node[n], name, false);
                world->node[n].more = NULL;
        }
        return 0;
}

static int teardown(void **state) {
        struct world *world = *state;

        team_cleanup(&world->team);
        nodes_cleanup(world->node, NODES_MAX);
        for (uint32_t n = 0; n < NODES_MAX; n++)
                unlink(world->config[n]);
        free(world);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_phases, setup, teardown),
        };

        return cmocka_run_group_tests_name("phases", tests, NULL, NULL);
}
