/* SPDX-License-Identifier: MIT */
/* Clusters: closed forms against counted plans, cuts against fabrics that are written out, predictions against
 * published measurements (tests/sim/data). */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/cost.h"
#include "ring/ring.h"
#include "tests/cmocka_all.h"
#include "tools/sim/cluster_run.h"
#include "tools/sim/cut.h"
#include "util/clock.h"

#define US 1000.0

static const struct cluster_wish nothing, any_tree = {.any_tree = true};

static struct cluster load_form(const char *text, struct cluster_form *ret_form) {
        char error[256] = "";
        struct cluster cluster;

        if (cluster_load(text, &cluster, ret_form, error, sizeof(error)))
                fail_msg("%s: %s", text, error);
        return cluster;
}

static struct cluster load(const char *text) {
        struct cluster_form form;

        return load_form(text, &form);
}

static const struct cluster_choice *find(const struct cluster_look *look, uint32_t algorithm) {
        for (uint32_t i = 0; i < look->n_choices; i++)
                if (look->choices[i].algorithm == algorithm)
                        return &look->choices[i];
        fail_msg("no algorithm %s", cluster_algorithm_name(algorithm));
        return NULL;
}

static double time_of(const struct cluster *cluster, uint32_t operation, uint32_t algorithm, double bytes) {
        struct cluster_look look;

        cluster_look(cluster, operation, bytes, &any_tree, &look);
        return find(&look, algorithm)->ns;
}

/* ---- closed forms ------------------------------------------------------------------------------------------------ */
/* One part holds everything, so that chunks are messages. A chain or tree is told by its busiest rank as well. */
static void compare(uint32_t operation, uint32_t algorithm, uint32_t n_nodes, uint32_t n_gpus) {
        static const struct plan_constants free_work = {.parallel = 1};
        static const struct plan_net unit = {.hop_ns = 1, .n_rails = 1};
        const struct plan_geometry geometry = {.part_bytes = 1u << 30, .slots = 2};
        const uint64_t count = UINT64_C(8) * n_nodes * n_nodes * n_gpus * n_gpus; /* no half of a shard is ragged */
        const struct plan_shape shape = {.count = count, .element_bytes = 4, .partial_bytes = 4};
        struct cluster cluster = {.n_nodes = n_nodes, .n_gpus = n_gpus, .n_rails = n_gpus};
        struct plan_load counted[2 * PLAN_RANKS_MAX];
        double bytes = 0, messages = 0;
        uint8_t node[PLAN_RANKS_MAX];
        struct cluster_load closed;
        struct plan_nodes nodes;
        struct plan_model model;
        struct plan_cost cost;
        struct plan plan;

        for (uint32_t r = 0; r < n_nodes * n_gpus; r++)
                node[r] = (uint8_t)(r / n_gpus);
        assert_int_equal(plan_nodes_init(&nodes, n_nodes * n_gpus, node), PLAN_OK);
        assert_int_equal(plan_build_nodes(operation, algorithm, n_nodes * n_gpus, &nodes, &plan), PLAN_OK);
        plan_load_ranks(&plan, &geometry, &shape, counted);
        for (uint32_t r = 0; r < n_nodes * n_gpus; r++) {
                bytes = fmax(bytes, fmax((double)counted[r].bytes_out, (double)counted[r].bytes_in));
                messages = fmax(messages, fmax((double)counted[r].chunks_out, (double)counted[r].chunks_in));
        }
        assert_int_equal(cluster_load_of(&cluster, operation, algorithm, (double)count * 4, &closed), PLAN_OK);
        assert_int_equal(plan_model_init_net(&model, &plan, &free_work, &unit, &geometry, 4, 4), 0);
        plan_model_predict(&model, count, &cost);
        if (fabs(closed.gpu_bytes - bytes) > 0.5 || fabs(closed.messages - messages) > 0.1 ||
            fabs(closed.hops - cost.ns) > 0.1)
                fail_msg("%s %s, %ux%u: %.0f bytes, %.0f messages, %.0f hops; counted %.0f, %.0f, %.0f",
                         plan_operation_name(operation), plan_algorithm_name(algorithm), n_nodes, n_gpus,
                         closed.gpu_bytes, closed.messages, closed.hops, bytes, messages, cost.ns);
        for (cluster.n_rails = 1; cluster.n_rails <= n_gpus + 1; cluster.n_rails++) {
                bytes = 0;
                plan_load_rails(&plan, &geometry, &shape, cluster.n_rails, counted);
                for (uint32_t i = 0; i < n_nodes * cluster.n_rails; i++)
                        bytes = fmax(bytes, fmax((double)counted[i].bytes_out, (double)counted[i].bytes_in));
                assert_int_equal(cluster_load_of(&cluster, operation, algorithm, (double)count * 4, &closed), PLAN_OK);
                if (fabs(closed.rail_bytes - bytes) > 0.5)
                        fail_msg("%s %s, %ux%u: %.0f bytes on a rail of %u; counted %.0f",
                                 plan_operation_name(operation), plan_algorithm_name(algorithm), n_nodes, n_gpus,
                                 closed.rail_bytes, cluster.n_rails, bytes);
        }
}

static void test_closed_forms(void **state) {
        uint32_t n_compared = 0;

        (void)state;
        for (uint32_t n_nodes = 2; n_nodes <= 16; n_nodes++)
                for (uint32_t n_gpus = 1; n_gpus <= 8 && n_nodes * n_gpus <= PLAN_RANKS_MAX; n_gpus++)
                        for (uint32_t operation = 1; operation < RING_OP_COUNT; operation++)
                                for (uint32_t a = 1; a < PLAN_ALGORITHM_COUNT; a++) {
                                        struct cluster cluster = {.n_nodes = 2, .n_gpus = 2, .n_rails = 2};
                                        struct cluster_load ignored;

                                        if (cluster_load_of(&cluster, operation, a, 1, &ignored))
                                                continue;
                                        compare(operation, a, n_nodes, n_gpus);
                                        n_compared++;
                                }
        assert_true(n_compared > 1000);
        print_message("%u plans counted\n", n_compared);
}

/* What a plan sends one way between the first nodes and the others, counted; the root is on the first one. */
static double counted_crossing(uint32_t operation, uint32_t n_nodes, uint32_t part, uint64_t count) {
        const struct plan_geometry geometry = {.part_bytes = 1u << 30, .slots = 2};
        const struct plan_shape shape = {.count = count, .element_bytes = 4, .partial_bytes = 4};
        uint8_t node[PLAN_RANKS_MAX];
        struct plan_nodes nodes;
        double ways[2] = {0, 0};
        struct plan_step step;
        struct plan plan;

        for (uint32_t r = 0; r < n_nodes; r++)
                node[r] = (uint8_t)r;
        assert_int_equal(plan_nodes_init(&nodes, n_nodes, node), PLAN_OK);
        assert_int_equal(plan_build_nodes(operation, PLAN_HIERARCHICAL_DOUBLE_TREE, n_nodes, &nodes, &plan), PLAN_OK);
        for (uint32_t me = 0; me < n_nodes; me++)
                for (uint32_t p = 0; p < plan.n_phases; p++)
                        for (uint32_t k = 0; k < plan_phase_steps(&plan, &plan.phases[p], &shape, me); k++) {
                                plan_step(&plan, &plan.phases[p], &geometry, &shape, me, 0, k, &step);
                                for (uint32_t t = 0; t < step.n_targets; t++)
                                        if ((me < part) != (step.target[t] < part))
                                                ways[me < part] += (double)step.length * 4;
                        }
        return fmax(ways[0], ways[1]);
}

/* One cut between boxes is narrow: then what crosses it counts, if it is more than what the busiest box has. */
static void test_double_tree(void **state) {
        static const uint32_t operations[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE, RING_OP_BROADCAST};
        const uint64_t count = 4096;

        (void)state;
        for (uint32_t n = 2; n <= CLUSTER_CUTS_MAX; n++)
                for (uint32_t k = 1; k < n; k++)
                        for (size_t o = 0; o < sizeof(operations) / sizeof(operations[0]); o++) {
                                struct cluster boxes = {.n_nodes = n, .n_gpus = 1, .n_rails = 1};
                                double crossing = counted_crossing(operations[o], n, k, count);
                                struct cluster_load l;

                                for (uint32_t part = 1; part < n; part++)
                                        boxes.cuts[part] = part == k ? 1 : 1e6;
                                assert_int_equal(cluster_load_of(&boxes, operations[o], PLAN_HIERARCHICAL_DOUBLE_TREE,
                                                                 count * 4, &l),
                                                 PLAN_OK);
                                if (fabs(l.rail_bytes - fmax(l.gpu_bytes, crossing)) > 0.5)
                                        fail_msg("%s, %u of %u boxes: %.0f bytes; counted %.0f, of one box %.0f",
                                                 plan_operation_name(operations[o]), k, n, l.rail_bytes, crossing,
                                                 l.gpu_bytes);
                        }
}

/* Rings pass every GPU, so inside and between nodes they have as many hops as the plan of that name. */
static void test_rings(void **state) {
        struct cluster cluster = load("h200:4x8");
        struct cluster_load small;
        struct plan plan;

        (void)state;
        for (uint32_t operation = 1; operation < RING_OP_COUNT; operation++)
                for (uint32_t shape = 0; shape < 9; shape++) {
                        struct cluster_load of;

                        cluster.n_nodes = 1 + shape % 3;
                        cluster.n_gpus = 1 + shape / 3;
                        if (cluster_load_of(&cluster, operation, CLUSTER_RINGS, 1024, &of))
                                continue;
                        if (cluster.n_nodes * cluster.n_gpus < 2)
                                continue;
                        assert_int_equal(plan_build(operation, PLAN_RING, cluster.n_nodes * cluster.n_gpus, &plan),
                                         PLAN_OK);
                        assert_true(of.hops + of.near_hops == plan_cost_hops(&plan));
                }
        cluster = load("h200:4x8");
        assert_int_equal(cluster_load_of(&cluster, RING_OP_ALL_REDUCE, CLUSTER_RINGS, 8, &small), PLAN_OK);
        assert_true(small.hops == 6 && small.near_hops == 56);
        assert_true(fabs(cluster_ns(&cluster, &small) - cluster.base_ns - 6 * 5000 - 56 * 600) < 10);
}

/* Where channels are soon full. Up to 2 MiB an all_reduce waits for nobody. */
static double staged_hops(const char *shape, uint32_t operation, uint32_t algorithm, double bytes) {
        struct cluster host = load(shape);
        struct cluster_load of;

        assert_true(host.staged);
        assert_int_equal(cluster_load_of(&host, operation, algorithm, bytes, &of), PLAN_OK);
        return of.hops;
}

static void test_staged(void **state) {
        (void)state;
        for (double bytes = 131072; bytes <= 2097152; bytes *= 2)
                assert_true(staged_hops("host:4x1", RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_SCATTER, bytes) == 2);
        assert_true(staged_hops("host:4x1", RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_SCATTER, 2097156) == 4);
        /* Four times as much through a channel. */
        assert_true(staged_hops("host:4x1", RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL, 2097152) == 7);
        assert_true(staged_hops("host:4x1", RING_OP_ALL_REDUCE, CLUSTER_RINGS, 2097152) == 6);
        /* Halves through channels of their own; of a broadcast over two nodes both through one, of 1 MiB. */
        assert_true(staged_hops("host:4x1", RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_DOUBLE_TREE, 1048576) == 4);
        assert_true(staged_hops("host:4x1", RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_DOUBLE_TREE, 1048584) == 6);
        assert_true(staged_hops("host:2x1", RING_OP_BROADCAST, PLAN_HIERARCHICAL_DOUBLE_TREE, 1048576) == 1);
        assert_true(staged_hops("host:2x1", RING_OP_BROADCAST, PLAN_HIERARCHICAL_DOUBLE_TREE, 1048584) == 3);
        /* Seven others through four slots. */
        assert_true(staged_hops("host:2x8", RING_OP_ALL_TO_ALL, PLAN_HIERARCHICAL_RAIL, 64) == 3);
}

/* No algorithm is faster than the cut allows. */
static void test_bound(void **state) {
        (void)state;
        for (uint32_t n = 1; n <= 64; n *= 2)
                for (uint32_t operation = 1; operation < RING_OP_COUNT; operation++) {
                        struct cluster cluster = load("mi300x:8x8");
                        struct cluster_look look;

                        cluster.n_nodes = n;
                        cluster_look(&cluster, operation, 1 << 26, &any_tree, &look);
                        for (uint32_t i = 0; i < look.n_choices; i++)
                                assert_true(look.choices[i].ns >= look.bound_ns);
                        if (look.n_choices > 0 && n > 1 && operation != RING_OP_BARRIER)
                                assert_true(look.bound_ns > 0);
                }
}

/* ---- PCIe fabrics ------------------------------------------------------------------------------------------------ */
static const struct {
        const char *name;
        uint32_t cut;
        double all_gather, all_reduce, broadcast; /* GB/s, 0: not measured */
} fabrics[] = {
        {"1s-2rp-std-cascade", 1, 25, 25, 25},  {"1s-1rp-std-cascade", 2, 56, 54, 54},
        {"2s-2rp-split-flat", 4, 92, 100, 107}, {"1s-2rp-split-cascade", 2, 0, 0, 0},
        {"2s-2rp-std-flat", 1, 0, 0, 0},
};

static double rings_gbs(const struct cluster *cluster, uint32_t operation) {
        double bytes = UINT64_C(1) << 30;

        return cluster_bus_gbs(cluster, operation, bytes, time_of(cluster, operation, CLUSTER_RINGS, bytes));
}

/* Compares, and the row of docs/plans.md that begins with what it is of. */
static void near(const char *of, const char *what, double predicted, double measured, double most, double *worst) {
        double error = fabs(predicted / measured - 1);
        static char plans[1u << 18];
        FILE *file = fopen(PLANS_MD, "re");
        char row[256];

        assert_non_null(file);
        assert_true(fread(plans, 1, sizeof(plans) - 1, file) > 0);
        fclose(file);
        snprintf(row, sizeof(row), "| %s | %s | %.2f | %.2f | %.1f %% |\n", of, what, predicted, measured, 100 * error);
        print_message("  %s", row);
        assert_true(error <= most);
        if (!strstr(plans, row))
                fail_msg("docs/plans.md has no row: %s", row);
        *worst = fmax(*worst, error);
}

/* Speeds are those that came with the measurements, and fitted to none of them. */
static void test_fabric_speeds(void **state) {
        json_t *document = json_load_file(DATA_DIR "/gigaio_topologies.json", 0, NULL);
        const json_t *link = json_object_get(document, "link");

        (void)state;
        assert_non_null(link);
        assert_true(load("pcie:2s-2rp-split-flat").rail_gbs ==
                    json_number_value(json_object_get(link, "effective_GBps")));
        assert_true(load("mi300x:2x8").link_gbs ==
                    json_number_value(json_object_get(link, "xgmi_per_peer_effective_GBps")));
        assert_true(load("mi300x:2x8").gpu_gbs * load("mi300x:2x8").one.nominal ==
                    7 * json_number_value(json_object_get(link, "xgmi_per_peer_raw_GBps")));
        json_decref(document);
}

static void test_fabrics(void **state) {
        static const uint32_t operations[] = {RING_OP_ALL_GATHER, RING_OP_ALL_REDUCE, RING_OP_BROADCAST};
        double last[3] = {0}, worst = 0;
        char text[256], error[256];

        (void)state;
        for (size_t i = 0; i < sizeof(fabrics) / sizeof(fabrics[0]); i++) {
                struct cluster cluster;
                struct cut_fabric named;
                uint32_t links[CUT_BOXES_MAX];

                snprintf(text, sizeof(text), "pcie:%s", fabrics[i].name);
                cluster = load(text);
                assert_int_equal(cluster.n_rails, fabrics[i].cut);
                if (fabrics[i].all_gather == 0)
                        continue;
                assert_int_equal(cut_parse(fabrics[i].name, &named, error, sizeof(error)), 0);
                snprintf(text, sizeof(text), DATA_DIR "/gigaio_topologies.json:%s", fabrics[i].name);
                assert_int_equal(cut_links(&named, links), 0);
                assert_int_equal(load(text).n_rails, links[1]);                        /* the same as written out */
                snprintf(text, sizeof(text), FIXTURES "/pci-%s.xml", fabrics[i].name); /* and as a node's graph */
                assert_int_equal(load(text).n_rails, fabrics[i].cut);
                assert_int_equal(load(text).n_nodes, 2);
                assert_int_equal(load(text).n_gpus, 8);
                assert_true(fabs(load(text).rail_gbs - 27) < 0.1);
                near(fabrics[i].name, "all_gather", rings_gbs(&cluster, RING_OP_ALL_GATHER), fabrics[i].all_gather, 0.2,
                     &worst);
                near(fabrics[i].name, "all_reduce", rings_gbs(&cluster, RING_OP_ALL_REDUCE), fabrics[i].all_reduce, 0.2,
                     &worst);
                near(fabrics[i].name, "broadcast", rings_gbs(&cluster, RING_OP_BROADCAST), fabrics[i].broadcast, 0.2,
                     &worst);
                for (size_t k = 0; k < 3; k++) { /* in the right order */
                        assert_true(rings_gbs(&cluster, operations[k]) > last[k]);
                        last[k] = rings_gbs(&cluster, operations[k]);
                }
        }
        print_message("PCIe fabrics: at most %.1f %% off; from 27 GB/s a link\n", 100 * worst);
}

/* Four boxes with two cards each, in two domains that one link joins: written out, and as a node's graph. */
static const char four_text[] =
        "{\"topologies\": [{\"name\": \"four\", \"domains\": ["
        "{\"root_ports\": [\"rp0\"], \"kumas\": [\"apa0.k0\", \"apa0.k1\", \"apa1.k0\", \"apa1.k1\"]},"
        "{\"root_ports\": [\"rp1\"], \"kumas\": [\"apa2.k0\", \"apa2.k1\", \"apa3.k0\", \"apa3.k1\"]}]}]}";

static void write_file(char path[64], const char *text) {
        int fd;

        snprintf(path, 64, "%s", "/tmp/railmux-cluster-XXXXXX");
        fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        close(fd);
}

static void test_four_boxes(void **state) {
        const double gib = UINT64_C(1) << 30;
        struct cluster_look look;
        struct cluster cluster;
        char file[64], text[80];
        uint32_t part;

        (void)state;
        write_file(file, four_text);
        snprintf(text, sizeof(text), "%s:four", file);
        cluster = load(text);
        unlink(file);
        assert_int_equal(cluster.n_nodes, 4);
        assert_true(cluster.cuts[1] == 2 && cluster.cuts[2] == 1 && cluster.cuts[3] == 2 && cluster.n_rails == 1);
        /* The blocks of sixteen GPUs over one link of 27 GB/s; around one box, 24 over two. */
        assert_true(fabs(cluster_bound_ns(&cluster, RING_OP_ALL_GATHER, gib, &part) - 16 * gib / 27) < 1);
        assert_int_equal(part, 2);
        assert_true(rings_gbs(&cluster, RING_OP_ALL_GATHER) < 27.1);
        for (uint32_t operation = 1; operation < RING_OP_COUNT; operation++) {
                cluster_look(&cluster, operation, gib, &any_tree, &look);
                for (uint32_t i = 0; i < look.n_choices; i++)
                        if (look.choices[i].ns < look.bound_ns)
                                fail_msg("%s %s takes %.0f ns, and nothing can take less than %.0f",
                                         plan_operation_name(operation),
                                         cluster_algorithm_name(look.choices[i].algorithm), look.choices[i].ns,
                                         look.bound_ns);
        }
}

/* ---- measurements ------------------------------------------------------------------------------------------------ */
/* 4 x 8 H200: the latency is what 8 KiB leave; the speeds are nominal. The better one of both configurations. */
static void test_mscclpp(void **state) {
        struct cluster cluster = load("h200:4x8");
        FILE *file = fopen(DATA_DIR "/mscclpp_4node_h200.csv", "re");
        double bytes, nccl, wide, narrow, worst = 0;
        char line[128];
        uint32_t n = 0;

        (void)state;
        assert_non_null(file);
        while (fgets(line, sizeof(line), file))
                if (sscanf(line, "%lf,%lf,%lf,%lf", &bytes, &nccl, &wide, &narrow) == 4) {
                        snprintf(line, sizeof(line), "%.0f%s", bytes, n == 0 ? " *" : "");
                        near("MSCCL++ 4x8", line, time_of(&cluster, RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL, bytes) / US,
                             fmin(wide, narrow), n == 0 ? 0.01 : 0.1, &worst);
                        n++;
                }
        fclose(file);
        assert_int_equal(n, 5);
        print_message("MSCCL++: fitted on 8 KiB, at most %.1f %% off elsewhere\n", 100 * worst);
}

/* 4 x 4 A100: latency and speed of a rail are what 8 KiB and 1 MiB leave. */
static void test_nvrar(void **state) {
        struct cluster cluster = load("a100:4x4");
        FILE *file = fopen(DATA_DIR "/nvrar_best_16xA100_bf16.csv", "re");
        double bytes, us, worst = 0;
        char line[128];
        uint32_t n = 0;

        (void)state;
        assert_non_null(file);
        while (fgets(line, sizeof(line), file))
                if (sscanf(line, "%lf,%*f,%*f,%*f,%lf", &bytes, &us) == 2) {
                        bool fitted = bytes == 8192 || bytes == 1048576;

                        snprintf(line, sizeof(line), "%.0f%s", bytes, fitted ? " *" : "");
                        near("NVRAR 4x4", line,
                             time_of(&cluster, RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_DOUBLING, bytes) / US, us,
                             fitted ? 0.01 : 0.25, &worst);
                        n++;
                }
        fclose(file);
        assert_int_equal(n, 6);
        print_message("NVRAR: fitted on 8 KiB and 1 MiB, at most %.1f %% off elsewhere\n", 100 * worst);
}

/* ---- choice ------------------------------------------------------------------------------------------------------ */
static uint32_t chosen(const struct cluster *cluster, uint32_t operation, double bytes, uint32_t algorithm, bool any) {
        struct cluster_look look;

        cluster_look(cluster, operation, bytes, &(struct cluster_wish){.algorithm = algorithm, .any_tree = any}, &look);
        return look.chosen < look.n_choices ? look.choices[look.chosen].algorithm : PLAN_ALGORITHM_NONE;
}

static void test_chosen(void **state) {
        struct cluster cluster = load("mi300x:8x8");

        (void)state;
        assert_int_equal(chosen(&cluster, RING_OP_ALL_REDUCE, 8192, 0, false), PLAN_HIERARCHICAL);
        assert_int_equal(chosen(&cluster, RING_OP_ALL_REDUCE, 1 << 26, 0, false), PLAN_HIERARCHICAL_SCATTER);
        assert_int_equal(chosen(&cluster, RING_OP_ALL_REDUCE, 8192, PLAN_TWO_SHOT, false), PLAN_TWO_SHOT);
        assert_int_equal(chosen(&cluster, RING_OP_BARRIER, 0, PLAN_TWO_SHOT, false), PLAN_ALGORITHM_NONE);
        for (double bytes = 1024; bytes < 1e9; bytes *= 2)
                assert_int_not_equal(chosen(&cluster, RING_OP_ALL_REDUCE, bytes, 0, true), CLUSTER_RINGS);
}

/* The star is where the table of railmuxd says, for every size: `choices` prints that. */
static void test_railmuxd(void **state) {
        static const char *const shapes[] = {"mi300x:2x8", "mi300x:4x8", "h200:4x1",   "host:2x4",
                                             "host:8x2",   "h200:1x8",   "mi300x:8x8", "h200:2x3"};
        static const uint32_t operations[] = {RING_OP_ALL_REDUCE, RING_OP_BROADCAST, RING_OP_GATHER, RING_OP_BARRIER};
        uint32_t n_starred = 0;

        (void)state;
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
                struct cluster_form form;
                struct cluster cluster = load_form(shapes[i], &form);
                struct cluster_table table;
                const struct cluster_wish wish = {.table = &table};

                assert_int_equal(cluster_table_make(&cluster, &form, false, &table), 0);
                assert_true(table.n > 0);
                assert_int_equal(form.host, strncmp(shapes[i], "host", 4) == 0);
                for (size_t k = 0; k < sizeof(operations) / sizeof(operations[0]); k++)
                        for (double bytes = 512; bytes < 1e9; bytes *= 2) {
                                const struct plan_choice *choice =
                                        plan_choice_find(table.choices, table.n, operations[k], 1, (uint64_t)bytes);
                                struct cluster_look look;

                                cluster_look(&cluster, operations[k], bytes, &wish, &look);
                                assert_non_null(choice);
                                assert_int_equal(look.chosen_by, CLUSTER_CHOSEN_RAILMUXD);
                                assert_int_equal(look.algorithm, choice->algorithm);
                                if (look.chosen == look.n_choices)
                                        continue;
                                n_starred++;
                                if (choice->algorithm < PLAN_HIERARCHICAL_STAGED)
                                        assert_int_equal(look.choices[look.chosen].algorithm, choice->algorithm);
                        }
        }
        assert_true(n_starred > 200);
}

/* A thousand nodes take no longer to look at than two. */
static void test_many(void **state) {
        struct cluster cluster = load("mi300x:1024x8");
        uint64_t began = clock_now_ns();
        struct cluster_look look;

        (void)state;
        for (uint32_t operation = 1; operation < RING_OP_COUNT; operation++)
                for (double bytes = 1024; bytes < 1e9; bytes *= 2)
                        cluster_look(&cluster, operation, bytes, &nothing, &look);
        assert_true(clock_now_ns() - began < UINT64_C(1000000000));
        cluster_look(&cluster, RING_OP_ALL_REDUCE, 1 << 20, &any_tree, &look);
        assert_true(find(&look, PLAN_HIERARCHICAL)->ns > find(&look, PLAN_HIERARCHICAL_DOUBLING)->ns);
}

/* A path with colons, longer than names used to be: of a node, and of a file with fabrics. */
static void test_paths(void **state) {
        char folder[] = "/tmp/railmux-cluster-XXXXXX", path[256], text[300], link[256];

        (void)state;
        assert_non_null(mkdtemp(folder));
        snprintf(path, sizeof(path), "%s/rack:7 row:12 with a name that is longer than sixty-three characters.xml",
                 folder);
        assert_int_equal(symlink(FIXTURES "/h200-8x8.xml", path), 0);
        assert_int_equal(load(path).n_gpus, 8);
        assert_string_equal(load(path).name, path);
        snprintf(link, sizeof(link), "%s/of:all.json", folder);
        assert_int_equal(symlink(DATA_DIR "/gigaio_topologies.json", link), 0);
        snprintf(text, sizeof(text), "%s:2s-2rp-split-flat", link);
        assert_int_equal(load(text).n_rails, 4);
        unlink(path);
        unlink(link);
        rmdir(folder);
}

static void test_names(void **state) {
        static const char *const wrong[] = {
                "mi300x:8",     "mi300x:0x8", "mi300x:8x0", "mi300x:8x8x8", "mi300x:", "what:8x8",
                "h200:99999x8", "h200:2x129", "pcie:",      "none.xml",     ":"};
        struct cluster_form form;
        struct cluster cluster;
        char error[256];

        (void)state;
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                error[0] = 0;
                assert_int_equal(cluster_load(wrong[i], &cluster, &form, error, sizeof(error)), -EINVAL);
                assert_true(error[0] != 0);
                assert_true(cluster_named(wrong[i]));
        }
        assert_false(cluster_named("all_reduce") || cluster_named("--topology=a:b") || cluster_named("choices"));
        assert_int_equal(load("host:3x4").n_rails, 1);
        assert_int_equal(load("h200:3x4").n_rails, 4);
        assert_string_equal(load("h200:3x4").name, "h200:3x4");
        cluster = load(FIXTURES "/mi300x-8x8.xml");
        assert_true(cluster.n_nodes == 2 && cluster.n_gpus == 8 && cluster.n_rails == 8 && cluster.rail_gbs == 50);
        cluster = load(FIXTURES "/h200-8x8.xml");
        assert_true(cluster.n_gpus == 8 && cluster.n_rails == 8 && cluster.gpu_gbs < 1000);
        /* Without NICs it is as mi300x. Who has a rail for each GPU, and what is one fabric? */
        assert_int_equal(load_form(FIXTURES "/mi300x-8x0.xml", &form).n_rails, 8);
        assert_true(form.own_rails && !form.boxes);
        load_form("mi300x:2x1", &form);
        assert_true(form.own_rails && !form.boxes);
        load_form("host:4x1", &form);
        assert_true(!form.own_rails && !form.boxes);
        load_form(FIXTURES "/mi300x-8x4.xml", &form);
        assert_true(!form.own_rails && !form.boxes);
        load_form("pcie:2s-2rp-split-flat", &form);
        assert_true(!form.own_rails && form.boxes);
        load_form(FIXTURES "/pci-2s-2rp-split-flat.xml", &form);
        assert_true(!form.own_rails && form.boxes);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_closed_forms), cmocka_unit_test(test_rings),
                cmocka_unit_test(test_staged),       cmocka_unit_test(test_bound),
                cmocka_unit_test(test_fabrics),      cmocka_unit_test(test_fabric_speeds),
                cmocka_unit_test(test_four_boxes),   cmocka_unit_test(test_mscclpp),
                cmocka_unit_test(test_nvrar),        cmocka_unit_test(test_chosen),
                cmocka_unit_test(test_railmuxd),     cmocka_unit_test(test_many),
                cmocka_unit_test(test_paths),        cmocka_unit_test(test_names),
                cmocka_unit_test(test_double_tree),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
