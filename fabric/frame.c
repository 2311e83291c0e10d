/* SPDX-License-Identifier: MIT */
#include "fabric/frame.h"

#include "fabric/bytes.h"
#include "fabric/crc.h"

static uint32_t frame_check(const uint8_t *head, uint32_t bytes) {
        uint32_t crc = crc32c(0, head, FRAME_HEAD - 4);

        return crc32c(crc, head + FRAME_HEAD, bytes - FRAME_HEAD);
}

uint32_t frame_pack(const struct frame *frame, const uint8_t *line, uint8_t ret_head[FRAME_HEAD_MAX]) {
        uint32_t bytes = frame_head_bytes(frame->kind);
        uint8_t *p = ret_head;

        put_u32(p, (uint32_t)frame_bytes(frame->kind, frame->data_bytes));
        p[4] = FRAME_VERSION;
        p[5] = frame->kind;
        p[6] = frame->source;
        p[7] = frame->destination;
        put_u32(p + 8, frame->value);
        put_u32(p + 12, frame->data_bytes);
        put_u64(p + 16, frame->connection);
        put_u64(p + 24, frame->sequence);
        put_u64(p + 32, frame->ack);
        put_u64(p + 40, frame->key);
        put_u64(p + 48, frame->line_offset);
        put_u64(p + 56, frame->data_offset);
        put_u32(p + 64, 0);
        if (frame->kind == FRAME_CHUNK)
                memcpy(p + FRAME_HEAD, line, FRAME_LINE);
        put_u32(p + 68, frame_check(p, bytes));
        return bytes;
}

int frame_decode(const uint8_t *bytes, size_t size, struct frame *ret_frame) {
        struct frame frame;

        if (size < FRAME_HEAD)
                return FRAME_E_MORE;
        frame = (struct frame){
                .kind = bytes[5],
                .source = bytes[6],
                .destination = bytes[7],
                .value = get_u32(bytes + 8),
                .data_bytes = get_u32(bytes + 12),
                .connection = get_u64(bytes + 16),
                .sequence = get_u64(bytes + 24),
                .ack = get_u64(bytes + 32),
                .key = get_u64(bytes + 40),
                .line_offset = get_u64(bytes + 48),
                .data_offset = get_u64(bytes + 56),
        };
        if (bytes[4] != FRAME_VERSION || frame.kind == 0 || frame.kind >= FRAME_KIND_COUNT ||
            frame.data_bytes > FRAME_DATA_MAX || (frame.data_bytes && frame.kind != FRAME_CHUNK) ||
            (frame.sequence != 0) != (frame.kind <= FRAME_SKIP) || get_u32(bytes + 64) != 0 ||
            get_u32(bytes) != frame_bytes(frame.kind, frame.data_bytes))
                return FRAME_E_MALFORMED;
        if (size < frame_head_bytes(frame.kind))
                return FRAME_E_MORE;
        if (get_u32(bytes + 68) != frame_check(bytes, frame_head_bytes(frame.kind)))
                return FRAME_E_CORRUPTED;
        *ret_frame = frame;
        return 0;
}

void frame_pack_trailer(uint32_t state, uint32_t crc, uint8_t ret_trailer[FRAME_TRAILER]) {
        put_u32(ret_trailer, state);
        put_u32(ret_trailer + 4, crc);
}

void frame_unpack_trailer(const uint8_t trailer[FRAME_TRAILER], uint32_t *ret_state, uint32_t *ret_crc) {
        *ret_state = get_u32(trailer);
        *ret_crc = get_u32(trailer + 4);
}
