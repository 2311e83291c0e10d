/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What a rail sends next. Pure: no clock, no locks, no sockets.
 *
 * A *flow* is a (class, tenant) pair and has a weight. A *lane* is a flow's way over one port (a connection-to-be) and
 * holds items in order. A *port* may be shut, then its lanes wait and are passed over. One owner, one thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEDULE_WEIGHT_MAX 1000u

struct schedule_item { /* embedded */
        struct schedule_item *prev, *next;
        struct schedule_lane *lane; /* NULL: in none */
        uint32_t bytes;
};

struct schedule_port { /* embedded; all zero is an open one without lanes */
        struct schedule_lane *lanes;
        uint64_t queued_bytes;
        bool shut;
};

struct schedule_lane {
        struct schedule_lane *flow_prev, *flow_next; /* of the flow's ready ones, or none */
        struct schedule_lane *port_prev, *port_next;
        struct schedule_flow *flow;
        struct schedule_port *port;
        struct schedule_item *items;
        bool ready; /* has items, and its port is open */
};

struct schedule_flow {
        struct schedule_flow *prev, *next;               /* of all */
        struct schedule_flow *active_prev, *active_next; /* of those that have ready lanes */
        struct schedule_lane *ready;                     /* turn by turn */
        uint32_t class;
        uint64_t tenant;
        uint32_t weight;
        uint32_t n_lanes;
        uint64_t n_items; /* in all lanes, ready or not */
        uint64_t place;   /* whose is less has its turn before it */
        uint64_t deficit; /* bytes it may send now */
        bool visited;     /* has had its share in this turn */
        bool active;
};

struct schedule {
        struct schedule_flow *flows;
        struct schedule_flow *urgent, *others; /* active ones of class 0, and of all other classes */
        uint64_t quantum;                      /* bytes for a weight of 1 in a turn */
        uint64_t urgent_max;                   /* bytes that class 0 sends in a row while others wait */
        uint64_t urgent_sent;
        uint64_t places; /* given so far */
        uint64_t queued_bytes;
};

void schedule_init(struct schedule *schedule, uint64_t quantum, uint64_t urgent_max);
/* Frees flows and lanes. There must be no items left. */
void schedule_deinit(struct schedule *schedule);
/* The lane of a port for a (class, tenant), made when it is asked for the first time; sets the flow's weight. */
int schedule_lane(struct schedule *schedule, struct schedule_port *port, uint32_t class, uint64_t tenant,
                  uint32_t weight, struct schedule_lane **ret_lane);
/* first: before all that wait in the lane. */
void schedule_push(struct schedule *schedule, struct schedule_lane *lane, struct schedule_item *item, bool first);
/* The next item, out of its lane; NULL if there is none that may go. item->lane is NULL then. */
struct schedule_item *schedule_pop(struct schedule *schedule);
/* Out of its lane. */
void schedule_remove(struct schedule *schedule, struct schedule_item *item);
void schedule_shut(struct schedule *schedule, struct schedule_port *port, bool shut);
/* Frees the port's lanes, which are empty. */
void schedule_port_deinit(struct schedule *schedule, struct schedule_port *port);
