/* SPDX-License-Identifier: MIT */
#pragma once
/* Fitting the model's constants to measurements. */
#include "plan/cost.h"

struct fit_line { /* one measurement */
        uint32_t operation, algorithm, n_ranks;
        uint32_t element_bytes, partial_bytes;
        uint64_t count;
        double measured_ns;
        double predicted_ns; /* fit_run fills it in */
};

struct fit {
        struct fit_line *lines;
        size_t n_lines, max_lines;
};

struct fit_quality {
        double error_before, error; /* root of the mean square of predicted / measured - 1 */
};

/* -ENOMEM. */
int fit_add(struct fit *fit, const struct fit_line *line);
void fit_deinit(struct fit *fit);
/* Improves *constants; those that no line says anything about stay. -EINVAL without lines, -ENOMEM. */
int fit_run(struct fit *fit, struct plan_constants *constants, struct fit_quality *ret_quality);
