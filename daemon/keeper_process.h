/* SPDX-License-Identifier: MIT */
#pragma once
/* One process that the keeper keeps running. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/restart.h"

struct keeper_process;

/* Prepares the child between fork and exec: environment, descriptors. 0 or -errno. */
typedef int (*keeper_process_prepare)(void *data);

struct keeper_process {
        struct keeper_process *next, *prev; /* keeper->executors */
        char *name;                         /* "railmuxd", "executor host" */
        char *path;
        char **argv; /* NULL-terminated */

        pid_t pid; /* 0: does not run */
        uint64_t started_ns;
        uint64_t start_at_ns; /* when it is to be started (again), 0: not */
        uint64_t kill_at_ns;  /* when SIGKILL is due, 0: not */
        struct restart restart;
};

/* Takes argv over on success. */
int keeper_process_new(const char *name, const char *path, char **argv, struct keeper_process **ret_process);
struct keeper_process *keeper_process_free(struct keeper_process *process); /* must not run */
int keeper_process_start(struct keeper_process *process, keeper_process_prepare prepare, void *data);
/* Sends the signal (and SIGCONT, so that a stopped process gets it); SIGKILL follows after grace_ms unless that is 0.
 */
void keeper_process_signal(struct keeper_process *process, int signal, uint32_t grace_ms);
/* It ended: sets when to start it again. */
void keeper_process_ended(struct keeper_process *process);
