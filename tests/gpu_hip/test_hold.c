/* SPDX-License-Identifier: MIT */
/* A communicator that stands still while another executor is replaced. The fake kernel's workers say here how far they
 * have come. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "fixture.h"
#include "gpu/device/staging.h"
#include "gpu/hip/hip.h"
#include "railmux/railmux.h"
#include "ring/line.h"

#define POISON  0x5a
#define WORKERS 8u /* two blocks */

static const struct plan_choice choices[] = {
        {.operation = RING_OP_ALL_REDUCE, .algorithm = PLAN_ONE_SHOT, .max_bytes = UINT64_MAX},
};

struct rig { /* rank 0 is here on GPU 2, rank 1 on GPU 5 */
        struct fixture f;
        struct client client;
        struct plane_memory pools[2]; /* of GPU 5: the old one and the new one */
        unsigned char *pool[2];
        struct plane_comm_member members[2];
        struct plane_comm comm;
        uint32_t ring, rank; /* entries */
};

/* What the workers say; written between two ticks. */
static _Atomic uint32_t next_of[WORKERS], tasks_of[WORKERS];

static uint64_t at_level(uint32_t worker, uint32_t ring, uint32_t limit) {
        uint32_t next = atomic_load(&next_of[worker]);

        (void)ring;
        return (uint64_t)atomic_load(&tasks_of[worker]) << 32 | (next ? next : limit);
}

static void say(uint32_t worker, uint32_t next, uint32_t tasks) {
        atomic_store(&next_of[worker], next);
        atomic_store(&tasks_of[worker], tasks);
}

static void rung(struct rig *rig, uint32_t sequence) {
        __atomic_store_n(&rig->f.plane->tables.report->rank[rig->rank].rung, sequence, __ATOMIC_RELAXED);
}

static void rig_init(struct rig *rig, uint32_t policy) {
        struct plane_info info;

        fake_reset();
        for (uint32_t i = 0; i < WORKERS; i++)
                say(i, 0, 0);
        fixture_open(&rig->f, policy);
        atomic_store(&fake.at_level, at_level);
        assert_int_equal(rig->f.plane->park.n_workers, WORKERS);
        rig->f.ops->info(rig->f.plane, &info);
        for (uint32_t i = 0; i < 2; i++)
                rig->pool[i] = fake_client_alloc(FIXTURE_POOL, &rig->pools[i]);
        client_init(&rig->client, 5);
        assert_int_equal(rig->f.ops->peer_add(rig->f.plane, 2, 1, &info.pool, rig->f.error), 0);
        assert_int_equal(rig->f.ops->peer_add(rig->f.plane, 5, 1, &rig->pools[0], rig->f.error), 0);
        assert_int_equal(client_attach(&rig->f, &rig->client), 0);
        rig->members[0] = (struct plane_comm_member){.session = 5, .handle = 30, .gpu = 2, .staging = 0, .here = true};
        rig->members[1] = (struct plane_comm_member){.session = 7, .handle = 30, .gpu = 5, .staging = 65536};
        rig->comm = (struct plane_comm){.id = 77,
                                        .n_ranks = 2,
                                        .epoch = 9,
                                        .failed_rank = -1,
                                        .members = rig->members,
                                        .choices = choices,
                                        .n_choices = 1,
                                        .lanes = 31};
        assert_int_equal(rig->f.ops->comm_attach(rig->f.plane, &rig->comm, rig->f.error), 0);
        rig->ring = (uint32_t)(fixture_ring(&rig->f, 5) - rig->f.table->rings);
        rig->rank = (uint32_t)(fixture_rank(&rig->f, 5, 30) - rig->f.table->ranks);
}

static void rig_deinit(struct rig *rig) {
        fixture_close(&rig->f);
        client_deinit(&rig->client);
        for (uint32_t i = 0; i < 2; i++)
                fake_client_free(rig->pool[i]);
}

static void hold(struct rig *rig, bool has_upto, uint32_t upto) {
        assert_int_equal(rig->f.ops->comm_hold(rig->f.plane, 77, has_upto, upto, rig->f.error), 0);
}

static struct plane_level look(struct rig *rig) {
        struct plane_level level[2];

        assert_int_equal(rig->f.ops->tick(rig->f.plane, rig->f.error), 0);
        assert_int_equal(rig->f.ops->comm_level(rig->f.plane, 77, level, 2), 1);
        assert_int_equal(level[0].rank, 0);
        return level[0];
}

static void settle(struct rig *rig) {
        hold(rig, false, 0);
        for (uint32_t i = 0; !look(rig).settled; i++)
                assert_in_range(i, 0, 3);
}

static void the_limit_follows_the_farthest_worker(void **state) {
        const struct table_ring *ring;
        struct plane_level level[1];
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_SHARED);
        ring = &rig.f.table->rings[rig.ring];
        client_ring(&rig.client, 1);
        client_ring(&rig.client, 2);
        assert_int_equal(rig.f.ops->comm_level(rig.f.plane, 77, level, 1), 0); /* it is not held */
        for (uint32_t i = 0; i < WORKERS; i++)
                say(i, 3, 0);
        say(4, 2, 1); /* has not yet seen the second line, and is at work on the first */
        hold(&rig, false, 0);
        assert_false(look(&rig).settled);
        assert_int_equal(ring->limited, 1);
        assert_int_equal(ring->limit, 3);
        assert_int_equal(rig.f.table->ranks[rig.rank].held, 1);
        say(2, 6, 0); /* the client rang meanwhile */
        assert_false(look(&rig).settled);
        assert_int_equal(ring->limit, 6);
        for (uint32_t i = 0; i < WORKERS; i++)
                say(i, 6, 0);
        say(4, 6, 2); /* all lines are taken, not all are finished */
        rung(&rig, 5);
        assert_false(look(&rig).settled);
        say(4, 6, 0);
        assert_true(look(&rig).settled);
        assert_int_equal(look(&rig).taken, 5);
        assert_int_equal(ring->limit, 6);
        rig.f.ops->comm_release(rig.f.plane, 77);
        assert_int_equal(ring->limited, 0);
        assert_int_equal(rig.f.table->ranks[rig.rank].held, 0);
        rig_deinit(&rig);
}

static void who_is_behind_goes_on(void **state) {
        const struct table_ring *ring;
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_SHARED);
        ring = &rig.f.table->rings[rig.ring];
        settle(&rig);
        assert_int_equal(ring->limit, 1);
        hold(&rig, true, 2); /* another rank has begun its second request, this one none */
        assert_false(look(&rig).settled);
        assert_int_equal(ring->limit, 3);
        for (uint32_t i = 0; i < WORKERS; i++)
                say(i, 3, 0);
        say(0, 1, 0); /* its client is late */
        assert_false(look(&rig).settled);
        say(0, 3, 0);
        rung(&rig, 1); /* one of the lines was for another communicator */
        assert_false(look(&rig).settled);
        assert_int_equal(ring->limit, 4);
        for (uint32_t i = 0; i < WORKERS; i++)
                say(i, 4, 0);
        rung(&rig, 2);
        assert_true(look(&rig).settled);
        assert_int_equal(ring->limit, 4);
        hold(&rig, true, 1); /* older than what it knows */
        assert_true(look(&rig).settled);
        rig_deinit(&rig);
}

/* Ring sequences leave out 0. */
static void limits_go_round(void **state) {
        const struct table_ring *ring;
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_SHARED);
        ring = &rig.f.table->rings[rig.ring];
        client_ring(&rig.client, UINT32_MAX);
        settle(&rig);
        assert_int_equal(ring->limit, 1);
        rig_deinit(&rig);

        rig_init(&rig, PLANE_SHARED);
        ring = &rig.f.table->rings[rig.ring];
        client_ring(&rig.client, UINT32_MAX - 1);
        settle(&rig);
        hold(&rig, true, 1);
        look(&rig);
        assert_int_equal(ring->limit, 0);
        for (uint32_t i = 0; i < WORKERS; i++)
                say(i, 1, 0); /* nobody ever looks for 0 */
        rung(&rig, 1);
        look(&rig);
        assert_int_equal(ring->limit, 1);
        assert_true(look(&rig).settled);
        rig_deinit(&rig);
}

static void workers_that_have_not_begun_are_waited_for(void **state) {
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        for (uint32_t t = 0; t < 100 && !rig.f.plane->parked; t++) {
                fake_clock_advance_ms(10);
                assert_int_equal(rig.f.ops->tick(rig.f.plane, rig.f.error), 0);
        }
        assert_true(rig.f.plane->parked);
        atomic_store(&fake.not_begun, true);
        hold(&rig, false, 0); /* the kernel comes back for it */
        assert_false(rig.f.plane->parked);
        for (uint32_t i = 0; i < 5; i++)
                assert_false(look(&rig).settled);
        atomic_store(&fake.not_begun, false);
        look(&rig);
        assert_true(look(&rig).settled);
        for (uint32_t t = 0; t < 100; t++) { /* and stays */
                fake_clock_advance_ms(10);
                assert_int_equal(rig.f.ops->tick(rig.f.plane, rig.f.error), 0);
                assert_false(rig.f.plane->parked);
        }
        rig_deinit(&rig);
}

static void moving_begins_anew_with_clean_staging(void **state) {
        struct staging_layout layout;
        const struct table_rank *entry;
        struct lane_states *what;
        unsigned char *pool;
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_SHARED);
        staging_layout_init(&layout, 2);
        pool = rig.f.plane->pool.base;
        entry = fixture_rank(&rig.f, 5, 30);
        what = (struct lane_states *)(uintptr_t)entry->states;
        rig.comm.first = 42;
        assert_int_equal(rig.f.ops->comm_move(rig.f.plane, &rig.comm, rig.f.error), -EBUSY);
        say(1, 0, 1);
        hold(&rig, false, 0);
        look(&rig);
        assert_int_equal(rig.f.ops->comm_move(rig.f.plane, &rig.comm, rig.f.error), -EBUSY);
        say(1, 0, 0);
        settle(&rig);
        rung(&rig, 41);
        assert_int_equal(entry->lanes, 31);
        rig.comm.lanes = 7; /* what all are told now is what counts */
        memset(pool, POISON, 2 * layout.bytes);
        memset(what, POISON, sizeof(*what));
        memset(rig.pool[1], POISON, FIXTURE_POOL);
        assert_int_equal(rig.f.ops->peer_add(rig.f.plane, 5, 2, &rig.pools[1], rig.f.error), 0);
        assert_int_equal(entry->peer[1], (uint64_t)(uintptr_t)rig.pool[0] + 65536);
        assert_int_equal(rig.f.ops->comm_move(rig.f.plane, &rig.comm, rig.f.error), 0);
        assert_int_equal(entry->peer[1], (uint64_t)(uintptr_t)rig.pool[1] + 65536);
        assert_int_equal(entry->peer[0], (uint64_t)(uintptr_t)pool);
        assert_int_equal(entry->held, 1);
        assert_int_equal(entry->epoch, 9);
        assert_int_equal(entry->lanes, 7);
        for (uint64_t i = 0; i < layout.bytes; i++)
                assert_int_equal(pool[i], 0);
        assert_int_equal(pool[layout.bytes], POISON);
        assert_int_equal(rig.pool[1][65536], POISON); /* whose it is clears it */
        assert_int_equal(what->lane[0].sequence, 41);
        for (uint32_t channel = 0; channel < STAGING_CHANNELS; channel++) {
                assert_int_equal(what->channel[channel].pushed[1], 0);
                assert_int_equal(what->channel[channel].taken[STAGING_RANKS_MAX - 1], 0);
        }
        assert_int_equal(look(&rig).taken, 41);
        rig.f.ops->comm_release(rig.f.plane, 77);
        assert_int_equal(rig.f.table->rings[rig.ring].limited, 0);
        rig_deinit(&rig);
}

static void a_successor_begins_where_the_other_ended(void **state) {
        const struct table_rank *entry;
        struct plane_rank_report report[2];
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_SHARED);
        rig.f.ops->comm_detach(rig.f.plane, 77);
        rig.comm.first = 0x80000001u;
        assert_int_equal(rig.f.ops->comm_attach(rig.f.plane, &rig.comm, rig.f.error), 0);
        entry = fixture_rank(&rig.f, 5, 30);
        assert_int_equal(entry->first, 0x80000001u);
        assert_int_equal(entry->lanes, 31);
        assert_int_equal(((const struct lane_states *)(uintptr_t)entry->states)->lane[0].sequence, 0x80000000u);
        assert_int_equal(rig.f.ops->report(rig.f.plane, report, 2), 1);
        assert_int_equal(report[0].rung, 0x80000000u);
        assert_int_equal(report[0].finished, 0x80000000u);
        rig_deinit(&rig);
}

static void errors_end_it(void **state) {
        struct plane_level level[1];
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_SHARED);
        settle(&rig);
        rig.f.ops->comm_abort(rig.f.plane, 77, ring_status(RMX_E_LOST, -1));
        assert_int_equal(rig.f.table->rings[rig.ring].limited, 0);
        assert_int_equal(rig.f.ops->comm_level(rig.f.plane, 77, level, 1), 0);
        hold(&rig, false, 0); /* who has failed goes on answering */
        assert_int_equal(rig.f.ops->tick(rig.f.plane, rig.f.error), 0);
        assert_int_equal(rig.f.table->rings[rig.ring].limited, 0);
        rig.f.ops->comm_detach(rig.f.plane, 77);
        assert_int_equal(rig.f.ops->comm_hold(rig.f.plane, 77, false, 0, rig.f.error), -ENOENT);
        rig.f.ops->comm_release(rig.f.plane, 77);

        assert_int_equal(rig.f.ops->comm_attach(rig.f.plane, &rig.comm, rig.f.error), 0);
        settle(&rig);
        rig.f.ops->comm_detach(rig.f.plane, 77);
        assert_int_equal(rig.f.table->rings[rig.ring].limited, 0);
        rig_deinit(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_limit_follows_the_farthest_worker),
                cmocka_unit_test(who_is_behind_goes_on),
                cmocka_unit_test(limits_go_round),
                cmocka_unit_test(workers_that_have_not_begun_are_waited_for),
                cmocka_unit_test(moving_begins_anew_with_clean_staging),
                cmocka_unit_test(a_successor_begins_where_the_other_ended),
                cmocka_unit_test(errors_end_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
