/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * A second opinion on plans: executes them for real, with arrays, memory that is torn and schedules that mean harm, and
 * looks at what comes out. It shares with the verifier what a plan means (plan/plan.h), what a case is and the names of
 * mutations, and no code.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"
#include "plan/verify_machine.h"

#define ORACLE_RANKS_MAX    16u
#define ORACLE_REQUESTS_MAX 4u

struct oracle_request {
        const struct plan *plan;
        struct plan_case pcase; /* part_bytes: 64 at most */
};

enum oracle_harm {
        ORACLE_FINE,
        ORACLE_STUCK,    /* nothing can move */
        ORACLE_WRONG,    /* a wrong element at completion, or a barrier passed too early */
        ORACLE_OUTSIDE,  /* an access outside input, output or slot, or a rank that does not exist */
        ORACLE_LATE,     /* memory used before its rank's bell or after its completion */
        ORACLE_LEFTOVER, /* chunks that nobody took */
        ORACLE_FAR,      /* memory of a rank of another node used */
        ORACLE_HARM_COUNT,
};
extern const char *const oracle_harm_names[ORACLE_HARM_COUNT];

/* Can it be executed at all, that is, are there steps? */
bool oracle_executable(const struct plan *plan);
/* Runs the requests one after another on the same channels under one random schedule. */
enum oracle_harm oracle_run(const struct oracle_request *requests, uint32_t n_requests,
                            const struct verify_options *options, uint64_t seed);
/* Under many schedules, until one does harm. */
enum oracle_harm oracle_search(const struct oracle_request *requests, uint32_t n_requests,
                               const struct verify_options *options, uint64_t seed, uint32_t n_schedules);

/* splitmix64 */
uint64_t oracle_random(uint64_t *state);
