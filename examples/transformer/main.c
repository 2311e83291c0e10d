/* SPDX-License-Identifier: MIT */
/* Generates tokens with a small transformer, once in this process and once split over N, and compares every bit. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "model.h"
#include "ranks.h"

enum { EXIT_SAME = 0, EXIT_DIFFERENT = 1, EXIT_USAGE = 2, EXIT_FAILED = 3 };

static const char help_text[] =
        "Usage: transformer [--ranks N] [--layers N] [--tokens N] [--socket PATH]\n"
        "  --ranks N      processes that share the model: 1, 2, 4 or 8 (default 4)\n"
        "  --layers N     1 to 16 (default 4)\n"
        "  --tokens N     tokens to generate, 1 to 1024 (default 64)\n"
        "  --socket PATH  the daemon's client socket (default $RAILMUX_SOCKET, /run/railmux/client.sock)\n"
        "Exit status: 0 both runs gave the same bits, 1 they did not, 2 wrong usage, 3 the run failed.\n";

static const struct option long_options[] = {
        {"ranks", required_argument, NULL, 'r'},  {"layers", required_argument, NULL, 'l'},
        {"tokens", required_argument, NULL, 't'}, {"socket", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
};

static int take(const char *text, uint32_t max, uint32_t *ret_value) {
        char *end;
        unsigned long value = strtoul(text, &end, 10);

        if (end == text || *end || value == 0 || value > max)
                return -1;
        *ret_value = (uint32_t)value;
        return 0;
}

/* The single-process run: the same model with one rank and no links. */
static int make_reference(const struct ranks_run *run, float *logits, double *ret_seconds) {
        struct model *model = model_new(run->n_layers, run->n_tokens, 0, 1, NULL);
        uint32_t token = MODEL_FIRST_TOKEN;
        struct timespec a, b;

        if (!model)
                return -1;
        clock_gettime(CLOCK_MONOTONIC, &a);
        printf("tokens:");
        for (uint32_t t = 0; t < run->n_tokens; t++) {
                float *row = logits + (size_t)t * MODEL_VOCABULARY;

                model_step(model, token, row);
                token = model_choose(row);
                if (t < 16)
                        printf(" %u", token);
        }
        printf("%s\n", run->n_tokens > 16 ? " ..." : "");
        clock_gettime(CLOCK_MONOTONIC, &b);
        model_free(model);
        *ret_seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
        return 0;
}

static int compare_runs(struct ranks_run *run, float *logits) {
        struct ranks_result result;
        double seconds;

        if (make_reference(run, logits, &seconds) != 0) {
                fprintf(stderr, "transformer: out of memory\n");
                return EXIT_FAILED;
        }
        printf("1 process:   checksum %016" PRIx64 ", %.1f us per token\n", ranks_checksum(logits, run->n_tokens),
               seconds * 1e6 / run->n_tokens);
        run->reference = logits;
        if (ranks_execute(run, &result) != 0)
                return EXIT_FAILED;
        printf("%u processes: checksum %016" PRIx64 ", %.1f us per token\n", run->n_ranks, result.checksum,
               (double)result.nanoseconds / 1e3 / run->n_tokens);
        if (result.different) {
                printf("DIFFERENT: %" PRIu64 " of %" PRIu64 " values\n", result.different,
                       (uint64_t)run->n_ranks * run->n_tokens * MODEL_VOCABULARY);
                return EXIT_DIFFERENT;
        }
        printf("identical: %u logits on each of %u ranks, bit for bit\n", run->n_tokens * MODEL_VOCABULARY,
               run->n_ranks);
        return EXIT_SAME;
}

int main(int argc, char **argv) {
        struct ranks_run run = {.n_ranks = 4, .n_layers = 4, .n_tokens = 64};
        float *logits;
        int c, r = 0;

        while (r == 0 && (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
                switch (c) {
                case 'r':
                        r = take(optarg, MODEL_HEADS, &run.n_ranks);
                        break;
                case 'l':
                        r = take(optarg, MODEL_LAYERS_MAX, &run.n_layers);
                        break;
                case 't':
                        r = take(optarg, MODEL_TOKENS_MAX, &run.n_tokens);
                        break;
                case 's':
                        run.socket = optarg;
                        break;
                case 'h':
                        fputs(help_text, stdout);
                        return EXIT_SAME;
                default:
                        r = -1;
                }
        }
        if (r != 0 || optind != argc || MODEL_HEADS % run.n_ranks != 0) {
                fputs(help_text, stderr);
                return EXIT_USAGE;
        }
        logits = calloc((size_t)run.n_tokens * MODEL_VOCABULARY, sizeof(*logits));
        if (!logits) {
                fprintf(stderr, "transformer: out of memory\n");
                return EXIT_FAILED;
        }
        r = compare_runs(&run, logits);
        free(logits);
        return r;
}
