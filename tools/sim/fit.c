/* SPDX-License-Identifier: MIT */
/*
 * Fitting constants
 *
 * A prediction is the largest of several sums of (how often) x (constant). While the same sum is the largest it is
 * linear, and because it has no other terms its derivatives are the counts themselves: prediction = counts . constants,
 * exactly. So a round takes the counts from small changes of each constant and solves a linear least squares problem
 * with no constant below zero, one constant at a time; then other sums may be the largest, and there is another round.
 * Steps that make things worse are halved. Errors are relative: a microsecond too much matters in small requests, ten
 * per cent in large ones.
 *
 * What the measurements do not tell apart is held where it was by a weak pull towards the constants begun with. Since
 * the pull also holds back what has far to go, the whole is done a few times, each from where the last one ended.
 */
#include "tools/sim/fit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/constants.h"

#define PASSES   5u
#define ROUNDS   20u
#define SWEEPS   400u
#define HALVINGS 6u
#define NUDGE    1e-3
#define PULL     1e-4 /* of one line, per constant and line */

int fit_add(struct fit *fit, const struct fit_line *line) {
        if (fit->n_lines == fit->max_lines) {
                size_t max = fit->max_lines ? 2 * fit->max_lines : 64;
                struct fit_line *lines = reallocarray(fit->lines, max, sizeof(*lines));

                if (!lines)
                        return -ENOMEM;
                fit->lines = lines;
                fit->max_lines = max;
        }
        fit->lines[fit->n_lines++] = *line;
        return 0;
}

void fit_deinit(struct fit *fit) {
        free(fit->lines);
        *fit = (struct fit){0};
}

static bool same_model(const struct fit_line *a, const struct fit_line *b) {
        return a->operation == b->operation && a->algorithm == b->algorithm && a->n_ranks == b->n_ranks &&
               a->element_bytes == b->element_bytes && a->partial_bytes == b->partial_bytes;
}

/* Fills out[] with a prediction for each line. */
static int predict(const struct fit *fit, const struct plan_constants *constants, double *out) {
        struct plan_model model;
        struct plan_cost cost;

        for (size_t i = 0; i < fit->n_lines; i++) {
                const struct fit_line *line = &fit->lines[i];

                if (i == 0 || !same_model(line, line - 1)) {
                        struct plan plan;
                        int r = plan_build(line->operation, line->algorithm, line->n_ranks, &plan);

                        if (!r)
                                r = plan_model_init(&model, &plan, constants, NULL, line->element_bytes,
                                                    line->partial_bytes);
                        if (r)
                                return r < 0 ? r : -EINVAL;
                }
                plan_model_predict(&model, line->count, &cost);
                out[i] = cost.ns;
        }
        return 0;
}

static double error_of(const struct fit *fit, const double *predicted) {
        double sum = 0;

        for (size_t i = 0; i < fit->n_lines; i++)
                sum += pow(predicted[i] / fit->lines[i].measured_ns - 1, 2);
        return sqrt(sum / (double)fit->n_lines);
}

static double scale_of(const struct plan_constants *start, uint32_t j) {
        struct plan_constants copy = *start;
        double value = *constants_at(&copy, j);

        return value > 0 ? value : 100; /* request_ns is the one that starts at nothing */
}

/* error^2 plus the pull. */
static double objective(const struct fit *fit, const double *predicted, const struct plan_constants *start,
                        struct plan_constants constants) {
        struct plan_constants from = *start;
        double sum = pow(error_of(fit, predicted), 2);

        for (uint32_t j = 0; j < CONSTANTS_N; j++)
                sum += PULL * pow((*constants_at(&constants, j) - *constants_at(&from, j)) / scale_of(start, j), 2);
        return sum;
}

/* slopes[i * CONSTANTS_N + j]: of line i's relative prediction, in units of constant j's scale. */
static int slopes_find(const struct fit *fit, const struct plan_constants *constants,
                       const struct plan_constants *start, const double *predicted, double *nudged, double *slopes) {
        for (uint32_t j = 0; j < CONSTANTS_N; j++) {
                struct plan_constants other = *constants;
                double step = scale_of(start, j) * NUDGE;
                int r;

                *constants_at(&other, j) += step;
                r = predict(fit, &other, nudged);
                if (r)
                        return r;
                for (size_t i = 0; i < fit->n_lines; i++)
                        slopes[i * CONSTANTS_N + j] = (nudged[i] - predicted[i]) / NUDGE / fit->lines[i].measured_ns;
        }
        return 0;
}

/* Least squares with x >= 0: each x[j] in turn goes where it is best while the others stand. */
static void solve(const struct fit *fit, const double *slopes, const double start[CONSTANTS_N], double x[CONSTANTS_N]) {
        double normal[CONSTANTS_N][CONSTANTS_N] = {{0}}, right[CONSTANTS_N] = {0}, n = (double)fit->n_lines;

        for (size_t i = 0; i < fit->n_lines; i++)
                for (uint32_t j = 0; j < CONSTANTS_N; j++) {
                        right[j] += slopes[i * CONSTANTS_N + j] / n;
                        for (uint32_t k = 0; k < CONSTANTS_N; k++)
                                normal[j][k] += slopes[i * CONSTANTS_N + j] * slopes[i * CONSTANTS_N + k] / n;
                }
        for (uint32_t j = 0; j < CONSTANTS_N; j++) {
                right[j] += PULL * start[j];
                normal[j][j] += PULL;
        }
        for (uint32_t sweep = 0; sweep < SWEEPS; sweep++)
                for (uint32_t j = 0; j < CONSTANTS_N; j++) {
                        double rest = right[j];

                        for (uint32_t k = 0; k < CONSTANTS_N; k++)
                                rest -= k == j ? 0 : normal[j][k] * x[k];
                        x[j] = fmax(0, rest / normal[j][j]);
                }
}

struct workspace {
        double *predicted, *tried, *slopes;
};

/* One round; *ret_better says whether anything was won. */
static int fit_round(struct fit *fit, struct plan_constants *constants, const struct plan_constants *start,
                     struct workspace *w, bool *ret_better) {
        double x[CONSTANTS_N], from[CONSTANTS_N], before = objective(fit, w->predicted, start, *constants), part = 1;
        struct plan_constants origin = *start;
        int r = slopes_find(fit, constants, start, w->predicted, w->tried, w->slopes);

        if (r)
                return r;
        for (uint32_t j = 0; j < CONSTANTS_N; j++) {
                x[j] = *constants_at(constants, j) / scale_of(start, j);
                from[j] = *constants_at(&origin, j) / scale_of(start, j);
        }
        solve(fit, w->slopes, from, x);
        for (uint32_t i = 0; i < HALVINGS; i++, part /= 2) {
                struct plan_constants next = *constants;

                for (uint32_t j = 0; j < CONSTANTS_N; j++) {
                        double *value = constants_at(&next, j);

                        *value += part * (x[j] * scale_of(start, j) - *value);
                }
                r = predict(fit, &next, w->tried);
                if (r)
                        return r;
                if (objective(fit, w->tried, start, next) < before * (1 - 1e-9)) {
                        double *tried = w->tried;

                        w->tried = w->predicted;
                        w->predicted = tried;
                        *constants = next;
                        *ret_better = true;
                        return 0;
                }
        }
        *ret_better = false;
        return 0;
}

int fit_run(struct fit *fit, struct plan_constants *constants, struct fit_quality *ret_quality) {
        struct workspace w = {
                .predicted = calloc(fit->n_lines + 1, sizeof(double)),
                .tried = calloc(fit->n_lines + 1, sizeof(double)),
                .slopes = calloc((fit->n_lines + 1) * CONSTANTS_N, sizeof(double)),
        };
        struct plan_constants start = *constants, fitted = *constants;
        bool better;
        int r = -ENOMEM;

        if (w.predicted && w.tried && w.slopes)
                r = fit->n_lines > 0 ? predict(fit, &fitted, w.predicted) : -EINVAL;
        if (!r)
                ret_quality->error_before = error_of(fit, w.predicted);
        for (uint32_t pass = 0; !r && pass < PASSES; pass++) {
                start = fitted;
                better = true;
                for (uint32_t i = 0; !r && better && i < ROUNDS; i++)
                        r = fit_round(fit, &fitted, &start, &w, &better);
        }
        if (!r) {
                ret_quality->error = error_of(fit, w.predicted);
                for (size_t i = 0; i < fit->n_lines; i++)
                        fit->lines[i].predicted_ns = w.predicted[i];
                *constants = fitted;
        }
        free(w.predicted);
        free(w.tried);
        free(w.slopes);
        return r;
}
