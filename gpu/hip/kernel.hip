/* SPDX-License-Identifier: MIT */
/*
 * The resident kernel: every warp of every block is a worker (gpu/device/worker.h). Consecutive workers are in
 * different blocks, so that the few lanes of a small request spread over all processors.
 *
 * Threads of a block: as many as leave each of them the registers that the fastest paths want without spilling.
 */
#include "gpu/hip/kernel.h"

#include "gpu/device/worker.h"

/* AMD: four wavefronts are one for each SIMD of a compute unit, with all of its 512 registers. With eight the kernel
 * needs a few more than the 256 that each then has, and could not be launched. */
#if TARGET_AMD
#define KERNEL_WARPS 4u
#else
#define KERNEL_WARPS 16u
#endif
#define KERNEL_THREADS (KERNEL_WARPS * WARP_THREADS)

extern SHARED __attribute__((aligned(16))) unsigned char kernel_shared[];

extern "C" KERNEL void LAUNCH_BOUNDS(KERNEL_THREADS) railmux_resident(const struct kernel_arguments a) {
        const uint32_t n = block_count(), warp = block_thread() / WARP_THREADS, index = warp * n + block_index();

        worker_main((struct worker_shared *)(void *)kernel_shared + warp, (struct worker_scratch *)a.scratch + index,
                    a.table, a.report, index, KERNEL_WARPS * n);
}

int kernel_threads(uint32_t device, uint32_t *ret_threads_per_block, uint32_t *ret_shared_bytes) {
        (void)device;
        *ret_threads_per_block = KERNEL_THREADS;
        *ret_shared_bytes = KERNEL_WARPS * (uint32_t)sizeof(struct worker_shared);
        return 0;
}

size_t kernel_scratch_bytes(uint32_t n_blocks) {
        return (size_t)n_blocks * KERNEL_WARPS * sizeof(struct worker_scratch);
}

int kernel_workers(uint32_t n_blocks) {
        return (int)(n_blocks * KERNEL_WARPS);
}

int kernel_preload(void) {
        hipError_t e = hipFuncSetAttribute((const void *)railmux_resident, hipFuncAttributeMaxDynamicSharedMemorySize,
                                           (int)(KERNEL_WARPS * sizeof(struct worker_shared)));

        return e == hipSuccess ? 0 : (int)e;
}

int kernel_launch(hipStream_t stream, uint32_t n_blocks, const struct kernel_arguments *arguments) {
        void *parameters[] = {(void *)(uintptr_t)arguments};

        return (int)hipLaunchKernel((const void *)railmux_resident, dim3(n_blocks), dim3(KERNEL_THREADS), parameters,
                                    KERNEL_WARPS * sizeof(struct worker_shared), stream);
}
