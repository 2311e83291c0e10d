/* SPDX-License-Identifier: MIT */
/*
 * Cases.
 *
 * All combinations of type, reduction, root and place are numbered, so that a run can take all of them or spread a
 * sample evenly. A sample has one size for each combination, other ones with another seed. Sizes are what algorithms
 * tend to divide wrongly: nothing, one, fewer than ranks, odd, a prime, just beyond a power of two.
 */
#include "tests/nccl/cases.h"

#include <railmux/railmux.h>

#include "tests/nccl/abi.h"

static const size_t counts[CASES_SIZES] = {0, 1, 2, 3, 7, 16, 33, 250, 1021, 2048, 4097, 10007};
static const size_t leads[] = {0, 1, 5};

const char *call_name(enum call_op op) {
        static const char *const names[CALL_COUNT] = {"AllReduce",       "Reduce",
                                                      "Broadcast",       "Bcast",
                                                      "AllGather",       "ReduceScatter",
                                                      "AlltoAll",        "AllToAll",
                                                      "AlltoAllv",       "AllToAllv",
                                                      "Gather",          "Scatter",
                                                      "Send/Recv ring",  "Send/Recv pairs",
                                                      "Send/Recv self",  "Send/Recv everyone",
                                                      "Send/Recv chain", "Send/Recv fan out",
                                                      "Send/Recv fan in"};

        return names[op];
}

static uint32_t redops_of(enum call_op op) {
        return op == CALL_ALL_REDUCE || op == CALL_REDUCE || op == CALL_REDUCE_SCATTER ? CALL_REDOPS : 1;
}

static uint32_t roots_of(enum call_op op, uint32_t n_ranks) {
        return op == CALL_REDUCE || op == CALL_BROADCAST || op == CALL_BCAST || op == CALL_GATHER ||
                               op == CALL_SCATTER || op == CALL_FAN_OUT || op == CALL_FAN_IN
                       ? n_ranks
                       : 1;
}

static uint32_t places_of(enum call_op op) {
        switch (op) {
        case CALL_ALL_REDUCE:
        case CALL_REDUCE:
        case CALL_BROADCAST:
        case CALL_ALL_GATHER:
        case CALL_REDUCE_SCATTER:
        case CALL_GATHER:
        case CALL_SCATTER:
                return 2;
        default:
                return 1;
        }
}

uint32_t cases_number(enum call_op op, uint32_t n_ranks) {
        return NCCL_TYPE_COUNT * redops_of(op) * roots_of(op, n_ranks) * places_of(op);
}

struct call_case cases_get(enum call_op op, uint32_t n_ranks, uint32_t number, uint64_t hash) {
        struct call_case c = {.op = op};

        c.type = (int)(number % NCCL_TYPE_COUNT);
        number /= NCCL_TYPE_COUNT;
        c.redop = (int)(number % redops_of(op));
        number /= redops_of(op);
        c.root = number % roots_of(op, n_ranks);
        number /= roots_of(op, n_ranks);
        c.in_place = op == CALL_BCAST || number % places_of(op);
        c.count = counts[(hash & 0xffff) % CASES_SIZES];
        c.lead = leads[(hash >> 16) % (sizeof(leads) / sizeof(leads[0]))];
        c.null_unused = hash >> 32 & 1;
        c.grouped = hash >> 33 & 1;
        return c;
}

static uint32_t blocks_of(enum call_op op, uint32_t n_ranks) {
        switch (op) {
        case CALL_ALL_REDUCE:
        case CALL_REDUCE:
        case CALL_BROADCAST:
        case CALL_BCAST:
        case CALL_RING:
        case CALL_PAIRS:
        case CALL_SELF:
        case CALL_CHAIN:
                return 1;
        default:
                return n_ranks;
        }
}

struct call_case cases_get_large(enum call_op op, uint32_t n_ranks, uint32_t number, uint64_t hash, size_t bytes) {
        struct call_case c = cases_get(op, n_ranks, number, hash);

        c.count = bytes / rmx_type_size((uint32_t)c.type) / blocks_of(op, n_ranks) - (hash >> 40 & 3); /* ragged, too */
        return c;
}
