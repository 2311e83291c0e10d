/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <utlist.h>

#include "fabric/private.h"
#include "util/clock.h"

/* So much longer than unreachable_ns may a peer that was heard of before take to shake hands. */
#define SHAKE_NS UINT64_C(800000000)

struct fabric_peer *peer_of_node(struct fabric *fabric, const struct fabric_node *node) {
        struct fabric_peer *peer;

        HASH_FIND(hh, fabric->peers, node, sizeof(*node), peer);
        return peer;
}

static void route_free(struct fabric *fabric, struct fabric_route *route) {
        (void)fabric;
        for (unsigned int i = 0; i < FABRIC_N_CLASSES; i++)
                schedule_port_deinit(&route->rail->schedule, &route->ports[i].schedule);
        DL_DELETE(route->rail->routes, route);
        free(route);
}

int route_new(struct fabric *fabric, struct fabric_peer *peer, struct fabric_rail *rail,
              const struct sockaddr_storage *address, struct fabric_route **ret_route) {
        struct fabric_route *route = calloc(1, sizeof(*route));

        if (!route)
                return -ENOMEM;
        route->rail = rail;
        route->peer = peer;
        route->address = *address;
        route->probe = FABRIC_NORMAL;
        route_init(&route->health, &fabric->limits, clock_now_ns());
        for (unsigned int i = 0; i < FABRIC_N_CLASSES; i++) {
                route->ports[i].route = route;
                route->ports[i].class = i;
                route->ports[i].schedule.shut = true;
        }
        DL_APPEND(rail->routes, route);
        *ret_route = route;
        return 0;
}

/* All that the peer has. Its connections are left to their threads. */
static void peer_free(struct fabric *fabric, struct fabric_peer *peer) {
        struct schedule_item *item, *tmp;

        for (size_t i = 0; i < fabric->n_rails; i++) {
                struct fabric_rail *rail = fabric->rails[i];
                struct fabric_conn *conn;

                DL_FOREACH(rail->conns, conn) {
                        if (conn->peer != peer)
                                continue;
                        conn_doom(conn, false, "the peer was removed");
                        if (conn->state == CONN_UP)
                                rail->n_up--;
                        rail->flight_bytes -= conn->flight_bytes;
                        conn->flight_bytes = 0;
                        DL_FOREACH_SAFE(conn->unacked, item, tmp) {
                                DL_DELETE(conn->unacked, item);
                                fabric->counters.dropped++;
                                item_free(fabric, item_of(item));
                        }
                        DL_FOREACH_SAFE(conn->parked, item, tmp) {
                                DL_DELETE(conn->parked, item);
                                fabric->counters.dropped++;
                                item_free(fabric, item_of(item));
                        }
                        conn->peer = NULL;
                        conn->port = NULL;
                        rail->n_strangers++; /* as it is counted when it is buried */
                }
        }
        graves_free(fabric, peer);
        for (size_t i = 0; i < peer->n_routes; i++) {
                struct fabric_route *route = peer->routes[i];
                struct schedule_lane *lane;

                for (unsigned int c = 0; c < FABRIC_N_CLASSES; c++) {
                        DL_FOREACH2(route->ports[c].schedule.lanes, lane, port_next) {
                                while (lane->items) {
                                        item = lane->items;
                                        schedule_remove(&route->rail->schedule, item);
                                        fabric->counters.dropped++;
                                        item_free(fabric, item_of(item));
                                }
                        }
                }
                route_free(fabric, route);
        }
        DL_FOREACH_SAFE(peer->waiting, item, tmp) {
                DL_DELETE(peer->waiting, item);
                fabric->counters.dropped++;
                item_free(fabric, item_of(item));
        }
        OPENSSL_cleanse(peer->token, sizeof(peer->token));
        free(peer);
}

static int peer_check_rails(struct fabric *fabric, size_t n) {
        if (n > FABRIC_RAILS_MAX)
                return fabric_refuse(fabric, FABRIC_E_FULL, "a peer has %zu rails; %u can be", n, FABRIC_RAILS_MAX);
        return 0;
}

static int peer_check(struct fabric *fabric, const struct fabric_peer_options *options) {
        if (memcmp(&options->node, &fabric->options.self, sizeof(options->node)) == 0)
                return fabric_refuse(fabric, FABRIC_E_ARGUMENT, "a node is no peer of its own");
        return peer_check_rails(fabric, options->n_rails);
}

/* Not each rail of a node need make sense to another one: a link-local address names an interface, and there may be
 * none of that name here; a later version may take longer names. Such a rail is left out, for the others would go with
 * it. */
static bool peer_rail_fits(const struct fabric_peer_rail *rail, struct sockaddr_storage *ret_address) {
        return rail->name && rail->name[0] && strlen(rail->name) <= FABRIC_NAME_MAX && rail->address &&
               rail->port != 0 && socket_address(rail->address, rail->port, ret_address) == 0;
}

/* Those that fit. Returns how many; the text is of what does not, "" if all do. */
static size_t peer_rails_take(const struct fabric_peer_rail *told, size_t n_told,
                              struct peer_rail rails[FABRIC_RAILS_MAX], char ret_text[FABRIC_TEXT]) {
        const struct fabric_peer_rail *unfit = NULL;
        size_t n = 0;

        for (size_t i = 0; i < n_told; i++) {
                struct peer_rail rail = {0};

                if (peer_rail_fits(&told[i], &rail.address)) {
                        memcpy(rail.name, told[i].name, strlen(told[i].name));
                        rails[n++] = rail;
                } else if (!unfit) {
                        unfit = &told[i];
                }
        }
        ret_text[0] = '\0';
        if (unfit)
                snprintf(ret_text, FABRIC_TEXT,
                         "rail %.31s of the peer is left out: %.45s port %u cannot be used here%s",
                         unfit->name ? unfit->name : "?", unfit->address ? unfit->address : "?", unfit->port,
                         n + 1 < n_told ? "; others, too" : "");
        return n;
}

struct fabric_route *peer_route(const struct fabric_peer *peer, const struct fabric_rail *rail) {
        for (size_t i = 0; i < peer->n_routes; i++)
                if (peer->routes[i]->rail == rail)
                        return peer->routes[i];
        return NULL;
}

/* If both have the rail, and there is none yet. Between nodes that are at work one of them hears of the other's rail
 * first, and waits until the other one may have heard of its own. */
static int peer_make_route(struct fabric *fabric, struct fabric_peer *peer, struct fabric_rail *rail, bool fresh) {
        if (peer_route(peer, rail))
                return 0;
        for (size_t i = 0; i < peer->n_rails; i++) {
                int r;

                if (strcmp(peer->rails[i].name, rail->name) != 0)
                        continue;
                r = route_new(fabric, peer, rail, &peer->rails[i].address, &peer->routes[peer->n_routes]);
                if (r)
                        return r;
                if (fresh) {
                        route_wait(&peer->routes[peer->n_routes]->health);
                        rail_wake(rail); /* to keep its time */
                }
                peer->n_routes++;
                return 0;
        }
        return 0;
}

static int peer_make_routes(struct fabric *fabric, struct fabric_peer *peer, bool fresh) {
        int r = 0;

        for (size_t i = 0; i < fabric->n_rails && r == 0; i++)
                r = peer_make_route(fabric, peer, fabric->rails[i], fresh);
        return r;
}

/* There is another way: for what has none, and for what waits on routes that are not up. */
static void peer_use_routes(struct fabric *fabric, struct fabric_peer *peer) {
        for (size_t i = 0; i < peer->n_routes; i++)
                if (peer->routes[i]->health.state != FABRIC_UP)
                        route_replace(fabric, peer->routes[i]);
        peer_place_waiting(fabric, peer);
}

int peers_take_rail(struct fabric *fabric, struct fabric_rail *rail) {
        struct fabric_peer *peer, *tmp;
        int r = 0;

        HASH_ITER(hh, fabric->peers, peer, tmp) {
                if (r == 0)
                        r = peer_make_route(fabric, peer, rail, true);
        }
        return r;
}

void peers_use_rail(struct fabric *fabric, struct fabric_rail *rail) {
        struct fabric_route *route;

        DL_FOREACH(rail->routes, route)
                peer_use_routes(fabric, route->peer);
}

void peers_leave_rail(struct fabric *fabric, struct fabric_rail *rail) {
        while (rail->routes) {
                struct fabric_route *route = rail->routes;

                route->peer->n_routes--; /* it is the last one: there is no later rail */
                route_free(fabric, route);
        }
}

static int peer_add(struct fabric *fabric, struct fabric_peer *peer) {
        int r;

        if (peer_of_node(fabric, &peer->node))
                return fabric_refuse(fabric, FABRIC_E_EXISTS, "the peer is there already; remove it first");
        r = peer_make_routes(fabric, peer, false);
        if (r)
                return r;
        HASH_ADD(hh, fabric->peers, node, sizeof(peer->node), peer);
        return peer->hh.tbl ? 0 : -ENOMEM;
}

int fabric_peer_add(struct fabric *fabric, const struct fabric_peer_options *options) {
        struct fabric_peer *peer;
        char text[FABRIC_TEXT];
        int r;

        r = peer_check(fabric, options);
        if (r)
                return r;
        peer = calloc(1, sizeof(*peer));
        if (!peer)
                return -ENOMEM;
        peer->node = options->node;
        peer->boot_epoch = options->boot_epoch;
        memcpy(peer->token, options->token, FABRIC_TOKEN);
        peer->dials = memcmp(&fabric->options.self, &options->node, sizeof(options->node)) < 0;
        peer->n_rails = peer_rails_take(options->rails, options->n_rails, peer->rails, text);
        pthread_mutex_lock(&fabric->lock);
        r = peer_add(fabric, peer);
        if (r)
                peer_free(fabric, peer);
        else if (text[0])
                fabric_tell_violation(fabric, peer, 0, text);
        if (r == 0 && peer->n_routes == 0)
                fabric_tell_violation(fabric, peer, 0, "the peer has no rail of the name of one of ours");
        for (size_t i = 0; r == 0 && i < fabric->n_rails; i++)
                rail_wake(fabric->rails[i]); /* they keep the time */
        pthread_mutex_unlock(&fabric->lock);
        return r;
}

int fabric_peer_rails(struct fabric *fabric, const struct fabric_node *node, const struct fabric_peer_rail *told,
                      size_t n_told) {
        struct peer_rail rails[FABRIC_RAILS_MAX];
        struct fabric_peer *peer;
        char text[FABRIC_TEXT];
        size_t n;
        int r;

        r = peer_check_rails(fabric, n_told);
        if (r)
                return r;
        n = peer_rails_take(told, n_told, rails, text);
        pthread_mutex_lock(&fabric->lock);
        peer = peer_of_node(fabric, node);
        if (peer) {
                memcpy(peer->rails, rails, n * sizeof(rails[0]));
                peer->n_rails = n;
                r = peer_make_routes(fabric, peer, true);
                peer_use_routes(fabric, peer);
                if (text[0])
                        fabric_tell_violation(fabric, peer, 0, text);
        }
        pthread_mutex_unlock(&fabric->lock);
        return peer ? r : fabric_refuse(fabric, FABRIC_E_UNKNOWN, "there is no such peer");
}

int fabric_peer_remove(struct fabric *fabric, const struct fabric_node *node) {
        struct fabric_peer *peer;

        pthread_mutex_lock(&fabric->lock);
        peer = peer_of_node(fabric, node);
        if (peer) {
                HASH_DEL(fabric->peers, peer);
                peer_free(fabric, peer);
        }
        pthread_mutex_unlock(&fabric->lock);
        return peer ? 0 : fabric_refuse(fabric, FABRIC_E_UNKNOWN, "there is no such peer");
}

size_t fabric_peer_routes(struct fabric *fabric, const struct fabric_node *node, uint32_t only) {
        const struct fabric_peer *peer;
        size_t n = 0;

        pthread_mutex_lock(&fabric->lock);
        peer = peer_of_node(fabric, node);
        for (size_t i = 0; peer && i < peer->n_routes; i++)
                n += rail_is_among(peer->routes[i]->rail, only);
        pthread_mutex_unlock(&fabric->lock);
        return n;
}

void peers_drop(struct fabric *fabric) {
        struct fabric_peer *peer, *tmp;

        HASH_ITER(hh, fabric->peers, peer, tmp) {
                HASH_DEL(fabric->peers, peer);
                peer_free(fabric, peer);
        }
}

/* Does an area wait for it? What connections that are dead have left of areas that are gone is no work: nobody waits
 * for it, and it stays until the peer answers. */
static bool peer_has_work(const struct fabric *fabric, const struct fabric_peer *peer) {
        const struct fabric_area *area;

        if (peer->n_items == 0)
                return false;
        for (area = fabric->areas; area; area = area->hh.next) {
                /* relaxed: written under the lock, which is held */
                if (atomic_load_explicit(&area->n_items, memory_order_relaxed) == 0)
                        continue;
                for (uint32_t i = 0; i < area->n_ranks; i++)
                        if (memcmp(&area->nodes[i], &peer->node, sizeof(peer->node)) == 0)
                                return true;
        }
        return false;
}

/* A connection on a route that is down is none: it may have come in the moment when the route went down, and nothing
 * goes over it before the hold-down is over. Nor is one of a rail whose thread hangs. */
bool peer_has_way(const struct fabric_peer *peer, uint32_t only) {
        for (size_t i = 0; i < peer->n_routes && peer->n_up > 0; i++) {
                const struct fabric_route *route = peer->routes[i];

                if (route->health.state == FABRIC_DOWN || route->rail->stuck || !rail_is_among(route->rail, only))
                        continue;
                for (unsigned int k = 0; k < FABRIC_N_CLASSES; k++)
                        if (route->ports[k].conn && route->ports[k].conn->state == CONN_UP)
                                return true;
        }
        return false;
}

bool route_is_missed(const struct fabric_route *route) {
        const struct fabric_peer *peer = route->peer;

        if (peer->cut_off && rail_is_among(route->rail, peer->cut_off))
                return true;
        /* They may have to keep to some rails, and know better; until it is up or has failed. */
        for (unsigned int i = 0; i < FABRIC_N_CLASSES; i++)
                if (route->ports[i].missed && (route->ports[i].wanted || route->ports[i].conn))
                        return true;
        if (peer_has_way(peer, 0))
                return false;
        for (unsigned int i = 0; i < FABRIC_N_CLASSES; i++)
                if (route->ports[i].wanted)
                        return true;
        return peer->n_up > 0 ? peer_has_work(route->rail->fabric, peer) : peer->down_ns != 0;
}

/*
 * Somebody answers there: a handshake has begun. It may take its time, for that process may be busy, but has a limit:
 * of a peer that was never heard of that of a handshake, else a short one, since who waits is to hear of a loss soon.
 */
bool peer_shakes_hands(const struct fabric *fabric, const struct fabric_peer *peer, uint32_t only, uint64_t since_ns,
                       uint64_t most_ns, uint64_t now_ns) {
        const struct fabric_conn *conn;

        if (time_passed(now_ns, since_ns) >= fabric->unreachable_ns + most_ns)
                return false;
        for (size_t i = 0; i < peer->n_routes; i++) {
                if (!rail_is_among(peer->routes[i]->rail, only))
                        continue;
                DL_FOREACH(peer->routes[i]->rail->conns, conn) {
                        if (conn->peer == peer && !conn->doomed && conn->state > CONN_CONNECTING &&
                            time_passed(now_ns, conn->started_ns) < most_ns)
                                return true;
                }
        }
        return false;
}

/* Connections that are up, on these rails. Not those of a rail whose thread has been in calls of its adapter for so
 * long that it would have given them up by now: it does not see what has become of them, and nothing goes over them. */
uint32_t peer_count_up(const struct fabric *fabric, const struct fabric_peer *peer, uint32_t only, uint64_t now_ns) {
        uint32_t n = peer->n_up;

        for (size_t i = 0; i < peer->n_routes; i++) {
                const struct fabric_rail *rail = peer->routes[i]->rail;
                const struct fabric_conn *conn;

                if (rail_is_among(rail, only) &&
                    (rail->away_ns == 0 || time_passed(now_ns, rail->away_ns) < 2 * fabric->deadline_ns))
                        continue;
                DL_FOREACH(rail->conns, conn)
                        n -= conn->peer == peer && conn->state == CONN_UP;
        }
        return n;
}

/*
 * Connections come up there, but what is on them does not arrive: they die again each time, for the network carries
 * short frames only, or nobody says what became of it, for over there the dead connection does not end. Each connection
 * alone looks well until then. So what was on one that died is watched, until the last of it has arrived, and then all
 * that has joined it since.
 *
 * Time counts while there is a connection, for else it is unreachable, and while threads run that could see it arrive.
 */
bool peer_watch_ends(const struct fabric *fabric, const struct fabric_peer *peer, uint32_t only,
                     struct fabric_watch *watch, uint64_t now_ns) {
        const uint64_t passed_ns = time_passed(now_ns, watch->watch_ns), most_ns = fabric->deadline_ns / 4;
        uint64_t limit_ns = 0;

        watch->watch_ns = now_ns;
        if (watch->n_again[watch->watched] == 0) {
                watch->watched = !watch->watched;
                watch->watched_ns = 0;
                return false;
        }
        if (only ? !peer_has_way(peer, only) : peer->n_up == 0)
                return false;
        watch->watched_ns += passed_ns < most_ns ? passed_ns : most_ns;
        for (size_t i = 0; i < peer->n_routes; i++) {
                const struct fabric_rail *rail = peer->routes[i]->rail;
                const uint64_t stuck_ns = rail_stuck_ns(rail, rail->schedule.queued_bytes + rail->flight_bytes);

                if (rail_is_among(rail, only))
                        limit_ns = stuck_ns > limit_ns ? stuck_ns : limit_ns;
        }
        return watch->watched_ns >= limit_ns;
}

/* Told again and again: what the owner began meanwhile waits as well. */
void peer_check_reachable(struct fabric *fabric, struct fabric_peer *peer, uint64_t now_ns) {
        if (peer_watch_ends(fabric, peer, 0, &peer->watch, now_ns) && peer_has_work(fabric, peer) &&
            fabric_tell_unreachable(fabric, peer, "what is sent there does not arrive"))
                peer->watch.watched_ns = 0;
        if (peer_count_up(fabric, peer, 0, now_ns) > 0 || !peer_has_work(fabric, peer)) {
                peer->down_ns = peer->told_ns = 0;
                return;
        }
        if (peer->down_ns == 0)
                peer->down_ns = now_ns;
        if (time_passed(now_ns, peer->down_ns) < fabric->unreachable_ns ||
            peer_shakes_hands(fabric, peer, 0, peer->down_ns, peer->heard_ns ? SHAKE_NS : fabric->handshake_ns, now_ns))
                return;
        if (peer->told_ns && time_passed(now_ns, peer->told_ns) < fabric->unreachable_ns)
                return;
        if (fabric_tell_unreachable(fabric, peer,
                                    peer->n_routes == 0 ? "no rail in common" : "no route has a connection"))
                peer->told_ns = now_ns;
}
