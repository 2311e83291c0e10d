/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * A communicator over two nodes: a real railmuxd with clients and executor played by the fixture, and a neighbour that
 * the test plays. Whoever waits turns the loops of both.
 */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "daemon/peer.h"
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#define RANKS 4u /* two on each node, those of the first node first */
#define HEARD 8192u
#define KEY   UINT64_C(0x1234567890abcdef) /* that the neighbour gives to a communicator */

/* Of railmuxd; a test may write more behind it. */
#define BOTH_CONFIG                                                                                                    \
        "peer:\n"                                                                                                      \
        "  listen: '127.0.0.1:0'\n"                                                                                    \
        "  cluster: test\n"                                                                                            \
        "  heartbeat_ms: 1000\n"                                                                                       \
        "  lost_ms: 30000\n"

#define SAYS(name) RAILMUX__PEER__MESSAGE__BODY_##name

struct neighbour {
        struct event_base *base;
        struct peers *peers;
        struct peer *peer; /* railmuxd */
        bool up, lost;
        Railmux__Peer__Message *heard[HEARD];
        unsigned int n_heard, n_taken;
};

struct both {
        struct fixture f;
        struct neighbour n, third; /* the second one is there if the test has started it; its loop is the first's */
        struct client *clients[2];
        uint32_t handles[2];
        uint32_t first; /* the lowest rank of the clients: 0 or 2 */
        uint64_t key;
        uint8_t id[COMM_ID_BYTES];
};

extern uint32_t both_gpus; /* of railmuxd started from now on, with real executors (fixture_setup_planes), and of the
                              neighbour; 0: emulated ones */
extern bool both_managed;  /* ... and the service manager is played */
extern const char *both_rails;   /* ... its peer.rails; NULL: tcp0 alone */
extern const char *both_more;    /* ... more of its configuration; NULL: none */
extern bool both_widenings;      /* the neighbour knows widenings, and has some when it assigns */
extern uint32_t both_algorithms; /* those that the neighbour knows; it assigns the last one, too. 0: it does not say */
extern const char *both_tenant;  /* of all ranks; "default" */

#define both_wait(b, condition)                                                                                        \
        do {                                                                                                           \
                uint64_t end_ = fixture_deadline();                                                                    \
                while (!(condition)) {                                                                                 \
                        assert_true(event_base_loop((b)->n.base, EVLOOP_NONBLOCK) >= 0);                               \
                        fixture_turn_until(&(b)->f, end_, #condition, __FILE__, __LINE__);                             \
                }                                                                                                      \
        } while (0)

/* railmuxd with two clients, and an id that it made; the neighbour is connected. node: its id is made of that byte;
 * boot: which start of it. */
void begin(struct both *b, uint8_t node, uint64_t boot);
/* Another start of the neighbour, or the same one again, after neighbour_stop. */
void neighbour_start(struct both *b, uint8_t node, uint64_t boot);
/* A rank of the neighbour joins. */
void say_join(struct both *b, uint32_t rank, uint64_t attempt);
/* The neighbour has made its part. */
void say_ready(struct both *b, uint64_t key);
/* railmuxd is the first node, which decides: it has the ranks 0 and 1. */
void setup_first(struct both *b);
/* The neighbour is, and railmuxd has the ranks 2 and 3. */
void setup_follower(struct both *b);
/* The same, with rank 1 on a third node; railmuxd is the last one. */
void setup_three(struct both *b);
void third_start(struct both *b, uint8_t node, uint64_t boot);
void third_stop(struct both *b);
void neighbour_stop(struct both *b);
/* Stops all, when nothing is left. */
void finish(struct both *b);
/* ... whatever is left. */
void abandon(struct both *b);

/* ---- what the neighbour says and hears ---- */
void say(struct both *b, Railmux__Peer__Message *message);
void say_of(struct neighbour *n, Railmux__Peer__Message *message);
bool has_heard(const struct neighbour *n, unsigned int what);
/* Waits for the next one of the kind; what came before it is passed over. */
const Railmux__Peer__Message *take(struct both *b, unsigned int what);
const Railmux__Peer__Message *take_of(struct both *b, struct neighbour *n, unsigned int what);
/* Waits until all that was said has been heard. */
void settle(struct both *b);
void settle_of(struct both *b, struct neighbour *n);
void split_join(struct both *b, const Railmux__Peer__SplitJoin *body);
/* What a rank of the neighbour would say. */
Railmux__Peer__SplitJoin wish(const struct both *b, uint32_t number, uint32_t rank, int32_t colour);
void say_split_ready(struct both *b, uint32_t number);
void say_split_go(struct both *b, uint32_t number);
void say_split_failed(struct both *b, uint32_t number, uint32_t code, const char *text, bool verdict);

/* An answer of the neighbour to an ID_ASK: `size` bytes (at most two ids') that are `fill`; none:
 * that is the code. */
void say_id(struct both *b, uint64_t key, uint64_t number, uint8_t fill, size_t size);

/* ---- what the clients do ---- */
uint64_t send_id_create(struct client *client, uint32_t handle, uint64_t number);
void take_id(struct both *b, uint32_t client, uint64_t call, uint8_t ret_id[COMM_ID_BYTES]);
/* Both split; how it ends is for take_split. */
void client_splits(struct both *b, uint32_t number, int32_t colour, uint64_t ret_calls[2]);
struct comm_answer take_split(struct both *b, uint32_t client, uint64_t call);
/* railmuxd has heard all, and both still wait. */
bool unanswered(struct both *b, const uint64_t calls[2]);
void assert_unanswered(struct both *b, const uint64_t calls[2]);
void assert_split_fails(struct both *b, const uint64_t calls[2], uint32_t code, const char *word);
