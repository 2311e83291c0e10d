/* SPDX-License-Identifier: MIT */
#pragma once
/* A parent and the rank processes it forks: memory they share, a barrier among the ranks, and an end for all if one
 * fails. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CREW_RANKS_MAX  64u
#define CREW_ERROR_MAX  400u
#define CREW_EXIT_ERROR 3 /* of a rank that left through crew_fail */

struct crew_shared {
        pthread_barrier_t barrier;
        char error[CREW_RANKS_MAX][CREW_ERROR_MAX]; /* written by the rank, read by the parent after its death */
};

struct crew {
        uint32_t n;
        pid_t parent;
        struct crew_shared *shared;
        void *data; /* zeroed memory that parent and ranks share */
        size_t data_bytes;
        pid_t pid[CREW_RANKS_MAX]; /* parent only; 0: not running */
};

typedef void (*crew_rank_fn)(struct crew *crew, uint32_t rank, void *argument);

/* 0 or negative errno. */
int crew_init(struct crew *crew, uint32_t n, size_t data_bytes);
void crew_deinit(struct crew *crew);
/* Forks the ranks; each runs `function` and ends with status 0 when it returns. Waits for all. The first one that fails
 * or is killed ends the others. 0 if all succeeded, 1 with a sentence in ret_error if not, or negative errno. */
int crew_run(struct crew *crew, crew_rank_fn function, void *argument, char ret_error[CREW_ERROR_MAX]);
/* In a rank: waits for all ranks. */
void crew_barrier(struct crew *crew);
/* In a rank: leaves the reason for the parent and ends this process. */
void crew_fail(struct crew *crew, uint32_t rank, const char *format, ...)
        __attribute__((format(printf, 3, 4), noreturn));
