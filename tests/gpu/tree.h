/* SPDX-License-Identifier: MIT */
#pragma once
/* What a reduction must give when contributions are combined in a plan's declared tree, element by element. Written
 * from the definitions (plan.h, gpu/host/reduce.c), without accumulator formats, chunks or kernels. */
#include <stddef.h>
#include <stdint.h>

struct tree_call {
        uint32_t tree; /* enum plan_tree */
        uint32_t type, redop;
        uint32_t n;                /* ranks */
        uint32_t origin;           /* ROTATED: the owner; BINARY: the root */
        const void *const *source; /* [n] */
        const uint64_t *scalar;    /* [n], RMX_PREMUL_SUM */
};

/* out[0] of element `index` of all sources. */
void tree_reduce(const struct tree_call *call, size_t index, void *out);
