/* SPDX-License-Identifier: MIT */
/* SIGKILL of railmuxd and its successor; the test plays the service manager. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"
#include "tests/daemon/fixture_parts.h"

#include "daemon/state.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESUMED RAILMUX__SESSION__EVENT__BODY_RESUMED
#define FAILED  RAILMUX__SESSION__EVENT__BODY_COMM_FAILED

static void succeed(struct fixture *f, bool executor_too) {
        fixture_kill(f);
        if (executor_too)
                executor_disconnect(f);
        else
                fixture_wait(f, f->executor.fd < 0); /* it sees that its daemon has gone */
        fixture_start(f);
        executor_connect(f, executor_too);
        fixture_wait(f, f->executor.welcome);
}

static void expect_resumed(struct client *client) {
        client_drop(client, client_event(client, RESUMED));
}

static ino_t inode(int fd) {
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        return st.st_ino;
}

static void write_gpus(const struct fixture *f, const char *text) {
        char path[128];
        FILE *file;

        snprintf(path, sizeof(path), "%s/gpus", f->directory);
        file = fopen(path, "we");
        assert_non_null(file);
        fputs(text, file);
        assert_int_equal(fclose(file), 0);
}

/* Sessions of emulated GPUs have nothing of others, so nobody looks for those while there are any. */
static void test_sessions_keep_their_gpus(void **unused) {
        struct client *client;
        struct fixture f;

        (void)unused;
        fixture_prepare(&f, NULL, true);
        f.gpu_option = "auto";
        write_gpus(&f, "0\n");
        fixture_start(&f);
        executor_connect(&f, true);
        fixture_wait(&f, f.executor.welcome);
        fixture_assert_says(&f, "status", NULL, "GPUs are emulated: there is no GPU");
        client = client_open(&f);
        write_gpus(&f, "2\n");
        succeed(&f, false);
        expect_resumed(client);
        fixture_assert_says(&f, "status", NULL, "GPUs are emulated: the first start found none");
        fixture_teardown(&f);
}

/* Everything that was answered is there again, with the executor alive or dead as well. */
static void test_successor_has_everything(void **unused) {
        (void)unused;
        for (unsigned int round = 0; round < 2; round++) {
                struct fixture f;
                struct client *clients[4];
                struct comm_answer child[4];
                struct inbox_message *answer;
                uint8_t id[COMM_ID_BYTES];
                uint32_t handles[4];
                uint64_t number, calls[4];
                ino_t ring, buffer;

                fixture_setup(&f, NULL, true);
                for (uint32_t r = 0; r < 4; r++)
                        clients[r] = client_open(&f);
                answer = client_answer(clients[0], send_ring_open(clients[0], 1));
                ring = inode(answer->fds[0]);
                client_drop(clients[0], answer);
                answer = client_answer(clients[0], send_buffer_create(clients[0], 3, 10000));
                buffer = inode(answer->fds[0]);
                client_drop(clients[0], answer);
                call_id_create(clients[0], id);
                for (uint32_t r = 0; r < 4; r++)
                        calls[r] = send_comm_create(clients[r], id, 4, r);
                for (uint32_t r = 0; r < 4; r++) {
                        struct comm_answer made = take_comm(clients[r], calls[r]);

                        handles[r] = made.handle;
                        number = made.comm;
                }
                for (uint32_t r = 0; r < 4; r++)
                        calls[r] = send_comm_split(clients[r], handles[r], 1, r == 3 ? -1 : 0, 0);
                for (uint32_t r = 0; r < 4; r++)
                        child[r] = take_comm(clients[r], calls[r]);
                assert_true(fixture_stored(&f, "state") >= 0);
                assert_true(fixture_stored(&f, "client") >= 0);

                succeed(&f, round == 1);
                for (uint32_t r = 0; r < 4; r++)
                        expect_resumed(clients[r]);
                fixture_wait(&f, f.executor.n_comms == 2 && f.executor.n_rings == 1 && f.executor.n_buffers == 1);
                assert_int_equal(f.executor.n_sessions, 4);
                /* repeated calls get the same answers */
                answer = client_answer(clients[0], send_ring_open(clients[0], 1));
                assert_int_equal(inode(answer->fds[0]), ring);
                client_drop(clients[0], answer);
                answer = client_answer(clients[0], send_buffer_create(clients[0], 3, 10000));
                assert_int_equal(inode(answer->fds[0]), buffer);
                client_drop(clients[0], answer);
                for (uint32_t r = 0; r < 4; r++) {
                        struct comm_answer again = take_comm(clients[r], send_comm_create(clients[r], id, 4, r));

                        assert_int_equal(again.handle, handles[r]);
                        assert_int_equal(again.comm, number);
                        again = take_comm(clients[r], send_comm_split(clients[r], handles[r], 1, r == 3 ? -1 : 0, 0));
                        assert_int_equal(again.code, 0);
                        assert_int_equal(again.handle, child[r].handle);
                }
                /* and new things work, under new numbers */
                assert_int_not_equal(make_comm(clients, 4, handles), number);
                clients[0]->deaf = false;
                /* a rank's death is seen by the successor */
                client_close(clients[1]);
                client_drop(clients[0], client_event(clients[0], FAILED));
                for (uint32_t r = 0; r < 4; r++) {
                        if (r != 1)
                                client_close(clients[r]);
                }
                fixture_wait(&f, f.executor.n_comms == 0 && f.executor.n_sessions == 0);
                fixture_wait_idle(&f);
                fixture_wait(&f, f.n_store == 4); /* state and three listening sockets */
                fixture_teardown(&f);
        }
}

/* Calls under way when the daemon dies are sent again by the client, and answered by the successor. */
static void test_calls_under_way(void **unused) {
        struct fixture f;
        struct client *clients[3];
        struct inbox_message *answer;
        uint8_t id[COMM_ID_BYTES];
        uint32_t handles[3];
        uint64_t calls[3], ring, destroy, buffer;

        (void)unused;
        fixture_setup(&f, NULL, true);
        for (uint32_t r = 0; r < 3; r++)
                clients[r] = client_open(&f);
        make_comm(clients, 3, handles);
        client_drop(clients[0], client_answer(clients[0], send_buffer_create(clients[0], 1, 4096)));
        f.executor.hold = true; /* nothing is acknowledged any more */
        ring = send_ring_open(clients[0], 0);
        fixture_wait(&f, f.executor.n_held == 1); /* behind a comm that is not attached yet it would not be sent */
        call_id_create(clients[0], id);
        for (uint32_t r = 0; r < 3; r++)
                calls[r] = send_comm_create(clients[r], id, 3, r);
        destroy = send_buffer_destroy(clients[0], 1);
        buffer = send_buffer_create(clients[1], 9, 4096);
        fixture_wait(&f, f.executor.n_held == 4);
        assert_null(client_find(clients[0], ring));
        f.executor.hold = false;
        succeed(&f, false);
        for (uint32_t r = 0; r < 3; r++) {
                Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;

                (void)message;
                expect_resumed(clients[r]);
        }
        for (uint32_t r = 0; r < 3; r++)
                calls[r] = send_comm_create(clients[r], id, 3, r);
        ring = send_ring_open(clients[0], 0);
        destroy = send_buffer_destroy(clients[0], 1);
        buffer = send_buffer_create(clients[1], 9, 4096);
        for (uint32_t r = 0; r < 3; r++)
                assert_int_equal(take_comm(clients[r], calls[r]).code, 0);
        answer = client_answer(clients[0], ring);
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY);
        client_drop(clients[0], answer);
        assert_int_equal(take_ack(clients[0], destroy, NULL, 0), 0);
        answer = client_answer(clients[1], buffer);
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY);
        client_drop(clients[1], answer);
        fixture_wait(&f, f.executor.n_comms == 2); /* the unanswered one of the predecessor is detached */
        for (uint32_t r = 0; r < 3; r++)
                client_close(clients[r]);
        fixture_wait_idle(&f);
        fixture_wait(&f, f.n_store == 4);
        fixture_teardown(&f);
}

/* A client dies while there is no daemon: the others of its comm are told by the successor. */
/* What was destroyed and is still used stays charged: the successor hears of it from the executor, and the call that
 * the client repeats waits as the first one did. */
static void test_buffer_in_use(void **unused) {
        struct fixture f;
        struct client *client;
        uint64_t destroy;

        (void)unused;
        fixture_setup(&f, "limits: {buffers: 1}\n", true);
        client = client_open(&f);
        expect_reply(client, send_buffer_create(client, 1, 4096));
        f.executor.in_use = true;
        destroy = send_buffer_destroy(client, 1);
        expect_reply(client, send_ring_open(client, 0));
        assert_int_equal(f.executor.n_retired, 1);
        assert_null(client_find(client, destroy));

        succeed(&f, false);
        expect_resumed(client);
        destroy = send_buffer_destroy(client, 1);
        expect_reply(client, send_ring_open(client, 1));
        assert_null(client_find(client, destroy));
        assert_int_equal(f.executor.n_buffers, 0); /* it was not imported again */
        assert_int_equal(f.executor.n_retired, 1);
        assert_int_equal(take_ack(client, send_buffer_create(client, 1, 4096), NULL, 0), RMX_E_BUSY);
        assert_int_equal(take_ack(client, send_buffer_create(client, 2, 4096), NULL, 0), RMX_E_LIMIT);
        executor_send_released(&f, client->session, 1);
        assert_int_equal(take_ack(client, destroy, NULL, 0), 0);
        expect_reply(client, send_buffer_create(client, 1, 4096));
        client_close(client);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

static void test_client_death_between(void **unused) {
        (void)unused;
        for (unsigned int round = 0; round < 2; round++) {
                struct fixture f;
                struct client *clients[3];
                struct inbox_message *event;
                uint32_t handles[3];
                uint64_t number;

                fixture_setup(&f, NULL, true);
                for (uint32_t r = 0; r < 3; r++)
                        clients[r] = client_open(&f);
                number = make_comm(clients, 3, handles);
                client_drop(clients[2], client_answer(clients[2], send_ring_open(clients[2], 0)));
                /* rank 0 has left properly */
                assert_int_equal(take_ack(clients[0], send_comm_destroy(clients[0], handles[0], 1), NULL, 0), 0);
                fixture_kill(&f);
                client_close(clients[2]);
                fixture_start(&f);
                executor_connect(&f, round == 1);
                expect_resumed(clients[0]);
                expect_resumed(clients[1]);
                event = client_event(clients[1], FAILED);
                assert_int_equal(event->message->event->comm_failed->handle, handles[1]);
                assert_int_equal(event->message->event->comm_failed->code, RMX_E_PEER_LOST);
                assert_int_equal(event->message->event->comm_failed->rank, 2);
                client_drop(clients[1], event);
                fixture_wait(&f, f.executor.n_sessions == 2 && f.executor.n_rings == 0);
                fixture_wait(&f, executor_comm(&f, number) && executor_comm(&f, number)->code == RMX_E_PEER_LOST);
                assert_int_equal(take_ack(clients[1], send_comm_destroy(clients[1], handles[1], 0), NULL, 0), 0);
                fixture_wait(&f, f.executor.n_comms == 0);
                client_close(clients[0]);
                client_close(clients[1]);
                fixture_wait_idle(&f);
                fixture_wait(&f, f.n_store == 4);
                fixture_teardown(&f);
        }
}

/* Pipes that end with the process go to the successor, if the process has said that it has their other ends. */
static void test_life(void **unused) {
        struct fixture f;
        struct client *clients[4];
        struct life_ends ends[4];
        uint8_t id[COMM_ID_BYTES];

        (void)unused;
        fixture_setup(&f, NULL, true);
        for (uint32_t r = 0; r < 4; r++) {
                clients[r] = client_open(&f);
                ends[r] = take_life(clients[r], send_life_open(clients[r]), r < 3);
        }
        fixture_wait(&f, f.n_store == 4 + 4 + 6);
        fixture_kill(&f);
        life_ends_close(&ends[1]); /* its process is ending */
        fixture_start(&f);
        executor_connect(&f, false);
        client_wait_eof(clients[1]);
        fixture_wait(&f, f.executor.n_sessions == 3);
        fixture_wait(&f, f.n_store == 4 + 3 + 4);
        life_ends_close(&ends[3]); /* nobody knows of it any more */
        expect_resumed(clients[3]);
        call_id_create(clients[3], id);
        close(ends[0].fd[1]);
        ends[0].fd[1] = -1;
        client_wait_eof(clients[0]);
        fixture_wait(&f, f.executor.n_sessions == 2);
        expect_resumed(clients[2]);
        life_ends_close(&ends[2]);
        ends[2] = take_life(clients[3], send_life_open(clients[3]), true);
        client_wait_eof(clients[2]);
        life_ends_close(&ends[2]);
        client_wait_eof(clients[3]);
        for (uint32_t r = 0; r < 4; r++) {
                client_close(clients[r]);
                life_ends_close(&ends[r]);
        }
        fixture_wait(&f, f.executor.n_sessions == 0);
        fixture_wait_idle(&f);
        fixture_wait(&f, f.n_store == 4);
        fixture_teardown(&f);
}

/* What an executor found while no railmuxd was there: the successor tells who is to blame, and of what; and the one
 * after it, which has recorded the code alone, knows the reason again. */
static void failed_meanwhile(uint32_t code) {
        const Railmux__Session__CommFailed *failed;
        struct inbox_message *event;
        struct client *clients[3];
        struct fake_comm *comm;
        uint32_t handles[3];
        struct fixture f;

        fixture_setup(&f, NULL, true);
        for (uint32_t r = 0; r < 3; r++)
                clients[r] = client_open(&f);
        comm = executor_comm(&f, make_comm(clients, 3, handles));
        assert_non_null(comm);
        fixture_kill(&f);
        comm->code = code;
        comm->failed = 3;
        comm->text = "rank 2 gave another count";
        fixture_wait(&f, f.executor.fd < 0);
        fixture_start(&f);
        executor_connect(&f, false);
        for (uint32_t r = 0; r < 3; r++) {
                event = client_event(clients[r], FAILED);
                failed = event->message->event->comm_failed;
                assert_int_equal(failed->code, code);
                assert_int_equal(failed->rank, 2);
                assert_non_null(strstr(failed->message, "rank 2 gave another count"));
                client_drop(clients[r], event);
        }
        succeed(&f, false);
        fixture_wait(&f, fixture_ctl_says(&f, "--json", "comms", "\"reason\": \"rank 2 gave another count\""));
        for (uint32_t r = 0; r < 3; r++)
                client_close(clients[r]);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

static void test_failed_meanwhile(void **unused) {
        (void)unused;
        failed_meanwhile(RMX_E_MISMATCH);
        failed_meanwhile(RMX_E_INVALID);
}

static void test_sticky_error_survives(void **unused) {
        struct fixture f;
        struct client *clients[2];
        uint32_t handles[2];
        uint64_t number;

        (void)unused;
        fixture_setup(&f, NULL, true);
        for (uint32_t r = 0; r < 2; r++)
                clients[r] = client_open(&f);
        number = make_comm(clients, 2, handles);
        executor_send_comm_failed(&f, number, RMX_E_MISMATCH, 1);
        client_drop(clients[0], client_event(clients[0], FAILED));
        succeed(&f, true);
        fixture_wait(&f, executor_comm(&f, number));
        assert_int_equal(executor_comm(&f, number)->code, RMX_E_MISMATCH);
        assert_int_equal(take_comm(clients[0], send_comm_split(clients[0], handles[0], 1, 0, 0)).code, RMX_E_MISMATCH);
        client_close(clients[0]);
        client_close(clients[1]);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

/* Listens at a port of 127.0.0.1; -1: somebody else does. */
static int take_port(uint16_t port) {
        const struct sockaddr_in address = {
                .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

        assert_true(fd >= 0);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
        if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 1) == 0)
                return fd;
        assert_int_equal(errno, EADDRINUSE);
        close(fd);
        return -1;
}

/* Where railmuxd listens for other nodes: what it makes up says so. */
static uint16_t port_of(struct client *client) {
        char address[COMM_ID_ADDRESS_BYTES];
        uint8_t id[COMM_ID_BYTES];
        const char *colon;

        call_id_create(client, id);
        assert_int_equal(comm_id_address(id, address), 0);
        colon = strrchr(address, ':');
        assert_non_null(colon);
        return (uint16_t)strtoul(colon + 1, NULL, 10);
}

/* The port for other nodes is somebody else's by now. Sessions here do not end of it, and it is taken when it is free.
 */
static void test_port_is_taken(void **unused) {
        static const char text[] = "no other node can connect: cannot listen on 127.0.0.1:";
        struct client *client;
        struct fixture f;
        char config[64];
        uint16_t port;
        int fd;

        (void)unused;
        fixture_setup(&f, "peer:\n  listen: '127.0.0.1:0'\n  cluster: test\n", true);
        client = client_open(&f);
        port = port_of(client);
        fixture_assert_silent(&f, "status", NULL, text);
        fixture_kill(&f);
        executor_disconnect(&f);
        fixture_wait(&f, (fd = take_port(port)) >= 0); /* a child of railmuxd may have had it still */
        snprintf(config, sizeof(config), "peer:\n  listen: '127.0.0.1:%u'\n  cluster: test\n", port);
        fixture_configure(&f, config, false);
        fixture_start(&f);
        executor_connect(&f, true);
        expect_resumed(client);
        expect_reply(client, send_buffer_create(client, 1, 4096));
        fixture_assert_says(&f, "status", NULL, text);
        fixture_assert_says(&f, "peers", NULL, "Address already in use");
        close(fd);
        fixture_wait(&f, !fixture_ctl_says(&f, "status", NULL, text));
        fixture_assert_silent(&f, "peers", NULL, "Address already in use");
        client_close(client);
        fixture_teardown(&f);
}

static uint64_t session_age_ns(struct fixture *f) {
        const char *age = strstr(fixture_ctl_text(f, "--json", "sessions"), "\"age_ns\": ");

        assert_non_null(age);
        return strtoull(age + 10, NULL, 10);
}

/* The only session was opened then, says the state. */
static void write_opened(struct fixture *f, uint64_t opened_ns) {
        int fd = f->store[fixture_stored(f, "state")].fd;
        struct state_record record;
        off_t at = STATE_HEADER_BYTES;

        do {
                assert_int_equal(pread(fd, &record, sizeof(record), at), sizeof(record));
                at += STATE_RECORD_BYTES;
        } while (record.valid != STATE_VALID || record.kind != STATE_SESSION);
        assert_true(record.session.opened_ns > 0);
        at += (off_t)(offsetof(struct state_record, session.opened_ns)) - STATE_RECORD_BYTES;
        assert_int_equal(pwrite(fd, &opened_ns, sizeof(opened_ns), at), sizeof(opened_ns));
}

/* Restarts do not make a session younger. What the state cannot know, or has wrong, begins anew. */
static void test_age(void **unused) {
        uint64_t begin_ns = clock_now_ns(), age_ns;
        struct client *client;
        struct fixture f;

        (void)unused;
        fixture_setup(&f, NULL, true);
        client = client_open(&f);
        write_opened(&f, 1);
        succeed(&f, false);
        expect_resumed(client);
        assert_true(session_age_ns(&f) >= begin_ns - 1);
        write_opened(&f, UINT64_MAX);
        succeed(&f, false);
        expect_resumed(client);
        age_ns = session_age_ns(&f); /* before the clock is read */
        assert_true(age_ns <= clock_now_ns() - begin_ns);
        write_opened(&f, 0);
        succeed(&f, false);
        expect_resumed(client);
        age_ns = session_age_ns(&f);
        assert_true(age_ns <= clock_now_ns() - begin_ns);
        fixture_teardown(&f);
}

static void write_rail_host(struct fixture *f, const char *host) {
        struct state_host noted = {.valid = STATE_VALID};
        int fd = f->store[fixture_stored(f, "state")].fd;

        snprintf(noted.host, sizeof(noted.host), "%s", host);
        assert_int_equal(pwrite(fd, &noted, sizeof(noted), offsetof(struct state_header, rail_host)), sizeof(noted));
}

/* Nobody has named a rail, or one address to listen at: it stays where it was, whether that is there now or not. */
static void test_rail_stays(void **unused) {
        static const char config[] = "peer:\n  listen: '0.0.0.0:0'\n  cluster: test\n  plain: yes\n";
        static const char named[] = "peer:\n  listen: '0.0.0.0:0'\n  cluster: test\n  plain: yes\n"
                                    "  rails: 'far=192.0.2.1,port=7601,advertise=192.0.2.7:7602'\n";
        struct client *client;
        struct fixture f;

        (void)unused;
        fixture_setup(&f, config, true);
        client = client_open(&f);
        fixture_assert_says(&f, "rails", NULL, "tcp0");
        fixture_assert_silent(&f, "rails", NULL, "waiting");
        succeed(&f, true);
        expect_resumed(client);
        fixture_assert_silent(&f, "rails", NULL, "waiting");
        write_rail_host(&f, "192.0.2.1"); /* of documentation */
        succeed(&f, true);
        expect_resumed(client);
        fixture_assert_says(&f, "rails", NULL, "waiting");
        fixture_assert_says(&f, "rails", NULL, "192.0.2.1");
        write_rail_host(&f, "127.0.0.7");
        succeed(&f, true);
        expect_resumed(client);
        fixture_assert_silent(&f, "rails", NULL, "waiting");
        fixture_assert_says(&f, "rails", NULL, "127.0.0.7:");
        fixture_configure(&f, named, false);
        succeed(&f, true);
        expect_resumed(client);
        fixture_assert_says(&f, "rails", NULL, "waiting");
        fixture_assert_says(&f, "rails", NULL, "192.0.2.7:7602"); /* where others will connect */
        client_close(client);
        fixture_teardown(&f);
}

/* Killed at random moments of busy traffic: nothing leaks, every client is served by the next one. */
/* Which partial sums a choice is for is told to executors of the successor; what an older one has recorded is for all.
 */
static void test_widenings(void **unused) {
        struct state_record record;
        const struct fake_comm *comm;
        struct client *clients[2];
        uint32_t handles[2], n_found = 0;
        struct fixture f;
        uint64_t number;

        (void)unused;
        fixture_setup(&f, NULL, true);
        for (uint32_t r = 0; r < 2; r++)
                clients[r] = client_open(&f);
        number = make_comm(clients, 2, handles);
        fixture_kill(&f);
        executor_disconnect(&f);
        for (off_t at = STATE_HEADER_BYTES;; at += STATE_RECORD_BYTES) {
                int fd = f.store[fixture_stored(&f, "state")].fd;

                if (pread(fd, &record, sizeof(record), at) != (ssize_t)sizeof(record))
                        break;
                if (record.valid != STATE_VALID || record.kind != STATE_CHOICE)
                        continue;
                assert_true(record.choice.n > 2);
                assert_true(record.choice.choice[1].operation <= UINT16_MAX);
                record.choice.choice[1].operation |= 2u << 16;
                assert_int_equal(pwrite(fd, &record, sizeof(record), at), sizeof(record));
                n_found++;
        }
        assert_int_equal(n_found, 1);
        fixture_start(&f);
        executor_connect(&f, true);
        fixture_wait(&f, f.executor.n_comms == 1);
        comm = executor_comm(&f, number);
        assert_non_null(comm);
        for (uint32_t i = 0; i < comm->n_choices; i++) {
                assert_int_equal(comm->choices[i].widening, i == 1 ? 2 : 0);
                assert_true(comm->choices[i].operation > 0 && comm->choices[i].operation <= UINT16_MAX);
        }
        for (uint32_t r = 0; r < 2; r++) {
                expect_resumed(clients[r]);
                client_close(clients[r]);
        }
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

/* What clients have over many successors. */
struct kept {
        uint64_t comm; /* 0: not known yet, and so is the rest */
        uint32_t handles[4];
        ino_t rings[4][8], buffers[4][4];
};

static void expect_same(struct client *client, uint64_t call, uint32_t body, ino_t *known) {
        struct inbox_message *answer = client_answer(client, call);

        assert_non_null(answer);
        if (answer->message->body_case == RAILMUX__SESSION__MESSAGE__BODY_FAILURE)
                fail_msg("refused with %u: %s", answer->message->failure->code, answer->message->failure->message);
        assert_int_equal(answer->message->body_case, body);
        assert_true(*known == 0 || inode(answer->fds[0]) == *known);
        *known = inode(answer->fds[0]);
        client_drop(client, answer);
}

/* The calls of this round are made again. The buffer of the last one must be there still, and its number is known. */
static void expect_kept(struct client **clients, const uint8_t id[COMM_ID_BYTES], unsigned int round,
                        struct kept *kept) {
        const uint32_t gpu = round % 8, buffer = 1 + round % 3, before = 1 + (round + 2) % 3;
        const uint32_t destroyed = 1 + (round + 1) % 3;
        uint64_t calls[4];

        for (uint32_t r = 0; r < 4; r++) {
                expect_same(clients[r], send_ring_open(clients[r], gpu), RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY,
                            &kept->rings[r][gpu]);
                assert_int_equal(take_ack(clients[r], send_buffer_destroy(clients[r], destroyed), NULL, 0), 0);
                kept->buffers[r][destroyed] = 0;
                expect_same(clients[r], send_buffer_create(clients[r], buffer, 4096),
                            RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY, &kept->buffers[r][buffer]);
                if (kept->buffers[r][before])
                        expect_same(clients[r], send_buffer_create(clients[r], before, 4096),
                                    RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY, &kept->buffers[r][before]);
        }
        for (uint32_t r = 0; r < 4; r++)
                calls[r] = send_comm_create(clients[r], id, 4, r);
        for (uint32_t r = 0; r < 4; r++) {
                struct comm_answer made = take_comm(clients[r], calls[r]);

                assert_int_equal(made.code, 0);
                assert_true(kept->comm == 0 || kept->comm == made.comm);
                assert_true(round == 0 || kept->handles[r] == made.handle);
                kept->comm = made.comm;
                kept->handles[r] = made.handle;
        }
}

static void test_killed_again_and_again(void **unused) {
        struct fixture f;
        struct client *clients[4];
        uint8_t id[COMM_ID_BYTES];
        struct kept kept = {0};
        uint32_t handles[4];

        (void)unused;
        fixture_setup(&f, NULL, true);
        for (uint32_t r = 0; r < 4; r++)
                clients[r] = client_open(&f);
        call_id_create(clients[0], id);
        for (unsigned int round = 0; round < 25; round++) {
                for (uint32_t r = 0; r < 4; r++) {
                        (void)send_buffer_create(clients[r], 1 + round % 3, 4096);
                        (void)send_ring_open(clients[r], round % 8);
                        (void)send_comm_create(clients[r], id, 4, r);
                        (void)send_buffer_destroy(clients[r], 1 + (round + 1) % 3);
                }
                for (unsigned int i = 0; i < round; i++)
                        fixture_turn(&f);
                succeed(&f, round % 5 == 4);
                for (uint32_t r = 0; r < 4; r++) {
                        expect_resumed(clients[r]);
                        while (clients[r]->inbox) /* answers of the predecessor */
                                client_drop(clients[r], clients[r]->inbox);
                }
                expect_kept(clients, id, round, &kept);
                if (round % 4 == 3) {
                        make_comm(clients, 4, handles);
                        for (uint32_t r = 0; r < 4; r++)
                                assert_int_equal(
                                        take_ack(clients[r], send_comm_destroy(clients[r], handles[r], 0), NULL, 0), 0);
                }
        }
        for (uint32_t r = 0; r < 4; r++)
                client_close(clients[r]);
        fixture_wait(&f, f.executor.n_sessions == 0 && f.executor.n_comms == 0 && f.executor.n_buffers == 0);
        fixture_wait_idle(&f);
        fixture_wait(&f, f.n_store == 4);
        fixture_teardown(&f);
}

/* A store whose state is damaged or missing: the sessions end, the service goes on. */
static void test_unusable_state(void **unused) {
        struct fixture f;
        struct client *client, *fresh;
        int i;

        (void)unused;
        fixture_setup(&f, NULL, true);
        client = client_open(&f);
        client_drop(client, client_answer(client, send_ring_open(client, 0)));
        fixture_kill(&f);
        i = fixture_stored(&f, "state");
        assert_true(i >= 0);
        assert_int_equal(pwrite(f.store[i].fd, "nonsense", 8, 0), 8);
        fixture_start(&f);
        client_wait_eof(client);
        client_close(client);
        executor_connect(&f, false);
        fixture_wait(&f, f.executor.n_sessions == 0);
        fresh = client_open(&f);
        expect_reply(fresh, send_ring_open(fresh, 0));
        client_close(fresh);
        fixture_wait_idle(&f);
        fixture_wait(&f, f.n_store == 4);
        fixture_teardown(&f);
}

/* An orderly stop leaves the store as it is; whoever comes next takes over. */
static void test_orderly_stop_keeps_the_store(void **unused) {
        struct fixture f;
        struct client *client;
        unsigned int stored;
        pid_t ended;
        int status;

        (void)unused;
        fixture_setup(&f, NULL, true);
        client = client_open(&f);
        client_drop(client, client_answer(client, send_ring_open(client, 0)));
        stored = f.n_store;
        fixture_signal(&f, SIGTERM);
        fixture_wait(&f, (ended = waitpid(f.daemon, &status, WNOHANG)) != 0);
        assert_int_equal(ended, f.daemon);
        assert_int_equal(status, 0);
        f.daemon = 0;
        fixture_hear(&f); /* whatever it has said to the end */
        assert_int_equal(f.n_stopping, 1);
        assert_int_equal(f.n_store, stored);
        assert_false(client->eof);
        fixture_start(&f);
        expect_resumed(client);
        executor_connect(&f, false);
        expect_reply(client, send_ring_open(client, 1));
        client_close(client);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_successor_has_everything),
                cmocka_unit_test(test_sessions_keep_their_gpus),
                cmocka_unit_test(test_calls_under_way),
                cmocka_unit_test(test_age),
                cmocka_unit_test(test_buffer_in_use),
                cmocka_unit_test(test_client_death_between),
                cmocka_unit_test(test_life),
                cmocka_unit_test(test_sticky_error_survives),
                cmocka_unit_test(test_failed_meanwhile),
                cmocka_unit_test(test_widenings),
                cmocka_unit_test(test_port_is_taken),
                cmocka_unit_test(test_rail_stays),
                cmocka_unit_test(test_killed_again_and_again),
                cmocka_unit_test(test_unusable_state),
                cmocka_unit_test(test_orderly_stop_keeps_the_store),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
