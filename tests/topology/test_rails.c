/* SPDX-License-Identifier: MIT */
/* Rails of every fixture, and of graphs that are hard on the rule. */
#include <stdlib.h>
#include <string.h>

#include "tests/topology/fixtures.h"
#include "topology/rails.h"

static struct topology_rails *rails_of(const struct topology *topology) {
        struct topology_rails *rails = NULL, *again = NULL;

        assert_int_equal(topology_rails_new(topology, &rails), 0);
        assert_int_equal(topology_rails_new(topology, &again), 0);
        assert_memory_equal(rails, again, sizeof(*rails));
        free(again);
        return rails;
}

static void test_fixtures(void **state) {
        static const struct {
                const char *name;
                uint32_t n_rails, first_nic;
                const char *map;  /* GPU -> rail */
                const char *gpus; /* rail -> GPUs */
        } cases[] = {
                {"mi300x-8x8", 8, 0, "01234567", "0 1 2 3 4 5 6 7 "},
                {"mi300x-8x4", 4, 0, "00112233", "01 23 45 67 "},
                {"mi300x-8x0", 0, 0, "--------", ""},
                {"h200-8x8", 8, 0, "01234567", "0 1 2 3 4 5 6 7 "},
                {"soft-roce", 2, 0, "01010101", "0246 1357 "},
                /* the slow one is none; four GPUs have one each, and then each a second one */
                {"more-nics", 8, 1, "0145", "0 1 0 1 2 3 2 3 "},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct topology *t = fixture_load(cases[i].name);
                struct topology_rails *rails = rails_of(t);
                char map[TOPOLOGY_GPUS_MAX + 1] = "", gpus[256] = "";
                size_t n = 0;

                assert_int_equal(rails->n_rails, cases[i].n_rails);
                assert_int_equal(rails->n_gpus, strlen(cases[i].map));
                for (uint32_t g = 0; g < rails->n_gpus; g++) {
                        assert_int_equal(t->nodes[rails->map[g].gpu].index, g);
                        assert_int_equal(topology_rail_of(rails, rails->map[g].gpu), rails->map[g].rail);
                        map[g] = rails->map[g].rail == TOPOLOGY_NONE ? '-' : (char)('0' + rails->map[g].rail);
                }
                assert_string_equal(map, cases[i].map);
                for (uint32_t r = 0; r < rails->n_rails; r++) {
                        assert_int_equal(t->nodes[rails->rails[r].nic].kind, TOPOLOGY_NIC);
                        assert_int_equal(t->nodes[rails->rails[r].nic].index, cases[i].first_nic + r);
                        assert_int_equal(rails->rails[r].bytes_per_second, topology_nic_speed(t, rails->rails[r].nic));
                        for (uint32_t k = 0; k < rails->rails[r].n_gpus; k++)
                                gpus[n++] = (char)('0' + t->nodes[rails->rails[r].gpus[k]].index);
                        gpus[n++] = ' ';
                }
                assert_string_equal(gpus, cases[i].gpus);
                free(rails);
                topology_free(t);
        }
}

/* In which order NICs have to be written; "": in none. */
static void test_in_turn(void **state) {
        static const struct {
                const char *name, *order;
        } cases[] = {
                {"mi300x-8x8", "01234567"}, {"mi300x-8x4", ""}, /* neighbours share a NIC */
                {"mi300x-8x0", ""},         {"h200-8x8", "01234567"}, {"soft-roce", "01"}, {"more-nics", "01452367"},
        };
        struct topology_rails crossed = {.n_rails = 3, .n_gpus = 6};
        uint32_t order[TOPOLOGY_RAILS_MAX];

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct topology *t = fixture_load(cases[i].name);
                struct topology_rails *rails = rails_of(t);
                char text[TOPOLOGY_RAILS_MAX + 1] = "";

                if (topology_rails_in_turn(rails, order))
                        for (uint32_t r = 0; r < rails->n_rails; r++)
                                text[r] = (char)('0' + order[r]);
                assert_string_equal(text, cases[i].order);
                free(rails);
                topology_free(t);
        }
        for (uint32_t i = 0; i < crossed.n_gpus; i++)
                crossed.map[i].rail = 2 - i % 3;
        assert_true(topology_rails_in_turn(&crossed, order));
        assert_true(order[0] == 2 && order[1] == 1 && order[2] == 0);
        crossed.map[5].rail = 1;
        assert_false(topology_rails_in_turn(&crossed, order));
}

static uint32_t add(struct topology *t, uint32_t kind, uint32_t index, uint32_t numa, const char *rdma) {
        struct topology_node node = {.kind = kind, .index = index, .numa = numa};
        uint32_t position;

        snprintf(node.rdma, sizeof(node.rdma), "%s", rdma);
        snprintf(node.netdev, sizeof(node.netdev), "%s", kind == TOPOLOGY_NIC ? "eth" : "");
        assert_int_equal(topology_add_node(t, &node, &position), 0);
        return position;
}

static void join(struct topology *t, uint32_t a, uint32_t b, uint32_t kind, uint64_t speed) {
        struct topology_link link = {.a = a, .b = b, .kind = kind, .bytes_per_second = speed};

        assert_int_equal(topology_add_link(t, &link), 0);
}

/* Three NICs on one socket, one on the other: even shares, near ones first. GPUs numbered against their positions. */
static void test_uneven(void **state) {
        static const uint32_t expected[8] = {0, 1, 2, 0, 3, 3, 1, 2};
        struct topology *t = NULL;
        struct topology_rails *rails;
        uint32_t numa[2];

        (void)state;
        assert_int_equal(topology_new(&t), 0);
        for (uint32_t i = 0; i < 2; i++)
                numa[i] = add(t, TOPOLOGY_NUMA, i, TOPOLOGY_NONE, "");
        for (uint32_t i = 8; i-- > 0;)
                add(t, TOPOLOGY_GPU, i, numa[i / 4], "");
        for (uint32_t i = 0; i < 4; i++)
                add(t, TOPOLOGY_NIC, i, numa[i / 3], "r");
        rails = rails_of(t);
        assert_int_equal(rails->n_rails, 4);
        for (uint32_t i = 0; i < 8; i++) {
                assert_int_equal(t->nodes[rails->map[i].gpu].index, i);
                assert_int_equal(rails->map[i].rail, expected[i]);
        }
        for (uint32_t r = 0; r < 4; r++)
                assert_int_equal(rails->rails[r].n_gpus, 2);
        free(rails);
        topology_free(t);
}

/* More NICs than GPUs, each beside one of two: the further ones are in the places of that GPU's further rails. */
static void test_further(void **state) {
        static const struct {
                uint32_t n, numa[5], order[5];
        } cases[] = {
                {4, {1, 0, 1, 0}, {1, 0, 3, 2}},
                {4, {0, 1, 1, 0}, {0, 1, 3, 2}},
                {5, {1, 1, 0, 1, 0}, {2, 0, 4, 1, 3}}, /* GPU 1 has no place for a third */
                {3, {0, 1, 1}, {0, 1, 2}},             /* nor for a second */
        };
        uint32_t order[TOPOLOGY_RAILS_MAX];

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct topology *t = NULL;
                struct topology_rails *rails;
                uint32_t numa[2];

                assert_int_equal(topology_new(&t), 0);
                for (uint32_t k = 0; k < 2; k++)
                        numa[k] = add(t, TOPOLOGY_NUMA, k, TOPOLOGY_NONE, "");
                for (uint32_t k = 0; k < 2; k++)
                        add(t, TOPOLOGY_GPU, k, numa[k], "");
                for (uint32_t k = 0; k < cases[i].n; k++)
                        add(t, TOPOLOGY_NIC, k, numa[cases[i].numa[k]], "r");
                rails = rails_of(t);
                assert_int_equal(rails->n_rails, cases[i].n);
                assert_true(topology_rails_in_turn(rails, order));
                assert_memory_equal(order, cases[i].order, cases[i].n * sizeof(order[0]));
                free(rails);
                topology_free(t);
        }
}

/* The nearer of two on the same socket: below the same switch, below the same root, fewer links. */
static void test_near(void **state) {
        struct topology *t = NULL;
        struct topology_rails *rails;
        uint32_t numa, root[2], outer, inner, gpu[4], nic[4];

        (void)state;
        assert_int_equal(topology_new(&t), 0);
        numa = add(t, TOPOLOGY_NUMA, 0, TOPOLOGY_NONE, "");
        for (uint32_t i = 0; i < 2; i++) {
                root[i] = add(t, TOPOLOGY_ROOT, i, numa, "");
                join(t, numa, root[i], TOPOLOGY_LINK_LOCAL, 0);
        }
        outer = add(t, TOPOLOGY_SWITCH, 0, numa, "");
        inner = add(t, TOPOLOGY_SWITCH, 1, numa, "");
        join(t, root[1], outer, TOPOLOGY_LINK_PCI, 1);
        join(t, outer, inner, TOPOLOGY_LINK_PCI, 1);
        for (uint32_t i = 0; i < 4; i++) {
                gpu[i] = add(t, TOPOLOGY_GPU, i, numa, "");
                nic[i] = add(t, TOPOLOGY_NIC, i, numa, "r");
        }
        /* GPU 0 and NIC 3: the inner switch. GPU 1 and NIC 2: the outer. GPU 2 and NIC 0: root 0. The rest: the socket.
         */
        join(t, inner, gpu[0], TOPOLOGY_LINK_PCI, 1);
        join(t, inner, nic[3], TOPOLOGY_LINK_PCI, 1);
        join(t, outer, gpu[1], TOPOLOGY_LINK_PCI, 1);
        join(t, outer, nic[2], TOPOLOGY_LINK_PCI, 1);
        join(t, root[0], gpu[2], TOPOLOGY_LINK_PCI, 1);
        join(t, root[0], nic[0], TOPOLOGY_LINK_PCI, 1);
        join(t, numa, gpu[3], TOPOLOGY_LINK_PCI, 1);
        join(t, numa, nic[1], TOPOLOGY_LINK_PCI, 1);
        rails = rails_of(t);
        assert_int_equal(rails->n_rails, 4);
        assert_int_equal(rails->map[0].rail, 3);
        assert_int_equal(rails->map[1].rail, 2);
        assert_int_equal(rails->map[2].rail, 0);
        assert_int_equal(rails->map[3].rail, 1);
        free(rails);
        topology_free(t);
}

/* RDMA goes before the network, the fast before the slow; a speed that nobody knows counts as good. */
static void test_choice(void **state) {
        static const struct {
                const char *rdma;
                uint64_t speed;
        } nics[] = {{"", 100}, {"r", 10}, {"r", 40}, {"r", 0}, {"r", 20}, {"r", 19}};
        static const uint32_t chosen[] = {2, 3, 4};
        struct topology *t = NULL;
        struct topology_rails *rails;
        uint32_t network;

        (void)state;
        assert_int_equal(topology_new(&t), 0);
        network = add(t, TOPOLOGY_NETWORK, 0, TOPOLOGY_NONE, "");
        rails = rails_of(t); /* nothing at all */
        assert_int_equal(rails->n_rails, 0);
        assert_int_equal(rails->n_gpus, 0);
        free(rails);
        for (uint32_t i = 0; i < sizeof(nics) / sizeof(nics[0]); i++)
                join(t, network, add(t, TOPOLOGY_NIC, i, TOPOLOGY_NONE, nics[i].rdma), TOPOLOGY_LINK_PORT,
                     nics[i].speed);
        rails = rails_of(t);
        assert_int_equal(rails->n_rails, 3);
        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(t->nodes[rails->rails[i].nic].index, chosen[i]);
                assert_int_equal(rails->rails[i].n_gpus, 0); /* there are none */
        }
        free(rails);
        for (uint32_t i = 0; i < t->n_nodes; i++)
                t->nodes[i].rdma[0] = '\0';
        rails = rails_of(t); /* without RDMA: the fast one, and the one that nobody knows */
        assert_int_equal(rails->n_rails, 2);
        assert_int_equal(t->nodes[rails->rails[0].nic].index, 0);
        assert_int_equal(t->nodes[rails->rails[1].nic].index, 3);
        assert_int_equal(topology_rail_of(rails, 0), TOPOLOGY_NONE);
        free(rails);
        t->nodes[1].netdev[0] = '\0';
        rails = rails_of(t); /* one without a name is no longer among them */
        assert_int_equal(rails->n_rails, 3);
        assert_int_equal(t->nodes[rails->rails[0].nic].index, 2);
        free(rails);
        for (uint32_t i = 0; i < t->n_nodes; i++)
                t->nodes[i].netdev[0] = '\0';
        rails = rails_of(t); /* unless none has one */
        assert_int_equal(rails->n_rails, 2);
        assert_int_equal(t->nodes[rails->rails[0].nic].index, 0);
        free(rails);
        topology_free(t);
}

/* As many of both as there may be: nobody is left out, and shares differ by one at most. */
static void test_many(void **state) {
        struct topology *t = NULL;
        struct topology_rails *rails;

        (void)state;
        assert_int_equal(topology_new(&t), 0);
        for (uint32_t i = 0; i < TOPOLOGY_GPUS_MAX; i++)
                add(t, TOPOLOGY_GPU, i, TOPOLOGY_NONE, "");
        for (uint32_t i = 0; i < TOPOLOGY_RAILS_MAX + 1; i++) {
                add(t, TOPOLOGY_NIC, i, TOPOLOGY_NONE, "r");
                rails = rails_of(t);
                assert_int_equal(rails->n_rails, i < TOPOLOGY_RAILS_MAX ? i + 1 : TOPOLOGY_RAILS_MAX);
                for (uint32_t r = 0; r < rails->n_rails; r++) {
                        uint32_t share = TOPOLOGY_GPUS_MAX / rails->n_rails;

                        assert_true(rails->rails[r].n_gpus == share || rails->rails[r].n_gpus == share + 1);
                }
                for (uint32_t g = 0; g < TOPOLOGY_GPUS_MAX; g++)
                        assert_int_equal(rails->map[g].rail, g % rails->n_rails);
                free(rails);
        }
        topology_free(t);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_fixtures), cmocka_unit_test(test_in_turn), cmocka_unit_test(test_uneven),
                cmocka_unit_test(test_near),     cmocka_unit_test(test_choice),  cmocka_unit_test(test_many),
                cmocka_unit_test(test_further),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
