/* SPDX-License-Identifier: MIT */
/*
 * What cannot wait for a tick
 *
 * The control thread looks at a plane every two milliseconds, or twenty while it is parked. Some things are waited for
 * by requests: a burst that is to be launched (burst.c), a client that has rung a parked plane, a kernel that ends
 * because large requests come with long pauses (leave.c). A thread of their own looks at the words in host memory that
 * tell of them.
 *
 * Locks. All that the control thread does has the plane's lock (hip.h), and so has this thread, but for bursts: those
 * are launched without, because the control thread may be waiting for a worker that waits for a burst. This thread only
 * tries to get the lock, and not at all while the control thread wants it, since whoever tries all the time would get
 * it most of the time.
 *
 * When to look. All the time as long as there are bursts and for SPIN_NS after the last one, which covers the pauses
 * within a prefill's layers; for longer when the plane is parked between two of them, since the next will be waited
 * for. Then every NAP_NS, and after IDLE_NS without any every DOZE_NS.
 *
 * A parked plane should cost nothing, and a look costs 10 us of a virtual machine's processor. In the first ALERT_NS
 * there is one every ALERT_NAP_NS, and the first request after a silence is late by half of that; then one every
 * PARKED_NAP_NS, and from the beginning where clients let the next kernel go themselves (park.c): nobody waits for it
 * then but a first burst, older libraries, and those from whom somebody keeps the latch. Without communicators nobody
 * can ring: every VACANT_NAP_NS.
 *
 * A client that calls by itself (so not a graph that is replayed) knows how long it has been silent, and after a while
 * writes an eventfd before it puts its bell on the stream. This thread then wakes the plane before anybody has rung.
 * One that writes all the time is heard once in SOON_NS.
 */
#include "gpu/hip/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "util/clock.h"
#include "util/thread.h"

#define SPIN_NS       UINT64_C(2000000)
#define SPIN_LEFT_NS  UINT64_C(20000000)
#define IDLE_NS       UINT64_C(1000000000)
#define NAP_NS        20000
#define DOZE_NS       1000000
#define ALERT_NS      UINT64_C(10000000000)
#define ALERT_NAP_NS  320000
#define PARKED_NAP_NS 2000000
#define VACANT_NAP_NS 5000000
#define SOON_NS       UINT64_C(300000)
#define SOON_EVENTS   16
#define LATE_NS       1000ul /* that a nap may be longer */

/* What needs the lock. True: there is more to come. *ret_large: large requests make the kernel come and go. */
static bool watch_look(struct watch *watch, uint64_t now_ns, bool *ret_large) {
        struct plane *plane = watch->plane;
        bool again;

        if (!plane_try_lock(plane))
                return false;
        again = leave_watch(plane, watch->kib, watch->soon);
        watch->kib = 0;
        watch->soon = false;
        *ret_large = plane->leave.asked_ns || plane->leave.left != watch->left;
        watch->left = plane->leave.left;
        if (plane->parked && !watch->parked)
                watch->parked_ns = now_ns;
        watch->parked = plane->parked;
        watch->queued = plane->park.queued;
        watch->vacant = !plane->comms;
        plane_unlock(plane);
        return again;
}

/* Rests, but not after somebody has written. */
static void watch_nap(struct watch *watch, const struct timespec *nap, uint64_t now_ns) {
        struct pollfd listens = {.fd = watch->epoll_fd, .events = POLLIN};
        struct epoll_event events[SOON_EVENTS]; /* edge-triggered: what is written is never read */

        if (now_ns - watch->soon_ns < SOON_NS) {
                nanosleep(nap, NULL);
        } else if (ppoll(&listens, 1, nap, NULL) > 0 && epoll_wait(watch->epoll_fd, events, SOON_EVENTS, 0) > 0) {
                watch->soon = true;
                watch->soon_ns = now_ns;
        }
}

static long nap_ns(const struct watch *watch, uint64_t now_ns, uint64_t silence_ns) {
        if (silence_ns < IDLE_NS || watch->soon || watch->kib) /* who said so has found the lock taken */
                return NAP_NS;
        if (!watch->parked)
                return DOZE_NS;
        if (watch->vacant)
                return VACANT_NAP_NS;
        return watch->queued || now_ns - watch->parked_ns >= ALERT_NS ? PARKED_NAP_NS : ALERT_NAP_NS;
}

static void watch_rest(struct watch *watch, uint64_t now_ns, uint64_t silence_ns) {
        const struct timespec nap = {.tv_nsec = nap_ns(watch, now_ns, silence_ns)};
        const uint64_t spin = watch->left ? SPIN_LEFT_NS : SPIN_NS;

        if (silence_ns >= spin)
                watch_nap(watch, &nap, now_ns);
}

static void *watch_main(void *data) {
        struct watch *watch = data;
        uint64_t last_ns = 0;

        (void)prctl(PR_SET_NAME, "rmx-watch");
        (void)prctl(PR_SET_TIMERSLACK, LATE_NS); /* else naps are longer, and all is right */
        if (hipSetDevice((int)watch->plane->device) != hipSuccess)
                atomic_store_explicit(&watch->failed, -EIO, memory_order_relaxed);
        while (!atomic_load_explicit(&watch->stop, memory_order_relaxed)) {
                const uint64_t now_ns = clock_now_ns();
                uint32_t kib = 0;
                bool burst = burst_look(&watch->plane->burst, &kib), large = false, again;

                watch->kib = kib > watch->kib ? kib : watch->kib;
                again = watch_look(watch, now_ns, &large);
                if (burst || large)
                        last_ns = now_ns;
                else if (!again)
                        watch_rest(watch, now_ns, now_ns - last_ns);
        }
        return NULL;
}

int watch_open(struct watch *watch, struct plane *plane, char *error) {
        int r;

        watch->plane = plane;
        watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (watch->epoll_fd < 0)
                return error_set(-errno, error, "making an epoll instance: %s", strerror(errno));
        r = -thread_start(&watch->thread, NULL, watch_main, watch);
        watch->running = !r;
        if (r) {
                close(watch->epoll_fd);
                watch->epoll_fd = -1;
        }
        return r ? error_set(r, error, "making a thread that watches the kernels: %s", strerror(-r)) : 0;
}

void watch_close(struct watch *watch) {
        if (!watch->running)
                return;
        atomic_store_explicit(&watch->stop, true, memory_order_relaxed);
        pthread_join(watch->thread, NULL);
        close(watch->epoll_fd);
        watch->epoll_fd = -1;
        watch->running = false;
}

int watch_listen(struct watch *watch, int fd) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET};
        int own;

        if (!watch->running || fd < 0)
                return -1;
        own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        if (own >= 0 && epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, own, &event) < 0) {
                close(own);
                own = -1;
        }
        return own;
}

void watch_unlisten(struct watch *watch, int fd) {
        if (fd < 0)
                return;
        if (watch->running) /* others hold the same eventfd, so closing ours does not do it */
                (void)epoll_ctl(watch->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        close(fd);
}

int watch_check(const struct watch *watch, char *error) {
        const int failed = atomic_load_explicit(&watch->failed, memory_order_relaxed);

        return failed ? error_set(failed, error, "a thread that watches the kernels: no such device") : 0;
}
