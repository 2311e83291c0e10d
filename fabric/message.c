/* SPDX-License-Identifier: MIT */
/*
 * What frames mean, however they came.
 *
 * Nothing that a peer sends is believed: the frame must be of this connection and the next one in order, else the
 * connection ends; the area must be here, the ranks must live where they say, and the offsets lie inside of what the
 * area had when it was added, else the message is counted and thrown away, and the connection goes on.
 */
#include "fabric/private.h"
#include "fabric/transport.h"

#define TELL_BYTES    (UINT64_C(1) << 16) /* acknowledged at once after so many, else a little later */
#define TELL_MESSAGES 32u
#define TELL_LATER_NS UINT64_C(1000000)

void conn_malformed(struct fabric_conn *conn, const char *what) {
        struct fabric *fabric = conn->rail->fabric;

        fabric->counters.malformed++;
        fabric_tell_violation(fabric, conn->peer, 0, what);
        conn_doom(conn, true, "%s", what);
}

void conn_corrupted(struct fabric_conn *conn) {
        conn->rail->fabric->counters.corrupted++;
        conn_doom(conn, true, "a checksum is wrong");
}

struct fabric_area *conn_target(struct fabric_conn *conn, const struct frame *frame) {
        struct fabric *fabric = conn->rail->fabric;
        struct fabric_area *area;
        struct net_descriptor d = {.kind = frame->kind,
                                   .data_bytes = frame->data_bytes,
                                   .line_offset = frame->line_offset,
                                   .data_offset = frame->data_offset};

        HASH_FIND(hh, fabric->areas, &frame->key, sizeof(frame->key), area);
        if (!area) {
                fabric->counters.unknown_area++;
                return NULL;
        }
        if (!net_descriptor_valid(&d, area->memory_offset, area->memory_bytes)) {
                fabric->counters.out_of_bounds++;
                fabric_tell_violation(fabric, conn->peer, frame->key, "the peer sent offsets outside of the area");
                return NULL;
        }
        if (frame->source >= area->n_ranks || frame->destination >= area->n_ranks ||
            memcmp(&area->nodes[frame->source], &conn->peer->node, sizeof(struct fabric_node)) != 0 ||
            memcmp(&area->nodes[frame->destination], &fabric->options.self, sizeof(struct fabric_node)) != 0) {
                fabric->counters.wrong_rank++;
                fabric_tell_violation(fabric, conn->peer, frame->key,
                                      "the peer sent something for ranks that are not its own and ours");
                return NULL;
        }
        return area;
}

void conn_apply(struct fabric_conn *conn, struct fabric_area *area) {
        struct fabric *fabric = conn->rail->fabric;
        const struct frame *frame = &conn->frame;

        conn->received = frame->sequence;
        conn->untold_bytes += frame_bytes(frame->kind, frame->data_bytes);
        conn->rail->messages_received++;
        if (!area)
                return;
        if (area->gone) {
                fabric->counters.dropped++;
                return;
        }
        traffic_in(conn->rail, area, frame);
        if (frame->kind == FRAME_CHUNK) {
                memcpy((uint8_t *)area->memory + frame->line_offset + 4, conn->line, FRAME_LINE);
                fabric->counters.chunks_arrived++;
        } else {
                fabric->counters.credits_arrived++;
        }
        net_area_arrive(area->memory, frame->kind, frame->line_offset, frame->value);
        if (net_area_wake_executor(area->memory)) {
                fabric->counters.wakes++;
                fabric_ring(area->wake_fd);
        }
}

/* Frames without sequence. */
static void conn_heard(struct fabric_conn *conn, const struct frame *frame, uint64_t now_ns) {
        struct fabric *fabric = conn->rail->fabric;
        struct fabric_route *route = conn->port->route;

        switch (frame->kind) {
        case FRAME_PING:
                conn->pong = true;
                break;
        case FRAME_PONG:
                if (route_good(&route->health, &fabric->limits, now_ns))
                        route_changed(fabric, route, "it answers");
                break;
        case FRAME_QUESTION:
                recover_question(fabric, conn, frame->key);
                break;
        case FRAME_ANSWER:
                recover_answer(fabric, conn, frame);
                break;
        case FRAME_FORGET:
                recover_forget(fabric, conn, frame);
                break;
        case FRAME_OFFER:
        case FRAME_REVOKE:
        case FRAME_REVOKED:
                if (conn->rail->transport->conn_heard)
                        conn->rail->transport->conn_heard(conn, frame);
                else
                        conn_malformed(conn, "the peer speaks of memory on a rail that has none");
                break;
        default:
                break;
        }
}

uint32_t conn_head(struct fabric_conn *conn, const uint8_t *bytes, uint32_t size, uint64_t now_ns) {
        struct frame *frame = &conn->frame;
        int r;

        r = frame_decode(bytes, size, frame);
        if (r == FRAME_E_MORE)
                return 0;
        if (r == FRAME_E_CORRUPTED)
                conn_corrupted(conn);
        else if (r)
                conn_malformed(conn, "the peer sent something that is no frame");
        else if (frame->connection != conn->number)
                conn_malformed(conn, "the peer sent a frame of another connection");
        else if (frame->sequence && frame->sequence != conn->received + 1)
                conn_malformed(conn, "the peer sent a frame out of order");
        else
                conn_acked(conn, frame->ack, now_ns);
        if (conn->doomed)
                return 0;
        if (frame->kind == FRAME_CHUNK)
                memcpy(conn->line, bytes + FRAME_HEAD, FRAME_LINE);
        if (frame->sequence == 0)
                conn_heard(conn, frame, now_ns);
        return frame_head_bytes(frame->kind);
}

void conn_tell(struct fabric_conn *conn, uint64_t now_ns) {
        struct fabric_rail *rail = conn->rail;

        if (conn->pong && conn_control(conn, FRAME_PONG, 0, 0, 0))
                conn->pong = false;
        if (conn->received == conn->told)
                return;
        if (conn->untold_bytes >= TELL_BYTES || conn->received - conn->told >= TELL_MESSAGES)
                (void)conn_control(conn, FRAME_ACK, 0, 0, 0);
        else if (rail->ack_ns == 0)
                rail->ack_ns = now_ns + TELL_LATER_NS;
}
