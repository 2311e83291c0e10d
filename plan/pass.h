/* SPDX-License-Identifier: MIT */
#pragma once
/* The schedules of PASS phases. See pass.c. */
#include "plan/plan.h"

static inline void step_input(struct plan_step *step, uint32_t rank, uint32_t index) {
        step->source[step->n_sources++] = (struct plan_source){PLAN_SOURCE_INPUT, (uint8_t)rank, (uint8_t)index};
}
static inline void step_written(struct plan_step *step, uint32_t rank, uint32_t index) {
        step->source[step->n_sources++] = (struct plan_source){PLAN_SOURCE_OUTPUT, (uint8_t)rank, (uint8_t)index};
}
static inline void step_chunk(struct plan_step *step, uint32_t rank) {
        step->source[step->n_sources++] = (struct plan_source){PLAN_SOURCE_CHUNK, (uint8_t)rank, 0};
}
static inline void step_output(struct plan_step *step, uint32_t rank, uint32_t index) {
        step->output[step->n_outputs++] = (struct plan_place){(uint8_t)rank, (uint8_t)index};
}
static inline void step_target(struct plan_step *step, uint32_t rank) {
        step->target[step->n_targets++] = (uint8_t)rank;
}

/* Steps per part of a rank. */
uint32_t pass_steps(uint32_t schedule, uint32_t n_ranks, uint32_t me, uint32_t root);
/* Fills sources, outputs, targets, partial_* and finish (and clears `data` for a barrier); returns the index whose
 * range gives the step's length. */
uint32_t pass_step(uint32_t schedule, uint32_t n_ranks, uint32_t me, uint32_t root, uint32_t k, struct plan_step *step);
/* The same for schedules over nodes (pass_node.c); the plan has `nodes`. Clears `data` also for a step that is nothing.
 */
uint32_t pass_node_steps(const struct plan *plan, uint32_t schedule, uint32_t me, uint32_t root);
uint32_t pass_node_step(const struct plan *plan, uint32_t schedule, uint32_t me, uint32_t root, uint32_t k,
                        struct plan_step *step);
