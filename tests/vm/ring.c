/* SPDX-License-Identifier: MIT */
/*
 * What an all_reduce would take that goes around all ranks in one flat ring: the textbook's algorithm, each step a send
 * to the next rank and a receive from the one before, over the same daemons and rails as railmux-perf. To compare with.
 *
 *   vm_ring RANKS CALLS BYTES SOCKET...
 *
 * Prints "BYTES MEDIAN MINIMUM" of the calls' times in microseconds, each taken at its slowest rank. fp32, sums are
 * verified. bench/vm/delay uses it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cmocka_all.h"
#include "tests/vm/fleet.h"
#include "util/clock.h"
#include "util/parse.h"

#define WARMUP      5u
#define PATIENCE_MS 300000u

struct order {
        uint32_t n_calls;
        uint64_t n_bytes;
};

struct ring {
        struct team_rank *rank;
        struct rmx_comm *comm;
        float *data, *arrived;
        size_t count;
};

static size_t block_begin(const struct ring *ring, uint32_t block) {
        return ring->count * block / ring->rank->n_ranks;
}

/* Sends one block on, and adds or copies the one that arrives. */
static void ring_step(struct ring *ring, uint32_t out, uint32_t in, bool adds) {
        uint32_t n = ring->rank->n_ranks, next = (ring->rank->rank + 1) % n, before = (ring->rank->rank + n - 1) % n;
        size_t from = block_begin(ring, out), to = block_begin(ring, in);
        size_t n_out = block_begin(ring, out + 1) - from, n_in = block_begin(ring, in + 1) - to;
        float *target = adds ? ring->arrived : ring->data + to;

        team_must(ring->rank, rmx_group_start(), "rmx_group_start");
        team_must(ring->rank, rmx_send(ring->comm, ring->data + from, n_out, RMX_FLOAT32, next, NULL), "rmx_send");
        team_must(ring->rank, rmx_recv(ring->comm, target, n_in, RMX_FLOAT32, before, NULL), "rmx_recv");
        team_must(ring->rank, rmx_group_end(), "rmx_group_end");
        for (size_t i = 0; adds && i < n_in; i++)
                ring->data[to + i] += ring->arrived[i];
}

static void ring_all_reduce(struct ring *ring) {
        uint32_t n = ring->rank->n_ranks, me = ring->rank->rank;

        for (uint32_t step = 0; step + 1 < n; step++)
                ring_step(ring, (me + n - step) % n, (me + 2 * n - step - 1) % n, true);
        for (uint32_t step = 0; step + 1 < n; step++)
                ring_step(ring, (me + 1 + n - step) % n, (me + n - step) % n, false);
}

static float input(uint32_t rank, size_t i) {
        return (float)((i * 7 + rank * 31) % 1024);
}

static void verify(const struct ring *ring) {
        for (size_t i = 0; i < ring->count; i++) {
                float right = 0;

                for (uint32_t r = 0; r < ring->rank->n_ranks; r++)
                        right += input(r, i);
                if (ring->data[i] != right)
                        team_wrong(ring->rank, "a wrong element");
        }
}

static int by_size(const void *a, const void *b) {
        const int64_t *x = a, *y = b;

        return (*x > *y) - (*x < *y);
}

static void measure(struct team_rank *rank) {
        const struct order *order = rank->shared->data;
        struct ring ring = {.rank = rank, .count = order->n_bytes / sizeof(float)};
        int64_t *times = team_memory(rank, (order->n_calls + 1) * sizeof(*times)), *mine = times + order->n_calls;

        ring.data = team_memory(rank, ring.count * sizeof(float));
        ring.arrived = team_memory(rank, (ring.count / rank->n_ranks + 1) * sizeof(float));
        ring.comm = team_join(rank, 0);
        for (uint32_t call = 0; call < WARMUP + order->n_calls; call++) {
                uint64_t begin_ns;

                for (size_t i = 0; i < ring.count; i++)
                        ring.data[i] = input(rank->rank, i);
                pthread_barrier_wait(&rank->shared->barrier);
                begin_ns = clock_now_ns();
                ring_all_reduce(&ring);
                *mine = (int64_t)(clock_now_ns() - begin_ns);
                if (call < 2 || call + 1 == WARMUP + order->n_calls)
                        verify(&ring);
                team_must(rank,
                          rmx_all_reduce(ring.comm, mine, &times[call < WARMUP ? 0 : call - WARMUP], 1, RMX_INT64,
                                         RMX_MAX, NULL),
                          "rmx_all_reduce");
        }
        qsort(times, order->n_calls, sizeof(*times), by_size);
        if (rank->rank == 0)
                printf("%llu %.1f %.1f\n", (unsigned long long)order->n_bytes, (double)times[order->n_calls / 2] / 1e3,
                       (double)times[0] / 1e3);
        team_step(rank);
        team_must(rank, rmx_comm_destroy(ring.comm), "rmx_comm_destroy");
}

int main(int argc, char **argv) {
        struct node nodes[FLEET_NODES_MAX] = {0};
        uint32_t n_ranks, n_nodes = (uint32_t)(argc - 4);
        struct team team;
        struct order order;

        if (argc < 5 || n_nodes > FLEET_NODES_MAX || parse_u32(argv[1], &n_ranks) < 0 || n_ranks < 2 ||
            n_ranks > TEAM_RANKS_MAX || parse_u32(argv[2], &order.n_calls) < 0 || order.n_calls < 1 ||
            parse_size(argv[3], &order.n_bytes) < 0) {
                fprintf(stderr, "Usage: vm_ring RANKS CALLS BYTES SOCKET...; 2 to %u ranks\n", TEAM_RANKS_MAX);
                return 2;
        }
        for (uint32_t i = 0; i < n_nodes; i++)
                snprintf(nodes[i].socket, sizeof(nodes[i].socket), "%s", argv[4 + i]);
        team_init(&team, nodes, n_nodes, n_ranks);
        team.shared->data = &order;
        team_start(&team, measure);
        team_await_step(&team, 1, TEAM_ALL, PATIENCE_MS); /* that of team_end is for tests */
        team_end(&team, "ring");
        team_cleanup(&team);
        return 0;
}
