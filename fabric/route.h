/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The health of a route. Pure: the clock is passed in.
 *
 *   UP        carries chunks. A route of which nothing is known yet is up.
 *   SUSPECT   a connection failed, is silent or takes long to be made, the latter two of which are called late. It is
 *             made again at once if it failed; chunks go elsewhere if they can.
 *   DOWN      failed again, never came back, or did so for a short time only. Nothing is tried until the hold-down is
 *             over, unless somebody waits and there is no other way: see route_hurry().
 *   PROBING   the hold-down is over, a connection is tried; chunks go there only if nothing else is left.
 *
 * A route that is made while both ends run is fresh: DOWN, as the peer may not have heard of it yet and would refuse.
 * When it shows that it has, or after the first hold-down, such a route is UP and not PROBING, at the end that dials
 * and at the one that does not: nothing is wrong with it, and without work no connection would come to prove that.
 *
 * SUSPECT and PROBING become UP after enough signs of life in a row. Each time that a route goes down, the next
 * hold-down is twice as long; being up for as long as ten of them forgives one doubling. What is tried before its
 * hold-down is over costs no doubling if it fails.
 *
 * Who has failed before, and was up for less than that, goes down at once: signs of life are short, and there are
 * networks that carry those and nothing longer. Each time that such a route is up costs its users a pause, so that has
 * to become rare. Being late is no failure: a route that is up again after that has been up all the time. If the
 * connection ends instead, this is the failure; most that break are late before.
 *
 * Several threads read the clock, and not in the order in which they take the lock: a time that was written down may
 * lie after now_ns. No time has passed since then.
 */
#include "fabric/fabric.h"

#define ROUTE_GOOD_SUSPECT 2u /* signs of life, one of which is the connection itself */
#define ROUTE_GOOD_PROBING 3u
#define ROUTE_FORGIVES     10u /* hold-downs of being up */
#define ROUTE_TRY_NS       UINT64_C(50000000)

struct route_limits {
        uint64_t hold_ns, hold_max_ns; /* hold-down: the first one, the longest one */
        uint64_t suspect_ns;           /* so long may it take to become UP again */
};

struct route {
        enum fabric_route_state state;
        uint64_t since_ns;
        uint64_t hold_ns;    /* of the next time that it goes down */
        uint64_t up_ns;      /* since when it has been up, but for being late */
        uint64_t forgive_ns; /* as up_ns, less what was forgiven */
        uint32_t n_good;
        uint64_t n_errors;     /* but for those of a fresh one */
        uint64_t failed_ns;    /* the last failure; 0: none */
        bool hurried, may_try; /* when DOWN, see route_hurry() */
        bool fresh;            /* when DOWN, see route_wait() */
        bool late;             /* when SUSPECT: nothing has failed */
};

static inline uint64_t time_passed(uint64_t now_ns, uint64_t since_ns) {
        return now_ns > since_ns ? now_ns - since_ns : 0;
}

void route_init(struct route *route, const struct route_limits *limits, uint64_t now_ns);
/* After route_init(): the peer has yet to hear of it. */
void route_wait(struct route *route);
/* These return true if the state changed; a failure after lateness is news, too. */
/* The peer knows of it. */
bool route_met(struct route *route, uint64_t now_ns);
bool route_error(struct route *route, const struct route_limits *limits, uint64_t now_ns);
/* It was set down: as after errors. */
bool route_down(struct route *route, uint64_t now_ns);
/* A connection was made, or answers. */
bool route_good(struct route *route, const struct route_limits *limits, uint64_t now_ns);
/* A connection is late, which need not mean anything. */
bool route_late(struct route *route, const struct route_limits *limits, uint64_t now_ns);
/* Time has passed. */
bool route_tick(struct route *route, const struct route_limits *limits, uint64_t now_ns);
/*
 * Is somebody waiting (hurry) who has no other way? Then a connection may be tried ROUTE_TRY_NS after the last failure,
 * however long the hold-down is: this is there to spare a network that has other ways, and who waits is given up long
 * before it is over. All routes at a time, since nobody knows which one comes back first. To be called now and then.
 */
void route_hurry(struct route *route, bool hurry, uint64_t now_ns);
/* May a connection be tried? */
static inline bool route_may_dial(const struct route *route) {
        return route->state != FABRIC_DOWN || route->may_try;
}
