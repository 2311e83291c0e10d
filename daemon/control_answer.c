/* SPDX-License-Identifier: MIT */
#include "daemon/control_answer.h"

#include "proto/frame.h"
#include "railmux/railmux.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of one reply, packed. Half a frame: what the reader needs to unpack it stays below its bound then, as small rows
 * take up to sixteen times their packed size there. */
#define CONTROL_REPLY_BYTES (FRAME_BYTES_MAX / 2)

void control_answer_deinit(struct control_answer *answer) {
        for (size_t i = 0; i < answer->n_replies; i++)
                railmux__control__reply__free_unpacked(answer->replies[i], NULL);
        free(answer->replies);
        *answer = (struct control_answer)CONTROL_ANSWER_INIT;
}

void *control_answer_message(struct control_answer *answer, const ProtobufCMessageDescriptor *descriptor) {
        ProtobufCMessage *message;

        if (answer->error)
                return NULL;
        message = calloc(1, descriptor->sizeof_message);
        if (!message) {
                answer->error = -ENOMEM;
                return NULL;
        }
        protobuf_c_message_init(descriptor, message);
        return message;
}

char *control_answer_text(struct control_answer *answer, const char *format, ...) {
        char *text = NULL;
        va_list args;

        if (!answer->error) {
                va_start(args, format);
                if (vasprintf(&text, format, args) < 0) {
                        text = NULL;
                        answer->error = -ENOMEM;
                }
                va_end(args);
        }
        /* The shared empty string is what an absent text is; it is never freed. */
        return text ? text : (char *)protobuf_c_empty_string;
}

void *control_answer_array(struct control_answer *answer, size_t n) {
        void *array;

        if (answer->error || !n)
                return NULL;
        array = calloc(n, sizeof(void *));
        if (!array)
                answer->error = -ENOMEM;
        return array;
}

static Railmux__Control__Reply *control_answer_next(struct control_answer *answer) {
        Railmux__Control__Reply **replies, *reply;

        reply = control_answer_message(answer, &railmux__control__reply__descriptor);
        if (!reply)
                return NULL;
        replies = realloc(answer->replies, (answer->n_replies + 1) * sizeof(*replies));
        if (!replies) {
                free(reply);
                answer->error = -ENOMEM;
                return NULL;
        }
        reply->version = CONTROL_PROTOCOL;
        answer->replies = replies;
        answer->replies[answer->n_replies++] = reply;
        answer->bytes = 0;
        return reply;
}

Railmux__Control__Reply *control_answer_first(struct control_answer *answer) {
        if (answer->error)
                return NULL;
        return answer->n_replies ? answer->replies[0] : control_answer_next(answer);
}

void control_answer_add(struct control_answer *answer, enum control_rows kind, ProtobufCMessage *row) {
        Railmux__Control__Reply *reply = NULL;
        void ***rows = NULL, **grown;
        size_t *n = NULL, bytes;

        if (!row)
                return;
        bytes = protobuf_c_message_get_packed_size(row) + 8;
        if (!answer->error && answer->n_replies && answer->bytes + bytes <= CONTROL_REPLY_BYTES)
                reply = answer->replies[answer->n_replies - 1];
        else if (!answer->error)
                reply = control_answer_next(answer);
        if (!reply) {
                protobuf_c_message_free_unpacked(row, NULL);
                return;
        }
        switch (kind) {
        case CONTROL_TENANTS:
                rows = (void ***)&reply->tenants;
                n = &reply->n_tenants;
                break;
        case CONTROL_SESSIONS:
                rows = (void ***)&reply->sessions;
                n = &reply->n_sessions;
                break;
        case CONTROL_COMMS:
                rows = (void ***)&reply->comms;
                n = &reply->n_comms;
                break;
        case CONTROL_GPUS:
                rows = (void ***)&reply->gpus;
                n = &reply->n_gpus;
                break;
        case CONTROL_METRICS:
                rows = (void ***)&reply->metrics;
                n = &reply->n_metrics;
                break;
        case CONTROL_PEERS:
                rows = (void ***)&reply->peers;
                n = &reply->n_peers;
                break;
        case CONTROL_RAILS:
                rows = (void ***)&reply->rail_rows;
                n = &reply->n_rail_rows;
                break;
        case CONTROL_ROUTES:
                rows = (void ***)&reply->routes;
                n = &reply->n_routes;
                break;
        }
        if ((*n & (*n - 1)) == 0) { /* 0 or a power of two: the array is full */
                grown = realloc(*rows, (*n ? *n * 2 : 1) * sizeof(void *));
                if (!grown) {
                        protobuf_c_message_free_unpacked(row, NULL);
                        answer->error = -ENOMEM;
                        return;
                }
                *rows = grown;
        }
        (*rows)[(*n)++] = row;
        answer->bytes += bytes;
}

void control_answer_topology(struct control_answer *answer, const char *text, size_t length) {
        while (length > 0) {
                Railmux__Control__Reply *reply = control_answer_next(answer);
                size_t piece = length < CONTROL_REPLY_BYTES ? length : CONTROL_REPLY_BYTES;
                char *copy = reply ? strndup(text, piece) : NULL;

                if (!copy) {
                        answer->error = -ENOMEM;
                        return;
                }
                reply->topology = copy;
                text += piece;
                length -= piece;
        }
}

void control_answer_fail(struct control_answer *answer, uint32_t code, const char *message) {
        Railmux__Control__Reply *reply;

        control_answer_deinit(answer);
        reply = control_answer_first(answer);
        if (!reply)
                return;
        reply->code = code;
        reply->message = control_answer_text(answer, "%s", message);
}

void control_answer_finish(struct control_answer *answer) {
        control_answer_first(answer); /* an answer without rows is one empty reply */
        for (size_t i = 0; i + 1 < answer->n_replies; i++)
                answer->replies[i]->more = true;
}
