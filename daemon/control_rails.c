/* SPDX-License-Identifier: MIT */
#include "daemon/control_rails.h"

#include "daemon/cluster.h"
#include "daemon/cluster_rails.h"
#include "daemon/comm.h"
#include "daemon/comm_remote.h"
#include "daemon/control_answer.h"
#include "daemon/manager.h"
#include "daemon/state.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include "util/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

static char *control_address(struct control_answer *answer, const char *address, uint16_t port) {
        return control_answer_text(answer, strchr(address, ':') ? "[%s]:%u" : "%s:%u", address, port);
}

static Railmux__Control__Carried *control_carried(struct control_answer *answer, const char *rail,
                                                  const struct fabric_traffic *traffic) {
        Railmux__Control__Carried *row = control_answer_message(answer, &railmux__control__carried__descriptor);

        if (!row)
                return NULL;
        row->rail = control_answer_text(answer, "%s", rail);
        row->chunks_sent = traffic->chunks_out;
        row->credits_sent = traffic->credits_out;
        row->data_sent = traffic->bytes_out;
        row->chunks_received = traffic->chunks_in;
        row->credits_received = traffic->credits_in;
        row->data_received = traffic->bytes_in;
        return row;
}

void control_comm_carried(struct control_answer *answer, Railmux__Control__Comm *row, const struct comm *comm) {
        struct fabric_traffic traffic[FABRIC_RAILS_MAX];
        struct fabric_rail_row *rails = NULL;
        struct fabric *fabric;
        size_t n = 0;

        if (!comm->remote || !comm->remote->net.in_fabric)
                return;
        fabric = comm->remote->cluster->fabric;
        if (fabric_area_traffic(fabric, comm->remote->key, traffic))
                return;
        if (fabric_rails(fabric, &rails, &n) < 0)
                control_answer_fail(answer, RMX_E_NO_MEMORY, "railmuxd is out of memory");
        if (n > 0)
                row->carried = control_answer_array(answer, n);
        for (size_t i = 0; row->carried && i < n; i++) {
                row->carried[i] = control_carried(answer, rails[i].name, &traffic[i]);
                if (!row->carried[i])
                        break;
                row->n_carried++;
        }
        free(rails);
}

/* Emulated ones have none: their ranks take rails in turn. */
static void control_rail_gpus(struct control_answer *answer, const struct manager *manager,
                              Railmux__Control__Rail *row) {
        const struct cluster *cluster = manager->cluster;

        if (!manager->on_device)
                return;
        row->gpus = control_answer_array(answer, manager->n_gpus);
        for (uint32_t gpu = 0; row->gpus && gpu < manager->n_gpus; gpu++)
                if (cluster_rail_serves(cluster, row->name, gpu))
                        row->gpus[row->n_gpus++] = gpu;
}

/* That cannot be opened yet. */
static void control_rows_waiting(struct control_answer *answer, const struct cluster *cluster) {
        const struct fabric_traffic nothing = {0};
        const struct cluster_rail *from;

        DL_FOREACH(cluster->waiting, from) {
                const struct rail_spec *spec = &from->spec;
                Railmux__Control__Rail *row = control_answer_message(answer, &railmux__control__rail__descriptor);

                if (!row)
                        break;
                row->name = control_answer_text(answer, "%s", spec->name);
                row->kind = control_answer_text(answer, "%s", spec->verbs ? "verbs" : "tcp");
                row->address = spec->advertise[0] ? control_address(answer, spec->advertise, spec->advertise_port)
                                                  : control_address(answer, spec->address, spec->port);
                row->state = control_answer_text(answer, "waiting");
                row->error = control_answer_text(answer, "%s", from->why);
                row->carried = control_carried(answer, spec->name, &nothing);
                control_rail_gpus(answer, cluster->manager, row);
                control_answer_add(answer, CONTROL_RAILS, &row->base);
        }
}

void control_rows_rails(struct control_answer *answer, struct manager *manager) {
        struct fabric_rail_row *rows = NULL;
        size_t n = 0;
        int r;

        if (!manager->cluster)
                return;
        r = fabric_rails(manager->cluster->fabric, &rows, &n);
        if (r < 0)
                control_answer_fail(answer, RMX_E_NO_MEMORY, "railmuxd is out of memory");
        for (size_t i = 0; i < n; i++) {
                const struct fabric_rail_row *from = &rows[i];
                Railmux__Control__Rail *row = control_answer_message(answer, &railmux__control__rail__descriptor);

                if (!row)
                        break;
                row->name = control_answer_text(answer, "%s", from->name);
                row->kind = control_answer_text(answer, "%s", from->kind);
                row->address = control_address(answer, from->address, from->port);
                row->state = control_answer_text(answer, "%s",
                                                 !from->enabled  ? "disabled"
                                                 : from->drained ? "drained"
                                                                 : "up");
                row->bytes_sent = from->bytes_sent;
                row->bytes_received = from->bytes_received;
                row->messages_sent = from->messages_sent;
                row->messages_received = from->messages_received;
                row->queued_bytes = from->queued_bytes;
                row->flight_bytes = from->flight_bytes;
                row->bytes_per_second = from->bytes_per_second;
                row->connections = from->connections;
                row->refused = from->refused;
                row->carried = control_carried(answer, from->name, &from->traffic);
                control_rail_gpus(answer, manager, row);
                control_answer_add(answer, CONTROL_RAILS, &row->base);
        }
        free(rows);
        control_rows_waiting(answer, manager->cluster);
}

void control_rows_routes(struct control_answer *answer, struct manager *manager) {
        struct fabric_route_row *rows = NULL;
        uint64_t now_ns = clock_now_ns();
        size_t n = 0;
        int r;

        if (!manager->cluster)
                return;
        r = fabric_routes(manager->cluster->fabric, &rows, &n);
        if (r < 0)
                control_answer_fail(answer, RMX_E_NO_MEMORY, "railmuxd is out of memory");
        for (size_t i = 0; i < n; i++) {
                const struct fabric_route_row *from = &rows[i];
                Railmux__Control__Route *row = control_answer_message(answer, &railmux__control__route__descriptor);
                const struct peer *peer = peer_find(manager->cluster->peers, from->peer.id);
                char node[2 * sizeof(from->peer.id) + 1];

                if (!row)
                        break;
                for (size_t k = 0; k < sizeof(from->peer.id); k++)
                        snprintf(node + 2 * k, 3, "%02x", from->peer.id[k]);
                row->rail = control_answer_text(answer, "%s", from->rail);
                row->peer = control_answer_text(answer, "%s", peer ? peer_name(peer) : "");
                row->node = control_answer_text(answer, "%s", node);
                row->address = control_address(answer, from->address, from->port);
                row->traffic_class = control_answer_text(answer, "%s", fabric_class_name(from->class));
                row->state = control_answer_text(answer, "%s", fabric_route_state_name(from->state));
                row->connected = from->connected;
                row->since_ns = now_ns > from->since_ns ? now_ns - from->since_ns : 0;
                row->connections = from->connections;
                row->retransmitted = from->retransmitted;
                row->errors = from->errors;
                row->queued_bytes = from->queued_bytes;
                row->messages_sent = from->messages_sent;
                row->data_sent = from->bytes_sent;
                row->flight_bytes = from->flight_bytes;
                control_answer_add(answer, CONTROL_ROUTES, &row->base);
        }
        free(rows);
}

void control_rail_drain(struct control_answer *answer, struct manager *manager, const char *rail, bool undo) {
        char text[160];
        int r;

        if (!manager->cluster) {
                control_answer_fail(answer, RMX_E_UNSUPPORTED, "this node is alone and has no rails; see --listen");
                return;
        }
        r = fabric_rail_drain(manager->cluster->fabric, rail, !undo);
        if (r == FABRIC_E_UNKNOWN && cluster_rail_waiting(manager->cluster, rail))
                r = 0; /* noted for when it comes */
        if (r == FABRIC_E_UNKNOWN)
                snprintf(text, sizeof(text), "no rail is named '%.31s'; railmuxctl rails shows them", rail);
        else if (r)
                snprintf(text, sizeof(text), "%s", r < 0 ? strerror(-r) : fabric_error(manager->cluster->fabric));
        if (r) {
                control_answer_fail(answer, r < 0 ? RMX_E_NO_MEMORY : RMX_E_INVALID, text);
                return;
        }
        /* A railmuxd that comes back has as many rails as there is room for, and has forgotten those that are gone. */
        if (undo)
                state_drained_forget(manager->state, rail);
        else
                (void)state_drained_note(manager->state, rail);
        log_notice("rail %s: %s", rail, undo ? "carries again" : "drained");
}
