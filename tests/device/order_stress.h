/* SPDX-License-Identifier: MIT */
#pragma once
/* What the program (order_stress.c) and its kernels (order_stress.hip) share. */
#if defined(RAILMUX_CUDA)
#include "gpu/device/hip_on_cuda.h"
#else
#include <hip/hip_runtime_api.h>
#endif
#include <stdint.h>

#define STRESS_SLOTS   2u
#define STRESS_QUADS   256u   /* of a slot */
#define STRESS_THREADS 64u    /* of a block; one warp of it works */
#define STRESS_INPUT   65536u /* bytes of the client's memory */

enum stress_kind { STRESS_PACKETS = 0, STRESS_BULK = 1, STRESS_KINDS = 2 };
/* How the accesses are weakened. EARLY is wrong in program order: if it goes unnoticed, the program notices nothing.
 * The others are wrong by the memory model only, and machines may be kinder than they must be. */
enum stress_weakness { STRESS_RIGHT = 0, STRESS_UNFENCED = 1, STRESS_EARLY = 2, STRESS_WEAKNESSES = 3 };

/* Memory of one lane on the receiver's GPU. Each word that is polled has a line of its own. */
struct stress_lane {
        uint32_t data[STRESS_SLOTS][STRESS_QUADS][4];
        uint32_t flag[STRESS_SLOTS][32];
        uint32_t credit[32]; /* rounds that the receiver of what I send has taken; written by it */
};

struct stress_result {
        uint64_t rounds;
        uint64_t violations;
        uint64_t timeouts;
};

/* One side: sends on `n_lanes` lanes to the other and receives as many. */
struct stress_side {
        struct stress_lane *mine;
        struct stress_lane *theirs;    /* as mapped here */
        struct stress_result *results; /* [n_lanes] of what was received */
        uint32_t n_lanes;
        uint32_t rounds;
        uint32_t kind;
        uint32_t weakness;
        uint32_t me; /* 0, 1 */
        uint32_t zero;
};

/* A resident kernel that reads memory which other kernels write between its looks, and the other way round. */
struct stress_client {
        uint8_t *input;
        uint8_t *output;
        uint32_t *bell;                /* round rung */
        uint32_t *answer;              /* round answered */
        struct stress_result *results; /* [0]: input as the resident kernel saw it, [1]: output as the stream saw it */
        uint32_t rounds;
        uint32_t weakness;
};

#ifdef __cplusplus
extern "C" {
#endif
hipError_t stress_launch_side(const struct stress_side *side, hipStream_t stream);
hipError_t stress_launch_resident(const struct stress_client *client, hipStream_t stream);
/* One round: writes the input, rings, waits, checks the output. */
hipError_t stress_launch_round(const struct stress_client *client, uint32_t round, hipStream_t stream);
#ifdef __cplusplus
}
#endif
