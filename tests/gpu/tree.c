/* SPDX-License-Identifier: MIT */
#include "tree.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "plan/plan.h"
#include "reference.h"
#include "util/type.h"

/* A value on its way up the tree: floats as what their accumulator holds, integers sign- or zero-extended. */
union value {
        double f;
        uint64_t u;
};

static bool is_float(uint32_t type) {
        return type >= RMX_FLOAT16;
}

static bool is_signed(uint32_t type) {
        return type == RMX_INT8 || type == RMX_INT32 || type == RMX_INT64;
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */
static double decode(uint32_t bits, int size, int mantissa, bool infinite) {
        int n_exponents = 1 << (8 * size - 1 - mantissa), bias = n_exponents / 2 - 1;
        int exponent = (int)(bits >> mantissa) & (n_exponents - 1), fraction = (int)bits & ((1 << mantissa) - 1);
        double sign = bits >> (8 * size - 1) ? -1 : 1;

        if (exponent == n_exponents - 1 && infinite)
                return fraction ? (double)NAN : sign * INFINITY;
        if (exponent == n_exponents - 1 && fraction == (1 << mantissa) - 1)
                return (double)NAN;
        if (exponent == 0)
                return sign * ldexp(fraction, 1 - bias - mantissa);
        return sign * ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
}

static union value load(uint32_t type, const void *memory, size_t index) {
        size_t size = type_size(type);
        union value v = {.u = 0};
        float f;

        memcpy(&v.u, (const unsigned char *)memory + index * size, size);
        switch (type) {
        case RMX_FLOAT8_E4M3:
                v.f = decode((uint32_t)v.u, 1, 3, false);
                break;
        case RMX_FLOAT8_E5M2:
                v.f = decode((uint32_t)v.u, 1, 2, true);
                break;
        case RMX_FLOAT16:
                v.f = decode((uint32_t)v.u, 2, 10, true);
                break;
        case RMX_BFLOAT16:
                v.f = decode((uint32_t)v.u, 2, 7, true);
                break;
        case RMX_FLOAT32:
                memcpy(&f, &v.u, 4);
                v.f = (double)f;
                break;
        default:
                if (is_signed(type) && v.u >> (8 * size - 1))
                        v.u |= UINT64_MAX << (8 * size - 1);
                break;
        }
        return v;
}

static void store(uint32_t type, union value v, void *out) {
        if (is_float(type))
                reference_round(type, v.f, out);
        else
                memcpy(out, &v.u, type_size(type));
}

/* What the accumulator of a type makes of an exact result. */
static double held(uint32_t type, double f) {
        return type == RMX_FLOAT64 ? f : (double)(float)f;
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */
struct element {
        const struct tree_call *call;
        size_t index;
};

static union value leaf(const struct element *e, uint32_t rank) {
        const struct tree_call *call = e->call;
        union value v = load(call->type, call->source[rank], e->index), product;
        uint64_t scalar, element = 0;
        uint32_t low;
        double factor;
        float f;

        if (call->redop != RMX_PREMUL_SUM)
                return v;
        scalar = call->scalar[rank];
        low = (uint32_t)scalar;
        memcpy(&f, &low, 4);
        memcpy(&factor, &scalar, 8);
        if (!is_float(call->type))
                product.u = v.u * scalar;
        else
                product.f = held(call->type, v.f * (call->type == RMX_FLOAT64 ? factor : (double)f));
        store(call->type, product, &element);
        return load(call->type, &element, 0);
}

static union value combine(const struct tree_call *call, union value a, union value b) {
        bool take;

        if (call->redop == RMX_MAX || call->redop == RMX_MIN) { /* the other one is taken if it is better */
                if (is_float(call->type))
                        take = isnan(a.f) || (call->redop == RMX_MAX ? b.f > a.f : b.f < a.f);
                else if (is_signed(call->type))
                        take = call->redop == RMX_MAX ? (int64_t)b.u > (int64_t)a.u : (int64_t)b.u < (int64_t)a.u;
                else
                        take = call->redop == RMX_MAX ? b.u > a.u : b.u < a.u;
                return take ? b : a;
        }
        if (!is_float(call->type))
                a.u = call->redop == RMX_PROD ? a.u * b.u : a.u + b.u;
        else
                a.f = held(call->type, call->redop == RMX_PROD ? a.f * b.f : a.f + b.f);
        return a;
}

static union value chain(const struct element *e, uint32_t first) {
        uint32_t n = e->call->n;
        union value v = leaf(e, first % n);

        for (uint32_t i = 1; i < n; i++)
                v = combine(e->call, v, leaf(e, (first + i) % n));
        return v;
}

/* Ranks first .. first + size - 1, each with the one that is p above it. */
static union value doubling(const struct element *e, uint32_t first, uint32_t size, uint32_t p) {
        union value v;

        if (size > 1) {
                v = doubling(e, first, size / 2, p);
                return combine(e->call, v, doubling(e, first + size / 2, size / 2, p));
        }
        v = leaf(e, first);
        return first + p < e->call->n ? combine(e->call, v, leaf(e, first + p)) : v;
}

static union value binary(const struct element *e, uint32_t node) {
        uint32_t n = e->call->n;
        union value v = leaf(e, (node + e->call->origin) % n);

        for (uint32_t child = 2 * node + 1; child <= 2 * node + 2 && child < n; child++)
                v = combine(e->call, v, binary(e, child));
        return v;
}

static union value finish(const struct tree_call *call, union value v) {
        if (call->redop != RMX_AVG)
                return v;
        if (is_float(call->type))
                v.f = held(call->type, v.f / call->n);
        else if (is_signed(call->type))
                v.u = (uint64_t)((int64_t)v.u / (int64_t)call->n);
        else
                v.u /= call->n;
        return v;
}

void tree_reduce(const struct tree_call *call, size_t index, void *out) {
        struct element e = {call, index};
        uint32_t p = 1;
        union value v;

        while (2 * p <= call->n)
                p *= 2;
        switch (call->tree) {
        case PLAN_TREE_ROTATED:
                v = chain(&e, call->origin + 1);
                break;
        case PLAN_TREE_DOUBLING:
                v = doubling(&e, 0, p, p);
                break;
        case PLAN_TREE_BINARY:
                v = binary(&e, 0);
                break;
        default:
                v = chain(&e, 0);
                break;
        }
        store(call->type, finish(call, v), out);
}
