/* SPDX-License-Identifier: MIT */
/*
 * Counting what crosses between nodes
 *
 * Bytes do not depend on how a range is cut into parts, so they are counted with parts as large as can be; the number
 * of chunks is the same in every part, so it is counted once and multiplied. Only pieces of vectors differ: a pair has
 * as many chunks as its own piece has parts.
 */
#include "plan/rails.h"

#include <string.h>

#include "ring/ring.h"

#define PART_BYTES_HUGE (UINT32_MAX / 64u * 64u)

void plan_net_host(struct plan_net *net) {
        *net = (struct plan_net){.hop_ns = 25000, .ns_per_chunk = 4000, .ns_per_byte = 0.6, .n_rails = 1};
}

static void count_step(const struct plan *plan, const struct plan_shape *shape, uint32_t me,
                       const struct plan_step *step, uint64_t chunks, uint64_t elements, struct plan_load *load) {
        uint64_t bytes = elements * (step->partial_out ? shape->partial_bytes : shape->element_bytes);

        for (uint32_t i = 0; i < step->n_targets; i++) {
                uint32_t to = step->target[i];

                if (plan_nodes_together(plan->nodes, me, to))
                        continue;
                load[me].chunks_out += chunks;
                load[to].chunks_in += chunks;
                load[me].bytes_out += bytes;
                load[to].bytes_in += bytes;
        }
}

static void count_phase(const struct plan *plan, const struct plan_phase *phase, const struct plan_geometry *geometry,
                        const struct plan_shape *shape, uint32_t me, struct plan_load *load) {
        const struct plan_geometry huge = {.part_bytes = PART_BYTES_HUGE, .slots = geometry->slots};
        uint64_t parts = plan_phase_parts(plan, phase, geometry, shape, me);
        uint64_t huge_parts = plan_phase_parts(plan, phase, &huge, shape, me);
        uint64_t part_elements = plan_part_elements(plan, geometry, shape);
        uint32_t n_steps = plan_phase_steps(plan, phase, shape, me);
        struct plan_step step;

        for (uint32_t k = 0; parts > 0 && k < n_steps; k++) {
                bool first = plan_step(plan, phase, geometry, shape, me, 0, k, &step);
                uint64_t elements = 0;

                if (!first || step.n_targets == 0)
                        continue;
                for (uint64_t part = 0; step.data && part < huge_parts; part++)
                        if (plan_step(plan, phase, &huge, shape, me, part, k, &step))
                                elements += step.length;
                if (plan->operation == RING_OP_ALL_TO_ALL_V)
                        parts = elements / part_elements + (elements % part_elements != 0);
                count_step(plan, shape, me, &step, step.data ? parts : 1, elements, load);
        }
}

void plan_load_ranks(const struct plan *plan, const struct plan_geometry *geometry, const struct plan_shape *shape,
                     struct plan_load *ret_load) {
        uint64_t counts[PLAN_RANKS_MAX], zeros[PLAN_RANKS_MAX] = {0};
        const struct plan_vector vector = {counts, zeros, counts, zeros};
        struct plan_shape alike = *shape;

        memset(ret_load, 0, plan->n_ranks * sizeof(*ret_load));
        for (uint32_t r = 0; r < PLAN_RANKS_MAX; r++)
                counts[r] = shape->count;
        if (plan->operation == RING_OP_ALL_TO_ALL_V && !shape->vector)
                alike.vector = &vector;
        for (uint32_t me = 0; plan->nodes && me < plan->n_ranks; me++)
                for (uint32_t p = 0; p < plan->n_phases; p++)
                        count_phase(plan, &plan->phases[p], geometry, &alike, me, ret_load);
}

void plan_load_rails(const struct plan *plan, const struct plan_load *ranks, uint32_t n_rails,
                     struct plan_load *ret_load) {
        const struct plan_nodes *nodes = plan->nodes;

        memset(ret_load, 0, (nodes ? nodes->n_nodes : 1) * n_rails * sizeof(*ret_load));
        for (uint32_t r = 0; nodes && r < plan->n_ranks; r++) {
                struct plan_load *load = &ret_load[nodes->node[r] * n_rails + nodes->local[r] % n_rails];

                load->chunks_out += ranks[r].chunks_out;
                load->chunks_in += ranks[r].chunks_in;
                load->bytes_out += ranks[r].bytes_out;
                load->bytes_in += ranks[r].bytes_in;
        }
}
