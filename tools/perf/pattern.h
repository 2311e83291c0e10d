/* SPDX-License-Identifier: MIT */
#pragma once
/* Test data that is exact in its type: what each rank puts in, and what each rank must get out. See pattern.c. */
#include <stdbool.h>
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
        PATTERN_REDUCE,
        PATTERN_ALL_TO_ALL,
        PATTERN_ALL_TO_ALL_V,
        PATTERN_GATHER,
        PATTERN_SCATTER,
        PATTERN_SENDRECV, /* a group in every rank: to the next one, from the one before */
        PATTERN_OP_COUNT,
};

enum {
        PATTERN_OK = 0,
        PATTERN_E_UNSUPPORTED = 1, /* no such type, reduction, or number of ranks */
};

struct pattern {
        uint32_t op;    /* enum pattern_op */
        uint32_t type;  /* RMX_* */
        uint32_t redop; /* RMX_* */
        uint32_t n_ranks;
        uint32_t root;
        bool equal;                                        /* all_to_all_v: a whole block to each rank */
        int64_t common;                                    /* the part that all ranks share lies in [low, common] */
        int64_t low;                                       /* -common, or 0 for unsigned types */
        int64_t scale;                                     /* how often the common part is in the result */
        int64_t factor[PATTERN_RANKS_MAX];                 /* of a pre-multiplied sum, else 1 */
        int64_t weight[PATTERN_RANKS_MAX][PATTERN_PERIOD]; /* rank's part of a value */
        int64_t reduced[PATTERN_PERIOD];                   /* the weights of all ranks, reduced */
};

bool pattern_op_reduces(uint32_t op);
bool pattern_op_rooted(uint32_t op);
bool pattern_op_in_place(uint32_t op);
/* Calls one after the other, each on what the one before has left, give what the first has given. */
bool pattern_repeats(const struct pattern *pattern, bool in_place);
/* Elements of all ranks' blocks together for one of `count`: what the size of a call counts. */
size_t pattern_blocks(uint32_t op, uint32_t n_ranks);

/* RMX_PREMUL_SUM stands for a reduction that the caller makes with pattern_factor(). */
int pattern_init(struct pattern *pattern, uint32_t op, uint32_t type, uint32_t redop, uint32_t n_ranks, uint32_t root);
/* The rank's factor of a pre-multiplied sum, as an element of the type. */
void pattern_factor(const struct pattern *pattern, uint32_t rank, void *ret_element);
/* Elements that `from` sends to `to` in an all_to_all_v: between none and all of a block, or all of it if the pattern
 * is `equal`, which may be set after pattern_init(). */
size_t pattern_vector_count(const struct pattern *pattern, uint32_t from, uint32_t to, size_t count);
/* Elements of the input and output of a rank's call with `count`. */
size_t pattern_input_elements(const struct pattern *pattern, uint32_t rank, size_t count);
size_t pattern_output_elements(const struct pattern *pattern, uint32_t rank, size_t count);
/* Where rank's output lies in its input (or the input in the output) for calls in place, in elements. */
size_t pattern_in_place_offset(const struct pattern *pattern, uint32_t rank, size_t count);
/* The input of `rank` for call number `iteration`. */
void pattern_fill(const struct pattern *pattern, uint32_t rank, uint64_t iteration, size_t count, void *ret_input);
/* The output that `rank` must get. */
void pattern_expect(const struct pattern *pattern, uint32_t rank, uint64_t iteration, size_t count, void *ret_output);
/* Elements of an output (or an input that must be unchanged) that differ in any bit from what they must be. */
size_t pattern_wrong_output(const struct pattern *pattern, uint32_t rank, uint64_t iteration, size_t count,
                            const void *output);
/* skip_first, skip_count: elements of the input that a call in place may have overwritten. */
size_t pattern_wrong_input(const struct pattern *pattern, uint32_t rank, uint64_t iteration, size_t count,
                           const void *input, size_t skip_first, size_t skip_count);
