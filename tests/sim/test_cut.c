/* SPDX-License-Identifier: MIT */
/* Boxes on PCIe fabrics: names and files, and cuts against going through all sides. */
#include <errno.h>
#include <string.h>

#include "tests/cmocka_all.h"
#include "tools/sim/cut.h"
#include "tools/sim/cut_flow.h"
#include "topology/topology.h"
#include "util/clock.h"

#define VERTICES 9u
#define BOXES    5u

static void test_fabric_names(void **state) {
        static const char *const wrong[] = {
                "",
                "2s",
                "2s-2rp",
                "2s-2rp-split",
                "2s-2rp-split-flat-",
                "0s-1rp-std-flat",
                "1s-0rp-std-flat",
                "2s-1rp-std-flat",
                "3s-3rp-split-flat",
                "2s-2rp-round-flat",
                "2s-2rp-std-square",
                "99s-99rp-std-flat",
        };
        struct cut_fabric fabric, untouched;
        uint32_t links[CUT_BOXES_MAX];
        char error[256];

        (void)state;
        memset(&fabric, 0x5a, sizeof(fabric));
        untouched = fabric;
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                error[0] = 0;
                assert_int_equal(cut_parse(wrong[i], &fabric, error, sizeof(error)), -EINVAL);
                assert_true(error[0] != 0);
        }
        assert_int_equal(cut_load(DATA_DIR "/gigaio_topologies.json", "no-such", &fabric, error, sizeof(error)),
                         -EINVAL);
        assert_non_null(strstr(error, "no-such"));
        assert_int_equal(cut_load(DATA_DIR "/none.json", "x", &fabric, error, sizeof(error)), -EINVAL);
        assert_memory_equal(&fabric, &untouched, sizeof(fabric));
        /* Three boxes in a star: each behind two cards. And one that hangs on one card only. */
        fabric = (struct cut_fabric){.n_boxes = 3, .n_domains = 1, .cards = {{2}, {2}, {2}}};
        assert_int_equal(cut_links(&fabric, links), 0);
        assert_true(links[0] == 0 && links[1] == 2 && links[2] == 2);
        fabric.cards[1][0] = 1;
        assert_int_equal(cut_links(&fabric, links), 0);
        assert_int_equal(links[1], 1);
        /* Two domains without a host are no way from one to the other. */
        fabric = (struct cut_fabric){.n_boxes = 2, .n_domains = 2, .cards = {{2, 0}, {0, 2}}};
        assert_int_equal(cut_links(&fabric, links), 0);
        assert_int_equal(links[1], 0);
}

/* The same by going through all sides that domains and the host can be on: each domain takes the better one. */
static void cuts_counted(const struct cut_fabric *f, uint32_t ret_links[CUT_BOXES_MAX]) {
        memset(ret_links, 0xff, CUT_BOXES_MAX * sizeof(*ret_links));
        for (uint32_t side = 1; side < (1u << f->n_boxes) - 1; side++)
                for (uint32_t host = 0; host < 2; host++) {
                        uint32_t sum = 0, *least = &ret_links[__builtin_popcount(side)];

                        for (uint32_t d = 0; d < f->n_domains; d++) {
                                uint32_t cards[2] = {0};

                                for (uint32_t box = 0; box < f->n_boxes; box++)
                                        cards[side >> box & 1] += f->cards[box][d];
                                cards[1 - host] += f->ports[d];
                                sum += cards[0] < cards[1] ? cards[0] : cards[1];
                        }
                        *least = sum < *least ? sum : *least;
                }
}

static uint32_t add(struct topology *t, uint32_t kind, uint32_t index) {
        const struct topology_node node = {.kind = kind, .index = index, .numa = TOPOLOGY_NONE};
        uint32_t position;

        assert_int_equal(topology_add_node(t, &node, &position), 0);
        return position;
}

static void join(struct topology *t, uint32_t a, uint32_t b, uint32_t kind, uint64_t gbs) {
        const struct topology_link link = {.a = a, .b = b, .kind = kind, .bytes_per_second = gbs * 1000000000};

        assert_int_equal(topology_add_link(t, &link), 0);
}

/* A fabric as a node's graph, two GPUs for a box; what is several links is as many switches side by side. */
static struct topology *graph_of(const struct cut_fabric *f) {
        uint32_t gpus[2 * CUT_BOXES_MAX], n_switches = 0, host;
        struct topology *t;

        assert_int_equal(topology_new(&t), 0);
        host = add(t, TOPOLOGY_NUMA, 0);
        for (uint32_t i = 0; i < 2 * f->n_boxes; i++) {
                gpus[i] = add(t, TOPOLOGY_GPU, i);
                if (i % 2)
                        join(t, gpus[i - 1], gpus[i], TOPOLOGY_LINK_XGMI, 64);
        }
        for (uint32_t d = 0; d < f->n_domains; d++) {
                uint32_t domain = add(t, TOPOLOGY_SWITCH, n_switches++);

                for (uint32_t box = 0; box <= f->n_boxes; box++)
                        for (uint32_t k = 0; k < (box < f->n_boxes ? f->cards[box][d] : f->ports[d]); k++) {
                                uint32_t card = add(t, TOPOLOGY_SWITCH, n_switches++);

                                join(t, card, domain, TOPOLOGY_LINK_PCI, 32);
                                join(t, card, box < f->n_boxes ? gpus[2 * box] : host, TOPOLOGY_LINK_PCI, 32);
                        }
        }
        return t;
}

static void check_graph(const struct cut_fabric *f, const uint32_t links[CUT_BOXES_MAX]) {
        struct topology *t = graph_of(f);
        bool joined = links[1] > 0;
        struct cut_graph graph;

        for (uint32_t k = 2; k < f->n_boxes; k++)
                joined = joined && links[k] > 0;
        assert_int_equal(cut_graph(t, &graph), joined);
        for (uint32_t k = 1; joined && k < f->n_boxes; k++)
                assert_true(graph.links[k] == links[k]);
        if (joined)
                assert_true(graph.n_boxes == f->n_boxes && graph.n_gpus == 2 && graph.bytes_per_second == 32000000000);
        topology_free(t);
}

static void test_cuts(void **state) {
        uint32_t links[CUT_BOXES_MAX], counted[CUT_BOXES_MAX], random = 12345;

        (void)state;
        for (uint32_t i = 0; i < 200; i++) {
                struct cut_fabric f = {.n_boxes = 2 + i % 7, .n_domains = 1 + i % 5};

                for (uint32_t d = 0; d < f.n_domains; d++)
                        for (uint32_t box = 0; box <= f.n_boxes; box++) {
                                random = random * 1664525 + 1013904223;
                                *(box < f.n_boxes ? &f.cards[box][d] : &f.ports[d]) = (random >> 24) % 4;
                        }
                assert_int_equal(cut_links(&f, links), 0);
                cuts_counted(&f, counted);
                for (uint32_t k = 1; k < f.n_boxes; k++)
                        assert_int_equal(links[k], counted[k]);
                check_graph(&f, counted);
        }
}

/* As many boxes as there can be, in pairs; and one more. */
static void test_many_boxes(void **state) {
        struct cut_fabric f = {.n_boxes = CUT_BOXES_MAX, .n_domains = CUT_BOXES_MAX / 2};
        uint32_t links[CUT_BOXES_MAX];
        uint64_t began = clock_now_ns();
        struct cut_graph graph;
        struct topology *t;

        (void)state;
        for (uint32_t box = 0; box < f.n_boxes; box++)
                f.cards[box][box / 2] = 2;
        for (uint32_t d = 0; d < f.n_domains; d++)
                f.ports[d] = 1;
        assert_int_equal(cut_links(&f, links), 0);
        assert_true(links[1] == 2 && links[2] == 1 && links[7] == 5 && links[8] == 4);
        check_graph(&f, links);
        assert_true(clock_now_ns() - began < UINT64_C(10000000000));
        t = graph_of(&f);
        for (uint32_t i = 0; i < 2; i++)
                add(t, TOPOLOGY_GPU, 2 * CUT_BOXES_MAX + i);
        join(t, topology_find(t, TOPOLOGY_GPU, 2 * CUT_BOXES_MAX),
             topology_find(t, TOPOLOGY_GPU, 2 * CUT_BOXES_MAX + 1), TOPOLOGY_LINK_XGMI, 64);
        assert_int_equal(cut_graph(t, &graph), -E2BIG);
        topology_free(t);
}

/* Slower links are what they are, and those that lead only to NICs are none. */
static void test_speeds(void **state) {
        const struct cut_fabric f = {.n_boxes = 2, .n_domains = 1, .cards = {{2}, {2}}, .ports = {1}};
        struct topology *t = graph_of(&f);
        uint32_t nic = add(t, TOPOLOGY_NIC, 0), more = add(t, TOPOLOGY_SWITCH, 100);
        struct cut_graph graph;

        (void)state;
        join(t, topology_find(t, TOPOLOGY_SWITCH, 0), more, TOPOLOGY_LINK_PCI, 1);
        join(t, more, nic, TOPOLOGY_LINK_PCI, 63);
        assert_int_equal(cut_graph(t, &graph), 1);
        assert_true(graph.links[1] == 2 && graph.bytes_per_second == 32000000000);
        for (uint32_t i = 0; i < t->n_links; i++) /* both ends of one card */
                if (t->links[i].b == topology_find(t, TOPOLOGY_SWITCH, 1) ||
                    t->links[i].a == topology_find(t, TOPOLOGY_SWITCH, 1))
                        t->links[i].bytes_per_second = 8000000000;
        assert_int_equal(cut_graph(t, &graph), 1);
        assert_true(graph.links[1] == 1.25 && graph.bytes_per_second == 32000000000);
        topology_free(t);
}

/* The smallest sum over all sides that vertices which are no box can be on. */
static uint64_t cut_counted(uint64_t joined[VERTICES][VERTICES], uint32_t side) {
        uint64_t least = CUT_UNLIMITED;

        for (uint32_t others = 0; others < 1u << (VERTICES - BOXES); others++) {
                uint32_t all = side | others << BOXES;
                uint64_t sum = 0;

                for (uint32_t a = 0; a < VERTICES; a++)
                        for (uint32_t b = 0; b < a; b++)
                                sum += ((all >> a ^ all >> b) & 1) ? joined[a][b] : 0;
                least = sum < least ? sum : least;
        }
        return least;
}

static void test_sides(void **state) {
        uint32_t random = 4711;

        (void)state;
        for (uint32_t i = 0; i < 100; i++) {
                uint64_t joined[VERTICES][VERTICES] = {{0}}, least[BOXES], counted[BOXES], alone, sum = 0;
                uint32_t root = i % BOXES;
                struct cut_net net;

                assert_int_equal(cut_net_init(&net, VERTICES, BOXES, VERTICES * VERTICES), 0);
                for (uint32_t a = 0; a < VERTICES; a++)
                        for (uint32_t b = 0; b < a; b++) {
                                random = random * 1664525 + 1013904223;
                                if (random >> 30 == 0) /* a quarter */
                                        joined[a][b] = random >> 16 & 0xff;
                                cut_net_join(&net, a, b, joined[a][b] / 2); /* and in two pieces */
                                cut_net_join(&net, b, a, joined[a][b] - joined[a][b] / 2);
                        }
                assert_int_equal(cut_net_sides(&net, root, least, &alone), 0);
                memset(counted, 0xff, sizeof(counted));
                for (uint32_t side = 1; side < (1u << BOXES) - 1; side++) {
                        uint32_t k = (uint32_t)__builtin_popcount(side);
                        uint64_t cut = cut_counted(joined, side);

                        if (side >> root & 1)
                                counted[k] = cut < counted[k] ? cut : counted[k];
                        sum += k == 1 ? cut : 0;
                }
                for (uint32_t k = 1; k < BOXES; k++)
                        assert_int_equal(least[k], counted[k]);
                assert_int_equal(alone, sum);
                cut_net_deinit(&net);
        }
}

/* What has no limit stays so, and of very many boxes runs of them are tried. */
static void test_limits(void **state) {
        uint64_t least[CUT_ENDS_MAX], alone;
        struct cut_net net;

        (void)state;
        assert_int_equal(cut_net_init(&net, CUT_ENDS_MAX + 2, CUT_ENDS_MAX, CUT_ENDS_MAX + 1), 0);
        for (uint32_t box = 0; box < CUT_ENDS_MAX; box++)
                cut_net_join(&net, box, CUT_ENDS_MAX + box / 32, CUT_UNLIMITED);
        cut_net_join(&net, CUT_ENDS_MAX, CUT_ENDS_MAX + 1, 7);
        assert_int_equal(cut_net_sides(&net, 40, least, &alone), 0);
        assert_true(least[32] == 7 && least[1] == CUT_UNLIMITED && least[63] == CUT_UNLIMITED);
        assert_true(least[5] == CUT_UNLIMITED && alone == CUT_UNLIMITED);
        cut_net_deinit(&net);
}

/* Thousands of switches in a square, which cannot be made fewer, and boxes on its edge. */
static void test_square(void **state) {
        enum { WIDTH = 63, N = 8 };
        uint64_t least[N], alone;
        struct cut_net net;

        (void)state;
        assert_int_equal(cut_net_init(&net, N + WIDTH * WIDTH, N, N + 2 * WIDTH * WIDTH), 0);
        for (uint32_t y = 0; y < WIDTH; y++)
                for (uint32_t x = 0; x < WIDTH; x++) {
                        if (x + 1 < WIDTH)
                                cut_net_join(&net, N + y * WIDTH + x, N + y * WIDTH + x + 1, 2);
                        if (y + 1 < WIDTH)
                                cut_net_join(&net, N + y * WIDTH + x, N + (y + 1) * WIDTH + x, 2);
                }
        for (uint32_t box = 0; box < N; box++)
                cut_net_join(&net, box, N + box * 7, 3);
        assert_int_equal(cut_net_sides(&net, 0, least, &alone), 0);
        assert_int_equal(alone, 3 * N);
        for (uint32_t k = 1; k < N; k++)
                assert_int_equal(least[k], 3 * (k < N - k ? k : N - k));
        cut_net_deinit(&net);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_fabric_names), cmocka_unit_test(test_cuts),  cmocka_unit_test(test_many_boxes),
                cmocka_unit_test(test_speeds),       cmocka_unit_test(test_sides), cmocka_unit_test(test_limits),
                cmocka_unit_test(test_square),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
