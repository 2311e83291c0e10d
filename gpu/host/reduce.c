/* SPDX-License-Identifier: MIT */
/*
 * What a reduction means on the host backend
 *
 * Order. Contributions are combined in the order of the sources: ((x0 op x1) op x2) op ... . Nothing is re-associated,
 * and no multiplication is fused with an addition, so every instruction set gives the same bits.
 *
 * Accumulation. Integers in their own type; sum and product wrap (modulo 2^bits). fp32 and fp64 in their own type. The
 * small floats, fp16, bf16 and fp8, in fp32, rounded once at the end to nearest, ties to even; subnormals are kept.
 * Overflow gives infinity; fp8 e4m3, which has none, gives NaN (it does not saturate at 448).
 *
 * Partial results. An accumulator may be written as it is and be a source later. So a fold that is cut in two, its
 * first half a partial result and the first source of the second half, gives the same bits as the whole one. What NaNs
 * look like in an accumulator is not defined; the value is finished and rounded only where elements are written. A call
 * may also round without finishing: then its outputs are elements that stand for the contributions so far.
 *
 * Average is the sum divided by the number of ranks. Floats: the accumulated sum is divided before it is rounded.
 * Integers: the sum is accumulated in 64 bits (where 64-bit types wrap) and the division truncates toward zero.
 *
 * Premultiplied sum. An element is first multiplied by a scalar of its rank, and the product is rounded to the
 * element's type: integers wrap in it; small floats are multiplied in fp32 and rounded to their own type, as if the
 * rank had sent the product. So it does not matter which step of an algorithm multiplies. Partial results are never
 * multiplied. A scalar travels in 64 bits (reduce_call.scalar): integers sign- or zero-extended; for fp32 and the small
 * floats the bits of an fp32 number in the low half; for fp64 its bits.
 *
 * Minimum and maximum of floats treat a NaN as missing: the result is a NaN only if every contribution is one. Of equal
 * values (so also of -0 and +0) the one that comes first is kept.
 *
 * A NaN result of any operation is the positive quiet NaN without payload; in e4m3 it is 0x7f, in e5m2 0x7e. Which of
 * two payloads an addition passes on depends on the order of its operands in the instruction, which is the compiler's
 * choice; so payloads could not be promised, and two plans could differ in them.
 *
 * Stores past the caches (reduce_call.stream) are ordered by a fence before the kernel returns: to whoever publishes
 * the result they are like any others.
 *
 * The kernels are one template (reduce_kernels.h) compiled once per instruction set. Choosing through a table rather
 * than through ifunc keeps sanitizers working, whose runtimes are not ready when ifunc resolvers run.
 */
#include "gpu/host/reduce.h"

#if REDUCE_X86
#include <cpuid.h>

/* Conversions of fp16; compilers differ in whether they can be asked for this one by name. */
static bool reduce_has_f16c(void) {
        unsigned int a, b, c, d;

        return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#endif

const struct reduce_kernels *reduce_kernels_at(unsigned int index) {
        const struct reduce_kernels *found[3];
        unsigned int n = 0;

        found[n++] = &reduce_kernels_base;
#if REDUCE_X86
        if (__builtin_cpu_supports("avx2") && reduce_has_f16c())
                found[n++] = &reduce_kernels_avx2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
                found[n++] = &reduce_kernels_avx512;
#endif
        return index < n ? found[index] : NULL;
}

static const struct reduce_kernels *reduce_kernels_best(void) {
        const struct reduce_kernels *best = NULL;
        const struct reduce_kernels *next;

        for (unsigned int i = 0; (next = reduce_kernels_at(i)); i++)
                best = next;
        return best;
}

bool reduce_supported(uint32_t type, uint32_t redop) {
        return type < RMX_TYPE_COUNT && redop < RMX_REDOP_COUNT && reduce_kernels_base.fn[type][redop];
}

reduce_fn reduce_find(uint32_t type, uint32_t redop) {
        return reduce_supported(type, redop) ? reduce_kernels_best()->fn[type][redop] : NULL;
}
