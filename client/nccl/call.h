/* SPDX-License-Identifier: MIT */
#pragma once
/* A call on one communicator with its arguments, and lists of those that are kept to be started later. See call.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/nccl/nccl.h"

struct rmx_request;

enum call_kind {
        CALL_ALL_REDUCE,
        CALL_REDUCE,
        CALL_REDUCE_SCATTER,
        CALL_ALL_GATHER,
        CALL_BROADCAST,
        CALL_GATHER,
        CALL_SCATTER,
        CALL_ALL_TO_ALL,
        CALL_ALL_TO_ALL_V,
        CALL_SEND,
        CALL_RECV,
};

struct call {
        enum call_kind kind;
        struct ncclComm *comm;
        const void *in;
        void *out;
        size_t count;
        uint32_t type, redop;
        uint32_t peer;           /* or root */
        const size_t *vector[4]; /* ALL_TO_ALL_V: counts and places of what is sent, then of what is received */
        size_t *numbers;         /* of one that is kept: where its vector points */
        bool redop_made;         /* of one that is kept: redop is its own */
};

struct calls {
        struct call *list;
        uint32_t n, capacity;
};

/* RMX_*. Does it, or records it where librailmux's group is open. request, NULL: none, has it only started. */
int call_issue(const struct call *call, void *stream, struct rmx_request *request);

/* Keeps a copy of one that librailmux has found to be right, with all that its caller may take away: arrays, and the
 * reduction. Goes with calls_free, before its communicator does. */
ncclResult_t calls_keep(struct calls *calls, const char *what, const struct call *call);
/* Moves those of the communicator to the other list, which is empty, in their order. */
ncclResult_t calls_take(struct calls *from, const char *what, const struct ncclComm *comm, struct calls *to);
void calls_free(struct calls *calls);
