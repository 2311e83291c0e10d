/* SPDX-License-Identifier: MIT */
/* Whole programs against a node: creation of further communicators in time, the examples, the JSON of railmux-perf. */
#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"

#define COMM_P50_US 5000.0

/* A further communicator of eight ranks takes less than 5 ms at the median. */
static void test_comms(void **state) {
        struct node *node = *state;
        char path[128];
        const char *argv[] = {
                node_program("railmux-perf"), "barrier", "--ranks", "8",        "-n",         "10", "--comms",
                proc_full() ? "1000" : "100", "-J",      path,      "--socket", node->socket, NULL};
        const char *keys[] = {"op",       "ranks",  "type",   "redop",     "bytes",     "count",
                              "in_place", "p50_us", "p99_us", "algbw_gbs", "busbw_gbs", "wrong"};
        json_t *root, *comms, *result;
        double p50, p99;

        snprintf(path, sizeof(path), "%s/perf.json", node->dir);
        assert_int_equal(proc_run(argv, 60000, NULL), 0);
        root = json_load_file(path, 0, NULL);
        assert_non_null(root);
        assert_int_equal(json_integer_value(json_object_get(root, "version")), 1);
        assert_true(json_is_object(json_object_get(root, "machine")));
        result = json_array_get(json_object_get(root, "results"), 0);
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
                assert_non_null(json_object_get(result, keys[i]));
        comms = json_object_get(root, "new_communicators");
        assert_non_null(comms);
        p50 = json_number_value(json_object_get(comms, "p50_us"));
        p99 = json_number_value(json_object_get(comms, "p99_us"));
        printf("a further communicator of 8 ranks: p50 %.2f ms, p99 %.2f ms\n", p50 / 1e3, p99 / 1e3);
        json_decref(root);
        assert_true(p50 > 0);
        if (p50 > COMM_P50_US * proc_time_scale())
                fail_msg("p50 %.0f us is above %.0f us", p50, COMM_P50_US * proc_time_scale());
}

static void run_transformer(const struct node *node, const char *ranks) {
        const char *argv[] = {node_program("transformer"), "--ranks", ranks, "--socket", node->socket, NULL};
        char *output = malloc(PROC_OUTPUT_MAX);
        int status;

        assert_non_null(output);
        status = proc_run(argv, 60000, output);
        fputs(output, status == 0 ? stdout : stderr);
        assert_int_equal(status, 0);
        assert_non_null(strstr(output, "identical: "));
        free(output);
}

static void test_transformer(void **state) {
        run_transformer(*state, "4");
        run_transformer(*state, "2");
        run_transformer(*state, "8");
}

static void test_hello(void **state) {
        struct node *node = *state;
        const char *argv[] = {node_program("hello"), "5", NULL};
        char *output = malloc(PROC_OUTPUT_MAX);

        assert_non_null(output);
        setenv("RAILMUX_SOCKET", node->socket, 1);
        assert_int_equal(proc_run(argv, 20000, output), 0);
        unsetenv("RAILMUX_SOCKET");
        assert_non_null(strstr(output, "rank 4 of 5: the sum of all ranks is 10"));
        free(output);
}

/* Wrong usage is told from failure: nothing is sent, and the text says what is allowed. */
static void test_usage(void **state) {
        struct node *node = *state;
        const char *operation[] = {node_program("railmux-perf"), "send", "--socket", node->socket, NULL};
        const char *type[] = {node_program("railmux-perf"), "all_reduce", "-d", "fp4", "--socket", node->socket, NULL};
        const char *root[] = {node_program("railmux-perf"), "broadcast", "--ranks", "4", "-r", "4", NULL};
        const char *graphs[] = {node_program("railmux-perf"), "all_reduce", "-G", "1", "--socket", node->socket, NULL};
        const char *nobody[] = {
                node_program("railmux-perf"), "all_reduce", "-G", "1", "--socket", "/nonexistent/s", NULL};
        char *output = malloc(PROC_OUTPUT_MAX);

        assert_int_equal(proc_run(operation, 10000, NULL), 2);
        assert_int_equal(proc_run(type, 10000, NULL), 2);
        assert_int_equal(proc_run(root, 10000, NULL), 2);
        assert_int_equal(proc_run(graphs, 10000, NULL), 2);
        assert_non_null(output); /* whether it serves GPUs, only a daemon tells */
        assert_int_equal(proc_run_quiet(nobody, 10000, output), 3);
        assert_non_null(strstr(output, "RMX_E_NO_DAEMON: "));
        free(output);
}

static int setup(void **state) {
        struct node *node = calloc(1, sizeof(*node));

        assert_non_null(node);
        *state = node;
        node_start(node, "programs", true);
        return 0;
}

static int teardown(void **state) {
        struct node *node = *state;

        node_stop(node);
        node_cleanup(node);
        free(node);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_comms),
                cmocka_unit_test(test_transformer),
                cmocka_unit_test(test_hello),
                cmocka_unit_test(test_usage),
        };

        return cmocka_run_group_tests_name("programs", tests, setup, teardown);
}
