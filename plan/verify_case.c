/* SPDX-License-Identifier: MIT */
/* Cases: what they mean, and those that plan_verify_all() takes. See verify.c. */
#include "plan/verify_machine.h"
#include "ring/ring.h"

#define CASE_RANKS_MANY 16u /* above, fewer cases */
#define GEOMETRY_ALIGN  64u

/* ---- what a case means ------------------------------------------------------------------------------------------- */
/* Any function will do, if all agree on it (splitmix64's). */
static uint64_t mix(uint64_t x) {
        x += UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
        return x ^ x >> 31;
}

/* Elements that `from` sends to `to`. */
static uint64_t vector_count(const struct plan_case *c, uint32_t n_ranks, uint32_t from, uint32_t to) {
        uint64_t random = mix((uint64_t)c->vector << 32 | n_ranks << 16 | from << 8 | to);

        /* Every eighth seed: all pairs have all, so that all channels fill up together. */
        if (c->vector % 8 == 1)
                return c->count;
        /* Every third seed: few pairs have anything, so some ranks have nothing from any other node, or from their own.
         */
        if (c->vector % 3 == 2 && (random >> 60) % 4 != 0)
                return 0;
        switch (random % 8) {
        case 0:
        case 1:
                return 0;
        case 2:
                return c->count > 0;
        case 3:
        case 4:
                return c->count;
        default:
                return (random >> 3) % (c->count + 1);
        }
}

void plan_case_vector(const struct plan_case *pcase, uint32_t n_ranks, uint32_t rank, uint64_t *storage,
                      struct plan_vector *ret_vector) {
        uint64_t *send_count = storage, *send_offset = storage + n_ranks;
        uint64_t *recv_count = storage + 2 * n_ranks, *recv_offset = storage + 3 * n_ranks;
        uint64_t send_end = 0, recv_end = 0, random = mix(~(uint64_t)pcase->vector << 8 ^ rank);
        uint32_t first = (uint32_t)(random % n_ranks);

        for (uint32_t i = 0; i < n_ranks; i++) { /* pieces lie in any order, with gaps of up to three elements */
                uint32_t to = (first + i) % n_ranks, from = (first + n_ranks - i) % n_ranks;

                send_count[to] = vector_count(pcase, n_ranks, rank, to);
                send_offset[to] = send_end + random % 4;
                send_end = send_offset[to] + send_count[to];
                recv_count[from] = vector_count(pcase, n_ranks, from, rank);
                recv_offset[from] = recv_end + (random >> 8) % 4;
                recv_end = recv_offset[from] + recv_count[from];
                random = mix(random);
        }
        *ret_vector = (struct plan_vector){send_count, send_offset, recv_count, recv_offset};
}

void plan_case_shape(const struct plan_case *pcase, const struct plan_vector *vector, struct plan_shape *ret_shape) {
        *ret_shape = (struct plan_shape){
                .count = pcase->count,
                .element_bytes = pcase->element_bytes,
                .partial_bytes = pcase->partial_bytes ? pcase->partial_bytes : pcase->element_bytes,
                .root = pcase->root,
                .peer = pcase->peer,
                .role = PLAN_ROLE_ANY,
                .vector = vector,
        };
}

/* ---- all cases of a plan ----------------------------------------------------------------------------------------- */
static bool plan_shards(const struct plan *plan) {
        for (uint32_t p = 0; p < plan->n_phases && p < PLAN_PHASES_MAX; p++) {
                const struct plan_phase *phase = &plan->phases[p];

                if (phase->in_range == PLAN_RANGE_SHARD_ME || phase->in_range == PLAN_RANGE_SHARD_PEER ||
                    phase->out_range == PLAN_RANGE_SHARD_ME || phase->out_range == PLAN_RANGE_SHARD_PEER)
                        return true;
        }
        return false;
}

static bool plan_hierarchical(const struct plan *plan) {
        for (uint32_t p = 0; p < plan->n_phases; p++)
                if (plan->phases[p].schedule >= PLAN_SCHEDULE_NODES)
                        return true;
        return false;
}

/* Counts from small to large; the last one writes every slot three times. */
enum { COUNT_NONE, COUNT_ONE, COUNT_EMPTY_SHARDS, COUNT_RAGGED, COUNT_PART, COUNT_PARTS, COUNT_LAPS, N_COUNTS };

static uint64_t count_of(const struct plan *plan, const struct plan_case *c, uint32_t which) {
        struct plan_shape shape;
        uint64_t unit;

        plan_case_shape(c, NULL, &shape);
        unit = plan_part_elements(plan, &c->geometry, &shape) * (plan_shards(plan) ? plan->n_shards : 1);
        switch (which) {
        case COUNT_NONE:
                return 0;
        case COUNT_ONE:
                return 1;
        case COUNT_EMPTY_SHARDS:
                return 16 / c->element_bytes + 1; /* after a granule, the second shard has one, the others none */
        case COUNT_RAGGED:
                return unit - 3;
        case COUNT_PART:
                return unit;
        case COUNT_PARTS:
                return unit + 1;
        default:
                return unit * (2 * c->geometry.slots + 1) - 3;
        }
}

/* One way to call the operation: any number gives one, and few numbers give all kinds. */
static struct plan_case case_of(const struct plan *plan, const struct plan_geometry *geometry, uint32_t count,
                                uint32_t way, bool in_place) {
        static const uint8_t bytes[][2] = {{4, 4}, {2, 4}, {4, 0}, {1, 4}}; /* of an element, of an accumulator */
        uint32_t n = plan->n_ranks, last = n - 1;
        struct plan_case c = {
                .geometry = *geometry,
                .element_bytes = bytes[(way + count) % 4][0],
                .partial_bytes = bytes[(way + count) % 4][1],
                .vector = 1 + way + 8 * count,
                .in_place = in_place && plan_case_in_place(plan->operation),
        };

        if (plan_operation_rooted(plan->operation))
                c.root = way % 4 == 0 ? 0 : way % 4 == 1 ? 1 % n : way % 4 == 2 ? last : n / 2;
        if (plan_operation_p2p(plan->operation)) {
                c.root = way % 4 == 0 ? 0 : way % 4 == 1 ? last : n / 2;
                c.peer = way % 4 == 0 ? last : way % 4 == 1 ? 0 : way % 4 == 2 ? n / 2 : 0;
        }
        c.count = count_of(plan, &c, count);
        return c;
}

/*
 * `count` followed by another request of the same plan, with another count, root, place and size of elements.
 *
 * An all_to_all_v of few ranks takes each count with all kinds of numbers. Of many ranks there are two ways: one with
 * all pairs full, and one (6: see vector_count) whose first request is sparse, so that some ranks wait for nothing.
 */
bool verify_call(const struct plan *plan, const struct plan_geometry *geometry, uint32_t call,
                 struct plan_case *ret_case, struct plan_case *ret_next) {
        static const uint32_t counts_of_many[] = {COUNT_NONE, COUNT_EMPTY_SHARDS, COUNT_PARTS, COUNT_LAPS};
        bool roots = plan_operation_rooted(plan->operation) || plan_operation_p2p(plan->operation);
        bool vectors = plan->operation == RING_OP_ALL_TO_ALL_V, many = plan->n_ranks > CASE_RANKS_MANY;
        uint32_t n_ways = vectors && !many ? 4 : (vectors || roots) && plan->n_ranks > 1 ? 2 : 1;
        uint32_t n_places = many || !plan_case_in_place(plan->operation) ? 1 : 2;
        uint32_t n_counts = many ? sizeof(counts_of_many) / sizeof(counts_of_many[0]) : N_COUNTS;
        uint32_t which = call / (n_places * n_ways), i = call % (n_places * n_ways), count, next_count, way;

        if (which >= n_counts)
                return false;
        count = many ? counts_of_many[which] : which;
        next_count = count == COUNT_LAPS ? COUNT_LAPS : (count * 3 + 1) % COUNT_LAPS;
        way = i / n_places * (vectors && many ? 6 : 2);
        *ret_case = case_of(plan, geometry, count, way, i % n_places == 0);
        *ret_next = case_of(plan, geometry, next_count, way + 1, i % n_places != 0);
        return true;
}

/* The most chunks that a phase has in a rank's channel to itself at once, of those that it puts there in one part. */
static uint32_t self_chunks(const struct plan *plan, const struct plan_geometry *geometry,
                            const struct plan_shape *shape) {
        uint32_t most = 0;

        for (uint32_t cursor = 0; cursor < plan->n_ranks * plan->n_phases; cursor++) {
                const struct plan_phase *phase = &plan->phases[cursor / plan->n_ranks];
                uint32_t me = cursor % plan->n_ranks, n_steps = plan_phase_steps(plan, phase, shape, me), n = 0;
                struct plan_step step;

                for (uint32_t k = 0; k < n_steps; k++) {
                        if (!plan_step(plan, phase, geometry, shape, me, 0, k, &step))
                                continue;
                        for (uint32_t i = 0; phase->region_in == phase->region_out && i < step.n_sources; i++)
                                n -= n > 0 && step.source[i].kind == PLAN_SOURCE_CHUNK && step.source[i].rank == me;
                        for (uint32_t i = 0; i < step.n_targets; i++)
                                n += step.target[i] == me;
                        most = n > most ? n : most;
                }
        }
        return most;
}

/*
 * Over nodes one phase fills a rank's channel to itself for another one, and that has more slots than the others have:
 * so that it is full in as few parts, it gets fewer here, but two at least, as one step may take a chunk and put the
 * next. If nobody gets stuck with those, nobody does with more.
 */
static int verify_self(const struct plan *plan, const struct plan_geometry *geometry, uint32_t *n_runs,
                       struct plan_verdict *ret_verdict) {
        struct verify_options options = VERIFY_OPTIONS_NULL;
        struct plan_case c = case_of(plan, geometry, COUNT_LAPS, 0, false);
        struct plan_shape shape;

        plan_case_shape(&c, NULL, &shape);
        options.self_slots = self_chunks(plan, geometry, &shape);
        if (options.self_slots == 0)
                return 0;
        if (options.self_slots < geometry->slots || options.self_slots < 2)
                options.self_slots = geometry->slots > 2 ? geometry->slots : 2;
        c.count = (c.count + 3) / (2 * geometry->slots + 1) * (2 * options.self_slots + 1) - 3;
        ++*n_runs;
        return verify_pair(plan, &c, NULL, NULL, &options, ret_verdict);
}

/* With all counts. */
static int verify_counts(const struct plan *plan, const struct plan_geometry *geometry,
                         const struct verify_options *options, uint32_t *n_runs, struct plan_verdict *ret_verdict) {
        struct plan_case c, next;
        int r;

        if (geometry->part_bytes < GEOMETRY_ALIGN || geometry->part_bytes % GEOMETRY_ALIGN != 0 ||
            geometry->slots < 1 || geometry->slots > VERIFY_SLOTS_MAX)
                return verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, NULL, "the geometry is out of bounds");
        r = verify_form(plan, ret_verdict);
        for (uint32_t i = 0; !r && verify_call(plan, geometry, i, &c, &next); i++, ++*n_runs)
                r = verify_pair(plan, &c, plan, &next, options, ret_verdict);
        return r;
}

int verify_all(const struct plan *plan, const struct plan_geometry *geometry, const struct plan *peers,
               uint32_t n_peers, uint32_t *ret_runs, struct plan_verdict *ret_verdict) {
        const struct verify_options options = VERIFY_OPTIONS_NULL;
        uint32_t n_runs = 0;
        int r = verify_counts(plan, geometry, &options, &n_runs, ret_verdict);

        if (!r && plan_hierarchical(plan))
                r = verify_self(plan, geometry, &n_runs, ret_verdict);
        for (uint32_t i = 0; !r && i < n_peers; i++, n_runs++) {
                struct plan_case c = case_of(plan, geometry, COUNT_PARTS, i, i % 2);
                struct plan_case next;

                r = verify_form(&peers[i], ret_verdict);
                if (r)
                        break;
                next = case_of(&peers[i], geometry, COUNT_PARTS, i + 1, i % 2 == 0);
                r = plan_verify(plan, &c, &peers[i], &next, ret_verdict);
        }
        if (!r)
                *ret_runs = n_runs;
        return r;
}

int plan_verify_all(const struct plan *plan, const struct plan_geometry *geometry, const struct plan *peers,
                    uint32_t n_peers, struct plan_verdict *ret_verdict) {
        uint32_t n_runs;

        return verify_all(plan, geometry, peers, n_peers, &n_runs, ret_verdict);
}

int plan_verify_alike(const struct plan *plan, const struct plan_geometry *geometry, struct plan_verdict *ret_verdict) {
        struct verify_options options = VERIFY_OPTIONS_NULL;
        uint32_t n_runs = 0;

        options.self_slots = geometry->slots;
        return verify_counts(plan, geometry, &options, &n_runs, ret_verdict);
}
