/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * A fabric for tests: carries what stands in the queues of net areas of this process to the other areas, in any order
 * and as late as it likes. One thread at a time.
 */
#include <stdbool.h>
#include <stdint.h>

#include "harness.h"
#include "plan/rails.h"
#include "ring/net.h"

#define CARRIER_NODES_MAX 8u

/* What a fabric may get wrong. */
enum carrier_mutation {
        CARRIER_RIGHT,
        CARRIER_FLAG_FIRST,  /* a chunk's flag before its data */
        CARRIER_DROP,        /* a chunk is lost */
        CARRIER_DROP_CREDIT, /* a credit is lost, and none follows it */
        CARRIER_REPEAT,      /* a chunk comes once more, after its slot has been used again */
        CARRIER_SHORT,       /* the last byte of the data is not there */
        CARRIER_OLD_LINE,    /* the line is not copied, only its flag stored */
        CARRIER_EARLY,       /* a credit is given before its chunk was carried */
        CARRIER_MUTATIONS,
};

struct carrier_message {
        struct net_descriptor what;
        bool flag_only; /* the rest has been carried */
        bool data_only; /* the flag has been carried */
        bool late;      /* a repetition */
        unsigned char line[NET_LINE];
        unsigned char *data; /* of a repetition */
};

struct carrier_node {
        struct net_area *area; /* the carrier's mapping */
        uint64_t bytes;
        int fd; /* of the memory, a sealed memfd */
        uint32_t position;
        int wake_fd; /* eventfd of the executor; -1: none */
};

struct carrier {
        uint32_t n_nodes, n_ranks;
        uint8_t node[PLAN_RANKS_MAX]; /* by rank */
        struct carrier_node nodes[CARRIER_NODES_MAX];
        struct random random;
        uint32_t n_pending, capacity;
        struct carrier_message *pending;
        enum carrier_mutation mutation;
        uint32_t mutate_after; /* messages */
        bool mutated;
        uint64_t n_carried;
        struct plan_load posted[PLAN_RANKS_MAX]; /* by rank; bytes are those outside of lines */
};

/* node[rank]; makes an area for each node. */
void carrier_init(struct carrier *carrier, uint32_t n_ranks, const uint8_t *node, const struct plan_geometry *geometry,
                  uint64_t seed);
void carrier_deinit(struct carrier *carrier);
/* Takes what is posted. Returns whether there was anything. */
bool carrier_take(struct carrier *carrier);
/* Carries a message that was taken, any; false: there is none. */
bool carrier_carry(struct carrier *carrier);
/* Before waiting for the doorbell: whoever posts from now on rings it. True if something was there after all, or is by
 * now taken and not carried; then it is awake. */
bool carrier_sleep(struct carrier *carrier);
void carrier_awake(struct carrier *carrier);
