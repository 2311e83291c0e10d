/* SPDX-License-Identifier: MIT */
/* Reduction kernels: every number of the small types, and results that were worked out by hand. */
#include "tests/cmocka_all.h"

#include <string.h>

#include "gpu/host/reduce.h"
#include "reference.h"
#include "util/type.h"

static const struct reduce_kernels *kernels_next(unsigned int *at) {
        return reduce_kernels_at((*at)++);
}

/* ---- every number of a small type -------------------------------------------------------------------------------- */
/* A call with one output. */
static void reduce(const struct reduce_kernels *kernels, uint32_t type, uint32_t redop, void *out,
                   const void *const *source, uint32_t n, uint64_t partials, size_t length) {
        struct reduce_call call = {
                .out = &out,
                .n_out = 1,
                .source = source,
                .n = n,
                .partials = partials,
                .n_ranks = n,
                .finish = true,
                .length = length,
        };

        kernels->fn[type][redop](&call);
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

                        reduce(kernels, formats[f].type, RMX_SUM, out, source, 1, 0, 65536);
                        for (uint32_t i = 0; i < 65536; i++)
                                assert_int_equal(out[i], (i & 0x7fff) > formats[f].infinity ? formats[f].nan : i);
                }
}

/*
 * fp32 numbers become elements of every small type as the reference says: whatever is a multiple of 2^11 in its bits,
 * which is every code of all types and every tie between two of them, with its neighbours.
 */
static void test_rounding_of_all_codes(void **state) {
        static const uint32_t types[] = {RMX_FLOAT16, RMX_BFLOAT16, RMX_FLOAT8_E4M3, RMX_FLOAT8_E5M2};
        enum { CHUNK = 3 << 14 };
        static uint32_t in[CHUNK] __attribute__((aligned(64)));
        static unsigned char want[2 * CHUNK], out[2 * CHUNK];
        const void *source[1] = {in};

        (void)state;
        for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
                for (uint32_t part = 0; part < 128; part++) {
                        size_t size = type_size(types[t]);
                        const struct reduce_kernels *kernels;
                        unsigned int at = 0;

                        for (uint32_t i = 0; i < CHUNK; i++) {
                                float f;

                                in[i] = ((part * (CHUNK / 3) + i / 3) << 11) + i % 3 - 1;
                                memcpy(&f, &in[i], 4);
                                reference_round(types[t], (double)f, want + i * size);
                        }
                        while ((kernels = kernels_next(&at))) {
                                reduce(kernels, types[t], RMX_SUM, out, source, 1, 1, CHUNK);
                                for (uint32_t i = 0; i < CHUNK; i++)
                                        if (memcmp(out + i * size, want + i * size, size) != 0)
                                                fail_msg("%s: type %u: fp32 %08x became %02x%02x", kernels->name,
                                                         types[t], in[i], out[i * size + size - 1], out[i * size]);
                        }
                }
}

/* Every pair of fp8 numbers, and every number with some factors. */
static void test_all_fp8_pairs(void **state) {
        static unsigned char a[65536], b[65536], want[65536], out[65536];
        static const uint32_t types[] = {RMX_FLOAT8_E4M3, RMX_FLOAT8_E5M2};
        const void *source[2] = {a, b};
        void *to = out;

        (void)state;
        for (uint32_t i = 0; i < 65536; i++) {
                a[i] = (unsigned char)i;
                b[i] = (unsigned char)(i >> 8);
        }
        for (size_t t = 0; t < 2; t++)
                for (uint32_t redop = 0; redop < RMX_REDOP_COUNT; redop++) {
                        uint64_t scalar[2] = {0xbec00000u /* -0.375 */, 0x40490fd0u /* 3.14159 */};
                        uint64_t scaled = redop == RMX_PREMUL_SUM ? 3 : 0;
                        struct reference_call reference = {
                                .type = types[t],
                                .redop = redop,
                                .source = source,
                                .n = 2,
                                .scalar = scalar,
                                .scaled = scaled,
                        };
                        struct reduce_call call = {
                                .out = &to,
                                .n_out = 1,
                                .source = source,
                                .n = 2,
                                .scalar = scalar,
                                .scaled = scaled,
                                .n_ranks = 2,
                                .finish = true,
                                .length = 65536,
                        };
                        const struct reduce_kernels *kernels;
                        unsigned int at = 0;

                        for (size_t i = 0; i < 65536; i++)
                                reference_reduce_call(&reference, i, want + i);
                        while ((kernels = kernels_next(&at))) {
                                kernels->fn[types[t]][redop](&call);
                                for (uint32_t i = 0; i < 65536; i++)
                                        if (out[i] != want[i])
                                                fail_msg("%s: type %u redop %u: %02x and %02x give %02x, not %02x",
                                                         kernels->name, types[t], redop, a[i], b[i], out[i], want[i]);
                        }
                }
}

/* ---- worked out by hand ------------------------------------------------------------------------------------------ */
static unsigned char sum8(const struct reduce_kernels *kernels, uint32_t type, unsigned char a, unsigned char b,
                          unsigned char c) {
        const void *source[3] = {&a, &b, &c};
        unsigned char out = 0xad;

        reduce(kernels, type, RMX_SUM, &out, source, 3, 0, 1);
        return out;
}

static void test_fp8(void **state) {
        const struct reduce_kernels *kernels;
        unsigned int at = 0;

        (void)state;
        while ((kernels = kernels_next(&at))) {
                /* e4m3: 448 + 16 is a tie and stays; a little more is NaN, of either sign; 0xff is NaN. */
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E4M3, 0x7e, 0x58, 0x00), 0x7e);
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E4M3, 0x7e, 0x58, 0x01), 0x7f);
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E4M3, 0xfe, 0xfe, 0x00), 0x7f);
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E4M3, 0xff, 0x00, 0x00), 0x7f);
                /* The smallest subnormal is 2^-9; eight of them are the smallest normal number. */
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E4M3, 0x01, 0x07, 0x00), 0x08);
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E4M3, 0x81, 0x81, 0x00), 0x82);
                /* Spacing 2 at 16: 16 + 1 is a tie with the even 16, 18 + 1 with 20; 16 + 1 + 1 is 18. */
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E4M3, 0x58, 0x38, 0x00), 0x58);
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E4M3, 0x59, 0x38, 0x00), 0x5a);
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E4M3, 0x58, 0x38, 0x38), 0x59);
                /* e5m2: 57344 + 4096 is a tie with the even code behind it, infinity. */
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E5M2, 0x7b, 0x6c, 0x00), 0x7c);
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E5M2, 0x7b, 0x6b, 0x00), 0x7b);
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E5M2, 0xfb, 0xfb, 0x00), 0xfc);
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E5M2, 0x7c, 0xfc, 0x00), 0x7e);
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E5M2, 0xfd, 0x00, 0x00), 0x7e);
                assert_int_equal(sum8(kernels, RMX_FLOAT8_E5M2, 0x03, 0x01, 0x00), 0x04);
        }
}

static uint16_t sum16(const struct reduce_kernels *kernels, uint32_t type, uint16_t a, uint16_t b, uint16_t c) {
        const void *source[3] = {&a, &b, &c};
        uint16_t out = 0xdead;

        reduce(kernels, type, RMX_SUM, &out, source, 3, 0, 1);
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

        reduce(kernels, type, redop, &out, source, 3, 0, 1);
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

/* The product is rounded to the element's type before it is added, and partial results are not multiplied. */
static void test_premultiplied(void **state) {
        const uint16_t three = 0x4200, one = 0x3c00; /* fp16 */
        const uint64_t scalar[2] = {0x3f800800u /* 1 + 2^-12 */, 0x40000000u /* 2 */};
        const float partial[16] __attribute__((aligned(64))) = {3.0f};
        const struct reduce_kernels *kernels;
        unsigned int at = 0;

        (void)state;
        while ((kernels = kernels_next(&at))) {
                const void *source[2] = {&three, &one};
                uint16_t got = 0;
                void *out = &got;
                struct reduce_call call = {
                        .out = &out,
                        .n_out = 1,
                        .source = source,
                        .n = 2,
                        .scalar = scalar,
                        .scaled = 3,
                        .n_ranks = 2,
                        .finish = true,
                        .length = 1,
                };

                kernels->fn[RMX_FLOAT16][RMX_PREMUL_SUM](&call);
                assert_int_equal(got, 0x4500); /* 3 + 2 */
                call.scaled = 2;
                kernels->fn[RMX_FLOAT16][RMX_PREMUL_SUM](&call);
                assert_int_equal(got, 0x4500);
                call.scaled = 1;
                kernels->fn[RMX_FLOAT16][RMX_PREMUL_SUM](&call);
                assert_int_equal(got, 0x4400); /* 3 + 1 */
                call.scaled = 3;
                call.partials = 1;
                source[0] = partial;
                kernels->fn[RMX_FLOAT16][RMX_PREMUL_SUM](&call);
                assert_int_equal(got, 0x4500);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_all_16_bit_values), cmocka_unit_test(test_rounding_of_all_codes),
                cmocka_unit_test(test_all_fp8_pairs),     cmocka_unit_test(test_fp8),
                cmocka_unit_test(test_rounding),          cmocka_unit_test(test_nan_and_zero),
                cmocka_unit_test(test_integers),          cmocka_unit_test(test_premultiplied),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
