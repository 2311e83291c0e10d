/* SPDX-License-Identifier: MIT */
#pragma once
/* Sends and receives on a GPU that wait for their other half. Control thread only. See plane_pairs.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "executor/report.h"

struct plane_attached;
struct plane_executor;

/* The oldest unfinished request of a pair and direction. */
struct plane_pair {
        uint32_t rank; /* here */
        uint32_t peer;
        bool sends;
        uint32_t sequence; /* of the pair */
        uint32_t rung;     /* the youngest that is begun */
        uint64_t since_ns;
        bool told; /* as stalled */
};

/* Asks the plane how far the pairs are. */
void plane_pairs_look(struct plane_executor *executor);
void plane_pairs_free(struct plane_attached *comm);

#define PLANE_PAIRS_ROWS 16u /* of one communicator in statistics: those that wait longest */
/* Rows for statistics, in memory of the caller. */
void plane_pairs_rows(const struct plane_attached *comm, Railmux__Executor__PairWait rows[PLANE_PAIRS_ROWS],
                      Railmux__Executor__PairWait *pointers[PLANE_PAIRS_ROWS], size_t *ret_n);
/* Tells railmuxd of those that wait too long, once each. */
int plane_pairs_stalls(struct plane_executor *executor, struct plane_attached *comm, report_send send, void *userdata);
