/* SPDX-License-Identifier: MIT */
/* The test data itself: right results pass, each kind of wrong one is found, for all types and numbers of ranks. */
#include <math.h>
#include <railmux/railmux.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/perf/pattern.h"
#include "tools/perf/stats.h"

#define COUNT 300u

static const uint32_t sizes[] = {1, 2, 3, 5, 8, 16, 33, 64};

/* ---- elements as numbers, decoded independently of what makes them ----------------------------------------------- */
static double narrow_load(uint32_t bits, int mantissa_bits, int exponent_bits) {
        int exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
        int mantissa = (int)bits & ((1 << mantissa_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
        double value = exponent == 0 ? ldexp(mantissa, 1 - bias - mantissa_bits)
                                     : ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);

        return bits >> (mantissa_bits + exponent_bits) & 1 ? -value : value;
}

static double load(uint32_t type, const void *base, size_t i) {
        switch (type) {
        case RMX_INT8:
                return ((const int8_t *)base)[i];
        case RMX_UINT8:
                return ((const uint8_t *)base)[i];
        case RMX_INT32:
                return ((const int32_t *)base)[i];
        case RMX_UINT32:
                return ((const uint32_t *)base)[i];
        case RMX_INT64:
                return (double)((const int64_t *)base)[i];
        case RMX_UINT64:
                return (double)((const uint64_t *)base)[i];
        case RMX_FLOAT16:
                return narrow_load(((const uint16_t *)base)[i], 10, 5);
        case RMX_BFLOAT16:
                return narrow_load(((const uint16_t *)base)[i], 7, 8);
        case RMX_FLOAT8_E4M3:
                return narrow_load(((const uint8_t *)base)[i], 3, 4);
        case RMX_FLOAT8_E5M2:
                return narrow_load(((const uint8_t *)base)[i], 2, 5);
        case RMX_FLOAT32:
                return (double)((const float *)base)[i];
        default:
                return ((const double *)base)[i];
        }
}

static double modulus(uint32_t type) {
        return ldexp(1, 8 * (int)rmx_type_size(type));
}

static bool modulus_is_unsigned(uint32_t type) {
        return type == RMX_UINT8 || type == RMX_UINT32 || type == RMX_UINT64;
}

/* Wraps an exact integer into an integer type. */
static double wrap(uint32_t type, double value) {
        double m = modulus(type), r;

        if (type >= RMX_FLOAT16 || fabs(value) < m / 2)
                return type < RMX_FLOAT16 && value < 0 && modulus_is_unsigned(type) ? value + m : value;
        r = value - m * floor(value / m);
        if (!modulus_is_unsigned(type) && r >= m / 2)
                r -= m;
        return r;
}

/* Sums and products wrap the same way with and without sign, and with it their numbers stay small enough for a double.
 */
static uint32_t view(uint32_t type, uint32_t redop) {
        bool wraps = redop != RMX_MAX && redop != RMX_MIN && redop != RMX_AVG;

        return type == RMX_UINT8 && wraps    ? RMX_INT8
               : type == RMX_UINT32 && wraps ? RMX_INT32
               : type == RMX_UINT64 && wraps ? RMX_INT64
                                             : type;
}

static double reduce(uint32_t redop, double a, double b) {
        return redop == RMX_PROD ? a * b : redop == RMX_MAX ? fmax(a, b) : redop == RMX_MIN ? fmin(a, b) : a + b;
}

/* How far half a unit in the last place of a result may be. */
static double half_ulp(uint32_t type, double value) {
        int bits = type == RMX_FLOAT16 ? 11 : type == RMX_BFLOAT16 ? 8 : type == RMX_FLOAT8_E4M3 ? 4 : 3, exponent;

        frexp(value, &exponent);
        return ldexp(1, exponent - bits - 1);
}

/* Is `got` what the operation makes of the ranks' elements? The data promises that partial results are exact. */
static void check_element(const struct pattern *p, const double *in, double got) {
        double up = 0, down = 0, exact = p->type == RMX_FLOAT32 ? 0x1p24 : p->type >= RMX_FLOAT16 ? 0x1p53 : 0x1p62;

        for (uint32_t r = 0; r < p->n_ranks; r++) {
                double a = in[r] * (double)p->factor[r],
                       b = in[p->n_ranks - 1 - r] * (double)p->factor[p->n_ranks - 1 - r];

                up = r == 0 ? a : reduce(p->redop, up, a);
                down = r == 0 ? b : reduce(p->redop, down, b);
                assert_true(fabs(up) <= exact);
        }
        assert_true(up == down);
        if (p->redop != RMX_AVG) {
                assert_true(got == wrap(view(p->type, p->redop), up));
                return;
        }
        up /= p->n_ranks;
        if (p->type < RMX_FLOAT16)
                assert_true(got == wrap(p->type, trunc(up)));
        else if (p->type == RMX_FLOAT64)
                assert_true(got == up);
        else if (p->type == RMX_FLOAT32)
                assert_true(got == (double)(float)up);
        else
                assert_true(fabs(got - up) <= half_ulp(p->type, up) * 1.01);
}

static void check_reduction(uint32_t op, uint32_t type, uint32_t redop, uint32_t n, char *scratch) {
        size_t unit = rmx_type_size(type), elements;
        struct pattern *p = malloc(sizeof(*p));
        double in[64];

        assert_non_null(p);
        assert_int_equal(pattern_init(p, op, type, redop, n, 0), PATTERN_OK);
        elements = pattern_input_elements(p, 0, COUNT);
        for (uint32_t r = 0; r < n; r++)
                pattern_fill(p, r, 7, COUNT, scratch + r * elements * unit);
        for (uint32_t me = 0; me < n; me += n - 1 ? n - 1 : 1) {
                size_t first = op == PATTERN_REDUCE_SCATTER ? me * COUNT : 0;
                char *expected = scratch + (size_t)n * elements * unit;

                pattern_expect(p, me, 7, COUNT, expected);
                assert_int_equal(pattern_wrong_output(p, me, 7, COUNT, expected), 0);
                for (size_t i = 0; i < COUNT; i++) {
                        for (uint32_t r = 0; r < n; r++)
                                in[r] = load(view(type, redop), scratch + r * elements * unit, first + i);
                        check_element(p, in, load(view(type, redop), expected, i));
                }
                expected[13 * unit] = (char)(expected[13 * unit] ^ 1);
                assert_int_equal(pattern_wrong_output(p, me, 7, COUNT, expected), 1);
                expected[13 * unit] = (char)(expected[13 * unit] ^ 1);
                if (redop == RMX_SUM && n < 16)
                        assert_true(pattern_wrong_output(p, me, 8, COUNT, expected) > COUNT / 8); /* stale */
        }
        free(p);
}

static void test_reductions(void **state) {
        char *scratch = malloc(64u * 66u * COUNT * 8u);

        (void)state;
        assert_non_null(scratch);
        for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++)
                for (uint32_t redop = 0; redop < RMX_REDOP_COUNT; redop++)
                        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                                check_reduction(PATTERN_ALL_REDUCE, type, redop, sizes[s], scratch);
                                check_reduction(PATTERN_REDUCE_SCATTER, type, redop, sizes[s], scratch);
                        }
        free(scratch);
}

/* A sum that lacks one rank, or has one twice in place of another, must not look right. */
static void test_ranks_tell_apart(void **state) {
        struct pattern *p = malloc(sizeof(*p));

        (void)state;
        assert_non_null(p);
        for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++)
                for (size_t s = 1; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                        pattern_init(p, PATTERN_ALL_REDUCE, type, RMX_SUM, sizes[s], 0);
                        for (uint32_t a = 0; a < sizes[s]; a++)
                                for (uint32_t b = 0; b < a; b++) {
                                        unsigned int differ = 0, there = 0;

                                        for (uint32_t k = 0; k < PATTERN_PERIOD; k++) {
                                                differ += p->weight[a][k] != p->weight[b][k];
                                                there += p->weight[a][k] != 0;
                                        }
                                        /* 8-bit floats of many ranks: few have a weight, but each somewhere */
                                        assert_true(differ >= 8 && there >= 8);
                                        assert_true(p->common == 0 || differ > PATTERN_PERIOD / 4);
                                }
                }
        free(p);
}

/* Moving data: everybody's output is made of the others' inputs, piece by piece. */
static void test_moves(void **state) {
        static const uint32_t ops[] = {PATTERN_ALL_GATHER, PATTERN_BROADCAST, PATTERN_ALL_TO_ALL, PATTERN_ALL_TO_ALL_V,
                                       PATTERN_GATHER,     PATTERN_SCATTER,   PATTERN_SENDRECV,   PATTERN_ALL_TO_ALL_V};
        const size_t equal = sizeof(ops) / sizeof(ops[0]) - 1; /* that one with whole blocks */
        static char in[5][5 * COUNT * 8], out[5 * COUNT * 8];
        struct pattern *p = malloc(sizeof(*p));

        (void)state;
        assert_non_null(p);
        for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++)
                for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++) {
                        size_t unit = rmx_type_size(type);

                        assert_int_equal(pattern_init(p, ops[o], type, 0, 5, 3), PATTERN_OK);
                        p->equal = o == equal;
                        assert_true(o != equal || pattern_output_elements(p, 2, COUNT) == 5 * COUNT);
                        for (uint32_t r = 0; r < 5; r++) {
                                pattern_fill(p, r, 3, COUNT, in[r]);
                                assert_int_equal(pattern_wrong_input(p, r, 3, COUNT, in[r], 0, 0), 0);
                        }
                        for (uint32_t me = 0; me < 5; me++) {
                                size_t at = 0, from[5] = {0}, n[5] = {0}, all;

                                for (uint32_t r = 0; r < 5; r++) {
                                        switch (ops[o]) {
                                        case PATTERN_ALL_GATHER:
                                                n[r] = COUNT;
                                                break;
                                        case PATTERN_ALL_TO_ALL:
                                                n[r] = COUNT, from[r] = me * COUNT;
                                                break;
                                        case PATTERN_ALL_TO_ALL_V:
                                                n[r] = pattern_vector_count(p, r, me, COUNT);
                                                for (uint32_t k = 0; k < me; k++)
                                                        from[r] += pattern_vector_count(p, r, k, COUNT);
                                                break;
                                        case PATTERN_GATHER:
                                                n[r] = me == 3 ? COUNT : 0;
                                                break;
                                        case PATTERN_SCATTER:
                                                n[r] = r == 3 ? COUNT : 0, from[r] = me * COUNT;
                                                break;
                                        case PATTERN_SENDRECV:
                                                n[r] = r == (me + 4) % 5 ? COUNT : 0;
                                                break;
                                        default:
                                                n[r] = r == 3 ? COUNT : 0;
                                                break;
                                        }
                                        memcpy(out + at * unit, in[r] + from[r] * unit, n[r] * unit);
                                        at += n[r];
                                }
                                all = pattern_output_elements(p, me, COUNT);
                                assert_int_equal(at, all);
                                assert_int_equal(pattern_wrong_output(p, me, 3, COUNT, out), 0);
                                if (all == 0)
                                        continue;
                                out[(all - 1) * unit] = (char)(out[(all - 1) * unit] ^ 4);
                                assert_int_equal(pattern_wrong_output(p, me, 3, COUNT, out), 1);
                                memmove(out, out + unit, (all - 1) * unit); /* shifted by one element */
                                assert_true(pattern_wrong_output(p, me, 3, COUNT, out) > all / 2);
                        }
                }
        assert_int_equal(pattern_init(p, PATTERN_ALL_REDUCE, RMX_TYPE_COUNT, RMX_SUM, 5, 0), PATTERN_E_UNSUPPORTED);
        assert_int_equal(pattern_init(p, PATTERN_ALL_REDUCE, RMX_FLOAT32, RMX_REDOP_COUNT, 5, 0),
                         PATTERN_E_UNSUPPORTED);
        assert_int_equal(pattern_init(p, PATTERN_ALL_REDUCE, RMX_FLOAT32, RMX_SUM, 65, 0), PATTERN_E_UNSUPPORTED);
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
                cmocka_unit_test(test_moves),
                cmocka_unit_test(test_percentiles),
        };

        return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
