/* SPDX-License-Identifier: MIT */
#pragma once
/* cmocka wants these before its own header. */
#include <setjmp.h> /* IWYU pragma: export */
#include <stdarg.h> /* IWYU pragma: export */
#include <stddef.h> /* IWYU pragma: export */
#include <stdint.h> /* IWYU pragma: export */

#include <cmocka.h> /* IWYU pragma: export */

#define TESTS_SKIPPED 77 /* railmux_test(... SKIPS) tells ctest */

/* The exit status of a program of n tests of which so many have called skip(), which cmocka takes for a success;
 * failed: what cmocka returned. */
static inline int tests_status(size_t n, unsigned int skipped, int failed) {
        return failed ? 1 : skipped == n ? TESTS_SKIPPED : 0;
}
