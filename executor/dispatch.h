/* SPDX-License-Identifier: MIT */
#pragma once
/* What each message of railmuxd does to the executor's tables. */
#include <stdbool.h>
#include <stdint.h>

#include "proto/executor.pb-c.h"

struct executor;

struct dispatch_result {
        uint32_t code; /* RMX_* */
        uint32_t epoch;
        uint32_t lost;
        bool in_use, has_rung;
        uint32_t rung; /* RANK_LEAVE: of a rank that is here */
        char message[256];
};

/* Carries one call out under the write lock, with all that prepare_call() could have made beforehand, and afterwards,
 * without it, unmaps what is gone: the answer may say that it is. fds are taken
 * over where they are needed and set to -1. */
void dispatch_call(struct executor *executor, const Railmux__Executor__Message *message, int *fds, unsigned int n_fds,
                   struct dispatch_result *ret_result);
