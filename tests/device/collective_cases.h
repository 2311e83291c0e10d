/* SPDX-License-Identifier: MIT */
#pragma once
/* Collectives to try on the emulator: inputs made of rank and position, and what must come out. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "railmux/railmux.h"
#include "tests/device/emulator.h"

#define CHECK(condition, ...)                                                                                          \
        do {                                                                                                           \
                if (!(condition)) {                                                                                    \
                        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                \
                        fprintf(stderr, __VA_ARGS__);                                                                  \
                        fputc('\n', stderr);                                                                           \
                        fflush(NULL);                                                                                  \
                        _Exit(1);                                                                                      \
                }                                                                                                      \
        } while (0)

struct collective_case {
        uint32_t n, operation, type, redop, root;
        uint64_t count;
        bool in_place, inlined;
        uint32_t shift;      /* elements that the buffers begin later */
        const uint8_t *node; /* of each rank: sums are in node order; NULL: in rank order */
};

#define N_COLLECTIVE_OPERATIONS 9u
extern const uint32_t collective_operations[N_COLLECTIVE_OPERATIONS];

bool operation_has_redop(uint32_t operation);
bool operation_has_root(uint32_t operation);
/* Element i of an input. */
void case_put(uint32_t type, void *to, uint64_t i, uint64_t seed);
void case_elements(const struct collective_case *c, uint32_t rank, uint64_t *ret_in, uint64_t *ret_out);
/* A rank's factor for RMX_PREMUL_SUM. */
uint64_t case_scalar(uint32_t type, uint32_t rank);
/* What rank's output holds when in[r] are the inputs. */
void case_expected(const struct collective_case *c, uint32_t rank, unsigned char *const *in, unsigned char *to,
                   const uint64_t *scalar);

/* A request of one rank whose buffers (ids of them) hold `bytes`; fills the input, poisons the output, and keeps a copy
 * of the input. in_at and out_at: where in the buffers this request begins. */
struct case_buffers {
        unsigned char *in, *out, *copy;
        uint32_t in_id, out_id;
        uint64_t in_at, out_at;
        uint64_t bytes;
};
void case_request(const struct collective_case *c, uint32_t rank, uint64_t seed, const struct case_buffers *b,
                  struct emulator_request *ret_request);
/* Is there what must be? Says on stderr what is not. want: scratch. */
bool case_right(const struct collective_case *c, uint32_t rank, unsigned char *const *copies,
                const struct case_buffers *b, const struct emulator_request *request, unsigned char *want);
/* Any operation, type, redop, root, place; up to max_bytes in any buffer. */
struct collective_case case_random(uint32_t n, uint64_t random, uint64_t max_bytes);

/* $RAILMUX_SEED, or a fixed one; printed. */
uint64_t test_seed(void);
bool test_full(void); /* RAILMUX_FULL=1 */
/* Whether the i-th of n is tried: each, but under AddressSanitizer, where all is slow, one, by the seed. */
bool test_takes(uint64_t seed, uint32_t i, uint32_t n);
/* How often what draws by a seed is repeated: as usual, in full; a third of the former under AddressSanitizer. */
uint32_t test_rounds(uint32_t usual, uint32_t full);
