/* SPDX-License-Identifier: MIT */
/* Descriptors packed into one: how often they can be looked at, when they are closed, and what is no bundle. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "util/bundle.h"

/* Pipes, by whose other end one hears when the last copy of the first is closed. */
struct pipes {
        struct bundle bundle; /* the ends that write */
        int read[BUNDLE_FDS_MAX];
};

static void pipes_open(struct pipes *pipes, uint32_t n) {
        *pipes = (struct pipes){.bundle.n = n};
        for (uint32_t i = 0; i < n; i++) {
                int ends[2];

                assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
                pipes->read[i] = ends[0];
                pipes->bundle.fd[i] = ends[1];
                pipes->bundle.bytes[i] = 1000 + i;
        }
}

static bool pipes_open_still(const struct pipes *pipes, uint32_t i) {
        struct pollfd p = {.fd = pipes->read[i], .events = POLLIN};

        return poll(&p, 1, 0) == 0;
}

static void pipes_close(struct pipes *pipes, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                close(pipes->read[i]);
}

static void check_same(const struct pipes *pipes, struct bundle *got, uint32_t n) {
        assert_int_equal(got->n, n);
        for (uint32_t i = 0; i < n; i++) {
                struct stat a, b;

                assert_int_equal(fstat(pipes->read[i], &a), 0);
                assert_int_equal(fstat(got->fd[i], &b), 0);
                assert_int_equal(a.st_ino, b.st_ino); /* in this order */
                assert_int_equal(got->bytes[i], 1000 + i);
                assert_true(fcntl(got->fd[i], F_GETFD) & FD_CLOEXEC);
        }
}

static void looked_at_often(void **state) {
        static const uint32_t counts[] = {1, 2, 7, BUNDLE_FDS_MAX};
        struct bundle got;
        struct pipes pipes;
        int fd, copy;

        (void)state;
        for (uint32_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
                pipes_open(&pipes, counts[k]);
                assert_int_equal(bundle_pack(&pipes.bundle, &fd), 0);
                assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
                bundle_close(&pipes.bundle);
                assert_int_equal(pipes.bundle.n, 0);
                for (uint32_t i = 0; i < 3; i++) {
                        assert_int_equal(bundle_peek(fd, &got), 0);
                        check_same(&pipes, &got, counts[k]);
                        assert_int_equal(bundle_bytes(&got), counts[k] * 1000 + counts[k] * (counts[k] - 1) / 2);
                        bundle_close(&got);
                }
                copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
                close(fd); /* another copy keeps all of them */
                for (uint32_t i = 0; i < counts[k]; i++)
                        assert_true(pipes_open_still(&pipes, i));
                assert_int_equal(bundle_peek(copy, &got), 0);
                check_same(&pipes, &got, counts[k]);
                bundle_close(&got);
                close(copy);
                for (uint32_t i = 0; i < counts[k]; i++)
                        assert_false(pipes_open_still(&pipes, i));
                pipes_close(&pipes, counts[k]);
        }
}

/* What keeps bundles must not take them for closed. */
static void nothing_happens(void **state) {
        struct pollfd p = {.events = POLLRDHUP | POLLPRI};
        struct pipes pipes;

        (void)state;
        pipes_open(&pipes, 2);
        assert_int_equal(bundle_pack(&pipes.bundle, &p.fd), 0);
        assert_int_equal(poll(&p, 1, 0), 0);
        bundle_close(&pipes.bundle);
        close(p.fd);
        pipes_close(&pipes, 2);
}

static void refused(void **state) {
        struct bundle bundle = {.n = 0};
        int fd = -1;

        (void)state;
        assert_int_equal(bundle_pack(&bundle, &fd), -EINVAL);
        bundle.n = BUNDLE_FDS_MAX + 1;
        assert_int_equal(bundle_pack(&bundle, &fd), -EINVAL);
        bundle.n = 1;
        assert_int_equal(bundle_pack(&bundle, &fd), -EINVAL); /* no bytes */
        bundle.bytes[0] = 1;
        bundle.fd[0] = -1;
        assert_int_equal(bundle_pack(&bundle, &fd), -EBADF);
        assert_int_equal(fd, -1);
        bundle.n = 2;
        bundle.bytes[0] = bundle.bytes[1] = UINT64_MAX / 2 + 1;
        assert_int_equal(bundle_bytes(&bundle), 0);
}

/* Sends `n` copies of this descriptor beside some bytes; the end that receives. */
static int forge(const void *bytes, size_t size, uint32_t n, int fd) {
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int) * 253)];
        } control = {0};
        struct iovec io = {.iov_base = (void *)bytes, .iov_len = size};
        struct msghdr header = {.msg_iov = &io, .msg_iovlen = 1};
        int ends[2];

        if (n) {
                struct cmsghdr *rights;

                header.msg_control = &control;
                header.msg_controllen = CMSG_SPACE(sizeof(int) * n);
                rights = CMSG_FIRSTHDR(&header);
                rights->cmsg_level = SOL_SOCKET;
                rights->cmsg_type = SCM_RIGHTS;
                rights->cmsg_len = CMSG_LEN(sizeof(int) * n);
                for (uint32_t i = 0; i < n; i++)
                        memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(int));
        }
        assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
        assert_int_equal(sendmsg(ends[0], &header, 0), (ssize_t)size);
        close(ends[0]);
        return ends[1];
}

/* Nothing stays open of what is refused. */
static void forged(void **state) {
        struct {
                uint32_t magic, n;
                uint64_t bytes[260];
        } message = {.magic = 0x6c646e62, .n = 2};
        struct {
                size_t size;
                uint32_t n, n_fds, magic;
                uint64_t second;
                int r;
        } cases[] = {
                {24, 2, 2, 0x6c646e62, 7, 0},
                {24, 2, 2, 0x6c646e63, 7, -EINVAL},
                {24, 2, 2, 0x6c646e62, 0, -EINVAL},
                {24, 3, 2, 0x6c646e62, 7, -EINVAL},
                {24, 2, 1, 0x6c646e62, 7, -EINVAL},
                {24, 2, 0, 0x6c646e62, 7, -EINVAL},
                {23, 2, 2, 0x6c646e62, 7, -EINVAL},
                {25, 2, 2, 0x6c646e62, 7, -EINVAL},
                {8, 0, 0, 0x6c646e62, 7, -EINVAL},
                {4, 1, 1, 0x6c646e62, 7, -EINVAL},
                {0, 1, 1, 0x6c646e62, 7, -EINVAL},
                {2000, 249, 249, 0x6c646e62, 7, -EINVAL},
                {1040, 129, 129, 0x6c646e62, 7, -EINVAL},
        };
        struct bundle got;

        (void)state;
        for (uint32_t i = 0; i < 260; i++)
                message.bytes[i] = 7;
        for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                int fd, ends[2];
                char byte;

                assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
                message.magic = cases[i].magic;
                message.n = cases[i].n;
                message.bytes[1] = cases[i].second;
                fd = forge(&message, cases[i].size, cases[i].n_fds, ends[1]);
                close(ends[1]);
                assert_int_equal(bundle_peek(fd, &got), cases[i].r);
                assert_int_equal(got.n, cases[i].r ? 0 : 2);
                bundle_close(&got);
                close(fd);
                assert_int_equal(read(ends[0], &byte, 1), 0); /* all copies are closed */
                close(ends[0]);
        }
        assert_int_equal(bundle_peek(STDERR_FILENO, &got), -EINVAL);
        assert_int_equal(bundle_peek(-1, &got), -EINVAL);
}

static void too_few_places(void **state) {
        struct rlimit limit, low;
        struct bundle got;
        struct pipes pipes;
        int fd, spare;

        (void)state;
        pipes_open(&pipes, 8);
        assert_int_equal(bundle_pack(&pipes.bundle, &fd), 0);
        bundle_close(&pipes.bundle);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        spare = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        close(spare);
        low = limit;
        low.rlim_cur = (rlim_t)spare + 3;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        assert_int_equal(bundle_peek(fd, &got), -EMFILE);
        assert_int_equal(got.n, 0);
        assert_int_equal(fcntl(fd, F_DUPFD_CLOEXEC, 0), spare); /* those that had been opened are closed */
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        close(spare);
        assert_int_equal(bundle_peek(fd, &got), 0); /* and nothing is lost */
        check_same(&pipes, &got, 8);
        bundle_close(&got);
        close(fd);
        pipes_close(&pipes, 8);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(looked_at_often), cmocka_unit_test(nothing_happens), cmocka_unit_test(refused),
                cmocka_unit_test(forged),          cmocka_unit_test(too_few_places),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
