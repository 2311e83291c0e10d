/* SPDX-License-Identifier: MIT */
/*
 * MPI_Allreduce measured the way railmux-perf measures rmx_all_reduce (tools/perf/bench.c):
 *
 *   verified call - warm-up calls - barrier - measured calls, back to back - verified call
 *
 * Percentiles are railmux-perf's own code, so that the two cannot differ; each call is taken at its slowest rank, as
 * there. The values are small whole numbers: every sum of them is exact in fp32, in any order. Input and output are
 * page-aligned memory of the process, the ordinary case for MPI; railmux-perf's default is likewise what railmux
 * recommends, memory of rmx_mem_alloc.
 *
 *   mpirun -n RANKS mpi_all_reduce BYTES WARMUP ITERATIONS
 *
 * Prints the name of the library as a comment, then one line: bytes, calls, time, p50, p99 (us), wrong elements.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/stats.h"
#include "util/clock.h"

#define GUARD_BYTES 64u
#define GUARD       0xa5
#define POISON      0x5a
#define ALIGNMENT   4096u
#define PERIOD      251u /* of the data; prime, so that no power-of-two shift maps it onto itself */
#define RANKS_MAX   64u

enum { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_FAILED = 3 };

struct bench {
        uint32_t rank, n_ranks;
        size_t bytes, count;
        uint32_t warmup, iterations;
        char *in, *out; /* guards follow both */
        uint64_t *samples, *slowest;
        uint64_t iteration, wrong;
};

static bool parse(const char *text, uint64_t max, uint64_t *ret_value) {
        char *end;
        unsigned long long value = strtoull(text, &end, 10);

        if (*text < '0' || *text > '9' || *end || value > max)
                return false;
        *ret_value = value;
        return true;
}

static float value_of(uint32_t factor, uint64_t iteration, size_t i) {
        return (float)((i + iteration) % PERIOD * factor);
}

/* Elements that are not `factor` times the common part of the value, or guard bytes that are not as they were. */
static uint64_t wrong_in(const struct bench *b, const char *area, uint32_t factor) {
        uint64_t wrong = 0;
        float value, expected;

        for (size_t i = 0; i < b->count; i++) {
                memcpy(&value, area + i * sizeof(value), sizeof(value));
                expected = value_of(factor, b->iteration, i);
                wrong += memcmp(&value, &expected, sizeof(value)) != 0;
        }
        for (size_t i = 0; i < GUARD_BYTES; i++)
                wrong += (unsigned char)area[b->bytes + i] != GUARD;
        return wrong;
}

static void call_run(const struct bench *b) {
        /* Errors end the job: that is MPI's default handler. */
        MPI_Allreduce(b->in, b->out, (int)b->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Rank r puts in r + 1 times the common part, so the sum is n (n + 1) / 2 times it. */
static void call_run_verified(struct bench *b) {
        b->iteration++;
        memset(b->out, POISON, b->bytes);
        memset(b->out + b->bytes, GUARD, GUARD_BYTES);
        memset(b->in + b->bytes, GUARD, GUARD_BYTES);
        for (size_t i = 0; i < b->count; i++) {
                float value = value_of(b->rank + 1, b->iteration, i);

                memcpy(b->in + i * sizeof(value), &value, sizeof(value));
        }
        call_run(b);
        b->wrong += wrong_in(b, b->out, b->n_ranks * (b->n_ranks + 1) / 2);
        b->wrong += wrong_in(b, b->in, b->rank + 1);
}

/* Returns this rank's time for all calls. */
static uint64_t measure(struct bench *b) {
        uint64_t start = clock_now_ns(), before, after = start;

        for (uint32_t i = 0; i < b->iterations; i++) {
                before = after;
                call_run(b);
                after = clock_now_ns();
                b->samples[i] = after - before;
        }
        return after - start;
}

/* Whether any element was wrong on any rank, on rank 0. */
static bool report(const struct bench *b, uint64_t elapsed_ns) {
        uint64_t slowest_ns = 0, wrong = 0;

        MPI_Reduce(b->samples, b->slowest, (int)b->iterations, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
        MPI_Reduce(&elapsed_ns, &slowest_ns, 1, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
        MPI_Reduce(&b->wrong, &wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
        if (b->rank != 0)
                return false;
        stats_sort(b->slowest, b->iterations);
        printf("%zu %u %.2f %.2f %.2f %llu\n", b->bytes, b->iterations,
               (double)slowest_ns / 1e3 / (double)b->iterations,
               (double)stats_percentile(b->slowest, b->iterations, 50) / 1e3,
               (double)stats_percentile(b->slowest, b->iterations, 99) / 1e3, (unsigned long long)wrong);
        return wrong > 0;
}

static int run(struct bench *b) {
        char library[MPI_MAX_LIBRARY_VERSION_STRING];
        uint64_t elapsed_ns;
        int length, wrong;

        b->samples = calloc(b->iterations, sizeof(*b->samples));
        b->slowest = calloc(b->iterations, sizeof(*b->slowest));
        if (!b->samples || !b->slowest || posix_memalign((void **)&b->in, ALIGNMENT, b->bytes + GUARD_BYTES) != 0 ||
            posix_memalign((void **)&b->out, ALIGNMENT, b->bytes + GUARD_BYTES) != 0) {
                fprintf(stderr, "mpi_all_reduce: out of memory\n");
                return EXIT_FAILED;
        }
        MPI_Get_library_version(library, &length);
        library[strcspn(library, ",\n")] = '\0';
        if (b->rank == 0)
                printf("# %s\n", library);
        call_run_verified(b);
        for (uint32_t i = 0; i < b->warmup; i++)
                call_run(b);
        MPI_Barrier(MPI_COMM_WORLD);
        elapsed_ns = measure(b);
        call_run_verified(b);
        wrong = report(b, elapsed_ns);
        return wrong ? EXIT_WRONG : EXIT_RIGHT;
}

int main(int argc, char **argv) {
        struct bench b = {0};
        uint64_t bytes, warmup, iterations;
        int rank, n_ranks, status;

        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
        if (argc != 4 || n_ranks > (int)RANKS_MAX || !parse(argv[1], UINT64_C(1) << 30, &bytes) ||
            bytes < sizeof(float) || !parse(argv[2], 1000000, &warmup) || !parse(argv[3], 1000000, &iterations) ||
            iterations == 0) {
                if (rank == 0)
                        fprintf(stderr, "usage: mpirun -n RANKS mpi_all_reduce BYTES WARMUP ITERATIONS\n");
                status = EXIT_USAGE;
        } else {
                b.rank = (uint32_t)rank;
                b.n_ranks = (uint32_t)n_ranks;
                b.count = bytes / sizeof(float);
                b.bytes = b.count * sizeof(float);
                b.warmup = (uint32_t)warmup;
                b.iterations = (uint32_t)iterations;
                status = run(&b);
                free(b.in);
                free(b.out);
                free(b.samples);
                free(b.slowest);
        }
        if (status == EXIT_FAILED)
                MPI_Abort(MPI_COMM_WORLD, status);
        MPI_Finalize();
        return status;
}
