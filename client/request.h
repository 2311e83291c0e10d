/* SPDX-License-Identifier: MIT */
#pragma once
/* From the line in the ring to the result in the caller's hands. */
#include <stdbool.h>
#include <stdint.h>

#include "client/session_ring.h"
#include "railmux/railmux.h"

/* What is inside struct rmx_request. The work to do at the end is not here but in the ring's slot: user memory is
 * written at the start and at the end only. */
struct request {
        uint64_t magic; /* REQUEST_MAGIC while outstanding */
        struct session_ring *ring;
        const char *what;    /* public function that started it */
        uint64_t started_ns; /* only if the connection was closed already; else 0 */
        uint32_t sequence;
};
_Static_assert(sizeof(struct request) <= sizeof(struct rmx_request), "a request fits the user's storage");

/* Publishes the line. RMX_*; text set; on failure slot's regions stay the caller's. */
int request_start(struct session_ring *ring, struct ring_request *line, const struct session_slot *slot,
                  struct request *ret_request);
/* Waits for the request that this thread has just started attended. RMX_*; text set. */
int request_complete(struct request *request);
/* Waits until a comm that is being destroyed has nothing outstanding, copying nothing. A comm with a sticky error, or
 * without an executor, is not waited for: what has not completed is abandoned. */
void requests_finish(struct rmx_comm *comm);
