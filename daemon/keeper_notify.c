/* SPDX-License-Identifier: MIT */
/*
 * Notifications come as datagrams to a socket in a directory that only our own user can enter. That is not enough to
 * trust them: other processes of the user could write there too. The kernel attaches the sender's pid to each datagram,
 * and the keeper obeys the one railmuxd it started and nobody else.
 */
#include "daemon/keeper_notify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

union keeper_notify_control {
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int) * KEEPER_NOTIFY_FDS_MAX)];
        struct cmsghdr align;
};

static int keeper_notify_directory(char **ret_directory) {
        const char *const bases[] = {getenv("RUNTIME_DIRECTORY"), getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
        int r = -ENOENT;

        for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
                char *directory;

                /* A socket's path must be short. */
                if (!bases[i] || bases[i][0] != '/' || strlen(bases[i]) > 64)
                        continue;
                if (asprintf(&directory, "%s/railmux-keeper-XXXXXX", bases[i]) < 0)
                        return -ENOMEM;
                if (mkdtemp(directory)) {
                        *ret_directory = directory;
                        return 0;
                }
                r = -errno;
                free(directory);
        }
        return r;
}

int keeper_notify_init(struct keeper_notify *notify) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        const int one = 1;
        int r;

        *notify = (struct keeper_notify)KEEPER_NOTIFY_INIT;
        r = keeper_notify_directory(&notify->directory);
        if (r < 0)
                return r;
        if (asprintf(&notify->path, "%s/notify", notify->directory) < 0) {
                notify->path = NULL;
                return -ENOMEM;
        }
        if (strlen(notify->path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", notify->path);
        notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (notify->fd < 0 || setsockopt(notify->fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0 ||
            bind(notify->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        return 0;
}

void keeper_notify_deinit(struct keeper_notify *notify) {
        if (notify->fd >= 0)
                close(notify->fd);
        if (notify->path)
                unlink(notify->path);
        if (notify->directory)
                rmdir(notify->directory);
        free(notify->path);
        free(notify->directory);
        *notify = (struct keeper_notify)KEEPER_NOTIFY_INIT;
}

void keeper_message_close(struct keeper_message *message) {
        for (unsigned int i = 0; i < message->n_fds; i++)
                if (message->fds[i] >= 0)
                        close(message->fds[i]);
        message->n_fds = 0;
}

void keeper_message_parse(struct keeper_message *message) {
        char *rest = message->text, *line;

        while ((line = strsep(&rest, "\n"))) {
                if (strcmp(line, "READY=1") == 0)
                        message->ready = true;
                else if (strcmp(line, "RELOADING=1") == 0)
                        message->reloading = true;
                else if (strcmp(line, "STOPPING=1") == 0)
                        message->stopping = true;
                else if (strcmp(line, "WATCHDOG=1") == 0)
                        message->watchdog = true;
                else if (strcmp(line, "WATCHDOG=trigger") == 0)
                        message->watchdog_trigger = true;
                else if (strcmp(line, "BARRIER=1") == 0)
                        message->barrier = true;
                else if (strcmp(line, "FDSTORE=1") == 0)
                        message->fdstore = true;
                else if (strcmp(line, "FDSTOREREMOVE=1") == 0)
                        message->fdstore_remove = true;
                else if (strncmp(line, "FDNAME=", 7) == 0)
                        message->fd_name = line + 7;
                else if (strncmp(line, "X_RAILMUX_EXECUTOR=", 19) == 0)
                        message->executor = line + 19;
                else if (strncmp(line, "X_RAILMUX_ARGUMENT=", 19) == 0 && message->n_arguments < KEEPER_NOTIFY_ARGS_MAX)
                        message->arguments[message->n_arguments++] = line + 19;
        }
        message->arguments[message->n_arguments] = NULL;
}

int keeper_notify_receive(struct keeper_notify *notify, struct keeper_message *message) {
        union keeper_notify_control control;
        struct iovec iov = {.iov_base = message->text, .iov_len = KEEPER_NOTIFY_BYTES_MAX};
        struct msghdr header = {
                .msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes),
        };
        ssize_t n;

        memset(message, 0, offsetof(struct keeper_message, text));
        memset(&message->n_fds, 0, sizeof(*message) - offsetof(struct keeper_message, n_fds));
        do
                n = recvmsg(notify->fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return errno == EAGAIN ? KEEPER_NOTIFY_E_AGAIN : -errno;

        for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header); cmsg; cmsg = CMSG_NXTHDR(&header, cmsg)) {
                size_t bytes = cmsg->cmsg_len - CMSG_LEN(0);

                if (cmsg->cmsg_level != SOL_SOCKET)
                        continue;
                if (cmsg->cmsg_type == SCM_CREDENTIALS && bytes == sizeof(struct ucred)) {
                        struct ucred cred;

                        memcpy(&cred, CMSG_DATA(cmsg), sizeof(cred));
                        message->pid = cred.pid;
                } else if (cmsg->cmsg_type == SCM_RIGHTS) {
                        size_t n_fds = bytes / sizeof(int);

                        for (size_t i = 0; i < n_fds; i++) {
                                int fd;

                                memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
                                if (message->n_fds < KEEPER_NOTIFY_FDS_MAX)
                                        message->fds[message->n_fds++] = fd;
                                else
                                        close(fd);
                        }
                }
        }
        message->text[n] = '\0';
        if (message->pid <= 0 || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || memchr(message->text, 0, (size_t)n)) {
                keeper_message_close(message);
                return KEEPER_NOTIFY_E_REFUSED;
        }
        keeper_message_parse(message);
        return 0;
}
