/* SPDX-License-Identifier: MIT */
#pragma once
/* Element types by their public numbers. */
#include <stddef.h>
#include <stdint.h>

#include "railmux/railmux.h"

/* Bytes of one element, 0 for an unknown type. */
static inline size_t type_size(uint32_t type) {
        static const unsigned char bytes[RMX_TYPE_COUNT] = {
                [RMX_INT8] = 1,    [RMX_UINT8] = 1,    [RMX_INT32] = 4,       [RMX_UINT32] = 4,
                [RMX_INT64] = 8,   [RMX_UINT64] = 8,   [RMX_FLOAT16] = 2,     [RMX_FLOAT32] = 4,
                [RMX_FLOAT64] = 8, [RMX_BFLOAT16] = 2, [RMX_FLOAT8_E4M3] = 1, [RMX_FLOAT8_E5M2] = 1,
        };

        return type < RMX_TYPE_COUNT ? bytes[type] : 0;
}

/* What tools call it; "?": an unknown one. */
static inline const char *type_name(uint32_t type) {
        static const char *const names[RMX_TYPE_COUNT] = {
                [RMX_INT8] = "int8",     [RMX_UINT8] = "uint8",          [RMX_INT32] = "int32",
                [RMX_UINT32] = "uint32", [RMX_INT64] = "int64",          [RMX_UINT64] = "uint64",
                [RMX_FLOAT16] = "fp16",  [RMX_FLOAT32] = "fp32",         [RMX_FLOAT64] = "fp64",
                [RMX_BFLOAT16] = "bf16", [RMX_FLOAT8_E4M3] = "fp8_e4m3", [RMX_FLOAT8_E5M2] = "fp8_e5m2",
        };

        return type < RMX_TYPE_COUNT ? names[type] : "?";
}

static inline const char *type_redop_name(uint32_t redop) {
        static const char *const names[RMX_REDOP_COUNT] = {
                [RMX_SUM] = "sum", [RMX_PROD] = "prod", [RMX_MAX] = "max",
                [RMX_MIN] = "min", [RMX_AVG] = "avg",   [RMX_PREMUL_SUM] = "premul",
        };

        return redop < RMX_REDOP_COUNT ? names[redop] : "?";
}

/*
 * Bytes of one accumulator, what a reduction holds between two elements: small floats are added up in fp32, averages of
 * integers in 64 bits. 0 for an unknown type or reduction.
 */
static inline size_t type_accumulator_size(uint32_t type, uint32_t redop) {
        if (type >= RMX_TYPE_COUNT || redop >= RMX_REDOP_COUNT)
                return 0;
        if (type < RMX_FLOAT16)
                return redop == RMX_AVG ? 8 : type_size(type);
        return type == RMX_FLOAT64 ? 8 : 4;
}
