/* SPDX-License-Identifier: MIT */
/*
 * Deficit round robin in bytes. A flow that has something to send gets quantum * weight bytes when its turn comes and
 * sends while its next item fits; what it could not use it keeps for its next turn, unless it has run dry. So in any
 * stretch in which two flows always have something to send, what they got differs from their weights by less than one
 * quantum * weight and one item for each, however items are sized; and as long as anything may go, something goes.
 *
 * Items of a flow wait in lanes, one for each port, and a lane whose port is shut (no connection, or its window is
 * full) is passed over: a peer that does not take what is sent holds up nothing but what is for it. A window that is
 * kept full is open for a moment at a time, so a flow whose lanes are shut keeps what it has, and its place among the
 * others.
 *
 * Class 0 goes first. So that it cannot starve the others, one item of theirs goes after urgent_max bytes of it.
 */
#include "fabric/schedule.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

void schedule_init(struct schedule *schedule, uint64_t quantum, uint64_t urgent_max) {
        *schedule = (struct schedule){.quantum = quantum ? quantum : 1, .urgent_max = urgent_max};
}

void schedule_deinit(struct schedule *schedule) {
        assert(!schedule->flows && schedule->queued_bytes == 0);
        *schedule = (struct schedule){0};
}

static struct schedule_flow **schedule_list(struct schedule *schedule, const struct schedule_flow *flow) {
        return flow->class == 0 ? &schedule->urgent : &schedule->others;
}

static void schedule_go_last(struct schedule *schedule, struct schedule_flow *flow) {
        struct schedule_flow **list = schedule_list(schedule, flow);

        DL_DELETE2(*list, flow, active_prev, active_next);
        DL_APPEND2(*list, flow, active_prev, active_next);
        flow->place = ++schedule->places;
}

/* A lane has become ready, or is no longer; its flow with it. */
static void schedule_update(struct schedule *schedule, struct schedule_lane *lane) {
        struct schedule_flow *flow = lane->flow, **list = schedule_list(schedule, flow);
        bool ready = lane->items && !lane->port->shut;

        if (ready == lane->ready)
                return;
        lane->ready = ready;
        if (ready)
                DL_APPEND2(flow->ready, lane, flow_prev, flow_next);
        else
                DL_DELETE2(flow->ready, lane, flow_prev, flow_next);
        if (flow->ready && !flow->active) {
                struct schedule_flow *next;

                DL_FOREACH2(*list, next, active_next) {
                        if (next->place > flow->place)
                                break;
                }
                DL_PREPEND_ELEM2(*list, next, flow, active_prev, active_next); /* at the end if there is none */
                flow->active = true;
        } else if (!flow->ready && flow->active) {
                DL_DELETE2(*list, flow, active_prev, active_next);
                flow->active = false;
        }
}

int schedule_lane(struct schedule *schedule, struct schedule_port *port, uint32_t class, uint64_t tenant,
                  uint32_t weight, struct schedule_lane **ret_lane) {
        struct schedule_flow *flow;
        struct schedule_lane *lane;

        DL_FOREACH2(port->lanes, lane, port_next) {
                if (lane->flow->class == class && lane->flow->tenant == tenant) {
                        lane->flow->weight = weight;
                        *ret_lane = lane;
                        return 0;
                }
        }
        lane = calloc(1, sizeof(*lane));
        if (!lane)
                return -ENOMEM;
        DL_FOREACH(schedule->flows, flow) {
                if (flow->class == class && flow->tenant == tenant)
                        break;
        }
        if (!flow) {
                flow = calloc(1, sizeof(*flow));
                if (!flow) {
                        free(lane);
                        return -ENOMEM;
                }
                flow->class = class;
                flow->tenant = tenant;
                DL_APPEND(schedule->flows, flow);
        }
        flow->weight = weight;
        flow->n_lanes++;
        lane->flow = flow;
        lane->port = port;
        DL_APPEND2(port->lanes, lane, port_prev, port_next);
        *ret_lane = lane;
        return 0;
}

void schedule_push(struct schedule *schedule, struct schedule_lane *lane, struct schedule_item *item, bool first) {
        struct schedule_flow *flow = lane->flow;

        assert(!item->lane);
        if (flow->n_items++ == 0) { /* it had run dry */
                flow->place = ++schedule->places;
                flow->deficit = 0;
                flow->visited = false;
        }
        item->lane = lane;
        if (first)
                DL_PREPEND(lane->items, item);
        else
                DL_APPEND(lane->items, item);
        lane->port->queued_bytes += item->bytes;
        schedule->queued_bytes += item->bytes;
        schedule_update(schedule, lane);
}

void schedule_remove(struct schedule *schedule, struct schedule_item *item) {
        struct schedule_lane *lane = item->lane;

        DL_DELETE(lane->items, item);
        item->prev = item->next = NULL;
        item->lane = NULL;
        lane->flow->n_items--;
        lane->port->queued_bytes -= item->bytes;
        schedule->queued_bytes -= item->bytes;
        schedule_update(schedule, lane);
}

/*
 * Nobody could send in a whole round. How many more rounds would go by like that? They are given at once, so a small
 * quantum (that of a small weight must be one) costs no time.
 */
static void schedule_skip(struct schedule *schedule, struct schedule_flow *list) {
        uint64_t rounds = UINT64_MAX;
        struct schedule_flow *flow;

        DL_FOREACH2(list, flow, active_next) {
                uint64_t bytes = flow->ready->items->bytes, share = schedule->quantum * flow->weight;
                uint64_t needs = bytes > flow->deficit ? (bytes - flow->deficit + share - 1) / share : 0;

                if (needs < rounds)
                        rounds = needs;
        }
        if (rounds < 2)
                return;
        DL_FOREACH2(list, flow, active_next)
                flow->deficit += (rounds - 1) * schedule->quantum * flow->weight;
}

static struct schedule_item *schedule_serve(struct schedule *schedule, struct schedule_flow **list) {
        struct schedule_flow *first = NULL;

        for (;;) {
                struct schedule_flow *flow = *list;
                struct schedule_lane *lane = flow->ready;
                struct schedule_item *item = lane->items;

                if (!flow->visited) {
                        if (flow == first)
                                schedule_skip(schedule, *list);
                        else if (!first)
                                first = flow;
                        flow->visited = true;
                        flow->deficit += schedule->quantum * flow->weight;
                }
                if (item->bytes <= flow->deficit) {
                        flow->deficit -= item->bytes;
                        /* The next lane's turn, before the item's removal may take this one out. */
                        DL_DELETE2(flow->ready, lane, flow_prev, flow_next);
                        DL_APPEND2(flow->ready, lane, flow_prev, flow_next);
                        schedule_remove(schedule, item);
                        return item;
                }
                flow->visited = false;
                schedule_go_last(schedule, flow);
        }
}

struct schedule_item *schedule_pop(struct schedule *schedule) {
        struct schedule_item *item;

        if (schedule->urgent && (!schedule->others || schedule->urgent_sent < schedule->urgent_max)) {
                item = schedule_serve(schedule, &schedule->urgent);
                schedule->urgent_sent = schedule->others ? schedule->urgent_sent + item->bytes : 0;
                return item;
        }
        if (!schedule->others)
                return NULL; /* shut for a moment, it may be: what class 0 has sent in a row counts on */
        schedule->urgent_sent = 0;
        return schedule_serve(schedule, &schedule->others);
}

void schedule_shut(struct schedule *schedule, struct schedule_port *port, bool shut) {
        struct schedule_lane *lane;

        if (port->shut == shut)
                return;
        port->shut = shut;
        DL_FOREACH2(port->lanes, lane, port_next)
                schedule_update(schedule, lane);
}

void schedule_port_deinit(struct schedule *schedule, struct schedule_port *port) {
        struct schedule_lane *lane, *tmp;

        DL_FOREACH_SAFE2(port->lanes, lane, tmp, port_next) {
                struct schedule_flow *flow = lane->flow;

                assert(!lane->items && !lane->ready);
                DL_DELETE2(port->lanes, lane, port_prev, port_next);
                free(lane);
                if (--flow->n_lanes == 0) {
                        DL_DELETE(schedule->flows, flow);
                        free(flow);
                }
        }
}
