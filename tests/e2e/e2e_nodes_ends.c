/* SPDX-License-Identifier: MIT */
/*
 * What is left of communicators over two nodes when one of them has no rank in it any more: nothing, however it came to
 * that. And ranks of one node that use an id of the other.
 */
#include <railmux/railmux.h>
#include <setjmp.h>
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

#define NODES 2u
#define COUNT 1000u

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

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));
        char name[32];

        assert_non_null(f);
        *state = f;
        for (uint32_t i = 0; i < NODES; i++) {
                f->node[i].gpus = 4;
                f->node[i].listens = true;
                snprintf(name, sizeof(name), "nodes-ends-%c", (int)('a' + i));
                node_start(&f->node[i], name, false);
        }
        return 0;
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
                cmocka_unit_test_setup_teardown(left_then_killed, setup, teardown),
                cmocka_unit_test_setup_teardown(elsewhere, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
