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
