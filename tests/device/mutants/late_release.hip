/* SPDX-License-Identifier: MIT */
/* The fence comes after the flag. */
#include "gpu/device/order.h"

extern "C" KERNEL void mutant(uint32_t *data, uint32_t *flag) {
        data[warp_thread()] = 1;
        warp_sync();
        if (warp_thread() == 0)
                word_store(flag, 1);
        fence_release_system();
}
