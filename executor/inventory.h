/* SPDX-License-Identifier: MIT */
#pragma once
/* INVENTORY messages under construction: what an executor holds, sent in pieces that fit a frame. Control thread. */
#include <stdbool.h>
#include <stdint.h>

#include "executor/report.h"

#define INVENTORY_KEYS 256u /* entries per message: far below the frame limit */

struct inventory {
        report_send send;
        void *userdata;
        int result; /* of sending */
        Railmux__Executor__Inventory message;
        uint32_t n;
        uint64_t sessions[INVENTORY_KEYS];
        Railmux__Executor__RingKey rings[INVENTORY_KEYS], *ring_pointers[INVENTORY_KEYS];
        Railmux__Executor__BufferKey buffers[INVENTORY_KEYS], *buffer_pointers[INVENTORY_KEYS];
        Railmux__Executor__CommKey comms[INVENTORY_KEYS], *comm_pointers[INVENTORY_KEYS];
        Railmux__Executor__BufferKey retired[INVENTORY_KEYS], *retired_pointers[INVENTORY_KEYS];
        Railmux__Executor__ReachKey reached[INVENTORY_KEYS], *reached_pointers[INVENTORY_KEYS];
};

/* NULL: no memory. */
struct inventory *inventory_new(report_send send, void *userdata);
void inventory_session(struct inventory *inventory, uint64_t session);
void inventory_ring(struct inventory *inventory, uint64_t session, uint32_t gpu);
void inventory_buffer(struct inventory *inventory, uint64_t session, uint32_t buffer);
void inventory_retired(struct inventory *inventory, uint64_t session, uint32_t buffer);
void inventory_reached(struct inventory *inventory, uint64_t session, uint32_t buffer, uint64_t identity);
/* code: its sticky error or 0; rank: that is to blame, or -1; text: on it, lasts until inventory_finish. */
void inventory_comm(struct inventory *inventory, uint64_t comm, uint32_t epoch, uint32_t code, int32_t rank,
                    const char *text, bool held);
/* Sends the rest and frees it; what sending said. */
int inventory_finish(struct inventory *inventory);
