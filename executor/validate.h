/* SPDX-License-Identifier: MIT */
#pragma once
/* Is a latched request allowed, and what does it mean? Pure apart from the tables it reads. */
#include <stdint.h>

#include "executor/bell.h"

struct executor;
struct session;

struct validate_rank { /* what the request may be about */
        uint32_t n_ranks;
        uint32_t rank;
        uint32_t epoch;
};

/* RMX_OK with operation, buffers and request->gpu (but its plan) filled in, or RMX_E_INVALID / RMX_E_UNSUPPORTED and a
 * text. Reads only the private copy `line`. Takes no reference on the buffers. */
uint32_t validate_request(struct executor *executor, struct session *session, const struct validate_rank *rank,
                          const struct ring_request *line, struct request *request, const char **ret_text);
