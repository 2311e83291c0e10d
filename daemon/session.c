/* SPDX-License-Identifier: MIT */
/*
 * A session is one connection of one client process.
 *
 * Its life: greeting (accepted, charged, no HELLO yet) -> session (numbered, recorded, known to executors) -> end. The
 * end comes with EOF on the socket, with the death of the process (pidfd: it sees the death also when a forked child
 * still holds the socket; before both, session_life.c), or with a breach of the protocol. Whatever is wrong with one
 * session ends that session and nothing else.
 *
 * session_end() may be called at any depth below a dispatch, so it only marks the session and lets the loop free it in
 * its next turn.
 *
 * A process over its tenant's limit is told so in the answer to its HELLO. Until then it is held without a charge, for
 * at most five seconds and in a bounded number.
 */
#include "daemon/session.h"
#include "daemon/closer.h"

#include "daemon/buffer.h"
#include "daemon/comm.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/manager.h"
#include "daemon/record.h"
#include "daemon/session_dispatch.h"
#include "daemon/session_life.h"
#include "daemon/session_ring.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "util/clock.h"
#include "util/log.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define SESSION_UNREAD_MAX  1024u /* packets; Linux lets fewer wait */
#define SESSION_REFUSED_MAX 64u   /* connections over the limit that may wait for their HELLO */

static const struct timeval session_hello_time = {.tv_sec = 5};

/* The kernel's own handle of the peer where it has one; else by number, which is right as long as the peer lives. */
static int session_open_pidfd(int fd, pid_t pid) {
        int pidfd = -1;
        socklen_t size = sizeof(pidfd);

        if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0 && pidfd >= 0)
                return pidfd;
        if (pid <= 0)
                return -1;
        return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void session_log(const struct session *session, int level, const char *text, const char *reason) {
        char id[24], pid[16], uid[16];

        snprintf(id, sizeof(id), "%" PRIu64, session->id);
        snprintf(pid, sizeof(pid), "%d", (int)session->pid);
        snprintf(uid, sizeof(uid), "%u", (unsigned int)session->uid);
        log_fields(level,
                   (const char *const[]){"SESSION", id, "PID", pid, "UID", uid, "TENANT", session->tenant->name, NULL},
                   "session %s (%s, pid %s) %s%s", id, session->name[0] ? session->name : "unnamed", pid, text, reason);
}

/* Also those of a packet that is refused. */
static void session_close_fds(struct session *session, const int *fds, unsigned int n_fds) {
        for (unsigned int k = 0; k < n_fds; k++)
                closer_close_for(session->manager->closer, fds[k], &session->tenant->closing);
}

/* Then nothing more is read of a session that may send descriptors, or whose kernel lets it do so before HELLO. */
static bool session_closes_many(struct session *session) {
        if ((session->id != 0 && !(session->features & SESSION_FEATURE_CHUNKS)) ||
            tenant_closing(session->tenant) <= SESSION_CLOSES_MANY)
                return false;
        closer_settle(session->manager->closer);
        return tenant_closing(session->tenant) > SESSION_CLOSES_MANY;
}

static void session_readable(evutil_socket_t socket_fd, short what, void *data) {
        struct session *session = data;
        LOOP_HOLD(&session->manager->watch, "a client's messages");

        (void)socket_fd;
        (void)what;
        for (unsigned int i = 0; i < SESSION_MESSAGES_PER_TURN && !session->ending; i++) {
                ProtobufCMessage *message;
                int fds[FRAME_FDS_PACKET];
                unsigned int n_fds = 0;
                int r;

                if (session_closes_many(session)) {
                        session_end(session, LOG_LEVEL_WARNING,
                                    "%" PRIu64 " descriptors that processes of tenant %s sent are not closed yet",
                                    tenant_closing(session->tenant), session->tenant->name);
                        return;
                }
                frame_arena_init(&session->arena, FRAME_UNPACK_BYTES_MAX);
                r = frame_receive_packet(session->fd, &railmux__session__message__descriptor, &session->arena, &message,
                                         fds, &n_fds);
                if (r != FRAME_OK)
                        session_close_fds(session, fds, n_fds);
                if (r == FRAME_E_AGAIN || r == -EINTR)
                        return;
                if (r == FRAME_E_EOF) {
                        session_end(session, LOG_LEVEL_INFO, "the client closed the connection");
                        return;
                }
                if (r == -ENOMEM || r == -ENOBUFS) {
                        session_end(session, LOG_LEVEL_ERROR, "out of memory");
                        return;
                }
                if (r != FRAME_OK) {
                        if (r > 0)
                                session->manager->counters.protocol_errors++;
                        session_end(session, LOG_LEVEL_WARNING, "protocol error: %s",
                                    r > 0 ? frame_error_text(r) : strerror(-r));
                        return;
                }
                if (n_fds > 0 && !(session->features & SESSION_FEATURE_CHUNKS)) {
                        session->manager->counters.protocol_errors++;
                        session_end(session, LOG_LEVEL_WARNING, "protocol error: it sent file descriptors");
                } else {
                        session->sent_fds = fds;
                        session->n_sent_fds = n_fds;
                        session->sent_kept = false;
                        session->manager->counters.calls++;
                        session_dispatch(session, (const Railmux__Session__Message *)message);
                        session->sent_fds = NULL;
                        session->n_sent_fds = 0;
                }
                if (session->sent_kept)
                        frame_close_fds(fds, n_fds);
                else
                        session_close_fds(session, fds, n_fds);
                session->sent_kept = false;
                protobuf_c_message_free_unpacked(message, &session->arena.allocator);
        }
}

static void session_writable(evutil_socket_t socket_fd, short what, void *data) {
        (void)socket_fd;
        (void)what;
        session_flush(data);
}

static void session_process_ended(evutil_socket_t socket_fd, short what, void *data) {
        struct session *session = data;
        LOOP_HOLD(&session->manager->watch, "the end of a client");

        (void)socket_fd;
        (void)what;
        event_del(session->pidfd_event);
        session_end(session, LOG_LEVEL_INFO, "the process ended");
}

static void session_timer(evutil_socket_t socket_fd, short what, void *data) {
        struct session *session = data;

        (void)socket_fd;
        (void)what;
        if (session->ending) {
                session_free(session);
        } else if (session->id == 0) {
                session_end(session, LOG_LEVEL_WARNING, "no HELLO within 5 s");
                session_free(session);
        } else {
                session_flush(session);
        }
}

void session_end(struct session *session, int level, const char *format, ...) {
        va_list args;

        if (session->ending)
                return;
        session->ending = true;
        session->end_level = level;
        va_start(args, format);
        vsnprintf(session->end_reason, sizeof(session->end_reason), format, args);
        va_end(args);
        if (session->read_event)
                event_del(session->read_event);
        if (session->timer_event)
                event_active(session->timer_event, EV_TIMEOUT, 0); /* adding one could fail for want of memory */
}

static void session_refuse(struct session *session) {
        struct session *other, *oldest = NULL;
        unsigned int n = 0;

        session->refused = true;
        session->manager->counters.sessions_refused++;
        charge_release(&session->charge_fds);
        charge_release(&session->charge_session);
        DL_FOREACH(session->manager->greetings, other) {
                if (!other->refused || other->ending)
                        continue;
                if (!oldest)
                        oldest = other;
                n++;
        }
        if (n > SESSION_REFUSED_MAX)
                session_end(oldest, LOG_LEVEL_DEBUG, "too many connections over the limit");
}

/* Without an answer: what it sends may be more such descriptors. */
static void session_refuse_unread(struct session *session) {
        session_refuse(session);
        tenant_refused_slow(session->tenant, session->refusal);
        session_end(session, LOG_LEVEL_DEBUG, "%s", session->refusal);
}

int session_new(struct manager *manager, int fd, const struct tenant_identity *identity, struct session **ret_session) {
        struct session *session = calloc(1, sizeof(*session));

        if (!session) {
                close(fd);
                return -ENOMEM;
        }
        session->manager = manager;
        session->tenant = tenant_choose(manager, identity);
        session->pid = identity->pid;
        session->uid = identity->uid;
        session->gid = identity->gid;
        session->opened_ns = clock_now_ns();
        session->fd = fd;
        session->pidfd = -1;
        session_life_init(session);
        session->next_handle = 1;
        session->state_slot = STATE_SLOT_NONE;
        DL_APPEND(manager->greetings, session);
        closer_settle(manager->closer);
        if (!identity->kept && tenant_closes_slowly(session->tenant, session->refusal, sizeof(session->refusal)))
                session_refuse_unread(session);
        else if (tenant_charge(session->tenant, &session->charge_session, CHARGE_SESSIONS, 1, session->refusal,
                               sizeof(session->refusal)) ||
                 tenant_charge(session->tenant, &session->charge_fds, CHARGE_FDS, 2, session->refusal,
                               sizeof(session->refusal)))
                session_refuse(session);
        else
                session->pidfd = session_open_pidfd(fd, session->pid);
        *ret_session = session;
        return 0;
}

int session_start(struct session *session) {
        struct event_base *base = session->manager->base;

        session->read_event = event_new(base, session->fd, EV_READ | EV_PERSIST, session_readable, session);
        session->write_event = event_new(base, session->fd, EV_WRITE, session_writable, session);
        session->timer_event = evtimer_new(base, session_timer, session);
        if (!session->read_event || !session->write_event || !session->timer_event ||
            event_add(session->read_event, NULL) < 0)
                return -ENOMEM;
        if (session->id == 0 && evtimer_add(session->timer_event, &session_hello_time) < 0)
                return -ENOMEM;
        if (session->pidfd >= 0) {
                session->pidfd_event =
                        event_new(base, session->pidfd, EV_READ | EV_PERSIST, session_process_ended, session);
                if (!session->pidfd_event || event_add(session->pidfd_event, NULL) < 0)
                        return -ENOMEM;
        }
        if (session->ending) /* it was ended before there was a timer to free it */
                event_active(session->timer_event, EV_TIMEOUT, 0);
        return 0;
}

int session_register(struct session *session, uint64_t id) {
        if (manager_session(session->manager, id))
                return -EEXIST;
        session->id = id;
        HASH_ADD(hh, session->manager->sessions, id, sizeof(session->id), session);
        if (!session->hh.tbl) { /* no memory for the table */
                session->id = 0;
                return -ENOMEM;
        }
        DL_DELETE(session->manager->greetings, session);
        if (session->timer_event)
                evtimer_del(session->timer_event);
        return 0;
}

static void session_unlink(struct session *session) {
        struct manager *manager = session->manager;
        struct executor_link *link;
        struct buffer *buffer, *tmp;

        if (session->id == 0) {
                DL_DELETE(manager->greetings, session);
                return;
        }
        HASH_DELETE(hh, manager->sessions, session);
        /* Executors first: what aborts the comms of a dead rank should not wait behind our own tidying. */
        if (!manager->stopping) {
                for (link = manager->links; link; link = link->next)
                        executor_op_push(link, EXECUTOR_OP_SESSION_DETACH, session->id, 0);
        }
        while (session->members)
                comm_member_lost(session->members);
        while (session->rings)
                session_ring_free(session->rings);
        HASH_ITER(hh, session->buffers, buffer, tmp)
                buffer_free(buffer);
        session_life_close(session);
        record_drop_session(session);
}

/* Does one of the unread packets of a socket that is shut down carry descriptors? Others are taken away. A packet has
 * credentials, by which it is told from the end, and there is no room for what else it has. */
static bool session_carries_fds(int fd) {
        const int passes = 1;

        if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &passes, sizeof(passes)) < 0)
                return true;
        for (unsigned int i = 0; i < SESSION_UNREAD_MAX; i++) {
                union {
                        struct cmsghdr align;
                        char bytes[CMSG_SPACE(sizeof(struct ucred))];
                } control;
                struct msghdr header = {.msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};

                if (recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT) < 0) {
                        if (errno == ECONNRESET || errno == EINTR)
                                continue;
                        return errno != EAGAIN;
                }
                if (header.msg_flags & MSG_CTRUNC)
                        return true;
                if (!CMSG_FIRSTHDR(&header))
                        return false;
                (void)recv(fd, NULL, 0, MSG_DONTWAIT);
        }
        return true;
}

/* The close of a socket does not hang by itself, but its unread packets may carry what does; such a one waits with what
 * its tenant sent, and no other does. */
static void session_close(struct session *session) {
        struct manager *manager = session->manager;

        if (manager->stopping) { /* it lives on */
                closer_close(manager->closer, session->fd);
                return;
        }
        shutdown(session->fd, SHUT_RDWR); /* now, however long the close takes */
        if (session_carries_fds(session->fd))
                closer_close_for(manager->closer, session->fd, &session->tenant->closing);
        else
                closer_close(manager->socket_closer, session->fd);
}

struct session *session_free(struct session *session) {
        if (!session)
                return NULL;
        session->ending = true;
        if (session->id != 0 && !session->manager->stopping) {
                session->manager->counters.sessions_closed++;
                if (session->end_level < LOG_LEVEL_INFO)
                        session->manager->counters.sessions_dropped++;
                session_log(session, session->end_level, "closed: ", session->end_reason);
        } else if (!session->manager->stopping) {
                session_log(session, session->end_level == LOG_LEVEL_INFO ? LOG_LEVEL_DEBUG : session->end_level,
                            "not opened: ", session->end_reason);
        }
        session_unlink(session);
        session_queue_free(session);
        if (session->read_event)
                event_free(session->read_event);
        if (session->write_event)
                event_free(session->write_event);
        if (session->pidfd_event)
                event_free(session->pidfd_event);
        if (session->timer_event)
                event_free(session->timer_event);
        if (session->pidfd >= 0)
                close(session->pidfd);
        session_close(session);
        charge_release(&session->charge_fds);
        charge_release(&session->charge_session);
        free(session);
        return NULL;
}

void session_log_opened(const struct session *session) {
        session_log(session, LOG_LEVEL_INFO, "opened", "");
}
