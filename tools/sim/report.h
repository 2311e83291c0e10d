/* SPDX-License-Identifier: MIT */
#pragma once
/* What railmux-sim prints. */
#include <jansson.h>

#include "plan/verify.h"
#include "tools/sim/sim.h"

#define REPORT_JSON_VERSION 1

void report_begin(const struct sim *sim);
void report_result(const struct sim *sim, const struct sim_result *result);
void report_links(const struct sim *sim, const struct sim_candidate *candidate); /* loads of the topology's links */
void report_choices(const struct sim *sim);

/* NULL without memory. */
json_t *report_json_begin(const struct sim *sim);
json_t *report_json_result(const struct sim *sim, const struct sim_result *result);
json_t *report_json_links(const struct sim *sim, const struct sim_candidate *candidate);
json_t *report_json_choices(const struct sim *sim);
json_t *report_json_verdict(const struct plan *plan, const struct plan_verdict *verdict);
