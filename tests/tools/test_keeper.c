/* SPDX-License-Identifier: MIT */
/*
 * The keeper with a railmuxd and executors that do as they are told. This program plays all parts: the keeper starts
 * "the program it is itself", which is this one, and RAILMUX_EXECUTOR names it too.
 *
 * The actors report to the test by datagrams to $KEEPER_TEST/report; railmuxd takes commands at $KEEPER_TEST/command.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "tests/cmocka_all.h"

#include "daemon/keeper.h"
#include "tests/scratch.h"
#include "util/log.h"

#define WAIT_MS  15000
#define TEXT_MAX 4096

/* ---- both sides ---- */

static void address_of(const char *name, struct sockaddr_un *address) {
        const char *dir = getenv("KEEPER_TEST");

        *address = (struct sockaddr_un){.sun_family = AF_UNIX};
        snprintf(address->sun_path, sizeof(address->sun_path), "%s/%s", dir ? dir : "", name);
}

static int bound_socket(const char *name) {
        struct sockaddr_un address;
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        address_of(name, &address);
        unlink(address.sun_path);
        if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                abort();
        return fd;
}

static bool send_to(const char *name, const char *text) {
        struct sockaddr_un address;
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        bool sent;

        address_of(name, &address);
        sent = sendto(fd, text, strlen(text), 0, (struct sockaddr *)&address, sizeof(address)) >= 0;
        close(fd);
        return sent;
}

/* ---- railmuxd as an actor ---- */

static void report_signal(int signo) {
        send_to("report", signo == SIGHUP ? "daemon hup" : "term");
        if (signo == SIGTERM)
                _exit(0);
}

static int actor_store(const char *name, int fd) {
        char text[128];

        snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%.60s\nFDPOLL=0", name);
        return sd_pid_notify_with_fds(0, 0, text, &fd, 1);
}

static void actor_command(const char *command, int *last_fd) {
        char text[128];
        struct stat st;

        if (strncmp(command, "store ", 6) == 0) {
                *last_fd = memfd_create("kept", MFD_CLOEXEC);
                fstat(*last_fd, &st);
                snprintf(text, sizeof(text), "stored %.60s=%ju r=%d", command + 6, (uintmax_t)st.st_ino,
                         actor_store(command + 6, *last_fd));
                send_to("report", text);
        } else if (strncmp(command, "again ", 6) == 0) {
                actor_store(command + 6, *last_fd);
        } else if (strncmp(command, "remove ", 7) == 0) {
                sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", command + 7);
        } else if (strcmp(command, "barrier") == 0) {
                snprintf(text, sizeof(text), "barrier r=%d", sd_notify_barrier(0, WAIT_MS * UINT64_C(1000)));
                send_to("report", text);
        } else if (strcmp(command, "ready") == 0) {
                sd_notify(0, "READY=1");
        } else if (strncmp(command, "executor ", 9) == 0) {
                sd_notifyf(0, "X_RAILMUX_EXECUTOR=%s\nX_RAILMUX_ARGUMENT=--gpus\nX_RAILMUX_ARGUMENT=a b", command + 9);
        } else if (strcmp(command, "die") == 0) {
                raise(SIGKILL);
        } else if (strcmp(command, "hang") == 0) {
                raise(SIGSTOP);
        } else if (strncmp(command, "exit ", 5) == 0) {
                _exit((int)strtol(command + 5, NULL, 10));
        }
}

_Noreturn static void actor_daemon(int argc, char **argv) {
        const struct sigaction action = {.sa_handler = report_signal};
        char text[TEXT_MAX];
        char **names = NULL;
        int commands, last_fd = -1, n;
        size_t length;

        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGHUP, &action, NULL);
        n = sd_listen_fds_with_names(0, &names);
        length = (size_t)snprintf(text, sizeof(text), "daemon pid=%d args=", (int)getpid());
        for (int i = 1; i < argc; i++)
                length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s", i > 1 ? "," : "", argv[i]);
        length +=
                (size_t)snprintf(text + length, sizeof(text) - length,
                                 " notify=%s watchdog=%d fds=", getenv("NOTIFY_SOCKET"), sd_watchdog_enabled(0, NULL));
        for (int i = 0; i < n; i++) {
                struct stat st;

                fstat(SD_LISTEN_FDS_START + i, &st);
                length += (size_t)snprintf(text + length, sizeof(text) - length, "[%s=%ju]", names[i],
                                           (uintmax_t)st.st_ino);
        }
        commands = bound_socket("command");
        send_to("report", text);
        for (;;) {
                ssize_t size = recv(commands, text, sizeof(text) - 1, 0);

                if (size < 0)
                        continue; /* a signal */
                text[size] = '\0';
                actor_command(text, &last_fd);
        }
}

_Noreturn static void actor_executor(int argc, char **argv) {
        const struct sigaction action = {.sa_handler = report_signal};
        char text[TEXT_MAX];
        size_t length;

        sigaction(SIGTERM, &action, NULL);
        length = (size_t)snprintf(text, sizeof(text), "executor pid=%d clean=%d args=", (int)getpid(),
                                  !getenv("NOTIFY_SOCKET") && !getenv("LISTEN_FDS") && !getenv("RAILMUX_KEEPER"));
        for (int i = 1; i < argc; i++)
                length += (size_t)snprintf(text + length, sizeof(text) - length, "[%s]", argv[i]);
        send_to("report", text);
        for (;;)
                pause();
}

/* ---- the test ---- */

struct fixture {
        char dir[64];
        int report_fd;
        pid_t keeper;
        char text[TEXT_MAX]; /* the last report */
};

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        snprintf(f->dir, sizeof(f->dir), "%s", "/tmp/railmux-keeper-test-XXXXXX");
        assert_non_null(mkdtemp(f->dir));
        setenv("KEEPER_TEST", f->dir, 1);
        setenv("TMPDIR", f->dir, 1);
        unsetenv("RUNTIME_DIRECTORY");
        unsetenv("XDG_RUNTIME_DIR");
        unsetenv("WATCHDOG_USEC");
        setenv("RAILMUX_EXECUTOR", "/proc/self/exe", 1);
        f->report_fd = bound_socket("report");
        prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans of the keeper come to us */
        *state = f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        if (f->keeper) {
                kill(f->keeper, SIGKILL);
                while (waitpid(-1, NULL, 0) > 0) /* the keeper, and what dies with it */
                        ;
        }
        close(f->report_fd);
        assert_int_equal(scratch_remove(f->dir), 0);
        free(f);
        return 0;
}

static void start_keeper(struct fixture *f) {
        static char *argv[] = {"railmuxd", "--gpu", "host:2", "--keep", NULL};

        fflush(NULL);
        f->keeper = fork();
        assert_true(f->keeper >= 0);
        if (f->keeper == 0) {
                close(f->report_fd);
                log_init("keeper", LOG_LEVEL_WARNING);
                _exit(keeper_run(4, argv));
        }
}

/* Waits for a report that begins so. Others before it are dropped. */
static const char *expect(struct fixture *f, const char *beginning) {
        struct pollfd poll_fd = {.fd = f->report_fd, .events = POLLIN};

        for (;;) {
                ssize_t n;

                if (poll(&poll_fd, 1, WAIT_MS) <= 0)
                        fail_msg("no report '%s...'", beginning);
                n = recv(f->report_fd, f->text, sizeof(f->text) - 1, 0);
                assert_true(n >= 0);
                f->text[n] = '\0';
                if (strncmp(f->text, beginning, strlen(beginning)) == 0)
                        return f->text;
        }
}

static pid_t pid_in(const char *text) {
        const char *p = strstr(text, "pid=");

        assert_non_null(p);
        return (pid_t)strtol(p + 4, NULL, 10);
}

static void tell(const char *command) {
        assert_true(send_to("command", command));
}

static int stop_keeper(struct fixture *f, int signo) {
        int status;

        if (signo)
                kill(f->keeper, signo);
        assert_int_equal(waitpid(f->keeper, &status, 0), f->keeper);
        f->keeper = 0;
        assert_int_equal(waitpid(-1, NULL, 0), -1); /* nothing is left */
        assert_int_equal(errno, ECHILD);
        return status;
}

static void test_fds_come_back(void **state) {
        struct fixture *f = *state;
        char a[64], b[64], foreign[160], *notify;
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        pid_t pid;
        int fd;

        start_keeper(f);
        expect(f, "daemon ");
        assert_non_null(strstr(f->text, "args=--gpu,host:2 ")); /* without --keep */
        assert_non_null(strstr(f->text, "watchdog=0 fds="));
        assert_string_equal(strstr(f->text, "fds="), "fds=");
        pid = pid_in(f->text);
        notify = strstr(f->text, "notify=") + 7;
        *strchr(notify, ' ') = '\0';
        snprintf(foreign, sizeof(foreign), "%s", notify);

        tell("ready");
        tell("store a");
        snprintf(a, sizeof(a), "%s", expect(f, "stored a=") + 7);
        *strchr(a, ' ') = '\0';
        tell("again a");
        tell("store gone");
        expect(f, "stored gone=");
        tell("store b");
        snprintf(b, sizeof(b), "%s", expect(f, "stored b=") + 7);
        *strchr(b, ' ') = '\0';
        tell("remove gone");

        /* Somebody else wants to have something kept, and to have something thrown away. */
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_true(strlen(foreign) < sizeof(address.sun_path));
        memcpy(address.sun_path, foreign, strlen(foreign) + 1);
        assert_true(sendto(fd, "FDSTOREREMOVE=1\nFDNAME=a", 24, 0, (struct sockaddr *)&address, sizeof(address)) > 0);
        close(fd);

        tell("barrier");
        assert_string_equal(expect(f, "barrier "), "barrier r=1");
        tell("store last"); /* stored just before death, no barrier */
        tell("die");
        expect(f, "daemon ");
        assert_true(pid_in(f->text) != pid);
        assert_non_null(strstr(f->text, a));
        assert_non_null(strstr(f->text, b));
        assert_non_null(strstr(f->text, "[last="));
        assert_null(strstr(f->text, "[gone="));
        assert_null(strstr(strstr(f->text, "[a=") + 1, "[a=")); /* once */

        /* And once more, over a successor that stored nothing. */
        tell("exit 1");
        expect(f, "daemon ");
        assert_non_null(strstr(f->text, a));
        assert_int_equal(stop_keeper(f, SIGTERM), 0);
}

static void test_executors(void **state) {
        struct fixture *f = *state;
        pid_t executor, daemon_pid;

        start_keeper(f);
        daemon_pid = pid_in(expect(f, "daemon "));
        tell("ready");
        tell("executor host");
        executor = pid_in(expect(f, "executor "));
        assert_non_null(strstr(f->text, "clean=1 args=[--gpus][a b]"));

        /* It outlives railmuxd; asking again does not start a second one; the bad name is refused. */
        tell("die");
        assert_true(pid_in(expect(f, "daemon ")) != daemon_pid);
        tell("executor host");
        tell("executor ../x");
        tell("executor 0");
        assert_true(pid_in(expect(f, "executor ")) != executor);
        assert_int_equal(kill(executor, 0), 0);

        /* It is restarted when it dies, several times over. */
        for (int i = 0; i < 3; i++) {
                pid_t next;

                kill(executor, SIGKILL);
                next = pid_in(expect(f, "executor "));
                assert_true(next != executor);
                executor = next;
        }
        kill(f->keeper, SIGINT);
        for (int i = 0; i < 3; i++) /* railmuxd and two executors end in order */
                expect(f, "term");
        assert_int_equal(stop_keeper(f, 0), 0);
}

static void test_hangup_is_forwarded(void **state) {
        struct fixture *f = *state;

        start_keeper(f);
        expect(f, "daemon ");
        tell("ready");
        tell("barrier");
        expect(f, "barrier ");
        kill(f->keeper, SIGHUP);
        expect(f, "daemon hup");
        assert_int_equal(stop_keeper(f, SIGTERM), 0);
}

static void test_early_failure_ends_it(void **state) {
        struct fixture *f = *state;
        int status;

        start_keeper(f);
        expect(f, "daemon ");
        tell("executor host");
        expect(f, "executor ");
        tell("exit 3");
        status = stop_keeper(f, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 3);
}

static void test_watchdog(void **state) {
        struct fixture *f = *state;
        pid_t pid;

        setenv("WATCHDOG_USEC", "300000", 1);
        start_keeper(f);
        pid = pid_in(expect(f, "daemon "));
        assert_non_null(strstr(f->text, "watchdog=1"));
        tell("ready");
        tell("hang");
        assert_true(pid_in(expect(f, "daemon ")) != pid);
        assert_int_equal(stop_keeper(f, SIGTERM), 0);
}

static void test_death_takes_children_along(void **state) {
        struct fixture *f = *state;
        pid_t daemon_pid, executor;
        unsigned int n = 0;
        int status;
        pid_t pid;

        start_keeper(f);
        daemon_pid = pid_in(expect(f, "daemon "));
        tell("ready");
        tell("executor host");
        executor = pid_in(expect(f, "executor "));
        kill(f->keeper, SIGKILL);
        while ((pid = waitpid(-1, &status, 0)) > 0) {
                assert_true(pid == f->keeper || pid == daemon_pid || pid == executor);
                assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
                n++;
        }
        f->keeper = 0;
        assert_int_equal(n, 3);
}

int main(int argc, char **argv) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_fds_come_back, setup, teardown),
                cmocka_unit_test_setup_teardown(test_executors, setup, teardown),
                cmocka_unit_test_setup_teardown(test_hangup_is_forwarded, setup, teardown),
                cmocka_unit_test_setup_teardown(test_early_failure_ends_it, setup, teardown),
                cmocka_unit_test_setup_teardown(test_watchdog, setup, teardown),
                cmocka_unit_test_setup_teardown(test_death_takes_children_along, setup, teardown),
        };

        if (strcmp(argv[0], "railmux-executor") == 0)
                actor_executor(argc, argv);
        if (getenv("RAILMUX_KEEPER"))
                actor_daemon(argc, argv);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
