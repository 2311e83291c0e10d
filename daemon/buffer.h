/* SPDX-License-Identifier: MIT */
#pragma once
/* A sealed, charged memfd that a session and the executors share. */
#include "daemon/attachment.h"
#include "util/charge.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

struct call;
struct session;

enum {
        _BUFFER_E_SUCCESS,
        BUFFER_E_LIMIT,    /* text says which */
        BUFFER_E_RESOURCE, /* no fd or memory is left; text says what */
        BUFFER_E_INVALID,  /* size 0 or absurd */
};

struct buffer {
        UT_hash_handle hh; /* session->buffers */
        struct session *session;

        uint32_t id;
        uint64_t bytes; /* page-rounded */
        int fd;

        bool retiring;
        struct attachment attachment;
        uint64_t retired;   /* executors that acknowledged BufferRetire */
        struct call *calls; /* BufferCreate calls that wait, or BufferDestroy ones while retiring */
        uint32_t state_slot;

        struct charge charge_buffer, charge_fds, charge_bytes;
};

int buffer_new(struct session *session, uint32_t id, uint64_t bytes, char *text, size_t text_size,
               struct buffer **ret_buffer);
int buffer_adopt(struct session *session, uint32_t id, uint64_t bytes, int fd, uint32_t state_slot,
                 struct buffer **ret_buffer);
struct buffer *buffer_free(struct buffer *buffer);
struct buffer *buffer_find(struct session *session, uint32_t id);
uint64_t buffer_round(uint64_t bytes); /* to pages; 0 on overflow */

void buffer_attached(struct buffer *buffer, uint64_t mask, uint32_t code, const char *message);
void buffer_reply(struct buffer *buffer, uint64_t id);
/* Sends BufferRetire to every executor; the buffer is freed, and destroy calls are answered, when all have let go of
 * it. */
void buffer_retire(struct buffer *buffer);
void buffer_retired(struct buffer *buffer, uint64_t mask); /* may free it */
