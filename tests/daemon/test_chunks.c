/* SPDX-License-Identifier: MIT */
/* Of what a client sends beside its memory, what railmuxd passes on. A memfd counts as memory of a GPU here. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/chunks.h"
#include "tests/cmocka_all.h"
#include "util/bundle.h"

int __real_statx(int fd, const char *path, int flags, unsigned int mask, struct statx *ret);
int __wrap_statx(int fd, const char *path, int flags, unsigned int mask, struct statx *ret);
int __wrap_statx(int fd, const char *path, int flags, unsigned int mask, struct statx *ret) {
        int seals = fcntl(fd, F_GET_SEALS), r = __real_statx(fd, path, flags, mask, ret);

        assert_true(flags & AT_STATX_DONT_SYNC); /* nobody is asked */
        if (seals >= 0) {
                ret->stx_mode = S_IFCHR;
                ret->stx_rdev_major = 195;
        }
        return r;
}

/* Of what is not a device procfs is asked; here it says that everything else is a dma-buf, if told so. */
static bool fake_dmabuf;
ssize_t __real_read(int fd, void *to, size_t bytes);
ssize_t __wrap_read(int fd, void *to, size_t bytes);
ssize_t __wrap_read(int fd, void *to, size_t bytes) {
        static const char info[] = "pos:\t0\nflags:\t02000002\nsize:\t4096\ncount:\t2\nexp_name:\tamdgpu\n";

        if (!fake_dmabuf)
                return __real_read(fd, to, bytes);
        assert_true(bytes > sizeof(info));
        memcpy(to, info, sizeof(info) - 1);
        return sizeof(info) - 1;
}

ssize_t __real_readlink(const char *path, char *to, size_t bytes);
ssize_t __wrap_readlink(const char *path, char *to, size_t bytes);
ssize_t __wrap_readlink(const char *path, char *to, size_t bytes) {
        static const char name[] = "/dmabuf:";

        if (!fake_dmabuf)
                return __real_readlink(path, to, bytes);
        memcpy(to, name, sizeof(name) - 1);
        return sizeof(name) - 1;
}

#define MANY (BUNDLE_FDS_MAX + 1)

struct sent {
        int fd[MANY];
        uint64_t bytes[MANY];
        ino_t inode[MANY];
        uint32_t n;
};

/* Memfds of 1000, 2000, .. bytes. */
static void sent_open(struct sent *sent, uint32_t n) {
        sent->n = n;
        for (uint32_t i = 0; i < n; i++) {
                struct stat st;

                sent->fd[i] = memfd_create("chunk", MFD_CLOEXEC);
                sent->bytes[i] = 1000 * (i + 1);
                assert_true(sent->fd[i] >= 0);
                assert_int_equal(fstat(sent->fd[i], &st), 0);
                sent->inode[i] = st.st_ino;
        }
}

static void sent_close(struct sent *sent) {
        for (uint32_t i = 0; i < sent->n; i++)
                close(sent->fd[i]);
}

/* The same file, of which one may not do anything. */
static int open_path(int fd) {
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return open(path, O_PATH | O_CLOEXEC);
}

static int lowest_free(void) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        close(fd);
        return fd;
}

static void test_packed(void **state) {
        struct bundle bundle;
        struct sent sent;
        int before, own = -1;
        char text[160];

        (void)state;
        before = lowest_free();
        sent_open(&sent, 4);
        assert_int_equal(chunks_pack(sent.fd, 4, sent.bytes, 4, 10000, &own, text, sizeof(text)), 0);
        sent_close(&sent);
        assert_int_equal(chunks_count(own), 4);
        assert_int_equal(bundle_peek(own, &bundle), 0);
        assert_int_equal(bundle.n, 4);
        for (uint32_t i = 0; i < 4; i++) {
                struct stat st;

                assert_int_equal(fstat(bundle.fd[i], &st), 0);
                assert_int_equal(st.st_ino, sent.inode[i]);
                assert_int_equal(bundle.bytes[i], 1000 * (i + 1));
        }
        bundle_close(&bundle);
        close(own);
        assert_int_equal(lowest_free(), before);
}

static void refuse_as(const struct sent *sent, uint32_t n, size_t n_sizes, uint64_t bytes, int r, const char *says) {
        int own = -7;
        char text[160] = "";

        assert_int_equal(chunks_pack(sent->fd, n, sent->bytes, n_sizes, bytes, &own, text, sizeof(text)), r);
        assert_non_null(strstr(text, says));
        assert_int_equal(own, -7);
}

static void refuse(const struct sent *sent, uint32_t n, size_t n_sizes, uint64_t bytes, const char *says) {
        refuse_as(sent, n, n_sizes, bytes, CHUNKS_E_INVALID, says);
}

static void test_refused(void **state) {
        struct sent sent;
        int junk[7], before = lowest_free();

        (void)state;
        sent_open(&sent, MANY);
        refuse(&sent, 3, 3, 6001, "3 chunks of 6000 bytes in all, not 6001");
        refuse(&sent, 0, 0, 0, "0 descriptors");
        refuse(&sent, 3, 2, 6000, "3 descriptors of memory with 2 sizes");
        refuse(&sent, MANY, MANY, UINT64_C(500) * MANY * (MANY + 1), "129 descriptors");
        sent.bytes[1] = 0;
        refuse(&sent, 3, 3, 4000, "chunk 1 of 3 has no bytes");
        sent.bytes[0] = sent.bytes[1] = UINT64_MAX / 2 + 1;
        refuse(&sent, 2, 2, 1, "2 chunks of 0 bytes in all");
        sent.bytes[0] = 1000;
        sent.bytes[1] = 2000;

        assert_int_equal(pipe2(junk, O_CLOEXEC), 0);
        junk[2] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        junk[3] = open("/dev/null", O_RDWR | O_CLOEXEC);
        junk[4] = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        junk[5] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        junk[6] = open_path(sent.fd[0]); /* of a good one */
        for (uint32_t i = 0; i < 7; i++) {
                int good = sent.fd[2];

                assert_true(junk[i] >= 0);
                assert_false(chunks_is_memory(junk[i]));
                sent.fd[2] = junk[i];
                refuse_as(&sent, 3, 3, 6000, CHUNKS_E_STRANGE, "descriptor 2 of 3 is not one of memory");
                sent.fd[2] = good;
                close(junk[i]);
        }
        assert_false(chunks_is_memory(-1));
        assert_int_equal(chunks_count(-1), 0);
        sent_close(&sent);
        assert_int_equal(lowest_free(), before);
}

static void test_dmabuf(void **state) {
        int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

        (void)state;
        assert_false(chunks_is_memory(fd));
        fake_dmabuf = true;
        assert_int_equal(chunks_is_memory(fd), access("/dev/nvidiactl", F_OK) < 0);
        fake_dmabuf = false;
        close(fd);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_packed),
                cmocka_unit_test(test_refused),
                cmocka_unit_test(test_dmabuf),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
