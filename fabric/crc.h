/* SPDX-License-Identifier: MIT */
#pragma once
/* CRC-32C, by the processor's instruction where it has one. */
#include <stddef.h>
#include <stdint.h>

/* crc: 0 at first, then what the last call returned, so a message may come in pieces. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t size);
/* The same without the instruction, for tests. */
uint32_t crc32c_table(uint32_t crc, const void *bytes, size_t size);
