/* SPDX-License-Identifier: MIT */
#pragma once
/* Element-wise reduction of n arrays. See reduce.c for what each type and operation means. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "railmux/railmux.h"

#define REDUCE_SOURCES_MAX 64u

/*
 * One piece of work: out[i] = finish(source[0][i] op source[1][i] op ...), in this order. Elements may lie at any byte,
 * accumulators are aligned to 64. An output and a source are the same array, of the same kind, or do not overlap.
 */
struct reduce_call {
        void *const *out; /* n_out places that all get the result */
        uint32_t n_out;
        const void *const *source; /* n arrays */
        uint32_t n;                /* 1 .. REDUCE_SOURCES_MAX */
        uint64_t partials;         /* bit i: source i holds accumulators (see type_accumulator_size), not elements */
        const uint64_t *scalar;    /* RMX_PREMUL_SUM: n factors (see reduce.c); may be NULL where `scaled` is 0 */
        uint64_t scaled;           /* bit i: source i, if it holds elements, is multiplied by scalar[i] first */
        uint32_t n_ranks;          /* divisor of RMX_AVG */
        bool out_partial;          /* the outputs are accumulators: not finished, not rounded */
        bool finish;               /* the value is complete: RMX_AVG divides. Without it elements are only rounded. */
        bool stream;               /* hint: the outputs are larger than the caches */
        size_t length;             /* elements */
};

typedef void (*reduce_fn)(const struct reduce_call *call);

/* One set of kernels, compiled for one instruction set. */
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
