/* SPDX-License-Identifier: MIT */
#pragma once
/* The sentence that goes with an error. */

/* Into `error` (PLANE_TEXT bytes; may be NULL). Returns r. */
int error_set(int r, char *error, const char *format, ...) __attribute__((format(printf, 3, 4)));
