/* SPDX-License-Identifier: MIT */
#pragma once
/* cmocka wants these before its own header. */
#include <setjmp.h> /* IWYU pragma: export */
#include <stdarg.h> /* IWYU pragma: export */
#include <stddef.h> /* IWYU pragma: export */
#include <stdint.h> /* IWYU pragma: export */

#include <cmocka.h> /* IWYU pragma: export */
