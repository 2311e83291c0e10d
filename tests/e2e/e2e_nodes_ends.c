/* SPDX-License-Identifier: MIT */
/*
 * What is left of communicators over two nodes when one of them has no rank in it any more: nothing, however it came to
 * that. And ranks of one node that use an id of the other.
 */
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

#define NODES 2u
#define COUNT 1000u
#define BIG   (1u << 18) /* elements: 1 MiB */

struct fixture {
        struct node node[NODES];
        struct team team, ids;
};

/* ---- the scripts ------------------------------------------------------------------------------------------------- */
static int reduce(struct team_rank *rank, struct rmx_comm *comm, int32_t *memory) {
        int r;

        for (uint32_t i = 0; i < COUNT; i++)
                memory[i] = (int32_t)(rank->rank * 1000 + i);
        r = rmx_all_reduce(comm, memory, memory, COUNT, RMX_INT32, RMX_SUM, NULL);
        for (uint32_t i = 0; !r && i < COUNT; i++)
                if (memory[i] != (int32_t)(1000 * (rank->n_ranks * (rank->n_ranks - 1) / 2) + rank->n_ranks * i))
                        team_wrong(rank, "a wrong element");
        return r;
}

/* Until it fails. */
static void reduce_on(struct team_rank *rank) {
        int32_t *memory = team_memory(rank, COUNT * sizeof(*memory));
        struct rmx_comm *comm = team_join(rank, 0);
        int r = RMX_OK;

        while (!r) {
                r = reduce(rank, comm, memory);
                team_step(rank);
        }
        team_note(rank, r, comm);
        team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
}

/* The subject leaves at once, the others when they are told. */
static void leave_early(struct team_rank *rank) {
        int32_t *memory = team_memory(rank, COUNT * sizeof(*memory));
        struct rmx_comm *comm = team_join(rank, 0);

        team_must(rank, reduce(rank, comm, memory), "all_reduce");
        team_step(rank);
        if (rank->rank != rank->shared->subject)
                team_await_go(rank, 1);
        team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
}

/* To receive nothing takes no word from the sender: the subject may have left before the other one sends. */
static void exchange_nothing(struct team_rank *rank) {
        struct rmx_comm *comm = team_join(rank, 0);
        bool receives = rank->rank == rank->shared->subject;

        if (!receives)
                team_await_go(rank, 1);
        team_must(rank,
                  receives ? rmx_recv(comm, NULL, 0, RMX_INT32, !rank->rank, NULL)
                           : rmx_send(comm, NULL, 0, RMX_INT32, !rank->rank, NULL),
                  receives ? "rmx_recv" : "rmx_send");
        team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
        team_step(rank);
}

/* Calls when its node's daemon and then the executor have been replaced. */
static void call_after_all(struct team_rank *rank) {
        struct rmx_comm *comm = team_join(rank, 0);
        struct rmx_id id;

        team_must(rank, rmx_barrier(comm, NULL), "rmx_barrier");
        team_step(rank);
        team_await_go(rank, 1);
        team_note(rank, rmx_barrier(comm, NULL), comm);
        rank->notes->next_code = rmx_send(comm, NULL, 0, RMX_INT32, !rank->rank, NULL);
        if (rmx_comm_id(comm, 1, &id) != (rank->rank == 1 ? RMX_E_LOST : RMX_OK))
                team_wrong(rank, "the code of rmx_comm_id");
        team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
}

/* Ends with its last call, as programs do that trust in the system to clean up. */
static void exit_at_once(struct team_rank *rank) {
        struct rmx_comm *comm = team_join(rank, 0);
        int32_t *memory = team_memory(rank, BIG * sizeof(*memory));
        uint32_t root = rank->shared->subject;

        for (uint32_t i = 0; i < BIG; i++)
                memory[i] = rank->rank == root ? (int32_t)(i + root) : -1;
        team_must(rank, rmx_broadcast(comm, memory, memory, BIG, RMX_INT32, root, NULL), "rmx_broadcast");
        for (uint32_t i = 0; rank->rank != root && i < BIG; i++)
                if (memory[i] != (int32_t)(i + root))
                        team_wrong(rank, "a wrong element");
        _exit(0);
}

static void get_id(struct team_rank *rank) {
        (void)rank; /* team_start has made them */
}

static void use_given(struct team_rank *rank) {
        int32_t *memory = team_memory(rank, COUNT * sizeof(*memory));
        struct rmx_comm *comm;

        team_must(rank, rmx_comm_create(rank->session, &rank->shared->given, rank->n_ranks, rank->rank, NULL, &comm),
                  "rmx_comm_create");
        for (uint32_t i = 0; i < 20; i++)
                team_must(rank, reduce(rank, comm, memory), "all_reduce");
        team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */
static bool nothing_left(void *argument) {
        struct fixture *f = argument;

        for (uint32_t i = 0; i < NODES; i++) {
                struct node_pids pids = node_pids(&f->node[i]);

                if (!pids.ready || pids.comms || pids.sessions)
                        return false;
        }
        return true;
}

static void assert_nothing_left(struct fixture *f, const char *what) {
        if (!proc_await(nothing_left, f, 5000))
                fail_msg("%s: communicators %u and %u are left", what, node_pids(&f->node[0]).comms,
                         node_pids(&f->node[1]).comms);
}

/* One rank on each node; that of one is killed, and so nobody there is left to be told. */
static void the_only_rank_killed(void **state) {
        struct fixture *f = *state;

        team_init(&f->team, f->node, NODES, NODES);
        for (uint32_t i = 0; i < 6; i++) {
                uint32_t subject = i % NODES;

                team_start(&f->team, reduce_on);
                team_await_step(&f->team, 3, 3, 10000);
                team_kill(&f->team, subject);
                team_end(&f->team, "the only rank killed");
                if (f->team.shared->notes[!subject].code != RMX_E_PEER_LOST)
                        fail_msg("the other rank got %s (%s)", rmx_error_name(f->team.shared->notes[!subject].code),
                                 f->team.shared->notes[!subject].text);
                assert_nothing_left(f, "the only rank killed");
        }
}

/* Everybody ends without a word when its last call has returned: that one succeeds for all. */
static void exits(void **state) {
        struct fixture *f = *state;

        team_init(&f->team, f->node, NODES, 4);
        for (uint32_t i = 0; i < 20; i++) {
                f->team.shared->subject = i % 4;
                team_start(&f->team, exit_at_once);
                team_end(&f->team, "exits");
        }
        assert_nothing_left(f, "exits");
}

/* The rank of one node has left; then the other one's dies, or leaves too. */
static void left_then_killed(void **state) {
        struct fixture *f = *state;

        team_init(&f->team, f->node, NODES, NODES);
        for (uint32_t i = 0; i < 4; i++) {
                uint32_t subject = i % NODES;

                f->team.shared->subject = subject;
                atomic_store(&f->team.shared->go, 0); /* the ranks begin later */
                team_start(&f->team, leave_early);
                team_await_step(&f->team, 1, 3, 10000);
                if (i / NODES == 0)
                        team_kill(&f->team, !subject);
                else
                        atomic_store(&f->team.shared->go, 1); /* partner: team_await_go */
                team_end(&f->team, "left, then killed");
                assert_nothing_left(f, "left, then killed");
        }
}

/* All ranks are on one node, the id is the other's. */
static void elsewhere(void **state) {
        struct fixture *f = *state;

        team_init(&f->ids, &f->node[0], 1, 1);
        team_init(&f->team, &f->node[1], 1, 3);
        for (uint32_t i = 0; i < 3; i++) {
                team_start(&f->ids, get_id);
                team_end(&f->ids, "making ids");
                f->team.shared->given = f->ids.shared->id[0];
                team_start(&f->team, use_given);
                team_end(&f->team, "an id of another node");
                assert_nothing_left(f, "an id of another node");
        }
}

/* Does the other rank's node know that the subject has left? */
static bool knows_it_left(void *argument) {
        const struct fixture *f = argument;
        uint32_t subject = f->team.shared->subject;
        json_t *root = node_query(&f->node[!subject], "comms"), *row, *member;
        bool left = false;
        size_t i, k;

        json_array_foreach(json_object_get(root, "comms"), i, row) {
                json_array_foreach(json_object_get(row, "members"), k, member) {
                        left = left || (json_integer_value(json_object_get(member, "rank")) == subject &&
                                        json_is_true(json_object_get(member, "left")));
                }
        }
        json_decref(root);
        return left;
}

static void nothing_exchanged(void **state) {
        struct fixture *f = *state;

        team_init(&f->team, f->node, NODES, NODES);
        for (uint32_t i = 0; i < 2 * NODES; i++) {
                f->team.shared->subject = i % NODES;
                team_start(&f->team, exchange_nothing);
                team_await_step(&f->team, 1, UINT32_C(1) << f->team.shared->subject, 10000);
                if (!proc_await(knows_it_left, f, 5000))
                        fail_msg("the other node does not hear that rank %u has left", f->team.shared->subject);
                atomic_store(&f->team.shared->go, 1); /* partner: team_await_go */
                team_end(&f->team, "nothing exchanged");
                assert_nothing_left(f, "nothing exchanged");
        }
}

/* Neither the new daemon nor the new executor has ever served the communicator, which is lost. */
static void both_replaced(void **state) {
        struct fixture *f = *state;
        struct node_pids pids;

        team_init(&f->team, f->node, NODES, NODES);
        team_start(&f->team, call_after_all);
        team_await_step(&f->team, 1, 3, 10000);
        pids = node_pids(&f->node[1]);
        kill(pids.daemon, SIGKILL);
        node_await_ready(&f->node[1], pids.daemon, 0, 20000);
        kill(pids.executor, SIGKILL);
        node_await_ready(&f->node[1], 0, pids.executor, 20000);
        atomic_store(&f->team.shared->go, 1); /* partner: team_await_go */
        team_end(&f->team, "both replaced");
        for (uint32_t r = 0; r < NODES; r++) {
                const struct team_notes *n = &f->team.shared->notes[r];
                int code = r == 1 ? RMX_E_LOST : RMX_E_PEER_LOST;

                if (n->code != code || n->next_code != code || n->sticky != code)
                        fail_msg("rank %u got %s (%s), then %s, sticky %s", r, rmx_error_name(n->code), n->text,
                                 rmx_error_name(n->next_code), rmx_error_name(n->sticky));
        }
        assert_nothing_left(f, "both replaced");
}

static int setup_with(void **state, bool keep) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        *state = f;
        nodes_start(f->node, NODES, "nodes-ends", keep ? 1u << 1 : 0);
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
        team_cleanup(&f->ids);
        nodes_cleanup(f->node, NODES);
        free(f);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(the_only_rank_killed, setup, teardown),
                cmocka_unit_test_setup_teardown(exits, setup, teardown),
                cmocka_unit_test_setup_teardown(left_then_killed, setup, teardown),
                cmocka_unit_test_setup_teardown(elsewhere, setup, teardown),
                cmocka_unit_test_setup_teardown(nothing_exchanged, setup, teardown),
                cmocka_unit_test_setup_teardown(both_replaced, setup_kept, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
