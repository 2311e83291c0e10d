/* SPDX-License-Identifier: MIT */
#pragma once
/* A small decoder-only transformer whose numbers are integers held in fp32, split over ranks. See model.c. */
#include <stdint.h>

#define MODEL_WIDTH      64 /* of the residual stream */
#define MODEL_HEADS      8  /* also the largest number of ranks */
#define MODEL_HEAD_WIDTH (MODEL_WIDTH / MODEL_HEADS)
#define MODEL_HIDDEN     256 /* of the MLP */
#define MODEL_VOCABULARY 256
#define MODEL_LAYERS_MAX 16
#define MODEL_TOKENS_MAX 1024

struct model; /* one rank's shard, or the whole */

/* What joins the ranks. A single process needs none. Return 0, or non-zero to stop. */
struct model_links {
        int (*all_reduce)(void *context, float *values, uint32_t count); /* in place */
        int (*all_gather)(void *context, const float *mine, float *all, uint32_t count);
        void *context;
};

/* Weights follow from a fixed seed, so every rank makes its own shard. NULL if there is no memory. */
struct model *model_new(uint32_t n_layers, uint32_t n_tokens_max, uint32_t rank, uint32_t n_ranks,
                        const struct model_links *links);
struct model *model_free(struct model *model); /* returns NULL */
/* Feeds the token at the next position; logits gets MODEL_VOCABULARY values. 0, or what a link returned. */
int model_step(struct model *model, uint32_t token, float *logits);
/* The lowest token with the highest value. */
uint32_t model_choose(const float *logits);
