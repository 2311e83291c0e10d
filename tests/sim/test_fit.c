/* SPDX-License-Identifier: MIT */
/* Constants: files, and fitting them to measurements that were made up from known ones. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/constants.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "tests/cmocka_all.h"
#include "tools/sim/measured.h"

static const struct plan_constants truth = {
        .request_ns = 4000,
        .hop_ns = 900,
        .ns_per_phase = 35,
        .ns_per_chunk = 60,
        .ns_per_signal = 25,
        .ns_per_byte_copy = 0.05,
        .ns_per_byte_reduce = 0.11,
        .ns_per_byte_fold = 0.2,
        .ns_per_turn = 80,
        .parallel = 2,
};

static void write_file(char path[64], const char *text) {
        int fd;

        snprintf(path, 64, "%s", "/tmp/railmux-sim-XXXXXX");
        fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        close(fd);
}

/* All plans of 2 to 8 ranks, many sizes; `noise` is the largest error of a line. */
static void make_up(struct fit *fit, double noise) {
        srand(7);
        for (uint32_t n = 2; n <= 8; n *= 2)
                for (uint32_t op = 0; op < RING_OP_COUNT; op++)
                        for (uint32_t k = 0; plan_algorithm_at(op, n, k) != PLAN_ALGORITHM_NONE; k++)
                                for (uint64_t count = 2; count <= 1 << 22; count *= 8) {
                                        struct fit_line line = {.operation = op,
                                                                .algorithm = plan_algorithm_at(op, n, k),
                                                                .n_ranks = n,
                                                                .element_bytes = 4,
                                                                .partial_bytes = 4,
                                                                .count = count};
                                        struct plan plan;

                                        plan_build(op, line.algorithm, n, &plan);
                                        line.measured_ns = plan_cost_ns(&plan, &truth, count, 4) *
                                                           (1 + noise * (rand() % 2001 - 1000) / 1000);
                                        assert_int_equal(fit_add(fit, &line), 0);
                                }
}

static void test_recovers(void **state) {
        struct plan_constants fitted, sought = truth;
        struct fit fit = {0};
        struct fit_quality quality;

        (void)state;
        plan_constants_host(&fitted, 2);
        make_up(&fit, 0);
        assert_int_equal(fit_run(&fit, &fitted, &quality), 0);
        assert_true(quality.error_before > 0.3);
        if (quality.error >= 0.02)
                fail_msg("still %.1f %% wrong", 100 * quality.error);
        for (uint32_t j = 0; j < CONSTANTS_N; j++)
                /* Phases and turns are slivers of any request. */
                if (fabs(*constants_at(&fitted, j) / *constants_at(&sought, j) - 1) >
                    (strcmp(constants_name(j), "ns_per_phase") && strcmp(constants_name(j), "ns_per_turn") ? 0.1 : 0.5))
                        fail_msg("%s is %f, not %f", constants_name(j), *constants_at(&fitted, j),
                                 *constants_at(&sought, j));
        fit_deinit(&fit);

        plan_constants_host(&fitted, 2);
        make_up(&fit, 0.2);
        assert_int_equal(fit_run(&fit, &fitted, &quality), 0);
        assert_true(quality.error < 0.13);
        assert_true(fabs(fitted.ns_per_byte_copy / truth.ns_per_byte_copy - 1) < 0.1);
        assert_true(fabs(fitted.ns_per_byte_fold / truth.ns_per_byte_fold - 1) < 0.1);
        fit_deinit(&fit);
}

/* What no measurement speaks of stays. */
static void test_keeps(void **state) {
        const struct fit_line line = {.operation = RING_OP_ALL_GATHER,
                                      .algorithm = PLAN_DIRECT,
                                      .n_ranks = 4,
                                      .element_bytes = 4,
                                      .partial_bytes = 4,
                                      .count = 1 << 20,
                                      .measured_ns = 1e7};
        struct plan_constants fitted, host;
        struct fit_quality quality;
        struct fit fit = {0};

        (void)state;
        plan_constants_host(&host, 2);
        fitted = host;
        assert_int_equal(fit_run(&fit, &fitted, &quality), -EINVAL);
        assert_int_equal(fit_add(&fit, &line), 0);
        assert_int_equal(fit_run(&fit, &fitted, &quality), 0);
        assert_true(fitted.ns_per_byte_copy > 2 * host.ns_per_byte_copy);
        assert_true(fabs(fitted.ns_per_byte_fold / host.ns_per_byte_fold - 1) < 1e-6);
        assert_true(fabs(fitted.ns_per_signal / host.ns_per_signal - 1) < 1e-6);
        assert_true(quality.error < 0.01);
        fit_deinit(&fit);
}

static void test_files(void **state) {
        static const char *const bad[] = {
                "{\"version\": 1}",
                "{\"version\": 2, \"constants\": {\"hop_ns\": 1}}",
                "{\"version\": 1, \"constants\": {}}",
                "{\"version\": 1, \"constants\": {\"hop_ns\": -1}}",
                "{\"version\": 1, \"constants\": {\"hop_ns\": 1e99}}",
                "{\"version\": 1, \"constants\": {\"hop_ns\": \"1\"}}",
                "{\"version\": 1, \"constants\": {\"hop\": 1}}",
                "{\"version\": 1, \"constants\": {\"hop_ns\": 1, \"hop\": 1}}",
                "{\"version\": 1, \"constants\": [1]}",
                "{\"version\": 1, \"constants\": {\"hop_ns\": 1, \"hop_ns\": 2}}",
                "{\"version\": 1, \"constants\": {\"parallel\": 2}}",
                "[",
                "",
        };
        struct plan_constants constants, copy;
        char path[64], error[256];
        json_t *document;

        (void)state;
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                write_file(path, bad[i]);
                copy = constants = truth;
                error[0] = '\0';
                assert_int_equal(constants_load(path, &constants, error, sizeof(error)), -EINVAL);
                assert_true(error[0] != '\0');
                assert_memory_equal(&constants, &copy, sizeof(copy));
                assert_int_equal(constants_load(path, &constants, error, 1), -EINVAL);
                assert_int_equal(constants_parse(bad[i], strlen(bad[i]), &constants, error, sizeof(error)), -EINVAL);
                assert_memory_equal(&constants, &copy, sizeof(copy));
                unlink(path);
        }
        write_file(path, "{\"version\": 1, \"constants\": {\"hop_ns\": 7.5, \"ns_per_phase\": 0}}");
        constants = truth;
        assert_int_equal(constants_load(path, &constants, error, sizeof(error)), 0);
        assert_true(constants.hop_ns == 7.5 && constants.ns_per_phase == 0 && constants.ns_per_chunk == 60);
        document = constants_json(&truth);
        assert_int_equal(json_dump_file(document, path, 0), 0);
        json_decref(document);
        plan_constants_host(&constants, 2);
        assert_int_equal(constants_load(path, &constants, error, sizeof(error)), 0);
        for (uint32_t j = 0; j < CONSTANTS_N; j++) {
                copy = truth;
                assert_true(fabs(*constants_at(&constants, j) / *constants_at(&copy, j) - 1) < 1e-9);
        }
        unlink(path);
}

/* What is given goes over what is there, be it zero; the rest and `parallel` stay. */
static void test_merge(void **state) {
        enum { SIZE = offsetof(struct plan_constants, parallel) + sizeof(uint32_t) }; /* no padding */
        static const char text[] = "{\"version\": 1, \"constants\": {\"hop_ns\": 7, \"ns_per_turn\": 0}}";
        struct plan_constants given, constants = truth, expected = truth;
        char error[256];

        (void)state;
        constants_clear(&given);
        constants_merge(&constants, &given);
        assert_memory_equal(&constants, &expected, SIZE);
        assert_int_equal(constants_parse(text, strlen(text), &given, error, sizeof(error)), 0);
        constants_merge(&constants, &given);
        expected.hop_ns = 7;
        expected.ns_per_turn = 0;
        assert_memory_equal(&constants, &expected, SIZE);
}

static void test_measured(void **state) {
        static const char text[] =
                "{\"results\": ["
                "{\"op\": \"all_reduce\", \"ranks\": 4, \"type\": \"bf16\", \"count\": 100, \"p50_us\": 9, "
                "\"time_us\": 10},"
                "{\"op\": \"gather\", \"ranks\": 2, \"type\": \"fp64\", \"count\": 5, \"p50_us\": 0, \"time_us\": 3},"
                "{\"op\": \"barrier\", \"ranks\": 2, \"type\": \"none\", \"count\": 0, \"p50_us\": 1, \"time_us\": 1,"
                " \"algorithm\": \"recursive_doubling\"},"
                "{\"op\": \"barrier\", \"ranks\": 2, \"type\": \"none\", \"count\": 0, \"p50_us\": 0, \"time_us\": "
                "0}]}";
        static const char *const bad[] = {"{}", "[]", "{\"results\": [{}]}",
                                          "{\"results\": [{\"op\": \"x\", \"type\": \"bf16\", \"ranks\": 1}]}",
                                          "{\"results\": [{\"op\": \"barrier\", \"type\": \"none\", \"ranks\": 65}]}"};
        struct options options = {.algorithm = PLAN_ALGORITHM_NONE};
        size_t left_out[MEASURED_LEFT_OUT_N] = {0};
        char path[64], name[96], error[OPTIONS_ERROR_MAX];
        struct fit fit = {0};

        (void)state;
        write_file(path, text);
        assert_int_equal(measured_load(&fit, path, &options, &truth, left_out, error), 0);
        assert_int_equal(fit.n_lines, 3);
        assert_int_equal(fit.lines[0].element_bytes, 2);
        assert_int_equal(fit.lines[0].partial_bytes, 4);
        assert_true(fit.lines[0].measured_ns == 9000);
        assert_int_equal(fit.lines[1].operation, RING_OP_GATHER);
        assert_true(fit.lines[1].measured_ns == 3000);
        assert_int_equal(fit.lines[2].algorithm, PLAN_RECURSIVE_DOUBLING);
        fit_deinit(&fit);
        options.algorithm = PLAN_RING; /* exists for one of them; the barrier says itself */
        assert_int_equal(measured_load(&fit, path, &options, &truth, left_out, error), 0);
        assert_int_equal(fit.n_lines, 2);
        assert_int_equal(fit.lines[0].algorithm, PLAN_RING);
        fit_deinit(&fit);
        snprintf(name, sizeof(name), "tree=%s", path);
        assert_int_equal(measured_load(&fit, name, &options, &truth, left_out, error), 0);
        assert_int_equal(fit.n_lines, 1);
        assert_int_equal(fit.lines[0].algorithm, PLAN_TREE);
        fit_deinit(&fit);
        options.ranks_given = true;
        options.ranks = 3;
        assert_int_equal(measured_load(&fit, path, &options, &truth, left_out, error), 0);
        assert_int_equal(fit.n_lines, 0);
        unlink(path);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                write_file(path, bad[i]);
                assert_int_equal(measured_load(&fit, path, &options, &truth, left_out, error), -EINVAL);
                unlink(path);
        }
        assert_int_equal(measured_load(&fit, "/nowhere", &options, &truth, left_out, error), -EINVAL);
        for (uint32_t i = 0; i < MEASURED_LEFT_OUT_N; i++)
                assert_int_equal(left_out[i], 0);
        fit_deinit(&fit);
}

/* railmux-perf's sendrecv is a ring, and its all_to_all_v uneven unless it says otherwise. */
static void test_left_out(void **state) {
        static const char text[] =
                "{\"results\": ["
                "{\"op\": \"sendrecv\", \"ranks\": 2, \"type\": \"fp64\", \"count\": 5, \"p50_us\": 3},"
                "{\"op\": \"sendrecv\", \"ranks\": 1, \"type\": \"fp64\", \"count\": 5, \"p50_us\": 3},"
                "{\"op\": \"sendrecv\", \"ranks\": 1, \"type\": \"fp64\", \"count\": 5, \"p50_us\": 0},"
                "{\"op\": \"all_to_all_v\", \"ranks\": 4, \"type\": \"fp32\", \"count\": 1, \"p50_us\": 4},"
                "{\"op\": \"all_to_all_v\", \"ranks\": 4, \"type\": \"fp32\", \"count\": 2, \"p50_us\": 4, \"equal\": "
                "false},"
                "{\"op\": \"all_to_all_v\", \"ranks\": 4, \"type\": \"fp32\", \"count\": 3, \"p50_us\": 4, \"equal\": "
                "false},"
                "{\"op\": \"all_to_all_v\", \"ranks\": 4, \"type\": \"fp32\", \"count\": 4, \"p50_us\": 4, \"equal\": "
                "true}]}";
        struct options options = {.algorithm = PLAN_ALGORITHM_NONE};
        size_t left_out[MEASURED_LEFT_OUT_N] = {0};
        char path[64], error[OPTIONS_ERROR_MAX];
        struct fit fit = {0};

        (void)state;
        write_file(path, text);
        assert_int_equal(measured_load(&fit, path, &options, &truth, left_out, error), 0);
        assert_int_equal(left_out[MEASURED_RING], 2); /* one has no time at all */
        assert_int_equal(left_out[MEASURED_UNEVEN], 3);
        assert_int_equal(fit.n_lines, 1);
        assert_int_equal(fit.lines[0].operation, RING_OP_ALL_TO_ALL_V);
        assert_int_equal(fit.lines[0].count, 4);
        fit_deinit(&fit);
        unlink(path);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_recovers), cmocka_unit_test(test_keeps),    cmocka_unit_test(test_files),
                cmocka_unit_test(test_merge),    cmocka_unit_test(test_measured), cmocka_unit_test(test_left_out),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
