/* SPDX-License-Identifier: MIT */
/*
 * Buffers, and how long they are charged.
 *
 * A charge ends when no executor maps the memory any more. An executor that is told to retire a buffer may still need
 * it for requests in flight. It says so in its answer, which so never waits (unanswered calls are few, and a client
 * could keep them all), and sends BufferReleased when the last of them has ended. Until then the buffer stays in the
 * session's table with everything it is charged for, its number is taken, and its BufferDestroy calls wait; a client
 * that frees what it uses fills nobody's memory but its own account. A release counts only after the answer that
 * announced it: an earlier one is about an earlier buffer of that number. Executors of other GPUs that have mapped the
 * buffer (reach.c) are told to let go of it after its own one, and are waited for as well.
 *
 * A session that ends gives its charges back at once. Its executors are told first and handle calls in order, and no
 * client gets memory before they have answered its import, which comes later: by then the old memory is unmapped.
 */
#include "daemon/buffer.h"

#include "daemon/call.h"
#include "daemon/chunks.h"
#include "daemon/closer.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/manager.h"
#include "daemon/record.h"
#include "daemon/session.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include "util/log.h"
#include "util/memfd.h"
#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES_MAX (UINT64_C(1) << 46)
#define BUFFER_BUSY_US   100000

uint64_t buffer_round(uint64_t bytes) {
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

        return bytes > BUFFER_BYTES_MAX ? 0 : (bytes + page - 1) / page * page;
}

static struct buffer *buffer_alloc(struct session *session, uint32_t id, uint64_t bytes) {
        struct buffer *buffer = calloc(1, sizeof(*buffer));

        if (!buffer)
                return NULL;
        buffer->session = session;
        buffer->id = id;
        buffer->bytes = bytes;
        buffer->fd = -1;
        buffer->state_slot = STATE_SLOT_NONE;
        buffer->reach.sure = true;
        HASH_ADD(hh, session->buffers, id, sizeof(buffer->id), buffer);
        if (!buffer->hh.tbl) { /* no memory for the table */
                free(buffer);
                return NULL;
        }
        session->n_buffers++;
        return buffer;
}

static int buffer_charge(struct buffer *buffer, char *text, size_t text_size) {
        struct tenant *tenant = buffer->session->tenant;

        if (tenant_charge(tenant, &buffer->charge_buffer, CHARGE_BUFFERS, 1, text, text_size))
                return BUFFER_E_LIMIT;
        if (buffer_on_device(buffer))
                return buffer->n_chunks && tenant_charge(tenant, &buffer->charge_fds, CHARGE_FDS, buffer->n_chunks + 1,
                                                         text, text_size)
                               ? BUFFER_E_LIMIT
                               : 0;
        if (tenant_charge(tenant, &buffer->charge_fds, CHARGE_FDS, 1, text, text_size) ||
            tenant_charge(tenant, &buffer->charge_bytes, CHARGE_BYTES, buffer->bytes, text, text_size))
                return BUFFER_E_LIMIT;
        buffer->session->bytes += buffer->bytes;
        return 0;
}

int buffer_new(struct session *session, uint32_t id, uint64_t bytes, char *text, size_t text_size,
               struct buffer **ret_buffer) {
        uint64_t rounded = buffer_round(bytes);
        struct buffer *buffer;
        int r;

        if (rounded == 0) {
                snprintf(text, text_size, "a buffer has between 1 byte and 64 TiB");
                return BUFFER_E_INVALID;
        }
        buffer = buffer_alloc(session, id, rounded);
        if (!buffer) {
                snprintf(text, text_size, "out of memory");
                return BUFFER_E_RESOURCE;
        }
        r = buffer_charge(buffer, text, text_size);
        if (r) {
                buffer_free(buffer);
                return r;
        }
        r = memfd_new("railmux-buffer", rounded, &buffer->fd);
        if (r >= 0 && record_buffer(buffer))
                r = -ENOMEM;
        if (r < 0) {
                snprintf(text, text_size, "the daemon cannot make the memory: %s", strerror(-r));
                buffer_free(buffer);
                return BUFFER_E_RESOURCE;
        }
        *ret_buffer = buffer;
        return 0;
}

/* A number and a place, charged; neither recorded nor made known to anybody yet. */
static int buffer_alloc_device(struct session *session, uint32_t id, uint64_t bytes, const struct device_memory *memory,
                               uint32_t gpu, uint32_t n_chunks, char *text, size_t text_size,
                               struct buffer **ret_buffer) {
        struct buffer *buffer = buffer_alloc(session, id, bytes);
        int r;

        if (!buffer) {
                snprintf(text, text_size, "out of memory");
                return BUFFER_E_RESOURCE;
        }
        buffer->memory = *memory;
        buffer->gpu = gpu;
        buffer->n_chunks = n_chunks;
        session->manager->n_packed += n_chunks;
        r = buffer_charge(buffer, text, text_size);
        if (r) {
                buffer_free(buffer);
                return r;
        }
        *ret_buffer = buffer;
        return 0;
}

int buffer_new_device(struct session *session, uint32_t id, uint64_t bytes, const struct device_memory *memory,
                      uint32_t gpu, int fd, uint32_t n_chunks, char *text, size_t text_size,
                      struct buffer **ret_buffer) {
        struct buffer *buffer;
        int r = BUFFER_E_INVALID;

        if (bytes == 0 || bytes > memory->bytes)
                snprintf(text, text_size, "a buffer has between 1 byte and as many as its memory");
        else
                r = buffer_alloc_device(session, id, bytes, memory, gpu, n_chunks, text, text_size, &buffer);
        if (r) {
                if (fd >= 0)
                        closer_close(session->manager->memory_closer, fd);
                return r;
        }
        buffer->fd = fd;
        if (record_buffer(buffer)) {
                snprintf(text, text_size, "the daemon cannot record the buffer");
                buffer_free(buffer);
                return BUFFER_E_RESOURCE;
        }
        *ret_buffer = buffer;
        return 0;
}

int buffer_adopt_device(struct session *session, uint32_t id, uint64_t bytes, const struct device_memory *memory,
                        uint32_t gpu, int fd, uint32_t state_slot, struct buffer **ret_buffer) {
        uint32_t n_chunks = fd < 0 ? 0 : chunks_count(fd);
        struct buffer *buffer;
        char text[160];

        if (id == 0 || bytes == 0 || buffer_find(session, id))
                return -EINVAL;
        if (buffer_alloc_device(session, id, bytes, memory, gpu, n_chunks, text, sizeof(text), &buffer))
                return -ENOMEM;
        buffer->fd = fd;
        buffer->state_slot = state_slot;
        reach_adopt(buffer);
        *ret_buffer = buffer;
        return 0;
}

int buffer_supply(struct buffer *buffer, int fd, uint32_t n_chunks, char *text, size_t text_size) {
        if (tenant_charge(buffer->session->tenant, &buffer->charge_fds, CHARGE_FDS, n_chunks + 1, text, text_size)) {
                closer_close(buffer->session->manager->memory_closer, fd);
                return BUFFER_E_LIMIT;
        }
        buffer->fd = fd;
        buffer->n_chunks = n_chunks;
        buffer->session->manager->n_packed += n_chunks;
        record_buffer_fd(buffer);
        return 0;
}

uint64_t buffer_needed(const struct buffer *buffer) {
        struct manager *manager = buffer->session->manager;
        struct executor_link *link;

        if (!buffer_on_device(buffer))
                return manager_links_mask(manager);
        link = manager_link_of_gpu(manager, buffer->gpu);
        return link ? executor_link_mask(link) : 0;
}

int buffer_adopt(struct session *session, uint32_t id, uint64_t bytes, int fd, uint32_t state_slot,
                 struct buffer **ret_buffer) {
        struct buffer *buffer;
        char text[160];

        if (id == 0 || bytes == 0 || buffer_round(bytes) != bytes || buffer_find(session, id))
                return -EINVAL;
        buffer = buffer_alloc(session, id, bytes);
        if (!buffer)
                return -ENOMEM;
        if (buffer_charge(buffer, text, sizeof(text))) {
                buffer_free(buffer);
                return -EDQUOT;
        }
        buffer->fd = fd;
        buffer->state_slot = state_slot;
        *ret_buffer = buffer;
        return 0;
}

struct buffer *buffer_free(struct buffer *buffer) {
        if (!buffer)
                return NULL;
        record_drop_buffer(buffer);
        if (buffer->again)
                event_free(buffer->again);
        call_drop(&buffer->calls, NULL);
        buffer->session->manager->n_packed -= buffer->n_chunks;
        /* The last descriptor of memory of a GPU may take its time, and that of the host's frees all its pages. */
        closer_close(buffer->session->manager->memory_closer, buffer->fd);
        if (buffer->charge_bytes.account)
                buffer->session->bytes -= buffer->bytes;
        charge_release(&buffer->charge_bytes);
        charge_release(&buffer->charge_fds);
        charge_release(&buffer->charge_buffer);
        HASH_DELETE(hh, buffer->session->buffers, buffer);
        buffer->session->n_buffers--;
        free(buffer);
        return NULL;
}

struct buffer *buffer_find(struct session *session, uint32_t id) {
        struct buffer *buffer;

        HASH_FIND(hh, session->buffers, &id, sizeof(id), buffer);
        return buffer;
}

void buffer_reply(struct buffer *buffer, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__BufferReply reply = RAILMUX__SESSION__BUFFER_REPLY__INIT;

        reply.buffer = buffer->id;
        reply.bytes = buffer->bytes;
        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY;
        message.buffer_reply = &reply;
        session_send(buffer->session, &message);
}

void buffer_attached(struct buffer *buffer, uint64_t mask, uint32_t code, const char *message) {
        struct session *session;
        uint64_t id;

        if (buffer->retiring)
                return;
        if (code) {
                bool asked = buffer->calls != NULL;

                while (call_pop(&buffer->calls, &session, &id))
                        session_send_failure(session, id, code, "%s", message);
                if (asked) {
                        buffer_retire(buffer); /* other executors may have it */
                } else if (buffer_on_device(buffer)) {
                        /* It went with the executor that had it. Requests that name it are invalid. */
                        log_warning("session %" PRIu64 ": its buffer %u on GPU %u cannot be taken over: %s",
                                    buffer->session->id, buffer->id, buffer->gpu, message);
                        buffer->retiring = true;
                        buffer_retired(buffer, mask);
                } else
                        session_end(buffer->session, LOG_LEVEL_ERROR, "an executor refused its buffer %u: %s",
                                    buffer->id, message);
                return;
        }
        buffer->attachment.acked |= mask;
        reach_attached(buffer);
        if (!buffer->calls || !attachment_complete(&buffer->attachment, buffer_needed(buffer)))
                return;
        record_barrier(buffer->session->manager);
        while (call_pop(&buffer->calls, &session, &id))
                buffer_reply(buffer, id);
}

static void buffer_again(evutil_socket_t fd, short what, void *data) {
        struct buffer *buffer = data;

        (void)fd, (void)what;
        if (!buffer->retiring)
                executor_attach_buffer(buffer);
}

void buffer_busy(struct buffer *buffer, uint64_t mask) {
        const struct timeval later = {.tv_usec = BUFFER_BUSY_US};

        if (buffer->retiring)
                return;
        if (!buffer->again)
                buffer->again = evtimer_new(buffer->session->manager->base, buffer_again, buffer);
        if (!buffer->again || evtimer_add(buffer->again, &later) < 0) {
                buffer_attached(buffer, mask, RMX_E_NO_MEMORY, "the daemon has no memory for a timer");
                return;
        }
        attachment_forget(&buffer->attachment, mask);
        buffer->attachment.known &= ~mask;
}

static void buffer_finish(struct buffer *buffer) {
        struct session *session;
        struct call *calls = buffer->calls;
        uint64_t id;

        buffer->calls = NULL;
        buffer_free(buffer); /* before the answer: the client may use the number again at once */
        while (call_pop(&calls, &session, &id))
                session_send_ack(session, id);
}

void buffer_retire(struct buffer *buffer) {
        struct manager *manager = buffer->session->manager;
        struct executor_link *link;

        if (buffer->retiring)
                return;
        buffer->retiring = true;
        /* An executor that is away may hold it: it counts as done only when that one says so on its return. */
        for (link = manager->links; link; link = link->next)
                if (buffer_needed(buffer) & executor_link_mask(link))
                        executor_op_push(link, EXECUTOR_OP_BUFFER_RETIRE, buffer->session->id, buffer->id);
        if (!buffer_needed(buffer)) /* its GPU is served no more */
                buffer_retired(buffer, 0);
}

void buffer_retired(struct buffer *buffer, uint64_t mask) {
        if (!buffer->retiring)
                return;
        buffer->retired |= mask;
        if (buffer->gpu < MANAGER_LINKS_MAX && buffer_on_device(buffer) &&
            buffer->session->manager->unserved >> buffer->gpu & 1)
                return; /* comm_unserved_ended() */
        if ((buffer->retired & buffer_needed(buffer)) == buffer_needed(buffer) && reach_end(buffer))
                buffer_finish(buffer);
}

void buffer_held(struct buffer *buffer, uint64_t mask) {
        if (buffer->retiring)
                buffer->held |= mask;
}

void buffer_released(struct buffer *buffer, uint64_t mask) {
        if (!(buffer->held & mask))
                return;
        buffer->held &= ~mask;
        buffer_retired(buffer, mask);
}
