/* SPDX-License-Identifier: MIT */
#pragma once
/* Public result codes by name, for every program. */
#include <stdint.h>

const char *result_name(uint32_t code); /* "RMX_E_LOST"; "RMX_E_?" for an unknown one; never NULL */
