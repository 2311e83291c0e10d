/* SPDX-License-Identifier: MIT */
/* What is said to a service manager that does not read: this test, which binds the socket. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_all.h"

#include "daemon/notify.h"
#include "tests/scratch.h"

#define LINES_MAX 4096u

struct fixture {
        char dir[32], path[64];
        int socket_fd;
        struct event_base *base;
        struct notify *notify;
        char *lines[LINES_MAX]; /* what was read, and the number of the file that came with it */
        ino_t files[LINES_MAX];
        uint32_t n_lines;
};

static void bind_socket(struct fixture *f) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        f->socket_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_true(f->socket_fd >= 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", f->path);
        unlink(f->path);
        assert_int_equal(bind(f->socket_fd, (struct sockaddr *)&address, sizeof(address)), 0);
}

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        snprintf(f->dir, sizeof(f->dir), "%s", "/tmp/railmux-notify-XXXXXX");
        assert_non_null(mkdtemp(f->dir));
        snprintf(f->path, sizeof(f->path), "%s/notify", f->dir);
        bind_socket(f);
        setenv("NOTIFY_SOCKET", f->path, 1);
        f->base = event_base_new();
        assert_non_null(f->base);
        assert_int_equal(notify_new(f->base, &f->notify), 0);
        *state = f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        close(f->socket_fd); /* what is left waits for nobody */
        notify_free(f->notify);
        event_base_free(f->base);
        for (uint32_t i = 0; i < f->n_lines; i++)
                free(f->lines[i]);
        assert_int_equal(scratch_remove(f->dir), 0);
        free(f);
        return 0;
}

/* One message, with the lines joined; a barrier is answered. False: there is none. */
static bool read_one(struct fixture *f) {
        char text[1024], control[CMSG_SPACE(sizeof(int))];
        struct iovec iov = {.iov_base = text, .iov_len = sizeof(text) - 1};
        struct msghdr message = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(f->socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        struct cmsghdr *header = n < 0 ? NULL : CMSG_FIRSTHDR(&message);

        if (n < 0) {
                assert_int_equal(errno, EAGAIN);
                return false;
        }
        assert_true(f->n_lines < LINES_MAX);
        text[n] = '\0';
        f->files[f->n_lines] = 0;
        if (header) {
                struct stat status;
                int fd;

                memcpy(&fd, CMSG_DATA(header), sizeof(fd));
                assert_int_equal(fstat(fd, &status), 0);
                f->files[f->n_lines] = status.st_ino;
                close(fd);
        }
        f->lines[f->n_lines] = strdup(text);
        assert_non_null(f->lines[f->n_lines]);
        f->n_lines++;
        return true;
}

/* As the loop of railmuxd does, until that many have come. */
static void read_until(struct fixture *f, uint32_t n) {
        struct pollfd readable = {.fd = f->socket_fd, .events = POLLIN};

        while (f->n_lines < n) {
                (void)event_base_loop(f->base, EVLOOP_NONBLOCK);
                assert_int_equal(poll(&readable, 1, 10000), 1);
                while (read_one(f)) {
                }
        }
}

/* Until it takes no more. Returns how many it took. */
static uint32_t fill(const struct fixture *f) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        uint32_t n = 0;

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", f->path);
        for (;;) {
                int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                bool sent = sendto(fd, "FILL=1", 6, 0, (struct sockaddr *)&address, sizeof(address)) == 6;

                assert_true(sent || errno == EAGAIN);
                close(fd);
                if (!sent)
                        return n;
                n++;
        }
}

static void expect(const struct fixture *f, uint32_t i, const char *text, ino_t file) {
        assert_true(i < f->n_lines);
        assert_string_equal(f->lines[i], text);
        assert_int_equal(f->files[i], file);
}

static int new_file(ino_t *ret_number) {
        struct stat status;
        int fd = memfd_create("kept", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &status), 0);
        *ret_number = status.st_ino;
        return fd;
}

/* Nothing waits. What was said comes in order when there is room, with its files, though they were closed here. */
static void test_full(void **state) {
        struct fixture *f = *state;
        ino_t one, two;
        int fd;
        uint32_t n;

        n = fill(f);
        fd = new_file(&one);
        assert_int_equal(notify_put(f->notify, "one", fd), 0);
        close(fd);
        assert_int_equal(notify_say(f->notify, "READY=%d", 1), 0);
        assert_int_equal(notify_remove(f->notify, "old"), 0);
        fd = new_file(&two);
        assert_int_equal(notify_put(f->notify, "two", fd), 0);
        close(fd);
        assert_int_equal(notify_barrier(f->notify, 1000), -ETIMEDOUT);
        assert_true(read_one(f)); /* room for one, which is not for the newest */
        assert_int_equal(notify_say(f->notify, "newest"), 0);
        read_until(f, n + 5);
        expect(f, n, "FDSTORE=1\nFDNAME=one\nFDPOLL=0", one);
        expect(f, n + 1, "READY=1", 0);
        expect(f, n + 2, "FDSTOREREMOVE=1\nFDNAME=old", 0);
        expect(f, n + 3, "FDSTORE=1\nFDNAME=two\nFDPOLL=0", two);
        expect(f, n + 4, "newest", 0);
        assert_int_equal(notify_say(f->notify, "at once"), 0);
        read_until(f, n + 6);
        expect(f, n + 5, "at once", 0);
}

/* What was put and removed again need not be said, and signs of life take each other's place. But a file that is there
 * already under that name has to go. */
static void test_what_is_left_out(void **state) {
        struct fixture *f = *state;
        ino_t file;
        int fd = new_file(&file);
        uint32_t n = fill(f);

        for (uint32_t i = 0; i < 100000; i++) { /* without an end it would be full, of memory or of descriptors */
                assert_int_equal(notify_put(f->notify, "short", fd), 0);
                assert_int_equal(notify_beat(f->notify, "beat %u", i), 0);
                assert_int_equal(notify_remove(f->notify, "short"), 0);
        }
        assert_int_equal(notify_remove(f->notify, "name"), 0);
        assert_int_equal(notify_put(f->notify, "name", fd), 0);
        assert_int_equal(notify_remove(f->notify, "name"), 0);
        assert_int_equal(notify_put(f->notify, "name", fd), 0);
        read_until(f, n + 3);
        expect(f, n, "beat 99999", 0);
        expect(f, n + 1, "FDSTOREREMOVE=1\nFDNAME=name", 0);
        expect(f, n + 2, "FDSTORE=1\nFDNAME=name\nFDPOLL=0", file);
        close(fd);
}

/* It does not grow without end. */
static void test_limit(void **state) {
        struct fixture *f = *state;
        uint32_t n = fill(f), queued = 0;

        while (notify_say(f->notify, "line %u", queued) == 0)
                assert_true(++queued < 100000);
        assert_int_equal(notify_say(f->notify, "one more"), -ENOBUFS);
        while (f->n_lines < n + 100) {
                (void)event_base_loop(f->base, EVLOOP_NONBLOCK);
                (void)read_one(f);
        }
        expect(f, n + 99, "line 99", 0);
        assert_int_equal(notify_say(f->notify, "one more"), 0);
}

/* The end of this waits for what was said before, but not for ever. */
static void test_barrier(void **state) {
        struct fixture *f = *state;
        uint32_t n = fill(f);
        pid_t reader;
        int status;

        for (uint32_t i = 0; i < 100; i++)
                assert_int_equal(notify_say(f->notify, "line %u", i), 0);
        assert_int_equal(notify_barrier(f->notify, 1000), -ETIMEDOUT);
        fflush(NULL);
        reader = fork();
        assert_true(reader >= 0);
        if (reader == 0) {
                struct pollfd readable = {.fd = f->socket_fd, .events = POLLIN};

                while (f->n_lines == 0 || strcmp(f->lines[f->n_lines - 1], "BARRIER=1") != 0)
                        if (poll(&readable, 1, 10000) != 1 || !read_one(f))
                                _exit(2);
                _exit(f->n_lines != n + 101 || strcmp(f->lines[n + 99], "line 99") != 0 || f->files[n + 100] == 0);
        }
        assert_int_equal(notify_barrier(f->notify, UINT64_C(10000000)), 0);
        assert_int_equal(waitpid(reader, &status, 0), reader);
        assert_int_equal(status, 0);
        while (fill(f) > 0) { /* it takes the barrier, and nobody reads it */
        }
        read_one(f);
        assert_int_equal(notify_barrier(f->notify, 1000), -ETIMEDOUT);
}

/* A manager that listens anew, in the same place. */
static void test_listens_anew(void **state) {
        struct fixture *f = *state;

        assert_int_equal(notify_say(f->notify, "one"), 0);
        read_until(f, 1);
        close(f->socket_fd);
        assert_int_equal(notify_say(f->notify, "two"), -ECONNREFUSED);
        bind_socket(f);
        assert_int_equal(notify_say(f->notify, "three"), 0);
        read_until(f, 2);
        expect(f, 1, "three", 0);
        close(f->socket_fd);
        bind_socket(f);
        assert_int_equal(notify_say(f->notify, "four"), 0);
        read_until(f, 3);
        expect(f, 2, "four", 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_full, setup, teardown),
                cmocka_unit_test_setup_teardown(test_what_is_left_out, setup, teardown),
                cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
                cmocka_unit_test_setup_teardown(test_barrier, setup, teardown),
                cmocka_unit_test_setup_teardown(test_listens_anew, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
