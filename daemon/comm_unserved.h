/* SPDX-License-Identifier: MIT */
#pragma once
/* Communicators with ranks on GPUs that are served no more since a restart. Loop thread. See comm_unserved.c. */
#include <stdint.h>

struct comm;
struct manager;

/* Its GPUs (a bit each) that are served no more, and whose executors may still reach all ranks' memory. */
uint64_t comm_unserved(const struct comm *comm);
/* Adoption: those with ranks there end. */
void comm_unserved_adopted(struct manager *manager);
/* The executors of these GPUs have ended, or are waited for no longer. Communicators may be freed. */
void comm_unserved_ended(struct manager *manager, uint64_t mask);
/* The predecessor's executors have had the time to come back. */
void comm_unserved_overdue(struct manager *manager);
