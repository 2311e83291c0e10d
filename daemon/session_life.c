/* SPDX-License-Identifier: MIT */
/*
 * Linux ends a process that was killed in this order: its threads stop, one by one; the last of them gives the memory
 * back; then it closes the descriptors; then whoever waits for the process is told. For a process with tens of
 * gigabytes, or with a GPU's context, the second step takes from a tenth of a second to some seconds, and all the while
 * socket and pidfd say nothing, and the other ranks wait.
 *
 * A thread that has a table of descriptors of its own closes that one when it stops itself, in the first step, unless
 * it is the last one. So the client is given the writing ends of two pipes and keeps each in the table of a thread of
 * its own (client/life.c), and nowhere else. The end of either is the end of the session.
 *
 * A pipe may end for other reasons as well: its answer met nobody who waited, or no room for its descriptors, or there
 * is no such thread. So it counts from when the thread has said that it has its end, by the only byte that is ever
 * written. Then it is stored for a successor.
 *
 * A process that dumps core does so before all that, with its threads waiting: for minutes, if it has much memory. No
 * descriptor tells; /proc does (CoreDumping, Linux 4.15). So whoever is in a communicator is looked at once a second.
 */
#include "daemon/session_life.h"

#include "daemon/manager.h"
#include "daemon/record.h"
#include "daemon/session.h"
#include "daemon/tenant.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SESSION_LOOKS      64u               /* at processes, at a time */
#define SESSION_LOOK_NS    UINT64_C(2000000) /* no further one after that */
#define SESSION_SLOW_NS    UINT64_C(1000000) /* a process that takes longer is slow, ... */
#define SESSION_SLOW_LOOKS 5u                /* ... and comes again after so many */
#define SESSION_LIFE_CALLS 16u               /* after as many restarts within one call nobody needs to know earlier */

static void life_sent(struct session_life *life) {
        if (life->end >= 0)
                close(life->end);
        life->end = -1;
}

static void life_close(struct session_life *life) {
        if (life->event)
                event_free(life->event);
        life->event = NULL;
        life_sent(life);
        if (life->fd >= 0) {
                if (life->armed)
                        record_drop_life(life);
                close(life->fd);
        }
        life->fd = -1;
        life->armed = false;
        charge_release(&life->charge);
}

static void life_readable(evutil_socket_t fd, short what, void *data) {
        struct session_life *life = data;
        struct session *session = life->session;
        LOOP_HOLD(&session->manager->watch, "the end of a client");
        char bytes[2];
        ssize_t n = read(fd, bytes, sizeof(bytes));

        (void)what;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n == 1 && !life->armed) {
                life->armed = true;
                record_life(life);
        } else if (n > 0) {
                session->manager->counters.protocol_errors++;
                event_del(life->event);
                session_end(session, LOG_LEVEL_WARNING, "protocol error: it wrote into a pipe that tells its end");
        } else if (life->armed) {
                event_del(life->event);
                session_end(session, LOG_LEVEL_INFO, "the process is ending");
        } else {
                life_close(life);
        }
}

static int life_watch(struct session_life *life) {
        life->event = event_new(life->session->manager->base, life->fd, EV_READ | EV_PERSIST, life_readable, life);
        return life->event && event_add(life->event, NULL) == 0 ? 0 : SESSION_LIFE_E_RESOURCE;
}

static int life_open(struct session_life *life, char *text, size_t text_size) {
        int fds[2];

        if (tenant_charge(life->session->tenant, &life->charge, CHARGE_FDS, 1, text, text_size))
                return SESSION_LIFE_E_LIMIT;
        if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0) {
                snprintf(text, text_size, "the daemon cannot make a pipe: %s", strerror(errno));
                return SESSION_LIFE_E_RESOURCE;
        }
        (void)fcntl(fds[1], F_SETPIPE_SZ, 4096); /* 64 KiB would soon be as much as a user may have in pipes */
        life->fd = fds[0];
        life->end = fds[1];
        if (!life_watch(life))
                return 0;
        snprintf(text, text_size, "out of memory");
        return SESSION_LIFE_E_RESOURCE;
}

void session_life_init(struct session *session) {
        for (unsigned int i = 0; i < SESSION_LIVES; i++)
                session->life[i] = (struct session_life){.session = session, .fd = -1, .end = -1};
}

int session_life_open(struct session *session, char *text, size_t text_size) {
        int r = 0;

        if (++session->n_life_calls > SESSION_LIFE_CALLS) {
                snprintf(text, text_size, "pipes have been asked for %u times", SESSION_LIFE_CALLS);
                return SESSION_LIFE_E_LIMIT;
        }
        session_life_close(session);
        for (unsigned int i = 0; i < SESSION_LIVES && !r; i++)
                r = life_open(&session->life[i], text, text_size);
        if (r)
                session_life_close(session);
        return r;
}

bool session_life_ends(const struct session *session, int ret_fds[SESSION_LIVES]) {
        for (unsigned int i = 0; i < SESSION_LIVES; i++) {
                if (session->life[i].end < 0)
                        return false;
                ret_fds[i] = session->life[i].end;
        }
        return true;
}

void session_life_sent(struct session *session) {
        for (unsigned int i = 0; i < SESSION_LIVES; i++)
                life_sent(&session->life[i]);
}

int session_life_adopt(struct session *session, unsigned int i, int fd) {
        struct session_life *life = &session->life[i];
        char text[160];
        int r;

        if (tenant_charge(session->tenant, &life->charge, CHARGE_FDS, 1, text, sizeof(text)))
                return SESSION_LIFE_E_LIMIT;
        life->fd = fd;
        r = life_watch(life);
        if (r) {
                life->fd = -1;
                life_close(life);
        }
        life->armed = !r;
        return r;
}

void session_life_close(struct session *session) {
        for (unsigned int i = 0; i < SESSION_LIVES; i++)
                life_close(&session->life[i]);
}

/* false, too, where it cannot be told: a process of another namespace, or of a user whom /proc hides, or whose first
 * thread has ended. (Whoever reads this holds the process's memory for that long, and would have to give it back if it
 * ended just then; the pipes make that a matter of microseconds in a process's life.) */
static bool session_dumps_core(const struct session *session) {
        struct pollfd ended = {.fd = session->pidfd, .events = POLLIN};
        _cleanup_close_ int fd = -1;
        char path[32], status[8192]; /* the line stands before 1500, but for a long list of groups */
        ssize_t n;

        if (session->pid <= 0)
                return false;
        snprintf(path, sizeof(path), "/proc/%d/status", (int)session->pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, status, sizeof(status) - 1);
        if (n <= 0 || (session->pidfd >= 0 && poll(&ended, 1, 0) != 0)) /* the number may be another one's by now */
                return false;
        status[n] = 0;
        return strstr(status, "\nCoreDumping:\t1\n") != NULL;
}

/* A slow one comes seldom; and after one the next look is without its tenant, so that one with many delays nobody else
 * for long. */
static bool session_looked_at(const struct session *session) {
        const uint64_t look = session->manager->life_looks;

        return session->members && !session->ending && session->look_at <= look && session->tenant->look_at <= look;
}

static void session_look(struct session *session, uint64_t *now_ns) {
        const uint64_t began_ns = *now_ns;
        const bool dumps = session_dumps_core(session);

        *now_ns = clock_now_ns();
        if (*now_ns - began_ns > SESSION_SLOW_NS) {
                session->look_at = session->manager->life_looks + SESSION_SLOW_LOOKS;
                session->tenant->look_at = session->manager->life_looks + 2;
        }
        if (!dumps)
                return;
        log_notice("session %" PRIu64 " (pid %d): its process dumps core", session->id, (int)session->pid);
        session_end(session, LOG_LEVEL_INFO, "the process is dumping core");
}

/* Some at a time: one takes some 20 us, but a thousand times that if the process is in as many groups as Linux allows,
 * which stand in the same file. So there is a bound in time, too, and the next look goes on from there. */
void session_life_look(struct manager *manager) {
        struct session *session = manager_session(manager, manager->life_last);
        unsigned int n = HASH_COUNT(manager->sessions);
        uint64_t now_ns = clock_now_ns();
        const uint64_t end_ns = now_ns + SESSION_LOOK_NS;

        manager->life_looks++;
        if (n > SESSION_LOOKS)
                n = SESSION_LOOKS;
        for (; n > 0 && now_ns < end_ns; n--) {
                session = session && session->hh.next ? session->hh.next : manager->sessions;
                manager->life_last = session->id;
                if (session_looked_at(session))
                        session_look(session, &now_ns);
        }
}
