/* SPDX-License-Identifier: MIT */
#include "tests/e2e/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"

double proc_time_scale(void) {
        const char *text = getenv("RAILMUX_TIME_SCALE");
        double scale = text ? strtod(text, NULL) : 1;

        return scale >= 1 ? scale : 1;
}

bool proc_full(void) {
        const char *text = getenv("RAILMUX_FULL");

        return text && strcmp(text, "1") == 0;
}

uint64_t proc_seed(void) {
        static uint64_t seed;
        const char *text = getenv("RAILMUX_SEED");

        if (seed == 0) {
                if (text)
                        seed = strtoull(text, NULL, 0);
                else if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
                        seed = clock_now_ns();
                seed = (seed & 0xffffffffu) | 1u;
                printf("seed: RAILMUX_SEED=%" PRIu64 "\n", seed);
        }
        return seed;
}

uint64_t proc_random(uint64_t *state) {
        uint64_t x = *state += 0x9e3779b97f4a7c15u;

        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        return x ^ x >> 31;
}

static uint64_t deadline_after(uint32_t timeout_ms) {
        return clock_now_ns() + (uint64_t)((double)timeout_ms * 1e6 * proc_time_scale());
}

/* Milliseconds until the deadline for poll(), rounded up; 0 when it has passed. */
static int left_ms(uint64_t deadline) {
        uint64_t now = clock_now_ns();

        return now >= deadline ? 0 : (int)((deadline - now) / 1000000u + 1);
}

pid_t proc_start(const char *const argv[], const char *output_path) {
        pid_t parent = getpid(), pid;

        fflush(NULL);
        pid = fork();
        if (pid < 0)
                return -errno;
        if (pid > 0)
                return pid;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(127);
        close_range(3, ~0u, CLOSE_RANGE_CLOEXEC); /* whatever our own caller left open is not the node's */
        if (output_path) {
                int fd = open(output_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

                if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
                        _exit(127);
        }
        execv(argv[0], (char *const *)argv);
        _exit(127);
}

static int pidfd_open_of(pid_t pid) {
        return (int)syscall(SYS_pidfd_open, pid, 0);
}

int proc_wait_dead(pid_t pid, uint32_t timeout_ms) {
        uint64_t deadline = deadline_after(timeout_ms);
        struct pollfd poller = {.fd = pidfd_open_of(pid), .events = POLLIN};
        int r;

        if (poller.fd < 0)
                return errno == ESRCH ? 0 : -errno;
        do
                r = poll(&poller, 1, left_ms(deadline));
        while (r < 0 && errno == EINTR);
        close(poller.fd);
        return r > 0 ? 0 : -ETIMEDOUT;
}

int proc_wait(pid_t pid, uint32_t timeout_ms, int *ret_status) {
        int r = proc_wait_dead(pid, timeout_ms);

        if (r)
                return r;
        return waitpid(pid, ret_status, 0) == pid ? 0 : -errno;
}

/* Reads until the end of file or the deadline. */
static int read_all(int fd, uint64_t deadline, char *output) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        size_t used = 0;
        char sink[4096];

        for (;;) {
                size_t room = output ? PROC_OUTPUT_MAX - 1 - used : 0;
                ssize_t n;

                if (poll(&poller, 1, left_ms(deadline)) == 0)
                        return -ETIMEDOUT;
                n = room > 0 ? read(fd, output + used, room) : read(fd, sink, sizeof(sink));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        break;
                used += room > 0 ? (size_t)n : 0;
                if (output)
                        output[used] = '\0';
        }
        return 0;
}

static int run_program(const char *const argv[], uint32_t timeout_ms, char *output, bool quiet) {
        uint64_t deadline = deadline_after(timeout_ms);
        pid_t parent = getpid(), pid;
        int pipes[2], status, r;

        if (output)
                output[0] = '\0';
        if (pipe2(pipes, O_CLOEXEC) != 0)
                return -errno;
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
                if (quiet)
                        dup2(pipes[1], STDERR_FILENO);
                if (getppid() == parent && dup2(pipes[1], STDOUT_FILENO) >= 0)
                        execv(argv[0], (char *const *)argv);
                _exit(127);
        }
        close(pipes[1]);
        r = pid < 0 ? -errno : read_all(pipes[0], deadline, output);
        close(pipes[0]);
        if (pid < 0)
                return r;
        if (r)
                kill(pid, SIGKILL);
        if (waitpid(pid, &status, 0) != pid)
                return -errno;
        if (r)
                return r;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int proc_run(const char *const argv[], uint32_t timeout_ms, char *output) {
        return run_program(argv, timeout_ms, output, false);
}

int proc_run_quiet(const char *const argv[], uint32_t timeout_ms, char *output) {
        return run_program(argv, timeout_ms, output, true);
}

void proc_measure_for(uint32_t ms) {
        struct itimerspec when = {.it_value = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}};
        int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
        uint64_t ticks;

        timerfd_settime(fd, 0, &when, NULL);
        while (read(fd, &ticks, sizeof(ticks)) < 0 && errno == EINTR)
                ;
        close(fd);
}

bool proc_await(bool (*condition)(void *argument), void *argument, uint32_t timeout_ms) {
        uint64_t deadline = deadline_after(timeout_ms);

        for (uint32_t interval_ms = 1; !condition(argument); interval_ms += interval_ms < 20) {
                if (clock_now_ns() >= deadline)
                        return false;
                proc_measure_for(interval_ms);
        }
        return true;
}

static int count_fds(pid_t pid, const char *prefix) {
        char path[64], link[400], target[64];
        struct dirent *entry;
        int count = 0;
        DIR *dir;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        dir = opendir(path);
        if (!dir)
                return -errno;
        while ((entry = readdir(dir))) {
                ssize_t n;

                if (entry->d_name[0] == '.')
                        continue;
                snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
                n = readlink(link, target, sizeof(target) - 1);
                target[n > 0 ? n : 0] = '\0';
                count += strncmp(target, prefix, strlen(prefix)) == 0;
        }
        closedir(dir);
        return count;
}

void proc_show_fds(pid_t pid, const char *name) {
        char path[64], link[400], target[128];
        struct dirent *entry;
        DIR *dir;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        dir = opendir(path);
        fprintf(stderr, "%s:", name);
        while (dir && (entry = readdir(dir))) {
                ssize_t n;

                snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
                n = readlink(link, target, sizeof(target) - 1);
                if (n > 0)
                        fprintf(stderr, " %s=%.*s", entry->d_name, (int)n, target);
        }
        fputc('\n', stderr);
        if (dir)
                closedir(dir);
}

int proc_fd_count(pid_t pid) {
        return count_fds(pid, "");
}
int proc_memfd_count(pid_t pid) {
        return count_fds(pid, "/memfd:");
}

long proc_rss_kib(pid_t pid) {
        char path[64], line[256];
        long kib = -ESRCH;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
        file = fopen(path, "re");
        if (!file)
                return -errno;
        while (fgets(line, sizeof(line), file))
                if (sscanf(line, "VmRSS: %ld", &kib) == 1)
                        break;
        fclose(file);
        return kib;
}

uint64_t proc_cpu_ns(pid_t pid) {
        struct timespec ts;
        clockid_t clock;

        if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &ts) != 0)
                return 0;
        return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

unsigned int proc_children(char *text, size_t text_size) {
        unsigned int count = 0;
        struct dirent *entry;
        DIR *dir = opendir("/proc");

        text[0] = '\0';
        while (dir && (entry = readdir(dir))) {
                char path[300], line[512], name[64], state;
                int ppid;
                FILE *file;

                if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
                        continue;
                snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
                file = fopen(path, "re");
                if (!file)
                        continue;
                if (fgets(line, sizeof(line), file) && sscanf(line, "%*d (%63[^)]) %c %d", name, &state, &ppid) == 3 &&
                    ppid == getpid() && state != 'Z') {
                        size_t used = strlen(text);

                        snprintf(text + used, text_size - used, "%s%s (%s)", count ? ", " : "", entry->d_name, name);
                        count++;
                }
                fclose(file);
        }
        if (dir)
                closedir(dir);
        return count;
}
