/* SPDX-License-Identifier: MIT */
/* Reduction kernels of every instruction set against the reference, bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/host/reduce.h"
#include "reference.h"
#include "util/type.h"

#define RANKS_MAX 64u

static const struct reduce_kernels *kernels_next(unsigned int *at) {
        return reduce_kernels_at((*at)++);
}

/* One shape on one set of kernels. offset: bytes by which everything is out of alignment. in_place: which source is the
 * output. */
static void check_shape(const struct reduce_kernels *kernels, uint32_t type, uint32_t redop, enum reference_style style,
                        uint32_t n, size_t length, size_t offset, int in_place) {
        size_t size = type_size(type), bytes = size * length;
        unsigned char *block[RANKS_MAX], *out_block = malloc(bytes + 64), *out = out_block + offset,
                                         *want = malloc(bytes + 1);
        const void *source[RANKS_MAX];

        for (uint32_t r = 0; r < n; r++) {
                block[r] = malloc(bytes + 64);
                source[r] = block[r] + offset;
                reference_fill(block[r] + offset, type, redop, style, 7 * length + n, r, length);
        }
        memset(out_block, 0xdb, bytes + 64);
        for (size_t i = 0; i < length; i++)
                reference_reduce(type, redop, source, n, i, want + i * size);
        if (in_place >= 0)
                out = block[in_place] + offset;

        kernels->fn[type][redop](out, source, n, length);

        if (memcmp(out, want, bytes) != 0)
                for (size_t i = 0; i < length; i++)
                        if (memcmp(out + i * size, want + i * size, size) != 0)
                                fail_msg("%s: type %u redop %u style %d sources %u length %zu offset %zu: element %zu",
                                         kernels->name, type, redop, (int)style, n, length, offset, i);
        if (in_place < 0)
                for (size_t i = 0; i < 64 - offset; i++)
                        assert_int_equal(out[bytes + i], 0xdb);
        for (uint32_t r = 0; r < n; r++)
                free(block[r]);
        free(out_block);
        free(want);
}

static void check_type(const struct reduce_kernels *kernels, uint32_t type, uint32_t redop) {
        static const uint32_t ranks[] = {1, 2, 3, 4, 5, 6, 8, 9, 16, 33, 64};
        static const size_t lengths[] = {0, 1, 3, 15, 16, 17, 61, 511, 512, 513, 1500};

        for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
                for (size_t j = 0; j < sizeof(lengths) / sizeof(lengths[0]); j++) {
                        enum reference_style style = (enum reference_style)((i + j) % REFERENCE_STYLE_COUNT);
                        int in_place = (i + j) % 2 ? (int)(j % ranks[i]) : -1;

                        check_shape(kernels, type, redop, style, ranks[i], lengths[j], (i * 5 + j) % 3, in_place);
                }
}

static void test_kernels_agree_with_reference(void **state) {
        const struct reduce_kernels *kernels;
        unsigned int at = 0, n_checked = 0;

        (void)state;
        while ((kernels = kernels_next(&at)))
                for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++)
                        for (uint32_t redop = 0; redop < RMX_REDOP_COUNT; redop++) {
                                assert_int_equal(!!kernels->fn[type][redop], reduce_supported(type, redop));
                                if (!kernels->fn[type][redop])
                                        continue;
                                check_type(kernels, type, redop);
                                n_checked++;
                        }
        assert_int_equal(n_checked, (at - 1) * 10 * RMX_REDOP_COUNT);
}

static void test_supported(void **state) {
        (void)state;
        assert_true(reduce_supported(RMX_FLOAT32, RMX_SUM));
        assert_true(reduce_supported(RMX_BFLOAT16, RMX_MIN));
        assert_false(reduce_supported(RMX_FLOAT8_E4M3, RMX_SUM));
        assert_false(reduce_supported(RMX_FLOAT8_E5M2, RMX_MAX));
        assert_false(reduce_supported(RMX_TYPE_COUNT, RMX_SUM));
        assert_false(reduce_supported(RMX_FLOAT32, RMX_REDOP_COUNT));
        assert_null(reduce_find(RMX_FLOAT8_E4M3, RMX_SUM));
        assert_non_null(reduce_find(RMX_INT32, RMX_PROD));
}

/* Every 16-bit pattern comes back as it is, NaNs as the canonical one. */
static void test_all_16_bit_values(void **state) {
        static const struct {
                uint32_t type;
                uint16_t infinity, nan;
        } formats[] = {{RMX_FLOAT16, 0x7c00, 0x7e00}, {RMX_BFLOAT16, 0x7f80, 0x7fc0}};
        static uint16_t in[65536], out[65536];
        const struct reduce_kernels *kernels;
        unsigned int at = 0;

        (void)state;
        for (uint32_t i = 0; i < 65536; i++)
                in[i] = (uint16_t)i;
        while ((kernels = kernels_next(&at)))
                for (size_t f = 0; f < 2; f++) {
                        const void *source[1] = {in};

                        kernels->fn[formats[f].type][RMX_SUM](out, source, 1, 65536);
                        for (uint32_t i = 0; i < 65536; i++)
                                assert_int_equal(out[i], (i & 0x7fff) > formats[f].infinity ? formats[f].nan : i);
                }
}

static uint16_t sum16(const struct reduce_kernels *kernels, uint32_t type, uint16_t a, uint16_t b, uint16_t c) {
        const void *source[3] = {&a, &b, &c};
        uint16_t out = 0xdead;

        kernels->fn[type][RMX_SUM](&out, source, 3, 1);
        return out;
}

/* Known roundings, worked out by hand. */
static void test_rounding(void **state) {
        const struct reduce_kernels *kernels;
        unsigned int at = 0;

        (void)state;
        while ((kernels = kernels_next(&at))) {
                /* bf16, spacing 2 at 256: 256 + 1 is a tie and goes to the even 256; 258 + 1 to 260; and rounding
                 * happens once: (256 + 1) + 1 = 258, though 256 + 1 alone would be 256 again. */
                assert_int_equal(sum16(kernels, RMX_BFLOAT16, 0x4380, 0x3f80, 0x0000), 0x4380);
                assert_int_equal(sum16(kernels, RMX_BFLOAT16, 0x4381, 0x3f80, 0x0000), 0x4382);
                assert_int_equal(sum16(kernels, RMX_BFLOAT16, 0x4380, 0x3f80, 0x3f80), 0x4381);
                /* A little more than a tie goes up. */
                assert_int_equal(sum16(kernels, RMX_BFLOAT16, 0x4380, 0x3f80, 0x3c00), 0x4381);
                /* The largest bf16 twice is infinity. */
                assert_int_equal(sum16(kernels, RMX_BFLOAT16, 0x7f7f, 0x7f7f, 0x0000), 0x7f80);
                /* fp16: 65504 + 15 stays, 65504 + 16 rounds to infinity, and the smallest subnormals add exactly. */
                assert_int_equal(sum16(kernels, RMX_FLOAT16, 0x7bff, 0x4b80, 0x0000), 0x7bff);
                assert_int_equal(sum16(kernels, RMX_FLOAT16, 0x7bff, 0x4c00, 0x0000), 0x7c00);
                assert_int_equal(sum16(kernels, RMX_FLOAT16, 0x0001, 0x0001, 0x8003), 0x8001);
                assert_int_equal(sum16(kernels, RMX_FLOAT16, 0x03ff, 0x0001, 0x0000), 0x0400);
                /* Infinities of both signs give the canonical NaN. */
                assert_int_equal(sum16(kernels, RMX_FLOAT16, 0x7c00, 0xfc00, 0x0000), 0x7e00);
                assert_int_equal(sum16(kernels, RMX_BFLOAT16, 0x7f80, 0xff80, 0x0000), 0x7fc0);
        }
}

static uint32_t reduce32(const struct reduce_kernels *kernels, uint32_t type, uint32_t redop, uint32_t a, uint32_t b,
                         uint32_t c) {
        const void *source[3] = {&a, &b, &c};
        uint32_t out = 0xdeadbeef;

        kernels->fn[type][redop](&out, source, 3, 1);
        return out;
}

static void test_nan_and_zero(void **state) {
        const uint32_t nan = 0xffc12345u, one = 0x3f800000u, two = 0x40000000u, zero = 0, minus_zero = 0x80000000u;
        const struct reduce_kernels *kernels;
        unsigned int at = 0;

        (void)state;
        while ((kernels = kernels_next(&at))) {
                assert_int_equal(reduce32(kernels, RMX_FLOAT32, RMX_MAX, nan, one, two), two);
                assert_int_equal(reduce32(kernels, RMX_FLOAT32, RMX_MAX, two, nan, one), two);
                assert_int_equal(reduce32(kernels, RMX_FLOAT32, RMX_MIN, one, two, nan), one);
                assert_int_equal(reduce32(kernels, RMX_FLOAT32, RMX_MIN, nan, nan, nan), 0x7fc00000u);
                assert_int_equal(reduce32(kernels, RMX_FLOAT32, RMX_SUM, one, nan, two), 0x7fc00000u);
                assert_int_equal(reduce32(kernels, RMX_FLOAT32, RMX_MAX, minus_zero, zero, zero), minus_zero);
                assert_int_equal(reduce32(kernels, RMX_FLOAT32, RMX_MIN, zero, minus_zero, zero), zero);
        }
}

static void test_integers(void **state) {
        const struct reduce_kernels *kernels;
        unsigned int at = 0;

        (void)state;
        while ((kernels = kernels_next(&at))) {
                assert_int_equal(reduce32(kernels, RMX_INT32, RMX_SUM, 0x7fffffffu, 1, 1), 0x80000001u);
                assert_int_equal(reduce32(kernels, RMX_INT32, RMX_PROD, 0x10001u, 0x10001u, 3), 0x60003u);
                /* Truncation toward zero; the sum does not wrap. */
                assert_int_equal(reduce32(kernels, RMX_INT32, RMX_AVG, (uint32_t)-5, (uint32_t)-2, (uint32_t)-1),
                                 (uint32_t)-2);
                assert_int_equal(reduce32(kernels, RMX_INT32, RMX_AVG, 0x7fffffffu, 0x7fffffffu, 0x7fffffffu),
                                 0x7fffffffu);
                assert_int_equal(reduce32(kernels, RMX_INT32, RMX_MAX, (uint32_t)-5, (uint32_t)-2, (uint32_t)-9),
                                 (uint32_t)-2);
                assert_int_equal(reduce32(kernels, RMX_UINT32, RMX_MAX, (uint32_t)-5, 2, 9), (uint32_t)-5);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_supported),         cmocka_unit_test(test_kernels_agree_with_reference),
                cmocka_unit_test(test_all_16_bit_values), cmocka_unit_test(test_rounding),
                cmocka_unit_test(test_nan_and_zero),      cmocka_unit_test(test_integers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
