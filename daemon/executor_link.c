/* SPDX-License-Identifier: MIT */
/*
 * The connection to an executor.
 *
 * An executor connects and reconnects for ever; it may be a new process, or one that outlived this daemon or a broken
 * connection. So nothing about it is remembered over a disconnect except who it was: its HELLO and INVENTORY say what
 * it holds, and executor_sync.c brings it level with the objects of the manager. A connection is a "stranger" until its
 * HELLO names the executor; only one connection per name is served.
 *
 * Calls wait in `outgoing` until the socket and the window take them (in order, so an object is always announced before
 * what builds on it), then in `pending` until DONE; only what ends something passes buffers of others. On a disconnect
 * both lists are dropped: what has to be said again follows from the objects. Some calls let others past, since
 * an executor of emulated GPUs would only keep them until it has verified a comm's plans, and they would fill the
 * window at the cost of everybody else: comms, when EXECUTOR_ATTACHES of them are being attached already, the rings
 * of sessions of which a comm is being attached, or was passed, and the end of a comm that is being attached. (Its
 * abort and its ranks that leave are told: the attach that waits takes note of them.) All else may pass a comm: who is
 * attached later is attached as it is then.
 *
 * An unplanned death is counted when another process turns up under the same name. At EOF it cannot be told from an
 * executor that merely lost its connection.
 */
#include "daemon/executor_link.h"

#include "daemon/buffer.h"
#include "daemon/comm.h"
#include "daemon/comm_unserved.h"
#include "daemon/executor_op.h"
#include "daemon/executor_report.h"
#include "daemon/executor_sync.h"
#include "daemon/handover.h"
#include "daemon/manager.h"
#include "daemon/reach.h"
#include "daemon/session.h"
#include "daemon/state.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#define EXECUTOR_MESSAGES_PER_TURN 64u
#define QUERY_QUEUED               UINT64_MAX

static const struct timeval executor_hello_time = {.tv_sec = 5};
static const struct timeval executor_retry_time = {.tv_usec = 20000};

static void executor_link_dispatch(evutil_socket_t socket_fd, short what, void *data);

static void executor_link_writable(evutil_socket_t socket_fd, short what, void *data) {
        (void)socket_fd;
        (void)what;
        executor_link_flush(data);
}

static void executor_link_timer(evutil_socket_t socket_fd, short what, void *data) {
        struct executor_link *link = data;

        (void)socket_fd;
        (void)what;
        if (link->state == EXECUTOR_HELLO) {
                log_warning("executor socket: pid %d %s", (int)link->pid,
                            link->dismissed ? "does not end" : "said no HELLO within 5 s");
                executor_link_free(link);
                return;
        }
        executor_link_flush(link);
}

int executor_link_new(struct manager *manager, const char *name, uint32_t first_gpu, uint32_t n_gpus,
                      struct executor_link **ret_link) {
        struct executor_link *link, *other;
        uint32_t index = 0;

        DL_FOREACH(manager->links, other)
                index++;
        if (index >= MANAGER_LINKS_MAX || strlen(name) >= sizeof(link->name))
                return -EINVAL;
        link = calloc(1, sizeof(*link));
        if (!link)
                return -ENOMEM;
        link->manager = manager;
        link->fd = link->pidfd = link->latch_fd = -1;
        link->index = index;
        link->first_gpu = first_gpu;
        link->n_gpus = n_gpus;
        link->state = EXECUTOR_GONE;
        link->gone_ns = clock_now_ns();
        link->state_slot = STATE_SLOT_NONE;
        snprintf(link->name, sizeof(link->name), "%s", name);
        DL_APPEND(manager->links, link);
        *ret_link = link;
        return 0;
}

static void executor_link_close(struct executor_link *link) {
        if (link->read_event)
                event_free(link->read_event);
        if (link->write_event)
                event_free(link->write_event);
        if (link->retry_event)
                event_free(link->retry_event);
        if (link->stand_event)
                event_free(link->stand_event);
        link->read_event = link->write_event = link->retry_event = link->stand_event = NULL;
        if (link->fd >= 0)
                close(link->fd);
        link->fd = -1;
}

int executor_link_open(struct executor_link *link, int fd) {
        struct event_base *base = link->manager->base;

        link->fd = fd;
        link->read_event = event_new(base, fd, EV_READ | EV_PERSIST, executor_link_dispatch, link);
        link->write_event = event_new(base, fd, EV_WRITE, executor_link_writable, link);
        link->retry_event = evtimer_new(base, executor_link_timer, link);
        if (!link->read_event || !link->write_event || !link->retry_event || event_add(link->read_event, NULL) < 0)
                return -ENOMEM;
        return 0;
}

int executor_link_accept(struct manager *manager, int fd, pid_t pid) {
        struct executor_link *link = calloc(1, sizeof(*link));

        if (!link) {
                close(fd);
                return -ENOMEM;
        }
        link->manager = manager;
        link->pidfd = link->latch_fd = -1;
        link->pid = pid;
        link->state = EXECUTOR_HELLO;
        link->state_slot = STATE_SLOT_NONE;
        DL_APPEND(manager->strangers, link);
        if (executor_link_open(link, fd) < 0 || evtimer_add(link->retry_event, &executor_hello_time) < 0) {
                executor_link_free(link);
                return -ENOMEM;
        }
        return 0;
}

static void executor_link_drop_calls(struct executor_link *link) {
        struct executor_op *op, *tmp;

        DL_FOREACH_SAFE(link->outgoing, op, tmp) {
                DL_DELETE(link->outgoing, op);
                free(op);
        }
        DL_FOREACH_SAFE(link->pending, op, tmp) {
                DL_DELETE(link->pending, op);
                free(op);
        }
        link->n_pending = 0;
        link->n_owed = 0;
        link->query_id = 0;
}

struct executor_link *executor_link_free(struct executor_link *link) {
        if (!link)
                return NULL;
        executor_link_close(link);
        executor_link_drop_calls(link);
        if (link->state == EXECUTOR_HELLO)
                DL_DELETE(link->manager->strangers, link);
        else
                DL_DELETE(link->manager->links, link);
        executor_link_unwatch(link);
        pool_deinit(&link->pool);
        cleanup_close(&link->latch_fd);
        free(link);
        return NULL;
}

void executor_links_known(const struct manager *manager, struct plan_known *ret_known) {
        const struct executor_link *link;

        plan_known_all(ret_known);
        DL_FOREACH(manager->links, link) {
                plan_known_meet(ret_known, link->known.widenings, link->known.algorithms);
        }
}

const char *executor_link_state_name(const struct executor_link *link) {
        if (link->draining && executor_link_connected(link))
                return "draining";
        switch (link->state) {
        case EXECUTOR_READY:
                return "ready";
        case EXECUTOR_INVENTORY:
        case EXECUTOR_ATTACHING:
                return "attaching";
        default:
                return "gone";
        }
}

void executor_link_disconnect(struct executor_link *link, const char *reason) {
        assert(link->state != EXECUTOR_HELLO);
        if (link->state == EXECUTOR_GONE)
                return;
        log_fields(link->draining ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING,
                   (const char *const[]){"EXECUTOR", link->name, NULL}, "executor %s (pid %d): connection ended: %s",
                   link->name, (int)link->pid, reason);
        executor_link_close(link);
        executor_link_drop_calls(link);
        link->state = EXECUTOR_GONE;
        link->gone_ns = link->progress_ns = clock_now_ns();
        executor_sync_forget(link);
        manager_refresh_dropped(link);
}

static void executor_link_done(struct executor_link *link, uint64_t id, const Railmux__Executor__Done *done) {
        struct executor_op *op, *later;

        DL_FOREACH(link->pending, op) {
                if (op->id == id)
                        break;
        }
        if (!op) {
                executor_link_disconnect(link, "DONE for a call that was not made");
                return;
        }
        DL_DELETE(link->pending, op);
        link->n_pending--;
        if (op->owed)
                link->n_owed--;
        link->heard_ns = clock_now_ns();
        if (link->state == EXECUTOR_ATTACHING)
                link->progress_ns = link->heard_ns;
        DL_FOREACH(link->pending, later) {
                if (later->id > id)
                        later->turn_ns = link->heard_ns;
        }
        executor_op_done(link, op, done);
        free(op);
        executor_link_flush(link);
}

static void executor_link_statistics(struct executor_link *link, uint64_t id,
                                     const Railmux__Executor__Statistics *statistics) {
        struct executor_op *op;

        executor_report_statistics(link, statistics);
        if (statistics->more || id == 0 || id != link->query_id)
                return;
        link->query_id = 0;
        DL_FOREACH(link->pending, op) {
                if (op->id == id)
                        break;
        }
        if (op) {
                DL_DELETE(link->pending, op);
                link->n_pending--;
                free(op);
        }
        manager_refresh_answered(link);
        executor_link_flush(link);
}

/* Returns false when the link must not be touched any more in this turn. */
static bool executor_link_message(struct executor_link *link, const Railmux__Executor__Message *message) {
        struct session *session;
        struct buffer *buffer;
        struct comm *comm;

        if (link->dismissed)
                return true;
        if (link->state == EXECUTOR_HELLO) {
                if (message->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_HELLO) {
                        executor_link_hello(link, message->hello);
                } else {
                        log_warning("executor socket: pid %d did not begin with HELLO", (int)link->pid);
                        executor_link_free(link);
                }
                return false;
        }
        switch (message->body_case) {
        case RAILMUX__EXECUTOR__MESSAGE__BODY_INVENTORY:
                if (link->state != EXECUTOR_INVENTORY)
                        break;
                executor_sync_inventory(link, message->inventory);
                return true;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_READY:
                if (link->state != EXECUTOR_INVENTORY)
                        break;
                executor_sync_ready(link);
                return link->state != EXECUTOR_GONE;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_DONE:
                if (!executor_link_connected(link))
                        break;
                executor_link_done(link, message->id, message->done);
                return link->state != EXECUTOR_GONE;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_STATISTICS:
                executor_link_statistics(link, message->id, message->statistics);
                return link->state != EXECUTOR_GONE;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_STALL:
                executor_report_stall(link, message->stall);
                return true;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_FAILED:
                comm = manager_comm(link->manager, message->comm_failed->comm);
                if (comm)
                        comm_broken(comm, executor_link_mask(link), message->comm_failed->code,
                                    message->comm_failed->rank, message->comm_failed->message);
                return true;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_RELEASED:
                session = manager_session(link->manager, message->buffer_released->session);
                buffer = session ? buffer_find(session, message->buffer_released->buffer) : NULL;
                if (buffer)
                        buffer_released(buffer, executor_link_mask(link));
                return true;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_DRAIN: /* it tells that its end is planned */
                handover_begin(link);
                return link->state != EXECUTOR_GONE;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_LEVEL:
                handover_level(link, message->comm_level);
                return link->state != EXECUTOR_GONE;
        default:
                break;
        }
        executor_link_disconnect(link, "a message that is not expected now");
        return false;
}

void executor_link_dismissed(struct executor_link *link) {
        comm_unserved_ended(link->manager, UINT64_C(1) << link->first_gpu);
        executor_link_free(link);
}

/* It has closed the connection; its kernels end after that, and then its process. */
static void executor_link_hung_up(struct executor_link *link) {
        if (link->pidfd < 0) { /* it cannot be watched: that is all that will be known of it */
                executor_link_dismissed(link);
                return;
        }
        event_free(link->read_event);
        link->read_event = NULL;
}

static void executor_link_dispatch(evutil_socket_t socket_fd, short what, void *data) {
        struct executor_link *link = data;
        LOOP_HOLD(&link->manager->watch, "messages of an executor");

        (void)socket_fd;
        (void)what;
        for (unsigned int i = 0; i < EXECUTOR_MESSAGES_PER_TURN; i++) {
                struct frame_arena arena;
                ProtobufCMessage *message;
                int fds[FRAME_FDS_MAX];
                unsigned int n_fds = 0;
                bool go_on;
                int r;

                /* Not the link's own: HELLO frees the stranger while its message is still in use. */
                frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
                r = frame_receive(link->fd, &railmux__executor__message__descriptor, &arena, &message, fds, &n_fds);
                if (r == FRAME_E_AGAIN)
                        return;
                if (r != FRAME_OK) {
                        const char *reason = r > 0 ? frame_error_text(r) : strerror(-r);

                        if (link->dismissed)
                                executor_link_hung_up(link);
                        else if (link->state == EXECUTOR_HELLO)
                                executor_link_free(link);
                        else
                                executor_link_disconnect(link, reason);
                        return;
                }
                frame_close_fds(fds, n_fds); /* executors have none to give */
                go_on = executor_link_message(link, (const Railmux__Executor__Message *)message);
                protobuf_c_message_free_unpacked(message, &arena.allocator);
                if (!go_on)
                        return;
        }
}

bool executor_link_queried(const struct executor_link *link) {
        return link->query_id != 0 && link->query_id != QUERY_QUEUED;
}

void executor_link_query(struct executor_link *link) {
        if (executor_link_connected(link) && link->query_id == 0) {
                link->query_id = QUERY_QUEUED; /* the number comes when it is sent */
                executor_op_push(link, EXECUTOR_OP_QUERY, 0, 0);
        }
}

/* Without memory for waiting it is tried again at once: slowly is not worth a connection. */
static void executor_link_wait(struct executor_link *link, struct event *event, const struct timeval *time) {
        if (event_add(event, time) < 0)
                event_active(link->retry_event, EV_TIMEOUT, 0);
}

static bool executor_link_attaching(const struct executor_link *link, uint64_t comm) {
        const struct executor_op *op;

        DL_FOREACH(link->pending, op) {
                if (op->kind == EXECUTOR_OP_COMM_ATTACH && op->object == comm)
                        return true;
        }
        return false;
}

static bool executor_link_attaches_enough(const struct executor_link *link) {
        const struct executor_op *op;
        unsigned int n = 0;

        DL_FOREACH(link->pending, op)
                n += op->kind == EXECUTOR_OP_COMM_ATTACH;
        return n >= EXECUTOR_ATTACHES;
}

/* Would the executor only keep it? See the file comment. *passed: a comm has been left for later before it. */
static bool executor_link_waits(struct executor_link *link, const struct executor_op *op, bool *passed) {
        const uint64_t mask = executor_link_mask(link);
        const struct comm_member *member;
        const struct session *session;

        if (link->manager->on_device)
                return false;
        if (op->kind == EXECUTOR_OP_COMM_ATTACH)
                return *passed = *passed || executor_link_attaches_enough(link);
        if (op->kind == EXECUTOR_OP_COMM_DETACH)
                return executor_link_attaching(link, op->object);
        session = op->kind == EXECUTOR_OP_RING_ATTACH ? manager_session(link->manager, op->object) : NULL;
        if (!session)
                return false;
        DL_FOREACH(session->members, member) {
                const struct attachment *attachment = &member->comm->attachment;

                if (!(attachment->acked & mask) &&
                    ((*passed && attachment->sent & mask) || executor_link_attaching(link, member->comm->number)))
                        return true;
        }
        return false;
}

/* The call to be sent next; NULL: none. */
static struct executor_op *executor_link_next(struct executor_link *link) {
        struct executor_op *op;
        bool passed = false;

        if (!executor_link_connected(link) || link->n_pending >= EXECUTOR_WINDOW)
                return NULL;
        DL_FOREACH(link->outgoing, op) {
                if (!executor_link_waits(link, op, &passed))
                        return op;
        }
        return NULL;
}

void executor_link_flush(struct executor_link *link) {
        struct executor_op *op;

        while ((op = executor_link_next(link))) {
                bool sent = false;
                int condition = 0;

                op->id = link->next_id + 1;
                if (!executor_op_send(link, op, &sent, &condition)) {
                        if (condition == FRAME_E_AGAIN)
                                executor_link_wait(link, link->write_event, NULL);
                        else if (condition == -ETOOMANYREFS || condition == -ENOBUFS || condition == -ENOMEM ||
                                 condition == -EMFILE || condition == -ENFILE)
                                executor_link_wait(link, link->retry_event, &executor_retry_time);
                        else if (condition > 0)
                                executor_link_disconnect(link, frame_error_text(condition));
                        else
                                executor_link_disconnect(link, strerror(-condition));
                        return;
                }
                DL_DELETE(link->outgoing, op);
                if (!sent) {
                        if (op->owed)
                                link->n_owed--;
                        reach_dropped(link, op);
                        free(op);
                        continue;
                }
                link->next_id++;
                op->turn_ns = clock_now_ns();
                DL_APPEND(link->pending, op);
                link->n_pending++;
                if (op->kind == EXECUTOR_OP_QUERY)
                        link->query_id = op->id;
        }
        if (link->state == EXECUTOR_ATTACHING && link->n_owed == 0) {
                link->state = EXECUTOR_READY;
                link->progress_ns = clock_now_ns();
                if (link->adopted)
                        manager_place_later(link->manager);
                link->adopted = false;
                log_fields(LOG_LEVEL_INFO, (const char *const[]){"EXECUTOR", link->name, NULL},
                           "executor %s (pid %d, %u GPUs, %u workers) is ready", link->name, (int)link->pid,
                           link->n_gpus, link->workers);
        }
}
