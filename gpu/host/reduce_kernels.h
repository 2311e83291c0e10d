/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Template of the reduction kernels. A .c file per instruction set includes it with REDUCE_KERNELS (name of its table)
 * and REDUCE_NAME set. Everything else here is static: code built for one instruction set must not be linked into
 * another's place.
 *
 * A kernel works on blocks that fit the first-level cache: it loads the first source into an accumulator on the stack,
 * adds source by source, and stores the block. So the output may be one of the sources, and the compiler sees loops
 * over arrays that do not overlap.
 */
#include <math.h>
#include <string.h>

#include "gpu/host/reduce.h"

#define REDUCE_BLOCK 512u

/* Buffers are placed by clients, who may use any byte offset. */
#define REDUCE_UNALIGNED(base) base __attribute__((aligned(1), may_alias))
typedef REDUCE_UNALIGNED(int8_t) reduce_int8;
typedef REDUCE_UNALIGNED(uint8_t) reduce_uint8;
typedef REDUCE_UNALIGNED(uint16_t) reduce_uint16;
typedef REDUCE_UNALIGNED(int32_t) reduce_int32;
typedef REDUCE_UNALIGNED(uint32_t) reduce_uint32;
typedef REDUCE_UNALIGNED(int64_t) reduce_int64;
typedef REDUCE_UNALIGNED(uint64_t) reduce_uint64;
typedef REDUCE_UNALIGNED(float) reduce_float;
typedef REDUCE_UNALIGNED(double) reduce_double;

static inline uint32_t reduce_bits(float f) {
        uint32_t u;

        memcpy(&u, &f, sizeof(u));
        return u;
}

static inline float reduce_from_bits(uint32_t u) {
        float f;

        memcpy(&f, &u, sizeof(f));
        return f;
}

/* ---- 16-bit floats ----------------------------------------------------------------------------------------------- */
static inline float reduce_load_bf16(uint16_t h) {
        return reduce_from_bits((uint32_t)h << 16);
}

static inline uint16_t reduce_store_bf16(float f) {
        uint32_t u = reduce_bits(f);
        uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;

        return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

static inline float reduce_load_fp16(uint16_t h) {
        uint32_t magnitude = h & 0x7fffu;
        uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
        /* Re-bias the exponent from 15 to 127; the highest one stands for infinity and NaN in both formats. */
        uint32_t normal = (magnitude << 13) + (magnitude >= 0x7c00u ? 224u << 23 : 112u << 23);
        uint32_t subnormal = reduce_bits((float)(int32_t)magnitude * 0x1p-24f);

        return reduce_from_bits(sign | (magnitude < 0x400u ? subnormal : normal));
}

static inline uint16_t reduce_store_fp16(float f) {
        uint32_t u = reduce_bits(f);
        uint32_t sign = (u >> 16) & 0x8000u;
        uint32_t magnitude = u & 0x7fffffffu;
        uint32_t normal = ((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10);
        /* 0.5 has the spacing of fp16's subnormals, so this addition rounds to one of them. */
        uint32_t subnormal = reduce_bits(reduce_from_bits(magnitude) + 0.5f) - 0x3f000000u;
        uint32_t result = magnitude < 0x38800000u ? subnormal : normal;

        result = magnitude >= 0x477ff000u ? 0x7c00u : result; /* 65520 and more round to infinity */
        result |= sign;
        return (uint16_t)(magnitude > 0x7f800000u ? 0x7e00u : result);
}

static inline float reduce_store_fp32(float f) {
        return f != f ? reduce_from_bits(0x7fc00000u) : f;
}

static inline double reduce_store_fp64(double d) {
        return d != d ? (double)NAN : d;
}

/* ---- operations on the accumulator ------------------------------------------------------------------------------- */
#define REDUCE_OP_SUM(a, b)  ((a) + (b))
#define REDUCE_OP_PROD(a, b) ((a) * (b))
#define REDUCE_OP_MAX(a, b)  ((b) > (a) ? (b) : (a))
#define REDUCE_OP_MIN(a, b)  ((b) < (a) ? (b) : (a))
#define REDUCE_OP_FMAX(a, b) ((b) > (a) || (a) != (a) ? (b) : (a))
#define REDUCE_OP_FMIN(a, b) ((b) < (a) || (a) != (a) ? (b) : (a))

#define REDUCE_PLAIN(v)     (v)
#define REDUCE_DONE(v, n)   (v)
#define REDUCE_DIVIDE(v, n) ((v) / (n))

/*
 * Name; element as it lies in memory; accumulator; what turns an element into an accumulator and back; the operation;
 * the last step, given the number of sources. Four sources are taken at a time: fewer passes over the accumulator, same
 * order.
 */
#define REDUCE_DEFINE(name, element, acc_t, load, store, op, finish)                                                   \
        static inline void name##_1(acc_t *restrict acc, const element *restrict a, size_t m) {                        \
                for (size_t i = 0; i < m; i++) {                                                                       \
                        acc_t x = load(a[i]);                                                                          \
                                                                                                                       \
                        acc[i] = (acc_t)op(acc[i], x);                                                                 \
                }                                                                                                      \
        }                                                                                                              \
        static inline void name##_4(acc_t *restrict acc, const element *restrict a, const element *restrict b,         \
                                    const element *restrict c, const element *restrict d, size_t m) {                  \
                for (size_t i = 0; i < m; i++) {                                                                       \
                        acc_t x = acc[i], xa = load(a[i]), xb = load(b[i]), xc = load(c[i]), xd = load(d[i]);          \
                                                                                                                       \
                        x = (acc_t)op(x, xa);                                                                          \
                        x = (acc_t)op(x, xb);                                                                          \
                        x = (acc_t)op(x, xc);                                                                          \
                        acc[i] = (acc_t)op(x, xd);                                                                     \
                }                                                                                                      \
        }                                                                                                              \
        static void name(void *out, const void *const *source, uint32_t n, size_t length) {                            \
                acc_t acc[REDUCE_BLOCK] __attribute__((aligned(64)));                                                  \
                                                                                                                       \
                for (size_t at = 0; at < length; at += REDUCE_BLOCK) {                                                 \
                        size_t m = length - at < REDUCE_BLOCK ? length - at : REDUCE_BLOCK;                            \
                        const element *first = (const element *)source[0] + at;                                        \
                        element *to = (element *)out + at;                                                             \
                        uint32_t r = 1;                                                                                \
                                                                                                                       \
                        for (size_t i = 0; i < m; i++)                                                                 \
                                acc[i] = load(first[i]);                                                               \
                        for (; r + 4 <= n; r += 4)                                                                     \
                                name##_4(acc, (const element *)source[r] + at, (const element *)source[r + 1] + at,    \
                                         (const element *)source[r + 2] + at, (const element *)source[r + 3] + at, m); \
                        for (; r < n; r++)                                                                             \
                                name##_1(acc, (const element *)source[r] + at, m);                                     \
                        for (size_t i = 0; i < m; i++)                                                                 \
                                to[i] = store(finish(acc[i], (acc_t)n));                                               \
                }                                                                                                      \
        }

/* Integers. Sums and products in unsigned arithmetic, where wrapping is defined. */
#define REDUCE_I64_SUM(a, b) ((uint64_t)(a) + (uint64_t)(b))

#define REDUCE_INTEGER(name, element, plain, wrap, wide)                                                               \
        REDUCE_DEFINE(name##_sum, element, wrap, (wrap), (plain), REDUCE_OP_SUM, REDUCE_DONE)                          \
        REDUCE_DEFINE(name##_prod, element, wrap, (wrap), (plain), REDUCE_OP_PROD, REDUCE_DONE)                        \
        REDUCE_DEFINE(name##_max, element, plain, (plain), (plain), REDUCE_OP_MAX, REDUCE_DONE)                        \
        REDUCE_DEFINE(name##_min, element, plain, (plain), (plain), REDUCE_OP_MIN, REDUCE_DONE)                        \
        REDUCE_DEFINE(name##_avg, element, wide, (wide), (plain), REDUCE_I64_SUM, REDUCE_DIVIDE)

#define REDUCE_FLOATING(name, element, acc_t, load, store)                                                             \
        REDUCE_DEFINE(name##_sum, element, acc_t, load, store, REDUCE_OP_SUM, REDUCE_DONE)                             \
        REDUCE_DEFINE(name##_prod, element, acc_t, load, store, REDUCE_OP_PROD, REDUCE_DONE)                           \
        REDUCE_DEFINE(name##_max, element, acc_t, load, store, REDUCE_OP_FMAX, REDUCE_DONE)                            \
        REDUCE_DEFINE(name##_min, element, acc_t, load, store, REDUCE_OP_FMIN, REDUCE_DONE)                            \
        REDUCE_DEFINE(name##_avg, element, acc_t, load, store, REDUCE_OP_SUM, REDUCE_DIVIDE)

REDUCE_INTEGER(reduce_i8, reduce_int8, int8_t, uint8_t, int64_t)
REDUCE_INTEGER(reduce_u8, reduce_uint8, uint8_t, uint8_t, uint64_t)
REDUCE_INTEGER(reduce_i32, reduce_int32, int32_t, uint32_t, int64_t)
REDUCE_INTEGER(reduce_u32, reduce_uint32, uint32_t, uint32_t, uint64_t)
REDUCE_INTEGER(reduce_i64, reduce_int64, int64_t, uint64_t, int64_t)
REDUCE_INTEGER(reduce_u64, reduce_uint64, uint64_t, uint64_t, uint64_t)
REDUCE_FLOATING(reduce_f16, reduce_uint16, float, reduce_load_fp16, reduce_store_fp16)
REDUCE_FLOATING(reduce_f32, reduce_float, float, REDUCE_PLAIN, reduce_store_fp32)
REDUCE_FLOATING(reduce_f64, reduce_double, double, REDUCE_PLAIN, reduce_store_fp64)
REDUCE_FLOATING(reduce_bf16, reduce_uint16, float, reduce_load_bf16, reduce_store_bf16)

#define REDUCE_ROW(name)                                                                                               \
        {                                                                                                              \
                [RMX_SUM] = name##_sum, [RMX_PROD] = name##_prod, [RMX_MAX] = name##_max, [RMX_MIN] = name##_min,      \
                [RMX_AVG] = name##_avg                                                                                 \
        }

const struct reduce_kernels REDUCE_KERNELS = {
        .name = REDUCE_NAME,
        .fn =
                {
                        [RMX_INT8] = REDUCE_ROW(reduce_i8),
                        [RMX_UINT8] = REDUCE_ROW(reduce_u8),
                        [RMX_INT32] = REDUCE_ROW(reduce_i32),
                        [RMX_UINT32] = REDUCE_ROW(reduce_u32),
                        [RMX_INT64] = REDUCE_ROW(reduce_i64),
                        [RMX_UINT64] = REDUCE_ROW(reduce_u64),
                        [RMX_FLOAT16] = REDUCE_ROW(reduce_f16),
                        [RMX_FLOAT32] = REDUCE_ROW(reduce_f32),
                        [RMX_FLOAT64] = REDUCE_ROW(reduce_f64),
                        [RMX_BFLOAT16] = REDUCE_ROW(reduce_bf16),
                },
};
