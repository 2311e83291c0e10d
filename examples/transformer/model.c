/* SPDX-License-Identifier: MIT */
/*
 * The model, and why its output does not depend on the number of ranks.
 *
 * Floating-point sums depend on their order, and tensor parallelism changes the order. Here every number is an integer
 * below 2^24, which fp32 holds exactly, and so is every partial sum; then each order gives the same bits, and a run
 * over N processes can be compared with a run in one process bit for bit. What keeps the numbers integers:
 *
 *   - weights are in -2..2, activations of the residual stream in -8..8;
 *   - after each product the result is shifted right (floor) and clamped: the re-quantisation of an integer network;
 *   - attention is ReLU attention: score = max(0, q.k) in place of softmax, because exp() and the division by a sum are
 *     inexact. Scores are re-quantised like everything else;
 *   - the largest sum is 256 hidden values of at most 15 times weights of at most 2: 7680, far below 2^24.
 *
 * Splitting follows the usual scheme. Rank r has heads and hidden units [r * share, (r + 1) * share): columns of the
 * matrices that read the residual stream (wq, wk, wv, up), rows of those that write it (wo, down). Each layer thus
 * needs two all_reduces of the width of the stream. The output matrix is split by vocabulary and joined by an
 * all_gather.
 */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct layer {
        float *wq, *wk, *wv;  /* [my heads * head width][width] */
        float *wo;            /* [width][my heads * head width] */
        float *up;            /* [my hidden][width] */
        float *down;          /* [width][my hidden] */
        float *keys, *values; /* [token][my heads * head width] */
};

struct model {
        struct model_links links;
        uint32_t n_layers, n_tokens_max, rank, n_ranks;
        uint32_t attention, hidden, vocabulary; /* my shares */
        uint32_t position;
        float *embedding; /* [vocabulary, whole][width] */
        float *output;    /* [my vocabulary][width] */
        struct layer layers[MODEL_LAYERS_MAX];
};

/* A weight in -2..2 that depends only on which matrix of which layer it belongs to and its place in the whole matrix.
 */
static float weight(uint32_t layer, uint32_t matrix, uint32_t row, uint32_t column) {
        uint64_t x = ((uint64_t)layer << 48) ^ ((uint64_t)matrix << 40) ^ ((uint64_t)row << 20) ^ column;

        x = (x + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 30) * 0x94d049bb133111ebu;
        return (float)(int)((x >> 33) % 5u) - 2.0f;
}

/* Rows [row0, row0 + rows) and columns [column0, column0 + columns) of a matrix. */
static float *matrix_new(uint32_t layer, uint32_t matrix, uint32_t row0, uint32_t rows, uint32_t column0,
                         uint32_t columns) {
        float *m = malloc((size_t)rows * columns * sizeof(*m));

        for (uint32_t r = 0; m && r < rows; r++)
                for (uint32_t c = 0; c < columns; c++)
                        m[(size_t)r * columns + c] = weight(layer, matrix, row0 + r, column0 + c);
        return m;
}

struct model *model_free(struct model *model) {
        if (!model)
                return NULL;
        for (uint32_t i = 0; i < MODEL_LAYERS_MAX; i++) {
                struct layer *l = &model->layers[i];
                float *all[] = {l->wq, l->wk, l->wv, l->wo, l->up, l->down, l->keys, l->values};

                for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
                        free(all[k]);
        }
        free(model->embedding);
        free(model->output);
        free(model);
        return NULL;
}

static int layer_init(struct model *m, uint32_t number) {
        struct layer *l = &m->layers[number];
        uint32_t a0 = m->rank * m->attention, h0 = m->rank * m->hidden;

        l->wq = matrix_new(number, 0, a0, m->attention, 0, MODEL_WIDTH);
        l->wk = matrix_new(number, 1, a0, m->attention, 0, MODEL_WIDTH);
        l->wv = matrix_new(number, 2, a0, m->attention, 0, MODEL_WIDTH);
        l->wo = matrix_new(number, 3, 0, MODEL_WIDTH, a0, m->attention);
        l->up = matrix_new(number, 4, h0, m->hidden, 0, MODEL_WIDTH);
        l->down = matrix_new(number, 5, 0, MODEL_WIDTH, h0, m->hidden);
        l->keys = calloc((size_t)m->n_tokens_max * m->attention, sizeof(float));
        l->values = calloc((size_t)m->n_tokens_max * m->attention, sizeof(float));
        return l->wq && l->wk && l->wv && l->wo && l->up && l->down && l->keys && l->values;
}

struct model *model_new(uint32_t n_layers, uint32_t n_tokens_max, uint32_t rank, uint32_t n_ranks,
                        const struct model_links *links) {
        struct model *m = calloc(1, sizeof(*m));

        if (!m)
                return NULL;
        if (links)
                m->links = *links;
        m->n_layers = n_layers;
        m->n_tokens_max = n_tokens_max;
        m->rank = rank;
        m->n_ranks = n_ranks;
        m->attention = MODEL_WIDTH / n_ranks;
        m->hidden = MODEL_HIDDEN / n_ranks;
        m->vocabulary = MODEL_VOCABULARY / n_ranks;
        m->embedding = matrix_new(n_layers, 6, 0, MODEL_VOCABULARY, 0, MODEL_WIDTH);
        m->output = matrix_new(n_layers, 7, rank * m->vocabulary, m->vocabulary, 0, MODEL_WIDTH);
        if (!m->embedding || !m->output)
                return model_free(m);
        for (uint32_t i = 0; i < n_layers; i++)
                if (!layer_init(m, i))
                        return model_free(m);
        return m;
}

static float clamp(float x, float low, float high) {
        return x < low ? low : x > high ? high : x;
}

/* Shift right with floor, then clamp. Exact: x is an integer below 2^24 and the divisor a power of two. */
static float requantise(float x, int shift, float low, float high) {
        return clamp(floorf(ldexpf(x, -shift)), low, high);
}

static void multiply(const float *matrix, const float *x, uint32_t rows, uint32_t columns, float *ret_y) {
        for (uint32_t r = 0; r < rows; r++) {
                float sum = 0;

                for (uint32_t c = 0; c < columns; c++)
                        sum += matrix[(size_t)r * columns + c] * x[c];
                ret_y[r] = sum;
        }
}

/* One head over all positions so far; q, and the caches, at this head's place. */
static void attend(const struct model *m, const struct layer *l, uint32_t head, const float *q, float *ret_out) {
        float sums[MODEL_HEAD_WIDTH] = {0};
        uint32_t at = head * MODEL_HEAD_WIDTH;

        for (uint32_t t = 0; t <= m->position; t++) {
                const float *key = l->keys + (size_t)t * m->attention + at;
                const float *value = l->values + (size_t)t * m->attention + at;
                float score = 0;

                for (uint32_t i = 0; i < MODEL_HEAD_WIDTH; i++)
                        score += q[at + i] * key[i];
                score = requantise(score, 3, 0, 15); /* the ReLU is the lower bound */
                for (uint32_t i = 0; i < MODEL_HEAD_WIDTH; i++)
                        sums[i] += score * value[i]; /* at most 1024 tokens * 15 * 7: exact */
        }
        for (uint32_t i = 0; i < MODEL_HEAD_WIDTH; i++)
                ret_out[at + i] = requantise(sums[i], 4, -7, 7);
}

/* Adds what all ranks computed for the stream, re-quantised, to the stream. */
static int join_stream(const struct model *m, float *partial, int shift, float *stream) {
        if (m->links.all_reduce) {
                int r = m->links.all_reduce(m->links.context, partial, MODEL_WIDTH);

                if (r)
                        return r;
        }
        for (uint32_t i = 0; i < MODEL_WIDTH; i++)
                stream[i] = clamp(stream[i] + requantise(partial[i], shift, -8, 8), -8, 8);
        return 0;
}

static int layer_step(struct model *m, const struct layer *l, float *stream) {
        float q[MODEL_WIDTH], mixed[MODEL_WIDTH], hidden[MODEL_HIDDEN], partial[MODEL_WIDTH];
        float *key = l->keys + (size_t)m->position * m->attention;
        float *value = l->values + (size_t)m->position * m->attention;
        int r;

        multiply(l->wq, stream, m->attention, MODEL_WIDTH, q);
        multiply(l->wk, stream, m->attention, MODEL_WIDTH, key);
        multiply(l->wv, stream, m->attention, MODEL_WIDTH, value);
        for (uint32_t i = 0; i < m->attention; i++) {
                q[i] = requantise(q[i], 4, -7, 7);
                key[i] = requantise(key[i], 4, -7, 7);
                value[i] = requantise(value[i], 4, -7, 7);
        }
        for (uint32_t head = 0; head < m->attention / MODEL_HEAD_WIDTH; head++)
                attend(m, l, head, q, mixed);
        multiply(l->wo, mixed, MODEL_WIDTH, m->attention, partial);
        r = join_stream(m, partial, 3, stream);
        if (r)
                return r;

        multiply(l->up, stream, m->hidden, MODEL_WIDTH, hidden);
        for (uint32_t i = 0; i < m->hidden; i++)
                hidden[i] = requantise(hidden[i], 3, 0, 15);
        multiply(l->down, hidden, MODEL_WIDTH, m->hidden, partial);
        return join_stream(m, partial, 5, stream);
}

int model_step(struct model *m, uint32_t token, float *logits) {
        float stream[MODEL_WIDTH], mine[MODEL_VOCABULARY];
        int r;

        for (uint32_t i = 0; i < MODEL_WIDTH; i++) /* the position enters as a shift of the embedding */
                stream[i] =
                        clamp(m->embedding[(size_t)token * MODEL_WIDTH + (i + m->position) % MODEL_WIDTH] * 3, -8, 8);
        for (uint32_t i = 0; i < m->n_layers; i++) {
                r = layer_step(m, &m->layers[i], stream);
                if (r)
                        return r;
        }
        m->position++;
        multiply(m->output, stream, m->vocabulary, MODEL_WIDTH, mine);
        if (m->links.all_gather)
                return m->links.all_gather(m->links.context, mine, logits, m->vocabulary);
        memcpy(logits, mine, sizeof(mine));
        return 0;
}

uint32_t model_choose(const float *logits) {
        uint32_t best = 0;

        for (uint32_t i = 1; i < MODEL_VOCABULARY; i++)
                if (logits[i] > logits[best])
                        best = i;
        return best;
}
