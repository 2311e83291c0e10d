/* SPDX-License-Identifier: MIT */
/* How long collectives take on the host backend with all ranks on one thread; the best of a few runs. A direct barrier
 * is n (n - 1) signals, sent and awaited.
 *   bench_collective [ranks [part_bytes [slots]]] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/clock.h"
#include "util/type.h"

#define REPEATS 20

struct bench {
        struct gpu *gpu;
        struct plan_geometry geometry;
        uint32_t n_ranks;
        unsigned char *memory[PLAN_RANKS_MAX];
        size_t memory_bytes;
};

/* Runs one plan on all ranks, round after round. Returns nanoseconds per round. */
static double run(const struct bench *bench, struct gpu_comm *comm, const struct plan *plan, uint64_t count,
                  uint32_t n_rounds) {
        struct gpu_request requests[PLAN_RANKS_MAX];
        uint64_t begin = clock_now_ns();

        for (uint32_t round = 0; round < n_rounds; round++) {
                uint32_t n_left = bench->n_ranks;

                for (uint32_t rank = 0; rank < bench->n_ranks; rank++) {
                        requests[rank] = (struct gpu_request){
                                .plan = plan,
                                .in = bench->memory[rank],
                                .out = bench->memory[rank] + bench->memory_bytes / 2,
                                .shape = {.count = count, .element_bytes = 4, .partial_bytes = 4},
                                .type = RMX_FLOAT32,
                                .redop = RMX_SUM,
                        };
                        gpu_host_ops.start(comm, rank, &requests[rank], 1);
                }
                while (n_left > 0)
                        for (uint32_t rank = 0; rank < bench->n_ranks; rank++)
                                n_left -= gpu_host_ops.progress(comm, rank, 1u << 20) == GPU_DONE;
        }
        return (double)(clock_now_ns() - begin) / n_rounds;
}

static void measure(const struct bench *bench, uint32_t operation, uint64_t bytes) {
        struct gpu_comm *comm;
        struct plan plan;
        uint64_t count = bytes / 4;
        double ns, best;

        if (operation != RING_OP_ALL_REDUCE && operation != RING_OP_BROADCAST)
                count = count / bench->n_ranks;
        for (uint32_t k = 0, a; (a = plan_algorithm_at(operation, bench->n_ranks, k)); k++) {
                if (plan_build(operation, a, bench->n_ranks, &plan) ||
                    gpu_host_ops.comm_new(bench->gpu, bench->n_ranks, &bench->geometry, &comm))
                        exit(1);
                best = run(bench, comm, &plan, count, 4);
                for (uint32_t repeat = 0; repeat < REPEATS; repeat++) {
                        ns = run(bench, comm, &plan, count, bytes <= 4096 ? 1000 : 1 + (uint32_t)((4u << 20) / bytes));
                        best = ns < best ? ns : best;
                }
                printf("%-14s %-18s %10" PRIu64 " bytes: %12.0f ns\n", plan_operation_name(operation),
                       plan_algorithm_name(a), bytes, best);
                gpu_host_ops.comm_free(comm);
        }
}

int main(int argc, char **argv) {
        struct bench bench = {.n_ranks = 8, .geometry = {262144, 4}, .memory_bytes = 64u << 20};
        static const uint64_t sizes[] = {8, 64, 4096, 65536, 1u << 20, 16u << 20};

        if (argc > 1)
                bench.n_ranks = (uint32_t)strtoul(argv[1], NULL, 10);
        if (argc > 2)
                bench.geometry.part_bytes = (uint32_t)strtoul(argv[2], NULL, 10);
        if (argc > 3)
                bench.geometry.slots = (uint32_t)strtoul(argv[3], NULL, 10);
        if (bench.n_ranks < 1 || bench.n_ranks > PLAN_RANKS_MAX || gpu_host_ops.open(1, &bench.gpu))
                return 1;
        for (uint32_t rank = 0; rank < bench.n_ranks; rank++) {
                bench.memory[rank] = malloc(bench.memory_bytes);
                if (!bench.memory[rank])
                        return 1;
                memset(bench.memory[rank], 0, bench.memory_bytes);
        }
        measure(&bench, RING_OP_BARRIER, 0);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                measure(&bench, RING_OP_ALL_REDUCE, sizes[i]);
                measure(&bench, RING_OP_ALL_GATHER, sizes[i]);
        }
        for (uint32_t rank = 0; rank < bench.n_ranks; rank++)
                free(bench.memory[rank]);
        gpu_host_ops.close(bench.gpu);
        return 0;
}
