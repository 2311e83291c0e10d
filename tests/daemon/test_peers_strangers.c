/* SPDX-License-Identifier: MIT */
/* What strangers, and members that break the protocol, are told, and what they may cost. */
#include "tests/daemon/peers_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/peer_frame.h"
#include "daemon/peer_private.h"
#include "util/log.h"

#define PEERS_CROWD 65u /* one more than there are places for */

static void start(struct world *world, unsigned int i) {
        struct peers_options options = node_options(world, i);

        node_start(world, i, &options);
}

struct hello {
        uint32_t version_min, version_max;
        const char *cluster, *address, *name;
        size_t node_bytes, nonce_bytes;
        uint64_t boot;
        uint8_t node;
};
static const struct hello honest = {PEER_PROTOCOL_MIN, PEER_PROTOCOL_MAX, "test", "127.0.0.1:9", "x", 16, 32, 5, 0x90};
static bool hello_classes; /* they say that they take all */

static size_t hello_pack(const struct hello *from, uint8_t out[4096]) {
        Railmux__Peer__Hello hello = RAILMUX__PEER__HELLO__INIT;
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        uint8_t node[64], nonce[64], *data;
        size_t size;

        memset(node, from->node, sizeof(node));
        memset(nonce, 7, sizeof(nonce));
        hello.version_min = from->version_min;
        hello.version_max = from->version_max;
        hello.cluster = (char *)from->cluster;
        hello.address = (char *)from->address;
        hello.name = (char *)from->name;
        hello.node = (ProtobufCBinaryData){.len = from->node_bytes, .data = node};
        hello.nonce = (ProtobufCBinaryData){.len = from->nonce_bytes, .data = nonce};
        hello.boot = from->boot;
        hello.classes = hello_classes;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_HELLO;
        message.hello = &hello;
        assert_int_equal(peer_frame_pack(&message, 4092, &data, &size), 0);
        memcpy(out, data, size);
        free(data);
        return size;
}

static void refuses_hellos(void **state) {
        static char long_name[80];
        const struct {
                struct hello hello;
                int code;
                const char *text;
        } cases[] = {
                {{5, 9, "test", "", "x", 16, 32, 5, 0x90}, 1, "protocol 4 to 4 meets protocol 5 to 9"},
                {{2, 2, "test", "", "x", 16, 32, 5, 0x90}, 1, "protocol 4 to 4 meets protocol 2 to 2"},
                {{0, 0, "test", "", "x", 16, 32, 5, 0x90}, 1, "protocol 4 to 4 meets protocol 0 to 0"},
                {{6, 2, "test", "", "x", 16, 32, 5, 0x90}, 1, "meets protocol 6 to 2"},
                {{5, 9, "other", "", "", 0, 0, 0, 0x90},
                 1,
                 "protocol"}, /* what a later one may not change comes first */
                {{1, 9, "other", "", "", 0, 0, 0, 0x90}, 2, "cluster test meets cluster other"},
                {{4, 4, "te\033[31mst", "", "x", 16, 32, 5, 0x90}, 2, "cluster test meets cluster ?"},
                {{4, 4, "", "", "x", 16, 32, 5, 0x90}, 2, "cluster test meets cluster "},
                {{4, 4, "test", "", "x", 15, 32, 5, 0x90}, 7, "HELLO is malformed"},
                {{4, 4, "test", "", "x", 17, 32, 5, 0x90}, 7, "HELLO is malformed"},
                {{4, 4, "test", "", "x", 0, 32, 5, 0x90}, 7, "HELLO is malformed"},
                {{4, 4, "test", "", "x", 16, 31, 5, 0x90}, 7, "HELLO is malformed"},
                {{4, 4, "test", "", "x", 16, 32, 0, 0x90}, 7, "HELLO is malformed"},
                {{4, 4, "test", "", "a b", 16, 32, 5, 0x90}, 7, "HELLO is malformed"},
                {{4, 4, "test", "", long_name, 16, 32, 5, 0x90}, 7, "HELLO is malformed"},
                {{4, 4, "test", "nowhere", "x", 16, 32, 5, 0x90}, 7, "HELLO is malformed"},
        };
        struct world *world = *state;
        struct node *a = &world->node[0];

        memset(long_name, 'n', sizeof(long_name) - 1);
        start(world, 0);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                int fd = stranger_connect(world, 0);
                char text[PEER_TEXT_MAX];
                uint8_t data[4096];
                size_t size = hello_pack(&cases[i].hello, data);

                assert_int_equal(write(fd, data, size), size);
                assert_int_equal(stranger_refusal(world, fd, text), cases[i].code);
                if (!strstr(text, cases[i].text))
                        fail_msg("case %zu: '%s' instead of '%s'", i, text, cases[i].text);
                close(fd);
        }
        assert_int_equal(peers_counters(a->peers)->refused, sizeof(cases) / sizeof(cases[0]));
        assert_int_equal(a->ups + a->losts + a->faileds, 0);
}

static void frame_header(uint8_t data[4], uint32_t length) {
        for (unsigned int i = 0; i < 4; i++)
                data[i] = (uint8_t)(length >> (8 * i));
}

static void refuses_garbage(void **state) {
        struct world *world = *state;
        uint8_t data[8192], hello[4096];
        size_t hello_size = hello_pack(&honest, hello);
        char text[PEER_TEXT_MAX];
        int fd;

        start(world, 0);
        /* A length of 64 MiB, or none: refused as soon as it is read. */
        fd = stranger_connect(world, 0);
        frame_header(data, 64u << 20);
        assert_int_equal(write(fd, data, 4), 4);
        assert_int_equal(stranger_refusal(world, fd, text), 7);
        assert_string_equal(text, "a message of 67108864 bytes, or no railmuxd");
        close(fd);
        fd = stranger_connect(world, 0);
        frame_header(data, 0);
        assert_int_equal(write(fd, data, 4), 4);
        assert_int_equal(stranger_refusal(world, fd, text), 7);
        close(fd);
        /* One byte more than a stranger's message may have. */
        fd = stranger_connect(world, 0);
        frame_header(data, PEER_HELLO_MAX + 1);
        assert_int_equal(write(fd, data, 4), 4);
        assert_int_equal(stranger_refusal(world, fd, text), 7);
        close(fd);
        /* Text of another protocol, and a lot of it: the answer still arrives. */
        fd = stranger_connect(world, 0);
        memset(data, 'G', sizeof(data));
        assert_int_equal(write(fd, data, sizeof(data)), sizeof(data));
        assert_int_equal(stranger_refusal(world, fd, text), 7);
        close(fd);
        /* What TLS begins with. */
        fd = stranger_connect(world, 0);
        assert_int_equal(write(fd, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9), 9);
        assert_int_equal(stranger_refusal(world, fd, text), 7);
        assert_non_null(strstr(text, "it speaks TLS"));
        close(fd);
        /* A frame of nonsense. */
        fd = stranger_connect(world, 0);
        frame_header(data, 8);
        memset(data + 4, 0xff, 8);
        assert_int_equal(write(fd, data, 12), 12);
        assert_int_equal(stranger_refusal(world, fd, text), 7);
        assert_string_equal(text, "a message that cannot be unpacked");
        close(fd);
        /* Two HELLOs; HELLO and something that is not for it to say. */
        fd = stranger_connect(world, 0);
        assert_int_equal(write(fd, hello, hello_size), hello_size);
        assert_int_equal(write(fd, hello, hello_size), hello_size);
        assert_int_equal(stranger_refusal(world, fd, text), 7);
        assert_string_equal(text, "a message that is not expected now");
        close(fd);
        {
                static const Railmux__Peer__Message__BodyCase wrong[] = {
                        RAILMUX__PEER__MESSAGE__BODY_WELCOME, RAILMUX__PEER__MESSAGE__BODY_PING,
                        RAILMUX__PEER__MESSAGE__BODY_PONG, RAILMUX__PEER__MESSAGE__BODY_GO};

                for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
                        Railmux__Peer__Welcome welcome = RAILMUX__PEER__WELCOME__INIT;
                        Railmux__Peer__Ping ping = RAILMUX__PEER__PING__INIT;
                        Railmux__Peer__Pong pong = RAILMUX__PEER__PONG__INIT;
                        Railmux__Peer__Go go = RAILMUX__PEER__GO__INIT;
                        uint8_t *packed;
                        size_t size;

                        message.body_case = wrong[i];
                        if (i == 0)
                                message.welcome = &welcome;
                        else if (i == 1)
                                message.ping = &ping;
                        else if (i == 2)
                                message.pong = &pong;
                        else
                                message.go = &go;
                        assert_int_equal(peer_frame_pack(&message, 100, &packed, &size), 0);
                        for (unsigned int with_hello = 0; with_hello < 2; with_hello++) {
                                fd = stranger_connect(world, 0);
                                if (with_hello)
                                        assert_int_equal(write(fd, hello, hello_size), hello_size);
                                assert_int_equal(write(fd, packed, size), size);
                                assert_int_equal(stranger_refusal(world, fd, text), 7);
                                close(fd);
                        }
                        free(packed);
                }
        }
        assert_int_equal(world->node[0].ups + world->node[0].n_messages, 0);
}

/* Half a frame and silence, or a byte now and then: one deadline for all of it. */
static void waits_only_so_long(void **state) {
        struct world *world = *state;
        struct peers_options options = node_options(world, 0);
        uint8_t hello[4096];
        size_t size = hello_pack(&honest, hello), sent = 0;
        uint64_t start_ns, next_ns;
        int silent, half, slow, done;
        char text[PEER_TEXT_MAX];

        options.handshake_ms = 400;
        node_start(world, 0, &options);
        silent = stranger_connect(world, 0);
        half = stranger_connect(world, 0);
        slow = stranger_connect(world, 0);
        done = stranger_connect(world, 0);
        assert_int_equal(write(half, hello, size / 2), size / 2);
        assert_int_equal(write(done, hello, size), size); /* and then no CLAIM */
        start_ns = next_ns = clock_now_ns();
        while (send(slow, hello + sent, 1, MSG_NOSIGNAL) == 1) {
                sent = (sent + 1) % (size / 2);
                next_ns += 50000000;
                while (clock_now_ns() < next_ns)
                        world_turn(world);
                if (sent == size / 2 - 1)
                        break;
                if (peers_counters(world->node[0].peers)->handshakes_failed >= 3)
                        break;
        }
        world_until(world, peers_counters(world->node[0].peers)->handshakes_failed == 3);
        assert_true(clock_now_ns() - start_ns >= 390000000);
        assert_int_equal(stranger_refusal(world, silent, text), -1);
        assert_int_equal(stranger_refusal(world, half, text), -1);
        assert_int_equal(stranger_refusal(world, slow, text), -1);
        assert_int_equal(stranger_refusal(world, done, text), -1);
        close(silent);
        close(half);
        close(slow);
        close(done);
}

/* Many that say nothing: an honest one gets in all the same, and they cost a bounded number of connections. */
static void crowd(void **state) {
        struct world *world = *state;
        struct peers_options options;
        int fds[200];
        unsigned int closed = 0;

        for (unsigned int i = 0; i < 2; i++) {
                options = node_options(world, i);
                options.handshake_ms = 600000;
                node_start(world, i, &options);
        }
        for (unsigned int i = 0; i < 200; i++) {
                fds[i] = stranger_connect(world, 1);
                world_turn(world);
        }
        node_dial(world, 0, 1);
        world_until(world, world->node[0].ups && world->node[1].ups);
        world_until(world, peers_counters(world->node[1].peers)->accepted == 201);
        world_turn_for(world, 20);
        for (unsigned int i = 0; i < 200; i++) {
                uint8_t data[512];
                ssize_t n;

                do
                        n = read(fds[i], data, sizeof(data));
                while (n > 0);
                closed += n == 0 || errno == ECONNRESET;
                close(fds[i]);
        }
        assert_true(closed >= 200 - 64);
        assert_true(closed < 200);
        assert_true(peer_is_up(world->node[0].up));
}

/* A host at which a peer is known has places of its own: two that have lost each other find back while so many come
 * from elsewhere that each of them lives for less than a turn of the loop. */
static void crowd_elsewhere(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        int fds[4 * PEERS_CROWD];
        unsigned int n = 0;

        nodes_start_two(world);
        node_dial(world, 0, 1);
        world_until(world, a->ups && b->ups);
        peer_drop(b->up, "said by the test");
        for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
                fds[i] = -1;
        world_until(world, a->losts);
        while (a->ups == 1 || b->ups == 1) {
                for (unsigned int i = 0; i < PEERS_CROWD; i++) {
                        int *fd = &fds[n++ % (sizeof(fds) / sizeof(fds[0]))];

                        if (*fd >= 0)
                                close(*fd);
                        *fd = stranger_connect_from(world, 1, "127.0.0.2");
                }
                world_turn(world);
                assert_true(n < 2000 * PEERS_CROWD);
        }
        for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
                if (fds[i] >= 0)
                        close(fds[i]);
}

/* Without descriptors nobody is accepted, the loop does not turn over that, and later all is well. */
static void runs_out_of_descriptors(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0];
        struct rlimit before, none;
        unsigned int turns = 0;
        uint64_t end_ns;
        char text[PEER_TEXT_MAX];
        int fd;

        start(world, 0);
        fd = stranger_connect(world, 0);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        none = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        for (end_ns = clock_now_ns() + 500000000; clock_now_ns() < end_ns; turns++)
                world_turn(world);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(peers_counters(a->peers)->accepted, 0);
        assert_true(turns < 300); /* a pulse every 5 ms, and a few more */
        assert_int_equal(write(fd, "\xff\xff\xff\xff", 4), 4);
        world_until(world, peers_counters(a->peers)->accepted == 1);
        assert_int_equal(stranger_refusal(world, fd, text), 7);
        close(fd);
}

/* A state that was copied to another machine: two nodes of one id. The one that is connected stays. */
static void one_id_two_names(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1], *copy = &world->node[2];
        struct peers_options options;

        start(world, 0);
        start(world, 1);
        node_dial(world, 1, 0);
        world_until(world, a->ups && b->ups);
        options = node_options(world, 2);
        memcpy(options.node, b->id, sizeof(options.node));
        options.boot = 3;
        node_start(world, 2, &options);
        node_dial(world, 2, 0);
        world_until(world, copy->faileds > 0);
        assert_non_null(strstr(copy->failed_text, "node gamma has the node id of beta, which is connected"));
        assert_int_equal(a->ups + b->ups, 2);
        assert_int_equal(a->losts + b->losts, 0);
        /* Without the other one it may come. */
        node_stop(world, 1);
        world_until(world, copy->ups == 1);
        assert_string_equal(peer_name(peer_find(a->peers, copy->id)), "gamma");
}

/* The WELCOME (or CLAIM) that a stranger has received, while the loop turns; its version, or 0 of a CLAIM. */
static uint32_t stranger_agreed(struct world *world, int fd) {
        const uint64_t end_ns = clock_now_ns() + UINT64_C(60000000000);
        uint8_t data[4096];
        size_t n = 0, at = 0, length;

        for (;;) {
                ssize_t got = read(fd, data + n, sizeof(data) - n);

                if (got > 0)
                        n += (size_t)got;
                while (peer_frame_length(data + at, n - at, PEER_MESSAGE_MAX, &length) == 0) {
                        Railmux__Peer__Message *message;
                        struct frame_arena arena;
                        const char *field;
                        uint32_t version;
                        bool hello;

                        assert_int_equal(
                                peer_frame_unpack(data + at + PEER_FRAME_HEADER, length, &arena, &field, &message), 0);
                        at += PEER_FRAME_HEADER + length;
                        hello = message->body_case == RAILMUX__PEER__MESSAGE__BODY_HELLO;
                        assert_true(hello || message->body_case == RAILMUX__PEER__MESSAGE__BODY_CLAIM ||
                                    message->body_case == RAILMUX__PEER__MESSAGE__BODY_WELCOME);
                        version = message->body_case == RAILMUX__PEER__MESSAGE__BODY_WELCOME ? message->welcome->version
                                                                                             : 0;
                        railmux__peer__message__free_unpacked(message, &arena.allocator);
                        if (!hello)
                                return version;
                }
                assert_true(clock_now_ns() < end_ns);
                world_turn(world);
        }
}

static void send_agreeing(int fd, Railmux__Peer__Message__BodyCase what, uint32_t version) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Claim claim = RAILMUX__PEER__CLAIM__INIT;
        Railmux__Peer__Welcome welcome = RAILMUX__PEER__WELCOME__INIT;
        uint8_t *packed;
        size_t size;

        message.body_case = what;
        claim.ended = UINT64_MAX;
        welcome.number = 1;
        welcome.version = version;
        if (what == RAILMUX__PEER__MESSAGE__BODY_CLAIM)
                message.claim = &claim;
        else
                message.welcome = &welcome;
        assert_int_equal(peer_frame_pack(&message, 100, &packed, &size), 0);
        assert_int_equal(write(fd, packed, size), size);
        free(packed);
}

/* Who knows other versions as well is let in, and the highest that both know is agreed on, whoever of the two decides;
 * nobody gets another one than that. What up() is told is looked at by the fixture. */
static void agrees_on_a_version(void **state) {
        static const uint32_t ranges[][2] = {
                {PEER_PROTOCOL_MIN, PEER_PROTOCOL_MAX},
                {PEER_PROTOCOL_MIN, PEER_PROTOCOL_MAX + 5},
                {PEER_PROTOCOL_MIN - 1, PEER_PROTOCOL_MAX},
                {1, UINT32_MAX},
        };
        const unsigned int n = sizeof(ranges) / sizeof(ranges[0]);
        struct world *world = *state;
        struct node *a = &world->node[0];
        char text[PEER_TEXT_MAX];
        uint8_t data[4096];

        start(world, 0);
        for (unsigned int i = 0; i < 3 * n; i++) {
                bool decides = i >= n, wrong = i >= 2 * n; /* the stranger, and as it may not */
                int fd = stranger_connect(world, 0);
                struct hello hello = honest;
                size_t size;

                hello.version_min = ranges[i % n][0];
                hello.version_max = ranges[i % n][1];
                hello.node = decides ? 0 : 0x90; /* the lower one does */
                hello_classes = i % 2;
                size = hello_pack(&hello, data);
                assert_int_equal(write(fd, data, size), size);
                if (!decides)
                        send_agreeing(fd, RAILMUX__PEER__MESSAGE__BODY_CLAIM, 0);
                assert_int_equal(stranger_agreed(world, fd), decides ? 0 : PEER_PROTOCOL_MAX);
                if (decides)
                        send_agreeing(fd, RAILMUX__PEER__MESSAGE__BODY_WELCOME, PEER_PROTOCOL_MAX + wrong);
                if (wrong) {
                        assert_int_equal(stranger_refusal(world, fd, text), 7);
                        assert_string_equal(text, "WELCOME is not what was agreed");
                } else {
                        world_until(world, a->ups == i + 1);
                        assert_int_equal(peer_takes_classes(a->up), hello_classes);
                }
                close(fd);
                world_until(world, a->losts == (wrong ? 2 * n : i + 1));
        }
        assert_int_equal(a->ups, 2 * n);
}

/* Somebody who has been let in and then breaks the protocol loses the connection, and nothing else happens. */
static void refuses_members(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0];
        uint8_t data[8192];
        char text[PEER_TEXT_MAX];
        size_t size;
        int fd;

        start(world, 0);
        for (unsigned int i = 0; i < 4; i++) {
                fd = stranger_connect(world, 0);
                size = hello_pack(&honest, data);
                assert_int_equal(write(fd, data, size), size);
                send_agreeing(fd, RAILMUX__PEER__MESSAGE__BODY_CLAIM, 0); /* its id is the higher one */
                world_until(world, a->ups == i + 1);
                if (i == 0) { /* too long */
                        frame_header(data, PEER_MESSAGE_MAX + 1);
                        size = 4;
                } else if (i == 1) { /* JOIN without its comm id */
                        frame_header(data, 3);
                        memcpy(data + 4, "\x82\x01\x00", 3);
                        size = 7;
                } else if (i == 2) { /* HELLO again */
                        size = hello_pack(&honest, data);
                } else { /* a message that this version does not know */
                        frame_header(data, 4);
                        memcpy(data + 4, "\xca\x3e\x01x", 4);
                        size = 8;
                }
                assert_int_equal(write(fd, data, size), size);
                assert_int_equal(stranger_refusal(world, fd, text), 7);
                if (i == 1)
                        assert_string_equal(text, "a message with a bad size of join.comm_id");
                close(fd);
                assert_int_equal(a->losts, i + 1);
        }
        assert_int_equal(a->n_messages, 0);
}

/* From an address of this machine. cluster: that it says it is of; NULL: it says nothing that makes sense. */
static void knock(struct world *world, const char *from, const char *cluster) {
        const struct hello hello = {4, 4, cluster, "", "x", 16, 32, 5, 0x90};
        int fd = stranger_connect_from(world, 0, from);
        uint8_t data[4096] = {0};
        size_t size = cluster ? hello_pack(&hello, data) : 4;
        char text[PEER_TEXT_MAX];

        assert_int_equal(write(fd, data, size), size);
        (void)stranger_refusal(world, fd, text);
        close(fd);
}

/* Who knocks all the time with the same mistake is one line of the log, and keeps nobody else out of it; neither does
 * who makes another mistake each time. */
static void tells_each_once(void **state) {
        struct world *world = *state;
        char name[8], line[512];
        FILE *log = fdopen(memfd_create("log", MFD_CLOEXEC), "w+");
        int stderr_fd = dup(STDERR_FILENO), n_garbage = 0, n_other = 0, n_last = 0;

        start(world, 0);
        assert_non_null(log);
        assert_true(stderr_fd >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
        log_set_level(LOG_LEVEL_WARNING);
        for (unsigned int i = 0; i < 2 * PEERS_TELL_MAX; i++)
                knock(world, "127.0.0.1", NULL);
        knock(world, "127.0.0.1", "other");
        for (unsigned int i = 0; i < 2 * PEERS_TELL_MAX; i++) {
                snprintf(name, sizeof(name), "a%u", i);
                knock(world, "127.0.0.1", name);
        }
        knock(world, "127.0.0.11", "last");
        log_set_level(LOG_LEVEL_ERROR);
        assert_true(dup2(stderr_fd, STDERR_FILENO) >= 0);
        close(stderr_fd);
        rewind(log);
        while (fgets(line, sizeof(line), log)) {
                n_garbage += strstr(line, "or no railmuxd") != NULL;
                n_other += strstr(line, "cluster test meets cluster other") != NULL;
                n_last += strstr(line, "cluster test meets cluster last") != NULL;
        }
        fclose(log);
        assert_int_equal(n_other, 1);
        assert_int_equal(n_last, 1);
        assert_in_range(n_garbage, 1, 2); /* two, if a while passed between */
}

int main(void) {
        const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
                T(refuses_hellos),  T(refuses_garbage),         T(waits_only_so_long), T(crowd),
                T(crowd_elsewhere), T(runs_out_of_descriptors), T(one_id_two_names),   T(agrees_on_a_version),
                T(refuses_members), T(tells_each_once),
        };

        log_init("test", LOG_LEVEL_ERROR);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
