/* SPDX-License-Identifier: MIT */
#pragma once
/* All that a node does for its clients, once: three ranks with the library, and an operator's questions. */
#include <stdbool.h>
#include <stdint.h>

#include "tests/e2e/node.h"

#define SCENARIO_RANKS    3u
#define SCENARIO_TEXT_MAX 200u

struct scenario_result {
        uint32_t failed;                              /* ranks that got an error, in the usual way */
        uint32_t wrong;                               /* ranks with wrong data */
        uint32_t hanging;                             /* ranks that did not end and were killed */
        char text[SCENARIO_RANKS][SCENARIO_TEXT_MAX]; /* the last thing that a rank did, and its error */
};

/* Forks the ranks and waits for them; never fails the test itself. */
struct scenario_result scenario_run(const struct node *node);
