/* SPDX-License-Identifier: MIT */
/*
 * The end of a process
 *
 * A process that is killed closes its descriptors last, when all its memory has been given back. That takes from a
 * tenth of a second to some seconds if it has pinned tens of gigabytes or a GPU's context, and until then railmuxd
 * would not know that the other ranks wait in vain. Threads stop at once, however. So a thread of the library has a
 * table of descriptors of its own with nothing in it but the end of a pipe that railmuxd reads: when the thread is
 * stopped, its table is closed, with the pipe. The last thread to stop gives the memory back first, and this may be the
 * one; so there are two, with a pipe each.
 *
 * close_range(2) with CLOSE_RANGE_UNSHARE makes such a table, which needs no privilege and is allowed in containers
 * (unshare(2) is not, as a rule). A thread that has it says so by a byte in the pipe, and only then does railmuxd count
 * on it. Where the kernel does not have the call (before 5.9), or there is no thread to be had, or the answer comes too
 * late, nothing is said, and the end is known when the socket is closed; so it is, too, if a file system has kept the
 * thread for longer than the opening of a session may take, since the process then keeps its copy. A program that forks
 * before the thread has its table leaves a copy of the end in the child; then, too, the socket tells.
 *
 * What is closed in the new table is closed nowhere else, but file systems hear of it as when a child of fork() closes:
 * what was written to a file on a network is written out. One thing is unlike a child's: a notification by mq_notify(3)
 * that the program has asked for is taken back.
 *
 * The threads do nothing else. They cannot be used for anything that needs the process's descriptors.
 */
#include "client/life.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/rpc.h"
#include "client/session.h"
#include "util/clock.h"
#include "util/thread.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1u << 1)
#endif

#define LIFE_START_NS UINT64_C(1000000000)
#define LIFE_STACK    (UINT64_C(256) << 10) /* of programs that lock all their memory */

/* By number, since sanitizers that follow descriptors would take these for closed in the whole process. */
static bool life_go_apart(int fd) {
        if (syscall(SYS_close_range, (unsigned int)fd + 1, ~0u, CLOSE_RANGE_UNSHARE))
                return false;
        return fd == 0 || !syscall(SYS_close_range, 0u, (unsigned int)fd - 1, 0u);
}

struct life_line {
        pthread_mutex_t mutex;
        pthread_cond_t changed; /* CLOCK_MONOTONIC */
        pthread_t thread;
        bool settled; /* under mutex: the thread has done what it can */
        bool stop;    /* under mutex: it shall end */
        bool alone;   /* under mutex: nobody joins it: it frees the line */
        int fd;       /* the process's copy of the pipe's end, -1: none; constant until the thread has settled */
};

static void line_free(struct life_line *line) {
        pthread_cond_destroy(&line->changed);
        pthread_mutex_destroy(&line->mutex);
        free(line);
}

static void *line_main(void *data) {
        struct life_line *line = data;
        const int fd = line->fd;
        bool apart, alone;

        (void)prctl(PR_SET_NAME, "rmx-life");
        apart = life_go_apart(fd);
        if (apart)
                (void)!write(fd, "", 1); /* nobody reads: the daemon knows nothing then, and needs not */
        pthread_mutex_lock(&line->mutex);
        line->settled = true;
        pthread_cond_broadcast(&line->changed);
        while (apart && !line->stop)
                pthread_cond_wait(&line->changed, &line->mutex);
        alone = line->alone;
        pthread_mutex_unlock(&line->mutex);
        if (alone)
                line_free(line);
        return NULL;
}

/* False: there are no pipes. */
static bool life_call(struct rmx_session *session, uint64_t deadline_ns, int ret_fd[LIFE_LINES]) {
        Railmux__Session__LifeOpen body = RAILMUX__SESSION__LIFE_OPEN__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rpc_call call = {.message = &message, .n_fds = LIFE_LINES};

        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_LIFE_OPEN;
        message.life_open = &body;
        if (rpc_call(&session->rpc, &call, deadline_ns))
                return false;
        if (call.answer.body != RAILMUX__SESSION__MESSAGE__BODY_LIFE_REPLY || call.answer.n_fds != LIFE_LINES) {
                frame_close_fds(call.answer.fds, call.answer.n_fds);
                return false;
        }
        memcpy(ret_fd, call.answer.fds, LIFE_LINES * sizeof(*ret_fd));
        return true;
}

static bool line_start(struct life_line *line) {
        pthread_attr_t attributes;
        bool running;

        pthread_attr_init(&attributes);
        (void)pthread_attr_setstacksize(&attributes, LIFE_STACK);
        running = !thread_start(&line->thread, &attributes, line_main, line) ||
                  !thread_start(&line->thread, NULL, line_main, line); /* large variables of threads */
        pthread_attr_destroy(&attributes);
        return running;
}

/* Takes fd over. NULL: there is no memory, or no thread. */
static struct life_line *line_new(int fd) {
        struct life_line *line = calloc(1, sizeof(*line));
        pthread_condattr_t attributes;

        if (line) {
                pthread_condattr_init(&attributes);
                pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
                pthread_cond_init(&line->changed, &attributes);
                pthread_condattr_destroy(&attributes);
                pthread_mutex_init(&line->mutex, NULL);
                line->fd = fd;
                if (line_start(line))
                        return line;
                line_free(line);
        }
        close(fd);
        return NULL;
}

/* Until the thread has its own copy, or cannot have one: then there is no need for the process's. */
static void line_settle(struct life_line *line, const struct timespec *deadline) {
        int r = 0;

        pthread_mutex_lock(&line->mutex);
        while (!line->settled && !r)
                r = pthread_cond_timedwait(&line->changed, &line->mutex, deadline);
        if (line->settled) { /* else a file system keeps it */
                close(line->fd);
                line->fd = -1;
        }
        pthread_mutex_unlock(&line->mutex);
}

void life_start(struct rmx_session *session, uint64_t deadline_ns) {
        const uint64_t soon_ns = clock_now_ns() + LIFE_START_NS, end_ns = deadline_ns < soon_ns ? deadline_ns : soon_ns;
        const struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000u), .tv_nsec = (long)(end_ns % 1000000000u)};
        struct life *life = &session->life;
        int fd[LIFE_LINES];

        if (!(session->features & SESSION_FEATURE_LIFE) || !life_call(session, end_ns, fd))
                return;
        for (unsigned int i = 0; i < LIFE_LINES; i++)
                life->line[i] = line_new(fd[i]);
        for (unsigned int i = 0; i < LIFE_LINES; i++)
                if (life->line[i])
                        line_settle(life->line[i], &end);
}

/* A thread that a file system still keeps is not waited for. Nor is its end closed, which it may not have copied yet:
 * it would take for it whatever has the number next. */
static void line_end(struct life_line *line) {
        pthread_t thread = line->thread;
        bool settled;

        pthread_mutex_lock(&line->mutex);
        settled = line->settled;
        line->stop = true;
        line->alone = !settled;
        pthread_cond_broadcast(&line->changed);
        pthread_mutex_unlock(&line->mutex);
        if (!settled) {
                pthread_detach(thread);
                return;
        }
        pthread_join(thread, NULL);
        if (line->fd >= 0) /* it had been late */
                close(line->fd);
        line_free(line);
}

void life_deinit(struct life *life, bool ours) {
        for (unsigned int i = 0; i < LIFE_LINES; i++) {
                if (!life->line[i])
                        continue;
                if (ours) {
                        line_end(life->line[i]);
                } else { /* somebody may seem to wait, so neither mutex nor condition is touched */
                        if (life->line[i]->fd >= 0)
                                close(life->line[i]->fd);
                        free(life->line[i]);
                }
        }
}
