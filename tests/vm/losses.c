/* SPDX-License-Identifier: MIT */
/*
 * What no other rail can carry is lost: a node that no cable reaches any more, and a node that dies, with and without a
 * sign. Every rank that is left gets the same typed error, on a call that it waits in and on the next one; and when the
 * node is back, new communicators work.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "tests/cmocka_all.h"
#include "tests/e2e/proc.h"
#include "tests/vm/fleet.h"
#include "tests/vm/scenario.h"
#include "util/clock.h"

#define ELEMENTS 65536u
#define STEPS    3u
#define NOTED    (UINT32_C(1) << 24) /* a step: the script has noted its error */
#define START_MS 30000u
#define ERROR_MS 20000u
#define MEND_MS  30000u
/* From the fault to the last rank's error. What counts is the figure that is printed: emulated processors are slow. */
#define BOUND_RAILS_MS 2000.0
#define BOUND_NODE_MS  2000.0

/* Large calls, so that somebody always waits for the others' data. */
static void call_until_error(struct team_rank *rank) {
        float *memory = team_memory(rank, ELEMENTS * sizeof(*memory));
        struct rmx_comm *comm = team_join(rank, 0);
        int code;

        do {
                team_step(rank);
                code = rmx_all_reduce(comm, memory, memory, ELEMENTS, RMX_FLOAT32, RMX_MAX, NULL);
        } while (code == RMX_OK);
        team_note(rank, code, comm);
        rank->notes->next_code = rmx_barrier(comm, NULL);
        rank->notes->sticky = rmx_comm_error(comm);
        atomic_fetch_add(&rank->notes->step, NOTED); /* partner: team_await_step */
        (void)rmx_comm_destroy(comm);
}

/* Returns when the last one was gone. */
static uint64_t pull_cables(const struct fleet *fleet, uint32_t node, const char *action) {
        uint64_t at_ns = 0;

        for (uint32_t rail = 0; rail < fleet->n_rails; rail++)
                at_ns = fleet_link(fleet, node, rail, action, NULL);
        return at_ns;
}

static void signal_node(struct fleet *fleet, uint32_t node, const struct node_pids *pids, int number) {
        (void)kill(pids->daemon, number);
        (void)kill(pids->executor, number);
        for (uint32_t r = 0; r < fleet->team.n_ranks; r++)
                if (team_node(&fleet->team, r) == node && fleet->team.pid[r] > 0)
                        (void)kill(fleet->team.pid[r], number);
}

/* The node's processes have been sent SIGKILL. */
static void bury_node(struct fleet *fleet, uint32_t node, const struct node_pids *pids) {
        for (uint32_t r = 0; r < fleet->team.n_ranks; r++)
                if (team_node(&fleet->team, r) == node)
                        team_kill(&fleet->team, r);
        node_await_end(&fleet->node[node], pids->executor);
}

static void check(struct fleet *fleet, uint32_t ranks, uint64_t since_ns, double bound_ms) {
        double longest = 0;

        for (uint32_t r = 0; r < fleet->team.n_ranks; r++) {
                const struct team_notes *n = &fleet->team.shared->notes[r];
                double ms = (double)(int64_t)(n->at_ns - since_ns) / 1e6;

                if (!(ranks >> r & 1))
                        continue;
                if (n->code != RMX_E_PEER_LOST || n->next_code != n->code || n->sticky != n->code || !n->text[0])
                        fail_msg("rank %u got %s (%s), then %s, sticky %s", r, rmx_error_name(n->code), n->text,
                                 rmx_error_name(n->next_code), rmx_error_name(n->sticky));
                if (ms < 0)
                        fail_msg("rank %u got its error %.0f ms before the fault", r, -ms);
                longest = ms > longest ? ms : longest;
        }
        print_message("typed error on all ranks after %.0f ms (bound %.0f ms)\n", longest, bound_ms);
        if (longest > bound_ms)
                fail_msg("the last error came after %.0f ms", longest);
}

static bool perf_succeeds(void *argument) {
        const struct fleet *fleet = argument;
        char sockets[1024], ranks[16];
        const char *argv[] = {node_program("railmux-perf"),
                              "all_reduce",
                              "--ranks",
                              ranks,
                              "-e",
                              "4K",
                              "-f",
                              "512",
                              "-n",
                              "2",
                              "-c",
                              "2",
                              "--socket",
                              sockets,
                              NULL};

        snprintf(ranks, sizeof(ranks), "%u", fleet->n_nodes);
        fleet_sockets(fleet, (1u << fleet->n_nodes) - 1, sockets);
        return proc_run_quiet(argv, MEND_MS, NULL) == 0;
}

void losses_run(struct fleet *fleet, const struct scenario *scenario) {
        bool dies = scenario->kind == LOSS_KILL || scenario->kind == LOSS_SILENT;
        uint32_t victim = dies ? fleet->n_nodes - 1 : 0, ranks = TEAM_ALL;
        struct node_pids pids;
        uint64_t since_ns = 0;

        fleet_start(fleet);
        team_init(&fleet->team, fleet->node, fleet->n_nodes, scenario->n_ranks);
        team_start(&fleet->team, call_until_error);
        team_await_step(&fleet->team, STEPS, TEAM_ALL, (uint32_t)(START_MS * proc_time_scale()));
        pids = node_pids(&fleet->node[victim]);
        if (dies)
                ranks &= ~team_ranks_of(&fleet->team, victim);
        switch ((enum loss)scenario->kind) {
        case LOSS_RAILS:
                since_ns = pull_cables(fleet, victim, "down");
                break;
        case LOSS_DROP:
                since_ns = pull_cables(fleet, victim, "drop");
                break;
        case LOSS_KILL:
                since_ns = clock_now_ns();
                signal_node(fleet, victim, &pids, SIGKILL);
                break;
        case LOSS_SILENT:
                since_ns = clock_now_ns();
                signal_node(fleet, victim, &pids, SIGSTOP);
                break;
        }
        team_await_step(&fleet->team, NOTED, ranks, (uint32_t)(ERROR_MS * proc_time_scale()));
        if (scenario->kind == LOSS_SILENT)
                signal_node(fleet, victim, &pids, SIGKILL);
        if (dies)
                bury_node(fleet, victim, &pids);
        team_end(&fleet->team, fleet->name);
        check(fleet, ranks, since_ns, proc_time_scale() * (dies ? BOUND_NODE_MS : BOUND_RAILS_MS));
        for (uint32_t rail = 0; !dies && rail < fleet->n_rails; rail++)
                (void)fleet_link(fleet, victim, rail, scenario->kind == LOSS_RAILS ? "up" : "ok", NULL);
        if (dies)
                fleet_start_node(fleet, victim, fleet->security);
        if (!proc_await(perf_succeeds, fleet, (uint32_t)(MEND_MS * proc_time_scale())))
                fail_msg("no new communicator works");
        fleet_stop(fleet);
}
