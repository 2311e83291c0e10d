/* SPDX-License-Identifier: MIT */
/*
 * What kernels can run of what plan_step() can say
 *
 * Chunks from any rank and the own input, combined in order; the result to the own output, and as a chunk to any rank.
 * Other ranks' memory is out of reach. Input, output and length have one index, unless the range is the same whatever
 * the index.
 *
 * Steps do not depend on parts, counts or sizes, so any shape shows them.
 */
#include "gpu/hip/programs.h"

#include <string.h>

#include "gpu/device/staging.h"

#define STEPS_MAX UINT8_MAX /* of a phase of a rank: a cursor of eight bits */

/* Any will do. */
static const struct plan_geometry geometry = {.part_bytes = STAGING_PACKET_CHUNK, .slots = STAGING_SLOTS};

static struct plan_shape shape_of(uint32_t root) {
        return (struct plan_shape){.count = 1, .element_bytes = 4, .partial_bytes = 4, .root = root};
}

static uint32_t roots_of(const struct plan *plan) {
        return plan_operation_rooted(plan->operation) ? plan->n_ranks : 1;
}

static bool index_fits(uint32_t range, uint32_t index, const struct plan_step *step) {
        return index == step->index || range == PLAN_RANGE_WHOLE;
}

/* False: kernels cannot do that. */
static bool step_fill(const struct plan_phase *phase, uint32_t me, const struct plan_step *step,
                      struct program_step *ret_step) {
        struct program_step made = {.work.index = (uint8_t)step->index};
        uint32_t last = 0, flags = 0;

        if (!step->data || !step->n_sources || step->n_sources > PROGRAM_SOURCES || step->n_outputs > 1)
                return false;
        for (uint32_t i = 0; i < step->n_sources; i++) {
                const struct plan_source *source = &step->source[i];

                if (i > 0 && source->rank < last)
                        flags |= PROGRAM_LISTED;
                last = source->rank;
                if (source->kind == PLAN_SOURCE_CHUNK) {
                        made.source[i] = source->rank;
                        made.work.chunks |= UINT64_C(1) << source->rank;
                        continue;
                }
                if (source->kind != PLAN_SOURCE_INPUT || source->rank != me || (flags & PROGRAM_INPUT) ||
                    !index_fits(phase->in_range, source->index, step))
                        return false;
                made.source[i] = PROGRAM_OWN;
                flags |= PROGRAM_INPUT;
        }
        if (step->n_outputs &&
            (step->output[0].rank != me || !index_fits(phase->out_range, step->output[0].index, step)))
                return false;
        for (uint32_t i = 0; i < step->n_targets; i++)
                made.work.targets |= UINT64_C(1) << step->target[i];
        flags |= step->n_outputs ? PROGRAM_OUTPUT : 0;
        flags |= step->partial_in ? PROGRAM_PARTIAL_IN : 0;
        flags |= step->partial_out ? PROGRAM_PARTIAL_OUT : 0;
        flags |= step->finish ? PROGRAM_FINISH : 0;
        made.work.flags = (uint8_t)flags;
        if ((step->n_outputs && step->partial_out) || ((flags & PROGRAM_INPUT) && made.work.chunks >> me & 1))
                return false;
        if (!step->partial_out && !step->finish && (step->partial_in || step->n_sources > 1))
                return false;
        *ret_step = made;
        return true;
}

/* The steps of a rank, behind each other. False: as above, or more than `max`. ret_steps NULL: they are only counted.
 */
static bool program_fill(const struct plan *plan, uint32_t me, uint32_t root, uint32_t max, struct program *ret_program,
                         union program_entry *ret_steps, uint32_t *ret_n) {
        const struct plan_shape shape = shape_of(root);
        struct program made = {0};
        struct program_step ignored;
        struct plan_step step;
        uint32_t n = 0;

        for (uint32_t f = 0; f < plan->n_phases; f++) {
                const struct plan_phase *phase = &plan->phases[f];
                const uint32_t n_steps = plan_phase_steps(plan, phase, &shape, me);

                if (n_steps > STEPS_MAX || n + n_steps > max)
                        return false;
                made.phases.first[f] = (uint16_t)n;
                made.phases.n[f] = (uint8_t)n_steps;
                for (uint32_t k = 0; k < n_steps; k++, n++) {
                        struct program_step *to = ret_steps ? &ret_steps[n].step : &ignored;

                        if (!plan_step(plan, phase, &geometry, &shape, me, 0, k, &step) ||
                            !step_fill(phase, me, &step, to))
                                return false;
                        made.hear[f] |= to->work.chunks & ~(UINT64_C(1) << me);
                        made.tell[f] |= to->work.targets & ~(UINT64_C(1) << me);
                }
        }
        *ret_program = made;
        *ret_n = n;
        return true;
}

/* Is it one of those that go by channels alone? */
static bool phases_fit(const struct plan *plan) {
        if (!plan->nodes || plan->n_ranks > PROGRAM_SOURCES || plan->n_phases > PROGRAM_PHASES ||
            plan->n_regions > PLAN_REGIONS_DATA)
                return false;
        for (uint32_t f = 0; f < plan->n_phases; f++)
                if (plan->phases[f].kind != PLAN_PASS || plan->phases[f].schedule < PLAN_SCHEDULE_NODES ||
                    plan->phases[f].after >= 0)
                        return false;
        return true;
}

uint32_t programs_size(const struct plan *plan, uint64_t here) {
        const uint32_t roots = roots_of(plan);
        uint32_t size = 0, n;

        for (uint32_t me = 0; me < plan->n_ranks; me++)
                for (uint32_t root = 0; (here >> me & 1) && root < roots; root++) {
                        struct program program;

                        if (!phases_fit(plan) || !program_fill(plan, me, root, UINT16_MAX - size, &program, NULL, &n))
                                return 0;
                        size += 1 + n;
                }
        return size;
}

void programs_fill(const struct plan *plan, uint64_t here, uint32_t first, union program_entry *ret_entries,
                   struct program_row *ret_row) {
        const uint32_t roots = roots_of(plan);
        uint32_t at = (uint32_t)__builtin_popcountll(here) * roots, i = 0, n = 0;

        for (uint32_t me = 0; me < plan->n_ranks; me++)
                for (uint32_t root = 0; (here >> me & 1) && root < roots; root++, i++, at += n) {
                        struct program *program = &ret_entries[i].program;

                        if (!program_fill(plan, me, root, UINT16_MAX - at, program, &ret_entries[at], &n))
                                return; /* programs_size has tried it */
                        for (uint32_t f = 0; f < PROGRAM_PHASES; f++)
                                program->phases.first[f] = (uint16_t)(program->phases.first[f] + at);
                }
        *ret_row = (struct program_row){.first = first, .here = here, .roots = roots};
}
