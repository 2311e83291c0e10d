/* SPDX-License-Identifier: MIT */
#pragma once
/* What the parts of the oracle share. */
#include "oracle.h"

#define ORACLE_LENGTH_MAX 64u /* elements of a step, and words of a slot */

struct slot {
        uint32_t flag;
        uint64_t words[ORACLE_LENGTH_MAX];
};
struct fifo {
        struct slot *slots; /* from the first use on */
        uint32_t n_slots;
        uint32_t sent, got; /* each end's own count */
        uint32_t credit;    /* published by the consumer */
};
struct buffers { /* of one rank in one request */
        uint64_t *words;
        uint64_t n_words, in_at, n_in, out_at, n_out;
        uint64_t rubbish; /* before the bell, and after completion: what all words are */
        struct plan_shape shape;
        struct plan_vector vector;
        uint64_t *numbers; /* of the vector */
};
struct actor { /* one phase of one rank */
        uint32_t lap;
        uint64_t at, n_steps; /* of all parts */
        uint32_t steps;       /* of each part, >= 1 */
        uint32_t op;          /* within the step */
        bool ready;           /* `step` is what it is at */
        struct plan_step step;
        uint64_t source_at[ORACLE_RANKS_MAX], output_at[ORACLE_RANKS_MAX]; /* words */
        bool output_stays[ORACLE_RANKS_MAX];
        uint32_t source_chunk[ORACLE_RANKS_MAX], target_chunk[ORACLE_RANKS_MAX]; /* numbers */
        uint64_t terms[ORACLE_RANKS_MAX][ORACLE_LENGTH_MAX], result[ORACLE_LENGTH_MAX];
};
struct thread {
        uint32_t priority, rank;
        uint32_t p; /* n_phases: the caller */
};
struct world {
        const struct oracle_request *requests;
        uint32_t n_requests, n, n_phases;
        const struct verify_options *options;
        uint32_t mask;
        uint32_t grain;   /* operations that a thread does at once */
        bool empty_waits; /* a step that is nothing waits for `after` nevertheless */
        struct fifo *fifos;
        struct buffers buffers[ORACLE_REQUESTS_MAX][ORACLE_RANKS_MAX];
        struct actor *actors;                                    /* [rank][PLAN_PHASES_MAX] */
        uint32_t rung[ORACLE_RANKS_MAX], done[ORACLE_RANKS_MAX]; /* requests */
        uint32_t n_threads;
        struct thread threads[ORACLE_RANKS_MAX * (PLAN_PHASES_MAX + 1)]; /* the first that can move moves */
        enum oracle_harm harm;
        uint64_t random;
};

static inline struct actor *world_actor(const struct world *w, uint32_t rank, uint32_t p) {
        return &w->actors[rank * PLAN_PHASES_MAX + p];
}
bool world_mutated(const struct world *w, enum verify_mutation_kind kind, uint32_t rank, uint32_t phase);
void world_harm(struct world *w, enum oracle_harm what);
bool actor_done(const struct actor *a, uint32_t lap);
/* Makes the thread ready for the request it is at. */
void actor_begin(struct world *w, uint32_t rank, uint32_t p);
/* An operation or some; false if it has to wait or has nothing to do. */
bool actor_moves(struct world *w, uint32_t rank, uint32_t p);

/* ---- values (oracle_value.c) ------------------------------------------------------------------------------------- */
uint64_t value_mix(uint64_t x);
uint64_t value_input(uint32_t lap, uint32_t rank, uint64_t i); /* what lies in an input */
uint64_t value_blank(uint32_t lap, uint32_t rank, uint64_t i); /* what lies elsewhere at the bell */
uint64_t value_contribution(uint32_t rank, uint64_t input);
uint64_t value_combine(uint64_t sum, uint64_t term);
uint64_t value_finish(uint64_t sum);
uint64_t value_store(uint64_t value, bool partial);
uint64_t value_load(uint64_t word, bool partial);
/* Where a rank's request has what. */
void layout_init(struct world *w, uint32_t lap, uint32_t rank);
/* What word `at` of the memory is at the bell, and what it must be at completion. */
uint64_t layout_first(const struct world *w, uint32_t lap, uint32_t rank, uint64_t at);
uint64_t layout_due(const struct world *w, uint32_t lap, uint32_t rank, uint64_t at);
