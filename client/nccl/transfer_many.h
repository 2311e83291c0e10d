/* SPDX-License-Identifier: MIT */
#pragma once
/* Sends and receives of a group that are more than librailmux takes in one request: on their way, by and by. One thread
 * at a time, but for transfer_run_started. See transfer_many.c. */
#include <stdbool.h>
#include <stdint.h>

#include "client/nccl/nccl.h"

struct transfer_run;
struct transfers;

enum transfer_start {
        TRANSFER_START_NONE,      /* only looks at what is under way */
        TRANSFER_START,           /* no room, and nothing of its own under way: that is an error */
        TRANSFER_START_PATIENTLY, /* others will make room */
};

/* Takes the transfers, at least one and sorted by communicator. grouped: librailmux's group is open and has the
 * collectives, which come first; it is closed in any case. An error: nothing of the group happens. */
ncclResult_t transfer_run_new(struct transfers *transfers, const char *what, bool grouped,
                              struct transfer_run **ret_run);
/* Starts what there is room for, and looks at what is under way, for so long unless something ends. True: it is over,
 * and *ret_code (RMX_*) is the first thing that went wrong. */
bool transfer_run_step(struct transfer_run *run, enum transfer_start start, uint32_t wait_ms, int *ret_code);
/* Nothing is left to be started. */
bool transfer_run_started(const struct transfer_run *run);
/* Nothing is under way, so that a step has nothing to wait for. */
bool transfer_run_idle(const struct transfer_run *run);
/* What is not started never will be, and that is an error; communicators may go. */
void transfer_run_stop(struct transfer_run *run);
/* When it is over, or its communicators are. NULL is fine. Returns NULL. */
struct transfer_run *transfer_run_free(struct transfer_run *run);
