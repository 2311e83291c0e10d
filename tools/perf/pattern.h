/* SPDX-License-Identifier: MIT */
#pragma once
/* Test data that is exact in its type: what each rank puts in, and what each rank must get out. See pattern.c. */
#include <stddef.h>
#include <stdint.h>

#define PATTERN_PERIOD    251u /* prime, so that no power-of-two shift maps the data onto itself */
#define PATTERN_RANKS_MAX 64u

enum pattern_op {
        PATTERN_ALL_REDUCE,
        PATTERN_ALL_GATHER,
        PATTERN_REDUCE_SCATTER,
        PATTERN_BROADCAST,
        PATTERN_BARRIER,
};

enum {
        PATTERN_OK = 0,
        PATTERN_E_UNSUPPORTED = 1, /* no exact data for this type or reduction */
};

struct pattern {
        uint32_t op;    /* enum pattern_op */
        uint32_t type;  /* RMX_* */
        uint32_t redop; /* RMX_* */
        uint32_t n_ranks;
        uint32_t root;
        int32_t range;                                     /* common part of a value: [-range, range] */
        int32_t weight[PATTERN_RANKS_MAX][PATTERN_PERIOD]; /* rank's part of a value */
        int32_t reduced[PATTERN_PERIOD];                   /* the weights of all ranks, reduced */
};

/* PATTERN_E_UNSUPPORTED unless type is fp32, bf16 or int32 and redop (where it matters) sum, prod, max or min. */
int pattern_init(struct pattern *pattern, uint32_t op, uint32_t type, uint32_t redop, uint32_t n_ranks, uint32_t root);
/* Elements of the input and output of a call with `count`. */
size_t pattern_input_elements(const struct pattern *pattern, size_t count);
size_t pattern_output_elements(const struct pattern *pattern, size_t count);
/* Where rank's output lies in its input (or the input in the output) for calls in place, in elements. */
size_t pattern_in_place_offset(const struct pattern *pattern, uint32_t rank, size_t count);
/* The input of `rank` for call number `iteration`. */
void pattern_fill(const struct pattern *pattern, uint32_t rank, uint64_t iteration, size_t count, void *ret_input);
/* Elements of an output (or an input that must be unchanged) that differ in any bit from what they must be. */
size_t pattern_wrong_output(const struct pattern *pattern, uint32_t rank, uint64_t iteration, size_t count,
                            const void *output);
/* skip_first, skip_count: elements of the input that a call in place may have overwritten. */
size_t pattern_wrong_input(const struct pattern *pattern, uint32_t rank, uint64_t iteration, size_t count,
                           const void *input, size_t skip_first, size_t skip_count);
