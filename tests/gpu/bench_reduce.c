/* SPDX-License-Identifier: MIT */
/*
 * How fast the reduction kernels are, against memcpy of the same bytes. Not a test: it asserts nothing.
 * usage: bench_reduce [type [redop]]
 *
 * GB/s count every byte read and every byte written once: (n + n_out) * length. memcpy copies as many arrays as come
 * closest to that, to as many places.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/host/reduce.h"
#include "util/type.h"

#define ARRAYS    16u
#define BYTES_MAX ((size_t)32 << 20)
#define MIN_NS    30000000u
#define REPEATS   3u

static unsigned char *array[ARRAYS];

static uint64_t now_ns(void) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Bytes per nanosecond; fn NULL: memcpy. The best of a few. */
static double measure(reduce_fn fn, const struct reduce_call *call, size_t array_bytes) {
        uint32_t n_copies = (call->n + call->n_out) / 2;
        size_t moved = (fn ? call->n + call->n_out : 2 * n_copies) * array_bytes;
        double best = 0;

        for (uint32_t repeat = 0; repeat < REPEATS; repeat++) {
                uint64_t begin = now_ns(), end, n_calls = 0;

                do {
                        if (fn)
                                fn(call);
                        else
                                for (uint32_t i = 0; i < n_copies; i++)
                                        memcpy(array[ARRAYS / 2 + i], array[i], array_bytes);
                        n_calls++;
                        end = now_ns();
                } while (end - begin < MIN_NS);
                if ((double)(moved * n_calls) / (double)(end - begin) > best)
                        best = (double)(moved * n_calls) / (double)(end - begin);
        }
        return best;
}

int main(int argc, char **argv) {
        static const uint32_t sources[] = {2, 4, 8};
        static const uint32_t outs[] = {1, 8};
        static const size_t lengths[] = {2048, 65536,
                                         BYTES_MAX}; /* of one array: first-level, second-level, no cache */
        uint32_t type = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : RMX_FLOAT32;
        uint32_t redop = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : RMX_SUM;
        const struct reduce_kernels *kernels;

        if (!reduce_supported(type, redop))
                return 2;
        for (uint32_t i = 0; i < ARRAYS; i++) {
                array[i] = aligned_alloc(4096, BYTES_MAX);
                if (!array[i])
                        return 1;
                memset(array[i], 0, BYTES_MAX);
        }
        printf("type %u redop %u, GB/s read and written\n", type, redop);
        printf("%-7s %3s %5s %9s %8s %8s %8s\n", "set", "n", "n_out", "bytes", "memcpy", "reduce", "stream");
        for (unsigned int k = 0; (kernels = reduce_kernels_at(k)); k++)
                for (size_t s = 0; s < sizeof(sources) / sizeof(sources[0]); s++)
                        for (size_t o = 0; o < sizeof(outs) / sizeof(outs[0]); o++)
                                for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
                                        struct reduce_call call = {
                                                .out = (void *const *)&array[ARRAYS / 2],
                                                .n_out = outs[o],
                                                .source = (const void *const *)array,
                                                .n = sources[s],
                                                .n_ranks = sources[s],
                                                .finish = true,
                                                .length = lengths[l] / type_size(type),
                                        };
                                        double copy = measure(NULL, &call, lengths[l]);
                                        double plain = measure(kernels->fn[type][redop], &call, lengths[l]);

                                        call.stream = true;
                                        printf("%-7s %3u %5u %9zu %8.1f %8.1f %8.1f\n", kernels->name, call.n,
                                               call.n_out, lengths[l], copy, plain,
                                               measure(kernels->fn[type][redop], &call, lengths[l]));
                                }
        return 0;
}
