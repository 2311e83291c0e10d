/* SPDX-License-Identifier: MIT */
/*
 * Writing tables that are being read
 *
 * Kernels read the tables while they are written, so an entry becomes visible by its key alone: all of it first, the
 * key with a put of its own after that. An entry that is taken out loses its key first and keeps the rest, which a
 * worker may be looking at until it has acknowledged the version (table.c waits for that before anything is used
 * again). A key is never seen with another use's body, since the keys of rings and ranks count up.
 *
 * Hashes. Search begins at the entry's place and goes on to the next, TABLE_PROBES entries at most, over entries taken
 * out; kernels look at all of them at once and take the valid one. An empty key ends the search here, so an entry is
 * put into the first place that is not valid, which keeps searches short, and is looked for beyond that first.
 *
 * Versions. A new version makes a worker drop all that it has kept of the tables, and the requests after it look
 * everything up again. So names that were unused before need none, and the removal of one buffer, which is what memory
 * that comes and goes leads to, is told in `changes`: a worker that finds it there drops no more than that buffer. The
 * same holds for one buffer that other GPUs begin or cease to reach, and for whatever is taken out of `reach`.
 */
#include "gpu/hip/shadow.h"

#include <errno.h>
#include <string.h>

_Static_assert((TABLE_HANDLES & (TABLE_HANDLES - 1)) == 0 && (TABLE_BUFFERS & (TABLE_BUFFERS - 1)) == 0 &&
                       (TABLE_REACH & (TABLE_REACH - 1)) == 0,
               "hashes are powers of two");

void shadow_init(struct shadow *shadow, struct table *table) {
        *shadow = (struct shadow){.table = table};
        memset(table, 0, sizeof(*table));
        table->version = 1;
}

static int put(struct shadow *shadow, const void *from, size_t bytes) {
        shadow->unsettled = true;
        return shadow->put(shadow->context, (size_t)((const char *)from - (const char *)shadow->table), bytes);
}

/* Before anything in the table is changed. */
static int settle(struct shadow *shadow) {
        int r;

        if (!shadow->unsettled)
                return 0;
        r = shadow->settle(shadow->context);
        if (!r)
                shadow->unsettled = false;
        return r;
}

static uint32_t next_key(struct shadow *shadow) {
        if (++shadow->uses == 0)
                shadow->uses = 1;
        return shadow->uses;
}

static int put_word(struct shadow *shadow, uint32_t *word, uint32_t value) {
        int r = settle(shadow);

        if (r)
                return r;
        *word = value;
        return put(shadow, word, sizeof(*word));
}

/* The same for something that workers may have kept. */
static int change_word(struct shadow *shadow, uint32_t *word, uint32_t value) {
        shadow->change.more = true;
        return put_word(shadow, word, value);
}

/* The entry is filled, its key included, which goes last wherever it stands. */
static int put_entry(struct shadow *shadow, const void *entry, size_t bytes, const uint32_t *key) {
        const size_t before = (size_t)((const char *)key - (const char *)entry), after = before + sizeof(*key);
        int r = put(shadow, entry, before);

        if (!r && after < bytes)
                r = put(shadow, key + 1, bytes - after);
        return r ? r : put(shadow, key, sizeof(*key));
}

/* ---- rings and ranks --------------------------------------------------------------------------------------------- */
int shadow_ring_set(struct shadow *shadow, uint32_t index, uint64_t area, uint64_t session, uint32_t first) {
        struct table_ring *ring = &shadow->table->rings[index];
        int r = settle(shadow);

        if (r)
                return r;
        shadow->change.more = true;
        *ring = (struct table_ring){.area = area, .session = session, .first = first, .key = next_key(shadow)};
        r = put_entry(shadow, ring, sizeof(*ring), &ring->key);
        if (r || shadow->table->n_rings > index)
                return r;
        return change_word(shadow, &shadow->table->n_rings, index + 1);
}

int shadow_ring_clear(struct shadow *shadow, uint32_t index) {
        uint32_t n = shadow->table->n_rings;
        int r = change_word(shadow, &shadow->table->rings[index].key, 0);

        while (n && !shadow->table->rings[n - 1].key)
                n--;
        if (r || n == shadow->table->n_rings)
                return r;
        return change_word(shadow, &shadow->table->n_rings, n);
}

int shadow_ring_limit(struct shadow *shadow, uint32_t index, bool limited, uint32_t limit) {
        struct table_ring *ring = &shadow->table->rings[index];
        int r = limited ? change_word(shadow, &ring->limit, limit) : 0;

        return r || ring->limited == limited ? r : change_word(shadow, &ring->limited, limited);
}

int shadow_rank_set(struct shadow *shadow, uint32_t index, const struct table_rank *rank) {
        struct table_rank *entry = &shadow->table->ranks[index];
        int r = settle(shadow);

        if (r)
                return r;
        shadow->change.more = shadow->change.more || entry->key;
        *entry = *rank;
        entry->key = next_key(shadow);
        return put_entry(shadow, entry, sizeof(*entry), &entry->key);
}

int shadow_rank_clear(struct shadow *shadow, uint32_t index) {
        return change_word(shadow, &shadow->table->ranks[index].key, 0);
}

int shadow_rank_hold(struct shadow *shadow, uint32_t index, bool held) {
        return change_word(shadow, &shadow->table->ranks[index].held, held);
}

int shadow_rank_abort(struct shadow *shadow, uint32_t index, uint32_t status) {
        struct table_rank *rank = &shadow->table->ranks[index];
        int r = change_word(shadow, &rank->abort, status);

        /* Later, so that in between it is the earlier requests that are spared. */
        return r || !rank->has_last ? r : change_word(shadow, &rank->has_last, 0);
}

int shadow_rank_freeze(struct shadow *shadow, uint32_t index, bool freeze) {
        uint32_t *word = &shadow->table->ranks[index].freeze;

        return *word == freeze ? 0 : change_word(shadow, word, freeze);
}

int shadow_rank_leave(struct shadow *shadow, uint32_t index, uint32_t last, uint32_t status) {
        struct table_rank *rank = &shadow->table->ranks[index];
        int r;

        r = change_word(shadow, &rank->last, last);
        if (!r)
                r = change_word(shadow, &rank->has_last, 1);
        if (!r)
                r = change_word(shadow, &rank->abort, status);
        return r;
}

int shadow_rank_left(struct shadow *shadow, uint32_t index, uint32_t who) {
        struct table_rank *rank = &shadow->table->ranks[index];

        uint32_t *left = (uint32_t *)(void *)&rank->left + who / 32 % 2; /* the half that it is in */

        return change_word(shadow, left, *left | UINT32_C(1) << who % 32);
}

int shadow_choices_set(struct shadow *shadow, uint32_t index, const struct table_choices *choices) {
        int r = settle(shadow);

        if (r)
                return r;
        shadow->change.more = true;
        shadow->table->choices[index] = *choices;
        return put(shadow, &shadow->table->choices[index], sizeof(*choices));
}

int shadow_plan_set(struct shadow *shadow, uint32_t index, const struct plan *plan) {
        int r = settle(shadow);

        if (r)
                return r;
        shadow->change.more = true;
        shadow->table->plans[index] = *plan;
        return put(shadow, &shadow->table->plans[index], sizeof(*plan));
}

int shadow_programs_set(struct shadow *shadow, uint32_t index, const struct program_row *row,
                        const union program_entry *entries, uint32_t n) {
        static const struct program_row none;
        struct table *table = shadow->table;
        int r = settle(shadow);

        if (r)
                return r;
        shadow->change.more = true;
        table->rows[index] = row ? *row : none;
        if (row) {
                memcpy(&table->programs[row->first], entries, n * sizeof(entries[0]));
                r = put(shadow, &table->programs[row->first], n * sizeof(entries[0]));
        }
        return r ? r : put(shadow, &table->rows[index], sizeof(table->rows[index]));
}

/* ---- hashes ------------------------------------------------------------------------------------------------------ */
/* One search for all tables: the words of an entry that make its name, and its key. */
struct hash {
        char *entries;
        uint32_t n;
        uint32_t bytes;          /* of an entry */
        uint32_t owner, id, key; /* offsets: of its ring or session, .. */
        uint32_t owner_bytes;    /* 4 or 8 */
        uint32_t (*start)(uint64_t owner, uint32_t id);
};

static uint32_t start_ring(uint64_t ring, uint32_t id) {
        return table_hash((uint32_t)ring, id);
}

static uint32_t start_session(uint64_t session, uint32_t id) {
        return table_reach_hash(session, id);
}

static struct hash hash_handles(const struct shadow *shadow) {
        return (struct hash){.entries = (char *)shadow->table->handles,
                             .n = TABLE_HANDLES,
                             .bytes = sizeof(struct table_handle),
                             .owner = offsetof(struct table_handle, ring),
                             .owner_bytes = sizeof(uint32_t),
                             .id = offsetof(struct table_handle, handle),
                             .key = offsetof(struct table_handle, key),
                             .start = start_ring};
}

static struct hash hash_buffers(const struct shadow *shadow) {
        return (struct hash){.entries = (char *)shadow->table->buffers,
                             .n = TABLE_BUFFERS,
                             .bytes = sizeof(struct table_buffer),
                             .owner = offsetof(struct table_buffer, ring),
                             .owner_bytes = sizeof(uint32_t),
                             .id = offsetof(struct table_buffer, id),
                             .key = offsetof(struct table_buffer, key),
                             .start = start_ring};
}

static struct hash hash_reach(const struct shadow *shadow) {
        return (struct hash){.entries = (char *)shadow->table->reach,
                             .n = TABLE_REACH,
                             .bytes = sizeof(struct table_reach),
                             .owner = offsetof(struct table_reach, session),
                             .owner_bytes = sizeof(uint64_t),
                             .id = offsetof(struct table_reach, id),
                             .key = offsetof(struct table_reach, key),
                             .start = start_session};
}

static uint32_t hash_word(const struct hash *hash, uint32_t index, uint32_t offset) {
        uint32_t word;

        memcpy(&word, hash->entries + (size_t)index * hash->bytes + offset, sizeof(word));
        return word;
}

static uint64_t hash_owner(const struct hash *hash, uint32_t index) {
        uint64_t owner;

        if (hash->owner_bytes == sizeof(uint32_t))
                return hash_word(hash, index, hash->owner);
        memcpy(&owner, hash->entries + (size_t)index * hash->bytes + hash->owner, sizeof(owner));
        return owner;
}

/* Where (owner, id) is, or hash->n. ret_place: where it would go, hash->n if there is no place. */
static uint32_t hash_find(const struct hash *hash, uint64_t owner, uint32_t id, uint32_t *ret_place) {
        const uint32_t start = hash->start(owner, id);
        uint32_t place = hash->n, found = hash->n;

        for (uint32_t i = 0; i < TABLE_PROBES; i++) {
                uint32_t at = (start + i) & (hash->n - 1), key = hash_word(hash, at, hash->key);

                if (key != SHADOW_KEY_VALID && place == hash->n)
                        place = at;
                if (!key)
                        break;
                if (key == SHADOW_KEY_VALID && hash_owner(hash, at) == owner && hash_word(hash, at, hash->id) == id) {
                        found = at;
                        break;
                }
        }
        if (ret_place)
                *ret_place = place;
        return found;
}

uint32_t shadow_handle_find(const struct shadow *shadow, uint32_t ring, uint32_t handle) {
        struct hash hash = hash_handles(shadow);

        return hash_find(&hash, ring, handle, NULL);
}

uint32_t shadow_buffer_find(const struct shadow *shadow, uint32_t ring, uint32_t id) {
        struct hash hash = hash_buffers(shadow);

        return hash_find(&hash, ring, id, NULL);
}

int shadow_handle_add(struct shadow *shadow, uint32_t ring, uint32_t handle, uint32_t rank) {
        struct hash hash = hash_handles(shadow);
        struct table_handle *entry;
        uint32_t place;
        int r;

        if (hash_find(&hash, ring, handle, &place) != hash.n)
                return -EEXIST;
        if (place == hash.n)
                return -ENOSPC;
        r = settle(shadow);
        if (r)
                return r;
        entry = &shadow->table->handles[place];
        *entry = (struct table_handle){.ring = ring, .handle = handle, .rank = rank, .key = SHADOW_KEY_VALID};
        return put_entry(shadow, entry, sizeof(*entry), &entry->key);
}

int shadow_buffer_add(struct shadow *shadow, uint32_t ring, uint32_t id, uint64_t address, uint64_t bytes,
                      uint32_t *ret_index) {
        struct hash hash = hash_buffers(shadow);
        struct table_buffer *entry;
        uint32_t place;
        int r;

        if (hash_find(&hash, ring, id, &place) != hash.n)
                return -EEXIST;
        if (place == hash.n)
                return -ENOSPC;
        r = settle(shadow);
        if (r)
                return r;
        entry = &shadow->table->buffers[place];
        *entry = (struct table_buffer){
                .address = address, .bytes = bytes, .ring = ring, .id = id, .key = SHADOW_KEY_VALID};
        r = put_entry(shadow, entry, sizeof(*entry), &entry->key);
        if (!r)
                *ret_index = place;
        return r;
}

int shadow_handle_remove(struct shadow *shadow, uint32_t ring, uint32_t handle) {
        uint32_t at = shadow_handle_find(shadow, ring, handle);

        return at == TABLE_HANDLES ? -ENOENT
                                   : change_word(shadow, &shadow->table->handles[at].key, SHADOW_KEY_TAKEN_OUT);
}

/* Workers may have kept what they know of it. */
static void change_buffer(struct shadow *shadow, uint32_t ring, uint32_t id) {
        if (shadow->change.n_buffers++)
                return;
        shadow->change.ring = ring;
        shadow->change.id = id;
}

int shadow_buffer_remove(struct shadow *shadow, uint32_t ring, uint32_t id, uint32_t *ret_index) {
        uint32_t at = shadow_buffer_find(shadow, ring, id);

        if (at == TABLE_BUFFERS)
                return -ENOENT;
        *ret_index = at;
        change_buffer(shadow, ring, id);
        return put_word(shadow, &shadow->table->buffers[at].key, SHADOW_KEY_TAKEN_OUT);
}

int shadow_buffer_gpus(struct shadow *shadow, uint32_t ring, uint32_t id, uint64_t gpus) {
        uint32_t at = shadow_buffer_find(shadow, ring, id);
        struct table_buffer *entry = &shadow->table->buffers[at % TABLE_BUFFERS];
        int r;

        if (at == TABLE_BUFFERS)
                return -ENOENT;
        if (entry->gpus == gpus)
                return 0;
        r = settle(shadow);
        if (r)
                return r;
        change_buffer(shadow, ring, id);
        entry->gpus = gpus;
        return put(shadow, &entry->gpus, sizeof(entry->gpus));
}

/* ---- memory of other GPUs' sessions ------------------------------------------------------------------------------ */
uint32_t shadow_reach_find(const struct shadow *shadow, uint64_t session, uint32_t id) {
        struct hash hash = hash_reach(shadow);

        return hash_find(&hash, session, id, NULL);
}

bool shadow_reach_fits(const struct shadow *shadow, uint64_t session, uint32_t id) {
        struct hash hash = hash_reach(shadow);
        uint32_t place;

        (void)hash_find(&hash, session, id, &place);
        return place != hash.n;
}

int shadow_reach_add(struct shadow *shadow, uint64_t session, uint32_t id, uint64_t address, uint64_t bytes,
                     uint32_t *ret_index) {
        struct hash hash = hash_reach(shadow);
        struct table_reach *entry;
        uint32_t place;
        int r;

        if (hash_find(&hash, session, id, &place) != hash.n)
                return -EEXIST;
        if (place == hash.n)
                return -ENOSPC;
        r = settle(shadow);
        if (r)
                return r;
        entry = &shadow->table->reach[place];
        *entry = (struct table_reach){
                .address = address, .bytes = bytes, .session = session, .id = id, .key = SHADOW_KEY_VALID};
        r = put_entry(shadow, entry, sizeof(*entry), &entry->key);
        if (!r)
                *ret_index = place;
        return r;
}

int shadow_reach_remove(struct shadow *shadow, uint64_t session, uint32_t id, uint32_t *ret_index) {
        uint32_t at = shadow_reach_find(shadow, session, id);

        if (at == TABLE_REACH)
                return -ENOENT;
        *ret_index = at;
        shadow->change.reach = true;
        return put_word(shadow, &shadow->table->reach[at].key, SHADOW_KEY_TAKEN_OUT);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */
int shadow_stop(struct shadow *shadow, uint32_t stop) {
        int r = put_word(shadow, &shadow->table->stop, stop);

        return r ? r : settle(shadow);
}

int shadow_arrive(struct shadow *shadow) {
        return settle(shadow);
}

int shadow_publish(struct shadow *shadow) {
        struct table *table = shadow->table;
        uint32_t version = table->version + 1 ? table->version + 1 : 1;
        struct table_change *change = &table->changes[version % TABLE_CHANGES];
        bool told = !shadow->change.more && shadow->change.n_buffers + shadow->change.reach <= 1;
        int r = settle(shadow);

        if (r)
                return r;
        *change = (struct table_change){.version = told ? version : 0,
                                        .ring = shadow->change.n_buffers ? shadow->change.ring : TABLE_RINGS,
                                        .id = shadow->change.id,
                                        .again = told ? version : 0};
        memset(&shadow->change, 0, sizeof(shadow->change));
        table->version = version;
        r = put(shadow, change, sizeof(*change));
        if (!r)
                r = put(shadow, &table->version, sizeof(table->version));
        return r ? r : settle(shadow);
}
