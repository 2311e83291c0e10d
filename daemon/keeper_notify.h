/* SPDX-License-Identifier: MIT */
#pragma once
/* The keeper's end of the notify protocol. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define KEEPER_NOTIFY_BYTES_MAX 4096u
#define KEEPER_NOTIFY_FDS_MAX   253u /* what the kernel passes at once */
#define KEEPER_NOTIFY_ARGS_MAX  32u

enum {
        _KEEPER_NOTIFY_E_SUCCESS,
        KEEPER_NOTIFY_E_AGAIN,   /* nothing is there */
        KEEPER_NOTIFY_E_REFUSED, /* a message that is not for us: no credentials, truncated, zero bytes in it */
};

struct keeper_notify {
        char *directory, *path; /* private: mode 0700 */
        int fd;
};
#define KEEPER_NOTIFY_INIT                                                                                             \
        { .fd = -1 }

struct keeper_message {
        pid_t pid; /* as the kernel says */
        char text[KEEPER_NOTIFY_BYTES_MAX + 1];
        int fds[KEEPER_NOTIFY_FDS_MAX];
        unsigned int n_fds;

        /* parsed; strings point into text */
        bool ready, reloading, stopping, watchdog, watchdog_trigger, barrier, fdstore, fdstore_remove;
        const char *fd_name;                         /* NULL: none given */
        const char *executor;                        /* X_RAILMUX_EXECUTOR=, NULL: none */
        char *arguments[KEEPER_NOTIFY_ARGS_MAX + 1]; /* X_RAILMUX_ARGUMENT=, NULL-terminated */
        unsigned int n_arguments;
};

int keeper_notify_init(struct keeper_notify *notify);
void keeper_notify_deinit(struct keeper_notify *notify);
/* On 0 the caller owns the fds of the message; keeper_message_close closes those that are left. */
int keeper_notify_receive(struct keeper_notify *notify, struct keeper_message *message);
void keeper_message_close(struct keeper_message *message);
/* Splits text into the parsed members. */
void keeper_message_parse(struct keeper_message *message);
