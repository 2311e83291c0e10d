/* SPDX-License-Identifier: MIT */
/* A flag that another GPU or chiplet sets, polled at device scope: on gfx942 it may spin for ever on its own L2. */
#include "gpu/device/order.h"

DEVICE uint32_t word_load_device(const uint32_t *from) {
#if TARGET_NVIDIA
        uint32_t value;
        asm volatile("ld.relaxed.gpu.global.u32 %0,[%1];" : "=r"(value) : "l"(from));
        return value;
#else
        return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}

extern "C" KERNEL void mutant(const uint32_t *flag, uint32_t *out) {
        while (word_load_device(flag) == 0)
                poll_pause();
        fence_acquire_system();
        out[0] = 1;
}
