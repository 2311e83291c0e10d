/* SPDX-License-Identifier: MIT */
/* Which plans the executor is told to run, by the constants that the configuration names. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_all.h"

#include "fixture.h"
#include "plan/cost.h"

#define RANKS   2u
#define WORKERS 2u /* of the fixture's daemon */

static void write_file(const struct fixture *f, const char *name, const char *text) {
        char path[128];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", f->directory, name);
        file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
}

/* The configuration names constants.json beside it. */
static void write_config(const struct fixture *f) {
        char text[160];

        snprintf(text, sizeof(text), "plans: {constants: %s/constants.json}\n", f->directory);
        write_file(f, "railmuxd.yaml", text);
}

static void write_copy(const struct fixture *f, double copy_ns) {
        char text[96];

        snprintf(text, sizeof(text), "{\"version\": 1, \"constants\": {\"ns_per_byte_copy\": %.1f}}", copy_ns);
        write_file(f, "constants.json", text);
}

static void reload(struct fixture *f) {
        unsigned int n = f->n_reloading, ready = f->n_ready;

        fixture_signal(f, SIGHUP);
        fixture_wait(f, f->n_reloading == n + 1 && f->n_ready == ready + 1);
}

/* A new communicator runs what is chosen with this ns_per_byte_copy; < 0: with that of the host backend. */
static void expect_choices(struct fixture *f, struct client **clients, double copy_ns) {
        struct plan_choice expected[PLAN_CHOICES_MAX];
        const struct fake_comm *comm;
        struct plan_constants constants;
        uint32_t handles[RANKS], n;

        comm = executor_comm(f, make_comm(clients, RANKS, handles));
        assert_non_null(comm);
        plan_constants_host(&constants, WORKERS);
        if (copy_ns >= 0)
                constants.ns_per_byte_copy = copy_ns;
        n = plan_choose(&constants, RANKS, expected);
        assert_int_equal(comm->n_choices, n);
        for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(comm->choices[i].operation, expected[i].operation);
                assert_int_equal(comm->choices[i].algorithm, expected[i].algorithm);
                assert_int_equal(comm->choices[i].max_bytes, expected[i].max_bytes);
        }
}

/* Or else no test below could fail. */
static void test_differ(void **unused) {
        static const double copies[] = {0.01, 1, 100};
        struct plan_choice choices[3][PLAN_CHOICES_MAX] = {0};
        uint32_t n[3];

        (void)unused;
        for (size_t i = 0; i < 3; i++) {
                struct plan_constants constants;

                plan_constants_host(&constants, WORKERS);
                constants.ns_per_byte_copy = copies[i];
                n[i] = plan_choose(&constants, RANKS, choices[i]);
                for (size_t j = 0; j < i; j++)
                        assert_true(n[i] != n[j] || memcmp(choices[i], choices[j], sizeof(choices[i])) != 0);
        }
}

static void test_reload(void **unused) {
        struct client *clients[RANKS];
        struct fixture f;

        (void)unused;
        fixture_setup(&f, NULL, true);
        executor_connect(&f, true);
        for (uint32_t r = 0; r < RANKS; r++)
                clients[r] = client_open(&f);
        expect_choices(&f, clients, -1);
        write_config(&f);
        write_copy(&f, 1);
        expect_choices(&f, clients, -1); /* nobody has been told */
        reload(&f);
        expect_choices(&f, clients, 1);

        /* What cannot be used changes nothing. */
        write_file(&f, "constants.json", "{\"version\": 1, \"constants\": {\"hop_ns\": \"none\"}}");
        reload(&f);
        expect_choices(&f, clients, 1);
        write_file(&f, "constants.json", "");
        reload(&f);
        expect_choices(&f, clients, 1);

        /* The same name with something else in it; and none any more. */
        write_copy(&f, 100);
        reload(&f);
        expect_choices(&f, clients, 100);
        write_file(&f, "railmuxd.yaml", "plans: {constants: \"\"}\n");
        reload(&f);
        expect_choices(&f, clients, -1);
        for (uint32_t r = 0; r < RANKS; r++)
                client_close(clients[r]);
        fixture_teardown(&f);
}

/* Runs a railmuxd that must refuse its configuration; what it says. */
static void refused(const struct fixture *f, char *ret_text, size_t size) {
        int fds[2], status;
        size_t length = 0;
        ssize_t n;
        pid_t pid;

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                unsetenv("JOURNAL_STREAM");
                dup2(fds[1], STDERR_FILENO);
                execl(RAILMUXD, RAILMUXD, "--gpu", "host:1", "--socket", f->socket, "--control", f->control, "--config",
                      f->config, NULL);
                _exit(127);
        }
        close(fds[1]);
        while (length < size - 1 && (n = read(fds[0], ret_text + length, size - 1 - length)) > 0)
                length += (size_t)n;
        ret_text[length] = '\0';
        close(fds[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}

static void test_start(void **unused) {
        struct client *clients[RANKS];
        char text[1024];
        struct fixture f;

        (void)unused;
        fixture_setup(&f, NULL, true);
        fixture_kill(&f);
        write_config(&f);
        refused(&f, text, sizeof(text));
        assert_non_null(strstr(text, "railmuxd.yaml:1:20: plans.constants: "));
        assert_non_null(strstr(text, "/constants.json cannot be read: No such file or directory"));
        write_file(&f, "constants.json", "{\"version\": 3}");
        refused(&f, text, sizeof(text));
        assert_non_null(strstr(text, "/constants.json: its version is not 1"));

        write_copy(&f, 1);
        fixture_start(&f);
        executor_connect(&f, true);
        for (uint32_t r = 0; r < RANKS; r++)
                clients[r] = client_open(&f);
        expect_choices(&f, clients, 1);
        for (uint32_t r = 0; r < RANKS; r++)
                client_close(clients[r]);
        fixture_teardown(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_differ),
                cmocka_unit_test(test_reload),
                cmocka_unit_test(test_start),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
