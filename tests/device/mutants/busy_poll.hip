/* SPDX-License-Identifier: MIT */
/* Polls without a pause where one is due. */
#include "gpu/device/order.h"

extern "C" KERNEL void mutant(const uint32_t *flag, uint32_t *out) {
        while (word_load(flag) == 0)
                ;
        fence_acquire_system();
        out[0] = 1;
}
