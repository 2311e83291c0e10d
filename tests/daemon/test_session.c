/* SPDX-License-Identifier: MIT */
/* Sessions, rings, buffers and limits, against a real railmuxd. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"
#include "tests/output.h"

#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/memfd.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint32_t hello_code(struct client *client, uint32_t min, uint32_t max, char *ret_text, size_t size) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__Hello hello = RAILMUX__SESSION__HELLO__INIT;
        struct inbox_message *answer;
        uint32_t code = 0;

        hello.version_min = min;
        hello.version_max = max;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_HELLO;
        message.hello = &hello;
        answer = client_answer(client, client_send(client, &message));
        assert_non_null(answer);
        if (answer->message->body_case == RAILMUX__SESSION__MESSAGE__BODY_FAILURE) {
                code = answer->message->failure->code;
                snprintf(ret_text, size, "%s", answer->message->failure->message);
        }
        client_drop(client, answer);
        return code;
}

static void test_hello_versions(void **unused) {
        struct fixture f;
        struct client *client;
        char text[256] = "";

        (void)unused;
        fixture_setup(&f, NULL, false);
        client = client_connect(&f);
        assert_int_equal(hello_code(client, SESSION_PROTOCOL_MAX, SESSION_PROTOCOL_MAX, text, sizeof(text)), 0);
        client_close(client);
        client = client_connect(&f);
        assert_int_equal(hello_code(client, 0, 100, text, sizeof(text)), 0);
        client_close(client);
        client = client_open(&f);
        assert_int_equal(hello_code(client, 1, 1, text, sizeof(text)), 0); /* repeated: the same answer */
        client_close(client);
        client = client_connect(&f);
        assert_int_equal(hello_code(client, SESSION_PROTOCOL_MAX + 1, SESSION_PROTOCOL_MAX + 2, text, sizeof(text)),
                         RMX_E_VERSION);
        assert_non_null(strstr(text, "2 .. 3"));
        client_wait_eof(client);
        client_close(client);
        client = client_connect(&f);
        assert_int_equal(hello_code(client, 0, SESSION_PROTOCOL_MIN - 1, text, sizeof(text)), RMX_E_VERSION);
        client_wait_eof(client);
        client_close(client);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

static void test_ring(void **unused) {
        struct fixture f;
        struct client *client;
        struct inbox_message *answer, *again;
        struct ring_layout layout;
        struct stat a, b;
        void *area;
        uint64_t id;

        (void)unused;
        fixture_setup(&f, NULL, false);
        client = client_open(&f);
        answer = client_answer(client, send_ring_open(client, 3));
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY);
        assert_int_equal(answer->n_fds, 3);
        assert_int_equal(f.executor.n_rings, 1); /* known to the executor before the client hears of it */
        assert_int_equal(ring_layout_init(&layout, answer->message->ring_reply->depth,
                                          answer->message->ring_reply->argument_bytes),
                         0);
        assert_int_equal(memfd_map(answer->fds[0], layout.client_bytes, 1, 1, &area), 0);
        memfd_unmap(area, layout.client_bytes);
        assert_int_equal(memfd_map(answer->fds[1], layout.executor_bytes, 0, 1, &area), 0);
        memfd_unmap(area, layout.executor_bytes);
        /* executor-written words cannot be mapped writable */
        assert_ptr_equal(mmap(NULL, layout.executor_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, answer->fds[1], 0),
                         MAP_FAILED);
        assert_int_equal(ftruncate(answer->fds[0], 0), -1);
        assert_int_equal(write(answer->fds[2], &(uint64_t){1}, 8), 8);

        /* the same call again: the same ring */
        again = client_answer(client, send_ring_open(client, 3));
        assert_int_equal(again->n_fds, 3);
        assert_int_equal(fstat(answer->fds[0], &a), 0);
        assert_int_equal(fstat(again->fds[0], &b), 0);
        assert_int_equal(a.st_ino, b.st_ino);
        assert_int_equal(f.executor.n_rings, 1);
        client_drop(client, again);
        client_drop(client, answer);

        id = send_ring_open(client, 8);
        assert_int_equal(take_ack(client, id, NULL, 0), RMX_E_INVALID);
        client_close(client);
        fixture_wait(&f, f.executor.n_sessions == 0);
        assert_int_equal(f.executor.n_rings, 0);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

static void test_buffers(void **unused) {
        struct fixture f;
        struct client *client;
        struct inbox_message *answer;
        uint32_t *memory;
        uint64_t first, second;

        (void)unused;
        fixture_setup(&f, NULL, false);
        client = client_open(&f);
        answer = client_answer(client, send_buffer_create(client, 7, 5000));
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY);
        assert_int_equal(answer->message->buffer_reply->bytes, 8192);
        assert_int_equal(answer->n_fds, 1);
        memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, answer->fds[0], 0);
        assert_true(memory != MAP_FAILED);
        assert_int_equal(memory[0], 7); /* the executor wrote it */
        munmap(memory, 8192);
        assert_int_equal(ftruncate(answer->fds[0], 4096), -1);
        assert_int_equal(ftruncate(answer->fds[0], 1 << 20), -1);
        client_drop(client, answer);

        answer = client_answer(client, send_buffer_create(client, 7, 8192)); /* the same after rounding */
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY);
        client_drop(client, answer);
        assert_int_equal(f.executor.n_buffers, 1);
        assert_int_equal(take_ack(client, send_buffer_create(client, 7, 9000), NULL, 0), RMX_E_INVALID);
        assert_int_equal(take_ack(client, send_buffer_create(client, 0, 4096), NULL, 0), RMX_E_INVALID);
        assert_int_equal(take_ack(client, send_buffer_create(client, 8, 0), NULL, 0), RMX_E_INVALID);
        assert_int_equal(take_ack(client, send_buffer_create(client, 8, UINT64_MAX), NULL, 0), RMX_E_INVALID);

        assert_int_equal(take_ack(client, send_buffer_destroy(client, 7), NULL, 0), 0);
        assert_int_equal(f.executor.n_buffers, 0);
        assert_int_equal(take_ack(client, send_buffer_destroy(client, 7), NULL, 0), 0); /* repeated */

        /* while one is being destroyed its number is not free */
        expect_reply(client, send_buffer_create(client, 9, 4096));
        f.executor.hold = true;
        first = send_buffer_destroy(client, 9);
        fixture_wait(&f, f.executor.n_held == 1);
        second = send_buffer_create(client, 9, 4096);
        assert_int_equal(take_ack(client, second, NULL, 0), RMX_E_BUSY);
        assert_null(client_find(client, first));
        executor_release(&f);
        assert_int_equal(take_ack(client, first, NULL, 0), 0);

        /* an executor that refuses */
        f.executor.refuse = RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_IMPORT;
        assert_int_equal(take_ack(client, send_buffer_create(client, 10, 4096), NULL, 0), RMX_E_UNSUPPORTED);
        f.executor.refuse = RAILMUX__EXECUTOR__MESSAGE__BODY_RING_ATTACH;
        assert_int_equal(take_ack(client, send_ring_open(client, 0), NULL, 0), RMX_E_UNSUPPORTED);
        f.executor.refuse = 0;
        expect_reply(client, send_ring_open(client, 0));
        client_close(client);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

/* A call that goes through the executor: when it is answered, what the executor said before has been heard. */
static void round_trip(struct client *client, uint32_t *gpu) {
        client_drop(client, client_answer(client, send_ring_open(client, (*gpu)++)));
}

/* The executor still uses what a client destroys: charged, its number taken and the call unanswered until it does not,
 * and however many there are, other calls get through. */
static void test_buffers_in_use(void **unused) {
        enum { MANY = 80 }; /* more than the executor may owe answers for */
        struct fixture f;
        struct client *client, *other;
        uint64_t destroy[MANY + 1];
        uint32_t gpu = 0;
        char text[256] = "";

        (void)unused;
        fixture_setup(&f, "limits: {buffers: 80, bytes: 1G}\n", false);
        client = client_open(&f);
        other = client_open(&f);
        for (uint32_t i = 1; i <= MANY; i++)
                client_drop(client, client_answer(client, send_buffer_create(client, i, 4096)));
        f.executor.in_use = true;
        for (uint32_t i = 1; i <= MANY; i++)
                destroy[i] = send_buffer_destroy(client, i);
        round_trip(client, &gpu);
        assert_int_equal(f.executor.n_retired, MANY);
        assert_int_equal(take_ack(other, send_buffer_create(other, 1, 4096), text, sizeof(text)), RMX_E_LIMIT);
        assert_string_equal(text, "tenant default: buffers limit 80 reached");
        assert_int_equal(take_ack(client, send_buffer_create(client, 1, 4096), NULL, 0), RMX_E_BUSY);
        for (uint32_t i = 1; i <= MANY; i++)
                assert_null(client_find(client, destroy[i]));

        /* one is let go, and what is not known is let go in vain */
        executor_send_released(&f, client->session, 3);
        executor_send_released(&f, client->session, 3);
        executor_send_released(&f, client->session, 1000);
        executor_send_released(&f, client->session + 1000, 1);
        assert_int_equal(take_ack(client, destroy[3], NULL, 0), 0);
        expect_reply(other, send_buffer_create(other, 1, 4096));
        assert_int_equal(take_ack(other, send_buffer_create(other, 2, 4096), NULL, 0), RMX_E_LIMIT);

        /* a release that comes before the answer is about an earlier one of that number */
        f.executor.hold = true;
        destroy[0] = send_buffer_destroy(other, 1);
        fixture_wait(&f, f.executor.n_held == 1);
        executor_send_released(&f, other->session, 1);
        executor_release(&f);
        round_trip(other, &gpu);
        assert_null(client_find(other, destroy[0]));
        assert_int_equal(take_ack(other, send_buffer_create(other, 2, 4096), NULL, 0), RMX_E_LIMIT);
        executor_send_released(&f, other->session, 1);
        assert_int_equal(take_ack(other, destroy[0], NULL, 0), 0);

        /* the same executor comes back and still uses them */
        executor_connect(&f, false);
        round_trip(client, &gpu);
        assert_int_equal(f.executor.n_retired, MANY - 1);
        expect_reply(other, send_buffer_create(other, 1, 4096));
        assert_int_equal(take_ack(other, send_buffer_create(other, 2, 4096), NULL, 0), RMX_E_LIMIT);
        executor_send_released(&f, client->session, 5);
        assert_int_equal(take_ack(client, destroy[5], NULL, 0), 0);
        executor_disconnect(&f); /* and let one go while nobody listened */
        for (unsigned int i = 0; i < f.executor.n_retired; i++)
                if (f.executor.retired[i].buffer == 7)
                        f.executor.retired[i] = f.executor.retired[--f.executor.n_retired];
        executor_connect(&f, false);
        assert_int_equal(take_ack(client, destroy[7], NULL, 0), 0);
        assert_null(client_find(client, destroy[8]));

        executor_connect(&f, true); /* a new one has none of them */
        for (uint32_t i = 8; i <= MANY; i++)
                assert_int_equal(take_ack(client, destroy[i], NULL, 0), 0);
        expect_reply(other, send_buffer_create(other, 2, 4096));

        destroy[0] = send_buffer_destroy(other, 1); /* with the session it ends in any case */
        round_trip(other, &gpu);
        assert_null(client_find(other, destroy[0]));
        client_close(other);
        client_close(client);
        fixture_wait(&f, f.executor.n_retired == 0);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

static void test_limits(void **unused) {
        struct fixture f;
        struct client *clients[3], *refused;
        char text[256] = "";

        (void)unused;
        fixture_setup(&f, "limits:\n  sessions: 3\n  buffers: 2\n  bytes: 4M\n  rings: 1\n  comms: 3\n", false);
        for (unsigned int i = 0; i < 3; i++)
                clients[i] = client_open(&f);
        refused = client_connect(&f);
        assert_int_equal(hello_code(refused, 1, 1, text, sizeof(text)), RMX_E_LIMIT);
        assert_string_equal(text, "tenant default: sessions limit 3 reached");
        client_wait_eof(refused);
        client_close(refused);

        expect_reply(clients[0], send_buffer_create(clients[0], 1, 4096));
        expect_reply(clients[1], send_buffer_create(clients[1], 1, 4096));
        assert_int_equal(take_ack(clients[2], send_buffer_create(clients[2], 1, 4096), text, sizeof(text)),
                         RMX_E_LIMIT);
        assert_string_equal(text, "tenant default: buffers limit 2 reached");
        assert_int_equal(take_ack(clients[0], send_buffer_destroy(clients[0], 1), NULL, 0), 0);
        assert_int_equal(take_ack(clients[2], send_buffer_create(clients[2], 1, 8 << 20), text, sizeof(text)),
                         RMX_E_LIMIT);
        assert_non_null(strstr(text, "bytes limit"));
        expect_reply(clients[2], send_buffer_create(clients[2], 1, 4096));

        expect_reply(clients[0], send_ring_open(clients[0], 0));
        assert_int_equal(take_ack(clients[0], send_ring_open(clients[0], 1), text, sizeof(text)), RMX_E_LIMIT);
        assert_string_equal(text, "tenant default: rings limit 1 reached");
        for (unsigned int i = 0; i < 3; i++)
                client_close(clients[i]);
        fixture_wait_idle(&f);
        clients[0] = client_open(&f); /* everything was given back */
        client_close(clients[0]);
        fixture_teardown(&f);
}

static void test_reload(void **unused) {
        struct fixture f;
        struct client *a, *b;
        char text[256] = "";

        (void)unused;
        fixture_setup(&f, "limits: {sessions: 1}\n", true);
        a = client_open(&f);
        b = client_connect(&f);
        assert_int_equal(hello_code(b, 1, 1, text, sizeof(text)), RMX_E_LIMIT);
        client_close(b);
        fixture_configure(&f, "limits: {sessions: many}\n", false); /* wrong: the old one stays */
        fixture_signal(&f, SIGHUP);
        fixture_wait(&f, f.n_reloading == 1 && f.n_ready == 2);
        b = client_connect(&f);
        assert_int_equal(hello_code(b, 1, 1, text, sizeof(text)), RMX_E_LIMIT);
        client_close(b);
        fixture_configure(&f, "limits: {sessions: 2}\n", false);
        fixture_signal(&f, SIGHUP);
        fixture_wait(&f, f.n_reloading == 2 && f.n_ready == 3);
        b = client_open(&f);
        client_close(b);
        client_close(a);
        fixture_wait(&f, f.n_watchdog > 0);
        fixture_teardown(&f);
}

/* With the executor away calls wait, and are answered when it is back. */
static void test_executor_away(void **unused) {
        struct fixture f;
        struct client *client, *other;
        struct inbox_message *answer;
        uint64_t ring, buffer, destroy, created;

        (void)unused;
        fixture_setup(&f, NULL, false);
        client = client_open(&f);
        client_drop(client, client_answer(client, send_ring_open(client, 0)));
        client_drop(client, client_answer(client, send_buffer_create(client, 1, 4096)));
        executor_disconnect(&f);
        other = client_open(&f); /* sessions open without it */
        ring = send_ring_open(other, 2);
        buffer = send_buffer_create(other, 5, 4096);
        destroy = send_buffer_destroy(client, 1);
        assert_int_equal(take_ack(other, send_ring_open(other, 99), NULL, 0), RMX_E_INVALID); /* a round trip */
        assert_null(client_find(other, ring));
        assert_null(client_find(other, buffer));
        assert_null(client_find(client, destroy));
        executor_connect(&f, false); /* the same process with what it had */
        answer = client_answer(other, ring);
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY);
        client_drop(other, answer);
        answer = client_answer(other, buffer);
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY);
        client_drop(other, answer);
        assert_int_equal(take_ack(client, destroy, NULL, 0), 0);
        assert_int_equal(f.executor.n_sessions, 2);
        assert_int_equal(f.executor.n_rings, 2);
        assert_int_equal(f.executor.n_buffers, 1);

        executor_disconnect(&f);
        fixture_wait(&f, fixture_ctl_says(&f, "--json", "status", "\"state\": \"gone\""));
        client_close(client); /* ends while the executor is away: detached when it returns */
        fixture_wait(&f, fixture_ctl_says(&f, "--json", "status", "\"sessions\": 1,"));
        executor_connect(&f, false);
        fixture_wait(&f, f.executor.n_sessions == 1);

        created = send_buffer_create(other, 6, 4096);
        client_drop(other, client_answer(other, created));
        executor_disconnect(&f);
        executor_connect(&f, true); /* a new process gets everything */
        fixture_wait(&f, f.executor.n_sessions == 1 && f.executor.n_rings == 1 && f.executor.n_buffers == 2);
        client_close(other);
        fixture_wait(&f, f.executor.n_sessions == 0);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

static void test_many_buffers_attach_in_window(void **unused) {
        struct fixture f;
        struct client *client;
        uint64_t last = 0;

        (void)unused;
        fixture_setup(&f, NULL, false);
        client = client_open(&f);
        for (uint32_t i = 1; i <= 300; i++)
                last = send_buffer_create(client, i, 4096);
        client_drop(client, client_answer(client, last));
        executor_disconnect(&f);
        executor_connect(&f, true);
        fixture_wait(&f, f.executor.n_buffers == 300);
        client_close(client);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

/* The daemon has no fd left: calls fail, connections wait, nothing ends; later all are served. */
static void test_out_of_fds(void **unused) {
        struct fixture f;
        struct client *clients[10];
        struct inbox_message *answer;
        unsigned int n = 0, failed = 0;
        uint64_t id;

        (void)unused;
        fixture_max_fds = 48;
        fixture_setup(&f, NULL, false);
        fixture_max_fds = 0;
        clients[0] = client_open(&f);
        for (uint32_t buffer = 1; buffer < 60; buffer++) {
                answer = client_answer(clients[0], send_buffer_create(clients[0], buffer, 4096));
                assert_non_null(answer);
                if (answer->message->body_case == RAILMUX__SESSION__MESSAGE__BODY_FAILURE) {
                        assert_int_equal(answer->message->failure->code, RMX_E_NO_MEMORY);
                        failed++;
                }
                client_drop(clients[0], answer);
        }
        assert_true(failed > 10);
        assert_int_equal(take_ack(clients[0], send_ring_open(clients[0], 0), NULL, 0), RMX_E_NO_MEMORY);
        for (n = 1; n < 10; n++) { /* taken by the kernel, not yet by the daemon */
                clients[n] = client_connect(&f);
                send_hello(clients[n]);
        }
        for (uint32_t buffer = 1; buffer < 60; buffer++)
                assert_int_equal(take_ack(clients[0], send_buffer_destroy(clients[0], buffer), NULL, 0), 0);
        for (n = 1; n < 10; n++) {
                fixture_wait(&f, clients[n]->inbox);
                client_close(clients[n]);
        }
        id = send_ring_open(clients[0], 0);
        answer = client_answer(clients[0], id);
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY);
        client_drop(clients[0], answer);
        client_close(clients[0]);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

/* A pipe ends before the socket does. */
static void test_life(void **unused) {
        struct fixture f;
        struct client *client;
        uint8_t id[COMM_ID_BYTES];

        (void)unused;
        fixture_setup(&f, NULL, true);
        for (unsigned int i = 0; i < 2; i++) { /* either of them is enough */
                struct life_ends first, second;

                client = client_open(&f);
                client_drop(client, client_answer(client, send_ring_open(client, 0)));
                fixture_wait(&f, f.executor.n_sessions == 1 && f.executor.n_rings == 1);
                first = take_life(client, send_life_open(client), true);
                second = take_life(client, send_life_open(client), true); /* in place of the first ones */
                life_ends_close(&first);
                fixture_wait(&f, f.n_store == 4 + 1 + 3 + 2);
                call_id_create(client, id);
                assert_int_equal(f.executor.n_sessions, 1);
                close(second.fd[i]);
                second.fd[i] = -1;
                fixture_wait(&f, f.executor.n_sessions == 0 && f.executor.n_rings == 0);
                client_wait_eof(client);
                client_close(client);
                life_ends_close(&second);
        }
        fixture_wait_idle(&f);
        fixture_wait(&f, f.n_store == 4);
        fixture_teardown(&f);
}

/* Nobody had it who would tell: the answer was not waited for, or there was no room for it. */
static void test_life_unarmed(void **unused) {
        struct fixture f;
        struct client *client;
        struct life_ends ends;
        uint8_t id[COMM_ID_BYTES];
        unsigned int fds;
        uint64_t call;

        (void)unused;
        fixture_setup(&f, NULL, true);
        client = client_open(&f);
        call_id_create(client, id);
        fds = fixture_daemon_fds(&f);
        ends = take_life(client, send_life_open(client), false);
        life_ends_close(&ends);
        fixture_wait(&f, fixture_daemon_fds(&f) == fds);
        call = send_life_open(client); /* and once more, before the answer is read */
        ends = take_life(client, send_life_open(client), true);
        expect_reply(client, call);
        call_id_create(client, id);
        fixture_wait(&f, f.n_store == 4 + 1 + 2);
        assert_int_equal(f.executor.n_sessions, 1);
        life_ends_close(&ends);
        client_wait_eof(client);
        client_close(client);
        fixture_wait_idle(&f);
        fixture_wait(&f, f.n_store == 4);
        fixture_teardown(&f);
}

/* One byte is all that is ever written; pipes count as descriptors of the tenant; nobody asks for ever. */
static void test_life_abused(void **unused) {
        struct fixture f;
        struct client *client;
        struct life_ends ends;
        char text[256] = "";

        (void)unused;
        fixture_setup(&f, "limits:\n  fds: 17\n", false);
        for (unsigned int i = 0; i < 2; i++) {
                client = client_open(&f);
                ends = take_life(client, send_life_open(client), i);
                assert_int_equal(write(ends.fd[0], "xy", 2 - i), 2 - i);
                client_wait_eof(client);
                client_close(client);
                life_ends_close(&ends);
        }
        assert_true(fixture_metric(&f, "railmux_protocol_errors_total") == 2);
        client = client_open(&f);
        for (uint32_t gpu = 0; gpu < 4; gpu++)
                client_drop(client, client_answer(client, send_ring_open(client, gpu)));
        ends = take_life(client, send_life_open(client), true); /* 2 + 4 * 3 + 2 */
        client_drop(client, client_answer(client, send_buffer_create(client, 1, 4096)));
        assert_int_equal(take_ack(client, send_buffer_create(client, 2, 4096), text, sizeof(text)), RMX_E_LIMIT);
        assert_string_equal(text, "tenant default: fds limit 17 reached");
        life_ends_close(&ends);
        client_wait_eof(client);
        client_close(client);
        client = client_open(&f);
        for (unsigned int i = 0; i < 15; i++) {
                ends = take_life(client, send_life_open(client), false);
                life_ends_close(&ends);
        }
        ends = take_life(client, send_life_open(client), true);
        assert_int_equal(take_ack(client, send_life_open(client), text, sizeof(text)), RMX_E_LIMIT);
        assert_string_equal(text, "pipes have been asked for 16 times");
        life_ends_close(&ends); /* which are still looked at */
        client_wait_eof(client);
        client_close(client);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

/* One that did not offer to. */
static void test_life_not_agreed(void **unused) {
        struct fixture f;
        struct client *client;
        char text[256] = "";

        (void)unused;
        fixture_setup(&f, NULL, false);
        client = client_connect(&f);
        assert_int_equal(hello_code(client, 1, 1, text, sizeof(text)), 0);
        send_life_open(client);
        client_wait_eof(client);
        client_close(client);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

/* The process dies, but its socket stays open elsewhere (a forked child would do that): the pidfd tells. */
static void test_process_death(void **unused) {
        struct fixture f;
        struct client *client;

        (void)unused;
        fixture_setup(&f, NULL, false);
        client = client_open_child(&f);
        client_drop(client, client_answer(client, send_ring_open(client, 0)));
        fixture_wait(&f, f.executor.n_rings == 1);
        kill(client->pid, SIGKILL);
        fixture_wait(&f, f.executor.n_sessions == 0);
        client_wait_eof(client);
        client_close(client);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

#ifdef PRELOAD_CLOSE
/* Freeing memory takes its time, and others wait for the loop: it closes none of them, and ends if it does. */
static void test_buffers_closed_aside(void **unused) {
        struct fixture f;
        struct client *client;

        (void)unused;
        fixture_preload = PRELOAD_CLOSE;
        fixture_setup(&f, NULL, false);
        fixture_preload = NULL;
        client = client_open(&f);
        for (uint32_t i = 1; i <= 2; i++)
                client_drop(client, client_answer(client, send_buffer_create(client, i, 5000)));
        assert_int_equal(take_ack(client, send_buffer_destroy(client, 1), NULL, 0), 0);
        client_close(client); /* with the other one */
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}
#endif

#ifdef PRELOAD_CORE
/* The process lives as long as it writes its core, and the others wait for it. */
static void test_core_dump(void **unused) {
        struct fixture f;
        struct client *clients[3];
        struct inbox_message *event;
        uint8_t id[COMM_ID_BYTES];
        uint32_t handles[2];
        char text[32];

        (void)unused;
        fixture_preload = PRELOAD_CORE;
        fixture_setup(&f, NULL, false);
        fixture_preload = NULL;
        clients[0] = client_open(&f);
        clients[1] = client_open_child(&f);
        clients[2] = client_open_child(&f); /* in no communicator: nobody waits for it */
        make_comm(clients, 2, handles);
        fixture_wait(&f, f.executor.n_sessions == 3);
        snprintf(text, sizeof(text), "%d %d", (int)clients[2]->pid, (int)clients[1]->pid);
        plane_write(&f, 0, "dumps", text);
        client_wait_eof(clients[1]); /* one look is for both */
        fixture_wait(&f, f.executor.n_sessions <= 2);
        call_id_create(clients[2], id);
        assert_int_equal(f.executor.n_sessions, 2);
        executor_send_comm_failed(&f, f.executor.comms[0].number, RMX_E_PEER_LOST, 1);
        event = client_event(clients[0], RAILMUX__SESSION__EVENT__BODY_COMM_FAILED);
        assert_int_equal(event->message->event->comm_failed->rank, 1);
        client_drop(clients[0], event);
        for (unsigned int i = 0; i < 3; i++)
                client_close(clients[i]);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}
#endif

static void test_strange_executors(void **unused) {
        struct fixture f;
        struct client *client;
        int first = -1, second;

        (void)unused;
        fixture_setup(&f, NULL, false);
        /* One of that name is there already: the second is turned away, the first serves on. */
        first = f.executor.fd;
        f.executor.fd = -1;
        executor_connect(&f, true);
        second = f.executor.fd;
        fixture_wait(&f, f.executor.fd < 0); /* closed by the daemon */
        assert_true(second >= 0);
        f.executor.fd = first;
        client = client_open(&f);
        expect_reply(client, send_ring_open(client, 0));
        /* Garbage ends the connection, not the daemon. */
        assert_int_equal(write(f.executor.fd, "garbage", 7), 7);
        fixture_wait(&f, f.executor.fd < 0);
        executor_connect(&f, false);
        expect_reply(client, send_ring_open(client, 1));
        client_close(client);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

/* A second daemon at the same sockets says why it does not start, and leaves the first one alone. */
static void test_second_daemon(void **unused) {
        char control[100], said[4096];
        struct client *client;
        struct fixture f;

        (void)unused;
        fixture_setup(&f, NULL, false);
        snprintf(control, sizeof(control), "%s.2", f.control);
        assert_int_equal(OUTPUT_OF(said, RAILMUXD, "--gpu", "host", "--config", f.config, "--socket", f.socket,
                                   "--control", control),
                         1);
        assert_non_null(strstr(said, "client.sock.exec: another railmuxd serves it"));
        client = client_open(&f);
        client_close(client);
        fixture_teardown(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_hello_versions),
                cmocka_unit_test(test_ring),
                cmocka_unit_test(test_buffers),
                cmocka_unit_test(test_buffers_in_use),
                cmocka_unit_test(test_limits),
                cmocka_unit_test(test_reload),
                cmocka_unit_test(test_executor_away),
                cmocka_unit_test(test_life),
                cmocka_unit_test(test_life_unarmed),
                cmocka_unit_test(test_life_abused),
                cmocka_unit_test(test_life_not_agreed),
                cmocka_unit_test(test_process_death),
                cmocka_unit_test(test_many_buffers_attach_in_window),
#ifdef PRELOAD_CLOSE
                cmocka_unit_test(test_buffers_closed_aside),
#endif
#ifdef PRELOAD_CORE
                cmocka_unit_test(test_core_dump),
#endif
                cmocka_unit_test(test_strange_executors),
                cmocka_unit_test(test_second_daemon),
                cmocka_unit_test(test_out_of_fds),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
