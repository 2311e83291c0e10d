/* SPDX-License-Identifier: MIT */
#pragma once
/* The tensor-parallel run: forks the ranks, each with its shard of the model and its own session with the daemon. */
#include <stdint.h>

#include "model.h"

struct ranks_run {
        uint32_t n_ranks, n_layers, n_tokens;
        const char *socket;     /* NULL: the library's default */
        const float *reference; /* n_tokens * MODEL_VOCABULARY logits of the single-process run */
};

struct ranks_result {
        uint64_t nanoseconds; /* of rank 0, for all tokens */
        uint64_t different;   /* logits of any rank that differ in any bit from the reference */
        uint64_t checksum;    /* over rank 0's logits */
};

/* Tokens are chosen from the logits as the run goes; the first one is `MODEL_FIRST_TOKEN`. */
#define MODEL_FIRST_TOKEN 1u
uint64_t ranks_checksum(const float *logits, uint32_t n_tokens);
/* 0, or 1 after a message on stderr. */
int ranks_execute(const struct ranks_run *run, struct ranks_result *ret_result);
