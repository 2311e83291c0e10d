/* SPDX-License-Identifier: MIT */
#pragma once
/* From the line in the ring to the result in the caller's hands. */
#include <stdbool.h>
#include <stdint.h>

#include "client/device_request.h"
#include "client/error.h"
#include "client/session_ring.h"
#include "railmux/railmux.h"

/* One line's request. The work to do at the end is not here but in the ring's slot: user memory is written at the start
 * and at the end only. */
struct request {
        struct session_ring *ring;
        const char *what;    /* public function that started it */
        uint64_t started_ns; /* only if the connection was closed already; else 0 */
        uint32_t sequence;
};

/* A group's requests behind one struct rmx_request. */
struct request_set {
        struct request_set *next, *prev; /* session->sets, while no thread is at it */
        struct rmx_session *session;     /* that of the first */
        uint64_t number;
        uint32_t n_requests;
        uint32_t n_done; /* the first of them, then of the devices */
        int result;      /* the first error of those, and its text */
        char text[ERROR_TEXT_BYTES];
        uint32_t n_devices;
        struct device_handle *device; /* requests on GPUs */
        struct request request[];
};

/* Publishes all lines, or none. RMX_*; text set; on failure the slots' regions and copies stay the caller's. */
int requests_start(struct session_item *items, uint32_t n_items, struct request *ret_requests);
/* Waits for a request that this thread has just started attended. RMX_*; text set. */
int request_complete(struct request *request);
/* Waits for all of them; the result is the first error. */
int requests_complete(struct request *requests, uint32_t n_requests);

/* Room for the requests of a group, in rings and on GPUs. NULL: out of memory. */
struct request_set *request_set_new(uint32_t n_requests, uint32_t n_devices);
/* Gives started requests to the user. */
void request_give(const struct request *request, struct rmx_request *ret_request);
void request_give_set(struct request_set *set, struct rmx_request *ret_request); /* takes it over */
void request_give_device(const struct device_handle *device, struct rmx_request *ret_request);
/* A request that is done with RMX_OK. */
void request_give_done(struct rmx_request *ret_request);

/* Waits until a comm that is being destroyed has nothing outstanding, copying nothing. A comm with a sticky error, or
 * without an executor, is not waited for: what has not completed is abandoned. */
void requests_finish(struct rmx_comm *comm);
