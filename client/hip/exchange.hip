/* SPDX-License-Identifier: MIT */
/*
 * The exchange kernels: collectives of medium size that the ranks' own kernels execute (exchange_run.h). One for each
 * number of ranks, and each of the kinds of data that have code of their own.
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

template <uint32_t N, uint32_t KIND> DEVICE void exchange_all(const struct exchange_arguments *a) {
        const uint32_t block = block_index(), thread = block_thread();
        uint32_t flag;

#if TARGET_NVIDIA
        asm volatile("griddepcontrol.wait;" ::: "memory"); /* see launch_kernel in launch.c */
#endif
        flag = exchange_run<N, KIND>(a, block, thread);
        block_sync(); /* all have loaded the block's number, and stored their results */
        if (thread == 0)
                exchange_end(a, block, flag);
}

template <uint32_t N, uint32_t KIND>
KERNEL void LAUNCH_BOUNDS(EXCHANGE_THREADS) exchange(const PARAMETER struct exchange_arguments a) {
        exchange_all<N, KIND>(&a);
}

/* By another name, since it needs a stack. */
template <uint32_t N>
KERNEL void LAUNCH_BOUNDS(EXCHANGE_THREADS) exchange_any(const PARAMETER struct exchange_arguments a) {
        exchange_all<N, EXCHANGE_OTHER>(&a);
}

template <uint32_t N> static const void *exchange_of(uint32_t kind) {
        switch (kind) {
        case EXCHANGE_COPY:
                return (const void *)exchange<N, EXCHANGE_COPY>;
        case EXCHANGE_FLOAT32:
                return (const void *)exchange<N, EXCHANGE_FLOAT32>;
        case EXCHANGE_FLOAT16:
                return (const void *)exchange<N, EXCHANGE_FLOAT16>;
        case EXCHANGE_BFLOAT16:
                return (const void *)exchange<N, EXCHANGE_BFLOAT16>;
        case EXCHANGE_OTHER:
                return (const void *)exchange_any<N>;
        default:
                return nullptr;
        }
}

extern "C" const void *exchange_kernel(uint32_t n_ranks, uint32_t kind) {
        switch (n_ranks) {
        case 2:
                return exchange_of<2>(kind);
        case 3:
                return exchange_of<3>(kind);
        case 4:
                return exchange_of<4>(kind);
        case 5:
                return exchange_of<5>(kind);
        case 6:
                return exchange_of<6>(kind);
        case 7:
                return exchange_of<7>(kind);
        case 8:
                return exchange_of<8>(kind);
        default:
                return nullptr;
        }
}
