/* SPDX-License-Identifier: MIT */
#include "fabric/route.h"

static bool route_set(struct route *route, enum fabric_route_state state, uint64_t now_ns) {
        bool changed = route->state != state || route->late;

        if (state == FABRIC_UP && !route->late)
                route->up_ns = route->forgive_ns = now_ns;
        route->state = state;
        route->n_good = 0;
        route->hurried = route->may_try = route->fresh = route->late = false;
        if (changed)
                route->since_ns = now_ns;
        return changed;
}

bool route_down(struct route *route, uint64_t now_ns) {
        return route_set(route, FABRIC_DOWN, now_ns);
}

void route_init(struct route *route, const struct route_limits *limits, uint64_t now_ns) {
        *route = (struct route){.state = FABRIC_UP,
                                .since_ns = now_ns,
                                .up_ns = now_ns,
                                .forgive_ns = now_ns,
                                .hold_ns = limits->hold_ns};
}

void route_wait(struct route *route) {
        route->state = FABRIC_DOWN;
        route->fresh = true;
}

bool route_met(struct route *route, uint64_t now_ns) {
        return route->fresh && route_set(route, FABRIC_UP, now_ns);
}

bool route_error(struct route *route, const struct route_limits *limits, uint64_t now_ns) {
        route->n_errors += !route->fresh;
        route->failed_ns = now_ns;
        /* What it was forgiven so far counts, what happens from here on does not. */
        route_tick(route, limits, now_ns);
        if (route->state == FABRIC_DOWN) {
                route->may_try = false;
                return false; /* connections of other classes end too: one failure */
        }
        if (route->state != FABRIC_UP && !route->late)
                return route_down(route, now_ns);
        /* Signs of life have brought it back, and it does not last: it flaps, or carries nothing else. */
        if (route->n_errors > 1 && time_passed(now_ns, route->up_ns) < ROUTE_FORGIVES * route->hold_ns)
                return route_down(route, now_ns);
        return route_set(route, FABRIC_SUSPECT, now_ns);
}

static bool route_probe(struct route *route, const struct route_limits *limits, uint64_t now_ns) {
        route->hold_ns = route->hold_ns > limits->hold_max_ns / 2 ? limits->hold_max_ns : 2 * route->hold_ns;
        return route_set(route, FABRIC_PROBING, now_ns);
}

bool route_good(struct route *route, const struct route_limits *limits, uint64_t now_ns) {
        if (route_met(route, now_ns))
                return true;
        if (route->state == FABRIC_DOWN && route->hurried) { /* the hold-down has ended before its time */
                route_probe(route, limits, now_ns);
                route->n_good = 1;
                return true;
        }
        route->n_good++;
        if ((route->state == FABRIC_SUSPECT && route->n_good >= ROUTE_GOOD_SUSPECT) ||
            (route->state == FABRIC_PROBING && route->n_good >= ROUTE_GOOD_PROBING))
                return route_set(route, FABRIC_UP, now_ns);
        return false;
}

bool route_late(struct route *route, const struct route_limits *limits, uint64_t now_ns) {
        (void)limits;
        route->n_good = 0;
        if (route->state != FABRIC_UP || !route_set(route, FABRIC_SUSPECT, now_ns))
                return false;
        route->late = true;
        return true;
}

bool route_tick(struct route *route, const struct route_limits *limits, uint64_t now_ns) {
        switch (route->state) {
        case FABRIC_UP:
                while (route->hold_ns > limits->hold_ns &&
                       time_passed(now_ns, route->forgive_ns) >= ROUTE_FORGIVES * route->hold_ns) {
                        route->forgive_ns += ROUTE_FORGIVES * route->hold_ns;
                        route->hold_ns /= 2;
                }
                if (route->hold_ns < limits->hold_ns)
                        route->hold_ns = limits->hold_ns;
                return false;
        case FABRIC_SUSPECT:
                return time_passed(now_ns, route->since_ns) >= limits->suspect_ns && route_down(route, now_ns);
        case FABRIC_DOWN:
                if (time_passed(now_ns, route->since_ns) < route->hold_ns)
                        return false;
                return route_met(route, now_ns) || route_probe(route, limits, now_ns);
        case FABRIC_PROBING:
                return time_passed(now_ns, route->since_ns) >= limits->suspect_ns && route_down(route, now_ns);
        }
        return false;
}

void route_hurry(struct route *route, bool hurry, uint64_t now_ns) {
        const uint64_t failed_ns = route->failed_ns > route->since_ns ? route->failed_ns : route->since_ns;

        route->hurried = hurry && route->state == FABRIC_DOWN;
        route->may_try = route->hurried && time_passed(now_ns, failed_ns) >= ROUTE_TRY_NS;
}
