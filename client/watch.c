/* SPDX-License-Identifier: MIT */
/*
 * The library has no thread that does anything as long as executors answer every request, whatever becomes of it (two
 * only wait for the process to end, life.c). Exchanged requests they know nothing of (device_exchange.c): one that
 * waits for a rank that has died ends only if this process hears of it, while the program may sit in a call of the
 * GPU's runtime until its stream is empty. So from the first communicator on that exchanges a thread sleeps at the
 * session's socket, and reads what comes; what is to be done then is done where events are read (comm_on_event).
 * Answers for other threads, which wake it as well, it leaves to them or reads for them, as any thread would (rpc.c).
 *
 * When the connection is lost it gives up what waits on the GPUs (session_look), after which nothing is left to hear.
 */
#include "client/watch.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "client/error.h"
#include "client/session.h"
#include "util/thread.h"

#define LOST_MS 50 /* between two looks when the connection is lost */

static void *watch_main(void *data) {
        struct rmx_session *session = data;
        struct pollfd fds[] = {{.fd = session->rpc.fd, .events = POLLIN},
                               {.fd = session->watch.stop_fd, .events = POLLIN}};

        (void)prctl(PR_SET_NAME, "rmx-events");
        for (;;) {
                const bool lost = rpc_lost(&session->rpc);
                int n;

                fds[0].fd = lost ? -1 : session->rpc.fd; /* which would be readable for ever */
                n = poll(fds, 2, lost ? LOST_MS : -1);
                if (n < 0 && errno != EINTR && errno != EAGAIN)
                        return NULL;
                if (n > 0 && fds[1].revents)
                        return NULL;
                session_look(session);
        }
}

void watch_init(struct watch *watch) {
        pthread_mutex_init(&watch->mutex, NULL);
        watch->stop_fd = -1;
}

int watch_start(struct rmx_session *session, const char *what) {
        struct watch *watch = &session->watch;
        int r = 0;

        pthread_mutex_lock(&watch->mutex);
        if (watch->running) {
                pthread_mutex_unlock(&watch->mutex);
                return RMX_OK;
        }
        if (watch->stop_fd < 0)
                watch->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (watch->stop_fd < 0) {
                r = errno;
        } else {
                r = thread_start(&watch->thread, NULL, watch_main, session);
        }
        watch->running = !r;
        pthread_mutex_unlock(&watch->mutex);
        return r ? error_set(RMX_E_NO_MEMORY, "%s: a thread that reads events cannot be made: %s", what, strerror(r))
                 : RMX_OK;
}

void watch_stop(struct rmx_session *session) {
        struct watch *watch = &session->watch;
        const uint64_t one = 1;
        bool running;

        pthread_mutex_lock(&watch->mutex);
        running = watch->running;
        watch->running = false;
        pthread_mutex_unlock(&watch->mutex);
        if (!running)
                return;
        (void)!write(watch->stop_fd, &one, sizeof(one)); /* a counter far from full always takes it */
        pthread_join(watch->thread, NULL);
}

void watch_deinit(struct watch *watch) {
        if (watch->stop_fd >= 0)
                close(watch->stop_fd);
        pthread_mutex_destroy(&watch->mutex);
}
