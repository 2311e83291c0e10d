/* SPDX-License-Identifier: MIT */
/*
 * How a plan is proved
 *
 * One execution shows them all. Which chunk a step takes, which credit it needs and which steps come before it on its
 * own rank are fixed by the plan; no step asks what time it is or who was first. Phases of ranks are then processes
 * that talk through bounded FIFOs with blocking reads and writes (a REDUCE waits for several, in any order: each stays
 * true once it is true). Such a network computes the same and gets stuck at the same place under every schedule,
 * provided that each end of each FIFO belongs to one process at a time. So the machine (verify_machine.c,
 * verify_step.c) runs all phases of all ranks once, in any order, on symbols, and keeps apart what is ordered from what
 * merely happened so:
 *
 *   Every (rank, phase) has a vector clock with a component for every (rank, phase). Clocks are joined only where
 *   the plan promises order: from step to step of a phase, from a part of the `after` phase, from a chunk's flag to
 *   its use, from a slot's release to its next write, from the end of a rank's request to the beginning of its next.
 *   Every access to memory, to a slot and to the counter at either end of a channel is compared with the clocks of
 *   the conflicting accesses before it.
 *
 * Faults:
 *
 *   malformed   fields outside their enums, or a combination without meaning (verify_form.c)
 *   deadlock    nothing moves and something is unfinished; credits belong to the machine, so a cycle may contain them
 *   race        conflicting accesses without order: input against output in place, the data in a slot, two phases at
 *               the same end of a channel (the proviso above), a completion before all phases are done
 *   bounds      an access outside input, output or slot
 *   value       an output element that is not what the operation promises: the right rank's element, or a reduction
 *               of the right element of every rank, each once, in rank order. What nobody writes is poison or old
 *               input. All ranks are promised the same, so they get the same. A barrier promises that all have begun
 *   unconsumed  chunks pushed and taken differ on a channel within one request
 *
 * Symbols. A run of consecutive elements is one symbol: the first element and the length (verify_memory.c cuts buffers
 * where spans begin and end). So the real geometry and real counts are used, and cost depends on the number of chunks
 * only.
 *
 * Sequences. A request alone, and one plan after another on the same channels, are executed; plan.c argues why one plan
 * that leaves nothing behind is right after any other.
 *
 * Cases. The count of a request decides the number of parts, and the lengths of the last ones, and nothing else.
 * plan_verify_all takes none, less than a granule, empty and ragged shards, exactly one part, one element more than
 * full parts, and enough parts to write every slot three times. Beyond that, part i does what part i - slots did. This
 * last sentence is an argument, not a computation; tests add random counts.
 *
 * Chunk numbers. The machine has flags and credits of counter_bits bits which may start anywhere and wrap. In a slot
 * that waits for chunk c lies the flag of chunk c - slots (or the start), so comparing for equality fails only if slots
 * is a multiple of 2^bits; and credit is at most `slots` behind, so the difference is exact if slots < 2^bits. Tests
 * run the wrap with narrow counters, and find the race when slots is too large for them.
 *
 * An executor's own mistakes (a flag before its data, a credit not waited for) cannot be written as a plan. The machine
 * can make them (struct verify_mutation), for one reason: to test that it sees them.
 */
#include "plan/verify.h"

#include "plan/verify_machine.h"

#define CASE_ELEMENT_BYTES 4u
#define CASE_RANKS_MANY    16u /* above, fewer cases: each costs n^2 clocks of n components */
#define GEOMETRY_ALIGN     64u

int verify_pair(const struct plan *plan, const struct plan_case *pcase, const struct plan *next,
                const struct plan_case *next_case, const struct verify_options *options,
                struct plan_verdict *ret_verdict) {
        const struct verify_request requests[VERIFY_REQUESTS_MAX] = {{plan, pcase}, {next, next_case}};
        int r;

        r = verify_form(plan, ret_verdict);
        if (!r)
                r = verify_form_case(plan, pcase, ret_verdict);
        if (!r && next) {
                r = verify_form(next, ret_verdict);
                if (!r)
                        r = verify_form_case(next, next_case, ret_verdict);
                if (!r && (next->n_ranks != plan->n_ranks || next_case->geometry.slots != pcase->geometry.slots ||
                           next_case->geometry.part_bytes != pcase->geometry.part_bytes))
                        r = verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, NULL,
                                         "the next plan does not share the channels");
        }
        return r ? r : verify_machine_run(requests, next ? 2 : 1, options, ret_verdict);
}

int plan_verify(const struct plan *plan, const struct plan_case *pcase, const struct plan *next,
                const struct plan_case *next_case, struct plan_verdict *ret_verdict) {
        const struct verify_options options = VERIFY_OPTIONS_NULL;

        return verify_pair(plan, pcase, next, next_case, &options, ret_verdict);
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

/* Counts from small to large; the last one writes every slot three times. */
enum { COUNT_NONE, COUNT_ONE, COUNT_EMPTY_SHARDS, COUNT_RAGGED, COUNT_PART, COUNT_PARTS, COUNT_LAPS, N_COUNTS };

static uint64_t count_of(const struct plan *plan, const struct plan_geometry *geometry, uint32_t which) {
        uint64_t part = geometry->part_bytes / CASE_ELEMENT_BYTES,
                 unit = plan_shards(plan) ? part * plan->n_ranks : part;

        switch (which) {
        case COUNT_NONE:
                return 0;
        case COUNT_ONE:
                return 1;
        case COUNT_EMPTY_SHARDS:
                return 5; /* a granule is four elements: the second shard has one, the others none */
        case COUNT_RAGGED:
                return unit - 3;
        case COUNT_PART:
                return unit;
        case COUNT_PARTS:
                return unit + 1;
        default:
                return unit * (2 * geometry->slots + 1) - 3;
        }
}

static struct plan_case case_of(const struct plan *plan, const struct plan_geometry *geometry, uint32_t count,
                                uint32_t root, bool in_place) {
        return (struct plan_case){
                .geometry = *geometry,
                .count = count_of(plan, geometry, count),
                .element_bytes = CASE_ELEMENT_BYTES,
                .root = plan_operation_rooted(plan->operation) ? root % plan->n_ranks : 0,
                .in_place = in_place,
        };
}

/* `count` followed by another request of the same plan, with other count, root and place. */
static int verify_count(const struct plan *plan, const struct plan_geometry *geometry, uint32_t count,
                        struct plan_verdict *ret_verdict) {
        uint32_t n_roots = plan_operation_rooted(plan->operation) && plan->n_ranks > 1 ? 2 : 1;
        uint32_t n_places = plan->n_ranks > CASE_RANKS_MANY ? 1 : 2; /* the next request is in the other place */
        uint32_t next_count = count == COUNT_LAPS ? COUNT_LAPS : (count * 3 + 1) % COUNT_LAPS;
        int r = 0;

        for (uint32_t i = 0; !r && i < n_places * n_roots; i++) {
                uint32_t root = i / n_places * (plan->n_ranks - 1);
                struct plan_case c = case_of(plan, geometry, count, root, i % n_places == 0);
                struct plan_case next = case_of(plan, geometry, next_count, root + 1, i % n_places != 0);

                r = plan_verify(plan, &c, plan, &next, ret_verdict);
        }
        return r;
}

int plan_verify_all(const struct plan *plan, const struct plan_geometry *geometry, const struct plan *peers,
                    uint32_t n_peers, struct plan_verdict *ret_verdict) {
        static const uint32_t counts_of_many[] = {COUNT_EMPTY_SHARDS, COUNT_LAPS};
        bool many = plan->n_ranks > CASE_RANKS_MANY;
        int r;

        if (geometry->part_bytes < GEOMETRY_ALIGN || geometry->part_bytes % GEOMETRY_ALIGN != 0)
                return verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, NULL, "the geometry is out of bounds");
        r = verify_form(plan, ret_verdict);
        for (uint32_t i = 0; !r && i < (many ? 2 : N_COUNTS); i++)
                r = verify_count(plan, geometry, many ? counts_of_many[i] : i, ret_verdict);
        for (uint32_t i = 0; !r && i < n_peers; i++) {
                struct plan_case c = case_of(plan, geometry, COUNT_PARTS, i, i % 2);
                struct plan_case next;

                r = verify_form(&peers[i], ret_verdict);
                if (r)
                        break;
                next = case_of(&peers[i], geometry, COUNT_PARTS, i + 1, i % 2 == 0);
                r = plan_verify(plan, &c, &peers[i], &next, ret_verdict);
        }
        return r;
}
