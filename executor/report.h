/* SPDX-License-Identifier: MIT */
#pragma once
/* What the executor tells railmuxd of itself: inventory, statistics, failures, stalls. Control thread. */
#include "proto/executor.pb-c.h"

struct executor;

/* Sends one message; 0, or non-zero to stop. */
typedef int (*report_send)(void *userdata, const Railmux__Executor__Message *message);

/* Rows of statistics, some in each message: each has up to 128 numbers. */
#define REPORT_ROWS 48u
struct report_rows {
        report_send send;
        void *userdata;
        uint64_t id; /* of the question */
        int r;       /* of a send that has failed */
        size_t n;    /* in the message that is next */
        Railmux__Executor__CommStatistics row[REPORT_ROWS], *pointer[REPORT_ROWS];
};
/* One more row, number n - 1 of its message, where what it points to stays until n is smaller. NULL: r says why. */
Railmux__Executor__CommStatistics *report_row(struct report_rows *rows);
/* There are no more. As report_send. */
int report_rows_end(struct report_rows *rows, Railmux__Executor__Counters *counters);

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
