/* SPDX-License-Identifier: MIT */
#pragma once
/* What plane_call() is made of: a function for each message of railmuxd (PROTOCOL.md). Control thread only. Each fills
 * `result` in if it fails and leaves it alone if not; every call may come again. */
#include <stdbool.h>
#include <stdint.h>

#include "executor/dispatch.h"
#include "gpu/plane.h"
#include "proto/executor.pb-c.h"

struct plane_attached;
struct plane_executor;
struct plane_session;

/* ---- plane_call.c: common to all --------------------------------------------------------------------------------- */
void plane_result_set(struct dispatch_result *result, uint32_t code, const char *text);
/* What the plane said: `r` is 0 or -errno, `error` its sentence or "". */
void plane_result_of(struct dispatch_result *result, int r, const char *what, const char *error);
/* NULL, and the result says so: there is no such session. */
struct plane_session *plane_session_of(struct plane_executor *executor, uint64_t id, struct dispatch_result *result);
/* false: it is none that a plane takes. The descriptor stays the caller's. */
bool plane_memory_take(const Railmux__Executor__DeviceMemory *from, int fd, struct plane_memory *ret_memory);

/* ---- plane_call_buffer.c ----------------------------------------------------------------------------------------- */
void plane_call_buffer(struct plane_executor *executor, const Railmux__Executor__BufferImport *m, const int *fds,
                       unsigned int n_fds, struct dispatch_result *result);
void plane_call_buffer_retire(struct plane_executor *executor, const Railmux__Executor__BufferRetire *m);
void plane_call_buffer_reach(struct plane_executor *executor, const Railmux__Executor__BufferReach *m,
                             struct dispatch_result *result);
void plane_call_reach(struct plane_executor *executor, const Railmux__Executor__ReachImport *m, const int *fds,
                      unsigned int n_fds, struct dispatch_result *result);
void plane_call_reach_retire(struct plane_executor *executor, const Railmux__Executor__ReachRetire *m);

/* ---- plane_call_comm.c ------------------------------------------------------------------------------------------- */
/* May the call be carried out now? If not, the plane is making what it lacks, and attention_fd tells. */
bool plane_call_ready(struct plane_executor *executor, const Railmux__Executor__CommAttach *m);
void plane_call_comm(struct plane_executor *executor, const Railmux__Executor__CommAttach *m, const int *fds,
                     unsigned int n_fds, struct dispatch_result *result);
void plane_call_abort(struct plane_executor *executor, const Railmux__Executor__CommAbort *m);
void plane_call_detach(struct plane_executor *executor, const Railmux__Executor__CommDetach *m);
void plane_call_hold(struct plane_executor *executor, const Railmux__Executor__CommHold *m,
                     struct dispatch_result *result);
void plane_call_move(struct plane_executor *executor, const Railmux__Executor__CommAttach *m,
                     struct dispatch_result *result);
void plane_call_release(struct plane_executor *executor, const Railmux__Executor__CommRelease *m);
void plane_call_leave(struct plane_executor *executor, const Railmux__Executor__RankLeave *m,
                      struct dispatch_result *result);
/* The process of these ranks has ended: the comm ends, now or a little later (plane_comms_ended). */
void plane_comm_lost(struct plane_executor *executor, struct plane_attached *comm, uint64_t session);
