/* SPDX-License-Identifier: MIT */
/*
 * Ids that the ranks of a communicator over three nodes make alike: they are the same everywhere, and ranks that are
 * left meet with them, whoever has gone.
 */
#include <errno.h>
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

#define NODES 3u
#define RANKS 8u /* 3, 3 and 2 on the nodes */

struct fixture {
        struct node node[NODES];
        struct team team;
};

/* ---- scripts ----------------------------------------------------------------------------------------------------- */
static void make_ids(struct team_rank *rank) {
        struct rmx_comm *parent = team_join(rank, 0), *again;
        static struct rmx_id ids[RANKS];
        struct rmx_id id, other;
        struct rmx_id *memory = team_memory(rank, sizeof(ids) + sizeof(id));

        for (uint64_t number = 0; number < 4; number++) {
                team_must(rank, rmx_comm_id(parent, number << 62 | number, &id), "rmx_comm_id");
                team_must(rank, rmx_comm_id(parent, number << 62 | number, &other), "rmx_comm_id");
                if (memcmp(&id, &other, sizeof(id)) != 0)
                        team_wrong(rank, "the second time it is another id");
                memory[0] = id;
                team_must(rank, rmx_all_gather(parent, memory, memory + 1, sizeof(id), RMX_UINT8, NULL),
                          "rmx_all_gather");
                for (uint32_t r = 0; r < rank->n_ranks; r++)
                        if (memcmp(&id, &memory[1 + r], sizeof(id)) != 0)
                                team_wrong(rank, "another rank has another id");
                if (memcmp(&id, &ids[0], sizeof(id)) == 0)
                        team_wrong(rank, "another number has the same id");
                ids[0] = id;
                team_must(rank, rmx_comm_create(rank->session, &id, rank->n_ranks, rank->rank, NULL, &again),
                          "rmx_comm_create");
                team_use(rank, again, (uint32_t)number);
                team_must(rank, rmx_comm_destroy(again), "rmx_comm_destroy");
        }
        team_must(rank, rmx_comm_destroy(parent), "rmx_comm_destroy");
}

static void meet_again(struct team_rank *rank, struct rmx_comm *parent) {
        uint32_t gone = rank->shared->other, left = ~gone & ((1u << rank->n_ranks) - 1);
        uint32_t n = (uint32_t)__builtin_popcount(left),
                 as = (uint32_t)__builtin_popcount(left & ((1u << rank->rank) - 1));
        struct rmx_comm *rest;
        struct rmx_id id, used;
        int code;

        team_must(rank, rmx_comm_id(parent, 5, &id), "rmx_comm_id");
        do { /* as rmx_comm_id says */
                used = id;
                code = rmx_comm_create(rank->session, &id, n, as, NULL, &rest);
                if (code == RMX_E_PEER_LOST)
                        team_must(rank, rmx_comm_id(parent, 5, &id), "rmx_comm_id, again");
        } while (code == RMX_E_PEER_LOST && memcmp(&id, &used, sizeof(id)) != 0);
        team_must(rank, code, "the ranks that are left");
        team_use(rank, rest, 4);
        team_must(rank, rmx_comm_destroy(rest), "rmx_comm_destroy");
}

/* Those that are left meet as soon as each has heard, whoever has not yet. */
static void lose_and_meet(struct team_rank *rank) {
        struct rmx_comm *parent = team_join(rank, 0);
        int code;

        team_must(rank, rmx_barrier(parent, NULL), "rmx_barrier");
        team_step(rank);
        if (rank->rank == rank->shared->subject)
                team_await_go(rank, 2); /* never: it is killed */
        do
                code = rmx_barrier(parent, NULL);
        while (!code);
        team_note(rank, code, parent);
        if (code == RMX_E_DAEMON_LOST)
                return;
        meet_again(rank, parent);
        (void)rmx_comm_destroy(parent);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void ids(void **state) {
        struct node_snapshot before[NODES];
        struct fixture *f = *state;

        team_run(&f->team, make_ids, 0, "ids");
        nodes_snapshot(f->node, NODES, before);
        team_run(&f->team, make_ids, 0, "ids");
        for (uint32_t victim = 0; victim < RANKS; victim++) {
                f->team.shared->subject = victim;
                f->team.shared->other = UINT32_C(1) << victim;
                team_start(&f->team, lose_and_meet);
                team_await_step(&f->team, 1, TEAM_ALL, 20000);
                team_kill(&f->team, victim);
                team_end(&f->team, "a rank has gone");
        }
        nodes_assert_as_before(f->node, NODES, before);
        nodes_stop(f->node, NODES);
}

/* The node by which ids are made is lost, or another one. */
static void ids_without_a_node(void **state) {
        struct fixture *f = *state;

        for (uint32_t i = 0; i < (proc_full() ? 20 : 2); i++) {
                uint32_t victim = i % NODES;
                struct node_pids pids = node_pids(&f->node[victim]);

                f->team.shared->subject = RANKS;
                f->team.shared->other = team_ranks_of(&f->team, victim);
                team_start(&f->team, lose_and_meet);
                team_await_step(&f->team, 1, TEAM_ALL, 20000);
                kill(pids.daemon, SIGKILL);
                team_end(&f->team, "a node has gone");
                node_await_end(&f->node[victim], pids.executor);
                node_start(&f->node[victim], "", false);
        }
        nodes_stop(f->node, NODES);
}

/* ------------------------------------------------------------------------------------------------------------------ */
static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        *state = f;
        nodes_start(f->node, NODES, "nodes-ids", 0);
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
                cmocka_unit_test_setup_teardown(ids, setup, teardown),
                cmocka_unit_test_setup_teardown(ids_without_a_node, setup, teardown),
        };

        return cmocka_run_group_tests_name("nodes_ids", tests, NULL, NULL);
}
