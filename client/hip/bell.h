/* SPDX-License-Identifier: MIT */
#pragma once
/* Arguments of the bell kernels (bell.hip), filled by the plug-in (plugin.c). C and device code. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/gpu.h"
#include "gpu/device/bell.h"

struct bell_arguments {
        char *area;             /* the bell area */
        struct bell_host *host; /* as the GPU sees it */
        uint64_t *cell;         /* start to wait: {status << 32 | ring sequence}; 0: not rung, or waited for */
        uint64_t *ended;        /* host word of the cell: {turn << 32 | status}; NULL: nobody looks */
        const void *in;         /* inlined */
        void *out;
        uint32_t in_bytes, out_bytes;
        uint32_t slot;
        uint32_t lanes;
        uint32_t turn;
        uint32_t number; /* for host->finished when it ends, 0: none */
        uint32_t after;  /* begins when host->finished is this, 0: at once */
        uint32_t n_arguments;
        uint32_t word[16];
};

/* The second parameter of kernels with an argument block. */
struct bell_block {
        uint64_t word[CLIENT_GPU_ARGUMENTS];
};

/* The kernels take (struct bell_arguments), or (struct bell_arguments, struct bell_block) with BELL_BLOCK. */
enum bell_kernel {
        BELL_INLINE = 1,
        BELL_BLOCK = 2,
        BELL_CALL = 0, /* and BELL_INLINE, BELL_BLOCK */
        BELL_START = 4,
        BELL_WAIT = 8,  /* no block */
        BELL_MARK = 12, /* tells its number, no more */
        BELL_KERNELS = 13,
};

#ifdef __cplusplus
extern "C" {
#endif
/* The function of a kernel for the runtime's launch call; NULL: there is no such kernel. */
const void *bell_kernel(uint32_t kernel);
/* Threads of its block. */
uint32_t bell_threads(const struct bell_arguments *arguments, uint32_t kernel);
#ifdef __cplusplus
}
#endif
