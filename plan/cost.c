/* SPDX-License-Identifier: MIT */
/*
 * The cost model
 *
 * Predicted time = latency of the longest chain of chunks + work. The work of a rank is what its own phases cost: so
 * much per phase, per end of a chunk, per byte copied into or out of a slot, per input byte of a reduction. Ranks that
 * have an engine each (GPUs) work side by side, and the busiest one counts; on the host backend all ranks share
 * `parallel` worker threads, and the sum counts.
 *
 * Nothing else decides between algorithms: where one_shot, which sends everything to everyone, loses to two_shot,
 * which needs twice the chunks and one more hop, is where the two predictions cross. There are no sizes in here, and a
 * GPU with measured constants gets its own crossing.
 *
 * The host backend's constants were fitted to its interpreter, one thread serving all ranks of 2 to 16, data in cache,
 * on an AVX-512 server: 17 ns for an end of a chunk, 60 GB/s for copies and for what reductions read. They are
 * within a factor of two there from 64 bytes to 4 MB; out of cache everything slows down alike.
 */
#include "plan/cost.h"

#include "ring/ring.h"

#define STAGING_TARGET_BYTES (UINT64_C(32) << 20)
#define PART_ALIGN           64u
#define PART_BYTES_MIN       4096u
#define PART_BYTES_MAX       65536u
#define SLOTS                2u
#define CROSSING_SHIFT_MIN   4u
#define CROSSING_SHIFT_MAX   40u
#define CROSSING_ELEMENT     4u /* bytes */

void plan_constants_host(struct plan_constants *constants, uint32_t n_workers) {
        *constants = (struct plan_constants){
                .hop_ns = 300, /* the line goes to another core, and its worker is busy with another rank */
                .ns_per_chunk = 17,
                .ns_per_byte_link = 0.017,
                .ns_per_byte_reduce = 0.017,
                .ns_per_phase = 10,
                .parallel = n_workers > 0 ? n_workers : 1,
        };
}

/* ---- prediction -------------------------------------------------------------------------------------------------- */
struct cost_request {
        const struct plan *plan;
        const struct plan_constants *constants;
        struct plan_geometry geometry;
        uint64_t count;
        uint32_t element_bytes;
};

/* All elements of a range that rank `me` has with one peer (shards and blocks: the longest). */
static double range_bytes(const struct cost_request *q, uint32_t range) {
        uint64_t elements = q->count;

        if (range == PLAN_RANGE_NONE)
                return 0;
        if (range == PLAN_RANGE_SHARD_ME || range == PLAN_RANGE_SHARD_PEER) {
                elements = plan_shard_elements(q->count, q->plan->n_ranks, q->element_bytes);
                elements = elements < q->count ? elements : q->count;
        }
        return (double)elements * q->element_bytes;
}

static double phase_ns(const struct cost_request *q, const struct plan_phase *phase, uint32_t me, uint32_t root) {
        const struct plan_constants *k = q->constants;
        double parts = (double)plan_phase_parts(q->plan, phase, &q->geometry, q->count, q->element_bytes);
        double peers = plan_phase_peers(q->plan, phase, me, root);
        double bytes = range_bytes(q, phase->in_range != PLAN_RANGE_NONE ? phase->in_range : phase->out_range);
        double ns = k->ns_per_phase;

        if (phase->kind == PLAN_COPY && phase->peers == PLAN_PEERS_SELF)
                return ns + bytes * k->ns_per_byte_link;
        if (phase->kind == PLAN_REDUCE) {
                ns += parts * peers * k->ns_per_chunk + bytes * (peers + 1) * k->ns_per_byte_reduce;
                if (!phase->forward)
                        return ns;
        }
        return ns + parts * peers * k->ns_per_chunk + bytes * peers * k->ns_per_byte_link;
}

/* Chunks on the longest chain in which each one needs the one before it. */
static uint32_t plan_hops(const struct plan *plan) {
        uint32_t arrives[PLAN_REGIONS_MAX] = {0}, most = 0;

        for (uint32_t round = 0; round < PLAN_REGIONS_MAX; round++)
                for (uint32_t p = 0; p < plan->n_phases; p++) {
                        const struct plan_phase *phase = &plan->phases[p];
                        uint32_t hops = 0;

                        if (phase->kind == PLAN_PUSH || phase->kind == PLAN_SIGNAL)
                                hops = 1;
                        else if (phase->kind == PLAN_REDUCE && phase->forward)
                                hops = arrives[phase->region_in] + 1;
                        if (hops > arrives[phase->region_out])
                                arrives[phase->region_out] = hops;
                }
        for (uint32_t region = 0; region < PLAN_REGIONS_MAX; region++)
                most = arrives[region] > most ? arrives[region] : most;
        return plan->n_ranks > 1 ? most : 0;
}

double plan_cost_ns(const struct plan *plan, const struct plan_constants *constants, uint64_t count,
                    uint32_t element_bytes) {
        struct cost_request q = {plan, constants, {0}, count, element_bytes};
        double total = 0, busiest = 0;

        plan_geometry_choose(plan->n_ranks, &q.geometry);
        for (uint32_t me = 0; me < plan->n_ranks; me++) {
                double ns = 0;

                for (uint32_t p = 0; p < plan->n_phases; p++)
                        if (plan_phase_mine(&plan->phases[p], me, 0))
                                ns += phase_ns(&q, &plan->phases[p], me, 0);
                total += ns;
                busiest = ns > busiest ? ns : busiest;
        }
        total /= constants->parallel > 0 ? constants->parallel : 1;
        return plan_hops(plan) * constants->hop_ns + (total > busiest ? total : busiest);
}

/* ---- staging ----------------------------------------------------------------------------------------------------- */
static uint64_t n_channels(uint32_t n_ranks) {
        return n_ranks > 1 ? (uint64_t)n_ranks * (n_ranks - 1) * PLAN_REGIONS_MAX : 0;
}

void plan_geometry_choose(uint32_t n_ranks, struct plan_geometry *ret_geometry) {
        uint64_t part = PART_BYTES_MAX;

        if (n_ranks > 1)
                part = STAGING_TARGET_BYTES / (n_channels(n_ranks) * SLOTS) / PART_ALIGN * PART_ALIGN;
        if (part > PART_BYTES_MAX)
                part = PART_BYTES_MAX;
        if (part < PART_BYTES_MIN)
                part = PART_BYTES_MIN; /* smaller parts cost more than the memory is worth */
        *ret_geometry = (struct plan_geometry){.part_bytes = (uint32_t)part, .slots = SLOTS};
}

uint64_t plan_staging_bytes(const struct plan_geometry *geometry, uint32_t n_ranks) {
        return n_channels(n_ranks) * geometry->slots * geometry->part_bytes;
}

/* ---- choice ------------------------------------------------------------------------------------------------------ */
/* The largest power of two of bytes up to which `first` is nowhere predicted slower than `then`. 0: it is from the
 * beginning; UINT64_MAX: it never is. */
static uint64_t crossing(const struct plan *first, const struct plan *then, const struct plan_constants *constants) {
        uint64_t limit = 0;

        for (uint32_t shift = CROSSING_SHIFT_MIN; shift <= CROSSING_SHIFT_MAX; shift++) {
                uint64_t bytes = UINT64_C(1) << shift;

                if (plan_cost_ns(first, constants, bytes / CROSSING_ELEMENT, CROSSING_ELEMENT) >
                    plan_cost_ns(then, constants, bytes / CROSSING_ELEMENT, CROSSING_ELEMENT))
                        return limit;
                limit = bytes;
        }
        return UINT64_MAX;
}

static uint32_t choose(const struct plan_constants *constants, uint32_t n_ranks, uint32_t operation,
                       const uint32_t *algorithms, uint32_t n_algorithms, struct plan_choice *choices) {
        uint64_t done = 0;
        uint32_t n = 0;

        for (uint32_t i = 0; i < n_algorithms && done < UINT64_MAX; i++) {
                uint64_t limit = UINT64_MAX;
                struct plan plan, next;

                if (i + 1 < n_algorithms && !plan_build(operation, algorithms[i], n_ranks, &plan) &&
                    !plan_build(operation, algorithms[i + 1], n_ranks, &next))
                        limit = crossing(&plan, &next, constants);
                if (limit <= done)
                        continue;
                choices[n++] = (struct plan_choice){operation, algorithms[i], limit};
                done = limit;
        }
        return n;
}

uint32_t plan_choose(const struct plan_constants *constants, uint32_t n_ranks,
                     struct plan_choice choices[PLAN_CHOICES_MAX]) {
        static const struct {
                uint32_t operation;
                uint32_t n_algorithms;
                uint32_t algorithms[2]; /* for small requests first */
        } candidates[] = {
                {RING_OP_ALL_REDUCE, 2, {PLAN_ONE_SHOT, PLAN_TWO_SHOT}},
                {RING_OP_ALL_GATHER, 1, {PLAN_DIRECT}},
                {RING_OP_REDUCE_SCATTER, 1, {PLAN_DIRECT}},
                {RING_OP_BROADCAST, 1, {PLAN_DIRECT}},
                {RING_OP_BARRIER, 1, {PLAN_DIRECT}},
        };
        uint32_t n = 0;

        if (n_ranks < 1 || n_ranks > PLAN_RANKS_MAX)
                return 0;
        for (size_t i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++)
                n += choose(constants, n_ranks, candidates[i].operation, candidates[i].algorithms,
                            candidates[i].n_algorithms, choices + n);
        return n;
}

const struct plan_choice *plan_choice_find(const struct plan_choice *choices, uint32_t n_choices, uint32_t operation,
                                           uint64_t bytes) {
        for (uint32_t i = 0; i < n_choices; i++)
                if (choices[i].operation == operation && bytes <= choices[i].max_bytes)
                        return &choices[i];
        return NULL;
}
