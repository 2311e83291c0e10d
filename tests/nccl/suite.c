/* SPDX-License-Identifier: MIT */
#include "tests/nccl/suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/e2e/proc.h"

#define ARGUMENTS_MAX 24u

uint32_t suite_patience_ms(void) {
        return proc_full() ? 7200000u : 120000u;
}

void suite_run_program(const char *const argv[], int wanted, const char *word) {
        char *output = malloc(PROC_OUTPUT_MAX);
        int status;

        assert_non_null(output);
        status = proc_run(argv, suite_patience_ms(), output);
        printf("%s", output);
        if (status != wanted || !strstr(output, word))
                fail_msg("exit status %d, not %d with '%s'", status, wanted, word);
        free(output);
}

void suite_run(const struct suite *suite, const char *library, const char *const more[], int wanted, const char *word) {
        const char *argv[ARGUMENTS_MAX] = {suite->program, "--library", library, "-v"};
        size_t n = 4;

        if (suite->sockets) {
                argv[n++] = "--sockets";
                argv[n++] = suite->sockets;
        }
        while (*more && n + 1 < ARGUMENTS_MAX)
                argv[n++] = *more++;
        suite_run_program(argv, wanted, word);
}

void suite_run_both(const struct suite *suite) {
        static const char *const memories[] = {"host", "alloc"};
        static const char *const large[][4] = {{"--ways", "processes", "--ranks", "4"},
                                               {"--ways", "threads,grouped", "--ranks", "8"}};
        bool samples = !proc_full() && strcmp(suite->part, "large") == 0;
        unsigned int seed = (unsigned int)proc_seed() >> 1;

        for (unsigned int i = 0; i < 2; i++) {
                for (unsigned int k = 0; k < (proc_full() ? 2 : 1); k++) {
                        const char *more[9] = {"--only", suite->part, "--memory", memories[(seed + i + k) % 2]};

                        for (unsigned int w = 0; w < 4 && samples; w++)
                                more[4 + w] = large[i][w];
                        suite_run(suite, suite->library[i], more, 0, ", 0 wrong");
                }
        }
}

void suite_name(char name[SUITE_NAME_MAX], const char *prefix, const char *part) {
        snprintf(name, SUITE_NAME_MAX, "%s-%.20s", prefix, part);
        for (char *comma = strchr(name, ','); comma; comma = strchr(comma, ','))
                *comma = '-';
}
