/* SPDX-License-Identifier: MIT */
/* Buffers of other GPUs' sessions: what the tables say of them, and that nobody else is disturbed for their sake. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "gpu/hip/hip.h"
#include "railmux/railmux.h"
#include "ring/line.h"

#define ALLOCATION (UINT64_C(3) << 20)
#define N          3u

static int setup(void **state) {
        static struct fixture f;

        fake_reset();
        fixture_open(&f, PLANE_SHARED);
        *state = &f;
        return 0;
}

static struct plane_memory piece(const struct plane_memory *whole, uint64_t offset, uint64_t bytes) {
        struct plane_memory memory = *whole;

        memory.offset = offset;
        memory.bytes = bytes;
        return memory;
}

/* What the kernel's search finds. */
static const struct table_reach *reached(const struct fixture *f, uint64_t session, uint32_t id) {
        for (uint32_t i = 0; i < TABLE_PROBES; i++) {
                const struct table_reach *e = &f->table->reach[(table_reach_hash(session, id) + i) % TABLE_REACH];

                if (e->key == SHADOW_KEY_VALID && e->session == session && e->id == id)
                        return e;
        }
        return NULL;
}

/* What the last version is said to have changed: ring << 32 | id, ~0 for more than can be said. */
static uint64_t changed(const struct fixture *f) {
        const struct table_change *change = &f->table->changes[f->table->version % TABLE_CHANGES];

        if (change->version != f->table->version || change->again != f->table->version)
                return UINT64_MAX;
        return change->ring == TABLE_RINGS ? UINT64_C(1) << 63 : (uint64_t)change->ring << 32 | change->id;
}
#define CHANGED_REACH (UINT64_C(1) << 63)

static void pieces_share_an_allocation(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole, a, b;
        unsigned char *base = fake_client_alloc(ALLOCATION, &whole);
        const uint32_t version = f->table->version;

        a = piece(&whole, 512, 4096);
        b = piece(&whole, 1 << 20, 2 << 20);
        assert_int_equal(f->ops->reach_import(f->plane, 1, 10, &a, f->error), 0);
        assert_int_equal(f->ops->reach_import(f->plane, 1, 11, &b, f->error), 0);
        assert_int_equal(f->ops->reach_import(f->plane, UINT64_C(1) << 40, 10, &b, f->error), 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 7, 10, &b, f->error), 0); /* passed on to a session here */
        assert_int_equal(fake.opens, 1);
        assert_int_equal(f->table->version, version); /* new names need none */
        assert_int_equal(reached(f, 1, 10)->address, (uint64_t)(uintptr_t)base + 512);
        assert_int_equal(reached(f, 1, 10)->bytes, 4096);
        assert_int_equal(reached(f, 1, 11)->address, (uint64_t)(uintptr_t)base + (1 << 20));
        assert_int_equal(reached(f, UINT64_C(1) << 40, 10)->bytes, 2 << 20);
        assert_int_equal(f->ops->reach_import(f->plane, 1, 10, &b, f->error), -EEXIST);
        assert_int_equal(reached(f, 1, 10)->bytes, 4096);

        f->ops->reach_retire(f->plane, 1, 10);
        assert_null(reached(f, 1, 10));
        assert_non_null(reached(f, UINT64_C(1) << 40, 10));
        assert_int_equal(f->table->version, version + 1);
        assert_int_equal(atomic_load(&fake.version), version + 1); /* all workers have seen it */
        assert_int_equal(changed(f), CHANGED_REACH);
        f->ops->reach_retire(f->plane, 1, 10); /* unknown by now: nothing */
        f->ops->reach_retire(f->plane, 3, 0);
        assert_int_equal(f->table->version, version + 1);
        f->ops->reach_retire(f->plane, 1, 11);
        f->ops->reach_retire(f->plane, UINT64_C(1) << 40, 10);
        fake_clock_advance_ms(10000);
        for (uint32_t i = 0; i < 10; i++)
                assert_int_equal(f->ops->tick(f->plane, f->error), 0);
        assert_int_equal(fake.n_open, 1); /* session 7 has it */
        f->ops->buffer_retire(f->plane, 7, 10);
        assert_int_equal(fake.closes, 0); /* not while the kernel runs */
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 0);
        fixture_close(f);
        fake_client_free(base);
}

static void a_session_goes_with_one_version(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole;
        void *base = fake_client_alloc(ALLOCATION, &whole);
        uint32_t version;

        for (uint32_t id = 1; id <= 100; id++) {
                assert_int_equal(f->ops->reach_import(f->plane, 5, id, &whole, f->error), 0);
                assert_int_equal(f->ops->reach_import(f->plane, 6, id, &whole, f->error), 0);
        }
        version = f->table->version;
        f->ops->reach_retire(f->plane, 5, 0);
        assert_int_equal(f->table->version, version + 1);
        assert_int_equal(changed(f), CHANGED_REACH);
        for (uint32_t id = 1; id <= 100; id++) {
                assert_null(reached(f, 5, id));
                assert_non_null(reached(f, 6, id));
        }
        assert_int_equal(f->plane->n_reached, 100);
        fixture_close(f); /* ... and gives the rest back */
        fake_client_free(base);
}

static void nothing_is_opened_without_a_place(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole, other;
        void *base = fake_client_alloc(ALLOCATION, &whole), *others = fake_client_alloc(ALLOCATION, &other);
        const uint32_t start = table_reach_hash(9, 1) % TABLE_REACH;
        uint32_t n = 0, last = 0;

        for (uint32_t id = 1; n < TABLE_PROBES + 1; id++) {
                if (table_reach_hash(9, id) % TABLE_REACH != start)
                        continue;
                last = id;
                if (++n <= TABLE_PROBES)
                        assert_int_equal(f->ops->reach_import(f->plane, 9, id, &whole, f->error), 0);
        }
        f->error[0] = 0;
        assert_int_equal(f->ops->reach_import(f->plane, 9, last, &other, f->error), -ENOSPC);
        assert_non_null(strstr(f->error, "no room"));
        assert_null(reached(f, 9, last));
        assert_int_equal(fake.opens, 1);
        assert_int_equal(f->plane->n_reached, TABLE_PROBES);
        f->ops->reach_retire(f->plane, 9, 1);
        assert_int_equal(f->ops->reach_import(f->plane, 9, last, &other, f->error), 0);
        assert_int_equal(fake.opens, 2);
        fixture_close(f);
        fake_client_free(base);
        fake_client_free(others);
}

static void lies_are_refused(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole, lie;
        void *base = fake_client_alloc(ALLOCATION, &whole);

        lie = piece(&whole, 0, ALLOCATION + 1);
        assert_int_equal(f->ops->reach_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie = piece(&whole, UINT64_MAX - 7, 16);
        assert_int_equal(f->ops->reach_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie = whole;
        lie.handle[0] ^= 1;
        assert_int_equal(f->ops->reach_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie.kind = PLANE_MEMORY_NONE;
        assert_int_equal(f->ops->reach_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        assert_int_equal(f->ops->reach_import(f->plane, 1, 0, &whole, f->error), -EINVAL);
        assert_int_equal(f->ops->reach_import(f->plane, 0, 1, &whole, f->error), -EINVAL);
        assert_int_equal(f->plane->n_reached, 0);
        assert_int_equal(f->ops->tick(f->plane, f->error), 0);
        fixture_close(f);
        fake_client_free(base);
}

/* Memory that came to lie where other memory is mapped has time, unlike a session's own. */
static void no_window_is_made_for_it(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory;
        void *base = fake_client_alloc(ALLOCATION, &memory);

        assert_int_equal(f->ops->reach_import(f->plane, 1, 10, &memory, f->error), 0);
        f->ops->reach_retire(f->plane, 1, 10);
        fake_client_replace(base, 4096, &memory);
        assert_int_equal(f->ops->reach_import(f->plane, 1, 11, &memory, f->error), -EBUSY);
        assert_int_equal(fake.launches, 1);
        assert_int_equal(fake.closes, 0);
        assert_null(reached(f, 1, 11));
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 0);
        assert_int_equal(f->ops->reach_import(f->plane, 1, 11, &memory, f->error), 0);
        assert_int_equal(reached(f, 1, 11)->bytes, 4096);
        fixture_close(f);
        fake_client_free(base);
}

static void who_reaches_a_buffer_is_told(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole;
        void *base = fake_client_alloc(ALLOCATION, &whole);
        const struct table_buffer *buffer;
        uint32_t version;

        assert_int_equal(f->ops->buffer_reach(f->plane, 1, 10, 6, f->error), -ENOENT);
        assert_int_equal(f->ops->buffer_reach(f->plane, 0, 10, 6, f->error), -ENOENT);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 9, &whole, f->error), 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 2, 10, &whole, f->error), 0);
        assert_int_equal(f->ops->buffer_reach(f->plane, 1, 10, 6, f->error), -ENOENT);
        buffer = fixture_buffer(f, 2, 10);
        assert_int_equal(buffer->gpus, 0);
        version = f->table->version;
        assert_int_equal(f->ops->buffer_reach(f->plane, 2, 10, 0, f->error), 0);
        assert_int_equal(f->table->version, version); /* as it was */
        assert_int_equal(f->ops->buffer_reach(f->plane, 2, 10, UINT64_C(5) << 61 | 2, f->error), 0);
        assert_int_equal(buffer->gpus, UINT64_C(5) << 61 | 2);
        assert_int_equal(f->table->version, version + 1);
        assert_int_equal(atomic_load(&fake.version), version + 1);
        assert_int_equal(changed(f), (uint64_t)buffer->ring << 32 | 10);
        assert_int_equal(f->ops->buffer_reach(f->plane, 2, 10, 0, f->error), 0);
        assert_int_equal(buffer->gpus, 0);
        assert_int_equal(f->table->version, version + 2);
        assert_int_equal(fixture_buffer(f, 1, 9)->gpus, 0);
        assert_int_equal(f->ops->buffer_reach(f->plane, 2, 10, 2, f->error), 0);
        f->ops->buffer_retire(f->plane, 2, 10);
        assert_int_equal(f->ops->buffer_import(f->plane, 2, 10, &whole, f->error), 0);
        assert_int_equal(fixture_buffer(f, 2, 10)->gpus, 0); /* another buffer of that number */
        fixture_close(f);
        fake_client_free(base);
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */
static const struct plan_choice choices[] = {{RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, UINT64_MAX, 0}};

/* A worker that stands where it is told to, with nothing in hand. */
static uint64_t at_level(uint32_t worker, uint32_t ring, uint32_t limit) {
        (void)worker;
        (void)ring;
        return limit;
}

static void ranks_know_whom_they_reach(void **state) {
        struct fixture *f = *state;
        struct plane_comm_member members[N] = {{.session = 8, .handle = 1, .gpu = 5},
                                               {.session = 5, .handle = 30, .gpu = 2, .here = true},
                                               {.session = 9, .handle = 2, .gpu = 63}};
        struct plane_comm comm = {.id = 77,
                                  .n_ranks = N,
                                  .epoch = 1,
                                  .failed_rank = -1,
                                  .members = members,
                                  .choices = choices,
                                  .n_choices = 1,
                                  .reach_bytes = UINT64_C(5) << 32,
                                  .burst_bytes = UINT64_C(6) << 32};
        const struct table_rank *rank;
        struct plane_memory pools[2];
        struct plane_info info;
        struct client client;
        void *base[2];

        atomic_store(&fake.at_level, at_level);
        f->ops->info(f->plane, &info);
        client_init(&client, 5);
        for (uint32_t i = 0; i < 2; i++) {
                base[i] = fake_client_alloc(FIXTURE_POOL, &pools[i]);
                assert_int_equal(f->ops->peer_add(f->plane, members[2 * i].gpu, 1, &pools[i], f->error), 0);
        }
        assert_int_equal(f->ops->peer_add(f->plane, 2, 1, &info.pool, f->error), 0);
        assert_int_equal(client_attach(f, &client), 0);
        for (uint32_t use = 0; use < 5; use++) {
                const struct plane_comm_member second = members[2];
                const bool reaches = use == 0 || use == 4;

                comm.reach_bytes = use == 1 ? 0 : UINT64_C(5) << 32;
                comm.code = use == 2 ? RMX_E_PEER_LOST : 0;
                if (use == 3) { /* two ranks on one GPU */
                        members[2].gpu = 5;
                        members[2].staging = FIXTURE_POOL / 2;
                }
                assert_int_equal(f->ops->comm_attach(f->plane, &comm, f->error), 0);
                members[2] = second;
                rank = fixture_rank(f, 5, 30);
                assert_int_equal(rank->reach_bytes, reaches ? UINT64_C(5) << 32 : 0);
                assert_int_equal(rank->burst_bytes, reaches ? UINT64_C(6) << 32 : 0);
                assert_int_equal(rank->gpus, reaches ? UINT64_C(1) << 63 | 1 << 5 : 0);
                assert_int_equal(rank->session[0], reaches ? 8 : 0);
                assert_int_equal(rank->session[1], reaches ? 5 : 0);
                assert_int_equal(rank->session[2], reaches ? 9 : 0);
                assert_int_equal(rank->session[3], 0);
                if (use < 4)
                        f->ops->comm_detach(f->plane, 77);
        }
        /* One that reached begins anew, with an executor that does not. */
        assert_int_equal(f->ops->comm_hold(f->plane, 77, false, 0, f->error), 0);
        fixture_tick_until(f, f->plane->rings[rank->ring].settled);
        comm.reach_bytes = 0;
        comm.first = 1;
        assert_int_equal(f->ops->comm_move(f->plane, &comm, f->error), 0);
        assert_int_equal(rank->reach_bytes, 0);
        assert_int_equal(rank->gpus, 0);
        assert_int_equal(rank->session[0], 0);
        f->ops->comm_release(f->plane, 77);
        /* Nobody has to wait for others' stopping now; if there was somebody, for railmuxd's word. */
        f->ops->comm_abort(f->plane, 77, ring_status(RMX_E_ABORTED, -1));
        assert_int_equal(rank->freeze, 0);
        f->ops->comm_detach(f->plane, 77);
        comm.reach_bytes = 1 << 20;
        for (uint32_t use = 0; use < 2; use++) {
                assert_int_equal(f->ops->comm_attach(f->plane, &comm, f->error), 0);
                rank = fixture_rank(f, 5, 30);
                assert_int_equal(rank->freeze, 0);
                f->ops->comm_abort(f->plane, 77, ring_status(RMX_E_ABORTED, -1));
                assert_int_equal(rank->freeze, 1);
                assert_int_equal(rank->abort, ring_status(RMX_E_ABORTED, -1));
                if (use == 0) {
                        const uint32_t version = f->table->version;

                        f->ops->comm_thaw(f->plane, 78); /* unknown */
                        assert_int_equal(rank->freeze, 1);
                        f->ops->comm_thaw(f->plane, 77);
                        assert_int_equal(f->table->version, version + 1);
                        assert_int_equal(atomic_load(&fake.version), version + 1);
                        assert_int_equal(rank->freeze, 0);
                        assert_int_equal(rank->abort, ring_status(RMX_E_ABORTED, -1));
                }
                f->ops->comm_detach(f->plane, 77);
                assert_int_equal(rank->freeze, 0); /* what waited has been answered */
        }
        fixture_close(f);
        client_deinit(&client);
        fake_client_free(base[0]);
        fake_client_free(base[1]);
}

/* This is the part for AMD: nobody has tried it there. */
static void it_is_for_who_wishes_it(void **state) {
        struct fixture *f = *state;
        struct plane_info info;

        f->ops->info(f->plane, &info);
        assert_false(info.reaches);
        setenv("RAILMUX_GPU_REACH", "1", 1);
        f->ops->info(f->plane, &info);
        assert_true(info.reaches);
        setenv("RAILMUX_GPU_REACH", "yes", 1);
        f->ops->info(f->plane, &info);
        assert_false(info.reaches);
        unsetenv("RAILMUX_GPU_REACH");
        fixture_close(f);
}

static void put_the_clock_forward(void) {
        fake_clock_advance_ms(100);
}

static void a_fault_ends_it(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole;

        (void)fake_client_alloc(ALLOCATION, &whole);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &whole, f->error), 0);
        assert_int_equal(f->ops->reach_import(f->plane, 2, 10, &whole, f->error), 0);
        assert_int_equal(f->ops->buffer_reach(f->plane, 1, 10, 4, f->error), 0); /* all workers have begun */
        atomic_store(&fake.deaf, true);
        fake.at_look = put_the_clock_forward;
        assert_true(f->ops->buffer_reach(f->plane, 1, 10, 2, f->error) < 0);
        assert_true(f->ops->tick(f->plane, f->error) < 0);
        assert_int_equal(f->ops->reach_import(f->plane, 2, 11, &whole, f->error), -EIO);
        f->ops->reach_retire(f->plane, 2, 10); /* may still be looked at */
        assert_int_equal(f->plane->n_reached, 1);
        fake.at_look = NULL;
        f->ops->close(f->plane); /* touches nothing */
        assert_int_equal(fake.closes, 0);
        atomic_store(&fake.dies, true);
        fake_reap();
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(pieces_share_an_allocation, setup),
                cmocka_unit_test_setup(a_session_goes_with_one_version, setup),
                cmocka_unit_test_setup(nothing_is_opened_without_a_place, setup),
                cmocka_unit_test_setup(lies_are_refused, setup),
                cmocka_unit_test_setup(no_window_is_made_for_it, setup),
                cmocka_unit_test_setup(who_reaches_a_buffer_is_told, setup),
                cmocka_unit_test_setup(ranks_know_whom_they_reach, setup),
                cmocka_unit_test_setup(it_is_for_who_wishes_it, setup),
                cmocka_unit_test_setup(a_fault_ends_it, setup),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
