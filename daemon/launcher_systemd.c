/* SPDX-License-Identifier: MIT */
/*
 * Executors as units of their own, railmux-executor@NAME.service. Their arguments go into a file that the unit reads,
 * since an instance name has room for the name only; the file is replaced in one step, so the manager never reads half
 * of it.
 *
 * Everything on the bus is asynchronous: asking may take as long as polkit likes, and the loop serves clients
 * meanwhile. The bus connection is made for a request and closed when no request is outstanding; a bus that restarts
 * costs nothing that way.
 */
#include "daemon/launcher_command.h"
#include "daemon/launcher_private.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"
#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#define SYSTEMD_UNIT_MAX 128u
#define SYSTEMD_CALL_US  25000000u
#define SYSTEMD_ASKS_MAX 64u

struct systemd_ask {
        struct systemd_launcher *launcher;
        char unit[SYSTEMD_UNIT_MAX]; /* "": free */
};

struct systemd_launcher {
        struct event_base *base;
        sd_bus *bus;
        struct event *io_event, *timer;
        short io_what;
        struct systemd_ask asks[SYSTEMD_ASKS_MAX];
        unsigned int n_asks;
        bool refused_logged; /* once per series: we ask again every few seconds */
};

static int systemd_watch(struct systemd_launcher *systemd);

static void systemd_close(struct systemd_launcher *systemd) {
        if (systemd->io_event)
                event_free(systemd->io_event);
        systemd->io_event = NULL;
        systemd->io_what = 0;
        if (systemd->timer)
                evtimer_del(systemd->timer);
        systemd->bus = sd_bus_close_unref(systemd->bus);
        for (unsigned int i = 0; i < SYSTEMD_ASKS_MAX; i++)
                systemd->asks[i].unit[0] = '\0';
        systemd->n_asks = 0;
}

static void systemd_process(struct systemd_launcher *systemd) {
        int r;

        do
                r = sd_bus_process(systemd->bus, NULL);
        while (r > 0);
        if (r < 0 && systemd->n_asks)
                log_error("connection to the system bus: %s", strerror(-r));
        if (r < 0 || !systemd->n_asks || systemd_watch(systemd) < 0)
                systemd_close(systemd);
}

static void systemd_io(evutil_socket_t fd, short what, void *data) {
        (void)fd;
        (void)what;
        systemd_process(data);
}

/* Asks libevent for what the bus wants next. */
static int systemd_watch(struct systemd_launcher *systemd) {
        struct timeval delay = {0};
        short what = EV_PERSIST;
        uint64_t until_us;
        int fd, events, r;

        fd = sd_bus_get_fd(systemd->bus);
        events = sd_bus_get_events(systemd->bus);
        r = sd_bus_get_timeout(systemd->bus, &until_us);
        if (fd < 0 || events < 0 || r < 0)
                return -EIO;
        what |= (events & POLLIN ? EV_READ : 0) | (events & POLLOUT ? EV_WRITE : 0);
        if (what != systemd->io_what) {
                if (systemd->io_event)
                        event_free(systemd->io_event);
                systemd->io_what = 0;
                systemd->io_event = event_new(systemd->base, fd, what, systemd_io, systemd);
                if (!systemd->io_event || event_add(systemd->io_event, NULL) < 0)
                        return -ENOMEM;
                systemd->io_what = what;
        }
        if (until_us == UINT64_MAX) {
                evtimer_del(systemd->timer);
        } else {
                uint64_t now_us = clock_now_ns() / 1000;

                if (until_us > now_us)
                        delay = (struct timeval){.tv_sec = (time_t)((until_us - now_us) / 1000000),
                                                 .tv_usec = (suseconds_t)((until_us - now_us) % 1000000)};
                evtimer_add(systemd->timer, &delay);
        }
        return 0;
}

static int systemd_answered(sd_bus_message *message, void *data, sd_bus_error *ret_error) {
        const sd_bus_error *error = sd_bus_message_get_error(message);
        struct systemd_ask *ask = data;

        (void)ret_error;
        if (error && !ask->launcher->refused_logged)
                log_error("systemd does not start %s: %s (%s); asking again", ask->unit,
                          error->message ? error->message : "no reason given", error->name);
        if (!error)
                log_info("systemd was asked for %s", ask->unit);
        ask->launcher->refused_logged = error;
        ask->unit[0] = '\0';
        ask->launcher->n_asks--;
        return 1;
}

/* "--name host --gpus 8 ..." as the value of one name. It is split at blanks, so a word must have none, nor anything
 * else that has a meaning in a file of variables, which is how units of earlier versions read it. */
static int systemd_write_arguments(struct launcher *launcher, const char *name) {
        const char *runtime = getenv("RUNTIME_DIRECTORY");
        char path[256], temporary[272], text[1024];
        size_t length;
        char **argv;
        FILE *file;
        int r;

        r = launcher_command_arguments(launcher->config, name, false, &argv);
        if (r < 0)
                return r;
        length = (size_t)snprintf(text, sizeof(text), "RAILMUX_EXECUTOR_ARGUMENTS=");
        for (char **p = argv + 1; *p && !r; p++) {
                int n = snprintf(text + length, sizeof(text) - length, "%s%s", p == argv + 1 ? "" : " ", *p);

                if (strpbrk(*p, " \t\n\"'\\$%#"))
                        r = -EINVAL;
                else if (n < 0 || (size_t)n >= sizeof(text) - length)
                        r = -ENAMETOOLONG;
                else
                        length += (size_t)n;
        }
        launcher_command_free(argv);
        if (r < 0)
                return r;
        if (!runtime || runtime[0] != '/' || strchr(runtime, ':'))
                runtime = "/run/railmux";
        if ((size_t)snprintf(path, sizeof(path), "%s/executor-%s.env", runtime, name) >= sizeof(path))
                return -ENAMETOOLONG;
        snprintf(temporary, sizeof(temporary), "%s.new", path);
        file = fopen(temporary, "we");
        if (!file)
                return -errno;
        fprintf(file, "%s\n", text);
        if (fclose(file) != 0 || rename(temporary, path) < 0) {
                r = -errno;
                unlink(temporary);
        }
        return r;
}

static void systemd_timeout(evutil_socket_t fd, short what, void *data) {
        (void)fd;
        (void)what;
        systemd_process(data);
}

static int launcher_systemd_init(struct launcher *launcher) {
        struct systemd_launcher *systemd;

        systemd = calloc(1, sizeof(*systemd));
        if (!systemd)
                return -ENOMEM;
        launcher->private = systemd;
        systemd->base = launcher->base;
        systemd->timer = evtimer_new(launcher->base, systemd_timeout, systemd);
        return systemd->timer ? 0 : -ENOMEM;
}

static void launcher_systemd_deinit(struct launcher *launcher) {
        struct systemd_launcher *systemd = launcher->private;

        if (!systemd)
                return;
        systemd_close(systemd);
        if (systemd->timer)
                event_free(systemd->timer);
        free(systemd);
        launcher->private = NULL;
}

static int launcher_systemd_start(struct launcher *launcher, const char *name) {
        struct systemd_launcher *systemd = launcher->private;
        struct systemd_ask *ask = NULL;
        char unit[SYSTEMD_UNIT_MAX];
        int r = systemd_write_arguments(launcher, name); /* also for one that is there, and is replaced some day */

        if (r < 0)
                return r;
        snprintf(unit, sizeof(unit), "railmux-executor@%s.service", name);
        for (unsigned int i = 0; i < SYSTEMD_ASKS_MAX; i++) {
                if (strcmp(systemd->asks[i].unit, unit) == 0)
                        return 0; /* asked for and not answered yet */
                if (!ask && !systemd->asks[i].unit[0])
                        ask = &systemd->asks[i];
        }
        if (!ask)
                return -EBUSY;
        if (!systemd->bus) {
                r = sd_bus_open_system(&systemd->bus);
                if (r < 0)
                        return r;
                sd_bus_set_method_call_timeout(systemd->bus, SYSTEMD_CALL_US);
        }
        r = sd_bus_call_method_async(systemd->bus, NULL, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                                     "org.freedesktop.systemd1.Manager", "StartUnit", systemd_answered, ask, "ss", unit,
                                     "replace");
        if (r < 0) {
                if (!systemd->n_asks)
                        systemd_close(systemd);
                return r;
        }
        ask->launcher = systemd;
        memcpy(ask->unit, unit, sizeof(unit));
        systemd->n_asks++;
        r = systemd_watch(systemd);
        if (r < 0) {
                systemd_close(systemd);
                return r;
        }
        return 0;
}

const struct launcher_operations launcher_systemd = {
        .kind = "systemd",
        .init = launcher_systemd_init,
        .deinit = launcher_systemd_deinit,
        .start = launcher_systemd_start,
};
