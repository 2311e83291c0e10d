/* SPDX-License-Identifier: MIT */
#pragma once
/* The calling thread's last error as a sentence. */
#include <stdint.h>

#define ERROR_TEXT_BYTES 512u /* a sentence with its end */

/* Formats the sentence and returns code, so that a failing path reads: return error_set(RMX_E_X, "..."). */
int error_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A code that came over a wire: positive codes this library knows stay, anything else is RMX_E_INTERNAL. */
int error_sanitise(uint32_t code);
