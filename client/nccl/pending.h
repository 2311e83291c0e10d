/* SPDX-License-Identifier: MIT */
#pragma once
/* Calls on communicators of the host backend that do not block. See pending.c. */
#include <stdbool.h>
#include <stdint.h>

#include "client/nccl/nccl.h"
#include "railmux/railmux.h"

struct transfer_run;

struct pending {
        struct pending *next, *prev;
        struct rmx_request request; /* of who has it busy */
        struct transfer_run *run;   /* NULL: it is one request. Sends and receives that take several; the same */
        const char *what;
        bool busy;       /* under comm_lock, as what follows: a thread waits for it, or looks */
        uint32_t pushed; /* the last of pendings_push that was at it */
        uint32_t n_comms;
        struct ncclComm *comms[]; /* it is of all of these; those that end are taken out */
};

/* Does a call on it return before it is done? Not in a group: its end does. */
bool pending_wanted(const struct ncclComm *comm);
/* To be started. NULL: no memory, and then the call may as well block. */
struct pending *pending_new(const char *what, struct ncclComm *const *comms, uint32_t n_comms);
/* It will not begin. */
void pending_drop(struct pending *pending);
/* What it started with, RMX_OK for a run. RMX_OK: it is under way, and ncclInProgress unless it is over already. Takes
 * it. */
ncclResult_t pending_begin(struct pending *pending, int code);
/* Has one of them sends or receives that are not started yet? Then later ones have to be a run, lest they overtake. */
bool pendings_unstarted(struct ncclComm *const *comms, uint32_t n_comms);
/* RMX_E_BUSY: waits for some that are under way, so that it can be tried again. false: nothing comes free. */
bool pending_make_room(void);

/* Looks after those of a communicator. *ret_code: what the first failed one said, RMX_OK: none has. True while any is
 * under way. */
bool pendings_look(struct ncclComm *comm, int *ret_code);
/* It ends: waits for its calls, or, if they were aborted, forgets them. */
void pendings_end(struct ncclComm *comm, bool aborted);
void pendings_forked(void);
