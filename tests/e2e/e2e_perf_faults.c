/* SPDX-License-Identifier: MIT */
/*
 * railmux-perf sees what is wrong: single bits that are flipped after a call (spoil.c), wherever a call may not leave
 * one. And its figures are those of their definitions.
 */
#include <jansson.h>
#include <math.h>
#include <railmux/railmux.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cmocka_all.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "tests/e2e/spoil.h"
#include "tools/perf/pattern.h"
#include "util/clock.h"

#define RANKS           3u
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Sizes of nccl-tests: blocks that make one; bus bandwidth is so many times what the size divided by the time is. */
static const struct op {
        const char *name;
        uint32_t op;
        uint32_t blocks;
        double factor;
        bool in_place;
        bool apart; /* in place, the input has blocks that are not the output's */
} ops[] = {
        {"all_reduce", PATTERN_ALL_REDUCE, 1, 2.0 * (RANKS - 1) / RANKS, true, false},
        {"reduce", PATTERN_REDUCE, 1, 1, true, false},
        {"broadcast", PATTERN_BROADCAST, 1, 1, true, false},
        {"all_gather", PATTERN_ALL_GATHER, RANKS, (RANKS - 1.0) / RANKS, true, false},
        {"reduce_scatter", PATTERN_REDUCE_SCATTER, RANKS, (RANKS - 1.0) / RANKS, true, true},
        {"all_to_all", PATTERN_ALL_TO_ALL, RANKS, (RANKS - 1.0) / RANKS, false, false},
        {"all_to_all_v", PATTERN_ALL_TO_ALL_V, RANKS, (RANKS - 1.0) / RANKS, false, false},
        {"gather", PATTERN_GATHER, RANKS, (RANKS - 1.0) / RANKS, true, false},
        {"scatter", PATTERN_SCATTER, RANKS, (RANKS - 1.0) / RANKS, true, true},
        {"sendrecv", PATTERN_SENDRECV, 1, 1, false, false},
};

/* With -w 0 -n 1 call 1 and call 3 are verified, and call 2 with -c 2. */
static int run(struct node *node, const char *op, const char *spoil, const char *check, const char *in_place,
               const char *redop, char *output) {
        const char *argv[] = {node_program("railmux-perf"),
                              op,
                              "--ranks",
                              "3",
                              "-d",
                              "int32",
                              "-b",
                              "12K",
                              "-e",
                              "12K",
                              "-w",
                              "0",
                              "-n",
                              "1",
                              "-r",
                              "1",
                              "-c",
                              check,
                              "--in-place",
                              in_place,
                              "--memory",
                              strcmp(in_place, "1") == 0 ? "shared" : "malloc",
                              "-o",
                              redop,
                              "--socket",
                              node->socket,
                              NULL};
        int status;

        setenv("SPOIL", spoil, 1);
        setenv("LD_PRELOAD", SPOIL_LIBRARY, 1);
        status = proc_run(argv, 60000, output);
        unsetenv("LD_PRELOAD");
        unsetenv("SPOIL");
        return status;
}

static void expect(struct node *node, const char *op, const char *spoil, const char *check, const char *in_place,
                   unsigned int wrong, unsigned int bounds) {
        char *output = malloc(PROC_OUTPUT_MAX), line[2][64];
        int status;

        assert_non_null(output);
        snprintf(line[0], sizeof(line[0]), "# Wrong values         : %u %s\n", wrong, wrong ? "FAILED" : "OK");
        snprintf(line[1], sizeof(line[1]), "# Out of bounds values : %u %s\n", bounds, bounds ? "FAILED" : "OK");
        status = run(node, op, spoil, check, in_place, "sum", output);
        if (status != (wrong || bounds) || !strstr(output, line[0]) || !strstr(output, line[1])) {
                fputs(output, stderr);
                fail_msg("%s -c %s --in-place %s, %s: status %d, and not %u wrong, %u out of bounds", op, check,
                         in_place, spoil, status, wrong, bounds);
        }
        free(output);
}

static void test_flipped(void **state) {
        struct node *node = *state;

        for (size_t i = 0; i < COUNT_OF(ops); i++) {
                const char *op = ops[i].name;

                expect(node, op, "output,1", "1", "0", 1, 0);
                expect(node, op, "output,3", "1", "0", 1, 0);
                expect(node, op, "before,3", "1", "0", 0, 1);
                expect(node, op, "after,1", "1", "0", 0, 1);
                expect(node, op, "input,3", "1", "0", 0, 1);
                expect(node, op, "input-before,1", "1", "0", 0, 1);
                expect(node, op, "input-after,3", "1", "0", 0, 1);
                if (!ops[i].in_place)
                        continue;
                expect(node, op, "output,3", "1", "1", 1, 0);
                expect(node, op, "before,1", "1", "1", 0, 1);
                expect(node, op, "after,3", "1", "1", 0, 1);
                if (ops[i].apart)
                        expect(node, op, "input,1", "1", "1", 0, 1);
        }
        /* A call that is not verified, and the same one with all of them. */
        expect(node, "all_reduce", "output,2", "1", "0", 0, 0);
        expect(node, "all_reduce", "output,2", "2", "0", 1, 0);
        expect(node, "all_reduce", "after,2", "2", "1", 0, 1);
}

static void test_barrier(void **state) {
        char *output = malloc(PROC_OUTPUT_MAX);

        assert_non_null(output);
        expect(*state, "barrier", "leave,0", "2", "0", 0, 0);
        for (unsigned int call = 1; call <= 3; call += 2) {
                char spoil[16];

                snprintf(spoil, sizeof(spoil), "leave,%u", call);
                assert_int_equal(run(*state, "barrier", spoil, "1", "0", "sum", output), 1);
                assert_null(strstr(output, "# Wrong values         : 0"));
                assert_non_null(strstr(output, "# Out of bounds values : 0 OK"));
        }
        free(output);
}

/* Several calls in a graph are verified as one where repeating it changes nothing. */
static void test_repeated(void **state) {
        static const char *const redops[] = {"sum", "prod", "max", "min", "avg", "premul"}; /* by number */
        struct pattern *p = malloc(sizeof(*p));

        assert_non_null(p);
        for (size_t i = 0; i < COUNT_OF(ops); i++)
                for (uint32_t redop = 0; redop < (pattern_op_reduces(ops[i].op) ? RMX_REDOP_COUNT : 1); redop++) {
                        assert_int_equal(pattern_init(p, ops[i].op, RMX_INT32, redop, RANKS, 1), PATTERN_OK);
                        assert_true(pattern_repeats(p, false));
                        assert_int_equal(run(*state, ops[i].name, "repeat,0", "2", "0", redops[redop], NULL), 0);
                        if (ops[i].in_place && pattern_repeats(p, true))
                                assert_int_equal(run(*state, ops[i].name, "repeat,0", "2", "1", redops[redop], NULL),
                                                 0);
                        else if (ops[i].in_place && redop == RMX_SUM)
                                assert_int_equal(run(*state, ops[i].name, "repeat,0", "2", "1", "sum", NULL), 1);
                }
        free(p);
}

/* A rank that is ready must not wait in the call, and in its time, for one that still fills its buffers. */
static void test_together(void **state) {
        for (size_t i = 0; i < COUNT_OF(ops); i++)
                assert_int_equal(run(*state, ops[i].name, "alone,0", "2", "both", "sum", NULL), 0);
}

static double number(const json_t *result, const char *key) {
        return json_number_value(json_object_get(result, key));
}

static void assert_close(double a, double b) {
        if (fabs(a - b) > 1e-6 * fabs(b))
                fail_msg("%.9g is not %.9g", a, b);
}

/* Of calls that take a known time in one rank and less in the others: that of the slowest rank is what counts. */
static void test_figures(void **state) {
        struct node *node = *state;
        char path[128];

        snprintf(path, sizeof(path), "%s/perf.json", node->dir);
        for (size_t i = 0; i < COUNT_OF(ops); i++) {
                const char *argv[] = {node_program("railmux-perf"),
                                      ops[i].name,
                                      "--ranks",
                                      "3",
                                      "-d",
                                      "int32",
                                      "-b",
                                      "12K",
                                      "-e",
                                      "12K",
                                      "-w",
                                      "1",
                                      "-n",
                                      "5",
                                      "-c",
                                      "2",
                                      "--in-place",
                                      "0",
                                      "--equal",
                                      "--memory",
                                      "shared",
                                      "-J",
                                      path,
                                      "--socket",
                                      node->socket,
                                      NULL};
                uint64_t begin_ns = clock_now_ns();
                double bytes, wall_us;
                json_t *root, *result;

                setenv("SPOIL", "slow,0", 1);
                setenv("LD_PRELOAD", SPOIL_LIBRARY, 1);
                assert_int_equal(proc_run(argv, 60000, NULL), 0);
                unsetenv("LD_PRELOAD");
                wall_us = (double)(clock_now_ns() - begin_ns) / 1e3;
                root = json_load_file(path, 0, NULL);
                assert_non_null(root);
                result = json_array_get(json_object_get(root, "results"), 0);
                assert_non_null(result);
                bytes = number(result, "count") * 4 * ops[i].blocks;
                assert_true(number(result, "bytes") == 12288 && bytes == 12288);
                assert_true(number(result, "calls") == 5);
                assert_true(number(result, "time_us") >= 1e3 * SPOIL_SLOW_MS &&
                            5 * number(result, "time_us") < wall_us);
                assert_true(number(result, "p50_us") >= 1e3 * SPOIL_SLOW_MS);
                assert_true(number(result, "p99_us") >= number(result, "p50_us"));
                assert_close(number(result, "algbw_gbs"), bytes / 1e3 / number(result, "time_us"));
                assert_close(number(result, "busbw_gbs"), number(result, "algbw_gbs") * ops[i].factor);
                json_decref(root);
        }
}

static int setup(void **state) {
        static struct node node;

        node = (struct node){.gpus = 4};
        node_start(&node, "perf-faults", true);
        *state = &node;
        return 0;
}

static int teardown(void **state) {
        node_cleanup(*state);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_flipped),  cmocka_unit_test(test_barrier), cmocka_unit_test(test_repeated),
                cmocka_unit_test(test_together), cmocka_unit_test(test_figures),
        };

        return cmocka_run_group_tests_name("perf faults", tests, setup, teardown);
}
