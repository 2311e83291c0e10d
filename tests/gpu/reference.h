/* SPDX-License-Identifier: MIT */
#pragma once
/* What a reduction must give, element by element, written without the tricks of the kernels. */
#include <stddef.h>
#include <stdint.h>

struct reference_call {
        uint32_t type, redop;
        const void *const *source;
        uint32_t n;
        const uint64_t *scalar; /* n factors; used for sources whose bit is set in `scaled` */
        uint64_t scaled;
};
/* out[index] of the reduction of n arrays in order. */
void reference_reduce_call(const struct reference_call *call, size_t index, void *out);
/* The same without factors. */
void reference_reduce(uint32_t type, uint32_t redop, const void *const *source, uint32_t n, size_t index, void *out);

/* A number as an element of a floating type, which is written to out. */
void reference_round(uint32_t type, double d, void *out);

enum reference_style {
        REFERENCE_EXACT, /* small integers: every order and every accumulator gives the same result */
        REFERENCE_MILD,  /* finite numbers of a few binades: sums are inexact */
        REFERENCE_WILD,  /* any bits at all */
        REFERENCE_STYLE_COUNT,
};
/* Fills n elements with values that depend on all of seed, rank and position. */
void reference_fill(void *memory, uint32_t type, uint32_t redop, enum reference_style style, uint64_t seed,
                    uint32_t rank, size_t n);

/* A mixed 64-bit number; equal for equal inputs. */
uint64_t reference_mix(uint64_t a, uint64_t b, uint64_t c);
