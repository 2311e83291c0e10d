/* SPDX-License-Identifier: MIT */
/*
 * A bundle is a socket in whose queue one message lies that nobody has received: its ancillary data are the
 * descriptors, its bytes say their sizes. Whoever has the socket can look at the message (MSG_PEEK), which makes new
 * descriptors each time and leaves the message where it is. So one descriptor can be kept, passed on, given to a store
 * and handed to a successor, and costs no places in anybody's table for what is in it. When the last copy of the socket
 * is closed the kernel closes what lies in its queue.
 *
 * It is a datagram socket, since that does not notice that the other end has been closed: no event, and the queue
 * stays. The other end is closed at once, so nothing can be added.
 *
 * A bundle is not for processes that do not trust each other. Whoever has a copy of the socket can receive the message,
 * set options that put other things beside it, hold the lock that receiving takes for as long as he likes, and pack
 * what takes long to close. So clients send railmuxd descriptors as they are, and it packs what it has looked at.
 *
 * Descriptors that lie in queues are counted against the user who sent them, up to his RLIMIT_NOFILE (unless he has
 * CAP_SYS_RESOURCE or CAP_SYS_ADMIN).
 */
#include "util/bundle.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/cleanup.h"

#define BUNDLE_MAGIC 0x6c646e62u

struct bundle_message {
        uint32_t magic;
        uint32_t n;
        uint64_t bytes[BUNDLE_FDS_MAX];
};

union bundle_control {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * BUNDLE_FDS_MAX)];
};

static size_t message_bytes(uint32_t n) {
        return offsetof(struct bundle_message, bytes) + n * sizeof(uint64_t);
}

uint64_t bundle_bytes(const struct bundle *bundle) {
        uint64_t sum = 0;

        for (uint32_t i = 0; i < bundle->n; i++)
                if (__builtin_add_overflow(sum, bundle->bytes[i], &sum))
                        return 0;
        return sum;
}

void bundle_close(struct bundle *bundle) {
        for (uint32_t i = 0; i < bundle->n; i++)
                cleanup_close(&bundle->fd[i]);
        bundle->n = 0;
}

int bundle_pack(const struct bundle *bundle, int *ret_fd) {
        struct bundle_message message = {.magic = BUNDLE_MAGIC, .n = bundle->n};
        union bundle_control control = {0};
        struct iovec io = {.iov_base = &message};
        struct msghdr header = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control};
        struct cmsghdr *rights;
        int ends[2], r = 0;

        if (!bundle->n || bundle->n > BUNDLE_FDS_MAX)
                return -EINVAL;
        for (uint32_t i = 0; i < bundle->n; i++) {
                if (!bundle->bytes[i])
                        return -EINVAL;
                message.bytes[i] = bundle->bytes[i];
        }
        io.iov_len = message_bytes(bundle->n);
        header.msg_controllen = CMSG_SPACE(sizeof(int) * bundle->n);
        rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * bundle->n);
        memcpy(CMSG_DATA(rights), bundle->fd, sizeof(int) * bundle->n);
        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
                return -errno;
        if (sendmsg(ends[0], &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                r = -errno;
        close(ends[0]);
        if (r)
                close(ends[1]);
        else
                *ret_fd = ends[1];
        return r;
}

/* Takes the descriptors out of the ancillary data; those that have no place are closed. */
static uint32_t control_take(struct msghdr *header, int fds[BUNDLE_FDS_MAX]) {
        uint32_t n = 0;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
                size_t count = c->cmsg_len < CMSG_LEN(0) ? 0 : (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                for (size_t i = 0; i < count; i++) {
                        int fd;

                        memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
                        if (n < BUNDLE_FDS_MAX)
                                fds[n++] = fd;
                        else
                                close(fd);
                }
        }
        return n;
}

static bool message_sound(const struct bundle_message *message, size_t bytes, uint32_t n_fds) {
        if (bytes < message_bytes(0) || message->magic != BUNDLE_MAGIC || !n_fds || message->n != n_fds ||
            bytes != message_bytes(n_fds))
                return false;
        for (uint32_t i = 0; i < n_fds; i++)
                if (!message->bytes[i])
                        return false;
        return true;
}

int bundle_peek(int fd, struct bundle *ret_bundle) {
        struct bundle_message message = {0};
        union bundle_control control;
        struct iovec io = {.iov_base = &message, .iov_len = sizeof(message)};
        struct msghdr header = {
                .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.bytes)};
        ssize_t bytes;

        *ret_bundle = (struct bundle){0};
        do
                bytes = recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (bytes < 0 && errno == EINTR);
        if (bytes < 0)
                return errno == EMFILE || errno == ENOMEM || errno == ENOBUFS ? -errno : -EINVAL;
        ret_bundle->n = control_take(&header, ret_bundle->fd);
        if (header.msg_flags & MSG_CTRUNC) { /* (a message may also have more than there can be) */
                bundle_close(ret_bundle);
                return message.n > BUNDLE_FDS_MAX ? -EINVAL : -EMFILE;
        }
        if ((header.msg_flags & MSG_TRUNC) || !message_sound(&message, (size_t)bytes, ret_bundle->n)) {
                bundle_close(ret_bundle);
                return -EINVAL;
        }
        memcpy(ret_bundle->bytes, message.bytes, ret_bundle->n * sizeof(uint64_t));
        return 0;
}
