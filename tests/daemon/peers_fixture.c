/* SPDX-License-Identifier: MIT */
#include "tests/daemon/peers_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/peer_frame.h"
#include "tests/scratch.h"

static void pulse(evutil_socket_t fd, short what, void *data) {
        (void)fd;
        (void)what;
        (void)data;
}

int world_setup(void **state) {
        struct world *world = calloc(1, sizeof(*world));
        const char *tmp = getenv("TMPDIR");

        assert_non_null(world);
        signal(SIGPIPE, SIG_IGN);
        assert_true((size_t)snprintf(world->dir, sizeof(world->dir), "%s/peers-XXXXXX", tmp ? tmp : "/tmp") <
                    sizeof(world->dir));
        assert_non_null(mkdtemp(world->dir));
        world->base = event_base_new();
        assert_non_null(world->base);
        world->pulse = event_new(world->base, -1, EV_PERSIST, pulse, NULL);
        assert_int_equal(event_add(world->pulse, &(struct timeval){.tv_usec = 5000}), 0);
        *state = world;
        return 0;
}

int world_teardown(void **state) {
        struct world *world = *state;

        for (unsigned int i = 0; i < NODES_MAX; i++)
                node_stop(world, i);
        event_free(world->pulse);
        event_base_free(world->base);
        scratch_remove(world->dir);
        free(world);
        return 0;
}

void world_turn(struct world *world) {
        assert_true(event_base_loop(world->base, EVLOOP_ONCE) >= 0);
}

void world_turn_for(struct world *world, unsigned int ms) {
        uint64_t end_ns = clock_now_ns() + ms * UINT64_C(1000000);

        while (clock_now_ns() < end_ns)
                world_turn(world);
}

/* ---- what a node hears ---- */

static void node_up(struct peer *peer, void *data) {
        struct node *node = data;

        assert_true(peer_is_up(peer));
        assert_non_null(peer_node_id(peer));
        assert_ptr_equal(peer_find(node->peers, peer_node_id(peer)), peer);
        assert_int_equal(peer_version(peer), PEER_PROTOCOL_MAX);
        memcpy(node->token, peer_token(peer), PEER_TOKEN_BYTES);
        node->ups++;
        node->up = peer;
        if (node->on_up)
                node->on_up(node, peer);
}

static void node_forget_last(struct node *node) {
        if (node->last)
                railmux__peer__message__free_unpacked(node->last, NULL);
        node->last = NULL;
}

static void node_message(struct peer *peer, const Railmux__Peer__Message *message, void *data) {
        struct node *node = data;
        size_t size = railmux__peer__message__get_packed_size(message);
        uint8_t *copy = malloc(size);

        assert_true(peer_is_up(peer));
        assert_non_null(copy);
        railmux__peer__message__pack(message, copy);
        node_forget_last(node);
        node->last = railmux__peer__message__unpack(NULL, size, copy);
        free(copy);
        assert_non_null(node->last);
        if (message->body_case == RAILMUX__PEER__MESSAGE__BODY_GO && node->n_messages < MESSAGES_MAX)
                node->keys[node->n_messages] = message->go->key;
        node->n_messages++;
}

static void node_lost(struct peer *peer, const char *text, void *data) {
        struct node *node = data;

        assert_false(peer_is_up(peer));
        node->losts++;
        node->lost_ns = clock_now_ns();
        node->lost_boot = peer_boot(peer);
        snprintf(node->lost_text, sizeof(node->lost_text), "%s", text);
        if (node->on_lost)
                node->on_lost(node, peer);
}

static void node_failed(struct peer *peer, const char *text, void *data) {
        struct node *node = data;

        assert_false(peer_is_up(peer));
        node->faileds++;
        snprintf(node->failed_text, sizeof(node->failed_text), "%s", text);
}

static void node_merged(struct peer *peer, struct peer *into, void *data) {
        struct node *node = data;

        node->mergeds++;
        node->merged_from = peer;
        node->merged_into = into;
}

struct peers_options node_options(struct world *world, unsigned int i) {
        struct peers_options options = {
                .base = world->base,
                .cluster = "test",
                .listen = "127.0.0.1:0",
                .boot = 1,
                .handshake_ms = 2000,
                .heartbeat_ms = 200,
                .deadline_ms = 5000, /* tests of silence ask for less; everything else must not depend on the machine */
                .events = {.up = node_up,
                           .message = node_message,
                           .lost = node_lost,
                           .failed = node_failed,
                           .merged = node_merged},
                .data = &world->node[i],
        };
        static const char *const names[NODES_MAX] = {"alpha", "beta", "gamma", "delta"};

        options.name = names[i];
        memset(options.node, 0x5a, sizeof(options.node));
        options.node[0] = (uint8_t)(i + 1);
        return options;
}

void node_start(struct world *world, unsigned int i, const struct peers_options *options) {
        struct node *node = &world->node[i];
        char error[PEER_TEXT_MAX];
        int r;

        assert_null(node->peers);
        memset(node, 0, sizeof(*node));
        node->base = world->base;
        memcpy(node->id, options->node, sizeof(node->id));
        r = peers_new(options, error, &node->peers);
        if (r)
                fail_msg("node %u: %s", i, error);
        assert_memory_equal(peers_node(node->peers), node->id, sizeof(node->id));
}

void node_stop(struct world *world, unsigned int i) {
        struct node *node = &world->node[i];

        node->peers = peers_free(node->peers);
        node_forget_last(node);
        /* What libevent frees later. */
        event_base_loop(world->base, EVLOOP_NONBLOCK);
}

struct peer *node_dial(struct world *world, unsigned int from, unsigned int to) {
        struct peer *peer = NULL;

        assert_int_equal(peers_dial(world->node[from].peers, peers_address(world->node[to].peers), &peer), 0);
        assert_non_null(peer);
        return peer;
}

int send_go(struct peer *peer, uint64_t key) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Go go = RAILMUX__PEER__GO__INIT;

        go.key = key;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_GO;
        message.go = &go;
        return peer_send(peer, &message);
}

struct count {
        const char *state;
        unsigned int n;
        struct peer_row last;
};

static void count_row(const struct peer_row *row, void *data) {
        struct count *count = data;

        if (strcmp(row->state, count->state) != 0)
                return;
        count->n++;
        count->last = *row;
}

struct peer_row rows_of(const struct peers *peers, const char *state, unsigned int *ret_n) {
        struct count count = {.state = state};

        peers_rows(peers, count_row, &count);
        if (ret_n)
                *ret_n = count.n;
        return count.last;
}

void nodes_start_two(struct world *world) {
        for (unsigned int i = 0; i < 2; i++) {
                struct peers_options options = node_options(world, i);

                node_start(world, i, &options);
        }
}

/* ---- a stranger ---- */

int stranger_connect_from(struct world *world, unsigned int to, const char *from) {
        struct sockaddr_in here = {.sin_family = AF_INET};
        struct sockaddr_storage there;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), size;

        assert_true(fd >= 0);
        assert_int_equal(inet_pton(AF_INET, from, &here.sin_addr), 1);
        assert_int_equal(bind(fd, (struct sockaddr *)&here, sizeof(here)), 0);
        assert_int_equal(peer_address_parse(peers_address(world->node[to].peers), &there, &size), 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&there, (socklen_t)size), 0);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        return fd;
}

int stranger_connect(struct world *world, unsigned int to) {
        return stranger_connect_from(world, to, "127.0.0.1");
}

int stranger_refusal(struct world *world, int fd, char text[PEER_TEXT_MAX]) {
        uint64_t end_ns = clock_now_ns() + UINT64_C(60000000000);
        uint8_t data[4096];
        size_t n = 0, length;
        int code = -1;

        text[0] = '\0';
        for (;;) {
                ssize_t got = read(fd, data + n, sizeof(data) - n);

                if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
                        break;
                if (got > 0)
                        n += (size_t)got;
                assert_true(clock_now_ns() < end_ns);
                world_turn(world);
        }
        for (size_t at = 0; peer_frame_length(data + at, n - at, PEER_MESSAGE_MAX, &length) == 0;
             at += PEER_FRAME_HEADER + length) {
                Railmux__Peer__Message *message;
                struct frame_arena arena;
                const char *field;

                assert_true(at + PEER_FRAME_HEADER + length <= n);
                assert_int_equal(peer_frame_unpack(data + at + PEER_FRAME_HEADER, length, &arena, &field, &message), 0);
                if (message->body_case == RAILMUX__PEER__MESSAGE__BODY_REFUSE) {
                        code = (int)message->refuse->code;
                        snprintf(text, PEER_TEXT_MAX, "%s", message->refuse->text);
                }
                railmux__peer__message__free_unpacked(message, &arena.allocator);
        }
        return code;
}
