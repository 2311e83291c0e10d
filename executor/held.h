/* SPDX-License-Identifier: MIT */
#pragma once
/* Calls of railmuxd that wait until they can be carried out, in the order in which they came. Control thread. */
#include <stdbool.h>
#include <stdint.h>

#include "proto/executor.pb-c.h"
#include "proto/frame.h"

/* No more than railmuxd leaves unanswered at a time: see docs/PROTOCOL.md, 4. */
#define HELD_MAX 64u

struct held_call {
        struct held_call *prev, *next;
        const Railmux__Executor__Message *message; /* NULL: none has come yet */
        struct frame_arena arena;                  /* of the message */
        int fds[FRAME_FDS_MAX];
        unsigned int n_fds;
};

struct held {
        struct held_call *calls; /* utlist */
        uint32_t n;
};

/* One to receive a message into; NULL: no memory. */
struct held_call *held_call_new(void);
/* With its message and descriptors. It is in no list. */
struct held_call *held_call_free(struct held_call *call);

void held_add(struct held *held, struct held_call *call);
void held_remove(struct held *held, struct held_call *call);
void held_clear(struct held *held);
/* Is one of those held, or of those before `until` (NULL: of all), what this message must not overtake? */
bool held_before(const struct held *held, const struct held_call *until, const Railmux__Executor__Message *message);
