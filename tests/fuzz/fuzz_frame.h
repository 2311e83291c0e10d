/* SPDX-License-Identifier: MIT */
#pragma once
/* What holds for all protocols: bytes unpack within the bound or not at all, and what was unpacked is whole. */
#include <stdint.h>
#include <stdlib.h>

#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_frame_check(int condition) {
        if (!condition)
                __builtin_trap();
}

static inline void fuzz_frame(const uint8_t *data, size_t size, const ProtobufCMessageDescriptor *descriptor) {
        struct frame_arena arena;
        ProtobufCMessage *message = NULL;
        uint8_t *packed;
        size_t packed_size;
        int r;

        if (size > FRAME_BYTES_MAX)
                return;
        /* A small limit makes each allocation of the unpacker fail in turn. */
        frame_arena_init(&arena, size ? (size_t)data[0] * 16 : 0);
        r = frame_unpack(data, size, descriptor, &arena, &message);
        fuzz_frame_check(arena.used <= arena.limit);
        if (r == FRAME_OK)
                protobuf_c_message_free_unpacked(message, &arena.allocator);

        frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
        r = frame_unpack(data, size, descriptor, &arena, &message);
        fuzz_frame_check(arena.used <= FRAME_UNPACK_BYTES_MAX);
        if (r != FRAME_OK) {
                fuzz_frame_check(r == FRAME_E_MALFORMED);
                return;
        }

        /* Walks every field that was unpacked. (No byte-wise round trip: unknown fields need not pack to what they
         * were.) */
        packed_size = protobuf_c_message_get_packed_size(message);
        packed = malloc(packed_size + 1);
        fuzz_frame_check(packed != NULL);
        fuzz_frame_check(protobuf_c_message_pack(message, packed) == packed_size);
        protobuf_c_message_free_unpacked(message, &arena.allocator);
        free(packed);
}
