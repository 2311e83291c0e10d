/* SPDX-License-Identifier: MIT */
#include "tests/hostile/wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/e2e/proc.h"
#include "util/clock.h"

#define CALL_MS 20000u

static size_t pack(uint8_t *out, uint64_t id, int body, void *content) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;

        message.id = id;
        message.body_case = (Railmux__Session__Message__BodyCase)body;
        message.hello = content; /* a union of pointers */
        return railmux__session__message__pack(&message, out);
}

size_t wire_pack_hello(uint8_t *out, uint64_t id, uint32_t min, uint32_t max, uint64_t features, const char *name) {
        Railmux__Session__Hello hello = RAILMUX__SESSION__HELLO__INIT;

        hello.version_min = min;
        hello.version_max = max;
        hello.features = features;
        hello.name = (char *)name;
        return pack(out, id, RAILMUX__SESSION__MESSAGE__BODY_HELLO, &hello);
}

size_t wire_pack_ring_open(uint8_t *out, uint64_t id, uint32_t gpu) {
        Railmux__Session__RingOpen body = RAILMUX__SESSION__RING_OPEN__INIT;

        body.gpu = gpu;
        return pack(out, id, RAILMUX__SESSION__MESSAGE__BODY_RING_OPEN, &body);
}

size_t wire_pack_buffer_create(uint8_t *out, uint64_t id, uint32_t buffer, uint64_t bytes) {
        Railmux__Session__BufferCreate body = RAILMUX__SESSION__BUFFER_CREATE__INIT;

        body.buffer = buffer;
        body.bytes = bytes;
        return pack(out, id, RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE, &body);
}

size_t wire_pack_buffer_destroy(uint8_t *out, uint64_t id, uint32_t buffer) {
        Railmux__Session__BufferDestroy body = RAILMUX__SESSION__BUFFER_DESTROY__INIT;

        body.buffer = buffer;
        return pack(out, id, RAILMUX__SESSION__MESSAGE__BODY_BUFFER_DESTROY, &body);
}

size_t wire_pack_id_create(uint8_t *out, uint64_t id) {
        Railmux__Session__IdCreate body = RAILMUX__SESSION__ID_CREATE__INIT;

        return pack(out, id, RAILMUX__SESSION__MESSAGE__BODY_ID_CREATE, &body);
}

size_t wire_pack_comm_create(uint8_t *out, uint64_t id, const uint8_t comm_id[128], uint32_t n_ranks, uint32_t rank,
                             int32_t gpu) {
        Railmux__Session__CommCreate body = RAILMUX__SESSION__COMM_CREATE__INIT;

        body.comm_id.data = (uint8_t *)comm_id;
        body.comm_id.len = 128;
        body.n_ranks = n_ranks;
        body.rank = rank;
        body.gpu = gpu;
        body.name = (char *)"hostile";
        return pack(out, id, RAILMUX__SESSION__MESSAGE__BODY_COMM_CREATE, &body);
}

size_t wire_pack_comm_split(uint8_t *out, uint64_t id, uint32_t parent, uint32_t number, int32_t colour, int32_t key) {
        Railmux__Session__CommSplit body = RAILMUX__SESSION__COMM_SPLIT__INIT;

        body.parent = parent;
        body.number = number;
        body.colour = colour;
        body.key = key;
        body.gpu = 0;
        body.name = (char *)"hostile split";
        return pack(out, id, RAILMUX__SESSION__MESSAGE__BODY_COMM_SPLIT, &body);
}

size_t wire_pack_comm_destroy(uint8_t *out, uint64_t id, uint32_t handle, uint32_t last_sequence) {
        Railmux__Session__CommDestroy body = RAILMUX__SESSION__COMM_DESTROY__INIT;

        body.handle = handle;
        body.last_sequence = last_sequence;
        return pack(out, id, RAILMUX__SESSION__MESSAGE__BODY_COMM_DESTROY, &body);
}

size_t wire_pack_comm_abort(uint8_t *out, uint64_t id, uint32_t handle) {
        Railmux__Session__CommAbort body = RAILMUX__SESSION__COMM_ABORT__INIT;

        body.handle = handle;
        return pack(out, id, RAILMUX__SESSION__MESSAGE__BODY_COMM_ABORT, &body);
}

size_t wire_pack_life_open(uint8_t *out, uint64_t id) {
        Railmux__Session__LifeOpen body = RAILMUX__SESSION__LIFE_OPEN__INIT;

        return pack(out, id, RAILMUX__SESSION__MESSAGE__BODY_LIFE_OPEN, &body);
}

size_t wire_pack_foreign(uint8_t *out, uint64_t id, unsigned int which) {
        Railmux__Session__HelloReply hello = RAILMUX__SESSION__HELLO_REPLY__INIT;
        Railmux__Session__Failure failure = RAILMUX__SESSION__FAILURE__INIT;
        Railmux__Session__Ack ack = RAILMUX__SESSION__ACK__INIT;
        Railmux__Session__RingReply ring = RAILMUX__SESSION__RING_REPLY__INIT;
        Railmux__Session__BufferReply buffer = RAILMUX__SESSION__BUFFER_REPLY__INIT;
        Railmux__Session__IdReply id_reply = RAILMUX__SESSION__ID_REPLY__INIT;
        Railmux__Session__CommReply comm = RAILMUX__SESSION__COMM_REPLY__INIT;
        Railmux__Session__Event event = RAILMUX__SESSION__EVENT__INIT;
        const struct {
                int body;
                void *content;
        } messages[] = {
                {RAILMUX__SESSION__MESSAGE__BODY_HELLO_REPLY, &hello},
                {RAILMUX__SESSION__MESSAGE__BODY_FAILURE, &failure},
                {RAILMUX__SESSION__MESSAGE__BODY_ACK, &ack},
                {RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY, &ring},
                {RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY, &buffer},
                {RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY, &id_reply},
                {RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY, &comm},
                {RAILMUX__SESSION__MESSAGE__BODY_EVENT, &event},
                {RAILMUX__SESSION__MESSAGE__BODY__NOT_SET, NULL},
        };

        which %= sizeof(messages) / sizeof(messages[0]);
        return pack(out, id, messages[which].body, messages[which].content);
}

bool wire_connect(struct wire *wire, const char *socket) {
        uint64_t deadline = clock_now_ns() + (uint64_t)(CALL_MS * 1e6 * proc_time_scale());

        *wire = (struct wire){.fd = -1, .next_id = 1};
        do {
                wire->fd = frame_connect(socket);
                if (wire->fd == -EAGAIN) /* a full queue cannot be polled for */
                        proc_measure_for(1);
        } while (wire->fd == -EAGAIN && clock_now_ns() < deadline);
        if (wire->fd < 0)
                wire->fd = -1;
        return wire->fd >= 0;
}

void wire_close(struct wire *wire) {
        if (wire->fd >= 0)
                close(wire->fd);
        wire->fd = -1;
}

int wire_try_send(struct wire *wire, const void *data, size_t size, const int *fds, unsigned int n_fds) {
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * 253)] = {0}; /* the kernel takes no more */
        struct iovec iov = {.iov_base = (void *)data, .iov_len = size};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

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
        return sendmsg(wire->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

int wire_send(struct wire *wire, const void *data, size_t size, const int *fds, unsigned int n_fds) {
        uint64_t deadline = clock_now_ns() + (uint64_t)(CALL_MS * 1e6 * proc_time_scale());
        int r;

        while ((r = wire_try_send(wire, data, size, fds, n_fds)) == EAGAIN && clock_now_ns() < deadline) {
                struct pollfd poller = {.fd = wire->fd, .events = POLLOUT};

                poll(&poller, 1, 1000);
        }
        return r;
}

static void take_apart(const Railmux__Session__Message *message, struct wire_answer *a) {
        a->body = (int)message->body_case;
        a->id = message->id;
        switch (message->body_case) {
        case RAILMUX__SESSION__MESSAGE__BODY_HELLO_REPLY:
                a->version = message->hello_reply->version;
                a->bytes = message->hello_reply->session;
                a->depth = message->hello_reply->gpus;
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_FAILURE:
                a->code = message->failure->code;
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY:
                a->depth = message->ring_reply->depth;
                a->argument_bytes = message->ring_reply->argument_bytes;
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY:
                a->bytes = message->buffer_reply->bytes;
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY:
                if (message->id_reply->id.len == sizeof(a->comm_id))
                        memcpy(a->comm_id, message->id_reply->id.data, sizeof(a->comm_id));
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY:
                a->handle = message->comm_reply->handle;
                a->epoch = message->comm_reply->epoch;
                break;
        default:
                break;
        }
}

struct wire_answer wire_receive(struct wire *wire, uint32_t timeout_ms) {
        struct pollfd poller = {.fd = wire->fd, .events = POLLIN};
        struct wire_answer answer = {.body = WIRE_ENDED};
        ProtobufCMessage *message;
        struct frame_arena arena;
        int r;

        do {
                r = poll(&poller, 1, (int)(timeout_ms * proc_time_scale()));
                if (r == 0) {
                        answer.body = WIRE_SILENT;
                        return answer;
                }
                frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
                r = frame_receive(wire->fd, &railmux__session__message__descriptor, &arena, &message, answer.fds,
                                  &answer.n_fds);
        } while (r == FRAME_E_AGAIN);
        if (r != FRAME_OK)
                return answer;
        take_apart((const Railmux__Session__Message *)message, &answer);
        protobuf_c_message_free_unpacked(message, &arena.allocator);
        return answer;
}

void wire_answer_close(struct wire_answer *answer) {
        frame_close_fds(answer->fds, answer->n_fds);
        answer->n_fds = 0;
}

struct wire_answer wire_await(struct wire *wire, uint64_t id) {
        struct wire_answer answer;

        for (;;) {
                answer = wire_receive(wire, CALL_MS);
                if (answer.body < 0 || answer.id == id)
                        return answer;
                wire_answer_close(&answer);
        }
}

struct wire_answer wire_call(struct wire *wire, const void *data, size_t size) {
        uint64_t id = wire->next_id++;

        if (wire_send(wire, data, size, NULL, 0))
                return (struct wire_answer){.body = WIRE_ENDED};
        return wire_await(wire, id);
}

bool wire_drain(struct wire *wire) {
        struct wire_answer answer;

        do {
                answer = wire_receive(wire, CALL_MS);
                wire_answer_close(&answer);
        } while (answer.body >= 0);
        return answer.body == WIRE_ENDED;
}

bool wire_open(struct wire *wire, const char *socket) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer;

        if (!wire_connect(wire, socket))
                return false;
        answer = wire_call(
                wire, bytes,
                wire_pack_hello(bytes, wire->next_id, SESSION_PROTOCOL_MIN, SESSION_PROTOCOL_MAX, 0, "hostile"));
        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_HELLO_REPLY) {
                wire_close(wire);
                return false;
        }
        wire->session = answer.bytes;
        wire->gpus = answer.depth;
        return true;
}

bool wire_serves(struct wire *wire) {
        uint8_t bytes[WIRE_PACKED_MAX];

        wire->next_id |= UINT64_C(1) << 40; /* mutants may have used the small ones */
        return wire_call(wire, bytes, wire_pack_id_create(bytes, wire->next_id)).body ==
               RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY;
}

bool wire_ring_open(struct wire *wire, uint32_t gpu, struct wire_ring *ring) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer = wire_call(wire, bytes, wire_pack_ring_open(bytes, wire->next_id, gpu));
        void *executor_area;

        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY || answer.n_fds != 3 ||
            ring_layout_init(&ring->layout, answer.depth, answer.argument_bytes)) {
                wire_answer_close(&answer);
                return false;
        }
        ring->client_fd = answer.fds[0];
        ring->executor_fd = answer.fds[1];
        ring->event_fd = answer.fds[2];
        ring->client_area =
                mmap(NULL, ring->layout.client_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->client_fd, 0);
        executor_area = mmap(NULL, ring->layout.executor_bytes, PROT_READ, MAP_SHARED, ring->executor_fd, 0);
        if (ring->client_area == MAP_FAILED || executor_area == MAP_FAILED)
                return false;
        ring->executor_area = executor_area;
        ring_producer_init(&ring->producer, &ring->layout, ring->client_area, executor_area, RING_FIRST_SEQUENCE);
        return true;
}

void wire_ring_close(struct wire_ring *ring) {
        munmap(ring->client_area, ring->layout.client_bytes);
        munmap((void *)ring->executor_area, ring->layout.executor_bytes);
        close(ring->client_fd);
        close(ring->executor_fd);
        close(ring->event_fd);
}

void wire_ring_wake(const struct wire_ring *ring) {
        const uint64_t one = 1;

        (void)!write(ring->event_fd, &one, sizeof(one));
}

bool wire_ring_put(struct wire_ring *ring, const struct ring_request *line, uint32_t *ret_sequence) {
        if (ring_producer_publish(&ring->producer, line, ret_sequence))
                return false;
        if (ring_producer_must_wake(&ring->producer))
                wire_ring_wake(ring);
        return true;
}

bool wire_ring_take(struct wire_ring *ring, uint32_t sequence, uint32_t timeout_ms, uint32_t *ret_status) {
        int64_t timeout_ns = (int64_t)(timeout_ms * 1e6 * proc_time_scale());

        if (ring_producer_wait(&ring->producer, sequence, timeout_ns, ret_status))
                return false;
        ring_producer_release(&ring->producer, sequence);
        return true;
}
