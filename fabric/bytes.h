/* SPDX-License-Identifier: MIT */
#pragma once
/* Little-endian numbers in bytes. */
#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void put_u16(uint8_t *p, uint16_t value) {
        value = htole16(value);
        memcpy(p, &value, 2);
}
static inline void put_u32(uint8_t *p, uint32_t value) {
        value = htole32(value);
        memcpy(p, &value, 4);
}
static inline void put_u64(uint8_t *p, uint64_t value) {
        value = htole64(value);
        memcpy(p, &value, 8);
}
static inline uint16_t get_u16(const uint8_t *p) {
        uint16_t value;

        memcpy(&value, p, 2);
        return le16toh(value);
}
static inline uint32_t get_u32(const uint8_t *p) {
        uint32_t value;

        memcpy(&value, p, 4);
        return le32toh(value);
}
static inline uint64_t get_u64(const uint8_t *p) {
        uint64_t value;

        memcpy(&value, p, 8);
        return le64toh(value);
}
