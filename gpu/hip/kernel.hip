/* SPDX-License-Identifier: MIT */
/* The resident kernel for many blocks (resident.h), and which of the two is launched. */
#include "gpu/hip/resident.h"

extern "C" KERNEL void LAUNCH_BOUNDS(RESIDENT_WARPS *WARP_THREADS) railmux_resident(const struct kernel_arguments a) {
        resident_main<RESIDENT_WARPS>(&a);
}

struct variant {
        const void *function;
        uint32_t warps; /* of a block */
};

/* As soon as there are workers for as many lanes as requests have parts (128: staging.h), more warps would only look
 * for lines. */
static struct variant variant_of(uint32_t n_blocks) {
        const void *dense = n_blocks * RESIDENT_WARPS < 128 ? resident_dense() : NULL;

        if (dense)
                return {dense, RESIDENT_WARPS_DENSE};
        return {(const void *)railmux_resident, RESIDENT_WARPS};
}

int kernel_threads(uint32_t device, uint32_t n_blocks, uint32_t *ret_threads_per_block, uint32_t *ret_shared_bytes) {
        const struct variant v = variant_of(n_blocks);

        (void)device;
        *ret_threads_per_block = v.warps * WARP_THREADS;
        *ret_shared_bytes = v.warps * (uint32_t)sizeof(struct worker_shared);
        return 0;
}

size_t kernel_scratch_bytes(uint32_t n_blocks) {
        return (size_t)n_blocks * variant_of(n_blocks).warps * sizeof(struct worker_scratch);
}

int kernel_workers(uint32_t n_blocks) {
        return (int)(n_blocks * variant_of(n_blocks).warps);
}

int kernel_preload(uint32_t n_blocks) {
        const struct variant v = variant_of(n_blocks);
        hipError_t e = hipFuncSetAttribute(v.function, hipFuncAttributeMaxDynamicSharedMemorySize,
                                           (int)(v.warps * sizeof(struct worker_shared)));

        return e == hipSuccess ? 0 : (int)e;
}

int kernel_launch(hipStream_t stream, uint32_t n_blocks, const struct kernel_arguments *arguments) {
        const struct variant v = variant_of(n_blocks);
        void *parameters[] = {(void *)(uintptr_t)arguments};

        return (int)hipLaunchKernel(v.function, dim3(n_blocks), dim3(v.warps * WARP_THREADS), parameters,
                                    v.warps * sizeof(struct worker_shared), stream);
}
