/* SPDX-License-Identifier: MIT */
/*
 * What railmux-perf measures, and what is predicted. They are the same for most operations, with these exceptions.
 *
 *   sendrecv      All ranks form a ring: each sends to the next and receives from the one before, in one group. The
 *                 model of a send has one pair, in which one works for the other, and knows no groups.
 *   all_to_all_v  Without --equal each pair exchanges another number of elements, from none to `count`; the model has
 *                 `count` for each. Which it was, results say from the version on that has "equal" in them.
 *
 * To fit to these would only make the constants wrong, so they are left out, and whoever asked is told.
 */
#include "tools/sim/measured.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tools/sim/document.h"
#include "util/type.h"

struct source {
        const struct options *options;
        const struct plan_constants *constants;
        uint32_t algorithm; /* as the name says, 0: it does not */
};

static uint32_t chosen(const struct source *source, uint32_t operation, uint32_t n_ranks, uint64_t bytes) {
        struct plan_choice choices[PLAN_CHOICES_MAX];
        uint32_t n = plan_choose(source->constants, n_ranks, choices);
        const struct plan_choice *choice = plan_choice_find(choices, n, operation, 1, bytes);

        return choice ? choice->algorithm : PLAN_ALGORITHM_NONE;
}

static uint32_t algorithm_of(const struct source *source, const json_t *result, const struct fit_line *line) {
        const char *named = json_string_value(json_object_get(result, "algorithm"));

        if (source->algorithm != PLAN_ALGORITHM_NONE)
                return source->algorithm;
        if (named)
                return options_algorithm_find(named);
        if (source->options->algorithm != PLAN_ALGORITHM_NONE)
                return source->options->algorithm;
        return chosen(source, line->operation, line->n_ranks, line->count * line->element_bytes);
}

const char *measured_why(enum measured_left_out why) {
        static const char *const texts[] = {
                [MEASURED_RING] = "of sendrecv, in which all ranks send and receive at once; predicted is one pair",
                [MEASURED_UNEVEN] =
                        "of all_to_all_v without --equal, in which pairs exchange more or less; predicted is the same "
                        "for each",
        };

        return texts[why];
}

/* railmux-perf has its own word for a send and its receive. */
static uint32_t operation_of(const char *name) {
        return options_operation_find(strcmp(name, "sendrecv") == 0 ? "send" : name);
}

/* MEASURED_LEFT_OUT_N: it is not left out. */
static enum measured_left_out left_out_as(const json_t *result, const char *op) {
        if (strcmp(op, "sendrecv") == 0)
                return MEASURED_RING;
        if (strcmp(op, "all_to_all_v") == 0 && !json_is_true(json_object_get(result, "equal")))
                return MEASURED_UNEVEN;
        return MEASURED_LEFT_OUT_N;
}

/* 0, -EINVAL: it is no result. Lines that are not usable (no time, another number of ranks, or counted in left_out)
 * leave *ret_line empty. */
static int read_line(const struct source *source, const json_t *result, size_t left_out[MEASURED_LEFT_OUT_N],
                     struct fit_line *ret_line) {
        const char *op = json_string_value(json_object_get(result, "op"));
        const char *type = json_string_value(json_object_get(result, "type"));
        json_int_t ranks = json_integer_value(json_object_get(result, "ranks"));
        json_int_t count = json_integer_value(json_object_get(result, "count"));
        double us = json_number_value(json_object_get(result, "p50_us"));
        struct fit_line line = {.operation = op ? operation_of(op) : UINT32_MAX};
        uint32_t number = type && strcmp(type, "none") != 0 ? options_type_find(type) : RMX_UINT8;
        enum measured_left_out why;
        struct plan plan;

        *ret_line = (struct fit_line){0};
        us = us > 0 ? us : json_number_value(json_object_get(result, "time_us"));
        if (line.operation == UINT32_MAX || !type || number == UINT32_MAX || ranks < 1 || ranks > PLAN_RANKS_MAX ||
            count < 0)
                return -EINVAL;
        if (!(us > 0) || (source->options->ranks_given && (uint32_t)ranks != source->options->ranks))
                return 0;
        why = left_out_as(result, op);
        if (why != MEASURED_LEFT_OUT_N) {
                left_out[why]++;
                return 0;
        }
        line.n_ranks = (uint32_t)ranks;
        line.count = (uint64_t)count;
        line.element_bytes = (uint32_t)type_size(number);
        line.partial_bytes = (uint32_t)type_accumulator_size(number, RMX_SUM);
        line.measured_ns = us * 1000;
        line.algorithm = algorithm_of(source, result, &line);
        if (plan_build(line.operation, line.algorithm, line.n_ranks, &plan) == PLAN_OK)
                *ret_line = line;
        return 0;
}

int measured_load(struct fit *fit, const char *name, const struct options *options,
                  const struct plan_constants *constants, size_t left_out[MEASURED_LEFT_OUT_N],
                  char ret_error[OPTIONS_ERROR_MAX]) {
        struct source source = {.options = options, .constants = constants};
        const char *path = name, *equals = strchr(name, '=');
        const json_t *results, *item;
        json_t *root;
        char algorithm[32];
        size_t i;
        int r = 0;

        if (equals && (size_t)(equals - name) < sizeof(algorithm)) {
                snprintf(algorithm, sizeof(algorithm), "%.*s", (int)(equals - name), name);
                if (options_algorithm_find(algorithm) != UINT32_MAX) {
                        source.algorithm = options_algorithm_find(algorithm);
                        path = equals + 1;
                }
        }
        root = document_load(path, ret_error, OPTIONS_ERROR_MAX);
        results = json_object_get(root, "results");
        if (root && !json_is_array(results))
                snprintf(ret_error, OPTIONS_ERROR_MAX, "%.100s: there are no results of railmux-perf in it", path);
        if (!root || !json_is_array(results))
                r = -EINVAL;
        json_array_foreach(results, i, item) {
                struct fit_line line;

                r = r ? r : read_line(&source, item, left_out, &line);
                if (r == -EINVAL) {
                        snprintf(ret_error, OPTIONS_ERROR_MAX, "%.100s: result %zu is not one of railmux-perf", path,
                                 i);
                        break;
                }
                if (!r && line.measured_ns > 0)
                        r = fit_add(fit, &line);
        }
        json_decref(root);
        return r;
}
