/* SPDX-License-Identifier: MIT */
/* Unpacking alone: what bytes can do. */
#include <stdlib.h>
#include <string.h>

#include "proto/control.pb-c.h"
#include "proto/executor.pb-c.h"
#include "proto/frame.h"
#include "proto/session.pb-c.h"
#include "tests/cmocka_all.h"

/* An inventory with some of everything. The result is malloc'ed. */
static uint8_t *pack_inventory(size_t *ret_size) {
        uint64_t sessions[3] = {1, UINT64_MAX, 1u << 30};
        Railmux__Executor__RingKey ring = RAILMUX__EXECUTOR__RING_KEY__INIT;
        Railmux__Executor__CommKey comm = RAILMUX__EXECUTOR__COMM_KEY__INIT;
        Railmux__Executor__RingKey *rings[2] = {&ring, &ring};
        Railmux__Executor__CommKey *comms[1] = {&comm};
        Railmux__Executor__Inventory inventory = RAILMUX__EXECUTOR__INVENTORY__INIT;
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        uint8_t *data;

        ring.session = 7;
        ring.gpu = 3;
        comm.comm = 9;
        comm.epoch = 4;
        inventory.sessions = sessions;
        inventory.n_sessions = 3;
        inventory.rings = rings;
        inventory.n_rings = 2;
        inventory.comms = comms;
        inventory.n_comms = 1;
        message.id = 5;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_INVENTORY;
        message.inventory = &inventory;
        *ret_size = railmux__executor__message__get_packed_size(&message);
        data = malloc(*ret_size);
        assert_non_null(data);
        railmux__executor__message__pack(&message, data);
        return data;
}

static void test_round_trip(void **state) {
        const Railmux__Executor__Message *message;
        struct frame_arena arena;
        ProtobufCMessage *unpacked;
        uint8_t *data;
        size_t size;

        (void)state;
        data = pack_inventory(&size);
        frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
        assert_int_equal(frame_unpack(data, size, &railmux__executor__message__descriptor, &arena, &unpacked),
                         FRAME_OK);
        assert_true(arena.used > 0);
        message = (const Railmux__Executor__Message *)unpacked;
        assert_int_equal(message->id, 5);
        assert_int_equal(message->body_case, RAILMUX__EXECUTOR__MESSAGE__BODY_INVENTORY);
        assert_int_equal(message->inventory->n_sessions, 3);
        assert_true(message->inventory->sessions[1] == UINT64_MAX);
        assert_int_equal(message->inventory->n_rings, 2);
        assert_int_equal(message->inventory->rings[1]->gpu, 3);
        assert_int_equal(message->inventory->comms[0]->epoch, 4);
        protobuf_c_message_free_unpacked(unpacked, &arena.allocator);
        free(data);
}

/* Every limit below what the message needs refuses it whole; leaks would show under AddressSanitizer. */
static void test_limit_sweep(void **state) {
        struct frame_arena arena;
        ProtobufCMessage *unpacked = NULL;
        size_t size, need;
        uint8_t *data;

        (void)state;
        data = pack_inventory(&size);
        frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
        assert_int_equal(frame_unpack(data, size, &railmux__executor__message__descriptor, &arena, &unpacked),
                         FRAME_OK);
        need = arena.used;
        protobuf_c_message_free_unpacked(unpacked, &arena.allocator);
        for (size_t limit = 0; limit < need; ++limit) {
                unpacked = (ProtobufCMessage *)&arena;
                frame_arena_init(&arena, limit);
                assert_int_equal(frame_unpack(data, size, &railmux__executor__message__descriptor, &arena, &unpacked),
                                 FRAME_E_MALFORMED);
                assert_ptr_equal(unpacked, &arena);
                assert_true(arena.used <= limit);
        }
        frame_arena_init(&arena, need);
        /* The arena counts each message anew. */
        for (unsigned int i = 0; i < 3; ++i) {
                assert_int_equal(frame_unpack(data, size, &railmux__executor__message__descriptor, &arena, &unpacked),
                                 FRAME_OK);
                protobuf_c_message_free_unpacked(unpacked, &arena.allocator);
        }
        free(data);
}

/* Two bytes on the wire are an empty sub-message that costs dozens in memory. */
static void test_amplification_is_bounded(void **state) {
        static uint8_t data[FRAME_BYTES_MAX];
        struct frame_arena arena;
        ProtobufCMessage *unpacked;
        size_t n = 0, body;

        (void)state;
        body = sizeof(data) - 4;
        data[n++] = 3 << 3 | 2; /* Message.inventory, a length of three bytes follows */
        data[n++] = (uint8_t)(0x80 | (body & 0x7f));
        data[n++] = (uint8_t)(0x80 | (body >> 7 & 0x7f));
        data[n++] = (uint8_t)(body >> 14);
        for (; n + 1 < sizeof(data); n += 2) {
                data[n] = 2 << 3 | 2; /* Inventory.rings, empty */
                data[n + 1] = 0;
        }
        frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
        assert_int_equal(frame_unpack(data, sizeof(data), &railmux__executor__message__descriptor, &arena, &unpacked),
                         FRAME_E_MALFORMED);
        assert_true(arena.used <= FRAME_UNPACK_BYTES_MAX);
        /* The same bytes pass where the bound is wider: it was the bound that refused them. */
        frame_arena_init(&arena, 64u << 20);
        assert_int_equal(frame_unpack(data, sizeof(data), &railmux__executor__message__descriptor, &arena, &unpacked),
                         FRAME_OK);
        assert_true(arena.used > FRAME_UNPACK_BYTES_MAX);
        protobuf_c_message_free_unpacked(unpacked, &arena.allocator);
}

/* A newer peer may send fields that this version does not know. */
static void test_unknown_fields_are_kept_apart(void **state) {
        static const uint8_t data[] = {1 << 3, 6, 0xf8, 0x07, 0x01, 5 << 3 | 2, 0}; /* id 6, field 127 = 1, ack {} */
        struct frame_arena arena;
        ProtobufCMessage *unpacked;
        const Railmux__Session__Message *message;

        (void)state;
        frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
        assert_int_equal(frame_unpack(data, sizeof(data), &railmux__session__message__descriptor, &arena, &unpacked),
                         FRAME_OK);
        message = (const Railmux__Session__Message *)unpacked;
        assert_int_equal(message->id, 6);
        assert_int_equal(message->body_case, RAILMUX__SESSION__MESSAGE__BODY_ACK);
        protobuf_c_message_free_unpacked(unpacked, &arena.allocator);
}

/* A body that is not known is "not set", which the receiver refuses by name. */
static void test_unknown_body(void **state) {
        static const uint8_t data[] = {1 << 3, 6, 0xfa, 0x07, 0x00};
        struct frame_arena arena;
        ProtobufCMessage *unpacked;

        (void)state;
        frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
        assert_int_equal(frame_unpack(data, sizeof(data), &railmux__session__message__descriptor, &arena, &unpacked),
                         FRAME_OK);
        assert_int_equal(((const Railmux__Session__Message *)unpacked)->body_case,
                         RAILMUX__SESSION__MESSAGE__BODY__NOT_SET);
        protobuf_c_message_free_unpacked(unpacked, &arena.allocator);
}

static void try_bytes(const uint8_t *data, size_t size) {
        static const ProtobufCMessageDescriptor *const descriptors[] = {
                &railmux__session__message__descriptor,
                &railmux__executor__message__descriptor,
                &railmux__control__request__descriptor,
                &railmux__control__reply__descriptor,
        };
        struct frame_arena arena;
        ProtobufCMessage *unpacked;
        int r;

        for (size_t i = 0; i < sizeof(descriptors) / sizeof(descriptors[0]); ++i) {
                frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
                r = frame_unpack(data, size, descriptors[i], &arena, &unpacked);
                assert_true(r == FRAME_OK || r == FRAME_E_MALFORMED);
                if (r == FRAME_OK)
                        protobuf_c_message_free_unpacked(unpacked, &arena.allocator);
        }
}

static void test_damaged_bytes(void **state) {
        unsigned int malformed = 0;
        struct frame_arena arena;
        ProtobufCMessage *unpacked;
        uint8_t *data;
        size_t size;

        (void)state;
        data = pack_inventory(&size);
        for (size_t cut = 0; cut < size; ++cut) {
                /* Exactly sized, so that AddressSanitizer sees a read beyond. */
                uint8_t *copy = malloc(cut ? cut : 1);

                assert_non_null(copy);
                memcpy(copy, data, cut);
                try_bytes(copy, cut);
                frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
                if (frame_unpack(copy, cut, &railmux__executor__message__descriptor, &arena, &unpacked) == FRAME_OK)
                        protobuf_c_message_free_unpacked(unpacked, &arena.allocator);
                else
                        ++malformed;
                free(copy);
        }
        /* The one length-delimited body makes nearly every cut visible. */
        assert_true(malformed > size / 2);
        for (size_t bit = 0; bit < size * 8; ++bit) {
                data[bit / 8] ^= (uint8_t)(1u << bit % 8);
                try_bytes(data, size);
                data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        free(data);
}

static void test_error_texts(void **state) {
        (void)state;
        for (int condition = FRAME_OK; condition <= FRAME_E_TOO_LARGE; ++condition) {
                assert_string_not_equal(frame_error_text(condition), "unknown condition");
                for (int other = FRAME_OK; other < condition; ++other)
                        assert_string_not_equal(frame_error_text(condition), frame_error_text(other));
        }
        assert_string_equal(frame_error_text(1000), "unknown condition");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_round_trip),
                cmocka_unit_test(test_limit_sweep),
                cmocka_unit_test(test_amplification_is_bounded),
                cmocka_unit_test(test_unknown_fields_are_kept_apart),
                cmocka_unit_test(test_unknown_body),
                cmocka_unit_test(test_damaged_bytes),
                cmocka_unit_test(test_error_texts),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
