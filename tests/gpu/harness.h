/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Work of all ranks on the host backend: requests, buffers, and the check of what came out. A rank's memory is garbage
 * before it begins and after it has ended, so that whoever touches it at the wrong time is found out.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "plan/nodes.h"
#include "plan/plan.h"
#include "reference.h"

/* What one rank does for a job: starts, one after another, each of one or more requests. */
struct job_rank {
        struct gpu_request *requests;
        uint32_t n_requests;
        uint32_t *start_end; /* requests before this one belong to start i or an earlier one */
        uint32_t n_starts;

        size_t size;
        unsigned char *block; /* what the requests use: buffers, guards around them, gaps in them */
        unsigned char *image; /* what it contains when the rank begins */
        unsigned char *want;  /* what it contains when it has ended */
        size_t in, out;       /* where the buffers begin in it */
        uint64_t n_in, n_out; /* elements */

        uint64_t scalar;
        struct plan_vector vector;
        uint64_t numbers[4][PLAN_RANKS_MAX]; /* of the vector */
};

/* One collective of all ranks, or a number of sends and receives. */
struct job {
        uint32_t operation;
        uint32_t algorithm;
        uint64_t count; /* all_to_all_v, send: the largest */
        uint32_t type;
        uint32_t redop;
        uint32_t root;
        uint32_t misalign; /* bytes */
        bool in_place;
        enum reference_style style; /* EXACT for plans that reduce node by node: their order is not written down here */
        uint64_t seed;
        const struct plan_nodes *nodes; /* NULL: one node */

        struct plan plan;
        uint32_t n_ranks;
        uint32_t n_messages; /* send */
        struct job_rank ranks[PLAN_RANKS_MAX];
};

/* Builds everything from the fields up to `seed`. Fails the test if the plan does not exist. */
void job_prepare(struct job *job, uint32_t n_ranks);
/* Random fields, algorithm included; count at most max_count. RING_OP_NONE: any operation, or sends and receives. */
void job_random(struct job *job, uint64_t seed, uint32_t operation, uint32_t n_ranks, uint64_t max_count);
void job_release(struct job *job);

/* Start s of a rank; the first one fills its memory. */
struct gpu_request *job_start(struct job *job, uint32_t rank, uint32_t s, uint32_t *ret_n);
/* Start s is done; the last one compares all of the rank's memory, bit for bit, and makes it garbage. */
void job_end(struct job *job, uint32_t rank, uint32_t s);
/* The same for tests of what goes wrong: returns whether it was right. */
bool job_end_right(struct job *job, uint32_t rank, uint32_t s);

/* Operations that have plans, and their algorithms. */
extern const uint32_t operations[];
extern const uint32_t n_operations;

/* RAILMUX_FULL=1: run everything. */
bool harness_full(void);
/* RAILMUX_SEED, or another one each time; printed. */
uint64_t harness_seed(void);

/* A small generator for schedules. */
struct random {
        uint64_t state;
};
uint64_t random_next(struct random *random);
uint32_t random_below(struct random *random, uint32_t limit);
