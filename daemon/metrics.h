/* SPDX-License-Identifier: MIT */
#pragma once
/* Counters and gauges for monitoring. Rows of one name stand together, as Prometheus' text format wants them. */
struct control_answer;
struct manager;

void metrics_rows(struct control_answer *answer, struct manager *manager);
