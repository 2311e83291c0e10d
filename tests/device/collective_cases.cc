/* SPDX-License-Identifier: MIT */
#include "tests/device/collective_cases.h"

extern "C" {
#include "gpu/host/reduce.h"
#include "util/type.h"
}
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring/line.h"

uint64_t mix(uint64_t x) {
        x ^= x >> 31;
        x *= 0x9e3779b97f4a7c15u;
        x ^= x >> 29;
        x *= 0xbf58476d1ce4e5b9u;
        return x ^ x >> 32;
}

/* Of another size and sign for each rank and element, so that sums depend on their order; but no infinities. */
static double case_real(uint64_t i, uint64_t seed) {
        const uint64_t bits = mix(seed * 0x100000001b3u + i);

        return ((double)(int64_t)bits / 0x1p63) * (double)(1u << (bits & 15));
}

/* Whole numbers are small and of either sign. */
void case_put(uint32_t type, void *to, uint64_t i, uint64_t seed) {
        int v = (int)(mix(seed * 0x100000001b3u + i) % 5) - 2;

        if (type == RMX_UINT8 || type == RMX_UINT32 || type == RMX_UINT64)
                v = v < 0 ? -v : v;
        switch (type) {
        case RMX_INT8:
        case RMX_UINT8:
                ((int8_t *)to)[i] = (int8_t)v;
                break;
        case RMX_INT32:
        case RMX_UINT32:
                ((int32_t *)to)[i] = v;
                break;
        case RMX_INT64:
        case RMX_UINT64:
                ((int64_t *)to)[i] = v;
                break;
        case RMX_FLOAT32:
                ((float *)to)[i] = (float)case_real(i, seed);
                break;
        case RMX_FLOAT64:
                ((double *)to)[i] = case_real(i, seed);
                break;
        default: { /* the others: random bits; the reference knows what they mean */
                uint64_t bits = mix(seed + 77 * i);

                memcpy((char *)to + i * type_size(type), &bits, type_size(type));
        }
        }
}

void case_elements(const struct collective_case *c, uint32_t rank, uint64_t *in, uint64_t *out) {
        bool root = rank == c->root;

        *in = *out = c->count;
        switch (c->operation) {
        case RING_OP_REDUCE:
                *out = root ? c->count : 0;
                break;
        case RING_OP_BROADCAST:
                *in = root ? c->count : 0;
                break;
        case RING_OP_ALL_GATHER:
                *out = c->count * c->n;
                break;
        case RING_OP_REDUCE_SCATTER:
                *in = c->count * c->n;
                break;
        case RING_OP_ALL_TO_ALL:
                *in = *out = c->count * c->n;
                break;
        case RING_OP_GATHER:
                *out = root ? c->count * c->n : 0;
                break;
        case RING_OP_SCATTER:
                *in = root ? c->count * c->n : 0;
                break;
        default:
                break;
        }
}

/* The sums of each node, and then of these. */
static void reduce_nodes(const struct collective_case *c, unsigned char *const *in, uint64_t first, void *to,
                         const uint64_t *scalar) {
        const size_t bytes = (c->count * type_accumulator_size(c->type, c->redop) + 63) / 64 * 64;
        const void *source[EMULATOR_RANKS_MAX], *sum[EMULATOR_RANKS_MAX];
        uint64_t factor[EMULATOR_RANKS_MAX];
        struct reduce_call call = {};
        uint32_t n_nodes = 0;
        void *out[1];

        call.out = out;
        call.n_out = 1;
        call.source = source;
        call.scalar = factor;
        call.n_ranks = c->n;
        call.out_partial = true;
        call.length = c->count;
        for (; n_nodes < c->n; n_nodes++) {
                call.n = 0;
                for (uint32_t r = 0; r < c->n; r++)
                        if (c->node[r] == n_nodes) {
                                factor[call.n] = scalar[r];
                                source[call.n++] = in[r] + first * type_size(c->type);
                        }
                if (!call.n)
                        break;
                call.scaled = c->redop == RMX_PREMUL_SUM ? ~UINT64_C(0) >> (64 - call.n) : 0;
                sum[n_nodes] = out[0] = aligned_alloc(64, bytes + 64);
                reduce_find(c->type, c->redop)(&call);
        }
        call.out_partial = false;
        call.source = sum;
        call.n = n_nodes;
        call.partials = ~UINT64_C(0) >> (64 - n_nodes);
        call.scaled = 0;
        call.finish = true;
        out[0] = to;
        reduce_find(c->type, c->redop)(&call);
        for (uint32_t i = 0; i < n_nodes; i++)
                free((void *)(uintptr_t)sum[i]);
}

static void reduce_expected(const struct collective_case *c, unsigned char *const *in, uint64_t first, void *to,
                            const uint64_t *scalar) {
        const void *source[EMULATOR_RANKS_MAX];
        void *out[1] = {to};
        struct reduce_call call = {};

        if (c->node) {
                reduce_nodes(c, in, first, to, scalar);
                return;
        }

        for (uint32_t r = 0; r < c->n; r++)
                source[r] = in[r] + first * type_size(c->type);
        call.out = out;
        call.n_out = 1;
        call.source = source;
        call.n = c->n;
        call.scalar = scalar;
        call.scaled = c->redop == RMX_PREMUL_SUM ? ~UINT64_C(0) >> (64 - c->n) : 0;
        call.n_ranks = c->n;
        call.finish = true;
        call.length = c->count;
        reduce_find(c->type, c->redop)(&call);
}

void case_expected(const struct collective_case *c, uint32_t rank, unsigned char *const *in, unsigned char *to,
                   const uint64_t *scalar) {
        size_t block = c->count * type_size(c->type);

        switch (c->operation) {
        case RING_OP_ALL_REDUCE:
        case RING_OP_REDUCE:
                reduce_expected(c, in, 0, to, scalar);
                break;
        case RING_OP_REDUCE_SCATTER:
                reduce_expected(c, in, rank * c->count, to, scalar);
                break;
        case RING_OP_BROADCAST:
                memcpy(to, in[c->root], block);
                break;
        case RING_OP_ALL_GATHER:
        case RING_OP_GATHER:
                for (uint32_t r = 0; r < c->n; r++)
                        memcpy(to + r * block, in[r], block);
                break;
        case RING_OP_SCATTER:
                memcpy(to, in[c->root] + rank * block, block);
                break;
        case RING_OP_ALL_TO_ALL:
                for (uint32_t r = 0; r < c->n; r++)
                        memcpy(to + r * block, in[r] + rank * block, block);
                break;
        default:
                break;
        }
}

bool operation_has_redop(uint32_t operation) {
        return operation == RING_OP_ALL_REDUCE || operation == RING_OP_REDUCE || operation == RING_OP_REDUCE_SCATTER;
}

bool operation_has_root(uint32_t operation) {
        return operation == RING_OP_REDUCE || operation == RING_OP_BROADCAST || operation == RING_OP_GATHER ||
               operation == RING_OP_SCATTER;
}

uint64_t case_scalar(uint32_t type, uint32_t rank) {
        uint32_t two = rank % 2 == 0; /* 2 or 1 */

        if (type == RMX_FLOAT64)
                return two ? 0x4000000000000000u : 0x3ff0000000000000u;
        if (type >= RMX_FLOAT16)
                return two ? 0x40000000u : 0x3f800000u;
        return 1 + two;
}

const uint32_t collective_operations[N_COLLECTIVE_OPERATIONS] = {
        RING_OP_ALL_REDUCE, RING_OP_REDUCE, RING_OP_BROADCAST, RING_OP_ALL_GATHER, RING_OP_REDUCE_SCATTER,
        RING_OP_ALL_TO_ALL, RING_OP_GATHER, RING_OP_SCATTER,   RING_OP_BARRIER,
};

uint64_t test_seed(void) {
        const char *given = getenv("RAILMUX_SEED");
        uint64_t seed = given ? strtoull(given, NULL, 0) : 1;

        printf("RAILMUX_SEED=%llu\n", (unsigned long long)seed);
        fflush(stdout);
        return seed;
}

bool test_takes(uint64_t seed, uint32_t i, uint32_t n) {
#ifdef __SANITIZE_ADDRESS__
        return test_full() || seed % n == i;
#else
        (void)seed;
        return i < n;
#endif
}

uint32_t test_rounds(uint32_t usual, uint32_t full) {
#ifdef __SANITIZE_ADDRESS__
        usual = (usual + 2) / 3;
#endif
        return test_full() ? full : usual;
}

bool test_full(void) {
        const char *full = getenv("RAILMUX_FULL");

        return full && strcmp(full, "1") == 0;
}

void case_request(const struct collective_case *c, uint32_t rank, uint64_t seed, const struct case_buffers *b,
                  struct emulator_request *q) {
        uint64_t in, out, size = type_size(c->type), block = c->count * size;
        uint64_t in_at = c->shift * size, out_at = c->shift * size;
        unsigned char *from = c->in_place ? b->out + b->out_at : b->in + b->in_at;

        case_elements(c, rank, &in, &out);
        if (c->in_place && c->operation == RING_OP_ALL_GATHER)
                in_at += rank * block;
        if (c->in_place && c->operation == RING_OP_GATHER)
                in_at += (rank == c->root ? rank : 0) * block;
        if (c->in_place && c->operation == RING_OP_REDUCE_SCATTER)
                out_at += rank * block;
        if (c->in_place && c->operation == RING_OP_SCATTER)
                out_at += (rank == c->root ? rank : 0) * block;
        memset(b->out + b->out_at, 0xa5, b->bytes);
        for (uint64_t i = 0; i < in; i++)
                case_put(c->type, from + in_at, i, seed * 64 + rank);
        memcpy(b->copy, from + in_at, in * size);
        *q = {};
        q->operation = c->operation;
        q->type = c->type;
        q->redop = c->redop;
        q->root = c->root;
        q->count = c->count;
        q->in_buffer = c->in_place ? b->out_id : b->in_id;
        q->out_buffer = b->out_id;
        q->in_offset = (c->in_place ? b->out_at : b->in_at) + in_at;
        q->out_offset = b->out_at + out_at;
        q->in = from + in_at;
        q->out = b->out + b->out_at + out_at;
        q->in_bytes = in * size;
        q->out_bytes = out * size;
        q->scalar = case_scalar(c->type, rank);
        q->inlined = c->inlined;
}

bool case_right(const struct collective_case *c, uint32_t rank, unsigned char *const *copies,
                const struct case_buffers *b, const struct emulator_request *q, unsigned char *want) {
        const unsigned char *out = (const unsigned char *)q->out, *end = b->out + b->out_at + b->bytes;
        const char *what = NULL;
        uint64_t scalar[EMULATOR_RANKS_MAX];

        for (uint32_t r = 0; r < c->n; r++)
                scalar[r] = case_scalar(c->type, r);
        case_expected(c, rank, copies, want, scalar);
        if (q->out_bytes && memcmp(out, want, q->out_bytes))
                what = "is wrong";
        for (const unsigned char *p = out + q->out_bytes;
             !what && !c->in_place && p < end && p < out + q->out_bytes + 64; p++)
                if (*p != 0xa5)
                        what = "goes past its end";
        for (uint64_t i = 0; !what && !c->in_place && i < c->shift * type_size(c->type); i++)
                if (out[-1 - (int64_t)i] != 0xa5)
                        what = "begins before its beginning";
        if (what)
                fprintf(stderr,
                        "operation %u type %u redop %u ranks %u root %u count %llu%s%s shift %u: rank %u's output %s\n",
                        c->operation, c->type, c->redop, c->n, c->root, (unsigned long long)c->count,
                        c->in_place ? " in place" : "", c->inlined ? " inline" : "", c->shift, rank, what);
        return !what;
}

struct collective_case case_random(uint32_t n, uint64_t random, uint64_t max_bytes) {
        struct collective_case c = {};
        uint64_t most;

        c.n = n;
        c.operation = collective_operations[mix(random) % N_COLLECTIVE_OPERATIONS];
        c.type = (uint32_t)(mix(random + 1) % RMX_TYPE_COUNT);
        c.redop = operation_has_redop(c.operation) ? (uint32_t)(mix(random + 2) % RMX_REDOP_COUNT) : 0;
        c.root = operation_has_root(c.operation) ? (uint32_t)(mix(random + 3) % n) : 0;
        most = (max_bytes / type_size(c.type) - 1) / n;
        /* As many of a few elements as of thousands. */
        c.count = c.operation == RING_OP_BARRIER ? 0 : mix(random + 4) % (1 + (most >> mix(random + 5) % 12));
        c.shift = mix(random + 6) % 4 == 0;
        if (mix(random + 7) % 2 == 0) {
                bool any = c.operation == RING_OP_ALL_REDUCE || c.operation == RING_OP_REDUCE ||
                           c.operation == RING_OP_BROADCAST || c.operation == RING_OP_BARRIER;
                uint64_t whole = c.count * type_size(c.type) * (any ? 1 : n);

                c.inlined = whole <= BELL_INLINE_BYTES && (any || c.count * type_size(c.type) % 8 == 0);
        }
        c.in_place = !c.inlined && c.operation != RING_OP_ALL_TO_ALL && mix(random + 8) % 2 == 0;
        return c;
}
