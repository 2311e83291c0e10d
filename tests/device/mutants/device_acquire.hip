/* SPDX-License-Identifier: MIT */
/* The fence between flag and data reaches only this GPU. */
#include "gpu/device/order.h"

extern "C" KERNEL void mutant(const uint32_t *flag, const uint32_t *data, uint32_t *out) {
        while (word_load(flag) == 0)
                poll_pause();
#if TARGET_NVIDIA
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
#endif
        out[0] = *data;
}
