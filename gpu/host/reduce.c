/* SPDX-License-Identifier: MIT */
/*
 * What a reduction means on the host backend
 *
 * Order. Contributions are combined in the order of the sources, which is rank order: ((x0 op x1) op x2) op ... .
 * Nothing is re-associated, and no multiplication is fused with an addition, so every instruction set gives the same
 * bits.
 *
 * Accumulation. Integers in their own type; sum and product wrap (modulo 2^bits). fp32 and fp64 in their own type. fp16
 * and bf16 in fp32, rounded once at the end to nearest, ties to even; overflow gives infinity, and subnormals are kept.
 *
 * Average is the sum divided by the number of sources. Floats: the accumulated sum is divided before it is rounded.
 * Integers: the sum is accumulated in 64 bits (where 64-bit types wrap) and the division truncates toward zero.
 *
 * Minimum and maximum of floats treat a NaN as missing: the result is a NaN only if every contribution is one. Of equal
 * values (so also of -0 and +0) the one of the lowest rank is kept.
 *
 * A NaN result of any operation is the positive quiet NaN without payload. Which of two payloads an addition passes on
 * depends on the order of its operands in the instruction, which is the compiler's choice and may differ between the
 * body of a vectorised loop and its tail; so payloads could not be promised, and two plans could differ in them.
 *
 * The kernels are one template (reduce_kernels.h) compiled once per instruction set. Choosing through a table rather
 * than through ifunc keeps sanitizers working, whose runtimes are not ready when ifunc resolvers run.
 */
#include "gpu/host/reduce.h"

const struct reduce_kernels *reduce_kernels_at(unsigned int index) {
        const struct reduce_kernels *found[3];
        unsigned int n = 0;

        found[n++] = &reduce_kernels_base;
#if REDUCE_X86
        if (__builtin_cpu_supports("avx2"))
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
