/* SPDX-License-Identifier: MIT */
#pragma once
/* The verifier's machine: all ranks' phases of one or two consecutive requests, executed symbolically with vector
 * clocks. See verify.c. */
#include "plan/plan.h"
#include "plan/verify.h"

struct verify_run;

struct verify_request {
        const struct plan *plan;
        const struct plan_case *pcase;
};

/* 0 and *ret_verdict untouched if all is well; PLAN_E_INVALID with the verdict; -ENOMEM. */
int verify_run(const struct verify_request *requests, uint32_t n_requests, struct plan_verdict *ret_verdict);

/* Fills a verdict and returns PLAN_E_INVALID. */
int verdict_set(struct plan_verdict *verdict, enum plan_fault fault, uint32_t rank, uint32_t phase, uint64_t part,
                const char *format, ...) __attribute__((format(printf, 6, 7)));
