/* SPDX-License-Identifier: MIT */
/*
 * Accepting. Nothing that accept() returns can be fatal: a peer may provoke most of it. When fds or memory run out the
 * listener stops listening for a while (a level-triggered loop would otherwise turn at full rate over the connection it
 * cannot take) and a timer arms it again.
 */
#include "daemon/listener.h"

#include "daemon/fdstore.h"
#include "daemon/manager.h"
#include "daemon/notify.h"
#include "proto/frame.h"
#include "util/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTENER_PER_TURN 16u

static const struct timeval listener_pause = {.tv_usec = 200000};

struct listener {
        struct manager *manager;
        const char *name;
        char *path; /* made by us, unlinked on free; NULL if handed over */
        int fd;
        bool paused;
        listener_accepted accepted;
        struct event *event, *timer;
};

static void listener_dispatch(evutil_socket_t socket_fd, short what, void *data) {
        struct listener *listener = data;

        (void)socket_fd;
        (void)what;
        for (unsigned int i = 0; i < LISTENER_PER_TURN; i++) {
                struct ucred cred = {0};
                socklen_t size = sizeof(cred);
                struct listener_peer peer;
                int fd, r;

                fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (fd < 0) {
                        if (errno == EAGAIN || errno == EWOULDBLOCK)
                                return;
                        if (errno == EINTR || errno == ECONNABORTED)
                                continue;
                        listener->manager->counters.accept_errors++;
                        log_warning("socket %s: cannot accept (%s), trying again in 200 ms", listener->name,
                                    strerror(errno));
                        if (evtimer_add(listener->timer, &listener_pause) == 0) { /* else it is tried at full rate */
                                listener->paused = true;
                                event_del(listener->event);
                        }
                        return;
                }
                if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0) {
                        close(fd);
                        continue;
                }
                peer = (struct listener_peer){.pid = cred.pid, .uid = cred.uid, .gid = cred.gid};
                r = listener->accepted(listener->manager, fd, &peer);
                if (r < 0) {
                        listener->manager->counters.accept_errors++;
                        log_warning("socket %s: pid %d not served: %s", listener->name, (int)cred.pid, strerror(-r));
                }
        }
}

static void listener_rearm(evutil_socket_t fd, short what, void *data) {
        struct listener *listener = data;

        (void)fd;
        (void)what;
        listener->paused = false;
        if (event_add(listener->event, NULL) < 0 && evtimer_add(listener->timer, &listener_pause) < 0)
                event_active(listener->timer, EV_TIMEOUT, 0);
}

/* A handed-over socket counts only if clients will find it where the configuration says. */
static bool listener_bound_to(int fd, const char *path) {
        struct sockaddr_un address = {0};
        socklen_t size = sizeof(address);
        struct stat st;

        return getsockname(fd, (struct sockaddr *)&address, &size) == 0 && address.sun_family == AF_UNIX &&
               strcmp(address.sun_path, path) == 0 && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* listen() notes who called it. A socket of a socket unit is our service manager's, which is our parent, and has the
 * mode that stands in the unit; any other is one that a predecessor of ours has made. */
static bool listener_is_of_unit(int fd) {
        struct ucred cred = {0};
        socklen_t size = sizeof(cred);

        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0 || cred.pid == getppid();
}

static void listener_keep(const struct listener *listener) {
        int r = notify_put(listener->manager->notify, listener->name, listener->fd);

        if (r < 0)
                log_warning("socket %s is not kept over a restart: %s", listener->name, strerror(-r));
}

/* A predecessor's socket gets the mode that is configured now. Without it the socket still serves: refusing to start
 * would cost all sessions. */
static void listener_set_mode(const struct listener *listener, const char *path, unsigned int mode) {
        struct stat st;

        if (lstat(path, &st) == 0 && (st.st_mode & 07777) == mode)
                return;
        if (fchmodat(AT_FDCWD, path, (mode_t)mode, AT_SYMLINK_NOFOLLOW) < 0)
                log_error("socket %s: %s keeps its old mode, %04o is configured: %s", listener->name, path, mode,
                          strerror(errno));
        else
                log_notice("socket %s: mode of %s is now %04o", listener->name, path, mode);
}

/* A socket of a unit and one that a predecessor made have the same name if the path was configured to be another than
 * the unit's. All that are not ours are closed before we listen: one of them may be bound to the path. */
static void listener_take(struct listener *listener, const char *path) {
        bool stale = false;
        int fd;

        listener->fd = -1;
        while ((fd = fdstore_take(listener->manager->fdstore, listener->name)) >= 0) {
                if (listener->fd < 0 && listener_bound_to(fd, path)) {
                        listener->fd = fd;
                } else {
                        close(fd);
                        stale = true;
                }
        }
        if (!stale)
                return;
        (void)notify_remove(listener->manager->notify, listener->name); /* goes by the name, so ours goes as well */
        if (listener->fd >= 0 && !listener_is_of_unit(listener->fd))
                listener_keep(listener);
}

const char *listener_error(int r) {
        return r == -EADDRINUSE ? "another railmuxd serves it" : strerror(-r);
}

int listener_new(struct manager *manager, const char *name, const char *path, unsigned int mode,
                 listener_accepted accepted, struct listener **ret_listener) {
        struct listener *listener;
        int r;

        listener = calloc(1, sizeof(*listener));
        if (!listener)
                return -ENOMEM;
        listener->manager = manager;
        listener->name = name;
        listener->accepted = accepted;
        listener_take(listener, path);
        if (listener->fd < 0) {
                listener->path = strdup(path);
                if (!listener->path) {
                        listener_free(listener);
                        return -ENOMEM;
                }
                listener->fd = frame_listen(path, mode);
                if (listener->fd < 0) {
                        r = listener->fd;
                        free(listener->path); /* not ours to unlink */
                        listener->path = NULL;
                        listener_free(listener);
                        return r;
                }
                listener_keep(listener);
        } else {
                evutil_make_socket_nonblocking(listener->fd);
                if (!listener_is_of_unit(listener->fd))
                        listener_set_mode(listener, path, mode);
        }
        /* Nobody has descriptors to give us. Accepted sockets inherit this; older kernels do not know it, see closer.c.
         */
        (void)setsockopt(listener->fd, SOL_SOCKET, SO_PASSRIGHTS, &(int){0}, sizeof(int));
        listener->event = event_new(manager->base, listener->fd, EV_READ | EV_PERSIST, listener_dispatch, listener);
        listener->timer = evtimer_new(manager->base, listener_rearm, listener);
        if (!listener->event || !listener->timer || event_add(listener->event, NULL) < 0) {
                listener_free(listener);
                return -ENOMEM;
        }
        *ret_listener = listener;
        return 0;
}

struct listener *listener_free(struct listener *listener) {
        if (!listener)
                return NULL;
        if (listener->event)
                event_free(listener->event);
        if (listener->timer)
                event_free(listener->timer);
        /* With a manager the socket lives on in its store. Else it goes while it is alive: a stale one may be somebody
         * else's by the time that it is unlinked. */
        if (listener->path && !notify_present())
                unlink(listener->path);
        if (listener->fd >= 0)
                close(listener->fd);
        free(listener->path);
        free(listener);
        return NULL;
}
