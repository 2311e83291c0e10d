/* SPDX-License-Identifier: MIT */
#include "fabric/crc.h"

#include <string.h>

/* Of the four low bits; the table for a byte would be 1 KiB to save a step that only old machines take. */
static const uint32_t crc_nibble[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
        0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t crc32c_table(uint32_t crc, const void *bytes, size_t size) {
        const unsigned char *p = bytes;

        crc = ~crc;
        for (size_t i = 0; i < size; i++) {
                crc ^= p[i];
                crc = crc >> 4 ^ crc_nibble[crc & 15];
                crc = crc >> 4 ^ crc_nibble[crc & 15];
        }
        return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(uint32_t crc, const void *bytes, size_t size) {
        const unsigned char *p = bytes;
        uint64_t sum = ~crc, word;

        for (; size >= 8; p += 8, size -= 8) {
                memcpy(&word, p, 8);
                sum = __builtin_ia32_crc32di(sum, word);
        }
        for (; size; p++, size--)
                sum = __builtin_ia32_crc32qi((uint32_t)sum, *p);
        return ~(uint32_t)sum;
}

uint32_t crc32c(uint32_t crc, const void *bytes, size_t size) {
        if (__builtin_cpu_supports("sse4.2"))
                return crc32c_sse(crc, bytes, size);
        return crc32c_table(crc, bytes, size);
}
#else
uint32_t crc32c(uint32_t crc, const void *bytes, size_t size) {
        return crc32c_table(crc, bytes, size);
}
#endif
