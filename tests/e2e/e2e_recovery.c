/* SPDX-License-Identifier: MIT */
/*
 * SIGKILL of railmuxd and of the executor at random moments, while eight ranks run verified collectives.
 *
 * Moments are random numbers of completed sequences. Every second kill of railmuxd holds the keeper still, so that the
 * node is without a control plane for as long as the test wants: the ranks must get on meanwhile, and communicator
 * creations must wait and then succeed. And what an operator has said of rails, which must hold.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/e2e/load.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"

#define RANKS      8u
#define KILLS_MAX  32u
#define BACK_MS    15000u
#define AFTER_KILL 100u /* sequences that must be reached after each */

struct fixture {
        struct node node;
        struct load load;
        struct node_snapshot before;
        uint64_t random;
};

/* Sequences that one kill of the executor may have lost: (after, until]. */
struct window {
        uint32_t after, until;
};

static uint32_t n_kills(void) {
        return proc_full() ? 20 : 4;
}

/* One load comes and goes before the first look, so that what processes keep for later use is there. */
static int setup(void **state, const char *name) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        *state = f;
        f->random = proc_seed();
        node_start(&f->node, name, true);
        load_start(&f->load, f->node.socket, RANKS);
        load_await_progress(&f->load, 100, 20000);
        load_stop(&f->load);
        load_cleanup(&f->load);
        f->before = node_snapshot(&f->node);
        load_start(&f->load, f->node.socket, RANKS);
        return 0;
}

static int setup_daemon(void **state) {
        return setup(state, "recovery-railmuxd");
}
static int setup_executor(void **state) {
        return setup(state, "recovery-executor");
}

static int teardown(void **state) {
        struct fixture *f = *state;

        load_cleanup(&f->load);
        node_cleanup(&f->node);
        free(f);
        return 0;
}

static void kill_and_see(pid_t pid) {
        assert_int_equal(kill(pid, SIGKILL), 0);
        if (proc_wait_dead(pid, 5000) != 0)
                fail_msg("process %d survives SIGKILL", (int)pid);
}

/* Every sequence that anybody completed has one outcome on all ranks. Returns the number of lost ones. */
static uint32_t compare_outcomes(const struct load *load, const struct window *windows, uint32_t n_windows) {
        uint32_t last = load_issued_max(load), lost = 0;

        for (uint32_t s = 1; s <= last; s++) {
                uint8_t outcome = load->shared->outcome[0][s];
                bool in_window = false;

                for (uint32_t r = 1; r < load->n_ranks; r++)
                        if (load->shared->outcome[r][s] != outcome)
                                fail_msg("sequence %u: rank 0 got %s, rank %u %s", s, rmx_error_name(outcome - 1), r,
                                         rmx_error_name(load->shared->outcome[r][s] - 1));
                if (outcome == 1 + RMX_OK)
                        continue;
                if (outcome != 1 + RMX_E_LOST)
                        fail_msg("sequence %u: outcome %u", s, outcome);
                for (uint32_t i = 0; i < n_windows; i++)
                        in_window = in_window || (s > windows[i].after && s <= windows[i].until);
                if (!in_window)
                        fail_msg("sequence %u is lost, but was not in flight around a kill", s);
                lost++;
        }
        return lost;
}

static void kill_daemon(struct fixture *f, uint32_t number, bool hold) {
        struct node_pids pids = node_await_ready(&f->node, 0, 0, BACK_MS);
        uint32_t at;

        load_await_progress(&f->load, 1 + (uint32_t)(proc_random(&f->random) % 300), 20000);
        load_reset_gap(&f->load);
        at = load_completed_max(&f->load);
        if (hold)
                assert_int_equal(kill(f->node.pid, SIGSTOP), 0);
        kill_and_see(pids.daemon);
        load_create_begin(&f->load);
        if (hold) {
                load_await_progress(&f->load, AFTER_KILL, 20000);
                assert_false(load_create_done(&f->load)); /* nobody is there to do it */
                assert_int_equal(kill(f->node.pid, SIGCONT), 0);
        }
        node_await_ready(&f->node, pids.daemon, 0, BACK_MS);
        load_create_end(&f->load, BACK_MS);
        load_await_progress(&f->load, AFTER_KILL, 20000);
        printf("kill %u of railmuxd at sequence %u%s: longest gap between completions %.2f ms\n", number + 1, at,
               hold ? ", kept away" : "", (double)load_longest_gap_ns(&f->load) / 1e6);
        assert_int_equal(node_await_ready(&f->node, 0, 0, BACK_MS).executor, pids.executor);
}

static void test_daemon(void **state) {
        struct fixture *f = *state;

        load_reset_gap(&f->load);
        load_await_progress(&f->load, 300, 20000);
        printf("undisturbed: longest gap between completions %.2f ms\n", (double)load_longest_gap_ns(&f->load) / 1e6);
        for (uint32_t i = 0; i < n_kills(); i++)
                kill_daemon(f, i, i % 2 == 1);
        load_assert_alive(&f->load);
        load_stop(&f->load);
        assert_int_equal(compare_outcomes(&f->load, NULL, 0), 0);
        printf("%u kills, %u sequences on %u ranks, none lost\n", n_kills(), load_completed_max(&f->load), RANKS);
        node_assert_as_before(&f->node, &f->before);
        node_stop(&f->node);
}

static struct window kill_executor(struct fixture *f, uint32_t number) {
        struct node_pids pids = node_await_ready(&f->node, 0, 0, BACK_MS), now;
        struct window window;

        load_await_progress(&f->load, 1 + (uint32_t)(proc_random(&f->random) % 300), 20000);
        load_reset_gap(&f->load);
        window.after = load_completed_max(&f->load);
        kill_and_see(pids.executor);
        window.until = load_issued_max(&f->load);
        now = node_await_ready(&f->node, 0, pids.executor, BACK_MS);
        load_await_progress(&f->load, AFTER_KILL, 20000);
        printf("kill %u of the executor at sequence %u: longest gap between completions %.2f ms\n", number + 1,
               window.after, (double)load_longest_gap_ns(&f->load) / 1e6);
        assert_int_equal(now.daemon, pids.daemon);
        load_create_begin(&f->load);
        load_create_end(&f->load, BACK_MS);
        return window;
}

static void test_executor(void **state) {
        struct fixture *f = *state;
        struct window windows[KILLS_MAX];
        uint32_t lost;

        for (uint32_t i = 0; i < n_kills(); i++)
                windows[i] = kill_executor(f, i);
        load_assert_alive(&f->load);
        load_stop(&f->load);
        lost = compare_outcomes(&f->load, windows, n_kills());
        printf("%u kills, %u sequences on %u ranks, %u lost, the same on all ranks\n", n_kills(),
               load_completed_max(&f->load), RANKS, lost);
        node_assert_as_before(&f->node, &f->before);
        node_stop(&f->node);
}

/* ---- rails ------------------------------------------------------------------------------------------------------- */
static const char *const with_rails[] = {"--rail", "r0=127.0.0.1", "--rail", "r1=127.0.0.1", NULL};

static int setup_rails(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        *state = f;
        f->node.listens = true;
        f->node.more = with_rails;
        node_start(&f->node, "recovery-rails", true);
        return 0;
}

static void drain(struct fixture *f, const char *command, const char *rail) {
        const char *argv[] = {node_program("railmuxctl"), "--control", f->node.control, command, rail, NULL};
        char *output = malloc(PROC_OUTPUT_MAX);

        assert_non_null(output);
        if (proc_run(argv, 20000, output) != 0)
                fail_msg("%s %s: %s", command, rail, output);
        free(output);
}

/* A bit for each. */
static uint32_t drained_rails(const struct fixture *f) {
        json_t *answer = node_query(&f->node, "rails"), *rail;
        uint32_t drained = 0;
        size_t i;

        assert_non_null(answer);
        assert_int_equal(json_array_size(json_object_get(answer, "rails")), 2);
        json_array_foreach(json_object_get(answer, "rails"), i, rail) {
                const char *name = json_string_value(json_object_get(rail, "name"));
                const char *is = json_string_value(json_object_get(rail, "state"));

                assert_true(name && name[0] == 'r' && is);
                if (strcmp(is, "drained") == 0)
                        drained |= 1u << (name[1] - '0');
        }
        json_decref(answer);
        return drained;
}

/* What an operator has said holds for the next railmuxd, until it is taken back. */
static void test_rails(void **state) {
        static const struct {
                const char *command, *rail;
                uint32_t drained;
        } steps[] = {{"drain-rail", "r1", 2},   {"drain-rail", "r1", 2},   {"drain-rail", "r0", 3},
                     {"undrain-rail", "r1", 1}, {"undrain-rail", "r0", 0}, {"undrain-rail", "r0", 0}};
        struct fixture *f = *state;
        struct node_pids pids;

        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
                pids = node_await_ready(&f->node, 0, 0, BACK_MS);
                drain(f, steps[i].command, steps[i].rail);
                assert_int_equal(drained_rails(f), steps[i].drained);
                kill_and_see(pids.daemon);
                node_await_ready(&f->node, pids.daemon, 0, BACK_MS);
                assert_int_equal(drained_rails(f), steps[i].drained);
        }
        drain(f, "drain-rail", "r1");
        node_stop(&f->node);
        node_start(&f->node, "recovery-rails", true); /* nobody has kept anything */
        assert_int_equal(drained_rails(f), 0);
        node_stop(&f->node);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_daemon, setup_daemon, teardown),
                cmocka_unit_test_setup_teardown(test_executor, setup_executor, teardown),
                cmocka_unit_test_setup_teardown(test_rails, setup_rails, teardown),
        };

        return cmocka_run_group_tests_name("recovery", tests, NULL, NULL);
}
