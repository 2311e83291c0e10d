/* SPDX-License-Identifier: MIT */
#pragma once
/* Element-wise reduction of n arrays. See reduce.c for what each type and operation means. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "railmux/railmux.h"

/*
 * out[i] = source[0][i] op source[1][i] op ... in this order. n >= 1. out may be equal to one of the sources; other
 * overlaps are not allowed. Nothing needs to be aligned.
 */
typedef void (*reduce_fn)(void *out, const void *const *source, uint32_t n, size_t length);

/* One set of kernels, compiled for one instruction set. NULL: the type does not reduce so. */
struct reduce_kernels {
        const char *name;
        reduce_fn fn[RMX_TYPE_COUNT][RMX_REDOP_COUNT];
};

extern const struct reduce_kernels reduce_kernels_base;
extern const struct reduce_kernels reduce_kernels_avx2;
extern const struct reduce_kernels reduce_kernels_avx512;

bool reduce_supported(uint32_t type, uint32_t redop);
/* The kernel for this processor, NULL if unsupported. */
reduce_fn reduce_find(uint32_t type, uint32_t redop);

/* All sets that run on this processor, slowest first; NULL past the end. */
const struct reduce_kernels *reduce_kernels_at(unsigned int index);
