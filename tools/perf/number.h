/* SPDX-License-Identifier: MIT */
#pragma once
/* Elements of all types as bits. */
#include <stdbool.h>
#include <stdint.h>

bool number_is_float(uint32_t type);
bool number_is_unsigned(uint32_t type);
/* Integers up to this are exact in a floating type; integer types: what their patterns may use. */
int64_t number_limit(uint32_t type);
/* Powers of two that a product may reach. */
int number_exponent_limit(uint32_t type);
/* The bits of an integer, which wraps (integer types) or is exact (floating types). */
uint64_t number_encode(uint32_t type, int64_t value);
/* The bits of sum / n as RMX_AVG defines it. */
uint64_t number_encode_average(uint32_t type, int64_t sum, uint32_t n);
