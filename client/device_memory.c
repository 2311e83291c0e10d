/* SPDX-License-Identifier: MIT */
/*
 * A line names memory as (buffer, offset), and a buffer here is a whole allocation of the caller. It is registered when
 * it is first met: other processes get a handle of it through the daemon.
 *
 * Nobody tells the library when an allocation is freed. Its place may be given to another one, for which the executor's
 * mapping of the old one would be wrong memory. So a buffer is known by its place and by the number that the runtime
 * gives each allocation, and both are compared at each call. What has been replaced is taken back from the daemon; its
 * requests are over, since the caller has freed the memory. (A captured graph that still uses it is the caller's
 * error.) What has been freed, and replaced by nothing, is taken back when memory becomes known the next time: until
 * then executors have it mapped, and with that it stays allocated.
 *
 * Virtual memory is another matter, see device_chunks.c.
 */
#include <stdlib.h>
#include <string.h>

#include "client/device.h"
#include "client/device_chunks.h"
#include "client/device_memory.h"
#include "client/error.h"
#include "client/session.h"

/* All buffers are looked at again when a 16th of their number has been registered; so each pays for 16 looks. */
#define SWEEP_PART 16u

void device_memory_init(struct device_memory *memory) {
        *memory = (struct device_memory){0};
        pthread_mutex_init(&memory->mutex, NULL);
        pthread_mutex_init(&memory->calls, NULL);
}

void device_memory_deinit(struct device_memory *memory) {
        device_chunks_free(memory);
        free(memory->buffers);
        pthread_mutex_destroy(&memory->mutex);
        pthread_mutex_destroy(&memory->calls);
}

void device_memory_describe(const struct client_gpu_export *from, Railmux__Session__DeviceMemory *to) {
        to->kind = from->kind;
        to->handle.data = (uint8_t *)from->handle; /* only read */
        to->handle.len = from->n_handle;
        to->allocation_bytes = from->allocation_bytes;
        to->offset = from->offset;
        to->bytes = from->bytes;
}

/* ---- the table, under its mutex ---------------------------------------------------------------------------------- */
/* The first buffer that ends behind this address. */
static uint32_t table_lower(const struct device_memory *memory, uint64_t address) {
        uint32_t low = 0, high = memory->n_buffers;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (memory->buffers[middle].base + memory->buffers[middle].bytes <= address)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static bool table_find(struct device_memory *memory, const struct client_gpu_memory *wanted, uint32_t *ret_buffer) {
        bool found;
        uint32_t at;

        pthread_mutex_lock(&memory->mutex);
        at = table_lower(memory, wanted->base);
        found = at < memory->n_buffers && memory->buffers[at].base == wanted->base &&
                memory->buffers[at].bytes == wanted->bytes && memory->buffers[at].id == wanted->id;
        if (found)
                *ret_buffer = memory->buffers[at].buffer;
        pthread_mutex_unlock(&memory->mutex);
        return found;
}

/* Takes out one buffer that lies where `wanted` lies now. */
static bool table_evict(struct device_memory *memory, const struct client_gpu_memory *wanted, uint32_t *ret_buffer) {
        bool found;
        uint32_t at;

        pthread_mutex_lock(&memory->mutex);
        at = table_lower(memory, wanted->base);
        found = at < memory->n_buffers && memory->buffers[at].base < wanted->base + wanted->bytes;
        if (found) {
                *ret_buffer = memory->buffers[at].buffer;
                memory->n_buffers--;
                memmove(&memory->buffers[at], &memory->buffers[at + 1],
                        (memory->n_buffers - at) * sizeof(memory->buffers[0]));
        }
        pthread_mutex_unlock(&memory->mutex);
        return found;
}

static bool table_insert(struct device_memory *memory, const struct client_gpu_memory *added, uint32_t buffer) {
        struct device_buffer *buffers = memory->buffers;
        uint32_t at;

        pthread_mutex_lock(&memory->mutex);
        if (memory->n_buffers == memory->capacity) {
                uint32_t capacity = memory->capacity ? 2 * memory->capacity : 64;

                buffers = reallocarray(buffers, capacity, sizeof(*buffers));
                if (buffers) {
                        memory->buffers = buffers;
                        memory->capacity = capacity;
                }
        }
        if (buffers) {
                at = table_lower(memory, added->base);
                memmove(&buffers[at + 1], &buffers[at], (memory->n_buffers - at) * sizeof(*buffers));
                buffers[at] = (struct device_buffer){
                        .base = added->base, .bytes = added->bytes, .id = added->id, .buffer = buffer};
                memory->n_buffers++;
        }
        pthread_mutex_unlock(&memory->mutex);
        return buffers != NULL;
}

/* ---- registration ------------------------------------------------------------------------------------------------ */
int device_memory_announce(struct device *device, const char *what, struct rmx_cancel *cancel,
                           Railmux__Session__DeviceMemory *described, const int *fds, unsigned int n_fds,
                           uint32_t *ret_buffer) {
        Railmux__Session__BufferCreate body = RAILMUX__SESSION__BUFFER_CREATE__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rpc_call call = {.message = &message, .send_fds = fds, .n_send_fds = n_fds};
        int r;

        body.buffer = buffer_table_next_id(&device->session->buffers);
        body.bytes = described->bytes;
        body.memory = described;
        body.gpu = device->gpu;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE;
        message.buffer_create = &body;
        r = buffer_announce(device->session, what, &call, cancel);
        if (r)
                return r;
        if (call.answer.buffer.buffer != body.buffer)
                return error_set(RMX_E_INTERNAL, "%s: the daemon answered with another buffer", what);
        *ret_buffer = body.buffer;
        return RMX_OK;
}

static int memory_create(struct device *device, const char *what, struct rmx_cancel *cancel,
                         const struct client_gpu_memory *memory, uint32_t *ret_buffer) {
        Railmux__Session__DeviceMemory described = RAILMUX__SESSION__DEVICE_MEMORY__INIT;
        char error[CLIENT_GPU_TEXT] = "";
        struct client_gpu_export export;
        int r;

        r = device->ops->export_memory(memory, &export, error);
        if (r == RMX_E_UNSUPPORTED) {
                *ret_buffer = 0;
                return RMX_OK;
        }
        if (r)
                return error_set(r, "%s: %s", what, error);
        device_memory_describe(&export, &described);
        return device_memory_announce(device, what, cancel, &described, NULL, 0, ret_buffer);
}

/* The first buffer from this one on that has been freed; `n_buffers`: none. Only who has memory->calls changes the
 * table. */
static uint32_t table_freed(const struct device *device, uint32_t i) {
        for (; i < device->memory.n_buffers; i++) {
                const struct device_buffer *buffer = &device->memory.buffers[i];
                struct client_gpu_memory now;
                char error[CLIENT_GPU_TEXT];

                if (!device->ops->locate((const void *)(uintptr_t)buffer->base, &now, error) &&
                    (now.residence != CLIENT_GPU_DEVICE || now.base != buffer->base || now.bytes != buffer->bytes ||
                     now.id != buffer->id))
                        break;
        }
        return i;
}

int device_memory_sweep(struct device *device, const char *what, struct rmx_cancel *cancel) {
        struct device_memory *memory = &device->memory;
        uint32_t old;
        int r = device_chunks_sweep(device, what, cancel);

        if (++memory->registered <= memory->n_buffers / SWEEP_PART)
                return r;
        memory->registered = 0;
        for (uint32_t i = table_freed(device, 0); !r && i < memory->n_buffers; i = table_freed(device, i)) {
                const struct client_gpu_memory place = {.base = memory->buffers[i].base, .bytes = 1};

                r = table_evict(memory, &place, &old) && old ? buffer_forget(device->session, what, cancel, old)
                                                             : RMX_OK;
        }
        return r;
}

static int memory_register(struct device *device, const char *what, struct rmx_cancel *cancel,
                           const struct client_gpu_memory *memory, uint32_t *ret_buffer) {
        uint32_t old;
        int r = device_memory_sweep(device, what, cancel);

        if (r)
                return r;
        while (table_evict(&device->memory, memory, &old)) {
                r = old ? buffer_forget(device->session, what, cancel, old) : RMX_OK;
                if (r)
                        return r;
        }
        r = memory_create(device, what, cancel, memory, ret_buffer);
        if (r || table_insert(&device->memory, memory, *ret_buffer))
                return r;
        if (*ret_buffer)
                (void)buffer_forget(device->session, what, cancel, *ret_buffer);
        return error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
}

int device_memory_name(struct device *device, const char *what, struct rmx_cancel *cancel,
                       const struct client_gpu_memory *memory, const void *address, size_t bytes, uint32_t *ret_buffer,
                       uint64_t *ret_offset) {
        int r = RMX_OK;

        if (memory->chunk)
                return device_chunks_name(device, what, cancel, memory, address, bytes, ret_buffer, ret_offset);
        *ret_offset = (uintptr_t)address - memory->base;
        if (table_find(&device->memory, memory, ret_buffer))
                return RMX_OK;
        pthread_mutex_lock(&device->memory.calls);
        if (!table_find(&device->memory, memory, ret_buffer)) /* another thread may have been faster */
                r = memory_register(device, what, cancel, memory, ret_buffer);
        pthread_mutex_unlock(&device->memory.calls);
        return r;
}

/* Does this buffer still lie there? */
static bool table_has(struct device_memory *memory, const struct client_gpu_memory *place, uint32_t buffer) {
        bool has;
        uint32_t at;

        pthread_mutex_lock(&memory->mutex);
        at = table_lower(memory, place->base);
        has = at < memory->n_buffers && memory->buffers[at].base <= place->base && memory->buffers[at].buffer == buffer;
        pthread_mutex_unlock(&memory->mutex);
        return has;
}

int device_memory_forget(struct device *device, const char *what, const void *address, uint32_t buffer) {
        const struct client_gpu_memory place = {.base = (uintptr_t)address, .bytes = 1};
        int r = RMX_OK;

        pthread_mutex_lock(&device->memory.calls); /* only who has it changes the table */
        if (table_has(&device->memory, &place, buffer) && table_evict(&device->memory, &place, &buffer) && buffer)
                r = buffer_forget(device->session, what, NULL, buffer);
        if (!r)
                r = device_chunks_sweep(device, what, NULL);
        pthread_mutex_unlock(&device->memory.calls);
        return r == RMX_E_DAEMON_LOST ? RMX_OK : r;
}
