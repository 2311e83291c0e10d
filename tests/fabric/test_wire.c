/* SPDX-License-Identifier: MIT */
/* Frames and hellos: what is packed is unpacked, and any bit that differs is noticed. */
#include <stdlib.h>
#include <string.h>

#include "fabric/crc.h"
#include "fabric/frame.h"
#include "fabric/hello.h"
#include "tests/fabric/rig.h"

static void test_crc(void **state) {
        static uint8_t bytes[1200];
        uint64_t random = 5;

        (void)state;
        assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283); /* the check value of CRC-32C */
        assert_int_equal(crc32c_table(0, "123456789", 9), 0xe3069283);
        for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (uint8_t)rig_random(&random);
        for (size_t size = 0; size < sizeof(bytes); size++) {
                uint32_t crc = crc32c_table(0, bytes, size);

                for (uint32_t way = 0; way < CRC_WAYS; way++)
                        assert_int_equal(crc32c_by(way, 0, bytes, size), crc);
                assert_int_equal(crc32c(0, bytes, size), crc);
                assert_int_equal(crc32c(crc32c(0, bytes, size / 3), bytes + size / 3, size - size / 3), crc);
        }
}

static void test_frames(void **state) {
        const struct frame frames[] = {
                {FRAME_CHUNK, 1, 200, 77, 1000, 5, 6, 7, UINT64_MAX, 64, 128},
                {FRAME_CHUNK, 0, 0, 0, 0, 5, 1, 0, 1, 64, 0},
                {FRAME_CREDIT, 3, 4, UINT32_MAX, 0, 5, 9, 8, 2, 64, 0},
                {FRAME_PING, 0, 0, 0, 0, 5, 0, 8, 0, 0, 0},
                {FRAME_ANSWER, 0, 0, 1, 0, 5, 0, 8, 33, 44, 0},
        };
        uint8_t line[FRAME_LINE], head[FRAME_HEAD_MAX];

        (void)state;
        memset(line, 0x5a, sizeof(line));
        for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
                uint32_t bytes = frame_pack(&frames[i], line, head);
                struct frame back;

                assert_int_equal(bytes, frame_head_bytes(frames[i].kind));
                memset(&back, 0xee, sizeof(back));
                for (uint32_t n = 0; n < bytes; n++)
                        assert_int_equal(frame_decode(head, n, &back), FRAME_E_MORE);
                assert_int_equal(frame_decode(head, bytes, &back), 0);
                assert_true(back.kind == frames[i].kind && back.source == frames[i].source &&
                            back.destination == frames[i].destination && back.value == frames[i].value &&
                            back.data_bytes == frames[i].data_bytes && back.connection == frames[i].connection &&
                            back.sequence == frames[i].sequence && back.ack == frames[i].ack &&
                            back.key == frames[i].key && back.line_offset == frames[i].line_offset &&
                            back.data_offset == frames[i].data_offset);
                if (frames[i].kind == FRAME_CHUNK)
                        assert_memory_equal(head + FRAME_HEAD, line, FRAME_LINE);
                for (uint32_t bit = 0; bit < bytes * 8; bit++) {
                        head[bit / 8] ^= (uint8_t)(1u << bit % 8);
                        /* A credit that becomes a chunk has to wait for its line; no bit makes anything valid. */
                        assert_int_not_equal(frame_decode(head, bytes, &back), 0);
                        head[bit / 8] ^= (uint8_t)(1u << bit % 8);
                }
        }
}

static void test_hello(void **state) {
        struct hello hello = {
                .kind = HELLO_KNOCK, .class = 2, .missed = true, .from_epoch = 11, .to_epoch = 12, .number = 13};
        struct hello back;
        uint8_t bytes[HELLO_BYTES], token[FABRIC_TOKEN], other[FABRIC_TOKEN];

        (void)state;
        memset(token, 1, sizeof(token));
        memset(other, 1, sizeof(other));
        other[FABRIC_TOKEN - 1] = 2;
        memset(hello.from.id, 0xab, 16);
        memset(hello.to.id, 0xcd, 16);
        memset(hello.nonce, 0xef, 16);
        /* A name of full length. */
        memset(hello.cluster, 'c', FABRIC_NAME_MAX);
        memset(hello.rail, 'r', 3);
        assert_int_equal(hello_pack(&hello, token, bytes), 0);
        assert_int_equal(hello_unpack(bytes, &back), 0);
        assert_memory_equal(&back, &hello, sizeof(hello));
        assert_true(hello_proven(bytes, token));
        assert_false(hello_proven(bytes, other));
        for (unsigned int bit = 0; bit < HELLO_BYTES * 8; bit++) {
                bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
                assert_false(hello_proven(bytes, token));
                bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        assert_int_equal(hello_pack(&hello, NULL, bytes), 0);
        assert_false(hello_proven(bytes, token));
        bytes[0] ^= 1;
        assert_int_equal(hello_unpack(bytes, &back), HELLO_E_MALFORMED);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_crc),
                cmocka_unit_test(test_frames),
                cmocka_unit_test(test_hello),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
