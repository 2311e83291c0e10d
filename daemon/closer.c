/* SPDX-License-Identifier: MIT */
/*
 * close(2) can block: a TCP socket with SO_LINGER set and an unread peer sleeps in it, O_NONBLOCK or not. A client can
 * send such a socket to us, also in a packet that we never read and that goes with the connection. So whatever may
 * carry a client's descriptors is closed here, where only other such closes wait for it. Since Linux 6.16 a listener
 * can refuse descriptors altogether (SO_PASSRIGHTS, see listener.c); Debian 12's kernel is older, and clients with GPUs
 * do send some.
 *
 * One thread does, until its close hangs: then the next descriptor that comes has another one started, up to THREADS.
 * When all hang, what comes waits in a list, which has no end but the table of descriptors. So each counts on the
 * account of whoever is to blame until it is closed, and whoever lets clients send some looks there. Accounts are the
 * loop's alone: a thread only hands back what it has closed (closer_settle).
 */
#include "daemon/closer.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utlist.h>

#include "util/charge.h"
#include "util/clock.h"
#include "util/thread.h"

#define THREADS 8u
#define HANG_NS UINT64_C(100000000)

struct closer_item {
        struct closer_item *next; /* of first, or done */
        struct closer_item *charged_next, *charged_prev;
        int fd;
        struct charge charge; /* the loop's; others look under the mutex whether there is one */
};

struct closer {
        pthread_mutex_t mutex;
        pthread_cond_t came;
        struct closer_item *first, **last;
        struct closer_item *charged; /* utlist: all with a charge, wherever they are */
        struct closer_item *done;    /* ... of which these are closed */
        int done_fd;                 /* eventfd: there are some; -1: nobody has to know at once */
        struct event *done_event;
        uint32_t waiting; /* those under way included */
        uint32_t threads, idle;
        uint64_t moved_ns; /* a thread has taken or closed one last */
        bool ended;
};

static void closer_destroy(struct closer *closer) {
        pthread_cond_destroy(&closer->came);
        pthread_mutex_destroy(&closer->mutex);
        if (closer->done_fd >= 0)
                close(closer->done_fd);
        free(closer);
}

/* With the mutex. */
static void closer_done(struct closer *closer, struct closer_item *item) {
        if (!item->charge.account) {
                free(item);
                return;
        }
        if (!closer->done && closer->done_fd >= 0)
                (void)eventfd_write(closer->done_fd, 1);
        item->next = closer->done;
        closer->done = item;
}

static void *closer_main(void *data) {
        struct closer *closer = data;
        bool last;

        pthread_mutex_lock(&closer->mutex);
        for (;;) {
                struct closer_item *item = closer->first;

                if (!item && closer->ended)
                        break;
                if (!item) {
                        closer->idle++;
                        pthread_cond_wait(&closer->came, &closer->mutex);
                        closer->idle--;
                        continue;
                }
                closer->first = item->next;
                if (!closer->first)
                        closer->last = &closer->first;
                closer->moved_ns = clock_now_ns();
                pthread_mutex_unlock(&closer->mutex);
                close(item->fd);
                pthread_mutex_lock(&closer->mutex);
                closer_done(closer, item);
                closer->moved_ns = clock_now_ns();
                closer->waiting--;
        }
        last = --closer->threads == 0;
        pthread_mutex_unlock(&closer->mutex);
        if (last)
                closer_destroy(closer);
        return NULL;
}

/* With the mutex, or before anybody else knows it. 0 or -errno. */
static int closer_start(struct closer *closer) {
        pthread_t thread;
        int r = -thread_start(&thread, NULL, closer_main, closer);

        if (r)
                return r;
        pthread_detach(thread);
        closer->threads++;
        closer->moved_ns = clock_now_ns();
        return 0;
}

int closer_new(struct closer **ret_closer) {
        struct closer *closer = calloc(1, sizeof(*closer));
        int r;

        if (!closer)
                return -ENOMEM;
        pthread_mutex_init(&closer->mutex, NULL);
        pthread_cond_init(&closer->came, NULL);
        closer->last = &closer->first;
        closer->done_fd = -1;
        pthread_mutex_lock(&closer->mutex);
        r = closer_start(closer);
        pthread_mutex_unlock(&closer->mutex);
        if (r) {
                closer_destroy(closer);
                return r;
        }
        *ret_closer = closer;
        return 0;
}

static void closer_readable(evutil_socket_t fd, short what, void *data) {
        eventfd_t value;

        (void)what;
        (void)eventfd_read(fd, &value);
        closer_settle(data);
}

int closer_watch(struct closer *closer, struct event_base *base) {
        int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

        if (fd < 0)
                return -errno;
        closer->done_event = event_new(base, fd, EV_READ | EV_PERSIST, closer_readable, closer);
        if (!closer->done_event || event_add(closer->done_event, NULL) < 0) {
                if (closer->done_event)
                        event_free(closer->done_event);
                closer->done_event = NULL;
                close(fd);
                return -ENOMEM;
        }
        pthread_mutex_lock(&closer->mutex);
        closer->done_fd = fd;
        pthread_mutex_unlock(&closer->mutex);
        return 0;
}

/* With the mutex. */
static void closer_release(struct closer *closer, struct closer_item *item) {
        charge_release(&item->charge);
        DL_DELETE2(closer->charged, item, charged_prev, charged_next);
}

static void closer_release_done(struct closer *closer) {
        struct closer_item *item;

        while ((item = closer->done)) {
                closer->done = item->next;
                closer_release(closer, item);
                free(item);
        }
}

void closer_settle(struct closer *closer) {
        if (!closer)
                return;
        pthread_mutex_lock(&closer->mutex);
        closer_release_done(closer);
        pthread_mutex_unlock(&closer->mutex);
}

struct closer *closer_free(struct closer *closer) {
        if (!closer)
                return NULL;
        if (closer->done_event)
                event_free(closer->done_event);
        pthread_mutex_lock(&closer->mutex);
        closer_release_done(closer);
        while (closer->charged) /* the accounts may go; threads free these */
                closer_release(closer, closer->charged);
        closer->ended = true; /* when the list is empty */
        pthread_cond_broadcast(&closer->came);
        pthread_mutex_unlock(&closer->mutex);
        return NULL;
}

void closer_close(struct closer *closer, int fd) {
        closer_close_for(closer, fd, NULL);
}

void closer_close_for(struct closer *closer, int fd, struct charge_account *account) {
        struct closer_item *item;

        if (fd < 0)
                return;
        item = closer ? malloc(sizeof(*item)) : NULL;
        if (!item) {
                close(fd);
                return;
        }
        *item = (struct closer_item){.fd = fd};
        if (account)
                (void)charge_take(&item->charge, account, CHARGE_FDS, 1);
        pthread_mutex_lock(&closer->mutex);
        if (item->charge.account)
                DL_APPEND2(closer->charged, item, charged_prev, charged_next);
        *closer->last = item;
        closer->last = &item->next;
        closer->waiting++;
        if (closer->idle)
                pthread_cond_signal(&closer->came);
        else if (closer->threads < THREADS && clock_now_ns() - closer->moved_ns > HANG_NS)
                (void)closer_start(closer);
        pthread_mutex_unlock(&closer->mutex);
}

uint32_t closer_waiting(struct closer *closer) {
        uint32_t waiting;

        if (!closer)
                return 0;
        pthread_mutex_lock(&closer->mutex);
        waiting = closer->waiting;
        pthread_mutex_unlock(&closer->mutex);
        return waiting;
}
