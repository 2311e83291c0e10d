/* SPDX-License-Identifier: MIT */
/*
 * The link to railmuxd.
 *
 * railmuxd may die and come back at any time; requests go on meanwhile. The link therefore holds no state that matters:
 * on each new connection it says what the executor has (HELLO, INVENTORY, READY), and railmuxd corrects the difference.
 * A railmuxd that does not read for a second counts as gone; the link connects again.
 *
 * A call that would take long is held until what it lacks has been made (link_ops.ready), and with it what must not
 * overtake it (held.c). With the connection goes what is held: the next railmuxd says it again.
 */
#include "executor/link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "executor/held.h"
#include "proto/frame.h"
#include "railmux/railmux.h"
#include "util/log.h"

#define LINK_RETRY_MS    20
#define LINK_PATIENCE    3 /* refusals in a row until it asks less often, up to 2^8 times */
#define LINK_SEND_MS     1000
#define LINK_TRIES       20 /* to send when the kernel has no memory: about a second */
#define LINK_DRAIN_MS    10
#define LINK_DRAIN_BOUND 200 /* times LINK_DRAIN_MS: well below the grace of whoever stops us */
#define LINK_DRAIN_TURNS 4   /* the bound begins anew when railmuxd was restarted; not for ever */

struct link {
        struct event_base *base;
        const struct link_service *service;
        char *socket;
        char *name;
        bool exit_with_daemon;

        int fd;
        struct held held;
        bool full; /* of held calls: nothing more is read */
        bool lost_logged;
        unsigned int refusals; /* in a row: connections that ended without a WELCOME */
        unsigned int drain_ticks, drain_turns;
        bool draining;
        int result; /* why the loop was left */

        struct event *read_event;
        struct event *retry_timer;
        struct event *stall_timer;
        struct event *drain_timer;
        struct event *attention_event; /* NULL: nothing to watch */
        struct event *tick_timer;      /* NULL: nothing to do */
        int tick_ms;                   /* ... after as many */
};

static const struct timeval *milliseconds(long ms, struct timeval *tv) {
        *tv = (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
        return tv;
}

static void link_connect(struct link *link);

/* Asks for another attempt; at once if there is no memory for a timer. A railmuxd that expects no executor of this name
 * (it serves other GPUs now) says so in its log each time. */
static void link_retry_later(struct link *link) {
        unsigned int more = link->refusals > LINK_PATIENCE ? link->refusals - LINK_PATIENCE : 0;
        struct timeval tv;

        if (event_add(link->retry_timer, milliseconds(LINK_RETRY_MS << (more < 8 ? more : 8), &tv)) < 0)
                event_active(link->retry_timer, EV_TIMEOUT, 0);
}

/* The kernel had no memory for it just now: no reason to give railmuxd up. */
static bool link_transient(int r) {
        return r == -ENOMEM || r == -ENOBUFS || r == -ETOOMANYREFS;
}

static void link_lose(struct link *link, const char *reason) {

        if (link->fd < 0)
                return;
        log_notice("executor %s: connection to railmuxd ended (%s); requests go on", link->name, reason);
        event_free(link->read_event);
        link->read_event = NULL;
        close(link->fd);
        link->fd = -1;
        held_clear(&link->held);
        link->full = false;
        link->lost_logged = true;
        link->refusals++;
        if (link->exit_with_daemon)
                event_base_loopbreak(link->base);
        else
                link_retry_later(link);
}

static int link_send(void *userdata, const Railmux__Executor__Message *message) {
        struct link *link = userdata;
        uint32_t tries = 0;
        int r;

        if (link->fd < 0)
                return -ENOTCONN;
        for (;;) {
                struct pollfd pfd = {.fd = link->fd, .events = POLLOUT};

                r = frame_send(link->fd, &message->base, NULL, 0);
                if (link_transient(r) && tries++ < LINK_TRIES) {
                        poll(NULL, 0, 1 << (tries < 6 ? tries : 6));
                        continue;
                }
                if (r != FRAME_E_AGAIN)
                        break;
                if (poll(&pfd, 1, LINK_SEND_MS) == 0)
                        break;
        }
        if (r)
                link_lose(link, r < 0 ? strerror(-r) : frame_error_text(r));
        return r;
}

static int link_hello(struct link *link) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__Hello hello = RAILMUX__EXECUTOR__HELLO__INIT;
        Railmux__Executor__Ready ready = RAILMUX__EXECUTOR__READY__INIT;
        const struct link_service *service = link->service;
        int r;

        hello.version_min = EXECUTOR_PROTOCOL_MIN;
        hello.version_max = EXECUTOR_PROTOCOL_MAX;
        hello.name = link->name;
        hello.pid = (uint32_t)getpid();
        service->ops->hello(service->object, &hello);
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_HELLO;
        message.hello = &hello;
        r = link_send(link, &message);
        if (!r)
                r = service->ops->inventory(service->object, link_send, link);
        if (!r) {
                message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_READY;
                message.ready = &ready;
                r = link_send(link, &message);
        }
        return r;
}

static void link_done(struct link *link, uint64_t id, struct dispatch_result *result) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__Done done = RAILMUX__EXECUTOR__DONE__INIT;

        done.code = result->code;
        done.message = result->message;
        done.epoch = result->epoch;
        done.lost = result->lost;
        done.in_use = result->in_use;
        done.has_rung = result->has_rung;
        done.rung = result->rung;
        message.id = id;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_DONE;
        message.done = &done;
        link_send(link, &message);
}

static void link_handle(struct link *link, const Railmux__Executor__Message *message, int *fds, unsigned int n_fds) {
        const struct link_service *service = link->service;
        struct dispatch_result result;

        switch (message->body_case) {
        case RAILMUX__EXECUTOR__MESSAGE__BODY_WELCOME:
                if (link->lost_logged)
                        log_notice("executor %s: connected to railmuxd again", link->name);
                link->lost_logged = false;
                link->refusals = 0;
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_QUERY:
                service->ops->statistics(service->object, message->id, link_send, link);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_DRAIN:
                result = (struct dispatch_result){0};
                link_done(link, message->id, &result);
                if (!message->drain->go)
                        link_drain(link);
                else if (service->ops->go)
                        service->ops->go(service->object);
                break;
        default:
                service->ops->call(service->object, message, fds, n_fds, &result);
                if (result.code)
                        log_warning("executor %s: call %d refused: %s", link->name, (int)message->body_case,
                                    result.message);
                link_done(link, message->id, &result);
                service->ops->failures(service->object, link_send, link);
                break;
        }
}

/* May the message be carried out now, as far as those before `until` and what it lacks are concerned? */
static bool link_ready(struct link *link, const struct held_call *until, const Railmux__Executor__Message *message) {
        const struct link_service *service = link->service;

        return !held_before(&link->held, until, message) &&
               (!service->ops->ready || service->ops->ready(service->object, message));
}

/* Not all that can be held is any more. Without memory for that the next tick tries it again: nothing else may come. */
static void link_read_on(struct link *link) {
        if (link->full && link->held.n < HELD_MAX && event_add(link->read_event, NULL) == 0)
                link->full = false;
}

/* Carries out what was held and need not be any more. */
static void link_resume(struct link *link) {
        const struct link_service *service = link->service;
        struct held_call *call, *next;

        if (service->ops->round)
                service->ops->round(service->object);
        for (call = link->held.calls; call; call = next) {
                const int fd = link->fd;

                next = call->next;
                if (!link_ready(link, call, call->message))
                        continue;
                held_remove(&link->held, call);
                link_handle(link, call->message, call->fds, call->n_fds);
                held_call_free(call);
                if (link->fd != fd) /* the answer could not be sent, and nothing is held any more */
                        return;
        }
        link_read_on(link);
}

static void link_readable(evutil_socket_t fd, short what, void *userdata) {
        struct link *link = userdata;

        (void)what;
        while (!link->full) {
                struct held_call *call = held_call_new();
                ProtobufCMessage *message;
                int r;

                if (!call)
                        return;
                r = frame_receive(fd, &railmux__executor__message__descriptor, &call->arena, &message, call->fds,
                                  &call->n_fds);
                if (r) {
                        held_call_free(call);
                        if (r != FRAME_E_AGAIN && !link_transient(r))
                                link_lose(link, r < 0 ? strerror(-r) : frame_error_text(r));
                        return; /* the loop calls again while there is something to read */
                }
                call->message = (const Railmux__Executor__Message *)message;
                if (!link_ready(link, NULL, call->message)) {
                        held_add(&link->held, call);
                        link->full = link->held.n >= HELD_MAX && event_del(link->read_event) == 0;
                        continue;
                }
                link_handle(link, call->message, call->fds, call->n_fds);
                held_call_free(call);
                if (link->fd != fd) /* the answer could not be sent */
                        return;
        }
}

static void link_tell_drain(struct link *link) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__Drain drain = RAILMUX__EXECUTOR__DRAIN__INIT;

        if (!link->draining || !link->service->tells_drain || link->fd < 0)
                return;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_DRAIN;
        message.drain = &drain;
        link_send(link, &message);
}

/* Nobody keeps the socket, which outlives a railmuxd that is restarted: nobody will come to say go. */
static void link_alone(struct link *link, int r) {
        if (link->draining && (r == -ECONNREFUSED || r == -ENOENT) && link->service->ops->go)
                link->service->ops->go(link->service->object);
}

static void link_connect(struct link *link) {
        int fd;

        fd = frame_connect(link->socket);
        if (fd < 0) {
                if (link->exit_with_daemon && link->lost_logged) {
                        event_base_loopbreak(link->base);
                        return;
                }
                link_alone(link, fd);
                link_retry_later(link);
                return;
        }
        link->read_event = event_new(link->base, fd, EV_READ | EV_PERSIST, link_readable, link);
        if (!link->read_event || event_add(link->read_event, NULL) < 0) {
                if (link->read_event)
                        event_free(link->read_event);
                link->read_event = NULL;
                close(fd);
                link_retry_later(link);
                return;
        }
        link->fd = fd;
        if (!link_hello(link))
                link->service->ops->failures(link->service->object, link_send, link);
        if (link->draining && ++link->drain_turns < LINK_DRAIN_TURNS)
                link->drain_ticks = 0;
        link_tell_drain(link); /* to one that may not have been told */
}

static void link_retry(evutil_socket_t fd, short what, void *userdata) {
        (void)fd;
        (void)what;
        link_connect(userdata);
}

static void link_stall_tick(evutil_socket_t fd, short what, void *userdata) {
        struct link *link = userdata;
        const struct link_service *service = link->service;

        (void)fd;
        (void)what;
        if (service->ops->check)
                service->ops->check(service->object);
        link_read_on(link);
        if (link->fd >= 0)
                service->ops->stalls(service->object, link_send, link);
}

static void link_attention(evutil_socket_t fd, short what, void *userdata) {
        struct link *link = userdata;
        const struct link_service *service = link->service;
        uint64_t value;

        (void)what;
        (void)!read(fd, &value, sizeof(value)); /* ours alone and non-blocking */
        if (service->ops->released)
                service->ops->released(service->object, link_send, link);
        if (link->fd >= 0)
                service->ops->failures(service->object, link_send, link);
        link_resume(link);
}

static void link_tick(evutil_socket_t fd, short what, void *userdata) {
        struct link *link = userdata;
        const struct link_service *service = link->service;
        struct timeval tv;
        int next_ms;

        (void)fd;
        (void)what;
        next_ms = service->ops->tick(service->object);
        if (next_ms < 0) {
                link->result = next_ms;
                event_base_loopbreak(link->base);
                return;
        }
        if (next_ms != link->tick_ms)
                event_add(link->tick_timer, milliseconds(next_ms, &tv)); /* it persists, with this from now on */
        link->tick_ms = next_ms;
        if (link->fd >= 0)
                service->ops->failures(service->object, link_send, link);
}

static void link_drain_tick(evutil_socket_t fd, short what, void *userdata) {
        struct link *link = userdata;

        (void)fd;
        (void)what;
        if (link->service->ops->drained(link->service->object) || ++link->drain_ticks >= LINK_DRAIN_BOUND)
                event_base_loopbreak(link->base);
}

void link_drain(struct link *link) {
        struct timeval tv;

        link->service->ops->drain(link->service->object);
        link->draining = true;
        link_tell_drain(link);
        if (link->fd < 0) {
                event_del(link->retry_timer);
                link_connect(link);
        }
        event_add(link->drain_timer, milliseconds(LINK_DRAIN_MS, &tv));
}

int link_result(const struct link *link) {
        return link->result;
}

int link_new(struct event_base *base, const struct link_service *service, const struct link_options *options,
             struct link **ret_link) {
        uint64_t stall_ns = service->stall_ns;
        struct timeval tv;
        struct link *link;

        link = calloc(1, sizeof(*link));
        if (!link)
                return -ENOMEM;
        link->base = base;
        link->service = service;
        link->fd = -1;
        link->exit_with_daemon = options->exit_with_daemon;
        link->socket = strdup(options->socket);
        link->name = strdup(options->name);
        link->retry_timer = evtimer_new(base, link_retry, link);
        link->stall_timer = event_new(base, -1, EV_PERSIST, link_stall_tick, link);
        link->drain_timer = event_new(base, -1, EV_PERSIST, link_drain_tick, link);
        if (service->attention_fd >= 0)
                link->attention_event =
                        event_new(base, service->attention_fd, EV_READ | EV_PERSIST, link_attention, link);
        if (service->tick_ms)
                link->tick_timer = event_new(base, -1, EV_PERSIST, link_tick, link);
        if (!link->socket || !link->name || !link->retry_timer || !link->stall_timer || !link->drain_timer ||
            (service->attention_fd >= 0 && !link->attention_event) || (service->tick_ms && !link->tick_timer)) {
                link_free(link);
                return -ENOMEM;
        }
        event_add(link->stall_timer, milliseconds(stall_ns < 200000000 ? (long)(stall_ns / 4000000) + 1 : 50, &tv));
        if (link->attention_event)
                event_add(link->attention_event, NULL);
        link->tick_ms = (int)service->tick_ms;
        if (link->tick_timer)
                event_add(link->tick_timer, milliseconds(link->tick_ms, &tv));
        link_connect(link);
        *ret_link = link;
        return 0;
}

struct link *link_free(struct link *link) {
        struct event **events[] = {&link->read_event,  &link->retry_timer,     &link->stall_timer,
                                   &link->drain_timer, &link->attention_event, &link->tick_timer};

        if (!link)
                return NULL;
        for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
                if (*events[i])
                        event_free(*events[i]);
        if (link->fd >= 0)
                close(link->fd);
        held_clear(&link->held);
        free(link->socket);
        free(link->name);
        free(link);
        return NULL;
}
