/* SPDX-License-Identifier: MIT */
#pragma once
/* How far ranks are with requests that their own kernels exchange. Control thread only. See plane_exchanges.c. */
#include <stddef.h>
#include <stdint.h>

#include "executor/report.h"
#include "gpu/plane.h"

struct plane_attached;
struct plane_executor;

/* What a session's places (gpu/plane.h) said when they were last looked at. */
struct plane_exchanges {
        struct {
                uint32_t handle, calls, operation;
                bool differs;      /* that others have called something else has been said */
                bool waits, sends; /* in a transfer, for this rank: */
                uint32_t peer, turn;
                uint64_t since_ns; /* when the last call was first seen */
                uint64_t tell_ns;  /* when railmuxd is told that it does not go on, */
                uint64_t again_ns; /* and how much later once more */
        } place[PLANE_EXCHANGED];
};

/* Looks at the words of all sessions. Comms whose ranks called different things fail. */
void plane_exchanges_look(struct plane_executor *executor);

/* Transfers that have waited for long, as the plane reports those that it carries out itself. */
uint32_t plane_exchanges_pairs(const struct plane_executor *executor, struct plane_pair_report *ret_reports,
                               uint32_t capacity);

#define PLANE_EXCHANGES_ROWS 8u /* of one communicator: no exchange has more ranks */
/* Rows for statistics, in memory of the caller. */
void plane_exchanges_rows(struct plane_executor *executor, const struct plane_attached *comm,
                          Railmux__Executor__Exchanged rows[PLANE_EXCHANGES_ROWS],
                          Railmux__Executor__Exchanged *pointers[PLANE_EXCHANGES_ROWS], size_t *ret_n);
/* Tells railmuxd of ranks that have begun nothing for too long. */
int plane_exchanges_stalls(struct plane_executor *executor, const struct plane_attached *comm, report_send send,
                           void *userdata);
/* railmuxd may have begun anew. */
void plane_exchanges_stalls_again(struct plane_executor *executor);
