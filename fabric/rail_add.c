/* SPDX-License-Identifier: MIT */
/* What the owner does with rails. */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"
#include "fabric/transport.h"
#include "util/clock.h"

/*
 * For a weight of 1 in a turn, so a tenant of weight 100 has about one chunk. Not more: a tenant whose turn is longer
 * than what it can have in its slots runs dry in its own turn, and does not get its share.
 */
#define RAIL_QUANTUM 512u
#define RAIL_URGENT  (1u << 20)
#define RAIL_WINDOW  (4u << 20)
#define RAIL_NOMINAL 1250000000u

static struct fabric_rail *rail_find(struct fabric *fabric, const char *name) {
        for (size_t i = 0; i < fabric->n_rails; i++)
                if (strcmp(fabric->rails[i]->name, name) == 0)
                        return fabric->rails[i];
        return NULL;
}

#ifdef HAVE_VERBS
#define TRANSPORT_KINDS "tcp and verbs are"
#else
#define TRANSPORT_KINDS "tcp is (this railmuxd was built without verbs)"
#endif

static const struct transport *transport_find(const char *kind) {
        static const struct transport *const transports[] = {
                &transport_tcp,
#ifdef HAVE_VERBS
                &transport_verbs,
#endif
        };

        for (size_t i = 0; i < sizeof(transports) / sizeof(*transports); i++)
                if (kind && strcmp(transports[i]->kind, kind) == 0)
                        return transports[i];
        return NULL;
}

static int rail_check(struct fabric *fabric, const struct fabric_rail_options *options,
                      struct sockaddr_storage *ret_address, struct sockaddr_storage *ret_advertised) {
        int r, told = 0;

        if (!options->name || !options->name[0] || strlen(options->name) > FABRIC_NAME_MAX)
                return fabric_refuse(fabric, FABRIC_E_ARGUMENT, "a rail needs a name of 1 to %u characters",
                                     FABRIC_NAME_MAX);
        if (!transport_find(options->kind))
                return fabric_refuse(fabric, FABRIC_E_ARGUMENT, "rail %s: kind %s is not known here; " TRANSPORT_KINDS,
                                     options->name, options->kind ? options->kind : "(none)");
        r = options->address ? socket_address(options->address, options->port, ret_address) : -EINVAL;
        if (r == -EINVAL)
                return fabric_refuse(fabric, FABRIC_E_ARGUMENT,
                                     "rail %s: %s is no numeric IPv4 or IPv6 address, as 10.0.0.1 would be",
                                     options->name, options->address ? options->address : "(none)");
        if (options->advertise)
                told = options->advertise_port
                               ? socket_address(options->advertise, options->advertise_port, ret_advertised)
                               : -EINVAL;
        if (told == -EINVAL)
                return fabric_refuse(
                        fabric, FABRIC_E_ARGUMENT,
                        "rail %s: %s port %u is nothing to be advertised; a numeric address with a port is",
                        options->name, options->advertise, options->advertise_port);
        for (unsigned int i = 0; i < FABRIC_N_CLASSES; i++)
                if (options->dscp[i] > 63)
                        return fabric_refuse(fabric, FABRIC_E_ARGUMENT, "rail %s: DSCP %u; 0 to 63 can be",
                                             options->name, options->dscp[i]);
        if (options->number >= FABRIC_RAILS_MAX)
                return fabric_refuse(fabric, FABRIC_E_ARGUMENT, "rail %s: number %u; 0 to %u can be", options->name,
                                     options->number, FABRIC_RAILS_MAX - 1);
        if (options->device && strlen(options->device) >= sizeof(((struct fabric_rail *)0)->device))
                return fabric_refuse(fabric, FABRIC_E_ARGUMENT, "rail %s: %s cannot be an interface", options->name,
                                     options->device);
        if (!fabric->options.tls && !fabric->options.allow_plain && (r || !socket_is_loopback(ret_address)))
                return fabric_refuse(fabric, FABRIC_E_PLAIN,
                                     "rail %s: %s is not loopback and would be without TLS; configure certificates or "
                                     "allow plain connections",
                                     options->name, options->address);
        if (transport_find(options->kind)->area_add && fabric->areas)
                return fabric_refuse(fabric, FABRIC_E_ARGUMENT,
                                     "rail %s: rails of kind %s can come while there is no communicator over nodes",
                                     options->name, options->kind);
        if (rail_find(fabric, options->name))
                return fabric_refuse(fabric, FABRIC_E_EXISTS, "rail %s is there already", options->name);
        if (fabric->n_rails == FABRIC_RAILS_MAX)
                return fabric_refuse(fabric, FABRIC_E_FULL, "rail %s: there are %u already", options->name,
                                     FABRIC_RAILS_MAX);
        if (r || told) { /* last, as it may come right */
                fabric_refuse(fabric, FABRIC_E_ADDRESS, "rail %s: there is no interface of %s", options->name,
                              r ? options->address : options->advertise);
                fabric->error_number = r ? -r : -told;
                return FABRIC_E_ADDRESS;
        }
        return 0;
}

/* Sockets and fds; what is there is freed by the caller. */
static int rail_open(struct fabric *fabric, struct fabric_rail *rail, const struct fabric_rail_options *options) {
        struct epoll_event event = {.events = EPOLLIN};
        struct sockaddr_storage bound;
        int r;

        rail->scratch = malloc(65536);
        if (!rail->scratch)
                return -ENOMEM;
        r = socket_listen(rail, &bound, &rail->listen_fd);
        if (r == -EADDRNOTAVAIL || r == -EADDRINUSE || r == -ENODEV || r == -EACCES || r == -EINVAL) {
                fabric_refuse(fabric, FABRIC_E_ADDRESS, "rail %s: cannot listen on %s port %u%s%s: %s", options->name,
                              options->address, options->port, options->device ? " of " : "",
                              options->device ? options->device : "", strerror(-r));
                fabric->error_number = -r;
                return FABRIC_E_ADDRESS;
        }
        if (r)
                return r;
        rail->address = bound;
        if (!options->advertise)
                rail->advertised = bound;
        rail->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        rail->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (rail->epoll_fd < 0 || rail->wake_fd < 0)
                return -errno;
        event.data.ptr = &rail->listen_fd;
        if (epoll_ctl(rail->epoll_fd, EPOLL_CTL_ADD, rail->listen_fd, &event) < 0)
                return -errno;
        event.data.ptr = &rail->wake_fd;
        if (epoll_ctl(rail->epoll_fd, EPOLL_CTL_ADD, rail->wake_fd, &event) < 0)
                return -errno;
        return rail->transport->rail_open ? rail->transport->rail_open(rail, options) : 0;
}

int fabric_rail_add(struct fabric *fabric, const struct fabric_rail_options *options) {
        uint64_t now_ns = clock_now_ns();
        struct sockaddr_storage address, advertised = {0};
        struct fabric_rail *rail;
        char name[16];
        int r;

        r = rail_check(fabric, options, &address, &advertised);
        if (r)
                return r;
        rail = calloc(1, sizeof(*rail));
        if (!rail)
                return -ENOMEM;
        rail->fabric = fabric;
        rail->transport = transport_find(options->kind);
        rail->index = (uint8_t)fabric->n_rails;
        rail->address = address;
        rail->advertised = advertised;
        rail->epoll_fd = rail->listen_fd = rail->wake_fd = -1;
        rail->enabled = true;
        rail->drained = options->drained;
        memcpy(rail->name, options->name, strlen(options->name));
        if (options->device)
                memcpy(rail->device, options->device, strlen(options->device));
        memcpy(rail->dscp, options->dscp, sizeof(rail->dscp));
        rail->number = options->number;
        rail->window = options->window_bytes ? options->window_bytes : RAIL_WINDOW;
        rail->nominal = options->nominal_bytes ? options->nominal_bytes : RAIL_NOMINAL;
        if (options->rate_bytes && options->rate_bytes < rail->nominal)
                rail->nominal = options->rate_bytes;
        rail->estimate = rail->nominal;
        schedule_init(&rail->schedule, RAIL_QUANTUM, RAIL_URGENT);
        bucket_init(&rail->bucket, options->rate_bytes, now_ns);
        r = rail_open(fabric, rail, options);
        if (r) { /* others may be carrying: nothing that takes time is done with the lock */
                rail_free(rail);
                return r;
        }
        pthread_mutex_lock(&fabric->lock);
        fabric->rails[fabric->n_rails++] = rail;
        r = peers_take_rail(fabric, rail);
        if (r == 0) {
                snprintf(name, sizeof(name), "fab-%.11s", rail->name);
                r = fabric_thread(&rail->thread, rail_run, rail, name);
                rail->running = r == 0;
        }
        if (r == 0) {
                areas_take_rail(fabric, rail);
                peers_use_rail(fabric, rail);
        } else {
                peers_leave_rail(fabric, rail);
                fabric->n_rails--;
        }
        pthread_mutex_unlock(&fabric->lock);
        if (r)
                rail_free(rail);
        return r;
}

int fabric_rail_drain(struct fabric *fabric, const char *name, bool drain) {
        struct fabric_rail *rail;
        struct fabric_route *route;

        pthread_mutex_lock(&fabric->lock);
        rail = rail_find(fabric, name);
        if (rail && rail->drained != drain) {
                rail->drained = drain;
                /* Drained: what is queued here goes elsewhere. Else: what waits elsewhere for want of this one. */
                for (size_t i = 0; i < fabric->n_rails; i++) {
                        if (drain == (fabric->rails[i] != rail))
                                continue;
                        DL_FOREACH(fabric->rails[i]->routes, route)
                                if (drain || route->health.state != FABRIC_UP)
                                        route_replace(fabric, route);
                }
        }
        pthread_mutex_unlock(&fabric->lock);
        return rail ? 0 : fabric_refuse(fabric, FABRIC_E_UNKNOWN, "there is no rail %s", name);
}

int fabric_rail_enable(struct fabric *fabric, const char *name, bool enable) {
        struct fabric_rail *rail;
        struct fabric_route *route;
        struct fabric_conn *conn;

        pthread_mutex_lock(&fabric->lock);
        rail = rail_find(fabric, name);
        if (rail && rail->enabled != enable) {
                rail->enabled = enable;
                if (!enable)
                        DL_FOREACH(rail->conns, conn)
                                conn_doom(conn, true, "the rail was set down");
                DL_FOREACH(rail->routes, route) {
                        if (!enable && route_down(&route->health, clock_now_ns()))
                                route_changed(fabric, route, "the rail was set down");
                        if (enable)
                                route->health.since_ns = 0; /* no hold-down */
                }
                rail_wake(rail);
        }
        pthread_mutex_unlock(&fabric->lock);
        return rail ? 0 : fabric_refuse(fabric, FABRIC_E_UNKNOWN, "there is no rail %s", name);
}
