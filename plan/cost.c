/* SPDX-License-Identifier: MIT */
/*
 * The cost model
 *
 * Predicted time = what every request costs + the largest of three: the longest chain of steps in which each waits for
 * the one before (chunks, credits, `after`), the work of the busiest rank, and all work divided among those who do it.
 * Ranks that have an engine each (GPUs) work side by side, and the busiest one counts; on the host backend all ranks
 * share `parallel` worker threads, and the sum counts. Work is what a plan's steps are made of: so much per phase, per
 * end of a chunk or signal, per byte written, per byte that goes into a reduction.
 *
 * Nothing else decides between algorithms: where one_shot, which sends everything to everyone, loses to two_shot, which
 * needs twice the chunks and one more hop, is where the two predictions cross. There are no sizes in here and no names
 * of algorithms: a new plan is priced by its steps, and a GPU with measured constants gets its own crossings.
 *
 * The host backend's constants were fitted (railmux-sim fit) to its interpreter on an AVX-512 server: all algorithms, 2
 * to 16 ranks served by one thread, 16 bytes to 512 KiB, data in cache. The mean error of the fit is a fifth; out of
 * cache bytes take two to three times as long, whatever moves them. What a turn takes was set to where the choices are
 * best, above what fits best, since a worker may happen to look at ranks in the very order in which they need it: what
 * is chosen takes on the average one per cent longer than the fastest that was measured, at the worst a quarter. A hop
 * to another worker was measured with two threads and includes that the worker is busy with another rank; with one
 * worker it is the time until that rank's turn.
 */
#include "plan/cost.h"

#include <math.h>

#define STAGING_TARGET_BYTES (UINT64_C(32) << 20)
#define PART_ALIGN           64u
#define PART_BYTES_MIN       4096u
#define PART_BYTES_MAX       65536u
#define SLOTS                2u
#define NODES_BYTES          (UINT32_C(2) << 20) /* of a request that has to wait for no credit between nodes */
#define NODES_SLOTS_MIN      4u
#define NODES_SLOTS_MAX      32u
#define PARTIAL_BYTES_MIN    4u

void plan_constants_host(struct plan_constants *constants, uint32_t n_workers) {
        *constants = (struct plan_constants){
                .request_ns = 72,
                .hop_ns = n_workers > 1 ? 200 : 30,
                .ns_per_phase = 14,
                .ns_per_chunk = 22,
                .ns_per_signal = 13,
                .ns_per_byte_copy = 0.010,
                .ns_per_byte_reduce = 0.012,
                .ns_per_byte_fold = 0.0125,
                .ns_per_turn = 25,
                .parallel = n_workers > 0 ? n_workers : 1,
        };
}

/* Rough: from benchmarks of one node (docs/performance.md). Over nodes the wires decide. */
void plan_constants_device(struct plan_constants *constants) {
        *constants = (struct plan_constants){
                .request_ns = 3000,
                .hop_ns = 1000,
                .ns_per_phase = 200,
                .ns_per_chunk = 500,
                .ns_per_signal = 300,
                .ns_per_byte_copy = 0.01,
                .ns_per_byte_reduce = 0.01,
                .ns_per_byte_fold = 0.01,
                .ns_per_turn = 0,
                .parallel = PLAN_RANKS_MAX,
        };
}

double plan_cost_ns(const struct plan *plan, const struct plan_constants *constants, uint64_t count,
                    uint32_t element_bytes) {
        uint32_t partial_bytes = element_bytes > PARTIAL_BYTES_MIN ? element_bytes : PARTIAL_BYTES_MIN;
        struct plan_model model;
        struct plan_cost cost;

        if (plan_model_init(&model, plan, constants, NULL, element_bytes, partial_bytes))
                return INFINITY;
        plan_model_predict(&model, count, &cost);
        return cost.ns;
}

int plan_cost_hops(const struct plan *plan) {
        const struct plan_constants nothing = {.parallel = 1};
        struct plan_model model;
        struct plan_cost cost;

        if (plan_model_init(&model, plan, &nothing, NULL, 1, 1))
                return -1;
        plan_model_predict(&model, 1, &cost);
        return (int)lround(cost.hops);
}

/* ---- staging ----------------------------------------------------------------------------------------------------- */
uint64_t plan_staging_bytes(const struct plan_geometry *geometry, uint32_t n_ranks) {
        uint64_t others = (uint64_t)n_ranks * (n_ranks - 1) * plan_channel_slots(geometry, n_ranks, false);
        uint64_t selves = (uint64_t)n_ranks * plan_channel_slots(geometry, n_ranks, true), bytes = 0;

        for (uint32_t region = 0; region < PLAN_REGIONS_MAX; region++)
                bytes += (others + selves) * plan_slot_bytes(geometry, region);
        return bytes;
}

void plan_geometry_choose(uint32_t n_ranks, struct plan_geometry *ret_geometry) {
        struct plan_geometry geometry = {.part_bytes = 0, .slots = SLOTS};
        uint64_t fixed = plan_staging_bytes(&geometry, n_ranks), per_unit, part;

        geometry.part_bytes = PART_ALIGN;
        per_unit = plan_staging_bytes(&geometry, n_ranks) - fixed;
        part = (STAGING_TARGET_BYTES - fixed) / per_unit * PART_ALIGN;
        if (part > PART_BYTES_MAX)
                part = PART_BYTES_MAX;
        if (part < PART_BYTES_MIN)
                part = PART_BYTES_MIN; /* smaller parts cost more than the memory is worth */
        geometry.part_bytes = (uint32_t)part;
        *ret_geometry = geometry;
}

void plan_geometry_choose_nodes(uint32_t n_ranks, struct plan_geometry *ret_geometry) {
        uint32_t bytes = (NODES_BYTES + n_ranks - 1) / n_ranks, slots = (bytes + PART_BYTES_MAX - 1) / PART_BYTES_MAX;
        uint32_t part = PART_BYTES_MAX; /* as long as it can be: fabrics let long ones take any rail */

        if (slots < NODES_SLOTS_MIN) {
                slots = NODES_SLOTS_MIN;
                part = (bytes / slots + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
                part = part < PART_BYTES_MIN ? PART_BYTES_MIN : part;
        }
        slots = slots > NODES_SLOTS_MAX ? NODES_SLOTS_MAX : slots;
        *ret_geometry = (struct plan_geometry){.part_bytes = part, .slots = slots};
}
