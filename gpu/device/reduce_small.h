/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Float arithmetic of the device code, and the small floats: fp16, bf16, fp8 e4m3 and fp8 e5m2, to fp32 and back.
 * What is computed is said in gpu/host/reduce.c, how the conversions work in gpu/host/reduce_small.h; the results are
 * the same bits.
 *
 * No product is fused with a sum, quotients are rounded correctly, and subnormals are kept:
 *   NVIDIA  instructions by name: .rn is never fused, and without .ftz nothing is flushed. Comparisons are left to the
 *           compiler, so -ftz=true and -use_fast_math must not be given;
 *   AMD     the compiler fuses by default, also products with a conversion (v_fma_mixlo_f16, which loses the sign of
 *           -0), so it is not shown where a product comes from (REDUCE_HIDE). By default gfx9 divides right and keeps
 *           subnormals;
 *   host    clang is told by a pragma (REDUCE_SEPARATE). gcc knows none, so what includes this is compiled with
 *           -ffp-contract=off.
 *
 * sm_90 rounds two numbers to a pair of fp16 or bf16 in one instruction. It agrees with the others in all but NaNs,
 * which become 0x7fff; then the bits that the canonical NaN lacks are cleared.
 */
#include "gpu/device/target.h"
#include "railmux/railmux.h"

#if defined(__FAST_MATH__)
#error "reductions promise bits: no fast math"
#endif

#if defined(__clang__) && TARGET_HOST
#define REDUCE_SEPARATE _Pragma("clang fp contract(off)")
#else
#define REDUCE_SEPARATE
#endif
#if TARGET_AMD
#define REDUCE_HIDE(x) asm("" : "+v"(x))
#else
#define REDUCE_HIDE(x)
#endif
#if TARGET_NVIDIA && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define REDUCE_PAIRS 1
#else
#define REDUCE_PAIRS 0
#endif

/* ---- bits -------------------------------------------------------------------------------------------------------- */
DEVICE float f32_from(uint32_t bits) {
        return __builtin_bit_cast(float, bits);
}

DEVICE uint32_t f32_bits(float f) {
        return __builtin_bit_cast(uint32_t, f);
}

DEVICE double f64_from(uint64_t bits) {
        return __builtin_bit_cast(double, bits);
}

DEVICE uint64_t f64_bits(double d) {
        return __builtin_bit_cast(uint64_t, d);
}

/* A NaN becomes the positive quiet one without payload. */
DEVICE uint32_t f32_canonical(float f) {
        return f != f ? 0x7fc00000u : f32_bits(f);
}

DEVICE uint64_t f64_canonical(double d) {
        return d != d ? 0x7ff8000000000000u : f64_bits(d);
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */
#if TARGET_NVIDIA
#define REDUCE_ARITHMETIC(name, type, instruction, letter, operation)                                                  \
        DEVICE type name(type a, type b) {                                                                             \
                type result;                                                                                           \
                                                                                                                       \
                asm(instruction " %0,%1,%2;" : "=" letter(result) : letter(a), letter(b));                             \
                return result;                                                                                         \
        }
#else
#define REDUCE_ARITHMETIC(name, type, instruction, letter, operation)                                                  \
        DEVICE type name(type a, type b) {                                                                             \
                REDUCE_SEPARATE                                                                                        \
                return a operation b;                                                                                  \
        }
#endif
REDUCE_ARITHMETIC(f32_add, float, "add.rn.f32", "f", +)
REDUCE_ARITHMETIC(f32_product, float, "mul.rn.f32", "f", *)
REDUCE_ARITHMETIC(f32_divide, float, "div.rn.f32", "f", /)
REDUCE_ARITHMETIC(f64_add, double, "add.rn.f64", "d", +)
REDUCE_ARITHMETIC(f64_product, double, "mul.rn.f64", "d", *)
REDUCE_ARITHMETIC(f64_divide, double, "div.rn.f64", "d", /)
#undef REDUCE_ARITHMETIC

DEVICE float f32_multiply(float a, float b) {
        float product = f32_product(a, b);

        REDUCE_HIDE(product);
        return product;
}

DEVICE double f64_multiply(double a, double b) {
        double product = f64_product(a, b);

        REDUCE_HIDE(product);
        return product;
}

/* ---- rounding to any small format -------------------------------------------------------------------------------- */
struct small_format {
        uint32_t drop;       /* bits of fp32's mantissa that the format lacks */
        uint32_t rebias;     /* what the exponents differ by, in the format's place */
        uint32_t subnormal;  /* as fp32 bits: a power of two with the last place of subnormals */
        uint32_t min_normal; /* magnitudes as fp32 bits: the smallest normal number, */
        uint32_t overflow;   /* the smallest that rounds to infinity, */
        uint32_t nan_above;  /* and the largest that is no NaN */
        uint32_t infinity, nan;
        uint32_t sign_shift;
};

/* `format` is a constant where this is called. */
DEVICE uint32_t small_encode(float x, const struct small_format format) {
        uint32_t bits = f32_bits(x), magnitude = bits & 0x7fffffffu, code;

        if (magnitude > format.nan_above)
                return format.nan;
        if (magnitude >= format.overflow)
                code = format.infinity;
        else if (magnitude < format.min_normal)
                code = f32_bits(f32_add(f32_from(magnitude), f32_from(format.subnormal))) - format.subnormal;
        else
                code = ((magnitude + (1u << (format.drop - 1)) - 1 + ((magnitude >> format.drop) & 1)) >> format.drop) -
                       format.rebias;
        return code | (bits ^ magnitude) >> format.sign_shift;
}

/* ---- fp16 -------------------------------------------------------------------------------------------------------- */
struct fp16 {
        DEVICE float decode(uint32_t code) {
#if TARGET_NVIDIA
                float f;

                asm("cvt.f32.f16 %0,%1;" : "=f"(f) : "h"((uint16_t)code));
                return f;
#elif TARGET_AMD
                return (float)__builtin_bit_cast(_Float16, (uint16_t)code);
#else
                uint32_t magnitude = code & 0x7fffu, sign = (code & 0x8000u) << 16;

                if (magnitude < 0x400u)
                        return f32_from(f32_bits((float)magnitude * 0x1p-24f) | sign);
                /* The highest exponent stands for infinity and NaN in both formats. */
                return f32_from(((magnitude << 13) + ((magnitude >= 0x7c00u ? 224u : 112u) << 23)) | sign);
#endif
        }

        DEVICE uint32_t encode(float x) {
#if TARGET_NVIDIA
                uint16_t half;

                asm("cvt.rn.f16.f32 %0,%1;" : "=h"(half) : "f"(x));
                return x != x ? 0x7e00u : half;
#elif TARGET_AMD
                return x != x ? 0x7e00u : __builtin_bit_cast(uint16_t, (_Float16)x);
#else
                const struct small_format format = {
                        13,      112u << 10, 0x3f000000u /* 0.5 */, 0x38800000u, 0x477ff000u, 0x7f800000u, 0x7c00u,
                        0x7e00u, 16,
                };

                return small_encode(x, format);
#endif
        }
};

/* ---- bf16 -------------------------------------------------------------------------------------------------------- */
/* The upper half of fp32, so no exponent differs and subnormals need no care. */
struct bf16 {
        DEVICE float decode(uint32_t code) {
                return f32_from(code << 16);
        }

        DEVICE uint32_t encode(float x) {
                uint32_t bits = f32_bits(x);

                return x != x ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
        }
};

/* ---- fp8 --------------------------------------------------------------------------------------------------------- */
struct e5m2 {
        DEVICE float decode(uint32_t code) {
                return fp16::decode(code << 8);
        }

        DEVICE uint32_t encode(float x) {
                const struct small_format format = {
                        21, 112u << 2, 0x43000000u /* 2^7 */, 0x38800000u, 0x47700000u, 0x7f800000u, 0x7cu, 0x7eu, 24,
                };

                return small_encode(x, format);
        }
};

struct e4m3 {
        DEVICE float decode(uint32_t code) {
                uint32_t magnitude = code & 0x7fu;
                uint32_t nan = ((magnitude + 1) & 0x80u) << 7; /* all bits set: complete fp16's highest exponent */

                return f32_multiply(fp16::decode((code & 0x80u) << 8 | magnitude << 7 | nan), 256.0f);
        }

        /* No infinity: more than 464, which is a tie with the even 448, is NaN. */
        DEVICE uint32_t encode(float x) {
                const struct small_format format = {
                        20, 120u << 3, 0x46800000u /* 2^14 */, 0x3c800000u, 0x43e80001u, 0x43e80000u, 0x7fu, 0x7fu, 24,
                };

                return small_encode(x, format);
        }
};

/* ---- pairs of 16-bit floats, in one word ------------------------------------------------------------------------- */
struct f32_pair {
        float low, high;
};

template <uint32_t TYPE> DEVICE struct f32_pair pair_decode(uint32_t word) {
        static_assert(TYPE == RMX_FLOAT16 || TYPE == RMX_BFLOAT16, "two to a word");
        struct f32_pair x;

        if constexpr (TYPE == RMX_BFLOAT16) {
                x.low = f32_from(word << 16);
                x.high = f32_from(word & 0xffff0000u);
        } else {
#if TARGET_NVIDIA
                asm("{ .reg .f16 low, high;\n"
                    "mov.b32 {low,high},%2;\n" /* rather than a shift: the instruction takes either half */
                    "cvt.f32.f16 %0,low;\n"
                    "cvt.f32.f16 %1,high; }"
                    : "=f"(x.low), "=f"(x.high)
                    : "r"(word));
#else
                x.low = fp16::decode(word & 0xffffu);
                x.high = fp16::decode(word >> 16);
#endif
        }
        return x;
}

template <uint32_t TYPE> DEVICE uint32_t pair_encode(struct f32_pair x) {
        static_assert(TYPE == RMX_FLOAT16 || TYPE == RMX_BFLOAT16, "two to a word");
#if REDUCE_PAIRS
        uint32_t word, nan; /* nan: all bits of each half that is one */

        if constexpr (TYPE == RMX_FLOAT16) {
                asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(word) : "f"(x.high), "f"(x.low));
                asm("set.nan.u32.f16x2 %0,%1,%1;" : "=r"(nan) : "r"(word));
                return word & ~(nan & 0x01ff01ffu);
        } else {
                asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(word) : "f"(x.high), "f"(x.low));
                asm("set.nan.u32.bf16x2 %0,%1,%1;" : "=r"(nan) : "r"(word));
                return word & ~(nan & 0x003f003fu);
        }
#else
        if constexpr (TYPE == RMX_FLOAT16)
                return fp16::encode(x.low) | fp16::encode(x.high) << 16;
        else
                return bf16::encode(x.low) | bf16::encode(x.high) << 16;
#endif
}
