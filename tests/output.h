/* SPDX-License-Identifier: MIT */
#pragma once
/* What a program says. */
#include <fcntl.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs argv[0] to its end. Its exit status, -1 if there is none; text: what it says on both, cut where it is full. */
static inline int output_of(const char *const *argv, char *text, size_t size) {
        posix_spawn_file_actions_t actions;
        int fds[2], r, status = 0;
        size_t length = 0;
        char rest[512];
        ssize_t n;
        pid_t pid;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -1;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
        posix_spawn_file_actions_adddup2(&actions, fds[1], 2);
        r = posix_spawn(&pid, argv[0], &actions, NULL, (char *const *)argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(fds[1]);
        while (!r && (n = length < size - 1 ? read(fds[0], text + length, size - 1 - length)
                                            : read(fds[0], rest, sizeof(rest))) > 0)
                length += length < size - 1 ? (size_t)n : 0;
        text[length] = '\0';
        close(fds[0]);
        return !r && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define OUTPUT_OF(text, ...) output_of((const char *const[]){__VA_ARGS__, NULL}, text, sizeof(text))
