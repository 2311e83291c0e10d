/* SPDX-License-Identifier: MIT */
#pragma once
/* Rank processes that run verified collectives without end and note the outcome of every sequence. See load.c. */
#include <railmux/railmux.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LOAD_RANKS_MAX 16u
#define LOAD_SEQUENCES (1u << 23)
#define LOAD_CREATORS  2u /* processes that create communicators on demand */
#define LOAD_ERROR_MAX 240u

/* Outcomes: 0 not completed, else 1 + RMX_* code. */
struct load_rank {
        _Alignas(64) _Atomic uint32_t issued; /* last sequence handed to the library */
        _Atomic uint32_t completed;           /* every sequence up to here has its outcome noted */
        _Atomic uint64_t longest_gap_ns;      /* between completions, since the parent last set it to 0 */
        _Atomic uint64_t wrong;               /* elements */
        char error[LOAD_ERROR_MAX];           /* why the rank ended early, or what was wrong first */
};

struct load_shared {
        _Atomic uint32_t stop;       /* parent: please end */
        _Atomic uint32_t last_batch; /* rank 0's answer: all end before this batch; 0: go on */
        struct rmx_id id;
        _Alignas(64) struct {
                struct rmx_id id; /* of the next communicator to create */
                _Atomic uint32_t issued[LOAD_CREATORS];
                char error[LOAD_CREATORS][LOAD_ERROR_MAX];
        } creation;
        struct load_rank rank[LOAD_RANKS_MAX];
        uint8_t outcome[LOAD_RANKS_MAX][LOAD_SEQUENCES];
};

struct load {
        uint32_t n_ranks;
        struct load_shared *shared;
        pid_t rank_pid[LOAD_RANKS_MAX];
        pid_t creator_pid[LOAD_CREATORS];
        int command[LOAD_CREATORS]; /* pipe: one byte creates one communicator, end of file ends */
        int answer[LOAD_CREATORS];  /* pipe: one byte, the RMX_* code */
};

/* Calls fail the running test. */
void load_start(struct load *load, const char *socket, uint32_t n_ranks);
/* Every rank completes `more` sequences beyond the furthest one of now. */
void load_await_progress(struct load *load, uint32_t more, uint32_t timeout_ms);
uint32_t load_completed_max(const struct load *load);
uint32_t load_issued_max(const struct load *load);
void load_reset_gap(struct load *load);
uint64_t load_longest_gap_ns(const struct load *load); /* over the ranks, the gap that lasts included */
/* Asks both creators for a communicator, and waits until they have called for it. */
void load_create_begin(struct load *load);
/* Has either answered? Does not block. */
bool load_create_done(struct load *load);
/* Waits for both answers, which must be RMX_OK. */
void load_create_end(struct load *load, uint32_t timeout_ms);
/* All processes must still be the ones that were started. */
void load_assert_alive(const struct load *load);
/* Ends the load; every process must end with status 0. */
void load_stop(struct load *load);
/* Frees, after killing what a failed test has left. */
void load_cleanup(struct load *load);
