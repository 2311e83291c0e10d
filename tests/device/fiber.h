/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Many loops in one thread, which take turns where they say so. Who goes on is drawn from a seed, so a schedule that
 * shows an error shows it again. See fiber.cc.
 */
#include <stdbool.h>
#include <stdint.h>

#define FIBERS_MAX 2049u /* the caller, which is number 0, included */

/* Forgets all fibers; none is under way. seed 0: they go on in their order. */
void fiber_init(uint64_t seed);
/* Frees the stacks. */
void fiber_deinit(void);
/* Another one, which begins when its turn comes. Numbers of finished ones are used again. */
uint32_t fiber_new(void (*main)(void *), void *data);
bool fiber_finished(uint32_t fiber);
/* Somebody's turn; the caller's, too, in the end. */
void fiber_yield(void);
