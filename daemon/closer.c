/* SPDX-License-Identifier: MIT */
/*
 * close(2) can block: a TCP socket with SO_LINGER set and an unread peer sleeps in it, O_NONBLOCK or not. A client can
 * send such a socket to us, also in a packet that we never read and that goes with the connection. So whatever may
 * carry a client's descriptors is closed here, where only other such closes wait for it. Since Linux 6.16 a listener
 * can refuse descriptors altogether (SO_PASSRIGHTS, see listener.c); Debian 12's kernel is older.
 *
 * The queue is a pipe: a full one means that thousands of closes hang, and then the loop closes by itself rather than
 * run out of descriptors.
 */
#include "daemon/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

struct closer {
        int write_fd;
};

static void *closer_main(void *data) {
        int read_fd = (int)(long)data, fd;

        /* The end of the pipe is the end of the thread: everything sent before it has been closed. */
        while (read(read_fd, &fd, sizeof(fd)) == sizeof(fd))
                close(fd);
        close(read_fd);
        return NULL;
}

int closer_new(struct closer **ret_closer) {
        struct closer *closer;
        sigset_t all, before;
        pthread_t thread;
        int fds[2], r;

        closer = calloc(1, sizeof(*closer));
        if (!closer)
                return -ENOMEM;
        if (pipe2(fds, O_CLOEXEC) < 0) {
                r = -errno;
                free(closer);
                return r;
        }
        fcntl(fds[1], F_SETFL, O_NONBLOCK);
        /* Signals are for the loop thread. */
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        r = -pthread_create(&thread, NULL, closer_main, (void *)(long)fds[0]);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r < 0) {
                close(fds[0]);
                close(fds[1]);
                free(closer);
                return r;
        }
        pthread_detach(thread);
        closer->write_fd = fds[1];
        *ret_closer = closer;
        return 0;
}

struct closer *closer_free(struct closer *closer) {
        if (!closer)
                return NULL;
        close(closer->write_fd);
        free(closer);
        return NULL;
}

void closer_close(struct closer *closer, int fd) {
        if (fd < 0)
                return;
        if (!closer || write(closer->write_fd, &fd, sizeof(fd)) != sizeof(fd))
                close(fd);
}
