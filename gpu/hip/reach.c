/* SPDX-License-Identifier: MIT */
/*
 * Reaching
 *
 * Memory of a session on another GPU is mapped here too if both are in a communicator. It is for speed alone: what is
 * not here goes through staging. So nothing is done for it that others would notice. A mapping that collides with one
 * which waits to be closed is refused for the time being, where memory of this GPU's own sessions is worth a window at
 * once (buffers.c); and if there is no room in the table, that is looked at before anything is opened.
 *
 * railmuxd keeps the order: memory is here before its own executor says so, and that one has ceased to say so, or has
 * forgotten the memory, before it is taken out here. Requests that began before are over, or are ended, when the
 * workers have acknowledged the version without it (gpu/device/update.h); so mappings are released as those of buffers
 * are.
 *
 * Between AMD's GPUs ordinary memory is coherent only at the bounds of kernels, and ours never ends. Whether accesses
 * at system scope are enough between them nobody has tried, so there it is off unless the environment says otherwise.
 */
#include "gpu/hip/reach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/rings.h"

bool reach_able(void) {
#if defined(RAILMUX_CUDA)
        return true;
#else
        const char *wish = getenv("RAILMUX_GPU_REACH");

        return wish && strcmp(wish, "1") == 0;
#endif
}

int reach_tell(struct plane *plane, uint64_t session, uint32_t id, uint64_t gpus, char *error) {
        uint32_t ring = session ? rings_find(plane, session) : TABLE_RINGS;
        const struct table *table = plane->tables.shadow.table;
        uint32_t at = ring == TABLE_RINGS ? TABLE_BUFFERS : shadow_buffer_find(&plane->tables.shadow, ring, id);
        int r;

        if (at == TABLE_BUFFERS)
                return error_set(-ENOENT, error, "there is no such buffer");
        if (table->buffers[at].gpus == gpus)
                return 0;
        r = plane_changed(plane, shadow_buffer_gpus(&plane->tables.shadow, ring, id, gpus), "a buffer's GPUs", error);
        return r ? r : plane_commit(plane, error);
}

int reach_import(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory, char *error) {
        struct shadow *shadow = &plane->tables.shadow;
        struct memory_mapping *mapping;
        uint64_t address;
        uint32_t index;
        int r;

        if (!session || !id)
                return error_set(-EINVAL, error, "no buffer is named");
        if (shadow_reach_find(shadow, session, id) != TABLE_REACH)
                return error_set(-EEXIST, error, "the buffer is reached already");
        if (!shadow_reach_fits(shadow, session, id))
                return error_set(-ENOSPC, error, "there is no room for another buffer of other GPUs (%u of %u)",
                                 plane->n_reached, TABLE_REACH);
        r = memory_import(&plane->memory, 0, memory, &mapping, &address, error);
        if (r)
                return r;
        r = plane_changed(plane, shadow_reach_add(shadow, session, id, address, memory->bytes, &index),
                          "a buffer of another GPU", error);
        if (r) {
                memory_release(&plane->memory, mapping);
                return r;
        }
        plane->reached[index] = mapping;
        plane->n_reached++;
        /* No worker knows the name: who looks it up finds it. */
        return plane_changed(plane, shadow_arrive(shadow), "a buffer of another GPU", error);
}

/* No worker uses it any more. */
static void reach_release(struct plane *plane, uint32_t index) {
        memory_release(&plane->memory, plane->reached[index]);
        plane->reached[index] = NULL;
        plane->n_reached--;
}

static void reach_retire_all(struct plane *plane, uint64_t session) {
        const struct table_reach *reach = plane->tables.shadow.table->reach;
        bool any = false;
        uint32_t index;
        int r = 0;

        for (uint32_t i = 0; !r && plane->n_reached && i < TABLE_REACH; i++) {
                if (!plane->reached[i] || reach[i].session != session)
                        continue;
                any = true;
                r = plane_changed(plane, shadow_reach_remove(&plane->tables.shadow, session, reach[i].id, &index),
                                  "a buffer of another GPU", NULL);
        }
        if (!any || r || plane_commit(plane, NULL))
                return; /* a failure is a fault, which tick reports */
        for (uint32_t i = 0; i < TABLE_REACH; i++)
                if (plane->reached[i] && reach[i].session == session)
                        reach_release(plane, i);
}

void reach_retire(struct plane *plane, uint64_t session, uint32_t id) {
        uint32_t index;
        int r;

        if (!id) {
                reach_retire_all(plane, session);
                return;
        }
        r = shadow_reach_remove(&plane->tables.shadow, session, id, &index);
        if (r == -ENOENT)
                return;
        if (!plane_changed(plane, r, "a buffer of another GPU", NULL) && !plane_commit(plane, NULL))
                reach_release(plane, index);
}

void reach_close(struct plane *plane) {
        for (uint32_t i = 0; plane->n_reached && i < TABLE_REACH; i++)
                if (plane->reached[i])
                        reach_release(plane, i);
}

/* All its executors come to the same answer, since all are told the same members. */
static bool reach_allowed(const struct plane_comm *comm) {
        uint64_t gpus = 0;

        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                const uint32_t gpu = comm->members[r].gpu;

                if (gpu >= 64 || gpus >> gpu & 1)
                        return false;
                gpus |= UINT64_C(1) << gpu;
        }
        return comm->reach_bytes && !comm->code && comm->n_ranks > 1;
}

void reach_rank(const struct plane_comm *comm, uint32_t rank, struct table_rank *entry) {
        const bool allowed = reach_allowed(comm);

        memset(entry->session, 0, sizeof(entry->session));
        entry->gpus = 0;
        entry->reach_bytes = allowed ? comm->reach_bytes : 0;
        entry->burst_bytes = allowed ? comm->burst_bytes : 0;
        for (uint32_t r = 0; allowed && r < comm->n_ranks; r++) {
                entry->session[r] = comm->members[r].session;
                if (r != rank)
                        entry->gpus |= UINT64_C(1) << comm->members[r].gpu;
        }
}
