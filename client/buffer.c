/* SPDX-License-Identifier: MIT */
/*
 * Every collective asks "is this pointer shared memory, and which?", so the answer must cost neither a lock nor a
 * syscall, while other threads allocate and free. The table is a sorted array under a sequence lock: a writer (one at a
 * time, under the mutex) makes the version odd, edits, and makes it even again; a reader that saw an odd or a changed
 * version searches once more. All fields are atomics, so a torn search reads stale numbers at worst and then notices.
 *
 * The order that makes this right without fences: the writer's stores to fields are releases that come after the odd
 * version; the reader's loads of fields are acquires that come before its second load of the version. A reader that got
 * any field of an edit therefore sees the odd version (or a later one) and retries.
 *
 * A full array is replaced by one of twice the size. Readers may still be in the old one, so old arrays stay until the
 * table goes; together they are smaller than the current one.
 */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/cancel.h"
#include "client/error.h"
#include "client/session.h"
#include "util/memfd.h"

#define ARRAY_CAPACITY_FIRST 64u

/* ---- one buffer -------------------------------------------------------------------------------------------------- */
/* Nobody waits for the answer, and the error text stays. The number is never another buffer's, so it may be said twice.
 */
static void buffer_post_destroy(struct rmx_session *session, uint32_t id) {
        Railmux__Session__BufferDestroy body = RAILMUX__SESSION__BUFFER_DESTROY__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;

        body.buffer = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_DESTROY;
        message.buffer_destroy = &body;
        pthread_mutex_lock(&session->rpc.mutex);
        rpc_post_sure_locked(&session->rpc, &message);
        pthread_mutex_unlock(&session->rpc.mutex);
}

/* A call that a cancel ends. *ret_given_up: it did, before the answer. */
static int buffer_call(struct rmx_session *session, const char *what, struct rpc_call *call, uint32_t body,
                       struct rmx_cancel *cancel, bool *ret_given_up) {
        struct cancel_entry entry;
        int r = RMX_E_ABORTED;

        if (cancel_enter(cancel, &entry, &session->rpc, call)) {
                r = session_call(session, what, call, body, RPC_NO_DEADLINE);
                cancel_exit(cancel, &entry);
        }
        *ret_given_up = r == RMX_E_ABORTED && !call->answer.body;
        return *ret_given_up ? error_set(r, "%s: the communicator was aborted meanwhile", what) : r;
}

int buffer_announce(struct rmx_session *session, const char *what, struct rpc_call *call, struct rmx_cancel *cancel) {
        bool given_up;
        int r = buffer_call(session, what, call, RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY, cancel, &given_up);

        /* The daemon has made it, but its descriptor did not get through; or makes it when it comes to that. */
        if (r && (call->answer.truncated || (given_up && call->ever_sent)))
                buffer_post_destroy(session, call->message->buffer_create->buffer);
        return r;
}

int buffer_forget(struct rmx_session *session, const char *what, struct rmx_cancel *cancel, uint32_t id) {
        Railmux__Session__BufferDestroy body = RAILMUX__SESSION__BUFFER_DESTROY__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rpc_call call = {.message = &message};
        bool given_up;
        int r;

        body.buffer = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_DESTROY;
        message.buffer_destroy = &body;
        r = buffer_call(session, what, &call, RAILMUX__SESSION__MESSAGE__BODY_ACK, cancel, &given_up);
        if (given_up) /* sent or not: a call that is over is not sent again when the daemon is replaced */
                buffer_post_destroy(session, id);
        return r;
}

int buffer_create(struct rmx_session *session, const char *what, size_t bytes, struct rmx_cancel *cancel,
                  struct buffer *ret_buffer) {
        Railmux__Session__BufferCreate body = RAILMUX__SESSION__BUFFER_CREATE__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rpc_call call = {.message = &message, .n_fds = 1};
        void *address;
        int r;

        body.buffer = buffer_table_next_id(&session->buffers);
        body.bytes = bytes;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE;
        message.buffer_create = &body;
        r = buffer_announce(session, what, &call, cancel);
        if (r)
                return r;
        if (call.answer.buffer.buffer != body.buffer || call.answer.buffer.bytes < bytes) {
                frame_close_fds(call.answer.fds, call.answer.n_fds);
                return error_set(RMX_E_INTERNAL, "%s: the daemon answered with another buffer", what);
        }
        r = memfd_map(call.answer.fds[0], call.answer.buffer.bytes, 1, 1, &address);
        frame_close_fds(call.answer.fds, call.answer.n_fds);
        if (r) {
                (void)buffer_forget(session, what, NULL, body.buffer);
                return error_set(r == -ENOMEM ? RMX_E_NO_MEMORY : RMX_E_INTERNAL,
                                 "%s: %zu bytes of shared memory cannot be mapped (errno %d)", what, bytes, -r);
        }
        *ret_buffer = (struct buffer){.id = body.buffer, .address = address, .bytes = call.answer.buffer.bytes};
        return RMX_OK;
}

int buffer_destroy(struct rmx_session *session, const char *what, struct rmx_cancel *cancel,
                   const struct buffer *buffer) {
        memfd_unmap(buffer->address, buffer->bytes);
        return buffer_forget(session, what, cancel, buffer->id);
}

/* ---- the table ----------------------------------------------------------------------------------------------------
 */
static struct buffer_array *array_new(uint32_t capacity) {
        struct buffer_array *array = calloc(1, sizeof(*array) + capacity * sizeof(array->entry[0]));

        if (array)
                array->capacity = capacity;
        return array;
}

int buffer_table_init(struct buffer_table *table) {
        struct buffer_array *array;
        int r;

        array = array_new(ARRAY_CAPACITY_FIRST);
        if (!array)
                return -ENOMEM;
        r = pthread_mutex_init(&table->mutex, NULL);
        if (r) {
                free(array);
                return -r;
        }
        atomic_init(&table->array, array);
        table->initialised = true;
        return 0;
}

/* The current array and count, for writers under the mutex: relaxed, they see their own stores. */
static struct buffer_array *table_array(struct buffer_table *table) {
        /* relaxed; partner: the release store of array under the same mutex. */
        return atomic_load_explicit(&table->array, memory_order_relaxed);
}

static uint32_t table_count(struct buffer_table *table) {
        /* relaxed; partner: the release store of count under the same mutex. */
        return atomic_load_explicit(&table->count, memory_order_relaxed);
}

static uint64_t entry_base(const struct buffer_entry *entry) {
        /* acquire; partner: the release store in entry_set. */
        return atomic_load_explicit(&entry->base, memory_order_acquire);
}

static uint64_t entry_size(const struct buffer_entry *entry) {
        /* acquire; partner: the release store in entry_set. */
        return atomic_load_explicit(&entry->size, memory_order_acquire);
}

static uint32_t entry_id(const struct buffer_entry *entry) {
        /* acquire; partner: the release store in entry_set. */
        return atomic_load_explicit(&entry->id, memory_order_acquire);
}

static void entry_set(struct buffer_entry *entry, uint64_t base, uint64_t size, uint32_t id, size_t mapped) {
        /* release, all three; partners: the acquire loads in entry_base, entry_size, entry_id. */
        atomic_store_explicit(&entry->base, base, memory_order_release);
        atomic_store_explicit(&entry->size, size, memory_order_release);
        atomic_store_explicit(&entry->id, id, memory_order_release);
        entry->mapped = mapped;
}

static void entry_copy(struct buffer_entry *to, const struct buffer_entry *from) {
        entry_set(to, entry_base(from), entry_size(from), entry_id(from), from->mapped);
}

void buffer_table_deinit(struct buffer_table *table) {
        struct buffer_registration *registration, *next_registration;
        struct buffer_array *array, *older;
        uint32_t i;

        if (!table->initialised)
                return;
        array = table_array(table);
        for (i = 0; i < table_count(table); i++)
                memfd_unmap((void *)(uintptr_t)entry_base(&array->entry[i]), array->entry[i].mapped);
        for (; array; array = older) {
                older = array->older;
                free(array);
        }
        DL_FOREACH_SAFE(table->registrations, registration, next_registration) {
                DL_DELETE(table->registrations, registration);
                free(registration);
        }
        pthread_mutex_destroy(&table->mutex);
        table->initialised = false;
}

uint32_t buffer_table_next_id(struct buffer_table *table) {
        uint32_t id;

        pthread_mutex_lock(&table->mutex);
        if (++table->last_id == 0)
                table->last_id = 1;
        id = table->last_id;
        pthread_mutex_unlock(&table->mutex);
        return id;
}

static void table_edit_begin(struct buffer_table *table) {
        /* relaxed; partner: the second load in buffer_table_find. The release stores that follow carry it along. */
        atomic_store_explicit(&table->version, atomic_load_explicit(&table->version, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

static void table_edit_end(struct buffer_table *table) {
        /* release; partner: the first (acquire) load in buffer_table_find. */
        atomic_store_explicit(&table->version, atomic_load_explicit(&table->version, memory_order_relaxed) + 1,
                              memory_order_release);
}

/* First position whose base is greater than address. */
static uint32_t array_upper(const struct buffer_array *array, uint32_t count, uint64_t address) {
        uint32_t low = 0, high = count;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (entry_base(&array->entry[middle]) <= address)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static struct buffer_array *table_room(struct buffer_table *table) {
        struct buffer_array *array = table_array(table), *larger;
        uint32_t i, count = table_count(table);

        if (count < array->capacity)
                return array;
        larger = array_new(array->capacity * 2);
        if (!larger)
                return NULL;
        for (i = 0; i < count; i++)
                entry_copy(&larger->entry[i], &array->entry[i]);
        larger->older = array;
        /* release; partner: the acquire load in buffer_table_find. Both arrays hold the same, so no edit is announced.
         */
        atomic_store_explicit(&table->array, larger, memory_order_release);
        return larger;
}

int buffer_table_insert(struct buffer_table *table, const struct buffer *buffer, size_t size) {
        uint64_t base = (uintptr_t)buffer->address;
        struct buffer_array *array;
        uint32_t i, at, count;

        pthread_mutex_lock(&table->mutex);
        array = table_room(table);
        if (!array) {
                pthread_mutex_unlock(&table->mutex);
                return -ENOMEM;
        }
        count = table_count(table);
        at = array_upper(array, count, base);
        table_edit_begin(table);
        for (i = count; i > at; i--)
                entry_copy(&array->entry[i], &array->entry[i - 1]);
        entry_set(&array->entry[at], base, size, buffer->id, buffer->bytes);
        /* release; partner: the acquire load in buffer_table_find. */
        atomic_store_explicit(&table->count, count + 1, memory_order_release);
        table_edit_end(table);
        pthread_mutex_unlock(&table->mutex);
        return 0;
}

int buffer_table_remove(struct buffer_table *table, const void *address, struct buffer *ret_buffer) {
        uint64_t base = (uintptr_t)address;
        struct buffer_array *array;
        uint32_t i, at, count;

        pthread_mutex_lock(&table->mutex);
        array = table_array(table);
        count = table_count(table);
        at = array_upper(array, count, base);
        if (!at || entry_base(&array->entry[at - 1]) != base) {
                pthread_mutex_unlock(&table->mutex);
                return BUFFER_E_UNKNOWN;
        }
        at--;
        *ret_buffer = (struct buffer){.id = entry_id(&array->entry[at]),
                                      .address = (void *)(uintptr_t)base,
                                      .bytes = array->entry[at].mapped};
        table_edit_begin(table);
        for (i = at; i + 1 < count; i++)
                entry_copy(&array->entry[i], &array->entry[i + 1]);
        /* release; partner: the acquire load in buffer_table_find. */
        atomic_store_explicit(&table->count, count - 1, memory_order_release);
        table_edit_end(table);
        pthread_mutex_unlock(&table->mutex);
        return 0;
}

int buffer_table_find(struct buffer_table *table, const void *address, size_t bytes, uint32_t *ret_id,
                      uint64_t *ret_offset) {
        uint64_t at = (uintptr_t)address, base, size;
        struct buffer_array *array;
        uint32_t version, count, i, id;

        for (;;) {
                base = size = 0;
                id = 0;
                /* acquire; partner: the release store in table_edit_end. */
                version = atomic_load_explicit(&table->version, memory_order_acquire);
                if (version & 1) {
                        sched_yield(); /* the writer is inside a few stores, or lost its processor there */
                        continue;
                }
                /* acquire; partner: the release store of count. Count first: an array seen later has room for it. */
                count = atomic_load_explicit(&table->count, memory_order_acquire);
                /* acquire; partner: the release store of array in table_room. */
                array = atomic_load_explicit(&table->array, memory_order_acquire);
                i = array_upper(array, count, at);
                if (i) {
                        base = entry_base(&array->entry[i - 1]);
                        size = entry_size(&array->entry[i - 1]);
                        id = entry_id(&array->entry[i - 1]);
                }
                /* relaxed; partner: the store in table_edit_begin (file comment). */
                if (atomic_load_explicit(&table->version, memory_order_relaxed) == version)
                        break;
        }
        if (!id || at - base >= size)
                return BUFFER_E_UNKNOWN;
        if (bytes > size - (at - base))
                return BUFFER_E_RANGE;
        *ret_id = id;
        *ret_offset = at - base;
        return 0;
}
