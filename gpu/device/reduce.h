/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Reductions on the device, eight bytes at a time: a payload holds as many elements as fit, in the order of memory
 * (little endian). Elements past the end of the data may hold anything; what comes out for them is of no meaning.
 *
 * What each type and reduction means is said at the top of gpu/host/reduce.c, and the bits are those of the host
 * backend: contributions in rank order, small floats accumulated in fp32 and rounded once, a NaN that comes out is the
 * canonical one.
 *
 * Two ways, which give the same bits:
 *   reduce_sum             sums of the types that matter most, number of ranks known at compile time: all payloads are
 *                          there, everything is unrolled, nothing is indexed at run time;
 *   reduce_begin/add/finish  any type and reduction, contribution by contribution.
 *
 * Accumulators of integers are wider than what they add up: 32 bits for elements of one byte, else 64. Sums and
 * products that wrap are cut at the end, which gives the same as wrapping on the way; extrema do not leave the
 * elements' range; and averages need the width, where 32 bits stand for the 64 of the host backend, since 2^23 ranks
 * are needed to tell them apart.
 */
#include "gpu/device/reduce_small.h"
#include "gpu/device/target.h"
#include "railmux/railmux.h"

/* ---- values: what accumulators hold ------------------------------------------------------------------------------ */
/* Sums and products in unsigned arithmetic, where wrapping is defined. */
template <typename VALUE> struct value_unsigned { typedef VALUE type; };
template <> struct value_unsigned<int32_t> { typedef uint32_t type; };
template <> struct value_unsigned<int64_t> { typedef uint64_t type; };

template <typename VALUE> DEVICE VALUE value_add(VALUE a, VALUE b) {
        typedef typename value_unsigned<VALUE>::type wrapping;

        return (VALUE)((wrapping)a + (wrapping)b);
}
DEVICE float value_add(float a, float b) {
        return f32_add(a, b);
}
DEVICE double value_add(double a, double b) {
        return f64_add(a, b);
}

template <typename VALUE> DEVICE VALUE value_multiply(VALUE a, VALUE b) {
        typedef typename value_unsigned<VALUE>::type wrapping;

        return (VALUE)((wrapping)a * (wrapping)b);
}
DEVICE float value_multiply(float a, float b) {
        return f32_multiply(a, b);
}
DEVICE double value_multiply(double a, double b) {
        return f64_multiply(a, b);
}

template <typename VALUE> DEVICE VALUE value_divide(VALUE a, uint32_t n) {
        return a / (VALUE)n;
}
DEVICE float value_divide(float a, uint32_t n) {
        return f32_divide(a, (float)n);
}
DEVICE double value_divide(double a, uint32_t n) {
        return f64_divide(a, (double)n);
}

template <typename VALUE> DEVICE bool value_missing(VALUE) {
        return false;
}
DEVICE bool value_missing(float a) {
        return a != a;
}
DEVICE bool value_missing(double a) {
        return a != a;
}

/* What came first stays, but for a NaN. */
template <typename VALUE> DEVICE VALUE value_max(VALUE a, VALUE b) {
        return b > a || value_missing(a) ? b : a;
}

template <typename VALUE> DEVICE VALUE value_min(VALUE a, VALUE b) {
        return b < a || value_missing(a) ? b : a;
}

/* ---- elements: to values and back, and times a factor ------------------------------------------------------------ */
/* read() looks at the low bits only. write() rounds; the other bits of what it and scale() return are 0. */
template <typename RAW, typename RAW_UNSIGNED, typename VALUE> struct integer_element {
        typedef VALUE value;
        static constexpr uint32_t bits = 8 * sizeof(RAW);

        DEVICE value read(uint64_t raw) {
                return (value)(RAW)raw;
        }
        DEVICE uint64_t write(value v) {
                return (RAW_UNSIGNED)v;
        }
        DEVICE uint64_t scale(uint64_t raw, uint64_t scalar) {
                return (RAW_UNSIGNED)(raw * scalar);
        }
};

template <uint32_t BITS, typename FORMAT> struct small_element {
        typedef float value;
        static constexpr uint32_t bits = BITS;

        DEVICE value read(uint64_t raw) {
                return FORMAT::decode((uint32_t)raw & ((1u << BITS) - 1));
        }
        DEVICE uint64_t write(value v) {
                return FORMAT::encode(v);
        }
        DEVICE uint64_t scale(uint64_t raw, uint64_t scalar) {
                return write(f32_multiply(read(raw), f32_from((uint32_t)scalar)));
        }
};

struct f32_element {
        typedef float value;
        static constexpr uint32_t bits = 32;

        DEVICE value read(uint64_t raw) {
                return f32_from((uint32_t)raw);
        }
        DEVICE uint64_t write(value v) {
                return f32_canonical(v);
        }
        DEVICE uint64_t scale(uint64_t raw, uint64_t scalar) {
                return write(f32_multiply(read(raw), f32_from((uint32_t)scalar)));
        }
};

struct f64_element {
        typedef double value;
        static constexpr uint32_t bits = 64;

        DEVICE value read(uint64_t raw) {
                return f64_from(raw);
        }
        DEVICE uint64_t write(value v) {
                return f64_canonical(v);
        }
        DEVICE uint64_t scale(uint64_t raw, uint64_t scalar) {
                return write(f64_multiply(read(raw), f64_from(scalar)));
        }
};

template <uint32_t TYPE> struct reduce_element;
template <> struct reduce_element<RMX_INT8> : integer_element<int8_t, uint8_t, int32_t> {};
template <> struct reduce_element<RMX_UINT8> : integer_element<uint8_t, uint8_t, uint32_t> {};
template <> struct reduce_element<RMX_INT32> : integer_element<int32_t, uint32_t, int64_t> {};
template <> struct reduce_element<RMX_UINT32> : integer_element<uint32_t, uint32_t, uint64_t> {};
template <> struct reduce_element<RMX_INT64> : integer_element<int64_t, uint64_t, int64_t> {};
template <> struct reduce_element<RMX_UINT64> : integer_element<uint64_t, uint64_t, uint64_t> {};
template <> struct reduce_element<RMX_FLOAT16> : small_element<16, fp16> {};
template <> struct reduce_element<RMX_FLOAT32> : f32_element {};
template <> struct reduce_element<RMX_FLOAT64> : f64_element {};
template <> struct reduce_element<RMX_BFLOAT16> : small_element<16, bf16> {};
template <> struct reduce_element<RMX_FLOAT8_E4M3> : small_element<8, e4m3> {};
template <> struct reduce_element<RMX_FLOAT8_E5M2> : small_element<8, e5m2> {};

/* ---- any type and reduction -------------------------------------------------------------------------------------- */
template <uint32_t TYPE> struct reduce_accumulator {
        typedef reduce_element<TYPE> element;
        typedef typename element::value value;
        static constexpr uint32_t n = 64 / element::bits;
        static constexpr uint32_t words = n * sizeof(value) / 8; /* of eight bytes, that it is */

        value x[n];
};

/* The contribution of rank 0. */
template <uint32_t TYPE> DEVICE void reduce_begin(reduce_accumulator<TYPE> &a, uint32_t redop, uint64_t x) {
        typedef typename reduce_accumulator<TYPE>::element element;

        (void)redop; /* all begin alike */
        UNROLL
        for (uint32_t i = 0; i < a.n; i++)
                a.x[i] = element::read(x >> (i * element::bits));
}

/* What comes behind it in the order of the plan. */
template <uint32_t TYPE>
DEVICE void reduce_merge(reduce_accumulator<TYPE> &a, uint32_t redop, const reduce_accumulator<TYPE> &b) {
        switch (redop) {
        case RMX_PROD:
                UNROLL
                for (uint32_t i = 0; i < a.n; i++)
                        a.x[i] = value_multiply(a.x[i], b.x[i]);
                break;
        case RMX_MAX:
                UNROLL
                for (uint32_t i = 0; i < a.n; i++)
                        a.x[i] = value_max(a.x[i], b.x[i]);
                break;
        case RMX_MIN:
                UNROLL
                for (uint32_t i = 0; i < a.n; i++)
                        a.x[i] = value_min(a.x[i], b.x[i]);
                break;
        default: /* RMX_SUM, RMX_AVG, RMX_PREMUL_SUM: every contribution is scaled already */
                UNROLL
                for (uint32_t i = 0; i < a.n; i++)
                        a.x[i] = value_add(a.x[i], b.x[i]);
        }
}

/* The next rank's. */
template <uint32_t TYPE> DEVICE void reduce_add(reduce_accumulator<TYPE> &a, uint32_t redop, uint64_t x) {
        reduce_accumulator<TYPE> b;

        reduce_begin<TYPE>(b, redop, x);
        reduce_merge<TYPE>(a, redop, b);
}

template <uint32_t TYPE>
DEVICE uint64_t reduce_finish(const reduce_accumulator<TYPE> &a, uint32_t redop, uint32_t n_ranks) {
        typedef typename reduce_accumulator<TYPE>::element element;
        uint64_t result = 0;

        UNROLL
        for (uint32_t i = 0; i < a.n; i++)
                result |= element::write(redop == RMX_AVG ? value_divide(a.x[i], n_ranks) : a.x[i])
                          << (i * element::bits);
        return result;
}

/* ---- accumulators on their way ----------------------------------------------------------------------------------- */
DEVICE uint32_t value_bits(float v) {
        return f32_bits(v);
}
DEVICE uint64_t value_bits(double v) {
        return f64_bits(v);
}
DEVICE uint32_t value_bits(int32_t v) {
        return (uint32_t)v;
}
DEVICE uint32_t value_bits(uint32_t v) {
        return v;
}
DEVICE uint64_t value_bits(int64_t v) {
        return (uint64_t)v;
}
DEVICE uint64_t value_bits(uint64_t v) {
        return v;
}

DEVICE void value_set(float *to, uint64_t bits) {
        *to = f32_from((uint32_t)bits);
}
DEVICE void value_set(double *to, uint64_t bits) {
        *to = f64_from(bits);
}
template <typename VALUE> DEVICE void value_set(VALUE *to, uint64_t bits) {
        *to = (VALUE)bits;
}

/* Word i of an accumulator, exactly. */
template <uint32_t TYPE> DEVICE uint64_t reduce_partial_out(const reduce_accumulator<TYPE> &a, uint32_t i) {
        if constexpr (sizeof(a.x[0]) == 8)
                return value_bits(a.x[i]);
        else
                return (uint64_t)value_bits(a.x[2 * i + 1]) << 32 | value_bits(a.x[2 * i]);
}

template <uint32_t TYPE> DEVICE void reduce_partial_in(reduce_accumulator<TYPE> &a, uint32_t i, uint64_t word) {
        if constexpr (sizeof(a.x[0]) == 8) {
                value_set(&a.x[i], word);
        } else {
                value_set(&a.x[2 * i], word & 0xffffffffu);
                value_set(&a.x[2 * i + 1], word >> 32);
        }
}

/* log2 of how many times as long as its elements it travels. Whole numbers that are not averaged travel as elements:
 * what is cut off is not needed any more. */
DEVICE uint32_t reduce_widens(uint32_t type, uint32_t redop) {
        switch (type) {
        case RMX_FLOAT8_E4M3:
        case RMX_FLOAT8_E5M2:
                return 2;
        case RMX_FLOAT16:
        case RMX_BFLOAT16:
                return 1;
        case RMX_INT8:
        case RMX_UINT8:
                return redop == RMX_AVG ? 2 : 0;
        case RMX_INT32:
        case RMX_UINT32:
                return redop == RMX_AVG;
        default:
                return 0;
        }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */
/* One half of the payloads. */
template <uint32_t N, uint32_t TYPE, uint32_t SHIFT> DEVICE uint32_t reduce_sum_word(const uint64_t (&x)[N]) {
        if constexpr (TYPE == RMX_FLOAT32) {
                float a = f32_from((uint32_t)(x[0] >> SHIFT));

                UNROLL
                for (uint32_t r = 1; r < N; r++)
                        a = f32_add(a, f32_from((uint32_t)(x[r] >> SHIFT)));
                return f32_canonical(a);
        } else {
                struct f32_pair a = pair_decode<TYPE>((uint32_t)(x[0] >> SHIFT));

                UNROLL
                for (uint32_t r = 1; r < N; r++) {
                        struct f32_pair b = pair_decode<TYPE>((uint32_t)(x[r] >> SHIFT));

                        a.low = f32_add(a.low, b.low);
                        a.high = f32_add(a.high, b.high);
                }
                return pair_encode<TYPE>(a);
        }
}

/* x[0] + x[1] + .. + x[N - 1], of RMX_FLOAT32, RMX_FLOAT16 or RMX_BFLOAT16. */
template <uint32_t N, uint32_t TYPE> DEVICE uint64_t reduce_sum(const uint64_t (&x)[N]) {
        return (uint64_t)reduce_sum_word<N, TYPE, 32>(x) << 32 | reduce_sum_word<N, TYPE, 0>(x);
}

/* ---- premultiplied sums ------------------------------------------------------------------------------------------ */
template <uint32_t TYPE> DEVICE uint64_t reduce_scale_type(uint64_t scalar, uint64_t x) {
        typedef reduce_element<TYPE> element;
        uint64_t result = 0;

        UNROLL
        for (uint32_t i = 0; i < 64; i += element::bits)
                result |= element::scale(x >> i, scalar) << i;
        return result;
}

/* A rank's contribution times its factor, rounded to elements again. The factor is as in a request (gpu/host/reduce.c).
 * Not inlined: it is long, and seldom called. */
[[maybe_unused]] DEVICE_OUTLINE uint64_t reduce_scale(uint32_t type, uint64_t scalar, uint64_t x) {
        switch (type) {
        case RMX_INT8:
        case RMX_UINT8:
                return reduce_scale_type<RMX_UINT8>(scalar, x);
        case RMX_INT32:
        case RMX_UINT32:
                return reduce_scale_type<RMX_UINT32>(scalar, x);
        case RMX_INT64:
        case RMX_UINT64:
                return reduce_scale_type<RMX_UINT64>(scalar, x);
        case RMX_FLOAT16:
                return reduce_scale_type<RMX_FLOAT16>(scalar, x);
        case RMX_FLOAT32:
                return reduce_scale_type<RMX_FLOAT32>(scalar, x);
        case RMX_FLOAT64:
                return reduce_scale_type<RMX_FLOAT64>(scalar, x);
        case RMX_BFLOAT16:
                return reduce_scale_type<RMX_BFLOAT16>(scalar, x);
        case RMX_FLOAT8_E4M3:
                return reduce_scale_type<RMX_FLOAT8_E4M3>(scalar, x);
        default:
                return reduce_scale_type<RMX_FLOAT8_E5M2>(scalar, x);
        }
}
