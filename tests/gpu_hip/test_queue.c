/* SPDX-License-Identifier: MIT */
/* A parked plane whose next kernel is queued already, behind a word. (The tests of parking and leaving run so, too.) */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>

#include "fixture.h"
#include "gpu/hip/hip.h"

static struct client client;

static void open_with(struct fixture *f) {
        assert_int_equal(setenv("RAILMUX_GPU_QUEUE", "1", 1), 0);
        fake_reset();
        fixture_open(f, PLANE_ADAPTIVE);
        client_init(&client, 5);
        assert_int_equal(client_attach(f, &client), 0);
}

static void close_with(struct fixture *f) {
        fixture_close(f);
        client_deinit(&client);
}

static bool parked(const struct fixture *f) {
        struct plane_info info;

        f->ops->info(f->plane, &info);
        return info.parked;
}

static void ring(uint32_t i) {
        client_ring(&client, i);
        __atomic_store_n(&client.host.wake, i, __ATOMIC_RELAXED);
}

static bool queued(void) {
        return atomic_load(&fake.queued);
}

/* A wake launches nothing, it writes a word. */
static void a_wake_lets_it_go(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        assert_false(queued());
        for (uint32_t i = 1; i < 4; i++) {
                fixture_silence(&f, 400);
                assert_true(parked(&f));
                assert_true(queued());
                assert_false(atomic_load(&fake.running));
                atomic_store(&fake.refuse_launch, true);
                ring(i);
                fixture_tick(&f);
                assert_false(parked(&f));
                fixture_tick_until(&f, atomic_load(&fake.running));
                assert_int_equal(fake.launches, i + 1);
                atomic_store(&fake.refuse_launch, false);
        }
        fixture_silence(&f, 400);
        close_with(&f); /* with one that is queued */
}

/* What changes in the tables meanwhile, the kernel finds when it begins. */
static void tables_change_meanwhile(void **state) {
        struct fixture f;
        struct client other;

        (void)state;
        open_with(&f);
        fixture_silence(&f, 400);
        assert_true(queued());
        client_init(&other, 6);
        assert_int_equal(client_attach(&f, &other), 0); /* which wakes */
        assert_false(parked(&f));
        fixture_tick_until(&f, atomic_load(&fake.version) == __atomic_load_n(&f.table->version, __ATOMIC_RELAXED));
        assert_non_null(fixture_ring(&f, 6));
        fixture_silence(&f, 400);
        assert_true(queued());
        f.ops->ring_detach(f.plane, 6);
        assert_null(fixture_ring(&f, 6));
        fixture_tick_until(&f, fake.closes == 1); /* its area's mapping, for which what is queued ends */
        fixture_tick_until(&f, queued());
        assert_true(parked(&f));
        close_with(&f);
        client_deinit(&other);
}

/* What waits for all kernels comes through: it is ended, and queued again. */
static void a_window_ends_it(void **state) {
        struct fixture f;
        struct plane_memory memory;
        void *base = fake_client_alloc(8192, &memory);
        uint32_t launches;

        (void)state;
        open_with(&f);
        assert_int_equal(f.ops->buffer_import(f.plane, 5, 1, &memory, f.error), 0);
        fixture_silence(&f, 400);
        assert_true(queued());
        launches = fake.launches;
        f.ops->buffer_retire(f.plane, 5, 1);
        fixture_tick_until(&f, fake.closes == 1);
        assert_int_equal(fake.launches, launches + 1);
        assert_true(parked(&f));
        assert_false(atomic_load(&fake.running));
        fixture_tick_until(&f, queued());
        ring(1);
        fixture_tick(&f);
        fixture_tick_until(&f, atomic_load(&fake.running));
        assert_int_equal(fake.launches, launches + 2);
        close_with(&f);
        fake_client_free(base);
}

/* Clients' kernels leave it no room to begin, and so to end: nobody waits for it, and who rings meanwhile is served. */
static void a_window_without_room(void **state) {
        struct fixture f;
        struct plane_memory memory;
        void *base = fake_client_alloc(8192, &memory);
        struct client other;

        (void)state;
        for (uint32_t rings = 0; rings < 2; rings++) {
                open_with(&f);
                assert_int_equal(f.ops->buffer_import(f.plane, 5, 1, &memory, f.error), 0);
                fixture_silence(&f, 400);
                assert_true(queued());
                atomic_store(&fake.no_room, true);
                f.ops->buffer_retire(f.plane, 5, 1);
                fixture_silence(&f, 2000);
                assert_int_equal(fake.closes, 0);
                if (rings)
                        ring(1);
                client_init(&other, 6);
                assert_int_equal(client_attach(&f, &other), 0); /* it will ring, too, and says so */
                fixture_silence(&f, 2000);
                assert_true(client_header(&client)->parked && client_header(&other)->parked);
                atomic_store(&fake.no_room, false);
                fixture_tick_until(&f, fake.closes == 1 || (rings && !client_header(&client)->parked));
                if (rings)
                        fixture_tick_until(&f, atomic_load(&fake.running) && !client_header(&client)->parked);
                fixture_tick_until(&f, !client_header(&other)->parked == !!rings);
                fixture_silence(&f, 3000);
                fixture_tick_until(&f, fake.closes == 1 && queued());
                assert_true(parked(&f));
                close_with(&f);
                client_deinit(&other);
        }
        fake_client_free(base);
}

static void a_runtime_without_waits(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        atomic_store(&fake.no_waits, true);
        fixture_silence(&f, 400);
        assert_true(parked(&f));
        assert_false(queued());
        atomic_store(&fake.no_waits, false);
        fixture_silence(&f, 50); /* nor is it tried again */
        assert_false(queued());
        ring(1);
        fixture_tick(&f);
        assert_false(parked(&f));
        assert_true(atomic_load(&fake.running));
        close_with(&f);
}

/* The wait is there, the kernel is not. */
static void a_launch_that_fails(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        fixture_silence(&f, 190);
        atomic_store(&fake.refuse_launch, true);
        for (uint32_t i = 0; i < 20 && !f.ops->tick(f.plane, f.error); i++)
                fake_clock_advance_ms(10);
        assert_int_equal(f.ops->tick(f.plane, f.error), -EIO);
        assert_string_equal(f.error, "launching the kernel: an illegal address (hipErrorIllegalAddress)");
        assert_false(queued());
        f.ops->close(f.plane);
        client_deinit(&client);
}

static void off(void **state) {
        static const char *const values[] = {NULL, "", "0"};
        struct fixture f;

        (void)state;
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
                fake_reset();
                assert_int_equal(values[i] ? setenv("RAILMUX_GPU_QUEUE", values[i], 1) : unsetenv("RAILMUX_GPU_QUEUE"),
                                 0);
                fixture_open(&f, PLANE_ADAPTIVE);
                fixture_silence(&f, 400);
                assert_true(parked(&f));
                assert_false(queued());
                fixture_close(&f);
        }
}

static void draining(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        fixture_silence(&f, 400);
        assert_true(queued());
        assert_true(f.ops->drain(f.plane));
        fixture_tick(&f);
        close_with(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_wake_lets_it_go),
                cmocka_unit_test(tables_change_meanwhile),
                cmocka_unit_test(a_window_ends_it),
                cmocka_unit_test(a_window_without_room),
                cmocka_unit_test(a_runtime_without_waits),
                cmocka_unit_test(a_launch_that_fails),
                cmocka_unit_test(off),
                cmocka_unit_test(draining),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
