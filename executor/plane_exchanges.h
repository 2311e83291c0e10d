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
                bool told;         /* railmuxd knows of a last call that does not go on */
                uint64_t since_ns; /* when it was first seen */
        } place[PLANE_EXCHANGED];
};

/* Looks at the words of all sessions. */
void plane_exchanges_look(struct plane_executor *executor);

#define PLANE_EXCHANGES_ROWS 8u /* of one communicator: no exchange has more ranks */
/* Rows for statistics, in memory of the caller. */
void plane_exchanges_rows(struct plane_executor *executor, const struct plane_attached *comm,
                          Railmux__Executor__Exchanged rows[PLANE_EXCHANGES_ROWS],
                          Railmux__Executor__Exchanged *pointers[PLANE_EXCHANGES_ROWS], size_t *ret_n);
/* Tells railmuxd of ranks that have begun nothing for too long, once each time. */
int plane_exchanges_stalls(struct plane_executor *executor, const struct plane_attached *comm, report_send send,
                           void *userdata);
/* railmuxd may have begun anew. */
void plane_exchanges_stalls_again(struct plane_executor *executor);
