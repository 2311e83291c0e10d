/* SPDX-License-Identifier: MIT */
/*
 * One layer of a network whose matrix is split over the ranks by columns: each rank multiplies its part, the parts are
 * summed over the ranks, and a ReLU follows. All in one kernel, without the host or a second launch: the block that is
 * last to finish its rows makes the all_reduce and goes on with the sum.
 */
#if defined(__HIP__)
#include <hip/hip_runtime_api.h>
#define __global__        __attribute__((global))
#define __device__        __attribute__((device))
#define __shared__        __attribute__((shared))
#define __grid_constant__ /* parameters are not copied there anyway */
#endif
#include <railmux/railmux_device.h>

#include "fused.h"

/* HIP's and CUDA's headers have the same; HIP's is not needed for that little. */
#if defined(__HIP__)
static __device__ uint32_t thread_index(void) {
        return __builtin_amdgcn_workitem_id_x();
}
static __device__ uint32_t block_index(void) {
        return __builtin_amdgcn_workgroup_id_x();
}
static __device__ void block_barrier(void) {
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
        __builtin_amdgcn_s_barrier();
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
static __device__ void fence(void) { /* __threadfence() */
        __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
}
static __device__ uint32_t count_up(uint32_t *counter) { /* atomicAdd(counter, 1) */
        return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
#else
static __device__ uint32_t thread_index(void) {
        return threadIdx.x;
}
static __device__ uint32_t block_index(void) {
        return blockIdx.x;
}
static __device__ void block_barrier(void) {
        __syncthreads();
}
static __device__ void fence(void) {
        __threadfence();
}
static __device__ uint32_t count_up(uint32_t *counter) {
        return atomicAdd(counter, 1u);
}
#endif

/* Has every block of the grid come here? True in the last one only, which then sees what all have written. */
static __device__ bool last_block(uint32_t *finished) {
        __shared__ static uint32_t before;

        fence(); /* what this thread has written is there for whoever sees the count */
        block_barrier();
        if (thread_index() == 0)
                before = count_up(finished);
        block_barrier();
        fence(); /* and what the others have written is there for this thread */
        return before == BLOCKS - 1;
}

__global__ void layer(const __grid_constant__ struct layer l, const __grid_constant__ struct rmx_device_handle handle) {
        uint32_t row = block_index() * BLOCK_THREADS + thread_index();
        float sum = 0;
        int result;

        for (uint32_t k = 0; k < l.columns; k++)
                sum += l.weights[row * l.columns + k] * l.input[k];
        l.output[row] = sum;

        if (!last_block(l.finished))
                return;
        result = rmx_device_call(&handle); /* in place, by all threads of this block */
        if (!result)
                for (row = thread_index(); row < ROWS; row += BLOCK_THREADS)
                        l.output[row] = l.output[row] > 0 ? l.output[row] : 0;
        if (thread_index() == 0) {
                *l.result = result;
                *l.finished = 0; /* for the next launch */
        }
}

extern "C" const void *layer_kernel(void) {
        return (const void *)layer;
}
