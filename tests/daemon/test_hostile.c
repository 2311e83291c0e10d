/* SPDX-License-Identifier: MIT */
/* Clients that break the rules: each ends its own session, and nothing else. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "railmux/railmux.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

static struct fixture f;
static struct client *witness; /* a well-behaved client, there all the time */

static int setup(void **unused) {
        (void)unused;
        fixture_setup(&f, NULL, false);
        witness = client_open(&f);
        f.idle_fds = fixture_daemon_fds(&f);
        return 0;
}

static int teardown(void **unused) {
        uint32_t handle;

        (void)unused;
        make_comm(&witness, 1, &handle);
        assert_false(witness->eof);
        client_close(witness);
        fixture_teardown(&f);
        return 0;
}

/* errno of the sender, 0 if it went out. */
static int raw_send(struct client *client, const void *data, size_t size, const int *fds, unsigned int n_fds) {
        char control[CMSG_SPACE(sizeof(int) * 32)] = {0};
        struct iovec iov = {.iov_base = (void *)data, .iov_len = size};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t r;

        if (n_fds) {
                struct cmsghdr *c;

                message.msg_control = control;
                message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
                c = CMSG_FIRSTHDR(&message);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
                memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
        }
        fixture_wait(&f, (r = sendmsg(client->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)) >= 0 || errno != EAGAIN);
        return r < 0 ? errno : 0;
}

static size_t pack(uint8_t *out, Railmux__Session__Message *message) {
        return railmux__session__message__pack(message, out);
}

static size_t pack_ring_open(uint8_t *out, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__RingOpen body = RAILMUX__SESSION__RING_OPEN__INIT;

        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_RING_OPEN;
        message.ring_open = &body;
        return pack(out, &message);
}

static void expect_end(struct client *client) {
        client_wait_eof(client);
        client_close(client);
        fixture_wait_idle(&f);
        assert_false(witness->eof);
}

static void test_garbage(void **unused) {
        static uint8_t large[200000];
        struct client *client;

        (void)unused;
        client = client_connect(&f);
        raw_send(client, "\xff\xff\xff\xff\xff\xff", 6, NULL, 0);
        expect_end(client);
        client = client_open(&f);
        raw_send(client, "\xff\xff\xff\xff\xff\xff", 6, NULL, 0);
        expect_end(client);
        client = client_open(&f);
        raw_send(client, large, FRAME_BYTES_MAX + 1, NULL, 0);
        expect_end(client);
        client = client_open(&f);
        raw_send(client, "", 0, NULL, 0);
        expect_end(client);
}

/* Clients have no descriptors to send: Linux 6.16 and later refuses them at the sender, with others the session ends.
 */
static void send_refused_fds(const void *bytes, size_t n, const int *fds, unsigned int n_fds) {
        struct client *client = client_open(&f);

        if (raw_send(client, bytes, n, fds, n_fds) == EPERM)
                client_close(client);
        else
                expect_end(client);
}

static void test_fds(void **unused) {
        uint8_t bytes[64];
        int fds[32];
        size_t n = pack_ring_open(bytes, 5);

        (void)unused;
        for (unsigned int i = 0; i < 32; i++)
                fds[i] = eventfd(0, EFD_CLOEXEC);
        send_refused_fds(bytes, n, fds, 1);
        send_refused_fds(bytes, n, fds, FRAME_FDS_MAX);
        send_refused_fds(bytes, n, fds, FRAME_FDS_MAX + 1);
        send_refused_fds(bytes, n, fds, 32);
        for (unsigned int i = 0; i < 32; i++)
                close(fds[i]);
}

static void test_out_of_order(void **unused) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__Hello hello = RAILMUX__SESSION__HELLO__INIT;
        Railmux__Session__Ack ack = RAILMUX__SESSION__ACK__INIT;
        struct client *client;
        uint8_t bytes[64];

        (void)unused;
        client = client_connect(&f); /* no HELLO */
        raw_send(client, bytes, pack_ring_open(bytes, 1), NULL, 0);
        expect_end(client);
        client = client_open(&f); /* no id */
        raw_send(client, bytes, pack_ring_open(bytes, 0), NULL, 0);
        expect_end(client);
        client = client_connect(&f); /* an empty range */
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_HELLO;
        message.hello = &hello;
        hello.version_min = 3;
        hello.version_max = 2;
        message.id = 0;
        client_send(client, &message);
        expect_end(client);
        client = client_open(&f); /* the daemon's part */
        message.id = 9;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_ACK;
        message.ack = &ack;
        client_send(client, &message);
        expect_end(client);
        client = client_open(&f); /* no body */
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY__NOT_SET;
        client_send(client, &message);
        expect_end(client);
}

/* It asks and asks and never reads: dropped at the bound of the queue, while everybody else is served. */
static void test_slow_reader(void **unused) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__IdCreate body = RAILMUX__SESSION__ID_CREATE__INIT;
        struct client *client = client_open(&f);
        unsigned int sent = 0;
        int r = FRAME_OK;

        (void)unused;
        client->deaf = true;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_ID_CREATE;
        message.id_create = &body;
        while (r != FRAME_E_EOF) {
                message.id = ++client->next_id;
                fixture_wait(&f, (r = frame_send(client->fd, &message.base, NULL, 0)) != FRAME_E_AGAIN);
                assert_true(++sent < 100000);
        }
        client->deaf = false;
        expect_end(client);
}

static void test_too_many_calls(void **unused) {
        struct client *client = client_open(&f);
        uint8_t id[COMM_ID_BYTES];

        (void)unused;
        call_id_create(client, id);
        for (unsigned int i = 0; i < 1100; i++)
                (void)send_comm_create(client, id, 2, 0); /* the other rank never comes */
        expect_end(client);
}

static void test_dies_with_everything(void **unused) {
        struct client *client;
        uint8_t id[COMM_ID_BYTES];
        uint32_t handle;

        (void)unused;
        for (unsigned int i = 0; i < 20; i++) {
                client = client_open(&f);
                make_comm(&client, 1, &handle);
                call_id_create(client, id);
                (void)send_comm_create(client, id, 2, 1);
                (void)send_comm_split(client, handle, 1, 0, 0);
                (void)send_ring_open(client, i % 8);
                (void)send_buffer_create(client, 1, 1 << 16);
                (void)send_buffer_destroy(client, 1);
                (void)send_comm_destroy(client, handle, 0);
                client_close(client); /* at whatever step it is */
        }
        fixture_wait_idle(&f);
        fixture_wait(&f, f.executor.n_sessions == 1 && f.executor.n_comms == 0);
}

/* Valid messages with random bytes changed: each is answered, refused or ends its session. */
static void test_mutants(void **unused) {
        unsigned int seed = (unsigned int)getpid();
        struct client *client = NULL;
        uint8_t id[COMM_ID_BYTES], bytes[512];

        (void)unused;
        print_message("seed %u\n", seed);
        call_id_create(witness, id);
        for (unsigned int i = 0; i < 3000; i++) {
                Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
                Railmux__Session__CommCreate create = RAILMUX__SESSION__COMM_CREATE__INIT;
                Railmux__Session__BufferCreate buffer = RAILMUX__SESSION__BUFFER_CREATE__INIT;
                Railmux__Session__CommSplit split = RAILMUX__SESSION__COMM_SPLIT__INIT;
                size_t n;

                if (!client || client->eof || i % 50 == 0) {
                        if (client)
                                client_close(client);
                        client = client_open(&f);
                }
                message.id = i + 1;
                switch (i % 3) {
                case 0:
                        create.comm_id.data = id;
                        create.comm_id.len = sizeof(id);
                        create.n_ranks = 1 + i % 3;
                        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_CREATE;
                        message.comm_create = &create;
                        break;
                case 1:
                        buffer.buffer = i % 7;
                        buffer.bytes = 1 + i % 9999;
                        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE;
                        message.buffer_create = &buffer;
                        break;
                default:
                        split.parent = i % 4;
                        split.number = 1;
                        split.name = (char *)"mutant";
                        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_SPLIT;
                        message.comm_split = &split;
                        break;
                }
                n = pack(bytes, &message);
                for (unsigned int k = 0; k < i % 4; k++)
                        bytes[(unsigned int)rand_r(&seed) % n] = (uint8_t)rand_r(&seed);
                raw_send(client, bytes, n, NULL, 0);
                if (i % 16 == 0)
                        fixture_turn(&f);
        }
        client_close(client);
        fixture_wait_idle(&f);
}

/* Connections without HELLO end after a while; until then they hold no more than themselves. */
static void test_silent_connections(void **unused) {
        struct client *clients[10];

        (void)unused;
        for (unsigned int i = 0; i < 10; i++)
                clients[i] = client_connect(&f);
        for (unsigned int i = 0; i < 10; i++)
                client_wait_eof(clients[i]);
        for (unsigned int i = 0; i < 10; i++)
                client_close(clients[i]);
        fixture_wait_idle(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_garbage),        cmocka_unit_test(test_fds),
                cmocka_unit_test(test_out_of_order),   cmocka_unit_test(test_slow_reader),
                cmocka_unit_test(test_too_many_calls), cmocka_unit_test(test_dies_with_everything),
                cmocka_unit_test(test_mutants),        cmocka_unit_test(test_silent_connections),
        };

        return cmocka_run_group_tests(tests, setup, teardown);
}
