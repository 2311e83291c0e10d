/* SPDX-License-Identifier: MIT */
#pragma once
/* Which calls are made: operations, types, reductions, roots, sizes, places. See cases.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum call_op {
        CALL_ALL_REDUCE,
        CALL_REDUCE,
        CALL_BROADCAST,
        CALL_BCAST,
        CALL_ALL_GATHER,
        CALL_REDUCE_SCATTER,
        CALL_ALL_TO_ALL,        /* ncclAlltoAll */
        CALL_ALL_TO_ALL_RCCL,   /* ncclAllToAll */
        CALL_ALL_TO_ALL_V,      /* ncclAlltoAllv */
        CALL_ALL_TO_ALL_V_RCCL, /* ncclAllToAllv */
        CALL_GATHER,
        CALL_SCATTER,
        CALL_RING,     /* a group: send to the next, receive from the one before */
        CALL_PAIRS,    /* a group: exchange with the neighbour, the odd one out with itself */
        CALL_SELF,     /* a group: each to itself */
        CALL_EVERYONE, /* a group: each to each, itself included */
        CALL_CHAIN,    /* no group: to the next, but for the last */
        CALL_FAN_OUT,  /* the root sends in a group, the others receive in none */
        CALL_FAN_IN,   /* the other way round */
        CALL_COUNT,
};

enum { CALL_PREMUL_IMMEDIATE = 5, CALL_PREMUL_MEMORY, CALL_REDOPS }; /* beyond the built-in reductions */

#define CASES_SIZES 12u

struct call_case {
        enum call_op op;
        int type, redop;
        uint32_t root;
        size_t count, lead; /* elements; before the buffers' first, to be unaligned */
        bool in_place;
        bool null_unused; /* buffers that the call must not look at are NULL */
        bool grouped;     /* alone in a group */
};

const char *call_name(enum call_op op);
/* Combinations of type, reduction, root and place. */
uint32_t cases_number(enum call_op op, uint32_t n_ranks);
/* The same hash, but that it stands for size number `size`. */
static inline uint64_t cases_with_size(uint64_t hash, uint32_t size) {
        return (hash & ~UINT64_C(0xffff)) | (size % CASES_SIZES);
}
/* One of them. Its size and what else may vary follow from `hash`. */
struct call_case cases_get(enum call_op op, uint32_t n_ranks, uint32_t number, uint64_t hash);
/* The same with about `bytes` in the largest buffer. */
struct call_case cases_get_large(enum call_op op, uint32_t n_ranks, uint32_t number, uint64_t hash, size_t bytes);
