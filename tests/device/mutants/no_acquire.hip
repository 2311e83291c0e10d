/* SPDX-License-Identifier: MIT */
/* Nothing between flag and data. */
#include "gpu/device/order.h"

extern "C" KERNEL void mutant(const uint32_t *flag, const uint32_t *data, uint32_t *out) {
        while (word_load(flag) == 0)
                poll_pause();
        out[0] = word_load(data);
}
