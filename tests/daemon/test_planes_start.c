/* SPDX-License-Identifier: MIT */
/* How railmuxd finds GPUs, and what it starts for them. */
#include "tests/cmocka_all.h"
#include "tests/output.h"
#include "tests/time_scale.h"

#include "util/clock.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_MAX 32768u

struct start {
        char directory[64];
        pid_t pid;
        int fd; /* what it says */
        char text[TEXT_MAX];
        size_t length;
};

/* Whole, for whoever reads it meanwhile. */
static void write_file(struct start *s, const char *name, const char *text) {
        char path[128], made[128];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", s->directory, name);
        snprintf(made, sizeof(made), "%s/new", s->directory);
        file = fopen(made, "we");
        assert_non_null(file);
        fputs(text, file);
        fclose(file);
        assert_int_equal(chmod(made, 0700), 0);
        assert_int_equal(rename(made, path), 0);
}

static int setup(void **state) {
        struct start *s = calloc(1, sizeof(*s));

        snprintf(s->directory, sizeof(s->directory), "/tmp/railmux-test-XXXXXX");
        assert_non_null(mkdtemp(s->directory));
        s->fd = -1;
        *state = s;
        return 0;
}

static void stop(struct start *s) {
        if (s->pid > 0) {
                kill(s->pid, SIGTERM);
                waitpid(s->pid, NULL, 0);
        }
        s->pid = 0;
        if (s->fd >= 0)
                close(s->fd);
        s->fd = -1;
}

static int teardown(void **state) {
        struct start *s = *state;
        struct dirent *entry;
        DIR *dir;

        unsetenv("RAILMUX_PROBE");
        stop(s);
        dir = opendir(s->directory);
        assert_non_null(dir);
        while ((entry = readdir(dir)))
                if (entry->d_name[0] != '.')
                        assert_int_equal(unlinkat(dirfd(dir), entry->d_name, 0), 0);
        closedir(dir);
        assert_int_equal(rmdir(s->directory), 0);
        free(s);
        return 0;
}

static void start(struct start *s, const char *spec, const char *executor, bool keep) {
        int fds[2];

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        s->fd = fds[0];
        s->length = 0;
        s->pid = fork();
        assert_true(s->pid >= 0);
        if (s->pid == 0) {
                char socket[128], control[128];

                prctl(PR_SET_PDEATHSIG, SIGKILL);
                dup2(fds[1], STDERR_FILENO);
                unsetenv("NOTIFY_SOCKET");
                unsetenv("JOURNAL_STREAM");
                setenv("RAILMUX_EXECUTOR", executor, 1);
                setenv("RAILMUX_GPU_PLUGIN", FAKE_PLANE_PLUGIN, 1);
                setenv("FAKE_PLANE", s->directory, 1);
                snprintf(socket, sizeof(socket), "%s/c.sock", s->directory);
                snprintf(control, sizeof(control), "%s/k.sock", s->directory);
                execl(RAILMUXD, RAILMUXD, "--gpu", spec, "--socket", socket, "--control", control, "--workers", "1",
                      keep ? "--keep" : NULL, NULL);
                _exit(127);
        }
        close(fds[1]);
}

static void read_more(struct start *s, uint64_t end_ns, const char *what) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        ssize_t n;

        if (clock_now_ns() > end_ns)
                fail_msg("waited in vain for '%s'; there is:\n%s", what, s->text);
        if (poll(&p, 1, 20) <= 0)
                return;
        n = read(s->fd, s->text + s->length, TEXT_MAX - 1 - s->length);
        s->length += n > 0 ? (size_t)n : 0;
        s->text[s->length] = '\0';
}

/* Counts a text in what it says until it has come so often. */
static void wait_for(struct start *s, const char *text, unsigned int times) {
        uint64_t end_ns = clock_now_ns() + UINT64_C(10000000000) * time_scale();

        for (;;) {
                unsigned int n = 0;

                for (const char *at = s->text; s->length && (at = strstr(at, text)); at++)
                        n++;
                if (n >= times)
                        return;
                read_more(s, end_ns, text);
        }
}

/* The same of lines in a file. */
static void wait_logged(struct start *s, const char *name, const char *text, unsigned int times) {
        uint64_t end_ns = clock_now_ns() + UINT64_C(10000000000) * time_scale();
        unsigned int n = 0;
        char path[128];

        snprintf(path, sizeof(path), "%s/%s", s->directory, name);
        while (n < times) {
                FILE *file = fopen(path, "re");
                char line[256];

                for (n = 0; file && fgets(line, sizeof(line), file);)
                        n += strstr(line, text) != NULL;
                if (file)
                        fclose(file);
                read_more(s, end_ns, text);
        }
}

static int wait_end(struct start *s) {
        uint64_t end_ns = clock_now_ns() + UINT64_C(10000000000) * time_scale();
        int status = 0;

        while (waitpid(s->pid, &status, WNOHANG) == 0)
                read_more(s, end_ns, "its end");
        s->pid = 0;
        read_more(s, end_ns, "the rest");
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

/* As its own children, or the keeper's: all get up, more of them than there are devices. */
static void serves(struct start *s, bool keep) {
        char path[128], name[32];

        write_file(s, "gpus", "3\n");
        start(s, "hip:5", RAILMUX_EXECUTOR, keep);
        wait_for(s, "is ready", 5);
        assert_non_null(strstr(s->text, "Fake 1.0: 3 GPUs, the first is Fake 0 (0000:10:00.0)"));
        assert_non_null(strstr(s->text, "serving 5 GPUs of the hip backend"));
        for (unsigned int i = 0; i < 3; i++) {
                snprintf(name, sizeof(name), "executor %u: device %u is Fake %u", i, i, i);
                assert_non_null(strstr(s->text, name));
                snprintf(path, sizeof(path), "%s/%u.log", s->directory, i);
                assert_int_equal(access(path, R_OK), 0);
        }
        assert_non_null(strstr(s->text, "executor 3: device 0 is Fake 0"));
        assert_non_null(strstr(s->text, "executor 4: device 1 is Fake 1"));
        kill(s->pid, SIGTERM);
        assert_int_equal(wait_end(s), 0);
}

static void test_children(void **state) {
        serves(*state, false);
}

static void test_keeper(void **state) {
        serves(*state, true);
}

/* One that dies is started again. */
static void test_restarted(void **state) {
        struct start *s = *state;
        char path[128];

        write_file(s, "gpus", "2\n");
        start(s, "hip", RAILMUX_EXECUTOR, false);
        wait_for(s, "is ready", 2);
        write_file(s, "1.lost", "");
        wait_for(s, "ended with status 1; starting it again", 1);
        snprintf(path, sizeof(path), "%s/1.lost", s->directory);
        assert_int_equal(unlink(path), 0);
        wait_for(s, "is ready", 3);
        assert_non_null(strstr(s->text, "GPU 1: the test has taken the context away"));
}

/* Each time that the page is taken out of use its executor says so once, whatever the number is. */
static void test_misused(void **state) {
        static const char says[] = "GPU 1: a session misuses the page";
        struct start *s = *state;
        const char *at = s->text;
        unsigned int n = 0;

        write_file(s, "gpus", "2\n");
        start(s, "hip", RAILMUX_EXECUTOR, false);
        wait_for(s, "is ready", 2);
        assert_null(strstr(s->text, "misuses"));
        write_file(s, "1.shuns", "1\n");
        wait_for(s, says, 1);
        write_file(s, "1.shuns", "3\n");
        wait_for(s, says, 2);
        wait_logged(s, "1.log", "shuns 3", 5); /* and has seen it again */
        write_file(s, "1.lost", "");
        wait_for(s, "GPU 1: the test has taken the context away", 1);
        while ((at = strstr(at, says)))
                at++, n++;
        assert_int_equal(n, 2);
        assert_null(strstr(s->text, "GPU 0: a session misuses"));
}

static void test_problem(void **state) {
        struct start *s = *state;

        write_file(s, "gpus", "2 start the MPS server\n");
        start(s, "hip", RAILMUX_EXECUTOR, false);
        assert_int_equal(wait_end(s), 1);
        assert_non_null(strstr(s->text, "no GPU can be served: start the MPS server"));
        stop(s);
        start(s, "auto", RAILMUX_EXECUTOR, false);
        wait_for(s, "is ready", 1);
        assert_non_null(strstr(s->text, "the GPUs of this node cannot be served: start the MPS server"));
        assert_non_null(strstr(s->text, "serving 8 GPUs of the host backend"));
}

static void test_none(void **state) {
        struct start *s = *state;

        write_file(s, "gpus", "0\n");
        start(s, "hip:2", RAILMUX_EXECUTOR, true);
        assert_int_equal(wait_end(s), 1);
        assert_non_null(strstr(s->text, "no GPU can be served: there is no GPU"));
        stop(s);
        write_file(s, "gpus", "99\n"); /* the runtime does not start */
        start(s, "auto", RAILMUX_EXECUTOR, false);
        wait_for(s, "is ready", 1);
        assert_non_null(strstr(s->text, "no GPU runtime: the fake runtime does not start"));
        stop(s);
        write_file(s, "gpus", "1\n");
        start(s, "auto", RAILMUX_EXECUTOR, false);
        wait_for(s, "is ready", 1);
        assert_non_null(strstr(s->text, "serving 1 GPUs of the hip backend"));
}

/* SIGKILL to the railmuxd that this keeper runs. */
static void kill_daemon(const struct start *s) {
        char path[64], name[32] = "";
        FILE *children;
        int pid, n = 0;

        snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)s->pid, (int)s->pid);
        children = fopen(path, "re");
        assert_non_null(children);
        while (n == 0 && fscanf(children, "%d", &pid) == 1) {
                FILE *comm;

                snprintf(path, sizeof(path), "/proc/%d/comm", pid);
                comm = fopen(path, "re");
                if (comm && fgets(name, sizeof(name), comm) && strcmp(name, "railmuxd\n") == 0)
                        n = pid;
                if (comm)
                        fclose(comm);
        }
        fclose(children);
        assert_true(n > 0);
        assert_int_equal(kill(n, SIGKILL), 0);
}

static bool status_says(const struct start *s, const char *what) {
        char control[96], text[4096];

        snprintf(control, sizeof(control), "%s/k.sock", s->directory);
        assert_int_equal(OUTPUT_OF(text, RAILMUXCTL, "--control", control, "status"), 0);
        return strstr(text, what) != NULL;
}

/* The driver was late: a successor looks again, but not for GPUs that are served. */
static void test_late(void **state) {
        struct start *s = *state;

        write_file(s, "gpus", "0\n");
        start(s, "auto", RAILMUX_EXECUTOR, true);
        wait_for(s, "is ready", 1);
        assert_true(status_says(s, "GPUs are emulated: there is no GPU"));
        write_file(s, "gpus", "2\n");
        kill_daemon(s);
        wait_for(s, "serving 2 GPUs of the hip backend", 1);
        wait_for(s, "is ready", 3);
        assert_false(status_says(s, "GPUs are emulated"));
        write_file(s, "gpus", "1\n");
        kill_daemon(s);
        wait_for(s, "serving 2 GPUs of the hip backend", 2);
}

/* With a file it looks at this each time, and believes no file that says there is nothing any more. */
static void test_file(void **state) {
        struct start *s = *state;
        char path[128];

        snprintf(path, sizeof(path), "%s/gpus.json", s->directory);
        setenv("RAILMUX_PROBE", path, 1);
        start(s, "auto", RAILMUX_EXECUTOR, true);
        wait_for(s, "is ready", 1);
        assert_true(status_says(s, "GPUs are emulated: /"));
        write_file(s, "gpus", "2\n");
        write_file(s, "gpus.json",
                   "{\"version\":1,\"runtime\":\"R\",\"gpus\":[{\"index\":0,\"name\":\"A\",\"pci\":\"0\"}]}");
        kill_daemon(s);
        wait_for(s, "serving 1 GPUs of the hip backend", 1);
        write_file(s, "gpus.json",
                   "{\"version\":1,\"runtime\":\"R\",\"gpus\":[{\"index\":0,\"name\":\"A\",\"pci\":\"0\"},"
                   "{\"index\":1,\"name\":\"A\",\"pci\":\"1\"}]}");
        kill_daemon(s);
        wait_for(s, "serving 2 GPUs of the hip backend", 1);
        write_file(s, "gpus.json", "{\"version\":1,\"problem\":\"no driver\",\"gpus\":[]}");
        kill_daemon(s);
        wait_for(s, "serving 2 GPUs of the hip backend", 2);
        assert_non_null(strstr(s->text, "GPUs are not seen any more, and still served: no driver"));
}

/* Programs that do not do what they should. */
static void test_bad_probes(void **state) {
        static const struct {
                const char *script, *says;
        } cases[] = {
                {"#!/bin/sh\nexit 9\n", "ended with status 9 and said nothing"},
                {"#!/bin/sh\nkill -9 $$\n", "was ended by signal 9"},
                {"#!/bin/sh\necho '{'\n", "list of GPUs cannot be read"},
                {"#!/bin/sh\nexec cat /dev/zero\n", "cannot be run"},
        };
        struct start *s = *state;
        char path[128];

        snprintf(path, sizeof(path), "%s/executor", s->directory);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                write_file(s, "executor", cases[i].script);
                start(s, "hip", path, false);
                assert_int_equal(wait_end(s), 1);
                assert_non_null(strstr(s->text, cases[i].says));
                stop(s);
        }
        snprintf(path, sizeof(path), "%s/nothing", s->directory);
        start(s, "hip", path, false);
        assert_int_equal(wait_end(s), 1);
        assert_non_null(strstr(s->text, "railmux-executor is not found"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_children, setup, teardown),
                cmocka_unit_test_setup_teardown(test_keeper, setup, teardown),
                cmocka_unit_test_setup_teardown(test_restarted, setup, teardown),
                cmocka_unit_test_setup_teardown(test_misused, setup, teardown),
                cmocka_unit_test_setup_teardown(test_problem, setup, teardown),
                cmocka_unit_test_setup_teardown(test_none, setup, teardown),
                cmocka_unit_test_setup_teardown(test_late, setup, teardown),
                cmocka_unit_test_setup_teardown(test_file, setup, teardown),
                cmocka_unit_test_setup_teardown(test_bad_probes, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
