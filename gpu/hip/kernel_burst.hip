/* SPDX-License-Identifier: MIT */
/*
 * Bursts (gpu/device/burst.h). As many warps a block as the resident kernel has where it has few, so that a thread has
 * all the registers it can have: what counts is how many loads are under way, and they are what registers are for.
 */
#include "gpu/device/burst.h"
#include "gpu/hip/kernel.h"

#if TARGET_AMD
#define BURST_WARPS 4u
#else
#define BURST_WARPS 8u
#endif
#define BURST_BLOCKS ((BURST_LANES + BURST_WARPS - 1) / BURST_WARPS) /* for a slice */

struct burst_arguments {
        struct burst_queue *queue;
        uint32_t number;
        uint32_t zero;
};

struct burst_shared {
        struct worker_shared s; /* of which only view and rank are used */
        struct task task[BURST_WARPS];
        uint32_t go;
};

SHARED __attribute__((aligned(16))) unsigned char burst_memory[sizeof(struct burst_shared)];

extern "C" KERNEL void LAUNCH_BOUNDS(BURST_WARPS *WARP_THREADS) railmux_burst(const struct burst_arguments a) {
        struct burst_shared *shared = (struct burst_shared *)(void *)burst_memory;
        struct burst_job *job = &a.queue->job[a.number % TABLE_BURSTS];
        const uint32_t warp = block_thread() / WARP_THREADS;

        if (block_thread() == 0) {
                uint32_t looks = 0, go;

                while (!(go = burst_look(job, a.number, ++looks >= BURST_LOOKS))) {
#if TARGET_AMD
                        poll_pause();
#endif
                }
                shared->go = go;
        }
        block_sync();
        if (shared->go != BURST_YES)
                return;
        fence_acquire_system();
        burst_load(job, &shared->s, block_thread(), block_threads());
        burst_load_task(job, &shared->task[warp]);
        block_sync();
        burst_move(&shared->s, &shared->task[warp], shared->s.rank.n_ranks, warp * block_count() + block_index(),
                   block_count() * BURST_WARPS);
        fence_release_system();
        block_sync();
        if (block_thread() == 0)
                burst_end(job, a.number, block_count());
}

size_t kernel_burst_bytes(void) {
        return sizeof(struct burst_queue);
}

uint32_t kernel_burst_blocks(uint32_t slices) {
        return slices * BURST_BLOCKS;
}

void *kernel_burst_state(void *queue, uint32_t number) {
        return &((struct burst_queue *)queue)->job[number % TABLE_BURSTS].state;
}

uint32_t kernel_burst_done(uint32_t number) {
        return number << BURST_STATE_BITS | BURST_DONE;
}

int kernel_burst_preload(void) {
        return (int)hipFuncSetAttribute((const void *)railmux_burst, hipFuncAttributeMaxDynamicSharedMemorySize, 0);
}

int kernel_burst_launch(hipStream_t stream, void *queue, uint32_t number, uint32_t n_blocks) {
        struct burst_arguments a = {(struct burst_queue *)queue, number, 0};
        void *parameters[] = {&a};

        return (int)hipLaunchKernel((const void *)railmux_burst, dim3(n_blocks), dim3(BURST_WARPS * WARP_THREADS),
                                    parameters, 0, stream);
}
