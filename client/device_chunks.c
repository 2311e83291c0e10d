/* SPDX-License-Identifier: MIT */
/*
 * Virtual memory
 *
 * A program may reserve a range of addresses and map physical memory there, chunk by chunk, as PyTorch's expandable
 * segments do: a range as large as the GPU, chunks of 2 or 20 MiB that come and go. A tensor may lie across many of
 * them. A line names one buffer, so chunks side by side are one buffer here, a span; executors map its chunks side by
 * side as well (gpu/hip/memory.c).
 *
 * Spans may overlap. If a request lies in no span there is one for its chunks and their neighbours, as far as the
 * window goes, which is WINDOW_CHUNKS wide and begins at a multiple of that, so that a range that grows has few spans.
 * Those that are there stay: a graph may have been captured that names one. Mapping a chunk once more costs addresses
 * only.
 *
 * Nobody tells the library when chunks are unmapped. A span knows its chunks by the runtime's numbers; those that a
 * call touches are compared. A span with a chunk that is gone is still right for the others. When all are gone nothing
 * can name it any more, and it is taken back from the daemon: that is looked at whenever memory becomes known. Until
 * then executors keep the memory of all its chunks; hence small windows.
 *
 * What cannot be exported, or not be imported, is remembered as a span without a buffer, for all requests that touch
 * all of it; unless that is in the nature of the memory, for a second. RAILMUX_GPU_CHUNKS=0 makes all such memory one
 * that cannot be shared (client/hip/memory.c): for programs that map other memory at the addresses that a captured
 * graph has, which with chunks would go on using the old memory.
 */
#include "client/device_chunks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/buffer.h"
#include "client/device.h"
#include "client/device_memory.h"
#include "client/error.h"
#include "client/session.h"
#include "util/clock.h"

#define WINDOW_CHUNKS 8u
#define SWEEP_PART    16u                  /* as in device_memory.c */
#define AGAIN_NS      UINT64_C(1000000000) /* after a limit has been met */

struct chunks {
        uint32_t n;
        struct client_gpu_memory at[FRAME_FDS_MANY];
};

/* ---- looking ----------------------------------------------------------------------------------------------------- */
/* The chunk at this address, if it lies beside `other`'s in the same range. */
static int locate_beside(const struct client_gpu_ops *ops, const struct client_gpu_memory *other, uint64_t address,
                         struct client_gpu_memory *ret_memory, bool *ret_found, char *error) {
        int r = ops->locate((const void *)(uintptr_t)address, ret_memory, error);

        *ret_found = !r && ret_memory->residence == CLIENT_GPU_DEVICE && ret_memory->chunk &&
                     ret_memory->device == other->device && ret_memory->range == other->range &&
                     address - ret_memory->base < ret_memory->bytes;
        return r;
}

int device_chunks_check(const struct client_gpu_ops *ops, const char *what, const char *name,
                        const struct client_gpu_memory *first, const void *address, size_t bytes) {
        const uint64_t from = (uintptr_t)address, end = from + bytes;
        struct client_gpu_memory memory = *first;
        char error[CLIENT_GPU_TEXT] = "";
        bool found = true;
        int r = RMX_OK;

        while (!r && found && memory.base + memory.bytes < end)
                r = locate_beside(ops, first, memory.base + memory.bytes, &memory, &found, error);
        if (r)
                return error_set(r, "%s: %s: %s", what, name, error);
        if (!found || end < from)
                return error_set(RMX_E_INVALID, "%s: %s: %zu bytes at %p run over the end of what is mapped there",
                                 what, name, bytes, address);
        return RMX_OK;
}

/* From `first` to the end. False: they are more than a buffer may have, or are gone. */
static bool chunks_collect(const struct client_gpu_ops *ops, const struct client_gpu_memory *first, uint64_t end,
                           struct chunks *ret_chunks) {
        char error[CLIENT_GPU_TEXT];
        bool found = true;

        ret_chunks->at[0] = *first;
        for (ret_chunks->n = 1; ret_chunks->n < FRAME_FDS_MANY; ret_chunks->n++) {
                const struct client_gpu_memory *last = &ret_chunks->at[ret_chunks->n - 1];

                if (last->base + last->bytes >= end)
                        return true;
                if (locate_beside(ops, first, last->base + last->bytes, &ret_chunks->at[ret_chunks->n], &found,
                                  error) ||
                    !found)
                        return false;
        }
        return ret_chunks->at[ret_chunks->n - 1].base + ret_chunks->at[ret_chunks->n - 1].bytes >= end;
}

/* Adds neighbours up to the ends of the window. */
static void chunks_widen(const struct client_gpu_ops *ops, uint64_t from, uint64_t end, struct chunks *chunks) {
        const struct client_gpu_memory first = chunks->at[0];
        const uint64_t window = WINDOW_CHUNKS * first.bytes, low = from - (from - first.range) % window;
        const uint64_t high = end + (window - (end - first.range) % window) % window;
        struct client_gpu_memory memory, *last = &chunks->at[chunks->n - 1];
        char error[CLIENT_GPU_TEXT];
        bool found;

        while (chunks->n < FRAME_FDS_MANY && chunks->at[0].base > low &&
               !locate_beside(ops, &first, chunks->at[0].base - 1, &memory, &found, error) && found) {
                memmove(&chunks->at[1], &chunks->at[0], chunks->n++ * sizeof(memory));
                chunks->at[0] = memory;
        }
        last = &chunks->at[chunks->n - 1];
        while (chunks->n < FRAME_FDS_MANY && last->base + last->bytes < high &&
               !locate_beside(ops, &first, last->base + last->bytes, &memory, &found, error) && found) {
                chunks->at[chunks->n++] = memory;
                last++;
        }
}

/* ---- spans ------------------------------------------------------------------------------------------------------- */
/* Are `n` chunks of a span, from this one on, those that begin with *other? */
static bool same_chunks(const struct device_span *span, uint32_t from, const struct client_gpu_memory *other,
                        uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                if (span->chunk[from + i].base != other[i].base || span->chunk[from + i].id != other[i].id)
                        return false;
        return true;
}

/* All wanted ones are in the span. */
static bool span_has(const struct device_span *span, const struct chunks *chunks) {
        uint32_t k = 0;

        while (k < span->n && span->chunk[k].base != chunks->at[0].base)
                k++;
        return chunks->n <= span->n - k && same_chunks(span, k, chunks->at, chunks->n);
}

/* All of the span, which could not be shared, are among the wanted ones. */
static bool span_spoils(const struct device_span *span, const struct chunks *chunks) {
        uint32_t k = 0;

        while (k < chunks->n && chunks->at[k].base != span->chunk[0].base)
                k++;
        return span->n <= chunks->n - k && same_chunks(span, 0, &chunks->at[k], span->n);
}

/* It is to be tried again. */
static bool span_over(const struct device_span *span) {
        return span->until_ns && clock_now_ns() > span->until_ns;
}

static bool spans_find(struct device_memory *memory, const struct chunks *chunks, uint64_t address,
                       uint32_t *ret_buffer, uint64_t *ret_offset) {
        struct device_span *span, *spoilt = NULL;

        pthread_mutex_lock(&memory->mutex);
        DL_FOREACH(memory->spans, span) {
                if (span->buffer ? span_has(span, chunks) : !spoilt && !span_over(span) && span_spoils(span, chunks)) {
                        if (span->buffer)
                                break;
                        spoilt = span;
                }
        }
        if (span) {
                *ret_buffer = span->buffer;
                *ret_offset = address - span->base;
        }
        span = span ? span : spoilt;
        pthread_mutex_unlock(&memory->mutex);
        return span != NULL;
}

static struct device_span *span_new(const struct chunks *chunks) {
        const struct client_gpu_memory *last = &chunks->at[chunks->n - 1];
        struct device_span *span = calloc(1, sizeof(*span) + chunks->n * sizeof(span->chunk[0]));

        if (!span)
                return NULL;
        span->base = chunks->at[0].base;
        span->bytes = last->base + last->bytes - span->base;
        span->n = chunks->n;
        for (uint32_t i = 0; i < chunks->n; i++) {
                span->chunk[i].base = chunks->at[i].base;
                span->chunk[i].id = chunks->at[i].id;
        }
        return span;
}

static bool span_alive(const struct client_gpu_ops *ops, const struct device_span *span) {
        struct client_gpu_memory memory;
        char error[CLIENT_GPU_TEXT];

        for (uint32_t i = 0; i < span->n; i++)
                if (ops->locate((const void *)(uintptr_t)span->chunk[i].base, &memory, error) ||
                    (memory.residence == CLIENT_GPU_DEVICE && memory.base == span->chunk[i].base &&
                     memory.id == span->chunk[i].id))
                        return true;
        return false;
}

/* The list changes only with memory->calls, which we have; its mutex is for those who read. */
int device_chunks_sweep(struct device *device, const char *what, struct rmx_cancel *cancel) {
        struct device_memory *memory = &device->memory;
        struct device_span *span, *next;
        int r = RMX_OK;

        if (++memory->spans_registered <= memory->n_spans / SWEEP_PART)
                return RMX_OK;
        memory->spans_registered = 0;
        DL_FOREACH_SAFE(memory->spans, span, next) {
                if (!span_over(span) && span_alive(device->ops, span))
                        continue;
                pthread_mutex_lock(&memory->mutex);
                DL_DELETE(memory->spans, span);
                memory->n_spans--;
                pthread_mutex_unlock(&memory->mutex);
                if (span->buffer)
                        r = buffer_forget(device->session, what, cancel, span->buffer);
                free(span);
                if (r)
                        return r;
        }
        return RMX_OK;
}

void device_chunks_free(struct device_memory *memory) {
        struct device_span *span, *next;

        DL_FOREACH_SAFE(memory->spans, span, next) {
                DL_DELETE(memory->spans, span);
                free(span);
        }
}

/* ---- making them known ------------------------------------------------------------------------------------------- */
/* What tells this span from every other one of the session; the daemon compares it if it is told the same twice. */
static void span_identify(const struct device_span *span, uint64_t handle[CLIENT_GPU_HANDLE_BYTES / 8]) {
        uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a, by words */

        for (uint32_t i = 0; i < span->n; i++)
                hash = ((hash ^ span->chunk[i].base) * UINT64_C(1099511628211) ^ span->chunk[i].id) *
                       UINT64_C(1099511628211);
        memset(handle, 0, CLIENT_GPU_HANDLE_BYTES);
        handle[0] = span->base;
        handle[1] = span->bytes;
        handle[2] = span->chunk[0].id;
        handle[3] = span->n;
        handle[4] = hash;
}

/* RMX_*, no text. */
static int chunks_export(const struct client_gpu_ops *ops, const struct chunks *chunks, int *ret_fds) {
        char error[CLIENT_GPU_TEXT];
        uint32_t n = 0;
        int r = RMX_OK;

        while (n < chunks->n && !(r = ops->export_chunk(&chunks->at[n], &ret_fds[n], error)))
                n++;
        if (r)
                frame_close_fds(ret_fds, n);
        return r;
}

/* Why nothing can be done but copying, now or ever. */
static int span_refused(struct device_span *span, int r) {
        switch (r) {
        case RMX_OK:
        case RMX_E_ABORTED: /* the call is given up */
        case RMX_E_DAEMON_LOST:
        case RMX_E_TIMEOUT:
                return r;
        case RMX_E_INVALID:
        case RMX_E_UNSUPPORTED:
                return RMX_OK;
        default:
                span->until_ns = clock_now_ns() + AGAIN_NS;
                return RMX_OK;
        }
}

static int span_announce(struct device *device, const char *what, struct rmx_cancel *cancel,
                         const struct chunks *chunks, struct device_span *span) {
        Railmux__Session__DeviceMemory described = RAILMUX__SESSION__DEVICE_MEMORY__INIT;
        uint64_t handle[CLIENT_GPU_HANDLE_BYTES / 8], bytes[FRAME_FDS_MANY];
        int fds[FRAME_FDS_MANY], r;

        r = chunks_export(device->ops, chunks, fds);
        if (r)
                return span_refused(span, r);
        for (uint32_t i = 0; i < chunks->n; i++)
                bytes[i] = chunks->at[i].bytes;
        span_identify(span, handle);
        described.kind = DEVICE_MEMORY_CHUNKS;
        described.handle.data = (uint8_t *)handle;
        described.handle.len = sizeof(handle);
        described.allocation_bytes = described.bytes = span->bytes;
        described.chunk_bytes = bytes;
        described.n_chunk_bytes = chunks->n;
        r = device_memory_announce(device, what, cancel, &described, fds, chunks->n, &span->buffer);
        frame_close_fds(fds, chunks->n);
        return span_refused(span, r);
}

/* With memory->calls. */
static int span_add(struct device *device, const char *what, struct rmx_cancel *cancel, const struct chunks *chunks,
                    bool any_way, bool *ret_shared) {
        struct device_span *span = span_new(chunks);
        int r;

        if (!span)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
        r = span_announce(device, what, cancel, chunks, span);
        *ret_shared = !r && span->buffer;
        if (r || (!span->buffer && !any_way)) {
                free(span);
                return r;
        }
        pthread_mutex_lock(&device->memory.mutex);
        DL_PREPEND(device->memory.spans, span);
        device->memory.n_spans++;
        pthread_mutex_unlock(&device->memory.mutex);
        return RMX_OK;
}

/* With memory->calls. With neighbours, if that can be: another thread may have unmapped or replaced one just now, or it
 * is of another kind. */
static int span_register(struct device *device, const char *what, struct rmx_cancel *cancel,
                         const struct chunks *needed, uint64_t from, uint64_t end) {
        struct chunks chunks = *needed;
        bool shared = false;
        int r = RMX_OK;

        chunks_widen(device->ops, from, end, &chunks);
        if (chunks.n > needed->n)
                r = span_add(device, what, cancel, &chunks, false, &shared);
        return r || shared ? r : span_add(device, what, cancel, needed, true, &shared);
}

int device_chunks_name(struct device *device, const char *what, struct rmx_cancel *cancel,
                       const struct client_gpu_memory *first, const void *address, size_t bytes, uint32_t *ret_buffer,
                       uint64_t *ret_offset) {
        const uint64_t from = (uintptr_t)address, end = from + bytes;
        struct device_memory *memory = &device->memory;
        struct chunks chunks;
        int r = RMX_OK;

        *ret_buffer = 0;
        if (!(device->session->features & SESSION_FEATURE_CHUNKS) || !chunks_collect(device->ops, first, end, &chunks))
                return RMX_OK;
        if (spans_find(memory, &chunks, from, ret_buffer, ret_offset))
                return RMX_OK;
        pthread_mutex_lock(&memory->calls);
        if (!spans_find(memory, &chunks, from, ret_buffer, ret_offset)) { /* another thread may have been faster */
                r = device_memory_sweep(device, what, cancel);
                if (!r)
                        r = span_register(device, what, cancel, &chunks, from, end);
                if (!r)
                        (void)spans_find(memory, &chunks, from, ret_buffer, ret_offset);
        }
        pthread_mutex_unlock(&memory->calls);
        return r;
}
