/* SPDX-License-Identifier: MIT */
#pragma once
/* Registrations and memory of ncclMemAlloc. See memory.c. */

struct ncclComm;
struct session;

/* A communicator is served by the session. */
void memory_comm_new(struct session *session);
/* It goes, and what it has registered; its session may be NULL. */
void memory_comm_gone(const struct ncclComm *comm);
/* In the child of a fork, which has only one thread: what was the parent's is forgotten. */
void memory_forked(void);
