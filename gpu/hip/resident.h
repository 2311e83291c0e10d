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
 *
 * Ranks. What a worker keeps at hand of a communicator's ranks is half of its memory or more, so workers with room for
 * 64 ranks do not fit where those with room for 32 just do: sixteen in NVIDIA's 227 KiB, four in AMD's 64. As long as
 * no communicator has more than 32 they are not launched. Then it is twice the blocks with half of the warps: on NVIDIA
 * those of the kernel for many blocks, on AMD a kernel of its own.
 */
#include "gpu/hip/kernel.h"

#include "gpu/device/place.h"
#include "gpu/device/worker.h"

#if TARGET_AMD
#define RESIDENT_WARPS       4u
#define RESIDENT_WARPS_DENSE 4u
#define RESIDENT_WARPS_WIDE  2u
#else
#define RESIDENT_WARPS       8u
#define RESIDENT_WARPS_DENSE 16u
#endif

/* What a block may have at most: of compute capability 9.0, of gfx9. */
#if defined(RESIDENT_DENSE)
#define RESIDENT_WARPS_HERE RESIDENT_WARPS_DENSE
#elif defined(RESIDENT_WIDE) && TARGET_AMD
#define RESIDENT_WARPS_HERE RESIDENT_WARPS_WIDE
#else
#define RESIDENT_WARPS_HERE RESIDENT_WARPS
#endif
static_assert(RESIDENT_WARPS_HERE * sizeof(struct worker_shared) <= (TARGET_NVIDIA ? 227u : 64u) << 10,
              "a block's workers fit its shared memory");

extern SHARED __attribute__((aligned(16))) unsigned char resident_shared[];

template <uint32_t WARPS> DEVICE void resident_main(const struct kernel_arguments *a) {
        const uint32_t n = block_count(), warp = block_thread() / WARP_THREADS,
                       index = place_worker(block_index(), warp, n);

        worker_main((struct worker_shared *)(void *)resident_shared + warp, (struct worker_scratch *)a->scratch + index,
                    a->table, a->report, index, WARPS * n);
}

/* One of them, as it is launched. */
struct resident {
        const void *function;
        uint32_t warps;        /* of a block */
        uint32_t shared_bytes; /* of a warp */
};

/* The kernel of many warps, and that of many ranks. False: there is none, or it is the same. */
bool resident_dense(struct resident *ret_resident);
bool resident_wide(struct resident *ret_resident);
