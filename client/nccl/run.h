/* SPDX-License-Identifier: MIT */
#pragma once
/* What is to be started on one communicator of the host backend, by and by. One thread at a time, but for
 * run_is_started and run_is_torn. See run.c. */
#include <stdbool.h>
#include <stdint.h>

#include "client/nccl/nccl.h"

struct calls;
struct run;
struct transfers;

/* Takes the communicator's calls, and copies its transfers; `calls` may be NULL. */
ncclResult_t run_new(struct ncclComm *comm, const char *what, struct calls *calls, const struct transfers *transfers,
                     struct run **ret_run);
/* When it is over, or so is its communicator; before that is freed. NULL is fine. Returns NULL. */
struct run *run_free(struct run *run);

/* Is there a next request, and may it start before another one has ended? */
bool run_may_push(const struct run *run);
/* Then starts it, if there is room. True: it did. */
bool run_push(struct run *run);
/* Looks at what is under way, for so long unless something ends. True: the run is over, and *ret_code (RMX_*) is the
 * first thing that went wrong. Then what was not started never is. */
bool run_look(struct run *run, uint32_t wait_ms, int *ret_code);
/* It was refused, and nothing will make room: that is its error. False: it was not. */
bool run_give_up(struct run *run);
/* What is not started never will be, for this reason (RMX_*). */
void run_stop(struct run *run, int code, const char *text);

/* Nothing is left to be started. */
bool run_is_started(const struct run *run);
/* Nothing is under way, so that there is nothing to wait for. */
bool run_is_idle(const struct run *run);
/* Something of it was not started and never will be. */
bool run_is_torn(const struct run *run);
/* The sentence that goes with its code. */
const char *run_text(const struct run *run);
