/* SPDX-License-Identifier: MIT */
#pragma once
/* The processes behind load.h. They never return. */
#include "tests/e2e/load.h"

void load_rank_run(struct load_shared *shared, const char *socket, uint32_t n_ranks, uint32_t rank)
        __attribute__((noreturn));
void load_creator_run(struct load_shared *shared, const char *socket, uint32_t number, int command, int answer)
        __attribute__((noreturn));
