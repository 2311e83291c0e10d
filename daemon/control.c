/* SPDX-License-Identifier: MIT */
/*
 * Operators ask one thing at a time per connection; an answer is a row of Reply messages. It is built whole when it is
 * asked for (or when the executors' fresh statistics have come, for those that show them), so its rows belong together,
 * and sent as fast as the reader takes it. A reader that does not, or that asks nothing, is dropped after a while:
 * places are few.
 *
 * Text from clients (names) goes out as it is: protobuf wants UTF-8, and readers have to make it safe for their
 * terminal.
 */
#include "daemon/control.h"

#include "daemon/closer.h"
#include "daemon/control_answer.h"
#include "daemon/control_drain.h"
#include "daemon/control_peers.h"
#include "daemon/control_rails.h"
#include "daemon/control_rows.h"
#include "daemon/control_topology.h"
#include "daemon/listener.h"
#include "daemon/manager.h"
#include "daemon/metrics.h"
#include "proto/frame.h"
#include "railmux/railmux.h"
#include "util/log.h"
#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#define CONTROL_CLIENTS_MAX 32u

static const struct timeval control_patience = {.tv_sec = 30};
static const struct timeval control_look = {.tv_usec = 20000}; /* at an executor that is being replaced */

struct control_client {
        struct control_client *next, *prev;
        struct control *control;
        struct event *read_event, *write_event, *drain_event;
        int fd;
        void (*rows)(struct control_answer *answer,
                     struct manager *manager); /* waits for statistics, then builds these */
        struct control_drain drain;            /* waits for this, if its link is set */
        struct control_answer answer;          /* on its way out */
        size_t n_sent;
        struct frame_arena arena;
};

struct control {
        struct manager *manager;
        struct listener *listener;
        struct control_client *clients; /* utlist */
        unsigned int n_clients;
        struct control_topology topology;
};

static struct control_client *control_client_free(struct control_client *client) {
        if (!client)
                return NULL;
        if (client->rows)
                manager_refresh_cancel(client->control->manager, client);
        if (client->read_event)
                event_free(client->read_event);
        if (client->write_event)
                event_free(client->write_event);
        if (client->drain_event)
                event_free(client->drain_event);
        control_drain_deinit(&client->drain);
        control_answer_deinit(&client->answer);
        if (client->fd >= 0) {
                shutdown(client->fd, SHUT_RDWR);
                closer_close(client->control->manager->closer, client->fd); /* unread packets may carry descriptors */
        }
        free(client);
        return NULL;
}

static void control_client_drop(struct control_client *client) {
        DL_DELETE(client->control->clients, client);
        client->control->n_clients--;
        control_client_free(client);
}

/* May drop the client. */
static void control_client_flush(struct control_client *client) {
        while (client->n_sent < client->answer.n_replies) {
                int r = frame_send(client->fd, &client->answer.replies[client->n_sent]->base, NULL, 0);

                if (r == FRAME_E_AGAIN) {
                        if (event_add(client->write_event, &control_patience) < 0)
                                control_client_drop(client);
                        return;
                }
                if (r) {
                        control_client_drop(client);
                        return;
                }
                client->n_sent++;
        }
        control_answer_deinit(&client->answer);
        client->n_sent = 0;
        if (event_add(client->read_event, &control_patience) < 0)
                control_client_drop(client);
}

static void control_client_answer(struct control_client *client) {
        if (client->answer.error)
                control_answer_fail(&client->answer, RMX_E_NO_MEMORY, "railmuxd is out of memory");
        control_answer_finish(&client->answer);
        if (client->answer.error)
                control_client_drop(client);
        else
                control_client_flush(client);
}

static void control_client_refreshed(void *data) {
        struct control_client *client = data;

        client->rows(&client->answer, client->control->manager);
        client->rows = NULL;
        control_client_answer(client);
}

/* For rows that show what executors count. */
static void control_client_refresh(struct control_client *client,
                                   void (*rows)(struct control_answer *answer, struct manager *manager)) {
        int r;

        client->rows = rows;
        r = manager_refresh(client->control->manager, control_client_refreshed, client);
        if (r < 0) {
                client->rows = NULL;
                client->answer.error = r;
                control_client_answer(client);
        }
}

static void control_client_reload(struct control_client *client) {
        Railmux__Control__Reply *reply;
        char text[CONFIG_ERROR_MAX] = "";
        int r;

        r = manager_reload(client->control->manager, text);
        if (r < 0) {
                control_answer_fail(&client->answer, r == -ENOMEM ? RMX_E_NO_MEMORY : RMX_E_INVALID, text);
        } else if (text[0]) {
                reply = control_answer_first(&client->answer);
                if (reply)
                        reply->message = control_answer_text(&client->answer, "%s", text);
        }
        control_client_answer(client);
}

static void control_client_topology(struct control_client *client) {
        struct control_topology *topology = &client->control->topology;

        if (control_topology_look(topology, client->control->manager) < 0)
                control_answer_fail(&client->answer, RMX_E_INTERNAL,
                                    "railmuxd cannot look at this machine; see its log");
        else
                control_answer_topology(&client->answer, topology->text, topology->length);
        control_client_answer(client);
}

static void control_client_level(struct control_client *client, const char *name) {
        int level = log_level_parse(name);

        if (level < 0) {
                control_answer_fail(&client->answer, RMX_E_INVALID,
                                    "no such log level; allowed: error, warning, notice, info, debug");
        } else {
                log_set_level(level);
                log_notice("log level set to %s by an operator", log_level_name(level));
        }
        control_client_answer(client);
}

/* Looks again and again until the executor is replaced: that has many causes and few operators. */
static void control_client_drained(evutil_socket_t fd, short what, void *data) {
        struct control_client *client = data;

        (void)fd;
        (void)what;
        if (control_drain_over(&client->drain, client->control->manager, &client->answer)) {
                control_drain_deinit(&client->drain);
                control_client_answer(client);
        } else if (evtimer_add(client->drain_event, &control_look) < 0) {
                control_client_drop(client);
        }
}

static void control_client_drain(struct control_client *client, const char *name) {
        char text[128];
        uint32_t code = RMX_E_NO_MEMORY;

        snprintf(text, sizeof(text), "railmuxd is out of memory");
        if (!client->drain_event)
                client->drain_event = evtimer_new(client->control->manager->base, control_client_drained, client);
        if (client->drain_event)
                code = control_drain_begin(client->control->manager, name, &client->drain, text, sizeof(text));
        if (!code) {
                control_client_drained(-1, 0, client);
                return;
        }
        control_answer_fail(&client->answer, code, text);
        control_client_answer(client);
}

static void control_client_serve(struct control_client *client, const Railmux__Control__Request *request) {
        struct manager *manager = client->control->manager;

        if (request->version != CONTROL_PROTOCOL) {
                control_answer_fail(&client->answer, RMX_E_VERSION,
                                    "this railmuxd speaks version 1 of the control protocol");
                control_client_answer(client);
                return;
        }
        switch (request->body_case) {
        case RAILMUX__CONTROL__REQUEST__BODY_STATUS:
                control_client_refresh(client, control_rows_status);
                return;
        case RAILMUX__CONTROL__REQUEST__BODY_COMMS:
                control_client_refresh(client, control_rows_comms);
                return;
        case RAILMUX__CONTROL__REQUEST__BODY_METRICS:
                control_client_refresh(client, metrics_rows);
                return;
        case RAILMUX__CONTROL__REQUEST__BODY_RELOAD:
                control_client_reload(client);
                return;
        case RAILMUX__CONTROL__REQUEST__BODY_LOG_LEVEL:
                control_client_level(client, request->log_level->level);
                return;
        case RAILMUX__CONTROL__REQUEST__BODY_DRAIN:
                control_client_drain(client, request->drain->executor);
                return;
        case RAILMUX__CONTROL__REQUEST__BODY_PEERS:
                control_rows_peers(&client->answer, manager);
                break;
        case RAILMUX__CONTROL__REQUEST__BODY_RAILS:
                control_rows_rails(&client->answer, manager);
                break;
        case RAILMUX__CONTROL__REQUEST__BODY_ROUTES:
                control_rows_routes(&client->answer, manager);
                break;
        case RAILMUX__CONTROL__REQUEST__BODY_RAIL_DRAIN:
                control_rail_drain(&client->answer, manager, request->rail_drain->rail, request->rail_drain->undo);
                break;
        case RAILMUX__CONTROL__REQUEST__BODY_TENANTS:
                control_rows_tenants(&client->answer, manager);
                break;
        case RAILMUX__CONTROL__REQUEST__BODY_SESSIONS:
                control_rows_sessions(&client->answer, manager);
                break;
        case RAILMUX__CONTROL__REQUEST__BODY_GPUS:
                if (manager->on_device) { /* how many blocks are resident changes all the time */
                        control_client_refresh(client, control_rows_gpus);
                        return;
                }
                control_rows_gpus(&client->answer, manager);
                break;
        case RAILMUX__CONTROL__REQUEST__BODY_TOPOLOGY:
                control_client_topology(client);
                return;
        case RAILMUX__CONTROL__REQUEST__BODY_GET_VERSION:
                control_rows_version(&client->answer);
                break;
        default:
                control_answer_fail(&client->answer, RMX_E_UNSUPPORTED, "this railmuxd does not know that request");
                break;
        }
        control_client_answer(client);
}

static void control_client_readable(evutil_socket_t fd, short what, void *data) {
        struct control_client *client = data;
        int fds[FRAME_FDS_MAX];
        ProtobufCMessage *message;
        unsigned int n_fds = 0;
        LOOP_HOLD(&client->control->manager->watch, "an operator's request");
        int r;

        if (what & EV_TIMEOUT) {
                control_client_drop(client);
                return;
        }
        r = frame_receive_unclosed(fd, &railmux__control__request__descriptor, &client->arena, &message, fds, &n_fds);
        for (unsigned int i = 0; i < n_fds; i++)
                closer_close(client->control->manager->closer, fds[i]);
        if (r == FRAME_E_AGAIN) {
                if (event_add(client->read_event, &control_patience) < 0)
                        control_client_drop(client);
                return;
        }
        if (r) {
                if (r != FRAME_E_EOF)
                        log_warning("control connection dropped: %s", frame_error_text(r));
                control_client_drop(client);
                return;
        }
        /* The read event is not persistent: nothing more is read until the answer is out. The request is freed last,
         * since serving it may drop the client and the arena in it. */
        {
                struct frame_arena arena = client->arena;

                arena.allocator.allocator_data = &arena;
                control_client_serve(client, (const Railmux__Control__Request *)message);
                protobuf_c_message_free_unpacked(message, &arena.allocator);
        }
}

static void control_client_writable(evutil_socket_t fd, short what, void *data) {
        struct control_client *client = data;

        (void)fd;
        if (what & EV_TIMEOUT)
                control_client_drop(client);
        else
                control_client_flush(client);
}

static int control_accept(struct manager *manager, int fd, const struct listener_peer *peer) {
        struct control *control = manager->control;
        struct control_client *client;

        (void)peer;
        if (!control || control->n_clients == CONTROL_CLIENTS_MAX) {
                close(fd);
                return control ? -EMFILE : 0;
        }
        client = calloc(1, sizeof(*client));
        if (!client) {
                close(fd);
                return -ENOMEM;
        }
        client->control = control;
        client->fd = fd;
        frame_arena_init(&client->arena, FRAME_UNPACK_BYTES_MAX);
        client->read_event = event_new(manager->base, fd, EV_READ, control_client_readable, client);
        client->write_event = event_new(manager->base, fd, EV_WRITE, control_client_writable, client);
        if (!client->read_event || !client->write_event || event_add(client->read_event, &control_patience) < 0) {
                control_client_free(client);
                return -ENOMEM;
        }
        DL_APPEND(control->clients, client);
        control->n_clients++;
        return 0;
}

int control_new(struct manager *manager, struct control **ret_control) {
        struct control *control;
        int r;

        control = calloc(1, sizeof(*control));
        if (!control)
                return -ENOMEM;
        control->manager = manager;
        r = listener_new(manager, "control", manager->config->control_socket, manager->config->control_mode,
                         control_accept, &control->listener);
        if (r < 0) {
                log_error("cannot listen on %s: %s", manager->config->control_socket, listener_error(r));
                control_free(control);
                return r;
        }
        *ret_control = control;
        return 0;
}

void control_forget(struct control *control) {
        control_topology_deinit(&control->topology);
}

struct control *control_free(struct control *control) {
        struct control_client *client, *next;

        if (!control)
                return NULL;
        control->listener = listener_free(control->listener);
        DL_FOREACH_SAFE(control->clients, client, next)
                control_client_free(client);
        control_topology_deinit(&control->topology);
        free(control);
        return NULL;
}
