/* SPDX-License-Identifier: MIT */
/*
 * Rail 0 of node a is broken (in one scenario all of its rails are) while ranks of all nodes run a verified load, and
 * mended again. The load must not notice more than a pause. What an operator is told has to follow: its routes are not
 * up while it is broken, those of the other rails are; and when it is mended they are up, and carry data.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/cmocka_all.h"
#include "tests/e2e/proc.h"
#include "tests/vm/fleet.h"
#include "tests/vm/scenario.h"
#include "tests/vm/traffic.h"

#define ROUND     8u /* steps of the load: every kind once */
#define PAUSE_MS  2000.0
#define NOTICE_MS 10000u
#define MEND_MS   30000u
#define CARRY     (1u << 20)
#define FLAPS     4u

#define LOSS_ROUNDS 10u
#define DELAY_MS    5.0 /* each way */

#define STALL_MS      500.0 /* a call that waits for longer is reported with this word; */
#define STALL_WORD    " has waited "
#define REPORT_MS     1000.0 /* one that has ended meanwhile perhaps not, and a pause is more than the call */
#define STILL_LOST_MS 20000u /* nobody is given up within NOTICE_MS */

/* 24 processes, and soft-RoCE of 32 devices, on two emulated processors: a beat that is late says nothing there. */
#define CROWD          8u /* nodes */
#define CROWD_LOST_MS  2500u
#define CROWD_TIMEOUT  16u /* 268 ms, six times */
#define CROWD_PAUSE_MS 6000.0
#define CROWD_SLOWER   4u /* some 30 KB a second go over each of their rails */

/* Whoever talks to node a over rail 0 knows. With more than two nodes the others' routes among them are well. */
static void await_noticed(const struct fleet *fleet) {
        fleet_await_routes(fleet, 0, 0, false, NOTICE_MS);
        if (fleet->n_nodes == 2)
                fleet_await_routes(fleet, 1, 0, false, NOTICE_MS);
        for (uint32_t rail = 1; rail < fleet->n_rails; rail++)
                fleet_await_routes(fleet, 0, rail, true, NOTICE_MS);
}

static void await_mended(const struct fleet *fleet) {
        for (uint32_t node = 0; node < fleet->n_nodes; node++)
                for (uint32_t rail = 0; rail < fleet->n_rails; rail++)
                        fleet_await_routes(fleet, node, rail, true, MEND_MS);
        for (uint32_t rail = 0; rail < fleet->n_rails; rail++)
                fleet_await_bytes(fleet, 0, rail, CARRY, fleet->n_nodes >= CROWD ? CROWD_SLOWER * MEND_MS : MEND_MS);
}

static bool stall_is_reported(void *argument) {
        const struct fleet *fleet = argument;

        for (uint32_t node = 0; node < fleet->n_nodes; node++)
                if (fleet_log_has(fleet, node, STALL_WORD))
                        return true;
        return false;
}

/* The longest since the last look. */
static double bounded_pause_ms(struct fleet *fleet, const char *what) {
        double ms = traffic_longest_ms(fleet);
        double bound_ms = (fleet->n_nodes >= CROWD ? CROWD_PAUSE_MS : PAUSE_MS) * proc_time_scale();

        if (ms > bound_ms)
                fail_msg("%s: a pause of %.0f ms is above %.0f ms", what, ms, bound_ms);
        return ms;
}

/* From here on: every rank has ended a call since the logs were marked, so what it waits for now is reported behind. */
static void watch_pauses(struct fleet *fleet) {
        fleet_log_mark(fleet);
        traffic_await(fleet, 1, MEND_MS);
        (void)bounded_pause_ms(fleet, "before");
}

static void show_pause(struct fleet *fleet, const char *what) {
        double ms = bounded_pause_ms(fleet, what);

        print_message("%s: longest pause %.0f ms\n", what, ms);
        if (ms > REPORT_MS && !proc_await(stall_is_reported, fleet, NOTICE_MS))
                fail_msg("%s: nobody has reported a pause of %.0f ms", what, ms);
}

static void break_and_mend(struct fleet *fleet, const char *broken, const char *mended) {
        struct fleet_routes routes;

        watch_pauses(fleet);
        (void)fleet_link(fleet, 0, 0, broken, NULL);
        await_noticed(fleet);
        traffic_await(fleet, 2 * ROUND, MEND_MS);
        show_pause(fleet, broken);
        routes = fleet_routes(fleet, 0, 0);
        print_message("%" PRIu64 " messages of node a were sent again, after %" PRIu64 " errors\n",
                      routes.retransmitted, routes.errors);
        if (routes.n_up != 0 || routes.errors == 0)
                fail_msg("rail 0 is broken, but %u of its routes are up, with %" PRIu64 " errors", routes.n_up,
                         routes.errors);
        watch_pauses(fleet);
        (void)fleet_link(fleet, 0, 0, mended, NULL);
        await_mended(fleet);
        show_pause(fleet, mended);
}

static void flap(struct fleet *fleet) {
        watch_pauses(fleet);
        for (uint32_t i = 0; i < FLAPS; i++) {
                (void)fleet_link(fleet, 0, 0, "down", NULL);
                (void)fleet_link(fleet, 0, 0, "up", NULL);
                traffic_await(fleet, ROUND / 2, MEND_MS);
        }
        show_pause(fleet, "flap");
        await_mended(fleet);
}

/* No rail carries anything of node a until every node has said whom its ranks wait for, and nobody is given up so soon:
 * then all go on. */
static void stand_still(struct fleet *fleet) {
        double ms;

        watch_pauses(fleet);
        for (uint32_t rail = 0; rail < fleet->n_rails; rail++)
                (void)fleet_link(fleet, 0, rail, "drop", NULL);
        for (uint32_t node = 0; node < fleet->n_nodes; node++)
                if (!fleet_await_log(fleet, node, STALL_WORD, NOTICE_MS))
                        fail_msg("node %c has not reported that its ranks wait", (int)('a' + node));
        for (uint32_t rail = 0; rail < fleet->n_rails; rail++)
                (void)fleet_link(fleet, 0, rail, "ok", NULL);
        traffic_await(fleet, ROUND, MEND_MS);
        ms = traffic_longest_ms(fleet);
        print_message("all nodes have reported that their ranks wait; longest pause %.0f ms\n", ms);
        assert_true(ms > STALL_MS);
        await_mended(fleet);
}

static void count(const struct fleet *fleet, uint64_t *ret_packets, uint64_t *ret_dropped) {
        uint64_t packets, dropped;

        *ret_packets = *ret_dropped = 0;
        for (uint32_t node = 0; node < fleet->n_nodes; node++) {
                fleet_link_counts(node, 0, &packets, &dropped);
                *ret_packets += packets;
                *ret_dropped += dropped;
        }
}

/* All ports of rail 0, until something was lost, or with a delay that is there; the routes are slow, but there. */
static void impair(struct fleet *fleet, const char *action, const char *value, uint32_t steps) {
        bool loses = strcmp(action, "loss") == 0;
        uint64_t packets, dropped;
        uint32_t rounds = 0;
        double trip_ms = 0;

        watch_pauses(fleet);
        for (uint32_t node = 0; node < fleet->n_nodes; node++)
                (void)fleet_link(fleet, node, 0, action, value);
        do {
                traffic_await(fleet, steps, 2 * MEND_MS);
                count(fleet, &packets, &dropped);
        } while (loses && dropped == 0 && ++rounds < LOSS_ROUNDS);
        if (!loses)
                trip_ms = fleet_round_trip_ms(fleet, 0, 1, 0);
        for (uint32_t node = 0; node < fleet->n_nodes; node++)
                (void)fleet_link(fleet, node, 0, "ok", NULL);
        print_message("%" PRIu64 " packets went over the rail, %" PRIu64 " were lost; round trip %.1f ms\n", packets,
                      dropped, trip_ms);
        show_pause(fleet, action);
        assert_true(packets > 0);
        if (loses ? dropped == 0 : trip_ms < 2 * DELAY_MS)
                fail_msg("there was no %s", action);
        await_mended(fleet);
}

void faults_run(struct fleet *fleet, const struct scenario *scenario) {
        struct fleet_routes before;
        uint32_t n_steps;

        if (fleet->n_nodes >= CROWD) {
                fleet->lost_ms = CROWD_LOST_MS;
                fleet->timeout = CROWD_TIMEOUT;
        }
        if (scenario->kind == FAULT_STILL)
                fleet->lost_ms = STILL_LOST_MS;
        fleet_start(fleet);
        traffic_start(fleet, scenario->n_ranks);
        await_mended(fleet); /* all rails carry data */
        switch ((enum fault)scenario->kind) {
        case FAULT_DOWN:
                break_and_mend(fleet, "down", "up");
                break;
        case FAULT_DROP:
                break_and_mend(fleet, "drop", "ok");
                break;
        case FAULT_FLAP:
                flap(fleet);
                break;
        case FAULT_STILL:
                stand_still(fleet);
                break;
        case FAULT_LOSS:
                impair(fleet, "loss", "1", 5 * ROUND);
                break;
        case FAULT_DELAY:
                before = fleet_routes(fleet, 0, 0);
                impair(fleet, "delay", "5ms", 3 * ROUND);
                assert_true(fleet_routes(fleet, 0, 0).errors == before.errors);
                break;
        }
        n_steps = traffic_end(fleet);
        print_message("%u operations on each of %u ranks, 0 wrong, 0 lost\n", n_steps, scenario->n_ranks);
        fleet_stop(fleet);
}
