/* SPDX-License-Identifier: MIT */
#pragma once
/* The calling thread's group. See group.c. */
#include <stdbool.h>

#include "client/nccl/nccl.h"

struct call;
struct fallback;
struct job;
struct transfer;

/* Keeps the first error of a group; returns result. Every call that may stand in a group ends with it. */
ncclResult_t group_note(ncclResult_t result);
/* Is a group open? Then the job waits for its end. */
bool group_add(struct job *job);
/* A call on comm comes, which has been entered: opens librailmux's group, and keeps the communicator until the end. */
ncclResult_t group_enter(struct ncclComm *comm);
bool group_active(void);
/* Is a group open? Then the communicator, which has been entered, is finalized at its end, behind what it issues. */
bool group_finalize(struct ncclComm *comm, ncclResult_t *ret_result);
/* A call that librailmux's group has just taken, on a communicator of the host backend. */
ncclResult_t group_call(const char *what, const struct call *call);
/* A send or receive on the host backend, in a group. */
ncclResult_t group_transfer(const char *what, const struct transfer *transfer);
/* The same of one to or from its own rank: a group must have as many of the one as of the other. */
ncclResult_t group_self(struct ncclComm *comm, bool sends);
/* As group_enter, for a call to another library. */
ncclResult_t group_enter_fallback(const struct fallback *fallback);
