/* SPDX-License-Identifier: MIT */
/*
 * Which rail a message takes.
 *
 * Small ones take their rank's rail, so that their latency is that one's; large ones go where they should be through
 * first, by what is queued and in flight there and the bandwidth that was measured. Both only among the routes that are
 * in the best state of all: an idle route that is suspect is not worth a busy one that is up.
 *
 * Of a rail whose thread sleeps its thread at the other end mostly does, too, and to be woken takes both of them longer
 * than a short message takes; to be connected, longer still. So it is taken when the others have more to do than that.
 */
#include <utlist.h>

#include "fabric/private.h"
#include "util/clock.h"

#define SPARE_ITEMS 4096u
#define WAKE_S      40e-6 /* about what waking the two threads costs */

struct fabric_item *item_new(struct fabric *fabric, struct fabric_area *area, struct fabric_peer *peer,
                             uint8_t destination) {
        struct fabric_item *item;

        if (fabric->spare) {
                struct schedule_item *spare = fabric->spare;

                LL_DELETE(fabric->spare, spare);
                fabric->n_spare--;
                item = item_of(spare);
                memset(item, 0, sizeof(*item));
        } else {
                item = calloc(1, sizeof(*item));
                if (!item)
                        return NULL;
        }
        item->area = area_ref(area);
        item->peer = peer;
        item->destination = destination;
        /* relaxed: see taker_may */
        atomic_fetch_add_explicit(&area->n_items, 1, memory_order_relaxed);
        peer->n_items++;
        area->n_to[destination]++;
        return item;
}

void item_free(struct fabric *fabric, struct fabric_item *item) {
        struct schedule_item *spare = &item->schedule;

        item->peer->n_items--;
        item->area->n_to[item->destination]--;
        item_unwatch(item);
        /* relaxed: see taker_may */
        atomic_fetch_sub_explicit(&item->area->n_items, 1, memory_order_relaxed);
        if (fabric->throttled) {
                fabric->throttled = false;
                fabric_ring(fabric->taker_fd);
        }
        area_unref(item->area);
        item->area = NULL;
        if (fabric->n_spare >= SPARE_ITEMS) {
                free(item);
                return;
        }
        LL_PREPEND(fabric->spare, spare);
        fabric->n_spare++;
}

/* The lower the better. */
static unsigned int route_badness(const struct fabric_route *route) {
        static const unsigned int by_state[] = {
                [FABRIC_UP] = 0, [FABRIC_SUSPECT] = 1, [FABRIC_PROBING] = 4, [FABRIC_DOWN] = 5};
        unsigned int badness;

        if (!route->rail->enabled || route->rail->stuck)
                return 8;
        badness = by_state[route->health.state];
        /* A rail that is to be drained still serves those that have nothing else. */
        return route->rail->drained ? (badness < 2 ? badness + 2 : 7) : badness;
}

/* Has its thread to be woken, or a connection to be made? */
static bool route_rests(const struct fabric_route *route, enum fabric_class class) {
        const struct fabric_conn *conn = route->ports[class].conn;

        return route->rail->asleep || route->rail->waking || !conn || conn->state != CONN_UP;
}

/* Of rails that take as long, the affine one. What is short takes that one, and where it is of no use the one whose
 * number differs least from its, by bits: so ranks whose rails are not there do not meet on the first of the others. */
static struct fabric_route *peer_choose(const struct fabric_peer *peer, const struct fabric_area *area,
                                        const struct fabric_rail *affine, uint32_t bytes) {
        struct fabric_route *best = NULL;
        unsigned int best_badness = 0;
        double best_time = 0;

        for (size_t i = 0; i < peer->n_routes; i++) {
                struct fabric_route *route = peer->routes[i];
                struct fabric_rail *rail = route->rail;
                unsigned int badness = route_badness(route);
                double time;

                if (!rail_is_among(rail, area->only))
                        continue;
                if (bytes < area->stripe_bytes)
                        time = rail->index ^ affine->index;
                else
                        time = (double)(rail->schedule.queued_bytes + rail->flight_bytes + bytes) /
                                       (double)rail->estimate +
                               (route_rests(route, area->class) ? WAKE_S : 0);
                if (!best || badness < best_badness ||
                    (badness == best_badness && (time < best_time || (time == best_time && rail == affine)))) {
                        best = route;
                        best_badness = badness;
                        best_time = time;
                }
        }
        return best;
}

/* While none of this class can be made it is that of another one, best of class normal. Now and then one is tried, but
 * without messages: those would stand still until that has failed. */
static struct fabric_port *route_port(struct fabric_route *route, enum fabric_class class) {
        struct fabric_port *own = &route->ports[class];

        for (unsigned int i = 0; own->rest_ns > 0 && i < FABRIC_N_CLASSES; i++) {
                struct fabric_port *port = &route->ports[(FABRIC_NORMAL + i) % FABRIC_N_CLASSES];
                uint64_t now_ns;

                if (port->rest_ns > 0 || !port->conn || port->conn->state != CONN_UP || port->conn->doomed)
                        continue; /* one that rests may be up at this end alone */
                now_ns = clock_now_ns();
                if (now_ns >= own->rest_ns) {
                        own->rest_ns = now_ns + route->rail->fabric->limits.hold_max_ns;
                        own->tried = true;
                }
                return port;
        }
        return own;
}

void item_place(struct fabric *fabric, struct fabric_item *item) {
        struct fabric_area *area = item->area;
        struct fabric_route *route;
        struct schedule_lane *lane;
        struct fabric_port *port;

        if (area->gone || area->failed) {
                fabric->counters.dropped++;
                item_free(fabric, item);
                return;
        }
        route = peer_choose(item->peer, area, fabric->rails[area->rails[item->source]], item->schedule.bytes);
        if (!route) {
                DL_APPEND(item->peer->waiting, &item->schedule);
                return;
        }
        port = route_port(route, area->class);
        if (!port->conn || port->conn->state != CONN_UP)
                schedule_shut(&route->rail->schedule, &port->schedule, true);
        if (schedule_lane(&route->rail->schedule, &port->schedule, area->class, area->tenant, area->weight, &lane)) {
                DL_APPEND(item->peer->waiting, &item->schedule); /* no memory: later */
                return;
        }
        item->port = port;
        /* A credit is small, and lets the other side go on; behind our own chunks it would come too late for that. */
        schedule_push(&route->rail->schedule, lane, &item->schedule, item->kind == NET_CREDIT);
        rail_wake(route->rail);
}

void peer_place_waiting(struct fabric *fabric, struct fabric_peer *peer) {
        struct schedule_item *waiting = peer->waiting, *item, *tmp;

        peer->waiting = NULL;
        DL_FOREACH_SAFE(waiting, item, tmp) {
                DL_DELETE(waiting, item);
                item->prev = item->next = NULL;
                item_place(fabric, item_of(item));
        }
}

void items_drop_gone(struct fabric *fabric, struct schedule_item **list) {
        struct schedule_item *item, *tmp;

        DL_FOREACH_SAFE(*list, item, tmp) {
                if (!item_of(item)->area->gone)
                        continue;
                DL_DELETE(*list, item);
                fabric->counters.dropped++;
                item_free(fabric, item_of(item));
        }
}

static void lane_drop_gone(struct fabric *fabric, struct schedule *schedule, struct schedule_lane *lane) {
        struct schedule_item *item, *tmp;

        DL_FOREACH_SAFE(lane->items, item, tmp) {
                if (!item_of(item)->area->gone)
                        continue;
                schedule_remove(schedule, item);
                fabric->counters.dropped++;
                item_free(fabric, item_of(item));
        }
}

void area_drop(struct fabric *fabric, const struct fabric_area *area) {
        struct fabric_peer *peer, *tmp;
        struct schedule_lane *lane;

        /* relaxed: changed under the lock only */
        if (atomic_load_explicit(&area->n_items, memory_order_relaxed) == 0)
                return;
        HASH_ITER(hh, fabric->peers, peer, tmp) {
                items_drop_gone(fabric, &peer->waiting);
                graves_drop_gone(fabric, peer);
                for (size_t i = 0; i < peer->n_routes; i++) {
                        struct fabric_route *route = peer->routes[i];

                        for (unsigned int k = 0; k < FABRIC_N_CLASSES; k++) {
                                DL_FOREACH2(route->ports[k].schedule.lanes, lane, port_next) {
                                        if (lane->flow->tenant == area->tenant)
                                                lane_drop_gone(fabric, &route->rail->schedule, lane);
                                }
                        }
                }
        }
}

void route_replace(struct fabric *fabric, struct fabric_route *route) {
        struct schedule_item *moved = NULL, *item, *tmp;
        struct schedule_lane *lane;

        for (unsigned int i = 0; i < FABRIC_N_CLASSES; i++) {
                if (route->ports[i].conn)
                        conn_unpark(route->ports[i].conn);
                DL_FOREACH2(route->ports[i].schedule.lanes, lane, port_next) {
                        while (lane->items) {
                                item = lane->items;
                                schedule_remove(&route->rail->schedule, item);
                                DL_APPEND(moved, item);
                        }
                }
        }
        DL_FOREACH_SAFE(moved, item, tmp) {
                DL_DELETE(moved, item);
                item->prev = item->next = NULL;
                item_place(fabric, item_of(item));
        }
}

void route_changed(struct fabric *fabric, struct fabric_route *route, const char *why) {
        struct fabric_peer *peer = route->peer;

        fabric_tell_route(fabric, route, why);
        if (route->health.state != FABRIC_UP) {
                route_replace(fabric, route);
                return;
        }
        /* What waits for routes that are worse may go now. */
        for (size_t i = 0; i < peer->n_routes; i++)
                if (peer->routes[i]->health.state != FABRIC_UP)
                        route_replace(fabric, peer->routes[i]);
        peer_place_waiting(fabric, peer);
}
