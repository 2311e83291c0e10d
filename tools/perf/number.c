/* SPDX-License-Identifier: MIT */
#include "tools/perf/number.h"

#include <math.h>
#include <railmux/railmux.h>
#include <string.h>

/* Formats narrower than fp32. */
struct narrow {
        int mantissa_bits, exponent_bits;
};

static struct narrow narrow_of(uint32_t type) {
        switch (type) {
        case RMX_FLOAT16:
                return (struct narrow){10, 5};
        case RMX_BFLOAT16:
                return (struct narrow){7, 8};
        case RMX_FLOAT8_E4M3:
                return (struct narrow){3, 4};
        case RMX_FLOAT8_E5M2:
                return (struct narrow){2, 5};
        default:
                return (struct narrow){0, 0};
        }
}

bool number_is_float(uint32_t type) {
        return type >= RMX_FLOAT16;
}

bool number_is_unsigned(uint32_t type) {
        return type == RMX_UINT8 || type == RMX_UINT32 || type == RMX_UINT64;
}

int64_t number_limit(uint32_t type) {
        switch (type) {
        case RMX_INT8:
        case RMX_UINT8:
                return 120;
        case RMX_INT32:
        case RMX_UINT32:
                return INT64_C(1) << 30;
        case RMX_INT64:
        case RMX_UINT64:
        case RMX_FLOAT64:
                return INT64_C(1) << 40;
        case RMX_FLOAT32:
                return INT64_C(1) << 24;
        default:
                return INT64_C(2) << narrow_of(type).mantissa_bits;
        }
}

int number_exponent_limit(uint32_t type) {
        switch (type) {
        case RMX_INT8:
        case RMX_UINT8:
                return 5;
        case RMX_FLOAT8_E4M3:
                return 8;
        case RMX_FLOAT16:
        case RMX_FLOAT8_E5M2:
                return 14;
        default:
                return 24;
        }
}

/* Rounds to nearest, ties to even. The value must be in range. */
static uint64_t narrow_encode(struct narrow format, double value) {
        int bias = (1 << (format.exponent_bits - 1)) - 1, exponent;
        uint64_t sign = signbit(value) ? UINT64_C(1) << (format.mantissa_bits + format.exponent_bits) : 0, field;
        double units;

        value = fabs(value);
        if (value == 0)
                return sign;
        frexp(value, &exponent);
        exponent--; /* value = 1.x * 2^exponent */
        if (exponent < 1 - bias)
                exponent = 1 - bias;
        units = rint(ldexp(value, format.mantissa_bits - exponent));
        /* The implicit bit, if it is there, carries into the exponent field; so does rounding up to the next power. */
        field = (uint64_t)(exponent + bias - 1) << format.mantissa_bits;
        return sign | (field + (uint64_t)units);
}

static uint64_t float_encode(uint32_t type, double value) {
        uint64_t wide = 0;
        float single;

        if (type == RMX_FLOAT64) {
                memcpy(&wide, &value, sizeof(value));
                return wide;
        }
        if (type != RMX_FLOAT32)
                return narrow_encode(narrow_of(type), value);
        single = (float)value;
        memcpy(&wide, &single, sizeof(single));
        return wide;
}

static uint64_t integer_encode(uint32_t type, int64_t value) {
        unsigned int bits = 8u * (unsigned int)rmx_type_size(type);

        return bits == 64 ? (uint64_t)value : (uint64_t)value & ((UINT64_C(1) << bits) - 1);
}

/* An exact integer is a normal number in every format: only the exponent's bias differs from fp32's. */
static uint64_t narrow_encode_integer(struct narrow format, int64_t value) {
        float single = (float)value;
        uint32_t bits, magnitude, bias = (1u << (format.exponent_bits - 1)) - 1;

        memcpy(&bits, &single, sizeof(bits));
        if (value == 0)
                return 0;
        magnitude = ((bits & 0x7fffffffu) >> (23 - format.mantissa_bits)) - ((127 - bias) << format.mantissa_bits);
        return magnitude | (uint64_t)(bits >> 31) << (format.mantissa_bits + format.exponent_bits);
}

uint64_t number_encode(uint32_t type, int64_t value) {
        if (!number_is_float(type))
                return integer_encode(type, value);
        if (type == RMX_FLOAT32 || type == RMX_FLOAT64)
                return float_encode(type, (double)value);
        return narrow_encode_integer(narrow_of(type), value);
}

uint64_t number_encode_average(uint32_t type, int64_t sum, uint32_t n) {
        float quotient;

        if (!number_is_float(type))
                return integer_encode(type, sum / (int64_t)n);
        if (type == RMX_FLOAT64)
                return float_encode(type, (double)sum / n);
        quotient = (float)sum / (float)n; /* divided in the accumulator's precision, then rounded to the type */
        return float_encode(type, (double)quotient);
}
