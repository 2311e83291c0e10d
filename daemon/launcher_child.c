/* SPDX-License-Identifier: MIT */
/*
 * Executors as our own children. They die with us whatever happens: by SIGTERM in an orderly end, by the kernel
 * (PR_SET_PDEATHSIG) if we are killed, and, should that race, because --exit-with-daemon makes them leave when the
 * connection to us breaks.
 */
#include "daemon/launcher_command.h"
#include "daemon/launcher_private.h"
#include "daemon/restart.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#define CHILD_GRACE_MS 40000 /* executors wait for half a minute until a GPU's kernels have ended */
#define NS_PER_MS      UINT64_C(1000000)

struct child {
        struct child *next, *prev;
        struct launcher *launcher;
        char name[LAUNCHER_COMMAND_NAME_MAX];
        pid_t pid; /* 0: does not run */
        uint64_t started_ns;
        struct restart restart;
        struct event *timer;
};

struct child_launcher {
        struct child *children; /* utlist */
        struct event *sigchld_event;
};

/* Between fork and exec: everything that allocates was done before. */
static void child_exec(const char *path, char **argv, pid_t parent) {
        static const char *const names[] = {"NOTIFY_SOCKET",  "LISTEN_PID",    "LISTEN_FDS",
                                            "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"};
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigset_t none;

        for (int signo = 1; signo < NSIG; signo++)
                sigaction(signo, &action, NULL); /* fails for SIGKILL and the like */
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
                _exit(126);
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                unsetenv(names[i]);
        execv(path, argv);
        _exit(127);
}

static int child_spawn(struct child *child) {
        _cleanup_free_ char *path = NULL;
        pid_t parent = getpid(), pid;
        sigset_t all, before;
        char **argv;
        int r;

        r = launcher_command_path(&path);
        if (r < 0)
                return r;
        r = launcher_command_arguments(child->launcher->config, child->name, true, &argv);
        if (r < 0)
                return r;
        /* A signal between fork and exec would run our handler in the child and be lost for it. */
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, &before);
        pid = fork();
        if (pid == 0)
                child_exec(path, argv, parent);
        r = pid < 0 ? -errno : 0;
        sigprocmask(SIG_SETMASK, &before, NULL);
        launcher_command_free(argv);
        if (r < 0)
                return r;
        child->pid = pid;
        child->started_ns = clock_now_ns();
        log_info("executor %s started as pid %d", child->name, (int)pid);
        return 0;
}

/* It ended, or could not be started (then it lived for no time at all). */
static void child_schedule(struct child *child, uint64_t life_ns) {
        uint64_t delay_us = restart_delay_ns(&child->restart, clock_now_ns(), life_ns) / 1000;
        struct timeval delay = {.tv_sec = (time_t)(delay_us / 1000000), .tv_usec = (suseconds_t)(delay_us % 1000000)};

        if (evtimer_add(child->timer, &delay) < 0)
                event_active(child->timer, EV_TIMEOUT, 0);
}

static void child_timeout(evutil_socket_t fd, short what, void *data) {
        struct child *child = data;
        int r;

        (void)fd;
        (void)what;
        r = child_spawn(child);
        if (r < 0) {
                log_error("cannot start executor %s: %s", child->name, strerror(-r));
                child_schedule(child, 0);
        }
}

static void child_ended(struct child *child, int status) {
        if (WIFSIGNALED(status))
                log_warning("executor %s (pid %d) was ended by signal %d; starting it again", child->name,
                            (int)child->pid, WTERMSIG(status));
        else
                log_warning("executor %s (pid %d) ended with status %d; starting it again", child->name,
                            (int)child->pid, WEXITSTATUS(status));
        child->pid = 0;
        child_schedule(child, clock_now_ns() - child->started_ns);
}

static void child_sigchld(evutil_socket_t signo, short what, void *data) {
        struct launcher *launcher = data;
        struct child_launcher *children = launcher->private;
        struct child *child;
        int status;

        (void)signo;
        (void)what;
        DL_FOREACH(children->children, child) {
                if (child->pid && waitpid(child->pid, &status, WNOHANG) == child->pid)
                        child_ended(child, status);
        }
}

static int launcher_child_init(struct launcher *launcher) {
        struct child_launcher *children;

        children = calloc(1, sizeof(*children));
        if (!children)
                return -ENOMEM;
        launcher->private = children;
        children->sigchld_event = evsignal_new(launcher->base, SIGCHLD, child_sigchld, launcher);
        if (!children->sigchld_event || event_add(children->sigchld_event, NULL) < 0)
                return -ENOMEM;
        return 0;
}

static struct child *child_free(struct child *child) {
        if (!child)
                return NULL;
        if (child->timer)
                event_free(child->timer);
        free(child);
        return NULL;
}

/* SIGCHLD is blocked, so one that comes between the look and the wait is still there to end the wait. Also the default
 * action, which is to ignore it, does not drop a blocked signal. */
static bool child_reap_until(struct child *child, uint64_t deadline_ns) {
        sigset_t sigchld;

        sigemptyset(&sigchld);
        sigaddset(&sigchld, SIGCHLD);
        while (waitpid(child->pid, NULL, WNOHANG) == 0) {
                uint64_t now_ns = clock_now_ns(), left_ns;
                struct timespec left;

                if (now_ns >= deadline_ns)
                        return false;
                left_ns = deadline_ns - now_ns;
                left = (struct timespec){.tv_sec = (time_t)(left_ns / 1000000000u),
                                         .tv_nsec = (long)(left_ns % 1000000000u)};
                sigtimedwait(&sigchld, NULL, &left);
        }
        return true;
}

static void launcher_child_deinit(struct launcher *launcher) {
        struct child_launcher *children = launcher->private;
        uint64_t deadline_ns = clock_now_ns() + CHILD_GRACE_MS * NS_PER_MS;
        sigset_t sigchld, before;
        struct child *child, *next;

        if (!children)
                return;
        if (children->sigchld_event)
                event_free(children->sigchld_event);
        sigemptyset(&sigchld);
        sigaddset(&sigchld, SIGCHLD);
        sigprocmask(SIG_BLOCK, &sigchld, &before);
        DL_FOREACH(children->children, child) {
                if (child->pid)
                        kill(child->pid, SIGTERM);
        }
        DL_FOREACH_SAFE(children->children, child, next) {
                if (child->pid && !child_reap_until(child, deadline_ns)) {
                        log_warning("executor %s (pid %d) does not end; killing it", child->name, (int)child->pid);
                        kill(child->pid, SIGKILL);
                        waitpid(child->pid, NULL, 0);
                }
                DL_DELETE(children->children, child);
                child_free(child);
        }
        sigprocmask(SIG_SETMASK, &before, NULL);
        free(children);
        launcher->private = NULL;
}

static int launcher_child_start(struct launcher *launcher, const char *name) {
        struct child_launcher *children = launcher->private;
        struct child *child;
        int r;

        DL_FOREACH(children->children, child) {
                if (strcmp(child->name, name) == 0)
                        return 0; /* it runs, or the timer will start it */
        }
        child = calloc(1, sizeof(*child));
        if (!child)
                return -ENOMEM;
        child->launcher = launcher;
        snprintf(child->name, sizeof(child->name), "%s", name);
        child->timer = evtimer_new(launcher->base, child_timeout, child);
        r = child->timer ? child_spawn(child) : -ENOMEM;
        if (r < 0) {
                child_free(child);
                return r;
        }
        DL_APPEND(children->children, child);
        return 0;
}

const struct launcher_operations launcher_child = {
        .kind = "child",
        .init = launcher_child_init,
        .deinit = launcher_child_deinit,
        .start = launcher_child_start,
};
