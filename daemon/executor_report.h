/* SPDX-License-Identifier: MIT */
#pragma once
/* What executors tell for operators: kept in the objects until the next report. */
#include "proto/executor.pb-c.h"

struct executor_link;

void executor_report_statistics(struct executor_link *link, const Railmux__Executor__Statistics *statistics);
void executor_report_stall(struct executor_link *link, const Railmux__Executor__Stall *stall);
