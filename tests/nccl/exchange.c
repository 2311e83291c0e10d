/* SPDX-License-Identifier: MIT */
/*
 * Exchanges.
 *
 * Each buffer has an image on the host. First the image holds what the call finds: poison that depends on the position
 * and on the number of the call, and the input. That is copied to the buffer. Then the output that must come is laid
 * over the image. After the call every byte of the buffer must be that of the image: outputs, inputs (which a call out
 * of place must not touch), blocks of a call in place that are not its own, gaps between pieces, and what lies before
 * and behind. So whatever is stale, missing, misplaced or beyond the end is one kind of difference.
 *
 * The test data is that of railmux-perf (tools/perf/pattern.c): exact in its type, so that a result is right in all
 * bits or wrong.
 */
#include "tests/nccl/exchange.h"

#include <railmux/railmux.h>
#include <stdlib.h>
#include <string.h>

#define GUARD      64u /* bytes before and behind */
#define GAP        3u  /* elements between the pieces of an AllToAllv */
#define FACTOR_MAX 8u

struct exchange *exchange_new_on(struct team *team, uint32_t n_ranks, const struct member *members,
                                 uint32_t n_members) {
        struct exchange *x = calloc(1, sizeof(*x));

        if (!team_expect(team, x != NULL, "no memory"))
                exit(1);
        x->team = team;
        x->n_ranks = n_ranks;
        x->n_members = n_members;
        memcpy(x->member, members, n_members * sizeof(*members));
        return x;
}

struct exchange *exchange_new(struct team *team) {
        return exchange_new_on(team, team->n_ranks, team->member, team->n_members);
}

static void buffer_free(struct exchange_buffer *b) {
        if (b->there)
                memory_free(b->there);
        free(b->image);
        free(b->seen);
        *b = (struct exchange_buffer){0};
}

void exchange_free(struct exchange *x) {
        if (!x)
                return;
        for (uint32_t i = 0; i < x->n_members; i++) {
                memory_use(x->member[i].device);
                buffer_free(&x->side[i].in);
                buffer_free(&x->side[i].out);
                if (x->side[i].factor)
                        memory_free(x->side[i].factor);
        }
        free(x->packed);
        free(x);
}

static bool buffer_need(struct exchange *x, struct exchange_buffer *b, size_t bytes) {
        void *address = NULL;

        b->used = bytes;
        if (bytes <= b->capacity)
                return true;
        buffer_free(b);
        b->used = bytes;
        b->capacity = bytes + bytes / 2; /* grown a few times only */
        b->image = malloc(b->capacity);
        b->seen = malloc(b->capacity);
        if (!team_expect(x->team, b->image && b->seen && memory_new(b->capacity, &address) == 0, "no memory"))
                return false;
        b->there = address;
        return true;
}

/* ---- what goes where --------------------------------------------------------------------------------------------- */
static uint32_t pattern_op_of(enum call_op op) {
        switch (op) {
        case CALL_ALL_REDUCE:
                return PATTERN_ALL_REDUCE;
        case CALL_REDUCE:
                return PATTERN_REDUCE;
        case CALL_ALL_GATHER:
                return PATTERN_ALL_GATHER;
        case CALL_REDUCE_SCATTER:
                return PATTERN_REDUCE_SCATTER;
        case CALL_ALL_TO_ALL:
        case CALL_ALL_TO_ALL_RCCL:
        case CALL_EVERYONE:
                return PATTERN_ALL_TO_ALL;
        case CALL_ALL_TO_ALL_V:
        case CALL_ALL_TO_ALL_V_RCCL:
                return PATTERN_ALL_TO_ALL_V;
        case CALL_GATHER:
        case CALL_FAN_IN:
                return PATTERN_GATHER;
        case CALL_SCATTER:
        case CALL_FAN_OUT:
                return PATTERN_SCATTER;
        case CALL_RING:
                return PATTERN_SENDRECV;
        default: /* of all others the receiver gets what one rank has */
                return PATTERN_BROADCAST;
        }
}

static bool is_vector(enum call_op op) {
        return op == CALL_ALL_TO_ALL_V || op == CALL_ALL_TO_ALL_V_RCCL;
}

static uint32_t pair_of(const struct exchange *x, uint32_t rank) {
        return (rank ^ 1u) < x->n_ranks ? rank ^ 1u : rank;
}

/* Whose data a rank gets, where it is one rank's. */
static uint32_t source_of(const struct exchange *x, uint32_t rank) {
        switch (x->c.op) {
        case CALL_PAIRS:
                return pair_of(x, rank);
        case CALL_SELF:
                return rank;
        case CALL_CHAIN:
                return rank ? rank - 1 : 0;
        default:
                return x->c.root;
        }
}

/* Pieces with gaps between them, in the order of ranks in the input and against it in the output. */
static void vectors_lay_out(struct exchange *x, uint32_t i) {
        uint32_t rank = x->member[i].rank;
        size_t at = 0;

        for (uint32_t r = 0; r < x->n_ranks; r++) {
                x->side[i].send_count[r] = pattern_vector_count(&x->pattern, rank, r, x->c.count);
                x->side[i].recv_count[r] = pattern_vector_count(&x->pattern, r, rank, x->c.count);
                x->side[i].send_at[r] = at;
                at += x->side[i].send_count[r] + GAP;
        }
        x->side[i].n_in = at;
        at = 0;
        for (uint32_t k = x->n_ranks; k-- > 0;) {
                x->side[i].recv_at[k] = at;
                at += x->side[i].recv_count[k] + GAP;
        }
        x->side[i].n_out = at;
}

static bool lay_out(struct exchange *x, uint32_t i) {
        size_t begin = GUARD + x->c.lead * x->unit, shift, whole;
        uint32_t rank = x->member[i].rank;

        x->side[i].n_in = pattern_input_elements(&x->pattern, rank, x->c.count);
        x->side[i].n_out = pattern_output_elements(&x->pattern, rank, x->c.count);
        if (is_vector(x->c.op))
                vectors_lay_out(x, i);
        if (x->c.op == CALL_CHAIN && rank == 0)
                x->side[i].n_out = 0;
        x->side[i].in_at = x->side[i].out_at = begin;
        if (!x->c.in_place)
                return buffer_need(x, &x->side[i].in, begin + x->side[i].n_in * x->unit + GUARD) &&
                       buffer_need(x, &x->side[i].out, begin + x->side[i].n_out * x->unit + GUARD);
        shift = pattern_in_place_offset(&x->pattern, rank, x->c.count) * x->unit;
        if (x->side[i].n_in < x->side[i].n_out)
                x->side[i].in_at += shift;
        else
                x->side[i].out_at += shift;
        whole = x->side[i].n_in > x->side[i].n_out ? x->side[i].n_in : x->side[i].n_out;
        return buffer_need(x, &x->side[i].out, begin + whole * x->unit + GUARD);
}

/* ---- data -------------------------------------------------------------------------------------------------------- */
static char poison_at(const struct exchange *x, size_t i) {
        return (char)(i * 37u + (i >> 8) + x->iteration * 11u + 0x5a);
}

static void poison(const struct exchange *x, struct exchange_buffer *b) {
        for (size_t i = 0; i < b->used; i++)
                b->image[i] = poison_at(x, i);
}

static char *packed(struct exchange *x, size_t elements) {
        size_t bytes = elements * x->unit + 1;

        if (bytes > x->packed_capacity) {
                free(x->packed);
                x->packed = malloc(bytes);
                x->packed_capacity = x->packed ? bytes : 0;
                if (!team_expect(x->team, x->packed != NULL, "no memory"))
                        exit(1);
        }
        return x->packed;
}

static void put(struct exchange *x, char *base, const char *from, const size_t *counts, const size_t *places) {
        for (uint32_t r = 0; r < x->n_ranks; r++) {
                memcpy(base + places[r] * x->unit, from, counts[r] * x->unit);
                from += counts[r] * x->unit;
        }
}

static void put_input(struct exchange *x, uint32_t i) {
        struct exchange_buffer *b = x->c.in_place ? &x->side[i].out : &x->side[i].in;
        uint32_t rank = x->member[i].rank;
        char *to = b->image + x->side[i].in_at;

        if (!is_vector(x->c.op)) {
                pattern_fill(&x->pattern, rank, x->iteration, x->c.count, to);
                return;
        }
        to = packed(x, x->side[i].n_in);
        pattern_fill(&x->pattern, rank, x->iteration, x->c.count, to);
        put(x, b->image + x->side[i].in_at, to, x->side[i].send_count, x->side[i].send_at);
}

static void put_output(struct exchange *x, uint32_t i) {
        char *to = x->side[i].out.image + x->side[i].out_at, *from;
        uint32_t rank = x->member[i].rank;

        if (x->side[i].n_out == 0)
                return;
        x->pattern.root = source_of(x, rank);
        if (!is_vector(x->c.op)) {
                pattern_expect(&x->pattern, rank, x->iteration, x->c.count, to);
        } else {
                from = packed(x, x->side[i].n_out);
                pattern_expect(&x->pattern, rank, x->iteration, x->c.count, from);
                put(x, to, from, x->side[i].recv_count, x->side[i].recv_at);
        }
        x->pattern.root = x->c.root;
}

static bool put_factor(struct exchange *x, uint32_t i) {
        char element[FACTOR_MAX] = {0};

        pattern_factor(&x->pattern, x->member[i].rank, element);
        return team_expect(x->team,
                           (x->side[i].factor || memory_new(FACTOR_MAX, &x->side[i].factor) == 0) &&
                                   memory_write(x->side[i].factor, element, sizeof(element)) == 0,
                           "no memory for a factor");
}

bool exchange_prepare(struct exchange *x, const struct call_case *c, uint64_t iteration) {
        uint32_t redop = c->redop == CALL_PREMUL_MEMORY ? RMX_PREMUL_SUM : (uint32_t)c->redop;

        x->c = *c;
        x->iteration = iteration;
        x->unit = rmx_type_size((uint32_t)c->type);
        if (!team_expect(x->team,
                         pattern_init(&x->pattern, pattern_op_of(c->op), (uint32_t)c->type, redop, x->n_ranks,
                                      c->root) == PATTERN_OK,
                         "no test data for this case"))
                return false;
        for (uint32_t i = 0; i < x->n_members; i++) {
                struct exchange_buffer *in = &x->side[i].in, *out = &x->side[i].out;

                memory_use(x->member[i].device);
                if (!lay_out(x, i) || (c->redop == CALL_PREMUL_MEMORY && !put_factor(x, i)))
                        return false;
                poison(x, out);
                if (!c->in_place)
                        poison(x, in);
                put_input(x, i);
                if ((!c->in_place && memory_write(in->there, in->image, in->used)) ||
                    memory_write(out->there, out->image, out->used))
                        return team_expect(x->team, false, "the buffers cannot be written");
                put_output(x, i);
        }
        return true;
}

static bool issued(struct exchange *x, int result, const char *call) {
        return (x->team->patient && result == NCCL_IN_PROGRESS) || team_need(x->team, result, call);
}

bool exchange_issue(struct exchange *x) {
        bool alone = x->n_members > 1 || x->c.grouped, good = true;

        if (alone && !team_need(x->team, x->team->api->GroupStart(), "ncclGroupStart"))
                return false;
        for (uint32_t i = 0; i < x->n_members && good; i++) {
                memory_use(x->member[i].device);
                good = issued(x, exchange_call(x, i), call_name(x->c.op));
        }
        return (!alone || issued(x, x->team->api->GroupEnd(), "ncclGroupEnd")) && good;
}

/* ---- what has come ----------------------------------------------------------------------------------------------- */
static bool buffer_verify(struct exchange *x, uint32_t i, struct exchange_buffer *b, const char *name) {
        size_t at = b == &x->side[i].in ? x->side[i].in_at : x->side[i].out_at;
        size_t size = (b == &x->side[i].in ? x->side[i].n_in : x->side[i].n_out) * x->unit;
        size_t first = 0, wrong = 0, outside = 0;

        memory_use(x->member[i].device);
        if (memory_read(b->seen, b->there, b->used))
                return team_expect(x->team, false, "the buffer cannot be read");
        if (!memcmp(b->seen, b->image, b->used))
                return true;
        for (size_t k = 0; k < b->used; k++) {
                if (b->seen[k] == b->image[k])
                        continue;
                first = wrong ? first : k;
                wrong++;
                outside += k < at || k >= at + size;
        }
        return team_expect(x->team, false,
                           "rank %u of %u: %zu bytes of the %s are wrong, %zu of them outside of it; the first is byte "
                           "%lld of %zu: %02x, not %02x",
                           x->member[i].rank, x->n_ranks, wrong, name, outside, (long long)first - (long long)at, size,
                           (unsigned char)b->seen[first], (unsigned char)b->image[first]);
}

bool exchange_is_untouched(struct exchange *x) {
        for (uint32_t i = 0; i < x->n_members; i++)
                for (size_t k = 0; k < x->side[i].out.used; k++)
                        if (x->side[i].out.there[k] != poison_at(x, k))
                                return false;
        return true;
}

bool exchange_verify(struct exchange *x) {
        bool good = true;

        for (uint32_t i = 0; i < x->n_members; i++) {
                good = buffer_verify(x, i, &x->side[i].out, x->c.in_place ? "buffer" : "output") && good;
                if (!x->c.in_place)
                        good = buffer_verify(x, i, &x->side[i].in, "input") && good;
        }
        return good;
}

bool exchange_run(struct exchange *x, const struct call_case *c, uint64_t iteration) {
        if (!exchange_prepare(x, c, iteration) || !exchange_issue(x) || !exchange_wait(x)) {
                team_stop(x->team);
                return false;
        }
        exchange_verify(x);
        return true; /* wrong data is no reason to stop */
}
