/* SPDX-License-Identifier: MIT */
/*
 * The cost model, a skeleton with its final shape: time = phases * scheduling + hops on the longest chain + bytes of
 * the busiest rank / parallelism. On GPUs every rank has its own engine (parallel = ranks); the host backend shares a
 * few threads among all ranks, so there the sum over all ranks counts. Crossovers between algorithms come out of the
 * model; there are no byte limits in it.
 *
 * Shipped constants of the host backend: fitted by eye to 2 cores of an x86-64 server (docs/benchmarks.md); they decide
 * only where one_shot gives way to two_shot.
 */
#include "plan/cost.h"

#include <stddef.h>

#include "ring/ring.h"

#define STAGING_TARGET_BYTES (32u << 20)
#define PART_BYTES_MIN       4096u
#define PART_BYTES_MAX       65536u
#define SLOTS                2u

void plan_constants_host(struct plan_constants *constants, uint32_t n_workers) {
        *constants = (struct plan_constants){
                .hop_ns = 60,
                .ns_per_byte_link = 0.12,
                .ns_per_byte_reduce = 0.10,
                .ns_per_phase = 250,
                .parallel = n_workers ? n_workers : 1,
        };
}

/* Bytes and chunks that one rank pushes, copies and reduces. */
struct load {
        double chunks, bytes_moved, bytes_reduced, phases;
};

static struct load rank_load(const struct plan *plan, double bytes) {
        double n = plan->n_ranks, shard = bytes / n;
        struct load load = {.phases = plan->n_phases};

        for (uint32_t i = 0; i < plan->n_phases; i++) {
                const struct plan_phase *phase = &plan->phases[i];
                uint32_t range = phase->kind == PLAN_COPY ? phase->out_range : phase->in_range;
                bool sharded = range == PLAN_RANGE_SHARD_ME || range == PLAN_RANGE_SHARD_PEER;
                double span = range == PLAN_RANGE_NONE ? 0 : sharded ? shard : bytes;
                double peers = phase->peers == PLAN_PEERS_OTHERS ? n - 1 : 1;

                if (phase->kind == PLAN_REDUCE) {
                        load.bytes_reduced += span * n;
                        if (phase->forward) {
                                load.bytes_moved += span * (n - 1);
                                load.chunks += n - 1;
                        }
                } else {
                        load.bytes_moved += span * peers;
                        load.chunks += peers;
                }
        }
        return load;
}

double plan_cost_ns(const struct plan *plan, const struct plan_constants *constants, uint64_t count,
                    uint32_t element_bytes) {
        struct load load = rank_load(plan, (double)count * element_bytes);
        double ranks_at_once = plan->n_ranks < constants->parallel ? plan->n_ranks : constants->parallel;
        double rounds = plan->n_ranks / ranks_at_once;

        return rounds *
               (load.phases * constants->ns_per_phase + load.chunks * constants->hop_ns +
                load.bytes_moved * constants->ns_per_byte_link + load.bytes_reduced * constants->ns_per_byte_reduce);
}

void plan_geometry_choose(uint32_t n_ranks, struct plan_geometry *ret_geometry) {
        uint64_t channels = (uint64_t)n_ranks * (n_ranks > 1 ? n_ranks - 1 : 1) * PLAN_REGIONS_MAX * SLOTS;
        uint64_t part = STAGING_TARGET_BYTES / channels;

        part = part > PART_BYTES_MAX ? PART_BYTES_MAX : part < PART_BYTES_MIN ? PART_BYTES_MIN : part / 64 * 64;
        *ret_geometry = (struct plan_geometry){.part_bytes = (uint32_t)part, .slots = SLOTS};
}

uint64_t plan_staging_bytes(const struct plan_geometry *geometry, uint32_t n_ranks) {
        return (uint64_t)n_ranks * (n_ranks - 1) * PLAN_REGIONS_MAX * geometry->slots * geometry->part_bytes;
}

static void choice_add(struct plan_choice *choices, uint32_t *n, uint32_t operation, uint32_t algorithm,
                       uint64_t max_bytes) {
        choices[(*n)++] = (struct plan_choice){.operation = operation, .algorithm = algorithm, .max_bytes = max_bytes};
}

/* The largest power of two of bytes up to which plan a is predicted not slower than plan b; 0: never, UINT64_MAX:
 * always. */
static uint64_t crossover(const struct plan *a, const struct plan *b, const struct plan_constants *constants) {
        uint64_t last = 0;

        for (unsigned int shift = 4; shift < 40; shift++) {
                uint64_t bytes = UINT64_C(1) << shift;

                if (plan_cost_ns(a, constants, bytes / 4, 4) > plan_cost_ns(b, constants, bytes / 4, 4))
                        return last;
                last = bytes;
        }
        return UINT64_MAX;
}

uint32_t plan_choose(const struct plan_constants *constants, uint32_t n_ranks,
                     struct plan_choice choices[PLAN_CHOICES_MAX]) {
        static const uint32_t direct[] = {RING_OP_ALL_GATHER, RING_OP_REDUCE_SCATTER, RING_OP_BROADCAST,
                                          RING_OP_BARRIER};
        struct plan one_shot, two_shot;
        uint64_t limit = UINT64_MAX;
        uint32_t n = 0;

        if (plan_build(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, n_ranks, &one_shot) ||
            plan_build(RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, n_ranks, &two_shot))
                return 0;
        if (n_ranks > 1)
                limit = crossover(&one_shot, &two_shot, constants);
        if (limit)
                choice_add(choices, &n, RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, limit);
        if (limit != UINT64_MAX)
                choice_add(choices, &n, RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, UINT64_MAX);
        for (unsigned int i = 0; i < sizeof(direct) / sizeof(direct[0]); i++)
                choice_add(choices, &n, direct[i], PLAN_DIRECT, UINT64_MAX);
        return n;
}

const struct plan_choice *plan_choice_find(const struct plan_choice *choices, uint32_t n_choices, uint32_t operation,
                                           uint64_t bytes) {
        for (uint32_t i = 0; i < n_choices; i++)
                if (choices[i].operation == operation && bytes <= choices[i].max_bytes)
                        return &choices[i];
        return NULL;
}
