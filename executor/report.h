/* SPDX-License-Identifier: MIT */
#pragma once
/* What the executor tells railmuxd of itself: inventory, statistics, failures, stalls. Control thread. */
#include "proto/executor.pb-c.h"

struct executor;

/* Sends one message; 0, or non-zero to stop. */
typedef int (*report_send)(void *userdata, const Railmux__Executor__Message *message);

int report_inventory(struct executor *executor, report_send send, void *userdata);
int report_statistics(struct executor *executor, uint64_t id, report_send send, void *userdata);
int report_failures(struct executor *executor, report_send send,
                    void *userdata); /* comms that failed since last time */
/* Unmaps retired buffers that have become free, and says so where railmuxd asked for it. Whether that is heard does not
 * matter: a railmuxd that comes back asks again. */
void report_released(struct executor *executor, report_send send, void *userdata);
void report_stalls_again(struct executor *executor);                            /* railmuxd may have begun anew */
int report_stalls(struct executor *executor, report_send send, void *userdata); /* each stalled sequence once */
/* Processor time of this process. */
uint64_t report_cpu_ns(void);
