/* SPDX-License-Identifier: MIT */
/* A stream of another daemon: frames within bounds or refused, and what was taken has all its sizes in order. */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/peer_address.h"
#include "daemon/peer_frame.h"
#include "tests/fuzz/fuzz_frame.h"

/* What a reader of messages relies on. */
static void check_sizes(const Railmux__Peer__Message *message) {
        if (message->body_case == RAILMUX__PEER__MESSAGE__BODY_ASSIGN) {
                const Railmux__Peer__Assign *assign = message->assign;

                fuzz_frame_check(assign->comm_id.len == PEER_ID_BYTES && assign->n_members == assign->n_ranks);
                fuzz_frame_check(assign->n_ranks > 0 && assign->n_ranks <= PEER_RANKS_MAX);
                for (size_t i = 0; i < assign->n_members; i++)
                        fuzz_frame_check(assign->members[i]->rank < assign->n_ranks &&
                                         assign->members[i]->node < assign->n_nodes);
                for (size_t i = 0; i < assign->n_nodes; i++)
                        fuzz_frame_check(assign->nodes[i]->node.len == 16);
        }
        if (message->body_case == RAILMUX__PEER__MESSAGE__BODY_JOIN)
                fuzz_frame_check(message->join->comm_id.len == PEER_ID_BYTES &&
                                 message->join->rank < message->join->n_ranks);
        if (message->body_case == RAILMUX__PEER__MESSAGE__BODY_RAILS)
                fuzz_frame_check(message->rails->n_rails <= PEER_RAILS_MAX);
}

static void check_address(const uint8_t *data, size_t size) {
        char text[256], host[PEER_ADDRESS_MAX], again[PEER_ADDRESS_MAX];
        struct sockaddr_storage address;
        uint16_t port = 0;
        int length;

        if (size >= sizeof(text))
                return;
        memcpy(text, data, size);
        text[size] = '\0';
        if (peer_address_split(text, host, &port) == 0)
                fuzz_frame_check(host[0] && memchr(host, '\0', sizeof(host)) != NULL);
        if (peer_address_parse(text, &address, &length) == 0) {
                peer_address_format((struct sockaddr *)&address, again);
                fuzz_frame_check(strlen(again) < sizeof(again));
                peer_address_is_loopback((struct sockaddr *)&address);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        size_t limit = size && data[0] & 1 ? PEER_HELLO_MAX : 1u << 20, at = 0;

        check_address(data, size);
        fuzz_frame(data, size, &railmux__peer__message__descriptor);
        for (;;) {
                Railmux__Peer__Message *message = NULL;
                struct frame_arena arena;
                const char *field = NULL;
                size_t length = 0, packed_size;
                uint8_t *packed;
                int r;

                r = peer_frame_length(data + at, size - at, limit, &length);
                fuzz_frame_check(r >= 0 && (r || (length > 0 && length <= limit)));
                if (r || length > size - at - PEER_FRAME_HEADER)
                        return 0;
                at += PEER_FRAME_HEADER;
                r = peer_frame_unpack(data + at, length, &arena, &field, &message);
                fuzz_frame_check(arena.used <= arena.limit);
                at += length;
                if (r) {
                        fuzz_frame_check(r == PEER_FRAME_E_MALFORMED || (r == PEER_FRAME_E_BOUNDS && field));
                        continue;
                }
                check_sizes(message);
                /* What one daemon takes, another may send. */
                if (peer_frame_pack(message, 1u << 20, &packed, &packed_size) == 0)
                        free(packed);
                railmux__peer__message__free_unpacked(message, &arena.allocator);
        }
}
