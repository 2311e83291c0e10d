/* SPDX-License-Identifier: MIT */
/*
 * A rank's input and output as the verifier sees them: cut at every border of every span that any step can touch, so
 * that each piece (cell) is always read and written as a whole. A cell knows what its first element is made of, who
 * wrote it last and which phases have read it since, by their clocks. In place, the same cells are input and output.
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

/* All borders of one range as any rank may use it: shards and blocks of all, so the same set serves every rank. */
static int borders_of_range(const struct verify_machine *m, uint32_t request, uint32_t p, uint32_t range,
                            struct borders *borders) {
        const struct verify_request *r = &m->requests[request];
        uint64_t parts = plan_phase_parts(r->plan, &r->plan->phases[p], &r->pcase->geometry, r->pcase->count,
                                          r->pcase->element_bytes);
        uint32_t last = range == PLAN_RANGE_NONE || range == PLAN_RANGE_WHOLE ? 0 : m->n_ranks - 1;
        struct verify_place at = {.phase = p};
        int error;

        if (range == PLAN_RANGE_NONE)
                return 0;
        for (uint32_t rank = 0; rank <= last; rank++)
                for (at.part = 0; at.part < parts; at.part++) {
                        struct plan_span span;

                        /* a mutation may shift the spans of some ranks only: then both places are borders */
                        span = plan_span(range, r->plan, &r->pcase->geometry, r->pcase->count, r->pcase->element_bytes,
                                         rank, rank, at.part);
                        error = borders_add(borders, span.offset);
                        if (!error)
                                error = borders_add(borders, span.offset + span.length);
                        if (!error && m->options->mutation.kind == VERIFY_MUTATION_SHIFT)
                                error = borders_add(borders, span.offset + 1);
                        if (!error && m->options->mutation.kind == VERIFY_MUTATION_SHIFT)
                                error = borders_add(borders, span.offset + span.length + 1);
                        if (!error && m->options->mutation.kind == VERIFY_MUTATION_SHORT && span.length > 0)
                                error = borders_add(borders, span.offset + span.length - 1);
                        if (error)
                                return error;
                }
        return 0;
}

static int borders_collect(const struct verify_machine *m, uint32_t request, struct borders *in, struct borders *out) {
        const struct verify_request *r = &m->requests[request];
        int error = 0;

        for (uint32_t p = 0; !error && p < r->plan->n_phases; p++) {
                error = borders_of_range(m, request, p, r->plan->phases[p].in_range, in);
                if (!error)
                        error = borders_of_range(m, request, p, r->plan->phases[p].out_range, out);
        }
        for (uint32_t rank = 0; !error && rank < m->n_ranks; rank++) { /* blocks also where no phase has them */
                error = borders_add(in, r->pcase->count * rank);
                if (!error)
                        error = borders_add(out, r->pcase->count * rank);
        }
        if (!error) {
                borders_sort(in);
                borders_sort(out);
        }
        return error;
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */
static int memory_layout(const struct verify_machine *m, uint32_t request, uint32_t rank,
                         struct verify_memory *memory) {
        const struct plan *plan = m->requests[request].plan;
        const struct plan_case *c = m->requests[request].pcase;

        if (plan_request_elements(plan->operation, plan->n_ranks, c->count,
                                  plan_operation_rooted(plan->operation) && rank == c->root, &memory->in_elements,
                                  &memory->out_elements) ||
            memory->in_elements > VERIFY_ELEMENTS_MAX || memory->out_elements > VERIFY_ELEMENTS_MAX) {
                struct verify_place at = {.rank = rank};

                return verify_fault(m->verdict, PLAN_FAULT_MALFORMED, &at, "the case is too large to verify");
        }
        if (!c->in_place)
                memory->out_base = memory->in_elements;
        else if (plan->operation == RING_OP_ALL_GATHER)
                memory->in_base = c->count * rank;
        else if (plan->operation == RING_OP_REDUCE_SCATTER)
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
                memory->cells[i].origin = VERIFY_INPUT;
                memory->cells[i].rank = (uint8_t)rank;
                memory->cells[i].element = at - memory->in_base;
        }
}

static int memory_init_rank(struct verify_machine *m, uint32_t request, uint32_t rank, const struct borders *in,
                            const struct borders *out) {
        struct verify_memory *memory = &m->memory[(size_t)request * m->n_ranks + rank];
        size_t most = in->n + out->n + 4;
        int error;

        error = memory_layout(m, request, rank, memory);
        if (error)
                return error;
        /* both ends of both buffers are borders too */
        memory->starts = calloc(most + 4, sizeof(*memory->starts));
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
        int error = 0;

        m->memory = calloc((size_t)m->n_requests * m->n_ranks, sizeof(*m->memory));
        if (!m->memory)
                return -ENOMEM;
        for (uint32_t i = 0; !error && i < m->n_requests; i++) {
                struct borders in = {0}, out = {0};

                error = borders_collect(m, i, &in, &out);
                if (!error && (in.n + out.n) * m->n_ranks > VERIFY_CELLS_MAX)
                        error = verify_fault(m->verdict, PLAN_FAULT_MALFORMED, NULL, "the case is too large to verify");
                for (uint32_t rank = 0; !error && rank < m->n_ranks; rank++)
                        error = memory_init_rank(m, i, rank, &in, &out);
                free(in.at);
                free(out.at);
        }
        return error;
}

void verify_memory_deinit(struct verify_machine *m) {
        for (size_t i = 0; m->memory && i < (size_t)m->n_requests * m->n_ranks; i++) {
                free(m->memory[i].starts);
                free(m->memory[i].cells);
        }
        free(m->memory);
}

/* ---- accesses ---------------------------------------------------------------------------------------------------- */
/* The cell that begins at `at`, which is a border. */
static uint32_t cell_find(const struct verify_memory *memory, uint64_t at) {
        uint32_t low = 0, high = memory->n_cells;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (memory->starts[middle] < at)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static int cell_race(struct verify_machine *m, const struct verify_place *at, uint32_t other, const char *what) {
        return verify_fault(m->verdict, PLAN_FAULT_RACE, at, "phases %u and %u of rank %u %s in any order%s", other,
                            at->phase, at->rank, what,
                            machine_request(m, at->rank)->pcase->in_place ? " (in place)" : "");
}

static int outside(struct verify_machine *m, const struct verify_place *at, struct plan_span span, const char *what) {
        return verify_fault(m->verdict, PLAN_FAULT_BOUNDS, at, "phase %u of rank %u: elements %llu + %llu of the %s",
                            at->phase, at->rank, (unsigned long long)span.offset, (unsigned long long)span.length,
                            what);
}

static bool inside(struct plan_span span, uint64_t elements) {
        return span.offset <= elements && span.length <= elements - span.offset;
}

int verify_memory_read(struct verify_machine *m, const struct verify_place *at, struct plan_span span,
                       struct verify_value *ret_value) {
        struct verify_memory *memory = machine_memory(m, at->rank);
        const int16_t *clock = machine_clock(m, at->rank, at->phase);
        struct verify_value value = {.length = span.length};
        uint64_t begin = memory->in_base + span.offset, end;

        if (!inside(span, memory->in_elements))
                return outside(m, at, span, "input");
        end = begin + span.length;
        for (uint32_t i = cell_find(memory, begin); i < memory->n_cells && memory->starts[i] < end; i++) {
                struct verify_cell *cell = &memory->cells[i];
                uint64_t done = memory->starts[i] - begin;

                if (cell->write_clock > 0 && !clock_covers(m, clock, at->rank, cell->write_phase, cell->write_clock))
                        return cell_race(m, at, cell->write_phase, "write and read the same elements");
                cell->read_clock[at->phase] = clock[at->rank * m->n_phases + at->phase];
                if (done == 0) {
                        value.origin = cell->origin;
                        value.rank = cell->rank;
                        value.element = cell->element;
                } else if (value.origin != cell->origin || value.rank != cell->rank ||
                           value.element + done != cell->element) {
                        return verify_fault(m->verdict, PLAN_FAULT_VALUE, at,
                                            "phase %u of rank %u reads what is partly overwritten", at->phase,
                                            at->rank);
                }
        }
        *ret_value = value;
        return 0;
}

int verify_memory_write(struct verify_machine *m, const struct verify_place *at, struct plan_span span,
                        const struct verify_value *value) {
        struct verify_memory *memory = machine_memory(m, at->rank);
        const int16_t *clock = machine_clock(m, at->rank, at->phase);
        uint64_t begin = memory->out_base + span.offset, end;

        if (!inside(span, memory->out_elements))
                return outside(m, at, span, "output");
        if (value->length != span.length)
                return verify_fault(m->verdict, PLAN_FAULT_VALUE, at,
                                    "phase %u of rank %u has %llu elements where %llu are due", at->phase, at->rank,
                                    (unsigned long long)value->length, (unsigned long long)span.length);
        end = begin + span.length;
        for (uint32_t i = cell_find(memory, begin); i < memory->n_cells && memory->starts[i] < end; i++) {
                struct verify_cell *cell = &memory->cells[i];

                if (cell->write_clock > 0 && !clock_covers(m, clock, at->rank, cell->write_phase, cell->write_clock))
                        return cell_race(m, at, cell->write_phase, "write the same elements");
                for (uint32_t p = 0; p < m->n_phases; p++)
                        if (!clock_covers(m, clock, at->rank, p, cell->read_clock[p]))
                                return cell_race(m, at, p, "read and write the same elements");
                cell->write_clock = clock[at->rank * m->n_phases + at->phase];
                cell->write_phase = (uint8_t)at->phase;
                cell->origin = value->origin;
                cell->rank = value->rank;
                cell->element = value->element + (memory->starts[i] - begin);
        }
        return 0;
}

int verify_memory_overlap(struct verify_machine *m, const struct verify_place *at, struct plan_span in,
                          struct plan_span out) {
        const struct verify_memory *memory = machine_memory(m, at->rank);
        uint64_t from, to;

        if (!inside(in, memory->in_elements))
                return outside(m, at, in, "input");
        if (!inside(out, memory->out_elements))
                return outside(m, at, out, "output");
        from = memory->in_base + in.offset;
        to = memory->out_base + out.offset;
        if (from == to || from + in.length <= to || to + out.length <= from)
                return 0;
        return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                            "phase %u of rank %u reads and writes elements that overlap", at->phase, at->rank);
}

/* ---- the result -------------------------------------------------------------------------------------------------- */
int verify_memory_check(struct verify_machine *m, uint32_t rank) {
        const struct verify_request *request = machine_request(m, rank);
        const struct verify_memory *memory = machine_memory(m, rank);
        uint64_t count = request->pcase->count;

        for (uint32_t i = cell_find(memory, memory->out_base);
             i < memory->n_cells && memory->starts[i] < memory->out_base + memory->out_elements; i++) {
                const struct verify_cell *cell = &memory->cells[i];
                uint64_t element = memory->starts[i] - memory->out_base;
                struct verify_value due = {.origin = VERIFY_REDUCED, .element = element};

                switch (request->plan->operation) {
                case RING_OP_ALL_GATHER:
                        due.origin = VERIFY_INPUT;
                        due.rank = (uint8_t)(element / count);
                        due.element = element % count;
                        break;
                case RING_OP_REDUCE_SCATTER:
                        due.element = count * rank + element;
                        break;
                case RING_OP_BROADCAST:
                        due.origin = VERIFY_INPUT;
                        due.rank = (uint8_t)request->pcase->root;
                        break;
                default:
                        break;
                }
                if (cell->origin != due.origin || cell->rank != due.rank || cell->element != due.element) {
                        struct verify_place at = {.rank = rank, .phase = cell->write_phase};

                        return verify_fault(m->verdict, PLAN_FAULT_VALUE, &at,
                                            "element %llu of rank %u's output is not what %s promises",
                                            (unsigned long long)element, rank,
                                            plan_operation_name(request->plan->operation));
                }
        }
        return 0;
}
