/* SPDX-License-Identifier: MIT */
/*
 * Communicators over two nodes that cannot be: ranks that do not fit together, ids that are none, nodes that are gone,
 * ranks that give up. Each rank gets an error with a sentence before its time is over, and the next one works.
 */
#include <errno.h>
#include <inttypes.h>
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
#include <unistd.h>

#include <cmocka.h>

#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "tests/e2e/team.h"
#include "util/clock.h"

#define NODES    2u
#define THIRD    2u /* a node without ranks, which makes ids */
#define RANKS    6u
#define PATIENCE 10000u              /* ms, for joining */
#define NOTED    (UINT32_C(1) << 24) /* a step: the script has noted its error */
#define NO_RANK  UINT32_MAX

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum kind {
        MORE_RANKS, /* those of node 1 say that there is one more */
        SAME_RANK,  /* the subject says that it is the other one */
        GIVEN_ID,   /* all use shared->given */
        SHORT_OF_TIME,
        CANCELLED,
        WAITING, /* for the other ones, which come when they may */
};

struct fixture {
        struct node node[NODES + 1];
        struct team team, third;
};

/* ---- the scripts ------------------------------------------------------------------------------------------------- */
static int join(struct team_rank *rank, const struct rmx_id *id, struct rmx_cancel *cancel, struct rmx_comm **comm) {
        const struct team_shared *shared = rank->shared;
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = -1, .cancel = cancel};
        uint32_t n = rank->n_ranks, as = rank->rank;

        options.timeout_ms = (uint32_t)(PATIENCE * proc_time_scale());
        if (shared->kind == SHORT_OF_TIME && rank->rank == shared->subject)
                options.timeout_ms = 100;
        if (shared->kind == GIVEN_ID && shared->subject != NO_RANK)
                options.timeout_ms = shared->subject; /* for all */
        if (shared->kind == MORE_RANKS && rank->rank >= RANKS / NODES)
                n++;
        if (shared->kind == SAME_RANK && rank->rank == shared->subject)
                as = shared->other;
        return rmx_comm_create(rank->session, id, n, as, &options, comm);
}

/* It cannot be made. */
static void join_in_vain(struct team_rank *rank) {
        const struct rmx_id *id = rank->shared->kind == GIVEN_ID ? &rank->shared->given : &rank->shared->id[0];
        struct rmx_comm *comm;

        team_note(rank, join(rank, id, NULL, &comm), NULL);
        atomic_fetch_add(&rank->notes->step, NOTED); /* partner: team_await_step */
}

struct canceller {
        struct team_rank *rank;
        struct rmx_cancel *cancel;
};

static void *run_canceller(void *userdata) {
        struct canceller *c = userdata;

        team_await_go(c->rank, 1);
        rmx_cancel_set(c->cancel);
        return NULL;
}

static int join_and_cancel(struct team_rank *rank, struct rmx_comm **comm) {
        struct canceller c = {.rank = rank};
        pthread_t thread;
        int code;

        team_must(rank, rmx_cancel_new(&c.cancel), "rmx_cancel_new");
        team_must(rank, pthread_create(&thread, NULL, run_canceller, &c) ? RMX_E_INTERNAL : RMX_OK, "a thread");
        code = join(rank, &rank->shared->id[0], c.cancel, comm);
        team_note(rank, code, NULL);
        pthread_join(thread, NULL);
        rmx_cancel_free(c.cancel);
        return code;
}

/* The first time in vain; then with the same id once more, unless the subject is dead. */
static void join_twice(struct team_rank *rank) {
        struct team_shared *shared = rank->shared;
        int32_t one = 1, sum = -1;
        struct rmx_comm *comm;
        int code;

        if (shared->other >> rank->rank & 1)
                team_await_go(rank, 2);
        if (shared->kind == CANCELLED && rank->rank == shared->subject)
                code = join_and_cancel(rank, &comm);
        else
                team_note(rank, code = join(rank, &shared->id[0], NULL, &comm), NULL);
        if (code == RMX_OK)
                team_wrong(rank, "it was made");
        atomic_fetch_add(&rank->notes->step, NOTED); /* partner: team_await_step */
        if (shared->kind == WAITING)
                return;
        pthread_barrier_wait(&shared->barrier);
        code = rmx_comm_create(rank->session, &shared->id[0], rank->n_ranks, rank->rank, NULL, &comm);
        team_must(rank, code, "the second time");
        team_must(rank, rmx_all_reduce(comm, &one, &sum, 1, RMX_INT32, RMX_SUM, NULL), "rmx_all_reduce");
        if (sum != (int32_t)rank->n_ranks)
                team_wrong(rank, "a wrong sum");
        team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
}

static void make_ids(struct team_rank *rank) {
        (void)rank; /* they are made for each team */
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */
static void assert_serves(const struct fixture *f) {
        char sockets[256];
        const char *argv[] = {node_program("railmux-perf"),
                              "all_reduce",
                              "--ranks",
                              "6",
                              "-e",
                              "64K",
                              "-f",
                              "16",
                              "-n",
                              "3",
                              "-c",
                              "2",
                              "--socket",
                              sockets,
                              NULL};

        snprintf(sockets, sizeof(sockets), "%s,%s", f->node[0].socket, f->node[1].socket);
        assert_int_equal(proc_run(argv, 30000, NULL), 0);
}

/* Have all ranks but the late ones joined, as far as their daemons know? */
static bool all_wait(void *argument) {
        const struct fixture *f = argument;
        json_int_t joined = 0;

        for (uint32_t i = 0; i < NODES; i++) {
                json_t *root = node_query(&f->node[i], "comms"), *row;
                size_t k;

                json_array_foreach(json_object_get(root, "comms"), k, row)
                        joined += json_integer_value(json_object_get(row, "joined"));
                json_decref(root);
        }
        return joined == RANKS - __builtin_popcount(f->team.shared->other);
}

static void check(const struct fixture *f, const char *what, uint32_t ranks, int code, const char *word) {
        for (uint32_t r = 0; r < RANKS; r++) {
                const struct team_notes *n = &f->team.shared->notes[r];

                if (ranks >> r & 1 && (n->code != code || !strstr(n->text, word)))
                        fail_msg("%s (%u, 0x%x): rank %u got %s (%s), not %s with '%s'", what, f->team.shared->subject,
                                 f->team.shared->other, r, rmx_error_name(n->code), n->text, rmx_error_name(code),
                                 word);
        }
}

/* ---- ranks that do not fit together ------------------------------------------------------------------------------ */
static void run_in_vain(struct fixture *f, enum kind kind, uint32_t subject, uint32_t other, const char *what) {
        f->team.shared->kind = kind;
        f->team.shared->subject = subject;
        f->team.shared->other = other;
        team_start(&f->team, join_in_vain);
        team_end(&f->team, what);
}

static void misfits(void **state) {
        struct fixture *f = *state;
        struct node_snapshot before[NODES];
        static const uint32_t pairs[][2] = {{3, 0}, {0, 3}, {5, 2}, {1, 5}};

        assert_serves(f);
        nodes_snapshot(f->node, NODES, before);
        for (uint32_t i = 0; i < (proc_full() ? 100 : 10); i++) { /* who comes first differs */
                run_in_vain(f, MORE_RANKS, NO_RANK, NO_RANK, "n_ranks");
                check(f, "n_ranks", TEAM_ALL, RMX_E_INVALID, "n_ranks is ");
                run_in_vain(f, SAME_RANK, pairs[i % 4][0], pairs[i % 4][1], "the same rank");
                check(f, "the same rank", TEAM_ALL, RMX_E_INVALID, "rank ");
        }
        assert_serves(f);
        nodes_assert_as_before(f->node, NODES, before);
        nodes_stop(f->node, COUNT_OF(f->node));
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */
static void take_id(struct fixture *f, uint32_t node) {
        team_init(&f->third, &f->node[node], 1, 1);
        team_start(&f->third, make_ids);
        team_end(&f->third, "making ids");
        f->team.shared->given = f->third.shared->id[0];
        team_cleanup(&f->third);
}

/* One bit is wrong: in the version, the node's id, the nonce, the address, the hash. */
static void forged_ids(void **state) {
        static const uint32_t bytes[] = {0, 5, 8, 23, 24, 40, 55, 58, 66, 69, 80, 95, 96, 127};
        struct node_snapshot before[NODES];
        struct fixture *f = *state;

        assert_serves(f);
        nodes_snapshot(f->node, NODES, before);
        for (uint32_t i = 0; i < COUNT_OF(bytes); i++) {
                take_id(f, i % NODES);
                f->team.shared->given.bytes[bytes[i]] ^= 1;
                run_in_vain(f, GIVEN_ID, NO_RANK, NO_RANK, "a forged id");
                for (uint32_t r = 0; r < RANKS; r++) {
                        const struct team_notes *n = &f->team.shared->notes[r];
                        bool clear = n->code == RMX_E_DENIED || n->code == RMX_E_INVALID || n->code == RMX_E_PEER_LOST;

                        if (!clear || !n->text[0])
                                fail_msg("byte %u of an id of node %u is wrong: rank %u got %s (%s)", bytes[i],
                                         i % NODES, r, rmx_error_name(n->code), n->text);
                        if (r % (RANKS / NODES) == 0)
                                print_message("byte %u of an id of node %u: rank %u: %s: %s\n", bytes[i], i % NODES, r,
                                              rmx_error_name(n->code), n->text);
                }
        }
        assert_serves(f);
        nodes_assert_as_before(f->node, NODES, before);
        nodes_stop(f->node, COUNT_OF(f->node));
}

/* The node that made the id has no ranks; it is there, then silent, then gone. */
static void rootless(void **state) {
        struct fixture *f = *state;
        struct node_pids pids;

        node_start(&f->node[THIRD], "nodes-join-c", false);
        pids = node_pids(&f->node[THIRD]);
        take_id(f, THIRD);
        kill(pids.daemon, SIGSTOP);
        run_in_vain(f, GIVEN_ID, 500, NO_RANK, "a silent root");
        for (uint32_t r = 0; r < RANKS; r++) /* the first whose time is over takes the others of its node with it */
                if (f->team.shared->notes[r].code != RMX_E_TIMEOUT && f->team.shared->notes[r].code != RMX_E_ABORTED)
                        fail_msg("a silent root: rank %u got %s (%s)", r, rmx_error_name(f->team.shared->notes[r].code),
                                 f->team.shared->notes[r].text);
        kill(pids.daemon, SIGCONT);
        kill(f->node[THIRD].pid, SIGTERM);
        node_await_end(&f->node[THIRD], pids.executor);
        run_in_vain(f, GIVEN_ID, NO_RANK, NO_RANK, "a root that is gone");
        check(f, "a root that is gone", TEAM_ALL, RMX_E_PEER_LOST, "cannot be reached");
        assert_serves(f);
        nodes_stop(f->node, COUNT_OF(f->node));
}

/* ---- giving up --------------------------------------------------------------------------------------------------- */
/* The one that gives up, and those that are late: on the one node or the other, some or all of it. */
static const struct role {
        uint32_t subject, late;
} roles[] = {{1, 0x04}, {1, 0x20}, {4, 0x04}, {4, 0x20}, {0, 0x08}, {3, 0x01}, {1, 0x38}, {4, 0x07}, {2, 0x1a}};

static void run_twice(struct fixture *f, enum kind kind, const struct role *role, const char *what) {
        uint32_t rest = ((UINT32_C(1) << RANKS) - 1) & ~role->late;

        f->team.shared->kind = kind;
        f->team.shared->subject = role->subject;
        f->team.shared->other = role->late;
        team_start(&f->team, join_twice);
        if (kind != SHORT_OF_TIME && !proc_await(all_wait, f, PATIENCE))
                fail_msg("%s: the ranks do not come to wait", what);
        if (kind == WAITING) {
                team_kill(&f->team, role->subject);
                rest &= ~(UINT32_C(1) << role->subject);
        }
        atomic_store(&f->team.shared->go, 1); /* partner: team_await_go */
        team_await_step(&f->team, NOTED, rest, PATIENCE);
        atomic_store(&f->team.shared->go, 2); /* partner: team_await_go */
        team_end(&f->team, what);
}

static void out_of_time(void **state) {
        struct fixture *f = *state;
        struct node_snapshot before[NODES];

        assert_serves(f);
        nodes_snapshot(f->node, NODES, before);
        for (uint32_t i = 0; i < (proc_full() ? 20 : 1) * COUNT_OF(roles); i++) {
                const struct role *role = &roles[i % COUNT_OF(roles)];

                run_twice(f, SHORT_OF_TIME, role, "out of time");
                check(f, "out of time", UINT32_C(1) << role->subject, RMX_E_TIMEOUT, "not all ranks have joined");
                check(f, "out of time", ~(UINT32_C(1) << role->subject), RMX_E_ABORTED, "gave up");
        }
        nodes_assert_as_before(f->node, NODES, before);
        nodes_stop(f->node, COUNT_OF(f->node));
}

static void cancelled(void **state) {
        struct fixture *f = *state;
        struct node_snapshot before[NODES];

        assert_serves(f);
        nodes_snapshot(f->node, NODES, before);
        for (uint32_t i = 0; i < (proc_full() ? 20 : 1) * COUNT_OF(roles); i++) {
                const struct role *role = &roles[i % COUNT_OF(roles)];

                run_twice(f, CANCELLED, role, "cancelled");
                check(f, "cancelled", UINT32_C(1) << role->subject, RMX_E_ABORTED, "rmx_cancel_set");
                check(f, "cancelled", ~(UINT32_C(1) << role->subject), RMX_E_ABORTED, "gave up");
        }
        nodes_assert_as_before(f->node, NODES, before);
        nodes_stop(f->node, COUNT_OF(f->node));
}

static void killed(void **state) {
        struct fixture *f = *state;
        struct node_snapshot before[NODES];

        assert_serves(f);
        nodes_snapshot(f->node, NODES, before);
        for (uint32_t i = 0; i < (proc_full() ? 20 : 1) * COUNT_OF(roles); i++) {
                const struct role *role = &roles[i % COUNT_OF(roles)];
                char word[32];

                run_twice(f, WAITING, role, "killed while joining");
                snprintf(word, sizeof(word), "rank %u ", role->subject);
                check(f, "killed while joining", ~(UINT32_C(1) << role->subject), RMX_E_PEER_LOST, word);
        }
        assert_serves(f);
        nodes_assert_as_before(f->node, NODES, before);
        nodes_stop(f->node, COUNT_OF(f->node));
}

/* ------------------------------------------------------------------------------------------------------------------ */
static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));
        char name[32];

        assert_non_null(f);
        *state = f;
        for (uint32_t i = 0; i < COUNT_OF(f->node); i++) {
                f->node[i].gpus = 4;
                f->node[i].listens = true;
                snprintf(name, sizeof(name), "nodes-join-%c", (int)('a' + i));
                if (i < NODES)
                        node_start(&f->node[i], name, false);
        }
        team_init(&f->team, f->node, NODES, RANKS);
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        team_cleanup(&f->team);
        team_cleanup(&f->third);
        nodes_cleanup(f->node, COUNT_OF(f->node));
        free(f);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(misfits, setup, teardown),
                cmocka_unit_test_setup_teardown(forged_ids, setup, teardown),
                cmocka_unit_test_setup_teardown(rootless, setup, teardown),
                cmocka_unit_test_setup_teardown(out_of_time, setup, teardown),
                cmocka_unit_test_setup_teardown(cancelled, setup, teardown),
                cmocka_unit_test_setup_teardown(killed, setup, teardown),
        };

        return cmocka_run_group_tests_name("nodes_join", tests, NULL, NULL);
}
