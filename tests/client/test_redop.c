/* SPDX-License-Identifier: MIT */
/* Reductions with a factor: the word that goes out for every type, both residences, handles. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "client/redop.h"
#include "tests/client/crew.h"

#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

static uint64_t encode_u64(uint32_t type, uint64_t bits) {
        return redop_encode(&bits, type); /* little-endian, as is the wire */
}

static void test_integers(void **state) {
        (void)state;
        assert_int_equal(encode_u64(RMX_INT8, 0x7f), 127);
        assert_int_equal(encode_u64(RMX_INT8, 0x80), (uint64_t)-128);
        assert_int_equal(encode_u64(RMX_INT8, 0xff), UINT64_MAX);
        assert_int_equal(encode_u64(RMX_UINT8, 0xff), 255);
        assert_int_equal(encode_u64(RMX_INT32, 0x80000000), (uint64_t)INT32_MIN);
        assert_int_equal(encode_u64(RMX_INT32, 5), 5);
        assert_int_equal(encode_u64(RMX_UINT32, 0xfffffffe), 0xfffffffe);
        assert_int_equal(encode_u64(RMX_INT64, UINT64_MAX - 1), (uint64_t)-2);
        assert_int_equal(encode_u64(RMX_UINT64, UINT64_MAX), UINT64_MAX);
}

/* The value of a small float, worked out another way. */
static double small_float(uint32_t x, int exponent_bits, int mantissa_bits) {
        int exponent = (int)(x >> mantissa_bits) & ((1 << exponent_bits) - 1);
        int bias = (1 << (exponent_bits - 1)) - 1;
        double mantissa = x & ((1u << mantissa_bits) - 1);
        double sign = x >> (exponent_bits + mantissa_bits) ? -1 : 1;

        if (!exponent)
                return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
        return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static double decoded(uint32_t type, uint32_t x) {
        uint64_t word = encode_u64(type, x);
        uint32_t bits = (uint32_t)word;
        float f;

        assert_int_equal(word >> 32, 0);
        memcpy(&f, &bits, sizeof(f));
        return f;
}

static void check_value(double found, double expected) {
        if (isnan(expected))
                assert_true(isnan(found));
        else
                assert_true(found == expected && signbit(found) == signbit(expected));
}

/* Every value there is. */
static void test_small_floats(void **state) {
        (void)state;
        for (uint32_t x = 0; x < 0x10000; x++) {
                double expected = small_float(x, 5, 10);
                uint32_t bits = x << 16;
                float bfloat;

                if ((x & 0x7c00) == 0x7c00)
                        expected = x & 0x3ff ? NAN : x & 0x8000 ? -INFINITY : INFINITY;
                check_value(decoded(RMX_FLOAT16, x), expected);
                memcpy(&bfloat, &bits, sizeof(bfloat));
                check_value(decoded(RMX_BFLOAT16, x), bfloat);
        }
        for (uint32_t x = 0; x < 0x100; x++) {
                double expected = small_float(x, 5, 2);

                if ((x & 0x7c) == 0x7c)
                        expected = x & 3 ? NAN : x & 0x80 ? -INFINITY : INFINITY;
                check_value(decoded(RMX_FLOAT8_E5M2, x), expected);
                check_value(decoded(RMX_FLOAT8_E4M3, x), (x & 0x7f) == 0x7f ? NAN : small_float(x, 4, 3));
        }
        check_value(decoded(RMX_FLOAT8_E4M3, 0x7e), 448);
}

static void test_large_floats(void **state) {
        const float f = -1.25f;
        const double d = 1e300;
        uint32_t f_bits;
        uint64_t d_bits;

        (void)state;
        memcpy(&f_bits, &f, sizeof(f));
        memcpy(&d_bits, &d, sizeof(d));
        assert_int_equal(redop_encode(&f, RMX_FLOAT32), f_bits);
        assert_int_equal(redop_encode(&d, RMX_FLOAT64), d_bits);
}

static uint64_t last_word(struct crew *crew) {
        const struct fake_seen *seen = fake_line(&crew->fake, fake_lines(&crew->fake) - 1);
        uint64_t word;

        assert_int_equal(seen->argument_bytes, sizeof(word));
        memcpy(&word, seen->argument, sizeof(word));
        return word;
}

/* Whatever the type, the word goes out with the request. */
static void test_types(void **state) {
        const uint64_t one[RMX_TYPE_COUNT] = {
                [RMX_INT8] = 1,
                [RMX_UINT8] = 1,
                [RMX_INT32] = 1,
                [RMX_UINT32] = 1,
                [RMX_INT64] = 1,
                [RMX_UINT64] = 1,
                [RMX_FLOAT16] = 0x3c00,
                [RMX_FLOAT32] = 0x3f800000,
                [RMX_FLOAT64] = UINT64_C(0x3ff0000000000000),
                [RMX_BFLOAT16] = 0x3f80,
                [RMX_FLOAT8_E4M3] = 0x38,
                [RMX_FLOAT8_E5M2] = 0x3c,
        };
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++) {
                bool integer = type < RMX_FLOAT16, wide = type == RMX_FLOAT64;
                uint64_t value = one[type];
                uint32_t redop[2];

                assert_int_equal(
                        rmx_redop_create_premul_sum(crew.comm[0], &value, type, RMX_SCALAR_IMMEDIATE, &redop[0]),
                        RMX_OK);
                assert_int_equal(rmx_redop_create_premul_sum(crew.comm[0], &value, type, RMX_SCALAR_MEMORY, &redop[1]),
                                 RMX_OK);
                for (int i = 0; i < 2; i++) {
                        assert_int_equal(rmx_all_reduce(crew.comm[0], NULL, NULL, 0, type, redop[i], NULL), RMX_OK);
                        assert_int_equal(last_word(&crew), integer ? 1 : wide ? one[type] : 0x3f800000);
                }
        }
        crew_stop(&crew);
}

static int scaled(struct crew *crew, uint32_t rank) {
        const int32_t factor = (int32_t)rank + 2;
        int32_t in[3] = {1, 10, -1}, out[3] = {0};
        uint32_t redop;
        int r;

        r = rmx_redop_create_premul_sum(crew->comm[rank], &factor, RMX_INT32, RMX_SCALAR_IMMEDIATE, &redop);
        if (!r)
                r = rmx_all_reduce(crew->comm[rank], in, out, 3, RMX_INT32, redop, NULL);
        if (!r && (out[0] != 9 || out[1] != 90 || out[2] != -9))
                return -1;
        if (!r)
                r = rmx_reduce(crew->comm[rank], in, out, 1, RMX_INT32, redop, 1, NULL);
        if (!r)
                r = rmx_reduce_scatter(crew->comm[rank], in, out, 1, RMX_INT32, redop, NULL);
        if (!r && out[0] != (int[]){9, 90, -9}[rank])
                return -2;
        return r ? r : rmx_redop_destroy(crew->comm[rank], redop);
}

/* Each rank has a factor of its own. */
static void test_factors(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 3, 64);
        crew_run(&crew, scaled);
        for (uint32_t i = 0; i < crew.n; i++)
                assert_int_equal(crew.result[i], RMX_OK);
        crew_stop(&crew);
}

static void test_residence(void **state) {
        uint32_t now, later;
        int32_t factor = 2, in = 10, out = 0;
        struct rmx_comm *comm;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        comm = crew.comm[0];
        assert_int_equal(rmx_redop_create_premul_sum(comm, &factor, RMX_INT32, RMX_SCALAR_IMMEDIATE, &now), RMX_OK);
        assert_int_equal(rmx_redop_create_premul_sum(comm, &factor, RMX_INT32, RMX_SCALAR_MEMORY, &later), RMX_OK);
        for (factor = 3; factor < 6; factor++) {
                assert_int_equal(rmx_all_reduce(comm, &in, &out, 1, RMX_INT32, now, NULL), RMX_OK);
                assert_int_equal(out, 20);
                assert_int_equal(rmx_all_reduce(comm, &in, &out, 1, RMX_INT32, later, NULL), RMX_OK);
                assert_int_equal(out, 10 * factor);
        }
        /* In a group memory is read at its end, also if the handle is gone by then. */
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_all_reduce(comm, &in, &out, 1, RMX_INT32, later, NULL), RMX_OK);
        assert_int_equal(rmx_redop_destroy(comm, later), RMX_OK);
        factor = 70;
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(out, 700);
        crew_stop(&crew);
}

static void test_handles(void **state) {
        uint32_t redop = 77, other = 0;
        struct rmx_comm *comm;
        struct crew crew;
        int32_t x = 1;

        (void)state;
        crew_start(&crew, 2, 64);
        comm = crew.comm[0];
        assert_int_equal(rmx_redop_create_premul_sum(NULL, &x, RMX_INT32, RMX_SCALAR_MEMORY, &redop), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_redop_create_premul_sum: comm is NULL");
        assert_int_equal(rmx_redop_create_premul_sum(comm, NULL, RMX_INT32, RMX_SCALAR_MEMORY, &redop), RMX_E_INVALID);
        assert_error_says("scalar is NULL");
        assert_int_equal(rmx_redop_create_premul_sum(comm, &x, RMX_INT32, RMX_SCALAR_MEMORY, NULL), RMX_E_INVALID);
        assert_error_says("ret_redop is NULL");
        assert_int_equal(rmx_redop_create_premul_sum(comm, &x, 12, RMX_SCALAR_MEMORY, &redop), RMX_E_INVALID);
        assert_error_says("type 12 is unknown; types are 0..11");
        assert_int_equal(rmx_redop_create_premul_sum(comm, &x, RMX_INT32, 2, &redop), RMX_E_INVALID);
        assert_error_says("residence 2 is neither RMX_SCALAR_MEMORY (0) nor RMX_SCALAR_IMMEDIATE (1)");
        assert_int_equal(redop, 77);
        assert_int_equal(rmx_redop_create_premul_sum(comm, &x, RMX_INT32, RMX_SCALAR_MEMORY, &redop), RMX_OK);
        assert_int_equal(rmx_redop_create_premul_sum(crew.comm[1], &x, RMX_INT32, RMX_SCALAR_MEMORY, &other), RMX_OK);
        assert_true(redop >= 256 && other >= 256 && redop != other);

        assert_int_equal(rmx_all_reduce(comm, &x, &x, 1, RMX_INT32, RMX_PREMUL_SUM, NULL), RMX_E_INVALID);
        assert_string_equal(rmx_last_error(), "rmx_all_reduce: RMX_PREMUL_SUM needs a factor: pass what "
                                              "rmx_redop_create_premul_sum gives");
        assert_int_equal(rmx_all_reduce(comm, &x, &x, 1, RMX_INT32, 255, NULL), RMX_E_INVALID);
        assert_error_says("redop 255 is unknown; reductions are 0..4 and what rmx_redop_create_premul_sum gives");
        assert_int_equal(rmx_all_reduce(comm, &x, &x, 1, RMX_INT32, other, NULL), RMX_E_INVALID);
        assert_error_says("is none that rmx_redop_create_premul_sum gave for this communicator");
        assert_int_equal(rmx_reduce(comm, &x, &x, 1, RMX_FLOAT32, redop, 0, NULL), RMX_E_INVALID);
        assert_error_says("was created for type 2, this call has type 7");
        assert_int_equal(rmx_redop_destroy(comm, other), RMX_E_INVALID);
        assert_int_equal(rmx_redop_destroy(comm, RMX_SUM), RMX_E_INVALID);
        assert_int_equal(rmx_redop_destroy(NULL, redop), RMX_E_INVALID);
        assert_int_equal(rmx_redop_destroy(comm, redop), RMX_OK);
        assert_int_equal(rmx_redop_destroy(comm, redop), RMX_E_INVALID);
        assert_int_equal(rmx_reduce_scatter(comm, &x, &x, 1, RMX_INT32, redop, NULL), RMX_E_INVALID);
        crew_stop(&crew);
}

/* After the last number comes the first one again, unless the communicator has it. */
static void test_handles_come_round(void **state) {
        uint32_t redop[4];
        struct crew crew;
        int32_t x = 1;

        (void)state;
        crew_start(&crew, 1, 64);
        atomic_store(&redop_last, 255); /* no partner: the test has one thread */
        for (int i = 0; i < 4; i++) {
                if (i == 1)
                        atomic_store(&redop_last, INT32_MAX - 1); /* the same */
                assert_int_equal(rmx_redop_create_premul_sum(crew.comm[0], &x, RMX_INT32, RMX_SCALAR_MEMORY, &redop[i]),
                                 RMX_OK);
        }
        assert_int_equal(redop[0], 256);
        assert_int_equal(redop[1], INT32_MAX);
        assert_int_equal(redop[2], 257);
        assert_int_equal(redop[3], 258);
        for (int i = 0; i < 4; i++)
                assert_int_equal(rmx_redop_destroy(crew.comm[0], redop[i]), RMX_OK);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_integers),     cmocka_unit_test(test_small_floats),
                cmocka_unit_test(test_large_floats), cmocka_unit_test(test_types),
                cmocka_unit_test(test_factors),      cmocka_unit_test(test_residence),
                cmocka_unit_test(test_handles),      cmocka_unit_test(test_handles_come_round),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
