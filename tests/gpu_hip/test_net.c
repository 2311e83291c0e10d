/* SPDX-License-Identifier: MIT */
/* Communicators over several nodes: what kernels are told, and what is refused. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu/hip/hip.h"
#include "net_world.h"
#include "railmux/railmux.h"
#include "ring/line.h"

/* ---- what kernels are told --------------------------------------------------------------------------------------- */
static void ranks_elsewhere_have_wires(void **state) {
        struct world *w = *state;
        const struct table_rank *r0, *r3;
        const uint32_t launches = fake.launches;
        struct wire *wire;

        for (uint32_t use = 0; use < 3; use++) {
                world_attach(w);
                assert_int_equal(fake.launches, launches + 1); /* once, for memory that is used again */
                assert_true(atomic_load(&fake.running));
                r0 = fixture_rank(&w->f, 5, 30);
                r3 = fixture_rank(&w->f, 6, 30);
                assert_int_equal(r0->lanes, 0); /* other nodes' executors may be told something else */
                assert_int_equal(r0->far, 1u << FAR);
                assert_int_equal(r3->far, 1u << FAR);
                assert_int_equal(r0->reach_bytes, 0);
                assert_int_equal(r0->peer[1], (uint64_t)(uintptr_t)w->other_pool);
                assert_int_equal(r0->peer[3], r3->peer[3]);
                assert_int_not_equal(r0->peer[FAR], r3->peer[FAR]);
                wire = world_wire(w, 5);
                for (size_t i = 0; i < sizeof(*wire); i += 4)
                        assert_int_equal(*(uint32_t *)(void *)((unsigned char *)wire + i), 0);
                memset(wire->in, 0x5a, sizeof(wire->in));
                w->f.ops->comm_detach(w->f.plane, 77);
        }
}

static void parked_kernels_stay_so(void **state) {
        struct world *w = *state;
        const uint32_t launches = fake.launches;

        while (!w->f.ops->drain(w->f.plane))
                ;
        world_attach(w);
        assert_int_equal(fake.launches, launches);
        assert_non_null(world_wire(w, 6));
}

static void what_cannot_be_is_refused(void **state) {
        struct world *w = *state;
        struct plane_net other = w->net;
        size_t bytes;

#define REFUSED(code_)                                                                                                 \
        do {                                                                                                           \
                w->f.error[0] = 0;                                                                                     \
                assert_int_equal(w->f.ops->comm_attach(w->f.plane, &w->comm, w->f.error), code_);                      \
                assert_true(w->f.error[0]);                                                                            \
                assert_null(w->f.plane->comms);                                                                        \
                assert_null(fixture_rank(&w->f, 5, 30));                                                               \
                assert_true(atomic_load(&fake.running));                                                               \
        } while (0)
        w->comm.net = NULL;
        REFUSED(-EINVAL);
        w->comm.net = &other;
        other.area = area_new(N + 1, &bytes);
        REFUSED(-EINVAL);
        munmap(other.area, bytes);
        w->comm.net = &w->net;
        w->net.area->magic++;
        REFUSED(-EINVAL);
        w->net.area->magic--;
        w->members[FAR] = w->members[1];
        REFUSED(-EINVAL);
        w->members[FAR] = (struct plane_comm_member){.far = true};
        w->members[0].here = w->members[3].here = false;
        REFUSED(-EINVAL);
        w->members[0].here = w->members[3].here = true;
        w->comm.id = 78; /* its wires are not there yet */
        w->members[1] = (struct plane_comm_member){.far = true};
        fake.refuse_host = true;
        REFUSED(-ENOMEM);
        fake.refuse_host = false;
        world_attach(w);
        assert_int_equal(fixture_rank(&w->f, 5, 30)->far, 1u << 1 | 1u << FAR);
}

static void it_is_not_moved(void **state) {
        struct world *w = *state;

        world_attach(w);
        assert_int_equal(w->f.ops->comm_hold(w->f.plane, 77, false, 0, w->f.error), -EOPNOTSUPP);
        assert_int_equal(w->f.ops->comm_move(w->f.plane, &w->comm, w->f.error), -EOPNOTSUPP);
}

static void a_failed_one_needs_no_net(void **state) {
        struct world *w = *state;

        w->comm.net = NULL;
        w->comm.code = RMX_E_LOST;
        world_attach(w);
        assert_int_equal(fixture_rank(&w->f, 5, 30)->abort, ring_status(RMX_E_LOST, -1));
        assert_int_equal(fixture_rank(&w->f, 5, 30)->far, 0);
        assert_int_equal(fixture_rank(&w->f, 5, 30)->peer[FAR], 0);
}

static void who_left_elsewhere_is_believed_later(void **state) {
        struct world *w = *state;
        const struct table_rank *r0;

        world_attach(w);
        r0 = fixture_rank(&w->f, 5, 30);
        w->f.ops->rank_leave(w->f.plane, 77, 1, 40);
        w->f.ops->rank_leave(w->f.plane, 77, FAR, 30);
        assert_int_equal(r0->last, 30); /* collectives need nobody's word to be late */
        assert_int_equal(r0->abort, ring_status(RMX_E_PEER_LOST, FAR));
        assert_int_equal(r0->left, 1u << 1);
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), 0);
        assert_int_equal(r0->left, 1u << 1);
        fake_clock_advance_ms(1100);
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), 0);
        assert_int_equal(r0->left, 1u << 1 | 1u << FAR);
        assert_int_equal(fixture_rank(&w->f, 6, 30)->left, 1u << 1 | 1u << FAR);
}

static void sizes(void **state) {
        uint64_t bytes;
        uint32_t capacity;

        (void)state;
        assert_int_equal(plane_net_size(1, &capacity, &bytes), -EINVAL);
        assert_int_equal(plane_net_size(STAGING_RANKS_MAX + 1, &capacity, &bytes), -EINVAL);
        for (uint32_t n = 2; n <= STAGING_RANKS_MAX; n++) {
                assert_int_equal(plane_net_size(n, &capacity, &bytes), 0);
                assert_int_equal(capacity & (capacity - 1), 0);
                for (uint32_t here = 1; here < n; here++)
                        assert_true(capacity >= here * (n - here) * WIRE_BATCHES * 2);
                assert_int_equal(bytes, n * n * sizeof(struct wire_mirror));
                assert_true(net_area_bytes(capacity, bytes) > bytes);
        }
}

/* Each channel has a number of its own. */
static void channels(void **state) {
        static bool seen[WIRE_CHANNELS];

        (void)state;
        for (uint32_t t = 0; t < STAGING_TRANSPORTS; t++)
                for (uint32_t r = 0; r < STAGING_REGIONS; r++)
                        for (uint32_t l = 0; l < staging_lanes(r); l++) {
                                const uint32_t c = wire_channel(t, r, l);

                                if (t == STAGING_BULK && (r == 1 || r == STAGING_REGION_CHECK))
                                        continue; /* there are none */
                                assert_in_range(c, 0, WIRE_CHANNELS - 1);
                                assert_false(seen[c]);
                                seen[c] = true;
                        }
        for (uint32_t c = 0; c < WIRE_CHANNELS; c++)
                assert_true(seen[c]);
}

int main(void) {
#define WORLD(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)
        const struct CMUnitTest tests[] = {
                WORLD(ranks_elsewhere_have_wires), WORLD(parked_kernels_stay_so),
                WORLD(what_cannot_be_is_refused),  WORLD(it_is_not_moved),
                WORLD(a_failed_one_needs_no_net),  WORLD(who_left_elsewhere_is_believed_later),
                cmocka_unit_test(sizes),           cmocka_unit_test(channels),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
