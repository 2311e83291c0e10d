/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"
#include "tests/daemon/fixture_parts.h"

#include "gpu/plane.h"
#include "railmux/railmux.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

static struct client *client_place(struct fixture *fixture) {
        for (unsigned int i = 0; i < FIXTURE_CLIENTS; i++) {
                if (fixture->clients[i].fd >= 0)
                        continue;
                fixture->clients[i] = (struct client){.fixture = fixture, .fd = -1, .exchange = 1};
                return &fixture->clients[i];
        }
        fail_msg("too many clients");
        return NULL;
}

struct client *client_connect(struct fixture *fixture) {
        struct client *client = client_place(fixture);

        fixture_wait(fixture, (client->fd = frame_connect(fixture->socket)) >= 0);
        return client;
}

uint64_t send_hello(struct client *client) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__Hello hello = RAILMUX__SESSION__HELLO__INIT;

        hello.version_min = SESSION_PROTOCOL_MIN;
        hello.version_max = SESSION_PROTOCOL_MAX + 1;
        hello.name = (char *)"a test \xff";
        hello.features = UINT64_MAX;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_HELLO;
        message.hello = &hello;
        return client_send(client, &message);
}

static void client_hello(struct client *client) {
        struct inbox_message *answer = client_answer(client, send_hello(client));

        assert_non_null(answer);
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_HELLO_REPLY);
        assert_int_equal(answer->message->hello_reply->version, SESSION_PROTOCOL_MAX);
        assert_int_equal(answer->message->hello_reply->gpus, client->fixture->gpus);
        assert_string_equal(answer->message->hello_reply->tenant,
                            client->fixture->tenant ? client->fixture->tenant : "default");
        client->session = answer->message->hello_reply->session;
        client->gpus = answer->message->hello_reply->gpus;
        assert_true(client->session > 0);
        client_drop(client, answer);
}

struct client *client_open(struct fixture *fixture) {
        struct client *client = client_connect(fixture);

        client_hello(client);
        return client;
}

struct client *client_open_child(struct fixture *fixture) {
        struct client *client = client_place(fixture);
        char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'x';
        struct iovec iov = {.iov_base = &byte, .iov_len = 1};
        struct msghdr message = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        client->pid = fork();
        assert_true(client->pid >= 0);
        if (client->pid == 0) {
                int fd;

                prctl(PR_SET_PDEATHSIG, SIGKILL);
                fd = frame_connect(fixture->socket);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(c), &fd, sizeof(fd));
                if (fd < 0 || sendmsg(pair[1], &message, 0) != 1)
                        _exit(1);
                for (;;)
                        pause();
        }
        close(pair[1]);
        assert_int_equal(recvmsg(pair[0], &message, MSG_CMSG_CLOEXEC), 1);
        memcpy(&client->fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
        close(pair[0]);
        client_hello(client);
        return client;
}

void client_drop(struct client *client, struct inbox_message *entry) {
        DL_DELETE(client->inbox, entry);
        protobuf_c_message_free_unpacked(&entry->message->base, &entry->arena.allocator);
        frame_close_fds(entry->fds, entry->n_fds);
        free(entry);
}

void client_close(struct client *client) {
        if (client->fd < 0)
                return;
        while (client->inbox)
                client_drop(client, client->inbox);
        if (client->pid > 0) {
                kill(client->pid, SIGKILL);
                waitpid(client->pid, NULL, 0);
        }
        close(client->fd);
        client->fd = -1;
}

void client_readable(struct client *client) {
        for (;;) {
                struct inbox_message *entry = calloc(1, sizeof(*entry));
                ProtobufCMessage *message;
                int r;

                assert_non_null(entry);
                frame_arena_init(&entry->arena, FRAME_UNPACK_BYTES_MAX);
                r = frame_receive(client->fd, &railmux__session__message__descriptor, &entry->arena, &message,
                                  entry->fds, &entry->n_fds);
                if (r != FRAME_OK) {
                        free(entry);
                        client->eof = client->eof || r != FRAME_E_AGAIN;
                        return;
                }
                entry->message = (Railmux__Session__Message *)message;
                DL_APPEND(client->inbox, entry);
        }
}

uint64_t client_send(struct client *client, Railmux__Session__Message *message) {
        int r;

        if (message->id == 0)
                message->id = ++client->next_id;
        fixture_wait(client->fixture, (r = frame_send(client->fd, &message->base, NULL, 0)) != FRAME_E_AGAIN);
        assert_true(r == FRAME_OK || r == FRAME_E_EOF);
        return message->id;
}

struct inbox_message *client_find(struct client *client, uint64_t id) {
        struct inbox_message *entry;

        DL_FOREACH(client->inbox, entry) {
                if (entry->message->id == id)
                        return entry;
        }
        return NULL;
}

struct inbox_message *client_answer(struct client *client, uint64_t id) {
        struct inbox_message *entry = NULL;

        fixture_wait(client->fixture, (entry = client_find(client, id)) || client->eof);
        return entry;
}

static struct inbox_message *client_find_event(struct client *client, uint32_t event_case) {
        struct inbox_message *entry;

        DL_FOREACH(client->inbox, entry) {
                if (entry->message->id == 0 && entry->message->body_case == RAILMUX__SESSION__MESSAGE__BODY_EVENT &&
                    entry->message->event->body_case == event_case)
                        return entry;
        }
        return NULL;
}

bool client_has_event(struct client *client, uint32_t event_case) {
        return client_find_event(client, event_case) != NULL;
}

struct inbox_message *client_event(struct client *client, uint32_t event_case) {
        struct inbox_message *entry = NULL;

        fixture_wait(client->fixture, (entry = client_find_event(client, event_case)));
        return entry;
}

void client_wait_eof(struct client *client) {
        fixture_wait(client->fixture, client->eof);
}

/* ---- calls ---- */

uint64_t send_ring_open(struct client *client, uint32_t gpu) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__RingOpen body = RAILMUX__SESSION__RING_OPEN__INIT;

        body.gpu = gpu;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_RING_OPEN;
        message.ring_open = &body;
        return client_send(client, &message);
}

uint64_t send_buffer_create(struct client *client, uint32_t buffer, uint64_t bytes) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__BufferCreate body = RAILMUX__SESSION__BUFFER_CREATE__INIT;

        body.buffer = buffer;
        body.bytes = bytes;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE;
        message.buffer_create = &body;
        return client_send(client, &message);
}

static void device_memory_fill(Railmux__Session__DeviceMemory *memory, uint8_t handle[64], const char *tag,
                               uint64_t bytes) {
        railmux__session__device_memory__init(memory);
        memset(handle, 0, 64);
        snprintf((char *)handle, 64, "%s", tag);
        memory->kind = 1;
        memory->handle.data = handle;
        memory->handle.len = 64;
        memory->allocation_bytes = bytes + 8192;
        memory->offset = 4096;
        memory->bytes = bytes;
}

uint64_t send_ring_open_device(struct client *client, uint32_t gpu, const char *tag, uint64_t bytes) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__RingOpen body = RAILMUX__SESSION__RING_OPEN__INIT;
        Railmux__Session__DeviceMemory memory;
        uint8_t handle[64];

        device_memory_fill(&memory, handle, tag, bytes ? bytes : plane_bell_bytes());
        body.gpu = gpu;
        body.area = &memory;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_RING_OPEN;
        message.ring_open = &body;
        return client_send(client, &message);
}

int32_t *client_latch(struct client *client, uint32_t gpu) {
        struct inbox_message *answer = client_answer(client, send_ring_open_device(client, gpu, "area", 0));
        void *page;

        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY);
        page = mmap(NULL, plane_latch_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, answer->fds[1], 0);
        assert_true(page != MAP_FAILED);
        client_drop(client, answer);
        return page;
}

uint64_t send_buffer_create_device(struct client *client, uint32_t buffer, uint64_t bytes, uint32_t gpu,
                                   const char *tag) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__BufferCreate body = RAILMUX__SESSION__BUFFER_CREATE__INIT;
        Railmux__Session__DeviceMemory memory;
        uint8_t handle[64];

        device_memory_fill(&memory, handle, tag, bytes);
        body.buffer = buffer;
        body.bytes = bytes;
        body.memory = &memory;
        body.gpu = gpu;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE;
        message.buffer_create = &body;
        return client_send(client, &message);
}

uint64_t send_buffer_destroy(struct client *client, uint32_t buffer) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__BufferDestroy body = RAILMUX__SESSION__BUFFER_DESTROY__INIT;

        body.buffer = buffer;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_DESTROY;
        message.buffer_destroy = &body;
        return client_send(client, &message);
}

uint64_t send_comm_create(struct client *client, const uint8_t id[COMM_ID_BYTES], uint32_t n_ranks, uint32_t rank) {
        return send_comm_create_on(client, id, n_ranks, rank, -1);
}

uint64_t send_comm_create_on(struct client *client, const uint8_t id[COMM_ID_BYTES], uint32_t n_ranks, uint32_t rank,
                             int32_t gpu) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__CommCreate body = RAILMUX__SESSION__COMM_CREATE__INIT;
        uint8_t bytes[COMM_ID_BYTES];

        memcpy(bytes, id, sizeof(bytes));
        body.comm_id.data = bytes;
        body.comm_id.len = sizeof(bytes);
        body.n_ranks = n_ranks;
        body.rank = rank;
        body.gpu = gpu;
        body.exchange = client->exchange;
        body.name = (char *)"test";
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_CREATE;
        message.comm_create = &body;
        return client_send(client, &message);
}

uint64_t send_comm_split(struct client *client, uint32_t parent, uint32_t number, int32_t colour, int32_t key) {
        return send_comm_split_on(client, parent, number, colour, key, -1);
}

uint64_t send_comm_split_on(struct client *client, uint32_t parent, uint32_t number, int32_t colour, int32_t key,
                            int32_t gpu) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__CommSplit body = RAILMUX__SESSION__COMM_SPLIT__INIT;

        body.parent = parent;
        body.number = number;
        body.colour = colour;
        body.key = key;
        body.gpu = gpu;
        body.exchange = client->exchange;
        body.spare = client->spare;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_SPLIT;
        message.comm_split = &body;
        return client_send(client, &message);
}

uint64_t send_comm_destroy(struct client *client, uint32_t handle, uint32_t last_sequence) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__CommDestroy body = RAILMUX__SESSION__COMM_DESTROY__INIT;

        body.handle = handle;
        body.last_sequence = last_sequence;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_DESTROY;
        message.comm_destroy = &body;
        return client_send(client, &message);
}

uint64_t send_life_open(struct client *client) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__LifeOpen body = RAILMUX__SESSION__LIFE_OPEN__INIT;

        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_LIFE_OPEN;
        message.life_open = &body;
        return client_send(client, &message);
}

struct life_ends take_life(struct client *client, uint64_t id, bool arm) {
        struct inbox_message *answer = client_answer(client, id);
        struct life_ends ends;

        assert_non_null(answer);
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_LIFE_REPLY);
        assert_int_equal(answer->n_fds, 2);
        for (unsigned int i = 0; i < 2; i++) {
                ends.fd[i] = fcntl(answer->fds[i], F_DUPFD_CLOEXEC, 0); /* the others go with the message */
                assert_true(ends.fd[i] >= 0);
                if (arm) /* nobody reads if the daemon has just died: as in the library, that is no error */
                        assert_true(write(ends.fd[i], "", 1) == 1 || errno == EPIPE);
        }
        client_drop(client, answer);
        return ends;
}

void life_ends_close(struct life_ends *ends) {
        for (unsigned int i = 0; i < 2; i++) {
                if (ends->fd[i] >= 0)
                        close(ends->fd[i]);
                ends->fd[i] = -1;
        }
}

uint64_t send_comm_abort(struct client *client, uint32_t handle) {
        return send_comm_abort_for(client, handle, 0);
}

uint64_t send_comm_abort_for(struct client *client, uint32_t handle, uint32_t status) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__CommAbort body = RAILMUX__SESSION__COMM_ABORT__INIT;

        body.handle = handle;
        body.status = status;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_ABORT;
        message.comm_abort = &body;
        return client_send(client, &message);
}

uint64_t send_join_cancel(struct client *client, const uint8_t id[COMM_ID_BYTES], uint32_t rank) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__CommAbort body = RAILMUX__SESSION__COMM_ABORT__INIT;

        body.comm_id.data = (uint8_t *)id; /* only read */
        body.comm_id.len = COMM_ID_BYTES;
        body.rank = rank;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_ABORT;
        message.comm_abort = &body;
        return client_send(client, &message);
}

uint64_t send_split_cancel(struct client *client, uint32_t parent, uint32_t number) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__CommAbort body = RAILMUX__SESSION__COMM_ABORT__INIT;

        body.parent = parent;
        body.number = number;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_ABORT;
        message.comm_abort = &body;
        return client_send(client, &message);
}

void call_id_create(struct client *client, uint8_t ret_id[COMM_ID_BYTES]) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__IdCreate body = RAILMUX__SESSION__ID_CREATE__INIT;
        struct inbox_message *answer;

        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_ID_CREATE;
        message.id_create = &body;
        answer = client_answer(client, client_send(client, &message));
        assert_non_null(answer);
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY);
        assert_int_equal(answer->message->id_reply->id.len, COMM_ID_BYTES);
        memcpy(ret_id, answer->message->id_reply->id.data, COMM_ID_BYTES);
        client_drop(client, answer);
}

struct comm_answer take_comm(struct client *client, uint64_t id) {
        struct inbox_message *answer = client_answer(client, id);
        struct comm_answer taken = {0};

        assert_non_null(answer);
        if (answer->message->body_case == RAILMUX__SESSION__MESSAGE__BODY_FAILURE) {
                taken.code = answer->message->failure->code;
                assert_int_not_equal(taken.code, 0);
                snprintf(taken.text, sizeof(taken.text), "%s", answer->message->failure->message);
        } else {
                const Railmux__Session__CommReply *reply = answer->message->comm_reply;

                assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY);
                taken.handle = reply->handle;
                taken.n_ranks = reply->n_ranks;
                taken.rank = reply->rank;
                taken.gpu = reply->gpu;
                taken.epoch = reply->epoch;
                taken.comm = reply->comm;
                taken.exchange_min = reply->exchange_min;
                taken.exchange_max = reply->exchange_max;
                assert_true(reply->node.len < sizeof(taken.nodes));
                for (size_t i = 0; i < reply->node.len; i++) {
                        assert_true(reply->node.data[i] < 10);
                        taken.nodes[i] = (char)('0' + reply->node.data[i]);
                }
        }
        client_drop(client, answer);
        return taken;
}

uint32_t take_failure(struct client *client, uint32_t handle) {
        struct inbox_message *event = client_event(client, RAILMUX__SESSION__EVENT__BODY_COMM_FAILED);
        uint32_t code = event->message->event->comm_failed->code;

        assert_int_equal(event->message->event->comm_failed->handle, handle);
        client_drop(client, event);
        return code;
}

uint32_t take_ack(struct client *client, uint64_t id, char *ret_text, size_t size) {
        struct inbox_message *answer = client_answer(client, id);
        uint32_t code = 0;

        assert_non_null(answer);
        if (answer->message->body_case == RAILMUX__SESSION__MESSAGE__BODY_FAILURE) {
                code = answer->message->failure->code;
                if (ret_text)
                        snprintf(ret_text, size, "%s", answer->message->failure->message);
        } else {
                assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_ACK);
        }
        client_drop(client, answer);
        return code;
}

void expect_reply(struct client *client, uint64_t id) {
        struct inbox_message *answer = client_answer(client, id);

        assert_non_null(answer);
        if (answer->message->body_case == RAILMUX__SESSION__MESSAGE__BODY_FAILURE)
                fail_msg("refused with %u: %s", answer->message->failure->code, answer->message->failure->message);
        client_drop(client, answer);
}

uint64_t make_comm(struct client **clients, uint32_t n, uint32_t *ret_handles) {
        uint8_t id[COMM_ID_BYTES];
        uint64_t calls[64], number = 0;

        call_id_create(clients[0], id);
        for (uint32_t r = 0; r < n; r++)
                calls[r] = send_comm_create(clients[r], id, n, r);
        for (uint32_t r = 0; r < n; r++) {
                struct comm_answer answer = take_comm(clients[r], calls[r]);

                assert_int_equal(answer.code, 0);
                assert_int_equal(answer.rank, r);
                assert_int_equal(answer.n_ranks, n);
                assert_int_equal(answer.gpu, r % clients[0]->fixture->gpus);
                assert_int_equal(answer.epoch, 1);
                assert_true(answer.handle > 0);
                ret_handles[r] = answer.handle;
                number = answer.comm;
        }
        return number;
}
