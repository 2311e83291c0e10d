/* SPDX-License-Identifier: MIT */
/* Polled at the scope of a block: the L1 may keep the old value. */
#include "gpu/device/order.h"

DEVICE uint32_t word_load_block(const uint32_t *from) {
#if TARGET_NVIDIA
        uint32_t value;
        asm volatile("ld.relaxed.cta.global.u32 %0,[%1];" : "=r"(value) : "l"(from));
        return value;
#else
        return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
#endif
}

extern "C" KERNEL void mutant(const uint32_t *flag, uint32_t *out) {
        while (word_load_block(flag) == 0)
                poll_pause();
        fence_acquire_system();
        out[0] = 1;
}
