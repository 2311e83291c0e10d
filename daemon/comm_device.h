/* SPDX-License-Identifier: MIT */
#pragma once
/* Communicators whose ranks are on GPUs: staging from the pools of several executors. Loop thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct comm;
struct executor_link;
struct manager;

/* A comm that has gone, and executors that have not confirmed it: its staging is not dealt out again before. */
struct comm_leftover {
        struct comm_leftover *next, *prev; /* manager->leftovers */
        uint64_t comm;
        uint64_t mask; /* who has not */
};

/* Takes staging for all ranks. 0, COMM_E_LIMIT or COMM_E_RESOURCE with a text, COMM_E_WAIT. */
int comm_device_place(struct comm *comm, char *text, size_t text_size);
/* Adoption: the staging of one rank is where the predecessor put it. false: it cannot be. */
bool comm_device_adopt(struct comm *comm, uint32_t rank);
/* May executors be told of it now? All of them have to be there, since each needs the others' pools. */
bool comm_device_ready(const struct comm *comm);
/* These executors do not take it yet; they are asked again. */
void comm_device_busy(struct comm *comm, uint64_t mask);
/* The comm is being freed. */
void comm_device_gone(struct comm *comm);
/* What an executor is to answer its ranks with, 0: nothing. *ret_rank: who caused it. */
uint32_t comm_device_code(const struct comm *comm, const struct executor_link *link, int32_t *ret_rank);

/* Comms that wait for executors are tried again; some may fail and be freed. */
void comm_device_retry(struct manager *manager);
/* What has taken too long: executors of a predecessor that have not come back count as dead, and one that does not end
 * a comm is killed, since nobody may be told of the end before. */
void comm_device_overdue(struct manager *manager);
/* The executors, as a mask, whose processes have ended: they confirm nothing any more. */
uint64_t comm_device_dead(const struct manager *manager);

/* The executor's process has ended: its comms fail. Once per process. */
void comm_device_lost(struct executor_link *link, const char *reason);
/* It has failed on all of its executors: those that have to hear of it anew do. */
void comm_device_ended(struct comm *comm);
/* It has sent its inventory: it and the others learn of each other's pools. fresh: another process than before. */
void comm_device_join(struct executor_link *link, bool fresh);
/* Before they are told of it: those that could not learn of each other's pools try again. */
void comm_device_acquaint(const struct comm *comm);
/* It has confirmed COMM_DETACH. */
void comm_device_detached(struct executor_link *link, uint64_t comm);
/* All that it had to be told of what has gone is on its way: what is not cannot be there. */
void comm_device_settle(struct executor_link *link);
/* These (a mask, as in leftovers) reach nothing any more of this comm, 0: of any. */
void comm_device_leftovers(struct manager *manager, uint64_t mask, uint64_t only_comm);
void comm_device_free_leftovers(struct manager *manager);
