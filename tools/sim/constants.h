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

/* Reads a file over *constants, of which it may leave some as they are. 0, or -EINVAL with a sentence in ret_error. */
int constants_load(const char *path, struct plan_constants *constants, char *ret_error, size_t error_size);
/* {"version", "constants"}; NULL without memory. */
json_t *constants_json(const struct plan_constants *constants);
