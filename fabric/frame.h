/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What stands on a connection after its handshake. Little endian.
 *
 *   0  u32 length, all of it     8 u32 value            16 u64 connection   40 u64 key           64 u32 zero
 *   4  u8 version, u8 kind      12 u32 data_bytes       24 u64 sequence     48 u64 line_offset   68 u32 check
 *   6  u8 source, u8 destination                        32 u64 ack          56 u64 data_offset
 *
 * A chunk's line[4..63] comes next, and belongs to its head; the check is the CRC-32C of the head without it. Then the
 * data, and after data a trailer: u32 FRAME_WHOLE or FRAME_TORN, u32 CRC-32C of the data (0: not made).
 */
#include <stdint.h>

#include "fabric/fabric.h"

#define FRAME_VERSION  1u
#define FRAME_HEAD     72u
#define FRAME_LINE     60u
#define FRAME_HEAD_MAX (FRAME_HEAD + FRAME_LINE)
#define FRAME_TRAILER  8u
#define FRAME_DATA_MAX (UINT32_C(1) << 30)
#define FRAME_WHOLE    UINT32_C(0x656c6f68)
#define FRAME_TORN     UINT32_C(0x6e726f74) /* the area went while it was sent: nothing of this may be used */

enum frame_kind {
        /* These have sequences: 1, 2, 3 ... on each connection and direction. */
        FRAME_CHUNK = NET_CHUNK,
        FRAME_CREDIT = NET_CREDIT,
        FRAME_SKIP, /* its area went before it was sent */
        /* These have not: sequence 0. */
        FRAME_ACK,
        FRAME_PING,
        FRAME_PONG,
        FRAME_QUESTION, /* key: a dead connection; what did you take from it? */
        FRAME_ANSWER,   /* key: it, line_offset: highest sequence that was taken. value 1: I know nothing of it */
        FRAME_FORGET,   /* key: a dead connection that will not be asked for any more; value: enum frame_forget */
        /* Of rails whose senders write to memory, on this connection. See fabric/verbs/places.c. */
        FRAME_OFFER,   /* key: an area, line_offset: the address of its staging, data_offset: bytes, value: rkey */
        FRAME_REVOKE,  /* key: an area that was offered and is going; write to it no more, and say so */
        FRAME_REVOKED, /* key: nothing that was written to it is still to come */
        FRAME_KIND_COUNT,
};

enum frame_forget {
        FORGET_TELL,    /* it is said; to be heard with one of these: */
        FORGET_HEARD,   /* heard */
        FORGET_STRANGE, /* there is no such connection here (any more), there will be none, and nothing is asked of it
                         */
};

enum {
        _FRAME_E_SUCCESS,
        FRAME_E_MORE,      /* not enough bytes yet */
        FRAME_E_MALFORMED, /* no frame of this version */
        FRAME_E_CORRUPTED, /* one with a wrong checksum */
};

struct frame {
        uint8_t kind, source, destination;
        uint32_t value, data_bytes;
        uint64_t connection; /* its number: what belongs to another one is not for us */
        uint64_t sequence, ack;
        uint64_t key, line_offset, data_offset;
};

static inline uint32_t frame_head_bytes(uint8_t kind) {
        return kind == FRAME_CHUNK ? FRAME_HEAD_MAX : FRAME_HEAD;
}
static inline uint64_t frame_bytes(uint8_t kind, uint32_t data_bytes) {
        return frame_head_bytes(kind) + (data_bytes ? (uint64_t)data_bytes + FRAME_TRAILER : 0);
}
/* line: FRAME_LINE bytes for chunks. Returns how many bytes were written to ret_head. */
uint32_t frame_pack(const struct frame *frame, const uint8_t *line, uint8_t ret_head[FRAME_HEAD_MAX]);
/* The head of a frame; a chunk's line is then at bytes + FRAME_HEAD. */
int frame_decode(const uint8_t *bytes, size_t size, struct frame *ret_frame);
void frame_pack_trailer(uint32_t state, uint32_t crc, uint8_t ret_trailer[FRAME_TRAILER]);
void frame_unpack_trailer(const uint8_t trailer[FRAME_TRAILER], uint32_t *ret_state, uint32_t *ret_crc);
