/* SPDX-License-Identifier: MIT */
#pragma once
/* The constants of the cost model as JSON (docs/schema/railmux-constants.json). */
#include <jansson.h>
#include <stddef.h>

#include "plan/cost.h"

#define CONSTANTS_N       9u
#define CONSTANTS_VERSION 1

/* The i-th constant by name and place; all but `parallel`. */
const char *constants_name(uint32_t i);
double *constants_at(struct plan_constants *constants, uint32_t i);

/* Reads a file over *constants, of which it may leave some as they are. 0, or with a sentence in ret_error -EINVAL or
 * -ENOMEM. */
int constants_load(const char *path, struct plan_constants *constants, char *ret_error, size_t error_size);
/* The same for its text. */
int constants_parse(const char *text, size_t length, struct plan_constants *constants, char *ret_error,
                    size_t error_size);
/* For those who know the defaults later than the file: nothing is given; and what was given goes over *constants. */
void constants_clear(struct plan_constants *given);
void constants_merge(struct plan_constants *constants, const struct plan_constants *given);
/* {"version", "constants"}; NULL without memory. */
json_t *constants_json(const struct plan_constants *constants);
