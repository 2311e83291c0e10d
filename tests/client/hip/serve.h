/* SPDX-License-Identifier: MIT */
#pragma once
/* A stand-in for the executor: a resident kernel that answers the lines of one bell area. C and device code. */
#include <stdint.h>

#define SERVE_LOG 4096u /* requests that are remembered, by ring sequence modulo this */

/* What a request of the tests says in words that the bell kernels do not look at. */
#define SERVE_W_IN     2u  /* payload bytes of an inlined request */
#define SERVE_W_OUT    3u  /* result bytes */
#define SERVE_W_STATUS 10u /* what to answer */
#define SERVE_W_DELAY  5u  /* rounds to wait before the answer */
#define SERVE_NEVER    ~0u /* as SERVE_W_STATUS: there is no answer */

struct serve_entry {
        uint32_t word[16];
        uint64_t argument[4]; /* the first words of the block */
};

/* Host memory. */
struct serve_shared {
        uint32_t stop;
        uint32_t next;  /* ring sequence to begin with; where it ended */
        uint32_t quick; /* neither remember nor fence: for measuring */
        struct serve_entry log[SERVE_LOG];
};

#ifdef __cplusplus
extern "C" {
#endif
/* Result `index` of an inlined request whose payload has these eight bytes there (0 behind its end). */
static inline
#if defined(__HIP__) || defined(__CUDACC__)
        __attribute__((host)) __attribute__((device))
#endif
        uint64_t
        serve_result(uint64_t payload, uint32_t index) {
        return ~payload + index * UINT64_C(0x0101010101010101);
}
/* The kernel: takes (char *area, struct serve_shared *shared), one warp. */
const void *serve_kernel(void);
uint32_t serve_threads(void);
/* Another kernel: takes (uint32_t *memory), of as many words as it has threads. */
const void *work_kernel(void);
const void *sweep_kernel(void);
#ifdef __cplusplus
}
#endif
