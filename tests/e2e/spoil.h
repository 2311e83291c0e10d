/* SPDX-License-Identifier: MIT */
#pragma once
/* What spoil.c and its test agree on. */

#define SPOIL_SLOW_MS 20
