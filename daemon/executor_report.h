/* SPDX-License-Identifier: MIT */
#pragma once
/* What executors tell for operators: kept in the objects until the next report. */
#include "proto/executor.pb-c.h"
#include <stdbool.h>
#include <stdint.h>

#define COMM_PAIR_TEXT 96u

struct comm;
struct comm_pair_wait;
struct executor_link;

void executor_report_statistics(struct executor_link *link, const Railmux__Executor__Statistics *statistics);
void executor_report_stall(struct executor_link *link, const Railmux__Executor__Stall *stall);

/* Does it wait for a rank longer than the stall bound: in a sequence, in an exchange, or in a send or receive? */
bool executor_report_stalled(const struct comm *comm);
/* Has the peer called its half of this send or receive, as far as executors have told? */
bool executor_report_pair_called(const struct comm *comm, const struct comm_pair_wait *wait);
/* "rank 2 has waited in recv 5 from rank 3". */
void executor_report_pair_text(const struct comm *comm, const struct comm_pair_wait *wait, char text[COMM_PAIR_TEXT]);
