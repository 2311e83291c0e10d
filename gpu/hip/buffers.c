/* SPDX-License-Identifier: MIT */
#include "gpu/hip/buffers.h"

#include <errno.h>

#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/rings.h"

int buffers_import(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory, char *error) {
        struct memory_mapping *mapping;
        uint64_t address;
        uint32_t ring, index;
        int r;

        if (!id)
                return error_set(-EINVAL, error, "buffer 0 means none");
        r = rings_take(plane, session, &ring, error);
        if (r)
                return r;
        r = memory_import(&plane->memory, memory, &mapping, &address, error);
        if (!r) {
                r = plane_changed(plane,
                                  shadow_buffer_add(&plane->tables.shadow, ring, id, address, memory->bytes, &index),
                                  "a buffer", error);
                if (r)
                        memory_release(&plane->memory, mapping);
        }
        if (r) {
                rings_drop(plane, ring);
                return r;
        }
        plane->buffers[index] = mapping;
        plane->rings[ring].n_buffers++;
        /* No worker knows the name: who looks it up finds it. */
        return plane_changed(plane, shadow_arrive(&plane->tables.shadow), "a buffer", error);
}

static void buffer_release(struct plane *plane, uint32_t ring, uint32_t index) {
        memory_release(&plane->memory, plane->buffers[index]);
        plane->buffers[index] = NULL;
        plane->rings[ring].n_buffers--;
}

void buffers_retire(struct plane *plane, uint64_t session, uint32_t id) {
        uint32_t ring = rings_find(plane, session), index;
        int r;

        if (ring == TABLE_RINGS || !session)
                return;
        r = shadow_buffer_remove(&plane->tables.shadow, ring, id, &index);
        if (r == -ENOENT)
                return;
        if (plane_changed(plane, r, "a buffer", NULL) || plane_commit(plane, NULL))
                return;
        buffer_release(plane, ring, index);
        rings_drop(plane, ring);
}

/* Takes all of the ring's buffers out of the tables. */
static int buffers_remove_all(struct plane *plane, uint32_t ring) {
        const struct table *table = plane->tables.shadow.table;
        int r = 0;

        for (uint32_t i = 0; !r && i < TABLE_BUFFERS; i++) {
                uint32_t index;

                if (plane->buffers[i] && table->buffers[i].ring == ring)
                        r = plane_changed(
                                plane, shadow_buffer_remove(&plane->tables.shadow, ring, table->buffers[i].id, &index),
                                "a buffer", NULL);
        }
        return r ? r : plane_commit(plane, NULL);
}

void buffers_release_all(struct plane *plane, uint32_t ring) {
        if (!plane->rings[ring].n_buffers || (!plane->fault && buffers_remove_all(plane, ring)))
                return;
        for (uint32_t i = 0; i < TABLE_BUFFERS && plane->rings[ring].n_buffers; i++)
                if (plane->buffers[i] && plane->tables.shadow.table->buffers[i].ring == ring)
                        buffer_release(plane, ring, i);
}
