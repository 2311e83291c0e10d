/* SPDX-License-Identifier: MIT */
#pragma once
/* Memory shared with the executor, and the table that finds it by address. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;
struct rmx_cancel;
struct rpc_call;
struct rmx_session;

/* One memfd of the daemon, mapped here. */
struct buffer {
        uint32_t id;
        void *address;
        size_t bytes; /* mapped */
};

/* Makes and maps a buffer of at least `bytes`. cancel, NULL: none, ends the waiting for the daemon, here and in
 * buffer_destroy, with RMX_E_ABORTED. RMX_*; text set. */
int buffer_create(struct rmx_session *session, const char *what, size_t bytes, struct rmx_cancel *cancel,
                  struct buffer *ret_buffer);
/* Unmaps it and gives it back to the daemon. RMX_*; the memory is gone in any case. */
int buffer_destroy(struct rmx_session *session, const char *what, struct rmx_cancel *cancel,
                   const struct buffer *buffer);
/* The daemon's halves of these; the call is a BUFFER_CREATE. */
int buffer_announce(struct rmx_session *session, const char *what, struct rpc_call *call, struct rmx_cancel *cancel);
int buffer_forget(struct rmx_session *session, const char *what, struct rmx_cancel *cancel, uint32_t id);

struct buffer_entry {
        _Atomic uint64_t base;
        _Atomic uint64_t size; /* as the user asked for it */
        _Atomic uint32_t id;
        size_t mapped; /* only writers look at it */
};

struct buffer_array {
        struct buffer_array *older;
        uint32_t capacity;
        struct buffer_entry entry[];
};

/* A range of ordinary memory announced with rmx_buffer_register. */
struct buffer_registration {
        struct buffer_registration *next, *prev;
        void *address;
        size_t size;
        uint64_t reservation;  /* in the bounce pool; 0: memory of rmx_mem_alloc, or of a GPU */
        struct device *device; /* whose memory it is; NULL: host memory */
        uint32_t buffer;       /* of that memory: what the daemon calls it, 0 if it cannot be shared */
};

struct buffer_table {
        pthread_mutex_t mutex; /* writers */
        bool initialised;
        _Atomic uint32_t version; /* odd while a writer is at work */
        _Atomic uint32_t count;
        _Atomic(struct buffer_array *) array; /* sorted by base */
        uint32_t last_id;
        struct buffer_registration *registrations;
};

enum {
        _BUFFER_E_SUCCESS,
        BUFFER_E_UNKNOWN, /* ordinary memory */
        BUFFER_E_RANGE,   /* starts inside a buffer and runs over its end */
};

int buffer_table_init(struct buffer_table *table);
/* Unmaps what is left; the daemon frees its side when the session ends. */
void buffer_table_deinit(struct buffer_table *table);
uint32_t buffer_table_next_id(struct buffer_table *table);
/* 0, or -ENOMEM. */
int buffer_table_insert(struct buffer_table *table, const struct buffer *buffer, size_t size);
/* Takes out the buffer that starts at address. 0 or BUFFER_E_UNKNOWN. */
int buffer_table_remove(struct buffer_table *table, const void *address, struct buffer *ret_buffer);
/* Where [address, address + bytes) lies. No lock, no syscall. 0 or BUFFER_E_*. */
int buffer_table_find(struct buffer_table *table, const void *address, size_t bytes, uint32_t *ret_id,
                      uint64_t *ret_offset);
