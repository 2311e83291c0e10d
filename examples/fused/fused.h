/* SPDX-License-Identifier: MIT */
#pragma once
/* What the kernel and the program agree on. C and device code. */
#include <railmux/railmux.h>
#include <stdint.h>

#define ROWS          256u
#define BLOCK_THREADS 64u
#define BLOCKS        (ROWS / BLOCK_THREADS)

struct layer {
        const float *weights; /* ROWS x columns, this rank's columns */
        const float *input;   /* columns */
        float *output;        /* ROWS */
        uint32_t *finished;   /* blocks, 0 at first */
        int *result;          /* of the all_reduce */
        uint32_t columns;
};

#ifdef __cplusplus
extern "C" {
#endif
/* For the runtime's launch call: takes (struct layer, struct rmx_device_handle). */
const void *layer_kernel(void);
#ifdef __cplusplus
}
#endif
