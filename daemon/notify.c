/* SPDX-License-Identifier: MIT */
/*
 * Notifications are datagrams, and a receiver has room for so many (net.unix.max_dgram_qlen; 512 under systemd). A
 * manager that does not read, as systemd while it reads its units again, would have sd_notify(3) wait for it, and with
 * it the loop and all that this node shares with others. So the socket here does not block: what it does not take is
 * queued, and sent in the same order when there is room. The socket is connected, since only then does poll(2) tell.
 *
 * The queue does not grow without end. A put that still waits when its name is removed leaves together with the
 * removal, so there are no more of them than live objects, which are charged to whoever has them; of signs of life
 * there is one; and there is a limit for all.
 */
#include "daemon/notify.h"

#include "util/clock.h"
#include "util/log.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uthash.h>
#include <utlist.h>

#define NOTIFY_MAX       16384u
#define NOTIFY_TEXT_MAX  4096u
#define NOTIFY_LEAVE_NS  UINT64_C(5000000000)
#define NOTIFY_SCARCE_NS UINT64_C(200000000)

struct notify_entry {
        struct notify_entry *prev, *next;
        UT_hash_handle hh; /* of puts, by name */
        int fd;            /* -1: none goes with it */
        bool beat;
        char *name; /* of a put or removal, behind the text; NULL: neither */
        char text[];
};

struct notify {
        struct event_base *base;
        int fd; /* -1: not connected */
        struct event *writable, *timer;
        struct notify_entry *queue; /* utlist */
        struct notify_entry *puts;  /* uthash: of these, what is to be stored */
        uint32_t n_queued;
        bool failed; /* what was queued and sent last */
};

/* The kernel has no memory, or too many descriptors are under way: there is nothing to wait for but time. */
static const struct timeval notify_again_time = {.tv_usec = 200000};

bool notify_present(void) {
        const char *socket = getenv("NOTIFY_SOCKET");

        return socket && *socket;
}

/* ---- the socket -------------------------------------------------------------------------------------------------- */
static void notify_writable(evutil_socket_t fd, short what, void *data);

static void notify_disconnect(struct notify *notify) {
        if (notify->writable)
                event_free(notify->writable);
        notify->writable = NULL;
        if (notify->fd >= 0)
                close(notify->fd);
        notify->fd = -1;
}

static int notify_connect(struct notify *notify) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        const char *path = getenv("NOTIFY_SOCKET");
        size_t length = path ? strlen(path) : 0;
        socklen_t size;
        int r;

        if (length < 2 || (path[0] != '/' && path[0] != '@'))
                return -EAFNOSUPPORT;
        if (length >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        memcpy(address.sun_path, path, length);
        if (path[0] == '@')
                address.sun_path[0] = '\0';
        size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (path[0] != '@'));
        notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (notify->fd < 0)
                return -errno;
        notify->writable = event_new(notify->base, notify->fd, EV_WRITE, notify_writable, notify);
        r = notify->writable ? 0 : -ENOMEM;
        if (!r && connect(notify->fd, (struct sockaddr *)&address, size) < 0)
                r = -errno;
        if (r < 0)
                notify_disconnect(notify);
        return r;
}

static int notify_send_once(struct notify *notify, const char *text, int fd) {
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = {0};
        struct iovec iov = {.iov_base = (char *)text, .iov_len = strlen(text)};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
        struct cmsghdr *header;
        ssize_t n;

        if (fd >= 0) {
                message.msg_control = control.bytes;
                message.msg_controllen = sizeof(control.bytes);
                header = CMSG_FIRSTHDR(&message);
                header->cmsg_level = SOL_SOCKET;
                header->cmsg_type = SCM_RIGHTS;
                header->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(header), &fd, sizeof(int));
        }
        do
                n = sendmsg(notify->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : 0;
}

/* -EAGAIN: there is no room. */
static int notify_send(struct notify *notify, const char *text, int fd) {
        bool fresh = notify->fd < 0;
        int r;

        r = fresh ? notify_connect(notify) : 0;
        if (r == 0)
                r = notify_send_once(notify, text, fd);
        if ((r == -ECONNREFUSED || r == -ENOTCONN || r == -ECONNRESET) && !fresh) { /* it listens anew */
                notify_disconnect(notify);
                r = notify_connect(notify);
                if (r == 0)
                        r = notify_send_once(notify, text, fd);
        }
        return r;
}

static int notify_wait(int fd, short events, uint64_t end_ns) {
        struct pollfd poll_fd = {.fd = fd, .events = events};

        for (;;) {
                uint64_t now_ns = clock_now_ns(), left_ns = end_ns > now_ns ? end_ns - now_ns : 0;
                struct timespec left = {.tv_sec = (time_t)(left_ns / 1000000000u),
                                        .tv_nsec = (long)(left_ns % 1000000000u)};
                int r = ppoll(&poll_fd, 1, &left, NULL);

                if (r > 0)
                        return 0;
                if (r == 0)
                        return -ETIMEDOUT;
                if (errno != EINTR)
                        return -errno;
        }
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */
static void notify_drop(struct notify *notify, struct notify_entry *entry) {
        if (entry->fd >= 0) {
                if (entry->hh.tbl)
                        HASH_DEL(notify->puts, entry);
                close(entry->fd);
        }
        DL_DELETE(notify->queue, entry);
        notify->n_queued--;
        free(entry);
}

static bool notify_may_pass(int r) {
        return r == -ENOBUFS || r == -ENOMEM || r == -ETOOMANYREFS;
}

/* What there is room for. -EAGAIN and what may pass leave the rest for later. */
static int notify_send_queue(struct notify *notify) {
        while (notify->queue) {
                struct notify_entry *entry = notify->queue;
                int r = notify_send(notify, entry->text, entry->fd);

                if (r == -EAGAIN || notify_may_pass(r))
                        return r;
                if (r < 0 && !notify->failed) /* once: all else that waits will hardly fare better */
                        log_warning("the service manager was not told '%.64s': %s", entry->text, strerror(-r));
                notify->failed = r < 0;
                notify_drop(notify, entry);
        }
        return 0;
}

/* Something is left, for this reason. */
static void notify_again(struct notify *notify, int r) {
        if ((r != -EAGAIN || event_add(notify->writable, NULL) < 0) &&
            evtimer_add(notify->timer, &notify_again_time) < 0)
                event_active(notify->timer, EV_TIMEOUT, 0);
}

static void notify_flush_later(struct notify *notify) {
        int r = notify_send_queue(notify);

        if (r < 0)
                notify_again(notify, r);
}

static void notify_writable(evutil_socket_t fd, short what, void *data) {
        (void)fd;
        (void)what;
        notify_flush_later(data);
}

static int notify_flush_until(struct notify *notify, uint64_t end_ns) {
        for (;;) {
                int r = notify_send_queue(notify);

                if (r == 0)
                        return 0;
                notify_again(notify, r);
                if (r == -EAGAIN)
                        r = notify_wait(notify->fd, POLLOUT, end_ns);
                if (r < 0)
                        return r;
        }
}

/* The queue, and then this. */
static int notify_send_until(struct notify *notify, const char *text, int fd, uint64_t end_ns) {
        int r = notify_flush_until(notify, end_ns);

        while (r == 0) {
                r = notify_send(notify, text, fd);
                if (r != -EAGAIN)
                        break;
                r = notify_wait(notify->fd, POLLOUT, end_ns);
        }
        return r;
}

static int notify_queue(struct notify *notify, const char *text, const char *name, int fd, bool beat) {
        const size_t length = strlen(text) + 1, name_length = name ? strlen(name) + 1 : 0;
        struct notify_entry *entry;

        if (notify->n_queued >= NOTIFY_MAX)
                return -ENOBUFS;
        entry = calloc(1, sizeof(*entry) + length + name_length);
        if (!entry)
                return -ENOMEM;
        memcpy(entry->text, text, length);
        if (name) {
                entry->name = entry->text + length;
                memcpy(entry->name, name, name_length);
        }
        entry->beat = beat;
        entry->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
        if (fd >= 0 && entry->fd < 0) {
                int r = -errno;

                free(entry);
                return r;
        }
        if (fd >= 0) /* without memory for it there is no way to take it back: then it is stored and removed */
                HASH_ADD_KEYPTR(hh, notify->puts, entry->name, name_length - 1, entry);
        DL_APPEND(notify->queue, entry);
        notify->n_queued++;
        return 0;
}

static int notify_tell(struct notify *notify, const char *text, const char *name, int fd, bool beat) {
        int r = -EAGAIN;

        if (!notify_present())
                return 0;
        if (notify->queue)
                notify_flush_later(notify);
        if (!notify->queue) {
                r = notify_send(notify, text, fd);
                if (r != -EAGAIN)
                        return r;
        }
        r = notify_queue(notify, text, name, fd, beat);
        if (r == -ENOMEM) /* then it has to wait after all, but not for long */
                return notify_send_until(notify, text, fd, clock_now_ns() + NOTIFY_SCARCE_NS);
        if (r == 0 && notify->queue->next == NULL)
                notify_again(notify, -EAGAIN);
        return r;
}

static void notify_time_over(evutil_socket_t fd, short what, void *data) {
        (void)fd;
        (void)what;
        notify_flush_later(data);
}

int notify_new(struct event_base *base, struct notify **ret_notify) {
        struct notify *notify = calloc(1, sizeof(*notify));

        if (!notify)
                return -ENOMEM;
        notify->base = base;
        notify->fd = -1;
        notify->timer = evtimer_new(base, notify_time_over, notify);
        if (!notify->timer) {
                free(notify);
                return -ENOMEM;
        }
        *ret_notify = notify;
        return 0;
}

struct notify *notify_free(struct notify *notify) {
        if (!notify)
                return NULL;
        if (notify->queue && notify_flush_until(notify, clock_now_ns() + NOTIFY_LEAVE_NS) < 0)
                log_warning("the service manager does not take %u notifications; what they are to keep is lost",
                            notify->n_queued);
        while (notify->queue)
                notify_drop(notify, notify->queue);
        assert(!notify->puts);
        notify_disconnect(notify);
        event_free(notify->timer);
        free(notify);
        return NULL;
}

static int notify_format(char text[NOTIFY_TEXT_MAX], const char *format, va_list args)
        __attribute__((format(printf, 2, 0)));
static int notify_format(char text[NOTIFY_TEXT_MAX], const char *format, va_list args) {
        int n = vsnprintf(text, NOTIFY_TEXT_MAX, format, args);

        return n < 0 || n >= (int)NOTIFY_TEXT_MAX ? -ENAMETOOLONG : 0;
}

int notify_say(struct notify *notify, const char *format, ...) {
        char text[NOTIFY_TEXT_MAX];
        va_list args;
        int r;

        va_start(args, format);
        r = notify_format(text, format, args);
        va_end(args);
        return r < 0 ? r : notify_tell(notify, text, NULL, -1, false);
}

int notify_beat(struct notify *notify, const char *format, ...) {
        char text[NOTIFY_TEXT_MAX];
        struct notify_entry *entry, *tmp;
        va_list args;
        int r;

        va_start(args, format);
        r = notify_format(text, format, args);
        va_end(args);
        if (r < 0)
                return r;
        DL_FOREACH_SAFE(notify->queue, entry, tmp) {
                if (entry->beat)
                        notify_drop(notify, entry);
        }
        return notify_tell(notify, text, NULL, -1, true);
}

/* FDPOLL=0: it is not to be dropped because a socket's peer died, or a client wrote the maximum into an eventfd. */
int notify_put(struct notify *notify, const char *name, int fd) {
        char text[128];

        if ((size_t)snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name) >= sizeof(text))
                return -ENAMETOOLONG;
        return notify_tell(notify, text, name, fd, false);
}

int notify_remove(struct notify *notify, const char *name) {
        struct notify_entry *entry;
        char text[128];

        if ((size_t)snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name) >= sizeof(text))
                return -ENAMETOOLONG;
        HASH_FIND_STR(notify->puts, name, entry);
        if (entry) { /* the manager need not hear of it */
                notify_drop(notify, entry);
                return 0;
        }
        return notify_tell(notify, text, name, -1, false);
}

int notify_flush(struct notify *notify, uint64_t timeout_us) {
        return notify_flush_until(notify, clock_now_ns() + timeout_us * 1000);
}

int notify_barrier(struct notify *notify, uint64_t timeout_us) {
        const uint64_t end_ns = clock_now_ns() + timeout_us * 1000;
        int ends[2], r;

        if (!notify_present())
                return 0;
        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        r = notify_send_until(notify, "BARRIER=1", ends[1], end_ns);
        close(ends[1]);
        if (r == 0)
                r = notify_wait(ends[0], 0, end_ns); /* it is answered by being closed */
        close(ends[0]);
        return r;
}
