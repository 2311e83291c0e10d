/* SPDX-License-Identifier: MIT */
#pragma once
/* What the two halves of the oracle share. */
#include "oracle.h"

#define ORACLE_REQUESTS_MAX 4u

struct slot {
        uint32_t flag;
        uint64_t *data;
};
struct fifo {
        struct slot *slots;
        uint32_t sent, got; /* each end's own count */
        uint32_t credit;    /* published by the consumer */
};
struct buffers { /* of one rank in one request */
        uint64_t *words;
        uint64_t n_words, in_at, n_in, out_at, n_out;
        uint64_t rubbish; /* after completion: what all words are; 0: not complete */
};
struct actor { /* one phase of one rank */
        uint32_t lap;
        uint64_t step, n_steps;
        uint32_t n_peers;
        uint32_t op; /* within the step */
        uint32_t priority;
};
struct world {
        const struct oracle_request *requests;
        uint32_t n_requests, n, n_phases;
        const struct verify_options *options;
        uint32_t mask, slots, slot_words;
        struct fifo *fifos;
        struct buffers buffers[ORACLE_REQUESTS_MAX][PLAN_RANKS_MAX];
        struct actor actors[PLAN_RANKS_MAX][PLAN_PHASES_MAX];
        uint32_t rung[PLAN_RANKS_MAX], done[PLAN_RANKS_MAX]; /* requests */
        uint32_t caller_priority[PLAN_RANKS_MAX];
        enum oracle_harm harm;
        uint64_t random;
};

uint64_t world_input_word(uint32_t lap, uint32_t rank, uint64_t i);
uint64_t world_reduce_word(uint64_t sum, uint64_t term);
bool world_mutated(const struct world *w, enum verify_mutation_kind kind, uint32_t rank, uint32_t phase);
void world_harm(struct world *w, enum oracle_harm what);
bool actor_done(const struct actor *a, uint32_t lap);
/* Makes the thread ready for the request it is at. */
void actor_begin(struct world *w, uint32_t rank, uint32_t p);
/* One operation; false if it has to wait or has nothing to do. */
bool actor_moves(struct world *w, uint32_t rank, uint32_t p);
