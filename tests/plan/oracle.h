/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * A second opinion on plans, written without looking at the verifier: real arrays of integers, every rank a state
 * machine, a random scheduler that favours extremes (one rank starves, one rank runs ahead), requests back to back,
 * ranks at different requests. A plan is harmful if any schedule gives a wrong element, writes outside, or gets stuck.
 */
#include "plan/plan.h"
#include "plan/verify.h"

/* What is changed about the execution that a plan's fields cannot express. */
enum oracle_mutation {
        ORACLE_NONE,
        ORACLE_NO_CREDIT,       /* pushes do not wait for the slot to be free */
        ORACLE_NO_FLAG,         /* consumers do not wait for the chunk */
        ORACLE_SKIP_PEER,       /* the last peer of each push is left out, its flag is set all the same */
        ORACLE_TAIL_OFF_BY_ONE, /* the last element of each chunk is not sent */
        ORACLE_EARLY_FLAG,      /* the flag is visible before the data */
        ORACLE_MUTATION_COUNT,
};

/* Runs `laps` requests of the plan under a random schedule; true if all outputs were right and everything ended. */
bool oracle_run(const struct plan *plan, const struct plan_case *pcase, uint32_t laps, enum oracle_mutation mutation,
                unsigned int seed);
