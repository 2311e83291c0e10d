/* SPDX-License-Identifier: MIT */
#pragma once
/* A library with NCCL's interface that works within one process and can be told to be wrong. See model.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_RANKS_MAX 8

enum model_kind {
        MODEL_ALL_REDUCE,
        MODEL_REDUCE,
        MODEL_BROADCAST,
        MODEL_ALL_GATHER,
        MODEL_REDUCE_SCATTER,
        MODEL_ALL_TO_ALL,
        MODEL_ALL_TO_ALL_V,
        MODEL_GATHER,
        MODEL_SCATTER,
        MODEL_SEND,
        MODEL_RECV,
        MODEL_JOIN, /* of a communicator */
};

/* What it does wrong, by name in $NCCL_MODEL_DEFECT. */
enum model_defect {
        DEFECT_NONE,
        DEFECT_LAST,    /* the last element of long reductions is missing */
        DEFECT_ROOT,    /* the root's neighbour is taken for the root */
        DEFECT_BEYOND,  /* a byte behind the output is written */
        DEFECT_INPUT,   /* an input is written */
        DEFECT_STALE,   /* now and then nothing happens */
        DEFECT_MIN,     /* the smallest of e5m2 is the largest */
        DEFECT_FACTOR,  /* factors are read late */
        DEFECT_AVERAGE, /* averages of integers are not divided */
        DEFECT_RANK,    /* blocks of two ranks are exchanged */
        DEFECT_PIECES,  /* pieces are packed without gaps */
        DEFECT_ERROR,   /* a call fails */
        DEFECT_CRASH,   /* a call does not survive */
        DEFECT_HANG,    /* a call does not return */
        DEFECT_COUNT,
};

struct model_call {
        enum model_kind kind;
        const char *in;
        char *out;
        size_t count;
        int type, redop;
        int peer; /* or root */
        size_t send_count[MODEL_RANKS_MAX], send_at[MODEL_RANKS_MAX];
        size_t recv_count[MODEL_RANKS_MAX], recv_at[MODEL_RANKS_MAX];
        uint64_t factor; /* bits of an element */
        bool has_factor;
};

enum model_defect model_defect_named(const char *name);
/* Runs a collective, of which there is a call for each rank. */
void model_run(struct model_call *const calls[], int n_ranks, enum model_defect defect, uint64_t number);
