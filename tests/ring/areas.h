/* SPDX-License-Identifier: MIT */
#pragma once
/* The two areas of a ring as the processes have them: each side with its own mappings of two sealed memfds. */
#include "ring/ring.h"

struct areas {
        struct ring_layout layout;
        int client_fd, executor_fd, executor_readonly_fd;
        void *client_rw;         /* the client's */
        const void *executor_ro; /* the client's, of a descriptor that was opened read-only */
        const void *client_ro;   /* the executor's */
        void *executor_rw;       /* the executor's */
};

void areas_init(struct areas *a, uint32_t depth);
void areas_deinit(struct areas *a);
_Atomic uint32_t *areas_waiting(const struct areas *a, uint32_t sequence);
_Atomic uint64_t *areas_completion(const struct areas *a, uint32_t sequence);
struct ring_executor_header *areas_header(const struct areas *a);
/* Until a thread sleeps for this sequence in the kernel. */
void areas_await_sleeper(const struct areas *a, uint32_t sequence, int tid);
struct ring_request areas_request(uint32_t seed);
