/* SPDX-License-Identifier: MIT */
/*
 * Sending to clients. A client that does not read must neither block the loop nor make the daemon collect memory or fds
 * for it. So a message that the socket does not take is copied into a queue with bounds, and the session ends beyond
 * them. Queued answers hold no fds: those of RingReply, BufferReply and LifeReply are looked up when the message really
 * goes out, and if the object has gone by then the answer becomes a failure.
 */
#include "daemon/buffer.h"
#include "daemon/comm.h"
#include "daemon/session.h"
#include "daemon/session_life.h"
#include "daemon/session_ring.h"
#include "railmux/railmux.h"
#include "util/cleanup.h"
#include "util/log.h"
#include "util/memfd.h"
#include <errno.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utlist.h>

struct session_message {
        struct session_message *next, *prev;
        Railmux__Session__Message *message;
        size_t bytes;
};

/* Descriptors on their way count against our user's limit for all sockets together, so one client may not let many lie
 * unread. */
#define SESSION_FDS_UNREAD_MAX 48u

static const struct timeval session_retry_time = {.tv_usec = 20000};

static bool session_retryable(int condition) {
        return condition == -ETOOMANYREFS || condition == -ENOBUFS || condition == -ENOMEM;
}

static int session_transmit_failure(struct session *session, uint64_t id, uint32_t code, const char *text) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__Failure failure = RAILMUX__SESSION__FAILURE__INIT;

        failure.code = code;
        failure.message = (char *)text;
        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_FAILURE;
        message.failure = &failure;
        return frame_send(session->fd, &message.base, NULL, 0);
}

static int session_transmit(struct session *session, const Railmux__Session__Message *message) {
        _cleanup_close_ int readonly_fd = -1;
        int fds[3];
        unsigned int n_fds = 0;
        int r;

        if (message->body_case == RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY) {
                struct session_ring *ring = session_ring_find(session, message->ring_reply->gpu);

                if (!ring)
                        return session_transmit_failure(session, message->id, RMX_E_INVALID, "the ring has gone");
                if (!ring->area.kind && memfd_reopen_readonly(ring->executor_fd, &readonly_fd) < 0)
                        return session_transmit_failure(session, message->id, RMX_E_NO_MEMORY,
                                                        "the daemon has no file descriptors left");
                fds[n_fds++] = ring->client_fd;
                fds[n_fds++] =
                        ring->area.kind ? session_ring_executor_fd(ring) : readonly_fd; /* a latch is everybody's */
                fds[n_fds++] = ring->event_fd;
        } else if (message->body_case == RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY) {
                struct buffer *buffer = buffer_find(session, message->buffer_reply->buffer);

                if (!buffer || buffer->retiring)
                        return session_transmit_failure(session, message->id, RMX_E_INVALID,
                                                        "the buffer was destroyed");
                if (!buffer_on_device(buffer))
                        fds[n_fds++] = buffer->fd;
        }
        if (message->body_case == RAILMUX__SESSION__MESSAGE__BODY_LIFE_REPLY) {
                if (!session_life_ends(session, fds)) /* another call came after this one */
                        return session_transmit_failure(session, message->id, RMX_E_INVALID, "there are newer pipes");
                n_fds = SESSION_LIVES;
        }
        if (n_fds && session->fds_unread + n_fds > SESSION_FDS_UNREAD_MAX) {
                int unread = 0;

                if (ioctl(session->fd, SIOCOUTQ, &unread) == 0 && unread > 0)
                        return -ETOOMANYREFS; /* tried again by timer: room in the socket is not what is missing */
                session->fds_unread = 0;
        }
        r = frame_send(session->fd, &message->base, fds, n_fds);
        if (r == FRAME_OK)
                session->fds_unread += n_fds;
        if (r == FRAME_OK && message->body_case == RAILMUX__SESSION__MESSAGE__BODY_LIFE_REPLY)
                session_life_sent(session);
        return r;
}

static void session_send_trouble(struct session *session, int condition) {
        if (condition == FRAME_E_EOF)
                session_end(session, LOG_LEVEL_INFO, "the client closed the connection");
        else
                session_end(session, LOG_LEVEL_WARNING, "cannot send: %s",
                            condition > 0 ? frame_error_text(condition) : strerror(-condition));
}

static void session_wait(struct session *session, int condition) {
        int r;

        if (session_retryable(condition))
                r = event_add(session->timer_event, &session_retry_time);
        else
                r = event_add(session->write_event, NULL);
        if (r < 0)
                session_end(session, LOG_LEVEL_ERROR, "out of memory");
}

static void session_queue(struct session *session, const Railmux__Session__Message *message) {
        size_t bytes = railmux__session__message__get_packed_size(message);
        _cleanup_free_ uint8_t *packed = NULL;
        struct session_message *entry;

        if (session->n_queue >= SESSION_QUEUE_MESSAGES_MAX || session->queue_bytes + bytes > SESSION_QUEUE_BYTES_MAX) {
                session_end(session, LOG_LEVEL_WARNING, "it does not read its answers: %u messages were waiting",
                            session->n_queue);
                return;
        }
        packed = malloc(bytes + 1);
        entry = calloc(1, sizeof(*entry));
        if (packed && entry) {
                railmux__session__message__pack(message, packed);
                entry->message = railmux__session__message__unpack(NULL, bytes, packed);
        }
        if (!entry || !entry->message) {
                free(entry);
                session_end(session, LOG_LEVEL_ERROR, "out of memory");
                return;
        }
        entry->bytes = bytes;
        DL_APPEND(session->queue, entry);
        session->n_queue++;
        session->queue_bytes += bytes;
}

static void session_queue_pop(struct session *session) {
        struct session_message *entry = session->queue;

        DL_DELETE(session->queue, entry);
        session->n_queue--;
        session->queue_bytes -= entry->bytes;
        railmux__session__message__free_unpacked(entry->message, NULL);
        free(entry);
}

void session_queue_free(struct session *session) {
        while (session->queue)
                session_queue_pop(session);
}

void session_flush(struct session *session) {
        while (session->queue && !session->ending) {
                int r = session_transmit(session, session->queue->message);

                if (r == FRAME_E_AGAIN || session_retryable(r)) {
                        session_wait(session, r);
                        return;
                }
                if (r != FRAME_OK) {
                        session_send_trouble(session, r);
                        return;
                }
                session_queue_pop(session);
        }
        if (!session->queue && session->events_owed && !session->ending) {
                session->events_owed = false;
                comm_tell_again(session);
        }
}

bool session_takes_events(struct session *session) {
        if (session->n_queue < SESSION_QUEUE_MESSAGES_MAX / 2)
                return true;
        session->events_owed = true;
        return false;
}

void session_send(struct session *session, Railmux__Session__Message *message) {
        int r;

        if (session->ending)
                return;
        if (session->queue) {
                session_queue(session, message);
                return;
        }
        r = session_transmit(session, message);
        if (r == FRAME_E_AGAIN || session_retryable(r)) {
                session_queue(session, message);
                if (!session->ending)
                        session_wait(session, r);
        } else if (r != FRAME_OK) {
                session_send_trouble(session, r);
        }
}

void session_send_ack(struct session *session, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__Ack ack = RAILMUX__SESSION__ACK__INIT;

        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_ACK;
        message.ack = &ack;
        session_send(session, &message);
}

void session_send_failure(struct session *session, uint64_t id, uint32_t code, const char *format, ...) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__Failure failure = RAILMUX__SESSION__FAILURE__INIT;
        char text[256];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        failure.code = code;
        failure.message = text;
        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_FAILURE;
        message.failure = &failure;
        session_send(session, &message);
}

void session_send_event(struct session *session, Railmux__Session__Event *event) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;

        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_EVENT;
        message.event = event;
        session_send(session, &message);
}
