/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Which worker a warp is, and thereby which lanes it serves: lanes l with l % n_workers == its number. C and device
 * code.
 *
 * Consecutive workers are in different blocks, so the few lanes of a small request run on as many processors as there
 * are blocks, and no two of them wait for each other's instructions. GPUs made of chiplets deal blocks out to them in
 * turns (gfx942: block b runs on chiplet b % 8), so the same order spreads lanes over all chiplets, each with an L2 and
 * links to the peers of its own. Every lane meets all peers, and any other order would be as good for the bytes; what
 * counts is that no chiplet has more lanes than another.
 */
#include <stdint.h>

static inline
#if defined(__HIP__) || defined(__CUDACC__)
        __attribute__((host)) __attribute__((device))
#endif
        uint32_t
        place_worker(uint32_t block, uint32_t warp, uint32_t n_blocks) {
        return warp * n_blocks + block;
}
