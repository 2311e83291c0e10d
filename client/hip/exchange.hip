/* SPDX-License-Identifier: MIT */
/*
 * The exchange kernels: collectives that the ranks' own kernels execute, in packets (exchange_run.h), in lines
 * (exchange_line.h) or in chunks, which few blocks have long (exchange_bulk.h), and transfers (exchange_pair.h). One of
 * each for each number of ranks, and each of the kinds of data that have code of their own; two ranks have two for
 * packets, since they have the most tiles.
 */
#if defined(__HIP__)
#include <hip/hip_runtime_api.h> /* the launch stubs of kernels call the runtime */
#endif

#include "client/hip/exchange_bulk.h"
#include "client/hip/exchange_pair.h"

/* Kernels read their parameters where they are: nothing is copied, whatever the index. */
#if TARGET_NVIDIA
#define PARAMETER __grid_constant__
#else
#define PARAMETER
#endif

DEVICE void exchange_meet(struct exchange_shared *shared) {
        (void)shared;
        block_sync();
}

DEVICE bool exchange_any(struct exchange_shared *shared, bool predicate) {
        return block_any(predicate, &shared->any);
}

/* Volatile, so that neither stays in a register from one place that asks to the next. */
DEVICE uint32_t exchange_block(const struct exchange_shared *shared) {
        (void)shared;
#if TARGET_NVIDIA
        uint32_t block;

        asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
        return block;
#else
        return block_index();
#endif
}

DEVICE uint32_t exchange_thread(uint32_t thread) {
#if TARGET_NVIDIA
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
#endif
        return thread;
}

template <uint32_t N, uint32_t KIND, uint32_t D> DEVICE void exchange_kernel_of(const struct exchange_arguments *a) {
        static SHARED struct exchange_shared shared;

#if TARGET_NVIDIA
        asm volatile("griddepcontrol.wait;" ::: "memory"); /* see launch_kernel in launch.c */
#endif
        exchange_all<N, KIND, D>(a, block_index(), block_thread(), &shared);
}

/* Blocks that a processor has room for: of two communicators, or of one and what is computed beside it. With more ranks
 * there are half as many, and pieces of all of them take more registers, as do lines and long chunks. */
#define BLOCKS_TOGETHER(n_ranks, depth)                                                                                \
        ((n_ranks) > 4 || (depth) == EXCHANGE_IN_LINES || (depth) == EXCHANGE_IN_LONG ||                               \
                         ((n_ranks) > 2 && (depth) == EXCHANGE_IN_CHUNKS && CHUNK_UNITS_TOGETHER > 1)                  \
                 ? 1                                                                                                   \
                 : 2)

template <uint32_t N, uint32_t KIND, uint32_t D>
KERNEL void LAUNCH_BOUNDS_OF(EXCHANGE_THREADS, BLOCKS_TOGETHER(N, D))
        exchange(const PARAMETER struct exchange_arguments a) {
        exchange_kernel_of<N, KIND, D>(&a);
}

/* By another name, since it needs a stack. */
template <uint32_t N, uint32_t D>
KERNEL void LAUNCH_BOUNDS_OF(EXCHANGE_THREADS, BLOCKS_TOGETHER(N, D))
        exchange_any(const PARAMETER struct exchange_arguments a) {
        exchange_kernel_of<N, EXCHANGE_OTHER, D>(&a);
}

KERNEL void LAUNCH_BOUNDS_OF(EXCHANGE_THREADS, 2) exchange_pairs(const PARAMETER struct pair_arguments p) {
        static SHARED struct exchange_shared shared;

#if TARGET_NVIDIA
        asm volatile("griddepcontrol.wait;" ::: "memory"); /* see launch_kernel in launch.c */
#endif
        pair_all(&p, block_thread(), &shared);
}

KERNEL void LAUNCH_BOUNDS(64) exchange_pairs_ahead(const PARAMETER struct pair_arguments p) {
#if TARGET_NVIDIA
        asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
        if (block_thread() < WARP_THREADS)
                pair_ahead(&p, block_thread());
}

extern "C" const void *pair_kernel(void) {
        return (const void *)exchange_pairs;
}

extern "C" const void *pair_ahead_kernel(void) {
        return (const void *)exchange_pairs_ahead;
}

template <uint32_t N, uint32_t D> static const void *exchange_of(uint32_t kind) {
        switch (kind) {
        case EXCHANGE_COPY:
                return (const void *)exchange<N, EXCHANGE_COPY, D>;
        case EXCHANGE_FLOAT32:
                return (const void *)exchange<N, EXCHANGE_FLOAT32, D>;
        case EXCHANGE_FLOAT16:
                return (const void *)exchange<N, EXCHANGE_FLOAT16, D>;
        case EXCHANGE_BFLOAT16:
                return (const void *)exchange<N, EXCHANGE_BFLOAT16, D>;
        case EXCHANGE_OTHER:
                return (const void *)exchange_any<N, D>;
        default:
                return nullptr;
        }
}

template <uint32_t N> static const void *exchange_by(uint32_t kind, enum exchange_way way) {
        switch (way) {
        case EXCHANGE_SHALLOW: /* half of the loads in each look */
                return exchange_of<N, 1>(kind);
        case EXCHANGE_DEEP:
                return exchange_of<N, EXCHANGE_DEPTH(N)>(kind);
        case EXCHANGE_LINED:
                return exchange_of<N, EXCHANGE_IN_LINES>(kind);
        case EXCHANGE_LONG:
                return exchange_of<N, EXCHANGE_IN_LONG>(kind);
        default:
                return exchange_of<N, EXCHANGE_IN_CHUNKS>(kind);
        }
}

extern "C" const void *exchange_kernel(uint32_t n_ranks, uint32_t kind, enum exchange_way way) {
        switch (n_ranks) {
        case 2:
                return exchange_by<2>(kind, way);
        case 3:
                return exchange_by<3>(kind, way);
        case 4:
                return exchange_by<4>(kind, way);
        case 5:
                return exchange_by<5>(kind, way);
        case 6:
                return exchange_by<6>(kind, way);
        case 7:
                return exchange_by<7>(kind, way);
        case 8:
                return exchange_by<8>(kind, way);
        default:
                return nullptr;
        }
}
