/* SPDX-License-Identifier: MIT */
/*
 * Splits of communicators over three nodes: who gets into which communicator and as which rank, on one node or several;
 * that all ranks get the same answer, whatever becomes of one of them or of a node meanwhile; and that nothing is left.
 */
#include <errno.h>
#include <pthread.h>
#include <railmux/railmux.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "tests/e2e/team.h"
#include "util/clock.h"

#define NODES 3u
#define RANKS 8u /* 3, 3 and 2 on the nodes */
/* A second is what is promised; a machine that does other things as well may take longer. The figure is printed. */
#define BOUND_MS 3000.0
#define NOTED    (UINT32_C(1) << 24) /* a step: the script has noted what it got */
#define NONE     (-1)

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct fixture {
        struct node node[NODES];
        struct team team;
        uint64_t random;
};

/* ---- scripts ----------------------------------------------------------------------------------------------------- */
struct wish {
        int32_t colour[RANKS], key[RANKS];
};

static const struct wish wishes[] = {
        {{0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}},                     /* as the parent */
        {{0, 0, 0, 0, 0, 0, 0, 0}, {8, 7, 6, 5, 4, 3, 2, 1}},                     /* the other way round */
        {{0, 0, 0, 1, 1, 1, 2, 2}, {0, 0, 0, 0, 0, 0, 0, 0}},                     /* one for each node */
        {{5, 5, 5, 5, 5, 5, 9, 9}, {0, -1, 0, 3, 0, -7, 1, 0}},                   /* over two nodes, and on one */
        {{0, 1, 2, 0, 1, 2, 0, 1}, {0, 0, 0, 1, 1, 1, -1, -1}},                   /* all over several */
        {{NONE, NONE, NONE, 3, 4, 4, 4, 3}, {0, 0, 0, INT32_MAX, 0, 0, 0, 0}},    /* the first node has none */
        {{7, NONE, 7, 7, NONE, NONE, NONE, NONE}, {INT32_MIN, 0, 2, 1, 0, 0, 0}}, /* the last one has none */
        {{NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE}, {0}},
        {{0, 1, 2, 3, 4, 5, 6, 7}, {0}}, /* each for itself */
};

static uint32_t wished_rank(const struct wish *w, uint32_t rank, uint32_t *ret_size) {
        uint32_t before = 0, size = 0;

        for (uint32_t r = 0; r < RANKS; r++) {
                if (w->colour[r] != w->colour[rank])
                        continue;
                size++;
                before += w->key[r] < w->key[rank] || (w->key[r] == w->key[rank] && r < rank);
        }
        *ret_size = size;
        return before;
}

static struct rmx_comm *split(struct team_rank *rank, struct rmx_comm *parent, const struct wish *w) {
        struct rmx_comm *child = (void *)rank;
        uint32_t size, as = wished_rank(w, rmx_comm_rank(parent), &size);

        team_must(rank,
                  rmx_comm_split(parent, w->colour[rmx_comm_rank(parent)], w->key[rmx_comm_rank(parent)], NULL, &child),
                  "rmx_comm_split");
        if (w->colour[rmx_comm_rank(parent)] < 0) {
                if (child)
                        team_wrong(rank, "a communicator without a colour");
                return NULL;
        }
        if (rmx_comm_rank(child) != as || rmx_comm_size(child) != size)
                team_wrong(rank, "it became another rank");
        return child;
}

static void split_in_all_ways(struct team_rank *rank) {
        struct rmx_comm *parent = team_join(rank, 0), *children[COUNT_OF(wishes)];

        for (uint32_t turn = 0; turn < rank->shared->kind; turn++) {
                for (uint32_t i = 0; i < COUNT_OF(wishes); i++) {
                        children[i] = split(rank, parent, &wishes[i]);
                        if (children[i])
                                team_use(rank, children[i], i);
                }
                team_use(rank, parent, 77);
                for (uint32_t i = 0; i < COUNT_OF(wishes); i++) /* again, while all of them are there */
                        if (children[i])
                                team_use(rank, children[i], i + 50);
                for (uint32_t i = 0; i < COUNT_OF(wishes); i++)
                        team_must(rank, rmx_comm_destroy(children[i]), "rmx_comm_destroy");
        }
        team_must(rank, rmx_comm_destroy(parent), "rmx_comm_destroy");
}

/* A child is split, and lives on without those that it comes from. */
static void split_a_child(struct team_rank *rank) {
        struct rmx_comm *parent = team_join(rank, 0), *child = split(rank, parent, &wishes[1]), *grandchild;

        grandchild = split(rank, child, &wishes[4]);
        team_must(rank, rmx_comm_destroy(parent), "rmx_comm_destroy");
        team_must(rank, rmx_comm_destroy(child), "rmx_comm_destroy");
        team_use(rank, grandchild, 3);
        team_must(rank, rmx_comm_destroy(grandchild), "rmx_comm_destroy");
}

/* Stands still for the operators' view. */
static void split_and_wait(struct team_rank *rank) {
        struct rmx_comm *parent = team_join(rank, 0), *child = split(rank, parent, &wishes[3]);

        team_use(rank, child, 1);
        team_step(rank);
        team_await_go(rank, 1);
        team_must(rank, rmx_comm_destroy(child), "rmx_comm_destroy");
        team_must(rank, rmx_comm_destroy(parent), "rmx_comm_destroy");
}

/* ---- splits that cannot be --------------------------------------------------------------------------------------- */
enum fate {
        KILLED,      /* the subject is killed before it calls */
        LEAVES,      /* it leaves */
        ABORTS,      /* it aborts the parent */
        OUT_OF_TIME, /* it calls, and waits no longer for `other`, which comes late */
        FATES,
};
static const char *const fate_names[] = {"killed", "leaves", "aborts", "out of time"};

static int split_plainly(struct rmx_comm *parent, uint32_t timeout_ms, struct rmx_comm **child) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = -1, .timeout_ms = timeout_ms};

        return rmx_comm_split(parent, (int32_t)(rmx_comm_rank(parent) % 2), 0, &options, child);
}

static void suffer(struct team_rank *rank) {
        const struct team_shared *shared = rank->shared;
        struct rmx_comm *parent = team_join(rank, 0), *child = NULL;
        bool subject = rank->rank == shared->subject;
        int code;

        team_must(rank, rmx_barrier(parent, NULL), "rmx_barrier");
        team_step(rank);
        if (subject)
                team_await_go(rank, 1); /* the others wait for it by then, or are about to */
        if (shared->kind == OUT_OF_TIME && rank->rank == shared->other)
                team_await_go(rank, 2);
        if (subject && shared->kind == LEAVES) {
                team_must(rank, rmx_comm_destroy(parent), "rmx_comm_destroy");
                team_note(rank, RMX_E_PEER_LOST, NULL);
        } else if (subject && shared->kind == ABORTS) {
                team_must(rank, rmx_comm_abort(parent), "rmx_comm_abort");
                team_note(rank, RMX_E_ABORTED, NULL);
        } else {
                code = split_plainly(parent, subject ? 200 : 0, &child);
                team_note(rank, code, NULL);
        }
        atomic_fetch_add(&rank->notes->step, NOTED); /* partner: team_await_step */
        if (shared->kind == OUT_OF_TIME) {           /* the parent is as it was, and so is the count of its splits */
                pthread_barrier_wait(&rank->shared->barrier);
                child = split(rank, parent, &wishes[4]);
                team_use(rank, child, 2);
                team_must(rank, rmx_comm_destroy(child), "rmx_comm_destroy");
        }
        if (!(subject && shared->kind == LEAVES))
                team_must(rank, rmx_comm_destroy(parent), "rmx_comm_destroy");
}

/* Splits and uses children without end, until something fails. Whatever fails, everybody has an error soon. */
static void split_on(struct team_rank *rank) {
        struct rmx_comm *parent = team_join(rank, 0), *child = NULL;
        int32_t place = 0;
        int code = RMX_OK;

        for (uint32_t i = 0; !code; i++) {
                const struct wish *w = &wishes[(i + rank->shared->kind) % (COUNT_OF(wishes) - 2)];

                child = NULL;
                code = rmx_comm_split(parent, w->colour[rank->rank], w->key[rank->rank], NULL, &child);
                if (!code && child)
                        code = rmx_all_reduce(child, &place, &place, 1, RMX_INT32, RMX_SUM, NULL);
                if (child)
                        (void)rmx_comm_destroy(child); /* it may have failed, or its daemon */
                team_step(rank);
        }
        team_note(rank, code, NULL);
        atomic_fetch_add(&rank->notes->step, NOTED); /* partner: team_await_step */
        (void)rmx_comm_destroy(parent);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */
static json_int_t number_of(const json_t *row, const char *key) {
        return json_integer_value(json_object_get(row, key));
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void all_ways(void **state) {
        struct node_snapshot before[NODES];
        struct fixture *f = *state;

        team_run(&f->team, split_in_all_ways, 1, "splits");
        nodes_snapshot(f->node, NODES, before);
        team_run(&f->team, split_in_all_ways, proc_full() ? 100 : 3, "splits");
        team_run(&f->team, split_a_child, 0, "a child of a child");
        nodes_assert_as_before(f->node, NODES, before);
        nodes_stop(f->node, NODES);
}

/* What operators see: on each node the parent, and of its children those with ranks there. wishes[3]: ranks 0 to 5, on
 * nodes 0 and 1, and ranks 6 and 7, on node 2. */
static void shown(void **state) {
        struct fixture *f = *state;

        team_start(&f->team, split_and_wait);
        team_await_step(&f->team, 1, TEAM_ALL, 20000);
        for (uint32_t i = 0; i < NODES; i++) {
                json_t *root = node_query(&f->node[i], "comms"), *rows = json_object_get(root, "comms"), *row;
                size_t k;

                assert_int_equal(json_array_size(rows), 2);
                json_array_foreach(rows, k, row) {
                        json_int_t n = number_of(row, "n_ranks"), nodes = number_of(row, "nodes");
                        json_t *members = json_object_get(row, "members"), *member;
                        json_int_t away = 0;
                        size_t m;

                        json_array_foreach(members, m, member) {
                                const char *where = json_string_value(json_object_get(member, "node"));

                                away += where && where[0];
                        }
                        assert_string_equal(json_string_value(json_object_get(row, "state")), "ready");
                        assert_int_equal(json_array_size(members), n);
                        if (n == RANKS) {
                                assert_int_equal(nodes, NODES);
                                assert_int_equal(away, RANKS - (i == 2 ? 2 : 3));
                        } else {
                                assert_int_equal(n, i == 2 ? 2 : 6);
                                assert_int_equal(nodes, i == 2 ? 1 : 2);
                                assert_int_equal(away, i == 2 ? 0 : 3);
                        }
                }
                json_decref(root);
        }
        atomic_store(&f->team.shared->go, 1); /* partner: team_await_go */
        team_end(&f->team, "what operators see");
        nodes_stop(f->node, NODES);
}

static int fate_code(enum fate fate) {
        return fate == KILLED || fate == LEAVES ? RMX_E_PEER_LOST : RMX_E_ABORTED;
}

static void check_fate(const struct fixture *f, enum fate fate, uint64_t since_ns) {
        const struct team_shared *shared = f->team.shared;

        for (uint32_t r = 0; r < RANKS; r++) {
                const struct team_notes *n = &shared->notes[r];
                int code = fate == OUT_OF_TIME && r == shared->subject ? RMX_E_TIMEOUT : fate_code(fate);
                double ms = (double)(int64_t)(n->at_ns - since_ns) / 1e6;

                if (fate == KILLED && r == shared->subject)
                        continue;
                if (n->code != code)
                        fail_msg("rank %u %s: rank %u got %s (%s), not %s", shared->subject, fate_names[fate], r,
                                 rmx_error_name(n->code), n->text, rmx_error_name(code));
                if (fate != OUT_OF_TIME && ms > BOUND_MS * proc_time_scale())
                        fail_msg("rank %u %s: rank %u heard after %.0f ms", shared->subject, fate_names[fate], r, ms);
        }
}

static void fates(void **state) {
        static const uint32_t subjects[] = {1, 4, 7};
        struct node_snapshot before[NODES];
        struct fixture *f = *state;

        team_run(&f->team, split_in_all_ways, 1, "splits");
        nodes_snapshot(f->node, NODES, before);
        for (uint32_t i = 0; i < (proc_full() ? 10 : 1) * FATES * COUNT_OF(subjects); i++) {
                enum fate fate = i / COUNT_OF(subjects) % FATES;
                uint64_t begin_ns;

                f->team.shared->kind = fate;
                f->team.shared->subject = subjects[i % COUNT_OF(subjects)];
                f->team.shared->other = (f->team.shared->subject + 4) % RANKS;
                team_start(&f->team, suffer);
                team_await_step(&f->team, 1, TEAM_ALL, 20000);
                begin_ns = clock_now_ns();
                if (fate == KILLED)
                        team_kill(&f->team, f->team.shared->subject);
                atomic_store(&f->team.shared->go, 1); /* partner: team_await_go */
                if (fate == OUT_OF_TIME) {
                        team_await_step(&f->team, NOTED, TEAM_ALL & ~(UINT32_C(1) << f->team.shared->other), 20000);
                        atomic_store(&f->team.shared->go, 2); /* partner: team_await_go */
                }
                team_end(&f->team, fate_names[fate]);
                check_fate(f, fate, begin_ns);
        }
        nodes_assert_as_before(f->node, NODES, before);
        nodes_stop(f->node, NODES);
}

static void await_splits(struct fixture *f) {
        team_await_step(&f->team, 2 + (uint32_t)(proc_random(&f->random) % 12), TEAM_ALL, 20000);
        for (volatile uint64_t i = proc_random(&f->random) % 300000; i; i--) /* somewhere within one */
                ;
}

/* Of the ranks of the set: an error of the kind, in time. */
static double check_storm(const struct fixture *f, uint32_t ranks, uint64_t since_ns, const char *what) {
        double longest = 0;

        for (uint32_t r = 0; r < RANKS; r++) {
                const struct team_notes *n = &f->team.shared->notes[r];
                double ms = (double)(int64_t)(n->at_ns - since_ns) / 1e6;

                if (!(ranks >> r & 1))
                        continue;
                if (n->code != RMX_E_PEER_LOST)
                        fail_msg("%s: rank %u got %s (%s)", what, r, rmx_error_name(n->code), n->text);
                longest = ms > longest ? ms : longest;
        }
        if (longest > BOUND_MS * proc_time_scale())
                fail_msg("%s: an error after %.0f ms", what, longest);
        return longest;
}

/* A rank dies at any moment of splitting. */
static void storm_of_ranks(void **state) {
        struct node_snapshot before[NODES];
        struct fixture *f = *state;
        double longest = 0, ms;

        team_run(&f->team, split_in_all_ways, 1, "splits");
        nodes_snapshot(f->node, NODES, before);
        for (uint32_t i = 0; i < (proc_full() ? 300 : 12); i++) {
                uint32_t victim = (uint32_t)(proc_random(&f->random) % RANKS);
                uint64_t begin_ns;

                f->team.shared->kind = i;
                team_start(&f->team, split_on);
                await_splits(f);
                begin_ns = clock_now_ns();
                team_kill(&f->team, victim);
                team_end(&f->team, "a rank dies");
                ms = check_storm(f, TEAM_ALL & ~(UINT32_C(1) << victim), begin_ns, "a rank dies");
                longest = ms > longest ? ms : longest;
        }
        print_message("a rank dies while all split: %.1f ms at most\n", longest);
        team_run(&f->team, split_in_all_ways, 1, "splits after that");
        nodes_assert_as_before(f->node, NODES, before);
        nodes_stop(f->node, NODES);
}

/* A daemon dies: the one that decides, or another. */
static void storm_of_nodes(void **state) {
        struct fixture *f = *state;

        for (uint32_t i = 0; i < (proc_full() ? 30 : 4); i++) {
                uint32_t victim = i % 2 ? (uint32_t)(proc_random(&f->random) % NODES) : 0;
                struct node_pids pids = node_pids(&f->node[victim]);
                uint32_t left = TEAM_ALL & ~team_ranks_of(&f->team, victim);
                uint64_t begin_ns;

                f->team.shared->kind = i;
                team_start(&f->team, split_on);
                await_splits(f);
                begin_ns = clock_now_ns();
                kill(pids.daemon, SIGKILL);
                team_end(&f->team, "a daemon dies");
                print_message("node %u dies while all split: %.1f ms at most\n", victim,
                              check_storm(f, left, begin_ns, "a daemon dies"));
                node_await_end(&f->node[victim], pids.executor);
                node_start(&f->node[victim], "", false);
                team_run(&f->team, split_in_all_ways, 1, "splits after that");
        }
        nodes_stop(f->node, NODES);
}

/* A daemon falls silent, and comes back when all others have given it up. */
static void silent_nodes(void **state) {
        struct fixture *f = *state;

        for (uint32_t victim = 0; victim < NODES; victim++) {
                struct node_pids pids = node_pids(&f->node[victim]);
                uint32_t left = TEAM_ALL & ~team_ranks_of(&f->team, victim);
                uint64_t begin_ns;

                f->team.shared->kind = victim;
                team_start(&f->team, split_on);
                await_splits(f);
                begin_ns = clock_now_ns();
                kill(pids.daemon, SIGSTOP);
                team_await_step(&f->team, NOTED, left, 10000);
                kill(pids.daemon, SIGCONT);
                team_end(&f->team, "a daemon is silent");
                print_message("node %u is silent while all split: %.1f ms at most\n", victim,
                              check_storm(f, left, begin_ns, "a daemon is silent"));
                for (uint32_t r = 0; r < RANKS; r++)
                        if (f->team.shared->notes[r].code != RMX_E_PEER_LOST)
                                fail_msg("rank %u got %s (%s)", r, rmx_error_name(f->team.shared->notes[r].code),
                                         f->team.shared->notes[r].text);
                team_run(&f->team, split_in_all_ways, 1, "splits after that");
        }
        nodes_stop(f->node, NODES);
}

/* ------------------------------------------------------------------------------------------------------------------ */
static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        *state = f;
        f->random = proc_seed();
        nodes_start(f->node, NODES, "nodes-split", 0);
        team_init(&f->team, f->node, NODES, RANKS);
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        team_cleanup(&f->team);
        nodes_cleanup(f->node, NODES);
        free(f);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(all_ways, setup, teardown),
                cmocka_unit_test_setup_teardown(shown, setup, teardown),
                cmocka_unit_test_setup_teardown(fates, setup, teardown),
                cmocka_unit_test_setup_teardown(storm_of_ranks, setup, teardown),
                cmocka_unit_test_setup_teardown(storm_of_nodes, setup, teardown),
                cmocka_unit_test_setup_teardown(silent_nodes, setup, teardown),
        };

        return cmocka_run_group_tests_name("nodes_split", tests, NULL, NULL);
}
