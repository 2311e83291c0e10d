/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The resident kernel as the runtime part sees it (kernel.hip). A worker is one warp; all warps of all blocks are
 * workers. How many warps a block has depends on the number of blocks. int: 0 or the runtime's error code (hipError_t),
 * except for kernel_workers.
 *
 * Wide: workers have room for communicators of more than STAGING_RANKS_NARROW ranks. Where a block's memory does not
 * suffice for as many of those, there are more blocks with fewer: as many workers in all, and the same scratch.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/hip/runtime.h"

struct table;
struct table_report;

struct kernel_arguments {
        struct table *table;
        struct table_report *report; /* host memory as the device sees it */
        void *scratch; /* kernel_scratch_bytes(), zeroed before the first launch and kept between launches */
        uint32_t n_workers_expected;
        uint32_t zero;
};

struct kernel_shape {
        uint32_t blocks;
        uint32_t threads; /* of a block */
};

#ifdef __cplusplus
extern "C" {
#endif
/* What is launched if `n_blocks` are asked for. */
void kernel_shape(uint32_t n_blocks, bool wide, struct kernel_shape *ret_shape);
size_t kernel_scratch_bytes(uint32_t n_blocks);
int kernel_launch(hipStream_t stream, uint32_t n_blocks, bool wide, const struct kernel_arguments *arguments);
int kernel_workers(uint32_t n_blocks); /* warps */
int kernel_preload(uint32_t n_blocks); /* forces the module in: a first launch must not load it */

/* Bursts (kernel_burst.hip): memory for the queue, zeroed before the first kernel; blocks that make so many slices of
 * the lanes' shares; the launch of number `number`, from any thread whose current device it is. */
size_t kernel_burst_bytes(void);
uint32_t kernel_burst_blocks(uint32_t slices);
int kernel_burst_preload(void);
int kernel_burst_launch(hipStream_t stream, void *queue, uint32_t number, uint32_t n_blocks);
/* The word of a number's job that says how far it is, and what says that copies are done. */
void *kernel_burst_state(void *queue, uint32_t number);
uint32_t kernel_burst_done(uint32_t number);
#ifdef __cplusplus
}
#endif
