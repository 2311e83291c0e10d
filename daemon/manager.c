/* SPDX-License-Identifier: MIT */
/*
 * The root of everything. manager_new() makes the parts in their order of need, manager_free() is its mirror image.
 *
 * Only one thing is special about the end: an orderly stop must leave the fd store and the state as they are, because
 * whether somebody will take over is the service manager's decision (a restart takes over, a stop discards the store).
 * So `stopping` is set before anything is freed, and freeing then neither tells clients and executors nor touches
 * records.
 */
#include "daemon/manager.h"

#include "daemon/adopt.h"
#include "daemon/closer.h"
#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_device.h"
#include "daemon/comm_join.h"
#include "daemon/comm_plan.h"
#include "daemon/control.h"
#include "daemon/executor_link.h"
#include "daemon/fdstore.h"
#include "daemon/forget.h"
#include "daemon/launcher.h"
#include "daemon/listener.h"
#include "daemon/notify.h"
#include "daemon/options.h"
#include "daemon/reach.h"
#include "daemon/session.h"
#include "daemon/session_life.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "daemon/tenants.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/processors.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>
#include <utlist.h>

#define MANAGER_WORKERS_MAX 16u

static const struct timeval manager_launch_time = {.tv_sec = 2};
static const struct timeval manager_life_time = {.tv_sec = 1};

/* ---- lookups ---- */

struct session *manager_session(struct manager *manager, uint64_t number) {
        struct session *session;

        HASH_FIND(hh, manager->sessions, &number, sizeof(number), session);
        return session;
}

struct comm *manager_comm(struct manager *manager, uint64_t number) {
        struct comm *comm;

        HASH_FIND(hh, manager->comms, &number, sizeof(number), comm);
        return comm;
}

uint64_t manager_links_mask(const struct manager *manager) {
        const struct executor_link *link;
        uint64_t mask = 0;

        DL_FOREACH(manager->links, link)
                mask |= executor_link_mask(link);
        return mask;
}

struct executor_link *manager_link_of_gpu(struct manager *manager, uint32_t gpu) {
        struct executor_link *link;

        DL_FOREACH(manager->links, link) {
                if (gpu >= link->first_gpu && gpu - link->first_gpu < link->n_gpus)
                        return link;
        }
        /* An emulated GPU is a number. With fewer of them than there were, what uses the others goes on as it was. */
        return manager->on_device ? NULL : manager->links;
}

uint32_t manager_workers(const struct manager *manager) {
        uint32_t n = manager->config->workers;

        if (n == 0)
                n = processors_usable();
        return n > MANAGER_WORKERS_MAX && manager->config->workers == 0 ? MANAGER_WORKERS_MAX : n;
}

const char *manager_state_name(const struct manager *manager) {
        const struct executor_link *link;

        if (manager->stopping)
                return "draining";
        DL_FOREACH(manager->links, link) {
                if (link->state != EXECUTOR_READY)
                        return "degraded";
        }
        return "running";
}

/* ---- connections ---- */

static int manager_accept_client(struct manager *manager, int fd, const struct listener_peer *peer) {
        struct tenant_identity identity = {.listener = "client", .uid = peer->uid, .gid = peer->gid, .pid = peer->pid};
        struct session *session;
        int r;

        r = session_new(manager, fd, &identity, &session);
        if (r < 0)
                return r;
        r = session_start(session);
        if (r < 0) {
                session_end(session, LOG_LEVEL_ERROR, "out of memory");
                session_free(session);
        }
        return r;
}

static int manager_accept_executor(struct manager *manager, int fd, const struct listener_peer *peer) {
        if (peer->uid != 0 && peer->uid != geteuid()) {
                close(fd);
                return -EPERM;
        }
        return executor_link_accept(manager, fd, peer->pid);
}

/* Asks for executors that are not connected. Their supervisor restarts them; this is for those that it does not know of
 * yet. */
static void manager_launch(evutil_socket_t fd, short what, void *data) {
        struct manager *manager = data;
        struct executor_link *link;
        LOOP_HOLD(&manager->watch, "starting executors");

        (void)fd;
        (void)what;
        DL_FOREACH(manager->links, link) {
                int r;

                if (link->state != EXECUTOR_GONE)
                        continue;
                r = launcher_start(manager->launcher, link->name);
                if (r < 0 && !link->launch_failed)
                        log_fields(LOG_LEVEL_ERROR, (const char *const[]){"EXECUTOR", link->name, NULL},
                                   "executor %s cannot be started (%s), trying again every 2 s: %s", link->name,
                                   launcher_kind(manager->launcher), strerror(-r));
                link->launch_failed = r < 0;
        }
        if (manager->on_device) {
                comm_device_overdue(manager);
                comm_device_retry(manager); /* some wait for a time, too */
                reach_tick(manager);
        }
}

static void manager_place(evutil_socket_t fd, short what, void *data) {
        (void)fd;
        (void)what;
        comm_device_retry(data);
}

void manager_place_later(struct manager *manager) {
        if (manager->on_device && manager->place_event && !manager->stopping)
                event_active(manager->place_event, EV_TIMEOUT, 0);
}

/* ---- service manager ---- */

static void manager_watchdog(evutil_socket_t fd, short what, void *data) {
        struct manager *manager = data;

        (void)fd;
        (void)what;
        (void)notify_beat(manager->notify, "WATCHDOG=1\nSTATUS=%s: %u sessions, %u comms", manager_state_name(manager),
                          HASH_COUNT(manager->sessions), HASH_COUNT(manager->comms));
}

static void manager_signal(evutil_socket_t signal_number, short what, void *data) {
        struct manager *manager = data;
        char text[CONFIG_ERROR_MAX];
        LOOP_HOLD(&manager->watch, "a signal");

        (void)what;
        if (signal_number != SIGHUP) {
                log_notice("stopping on signal %d", (int)signal_number);
                manager_stop(manager);
                return;
        }
        manager_reload(manager, text); /* it has said what was wrong */
}

static void manager_swap(char **a, char **b) {
        char *was = *a;

        *a = *b;
        *b = was;
}

int manager_reload(struct manager *manager, char text[CONFIG_ERROR_MAX]) {
        struct executor_link *link;
        struct config fresh;
        int r;

        (void)notify_say(manager->notify, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_now_ns() / 1000);
        config_init(&fresh);
        r = config_load(&fresh, manager->options->config_path, text);
        if (!r)
                r = options_apply(manager->options, &fresh, text);
        if (!r && manager->cluster)
                r = cluster_reload(manager->cluster, &fresh, text);
        if (r > 0)
                r = -EINVAL; /* certificates that are refused */
        if (r < 0) {
                log_error("configuration not reloaded, the old one stays in force: %s", text);
        } else {
                manager->config->log_level = fresh.log_level;
                manager->config->stall_ms = fresh.stall_ms;
                manager->config->reach_bytes = fresh.reach_bytes;
                manager->config->burst_bytes = fresh.burst_bytes;
                manager->config->exchange_bytes = fresh.exchange_bytes;
                memcpy(manager->config->limit, fresh.limit, sizeof(fresh.limit));
                manager_swap(&manager->config->file, &fresh.file);
                manager_swap(&manager->config->constants_file, &fresh.constants_file);
                manager->config->constants = fresh.constants;
                manager->config->rail_phase = fresh.rail_phase;
                manager_swap(&manager->config->peer_ca, &fresh.peer_ca);
                manager_swap(&manager->config->peer_certificate, &fresh.peer_certificate);
                manager_swap(&manager->config->peer_key, &fresh.peer_key);
                control_forget(manager->control);
                comm_plan_forget(manager); /* chosen anew for communicators that are made from now on */
                log_set_level(fresh.log_level);
                tenants_set_limits(manager, fresh.limit);
                tenants_check_room(manager);
                DL_FOREACH(manager->links, link) { /* tells its supervisor the new arguments */
                        int told = launcher_start(manager->launcher, link->name);

                        if (told < 0)
                                log_error("executor %s keeps its old arguments when it starts again: %s", link->name,
                                          strerror(-told));
                }
                log_notice("configuration reloaded: log level %s", log_level_name(fresh.log_level));
                if (config_waits(manager->config, &fresh, text))
                        log_warning("configuration: %s", text);
                else
                        text[0] = '\0';
        }
        config_deinit(&fresh);
        (void)notify_say(manager->notify, "READY=1");
        return r;
}

/* ---- life ---- */

static int manager_new_state(struct manager *manager) {
        int fd, r = 0;

        fd = fdstore_take(manager->fdstore, "state");
        if (fd >= 0) {
                r = state_adopt(fd, &manager->state);
                if (r == 0 && !manager_state_fits(manager)) {
                        manager->state = state_free(manager->state); /* closes it */
                        (void)notify_remove(manager->notify, "state");
                        log_notice("the backend is another one than the predecessor's; its sessions end");
                        fd = -1;
                } else if (r == 0) {
                        state_count_restart(manager->state);
                        manager->restarts = state_restarts(manager->state);
                        return 0;
                }
                if (fd >= 0) {
                        close(fd);
                        (void)notify_remove(manager->notify, "state");
                        log_error("the predecessor's state cannot be read; its sessions end");
                }
        }
        r = state_new(&manager->state);
        if (r < 0)
                return r;
        r = notify_put(manager->notify, "state", state_fd(manager->state));
        if (r < 0)
                log_warning("fd store: the state is not kept over a restart: %s", strerror(-r));
        return 0;
}

static void manager_look(evutil_socket_t fd, short what, void *data) {
        struct manager *manager = data;
        LOOP_HOLD(&manager->watch, "a look at clients");

        (void)fd;
        (void)what;
        session_life_look(manager);
}

static int manager_new_signals(struct manager *manager) {
        static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
        struct event **events[] = {&manager->term_event, &manager->int_event, &manager->hup_event};

        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
                *events[i] = evsignal_new(manager->base, numbers[i], manager_signal, manager);
                if (!*events[i] || event_add(*events[i], NULL) < 0)
                        return -ENOMEM;
        }
        return 0;
}

static int manager_new_timers(struct manager *manager) {
        uint64_t watchdog_us = 0;

        manager->place_event = evtimer_new(manager->base, manager_place, manager);
        manager->refresh_event = evtimer_new(manager->base, manager_refresh_turn, manager);
        manager->launch_event = event_new(manager->base, -1, EV_PERSIST, manager_launch, manager);
        manager->watchdog_event = event_new(manager->base, -1, EV_PERSIST, manager_watchdog, manager);
        manager->life_event = event_new(manager->base, -1, EV_PERSIST, manager_look, manager);
        if (reach_new(manager) < 0)
                return -ENOMEM;
        if (!manager->place_event || !manager->refresh_event || !manager->launch_event || !manager->watchdog_event ||
            !manager->life_event || event_add(manager->launch_event, &manager_launch_time) < 0 ||
            event_add(manager->life_event, &manager_life_time) < 0)
                return -ENOMEM;
        if (sd_watchdog_enabled(0, &watchdog_us) > 0) {
                struct timeval half = {.tv_sec = (time_t)(watchdog_us / 2000000),
                                       .tv_usec = (suseconds_t)(watchdog_us / 2 % 1000000)};

                if (event_add(manager->watchdog_event, &half) < 0)
                        return -ENOMEM;
        }
        return 0;
}

static int manager_new_listeners(struct manager *manager) {
        _cleanup_free_ char *path = NULL;
        int r;

        if (asprintf(&path, "%s.exec", manager->config->client_socket) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        r = listener_new(manager, "executor", path, 0600, manager_accept_executor, &manager->executor_listener);
        if (r < 0) {
                log_error("cannot listen on %s: %s", path, listener_error(r));
                return r;
        }
        r = listener_new(manager, "client", manager->config->client_socket, manager->config->client_mode,
                         manager_accept_client, &manager->client_listener);
        if (r < 0)
                log_error("cannot listen on %s: %s", manager->config->client_socket, listener_error(r));
        return r;
}

static int manager_new_cluster(struct manager *manager) {
        char text[CLUSTER_TEXT_MAX];
        int r;

        if (!manager->config->listen[0])
                return 0;
        r = cluster_new(manager, text, &manager->cluster);
        if (r)
                log_error("other nodes: %s", text);
        return r > 0 ? -EINVAL : r;
}

static int manager_setup(struct manager *manager) {
        int r;

        manager->base = event_base_new();
        if (!manager->base)
                return -ENOMEM;
        r = notify_new(manager->base, &manager->notify);
        if (!r)
                r = closer_new(&manager->closer);
        if (!r)
                r = closer_watch(manager->closer, manager->base);
        if (!r)
                r = closer_new(&manager->socket_closer);
        if (!r)
                r = closer_new(&manager->memory_closer);
        if (!r)
                r = fdstore_new(manager->notify, &manager->fdstore);
        if (!r)
                r = forget_new(manager->base, manager->notify, &manager->forget);
        if (!r)
                r = manager_new_state(manager);
        if (!r)
                r = tenants_make(manager, manager->config->tenants, manager->config->limit);
        if (r < 0)
                return r;
        tenants_check_room(manager);
        r = manager_new_links(manager);
        if (!r)
                r = launcher_new(manager->base, manager->notify, manager->config, &manager->launcher);
        if (!r)
                r = manager_new_timers(manager);
        if (!r)
                r = manager_new_listeners(manager);
        if (!r)
                r = manager_new_cluster(manager);
        if (r < 0)
                return r;
        if (manager->restarts > 0)
                adopt(manager);
        r = control_new(manager, &manager->control);
        if (!r)
                r = manager_new_signals(manager);
        if (r < 0)
                return r;
        manager->fdstore = fdstore_free(manager->fdstore); /* what nobody took is of no use any more */
        return 0;
}

int manager_new(struct config *config, const struct options *options, struct manager **ret_manager) {
        struct manager *manager = calloc(1, sizeof(*manager));
        struct rlimit limit;
        int r;

        if (!manager)
                return -ENOMEM;
        manager->config = config;
        manager->packed_max = getrlimit(RLIMIT_NOFILE, &limit) < 0      ? 0
                              : limit.rlim_cur / 2 < MANAGER_PACKED_MAX ? (uint32_t)(limit.rlim_cur / 2)
                                                                        : MANAGER_PACKED_MAX;
        manager->options = options;
        manager->started_ns = clock_now_ns();
        loop_watch_init(&manager->watch, config->peer_lost_ms, config->listen[0] != '\0');
        r = manager_setup(manager);
        if (r < 0) {
                if (manager->state &&
                    manager->restarts == 0) /* nothing was served: the next one is the first as well */
                        (void)notify_remove(manager->notify, "state");
                manager_free(manager);
                return r;
        }
        *ret_manager = manager;
        return 0;
}

static void manager_free_events(struct manager *manager) {
        struct event **events[] = {&manager->hup_event,      &manager->int_event,    &manager->term_event,
                                   &manager->watchdog_event, &manager->launch_event, &manager->refresh_event,
                                   &manager->place_event,    &manager->reach_event,  &manager->life_event};

        for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
                if (*events[i])
                        event_free(*events[i]);
                *events[i] = NULL;
        }
}

struct manager *manager_free(struct manager *manager) {
        struct session *session, *tmp;

        if (!manager)
                return NULL;
        manager->stopping = true;
        manager->control = control_free(manager->control);
        while (manager->comms) /* freeing a parent frees what was being split from it */
                comm_free(manager->comms);
        manager->cluster = cluster_free(manager->cluster);
        tombstones_free(manager);
        comm_plan_forget(manager);
        HASH_ITER(hh, manager->sessions, session, tmp)
                session_free(session);
        while (manager->greetings)
                session_free(manager->greetings);
        manager->client_listener = listener_free(manager->client_listener);
        manager->executor_listener = listener_free(manager->executor_listener);
        manager_refresh_free(manager);
        manager->launcher = launcher_free(manager->launcher);
        while (manager->strangers)
                executor_link_free(manager->strangers);
        while (manager->links)
                executor_link_free(manager->links);
        comm_device_free_leftovers(manager);
        manager->closer = closer_free(manager->closer); /* what hangs in it is charged to tenants */
        while (manager->tenants) {
                struct tenant *tenant = manager->tenants;

                DL_DELETE(manager->tenants, tenant);
                tenant_free(tenant);
        }
        manager_free_events(manager);
        manager->state = state_free(manager->state);
        manager->socket_closer = closer_free(manager->socket_closer);
        manager->memory_closer = closer_free(manager->memory_closer);
        manager->forget = forget_free(manager->forget);
        manager->fdstore = fdstore_abandon(manager->fdstore); /* still there only if the start failed */
        manager->notify = notify_free(manager->notify);
        if (manager->base) {
                /* A buffered connection that was freed with a callback still due is held until that was called. */
                (void)event_base_loop(manager->base, EVLOOP_NONBLOCK);
                event_base_free(manager->base);
        }
        free(manager);
        return NULL;
}

void manager_stop(struct manager *manager) {
        manager->stopping = true;
        event_base_loopbreak(manager->base);
}

int manager_run(struct manager *manager) {
        manager_launch(-1, 0, manager);
        (void)notify_say(manager->notify, "READY=1\nSTATUS=running");
        log_notice("serving %u GPUs of the %s backend on %s", manager->n_gpus, manager_backend(manager),
                   manager->config->client_socket);
        while (!manager->stopping) {
                if (event_base_loop(manager->base, EVLOOP_ONCE) < 0)
                        return -EIO;
                loop_watch_turn(&manager->watch);
        }
        (void)notify_say(manager->notify, "STOPPING=1");
        return 0;
}
