/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"

#include "net_world.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/hip/hip.h"
#include "ring/line.h"

static const struct plan_choice choices[] = {{RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, UINT64_MAX, 0}};

struct net_area *area_new(uint32_t n_ranks, uint32_t n_here, size_t *ret_bytes) {
        uint8_t node[STAGING_RANKS_MAX];
        struct plan_nodes nodes;
        uint64_t memory_bytes;
        uint32_t capacity;
        void *area;

        for (uint32_t r = 0; r < n_ranks; r++)
                node[r] = r >= n_here;
        assert_int_equal(plan_nodes_init(&nodes, n_ranks, node), 0);
        assert_int_equal(plane_net_size(n_ranks, &nodes, &capacity, &memory_bytes), 0);
        *ret_bytes = net_area_bytes(capacity, memory_bytes);
        area = mmap(NULL, *ret_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(area != MAP_FAILED);
        net_area_init(area, capacity, memory_bytes);
        return area;
}

int world_setup(void **state) {
        struct world *w = calloc(1, sizeof(*w));
        struct plane_info info;
        uint64_t bytes = plane_staging_bytes(N);

        assert_non_null(w);
        fake_reset();
        fixture_open(&w->f, PLANE_SHARED);
        w->f.ops->info(w->f.plane, &info);
        w->other_pool = fake_client_alloc(FIXTURE_POOL, &w->other);
        client_init(&w->a, 5);
        client_init(&w->b, 6);
        assert_int_equal(w->f.ops->peer_add(w->f.plane, 2, 1, &info.pool, w->f.error), 0);
        assert_int_equal(w->f.ops->peer_add(w->f.plane, 5, 1, &w->other, w->f.error), 0);
        assert_int_equal(client_attach(&w->f, &w->a), 0);
        assert_int_equal(client_attach(&w->f, &w->b), 0);
        w->members[0] =
                (struct plane_comm_member){.session = 5, .handle = 30, .gpu = 2, .staging = bytes, .here = true};
        w->members[1] = (struct plane_comm_member){.session = 7, .handle = 30, .gpu = 5};
        w->members[FAR] = (struct plane_comm_member){.far = true, .node = 1, .gpu = 99, .staging = 3};
        w->members[3] = (struct plane_comm_member){.session = 6, .handle = 30, .gpu = 2, .here = true};
        w->net =
                (struct plane_net){.area = area_new(N, N - 1, &w->area_bytes), .doorbell_fd = eventfd(0, EFD_NONBLOCK)};
        w->net.bytes = w->area_bytes;
        w->mirror = (struct wire_mirror *)(void *)((unsigned char *)w->net.area + w->net.area->memory_offset);
        w->comm = (struct plane_comm){.id = 77,
                                      .n_ranks = N,
                                      .epoch = 1,
                                      .failed_rank = -1,
                                      .members = w->members,
                                      .choices = choices,
                                      .n_choices = 1,
                                      .lanes = 33,
                                      .net = &w->net};
        *state = w;
        return 0;
}

static void world_free(struct world *w) {
        client_deinit(&w->a);
        client_deinit(&w->b);
        fake_client_free(w->other_pool);
        close(w->net.doorbell_fd);
        munmap(w->net.area, w->area_bytes);
        free(w);
}

int world_teardown(void **state) {
        struct world *w = *state;

        fixture_close(&w->f);
        world_free(w);
        return 0;
}

int world_teardown_broken(void **state) {
        struct world *w = *state;

        w->f.ops->close(w->f.plane);
        fake.lost = false;
        atomic_store(&fake.dies, true);
        fake_reap();
        world_free(w);
        return 0;
}

void world_attach(struct world *w) {
        assert_int_equal(w->f.ops->comm_attach(w->f.plane, &w->comm, w->f.error), 0);
}

struct wire *world_wire(const struct world *w, uint64_t session) {
        return (struct wire *)(uintptr_t)fixture_rank(&w->f, session, 30)->peer[FAR];
}
