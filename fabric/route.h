/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The health of a route. Pure: the clock is passed in.
 *
 *   UP        carries chunks. A route of which nothing is known yet is up.
 *   SUSPECT   a connection failed or is silent. It is made again at once; chunks go elsewhere if they can.
 *   DOWN      failed again, or never came back. Nothing is tried until the hold-down is over.
 *   PROBING   the hold-down is over, a connection is tried; chunks go there only if nothing else is left.
 *
 * SUSPECT and PROBING become UP after enough signs of life in a row. Each time that a route goes down, the next
 * hold-down is twice as long; being up for as long as ten of them forgives one doubling.
 */
#include "fabric/fabric.h"

#define ROUTE_GOOD_SUSPECT 2u /* signs of life, one of which is the connection itself */
#define ROUTE_GOOD_PROBING 3u

struct route_limits {
        uint64_t hold_ns, hold_max_ns; /* hold-down: the first one, the longest one */
        uint64_t suspect_ns;           /* so long may it take to become UP again */
};

struct route {
        enum fabric_route_state state;
        uint64_t since_ns;
        uint64_t hold_ns;    /* of the next time that it goes down */
        uint64_t forgive_ns; /* when UP: since when its being up counts */
        uint32_t n_good;
        uint64_t n_errors;
};

void route_init(struct route *route, const struct route_limits *limits, uint64_t now_ns);
/* These return true if the state changed. */
bool route_error(struct route *route, const struct route_limits *limits, uint64_t now_ns);
/* It was set down: as after errors. */
bool route_down(struct route *route, uint64_t now_ns);
/* A connection was made, or answers. */
bool route_good(struct route *route, const struct route_limits *limits, uint64_t now_ns);
/* A connection is late, which need not mean anything. */
bool route_late(struct route *route, const struct route_limits *limits, uint64_t now_ns);
/* Time has passed. */
bool route_tick(struct route *route, const struct route_limits *limits, uint64_t now_ns);
/* May a connection be tried? */
static inline bool route_may_dial(const struct route *route) {
        return route->state != FABRIC_DOWN;
}
