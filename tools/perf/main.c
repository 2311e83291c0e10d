/* SPDX-License-Identifier: MIT */
/* railmux-perf: measures and verifies collectives of rank processes on one node. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/bench.h"
#include "tools/perf/report.h"

enum { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_FAILED = 3 };

static int run(const struct bench *bench) {
        char error[CREW_ERROR_MAX];
        struct crew crew;
        int r, status;

        r = crew_init(&crew, bench->options->ranks, bench_shared_bytes(bench));
        if (r) {
                fprintf(stderr, "railmux-perf: no shared memory: %s\n", strerror(-r));
                return EXIT_FAILED;
        }
        report_begin(bench);
        r = crew_run(&crew, bench_rank, (void *)bench, error);
        if (r) {
                fprintf(stderr, "railmux-perf: %s%s\n", r < 0 ? "cannot start the ranks: " : error,
                        r < 0 ? strerror(-r) : "; the other ranks were stopped");
                status = EXIT_FAILED;
        } else {
                status = report_end(bench, crew.data) ? EXIT_RIGHT : EXIT_WRONG;
                if (bench->options->json && report_json(bench, crew.data, bench->options->json) != 0) {
                        fprintf(stderr, "railmux-perf: cannot write %s\n", bench->options->json);
                        status = EXIT_FAILED;
                }
        }
        crew_deinit(&crew);
        return status;
}

/* The ranks fork from this process, so it asks and leaves again. An RMX_E_*: there is no answer. */
static int default_memory(const struct options *options, uint32_t *ret_memory) {
        struct rmx_session_options session_options = {
                .size = sizeof(session_options), .socket = options_socket(options, 0), .name = "railmux-perf"};
        struct rmx_session *session;
        bool host;
        int r;

        r = rmx_session_open(&session_options, &session);
        if (r != RMX_OK)
                return r;
        host = !*rmx_session_backend(session) || strcmp(rmx_session_backend(session), "host") == 0;
        rmx_session_close(session);
        *ret_memory = host ? OPTIONS_MEMORY_SHARED : OPTIONS_MEMORY_GPU;
        return RMX_OK;
}

int main(int argc, char **argv) {
        char error[OPTIONS_ERROR_MAX];
        struct options options;
        struct perf_case *cases;
        struct bench bench;
        int r, status;

        switch (options_parse(argc, argv, &options, error)) {
        case OPTIONS_OK:
                break;
        case OPTIONS_E_HELP:
                return EXIT_RIGHT;
        default:
                fprintf(stderr, "railmux-perf: %s\n", error);
                return EXIT_USAGE;
        }
        r = options.memory == OPTIONS_MEMORY_AUTO ? default_memory(&options, &options.memory) : RMX_OK;
        if (r != RMX_OK) {
                fprintf(stderr, "railmux-perf: %s: %s\n", rmx_error_name(r), rmx_last_error());
                return EXIT_FAILED;
        }
        if (options_check_memory(&options, error) != OPTIONS_OK) {
                fprintf(stderr, "railmux-perf: %s\n", error);
                return EXIT_USAGE;
        }
        bench = (struct bench){.options = &options, .on_line = report_line, .on_progress = report_progress};
        bench.samples = bench_samples(&options);
        if (options_cases(&options, &cases, &bench.n_cases) != 0) {
                fprintf(stderr, "railmux-perf: out of memory\n");
                return EXIT_FAILED;
        }
        bench.cases = cases;
        status = run(&bench);
        free(cases);
        return status;
}
