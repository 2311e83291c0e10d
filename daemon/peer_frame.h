/* SPDX-License-Identifier: MIT */
#pragma once
/* Frames between daemons: a little-endian u32 with the number of bytes, then one packed message. */
#include "proto/frame.h"
#include "proto/peer.pb-c.h"
#include <stddef.h>
#include <stdint.h>

#define PEER_FRAME_HEADER 4u
#define PEER_HELLO_MAX    2048u /* bytes of a message before the connection is agreed on */
#define PEER_NONCE_BYTES  32u
#define PEER_ID_BYTES     128u   /* of a comm id */
#define PEER_RANKS_MAX    16384u /* of a communicator */
#define PEER_RAILS_MAX    64u
#define PEER_CHOICES_MAX  4096u
#define PEER_STRING_MAX   1024u /* bytes of any text */

/* Positive conditions: what arrived is at fault. */
enum {
        _PEER_FRAME_E_SUCCESS,
        PEER_FRAME_E_MORE,      /* not all of it is there */
        PEER_FRAME_E_LARGE,     /* the length is 0 or above the limit */
        PEER_FRAME_E_MALFORMED, /* does not unpack, or takes too much memory */
        PEER_FRAME_E_BOUNDS,    /* a field has a size that it may not have */
};

/* The number of bytes after the header of a frame that begins at data. 0, PEER_FRAME_E_MORE or PEER_FRAME_E_LARGE. */
int peer_frame_length(const uint8_t *data, size_t size, size_t limit, size_t *ret_length);
/* Unpacks and checks sizes. The caller frees with railmux__peer__message__free_unpacked(m, &arena->allocator).
 * PEER_FRAME_E_MALFORMED; PEER_FRAME_E_BOUNDS with the name of a field that lives for ever. */
int peer_frame_unpack(const uint8_t *body, size_t length, struct frame_arena *arena, const char **ret_field,
                      Railmux__Peer__Message **ret_message);
/* Packs header and message; free() the result. 0, -ENOMEM; PEER_FRAME_E_LARGE, PEER_FRAME_E_BOUNDS: nobody would take
 * it. */
int peer_frame_pack(const Railmux__Peer__Message *message, size_t limit, uint8_t **ret_data, size_t *ret_size);
/* NULL, or the name of the first field with a size that it may not have. */
const char *peer_frame_check(const Railmux__Peer__Message *message);
