/* SPDX-License-Identifier: MIT */
/* Virtual memory of clients: how its chunks' descriptors come to executors, to a successor, and to an end. Where
 * libraries can be preloaded (not under sanitizers) memfds count as memory of a GPU; else only what is refused. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "railmux/railmux.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GPUS    2u
#define REPLY   RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY
#define RESUMED RAILMUX__SESSION__EVENT__BODY_RESUMED
#define CHUNK   (UINT64_C(256) << 10)

struct set {
        struct fixture fixture;
        struct client *clients[GPUS]; /* client i will be rank i, on GPU i */
};

static int setup_as(void **state, const char *preload, const char *config) {
        struct set *set = calloc(1, sizeof(*set));

        fixture_reaches = 3;
        fixture_preload = preload;
        fixture_planes_config = config;
        fixture_setup_planes(&set->fixture, GPUS, true);
        for (uint32_t i = 0; i < GPUS; i++)
                set->clients[i] = client_open(&set->fixture);
        *state = set;
        return 0;
}

static int setup(void **state) {
        return setup_as(state, NULL, NULL);
}

static int teardown(void **state) {
        struct set *set = *state;

        fixture_teardown(&set->fixture);
        fixture_reaches = 0;
        fixture_preload = fixture_planes_config = NULL;
        free(set);
        return 0;
}

static uint64_t bytes_of(uint32_t n) {
        return CHUNK * n * (n + 1) / 2;
}

/* As the library sends it: `n` memfds beside it, of CHUNK bytes and multiples. `bytes`: in all, as it is said. */
static uint64_t send_chunks(struct client *client, uint32_t buffer, uint64_t bytes, uint32_t gpu, uint32_t kind,
                            uint32_t n) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__BufferCreate body = RAILMUX__SESSION__BUFFER_CREATE__INIT;
        Railmux__Session__DeviceMemory memory = RAILMUX__SESSION__DEVICE_MEMORY__INIT;
        uint64_t sizes[FRAME_FDS_MANY];
        uint8_t handle[64] = "chunks";
        int fds[FRAME_FDS_MANY], r;

        for (uint32_t i = 0; i < n; i++) {
                fds[i] = memfd_create("chunk", MFD_CLOEXEC);
                assert_true(fds[i] >= 0);
                sizes[i] = CHUNK * (i + 1);
        }
        memory.kind = kind;
        memory.handle.data = handle;
        memory.handle.len = sizeof(handle);
        memory.allocation_bytes = memory.bytes = bytes;
        memory.chunk_bytes = sizes;
        memory.n_chunk_bytes = n;
        body.buffer = buffer;
        body.bytes = bytes;
        body.memory = &memory;
        body.gpu = gpu;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE;
        message.buffer_create = &body;
        message.id = ++client->next_id;
        fixture_wait(client->fixture, (r = frame_send(client->fd, &message.base, fds, n)) != FRAME_E_AGAIN);
        assert_int_equal(r, FRAME_OK);
        frame_close_fds(fds, n);
        return message.id;
}

static void assert_refused(struct client *client, uint64_t id, uint32_t code, const char *says) {
        struct inbox_message *answer = client_answer(client, id);

        assert_non_null(answer);
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_FAILURE);
        assert_int_equal(answer->message->failure->code, code);
        assert_non_null(strstr(answer->message->failure->message, says));
        client_drop(client, answer);
}

static void test_refused(void **state) {
        struct set *set = *state;
        struct client *client = set->clients[0], *other = set->clients[1];
        unsigned int fds;

        fds = fixture_daemon_fds(&set->fixture);
        assert_refused(client, send_chunks(client, 1, CHUNK, 0, 2, 0), RMX_E_INVALID, "without descriptors");
        assert_refused(client, send_chunks(client, 1, CHUNK, 0, 1, 1), RMX_E_INVALID, "with descriptors");
        assert_refused(client, send_chunks(client, 1, CHUNK, 0, 3, 1), RMX_E_INVALID, "memory of kind 3");
        assert_refused(client, send_chunks(client, 1, CHUNK, 7, 2, 1), RMX_E_INVALID, "gpu is 7");
        fixture_wait(&set->fixture, fixture_daemon_fds(&set->fixture) == fds);
        assert_int_equal(plane_count(&set->fixture, 0, "buffer_import"), 0);

        /* No library sends what is no memory. */
        if (!fixture_preload) {
                struct client *strange = client_open(&set->fixture);

                (void)send_chunks(strange, 1, bytes_of(100), 0, 2, 100);
                client_wait_eof(strange);
                client_close(strange);
        }
        fixture_wait(&set->fixture, fixture_daemon_fds(&set->fixture) == fds);

        /* With any other call it is what it was before there were chunks. */
        {
                Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
                Railmux__Session__BufferDestroy body = RAILMUX__SESSION__BUFFER_DESTROY__INIT;

                body.buffer = 1;
                message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_DESTROY;
                message.buffer_destroy = &body;
                message.id = ++client->next_id;
                assert_int_equal(frame_send(client->fd, &message.base, &(int){STDERR_FILENO}, 1), FRAME_OK);
                client_wait_eof(client);
        }
        assert_int_equal(take_ack(other, send_buffer_destroy(other, 9), NULL, 0), 0);
}

#ifdef PRELOAD_MEMORY
static int setup_memory(void **state) {
        return setup_as(state, PRELOAD_MEMORY, NULL);
}

static int setup_limited(void **state) {
        return setup_as(state, PRELOAD_MEMORY, "limits: {fds: 40}\n");
}

static void create(struct set *set, uint32_t gpu, uint32_t buffer, uint32_t n) {
        struct client *client = set->clients[gpu];
        struct inbox_message *answer = client_answer(client, send_chunks(client, buffer, bytes_of(n), gpu, 2, n));

        assert_non_null(answer);
        assert_int_equal(answer->message->body_case, REPLY);
        assert_int_equal(answer->message->buffer_reply->bytes, bytes_of(n));
        assert_int_equal(answer->n_fds, 0);
        client_drop(client, answer);
}

static unsigned int imports(struct set *set, uint32_t gpu, const char *call, uint32_t whose, uint32_t buffer,
                            uint32_t n) {
        char text[128];

        snprintf(text, sizeof(text), "%s %" PRIu64 ".%u offset=0 bytes=%" PRIu64 " chunks=%u of %" PRIu64, call,
                 set->clients[whose]->session, buffer, bytes_of(n), n, bytes_of(n));
        return plane_count(&set->fixture, gpu, text);
}

static void join(struct set *set) {
        uint32_t handles[GPUS];

        assert_true(make_comm(set->clients, GPUS, handles) > 0);
}

static void test_way(void **state) {
        struct set *set = *state;
        struct fixture *fixture = &set->fixture;
        struct inbox_message *answer;
        char stored[64];

        create(set, 0, 1, 3);
        assert_int_equal(imports(set, 0, "buffer_import", 0, 1, 3), 1);
        snprintf(stored, sizeof(stored), "b%" PRIu64 ".1", set->clients[0]->session);
        assert_true(fixture_stored(fixture, stored) >= 0);
        create(set, 0, 1, 3); /* said again */
        assert_int_equal(imports(set, 0, "buffer_import", 0, 1, 3), 1);
        assert_refused(set->clients[0], send_chunks(set->clients[0], 1, bytes_of(2), 0, 2, 2), RMX_E_INVALID,
                       "exists with another size");

        /* Executors of other GPUs of the communicator get it too. */
        join(set);
        fixture_wait(fixture, imports(set, 1, "reach_import", 0, 1, 3) == 1);

        /* A new executor, whoever it was. */
        plane_kill(fixture, 0);
        plane_start(fixture, 0);
        fixture_wait(fixture, imports(set, 0, "buffer_import", 0, 1, 3) == 2);

        /* And one that comes when railmuxd is another one. */
        fixture_kill(fixture);
        plane_kill(fixture, 0);
        fixture_start(fixture);
        for (uint32_t i = 0; i < GPUS; i++)
                client_drop(set->clients[i], client_event(set->clients[i], RESUMED));
        plane_start(fixture, 0);
        fixture_wait(fixture, imports(set, 0, "buffer_import", 0, 1, 3) == 3);
        answer = client_answer(set->clients[0],
                               send_chunks(set->clients[0], 1, bytes_of(3), 0, 2, 3)); /* repeated by the library */
        assert_int_equal(answer->message->body_case, REPLY);
        client_drop(set->clients[0], answer);

        assert_int_equal(take_ack(set->clients[0], send_buffer_destroy(set->clients[0], 1), NULL, 0), 0);
        fixture_wait(fixture, fixture_stored(fixture, stored) < 0);
}

/* While no railmuxd runs. */
static void lose(struct set *set, uint32_t gpu, uint32_t buffer) {
        struct fixture *fixture = &set->fixture;
        char stored[64];
        int at;

        snprintf(stored, sizeof(stored), "b%" PRIu64 ".%u", set->clients[gpu]->session, buffer);
        at = fixture_stored(fixture, stored);
        assert_true(at >= 0);
        close(fixture->store[at].fd);
        fixture->store[at] = fixture->store[--fixture->n_store];
}

/* What the store has lost stays with those executors that have it, and cannot be handed to others; unless its client
 * brings it once more. */
static void test_lost_from_store(void **state) {
        struct set *set = *state;
        struct fixture *fixture = &set->fixture;
        char retired[64];

        create(set, 1, 4, 2);
        create(set, 1, 6, 3);
        fixture_kill(fixture);
        lose(set, 1, 4);
        lose(set, 1, 6);
        fixture_start(fixture);
        client_drop(set->clients[1], client_event(set->clients[1], RESUMED));
        create(set, 1, 5, 2); /* all is settled */
        create(set, 1, 6, 3); /* said again */
        snprintf(retired, sizeof(retired), "buffer_retire %" PRIu64 ".4", set->clients[1]->session);
        assert_int_equal(plane_count(fixture, 1, retired), 0);
        plane_kill(fixture, 1);
        plane_start(fixture, 1);
        fixture_wait(fixture, imports(set, 1, "buffer_import", 1, 5, 2) == 2);
        fixture_wait(fixture, imports(set, 1, "buffer_import", 1, 6, 3) == 2);
        assert_int_equal(imports(set, 1, "buffer_import", 1, 4, 2), 1); /* of the first one */
        create(set, 1, 4, 2);                                           /* the number is free */
}

/* The descriptors that are kept are the tenant's. */
static void test_limit(void **state) {
        struct set *set = *state;
        struct client *client = set->clients[0];

        create(set, 0, 1, 16);
        assert_refused(client, send_chunks(client, 2, bytes_of(20), 0, 2, 20), RMX_E_LIMIT, "fds");
        create(set, 0, 2, 8);
        assert_int_equal(take_ack(client, send_buffer_destroy(client, 1), NULL, 0), 0);
        create(set, 0, 3, 20);
}
#endif

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
#ifdef PRELOAD_MEMORY
                cmocka_unit_test_setup_teardown(test_way, setup_memory, teardown),
                cmocka_unit_test_setup_teardown(test_lost_from_store, setup_memory, teardown),
                cmocka_unit_test_setup_teardown(test_limit, setup_limited, teardown),
#endif
        };

        signal(SIGPIPE, SIG_IGN);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
