/* SPDX-License-Identifier: MIT */
#pragma once
/* Runs of the conformance suite, for its tests on one node and on several. Failures fail the running cmocka test. */
#include <stddef.h>
#include <stdint.h>

#define SUITE_NAME_MAX 64u

struct suite {
        const char *program, *library[2], *part;
        const char *sockets; /* of several nodes, commas between them; NULL: one node, which the environment names */
};

/* Another program, and the suite with a library and more arguments; both up to a NULL. What they print is shown; the
 * exit status must be `wanted`, and `word` must be there. */
void suite_run_program(const char *const argv[], int wanted, const char *word);
void suite_run(const struct suite *suite, const char *library, const char *const more[], int wanted, const char *word);
/* The part with both libraries and both kinds of memory. A sample has each once, and large calls in some ways only. */
void suite_run_both(const struct suite *suite);
/* How long one run may take. */
uint32_t suite_patience_ms(void);
/* What logs are named by. */
void suite_name(char name[SUITE_NAME_MAX], const char *prefix, const char *part);
