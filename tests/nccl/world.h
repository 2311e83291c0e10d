/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Ranks that do the same: as processes, as threads of one process, or all driven by one thread. See world.c. Over
 * several nodes the ranks are dealt out to them in rows, and the threads, or the one thread, are those of a node.
 *
 * A *team* is the ranks that one thread drives: one in the first two ways, all of them (of a node) in the others. A
 * test is a function that every team of a world runs. What it checks it groups in numbered *cases*; a case is wrong if
 * it is for any team.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/nccl/abi.h"
#include "tests/nccl/memory.h"

#define WORLD_RANKS_MAX    8u
#define WORLD_NODES_MAX    4u
#define WORLD_CASES_MAX    (1u << 20)
#define WORLD_IDS          4u
#define WORLD_MESSAGES_MAX 2048u
#define WORLD_SHOWN        6u
#define WORLD_MESSAGE_MAX  320u

enum world_mode {
        MODE_PROCESSES,
        MODE_THREADS,
        MODE_GROUPED, /* one thread, communicators from a group of ncclCommInitRank */
        MODE_ALL,     /* one thread, communicators from ncclCommInitAll */
        MODE_COUNT,
};

struct world_options {
        const char *library;
        enum memory_kind memory;
        bool full;
        uint64_t seed;
        bool verbose, all_messages;
        uint32_t n_sockets; /* 0: one node, whose daemon the environment names */
        const char *socket[WORLD_NODES_MAX];
};

/* What all processes of a world share. */
struct world_shared {
        pthread_barrier_t barrier; /* of all teams */
        struct nccl_id id[WORLD_IDS];
        _Atomic uint32_t stop;       /* a team cannot go on: the others may wait for it in vain */
        _Atomic uint32_t next_death; /* 1 + number of the team that the parent shall kill; 0: none */
        _Atomic uint64_t killed_ns;  /* when it did */
        _Atomic uint32_t arrived;    /* for tests that wait for each other without the barrier */
        _Atomic uint32_t n_messages;
        char messages[WORLD_MESSAGES_MAX][WORLD_MESSAGE_MAX];
        struct {
                _Atomic uint32_t cases, done; /* begun so far; 1 when the team's function has returned */
                _Atomic uint32_t failed;
                char doing[160];
                double figure; /* a team may measure one thing */
        } team[WORLD_RANKS_MAX];
        _Atomic uint8_t wrong[WORLD_CASES_MAX];
};

struct member {
        uint32_t rank, device; /* the device stays when a derived communicator gives another rank */
        nccl_comm comm;
        void *stream;
};

struct team {
        const struct nccl_api *api;
        const struct world_options *options;
        struct world_shared *shared;
        enum world_mode mode;
        const void *argument;
        uint32_t number, n_ranks, n_members;
        bool patient; /* its communicators do not block: calls may be in progress when they return */
        struct member member[WORLD_RANKS_MAX];
};

struct world {
        const char *name;
        enum world_mode mode;
        uint32_t n_ranks;
        uint32_t timeout_ms;
        void (*run)(struct team *team);
        const void *argument;
};

struct world_result {
        uint32_t cases, wrong;
        double figure; /* the largest that a team has measured */
};

const char *world_mode_name(enum world_mode mode);
/* Runs it to its end, in time or not, and prints what was wrong. */
struct world_result world_run(const struct world *world, const struct world_options *options);

/* ---- for the functions that a world runs ------------------------------------------------------------------------- */
/* Begins the next case. It has the same number in all teams. */
void team_case(struct team *team, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Notes what is wrong with the case, unless `good`, which it returns. */
bool team_expect(struct team *team, bool good, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same for a call's result. */
bool team_result(struct team *team, int got, int wanted, const char *call);
/* The same with what the call has to give; if it does not, the other teams need not wait for this one. */
bool team_need(struct team *team, int got, const char *call);
void team_stop(struct team *team);
/* Waits for all teams. */
void team_meet(struct team *team);
/* Does one thread drive all ranks of its node? Then what they call must progress together, in groups. */
static inline bool team_is_single(const struct team *team) {
        return team->mode == MODE_GROUPED || team->mode == MODE_ALL;
}
/* Communicators and streams of all members. False if there was an error, which is noted. */
bool team_comms_new(struct team *team);
bool team_comms_free(struct team *team);
/* Groups: for teams that drive several ranks, since calls for them must progress together. */
bool team_group_start(struct team *team);
bool team_group_end(struct team *team);
/* Until the work on these streams is done; false, noted, if a communicator has failed instead. */
bool team_wait_for(struct team *team, const struct member *members, uint32_t n_members);
static inline bool team_wait(struct team *team) {
        return team_wait_for(team, team->member, team->n_members);
}
