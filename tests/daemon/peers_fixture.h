/* SPDX-License-Identifier: MIT */
#pragma once
/* Several daemons' control channels in one process, on one event base; and certificates, made here. */
#include "tests/cmocka_all.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/peer.h"
#include "util/clock.h"

#define NODES_MAX    4u
#define MESSAGES_MAX 65536u
#define PATHS_MAX    16u
#define PATH_BYTES   128u

/* One daemon, and what it has heard. */
struct node {
        struct peers *peers;
        struct event_base *base;
        uint8_t id[PEER_NODE_BYTES];
        unsigned int ups, losts, faileds, mergeds;
        struct peer *up; /* the last one that came up */
        uint8_t token[PEER_TOKEN_BYTES];
        char lost_text[PEER_TEXT_MAX], failed_text[PEER_TEXT_MAX];
        uint64_t lost_ns, lost_boot;
        struct peer *merged_from, *merged_into;
        unsigned int n_messages;
        uint64_t keys[MESSAGES_MAX]; /* of Go */
        Railmux__Peer__Message *last;
        struct frame_arena *arena;
        void (*on_up)(struct node *node, struct peer *peer);
        void (*on_lost)(struct node *node, struct peer *peer);
};

struct world {
        struct event_base *base;
        struct event *pulse; /* the loop turns, whatever happens */
        struct node node[NODES_MAX];
        char dir[64];
        char paths[PATHS_MAX][3][PATH_BYTES]; /* of certificates in use */
        unsigned int n_paths;
};

int world_setup(void **state);
int world_teardown(void **state);

/* Options for node i (its id begins with byte i + 1), on a free port of 127.0.0.1, without TLS, quick to give up. */
struct peers_options node_options(struct world *world, unsigned int i);
void node_start(struct world *world, unsigned int i, const struct peers_options *options);
void node_stop(struct world *world, unsigned int i);
/* Nodes 0 and 1. */
void nodes_start_two(struct world *world);
/* The last row in a state, and how many there are. */
struct peer_row rows_of(const struct peers *peers, const char *state, unsigned int *ret_n);
/* dial() from one node to the other's address. */
struct peer *node_dial(struct world *world, unsigned int from, unsigned int to);
/* A small message with a number, and its sending. */
int send_go(struct peer *peer, uint64_t key);

/* One turn of the loop. */
void world_turn(struct world *world);
/* Turns until the expression holds. */
#define world_until(world, expression)                                                                                 \
        do {                                                                                                           \
                uint64_t end_ns_ = clock_now_ns() + UINT64_C(60000000000);                                             \
                while (!(expression)) {                                                                                \
                        if (clock_now_ns() > end_ns_)                                                                  \
                                fail_msg("%s never came true", #expression);                                           \
                        world_turn(world);                                                                             \
                }                                                                                                      \
        } while (0)
/* Turns for some time, in which something must not happen. */
void world_turn_for(struct world *world, unsigned int ms);

/* ---- certificates ---- */
struct authority;
struct authority *authority_new(const char *name);
struct authority *authority_free(struct authority *authority);
struct certificate_request {
        const char *uri;        /* NULL: none */
        const char *usage;      /* extended key usage, NULL: none */
        int from_days, to_days; /* of validity, from now */
};
/* Writes <world->dir>/<name>.crt and .key, and the authority's <name>.ca. */
void certificate_write(struct world *world, struct authority *authority, const char *name,
                       const struct certificate_request *request);
/* Puts the three into options; the strings live as long as the world. */
void node_use_certificate(struct world *world, struct peers_options *options, const char *name);

/* ---- a line between two daemons that can fall silent ---- */
struct proxy;
struct proxy *proxy_new(struct world *world, const char *target); /* "host:port"; one connection at a time */
struct proxy *proxy_free(struct proxy *proxy);
const char *proxy_address(const struct proxy *proxy);
/* Nothing gets through any more, and nobody is told. */
void proxy_silence(struct proxy *proxy);

/* ---- a stranger with a socket ---- */
int stranger_connect(struct world *world, unsigned int to);
int stranger_connect_from(struct world *world, unsigned int to, const char *from); /* an address of this machine */
/* What a stranger has received as one REFUSE, while the loop turns; -1: the connection ended without. */
int stranger_refusal(struct world *world, int fd, char text[PEER_TEXT_MAX]);
