/* SPDX-License-Identifier: MIT */
/*
 * Framing: one protobuf message is one SOCK_SEQPACKET packet, so there is no length prefix, no reassembly and no
 * partial read; the kernel keeps the message and its file descriptors together.
 *
 * Everything that arrives may be hostile:
 *
 *   size         A packet above FRAME_BYTES_MAX is cut by the kernel and reported by MSG_TRUNC.
 *   descriptors  The control buffer holds exactly FRAME_FDS_MAX descriptors. More of them, or a descriptor table that
 * is full, or a security module that refuses one, give MSG_CTRUNC *and* the descriptors that did fit. Those are
 *                installed in our table already: whatever the outcome, every one of them is either handed to the caller
 * or closed here. allocation   protobuf-c copies unknown fields and allocates per repeated element, so a small packet
 * can ask for much memory. The arena counts what one message takes and refuses beyond its limit. The schemas have no
 * recursive message, so the stack is bounded too. emptiness    A packet of zero bytes looks like the end of the stream.
 * No valid message packs to zero bytes (a oneof member always takes a tag), so it is treated as the end, and
 * frame_send() refuses to make one.
 *
 * The conditions are positive: the peer, or the state of its socket, caused them. A negative errno is a fault of this
 * side, but also concerns no more than this one connection: callers end the connection, not the process. Memory that
 * runs out while unpacking counts as FRAME_E_MALFORMED for the same reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/frame.h"
#include "util/cleanup.h"

union frame_control {
        char bytes[CMSG_SPACE(sizeof(int) * FRAME_FDS_MAX)];
        struct cmsghdr align;
};
union frame_control_packet {
        char bytes[CMSG_SPACE(sizeof(int) * FRAME_FDS_PACKET)];
        struct cmsghdr align;
};
/* With padding in the control buffer the kernel could pass one descriptor more than the bound. */
_Static_assert(CMSG_SPACE(sizeof(int) * FRAME_FDS_MAX) == CMSG_LEN(sizeof(int) * FRAME_FDS_MAX),
               "no room for one more");

const char *frame_error_text(int condition) {
        switch (condition) {
        case FRAME_OK:
                return "no error";
        case FRAME_E_AGAIN:
                return "the socket is not ready";
        case FRAME_E_EOF:
                return "the peer closed the connection";
        case FRAME_E_TRUNCATED:
                return "a message was larger or carried more file descriptors than allowed";
        case FRAME_E_MALFORMED:
                return "a message could not be unpacked";
        case FRAME_E_TOO_LARGE:
                return "the message to send is too large";
        }
        return condition < 0 ? strerror(-condition) : "unknown condition";
}

static void *frame_arena_alloc(void *data, size_t size) {
        struct frame_arena *arena = data;
        void *p;

        if (size > arena->limit - arena->used)
                return NULL;
        p = malloc(size ? size : 1);
        if (p)
                arena->used += size;
        return p;
}

static void frame_arena_free(void *data, void *p) {
        (void)data;
        free(p);
}

void frame_arena_init(struct frame_arena *arena, size_t limit) {
        *arena = (struct frame_arena){
                .allocator = {.alloc = frame_arena_alloc, .free = frame_arena_free, .allocator_data = arena},
                .limit = limit,
        };
}

void frame_close_fds(int *fds, unsigned int n_fds) {
        for (unsigned int i = 0; i < n_fds; ++i) {
                if (fds[i] >= 0)
                        close(fds[i]);
                fds[i] = -1;
        }
}

int frame_send_by(void *packet, int socket_fd, const ProtobufCMessage *message, const int *fds, unsigned int n_fds) {
        union frame_control_packet control;
        struct iovec iov = {.iov_base = packet};
        struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t n;

        if (n_fds > FRAME_FDS_MANY)
                return -EINVAL;
        iov.iov_len = protobuf_c_message_get_packed_size(message);
        if (iov.iov_len > FRAME_BYTES_MAX)
                return FRAME_E_TOO_LARGE;
        if (!iov.iov_len)
                return -EINVAL;
        protobuf_c_message_pack(message, packet);
        if (n_fds) {
                struct cmsghdr *cmsg;

                memset(&control, 0, CMSG_SPACE(sizeof(int) * n_fds));
                header.msg_control = control.bytes;
                header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
                cmsg = CMSG_FIRSTHDR(&header);
                cmsg->cmsg_level = SOL_SOCKET;
                cmsg->cmsg_type = SCM_RIGHTS;
                cmsg->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
                memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * n_fds);
        }
        do
                n = sendmsg(socket_fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        if (n >= 0)
                return FRAME_OK;
        switch (errno) {
        case EAGAIN:
                return FRAME_E_AGAIN;
        case EPIPE:
        case ECONNRESET:
        case ENOTCONN:
                return FRAME_E_EOF;
        case EMSGSIZE:
                return FRAME_E_TOO_LARGE;
        default:
                return -errno;
        }
}

int frame_send(int socket_fd, const ProtobufCMessage *message, const int *fds, unsigned int n_fds) {
        uint8_t packet[FRAME_BYTES_MAX];

        return frame_send_by(packet, socket_fd, message, fds, n_fds);
}

/* Takes the descriptors out of the control data; a count above `most` means that some were closed here. */
static unsigned int frame_take_fds(struct msghdr *header, int *fds, unsigned int most) {
        unsigned int n_fds = 0;

        for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(header); cmsg; cmsg = CMSG_NXTHDR(header, cmsg)) {
                size_t n;

                if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
                        continue;
                n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (size_t i = 0; i < n; ++i) {
                        int fd;

                        memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
                        if (n_fds < most)
                                fds[n_fds] = fd;
                        else
                                close(fd);
                        ++n_fds;
                }
        }
        return n_fds;
}

int frame_unpack(const void *data, size_t size, const ProtobufCMessageDescriptor *descriptor, struct frame_arena *arena,
                 ProtobufCMessage **ret_message) {
        ProtobufCMessage *message;

        arena->used = 0;
        message = protobuf_c_message_unpack(descriptor, &arena->allocator, size, data);
        if (!message)
                return FRAME_E_MALFORMED;
        *ret_message = message;
        return FRAME_OK;
}

static int receive(void *packet, int socket_fd, const ProtobufCMessageDescriptor *descriptor, struct frame_arena *arena,
                   void *control, size_t control_bytes, unsigned int most_fds, ProtobufCMessage **ret_message,
                   int *ret_fds, unsigned int *ret_n_fds) {
        struct iovec iov = {.iov_base = packet, .iov_len = FRAME_BYTES_MAX};
        struct msghdr header = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = control_bytes};
        unsigned int n_fds;
        ssize_t n;

        *ret_n_fds = 0;
        do
                n = recvmsg(socket_fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n < 0) {
                if (errno == EAGAIN)
                        return FRAME_E_AGAIN;
                return errno == ECONNRESET || errno == EPIPE || errno == ENOTCONN ? FRAME_E_EOF : -errno;
        }

        n_fds = frame_take_fds(&header, ret_fds, most_fds);
        *ret_n_fds = n_fds < most_fds ? n_fds : most_fds;
        if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || n_fds > most_fds)
                return FRAME_E_TRUNCATED;
        return n ? frame_unpack(packet, (size_t)n, descriptor, arena, ret_message) : FRAME_E_EOF;
}

int frame_receive_unclosed(int socket_fd, const ProtobufCMessageDescriptor *descriptor, struct frame_arena *arena,
                           ProtobufCMessage **ret_message, int *ret_fds, unsigned int *ret_n_fds) {
        uint8_t packet[FRAME_BYTES_MAX];
        union frame_control control;

        return receive(packet, socket_fd, descriptor, arena, control.bytes, sizeof(control.bytes), FRAME_FDS_MAX,
                       ret_message, ret_fds, ret_n_fds);
}

int frame_receive_packet(int socket_fd, const ProtobufCMessageDescriptor *descriptor, struct frame_arena *arena,
                         ProtobufCMessage **ret_message, int *ret_fds, unsigned int *ret_n_fds) {
        uint8_t packet[FRAME_BYTES_MAX];
        union frame_control_packet control;

        return receive(packet, socket_fd, descriptor, arena, control.bytes, sizeof(control.bytes), FRAME_FDS_PACKET,
                       ret_message, ret_fds, ret_n_fds);
}

int frame_receive_by(void *packet, int socket_fd, const ProtobufCMessageDescriptor *descriptor,
                     struct frame_arena *arena, ProtobufCMessage **ret_message, int *ret_fds, unsigned int *ret_n_fds) {
        union frame_control control;
        int fds[FRAME_FDS_MAX];
        unsigned int n_fds;
        int r;

        r = receive(packet, socket_fd, descriptor, arena, control.bytes, sizeof(control.bytes), FRAME_FDS_MAX,
                    ret_message, fds, &n_fds);
        if (r) {
                frame_close_fds(fds, n_fds);
                return r;
        }
        memcpy(ret_fds, fds, n_fds * sizeof(int));
        *ret_n_fds = n_fds;
        return FRAME_OK;
}

int frame_receive(int socket_fd, const ProtobufCMessageDescriptor *descriptor, struct frame_arena *arena,
                  ProtobufCMessage **ret_message, int *ret_fds, unsigned int *ret_n_fds) {
        uint8_t packet[FRAME_BYTES_MAX];

        return frame_receive_by(packet, socket_fd, descriptor, arena, ret_message, ret_fds, ret_n_fds);
}

static int frame_address(const char *path, struct sockaddr_un *address) {
        size_t length = strlen(path);

        if (!length)
                return -EINVAL;
        if (length >= sizeof(address->sun_path))
                return -ENAMETOOLONG;
        *address = (struct sockaddr_un){.sun_family = AF_UNIX};
        memcpy(address->sun_path, path, length + 1);
        return 0;
}

int frame_connect(const char *path) {
        _cleanup_close_ int fd = -1;
        struct sockaddr_un address;
        int r;

        r = frame_address(path, &address);
        if (r < 0)
                return r;
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        r = fd;
        fd = -1;
        return r;
}

#define FRAME_LOCK_TRIES 16u

/* Nobody else looks whether PATH is stale, or has bound it and does not listen yet, until frame_unlock(). -EADDRINUSE:
 * somebody does. The file goes with the lock, so one that has been waited for may have no name any more. */
static int frame_lock(const char *lock) {
        _cleanup_close_ int fd = -1;
        struct stat st, named;
        int r;

        for (unsigned int i = 0; i < FRAME_LOCK_TRIES; i++) {
                fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
                if (fd < 0)
                        return -errno;
                if (flock(fd, LOCK_EX | LOCK_NB) < 0)
                        return errno == EWOULDBLOCK ? -EADDRINUSE : -errno;
                if (fstat(fd, &st) == 0 && lstat(lock, &named) == 0 && st.st_ino == named.st_ino &&
                    st.st_dev == named.st_dev) {
                        r = fd;
                        fd = -1;
                        return r;
                }
                close(fd);
                fd = -1;
        }
        return -EADDRINUSE;
}

static void frame_unlock(const char *lock, int fd) {
        unlink(lock);
        close(fd);
}

/* Removes the socket that a dead process left behind; one that still has a listener stays. */
static int frame_unlink_stale(const char *path) {
        struct stat st;
        int fd;

        if (lstat(path, &st) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (!S_ISSOCK(st.st_mode))
                return -EEXIST;
        fd = frame_connect(path);
        if (fd >= 0) {
                close(fd);
                return -EADDRINUSE;
        }
        if (fd != -ECONNREFUSED)
                return fd == -EAGAIN ? -EADDRINUSE : fd;
        return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

static int frame_listen_locked(const char *path, unsigned int mode, const struct sockaddr_un *address) {
        _cleanup_close_ int fd = -1;
        int r;

        r = frame_unlink_stale(path);
        if (r < 0)
                return r;
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        /* bind() takes the mode of the socket's own inode and removes the umask: it is never wider than wanted, not
         * even for a moment. chmod() puts back what the umask took away. */
        if (fchmod(fd, (mode_t)mode) < 0 || bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
                return -errno;
        if (chmod(path, (mode_t)mode) < 0 || listen(fd, SOMAXCONN) < 0) {
                r = -errno;
                unlink(path);
                return r;
        }
        r = fd;
        fd = -1;
        return r;
}

int frame_listen(const char *path, unsigned int mode) {
        char lock[sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof(FRAME_LOCK_SUFFIX)];
        struct sockaddr_un address;
        int fd, r;

        r = frame_address(path, &address);
        if (r < 0)
                return r;
        snprintf(lock, sizeof(lock), "%s" FRAME_LOCK_SUFFIX, path);
        fd = frame_lock(lock);
        if (fd < 0)
                return fd;
        r = frame_listen_locked(path, mode, &address);
        frame_unlock(lock, fd);
        return r;
}
