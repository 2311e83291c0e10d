/* SPDX-License-Identifier: MIT */
/*
 * The exchange kernels: collectives of medium size that the ranks' own kernels execute (exchange_run.h). One for each
 * number of ranks, and each of the kinds of data that have code of their own; two ranks have two, since they have the
 * most tiles.
 */
#if defined(__HIP__)
#include <hip/hip_runtime_api.h> /* the launch stubs of kernels call the runtime */
#endif

#include "client/hip/exchange_run.h"

/* Kernels read their parameters where they are: nothing is copied, whatever the index. */
#if TARGET_NVIDIA
#define PARAMETER __grid_constant__
#else
#define PARAMETER
#endif

template <uint32_t N, uint32_t KIND, uint32_t D> DEVICE void exchange_all(const struct exchange_arguments *a) {
        const uint32_t block = block_index(), thread = block_thread();
        uint32_t flag;

#if TARGET_NVIDIA
        asm volatile("griddepcontrol.wait;" ::: "memory"); /* see launch_kernel in launch.c */
#endif
        flag = exchange_run<N, KIND, D>(a, block, thread);
        block_sync(); /* all have loaded the block's number, and stored their results */
        if (thread == 0)
                exchange_end(a, block, flag);
}

template <uint32_t N, uint32_t KIND, uint32_t D>
KERNEL void LAUNCH_BOUNDS(EXCHANGE_THREADS) exchange(const PARAMETER struct exchange_arguments a) {
        exchange_all<N, KIND, D>(&a);
}

/* By another name, since it needs a stack. */
template <uint32_t N, uint32_t D>
KERNEL void LAUNCH_BOUNDS(EXCHANGE_THREADS) exchange_any(const PARAMETER struct exchange_arguments a) {
        exchange_all<N, EXCHANGE_OTHER, D>(&a);
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

extern "C" const void *exchange_kernel(uint32_t n_ranks, uint32_t kind, bool deep) {
        switch (n_ranks) {
        case 2: /* what is not deep has half of the loads in each look */
                return deep ? exchange_of<2, EXCHANGE_DEPTH(2)>(kind) : exchange_of<2, 1>(kind);
        case 3:
                return exchange_of<3, 1>(kind);
        case 4:
                return exchange_of<4, 1>(kind);
        case 5:
                return exchange_of<5, 1>(kind);
        case 6:
                return exchange_of<6, 1>(kind);
        case 7:
                return exchange_of<7, 1>(kind);
        case 8:
                return exchange_of<8, 1>(kind);
        default:
                return nullptr;
        }
}
