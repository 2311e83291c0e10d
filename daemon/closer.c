/* SPDX-License-Identifier: MIT */
/*
 * close(2) can block: a TCP socket with SO_LINGER set and an unread peer sleeps in it, O_NONBLOCK or not. A client can
 * send such a socket to us, also in a packet that we never read and that goes with the connection. So whatever may
 * carry a client's descriptors is closed here, where only other such closes wait for it. Since Linux 6.16 a listener
 * can refuse descriptors altogether (SO_PASSRIGHTS, see listener.c); Debian 12's kernel is older, and clients with GPUs
 * do send some.
 *
 * One thread does, until its close hangs: then the next descriptor that comes has another one started, up to THREADS.
 * When all hang, what comes waits in a list, which has no end but the table of descriptors; whoever lets clients send
 * some looks at closer_waiting().
 */
#include "daemon/closer.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/thread.h"

#define THREADS 8u
#define HANG_NS UINT64_C(100000000)

struct closer_item {
        struct closer_item *next;
        int fd;
};

struct closer {
        pthread_mutex_t mutex;
        pthread_cond_t came;
        struct closer_item *first, **last;
        uint32_t waiting; /* those under way included */
        uint32_t threads, idle;
        uint64_t moved_ns; /* a thread has taken or closed one last */
        bool ended;
};

static void closer_destroy(struct closer *closer) {
        pthread_cond_destroy(&closer->came);
        pthread_mutex_destroy(&closer->mutex);
        free(closer);
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
                free(item);
                pthread_mutex_lock(&closer->mutex);
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

struct closer *closer_free(struct closer *closer) {
        if (!closer)
                return NULL;
        pthread_mutex_lock(&closer->mutex);
        closer->ended = true; /* when the list is empty */
        pthread_cond_broadcast(&closer->came);
        pthread_mutex_unlock(&closer->mutex);
        return NULL;
}

void closer_close(struct closer *closer, int fd) {
        struct closer_item *item;

        if (fd < 0)
                return;
        item = closer ? malloc(sizeof(*item)) : NULL;
        if (!item) {
                close(fd);
                return;
        }
        *item = (struct closer_item){.fd = fd};
        pthread_mutex_lock(&closer->mutex);
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
