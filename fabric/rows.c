/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <utlist.h>

#include "fabric/private.h"
#include "fabric/transport.h"

int fabric_rails(struct fabric *fabric, struct fabric_rail_row **ret_rows, size_t *ret_n) {
        struct fabric_rail_row *rows = calloc(fabric->n_rails + 1, sizeof(*rows));

        if (!rows)
                return -ENOMEM;
        pthread_mutex_lock(&fabric->lock);
        for (size_t i = 0; i < fabric->n_rails; i++) {
                const struct fabric_rail *rail = fabric->rails[i];
                struct fabric_rail_row *row = &rows[i];

                memcpy(row->name, rail->name, sizeof(row->name));
                snprintf(row->kind, sizeof(row->kind), "%s", rail->transport->kind);
                socket_text(&rail->advertised, row->address, &row->port);
                row->drained = rail->drained;
                row->enabled = rail->enabled;
                row->bytes_sent = rail->bytes_sent;
                row->bytes_received = rail->bytes_received;
                row->messages_sent = rail->messages_sent;
                row->messages_received = rail->messages_received;
                row->queued_bytes = rail->schedule.queued_bytes;
                row->flight_bytes = rail->flight_bytes;
                row->bytes_per_second = rail->estimate;
                row->connections = rail->n_up;
                row->refused = rail->n_refused;
                row->unsettled = rail->n_unsettled;
                row->traffic = rail->traffic;
        }
        pthread_mutex_unlock(&fabric->lock);
        *ret_n = fabric->n_rails;
        *ret_rows = rows;
        return 0;
}

int fabric_routes(struct fabric *fabric, struct fabric_route_row **ret_rows, size_t *ret_n) {
        const struct fabric_route *route;
        struct fabric_route_row *rows;
        size_t n = 0;

        pthread_mutex_lock(&fabric->lock);
        for (size_t i = 0; i < fabric->n_rails; i++)
                DL_FOREACH(fabric->rails[i]->routes, route)
                        n += FABRIC_N_CLASSES;
        rows = calloc(n + 1, sizeof(*rows));
        if (!rows) {
                pthread_mutex_unlock(&fabric->lock);
                return -ENOMEM;
        }
        n = 0;
        for (size_t i = 0; i < fabric->n_rails; i++) {
                DL_FOREACH(fabric->rails[i]->routes, route) {
                        for (unsigned int c = 0; c < FABRIC_N_CLASSES; c++) {
                                const struct fabric_port *port = &route->ports[c];
                                struct fabric_route_row *row = &rows[n++];

                                memcpy(row->rail, route->rail->name, sizeof(row->rail));
                                row->peer = route->peer->node;
                                socket_text(&route->address, row->address, &row->port);
                                row->class = c;
                                row->state = route->health.state;
                                row->since_ns = route->health.since_ns;
                                row->connected = port->conn && port->conn->state == CONN_UP;
                                row->connections = port->n_connections;
                                row->retransmitted = port->n_retransmitted;
                                row->errors = port->n_errors;
                                row->queued_bytes = port->schedule.queued_bytes;
                                row->flight_bytes = port->flight_bytes;
                                row->messages_sent = port->messages_sent;
                                row->bytes_sent = port->bytes_sent;
                        }
                }
        }
        pthread_mutex_unlock(&fabric->lock);
        *ret_n = n;
        *ret_rows = rows;
        return 0;
}

void fabric_counters(struct fabric *fabric, struct fabric_counters *ret_counters) {
        pthread_mutex_lock(&fabric->lock);
        *ret_counters = fabric->counters;
        pthread_mutex_unlock(&fabric->lock);
}

const char *fabric_route_state_name(enum fabric_route_state state) {
        static const char *const names[] = {
                [FABRIC_UP] = "up", [FABRIC_SUSPECT] = "suspect", [FABRIC_DOWN] = "down", [FABRIC_PROBING] = "probing"};

        return state <= FABRIC_PROBING ? names[state] : "?";
}

const char *fabric_class_name(enum fabric_class class) {
        static const char *const names[FABRIC_N_CLASSES] = {
                [FABRIC_LATENCY] = "latency", [FABRIC_NORMAL] = "normal", [FABRIC_BULK] = "bulk"};

        return class < FABRIC_N_CLASSES ? names[class] : "?";
}
