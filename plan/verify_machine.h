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
#define VERIFY_BYTES_MAX    (1u << 28) /* of slots and their clocks */
#define VERIFY_ELEMENTS_MAX (UINT64_C(1) << 50)

/*
 * Executors that do not keep to the plan, for tests: what a plan's fields cannot say. Applies to every step of one
 * phase, of one rank or of all (VERIFY_EVERY_RANK).
 */
enum verify_mutation_kind {
        VERIFY_MUTATION_NONE,
        VERIFY_MUTATION_NO_CREDIT,   /* writes a slot without waiting for it to be free */
        VERIFY_MUTATION_NO_CHUNK,    /* reads a slot without waiting for its chunk */
        VERIFY_MUTATION_STALE_CHUNK, /* the same, but only from the second lap on: takes an old flag for the new one */
        VERIFY_MUTATION_EARLY_FLAG,  /* sets the flag, then writes the data */
        VERIFY_MUTATION_EARLY_RELEASE, /* releases the slot, then reads the data */
        VERIFY_MUTATION_SKIP_PEER,     /* leaves out step number `arg` of each part */
        VERIFY_MUTATION_SKIP_PART,     /* leaves out part `arg` */
        VERIFY_MUTATION_SHORT,         /* leaves out the last element of each step that has any */
        VERIFY_MUTATION_SHIFT,         /* spans of all sources and outputs that have elements begin one further on */
        VERIFY_MUTATION_SWAP, /* looks at ranges from the next rank with the next index (modulo n), in the same shape */
        VERIFY_MUTATION_EARLY_AFTER,   /* `after` waits for one part less */
        VERIFY_MUTATION_REDUCE_DROP,   /* steps with several sources: number `arg` is taken, but not added */
        VERIFY_MUTATION_REDUCE_TWICE,  /* ...: number `arg` is added twice, one after the other */
        VERIFY_MUTATION_REDUCE_ORDER,  /* ...: the first source is added last */
        VERIFY_MUTATION_FORWARD_INPUT, /* chunks carry the step's own input, if it has one, not the result */
        VERIFY_MUTATION_EARLY_END,     /* the request counts as done although this phase may not be */
        VERIFY_MUTATION_NO_FINISH,     /* does not finish */
        VERIFY_MUTATION_TWICE_FINISH,  /* reducing operations: finishes in steps that should not */
        VERIFY_MUTATION_PARTIAL,       /* reducing operations: elements in chunks for accumulators, and the reverse */
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
        uint32_t self_slots;    /* of a rank's channel to itself; 0: as many as the geometry says */
        struct verify_mutation mutation;
};
#define VERIFY_OPTIONS_NULL                                                                                            \
        { .counter_bits = 32 }

/* plan_verify() with all knobs. */
int verify_pair(const struct plan *plan, const struct plan_case *pcase, const struct plan *next,
                const struct plan_case *next_case, const struct verify_options *options,
                struct plan_verdict *ret_verdict);
/* plan_verify_all(), and how many pairs of requests it executed. */
int verify_all(const struct plan *plan, const struct plan_geometry *geometry, const struct plan *peers,
               uint32_t n_peers, uint32_t *ret_runs, struct plan_verdict *ret_verdict);
/* Call number `call` that it makes of one plan, and the request that follows it; false: there are fewer. */
bool verify_call(const struct plan *plan, const struct plan_geometry *geometry, uint32_t call,
                 struct plan_case *ret_case, struct plan_case *ret_next);
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

/*
 * What an element is made of. Equal numbers mean equal expressions: leaves are numbered 1 + rank, every combination of
 * two nodes gets the next number when it is met first (verify_tree.c). A finished value has the number of what was
 * finished, with a bit.
 */
#define VERIFY_POISON   0u /* nothing was ever written here */
#define VERIFY_FINISHED (1u << 31)
#define VERIFY_NODE_MAX (1u << 24)
static inline uint32_t verify_leaf(uint32_t rank) {
        return 1 + rank;
}

/* A run of consecutive elements: what the first one is made of, and from which element of the inputs; the others
 * follow. */
struct verify_value {
        uint32_t node;
        uint64_t element;
        uint64_t length;
};

struct verify_pair_node {
        uint32_t left, right;
};
struct verify_tree {
        struct verify_pair_node *nodes; /* number 1 + n_ranks + i */
        uint32_t *table;                /* open addressing; number of a node, or 0 */
        uint32_t n_nodes, table_size;
        uint32_t due[VERIFY_REQUESTS_MAX][PLAN_RANKS_MAX]; /* what the declared tree of each shard or block is; 0: ? */
};

/* A piece of a rank's memory that no span divides. */
struct verify_cell {
        uint64_t element;
        uint32_t node;
        uint32_t readers; /* list of those since the last write; 0: none */
        uint16_t write_thread;
        int16_t write_clock; /* 0: never */
};

/* The last read of a cell by a thread. */
struct verify_reader {
        uint32_t next;
        uint16_t thread;
        int16_t clock;
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
        bool partial;        /* accumulators */
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
        struct verify_slot *slot; /* [slots], from the first push on */
        int16_t *clocks;          /* [slots][2][width]: of the flag, and of the credit that gave the slot back */
};

/* One phase of one rank in its current request. */
struct verify_thread {
        uint32_t step, end;
        uint32_t parts, steps; /* steps of each part, >= 1 */
        int16_t *part_clocks;  /* [parts][width] when each part was done; only if some phase's `after` names this one */
};

struct verify_machine {
        const struct verify_request *requests;
        const struct verify_options *options;
        struct plan_verdict *verdict;
        uint32_t n_requests, n_ranks, n_regions, n_phases; /* the most of all requests */
        uint32_t slots, self_slots;                        /* of a channel, and of a rank's to itself */
        uint32_t width;                                    /* components of a clock: one per (rank, phase) */
        uint32_t counter_mask;

        uint32_t current[PLAN_RANKS_MAX]; /* request of each rank */
        struct plan_shape *shapes;        /* [request][rank] */
        struct plan_vector *vectors;      /* [request][rank] */
        uint64_t *numbers;                /* of the vectors: [request][rank][4][n_ranks] */
        struct verify_thread *threads;    /* [rank][phase] */
        int16_t *clocks;                  /* [rank][phase][width] */
        int16_t *begun;                   /* [request][rank][phase] own components when the rank began */
        int16_t *guests;                  /* [rank][width] when threads of others last used its memory, this request */
        struct verify_memory *memory;     /* [request][rank] */
        struct verify_reader *readers;    /* those of all cells; number 0 is not used */
        uint32_t n_readers, readers_size;
        struct verify_channel *channels; /* [region][source][destination] */
        size_t channel_bytes;            /* allocated for their slots */
        struct verify_tree tree;
        int16_t early_clock[PLAN_RANKS_MAX * PLAN_PHASES_MAX]; /* of a step before it began, for mutations */
};

static inline uint32_t machine_thread_number(const struct verify_machine *m, uint32_t rank, uint32_t phase) {
        return rank * m->n_phases + phase;
}
static inline int16_t *machine_clock(const struct verify_machine *m, uint32_t rank, uint32_t phase) {
        return m->clocks + (size_t)machine_thread_number(m, rank, phase) * m->width;
}
/* A thread's own time. */
static inline int16_t machine_now(const struct verify_machine *m, uint32_t rank, uint32_t phase) {
        return machine_clock(m, rank, phase)[machine_thread_number(m, rank, phase)];
}
static inline struct verify_thread *machine_thread(const struct verify_machine *m, uint32_t rank, uint32_t phase) {
        return &m->threads[machine_thread_number(m, rank, phase)];
}
static inline const struct verify_request *machine_request(const struct verify_machine *m, uint32_t rank) {
        return &m->requests[m->current[rank]];
}
static inline const struct plan_shape *machine_shape(const struct verify_machine *m, uint32_t request, uint32_t rank) {
        return &m->shapes[(size_t)request * m->n_ranks + rank];
}
static inline struct verify_memory *machine_memory(const struct verify_machine *m, uint32_t rank) {
        return &m->memory[(size_t)m->current[rank] * m->n_ranks + rank];
}
/* Is what thread (rank, phase) did at `clock` ordered before whoever has the clock `mine`? */
static inline bool clock_covers(const struct verify_machine *m, const int16_t *mine, uint32_t rank, uint32_t phase,
                                int16_t clock) {
        return mine[machine_thread_number(m, rank, phase)] >= clock;
}
/* Is the beginning of the rank's request (which it has begun)? */
static inline bool clock_covers_begin(const struct verify_machine *m, const int16_t *mine, uint32_t request,
                                      uint32_t rank) {
        const int16_t *begun = m->begun + ((size_t)request * m->n_ranks + rank) * m->n_phases;

        for (uint32_t p = 0; p < m->n_phases; p++)
                if (clock_covers(m, mine, rank, p, begun[p]))
                        return true;
        return false;
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

/* verify_cut.c: who has what memory in which cells, and in place where */
int verify_memory_init(struct verify_machine *m);
void verify_memory_deinit(struct verify_machine *m);
/* Number of the cell that begins at `at`; n_cells if none does. */
uint32_t verify_memory_cell(const struct verify_memory *memory, uint64_t at);

/* verify_memory.c. A window is a span of some rank's input or output. */
struct verify_window {
        uint32_t rank;
        bool output;
        struct plan_span span;
};
int verify_memory_read(struct verify_machine *m, const struct verify_place *at, const struct verify_window *window,
                       struct verify_value *ret_value);
int verify_memory_write(struct verify_machine *m, const struct verify_place *at, const struct verify_window *window,
                        const struct verify_value *value);
/* How do two windows lie to each other? */
enum verify_overlap { VERIFY_APART, VERIFY_SAME, VERIFY_OVERLAP };
enum verify_overlap verify_memory_overlap(const struct verify_machine *m, const struct verify_place *at,
                                          const struct verify_window *a, const struct verify_window *b);
/* When the rank ends with this clock: has everybody left its memory? */
int verify_memory_left(struct verify_machine *m, uint32_t rank, const int16_t *clock);

/* verify_tree.c */
void verify_tree_deinit(struct verify_machine *m);
/* left + right, or 0 without memory. */
uint32_t verify_tree_pair(struct verify_machine *m, uint32_t left, uint32_t right);
/* Do shards differ in their trees? */
bool verify_tree_sharded(const struct plan *plan);
static inline bool verify_tree_is_pair(const struct verify_machine *m, uint32_t node) {
        return (node & ~VERIFY_FINISHED) > m->n_ranks;
}
/* Does the output hold what the operation promises? */
int verify_tree_check(struct verify_machine *m, uint32_t rank);

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
                        const struct verify_value *value, bool partial, const int16_t *posted);
int verify_channel_read(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at,
                        struct verify_value *ret_value, bool *ret_partial);
void verify_channel_release(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at,
                            const int16_t *posted);
int verify_channel_check(struct verify_machine *m);
