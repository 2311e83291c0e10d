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

/* From virtual nodes on the loopback (docs/benchmarks.md): two nodes of one GPU took 250 us for 128 KB in two hops, and
 * 0.8 ns for each byte beyond, over one rail. Over four it is 0.34, and with two GPUs each 0.6 of what all send: so a
 * rail takes 1.4 to 2.4 there, since processors are what they share. Chunks go many at a time. */
void plan_net_device(struct plan_net *net) {
        *net = (struct plan_net){.hop_ns = 60000, .ns_per_chunk = 100, .ns_per_byte = 1.2, .n_rails = 1};
}

/* What is counted, and by what. */
struct count {
        const struct plan *plan;
        const struct plan_geometry *geometry;
        const struct plan_shape *shape;
        uint32_t n_rails; /* 0: by rank */
        struct plan_load *load;
};

/* Where a message counts at the end of rank `at` that rank `from` has sent. */
static struct plan_load *count_place(const struct count *count, uint32_t at, uint32_t from) {
        const struct plan_nodes *nodes = count->plan->nodes;

        return count->n_rails ? &count->load[nodes->node[at] * count->n_rails + nodes->local[from] % count->n_rails]
                              : &count->load[at];
}

/* The bytes of a step that lie beside flags. All its parts are full but the last. */
static uint64_t count_lines(const struct count *count, const struct plan_step *step, uint64_t elements) {
        uint64_t part = plan_part_elements(count->plan, count->geometry, count->shape), rest = elements % part;
        uint32_t size = count->shape->element_bytes;

        if (step->partial_out)
                return 0;
        return ((part * size <= PLAN_LINE_BYTES ? elements - rest : 0) + (rest * size <= PLAN_LINE_BYTES ? rest : 0)) *
               size;
}

static void count_step(const struct count *count, uint32_t me, const struct plan_step *step, uint64_t chunks,
                       uint64_t elements) {
        uint64_t bytes = elements * (step->partial_out ? count->shape->partial_bytes : count->shape->element_bytes);
        uint64_t lines = count_lines(count, step, elements);

        for (uint32_t i = 0; i < step->n_targets; i++) {
                uint32_t to = step->target[i];
                struct plan_load *out = count_place(count, me, me), *in = count_place(count, to, me);

                if (plan_nodes_together(count->plan->nodes, me, to))
                        continue;
                out->chunks_out += chunks;
                in->chunks_in += chunks;
                out->bytes_out += bytes;
                in->bytes_in += bytes;
                out->lines_out += lines;
                in->lines_in += lines;
                count_place(count, to, to)->credits_out += chunks;
                count_place(count, me, to)->credits_in += chunks;
        }
}

static void count_phase(const struct count *count, const struct plan_phase *phase, uint32_t me) {
        const struct plan_geometry huge = {.part_bytes = PART_BYTES_HUGE, .slots = count->geometry->slots};
        const struct plan *plan = count->plan;
        uint64_t parts = plan_phase_parts(plan, phase, count->geometry, count->shape, me);
        uint64_t huge_parts = plan_phase_parts(plan, phase, &huge, count->shape, me);
        uint64_t part_elements = plan_part_elements(plan, count->geometry, count->shape);
        uint32_t n_steps = plan_phase_steps(plan, phase, count->shape, me);
        struct plan_step step;

        for (uint32_t k = 0; parts > 0 && k < n_steps; k++) {
                bool first = plan_step(plan, phase, count->geometry, count->shape, me, 0, k, &step);
                uint64_t elements = 0;

                if (!first || step.n_targets == 0)
                        continue;
                for (uint64_t part = 0; step.data && part < huge_parts; part++)
                        if (plan_step(plan, phase, &huge, count->shape, me, part, k, &step))
                                elements += step.length;
                if (plan->operation == RING_OP_ALL_TO_ALL_V)
                        parts = elements / part_elements + (elements % part_elements != 0);
                count_step(count, me, &step, step.data ? parts : 1, elements);
        }
}

static void count_all(struct count count) {
        uint64_t counts[PLAN_RANKS_MAX], zeros[PLAN_RANKS_MAX] = {0};
        const struct plan_vector vector = {counts, zeros, counts, zeros};
        const struct plan *plan = count.plan;
        struct plan_shape alike = *count.shape;

        for (uint32_t r = 0; r < PLAN_RANKS_MAX; r++)
                counts[r] = alike.count;
        if (plan->operation == RING_OP_ALL_TO_ALL_V && !alike.vector)
                alike.vector = &vector;
        count.shape = &alike;
        for (uint32_t me = 0; plan->nodes && me < plan->n_ranks; me++)
                for (uint32_t p = 0; p < plan->n_phases; p++)
                        count_phase(&count, &plan->phases[p], me);
}

void plan_load_ranks(const struct plan *plan, const struct plan_geometry *geometry, const struct plan_shape *shape,
                     struct plan_load *ret_load) {
        const struct count count = {.plan = plan, .geometry = geometry, .shape = shape, .load = ret_load};

        memset(ret_load, 0, plan->n_ranks * sizeof(*ret_load));
        count_all(count);
}

void plan_load_rails(const struct plan *plan, const struct plan_geometry *geometry, const struct plan_shape *shape,
                     uint32_t n_rails, struct plan_load *ret_load) {
        const struct count count = {
                .plan = plan, .geometry = geometry, .shape = shape, .n_rails = n_rails, .load = ret_load};

        memset(ret_load, 0, (plan->nodes ? plan->nodes->n_nodes : 1) * n_rails * sizeof(*ret_load));
        count_all(count);
}
