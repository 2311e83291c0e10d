/* SPDX-License-Identifier: MIT */
/*
 * Sizes of what daemons tell each other. A frame's length is believed only up to a limit, which is small as long as
 * the sender is a stranger; unpacking takes from an arena, so a small frame cannot ask for much memory; and what was
 * unpacked has its arrays and texts within bounds, so that whoever reads it need not ask again. What values mean is the
 * reader's business.
 */
#include "daemon/peer_frame.h"

#include "daemon/comm_id.h"
#include "daemon/peer.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PEER_UNPACK_BYTES_MAX (4u << 20)

_Static_assert(PEER_ID_BYTES == COMM_ID_BYTES && PEER_NODE_BYTES == COMM_ID_NODE_BYTES, "the same ids");

int peer_frame_length(const uint8_t *data, size_t size, size_t limit, size_t *ret_length) {
        size_t length;

        if (size < PEER_FRAME_HEADER)
                return PEER_FRAME_E_MORE;
        length = (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16 | (size_t)data[3] << 24;
        if (length == 0 || length > limit)
                return PEER_FRAME_E_LARGE;
        *ret_length = length;
        return 0;
}

static bool text_fits(const char *text, size_t size) {
        return strnlen(text, size) < size;
}

static const char *assign_check(const Railmux__Peer__Assign *assign) {
        if (assign->comm_id.len != PEER_ID_BYTES)
                return "assign.comm_id";
        if (!text_fits(assign->name, PEER_STRING_MAX))
                return "assign.name";
        if (!text_fits(assign->tenant, PEER_STRING_MAX))
                return "assign.tenant";
        if (assign->n_ranks == 0 || assign->n_ranks > PEER_RANKS_MAX)
                return "assign.n_ranks";
        if (assign->n_members != assign->n_ranks)
                return "assign.members";
        if (assign->n_nodes == 0 || assign->n_nodes > assign->n_ranks)
                return "assign.nodes";
        if (assign->n_choices > PEER_CHOICES_MAX)
                return "assign.choices";
        for (size_t i = 0; i < assign->n_nodes; i++) {
                if (assign->nodes[i]->node.len != PEER_NODE_BYTES)
                        return "assign.nodes.node";
                if (!text_fits(assign->nodes[i]->address, PEER_ADDRESS_MAX))
                        return "assign.nodes.address";
        }
        for (size_t i = 0; i < assign->n_members; i++) {
                if (assign->members[i]->rank >= assign->n_ranks)
                        return "assign.members.rank";
                if (assign->members[i]->node >= assign->n_nodes)
                        return "assign.members.node";
        }
        return NULL;
}

static const char *rails_check(const Railmux__Peer__Rails *rails) {
        if (rails->n_rails > PEER_RAILS_MAX)
                return "rails.rails";
        for (size_t i = 0; i < rails->n_rails; i++) {
                if (!text_fits(rails->rails[i]->name, PEER_STRING_MAX))
                        return "rails.rails.name";
                if (!text_fits(rails->rails[i]->address, PEER_ADDRESS_MAX))
                        return "rails.rails.address";
                if (rails->rails[i]->port == 0 || rails->rails[i]->port > UINT16_MAX)
                        return "rails.rails.port";
        }
        return NULL;
}

static const char *join_check(const Railmux__Peer__Join *join) {
        if (join->comm_id.len != PEER_ID_BYTES)
                return "join.comm_id";
        if (!text_fits(join->tenant, PEER_STRING_MAX))
                return "join.tenant";
        if (!text_fits(join->name, PEER_STRING_MAX))
                return "join.name";
        if (join->n_ranks == 0 || join->n_ranks > PEER_RANKS_MAX)
                return "join.n_ranks";
        return join->rank < join->n_ranks ? NULL : "join.rank";
}

const char *peer_frame_check(const Railmux__Peer__Message *message) {
        switch (message->body_case) {
        case RAILMUX__PEER__MESSAGE__BODY__NOT_SET: /* a later version's: nobody sends these to us */
                return "body";
        case RAILMUX__PEER__MESSAGE__BODY_HELLO: /* its sizes belong to the reasons of refusals: peer_hello.c */
        case RAILMUX__PEER__MESSAGE__BODY_CLAIM:
        case RAILMUX__PEER__MESSAGE__BODY_WELCOME:
        case RAILMUX__PEER__MESSAGE__BODY_PING:
        case RAILMUX__PEER__MESSAGE__BODY_PONG:
        case RAILMUX__PEER__MESSAGE__BODY_GO:
        case RAILMUX__PEER__MESSAGE__BODY_ENDED:
                return NULL;
        case RAILMUX__PEER__MESSAGE__BODY_REFUSE:
                return text_fits(message->refuse->text, PEER_STRING_MAX) ? NULL : "refuse.text";
        case RAILMUX__PEER__MESSAGE__BODY_JOIN:
                return join_check(message->join);
        case RAILMUX__PEER__MESSAGE__BODY_JOIN_FAILED:
                if (message->join_failed->comm_id.len != PEER_ID_BYTES)
                        return "join_failed.comm_id";
                return text_fits(message->join_failed->text, PEER_STRING_MAX) ? NULL : "join_failed.text";
        case RAILMUX__PEER__MESSAGE__BODY_ASSIGN:
                return assign_check(message->assign);
        case RAILMUX__PEER__MESSAGE__BODY_READY:
                return text_fits(message->ready->text, PEER_STRING_MAX) ? NULL : "ready.text";
        case RAILMUX__PEER__MESSAGE__BODY_FAILED:
                return text_fits(message->failed->text, PEER_STRING_MAX) ? NULL : "failed.text";
        case RAILMUX__PEER__MESSAGE__BODY_LEFT:
                return message->left->rank < PEER_RANKS_MAX ? NULL : "left.rank";
        case RAILMUX__PEER__MESSAGE__BODY_RAILS:
                return rails_check(message->rails);
        default: /* added to the protocol by who checks it elsewhere */
                return NULL;
        }
}

int peer_frame_unpack(const uint8_t *body, size_t length, struct frame_arena *arena, const char **ret_field,
                      Railmux__Peer__Message **ret_message) {
        /* A stranger's message is small, and so is what it may take. */
        size_t limit = length <= PEER_HELLO_MAX ? (size_t)PEER_HELLO_MAX * 64 : PEER_UNPACK_BYTES_MAX;
        Railmux__Peer__Message *message;
        const char *field;

        frame_arena_init(arena, limit);
        message = railmux__peer__message__unpack(&arena->allocator, length, body);
        if (!message)
                return PEER_FRAME_E_MALFORMED;
        field = peer_frame_check(message);
        if (field) {
                railmux__peer__message__free_unpacked(message, &arena->allocator);
                *ret_field = field;
                return PEER_FRAME_E_BOUNDS;
        }
        *ret_message = message;
        return 0;
}

int peer_frame_pack(const Railmux__Peer__Message *message, size_t limit, uint8_t **ret_data, size_t *ret_size) {
        uint8_t *data;
        size_t length;

        if (peer_frame_check(message))
                return PEER_FRAME_E_BOUNDS;
        length = railmux__peer__message__get_packed_size(message);
        if (length > limit)
                return PEER_FRAME_E_LARGE;
        data = malloc(PEER_FRAME_HEADER + length);
        if (!data)
                return -ENOMEM;
        for (unsigned int i = 0; i < PEER_FRAME_HEADER; i++)
                data[i] = (uint8_t)(length >> (8 * i));
        railmux__peer__message__pack(message, data + PEER_FRAME_HEADER);
        *ret_data = data;
        *ret_size = PEER_FRAME_HEADER + length;
        return 0;
}
