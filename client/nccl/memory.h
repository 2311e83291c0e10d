/* SPDX-License-Identifier: MIT */
#pragma once
/* Registrations and memory of ncclMemAlloc. See memory.c. */

struct session;

/* A communicator is served by the session, which may be NULL, or has gone. */
void memory_comm_new(struct session *session);
void memory_comm_gone(struct session *session);
/* In the child of a fork, which has only one thread: what was the parent's is forgotten. */
void memory_forked(void);
