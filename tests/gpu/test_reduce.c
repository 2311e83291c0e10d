/* SPDX-License-Identifier: MIT */
/* Reduction kernels of every instruction set against the reference, bit for bit. */
#include "tests/cmocka_all.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/host/reduce.h"
#include "reference.h"
#include "util/type.h"

#define OUTS_MAX  8u
#define PAD_BYTES 64u
#define GUARD     0xdb

static const struct reduce_kernels *kernels_next(unsigned int *at) {
        return reduce_kernels_at((*at)++);
}

/* ---- any shape --------------------------------------------------------------------------------------------------- */
struct shape {
        uint32_t type, redop;
        enum reference_style style;
        uint32_t n, n_out;
        size_t length;
        bool aligned;      /* else each array has an odd place of its own */
        int in_place;      /* which source is also the first output, or -1 */
        uint64_t scaled;   /* as in reduce_call */
        uint64_t partials; /* these sources are handed over as accumulators */
        uint32_t cut;      /* 0, or: the first `cut` sources are one accumulator, made by a call of their own */
        bool finish, stream;
};

struct arrays {
        unsigned char *in[REDUCE_SOURCES_MAX], *partial[REDUCE_SOURCES_MAX], *out[OUTS_MAX], *want;
        uint64_t scalar[REDUCE_SOURCES_MAX];
};

static size_t shape_offset(const struct shape *s, uint32_t i) {
        return s->aligned ? 0 : 1 + i % 5 * 3;
}

/* A factor that the type can hold: negative, zero and large ones too. */
static uint64_t make_scalar(uint32_t type, uint64_t random) {
        static const double values[] = {-1, 0, 2, -0.375, 1.0 / 3, 1e30, -3.14159, -0.0, 1e-6};
        static const int64_t integers[] = {-1, 0, 2, -7, 100, INT32_MIN, 3};
        double d = values[random % (sizeof(values) / sizeof(values[0]))];
        float f = (float)d;
        uint64_t bits = 0;
        uint32_t low;

        if (type < RMX_FLOAT16) {
                unsigned int shift = 64 - 8 * (unsigned int)type_size(type);

                bits = (uint64_t)integers[random % (sizeof(integers) / sizeof(integers[0]))] << shift;
                return type % 2 == 0 ? (uint64_t)((int64_t)bits >> shift) : bits >> shift;
        }
        if (type == RMX_FLOAT64) {
                memcpy(&bits, &d, 8);
                return bits;
        }
        memcpy(&low, &f, 4);
        return low;
}

static void *allocate(size_t bytes) {
        void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);

        assert_non_null(memory);
        return memory;
}

static void arrays_init(struct arrays *a, const struct shape *s) {
        size_t size = type_size(s->type), acc_size = type_accumulator_size(s->type, s->redop);
        const void *source[REDUCE_SOURCES_MAX];
        struct reference_call call = {
                .type = s->type,
                .redop = s->redop,
                .source = source,
                .n = s->n,
                .scalar = a->scalar,
                .scaled = s->scaled,
        };

        /* What is rounded without being finished is the sum. */
        if (s->redop == RMX_AVG && !s->finish)
                call.redop = RMX_SUM;
        for (uint32_t r = 0; r < s->n; r++) {
                a->in[r] = (unsigned char *)allocate(size * s->length + PAD_BYTES) + shape_offset(s, r);
                a->partial[r] = allocate(acc_size * s->length + PAD_BYTES);
                a->scalar[r] = make_scalar(s->type, reference_mix(s->length, r, s->n));
                reference_fill(a->in[r], s->type, s->redop, s->style, 7 * s->length + s->n, r, s->length);
                source[r] = a->in[r];
        }
        for (uint32_t o = 0; o < OUTS_MAX; o++)
                a->out[o] = (unsigned char *)allocate(size * s->length + 2 * PAD_BYTES) + shape_offset(s, o + 1);
        a->want = allocate(size * s->length);
        for (size_t i = 0; i < s->length; i++)
                reference_reduce_call(&call, i, a->want + i * size);
}

static void arrays_deinit(struct arrays *a, const struct shape *s) {
        for (uint32_t r = 0; r < s->n; r++) {
                free(a->in[r] - shape_offset(s, r));
                free(a->partial[r]);
        }
        for (uint32_t o = 0; o < OUTS_MAX; o++)
                free(a->out[o] - shape_offset(s, o + 1));
        free(a->want);
}

static void fail_shape(const struct shape *s, const char *name, const char *what, uint32_t out, size_t at) {
        fail_msg("%s: type %u redop %u style %d n %u n_out %u length %zu aligned %d in_place %d scaled %llx partials "
                 "%llx cut %u finish %d stream %d: %s, output %u, byte %zu",
                 name, s->type, s->redop, (int)s->style, s->n, s->n_out, s->length, s->aligned, s->in_place,
                 (unsigned long long)s->scaled, (unsigned long long)s->partials, s->cut, s->finish, s->stream, what,
                 out, at);
}

/* Turns sources [from, until) into one accumulator; in two steps, the second of which is in place, where it can. */
static void make_partial(reduce_fn fn, const struct arrays *a, const struct shape *s, uint32_t from, uint32_t until,
                         unsigned char *to) {
        const void *source[REDUCE_SOURCES_MAX];
        void *out[1] = {to};
        struct reduce_call call = {
                .out = out,
                .n_out = 1,
                .source = (const void *const *)a->in + from,
                .n = until - from,
                .scalar = a->scalar + from,
                .scaled = s->scaled >> from,
                .n_ranks = s->n,
                .out_partial = true,
                .finish = s->finish,
                .stream = s->stream,
                .length = s->length,
        };
        size_t bytes = type_accumulator_size(s->type, s->redop) * s->length;

        memset(to + bytes, GUARD, PAD_BYTES);
        if (until - from > 2 && s->finish) {
                call.n = 2;
                fn(&call);
                for (uint32_t r = from + 2; r < until; r++)
                        source[r - from - 1] = a->in[r];
                source[0] = to;
                call.source = source;
                call.n = until - from - 1;
                call.partials = 1;
                call.scaled >>= 1;
                call.scalar++;
        }
        fn(&call);
        for (size_t i = 0; i < PAD_BYTES; i++)
                if (to[bytes + i] != GUARD)
                        fail_shape(s, "partial", "written behind the end", 0, i);
}

static void check_outputs(const struct reduce_kernels *kernels, const struct arrays *a, const struct shape *s,
                          void *const *out) {
        size_t bytes = type_size(s->type) * s->length;

        for (uint32_t o = 0; o < OUTS_MAX; o++) {
                for (size_t i = 0; o < s->n_out && i < bytes; i++)
                        if (((unsigned char *)out[o])[i] != a->want[i])
                                fail_shape(s, kernels->name, "wrong", o, i);
                for (size_t i = o < s->n_out && out[o] == a->out[o] ? bytes : 0; i < bytes + PAD_BYTES; i++)
                        if (a->out[o][i] != GUARD)
                                fail_shape(s, kernels->name, "written outside", o, i);
        }
}

static void run_shape(const struct reduce_kernels *kernels, struct arrays *a, const struct shape *s) {
        reduce_fn fn = kernels->fn[s->type][s->redop];
        const void *source[REDUCE_SOURCES_MAX];
        void *out[OUTS_MAX];
        struct reduce_call call = {
                .out = out,
                .n_out = s->n_out,
                .source = source,
                .n = s->cut > 0 ? s->n - s->cut + 1 : s->n,
                .scalar = a->scalar,
                .scaled = s->scaled,
                .partials = s->partials,
                .n_ranks = s->n,
                .finish = s->finish,
                .stream = s->stream,
                .length = s->length,
        };
        uint32_t shift = s->cut > 0 ? s->cut - 1 : 0;

        for (uint32_t o = 0; o < OUTS_MAX; o++) {
                out[o] = o == 0 && s->in_place >= 0 ? a->in[s->in_place] : a->out[o];
                memset(a->out[o] - shape_offset(s, o + 1), GUARD, type_size(s->type) * s->length + 2 * PAD_BYTES);
        }
        for (uint32_t r = 0; r < s->n; r++) {
                reference_fill(a->in[r], s->type, s->redop, s->style, 7 * s->length + s->n, r, s->length);
                if (s->partials >> r & 1)
                        make_partial(fn, a, s, r, r + 1, a->partial[r]);
        }
        if (s->cut > 0)
                make_partial(fn, a, s, 0, s->cut, a->partial[shift]);
        call.partials = (s->partials | (s->cut > 0 ? 1ull << shift : 0)) >> shift;
        call.scaled >>= shift;
        call.scalar = s->scaled ? call.scalar + shift : NULL;
        for (uint32_t i = 0; i < call.n; i++)
                source[i] = call.partials >> i & 1 ? a->partial[i + shift] : a->in[i + shift];
        fn(&call);
        check_outputs(kernels, a, s, out);
}

static void check_shape(const struct shape *s) {
        const struct reduce_kernels *kernels;
        unsigned int at = 0;
        struct arrays a;

        arrays_init(&a, s);
        while ((kernels = kernels_next(&at)))
                run_shape(kernels, &a, s);
        arrays_deinit(&a, s);
}

/* The shape's rest follows from a number. */
static void check_random(uint32_t type, uint32_t redop, uint32_t n, size_t length, uint64_t seed) {
        uint64_t random = reference_mix(seed, n, length);
        uint64_t all = n == 64 ? UINT64_MAX : (1ull << n) - 1;
        struct shape s = {
                .type = type,
                .redop = redop,
                .style = (enum reference_style)(random % REFERENCE_STYLE_COUNT),
                .n = n,
                .n_out = random >> 4 & 1 ? 1 : (random >> 8) % (OUTS_MAX + 1),
                .length = length,
                .aligned = random >> 16 & 1,
                .in_place = random >> 17 & 1 ? (int)((random >> 20) % n) : -1,
                .scaled = redop == RMX_PREMUL_SUM ? reference_mix(random, 1, 1) & all : 0,
                .finish = (random >> 27 & 3) > 0,
                .stream = random >> 29 & 1,
        };

        if (random >> 30 & 1)
                s.partials = reference_mix(random, 2, 2) & all;
        else if (random >> 31 & 1)
                s.cut = (uint32_t)((random >> 32) % n);
        check_shape(&s);
}

static void test_kernels_agree_with_reference(void **state) {
        static const uint32_t many[] = {16, 17, 33, 64};
        static const size_t lengths[] = {0, 1, 3, 15, 17, 61, 64, 127, 255, 256, 259, 513};
        uint64_t seed = 0;

        (void)state;
        for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++)
                for (uint32_t redop = 0; redop < RMX_REDOP_COUNT; redop++) {
                        assert_true(reduce_supported(type, redop));
                        for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++)
                                for (uint32_t n = 1; n <= 9; n++)
                                        check_random(type, redop, n, lengths[l], seed++);
                        for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++)
                                check_random(type, redop, many[i], i == 3 ? 259 : 61, seed++);
                        /* Several blocks of the first-level cache. */
                        check_random(type, redop, 3, 4097, seed++);
                        check_random(type, redop, 17, 1537, seed++);
                }
}

static void test_every_cut_and_every_output(void **state) {
        static const struct {
                uint32_t type, redop;
        } cases[] = {
                {RMX_FLOAT16, RMX_SUM},      {RMX_BFLOAT16, RMX_AVG},
                {RMX_FLOAT8_E4M3, RMX_PROD}, {RMX_FLOAT8_E5M2, RMX_MIN},
                {RMX_INT8, RMX_AVG},         {RMX_FLOAT32, RMX_SUM},
                {RMX_INT64, RMX_AVG},        {RMX_BFLOAT16, RMX_PREMUL_SUM},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
                for (uint32_t n_out = 0; n_out <= OUTS_MAX; n_out++)
                        for (uint32_t cut = 0; cut < 9; cut++)
                                check_shape(&(struct shape){
                                        .type = cases[i].type,
                                        .redop = cases[i].redop,
                                        .style = cut % 2 ? REFERENCE_MILD : REFERENCE_WILD,
                                        .n = 9,
                                        .n_out = n_out,
                                        .length = 131,
                                        .aligned = n_out % 2,
                                        .in_place = cut < 4 ? (int)cut + 4 : -1,
                                        .scaled = cases[i].redop == RMX_PREMUL_SUM ? 0x155 : 0,
                                        .cut = cut,
                                        .finish = true,
                                        .stream = cut % 3 == 0,
                                });
}

static void test_supported(void **state) {
        (void)state;
        assert_true(reduce_supported(RMX_FLOAT32, RMX_SUM));
        assert_true(reduce_supported(RMX_FLOAT8_E5M2, RMX_PREMUL_SUM));
        assert_false(reduce_supported(RMX_TYPE_COUNT, RMX_SUM));
        assert_false(reduce_supported(RMX_FLOAT32, RMX_REDOP_COUNT));
        assert_null(reduce_find(RMX_FLOAT8_E4M3, RMX_REDOP_COUNT));
        assert_non_null(reduce_find(RMX_INT32, RMX_PROD));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_supported),
                cmocka_unit_test(test_kernels_agree_with_reference),
                cmocka_unit_test(test_every_cut_and_every_output),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
