/* SPDX-License-Identifier: MIT */
/* The test data itself: right results pass, each kind of wrong one is found, for all types and numbers of ranks. */
#include <math.h>
#include <railmux/railmux.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/perf/pattern.h"
#include "tools/perf/stats.h"

#define COUNT 300u

static const uint32_t types[] = {RMX_FLOAT32, RMX_BFLOAT16, RMX_INT32};
static const uint32_t sizes[] = {1, 2, 3, 5, 8, 16, 64};

static double load(uint32_t type, const void *base, size_t i) {
        uint32_t bits;
        float f;

        if (type == RMX_INT32)
                return ((const int32_t *)base)[i];
        bits = type == RMX_BFLOAT16 ? (uint32_t)((const uint16_t *)base)[i] << 16 : ((const uint32_t *)base)[i];
        memcpy(&f, &bits, sizeof(f));
        return (double)f;
}

static void store(uint32_t type, void *base, size_t i, double value) {
        float f = (float)value;
        uint32_t bits;

        memcpy(&bits, &f, sizeof(bits));
        if (type == RMX_INT32)
                ((int32_t *)base)[i] = (int32_t)value;
        else if (type == RMX_BFLOAT16)
                ((uint16_t *)base)[i] = (uint16_t)(bits >> 16);
        else
                ((uint32_t *)base)[i] = bits;
}

static double reduce(uint32_t redop, double a, double b) {
        return redop == RMX_SUM ? a + b : redop == RMX_PROD ? a * b : redop == RMX_MAX ? fmax(a, b) : fmin(a, b);
}

/* What the data promises: every partial reduction in any order is exact in the type. Checked in two orders. */
static void check_reduction(uint32_t op, uint32_t type, uint32_t redop, uint32_t n, char *scratch) {
        size_t unit = rmx_type_size(type), elements;
        struct pattern *p = malloc(sizeof(*p));
        char *output = scratch + (size_t)n * n * COUNT * unit;

        assert_non_null(p);
        assert_int_equal(pattern_init(p, op, type, redop, n, 0), PATTERN_OK);
        elements = pattern_input_elements(p, COUNT);
        for (uint32_t r = 0; r < n; r++)
                pattern_fill(p, r, 7, COUNT, scratch + r * elements * unit);
        for (uint32_t me = 0; me < n; me += n - 1 ? n - 1 : 1) {
                size_t first = op == PATTERN_REDUCE_SCATTER ? me * COUNT : 0;

                for (size_t i = 0; i < COUNT; i++) {
                        double up = load(type, scratch, first + i),
                               down = load(type, scratch + (n - 1) * elements * unit, first + i);

                        for (uint32_t r = 1; r < n; r++) {
                                up = reduce(redop, up, load(type, scratch + r * elements * unit, first + i));
                                down = reduce(redop, down,
                                              load(type, scratch + (n - 1 - r) * elements * unit, first + i));
                                store(type, output, i, up);
                                assert_true(load(type, output, i) == up);
                        }
                        assert_true(up == down);
                        store(type, output, i, up);
                }
                assert_int_equal(pattern_wrong_output(p, me, 7, COUNT, output), 0);
                output[13 * unit] = (char)(output[13 * unit] ^ 1);
                assert_int_equal(pattern_wrong_output(p, me, 7, COUNT, output), 1);
                output[13 * unit] = (char)(output[13 * unit] ^ 1);
                if (redop == RMX_SUM)
                        assert_true(pattern_wrong_output(p, me, 8, COUNT, output) > COUNT / 4); /* stale */
        }
        free(p);
}

static void test_reductions(void **state) {
        char *scratch = malloc(64u * 65u * COUNT * 4u + COUNT * 4u);

        (void)state;
        assert_non_null(scratch);
        for (size_t t = 0; t < 3; t++)
                for (uint32_t redop = 0; redop < 4; redop++)
                        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                                check_reduction(PATTERN_ALL_REDUCE, types[t], redop, sizes[s], scratch);
                                check_reduction(PATTERN_REDUCE_SCATTER, types[t], redop, sizes[s], scratch);
                        }
        free(scratch);
}

/* A sum that lacks one rank, or has one twice in place of another, must not look right. */
static void test_ranks_tell_apart(void **state) {
        struct pattern *p = malloc(sizeof(*p));

        (void)state;
        assert_non_null(p);
        for (size_t t = 0; t < 3; t++)
                for (size_t s = 1; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                        pattern_init(p, PATTERN_ALL_REDUCE, types[t], RMX_SUM, sizes[s], 0);
                        for (uint32_t a = 0; a < sizes[s]; a++)
                                for (uint32_t b = 0; b < a; b++) {
                                        unsigned int same = 0;

                                        for (uint32_t k = 0; k < PATTERN_PERIOD; k++)
                                                same += p->weight[a][k] == p->weight[b][k];
                                        assert_true(same < PATTERN_PERIOD / 2);
                                }
                }
        free(p);
}

static void test_copies(void **state) {
        static uint32_t all[5 * COUNT], one[COUNT];
        struct pattern *p = malloc(sizeof(*p));

        (void)state;
        assert_non_null(p);
        assert_int_equal(pattern_init(p, PATTERN_ALL_GATHER, RMX_FLOAT32, 0, 5, 0), PATTERN_OK);
        for (uint32_t r = 0; r < 5; r++)
                pattern_fill(p, r, 3, COUNT, all + r * COUNT);
        assert_int_equal(pattern_wrong_output(p, 2, 3, COUNT, all), 0);
        memcpy(one, all, sizeof(one));
        memcpy(all, all + COUNT, sizeof(one));
        memcpy(all + COUNT, one, sizeof(one)); /* blocks swapped */
        assert_true(pattern_wrong_output(p, 2, 3, COUNT, all) > COUNT);

        assert_int_equal(pattern_init(p, PATTERN_BROADCAST, RMX_INT32, 0, 5, 3), PATTERN_OK);
        pattern_fill(p, 3, 4, COUNT, one);
        assert_int_equal(pattern_wrong_output(p, 1, 4, COUNT, one), 0);
        assert_int_equal(pattern_wrong_input(p, 3, 4, COUNT, one, 0, 0), 0);
        one[COUNT - 1] ^= 1u << 31;
        assert_int_equal(pattern_wrong_output(p, 1, 4, COUNT, one), 1);
        assert_int_equal(pattern_wrong_input(p, 3, 4, COUNT, one, COUNT - 1, 1), 0);
        memmove(one, one + 1, (COUNT - 1) * sizeof(*one)); /* shifted by one element */
        assert_true(pattern_wrong_output(p, 1, 4, COUNT, one) > COUNT / 2);

        assert_int_equal(pattern_init(p, PATTERN_ALL_REDUCE, RMX_FLOAT64, RMX_SUM, 5, 0), PATTERN_E_UNSUPPORTED);
        assert_int_equal(pattern_init(p, PATTERN_ALL_REDUCE, RMX_FLOAT32, RMX_AVG, 5, 0), PATTERN_E_UNSUPPORTED);
        free(p);
}

static void test_percentiles(void **state) {
        uint64_t values[] = {5, 1, 4, 2, 3}, more[] = {1, 9, 1, 1, 1};

        (void)state;
        stats_sort(values, 5);
        assert_int_equal(stats_percentile(values, 5, 50), 3);
        assert_int_equal(stats_percentile(values, 5, 99), 5);
        assert_int_equal(stats_percentile(values, 5, 0), 1);
        assert_int_equal(stats_percentile(values, 1, 99), 1);
        stats_keep_max(values, more, 5);
        assert_int_equal(values[1], 9);
        assert_int_equal(values[0], 1);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_reductions),
                cmocka_unit_test(test_ranks_tell_apart),
                cmocka_unit_test(test_copies),
                cmocka_unit_test(test_percentiles),
        };

        return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
