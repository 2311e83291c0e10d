/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What the device code is compiled for. The same sources are compiled
 *   - by a HIP compiler for AMD GPUs (gfx90a, gfx942; wavefronts of 64),
 *   - by nvcc for NVIDIA GPUs (sm_90; warps of 32),
 *   - by a host C++ compiler, with warps of one thread, so that tests run the very same interpreter on CPU threads.
 * A "warp" is the unit that takes every decision together; nothing in the device code needs a wider barrier.
 */
#include <stddef.h>
#include <stdint.h>

#if defined(__HIP__)
#define TARGET_AMD    1
#define TARGET_NVIDIA 0
#define TARGET_HOST   0
#define WARP_THREADS  64u
#elif defined(__CUDACC__)
#define TARGET_AMD    0
#define TARGET_NVIDIA 1
#define TARGET_HOST   0
#define WARP_THREADS  32u
#else
#define TARGET_AMD    0
#define TARGET_NVIDIA 0
#define TARGET_HOST   1
#define WARP_THREADS  1u
#endif

#if TARGET_HOST
#include <sched.h>
#define DEVICE         static inline
#define DEVICE_OUTLINE static __attribute__((noinline))
#define UNROLL
#define ROLLED
#else
/* No header of HIP: what little is needed of it are builtins of the compiler, so plain clang compiles this for AMD. */
#define KERNEL         __attribute__((global))
#define SHARED         __attribute__((shared))
#define DEVICE         static inline __attribute__((device)) __attribute__((always_inline))
#define DEVICE_OUTLINE static __attribute__((device)) __attribute__((noinline))
#define UNROLL         _Pragma("unroll")
#define ROLLED         _Pragma("unroll 1")
#endif

#if TARGET_AMD
#define LAUNCH_BOUNDS(threads)            __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define LAUNCH_BOUNDS_OF(threads, blocks) LAUNCH_BOUNDS(threads) /* there are registers enough */
#elif TARGET_NVIDIA
#define LAUNCH_BOUNDS(threads)            LAUNCH_BOUNDS_OF(threads, 1)
#define LAUNCH_BOUNDS_OF(threads, blocks) __attribute__((launch_bounds(threads, blocks)))
#endif

/* ---- the grid ---------------------------------------------------------------------------------------------------- */
#if !TARGET_HOST
DEVICE uint32_t block_thread(void) {
#if TARGET_AMD
        return __builtin_amdgcn_workitem_id_x();
#else
        return threadIdx.x;
#endif
}
DEVICE uint32_t block_threads(void) {
#if TARGET_AMD
        return __builtin_amdgcn_workgroup_size_x();
#else
        return blockDim.x;
#endif
}
DEVICE uint32_t block_index(void) {
#if TARGET_AMD
        return __builtin_amdgcn_workgroup_id_x();
#else
        return blockIdx.x;
#endif
}
DEVICE uint32_t block_count(void) {
#if TARGET_AMD
        return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
#else
        return gridDim.x;
#endif
}

/* All threads of the block arrive before any goes on; orders their accesses to shared memory. */
DEVICE void block_sync(void) {
#if TARGET_AMD
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
        __builtin_amdgcn_s_barrier();
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#else
        __syncthreads();
#endif
}
#endif

/* Says that a pointer points into shared memory, where the compiler cannot see it: accesses through pointers of unknown
 * kind take twice as long. Once for each pointer, and not for one that was made of another: nvcc then takes what
 * follows for unreachable. */
#if TARGET_AMD
#define SHARED_POINTER(p) (p = (decltype(p))(__attribute__((address_space(3))) void *)(p))
#elif TARGET_NVIDIA
#define SHARED_POINTER(p) __builtin_assume(__isShared(p))
#else
#define SHARED_POINTER(p) ((void)0)
#endif

/* What the compiler has derived from a thread's value so far it derives again. */
#if TARGET_AMD
#define VALUE_FORGET(value) asm volatile("" : "+v"(value))
#define CELL_FORGET(value)  VALUE_FORGET(value) /* of 64 bits */
#else
#define VALUE_FORGET(value) asm volatile("" : "+r"(value))
#define CELL_FORGET(value)  ((void)0) /* NVIDIA's derives nothing early, and waits where it is told to forget */
#endif

/* ---- the warp ---------------------------------------------------------------------------------------------------- */
DEVICE uint32_t warp_thread(void) {
#if TARGET_HOST
        return 0;
#elif TARGET_AMD
        return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
#else
        return threadIdx.x & 31u;
#endif
}

/* All threads of the warp arrive before any goes on; orders their accesses to shared memory. */
DEVICE void warp_sync(void) {
#if TARGET_AMD
        __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
        __builtin_amdgcn_wave_barrier();
#elif TARGET_NVIDIA
        __syncwarp();
#endif
}

DEVICE bool warp_all(bool predicate) {
#if TARGET_HOST
        return predicate;
#elif TARGET_AMD
        return __builtin_amdgcn_ballot_w64(!predicate) == 0;
#else
        return __all_sync(0xffffffffu, predicate);
#endif
}

DEVICE bool warp_any(bool predicate) {
#if TARGET_HOST
        return predicate;
#elif TARGET_AMD
        return __builtin_amdgcn_ballot_w64(predicate) != 0;
#else
        return __any_sync(0xffffffffu, predicate);
#endif
}

#if !TARGET_HOST
/* Does it hold for any thread of the block? All arrive before any goes on. scratch: a word of shared memory. */
DEVICE bool block_any(bool predicate, uint32_t *scratch) {
#if TARGET_NVIDIA
        (void)scratch;
        return __syncthreads_or(predicate);
#else
        const bool here = warp_any(predicate);
        bool any;

        block_sync(); /* nobody needs the word any more */
        if (block_thread() == 0)
                *scratch = 0;
        block_sync();
        if (here)
                *scratch = 1;
        block_sync();
        any = *scratch != 0;
        return any;
#endif
}
#endif

/* One bit per thread for which it holds. */
DEVICE uint64_t warp_ballot(bool predicate) {
#if TARGET_HOST
        return predicate;
#elif TARGET_AMD
        return __builtin_amdgcn_ballot_w64(predicate);
#else
        return __ballot_sync(0xffffffffu, predicate);
#endif
}

/* The value of thread `from`, which all threads agree on; so the result is the same in all of them. */
DEVICE uint32_t warp_read(uint32_t value, uint32_t from) {
#if TARGET_HOST
        (void)from;
        return value;
#elif TARGET_AMD
        return (uint32_t)__builtin_amdgcn_readlane((int)value, (int)from);
#else
        return __shfl_sync(0xffffffffu, value, from);
#endif
}

/* The exclusive or of all threads' values. */
DEVICE uint32_t warp_xor(uint32_t value) {
#if TARGET_NVIDIA
        return __reduce_xor_sync(0xffffffffu, value);
#elif TARGET_AMD
        ROLLED
        for (uint32_t i = 1; i < WARP_THREADS; i *= 2)
                value ^= (uint32_t)__builtin_amdgcn_ds_bpermute((int)((warp_thread() ^ i) * 4), (int)value);
        return (uint32_t)__builtin_amdgcn_readfirstlane((int)value);
#else
        return value;
#endif
}

/* Number of the lowest bit that is set; there is one. */
DEVICE uint32_t first_bit(uint64_t bits) {
#if TARGET_NVIDIA
        return (uint32_t)__ffsll((long long)bits) - 1u;
#else
        return (uint32_t)__builtin_ctzll(bits);
#endif
}

DEVICE uint32_t bit_count(uint64_t bits) {
#if TARGET_NVIDIA
        return (uint32_t)__popcll(bits);
#else
        return (uint32_t)__builtin_popcountll(bits);
#endif
}

/* a / b, rounded up. Division of 64 bits is a call of hundreds of cycles; requests that need it are rare. */
DEVICE_OUTLINE uint64_t divide_long(uint64_t a, uint32_t b) {
        return a / b + (a % b != 0);
}
DEVICE uint64_t divide_up(uint64_t a, uint32_t b) {
        uint32_t low = (uint32_t)a;

        if (a >> 32)
                return divide_long(a, b);
        return low / b + (low % b != 0);
}
