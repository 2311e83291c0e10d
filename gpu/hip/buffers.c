/* SPDX-License-Identifier: MIT */
/*
 * Memory in the place of other memory
 *
 * A program frees memory and allocates some of another size, and gets the same address: small allocations of NVIDIA's
 * runtime are pieces of blocks. The new one has another handle, but it cannot be mapped beside the old one, whose
 * mapping is not closed before the next window. So the window comes at once. If tasks in hand keep mappings, there are
 * more of them for a while, between which the kernel works: those tasks may end. The control thread does nothing else
 * meanwhile, so the while is short. Each window stops everybody's requests for some milliseconds, so a session has
 * TURNS_MOST of them in TURNS_NS, and waits for more; railmuxd asks again for it.
 *
 * Memory of another GPU is not taken from sessions of this one: every look at an area there would go over the links
 * between GPUs, and all sessions' requests would wait behind it.
 */
#include "gpu/hip/buffers.h"

#include <errno.h>

#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/rings.h"
#include "util/clock.h"

#define PLACE_NS   UINT64_C(1000000000) /* for a place to become free */
#define AGAIN_NS   UINT64_C(5000000)    /* between windows that closed nothing, the first time */
#define TURNS_NS   UINT64_C(1000000000)
#define TURNS_MOST 8u

#define BUFFERS_OF_ONE (TABLE_BUFFERS / 4u) /* session: the tables are everybody's */

static void pause_for(uint64_t ns) {
        uint64_t end = clock_now_ns() + ns;

        while (clock_now_ns() < end)
                runtime_pause();
}

static int turn_take(struct turns *turns, char *error) {
        const uint64_t now = clock_now_ns();

        if (now - turns->since_ns >= TURNS_NS)
                *turns = (struct turns){.since_ns = now};
        if (turns->n == TURNS_MOST)
                return error_set(-EBUSY, error,
                                 "memory in the place of other memory, which has to be unmapped, more than %u times in "
                                 "a second; try again",
                                 TURNS_MOST);
        turns->n++;
        return 0;
}

int buffers_map(struct plane *plane, struct turns *turns, uint32_t rings, const struct plane_memory *memory,
                struct memory_mapping **ret_mapping, uint64_t *ret_address, char *error) {
        uint64_t end = clock_now_ns() + PLACE_NS, again_ns = AGAIN_NS;
        char text[PLANE_TEXT];
        bool closed = true;
        int r;

        for (;;) {
                r = memory_import(&plane->memory, rings, memory, ret_mapping, ret_address, error);
                if (!r && memory_check_here(&plane->memory, *ret_mapping, error)) {
                        memory_release(&plane->memory, *ret_mapping);
                        *ret_mapping = NULL;
                        return -EINVAL;
                }
                if (r != -EBUSY)
                        return r;
                if (!plane->memory.n_retired)
                        return error_set(-EINVAL, error,
                                         "the memory that lay there before is still registered: unregister it first");
                if (clock_now_ns() > end)
                        return error_set(-EINVAL, error,
                                         "the memory that lay there before is still used by a request under way, or "
                                         "still registered: unregister it first");
                r = turns && plane->park.running ? turn_take(turns, error) : 0; /* else it costs nobody anything */
                if (r)
                        return r;
                turns = NULL;
                if (!closed) {
                        pause_for(again_ns);
                        again_ns *= 2;
                }
                r = adaptive_window(plane, &closed, text);
                if (r)
                        return error_set(plane_fault(plane, r, text), error, "%s", text);
        }
}

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
        if (plane->rings[ring].n_buffers >= BUFFERS_OF_ONE)
                return error_set(-ENOSPC, error, "a session has at most %u buffers on a GPU", BUFFERS_OF_ONE);
        r = buffers_map(plane, &plane->turns[ring], 0, memory, &mapping, &address, error);
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
