/* SPDX-License-Identifier: MIT */
/* What a client that holds the descriptors can and cannot do with them. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "util/memfd.h"

#define SIZE 8192u

/* As another user if we may change users, else as ourselves: then only the checks that hold for everybody are made. */
static void in_child(int (*body)(int fd, int is_other), int fd) {
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (!pid) {
                int is_other = 0;

                if (!geteuid()) {
                        if (setgroups(0, NULL) < 0 || setgid(65534) < 0 || setuid(65534) < 0)
                                _exit(100);
                        is_other = 1;
                }
                _exit(body(fd, is_other));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_seals(void **state) {
        struct stat st;
        int fd;

        (void)state;
        assert_int_equal(memfd_new("railmux-test", SIZE, &fd), 0);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_size, SIZE);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE),
                         F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        assert_int_equal(ftruncate(fd, SIZE / 2), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(ftruncate(fd, SIZE * 2), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(ftruncate(fd, SIZE), 0); /* the same size is no change */
        close(fd);
}

static void test_new_rejects_size(void **state) {
        int fd = -77;

        (void)state;
        assert_int_equal(memfd_new("railmux-test", 0, &fd), -EINVAL);
        assert_true(memfd_new("railmux-test", (size_t)-1, &fd) < 0);
        assert_int_equal(fd, -77);
}

static int readonly_body(int fd, int is_other) {
        char path[32];
        char byte = 1;
        void *p;

        if (mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED || errno != EACCES)
                return 1;
        p = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
                return 2;
        if (*(volatile const char *)p != 42)
                return 3;
        if (!mprotect(p, SIZE, PROT_READ | PROT_WRITE) || errno != EACCES)
                return 4;
        if (write(fd, &byte, 1) >= 0 || errno != EBADF)
                return 5;
        if (!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE) || errno != EBADF)
                return 6;
        if (is_other) {
                snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                if (open(path, O_RDWR | O_CLOEXEC) >= 0 || errno != EACCES)
                        return 7;
                if (open(path, O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
                        return 8;
                if (!fchmod(fd, 0666))
                        return 9;
        }
        return 0;
}

static void test_readonly(void **state) {
        void *address;
        int fd, readonly;

        (void)state;
        assert_int_equal(memfd_new("railmux-test", SIZE, &fd), 0);
        assert_int_equal(memfd_map(fd, SIZE, 1, 1, &address), 0);
        *(volatile char *)address = 42;
        assert_int_equal(memfd_reopen_readonly(fd, &readonly), 0);
        assert_true(fcntl(readonly, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(fcntl(readonly, F_GETFL) & O_ACCMODE, O_RDONLY);
        in_child(readonly_body, readonly);
        assert_int_equal(*(volatile char *)address, 42);
        memfd_unmap(address, SIZE);

        /* The daemon's own side, and a successor of it, still maps it writable. */
        address = NULL;
        assert_int_equal(memfd_map(fd, SIZE, 1, 1, &address), 0);
        memfd_unmap(address, SIZE);
        assert_int_equal(memfd_map(readonly, SIZE, 1, 1, &address), -EACCES);
        assert_int_equal(memfd_map(readonly, SIZE, 0, 1, &address), 0);
        memfd_unmap(address, SIZE);
        memfd_unmap(NULL, SIZE);
        close(readonly);
        close(fd);
}

static void test_reopen_failure(void **state) {
        int fd = -77;

        (void)state;
        assert_true(memfd_reopen_readonly(-1, &fd) < 0);
        assert_int_equal(fd, -77);
}

static void test_map_checks(void **state) {
        void *address = &address;
        int fd, unsealed;

        (void)state;
        assert_int_equal(memfd_new("railmux-test", SIZE, &fd), 0);
        assert_int_equal(memfd_map(fd, SIZE + 1, 1, 1, &address), -ERANGE);
        assert_int_equal(memfd_map(fd, 0, 1, 1, &address), -EINVAL);
        assert_int_equal(memfd_map(-1, SIZE, 1, 1, &address), -EBADF);
        close(fd);

        unsealed = memfd_create("railmux-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_true(unsealed >= 0);
        assert_int_equal(ftruncate(unsealed, SIZE), 0);
        assert_int_equal(memfd_map(unsealed, SIZE, 1, 1, &address), -EPERM);
        assert_int_equal(fcntl(unsealed, F_ADD_SEALS, F_SEAL_GROW), 0);
        assert_int_equal(memfd_map(unsealed, SIZE, 1, 1, &address), -EPERM);
        assert_ptr_equal(address, &address);
        assert_int_equal(memfd_map(unsealed, SIZE, 1, 0, &address), 0);
        memfd_unmap(address, SIZE);
        close(unsealed);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_seals),      cmocka_unit_test(test_new_rejects_size),
                cmocka_unit_test(test_readonly),   cmocka_unit_test(test_reopen_failure),
                cmocka_unit_test(test_map_checks),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
