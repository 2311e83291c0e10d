/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ring/ring.h"
#include "util/type.h"

#define GUARD_BYTES 64u
#define GUARD       0xa5
#define POISON      0xdb

const struct combination combinations[] = {
        {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT},   {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT}, {RING_OP_ALL_GATHER, PLAN_DIRECT},
        {RING_OP_REDUCE_SCATTER, PLAN_DIRECT}, {RING_OP_BROADCAST, PLAN_DIRECT},    {RING_OP_BARRIER, PLAN_DIRECT},
};
const uint32_t n_combinations = sizeof(combinations) / sizeof(combinations[0]);

uint64_t random_next(struct random *random) {
        return reference_mix(random->state++, 1, 2);
}

uint32_t random_below(struct random *random, uint32_t limit) {
        return (uint32_t)(random_next(random) % limit);
}

/* Sizes as the public interface states them; not taken from the plan. */
static void job_sizes(struct job *job, uint32_t rank) {
        uint64_t n = job->n_ranks;

        switch (job->operation) {
        case RING_OP_ALL_REDUCE:
                job->n_in[rank] = job->n_out[rank] = job->count;
                break;
        case RING_OP_ALL_GATHER:
                job->n_in[rank] = job->count;
                job->n_out[rank] = n * job->count;
                break;
        case RING_OP_REDUCE_SCATTER:
                job->n_in[rank] = n * job->count;
                job->n_out[rank] = job->count;
                break;
        case RING_OP_BROADCAST:
                job->n_in[rank] = rank == job->root ? job->count : 0;
                job->n_out[rank] = job->count;
                break;
        default:
                job->n_in[rank] = job->n_out[rank] = 0;
        }
}

static void job_prepare_rank(struct job *job, uint32_t rank) {
        size_t size = type_size(job->type), in_bytes, out_bytes, total;
        unsigned char *block;

        job_sizes(job, rank);
        in_bytes = job->n_in[rank] * size;
        out_bytes = job->n_out[rank] * size;
        total = 3 * GUARD_BYTES + in_bytes + out_bytes;
        block = malloc(total);
        assert_non_null(block);
        memset(block, GUARD, total);
        job->block[rank] = block;
        job->out[rank] = block + GUARD_BYTES;
        job->in[rank] = block + 2 * GUARD_BYTES + out_bytes;
        if (job->in_place && job->operation == RING_OP_REDUCE_SCATTER) /* the output lies in the input */
                job->out[rank] = job->in[rank] + rank * job->count * size;
        else
                memset(job->out[rank], POISON, out_bytes);
        if (job->in_place && job->operation == RING_OP_ALL_GATHER)
                job->in[rank] = job->out[rank] + rank * job->count * size;
        else if (job->in_place && job->operation != RING_OP_REDUCE_SCATTER)
                job->in[rank] = job->out[rank];
        reference_fill(job->in[rank], job->type, job->redop, job->style, job->seed, rank, job->n_in[rank]);
}

void job_prepare(struct job *job, uint32_t n_ranks) {
        job->n_ranks = n_ranks;
        assert_int_equal(plan_build(job->operation, job->algorithm, n_ranks, &job->plan), PLAN_OK);
        for (uint32_t rank = 0; rank < n_ranks; rank++)
                job_prepare_rank(job, rank);
}

void job_random(struct job *job, uint64_t seed, const struct combination *combination, uint32_t n_ranks,
                uint64_t max_count) {
        static const uint32_t types[] = {RMX_INT8,   RMX_UINT8,   RMX_INT32,   RMX_UINT32,  RMX_INT64,
                                         RMX_UINT64, RMX_FLOAT16, RMX_FLOAT32, RMX_FLOAT64, RMX_BFLOAT16};
        static const uint64_t counts[] = {0, 1, 2, 3, 7, 13, 16, 31, 61, 64, 127, 257, 509, 1009, 2003};
        struct random random = {seed};
        uint64_t count;

        do
                count = counts[random_below(&random, sizeof(counts) / sizeof(counts[0]))];
        while (count > max_count);
        *job = (struct job){
                .operation = combination->operation,
                .algorithm = combination->algorithm,
                .count = count,
                .type = types[random_below(&random, sizeof(types) / sizeof(types[0]))],
                .redop = random_below(&random, RMX_REDOP_COUNT),
                .root = random_below(&random, n_ranks),
                .in_place = random_below(&random, 2),
                .style = (enum reference_style)random_below(&random, REFERENCE_STYLE_COUNT),
                .seed = seed,
        };
        if (job->operation == RING_OP_BARRIER)
                job->count = 0;
        job_prepare(job, n_ranks);
}

void job_release(struct job *job) {
        for (uint32_t rank = 0; rank < job->n_ranks; rank++)
                free(job->block[rank]);
}

struct gpu_request job_request(const struct job *job, uint32_t rank) {
        bool reads = job->operation != RING_OP_BROADCAST || rank == job->root;

        return (struct gpu_request){
                .plan = &job->plan,
                .in = reads ? job->in[rank] : NULL,
                .out = job->out[rank],
                .count = job->count,
                .type = job->type,
                .redop = job->redop,
                .root = job->root,
        };
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */
static void job_fail(const struct job *job, uint32_t rank, const char *what, size_t at) {
        fail_msg("%s/%s ranks %u rank %u count %llu type %u redop %u root %u in_place %d style %d seed %llu: %s at "
                 "byte %zu",
                 plan_operation_name(job->operation), plan_algorithm_name(job->algorithm), job->n_ranks, rank,
                 (unsigned long long)job->count, job->type, job->redop, job->root, job->in_place, (int)job->style,
                 (unsigned long long)job->seed, what, at);
}

static void job_compare(const struct job *job, uint32_t rank, const unsigned char *got, const unsigned char *want,
                        size_t size, const char *what) {
        if (size == 0 || memcmp(got, want, size) == 0)
                return;
        for (size_t i = 0; i < size; i++)
                if (got[i] != want[i])
                        job_fail(job, rank, what, i);
}

static unsigned char *job_input(const struct job *job, uint32_t rank) {
        size_t bytes = job->n_in[rank] * type_size(job->type);
        unsigned char *input = malloc(bytes + 1);

        assert_non_null(input);
        reference_fill(input, job->type, job->redop, job->style, job->seed, rank, job->n_in[rank]);
        return input;
}

static void job_check_output(const struct job *job, uint32_t rank, unsigned char *const *inputs,
                             const unsigned char *reduced) {
        size_t size = type_size(job->type);
        size_t bytes = job->count * size;

        switch (job->operation) {
        case RING_OP_ALL_REDUCE:
                job_compare(job, rank, job->out[rank], reduced, bytes, "output");
                break;
        case RING_OP_REDUCE_SCATTER:
                job_compare(job, rank, job->out[rank], reduced + rank * bytes, bytes, "output");
                break;
        case RING_OP_ALL_GATHER:
                for (uint32_t r = 0; r < job->n_ranks; r++)
                        job_compare(job, rank, job->out[rank] + r * bytes, inputs[r], bytes, "block of output");
                break;
        case RING_OP_BROADCAST:
                job_compare(job, rank, job->out[rank], inputs[job->root], bytes, "output");
                break;
        default:
                break;
        }
}

static void job_check_rest(const struct job *job, uint32_t rank, const unsigned char *input) {
        size_t size = type_size(job->type);
        size_t in_bytes = job->n_in[rank] * size, out_bytes = job->n_out[rank] * size;
        size_t bytes = job->count * size;
        const unsigned char *block = job->block[rank], *in = block + 2 * GUARD_BYTES + out_bytes;
        unsigned char guard[GUARD_BYTES];

        memset(guard, GUARD, sizeof(guard));
        job_compare(job, rank, block, guard, sizeof(guard), "guard before output");
        job_compare(job, rank, block + GUARD_BYTES + out_bytes, guard, sizeof(guard), "guard behind output");
        job_compare(job, rank, in + in_bytes, guard, sizeof(guard), "guard behind input");
        if (!job->in_place)
                job_compare(job, rank, in, input, in_bytes, "input");
        if (job->in_place && job->operation == RING_OP_REDUCE_SCATTER) { /* the other blocks are still the input */
                job_compare(job, rank, in, input, rank * bytes, "input before block");
                job_compare(job, rank, in + (rank + 1) * bytes, input + (rank + 1) * bytes,
                            in_bytes - (rank + 1) * bytes, "input behind block");
        }
}

void job_check(const struct job *job) {
        size_t size = type_size(job->type);
        unsigned char *inputs[PLAN_RANKS_MAX], *reduced = NULL;

        for (uint32_t rank = 0; rank < job->n_ranks; rank++)
                inputs[rank] = job_input(job, rank);
        if (plan_operation_reduces(job->operation)) {
                reduced = malloc(job->n_in[0] * size + 1);
                assert_non_null(reduced);
                for (size_t i = 0; i < job->n_in[0]; i++)
                        reference_reduce(job->type, job->redop, (const void *const *)inputs, job->n_ranks, i,
                                         reduced + i * size);
        }
        for (uint32_t rank = 0; rank < job->n_ranks; rank++) {
                job_check_output(job, rank, inputs, reduced);
                job_check_rest(job, rank, inputs[rank]);
        }
        for (uint32_t rank = 0; rank < job->n_ranks; rank++)
                free(inputs[rank]);
        free(reduced);
}
