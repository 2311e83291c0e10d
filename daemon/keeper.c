/* SPDX-License-Identifier: MIT */
/*
 * The keeper is the service manager of one service, for nodes and containers without systemd. Its only job is to
 * outlive what it keeps, so it has no configuration, no client and no allocation that a client could grow beyond the
 * bounds of the fd store.
 *
 *   keeper ─┬─ railmuxd            same command line without --keep
 *           └─ railmux-executor    as railmuxd asks for them
 *
 * One loop over two descriptors: signals (signalfd) and notifications. Before a railmuxd is declared dead, everything
 * it managed to send is read: what it stored just before it died must be there for its successor.
 *
 * railmuxd that fails before it ever was ready ends the keeper with the same status (a wrong configuration does not
 * heal by trying again, and the person at the terminal wants the message); after that it is restarted for ever.
 * Children die with the keeper (PR_SET_PDEATHSIG), since nobody would hold their state any more.
 *
 * The watchdog is off unless WATCHDOG_USEC stands in the keeper's environment, in which case it is asked of railmuxd.
 */
#include "daemon/keeper.h"

#include "daemon/closer.h"
#include "daemon/keeper_notify.h"
#include "daemon/keeper_process.h"
#include "daemon/keeper_store.h"
#include "daemon/launcher_command.h"
#include "daemon/options.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/fds.h"
#include "util/log.h"
#include "util/parse.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

#define KEEPER_OWN_FDS 64u /* what keeper and child need besides the store */

#define KEEPER_GRACE_MS      10000u
#define KEEPER_LONG_GRACE_MS 40000u /* executors wait for half a minute until a GPU's kernels have ended */
#define KEEPER_EXECUTORS_MAX 65u
#define KEEPER_RETRY_NS      UINT64_C(1000000000)

enum keeper_state {
        KEEPER_RUNNING,
        KEEPER_STOPPING_DAEMON,    /* SIGTERM is sent */
        KEEPER_STOPPING_EXECUTORS, /* railmuxd is gone */
        KEEPER_DONE,
};

struct keeper {
        struct keeper_store store;
        struct keeper_notify notify;
        struct keeper_process *daemon;
        struct keeper_process *executors; /* utlist */
        unsigned int n_executors;
        int signal_fd;
        enum keeper_state state;
        int status; /* exit status */
        bool ever_ready;
        bool full_logged, foreign_logged;
        uint64_t watchdog_usec;  /* 0: off */
        uint64_t watchdog_at_ns; /* when railmuxd counts as hung, 0: not watched */
        struct keeper_message message;
};

static const char *keeper_end_text(int status, char text[32]) {
        if (WIFSIGNALED(status))
                snprintf(text, 32, "signal %d", WTERMSIG(status));
        else
                snprintf(text, 32, "status %d", WEXITSTATUS(status));
        return text;
}

static void keeper_clear_environment(void) {
        static const char *const names[] = {"NOTIFY_SOCKET", "LISTEN_PID",   "LISTEN_FDS",    "LISTEN_FDNAMES",
                                            "WATCHDOG_USEC", "WATCHDOG_PID", "RAILMUX_KEEPER"};

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                unsetenv(names[i]);
}

static int keeper_prepare_executor(void *data) {
        (void)data;
        keeper_clear_environment();
        return 0;
}

static int keeper_prepare_daemon(void *data) {
        struct keeper *keeper = data;
        _cleanup_free_ char *names = NULL;
        char pid[16], number[32];
        int r;

        keeper_clear_environment();
        snprintf(pid, sizeof(pid), "%d", (int)getpid());
        if (setenv("NOTIFY_SOCKET", keeper->notify.path, 1) < 0 || setenv("RAILMUX_KEEPER", "1", 1) < 0)
                return -errno;
        if (keeper->watchdog_usec) {
                snprintf(number, sizeof(number), "%" PRIu64, keeper->watchdog_usec);
                if (setenv("WATCHDOG_USEC", number, 1) < 0 || setenv("WATCHDOG_PID", pid, 1) < 0)
                        return -errno;
        }
        if (!keeper->store.n_fds)
                return 0;
        names = keeper_store_names(&keeper->store);
        if (!names)
                return -ENOMEM;
        snprintf(number, sizeof(number), "%u", keeper->store.n_fds);
        if (setenv("LISTEN_PID", pid, 1) < 0 || setenv("LISTEN_FDS", number, 1) < 0 ||
            setenv("LISTEN_FDNAMES", names, 1) < 0)
                return -errno;
        r = keeper_store_place(&keeper->store);
        return r;
}

static void keeper_start(struct keeper *keeper, struct keeper_process *process) {
        int r;

        r = keeper_process_start(process, process == keeper->daemon ? keeper_prepare_daemon : keeper_prepare_executor,
                                 keeper);
        if (r < 0) {
                log_error("cannot start %s: %s; trying again", process->name, strerror(-r));
                process->start_at_ns = clock_now_ns() + KEEPER_RETRY_NS;
                return;
        }
        if (process == keeper->daemon)
                keeper->watchdog_at_ns = 0; /* watched from READY on */
        log_info("%s started as pid %d%s", process->name, (int)process->pid,
                 process == keeper->daemon && keeper->store.n_fds ? " with what is kept" : "");
}

static void keeper_executor_asked(struct keeper *keeper, const struct keeper_message *message) {
        struct keeper_process *process;
        _cleanup_free_ char *path = NULL;
        char name[LAUNCHER_COMMAND_NAME_MAX + 16], **argv;
        int r;

        if (keeper->state != KEEPER_RUNNING)
                return;
        if (!launcher_command_name_valid(message->executor)) {
                log_warning("railmuxd asks for an executor with a bad name");
                return;
        }
        snprintf(name, sizeof(name), "executor %s", message->executor);
        argv = calloc(message->n_arguments + 2u, sizeof(*argv));
        r = argv ? launcher_command_path(&path) : -ENOMEM;
        for (unsigned int i = 0; !r && i <= message->n_arguments; i++) {
                argv[i] = strdup(i ? message->arguments[i - 1] : "railmux-executor");
                if (!argv[i])
                        r = -ENOMEM;
        }
        DL_FOREACH(keeper->executors, process) {
                if (strcmp(process->name, name) == 0)
                        break;
        }
        if (!r && process) {
                /* It runs, or will soon. New arguments count from its next start on. */
                launcher_command_free(process->argv);
                process->argv = argv;
                free(process->path);
                process->path = path;
                path = NULL;
                return;
        }
        if (!r && keeper->n_executors == KEEPER_EXECUTORS_MAX)
                r = -E2BIG;
        if (!r)
                r = keeper_process_new(name, path, argv, &process);
        if (r < 0) {
                launcher_command_free(argv);
                log_error("cannot start %s: %s", name,
                          r == -ENOENT ? "program railmux-executor not found" : strerror(-r));
                return;
        }
        DL_APPEND(keeper->executors, process);
        keeper->n_executors++;
        keeper_start(keeper, process);
}

static void keeper_store_all(struct keeper *keeper, struct keeper_message *message) {
        for (unsigned int i = 0; i < message->n_fds; i++) {
                int r = keeper_store_put(&keeper->store, message->fd_name ? message->fd_name : "stored",
                                         message->fds[i]);

                message->fds[i] = -1;
                if ((r < 0 || r == KEEPER_STORE_E_FULL) && !keeper->full_logged) {
                        keeper->full_logged = true;
                        log_error("the fd store cannot keep '%s' (%u are kept): %s",
                                  message->fd_name ? message->fd_name : "", keeper->store.n_fds,
                                  r < 0 ? strerror(-r) : "it is full");
                }
        }
}

static void keeper_handle(struct keeper *keeper, struct keeper_message *message) {
        if (!keeper->daemon->pid || message->pid != keeper->daemon->pid) {
                if (!keeper->foreign_logged) {
                        keeper->foreign_logged = true;
                        log_warning("notification from pid %d ignored: it is not railmuxd", (int)message->pid);
                }
                return;
        }
        if (message->fdstore)
                keeper_store_all(keeper, message);
        else if (message->fdstore_remove && message->fd_name)
                keeper_store_remove(&keeper->store, message->fd_name);
        if (message->executor)
                keeper_executor_asked(keeper, message);
        if (message->ready)
                keeper->ever_ready = true;
        if ((message->ready || message->watchdog) && keeper->watchdog_usec && keeper->state == KEEPER_RUNNING)
                keeper->watchdog_at_ns = clock_now_ns() + keeper->watchdog_usec * 1000u;
        if (message->watchdog_trigger && keeper->watchdog_usec)
                keeper->watchdog_at_ns = 1;
        if (message->stopping)
                keeper->watchdog_at_ns = 0;
}

/* A barrier is answered by closing its descriptor, which happens when the message is done with, in the order of
 * messages. */
static int keeper_drain(struct keeper *keeper) {
        for (;;) {
                int r = keeper_notify_receive(&keeper->notify, &keeper->message);

                if (r == KEEPER_NOTIFY_E_AGAIN)
                        return 0;
                if (r == KEEPER_NOTIFY_E_REFUSED)
                        continue;
                if (r < 0)
                        return r;
                keeper_handle(keeper, &keeper->message);
                keeper_message_close(&keeper->message);
        }
}

static void keeper_stop_executors(struct keeper *keeper) {
        struct keeper_process *process;
        bool any = false;

        keeper->state = KEEPER_STOPPING_EXECUTORS;
        DL_FOREACH(keeper->executors, process) {
                process->start_at_ns = 0;
                any = any || process->pid;
                keeper_process_signal(process, SIGTERM, KEEPER_LONG_GRACE_MS);
        }
        if (!any)
                keeper->state = KEEPER_DONE;
}

static void keeper_stop(struct keeper *keeper) {
        struct keeper_process *process;

        if (keeper->state != KEEPER_RUNNING) {
                /* Asked twice: somebody is in a hurry. */
                keeper_process_signal(keeper->daemon, SIGKILL, 0);
                DL_FOREACH(keeper->executors, process)
                        keeper_process_signal(process, SIGKILL, 0);
                return;
        }
        keeper->state = KEEPER_STOPPING_DAEMON;
        keeper->daemon->start_at_ns = 0;
        keeper->watchdog_at_ns = 0;
        if (keeper->daemon->pid)
                keeper_process_signal(keeper->daemon, SIGTERM, KEEPER_GRACE_MS);
        else
                keeper_stop_executors(keeper);
}

static void keeper_daemon_ended(struct keeper *keeper, int status) {
        char text[32];

        keeper->watchdog_at_ns = 0;
        keeper_process_ended(keeper->daemon);
        if (keeper->state != KEEPER_RUNNING) {
                keeper->daemon->start_at_ns = 0;
                keeper_stop_executors(keeper);
        } else if (!keeper->ever_ready && WIFEXITED(status)) {
                keeper->status = WEXITSTATUS(status);
                keeper->daemon->start_at_ns = 0;
                keeper_stop_executors(keeper);
        } else {
                log_warning("railmuxd ended with %s; starting it again, %u descriptors are kept",
                            keeper_end_text(status, text), keeper->store.n_fds);
        }
}

static void keeper_executor_ended(struct keeper *keeper, struct keeper_process *process, int status) {
        struct keeper_process *other;
        char text[32];

        keeper_process_ended(process);
        if (keeper->state == KEEPER_STOPPING_EXECUTORS) {
                process->start_at_ns = 0;
                DL_FOREACH(keeper->executors, other) {
                        if (other->pid)
                                return;
                }
                keeper->state = KEEPER_DONE;
        } else if (keeper->state == KEEPER_RUNNING) {
                log_warning("%s ended with %s; starting it again", process->name, keeper_end_text(status, text));
        } else {
                process->start_at_ns = 0;
        }
}

static int keeper_reap(struct keeper *keeper) {
        struct keeper_process *process;
        int status, r;
        pid_t pid;

        /* First what railmuxd said, while its pid still is its own: it counts as ours only until it is reaped. */
        r = keeper_drain(keeper);
        if (r < 0)
                return r;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
                if (pid == keeper->daemon->pid) {
                        r = keeper_drain(keeper);
                        if (r < 0)
                                return r;
                        keeper_daemon_ended(keeper, status);
                        continue;
                }
                DL_FOREACH(keeper->executors, process) {
                        if (process->pid == pid) {
                                keeper_executor_ended(keeper, process, status);
                                break;
                        }
                }
        }
        return 0;
}

static int keeper_signals(struct keeper *keeper) {
        struct signalfd_siginfo info;
        int r = 0;

        while (!r && read(keeper->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
                switch (info.ssi_signo) {
                case SIGCHLD:
                        r = keeper_reap(keeper);
                        break;
                case SIGHUP:
                        if (keeper->daemon->pid)
                                kill(keeper->daemon->pid, SIGHUP);
                        break;
                default:
                        keeper_stop(keeper);
                        break;
                }
        }
        return r;
}

static void keeper_due(struct keeper *keeper, struct keeper_process *process, uint64_t now, uint64_t *next) {
        if (process->kill_at_ns && process->kill_at_ns <= now) {
                log_warning("%s does not end; killing it", process->name);
                keeper_process_signal(process, SIGKILL, 0);
        }
        if (process->start_at_ns && process->start_at_ns <= now)
                keeper_start(keeper, process);
        if (process->kill_at_ns && process->kill_at_ns < *next)
                *next = process->kill_at_ns;
        if (process->start_at_ns && process->start_at_ns < *next)
                *next = process->start_at_ns;
}

/* Does what is due and returns how long poll may sleep. */
static int keeper_timers(struct keeper *keeper) {
        uint64_t now = clock_now_ns(), next = UINT64_MAX, wait_ms;
        struct keeper_process *process;

        if (keeper->watchdog_at_ns && keeper->watchdog_at_ns <= now) {
                log_error("railmuxd does not feed the watchdog (limit %" PRIu64 " ms); aborting it",
                          keeper->watchdog_usec / 1000);
                keeper->watchdog_at_ns = 0;
                keeper_process_signal(keeper->daemon, SIGABRT, KEEPER_GRACE_MS);
        }
        if (keeper->watchdog_at_ns)
                next = keeper->watchdog_at_ns;
        keeper_due(keeper, keeper->daemon, now, &next);
        DL_FOREACH(keeper->executors, process)
                keeper_due(keeper, process, now, &next);
        if (next == UINT64_MAX)
                return -1;
        now = clock_now_ns();
        wait_ms = next > now ? (next - now) / 1000000u + 1 : 0;
        return wait_ms > INT_MAX ? INT_MAX : (int)wait_ms;
}

static int keeper_loop(struct keeper *keeper) {
        struct pollfd fds[2] = {
                {.fd = keeper->signal_fd, .events = POLLIN},
                {.fd = keeper->notify.fd, .events = POLLIN},
        };
        int r = 0;

        while (!r && keeper->state != KEEPER_DONE) {
                if (poll(fds, 2, keeper_timers(keeper)) < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (fds[1].revents)
                        r = keeper_drain(keeper);
                if (!r && fds[0].revents)
                        r = keeper_signals(keeper);
        }
        return r;
}

static int keeper_init(struct keeper *keeper, int argc, char **argv) {
        const char *usec = getenv("WATCHDOG_USEC");
        struct rlimit limit;
        char self[PATH_MAX], **arguments;
        sigset_t signals;
        ssize_t n;
        int r;

        /* Every stored descriptor is open here, and for a moment twice in the child that gets it. */
        fds_raise();
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 2 * KEEPER_STORE_FDS_MAX + KEEPER_OWN_FDS)
                keeper->store.max_fds = limit.rlim_cur > KEEPER_OWN_FDS ? (limit.rlim_cur - KEEPER_OWN_FDS) / 2 : 0;
        if (usec && parse_u64(usec, &keeper->watchdog_usec) < 0)
                keeper->watchdog_usec = 0;
        sigemptyset(&signals);
        sigaddset(&signals, SIGCHLD);
        sigaddset(&signals, SIGTERM);
        sigaddset(&signals, SIGINT);
        sigaddset(&signals, SIGHUP);
        if (sigprocmask(SIG_BLOCK, &signals, NULL) < 0)
                return -errno;
        keeper->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
        if (keeper->signal_fd < 0)
                return -errno;
        r = keeper_notify_init(&keeper->notify);
        if (r < 0)
                return r;
        /* The name, not the file behind /proc/self/exe: after an upgrade the next railmuxd is the new one. */
        n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        if (n < 0)
                return -errno;
        self[n] = '\0';
        arguments = options_without_keep(argc, argv);
        if (!arguments)
                return -ENOMEM;
        r = keeper_process_new("railmuxd", self, arguments, &keeper->daemon);
        if (r < 0)
                launcher_command_free(arguments);
        return r;
}

static void keeper_deinit(struct keeper *keeper) {
        struct keeper_process *process, *next;

        DL_FOREACH_SAFE(keeper->executors, process, next) {
                DL_DELETE(keeper->executors, process);
                keeper_process_free(process);
        }
        keeper_process_free(keeper->daemon);
        keeper_store_unlink(&keeper->store);
        keeper_store_clear(&keeper->store);
        closer_free(keeper->store.closer);
        keeper_notify_deinit(&keeper->notify);
        if (keeper->signal_fd >= 0)
                close(keeper->signal_fd);
}

int keeper_run(int argc, char **argv) {
        struct keeper *keeper;
        int r, status;

        keeper = calloc(1, sizeof(*keeper));
        if (!keeper)
                return EXIT_FAILURE;
        keeper->store = (struct keeper_store)KEEPER_STORE_INIT;
        if (closer_new(&keeper->store.closer))
                keeper->store.closer = NULL; /* then it closes by itself */
        keeper->notify = (struct keeper_notify)KEEPER_NOTIFY_INIT;
        keeper->signal_fd = -1;
        r = keeper_init(keeper, argc, argv);
        if (!r) {
                keeper_start(keeper, keeper->daemon);
                r = keeper_loop(keeper);
        }
        if (r < 0) {
                log_error("the keeper fails: %s", strerror(-r));
                /* Children that are left die with us. */
                keeper_notify_deinit(&keeper->notify);
                return EXIT_FAILURE;
        }
        status = keeper->status;
        keeper_deinit(keeper);
        free(keeper);
        return status;
}
