/* SPDX-License-Identifier: MIT */
/* railmux-perf's command line: what is taken, what is refused and how sizes become counts. */
#include <getopt.h>
#include <railmux/railmux.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/perf/options.h"
#include "tools/perf/pattern.h"

#define PARSE(options, error, ...) parse((const char *const[]){"railmux-perf", __VA_ARGS__, NULL}, options, error)

static int parse(const char *const *argv, struct options *ret_options, char *error) {
        int argc = 0;

        while (argv[argc])
                argc++;
        optind = 0; /* getopt starts afresh */
        opterr = 0;
        return options_parse(argc, (char **)argv, ret_options, error);
}

static void test_accepted(void **state) {
        char error[OPTIONS_ERROR_MAX];
        struct options o;

        (void)state;
        assert_int_equal(PARSE(&o, error, "all_reduce"), OPTIONS_OK);
        assert_int_equal(o.op, PATTERN_ALL_REDUCE);
        assert_int_equal(o.check, 1);
        assert_int_equal(o.place, OPTIONS_BOTH);
        assert_int_equal(PARSE(&o, error, "broadcast", "--ranks", "5", "-r", "4", "-d", "all", "-b", "1K", "-e", "2M",
                               "-f", "4", "-n", "7", "-w", "0", "-c", "2", "-G", "0", "--in-place", "1", "--memory",
                               "malloc", "--odd", "--equal", "--duration", "1.5", "--comms", "3", "--max-blocks", "24",
                               "--socket", "/s", "-J", "/j"),
                         OPTIONS_OK);
        assert_int_equal(o.root, 4);
        assert_int_equal(o.n_types, RMX_TYPE_COUNT);
        assert_int_equal(o.min_bytes, 1024);
        assert_int_equal(o.max_bytes, 2 << 20);
        assert_int_equal(o.place, OPTIONS_IN_PLACE);
        assert_true(o.memory == OPTIONS_MEMORY_MALLOC && o.odd && o.equal && o.duration_s > 1.4);
        assert_int_equal(o.max_blocks, 24);
        assert_int_equal(o.n_sockets, 1);
        assert_string_equal(options_socket(&o, 0), "/s");
        assert_int_equal(PARSE(&o, error, "barrier"), OPTIONS_OK);
        assert_null(options_socket(&o, 0));
        assert_int_equal(PARSE(&o, error, "barrier", "--ranks", "5", "--socket", "/a,/bc,/d"), OPTIONS_OK);
        assert_int_equal(o.n_sockets, 3);
        for (uint32_t rank = 0; rank < 5; rank++) /* in rows, as even as may be */
                assert_string_equal(options_socket(&o, rank), rank < 2 ? "/a" : rank < 4 ? "/bc" : "/d");
        assert_int_equal(PARSE(&o, error, "all_reduce", "-d", "bfloat16", "-o", "all"), OPTIONS_OK);
        assert_int_equal(o.type[0], RMX_BFLOAT16);
        assert_int_equal(o.n_redops, RMX_REDOP_COUNT);
        assert_int_equal(PARSE(&o, error, "sendrecv", "-d", "fp8_e5m2"), OPTIONS_OK);
        assert_int_equal(o.op, PATTERN_SENDRECV);
        assert_int_equal(o.type[0], RMX_FLOAT8_E5M2);
        assert_int_equal(PARSE(&o, error, "reduce", "-o", "premul", "-d", "half"), OPTIONS_OK);
        assert_int_equal(o.redop[0], RMX_PREMUL_SUM);
}

/* What goes together depends on the memory, which the daemon may decide. */
static void test_memory(void **state) {
        static const char *const names[] = {"shared", "malloc", "gpu"};
        char error[OPTIONS_ERROR_MAX];
        struct options o;

        (void)state;
        assert_int_equal(PARSE(&o, error, "all_reduce", "-G", "20", "-c", "2"), OPTIONS_OK);
        assert_int_equal(o.memory, OPTIONS_MEMORY_AUTO);
        assert_int_equal(o.graphs, 20);
        o.memory = OPTIONS_MEMORY_SHARED;
        assert_int_equal(options_check_memory(&o, error), OPTIONS_E_USAGE);
        assert_non_null(strstr(error, "GPU memory"));
        o.memory = OPTIONS_MEMORY_GPU;
        assert_int_equal(options_check_memory(&o, error), OPTIONS_E_USAGE);
        assert_non_null(strstr(error, "-c 2"));
        o.check = OPTIONS_CHECK_ENDS;
        assert_int_equal(options_check_memory(&o, error), OPTIONS_OK);
        o.graphs = 0;
        o.memory = OPTIONS_MEMORY_SHARED;
        assert_int_equal(options_check_memory(&o, error), OPTIONS_OK);
        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(PARSE(&o, error, "all_reduce", "--memory", names[i]), OPTIONS_OK);
                assert_string_equal(options_memory_name(o.memory), names[i]);
        }
        assert_int_equal(PARSE(&o, error, "all_reduce", "--memory", "host"), OPTIONS_OK);
        assert_int_equal(o.memory, OPTIONS_MEMORY_SHARED);
}

static void test_refused(void **state) {
        char error[OPTIONS_ERROR_MAX];
        struct options o = {.ranks = 77};

        (void)state;
        assert_int_equal(PARSE(&o, error, "send"), OPTIONS_E_USAGE);
        assert_non_null(strstr(error, "sendrecv"));
        assert_int_equal(PARSE(&o, error, "all_reduce", "-d", "fp4"), OPTIONS_E_USAGE);
        assert_non_null(strstr(error, "fp8_e4m3"));
        assert_int_equal(PARSE(&o, error, "all_reduce", "-o", "average"), OPTIONS_E_USAGE);
        assert_non_null(strstr(error, "avg"));
        assert_int_equal(PARSE(&o, error, "all_reduce", "-G", "-1"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "-G", "10001"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "--memory", "disk"), OPTIONS_E_USAGE);
        assert_non_null(strstr(error, "gpu, host, shared, malloc"));
        assert_int_equal(PARSE(&o, error, "all_reduce", "--socket", ""), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "--socket", "/a,,/b"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "--socket", "/a,"), OPTIONS_E_USAGE);
        assert_non_null(strstr(error, "1 to 64 paths"));
        assert_int_equal(PARSE(&o, error, "all_gather_all"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "barrier"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "--ranks", "2"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "--ranks", "0"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "--ranks", "65"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "broadcast", "--ranks", "4", "-r", "4"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "-b", "2K", "-e", "1K"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "-f", "1"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "--duration", "nan"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "--duration", "1", "-n", "0"), OPTIONS_E_USAGE);
        assert_int_equal(PARSE(&o, error, "all_reduce", "--no-such"), OPTIONS_E_USAGE);
        assert_int_equal(o.ranks, 77); /* nothing is written on failure */
}

static void test_sizes(void **state) {
        char error[OPTIONS_ERROR_MAX];
        struct perf_case *cases;
        struct options o;
        size_t n;

        (void)state;
        assert_int_equal(PARSE(&o, error, "all_reduce", "-b", "0", "-e", "64", "-d", "fp32"), OPTIONS_OK);
        assert_int_equal(options_cases(&o, &cases, &n), 0);
        assert_int_equal(n, 6); /* 0, 4, 8, 16, 32, 64 */
        assert_int_equal(cases[0].count, 0);
        assert_int_equal(cases[1].count, 1);
        assert_int_equal(cases[5].count, 16);
        free(cases);

        /* total bytes become elements per rank, rounded down; a count is not repeated */
        assert_int_equal(PARSE(&o, error, "all_gather", "--ranks", "5", "-b", "8", "-e", "64", "-d", "bf16"),
                         OPTIONS_OK);
        assert_int_equal(options_cases(&o, &cases, &n), 0);
        assert_int_equal(n, 4); /* 0, 1, 3, 6 */
        assert_int_equal(cases[2].count, 3);
        assert_int_equal(cases[2].bytes, 30);
        free(cases);

        assert_int_equal(PARSE(&o, error, "reduce_scatter", "--ranks", "3", "-b", "1", "-e", "1M", "-d", "all", "-o",
                               "all", "-f", "32", "--odd"),
                         OPTIONS_OK);
        assert_int_equal(options_cases(&o, &cases, &n), 0);
        for (size_t i = 0; i < n; i++) {
                assert_true(cases[i].bytes <= 1 << 20);
                assert_int_equal(cases[i].bytes, cases[i].count * 3 * rmx_type_size(cases[i].type));
        }
        free(cases);

        /* of an all_to_all_v what is sent: of seven pieces of a block one is 0/6 of it, one 1/6, up to all of it */
        assert_int_equal(PARSE(&o, error, "all_to_all_v", "--ranks", "7", "-b", "168", "-e", "168"), OPTIONS_OK);
        assert_int_equal(options_cases(&o, &cases, &n), 0);
        assert_true(n == 1 && cases[0].count == 6 && cases[0].bytes == 84);
        free(cases);
        assert_int_equal(PARSE(&o, error, "all_to_all_v", "--ranks", "7", "-b", "168", "-e", "168", "--equal"), 0);
        assert_int_equal(options_cases(&o, &cases, &n), 0);
        assert_true(n == 1 && cases[0].count == 6 && cases[0].bytes == 168);
        free(cases);

        assert_int_equal(PARSE(&o, error, "barrier", "-d", "all"), OPTIONS_OK);
        assert_int_equal(options_cases(&o, &cases, &n), 0);
        assert_int_equal(n, 1);
        free(cases);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_accepted),
                cmocka_unit_test(test_memory),
                cmocka_unit_test(test_refused),
                cmocka_unit_test(test_sizes),
        };

        return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
