/* SPDX-License-Identifier: MIT */
#include "tools/perf/report.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "tools/perf/pattern.h"
#include "util/clock.h"
#include "util/parse.h"

#define PROGRESS_INTERVAL_NS 200000000u

static struct {
        uint64_t start_ns, last_ns;
        bool shown;
} progress; /* of rank 0's process */

static void progress_clear(void) {
        if (progress.shown)
                fputs("\r\033[K", stderr);
        progress.shown = false;
}

/* What a line costs, in bytes: small ones take as long as some tens of KiB. */
static double weight(const struct bench *bench, size_t index) {
        return 65536.0 + (double)bench->cases[index].bytes;
}

void report_progress(const struct bench *bench, size_t index, uint32_t in_place) {
        uint64_t now = clock_now_ns();
        double done = 0, all = 0, seconds, left;
        char size[32];

        if (!progress.start_ns)
                progress.start_ns = now;
        if (!isatty(STDERR_FILENO) || now - progress.last_ns < PROGRESS_INTERVAL_NS)
                return;
        progress.last_ns = now;
        for (size_t i = 0; i < bench->n_cases; i++) {
                all += weight(bench, i);
                done += i < index ? weight(bench, i) : 0;
        }
        seconds = (double)(now - progress.start_ns) / 1e9;
        left = done > 0 ? seconds * (all - done) / done : 0;
        fprintf(stderr, "\r\033[K[%zu/%zu] %s of %s %s, %u ranks, %.0f s so far, about %.0f s left", index + 1,
                bench->n_cases, options_op_name(bench->options->op),
                format_size(bench->cases[index].bytes, size, sizeof(size)), in_place ? "in place" : "out of place",
                bench->options->ranks, seconds, left);
        progress.shown = true;
}

void report_begin(const struct bench *bench) {
        const struct options *o = bench->options;

        printf("# railmux-perf %u.%u.%u, %s, %u ranks, %s memory, warm-up %u, calls %u, check %u\n",
               rmx_version() >> 16, rmx_version() >> 8 & 0xffu, rmx_version() & 0xffu, options_op_name(o->op), o->ranks,
               options_memory_name(o->memory), o->warmup, o->iterations, o->check);
        if (o->graphs)
                printf("# graphs of %u calls, replayed\n", o->graphs);
        printf("#\n#%49s %57s   %57s\n", "", "out of place", "in place");
        printf("#%11s %12s %8s %7s %6s ", "size", "count", "type", "redop", "root");
        for (int i = 0; i < 2; i++)
                printf("%10s %9s %9s %8s %8s %8s%s", "time", "p50", "p99", "algbw", "busbw", "#wrong",
                       i ? "\n" : "   ");
        printf("#%11s %12s %8s %7s %6s ", "(B)", "(elements)", "", "", "");
        for (int i = 0; i < 2; i++)
                printf("%10s %9s %9s %8s %8s %8s%s", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", i ? "\n" : "   ");
        fflush(stdout);
}

static void print_half(const struct options *o, const struct bench_result *result) {
        char wrong[24] = "N/A";

        if (!result->present) {
                printf("%10s %9s %9s %8s %8s %8s", "-", "-", "-", "-", "-", "-");
                return;
        }
        if (o->check)
                snprintf(wrong, sizeof(wrong), "%" PRIu64, result->wrong + result->out_of_bounds);
        printf("%10.2f %9.2f %9.2f %8.3f %8.3f %8s", result->time_us, result->p50_us, result->p99_us, result->algbw_gbs,
               result->busbw_gbs, wrong);
}

void report_line(const struct bench *bench, size_t index, const struct bench_result *out_of_place,
                 const struct bench_result *in_place) {
        const struct options *o = bench->options;
        const struct perf_case *c = &bench->cases[index];
        char root[16] = "-1";

        progress_clear();
        if (pattern_op_rooted(o->op))
                snprintf(root, sizeof(root), "%u", c->root);
        printf(" %11" PRIu64 " %12" PRIu64 " %8s %7s %6s ", c->bytes, c->count,
               o->op == PATTERN_BARRIER ? "none" : options_type_name(c->type),
               pattern_op_reduces(o->op) ? options_redop_name(c->redop) : "none", root);
        print_half(o, out_of_place);
        fputs("   ", stdout);
        print_half(o, in_place);
        putchar('\n');
        fflush(stdout);
}

bool report_end(const struct bench *bench, const struct bench_shared *shared) {
        uint64_t wrong = 0, bounds = 0;
        double busbw = 0;
        size_t measured = 0;

        for (size_t i = 0; i < 2 * bench->n_cases; i++) {
                const struct bench_result *result = &shared->result[i];

                wrong += result->wrong;
                bounds += result->out_of_bounds;
                if (result->calls > 0) {
                        busbw += result->busbw_gbs;
                        measured++;
                }
        }
        if (shared->comms.n > 0)
                printf("# New communicators    : %u of %u ranks, p50 %.1f us, p99 %.1f us\n", shared->comms.n,
                       bench->options->ranks, shared->comms.p50_us, shared->comms.p99_us);
        if (bench->options->check) {
                printf("# Wrong values         : %" PRIu64 " %s\n", wrong, wrong ? "FAILED" : "OK");
                printf("# Out of bounds values : %" PRIu64 " %s\n", bounds, bounds ? "FAILED" : "OK");
        } else {
                printf("# Wrong values         : not checked\n");
        }
        printf("# Avg bus bandwidth    : %.3f\n", measured ? busbw / (double)measured : 0.0);
        fflush(stdout);
        return wrong == 0 && bounds == 0;
}

static void cpu_model(char *out, size_t out_size) {
        FILE *file = fopen("/proc/cpuinfo", "re");
        char line[256];

        snprintf(out, out_size, "unknown");
        if (!file)
                return;
        while (fgets(line, sizeof(line), file)) {
                char *colon = strchr(line, ':');

                if (colon && strncmp(line, "model name", 10) == 0) {
                        colon[strcspn(colon, "\n")] = '\0';
                        snprintf(out, out_size, "%s", colon + 2);
                        break;
                }
        }
        fclose(file);
}

static json_t *machine_json(const struct options *o) {
        char model[200], when[32], version[32];
        struct utsname names;
        time_t now = time(NULL);
        struct tm utc;

        cpu_model(model, sizeof(model));
        uname(&names);
        gmtime_r(&now, &utc);
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &utc);
        snprintf(version, sizeof(version), "%u.%u.%u", rmx_version() >> 16, rmx_version() >> 8 & 0xffu,
                 rmx_version() & 0xffu);
        return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:I}", "host", names.nodename, "cpu", model, "cpus",
                         (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "kernel", names.release, "architecture",
                         names.machine, "time", when, "railmux", version, "memory", options_memory_name(o->memory),
                         "graphs", (json_int_t)o->graphs);
}

static json_t *result_json(const struct bench *bench, size_t index, const struct bench_result *result) {
        const struct options *o = bench->options;
        const struct perf_case *c = &bench->cases[index / 2];
        json_t *object = json_pack(
                "{s:s, s:I, s:s, s:s, s:o, s:I, s:I, s:b, s:I, s:f, s:f, s:f, s:f, s:f}", "op", options_op_name(o->op),
                "ranks", (json_int_t)o->ranks, "type", o->op == PATTERN_BARRIER ? "none" : options_type_name(c->type),
                "redop", pattern_op_reduces(o->op) ? options_redop_name(c->redop) : "none", "root",
                pattern_op_rooted(o->op) ? json_integer((json_int_t)c->root) : json_null(), "bytes",
                (json_int_t)c->bytes, "count", (json_int_t)c->count, "in_place", (int)(index & 1), "calls",
                (json_int_t)result->calls, "time_us", result->time_us, "p50_us", result->p50_us, "p99_us",
                result->p99_us, "algbw_gbs", result->algbw_gbs, "busbw_gbs", result->busbw_gbs);

        json_object_set_new(object, "wrong",
                            o->check ? json_integer((json_int_t)(result->wrong + result->out_of_bounds)) : json_null());
        if (o->op == PATTERN_ALL_TO_ALL_V)
                json_object_set_new(object, "equal", json_boolean(o->equal));
        return object;
}

int report_json(const struct bench *bench, const struct bench_shared *shared, const char *path) {
        json_t *root, *results = json_array();
        int r;

        for (size_t i = 0; i < 2 * bench->n_cases; i++)
                if (shared->result[i].present)
                        json_array_append_new(results, result_json(bench, i, &shared->result[i]));
        root = json_pack("{s:i, s:o, s:o}", "version", 1, "machine", machine_json(bench->options), "results", results);
        if (shared->comms.n > 0)
                json_object_set_new(root, "new_communicators",
                                    json_pack("{s:I, s:I, s:f, s:f}", "ranks", (json_int_t)bench->options->ranks, "n",
                                              (json_int_t)shared->comms.n, "p50_us", shared->comms.p50_us, "p99_us",
                                              shared->comms.p99_us));
        r = json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
        json_decref(root);
        return r ? -EIO : 0;
}
