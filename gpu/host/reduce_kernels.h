/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Template of the reduction kernels. A .c file per instruction set includes it with REDUCE_KERNELS (name of its table)
 * and REDUCE_NAME set. Everything else here is static: code built for one instruction set must not be linked into
 * another's place.
 */
#include <assert.h>
#include <string.h>

#include "gpu/host/reduce.h"
#include "gpu/host/reduce_small.h"
#include "gpu/host/reduce_vector.h"

/* Sources that are read side by side: more would be more streams than processors prefetch. */
#define REDUCE_GROUP 8u
/* Bytes of accumulators that stay in the first-level cache while several groups of sources pass. */
#define REDUCE_BLOCK 4096u

#define REDUCE_JOIN_(a, b, c) a##b##c
#define REDUCE_JOIN(a, b, c)  REDUCE_JOIN_(a, b, c)

/* Where results go; element `at` of the work lies at the beginning of each array. */
struct reduce_target {
        void *const *out;
        uint32_t n;
        size_t at;
};

/* Elements, in whole units. */
struct reduce_span {
        size_t begin, end;
};

/* ---- what is left to say of single types ------------------------------------------------------------------------- */
REDUCE_INLINE float reduce_scalar_f32(uint64_t scalar) {
        uint32_t bits = (uint32_t)scalar;
        float f;

        memcpy(&f, &bits, sizeof(f));
        return f;
}

REDUCE_INLINE double reduce_scalar_f64(uint64_t scalar) {
        double d;

        memcpy(&d, &scalar, sizeof(d));
        return d;
}

REDUCE_INLINE void reduce_fp32_put(void *to, struct reduce_f32_four x) {
        reduce_f32_put(to, REDUCE_FOUR(f32, reduce_f32_canonical, x));
}

REDUCE_INLINE void reduce_fp64_put(void *to, struct reduce_f64_four x) {
        reduce_f64_put(to, REDUCE_FOUR(f64, reduce_f64_canonical, x));
}

REDUCE_INLINE reduce_f32 reduce_f32_divide(reduce_f32 x, uint32_t n) {
        return x / (float)n;
}

REDUCE_INLINE reduce_f64 reduce_f64_divide(reduce_f64 x, uint32_t n) {
        return x / (double)n;
}

#define reduce_u8_scale(x, scalar)   ((x) * (uint8_t)(scalar))
#define reduce_u32_scale(x, scalar)  ((x) * (uint32_t)(scalar))
#define reduce_u64_scale(x, scalar)  ((x) * (scalar))
#define reduce_fp32_scale(x, scalar) ((x)*reduce_scalar_f32(scalar))
#define reduce_fp64_scale(x, scalar) ((x)*reduce_scalar_f64(scalar))
#define reduce_fp16_scale(x, scalar) reduce_fp16_round((x)*reduce_scalar_f32(scalar))
#define reduce_bf16_scale(x, scalar) reduce_bf16_round((x)*reduce_scalar_f32(scalar))
#define reduce_e4m3_scale(x, scalar) reduce_e4m3_round((x)*reduce_scalar_f32(scalar))
#define reduce_e5m2_scale(x, scalar) reduce_e5m2_round((x)*reduce_scalar_f32(scalar))

/* ---- integers: sums and products in unsigned arithmetic, where wrapping is defined ------------------------------- */
#define TYPE          i8
#define TYPE_BYTES    1
#define TYPE_ACC      i8
#define TYPE_GET      reduce_i8_get
#define TYPE_PUT      reduce_i8_put
#define TYPE_WRAP     u8
#define TYPE_WRAP_GET reduce_u8_get
#define TYPE_WRAP_PUT reduce_u8_put
#define TYPE_AVG      u64
#define TYPE_AVG_GET  reduce_wide_i8_get
#define TYPE_AVG_PUT  reduce_wide_i8_put
#define TYPE_SAME     1
#define TYPE_AVG_SAME 0
#define TYPE_DIVIDE   reduce_i64_divide
#define TYPE_SCALE    reduce_u8_scale
#define TYPE_FAST     0
#include "gpu/host/reduce_type.inc"

#define TYPE          u8
#define TYPE_BYTES    1
#define TYPE_ACC      u8
#define TYPE_GET      reduce_u8_get
#define TYPE_PUT      reduce_u8_put
#define TYPE_WRAP     u8
#define TYPE_WRAP_GET reduce_u8_get
#define TYPE_WRAP_PUT reduce_u8_put
#define TYPE_AVG      u64
#define TYPE_AVG_GET  reduce_wide_u8_get
#define TYPE_AVG_PUT  reduce_wide_u8_put
#define TYPE_SAME     1
#define TYPE_AVG_SAME 0
#define TYPE_DIVIDE   reduce_u64_divide
#define TYPE_SCALE    reduce_u8_scale
#define TYPE_FAST     0
#include "gpu/host/reduce_type.inc"

#define TYPE          i32
#define TYPE_BYTES    4
#define TYPE_ACC      i32
#define TYPE_GET      reduce_i32_get
#define TYPE_PUT      reduce_i32_put
#define TYPE_WRAP     u32
#define TYPE_WRAP_GET reduce_u32_get
#define TYPE_WRAP_PUT reduce_u32_put
#define TYPE_AVG      u64
#define TYPE_AVG_GET  reduce_wide_i32_get
#define TYPE_AVG_PUT  reduce_wide_i32_put
#define TYPE_SAME     1
#define TYPE_AVG_SAME 0
#define TYPE_DIVIDE   reduce_i64_divide
#define TYPE_SCALE    reduce_u32_scale
#define TYPE_FAST     0
#include "gpu/host/reduce_type.inc"

#define TYPE          u32
#define TYPE_BYTES    4
#define TYPE_ACC      u32
#define TYPE_GET      reduce_u32_get
#define TYPE_PUT      reduce_u32_put
#define TYPE_WRAP     u32
#define TYPE_WRAP_GET reduce_u32_get
#define TYPE_WRAP_PUT reduce_u32_put
#define TYPE_AVG      u64
#define TYPE_AVG_GET  reduce_wide_u32_get
#define TYPE_AVG_PUT  reduce_wide_u32_put
#define TYPE_SAME     1
#define TYPE_AVG_SAME 0
#define TYPE_DIVIDE   reduce_u64_divide
#define TYPE_SCALE    reduce_u32_scale
#define TYPE_FAST     0
#include "gpu/host/reduce_type.inc"

#define TYPE          i64
#define TYPE_BYTES    8
#define TYPE_ACC      i64
#define TYPE_GET      reduce_i64_get
#define TYPE_PUT      reduce_i64_put
#define TYPE_WRAP     u64
#define TYPE_WRAP_GET reduce_u64_get
#define TYPE_WRAP_PUT reduce_u64_put
#define TYPE_AVG      u64
#define TYPE_AVG_GET  reduce_u64_get
#define TYPE_AVG_PUT  reduce_u64_put
#define TYPE_SAME     1
#define TYPE_AVG_SAME 1
#define TYPE_DIVIDE   reduce_i64_divide
#define TYPE_SCALE    reduce_u64_scale
#define TYPE_FAST     0
#include "gpu/host/reduce_type.inc"

#define TYPE          u64
#define TYPE_BYTES    8
#define TYPE_ACC      u64
#define TYPE_GET      reduce_u64_get
#define TYPE_PUT      reduce_u64_put
#define TYPE_WRAP     u64
#define TYPE_WRAP_GET reduce_u64_get
#define TYPE_WRAP_PUT reduce_u64_put
#define TYPE_AVG      u64
#define TYPE_AVG_GET  reduce_u64_get
#define TYPE_AVG_PUT  reduce_u64_put
#define TYPE_SAME     1
#define TYPE_AVG_SAME 1
#define TYPE_DIVIDE   reduce_u64_divide
#define TYPE_SCALE    reduce_u64_scale
#define TYPE_FAST     0
#include "gpu/host/reduce_type.inc"

/* ---- floats ------------------------------------------------------------------------------------------------------ */
#define TYPE          fp16
#define TYPE_BYTES    2
#define TYPE_ACC      f32
#define TYPE_GET      reduce_fp16_get
#define TYPE_PUT      reduce_fp16_put
#define TYPE_WRAP     f32
#define TYPE_WRAP_GET reduce_fp16_get
#define TYPE_WRAP_PUT reduce_fp16_put
#define TYPE_AVG      f32
#define TYPE_AVG_GET  reduce_fp16_get
#define TYPE_AVG_PUT  reduce_fp16_put
#define TYPE_SAME     0
#define TYPE_AVG_SAME 0
#define TYPE_DIVIDE   reduce_f32_divide
#define TYPE_SCALE    reduce_fp16_scale
#define TYPE_FAST     1
#include "gpu/host/reduce_type.inc"

#define TYPE          bf16
#define TYPE_BYTES    2
#define TYPE_ACC      f32
#define TYPE_GET      reduce_bf16_get
#define TYPE_PUT      reduce_bf16_put
#define TYPE_WRAP     f32
#define TYPE_WRAP_GET reduce_bf16_get
#define TYPE_WRAP_PUT reduce_bf16_put
#define TYPE_AVG      f32
#define TYPE_AVG_GET  reduce_bf16_get
#define TYPE_AVG_PUT  reduce_bf16_put
#define TYPE_SAME     0
#define TYPE_AVG_SAME 0
#define TYPE_DIVIDE   reduce_f32_divide
#define TYPE_SCALE    reduce_bf16_scale
#define TYPE_FAST     1
#include "gpu/host/reduce_type.inc"

#define TYPE          e4m3
#define TYPE_BYTES    1
#define TYPE_ACC      f32
#define TYPE_GET      reduce_e4m3_get
#define TYPE_PUT      reduce_e4m3_put
#define TYPE_WRAP     f32
#define TYPE_WRAP_GET reduce_e4m3_get
#define TYPE_WRAP_PUT reduce_e4m3_put
#define TYPE_AVG      f32
#define TYPE_AVG_GET  reduce_e4m3_get
#define TYPE_AVG_PUT  reduce_e4m3_put
#define TYPE_SAME     0
#define TYPE_AVG_SAME 0
#define TYPE_DIVIDE   reduce_f32_divide
#define TYPE_SCALE    reduce_e4m3_scale
#define TYPE_FAST     0
#include "gpu/host/reduce_type.inc"

#define TYPE          e5m2
#define TYPE_BYTES    1
#define TYPE_ACC      f32
#define TYPE_GET      reduce_e5m2_get
#define TYPE_PUT      reduce_e5m2_put
#define TYPE_WRAP     f32
#define TYPE_WRAP_GET reduce_e5m2_get
#define TYPE_WRAP_PUT reduce_e5m2_put
#define TYPE_AVG      f32
#define TYPE_AVG_GET  reduce_e5m2_get
#define TYPE_AVG_PUT  reduce_e5m2_put
#define TYPE_SAME     0
#define TYPE_AVG_SAME 0
#define TYPE_DIVIDE   reduce_f32_divide
#define TYPE_SCALE    reduce_e5m2_scale
#define TYPE_FAST     0
#include "gpu/host/reduce_type.inc"

#define TYPE          fp32
#define TYPE_BYTES    4
#define TYPE_ACC      f32
#define TYPE_GET      reduce_f32_get
#define TYPE_PUT      reduce_fp32_put
#define TYPE_WRAP     f32
#define TYPE_WRAP_GET reduce_f32_get
#define TYPE_WRAP_PUT reduce_fp32_put
#define TYPE_AVG      f32
#define TYPE_AVG_GET  reduce_f32_get
#define TYPE_AVG_PUT  reduce_fp32_put
#define TYPE_SAME     1
#define TYPE_AVG_SAME 1
#define TYPE_DIVIDE   reduce_f32_divide
#define TYPE_SCALE    reduce_fp32_scale
#define TYPE_FAST     1
#include "gpu/host/reduce_type.inc"

#define TYPE          fp64
#define TYPE_BYTES    8
#define TYPE_ACC      f64
#define TYPE_GET      reduce_f64_get
#define TYPE_PUT      reduce_fp64_put
#define TYPE_WRAP     f64
#define TYPE_WRAP_GET reduce_f64_get
#define TYPE_WRAP_PUT reduce_fp64_put
#define TYPE_AVG      f64
#define TYPE_AVG_GET  reduce_f64_get
#define TYPE_AVG_PUT  reduce_fp64_put
#define TYPE_SAME     1
#define TYPE_AVG_SAME 1
#define TYPE_DIVIDE   reduce_f64_divide
#define TYPE_SCALE    reduce_fp64_scale
#define TYPE_FAST     0
#include "gpu/host/reduce_type.inc"

/* ---- table ------------------------------------------------------------------------------------------------------- */
#define REDUCE_ROW(name)                                                                                               \
        {                                                                                                              \
                [RMX_SUM] = name##_sum, [RMX_PROD] = name##_prod, [RMX_MAX] = name##_max, [RMX_MIN] = name##_min,      \
                [RMX_AVG] = name##_avg, [RMX_PREMUL_SUM] = name##_sum                                                  \
        }

const struct reduce_kernels REDUCE_KERNELS = {
        .name = REDUCE_NAME,
        .fn =
                {
                        [RMX_INT8] = REDUCE_ROW(reduce_kernel_i8),
                        [RMX_UINT8] = REDUCE_ROW(reduce_kernel_u8),
                        [RMX_INT32] = REDUCE_ROW(reduce_kernel_i32),
                        [RMX_UINT32] = REDUCE_ROW(reduce_kernel_u32),
                        [RMX_INT64] = REDUCE_ROW(reduce_kernel_i64),
                        [RMX_UINT64] = REDUCE_ROW(reduce_kernel_u64),
                        [RMX_FLOAT16] = REDUCE_ROW(reduce_kernel_fp16),
                        [RMX_FLOAT32] = REDUCE_ROW(reduce_kernel_fp32),
                        [RMX_FLOAT64] = REDUCE_ROW(reduce_kernel_fp64),
                        [RMX_BFLOAT16] = REDUCE_ROW(reduce_kernel_bf16),
                        [RMX_FLOAT8_E4M3] = REDUCE_ROW(reduce_kernel_e4m3),
                        [RMX_FLOAT8_E5M2] = REDUCE_ROW(reduce_kernel_e5m2),
                },
};
