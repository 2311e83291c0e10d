/* SPDX-License-Identifier: MIT */
/*
 * What the model's collectives do, and what they do wrong.
 *
 * The suite's data are integers in every type, and so are all results but averages; so the model computes with
 * integers, in rank order. Inputs are copied first, since calls may be in place.
 */
#include <math.h>
#include <railmux/railmux.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/abi.h"
#include "tests/nccl/model.h"
#include "tools/perf/number.h"

enum model_defect model_defect_named(const char *name) {
        static const char *const names[DEFECT_COUNT] = {"none",   "last",  "root",   "beyond",  "input",
                                                        "stale",  "min",   "factor", "average", "rank",
                                                        "pieces", "error", "crash",  "hang"};

        for (int i = 0; name && i < DEFECT_COUNT; i++)
                if (!strcmp(name, names[i]))
                        return (enum model_defect)i;
        return DEFECT_NONE;
}

static int64_t narrow_decode(uint32_t bits, int mantissa, int exponent) {
        int field = (int)(bits >> mantissa) & ((1 << exponent) - 1), bias = (1 << (exponent - 1)) - 1;
        int fraction = (int)bits & ((1 << mantissa) - 1);
        double value = field == 0 ? ldexp(fraction, 1 - bias - mantissa)
                                  : ldexp(fraction + (1 << mantissa), field - bias - mantissa);

        return (int64_t)(bits >> (mantissa + exponent) & 1 ? -value : value);
}

static int64_t decode(int type, const void *element) {
        uint64_t bits = 0;
        float single;
        double wide;

        memcpy(&bits, element, rmx_type_size((uint32_t)type));
        switch (type) {
        case RMX_INT8:
                return (int8_t)bits;
        case RMX_INT32:
                return (int32_t)bits;
        case RMX_FLOAT16:
                return narrow_decode((uint32_t)bits, 10, 5);
        case RMX_BFLOAT16:
                return narrow_decode((uint32_t)bits, 7, 8);
        case RMX_FLOAT8_E4M3:
                return narrow_decode((uint32_t)bits, 3, 4);
        case RMX_FLOAT8_E5M2:
                return narrow_decode((uint32_t)bits, 2, 5);
        case RMX_FLOAT32:
                memcpy(&single, element, sizeof(single));
                return (int64_t)single;
        case RMX_FLOAT64:
                memcpy(&wide, element, sizeof(wide));
                return (int64_t)wide;
        default:
                return (int64_t)bits;
        }
}

static int64_t combine(int redop, int64_t a, int64_t b) {
        switch (redop) {
        case NCCL_PROD:
                return (int64_t)((uint64_t)a * (uint64_t)b);
        case NCCL_MAX:
                return a > b ? a : b;
        case NCCL_MIN:
                return a < b ? a : b;
        default:
                return (int64_t)((uint64_t)a + (uint64_t)b);
        }
}

/* Elements [first, first + n) of all inputs into `out`. */
static void reduce(struct model_call *const calls[], char *const inputs[], int n_ranks, size_t first, size_t n,
                   char *out, enum model_defect defect) {
        int type = calls[0]->type, redop = calls[0]->redop;
        size_t unit = rmx_type_size((uint32_t)type);

        if (defect == DEFECT_MIN && type == RMX_FLOAT8_E5M2 && redop == NCCL_MIN)
                redop = NCCL_MAX;
        if (defect == DEFECT_LAST && n > 1000)
                n--;
        for (size_t i = 0; i < n; i++) {
                int64_t sum = 0;
                uint64_t bits;

                for (int r = 0; r < n_ranks; r++) {
                        int64_t value = decode(type, inputs[r] + (first + i) * unit);

                        if (calls[r]->has_factor)
                                value = (int64_t)((uint64_t)value * (uint64_t)decode(type, &calls[r]->factor));
                        sum = r == 0 ? value : combine(redop, sum, value);
                }
                bits = redop == NCCL_AVG && !(defect == DEFECT_AVERAGE && type < RMX_FLOAT16)
                               ? number_encode_average((uint32_t)type, sum, (uint32_t)n_ranks)
                               : number_encode((uint32_t)type, sum);
                memcpy(out + i * unit, &bits, unit);
        }
}

/* Elements of a rank's input that somebody gets. */
static size_t input_elements(const struct model_call *c, int rank, int n_ranks) {
        size_t most = 0;

        switch (c->kind) {
        case MODEL_BROADCAST:
                return rank == c->peer ? c->count : 0;
        case MODEL_SCATTER:
                return rank == c->peer ? c->count * (size_t)n_ranks : 0;
        case MODEL_REDUCE_SCATTER:
        case MODEL_ALL_TO_ALL:
                return c->count * (size_t)n_ranks;
        case MODEL_ALL_TO_ALL_V:
                for (int r = 0; r < n_ranks; r++)
                        most = c->send_at[r] + c->send_count[r] > most ? c->send_at[r] + c->send_count[r] : most;
                return most;
        default:
                return c->count;
        }
}

static void give(struct model_call *const calls[], char *const inputs[], int n_ranks, int rank,
                 enum model_defect defect) {
        struct model_call *c = calls[rank];
        size_t unit = rmx_type_size((uint32_t)c->type), block = c->count * unit, packed = 0;

        switch (c->kind) {
        case MODEL_ALL_REDUCE:
        case MODEL_REDUCE:
                if (c->kind == MODEL_ALL_REDUCE || rank == c->peer)
                        reduce(calls, inputs, n_ranks, 0, c->count, c->out, defect);
                break;
        case MODEL_REDUCE_SCATTER:
                reduce(calls, inputs, n_ranks, (size_t)rank * c->count, c->count, c->out, defect);
                break;
        case MODEL_BROADCAST:
                memcpy(c->out, inputs[c->peer], block);
                break;
        case MODEL_ALL_GATHER:
        case MODEL_GATHER:
                for (int r = 0; r < n_ranks && (c->kind == MODEL_ALL_GATHER || rank == c->peer); r++)
                        memcpy(c->out + (size_t)r * block, inputs[defect == DEFECT_RANK && r < 2 ? n_ranks - 1 - r : r],
                               block);
                break;
        case MODEL_SCATTER:
                memcpy(c->out, inputs[c->peer] + (size_t)rank * block, block);
                break;
        case MODEL_ALL_TO_ALL:
                for (int r = 0; r < n_ranks; r++)
                        memcpy(c->out + (size_t)r * block, inputs[r] + (size_t)rank * block, block);
                break;
        default:
                for (int r = 0; r < n_ranks; r++) {
                        size_t at = defect == DEFECT_PIECES ? packed : c->recv_at[r];

                        memcpy(c->out + at * unit, inputs[r] + calls[r]->send_at[rank] * unit, c->recv_count[r] * unit);
                        packed += c->recv_count[r];
                }
                break;
        }
        if (defect == DEFECT_BEYOND && c->kind == MODEL_ALL_GATHER)
                c->out[(size_t)n_ranks * block] ^= 1;
        if (defect == DEFECT_INPUT && c->kind == MODEL_ALL_TO_ALL && block)
                memcpy(&((char *)(uintptr_t)c->in)[block - 1], c->out, 1);
}

void model_run(struct model_call *const calls[], int n_ranks, enum model_defect defect, uint64_t number) {
        char *inputs[MODEL_RANKS_MAX];

        if (defect == DEFECT_STALE && number % 16 == 7)
                return;
        if (defect == DEFECT_ROOT && calls[0]->kind == MODEL_BROADCAST) {
                int root = (calls[0]->peer + 1) % n_ranks;

                for (int r = 0; r < n_ranks; r++)
                        calls[r]->peer = calls[root]->in ? root : calls[r]->peer;
        }
        for (int r = 0; r < n_ranks; r++) {
                size_t bytes = input_elements(calls[r], r, n_ranks) * rmx_type_size((uint32_t)calls[r]->type);

                inputs[r] = malloc(bytes + 1);
                if (!inputs[r])
                        abort();
                if (bytes)
                        memcpy(inputs[r], calls[r]->in, bytes);
        }
        for (int r = 0; r < n_ranks; r++)
                give(calls, inputs, n_ranks, r, defect);
        for (int r = 0; r < n_ranks; r++)
                free(inputs[r]);
}
