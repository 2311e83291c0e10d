/* SPDX-License-Identifier: MIT */
/*
 * The state memfd: a header and an array of slots of one size, so that a change is always in place and small.
 *
 * This process may be killed between any two stores, and its successor maps the same pages. Four rules make every such
 * moment readable:
 *   - A record counts only while its `valid` word says so. It is written after the body (release), and cleared before
 * the slot is used again. A half-written record is therefore a free slot.
 *   - What changes later is one aligned 64-bit word per fact, stored atomically.
 *   - A newer version only adds fields at the end of bodies and of the header. What an older process wrote has zeros
 * there, which mean what it did.
 *   - Facts that span several records have one word that commits them: a comm's record is added after its members' and
 * choices' records, a split counts when the parent's splits_done has reached its number. Members without a comm, rings
 * without a session and so on are the remains of an unfinished step; the reader (adopt.c) drops them, and the clients'
 * repeated calls make them anew.
 *
 * The memfd cannot be sealed against growing because it grows. Only this process and the service manager hold it.
 */
#include "daemon/state.h"

#include "util/cleanup.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

struct state {
        int fd;
        uint8_t *map;
        size_t map_bytes;
        uint32_t n_slots;
        uint32_t n_used;
        uint32_t hint; /* no free slot below it */
};

static struct state_header *state_header(const struct state *state) {
        return (struct state_header *)state->map;
}

static struct state_record *state_slot(const struct state *state, uint32_t slot) {
        return (struct state_record *)(state->map + STATE_HEADER_BYTES + (size_t)slot * STATE_RECORD_BYTES);
}

static size_t state_size(uint32_t n_slots) {
        return STATE_HEADER_BYTES + (size_t)n_slots * STATE_RECORD_BYTES;
}

static int state_random(void *data, size_t size) {
        uint8_t *p = data;

        while (size > 0) {
                ssize_t n = getrandom(p, size, 0);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                p += n;
                size -= (size_t)n;
        }
        return 0;
}

int state_new(struct state **ret_state) {
        struct state *state = calloc(1, sizeof(*state));
        struct state_header *header;
        void *map;
        int r;

        if (!state)
                return -ENOMEM;
        state->fd = memfd_create("railmux-state", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
        if (state->fd < 0 && errno == EINVAL)
                state->fd = memfd_create("railmux-state", MFD_CLOEXEC);
        if (state->fd < 0) {
                r = -errno;
                free(state);
                return r;
        }
        state->n_slots = STATE_SLOTS_STEP;
        state->map_bytes = state_size(state->n_slots);
        if (ftruncate(state->fd, (off_t)state->map_bytes) < 0) {
                r = -errno;
                state_free(state);
                return r;
        }
        map = mmap(NULL, state->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, state->fd, 0);
        if (map == MAP_FAILED) {
                r = -errno;
                state_free(state);
                return r;
        }
        state->map = map;
        header = state_header(state);
        header->version = STATE_VERSION;
        header->record_bytes = STATE_RECORD_BYTES;
        r = state_random(header->key, sizeof(header->key));
        if (!r)
                r = state_random(header->node, sizeof(header->node));
        if (r < 0) {
                state_free(state);
                return r;
        }
        /* Partner of the three: the fetch-adds in state_take_* and state_count_restart (same process). */
        atomic_store_explicit(&header->next_session, 1, memory_order_relaxed);
        atomic_store_explicit(&header->next_comm, 1, memory_order_relaxed);
        atomic_store_explicit(&header->restarts, 0, memory_order_relaxed);
        /* Partner: the acquire load in state_adopt() of a successor. */
        atomic_store_explicit(&header->magic, STATE_MAGIC, memory_order_release);
        *ret_state = state;
        return 0;
}

int state_adopt(int fd, struct state **ret_state) {
        struct state *state;
        struct state_header *header;
        struct stat st;
        size_t slots;
        void *map;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size < (off_t)STATE_HEADER_BYTES)
                return STATE_E_UNUSABLE;
        slots = ((size_t)st.st_size - STATE_HEADER_BYTES) / STATE_RECORD_BYTES;
        if (slots > STATE_SLOTS_MAX)
                slots = STATE_SLOTS_MAX;
        map = mmap(NULL, state_size((uint32_t)slots), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
                return -errno;
        header = map;
        /* Partner: the release store at the end of state_new() of the predecessor. */
        if (atomic_load_explicit(&header->magic, memory_order_acquire) != STATE_MAGIC ||
            header->version < STATE_VERSION_MIN || header->version > STATE_VERSION ||
            header->record_bytes != STATE_RECORD_BYTES) {
                munmap(map, state_size((uint32_t)slots));
                return STATE_E_UNUSABLE;
        }
        state = calloc(1, sizeof(*state));
        if (!state) {
                munmap(map, state_size((uint32_t)slots));
                return -ENOMEM;
        }
        state->map = map;
        state->map_bytes = state_size((uint32_t)slots);
        state->n_slots = (uint32_t)slots;
        for (uint32_t i = 0; i < state->n_slots; i++) {
                struct state_record *record = state_slot(state, i);

                /* Partner: the release store in state_add() of the predecessor. */
                if (atomic_load_explicit(&record->valid, memory_order_acquire) == STATE_VALID &&
                    record->kind > STATE_NONE && record->kind < STATE_KIND_COUNT)
                        state->n_used++;
                else /* Partner: none, nobody else writes any more; it frees the remains of a half-written record. */
                        atomic_store_explicit(&record->valid, 0, memory_order_relaxed);
        }
        header->version = STATE_VERSION; /* from now on records have what this version has */
        state->fd = fd;
        *ret_state = state;
        return 0;
}

struct state *state_free(struct state *state) {
        if (!state)
                return NULL;
        if (state->map)
                munmap(state->map, state->map_bytes);
        if (state->fd >= 0)
                close(state->fd);
        free(state);
        return NULL;
}

int state_fd(const struct state *state) {
        return state->fd;
}

const uint8_t *state_key(const struct state *state) {
        return state_header(state)->key;
}

const uint8_t *state_node(const struct state *state) {
        return state_header(state)->node;
}

uint64_t state_restarts(const struct state *state) {
        /* Partner: state_count_restart(), same thread. */
        return atomic_load_explicit(&state_header(state)->restarts, memory_order_relaxed);
}

void state_count_restart(struct state *state) {
        /* Partner: state_restarts() of this process and of successors. */
        atomic_fetch_add_explicit(&state_header(state)->restarts, 1, memory_order_relaxed);
}

uint32_t state_devices(const struct state *state) {
        /* Partner: state_set_devices() of this process or of its predecessor. */
        return (uint32_t)atomic_load_explicit(&state_header(state)->devices, memory_order_acquire);
}

void state_set_devices(struct state *state, uint32_t devices) {
        /* Partner: state_devices() of a successor. */
        atomic_store_explicit(&state_header(state)->devices, devices, memory_order_release);
}

const char *state_drained_rail(const struct state *state, uint32_t i) {
        const struct state_drained *drained = &state_header(state)->drained[i];

        /* Partner: the release store in state_drained_note(), of a predecessor. What is no name is none of ours. */
        if (atomic_load_explicit(&drained->valid, memory_order_acquire) != STATE_VALID ||
            !memchr(drained->rail, '\0', sizeof(drained->rail)))
                return NULL;
        return drained->rail;
}

static uint32_t state_drained_find(const struct state *state, const char *rail) {
        uint32_t i = 0;

        for (; i < STATE_DRAINED; i++) {
                const char *name = state_drained_rail(state, i);

                if (rail ? name && strcmp(name, rail) == 0 : !name)
                        break;
        }
        return i;
}

int state_drained_note(struct state *state, const char *rail) {
        struct state_drained *drained;
        uint32_t i;

        if (state_drained_find(state, rail) < STATE_DRAINED)
                return 0;
        i = state_drained_find(state, NULL);
        if (i == STATE_DRAINED)
                return STATE_E_FULL;
        drained = &state_header(state)->drained[i];
        snprintf(drained->rail, sizeof(drained->rail), "%s", rail);
        /* Partner: the acquire load in state_drained_rail() of a successor. */
        atomic_store_explicit(&drained->valid, STATE_VALID, memory_order_release);
        return 0;
}

void state_drained_forget(struct state *state, const char *rail) {
        const uint32_t i = state_drained_find(state, rail);

        if (i < STATE_DRAINED) /* relaxed: nothing else belongs to it */
                atomic_store_explicit(&state_header(state)->drained[i].valid, 0, memory_order_relaxed);
}

const char *state_rail_host(const struct state *state) {
        const struct state_host *host = &state_header(state)->rail_host;

        /* Partner: the release store in state_note_rail_host(), of a predecessor. */
        if (atomic_load_explicit(&host->valid, memory_order_acquire) != STATE_VALID ||
            !memchr(host->host, '\0', sizeof(host->host)))
                return NULL;
        return host->host;
}

void state_note_rail_host(struct state *state, const char *host) {
        struct state_host *noted = &state_header(state)->rail_host;
        const char *was = state_rail_host(state);

        if (strlen(host) >= sizeof(noted->host) || (was && strcmp(was, host) == 0))
                return;
        /* Partner of both: the acquire load in state_rail_host() of a successor, which starts after a death here. */
        atomic_store_explicit(&noted->valid, 0, memory_order_release);
        snprintf(noted->host, sizeof(noted->host), "%s", host);
        atomic_store_explicit(&noted->valid, STATE_VALID, memory_order_release);
}

uint64_t state_take_session(struct state *state) {
        /* Partner: the same call in a successor. */
        return atomic_fetch_add_explicit(&state_header(state)->next_session, 1, memory_order_relaxed);
}

uint64_t state_take_comm(struct state *state) {
        /* Partner: the same call in a successor. */
        return atomic_fetch_add_explicit(&state_header(state)->next_comm, 1, memory_order_relaxed);
}

static int state_grow(struct state *state) {
        uint32_t n_slots = state->n_slots + STATE_SLOTS_STEP;
        void *map;

        if (n_slots > STATE_SLOTS_MAX)
                return STATE_E_FULL;
        if (ftruncate(state->fd, (off_t)state_size(n_slots)) < 0)
                return -errno;
        map = mremap(state->map, state->map_bytes, state_size(n_slots), MREMAP_MAYMOVE);
        if (map == MAP_FAILED)
                return -errno;
        state->map = map;
        state->map_bytes = state_size(n_slots);
        state->hint = state->n_slots;
        state->n_slots = n_slots;
        return 0;
}

int state_add(struct state *state, const struct state_record *record, uint32_t *ret_slot) {
        struct state_record *target;
        uint32_t slot = state->hint;
        int r;

        /* Partner of the load: state_remove() and state_add(), same thread. */
        while (slot < state->n_slots &&
               atomic_load_explicit(&state_slot(state, slot)->valid, memory_order_relaxed) == STATE_VALID)
                slot++;
        if (slot == state->n_slots) {
                r = state_grow(state);
                if (r)
                        return r;
                slot = state->hint;
        }
        target = state_slot(state, slot);
        target->kind = record->kind;
        memcpy(target->bytes, record->bytes, sizeof(target->bytes));
        /* Partner: the acquire load in state_adopt() of a successor. */
        atomic_store_explicit(&target->valid, STATE_VALID, memory_order_release);
        state->hint = slot + 1;
        state->n_used++;
        *ret_slot = slot;
        return 0;
}

void state_remove(struct state *state, uint32_t slot) {
        if (slot == STATE_SLOT_NONE || slot >= state->n_slots)
                return;
        /* Partner: the acquire load in state_adopt() of a successor. Release, so that the slot is free before its next
         * body. */
        atomic_store_explicit(&state_slot(state, slot)->valid, 0, memory_order_release);
        /* Partner: the acquire load in state_adopt(); keeps the stores of the next body behind the one above. */
        atomic_thread_fence(memory_order_seq_cst);
        state->n_used--;
        if (slot < state->hint)
                state->hint = slot;
}

struct state_record *state_at(struct state *state, uint32_t slot) {
        return slot < state->n_slots ? state_slot(state, slot) : NULL;
}

int state_next(struct state *state, uint32_t *cursor, uint32_t *ret_slot) {
        for (uint32_t slot = *cursor; slot < state->n_slots; slot++) {
                /* Partner: state_add() and state_adopt(), same thread. */
                if (atomic_load_explicit(&state_slot(state, slot)->valid, memory_order_relaxed) != STATE_VALID)
                        continue;
                *cursor = slot + 1;
                *ret_slot = slot;
                return 0;
        }
        return STATE_E_END;
}

uint32_t state_count(const struct state *state) {
        return state->n_used;
}

bool state_has(struct state *state, enum state_kind kind) {
        uint32_t cursor = 0, slot;

        while (!state_next(state, &cursor, &slot))
                if (state_at(state, slot)->kind == kind)
                        return true;
        return false;
}
