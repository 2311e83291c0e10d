/* SPDX-License-Identifier: MIT */
/* Packets without their flags, and with them again. */
#include "tests/cmocka_all.h"

#include <string.h>

#include "gpu/hip/wire_packets.h"

/* n packets of the chunk in their memory, and behind them those of the chunk before. */
static void packets_fill(uint32_t *words, uint32_t number, uint32_t n) {
        for (uint32_t i = 0; i < 2 * WIRE_PACKETS; i++) {
                words[2 * i] = 1000 * number + i;
                words[2 * i + 1] = i < 2 * n ? number : number - 1;
        }
}

static void packets_lose_their_flags_and_get_them_back(void **state) {
        _Alignas(64) static uint32_t from[4 * WIRE_PACKETS], back[4 * WIRE_PACKETS];
        static unsigned char payload[STAGING_PACKET_CHUNK + 8];

        (void)state;
        for (uint32_t n = 0; n <= WIRE_PACKETS; n++) {
                packets_fill(from, 7 + n, n);
                memset(payload, 0xee, sizeof(payload));
                assert_int_equal(wire_packets_open((unsigned char *)from, 7 + n, payload), 8 * n);
                for (uint32_t i = 0; i < 2 * n; i++)
                        assert_int_equal(((uint32_t *)(void *)payload)[i], 1000 * (7 + n) + i);
                assert_int_equal(payload[8 * n], 0xee); /* nothing behind them */
                memset(back, 0, sizeof(back));
                wire_packets_close((unsigned char *)back, 7 + n, payload, 8 * n);
                assert_memory_equal(back, from, 16 * (size_t)n);
                for (uint32_t i = 4 * n; i < 4 * WIRE_PACKETS; i++)
                        assert_int_equal(back[i], 0);
        }
        /* Of a packet, too, of which one half only has the number. */
        for (uint32_t half = 0; half < 2 * WIRE_PACKETS; half++) {
                packets_fill(from, 7, WIRE_PACKETS);
                from[2 * half + 1] = 6;
                assert_int_equal(wire_packets_open((unsigned char *)from, 7, payload), half / 2 * 8);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(packets_lose_their_flags_and_get_them_back),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
