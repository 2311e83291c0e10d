/* SPDX-License-Identifier: MIT */
#pragma once
/* What the interface promises beyond right results, as functions that worlds run. Each array ends with no name. */
#include <stdbool.h>

#include "tests/nccl/exchange.h"
#include "tests/nccl/world.h"

#define IN_PROCESSES  (1u << MODE_PROCESSES)
#define IN_THREADS    (1u << MODE_THREADS)
#define IN_ONE_THREAD (1u << MODE_GROUPED)
#define IN_ALL_WAYS   (IN_PROCESSES | IN_THREADS | IN_ONE_THREAD)

struct check {
        const char *name;
        uint32_t n_ranks, modes;
        void (*run)(struct team *team);
};

extern const struct check checks_group[];    /* checks_group.c */
extern const struct check checks_comm[];     /* checks_comm.c */
extern const struct check checks_config[];   /* checks_config.c */
extern const struct check checks_argument[]; /* checks_argument.c */
extern const struct check checks_memory[];   /* checks_memory.c */
extern const struct check checks_redop[];    /* checks_redop.c */
extern const struct check checks_thread[];   /* checks_thread.c */
extern const struct check checks_failure[];  /* checks_failure.c */

/* How many cases of each operation a world of checks_call takes: its argument. */
struct call_plan {
        const char *operation; /* with which names begin; NULL: all */
        uint32_t per_op;       /* 0: all combinations with all sizes */
        size_t large;          /* bytes; 0: small ones */
};
void checks_call_run(struct team *team);

/* An AllReduce, and what else shows that a communicator works, as the team's current case. */
bool check_comm_works(struct team *team, uint32_t n_ranks, const struct member *members, uint32_t n_members,
                      uint64_t iteration);
bool check_team_works(struct team *team, uint64_t iteration);
