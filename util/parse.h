/* SPDX-License-Identifier: MIT */
#pragma once
/* Parsing of what people type. Return 0, or -EINVAL / -ERANGE and leave the output alone. */
#include <stdint.h>

int parse_u32(const char *text, uint32_t *ret_value);
int parse_u64(const char *text, uint64_t *ret_value);
/* "8", "64K", "16M", "2G" (powers of 1024, optional B or iB). */
int parse_size(const char *text, uint64_t *ret_bytes);
/* "1.5 MiB" into out (at least 16 bytes); returns out. */
const char *format_size(uint64_t bytes, char *out, unsigned long out_size);
