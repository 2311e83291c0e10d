/* SPDX-License-Identifier: MIT */
#pragma once
/* Is a latched request allowed, and what does it mean? */
#include <stdint.h>

#include "executor/request.h"
#include "ring/ring.h"

struct executor;
struct session;

struct validate_rank { /* what the request may be about */
        uint32_t n_ranks;
        uint32_t rank;
        uint32_t epoch;
};

/* RMX_OK with everything in `request` but its sequence and its plans filled in, or RMX_E_* and a text. Reads only the
 * private copy `line`, and the argument block once. Takes no reference on the buffers; on failure there are no entries.
 */
uint32_t validate_request(struct executor *executor, struct session *session, const struct validate_rank *rank,
                          const struct ring_request *line, struct request *request, const char **ret_text);
