/* SPDX-License-Identifier: MIT */
/*
 * Accesses to ranks' inputs and outputs, each compared with what conflicts with it. A cell knows what its first element
 * is made of, who wrote it last and which threads have read it since, by their clocks: threads of its rank, and of
 * others where a plan works on memory where it lies. For those three things more must hold: both ranks are on the same
 * node, the rank's request has begun before, and it ends after.
 */
#include <errno.h>
#include <stdlib.h>

#include "plan/nodes.h"
#include "plan/verify_machine.h"

static uint64_t window_base(const struct verify_memory *memory, const struct verify_window *window) {
        return window->output ? memory->out_base : memory->in_base;
}

static bool inside(const struct verify_memory *memory, const struct verify_window *window) {
        uint64_t elements = window->output ? memory->out_elements : memory->in_elements;

        return window->span.offset <= elements && window->span.length <= elements - window->span.offset;
}

static int outside(struct verify_machine *m, const struct verify_place *at, const struct verify_window *window) {
        return verify_fault(m->verdict, PLAN_FAULT_BOUNDS, at,
                            "phase %u of rank %u: elements %llu + %llu of rank %u's %s", at->phase, at->rank,
                            (unsigned long long)window->span.offset, (unsigned long long)window->span.length,
                            window->rank, window->output ? "output" : "input");
}

static int cell_race(struct verify_machine *m, const struct verify_place *at, const struct verify_window *window,
                     uint32_t thread, const char *what) {
        return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                            "phase %u of rank %u and phase %u of rank %u %s rank %u's elements in any order%s",
                            thread % m->n_phases, thread / m->n_phases, at->phase, at->rank, what, window->rank,
                            machine_request(m, window->rank)->pcase->in_place ? " (in place)" : "");
}

/* The rank whose memory it is takes part in the same request, from before the access; verify_memory_left() looks at the
 * other end. */
static int guest_enter(struct verify_machine *m, const struct verify_place *at, uint32_t host) {
        uint32_t thread = machine_thread_number(m, at->rank, at->phase);

        if (!plan_nodes_together(machine_request(m, at->rank)->plan->nodes, at->rank, host))
                return verify_fault(m->verdict, PLAN_FAULT_FAR, at,
                                    "phase %u of rank %u uses memory of rank %u, which is on another node", at->phase,
                                    at->rank, host);
        if (m->current[host] != m->current[at->rank] ||
            !clock_covers_begin(m, machine_clock(m, at->rank, at->phase), m->current[host], host))
                return verify_fault(m->verdict, PLAN_FAULT_RACE, at, "phase %u of rank %u may use rank %u's memory %s",
                                    at->phase, at->rank, host,
                                    m->current[host] > m->current[at->rank] ? "after its end" : "before it has begun");
        m->guests[(size_t)host * m->width + thread] = machine_now(m, at->rank, at->phase);
        return 0;
}

int verify_memory_left(struct verify_machine *m, uint32_t rank, const int16_t *clock) {
        const int16_t *guests = m->guests + (size_t)rank * m->width;

        for (uint32_t thread = 0; thread < m->width; thread++) {
                struct verify_place at = {.rank = thread / m->n_phases, .phase = thread % m->n_phases};

                if (guests[thread] > clock[thread])
                        return verify_fault(m->verdict, PLAN_FAULT_RACE, &at,
                                            "phase %u of rank %u may use rank %u's memory after its end", at.phase,
                                            at.rank, rank);
        }
        return 0;
}

/* Remembers that a thread has read the cell. */
static int cell_note(struct verify_machine *m, struct verify_cell *cell, uint32_t thread, int16_t now) {
        uint32_t i = cell->readers;

        while (i != 0 && m->readers[i].thread != thread)
                i = m->readers[i].next;
        if (i == 0) {
                if (m->n_readers + 1 >= m->readers_size) {
                        uint32_t size = m->readers_size ? m->readers_size * 2 : 1024;
                        struct verify_reader *more = reallocarray(m->readers, size, sizeof(*more));

                        if (!more)
                                return -ENOMEM;
                        m->readers = more;
                        m->readers_size = size;
                }
                i = ++m->n_readers;
                m->readers[i] = (struct verify_reader){.next = cell->readers, .thread = (uint16_t)thread};
                cell->readers = i;
        }
        m->readers[i].clock = now;
        return 0;
}

/* The cells of a window. */
struct cells {
        struct verify_memory *memory;
        uint64_t begin, end;
        uint32_t first, last; /* one more than the last */
};

static int window_cells(struct verify_machine *m, const struct verify_place *at, const struct verify_window *window,
                        struct cells *ret_cells) {
        struct verify_memory *memory = machine_memory(m, window->rank);
        int r = window->rank == at->rank ? 0 : guest_enter(m, at, window->rank);

        if (r)
                return r;
        if (!inside(memory, window))
                return outside(m, at, window);
        ret_cells->memory = memory;
        ret_cells->begin = window_base(memory, window) + window->span.offset;
        ret_cells->end = ret_cells->begin + window->span.length;
        ret_cells->first = ret_cells->last = verify_memory_cell(memory, ret_cells->begin);
        if (window->span.length == 0)
                return 0;
        while (ret_cells->last < memory->n_cells && memory->starts[ret_cells->last] < ret_cells->end)
                ret_cells->last++;
        if (ret_cells->first == memory->n_cells || memory->starts[ret_cells->last] != ret_cells->end)
                return verify_fault(m->verdict, PLAN_FAULT_MALFORMED, at,
                                    "phase %u of rank %u uses a piece of memory that no range has", at->phase,
                                    at->rank);
        return 0;
}

int verify_memory_read(struct verify_machine *m, const struct verify_place *at, const struct verify_window *window,
                       struct verify_value *ret_value) {
        const int16_t *clock = machine_clock(m, at->rank, at->phase);
        struct verify_value value = {.length = window->span.length};
        uint32_t thread = machine_thread_number(m, at->rank, at->phase);
        struct cells cells;
        int r = window_cells(m, at, window, &cells);

        for (uint32_t i = cells.first; !r && i < cells.last; i++) {
                struct verify_cell *cell = &cells.memory->cells[i];
                uint64_t done = cells.memory->starts[i] - cells.begin;

                if (cell->write_clock > clock[cell->write_thread])
                        return cell_race(m, at, window, cell->write_thread, "write and read");
                r = cell_note(m, cell, thread, clock[thread]);
                if (done == 0) {
                        value.node = cell->node;
                        value.element = cell->element;
                } else if (value.node != cell->node || value.element + done != cell->element) {
                        return verify_fault(m->verdict, PLAN_FAULT_VALUE, at,
                                            "phase %u of rank %u reads what is partly overwritten", at->phase,
                                            at->rank);
                }
        }
        if (!r && value.length > 0 && value.node == VERIFY_POISON)
                return verify_fault(m->verdict, PLAN_FAULT_VALUE, at, "phase %u of rank %u reads what nobody wrote",
                                    at->phase, at->rank);
        if (!r)
                *ret_value = value;
        return r;
}

int verify_memory_write(struct verify_machine *m, const struct verify_place *at, const struct verify_window *window,
                        const struct verify_value *value) {
        const int16_t *clock = machine_clock(m, at->rank, at->phase);
        uint32_t thread = machine_thread_number(m, at->rank, at->phase);
        struct cells cells;
        int r = window_cells(m, at, window, &cells);

        for (uint32_t i = cells.first; !r && i < cells.last; i++) {
                struct verify_cell *cell = &cells.memory->cells[i];

                if (cell->write_clock > clock[cell->write_thread])
                        return cell_race(m, at, window, cell->write_thread, "write");
                for (uint32_t k = cell->readers; k != 0; k = m->readers[k].next)
                        if (m->readers[k].clock > clock[m->readers[k].thread])
                                return cell_race(m, at, window, m->readers[k].thread, "read and write");
                *cell = (struct verify_cell){
                        /* whatever comes after this write comes after those reads */
                        .element = value->element + (cells.memory->starts[i] - cells.begin),
                        .node = value->node,
                        .write_thread = (uint16_t)thread,
                        .write_clock = clock[thread],
                };
        }
        return r;
}

enum verify_overlap verify_memory_overlap(const struct verify_machine *m, const struct verify_place *at,
                                          const struct verify_window *a, const struct verify_window *b) {
        const struct verify_memory *memory = &m->memory[(size_t)m->current[at->rank] * m->n_ranks + a->rank];
        uint64_t from, to;

        if (a->rank != b->rank || a->span.length == 0 || b->span.length == 0 || !inside(memory, a) ||
            !inside(memory, b))
                return VERIFY_APART;
        from = window_base(memory, a) + a->span.offset;
        to = window_base(memory, b) + b->span.offset;
        if (from + a->span.length <= to || to + b->span.length <= from)
                return VERIFY_APART;
        return from == to && a->span.length == b->span.length ? VERIFY_SAME : VERIFY_OVERLAP;
}
