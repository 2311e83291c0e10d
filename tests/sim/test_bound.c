/* SPDX-License-Identifier: MIT */
/* What nothing can beat among GPUs of one node, and that no plan is said to. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "ring/ring.h"
#include "tests/cmocka_all.h"
#include "tools/sim/sim.h"

static struct node_bound bound_of(const char *topology, uint32_t operation, uint32_t root, uint64_t bytes,
                                  double *ret_bus) {
        const struct options options = {
                .operation = operation, .type = RMX_FLOAT32, .topology = topology, .root = root, .ranks = 8};
        struct sim_result result = {.bytes = bytes};
        char error[OPTIONS_ERROR_MAX];
        struct node_bound bound;
        struct sim sim;

        if (sim_init(&sim, &options, error))
                fail_msg("%s", error);
        bound = node_bound_of(&sim.cuts, operation, (double)bytes);
        *ret_bus = sim_bus_gbs(&sim, &result, bound.ns);
        sim_deinit(&sim);
        return bound;
}

static void test_bounds(void **state) {
        /* Two islands of two, 100 GB/s inside and 10 between them; GPU 3 is the last of the second. */
        static const char text[] =
                "{\"version\": 1, \"nodes\": [{\"kind\": \"switch\", \"index\": 0}, {\"kind\": \"switch\", \"index\": "
                "1},"
                " {\"kind\": \"gpu\", \"index\": 0}, {\"kind\": \"gpu\", \"index\": 1}, {\"kind\": \"gpu\", \"index\": "
                "2}, {\"kind\": \"gpu\", \"index\": 3}], \"links\": ["
                "{\"a\": \"gpu0\", \"b\": \"switch0\", \"kind\": \"pci\", \"gb_per_second\": 100},"
                "{\"a\": \"gpu1\", \"b\": \"switch0\", \"kind\": \"pci\", \"gb_per_second\": 100},"
                "{\"a\": \"gpu2\", \"b\": \"switch1\", \"kind\": \"pci\", \"gb_per_second\": 100},"
                "{\"a\": \"gpu3\", \"b\": \"switch1\", \"kind\": \"pci\"%s},"
                "{\"a\": \"switch0\", \"b\": \"switch1\", \"kind\": \"pci\", \"gb_per_second\": 10}]}";
        char path[] = "/tmp/railmux-bound-XXXXXX";
        static const struct {
                uint32_t operation, root;
                double ns, n_part, bus;
        } cases[] = {
                {RING_OP_ALL_REDUCE, 0, 100, 2, 15},  {RING_OP_BROADCAST, 3, 100, 2, 10},
                {RING_OP_GATHER, 1, 200, 2, 15},      {RING_OP_ALL_GATHER, 0, 200, 2, 15},
                {RING_OP_ALL_TO_ALL, 0, 400, 2, 7.5}, {RING_OP_SEND, 2, 10, 1, 100},
                {RING_OP_BARRIER, 0, 0, 0, 0},
        };
        struct node_bound bound;
        double bus;
        FILE *file;

        (void)state;
        close(mkstemp(path));
        file = fopen(path, "we");
        assert_non_null(file);
        fprintf(file, text, ", \"gb_per_second\": 100");
        fclose(file);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                bound = bound_of(path, cases[i].operation, cases[i].root, 1000, &bus);
                if (fabs(bound.ns - cases[i].ns) > 1e-6 || bound.n_part != cases[i].n_part ||
                    fabs(bus - cases[i].bus) > 1e-6)
                        fail_msg("%s: %g ns, part %u, bus %g", plan_operation_name(cases[i].operation), bound.ns,
                                 bound.n_part, bus);
        }
        file = fopen(path, "we"); /* a link of unknown speed is in no cut: what is behind its switch is */
        assert_non_null(file);
        fprintf(file, text, "");
        fclose(file);
        assert_true(fabs(bound_of(path, RING_OP_SEND, 3, 1000, &bus).ns - 1000 / 110.0) < 1e-6);
        assert_true(bound_of(path, RING_OP_ALL_REDUCE, 0, 1000, &bus).ns == 100);
        unlink(path);
        /* All that a GPU has of NVLink, and seven links of 64 GB/s. */
        bound = bound_of(FIXTURES "/h200-8x8.xml", RING_OP_ALL_REDUCE, 0, 1 << 20, &bus);
        assert_true(bound.n_part == 0 && fabs(bus - 450) < 1e-6);
        bound = bound_of(FIXTURES "/mi300x-8x8.xml", RING_OP_ALL_GATHER, 0, 1 << 20, &bus);
        assert_true(fabs(bus - 7 * 64) < 1e-6);
}

/* Four GPUs that NVLink joins, and PCI where it does not: speeds of the pairs 01, 02, 03, 12, 13 and 23; 0: none. */
static void write_nvlinks(const char *path, const uint32_t *speeds) {
        FILE *file = fopen(path, "we");

        assert_non_null(file);
        fputs("{\"version\": 1, \"nodes\": [{\"kind\": \"switch\", \"index\": 0}", file);
        for (uint32_t i = 0; i < 4; i++)
                fprintf(file, ", {\"kind\": \"gpu\", \"index\": %u}", i);
        fputs("], \"links\": [", file);
        for (uint32_t a = 0, pair = 0; a < 4; a++)
                for (uint32_t b = a + 1; b < 4; b++, pair++)
                        if (speeds[pair])
                                fprintf(file,
                                        "{\"a\": \"gpu%u\", \"b\": \"gpu%u\", \"kind\": \"nvlink\", "
                                        "\"gb_per_second\": %u}, ",
                                        a, b, speeds[pair]);
        for (uint32_t i = 0; i < 4; i++)
                fprintf(file, "%s{\"a\": \"gpu%u\", \"b\": \"switch0\", \"kind\": \"pci\", \"gb_per_second\": 10}",
                        i ? ", " : "", i);
        fputs("]}", file);
        fclose(file);
}

/* A switch joins each with each, with what the slower one has. Other links are each one's own. */
static void test_nvlinks(void **state) {
        static const struct {
                uint32_t speeds[6];
                double bus, link_ns; /* of 1000 bytes from each to each */
        } cases[] = {
                {{100, 100, 100, 100, 100, 100}, 100, 30}, /* as through a switch */
                {{100, 100, 50, 100, 50, 50}, 75, 60},     /* the same, and one of them has less */
                {{50, 25, 25, 25, 25, 50}, 100, 40},       /* one that has two links to its neighbour */
                {{50, 0, 50, 50, 0, 50}, 110, 100},        /* a ring; the others go over PCI */
                {{50, 0, 0, 0, 0, 50}, 30, 200},           /* pairs */
        };
        struct sim_result *result = calloc(1, sizeof(*result));
        char path[] = "/tmp/railmux-nvlinks-XXXXXX", error[OPTIONS_ERROR_MAX];
        const struct options options = {.operation = RING_OP_ALL_REDUCE,
                                        .ranks = 4,
                                        .type = RMX_FLOAT32,
                                        .topology = path,
                                        .algorithm = OPTIONS_ALGORITHM_ALL};

        (void)state;
        assert_non_null(result);
        close(mkstemp(path));
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const struct sim_candidate *c = result->candidates;
                struct sim sim;

                write_nvlinks(path, cases[i].speeds);
                assert_int_equal(sim_init(&sim, &options, error), 0);
                assert_int_equal(sim_look(&sim, 1000, result), 0);
                while (c->plan.algorithm != PLAN_ONE_SHOT)
                        assert_true(++c < result->candidates + result->n_candidates);
                if (fabs(sim_bus_gbs(&sim, result, result->bound.ns) - cases[i].bus) > 1e-6 ||
                    fabs(c->link_ns - cases[i].link_ns) > 1e-6)
                        fail_msg("%zu: bus %g GB/s, %g ns", i, sim_bus_gbs(&sim, result, result->bound.ns), c->link_ns);
                sim_result_deinit(result);
                sim_deinit(&sim);
        }
        unlink(path);
        free(result);
}

/* No plan is predicted to beat it, on any node that there is as a file, from any root. */
static void test_nothing_beats(void **state) {
        static const char *const files[] = {
                FIXTURES "/h200-8x8.xml",  FIXTURES "/mi300x-8x8.xml",
                FIXTURES "/hwloc.xml",     FIXTURES "/pci-2s-2rp-split-flat.xml",
                FIXTURES "/soft-roce.xml", FIXTURES "/pci-1s-2rp-std-cascade.xml",
        };
        struct sim_result *result = calloc(1, sizeof(*result));
        char error[OPTIONS_ERROR_MAX];
        uint32_t n_bounds = 0;

        (void)state;
        assert_non_null(result);
        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
                for (uint32_t op = 0; op < RING_OP_COUNT; op++)
                        for (uint32_t root = 0; root < 2; root++) {
                                const struct options options = {.operation = op,
                                                                .type = RMX_FLOAT32,
                                                                .topology = files[i],
                                                                .root = root,
                                                                .algorithm = OPTIONS_ALGORITHM_ALL};
                                struct sim sim;

                                if (plan_algorithm_at(op, 2, 0) == PLAN_ALGORITHM_NONE)
                                        continue;
                                if (sim_init(&sim, &options, error)) { /* of one GPU, or none */
                                        sim_deinit(&sim);
                                        continue;
                                }
                                assert_int_equal(sim_look(&sim, 12345678, result), 0);
                                n_bounds += result->bound.ns > 0;
                                for (uint32_t k = 0; k < result->n_candidates; k++)
                                        if (result->candidates[k].ns < result->bound.ns * (1 - 1e-9))
                                                fail_msg("%s, %s %s: %g ns, and nothing takes less than %g", files[i],
                                                         plan_operation_name(op),
                                                         plan_algorithm_name(result->candidates[k].plan.algorithm),
                                                         result->candidates[k].ns, result->bound.ns);
                                sim_result_deinit(result);
                                sim_deinit(&sim);
                        }
        assert_true(n_bounds > 60);
        free(result);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_bounds),
                cmocka_unit_test(test_nvlinks),
                cmocka_unit_test(test_nothing_beats),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
