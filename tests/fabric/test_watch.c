/* SPDX-License-Identifier: MIT */
/* What the loop of a rail watches the socket of a handshake for: else it turns at full rate while the other end is
 * silent. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/private.h"
#include "fabric/transport.h"
#include "tests/cmocka_all.h"

struct world {
        struct fabric fabric;
        struct fabric_rail rail;
        struct fabric_conn *conn;
        int other_fd;
};

static int world_new(void **state) {
        struct world *w = calloc(1, sizeof(*w));
        int fds[2];

        assert_non_null(w);
        pthread_mutex_init(&w->fabric.lock, NULL);
        w->rail.fabric = &w->fabric;
        w->rail.transport = &transport_tcp;
        w->rail.listen_fd = w->rail.wake_fd = -1;
        w->rail.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        assert_true(w->rail.epoll_fd >= 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        w->other_fd = fds[1];
        pthread_mutex_lock(&w->fabric.lock);
        assert_int_equal(conn_new(&w->rail, fds[0], true, 1, &w->conn), 0);
        w->rail.n_strangers++;
        *state = w;
        return 0;
}

static int world_free(void **state) {
        struct world *w = *state;

        conn_bury(w->conn, 2);
        pthread_mutex_unlock(&w->fabric.lock);
        close(w->other_fd);
        close(w->rail.epoll_fd);
        pthread_mutex_destroy(&w->fabric.lock);
        free(w);
        return 0;
}

/* As rail.c does after an event. */
static void world_shake(struct world *w) {
        w->conn->ready_out = true;
        conn_shake(w->conn, 1);
        assert_false(w->conn->doomed);
}

/* It was blocked, and is not any more: for nothing but what the other end will say. */
static void test_nothing_left(void **state) {
        struct world *w = *state;

        conn_watch(w->conn, EPOLLIN | EPOLLOUT);
        w->conn->out_end = 100;
        world_shake(w);
        assert_int_equal(w->conn->out_end, 0);
        assert_int_equal(w->conn->epoll_events, EPOLLIN);
}

/* Still blocked. */
static void test_something_left(void **state) {
        static const char bytes[4096];
        struct world *w = *state;

        while (send(w->conn->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
        }
        w->conn->out_end = 100;
        world_shake(w);
        assert_int_equal(w->conn->epoll_events, EPOLLIN | EPOLLOUT);
        world_shake(w);
        assert_int_equal(w->conn->epoll_events, EPOLLIN | EPOLLOUT);
        while (recv(w->other_fd, (char[4096]){0}, 4096, MSG_DONTWAIT) > 0) {
        }
        world_shake(w);
        assert_int_equal(w->conn->epoll_events, EPOLLIN);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_nothing_left, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_something_left, world_new, world_free),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
