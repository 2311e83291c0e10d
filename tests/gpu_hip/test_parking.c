/* SPDX-License-Identifier: MIT */
/* When the kernel goes and comes: silence, clients that ring at the wrong moment, and the planned end. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "gpu/device/pairs.h"
#include "gpu/hip/hip.h"
#include "railmux/railmux.h"
#include "ring/line.h"

static struct client client;

static void open_with(struct fixture *f, uint32_t policy) {
        fake_reset();
        fixture_open(f, policy);
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
        assert_int_equal(info.parked, !info.resident_blocks);
        assert_int_equal(info.parked, client_header(&client)->parked);
        return info.parked;
}

static void the_length_of_a_silence(void **state) {
        struct adaptive a = {0};

        (void)state;
        assert_int_equal(adaptive_silence(&a, 1000, 7, false), 0);
        assert_int_equal(adaptive_silence(&a, 1500, 7, false), 500);
        a.looked = true;
        assert_int_equal(adaptive_silence(&a, 1600, 8, false), 0);
        assert_false(a.looked);
        assert_int_equal(adaptive_silence(&a, 1700, 8, true), 0);
        assert_int_equal(adaptive_silence(&a, 1750, 8, false), 50);
}

static void silence_parks_and_a_wake_word_wakes(void **state) {
        struct fixture f;
        struct plane_info info;

        (void)state;
        open_with(&f, PLANE_ADAPTIVE);
        fixture_silence(&f, 150);
        assert_false(parked(&f));
        fixture_silence(&f, 300);
        assert_true(parked(&f));
        fixture_silence(&f, 1000);
        assert_true(parked(&f));
        for (uint32_t i = 0; i < 3; i++) {
                client_ring(&client, i + 1);
                __atomic_store_n(&client.host.wake, i + 1, __ATOMIC_RELAXED);
                fixture_tick(&f);
                assert_false(parked(&f));
                fixture_silence(&f, 300);
                assert_true(parked(&f));
        }
        f.ops->info(f.plane, &info);
        assert_int_equal(info.parks, 4);
        assert_int_equal(info.wakes, 3);
        assert_int_equal(fake.launches, 4);
        close_with(&f);
}

/* What a bell kernel writes that saw `parked` a little late. */
static void wake_words_from_before_do_not_wake(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f, PLANE_ADAPTIVE);
        fixture_silence(&f, 100);
        __atomic_store_n(&client.host.wake, 3, __ATOMIC_RELAXED);
        fixture_silence(&f, 400);
        assert_true(parked(&f));
        assert_int_equal(fake.launches, 1);
        close_with(&f);
}

static void other_policies_stay(void **state) {
        struct fixture f;

        (void)state;
        for (uint32_t policy = PLANE_SHARED; policy <= PLANE_LATENCY; policy++) {
                open_with(&f, policy);
                fixture_silence(&f, 1000);
                assert_false(parked(&f));
                assert_int_equal(fake.launches, 1);
                close_with(&f);
        }
}

static void counters_that_move_keep_the_kernel(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f, PLANE_ADAPTIVE);
        for (uint32_t i = 1; i < 20; i++) { /* no rank begins anything, but the counter moves */
                fixture_silence(&f, 170);
                client_ring(&client, i);
                fixture_silence(&f, 40);
                assert_false(parked(&f));
        }
        close_with(&f);
}

/* Rings between the last look at the counters and the kernel's end. */
static void ring_unseen(void) {
        if (client_header(&client)->counter == 0)
                client_ring(&client, 1);
}

static void a_bell_in_the_last_moment_is_seen(void **state) {
        struct fixture f;
        struct plane_info info;

        (void)state;
        open_with(&f, PLANE_ADAPTIVE);
        atomic_store(&fake.at_stop, ring_unseen);
        fixture_silence(&f, 230);
        assert_int_equal(client_header(&client)->counter, 1);
        f.ops->info(f.plane, &info);
        assert_int_equal(info.parks, 1);
        assert_false(parked(&f)); /* it did, and was back at once */
        assert_int_equal(fake.launches, 2);
        close_with(&f);
}

static void tasks_in_hand_bring_the_kernel_back(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f, PLANE_ADAPTIVE);
        atomic_store(&fake.kept, 3);
        fixture_silence(&f, 230);
        assert_false(parked(&f));
        assert_int_equal(fake.launches, 2);
        atomic_store(&fake.kept, 0);
        fixture_silence(&f, 300);
        assert_true(parked(&f));
        close_with(&f);
}

/* A receive, or a collective of which another rank has left: the kernel has a task in hand, and would be back. */
static void who_waits_keeps_the_kernel(void **state) {
        struct plane_comm_member members[2] = {{.session = 5, .handle = 30, .gpu = 2, .here = true},
                                               {.session = 7, .handle = 30, .gpu = 5}};
        const struct plane_comm comm = {.id = 77, .n_ranks = 2, .epoch = 1, .failed_rank = -1, .members = members};
        struct plane_memory memory;
        struct plane_info info;
        struct table_pair *pair;
        unsigned char *other;
        struct fixture f;
        uint32_t index;

        (void)state;
        open_with(&f, PLANE_ADAPTIVE);
        other = fake_client_alloc(FIXTURE_POOL, &memory);
        f.ops->info(f.plane, &info);
        assert_int_equal(f.ops->peer_add(f.plane, 2, 1, &info.pool, f.error), 0);
        assert_int_equal(f.ops->peer_add(f.plane, 5, 1, &memory, f.error), 0);
        assert_int_equal(f.ops->comm_attach(f.plane, &comm, f.error), 0);
        index = (uint32_t)(fixture_rank(&f, 5, 30) - f.table->ranks);
        pair = (struct table_pair *)(uintptr_t)&table_pairs(f.plane->tables.report)->pair[index][0][1];
        __atomic_store_n(&pair->rung, 1, __ATOMIC_RELAXED);
        fixture_silence(&f, 1000);
        assert_false(parked(&f));
        assert_int_equal(fake.launches, 1);
        __atomic_store_n(&pair->finished, 1, __ATOMIC_RELAXED);
        fixture_silence(&f, 500);
        assert_true(parked(&f));

        f.ops->rank_leave(f.plane, 77, 1, 8);
        __atomic_store_n(&f.plane->tables.report->rank[index].rung, 8, __ATOMIC_RELAXED);
        __atomic_store_n(&client.host.wake, 1, __ATOMIC_RELAXED);
        fixture_tick(&f);
        fixture_silence(&f, 1000);
        assert_false(parked(&f));
        __atomic_store_n(&f.plane->tables.report->rank[index].rung, 9,
                         __ATOMIC_RELAXED); /* behind the last: answered */
        fixture_silence(&f, 500);
        assert_true(parked(&f));
        __atomic_store_n(&client.host.wake, 2, __ATOMIC_RELAXED);
        fixture_tick(&f);
        __atomic_store_n(&pair->rung, 2, __ATOMIC_RELAXED);
        f.ops->comm_abort(f.plane, 77, ring_status(RMX_E_PEER_LOST, 1)); /* nobody waits any more */
        fixture_silence(&f, 500);
        assert_true(parked(&f));
        f.ops->info(f.plane, &info);
        assert_int_equal(info.parks, 3);
        close_with(&f);
        fake_client_free(other);
}

static void newcomers_wake(void **state) {
        struct fixture f;
        struct client other;

        (void)state;
        open_with(&f, PLANE_ADAPTIVE);
        fixture_silence(&f, 300);
        assert_true(parked(&f));
        client_init(&other, 6);
        assert_int_equal(client_attach(&f, &other), 0);
        assert_false(parked(&f));
        assert_int_equal(client_header(&other)->parked, 0);
        fixture_silence(&f, 300);
        assert_true(parked(&f));
        assert_int_equal(client_header(&other)->parked, 1);
        __atomic_store_n(&other.host.wake, 9, __ATOMIC_RELAXED);
        fixture_tick(&f);
        assert_false(parked(&f));
        f.ops->ring_detach(f.plane, 6);
        fixture_silence(&f, 300);
        assert_true(parked(&f));
        close_with(&f);
        client_deinit(&other);
}

static void a_parked_plane_closes_at_once(void **state) {
        struct fixture f;
        struct plane_memory memory;
        void *base = fake_client_alloc(8192, &memory);

        (void)state;
        open_with(&f, PLANE_ADAPTIVE);
        assert_int_equal(f.ops->buffer_import(f.plane, 5, 1, &memory, f.error), 0);
        fixture_silence(&f, 300);
        assert_true(parked(&f));
        f.ops->buffer_retire(f.plane, 5, 1);
        assert_null(fixture_buffer(&f, 5, 1));
        fixture_tick(&f);
        if (fixture_queues()) /* what is queued has begun, for the change in the tables */
                fixture_silence(&f, 300);
        assert_int_equal(fake.closes, 1);
        assert_true(f.plane->parked);
        close_with(&f);
        fake_client_free(base);
}

/* Without the kernel being there for a moment. */
static void a_parked_plane_frees_a_place_at_once(void **state) {
        struct fixture f;
        struct plane_memory memory;
        void *base = fake_client_alloc(8192, &memory);

        (void)state;
        open_with(&f, PLANE_ADAPTIVE);
        assert_int_equal(f.ops->buffer_import(f.plane, 5, 1, &memory, f.error), 0);
        fixture_silence(&f, 300);
        assert_true(parked(&f));
        f.ops->buffer_retire(f.plane, 5, 1);
        fake_client_replace(base, 4096, &memory);
        assert_int_equal(f.ops->buffer_import(f.plane, 5, 2, &memory, f.error), 0);
        assert_int_equal(fake.collisions, 1);
        assert_int_equal(fake.closes, 1);
        /* What was queued has begun, has ended for the window, and begins again. */
        fixture_tick_until(&f, fake.launches == (fixture_queues() ? 3 : 1));
        fixture_silence(&f, 300);
        assert_true(parked(&f));
        close_with(&f);
        fake_client_free(base);
}

static void draining(void **state) {
        struct fixture f;

        (void)state;
        for (uint32_t policy = PLANE_ADAPTIVE; policy <= PLANE_LATENCY; policy++) {
                open_with(&f, policy);
                atomic_store(&fake.kept, 2); /* two requests still wait for other ranks */
                while (fake.launches < 5) {  /* they get round after round */
                        assert_false(f.ops->drain(f.plane));
                        fixture_tick(&f);
                }
                atomic_store(&fake.kept, 0);
                while (!f.ops->drain(f.plane))
                        fixture_tick(&f);
                assert_true(parked(&f));
                assert_true(f.ops->drain(f.plane));
                __atomic_store_n(&client.host.wake, 9, __ATOMIC_RELAXED);
                fixture_silence(&f, 100);
                assert_true(parked(&f)); /* for the successor */
                close_with(&f);
        }
}

static void draining_a_parked_plane(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f, PLANE_ADAPTIVE);
        fixture_silence(&f, 300);
        while (!f.ops->drain(f.plane)) /* what is queued */
                assert_true(fixture_queues());
        __atomic_store_n(&client.host.wake, 9, __ATOMIC_RELAXED);
        fixture_tick(&f);
        assert_true(parked(&f));
        close_with(&f);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */
static void open_parked(struct fixture *f) {
        open_with(f, PLANE_ADAPTIVE);
        fixture_silence(f, 400);
        assert_true(parked(f));
}

/* What the runtime still holds is left to the process's end. */
static void close_broken(struct fixture *f) {
        fake.lost = false; /* it does not come back */
        assert_int_equal(f->ops->tick(f->plane, f->error), -EIO);
        f->ops->close(f->plane);
        assert_int_equal(fake.closes, 0);
        atomic_store(&fake.dies, true);
        fake_reap();
}

/* Nobody has to do with the context meanwhile, so it is asked now and then. */
static void a_context_lost_while_parked_is_a_fault(void **state) {
        struct fixture f;

        (void)state;
        open_parked(&f);
        fake_clock_advance_ms(1000);
        fixture_tick(&f);
        fake.lost = true;
        fake_clock_advance_ms(1000);
        assert_int_equal(f.ops->tick(f.plane, f.error), -EIO);
        assert_non_null(strstr(f.error, "illegal"));
        close_broken(&f);
}

/* What fails may be what a client has named, or all. */
static void a_call_finds_a_lost_context(void **state) {
        struct plane_memory memory, lie;
        struct fixture f;
        void *base = fake_client_alloc(8192, &memory);

        (void)state;
        open_parked(&f);
        lie = memory;
        lie.handle[0] ^= 1;
        assert_int_equal(f.ops->peer_add(f.plane, 5, 1, &lie, f.error), -EINVAL);
        fixture_tick(&f);
        fake.lost = true;
        assert_int_equal(f.ops->peer_add(f.plane, 5, 1, &memory, f.error), -EIO);
        close_broken(&f);
        fake_client_free(base);
}

static uint32_t n_looks;

static void end_after_ten_seconds(void) {
        fake_clock_advance_ms(30);
        if (++n_looks == 333)
                atomic_store(&fake.deaf_to_stop, false);
}

/* GPUs stand still for so long, and to go with a kernel that runs may end others' contexts. */
static void a_kernel_that_ends_late(void **state) {
        struct fixture f;

        (void)state;
        n_looks = 0;
        open_with(&f, PLANE_SHARED);
        fixture_tick(&f);
        atomic_store(&fake.deaf_to_stop, true);
        fake.at_look = end_after_ten_seconds;
        close_with(&f);
}

/* Rings are the first to find out. */
static void a_context_lost_in_the_end(void **state) {
        struct plane_memory memory;
        struct fixture f;

        (void)state;
        open_parked(&f);
        (void)fake_client_alloc(8192, &memory);
        assert_int_equal(f.ops->buffer_import(f.plane, 5, 1, &memory, f.error), 0);
        assert_int_equal(f.ops->buffer_import(f.plane, 6, 1, &memory, f.error), 0);
        fixture_silence(&f, 400);
        fake.lost = true;
        f.ops->close(f.plane); /* touches nothing, and lets go of all */
        fake.lost = false;
        assert_int_equal(fake.closes, 0);
        atomic_store(&fake.dies, true);
        fake_reap();
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_length_of_a_silence),
                cmocka_unit_test(silence_parks_and_a_wake_word_wakes),
                cmocka_unit_test(wake_words_from_before_do_not_wake),
                cmocka_unit_test(other_policies_stay),
                cmocka_unit_test(counters_that_move_keep_the_kernel),
                cmocka_unit_test(a_bell_in_the_last_moment_is_seen),
                cmocka_unit_test(tasks_in_hand_bring_the_kernel_back),
                cmocka_unit_test(who_waits_keeps_the_kernel),
                cmocka_unit_test(newcomers_wake),
                cmocka_unit_test(a_parked_plane_closes_at_once),
                cmocka_unit_test(a_parked_plane_frees_a_place_at_once),
                cmocka_unit_test(draining),
                cmocka_unit_test(draining_a_parked_plane),
                cmocka_unit_test(a_context_lost_while_parked_is_a_fault),
                cmocka_unit_test(a_call_finds_a_lost_context),
                cmocka_unit_test(a_kernel_that_ends_late),
                cmocka_unit_test(a_context_lost_in_the_end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
