/* SPDX-License-Identifier: MIT */
#pragma once
/* A state of the model checker: threads, and memory as lists of messages. See model_state.c. */
#include "model_atomics.h"

#include <stdbool.h>

#include "model.h"

#define CELLS_MAX    32
#define MESSAGES_MAX 96
#define ANSWERS_MAX  200

enum kind {
        K_LOAD,
        K_STORE,
        K_RMW,
        K_FENCE,
        K_FUTEX_WAIT,
        K_FUTEX_WAKE,
        K_EVENT_WRITE,
        K_EVENT_WAIT,
        K_END,
        K_FINDING
};

struct step {
        enum kind kind;
        char operation;
        memory_order order;
        uint32_t cell;
        bool may_time_out;
        uint64_t value;
        const char *text;
};

struct view {
        uint8_t time[CELLS_MAX];
};

struct message {
        uint8_t cell, time, before; /* before: index of the cell's previous message + 1 */
        struct view view;
        uint64_t value;
};

struct thread {
        struct step next;
        struct view current, acquired, released;
        uint32_t n_answers;
        bool successor, asleep;
        uint64_t hash; /* of the answers */
        uint64_t answer[ANSWERS_MAX];
};

struct state {
        struct thread thread[MODEL_THREADS_MAX];
        struct view full;          /* exchanged by full fences */
        uint8_t newest[CELLS_MAX]; /* index of the message + 1, 0: never written */
        uint32_t n_messages, kills;
        const uint64_t *preset; /* what the cells began with */
        bool event, event_ever;
        struct message message[MESSAGES_MAX];
};

uint64_t mix(uint64_t hash, uint64_t value);
/* Of what can still matter. */
uint64_t state_hash(const struct state *s, uint32_t n_threads);

void memory_fence(struct state *s, struct thread *t, memory_order order);
/* A load of the message (index + 1; 0: the value the cell began with). */
uint64_t memory_load(struct state *s, struct thread *t, uint32_t cell, uint32_t index, memory_order order);
/* inherited: view of the message that a read-modify-write has read, else NULL. */
void memory_store(struct state *s, struct thread *t, uint32_t cell, uint64_t value, memory_order order,
                  const struct view *inherited);
