/* SPDX-License-Identifier: MIT */
/*
 * Other nodes: peers, rails, routes and the fabric. A node that is alone has none of them.
 *
 * The classes of a route have one state, and their numbers are added up, so there is a row for each rail and node.
 * Nodes are labelled by their ids besides their names, which nobody keeps from being equal.
 */
#include "daemon/metrics.h"

#include "daemon/cluster.h"
#include "daemon/cluster_rails.h"
#include "daemon/control_answer.h"
#include "daemon/manager.h"
#include "daemon/metrics_private.h"
#include "fabric/fabric.h"
#include "railmux/railmux.h"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define NODE_TEXT       (2 * sizeof(((struct fabric_node *)0)->id) + 1)

/* A member of a row that is a uint64_t. */
struct metrics_column {
        const char *name, *help, *kind;
        size_t offset;
        double divisor;
};

static double metrics_value(const void *row, const struct metrics_column *column) {
        uint64_t value;

        memcpy(&value, (const char *)row + column->offset, sizeof(value));
        return (double)value / column->divisor;
}

static void metrics_node_text(const uint8_t id[16], char ret_text[NODE_TEXT]) {
        for (size_t i = 0; i < (NODE_TEXT - 1) / 2; i++)
                snprintf(ret_text + 2 * i, 3, "%02x", id[i]);
}

/* ---- peers ------------------------------------------------------------------------------------------------------- */
#define PEER_COLUMN(name, help, kind, member, divisor)                                                                 \
        { name, help, kind, offsetof(struct peer_row, member), divisor }

static const struct metrics_column peer_columns[] = {
        PEER_COLUMN("peer_round_trip_seconds", "Time of the last heartbeat to a daemon of another node", "gauge",
                    round_trip_ns, 1e9),
        PEER_COLUMN("peer_queued_bytes", "Bytes that wait to be sent to a daemon of another node", "gauge",
                    queued_bytes, 1),
        PEER_COLUMN("peer_sent_bytes_total", "Bytes sent to a daemon of another node on the control channel", "counter",
                    sent_bytes, 1),
        PEER_COLUMN("peer_received_bytes_total", "Bytes received from a daemon of another node on the control channel",
                    "counter", received_bytes, 1),
};

struct metrics_peers {
        struct control_answer *answer;
        const struct metrics_column *column; /* NULL: is it up? */
};

static void metrics_peer(const struct peer_row *row, void *data) {
        const struct metrics_peers *peers = data;
        const struct metrics_column *column = peers->column;
        char node[NODE_TEXT];

        if (!peer_node_id(row->peer))
                return; /* never reached: who it is is not known */
        metrics_node_text(peer_node_id(row->peer), node);
        if (column)
                metrics_add(peers->answer, column->name, column->help, column->kind, metrics_value(row, column),
                            (const char *const[]){"peer", peer_name(row->peer), "node", node, NULL});
        else
                metrics_add(peers->answer, "peer_up", "1 if the daemon of that node is connected", "gauge",
                            strcmp(row->state, "up") == 0,
                            (const char *const[]){"peer", peer_name(row->peer), "node", node, NULL});
}

static void metrics_peers(struct control_answer *answer, const struct peers *peers) {
        const struct peers_counters *c = peers_counters(peers);
        struct metrics_peers walk = {.answer = answer};

        metrics_add(answer, "peers_up", "Daemons of other nodes that are connected", "gauge",
                    (double)(c->connects - c->losses), NULL);
        metrics_add(answer, "peer_connects_total", "Times that a daemon of another node was connected", "counter",
                    (double)c->connects, NULL);
        metrics_add(answer, "peer_losses_total", "Connections to daemons of other nodes that were lost", "counter",
                    (double)c->losses, NULL);
        metrics_add(answer, "peer_refused_total", "Connections of daemons that were refused or came to nothing",
                    "counter", (double)(c->refused + c->handshakes_failed), NULL);
        peers_rows(peers, metrics_peer, &walk);
        for (size_t i = 0; i < COUNT_OF(peer_columns); i++) {
                walk.column = &peer_columns[i];
                peers_rows(peers, metrics_peer, &walk);
        }
}

/* ---- rails ------------------------------------------------------------------------------------------------------- */
#define RAIL_COLUMN(name, help, kind, member)                                                                          \
        { "rail_" name, help, kind, offsetof(struct fabric_rail_row, member), 1 }

static const struct metrics_column rail_columns[] = {
        RAIL_COLUMN("sent_bytes_total", "Bytes sent on a rail, heads and all", "counter", bytes_sent),
        RAIL_COLUMN("received_bytes_total", "Bytes received on a rail, heads and all", "counter", bytes_received),
        RAIL_COLUMN("sent_messages_total", "Chunks and credits sent on a rail", "counter", messages_sent),
        RAIL_COLUMN("received_messages_total", "Chunks and credits received on a rail", "counter", messages_received),
        RAIL_COLUMN("sent_data_bytes_total", "Data of chunks that a rail brought to other nodes, each chunk once",
                    "counter", traffic.bytes_out),
        RAIL_COLUMN("received_data_bytes_total", "Data of chunks that a rail brought here, each chunk once", "counter",
                    traffic.bytes_in),
        RAIL_COLUMN("sent_chunks_total", "Chunks that a rail brought to other nodes, each once", "counter",
                    traffic.chunks_out),
        RAIL_COLUMN("received_chunks_total", "Chunks that a rail brought here, each once", "counter",
                    traffic.chunks_in),
        RAIL_COLUMN("refused_total", "Connections to a rail that were refused", "counter", refused),
        RAIL_COLUMN("unsettled_total", "Queue pairs of a rail that may have taken a receive with them", "counter",
                    unsettled),
        RAIL_COLUMN("queued_bytes", "Bytes that wait to be sent on a rail", "gauge", queued_bytes),
        RAIL_COLUMN("flight_bytes", "Bytes sent on a rail and not acknowledged", "gauge", flight_bytes),
        RAIL_COLUMN("bandwidth_bytes_per_second", "What a rail is believed to carry", "gauge", bytes_per_second),
};

static void metrics_rails(struct control_answer *answer, const struct cluster *cluster) {
        static const char *const up = "1 if the rail is neither drained nor disabled, and could be opened";
        const struct cluster_rail *waiting;
        struct fabric_rail_row *rows = NULL;
        size_t n = 0;

        if (fabric_rails(cluster->fabric, &rows, &n) < 0)
                control_answer_fail(answer, RMX_E_NO_MEMORY, "railmuxd is out of memory");
        for (size_t i = 0; i < n; i++)
                metrics_add(answer, "rail_up", up, "gauge", rows[i].enabled && !rows[i].drained,
                            (const char *const[]){"rail", rows[i].name, NULL});
        DL_FOREACH(cluster->waiting, waiting) {
                metrics_add(answer, "rail_up", up, "gauge", 0, (const char *const[]){"rail", waiting->spec.name, NULL});
        }
        for (size_t i = 0; i < n; i++)
                metrics_add(answer, "rail_connections", "Connections on a rail", "gauge", rows[i].connections,
                            (const char *const[]){"rail", rows[i].name, NULL});
        for (size_t k = 0; k < COUNT_OF(rail_columns); k++)
                for (size_t i = 0; i < n; i++)
                        metrics_add(answer, rail_columns[k].name, rail_columns[k].help, rail_columns[k].kind,
                                    metrics_value(&rows[i], &rail_columns[k]),
                                    (const char *const[]){"rail", rows[i].name, NULL});
        free(rows);
}

/* ---- routes ------------------------------------------------------------------------------------------------------ */
#define ROUTE_COLUMN(name, help, kind, member)                                                                         \
        { "route_" name, help, kind, offsetof(struct fabric_route_row, member), 1 }

static const struct metrics_column route_columns[] = {
        ROUTE_COLUMN("connections_total", "Connections made on a route", "counter", connections),
        ROUTE_COLUMN("retransmitted_total", "Messages on a route that had to be sent again", "counter", retransmitted),
        ROUTE_COLUMN("errors_total", "Connections and attempts on a route that failed", "counter", errors),
        ROUTE_COLUMN("queued_bytes", "Bytes that wait to be sent on a route", "gauge", queued_bytes),
        ROUTE_COLUMN("flight_bytes", "Bytes sent on a route and not acknowledged", "gauge", flight_bytes),
};

struct metrics_routes {
        struct control_answer *answer;
        struct peers *peers;
        struct fabric_route_row *rows; /* the classes of a route follow one another */
        size_t n;
};

/* A row for each route. column NULL: is it up? */
static void metrics_routes_column(const struct metrics_routes *routes, const struct metrics_column *column) {
        for (size_t i = 0; i < routes->n; i += FABRIC_N_CLASSES) {
                const struct fabric_route_row *row = &routes->rows[i];
                const struct peer *peer = peer_find(routes->peers, row->peer.id);
                char node[NODE_TEXT];
                const char *const labels[] = {"rail", row->rail,          "peer", peer ? peer_name(peer) : "",
                                              "node", (const char *)node, NULL};
                double value = 0;

                metrics_node_text(row->peer.id, node);
                for (size_t k = 0; column && k < FABRIC_N_CLASSES; k++)
                        value += metrics_value(&row[k], column);
                if (column)
                        metrics_add(routes->answer, column->name, column->help, column->kind, value, labels);
                else
                        metrics_add(routes->answer, "route_up", "1 if the route is up, 0 if suspect, down or probing",
                                    "gauge", row->state == FABRIC_UP, labels);
        }
}

static void metrics_routes(struct control_answer *answer, struct fabric *fabric, struct peers *peers) {
        static const enum fabric_route_state states[] = {FABRIC_UP, FABRIC_SUSPECT, FABRIC_DOWN, FABRIC_PROBING};
        struct metrics_routes routes = {.answer = answer, .peers = peers};
        uint64_t counts[COUNT_OF(states)] = {0};

        if (fabric_routes(fabric, &routes.rows, &routes.n) < 0)
                control_answer_fail(answer, RMX_E_NO_MEMORY, "railmuxd is out of memory");
        for (size_t i = 0; i < routes.n; i += FABRIC_N_CLASSES)
                for (size_t k = 0; k < COUNT_OF(states); k++)
                        counts[k] += routes.rows[i].state == states[k];
        for (size_t k = 0; k < COUNT_OF(states); k++)
                metrics_add(answer, "routes", "Routes to other nodes by state", "gauge", (double)counts[k],
                            (const char *const[]){"state", fabric_route_state_name(states[k]), NULL});
        metrics_routes_column(&routes, NULL);
        for (size_t i = 0; i < COUNT_OF(route_columns); i++)
                metrics_routes_column(&routes, &route_columns[i]);
        free(routes.rows);
}

/* ---- the fabric -------------------------------------------------------------------------------------------------- */
#define FABRIC_COLUMN(name, help, member)                                                                              \
        { "fabric_" name "_total", help, "counter", offsetof(struct fabric_counters, member), 1 }

static const struct metrics_column fabric_columns[] = {
        FABRIC_COLUMN("unknown_area", "Messages for communicators that are not here any more", unknown_area),
        FABRIC_COLUMN("out_of_bounds", "Messages with offsets outside of their area", out_of_bounds),
        FABRIC_COLUMN("wrong_rank", "Messages with ranks that are not on these nodes", wrong_rank),
        FABRIC_COLUMN("unknown_peer", "Messages for nodes that are not connected", unknown_peer),
        FABRIC_COLUMN("refused", "Connections of strangers that rails refused", refused),
        FABRIC_COLUMN("refused_token", "Of these, those that could not prove the token", refused_token),
        FABRIC_COLUMN("refused_epoch", "Of these, those of another life of either node", refused_epoch),
        FABRIC_COLUMN("malformed", "Connections closed for what is no message", malformed),
        FABRIC_COLUMN("corrupted", "Connections closed for a wrong checksum", corrupted),
        FABRIC_COLUMN("dropped", "Messages of communicators and nodes that had gone", dropped),
        FABRIC_COLUMN("torn", "Chunks that lost their communicator on the way", torn),
        FABRIC_COLUMN("retransmitted", "Messages sent again after their connection ended", retransmitted),
        FABRIC_COLUMN("chunks_arrived", "Chunks that arrived", chunks_arrived),
        FABRIC_COLUMN("credits_arrived", "Credits that arrived", credits_arrived),
        FABRIC_COLUMN("taken", "Messages that executors have posted", taken),
        FABRIC_COLUMN("wakes", "Times that an executor was woken", wakes),
        FABRIC_COLUMN("sleeps", "Times that the thread which takes messages went to sleep", sleeps),
        {"fabric_dead_connections", "Connections that ended and of which the peer has not said yet what it took",
         "gauge", offsetof(struct fabric_counters, graves), 1},
};

#define REGISTRATION_COLUMN(name, help, member, divisor)                                                               \
        { "fabric_" name, help, "gauge", offsetof(struct fabric_registrations, member), divisor }

static const struct metrics_column registration_columns[] = {
        REGISTRATION_COLUMN("registrations_queued", "Areas that wait to be made known to adapters, or to be taken back",
                            queued, 1),
        REGISTRATION_COLUMN("registrations_running", "Areas that are being made known or taken back, 0 or 1", running,
                            1),
        REGISTRATION_COLUMN("registration_seconds", "For how long that one has taken so far", running_ns, 1e9),
};

void metrics_fabric(struct control_answer *answer, struct manager *manager) {
        const struct cluster *cluster = manager->cluster;
        struct fabric_registrations registrations;
        struct fabric_counters counters;

        if (!cluster)
                return;
        metrics_peers(answer, cluster->peers);
        metrics_rails(answer, cluster);
        metrics_routes(answer, cluster->fabric, cluster->peers);
        fabric_counters(cluster->fabric, &counters);
        for (size_t i = 0; i < COUNT_OF(fabric_columns); i++)
                metrics_add(answer, fabric_columns[i].name, fabric_columns[i].help, fabric_columns[i].kind,
                            metrics_value(&counters, &fabric_columns[i]), NULL);
        fabric_registrations(cluster->fabric, &registrations);
        for (size_t i = 0; i < COUNT_OF(registration_columns); i++)
                metrics_add(answer, registration_columns[i].name, registration_columns[i].help,
                            registration_columns[i].kind, metrics_value(&registrations, &registration_columns[i]),
                            NULL);
}
