/* SPDX-License-Identifier: MIT */
/*
 * Counting traffic
 *
 * Bytes do not depend on how a range is cut into parts, so they are counted with parts as large as can be; numbers of
 * chunks and steps are the same in every part, so they are counted once and multiplied. So a request of any size takes
 * no longer than a small one.
 */
#include "tools/sim/traffic.h"

#include <errno.h>
#include <stdlib.h>

#define PART_BYTES_HUGE (UINT32_MAX / 64u * 64u)

static void count_link(struct traffic *t, uint32_t from, uint32_t to, uint64_t bytes) {
        if (from != to)
                t->link[from][to].bytes += bytes;
}

/* What does not depend on the length: once for each of `parts`. */
static void count_ends(struct traffic *t, uint32_t me, const struct plan_step *step, uint64_t parts) {
        struct traffic_rank *rank = &t->rank[me];
        uint64_t taken = 0;

        rank->steps += parts;
        for (uint32_t i = 0; i < step->n_sources; i++)
                taken += step->source[i].kind == PLAN_SOURCE_CHUNK ? parts : 0;
        *(step->data ? &rank->chunks_taken : &rank->signals_taken) += taken;
        *(step->data ? &rank->chunks_sent : &rank->signals_sent) += step->n_targets * parts;
        for (uint32_t i = 0; i < step->n_targets; i++) {
                struct traffic_link *link = &t->link[me][step->target[i]];

                if (step->target[i] != me)
                        *(step->data ? &link->chunks : &link->signals) += parts;
        }
}

static void count_bytes(struct traffic *t, uint32_t me, const struct plan_shape *shape, const struct plan_step *step) {
        uint64_t bytes = step->length * shape->element_bytes, chunk;
        struct traffic_rank *rank = &t->rank[me];

        if (!step->data)
                return;
        for (uint32_t i = 0; i < step->n_sources; i++) {
                const struct plan_source *source = &step->source[i];

                chunk = step->length * (step->partial_in ? shape->partial_bytes : shape->element_bytes);
                if (step->n_sources > 1)
                        rank->bytes_reduced += source->kind == PLAN_SOURCE_CHUNK ? chunk : bytes;
                if (source->kind == PLAN_SOURCE_INPUT && source->rank != me) {
                        rank->bytes_far += bytes;
                        count_link(t, source->rank, me, bytes);
                }
        }
        for (uint32_t i = 0; i < step->n_outputs; i++) {
                rank->bytes_output += bytes;
                rank->bytes_far += step->output[i].rank != me ? bytes : 0;
                count_link(t, me, step->output[i].rank, bytes);
        }
        chunk = step->length * (step->partial_out ? shape->partial_bytes : shape->element_bytes);
        for (uint32_t i = 0; i < step->n_targets; i++)
                count_link(t, me, step->target[i], chunk);
        if (step->n_sources == 1)
                rank->bytes_copied += bytes * step->n_outputs + chunk * step->n_targets;
}

static void count_phase(struct traffic *t, const struct plan *plan, const struct plan_phase *phase,
                        const struct plan_geometry *geometry, const struct plan_shape *shape, uint32_t me) {
        const struct plan_geometry huge = {.part_bytes = PART_BYTES_HUGE, .slots = geometry->slots};
        uint64_t parts = plan_phase_parts(plan, phase, geometry, shape, me);
        uint64_t huge_parts = plan_phase_parts(plan, phase, &huge, shape, me);
        uint32_t n_steps = plan_phase_steps(plan, phase, shape, me);
        struct plan_step step;

        for (uint32_t k = 0; parts > 0 && k < n_steps; k++) {
                if (!plan_step(plan, phase, geometry, shape, me, 0, k, &step))
                        continue;
                count_ends(t, me, &step, parts);
                for (uint64_t part = 0; part < huge_parts; part++)
                        if (plan_step(plan, phase, &huge, shape, me, part, k, &step))
                                count_bytes(t, me, shape, &step);
        }
}

int traffic_new(const struct plan *plan, const struct plan_geometry *geometry, const struct plan_shape *shape,
                struct traffic **ret_traffic) {
        struct traffic *t = calloc(1, sizeof(*t));

        if (!t)
                return -ENOMEM;
        t->n_ranks = plan->n_ranks;
        for (uint32_t me = 0; me < plan->n_ranks; me++)
                for (uint32_t p = 0; p < plan->n_phases; p++)
                        count_phase(t, plan, &plan->phases[p], geometry, shape, me);
        *ret_traffic = t;
        return 0;
}
