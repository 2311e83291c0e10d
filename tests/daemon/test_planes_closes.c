/* SPDX-License-Identifier: MIT */
/* Descriptors that clients send and that take long to close: lingering TCP sockets whose peers do not read. They count
 * for whoever sent them, and nobody else waits behind them. (Clients of executors of GPUs may send some, whatever the
 * kernel.) */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"
#include "tests/daemon/lingering.h"

#include "railmux/railmux.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define GPUS  1u
#define MANY  50u /* more than the limit */
#define LIMIT 40

static struct fixture f;
static struct client *witness;
static int peers[MANY];

static int setup(void **unused) {
        (void)unused;
        fixture_planes_config = "limits: {fds: 40}\n";
        fixture_setup_planes(&f, GPUS, true);
        witness = client_open(&f);
        f.idle_fds = fixture_daemon_fds(&f);
        return 0;
}

static int teardown(void **unused) {
        (void)unused;
        assert_int_equal(take_ack(witness, send_buffer_destroy(witness, 9), NULL, 0), 0);
        fixture_teardown(&f);
        fixture_planes_config = NULL;
        return 0;
}

/* Its event loop, says the kernel. */
static bool is_stopped(void) {
        char path[64], line[128];
        bool stopped = false;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/status", (int)f.daemon);
        file = fopen(path, "re");
        assert_non_null(file);
        while (!stopped && fgets(line, sizeof(line), file))
                stopped = strncmp(line, "State:\tT", 8) == 0;
        fclose(file);
        return stopped;
}

static void stop(void) {
        siginfo_t info;

        fixture_signal(&f, SIGSTOP);
        assert_int_equal(waitid(P_PID, (id_t)f.daemon, &info, WSTOPPED), 0);
        fixture_wait(&f, is_stopped());
}

/* A packet with n of them, which ends a session that reads it. The daemon stands still: the last close is to be its. */
static void send_lingering(struct client *client, unsigned int n) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__BufferDestroy body = RAILMUX__SESSION__BUFFER_DESTROY__INIT;
        int fds[MANY];

        for (unsigned int i = 0; i < n; i++)
                fds[i] = lingering_socket(60, &peers[i]);
        body.buffer = 1;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_DESTROY;
        message.buffer_destroy = &body;
        message.id = ++client->next_id;
        assert_int_equal(frame_send(client->fd, &message.base, fds, n), FRAME_OK);
        for (unsigned int i = 0; i < n; i++)
                close(fds[i]);
}

static void let_go(unsigned int n) {
        for (unsigned int i = 0; i < n; i++)
                close(peers[i]);
        fixture_wait(&f, fixture_metric(&f, "railmux_closes_waiting") <= 1); /* who asks may be one of them */
        fixture_wait_idle(&f);
}

static void test_sent(void **unused) {
        struct client *client = client_open(&f), *other = client_open(&f);
        unsigned int fds;

        (void)unused;
        fds = fixture_daemon_fds(&f);
        stop();
        send_lingering(client, MANY);
        fixture_signal(&f, SIGCONT);
        client_wait_eof(client);
        client_close(client);
        /* Two of the session are closed, those that it sent are not, but for those that threads hang with. */
        fixture_wait(&f, fixture_metric(&f, "railmux_closes_waiting") >= MANY);
        fixture_wait(&f, fixture_daemon_fds(&f) >= fds + MANY - 10);
        fixture_assert_says(&f, "status", NULL, "take long to close");
        /* Others' sockets do not wait behind them, ... */
        fds = fixture_daemon_fds(&f);
        client_close(other);
        fixture_wait(&f, fixture_daemon_fds(&f) <= fds - 2);
        /* ... and their tenant gets no more before they are closed. */
        client = client_connect(&f);
        client_wait_eof(client);
        client_close(client);
        fixture_assert_says(&f, "status", NULL, "was refused fds");
        let_go(MANY);
        client_close(client_open(&f));
        fixture_wait_idle(&f);
}

/* In a packet that is never read they go with the socket: with the service manager's copy of it, if that goes last. So
 * it has none here. */
static void test_unread(void **unused) {
        struct client *client = client_open(&f);
        char name[32];
        int nothing;

        (void)unused;
        snprintf(name, sizeof(name), "s%llu", (unsigned long long)client->session);
        fixture_wait(&f, fixture_stored(&f, name) >= 0);
        nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(nothing >= 0);
        assert_int_equal(dup3(nothing, f.store[fixture_stored(&f, name)].fd, O_CLOEXEC),
                         f.store[fixture_stored(&f, name)].fd);
        close(nothing);
        stop();
        assert_int_equal(write(client->fd, "garbage", 7), 7);
        for (unsigned int i = 0; i < 20; i++)
                assert_int_equal(write(client->fd, "", i % 2), i % 2); /* before them, some without */
        send_lingering(client, 3);
        fixture_signal(&f, SIGCONT);
        client_wait_eof(client);
        client_close(client);
        fixture_wait(&f, fixture_metric(&f, "railmux_closes_waiting") == 1);
        client_close(client_open(&f));
        let_go(3);
}

/* Packets that carry nothing go before. */
static void test_unread_plain(void **unused) {
        struct client *client = client_open(&f), *other = client_open(&f);

        (void)unused;
        stop();
        send_lingering(client, MANY);
        for (unsigned int i = 0; i < 20; i++)
                assert_int_equal(write(other->fd, "garbage", i % 7), i % 7);
        fixture_signal(&f, SIGCONT);
        client_wait_eof(client);
        client_wait_eof(other);
        client_close(client);
        fixture_wait(&f, fixture_metric(&f, "railmux_closes_waiting") >= MANY);
        fixture_wait(&f, fixture_daemon_fds(&f) <= f.idle_fds + MANY + 1); /* railmuxctl's may be open yet */
        client_close(other);
        let_go(MANY);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_sent), cmocka_unit_test(test_unread),
                                           cmocka_unit_test(test_unread_plain)};

        return cmocka_run_group_tests(tests, setup, teardown);
}
