/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Plans over nodes as kernels run them. C and device code.
 *
 * What a step of such a plan does depends on where the ranks are, and plan_step() says it (plan/plan.h). Kernels do not
 * compute it: the control thread asks plan_step() once for each step of each rank that is on the GPU, and writes what
 * it says into a table (gpu/hip/programs.c). So the steps that kernels execute are those that the verifier has
 * executed, and a schedule that is new needs no line of device code.
 *
 * A plan has a row of entries: a program for each rank here (of a rooted operation, for each root), and behind them the
 * steps that these name. The steps of a part do not depend on which part it is.
 */
#include <stdint.h>

#define PROGRAM_PHASES  4u
#define PROGRAM_SOURCES 64u
#define PROGRAM_OWN     0xffu /* in place of a rank: the own input */

/* Which entries are a plan's; beside the plan. */
struct program_row {
        uint32_t first; /* 0: the plan has none */
        uint32_t roots; /* programs of each of them */
        uint64_t here;  /* ranks that there are programs for, a bit each */
};

/* Where its steps are. */
struct program_phases {
        uint16_t first[PROGRAM_PHASES]; /* step of each phase, counted from the row's first entry */
        uint8_t n[PROGRAM_PHASES];      /* steps of each part; 0: the phase is not this rank's */
};

/* What one rank does. */
struct program {
        struct program_phases phases;
        uint32_t zero;
        uint64_t hear[PROGRAM_PHASES]; /* other ranks that it takes chunks from, a bit each */
        uint64_t tell[PROGRAM_PHASES]; /* other ranks that it sends some to */
        uint64_t pad;
};

enum program_flag {
        PROGRAM_INPUT = 1,      /* the own input is a source, */
        PROGRAM_OUTPUT = 2,     /*   the own output gets the result */
        PROGRAM_PARTIAL_IN = 4, /* as in plan_step */
        PROGRAM_PARTIAL_OUT = 8,
        PROGRAM_FINISH = 16,
        PROGRAM_LISTED = 32, /* sources are not combined in the order of ranks, the input's being its own, but: */
};

struct program_work {
        uint64_t targets; /* ranks that get a chunk, a bit each */
        uint64_t chunks;  /* ranks of which one is taken, a bit each */
        uint8_t index;    /* of input, output and length */
        uint8_t flags;
        uint16_t zero;
        uint32_t pad;
};

struct program_step {
        struct program_work work;
        uint8_t source[PROGRAM_SOURCES]; /* in the order in which they are combined: a rank, or PROGRAM_OWN */
};

union program_entry {
        struct program program;
        struct program_step step;
};

#if defined(__cplusplus)
static_assert(sizeof(struct program) == sizeof(struct program_step), "entries are alike");
#else
_Static_assert(sizeof(struct program) == sizeof(struct program_step), "entries are alike");
#endif
