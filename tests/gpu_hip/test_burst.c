/* SPDX-License-Identifier: MIT */
/* Who launches bursts, and when. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "gpu/hip/hip.h"

#define wait_until(condition)                                                                                          \
        do {                                                                                                           \
                while (!(condition))                                                                                   \
                        sched_yield(); /* the test's time limit ends it */                                             \
        } while (0)

static int setup(void **state) {
        static struct fixture fixture;

        fake_reset();
        fixture_open(&fixture, PLANE_SHARED);
        *state = &fixture;
        return 0;
}

static int teardown(void **state) {
        fixture_close(*state);
        return 0;
}

/* What a worker does when it has posted a burst. */
static void post(const struct fixture *f, uint32_t number, uint32_t kib) {
        uint64_t *cell = (uint64_t *)(uintptr_t)&f->plane->tables.report->burst[number % TABLE_BURSTS];

        __atomic_store_n(cell, (uint64_t)number << 32 | kib, __ATOMIC_RELEASE);
}

static uint32_t launched(void) {
        return atomic_load(&fake.bursts.n);
}

static void kernels_know_where_to_post(void **state) {
        const struct fixture *f = *state;
        struct plane_info info;

        assert_int_equal(f->table->bursts, (uintptr_t)f->plane->burst.queue);
        assert_int_not_equal(f->table->bursts, 0);
        f->ops->info(f->plane, &info);
        assert_int_equal(info.bursts, info.reaches);
}

/* Each once, in order, also round the ring of numbers; larger requests have more blocks. */
static void each_is_launched(void **state) {
        static const struct {
                uint32_t kib, slices;
        } sizes[] = {{0, 1}, {1023, 1}, {1024, 2}, {8191, 2}, {8192, 4}, {1u << 22, 4}};
        const struct fixture *f = *state;

        assert_int_equal(launched(), 0);
        for (uint32_t i = 0; i < 2 * TABLE_BURSTS + 3; i++) {
                post(f, i + 1, sizes[i % 6].kib);
                wait_until(launched() == i + 1);
                assert_int_equal(fake.bursts.launch[i].number, i + 1);
                assert_int_equal(fake.bursts.launch[i].n_blocks, FAKE_BURST_BLOCKS * sizes[i % 6].slices);
        }
        /* Several at once: they may run side by side. */
        for (uint32_t i = launched(), end = i + TABLE_BURSTS - 1; i < end; i++)
                post(f, i + 1, 4);
        wait_until(launched() == 3 * TABLE_BURSTS + 2);
        for (uint32_t i = 1; i < launched(); i++) {
                assert_int_equal(fake.bursts.launch[i].number, i + 1);
                assert_ptr_not_equal(fake.bursts.launch[i].stream, fake.bursts.launch[i - 1].stream);
        }
        assert_int_equal(atomic_load(&f->plane->burst.launched), launched());
}

/* What comes too early is not launched: the one before it is missing. */
static void none_is_skipped(void **state) {
        const struct fixture *f = *state;

        post(f, 2, 4);
        post(f, 1, 4);
        wait_until(launched() == 2);
        assert_int_equal(fake.bursts.launch[0].number, 1);
        assert_int_equal(fake.bursts.launch[1].number, 2);
}

/* Places are used again, where what was posted has been taken back, before this thread has looked. */
static void places_used_again_are_passed_over(void **state) {
        const struct fixture *f = *state;

        for (uint32_t i = 0; i < 5; i++) /* the others are there already, and later ones in the first places */
                post(f, TABLE_BURSTS + 1 + i, 4);
        for (uint32_t i = 5; i < TABLE_BURSTS; i++)
                post(f, 1 + i, 4);
        wait_until(launched() == TABLE_BURSTS);
        for (uint32_t i = 0; i < TABLE_BURSTS; i++)
                assert_int_equal(fake.bursts.launch[i].number, 6 + i);
        post(f, TABLE_BURSTS + 6, 4);
        wait_until(launched() == TABLE_BURSTS + 1);
        assert_int_equal(fake.bursts.launch[TABLE_BURSTS].number, TABLE_BURSTS + 6);
}

static void parking_changes_nothing(void **state) {
        struct fixture *f = *state;
        char error[PLANE_TEXT];

        assert_int_equal(park_stop(&f->plane->park, &f->plane->tables, PARK_AT_ONCE, 1000, error), 0);
        assert_int_equal(park_launch(&f->plane->park, &f->plane->tables, error), 0);
        assert_int_equal(f->table->bursts, (uintptr_t)f->plane->burst.queue);
        post(f, 1, 4);
        wait_until(launched() == 1);
}

static void a_failure_is_a_fault(void **state) {
        struct fixture *f = *state;
        int r = 0;

        atomic_store(&fake.bursts.refuse, true);
        post(f, 1, 4);
        while (!r)
                r = f->ops->tick(f->plane, f->error);
        assert_int_equal(r, -EIO);
        assert_non_null(strstr(f->error, "launching a burst"));
        assert_int_equal(launched(), 0);
        atomic_store(&fake.bursts.refuse, false);
}

/* For measurements. */
static void blocks_have_a_bound(void **state) {
        static struct fixture fixture;

        fake_reset();
        assert_int_equal(setenv("RAILMUX_GPU_BURST_BLOCKS", "40", 1), 0);
        fixture_open(&fixture, PLANE_SHARED);
        assert_int_equal(unsetenv("RAILMUX_GPU_BURST_BLOCKS"), 0);
        *state = &fixture;
        post(&fixture, 1, 1u << 20);
        wait_until(launched() == 1);
        assert_int_equal(fake.bursts.launch[0].n_blocks, 2 * FAKE_BURST_BLOCKS);
        fixture_close(&fixture);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(kernels_know_where_to_post, setup, teardown),
                cmocka_unit_test_setup_teardown(each_is_launched, setup, teardown),
                cmocka_unit_test_setup_teardown(none_is_skipped, setup, teardown),
                cmocka_unit_test_setup_teardown(places_used_again_are_passed_over, setup, teardown),
                cmocka_unit_test_setup_teardown(parking_changes_nothing, setup, teardown),
                cmocka_unit_test(blocks_have_a_bound),
                cmocka_unit_test_setup(a_failure_is_a_fault, setup),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
