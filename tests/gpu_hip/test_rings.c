/* SPDX-License-Identifier: MIT */
/* Bell areas: what is believed of them, and with which request the kernel begins. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "fixture.h"
#include "gpu/hip/hip.h"
#include "ring/line.h"

static int setup(void **state) {
        static struct fixture f;

        fake_reset();
        fixture_open(&f, PLANE_LATENCY);
        *state = &f;
        return 0;
}

static void a_fresh_area_begins_at_one(void **state) {
        struct fixture *f = *state;
        struct client client;
        const struct table_ring *ring;

        client_init(&client, 5);
        assert_int_equal(client_attach(f, &client), 0);
        ring = fixture_ring(f, 5);
        assert_non_null(ring);
        assert_int_equal(ring->first, 1);
        assert_int_equal(ring->area, (uint64_t)(uintptr_t)client.area);
        assert_int_equal(client_header(&client)->parked, 0);
        assert_int_equal(client_header(&client)->closed, 0);
        assert_int_equal(atomic_load(&fake.version), f->table->version); /* acknowledged */
        assert_int_equal(client_attach(f, &client), -EEXIST);
        assert_non_null(fixture_ring(f, 5));

        f->ops->ring_detach(f->plane, 5);
        assert_null(fixture_ring(f, 5));
        assert_int_equal(client_header(&client)->closed, 1);
        assert_int_equal(client_attach(f, &client), 0); /* it may come again */
        assert_int_equal(client_header(&client)->closed, 0);
        fixture_close(f);
        assert_int_equal(client_header(&client)->closed, 0); /* another executor may serve it */
        assert_int_equal(client_header(&client)->parked, 1);
        client_deinit(&client);
}

static void used_areas_go_on(void **state) {
        /* The sequence of the last request taken. */
        static const uint32_t last[] = {1, 63, 64, 65, 200, 0xffffffff, 5, 64};
        struct fixture *f = *state;

        for (uint32_t i = 0; i < sizeof(last) / sizeof(last[0]); i++) {
                struct client client;
                bool wrapped = i > 5; /* these came after 0xffffffff */
                uint32_t sequence = last[i], n = 0, oldest = 0;

                client_init(&client, 5);
                /* The last three are unfinished: the newest not even written; the oldest by one lane. */
                for (uint32_t s = sequence; n < BELL_DEPTH && (wrapped || s); s--, n++) {
                        if (!s)
                                continue;
                        client_ring(&client, s);
                        client_answer(&client, s);
                        if (n > 10)
                                client_release(&client, s);
                        if (n < 3)
                                oldest = s;
                }
                for (uint32_t s = sequence, k = 0; k < 3 && s; s--, k++)
                        ((uint64_t *)(void *)(client.area + BELL_OFFSET_DONE))[s % BELL_DEPTH * BELL_LANES + 1] = 0;
                ((uint64_t *)(void *)(client.area + BELL_OFFSET_LINES))[sequence % BELL_LINES * 16 + 15] = 0;
                client_header(&client)->counter = sequence;
                assert_int_equal(client_attach(f, &client), 0);
                assert_int_equal(fixture_ring(f, 5)->first, oldest);
                f->ops->ring_detach(f->plane, 5);

                /* Now all of them are finished. */
                for (uint32_t s = sequence, k = 0; k < 3 && s; s--, k++) {
                        client_ring(&client, s);
                        client_answer(&client, s);
                }
                client_header(&client)->counter = sequence;
                assert_int_equal(client_attach(f, &client), 0);
                assert_int_equal(fixture_ring(f, 5)->first, bell_sequence_next(sequence));
                f->ops->ring_detach(f->plane, 5);
                fake_clock_advance_ms(10000);
                fixture_tick_until(f, fake.n_open == 0);
                client_deinit(&client);
        }
        fixture_close(f);
}

static void pass_on(struct client *client, uint32_t sequence, uint32_t last) {
        uint64_t *line = (uint64_t *)(void *)(client->area + BELL_OFFSET_LINES) + sequence % BELL_LINES * RING_WORDS;

        for (uint32_t i = 0; i < RING_WORDS; i++)
                line[i] = (uint64_t)sequence << 32 | (i == RING_W_FLAGS  ? BELL_FLAG_PASSED
                                                      : i == BELL_W_LAST ? last
                                                                         : 0);
}

/* One request waits for another rank, and others have been served meanwhile; its place was passed by, until its line
 * stood in the way. */
static void what_is_held_is_found(void **state) {
        static const uint32_t held[] = {
                1, 2, 63, 64, UINT32_MAX - 200, UINT32_MAX - BELL_LINES, UINT32_MAX - BELL_LINES + 1};
        static const uint32_t behind[] = {100, BELL_LINES - 1, BELL_LINES, BELL_LINES + 5, 2 * BELL_LINES + 3};
        struct fixture *f = *state;
        const uint32_t n_held = sizeof(held) / sizeof(held[0]), n_behind = sizeof(behind) / sizeof(behind[0]);

        for (uint32_t i = 0; i < n_held * n_behind; i++) {
                const uint32_t number = held[i % n_held], counter = number + behind[i / n_held];
                uint32_t stands_not = 0;
                struct client client;

                client_init(&client, 5);
                client_ring(&client, number);
                for (uint32_t s = number + 1; s != counter + 1; s++) {
                        if (!s)
                                continue;
                        if (s % BELL_LINES == number % BELL_LINES) {
                                stands_not = stands_not ? stands_not : s;
                        } else if (s % BELL_DEPTH == number % BELL_DEPTH) {
                                if (!stands_not)
                                        pass_on(&client, s, number);
                        } else if (!stands_not || s - stands_not < BELL_DEPTH) { /* these are drawn at the same time */
                                client_ring(&client, s);
                                client_answer(&client, s);
                                client_release(&client, s);
                        }
                }
                client_header(&client)->counter = counter;
                if (stands_not && counter - stands_not >= BELL_DEPTH) { /* nobody has got so far */
                        client_deinit(&client);
                        continue;
                }
                assert_int_equal(client_attach(f, &client), 0);
                assert_int_equal(fixture_ring(f, 5)->first, number);
                f->ops->ring_detach(f->plane, 5);
                /* Now it is finished, too. Whoever waits for its line goes on. */
                client_answer(&client, number);
                client_header(&client)->counter = counter;
                assert_int_equal(client_attach(f, &client), 0);
                assert_int_equal(fixture_ring(f, 5)->first, stands_not ? stands_not : bell_sequence_next(counter));
                f->ops->ring_detach(f->plane, 5);
                fake_clock_advance_ms(10000);
                fixture_tick_until(f, fake.n_open == 0);
                client_deinit(&client);
        }
        fixture_close(f);
}

static void wrong_areas_are_refused(void **state) {
        struct fixture *f = *state;
        struct client client;

        client_init(&client, 5);
        client.memory.bytes -= 1;
        assert_int_equal(client_attach(f, &client), -EINVAL);
        client.memory.bytes += 1;
        client_header(&client)->magic ^= 1;
        assert_int_equal(client_attach(f, &client), -EINVAL);
        client_header(&client)->magic ^= 1;
        client_header(&client)->depth *= 2;
        assert_int_equal(client_attach(f, &client), -EINVAL);
        client_header(&client)->depth /= 2;
        client.session = 0;
        assert_int_equal(client_attach(f, &client), -EINVAL);
        assert_int_equal(f->table->n_rings, 0);
        client.session = 5;
        assert_int_equal(client_attach(f, &client), 0);
        assert_int_equal(f->table->n_rings, 1);
        fixture_close(f);
        client_deinit(&client);
}

static void a_session_takes_its_buffers_along(void **state) {
        struct fixture *f = *state;
        struct client a, b;
        struct plane_memory memory;
        void *base = fake_client_alloc(8192, &memory);

        /* Buffers may come before the area. */
        assert_int_equal(f->ops->buffer_import(f->plane, 5, 1, &memory, f->error), 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 6, 1, &memory, f->error), 0);
        client_init(&a, 5);
        client_init(&b, 6);
        assert_int_equal(client_attach(f, &b), 0);
        assert_int_equal(client_attach(f, &a), 0);
        assert_ptr_equal(&f->table->rings[fixture_buffer(f, 5, 1)->ring], fixture_ring(f, 5));
        assert_ptr_equal(&f->table->rings[fixture_buffer(f, 6, 1)->ring], fixture_ring(f, 6));
        f->ops->ring_detach(f->plane, 5);
        assert_null(fixture_buffer(f, 5, 1));
        assert_non_null(fixture_buffer(f, 6, 1));
        f->ops->ring_detach(f->plane, 99);
        f->ops->ring_detach(f->plane, 0);
        f->ops->ring_detach(f->plane, 6);
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 0);
        for (uint32_t i = 0; i < TABLE_RINGS; i++)
                assert_int_equal(f->plane->rings[i].session, 0);
        fixture_close(f);
        client_deinit(&a);
        client_deinit(&b);
        fake_client_free(base);
}

/* Each change is waited for until the kernel has acknowledged it. */
static void all_buffers_go_at_once(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory;
        void *base = fake_client_alloc(8192, &memory);
        uint32_t version;

        for (uint32_t i = 1; i <= 100; i++)
                assert_int_equal(f->ops->buffer_import(f->plane, 5, i, &memory, f->error), 0);
        version = f->table->version;
        f->ops->ring_detach(f->plane, 5); /* there is no area */
        assert_in_range(f->table->version - version, 1, 2);
        assert_int_equal(atomic_load(&fake.version), f->table->version);
        for (uint32_t i = 1; i <= 100; i++)
                assert_null(fixture_buffer(f, 5, i));
        assert_int_equal(f->plane->rings[0].session, 0);
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 0);
        fixture_close(f);
        fake_client_free(base);
}

static void there_is_room_for_so_many_sessions(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory;
        void *base = fake_client_alloc(8192, &memory);

        for (uint64_t s = 1; s <= TABLE_RINGS; s++)
                assert_int_equal(f->ops->buffer_import(f->plane, s, 1, &memory, f->error), 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 1000, 1, &memory, f->error), -ENOSPC);
        f->ops->buffer_retire(f->plane, 7, 1);
        assert_int_equal(f->ops->buffer_import(f->plane, 1000, 1, &memory, f->error), 0);
        fixture_close(f);
        fake_client_free(base);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(a_fresh_area_begins_at_one, setup),
                cmocka_unit_test_setup(used_areas_go_on, setup),
                cmocka_unit_test_setup(what_is_held_is_found, setup),
                cmocka_unit_test_setup(wrong_areas_are_refused, setup),
                cmocka_unit_test_setup(a_session_takes_its_buffers_along, setup),
                cmocka_unit_test_setup(all_buffers_go_at_once, setup),
                cmocka_unit_test_setup(there_is_room_for_so_many_sessions, setup),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
