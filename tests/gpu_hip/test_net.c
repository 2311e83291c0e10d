/* SPDX-License-Identifier: MIT */
/* Communicators over several nodes: what kernels are told, and what is refused. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <sched.h>
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
        const uint32_t launches = fake.launches;
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
        w->members[FAR].session = 5; /* another node's number, which means somebody else here */
        REFUSED(-EINVAL);
        w->members[FAR].session = 0;
        w->members[FAR].here = true;
        REFUSED(-EINVAL);
        w->members[FAR].here = false;
        w->comm.net = &other;
        other.area = area_new(N + 1, N, &bytes);
        other.bytes = bytes;
        REFUSED(-EINVAL);
        munmap(other.area, bytes);
        w->comm.net = &w->net;
        w->net.area->magic++;
        REFUSED(-EINVAL);
        w->net.area->magic--;
        w->members[FAR] = w->members[1];
        REFUSED(-EINVAL);
        w->members[FAR] = (struct plane_comm_member){.far = true, .node = 1};
        w->members[0].here = w->members[3].here = false;
        REFUSED(-EINVAL);
        w->members[0].here = w->members[3].here = true;
        assert_int_equal(fake.launches, launches); /* nobody was stopped for that */
        w->comm.id = 78;                           /* its wires are not there yet */
        w->members[1] = (struct plane_comm_member){.far = true, .node = 1};
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
        fake_clock_advance_ms(400); /* half a second, if nothing else was said */
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), 0);
        assert_int_equal(r0->left, 1u << 1);
        fake_clock_advance_ms(200);
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), 0);
        assert_int_equal(r0->left, 1u << 1 | 1u << FAR);
        assert_int_equal(fixture_rank(&w->f, 6, 30)->left, 1u << 1 | 1u << FAR);
}

/* Another communicator of the same ranks. */
static int another(struct world *w) {
        int r;

        w->comm.id++;
        for (uint32_t i = 0; i < N; i++)
                w->members[i].handle++;
        r = w->f.ops->comm_attach(w->f.plane, &w->comm, w->f.error);
        return r;
}

static void wires_are_taken_by_the_dozen(void **state) {
        struct world *w = *state;
        const uint32_t launches = fake.launches;

        world_attach(w);
        for (uint32_t i = 1; i < 4; i++) /* of two wires each */
                assert_int_equal(another(w), 0);
        assert_int_equal(fake.launches, launches + 1);
        assert_int_equal(another(w), 0);
        assert_int_equal(fake.launches, launches + 2);
        assert_int_equal(w->f.plane->slabs.n, 16);
        w->f.plane->slabs.n = 12; /* as many again */
        assert_int_equal(slabs_reserve(w->f.plane, w->f.plane->slabs.n_free + 1, w->f.error), 0);
        assert_int_equal(w->f.plane->slabs.n, 24);
}

/* Where the kernel need not end for it: two at a time, up to a bound, all of them zeroes. */
static void wires_while_the_kernel_runs(void **state) {
        struct world *w = *state;
        struct slabs *slabs = &w->f.plane->slabs;
        const uint32_t launches = fake.launches, pinned = fake.n_pinned;
        struct wire *wire[2];
        uint64_t device;

        fake_pins_running = true;
        world_attach(w);
        for (uint32_t i = 1; i < 5; i++) /* of two wires each */
                assert_int_equal(another(w), 0);
        assert_int_equal(slabs->n, 10);
        assert_int_equal(fake.n_pinned, pinned + 5);
        assert_int_equal(slabs_reserve(w->f.plane, 21, w->f.error), 0);
        assert_int_equal(slabs->n, 32);
        assert_int_equal(slabs->n_free, 22);
        assert_int_equal(fake.n_pinned, pinned + 16);
        for (uint32_t i = pinned; i < fake.n_pinned; i++)
                assert_int_equal(fake.pinned[i].bytes, 2 * sizeof(struct wire));
        wire[0] = slabs_take(w->f.plane, &device);
        memset(wire[0], 0x55, sizeof(*wire[0])); /* a kernel's */
        slabs_give(w->f.plane, wire[0]);
        wire[1] = slabs_take(w->f.plane, &device);
        assert_ptr_equal(wire[1], wire[0]);
        assert_true(((char *)wire[1])[0] == 0 && memcmp(wire[1], (char *)wire[1] + 1, sizeof(*wire[1]) - 1) == 0);
        slabs_give(w->f.plane, wire[1]);
        slabs->n = SLABS_WIRES_MAX - 3; /* in the hands of others */
        assert_int_equal(slabs_reserve(w->f.plane, 26, w->f.error), -ENOSPC);
        assert_int_equal(slabs->n_free, 22);
        fake.refuse_host = true;
        assert_int_equal(slabs_reserve(w->f.plane, 25, w->f.error), -ENOMEM);
        fake.refuse_host = false;
        assert_int_equal(slabs_reserve(w->f.plane, 25, w->f.error), 0);
        assert_int_equal(slabs->n_free, 25);
        assert_int_equal(fake.pinned[pinned + 16].bytes, 2 * sizeof(struct wire));
        assert_int_equal(fake.pinned[pinned + 17].bytes, sizeof(struct wire));
        assert_int_equal(fake.launches, launches);
        fake_pins_running = false;
}

static void wires_have_an_end(void **state) {
        struct world *w = *state;

        w->f.plane->slabs.n = SLABS_WIRES_MAX - 3; /* in the hands of others */
        world_attach(w);
        assert_int_equal(another(w), -ENOSPC);
        assert_non_null(strstr(w->f.error, "512"));
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), 0);
        w->f.ops->comm_detach(w->f.plane, 77);
        assert_int_equal(another(w), 0);
}

/* rmx-watch reads it at any time. */
static void policy_set(struct plane *plane, uint32_t policy) {
        plane_lock(plane);
        plane->policy = policy;
        plane_unlock(plane);
}

static uint64_t tick_of_the_clock;
static void put_the_clock_forward(void) {
        fake_clock_advance_ms(tick_of_the_clock);
}

/* A kernel that does not end for a while costs the new communicator, not all the others. */
static void a_kernel_in_the_middle_of_something(void **state) {
        struct world *w = *state;
        const uint32_t launches = fake.launches;

        atomic_store(&fake.deaf_to_stop, true);
        tick_of_the_clock = 1;
        fake.at_look = put_the_clock_forward;
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &w->comm, w->f.error), -EBUSY);
        assert_non_null(strstr(w->f.error, "try again"));
        assert_null(w->f.plane->comms);
        fake.at_look = NULL;
        policy_set(w->f.plane, PLANE_ADAPTIVE);
        for (uint32_t i = 0; i < 5; i++) { /* nor is it told to park meanwhile, and waited for */
                fake_clock_advance_ms(200);
                fake.at_look = i ? put_the_clock_forward : NULL;
                assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), 0);
        }
        fake.at_look = NULL;
        policy_set(w->f.plane, PLANE_SHARED);
        assert_int_equal(fake.launches, launches);
        atomic_store(&fake.deaf_to_stop, false);
        fixture_tick_until(&w->f, fake.launches == launches + 1);
        assert_int_equal(w->f.plane->slabs.n_free, 8);
        world_attach(w);
        assert_int_equal(fake.launches, launches + 1);
}

/* Its end may be noticed by somebody else, who does not know why it ended. */
static void another_try_before_the_next_tick(void **state) {
        struct world *w = *state;
        const uint32_t launches = fake.launches;
        struct plane_memory memory;
        void *base = fake_client_alloc(8192, &memory);

        assert_int_equal(w->f.ops->buffer_import(w->f.plane, 5, 1, &memory, w->f.error), 0);
        atomic_store(&fake.deaf_to_stop, true);
        tick_of_the_clock = 1;
        fake.at_look = put_the_clock_forward;
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &w->comm, w->f.error), -EBUSY);
        fake.at_look = NULL;
        atomic_store(&fake.deaf_to_stop, false);
        do { /* workers may acknowledge a version before they see the word */
                w->f.ops->buffer_retire(w->f.plane, 5, 1);
                if (w->f.plane->park.running)
                        assert_int_equal(w->f.ops->buffer_import(w->f.plane, 5, 1, &memory, w->f.error), 0);
        } while (w->f.plane->park.running);
        world_attach(w);
        assert_int_equal(fake.launches, launches + 1);
        assert_true(w->f.plane->park.running);
        fixture_close(&w->f);
        fake_client_free(base);
        fixture_open(&w->f, PLANE_SHARED); /* for the teardown */
}

/* Somebody else's kernel takes the place of all blocks but the first. */
static void fill_the_gpu(void) {
        atomic_store(&fake.not_begun, true);
        atomic_store(&fake.at_stop, NULL);
}

/* Nor does one that cannot end because half of it has not begun, whatever else happens meanwhile. */
static void a_kernel_with_room_for_half(void **state) {
        struct world *w = *state;
        const uint32_t launches = fake.launches;
        struct plane_memory memory[2];
        void *base[2];

        for (uint32_t i = 0; i < 2; i++) {
                base[i] = fake_client_alloc(8192, &memory[i]);
                assert_int_equal(w->f.ops->buffer_import(w->f.plane, 5, 1 + i, &memory[i], w->f.error), 0);
        }
        atomic_store(&fake.at_stop, fill_the_gpu);
        w->f.ops->buffer_retire(w->f.plane, 5, 1);
        fake_clock_advance_ms(5000); /* for a window */
        fixture_tick_until(&w->f, fake.launches == launches + 1);
        while (!park_begun(&w->f.plane->park))
                sched_yield();
        tick_of_the_clock = 1;
        fake.at_look = put_the_clock_forward;
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &w->comm, w->f.error), -EBUSY);
        fake.at_look = NULL;
        fake.at_pause = put_the_clock_forward;
        w->f.ops->buffer_retire(w->f.plane, 5, 2);
        fake.at_pause = NULL;
        for (uint32_t i = 0; i < 4; i++) { /* however long that is so */
                assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), 0);
                fake_clock_advance_ms(1000);
        }
        assert_int_equal(fake.launches, launches + 1);
        atomic_store(&fake.not_begun, false);
        fixture_tick_until(&w->f, fake.launches >= launches + 2);
        world_attach(w);
        fixture_close(&w->f);
        for (uint32_t i = 0; i < 2; i++)
                fake_client_free(base[i]);
        fixture_open(&w->f, PLANE_SHARED); /* for the teardown */
}

/* In the end it is one that is broken. */
static void a_kernel_that_never_ends(void **state) {
        struct world *w = *state;

        atomic_store(&fake.deaf_to_stop, true);
        tick_of_the_clock = 1;
        fake.at_look = put_the_clock_forward;
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &w->comm, w->f.error), -EBUSY);
        fake.at_look = NULL;
        fake_clock_advance_ms(RUNTIME_LOST_MS + 1000);
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), -EIO);
        assert_non_null(strstr(w->f.error, "did not end"));
        atomic_store(&fake.deaf_to_stop, false);
}

/* A drain that comes just then does not take the kernel, which is about to be launched again, for one that is done. */
static void a_drain_in_between(void **state) {
        struct world *w = *state;
        const uint32_t launches = fake.launches;

        atomic_store(&fake.deaf_to_stop, true);
        tick_of_the_clock = 1;
        fake.at_look = put_the_clock_forward;
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &w->comm, w->f.error), -EBUSY);
        fake.at_look = NULL;
        atomic_store(&fake.kept, 3);
        atomic_store(&fake.deaf_to_stop, false);
        w->f.ops->buffer_retire(w->f.plane, 5, 1); /* nothing, but for looks at the kernel */
        while (!w->f.ops->drain(w->f.plane))
                if (fake.launches > launches)
                        atomic_store(&fake.kept, 0);
        assert_int_equal(fake.launches, launches + 1); /* for what was kept */
}

static void what_is_broken_is_reported(void **state) {
        struct world *w = *state;
        struct plane_rank_report reports[4];
        struct wire *wire;

        world_attach(w);
        assert_int_equal(w->f.ops->report(w->f.plane, reports, 4), 2);
        assert_int_equal(reports[0].status, 0);
        assert_null(reports[0].why);
        wire = world_wire(w, 5);
        __atomic_store_n(&wire->pushed[3], 77, __ATOMIC_RELEASE);
        do
                assert_int_equal(w->f.ops->report(w->f.plane, reports, 4), 2);
        while (!reports[0].status);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(reports[i].status, ring_status(RMX_E_LOST, FAR));
                assert_non_null(strstr(reports[i].why, "count of chunks"));
        }
        w->f.ops->comm_abort(w->f.plane, 77, ring_status(RMX_E_LOST, FAR));
        assert_int_equal(w->f.ops->report(w->f.plane, reports, 4), 2);
        assert_int_equal(reports[0].status, 0);
}

/* ---- the proxy lets go ------------------------------------------------------------------------------------------- */
/* The caller unmaps the net area when a detach returns, whatever has happened before. */
static void a_fault_does_not_keep_the_area(void **state) {
        struct world *w = *state;

        world_attach(w);
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                assert_int_equal(w->f.plane->proxy[k].n_wires, 1);
        fake.lost = true;
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), -EIO);
        w->f.ops->comm_detach(w->f.plane, 77);
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                assert_int_equal(w->f.plane->proxy[k].n_wires, 0);
        assert_null(w->f.plane->comms);
}

static void a_fault_in_the_midst_of_it_neither(void **state) {
        struct world *w = *state;

        world_attach(w);
        fake.lost = true;
        w->f.ops->comm_detach(w->f.plane, 77);
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                assert_int_equal(w->f.plane->proxy[k].n_wires, 0);
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), -EIO);
}

/* An attach that fails leaves nothing behind that works on the area. */
static void who_cannot_be_woken_is_not_attached(void **state) {
        struct world *w = *state;

        plane_lock(w->f.plane);
        w->f.plane->parked = true; /* as adaptive.c does it */
        plane_unlock(w->f.plane);
        while (!w->f.ops->drain(w->f.plane)) {
        }
        plane_lock(w->f.plane);
        w->f.plane->draining = false;
        plane_unlock(w->f.plane);
        atomic_store(&fake.refuse_launch, true);
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &w->comm, w->f.error), -EIO);
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                assert_int_equal(w->f.plane->proxy[k].n_wires, 0);
        assert_null(w->f.plane->comms);
        assert_int_equal(w->f.ops->tick(w->f.plane, w->f.error), -EIO);
}

/* The first node has `first` ranks, the others `each`, but for the last, which has what is left. */
static void nodes_of(uint32_t n, uint32_t first, uint32_t each, struct plan_nodes *ret_nodes) {
        uint8_t node[STAGING_RANKS_MAX];

        for (uint32_t r = 0; r < n; r++)
                node[r] = (uint8_t)(r < first ? 0 : 1 + (r - first) / each);
        assert_int_equal(plan_nodes_init(ret_nodes, n, node), 0);
}

/* No node has two pairs at one place, and all places are used where they are shared. */
static void assert_mirrors(const struct plan_nodes *nodes, uint32_t n, uint32_t expected) {
        static uint8_t taken[STAGING_RANKS_MAX * STAGING_RANKS_MAX];

        assert_int_equal(wire_mirrors(nodes, n), expected);
        for (uint32_t at = 0; at < nodes->n_nodes; at++) {
                memset(taken, 0, sizeof(taken));
                for (uint32_t a = 0; a < n; a++)
                        for (uint32_t b = 0; b < n; b++) {
                                uint32_t place;

                                if (nodes->node[a] == nodes->node[b] || (nodes->node[a] != at && nodes->node[b] != at))
                                        continue;
                                place = wire_mirror_of(nodes, n, a, b);
                                assert_in_range(place, 0, expected - 1);
                                assert_int_equal(taken[place]++, 0);
                        }
        }
}

static void mirrors(void **state) {
        static const struct {
                uint32_t n, first, each, mirrors;
        } worlds[] = {{16, 8, 8, 256}, {32, 8, 8, 512}, {64, 8, 8, 1024},  {64, 1, 1, 128},  {24, 8, 8, 384},
                      {3, 1, 1, 6},    {41, 7, 7, 588}, {40, 1, 13, 1352}, {64, 32, 1, 4096}};

        (void)state;
        for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
                struct plan_nodes nodes;

                nodes_of(worlds[i].n, worlds[i].first, worlds[i].each, &nodes);
                assert_mirrors(&nodes, worlds[i].n, worlds[i].mirrors);
        }
}

static void sizes(void **state) {
        struct plan_nodes nodes;
        uint64_t bytes;
        uint32_t capacity;

        (void)state;
        nodes_of(1, 1, 1, &nodes);
        assert_int_equal(plane_net_size(1, &nodes, &capacity, &bytes), -EINVAL);
        assert_int_equal(plane_net_size(STAGING_RANKS_MAX + 1, &nodes, &capacity, &bytes), -EINVAL);
        for (uint32_t n = 2; n <= STAGING_RANKS_MAX; n++)
                for (uint32_t here = 1; here < n; here++) {
                        nodes_of(n, here, n, &nodes);
                        assert_int_equal(plane_net_size(n, &nodes, &capacity, &bytes), 0);
                        assert_int_equal(capacity & (capacity - 1), 0);
                        assert_true(capacity >= here * (n - here) * WIRE_STRANDS * WIRE_BATCHES * 2);
                        assert_int_equal(bytes, WIRE_STRANDS * n * n * sizeof(struct wire_mirror));
                        assert_true(net_area_bytes(capacity, bytes) > bytes);
                }
        assert_int_equal(plane_wire_bytes(2, 3), 6 * sizeof(struct wire));
        assert_int_equal(plane_wire_bytes(2, 0), 0);
}

/* Each channel has a number of its own. */
static void channels(void **state) {
        static bool seen[STAGING_CHANNELS];

        (void)state;
        for (uint32_t t = 0; t < STAGING_TRANSPORTS; t++)
                for (uint32_t r = 0; r < STAGING_REGIONS; r++)
                        for (uint32_t l = 0; l < staging_lanes(r); l++) {
                                const uint32_t c = staging_channel(t, r, l);

                                if (t == STAGING_BULK && (r == 1 || r == STAGING_REGION_CHECK))
                                        continue; /* there are none */
                                assert_in_range(c, 0, STAGING_CHANNELS - 1);
                                assert_false(seen[c]);
                                seen[c] = true;
                        }
        for (uint32_t c = 0; c < STAGING_CHANNELS; c++)
                assert_true(seen[c]);
}

int main(void) {
#define WORLD(test)  cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)
#define BROKEN(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown_broken)
        const struct CMUnitTest tests[] = {
                WORLD(ranks_elsewhere_have_wires),
                WORLD(parked_kernels_stay_so),
                WORLD(what_cannot_be_is_refused),
                WORLD(it_is_not_moved),
                WORLD(a_failed_one_needs_no_net),
                WORLD(who_left_elsewhere_is_believed_later),
                WORLD(wires_are_taken_by_the_dozen),
                WORLD(wires_while_the_kernel_runs),
                WORLD(wires_have_an_end),
                WORLD(a_kernel_in_the_middle_of_something),
                WORLD(another_try_before_the_next_tick),
                WORLD(a_kernel_with_room_for_half),
                WORLD(a_drain_in_between),
                WORLD(what_is_broken_is_reported),
                BROKEN(a_kernel_that_never_ends),
                BROKEN(a_fault_does_not_keep_the_area),
                BROKEN(a_fault_in_the_midst_of_it_neither),
                BROKEN(who_cannot_be_woken_is_not_attached),
                cmocka_unit_test(sizes),
                cmocka_unit_test(mirrors),
                cmocka_unit_test(channels),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
