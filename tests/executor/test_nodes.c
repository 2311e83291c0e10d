/* SPDX-License-Identifier: MIT */
/* Communicators over several nodes, an executor for each: results, sends and receives, and that nobody sleeps over what
 * has come. */
#include "tests/cmocka_all.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster.h"
#include "railmux/railmux.h"
#include "util/clock.h"

static struct cluster cluster;

static struct cluster *start(const struct cluster_placement *placement) {
        cluster_start(&cluster, placement);
        return &cluster;
}

static void collectives(void **state) {
        static const uint32_t ops[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE,         RING_OP_BROADCAST,
                                       RING_OP_ALL_GATHER, RING_OP_REDUCE_SCATTER, RING_OP_ALL_TO_ALL,
                                       RING_OP_GATHER,     RING_OP_SCATTER,        RING_OP_BARRIER};
        static const uint64_t counts[] = {0, 1, 3, 17, 1023, 15001};

        (void)state;
        for (size_t p = 0; p < n_cluster_placements; p++) {
                struct fixture *f = &start(&cluster_placements[p])->f;

                for (uint32_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++)
                        for (uint32_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                                uint32_t q[FIXTURE_RANKS_MAX];
                                bool rooted = plan_operation_rooted(ops[o]);
                                uint32_t root = rooted ? (o + c) % f->n_ranks : 0;

                                cluster_fill(f, c);
                                cluster_ring(f, ops[o], counts[c], root, q);
                                cluster_wait(f, q, CLUSTER_OK);
                                cluster_check(f, ops[o], counts[c], root, c);
                        }
                /* each node has marked what its ranks were told */
                for (uint32_t i = 0; i < cluster.n_nodes; i++)
                        assert_int_equal(atomic_load(&cluster.nodes[i].comm->marks->final), f->ranks[0].sequence);
                cluster_deinit(&cluster);
        }
}

/* Every operation that has such a plan, on one communicator. Returns how many have. */
static uint32_t run_algorithm(uint32_t algorithm, const struct cluster_placement *placement) {
        static const uint32_t ops[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE_SCATTER, RING_OP_ALL_GATHER,
                                       RING_OP_BROADCAST,  RING_OP_REDUCE,         RING_OP_ALL_TO_ALL};
        struct plan_choice choices[sizeof(ops) / sizeof(ops[0])];
        struct fixture *f = &cluster.f;
        struct plan_nodes nodes;
        uint32_t n = 0;

        assert_int_equal(plan_nodes_init(&nodes, placement->n_ranks, placement->node), 0);
        for (uint32_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) {
                struct plan plan;

                if (plan_build_nodes(ops[o], algorithm, placement->n_ranks, &nodes, &plan) == PLAN_OK)
                        choices[n++] = (struct plan_choice){ops[o], algorithm, UINT64_MAX, 0};
        }
        assert_true(n > 0);
        cluster_init(&cluster, placement->n_ranks, placement->node, CLUSTER_BYTES);
        cluster.choices = choices;
        cluster.n_choices = n;
        for (uint32_t i = 0; i < cluster.n_nodes; i++)
                cluster_attach(&cluster, i);
        cluster_carry(&cluster);
        for (uint32_t k = 0; k < 4 * n; k++) {
                static const uint64_t counts[] = {0, 5, 1027, 15001};
                uint32_t q[FIXTURE_RANKS_MAX], op = choices[k / 4].operation;
                uint32_t root = plan_operation_rooted(op) ? k % f->n_ranks : 0;

                cluster_fill(f, k);
                cluster_ring(f, op, counts[k % 4], root, q);
                cluster_wait(f, q, CLUSTER_OK);
                cluster_check(f, op, counts[k % 4], root, k);
        }
        cluster_deinit(&cluster);
        return n;
}

/* Ranks that send little are the first to ring on one node, and one that sends much on the other: all the same the
 * nodes take one plan. */
static void vectors(void **state) {
        static const struct plan_choice choices[] = {{RING_OP_ALL_TO_ALL_V, PLAN_DIRECT, 64, 0},
                                                     {RING_OP_ALL_TO_ALL_V, PLAN_HIERARCHICAL, UINT64_MAX, 0}};
        static const uint32_t first_to_last[] = {0, 3, 1, 2}; /* of node 0, 1, 1, 0 */
        const struct cluster_placement *placement = &cluster_placements[2];
        struct fixture *f = &cluster.f;
        uint32_t q[4];

        (void)state;
        cluster_init(&cluster, placement->n_ranks, placement->node, CLUSTER_BYTES);
        cluster.choices = choices;
        cluster.n_choices = 2;
        for (uint32_t i = 0; i < cluster.n_nodes; i++)
                cluster_attach(&cluster, i);
        cluster_carry(&cluster);
        cluster_fill(f, 1);
        for (uint32_t k = 0; k < 4; k++) {
                const uint32_t r = first_to_last[k];
                struct ring_request request = fixture_request(f, r, RING_OP_ALL_TO_ALL_V, RMX_INT32, 0, 0, 0);
                uint64_t words[4][4]; /* sent, from where, received, to where */

                for (uint32_t p = 0; p < 4; p++) {
                        words[0][p] = r ? 300 + p : 1 + p;
                        words[1][p] = 1000 * p;
                        words[2][p] = p ? 300 + r : 1 + r;
                        words[3][p] = 1000 * p;
                }
                fixture_argument(f, r, words, sizeof(words), RING_ARGUMENT_ALIGN);
                request.word[RING_W_ARGUMENT] = RING_ARGUMENT_ALIGN;
                q[r] = fixture_ring(f, r, &request);
                if (k < 2)
                        while (!fixture_latched(f, r, q[r]))
                                sched_yield();
        }
        cluster_wait(f, q, CLUSTER_OK);
        for (uint32_t r = 0; r < 4; r++)
                for (uint32_t p = 0; p < 4; p++)
                        for (uint32_t i = 0; i < 1000; i++)
                                assert_int_equal(cluster_out(f, r)[1000 * p + i],
                                                 i < (p ? 300 + r : 1 + r) ? cluster_value(p, 1000 * r + i, 1)
                                                                           : (int32_t)0xa5a5a5a5);
        cluster_deinit(&cluster);
}

/* Plans that work in place on the node and with channels between nodes. */
static void hierarchical(void **state) {
        (void)state;
        for (size_t p = 0; p < n_cluster_placements; p++)
                assert_int_equal(run_algorithm(PLAN_HIERARCHICAL, &cluster_placements[p]), 6);
}

/* Two trees of nodes: of as many nodes as it takes for inner ones beside the roots; ranks that carry several shards. */
static void double_tree(void **state) {
        static const struct cluster_placement deep[] = {
                {5, {0, 1, 2, 3, 4}}, {8, {0, 1, 2, 3, 4, 4, 4, 0}}, {8, {7, 6, 5, 4, 3, 2, 1, 0}}};

        (void)state;
        for (size_t p = 0; p < n_cluster_placements; p++)
                assert_int_equal(run_algorithm(PLAN_HIERARCHICAL_DOUBLE_TREE, &cluster_placements[p]), 3);
        for (size_t p = 0; p < sizeof(deep) / sizeof(deep[0]); p++)
                assert_int_equal(run_algorithm(PLAN_HIERARCHICAL_DOUBLE_TREE, &deep[p]), 3);
}

/* Types have the plans that are for how long their partial sums are, on all nodes. */
static void widenings(void **state) {
        static const struct plan_choice choices[] = {
                {RING_OP_ALL_REDUCE, PLAN_TREE, UINT64_MAX, 1},     {RING_OP_ALL_REDUCE, PLAN_RING, 64, 2},
                {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, UINT64_MAX, 2}, {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, UINT64_MAX, 4},
                {RING_OP_ALL_REDUCE, PLAN_RING, UINT64_MAX, 8},     {RING_OP_BROADCAST, PLAN_TREE, UINT64_MAX, 0},
        };
        static const struct {
                uint32_t operation, type, redop, bytes, algorithm;
        } calls[] = {
                {RING_OP_ALL_REDUCE, RMX_INT8, RMX_SUM, 1, PLAN_TREE},
                {RING_OP_ALL_REDUCE, RMX_FLOAT32, RMX_SUM, 4, PLAN_TREE},
                {RING_OP_ALL_REDUCE, RMX_FLOAT64, RMX_AVG, 8, PLAN_TREE},
                {RING_OP_ALL_REDUCE, RMX_BFLOAT16, RMX_SUM, 2, PLAN_ONE_SHOT},
                {RING_OP_ALL_REDUCE, RMX_FLOAT16, RMX_MAX, 2, PLAN_ONE_SHOT},
                {RING_OP_ALL_REDUCE, RMX_INT32, RMX_AVG, 4, PLAN_ONE_SHOT},
                {RING_OP_ALL_REDUCE, RMX_FLOAT8_E4M3, RMX_SUM, 1, PLAN_TWO_SHOT},
                {RING_OP_ALL_REDUCE, RMX_INT8, RMX_AVG, 1, PLAN_RING},
                {RING_OP_BROADCAST, RMX_BFLOAT16, RMX_SUM, 2, PLAN_TREE},
        };
        struct fixture *f = &cluster.f;

        (void)state;
        cluster_init(&cluster, 4, cluster_placements[2].node, CLUSTER_BYTES);
        cluster.choices = choices;
        cluster.n_choices = sizeof(choices) / sizeof(choices[0]);
        for (uint32_t i = 0; i < cluster.n_nodes; i++)
                cluster_attach(&cluster, i);
        cluster_carry(&cluster);
        for (size_t k = 0; k < sizeof(calls) / sizeof(calls[0]); k++) {
                uint32_t q[FIXTURE_RANKS_MAX];

                for (uint32_t r = 0; r < f->n_ranks; r++) {
                        struct ring_request request = fixture_request(f, r, calls[k].operation, calls[k].type,
                                                                      calls[k].redop, 4096 / calls[k].bytes, 0);

                        memset(f->ranks[r].buffer, 0, CLUSTER_BYTES);
                        q[r] = fixture_ring(f, r, &request);
                }
                cluster_wait(f, q, CLUSTER_OK);
                for (uint32_t i = 0; i < cluster.n_nodes; i++) {
                        struct comm *comm = cluster.nodes[i].comm;
                        const struct comm_op *op;

                        pthread_mutex_lock(&comm->mutex);
                        op = &comm->ops[f->ranks[0].sequence & (comm->window - 1)];
                        assert_int_equal(op->sequence, f->ranks[0].sequence);
                        assert_int_equal(op->plan->algorithm, calls[k].algorithm);
                        pthread_mutex_unlock(&comm->mutex);
                }
        }
        cluster_deinit(&cluster);
}

/* ---- sends and receives ------------------------------------------------------------------------------------------ */
/* No send is done before its receive. */
static void messages(void **state) {
        static const uint64_t counts[] = {0, 1, 14, 15, 1023, 50001};
        struct cluster *c = start(&cluster_placements[2]); /* 0 and 2 here, 1 and 3 there */
        struct fixture *f = &c->f;

        (void)state;
        for (uint32_t k = 0; k < 4 * sizeof(counts) / sizeof(counts[0]); k++) {
                uint64_t count = counts[k / 4];
                uint32_t to = 1 + k % 2 * 2, s = k / 2 + 1, a, b, status; /* in turn to both ranks over there */
                struct ring_group_entry send = cluster_entry(RING_OP_SEND, to, s, count, 5);
                struct ring_group_entry recv = cluster_entry(RING_OP_RECV, 0, s, count, 0);
                struct comm_wait wait;

                cluster_fill(f, k);
                a = fixture_ring_single(f, 0, &send);
                while (!cluster_oldest_wait(c->nodes[0].comm, &wait))
                        sched_yield();
                assert_int_equal(ring_producer_poll(&f->ranks[0].producer, a, &status), RING_E_AGAIN);
                b = fixture_ring_single(f, to, &recv);
                assert_int_equal(fixture_wait(f, 0, a), CLUSTER_OK);
                assert_int_equal(fixture_wait(f, to, b), CLUSTER_OK);
                for (uint64_t i = 0; i < count; i++)
                        assert_int_equal(cluster_out(f, to)[i], cluster_value(0, 5 + i, k));
                assert_int_equal(cluster_out(f, to)[count], (int32_t)0xa5a5a5a5);
        }
        cluster_deinit(c);
}

/* Everybody to everybody, itself included, in groups and together with a collective. */
static void groups(void **state) {
        (void)state;
        for (size_t p = 0; p < n_cluster_placements; p++) {
                struct cluster *c = start(&cluster_placements[p]);
                struct fixture *f = &c->f;
                uint32_t n = f->n_ranks;

                for (uint32_t round = 1; round <= 30; round++) {
                        uint32_t q[FIXTURE_RANKS_MAX], barrier[FIXTURE_RANKS_MAX], room = CLUSTER_HALF / 4 / n;

                        cluster_fill(f, round);
                        for (uint32_t r = 0; r < n; r++) {
                                struct ring_group_entry entries[2 * FIXTURE_RANKS_MAX];

                                for (uint32_t i = 0; i < n; i++) {
                                        uint32_t peer = (i + round + r) % n; /* some order */
                                        uint64_t sent = (round * 997 + r * 31 + peer * 7) % (room - 1);
                                        uint64_t received = (round * 997 + peer * 31 + r * 7) % (room - 1);

                                        entries[2 * i] =
                                                cluster_entry(RING_OP_RECV, peer, round, received, peer * room);
                                        entries[2 * i + 1] =
                                                cluster_entry(RING_OP_SEND, peer, round, sent, peer * room);
                                }
                                q[r] = fixture_ring_group(f, r, entries, 2 * n, RING_ARGUMENT_ALIGN);
                        }
                        cluster_ring(f, RING_OP_BARRIER, 0, 0, barrier);
                        cluster_wait(f, q, CLUSTER_OK);
                        cluster_wait(f, barrier, CLUSTER_OK);
                        for (uint32_t r = 0; r < n; r++)
                                for (uint32_t peer = 0; peer < n; peer++) {
                                        uint64_t received = (round * 997 + peer * 31 + r * 7) % (room - 1);

                                        for (uint64_t i = 0; i < received; i++)
                                                assert_int_equal(cluster_out(f, r)[peer * room + i],
                                                                 cluster_value(peer, r * room + i, round));
                                        assert_int_equal(cluster_out(f, r)[peer * room + received],
                                                         (int32_t)0xa5a5a5a5);
                                }
                }
                cluster_deinit(c);
        }
}

/* ---- sleeping ---------------------------------------------------------------------------------------------------- */
/* Rounds that begin with everybody asleep, or some, or in the middle of it. A wake-up that is lost is waited for until
 * fixture_wait gives up. */
static void nobody_oversleeps(void **state) {
        struct cluster *c = start(&cluster_placements[0]);
        uint64_t end_ns = clock_now_ns() + UINT64_C(30000000000); /* on a machine that has other things to do */
        struct fixture *f = &c->f;
        unsigned int seed = 1;
        uint32_t sleepers = 0;

        (void)state;
        for (uint32_t round = 0; round < 10000 && (round < 1000 || clock_now_ns() < end_ns); round++) {
                uint32_t q[2], first = (uint32_t)rand_r(&seed) % 2, how = (uint32_t)rand_r(&seed) % 4;
                struct ring_request request;

                request = fixture_request(f, first, RING_OP_BARRIER, RMX_INT32, 0, 0, 0);
                q[first] = fixture_ring(f, first, &request);
                if (how == 0) /* the other one finds everything asleep */
                        cluster_wait_asleep(c, !first);
                if (how <= 1)
                        cluster_wait_asleep(c, first);
                if (how == 2)
                        for (int spin = rand_r(&seed) % 100; spin > 0; spin--)
                                sched_yield();
                sleepers += how <= 1;
                request = fixture_request(f, !first, RING_OP_BARRIER, RMX_INT32, 0, 0, 0);
                q[!first] = fixture_ring(f, !first, &request);
                cluster_wait(f, q, CLUSTER_OK);
        }
        assert_true(sleepers > 100);
        assert_true(atomic_load(&c->n_waits) > 100);
        assert_true(atomic_load(&c->nodes[0].executor.counters.wakes) > 100);
        cluster_deinit(c);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(collectives),       cmocka_unit_test(hierarchical), cmocka_unit_test(double_tree),
                cmocka_unit_test(messages),          cmocka_unit_test(widenings),    cmocka_unit_test(groups),
                cmocka_unit_test(nobody_oversleeps), cmocka_unit_test(vectors),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
