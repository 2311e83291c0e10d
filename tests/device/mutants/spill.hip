/* SPDX-License-Identifier: MIT */
/* More values alive than a thread of so large a block has registers. */
#include "gpu/device/order.h"

extern "C" KERNEL void LAUNCH_BOUNDS(1024) mutant(const uint32_t *from, uint32_t *to) {
        uint32_t value[256];

        UNROLL
        for (uint32_t i = 0; i < 256; i++)
                value[i] = word_load(from + 1024 * i + block_thread());
        fence_acquire_system();
        UNROLL
        for (uint32_t i = 0; i < 256; i++)
                word_store(to + 1024 * ((i * 77) & 255) + block_thread(), value[i]);
}
