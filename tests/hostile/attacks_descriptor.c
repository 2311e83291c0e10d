/* SPDX-License-Identifier: MIT */
/* Descriptors sent to railmuxd, which has no use for any: of every kind, too many, and in packets that it never reads.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "tests/hostile/attack.h"

#define KINDS     16u
#define LINGERING 13u
#define FDS_MAX   253u /* of one packet, says the kernel */

/* Its close() sleeps: it has unsent bytes, a peer that does not read, and SO_LINGER. */
static int lingering_socket(void) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        const struct linger linger = {1, 3600};
        socklen_t size = sizeof(address);
        static const char block[65536];
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (listener < 0 || fd < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 ||
            listen(listener, 1) < 0 || getsockname(listener, (struct sockaddr *)&address, &size) < 0 ||
            connect(fd, (struct sockaddr *)&address, size) < 0)
                return fd;
        fcntl(fd, F_SETFL, O_NONBLOCK);
        while (write(fd, block, sizeof(block)) > 0)
                ;
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
        return fd; /* the peer stays in the listener's queue as long as this process lives */
}

/* A socket in whose queue lies the other end of itself. */
static int cyclic_socket(void) {
        struct wire wire = {.fd = -1};
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -1;
        wire.fd = pair[0];
        wire_try_send(&wire, "x", 1, pair, 2);
        close(pair[0]);
        return pair[1];
}

static int make_fd(struct wire *wire, uint32_t kind) {
        int pair[2] = {-1, -1};
        sigset_t set;

        switch (kind % KINDS) {
        case 0: /* a pipe whose reads and writes block */
                return pipe2(pair, O_CLOEXEC) < 0 ? -1 : pair[0];
        case 1:
                return pipe2(pair, O_CLOEXEC) < 0 ? -1 : pair[1];
        case 2:
                return open("/", O_PATH | O_CLOEXEC);
        case 3:
                return epoll_create1(EPOLL_CLOEXEC);
        case 4:
                return eventfd(7, EFD_CLOEXEC);
        case 5:
                return fcntl(wire->fd, F_DUPFD_CLOEXEC, 0); /* its own connection */
        case 6:
                return memfd_create("hostile", MFD_CLOEXEC);
        case 7:
                return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
        case 8:
                sigemptyset(&set);
                return signalfd(-1, &set, SFD_CLOEXEC);
        case 9:
                return inotify_init1(IN_CLOEXEC);
        case 10:
                return (int)syscall(SYS_pidfd_open, getpid(), 0);
        case 11:
                return open("/", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
        case 12:
                return open("/dev/zero", O_RDWR | O_CLOEXEC);
        case LINGERING:
                return lingering_socket();
        case 14:
                return cyclic_socket();
        default:
                return open("/proc/self/mem", O_RDWR | O_CLOEXEC);
        }
}

/* Whoever closes last sleeps; a thread, in case it is we. The process's end wakes it. */
static void *close_one(void *argument) {
        close((int)(intptr_t)argument);
        return NULL;
}

static void let_go(int fd, uint32_t kind) {
        pthread_t thread;

        if (fd == STDERR_FILENO)
                return;
        if (kind % KINDS == LINGERING && pthread_create(&thread, NULL, close_one, (void *)(intptr_t)fd) == 0)
                pthread_detach(thread);
        else
                close(fd);
}

/* errno of the sender after making the descriptors, or 0. */
static int send_fds(struct wire *wire, const void *bytes, size_t n_bytes, uint32_t kind, uint32_t n) {
        int fds[FDS_MAX], r;

        for (uint32_t i = 0; i < n; i++) {
                fds[i] = i == 0 || kind % KINDS != LINGERING ? make_fd(wire, kind) : fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
                if (fds[i] < 0)
                        fds[i] = STDERR_FILENO;
        }
        r = wire_send(wire, bytes, n_bytes, fds, n);
        for (uint32_t i = n; i > 0; i--)
                let_go(fds[i - 1], kind);
        return r;
}

/* A descriptor on a call that would be right without it. */
static enum outcome send_and_see(struct attack *attack, uint32_t kind, uint32_t n) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire wire;
        size_t size;
        int r;

        if (!(attack_draw(attack, 2) ? wire_open(&wire, attack->socket) : wire_connect(&wire, attack->socket)))
                return attack_wrong(attack, "no session");
        size = wire.session ? wire_pack_id_create(bytes, wire.next_id)
                            : wire_pack_hello(bytes, wire.next_id, 1, 1, 0, "descriptors");
        r = send_fds(&wire, bytes, size, kind, n);
        if (r == EPERM) {
                wire_close(&wire);
                return OUTCOME_BARRED;
        }
        return attack_expect_end(attack, &wire);
}

static enum outcome run_odd(struct attack *attack) {
        return send_and_see(attack, attack->number, 1 + attack_draw(attack, FRAME_FDS_MAX));
}

/* More than the receiver has room for. */
static enum outcome run_truncated(struct attack *attack) {
        static const uint32_t numbers[] = {FRAME_FDS_MAX + 1, FRAME_FDS_MAX + 2, 32, 100, FDS_MAX};

        return send_and_see(attack, attack_draw(attack, KINDS), numbers[attack->number % 5]);
}

/* Packets one after the other, most of which railmuxd throws away unread. */
static enum outcome run_flood(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire wire;
        int r = 0;

        if (!wire_open(&wire, attack->socket))
                return attack_wrong(attack, "no session");
        for (uint32_t i = 0; i < 60 && r == 0; i++) {
                size_t n = wire_pack_id_create(bytes, wire.next_id++);

                r = send_fds(&wire, bytes, n, attack_draw(attack, 13), 1 + attack_draw(attack, 2 * FRAME_FDS_MAX));
        }
        if (r == EPERM) {
                wire_close(&wire);
                return OUTCOME_BARRED;
        }
        return attack_expect_end(attack, &wire);
}

/* A descriptor whose close() sleeps as long as this process lives must hold up nobody, in whatever packet it comes. */
static enum outcome run_blocking(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX] = {0xff, 0xff, 0xff};
        struct wire wire, other;
        bool served;
        size_t n = 3; /* malformed */
        int r;

        if (!wire_open(&wire, attack->socket))
                return attack_wrong(attack, "no session");
        for (uint32_t i = 0; i < 100; i++) { /* keeps railmuxd busy until we have closed ours */
                uint8_t call[WIRE_PACKED_MAX];

                wire_send(&wire, call, wire_pack_id_create(call, wire.next_id++), NULL, 0);
        }
        if (attack->number % 3)
                n = wire_pack_id_create(bytes, wire.next_id);
        r = send_fds(&wire, bytes, n, LINGERING, attack->number % 3 == 2 ? FRAME_FDS_MAX + 1 : 1);
        served = wire_open(&other, attack->socket) && wire_serves(&other);
        wire_close(&other);
        if (!served)
                return attack_wrong(attack, "railmuxd sleeps in close()");
        if (r == EPERM) {
                wire_close(&wire);
                return OUTCOME_BARRED;
        }
        return attack_expect_end(attack, &wire);
}

/* Its own descriptor table is full when answers with descriptors come: its own loss. */
static enum outcome run_full_table(struct attack *attack) {
        struct rlimit limit = {0, 0};
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire wire;

        if (!wire_open(&wire, attack->socket))
                return attack_wrong(attack, "no session");
        limit.rlim_cur = limit.rlim_max = (rlim_t)wire.fd + 2 + attack_draw(attack, 3);
        setrlimit(RLIMIT_NOFILE, &limit);
        for (uint32_t i = 0; i < 8; i++)
                wire_send(&wire, bytes, wire_pack_ring_open(bytes, wire.next_id++, i), NULL, 0);
        for (uint32_t i = 0; i < 8; i++) {
                struct wire_answer answer = wire_receive(&wire, ATTACK_SILENT_MS);

                if (answer.body == WIRE_SILENT)
                        return attack_wrong(attack, "no answer");
                if (answer.body == WIRE_ENDED) /* this side's frame_receive said MSG_CTRUNC */
                        break;
        }
        wire_close(&wire);
        return OUTCOME_LEFT;
}

const struct attack_kind attacks_descriptor[] = {
        {"descriptors of every kind", 48, run_odd},     {"too many descriptors", 20, run_truncated},
        {"floods of descriptors", 12, run_flood},       {"descriptors whose close blocks", 6, run_blocking},
        {"a full table of its own", 8, run_full_table}, {NULL, 0, NULL},
};
