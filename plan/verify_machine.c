/* SPDX-License-Identifier: MIT */
/* Threads and requests of the verifier's machine. See verify.c. */
#include "plan/verify_machine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring/ring.h"

int verify_fault(struct plan_verdict *ret_verdict, enum plan_fault fault, const struct verify_place *at,
                 const char *format, ...) {
        va_list args;

        *ret_verdict = (struct plan_verdict){.condition = fault};
        if (at) {
                ret_verdict->rank = at->rank;
                ret_verdict->phase = at->phase;
                ret_verdict->part = at->part;
        }
        va_start(args, format);
        vsnprintf(ret_verdict->text, sizeof(ret_verdict->text), format, args);
        va_end(args);
        return PLAN_E_INVALID;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */
/* Runs a phase as far as it goes. *ret_moved is only ever set. */
static int thread_run(struct verify_machine *m, uint32_t rank, uint32_t p, bool *ret_moved) {
        struct verify_thread *thread = machine_thread(m, rank, p);
        int r;

        while (thread->step < thread->end) {
                r = verify_step_run(m, rank, p);
                if (r == STEP_WAITS)
                        return 0;
                if (r)
                        return r;
                thread->step++;
                *ret_moved = true;
                if (thread->part_clocks && thread->step % thread->steps == 0)
                        memcpy(thread->part_clocks + (size_t)(thread->step / thread->steps - 1) * m->width,
                               machine_clock(m, rank, p), m->width * sizeof(int16_t));
        }
        return 0;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
static bool phase_named(const struct plan *plan, uint32_t p) {
        for (uint32_t q = 0; q < plan->n_phases; q++)
                if (plan->phases[q].after == (int)p)
                        return true;
        return false;
}

static int thread_begin(struct verify_machine *m, uint32_t rank, uint32_t p) {
        const struct verify_request *request = machine_request(m, rank);
        const struct plan_shape *shape = machine_shape(m, m->current[rank], rank);
        struct verify_thread *thread = machine_thread(m, rank, p);
        const struct plan_phase *phase = &request->plan->phases[p];

        free(thread->part_clocks);
        *thread = (struct verify_thread){.steps = 1};
        if (p >= request->plan->n_phases)
                return 0;
        thread->parts = (uint32_t)plan_phase_parts(request->plan, phase, &request->pcase->geometry, shape, rank);
        thread->steps = plan_phase_steps(request->plan, phase, shape, rank);
        thread->end = thread->parts * thread->steps;
        if (thread->steps == 0)
                thread->steps = 1; /* not mine or nobody to talk to: still a divisor */
        if (thread->end == 0 || !phase_named(request->plan, p))
                return 0;
        thread->part_clocks = malloc((size_t)thread->parts * m->width * sizeof(int16_t));
        return thread->part_clocks ? 0 : -ENOMEM;
}

/* The bell: everything that follows on this rank comes after everything before. */
static int rank_begin(struct verify_machine *m, uint32_t rank) {
        int16_t *begun = m->begun + ((size_t)m->current[rank] * m->n_ranks + rank) * m->n_phases;
        int16_t *first = machine_clock(m, rank, 0);
        int r = 0;

        memset(m->guests + (size_t)rank * m->width, 0, m->width * sizeof(*m->guests));
        for (uint32_t p = 1; p < m->n_phases; p++)
                clock_join(first, machine_clock(m, rank, p), m->width);
        for (uint32_t p = 0; p < m->n_phases; p++)
                begun[p] = ++first[machine_thread_number(m, rank, p)];
        for (uint32_t p = 1; p < m->n_phases; p++)
                memcpy(machine_clock(m, rank, p), first, m->width * sizeof(*first));
        for (uint32_t p = 0; !r && p < m->n_phases; p++)
                r = thread_begin(m, rank, p);
        return r;
}

/* What the rank's completion follows: `ret_clock` joins all phases (but one that it does not wait for). */
static int end_clock(struct verify_machine *m, uint32_t rank, int16_t *ret_clock) {
        memset(ret_clock, 0, m->width * sizeof(*ret_clock));
        for (uint32_t p = 0; p < m->n_phases; p++)
                if (!machine_mutated(m, VERIFY_MUTATION_EARLY_END, rank, p))
                        clock_join(ret_clock, machine_clock(m, rank, p), m->width);
        for (uint32_t p = 0; p < m->n_phases; p++) {
                const struct verify_thread *thread = machine_thread(m, rank, p);
                struct verify_place at = {.rank = rank, .phase = p};

                if (thread->step < thread->end || !clock_covers(m, ret_clock, rank, p, machine_now(m, rank, p)))
                        return verify_fault(m->verdict, PLAN_FAULT_RACE, &at,
                                            "rank %u may complete the request before its phase %u is done", rank, p);
        }
        return 0;
}

static int barrier_check(struct verify_machine *m, uint32_t rank, const int16_t *clock) {
        uint32_t request = m->current[rank];

        for (uint32_t other = 0; other < m->n_ranks; other++) {
                struct verify_place at = {.rank = rank};

                if (other != rank && (m->current[other] < request || !clock_covers_begin(m, clock, request, other)))
                        return verify_fault(m->verdict, PLAN_FAULT_VALUE, &at,
                                            "rank %u may pass the barrier before rank %u has come", rank, other);
        }
        return 0;
}

static int rank_end(struct verify_machine *m, uint32_t rank) {
        int16_t clock[PLAN_RANKS_MAX * PLAN_PHASES_MAX];
        int r = end_clock(m, rank, clock);

        if (!r)
                r = verify_memory_left(m, rank, clock);
        if (!r)
                r = verify_tree_check(m, rank);
        if (!r && machine_request(m, rank)->plan->operation == RING_OP_BARRIER)
                r = barrier_check(m, rank, clock);
        if (!r && ++m->current[rank] < m->n_requests)
                r = rank_begin(m, rank);
        return r;
}

static bool rank_done(const struct verify_machine *m, uint32_t rank) {
        for (uint32_t p = 0; p < m->n_phases; p++)
                if (machine_thread(m, rank, p)->step < machine_thread(m, rank, p)->end &&
                    !machine_mutated(m, VERIFY_MUTATION_EARLY_END, rank, p))
                        return false;
        return true;
}

static int stuck(struct verify_machine *m) {
        for (uint32_t rank = 0; rank < m->n_ranks; rank++)
                for (uint32_t p = 0; m->current[rank] < m->n_requests && p < m->n_phases; p++) {
                        const struct verify_thread *thread = machine_thread(m, rank, p);
                        struct verify_place at = {rank, p, thread->step / thread->steps};

                        if (thread->step < thread->end)
                                return verify_fault(m->verdict, PLAN_FAULT_DEADLOCK, &at,
                                                    "phase %u of rank %u waits for ever in part %llu", p, rank,
                                                    (unsigned long long)at.part);
                }
        return verify_channel_check(m);
}

static int machine_execute(struct verify_machine *m) {
        bool moved = true;
        int r = 0;

        for (uint32_t rank = 0; !r && rank < m->n_ranks; rank++)
                r = rank_begin(m, rank);
        while (!r && moved) {
                moved = false;
                for (uint32_t rank = 0; !r && rank < m->n_ranks; rank++) {
                        if (m->current[rank] == m->n_requests)
                                continue;
                        for (uint32_t p = 0; !r && p < m->n_phases; p++)
                                r = thread_run(m, rank, p, &moved);
                        if (!r && rank_done(m, rank)) {
                                r = rank_end(m, rank);
                                moved = true;
                        }
                }
        }
        return r ? r : stuck(m);
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */
/* What each rank asks for. */
static int shapes_init(struct verify_machine *m) {
        size_t n = (size_t)m->n_requests * m->n_ranks;

        m->shapes = calloc(n, sizeof(*m->shapes));
        m->vectors = calloc(n, sizeof(*m->vectors));
        m->numbers = calloc(n * 4 * m->n_ranks, sizeof(*m->numbers));
        if (!m->shapes || !m->vectors || !m->numbers)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++) {
                const struct verify_request *request = &m->requests[i / m->n_ranks];
                const struct plan_vector *vector = NULL;

                if (request->plan->operation == RING_OP_ALL_TO_ALL_V) {
                        plan_case_vector(request->pcase, m->n_ranks, i % m->n_ranks,
                                         m->numbers + (size_t)i * 4 * m->n_ranks, &m->vectors[i]);
                        vector = &m->vectors[i];
                }
                plan_case_shape(request->pcase, vector, &m->shapes[i]);
        }
        return 0;
}

/* Clocks are narrow, and so is time: few enough steps for both, before anything more is allocated. */
static int machine_fits(const struct verify_machine *m) {
        const uint64_t most = VERIFY_STEPS_MAX / VERIFY_REQUESTS_MAX - PLAN_PHASES_MAX;

        for (uint32_t i = 0; i < m->n_requests; i++)
                for (uint32_t k = 0; k < m->n_ranks * m->requests[i].plan->n_phases; k++) {
                        const struct plan *plan = m->requests[i].plan;
                        const struct plan_phase *phase = &plan->phases[k / m->n_ranks];
                        const struct plan_shape *shape = machine_shape(m, i, k % m->n_ranks);
                        uint64_t parts =
                                plan_phase_parts(plan, phase, &m->requests[i].pcase->geometry, shape, k % m->n_ranks);

                        if (parts > most / m->n_ranks ||
                            parts * plan_phase_steps(plan, phase, shape, k % m->n_ranks) > most)
                                return verify_fault(m->verdict, PLAN_FAULT_MALFORMED, NULL,
                                                    "the case is too large to verify");
                }
        return 0;
}

static int machine_init(struct verify_machine *m) {
        int r = shapes_init(m);

        if (!r)
                r = machine_fits(m);
        if (r)
                return r;
        for (uint32_t i = 0; i < m->n_requests; i++) {
                const struct plan *plan = m->requests[i].plan;

                m->n_phases = plan->n_phases > m->n_phases ? plan->n_phases : m->n_phases;
                m->n_regions = plan->n_regions > m->n_regions ? plan->n_regions : m->n_regions;
        }
        m->width = m->n_ranks * m->n_phases;
        m->threads = calloc(m->width, sizeof(*m->threads));
        m->clocks = calloc((size_t)m->width * m->width, sizeof(*m->clocks));
        m->begun = calloc((size_t)m->n_requests * m->width, sizeof(*m->begun));
        m->guests = calloc((size_t)m->n_ranks * m->width, sizeof(*m->guests));
        if (!m->threads || !m->clocks || !m->begun || !m->guests)
                return -ENOMEM;
        r = verify_channel_init(m);
        return r ? r : verify_memory_init(m);
}

static void machine_deinit(struct verify_machine *m) {
        verify_tree_deinit(m);
        verify_memory_deinit(m);
        verify_channel_deinit(m);
        for (size_t i = 0; m->threads && i < m->width; i++)
                free(m->threads[i].part_clocks);
        free(m->guests);
        free(m->begun);
        free(m->clocks);
        free(m->threads);
        free(m->numbers);
        free(m->vectors);
        free(m->shapes);
}

int verify_machine_run(const struct verify_request *requests, uint32_t n_requests, const struct verify_options *options,
                       struct plan_verdict *ret_verdict) {
        const struct plan_geometry *geometry = &requests[0].pcase->geometry;
        struct plan_verdict verdict = {0};
        struct verify_machine m = {
                .requests = requests,
                .options = options,
                .verdict = &verdict,
                .n_requests = n_requests,
                .n_ranks = requests[0].plan->n_ranks,
                .slots = plan_channel_slots(geometry, requests[0].plan->n_ranks, false),
                .self_slots = options->self_slots ? options->self_slots
                                                  : plan_channel_slots(geometry, requests[0].plan->n_ranks, true),
                .counter_mask = options->counter_bits < 32 ? (1u << options->counter_bits) - 1 : UINT32_MAX,
        };
        int r = machine_init(&m);

        if (!r)
                r = machine_execute(&m);
        machine_deinit(&m);
        if (r > 0)
                *ret_verdict = verdict;
        return r;
}
