/* SPDX-License-Identifier: MIT */
#pragma once
/* Kernels of a program that make calls by themselves. C and device code. */
#include <stdint.h>

#include "railmux/railmux.h"

#define CALLER_THREADS_MAX 256u
#define CALLER_BLOCKS      16u /* of caller_fused, of CALLER_WORDS threads each */
#define CALLER_WORDS       64u

#ifdef __cplusplus
extern "C" {
#endif
/* (struct rmx_device_handle handle, int *results, uint32_t n): n calls, with results[n][threads]. */
const void *caller_call_kernel(void);
/* (struct rmx_device_handle first, second, uint32_t *tickets): starts both, with tickets[2][threads]. */
const void *caller_start_kernel(void);
/* (struct rmx_device_handle first, second, const uint32_t *tickets, int *results): waits for the second one first. */
const void *caller_wait_kernel(void);
/* (struct rmx_device_handle handle, uint32_t *in, const uint32_t *out, uint32_t *after, uint32_t *finished, int
 * *result): each of CALLER_BLOCKS blocks adds 1 to its words of `in`; the last of them calls, and copies out to after.
 */
const void *caller_fused_kernel(void);
#ifdef __cplusplus
}
#endif
