/* SPDX-License-Identifier: MIT */
#pragma once
/* Whom a communicator waits for, from the last sequence each rank has rung. */
#include "proto/control.pb-c.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The highest sequence rung by a rank that is still there; 0 if none is. */
uint32_t ranks_highest(const Railmux__Control__Comm *comm);
/* A rank that is there and behind the highest. */
bool ranks_awaited(const Railmux__Control__Comm *comm, const Railmux__Control__Member *member);
/* "121 by ranks 0-2, 4-7; 120 by rank 3": groups by sequence, highest first. */
const char *ranks_text(const Railmux__Control__Comm *comm, char *out, size_t out_size);
