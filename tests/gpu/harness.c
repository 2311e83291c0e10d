/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"

#include "harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "messages.h"
#include "ring/ring.h"
#include "tree.h"
#include "util/type.h"

#define GUARD_BYTES 64u
#define POISON      0xdb /* guards, gaps and outputs at first */
#define GARBAGE     0x5e /* memory of ranks that have not begun or have ended */

const uint32_t operations[] = {
        RING_OP_ALL_REDUCE,     RING_OP_REDUCE,     RING_OP_BROADCAST,    RING_OP_ALL_GATHER,
        RING_OP_REDUCE_SCATTER, RING_OP_ALL_TO_ALL, RING_OP_ALL_TO_ALL_V, RING_OP_GATHER,
        RING_OP_SCATTER,        RING_OP_SEND,       RING_OP_BARRIER,
};
const uint32_t n_operations = sizeof(operations) / sizeof(operations[0]);

uint64_t random_next(struct random *random) {
        return reference_mix(random->state++, 1, 2);
}

uint32_t random_below(struct random *random, uint32_t limit) {
        return (uint32_t)(random_next(random) % limit);
}

bool harness_full(void) {
        const char *text = getenv("RAILMUX_FULL");

        return text && strcmp(text, "1") == 0;
}

uint64_t harness_seed(void) {
        static uint64_t seed;
        const char *text = getenv("RAILMUX_SEED");

        if (seed == 0) {
                if (text)
                        seed = strtoull(text, NULL, 0);
                else
                        assert_int_equal(getrandom(&seed, sizeof(seed), 0), sizeof(seed));
                seed = (seed & 0xffffffffu) | 1u;
                printf("seed: RAILMUX_SEED=%" PRIu64 "\n", seed);
        }
        return seed;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */
/* Sizes as the public interface states them; not taken from the plan. */
static void rank_sizes(const struct job *job, uint32_t rank, uint64_t *n_in, uint64_t *n_out) {
        uint64_t count = job->count, all = count * job->n_ranks;
        bool root = rank == job->root;

        switch (job->operation) {
        case RING_OP_ALL_REDUCE:
                *n_in = *n_out = count;
                break;
        case RING_OP_REDUCE:
                *n_in = count;
                *n_out = root ? count : 0;
                break;
        case RING_OP_BROADCAST:
                *n_in = root ? count : 0;
                *n_out = count;
                break;
        case RING_OP_ALL_GATHER:
                *n_in = count;
                *n_out = all;
                break;
        case RING_OP_REDUCE_SCATTER:
                *n_in = all;
                *n_out = count;
                break;
        case RING_OP_ALL_TO_ALL:
                *n_in = *n_out = all;
                break;
        case RING_OP_GATHER:
                *n_in = count;
                *n_out = root ? all : 0;
                break;
        case RING_OP_SCATTER:
                *n_in = root ? all : 0;
                *n_out = count;
                break;
        default:
                *n_in = *n_out = 0;
                break;
        }
}

/* Pieces of all_to_all_v. Both ends of a pair compute the same length; pieces lie in any order, with gaps. */
static uint64_t piece_length(const struct job *job, uint32_t from, uint32_t to) {
        uint64_t mixed = reference_mix(job->seed, from * 64 + to, 17);

        switch (mixed % 5) {
        case 0:
                return 0;
        case 1:
                return job->count > 0;
        case 2:
                return job->count;
        default:
                return (mixed >> 8) % (job->count + 1);
        }
}

static uint64_t place_pieces(struct random *random, uint32_t n, const uint64_t *lengths, uint64_t *offsets) {
        uint32_t first = random_below(random, n), stride = random_below(random, 2) ? 1 : n - 1;
        uint64_t end = 0;

        for (uint32_t i = 0; i < n; i++) {
                uint32_t peer = (first + i * stride) % n;

                end += random_below(random, 3);
                offsets[peer] = end;
                end += lengths[peer];
        }
        return end;
}

static void rank_vector(struct job *job, uint32_t rank) {
        struct job_rank *r = &job->ranks[rank];
        struct random random = {job->seed * 64 + rank};

        for (uint32_t peer = 0; peer < job->n_ranks; peer++) {
                r->numbers[0][peer] = piece_length(job, rank, peer);
                r->numbers[2][peer] = piece_length(job, peer, rank);
        }
        r->n_in = place_pieces(&random, job->n_ranks, r->numbers[0], r->numbers[1]);
        r->n_out = place_pieces(&random, job->n_ranks, r->numbers[2], r->numbers[3]);
        r->vector = (struct plan_vector){r->numbers[0], r->numbers[1], r->numbers[2], r->numbers[3]};
}

static bool rank_in_place(const struct job *job, uint32_t rank) {
        bool rooted = plan_operation_rooted(job->operation);

        if (job->operation == RING_OP_ALL_TO_ALL || job->operation == RING_OP_ALL_TO_ALL_V ||
            job->operation == RING_OP_SEND)
                return false;
        return job->in_place && (!rooted || rank == job->root);
}

void job_rank_memory(struct job *job, uint32_t rank) {
        struct job_rank *r = &job->ranks[rank];
        size_t size = type_size(job->type), block = job->count * size;

        r->out = GUARD_BYTES + job->misalign;
        r->in = r->out + r->n_out * size + GUARD_BYTES;
        r->size = r->in + r->n_in * size + GUARD_BYTES;
        if (rank_in_place(job, rank)) {
                switch (job->operation) {
                case RING_OP_ALL_GATHER:
                case RING_OP_GATHER:
                        r->in = r->out + rank * block;
                        break;
                case RING_OP_REDUCE_SCATTER:
                case RING_OP_SCATTER:
                        r->out = r->in + rank * block;
                        break;
                default:
                        r->in = r->out;
                        break;
                }
        }
        r->block = malloc(r->size);
        r->image = malloc(r->size);
        r->want = malloc(r->size);
        assert_true(r->block && r->image && r->want);
        memset(r->block, GARBAGE, r->size);
        memset(r->image, POISON, r->size);
        reference_fill(r->image + r->in, job->type, job->redop, job->style, job->seed, rank, r->n_in);
        memcpy(r->want, r->image, r->size);
}

/* A factor in the form of a request: small, so that sums stay finite, but not a power of two. */
static uint64_t make_scalar(const struct job *job, uint32_t rank) {
        uint64_t mixed = reference_mix(job->seed, rank, 99), bits = 0;
        double d = (double)(mixed % 31) / 8 - 2;
        float f = (float)d;

        if (job->type < RMX_FLOAT16)
                return mixed;
        if (job->type == RMX_FLOAT64)
                memcpy(&bits, &d, 8);
        else
                memcpy(&bits, &f, 4);
        return bits;
}

static void rank_request(struct job *job, uint32_t rank) {
        struct job_rank *r = &job->ranks[rank];
        bool vector = job->operation == RING_OP_ALL_TO_ALL_V;

        r->requests = malloc(sizeof(*r->requests));
        r->start_end = malloc(sizeof(*r->start_end));
        assert_true(r->requests && r->start_end);
        r->n_requests = r->n_starts = r->start_end[0] = 1;
        r->requests[0] = (struct gpu_request){
                .plan = &job->plan,
                .in = r->n_in > 0 ? r->block + r->in : NULL,
                .out = r->n_out > 0 ? r->block + r->out : NULL,
                .shape =
                        {
                                .count = vector ? 0 : job->count,
                                .element_bytes = (uint32_t)type_size(job->type),
                                .partial_bytes = (uint32_t)type_accumulator_size(job->type, job->redop),
                                .root = job->root,
                                .vector = vector ? &r->vector : NULL,
                        },
                .type = job->type,
                .redop = job->redop,
                .scalar = r->scalar,
                .done = true, /* to be cleared */
        };
}

/* ---- what must come out ------------------------------------------------------------------------------------------ */
static const unsigned char *input_of(const struct job *job, uint32_t rank) {
        return job->ranks[rank].image + job->ranks[rank].in;
}

static void want(struct job *job, uint32_t rank, uint64_t offset, const unsigned char *data, uint64_t elements) {
        struct job_rank *r = &job->ranks[rank];
        size_t size = type_size(job->type);

        memcpy(r->want + r->out + offset * size, data, elements * size);
}

static unsigned char *reduced(const struct job *job, uint64_t n) {
        size_t size = type_size(job->type);
        uint64_t shard = plan_shard_elements(job->count, job->n_ranks, (uint32_t)size);
        unsigned char *out = malloc(n * size + 1);
        const void *source[PLAN_RANKS_MAX];
        uint64_t scalar[PLAN_RANKS_MAX];
        struct tree_call call = {job->plan.tree, job->type, job->redop, job->n_ranks, job->root, source, scalar};

        assert_non_null(out);
        if (call.tree > PLAN_TREE_BINARY) {
                assert_int_equal(job->style, REFERENCE_EXACT);
                call.tree = PLAN_TREE_RANK_ORDER;
        }
        for (uint32_t rank = 0; rank < job->n_ranks; rank++) {
                source[rank] = input_of(job, rank);
                scalar[rank] = job->ranks[rank].scalar;
        }
        for (uint64_t i = 0; i < n; i++) {
                if (job->operation == RING_OP_REDUCE_SCATTER)
                        call.origin = (uint32_t)(i / job->count);
                else if (job->operation == RING_OP_ALL_REDUCE)
                        call.origin = job->plan.tree == PLAN_TREE_ROTATED ? (uint32_t)(i / shard) : 0;
                tree_reduce(&call, i, out + i * size);
        }
        return out;
}

static void want_reduction(struct job *job) {
        uint64_t n = job->operation == RING_OP_REDUCE_SCATTER ? job->count * job->n_ranks : job->count;
        unsigned char *result = reduced(job, n);

        for (uint32_t rank = 0; rank < job->n_ranks; rank++) {
                uint64_t skip = job->operation == RING_OP_REDUCE_SCATTER ? rank * job->count : 0;

                want(job, rank, 0, result + skip * type_size(job->type), job->ranks[rank].n_out);
        }
        free(result);
}

/* The block of an output that comes from rank `from`. */
static void want_block(struct job *job, uint32_t rank, uint32_t from) {
        const struct job_rank *r = &job->ranks[rank], *f = &job->ranks[from];
        size_t block = job->count * type_size(job->type);

        switch (job->operation) {
        case RING_OP_BROADCAST:
                if (from == job->root)
                        want(job, rank, 0, input_of(job, from), job->count);
                break;
        case RING_OP_SCATTER:
                if (from == job->root)
                        want(job, rank, 0, input_of(job, from) + rank * block, job->count);
                break;
        case RING_OP_GATHER:
        case RING_OP_ALL_GATHER:
                if (r->n_out > 0)
                        want(job, rank, from * job->count, input_of(job, from), job->count);
                break;
        case RING_OP_ALL_TO_ALL:
                want(job, rank, from * job->count, input_of(job, from) + rank * block, job->count);
                break;
        case RING_OP_ALL_TO_ALL_V:
                want(job, rank, r->numbers[3][from], input_of(job, from) + f->numbers[1][rank] * type_size(job->type),
                     r->numbers[2][from]);
                break;
        default:
                break;
        }
}

/* ------------------------------------------------------------------------------------------------------------------ */
void job_prepare(struct job *job, uint32_t n_ranks) {
        job->n_ranks = n_ranks;
        if (!plan_operation_rooted(job->operation))
                job->root = 0;
        if (job->nodes)
                assert_int_equal(plan_build_nodes(job->operation, job->algorithm, n_ranks, job->nodes, &job->plan),
                                 PLAN_OK);
        else
                assert_int_equal(plan_build(job->operation, job->algorithm, n_ranks, &job->plan), PLAN_OK);
        if (job->operation == RING_OP_SEND) {
                messages_prepare(job);
                return;
        }
        for (uint32_t rank = 0; rank < n_ranks; rank++) {
                rank_sizes(job, rank, &job->ranks[rank].n_in, &job->ranks[rank].n_out);
                if (job->operation == RING_OP_ALL_TO_ALL_V)
                        rank_vector(job, rank);
                job->ranks[rank].scalar = make_scalar(job, rank);
                job_rank_memory(job, rank);
                rank_request(job, rank);
        }
        if (plan_operation_reduces(job->operation)) {
                want_reduction(job);
                return;
        }
        for (uint32_t rank = 0; rank < n_ranks; rank++)
                for (uint32_t from = 0; from < n_ranks; from++)
                        want_block(job, rank, from);
}

void job_random(struct job *job, uint64_t seed, uint32_t operation, uint32_t n_ranks, uint64_t max_count) {
        static const uint64_t counts[] = {0, 1, 2, 3, 7, 13, 16, 31, 61, 64, 127, 257, 509, 1009, 2003};
        struct random random = {seed};
        uint32_t n_algorithms = 0;
        uint64_t count;

        do
                count = counts[random_below(&random, sizeof(counts) / sizeof(counts[0]))];
        while (count > max_count);
        if (operation == RING_OP_NONE)
                operation = operations[random_below(&random, n_operations)];
        while (plan_algorithm_at(operation, n_ranks, n_algorithms) != PLAN_ALGORITHM_NONE)
                n_algorithms++;
        *job = (struct job){
                .operation = operation,
                .algorithm = plan_algorithm_at(operation, n_ranks, random_below(&random, n_algorithms)),
                .count = operation == RING_OP_BARRIER ? 0 : count,
                .type = random_below(&random, RMX_TYPE_COUNT),
                .redop = random_below(&random, RMX_REDOP_COUNT),
                .root = random_below(&random, n_ranks),
                .misalign = random_below(&random, 3) ? 0 : random_below(&random, 64),
                .in_place = random_below(&random, 2),
                .style = (enum reference_style)random_below(&random, REFERENCE_STYLE_COUNT),
                .seed = seed,
        };
        job_prepare(job, n_ranks);
}

void job_release(struct job *job) {
        for (uint32_t rank = 0; rank < job->n_ranks; rank++) {
                struct job_rank *r = &job->ranks[rank];

                free(r->requests);
                free(r->start_end);
                free(r->block);
                free(r->image);
                free(r->want);
        }
}

struct gpu_request *job_start(struct job *job, uint32_t rank, uint32_t s, uint32_t *ret_n) {
        struct job_rank *r = &job->ranks[rank];
        uint32_t first = s > 0 ? r->start_end[s - 1] : 0;

        if (s == 0)
                memcpy(r->block, r->image, r->size);
        *ret_n = r->start_end[s] - first;
        return &r->requests[first];
}

static void job_fail(const struct job *job, uint32_t rank, size_t at) {
        const struct job_rank *r = &job->ranks[rank];

        fail_msg("%s/%s ranks %u rank %u count %llu type %u redop %u root %u misalign %u in_place %d style %d seed "
                 "%llu: byte %zu of %zu (in %zu, out %zu) is %02x, not %02x",
                 plan_operation_name(job->operation), plan_algorithm_name(job->algorithm), job->n_ranks, rank,
                 (unsigned long long)job->count, job->type, job->redop, job->root, job->misalign, job->in_place,
                 (int)job->style, (unsigned long long)job->seed, at, r->size, r->in, r->out, r->block[at], r->want[at]);
}

void job_end(struct job *job, uint32_t rank, uint32_t s) {
        struct job_rank *r = &job->ranks[rank];

        for (uint32_t i = s > 0 ? r->start_end[s - 1] : 0; i < r->start_end[s]; i++)
                assert_true(r->requests[i].done);
        if (s + 1 < r->n_starts)
                return;
        if (memcmp(r->block, r->want, r->size) != 0)
                for (size_t i = 0; i < r->size; i++)
                        if (r->block[i] != r->want[i])
                                job_fail(job, rank, i);
        memset(r->block, GARBAGE, r->size);
}

bool job_end_right(struct job *job, uint32_t rank, uint32_t s) {
        struct job_rank *r = &job->ranks[rank];
        bool right = true;

        if (s + 1 < r->n_starts)
                return true;
        right = memcmp(r->block, r->want, r->size) == 0;
        memset(r->block, GARBAGE, r->size);
        return right;
}
