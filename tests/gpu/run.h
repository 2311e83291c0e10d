/* SPDX-License-Identifier: MIT */
#pragma once
/* All ranks of a communicator on one thread, called in an order that means them no good. */
#include "carrier.h"
#include "gpu/host/host.h"
#include "harness.h"

/* How the next rank to be called is chosen. */
enum schedule {
        SCHEDULE_RANDOM,   /* any rank */
        SCHEDULE_FORWARD,  /* in turn */
        SCHEDULE_BACKWARD, /* in turn, the other way */
        SCHEDULE_STARVE,   /* one rank only when no other can move */
        SCHEDULE_GREEDY,   /* one rank until it cannot move, then another */
        SCHEDULE_COUNT,
};

/* How far a rank has come in a list of jobs. */
struct progress {
        uint32_t job;
        uint32_t start; /* of the job */
        bool running;
};

/* All ranks' way through a list of jobs. */
struct run {
        struct gpu_comm *comm;   /* all ranks on one node */
        struct carrier *carrier; /* or not: */
        struct gpu_comm *comms[CARRIER_NODES_MAX];
        struct job *jobs;
        uint32_t n_jobs;
        uint32_t n_ranks;
        struct progress ranks[PLAN_RANKS_MAX];
        enum schedule schedule;
        uint64_t max_bytes; /* 0: another small number each time */
        struct random random;
        uint32_t last;
        uint32_t reluctance; /* several nodes: so many calls for each message that is carried, on average */
        bool tolerant;       /* what goes wrong is written down instead of failing the test: */
        bool wrong, stuck;
        uint32_t n_mismatches;
        uint32_t differs;                /* 1 + rank that counts its requests otherwise; 0: none */
        uint32_t blamed[PLAN_RANKS_MAX]; /* 1 + rank, by rank; 0: none */
};

int run_setup(void **state);
int run_teardown(void **state);
/* A communicator whose chunk counters start at `start`. */
void run_open(struct run *run, uint32_t n_ranks, const struct plan_geometry *geometry, uint32_t start);
/* One over several nodes, with a carrier between them, which the run closes with it. */
void run_open_nodes(struct run *run, struct carrier *carrier, const struct plan_geometry *geometry, uint32_t start);
void run_close(struct run *run);
/* Starts the rank's next work if it has none, and calls it once. */
int run_call(struct run *run, uint32_t rank);
/* Until all ranks have finished all jobs; fails the test if none can move. */
void run_all(struct run *run);

extern struct gpu *run_gpu; /* for all tests; opened once, since that asks the processor many things */
