/* SPDX-License-Identifier: MIT */
#pragma once
/* Calls on communicators of the host backend that do not block. See pending.c. */
#include <stdbool.h>
#include <stdint.h>

#include "client/nccl/nccl.h"
#include "railmux/railmux.h"

struct call;
struct pending;
struct run;

/* Does a call on it return before it is done? Not in a group: its end does. */
bool pending_wanted(const struct ncclComm *comm);
/* Has it calls that are not started yet? Then later ones have to be runs, lest they overtake. */
bool pendings_unstarted(const struct ncclComm *comm);
/* May calls be begun? Not behind some that were never started. *ret_behind: pendings_unstarted(). */
ncclResult_t pending_check(struct ncclComm *comm, const char *what, bool *ret_behind);
/* The same for a communicator that blocks, and so has none that are not started. Takes no lock where all is well. */
ncclResult_t pending_refuse(struct ncclComm *comm, const char *what);
/* Something of a call was done, and the rest never will be, for this reason (RMX_*). */
void pending_tear(struct ncclComm *comm, int code);

/* Of a run, which it takes in any case, or of a request that is to be started by pending_start. NULL: no memory. */
struct pending *pending_new(const char *what, struct ncclComm *comm, struct run *run);
/* It will not begin. NULL is fine. Returns NULL. */
struct pending *pending_free(struct pending *pending);
/* Has `start` start the request. While there is no room it waits, for a while, for others to end. ncclInProgress,
 * unless it is over already; an error: it has not begun. Takes it. */
ncclResult_t pending_start(struct pending *pending, int (*start)(const void *userdata, struct rmx_request *request),
                           const void *userdata);
/* Begins the runs, each of another communicator, and takes them. What goes wrong is told by their communicators. */
ncclResult_t pendings_begin(struct pending **pendings, uint32_t n);

/* Is anything under way, or to be started? */
bool pendings_any(void);
/* What has ended so far, or begun, here or in calls that wait. */
uint64_t pendings_moves(void);
/* There was no room: waits for any of those that are under way, so that it can be tried again, unless that is so since
 * `before`. patient: longer, since there is something to lose. False: nothing comes free. */
bool pendings_make_room(uint64_t before, bool patient);

/* Looks after those of a communicator, and starts what can be started of any. *ret_code: what the first failed one
 * said, RMX_OK: none has. True while any is under way. */
bool pendings_look(struct ncclComm *comm, int *ret_code);
/* It ends: waits for its calls, or, if they were aborted, or are meanwhile, forgets them. Those of others go on. */
void pendings_end(struct ncclComm *comm, bool aborted);
void pendings_forked(void);

/* Of starter.c, under comm_lock: is something left to be started? Starts what there is room for; gives up comm_lock
 * meanwhile, and may wait for the daemon. */
bool pendings_any_unstarted(void);
void pendings_push(void);
