/* SPDX-License-Identifier: MIT */
/* Communicators of more ranks than kernels have room for unless they are launched for that (gpu/hip/resident.h). */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu/hip/hip.h"
#include "net_world.h"
#include "util/clock.h"

#define MANY 40u

/* Rank 0 is here, all others are on the other node. */
struct many {
        struct plane_comm_member members[MANY];
        struct plane_comm comm;
        struct plane_net net;
};

static void many_init(struct many *many, const struct world *w, uint64_t id, uint32_t handle) {
        *many = (struct many){.comm = w->comm, .net = w->net};
        for (uint32_t r = 0; r < MANY; r++)
                many->members[r] = (struct plane_comm_member){.far = true, .node = 1};
        many->members[0] = w->members[0];
        many->members[0].handle = handle;
        many->members[0].staging = 0;
        many->net.area = area_new(MANY, 1, &many->net.bytes);
        many->comm.id = id;
        many->comm.n_ranks = MANY;
        many->comm.members = many->members;
        many->comm.net = &many->net;
}

static void many_deinit(struct many *many) {
        munmap(many->net.area, many->net.bytes);
}

static bool launched_wide(void) {
        return atomic_load(&fake.wide);
}

static void kernels_are_wide_while_there_is_one(void **state) {
        struct world *w = *state;
        const uint32_t launches = fake.launches;
        const struct table_rank *entry;
        struct plane_info before, info;
        struct many first, second;

        w->f.ops->info(w->f.plane, &before);
        assert_false(launched_wide());
        many_init(&first, w, 77, 30);
        many_init(&second, w, 78, 31);
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &first.comm, w->f.error), 0);
        assert_true(launched_wide());
        assert_true(atomic_load(&fake.running));
        w->f.ops->info(w->f.plane, &info);
        assert_int_equal(info.n_workers, before.n_workers);
        assert_int_equal(info.resident_blocks, 2 * before.resident_blocks);
        assert_int_equal(info.threads, before.threads / 2);
        entry = fixture_rank(&w->f, 5, 30);
        assert_int_equal(entry->n_ranks, MANY);
        assert_int_equal(entry->far, (UINT64_C(1) << MANY) - 2);
        /* A rank beyond the first 32 leaves. */
        w->f.ops->rank_leave(w->f.plane, 77, 37, 0);
        fake_clock_advance_ms(60000);
        fixture_tick_until(&w->f, entry->left);
        assert_int_equal(entry->left, UINT64_C(1) << 37);
        /* The next one finds them so. */
        atomic_store(&fake.launches, launches);
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &second.comm, w->f.error), 0);
        w->f.ops->comm_detach(w->f.plane, 77);
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), 0);
        assert_true(w->f.plane->park.wide);
        w->f.ops->comm_detach(w->f.plane, 78);
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), 0);
        assert_false(w->f.plane->park.wide);           /* but: */
        assert_int_equal(fake.launches, launches + 1); /* for wires; nobody is stopped only to be narrow again, */
        w->f.ops->info(w->f.plane, &info);
        assert_int_equal(info.resident_blocks, 2 * before.resident_blocks);
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &first.comm, w->f.error), 0); /*   nor to be wide */
        assert_int_equal(fake.launches, launches + 1);
        assert_true(launched_wide());
        w->f.ops->comm_detach(w->f.plane, 77);
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), 0);
        while (!w->f.ops->drain(w->f.plane))
                ;
        w->f.plane->draining = false;
        world_attach(w);
        assert_int_equal(adaptive_wake(w->f.plane, w->f.error), 0);
        assert_false(launched_wide());
        w->f.ops->comm_detach(w->f.plane, 77);
        many_deinit(&first);
        many_deinit(&second);
}

static uint64_t tick_of_the_clock;
static void put_the_clock_forward(void) {
        fake_clock_advance_ms(tick_of_the_clock);
}

/* The kernel does not end in time: the communicator is refused for now, and nobody sees its entry with a kernel that
 * has no room for it. */
static void a_kernel_that_does_not_end(void **state) {
        struct world *w = *state;
        const uint32_t launches = fake.launches;
        struct many many;

        many_init(&many, w, 77, 30);
        atomic_store(&fake.deaf_to_stop, true);
        tick_of_the_clock = 1;
        fake.at_look = put_the_clock_forward;
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &many.comm, w->f.error), -EBUSY);
        assert_non_null(strstr(w->f.error, "try again"));
        assert_null(fixture_rank(&w->f, 5, 30));
        fake.at_look = NULL;
        assert_false(launched_wide());
        atomic_store(&fake.deaf_to_stop, false);
        fixture_tick_until(&w->f, fake.launches == launches + 1);
        assert_true(launched_wide());
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &many.comm, w->f.error), 0);
        assert_non_null(fixture_rank(&w->f, 5, 30));
        w->f.ops->comm_detach(w->f.plane, 77);
        many_deinit(&many);
}

/* Whoever tries again meanwhile is not kept waiting, nor does he keep others so. */
static void tries_again_before_it_ends(void **state) {
        struct world *w = *state;
        struct many many;
        uint64_t before;

        many_init(&many, w, 77, 30);
        atomic_store(&fake.deaf_to_stop, true);
        tick_of_the_clock = 1;
        fake.at_look = put_the_clock_forward;
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &many.comm, w->f.error), -EBUSY);
        before = clock_now_ns();
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(w->f.ops->comm_attach(w->f.plane, &many.comm, w->f.error), -EBUSY);
        assert_in_range(clock_now_ns() - before, 0, UINT64_C(100000000));
        fake.at_look = NULL;
        atomic_store(&fake.deaf_to_stop, false);
        fixture_tick_until(&w->f, w->f.plane->park.running && w->f.plane->park.asked == PARK_RUN);
        /* It has been given up. */
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), 0);
        assert_false(w->f.plane->park.wide);
        many_deinit(&many);
}

/* Twice the blocks have to have room, or some of them would never begin. */
static void more_blocks_than_processors(void **state) {
        struct world *w = *state;
        const uint32_t launches = fake.launches;
        struct plane_info info;
        struct many many;

        many_init(&many, w, 77, 30);
        w->f.ops->info(w->f.plane, &info);
        w->f.plane->gpu.processors = 2 * info.resident_blocks - 1;
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &many.comm, w->f.error), -ENOTSUP);
        assert_non_null(strstr(w->f.error, "gpu.blocks"));
        assert_null(w->f.plane->comms);
        assert_int_equal(fake.launches, launches);
        w->f.plane->gpu.processors++;
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &many.comm, w->f.error), 0);
        w->f.ops->comm_detach(w->f.plane, 77);
        many_deinit(&many);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(kernels_are_wide_while_there_is_one, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(a_kernel_that_does_not_end, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(tries_again_before_it_ends, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(more_blocks_than_processors, world_setup, world_teardown),
        };

        fixture_pool_bytes = UINT64_C(128) << 20; /* for the staging of so many */
        return cmocka_run_group_tests(tests, NULL, NULL);
}
