/* SPDX-License-Identifier: MIT */
#pragma once
/* Buffers of sessions, as requests name them. */
#include <stdint.h>

#include "gpu/plane.h"

struct memory_mapping;
struct plane;
struct turns;

/* Memory of a session: memory_import, if need be with a window before it. -EINVAL, too, if what lay in its place before
 * stays mapped; -EBUSY if the session, whose turns these are (NULL: not counted), has had enough windows for now. */
int buffers_map(struct plane *plane, struct turns *turns, uint32_t rings, const struct plane_memory *memory,
                struct memory_mapping **ret_mapping, uint64_t *ret_address, char *error);

int buffers_import(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory, char *error);
void buffers_retire(struct plane *plane, uint64_t session, uint32_t id);
/* All of a session whose ring is gone. */
void buffers_release_all(struct plane *plane, uint32_t ring);
