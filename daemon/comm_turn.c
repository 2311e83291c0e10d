/* SPDX-License-Identifier: MIT */
/*
 * Plans over nodes take up to 60 ms for each communicator or split that lies like none before (comm_plan.c), and many
 * may be complete at the same moment: a tenant can have begun 32 splits of a communicator, and what another node has to
 * say of them arrives together. If they were formed where the last rank is heard, the loop would stand for seconds, no
 * heartbeat would go out, and other nodes would give this one up. So they wait here, and one of them is formed in a
 * turn of the loop, also if its plans are known already. In between sockets and timers are looked at as always.
 *
 * The tenant whose last turn was longest ago is next, so that none waits for all that another one has begun. Tenants
 * are told apart by their names, which other nodes say as well; if two fall together they share their turns.
 *
 * A timer of no time does that: one turn, and then all else. event_active() from its own callback would not: the loop
 * runs what is active until nothing is, before it looks at anything else.
 */
#include "daemon/comm_turn.h"

#include "daemon/loop_watch.h"
#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

static void comm_turns_arm(struct comm_turns *turns) {
        static const struct timeval none = {0};

        if (event_add(turns->event, &none) < 0)
                event_active(turns->event, EV_TIMEOUT, 0); /* takes no memory; rather now than never */
}

static struct comm_turn *comm_turns_first(const struct comm_turns *turns) {
        struct comm_turn *turn, *first = turns->first;

        DL_FOREACH(turns->first, turn) {
                if (turns->last[turn->tenant] < turns->last[first->tenant])
                        first = turn;
        }
        return first;
}

static void comm_turns_next(evutil_socket_t fd, short what, void *data) {
        struct comm_turns *turns = data;
        struct comm_turn *turn = comm_turns_first(turns);
        LOOP_HOLD(turns->watch, "the plans of a communicator over several nodes");

        (void)fd;
        (void)what;
        if (!turn) /* they have left */
                return;
        comm_turn_leave(turn);
        turns->last[turn->tenant] = ++turns->n_taken;
        if (turns->first)
                comm_turns_arm(turns);
        turn->take(turn->data);
}

int comm_turns_init(struct comm_turns *turns, struct event_base *base, struct loop_watch *watch) {
        *turns = (struct comm_turns){.watch = watch, .event = evtimer_new(base, comm_turns_next, turns)};
        return turns->event ? 0 : -ENOMEM;
}

void comm_turns_deinit(struct comm_turns *turns) {
        assert(!turns->first);
        if (turns->event)
                event_free(turns->event);
        turns->event = NULL;
}

void comm_turn_wait(struct comm_turn *turn, struct comm_turns *turns, const char *tenant, void (*take)(void *data),
                    void *data) {
        uint32_t hash;

        assert(!turn->turns);
        HASH_JEN(tenant, strlen(tenant), hash);
        turn->tenant = hash % COMM_TURN_TENANTS;
        turn->turns = turns;
        turn->take = take;
        turn->data = data;
        DL_APPEND(turns->first, turn);
        if (turns->first == turn)
                comm_turns_arm(turns);
}

void comm_turn_leave(struct comm_turn *turn) {
        if (!turn->turns)
                return;
        DL_DELETE(turn->turns->first, turn);
        turn->turns = NULL;
}
