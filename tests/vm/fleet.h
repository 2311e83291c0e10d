/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The nodes of a scenario: a railmuxd on each node of the guest, with the rails that are its ports, and what an
 * operator sees of them. Nodes are numbered from 0 and called a, b, ... as their ports are. Calls fail the running
 * cmocka test.
 */
#include <stdbool.h>
#include <stdint.h>

#include "tests/e2e/node.h"
#include "tests/e2e/team.h"

#define FLEET_NODES_MAX     8u
#define FLEET_RAILS_MAX     8u
#define FLEET_ARGUMENTS_MAX 24u

/* The certificates lie in $RAILMUX_VM_CERTIFICATES. */
enum fleet_security { FLEET_PLAIN, FLEET_TLS, FLEET_OTHER_TLS /* of another CA */ };

struct fleet {
        struct node node[FLEET_NODES_MAX];
        uint32_t n_nodes, n_rails;
        const char *transport;        /* the rails' kind: "tcp" */
        const char *name;             /* of the scenario: for logs */
        enum fleet_security security; /* of those that fleet_start() starts */
        uint32_t lost_ms;             /* after which a silent node or connection is given up; 0: the daemons' default */
        uint32_t timeout;             /* of queue pairs; 0: the daemons' default */
        long log_from[FLEET_NODES_MAX]; /* lines before it are not looked at */
        struct team team;
        uint64_t random;
        char text[FLEET_NODES_MAX][FLEET_ARGUMENTS_MAX][160];
        const char *arguments[FLEET_NODES_MAX][FLEET_ARGUMENTS_MAX + 1];
};

struct fleet_routes { /* of a node over one rail, to all other nodes */
        uint32_t n, n_up, n_connected;
        uint64_t errors, retransmitted;
};

/* Starts a node with its ports as rails. */
void fleet_start_node(struct fleet *fleet, uint32_t node, enum fleet_security security);
/* Starts n_nodes of them, with the fleet's security. */
void fleet_start(struct fleet *fleet);
/* Ends all nodes; none may leave anything behind. */
void fleet_stop(struct fleet *fleet);
/* Ends what a failed test has left, and mends all cables. */
void fleet_cleanup(struct fleet *fleet);

/* Client sockets of the nodes of the set (bit n: node n), with commas between them. */
void fleet_sockets(const struct fleet *fleet, uint32_t nodes, char text[1024]);
/* What all nodes have logged so far is not looked at any more. */
void fleet_log_mark(struct fleet *fleet);
/* Is there a line with that word in the node's log? */
bool fleet_log_has(const struct fleet *fleet, uint32_t node, const char *word);
bool fleet_await_log(const struct fleet *fleet, uint32_t node, const char *word, uint32_t timeout_ms);

/* vm-link with that action on a node's port. Returns when it was begun, for down and drop: nanoseconds of
 * CLOCK_MONOTONIC, for drop within ten milliseconds and before a program is started, which takes long here. */
uint64_t fleet_link(const struct fleet *fleet, uint32_t node, uint32_t rail, const char *action, const char *value);
/* Packets that vm-link's loss or delay has met there, and those that it dropped. */
void fleet_link_counts(uint32_t node, uint32_t rail, uint64_t *ret_packets, uint64_t *ret_dropped);
/* How long a packet takes from a node to another one's port on the same rail and back: the quickest of a few. */
double fleet_round_trip_ms(const struct fleet *fleet, uint32_t from, uint32_t to, uint32_t rail);

struct fleet_routes fleet_routes(const struct fleet *fleet, uint32_t node, uint32_t rail);
/* Waits until none, or all, of these routes are up. */
void fleet_await_routes(const struct fleet *fleet, uint32_t node, uint32_t rail, bool up, uint32_t timeout_ms);
/* A number of the rail's row: "bytes_sent", "refused". */
uint64_t fleet_rail_number(const struct fleet *fleet, uint32_t node, uint32_t rail, const char *key);
/* Waits until a rail has sent so many bytes more. */
void fleet_await_bytes(const struct fleet *fleet, uint32_t node, uint32_t rail, uint64_t more, uint32_t timeout_ms);
