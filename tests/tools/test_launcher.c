/* SPDX-License-Identifier: MIT */
/* Executors as children and by way of the keeper. This program is the executor too; it reports through a socket. */
#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_all.h"

#include "daemon/config.h"
#include "daemon/keeper_notify.h"
#include "daemon/launcher.h"
#include "daemon/notify.h"
#include "tests/scratch.h"
#include "util/log.h"

#define WAIT_S   15
#define TEXT_MAX 2048

static void address_of(struct sockaddr_un *address) {
        const char *path = getenv("LAUNCHER_TEST");

        *address = (struct sockaddr_un){.sun_family = AF_UNIX};
        snprintf(address->sun_path, sizeof(address->sun_path), "%s", path ? path : "");
}

static void report(const char *text) {
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un address;

        address_of(&address);
        if (sendto(fd, text, strlen(text), 0, (struct sockaddr *)&address, sizeof(address)) < 0)
                abort();
        close(fd);
}

static void actor_term(int signo) {
        (void)signo;
        report("term");
        _exit(0);
}

_Noreturn static void actor_executor(int argc, char **argv) {
        const struct sigaction action = {.sa_handler = actor_term};
        char text[TEXT_MAX];
        size_t length;

        sigaction(SIGTERM, &action, NULL);
        length = (size_t)snprintf(text, sizeof(text), "executor %d", (int)getpid());
        for (int i = 0; i < argc; i++)
                length += (size_t)snprintf(text + length, sizeof(text) - length, "[%s]", argv[i]);
        report(text);
        for (;;)
                pause();
}

struct fixture {
        char dir[64];
        int report_fd;
        struct event_base *base;
        struct notify *notify;
        struct event *report_event;
        struct config config;
        struct launcher *launcher;
        char text[TEXT_MAX];
        bool got;
};

static void on_report(evutil_socket_t fd, short what, void *data) {
        struct fixture *f = data;
        ssize_t n;

        assert_true(what & EV_READ);
        n = recv(fd, f->text, sizeof(f->text) - 1, MSG_DONTWAIT);
        assert_true(n > 0);
        f->text[n] = '\0';
        f->got = true;
        event_base_loopbreak(f->base);
}

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));
        struct sockaddr_un address;
        char path[80];

        assert_non_null(f);
        snprintf(f->dir, sizeof(f->dir), "%s", "/tmp/railmux-launcher-XXXXXX");
        assert_non_null(mkdtemp(f->dir));
        snprintf(path, sizeof(path), "%s/report", f->dir);
        setenv("LAUNCHER_TEST", path, 1);
        setenv("RAILMUX_EXECUTOR", "/proc/self/exe", 1);
        unsetenv("NOTIFY_SOCKET");
        unsetenv("RAILMUX_KEEPER");
        address_of(&address);
        f->report_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(f->report_fd, (struct sockaddr *)&address, sizeof(address)), 0);
        f->base = event_base_new();
        assert_int_equal(notify_new(f->base, &f->notify), 0);
        f->report_event = event_new(f->base, f->report_fd, EV_READ | EV_PERSIST, on_report, f);
        event_add(f->report_event, NULL);
        config_init(&f->config);
        f->config.gpus = 5;
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        *state = f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        launcher_free(f->launcher);
        notify_free(f->notify);
        event_free(f->report_event);
        event_base_free(f->base);
        close(f->report_fd);
        config_deinit(&f->config);
        assert_int_equal(scratch_remove(f->dir), 0);
        free(f);
        return 0;
}

static pid_t await_executor(struct fixture *f) {
        const struct timeval limit = {.tv_sec = WAIT_S};

        f->got = false;
        event_base_loopexit(f->base, &limit);
        event_base_dispatch(f->base);
        if (!f->got || strncmp(f->text, "executor ", 9) != 0)
                fail_msg("no executor, but '%s'", f->got ? f->text : "");
        return (pid_t)strtol(f->text + 9, NULL, 10);
}

static bool reported(const struct fixture *f, int timeout_ms) {
        struct pollfd poll_fd = {.fd = f->report_fd, .events = POLLIN};

        return poll(&poll_fd, 1, timeout_ms) == 1;
}

static void test_child(void **state) {
        struct fixture *f = *state;
        pid_t first, second;
        char text[16];

        assert_int_equal(launcher_new(f->base, f->notify, &f->config, &f->launcher), 0);
        assert_string_equal(launcher_kind(f->launcher), "child");
        assert_int_equal(launcher_start(f->launcher, "../host"), -EINVAL);
        assert_int_equal(launcher_start(f->launcher, "host"), 0);
        first = await_executor(f);
        assert_non_null(strstr(f->text, "[railmux-executor][--name][host][--gpus][5][--socket]"
                                        "[/run/railmux/client.sock.exec][--workers][0][--stall-ms][500]"
                                        "[--log-level][info][--exit-with-daemon]"));
        assert_int_equal(launcher_start(f->launcher, "host"), 0);
        assert_false(reported(f, 0));

        /* It comes back by itself. */
        kill(first, SIGKILL);
        second = await_executor(f);
        assert_true(second != first);
        assert_int_equal(launcher_start(f->launcher, "host"), 0);

        /* The end of the launcher is theirs, and an orderly one. */
        f->launcher = launcher_free(f->launcher);
        assert_true(reported(f, WAIT_S * 1000));
        assert_int_equal(recv(f->report_fd, text, sizeof(text), 0), 4);
        assert_memory_equal(text, "term", 4);
        assert_int_equal(waitpid(-1, NULL, 0), -1);
        assert_int_equal(errno, ECHILD);
}

/* Executors of GPUs have their numbers as names; more of them than devices share these. */
static void test_planes(void **state) {
        struct fixture *f = *state;

        f->config.devices = 3;
        f->config.blocks = 7;
        f->config.staging_bytes = 1 << 30;
        assert_int_equal(launcher_new(f->base, f->notify, &f->config, &f->launcher), 0);
        assert_int_equal(launcher_start(f->launcher, "4"), 0);
        await_executor(f);
        assert_non_null(strstr(
                f->text, "[railmux-executor][--name][4][--backend][hip][--device][1][--policy][adaptive]"
                         "[--blocks][7][--staging-mib][1024][--socket][/run/railmux/client.sock.exec][--stall-ms][500]"
                         "[--log-level][info][--exit-with-daemon]"));
        assert_int_equal(launcher_start(f->launcher, "four"), -EINVAL);
}

static void test_program_missing(void **state) {
        struct fixture *f = *state;

        setenv("RAILMUX_EXECUTOR", "/nonexistent/executor", 1);
        assert_int_equal(launcher_new(f->base, f->notify, &f->config, &f->launcher), 0);
        assert_int_equal(launcher_start(f->launcher, "host"), -ENOENT);
}

/* Whoever started it is killed: it dies too. */
static void test_parent_dies(void **state) {
        struct fixture *f = *state;
        pid_t parent, executor;
        int status;

        fflush(NULL);
        parent = fork();
        assert_true(parent >= 0);
        if (parent == 0) {
                struct event_base *base = event_base_new();

                if (launcher_new(base, NULL, &f->config, &f->launcher) < 0 || launcher_start(f->launcher, "host") < 0)
                        _exit(1);
                for (;;)
                        pause();
        }
        executor = await_executor(f);
        kill(parent, SIGKILL);
        assert_int_equal(waitpid(parent, &status, 0), parent);
        assert_int_equal(waitpid(executor, &status, 0), executor); /* ours now */
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_keeper(void **state) {
        static struct keeper_message message;
        struct fixture *f = *state;
        struct keeper_notify notify;

        setenv("TMPDIR", f->dir, 1);
        unsetenv("RUNTIME_DIRECTORY");
        unsetenv("XDG_RUNTIME_DIR");
        assert_int_equal(keeper_notify_init(&notify), 0);
        setenv("NOTIFY_SOCKET", notify.path, 1);
        setenv("RAILMUX_KEEPER", "1", 1);
        assert_int_equal(launcher_new(f->base, f->notify, &f->config, &f->launcher), 0);
        assert_string_equal(launcher_kind(f->launcher), "keeper");
        assert_int_equal(launcher_start(f->launcher, "host"), 0);
        assert_int_equal(keeper_notify_receive(&notify, &message), 0);
        assert_int_equal(message.pid, getpid());
        assert_string_equal(message.executor, "host");
        assert_string_equal(message.arguments[0], "--name");
        assert_string_equal(message.arguments[3], "5");
        assert_string_equal(message.arguments[message.n_arguments - 1], "info"); /* no --exit-with-daemon */
        assert_int_equal(keeper_notify_receive(&notify, &message), KEEPER_NOTIFY_E_AGAIN);

        free(f->config.client_socket);
        f->config.client_socket = strdup("/tmp/a\nb");
        assert_int_equal(launcher_start(f->launcher, "host"), -EINVAL);
        keeper_notify_deinit(&notify);
}

int main(int argc, char **argv) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_child, setup, teardown),
                cmocka_unit_test_setup_teardown(test_planes, setup, teardown),
                cmocka_unit_test_setup_teardown(test_program_missing, setup, teardown),
                cmocka_unit_test_setup_teardown(test_parent_dies, setup, teardown),
                cmocka_unit_test_setup_teardown(test_keeper, setup, teardown),
        };

        if (strcmp(argv[0], "railmux-executor") == 0)
                actor_executor(argc, argv);
        log_init("launcher", LOG_LEVEL_ERROR);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
