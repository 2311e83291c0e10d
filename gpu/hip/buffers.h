/* SPDX-License-Identifier: MIT */
#pragma once
/* Buffers of sessions, as requests name them. */
#include <stdint.h>

#include "gpu/plane.h"

struct plane;

int buffers_import(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory, char *error);
void buffers_retire(struct plane *plane, uint64_t session, uint32_t id);
/* All of a session whose ring is gone. */
void buffers_release_all(struct plane *plane, uint32_t ring);
