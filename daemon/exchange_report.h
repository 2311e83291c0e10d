/* SPDX-License-Identifier: MIT */
#pragma once
/* How far ranks are with requests that their own kernels exchange, and who waits for whom. Loop thread. See
 * exchange_report.c. */
#include <stdbool.h>
#include <stdint.h>

#include "proto/executor.pb-c.h"

struct comm;
struct executor_link;

struct exchange_wait {
        uint32_t operation;
        uint32_t number;  /* of the request, among those that the communicator's ranks have exchanged */
        uint64_t missing; /* bit per rank that has not begun it */
        bool left;        /* all of those have left the communicator, so it will never end */
        uint64_t since_ns;
};

/* Takes over what an executor says of its ranks. */
void exchange_report(const struct executor_link *link, const Railmux__Executor__CommStatistics *from,
                     struct comm *comm);
/* Does the communicator wait, as far as is known? */
bool exchange_waits(const struct comm *comm, struct exchange_wait *ret_wait);
#define EXCHANGE_WAIT_TEXT 48u
/* "exchange 17 (all_reduce)". */
void exchange_wait_text(const struct exchange_wait *wait, char text[EXCHANGE_WAIT_TEXT]);
/* Requests that all its ranks have begun. */
uint32_t exchange_calls(const struct comm *comm);
/* A rank has not gone on for the stall bound: whether it waits is to be asked of all executors. False: that is known.
 */
bool exchange_stalls(struct comm *comm);
/* They have answered. */
void exchange_stall_answered(struct comm *comm);
