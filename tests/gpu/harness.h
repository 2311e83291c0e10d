/* SPDX-License-Identifier: MIT */
#pragma once
/* Collectives on the host backend: requests of all ranks with their buffers, and the check of what came out. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "plan/plan.h"
#include "reference.h"

/* One collective call of all ranks. */
struct job {
        uint32_t operation;
        uint32_t algorithm;
        uint64_t count;
        uint32_t type;
        uint32_t redop;
        uint32_t root;
        bool in_place;
        enum reference_style style;
        uint64_t seed;

        struct plan plan;
        uint32_t n_ranks;
        uint64_t n_in[PLAN_RANKS_MAX], n_out[PLAN_RANKS_MAX]; /* elements */
        unsigned char *block[PLAN_RANKS_MAX];                 /* guard, output, guard, input (unless in place), guard */
        unsigned char *out[PLAN_RANKS_MAX];
        unsigned char *in[PLAN_RANKS_MAX];
};

struct combination {
        uint32_t operation;
        uint32_t algorithm;
};
extern const struct combination combinations[];
extern const uint32_t n_combinations;

/* Builds the plan and the buffers from the fields up to `seed`. Fails the test if the plan does not exist. */
void job_prepare(struct job *job, uint32_t n_ranks);
/* Random fields; count below max_count. */
void job_random(struct job *job, uint64_t seed, const struct combination *combination, uint32_t n_ranks,
                uint64_t max_count);
void job_release(struct job *job);
struct gpu_request job_request(const struct job *job, uint32_t rank);
/* Compares every rank's output bit for bit, and looks at the guards and at inputs that must not have changed. */
void job_check(const struct job *job);

/* A small generator for schedules. */
struct random {
        uint64_t state;
};
uint64_t random_next(struct random *random);
uint32_t random_below(struct random *random, uint32_t limit);
