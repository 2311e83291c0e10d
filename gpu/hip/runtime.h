/* SPDX-License-Identifier: MIT */
#pragma once
/* The GPU runtime by HIP's names, and how its errors become ours. */
#if defined(RAILMUX_CUDA)
#include "gpu/device/hip_on_cuda.h"
#else
#include <hip/hip_runtime_api.h>
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a GPU has not done by then it never will, and it is given up, with all that everybody has under way on it. GPUs
 * stand still for longer than one would think: for 9 to 10 s, and in four of seven tries for more than these 30, when
 * thirty processes began on one under MPS beside requests and kernels that stay (policy latency; never under adaptive;
 * H200, driver 580.159). */
#define RUNTIME_LOST_MS 30000u

/* 0, or negative errno with "what: why" in `error` (PLANE_TEXT bytes; may be NULL). -EBUSY: other memory is mapped
 * where this would be. -EIO: the context is lost, or nothing better is known. */
int runtime_check(hipError_t result, const char *what, char *error);

/* Device memory that other GPUs and the host look at while kernels run. */
int runtime_alloc_shared(size_t bytes, void **ret_address, const char *what, char *error);
/* Waits for everything in the stream, but not for ever: -ETIMEDOUT after RUNTIME_LOST_MS. */
int runtime_wait(hipStream_t stream, const char *what, char *error);
/* One look: *ret_done. */
int runtime_done(hipStream_t stream, bool *ret_done, const char *what, char *error);
/* Between two looks of a loop that waits. */
void runtime_pause(void);
