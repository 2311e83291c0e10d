/* SPDX-License-Identifier: MIT */
/* Probe, open, communicators, faults. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "gpu/device/pairs.h"
#include "gpu/device/staging.h"
#include "gpu/hip/hip.h"
#include "railmux/railmux.h"
#include "ring/line.h"

#define POISON 0x5a
#define N      4u

static int setup(void **state) {
        static struct fixture f;

        fake_reset();
        fixture_open(&f, PLANE_SHARED);
        *state = &f;
        return 0;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */
static void what_there_is(void **state) {
        const struct plane_ops *ops = &railmux_gpu_plane;
        static struct plane_probe probe;
        char error[PLANE_TEXT] = "";

        (void)state;
        fake_reset();
        fake.n_devices = 3;
        assert_int_equal(ops->version, PLANE_VERSION);
        assert_int_equal(ops->probe(&probe, error), 0);
        assert_int_equal(probe.n_gpus, 3);
        assert_string_equal(probe.gpu[2].pci, "0000:1c:00.0");
        assert_int_equal(probe.gpu[2].processors, 102);
        assert_int_equal(strlen(probe.gpu[1].name), sizeof(probe.gpu[1].name) - 1);
        assert_string_equal(probe.runtime, "HIP 6.2");
        assert_string_equal(probe.problem, "");
        fake.n_devices = 1000;
        assert_int_equal(ops->probe(&probe, error), 0);
        assert_int_equal(probe.n_gpus, PLANE_GPUS_MAX);
        for (fake.n_devices = -1; fake.n_devices < 1; fake.n_devices++) {
                error[0] = 0;
                assert_int_equal(ops->probe(&probe, error), -ENODEV);
                assert_true(error[0]);
        }
        fake_assert_clean();
}

static void opening_that_fails_leaves_nothing(void **state) {
        const struct plane_ops *ops = &railmux_gpu_plane;
        struct plane_options options = {.device = 1};
        struct plane *plane = NULL;
        char error[PLANE_TEXT];

        (void)state;
        fake_reset();
        assert_int_equal(ops->open(&options, &plane, error), -ENODEV);
        options.device = 0;
        options.policy = 3;
        assert_int_equal(ops->open(&options, &plane, error), -EINVAL);
        options.policy = PLANE_SHARED;
        options.blocks = TABLE_WORKERS_MAX / FAKE_WORKERS + 1;
        assert_int_equal(ops->open(&options, &plane, error), -EINVAL);
        options.blocks = 1;
        fake.refuse_above = 1 << 16; /* not even the tables */
        assert_int_equal(ops->open(&options, &plane, error), -ENOMEM);
        fake.refuse_above = 4 << 20; /* not the lane states */
        assert_int_equal(ops->open(&options, &plane, error), -ENOMEM);
        fake.refuse_above = 80 << 20;
        options.pool_bytes = 81 << 20; /* as much as was asked for, or nothing */
        assert_int_equal(ops->open(&options, &plane, error), -ENOMEM);
        assert_null(plane);
        ops->close(NULL);
        fake_assert_clean();
}

static void staging_is_smaller_where_memory_is_short(void **state) {
        struct plane_options options = {.policy = PLANE_LATENCY, .blocks = 3};
        struct plane_info info;
        struct fixture f = {.ops = &railmux_gpu_plane};

        (void)state;
        fake_reset();
        fake.refuse_above = 80 << 20;
        assert_int_equal(f.ops->open(&options, &f.plane, f.error), 0); /* 128 MiB would be its share */
        f.ops->info(f.plane, &info);
        assert_int_equal(info.pool_bytes, 64 << 20);
        assert_int_equal(info.pool.bytes, 64 << 20);
        assert_int_equal(info.pool.kind, PLANE_MEMORY_IPC);
        assert_int_equal(info.resident_blocks, 3);
        assert_int_equal(info.n_workers, 3 * FAKE_WORKERS);
        assert_int_equal(info.policy, PLANE_LATENCY);
        assert_false(info.parked);
        for (uint64_t i = 0; i < info.pool_bytes; i += 4096 - 8)
                assert_int_equal(((unsigned char *)f.plane->pool.base)[i], 0);
        fixture_close(&f);
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */
static const struct plan_choice choices[] = {
        {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 32768, 0},
        {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, UINT64_MAX, 0},
};

struct world { /* this executor has GPU 2, another one GPU 5 */
        struct plane_comm_member members[N];
        struct plane_comm comm;
        struct plane_memory other;
        unsigned char *other_pool;
        struct client a, b;
};

/* Ranks 0 (session 5) and 3 (session 6) are here. */
static void world_init(struct fixture *f, struct world *w) {
        struct plane_info info;
        uint64_t bytes;
        struct staging_layout layout;

        staging_layout_init(&layout, N);
        bytes = layout.bytes;
        f->ops->info(f->plane, &info);
        w->other_pool = fake_client_alloc(FIXTURE_POOL, &w->other);
        client_init(&w->a, 5);
        client_init(&w->b, 6);
        w->members[0] =
                (struct plane_comm_member){.session = 5, .handle = 30, .gpu = 2, .staging = bytes, .here = true};
        w->members[1] = (struct plane_comm_member){.session = 7, .handle = 30, .gpu = 5, .staging = 0};
        w->members[2] = (struct plane_comm_member){.session = 8, .handle = 31, .gpu = 5, .staging = bytes};
        w->members[3] = (struct plane_comm_member){.session = 6, .handle = 30, .gpu = 2, .staging = 0, .here = true};
        w->comm = (struct plane_comm){.id = 77,
                                      .n_ranks = N,
                                      .epoch = 9,
                                      .failed_rank = -1,
                                      .members = w->members,
                                      .choices = choices,
                                      .n_choices = 2};
        assert_int_equal(f->ops->peer_add(f->plane, 2, 1, &info.pool, f->error), 0);
        assert_int_equal(f->ops->peer_add(f->plane, 5, 1, &w->other, f->error), 0);
        assert_int_equal(client_attach(f, &w->a), 0);
        assert_int_equal(client_attach(f, &w->b), 0);
}

static void world_deinit(struct fixture *f, struct world *w) {
        fixture_close(f);
        client_deinit(&w->a);
        client_deinit(&w->b);
        fake_client_free(w->other_pool);
}

static uint32_t n_ranks_in_tables(const struct fixture *f) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < TABLE_RANKS; i++)
                n += f->table->ranks[i].key != 0;
        for (uint32_t i = 0; i < TABLE_HANDLES; i++)
                n += f->table->handles[i].key == SHADOW_KEY_VALID;
        return n;
}

static void assert_zero(const unsigned char *from, size_t bytes) {
        for (size_t i = 0; i < bytes; i++)
                if (from[i])
                        fail_msg("byte %zu of %zu is not zero", i, bytes);
}

static void a_communicator_comes_and_goes(void **state) {
        struct fixture *f = *state;
        struct world w;
        struct staging_layout layout;
        unsigned char *pool = f->plane->pool.base;
        const struct table_rank *r0, *r3;
        static const uint32_t lanes[] = {0, 1, STAGING_DATA_LANES, STAGING_DATA_LANES + 1, UINT32_MAX};

        staging_layout_init(&layout, N);
        world_init(f, &w);
        for (uint32_t use = 0; use < 5; use++) {
                w.comm.lanes = lanes[use];
                memset(pool, POISON, FIXTURE_POOL);
                memset(f->plane->states.base, POISON, f->plane->states.bytes);
                assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), 0);
                assert_zero(pool, 2 * layout.bytes);
                assert_int_equal(pool[2 * layout.bytes], POISON); /* not ours to clear */
                r0 = fixture_rank(f, 5, 30);
                r3 = fixture_rank(f, 6, 30);
                assert_non_null(r0);
                assert_non_null(r3);
                assert_int_not_equal(r0->key, 0);
                assert_int_equal(r0->rank, 0);
                assert_int_equal(r3->rank, 3);
                assert_int_equal(r3->n_ranks, N);
                assert_int_equal(r3->epoch, 9);
                assert_int_equal(r3->abort, 0);
                assert_int_equal(r3->first, 1);
                assert_int_equal(r0->lanes, use < 3 ? lanes[use] : 0);
                assert_int_equal(r3->lanes, use < 3 ? lanes[use] : 0);
                assert_ptr_equal(&f->table->rings[r3->ring], fixture_ring(f, 6));
                assert_int_equal(r3->peer[0], (uint64_t)(uintptr_t)pool + layout.bytes);
                assert_int_equal(r3->peer[1], (uint64_t)(uintptr_t)w.other_pool);
                assert_int_equal(r3->peer[2], (uint64_t)(uintptr_t)w.other_pool + layout.bytes);
                assert_int_equal(r3->peer[3], (uint64_t)(uintptr_t)pool);
                assert_memory_equal(r0->peer, r3->peer, sizeof(r0->peer));
                assert_zero((const unsigned char *)(uintptr_t)r3->states, sizeof(struct lane_states));
                assert_int_not_equal(r0->states, r3->states);
                assert_int_equal(
                        f->table->plans[f->table->choices[r0->choices].choice[RING_OP_ALL_REDUCE][0].plan].n_ranks, N);
                assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), -EEXIST);
                f->ops->comm_detach(f->plane, 77);
                assert_int_equal(n_ranks_in_tables(f), 0);
                f->ops->comm_detach(f->plane, 77);
        }
        world_deinit(f, &w);
}

static void what_cannot_be_is_refused(void **state) {
        struct fixture *f = *state;
        struct world w;
        struct plane_comm_member good[N];
        struct plan_choice falling[] = {choices[1], choices[0]};

        world_init(f, &w);
        memcpy(good, w.members, sizeof(good));
#define REFUSED(code, change)                                                                                          \
        do {                                                                                                           \
                change;                                                                                                \
                f->error[0] = 0;                                                                                       \
                assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), code);                              \
                assert_true(f->error[0]);                                                                              \
                assert_int_equal(n_ranks_in_tables(f), 0);                                                             \
                assert_null(f->plane->comms);                                                                          \
                memcpy(w.members, good, sizeof(good));                                                                 \
        } while (0)
        REFUSED(-ENOENT, w.members[1].gpu = 6);
        REFUSED(-ENOENT, w.members[1].gpu = PLANE_GPUS_MAX);
        REFUSED(-EINVAL, w.members[1].staging = FIXTURE_POOL - 128);
        REFUSED(-EINVAL, w.members[1].staging = UINT64_MAX - 127);
        REFUSED(-EINVAL, w.members[1].staging = 4);
        REFUSED(-EINVAL, w.members[1].here = true);
        REFUSED(-EINVAL, w.members[0].here = w.members[3].here = false);
        REFUSED(-EEXIST, w.members[3].session = 5); /* twice the same handle */
        w.comm.choices = falling;
        REFUSED(-EINVAL, (void)0);
        w.comm.choices = choices;
        w.comm.n_ranks = STAGING_RANKS_MAX + 1;
        REFUSED(-ENOTSUP, (void)0);
        w.comm.n_ranks = 0;
        REFUSED(-ENOTSUP, (void)0);
        w.comm.n_ranks = N;
        for (uint32_t i = 0; i < TABLE_PLANS; i++)
                assert_int_equal(f->plane->choices.plans[i].references, 0);
        assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), 0);
        world_deinit(f, &w);
}

static void a_failed_communicator_answers_only(void **state) {
        struct fixture *f = *state;
        struct world w;

        world_init(f, &w);
        w.comm.code = RMX_E_PEER_LOST;
        w.comm.failed_rank = 1;
        w.members[1] = (struct plane_comm_member){.gpu = 6}; /* gone with its executor */
        assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), 0);
        assert_int_equal(fixture_rank(f, 5, 30)->abort, ring_status(RMX_E_PEER_LOST, 1));
        world_deinit(f, &w);
}

/* A new executor is told of those whose only rank here has left before, too: the ranks elsewhere go on. */
static void a_communicator_whose_ranks_here_have_left(void **state) {
        struct fixture *f = *state;
        struct plane_rank_report report;
        struct plane_level level;
        struct world w;

        world_init(f, &w);
        w.members[0].session = w.members[3].session = 0;
        w.comm.first = 12;
        assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), 0);
        assert_int_equal(n_ranks_in_tables(f), 0);
        f->ops->rank_leave(f->plane, 77, 0, 11);
        assert_int_equal(f->ops->report(f->plane, &report, 1), 0);
        assert_int_equal(f->ops->comm_hold(f->plane, 77, false, 0, f->error), 0);
        assert_int_equal(f->ops->comm_level(f->plane, 77, &level, 1), 0);
        w.comm.first = 15;
        assert_int_equal(f->ops->comm_move(f->plane, &w.comm, f->error), 0);
        f->ops->comm_release(f->plane, 77);
        fixture_tick(f);
        f->ops->comm_abort(f->plane, 77, ring_status(RMX_E_ABORTED, -1));
        f->ops->comm_detach(f->plane, 77);
        assert_null(f->plane->comms);
        for (uint32_t i = 0; i < TABLE_PLANS; i++)
                assert_int_equal(f->plane->choices.plans[i].references, 0);
        world_deinit(f, &w);
}

static void leaving_and_aborting(void **state) {
        struct fixture *f = *state;
        struct world w;
        const struct table_rank *r0, *r3;
        uint32_t version;

        world_init(f, &w);
        assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), 0);
        r0 = fixture_rank(f, 5, 30);
        r3 = fixture_rank(f, 6, 30);
        f->ops->rank_leave(f->plane, 77, 1, 40);
        assert_int_equal(r0->abort, ring_status(RMX_E_PEER_LOST, 1));
        assert_int_equal(r0->has_last, 1);
        assert_int_equal(r0->last, 40);
        assert_int_equal(r0->left, 1u << 1);
        f->ops->rank_leave(f->plane, 77, 2, 50); /* later: the first counts */
        assert_int_equal(r3->last, 40);
        assert_int_equal(r3->left, 1u << 1 | 1u << 2);
        f->ops->rank_leave(f->plane, 77, 2, 39); /* before it */
        assert_int_equal(r3->last, 39);
        assert_int_equal(r3->abort, ring_status(RMX_E_PEER_LOST, 2));
        version = f->table->version;
        f->ops->comm_abort(f->plane, 77, ring_status(RMX_E_ABORTED, -1));
        assert_int_equal(r0->abort, ring_status(RMX_E_ABORTED, -1));
        assert_int_equal(r0->has_last, 0);
        assert_int_not_equal(f->table->version, version);
        assert_int_equal(atomic_load(&fake.version), f->table->version);
        f->ops->rank_leave(f->plane, 77, 2, 10);
        assert_int_equal(r0->has_last, 0);
        f->ops->comm_abort(f->plane, 78, 5); /* unknown */
        f->ops->rank_leave(f->plane, 78, 0, 0);
        world_deinit(f, &w);
}

static void reports_name_the_ranks_here(void **state) {
        struct fixture *f = *state;
        struct plane_rank_report reports[8];
        struct table_report *from = f->plane->tables.report;
        struct world w;
        uint32_t i3;

        world_init(f, &w);
        assert_int_equal(f->ops->report(f->plane, reports, 8), 0);
        for (uint32_t i = 0; i < TABLE_RANKS; i++)
                from->rank[i].rung = from->rank[i].finished = from->rank[i].status = 0xdead; /* of earlier uses */
        assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), 0);
        i3 = (uint32_t)(fixture_rank(f, 6, 30) - f->table->ranks);
        from->rank[i3].rung = 12;
        from->rank[i3].finished = 11;
        from->rank[i3].operation = RING_OP_ALL_REDUCE;
        from->rank[i3].status = ring_status(RMX_E_MISMATCH, 2);
        assert_int_equal(f->ops->report(f->plane, reports, 8), 2);
        for (uint32_t i = 0; i < 2; i++) {
                bool third = reports[i].rank == 3;

                assert_true(third || reports[i].rank == 0);
                assert_int_equal(reports[i].comm, 77);
                assert_int_equal(reports[i].rung, third ? 12 : 0);
                assert_int_equal(reports[i].finished, third ? 11 : 0);
                assert_int_equal(reports[i].operation, third ? RING_OP_ALL_REDUCE : 0);
                assert_int_equal(reports[i].status, third ? ring_status(RMX_E_MISMATCH, 2) : 0);
        }
        assert_int_equal(f->ops->report(f->plane, reports, 1), 1);
        f->ops->comm_abort(f->plane, 77, ring_status(RMX_E_MISMATCH, 2));
        assert_int_equal(f->ops->report(f->plane, reports, 8), 2);
        assert_int_equal(reports[0].status | reports[1].status, 0); /* known */
        world_deinit(f, &w);
}

static void pairs_that_wait_are_reported(void **state) {
        struct fixture *f = *state;
        struct plane_pair_report reports[8];
        struct table_pairs *from = table_pairs(f->plane->tables.report);
        struct world w;
        uint32_t i3;

        world_init(f, &w);
        for (uint32_t i = 0; i < TABLE_RANKS; i++)
                for (uint32_t p = 0; p < STAGING_RANKS_MAX; p++)
                        from->pair[i][0][p].rung = from->pair[i][1][p].finished = 0xdead; /* of earlier uses */
        assert_int_equal(f->ops->pairs(f->plane, reports, 8), 0);
        assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), 0);
        assert_int_equal(f->ops->pairs(f->plane, reports, 8), 0);
        i3 = (uint32_t)(fixture_rank(f, 6, 30) - f->table->ranks);
        from->pair[i3][0][2] = (struct table_pair){.rung = 9, .finished = 7};
        from->pair[i3][1][2] = (struct table_pair){.rung = 4, .finished = 4};
        from->pair[i3][1][1] = (struct table_pair){.rung = 1, .finished = 0};
        from->pair[i3][1][N] = (struct table_pair){.rung = 5}; /* no rank of it */
        assert_int_equal(f->ops->pairs(f->plane, reports, 8), 2);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(reports[i].comm, 77);
                assert_int_equal(reports[i].rank, 3);
                assert_int_equal(reports[i].peer, reports[i].sends ? 1 : 2);
                assert_int_equal(reports[i].rung, reports[i].sends ? 1 : 9);
                assert_int_equal(reports[i].finished, reports[i].sends ? 0 : 7);
        }
        assert_int_not_equal(reports[0].sends, reports[1].sends);
        assert_int_equal(f->ops->pairs(f->plane, reports, 1), 1);
        f->ops->comm_detach(f->plane, 77);
        assert_int_equal(f->ops->pairs(f->plane, reports, 8), 0);
        assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), 0);
        assert_int_equal(f->ops->pairs(f->plane, reports, 8), 0);
        world_deinit(f, &w);
}

static void sessions_die_before_their_communicators(void **state) {
        struct fixture *f = *state;
        struct world w;

        world_init(f, &w);
        assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), 0);
        f->ops->comm_abort(f->plane, 77, ring_status(RMX_E_PEER_LOST, 0));
        f->ops->ring_detach(f->plane, 5);
        assert_null(fixture_rank(f, 5, 30));
        assert_non_null(fixture_rank(f, 6, 30));
        f->ops->comm_detach(f->plane, 77);
        assert_int_equal(n_ranks_in_tables(f), 0);
        world_deinit(f, &w);
}

static void a_new_instance_replaces_the_old_pool(void **state) {
        struct fixture *f = *state;
        struct plane_memory next;
        void *pool = fake_client_alloc(FIXTURE_POOL, &next);
        struct world w;

        world_init(f, &w);
        assert_int_equal(f->ops->peer_add(f->plane, 5, 1, &w.other, f->error), 0); /* again: nothing */
        assert_int_equal(fake.n_open, 3);
        assert_int_equal(f->ops->peer_add(f->plane, 5, 2, &next, f->error), 0);
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 3);
        assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), 0);
        assert_int_equal(fixture_rank(f, 5, 30)->peer[1], (uint64_t)(uintptr_t)pool);
        f->ops->comm_detach(f->plane, 77);
        f->ops->peer_remove(f->plane, 5);
        f->ops->peer_remove(f->plane, 5);
        f->ops->peer_remove(f->plane, PLANE_GPUS_MAX);
        assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), -ENOENT);
        assert_int_equal(f->ops->peer_add(f->plane, PLANE_GPUS_MAX, 1, &next, f->error), -EINVAL);
        world_deinit(f, &w);
        fake_client_free(pool);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */
/* Everything says so from now on; what the runtime still holds is left to the process's end. */
static void assert_broken(struct fixture *f) {
        struct client client;

        f->error[0] = 0;
        assert_int_equal(f->ops->tick(f->plane, f->error), -EIO);
        assert_true(f->error[0]);
        client_init(&client, 5);
        assert_int_equal(client_attach(f, &client), -EIO);
        assert_true(f->ops->drain(f->plane));
        client_deinit(&client);
}

static void a_kernel_that_ends_by_itself_is_a_fault(void **state) {
        struct fixture *f = *state;

        assert_int_equal(f->ops->tick(f->plane, f->error), 0);
        atomic_store(&fake.dies, true);
        while (f->ops->tick(f->plane, f->error) == 0)
                ;
        assert_broken(f);
        f->ops->close(f->plane);
        assert_false(atomic_load(&fake.running));
}

static void a_lost_context_is_a_fault(void **state) {
        struct fixture *f = *state;

        assert_int_equal(f->ops->tick(f->plane, f->error), 0);
        fake.lost = true;
        assert_broken(f);
        assert_non_null(strstr(f->error, "illegal"));
        fake.lost = false;
        assert_broken(f); /* it does not come back */
        f->ops->close(f->plane);
        atomic_store(&fake.dies, true);
        fake_reap();
}

static void put_the_clock_forward(void) {
        fake_clock_advance_ms(30);
}

static void a_deaf_kernel_is_a_fault(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory;
        struct world w;

        (void)fake_client_alloc(8192, &memory);
        world_init(f, &w);
        assert_int_equal(f->ops->comm_attach(f->plane, &w.comm, f->error), 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 5, 1, &memory, f->error), 0);
        atomic_store(&fake.deaf, true);
        fake.at_look = put_the_clock_forward;
        f->ops->buffer_retire(f->plane, 5, 1);
        assert_int_equal(f->ops->buffer_import(f->plane, 5, 2, &memory, f->error), -EIO);
        assert_non_null(strstr(f->error, "does not look"));
        fake.at_look = NULL;
        f->ops->comm_detach(f->plane, 77);
        f->ops->ring_detach(f->plane, 5);
        f->ops->buffer_retire(f->plane, 5, 1);
        f->ops->rank_leave(f->plane, 77, 0, 0);
        f->ops->comm_abort(f->plane, 77, 1);
        assert_broken(f);
        f->ops->close(f->plane); /* touches nothing */
        assert_int_equal(fake.violations, 0);
        assert_int_equal(fake.closes, 0);
        atomic_store(&fake.dies, true);
        fake_reap();
}

static void a_kernel_that_does_not_end_is_a_fault(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory;
        int r = 0;

        (void)fake_client_alloc(8192, &memory);
        assert_int_equal(f->ops->buffer_import(f->plane, 5, 1, &memory, f->error), 0);
        f->ops->buffer_retire(f->plane, 5, 1);
        atomic_store(&fake.deaf_to_stop, true);
        fake.at_look = put_the_clock_forward;
        for (uint32_t i = 0; !r && i < 1000; i++)
                r = f->ops->tick(f->plane, f->error);
        fake.at_look = NULL;
        assert_int_equal(r, -EIO);
        assert_broken(f);
        f->ops->close(f->plane);
        assert_int_equal(fake.closes, 0);
        atomic_store(&fake.dies, true);
        fake_reap();
}

/* Somebody else's kernel takes the place of all blocks but the first. */
static void fill_the_gpu(void) {
        atomic_store(&fake.not_begun, true);
}

static void blocks_that_have_not_begun_need_not_answer(void **state) {
        struct fixture fixture, *f = &fixture;
        struct plane_memory memory;
        void *base;

        (void)state;
        fake_reset();
        base = fake_client_alloc(8192, &memory);
        fixture_open(f, PLANE_SHARED);
        atomic_store(&fake.at_stop, fill_the_gpu);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 1, &memory, f->error), 0);
        f->ops->buffer_retire(f->plane, 1, 1);
        fake_clock_advance_ms(5000);
        fixture_tick_until(f, fake.launches == 2);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 2, &memory, f->error), 0);
        assert_int_equal(f->ops->tick(f->plane, f->error), 0);
        atomic_store(&fake.not_begun, false);
        fixture_close(f);
        fake_client_free(base);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_there_is),
                cmocka_unit_test(opening_that_fails_leaves_nothing),
                cmocka_unit_test(staging_is_smaller_where_memory_is_short),
                cmocka_unit_test_setup(a_communicator_comes_and_goes, setup),
                cmocka_unit_test_setup(what_cannot_be_is_refused, setup),
                cmocka_unit_test_setup(a_failed_communicator_answers_only, setup),
                cmocka_unit_test_setup(a_communicator_whose_ranks_here_have_left, setup),
                cmocka_unit_test_setup(leaving_and_aborting, setup),
                cmocka_unit_test_setup(reports_name_the_ranks_here, setup),
                cmocka_unit_test_setup(pairs_that_wait_are_reported, setup),
                cmocka_unit_test_setup(sessions_die_before_their_communicators, setup),
                cmocka_unit_test_setup(a_new_instance_replaces_the_old_pool, setup),
                cmocka_unit_test_setup(a_kernel_that_ends_by_itself_is_a_fault, setup),
                cmocka_unit_test_setup(a_lost_context_is_a_fault, setup),
                cmocka_unit_test_setup(a_deaf_kernel_is_a_fault, setup),
                cmocka_unit_test_setup(a_kernel_that_does_not_end_is_a_fault, setup),
                cmocka_unit_test(blocks_that_have_not_begun_need_not_answer),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
