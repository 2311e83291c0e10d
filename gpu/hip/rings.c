/* SPDX-License-Identifier: MIT */
/*
 * A bell area may have been served by another executor before (which was restarted as planned, with its kernels
 * parked). Then the kernel begins with the first request that nobody has finished. A sequence that has been taken is
 * finished if all lanes that the client waits for say so, or if the client has already given its slot back, perhaps for
 * a later one, or if it was passed on, or if its line is a later one's by now. The client could have written anything
 * there; then it gets what it asks for.
 */
#include "gpu/hip/rings.h"

#include <errno.h>
#include <stddef.h>

#include "gpu/hip/buffers.h"
#include "gpu/hip/comms.h"
#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/watch.h"
#include "ring/line.h"

#define MISSED_MOST 3u

_Static_assert(BELL_OFFSET_RELEASED + BELL_DEPTH * 4 <= BELL_OFFSET_LINES, "the area's layout");

/* ---- places ------------------------------------------------------------------------------------------------------ */
uint32_t rings_find(const struct plane *plane, uint64_t session) {
        uint32_t i = 0;

        while (i < TABLE_RINGS && plane->rings[i].session != session)
                i++;
        return i;
}

int rings_take(struct plane *plane, uint64_t session, uint32_t *ret_index, char *error) {
        uint32_t index = rings_find(plane, session);

        if (!session)
                return error_set(-EINVAL, error, "no session is named");
        if (index == TABLE_RINGS)
                index = rings_find(plane, 0);
        if (index == TABLE_RINGS)
                return error_set(-ENOSPC, error, "a GPU serves at most %u sessions", TABLE_RINGS);
        plane->rings[index].session = session;
        *ret_index = index;
        return 0;
}

void rings_drop(struct plane *plane, uint32_t index) {
        struct ring *ring = &plane->rings[index];

        if (!ring->mapping && !ring->n_buffers && !ring->n_ranks)
                *ring = (struct ring){0};
}

/* ---- words in areas ---------------------------------------------------------------------------------------------- */
static int area_write(struct plane *plane, const struct ring *ring, size_t offset, bool value, char *error) {
        return runtime_check(hipMemcpyAsync((void *)(uintptr_t)(ring->area + BELL_OFFSET_HEADER + offset),
                                            &plane->words->value[value], sizeof(uint32_t), hipMemcpyHostToDevice,
                                            plane->control),
                             "writing into a bell area", error);
}

static int area_read(struct plane *plane, const struct ring *ring, size_t offset, void *to, size_t bytes, char *error) {
        return runtime_check(hipMemcpyAsync(to, (const void *)(uintptr_t)(ring->area + offset), bytes,
                                            hipMemcpyDeviceToHost, plane->control),
                             "reading a bell area", error);
}

static int area_wait(struct plane *plane, char *error) {
        return runtime_wait(plane->control, "copying to or from a bell area", error);
}

int rings_tell_parked(struct plane *plane, char *error) {
        int r = 0;

        for (uint32_t i = 0; !r && i < TABLE_RINGS; i++)
                if (plane->rings[i].mapping)
                        r = area_write(plane, &plane->rings[i], offsetof(struct bell_header, parked), plane->parked,
                                       error);
        return r ? r : area_wait(plane, error);
}

int rings_counters(struct plane *plane, bool *ret_rang, char *error) {
        uint32_t before[TABLE_RINGS];
        bool rang = false;
        int r = 0;

        for (uint32_t i = 0; !r && i < TABLE_RINGS; i++) {
                before[i] = plane->words->counter[i];
                if (plane->rings[i].mapping)
                        r = area_read(plane, &plane->rings[i],
                                      BELL_OFFSET_HEADER + offsetof(struct bell_header, counter),
                                      &plane->words->counter[i], sizeof(uint32_t), error);
        }
        if (!r)
                r = area_wait(plane, error);
        for (uint32_t i = 0; !r && i < TABLE_RINGS; i++)
                rang = rang || plane->words->counter[i] != before[i];
        if (!r)
                *ret_rang = rang;
        return r;
}

/* The counter is the client's: one that has been beyond all lines, and no line came, counts for nothing until one does.
 * (Who has drawn a number and waits with its line finds `parked`.) */
static bool ring_seen(struct plane *plane, uint32_t index) {
        struct ring *ring = &plane->rings[index];
        const uint32_t next = park_next(&plane->tables, index);

        if (next != ring->missed)
                ring->n_missed = 0;
        ring->missed = next;
        if (park_saw(&plane->park, &plane->tables, index, plane->words->counter[index]))
                return true;
        if (ring->n_missed == MISSED_MOST)
                return true;
        ring->n_missed++;
        return false;
}

bool rings_seen(struct plane *plane) {
        bool seen = true;

        for (uint32_t i = 0; i < TABLE_RINGS; i++)
                if (plane->rings[i].mapping && !ring_seen(plane, i))
                        seen = false;
        return seen;
}

bool rings_wakes(struct plane *plane) {
        bool woken = false;

        for (uint32_t i = 0; i < TABLE_RINGS; i++) {
                struct ring *ring = &plane->rings[i];
                uint32_t wake;

                if (!ring->mapping || !ring->host)
                        continue;
                wake = __atomic_load_n(&ring->host->wake, __ATOMIC_RELAXED); /* only a hint that lines are there */
                woken = woken || wake != ring->wake;
                ring->wake = wake;
        }
        return woken;
}

/* ---- attach ------------------------------------------------------------------------------------------------------ */
static bool sequence_finished(const struct plane_words *words, uint32_t sequence) {
        const uint32_t slot = sequence % BELL_DEPTH;
        const uint64_t *line = words->area.lines[sequence % BELL_LINES];
        uint32_t lanes = (uint32_t)line[RING_W_FLAGS] >> BELL_LANES_SHIFT;

        if ((int32_t)(words->area.released[slot] - sequence) >= 0)
                return true;
        if ((int32_t)((uint32_t)(line[RING_W_FLAGS] >> 32) - sequence) > 0) /* nobody needed its line any more */
                return true;
        for (uint32_t i = 0; i < RING_WORDS; i++)
                if ((uint32_t)(line[i] >> 32) != sequence)
                        return false;
        if ((uint32_t)line[RING_W_FLAGS] == BELL_FLAG_PASSED)
                return true;
        if (!lanes || lanes > BELL_LANES)
                lanes = BELL_LANES;
        for (uint32_t lane = 0; lane < lanes; lane++)
                if ((uint32_t)words->area.done[slot][lane] != sequence)
                        return false;
        return true;
}

/* Of the numbers in a slot one that waits for the oldest's line is not decided, and so are those behind it, as many as
 * kernels call at a time: one for each handle. (0 has no line to wait for, so then it is BELL_LINES further on.) */
#define LOOK_BACK (2 * BELL_LINES + (BELL_HANDLES + 1) * BELL_DEPTH)

static uint32_t first_unfinished(const struct plane_words *words) {
        uint32_t counter = words->area.header.counter, first = bell_sequence_next(counter), sequence = counter;

        for (uint32_t i = 0; i < LOOK_BACK; i++) {
                if (sequence && !sequence_finished(words, sequence))
                        first = sequence;
                sequence--;
        }
        return first;
}

/* Reads what the area says of itself, and tells it how we are. */
static int area_begin(struct plane *plane, const struct ring *ring, uint32_t *ret_first, char *error) {
        struct plane_words *words = plane->words;
        int r = area_read(plane, ring, BELL_OFFSET_HEADER, &words->area.header, sizeof(words->area.header), error);

        if (!r)
                r = area_read(plane, ring, BELL_OFFSET_RELEASED, words->area.released, sizeof(words->area.released),
                              error);
        if (!r)
                r = area_read(plane, ring, BELL_OFFSET_LINES, words->area.lines, sizeof(words->area.lines), error);
        if (!r)
                r = area_read(plane, ring, BELL_OFFSET_DONE, words->area.done, sizeof(words->area.done), error);
        if (!r)
                r = area_wait(plane, error);
        if (r)
                return r;
        if (words->area.header.magic != BELL_MAGIC || words->area.header.depth != BELL_DEPTH)
                return error_set(-EINVAL, error, "a bell area without a header");
        *ret_first = first_unfinished(words);
        r = area_write(plane, ring, offsetof(struct bell_header, parked), plane->parked, error);
        if (!r)
                r = area_write(plane, ring, offsetof(struct bell_header, closed), false, error);
        return r ? r : area_wait(plane, error);
}

static void ring_forget_host(struct plane *plane, struct ring *ring) {
        if (ring->host)
                watch_unlisten(&plane->watch, ring->soon_fd);
        ring->host = NULL;
        ring->soon_fd = -1;
}

int rings_attach(struct plane *plane, uint64_t session, const struct plane_memory *area, const void *host, int soon_fd,
                 char *error) {
        struct ring *ring;
        uint32_t index, first;
        int r = rings_take(plane, session, &index, error);

        if (r)
                return r;
        ring = &plane->rings[index];
        if (ring->mapping)
                return error_set(-EEXIST, error, "the session has a bell area already");
        r = area->bytes < BELL_AREA_BYTES
                    ? error_set(-EINVAL, error, "a bell area of %llu bytes; %llu are needed",
                                (unsigned long long)area->bytes, (unsigned long long)BELL_AREA_BYTES)
                    : buffers_map(plane, NULL, UINT32_C(1) << index, area, &ring->mapping, &ring->area, error);
        if (!r && ring->area % 128)
                r = error_set(-EINVAL, error, "a bell area that is not aligned");
        if (!r)
                r = area_begin(plane, ring, &first, error);
        if (!r) {
                ring->host = host;
                ring->soon_fd = watch_listen(&plane->watch, soon_fd);
                ring->wake = host ? __atomic_load_n(&ring->host->wake, __ATOMIC_RELAXED) : 0;
                park_forget_ring(&plane->park, &plane->tables, index);
                plane->words->counter[index] = plane->words->area.header.counter;
                r = plane_changed(plane, shadow_ring_set(&plane->tables.shadow, index, ring->area, session, first),
                                  "a ring", error);
        }
        if (!r)
                r = plane_commit(plane, error);
        if (!r)
                return plane_fault(plane, adaptive_wake(plane, error), error);
        memory_release(&plane->memory, ring->mapping);
        ring->mapping = NULL;
        ring_forget_host(plane, ring);
        rings_drop(plane, index);
        return r;
}

static void ring_remove(struct plane *plane, uint32_t index, bool for_ever) {
        struct ring *ring = &plane->rings[index];
        char text[PLANE_TEXT];
        int r = 0;

        if (ring->mapping && !plane->fault)
                r = plane_changed(plane, shadow_ring_clear(&plane->tables.shadow, index), "a ring", NULL);
        if (!r && !plane->fault)
                r = comms_forget_handles(plane, index);
        if (!r && !plane->fault)
                r = plane_commit(plane, NULL);
        if (r)
                return; /* a fault: everything ends soon */
        buffers_release_all(plane, index);
        if (ring->mapping) {
                if (for_ever && !plane->fault) {
                        r = area_write(plane, ring, offsetof(struct bell_header, closed), true, text);
                        if (!r)
                                r = area_wait(plane, text);
                        plane_fault(plane, r, text);
                }
                memory_release(&plane->memory, ring->mapping);
                ring->mapping = NULL;
                ring_forget_host(plane, ring);
                ring->limited = false;
        }
        rings_drop(plane, index);
}

void rings_detach(struct plane *plane, uint64_t session) {
        uint32_t index = rings_find(plane, session);

        if (session && index < TABLE_RINGS)
                ring_remove(plane, index, true);
}

void rings_close(struct plane *plane) {
        for (uint32_t i = 0; i < TABLE_RINGS; i++)
                for (uint32_t k = 0; k < 2 && plane->rings[i].session; k++) /* after a fault it is only let go of */
                        ring_remove(plane, i, false);
}
