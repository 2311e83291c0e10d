/* SPDX-License-Identifier: MIT */
/* Who must not get in, what must not be written, and that both are counted and cost the others nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/frame.h"
#include "tests/fabric/stranger.h"
#include "tests/time_scale.h"
#include "util/clock.h"

static const struct rig_options usual = {.n_nodes = 2,
                                         .n_rails = 1,
                                         .ranks = {1, 1},
                                         .slot_bytes = 512,
                                         .key = 9,
                                         .chunks = 300,
                                         .times = {.handshake = 300}};

static void test_refused(void **state) {
        static const uint8_t token = 1; /* of the pair 0, 1: see rig_peer() */
        struct fabric_counters counters;
        static struct rig rig;
        struct hello hello;
        uint8_t garbage[4096];
        uint64_t random = 77;
        int fd;

        (void)state;
        rig_new(&rig, &usual);
        rig_run(&rig, 20);

        hello = stranger_hello_of(&rig);
        assert_int_equal(stranger_ask(&rig, &hello, token + 1, NULL), HELLO_E_TOKEN);
        memcpy(hello.cluster, "toast", 6);
        assert_int_equal(stranger_ask(&rig, &hello, token, NULL), HELLO_E_CLUSTER);
        hello = stranger_hello_of(&rig);
        hello.from_epoch++;
        assert_int_equal(stranger_ask(&rig, &hello, token, NULL), HELLO_E_EPOCH);
        hello = stranger_hello_of(&rig);
        hello.to_epoch++;
        assert_int_equal(stranger_ask(&rig, &hello, token, NULL), HELLO_E_EPOCH);
        hello = stranger_hello_of(&rig);
        hello.to.id[3]++;
        assert_int_equal(stranger_ask(&rig, &hello, token, NULL), HELLO_E_NODE);
        hello = stranger_hello_of(&rig);
        hello.from.id[3]++;
        assert_int_equal(stranger_ask(&rig, &hello, token, NULL), HELLO_E_PEER);
        hello = stranger_hello_of(&rig);
        memcpy(hello.rail, "red", 4);
        assert_int_equal(stranger_ask(&rig, &hello, token, NULL), HELLO_E_RAIL);
        hello = stranger_hello_of(&rig);
        hello.kind = HELLO_KNOCK; /* the lower one dials, and does not knock */
        assert_int_equal(stranger_ask(&rig, &hello, token, NULL), HELLO_E_NUMBER);
        hello = stranger_hello_of(&rig);
        hello.number = 1; /* used by the real one */
        assert_int_equal(stranger_ask(&rig, &hello, token, NULL), HELLO_E_NUMBER);
        fabric_counters(rig.nodes[1].fabric, &counters);
        assert_int_equal(counters.refused, 9);
        assert_int_equal(counters.refused_token, 1);
        assert_int_equal(counters.refused_epoch, 2);

        for (size_t i = 0; i < sizeof(garbage); i++)
                garbage[i] = (uint8_t)rig_random(&random);
        fd = stranger_dial(&rig, 1);
        stranger_say(fd, garbage, sizeof(garbage));
        stranger_hear_end(fd);
        fd = stranger_dial(&rig, 1); /* says nothing, and is closed when its time is up */
        stranger_hear_end(fd);
        fd = stranger_dial(&rig, 1); /* half a hello */
        stranger_say(fd, "railmux\1", 8);
        stranger_hear_end(fd);
        fabric_counters(rig.nodes[1].fabric, &counters);
        assert_int_equal(counters.refused, 12);

        /* And nobody felt it. */
        rig.options.chunks += 300;
        rig_run(&rig, 20);
        fabric_counters(rig.nodes[1].fabric, &counters);
        assert_int_equal(counters.retransmitted + counters.malformed, 0);
        rig_free(&rig);
}

/* More strangers than are let in at once, from where the peer is, too: it gets through all the same. */
static void test_many_strangers(void **state) {
        static struct rig rig;
        int fds[100];

        (void)state;
        rig_new(&rig, &usual);
        for (size_t i = 0; i < 100; i++)
                fds[i] = stranger_dial(&rig, 1);
        rig_run(&rig, 20);
        for (size_t i = 0; i < 100; i++)
                stranger_hear_end(fds[i]);
        rig_free(&rig);
}

/* One that has the token and lies: what is not for it to write is not written. */
static void send_frame(int fd, struct frame frame, uint64_t *sequence) {
        uint8_t head[FRAME_HEAD_MAX], line[FRAME_LINE], data[256], trailer[FRAME_TRAILER];

        memset(line, 0x66, sizeof(line));
        memset(data, 0x66, sizeof(data));
        frame.connection = 1000000;
        frame.sequence = ++*sequence;
        stranger_say(fd, head, frame_pack(&frame, line, head));
        if (frame.data_bytes) {
                assert_true(frame.data_bytes <= sizeof(data));
                stranger_say(fd, data, frame.data_bytes);
                frame_pack_trailer(FRAME_WHOLE, 0, trailer); /* a checksum that cannot be right */
                stranger_say(fd, trailer, sizeof(trailer));
        }
}

static void test_liar(void **state) {
        static struct rig rig;
        struct fabric_counters counters;
        uint8_t *before;
        struct hello hello;
        uint64_t sequence = 0, offset, end;
        uint64_t end_ns = clock_now_ns() + UINT64_C(10000000000) * time_scale();
        int fd;

        (void)state;
        rig_start(&rig, &usual);
        rig_peer(&rig, 1, 0, NULL);
        rig_area(&rig, 1);
        hello = stranger_hello_of(&rig);
        assert_int_equal(stranger_ask(&rig, &hello, 1, &fd), HELLO_OK);
        before = malloc(rig.nodes[1].size);
        assert_non_null(before);
        offset = rig.nodes[1].area->memory_offset;
        end = offset + rig.nodes[1].area->memory_bytes;
        memcpy(before + offset, (uint8_t *)rig.nodes[1].area + offset, end - offset);

        send_frame(fd,
                   (struct frame){.kind = FRAME_CREDIT,
                                  .key = 8,
                                  .source = 0,
                                  .destination = 1,
                                  .value = 9,
                                  .line_offset = offset},
                   &sequence);
        send_frame(fd,
                   (struct frame){.kind = FRAME_CREDIT,
                                  .key = 9,
                                  .source = 1,
                                  .destination = 1,
                                  .value = 9,
                                  .line_offset = offset},
                   &sequence);
        send_frame(fd,
                   (struct frame){.kind = FRAME_CREDIT,
                                  .key = 9,
                                  .source = 0,
                                  .destination = 0,
                                  .value = 9,
                                  .line_offset = offset},
                   &sequence);
        send_frame(fd,
                   (struct frame){.kind = FRAME_CREDIT,
                                  .key = 9,
                                  .source = 0,
                                  .destination = 200,
                                  .value = 9,
                                  .line_offset = offset},
                   &sequence);
        send_frame(fd,
                   (struct frame){
                           .kind = FRAME_CREDIT, .key = 9, .source = 0, .destination = 1, .value = 9, .line_offset = 0},
                   &sequence);
        send_frame(
                fd,
                (struct frame){
                        .kind = FRAME_CREDIT, .key = 9, .source = 0, .destination = 1, .value = 9, .line_offset = end},
                &sequence);
        send_frame(fd,
                   (struct frame){.kind = FRAME_CREDIT,
                                  .key = 9,
                                  .source = 0,
                                  .destination = 1,
                                  .value = 9,
                                  .line_offset = offset + 4},
                   &sequence);
        send_frame(fd,
                   (struct frame){.kind = FRAME_CHUNK,
                                  .key = 9,
                                  .source = 0,
                                  .destination = 1,
                                  .value = 9,
                                  .line_offset = UINT64_MAX - 63},
                   &sequence);
        /* Its data run over the end: they are read, and thrown away; the wrong checksum ends the connection. */
        send_frame(fd,
                   (struct frame){.kind = FRAME_CHUNK,
                                  .key = 9,
                                  .source = 0,
                                  .destination = 1,
                                  .value = 9,
                                  .line_offset = offset,
                                  .data_offset = end - 64,
                                  .data_bytes = 128},
                   &sequence);
        stranger_hear_end(fd);
        fabric_counters(rig.nodes[1].fabric, &counters);
        assert_int_equal(counters.unknown_area, 1);
        assert_int_equal(counters.wrong_rank, 3);
        assert_int_equal(counters.out_of_bounds, 5);
        assert_int_equal(counters.corrupted, 1);
        assert_int_equal(counters.chunks_arrived + counters.credits_arrived, 0);
        assert_memory_equal((uint8_t *)rig.nodes[1].area + offset, before + offset, end - offset);
        while (rig.nodes[1].violations == 0) {
                rig_dispatch(&rig);
                assert_true(clock_now_ns() < end_ns);
        }

        /* In its place, with a wrong checksum: the data lie in the slot, but nobody is told. */
        hello.number++;
        assert_int_equal(stranger_ask(&rig, &hello, 1, &fd), HELLO_OK);
        sequence = 0;
        {
                struct frame frame = {.kind = FRAME_CHUNK,
                                      .source = 0,
                                      .destination = 1,
                                      .value = 9,
                                      .key = 9,
                                      .line_offset = offset,
                                      .data_offset = offset + 64,
                                      .data_bytes = 128,
                                      .connection = 1000001,
                                      .sequence = 1};
                uint8_t head[FRAME_HEAD_MAX], bytes[128] = {0};

                stranger_say(fd, head, frame_pack(&frame, bytes, head));
                stranger_say(fd, bytes, 128);
                stranger_say(fd, bytes, 8);
                stranger_hear_end(fd);
        }
        assert_memory_equal((uint8_t *)rig.nodes[1].area + offset, before + offset, NET_LINE);
        /* Out of order, and of another connection. */
        for (unsigned int i = 0; i < 2; i++) {
                struct frame frame = {.kind = FRAME_CREDIT,
                                      .source = 0,
                                      .destination = 1,
                                      .value = 9,
                                      .key = 9,
                                      .line_offset = offset,
                                      .sequence = 2 - i};
                uint8_t head[FRAME_HEAD_MAX];

                hello.number++;
                frame.connection = hello.number + i;
                assert_int_equal(stranger_ask(&rig, &hello, 1, &fd), HELLO_OK);
                stranger_say(fd, head, frame_pack(&frame, NULL, head));
                stranger_hear_end(fd);
        }
        fabric_counters(rig.nodes[1].fabric, &counters);
        assert_int_equal(counters.malformed, 2);
        assert_int_equal(counters.corrupted, 2);
        assert_memory_equal((uint8_t *)rig.nodes[1].area + offset, before + offset, NET_LINE);
        free(before);
        rig_free(&rig);
}

/* What an executor must not post. */
static void test_own_executor(void **state) {
        static struct rig rig;
        struct fabric_counters counters = {0};
        struct net_descriptor d = {.kind = NET_CREDIT, .source = 0, .destination = 1, .value = 1};
        uint64_t offset, end_ns = clock_now_ns() + UINT64_C(10000000000) * time_scale();
        const uint64_t one = 1;

        (void)state;
        rig_new(&rig, &usual);
        offset = rig.nodes[0].area->memory_offset;
        d.line_offset = offset - 64;
        net_area_post(rig.nodes[0].area, &d);
        d.line_offset = offset;
        d.source = 1; /* not here */
        net_area_post(rig.nodes[0].area, &d);
        d.source = d.destination = 0;
        net_area_post(rig.nodes[0].area, &d);
        d.destination = 99;
        net_area_post(rig.nodes[0].area, &d);
        d.kind = 7;
        net_area_post(rig.nodes[0].area, &d);
        assert_int_equal(write(fabric_doorbell_fd(rig.nodes[0].fabric), &one, 8), 8);
        while (counters.out_of_bounds < 2 || counters.wrong_rank < 3) {
                fabric_counters(rig.nodes[0].fabric, &counters);
                assert_true(clock_now_ns() < end_ns);
        }
        rig_dispatch(&rig);
        assert_int_equal(rig.nodes[0].violations, 1); /* one text a second */
        rig_run(&rig, 20);
        rig_free(&rig);
}

/* An executor that has gone wild writes to the header of its area as well: nothing is looked for behind the queue. */
static void test_own_header(void **state) {
        static struct rig rig;
        struct fabric_counters counters;
        uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale();
        const uint32_t capacities[] = {0, UINT32_C(1) << 31};
        const uint64_t one = 1;
        uint32_t capacity;

        (void)state;
        rig_new(&rig, &usual);
        capacity = rig.nodes[0].area->capacity;
        for (uint32_t i = 0; i < 3 * capacity; i++) {
                struct net_area *area = rig.nodes[0].area;
                const uint32_t position = atomic_fetch_add(&area->tail, 1);
                struct net_descriptor *d = net_area_descriptor(area, capacity, position);

                area->capacity = capacities[i % 2];
                d->kind = 7;
                atomic_store(&d->turn, position + 1);
                if (net_area_wake_fabric(area))
                        assert_int_equal(write(fabric_doorbell_fd(rig.nodes[0].fabric), &one, 8), 8);
                do {
                        fabric_counters(rig.nodes[0].fabric, &counters);
                        if (clock_now_ns() > end_ns)
                                fail_msg("%u of %u descriptors were taken", i, 3 * capacity);
                } while (counters.out_of_bounds <= i);
        }
        rig.nodes[0].area->capacity = capacity;
        rig_run(&rig, 20);
        rig_free(&rig);
}

static void test_bad_options(void **state) {
        struct fabric_rail_options rail = {.name = "x", .kind = "tcp", .address = "192.0.2.1"};
        static struct rig rig;
        struct fabric *fabric;

        (void)state;
        rig_new(&rig, &usual);
        fabric = rig.nodes[0].fabric;
        assert_int_equal(fabric_rail_add(fabric, &rail), FABRIC_E_PLAIN);
        assert_non_null(strstr(fabric_error(fabric), "192.0.2.1"));
        rail.address = "localhost";
        assert_int_equal(fabric_rail_add(fabric, &rail), FABRIC_E_ARGUMENT);
        rail.address = "127.0.0.1";
        rail.port = rig_port(&rig, 1, 0);
        assert_int_equal(fabric_rail_add(fabric, &rail), FABRIC_E_ADDRESS);
        assert_int_equal(fabric_errno(fabric), EADDRINUSE);
        rail.port = 0;
        rail.name = "blue";
        assert_int_equal(fabric_rail_add(fabric, &rail), FABRIC_E_EXISTS);
        assert_int_equal(fabric_errno(fabric), 0);
        rail.name = "x";
        rail.kind = "pigeon";
        assert_int_equal(fabric_rail_add(fabric, &rail), FABRIC_E_ARGUMENT);
        assert_int_equal(fabric_peer_remove(fabric, &rig.nodes[0].id), FABRIC_E_UNKNOWN);
        assert_int_equal(fabric_area_remove(fabric, 12345), FABRIC_E_UNKNOWN);
        rig_free(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_refused),    cmocka_unit_test(test_many_strangers),
                cmocka_unit_test(test_liar),       cmocka_unit_test(test_own_executor),
                cmocka_unit_test(test_own_header), cmocka_unit_test(test_bad_options),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
