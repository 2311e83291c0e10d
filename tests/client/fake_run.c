/* SPDX-License-Identifier: MIT */
/* What the fake's collectives do: all outputs are made in private memory first, for operations may be in place. */
#include <string.h>

#include "tests/client/fake.h"
#include "util/type.h"

struct run {
        struct fake_comm *comm;
        uint32_t op, n, root;
        uint64_t count;
        size_t bytes; /* of count elements */
        const unsigned char *in[FAKE_RANKS_MAX];
        unsigned char *out[FAKE_RANKS_MAX];
};

static struct fake_bell *head_of(const struct run *run, uint32_t rank) {
        struct fake_member *member = &run->comm->member[rank];

        return &member->queue[member->head % FAKE_QUEUE];
}

/* How many times count elements a rank has. */
static void factors(const struct run *run, uint32_t rank, uint32_t *in, uint32_t *out) {
        bool root = rank == run->root;

        *in = *out = 1;
        switch (run->op) {
        case RING_OP_BARRIER:
                *in = *out = 0;
                break;
        case RING_OP_REDUCE:
                *out = root;
                break;
        case RING_OP_BROADCAST:
                *in = root;
                break;
        case RING_OP_ALL_GATHER:
                *out = run->n;
                break;
        case RING_OP_REDUCE_SCATTER:
                *in = run->n;
                break;
        case RING_OP_GATHER:
                *out = root ? run->n : 0;
                break;
        case RING_OP_SCATTER:
                *in = root ? run->n : 0;
                break;
        case RING_OP_ALL_TO_ALL:
                *in = *out = run->n;
                break;
        default:
                break;
        }
}

static const void *vector_of(const struct run *run, uint32_t rank, uint32_t part, uint32_t i) {
        return (const uint64_t *)head_of(run, rank)->argument + part * run->n + i;
}

static uint64_t vector(const struct run *run, uint32_t rank, uint32_t part, uint32_t i) {
        return *(const uint64_t *)vector_of(run, rank, part, i);
}

static uint64_t vector_end(const struct run *run, uint32_t rank, uint32_t part) {
        uint64_t end = 0;

        for (uint32_t i = 0; i < run->n; i++) {
                uint64_t count = vector(run, rank, part, i), e = count ? count + vector(run, rank, part + 1, i) : 0;

                if (e > end)
                        end = e;
        }
        return end;
}

/* The memory of one rank. Words of memory that it does not have must be 0. */
static bool place(struct run *run, uint32_t rank, size_t element) {
        const struct fake_member *member = &run->comm->member[rank];
        const struct ring_request *line = &head_of(run, rank)->request;
        uint32_t in_factor, out_factor;
        size_t in_bytes, out_bytes;

        factors(run, rank, &in_factor, &out_factor);
        in_bytes = in_factor * run->bytes;
        out_bytes = out_factor * run->bytes;
        if (run->op == RING_OP_ALL_TO_ALL_V) {
                in_bytes = vector_end(run, rank, 0) * element;
                out_bytes = vector_end(run, rank, 2) * element;
        }
        run->in[rank] = in_bytes ? fake_resolve(member->session, line->word[RING_W_IN_BUFFER],
                                                ring_request_u64(line, RING_W_IN_LO), in_bytes)
                                 : NULL;
        run->out[rank] = out_bytes ? fake_resolve(member->session, line->word[RING_W_OUT_BUFFER],
                                                  ring_request_u64(line, RING_W_OUT_LO), out_bytes)
                                   : NULL;
        if ((in_bytes && !run->in[rank]) || (out_bytes && !run->out[rank]))
                return false;
        return (in_bytes || (!line->word[RING_W_IN_BUFFER] && !ring_request_u64(line, RING_W_IN_LO))) &&
               (out_bytes || (!line->word[RING_W_OUT_BUFFER] && !ring_request_u64(line, RING_W_OUT_LO)));
}

static int32_t element_sum(const struct run *run, size_t i) {
        uint32_t sum = 0;

        for (uint32_t rank = 0; rank < run->n; rank++) {
                const uint64_t *factor = head_of(run, rank)->argument;
                uint32_t x;

                memcpy(&x, run->in[rank] + i * sizeof(x), sizeof(x));
                sum += factor ? x * (uint32_t)*factor : x;
        }
        return (int32_t)sum;
}

static void reduce(const struct run *run, uint32_t rank, size_t first, unsigned char *to) {
        (void)rank;
        for (size_t i = 0; i < run->count; i++) {
                int32_t sum = element_sum(run, first + i);

                memcpy(to + i * sizeof(sum), &sum, sizeof(sum));
        }
}

static size_t exchange(const struct run *run, uint32_t rank, size_t element, unsigned char *to) {
        size_t end = 0;

        for (uint32_t i = 0; i < run->n; i++) {
                size_t bytes = vector(run, rank, 2, i) * element, at = vector(run, rank, 3, i) * element;

                if (!bytes)
                        continue;
                memcpy(to + at, run->in[i] + vector(run, i, 1, rank) * element, bytes);
                end = at + bytes > end ? at + bytes : end;
        }
        return end;
}

/* Writes the output of one rank to `to`; returns its bytes. */
static size_t produce(const struct run *run, uint32_t rank, size_t element, unsigned char *to) {
        size_t bytes = run->bytes;

        switch (run->op) {
        case RING_OP_ALL_REDUCE:
        case RING_OP_REDUCE:
                reduce(run, rank, 0, to);
                return bytes;
        case RING_OP_REDUCE_SCATTER:
                reduce(run, rank, rank * run->count, to);
                return bytes;
        case RING_OP_BROADCAST:
                memcpy(to, run->in[run->root], bytes);
                return bytes;
        case RING_OP_SCATTER:
                memcpy(to, run->in[run->root] + rank * bytes, bytes);
                return bytes;
        case RING_OP_ALL_TO_ALL_V:
                return exchange(run, rank, element, to);
        default: /* all_gather, gather, all_to_all */
                for (uint32_t i = 0; i < run->n; i++)
                        memcpy(to + i * bytes, run->in[i] + (run->op == RING_OP_ALL_TO_ALL ? rank * bytes : 0), bytes);
                return run->n * bytes;
        }
}

static bool vectors_agree(const struct run *run, uint32_t *ret_rank) {
        for (uint32_t a = 0; a < run->n; a++) {
                for (uint32_t b = 0; b < run->n; b++) {
                        *ret_rank = a;
                        if (vector(run, a, 0, b) != vector(run, b, 2, a))
                                return false;
                }
        }
        return true;
}

/* Pieces of an all_to_all_v leave gaps that must stay as they are: the private copy begins with what is there. */
static void write_all(const struct run *run, size_t element) {
        unsigned char *made[FAKE_RANKS_MAX] = {0};
        size_t bytes[FAKE_RANKS_MAX];

        for (uint32_t i = 0; i < run->n; i++) {
                size_t room = run->op == RING_OP_ALL_TO_ALL_V ? vector_end(run, i, 2) * element : run->n * run->bytes;

                if (!run->out[i])
                        continue;
                must((made[i] = calloc(1, room)));
                if (run->op == RING_OP_ALL_TO_ALL_V)
                        memcpy(made[i], run->out[i], room);
                bytes[i] = produce(run, i, element, made[i]);
        }
        for (uint32_t i = 0; i < run->n; i++) {
                if (made[i])
                        memcpy(run->out[i], made[i], bytes[i]);
                free(made[i]);
        }
}

uint32_t fake_run(struct fake_comm *comm) {
        struct run run = {.comm = comm, .n = comm->n_ranks};
        const struct ring_request *first = &head_of(&run, 0)->request;
        size_t element = type_size(ring_request_type(first));
        uint32_t rank;

        run.op = ring_request_op(first);
        run.root = first->word[RING_W_PEER];
        run.count = ring_request_u64(first, RING_W_COUNT_LO);
        run.bytes = run.count * element;
        for (uint32_t i = 0; i < run.n; i++) {
                const struct ring_request *line = &head_of(&run, i)->request;

                if (line->word[RING_W_HEAD] != first->word[RING_W_HEAD] || line->word[RING_W_PEER] != run.root ||
                    ring_request_u64(line, RING_W_COUNT_LO) != run.count)
                        return ring_status(RMX_E_MISMATCH, (int32_t)i);
        }
        if (run.op == RING_OP_ALL_TO_ALL_V && !vectors_agree(&run, &rank))
                return ring_status(RMX_E_MISMATCH, (int32_t)rank);
        if (run.op == RING_OP_ALL_REDUCE || run.op == RING_OP_REDUCE || run.op == RING_OP_REDUCE_SCATTER) {
                if (run.count &&
                    ((ring_request_redop(first) != RMX_SUM && ring_request_redop(first) != RMX_PREMUL_SUM) ||
                     ring_request_type(first) != RMX_INT32))
                        return RMX_E_UNSUPPORTED;
        } else if (ring_request_redop(first)) {
                return RMX_E_INVALID;
        }
        for (uint32_t i = 0; i < run.n; i++) {
                if (!place(&run, i, element))
                        return ring_status(RMX_E_INVALID, (int32_t)i);
        }
        write_all(&run, element);
        return RMX_OK;
}
