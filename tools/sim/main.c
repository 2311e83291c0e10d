/* SPDX-License-Identifier: MIT */
/* railmux-sim: shows how a collective would run, without running it. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/constants.h"
#include "tools/sim/cluster_run.h"
#include "tools/sim/measured.h"
#include "tools/sim/report.h"
#include "util/cleanup.h"

enum { EXIT_RIGHT = 0, EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_FAILED = 3 };

static int complain(int r, const char *text) {
        fprintf(stderr, "railmux-sim: %s\n", r == -EINVAL ? text : r == -ENOMEM ? "out of memory" : strerror(-r));
        return r == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
}

static int print_json(json_t *document) {
        int r = document ? json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : -1;

        json_decref(document);
        if (r != 0 && !ferror(stdout))
                return complain(-ENOMEM, NULL);
        putchar('\n');
        return EXIT_RIGHT; /* main() says what could not be written */
}

/* UINT64_MAX: there is none. */
static uint64_t next_size(uint64_t bytes, uint32_t factor) {
        return bytes == 0 ? 1 : bytes > UINT64_MAX / factor ? UINT64_MAX : bytes * factor;
}

static int run_sizes(const struct sim *sim) {
        const struct options *o = sim->options;
        json_t *document = o->json ? report_json_begin(sim) : NULL, *results = json_array();
        bool begun = false;
        int r = 0;

        for (uint64_t bytes = o->min_bytes; !r && bytes <= o->max_bytes; bytes = next_size(bytes, o->factor)) {
                struct sim_result *result = calloc(1, sizeof(*result));

                r = result ? sim_look(sim, bytes, result) : -ENOMEM;
                if (!r && o->json)
                        json_array_append_new(results, report_json_result(sim, result));
                if (!r && !o->json) {
                        if (!begun)
                                report_begin(sim);
                        begun = true;
                        report_result(sim, result);
                }
                if (result)
                        sim_result_deinit(result);
                free(result);
        }
        json_object_set_new(document, "results", results);
        if (r) {
                json_decref(document);
                return complain(r, o->algorithm ? "this algorithm does not exist for this operation and number of ranks"
                                                : "GPUs have no plan for this operation; name one with --algorithm");
        }
        return o->json ? print_json(document) : EXIT_RIGHT;
}

static int run_choices(const struct sim *sim) {
        json_t *document;

        if (!sim->options->json) {
                report_begin(sim);
                report_choices(sim);
                return EXIT_RIGHT;
        }
        document = report_json_begin(sim);
        json_object_set_new(document, "choices", report_json_choices(sim));
        return print_json(document);
}

static int run_verify(const struct sim *sim) {
        const struct options *o = sim->options;
        json_t *document = o->json ? report_json_begin(sim) : NULL, *verdicts = json_array();
        uint32_t algorithm, n_looked = 0, n_refused = 0;
        int r = 0;

        for (uint32_t k = 0; !r && (algorithm = plan_algorithm_at(o->operation, sim->n_ranks, k)) != 0; k++) {
                struct plan_verdict verdict = {0};
                struct plan plan;

                if (o->algorithm != PLAN_ALGORITHM_NONE && o->algorithm != OPTIONS_ALGORITHM_ALL &&
                    o->algorithm != algorithm)
                        continue;
                r = plan_build(o->operation, algorithm, sim->n_ranks, &plan);
                if (!r)
                        r = plan_verify_all(&plan, &sim->geometry, NULL, 0, &verdict);
                r = r == PLAN_E_INVALID ? 0 : r;
                n_looked++;
                n_refused += verdict.condition != PLAN_FAULT_NONE;
                if (!r && o->json)
                        json_array_append_new(verdicts, report_json_verdict(&plan, &verdict));
                else if (!r)
                        printf("%s %s, %u ranks: %s%s\n", plan_operation_name(o->operation),
                               plan_algorithm_name(algorithm), sim->n_ranks,
                               verdict.condition ? "refused: " : "accepted", verdict.condition ? verdict.text : "");
        }
        json_object_set_new(document, "verdicts", verdicts);
        if (r || n_looked == 0) {
                json_decref(document);
                return complain(r ? r : -EINVAL,
                                "this algorithm does not exist for this operation and number of ranks");
        }
        if (o->json && print_json(document) != EXIT_RIGHT)
                return EXIT_FAILED;
        return n_refused > 0 ? EXIT_REFUSED : EXIT_RIGHT;
}

static int fit_write(const struct options *o, const struct fit *fit, const struct plan_constants *constants,
                     const struct fit_quality *quality) {
        json_t *document = constants_json(constants);
        int r;

        json_object_set_new(document, "fit",
                            json_pack("{s:i, s:i, s:f, s:f}", "lines", (int)fit->n_lines, "parallel",
                                      (int)constants->parallel, "error_before", quality->error_before, "error",
                                      quality->error));
        if (!o->output)
                return print_json(document);
        r = json_dump_file(document, o->output, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
        json_decref(document);
        if (r == 0)
                return EXIT_RIGHT;
        fprintf(stderr, "railmux-sim: cannot write %s\n", o->output);
        return EXIT_FAILED;
}

static int run_fit(const struct sim *sim) {
        _cleanup_(fit_deinit) struct fit fit = {0};
        struct plan_constants constants = sim->constants;
        size_t left_out[MEASURED_LEFT_OUT_N] = {0};
        struct fit_quality quality;
        char error[OPTIONS_ERROR_MAX];
        int r = 0;

        for (uint32_t i = 0; !r && i < sim->options->n_files; i++)
                r = measured_load(&fit, sim->options->files[i], sim->options, &constants, left_out, error);
        if (r)
                return complain(r, error);
        for (uint32_t i = 0; i < MEASURED_LEFT_OUT_N; i++)
                if (left_out[i] > 0)
                        fprintf(stderr, "# left out: %zu lines %s\n", left_out[i], measured_why(i));
        r = fit_run(&fit, &constants, &quality);
        if (r)
                return complain(r, "there is no measurement to fit to");
        fprintf(stderr, "# %zu lines; mean error %.1f %% before, %.1f %% now\n", fit.n_lines,
                100 * quality.error_before, 100 * quality.error);
        for (size_t i = 0; i < fit.n_lines; i++) {
                const struct fit_line *line = &fit.lines[i];

                if (fabs(line->predicted_ns / line->measured_ns - 1) > 0.5)
                        fprintf(stderr, "# far off: %s %s, %u ranks, %llu bytes: %.1f us, predicted %.1f us\n",
                                plan_operation_name(line->operation), plan_algorithm_name(line->algorithm),
                                line->n_ranks, (unsigned long long)(line->count * line->element_bytes),
                                line->measured_ns / 1000, line->predicted_ns / 1000);
        }
        return fit_write(sim->options, &fit, &constants, &quality);
}

static int run(int argc, char **argv) {
        static int (*const commands[])(const struct sim *) = {
                [OPTIONS_RUN] = run_sizes,
                [OPTIONS_CHOICES] = run_choices,
                [OPTIONS_VERIFY] = run_verify,
                [OPTIONS_FIT] = run_fit,
        };
        char error[OPTIONS_ERROR_MAX];
        struct options options;
        struct sim sim;
        int r, status;

        if (argc > 1 && cluster_named(argv[1]))
                return cluster_run(argc, argv);
        switch (options_parse(argc, argv, &options, error)) {
        case OPTIONS_OK:
                break;
        case OPTIONS_E_HELP:
                return EXIT_RIGHT;
        default:
                return complain(-EINVAL, error);
        }
        r = sim_init(&sim, &options, error);
        status = r ? complain(r, error) : commands[options.command](&sim);
        sim_deinit(&sim);
        return status;
}

/* What is printed is checked here, once. */
int main(int argc, char **argv) {
        int status = run(argc, argv);
        bool failed = ferror(stdout) != 0;

        errno = 0;
        if (fflush(stdout) == 0 && !failed)
                return status;
        fprintf(stderr, "railmux-sim: cannot write to standard output: %s\n", strerror(errno ? errno : EIO));
        return EXIT_FAILED;
}
