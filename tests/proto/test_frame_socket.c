/* SPDX-License-Identifier: MIT */
/* Framing over real sockets: descriptors, bounds, ends, and listening. No descriptor may be lost on any path. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/frame.h"
#include "proto/session.pb-c.h"
#include "tests/cmocka_all.h"

struct fixture {
        int pair[2];
        struct frame_arena arena;
        unsigned int n_open; /* before each test */
};

static unsigned int count_open(void) {
        DIR *directory = opendir("/proc/self/fd");
        unsigned int n = 0;

        assert_non_null(directory);
        while (readdir(directory))
                ++n;
        closedir(directory);
        return n;
}

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, f->pair), 0);
        frame_arena_init(&f->arena, FRAME_UNPACK_BYTES_MAX);
        f->n_open = count_open();
        *state = f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        frame_close_fds(f->pair, 2);
        free(f);
        return 0;
}

static int receive(struct fixture *f, Railmux__Session__Message **ret_message, int *fds, unsigned int *n_fds) {
        ProtobufCMessage *message = NULL;
        int r = frame_receive(f->pair[1], &railmux__session__message__descriptor, &f->arena, &message, fds, n_fds);

        *ret_message = (Railmux__Session__Message *)message;
        return r;
}

static void release(struct fixture *f, Railmux__Session__Message *message) {
        protobuf_c_message_free_unpacked(&message->base, &f->arena.allocator);
}

static int send_ack(struct fixture *f, uint64_t id, const int *fds, unsigned int n_fds) {
        Railmux__Session__Ack ack = RAILMUX__SESSION__ACK__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;

        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_ACK;
        message.ack = &ack;
        return frame_send(f->pair[0], &message.base, fds, n_fds);
}

/* What frame_send would never do. */
static void send_raw(int fd, const void *data, size_t size, const int *fds, unsigned int n_fds) {
        union {
                char bytes[CMSG_SPACE(sizeof(int) * FRAME_FDS_PACKET)];
                struct cmsghdr align;
        } control;
        struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
        struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

        if (n_fds) {
                struct cmsghdr *cmsg;

                memset(&control, 0, sizeof(control));
                header.msg_control = control.bytes;
                header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
                cmsg = CMSG_FIRSTHDR(&header);
                cmsg->cmsg_level = SOL_SOCKET;
                cmsg->cmsg_type = SCM_RIGHTS;
                cmsg->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
                memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * n_fds);
        }
        assert_int_equal(sendmsg(fd, &header, MSG_NOSIGNAL), (ssize_t)size);
}

static void open_many(int *fds, unsigned int n) {
        for (unsigned int i = 0; i < n; ++i) {
                fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
                assert_true(fds[i] >= 0);
        }
}

static void test_message_and_fds(void **state) {
        struct fixture *f = *state;

        for (unsigned int n = 0; n <= FRAME_FDS_MAX; ++n) {
                int sent[FRAME_FDS_MAX], got[FRAME_FDS_MAX];
                Railmux__Session__Message *message;
                unsigned int n_got = 99;
                struct stat a, b;

                open_many(sent, n);
                assert_int_equal(send_ack(f, n + 1, sent, n), FRAME_OK);
                assert_int_equal(receive(f, &message, got, &n_got), FRAME_OK);
                assert_int_equal(n_got, n);
                assert_int_equal(message->id, n + 1);
                assert_int_equal(message->body_case, RAILMUX__SESSION__MESSAGE__BODY_ACK);
                for (unsigned int i = 0; i < n; ++i) {
                        assert_true(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
                        assert_int_equal(fstat(sent[i], &a), 0);
                        assert_int_equal(fstat(got[i], &b), 0);
                        assert_int_equal(a.st_ino, b.st_ino);
                }
                release(f, message);
                frame_close_fds(sent, n);
                frame_close_fds(got, n_got);
        }
        assert_int_equal(count_open(), f->n_open);
}

static void test_order_is_kept(void **state) {
        struct fixture *f = *state;
        Railmux__Session__Message *message;
        int fds[FRAME_FDS_MAX];
        unsigned int n_fds;

        for (uint64_t id = 1; id <= 10; ++id)
                assert_int_equal(send_ack(f, id, NULL, 0), FRAME_OK);
        for (uint64_t id = 1; id <= 10; ++id) {
                assert_int_equal(receive(f, &message, fds, &n_fds), FRAME_OK);
                assert_int_equal(message->id, id);
                release(f, message);
        }
        assert_int_equal(receive(f, &message, fds, &n_fds), FRAME_E_AGAIN);
}

/* The kernel installs what fits and sets MSG_CTRUNC. */
static void test_too_many_fds(void **state) {
        static const uint8_t ack[] = {1 << 3, 1, 5 << 3 | 2, 0};
        struct fixture *f = *state;

        for (unsigned int n = FRAME_FDS_MAX + 1; n <= 64; n += 5) {
                Railmux__Session__Message *message = NULL;
                int sent[64], got[FRAME_FDS_MAX];
                unsigned int n_got = 99;

                open_many(sent, n);
                send_raw(f->pair[0], ack, sizeof(ack), sent, n);
                frame_close_fds(sent, n);
                assert_int_equal(receive(f, &message, got, &n_got), FRAME_E_TRUNCATED);
                assert_null(message);
                assert_int_equal(n_got, 99);
                assert_int_equal(count_open(), f->n_open);
        }
        assert_int_equal(frame_send(f->pair[0], NULL, f->pair, FRAME_FDS_MANY + 1), -EINVAL);
}

/* With room for all that a packet may have, none is lost, and none is closed before the caller has said so. */
static void test_whole_packet(void **state) {
        static const uint8_t ack[] = {1 << 3, 1, 5 << 3 | 2, 0};
        static const unsigned int counts[] = {0, 1, FRAME_FDS_MAX + 1, FRAME_FDS_MANY, 200, FRAME_FDS_PACKET};
        struct fixture *f = *state;

        for (unsigned int k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
                int sent[FRAME_FDS_PACKET], got[FRAME_FDS_PACKET];
                ProtobufCMessage *message;
                unsigned int n_got = 99;
                struct stat a, b;

                open_many(sent, counts[k]);
                if (counts[k] <= FRAME_FDS_MANY)
                        assert_int_equal(send_ack(f, 7, sent, counts[k]), FRAME_OK);
                else
                        send_raw(f->pair[0], ack, sizeof(ack), sent, counts[k]);
                frame_arena_init(&f->arena, FRAME_UNPACK_BYTES_MAX);
                assert_int_equal(frame_receive_packet(f->pair[1], &railmux__session__message__descriptor, &f->arena,
                                                      &message, got, &n_got),
                                 FRAME_OK);
                assert_int_equal(n_got, counts[k]);
                for (unsigned int i = 0; i < n_got; i++) {
                        assert_true(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
                        assert_int_equal(fstat(sent[i], &a), 0);
                        assert_int_equal(fstat(got[i], &b), 0);
                        assert_int_equal(a.st_ino, b.st_ino);
                }
                protobuf_c_message_free_unpacked(message, &f->arena.allocator);
                frame_close_fds(sent, counts[k]);
                frame_close_fds(got, n_got);
                assert_int_equal(count_open(), f->n_open);
        }
}

/* A full descriptor table also yields MSG_CTRUNC, with the data and with those descriptors that had room. */
static void test_descriptor_table_full(void **state) {
        struct fixture *f = *state;
        Railmux__Session__Message *message = NULL;
        struct rlimit saved, tight;
        int sent[4], got[FRAME_FDS_MAX], highest;
        unsigned int n_got = 99;

        open_many(sent, 4);
        assert_int_equal(send_ack(f, 1, sent, 4), FRAME_OK);
        frame_close_fds(sent, 4);
        highest = fcntl(f->pair[0], F_DUPFD_CLOEXEC, 0);
        assert_true(highest >= 0);
        close(highest);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &saved), 0);
        tight = saved;
        tight.rlim_cur = (rlim_t)highest + 2; /* room for two of four */
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        assert_int_equal(receive(f, &message, got, &n_got), FRAME_E_TRUNCATED);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
        assert_int_equal(count_open(), f->n_open);
}

static void test_too_long(void **state) {
        static uint8_t data[FRAME_BYTES_MAX + 1];
        struct fixture *f = *state;
        Railmux__Session__Message *message = NULL;
        int sent[2], got[FRAME_FDS_MAX];
        unsigned int n_got = 99;

        open_many(sent, 2);
        send_raw(f->pair[0], data, sizeof(data), sent, 2);
        frame_close_fds(sent, 2);
        assert_int_equal(receive(f, &message, got, &n_got), FRAME_E_TRUNCATED);
        assert_int_equal(count_open(), f->n_open);
        /* The next message is whole: packets do not run into each other. */
        assert_int_equal(send_ack(f, 4, NULL, 0), FRAME_OK);
        assert_int_equal(receive(f, &message, got, &n_got), FRAME_OK);
        assert_int_equal(message->id, 4);
        release(f, message);
}

static void test_malformed(void **state) {
        static const uint8_t bad[] = {0xff, 0xff, 0xff, 0xff};
        struct fixture *f = *state;
        Railmux__Session__Message *message = NULL;
        int sent[3], got[FRAME_FDS_MAX];
        unsigned int n_got = 99;

        open_many(sent, 3);
        send_raw(f->pair[0], bad, sizeof(bad), sent, 3);
        frame_close_fds(sent, 3);
        assert_int_equal(receive(f, &message, got, &n_got), FRAME_E_MALFORMED);
        assert_null(message);
        assert_int_equal(count_open(), f->n_open);
}

/* Looks like the end of the stream, but may carry descriptors. */
static void test_empty_packet(void **state) {
        struct fixture *f = *state;
        Railmux__Session__Message *message = NULL;
        Railmux__Session__Message empty = RAILMUX__SESSION__MESSAGE__INIT;
        int sent[3], got[FRAME_FDS_MAX];
        unsigned int n_got = 99;

        open_many(sent, 3);
        send_raw(f->pair[0], "", 0, sent, 3);
        frame_close_fds(sent, 3);
        assert_int_equal(receive(f, &message, got, &n_got), FRAME_E_EOF);
        assert_int_equal(count_open(), f->n_open);
        assert_int_equal(frame_send(f->pair[0], &empty.base, NULL, 0), -EINVAL);
}

static void test_nothing_there_and_end(void **state) {
        struct fixture *f = *state;
        Railmux__Session__Message *message;
        int got[FRAME_FDS_MAX];
        unsigned int n_got;

        assert_int_equal(receive(f, &message, got, &n_got), FRAME_E_AGAIN);
        assert_int_equal(send_ack(f, 9, NULL, 0), FRAME_OK);
        close(f->pair[0]);
        f->pair[0] = -1;
        /* What was sent before the end still arrives. */
        assert_int_equal(receive(f, &message, got, &n_got), FRAME_OK);
        assert_int_equal(message->id, 9);
        release(f, message);
        assert_int_equal(receive(f, &message, got, &n_got), FRAME_E_EOF);
        assert_int_equal(receive(f, &message, got, &n_got), FRAME_E_EOF);
}

static void test_send_to_the_dead(void **state) {
        struct fixture *f = *state;

        close(f->pair[1]);
        f->pair[1] = -1;
        assert_int_equal(send_ack(f, 1, NULL, 0), FRAME_E_EOF); /* and no SIGPIPE */
}

static void test_send_until_full(void **state) {
        struct fixture *f = *state;
        Railmux__Session__Message *message;
        unsigned int n_sent = 0, n_received = 0, n_got;
        int got[FRAME_FDS_MAX], r;

        while (!(r = send_ack(f, n_sent + 1, NULL, 0)))
                ++n_sent;
        assert_int_equal(r, FRAME_E_AGAIN);
        assert_true(n_sent > 1);
        while (!(r = receive(f, &message, got, &n_got))) {
                assert_int_equal(message->id, ++n_received);
                release(f, message);
        }
        assert_int_equal(r, FRAME_E_AGAIN);
        assert_int_equal(n_received, n_sent);
        assert_int_equal(send_ack(f, 1, NULL, 0), FRAME_OK);
}

static void test_send_too_large(void **state) {
        struct fixture *f = *state;
        Railmux__Session__Hello hello = RAILMUX__SESSION__HELLO__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__Message *received;
        int got[FRAME_FDS_MAX];
        unsigned int n_got;
        size_t overhead;
        char *name;

        name = malloc(FRAME_BYTES_MAX + 1);
        assert_non_null(name);
        memset(name, 'n', FRAME_BYTES_MAX);
        name[FRAME_BYTES_MAX] = 0;
        hello.name = name;
        message.id = 1;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_HELLO;
        message.hello = &hello;
        assert_int_equal(frame_send(f->pair[0], &message.base, NULL, 0), FRAME_E_TOO_LARGE);
        assert_int_equal(receive(f, &received, got, &n_got), FRAME_E_AGAIN);
        /* Exactly at the bound it passes, on both sides. */
        overhead = protobuf_c_message_get_packed_size(&message.base) - FRAME_BYTES_MAX;
        name[FRAME_BYTES_MAX - overhead] = 0;
        assert_int_equal(protobuf_c_message_get_packed_size(&message.base), FRAME_BYTES_MAX);
        assert_int_equal(frame_send(f->pair[0], &message.base, NULL, 0), FRAME_OK);
        assert_int_equal(receive(f, &received, got, &n_got), FRAME_OK);
        assert_string_equal(received->hello->name, name);
        release(f, received);
        free(name);
}

static void test_listen_and_connect(void **state) {
        char directory[] = "/tmp/railmux-frame-XXXXXX";
        char path[64], long_path[256];
        int listener, second, client, server;
        mode_t saved;
        struct stat st;
        FILE *file;

        (void)state;
        assert_non_null(mkdtemp(directory));
        snprintf(path, sizeof(path), "%s/socket", directory);
        assert_int_equal(frame_connect(path), -ENOENT);

        saved = umask(0077);
        listener = frame_listen(path, 0660);
        umask(saved);
        assert_true(listener >= 0);
        assert_int_equal(stat(path, &st), 0);
        assert_true(S_ISSOCK(st.st_mode));
        assert_int_equal(st.st_mode & 0777, 0660);
        assert_true(fcntl(listener, F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(listener, F_GETFL) & O_NONBLOCK);

        client = frame_connect(path);
        assert_true(client >= 0);
        assert_true(fcntl(client, F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(client, F_GETFL) & O_NONBLOCK);
        server = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        assert_true(server >= 0);
        close(client);
        close(server);

        /* A live listener is not pushed aside; a dead one's socket is replaced. */
        assert_int_equal(frame_listen(path, 0600), -EADDRINUSE);
        assert_int_equal(stat(path, &st), 0);
        close(listener);
        assert_int_equal(frame_connect(path), -ECONNREFUSED);
        saved = umask(0);
        second = frame_listen(path, 0600);
        umask(saved);
        assert_true(second >= 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        close(second);
        unlink(path);

        /* What is not a socket is not ours to remove. */
        file = fopen(path, "we");
        assert_non_null(file);
        fclose(file);
        assert_int_equal(frame_listen(path, 0600), -EEXIST);
        assert_int_equal(unlink(path), 0);

        memset(long_path, 'a', sizeof(long_path));
        long_path[sizeof(long_path) - 1] = 0;
        assert_int_equal(frame_listen(long_path, 0600), -ENAMETOOLONG);
        assert_int_equal(frame_connect(long_path), -ENAMETOOLONG);
        assert_int_equal(frame_connect(""), -EINVAL);
        assert_int_equal(rmdir(directory), 0);
}

#define RACERS 4u
#define RACES  100u

/* Of several that find one stale socket exactly one serves it afterwards, and nobody takes that one away. */
static void test_listen_race(void **state) {
        char directory[] = "/tmp/railmux-frame-XXXXXX", path[64], lock[80];

        (void)state;
        assert_non_null(mkdtemp(directory));
        snprintf(path, sizeof(path), "%s/socket", directory);
        snprintf(lock, sizeof(lock), "%s" FRAME_LOCK_SUFFIX, path);
        for (unsigned int round = 0; round < RACES; round++) {
                int go[2], said[2], end[2], fd, n_serve = 0;
                char word;

                fd = frame_listen(path, 0600);
                assert_true(fd >= 0);
                close(fd); /* and is stale */
                assert_int_equal(pipe2(go, O_CLOEXEC) | pipe2(said, O_CLOEXEC) | pipe2(end, O_CLOEXEC), 0);
                for (unsigned int i = 0; i < RACERS; i++) {
                        pid_t pid = fork();

                        assert_true(pid >= 0);
                        if (pid)
                                continue;
                        close(go[1]);
                        close(end[1]);
                        if (read(go[0], &word, 1) != 0)
                                _exit(1);
                        fd = frame_listen(path, 0600);
                        word = fd >= 0 ? 's' : fd == -EADDRINUSE ? 'n' : '?';
                        _exit(write(said[1], &word, 1) != 1 || read(end[0], &word, 1) != 0);
                }
                close(go[0]);
                close(go[1]); /* now */
                for (unsigned int i = 0; i < RACERS; i++) {
                        assert_int_equal(read(said[0], &word, 1), 1);
                        assert_int_not_equal(word, '?');
                        n_serve += word == 's';
                }
                assert_int_equal(n_serve, 1);
                fd = frame_connect(path);
                assert_true(fd >= 0);
                close(fd);
                assert_int_equal(access(lock, F_OK), -1);
                close(end[0]);
                close(end[1]);
                close(said[0]);
                close(said[1]);
                for (unsigned int i = 0; i < RACERS; i++) {
                        int status;

                        assert_true(wait(&status) > 0);
                        assert_int_equal(status, 0);
                }
        }
        unlink(path);
        assert_int_equal(rmdir(directory), 0);
}

/* One that is about to listen is not disturbed. */
static void test_listen_locked(void **state) {
        char directory[] = "/tmp/railmux-frame-XXXXXX", path[64], lock[80];
        struct stat st;
        int fd, holder;

        (void)state;
        assert_non_null(mkdtemp(directory));
        snprintf(path, sizeof(path), "%s/socket", directory);
        snprintf(lock, sizeof(lock), "%s" FRAME_LOCK_SUFFIX, path);
        fd = frame_listen(path, 0600);
        assert_true(fd >= 0);
        close(fd);
        holder = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_true(holder >= 0);
        assert_int_equal(flock(holder, LOCK_EX), 0);
        assert_int_equal(frame_listen(path, 0600), -EADDRINUSE);
        assert_int_equal(stat(path, &st), 0);
        close(holder); /* as one that dies: its file stays and means nothing */
        fd = frame_listen(path, 0600);
        assert_true(fd >= 0);
        assert_int_equal(access(lock, F_OK), -1);
        close(fd);
        assert_int_equal(symlink("/tmp/railmux-frame-nothing", lock), 0);
        assert_int_equal(frame_listen(path, 0600), -ELOOP);
        unlink(lock);
        unlink(path);
        assert_int_equal(rmdir(directory), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                TEST(test_message_and_fds),    TEST(test_order_is_kept),         TEST(test_too_many_fds),
                TEST(test_whole_packet),       TEST(test_descriptor_table_full), TEST(test_too_long),
                TEST(test_malformed),          TEST(test_empty_packet),          TEST(test_nothing_there_and_end),
                TEST(test_send_to_the_dead),   TEST(test_send_until_full),       TEST(test_send_too_large),
                TEST(test_listen_and_connect), TEST(test_listen_race),           TEST(test_listen_locked),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
