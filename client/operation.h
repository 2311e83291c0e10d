/* SPDX-License-Identifier: MIT */
#pragma once
/* A call of a collective, a send or a receive: its arguments, and the way from them to a line. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/redop.h"
#include "client/session_ring.h"
#include "railmux/railmux.h"

struct operation {
        /* The call. */
        const char *what;
        struct rmx_comm *comm;
        uint32_t op; /* RING_OP_* */
        uint32_t type;
        uint32_t redop;
        uint32_t peer; /* or root */
        const void *in;
        void *out;
        size_t count;
        uint64_t *vector; /* all_to_all_v: n_ranks send counts, send offsets, receive counts, receive offsets */
        void *stream;     /* of a call in a group */

        /* What operation_check found. */
        size_t in_bytes; /* 0: nothing is read */
        size_t out_bytes;
        struct redop_factor factor; /* redop RMX_PREMUL_SUM */
        bool issued;                /* private to group.c */
};

static inline bool operation_is_p2p(const struct operation *o) {
        return o->op == RING_OP_SEND || o->op == RING_OP_RECV;
}

/* Checks the arguments, and finds in_bytes, out_bytes and the factor. RMX_*; text set. */
int operation_check(struct operation *o, const void *stream);
/* The public calls: checks, then runs, or records in the thread's group. RMX_*; text set. */
int operation_run(struct operation *o, void *stream);
int operation_begin(struct operation *o, void *stream, struct rmx_request *ret_request);

/* Makes a checked operation ready to publish: names its memory, copies what must be. argument: where the block is made
 * if it needs one; a vector's is its own. RMX_*; text set; on failure nothing is held. */
int operation_prepare(struct operation *o, bool attended, struct session_item *ret_item, uint64_t *argument);
/* Where memory lies: in shared memory, or *ret_id 0 and it has to be copied. RMX_*; text set. */
int operation_locate(const struct operation *o, const char *name, const void *address, size_t bytes, uint32_t *ret_id,
                     uint64_t *ret_offset);
