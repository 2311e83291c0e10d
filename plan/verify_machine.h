/* SPDX-License-Identifier: MIT */
#pragma once
/* The verifier's machine: all phases of all ranks in one or two consecutive requests, executed on symbols. See
 * verify.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"
#include "plan/verify.h"

#define VERIFY_REQUESTS_MAX 2u
#define VERIFY_SLOTS_MAX    256u
#define VERIFY_STEPS_MAX    32000u     /* of one thread: clocks are 16 bit */
#define VERIFY_CELLS_MAX    (1u << 22) /* of one rank's memory, and of all */
#define VERIFY_BYTES_MAX    (1u << 28) /* of clocks */
#define VERIFY_ELEMENTS_MAX (UINT64_C(1) << 60)

/*
 * Executors that do not keep to the plan, for tests: what a plan's fields cannot say. Applies to one phase, of one rank
 * or of all (VERIFY_EVERY_RANK).
 */
enum verify_mutation_kind {
        VERIFY_MUTATION_NONE,
        VERIFY_MUTATION_NO_CREDIT,   /* writes a slot without waiting for it to be free */
        VERIFY_MUTATION_NO_CHUNK,    /* reads a slot without waiting for its chunk */
        VERIFY_MUTATION_STALE_CHUNK, /* the same, but only from the second lap on: takes an old flag for the new one */
        VERIFY_MUTATION_EARLY_FLAG,  /* sets the flag, then writes the data */
        VERIFY_MUTATION_EARLY_RELEASE, /* releases the slot, then reads the data */
        VERIFY_MUTATION_SKIP_PEER,     /* leaves out peer number `arg` of each part */
        VERIFY_MUTATION_SKIP_PART,     /* leaves out part `arg` */
        VERIFY_MUTATION_SHORT,         /* leaves out the last element of each part */
        VERIFY_MUTATION_SHIFT,         /* each part one element further on */
        VERIFY_MUTATION_SWAP,          /* takes the range of the next rank for that of the peer, or of itself */
        VERIFY_MUTATION_EARLY_AFTER,   /* `after` waits for one part less */
        VERIFY_MUTATION_REDUCE_DROP,   /* rank `arg` is not added */
        VERIFY_MUTATION_REDUCE_TWICE,  /* rank `arg` is added twice */
        VERIFY_MUTATION_REDUCE_ORDER,  /* starts with the own contribution */
        VERIFY_MUTATION_FORWARD_INPUT, /* forwards the own contribution, not the result */
        VERIFY_MUTATION_EARLY_END,     /* the request counts as done although this phase may not be */
        VERIFY_MUTATION_COUNT,
};
#define VERIFY_EVERY_RANK UINT32_MAX

struct verify_mutation {
        uint32_t kind; /* enum verify_mutation_kind */
        uint32_t rank;
        uint32_t phase;
        uint32_t arg;
};

struct verify_request {
        const struct plan *plan;
        const struct plan_case *pcase;
};

struct verify_options {
        uint32_t counter_bits;  /* width of chunk numbers and credits; 32 */
        uint32_t counter_first; /* where they start; 0 */
        struct verify_mutation mutation;
};
#define VERIFY_OPTIONS_NULL                                                                                            \
        { .counter_bits = 32 }

/* plan_verify() with all knobs. */
int verify_pair(const struct plan *plan, const struct plan_case *pcase, const struct plan *next,
                const struct plan_case *next_case, const struct verify_options *options,
                struct plan_verdict *ret_verdict);
/* Are the fields what they may be? 0 or PLAN_E_INVALID. */
int verify_form(const struct plan *plan, struct plan_verdict *ret_verdict);
int verify_form_case(const struct plan *plan, const struct plan_case *pcase, struct plan_verdict *ret_verdict);
/* Executes requests that passed the above. 0, PLAN_E_INVALID or -ENOMEM. */
int verify_machine_run(const struct verify_request *requests, uint32_t n_requests, const struct verify_options *options,
                       struct plan_verdict *ret_verdict);

/* Where something happens. */
struct verify_place {
        uint32_t rank;
        uint32_t phase;
        uint64_t part;
};
/* Fills the verdict; returns PLAN_E_INVALID. */
int verify_fault(struct plan_verdict *ret_verdict, enum plan_fault fault, const struct verify_place *at,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- what the parts of the machine share ------------------------------------------------------------------------- */

/* A run of consecutive elements: what the first one is; the others follow. */
enum verify_origin {
        VERIFY_POISON,  /* nothing was ever written here */
        VERIFY_INPUT,   /* element `element` of rank `rank`'s input */
        VERIFY_REDUCED, /* element `element` of all ranks' inputs, each once, in rank order */
};
struct verify_value {
        uint8_t origin;
        uint8_t rank;
        uint64_t element;
        uint64_t length;
};

/* A piece of a rank's memory that no span divides. */
struct verify_cell {
        uint64_t element;
        uint8_t origin;
        uint8_t rank;
        uint8_t write_phase;
        int16_t write_clock;                 /* 0: never */
        int16_t read_clock[PLAN_PHASES_MAX]; /* of the last read of each phase */
};

/* One rank's buffers in one request. In place, input and output overlap. */
struct verify_memory {
        uint64_t in_base, in_elements, out_base, out_elements;
        uint64_t *starts; /* [n_cells + 1] */
        struct verify_cell *cells;
        uint32_t n_cells;
};

/* One slot as both ends see it. */
struct verify_slot {
        uint32_t flag;
        uint32_t request;
        struct verify_value value;
        int16_t write_clock; /* of the source's thread */
        int16_t read_clock;  /* of the destination's */
        uint8_t write_phase;
        uint8_t read_phase;
};

struct verify_channel {
        uint32_t pushed, taken;
        uint32_t n_pushed[VERIFY_REQUESTS_MAX], n_taken[VERIFY_REQUESTS_MAX];
        int16_t push_clock, take_clock; /* who used each end last */
        uint8_t push_phase, take_phase;
};

/* One phase of one rank in its current request. */
struct verify_thread {
        uint32_t step, end;
        uint32_t parts, peers;
        int16_t *part_clocks; /* [parts][width] when each part was done; only if some phase's `after` names this one */
};

struct verify_machine {
        const struct verify_request *requests;
        const struct verify_options *options;
        struct plan_verdict *verdict;
        uint32_t n_requests, n_ranks, n_regions, n_phases; /* the most of all requests */
        uint32_t slots;                                    /* of a channel */
        uint32_t n_slots;                                  /* that are ever used */
        uint32_t width;                                    /* components of a clock: one per (rank, phase) */
        uint32_t counter_mask;

        uint32_t current[PLAN_RANKS_MAX]; /* request of each rank */
        struct verify_thread *threads;    /* [rank][phase] */
        int16_t *clocks;                  /* [rank][phase][width] */
        int16_t *begun;                   /* [request][rank][phase] own components when the rank began */
        struct verify_memory *memory;     /* [request][rank] */
        struct verify_channel *channels;  /* [region][source][destination] */
        struct verify_slot *slot;         /* [channel][n_slots] */
        int16_t *flag_clocks;             /* [channel][n_slots][width] */
        int16_t *credit_clocks;           /* [channel][n_slots][width] */
        int16_t early_clock[PLAN_RANKS_MAX * PLAN_PHASES_MAX]; /* of a step before it began, for mutations */
};

static inline int16_t *machine_clock(const struct verify_machine *m, uint32_t rank, uint32_t phase) {
        return m->clocks + ((size_t)rank * m->n_phases + phase) * m->width;
}
static inline struct verify_thread *machine_thread(const struct verify_machine *m, uint32_t rank, uint32_t phase) {
        return &m->threads[(size_t)rank * m->n_phases + phase];
}
static inline const struct verify_request *machine_request(const struct verify_machine *m, uint32_t rank) {
        return &m->requests[m->current[rank]];
}
static inline struct verify_memory *machine_memory(const struct verify_machine *m, uint32_t rank) {
        return &m->memory[(size_t)m->current[rank] * m->n_ranks + rank];
}
/* Is what thread (rank, phase) did at `clock` ordered before whoever has the clock `mine`? */
static inline bool clock_covers(const struct verify_machine *m, const int16_t *mine, uint32_t rank, uint32_t phase,
                                int16_t clock) {
        return mine[rank * m->n_phases + phase] >= clock;
}
static inline void clock_join(int16_t *restrict into, const int16_t *restrict from, uint32_t width) {
        for (uint32_t i = 0; i < width; i++)
                into[i] = into[i] > from[i] ? into[i] : from[i];
}
static inline bool machine_mutated(const struct verify_machine *m, enum verify_mutation_kind kind, uint32_t rank,
                                   uint32_t phase) {
        const struct verify_mutation *mutation = &m->options->mutation;

        return mutation->kind == kind && mutation->phase == phase &&
               (mutation->rank == rank || mutation->rank == VERIFY_EVERY_RANK);
}

/* verify_step.c: one step of a phase that is not done. 0, STEP_WAITS, PLAN_E_INVALID or -ENOMEM. */
enum { STEP_DONE = 0, STEP_WAITS = -1000 };
int verify_step_run(struct verify_machine *m, uint32_t rank, uint32_t phase);

/* verify_memory.c */
int verify_memory_init(struct verify_machine *m);
void verify_memory_deinit(struct verify_machine *m);
int verify_memory_read(struct verify_machine *m, const struct verify_place *at, struct plan_span span,
                       struct verify_value *ret_value);
int verify_memory_write(struct verify_machine *m, const struct verify_place *at, struct plan_span span,
                        const struct verify_value *value);
/* A step that reads `in` and writes `out`: may it, when they overlap? */
int verify_memory_overlap(struct verify_machine *m, const struct verify_place *at, struct plan_span in,
                          struct plan_span out);
/* Does the output hold what the operation promises? */
int verify_memory_check(struct verify_machine *m, uint32_t rank);

/* verify_channel.c */
struct verify_channel_id {
        uint32_t region, source, destination;
};
int verify_channel_init(struct verify_machine *m);
void verify_channel_deinit(struct verify_machine *m);
/* Would the step's wait end now? Never for chunks that are not there, except with a mutation. */
bool verify_channel_has_room(const struct verify_machine *m, struct verify_channel_id id,
                             const struct verify_place *at);
bool verify_channel_has_chunk(const struct verify_machine *m, struct verify_channel_id id,
                              const struct verify_place *at);
/* What the wait has ordered before the step enters its clock. Faults if the wait ended too early. */
int verify_channel_room_seen(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at);
int verify_channel_chunk_seen(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at);
/* `posted` is the clock that the other end gets to see: that of the step, or of before it. */
int verify_channel_push(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at,
                        const struct verify_value *value, const int16_t *posted);
int verify_channel_read(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at,
                        struct verify_value *ret_value);
int verify_channel_release(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at,
                           const int16_t *posted);
int verify_channel_check(struct verify_machine *m);
