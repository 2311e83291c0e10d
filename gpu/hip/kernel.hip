/* SPDX-License-Identifier: MIT */
/* The resident kernel for many blocks (resident.h), and which of them is launched. */
#include "gpu/hip/resident.h"

extern "C" KERNEL void LAUNCH_BOUNDS(RESIDENT_WARPS *WARP_THREADS) railmux_resident(const struct kernel_arguments a) {
        resident_main<RESIDENT_WARPS>(&a);
}

static struct resident ordinary(void) {
        return {(const void *)railmux_resident, RESIDENT_WARPS, sizeof(struct worker_shared)};
}

/* As soon as there are workers for as many lanes as requests have parts (128: staging.h), more warps would only look
 * for lines. */
static struct resident narrow_of(uint32_t n_blocks) {
        struct resident dense;

        return n_blocks * RESIDENT_WARPS < 128 && resident_dense(&dense) ? dense : ordinary();
}

/* *ret_blocks: with as many workers as narrow ones would have. */
static struct resident variant_of(uint32_t n_blocks, bool wide, uint32_t *ret_blocks) {
        const struct resident narrow = narrow_of(n_blocks);
        struct resident v;

        *ret_blocks = n_blocks;
        if (!wide)
                return narrow;
        if (!resident_wide(&v))
                v = ordinary();
        *ret_blocks = n_blocks * narrow.warps / v.warps;
        return v;
}

void kernel_shape(uint32_t n_blocks, bool wide, struct kernel_shape *ret_shape) {
        ret_shape->threads = variant_of(n_blocks, wide, &ret_shape->blocks).warps * WARP_THREADS;
}

size_t kernel_scratch_bytes(uint32_t n_blocks) {
        return (size_t)n_blocks * narrow_of(n_blocks).warps * sizeof(struct worker_scratch);
}

int kernel_workers(uint32_t n_blocks) {
        return (int)(n_blocks * narrow_of(n_blocks).warps);
}

int kernel_preload(uint32_t n_blocks) {
        hipError_t e = hipSuccess;

        for (uint32_t wide = 0; wide < 2 && e == hipSuccess; wide++) {
                uint32_t blocks;
                const struct resident v = variant_of(n_blocks, wide, &blocks);

                e = hipFuncSetAttribute(v.function, hipFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)(v.warps * v.shared_bytes));
        }
        return e == hipSuccess ? 0 : (int)e;
}

int kernel_launch(hipStream_t stream, uint32_t n_blocks, bool wide, const struct kernel_arguments *arguments) {
        uint32_t blocks;
        const struct resident v = variant_of(n_blocks, wide, &blocks);
        void *parameters[] = {(void *)(uintptr_t)arguments};

        return (int)hipLaunchKernel(v.function, dim3(blocks), dim3(v.warps * WARP_THREADS), parameters,
                                    v.warps * v.shared_bytes, stream);
}
