/* SPDX-License-Identifier: MIT */
/*
 * Clients that break every rule, against a real node with well-behaved ranks on it.
 *
 * Each case is a process of its own, several at a time, drawn from tables by kind (attack.h). After every batch the
 * node is looked at: the same processes that answer, ranks that get on with right results, and everything that the
 * cases held given back: sessions, comms, charges, descriptors and mappings are those from before the batch.
 *
 * On kernels where a listener can refuse descriptors, railmuxd would never see those of the cases. So it runs with a
 * library (oldkernel.c) that denies this option, as older kernels do.
 */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "tests/e2e/load.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "tests/hostile/attack.h"
#include "tests/hostile/footprint.h"

#define VICTIMS     3u
#define LANES       4u
#define BATCH       100u
#define FULL_FACTOR 17u /* 10,000 cases */
#define CASE_MS     60000u
#define SETTLE_MS   30000u
#define KINDS_MAX   64u

static const struct attack_kind *const tables[] = {attacks_frame, attacks_descriptor, attacks_line,  attacks_block,
                                                   attacks_pair,  attacks_memory,     attacks_flood, attacks_comm,
                                                   attacks_life,  attacks_kill};

static const char *const outcome_names[OUTCOME_COUNT] = {
        "none", "ended", "refused", "served", "barred", "killed", "left", "WRONG",
};

struct lane {
        pid_t pid; /* 0: free */
        uint32_t number;
};

struct fixture {
        struct node node;
        struct load load;
        struct node_pids pids;
        struct node_snapshot empty; /* before the ranks came */
        struct footprint empty_footprint, footprint;
        struct lane lanes[LANES];
        struct attack attacks[LANES];
        void *results; /* shared with the cases */
        uint32_t n_cases;
        struct {
                const char *name;
                uint32_t outcomes[OUTCOME_COUNT];
        } rows[KINDS_MAX];
        uint32_t n_rows;
};

static void case_start(struct fixture *f, uint32_t lane, const struct attack_kind *kind, uint32_t number) {
        struct attack *attack = &f->attacks[lane];
        pid_t parent = getpid();

        attack->socket = f->node.socket;
        attack->number = number;
        attack->random = proc_seed() * 0x9e3779b97f4a7c15u + f->n_cases++;
        memset(attack->result, 0, sizeof(*attack->result));
        fflush(NULL);
        f->lanes[lane].number = number;
        f->lanes[lane].pid = fork();
        assert_true(f->lanes[lane].pid >= 0);
        if (f->lanes[lane].pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != parent)
                        _exit(1);
                for (uint32_t i = 0; i < LOAD_CREATORS; i++) {
                        close(f->load.command[i]);
                        close(f->load.answer[i]);
                }
                attack->result->outcome = kind->run(attack);
                _exit(0);
        }
}

/* Waits for the end of one case and counts how it ended. */
static void case_end(struct fixture *f, uint32_t lane, const struct attack_kind *kind) {
        struct attack *attack = &f->attacks[lane];
        enum outcome outcome;
        int status;

        if (proc_wait(f->lanes[lane].pid, CASE_MS, &status) != 0)
                fail_msg("%s, case %u (number %u) hangs", kind->name, f->lanes[lane].number, attack->number);
        f->lanes[lane].pid = 0;
        outcome = attack->result->outcome;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && attack->result->own_kill)
                outcome = OUTCOME_KILLED;
        else if (status != 0)
                fail_msg("%s, case %u: the client itself ended with status 0x%x", kind->name, f->lanes[lane].number,
                         (unsigned int)status);
        if (outcome == OUTCOME_NONE || outcome == OUTCOME_WRONG)
                fail_msg("%s, case %u: %s", kind->name, f->lanes[lane].number, attack->result->text);
        f->rows[f->n_rows].outcomes[outcome]++;
}

static void batch_run(struct fixture *f, const struct attack_kind *kind, uint32_t first, uint32_t n) {
        for (uint32_t i = 0; i < n + LANES; i++) {
                if (f->lanes[i % LANES].pid > 0)
                        case_end(f, i % LANES, kind);
                if (i < n)
                        case_start(f, i % LANES, kind, first + i);
        }
}

static void assert_victims_right(struct fixture *f, uint32_t *from) {
        uint32_t until = load_completed_max(&f->load);

        load_await_progress(&f->load, 3, 60000); /* so every rank has noted the outcomes up to there */
        for (uint32_t rank = 0; rank < VICTIMS; rank++) {
                if (atomic_load(&f->load.shared->rank[rank].wrong) > 0) /* partner request_finish */
                        fail_msg("rank %u has wrong data: %s", rank, f->load.shared->rank[rank].error);
                for (uint32_t s = *from; s <= until; s++)
                        if (f->load.shared->outcome[rank][s] != 1 + RMX_OK)
                                fail_msg("rank %u, sequence %u: %s", rank, s,
                                         rmx_error_name(f->load.shared->outcome[rank][s] - 1));
        }
        *from = until + 1;
}

static void assert_unharmed(struct fixture *f, const char *kind, uint32_t *victims_from) {
        struct node_pids now = node_pids(&f->node);
        struct footprint left;

        if (now.daemon != f->pids.daemon || now.executor != f->pids.executor) {
                node_show_log(&f->node);
                fail_msg("%s: railmuxd %d -> %d, executor %d -> %d", kind, (int)f->pids.daemon, (int)now.daemon,
                         (int)f->pids.executor, (int)now.executor);
        }
        if (!footprint_await(&f->node, &f->footprint, SETTLE_MS, &left)) {
                footprint_show(&f->footprint, &left);
                fail_msg("%s: not everything was given back", kind);
        }
        assert_victims_right(f, victims_from);
        load_assert_alive(&f->load);
}

static void kind_run(struct fixture *f, const struct attack_kind *kind, uint32_t *victims_from) {
        uint32_t n = kind->sampled * (proc_full() ? FULL_FACTOR : 1);

        assert_true(f->n_rows < KINDS_MAX);
        f->rows[f->n_rows].name = kind->name;
        for (uint32_t first = 0; first < n; first += BATCH) {
                batch_run(f, kind, first, n - first < BATCH ? n - first : BATCH);
                assert_unharmed(f, kind->name, victims_from);
        }
        f->n_rows++;
}

static void show_table(const struct fixture *f) {
        printf("%-40s %6s", "kind", "cases");
        for (unsigned int o = OUTCOME_ENDED; o < OUTCOME_WRONG; o++)
                printf(" %8s", outcome_names[o]);
        for (uint32_t i = 0; i < f->n_rows; i++) {
                uint32_t n = 0;

                for (unsigned int o = 0; o < OUTCOME_COUNT; o++)
                        n += f->rows[i].outcomes[o];
                printf("\n%-40s %6u", f->rows[i].name, n);
                for (unsigned int o = OUTCOME_ENDED; o < OUTCOME_WRONG; o++)
                        printf(" %8u", f->rows[i].outcomes[o]);
        }
        printf("\n%u cases; the ranks completed %u collectives meanwhile\n", f->n_cases, load_completed_max(&f->load));
}

static void test_hostile(void **state) {
        struct fixture *f = *state;
        const char *only = getenv("RAILMUX_HOSTILE"); /* one kind, for whoever looks for its defect */
        uint32_t victims_from = 1;

        proc_seed();
        node_start_preloaded(&f->node, "hostile", RAILMUX_OLD_KERNEL, false);
        f->pids = node_pids(&f->node);
        f->empty = node_snapshot(&f->node);
        f->empty_footprint = footprint_take(&f->node);
        load_start(&f->load, f->node.socket, VICTIMS);
        f->footprint = footprint_take(&f->node);
        for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
                for (const struct attack_kind *kind = tables[t]; kind->name; kind++)
                        if (!only || strstr(kind->name, only))
                                kind_run(f, kind, &victims_from);
        show_table(f);
        load_stop(&f->load);
        node_assert_as_before(&f->node, &f->empty);
        if (!footprint_await(&f->node, &f->empty_footprint, SETTLE_MS, &f->footprint)) {
                footprint_show(&f->empty_footprint, &f->footprint);
                fail_msg("the node does not look as before the ranks came");
        }
        node_stop(&f->node);
}

static int setup(void **state) {
        static struct fixture f;
        size_t size = sizeof(*f.attacks[0].result);
        char *results = mmap(NULL, LANES * size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        if (results == MAP_FAILED)
                return -1;
        f.results = results;
        for (uint32_t i = 0; i < LANES; i++)
                f.attacks[i].result = (void *)(results + i * size);
        *state = &f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        for (uint32_t i = 0; i < LANES; i++)
                if (f->lanes[i].pid > 0) {
                        kill(f->lanes[i].pid, SIGKILL);
                        waitpid(f->lanes[i].pid, NULL, 0);
                }
        load_cleanup(&f->load);
        node_cleanup(&f->node);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_hostile, setup, teardown)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
