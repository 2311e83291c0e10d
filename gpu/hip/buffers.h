/* SPDX-License-Identifier: MIT */
#pragma once
/* Buffers of sessions, as requests name them. */
#include <stdint.h>

#include "gpu/plane.h"

struct memory_mapping;
struct plane;

/* Memory of a session: memory_import, if need be with a window before it. -EINVAL, too, if what lay in its place before
 * stays mapped. */
int buffers_map(struct plane *plane, uint32_t rings, const struct plane_memory *memory,
                struct memory_mapping **ret_mapping, uint64_t *ret_address, char *error);

int buffers_import(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory, char *error);
void buffers_retire(struct plane *plane, uint64_t session, uint32_t id);
/* All of a session whose ring is gone. */
void buffers_release_all(struct plane *plane, uint32_t ring);
