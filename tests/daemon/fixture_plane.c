/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"
#include "tests/daemon/fixture_parts.h"

#include "tests/time_scale.h"
#include "util/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

uint64_t fixture_reaches, fixture_bursts;
const char *fixture_planes_config;

void plane_start(struct fixture *fixture, uint32_t gpu) {
        char number[16];

        assert_int_equal(fixture->planes[gpu], 0);
        snprintf(number, sizeof(number), "%u", gpu);
        plane_write(fixture, gpu, "reaches", fixture_reaches >> gpu & 1 ? "" : NULL);
        plane_write(fixture, gpu, "bursts", fixture_bursts >> gpu & 1 ? "" : NULL);
        fixture->planes_again_ns[gpu] = 0;
        fixture->planes[gpu] = fork();
        assert_true(fixture->planes[gpu] >= 0);
        if (fixture->planes[gpu] == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                unsetenv("NOTIFY_SOCKET");
                unsetenv("JOURNAL_STREAM");
                setenv("FAKE_PLANE", fixture->directory, 1);
                close_range(3, ~0u, 0);
                execl(RAILMUX_EXECUTOR, RAILMUX_EXECUTOR, "--name", number, "--backend", FAKE_PLANE_PLUGIN, "--socket",
                      fixture->exec, "--stall-ms", "200", NULL);
                _exit(127);
        }
}

void plane_kill(struct fixture *fixture, uint32_t gpu) {
        assert_int_equal(kill(fixture->planes[gpu], SIGKILL), 0);
        assert_int_equal(waitpid(fixture->planes[gpu], NULL, 0), fixture->planes[gpu]);
        fixture->planes[gpu] = 0;
}

void plane_term(struct fixture *fixture, uint32_t gpu) {
        assert_true(fixture->planes[gpu] > 0);
        kill(fixture->planes[gpu], SIGTERM); /* it may have ended by itself */
        fixture->planes_again_ns[gpu] = signal_again_ns();
}

/* One that ends hears a second one, and does what it is doing. */
void plane_repeat_signals(struct fixture *fixture) {
        for (uint32_t i = 0; i < FIXTURE_PLANES; i++)
                if (fixture->planes[i] && fixture->planes_again_ns[i] &&
                    signal_is_lost(fixture->planes[i], SIGTERM, &fixture->planes_again_ns[i]))
                        kill(fixture->planes[i], SIGTERM);
}

int plane_stop(struct fixture *fixture, uint32_t gpu) {
        plane_term(fixture, gpu);
        return plane_end(fixture, gpu);
}

int plane_end(struct fixture *fixture, uint32_t gpu) {
        pid_t pid = 0;
        int status = 0;

        fixture_wait(fixture, (pid = waitpid(fixture->planes[gpu], &status, WNOHANG)) != 0);
        assert_int_equal(pid, fixture->planes[gpu]);
        fixture->planes[gpu] = 0;
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

#define IN_TIME_NS UINT64_C(3500000000)
#define TRIES      5u

void plane_hang(struct fixture *fixture, uint32_t gpu, const char *where) {
        fixture->planes_hang_ns[gpu] = clock_now_ns();
        if (where)
                plane_write(fixture, gpu, where, "");
        else
                assert_int_equal(kill(fixture->planes[gpu], SIGSTOP), 0);
}

bool plane_is_late(const struct fixture *fixture, uint32_t gpu) {
        return clock_now_ns() - fixture->planes_hang_ns[gpu] >= IN_TIME_NS;
}

bool plane_go(struct fixture *fixture, uint32_t gpu, const char *where) {
        static unsigned int late;

        if (where)
                plane_write(fixture, gpu, where, NULL);
        else
                assert_int_equal(kill(fixture->planes[gpu], SIGCONT), 0);
        if (!plane_is_late(fixture, gpu)) {
                late = 0;
                return true;
        }
        plane_kill(fixture, gpu);
        if (++late < TRIES)
                return false;
        late = 0;
        fail_msg("an executor has stood still for too long %u times", TRIES);
        return false;
}

#define UNIX_LISTENS 0x10000u /* among the flags in /proc/net/unix */
/* Exit statuses of railmuxctl: railmuxd has refused what was asked; it is not there or does not answer. */
#define CTL_REFUSED     1
#define CTL_UNREACHABLE 3

static char printed[65536]; /* by the last railmuxctl, also as an error */

void ctl_show_printed(void) {
        if (printed[0])
                fprintf(stderr, "railmuxctl printed last:\n%s\n", printed);
}

/* The loop turns meanwhile: railmuxd may wait for the service manager. */
static int ctl_run_once(struct fixture *fixture, const char *word, const char *second) {
        size_t length = 0;
        int fds[2], status;
        ssize_t n;
        pid_t pid;

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                dup2(fds[1], STDOUT_FILENO);
                dup2(fds[1], STDERR_FILENO);
                execl(RAILMUXCTL, RAILMUXCTL, "--control", fixture->control, word, second, NULL);
                _exit(127);
        }
        close(fds[1]);
        assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
        while ((n = read(fds[0], printed + length, sizeof(printed) - 1 - length)) != 0) {
                if (n > 0)
                        length += (size_t)n;
                else if (errno == EAGAIN)
                        fixture_turn(fixture);
                else
                        break;
        }
        printed[length] = '\0';
        close(fds[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status;
}

/* Its exit status. It waits ten seconds for an answer, which may take time_scale() times as long. */
static int ctl_run(struct fixture *fixture, const char *word, const char *second) {
        int status = ctl_run_once(fixture, word, second);

        for (uint64_t i = 1; i < time_scale() && WIFEXITED(status) && WEXITSTATUS(status) == CTL_UNREACHABLE; i++)
                status = ctl_run_once(fixture, word, second);
        if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != CTL_REFUSED)) {
                ctl_show_printed();
                fail_msg("railmuxctl %s %s ended with status %#x", word, second ? second : "", (unsigned int)status);
        }
        return WEXITSTATUS(status);
}

const char *fixture_ctl_text(struct fixture *fixture, const char *word, const char *second) {
        if (ctl_run(fixture, word, second) == 0)
                return printed;
        ctl_show_printed();
        fail_msg("railmuxctl %s %s was refused", word, second ? second : "");
        return NULL;
}

bool fixture_ctl_says(struct fixture *fixture, const char *word, const char *second, const char *text) {
        return strstr(fixture_ctl_text(fixture, word, second), text) != NULL;
}

void fixture_ctl_check(struct fixture *fixture, const char *word, const char *second, const char *text, bool says,
                       const char *file, int line) {
        if (fixture_ctl_says(fixture, word, second, text) == says)
                return;
        ctl_show_printed();
        fprintf(stderr, "%s: \"%s\"\n", says ? "and not" : "which has", text);
        _fail(file, line);
}

double fixture_metric(struct fixture *fixture, const char *name) {
        size_t n = strlen(name);

        for (const char *line = fixture_ctl_text(fixture, "metrics", NULL); line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (strncmp(line, name, n) == 0 && line[n] == ' ')
                        return strtod(line + n, NULL);
        }
        ctl_show_printed();
        fail_msg("there is no metric %s", name);
        return 0;
}

void fixture_configure(struct fixture *fixture, const char *config, bool reload) {
        FILE *file = fopen(fixture->config, "w");

        assert_non_null(file);
        assert_true(fputs(config, file) >= 0);
        assert_int_equal(fclose(file), 0);
        if (reload)
                (void)ctl_run(fixture, "reload", NULL); /* it may be wrong */
}

static void ctl_drain_path(const struct fixture *fixture, char path[128]) {
        snprintf(path, 128, "%s/drain.out", fixture->directory);
}

pid_t ctl_drain_start(struct fixture *fixture, const char *name) {
        char path[128];
        pid_t pid;

        ctl_drain_path(fixture, path);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

                if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
                        _exit(126);
                close_range(3, ~0u, 0);
                execl(RAILMUXCTL, RAILMUXCTL, "--control", fixture->control, "drain", name, NULL);
                _exit(127);
        }
        return pid;
}

int ctl_drain_end(struct fixture *fixture, pid_t pid, char *ret_text, size_t size) {
        char path[128];
        int status, fd;
        pid_t ended;
        ssize_t n;

        fixture_wait(fixture, (ended = waitpid(pid, &status, WNOHANG)) != 0);
        assert_int_equal(ended, pid);
        assert_true(WIFEXITED(status));
        ctl_drain_path(fixture, path);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        n = read(fd, ret_text, size - 1);
        assert_true(n >= 0);
        ret_text[n] = '\0';
        close(fd);
        return WEXITSTATUS(status);
}

static unsigned int executors_ready(struct fixture *fixture) {
        unsigned int n = 0;

        for (const char *line = fixture_ctl_text(fixture, "status", NULL), *end; *line; line = *end ? end + 1 : end) {
                const char *gpu = strstr(line, " hip "), *ready = strstr(line, " ready ");

                end = strchrnul(line, '\n');
                n += gpu && gpu < end && ready && ready < end;
        }
        return n;
}

void plane_wait_ready(struct fixture *fixture, uint32_t n) {
        fixture_wait(fixture, executors_ready(fixture) == n);
}

/* The sockets with the name of the control socket: that of the daemon that listens, and its ends of connections. */
static unsigned int control_sockets(const struct fixture *fixture, bool *ret_listens) {
        FILE *file = fopen("/proc/net/unix", "re");
        unsigned int n = 0;
        char line[512];

        assert_non_null(file);
        *ret_listens = false;
        while (fgets(line, sizeof(line), file)) {
                const char *path = strchr(line, '/');
                unsigned int flags;

                if (!path || strncmp(path, fixture->control, strlen(fixture->control)) != 0)
                        continue;
                n++;
                if (sscanf(line, "%*s %*s %*s %x", &flags) == 1 && flags & UNIX_LISTENS)
                        *ret_listens = true;
        }
        fclose(file);
        return n;
}

bool control_listens(const struct fixture *fixture) {
        bool listens;

        control_sockets(fixture, &listens);
        return listens;
}

/* railmuxctl has ended before railmuxd closes its end, and that end must not be among the descriptors counted. */
static bool control_is_quiet(const struct fixture *fixture) {
        bool listens;

        return control_sockets(fixture, &listens) == 1;
}

void fixture_setup_planes(struct fixture *fixture, uint32_t n, bool managed) {
        FILE *file;
        char path[128];

        fixture_prepare(fixture,
                        fixture_reaches && !fixture_planes_config ? "gpu: {reach: 512K}\n" : fixture_planes_config,
                        managed);
        fixture->gpu_option = "hip";
        fixture->gpus = n;
        snprintf(path, sizeof(path), "%s/gpus", fixture->directory);
        file = fopen(path, "we");
        assert_non_null(file);
        fprintf(file, "%u\n", n);
        fclose(file);
        fixture_start(fixture);
        for (uint32_t i = 0; i < n; i++)
                plane_start(fixture, i);
        plane_wait_ready(fixture, n);
        fixture_wait(fixture, control_is_quiet(fixture));
        fixture->idle_fds = fixture_daemon_fds(fixture);
}

void plane_write(struct fixture *fixture, uint32_t gpu, const char *name, const char *text) {
        char path[128], temporary[160];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%u.%s", fixture->directory, gpu, name);
        if (!text) {
                assert_true(unlink(path) == 0 || errno == ENOENT);
                return;
        }
        snprintf(temporary, sizeof(temporary), "%s.new", path);
        file = fopen(temporary, "we");
        assert_non_null(file);
        fputs(text, file);
        fclose(file);
        assert_int_equal(rename(temporary, path), 0);
}

/* Goes through its log; what is asked for is written where a pointer is given. */
static unsigned int log_read(struct fixture *fixture, uint32_t gpu, const char *begin, unsigned int *ret_line,
                             char *ret_text, size_t size) {
        char path[128], line[2048];
        unsigned int n = 0, at = 0;
        FILE *file;

        if (ret_line)
                *ret_line = 0;
        if (ret_text)
                ret_text[0] = '\0';
        snprintf(path, sizeof(path), "%s/%u.log", fixture->directory, gpu);
        file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file)) {
                at++;
                line[strcspn(line, "\n")] = '\0';
                assert_null(strstr(line, "WRONG"));
                if (strncmp(line, begin, strlen(begin)) != 0)
                        continue;
                n++;
                if (ret_line)
                        *ret_line = at;
                if (ret_text)
                        snprintf(ret_text, size, "%s", line + strlen(begin));
        }
        if (file)
                fclose(file);
        return n;
}

unsigned int plane_count(struct fixture *fixture, uint32_t gpu, const char *begin) {
        return log_read(fixture, gpu, begin, NULL, NULL, 0);
}

unsigned int plane_line(struct fixture *fixture, uint32_t gpu, const char *begin) {
        unsigned int line;

        log_read(fixture, gpu, begin, &line, NULL, 0);
        return line;
}

void plane_text(struct fixture *fixture, uint32_t gpu, const char *begin, char *ret_text, size_t size) {
        log_read(fixture, gpu, begin, NULL, ret_text, size);
}
