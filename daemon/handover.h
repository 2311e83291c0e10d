/* SPDX-License-Identifier: MIT */
#pragma once
/* Planned restarts of GPUs' executors: their communicators stand still meanwhile. Loop thread. See handover.c. */
#include "proto/executor.pb-c.h"
#include <stdbool.h>
#include <stdint.h>

struct comm;
struct executor_link;
struct manager;
struct session_ring;

enum handover_state {
        HANDOVER_NONE,
        HANDOVER_HOLDING, /* executors bring it to a stand */
        HANDOVER_HANDED,  /* it stands still everywhere; executors are being replaced */
};

struct handover {
        enum handover_state state;
        uint32_t upto; /* HOLDING: what the farthest rank has begun; HANDED: what all have finished */
        bool has_upto;
        uint64_t away;  /* executors that have ended since, or will */
        uint64_t asked; /* executors that were told to begin anew; reset when one ends */
        uint64_t moved; /* ... and have done so */
};

/* Asks an executor to end as planned. */
void handover_ask(struct executor_link *link);
/* An executor has said that it is going to end. */
void handover_begin(struct executor_link *link);
void handover_level(struct executor_link *link, const Railmux__Executor__CommLevel *level);
/* A rank of it is about to leave: the others get as far as it was. */
void handover_left(struct comm *comm);
/* Something has changed: communicators that may be held, executors that may end. */
void handover_check(struct manager *manager);
/* An executor that holds this communicator still has connected: is it one that is going to end, and the communicator
 * its successor's? */
bool handover_leaves(struct comm *comm, struct executor_link *link);
/* A process has said HELLO in the executor's place. */
void handover_arrived(struct executor_link *link);
/* Adoption: the communicator stood still when the predecessor ended. Its executors are known already. */
void handover_adopt(struct comm *comm);
/* An executor has ended: does the communicator outlive it? */
bool handover_survives(struct comm *comm, const struct executor_link *link);
/* An executor is back or new, and has said what it holds. */
void handover_join(struct executor_link *link);
/* Tries to go on with what was handed over. */
void handover_retry(struct manager *manager);
/* An executor has begun anew with this communicator, or attached it for the first time. */
void handover_moved(struct comm *comm, uint64_t mask);
/* It has failed or is freed: nothing stands still any more. */
void handover_forget(struct comm *comm);
/* Executors that were to come back, and have not. */
void handover_overdue(struct manager *manager);
/* Does any communicator stand still for an executor that is away? */
bool handover_any(const struct manager *manager);
/* Its requests name communicators that the new executor does not have yet. */
bool handover_blocks(const struct session_ring *ring);
