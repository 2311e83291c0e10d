/* SPDX-License-Identifier: MIT */
#include "tests/hostile/footprint.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/proc.h"

#define RSS_TOLERANCE_KIB 12288 /* allocators keep some pages */

void node_start_preloaded(struct node *node, const char *test, const char *library, bool keep) {
        const char *given = getenv("ASAN_OPTIONS");
        char options[512], *kept = given ? strdup(given) : NULL;

        /* A sanitizer's runtime wants to be first among the libraries; behind one that only wraps a function it works.
         */
        snprintf(options, sizeof(options), "%s%sverify_asan_link_order=0", given ? given : "", given ? ":" : "");
        setenv("ASAN_OPTIONS", options, 1);
        setenv("LD_PRELOAD", library, 1);
        node_start(node, test, keep);
        unsetenv("LD_PRELOAD");
        if (kept)
                setenv("ASAN_OPTIONS", kept, 1);
        else
                unsetenv("ASAN_OPTIONS");
        free(kept);
}

void node_show_log(const struct node *node) {
        char line[1024];
        FILE *file = fopen(node->log, "re");

        while (file && fgets(line, sizeof(line), file))
                fputs(line, stderr);
        if (file)
                fclose(file);
}

static int count_lines(pid_t pid, const char *file_name, const char *with) {
        char path[64], line[1024];
        int n = 0;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file_name);
        file = fopen(path, "re");
        if (!file)
                return -errno;
        while (fgets(line, sizeof(line), file))
                n += strstr(line, with) != NULL;
        fclose(file);
        return n;
}

static int count_threads(pid_t pid) {
        char path[64], line[256];
        int n = -1;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
        file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file))
                if (sscanf(line, "Threads: %d", &n) == 1)
                        break;
        if (file)
                fclose(file);
        return n;
}

/* Every object with "resource" and "used", under the name of its tenant. */
static void write_tenants(const json_t *value, char *text) {
        const char *what = json_string_value(json_object_get(value, "resource"));
        const json_t *used = json_object_get(value, "used"), *child;
        const char *name = json_string_value(json_object_get(value, "name")), *key;
        size_t n = strlen(text), i;

        if (name && n < FOOTPRINT_TENANTS_MAX)
                n += (size_t)snprintf(text + n, FOOTPRINT_TENANTS_MAX - n, "%s%s", n ? "; " : "", name);
        if (what && used && n < FOOTPRINT_TENANTS_MAX)
                snprintf(text + n, FOOTPRINT_TENANTS_MAX - n, " %s=%" PRId64, what, (int64_t)json_integer_value(used));
        json_object_foreach((json_t *)value, key, child) {
                write_tenants(child, text);
        }
        json_array_foreach(value, i, child) {
                write_tenants(child, text);
        }
}

static struct footprint look(const struct node *node) {
        struct footprint f = {.pids = node_pids(node)};
        json_t *tenants = node_query(node, "tenants");

        if (tenants)
                write_tenants(tenants, f.tenants);
        json_decref(tenants);
        f.keeper_fds = node->keep ? proc_fd_count(node->pid) : 0;
        f.daemon_fds = proc_fd_count(f.pids.daemon);
        f.executor_fds = proc_fd_count(f.pids.executor);
        f.daemon_mappings = count_lines(f.pids.daemon, "maps", "/memfd:");
        f.executor_mappings = count_lines(f.pids.executor, "maps", "/memfd:");
        f.daemon_threads = count_threads(f.pids.daemon);
        f.executor_threads = count_threads(f.pids.executor);
        f.daemon_rss_kib = proc_rss_kib(f.pids.daemon);
        f.executor_rss_kib = proc_rss_kib(f.pids.executor);
        return f;
}

static bool same(const struct footprint *a, const struct footprint *b) {
        return a->pids.daemon == b->pids.daemon && a->pids.executor == b->pids.executor &&
               a->pids.ready == b->pids.ready && a->pids.sessions == b->pids.sessions &&
               a->pids.comms == b->pids.comms && a->keeper_fds == b->keeper_fds && a->daemon_fds == b->daemon_fds &&
               a->executor_fds == b->executor_fds && a->daemon_mappings == b->daemon_mappings &&
               a->executor_mappings == b->executor_mappings && a->daemon_threads == b->daemon_threads &&
               a->executor_threads == b->executor_threads && strcmp(a->tenants, b->tenants) == 0;
}

struct footprint footprint_take(const struct node *node) {
        struct footprint last = look(node), now;

        /* The questions themselves are connections that end a moment later. */
        for (unsigned int quiet = 0, looks = 0; quiet < 3 && looks < 100; looks++) {
                proc_measure_for(5);
                now = look(node);
                quiet = same(&now, &last) ? quiet + 1 : 0;
                last = now;
        }
        return last;
}

struct footprint_wait {
        const struct node *node;
        const struct footprint *before;
        struct footprint now;
};

static bool is_as_before(void *argument) {
        struct footprint_wait *w = argument;

        w->now = look(w->node);
        if (!same(&w->now, w->before))
                return false;
        return proc_time_scale() > 1 || /* sanitizers keep freed memory on purpose */
               (w->now.daemon_rss_kib <= w->before->daemon_rss_kib + RSS_TOLERANCE_KIB &&
                w->now.executor_rss_kib <= w->before->executor_rss_kib + RSS_TOLERANCE_KIB);
}

bool footprint_await(const struct node *node, const struct footprint *before, uint32_t timeout_ms,
                     struct footprint *ret_now) {
        struct footprint_wait w = {.node = node, .before = before};
        bool as_before = proc_await(is_as_before, &w, timeout_ms);

        *ret_now = w.now;
        return as_before;
}

static void show_one(const char *when, const struct footprint *f) {
        fprintf(stderr,
                "%s: keeper: %d fds; railmuxd %d: %d fds, %d memfd mappings, %d threads, %ld KiB; executor %d: %d fds, "
                "%d memfd "
                "mappings, %d threads, %ld KiB; %u sessions, %u comms, %s; charges: %s\n",
                when, f->keeper_fds, (int)f->pids.daemon, f->daemon_fds, f->daemon_mappings, f->daemon_threads,
                f->daemon_rss_kib, (int)f->pids.executor, f->executor_fds, f->executor_mappings, f->executor_threads,
                f->executor_rss_kib, f->pids.sessions, f->pids.comms, f->pids.ready ? "ready" : "not ready",
                f->tenants);
}

void footprint_show(const struct footprint *before, const struct footprint *now) {
        show_one("before", before);
        show_one("now", now);
        proc_show_fds(now->pids.daemon, "railmuxd");
        proc_show_fds(now->pids.executor, "executor");
}
