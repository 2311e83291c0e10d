/* SPDX-License-Identifier: MIT */
/* The fence between data and flag reaches only this GPU. */
#include "gpu/device/order.h"

extern "C" KERNEL void mutant(uint32_t *data, uint32_t *flag) {
        data[warp_thread()] = 1;
#if TARGET_NVIDIA
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
#endif
        warp_sync();
        if (warp_thread() == 0)
                word_store(flag, 1);
}
