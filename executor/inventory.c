/* SPDX-License-Identifier: MIT */
#include "executor/inventory.h"

#include <stdlib.h>

struct inventory *inventory_new(report_send send, void *userdata) {
        struct inventory *inventory = malloc(sizeof(*inventory));

        if (!inventory)
                return NULL;
        *inventory = (struct inventory){.send = send, .userdata = userdata};
        railmux__executor__inventory__init(&inventory->message);
        for (uint32_t i = 0; i < INVENTORY_KEYS; i++) {
                railmux__executor__ring_key__init(inventory->ring_pointers[i] = &inventory->rings[i]);
                railmux__executor__buffer_key__init(inventory->buffer_pointers[i] = &inventory->buffers[i]);
                railmux__executor__comm_key__init(inventory->comm_pointers[i] = &inventory->comms[i]);
                railmux__executor__buffer_key__init(inventory->retired_pointers[i] = &inventory->retired[i]);
                railmux__executor__reach_key__init(inventory->reached_pointers[i] = &inventory->reached[i]);
        }
        inventory->message.sessions = inventory->sessions;
        inventory->message.rings = inventory->ring_pointers;
        inventory->message.buffers = inventory->buffer_pointers;
        inventory->message.comms = inventory->comm_pointers;
        inventory->message.retired = inventory->retired_pointers;
        inventory->message.reached = inventory->reached_pointers;
        return inventory;
}

static void inventory_flush(struct inventory *inventory) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;

        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_INVENTORY;
        message.inventory = &inventory->message;
        if (inventory->n && !inventory->result)
                inventory->result = inventory->send(inventory->userdata, &message);
        inventory->message.n_sessions = inventory->message.n_rings = 0;
        inventory->message.n_buffers = inventory->message.n_comms = inventory->message.n_retired = 0;
        inventory->message.n_reached = 0;
        inventory->n = 0;
}

/* Makes room for one entry of any kind. */
static void inventory_next(struct inventory *inventory) {
        if (inventory->n == INVENTORY_KEYS)
                inventory_flush(inventory);
        inventory->n++;
}

void inventory_session(struct inventory *inventory, uint64_t session) {
        inventory_next(inventory);
        inventory->sessions[inventory->message.n_sessions++] = session;
}

void inventory_ring(struct inventory *inventory, uint64_t session, uint32_t gpu) {
        Railmux__Executor__RingKey *key;

        inventory_next(inventory);
        key = &inventory->rings[inventory->message.n_rings++];
        key->session = session;
        key->gpu = gpu;
}

void inventory_buffer(struct inventory *inventory, uint64_t session, uint32_t buffer) {
        Railmux__Executor__BufferKey *key;

        inventory_next(inventory);
        key = &inventory->buffers[inventory->message.n_buffers++];
        key->session = session;
        key->buffer = buffer;
}

void inventory_retired(struct inventory *inventory, uint64_t session, uint32_t buffer) {
        Railmux__Executor__BufferKey *key;

        inventory_next(inventory);
        key = &inventory->retired[inventory->message.n_retired++];
        key->session = session;
        key->buffer = buffer;
}

void inventory_reached(struct inventory *inventory, uint64_t session, uint32_t buffer, uint64_t identity) {
        Railmux__Executor__ReachKey *key;

        inventory_next(inventory);
        key = &inventory->reached[inventory->message.n_reached++];
        key->session = session;
        key->buffer = buffer;
        key->identity = identity;
}

void inventory_comm(struct inventory *inventory, uint64_t comm, uint32_t epoch, uint32_t code, int32_t rank,
                    const char *text, bool held) {
        Railmux__Executor__CommKey *key;

        inventory_next(inventory);
        key = &inventory->comms[inventory->message.n_comms++];
        key->comm = comm;
        key->epoch = epoch;
        key->code = code;
        key->failed = code && rank >= 0 ? (uint32_t)rank + 1 : 0;
        key->message = code ? (char *)text : (char *)protobuf_c_empty_string;
        key->held = held;
}

int inventory_finish(struct inventory *inventory) {
        int r;

        inventory_flush(inventory);
        r = inventory->result;
        free(inventory);
        return r;
}
