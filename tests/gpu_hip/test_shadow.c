/* SPDX-License-Identifier: MIT */
/* The order in which tables reach the device, and their hashes. The device here is a second table; a reader on it never
 * sees an entry whose key is valid and whose rest is not. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/hip/shadow.h"

#define PUTS_MAX 64u

struct device {
        struct shadow shadow;
        struct table *table; /* what the device sees */
        struct {
                size_t offset, bytes;
        } put[PUTS_MAX];
        uint32_t n_put;                      /* not yet arrived */
        uint32_t touched;                    /* buffer */
        int fails;                           /* what put returns */
        void (*look)(struct device *device); /* after each byte range that arrives */
};

static int device_put(void *context, size_t offset, size_t bytes) {
        struct device *d = context;

        assert_true(offset + bytes <= sizeof(struct table));
        assert_in_range(d->n_put, 0, PUTS_MAX - 1);
        if (d->fails)
                return d->fails;
        d->put[d->n_put].offset = offset;
        d->put[d->n_put++].bytes = bytes;
        return 0;
}

/* As late as it may (what was changed before it was settled goes wrong here), and each copy from its end, word by word.
 */
static int device_settle(void *context) {
        struct device *d = context;

        for (uint32_t i = 0; i < d->n_put; i++)
                for (size_t k = d->put[i].bytes; k; k -= 4) {
                        size_t at = d->put[i].offset + k - 4;

                        memcpy((char *)d->table + at, (const char *)d->shadow.table + at, 4);
                        if (d->look)
                                d->look(d);
                }
        d->n_put = 0;
        return 0;
}

static int setup(void **state) {
        struct device *d = calloc(1, sizeof(*d));

        d->table = calloc(1, sizeof(*d->table));
        shadow_init(&d->shadow, malloc(sizeof(struct table)));
        d->shadow.put = device_put;
        d->shadow.settle = device_settle;
        d->shadow.context = d;
        *d->table = *d->shadow.table;
        *state = d;
        return 0;
}

static int teardown(void **state) {
        struct device *d = *state;

        free(d->shadow.table);
        free(d->table);
        free(d);
        return 0;
}

static void assert_same(struct device *d) {
        assert_int_equal(device_settle(d), 0);
        assert_memory_equal(d->table, d->shadow.table, sizeof(*d->table));
}

/* ---- order ------------------------------------------------------------------------------------------------------- */
static void look_at_ring(struct device *d) {
        const struct table_ring *r = &d->table->rings[3], *new = &d->shadow.table->rings[3];

        if (r->key && r->key == new->key)
                assert_memory_equal(r, new, sizeof(*r));
}

static void a_ring_appears_whole(void **state) {
        struct device *d = *state;
        uint32_t key;

        d->look = look_at_ring;
        assert_int_equal(shadow_ring_set(&d->shadow, 3, 7 * 4096 + 21, 7, 21), 0);
        assert_same(d);
        key = d->table->rings[3].key;
        assert_int_not_equal(key, 0);
        assert_int_equal(d->table->n_rings, 4);
        assert_int_equal(shadow_ring_clear(&d->shadow, 3), 0);
        assert_same(d);
        assert_int_equal(d->table->rings[3].key, 0);
        assert_int_equal(d->table->n_rings, 0);
        assert_int_equal(d->table->rings[3].area, 7 * 4096 + 21); /* may still be looked at */
        assert_int_equal(shadow_ring_set(&d->shadow, 3, 8 * 4096 + 5, 8, 5), 0);
        assert_same(d);
        assert_int_not_equal(d->table->rings[3].key, key);
}

static void the_last_ring_bounds_the_search(void **state) {
        struct device *d = *state;

        assert_int_equal(shadow_ring_set(&d->shadow, 1, 4096, 1, 0), 0);
        assert_int_equal(shadow_ring_set(&d->shadow, 5, 4096, 1, 0), 0);
        assert_int_equal(shadow_ring_clear(&d->shadow, 1), 0);
        assert_same(d);
        assert_int_equal(d->table->n_rings, 6);
        assert_int_equal(shadow_ring_clear(&d->shadow, 5), 0);
        assert_same(d);
        assert_int_equal(d->table->n_rings, 0);
}

static void look_at_rank(struct device *d) {
        const struct table_rank *r = &d->table->ranks[200], *new = &d->shadow.table->ranks[200];

        if (r->key && r->key == new->key)
                assert_memory_equal(r, new, sizeof(*r));
}

static void a_rank_appears_whole(void **state) {
        struct device *d = *state;
        struct table_rank rank = {.key = 77};

        d->look = look_at_rank;
        for (uint32_t use = 1; use < 4; use++) {
                rank.epoch = use;
                for (uint32_t i = 0; i < STAGING_RANKS_MAX; i++) {
                        rank.peer[i] = use * 1000 + i;
                        rank.session[i] = use * 2000 + i;
                }
                rank.gpus = use << 7; /* also what stands behind the key */
                assert_int_equal(shadow_rank_set(&d->shadow, 200, &rank), 0);
                assert_same(d);
                assert_int_equal(d->table->ranks[200].key, use);
                assert_int_equal(shadow_rank_clear(&d->shadow, 200), 0);
                assert_same(d);
                assert_int_equal(d->table->ranks[200].key, 0);
        }
}

static void look_at_leave(struct device *d) {
        const struct table_rank *r = &d->table->ranks[0];

        if (r->abort == 10)
                assert_true(r->has_last && r->last == 41);
}

static void a_leave_spares_what_came_before(void **state) {
        struct device *d = *state;
        struct table_rank rank = {.n_ranks = 2};

        assert_int_equal(shadow_rank_set(&d->shadow, 0, &rank), 0);
        d->look = look_at_leave;
        assert_int_equal(shadow_rank_leave(&d->shadow, 0, 41, 10), 0);
        assert_same(d);
        assert_int_equal(d->table->ranks[0].abort, 10);
        d->look = NULL;
        assert_int_equal(shadow_rank_abort(&d->shadow, 0, 13), 0);
        assert_same(d);
        assert_int_equal(d->table->ranks[0].abort, 13);
        assert_int_equal(d->table->ranks[0].has_last, 0);
}

static void look_at_version(struct device *d) {
        if (d->table->version == 2)
                assert_int_equal(d->table->rings[0].area, 4096);
}

static void look_at_freeze(struct device *d) {
        assert_true(!d->table->ranks[0].abort || d->table->ranks[0].freeze);
}

static void freezing_comes_before_the_abort(void **state) {
        struct device *d = *state;
        struct table_rank rank = {.n_ranks = 2};

        assert_int_equal(shadow_rank_set(&d->shadow, 0, &rank), 0);
        d->look = look_at_freeze;
        assert_int_equal(shadow_rank_freeze(&d->shadow, 0, true), 0);
        assert_int_equal(shadow_rank_abort(&d->shadow, 0, 13), 0);
        assert_same(d);
        assert_int_equal(d->table->ranks[0].abort, 13);
        d->look = NULL;
        assert_int_equal(shadow_rank_freeze(&d->shadow, 0, false), 0);
        assert_same(d);
        assert_int_equal(d->table->ranks[0].freeze, 0);
}

static void the_version_comes_last(void **state) {
        struct device *d = *state;

        d->look = look_at_version;
        assert_int_equal(shadow_ring_set(&d->shadow, 0, 4096, 1, 1), 0);
        assert_int_equal(shadow_publish(&d->shadow), 0);
        assert_int_equal(d->n_put, 0); /* it has arrived */
        assert_int_equal(d->table->version, 2);
        d->shadow.table->version = UINT32_MAX;
        assert_int_equal(shadow_publish(&d->shadow), 0);
        assert_int_equal(d->table->version, 1); /* 0 means that a worker has not begun */
}

/* What the last version is said to have changed: a buffer, TABLE_RINGS for nothing, ~0 for more than can be said. */
static uint32_t changed(const struct device *d) {
        const struct table_change *change = &d->table->changes[d->table->version % TABLE_CHANGES];

        if (change->version != d->table->version || change->again != d->table->version)
                return ~0u;
        return change->ring == TABLE_RINGS ? TABLE_RINGS : change->ring << 16 | change->id;
}

static void look_at_change(struct device *d) {
        if (d->table->version == 3)
                assert_int_equal(changed(d), 5 << 16 | 77);
}

static void one_buffer_less_is_told(void **state) {
        struct table_rank rank = {.n_ranks = 2};
        struct device *d = *state;
        uint32_t index;

        assert_int_equal(shadow_buffer_add(&d->shadow, 5, 77, 4096, 100, &index), 0);
        assert_int_equal(shadow_buffer_add(&d->shadow, 5, 78, 8192, 100, &index), 0);
        assert_int_equal(shadow_rank_set(&d->shadow, 3, &rank), 0);
        assert_int_equal(shadow_handle_add(&d->shadow, 5, 1, 3), 0);
        assert_int_equal(shadow_arrive(&d->shadow), 0);
        assert_int_equal(d->n_put, 0);
        assert_int_equal(shadow_publish(&d->shadow), 0); /* nobody has kept anything of these */
        assert_int_equal(changed(d), TABLE_RINGS);
        d->look = look_at_change; /* no worker sees the version before what it changed */
        assert_int_equal(shadow_buffer_remove(&d->shadow, 5, 77, &index), 0);
        assert_int_equal(shadow_publish(&d->shadow), 0);
        assert_int_equal(d->table->version, 3);
        d->look = NULL;
        assert_int_equal(shadow_buffer_add(&d->shadow, 5, 79, 4096, 100, &index), 0);
        assert_int_equal(shadow_buffer_remove(&d->shadow, 5, 78, &index), 0);
        assert_int_equal(shadow_buffer_remove(&d->shadow, 5, 79, &index), 0);
        assert_int_equal(shadow_publish(&d->shadow), 0); /* two at once */
        assert_int_equal(changed(d), ~0u);
        assert_int_equal(shadow_buffer_add(&d->shadow, 5, 80, 4096, 100, &index), 0);
        for (uint32_t i = 0; i < 8; i++) {
                const struct plan plan = {0};
                const struct table_choices choices = {0};

                assert_int_equal(i == 0   ? shadow_rank_set(&d->shadow, 3, &rank)
                                 : i == 1 ? shadow_rank_abort(&d->shadow, 3, 13)
                                 : i == 2 ? shadow_handle_remove(&d->shadow, 5, 1)
                                 : i == 3 ? shadow_rank_clear(&d->shadow, 3)
                                 : i == 4 ? shadow_ring_set(&d->shadow, 0, 4096, 1, 1)
                                 : i == 5 ? shadow_plan_set(&d->shadow, 1, &plan)
                                 : i == 6 ? shadow_programs_set(&d->shadow, 1, NULL, NULL, 0)
                                          : shadow_choices_set(&d->shadow, 1, &choices),
                                 0);
                if (i == 0)
                        assert_int_equal(shadow_buffer_remove(&d->shadow, 5, 80, &index), 0);
                assert_int_equal(shadow_publish(&d->shadow), 0);
                assert_int_equal(changed(d), ~0u);
        }
        assert_int_equal(shadow_publish(&d->shadow), 0);
        assert_int_equal(changed(d), TABLE_RINGS);
}

static void programs_arrive(void **state) {
        const struct program_row row = {.first = 5, .here = 3, .roots = 2};
        union program_entry entries[4];
        struct device *d = *state;

        memset(entries, 0x5a, sizeof(entries));
        assert_int_equal(shadow_programs_set(&d->shadow, 7, &row, entries, 4), 0);
        assert_int_equal(shadow_arrive(&d->shadow), 0);
        assert_memory_equal(&d->table->rows[7], &row, sizeof(row));
        assert_memory_equal(&d->table->programs[5], entries, sizeof(entries));
        assert_memory_equal(&d->table->programs[9], &(union program_entry){0}, sizeof(entries[0]));
        assert_int_equal(shadow_programs_set(&d->shadow, 7, NULL, NULL, 0), 0);
        assert_int_equal(shadow_arrive(&d->shadow), 0);
        assert_int_equal(d->table->rows[7].first, 0);
}

static void look_at_gpus(struct device *d) {
        if (d->table->version == 2)
                assert_int_equal(d->table->buffers[d->touched].gpus, UINT64_C(1) << 63 | 6);
}

static void who_reaches_a_buffer_is_told(void **state) {
        struct device *d = *state;
        uint32_t index;

        assert_int_equal(shadow_buffer_gpus(&d->shadow, 5, 77, 6), -ENOENT);
        assert_int_equal(shadow_buffer_add(&d->shadow, 5, 77, 4096, 100, &d->touched), 0);
        assert_int_equal(shadow_buffer_add(&d->shadow, 5, 78, 8192, 100, &index), 0);
        d->look = look_at_gpus;
        assert_int_equal(shadow_buffer_gpus(&d->shadow, 5, 77, UINT64_C(1) << 63 | 6), 0);
        assert_int_equal(shadow_publish(&d->shadow), 0);
        assert_int_equal(d->table->version, 2);
        assert_int_equal(changed(d), 5 << 16 | 77);
        d->look = NULL;
        assert_int_equal(shadow_buffer_gpus(&d->shadow, 5, 77, UINT64_C(1) << 63 | 6), 0);
        assert_int_equal(shadow_publish(&d->shadow), 0);
        assert_int_equal(changed(d), TABLE_RINGS); /* as it was */
        assert_int_equal(shadow_buffer_gpus(&d->shadow, 5, 77, 0), 0);
        assert_int_equal(shadow_buffer_gpus(&d->shadow, 5, 78, 6), 0);
        assert_int_equal(shadow_publish(&d->shadow), 0);
        assert_int_equal(changed(d), ~0u); /* two at once */
        assert_int_equal(shadow_buffer_remove(&d->shadow, 5, 78, &index), 0);
        assert_int_equal(shadow_buffer_add(&d->shadow, 5, 78, 4096, 50, &index), 0);
        assert_int_equal(d->shadow.table->buffers[index].gpus, 0); /* it is another one */
        assert_same(d);
}

static void what_is_reached_no_more_is_told(void **state) {
        struct device *d = *state;
        uint32_t index, buffer;

        assert_int_equal(shadow_reach_add(&d->shadow, 7, 1, 4096, 100, &index), 0);
        assert_int_equal(shadow_reach_add(&d->shadow, 7, 2, 4096, 100, &index), 0);
        assert_int_equal(shadow_reach_add(&d->shadow, 7, 3, 4096, 100, &index), 0);
        assert_int_equal(shadow_buffer_add(&d->shadow, 5, 77, 4096, 100, &buffer), 0);
        assert_int_equal(shadow_reach_remove(&d->shadow, 7, 1, &index), 0);
        assert_int_equal(shadow_reach_remove(&d->shadow, 7, 2, &index), 0);
        assert_int_equal(shadow_publish(&d->shadow), 0); /* however many */
        assert_int_equal(changed(d), TABLE_RINGS);
        assert_int_equal(shadow_reach_remove(&d->shadow, 7, 3, &index), 0);
        assert_int_equal(shadow_buffer_remove(&d->shadow, 5, 77, &buffer), 0);
        assert_int_equal(shadow_publish(&d->shadow), 0);
        assert_int_equal(changed(d), ~0u);
        assert_int_equal(shadow_reach_remove(&d->shadow, 7, 3, &index), -ENOENT);
        assert_same(d);
}

static void a_failing_device_is_reported(void **state) {
        struct device *d = *state;
        uint32_t index = 12345;

        d->fails = -EIO;
        assert_int_equal(shadow_ring_set(&d->shadow, 0, 4096, 1, 1), -EIO);
        assert_int_equal(shadow_publish(&d->shadow), -EIO);
        assert_int_equal(shadow_stop(&d->shadow, 1), -EIO);
        assert_int_equal(shadow_buffer_add(&d->shadow, 0, 1, 0, 1, &index), -EIO);
        assert_int_equal(index, 12345);
}

/* ---- hashes ------------------------------------------------------------------------------------------------------ */
/* The kernel's search on what the device has: all probes at once, whatever the keys before. */
static uint32_t device_finds(const struct table *table, uint32_t ring, uint32_t id) {
        for (uint32_t i = 0; i < TABLE_PROBES; i++) {
                uint32_t at = (table_hash(ring, id) + i) % TABLE_BUFFERS;
                const struct table_buffer *b = &table->buffers[at];

                if (b->key == SHADOW_KEY_VALID && b->ring == ring && b->id == id)
                        return at;
        }
        return TABLE_BUFFERS;
}

static void look_at_buffer(struct device *d) {
        const struct table_buffer *b = &d->table->buffers[d->touched], *new = &d->shadow.table->buffers[d->touched];

        if (b->key == SHADOW_KEY_VALID && new->key == SHADOW_KEY_VALID)
                assert_memory_equal(b, new, sizeof(*b));
}

static void buffers_come_and_go(void **state) {
        struct device *d = *state;
        static uint32_t there[8][2048]; /* 1 + the use in which it was put there */
        uint32_t seed = 1, n = 0, refused = 0;

        memset(there, 0, sizeof(there));
        d->look = look_at_buffer;
        for (uint32_t k = 0; k < 20000; k++) {
                uint32_t ring, id, index = TABLE_BUFFERS, expect;
                int r;

                seed = seed * 1103515245u + 12345u;
                ring = seed >> 8 & 7;
                id = 1 + (seed >> 12) % 2047;
                expect = there[ring][id];
                if (seed >> 30) {
                        uint64_t bytes = 256 + (k & 0xff);

                        r = shadow_buffer_add(&d->shadow, ring, id,
                                              (uint64_t)ring << 40 | (uint64_t)id << 8 | (k & 0xff), bytes, &index);
                        if (expect) {
                                assert_int_equal(r, -EEXIST);
                        } else if (r) {
                                assert_int_equal(r, -ENOSPC);
                                refused++;
                        } else {
                                there[ring][id] = k + 1;
                                n++;
                                assert_int_equal(shadow_buffer_find(&d->shadow, ring, id), index);
                        }
                } else {
                        r = shadow_buffer_remove(&d->shadow, ring, id, &index);
                        assert_int_equal(r, expect ? 0 : -ENOENT);
                        if (expect) {
                                there[ring][id] = 0;
                                n--;
                                assert_int_equal(d->shadow.table->buffers[index].id, id);
                        }
                }
                d->touched = index % TABLE_BUFFERS;
                assert_int_equal(device_settle(d), 0);
        }
        assert_in_range(n, 3000, TABLE_BUFFERS); /* it was a test */
        assert_in_range(refused, 0, 3000);
        for (uint32_t ring = 0; ring < 8; ring++)
                for (uint32_t id = 1; id < 2048; id++)
                        assert_true((device_finds(d->table, ring, id) < TABLE_BUFFERS) == (there[ring][id] != 0));
        assert_same(d);
}

static void look_at_reach(struct device *d) {
        const struct table_reach *e = &d->table->reach[d->touched], *new = &d->shadow.table->reach[d->touched];

        if (e->key == SHADOW_KEY_VALID && new->key == SHADOW_KEY_VALID)
                assert_memory_equal(e, new, sizeof(*e));
}

/* Sessions that differ in their upper halves only are others. */
static void reached_memory_comes_and_goes(void **state) {
        struct device *d = *state;
        static bool there[8][4096];
        uint32_t seed = 1, n = 0, refused = 0;

        memset(there, 0, sizeof(there));
        d->look = look_at_reach;
        for (uint32_t k = 0; k < 40000; k++) {
                uint32_t s, id, index = TABLE_REACH;
                uint64_t session;
                int r;

                seed = seed * 1103515245u + 12345u;
                s = seed >> 8 & 7;
                session = (uint64_t)(s >> 1) << 32 | (s & 1);
                id = 1 + (seed >> 12) % 4095;
                if (seed >> 30) {
                        r = shadow_reach_add(&d->shadow, session, id, k * 16, k, &index);
                        assert_int_equal(there[s][id] ? r : 0, there[s][id] ? -EEXIST : 0);
                        refused += r == -ENOSPC;
                        if (!there[s][id] && r)
                                assert_false(shadow_reach_fits(&d->shadow, session, id));
                        n += !r;
                        there[s][id] = there[s][id] || !r;
                } else {
                        r = shadow_reach_remove(&d->shadow, session, id, &index);
                        assert_int_equal(r, there[s][id] ? 0 : -ENOENT);
                        n -= !r;
                        there[s][id] = false;
                }
                d->touched = index % TABLE_REACH;
                assert_int_equal(device_settle(d), 0);
        }
        assert_in_range(n, 6000, TABLE_REACH); /* it was a test */
        assert_in_range(refused, 0, 6000);
        for (uint32_t s = 0; s < 8; s++)
                for (uint32_t id = 1; id < 4096; id++) {
                        const uint64_t session = (uint64_t)(s >> 1) << 32 | (s & 1);
                        bool found = false;

                        for (uint32_t i = 0; i < TABLE_PROBES; i++) {
                                const struct table_reach *e =
                                        &d->table->reach[(table_reach_hash(session, id) + i) % TABLE_REACH];

                                found = found || (e->key == SHADOW_KEY_VALID && e->session == session && e->id == id);
                        }
                        assert_int_equal(found, there[s][id]);
                }
        assert_same(d);
}

static void handles_around_one_place(void **state) {
        struct device *d = *state;
        uint32_t handle[TABLE_PROBES + 1], n = 0, start = table_hash(0, 1) % TABLE_HANDLES;

        /* Handles that all begin at the same place. */
        for (uint32_t h = 1; n < TABLE_PROBES + 1; h++)
                if (table_hash(0, h) % TABLE_HANDLES == start)
                        handle[n++] = h;
        for (uint32_t i = 0; i < TABLE_PROBES; i++) {
                assert_int_equal(shadow_handle_add(&d->shadow, 0, handle[i], i), 0);
                assert_int_equal(shadow_handle_find(&d->shadow, 0, handle[i]), (start + i) % TABLE_HANDLES);
        }
        assert_int_equal(shadow_handle_add(&d->shadow, 0, handle[TABLE_PROBES], 99), -ENOSPC);
        assert_int_equal(shadow_handle_add(&d->shadow, 0, handle[5], 99), -EEXIST);
        /* What is behind a place that became free is still found, and not put there twice. */
        assert_int_equal(shadow_handle_remove(&d->shadow, 0, handle[2]), 0);
        assert_int_equal(shadow_handle_remove(&d->shadow, 0, handle[2]), -ENOENT);
        assert_int_equal(shadow_handle_add(&d->shadow, 0, handle[9], 99), -EEXIST);
        assert_int_equal(shadow_handle_find(&d->shadow, 0, handle[15]), (start + 15) % TABLE_HANDLES);
        assert_int_equal(shadow_handle_add(&d->shadow, 0, handle[TABLE_PROBES], 99), 0);
        assert_int_equal(shadow_handle_find(&d->shadow, 0, handle[TABLE_PROBES]), (start + 2) % TABLE_HANDLES);
        assert_same(d);
        assert_int_equal(d->table->handles[(start + 2) % TABLE_HANDLES].rank, 99);
        assert_int_equal(shadow_handle_find(&d->shadow, 1, handle[3]), TABLE_HANDLES); /* another session's */
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(programs_arrive, setup, teardown),
                cmocka_unit_test_setup_teardown(a_ring_appears_whole, setup, teardown),
                cmocka_unit_test_setup_teardown(the_last_ring_bounds_the_search, setup, teardown),
                cmocka_unit_test_setup_teardown(a_rank_appears_whole, setup, teardown),
                cmocka_unit_test_setup_teardown(a_leave_spares_what_came_before, setup, teardown),
                cmocka_unit_test_setup_teardown(freezing_comes_before_the_abort, setup, teardown),
                cmocka_unit_test_setup_teardown(the_version_comes_last, setup, teardown),
                cmocka_unit_test_setup_teardown(one_buffer_less_is_told, setup, teardown),
                cmocka_unit_test_setup_teardown(who_reaches_a_buffer_is_told, setup, teardown),
                cmocka_unit_test_setup_teardown(what_is_reached_no_more_is_told, setup, teardown),
                cmocka_unit_test_setup_teardown(a_failing_device_is_reported, setup, teardown),
                cmocka_unit_test_setup_teardown(buffers_come_and_go, setup, teardown),
                cmocka_unit_test_setup_teardown(handles_around_one_place, setup, teardown),
                cmocka_unit_test_setup_teardown(reached_memory_comes_and_goes, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
