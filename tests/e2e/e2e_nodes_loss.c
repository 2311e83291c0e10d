/* SPDX-License-Identifier: MIT */
/*
 * What a communicator over two nodes does when something of it is lost on one of them: a rank, a daemon, an executor,
 * or the sense of what was called. All ranks of both nodes get a typed error, in time where their own daemon lives, and
 * new communicators over both nodes work.
 */
#include <errno.h>
#include <inttypes.h>
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

#define NODES 2u
#define RANKS 6u
#define BIG   (1u << 18) /* elements: 1 MiB */
#define SMALL 64u
/* A second is what is promised; a machine that does other things as well may take longer. The figure is printed. */
#define BOUND_MS 3000.0
#define NOTED    (UINT32_C(1) << 24) /* a step: the script has noted its error */
#define ANY      INT32_MIN           /* as the failed rank */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum kind {
        WAITING,     /* the others wait in a small all_reduce that the subject has not called */
        BARRIER,     /* the same in a barrier */
        RECEIVING,   /* the same, each for something that only the subject can send */
        BIG_ONES,    /* everybody is inside large all_reduces */
        OUTSTANDING, /* everybody has several requests started */
        KINDS,
};
static const char *const kind_names[] = {"waiting in all_reduce", "waiting in a barrier", "waiting in recv",
                                         "inside large ones", "several outstanding"};

struct fixture {
        struct node node[NODES];
        struct team team;
        uint64_t random;
};

/* ---- the script -------------------------------------------------------------------------------------------------- */
static int call_several(struct rmx_comm *comm, float *memory) {
        struct rmx_request request[3];
        int code = RMX_OK, other;
        uint32_t n = 0;

        while (n < COUNT_OF(request) && code == RMX_OK) {
                code = rmx_all_reduce_start(comm, memory, memory, BIG / 8, RMX_FLOAT32, RMX_MAX, NULL, &request[n]);
                n += code == RMX_OK;
        }
        for (uint32_t i = 0; i < n; i++) { /* what was started has to be waited for in any case */
                other = rmx_wait(&request[i], NULL);
                code = code == RMX_OK ? other : code;
        }
        return code;
}

static int call(struct team_rank *rank, struct rmx_comm *comm, float *memory) {
        switch (rank->shared->kind) {
        case WAITING:
                return rmx_all_reduce(comm, memory, memory, SMALL, RMX_FLOAT32, RMX_SUM, NULL);
        case BARRIER:
                return rmx_barrier(comm, NULL);
        case RECEIVING:
                return rmx_recv(comm, memory, SMALL, RMX_FLOAT32, rank->shared->subject, NULL);
        case BIG_ONES:
                return rmx_all_reduce(comm, memory, memory, BIG, RMX_FLOAT32, RMX_MAX, NULL);
        default:
                return call_several(comm, memory);
        }
}

/* In the kinds in which others wait for it the subject makes its first call when it may, as the others then get their
 * error first. */
static bool subject_waits(const struct team_shared *shared) {
        return shared->kind <= RECEIVING;
}

static bool has_error(void *comm) {
        return rmx_comm_error(comm) != RMX_OK;
}

static void finish(struct team_rank *rank, int code, struct rmx_comm *comm) {
        team_note(rank, code, comm);
        rank->notes->next_code = rmx_barrier(comm, NULL);
        (void)proc_await(has_error, comm, 5000); /* RMX_E_LOST is the communicator's when the daemon has said so */
        rank->notes->sticky = rmx_comm_error(comm);
        atomic_fetch_add(&rank->notes->step, NOTED); /* partner: team_await_step */
        (void)rmx_comm_destroy(comm);                /* whose daemon may be gone */
}

static void call_until_error(struct team_rank *rank) {
        float *memory = team_memory(rank, BIG * sizeof(*memory));
        struct rmx_comm *comm = team_join(rank, 0);
        int code;

        team_must(rank, rmx_barrier(comm, NULL), "rmx_barrier");
        if (rank->rank == rank->shared->subject && subject_waits(rank->shared)) {
                team_step(rank);
                team_await_go(rank, 1);
                finish(rank, rmx_barrier(comm, NULL), comm);
                return;
        }
        do {
                team_step(rank);
                code = call(rank, comm, memory);
        } while (code == RMX_OK);
        finish(rank, code, comm);
}

static void abort_one(struct team_rank *rank) {
        float *memory = team_memory(rank, BIG * sizeof(*memory));
        struct rmx_comm *comm = team_join(rank, 0);
        int code;

        team_must(rank, rmx_barrier(comm, NULL), "rmx_barrier");
        if (rank->rank == rank->shared->subject) {
                team_step(rank);
                team_await_go(rank, 1);
                team_must(rank, rmx_comm_abort(comm), "rmx_comm_abort");
                finish(rank, rmx_barrier(comm, NULL), comm);
                return;
        }
        do {
                team_step(rank);
                code = call(rank, comm, memory);
        } while (code == RMX_OK && subject_waits(rank->shared));
        finish(rank, code, comm);
}

/* ---- trials ------------------------------------------------------------------------------------------------------ */
static void trial_begin(struct fixture *f, team_script *script, enum kind kind, uint32_t subject) {
        f->team.shared->kind = kind;
        f->team.shared->subject = subject;
        team_start(&f->team, script);
        team_await_step(&f->team, kind >= BIG_ONES ? 3 : 1, TEAM_ALL, 20000);
}

static void let_go(struct fixture *f) {
        atomic_store(&f->team.shared->go, 1); /* partner: team_await_go */
}

/* Of the ranks of the set: the code, also of a later call, and who is named, and how long it has taken. A subject that
 * waited to be let go has no time. */
static double check(const struct fixture *f, const char *what, uint32_t ranks, int code, int32_t failed_rank,
                    uint64_t since_ns) {
        const struct team_shared *shared = f->team.shared;
        double longest = 0;

        for (uint32_t r = 0; r < RANKS; r++) {
                const struct team_notes *n = &shared->notes[r];
                double ms = (double)(int64_t)(n->at_ns - since_ns) / 1e6;

                if (!(ranks >> r & 1))
                        continue;
                if (n->code != code || n->next_code != code || n->sticky != code ||
                    (failed_rank != ANY && n->failed_rank != failed_rank) || !n->text[0])
                        fail_msg("%s (%s): rank %u got %s (%s), then %s, sticky %s, failed rank %d", what,
                                 kind_names[shared->kind], r, rmx_error_name(n->code), n->text,
                                 rmx_error_name(n->next_code), rmx_error_name(n->sticky), n->failed_rank);
                if (!(r == shared->subject && subject_waits(shared)) && ms > longest)
                        longest = ms;
        }
        return longest;
}

static void check_time(const char *what, double ms) {
        print_message("%s: error after %.1f ms at most\n", what, ms);
        if (ms > BOUND_MS * proc_time_scale())
                fail_msg("%s: %.1f ms is above %.0f ms", what, ms, BOUND_MS * proc_time_scale());
}

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

/* ---- ranks ------------------------------------------------------------------------------------------------------- */
static double kill_one(struct fixture *f, enum kind kind, uint32_t victim) {
        uint64_t killed_ns;

        trial_begin(f, call_until_error, kind, victim);
        killed_ns = clock_now_ns();
        team_kill(&f->team, victim);
        team_end(&f->team, kind_names[kind]);
        return check(f, "a rank killed", TEAM_ALL & ~(UINT32_C(1) << victim), RMX_E_PEER_LOST, (int32_t)victim,
                     killed_ns);
}

static uint32_t rank_of(struct fixture *f, uint32_t node) {
        return node * (RANKS / NODES) + (uint32_t)(proc_random(&f->random) % (RANKS / NODES));
}

static void rank_killed(void **state) {
        struct fixture *f = *state;
        uint32_t rounds = proc_full() ? 10 : 1;
        struct node_snapshot before[NODES];
        double longest = 0;

        kill_one(f, BIG_ONES, RANKS - 1);
        nodes_snapshot(f->node, NODES, before);
        for (uint32_t i = 0; i < rounds * KINDS * NODES; i++) {
                double ms = kill_one(f, i / NODES % KINDS, rank_of(f, i % NODES));

                longest = ms > longest ? ms : longest;
        }
        check_time("a rank killed", longest);
        assert_serves(f);
        nodes_assert_as_before(f->node, NODES, before);
        nodes_stop(f->node, NODES);
}

static void aborted(void **state) {
        struct fixture *f = *state;

        for (uint32_t i = 0; i < (RECEIVING + 1) * NODES; i++) {
                uint32_t subject = rank_of(f, i % NODES);
                uint64_t begin_ns;

                trial_begin(f, abort_one, i / NODES, subject);
                begin_ns = clock_now_ns();
                let_go(f);
                team_end(&f->team, "aborted");
                check_time("aborted", check(f, "aborted", TEAM_ALL, RMX_E_ABORTED, (int32_t)subject, begin_ns));
        }
        assert_serves(f);
        nodes_stop(f->node, NODES);
}

/* ---- daemons and executors --------------------------------------------------------------------------------------- */
static bool log_says(const struct node *node, const char *text) {
        FILE *file = fopen(node->log, "re");
        bool found = false;
        char line[1024];

        while (file && !found && fgets(line, sizeof(line), file))
                found = strstr(line, text) != NULL;
        if (file)
                fclose(file);
        return found;
}

static void daemon_killed(void **state) {
        struct fixture *f = *state;
        static const enum kind kinds[] = {BIG_ONES, WAITING};

        for (uint32_t i = 0; i < COUNT_OF(kinds); i++) {
                struct node_pids pids = node_pids(&f->node[1]);
                uint64_t killed_ns;
                double ms;

                trial_begin(f, call_until_error, kinds[i], 1);
                killed_ns = clock_now_ns();
                kill(pids.daemon, SIGKILL);
                team_await_step(&f->team, NOTED, team_ranks_of(&f->team, 0) & ~(subject_waits(f->team.shared) << 1),
                                10000);
                let_go(f);
                team_end(&f->team, "railmuxd killed");
                ms = check(f, "railmuxd killed", team_ranks_of(&f->team, 0), RMX_E_PEER_LOST, RANKS / NODES, killed_ns);
                check_time("railmuxd killed, the other node", ms);
                assert_true(log_says(&f->node[0], "by rank 3 on node "));
                assert_false(log_says(&f->node[0], "(pid 0)"));
                ms = check(f, "railmuxd killed", team_ranks_of(&f->team, 1), RMX_E_DAEMON_LOST, ANY, killed_ns);
                print_message("its own ranks: after %.1f ms\n", ms);
                node_await_end(&f->node[1], pids.executor);
                node_start(&f->node[1], "", false);
                assert_serves(f);
        }
        nodes_stop(f->node, NODES);
}

static void daemon_stopped(void **state) {
        struct fixture *f = *state;
        struct node_pids pids[NODES];
        uint64_t stopped_ns;

        for (uint32_t i = 0; i < NODES; i++)
                pids[i] = node_pids(&f->node[i]);
        trial_begin(f, call_until_error, BIG_ONES, 0);
        stopped_ns = clock_now_ns();
        kill(pids[1].daemon, SIGSTOP);
        team_await_step(&f->team, NOTED, team_ranks_of(&f->team, 0), 10000);
        kill(pids[1].daemon, SIGCONT);
        team_end(&f->team, "railmuxd stopped");
        check_time("railmuxd stopped, the other node", check(f, "railmuxd stopped", team_ranks_of(&f->team, 0),
                                                             RMX_E_PEER_LOST, RANKS / NODES, stopped_ns));
        check(f, "railmuxd stopped", team_ranks_of(&f->team, 1), RMX_E_PEER_LOST, 0, stopped_ns);
        assert_serves(f);
        for (uint32_t i = 0; i < NODES; i++) {
                assert_int_equal(node_pids(&f->node[i]).daemon, pids[i].daemon);
                assert_int_equal(node_pids(&f->node[i]).executor, pids[i].executor);
        }
        nodes_stop(f->node, NODES);
}

static void daemon_restarted(void **state) {
        struct fixture *f = *state;
        static const enum kind kinds[] = {BIG_ONES, WAITING};

        for (uint32_t i = 0; i < COUNT_OF(kinds); i++) {
                struct node_pids pids = node_pids(&f->node[1]), now;
                uint64_t killed_ns;
                double ms;

                trial_begin(f, call_until_error, kinds[i], 1);
                killed_ns = clock_now_ns();
                kill(pids.daemon, SIGKILL);
                now = node_await_ready(&f->node[1], pids.daemon, 0, 20000);
                let_go(f);
                team_end(&f->team, "railmuxd restarted");
                ms = check(f, "railmuxd restarted", team_ranks_of(&f->team, 0), RMX_E_PEER_LOST, RANKS / NODES,
                           killed_ns);
                check_time("railmuxd restarted, the other node", ms);
                ms = check(f, "railmuxd restarted", team_ranks_of(&f->team, 1), RMX_E_LOST, -1, killed_ns);
                print_message("its own ranks: after %.1f ms\n", ms);
                assert_int_equal(now.executor, pids.executor);
                assert_serves(f);
        }
        nodes_stop(f->node, NODES);
}

static void executor_killed(void **state) {
        struct fixture *f = *state;

        for (uint32_t i = 0; i < 2 * NODES; i++) {
                struct node_pids pids = node_pids(&f->node[i % NODES]);
                uint64_t killed_ns;
                double ms;

                trial_begin(f, call_until_error, i < NODES ? BIG_ONES : WAITING, 1);
                killed_ns = clock_now_ns();
                kill(pids.executor, SIGKILL);
                node_await_ready(&f->node[i % NODES], 0, pids.executor, 20000);
                let_go(f);
                team_end(&f->team, "executor killed");
                ms = check(f, "executor killed", TEAM_ALL, RMX_E_LOST, -1, killed_ns);
                print_message("executor of node %u killed: error after %.1f ms at most\n", i % NODES, ms);
                assert_int_equal(node_pids(&f->node[i % NODES]).daemon, pids.daemon);
                assert_serves(f);
        }
        nodes_stop(f->node, NODES);
}

/* As planned is no better for a communicator over nodes, and the operator is told so: its ranks have gone by then. */
static void executor_drained(void **state) {
        struct fixture *f = *state;
        const char *argv[] = {node_program("railmuxctl"), "--control", f->node[0].control, "drain", "host", NULL};
        char *output = malloc(PROC_OUTPUT_MAX);

        assert_non_null(output);
        trial_begin(f, call_until_error, BIG_ONES, 1);
        assert_int_equal(proc_run(argv, 40000, output), 1);
        if (!strstr(output, "; 0 of 1 communicators go on\n"))
                fail_msg("drained: %s", output);
        team_end(&f->team, "executor drained");
        check(f, "executor drained", TEAM_ALL, RMX_E_LOST, -1, clock_now_ns());
        for (uint32_t r = 0; r < RANKS; r++)
                if (!strstr(f->team.shared->notes[r].text, "the communicator is over, on every rank"))
                        fail_msg("rank %u: %s", r, f->team.shared->notes[r].text);
        assert_serves(f);
        nodes_stop(f->node, NODES);
        free(output);
}

/* ---- calls that differ ------------------------------------------------------------------------------------------- */
enum wrong {
        WRONG_OPERATION,
        WRONG_TYPE,
        WRONG_REDOP,
        WRONG_COUNT,
        WRONG_LARGE_COUNT,
        WRONG_ROOT,
        WRONG_SEND_COUNT,
        WRONGS,
};
static const char *const wrong_names[] = {"operation", "type", "redop", "count", "large count", "root", "send count"};

static int call_wrong(struct team_rank *rank, struct rmx_comm *comm, float *memory) {
        bool culprit = rank->rank == rank->shared->subject;
        uint32_t friend = rank->n_ranks - 1 - rank->shared->subject; /* on the other node */

        switch (rank->shared->kind) {
        case WRONG_OPERATION:
                return culprit ? rmx_barrier(comm, NULL)
                               : rmx_all_reduce(comm, memory, memory, SMALL, RMX_FLOAT32, RMX_SUM, NULL);
        case WRONG_TYPE:
                return rmx_all_reduce(comm, memory, memory, SMALL, culprit ? RMX_INT32 : RMX_FLOAT32, RMX_SUM, NULL);
        case WRONG_REDOP:
                return rmx_all_reduce(comm, memory, memory, SMALL, RMX_FLOAT32, culprit ? RMX_MAX : RMX_SUM, NULL);
        case WRONG_COUNT:
                return rmx_all_reduce(comm, memory, memory, SMALL + culprit, RMX_FLOAT32, RMX_SUM, NULL);
        case WRONG_LARGE_COUNT:
                return rmx_all_reduce(comm, memory, memory, BIG - 4096 * culprit, RMX_FLOAT32, RMX_SUM, NULL);
        case WRONG_ROOT:
                return rmx_broadcast(comm, memory, memory, SMALL, RMX_FLOAT32, culprit, NULL);
        default:
                return culprit                ? rmx_send(comm, memory, SMALL + 1, RMX_FLOAT32, friend, NULL)
                       : rank->rank == friend ? rmx_recv(comm, memory, SMALL, RMX_FLOAT32, rank->shared->subject, NULL)
                                              : rmx_barrier(comm, NULL);
        }
}

static void call_wrongly(struct team_rank *rank) {
        float *memory = team_memory(rank, BIG * sizeof(*memory));
        struct rmx_comm *comm = team_join(rank, 0);

        team_must(rank, rmx_barrier(comm, NULL), "rmx_barrier");
        pthread_barrier_wait(&rank->shared->barrier); /* all nodes are done with that one */
        finish(rank, call_wrong(rank, comm, memory), comm);
}

static void mismatched(void **state) {
        struct fixture *f = *state;

        for (uint32_t i = 0; i < WRONGS * NODES; i++) {
                uint32_t subject = rank_of(f, i % NODES);
                uint64_t begin_ns = clock_now_ns();

                f->team.shared->kind = i / NODES;
                f->team.shared->subject = subject;
                team_start(&f->team, call_wrongly);
                team_end(&f->team, wrong_names[i / NODES]);
                for (uint32_t r = 0; r < RANKS; r++) {
                        const struct team_notes *n = &f->team.shared->notes[r];

                        /* What is done before chunks of the wrong call come is done: a root needs none. */
                        if ((n->code != RMX_E_MISMATCH && !(i / NODES == WRONG_ROOT && n->code == RMX_OK)) ||
                            n->next_code != RMX_E_MISMATCH || n->sticky != RMX_E_MISMATCH)
                                fail_msg("wrong %s at rank %u: rank %u got %s (%s), then %s, sticky %s, failed rank %d",
                                         wrong_names[i / NODES], subject, r, rmx_error_name(n->code), n->text,
                                         rmx_error_name(n->next_code), rmx_error_name(n->sticky), n->failed_rank);
                }
                print_message("wrong %s at rank %u: %.1f ms; rank 0 (%d): %s; rank %u (%d): %s\n",
                              wrong_names[i / NODES], subject, (double)(clock_now_ns() - begin_ns) / 1e6,
                              f->team.shared->notes[0].failed_rank, f->team.shared->notes[0].text, RANKS - 1,
                              f->team.shared->notes[RANKS - 1].failed_rank, f->team.shared->notes[RANKS - 1].text);
        }
        assert_serves(f);
        nodes_stop(f->node, NODES);
}

/* ------------------------------------------------------------------------------------------------------------------ */
static int setup_with(void **state, bool keep) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        *state = f;
        f->random = proc_seed();
        nodes_start(f->node, NODES, "nodes-loss", keep ? ~1u : 0);
        team_init(&f->team, f->node, NODES, RANKS);
        return 0;
}

static int setup(void **state) {
        return setup_with(state, false);
}

static int setup_kept(void **state) {
        return setup_with(state, true);
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
                cmocka_unit_test_setup_teardown(rank_killed, setup, teardown),
                cmocka_unit_test_setup_teardown(aborted, setup, teardown),
                cmocka_unit_test_setup_teardown(daemon_killed, setup, teardown),
                cmocka_unit_test_setup_teardown(daemon_stopped, setup, teardown),
                cmocka_unit_test_setup_teardown(daemon_restarted, setup_kept, teardown),
                cmocka_unit_test_setup_teardown(executor_killed, setup, teardown),
                cmocka_unit_test_setup_teardown(executor_drained, setup, teardown),
                cmocka_unit_test_setup_teardown(mismatched, setup, teardown),
        };

        return cmocka_run_group_tests_name("nodes_loss", tests, NULL, NULL);
}
