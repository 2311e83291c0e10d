/* SPDX-License-Identifier: MIT */
/* GPUs of one node: predictions against measurements (tests/sim/data) that the constants are not from, and those. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "ring/ring.h"
#include "tests/cmocka_all.h"
#include "tools/sim/cluster_run.h"
#include "tools/sim/sim.h"

/* What railmuxd's table says runs there. */
static double us_of_ranks(const char *name, uint32_t n_ranks, uint32_t operation, double bytes) {
        struct cluster_form form;
        struct cluster_table table;
        struct cluster_look look;
        struct cluster cluster;
        char error[256] = "";

        if (cluster_load(name, &cluster, &form, error, sizeof(error)))
                fail_msg("%s: %s", name, error);
        cluster.n_nodes = 1;
        cluster_gpus(&cluster, n_ranks);
        assert_int_equal(cluster_table_make(&cluster, &form, false, &table), 0);
        cluster_look(&cluster, operation, bytes, &(struct cluster_wish){.table = &table}, &look);
        assert_in_range(look.chosen, 0, look.n_choices - 1);
        return look.choices[look.chosen].ns / 1000;
}

static double us_of(const char *name, uint32_t operation, double bytes) {
        return us_of_ranks(name, 8, operation, bytes);
}

/* Compares, and the row of docs/plans.md. */
static void near(const char *of, double bytes, bool fitted, double predicted, double measured, double most) {
        double error = fabs(predicted / measured - 1);
        static char plans[1u << 18];
        FILE *file = fopen(PLANS_MD, "re");
        char row[256];

        assert_non_null(file);
        assert_true(fread(plans, 1, sizeof(plans) - 1, file) > 0);
        fclose(file);
        snprintf(row, sizeof(row), "| %s | %.0f%s | %.2f | %.2f | %.1f %% |\n", of, bytes, fitted ? " *" : "",
                 predicted, measured, 100 * error);
        print_message("  %s", row);
        if (error > (fitted ? 0.01 : most))
                fail_msg("%s, %.0f bytes: %.2f us, and %.2f were measured", of, bytes, predicted, measured);
        if (!strstr(plans, row))
                fail_msg("docs/plans.md has no row: %s", row);
}

/* All lines of a file, by their numbers; a word may stand before these. Returns how many. */
static uint32_t each(const char *path, void (*line)(const double number[4], const char *text)) {
        FILE *file = fopen(path, "re");
        char text[256];
        uint32_t n = 0;

        assert_non_null(file);
        while (fgets(text, sizeof(text), file)) {
                double number[4] = {0};

                if (sscanf(text[0] > '9' && strchr(text, ',') ? strchr(text, ',') + 1 : text, "%lf,%lf,%lf,%lf",
                           &number[0], &number[1], &number[2], &number[3]) < 2)
                        continue;
                line(number, text);
                n++;
        }
        fclose(file);
        return n;
}

/* railmux-sim OP --topology FILE says the same. */
static double us_on(const char *path, uint32_t n_ranks, uint32_t operation, uint64_t bytes) {
        const struct options options = {
                .operation = operation, .ranks = n_ranks, .ranks_given = true, .type = RMX_BFLOAT16, .topology = path};
        struct sim_result *result = calloc(1, sizeof(*result));
        char error[OPTIONS_ERROR_MAX];
        struct sim sim;
        double us = 0;

        assert_non_null(result);
        assert_int_equal(sim_init(&sim, &options, error), 0);
        assert_non_null(sim.source);
        assert_int_equal(sim_look(&sim, bytes, result), 0);
        for (uint32_t i = 0; i < result->n_candidates; i++)
                if (result->candidates[i].chosen)
                        us = result->candidates[i].ns / 1000;
        sim_result_deinit(result);
        sim_deinit(&sim);
        free(result);
        return us;
}

/* Whichever way it is asked, also for a part of the GPUs. */
static void check_same(const char *name, const char *path) {
        for (uint32_t n = 2; n <= 8; n *= 2)
                for (uint64_t bytes = 1024; bytes <= 64 << 20; bytes *= 4) {
                        double want = us_of_ranks(name, n, RING_OP_ALL_REDUCE, (double)bytes);
                        double us = us_on(path, n, RING_OP_ALL_REDUCE, bytes);

                        assert_true(fabs(us_of_ranks(path, n, RING_OP_ALL_REDUCE, (double)bytes) / want - 1) < 0.001);
                        if (fabs(us / want - 1) > 0.01)
                                fail_msg("%s, %u ranks, %llu bytes: %.2f us, and %s takes %.2f", path, n,
                                         (unsigned long long)bytes, us, name, want);
                }
}

static void h200_line(const double number[4], const char *text) {
        bool reduce = strncmp(text, "all_reduce", 10) == 0, fitted = number[0] == 262144 || number[0] == 67108864;

        /* all_gather: its bytes are those of all blocks. */
        near(reduce ? "all_reduce, 8 H200" : "all_gather, 8 H200", number[0], reduce && fitted,
             us_of("h200:1x8", reduce ? RING_OP_ALL_REDUCE : RING_OP_ALL_GATHER, reduce ? number[0] : number[0] / 8),
             number[1], 0.2);
}

static void test_h200(void **state) {
        (void)state;
        assert_int_equal(each(DATA_DIR "/h200_1node.csv", h200_line), 14);
        check_same("h200:1x8", FIXTURES "/h200-8x8.xml");
}

static void sglang_line(const double number[4], const char *text) {
        (void)text;
        near("all_reduce, 8 GPUs, sglang", 1024 * number[0], false,
             us_of("h200:1x8", RING_OP_ALL_REDUCE, 1024 * number[0]), number[3], 0.3);
}

static void test_sglang(void **state) {
        (void)state;
        assert_int_equal(each(DATA_DIR "/sglang_mscclpp_1node_tp8.csv", sglang_line), 10);
}

static void mi300x_line(const double number[4], const char *text) {
        (void)text;
        near("all_reduce, 8 MI300X", number[0], number[0] == 131072 || number[0] == 268435456,
             us_of("mi300x:1x8", RING_OP_ALL_REDUCE, number[0]), number[1], 0.25);
}

static void test_mi300x(void **state) {
        (void)state;
        assert_int_equal(each(DATA_DIR "/rccl_dda_8rank_fp32_allreduce_pr10072.csv", mi300x_line), 12);
        check_same("mi300x:1x8", FIXTURES "/mi300x-8x8.xml");
}

/* Links whose speed nobody knows would carry anything in no time. */
static void test_no_speeds(void **state) {
        char text[1u << 16], path[] = "no-speeds-XXXXXX", *at = text;
        struct options options = {.operation = RING_OP_ALL_REDUCE, .ranks = 8, .type = RMX_BFLOAT16, .topology = path};
        char error[OPTIONS_ERROR_MAX];
        FILE *file = fopen(FIXTURES "/mi300x-8x8.xml", "re");
        struct sim sim;
        int fd;

        (void)state;
        assert_non_null(file);
        text[fread(text, 1, sizeof(text) - 1, file)] = 0;
        fclose(file);
        at = strstr(text, "kind=\"xgmi\" bytes_per_second"); /* of one of them */
        assert_non_null(at);
        at = strstr(at, "bytes_per_second");
        memset(at, ' ', strcspn(at, "/"));
        fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        close(fd);
        assert_int_equal(sim_init(&sim, &options, error), 0);
        assert_true(sim.hops_and_links);
        assert_null(sim.source); /* nothing is predicted */
        sim_deinit(&sim);
        unlink(path);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_h200),
                cmocka_unit_test(test_sglang),
                cmocka_unit_test(test_mi300x),
                cmocka_unit_test(test_no_speeds),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
