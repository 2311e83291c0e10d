/* SPDX-License-Identifier: MIT */
/*
 * Looking for GPUs without touching one. This process never loads a GPU runtime: a runtime brings threads, signal
 * handlers and a context that a lost GPU takes down. So the executor's program looks, in a child that has 20 s; a
 * driver that hangs costs a line in the log and not the service.
 *
 * What it says is checked like anybody's words.
 */
#include "daemon/gpu_probe.h"

#include "daemon/config_file.h"
#include "daemon/launcher_command.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_BYTES_MAX 65536u
#define PROBE_TIME_NS   (UINT64_C(20) * 1000000000u)
#define PROBE_ENDS      500u /* times 10 ms: until it has ended after its last word */

static void probe_copy(char *to, size_t size, const char *from) {
        size_t i;

        for (i = 0; from && from[i] && i < size - 1; i++)
                to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
        to[i] = '\0';
}

static int probe_gpu(const json_t *entry, uint32_t index, struct gpu_probe *probe) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *pci = json_string_value(json_object_get(entry, "pci"));
        const json_t *number = json_object_get(entry, "index");

        if (!name || !pci || !json_is_integer(number) || json_integer_value(number) != (json_int_t)index)
                return -EINVAL;
        probe_copy(probe->gpu[index].name, sizeof(probe->gpu[index].name), name);
        probe_copy(probe->gpu[index].pci, sizeof(probe->gpu[index].pci), pci);
        return 0;
}

int gpu_probe_parse(const char *document, size_t length, struct gpu_probe *ret_probe, char text[GPU_PROBE_TEXT]) {
        struct gpu_probe probe = {0};
        const json_t *gpus, *version;
        const char *problem;
        json_error_t error;
        json_t *root;
        int r = 0;

        root = json_loadb(document, length, JSON_REJECT_DUPLICATES, &error);
        version = json_object_get(root, "version");
        gpus = json_object_get(root, "gpus");
        problem = json_string_value(json_object_get(root, "problem"));
        if (!root || !json_is_integer(version) || json_integer_value(version) != 1 || !json_is_array(gpus) ||
            json_array_size(gpus) > GPU_PROBE_MAX) {
                snprintf(text, GPU_PROBE_TEXT, "the executor's list of GPUs cannot be read%s%.200s", root ? "" : ": ",
                         root ? "" : error.text);
                json_decref(root);
                return GPU_PROBE_E_PROBLEM;
        }
        probe_copy(probe.runtime, sizeof(probe.runtime), json_string_value(json_object_get(root, "runtime")));
        probe.n_gpus = (uint32_t)json_array_size(gpus);
        for (uint32_t i = 0; i < probe.n_gpus && !r; i++)
                r = probe_gpu(json_array_get(gpus, i), i, &probe);
        if (r < 0) {
                snprintf(text, GPU_PROBE_TEXT, "the executor's list of GPUs cannot be read");
                r = GPU_PROBE_E_PROBLEM;
        } else if (!probe.n_gpus || (problem && problem[0])) {
                probe_copy(text, GPU_PROBE_TEXT, problem && problem[0] ? problem : "there is no GPU");
                r = probe.n_gpus ? GPU_PROBE_E_PROBLEM : GPU_PROBE_E_NONE;
        } else {
                *ret_probe = probe;
        }
        json_decref(root);
        return r;
}

/* Between fork and exec. */
static void probe_exec(const char *path, int out_fd, pid_t parent) {
        static const char *const names[] = {"NOTIFY_SOCKET",  "LISTEN_PID",    "LISTEN_FDS",
                                            "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"};
        char *const argv[] = {(char *)"railmux-executor", (char *)"--probe", (char *)"--backend", (char *)"hip", NULL};
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigset_t none;

        for (int signo = 1; signo < NSIG; signo++)
                sigaction(signo, &action, NULL); /* fails for SIGKILL and the like */
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent || dup2(out_fd, STDOUT_FILENO) < 0)
                _exit(126);
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                unsetenv(names[i]);
        execv(path, argv);
        _exit(127);
}

/* Everything until the end. -ETIMEDOUT, -EFBIG. */
static int probe_read(int fd, char *document, size_t *ret_length) {
        uint64_t end_ns = clock_now_ns() + PROBE_TIME_NS;
        size_t length = 0;

        for (;;) {
                struct pollfd p = {.fd = fd, .events = POLLIN};
                uint64_t now_ns = clock_now_ns();
                ssize_t n;

                if (now_ns >= end_ns)
                        return -ETIMEDOUT;
                if (poll(&p, 1, (int)((end_ns - now_ns) / 1000000u) + 1) <= 0)
                        continue;
                if (length == PROBE_BYTES_MAX)
                        return -EFBIG;
                n = read(fd, document + length, PROBE_BYTES_MAX - length);
                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n == 0)
                        break;
                length += n > 0 ? (size_t)n : 0;
        }
        *ret_length = length;
        return 0;
}

static int probe_child(const char *path, char *document, size_t *ret_length, int *ret_status) {
        pid_t parent = getpid(), pid;
        int fds[2], r;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        pid = fork();
        if (pid == 0)
                probe_exec(path, fds[1], parent);
        r = pid < 0 ? -errno : 0;
        close(fds[1]);
        if (!r)
                r = probe_read(fds[0], document, ret_length);
        close(fds[0]);
        if (pid > 0 && r < 0)
                kill(pid, SIGKILL);
        for (unsigned int i = 0; pid > 0 && i < PROBE_ENDS && waitpid(pid, ret_status, WNOHANG) == 0; i++)
                poll(NULL, 0, 10); /* one that a driver holds back is left alone */
        return r;
}

int gpu_probe_run(struct gpu_probe *ret_probe, char text[GPU_PROBE_TEXT]) {
        const char *file = getenv("RAILMUX_PROBE");
        _cleanup_free_ char *path = NULL, *document = NULL;
        size_t length = 0;
        int status = 0, r;

        if (file && *file) {
                r = config_file_read(file, &document, &length);
                if (!r)
                        return gpu_probe_parse(document, length, ret_probe, text);
                snprintf(text, GPU_PROBE_TEXT, "%.200s cannot be read: %s", file, strerror(-r));
                return r == -ENOMEM ? r : GPU_PROBE_E_NONE;
        }
        r = launcher_command_path(&path);
        if (r == -ENOENT) {
                snprintf(text, GPU_PROBE_TEXT, "the program railmux-executor is not found");
                return GPU_PROBE_E_NONE;
        }
        document = malloc(PROBE_BYTES_MAX);
        if (r < 0 || !document)
                return -ENOMEM;
        r = probe_child(path, document, &length, &status);
        if (r < 0)
                snprintf(text, GPU_PROBE_TEXT, "railmux-executor --probe %s%s",
                         r == -ETIMEDOUT ? "has not ended within 20 s" : "cannot be run: ",
                         r == -ETIMEDOUT ? "" : strerror(-r));
        else if (WIFSIGNALED(status))
                snprintf(text, GPU_PROBE_TEXT, "railmux-executor --probe was ended by signal %d", WTERMSIG(status));
        else if (!length)
                snprintf(text, GPU_PROBE_TEXT, "railmux-executor --probe ended with status %d and said nothing",
                         WEXITSTATUS(status));
        else
                return gpu_probe_parse(document, length, ret_probe, text);
        return GPU_PROBE_E_PROBLEM;
}
