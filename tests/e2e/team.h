/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Rank processes, clients of one node or dealt out to several, that follow a script of the test and note in shared
 * memory what they meet. Calls of the parent fail the running cmocka test. See team.c.
 */
#include <pthread.h>
#include <railmux/railmux.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/e2e/node.h"

#define TEAM_RANKS_MAX 8u
#define TEAM_IDS       8u
#define TEAM_ALL       UINT32_MAX

/* What a rank has met. Read by the parent when the rank has ended; `step` at any time. */
struct team_notes {
        _Atomic uint32_t step;       /* how far it is, as the script counts */
        _Atomic uint64_t longest_ns; /* between two steps; the parent may set it to 0 at any time */
        int code;                    /* of team_note */
        int32_t failed_rank;
        uint64_t at_ns;
        char text[256];  /* what the library said */
        int next_code;   /* of one more call, if the script makes it */
        int sticky;      /* rmx_comm_error */
        char error[256]; /* why the rank gave the script up */
};

struct team_shared {
        pthread_barrier_t barrier; /* of all ranks */
        struct rmx_id id[TEAM_IDS];
        struct rmx_id given; /* by the test to the script */
        _Atomic uint32_t go; /* by whom and for what, the script says */
        uint32_t kind;       /* of the trial: for the script */
        uint32_t subject;    /* the rank that it is about */
        uint32_t other;      /* another one, if it is about two; or a set of others (bit r: rank r) */
        const void *data;    /* of the test's, made before team_start */
        struct team_notes notes[TEAM_RANKS_MAX];
};

struct team {
        struct team_shared *shared; /* the test may set kind and subject before team_start */
        const struct node *nodes;
        uint32_t n_nodes, n_ranks;
        pid_t pid[TEAM_RANKS_MAX]; /* 0: has ended */
};

/* A rank, in its own process. */
struct team_rank {
        struct team_shared *shared;
        struct team_notes *notes; /* its own */
        uint32_t rank, n_ranks;
        uint64_t random;
        struct rmx_session *session;
};

typedef void team_script(struct team_rank *rank);

/* ---- the parent ---- */
/* Ranks are dealt out to the nodes in rows, as railmux-perf does. */
void team_init(struct team *team, const struct node *nodes, uint32_t n_nodes, uint32_t n_ranks);
uint32_t team_node(const struct team *team, uint32_t rank);
/* Each rank opens its session, rank 0 makes the ids, and when all have come so far the script begins. The session is
 * closed behind it. May be called again when all have ended. */
void team_start(struct team *team, team_script *script);
/* Waits until the ranks of the set (bit r: rank r) have come to the step. */
void team_await_step(struct team *team, uint32_t step, uint32_t ranks, uint32_t timeout_ms);
/* Those of a node. */
uint32_t team_ranks_of(const struct team *team, uint32_t node);
/* SIGKILL. */
void team_kill(struct team *team, uint32_t rank);
/* Waits for all ranks; each must have followed its script to the end. what: the trial, for messages. */
void team_end(struct team *team, const char *what);
/* Both, for a script that goes to its end by itself; kind is for it. */
void team_run(struct team *team, team_script *script, uint32_t kind, const char *what);
/* Frees, after killing what a failed test has left. */
void team_cleanup(struct team *team);

/* ---- the scripts ---- */
/* Ends the process if the code is not RMX_OK. */
void team_must(struct team_rank *rank, int code, const char *what);
/* The same for what a script has found itself. */
void team_wrong(struct team_rank *rank, const char *what) __attribute__((noreturn));
/* Memory of rmx_mem_alloc. */
void *team_memory(struct team_rank *rank, size_t bytes);
/* All ranks, with the id of that number. */
struct rmx_comm *team_join(struct team_rank *rank, uint32_t id);
/* Some calls of all ranks of a comm, with results that show how many they are and who is who. */
void team_use(struct team_rank *rank, struct rmx_comm *comm, uint32_t salt);
void team_step(struct team_rank *rank);
/* Notes the code, rmx_last_error, and of a comm (not NULL) what it says of itself; the time is now. */
void team_note(struct team_rank *rank, int code, struct rmx_comm *comm);
/* Waits until shared->go is `value` at least. */
void team_await_go(struct team_rank *rank, uint32_t value);
