/* SPDX-License-Identifier: MIT */
/*
 * A peer that has proven its token and then sends what it likes.
 *
 * The input is a list of commands: raw bytes, or a frame with fields of the fuzzer's choice that has the right
 * checksum, connection and (mostly) sequence, so that it gets to what looks at the fields. Whatever comes: nothing is
 * written outside of the area's staging, a credit or chunk that is counted as arrived was inside of it, and at the end
 * nothing is left but the area itself.
 */
#undef NDEBUG /* the asserts are the test */
#include <assert.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/crc.h"
#include "fabric/private.h"
#include "fabric/transport.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STAGING  8192u
#define CAPACITY 16u

static struct {
        struct fabric *fabric;
        struct fabric_rail rail;
        struct fabric_peer peer;
        struct net_area *memory;
        uint64_t bytes;
} fuzz;

static const uint8_t *input, *input_end;

static uint64_t take(unsigned int bytes) {
        uint64_t value = 0;

        while (bytes-- && input < input_end)
                value = value << 8 | *input++;
        return value;
}

static void fuzz_setup(void) {
        const struct fabric_options options = {.self = {{1}}, .boot_epoch = 1, .cluster = "fuzz"};
        const struct fabric_node nodes[2] = {{{1}}, {{2}}};
        struct fabric_area_options area = {.key = 7, .nodes = nodes, .n_ranks = 2, .weight = 1};
        struct sockaddr_storage address = {.ss_family = AF_INET};
        uint64_t pages;

        if (fuzz.fabric)
                return;
        assert(fabric_new(&options, &fuzz.fabric) == 0);
        fuzz.bytes = net_area_bytes(CAPACITY, STAGING);
        /* The staging ends where the mapping does. */
        pages = (fuzz.bytes + 4095) / 4096 * 4096;
        fuzz.memory = mmap(NULL, pages + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert(fuzz.memory != MAP_FAILED);
        assert(mprotect((uint8_t *)fuzz.memory + pages, 4096, PROT_NONE) == 0);
        net_area_init(fuzz.memory, CAPACITY, STAGING);
        area.memory = fuzz.memory;
        area.size = fuzz.bytes;
        area.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert(area.wake_fd >= 0);
        assert(fabric_area_add(fuzz.fabric, &area) == 0);
        fuzz.rail.fabric = fuzz.fabric;
        fuzz.rail.transport = &transport_tcp;
        fuzz.rail.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        fuzz.rail.wake_fd = fuzz.rail.listen_fd = -1;
        fuzz.rail.window = 1 << 20;
        fuzz.rail.nominal = fuzz.rail.estimate = 1000000000;
        fuzz.rail.enabled = true;
        fuzz.rail.scratch = malloc(65536);
        schedule_init(&fuzz.rail.schedule, 512, 1 << 20);
        fuzz.peer.node = nodes[1];
        assert(route_new(fuzz.fabric, &fuzz.peer, &fuzz.rail, &address, &fuzz.peer.routes[0]) == 0);
        fuzz.peer.n_routes = 1;
}

static void push(int fd, const void *bytes, size_t size) {
        (void)!send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL); /* what does not fit is not said */
}

static void push_frame(int fd, uint64_t *sequence, uint64_t *n_offered) {
        uint8_t kind = (uint8_t)(1 + take(1) % (FRAME_KIND_COUNT - 1)), flags = (uint8_t)take(1);
        struct frame frame = {.kind = kind,
                              .source = (uint8_t)take(1) % 3,
                              .destination = (uint8_t)take(1) % 3,
                              .value = (uint32_t)take(4),
                              .connection = 5,
                              .key = flags & 1          ? take(8)
                                     : kind < FRAME_ACK ? 7
                                                        : 5 + take(1) % 3,
                              .line_offset = flags & 2 ? take(8) : take(2) * 64,
                              .data_offset = flags & 4 ? take(8) : take(2) * 64,
                              .ack = flags & 8 ? take(1) : 0};
        uint8_t head[FRAME_HEAD_MAX], line[FRAME_LINE], bytes[1024], trailer[FRAME_TRAILER];

        if (kind == FRAME_CHUNK)
                frame.data_bytes = (uint32_t)take(2) % (sizeof(bytes) + 1);
        if (kind <= FRAME_SKIP) {
                frame.sequence = flags & 16 ? take(8) : ++*sequence;
                ++*n_offered;
        }
        memset(line, (int)frame.value, sizeof(line));
        memset(bytes, (int)frame.value, sizeof(bytes));
        push(fd, head, frame_pack(&frame, line, head));
        if (frame.data_bytes == 0)
                return;
        push(fd, bytes, flags & 32 ? frame.data_bytes / 2 : frame.data_bytes);
        frame_pack_trailer(flags & 64 ? FRAME_TORN : FRAME_WHOLE,
                           crc32c(0, bytes, frame.data_bytes) ^ (flags & 128 ? 1u : 0u), trailer);
        push(fd, trailer, sizeof(trailer));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        uint64_t sequence = 0, n_offered = 0, raw_bytes = 0, offset;
        struct fabric_conn *conn;
        struct hello hello;
        uint8_t queue[CAPACITY * sizeof(struct net_descriptor)];
        int fds[2];

        fuzz_setup();
        if (size >= HELLO_BYTES)
                (void)hello_unpack(data, &hello);
        input = data;
        input_end = data + size;
        offset = fuzz.memory->memory_offset;
        memcpy(queue, (uint8_t *)fuzz.memory + NET_QUEUE, sizeof(queue));
        assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);

        pthread_mutex_lock(&fuzz.fabric->lock);
        assert(conn_new(&fuzz.rail, fds[0], true, 1, &conn) == 0);
        conn->peer = &fuzz.peer;
        conn->port = &fuzz.peer.routes[0]->ports[FABRIC_NORMAL];
        conn->port->conn = conn;
        conn->number = 5;
        conn->state = CONN_UP;
        fuzz.peer.n_up++;
        fuzz.rail.n_up++;
        while (input < input_end && !conn->doomed) {
                if (take(1) % 8 == 0) {
                        uint8_t raw[64];
                        size_t n = take(1) % sizeof(raw);

                        for (size_t i = 0; i < n; i++)
                                raw[i] = (uint8_t)take(1);
                        push(fds[1], raw, n);
                        raw_bytes += n;
                } else {
                        push_frame(fds[1], &sequence, &n_offered);
                }
                conn->rail->transport->conn_receive(conn, 1);
                if (!conn->doomed) {
                        recover_send(fuzz.fabric, conn);
                        conn_send(conn);
                }
        }
        /* A sequence of the fuzzer's choice may be the right one, and so may raw bytes be a frame. */
        assert(conn->received <= n_offered + raw_bytes / FRAME_HEAD);
        conn_doom(conn, false, "the end");
        conn_bury(conn, 1);
        graves_free(fuzz.fabric, &fuzz.peer);
        fuzz.peer.grave_work = false;
        assert(!fuzz.rail.conns && fuzz.peer.n_up == 0 && fuzz.rail.flight_bytes == 0 && fuzz.peer.n_items == 0);
        assert(fuzz.memory->memory_offset == offset && fuzz.memory->capacity == CAPACITY);
        assert(memcmp(queue, (uint8_t *)fuzz.memory + NET_QUEUE, sizeof(queue)) == 0);
        assert(fuzz.fabric->areas->n_users == 0);
        pthread_mutex_unlock(&fuzz.fabric->lock);
        fabric_dispatch(fuzz.fabric);
        close(fds[1]);
        return 0;
}
