/* SPDX-License-Identifier: MIT */
/* A table indexed at run time: it lands in memory. */
#include "gpu/device/order.h"

extern "C" KERNEL void mutant(const uint32_t *index, uint32_t *out) {
        uint32_t table[32];

        for (uint32_t i = 0; i < 32; i++)
                table[i] = word_load(index + i);
        for (uint32_t i = 0; i < 32; i++)
                out[i] = table[table[i] & 31];
}
