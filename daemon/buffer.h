/* SPDX-License-Identifier: MIT */
#pragma once
/* Memory that a session and the executors share: a sealed, charged memfd, or on a GPU the client's own. */
#include "daemon/attachment.h"
#include "daemon/device_memory.h"
#include "daemon/reach.h"
#include "util/charge.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

struct call;
struct event;
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
        uint64_t bytes; /* of a memfd: page-rounded */
        int fd;         /* -1, or of chunks (chunks.h): the client's own memory, */
        uint32_t n_chunks;
        struct device_memory memory;
        uint32_t gpu; /* on this GPU */

        bool retiring;
        struct attachment attachment;
        uint64_t retired;    /* executors that acknowledged BufferRetire and do not map it any more */
        uint64_t held;       /* executors that acknowledged BufferRetire and still map it */
        struct event *again; /* NULL: no executor has been busy */
        struct call *calls;  /* BufferCreate calls that wait, or BufferDestroy ones while retiring */
        struct reach reach;  /* on a GPU: executors of others that have it, too */
        uint32_t state_slot;

        struct charge charge_buffer, charge_fds, charge_bytes;
};

int buffer_new(struct session *session, uint32_t id, uint64_t bytes, char *text, size_t text_size,
               struct buffer **ret_buffer);
/* Memory of the client on a GPU. Only its number is charged, and the descriptors of its chunks. Takes over fd, the
 * bundle of them, in any case; -1: there are none. */
int buffer_new_device(struct session *session, uint32_t id, uint64_t bytes, const struct device_memory *memory,
                      uint32_t gpu, int fd, uint32_t n_chunks, char *text, size_t text_size,
                      struct buffer **ret_buffer);
int buffer_adopt(struct session *session, uint32_t id, uint64_t bytes, int fd, uint32_t state_slot,
                 struct buffer **ret_buffer);
/* fd stays the caller's unless 0 is returned. -1 although it is of chunks: executors that have it keep it, others
 * cannot get it. */
int buffer_adopt_device(struct session *session, uint32_t id, uint64_t bytes, const struct device_memory *memory,
                        uint32_t gpu, int fd, uint32_t state_slot, struct buffer **ret_buffer);
/* Gives chunks of a predecessor whose bundle was lost another one. Takes fd over in any case. */
int buffer_supply(struct buffer *buffer, int fd, uint32_t n_chunks, char *text, size_t text_size);
struct buffer *buffer_free(struct buffer *buffer);
struct buffer *buffer_find(struct session *session, uint32_t id);
uint64_t buffer_round(uint64_t bytes); /* to pages; 0 on overflow */
static inline bool buffer_on_device(const struct buffer *buffer) {
        return buffer->memory.kind != 0;
}
/* Mask of the executors that must have it. */
uint64_t buffer_needed(const struct buffer *buffer);

void buffer_attached(struct buffer *buffer, uint64_t mask, uint32_t code, const char *message);
/* These executors do not take it yet; they are asked again. */
void buffer_busy(struct buffer *buffer, uint64_t mask);
void buffer_reply(struct buffer *buffer, uint64_t id);
/* Sends BufferRetire to every executor; the buffer is freed, and destroy calls are answered, when all have let go of
 * it. */
void buffer_retire(struct buffer *buffer);
void buffer_retired(struct buffer *buffer, uint64_t mask); /* may free it */
void buffer_held(struct buffer *buffer, uint64_t mask);
void buffer_released(struct buffer *buffer, uint64_t mask); /* may free it */
