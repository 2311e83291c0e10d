/* SPDX-License-Identifier: MIT */
#if defined(__HIP__)
#include <hip/hip_runtime_api.h>
#endif

#include "gpu/device/order.h"
#include "railmux/railmux_device.h"
#include "tests/client/hip/caller.h"

#if TARGET_NVIDIA
#define PARAMETER __grid_constant__
#else
#define PARAMETER
#endif

KERNEL void caller_call(const PARAMETER struct rmx_device_handle handle, int *results, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                results[i * rmx_bell_threads() + rmx_bell_thread()] = rmx_device_call(&handle); /* of any shape */
}

KERNEL void caller_start(const PARAMETER struct rmx_device_handle first,
                         const PARAMETER struct rmx_device_handle second, uint32_t *tickets) {
        tickets[block_thread()] = rmx_device_start(&first);
        tickets[block_threads() + block_thread()] = rmx_device_start(&second);
}

KERNEL void caller_wait(const PARAMETER struct rmx_device_handle first, const PARAMETER struct rmx_device_handle second,
                        const uint32_t *tickets, int *results) {
        uint32_t thread = block_thread(), threads = block_threads();

        results[threads + thread] = rmx_device_wait(&second, tickets[threads + thread]);
        results[thread] = rmx_device_wait(&first, tickets[thread]);
}

KERNEL void caller_fused(const PARAMETER struct rmx_device_handle handle, uint32_t *in, const uint32_t *out,
                         uint32_t *after, uint32_t *finished, int *result) {
        SHARED uint32_t before;
        uint32_t at = block_index() * CALLER_WORDS + block_thread();
        int r;

        in[at] += 1;
        fence_release_device();
        block_sync();
        if (block_thread() == 0)
                before = counter_next(finished);
        block_sync();
        if (before != CALLER_BLOCKS)
                return;
        fence_acquire_device();
        r = rmx_device_call(&handle);
        for (uint32_t i = block_thread(); i < CALLER_BLOCKS * CALLER_WORDS; i += block_threads())
                after[i] = out[i];
        if (block_thread() == 0) {
                *result = r;
                word_store(finished, 0);
        }
}

extern "C" const void *caller_call_kernel(void) {
        return (const void *)caller_call;
}
extern "C" const void *caller_start_kernel(void) {
        return (const void *)caller_start;
}
extern "C" const void *caller_wait_kernel(void) {
        return (const void *)caller_wait;
}
extern "C" const void *caller_fused_kernel(void) {
        return (const void *)caller_fused;
}
