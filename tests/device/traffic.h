/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Requests of any kind (or of a kind that the test chooses) on one communicator, as they come from `seed`: the same for
 * all ranks, but each rank rings them when it is told to. Every element that comes out is looked at. What is wrong, a
 * status included, ends the program.
 */
#include "tests/device/collective_cases.h"

#define TRAFFIC_WINDOW 8u

struct traffic_slot {
        struct collective_case c;
        struct case_buffers b[EMULATOR_RANKS_MAX];
        unsigned char *copy[EMULATOR_RANKS_MAX];
        struct emulator_request q[EMULATOR_RANKS_MAX];
        uint32_t sequence[EMULATOR_RANKS_MAX];
        bool rung[EMULATOR_RANKS_MAX], harvested[EMULATOR_RANKS_MAX];
        uint32_t n_harvested;
};

struct traffic {
        struct emulator *e;
        uint32_t comm, n, window;
        uint32_t session[EMULATOR_RANKS_MAX];
        uint64_t seed, max_bytes;
        uint64_t rung[EMULATOR_RANKS_MAX]; /* requests made so far */
        uint64_t prepared;                 /* requests that exist */
        uint64_t finished;                 /* requests that all ranks have harvested, and that were right */
        unsigned char *want;
        struct collective_case (*choose)(uint32_t n, uint64_t random, uint64_t max_bytes); /* case_random at first */
        /* So many requests after each other have one form, with inputs of their own (1 at first). Forms come from a
         * seed of their own (that of all at first), and so many come by turns (at first they do not come again). */
        uint32_t alike;
        uint64_t form_seed, forms;
        struct traffic_slot slot[TRAFFIC_WINDOW];
};

void traffic_init(struct traffic *t, struct emulator *e, uint32_t comm, uint32_t n, const uint32_t *session,
                  uint32_t window, uint64_t max_bytes, uint64_t seed);
void traffic_deinit(struct traffic *t);
/* The rank makes its next request, and passes on numbers until it has a free place. False: not now. */
bool traffic_ring(struct traffic *t, uint32_t rank);
/* Harvests what is finished; checks what all have finished. */
void traffic_harvest(struct traffic *t);
/* All ranks, by turns, until `requests` more are finished. */
void traffic_run(struct traffic *t, uint64_t requests);
/* Finishes what some ranks have begun. */
void traffic_drain(struct traffic *t);
