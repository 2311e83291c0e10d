/* SPDX-License-Identifier: MIT */
#pragma once
/* One request ring of one session as the executor serves it: latch, validate, hand to the rank; complete. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "ring/ring.h"

struct buffer;
struct comm_rank;
struct executor;
struct session;

/* A latched request. Lives in the slot of its ring line until its status is published. */
struct request {
        struct bell *bell;
        struct request *next; /* in its rank's queue; guarded by the comm's mutex */
        struct buffer *in_buffer;
        struct buffer *out_buffer;
        uint32_t ring_sequence;
        uint32_t sequence; /* of the comm */
        uint32_t operation;
        struct gpu_request gpu; /* plan is filled in by the comm */
};

struct bell {
        struct executor *executor;
        struct session *session;
        uint32_t gpu;
        int event_fd;
        void *client_area;
        void *executor_area;
        bool taking_over;     /* lines latched by a predecessor may still be unanswered */
        uint32_t cursor;      /* of ring_consumer_relatch */
        atomic_flag latching; /* test_and_set acquire / clear release: one thread latches at a time */
        struct ring_consumer consumer;
        struct request *requests; /* [depth] */
        struct bell *prev, *next; /* session->bells */
};

/* Write lock. Maps the areas and takes the eventfd over (fds[2]); the other fds stay the caller's. Registers with the
 * workers. */
int bell_attach(struct session *session, uint32_t gpu, uint32_t depth, uint32_t argument_bytes, const int fds[3]);
struct bell *bell_detach(struct bell *bell);
/* Read lock. Latches what is there; true if something was. */
bool bell_serve(struct bell *bell);
/* Read lock. The last worker goes to sleep: asks the client to write the eventfd; true if a line is there after all. */
bool bell_sleep(struct bell *bell);
/* Publishes the status and frees the request's slot; the request must be in no queue. */
void bell_complete(struct request *request, uint32_t status);
