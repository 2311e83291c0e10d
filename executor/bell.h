/* SPDX-License-Identifier: MIT */
#pragma once
/* One request ring of one session as the executor serves it: latch, validate, hand to the rank; complete. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "executor/request.h"
#include "ring/ring.h"

struct executor;
struct session;

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
        struct request *requests;        /* [depth] */
        _Atomic uint64_t argument_bytes; /* copies of argument blocks in flight; fetch_add pairs with fetch_sub */
        struct bell *prev, *next;        /* session->bells */
};

/* Write lock. Maps the areas and takes the eventfd over (fds[2]); the other fds stay the caller's. Registers with the
 * workers. */
int bell_attach(struct session *session, uint32_t gpu, uint32_t depth, uint32_t argument_bytes, const int fds[3]);
struct bell *bell_detach(struct bell *bell);
/* Read lock. Latches what is there; true if something was. */
bool bell_serve(struct bell *bell);
/* Read lock. The last worker goes to sleep: asks the client to write the eventfd; true if a line is there after all. */
bool bell_sleep(struct bell *bell);
/* Copies an argument block of the client into request->memory, with `room` zeroed bytes behind it. RMX_E_INVALID (not
 * inside the argument space, not aligned, or more in flight than the space can hold) or RMX_E_NO_MEMORY. */
uint32_t bell_copy_argument(struct request *request, uint32_t offset, uint64_t bytes, uint64_t room);
/* Publishes the status and frees the request's slot; the request must be in no queue. */
void bell_complete(struct request *request, uint32_t status);
/* The same without waking the client: bell_wake does, after ring_consumer_fence. */
void bell_publish(struct request *request, uint32_t status);
void bell_wake(struct bell *bell, uint32_t ring_sequence);
