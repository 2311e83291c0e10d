/* SPDX-License-Identifier: MIT */
#pragma once
/* Communicators that stand still while an executor is replaced. See hold.c. */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/plane.h"

struct plane;

int hold_begin(struct plane *plane, uint64_t comm, bool has_upto, uint32_t upto, char *error);
/* Of all its ranks here; the number, at most `max`. */
uint32_t hold_level(const struct plane *plane, uint64_t comm, struct plane_level *levels, uint32_t max);
/* Is nothing of it under way here, and will nothing be? */
bool hold_settled(const struct plane *plane, uint64_t comm);
/* Its ranks go on; those of no communicator that is held do anyway. */
int hold_end(struct plane *plane, uint64_t comm, char *error);
/* Of tick: brings limited rings level. 0, or a fault. */
int hold_tick(struct plane *plane, char *error);
/* Is any rank held? Then the kernels must run. */
bool hold_any(const struct plane *plane);
