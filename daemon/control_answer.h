/* SPDX-License-Identifier: MIT */
#pragma once
/* An answer under construction: rows, spread over as many Reply messages as the frame size asks for. */
#include "proto/control.pb-c.h"
#include <stddef.h>
#include <stdint.h>

struct control_answer {
        Railmux__Control__Reply **replies;
        size_t n_replies;
        size_t bytes; /* of the last reply, packed */
        int error;    /* 0, or the first -errno met: the answer is of no use then */
};
#define CONTROL_ANSWER_INIT                                                                                            \
        { 0 }

void control_answer_deinit(struct control_answer *answer);

enum control_rows {
        CONTROL_TENANTS,
        CONTROL_SESSIONS,
        CONTROL_COMMS,
        CONTROL_GPUS,
        CONTROL_METRICS,
        CONTROL_PEERS,
        CONTROL_RAILS,
        CONTROL_ROUTES
};

/* A zeroed message of the type, and a copy of a text, or NULL after noting -ENOMEM. What is noted once makes all later
 * calls no-ops, so building needs no checks but those for NULL. */
void *control_answer_message(struct control_answer *answer, const ProtobufCMessageDescriptor *descriptor);
char *control_answer_text(struct control_answer *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Room for n pointers or numbers, zeroed. */
void *control_answer_array(struct control_answer *answer, size_t n);
/* Appends a row, taking it over in any case. */
void control_answer_add(struct control_answer *answer, enum control_rows kind, ProtobufCMessage *row);
/* The next part of the graph's text, as many replies as it takes. */
void control_answer_topology(struct control_answer *answer, const char *text, size_t length);
/* The reply that single values go into: the first one. NULL after an error. */
Railmux__Control__Reply *control_answer_first(struct control_answer *answer);
/* Replaces everything by a refusal. */
void control_answer_fail(struct control_answer *answer, uint32_t code, const char *message);
/* Sets `more` on all but the last. */
void control_answer_finish(struct control_answer *answer);
