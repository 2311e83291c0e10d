/* SPDX-License-Identifier: MIT */
#pragma once
/* Rank processes that do what the test tells them, step by step. */
#include <stdint.h>
#include <sys/types.h>

#define IDLERS_MAX 16u

struct idlers_shared;
struct idlers {
        uint32_t n;
        struct idlers_shared *shared;
        pid_t pid[IDLERS_MAX];
        int command[IDLERS_MAX];
        int answer[IDLERS_MAX];
};

/* Each opens a session, joins one communicator, runs one verified all_reduce and then waits for commands. Calls fail
 * the test. */
void idlers_start(struct idlers *idlers, const char *socket, uint32_t n);
/* One all_reduce of rank i; the answer is its RMX_* code. */
void idlers_call(struct idlers *idlers, uint32_t i);
/* The code, or -1 if there is none in time. */
int idlers_answer(struct idlers *idlers, uint32_t i, uint32_t timeout_ms);
/* All leave; each must end with status 0. */
void idlers_stop(struct idlers *idlers);
void idlers_cleanup(struct idlers *idlers);
