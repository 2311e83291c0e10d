/* SPDX-License-Identifier: MIT */
#include "daemon/control_peers.h"

#include "daemon/cluster.h"
#include "daemon/control_answer.h"
#include "daemon/manager.h"
#include "daemon/peer.h"
#include "util/clock.h"
#include <stdio.h>

static char *control_node(struct control_answer *answer, const uint8_t *node) {
        char text[2 * PEER_NODE_BYTES + 1] = "";

        for (size_t i = 0; node && i < PEER_NODE_BYTES; i++)
                snprintf(text + 2 * i, 3, "%02x", node[i]);
        return control_answer_text(answer, "%s", text);
}

static void control_peer(const struct peer_row *from, void *data) {
        struct control_answer *answer = data;
        Railmux__Control__Peer *row = control_answer_message(answer, &railmux__control__peer__descriptor);

        if (!row)
                return;
        row->name = control_answer_text(answer, "%s", peer_name(from->peer));
        row->node = control_node(answer, peer_node_id(from->peer));
        row->address = control_answer_text(answer, "%s", peer_address(from->peer));
        row->state = control_answer_text(answer, "%s", from->state);
        row->boot = peer_boot(from->peer);
        row->protocol = peer_version(from->peer);
        row->since_ns = from->since_ns ? clock_now_ns() - from->since_ns : 0;
        row->tls = from->tls;
        row->dialled = from->dialled;
        row->holds = from->holds;
        row->sent_messages = from->sent_messages;
        row->sent_bytes = from->sent_bytes;
        row->received_messages = from->received_messages;
        row->received_bytes = from->received_bytes;
        row->queued_bytes = from->queued_bytes;
        row->round_trip_ns = from->round_trip_ns;
        row->losses = from->losses;
        row->attempts = from->attempts;
        row->error = control_answer_text(answer, "%s", peer_error(from->peer));
        control_answer_add(answer, CONTROL_PEERS, &row->base);
}

void control_peers_rows(struct control_answer *answer, const struct peers *peers) {
        Railmux__Control__Peer *row;

        if (!peers)
                return;
        row = control_answer_message(answer, &railmux__control__peer__descriptor);
        if (!row)
                return;
        row->name = control_answer_text(answer, "%s", peers_name(peers));
        row->node = control_node(answer, peers_node(peers));
        row->address = control_answer_text(answer, "%s", peers_address(peers));
        row->state = control_answer_text(answer, "self");
        row->boot = peers_boot(peers);
        row->protocol = PEER_PROTOCOL_MAX;
        row->tls = peers_tls(peers) != NULL;
        row->error = control_answer_text(answer, "%s", peers_deaf(peers) ? peers_deaf(peers) : "");
        row->cluster = control_answer_text(answer, "%s", peers_cluster(peers));
        control_answer_add(answer, CONTROL_PEERS, &row->base);
        peers_rows(peers, control_peer, answer);
}

void control_rows_peers(struct control_answer *answer, struct manager *manager) {
        control_peers_rows(answer, manager->cluster ? manager->cluster->peers : NULL);
}
