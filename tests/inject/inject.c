/* SPDX-License-Identifier: MIT */
/*
 * The k-th call fails.
 *
 * For each process and each kind of call the scenario is run once to count the calls, then again and again with the
 * k-th of them failing, alone or with some that follow. What clients see may be an error. But neither process may end
 * or hang, and the next scenario, in which nothing fails, must succeed and leave the node as it was.
 *
 * A node that does not is reported and started anew, so that one run tells of all defects; with their traces.
 */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "tests/hostile/footprint.h"
#include "tests/inject/inject.h"
#include "tests/inject/scenario.h"

#define SAMPLES     12u
#define BURST       6u
#define SETTLE_MS   20000u
#define DEFECTS_MAX 60u

static const char *const call_names[INJECT_CALL_COUNT] = {
        "malloc, calloc, realloc",
        "mmap",
        "mremap",
        "memfd_create",
        "ftruncate",
        "open",
        "accept4",
        "recvmsg",
        "sendmsg",
        "eventfd",
        "epoll_ctl",
        "epoll_wait",
        "fcntl, dup",
        "getsockopt",
        "pidfd",
        "ioctl",
        "write (8 bytes)",
};

static const char *const process_names[2] = {"railmuxd", "executor"};

const char *inject_call_name(enum inject_call call) {
        return call_names[call];
}

struct fixture {
        struct node node;
        struct inject_page *page;
        char path[64];
        struct footprint before;
        uint32_t n_defects;
        struct {
                uint64_t calls, injected, errors; /* errors: scenarios in which a client saw one */
        } rows[2][INJECT_CALL_COUNT];
};

static void start(struct fixture *f) {
        setenv(INJECT_ENVIRONMENT, f->path, 1);
        node_start_preloaded(&f->node, "inject", RAILMUX_INJECT_LIBRARY, true);
        unsetenv(INJECT_ENVIRONMENT);
        for (uint32_t i = 0; i < 2; i++) { /* what is allocated once and kept */
                struct scenario_result result = scenario_run(&f->node);

                if (result.failed || result.wrong || result.hanging)
                        fail_msg("the scenario fails without any injection: %s; %s; %s", result.text[0], result.text[1],
                                 result.text[2]);
        }
        f->before = footprint_take(&f->node);
}

static void arm(struct fixture *f, pid_t pid, enum inject_call call, uint64_t first, uint64_t length) {
        memset(f->page->trace, 0, sizeof(f->page->trace));
        for (uint32_t i = 0; i < INJECT_CALL_COUNT; i++)
                atomic_store(&f->page->seen[i], 0); /* partners of all these: fails() in preload.c */
        atomic_store(&f->page->failed, 0);
        atomic_store(&f->page->call, call);
        atomic_store(&f->page->first, first);
        atomic_store(&f->page->length, length);
        atomic_store(&f->page->variant, (uint32_t)first);
        atomic_store(&f->page->pid, pid);
}

static void disarm(struct fixture *f) {
        atomic_store(&f->page->pid, 0); /* with fails() in preload.c */
}

static void report(struct fixture *f, const char *process, enum inject_call call, uint64_t k, uint64_t length,
                   const char *what, const struct scenario_result *result, const struct footprint *now) {
        printf("DEFECT: %s, %s, call %" PRIu64 " (%" PRIu64 " in a row): %s\n    trace: %s\n", process,
               inject_call_name(call), k, length, what, f->page->trace);
        for (uint32_t i = 0; i < SCENARIO_RANKS; i++)
                printf("    %s\n", result->text[i]);
        if (now)
                footprint_show(&f->before, now);
        fflush(stdout);
        f->n_defects++;
}

/* Kills what is left and starts another node. */
static void renew(struct fixture *f) {
        node_cleanup(&f->node);
        start(f);
}

/* One injection. false: the scenario has not that many calls. */
static bool inject_once(struct fixture *f, uint32_t process, enum inject_call call, uint64_t k, uint64_t length) {
        const char *name = process_names[process];
        pid_t pid = process == 0 ? f->before.pids.daemon : f->before.pids.executor;
        struct scenario_result result, clean;
        struct footprint now = {0};
        uint64_t failed;

        arm(f, pid, call, k, length);
        result = scenario_run(&f->node);
        disarm(f);
        failed = atomic_load(&f->page->failed); /* with fails() in preload.c */
        f->rows[process][call].injected += failed > 0;
        f->rows[process][call].errors += result.failed > 0;
        if (proc_wait_dead(pid, 0) == 0) {
                report(f, name, call, k, length, "the process has ended", &result, NULL);
        } else if (result.wrong) {
                report(f, name, call, k, length, "wrong data", &result, NULL);
        } else if (result.hanging) {
                report(f, name, call, k, length, "a client hangs", &result, NULL);
        } else if (!footprint_await(&f->node, &f->before, SETTLE_MS, &now)) {
                report(f, name, call, k, length, "not everything was given back", &result, &now);
        } else {
                clean = scenario_run(&f->node);
                if (!clean.failed && !clean.wrong && !clean.hanging &&
                    footprint_await(&f->node, &f->before, SETTLE_MS, &now))
                        return failed > 0;
                report(f, name, call, k, length, "the next scenario fails or leaves something", &clean, &now);
        }
        if (f->n_defects >= DEFECTS_MAX)
                fail_msg("too many defects");
        renew(f);
        return failed > 0;
}

static void count_calls(struct fixture *f) {
        for (uint32_t process = 0; process < 2; process++) {
                struct scenario_result result;

                arm(f, process == 0 ? f->before.pids.daemon : f->before.pids.executor, INJECT_MEMORY, 0, 0);
                result = scenario_run(&f->node);
                disarm(f);
                assert_int_equal(result.failed + result.wrong + result.hanging, 0);
                for (uint32_t call = 0; call < INJECT_CALL_COUNT; call++)
                        f->rows[process][call].calls = atomic_load(&f->page->seen[call]); /* with fails() */
        }
}

static void show_table(const struct fixture *f) {
        printf("%-10s %-26s %8s %9s %15s\n", "process", "call", "calls", "injected", "clients failed");
        for (uint32_t process = 0; process < 2; process++)
                for (uint32_t call = 0; call < INJECT_CALL_COUNT; call++)
                        if (f->rows[process][call].calls > 0)
                                printf("%-10s %-26s %8" PRIu64 " %9" PRIu64 " %15" PRIu64 "\n", process_names[process],
                                       inject_call_name(call), f->rows[process][call].calls,
                                       f->rows[process][call].injected, f->rows[process][call].errors);
}

static void test_inject(void **state) {
        struct fixture *f = *state;
        /* For whoever looks for a defect: one call of one process, from this number on. */
        const char *only = getenv("RAILMUX_INJECT_CALL"), *from = getenv("RAILMUX_INJECT_FIRST");
        const char *where = getenv("RAILMUX_INJECT_PROCESS");
        uint64_t random = proc_seed(), first = from ? strtoull(from, NULL, 10) : 0;

        start(f);
        count_calls(f);
        for (uint32_t process = 0; process < 2; process++)
                for (uint32_t call = 0; call < INJECT_CALL_COUNT; call++) {
                        uint64_t n = f->rows[process][call].calls;
                        uint64_t stride = proc_full() || n < SAMPLES ? 1 : n / SAMPLES;
                        uint64_t k = first ? first : 1 + proc_random(&random) % stride;

                        if ((only && !strstr(inject_call_name(call), only)) ||
                            (where && strcmp(where, process_names[process]) != 0))
                                continue;
                        /* Counts differ a little from run to run, and a failure brings calls of its own. */
                        for (uint32_t i = 0; k <= n + n / 8; k += stride, i++)
                                if (!inject_once(f, process, call, k, i % 3 == 2 ? BURST : 1))
                                        break;
                }
        show_table(f);
        if (f->n_defects > 0)
                fail_msg("%u defects", f->n_defects);
        node_stop(&f->node);
}

static int setup(void **state) {
        static struct fixture f;
        int fd;

        snprintf(f.path, sizeof(f.path), "%s", "/tmp/railmux-inject-XXXXXX");
        fd = mkstemp(f.path);
        if (fd < 0 || ftruncate(fd, sizeof(*f.page)) < 0)
                return -1;
        f.page = mmap(NULL, sizeof(*f.page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        *state = &f;
        return f.page == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        disarm(f);
        node_cleanup(&f->node);
        unlink(f->path);
        munmap(f->page, sizeof(*f->page));
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_inject, setup, teardown)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
