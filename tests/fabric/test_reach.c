/* SPDX-License-Identifier: MIT */
/* When a peer is said to be out of reach, by a clock that is a number. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"
#include "fabric/transport.h"
#include "tests/cmocka_all.h"

#define MS         UINT64_C(1000000)
#define DEADLINE   (800 * MS)
#define LIMIT      (900 * MS)
#define HANDSHAKE  (5000 * MS)
#define EVENTS_MAX 1024u /* fabric.c */

/* A peer for which an area has something, over one rail that nobody works for. */
struct world {
        struct fabric fabric;
        struct fabric_rail rail;
        struct fabric_route route;
        struct fabric_peer peer;
        struct fabric_area area;
        struct fabric_conn conn; /* in none of the lists yet */
        uint32_t told, cut_off;
        uint8_t cut_from; /* the node of the last time */
};

static void world_on_unreachable(void *data, const struct fabric_node *node, const char *why) {
        struct world *w = data;

        (void)why;
        assert_memory_equal(node, &w->peer.node, sizeof(*node));
        w->told++;
}

static void world_on_cut_off(void *data, const struct fabric_node *node, uint64_t key, const char *why) {
        struct world *w = data;

        (void)why;
        assert_int_equal(key, w->area.key);
        w->cut_from = node->id[0];
        w->cut_off++;
}

static int world_new(void **state) {
        struct world *w = calloc(1, sizeof(*w));

        assert_non_null(w);
        w->fabric.event_fd = -1;
        w->fabric.options.callbacks.unreachable = world_on_unreachable;
        w->fabric.options.callbacks.cut_off = world_on_cut_off;
        w->fabric.options.data = w;
        pthread_mutex_init(&w->fabric.lock, NULL);
        w->fabric.deadline_ns = DEADLINE;
        w->fabric.unreachable_ns = LIMIT;
        w->fabric.handshake_ns = HANDSHAKE;
        w->rail.fabric = &w->fabric;
        w->route.rail = &w->rail;
        w->route.peer = &w->peer;
        memset(w->peer.node.id, 7, sizeof(w->peer.node.id));
        w->peer.routes[w->peer.n_routes++] = &w->route;
        w->peer.n_items = 1;
        w->peer.heard_ns = 1;
        w->area.key = 1;
        w->area.nodes[w->area.n_ranks++] = w->peer.node;
        w->area.n_items = 1;
        HASH_ADD(hh, w->fabric.areas, key, sizeof(w->area.key), &w->area);
        w->conn.peer = &w->peer;
        w->conn.rail = &w->rail;
        *state = w;
        return 0;
}

/* How often it was said since. */
static uint32_t world_told(struct world *w) {
        const uint32_t before = w->told;

        if (w->fabric.n_events > 0)
                fabric_dispatch(&w->fabric);
        return w->told - before;
}

static int world_free(void **state) {
        struct world *w = *state;

        (void)world_told(w);
        HASH_CLEAR(hh, w->fabric.areas);
        pthread_mutex_destroy(&w->fabric.lock);
        free(w);
        return 0;
}

/* As the rail's thread does, a tick each millisecond. Returns when it was said, 0: not until `until_ns`. */
static uint64_t world_run(struct world *w, uint64_t from_ns, uint64_t until_ns) {
        for (uint64_t now_ns = from_ns; now_ns < until_ns; now_ns += MS) {
                peer_check_reachable(&w->fabric, &w->peer, now_ns);
                if (world_told(w) > 0)
                        return now_ns;
        }
        return 0;
}

/* What was begun since it was said waits as well, and nothing else will tell it. */
static void test_again(void **state) {
        struct world *w = *state;

        assert_int_equal(world_run(w, 1000 * MS, 9000 * MS), 1000 * MS + LIMIT);
        for (uint64_t i = 2; i < 6; i++)
                assert_int_equal(world_run(w, 1000 * MS + (i - 1) * LIMIT + MS, 9000 * MS), 1000 * MS + i * LIMIT);
        w->peer.n_up = 1;
        assert_int_equal(world_run(w, 10000 * MS, 15000 * MS), 0);
        w->peer.n_up = 0;
        assert_int_equal(world_run(w, 15000 * MS, 20000 * MS), 15000 * MS + LIMIT);
}

/* A rail whose thread hangs in its adapter does not see what has become of its connections. */
static void test_rail_hangs(void **state) {
        struct world *w = *state;

        w->peer.n_up = 1;
        w->conn.state = CONN_UP;
        DL_APPEND(w->rail.conns, &w->conn);
        assert_int_equal(world_run(w, 1000 * MS, 9000 * MS), 0);
        w->rail.away_ns = 9000 * MS;
        assert_int_equal(world_run(w, 9000 * MS, 19000 * MS), 9000 * MS + 2 * DEADLINE + LIMIT);
        w->rail.away_ns = 0;
        assert_int_equal(world_run(w, 19000 * MS, 29000 * MS), 0);
        DL_DELETE(w->rail.conns, &w->conn);
}

/* There was no room for it. */
static void test_not_heard(void **state) {
        struct world *w = *state;

        w->fabric.n_events = EVENTS_MAX;
        peer_check_reachable(&w->fabric, &w->peer, 1000 * MS);
        peer_check_reachable(&w->fabric, &w->peer, 1000 * MS + LIMIT);
        assert_null(w->fabric.events);
        w->fabric.n_events = 0;
        peer_check_reachable(&w->fabric, &w->peer, 1000 * MS + LIMIT + 1);
        assert_int_equal(world_told(w), 1);
}

/* What was on connections that died goes the same way over others, or is not spoken of. */
static void test_does_not_arrive(void **state) {
        const uint64_t limit_ns = STUCK_DEADLINES * DEADLINE;
        struct world *w = *state;
        uint64_t now_ns = 1000 * MS;

        w->peer.n_up = 1;
        w->peer.watch.n_again[1] = 1;
        assert_int_equal(world_run(w, now_ns, now_ns + 2 * limit_ns), now_ns + limit_ns);
        now_ns += limit_ns;
        assert_int_equal(world_run(w, now_ns + MS, now_ns + 2 * limit_ns), now_ns + limit_ns);
        now_ns += limit_ns;

        /* What has joined it since is not older than that when it arrives. */
        assert_int_equal(world_run(w, now_ns + MS, now_ns + limit_ns), 0);
        now_ns += limit_ns;
        w->peer.watch.n_again[w->peer.watch.watched]--;
        w->peer.watch.n_again[!w->peer.watch.watched]++;
        assert_int_equal(world_run(w, now_ns, now_ns + 2 * limit_ns), now_ns + limit_ns);
        now_ns += limit_ns;

        /* A slow rail has much to do. */
        w->rail.nominal = STUCK_SLOWNESS * 1000 - 1;
        w->rail.schedule.queued_bytes = 3000;
        w->rail.flight_bytes = 1000;
        assert_int_equal(world_run(w, now_ns + MS, now_ns + 2 * limit_ns), now_ns + limit_ns + 4000 * MS);
        now_ns += limit_ns + 4000 * MS;
        w->rail.schedule.queued_bytes = w->rail.flight_bytes = 0;

        /* No thread was there to see it arrive. */
        for (uint64_t i = 1; i <= 4 * STUCK_DEADLINES; i++) {
                now_ns += limit_ns;
                assert_int_equal(world_run(w, now_ns, now_ns + 1), i < 4 * STUCK_DEADLINES ? 0 : now_ns);
        }

        /* Nobody waits for it any more; it has arrived. */
        HASH_DEL(w->fabric.areas, &w->area);
        assert_int_equal(world_run(w, now_ns, now_ns + 2 * limit_ns), 0);
        now_ns += 2 * limit_ns;
        HASH_ADD(hh, w->fabric.areas, key, sizeof(w->area.key), &w->area);
        w->peer.watch.n_again[w->peer.watch.watched] = 0;
        assert_int_equal(world_run(w, now_ns, now_ns + 2 * limit_ns), 0);
}

/* What dead connections have left of areas that are gone is waited for by nobody; those that come begin anew. */
static void test_areas_gone(void **state) {
        struct world *w = *state;

        assert_int_equal(world_run(w, 1000 * MS, 9000 * MS), 1000 * MS + LIMIT);
        HASH_DEL(w->fabric.areas, &w->area);
        assert_int_equal(world_run(w, 2000 * MS, 9000 * MS), 0);
        assert_false(route_is_missed(&w->route));
        HASH_ADD(hh, w->fabric.areas, key, sizeof(w->area.key), &w->area);
        assert_int_equal(world_run(w, 9000 * MS, 19000 * MS), 9000 * MS + LIMIT);
        assert_true(route_is_missed(&w->route));
        w->area.nodes[0].id[0]++; /* another node's */
        assert_int_equal(world_run(w, 20000 * MS, 30000 * MS), 0);
}

/* Another thread has read the clock later and had the lock before. */
static void test_clock_of_others(void **state) {
        struct world *w = *state;

        w->peer.down_ns = 1000 * MS;
        peer_check_reachable(&w->fabric, &w->peer, 1000 * MS - 1);
        assert_int_equal(world_told(w), 0);
        assert_int_equal(world_run(w, 1000 * MS, 9000 * MS), 1000 * MS + LIMIT);
        w->peer.told_ns = 5000 * MS;
        peer_check_reachable(&w->fabric, &w->peer, 5000 * MS - 1);
        assert_int_equal(world_told(w), 0);
}

static void test_shakes_hands(void **state) {
        struct world *w = *state;

        /* Not yet connected: nobody answers. */
        w->peer.down_ns = 1000 * MS;
        w->conn.started_ns = 1000 * MS + LIMIT - 50 * MS;
        w->conn.state = CONN_CONNECTING;
        DL_APPEND(w->rail.conns, &w->conn);
        assert_int_equal(world_run(w, 1000 * MS, 9000 * MS), 1000 * MS + LIMIT);

        /* It answers: some time, but not long, whether it is one handshake or one after the other. */
        for (uint32_t again = 0; again < 2; again++) {
                uint64_t told_ns = 0;

                w->peer.down_ns = 10000 * MS;
                w->peer.told_ns = 0;
                w->conn.started_ns = 10000 * MS + DEADLINE;
                w->conn.state = CONN_TLS;
                for (uint64_t at_ns = 10000 * MS; !told_ns && at_ns < 20000 * MS; at_ns += 100 * MS) {
                        told_ns = world_run(w, at_ns, at_ns + 100 * MS);
                        if (again && at_ns >= w->conn.started_ns)
                                w->conn.started_ns = at_ns;
                }
                assert_true(told_ns >= 10000 * MS + LIMIT + 500 * MS);
                assert_true(told_ns < 10000 * MS + DEADLINE + 1000 * MS);
        }

        /* Over: at once. */
        w->peer.down_ns = 20000 * MS;
        w->peer.told_ns = 0;
        w->conn.started_ns = 20000 * MS + DEADLINE;
        assert_int_equal(world_run(w, 20000 * MS, 20000 * MS + LIMIT + 100 * MS), 0);
        w->conn.doomed = true;
        assert_int_equal(world_run(w, 20000 * MS + LIMIT + 100 * MS, 30000 * MS), 20000 * MS + LIMIT + 100 * MS);

        /* Of one that was never heard of it may take as long as a handshake may. */
        w->conn.doomed = false;
        w->peer.heard_ns = w->peer.told_ns = 0;
        w->peer.down_ns = w->conn.started_ns = 40000 * MS;
        assert_int_equal(world_run(w, 40000 * MS, 50000 * MS), 40000 * MS + HANDSHAKE);
}

/* For what waits here, or for the other end, which has knocked. */
static void test_missed(void **state) {
        struct fabric_conn made = {.state = CONN_HELLO};
        struct world *w = *state;

        assert_false(route_is_missed(&w->route));
        peer_check_reachable(&w->fabric, &w->peer, 1000 * MS);
        assert_true(route_is_missed(&w->route));
        w->peer.n_up = 1;
        w->conn.state = CONN_UP;
        w->route.ports[FABRIC_NORMAL].conn = &w->conn;
        assert_false(route_is_missed(&w->route));
        peer_check_reachable(&w->fabric, &w->peer, 1001 * MS);
        assert_false(route_is_missed(&w->route));

        /* The peer has made it just when the route went down here: nothing goes over it. */
        w->route.health.state = FABRIC_DOWN;
        assert_true(route_is_missed(&w->route));
        HASH_DEL(w->fabric.areas, &w->area);
        assert_false(route_is_missed(&w->route));
        HASH_ADD(hh, w->fabric.areas, key, sizeof(w->area.key), &w->area);
        w->route.health.state = FABRIC_PROBING;
        assert_false(route_is_missed(&w->route));
        w->route.ports[FABRIC_NORMAL].conn = NULL;
        w->peer.n_items = w->peer.n_up = 0;
        peer_check_reachable(&w->fabric, &w->peer, 1002 * MS);
        assert_false(route_is_missed(&w->route));
        w->route.ports[FABRIC_BULK].wanted = true;
        assert_true(route_is_missed(&w->route));

        /* There is another way, but not for who has knocked: until that connection is up, or has failed. */
        w->peer.n_up = 1;
        w->route.ports[FABRIC_NORMAL].conn = &w->conn;
        assert_false(route_is_missed(&w->route));
        w->route.ports[FABRIC_BULK].missed = true;
        assert_true(route_is_missed(&w->route));
        w->route.ports[FABRIC_BULK].wanted = false;
        assert_false(route_is_missed(&w->route));
        w->route.ports[FABRIC_BULK].conn = &made;
        assert_true(route_is_missed(&w->route));
}

/* A connection that nobody answers is begun anew for who wanted it, and else as the route's hold-down says. */
static void test_unanswered(void **state) {
        struct world *w = *state;
        struct fabric_port *port = &w->route.ports[FABRIC_NORMAL];

        w->peer.n_items = 0;
        port->route = &w->route;
        w->conn.fd = -1; /* nothing comes of it */
        w->conn.port = port;
        w->conn.state = CONN_CONNECTING;
        w->conn.started_ns = 1000 * MS;
        for (uint32_t wanted = 0; wanted < 2; wanted++) {
                port->n_errors = 0;
                w->route.health.state = FABRIC_DOWN;
                w->conn.doomed = false;
                w->conn.wanted = wanted;
                conn_tick(&w->conn, 1000 * MS + DEADLINE / 2 - 1);
                assert_false(w->conn.doomed);
                conn_tick(&w->conn, 1000 * MS + DEADLINE / 2);
                assert_true(w->conn.doomed);
                assert_false(w->conn.failed); /* the route knows */
                assert_int_equal(port->n_errors, 1);
                assert_int_equal(route_is_missed(&w->route), wanted);
        }
        port->n_errors = 0;
        w->route.health.state = FABRIC_UP;
        w->conn.doomed = false;
        conn_tick(&w->conn, 1000 * MS + DEADLINE / 2);
        assert_true(w->conn.failed);
}

/* It is answered, and the rail's thread has not come to see it. */
static void test_answered_late(void **state) {
        struct world *w = *state;
        int fds[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        w->conn.fd = fds[0];
        w->conn.port = &w->route.ports[FABRIC_NORMAL];
        w->conn.state = CONN_CONNECTING;
        w->conn.started_ns = 1000 * MS;
        conn_tick(&w->conn, 1000 * MS + DEADLINE);
        assert_false(w->conn.doomed);
        conn_tick(&w->conn, 1000 * MS + HANDSHAKE);
        assert_true(w->conn.doomed);
        close(fds[0]);
        close(fds[1]);
}

/* The same of an area that may not take every rail. Returns when it was said of it. */
static uint64_t world_check_ways(struct world *w, uint64_t from_ns, uint64_t until_ns) {
        const uint32_t before = w->cut_off;

        for (uint64_t now_ns = from_ns; now_ns < until_ns; now_ns += MS) {
                areas_check_ways(&w->fabric, now_ns);
                (void)world_told(w);
                if (w->cut_off > before)
                        return now_ns;
        }
        return 0;
}

/* Each node by itself that it sends to, and no other one. */
static void test_cut_off(void **state) {
        struct fabric_peer other = {.n_routes = 0};
        struct world *w = *state;

        memset(other.node.id, 8, sizeof(other.node.id));
        HASH_ADD(hh, w->fabric.peers, node, sizeof(w->peer.node), &w->peer);
        HASH_ADD(hh, w->fabric.peers, node, sizeof(other.node), &other);
        w->area.nodes[w->area.n_ranks++] = other.node;
        w->area.only = 1;
        w->peer.n_up = 1;
        w->conn.state = CONN_UP;
        w->route.ports[FABRIC_NORMAL].conn = &w->conn;
        w->area.n_to[0] = 1;
        assert_int_equal(world_check_ways(w, 1000 * MS, 9000 * MS), 0);
        assert_false(other.cut_off);

        /* One after the other, and none for long. */
        w->peer.n_up = 0;
        assert_int_equal(world_check_ways(w, 10000 * MS, 10000 * MS + LIMIT), 0);
        w->peer.n_up = 1;
        w->area.n_to[1] = 1;
        assert_int_equal(world_check_ways(w, 10000 * MS + LIMIT, 20000 * MS), 10000 * MS + 2 * LIMIT);
        assert_int_equal(w->cut_from, 8);
        assert_true(other.cut_off);

        /* Both. */
        w->peer.n_up = 0;
        assert_int_equal(world_check_ways(w, 20000 * MS, 20000 * MS + 1), 20000 * MS);
        assert_int_equal(w->cut_from, 8);
        assert_int_equal(world_check_ways(w, 20000 * MS + MS, 30000 * MS), 20000 * MS + LIMIT);
        assert_int_equal(w->cut_off, 4);
        HASH_CLEAR(hh, w->fabric.peers);
}

/* As long as for who may take all. */
static void test_only_rail_hangs(void **state) {
        struct fabric_rail other = {.number = 4};
        struct fabric_route way = {.rail = &other};
        struct fabric_conn conn = {.state = CONN_UP};
        struct world *w = *state;

        HASH_ADD(hh, w->fabric.peers, node, sizeof(w->peer.node), &w->peer);
        w->rail.number = 3;
        w->area.only = 1u << 3;
        w->area.n_to[0] = 1;
        conn.peer = way.peer = &w->peer;
        DL_APPEND(other.conns, &conn);
        way.ports[FABRIC_NORMAL].conn = &conn;
        w->peer.routes[w->peer.n_routes++] = &way;
        w->peer.n_up = 2;
        w->conn.state = CONN_UP;
        DL_APPEND(w->rail.conns, &w->conn);
        w->route.ports[FABRIC_NORMAL].conn = &w->conn;
        assert_int_equal(world_check_ways(w, 1000 * MS, 9000 * MS), 0);
        w->rail.away_ns = 9000 * MS;
        w->rail.stuck = true;
        assert_int_equal(world_check_ways(w, 9000 * MS, 19000 * MS), 9000 * MS + 2 * DEADLINE + LIMIT);
        assert_true(route_is_missed(&w->route));
        w->rail.away_ns = 0;
        w->rail.stuck = false;
        assert_int_equal(world_check_ways(w, 19000 * MS, 29000 * MS), 0);

        /* It is held down, and a connection has come meanwhile: it is missed, and tried. */
        w->route.health.state = FABRIC_DOWN;
        assert_int_equal(world_check_ways(w, 29000 * MS, 39000 * MS), 0);
        assert_true(route_is_missed(&w->route));
        assert_false(route_is_missed(&way));
        HASH_CLEAR(hh, w->fabric.peers);
}

/* What connections of the only rail that it may take do not bring is no reason to give up the peer, which has others.
 */
static void test_only_does_not_arrive(void **state) {
        const uint64_t limit_ns = STUCK_DEADLINES * DEADLINE;
        struct schedule_item *items = NULL;
        struct fabric_item *item;
        struct world *w = *state;
        uint64_t now_ns = 1000 * MS;

        HASH_ADD(hh, w->fabric.peers, node, sizeof(w->peer.node), &w->peer);
        w->rail.number = 3;
        w->area.only = 1u << 3;
        w->peer.n_up = 1;
        w->conn.state = CONN_UP;
        w->conn.peer = &w->peer;
        w->conn.number = 1;
        w->route.ports[FABRIC_NORMAL].conn = &w->conn;
        w->area.n_refs = 1;
        item = item_new(&w->fabric, &w->area, &w->peer, 0);
        assert_non_null(item);
        DL_APPEND(items, &item->schedule);
        w->conn.unacked = items;
        grave_dig(&w->fabric, &w->conn);
        assert_non_null(w->peer.graves);
        assert_int_equal(world_run(w, now_ns, now_ns + 2 * limit_ns), 0);
        assert_int_equal(world_check_ways(w, now_ns, now_ns + 2 * limit_ns), now_ns + limit_ns);
        now_ns += limit_ns;
        assert_false(route_is_missed(&w->route));

        /* Without a connection it is cut off, and its rail is missed; no other. */
        w->peer.n_up = 0;
        assert_int_equal(world_check_ways(w, now_ns, now_ns + limit_ns), now_ns + LIMIT);
        w->peer.n_up = 1;
        assert_true(route_is_missed(&w->route));
        w->rail.number = 2;
        assert_false(route_is_missed(&w->route));
        w->rail.number = 3;

        /* It has arrived. */
        now_ns += limit_ns;
        graves_free(&w->fabric, &w->peer);
        assert_int_equal(w->area.n_to[0], 0);
        assert_int_equal(w->area.watches[0].n_again[0] + w->area.watches[0].n_again[1], 0);
        assert_int_equal(world_check_ways(w, now_ns, now_ns + 2 * limit_ns), 0);
        w->route.ports[FABRIC_NORMAL].conn = NULL;
        HASH_CLEAR(hh, w->fabric.peers);
        free(w->fabric.spare);
}

/* Of class latency, which has no connection; bulk has the other one. */
static struct fabric_port *world_port(struct world *w, struct fabric_conn *other) {
        struct fabric_port *port = &w->route.ports[FABRIC_LATENCY];

        w->peer.n_items = 0;
        w->fabric.limits.hold_max_ns = 10000 * MS;
        port->route = &w->route;
        port->class = FABRIC_LATENCY;
        w->route.ports[FABRIC_BULK].conn = other;
        return port;
}

/* A class whose handshake stands still is late by itself if another one has a connection that lives; and else all is.
 */
static void test_shakes_alone(void **state) {
        struct fabric_conn other = {.state = CONN_UP};
        struct world *w = *state;
        struct fabric_port *port = world_port(w, &other);

        port->conn = &w->conn;
        w->conn.port = port;
        w->conn.state = CONN_TLS;
        w->conn.started_ns = 1000 * MS;
        other.heard_ns = 1000 * MS + DEADLINE;
        conn_tick(&w->conn, 1000 * MS + DEADLINE - 1);
        assert_int_equal(port->rest_ns, 0);
        conn_tick(&w->conn, 1000 * MS + DEADLINE);
        assert_int_equal(port->rest_ns, 11000 * MS + DEADLINE);
        assert_int_equal(w->route.health.state, FABRIC_UP);

        port->rest_ns = 0;
        conn_tick(&w->conn, other.heard_ns + DEADLINE / 2); /* nor has that one said anything */
        assert_int_equal(port->rest_ns, 0);
        assert_int_equal(w->route.health.state, FABRIC_SUSPECT);
}

/* Knocks are answered, and no connection comes: a class by itself, or all. One that has come by another way is all that
 * is wanted. */
static void test_calls_back_alone(void **state) {
        struct fabric_conn other = {.state = CONN_UP, .heard_ns = 1000 * MS + DEADLINE}, mine = {.state = CONN_UP};
        struct world *w = *state;
        struct fabric_port *port = world_port(w, &other);

        port->schedule.queued_bytes = 1;
        port->knocked_ns = 1000 * MS;
        route_check_knocks(&w->fabric, &w->route, 1000 * MS + DEADLINE - 1);
        assert_int_equal(port->rest_ns, 0);
        route_check_knocks(&w->fabric, &w->route, 1000 * MS + DEADLINE);
        assert_int_equal(port->rest_ns, 11000 * MS + DEADLINE);
        assert_int_equal(w->route.health.state, FABRIC_UP);

        port->rest_ns = 0;
        port->conn = &mine;
        assert_true(port_rests(port, 1000 * MS + DEADLINE));
        assert_int_equal(port->rest_ns, 0);
        mine.doomed = true;
        assert_true(port_rests(port, 1000 * MS + DEADLINE));
        assert_int_equal(port->rest_ns, 11000 * MS + DEADLINE);
        port->conn = NULL;

        port->rest_ns = 0;
        port->knocked_ns = other.heard_ns;
        route_check_knocks(&w->fabric, &w->route, other.heard_ns + DEADLINE); /* nor is that one heard any more */
        assert_int_equal(port->rest_ns, 0);
        assert_int_equal(w->route.health.state, FABRIC_SUSPECT);
}

/* Where a message of the area goes. */
static struct fabric_port *world_place(struct world *w) {
        struct fabric_item *item = item_new(&w->fabric, &w->area, &w->peer, 0);
        struct fabric_port *port;

        assert_non_null(item);
        item->schedule.bytes = 100;
        item_place(&w->fabric, item);
        port = item->port;
        schedule_remove(&w->rail.schedule, &item->schedule);
        item_free(&w->fabric, item);
        return port;
}

/* When a class has rested a connection is tried, once and without what is sent: that waits for nothing. */
static void test_tried_alone(void **state) {
        struct fabric_conn other = {.state = CONN_UP}, mine = {.state = CONN_UP};
        struct world *w = *state;
        struct fabric_port *port = world_port(w, &other);

        schedule_init(&w->rail.schedule, 1000, 1000);
        w->fabric.rails[w->fabric.n_rails++] = &w->rail;
        w->rail.enabled = true;
        w->rail.estimate = 1;
        w->area.class = port->class;
        w->area.n_refs = 1;
        port->rest_ns = UINT64_MAX;
        assert_ptr_equal(world_place(w), &w->route.ports[FABRIC_BULK]);
        assert_false(port->tried);
        port->rest_ns = 1; /* long ago */
        assert_ptr_equal(world_place(w), &w->route.ports[FABRIC_BULK]);
        assert_true(port->tried);
        assert_true(port->rest_ns > w->fabric.limits.hold_max_ns);
        port->tried = false;
        assert_ptr_equal(world_place(w), &w->route.ports[FABRIC_BULK]);
        assert_false(port->tried);

        /* One that rests may be up at this end alone: it serves nobody, nor itself. */
        w->route.ports[FABRIC_NORMAL].conn = &mine;
        w->route.ports[FABRIC_NORMAL].rest_ns = UINT64_MAX;
        for (unsigned int i = 0; i < FABRIC_N_CLASSES; i++) {
                w->area.class = (enum fabric_class)i;
                assert_ptr_equal(world_place(w), &w->route.ports[FABRIC_BULK]);
        }
        w->route.ports[FABRIC_NORMAL].rest_ns = 0;
        w->area.class = port->class;
        assert_ptr_equal(world_place(w), &w->route.ports[FABRIC_NORMAL]);
        w->route.ports[FABRIC_NORMAL].conn = NULL;

        /* There is no other one; it has one. */
        other.doomed = true;
        assert_ptr_equal(world_place(w), port);
        other.doomed = false;
        port->rest_ns = 0;
        assert_ptr_equal(world_place(w), port);
        for (unsigned int i = 0; i < FABRIC_N_CLASSES; i++)
                schedule_port_deinit(&w->rail.schedule, &w->route.ports[i].schedule);
        free(w->fabric.spare);
}

/* The end that is dialled has answered, and the network does not carry the answer: the class goes on to rest. */
static void test_up_alone(void **state) {
        struct fabric_conn other = {.state = CONN_UP};
        struct world *w = *state;
        struct fabric_port *port = world_port(w, &other);

        w->rail.transport = &transport_tcp;
        w->rail.wake_fd = -1;
        w->rail.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        assert_true(w->rail.epoll_fd >= 0);
        for (uint32_t heard = 0; heard < 2; heard++) {
                uint64_t now_ns = 1000 * MS;
                struct fabric_conn *conn;
                int fds[2];

                assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
                assert_int_equal(conn_new(&w->rail, fds[0], true, now_ns, &conn), 0);
                conn->peer = &w->peer;
                conn->port = port;
                port->conn = conn;
                port->rest_ns = 9000 * MS;
                conn_up(conn, now_ns);
                assert_int_equal(port->rest_ns, 9000 * MS);
                if (heard)
                        conn_heard_at(conn, now_ns);
                assert_int_equal(port->rest_ns, heard ? 0 : 9000 * MS);

                now_ns += DEADLINE;
                other.heard_ns = now_ns;
                conn_tick(conn, now_ns);
                assert_true(conn->doomed);
                conn_bury(conn, now_ns);
                assert_int_equal(port->rest_ns, heard ? 0 : now_ns + 10000 * MS);
                assert_int_equal(w->route.health.state, heard ? FABRIC_SUSPECT : FABRIC_UP);
                close(fds[1]);
        }

        /* Who dials has heard the answer. */
        port->rest_ns = 9000 * MS;
        w->conn.port = port;
        w->conn.dialled = true;
        conn_up(&w->conn, 2000 * MS);
        assert_int_equal(port->rest_ns, 0);
        close(w->rail.epoll_fd);
}

/* Who may take some rails only waits for those that begin there. */
static void test_only_shakes_hands(void **state) {
        struct world *w = *state;

        w->rail.number = 3;
        w->conn.state = CONN_TLS;
        w->conn.started_ns = 1000 * MS;
        DL_APPEND(w->rail.conns, &w->conn);
        assert_true(peer_shakes_hands(&w->fabric, &w->peer, 0, 1000 * MS, HANDSHAKE, 1000 * MS + LIMIT));
        assert_true(peer_shakes_hands(&w->fabric, &w->peer, 1u << 3, 1000 * MS, HANDSHAKE, 1000 * MS + LIMIT));
        assert_false(peer_shakes_hands(&w->fabric, &w->peer, 1u << 2, 1000 * MS, HANDSHAKE, 1000 * MS + LIMIT));
        DL_DELETE(w->rail.conns, &w->conn);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_again, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_rail_hangs, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_not_heard, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_does_not_arrive, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_areas_gone, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_clock_of_others, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_shakes_hands, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_missed, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_unanswered, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_answered_late, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_cut_off, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_only_rail_hangs, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_only_does_not_arrive, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_shakes_alone, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_calls_back_alone, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_tried_alone, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_up_alone, world_new, world_free),
                cmocka_unit_test_setup_teardown(test_only_shakes_hands, world_new, world_free),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
