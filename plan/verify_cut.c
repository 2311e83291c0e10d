/* SPDX-License-Identifier: MIT */
/*
 * A rank's input and output, cut into cells at every border of every span that any step can touch, so that each cell is
 * always read and written as a whole. In place, the same cells are input and output.
 */
#include <errno.h>
#include <stdlib.h>

#include "plan/verify_machine.h"
#include "ring/ring.h"

/* ---- borders ----------------------------------------------------------------------------------------------------- */
struct borders {
        uint64_t *at;
        size_t n, size;
};

static int borders_add(struct borders *borders, uint64_t at) {
        if (borders->n > 0 && borders->at[borders->n - 1] == at)
                return 0;
        if (borders->n == borders->size) {
                size_t size = borders->size ? borders->size * 2 : 256;
                uint64_t *more = size > VERIFY_CELLS_MAX ? NULL : reallocarray(borders->at, size, sizeof(*more));

                if (!more)
                        return -ENOMEM;
                borders->at = more;
                borders->size = size;
        }
        borders->at[borders->n++] = at;
        return 0;
}

static int compare_borders(const void *a, const void *b) {
        const uint64_t *x = a, *y = b;

        return (*x > *y) - (*x < *y);
}

static void borders_sort(struct borders *borders) {
        size_t n = 0;

        if (borders->n == 0)
                return;
        qsort(borders->at, borders->n, sizeof(*borders->at), compare_borders);
        for (size_t i = 1; i < borders->n; i++)
                if (borders->at[i] != borders->at[n])
                        borders->at[++n] = borders->at[i];
        borders->n = n + 1;
}

/* Where a mutation may put a span in some steps: then both places are borders. */
static int borders_add_mutated(const struct verify_machine *m, struct plan_span span, struct borders *borders) {
        int error = 0;

        if (m->options->mutation.kind == VERIFY_MUTATION_SHIFT) {
                error = borders_add(borders, span.offset + 1);
                if (!error)
                        error = borders_add(borders, span.offset + span.length + 1);
        }
        if (m->options->mutation.kind == VERIFY_MUTATION_SHORT && span.length > 0)
                error = borders_add(borders, span.offset + span.length - 1);
        return error;
}

/* All borders of one range as any rank may use it: shards and blocks of all, so the same set serves every rank. Only
 * vectors are a rank's own. */
static int borders_of_range(const struct verify_machine *m, uint32_t request, uint32_t rank,
                            const struct plan_phase *phase, uint32_t range, struct borders *borders) {
        const struct verify_request *r = &m->requests[request];
        const struct plan_shape *shape = machine_shape(m, request, rank);
        uint64_t parts = plan_phase_parts(r->plan, phase, &r->pcase->geometry, shape, rank);
        uint32_t last = range == PLAN_RANGE_NONE || range == PLAN_RANGE_WHOLE ? 0 : m->n_ranks - 1;
        int error = 0;

        if (range == PLAN_RANGE_NONE)
                return 0;
        for (uint32_t i = 0; i <= last; i++)
                for (uint64_t part = 0; part < parts; part++) {
                        struct plan_span span = plan_span(range, r->plan, &r->pcase->geometry, shape, i, i, part);

                        if (span.length == 0 && part > 0)
                                break;
                        error = borders_add(borders, span.offset);
                        if (!error)
                                error = borders_add(borders, span.offset + span.length);
                        if (!error && m->options->mutation.kind != VERIFY_MUTATION_NONE)
                                error = borders_add_mutated(m, span, borders);
                        if (error)
                                return error;
                }
        return 0;
}

/* Where what the operation promises changes, whether or not any phase has spans there. */
static int borders_of_promise(const struct verify_machine *m, uint32_t request, uint32_t rank, struct borders *in,
                              struct borders *out) {
        const struct plan *plan = m->requests[request].plan;
        const struct plan_case *c = m->requests[request].pcase;
        const struct plan_vector *vector = machine_shape(m, request, rank)->vector;
        uint64_t shard = plan_shard_elements(c->count, plan->n_shards, c->element_bytes);
        int error = 0;

        for (uint32_t i = 0; !error && i < m->n_ranks; i++) {
                error = borders_add(in, c->count * i);
                if (!error)
                        error = borders_add(out, c->count * i);
                if (!error && verify_tree_sharded(plan))
                        error = borders_add(out, shard * i);
                if (!error && vector)
                        error = borders_add(out, vector->recv_offset[i]);
                if (!error && vector)
                        error = borders_add(out, vector->recv_offset[i] + vector->recv_count[i]);
        }
        return error;
}

static int borders_collect(const struct verify_machine *m, uint32_t request, uint32_t rank, struct borders *in,
                           struct borders *out) {
        const struct plan *plan = m->requests[request].plan;
        int error = 0;

        in->n = out->n = 0;
        for (uint32_t p = 0; !error && p < plan->n_phases; p++) {
                const struct plan_phase *phase = &plan->phases[p];
                bool again = false; /* a phase with the same ranges has the same borders */

                for (uint32_t q = 0; q < p; q++)
                        again = again || (plan->phases[q].in_range == phase->in_range &&
                                          plan->phases[q].out_range == phase->out_range);
                if (!again)
                        error = borders_of_range(m, request, rank, phase, phase->in_range, in);
                if (!again && !error)
                        error = borders_of_range(m, request, rank, phase, phase->out_range, out);
        }
        if (!error)
                error = borders_of_promise(m, request, rank, in, out);
        if (!error) {
                borders_sort(in);
                borders_sort(out);
        }
        return error;
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */
/* How much a rank has, without its place. */
static int memory_size(const struct verify_machine *m, uint32_t request, uint32_t rank, struct verify_memory *memory) {
        const struct plan *plan = m->requests[request].plan;
        const struct plan_case *c = m->requests[request].pcase;

        switch (plan->operation) {
        case RING_OP_ALL_TO_ALL_V:
                return plan_vector_elements(machine_shape(m, request, rank)->vector, plan->n_ranks,
                                            &memory->in_elements, &memory->out_elements);
        case RING_OP_SEND:
                memory->in_elements = rank == c->root ? c->count : 0;
                memory->out_elements = rank == c->peer ? c->count : 0;
                return 0;
        default:
                return plan_request_elements(plan->operation, plan->n_ranks, c->count,
                                             plan_operation_rooted(plan->operation) && rank == c->root,
                                             &memory->in_elements, &memory->out_elements);
        }
}

bool plan_case_in_place(uint32_t operation) {
        return operation != RING_OP_ALL_TO_ALL && operation != RING_OP_ALL_TO_ALL_V && !plan_operation_p2p(operation);
}

/* In place: the output lies on the input, or the smaller one where its own block is in the larger one. */
static int memory_layout(const struct verify_machine *m, uint32_t request, uint32_t rank,
                         struct verify_memory *memory) {
        const struct plan *plan = m->requests[request].plan;
        const struct plan_case *c = m->requests[request].pcase;
        struct verify_place at = {.rank = rank};

        if (memory_size(m, request, rank, memory) || memory->in_elements > VERIFY_ELEMENTS_MAX ||
            memory->out_elements > VERIFY_ELEMENTS_MAX)
                return verify_fault(m->verdict, PLAN_FAULT_MALFORMED, &at, "the case is too large to verify");
        if (!c->in_place)
                memory->out_base = memory->in_elements;
        else if (plan->operation == RING_OP_ALL_GATHER || (plan->operation == RING_OP_GATHER && rank == c->root))
                memory->in_base = c->count * rank;
        else if (plan->operation == RING_OP_REDUCE_SCATTER || (plan->operation == RING_OP_SCATTER && rank == c->root))
                memory->out_base = c->count * rank;
        return 0;
}

/* Merges two sorted sets of borders, each at its base and up to its size; returns how many cells. */
static uint32_t memory_cut(struct verify_memory *memory, const struct borders *in, const struct borders *out) {
        uint64_t in_end = memory->in_base + memory->in_elements, out_end = memory->out_base + memory->out_elements;
        uint64_t end = in_end > out_end ? in_end : out_end;
        uint32_t n = 0;
        size_t i = 0, o = 0;

        memory->starts[n++] = 0;
        for (;;) {
                uint64_t a = i < in->n && in->at[i] <= memory->in_elements ? memory->in_base + in->at[i] : UINT64_MAX;
                uint64_t b =
                        o < out->n && out->at[o] <= memory->out_elements ? memory->out_base + out->at[o] : UINT64_MAX;
                uint64_t at = a < b ? a : b;

                if (at == UINT64_MAX)
                        break;
                i += a == at;
                o += b == at;
                if (at > memory->starts[n - 1])
                        memory->starts[n++] = at;
        }
        if (end > memory->starts[n - 1])
                memory->starts[n++] = end;
        return n - 1;
}

static void memory_fill(struct verify_memory *memory, uint32_t rank) {
        for (uint32_t i = 0; i < memory->n_cells; i++) {
                uint64_t at = memory->starts[i];

                if (at < memory->in_base || at - memory->in_base >= memory->in_elements)
                        continue;
                memory->cells[i].node = verify_leaf(rank);
                memory->cells[i].element = at - memory->in_base;
        }
}

static int memory_init_rank(struct verify_machine *m, uint32_t request, uint32_t rank, const struct borders *in,
                            const struct borders *out) {
        struct verify_memory *memory = &m->memory[(size_t)request * m->n_ranks + rank];
        int error = memory_layout(m, request, rank, memory);

        if (error)
                return error;
        /* both ends of both buffers are borders too */
        memory->starts = calloc(in->n + out->n + 8, sizeof(*memory->starts));
        if (!memory->starts)
                return -ENOMEM;
        memory->n_cells = memory_cut(memory, in, out);
        memory->cells = calloc(memory->n_cells + 1, sizeof(*memory->cells));
        if (!memory->cells)
                return -ENOMEM;
        memory_fill(memory, rank);
        return 0;
}

int verify_memory_init(struct verify_machine *m) {
        struct borders in = {0}, out = {0};
        int error = 0;

        m->memory = calloc((size_t)m->n_requests * m->n_ranks, sizeof(*m->memory));
        if (!m->memory)
                return -ENOMEM;
        for (uint32_t i = 0; !error && i < m->n_requests; i++)
                for (uint32_t rank = 0; !error && rank < m->n_ranks; rank++) {
                        if (rank == 0 || machine_shape(m, i, rank)->vector)
                                error = borders_collect(m, i, rank, &in, &out);
                        if (!error && (in.n + out.n) * m->n_ranks > VERIFY_CELLS_MAX)
                                error = verify_fault(m->verdict, PLAN_FAULT_MALFORMED, NULL,
                                                     "the case is too large to verify");
                        if (!error)
                                error = memory_init_rank(m, i, rank, &in, &out);
                }
        free(in.at);
        free(out.at);
        return error;
}

void verify_memory_deinit(struct verify_machine *m) {
        for (size_t i = 0; m->memory && i < (size_t)m->n_requests * m->n_ranks; i++) {
                free(m->memory[i].starts);
                free(m->memory[i].cells);
        }
        free(m->memory);
        free(m->readers);
}

uint32_t verify_memory_cell(const struct verify_memory *memory, uint64_t at) {
        uint32_t low = 0, high = memory->n_cells;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (memory->starts[middle] < at)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low < memory->n_cells && memory->starts[low] == at ? low : memory->n_cells;
}
