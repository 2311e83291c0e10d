/* SPDX-License-Identifier: MIT */
#include "daemon/keeper_process.h"

#include "daemon/launcher_command.h"
#include "util/clock.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)

int keeper_process_new(const char *name, const char *path, char **argv, struct keeper_process **ret_process) {
        struct keeper_process *process;

        process = calloc(1, sizeof(*process));
        if (!process)
                return -ENOMEM;
        process->name = strdup(name);
        process->path = strdup(path);
        if (!process->name || !process->path) {
                keeper_process_free(process);
                return -ENOMEM;
        }
        process->argv = argv;
        *ret_process = process;
        return 0;
}

struct keeper_process *keeper_process_free(struct keeper_process *process) {
        if (!process)
                return NULL;
        assert(!process->pid);
        free(process->name);
        free(process->path);
        launcher_command_free(process->argv);
        free(process);
        return NULL;
}

/* Only the one thread of the keeper was copied, so everything may be called here. */
static void keeper_process_child(const struct keeper_process *process, pid_t keeper, keeper_process_prepare prepare,
                                 void *data) {
        sigset_t none;

        sigemptyset(&none);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != keeper)
                _exit(126);
        /* Ctrl-C in a terminal reaches the keeper alone, which then stops everything in order. */
        setpgid(0, 0);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (prepare(data) < 0)
                _exit(126);
        execv(process->path, process->argv);
        _exit(127);
}

int keeper_process_start(struct keeper_process *process, keeper_process_prepare prepare, void *data) {
        pid_t keeper = getpid(), pid;

        assert(!process->pid);
        pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                keeper_process_child(process, keeper, prepare, data);
        process->pid = pid;
        process->started_ns = clock_now_ns();
        process->start_at_ns = 0;
        process->kill_at_ns = 0;
        return 0;
}

void keeper_process_signal(struct keeper_process *process, int signal, uint32_t grace_ms) {
        if (!process->pid)
                return;
        kill(process->pid, signal);
        if (signal != SIGKILL)
                kill(process->pid, SIGCONT);
        process->kill_at_ns = grace_ms ? clock_now_ns() + grace_ms * NS_PER_MS : 0;
}

void keeper_process_ended(struct keeper_process *process) {
        uint64_t now = clock_now_ns();

        process->pid = 0;
        process->kill_at_ns = 0;
        process->start_at_ns = now + restart_delay_ns(&process->restart, now, now - process->started_ns);
}
