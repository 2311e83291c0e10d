/* SPDX-License-Identifier: MIT */
#pragma once
/* A thread that waits in its group, and so has places of a ring, for as long as a test wants. */
#include <pthread.h>

#include "tests/nccl/pair.h"

struct holder {
        pthread_t thread;
        ncclComm_t comms[2];
        int32_t sum[2];
        uint32_t n;
};

/* It waits with n collectives of rank 0 for the other rank, which has not called them yet. */
void holder_start(struct holder *h, uint32_t n);
/* That one calls them; for any thread. */
ncclResult_t holder_release(struct holder *h);
/* After that: the thread has ended, and so do the communicators. */
void holder_join(struct holder *h);
/* Both. */
void holder_end(struct holder *h);
