/* SPDX-License-Identifier: MIT */
#pragma once
/* CRC-32C, as fast as the processor can. See crc.c. */
#include <stddef.h>
#include <stdint.h>

/* crc: 0 at first, then what the last call returned, so a message may come in pieces. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t size);

/* For tests: in one way, or the next slower one that this processor has (long messages only, for the fast ones). */
enum crc_way { CRC_TABLE, CRC_INSTRUCTION, CRC_FOLD, CRC_WIDE, CRC_WAYS };
uint32_t crc32c_by(enum crc_way way, uint32_t crc, const void *bytes, size_t size);
uint32_t crc32c_table(uint32_t crc, const void *bytes, size_t size);
