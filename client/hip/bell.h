/* SPDX-License-Identifier: MIT */
#pragma once
/* Arguments of the bell kernels (bell.hip), filled by the plug-in (launch.c). C and device code. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/gpu.h"
#include "gpu/device/bell.h"
#include "railmux/railmux.h"

struct bell_arguments {
        struct rmx_device_handle request;
        uint64_t *cell;  /* start to wait: {status << 32 | ring sequence}; 0: not rung, or waited for */
        uint64_t *ended; /* host word of the cell: {turn << 32 | status}; NULL: nobody looks */
        uint32_t turn;
        uint32_t number; /* for host->finished when it ends, 0: none; of an await: what it waits for */
        uint32_t n_arguments;
        uint32_t *gate; /* with BELL_GATE: the status with which something has failed before, 0: nothing has */
};

/* The second parameter of kernels with an argument block. */
struct bell_block {
        uint64_t word[CLIENT_GPU_ARGUMENTS];
};

/* The kernels take (struct bell_arguments), or (struct bell_arguments, struct bell_block) with BELL_BLOCK. */
enum bell_kernel {
        BELL_ALIGNED = 1, /* payload in whole packets, at addresses that are multiples of 8 */
        BELL_BYTES = 2,   /* any payload */
        BELL_BLOCK = 4,   /* and none, or BELL_BYTES */
        BELL_CALL = 0,    /* with one of the payloads or none, as those that follow */
        BELL_START = 8,
        BELL_WAIT = 16,  /* no block */
        BELL_MARK = 24,  /* tells its number, no more */
        BELL_AWAIT = 25, /* ends when its number has been told */
        BELL_GATE = 28,  /* a call, with BELL_ALIGNED, BELL_BYTES or neither, of a request that has other parts */
        BELL_KERNELS = 31,
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
