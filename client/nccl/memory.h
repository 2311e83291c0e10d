/* SPDX-License-Identifier: MIT */
#pragma once
/* Registrations and memory of ncclMemAlloc. See memory.c. */

/* In the child of a fork, which has only one thread: what was the parent's is forgotten. */
void memory_forked(void);
