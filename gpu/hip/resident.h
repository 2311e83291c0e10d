/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The resident kernel: every warp of every block is a worker (gpu/device/worker.h, place.h).
 *
 * How many warps a block has decides how many registers a thread has. With `RESIDENT_WARPS` the fastest paths spill
 * next to nothing. Few blocks make up for their number with twice as many warps (RESIDENT_WARPS_DENSE), where half of
 * the registers means that some values wait in memory: a worker with half as many lanes is worth that.
 *
 * AMD: four wavefronts are one for each SIMD of a compute unit, with all of its 512 registers. With eight the kernel
 * needs a few more than the 256 that each then has, and could not be launched.
 */
#include "gpu/hip/kernel.h"

#include "gpu/device/place.h"
#include "gpu/device/worker.h"

#if TARGET_AMD
#define RESIDENT_WARPS       4u
#define RESIDENT_WARPS_DENSE 4u
#else
#define RESIDENT_WARPS       8u
#define RESIDENT_WARPS_DENSE 16u
#endif

#if TARGET_NVIDIA /* what a block may have at most of compute capability 9.0 */
static_assert(RESIDENT_WARPS_DENSE * sizeof(struct worker_shared) <= 227u << 10,
              "a block's workers fit its shared memory");
#endif

extern SHARED __attribute__((aligned(16))) unsigned char resident_shared[];

template <uint32_t WARPS> DEVICE void resident_main(const struct kernel_arguments *a) {
        const uint32_t n = block_count(), warp = block_thread() / WARP_THREADS,
                       index = place_worker(block_index(), warp, n);

        worker_main((struct worker_shared *)(void *)resident_shared + warp, (struct worker_scratch *)a->scratch + index,
                    a->table, a->report, index, WARPS * n);
}

#ifdef __cplusplus
extern "C" {
#endif
/* The kernel of many warps; NULL: there is none, or it is the same. */
const void *resident_dense(void);
#ifdef __cplusplus
}
#endif
