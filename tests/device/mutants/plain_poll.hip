/* SPDX-License-Identifier: MIT */
/* A plain load: the compiler takes it out of the loop. */
#include "gpu/device/order.h"

extern "C" KERNEL void mutant(const uint32_t *flag, uint32_t *out) {
        while (*flag == 0)
                poll_pause();
        fence_acquire_system();
        out[0] = 1;
}
